"""What a report is made of: one Finding a fault, and the list that collects them."""

from __future__ import annotations

from vqfref.errors import LimitError, VqfrefError, location

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

SEVERITIES = ("error", "warning", "note")
MAX_OF_A_CODE = 1000  # findings of one code in a report; the last of them says how many were left out


class Finding:
    """One thing that a check found: the facts of an error, a severity, and the engine's verdict.

    severity: one of SEVERITIES. engine: would the format's own engine load the file in spite of this (accepts), or
    does it refuse too (refuses)? "unknown" where versions of it differ.
    """

    __slots__ = ("code", "severity", "path", "offset", "field", "message", "engine")

    def __init__(
        self,
        code: str,
        severity: str,
        message: str,
        *,
        offset: int | None = None,
        field: str | None = None,
        path: str | None = None,
        engine: str = "unknown",
    ) -> None:
        self.code = code
        self.severity = severity
        self.path = path
        self.offset = offset
        self.field = field
        self.message = message
        self.engine = engine

    @classmethod
    def from_error(cls, error: VqfrefError, engine: str | None = None) -> Finding:
        """The finding that says what an error says. The engine refuses too, unless told otherwise; what it makes of
        this library's own limits is unknown."""
        engine = engine or ("unknown" if isinstance(error, LimitError) else "refuses")
        return cls(
            error.code, "error", error.message, offset=error.offset, field=error.field, path=error.path, engine=engine
        )

    def as_dict(self) -> dict[str, Any]:
        """The stable JSON shape of a finding."""
        return {name: getattr(self, name) for name in self.__slots__}

    def __str__(self) -> str:
        return "%s[%s] %s%s" % (self.severity, self.code, location(self.offset, self.field), self.message)

    def __repr__(self) -> str:
        return "<Finding %s>" % self


class Findings:
    """Collects the findings about one file, at most MAX_OF_A_CODE of each code."""

    def __init__(self, path: str | None) -> None:
        self.path = path
        self._list: list[Finding] = []
        self._count: dict[str, int] = {}

    def add(
        self,
        severity: str,
        code: str,
        message: str,
        offset: int | None,
        field: str | None,
        engine: str = "accepts",
        path: str | None = None,
    ) -> None:
        """Add one; `engine` as in Finding, `path` where it is not the report's own."""
        n = self._count[code] = self._count.get(code, 0) + 1
        if n <= MAX_OF_A_CODE:
            self._list.append(
                Finding(code, severity, message, offset=offset, field=field, path=path or self.path, engine=engine)
            )

    def add_error(self, error: VqfrefError, engine: str | None = None) -> None:
        """Add what an error says."""
        f = Finding.from_error(error, engine)
        self.add(f.severity, f.code, f.message, f.offset, f.field, f.engine, f.path)

    def sorted(self) -> list[Finding]:
        """All of them by offset, those without one first, and the graver ones first at the same place."""
        found = list(self._list)
        left_out = {code: n - MAX_OF_A_CODE for code, n in self._count.items() if n > MAX_OF_A_CODE}
        for i in range(len(found) - 1, -1, -1):
            f = found[i]
            if f.code in left_out:
                message = "%s (and %d more of this code)" % (f.message, left_out.pop(f.code))
                found[i] = Finding(
                    f.code, f.severity, message, offset=f.offset, field=f.field, path=f.path, engine=f.engine
                )
        return sorted(found, key=lambda f: (-1 if f.offset is None else f.offset, SEVERITIES.index(f.severity)))


def engine_verdict(findings: list[Finding]) -> str:
    """What the format's own engine does with the file, from the verdicts of all findings."""
    verdicts = {f.engine for f in findings}
    return next((v for v in ("refuses", "unknown") if v in verdicts), "accepts")

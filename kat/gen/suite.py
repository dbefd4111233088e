#!/usr/bin/env python3
"""What the generators of the suite share: the form of a case, reproducible bytes, the writing of the files.

    python3 kat/gen/suite.py            write kat/manifest.json from the files of cases beside it
    python3 kat/gen/suite.py --check    make it again and compare; 1 if it differs

A generator has FLAGS, what each flag's cases catch, and FILES, by operation a function that yields its cases; it hands
both to `main`. Uses nothing of vqfref.
"""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, Iterator

    Case = Dict[str, Any]
    Maker = Callable[[Dict[str, Case]], Iterator[Case]]

KAT = Path(__file__).resolve().parent.parent
VERSION = "1.0.0"
RESULTS = ("valid", "invalid", "acceptable")
MAX_FILE = 65536


def prove(true: object, claim: str) -> None:
    """The property that a case exists for; also under python -O."""
    if not true:
        raise AssertionError(claim)


def data(label: str, size: int) -> bytes:
    """Bytes without meaning that anybody can make again."""
    return hashlib.shake_256(label.encode()).digest(size)


def case(
    name: str, comment: str, source: str, flags: str, into: dict[str, Any], out: dict[str, Any] | None = None,
    error: str | None = None, level: str = "required", result: str | None = None,
) -> Case:  # fmt: skip
    """One case; bytes become hex. It is valid, unless `error` or `result` says otherwise."""

    def plain(values: dict[str, Any]) -> dict[str, Any]:
        return {k: v.hex() if isinstance(v, bytes) else v for k, v in values.items()}

    made: Case = {"id": name, "comment": comment, "level": level, "flags": flags.split(), "source": source}
    made.update({"since": "1.0.0", "in": plain(into), "out": plain(out or {})})
    made["result"] = result or ("invalid" if error else "valid")
    if error:
        made["error"] = error
    return made


class Output:
    """Files that are written, or compared with what stands there; `status` is 1 as soon as one differs."""

    def __init__(self, check: bool) -> None:
        self.check, self.status = check, 0

    def put(self, path: Path, content: bytes) -> str:
        """Write a file or compare it: "same", "differs" or "written"."""
        if path.exists() and path.read_bytes() == content:
            return "same"
        if self.check:
            self.status = 1
            print("%s differs" % path.relative_to(KAT))
            return "differs"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        return "written"

    def folder(self, path: Path, files: dict[str, bytes]) -> None:
        """A folder that holds these files, by name, and no other."""
        prove(max(map(len, files.values())) <= MAX_FILE, "the files of %s are small" % path.name)
        for name, content in files.items():
            self.put(path / name, content)
        for extra in sorted({str(p.relative_to(path)) for p in path.rglob("*") if p.is_file()} - set(files)):
            print("%s does not belong there" % (path / extra).relative_to(KAT))
            self.status |= self.check
            if not self.check:
                (path / extra).unlink()


def text_of(cases: list[Case]) -> str:
    """JSON with one case a line."""
    return "[\n%s\n]\n" % ",\n".join(json.dumps(c, ensure_ascii=False) for c in cases)


def counts(cases: list[Case]) -> dict[str, int]:
    """How many cases have each result."""
    return {result: sum(c["result"] == result for c in cases) for result in RESULTS}


def manifest() -> bytes:
    """The manifest of the files of cases that stand in kat/."""
    files = {}
    for path in sorted(KAT.glob("*.json")):
        if path.name != "manifest.json":
            content = path.read_bytes()
            facts = {"op": path.stem, "sha256": hashlib.sha256(content).hexdigest()}
            files[path.name] = {**facts, **counts(json.loads(content))}
    whole = {"suite": "vqfref-kat", "version": VERSION, "files": files}
    return (json.dumps(whole, indent=1, ensure_ascii=False) + "\n").encode()


def main(argv: list[str], usage: str | None, flags: dict[str, str], makers: dict[str, Maker],
         files: dict[str, dict[str, bytes]] | None = None) -> int:  # fmt: skip
    """The command line of a generator: write its files of cases and the manifest, or compare them. A maker gets the
    cases of its operation that stand there already, by id. `files`: by folder in kat/files/, the files it holds, which
    may be filled by the makers."""
    if argv not in ([], ["--check"]):
        sys.exit(usage)
    output = Output(check=bool(argv))
    used: set[str] = set()
    seen: set[str] = set()
    for op, maker in makers.items():
        path = KAT / (op + ".json")
        old = json.loads(path.read_text("utf-8")) if path.exists() else []
        cases = list(maker({c["id"]: c for c in old}))
        ids = [c["id"] for c in cases]
        prove(len(set(ids)) == len(ids) and not seen & set(ids), "every id is there once")
        inputs = [json.dumps([c["in"]]) for c in cases]
        prove(len(set(inputs)) == len(inputs), "no case has another one's input: %s" % op)
        prove(max(map(len, inputs)) < 60000, "every case fits on one line of the protocol: %s" % op)
        seen.update(ids)
        used.update(flag for c in cases for flag in c["flags"])
        text = text_of(cases).encode()
        numbers = ["%4d %s" % (n, result) for result, n in counts(cases).items()]
        print("%-18s %s %7d bytes: %s" % (op, " ".join(numbers), len(text), output.put(path, text)))
    prove(used == set(flags), "flags have cases, and cases declared flags: %s" % (set(flags) ^ used))
    for folder, content in (files or {}).items():
        output.folder(KAT / "files" / folder, content)
    output.put(KAT / "manifest.json", manifest())
    return output.status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], __doc__, {}, {}))

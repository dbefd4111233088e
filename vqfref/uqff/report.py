"""uqff_report.json: read, its identity checked, written. Spec: UQFF sections 10.2 (R1 to R7) and 11."""

from __future__ import annotations

import os
from collections import namedtuple

from vqfref import strictjson
from vqfref.errors import FormatError, VqfrefError
from vqfref.source import Source
from vqfref.uqff.naming import REPORT_NAME

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Iterable, Iterator, Sequence

MAX_REPORT = 1 << 26  # bytes; a large model's report has some megabytes

Report = namedtuple("Report", "schema generated_by base_model repo_id uqff_version outputs")
Report.__doc__ = """A report. generated_by: a dict with tool and, unless unset, mistralrs_version and git_revision;
base_model, repo_id: text or None; outputs: Output records."""

Output = namedtuple("Output", "quant shards layers actual_counts fallback_count fallbacks layer_details")
Output.__doc__ = (
    "One output: a quantization with its shards in load order; fallbacks and layer_details as lists of records."
)

Fallback = namedtuple("Fallback", "module from_ to shape reason")
Detail = namedtuple("Detail", "module default_target resolved_target stored shape")


# ---- reading


def parse(data: bytes, path: str | None = None) -> Report:
    """A Report from its JSON; unknown fields are ignored, as the engine does. Raises FormatError uqff.r7.json."""
    try:
        root = strictjson.loads(data, path=path)
    except VqfrefError as error:
        raise FormatError("uqff.r7.json", "the report is not JSON: %s" % error.message, offset=error.offset,
                          path=path) from None  # fmt: skip
    read = _Reader(path)
    read.object(root, "report")
    by = read.object(read.need(root, "generated_by"), "generated_by")
    generated_by = {"tool": read.text(by, "tool")}
    for name in ("mistralrs_version", "git_revision"):
        if by.get(name) is not None:
            generated_by[name] = read.text(by, name)
    return Report(
        read.count(root, "schema", 32), generated_by, read.text(root, "base_model", True), read.text(root, "repo_id", True),
        read.text(root, "uqff_version"), [read.output(o) for o in read.items(root, "outputs")],
    )  # fmt: skip


class _Reader:
    """The fields of a report in their types; every fault is R7 and names the field."""

    def __init__(self, path: str | None) -> None:
        self.path = path

    def fault(self, field: str, message: str) -> FormatError:
        return FormatError("uqff.r7.json", "%s: %s" % (REPORT_NAME, message), field=field, path=self.path)

    def object(self, value: Any, field: str) -> Any:
        if not isinstance(value, dict):
            raise self.fault(field, "expected an object")
        return value

    def need(self, where: dict[str, Any], name: str) -> Any:
        if name not in where:
            raise self.fault(name, "required, but missing")
        return where[name]

    def text(self, where: dict[str, Any], name: str, optional: bool = False) -> Any:
        value = where.get(name) if optional else self.need(where, name)
        if not isinstance(value, str) and not (optional and value is None):
            raise self.fault(name, "expected text")
        return value

    def count(self, where: dict[str, Any], name: str, bits: int = 64) -> int:
        value = self.need(where, name)
        if type(value) is not int or not 0 <= value < 1 << bits:
            raise self.fault(name, "expected an unsigned integer of %d bits" % bits)
        return value

    def items(self, where: dict[str, Any], name: str, optional: bool = False) -> list[Any]:
        value = where.get(name, []) if optional else self.need(where, name)
        if not isinstance(value, list):
            raise self.fault(name, "expected a list")
        return value

    def shape(self, where: dict[str, Any]) -> list[int]:
        values = self.items(where, "shape")
        if not all(type(v) is int and 0 <= v < 1 << 64 for v in values):
            raise self.fault("shape", "expected unsigned integers")
        return values

    def output(self, value: Any) -> Output:
        o = self.object(value, "outputs")
        shards = self.items(o, "shards")
        if not all(isinstance(s, str) for s in shards):
            raise self.fault("shards", "expected file names")
        counts = self.object(self.need(o, "actual_counts"), "actual_counts")
        return Output(
            self.text(o, "quant"), shards, self.count(o, "layers"), {k: self.count(counts, k) for k in counts},
            self.count(o, "fallback_count"), [self.fallback(f) for f in self.items(o, "fallbacks", True)],
            [self.detail(d) for d in self.items(o, "layer_details", True)],
        )  # fmt: skip

    def fallback(self, value: Any) -> Fallback:
        f = self.object(value, "fallbacks")
        return Fallback(
            self.text(f, "module"),
            self.text(f, "from"),
            self.text(f, "to"),
            self.shape(f),
            self.text(f, "reason", True),
        )

    def detail(self, value: Any) -> Detail:
        d = self.object(value, "layer_details")
        return Detail(
            self.text(d, "module"), self.text(d, "default_target", True), self.text(d, "resolved_target", True),
            self.text(d, "stored"), self.shape(d),
        )  # fmt: skip


def load(folder: str, available: Sequence[str]) -> Report | None:
    """The report of a folder, or None where there is none. Raises OSError, FormatError uqff.r7.json."""
    if REPORT_NAME not in available:
        return None
    path = os.path.join(folder, REPORT_NAME)
    with Source(path, "pread") as source:
        if source.size > MAX_REPORT:
            raise FormatError("uqff.r7.limit", "%s: %d bytes, expected at most %d" % (REPORT_NAME, source.size, MAX_REPORT),
                              path=path)  # fmt: skip
        return parse(source.read_at(0, source.size), path)


def identity_faults(report: Report, available: Iterable[str], path: str | None = None) -> Iterator[FormatError]:
    """R1 to R6: what makes a report useless for finding shards."""
    names = set(available)

    def fault(rule: str, message: str, field: str) -> FormatError:
        return FormatError(rule, message, field=field, path=path)

    if not report.outputs:
        yield fault("uqff.r1.missing", "the report has no outputs", "outputs")
    quants: dict[str, str] = {}
    owners: dict[str, str] = {}
    for o in report.outputs:
        if not o.quant.strip():
            yield fault("uqff.r2.name", "an output's quant is empty", "quant")
        elif o.quant.lower() in quants:
            yield fault("uqff.r3.duplicate", "quant %r is listed twice" % o.quant, "quant")
        quants[o.quant.lower()] = o.quant
        if not o.shards:
            yield fault("uqff.r4.missing", "output %r lists no shards" % o.quant, "shards")
        for shard in o.shards:
            if shard in owners:
                yield fault("uqff.r6.duplicate", "shard %r is listed for %r and for %r" % (shard, owners[shard], o.quant),
                            "shards")  # fmt: skip
            elif shard not in names:
                yield fault("uqff.r5.missing", "output %r lists shard %r, which is not in the folder" % (o.quant, shard),
                            "shards")  # fmt: skip
            owners.setdefault(shard, o.quant)


def check_identity(report: Report | None, available: Iterable[str], path: str | None = None) -> None:
    """Raise the first of R1 to R6 that holds."""
    if report is not None:
        for fault in identity_faults(report, available, path):
            raise fault


# ---- writing


def as_json(report: Report) -> dict[str, Any]:
    """The JSON object of a report, its keys in the engine's order; what is unset or an empty list is left out."""
    root: dict[str, Any] = {"schema": report.schema, "generated_by": dict(report.generated_by)}
    for name in ("base_model", "repo_id"):
        if getattr(report, name) is not None:
            root[name] = getattr(report, name)
    root["uqff_version"] = report.uqff_version
    root["outputs"] = [_output_json(o) for o in report.outputs]
    return root


def _output_json(o: Output) -> dict[str, Any]:
    out: dict[str, Any] = {
        "quant": o.quant,
        "shards": list(o.shards),
        "layers": o.layers,
        "actual_counts": {k: o.actual_counts[k] for k in sorted(o.actual_counts)},
        "fallback_count": o.fallback_count,
    }
    lists: tuple[tuple[str, list[Any], Callable[[Any], dict[str, Any]]], ...] = (
        ("fallbacks", o.fallbacks, _fallback_json),
        ("layer_details", o.layer_details, _detail_json),
    )
    for name, records, convert in lists:
        if records:
            out[name] = [convert(r) for r in records]
    return out


def _fallback_json(f: Fallback) -> dict[str, Any]:
    out = {"module": f.module, "from": f.from_, "to": f.to, "shape": list(f.shape)}
    return {**out, "reason": f.reason} if f.reason is not None else out


def _detail_json(d: Detail) -> dict[str, Any]:
    targets = {n: getattr(d, n) for n in ("default_target", "resolved_target") if getattr(d, n) is not None}
    return {"module": d.module, **targets, "stored": d.stored, "shape": list(d.shape)}


def dump(report: Report) -> bytes:
    """The bytes of uqff_report.json: two spaces of indent, an item a line, no newline at the end."""
    return strictjson.dumps(as_json(report), indent=2, ascii_only=False).encode("utf-8")

"""The engine's metadata commands: scan a folder, make a report of it, verify it. Spec: UQFF section 15.

`verify` follows the engine's checks in their order, with its severities, and says nothing of its own: what is stricter
here stands in audit.py. Results are texts, as the engine prints them.
"""

from __future__ import annotations

from collections import namedtuple

from vqfref.errors import VqfrefError
from vqfref.uqff import naming
from vqfref.uqff.families import Layer, Tensor, matches, structural_matches
from vqfref.uqff.report import Detail, Fallback, Output, Report
from vqfref.uqff.shards import SUPPORTED, VERSION_NAMES, open_shard

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterable, Sequence

    from vqfref.safetensors.reader import SafetensorsFile

LOADER_ONLY = " (the engine's verify accepts this, its loader refuses)"  # 15.1: of the tiling, C5
DENSE = ("unquant", "f32", "f16", "bf16")  # labels that count as a fallback

Scan = namedtuple("Scan", "group shards merged duplicates layers labels shapes")
Scan.__doc__ = """A group as the metadata commands see it. merged: Tensor by name, later shards overwriting earlier
ones; duplicates: names seen in several; layers: Layer by key; labels, shapes: by key, as reports have them."""

Verdict = namedtuple("Verdict", "ok report warnings errors")
Verdict.__doc__ = "What the engine's verify says: ok, the report it prints, warnings and errors as texts."


def scan(folder: str, group: Any) -> Scan:
    """Scan one group (15.1). The caller closes `shards`. Raises OSError, and FormatError or LimitError for a container
    that is wrong: the engine's verify overlooks most of that, its loader does not."""
    shards: list[SafetensorsFile] = []
    try:
        for name in group.files:
            shards.append(open_shard(folder, name, "pread"))
    except BaseException:
        for s in shards:
            s.close()
        raise
    merged: dict[str, Tensor] = {}
    duplicates: dict[str, None] = {}
    for file in shards:
        for name, entry in file.header.entries.items():
            if name in merged and name not in VERSION_NAMES:
                duplicates[name] = None
            merged[name] = Tensor(name, file, entry)
    layers = scanned_layers(merged)
    labels, shapes = scan_layers(layers)
    return Scan(group, shards, merged, list(duplicates), layers, labels, shapes)


def scanned_layers(merged: dict[str, Tensor]) -> dict[str, Layer]:
    """Layers by the rule of the scan: every name that ends in .weight, or contains .weight. (its last place counts)."""
    keys = set()
    for name in merged:
        if name.endswith(".weight"):
            keys.add(name[: -len(".weight")])
        elif ".weight." in name:
            keys.add(name.rpartition(".weight.")[0])
    layers = {key: Layer(key) for key in sorted(keys)}
    for name, t in merged.items():
        if name.endswith(".weight"):
            layers[name[: -len(".weight")]].tensors[""] = t
        elif ".weight." in name:
            key, _, suffix = name.rpartition(".weight.")
            layers[key].tensors["." + suffix] = t
    return layers


def scan_layers(layers: dict[str, Layer]) -> tuple[dict[str, str], dict[str, list[int]]]:
    """(labels, shapes) by key as reports have them: the label only where structure and tag agree, else unknown; the
    logical shape where there is a `.shape`, else the stored one."""
    labels, shapes = {}, {}
    for key, layer in layers.items():
        found = structural_matches(layer)
        labels[key] = layer.label() if len(found) == 1 and found[0].tag == layer.tag else "unknown"
        shapes[key] = report_shape(layer)
    return labels, shapes


def report_shape(layer: Layer) -> list[int]:
    """The shape that a report gives a layer (section 11)."""
    shape, weight = layer.entry(".shape"), layer.entry("")
    if shape is not None and matches(shape, "V"):
        return list(layer.numbers(".shape"))
    return list(weight.shape) if weight is not None else [len(layer.key)]


# ---- report: 15.2


def scan_report(scans: Iterable[Scan], tool: str, base_model: str | None = None, repo_id: str | None = None) -> Report:
    """The report of some scans. `uqff_version` is the first metadata text found; version entries are not read."""
    outputs = []
    version = None
    for s in scans:
        for file in s.shards:
            version = version or file.header.metadata.get("uqff.version")
        counts: dict[str, int] = {}
        fallbacks, details = [], []
        for key, label in s.labels.items():
            counts[label] = counts.get(label, 0) + 1
            if label in DENSE and label != s.group.name:
                fallbacks.append(Fallback(key, s.group.name, label, s.shapes[key], None))
            details.append(Detail(key, s.group.name, None, label, s.shapes[key]))
        outputs.append(
            Output(s.group.name, list(s.group.files), len(s.layers), counts, len(fallbacks), fallbacks, details)
        )
    return Report(1, {"tool": tool}, base_model, repo_id, version or "%d.%d.%d" % SUPPORTED, outputs)


def summary(report: Report, verbose: bool = False) -> list[str]:
    """A report as lines of text."""
    lines = ["UQFF artifact: %s" % report.base_model if report.base_model else "UQFF artifact"]
    lines.append("version %s" % report.uqff_version)
    if report.repo_id:
        lines.append("repo %s" % report.repo_id)
    lines.append("tool %s" % report.generated_by["tool"])
    for o in report.outputs:
        counts = ", ".join("%d %s" % (n, label) for label, n in sorted(o.actual_counts.items()))
        lines.append("%s: %d layers, %d shard(s), %s, %d fallback(s)"
                     % (o.quant, o.layers, len(o.shards), counts or "nothing", o.fallback_count))  # fmt: skip
        if verbose:
            for f in o.fallbacks:
                reason = ": %s" % f.reason if f.reason else ""
                lines.append("  %s: %s -> %s %s%s" % (f.module, f.from_, f.to, list(f.shape), reason))
    return lines


# ---- verify: 15.3


def verify(
    folder: str, groups: Sequence[Any], report: Report | None, *, strict: bool = False, allow_newer_minor: bool = False,
    all_selected: bool = True,
) -> Verdict:  # fmt: skip
    """The engine's verify over the selected groups. all_selected: False where --quant chose some of them."""
    if report is not None and not all_selected and all(g.output is None for g in groups):
        report = None  # only groups that it does not know were chosen
    run = _Verify(report, strict, allow_newer_minor)
    scans: list[Scan] = []
    try:
        for group in groups:
            try:
                scans.append(scan(folder, group))
            except VqfrefError as error:
                mark = LOADER_ONLY if error.code.startswith("uqff.c5.") else ""
                run.errors.append("%s: %s: %s%s" % (group.name, error.path, error, mark))
                continue
            run.group(scans[-1])
        scanned = scan_report(scans, "mistralrs uqff verify")
        run.integrity(scanned.outputs, "artifacts")
        run.compare(scans, scanned.outputs, groups)
    finally:
        for s in scans:
            for file in s.shards:
                file.close()
    return Verdict(not run.errors, report or scanned, run.warnings, run.errors)


class _Verify:
    """The checks, their texts collected."""

    def __init__(self, report: Report | None, strict: bool, allow_newer_minor: bool) -> None:
        self.report, self.strict, self.allow_newer_minor = report, strict, allow_newer_minor
        self.warnings: list[str] = []
        self.errors: list[str] = []

    def group(self, s: Scan) -> None:
        g = s.group.name
        for name in s.duplicates:  # 1
            self.errors.append("%s: %s is in more than one shard" % (g, name))
        self.versions(s)
        if not any("uqff.producer" in f.header.metadata for f in s.shards):  # 9
            (self.errors if self.strict else self.warnings).append("%s: producer metadata missing" % g)
        self.indexes(s)
        self.names(s)
        for layer in s.layers.values():
            self.layer(g, layer)
        self.fallbacks(s)

    def versions(self, s: Scan) -> None:
        """Checks 2 to 8."""
        g = s.group.name
        numbers: dict[str, int] = {}
        for name in VERSION_NAMES:
            if name not in s.merged:
                self.errors.append("%s: version entry %s is missing" % (g, name))
                continue
            entry = s.merged[name].entry
            if entry.dtype != "U32" or entry.shape != ():
                self.errors.append(
                    "%s: invalid header of %s: %s of shape %s" % (g, name, entry.dtype, list(entry.shape))
                )
            for file in s.shards:
                copy = file.header.entries.get(name)
                if copy is None:
                    continue
                if not matches(copy, "S(U32)"):
                    self.errors.append("%s: %s in %s is not a U32 scalar" % (g, name, file.path))
                    continue
                value = int.from_bytes(file.raw(name), "little")
                if numbers.setdefault(name, value) != value:
                    self.errors.append("%s: %s is %d in %s, expected %d" % (g, name, value, file.path, numbers[name]))
        version = self.version(s, numbers)
        if version is None:
            return
        if version[0] != SUPPORTED[0]:  # 7
            self.errors.append("%s: major version %d, expected %d" % (g, version[0], SUPPORTED[0]))
        elif version[1] > SUPPORTED[1] and not self.allow_newer_minor:  # 8
            self.errors.append("%s: minor version %d, supported %d" % (g, version[1], SUPPORTED[1]))

    def version(self, s: Scan, numbers: dict[str, int]) -> tuple[int, ...] | None:
        """Check 6: from the entries if all three are there, else from the metadata text."""
        if all(name in s.merged for name in VERSION_NAMES):
            return tuple(numbers[n] for n in VERSION_NAMES) if len(numbers) == 3 else None
        text = next((f.header.metadata["uqff.version"] for f in s.shards if "uqff.version" in f.header.metadata), None)
        if text is None:
            self.errors.append("%s: no version entries and no uqff.version" % s.group.name)
            return None
        numbers_in_text = [n for n in map(naming.unsigned, text.split(".")) if n is not None]
        if len(numbers_in_text) != 3 or text.count(".") != 2:
            self.errors.append("%s: malformed uqff.version %.60r" % (s.group.name, text))
            return None
        return tuple(numbers_in_text)

    def indexes(self, s: Scan) -> None:
        """Check 10: shard indexes without a gap, for groups that no report defines."""
        g = s.group.name
        if self.report is not None and any(o.quant == g for o in self.report.outputs):
            return
        keys = [naming.group_key(name) for name in s.group.files]
        if any(index is None or key != g for key, index in keys):
            return
        for expected, found in enumerate(sorted(index or 0 for _, index in keys)):
            if expected != found:
                self.errors.append("%s: shard index %d, expected %d" % (g, found, expected))
                return

    def names(self, s: Scan) -> None:
        """Check 11: names without a dot."""
        for file in s.shards:
            plain = [n for n in file.header.entries if n not in VERSION_NAMES and "." not in n]
            if plain:
                plain.sort(key=lambda n: (naming.unsigned(n) is None, naming.unsigned(n) or 0, n))
                self.errors.append("%s: %s: %d names without a namespace (%s): old format"
                                   % (s.group.name, file.path, len(plain), ", ".join(plain[:3])))  # fmt: skip

    def layer(self, g: str, layer: Layer) -> None:
        """Checks 12 to 17."""
        key = layer.key
        entry = layer.entry(".format")
        tag = None
        if entry is None or not matches(entry, "S(U8)"):
            self.errors.append("%s: %s: invalid format header" % (g, key))
        tag = layer.tag
        if tag is None or tag > 6:
            reason = "unreadable" if tag is None else "%d" % tag
            self.errors.append("%s: %s: invalid discriminator: %s" % (g, key, reason))
        found = structural_matches(layer)
        if not found:
            self.errors.append("%s: %s: unrecognised structure" % (g, key))
        elif len(found) == 1 and tag is not None and tag <= 6 and found[0].tag != tag:
            declared = layer.family.name
            self.errors.append("%s: %s: declared %s, but structured as %s" % (g, key, declared, found[0].name))
        elif len(found) > 1:
            self.errors.append("%s: %s: structured as any of %s" % (g, key, ", ".join(f.name for f in found)))
        shape = layer.entry(".shape")
        if shape is not None:
            values = layer.numbers(".shape") if matches(shape, "V") else ()
            if not values or 0 in values or len(values) < shape.shape[0]:
                self.errors.append("%s: %s: invalid shape payload" % (g, key))

    def fallbacks(self, s: Scan) -> None:
        """Check 18: with --strict no fallbacks but those that are meant."""
        if not self.strict:
            return
        native = set()
        for o in self.report.outputs if self.report is not None else ():
            if o.quant == s.group.name:
                native = {
                    (d.module, d.stored, tuple(d.shape))
                    for d in o.layer_details
                    if d.default_target is None and d.resolved_target is None
                }
        count = sum(
            label in DENSE and label != s.group.name and (key, label, tuple(s.shapes[key])) not in native
            for key, label in s.labels.items()
        )
        if count:
            self.errors.append("%s: %d fallback layer(s)" % (s.group.name, count))

    def integrity(self, outputs: Sequence[Any], source: str) -> None:
        """The list of outputs by itself, scanned or reported."""
        if not outputs:
            self.errors.append("%s: no outputs" % source)
        seen: set[str] = set()
        owners: dict[str, str] = {}
        for o in outputs:
            if not o.quant.strip():
                self.errors.append("%s: empty quant" % source)
            if o.quant in seen:
                self.errors.append("%s: quant %s twice" % (source, o.quant))
            seen.add(o.quant)
            if not o.shards:
                self.errors.append("%s: %s: no shards" % (source, o.quant))
            if not o.layers:
                self.errors.append("%s: %s: no layers" % (source, o.quant))
            listed: set[str] = set()
            for shard in o.shards:
                if not shard.strip():
                    self.errors.append("%s: %s: blank shard name" % (source, o.quant))
                if shard in listed:
                    self.errors.append("%s: %s: shard %s twice" % (source, o.quant, shard))
                if shard in owners:
                    self.errors.append("%s: shard %s is claimed by %s and %s" % (source, shard, owners[shard], o.quant))
                owners.setdefault(shard, o.quant)
                listed.add(shard)

    def compare(self, scans: Sequence[Scan], scanned: Sequence[Output], selected: Sequence[Any]) -> None:
        """The report against the scan: each selected output of it, and the groups that it does not list."""
        if self.report is None:
            if self.strict:
                self.errors.append("no %s" % naming.REPORT_NAME)
            return
        self.integrity(self.report.outputs, naming.REPORT_NAME)
        actual = {s.group.name: o for s, o in zip(scans, scanned) if s.group.output is not None}
        for group in selected:
            o = group.output
            if o is None:
                self.errors.append("%s does not list %s" % (naming.REPORT_NAME, ", ".join(group.files)))
            elif o.quant not in actual:
                self.errors.append("%s: %s is not among the shards that could be read" % (naming.REPORT_NAME, o.quant))
            else:
                for field in ("shards", "layers", "actual_counts"):
                    a, b = getattr(o, field), getattr(actual[o.quant], field)
                    if a != b:
                        self.errors.append(
                            "%s: %s: %s %s, the shards have %s" % (naming.REPORT_NAME, o.quant, field, a, b)
                        )

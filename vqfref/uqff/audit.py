"""Everything that is wrong or odd about a UQFF folder: containers, set rules, layers, report, assets. Spec: UQFF 17, 18.

Where the reader stops at the first fault, the audit goes on. Each finding says what the engine does about it.
"""

from __future__ import annotations

import os

from vqfref import strictjson
from vqfref.errors import FormatError, LimitError, VqfrefError
from vqfref.findings import Finding, Findings
from vqfref.safetensors.reader import audit_container, model_files
from vqfref.source import Source
from vqfref.uqff import families, naming
from vqfref.uqff.naming import REPORT_NAME, RESIDUAL_NAME
from vqfref.uqff.report import identity_faults, load
from vqfref.uqff.scan import DENSE, scan_layers
from vqfref.uqff.shards import (
    VERSION_NAMES,
    collect_layers,
    container_error,
    listing,
    open_shard,
    read_version,
    version_value,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Sequence

    from vqfref.safetensors.reader import SafetensorsFile
    from vqfref.uqff.report import Report

WRITABLE = frozenset(("U8", "U32", "I16", "I32", "I64", "F16", "BF16", "F32", "F64", "F8_E4M3"))  # section 2
ASSETS = ("tokenizer_config.json", "generation_config.json")


def audit(folder: str, names: Sequence[str] | None = None) -> list[Finding]:
    """All findings about a folder's shard sets (or about the set of the shards `names`) and what lies beside them.

    Raises OSError alone.
    """
    found = Findings(folder)
    available = listing(folder)
    report = audit_report(folder, available, found)
    if names is not None:
        groups = [naming.Group(naming.group_key(names[0])[0], list(names), None)]
        for g in naming.groups(available, report):
            if g.files == list(names):
                groups = [g]
    else:
        groups = naming.groups(available, report)
        if not groups:
            found.add("error", "uqff.n1.missing", "no .uqff files in the folder", None, None, "refuses")
    for group in groups:
        audit_group(folder, group, report, available, found)
    audit_folder(folder, available, found)
    return found.sorted()


def audit_group(folder: str, group: Any, report: Report | None, available: Sequence[str], found: Findings) -> None:
    """One shard set: its containers, the rules of the set, every layer, the report's claims about it."""
    shards: list[SafetensorsFile] = []
    try:
        for name in group.files:
            if name not in available:
                found.add("error", "uqff.n1.missing", "the shard is not in the folder", None, name, "refuses")
                continue
            shard = audit_file(folder, name, found)
            if shard is not None:
                shards.append(shard)
        if len(shards) < len(group.files):
            return
        audit_set(shards, found)
        layers, others = collect_layers(shards)
        forbidden = set()  # entries that an error is about
        for layer in layers.values():
            for fault in families.faults(layer):
                e = fault.error
                if fault.severity == "error":
                    forbidden.add(e.field)
                found.add(fault.severity, e.code, e.message, e.offset, e.field, fault.engine, e.path)
        for t in others:
            found.add("warning", "uqff.e1.name", "an entry of no layer: the engine ignores it",
                      t.offset, t.name, "accepts", t.file.path)  # fmt: skip
        for shard in shards:
            for entry in shard.header.entries.values():
                if entry.dtype not in WRITABLE and entry.name not in VERSION_NAMES and entry.name not in forbidden:
                    found.add("warning", "uqff.e2.dtype", "%s: the engine's writer can't make it" % entry.dtype,
                              shard.header.data_start + entry.begin, entry.name, "unknown", shard.path)  # fmt: skip
        if group.output is not None and report is not None:
            audit_claims(group, report, layers, shards, found)
            audit_absent(folder, group, layers, available, found)
        elif group.output is None:
            audit_gap(group, shards, available, found)
    finally:
        for shard in shards:
            shard.close()


def audit_file(folder: str, name: str, found: Findings) -> SafetensorsFile | None:
    """The container of one file; the open file if nothing is wrong with it."""
    path = os.path.join(folder, name)
    inner = Findings(path)
    with Source(path, "pread") as source:
        header = audit_container(source, inner)
    for f in inner.sorted():
        error = container_error(FormatError(f.code, f.message, offset=f.offset, field=f.field, path=path))
        found.add(f.severity, error.code, f.message, f.offset, f.field, f.engine, path)
    return open_shard(folder, name, "pread") if header is not None else None


def audit_set(shards: list[SafetensorsFile], found: Findings) -> None:
    """Section 3 and 4: every fault of version entries and names, then the verdict of the open procedure."""
    first: dict[str, Any] = {}
    reported: set[str] = set()
    for file in shards:
        for name, entry in file.header.entries.items():
            if name in VERSION_NAMES:
                try:
                    version_value(file, name)
                except FormatError as error:
                    found.add_error(error)
                    reported.add(error.code)
            elif name in first:
                found.add("error", "uqff.d1.duplicate", "in %s and in %s" % (first[name].path, file.path),
                          file.header.data_start + entry.begin, name, "refuses", file.path)  # fmt: skip
                reported.add("uqff.d1.duplicate")
            first.setdefault(name, file)
    try:
        read_version(shards)
    except FormatError as error:
        if error.code not in reported:
            found.add_error(error)


def audit_report(folder: str, available: Sequence[str], found: Findings) -> Report | None:
    """The report, if there is a usable one: R1 to R7."""
    path = os.path.join(folder, REPORT_NAME)
    try:
        report = load(folder, available)
    except FormatError as error:
        found.add_error(error)
        return None
    if report is None:
        return None
    faults = list(identity_faults(report, available, path))
    for fault in faults:
        found.add_error(fault)
    return None if faults else report


def audit_claims(
    group: Any, report: Report, layers: dict[str, Any], shards: list[SafetensorsFile], found: Findings
) -> None:
    """R8: what a report says of an output, against the layers' own tags; the engine does not look."""
    output = group.output

    def wrong(message: str, field: str) -> None:
        found.add("warning", "uqff.r8.json", "%s: %s" % (group.name, message), None, field, "accepts",
                  os.path.join(found.path or "", REPORT_NAME))  # fmt: skip

    if report.schema != 1:
        wrong("schema %d, expected 1" % report.schema, "schema")
    try:
        version = "%d.%d.%d" % read_version(shards)
    except FormatError:
        version = report.uqff_version
    if report.uqff_version != version:
        wrong("uqff_version %s, the entries say %s" % (report.uqff_version, version), "uqff_version")
    stored, shapes = scan_layers(layers)
    if output.layers != len(layers):
        wrong("%d layers, the shards have %d" % (output.layers, len(layers)), "layers")
    counts: dict[str, int] = {}
    for label in stored.values():
        counts[label] = counts.get(label, 0) + 1
    if output.actual_counts != counts:
        wrong("actual_counts %s, the shards have %s" % (output.actual_counts, counts), "actual_counts")
    if output.fallback_count != len(output.fallbacks):
        wrong("fallback_count %d, but %d are listed" % (output.fallback_count, len(output.fallbacks)), "fallback_count")
    for f in output.fallbacks:
        if f.module not in stored:
            wrong("fallback of %s, which is no layer" % f.module, "fallbacks")
        elif f.to != stored[f.module] or f.to not in DENSE:
            wrong("fallback of %s to %s, which is stored as %s" % (f.module, f.to, stored[f.module]), "fallbacks")
    for d in output.layer_details:
        if d.module not in stored:
            wrong("details of %s, which is no layer" % d.module, "layer_details")
        elif d.stored != stored[d.module]:
            wrong("%s stored as %s, its entries say %s" % (d.module, d.stored, stored[d.module]), "layer_details")
        elif list(d.shape) != list(shapes[d.module]):
            wrong(
                "%s of shape %s, its entries say %s" % (d.module, list(d.shape), list(shapes[d.module])),
                "layer_details",
            )
    if output.layer_details:
        for module in sorted(set(stored) - {d.module for d in output.layer_details}):
            wrong("no details of %s" % module, "layer_details")


def audit_absent(folder: str, group: Any, layers: dict[str, Any], available: Sequence[str], found: Findings) -> None:
    """N2: a module of the report that neither the shards nor the weight files have. Whether the model wants it, only the
    engine knows."""
    output = group.output
    absent = [d.module for d in output.layer_details if d.module not in layers] if output.layers > len(layers) else []
    dense = dense_names(folder, available) if absent else None
    for module in absent:
        if dense is not None and module + ".weight" not in dense:
            found.add("error", "uqff.n2.missing", "neither the shards nor the weight files have %s.weight: a model that "
                      "wants the layer can't be loaded" % module, None, module, "unknown")  # fmt: skip


def audit_gap(group: Any, shards: list[SafetensorsFile], available: Sequence[str], found: Findings) -> None:
    """N2: layers in shards behind a gap, which the loader never opens (10.2)."""
    loaded = naming.expand(group.files[0], available)
    for shard in shards:
        name = os.path.basename(shard.path or "")
        if name not in loaded and any(n.endswith(".weight") for n in shard.header.entries):
            found.add("error", "uqff.n2.missing", "its layers are missing for the engine, which loads shards up to the first "
                      "index that is not there: %s" % ", ".join(loaded), None, name, "refuses", shard.path)  # fmt: skip


def dense_names(folder: str, available: Sequence[str]) -> set[str] | None:
    """The tensors of the residual, or of the weight files in its place; None where they can't be read."""
    names: set[str] = set()
    try:
        files = [RESIDUAL_NAME] if RESIDUAL_NAME in available else model_files(folder)[0]
        for name in files:
            file = open_shard(folder, name, "pread")
            names.update(file.header.entries)
            file.close()
    except (OSError, VqfrefError):
        return None
    return names


def audit_folder(folder: str, available: Sequence[str], found: Findings) -> None:
    """What lies beside the shards: residual or weights (J2, N3), config and tokenizer (S2), other assets (S3)."""
    if RESIDUAL_NAME in available:
        residual = audit_file(folder, RESIDUAL_NAME, found)
        if residual is not None:
            residual.close()
    else:
        try:
            model_files(folder)
        except (FormatError, LimitError) as error:
            if error.code != "st.folder.missing":
                found.add_error(error)
            elif not any(n.endswith((".pth", ".pt", ".bin")) for n in available):
                found.add("error", "uqff.n3.missing", "neither residual.safetensors nor other weight files", None,
                          RESIDUAL_NAME, "refuses")  # fmt: skip
    if "config.json" not in available:
        found.add("error", "uqff.s2.missing", "no config.json", None, "config.json", "refuses")
    else:
        path = os.path.join(folder, "config.json")
        try:
            with Source(path, "pread") as source:
                strictjson.loads(source.read_at(0, min(source.size, 1 << 24)), path=path)
        except VqfrefError as error:
            found.add("error", "uqff.s2.json", error.message, error.offset, "config.json", "refuses", path)
    if "tokenizer.json" not in available:
        found.add("warning", "uqff.s2.missing", "no tokenizer.json", None, "tokenizer.json", "refuses")
    for name in ASSETS:
        if name not in available:
            found.add("note", "uqff.s3.missing", "no %s" % name, None, name, "accepts")

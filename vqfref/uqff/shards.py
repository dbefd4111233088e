"""The shards of a UQFF artifact: which files they are, their containers, version and layers. Spec: UQFF 2 to 5, 10.2.

These are the rules that hold for a set as a whole: the first one that is broken raises. The reader opens by them, the
audit goes on behind them.
"""

from __future__ import annotations

import os

from vqfref.errors import FormatError, UsageError, VqfrefError
from vqfref.safetensors.reader import SafetensorsFile
from vqfref.source import Source
from vqfref.uqff import families, naming
from vqfref.uqff.families import Layer, Tensor
from vqfref.uqff.naming import EXTENSION, REPORT_NAME
from vqfref.uqff.report import check_identity, load

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Iterable

VERSION_NAMES = ("uqff.version.major", "uqff.version.minor", "uqff.version.patch")
SUPPORTED = (1, 2, 0)
REGENERATE = "regenerate it with `mistralrs quantize`"

# Faults of the container by the ids of the catalogue, sections 17 and 18.
CONTAINER_CODES = {
    "st.length.truncated": "uqff.c1.truncated",
    "st.length.limit": "uqff.c2.limit",
    "st.length.bounds": "uqff.c4.bounds",
    "st.header.json": "uqff.c3.json",
    "st.entry.json": "uqff.c3.json",
    "st.entry.missing": "uqff.c3.missing",
    "st.entry.dtype": "uqff.c3.dtype",
    "st.entry.shape": "uqff.j1.shape",
    "st.offsets.bounds": "uqff.j1.bounds",
    "st.metadata.json": "uqff.j1.json",
    "st.size.shape": "uqff.c5.shape",
    "st.hole.bounds": "uqff.c5.bounds",
    "st.trailing.bounds": "uqff.c5.bounds",
    "st.tensors.overlap": "uqff.c5.overlap",
    "st.data.truncated": "uqff.c5.truncated",
    "json.syntax.json": "uqff.c3.json",
    "json.utf8.json": "uqff.c3.json",
    "json.surrogate.json": "uqff.c3.json",
    "json.number.range": "uqff.c3.range",
    "json.key.duplicate": "uqff.j1.duplicate",
}


def container_error(error: VqfrefError) -> VqfrefError:
    """A fault of the container under its id of the catalogue: uqff.c5.bounds for st.hole.bounds."""
    error.code = CONTAINER_CODES.get(error.code, error.code)
    return error


def open_shard(folder: str, name: str, backend: str | None = None) -> SafetensorsFile:
    """One shard or residual. Raises OSError; FormatError or LimitError with a code uqff.c…."""
    source = Source(os.path.join(folder, name), backend)
    try:
        return SafetensorsFile(source)
    except BaseException as error:
        source.close()
        if isinstance(error, VqfrefError):
            error.path = error.path or source.path
            raise container_error(error) from None
        raise


# ---- the rules of a set: section 3 and 4


def read_version(shards: list[SafetensorsFile]) -> tuple[int, int, int]:
    """The version of a set, by the open procedure of section 3; the first failure raises FormatError.

    Checks version entries (V1, V2), duplicate names (D1), numeric names (L1), and the version itself (V3 to V6).
    """
    values: dict[str, tuple[int, SafetensorsFile]] = {}
    seen: dict[str, SafetensorsFile] = {}
    for file in shards:
        for name, entry in file.header.entries.items():
            if name in VERSION_NAMES:
                value = version_value(file, name)
                if name in values and values[name][0] != value:
                    raise FormatError("uqff.v2.version", "%s is %d in %s and %d in %s"
                                      % (name, values[name][0], values[name][1].path, value, file.path), field=name,
                                      path=file.path)  # fmt: skip
                values.setdefault(name, (value, file))
            elif name in seen:
                raise FormatError("uqff.d1.duplicate", "in %s and in %s" % (seen[name].path, file.path), field=name,
                                  offset=file.header.data_start + entry.begin, path=file.path)  # fmt: skip
            seen.setdefault(name, file)
    path = shards[0].path if shards else None
    if seen and all(naming.is_unsigned(name) for name in seen):
        raise FormatError("uqff.l1.version", "all names are numbers: an artifact from before 1.0, which is unsupported; "
                          + REGENERATE, path=path)  # fmt: skip
    if VERSION_NAMES[0] not in values:
        raise FormatError("uqff.v3.version", "no version tag: from before 1.0; " + REGENERATE, field=VERSION_NAMES[0],
                          path=path)  # fmt: skip
    for name in VERSION_NAMES[1:]:
        if name not in values:
            raise FormatError("uqff.v4.version", "%s is missing" % name, field=name, path=path)
    major, minor, patch = (values[name][0] for name in VERSION_NAMES)
    text = "%d.%d.%d" % (major, minor, patch)
    supported = "%d.%d.%d" % SUPPORTED
    if major != SUPPORTED[0]:
        raise FormatError("uqff.v5.version", "version %s, supported is %s; %s" % (text, supported, REGENERATE),
                          field=VERSION_NAMES[0], path=path)  # fmt: skip
    if minor > SUPPORTED[1]:
        raise FormatError("uqff.v6.version", "version %s, supported is %s: a newer engine wrote it; upgrade"
                          % (text, supported), field=VERSION_NAMES[1], path=path)  # fmt: skip
    return major, minor, patch


def version_value(file: SafetensorsFile, name: str) -> int:
    """The value of a version entry. Raises FormatError uqff.v1.version for what is not a U32 scalar."""
    entry = file.header.entries[name]
    if not families.matches(entry, "S(U32)"):
        raise FormatError("uqff.v1.version", "%s of shape %s in %s: must be a U32 scalar"
                          % (entry.dtype, list(entry.shape), file.path), field=name,
                          offset=file.header.data_start + entry.begin, path=file.path)  # fmt: skip
    return int.from_bytes(file.raw(name), "little")


def collect_layers(shards: list[SafetensorsFile]) -> tuple[dict[str, Layer], list[Tensor]]:
    """The layers of a set by key, sorted, and the entries that belong to none. Section 5.

    A layer is a key with a weight or a family tag; `<key>.weight.<x>` of no family belongs to the layer all the same.
    """
    tensors = [Tensor(n, f, e) for f in shards for n, e in f.header.entries.items() if n not in VERSION_NAMES]
    keys = set()
    for t in tensors:
        if t.name.endswith(".weight"):
            keys.add(t.name[: -len(".weight")])
        elif t.name.endswith(".weight.format"):
            keys.add(t.name[: -len(".weight.format")])
    layers = {key: Layer(key) for key in sorted(keys)}
    others = []
    for t in tensors:
        key, found, suffix = t.name.rpartition(".weight.")
        if t.name.endswith(".weight"):
            layers[t.name[: -len(".weight")]].tensors[""] = t
        elif found and key in layers:
            layers[key].tensors["." + suffix] = t
        elif t.name.endswith(".bias") and t.name[: -len(".bias")] in layers:
            layers[t.name[: -len(".bias")]].bias = t
        else:
            others.append(t)
    return layers, others


# ---- which files


def listing(folder: str) -> list[str]:
    """The file names of a folder, sorted."""
    return sorted(os.listdir(folder))


def shard_names(folder: str, items: str | Iterable[str] | None) -> list[str]:
    """The shards that items mean in a folder; without items, those of its only group. Raises UsageError, FormatError."""
    available = listing(folder)
    report = load(folder, available)
    check_identity(report, available, os.path.join(folder, REPORT_NAME))
    if items is not None:
        return naming.resolve(items, available, report, folder)
    found = naming.groups(available, report)
    if not found:
        raise FormatError("uqff.n1.missing", "no %s files in the folder" % EXTENSION, path=folder)
    if len(found) > 1:
        raise UsageError("usage.quant.missing", "several sets: %s; name one, as %s" % (
            ", ".join(g.name for g in found), os.path.join(folder, found[0].name)), path=folder)  # fmt: skip
    return list(found[0].files)

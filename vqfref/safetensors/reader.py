"""Reads safetensors: one file, the shards of an index, a Hugging Face model folder.

A file is `u64 header_len`, a JSON header, tensor data. The header maps names to dtype, shape and data_offsets, which are
relative to the first byte behind it. Every rule of the container is checked before anything is read: the tensors must
tile the data area exactly. `header_faults` finds all faults of a header; the reader raises the first. Spec: UQFF
section 2, the safetensors format description.
"""

from __future__ import annotations

import os
import struct
from array import array
from collections import namedtuple

from vqfref import kernels, strictjson
from vqfref.errors import FormatError, LimitError, UnsupportedError, UsageError
from vqfref.findings import Finding, Findings
from vqfref.source import Source, looks_like
from vqfref.weightfile import VALUES_AT_ONCE, TensorInfo, Verification, WeightFile

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Iterable, Iterator

    from vqfref.errors import VqfrefError

MAX_HEADER = 100_000_000  # bytes; the safetensors library's limit
MAX_TENSORS = 1 << 17
MAX_RANK = 64
MAX_PARSED = 64 << 20  # bytes in memory that the values of a header may take
INDEX_NAME = "model.safetensors.index.json"
SINGLE_NAME = "model.safetensors"

# dtype: bits an element, in the order of rank that writers sort by (UQFF section 2)
DTYPES = {
    "BOOL": 8, "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6, "U8": 8, "I8": 8, "F8_E5M2": 8, "F8_E4M3": 8, "F8_E8M0": 8,
    "I16": 16, "U16": 16, "F16": 16, "BF16": 16, "I32": 32, "U32": 32, "F32": 32, "C64": 64, "F64": 64, "I64": 64,
    "U64": 64,
}  # fmt: skip

Entry = namedtuple("Entry", "name dtype shape begin end")
Entry.__doc__ = "One tensor: dtype by name, shape, and its bytes begin … end relative to the data area."

Header = namedtuple("Header", "metadata entries data_start data_length")
Header.__doc__ = """A header that passed all rules. metadata: text by text; entries: Entry by name, in the header's
order; data_start: offset in the file; data_length: bytes."""


# ---- the header


def header_length(prefix: bytes, size: int) -> int:
    """The length of the JSON header, from the file's first 8 bytes and its size; more bytes make for better messages.

    Raises FormatError st.length.truncated, st.length.bounds; LimitError st.length.limit.
    """
    if size < 8:
        raise FormatError(
            "st.length.truncated", "%d bytes, expected at least 8 for the header's length" % size, offset=size
        )
    length = int.from_bytes(prefix[:8], "little")
    hint = "" if prefix[8:9] == b"{" else looks_like(prefix)
    if length > MAX_HEADER:
        raise LimitError(
            "st.length.limit", "header of %d bytes, expected at most %d%s" % (length, MAX_HEADER, hint), offset=0
        )
    if 8 + length > size:
        raise FormatError(
            "st.length.bounds", "header of %d bytes, but the file has %d in all%s" % (length, size, hint), offset=0
        )
    if length == 0:
        raise FormatError("st.header.json", "header of 0 bytes, expected a JSON object%s" % hint, offset=0)
    return length


def check_density(text: bytes, offset: int = 8, path: str | None = None) -> None:
    """The values of a parsed JSON text must not take memory out of all proportion to it: `[],` alone takes 24 times its
    length. Counts brackets, pairs, strings, escapes and elements, each with what it takes at most.

    Raises LimitError st.header.limit.
    """
    count = text.count
    parsed = 64 * (count(b"{") + count(b"[") + count(b":")) + 40 * count(b",") + 30 * (count(b'"') + count(b"\\"))
    if parsed > MAX_PARSED + len(text):
        raise LimitError(
            "st.header.limit", "%d bytes of JSON with values of some %d bytes, expected at most %d"
            % (len(text), parsed, MAX_PARSED + len(text)), offset=offset, path=path,
        )  # fmt: skip


def _shown(value: Any) -> str:
    """A value for a message, without the repr of all of it."""
    if isinstance(value, str):
        return repr(value[:40])
    if isinstance(value, (list, dict)):
        return "%s of %d" % ("a list" if isinstance(value, list) else "an object", len(value))
    return "%.40r" % (value,)


def header_faults(value: Any, data_start: int, data_length: int, entries: dict[str, Entry]) -> Iterator[VqfrefError]:
    """Every fault of a parsed header, first the entries' own in their order, then those of the tiling. Puts what is
    right into `entries`."""
    if not isinstance(value, dict):
        yield FormatError("st.header.json", "expected a JSON object, found %s" % _shown(value), offset=8)
        return
    if len(value) > MAX_TENSORS:
        yield LimitError("st.tensors.limit", "%d entries, expected at most %d" % (len(value), MAX_TENSORS), offset=8)
        return
    metadata = value.get("__metadata__", {})
    if not isinstance(metadata, dict) or not all(isinstance(v, str) for v in metadata.values()):
        yield FormatError("st.metadata.json", "expected an object of strings", offset=8, field="__metadata__")
    for name, raw in value.items():
        if name == "__metadata__":
            continue
        try:
            entries[name] = _entry(name, raw)
        except (FormatError, LimitError) as error:
            yield error
    yield from _tiling_faults(entries, data_start, data_length)


def _entry(name: str, raw: Any) -> Entry:
    """An entry from its JSON object, judged by itself."""

    def fault(code: str, message: str) -> FormatError:
        return FormatError(code, message, offset=8, field=name)

    if not isinstance(raw, dict):
        raise fault("st.entry.json", "expected an object, found %s" % _shown(raw))
    for key in ("dtype", "shape", "data_offsets"):
        if key not in raw:
            raise fault("st.entry.missing", "no %s" % key)
    dtype, shape, offsets = raw["dtype"], raw["shape"], raw["data_offsets"]
    if not isinstance(dtype, str) or dtype not in DTYPES:
        raise fault("st.entry.dtype", "unknown dtype %s" % _shown(dtype))
    if not isinstance(shape, list) or not all(_is_unsigned(n) for n in shape):
        raise fault(
            "st.entry.shape",
            "shape %.60r, expected a list of unsigned integers"
            % (shape[:16] if isinstance(shape, list) else _shown(shape),),
        )
    if len(shape) > MAX_RANK:
        raise LimitError(
            "st.rank.limit", "%d dimensions, expected at most %d" % (len(shape), MAX_RANK), offset=8, field=name
        )
    if not isinstance(offsets, list) or len(offsets) != 2 or not all(_is_unsigned(n) for n in offsets):
        raise fault(
            "st.offsets.bounds",
            "data_offsets %.60r, expected two unsigned integers"
            % (offsets[:3] if isinstance(offsets, list) else _shown(offsets),),
        )
    begin, end = offsets
    if begin > end:
        raise fault("st.offsets.bounds", "data_offsets %d … %d run backwards" % (begin, end))
    elements = 1
    beyond = False  # also on the way to a 0: the safetensors library multiplies dimensions, checked, before bits
    for n in shape:
        elements *= n
        beyond = beyond or elements >= 1 << 64
    bits = elements * DTYPES[dtype]
    if beyond or bits >= 1 << 67:
        raise fault("st.entry.shape", "%s of %s has 2^64 elements or bytes, or more" % (dtype, shape))
    if bits % 8:
        raise fault("st.entry.shape", "%s of %s is not a whole number of bytes" % (dtype, shape))
    if bits // 8 != end - begin:
        raise fault("st.size.shape", "%s of %s takes %d bytes, data_offsets %d … %d give %d"
                    % (dtype, shape, bits // 8, begin, end, end - begin))  # fmt: skip
    return Entry(name, dtype, tuple(shape), begin, end)


def _is_unsigned(n: Any) -> bool:
    return type(n) is int and 0 <= n < 1 << 64


def _tiling_faults(entries: dict[str, Entry], data_start: int, data_length: int) -> Iterator[VqfrefError]:
    """By begin offset, the tensors must cover the data area without gap or overlap, from its start to the file's end."""
    at = 0
    for e in sorted(entries.values(), key=lambda e: (e.begin, e.end)):
        if e.begin != at:
            code, what = ("st.hole.bounds", "hole") if e.begin > at else ("st.tensors.overlap", "overlap")
            yield FormatError(code, "%s: begins at %d of the data area, expected %d" % (what, e.begin, at),
                              offset=data_start + min(e.begin, at, data_length), field=e.name)  # fmt: skip
        at = max(at, e.end)
    if at > data_length:
        yield FormatError("st.data.truncated", "the tensors end at %d of the data area, which has %d bytes: %d are missing"
                          % (at, data_length, at - data_length), offset=data_start + data_length)  # fmt: skip
    elif at < data_length:
        yield FormatError(
            "st.trailing.bounds", "%d bytes behind the last tensor" % (data_length - at), offset=data_start + at
        )


def parse_header(text: bytes, size: int) -> Header:
    """A Header from the JSON text of a file of `size` bytes. Raises FormatError or LimitError for the first fault."""
    check_density(text)
    value = strictjson.loads(text, offset=8)
    data_start = 8 + len(text)
    entries: dict[str, Entry] = {}
    for error in header_faults(value, data_start, size - data_start, entries):
        raise error
    return Header(value.get("__metadata__", {}), entries, data_start, size - data_start)


def load_header(source: Source) -> Header:
    """The header of a file. Raises as `parse_header` and `header_length` do."""
    length = header_length(source.read_at(0, min(512, source.size)), source.size)
    return parse_header(source.read_at(8, length), source.size)


def last_wins(text: bytes) -> Any:
    """A header with a key twice as the safetensors library takes it: the last one counts. None where the text has other
    faults, or where this image has no json."""

    def refuse(word: str) -> None:
        raise ValueError(word)

    def number(literal: str) -> int | float:
        if len(literal) > 40:  # int() of very many digits takes its time
            raise ValueError(literal)
        return int(literal) if literal.isdigit() else float(literal)

    try:
        import json

        return json.loads(text.decode("utf-8"), parse_int=number, parse_float=number, parse_constant=refuse)
    except (ImportError, ValueError, RecursionError):
        return None


def audit_container(source: Source, found: Findings) -> Header | None:
    """All faults of a file's container as findings; the Header where there are none that hide it."""
    duplicate: FormatError | LimitError | None = None
    try:
        length = header_length(source.read_at(0, min(512, source.size)), source.size)
        text = source.read_at(8, length)
        check_density(text)
        value = strictjson.loads(text, offset=8)
    except (FormatError, LimitError) as error:
        if error.code != "json.key.duplicate":
            found.add_error(
                error, "refuses" if error.code == "st.length.limit" else None
            )  # the library has this limit too
            return None
        value = last_wins(text)
        if value is None:
            found.add_error(error, "unknown")
            return None
        duplicate = error
    entries: dict[str, Entry] = {}
    errors = list(header_faults(value, 8 + length, source.size - 8 - length, entries))
    if duplicate is not None:
        found.add_error(duplicate, "accepts")
    for fault in errors:
        found.add_error(fault)
    if errors or duplicate is not None:
        return None
    if not text.startswith(b"{"):
        found.add(
            "warning",
            "st.space.policy",
            "white space before the header's {: some readers refuse it",
            8,
            None,
            "unknown",
        )
    for name, raw in value.items():
        surplus = set(raw) - {"dtype", "shape", "data_offsets"} if name != "__metadata__" else ()
        if surplus:
            found.add("note", "st.field.policy", "unknown %s in the entry" % ", ".join(sorted(surplus)), 8, name)
    return Header(value.get("__metadata__", {}), entries, 8 + length, source.size - 8 - length)


# ---- values


def _numbers(code: str) -> Callable[[bytes | memoryview], array[float]]:
    def decode(data: bytes | memoryview) -> array[float]:
        return array("f", [v for (v,) in struct.iter_unpack("<" + code, data)])

    return decode


def decoder(dtype: str) -> Callable[[bytes | memoryview], array[float]]:
    """The function from stored bytes to array('f') for a dtype; wide integers and doubles are rounded.

    Raises UnsupportedError for dtypes that have no plain elements (C64, F4, F6).
    """
    known: dict[str, Callable[[bytes | memoryview], array[float]]] = {
        "F32": kernels.f32_decode,
        "F16": kernels.f16_decode,
        "BF16": kernels.bf16_decode,
        "F8_E4M3": kernels.e4m3_decode,
        "F8_E5M2": kernels.e5m2_decode,
        "F8_E8M0": kernels.e8m0_decode,
    }
    codes = {"BOOL": "B", "U8": "B", "I8": "b", "I16": "h", "U16": "H", "I32": "i", "U32": "I", "F64": "d", "I64": "q",
             "U64": "Q"}  # fmt: skip
    if dtype in known:
        return known[dtype]
    if dtype in codes:
        return _numbers(codes[dtype])
    raise UnsupportedError("st.decode.unsupported", "values of dtype %s" % dtype)


# ---- files


class SafetensorsFile(WeightFile):
    """One open safetensors file that passed all rules of the container.

    header: the Header record. Tensors have neither layers nor experts; a shape of any rank is as it is stored.
    """

    format = "safetensors"

    def __init__(self, source: Source) -> None:
        """source: an open Source, which this file then owns. Raises FormatError or LimitError for the first fault."""
        self.source = source
        self.path = source.path
        self.header = load_header(source)

    def keys(self) -> list[str]:
        return list(self.header.entries)

    def metadata(self) -> dict[str, Any]:
        return {
            "metadata": dict(self.header.metadata),
            "n_tensors": len(self.header.entries),
            "data_start": self.header.data_start,
            "size": self.source.size,
        }

    def entry(self, name: str) -> Entry:
        """The Entry of a tensor. Raises TensorNotFound."""
        try:
            entry: Entry = self.header.entries[name]
        except KeyError:
            raise self.not_found(name) from None
        return entry

    def info(self, name: str) -> TensorInfo:
        e = self.entry(name)
        return TensorInfo(
            name, e.shape, 0, 0, e.dtype, "plain", self.header.data_start + e.begin, e.end - e.begin, self.path
        )

    def raw(self, name: str) -> memoryview:
        e = self.entry(name)
        return self.source.view(self.header.data_start + e.begin, e.end - e.begin)

    def chunks(self, name: str, size: int = 1 << 20) -> Iterator[bytes]:
        e = self.entry(name)
        return self.source.pieces(self.header.data_start + e.begin, self.header.data_start + e.end, size)

    def get_tensor(self, name: str, *, rows: slice | None = None) -> array[float]:
        """The values as array('f'), row-major, wider dtypes rounded; `rows` cuts the first axis, reading that alone."""
        e = self.entry(name)
        decode = decoder(e.dtype)
        if rows is None:
            return decode(self.raw(name))
        if not e.shape:
            raise UsageError("usage.rows.range", "rows of a scalar", field=name)
        start, stop, step = rows.indices(e.shape[0])
        if step != 1:
            raise UsageError("usage.rows.range", "rows %r: the step must be 1" % (rows,), field=name)
        row_bytes = (e.end - e.begin) // max(e.shape[0], 1)
        at = self.header.data_start + e.begin + start * row_bytes
        return decode(self.source.view(at, max(stop - start, 0) * row_bytes))

    def values(self, name: str) -> Iterator[array[float]]:
        e = self.entry(name)
        decode, size = decoder(e.dtype), DTYPES[e.dtype] // 8
        return (decode(piece) for piece in self.chunks(name, VALUES_AT_ONCE * size))

    def verify(self, *, require: Iterable[str] = (), **_: Any) -> Verification:
        return Verification.of_structure(self.check(), require)

    def check(self) -> list[Finding]:
        found = Findings(self.path)
        audit_container(self.source, found)
        return found.sorted()

    def close(self) -> None:
        self.source.close()


class SafetensorsSet(WeightFile):
    """Several safetensors files that make one model: the shards of an index, or of a folder.

    files: SafetensorsFile by file name, in their order. A name in two of them is an error.
    """

    format = "safetensors"

    def __init__(self, folder: str, names: list[str], backend: str | None = None) -> None:
        self.path = folder
        self.files: dict[str, SafetensorsFile] = {}
        self._home: dict[str, SafetensorsFile] = {}
        try:
            for name in names:
                source = Source(os.path.join(folder, name), backend)
                try:
                    file = self.files[name] = SafetensorsFile(source)
                except BaseException as error:
                    source.close()
                    if isinstance(error, (FormatError, LimitError)):
                        error.path = source.path
                    raise
                for key in file:
                    if key in self._home:
                        raise FormatError("st.shards.duplicate", "in %s and in %s" % (self._home[key].path, file.path),
                                          field=key, path=folder)  # fmt: skip
                    self._home[key] = file
        except BaseException:
            self.close()
            raise

    def keys(self) -> list[str]:
        return list(self._home)

    def home(self, name: str) -> SafetensorsFile:
        """The file that holds a tensor. Raises TensorNotFound."""
        try:
            return self._home[name]
        except KeyError:
            raise self.not_found(name) from None

    def metadata(self) -> dict[str, Any]:
        return {"n_tensors": len(self._home), "files": {name: f.metadata() for name, f in self.files.items()}}

    def info(self, name: str) -> TensorInfo:
        return self.home(name).info(name)

    def raw(self, name: str) -> memoryview:
        return self.home(name).raw(name)

    def chunks(self, name: str, size: int = 1 << 20) -> Iterator[bytes]:
        return self.home(name).chunks(name, size)

    def get_tensor(self, name: str, *, rows: slice | None = None) -> array[float]:
        return self.home(name).get_tensor(name, rows=rows)

    def values(self, name: str) -> Iterator[array[float]]:
        return self.home(name).values(name)

    def verify(self, *, require: Iterable[str] = (), **_: Any) -> Verification:
        return Verification.of_structure(self.check(), require)

    def check(self) -> list[Finding]:
        return [finding for f in self.files.values() for finding in f.check()]

    def close(self) -> None:
        for f in self.files.values():
            f.close()


def read_index(path: str) -> dict[str, str]:
    """The weight_map of an index file: file name by tensor name. Raises FormatError for what is not such a map, or
    names a file outside of the folder."""
    with Source(path, "pread") as source:
        if source.size > MAX_HEADER:
            raise LimitError("st.index.limit", "index of %d bytes" % source.size, path=path)
        text = source.read_at(0, source.size)
    check_density(text, 0, path)
    value = strictjson.loads(text, path=path)
    weight_map = value.get("weight_map") if isinstance(value, dict) else None
    if not isinstance(weight_map, dict) or not all(isinstance(v, str) for v in weight_map.values()):
        raise FormatError("st.index.json", "no weight_map of names to file names", path=path)
    for key, name in weight_map.items():
        if not name or name in (".", "..") or set(name) & set("/\\\0"):
            raise FormatError(
                "st.index.name", "%r is not the name of a file in the folder" % name, field=key, path=path
            )
    return weight_map


def model_files(folder: str) -> tuple[list[str], dict[str, str] | None]:
    """The safetensors files that make up a model folder, and the index's weight_map if there is one.

    Those of model.safetensors.index.json, else model.safetensors, else model-NNNNN-of-NNNNN.safetensors in number order
    (VQF section 11). Raises FormatError (st.folder.missing) for a folder without any, or with gaps in the numbers.
    """
    names = os.listdir(folder)
    if INDEX_NAME in names:
        weight_map = read_index(os.path.join(folder, INDEX_NAME))
        return sorted(set(weight_map.values())), weight_map
    if SINGLE_NAME in names:
        return [SINGLE_NAME], None
    shards = sorted(filter(None, map(_shard_number, names)))
    if not shards:
        raise FormatError("st.folder.missing", "no safetensors files: expected %s, %s or model-NNNNN-of-NNNNN.safetensors"
                          % (INDEX_NAME, SINGLE_NAME), path=folder)  # fmt: skip
    counts = {count for _, count, _ in shards}
    missing = (
        sorted(set(range(1, max(counts) + 1)) - {number for number, _, _ in shards}) if max(counts) < 100_000 else [1]
    )
    if len(counts) > 1 or missing or len(shards) != max(counts):
        raise FormatError("st.folder.missing", "an incomplete set of shards: %s" % (
            "shard %d is not there" % missing[0] if missing else "they belong to several sets"), path=folder)  # fmt: skip
    return [name for _, _, name in shards], None


def _shard_number(name: str) -> tuple[int, int, str] | None:
    """(number, count, name) of model-NNNNN-of-NNNNN.safetensors, else None."""
    parts = name.split("-")
    if len(parts) != 4 or parts[0] != "model" or parts[2] != "of" or not parts[3].endswith(".safetensors"):
        return None
    number, count = parts[1], parts[3][: -len(".safetensors")]
    if len(number) != 5 or len(count) != 5 or set(number + count) - set("0123456789"):
        return None
    return int(number), int(count), name


def open_folder(folder: str, backend: str | None = None) -> SafetensorsSet:
    """A model folder as one set of tensors."""
    names, weight_map = model_files(folder)
    files = SafetensorsSet(folder, names, backend)
    if weight_map is not None:
        _match_index(files, weight_map, os.path.join(folder, INDEX_NAME))
    return files


def open_index(path: str, backend: str | None = None) -> SafetensorsSet:
    """The files of one index as one set of tensors."""
    weight_map = read_index(path)
    files = SafetensorsSet(os.path.dirname(path), sorted(set(weight_map.values())), backend)
    _match_index(files, weight_map, path)
    return files


def _match_index(files: SafetensorsSet, weight_map: dict[str, str], path: str) -> None:
    """Every tensor of the index must be where it says. Raises FormatError (st.index.missing) and closes the files."""
    for key, name in weight_map.items():
        if key not in files.files[name].header.entries:
            files.close()
            message = "the index places it in %s, which does not have it" % name
            raise FormatError("st.index.missing", message, field=key, path=path)

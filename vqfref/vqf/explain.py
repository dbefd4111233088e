"""Field by field: what a VQF header says, for people. Works on any bytes, also on a file that can't be opened."""

from __future__ import annotations

from vqfref.errors import VqfrefError
from vqfref.vqf import structs
from vqfref.vqf.head import MIN_SIZE, candidates, entry_offset, load_directory, load_head
from vqfref.vqf.structs import DIR_OFFSET, DIR_OFFSET_V1, HEADER_448, HEADER_V1, TENSOR, Layout
from vqfref.weightfile import FieldRow

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from vqfref.source import Source


MAX_EXPLAINED = 4096  # directory entries; real files have some fifty


def guess_layout(data: bytes, size: int) -> tuple[Layout, str]:
    """The header layout that explains these bytes best, and why; `data` is the first 448 bytes or what there is."""
    if len(data) >= 8 and int.from_bytes(data[4:8], "little") == structs.VERSION_OBSOLETE:
        return HEADER_V1, "version 1, 232 bytes"
    both = candidates(data.ljust(MIN_SIZE, b"\0"), size)
    fitting = [c for c in both if c.fits]
    formed = [c for c in both if c.well_formed]
    if len(fitting) == 1:
        return fitting[0].layout, "its numbers fit the file's size"
    if len(formed) == 1:
        return formed[0].layout, "its numbers are well-formed, but don't fit the file's size"
    return HEADER_448, "a guess: the numbers of neither form make sense, or both do"


def explain_fields(layout: Layout, data: bytes, base: int = 0, prefix: str = "") -> list[FieldRow]:
    """One FieldRow for every field of a structure whose bytes start `data`; what is cut off says so."""
    rows: list[FieldRow] = []
    record = layout.unpack(data.ljust(layout.size, b"\0"))
    for f in layout.fields:
        name = prefix + f.name
        raw = data[f.offset : f.offset + f.size]
        if isinstance(f.type, Layout):
            rows += explain_fields(f.type, raw, base + f.offset, name + ".")
        elif len(raw) < f.size:
            rows.append(FieldRow(base + f.offset, f.size, name, raw.hex(), "(cut off)", f.meaning))
        else:
            text, meaning = explain(f, getattr(record, f.name))
            rows.append(FieldRow(base + f.offset, f.size, name, raw.hex(), text, meaning))
    return rows


def explain(field: Any, value: Any) -> tuple[str, str]:
    """(value, meaning) of a field as text; the meaning of magic, version, flags and qtype depends on the value."""
    if field.type == "char":
        return repr(value.partition(b"\0")[0].decode("ascii", "backslashreplace")), field.meaning
    if field.type == "u8":
        if field.name == "id":
            return repr(value.rstrip(b"\0").decode("ascii", "backslashreplace")), field.meaning
        return value.hex() if any(value) else "zero", field.meaning
    if isinstance(value, tuple):
        return " ".join(map(str, value)), field.meaning
    if field.type == "f32":
        return "%.9g" % value, field.meaning
    if field.name == "magic":
        note = "little-endian, so the bytes on disk read 'FQFW'" if value == structs.MAGIC else "expected 0x57465146"
        return "0x%08x" % value, note
    if field.name == "version":
        known = {1: "obsolete: engines refuse it", 2: "dense", 3: "mixture of experts"}
        return str(value), known.get(value, "unknown")
    if field.name == "flags":
        return "0x%x" % value, structs.flag_names(value)
    if field.name == "qtype":
        info = structs.QTYPES.get(value)
        return str(value), "%s: %s" % (info.name, info.meaning) if info else "unknown"
    if field.type == "u64":
        return "%d (0x%x)" % (value, value), field.meaning
    return str(value), field.meaning


def header_rows(source: Source, directory: bool = False) -> tuple[str, list[FieldRow]]:
    """A line about the header's form, and every field of it; with `directory`, of the directory's entries too."""
    data = source.read_at(0, min(source.size, HEADER_448.size))
    layout, why = guess_layout(data, source.size)
    rows = explain_fields(layout, data)
    if directory:
        n_tensors = layout.unpack(data.ljust(layout.size, b"\0")).n_tensors
        start = DIR_OFFSET_V1 if layout is HEADER_V1 else DIR_OFFSET
        there = min(n_tensors, max(0, source.size - start) // TENSOR.size)
        for i in range(min(there, MAX_EXPLAINED)):
            at = start + TENSOR.size * i
            rows += explain_fields(TENSOR, source.read_at(at, TENSOR.size), at, "entry[%d]." % i)
        if there > MAX_EXPLAINED:
            at = start + TENSOR.size * MAX_EXPLAINED
            why += "; %d more entries from 0x%x on are not shown" % (there - MAX_EXPLAINED, at)
    return "%s: %s" % (layout.name, why), rows


def file_fields(source: Source) -> tuple[list[tuple[int, int, str]], int]:
    """(offset, size, name) of all that has a name in a file, and where its directory's page ends; for hexdump.

    A file that can't be opened has the fields of its header alone.
    """
    data = source.read_at(0, min(source.size, HEADER_448.size))
    layout, _ = guess_layout(data, source.size)
    rows = explain_fields(layout, data)
    fields = [(r.offset, r.size, r.field) for r in rows]
    try:
        head = load_head(source)
        entries = load_directory(source, head)
    except VqfrefError:
        return fields, DIR_OFFSET_V1 if layout is HEADER_V1 else DIR_OFFSET
    for e in entries:
        if len(entries) > MAX_EXPLAINED:  # a hostile directory: one row an entry has to do
            fields.append((entry_offset(e), TENSOR.size, e.name or str(e.index)))
        else:
            base = entry_offset(e)
            fields += [(base + f.offset, f.size, "%s.%s" % (e.name or e.index, f.name)) for f in TENSOR.fields]
        if head.header.data_offset <= e.offset and e.offset + e.nbytes <= head.header.file_len:
            fields.append((e.offset, e.nbytes, e.name))
    fields.append((head.header.file_len, head.tag_length, "tag"))
    end = DIR_OFFSET + TENSOR.size * len(entries)
    return fields, min(head.header.data_offset, structs.align(end, structs.PAGE))

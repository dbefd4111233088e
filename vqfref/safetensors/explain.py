"""Field by field: what the head of a safetensors file says, for people."""

from __future__ import annotations

from vqfref import strictjson
from vqfref.errors import VqfrefError
from vqfref.safetensors.reader import load_header
from vqfref.weightfile import FieldRow

TYPE_CHECKING = False
if TYPE_CHECKING:
    from vqfref.source import Source


def header_rows(source: Source, directory: bool = False) -> tuple[str, list[FieldRow]]:
    """A line about the header; its length, its text and its metadata; with `directory`, every entry with its bytes."""
    prefix = source.read_at(0, min(8, source.size))
    rows = [
        FieldRow(0, 8, "header_len", prefix.hex(), str(int.from_bytes(prefix, "little")), "bytes of JSON that follow")
    ]
    try:
        header = load_header(source)
    except VqfrefError as error:
        return "safetensors: %s" % error, rows
    text = source.read_at(8, min(header.data_start - 8, 64))
    rows.append(FieldRow(8, header.data_start - 8, "header", text.hex(), "%d entries" % len(header.entries), "JSON"))
    rows += [
        FieldRow(8, 0, "__metadata__." + k, "", strictjson.dumps(v), "metadata") for k, v in header.metadata.items()
    ]
    if directory:
        for e in header.entries.values():
            at = header.data_start + e.begin
            raw = source.read_at(at, min(e.end - e.begin, 9)).hex()
            rows.append(FieldRow(at, e.end - e.begin, e.name, raw, "%s %s" % (e.dtype, list(e.shape)), "tensor"))
    return "safetensors: %d tensors, data at 0x%x" % (len(header.entries), header.data_start), rows


def file_fields(source: Source) -> tuple[list[tuple[int, int, str]], int]:
    """(offset, size, name) of all that has a name in the file, and where its data starts; for hexdump's margin."""
    _, rows = header_rows(source, directory=True)
    fields = [(r.offset, r.size, r.field) for r in rows if r.size]
    return fields, next((r.offset + r.size for r in rows if r.field == "header"), min(source.size, 8))

"""Reads the header and the directory of a VQF file: which form the header has, and the gates that both must pass.

The functions take bytes and follow spec section 4, one gate after the other; the first that fails raises. Gates 1 to 7
need the header and the directory only, so a file of gigabytes opens in no time. The engine overlooks much of what can be
wrong here: vqf/audit.py finds all of it.
"""

from __future__ import annotations

from collections import namedtuple

from vqfref.errors import FormatError, LimitError, UnsupportedError
from vqfref.source import looks_like
from vqfref.vqf import structs
from vqfref.vqf.geometry import tag_length
from vqfref.vqf.structs import DIR_OFFSET, FLAG_ENC, FLAG_SIGNED, HEADER_432, HEADER_448, MAGIC, TENSOR

TYPE_CHECKING = False
if TYPE_CHECKING:
    from vqfref.source import Source

MIN_SIZE = DIR_OFFSET + TENSOR.size  # header and one directory entry, gate 4
MAX_TENSORS = 1 << 16  # real files have some fifty; the limit keeps a hostile file from costing seconds

POSITIVE = structs.SIZE_WORDS  # gate 5; same place in both forms

Head = namedtuple("Head", "header layout size tag_length")
Head.__doc__ = """A header that passed gates 1 to 6: the record, its Layout (HEADER_448 or HEADER_432), the file's size
in bytes and the length of its tag."""

Entry = namedtuple("Entry", "name qtype rows cols offset nbytes raw_name pad index")
Entry.__doc__ = """One directory entry: name as text, the numbers of VQFTensor, and for the audit the 32 name bytes, the
padding and the position in the directory."""

Candidate = namedtuple("Candidate", "layout data_offset file_len well_formed fits")


# ---- gates 1 to 6: the header


def read_head(data: bytes, size: int) -> Head:
    """Gates 1 to 6 on the first bytes of a file (all of them, or at least 448), given its size on disk.

    Raises FormatError or UnsupportedError for the first gate that fails.
    """
    check_magic(data, size)
    check_size(size)
    arch = HEADER_448.unpack(data).arch
    for name in POSITIVE:
        if getattr(arch, name) == 0:
            raise zero_word(name)
    return find_form(data, size)


def check_magic(data: bytes, size: int) -> None:
    """Gates 1 to 3: size for magic and version, magic, version."""
    if size < 8:
        raise FormatError(
            "vqf.magic.truncated", "%d bytes, expected at least 8 for magic and version" % size, offset=size
        )
    magic, version = int.from_bytes(data[:4], "little"), int.from_bytes(data[4:8], "little")
    if magic != MAGIC:
        raise FormatError(
            "vqf.header.magic",
            "found %s, expected 46 51 46 57 ('FQFW')%s" % (data[:4].hex(" "), _looks_like(data)),
            offset=0,
            field="magic",
        )
    if version == structs.VERSION_OBSOLETE:
        raise UnsupportedError(
            "vqf.header.version",
            "version 1 unsupported (need 2): convert the model again",
            offset=4,
            field="version",
        )
    if version not in (structs.VERSION_DENSE, structs.VERSION_MOE):
        raise UnsupportedError(
            "vqf.header.version", "version %d unsupported (need 2 or 3)" % version, offset=4, field="version"
        )


def check_size(size: int) -> None:
    """Gate 4: room for the header and one directory entry."""
    if size < MIN_SIZE:
        raise FormatError(
            "vqf.file.truncated",
            "%d bytes, expected at least %d for the header and one directory entry" % (size, MIN_SIZE),
            offset=size,
        )


def zero_word(name: str) -> FormatError:
    """Gate 5: the error for a word of arch that must not be zero."""
    offset = HEADER_448.offset_of("arch." + name)
    return FormatError("vqf.arch.header", "0, expected a positive number", offset=offset, field="arch." + name)


def _looks_like(data: bytes) -> str:
    """What a file with another magic may be, as a hint behind the error."""
    if data.startswith(b"VQFW"):
        return "; this is what the documents say, but the engine's constant is stored as FQFW"
    if data.startswith(b"WFQF"):
        return "; this is the magic with its bytes reversed, as a big-endian writer would store it"
    if data.startswith(b"RlFGV"):
        return "; this is a VQF file in base64"
    wrong = [i for i in range(4) if data[i] != b"FQFW"[i]]
    bits = data[wrong[0]] ^ b"FQFW"[wrong[0]]
    if len(wrong) == 1 and bits & (bits - 1) == 0:
        return "; one bit is wrong: the medium or the memory is faulty"
    return looks_like(data)


def candidates(data: bytes, size: int) -> tuple[Candidate, Candidate]:
    """Both readings of (data_offset, file_len), the 448-byte form's first. Section 3."""
    found = []
    for layout in (HEADER_448, HEADER_432):
        header = layout.unpack(data)
        well_formed = (
            header.data_offset != 0
            and header.data_offset % structs.TENSOR_ALIGN == 0
            and header.data_offset >= DIR_OFFSET + TENSOR.size * header.n_tensors
            and header.file_len > header.data_offset
        )
        fits = well_formed and header.data_offset < size and header.file_len + tag_length(header.flags) == size
        found.append(Candidate(layout, header.data_offset, header.file_len, well_formed, fits))
    return found[0], found[1]


def find_form(data: bytes, size: int) -> Head:
    """Gate 6: which form the header has, and whether the file's size is what it says. Section 3."""
    both = candidates(data, size)
    fitting = [c for c in both if c.fits]
    formed = [c for c in both if c.well_formed]
    if len(fitting) == 1:
        header = fitting[0].layout.unpack(data)
        return Head(header, fitting[0].layout, size, tag_length(header.flags))
    if not fitting and len(formed) == 1:
        raise _wrong_size(formed[0], data, size)
    raise FormatError(
        "vqf.header.layout",
        "layout undetermined: as %s, and %s of the two %s a file of %d bytes"
        % (
            "; as ".join("a %d-byte header data_offset %d and file_len %d" % (c.layout.size, c[1], c[2]) for c in both),
            "both" if fitting else "none",
            "fit" if fitting else "fits",
            size,
        ),
        offset=HEADER_432.offset_of("data_offset"),
        field="data_offset",
    )


def _wrong_size(c: Candidate, data: bytes, size: int) -> FormatError:
    """The file was cut or has grown: both numbers, and what the difference looks like."""
    flags = HEADER_448.unpack(data).flags
    expected = c.file_len + tag_length(flags)
    hint = ""
    if size == c.file_len + 40 - tag_length(flags):
        hint = "; the difference of 24 bytes is that of the two tags: is the ENC flag wrong?"
    if size < expected:
        missing = expected - size
        code, what = "vqf.size.truncated", "%d %s missing" % (missing, "byte is" if missing == 1 else "bytes are")
    elif size == expected + 32 and flags & FLAG_ENC and flags & FLAG_SIGNED:
        code, what = "vqf.signtool.bounds", "32 bytes too many, as the engine's signing tool leaves on encrypted files"
        hint = "; cut them off and sign again with this library"
    else:
        surplus = size - expected
        code, what = "vqf.size.bounds", "%d byte%s too many" % (surplus, "" if surplus == 1 else "s")
        if size == 2 * expected:
            hint = "; it is perhaps twice in the file: a download that was continued from the wrong place?"
    return FormatError(
        code,
        "%s: file_len %d and a tag of %d make %d bytes, the file has %d%s"
        % (what, c.file_len, tag_length(flags), expected, size, hint),
        offset=min(size, expected),
        field="file_len",
    )


# ---- gate 7: the directory


def read_directory(data: bytes, head: Head) -> list[Entry]:
    """The entries of a directory, not judged yet. `data` is `DIR_OFFSET .. DIR_OFFSET + 64 * n_tensors`."""
    entries = []
    for index, (name, qtype, rows, cols, pad, offset, nbytes) in enumerate(TENSOR.struct.iter_unpack(data)):
        text = name.partition(b"\0")[0].decode("ascii", "backslashreplace")
        entries.append(Entry(text, qtype, rows, cols, offset, nbytes, name, pad, index))
    return entries


def check_bounds(entry: Entry, head: Head) -> None:
    """Gate 7: the entry lies inside `data_offset .. file_len`, in unbounded integers."""
    start, stop = head.header.data_offset, head.header.file_len
    if not (start <= entry.offset and entry.offset + entry.nbytes <= stop):
        raise FormatError(
            "vqf.directory.bounds",
            "bytes 0x%x .. 0x%x lie outside of the data area 0x%x .. 0x%x"
            % (entry.offset, entry.offset + entry.nbytes, start, stop),
            offset=entry_offset(entry, "offset"),
            field=entry.name,
        )


def entry_offset(entry: Entry, field: str = "name") -> int:
    """Where a field of a directory entry lies in the file."""
    return int(DIR_OFFSET + TENSOR.size * entry.index + TENSOR.offset_of(field))


# ---- from a file


def load_head(source: Source) -> Head:
    """Gates 1 to 6 on a Source."""
    return read_head(source.read_at(0, min(source.size, MIN_SIZE)), source.size)


def load_directory(source: Source, head: Head) -> list[Entry]:
    """The directory of a Source; gate 6 has seen to it that it lies inside the file."""
    if head.header.n_tensors > MAX_TENSORS:
        raise LimitError(
            "vqf.directory.limit",
            "%d tensors: this library reads at most %d" % (head.header.n_tensors, MAX_TENSORS),
            offset=HEADER_448.offset_of("n_tensors"),
            field="n_tensors",
        )
    return read_directory(source.read_at(DIR_OFFSET, TENSOR.size * head.header.n_tensors), head)

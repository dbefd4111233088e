"""Reads the header and the directory of a VQF file: which form the header has, and the gates that both must pass.

The functions take bytes and follow spec section 4, one gate after the other; the first that fails raises. Gates 1 to 7
need the header and the directory only, so a file of gigabytes opens in no time. The engine overlooks much of what can be
wrong here: vqf/audit.py finds all of it.
"""

from __future__ import annotations

from collections import namedtuple

from vqfref.errors import FormatError, LimitError, UnsupportedError
from vqfref.source import looks_like, text_mode
from vqfref.vqf import structs
from vqfref.vqf.geometry import tag_length
from vqfref.vqf.structs import DIR_OFFSET, FLAG_ENC, FLAG_SIGNED, HEADER_432, HEADER_448, MAGIC, TENSOR

TYPE_CHECKING = False
if TYPE_CHECKING:
    from vqfref.source import Source

MIN_SIZE = DIR_OFFSET + TENSOR.size  # header and one directory entry, gate 4
ABSURD = 1000  # times the file's size: a file_len beyond it is more likely damaged than the file cut
MAX_TENSORS = 1 << 16  # real files have some fifty; the limit keeps a hostile file from costing seconds

POSITIVE = structs.SIZE_WORDS  # gate 5; same place in both forms

Head = namedtuple("Head", "header layout size tag_length")
Head.__doc__ = """A header that passed gates 1 to 6: the record, its Layout (HEADER_448 or HEADER_432), the file's size
in bytes and the length of its tag."""

Entry = namedtuple("Entry", "name qtype rows cols offset nbytes raw_name pad index")
Entry.__doc__ = """One directory entry: name as text, the numbers of VQFTensor, and for the audit the 32 name bytes, the
padding and the position in the directory."""

Candidate = namedtuple("Candidate", "layout data_offset file_len well_formed fits fault")
Candidate.__doc__ = (
    "One reading of data_offset and file_len; fault: why it is not well-formed or does not fit, or empty."
)


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
        known = (structs.VERSION_DENSE, structs.VERSION_MOE)
        near = [v for v in known if version and one_bit_apart(version, v)]
        hint = "; one bit away from %d: the medium or the memory is faulty" % near[0] if near else ""
        raise UnsupportedError(
            "vqf.header.version", "version %d unsupported (need 2 or 3)%s" % (version, hint), offset=4, field="version"
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


def one_bit_apart(a: int, b: int) -> bool:
    """Do two numbers differ in exactly one bit?

    >>> one_bit_apart(32, 36), one_bit_apart(32, 37), one_bit_apart(32, 32)
    (True, False, False)
    """
    bits = a ^ b
    return bits != 0 and bits & (bits - 1) == 0


def _looks_like(data: bytes) -> str:
    """What a file with another magic may be, as a hint behind the error."""
    if data.startswith(b"VQFW"):
        return "; this is what the documents say, but the engine's constant is stored as FQFW"
    if data.startswith(b"WFQF"):
        return "; this is the magic with its bytes reversed, as a big-endian writer would store it"
    if data.startswith(b"RlFGV"):
        return "; this is a VQF file in base64"
    wrong = [i for i in range(4) if data[i] != b"FQFW"[i]]
    if len(wrong) == 1 and one_bit_apart(data[wrong[0]], b"FQFW"[wrong[0]]):
        return "; one bit is wrong: the medium or the memory is faulty"
    return looks_like(data)


def candidates(data: bytes, size: int) -> tuple[Candidate, Candidate]:
    """Both readings of (data_offset, file_len), the 448-byte form's first. Section 3."""
    found = []
    for layout in (HEADER_448, HEADER_432):
        header = layout.unpack(data)
        start, stop, end = header.data_offset, header.file_len, DIR_OFFSET + TENSOR.size * header.n_tensors
        fault = ""
        if start == 0:
            fault = "data_offset is 0"
        elif start % structs.TENSOR_ALIGN:
            fault = "%d is no multiple of 64" % start
        elif start < end:
            fault = "%d lies inside the directory, whose %d entries end at %d" % (start, header.n_tensors, end)
        elif stop <= start:
            fault = "file_len is not behind data_offset"
        well_formed = not fault
        if not fault and start >= size:
            fault = "%d lies behind the file's end" % start
        elif not fault and stop + tag_length(header.flags) != size:
            fault = "with a tag of %d it makes %d bytes" % (tag_length(header.flags), stop + tag_length(header.flags))
        found.append(Candidate(layout, start, stop, well_formed, not fault, fault))
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
    readings = (
        "a %d-byte header data_offset %d and file_len %d%s"
        % (c.layout.size, c.data_offset, c.file_len, c.fault and " (%s)" % c.fault)
        for c in both
    )
    raise FormatError(
        "vqf.header.layout",
        "layout undetermined: as %s, and %s of the two %s a file of %d bytes"
        % ("; as ".join(readings), "both" if fitting else "none", "fit" if fitting else "fits", size),
        offset=_likelier(both, data, size).layout.offset_of("data_offset"),
        field="data_offset",
    )


def _likelier(both: tuple[Candidate, Candidate], data: bytes, size: int) -> Candidate:
    """Of two readings that are refused, the one whose numbers are nearer to those of a file of this size."""
    header = HEADER_448.unpack(data)  # flags and n_tensors have the same place in both forms

    def near(c: Candidate) -> tuple[bool, int]:
        signs = (
            0 < c.data_offset < size,
            c.data_offset and c.data_offset % structs.TENSOR_ALIGN == 0,
            c.data_offset >= DIR_OFFSET + TENSOR.size * header.n_tensors,
            0 < c.file_len < 2 * size,
        )
        return c.file_len + tag_length(header.flags) == size, sum(map(bool, signs))

    return max(both, key=near)


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
        if c.file_len >> 63:
            what = "no file is that long, so file_len itself is damaged"
        elif c.file_len > ABSURD * size:
            what = "file_len is damaged, or all but the first bytes are missing"
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
    """Gates 1 to 6 on a Source; where its size is wrong, the error says if a transfer in text mode shows."""
    try:
        return read_head(source.read_at(0, min(source.size, MIN_SIZE)), source.size)
    except FormatError as error:
        raise with_transfer(error, source) from None


def with_transfer(error: FormatError, source: Source) -> FormatError:
    """The same error; of gate 6, with what the bytes show of a transfer that changed them."""
    if error.code not in ("vqf.size.truncated", "vqf.size.bounds", "vqf.header.layout"):
        return error
    message = error.message + text_mode(source)
    return FormatError(error.code, message, offset=error.offset, field=error.field, path=error.path)


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

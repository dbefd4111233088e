"""Reads a VQF file: which form its header has, the gates that it must pass, its directory and its tensors.

The functions at the top take bytes and follow spec section 4, one gate after the other; the first that fails raises.
`VqfFile` puts them on a file. Opening runs gates 1 to 7, which need the header and the directory only, so a file of
gigabytes opens in no time. The engine overlooks much of what can be wrong here: vqf/audit.py finds all of it.
"""

from __future__ import annotations

from array import array
from collections import namedtuple

from vqfref import kernels
from vqfref.errors import FormatError, IntegrityError, LimitError, UnsupportedError, UsageError
from vqfref.findings import Finding
from vqfref.source import Source, looks_like
from vqfref.vqf import structs
from vqfref.vqf.geometry import LINEAR, Geometry, tag_length, tensors
from vqfref.vqf.seal import derive_keys, verify
from vqfref.vqf.structs import DIR_OFFSET, FLAG_ENC, FLAG_SIGNED, HEADER_432, HEADER_448, MAGIC, QTYPES, TENSOR
from vqfref.weightfile import VALUES_AT_ONCE, TensorInfo, Verification, WeightFile

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Iterable, Iterator, Sequence


MIN_SIZE = DIR_OFFSET + TENSOR.size  # header and one directory entry, gate 4
MAX_TENSORS = 1 << 16  # real files have some fifty; the limit keeps a hostile file from costing seconds

MAX_ROW = 1 << 21  # values in a row that is read with its neighbours in a tile

POSITIVE = ("dim", "n_layers", "n_heads", "head_dim", "ffn_dim", "vocab_size")  # gate 5; same place in both forms

Head = namedtuple("Head", "header layout size tag_length")
Head.__doc__ = """A header that passed gates 1 to 6: the record, its Layout (HEADER_448 or HEADER_432), the file's size
in bytes and the length of its tag."""

Entry = namedtuple("Entry", "name qtype rows cols offset nbytes raw_name pad index")
Entry.__doc__ = """One directory entry: name as text, the numbers of VQFTensor, and for the audit the 32 name bytes, the
padding and the position in the directory."""

DECODERS = {
    structs.F32: kernels.f32_decode,
    structs.F16: kernels.f16_decode,
    structs.Q8_0: kernels.q8_0_decode,  # q4i and g256 are Q8_0 to a reader
    structs.Q4_0: kernels.q4_0_decode,
    structs.Q4_8X8L: kernels.q4_0_decode,
}
BLOCK_ENCODINGS = {structs.Q8_0: "q8_0", structs.Q4_0: "q4_0", structs.Q4_8X8L: "q4_0"}

Candidate = namedtuple("Candidate", "layout data_offset file_len well_formed fits")


# ---- gates 1 to 6: the header


def read_head(data: bytes, size: int) -> Head:
    """Gates 1 to 6 on the first bytes of a file (all of them, or at least 512), given its size on disk.

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


# ---- the file


class VqfFile(WeightFile):
    """An open VQF file that passed gates 1 to 7.

    header: the Header record (`header.arch.n_layers` …); form: 448 or 432; directory: all Entry records, in order.
    """

    format = "vqf"

    def __init__(self, source: Source, *, passphrase: bytes | None = None, q8_tile: int = 0) -> None:
        """source: an open Source, which this file then owns. passphrase: to decrypt what is read; whether it is right,
        `verify` alone can tell. q8_tile: 4 where a file with Q8_8X8 clear has its q8_* in tiles of 4 rows, a form that
        has no flag (spec section 8).

        Raises FormatError, UnsupportedError or LimitError for the first of gates 1 to 7 that fails.
        """
        if q8_tile not in (0, 4):
            raise UsageError("usage.q8tile.unsupported", "q8_tile %r: expected 0 or 4" % (q8_tile,))
        self.source = source
        self.path = source.path
        self.head = load_head(source)
        self.header = self.head.header
        self.form = self.head.layout.size
        self.directory = load_directory(source, self.head)
        for entry in self.directory:
            check_bounds(entry, self.head)
        self._passphrase = passphrase or None  # an empty one is none
        self._keys = derive_keys(passphrase) if passphrase and self.encrypted else None
        self._q8_tile = q8_tile
        self._entries: dict[str, Entry] = {}
        for entry in self.directory:
            self._entries.setdefault(entry.name, entry)
        self._known: dict[str, Geometry] | None = None

    @property
    def encrypted(self) -> bool:
        """Is the data area ciphertext?"""
        return bool(self.header.flags & FLAG_ENC)

    def keys(self) -> list[str]:
        """Tensor names in the directory's order; of entries with the same name the first."""
        return list(self._entries)

    def metadata(self) -> dict[str, Any]:
        """The header as plain values: version, form, flags by name, arch, data_offset, file_len."""
        h = self.header
        return {
            "version": h.version,
            "header_bytes": self.form,
            "flags": h.flags,
            "flag_names": structs.flag_names(h.flags).split(),
            "n_tensors": h.n_tensors,
            "data_offset": h.data_offset,
            "file_len": h.file_len,
            "size": self.head.size,
            "encrypted": self.encrypted,
            "signed": bool(h.flags & structs.FLAG_SIGNED),
            "arch": h.arch._asdict(),
        }

    def info(self, name: str) -> TensorInfo:
        entry = self._entry(name)
        geometry = self._fitting(entry)
        if geometry is None:  # a name or a size that the format does not know: the directory's own numbers
            dtype = QTYPES[entry.qtype].name if entry.qtype in QTYPES else "qtype %d" % entry.qtype
            shape: tuple[int, ...] = (entry.rows, entry.cols)
            return TensorInfo(name, shape, 0, 0, dtype, dtype, entry.offset, entry.nbytes, self.path)
        layers = geometry.layers if geometry.layered else 0
        dtype = QTYPES[entry.qtype].name
        return TensorInfo(
            name,
            geometry.shape,
            layers,
            geometry.experts,
            dtype,
            self._encoding(geometry),
            entry.offset,
            entry.nbytes,
            self.path,
        )

    def geometry(self, name: str) -> Geometry:
        """The Geometry of a tensor, for its matrices, segments and byte ranges.

        Raises TensorNotFound; FormatError (vqf.plan.shape) where the directory and the arch don't agree about it.
        """
        entry = self._entry(name)
        geometry = self._fitting(entry)
        if geometry is not None:
            try:
                geometry.layer_bytes  # noqa: B018 - raises where layers are not whole blocks
            except FormatError as error:
                error.path, error.offset = self.path, entry_offset(entry, "bytes")
                raise
            return geometry
        if entry.qtype not in QTYPES:
            raise UnsupportedError(
                "vqf.directory.dtype", "qtype %d is unknown" % entry.qtype, offset=entry_offset(entry, "qtype"),
                field=name, path=self.path,
            )  # fmt: skip
        known = self._geometries().get(name)
        plain = Geometry(name, entry.qtype, entry.rows, entry.cols, (entry.rows, entry.cols))
        if known is not None or plain.nbytes != entry.nbytes:
            expected = known or plain
            raise FormatError(
                "vqf.plan.shape",
                "the directory has %s, %d bytes; the arch calls for %s, %d bytes"
                % (QTYPES[entry.qtype].name, entry.nbytes, QTYPES[expected.qtype].name, expected.nbytes),
                offset=entry_offset(entry, "bytes"),
                field=name,
                path=self.path,
            )
        return plain

    def known_names(self) -> list[str]:
        """The names of all tensors that the format has for this arch, in the writer's order."""
        return list(self._geometries())

    def ranges(
        self,
        name: str,
        layer: int = 0,
        *,
        expert: int | None = None,
        rows: tuple[int, int] | None = None,
        cols: tuple[int, int] | None = None,
    ) -> list[tuple[int, int]]:
        """The byte ranges (offset in the file, length) that hold one layer, or an expert, some rows or columns of it.

        Whole blocks and tiles; see Geometry.ranges. An engine that streams layers reads just these.
        """
        base = self._entry(name).offset
        return [(base + start, n) for start, n in self.geometry(name).ranges(layer, rows, cols, expert)]

    def raw(self, name: str) -> memoryview:
        entry = self._entry(name)
        return self.source.view(entry.offset, entry.nbytes)

    def chunks(self, name: str, size: int = 1 << 20) -> Iterator[bytes]:
        entry = self._entry(name)
        return self.source.pieces(entry.offset, entry.offset + entry.nbytes, size)

    def doubts(self) -> Finding | None:
        """A warning (vqf.passphrase.key) where the passphrase makes noise of the norms, in which two f32 of three are
        larger or smaller than any weight; only `verify` proves a passphrase right or wrong, and it reads everything."""
        for e in self.directory if self._keys else ():
            count = min(e.nbytes // 4, 64)
            if e.qtype == structs.F32 and count >= 8:
                values = kernels.f32_decode(self.plain(e.offset, 4 * count))
                if sum(v == 0 or 1e-12 < abs(v) < 1e12 for v in values) < count * 2 // 3:
                    return Finding("vqf.passphrase.key", "warning", "decrypts to noise: the passphrase is wrong, unless noise "
                                   "was put in; `verify` can tell", offset=e.offset, field=e.name, path=self.path)  # fmt: skip
                break
        return None

    def plain(self, offset: int, length: int) -> bytes | memoryview:
        """Bytes of the data area, decrypted where it is encrypted; just the blocks that are needed.

        Raises IntegrityError (vqf.enc.key) for an encrypted file that was opened without its passphrase.
        """
        stored = self.source.view(offset, length)
        if not self.encrypted:
            return stored
        if self._keys is None:
            raise IntegrityError("vqf.enc.key", "the data area is encrypted: a passphrase is needed", path=self.path)
        return kernels.sm4_ctr(self._keys.sm4, self.header.enc_iv, stored, offset - self.header.data_offset)

    def get_tensor(
        self, name: str, *, layer: int | None = None, rows: slice | None = None, expert: int | None = None
    ) -> array[float]:
        """The values as array('f'), dequantized, row-major.

        layer: one matrix of a tensor that has layers; None gives all layers one after the other. expert: one expert of
        a layer; None gives all of them, each [out, in], one after the other. rows: a slice with step 1 of the matrix's
        rows, for which the layer and the expert must be named. Only the bytes that are needed are read and decrypted.

        Raises TensorNotFound; UsageError for a layer, an expert or rows that are not there; FormatError where the
        directory contradicts the arch; IntegrityError (vqf.enc.key) without the passphrase.
        """
        geometry = self.geometry(name)
        out = array("f")
        if rows is not None and ((layer is None and geometry.layers > 1) or (expert is None and geometry.experts)):
            raise UsageError("usage.layer.missing", "rows of which %s?" % (
                "layer" if layer is None and geometry.layers > 1 else "expert"), field=name)  # fmt: skip
        layers = geometry.layers if geometry.nbytes else 0  # nothing may claim to have any number of layers
        for one_layer in range(layers) if layer is None else (layer,):
            for one_expert in range(geometry.experts) if expert is None and geometry.experts else (expert,):
                self._append(out, name, geometry, one_layer, one_expert, rows)
        return out

    def iter_rows(
        self, name: str, *, layer: int = 0, expert: int | None = None, rows: slice | None = None
    ) -> Iterator[array[float]]:
        """The rows of one matrix, one array('f') each, reading a few at a time. Raises as `get_tensor` does."""
        geometry = self.geometry(name)
        width = max(self._shape(geometry, expert)[1], 1)
        for values in self._row_groups(name, geometry, layer, expert, rows):
            for i in range(0, len(values), width):
                yield values[i : i + width]

    def values(self, name: str) -> Iterator[array[float]]:
        geometry = self.geometry(name)
        if not geometry.nbytes:
            return
        for layer in range(geometry.layers):
            if not geometry.tiled and not geometry.pad_cols and not (geometry.experts and geometry.expert_axis):
                yield from self._flat(name, geometry, layer)  # stored in the order of the values, whatever the width
                continue
            for expert in range(geometry.experts) if geometry.experts else (None,):
                yield from self._row_groups(name, geometry, layer, expert, None)

    def _flat(self, name: str, geometry: Geometry, layer: int) -> Iterator[array[float]]:
        """The values of one layer whose bytes are in their order, in pieces."""
        info = QTYPES[geometry.qtype]
        left = geometry.layer_elements
        at = self._entry(name).offset + layer * geometry.layer_bytes
        while left > 0:
            n = min(left, max(VALUES_AT_ONCE // 32, 1) * 32)  # whole blocks
            nbytes = -(-n // info.block_elements) * info.block_bytes
            yield DECODERS[geometry.qtype](self.plain(at, nbytes))[:n]
            at, left = at + nbytes, left - n

    def _row_groups(
        self, name: str, geometry: Geometry, layer: int, expert: int | None, rows: slice | None
    ) -> Iterator[array[float]]:
        """The rows of one matrix in groups of some VALUES_AT_ONCE values, whole tiles each."""
        height, width = self._shape(geometry, expert)
        start, stop, stride = (rows or slice(None)).indices(height)
        if stride != 1:
            raise UsageError("usage.rows.range", "rows %r: the step must be 1" % (rows,), field=name)
        if width > MAX_ROW:
            raise LimitError(
                "vqf.row.limit", "rows of %d values: read columns of them" % width, field=name, path=self.path
            )
        step = max(8, VALUES_AT_ONCE // max(width, 1) // 8 * 8)
        for at in range(start, stop, step):
            values = array("f")
            self._append(values, name, geometry, layer, expert, slice(at, min(at + step, stop)))
            yield values

    def matvec(self, name: str, x: Sequence[float], *, layer: int = 0, expert: int | None = None) -> array[float]:
        """A matrix times the vector x, straight from the stored blocks: one value a row.

        x is quantized to int8 as the engine's kernels do it (spec section 10) where the matrix is; an F32 or F16 matrix
        is multiplied in single precision. Raises as `get_tensor` does, and UsageError for x of another length.
        """
        geometry = self.geometry(name)
        _, cols = self._shape(geometry, expert)
        if len(x) != cols:
            raise UsageError("usage.vector.shape", "a vector of %d, expected %d" % (len(x), cols), field=name)
        out = array("f")
        if geometry.qtype not in BLOCK_ENCODINGS:
            for row in self.iter_rows(name, layer=layer, expert=expert):
                out.append(kernels.dot_float(row, x))
            return out
        encoding = BLOCK_ENCODINGS[geometry.qtype]
        pad = geometry.pad_cols  # columns of zeros that are stored behind each row
        bands = list(geometry.bands(layer, None, (0, cols + pad), expert))
        if any((band.cols | band.start | band.stop) % 32 or band.first % band.cols for band in bands):
            raise UnsupportedError("vqf.columns.align", "the matrix's columns don't begin and end with blocks: dequantize "
                                   "it instead", field=name, path=self.path)  # fmt: skip
        activation = kernels.quantize_activation([*x, *[0.0] * pad])
        for band in bands:
            data, layout = self.plain(self._entry(name).offset + band.offset, band.nbytes), band.layout
            if band.stop - band.start != band.cols:  # an expert's columns in a copy of tiles
                size = QTYPES[geometry.qtype].block_bytes
                rows = kernels.rows_of(data, band.cols, encoding, layout)
                data = b"".join([row[band.start // 32 * size : band.stop // 32 * size] for row in rows])
                layout = LINEAR
            products = kernels.matvec_quantized(data, activation, encoding, layout)
            skip = band.first // band.cols  # rows of the first tile that belong to another expert
            out.extend(products[skip : skip + band.rows])
        return out

    def _shape(self, geometry: Geometry, expert: int | None) -> tuple[int, int]:
        """(rows, columns) of one matrix without its padding: of the expert, or of the layer as it is stored."""
        if expert is not None and geometry.experts:
            return geometry.shape  # type: ignore[return-value]
        return geometry.matrix[0], geometry.matrix[1] - geometry.pad_cols

    def _append(
        self, out: array[float], name: str, geometry: Geometry, layer: int, expert: int | None, rows: slice | None
    ) -> None:
        """Decode rows of one matrix and append them to `out`."""
        height, cols = self._shape(geometry, expert)
        start, stop, step = (rows or slice(None)).indices(height)
        if step != 1:
            raise UsageError("usage.rows.range", "rows %r: the step must be 1" % (rows,), field=name)
        decode = DECODERS[geometry.qtype]
        for band in geometry.bands(layer, (start, max(start, stop)), (0, cols), expert):
            data = self.plain(self._entry(name).offset + band.offset, band.nbytes)
            values = decode(data if band.layout == LINEAR else kernels.untile(data, band.cols, band.layout))
            if band.start == 0 and band.stop == band.cols:
                out.extend(values[band.first : band.first + band.rows * band.cols])
                continue
            for at in range(band.first, band.first + band.rows * band.cols, band.cols):
                out.extend(values[at + band.start : at + band.stop])

    def verify(
        self,
        *,
        public_key: bytes | None = None,
        user_ids: Iterable[bytes] | None = None,
        require: Iterable[str] = (),
        progress: Callable[[int, int], None] | None = None,
        **_: Any,
    ) -> Verification:
        """Gates 8 to 11, with the passphrase given to `open`: reads the whole file and says what was checked, what was
        not, and why. See seal.verify; `authenticated` is set when a key vouched for the file.

        progress(done, total), in bytes, is called now and then.
        """
        self.authenticated = False
        result = verify(
            self.source, self.head, passphrase=self._passphrase, public_key=public_key, user_ids=user_ids,
            require=require, progress=progress,
        )  # fmt: skip
        self.authenticated = result.authenticated
        return result

    def check(self) -> list[Finding]:
        from vqfref.vqf.audit import audit

        return audit(self.source, q8_tile=self._q8_tile)

    def close(self) -> None:
        self.source.close()

    def _entry(self, name: str) -> Entry:
        try:
            return self._entries[name]
        except KeyError:
            raise self.not_found(name) from None

    def _geometries(self) -> dict[str, Geometry]:
        if self._known is None:
            self._known = {t.name: t for t in tensors(self.header.arch, "84x", self.header.flags, self._q8_tile)}
        return self._known

    def _fitting(self, entry: Entry) -> Geometry | None:
        """The geometry that arch and flags give this entry, if qtype and length agree."""
        geometry = self._geometries().get(entry.name)
        if geometry is None or geometry.qtype != entry.qtype or geometry.nbytes != entry.nbytes:
            return None
        return geometry

    def _encoding(self, geometry: Geometry) -> str:
        name: str = QTYPES[geometry.qtype].name
        flags = self.header.flags
        if geometry.name.startswith("q8_"):
            name = "q4i" if flags & structs.FLAG_Q8BUF_Q4 else "g256" if flags & structs.FLAG_G256 else name
        if not geometry.tiled:
            return name
        return "%s in tiles %s" % (name, geometry.tile.replace("q4_", "").replace("q8_", ""))


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

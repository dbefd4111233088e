"""A VQF file that is open: its facts, its tensors by layer, expert and row, decrypted and decoded; its verification.

Opening runs gates 1 to 7 of spec section 4 (vqf/head.py).
"""

from __future__ import annotations

from array import array

from vqfref import kernels
from vqfref.errors import FormatError, IntegrityError, LimitError, UnsupportedError, UsageError
from vqfref.findings import Finding
from vqfref.source import Source
from vqfref.vqf import structs
from vqfref.vqf.geometry import LINEAR, Geometry, tensors
from vqfref.vqf.head import check_bounds, entry_offset, load_directory, load_head
from vqfref.vqf.seal import derive_keys, verify
from vqfref.vqf.structs import FLAG_ENC, QTYPES
from vqfref.weightfile import VALUES_AT_ONCE, TensorInfo, Verification, WeightFile

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Iterable, Iterator, Sequence

    from vqfref.vqf.head import Entry

MAX_ROW = 1 << 21  # values in a row that is read with its neighbours in a tile

DECODERS = {
    structs.F32: kernels.f32_decode,
    structs.F16: kernels.f16_decode,
    structs.Q8_0: kernels.q8_0_decode,  # q4i and g256 are Q8_0 to a reader
    structs.Q4_0: kernels.q4_0_decode,
    structs.Q4_8X8L: kernels.q4_0_decode,
}
BLOCK_ENCODINGS = {structs.Q8_0: "q8_0", structs.Q4_0: "q4_0", structs.Q4_8X8L: "q4_0"}


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

"""Where everything in a VQF file lies: the tensors an arch calls for, their matrices, layers, experts and byte ranges.

`tensors` is the table of spec section 6: every tensor with its order, directory numbers and true per-layer matrix.
`plan` turns it into a whole file: offsets, flags, sizes. `Geometry.ranges` says which bytes hold some rows and columns
of one layer or expert, as an engine that streams layers needs them. Tiles follow section 8.

Nothing here touches bytes. What it leaves out: the values inside blocks and tiles (vqfref/quant).
"""

from __future__ import annotations

from collections import namedtuple

from vqfref.errors import FormatError, LimitError, UsageError
from vqfref.vqf import structs
from vqfref.vqf.structs import F16, F32, Q4_0, Q4_8X8L, Q8_0, QTYPES, align

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterable, Iterator

MAX_U32, MAX_U64 = (1 << 32) - 1, (1 << 64) - 1
MAX_RANGES = 1 << 18  # byte ranges in one answer; a real expert has some thousand
LM_CHUNK = 16384  # rows of q8_lm and q4_lm that are quantized and tiled as one piece, section 8

# Tile layouts, section 8: name -> rows in a tile. One tile holds the same block column of that many rows.
# An x8_* copy is made from the q4 bytes as they stand, which may lie in tiles of 4 rows already.
LINEAR, Q4_4X4, Q8_8X8, Q8_4X4, X8_8X8L = "linear", "q4_4x4", "q8_8x8", "q8_4x4", "q4_8x8l"
X8_OF_Q4_4X4 = "q4_8x8l of q4_4x4"
TILE_ROWS = {LINEAR: 1, Q4_4X4: 4, Q8_8X8: 8, Q8_4X4: 4, X8_8X8L: 8, X8_OF_Q4_4X4: 8}

WMODES = ("dual", "q4", "q8", "q4i", "g256")

Segment = namedtuple("Segment", "row rows layout offset nbytes")
Segment.__doc__ = "Rows row .. row+rows of one layer, stored in one layout at a byte offset inside the tensor."


Band = namedtuple("Band", "offset nbytes layout cols first rows start stop")
Band.__doc__ = """Bytes to decode in one go: `nbytes` at `offset` inside the tensor, in `layout`. Made linear and decoded,
they give values of which `rows` rows of `cols` begin at value `first`; in each, `start` to `stop` are wanted."""


class Geometry:
    """One tensor: what the directory says of it, and the matrices that lie in it.

    name, qtype, rows, cols: as in VQFTensor. layers: how many matrices follow one another; layered: False where the
    tensor is there once and has no layers (then `layers` is 1). shape: the true (out, in) of one matrix, or (n,) of a
    vector; where `experts` is not 0, of one expert's matrix. expert_axis: 0 where the experts' rows follow one another,
    1 where their columns do. tile: the layout that the flags call for (a matrix that doesn't fit it is linear all the
    same). chunk: rows that are tiled as one piece. pad_cols: zero columns stored after each row.
    """

    __slots__ = (
        "name", "qtype", "rows", "cols", "layers", "layered", "shape", "experts", "expert_axis", "tile", "chunk",
        "pad_cols",
    )  # fmt: skip

    def __init__(
        self,
        name: str,
        qtype: int,
        rows: int,
        cols: int,
        shape: tuple[int, ...],
        layers: int | None = None,
        experts: int = 0,
        expert_axis: int = 0,
        tile: str = LINEAR,
        chunk: int = 0,
        pad_cols: int = 0,
    ) -> None:
        self.name = name
        self.qtype = qtype
        self.rows = rows
        self.cols = cols
        self.shape = shape
        self.layers = 1 if layers is None else layers
        self.layered = layers is not None
        self.experts = experts
        self.expert_axis = expert_axis
        self.tile = tile
        self.chunk = chunk
        self.pad_cols = pad_cols

    def __repr__(self) -> str:
        return "<Geometry %s %s %d x %s>" % (self.name, QTYPES[self.qtype].name, self.layers, list(self.shape))

    @property
    def matrix(self) -> tuple[int, int]:
        """(out, in) of one layer as it is stored, with all its experts and padding; a vector is one row."""
        out, cols = self.shape if len(self.shape) == 2 else (1, self.shape[0])
        if self.experts:
            return (out * self.experts, cols) if self.expert_axis == 0 else (out, cols * self.experts)
        return out, cols + self.pad_cols

    @property
    def layer_elements(self) -> int:
        """Elements of one layer."""
        return self.matrix[0] * self.matrix[1]

    @property
    def nbytes(self) -> int:
        """Bytes of the whole tensor, from the directory's rows and cols, as section 6 counts them."""
        return stored_bytes(self.qtype, self.rows * self.cols)

    @property
    def layer_bytes(self) -> int:
        """Bytes of one layer. Raises FormatError where a layer is not a whole number of blocks (section 7)."""
        return stored_bytes(self.qtype, self._whole_blocks())

    @property
    def tiled(self) -> bool:
        """Does any piece of a layer lie in tiles? A matrix that doesn't fit those of its flag is linear (section 8)."""
        rows, cols = self.matrix
        fits = rows % TILE_ROWS[self.tile] == 0 or 0 < self.chunk <= rows
        return self.tile != LINEAR and cols % 32 == 0 and fits

    def segments(self) -> list[Segment]:
        """The pieces of one layer that are laid out on their own: the layer itself, or the chunks of q8_lm, q4_lm."""
        rows, cols = self.matrix
        self._whole_blocks()
        step = self.chunk or max(rows, 1)
        info = QTYPES[self.qtype]
        found = []
        for row in range(0, rows, step):
            n = min(step, rows - row)
            tiled = n % TILE_ROWS[self.tile] == 0 and cols % 32 == 0
            start = row * cols // info.block_elements * info.block_bytes
            found.append(Segment(row, n, self.tile if tiled else LINEAR, start, stored_bytes(self.qtype, n * cols)))
        return found

    def ranges(
        self,
        layer: int = 0,
        rows: tuple[int, int] | None = None,
        cols: tuple[int, int] | None = None,
        expert: int | None = None,
    ) -> list[tuple[int, int]]:
        """The byte ranges (offset, length), relative to the tensor, that hold a part of one layer.

        rows, cols: half-open bounds inside the layer's matrix, or inside the expert's where `expert` is given; None
        for all. A range covers whole blocks, or whole tiles where the rows lie in tiles (and of an x8 copy of tiled rows
        whole rows of tiles); neighbours are joined.
        Raises UsageError for a layer, an expert, rows or cols that are not there; LimitError for more ranges than a
        list should hold.
        """
        found: list[tuple[int, int]] = []
        for band in self.bands(layer, rows, cols, expert):
            start, length = band.offset, band.nbytes
            if found and found[-1][0] + found[-1][1] >= start:
                found[-1] = (found[-1][0], max(found[-1][1], start + length - found[-1][0]))
            else:
                found.append((start, length))
            if len(found) > MAX_RANGES:
                message = "more than %d byte ranges: take some rows at a time" % MAX_RANGES
                raise LimitError("vqf.ranges.limit", message, field=self.name)
        return found

    def bands(
        self,
        layer: int = 0,
        rows: tuple[int, int] | None = None,
        cols: tuple[int, int] | None = None,
        expert: int | None = None,
    ) -> Iterator[Band]:
        """The same part of a layer as pieces to decode: where their bytes lie, and which of their values are wanted."""
        _index("layer", layer, self.layers)
        if expert is None:
            (out, width), row, col = self.matrix, 0, 0
        else:
            _index("expert", expert, self.experts)
            out, width = self.shape
            row, col = (expert * out, 0) if self.expert_axis == 0 else (0, expert * width)
        r0, r1 = _bounds("rows", rows, out)
        c0, c1 = _bounds("cols", cols, width)
        if r0 == r1 or c0 == c1:
            return
        base = layer * self.layer_bytes
        for seg in self.segments():
            a, b = max(row + r0 - seg.row, 0), min(row + r1 - seg.row, seg.rows)
            if a < b:
                for band in self._segment_bands(seg, a, b, col + c0, col + c1):
                    yield band._replace(offset=base + seg.offset + band.offset)

    def _segment_bands(self, seg: Segment, a: int, b: int, c0: int, c1: int) -> Iterator[Band]:
        """The bands of rows a … b, columns c0 … c1 of one segment; offsets relative to it."""
        cols = self.matrix[1]
        per, size = QTYPES[self.qtype].block_elements, QTYPES[self.qtype].block_bytes
        height = TILE_ROWS[seg.layout]
        if seg.layout == LINEAR:
            # Whole rows follow one another; of part of a row, each row is a band of its own.
            whole = c1 - c0 == cols
            pieces: Iterable[tuple[int, int]] = (
                [(a * cols, b * cols)] if whole else ((r * cols + c0, r * cols + c1) for r in range(a, b))
            )
            width = c1 - c0
            for start, stop in pieces:
                block, end = start // per, _ceil(stop, per)
                yield Band(
                    block * size, (end - block) * size, LINEAR, width, start % per, (stop - start) // width, 0, width
                )
            return
        # A group is `height` rows; its tiles follow one another by columns. Whole groups follow one another too.
        full = c1 - c0 == cols or seg.layout == X8_OF_Q4_4X4  # in a copy of tiles, columns are not in their places
        first, last = (0, cols // 32) if full else (c0 // 32, _ceil(c1, 32))
        start, width = c0 - first * 32, (last - first) * 32
        groups = range(a // height, _ceil(b, height))
        for g in [groups] if full else (range(group, group + 1) for group in groups):
            top, bottom = max(a, g.start * height), min(b, g.stop * height)
            offset = (g.start * cols // 32 + first) * height * size
            yield Band(
                offset, len(g) * width // 32 * height * size, seg.layout, width, (top - g.start * height) * width,
                bottom - top, start, start + c1 - c0,
            )  # fmt: skip

    def block_spans(self, segment: Segment, block: int) -> list[tuple[int, int]]:
        """Where the bytes of one Q8_0 block lie, relative to its segment: its scale and its codes. Section 8."""
        tile = TILE_ROWS[segment.layout]
        if tile == 1:
            return [(block * 34, 34)]
        row, column = divmod(block, self.matrix[1] // 32)
        base = (row // tile * (self.matrix[1] // 32) + column) * 34 * tile
        codes = [(base + 2 * tile + 4 * (tile * k + row % tile), 4) for k in range(8)]
        return [(base + 2 * (row % tile), 2), *codes]

    def _whole_blocks(self) -> int:
        n = self.layer_elements
        if n % QTYPES[self.qtype].block_elements and self.layers > 1:
            raise FormatError(
                "vqf.layer.shape",
                "a layer of %d elements is not a whole number of blocks of %d: where the next layer starts is not defined"
                % (n, QTYPES[self.qtype].block_elements),
                field=self.name,
            )
        return n


def stored_bytes(qtype: int, elements: int) -> int:
    """Bytes that `elements` values take in an encoding; the last block counts whole. Section 6."""
    info = QTYPES[qtype]
    return int(_ceil(elements, info.block_elements) * info.block_bytes)


def _ceil(a: int, b: int) -> int:
    return -(-a // b)


def _index(what: str, value: int, count: int) -> None:
    if not 0 <= value < count:
        raise UsageError("usage.%s.range" % what, "%s %d: there are %d" % (what, value, count))


def _bounds(what: str, bounds: tuple[int, int] | None, length: int) -> tuple[int, int]:
    if bounds is None:
        return 0, length
    if not 0 <= bounds[0] <= bounds[1] <= length:
        raise UsageError("usage.%s.range" % what, "%s %d:%d: there are %d" % (what, *bounds, length))
    return bounds


# ---- section 6: names, order, geometry


def matrices(arch: Any) -> tuple[tuple[str, int | None, int, int, tuple[int, int]], ...]:
    """The weight matrices of the text model: (suffix, layers, directory rows, directory cols, (out, in))."""
    nl, dim, ff, vocab = arch.n_layers, arch.dim, arch.ffn_dim, arch.vocab_size
    q_out, k_out = arch.n_heads * arch.head_dim, arch.n_kv_heads * arch.head_dim
    return (
        ("q", nl, nl * dim, q_out, (q_out, dim)),
        ("k", nl, nl * dim, k_out, (k_out, dim)),
        ("v", nl, nl * dim, k_out, (k_out, dim)),
        ("o", nl, nl * q_out, dim, (dim, q_out)),
        ("gate", nl, nl * ff, dim, (ff, dim)),
        ("up", nl, nl * ff, dim, (ff, dim)),
        ("down", nl, nl * dim, ff, (dim, ff)),
        ("lm", None, vocab, dim, (vocab, dim)),
    )


EXPERT_AXIS = {"gate": 0, "up": 0, "down": 1}


def vision_tensors(arch: Any) -> list[Geometry]:
    """The 27 tensors of the vision tower, never tiled."""
    vd, vh, vf, out, ds = arch.vis_depth, arch.vis_hidden, arch.vis_ffn, arch.vis_out_dim, arch.vis_ds_count
    mi = vh * arch.vis_merge**2
    patch = 3 * arch.vis_temporal * arch.vis_patch**2
    table: tuple[tuple[str, int, int | None, tuple[int, ...]], ...] = (
        ("v_q8_qkv", Q8_0, vd, (3 * vh, vh)),
        ("v_q8_proj", Q8_0, vd, (vh, vh)),
        ("v_q8_fc1", Q8_0, vd, (vf, vh)),
        ("v_q8_fc2", Q8_0, vd, (vh, vf)),
        ("v_patch_embed", F32, None, (vh, patch)),
        ("v_patch_bias", F32, None, (vh,)),
        ("v_pos_embed", F32, None, (arch.vis_max_pos, vh)),
        ("v_qkv_bias", F32, vd, (3 * vh,)),
        *((name, F32, vd, (vh,)) for name in ("v_proj_bias", "v_norm1_w", "v_norm1_b", "v_norm2_w", "v_norm2_b")),
        ("v_fc1_bias", F32, vd, (vf,)),
        ("v_fc2_bias", F32, vd, (vh,)),
        ("v_merger_nw", F32, None, (vh,)),
        ("v_merger_nb", F32, None, (vh,)),
        ("v_merger_f1w", F32, None, (mi, mi)),
        ("v_merger_f1b", F32, None, (mi,)),
        ("v_merger_f2w", F32, None, (out, mi)),
        ("v_merger_f2b", F32, None, (out,)),
        ("v_ds_nw", F32, ds, (mi,)),
        ("v_ds_nb", F32, ds, (mi,)),
        ("v_ds_f1w", F32, ds, (mi, mi)),
        ("v_ds_f1b", F32, ds, (mi,)),
        ("v_ds_f2w", F32, ds, (out, mi)),
        ("v_ds_f2b", F32, ds, (out,)),
    )
    found = []
    for name, qtype, n, shape in table:
        pad = -vf % 32 if name == "v_q8_fc2" else 0  # each row zero-padded before quantizing
        cols = shape[0] * (shape[1] + pad if len(shape) == 2 else 1)
        found.append(Geometry(name, qtype, 1 if n is None else n, cols, shape, n, pad_cols=pad))
    return found


def tensors(arch: Any, families: str, flags: int, q8_tile: int = 0) -> list[Geometry]:
    """Every tensor that an arch calls for, in the writer's order.

    families: the weight sets, any of "8" (q8_*), "4" (q4_*), "x" (x8_*). flags: VQF flag bits; EMB_F16, Q8_8X8,
    Q4_4X4, Q8BUF_Q4, VISION and MOE are looked at. q8_tile: 4 for the 4-row form of q8, which has no flag.
    """
    nl, dim = arch.n_layers, arch.dim
    moe = bool(flags & structs.FLAG_MOE)
    found = [
        Geometry(
            "token_embed", F16 if flags & structs.FLAG_EMB_F16 else F32, arch.vocab_size, dim, (arch.vocab_size, dim)
        ),
        Geometry("final_norm", F32, dim, 1, (dim,)),
        Geometry("attn_norm", F32, nl * dim, 1, (dim,), nl),
        Geometry("ffn_norm", F32, nl * dim, 1, (dim,), nl),
    ]
    if arch.has_q_norm:
        found += [Geometry(n, F32, nl * arch.head_dim, 1, (arch.head_dim,), nl) for n in ("q_norm", "k_norm")]
    if moe:
        found.append(Geometry("moe_router", F32, nl * arch.n_experts, dim, (arch.n_experts, dim), nl))
    q8_layout = Q8_8X8 if flags & structs.FLAG_Q8_8X8 else LINEAR
    if q8_tile == 4 and not flags & (structs.FLAG_Q8_8X8 | structs.FLAG_Q8BUF_Q4) and q8_gate(arch, 4):
        q8_layout = Q8_4X4
    q4_layout, x8_layout = (Q4_4X4, X8_OF_Q4_4X4) if flags & structs.FLAG_Q4_4X4 else (LINEAR, X8_8X8L)
    for family, prefix, qtype, layout in (
        ("8", "q8_", Q8_0, q8_layout), ("4", "q4_", Q4_0, q4_layout), ("x", "x8_", Q4_8X8L, x8_layout)
    ):  # fmt: skip
        if family not in families:
            continue
        for suffix, layers, rows, cols, shape in matrices(arch):
            if family == "x" and suffix == "lm":
                continue
            experts, axis = 0, EXPERT_AXIS.get(suffix, 0)
            if moe and suffix in EXPERT_AXIS and arch.n_experts * arch.moe_ffn == arch.ffn_dim > 0:
                experts = arch.n_experts
                shape = (shape[0] // experts, shape[1]) if axis == 0 else (shape[0], shape[1] // experts)
            chunk = LM_CHUNK if suffix == "lm" else 0
            found.append(Geometry(prefix + suffix, qtype, rows, cols, shape, layers, experts, axis, layout, chunk))
    if flags & structs.FLAG_VISION:
        found += vision_tensors(arch)
    return found


# ---- section 8: the gates that decide about tiles


def q4_gate(arch: Any) -> bool:
    """Do all q4 matrices fit tiles of 4 rows?"""
    q_out, k_out = arch.n_heads * arch.head_dim, arch.n_kv_heads * arch.head_dim
    return not (arch.vocab_size % 4 or q_out % 4 or k_out % 4 or arch.dim % 32 or arch.ffn_dim % 32)


def q8_gate(arch: Any, rows: int = 8) -> bool:
    """Do all q8 layers fit tiles of `rows` rows? V is not asked: q8_lm decides chunk by chunk."""
    q_out, k_out = arch.n_heads * arch.head_dim, arch.n_kv_heads * arch.head_dim
    return not (
        q_out % rows or k_out % rows or arch.ffn_dim % rows or arch.dim % rows or arch.dim % 32 or arch.ffn_dim % 32
    )


# ---- a whole file

Plan = namedtuple("Plan", "version flags arch form tensors offsets data_offset file_len size")
Plan.__doc__ = """A file before it is written: `offsets[i]` is where `tensors[i]` starts, `size` the size on disk."""


def layout_flags(arch: Any, wmode: str, x8: bool = False, q8_tile: int = 8) -> int:
    """The flag bits that follow from arch and wmode (section 6, "which families", and the gates of section 8)."""
    flags = structs.FLAG_EMB_F16
    if q4_gate(arch):
        flags |= structs.FLAG_Q4_4X4
    if wmode == "q4i":
        flags |= structs.FLAG_Q8BUF_Q4
    elif q8_tile == 8 and q8_gate(arch):
        flags |= structs.FLAG_Q8_8X8
    if wmode == "g256":
        flags |= structs.FLAG_G256
    if x8:
        flags |= structs.FLAG_X8
    if arch.has_vision:
        flags |= structs.FLAG_VISION
    if arch.n_experts:
        flags |= structs.FLAG_MOE
    return flags


def plan(
    arch: Any, wmode: str, *, x8: bool = False, q8_tile: int = 8, form: int = 448, encrypted: bool = False
) -> Plan:
    """The file that an arch becomes: tensors, offsets, flags and sizes, before anything is converted.

    arch: an Arch record. wmode: one of WMODES. x8: with x8_* copies (q4 only). q8_tile: 8, 4, or 0 for linear q8.
    form: header of 448 or 432 bytes. Raises UsageError for what the engine could not have written; FormatError for an
    arch that no file can have (check_arch), whose layers are not whole blocks (vqf.layer.shape), or whose numbers the
    directory can't hold (vqf.plan.range).
    """
    if wmode not in WMODES:
        raise UsageError("usage.wmode.unsupported", "wmode %r: expected one of %s" % (wmode, ", ".join(WMODES)))
    if q8_tile not in (0, 4, 8):
        raise UsageError("usage.q8tile.unsupported", "q8_tile %r: expected 8, 4 or 0" % (q8_tile,))
    if form not in (432, 448):
        raise UsageError("usage.form.unsupported", "header form %r: expected 448 or 432" % (form,))
    check_arch(arch)
    if x8 and (wmode != "q4" or not x8_fits(arch)):
        raise UsageError(
            "usage.x8.unsupported",
            "x8 copies go with wmode q4 and need rows in eights and columns in thirty-twos in all seven matrices",
        )
    if arch.n_experts and form != 448:
        raise UsageError("usage.form.unsupported", "a MoE file needs the 448-byte header")
    flags = layout_flags(arch, wmode, x8, q8_tile)
    families = {"dual": "84", "q4": "4", "q8": "8", "q4i": "8", "g256": "8"}[wmode] + ("x" if x8 else "")
    found = tensors(arch, families, flags, q8_tile)
    for t in found:
        if t.layer_elements % QTYPES[t.qtype].block_elements:
            raise FormatError(
                "vqf.layer.shape",
                "a layer of %d elements is not a whole number of blocks" % t.layer_elements,
                field=t.name,
            )
        if max(t.rows, t.cols) > MAX_U32:
            message = "%d x %d: the directory has 32 bits for each" % (t.rows, t.cols)
            raise FormatError("vqf.plan.range", message, field=t.name)
    if encrypted:
        flags |= structs.FLAG_ENC
    data_offset = align(structs.DIR_OFFSET + structs.TENSOR.size * len(found), structs.PAGE)
    offsets, end = place([t.nbytes for t in found], data_offset)
    if end + tag_length(flags) > MAX_U64:
        raise FormatError("vqf.plan.range", "a file of %d bytes: offsets have 64 bits" % (end + tag_length(flags)))
    version = structs.VERSION_MOE if arch.n_experts else structs.VERSION_DENSE
    return Plan(version, flags, arch, form, found, offsets, data_offset, end, end + tag_length(flags))


def check_arch(arch: Any) -> None:
    """The words of an arch that a file can have: they fit into their fields, no size is 0, none contradicts another.

    Raises FormatError. What the gates and the audit would say of the finished file is said before it is written.
    """
    for f in structs.ARCH_45.fields:
        if f.type == "u32" and not 0 <= getattr(arch, f.name) <= MAX_U32:
            message = "%d, expected 0 to 2^32 - 1" % getattr(arch, f.name)
            raise FormatError("vqf.arch.range", message, field="arch." + f.name)
    for name in structs.SIZE_WORDS:
        if getattr(arch, name) == 0:
            raise FormatError("vqf.arch.header", "0, expected a positive number", field="arch." + name)
    for name, message in contradictions(arch, arch.n_experts > 0):
        raise FormatError("vqf.arch.shape", message, field="arch." + name)


def contradictions(arch: Any, moe: bool) -> Iterator[tuple[str, str]]:
    """Words of an arch that contradict one another: the name and what is wrong."""
    if arch.n_kv_heads == 0 or arch.n_heads % arch.n_kv_heads:
        yield "n_kv_heads", "%d does not divide n_heads %d" % (arch.n_kv_heads, arch.n_heads)
    if moe:
        width = arch.n_experts * arch.moe_ffn
        if arch.n_experts and arch.ffn_dim != width:
            yield "ffn_dim", "%d, expected n_experts * moe_ffn = %d" % (arch.ffn_dim, width)
        if not 0 < arch.top_k <= max(arch.n_experts, 1):
            yield "top_k", "%d of %d experts" % (arch.top_k, arch.n_experts)


def place(sizes: list[int], data_offset: int) -> tuple[list[int], int]:
    """Offsets of tensors of these sizes, each 64-byte-aligned, and the file_len after the last one."""
    offsets, at = [], data_offset
    for nbytes in sizes:
        offsets.append(at)
        at = align(at + nbytes)
    return offsets, at


def tag_length(flags: int) -> int:
    """Bytes after file_len: 32 of HMAC-SM3 in an encrypted file, else 8 of FNV-1a-64."""
    return 32 if flags & structs.FLAG_ENC else 8


def x8_fits(arch: Any) -> bool:
    """x8 copies need rows in eights and columns in thirty-twos in every matrix of a layer (section 8)."""
    return all(shape[0] % 8 == 0 and shape[1] % 32 == 0 for suffix, _, _, _, shape in matrices(arch) if suffix != "lm")

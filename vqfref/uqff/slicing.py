"""Tensor-parallel slices: the part of a layer that one rank holds, cut as the engine's loader cuts it. Spec: UQFF section 14.

Shards hold whole tensors; each rank cuts its own part. `shard_range` and `offset_range` say what is cut, `slice_layer`
cuts all entries of a layer and its bias. Faults of the call are UsageErrors uqff.s1.<class>.
"""

from __future__ import annotations

import struct
from collections import namedtuple

from vqfref.errors import UsageError
from vqfref.quant import ggml
from vqfref.safetensors.reader import DTYPES
from vqfref.uqff.families import product
from vqfref.uqff.naming import AFQ, F8Q8, FP8, GGUF, HQQ, MXFP4, UNQUANT

TYPE_CHECKING = False
if TYPE_CHECKING:
    from vqfref.uqff.families import Layer

Range = namedtuple("Range", "dim start length")
Piece = namedtuple("Piece", "dtype shape data")
Piece.__doc__ = "One tensor of a slice: dtype, shape, bytes."


class Slice:
    """A part of a layer with the face of a Layer for decoding. tag: its family; shape: its logical shape; pieces: Piece
    by suffix, scalars included; bias: a Piece, or None where the rank gets none."""

    def __init__(
        self, key: str, tag: int, shape: tuple[int, ...], pieces: dict[str, Piece], bias: Piece | None
    ) -> None:
        self.key, self.tag, self.shape, self.pieces, self.bias = key, tag, shape, pieces, bias

    def read(self, suffix: str) -> bytes | memoryview:
        """The bytes of an entry."""
        data: bytes = self.pieces[suffix].data
        return data

    def dtype(self, suffix: str) -> str:
        """The dtype of an entry."""
        return str(self.pieces[suffix].dtype)

    def number(self, suffix: str) -> int:
        """The value of a scalar entry."""
        return int.from_bytes(self.read(suffix), "little")

    def numbers(self, suffix: str) -> tuple[int, ...]:
        """The values of a rank-1 U32 entry."""
        data = self.read(suffix)
        return struct.unpack("<%dI" % (len(data) // 4), data)


def shard_range(dims: tuple[int, ...], dim: int, rank: int, world: int) -> Range | None:
    """The part of one rank among `world` equal ones; None for the whole tensor."""
    _check_dim(dims, dim)
    if world < 1:
        raise UsageError("uqff.s1.range", "world %d, expected 1 or more" % world)
    if not 0 <= rank < world:
        raise UsageError("uqff.s1.range", "rank %d in a world of %d" % (rank, world))
    if world == 1:
        return None
    if dims[dim] % world:
        raise UsageError(
            "uqff.s1.shape", "dimension %d of %s is not a multiple of the world %d" % (dim, list(dims), world)
        )
    n = dims[dim] // world
    return Range(dim, rank * n, n)


def offset_range(dims: tuple[int, ...], dim: int, start: int, length: int) -> Range | None:
    """The part start … start + length of one dimension; None for all of it."""
    _check_dim(dims, dim)
    if start < 0 or length < 0 or start + length > dims[dim]:
        raise UsageError(
            "uqff.s1.range", "%d … %d of dimension %d, which has %d" % (start, start + length, dim, dims[dim])
        )
    return None if length == dims[dim] else Range(dim, start, length)


def _check_dim(dims: tuple[int, ...], dim: int) -> None:
    if not 0 <= dim < len(dims):
        raise UsageError("uqff.s1.range", "dimension %d of %s" % (dim, list(dims)))


def alignment(layer: Layer) -> int:
    """The unit in which the last dimension can be cut. Raises UsageError for HQQ, which can't be cut at all."""
    tag = layer.tag
    if tag == HQQ:
        raise UsageError("uqff.s1.unsupported", "sharded loading is unsupported for HQQ", field=layer.key)
    if tag == GGUF:
        return int(ggml.TYPES[layer.number(".dtype")].block_elements)
    if tag == AFQ:
        return layer.number(".group_size")
    return {MXFP4: 32, F8Q8: 32, FP8: 1, UNQUANT: 1}[tag or 0]


def slice_blocked(
    data: bytes | memoryview, dims: tuple[int, ...], block: int, block_bytes: int, dim: int, start: int, length: int
) -> bytes:
    """Cut rows of blocks: the bytes of `start … start + length` of one dimension. Raises UsageError."""
    if not dims or 0 in dims or block < 1 or block_bytes < 1:
        raise UsageError("uqff.s1.shape", "can't cut shape %s in blocks of %d" % (list(dims), block))
    _check_dim(dims, dim)
    if start < 0 or length < 0 or start + length > dims[dim]:
        raise UsageError(
            "uqff.s1.range", "%d … %d of dimension %d, which has %d" % (start, start + length, dim, dims[dim])
        )
    if dims[-1] % block:
        raise UsageError("uqff.s1.align", "last dimension %d is not a multiple of the block of %d" % (dims[-1], block))
    row_bytes = dims[-1] // block * block_bytes
    rows = product(dims[:-1])
    if len(data) < rows * row_bytes:
        raise UsageError("uqff.s1.bounds", "%d bytes, expected %d" % (len(data), rows * row_bytes))
    if dim == len(dims) - 1:
        if start % block or length % block:
            raise UsageError(
                "uqff.s1.align", "%d … %d is not aligned to the block of %d" % (start, start + length, block)
            )
        a, n = start // block * block_bytes, length // block * block_bytes
        return b"".join([data[r * row_bytes + a : r * row_bytes + a + n] for r in range(rows)])
    chunk = product(dims[dim + 1 : -1]) * row_bytes
    outer = product(dims[:dim])
    return b"".join([data[(p * dims[dim] + start) * chunk :][: length * chunk] for p in range(outer)])


def slice_layer(layer: Layer, part: Range | None) -> Slice:
    """The part of a checked layer that a Range selects, all entries and the bias; None copies the whole layer.

    Raises UsageError uqff.s1.align for a cut of the last dimension that is not aligned, uqff.s1.unsupported for HQQ.
    """
    dims = layer.logical_shape()
    tag = layer.tag or 0
    pieces = {s: Piece(t.entry.dtype, t.entry.shape, layer.read(s)) for s, t in layer.tensors.items()}
    if part is not None:
        unit = alignment(layer)
        if part.dim == len(dims) - 1 and (part.start % unit or part.length % unit):
            raise UsageError("uqff.s1.align", "%d … %d of the last dimension is not aligned to %d"
                             % (part.start, part.start + part.length, unit), field=layer.key)  # fmt: skip
        pieces.update(_cut(layer, pieces, dims, part))
        dims = (*dims[: part.dim], part.length, *dims[part.dim + 1 :])
    return Slice(layer.key, tag, dims, pieces, slice_bias(layer, part, len(dims)))


def _cut(layer: Layer, pieces: dict[str, Piece], dims: tuple[int, ...], part: Range) -> dict[str, Piece]:
    """The entries that a cut changes."""
    tag = layer.tag
    if tag in (GGUF, F8Q8):
        block, size = 32, 33
        if tag == GGUF:
            info = ggml.TYPES[layer.number(".dtype")]
            block, size = info.block_elements, info.block_bytes
        data = slice_blocked(layer.read(""), dims, block, size, part.dim, part.start, part.length)
        shape = (*dims[: part.dim], part.length, *dims[part.dim + 1 :])
        found = {
            "": Piece("U8", (len(data),), data),
            ".shape": Piece("U32", (len(shape),), struct.pack("<%dI" % len(shape), *shape)),
        }
        if tag == F8Q8:
            found[".num_blocks"] = Piece("U32", (), struct.pack("<I", len(data) // 33))
        return found
    # Plain tensors side by side; on the last dimension each has its own number of elements for `unit` values.
    per_value = {"": (1, 1)}
    if tag == AFQ:
        group = layer.number(".group_size")
        per_value = {"": (layer.number(".bits"), 32), ".scales": (1, group), ".biases": (1, group)}
    elif tag == MXFP4:
        per_value = {"": (1, 2), ".scales": (1, 32)}
    found = {}
    for suffix, (times, by) in per_value.items():
        last = part.dim == len(dims) - 1
        start, length = (part.start * times // by, part.length * times // by) if last else part[1:]
        found[suffix] = narrow(pieces[suffix], part.dim, start, length)
    return found


def narrow(piece: Piece, dim: int, start: int, length: int) -> Piece:
    """A plain tensor cut along one dimension, contiguous."""
    size = DTYPES[piece.dtype] // 8
    inner = product(piece.shape[dim + 1 :]) * size
    data = b"".join(
        [
            piece.data[(p * piece.shape[dim] + start) * inner :][: length * inner]
            for p in range(product(piece.shape[:dim]))
        ]
    )
    return Piece(piece.dtype, (*piece.shape[:dim], length, *piece.shape[dim + 1 :]), data)


def slice_bias(layer: Layer, part: Range | None, rank: int) -> Piece | None:
    """The bias that belongs to a part: whole without a cut; none for a cut of the inputs, where the caller adds it once
    after the reduction; else cut along the same dimension."""
    if layer.bias is None:
        return None
    entry = layer.bias.entry
    piece = Piece(entry.dtype, entry.shape, layer.bias.file.raw(layer.bias.name))
    if part is None:
        return piece
    if rank < 2 or part.dim == rank - 1:
        return None
    return narrow(piece, part.dim, part.start, part.length)


def expert_plan(gate: Layer, down: Layer, world: int) -> tuple[bool, str]:
    """Does the engine shard a block of experts, or does every rank load all of it ("replicate")? And why not."""
    if world <= 1:
        return False, "one rank"
    if down.bias is not None:
        return False, "the down projection has a bias"
    inter = down.logical_shape()[-1]
    if inter % world:
        return False, "%d is not a multiple of %d ranks" % (inter, world)
    if down.tag == HQQ:
        return False, "the down projection's alignment is unknown"
    unit = alignment(down)
    if inter // world % unit:
        return False, "%d of each rank is not a multiple of the alignment %d" % (inter // world, unit)
    return True, ""

"""Matrix times vector on blocks, as the engine's kernels compute it. Spec: VQF section 10.

The activation is quantized per 32 columns to int8 with a single-precision scale. For one output row,
y = sum over blocks of (sum over 32 of w_q * x_q, exact) * (d_w * d_x), accumulated over blocks in single precision.
Kernels differ in the order of that last sum, so two of them may differ by n_blocks * 2^-23 * sum |term|; the integer
sums may not differ at all, and `block_sums` exposes them.
"""

from __future__ import annotations

import struct
from array import array

from vqfref.errors import UsageError
from vqfref.quant.blocks import BLOCK, Q4_0_BYTES, Q8_0_BYTES, q4_0_decode, q8_0_decode, q8_code, q8_scale
from vqfref.quant.floats import check_whole, f32
from vqfref.quant.tiles import LAYOUTS, check_cols, untiled_rows

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Iterator, List, Sequence, Tuple

    Activation = Tuple[List[float], List[List[int]]]

BLOCK_BYTES = {"q8_0": Q8_0_BYTES, "q4_0": Q4_0_BYTES}


def block_bytes(encoding: str, layout: str = "linear") -> int:
    """BLOCK_BYTES; raises UsageError for another encoding, and for tiles of another."""
    if encoding not in BLOCK_BYTES:
        raise UsageError("usage.type.unsupported", "no type %r here; there are %s" % (encoding, " ".join(BLOCK_BYTES)))
    size = BLOCK_BYTES[encoding]
    if layout in LAYOUTS and LAYOUTS[layout][1] != size:
        raise UsageError("usage.tiles.layout", "%s are no tiles of %s" % (layout, encoding))
    return size


def quantize_activation(x: Sequence[float]) -> Activation:
    """(scales, codes): one single-precision scale and 32 int8 codes a block of 32 columns. Q8_0's arithmetic, but the
    scale is not rounded to f16."""
    check_whole(len(x), BLOCK, "values")
    scales, codes = [], []
    for at in range(0, len(x), BLOCK):
        block = x[at : at + BLOCK]
        s = q8_scale(block)
        r = f32(1 / s)
        scales.append(s)
        codes.append([q8_code(t) for t in array("f", [v * r for v in block])])
    return scales, codes


def blocks_of(row: bytes | memoryview, encoding: str) -> Iterator[tuple[float, list[int]]]:
    """(d, 32 integer codes) of each block of a linear row; Q4_0 codes are less 8."""
    check_whole(len(row), block_bytes(encoding))
    if encoding == "q8_0":
        for d, *q in struct.iter_unpack("<e32b", row):
            yield d, q
    else:
        for d, *q in struct.iter_unpack("<e16B", row):
            yield d, [(v & 15) - 8 for v in q] + [(v >> 4) - 8 for v in q]


def block_sums(row: bytes | memoryview, codes: list[list[int]], encoding: str) -> list[int]:
    """The exact integer sum of w_q * x_q in each block of a linear row."""
    check_whole(len(row), block_bytes(encoding))
    if len(row) != len(codes) * block_bytes(encoding):
        found = len(row), len(codes), encoding
        raise UsageError("usage.vector.shape", "a row of %d bytes, a vector of %d blocks of %s" % found)
    return [sum([w * x for w, x in zip(q, xq)]) for (_, q), xq in zip(blocks_of(row, encoding), codes)]


def dot(row: bytes | memoryview, activation: Activation, encoding: str) -> float:
    """One output: a linear row times a quantized activation, blocks summed in order in single precision."""
    scales, codes = activation
    y = 0.0
    for (d, q), d_x, xq in zip(blocks_of(row, encoding), scales, codes):
        isum = sum([w * x for w, x in zip(q, xq)])
        y = f32(y + f32(isum * f32(d * d_x)))
    return y


def rows_of(data: bytes | memoryview, cols: int, encoding: str, layout: str = "linear") -> Iterator[bytes | memoryview]:
    """The linear rows of a matrix, which may lie in tiles."""
    check_cols(cols)
    size = block_bytes(encoding, layout)
    if layout != "linear":
        yield from untiled_rows(data, cols, layout)
        return
    check_whole(len(data), size)
    size *= cols // BLOCK
    if len(data) % size:
        raise UsageError("usage.matrix.shape", "%d bytes, expected rows of %d" % (len(data), size))
    view = memoryview(data)
    for at in range(0, len(data), size):
        yield view[at : at + size]


def matvec(data: bytes | memoryview, x: Sequence[float], encoding: str, layout: str = "linear") -> array[float]:
    """A matrix of Q8_0 or Q4_0 rows times the vector x, whose length is the number of columns, a multiple of 32."""
    return matvec_quantized(data, quantize_activation(x), encoding, layout)


def matvec_quantized(
    data: bytes | memoryview, activation: Activation, encoding: str, layout: str = "linear"
) -> array[float]:
    """The same for an activation that is quantized already."""
    cols = BLOCK * len(activation[0])
    return array("f", [dot(row, activation, encoding) for row in rows_of(data, cols, encoding, layout)])


def matmul(
    data: bytes | memoryview, xs: Sequence[Sequence[float]], encoding: str, layout: str = "linear"
) -> list[array[float]]:
    """The same for several vectors: one result each."""
    return [matvec(data, x, encoding, layout) for x in xs]


def matvec_float(data: bytes | memoryview, x: Sequence[float], encoding: str, layout: str = "linear") -> array[float]:
    """The same without quantizing x: dequantized weights times floats, as the engine's single-token path does it."""
    decode = {"q8_0": q8_0_decode, "q4_0": q4_0_decode}[encoding]
    return array("f", [dot_float(decode(row), x) for row in rows_of(data, len(x), encoding, layout)])


def dot_float(w: Sequence[float], x: Sequence[float]) -> float:
    """The sum of w_i * x_i in order, each operation in single precision."""
    y = 0.0
    for product in array("f", [a * b for a, b in zip(w, x)]):
        y = f32(y + product)
    return y

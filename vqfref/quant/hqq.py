"""HQQ (Half-Quadratic Quantization): one scale and one non-integer zero point a column of a tall matrix.

Spec: UQFF sections 6.3 and 16. The flat row-major weight is reshaped to [G, C] with G = group_size rows; the C columns
are the groups, which have nothing to do with the weight's own rows. Axis 0 and one scale a column are all there is
here, as in every file known.
"""

from __future__ import annotations

import math
import sys
from array import array

from vqfref.quant.arith import divide, nearest, total
from vqfref.quant.floats import bf16_decode, bf16_encode, f16_decode, f16_encode, f32

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Iterable, Sequence

# bits: the shifts of a word's fields, the first block of rows first. 3 bits have i32 words, all others bytes.
SHIFTS = {
    8: (0,),
    4: (4, 0),
    3: (27, 24, 21, 18, 15, 12, 9, 6, 3, 0),
    2: (6, 4, 2, 0),
    1: (7, 6, 5, 4, 3, 2, 1, 0),
}
GROUP_SIZE = 64  # what the engine writes


def hqq_decode(
    packed: bytes | bytearray | memoryview,
    scales: Sequence[float],
    zeros: Sequence[float],
    bits: int,
    group_size: int,
    count: int,
    scale_dtype: str = "F32",
) -> array[float]:
    """The `count` values (code - zero) * scale, flat and row-major: the weight's own order.

    packed: u8 [P, C], or little-endian i32 [P, C] for 3 bits. scales, zeros: C values each, as stored in scale_dtype
    (F32, F16, BF16), to which difference and product are rounded.
    """
    columns = count // group_size
    codes = _unpack(packed, bits)[:count]  # 3 bits: rows of padding left out
    rounded = _ROUNDED[scale_dtype]
    out = array("f")
    for at in range(0, count, columns):
        row = rounded([c - z for c, z in zip(codes[at : at + columns], zeros)])
        out += rounded([v * s for v, s in zip(row, scales)])
    return out


def _unpack(packed: bytes | bytearray | memoryview, bits: int) -> Sequence[int]:
    """The codes in the order of the rows. A word has one element of each block of P rows, so that one field of all
    words is one block, flat."""
    if bits == 8:
        return bytes(packed)
    words: Sequence[int] = bytes(packed) if bits != 3 else _words(packed)
    mask = (1 << bits) - 1
    return [word >> shift & mask for shift in SHIFTS[bits] for word in words]


def _words(packed: bytes | bytearray | memoryview) -> array[int]:
    words = array("i", bytes(packed))
    if sys.byteorder == "big":
        words.byteswap()
    return words


def _f16(values: Iterable[float]) -> array[float]:
    return f16_decode(f16_encode(values))


def _bf16(values: Iterable[float]) -> array[float]:
    return bf16_decode(bf16_encode(values))


def _f32(values: Iterable[float]) -> array[float]:
    return array("f", values)


_ROUNDED = {"F32": _f32, "F16": _f16, "BF16": _bf16}


# ---- the encoder: scales stay what they were at first, zeros are moved until the error no longer falls

STEPS, BETA, KAPPA, P = 10, 10.0, 1.01, 0.7
_POWER = f32(P - 1)


def hqq_encode(values: Sequence[float], bits: int) -> tuple[bytes, array[float], array[float]]:
    """(packed, scales, zeros) of single-precision values: 8 or 4 bits, groups of 64, a multiple of 64 values.

    The bytes are the engine's on every small layer that was tried. Of two things its files do not tell: beta starts at
    10 here and not at 10.1, and the zeros of the round that ended the search are kept. The mean error is summed row by
    row in one accumulator; the engine's order for large layers is not known, and a search that ends a round earlier
    or later gives other zeros.
    """
    columns = len(values) // GROUP_SIZE
    top = (1 << bits) - 1
    weights = [array("f", values[c::columns]) for c in range(columns)]
    scales = [_scale(w, top) for w in weights]
    zeros = [f32(-min(w) * s) for w, s in zip(weights, scales)]
    best = math.inf
    for step in range(STEPS):
        beta = f32(BETA * KAPPA**step)
        solved = [_solve(w, s, z, top, beta) for w, s, z in zip(weights, scales, zeros)]
        zeros = [zero for zero, _ in solved]
        error = f32(total([e for row in zip(*[errors for _, errors in solved]) for e in row]) / len(values))
        if not error < best:
            break
        best = error
    codes = [c for row in zip(*[_quantize(w, s, z, top) for w, s, z in zip(weights, scales, zeros)]) for c in row]
    return _pack(codes, bits), array("f", [divide(1, s) for s in scales]), array("f", zeros)


def _scale(w: Sequence[float], top: int) -> float:
    """What a column is multiplied by to span the codes."""
    return max(0.0, min(20000.0, f32(top * divide(1, f32(max(w) - min(w))))))


def _quantize(w: Sequence[float], scale: float, zero: float, top: int) -> list[int]:
    return [nearest(t, 0, top) for t in array("f", [t + zero for t in array("f", [v * scale for v in w])])]


def _solve(w: Sequence[float], scale: float, zero: float, top: int, beta: float) -> tuple[float, list[float]]:
    """One step on one column: (the next zero, |W - r| for each element).

    r is what the column decodes to. e, the error shrunk by a soft threshold, is left to outliers, so that the next zero
    serves the others; below an error of about 0.17, so with nearly all real weights, it is 0.
    """
    q = _quantize(w, scale, zero, top)
    r = [v / scale if scale else divide(v, scale) for v in array("f", [c - zero for c in q])]
    difference = array("f", [v - u for v, u in zip(w, array("f", r))])
    errors = [abs(d) for d in difference]
    powers = array("f", [a**_POWER if a else math.inf for a in errors])
    shrunk = array("f", [a - t for a, t in zip(errors, array("f", [p / beta for p in powers]))])
    e = [math.copysign(max(0.0, v), d) for v, d in zip(shrunk, difference)]
    scaled = array("f", [t * scale for t in array("f", [v - u for v, u in zip(w, e)])])
    return f32(total(array("f", [c - t for c, t in zip(q, scaled)])) / GROUP_SIZE), errors


def _pack(codes: list[int], bits: int) -> bytes:
    """Codes in the order of the rows, 8 or 4 bits: the first half of the rows in the high nibbles."""
    if bits == 8:
        return bytes(codes)
    half = len(codes) // 2
    return bytes([high << 4 | low for high, low in zip(codes[:half], codes[half:])])

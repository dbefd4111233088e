"""What the encodings of UQFF share: single-precision steps that Python's own operators lack, and bit fields in bytes.

A product, quotient, sum or difference of single-precision numbers, computed in doubles and rounded once (`f32`, or a
whole list by array('f')), is what single-precision arithmetic gives. Spec: UQFF sections 16 and 16.1.
"""

from __future__ import annotations

import math
from array import array

from vqfref.quant.floats import f32

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Iterable, Sequence

I32_MIN, I32_MAX = -(1 << 31), (1 << 31) - 1


def divide(a: float, b: float) -> float:
    """a / b in single precision: by a zero infinite, or NaN."""
    if b:
        return f32(a / b)
    return math.copysign(math.inf, a) * math.copysign(1, b) if a and a == a else math.nan


def total(terms: Iterable[float]) -> float:
    """The sum in ascending order, from 0, rounded to single precision after every addition."""
    acc = array("f", (0,))
    for term in terms:
        acc[0] += term
    return acc[0]


def nearest(v: float, low: int = I32_MIN, high: int = I32_MAX) -> int:
    """The nearest integer to a single-precision number, ties away from zero, kept in low … high; 0 for a NaN."""
    if v >= high:
        return high
    if v <= low:
        return low
    if v != v:
        return 0
    return int(v + 0.5) if v > 0 else int(v - 0.5)


# ---- bit fields: byte i of a run holds elements i, i + run, i + 2 run, …, the first of them lowest


def pack_fields(codes: Sequence[int], bits: int, run: int) -> bytes:
    """Codes of 1, 2 or 4 bits into bytes. pack_fields([1, 2, 3, 4], 4, 2) is 31 42."""
    width = 8 // bits * run
    out = bytearray()
    for at in range(0, len(codes), width):
        packed = codes[at : at + run]
        for field, k in enumerate(range(at + run, at + width, run), 1):
            packed = [p | c << bits * field for p, c in zip(packed, codes[k : k + run])]
        out += bytes(packed)
    return bytes(out)


def unpack_fields(data: Sequence[int], bits: int, run: int) -> list[int]:
    """The inverse of `pack_fields`."""
    mask = (1 << bits) - 1
    out: list[int] = []
    for at in range(0, len(data), run):
        part = data[at : at + run]
        for shift in range(0, 8, bits):
            out += [byte >> shift & mask for byte in part]
    return out

"""Blocks of 32 elements: Q8_0, Q4_0, and what VQF makes of them (q4i, g256, the Q2_1 of the engine's memory).

Decoder and encoder of an encoding stand side by side. The encoders give the engine's bytes: every operation rounded to
single precision, nothing fused, nothing reassociated. Spec: VQF sections 7 and 9. A layer's values come flat; how the
blocks lie in a file (rows, tiles) is tiles.py's business.

`legacy=True` is the profile of files from before 2026-09-10: scales by the truncating f16 conversion, and Q8 codes
rounded by adding 0.5 on either side of zero.
"""

from __future__ import annotations

import math
import struct
from array import array

from vqfref.quant.floats import check_whole, f16_bits, f16_bits_truncated, f32

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Sequence

BLOCK = 32
GROUP = 256  # elements that share a scale in g256
Q8_0_BYTES, Q4_0_BYTES, Q2_1_BYTES = 34, 18, 16
_TINY = f32(1e-10)


def _scale(d: float, legacy: bool) -> bytes:
    return (f16_bits_truncated(d) if legacy else f16_bits(d)).to_bytes(2, "little")


def _reciprocal(x: float) -> float:
    """1 / x in single precision, infinite for a zero."""
    return f32(1 / x) if x else math.copysign(math.inf, x)


# ---- Q8_0: d (f16), 32 x int8; value = q * d


def q8_0_decode(data: bytes | bytearray | memoryview) -> array[float]:
    """The values of whole Q8_0 blocks. Exact: an int8 times a half fits single precision."""
    check_whole(len(data), Q8_0_BYTES)
    out = array("f")
    for d, *q in struct.iter_unpack("<e32b", data):
        out.extend([d * v for v in q])
    return out


def q8_code(t: float, legacy: bool = False) -> int:
    """t rounded half away from zero in single precision and clamped to -127 … 127; 0 for a NaN."""
    t = f32(t - 0.5) if t < 0 and not legacy else f32(t + 0.5)
    return 0 if t != t else int(max(-127.0, min(127.0, t)))


def q8_scale(values: Sequence[float]) -> float:
    """s = max(1e-10, max|x|) / 127, at least 1e-10; a NaN does not count."""
    a = max([_TINY] + [abs(v) for v in values if v == v])
    return max(f32(a / 127), _TINY)


def q8_0_encode(values: Sequence[float], legacy: bool = False) -> bytes:
    """Q8_0 blocks of single-precision values; their number is a multiple of 32."""
    check_whole(len(values), BLOCK, "values")
    out = bytearray()
    for at in range(0, len(values), BLOCK):
        block = values[at : at + BLOCK]
        s = q8_scale(block)
        out += _scale(s, legacy) + _q8_codes(block, s, legacy)
    return bytes(out)


def _q8_codes(block: Sequence[float], s: float, legacy: bool) -> bytes:
    r = _reciprocal(s)
    return struct.pack("<%db" % len(block), *[q8_code(t, legacy) for t in array("f", [x * r for x in block])])


# ---- g256: Q8_0's shape, one scale for each flat group of 256


def g256_encode(values: Sequence[float], legacy: bool = False) -> bytes:
    """Q8_0 blocks of one layer whose scale is computed over 256 elements. What is left behind the last full group stays
    zero bytes, scale included: the engine loses those weights."""
    check_whole(len(values), BLOCK, "values")
    out = bytearray(len(values) // BLOCK * Q8_0_BYTES)
    for at in range(0, len(values) - GROUP + 1, GROUP):
        s = q8_scale(values[at : at + GROUP])
        for b in range(at, at + GROUP, BLOCK):
            codes = _q8_codes(values[b : b + BLOCK], s, legacy)
            out[b // BLOCK * Q8_0_BYTES : (b // BLOCK + 1) * Q8_0_BYTES] = _scale(s, legacy) + codes
    return bytes(out)


# ---- Q4_0: d (f16), 16 bytes: element j in the low nibble of byte j, element 16 + j in its high one; (n - 8) * d


def q4_0_decode(data: bytes | bytearray | memoryview) -> array[float]:
    """The values of whole Q4_0 blocks. Exact in single precision."""
    check_whole(len(data), Q4_0_BYTES)
    out = array("f")
    for d, *q in struct.iter_unpack("<e16B", data):
        out.extend([d * ((v & 15) - 8) for v in q])
        out.extend([d * ((v >> 4) - 8) for v in q])
    return out


def q4_0_codes(block: Sequence[float]) -> tuple[float, list[int]]:
    """(d, 32 codes 0 … 15) of one block: d is the first element of largest magnitude over -8, or 1 if that is zero."""
    m = 0.0
    for x in block:
        if abs(x) > abs(m):
            m = x
    d = f32(m / -8)
    if d == 0:
        d = 1.0
    i = _reciprocal(d)
    codes = []
    for t in array("f", [t + 8.5 for t in array("f", [x * i for x in block])]):
        codes.append(0 if t != t else int(max(0.0, min(15.0, t))))
    return d, codes


def q4_0_encode(values: Sequence[float], legacy: bool = False) -> bytes:
    """Q4_0 blocks of single-precision values; their number is a multiple of 32."""
    check_whole(len(values), BLOCK, "values")
    out = bytearray()
    for at in range(0, len(values), BLOCK):
        d, n = q4_0_codes(values[at : at + BLOCK])
        out += _scale(d, legacy) + bytes([low | high << 4 for low, high in zip(n[:16], n[16:])])
    return bytes(out)


# ---- q4i: Q4_0's values in Q8_0's shape


def q4i_encode(values: Sequence[float], legacy: bool = False) -> bytes:
    """Q4_0's d and its codes less 8, one int8 each in natural order. Decode with `q8_0_decode`."""
    check_whole(len(values), BLOCK, "values")
    out = bytearray()
    for at in range(0, len(values), BLOCK):
        d, n = q4_0_codes(values[at : at + BLOCK])
        out += _scale(d, legacy) + struct.pack("<32b", *[v - 8 for v in n])
    return bytes(out)


# ---- Q2_1: d0, m0, d1, m1 (f16), 8 bytes of 2-bit codes; element i of a half in byte i / 4 at bit 2 * (i % 4)


def q2_1_decode(data: bytes | bytearray | memoryview) -> array[float]:
    """The values m_h + d_h * q of whole Q2_1 blocks, each operation in single precision."""
    check_whole(len(data), Q2_1_BYTES)
    out = array("f")
    for d0, m0, d1, m1, *q in struct.iter_unpack("<4e8B", data):
        for d, m, codes in ((d0, m0, q[:4]), (d1, m1, q[4:])):
            products = array("f", [d * (byte >> 2 * k & 3) for byte in codes for k in range(4)])
            out.extend([m + product for product in products])
    return out


def q2_1_encode(values: Sequence[float]) -> bytes:
    """Q2_1 blocks of single-precision values; their number is a multiple of 32."""
    check_whole(len(values), BLOCK, "values")
    out = bytearray()
    for at in range(0, len(values), BLOCK):
        scales, codes = [], bytearray()
        for half in (values[at : at + 16], values[at + 16 : at + 32]):
            lo, hi = min(half), max(half)
            d = f32(f32(hi - lo) / 3)
            if not d > 0:
                d = 1.0
            i = _reciprocal(d)
            scaled = array("f", [x * i for x in array("f", [x - lo for x in half])])
            q = [0 if t != t else int(max(0.0, min(3.0, t))) for t in array("f", [t + 0.5 for t in scaled])]
            scales += [f16_bits(d), f16_bits(lo)]
            codes += bytes([q[k] | q[k + 1] << 2 | q[k + 2] << 4 | q[k + 3] << 6 for k in range(0, 16, 4)])
        out += struct.pack("<4H", *scales) + codes
    return bytes(out)

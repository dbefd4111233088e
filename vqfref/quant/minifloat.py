"""Floats of 8 bits and fewer: E4M3, E5M2, E8M0 and E2M1 (OCP 8-bit Floating Point and Microscaling Formats 1.0), and the
three encodings that UQFF builds of them: FP8, F8Q8 and MXFP4.

E4M3 is the "fn" variant: no infinities, one NaN for each sign. Spec: UQFF sections 6.4, 6.6, 6.7 and 16.
"""

from __future__ import annotations

import math
import struct
from array import array

from vqfref.errors import UsageError
from vqfref.quant.arith import divide, nearest
from vqfref.quant.floats import bf16_decode, bf16_encode, check_whole, f32

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Iterable, Sequence

BLOCK = 32  # elements that share a scale in F8Q8 and MXFP4


def e4m3_value(byte: int) -> float:
    """Sign bit 7, exponent e in bits 3 to 6, mantissa m in bits 0 to 2: m * 2^-9 for e = 0, else (8 + m) * 2^(e - 10);
    0x7f and 0xff are NaN; the largest finite value is 448."""
    e, m = byte >> 3 & 15, byte & 7
    if e == 15 and m == 7:
        return math.nan
    value = math.ldexp(m, -9) if e == 0 else math.ldexp(8 + m, e - 10)
    return -value if byte & 0x80 else value


def e5m2_value(byte: int) -> float:
    """Sign bit 7, exponent e in bits 2 to 6, mantissa m in bits 0 and 1; IEEE rules, with infinities."""
    e, m = byte >> 2 & 31, byte & 3
    if e == 31:
        value = math.nan if m else math.inf
    else:
        value = math.ldexp(m, -16) if e == 0 else math.ldexp(4 + m, e - 17)
    return -value if byte & 0x80 else value


def e8m0_value(byte: int) -> float:
    """A power of two, 2^(byte - 127); 255 is NaN (the Microscaling standard's rule)."""
    return math.nan if byte == 255 else math.ldexp(1, byte - 127)


E4M3 = array("f", map(e4m3_value, range(256)))
E5M2 = array("f", map(e5m2_value, range(256)))
E8M0 = array("f", map(e8m0_value, range(256)))
E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0)


def e4m3_decode(data: bytes | bytearray | memoryview) -> array[float]:
    """E4M3 values, one byte each."""
    return array("f", [E4M3[b] for b in bytes(data)])


def e4m3_encode_byte(x: float) -> int:
    """The E4M3 byte nearest to x, ties to the even byte; what is beyond 448, infinities too, becomes ±448."""
    sign, a = 0x80 if math.copysign(1, x) < 0 else 0, abs(x)
    if a != a:
        return sign | 0x7F
    if a >= 448:
        return sign | 0x7E
    if a < 0.015625:  # 2^-6: subnormals, in steps of 2^-9; 8 of them are the byte of 2^-6
        return sign | round(a * 512)
    m, e = math.frexp(a)  # a = 16 m * 2^(e - 4), 16 m from 8 to 16; a carry to 16 runs on into the exponent
    return sign | (e + 6 << 3) + round(m * 16) - 8


def e4m3_encode(values: Iterable[float]) -> bytes:
    """E4M3 bytes, one a value, by `e4m3_encode_byte`."""
    return bytes([e4m3_encode_byte(x) for x in values])


def e5m2_decode(data: bytes | bytearray | memoryview) -> array[float]:
    """E5M2 values, one byte each."""
    return array("f", [E5M2[b] for b in bytes(data)])


def e8m0_decode(data: bytes | bytearray | memoryview) -> array[float]:
    """E8M0 values, one byte each."""
    return array("f", [E8M0[b] for b in bytes(data)])


# ---- FP8: E4M3 bytes and one scale for the whole tensor


def fp8_decode(data: bytes | bytearray | memoryview, scale: float) -> array[float]:
    """The values e4m3(byte) * scale; scale is the stored dequant_w_scale."""
    table = array("f", [v * scale for v in E4M3])
    return array("f", [table[b] for b in bytes(data)])


def fp8_encode(values: Iterable[float]) -> tuple[bytes, float, float]:
    """(bytes, quant_scale, dequant_scale) of a whole tensor. The engine computes in bf16: the scale that takes the
    largest magnitude to 416 is a bf16, at most 416, and so is each product with it."""
    x = bf16_decode(bf16_encode(values))
    (reciprocal,) = _bf16([divide(1, max([0.0] + [abs(v) for v in x]))])
    (scale,) = _bf16([min(416.0, 416 * reciprocal)])
    return e4m3_encode(_bf16([v * scale for v in x])), scale, divide(1, scale)


def _bf16(values: Iterable[float]) -> array[float]:
    return bf16_decode(bf16_encode(values))


# ---- F8Q8: an E4M3 byte for the scale and 32 x int8; what the scale is stored as is divided by 416, not by 448

_F8Q8_SCALES = array("f", [v / 416 for v in E4M3])


def f8q8_decode(data: bytes | bytearray | memoryview, count: int) -> array[float]:
    """The first `count` values code * scale of whole F8Q8 blocks; what is left of the last block is padding."""
    check_whole(len(data), BLOCK + 1)
    out = array("f")
    for byte, *codes in struct.iter_unpack("<B32b", data):
        scale = _F8Q8_SCALES[byte]
        out.extend([c * scale for c in codes])
    return out[:count]


def f8q8_encode(values: Sequence[float]) -> bytes:
    """F8Q8 blocks of a flat tensor, padded with zeros to whole blocks. A scale above 448 / 416 is stored as 448: values
    beyond ±136.8 come back too small, as with the engine."""
    out = bytearray()
    for at in range(0, len(values), BLOCK):
        block = values[at : at + BLOCK]
        d = f32(max([0.0] + [abs(v) for v in block]) / 127)
        inverse = divide(1, d) if d else 0.0
        codes = [nearest(t, -128, 127) for t in array("f", [v * inverse for v in block])]
        codes += [0] * (BLOCK - len(codes))
        out += struct.pack("<B32b", e4m3_encode_byte(f32(d * 416)), *codes)
    return bytes(out)


# ---- MXFP4: E2M1 nibbles, element 2 b low in byte b and element 2 b + 1 high; a power of two for each 32 of them

# The float whose bits are s << 23: 0 for 0, and infinite for 255, where the Microscaling standard has NaN.
_MXFP4_SCALES = (0.0, *[math.ldexp(1, s - 127) for s in range(1, 255)], math.inf)
_MXFP4_THRESHOLDS = (0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0)


def mxfp4_decode(packed: bytes | bytearray | memoryview, scales: bytes | bytearray | memoryview) -> array[float]:
    """The values of a tensor whose rows are whole groups of 32. Exact; with scale byte 255 infinite, a zero code NaN."""
    if len(packed) != 16 * len(scales):
        raise UsageError("usage.scales.shape", "%d bytes of codes for %d scales" % (len(packed), len(scales)))
    out = array("f")
    for g, byte in enumerate(bytes(scales)):
        table = [v * _MXFP4_SCALES[byte] for v in E2M1]
        out.extend([table[c] for b in packed[16 * g : 16 * g + 16] for c in (b & 15, b >> 4)])
    return out


def mxfp4_encode(values: Sequence[float]) -> tuple[bytes, bytes]:
    """(packed, scales) of single-precision values, a multiple of 32. A value on a threshold takes the larger code."""
    check_whole(len(values), BLOCK, "values")
    codes, scales = [], bytearray()
    for at in range(0, len(values), BLOCK):
        block = values[at : at + BLOCK]
        s = _mxfp4_scale(max([0.0] + [abs(v) for v in block]))
        factor = math.ldexp(1, 127 - s)
        for v in array("f", [v * factor for v in block]):
            codes.append(sum([abs(v) >= t for t in _MXFP4_THRESHOLDS]) | (8 if v < 0 else 0))
        scales.append(s)
    return bytes([low | high << 4 for low, high in zip(codes[::2], codes[1::2])]), bytes(scales)


def _mxfp4_scale(amax: float) -> int:
    """127 + floor(log2(amax / 6)) in 0 … 254, quotient and logarithm rounded to single precision: a hair below a power
    of two counts as the power."""
    if amax == 0:
        return 127
    sixth = f32(amax / 6)
    if sixth == 0:
        return 0
    if sixth == math.inf:
        return 254
    return max(0, min(254, math.floor(f32(math.log2(sixth))) + 127))

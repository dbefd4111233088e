"""IEEE floats: rounding to single and half precision, and whole arrays of f32, f16 and bf16 from and to bytes.

Bytes are little-endian, as files have them; array('f') is in host order. Spec: VQF sections 7 and 9, UQFF section 6.1.
Left out: the 8-bit and 4-bit floats (minifloat.py).
"""

from __future__ import annotations

import struct
import sys
from array import array

from vqfref.errors import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Iterable


def check_whole(length: int, unit: int, what: str = "bytes") -> None:
    """Raises UsageError if so many bytes, or values, end inside a unit. None at all are zero units."""
    if length % unit:
        raise UsageError("usage.blocks.truncated", "%d %s, expected a multiple of %d" % (length, what, unit))


# ---- single numbers


def f32(x: float) -> float:
    """x rounded to single precision, nearest even; beyond its range infinite.

    The result of one +, -, * or / of two single-precision numbers in doubles, rounded so, is what single-precision
    arithmetic gives: double has more than twice the digits.
    """
    return array("f", (x,))[0]


def f16_bits(x: float) -> int:
    """The half nearest to x, ties to even, subnormals kept, infinite on overflow; as its 16 bits."""
    try:
        return int.from_bytes(struct.pack("<e", x), "little")
    except OverflowError:
        return 0x7C00 if x > 0 else 0xFC00


def f16_bits_truncated(x: float) -> int:
    """The engine's older conversion (section 9): the mantissa cut off, what is below the smallest normal half a signed
    zero, overflow and NaN infinite. x is a single-precision number."""
    bits: int = struct.unpack("<I", struct.pack("<f", x))[0]
    sign, exponent, mantissa = bits >> 16 & 0x8000, (bits >> 23 & 0xFF) - 112, bits >> 13 & 0x3FF
    if exponent <= 0:
        return sign
    if exponent >= 31:
        return sign | 0x7C00
    return sign | exponent << 10 | mantissa


def f16_value(bits: int) -> float:
    """The value of a half given by its bits."""
    value: float = struct.unpack("<e", bits.to_bytes(2, "little"))[0]
    return value


# ---- arrays from bytes


def _array(code: str, data: bytes | bytearray | memoryview) -> array[float]:
    values: array[float] = array(code)
    check_whole(len(data), values.itemsize)
    values.frombytes(data)
    if sys.byteorder == "big":
        values.byteswap()
    return values


def _bytes(values: array[float]) -> bytes:
    if sys.byteorder == "big":
        values = values[:]
        values.byteswap()
    return values.tobytes()


def f32_decode(data: bytes | bytearray | memoryview) -> array[float]:
    """Single-precision values, four bytes each."""
    return _array("f", data)


def f16_decode(data: bytes | bytearray | memoryview) -> array[float]:
    """Half-precision values, two bytes each; every half is exact in single precision."""
    check_whole(len(data), 2)
    return array("f", struct.unpack("<%de" % (len(data) // 2), data))


def bf16_decode(data: bytes | bytearray | memoryview) -> array[float]:
    """bf16 values, two bytes each: the upper half of a single-precision number."""
    check_whole(len(data), 2)
    halves = struct.unpack("<%dH" % (len(data) // 2), data)
    return _array("f", struct.pack("<%dI" % len(halves), *[h << 16 for h in halves]))


# ---- arrays to bytes


def f32_encode(values: Iterable[float]) -> bytes:
    """Single precision, four bytes a value."""
    return _bytes(values if isinstance(values, array) and values.typecode == "f" else array("f", values))


def f16_encode(values: Iterable[float]) -> bytes:
    """Half precision, nearest even, infinite on overflow."""
    return b"".join([f16_bits(x).to_bytes(2, "little") for x in values])


def f16_encode_truncated(values: Iterable[float]) -> bytes:
    """Half precision by the engine's truncating conversion."""
    return b"".join([f16_bits_truncated(x).to_bytes(2, "little") for x in values])


def bf16_encode(values: Iterable[float]) -> bytes:
    """bf16, nearest even; a NaN stays a NaN."""
    words = struct.unpack("<%dI" % (len(data := f32_encode(values)) // 4), data)
    out = []
    for w in words:
        if w & 0x7FFFFFFF > 0x7F800000:
            out.append(w >> 16 | 0x40)
        else:
            out.append(w + 0x7FFF + (w >> 16 & 1) >> 16)
    return struct.pack("<%dH" % len(out), *out)


def round_f32(values: Iterable[float]) -> array[float]:
    """Doubles rounded to single precision one by one; infinite on overflow."""
    return array("f", values)


def all_finite(values: array[float]) -> bool:
    """Is there neither a NaN nor an infinity? Their sum tells: finite single-precision numbers can't overflow a double."""
    total = sum(values)
    return total - total == 0


def count_nonfinite(values: array[float]) -> tuple[int, int]:
    """How many values are NaN, and how many infinite."""
    nans = sum([v != v for v in values])
    return nans, sum([v - v != 0 for v in values]) - nans

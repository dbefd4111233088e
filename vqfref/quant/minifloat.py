"""Floats of 8 bits and fewer: E4M3, E5M2, E8M0 and E2M1 (OCP 8-bit Floating Point and Microscaling Formats 1.0).

E4M3 is the "fn" variant: no infinities, one NaN for each sign. Spec: UQFF sections 6.4, 6.7.
"""

from __future__ import annotations

import math
from array import array


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


def e4m3_decode(data: bytes | bytearray | memoryview) -> array[float]:
    """E4M3 values, one byte each."""
    return array("f", [E4M3[b] for b in bytes(data)])


def e5m2_decode(data: bytes | bytearray | memoryview) -> array[float]:
    """E5M2 values, one byte each."""
    return array("f", [E5M2[b] for b in bytes(data)])


def e8m0_decode(data: bytes | bytearray | memoryview) -> array[float]:
    """E8M0 values, one byte each."""
    return array("f", [E8M0[b] for b in bytes(data)])

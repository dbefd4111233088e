"""IEEE floats between the bytes of a file, always little-endian, and array('f') in host order. Spec: VQF sections 7, 9."""

from __future__ import annotations

import struct
import sys
from array import array


def f32_decode(data: bytes | memoryview) -> array[float]:
    """Single-precision values, four bytes each."""
    values = array("f")
    values.frombytes(data)
    if sys.byteorder == "big":
        values.byteswap()
    return values


def f16_decode(data: bytes | memoryview) -> array[float]:
    """Half-precision values, two bytes each; every half is exact in single precision."""
    return array("f", struct.unpack("<%de" % (len(data) // 2), data))

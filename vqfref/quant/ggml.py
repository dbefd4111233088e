"""The block types of GGML as UQFF stores them: the table of type codes, the 32-element types, and one face for them all.

Decoder and encoder of a type stand side by side; those of 256 elements are in kquants.py, the decoders of q4_0 and q8_0
in blocks.py. blocks.py has encoders of these two as well: they are VQF's, whose scales have a floor and whose codes
are rounded otherwise. A decoder takes whole blocks, an encoder whole blocks' worth of values in single precision; a row
is a whole number of blocks, so nobody here asks for rows. Spec: UQFF sections 6.1 and 16.
"""

from __future__ import annotations

import struct
from array import array
from collections import namedtuple

from vqfref.errors import UsageError
from vqfref.quant import kquants
from vqfref.quant.arith import divide, nearest, pack_fields, unpack_fields
from vqfref.quant.blocks import q4_0_decode, q8_0_decode
from vqfref.quant.floats import (
    bf16_decode,
    bf16_encode,
    check_whole,
    f16_bits,
    f16_decode,
    f16_encode,
    f16_value,
    f32,
    f32_decode,
    f32_encode,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Sequence

Type = namedtuple("Type", "code name block_elements block_bytes")

# code: type (section 6.1). The engine writes q8_1 and q8k, but does not load them.
TYPES = {
    t.code: t
    for t in (
        Type(0, "f32", 1, 4),
        Type(1, "f16", 1, 2),
        Type(2, "q4_0", 32, 18),
        Type(3, "q4_1", 32, 20),
        Type(6, "q5_0", 32, 22),
        Type(7, "q5_1", 32, 24),
        Type(8, "q8_0", 32, 34),
        Type(9, "q8_1", 32, 36),
        Type(10, "q2k", 256, 84),
        Type(11, "q3k", 256, 110),
        Type(12, "q4k", 256, 144),
        Type(13, "q5k", 256, 176),
        Type(14, "q6k", 256, 210),
        Type(15, "q8k", 256, 292),
        Type(30, "bf16", 1, 2),
    )
}

BLOCK = 32
_NAMED = {t.name: t for t in TYPES.values()}


def decode(name: str, data: bytes | bytearray | memoryview) -> array[float]:
    """The values of whole blocks of the type called `name`, a flat array in the order of the file."""
    check_whole(len(data), _named(name).block_bytes)
    return _DECODERS[name](data)


def encode(name: str, values: Sequence[float]) -> bytes:
    """Blocks of the type called `name` from single-precision values; a multiple of the type's block_elements."""
    check_whole(len(values), _named(name).block_elements, "values")
    return _ENCODERS[name](values)


def _named(name: str) -> Type:
    if name not in _NAMED:
        raise UsageError("usage.type.unsupported", "no type %r; there are %s" % (name, " ".join(_NAMED)))
    return _NAMED[name]


# ---- what the encoders share: every operation is rounded to single precision, codes come from the unrounded d


def _inverse(d: float) -> float:
    return divide(1, d) if d else 0.0


def _truncated(x: Sequence[float], factor: float, bias: float, high: int) -> list[int]:
    """Codes of x * factor + bias cut to an integer in 0 … high; 0 for a NaN."""
    scaled = array("f", [v * factor for v in x])
    return [0 if t != t else int(max(0.0, min(float(high), t))) for t in array("f", [t + bias for t in scaled])]


def _symmetric(x: Sequence[float], n: int) -> tuple[float, list[int]]:
    """(d, codes 0 … 2 n - 1) of q4_0 and q5_0: d is the first element of largest magnitude over -n. A NaN does not
    count; a zero does, with its sign."""
    peak = max([v for v in x if v == v], key=abs, default=0.0)
    d = f32(peak / -n)
    return d, _truncated(x, _inverse(d), n + 0.5, 2 * n - 1)


def _affine(x: Sequence[float], n: int) -> tuple[float, float, list[int]]:
    """(d, m, codes 0 … n) of q4_1 and q5_1. Of two zeros of either sign `min` takes the first, as the engine does."""
    low, high = min(x), max(x)
    d = f32(f32(high - low) / n)
    return d, low, _truncated(array("f", [v - low for v in x]), _inverse(d), 0.5, n)


def _nearest_codes(x: Sequence[float]) -> tuple[float, list[int]]:
    """(d, codes) of q8_0 and q8_1: d is the largest magnitude over 127."""
    d = f32(max([0.0] + [abs(v) for v in x]) / 127)
    inverse = _inverse(d)
    return d, [nearest(t, -128, 127) for t in array("f", [v * inverse for v in x])]


def _bits_to_int(bits: list[int]) -> int:
    return sum([bit << k for k, bit in enumerate(bits)])


# ---- q4_0: d (f16), 16 bytes of nibbles, element j low in byte j and element 16 + j high; (code - 8) * d


def q4_0_encode(values: Sequence[float]) -> bytes:
    """q4_0 blocks of single-precision values."""
    out = bytearray()
    for at in range(0, len(values), BLOCK):
        d, codes = _symmetric(values[at : at + BLOCK], 8)
        out += struct.pack("<H16s", f16_bits(d), pack_fields(codes, 4, 16))
    return bytes(out)


# ---- q4_1: d, m (f16), nibbles as in q4_0; code * d + m


def q4_1_decode(data: bytes | bytearray | memoryview) -> array[float]:
    """The values of whole q4_1 blocks. code * d is exact, the sum is rounded once."""
    out = array("f")
    for d, m, q in struct.iter_unpack("<2e16s", data):
        out.extend([d * c + m for c in unpack_fields(q, 4, 16)])
    return out


def q4_1_encode(values: Sequence[float]) -> bytes:
    """q4_1 blocks of single-precision values."""
    out = bytearray()
    for at in range(0, len(values), BLOCK):
        d, m, codes = _affine(values[at : at + BLOCK], 15)
        out += struct.pack("<2H16s", f16_bits(d), f16_bits(m), pack_fields(codes, 4, 16))
    return bytes(out)


# ---- q5_0: d (f16), u32 whose bit e is the fifth bit of element e, nibbles as in q4_0; (code - 16) * d


def q5_0_decode(data: bytes | bytearray | memoryview) -> array[float]:
    """The values of whole q5_0 blocks. Exact in single precision."""
    out = array("f")
    for d, h, q in struct.iter_unpack("<eI16s", data):
        out.extend([d * ((c | (h >> e & 1) << 4) - 16) for e, c in enumerate(unpack_fields(q, 4, 16))])
    return out


def q5_0_encode(values: Sequence[float]) -> bytes:
    """q5_0 blocks of single-precision values."""
    out = bytearray()
    for at in range(0, len(values), BLOCK):
        d, codes = _symmetric(values[at : at + BLOCK], 16)
        h = _bits_to_int([c >> 4 for c in codes])
        out += struct.pack("<HI16s", f16_bits(d), h, pack_fields([c & 15 for c in codes], 4, 16))
    return bytes(out)


# ---- q5_1: d, m (f16), u32 of fifth bits, nibbles; code * d + m


def q5_1_decode(data: bytes | bytearray | memoryview) -> array[float]:
    """The values of whole q5_1 blocks. code * d is exact, the sum is rounded once."""
    out = array("f")
    for d, m, h, q in struct.iter_unpack("<2eI16s", data):
        out.extend([d * (c | (h >> e & 1) << 4) + m for e, c in enumerate(unpack_fields(q, 4, 16))])
    return out


def q5_1_encode(values: Sequence[float]) -> bytes:
    """q5_1 blocks of single-precision values."""
    out = bytearray()
    for at in range(0, len(values), BLOCK):
        d, m, codes = _affine(values[at : at + BLOCK], 31)
        h = _bits_to_int([c >> 4 for c in codes])
        out += struct.pack("<2HI16s", f16_bits(d), f16_bits(m), h, pack_fields([c & 15 for c in codes], 4, 16))
    return bytes(out)


# ---- q8_0: d (f16), 32 x int8; code * d


def q8_0_encode(values: Sequence[float]) -> bytes:
    """q8_0 blocks of single-precision values."""
    out = bytearray()
    for at in range(0, len(values), BLOCK):
        d, codes = _nearest_codes(values[at : at + BLOCK])
        out += struct.pack("<H32b", f16_bits(d), *codes)
    return bytes(out)


# ---- q8_1: d (f16), s (f16) = d times the sum of the codes, 32 x int8; code * d


def q8_1_decode(data: bytes | bytearray | memoryview) -> array[float]:
    """The values of whole q8_1 blocks; s is not needed. Exact in single precision."""
    out = array("f")
    for d, *codes in struct.iter_unpack("<e2x32b", data):
        out.extend([d * c for c in codes])
    return out


def q8_1_encode(values: Sequence[float]) -> bytes:
    """q8_1 blocks of single-precision values. s is the product of two halves, rounded to a half."""
    out = bytearray()
    for at in range(0, len(values), BLOCK):
        d, codes = _nearest_codes(values[at : at + BLOCK])
        half_d, half_sum = f16_bits(d), f16_bits(sum(codes))
        s = f16_bits(f16_value(half_d) * f16_value(half_sum))
        out += struct.pack("<2H32b", half_d, s, *codes)
    return bytes(out)


# ---- by name

_DECODERS = {
    "f32": f32_decode,
    "f16": f16_decode,
    "bf16": bf16_decode,
    "q4_0": q4_0_decode,
    "q4_1": q4_1_decode,
    "q5_0": q5_0_decode,
    "q5_1": q5_1_decode,
    "q8_0": q8_0_decode,
    "q8_1": q8_1_decode,
    "q2k": kquants.q2k_decode,
    "q3k": kquants.q3k_decode,
    "q4k": kquants.q4k_decode,
    "q5k": kquants.q5k_decode,
    "q6k": kquants.q6k_decode,
    "q8k": kquants.q8k_decode,
}
_ENCODERS = {
    "f32": f32_encode,
    "f16": f16_encode,
    "bf16": bf16_encode,
    "q4_0": q4_0_encode,
    "q4_1": q4_1_encode,
    "q5_0": q5_0_encode,
    "q5_1": q5_1_encode,
    "q8_0": q8_0_encode,
    "q8_1": q8_1_encode,
    "q2k": kquants.q2k_encode,
    "q3k": kquants.q3k_encode,
    "q4k": kquants.q4k_encode,
    "q5k": kquants.q5k_encode,
    "q6k": kquants.q6k_encode,
    "q8k": kquants.q8k_encode,
}

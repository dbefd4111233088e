"""Whole arrays of f16 and bf16 from and to bytes, without a Python float for each.

bf16 to f32 moves two bytes of each value to their place; f16 to f32 also computes the two lower ones, in lanes of 8 bits
of one integer. The other way round, values are lanes of 32 bits of one integer, and rounding to the nearest even is the
sum of the value, half a unit less one, and the last bit that stays: as in the plain versions, for all lanes at once. Lanes
never carry into their neighbours, since what could (NaN, or what lies outside the normal halves) is taken out first. What
does not fit the rule is done by the plain version, value by value.

Encoders work so on array('f') only: other sequences may hold doubles, which single precision would round twice.
"""

from __future__ import annotations

import binascii
import functools
import io
import struct
import sys
from array import array

from vqfref.quant import floats as plain
from vqfref.quant.floats import f16_bits, f32_encode

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, Iterable, Iterator

    Encode = Callable[[Iterable[float]], bytes]

FEW = 32  # values: with fewer the plain ones are quicker
AT_ONCE = 16384  # values
# Where byte 0 (the lowest) … 3 of a single-precision number lies in an array('f')
BYTE = (0, 1, 2, 3) if sys.byteorder == "little" else (3, 2, 1, 0)


@functools.lru_cache(maxsize=64)
def lanes(n: int, bits: int, value: int) -> int:
    """`value` in each of n lanes of 8, 16, 32 or 64 bits."""
    return int.from_bytes(value.to_bytes(bits // 8, "little") * n, "little")


def where(flags: bytes | bytearray) -> Iterator[int]:
    """The indices of the bytes 1."""
    i = flags.find(1)
    while i >= 0:
        yield i
        i = flags.find(1, i + 1)


def rounded(values: Iterable[float]) -> array[float]:
    """array('f', values) of doubles, five times as quick: by native "f" of struct, which rounds as C does and makes what is
    too large infinite ("<f" would raise)."""
    doubles, out = list(values), array("f")
    out.frombytes(struct.pack("%df" % len(doubles), *doubles))
    return out


# ---- arrays from bytes


def bf16_decode(data: bytes | bytearray | memoryview) -> array[float]:
    """bf16 values, two bytes each."""
    if len(data) < 2 * FEW or len(data) % 2:
        return plain.bf16_decode(data)
    out, view, words = array("f", (0,)) * (len(data) // 2), memoryview(data), bytearray()
    room = memoryview(out).cast("B")  # all of it at once: an array that grows is copied again and again
    for at in range(0, len(data), 2 * AT_ONCE):
        halves = bytearray(view[at : at + 2 * AT_ONCE])
        if len(words) != 2 * len(halves):
            words = bytearray(2 * len(halves))
        words[BYTE[2] :: 4] = halves[::2]
        words[BYTE[3] :: 4] = halves[1::2]
        room[2 * at : 2 * at + len(words)] = words
    return out


def _top_byte(high: int) -> int:
    """The highest byte of the single-precision number for the higher byte of a half, seeeeemm: exponent e + 112. Zeros
    stay zeros; subnormals, infinities and NaN are redone."""
    sign, e = high & 0x80, high >> 2 & 31
    return sign | (e + 112 >> 1 if e else 0)


_TOP = bytes(map(_top_byte, range(256)))
_SHL_5 = bytes(low << 5 & 255 for low in range(256))
_IS_ODD = bytes((high >> 2 & 31) in (0, 31) for high in range(256))
_IS_SMALL = bytes(255 * (high & 0x7F == 0) for high in range(256))
_IS_CERTAIN = bytes((high >> 2 & 31) in (0, 31) and high & 0x7F != 0 for high in range(256))
_IS_NOT_ZERO = bytes(v != 0 for v in range(256))
_HALF, _SINGLE = struct.Struct("<e"), struct.Struct("=f")


def f16_decode(data: bytes | bytearray | memoryview) -> array[float]:
    """Half-precision values, two bytes each."""
    if len(data) < 8 * FEW or len(data) % 2:
        return plain.f16_decode(data)
    out, view, words = array("f", (0,)) * (len(data) // 2), memoryview(data), bytearray()
    room = memoryview(out).cast("B")  # all of it at once: an array that grows is copied again and again
    for at in range(0, len(data), 2 * AT_ONCE):
        halves = bytearray(view[at : at + 2 * AT_ONCE])
        n = len(halves) // 2
        if len(words) != 4 * n:
            words = bytearray(4 * n)  # byte 0 stays zero: no half has so many digits
        low, high = halves[::2], halves[1::2]
        low_lanes, high_lanes = int.from_bytes(low, "little"), int.from_bytes(high, "little")
        middle = (high_lanes & lanes(n, 8, 0x07)) << 5 | low_lanes >> 3 & lanes(n, 8, 0x1F)
        words[BYTE[3] :: 4] = high.translate(_TOP)
        words[BYTE[2] :: 4] = middle.to_bytes(n, "little")
        words[BYTE[1] :: 4] = low.translate(_SHL_5)
        redo: bytes | bytearray = high.translate(_IS_ODD)
        if redo.count(1) > n // 16:  # many zeros, perhaps, which are right already
            small = int.from_bytes(high.translate(_IS_SMALL), "little") & low_lanes
            not_zero = int.from_bytes(small.to_bytes(n, "little").translate(_IS_NOT_ZERO), "little")
            redo = (not_zero | int.from_bytes(high.translate(_IS_CERTAIN), "little")).to_bytes(n, "little")
            if redo.count(1) > n // 8:
                room[2 * at : 2 * at + 4 * n] = plain.f16_decode(halves).tobytes()
                continue
        for i in where(redo):
            if high[i] & 0x7C:
                words[4 * i : 4 * i + 4] = plain.f16_decode(halves[2 * i : 2 * i + 2]).tobytes()
            else:
                _SINGLE.pack_into(words, 4 * i, *_HALF.unpack_from(halves, 2 * i))
        room[2 * at : 2 * at + 4 * n] = words
    return out


# ---- arrays to bytes


def _piecewise(
    values: Iterable[float], plain_encode: Encode, encode: Callable[[array[float], int, int], bytes]
) -> bytes:
    """`encode` takes a piece of the values, their number, and the integer of their 32-bit words."""
    if not isinstance(values, array) or values.typecode != "f" or len(values) < FEW:
        return plain_encode(values)
    out = io.BytesIO()
    for at in range(0, len(values), AT_ONCE):
        piece = values[at : at + AT_ONCE]
        out.write(encode(piece, len(piece), int.from_bytes(f32_encode(piece), "little")))
    return out.getvalue()


def _halves(words: int, n: int, low: int = 0) -> bytearray:
    """Bytes low and low + 1 of n words."""
    data, out = words.to_bytes(4 * n, "little"), bytearray(2 * n)
    out[::2] = data[low::4]
    out[1::2] = data[low + 1 :: 4]
    return out


def at_least(magnitude: int, n: int, bound: int) -> int:
    """Bit 31 of each word of 31 bits that is at least `bound`."""
    return magnitude + lanes(n, 32, 0x80000000 - bound) & lanes(n, 32, 0x80000000)


def bf16_encode(values: Iterable[float]) -> bytes:
    """bf16, nearest even; a NaN stays a NaN."""
    return _piecewise(values, plain.bf16_encode, _bf16)


def _bf16(piece: array[float], n: int, x: int) -> bytes:
    quiet = 0
    nan = 0 if all_finite(piece) else at_least(x & lanes(n, 32, 0x7FFFFFFF), n, 0x7F800001)
    if nan:  # these lanes keep what they have, with the quiet bit set
        mask = (nan >> 31) * 0xFFFFFFFF
        quiet = (x | lanes(n, 32, 0x00400000)) & mask
        x ^= x & mask
    return bytes(_halves(x + lanes(n, 32, 0x7FFF) + (x >> 16 & lanes(n, 32, 1)) | quiet, n, 2))


def f16_encode(values: Iterable[float]) -> bytes:
    """Half precision, nearest even, infinite on overflow."""
    return _piecewise(values, plain.f16_encode, _f16)


def _f16(piece: array[float], n: int, x: int) -> bytes:
    magnitude = x & lanes(n, 32, 0x7FFFFFFF)
    normal = at_least(magnitude, n, 0x38800000)  # 2^-14
    # The exponent less 112; there is bit 31 to borrow from
    r = (magnitude | lanes(n, 32, 0x80000000)) - lanes(n, 32, 0x38000000)
    r = r + lanes(n, 32, 0xFFF) + (r >> 13 & lanes(n, 32, 1)) >> 13 & (normal >> 16) - (normal >> 31)
    out = _halves(r | x >> 16 & lanes(n, 32, 0x8000), n)
    odd = at_least(magnitude, n, 0x477FF000) | at_least(magnitude, n, 1) ^ normal  # 65520 and more; subnormal
    if odd:
        redo = (odd >> 31).to_bytes(4 * n, "little")[::4]
        if redo.count(1) > n // 8:
            return plain.f16_encode(piece)
        for i in where(redo):
            out[2 * i : 2 * i + 2] = f16_bits(piece[i]).to_bytes(2, "little")
    return bytes(out)


def f16_encode_truncated(values: Iterable[float]) -> bytes:
    """Half precision by the engine's truncating conversion."""
    return _piecewise(values, plain.f16_encode_truncated, _f16_truncated)


def _f16_truncated(_: array[float], n: int, x: int) -> bytes:
    magnitude = x & lanes(n, 32, 0x7FFFFFFF)
    normal = at_least(magnitude, n, 0x38800000)
    too_large = at_least(magnitude, n, 0x47800000)  # 2^16
    r = (magnitude | lanes(n, 32, 0x80000000)) - lanes(n, 32, 0x38000000) >> 13 & (normal >> 16) - (normal >> 31)
    if too_large:
        r ^= (r ^ lanes(n, 32, 0x7C00)) & (too_large >> 16) - (too_large >> 31)
    return bytes(_halves(r | x >> 16 & lanes(n, 32, 0x8000), n))


# ---- looking


def all_finite(values: array[float]) -> bool:
    """Is there neither a NaN nor an infinity? Both have 7f or ff in their highest byte, and hardly anything else has."""
    if not isinstance(values, array) or values.typecode != "f" or len(values) < 2 * FEW:
        return plain.all_finite(values)
    for at in range(0, len(values), AT_ONCE):
        piece = values[at : at + AT_ONCE]
        top = piece.tobytes()[BYTE[3] :: 4]
        if (0x7F in top or 0xFF in top) and not plain.all_finite(piece):
            return False
    return True


# ---- known answers: normal values of both signs, zeros, subnormals, infinities; a NaN only where its bits are defined

_SOME = [v * 2654435761 * 40503 >> 9 for v in range(640)]
_HALVES = [v & 0xFFFF for v in _SOME if v & 0x7FFF <= 0x7C00] + [0x0000, 0x8000, 0x8001, 0x7C00, 0xFC00]
_WORDS = [(v & 0x8FFFFFFF) + 0x38000000 for v in _SOME] + [0, 1, 0x80000000, 0x7F800000, 0x477FF000]


def _known_decode(decode: Callable[[bytes], array[float]]) -> int:
    return binascii.crc32(f32_encode(decode(struct.pack("<%dH" % len(_HALVES), *_HALVES))))


def _known_encode(encode: Encode, *more: int) -> int:
    return binascii.crc32(encode(plain.f32_decode(struct.pack("<%dI" % len(_WORDS + [*more]), *_WORDS, *more))))


CHECKS: dict[str, tuple[Callable[[], object], object]] = {
    "bf16_decode": (lambda: _known_decode(bf16_decode), 0x80B85101),
    "f16_decode": (lambda: _known_decode(f16_decode), 0x54C94BEF),
    "bf16_encode": (lambda: _known_encode(bf16_encode, 0x7F800001, 0xFFFFFFFF), 0x5E30A44B),
    "f16_encode": (lambda: _known_encode(f16_encode), 0x0E7EC1A1),
    "f16_encode_truncated": (lambda: _known_encode(f16_encode_truncated), 0x872DA6F2),
    "all_finite": (lambda: [all_finite(array("f", [1.0] * 99 + [x])) for x in (1.0, 3e38, 1e39)], [True, True, False]),
}

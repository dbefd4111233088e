"""The K-quants: blocks of 256 elements whose groups of 16 or 32 have small quantized scales of their own.

Decoder and encoder of a type stand side by side. A decoder takes whole blocks, an encoder a multiple of 256 values in
single precision; a row is a whole number of blocks, so nobody here asks for rows. The encoders give the bytes of
mistral.rs on x86 without an importance matrix. Spec: UQFF section 6.1 for the layouts, 16.1 for the encoders: names in
capitals there are functions here. Infinite and NaN values go through an encoder without an exception; what comes out
has no meaning, and refusing them is the writer's business.

In the decoders every product is exact in single precision (11 bits of a half, and no more than 13 of scale and code):
storing in an array('f') is the only rounding.
"""

from __future__ import annotations

import struct
from array import array

from vqfref.quant.arith import divide, nearest, pack_fields, total, unpack_fields
from vqfref.quant.floats import f16_bits, f16_value, f32

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, Sequence

    Values = Sequence[float]
    Term = Callable[[float, int], float]

BLOCK = 256


# ---- what the encoders share


def _split(values: Values, size: int) -> list[Values]:
    return [values[at : at + size] for at in range(0, len(values), size)]


def _peak(x: Values) -> float:
    """The first element of largest magnitude, with its sign; a NaN does not count; +0 if there are only zeros."""
    peak = 0.0
    for v in x:
        if abs(v) > abs(peak):
            peak = v
    return peak


def _top(v: Values) -> float:
    """The largest of 0 and all v; a NaN does not count."""
    return max([0.0, *v])


def _times(x: Values, factor: float, low: int, high: int) -> list[int]:
    """Codes of x * factor."""
    return [nearest(t, low, high) for t in array("f", [v * factor for v in x])]


def _over(x: Values, step: float, low: int, high: int) -> list[int]:
    """Codes of x / step, by true division; step is not zero."""
    return [nearest(t, low, high) for t in array("f", [v / step for v in x])]


def _minscale(x: Values, n: int) -> tuple[float, float]:
    """MINSCALE: (scale, min) such that scale * l - min with l in 0 … n comes near x; of the last round, and no l."""
    lo, hi = min(x), max(x)
    if lo == hi:
        return 0.0, 0.0
    lo = min(lo, 0.0)
    inv = divide(n, f32(hi - lo))
    scale, last = 0.0, [0] * len(x)
    for _ in range(5):
        y = array("f", [v - lo for v in x])
        codes = _times(y, inv, 0, n)
        scale = divide(total(array("f", [v * c for v, c in zip(y, codes)])), sum([c * c for c in codes]))
        lo = f32(total(array("f", [v - p for v, p in zip(x, array("f", [scale * c for c in codes]))])) / len(x))
        if lo > 0:
            lo = 0.0
        inv = divide(1, scale)
        if codes == last:
            break
        last = codes
    return scale, -lo


def _sums(w: Values, wx: Values, codes: list[int], term: Term) -> tuple[float, float]:
    """(A, B): how well the codes fit, A / B being the best scale for them; weights w = x * x, wx = w * x."""
    return total(array("f", [v * c for v, c in zip(wx, codes)])), total([term(v, c) for v, c in zip(w, codes)])


def _refine(x: Values, w: Values, wx: Values, codes: list[int], a: float, b: float, n: int, term: Term) -> float:
    """REFINE: changes single codes in place where that fits better, and returns the scale A / B."""
    for _ in range(5):
        changed = False
        for i, c in enumerate(codes):
            a_i = f32(a - f32(wx[i] * c))
            if not a_i > 0:
                continue
            b_i = f32(b - term(w[i], c))
            k = nearest(f32(f32(x[i] * b_i) / a_i), -n, n - 1)
            if k == c:
                continue
            a_i = f32(a_i + f32(wx[i] * k))
            b_i = f32(b_i + term(w[i], k))
            if b_i > 0 and f32(f32(a_i * a_i) * b) > f32(f32(a * a) * b_i):
                codes[i], a, b, changed = k, a_i, b_i, True
        if not changed:
            break
    return divide(a, b)


# ---- q2k: 16 bytes of scale | min << 4, 64 bytes of 2-bit codes, d, dmin (f16); 16 groups of 16


def q2k_decode(data: bytes | bytearray | memoryview) -> array[float]:
    """The values d * scale * code - dmin * min of whole q2k blocks."""
    out = array("f")
    for scales, q, d, dmin in struct.iter_unpack("<16s64s2e", data):
        codes = unpack_fields(q, 2, 32)
        for g, byte in enumerate(scales):
            scale, offset = d * (byte & 15), dmin * (byte >> 4)
            out.extend([scale * c - offset for c in codes[16 * g : 16 * g + 16]])
    return out


def q2k_encode(values: Values) -> bytes:
    """q2k blocks of single-precision values."""
    out = bytearray()
    for block in _split(values, BLOCK):
        groups = _split(block, 16)
        fits = [_minscale(x, 3) for x in groups]
        top_s, top_m = _top([s for s, _ in fits]), _top([m for _, m in fits])
        inv_s, inv_m = (divide(15, top) if top else 0.0 for top in (top_s, top_m))
        d, dmin = f16_bits(f32(top_s / 15)), f16_bits(f32(top_m / 15))
        scales = bytes([(nearest(f32(inv_s * s)) | nearest(f32(inv_m * m)) << 4) & 255 for s, m in fits])
        codes = []
        for x, byte in zip(groups, scales):
            codes += _offset_codes(x, f16_value(d) * (byte & 15), f16_value(dmin) * (byte >> 4), 3)
        out += struct.pack("<16s64s2H", scales, pack_fields(codes, 2, 32), d, dmin)
    return bytes(out)


def _offset_codes(x: Values, step: float, offset: float, n: int) -> list[int]:
    """Codes 0 … n of (x + offset) / step, all 0 where the step is."""
    return _over(array("f", [v + offset for v in x]), step, 0, n) if step else [0] * len(x)


# ---- q3k: 32 bytes of high bits, 64 bytes of low 2-bit codes, 12 bytes of 6-bit scales, d (f16); 16 groups of 16


def q3k_decode(data: bytes | bytearray | memoryview) -> array[float]:
    """The values d * (scale - 32) * (code - 4) of whole q3k blocks."""
    out = array("f")
    for high, q, s, d in struct.iter_unpack("<32s64s12se", data):
        codes = [low + 4 * bit - 4 for low, bit in zip(unpack_fields(q, 2, 32), unpack_fields(high, 1, 32))]
        scales = [low | top << 4 for low, top in zip(unpack_fields(s[:8], 4, 8), unpack_fields(s[8:], 2, 4))]
        for g, scale in enumerate(scales):
            step = d * (scale - 32)
            out.extend([step * c for c in codes[16 * g : 16 * g + 16]])
    return out


def q3k_encode(values: Values) -> bytes:
    """q3k blocks of single-precision values."""
    out = bytearray()
    for block in _split(values, BLOCK):
        groups = _split(block, 16)
        fits = [_q3k_scale(x) for x in groups]
        peak = _peak(fits)
        inv = divide(-32, peak)
        d = f16_bits(divide(1, inv)) if peak else 0
        scales = [nearest(f32(inv * s), -32, 31) + 32 if peak else 0 for s in fits]
        codes = []
        for x, scale in zip(groups, scales):
            step = f16_value(d) * (scale - 32)
            codes += [c + 4 for c in _over(x, step, -4, 3)] if step else [0] * 16
        high, low = pack_fields([c >> 2 for c in codes], 1, 32), pack_fields([c & 3 for c in codes], 2, 32)
        s = pack_fields([k & 15 for k in scales], 4, 8) + pack_fields([k >> 4 for k in scales], 2, 4)
        out += struct.pack("<32s64s12sH", high, low, s, d)
    return bytes(out)


def _q3k_scale(x: Values) -> float:
    """The scale of one group, negative where the peak is positive and small codes serve it best."""
    peak = _peak(x)
    if not peak:
        return 0.0
    w = array("f", [v * v for v in x])
    wx = array("f", [a * v for a, v in zip(w, x)])
    codes = _times(x, divide(-4, peak), -4, 3)
    return _refine(x, w, wx, codes, *_sums(w, wx, codes, _q3k_term), 4, _q3k_term)


def _q3k_term(w: float, code: int) -> float:
    return f32(w * (code * code))


# ---- q4k: d, dmin (f16), 12 bytes of 6-bit scales and mins, 128 bytes of nibbles; 8 groups of 32


def _unpack_scales(k: bytes) -> tuple[list[int], list[int]]:
    """The 8 scales and 8 mins of q4k and q5k. Six bits of the first four each, their bytes' top bits and the last four
    bytes being the scales and mins of the last four groups."""
    scales = [v & 63 for v in k[:4]] + [low & 15 | v >> 6 << 4 for low, v in zip(k[8:], k[:4])]
    mins = [v & 63 for v in k[4:8]] + [low >> 4 | v >> 6 << 4 for low, v in zip(k[8:], k[4:8])]
    return scales, mins


def _pack_scales(scales: list[int], mins: list[int]) -> bytes:
    first = [v | later >> 4 << 6 for six in (scales, mins) for v, later in zip(six[:4], six[4:])]
    return bytes(first + [s & 15 | (m & 15) << 4 for s, m in zip(scales[4:], mins[4:])])


def q4k_decode(data: bytes | bytearray | memoryview) -> array[float]:
    """The values d * scale * code - dmin * min of whole q4k blocks."""
    out = array("f")
    for d, dmin, k, q in struct.iter_unpack("<2e12s128s", data):
        out.extend(_groups_of_32(d, dmin, k, unpack_fields(q, 4, 32)))
    return out


def _groups_of_32(d: float, dmin: float, k: bytes, codes: list[int]) -> list[float]:
    values: list[float] = []
    for g, (s, m) in enumerate(zip(*_unpack_scales(k))):
        scale, offset = d * s, dmin * m
        values += [scale * c - offset for c in codes[32 * g : 32 * g + 32]]
    return values


def q4k_encode(values: Values) -> bytes:
    """q4k blocks of single-precision values."""
    out = bytearray()
    for block in _split(values, BLOCK):
        head, codes = _encode_groups_of_32(block, 15)
        out += head + pack_fields(codes, 4, 32)
    return bytes(out)


def _encode_groups_of_32(block: Values, n: int) -> tuple[bytes, list[int]]:
    """(d, dmin, scales and mins; 256 codes 0 … n) of a q4k or q5k block."""
    groups = _split(block, 32)
    fits = [_minscale(x, n) for x in groups]
    top_s, top_m = _top([s for s, _ in fits]), _top([m for _, m in fits])
    inv_s, inv_m = (divide(63, top) if top else 0.0 for top in (top_s, top_m))
    scales, mins = (
        [min(nearest(f32(inv_s * s)), 63) for s, _ in fits],
        [min(nearest(f32(inv_m * m)), 63) for _, m in fits],
    )
    d, dmin = f16_bits(f32(top_s / 63)), f16_bits(f32(top_m / 63))
    codes = []
    for x, s, m in zip(groups, scales, mins):
        codes += _offset_codes(x, f16_value(d) * s, f16_value(dmin) * m, n)
    return struct.pack("<2H12s", d, dmin, _pack_scales(scales, mins)), codes


# ---- q5k: q4k with 32 bytes of high bits before the nibbles


def q5k_decode(data: bytes | bytearray | memoryview) -> array[float]:
    """The values d * scale * code - dmin * min of whole q5k blocks."""
    out = array("f")
    for d, dmin, k, high, q in struct.iter_unpack("<2e12s32s128s", data):
        codes = [low | bit << 4 for low, bit in zip(unpack_fields(q, 4, 32), unpack_fields(high, 1, 32))]
        out.extend(_groups_of_32(d, dmin, k, codes))
    return out


def q5k_encode(values: Values) -> bytes:
    """q5k blocks of single-precision values."""
    out = bytearray()
    for block in _split(values, BLOCK):
        head, codes = _encode_groups_of_32(block, 31)
        out += head + pack_fields([c >> 4 for c in codes], 1, 32) + pack_fields([c & 15 for c in codes], 4, 32)
    return bytes(out)


# ---- q6k: 128 bytes of low nibbles, 64 bytes of high 2-bit codes, 16 x int8 scales, d (f16); 16 groups of 16


def q6k_decode(data: bytes | bytearray | memoryview) -> array[float]:
    """The values d * scale * (code - 32) of whole q6k blocks."""
    out = array("f")
    for low, high, *scales, d in struct.iter_unpack("<128s64s16be", data):
        codes = [(v | top << 4) - 32 for v, top in zip(unpack_fields(low, 4, 64), unpack_fields(high, 2, 32))]
        for g, scale in enumerate(scales):
            step = d * scale
            out.extend([step * c for c in codes[16 * g : 16 * g + 16]])
    return out


def q6k_encode(values: Values) -> bytes:
    """q6k blocks of single-precision values."""
    out = bytearray()
    for block in _split(values, BLOCK):
        groups = _split(block, 16)
        fits = [_q6k_fit(x) for x in groups]
        inv = divide(-128, _peak([s for s, _ in fits]))
        d = f16_bits(divide(1, inv))
        scales = bytes([min(nearest(f32(inv * s)), 127) & 255 for s, _ in fits])
        codes = []
        for x, scale, (_, provisional) in zip(groups, struct.unpack("16b", scales), fits):
            step = f16_value(d) * scale
            codes += [c + 32 for c in (_over(x, step, -32, 31) if step else provisional)]
        low, high = pack_fields([c & 15 for c in codes], 4, 64), pack_fields([c >> 4 for c in codes], 2, 32)
        out += low + high + scales + d.to_bytes(2, "little")
    return bytes(out)


def _q6k_fit(x: Values) -> tuple[float, list[int]]:
    """(scale, provisional codes -32 … 31) of one group; the codes stay only if the stored scale comes out as zero."""
    peak = _peak(x)
    if not peak:
        return 0.0, [-32] * 16
    w = array("f", [v * v for v in x])
    wx = array("f", [a * v for a, v in zip(w, x)])
    codes = _times(x, divide(-32, peak), -32, 31)
    a, b = _sums(w, wx, codes, _q6k_term)
    for _ in range(3):
        scale = divide(a, b)
        other = _times(x, divide(1, scale), -32, 31)
        a_o, b_o = _sums(w, wx, other, _q6k_term)
        if other == codes or b_o == 0 or f32(a_o * a_o) <= f32(f32(scale * a) * b_o):
            break
        codes, a, b = other, a_o, b_o
    return _refine(x, w, wx, codes, a, b, 32, _q6k_term), codes


def _q6k_term(w: float, code: int) -> float:
    return f32(f32(w * code) * code)


# ---- q8k: d (f32), 256 x int8, 16 x int16 sums of 16 codes each


def q8k_decode(data: bytes | bytearray | memoryview) -> array[float]:
    """The values d * code of whole q8k blocks; the sums are not needed."""
    out = array("f")
    for d, *codes in struct.iter_unpack("<f256b32x", data):
        out.extend([d * c for c in codes])
    return out


def q8k_encode(values: Values) -> bytes:
    """q8k blocks of single-precision values."""
    out = bytearray()
    for block in _split(values, BLOCK):
        peak = _peak(block)
        inv = divide(-127, peak)
        codes = _times(block, inv, -128, 127) if peak else [0] * BLOCK
        d = divide(1, inv) if peak else 0.0
        out += struct.pack("<f256b16h", d, *codes, *[sum(codes[k : k + 16]) for k in range(0, BLOCK, 16)])
    return bytes(out)

"""Q8_0 and Q4_0, with q4i and g256, by a table a scale (decoders) and one float operation a value (encoders).

Decoders. All products of a scale with the codes there are make a table; each of the four bytes of the products is one
bytes.translate of a block's codes. Scales come again and again, so that most tables are made once. The products are the
plain version's, computed in the same way.

Encoders. The first value of largest magnitude in each block is found in lanes of 32 bits: the magnitudes of single-precision
numbers compare like their bits. Then v * r + (1.5 * 2^36 + 0.5) in doubles: v * r is exact there (24 by 24 digits), and of
the sum the bytes 0 and 1 are the fraction of v * r + 0.5 in units of 2^-16, byte 2 its floor: the code. The plain version
rounds v * r to single precision first, then the sum with 0.5 (for Q4_0: 8.5), and rounds halves away from zero. All this
moves a number by at most 2^-20, so that it can matter only within 2^-20 of an integer, where the fraction above is rounded
to exactly 0: codes with that fraction are made again by the plain rule. Blocks with infinite or NaN values, and with
scales whose reciprocal might overflow, are made again as a whole by the plain version, and so is all with legacy=True.
"""

from __future__ import annotations

import binascii
import io
import struct
import sys
from array import array

from vqfref.fast.floats import all_finite, f16_encode, lanes
from vqfref.quant import blocks as plain
from vqfref.quant.blocks import BLOCK, GROUP, Q4_0_BYTES, Q8_0_BYTES, q8_code
from vqfref.quant.floats import f32, f32_decode, f32_encode
from vqfref.quant.matmul import quantize_activation as plain_quantize_activation

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, Iterable, Sequence, Tuple, TypeGuard

    from vqfref.quant.matmul import Activation

    Table = Tuple[bytes, ...]

FEW = 8  # blocks: with fewer the plain ones are as quick
AT_ONCE = 512  # blocks
TABLES = 4096  # at most, 1.2 KB each
BUILD_AT = 4  # from this appearance of a scale on, a table for it pays

# ---- decoders

_q8_tables: dict[bytes, Table] = {}
_q8_seen: dict[bytes, int] = {}
_q4_tables: dict[bytes, Table] = {}
_INT8 = array("f", [*range(128), *range(-128, 0)])
_NIBBLES = array("f", range(-8, 8))
_LOW, _HIGH = bytes(v & 15 for v in range(256)), bytes(v >> 4 for v in range(256))


def _products(scale: bytes, codes: array[float]) -> Table:
    """Bytes 0 … 3 of the products of a scale with each code, as tables of 256."""
    d: float = struct.unpack("<e", scale)[0]
    data = f32_encode(array("f", [d * v for v in codes]))
    return tuple(data[i::4].ljust(256, b"\0") for i in range(4))


def _kept(tables: dict[bytes, Table], scale: bytes, codes: array[float]) -> Table:
    """The table of a scale, made and kept."""
    if len(tables) >= TABLES:
        tables.clear()
    table = tables[scale] = _products(scale, codes)
    return table


def q8_0_decode(data: bytes | bytearray | memoryview) -> array[float]:
    """The values of whole Q8_0 blocks."""
    if len(data) < FEW * Q8_0_BYTES or len(data) % Q8_0_BYTES:
        return plain.q8_0_decode(data)
    out, view, get = array("f"), memoryview(data), _q8_tables.get
    for at in range(0, len(data), AT_ONCE * Q8_0_BYTES):
        planes: tuple[list[bytes], ...] = ([], [], [], [])
        add0, add1, add2, add3 = (p.append for p in planes)
        for scale, codes in struct.iter_unpack("2s32s", view[at : at + AT_ONCE * Q8_0_BYTES]):
            table = get(scale)
            if table is None:
                seen = _q8_seen[scale] = _q8_seen.get(scale, 0) + 1
                if seen < BUILD_AT:
                    values = f32_encode(plain.q8_0_decode(scale + codes))
                    for i, plane in enumerate(planes):
                        plane.append(values[i::4])
                    continue
                table = _kept(_q8_tables, scale, _INT8)
            t0, t1, t2, t3 = table
            translate = codes.translate
            add0(translate(t0))
            add1(translate(t1))
            add2(translate(t2))
            add3(translate(t3))
        words = bytearray(4 * BLOCK * len(planes[0]))
        for i, plane in enumerate(planes):
            words[i::4] = b"".join(plane)
        out.extend(f32_decode(words))
    return out


def q4_0_decode(data: bytes | bytearray | memoryview) -> array[float]:
    """The values of whole Q4_0 blocks. Byte 0 of each is zero: a product has at most 14 digits."""
    if len(data) < FEW * Q4_0_BYTES or len(data) % Q4_0_BYTES:
        return plain.q4_0_decode(data)
    out, view, get = array("f"), memoryview(data), _q4_tables.get
    for at in range(0, len(data), AT_ONCE * Q4_0_BYTES):
        piece = bytearray(view[at : at + AT_ONCE * Q4_0_BYTES])
        scales = bytearray(len(piece) // 9)
        scales[::2], scales[1::2] = piece[::18], piece[1::18]
        low, high, nibbles = piece.translate(_LOW), piece.translate(_HIGH), bytearray(len(piece) // 18 * BLOCK)
        for i in range(16):
            nibbles[i::BLOCK] = low[2 + i :: 18]
            nibbles[16 + i :: BLOCK] = high[2 + i :: 18]
        planes: tuple[list[bytes], ...] = ([], [], [])
        add1, add2, add3 = (p.append for p in planes)
        for (scale,), (codes,) in zip(struct.iter_unpack("2s", scales), struct.iter_unpack("32s", nibbles)):
            _, t1, t2, t3 = get(scale) or _kept(_q4_tables, scale, _NIBBLES)
            translate = codes.translate
            add1(translate(t1))
            add2(translate(t2))
            add3(translate(t3))
        words = bytearray(4 * len(nibbles))
        for i, plane in enumerate(planes, 1):
            words[i::4] = b"".join(plane)
        out.extend(f32_decode(words))
    return out


# ---- encoders

_32F, _32D = struct.Struct("32f"), struct.Struct("32d")
_BYTES = (0, 1, 2) if sys.byteorder == "little" else (7, 6, 5)  # of a double in host order, the lowest first
_MAGIC_Q8, _MAGIC_Q4 = 1.5 * 2.0**36 + 0.5, 1.5 * 2.0**36 + 8.5
_TINY = f32(1e-10)
_UP_TO_15, _LESS_8 = bytes(min(v, 15) for v in range(256)), bytes(v - 8 & 255 for v in range(256))


def _is_fit(values: Sequence[float], legacy: bool = False) -> TypeGuard[array[float]]:
    """Only single-precision values may take the quick way, and only whole blocks."""
    return (not legacy and isinstance(values, array) and values.typecode == "f"
            and len(values) >= FEW * BLOCK and len(values) % BLOCK == 0)  # fmt: skip


def _peaks(x: array[float]) -> array[float]:
    """Of each block the first value of largest magnitude, with its sign. A NaN counts as larger than infinity."""
    n = len(x) // BLOCK
    bit31, low31 = lanes(n, 32, 0x80000000), lanes(n, 32, 0x7FFFFFFF)
    columns = [int.from_bytes(f32_encode(x[i::BLOCK]), "little") for i in range(BLOCK)]
    while len(columns) > 1:
        winners = []
        for a, b in zip(columns[::2], columns[1::2]):  # the values of a come first: they win where both are equal
            a_wins = (a | bit31) - (b & low31) & bit31
            winners.append(b ^ (a ^ b) & (a_wins << 1) - (a_wins >> 31))
        columns = winners
    return f32_decode(columns[0].to_bytes(4 * n, "little"))


def _codes(x: array[float], factors: Sequence[float], magic: float, exact: Callable[[float], int]) -> bytearray:
    """The floor of each value times its block's factor plus the fraction of `magic`, by byte 2 of a double; and where
    that double is an integer, the code that `exact` makes of the product in single precision."""
    unpacked, pack = _32F.iter_unpack(x), _32D.pack
    sums = b"".join([pack(*[v * r + magic for v in block]) for block, r in zip(unpacked, factors)])
    low, middle, codes = _BYTES
    out, fraction = bytearray(sums[codes::8]), sums[middle::8]
    i = fraction.find(0)
    while i >= 0:
        if sums[8 * i + low] == 0:
            out[i] = exact(f32(x[i] * factors[i // BLOCK])) & 255
        i = fraction.find(0, i + 1)
    return out


def _q4_exact(t: float) -> int:
    t = f32(t + 8.5)
    return 0 if t != t else int(max(0.0, min(15.0, t)))


def _joined(scales: array[float], codes: bytes | bytearray, size: int) -> bytearray:
    """Blocks of a half and size - 2 bytes, which lie in every 32 bytes of `codes` first."""
    out, halves = bytearray(len(scales) * size), f16_encode(scales)
    out[::size], out[1::size] = halves[::2], halves[1::2]
    for i in range(size - 2):
        out[2 + i :: size] = codes[i::BLOCK]
    return out


def _not_finite(peaks: array[float]) -> list[int]:
    """Blocks with an infinite or a NaN value."""
    return [] if all_finite(peaks) else [k for k, p in enumerate(peaks) if p - p != 0]


def _pieces(values: array[float], encode: Callable[[array[float]], bytearray], rest: int = 0) -> bytes:
    """What `encode` makes of the values, all but the last `rest`, piece by piece."""
    out, stop = io.BytesIO(), len(values) - rest
    for at in range(0, stop, AT_ONCE * BLOCK):
        out.write(encode(values[at : min(at + AT_ONCE * BLOCK, stop)]))
    return out.getvalue()


def _q8_scales(peaks: Iterable[float]) -> tuple[array[float], array[float]]:
    """Scales and their reciprocals."""
    quotients = array("f", [abs(p) / 127 for p in peaks])
    scales = array("f", [s if s > _TINY else _TINY for s in quotients])
    return scales, array("f", [1 / s for s in scales])


def q8_0_encode(values: Sequence[float], legacy: bool = False) -> bytes:
    """Q8_0 blocks of single-precision values; their number is a multiple of 32."""
    return _pieces(values, _q8_0) if _is_fit(values, legacy) else plain.q8_0_encode(values, legacy)


def _q8_0(x: array[float]) -> bytearray:
    peaks = _peaks(x)
    scales, factors = _q8_scales(peaks)
    out = _joined(scales, _codes(x, factors, _MAGIC_Q8, q8_code), Q8_0_BYTES)
    for k in _not_finite(peaks):
        out[k * Q8_0_BYTES : (k + 1) * Q8_0_BYTES] = plain.q8_0_encode(x[k * BLOCK : (k + 1) * BLOCK])
    return out


def g256_encode(values: Sequence[float], legacy: bool = False) -> bytes:
    """Q8_0 blocks of one layer whose scale is computed over 256 elements; zero bytes behind the last full group."""
    if not _is_fit(values, legacy) or len(values) < GROUP:
        return plain.g256_encode(values, legacy)
    out = _pieces(values, _g256, len(values) % GROUP)
    return out.ljust(len(values) // BLOCK * Q8_0_BYTES, b"\0")


def _g256(x: array[float]) -> bytearray:
    peaks, per_group = _peaks(x), GROUP // BLOCK
    groups = [max(map(abs, peaks[k : k + per_group])) for k in range(0, len(peaks), per_group)]
    scales, factors = _q8_scales([p for p in groups for _ in range(per_group)])
    out = _joined(scales, _codes(x, factors, _MAGIC_Q8, q8_code), Q8_0_BYTES)
    for k in {k // per_group for k in _not_finite(peaks)}:
        group = plain.g256_encode(x[k * GROUP : (k + 1) * GROUP])
        out[k * len(group) : (k + 1) * len(group)] = group
    return out


def quantize_activation(x: Sequence[float]) -> Activation:
    """(scales, codes): one single-precision scale and 32 int8 codes a block of 32 columns."""
    values = x
    if isinstance(x, list):
        x = array("f", x)
        if x.tolist() != values:  # doubles, or a NaN
            return plain_quantize_activation(values)
    if not _is_fit(x) or not all_finite(x):
        return plain_quantize_activation(values)
    scales, factors = _q8_scales(_peaks(x))
    codes = _codes(x, factors, _MAGIC_Q8, q8_code)
    return scales.tolist(), [list(block) for block in struct.iter_unpack("32b", codes)]


def _q4_parts(x: array[float]) -> tuple[array[float], bytearray, list[int]]:
    """(d of each block, all codes, blocks to be made again)."""
    peaks = _peaks(x)
    d = array("f", [p / -8 or 1.0 for p in peaks])
    odd = [k for k, p in enumerate(peaks) if p and not 2.0**-120 < abs(p) < 2.0**128]
    codes = _codes(x, array("f", [1 / v if v else 1.0 for v in d]), _MAGIC_Q4, _q4_exact)
    return d, codes.translate(_UP_TO_15), odd


def q4_0_encode(values: Sequence[float], legacy: bool = False) -> bytes:
    """Q4_0 blocks of single-precision values; their number is a multiple of 32."""
    return _pieces(values, _q4_0) if _is_fit(values, legacy) else plain.q4_0_encode(values, legacy)


def _q4_0(x: array[float]) -> bytearray:
    d, codes, odd = _q4_parts(x)
    n = int.from_bytes(codes, "little")
    n |= n >> 8 * 16 - 4  # element 16 + j of a block comes over element j, four bits up
    out = _joined(d, n.to_bytes(len(codes), "little"), Q4_0_BYTES)
    for k in odd:
        out[k * Q4_0_BYTES : (k + 1) * Q4_0_BYTES] = plain.q4_0_encode(x[k * BLOCK : (k + 1) * BLOCK])
    return out


def q4i_encode(values: Sequence[float], legacy: bool = False) -> bytes:
    """Q4_0's d and its codes less 8, one int8 each in natural order."""
    return _pieces(values, _q4i) if _is_fit(values, legacy) else plain.q4i_encode(values, legacy)


def _q4i(x: array[float]) -> bytearray:
    d, codes, odd = _q4_parts(x)
    out = _joined(d, codes.translate(_LESS_8), Q8_0_BYTES)
    for k in odd:
        out[k * Q8_0_BYTES : (k + 1) * Q8_0_BYTES] = plain.q4i_encode(x[k * BLOCK : (k + 1) * BLOCK])
    return out


# ---- known answers: scales of all sizes, negative ones and zero; values on thresholds, zeros, infinities, NaN. No result
# holds a NaN, since its bits are not the same everywhere.


def _known_data(size: int) -> bytes:
    """Blocks whose scales come five times each, so that tables are made."""
    return b"".join([(k % 15 * 0x1111 ^ k % 2 << 15).to_bytes(2, "little")
                     + bytes([(k * i * i + i) & 255 for i in range(size - 2)]) for k in range(80)])  # fmt: skip


def _known_values() -> array[float]:
    numerators = [(i * i * 7919 + i * 31) % 4093 - 2046 for i in range(BLOCK * 48)]
    x = array("f", [v * 2.0 ** (i // 512 * 40 - 24) / 127 for i, v in enumerate(numerators)])
    x[64:96] = array("f", [k - 63.5 for k in range(0, 128, 4)])
    x[96:128] = array("f", bytes(128))
    x[200], x[300], x[301] = float("inf"), float("nan"), -0.0
    return x


def _known_activation() -> int:
    return binascii.crc32(repr(quantize_activation(_known_values()[512:])).encode())


CHECKS: dict[str, tuple[Callable[[], object], object]] = {
    "q8_0_decode": (lambda: binascii.crc32(f32_encode(q8_0_decode(_known_data(34)))), 0xEDE5F5FC),
    "q4_0_decode": (lambda: binascii.crc32(f32_encode(q4_0_decode(_known_data(18)))), 0xD52BEA36),
    "q8_0_encode": (lambda: binascii.crc32(q8_0_encode(_known_values())), 0x072F23B0),
    "q4_0_encode": (lambda: binascii.crc32(q4_0_encode(_known_values())), 0x97000DF5),
    "q4i_encode": (lambda: binascii.crc32(q4i_encode(_known_values())), 0xF64E4979),
    "g256_encode": (lambda: binascii.crc32(g256_encode(_known_values())), 0xCC532B24),
    "quantize_activation": (_known_activation, 0xB3E14600),
}

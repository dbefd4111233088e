"""Matrix times vector with a lane of one integer for each row.

Column j of a block of all rows is one integer with a lane a row: w + 128 in 24 bits for Q8_0, the code 0 … 15 in 16 bits for
Q4_0. Columns times codes of the vector, summed, are the block's integer sums of all rows at once. The offsets 128 and 8 go
out again as one constant, since the sums are linear; 2^23 or 2^15 on top keeps the final lanes positive (only the final
ones need to be). |sum| is at most 32 * 128 * 127 < 2^19 for Q8_0 and 32 * 8 * 127 = 32512 for Q4_0: no final lane
overflows. The sums are exact, as they are in the plain version, and the rest is its arithmetic in its order: for all rows
d * d_x, times the sum, added to what came before, each rounded to single precision.

A packed matrix keeps the columns, in 3 bytes a weight for Q8_0 and 2 for Q4_0.
"""

from __future__ import annotations

import binascii
import sys
from array import array
from operator import add, itemgetter, mul

from vqfref.fast.floats import all_finite, lanes, rounded
from vqfref.fast.tiles import untile
from vqfref.quant.blocks import BLOCK
from vqfref.quant.floats import f16_decode, f32_encode
from vqfref.quant.matmul import BLOCK_BYTES, block_bytes
from vqfref.quant.matmul import matvec_quantized as plain_matvec_quantized

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, Iterable, Iterator, Sequence

    from vqfref.quant.matmul import Activation

FEW = 8  # rows
AT_ONCE = 1 << 22  # bytes of rows
LANES = {"q8_0": (3, 128), "q4_0": (2, 8)}  # bytes a lane, offset of the codes
_SIGN = bytes((v >> 7) * 0xFF for v in range(256))  # the byte above the highest


def matvec_quantized(
    data: bytes | memoryview, activation: Activation, encoding: str, layout: str = "linear"
) -> array[float]:
    """A matrix of Q8_0 or Q4_0 rows times a vector that is quantized already."""
    scales, codes = activation
    row = len(scales) * block_bytes(encoding, layout)
    if not _is_fit(data, row) or not _are_int8(codes):
        return plain_matvec_quantized(data, activation, encoding, layout)
    out = array("f")
    for n, rows in _pieces(data, row, encoding, layout):
        y = array("f", bytes(4 * n))
        for at, d_x, x in zip(range(0, row, BLOCK_BYTES[encoding]), scales, codes):
            d = f16_decode(_gathered(rows, at, row, 2))
            sums = _sums(_columns(rows, at + 2, row, n, encoding), x, n, encoding)
            y = _added(y, sums, rounded([v * d_x for v in d]))
        out.extend(y)
    return plain_matvec_quantized(data, activation, encoding, layout) if _has_nan(out) else out


def multiplier(data: bytes | memoryview, encoding: str, layout: str, cols: int) -> Callable[[Activation], array[float]]:
    """`matvec_quantized` for one matrix, whose columns are made once."""
    size = block_bytes(encoding, layout)
    row = cols // BLOCK * size
    pieces = []
    if _is_fit(data, row):
        for n, rows in _pieces(data, row, encoding, layout):
            blocks = range(0, row, size)
            pieces.append((n, [(_scales(f16_decode(_gathered(rows, at, row, 2))),
                                list(_columns(rows, at + 2, row, n, encoding))) for at in blocks]))  # fmt: skip

    def matvec(activation: Activation) -> array[float]:
        scales, codes = activation
        if not pieces or len(scales) * size != row or not _are_int8(codes):
            return plain_matvec_quantized(data, activation, encoding, layout)
        out = array("f")
        for n, blocks in pieces:
            y = array("f", bytes(4 * n))
            for (d, columns), d_x, x in zip(blocks, scales, codes):
                y = _added(y, _sums(columns, x, n, encoding), d(d_x))
            out.extend(y)
        return plain_matvec_quantized(data, activation, encoding, layout) if _has_nan(out) else out

    return matvec


def _is_fit(data: bytes | memoryview, row: int) -> bool:
    return row > 0 and len(data) >= FEW * row and len(data) % row == 0


def _has_nan(y: array[float]) -> bool:
    """Which of two NaN a sum of them is, is the compiler's business: then the plain version is asked."""
    return not all_finite(y) and any(v != v for v in y)


def _are_int8(codes: list[list[int]]) -> bool:
    """Are the vector's codes as `quantize_activation` makes them, in -127 … 127?"""
    return all(len(x) == BLOCK and min(x) >= -127 and max(x) <= 127 for x in codes)


def _pieces(data: bytes | memoryview, row: int, encoding: str, layout: str) -> Iterator[tuple[int, bytes]]:
    """(number of rows, linear rows), some megabytes at a time, whole tiles each."""
    step = max(AT_ONCE // row // 8, 1) * 8 * row
    view = memoryview(data)
    for at in range(0, len(data), step):
        rows = bytes(view[at : at + step])
        if layout != "linear":
            rows = untile(rows, row // BLOCK_BYTES[encoding] * BLOCK, layout)
        yield len(rows) // row, rows


def _gathered(rows: bytes, at: int, row: int, count: int) -> bytearray:
    """`count` bytes of each row, from place `at` on."""
    out = bytearray(len(rows) // row * count)
    for i in range(count):
        out[i::count] = rows[at + i :: row]
    return out


def _columns(rows: bytes, at: int, row: int, n: int, encoding: str) -> Iterator[int]:
    """The 32 columns of the block whose codes begin at place `at` of each row."""
    width, _ = LANES[encoding]
    if encoding == "q8_0":
        flip = lanes(n, 8 * width, 0x80)  # int8 + 128
        for column in _bytes(rows, at, row, n, width, BLOCK):
            yield column ^ flip
    else:
        nibble = lanes(n, 8 * width, 0x0F)
        pairs = list(_bytes(rows, at, row, n, width, BLOCK // 2))
        yield from [pair & nibble for pair in pairs]
        yield from [pair >> 4 & nibble for pair in pairs]


def _bytes(rows: bytes, at: int, row: int, n: int, width: int, count: int) -> Iterator[int]:
    """Each of `count` bytes from place `at` on, of all rows, in lanes of `width` bytes."""
    byte, words = lanes(n, 8 * width, 0xFF), bytearray(width * n)
    for j in range(0, count, width):
        some = range(min(width, count - j))
        for i in some:
            words[i::width] = rows[at + j + i :: row]
        together = int.from_bytes(words, "little")
        for i in some:
            yield together >> 8 * i & byte


def _sums(columns: Iterable[int], x: list[int], n: int, encoding: str) -> array[int]:
    """The integer sum of a block, for each row."""
    width, offset = LANES[encoding]
    top = lanes(n, 8 * width, 0x80 << 8 * width - 8)
    start = top - lanes(n, 8 * width, 1) * (offset * sum(x))
    data = (sum(map(mul, columns, x), start) ^ top).to_bytes(n * width, "little")
    if width == 3:
        words, high = bytearray(4 * n), data[2::3]
        words[::4], words[1::4], words[2::4], words[3::4] = data[::3], data[1::3], high, high.translate(_SIGN)
        data = bytes(words)
    sums = array("h" if width == 2 else "i", data)
    if sys.byteorder == "big":
        sums.byteswap()
    return sums


def _added(y: array[float], sums: array[int], d: Sequence[float]) -> array[float]:
    """y + sums * d, for each row."""
    return rounded(map(add, y, rounded(map(mul, d, sums))))


def _scales(d: array[float]) -> Callable[[float], Sequence[float]]:
    """A function of d_x: all d * d_x. Scales come again, so that there are fewer products than rows."""
    values = d.tolist()
    different = list(dict.fromkeys(values))  # one for both zeros: y, which begins with +0, comes to be the same
    if not 1 < len(different) < len(d) // 2:
        return lambda d_x: rounded([v * d_x for v in values])
    places = {v: i for i, v in enumerate(different)}
    picked = itemgetter(*[places[v] for v in values])
    return lambda d_x: picked(rounded([v * d_x for v in different]).tolist())


# ---- known answers: scales of both signs and zero, extreme codes, nine rows of two blocks


def _known(multiply: Callable[[bytes, Activation, str], array[float]]) -> int:
    crc = 0
    x = [[127 - (i * i + j) % 255 for i in range(BLOCK)] for j in range(2)]
    for encoding, size in BLOCK_BYTES.items():
        blocks = [(k * 4369 + 5 & 0xBBFF).to_bytes(2, "little") + bytes([k * i * i & 255 for i in range(size - 2)])
                  for k in range(17)]  # fmt: skip
        data = b"".join(blocks) + bytes(2) + b"\x80" * (size - 2)
        crc = binascii.crc32(f32_encode(multiply(data, ([0.1, 3.0], x), encoding)), crc)
    return crc


CHECKS: dict[str, tuple[Callable[[], object], object]] = {
    "matvec_quantized": (lambda: _known(matvec_quantized), 0xAA3F4188),
    "multiplier": (lambda: _known(lambda data, x, encoding: multiplier(data, encoding, "linear", 64)(x)), 0xAA3F4188),
}

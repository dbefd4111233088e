"""Tiles by strided slices: every byte of a block moves by the same rule in all blocks, so one slice moves it for all.

Byte i of the blocks of row m of all groups of rows is a slice with the step of a block, and where it goes is a slice with
the step of a tile: a tile of `height` blocks of `size` bytes takes height * size such moves, whatever the number of tiles.
The rows of a group are parted first, by copies of whole rows.
"""

from __future__ import annotations

import binascii
import io

from vqfref.quant.tiles import LAYOUTS, layout_for
from vqfref.quant.tiles import tile as plain_tile
from vqfref.quant.tiles import untile as plain_untile

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Iterator

FEW = 16  # tiles: with fewer the plain ones are quicker
AT_ONCE = 1 << 20  # bytes
_XOR_88 = bytes(b ^ 0x88 for b in range(256))


def tile(data: bytes | bytearray | memoryview, cols: int, layout: str) -> bytes:
    """Rows of blocks, `cols` elements a row, rearranged into tiles."""
    height, size, _, xor = layout_for(len(data), cols, layout)
    row = cols // 32 * size
    if not _is_worth_it(len(data), height, row, size):
        return plain_tile(data, cols, layout)
    view, out = memoryview(data), io.BytesIO()
    for start, stop, left, right in _pieces(len(data), height, row, size):
        tiles = bytearray((stop - start) // row * (right - left))
        for m in range(height):
            blocks = b"".join([view[at + left : at + right] for at in range(start + m * row, stop, height * row)])
            codes = blocks.translate(_XOR_88) if xor else blocks
            for i, to in enumerate(_places(layout, m)):
                tiles[to :: height * size] = (blocks if i < 2 else codes)[i::size]
        out.write(tiles)
    return out.getvalue()


def untile(data: bytes | bytearray | memoryview, cols: int, layout: str) -> bytes:
    """Tiles back into linear rows of blocks; the inverse of `tile`. A layout "A of B" is undone twice."""
    layout, _, inner = layout.partition(" of ")
    if inner:
        return untile(untile(data, cols, layout), cols, inner)
    height, size, _, xor = layout_for(len(data), cols, layout)
    row = cols // 32 * size
    if not _is_worth_it(len(data), height, row, size):
        return plain_untile(data, cols, layout)
    view, out = memoryview(data), io.BytesIO()
    for start, stop, left, right in _pieces(len(data), height, row, size):
        width, at = right - left, start + left * height
        tiles = bytes(view[at : at + (stop - start) // row * width])
        codes = tiles.translate(_XOR_88) if xor else tiles
        blocks = bytearray(len(tiles) // height)
        for m in range(height):
            for i, to in enumerate(_places(layout, m)):
                blocks[i::size] = (tiles if i < 2 else codes)[to :: height * size]
            for k, at in enumerate(range(start + m * row, stop, height * row)):
                out.seek(at + left)
                out.write(blocks[k * width : k * width + width])
    return out.getvalue()


def _is_worth_it(length: int, height: int, row: int, size: int) -> bool:
    """Are there enough tiles, and only whole groups of rows?"""
    return length >= FEW * height * size and row > 0 and length % (height * row) == 0


def _pieces(length: int, height: int, row: int, size: int) -> Iterator[tuple[int, int, int, int]]:
    """(start, stop, left, right): the bytes left … right of all rows in start … stop, about AT_ONCE in all. Either some
    whole groups of rows, or some whole tiles of one group."""
    group = height * row
    step = max(AT_ONCE // group, 1) * group
    width = row if group <= AT_ONCE else max(AT_ONCE // (height * size), 1) * size
    for start in range(0, length, step):
        for left in range(0, row, width):
            yield start, min(start + step, length), left, min(left + width, row)


def _places(layout: str, m: int) -> list[int]:
    """Where the bytes of a block of row m stand in its tile: scales first, then chunks of all rows in turn."""
    height, size, chunk, _ = LAYOUTS[layout]
    codes = [2 * height + (k // chunk * height + m) * chunk + k % chunk for k in range(size - 2)]
    return [2 * m, 2 * m + 1, *codes]


def _known(back: bool) -> int:
    """Two groups of rows of 16 tiles each, in every layout."""
    crc = 0
    for layout, (height, size, _, _) in LAYOUTS.items():
        data = bytes([i * i % 251 for i in range(2 * height * 16 * size)])
        crc = binascii.crc32((untile if back else tile)(data, 512, layout), crc)
    return crc


CHECKS = {"tile": (lambda: _known(False), 0xA5FE6C2E), "untile": (lambda: _known(True), 0xFAF53865)}

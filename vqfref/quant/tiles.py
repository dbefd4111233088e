"""Tiles: the same block of several neighbouring rows side by side, as the engine's kernels read them. Spec: VQF section 8.

`tile` takes a matrix of linear rows of blocks into a layout, `untile` takes it back; sizes do not change. Nothing crosses
the matrix. What fits a layout is for vqf/geometry.py to say.

| layout | rows | in a tile, behind the rows' scales |
|---|---|---|
| q4_4x4 | 4 | chunk i of 16: bytes 4 (i / 4) … + 4 of row i % 4's nibbles, xor 0x88 |
| q8_8x8 | 8 | for k in 0 … 7, for each row: the int8 of elements 4 k … 4 k + 3 |
| q8_4x4 | 4 | the same with four rows |
| q4_8x8l | 8 | chunk i of 16: bytes 8 (i / 8) … + 8 of row i % 8's nibbles, xor 0x88 |
"""

from __future__ import annotations

from vqfref.errors import UsageError
from vqfref.quant.floats import check_whole

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Iterator, Tuple

    Layout = Tuple[int, int, int, int]

# layout: (rows, bytes a block, bytes a chunk, xor)
LAYOUTS = {"q4_4x4": (4, 18, 4, 0x88), "q8_8x8": (8, 34, 4, 0), "q8_4x4": (4, 34, 4, 0), "q4_8x8l": (8, 18, 8, 0x88)}
_XOR_88 = bytes(b ^ 0x88 for b in range(256))


def layout_for(length: int, cols: int, layout: str) -> Layout:
    """The row of LAYOUTS for a matrix of so many bytes. Raises UsageError if there is none, or if the matrix is not whole
    groups of rows of whole blocks."""
    if layout not in LAYOUTS:
        raise UsageError("usage.layout.unsupported", "no layout %r; there are %s" % (layout, " ".join(LAYOUTS)))
    height, size, _, _ = LAYOUTS[layout]
    check_cols(cols)
    check_whole(length, size)
    if length % (height * (cols // 32 * size)):
        rows = length / (cols // 32 * size)
        raise UsageError(
            "usage.matrix.shape", "%g rows of %d columns, expected a multiple of %d" % (rows, cols, height)
        )
    return LAYOUTS[layout]


def check_cols(cols: int) -> None:
    """Raises UsageError unless rows of so many columns are whole blocks, at least one."""
    if cols <= 0 or cols % 32:
        raise UsageError("usage.matrix.shape", "%d columns, expected a multiple of 32" % cols)


def tile(data: bytes | bytearray | memoryview, cols: int, layout: str) -> bytes:
    """Rows of blocks, `cols` elements a row, rearranged into tiles. The number of rows is a multiple of the tile's."""
    height, size, chunk, xor = layout_for(len(data), cols, layout)
    row_bytes = cols // 32 * size
    out = bytearray()
    view = memoryview(data)
    for group in range(0, len(data), height * row_bytes):
        for at in range(group, group + row_bytes, size):
            blocks = [bytes(view[at + m * row_bytes :][:size]) for m in range(height)]
            codes = b"".join([b[k : k + chunk] for k in range(2, size, chunk) for b in blocks])
            out += b"".join([b[:2] for b in blocks]) + (codes.translate(_XOR_88) if xor else codes)
    return bytes(out)


def untile(data: bytes | bytearray | memoryview, cols: int, layout: str) -> bytes:
    """Tiles back into linear rows of blocks; the inverse of `tile`."""
    return b"".join(untiled_rows(data, cols, layout))


def untiled_rows(data: bytes | bytearray | memoryview, cols: int, layout: str) -> Iterator[bytes]:
    """The linear rows of a tiled matrix one by one, `cols / 32` blocks each.

    A layout "A of B" is A made of bytes that lay in B already, as the engine makes x8_* copies: both are undone.
    """
    layout, _, inner = layout.partition(" of ")
    if inner:
        yield from untiled_rows(untile(data, cols, layout), cols, inner)
        return
    height, size, chunk, xor = layout_for(len(data), cols, layout)
    tile_bytes = height * size
    group_bytes = cols // 32 * tile_bytes
    view = memoryview(data)
    for group in range(0, len(data), group_bytes):
        rows = [bytearray() for _ in range(height)]
        for at in range(group, group + group_bytes, tile_bytes):
            codes = bytes(view[at + 2 * height : at + tile_bytes])
            if xor:
                codes = codes.translate(_XOR_88)
            for m, row in enumerate(rows):
                row += view[at + 2 * m : at + 2 * m + 2]
                row += b"".join([codes[k : k + chunk] for k in range(m * chunk, len(codes), height * chunk)])
        yield from map(bytes, rows)

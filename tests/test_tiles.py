"""Tiles both ways against a model that says of each byte of a tile which byte of which row it is, after section 8."""

from __future__ import annotations

import hashlib
import types
import unittest

from vqfref import kernels
from vqfref.errors import UsageError
from vqfref.quant import tiles

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Tuple

    Place = Tuple[int, int, int]  # row of the tile, byte of its block, what is xored

LAYOUTS = ("q4_4x4", "q8_8x8", "q8_4x4", "q4_8x8l")
BLOCK_BYTES = {"q4": 18, "q8": 34}


def tile_map(layout: str) -> list[Place]:
    """For every byte of a tile: whose byte it is. Section 8, line by line."""
    if layout == "q4_4x4":
        found = [(row, i, 0) for row in range(4) for i in (0, 1)]  # 4 x f16 d, rows 0..3
        for i in range(16):  # then 16 chunks of 4 bytes
            found += [(i % 4, 2 + 4 * (i // 4) + j, 0x88) for j in range(4)]
    elif layout == "q4_8x8l":
        found = [(row, i, 0) for row in range(8) for i in (0, 1)]
        for i in range(16):  # 16 chunks of 8 bytes
            found += [(i % 8, 2 + 8 * (i // 8) + j, 0x88) for j in range(8)]
    else:
        rows = 8 if layout == "q8_8x8" else 4
        found = [(row, i, 0) for row in range(rows) for i in (0, 1)]
        for k in range(8):
            for m in range(rows):
                found += [(m, 2 + 4 * k + j, 0) for j in range(4)]  # elements 4k .. 4k+3 of row m
    return found


def tiled(rows: list[bytes], layout: str) -> bytes:
    """Linear rows of blocks as the tiles of a layout, a byte at a time."""
    places, size = tile_map(layout), BLOCK_BYTES[layout[:2]]
    height = 1 + max(row for row, _, _ in places)
    out = bytearray()
    for top in range(0, len(rows), height):
        for b in range(len(rows[0]) // size):
            out += bytes(rows[top + row][b * size + byte] ^ xor for row, byte, xor in places)
    return bytes(out)


def matrix(rows: int, cols: int, layout: str) -> list[bytes]:
    """Rows of blocks of any bytes, all different."""
    size = cols // 32 * BLOCK_BYTES[layout[:2]]
    data = hashlib.shake_256(b"%d %d" % (rows, cols)).digest(rows * size)
    return [data[i * size : i * size + size] for i in range(rows)]


class Model(unittest.TestCase):
    def test_a_tile_has_every_byte_of_its_rows_once(self) -> None:
        for layout, rows, size in (("q4_4x4", 4, 72), ("q8_8x8", 8, 272), ("q8_4x4", 4, 136), ("q4_8x8l", 8, 144)):
            places = tile_map(layout)
            self.assertEqual(len(places), size)
            every = [(row, byte) for row in range(rows) for byte in range(size // rows)]
            self.assertEqual(sorted((row, byte) for row, byte, _ in places), every)
            self.assertEqual({xor for row, byte, xor in places if byte < 2}, {0}, "scales are not xored")


class Tiles(unittest.TestCase):
    SHAPES = ((8, 32), (8, 64), (16, 32), (24, 96), (40, 160))

    def test_rows_into_tiles(self) -> None:
        for layout in LAYOUTS:
            for shape in (*self.SHAPES, *(((4, 32), (12, 96)) if "4x4" in layout else ())):
                rows = matrix(*shape, layout)
                self.assertEqual(tiles.tile(b"".join(rows), shape[1], layout), tiled(rows, layout), (layout, shape))

    def test_tiles_into_rows(self) -> None:
        for layout in LAYOUTS:
            for shape in (*self.SHAPES, *(((4, 32), (12, 96)) if "4x4" in layout else ())):
                rows = matrix(*shape, layout)
                data = tiled(rows, layout)
                self.assertEqual(list(tiles.untiled_rows(data, shape[1], layout)), rows, (layout, shape))
                self.assertEqual(tiles.untile(data, shape[1], layout), b"".join(rows), (layout, shape))

    def test_one_tile_of_q4_4x4_by_hand(self) -> None:
        rows = [bytes([0xD0 + m, 0xE0 + m]) + bytes([16 * m + j for j in range(16)]) for m in range(4)]
        want = (
            "d0e0 d1e1 d2e2 d3e3"
            "88898a8b 98999a9b a8a9aaab b8b9babb 8c8d8e8f 9c9d9e9f acadaeaf bcbdbebf"
            "80818283 90919293 a0a1a2a3 b0b1b2b3 84858687 94959697 a4a5a6a7 b4b5b6b7"
        )
        self.assertEqual(tiles.tile(b"".join(rows), 32, "q4_4x4").hex(), want.replace(" ", ""))

    def test_one_tile_of_q8_4x4_by_hand(self) -> None:
        rows = [bytes([0xD0 + m, 0xE0 + m]) + bytes([32 * m + j for j in range(32)]) for m in range(4)]
        want = "d0e0d1e1d2e2d3e3" + "".join(
            bytes(32 * m + 4 * k + j for j in range(4)).hex() for k in range(8) for m in range(4)
        )
        self.assertEqual(tiles.tile(b"".join(rows), 32, "q8_4x4").hex(), want)

    def test_one_tile_of_q4_8x8l_by_hand(self) -> None:
        rows = [bytes([0xD0 + m, 0xE0 + m]) + bytes([16 * m + j for j in range(16)]) for m in range(8)]
        got = tiles.tile(b"".join(rows), 32, "q4_8x8l").hex()
        self.assertEqual(got[:32], "d0e0d1e1d2e2d3e3d4e4d5e5d6e6d7e7")
        self.assertEqual(got[32:64], "88898a8b8c8d8e8f" + "98999a9b9c9d9e9f")
        self.assertEqual(got[160:192], "8081828384858687" + "9091929394959697")

    def test_sizes_do_not_change_and_nothing_crosses_a_group_of_rows(self) -> None:
        for layout in LAYOUTS:
            rows = matrix(16, 64, layout)
            data = tiles.tile(b"".join(rows), 64, layout)
            self.assertEqual(len(data), 16 * len(rows[0]))
            self.assertEqual(
                data, tiles.tile(b"".join(rows[:8]), 64, layout) + tiles.tile(b"".join(rows[8:]), 64, layout)
            )

    def test_no_rows_are_no_bytes(self) -> None:
        for layout in (*LAYOUTS, "q4_8x8l of q4_4x4"):
            self.assertEqual(tiles.untile(b"", 64, layout), b"")
        for layout in LAYOUTS:
            self.assertEqual(tiles.tile(b"", 64, layout), b"")

    def test_the_bytes_may_be_of_any_kind(self) -> None:
        for layout in LAYOUTS:
            rows = matrix(8, 64, layout)
            flat = b"".join(rows)
            for data in (bytearray(flat), memoryview(b"-" + flat)[1:]):
                self.assertEqual(tiles.tile(data, 64, layout), tiled(rows, layout))
            for data in (bytearray(tiled(rows, layout)), memoryview(b"-" + tiled(rows, layout))[1:]):
                self.assertEqual(tiles.untile(data, 64, layout), flat)
                self.assertTrue(all(type(row) is bytes for row in tiles.untiled_rows(data, 64, layout)))

    def test_rows_come_a_group_at_a_time(self) -> None:
        rows = matrix(8, 32, "q4_4x4")
        found = tiles.untiled_rows(tiled(rows, "q4_4x4"), 32, "q4_4x4")
        self.assertIsInstance(found, types.GeneratorType)
        self.assertEqual([next(found) for _ in range(8)], rows)

    def test_what_is_no_whole_matrix_of_tiles_is_refused(self) -> None:
        for layout, (height, size, _, _) in tiles.LAYOUTS.items():
            whole = height * size
            for length, cols, code in (
                (whole - 1, 32, "usage.blocks.truncated"),
                (whole + 1, 32, "usage.blocks.truncated"),
                (17 * whole + size, 32, "usage.matrix.shape"),  # a row too many
                (whole, 64, "usage.matrix.shape"),
                (whole, 0, "usage.matrix.shape"),
                (whole, -32, "usage.matrix.shape"),
                (17 * whole, 33, "usage.matrix.shape"),
                (whole, (1 << 32) + 32, "usage.matrix.shape"),
            ):
                for function in (tiles.tile, tiles.untile, kernels.tile, kernels.untile):
                    with self.assertRaises(UsageError) as caught:
                        function(bytes(length), cols, layout)
                    self.assertEqual(caught.exception.code, code, (layout, length, cols))


class Copies(unittest.TestCase):
    """x8_* are made of the q4 bytes as they stand, tiles of four rows, read as if they were rows."""

    def copied(self, rows: list[bytes]) -> tuple[bytes, bytes]:
        """(the q4 tensor, its x8 copy) of linear rows."""
        q4 = tiled(rows, "q4_4x4")
        size = len(rows[0])
        return q4, tiled([q4[i : i + size] for i in range(0, len(q4), size)], "q4_8x8l")

    def test_a_copy_of_tiles_comes_back_through_both(self) -> None:
        for shape in ((8, 32), (8, 64), (24, 96), (16, 160)):
            rows = matrix(*shape, "q4_8x8l")
            q4, x8 = self.copied(rows)
            self.assertEqual(tiles.tile(q4, shape[1], "q4_8x8l"), x8)
            self.assertEqual(tiles.untile(x8, shape[1], "q4_8x8l"), q4)
            self.assertEqual(list(tiles.untiled_rows(x8, shape[1], "q4_8x8l of q4_4x4")), rows)
            self.assertEqual(tiles.untile(x8, shape[1], "q4_8x8l of q4_4x4"), b"".join(rows))

    def test_undoing_one_of_the_two_is_not_enough(self) -> None:
        rows = matrix(8, 64, "q4_8x8l")
        _, x8 = self.copied(rows)
        self.assertNotEqual(tiles.untile(x8, 64, "q4_8x8l"), b"".join(rows))
        self.assertNotEqual(x8, tiled(rows, "q4_8x8l"))


if __name__ == "__main__":
    unittest.main()

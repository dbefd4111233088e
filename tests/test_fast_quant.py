"""The quick encoders, decoders, tiles and products equal the plain ones, around their thresholds and extremes."""

from __future__ import annotations

import random
import struct
import unittest
from array import array
from unittest import mock

from vqfref.errors import UsageError
from vqfref.quant import blocks as plain_blocks
from vqfref.quant import floats as plain_floats
from vqfref.quant import matmul as plain_matmul
from vqfref.quant import tiles as plain_tiles
from vqfref.quant.floats import f32, f32_decode, f32_encode

try:
    from vqfref.fast import blocks, floats, matmul, tiles
except ImportError:
    raise unittest.SkipTest("without fast/ there is nothing to test") from None

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterable, Sequence

INF, NAN = float("inf"), float("nan")
SIZES = {"q8_0": 34, "q4_0": 18}
AT_ONCE = floats.AT_ONCE
rng = random.Random(9)


def noise(n: int) -> bytes:
    """n bytes that are the same in every run."""
    return rng.getrandbits(8 * n).to_bytes(n, "little") if n else b""


def gauss(n: int, scale: float = 0.02) -> array[float]:
    """Values like those of weights."""
    return array("f", [rng.gauss(0, scale) for _ in range(n)])


class Case(unittest.TestCase):
    def same(self, quick: Any, plain: Any, *args: Any) -> None:
        """Equal to the bit; of NaN only that it is one, since a sum's NaN is the compiler's business."""
        got, want = quick(*args), plain(*args)
        if isinstance(want, array):
            self.assertEqual((got.typecode, len(got)), (want.typecode, len(want)))
            bad = [i for i, (a, b) in enumerate(zip(f32_encode(got), f32_encode(want))) if a != b]
            bad = [i // 4 for i in bad if got[i // 4] == got[i // 4] or want[i // 4] == want[i // 4]]
            self.assertEqual(bad, [], [(got[i], want[i]) for i in bad[:3]])
        else:
            self.assertIs(type(got), type(want))
            if got != want:
                at = next((i for i, (a, b) in enumerate(zip(got, want)) if a != b), min(len(got), len(want)))
                self.fail("%s: %d and %d long, different at %d" % (plain.__name__, len(got), len(want), at))


class Floats(Case):
    DECODERS = ("bf16_decode", "f16_decode")
    ENCODERS = ("bf16_encode", "f16_encode", "f16_encode_truncated")

    def every(self, names: Iterable[str], *args: Any) -> None:
        for name in names:
            self.same(getattr(floats, name), getattr(plain_floats, name), *args)

    def test_every_half_and_every_bf16_decodes_to_the_bit(self) -> None:
        data = struct.pack("<65536H", *range(65536))
        for at_once in (AT_ONCE, 1000):
            with mock.patch.object(floats, "AT_ONCE", at_once):
                for name in self.DECODERS:
                    quick, plain = getattr(floats, name)(data), getattr(plain_floats, name)(data)
                    self.assertEqual(quick.tobytes(), plain.tobytes(), name)

    def test_halves_of_which_few_are_odd_decode_to_the_bit(self) -> None:
        data = bytearray(struct.pack("<4000H", *[0x2C00 + 7 * i & 0xFBFF | i % 2 << 15 for i in range(4000)]))
        odd = (
            0x0000,
            0x8000,
            0x0001,
            0x8001,
            0x00FF,
            0x0100,
            0x03FF,
            0x83FF,
            0x0400,
            0x7BFF,
            0x7C00,
            0xFC00,
            0x7C01,
            0x7E00,
            0xFFFF,
        )
        for i, half in enumerate(odd):
            struct.pack_into("<H", data, 2 * (0 if i == 0 else 3999 if i == 1 else 267 * i), half)
        quick, plain = floats.f16_decode(data), plain_floats.f16_decode(data)
        self.assertEqual(quick.tobytes(), plain.tobytes())

    def test_zeros_of_both_signs_are_many(self) -> None:
        data = b"\0\0\0\x80" * 300 + b"\1\0" + b"\0\x3c" * 99 + b"\0\0" * 300
        self.every(self.DECODERS, data)
        self.every(self.ENCODERS, array("f", [0.0, -0.0] * 300 + [1.0, 2.0**-20]))

    def test_lengths_around_the_thresholds(self) -> None:
        for n in (0, 1, 2, *(k + d for k in (floats.FEW, 2 * floats.FEW, 4 * floats.FEW, AT_ONCE) for d in (-1, 0, 1))):
            self.every(self.DECODERS, noise(2 * n))
            self.every(self.ENCODERS, gauss(n, 1))

    def test_odd_lengths_are_refused_alike(self) -> None:
        for name in self.DECODERS:
            with self.assertRaises(UsageError):
                getattr(floats, name)(bytes(1001))

    def test_any_bits_encode_alike(self) -> None:
        values = f32_decode(noise(4 * 3000))
        self.every(self.ENCODERS, values)
        with mock.patch.object(floats, "AT_ONCE", 100):
            self.every(self.ENCODERS, values)

    def test_values_around_every_edge_encode_alike(self) -> None:
        edges = [0x00000000, 0x00000001, 0x007FFFFF, 0x00800000, 0x33000000, 0x33000001, 0x33800000, 0x387FC000, 0x387FE000,
                 0x387FFFFF, 0x38800000, 0x38800FFF, 0x38801000, 0x38801001, 0x38803000, 0x3F7FFFFF, 0x3F800000, 0x3F808000,
                 0x3F818000, 0x3F807FFF, 0x3F808001, 0x477FE000, 0x477FEFFF, 0x477FF000, 0x477FFFFF, 0x47800000, 0x7F7F7FFF,
                 0x7F7F8000, 0x7F7FFFFF, 0x7F800000, 0x7F800001, 0x7FBFFFFF, 0x7FC00000, 0x7FFFFFFF]  # fmt: skip
        words = [bits | sign << 31 for bits in edges for sign in (0, 1)]
        fill = [0x3C000000 + 4099 * i for i in range(1500)]  # so that the edges are few among the rest
        for position in (0, 700, 1500):
            values = f32_decode(
                struct.pack("<%dI" % (len(fill) + len(words)), *fill[:position], *words, *fill[position:])
            )
            self.every(self.ENCODERS, values)

    def test_a_nan_leaves_its_neighbours_alone(self) -> None:
        for bits in (0x7FFFFFFF, 0xFFFFFFFF, 0x7F800001, 0xFF800001):
            for at in (0, 1, 50, 98, 99):
                words = [0x3F818000 + i for i in range(100)]
                words[at] = bits
                self.every(self.ENCODERS, f32_decode(struct.pack("<100I", *words)))

    def test_doubles_are_not_rounded_twice(self) -> None:
        values = [1 + 2.0**-11 + 2.0**-40] * 100  # to single precision first would make a tie of it
        self.every(self.ENCODERS, values)
        self.every(self.ENCODERS, array("d", values))

    def test_all_finite_sees_one_that_is_not(self) -> None:
        for n in (1, 2 * floats.FEW - 1, 2 * floats.FEW, AT_ONCE, AT_ONCE + 5):
            for at in (0, n // 2, n - 1):
                for value in (INF, -INF, NAN, -NAN, 3.4e38, -3.4e38, 1.0):
                    values = array("f", bytes(4 * n))
                    values[at] = value
                    self.assertIs(floats.all_finite(values), value - value == 0, (n, at, value))
        self.assertIs(floats.all_finite(array("f")), True)
        self.assertIs(floats.all_finite(array("f", [3.4e38, -3.4e38] * 40)), True)


class Encoders(Case):
    NAMES = ("q8_0_encode", "q4_0_encode", "q4i_encode", "g256_encode")

    def every(self, values: Sequence[float]) -> None:
        for name in self.NAMES:
            self.same(getattr(blocks, name), getattr(plain_blocks, name), values)
        quick, plain = blocks.quantize_activation(values), plain_matmul.quantize_activation(values)
        self.assertEqual(repr(quick), repr(plain))

    def test_numbers_of_blocks_around_the_thresholds(self) -> None:
        few, batch = blocks.FEW, 20
        with mock.patch.object(blocks, "AT_ONCE", 16):
            for n in (0, 1, few - 1, few, few + 1, 15, 16, 17, 31, 32, 33, batch * 2):
                self.every(gauss(32 * n))
        self.every(gauss(32 * (blocks.AT_ONCE + 1)))

    def test_any_bits_at_all(self) -> None:
        self.every(f32_decode(noise(4 * 32 * 64)))

    def test_scales_of_every_size(self) -> None:
        for low, high in ((-149, -100), (-40, -28), (-30, 20), (100, 127)):
            self.every(array("f", [rng.uniform(-1, 1) * 2.0 ** rng.randrange(low, high) for _ in range(32 * 24)]))
            one_each = [2.0 ** rng.randrange(low, high) for _ in range(24)]
            self.every(array("f", [rng.uniform(-1, 1) * one_each[i // 32] for i in range(32 * 24)]))

    def test_scales_beyond_what_a_half_can_hold(self) -> None:
        for peak in (
            65504 * 127,
            65519.9 * 127,
            65520 * 127,
            3e38,
            65504 * 8,
            65520 * 8,
            -65520 * 8,
            1e-12,
            2.0**-24 * 127,
        ):
            self.every(array("f", [peak * (1 - i % 32 / 40) for i in range(32 * 8)]))

    def test_blocks_of_zeros_of_both_signs(self) -> None:
        self.every(array("f", bytes(4 * 32 * 16)))
        self.every(array("f", [-0.0] * 32 * 16))
        self.every(array("f", [[0.0, -0.0][i % 3 % 2] for i in range(32 * 16)]))

    def test_infinities_and_nan_anywhere_in_a_block(self) -> None:
        for value in (INF, -INF, NAN, -NAN):
            for at in (0, 1, 31, 32, 100, 255, 256, 511):
                values = gauss(512)
                values[at] = value
                self.every(values)
        self.every(array("f", [NAN] * 512))
        self.every(array("f", [INF, -INF] * 256))

    def test_the_first_of_equal_peaks_gives_q4_0_its_sign(self) -> None:
        for first, second in ((1.5, -1.5), (-1.5, 1.5)):
            for i, j in ((0, 1), (0, 31), (15, 16), (30, 31), (7, 20)):
                values = gauss(32 * 8, 0.1)
                for block in range(0, 256, 32):
                    values[block + i], values[block + j] = first, second
                self.every(values)

    def test_exact_ties(self) -> None:
        for unit in (1.0, 0.25, 2.0**-20):
            self.every(array("f", [127 * unit] + [(i % 255 - 127) * unit / 2 for i in range(32 * 16 - 1)]))
            self.every(array("f", [(i % 33 - 16) * unit / 2 for i in range(32 * 16)]))
            self.every(array("f", [[8, -8, 7.5, -7.5, 0.5, -0.5][i % 6] * unit for i in range(32 * 16)]))

    def test_a_hair_beside_ties(self) -> None:
        for codes, steps in ((127, 127), (8, -8)):
            values = array("f")
            for _ in range(60):
                peak = f32(rng.uniform(0.5, 2) * 2.0 ** rng.randrange(-20, 20))
                step = f32(peak / steps)
                halves = [(rng.randrange(-codes, codes) + 0.5) * step for _ in range(31)]
                values.extend([peak] + [v * (1 + rng.randrange(-4, 5) * 2.0**-23) for v in halves])
            self.every(values)

    def test_just_below_a_half_the_engine_s_sum_rounds_up(self) -> None:
        values = array("f", [127.0] + [0.49999997, -0.49999997, 0.5, -0.5, 0.49999994] * 51)
        self.every(values)
        self.assertEqual(list(struct.unpack("8b", blocks.q8_0_encode(values)[2:10])), [127, 1, -1, 1, -1, 0, 1, -1])

    def test_legacy_and_what_is_not_single_precision_is_left_to_the_plain_version(self) -> None:
        values = gauss(512)
        doubles = [rng.gauss(0, 1) for _ in range(512)]
        for name in self.NAMES:
            quick, plain = getattr(blocks, name), getattr(plain_blocks, name)
            self.assertEqual(quick(values, True), plain(values, True))
            self.assertEqual(quick(values, legacy=True), plain(values, legacy=True))
            self.assertEqual(quick(doubles), plain(doubles))
            self.assertEqual(quick(array("d", doubles)), plain(array("d", doubles)))
        for some in (doubles, values.tolist(), tuple(doubles), [1] * 256 + [2] * 256, [1e39] * 512, [NAN] * 512):
            self.assertEqual(repr(blocks.quantize_activation(some)), repr(plain_matmul.quantize_activation(some)))

    def test_g256_leaves_zeros_behind_the_last_full_group(self) -> None:
        for n in (256, 256 + 32, 512 - 32, 512 + 224, 320):
            self.same(blocks.g256_encode, plain_blocks.g256_encode, gauss(n))


class Decoders(Case):
    def every(self, data: dict[str, bytes]) -> None:
        for encoding, size in SIZES.items():
            quick, plain = getattr(blocks, encoding + "_decode"), getattr(plain_blocks, encoding + "_decode")
            for _ in range(2):  # with and without tables from before
                self.same(quick, plain, data[encoding])
            self.same(quick, plain, memoryview(data[encoding]))
            self.same(quick, plain, bytearray(data[encoding][: 20 * size]))

    def setUp(self) -> None:
        for tables in (blocks._q8_tables, blocks._q8_seen, blocks._q4_tables):
            tables.clear()  # type: ignore[attr-defined]

    def with_scales(self, scales: Sequence[int]) -> dict[str, bytes]:
        return {encoding: b"".join([struct.pack("<H", s) + noise(size - 2) for s in scales])
                for encoding, size in SIZES.items()}  # fmt: skip

    def test_numbers_of_blocks_around_the_thresholds(self) -> None:
        with mock.patch.object(blocks, "AT_ONCE", 16):
            for n in (0, 1, blocks.FEW - 1, blocks.FEW, blocks.FEW + 1, 15, 16, 17, 33):
                self.every(self.with_scales([0x2000 + i % 5 for i in range(n)]))
        self.every(self.with_scales([0x2000 + i % 50 for i in range(blocks.AT_ONCE + 1)]))

    def test_scales_that_are_zero_subnormal_infinite_and_nan(self) -> None:
        scales = [
            0x0000,
            0x8000,
            0x0001,
            0x8001,
            0x03FF,
            0x0400,
            0x7BFF,
            0xFBFF,
            0x7C00,
            0xFC00,
            0x7E00,
            0x3C00,
            0xBC00,
        ]
        self.every(self.with_scales(scales * 8))

    def test_every_code_with_some_scales(self) -> None:
        every = bytes(range(256))
        data = {"q8_0": b"", "q4_0": b""}
        for scale in (0x0001, 0x1234, 0x2FFF, 0x87FF, 0xABCD, 0x7BFF):
            for encoding, size in SIZES.items():
                for at in range(0, 256, size - 2):
                    data[encoding] += struct.pack("<H", scale) + every[at : at + size - 2]
        self.every(data)

    def test_scales_never_seen_before_and_more_than_are_kept(self) -> None:
        with mock.patch.object(blocks, "TABLES", 6):
            self.every(self.with_scales([rng.randrange(0x7C00) for _ in range(60)]))
            self.every(self.with_scales([0x2000 + i % 9 for i in range(120)]))
            self.assertLessEqual(len(blocks._q8_tables), 6)
            self.assertLessEqual(len(blocks._q4_tables), 6)

    def test_half_a_block_is_refused_alike(self) -> None:
        for encoding, size in SIZES.items():
            with self.assertRaises(UsageError):
                getattr(blocks, encoding + "_decode")(bytes(20 * size + 1))


class Tiles(Case):
    def every(self, layout: str, groups: int, across: int) -> None:
        height, size, _, _ = plain_tiles.LAYOUTS[layout]
        data = noise(groups * height * across * size)
        for kind in (bytes, memoryview):
            self.same(tiles.tile, plain_tiles.tile, kind(data), 32 * across, layout)
            self.same(tiles.untile, plain_tiles.untile, kind(data), 32 * across, layout)

    def test_every_layout_around_the_thresholds(self) -> None:
        for layout in plain_tiles.LAYOUTS:
            for groups, across in ((0, 4), (1, 1), (1, 15), (1, 16), (1, 17), (16, 1), (3, 7), (5, 8)):
                self.every(layout, groups, across)

    def test_every_layout_in_pieces_of_some_groups_and_of_some_tiles(self) -> None:
        for layout, (height, size, _, _) in plain_tiles.LAYOUTS.items():
            for at_once in (1, height * size, 5 * height * size, 17 * height * size + 3):
                with mock.patch.object(tiles, "AT_ONCE", at_once):
                    self.every(layout, 3, 17)
                    self.every(layout, 17, 2)

    def test_one_layout_made_of_another(self) -> None:
        for outer, inner in (("q8_8x8", "q8_4x4"), ("q4_8x8l", "q4_4x4")):
            size = plain_tiles.LAYOUTS[outer][1]
            data = noise(2 * 8 * 16 * size)
            self.same(tiles.untile, plain_tiles.untile, data, 512, "%s of %s" % (outer, inner))
            there = tiles.tile(tiles.tile(data, 512, inner), 512, outer)
            self.assertEqual(tiles.untile(there, 512, "%s of %s" % (outer, inner)), data)

    def test_an_unknown_layout_is_refused_alike(self) -> None:
        for function in (tiles.tile, plain_tiles.tile, tiles.untile, plain_tiles.untile):
            with self.assertRaises(UsageError):
                function(bytes(10000), 32, "q9")


class Products(Case):
    def every(
        self, data: bytes, activation: tuple[list[float], list[list[int]]], encoding: str, layout: str = "linear"
    ) -> None:
        cols = 32 * len(activation[0])
        self.same(matmul.matvec_quantized, plain_matmul.matvec_quantized, data, activation, encoding, layout)
        packed = matmul.multiplier(data, encoding, layout, cols)
        self.same(lambda a: packed(a), lambda a: plain_matmul.matvec_quantized(data, a, encoding, layout), activation)

    def matrix(self, encoding: str, rows: int, across: int, scales: Sequence[float] = (0.5, 0.013, -1.7)) -> bytes:
        size = SIZES[encoding]
        return b"".join([struct.pack("<e", rng.choice(scales)) + noise(size - 2) for _ in range(rows * across)])

    def activation(self, across: int, scale: float = 1.0) -> tuple[list[float], list[list[int]]]:
        return plain_matmul.quantize_activation(gauss(32 * across, scale))

    def test_numbers_of_rows_around_the_thresholds(self) -> None:
        for encoding in SIZES:
            for rows in (0, 1, matmul.FEW - 1, matmul.FEW, matmul.FEW + 1, 33):
                self.every(self.matrix(encoding, rows, 3), self.activation(3), encoding)
            self.every(self.matrix(encoding, 9, 1), self.activation(1), encoding)

    def test_rows_in_several_pieces(self) -> None:
        for encoding in SIZES:
            with mock.patch.object(matmul, "AT_ONCE", 1000):
                self.every(self.matrix(encoding, 50, 2), self.activation(2), encoding)

    def test_tiled_matrices(self) -> None:
        for layout, (_, size, _, _) in plain_tiles.LAYOUTS.items():
            encoding = {34: "q8_0", 18: "q4_0"}[size]
            for at_once in (1 << 22, 1000):
                with mock.patch.object(matmul, "AT_ONCE", at_once):
                    data = plain_tiles.tile(self.matrix(encoding, 24, 4), 128, layout)
                    self.every(data, self.activation(4), encoding, layout)
        for encoding, outer, inner in (("q8_0", "q8_8x8", "q8_4x4"), ("q4_0", "q4_8x8l", "q4_4x4")):
            data = plain_tiles.tile(plain_tiles.tile(self.matrix(encoding, 16, 4), 128, inner), 128, outer)
            self.every(data, self.activation(4), encoding, "%s of %s" % (outer, inner))

    def test_ordinary_matrices_are_not_handed_back(self) -> None:
        with mock.patch.object(matmul, "plain_matvec_quantized", side_effect=AssertionError("handed back")):
            for layout, (_, size, _, _) in [("linear", (0, 34, 0, 0)), *plain_tiles.LAYOUTS.items()]:
                encoding = {34: "q8_0", 18: "q4_0"}[size]
                data = self.matrix(encoding, 8, 4)
                if layout != "linear":
                    data = plain_tiles.tile(data, 128, layout)
                activation = self.activation(4)
                want = plain_matmul.matvec_quantized(data, activation, encoding, layout)
                self.assertEqual(matmul.matvec_quantized(data, activation, encoding, layout), want)
                self.assertEqual(matmul.multiplier(data, encoding, layout, 128)(activation), want)

    def test_the_largest_sums_fit_their_lanes(self) -> None:
        for encoding, size in SIZES.items():
            for x in (127, -127):
                for byte in (b"\x00", b"\x80", b"\x7f", b"\xff"):
                    data = (struct.pack("<e", 1.5) + byte * (size - 2) + struct.pack("<e", 2) + noise(size - 2)) * 9
                    self.every(data, ([1.0, 1.0], [[x] * 32, [x, -x] * 16]), encoding)

    def test_scales_that_are_zero_subnormal_infinite_and_nan(self) -> None:
        for encoding in SIZES:
            for scales in ((0.0, -0.0), (6e-8, -6e-8, 1.0), (INF, 1.0), (-INF, 0.5, INF), (NAN, 1.0), (65504.0,)):
                data = self.matrix(encoding, 12, 3, scales)
                for x in (self.activation(3), self.activation(3, 1e30), self.activation(3, 1e-30)):
                    self.every(data, x, encoding)
                self.every(data, ([1e38, 1e-45, 0.0], [[0] * 32, [1] * 32, [-1] * 32]), encoding)

    def test_results_that_are_minus_zero(self) -> None:
        for encoding, size in SIZES.items():
            data = (struct.pack("<e", -1.0) + noise(size - 2)) * 10
            self.every(data, ([1.0], [[0] * 32]), encoding)
            self.every(data, ([1e-45], [[1] + [0] * 31]), encoding)

    def test_scales_that_come_again_and_scales_that_do_not(self) -> None:
        for encoding in SIZES:
            self.every(self.matrix(encoding, 200, 1, (0.25, 0.5, -0.125)), self.activation(1), encoding)
            self.every(self.matrix(encoding, 60, 1, [i / 64 for i in range(1, 900)]), self.activation(1), encoding)
            self.every(self.matrix(encoding, 60, 1, (0.0, -0.0, 0.5)), self.activation(1), encoding)

    def test_codes_that_no_quantization_makes_are_left_to_the_plain_version(self) -> None:
        for encoding in SIZES:
            data = self.matrix(encoding, 12, 1)
            lowest = (struct.pack("<e", 0.5) + (b"\0" if encoding == "q4_0" else b"\x80") * (SIZES[encoding] - 2)) * 12
            for codes in ([-128] * 32, [128] * 32, [100000] * 32, [5] * 31, [-(1 << 40)] + [0] * 31):
                self.every(data, ([0.5], [codes]), encoding)
                self.every(lowest, ([0.5], [codes]), encoding)

    def test_a_packed_matrix_is_used_again(self) -> None:
        data = self.matrix("q8_0", 20, 2)
        packed = matmul.multiplier(data, "q8_0", "linear", 64)
        for _ in range(3):
            x = self.activation(2)
            self.assertEqual(packed(x), plain_matmul.matvec_quantized(data, x, "q8_0"))


if __name__ == "__main__":
    unittest.main()

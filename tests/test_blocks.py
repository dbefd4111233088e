"""Q8_0, Q4_0, q4i, g256 and Q2_1: the engine's hashes, gguf-py's values, numpy's codes, and the edges by hand.

The rules are those of spec sections 7 and 9. kat/files/numbers/blocks.json comes from kat/gen/blocks.py: there gguf-py
decodes, and numpy follows section 9 step by step in arrays of float32.
"""

from __future__ import annotations

import itertools
import math
import struct
import unittest
from array import array
from fractions import Fraction

from tests.samples import fnv1a64
from tests.test_floats import INF, NAN, f32_bytes, f32_sha256, stored
from tests.tools import thorough
from vqfref.quant import blocks, tiles

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, Sequence

    Values = Sequence[float]

ENCODERS: dict[str, Callable[..., bytes]] = {
    "q8_0": blocks.q8_0_encode,
    "g256": blocks.g256_encode,
    "q4_0": blocks.q4_0_encode,
    "q4i": blocks.q4i_encode,
    "q2_1": blocks.q2_1_encode,
}
UP, DOWN = 1 + 2.0**-23, 1 - 2.0**-24  # a number times these is its neighbour, where it is a power of two


def block(*first: float, rest: float = 0.0) -> array[float]:
    """32 values: these, and the rest alike."""
    return array("f", [*first] + [rest] * (32 - len(first)))


def q8(*first: float, rest: float = 0.0, legacy: bool = False) -> tuple[str, list[int]]:
    """(d as hex of its two bytes, the codes of the values given) of a Q8_0 block."""
    data = blocks.q8_0_encode(block(*first, rest=rest), legacy)
    return data[:2].hex(), list(struct.unpack("32b", data[2:]))[: len(first)]


def q4(*first: float, rest: float = 0.0, legacy: bool = False) -> tuple[str, list[int]]:
    """The same of a Q4_0 block, codes 0 to 15."""
    data = blocks.q4_0_encode(block(*first, rest=rest), legacy)
    return data[:2].hex(), ([b & 15 for b in data[2:]] + [b >> 4 for b in data[2:]])[: len(first)]


class Engine(unittest.TestCase):
    """The engine's kernel check: 96 rows of 4096 floats, encoded and tiled, against its own FNV-1a-64."""

    @thorough
    def test_kernel_check(self) -> None:
        x = 0x9E3779B9
        values = array("f")
        for _ in range(96 * 4096):
            x ^= x << 13 & 0xFFFFFFFF
            x ^= x >> 17
            x ^= x << 5 & 0xFFFFFFFF
            values.append(x >> 8)
        for step in (lambda v: v / 16777215, lambda v: v * 2, lambda v: v - 1):  # each rounded to single precision
            values = array("f", map(step, values))
        for row, new in ((32, [0.0] * 4096), (39, [0.0] * 4096), (80, [column % 7 - 1000 for column in range(4096)])):
            values[row * 4096 : (row + 1) * 4096] = array("f", new)
        self.assertEqual(fnv(struct.pack("<%df" % len(values), *values)), "46f6ece8297797c5", "the input itself")
        q8_0, q4_0 = blocks.q8_0_encode(values), blocks.q4_0_encode(values)
        self.assertEqual(fnv(q8_0), "1f98e05c86c6f599")
        self.assertEqual(fnv(q4_0), "4a1990fc330e1021")
        in_8x8, in_4x4 = tiles.tile(q8_0, 4096, "q8_8x8"), tiles.tile(q4_0, 4096, "q4_4x4")
        self.assertEqual(fnv(in_8x8), "28db4b9bffa3d4f5")
        self.assertEqual(fnv(in_4x4), "93bb0c8f1d22451d")
        self.assertEqual(tiles.untile(in_8x8, 4096, "q8_8x8"), q8_0)
        self.assertEqual(tiles.untile(in_4x4, 4096, "q4_4x4"), q4_0)


def fnv(data: bytes) -> str:
    return "%016x" % fnv1a64(data)


class Decoders(unittest.TestCase):
    def test_blocks_of_any_bits_have_gguf_py_s_values(self) -> None:
        for name, decode in (("q8_0", blocks.q8_0_decode), ("q4_0", blocks.q4_0_decode)):
            case = stored("blocks.json")["decode"][name]
            data = bytes.fromhex(case["blocks"])
            values = decode(data)
            self.assertEqual((values.typecode, len(values)), ("f", 160 * 32))
            self.assertEqual(f32_sha256(values), case["f32_sha256"], name)
            self.assertEqual(f32_sha256(decode(memoryview(data))), case["f32_sha256"], name)
            self.assertEqual(f32_sha256(decode(bytearray(data))), case["f32_sha256"], name)

    def test_q8_0_is_a_half_and_32_int8(self) -> None:
        data = struct.pack("<e32b", -0.5, *range(-16, 16))
        self.assertEqual(blocks.q8_0_decode(data).tolist(), [-0.5 * q for q in range(-16, 16)])
        extreme = struct.pack("<e32b", 2.0**-24, *[-128, 127] * 16)
        self.assertEqual(blocks.q8_0_decode(extreme).tolist(), [-128 * 2.0**-24, 127 * 2.0**-24] * 16)

    def test_q4_0_has_the_first_16_elements_in_the_low_nibbles(self) -> None:
        data = struct.pack("<e", 2.0) + bytes(j | (15 - j) << 4 for j in range(16))
        want = [2.0 * (j - 8) for j in range(16)] + [2.0 * (7 - j) for j in range(16)]
        self.assertEqual(blocks.q4_0_decode(data).tolist(), want)

    def test_blocks_follow_one_another(self) -> None:
        one, two = struct.pack("<e32b", 1, *[1] * 32), struct.pack("<e32b", 2, *[3] * 32)
        self.assertEqual(blocks.q8_0_decode(one + two).tolist(), [1.0] * 32 + [6.0] * 32)
        one, two = struct.pack("<e", 1) + b"\x99" * 16, struct.pack("<e", 2) + b"\xbb" * 16
        self.assertEqual(blocks.q4_0_decode(one + two).tolist(), [1.0] * 32 + [6.0] * 32)
        self.assertEqual([len(d(b"")) for d in (blocks.q8_0_decode, blocks.q4_0_decode, blocks.q2_1_decode)], [0, 0, 0])

    def test_q4i_decodes_as_q8_0_to_the_values_of_its_q4_0(self) -> None:
        values = array("f", numbers_of_blocks())
        as_q4_0 = blocks.q4_0_decode(blocks.q4_0_encode(values))
        as_q4i = blocks.q8_0_decode(blocks.q4i_encode(values))
        self.assertEqual(f32_bytes(as_q4i), f32_bytes(as_q4_0))

    def test_q2_1_has_two_halves_with_scale_and_minimum_each(self) -> None:
        data = struct.pack("<4e", 0.5, -1.0, 2.0, 10.0) + bytes([0b11100100] * 4) + bytes([0b00011011, 0xFF, 0, 0xAA])
        want = [-1.0, -0.5, 0.0, 0.5] * 4 + [16.0, 14.0, 12.0, 10.0] + [16.0] * 4 + [10.0] * 4 + [14.0] * 4
        self.assertEqual(blocks.q2_1_decode(data).tolist(), want)

    def test_q2_1_rounds_its_sum_to_single_precision(self) -> None:
        # 65504 + 3 * 2^-14 lies between two single-precision numbers, 2^-8 apart.
        data = struct.pack("<4e", 2.0**-14, 65504, 1 + 2.0**-10, 2048) + b"\xff" * 8
        want = [65504.0] * 16 + [nearest_single(Fraction(2048) + 3 * (1 + Fraction(1, 1024)))] * 16
        self.assertEqual(blocks.q2_1_decode(data).tolist(), want)


def numbers_of_blocks() -> list[float]:
    data = bytes.fromhex(stored("blocks.json")["values"])
    return list(struct.unpack("<%df" % (len(data) // 4), data))


def nearest_single(x: Fraction) -> float:
    """x, well inside the range, rounded to 24 binary digits, ties to even."""
    e = 0
    while abs(x) >= 1 << 24:
        x, e = x / 2, e + 1
    while 0 < abs(x) < 1 << 23:
        x, e = x * 2, e - 1
    return math.ldexp(round(x), e)


class Encoders(unittest.TestCase):
    def test_values_of_every_size_get_numpy_s_bytes(self) -> None:
        case = stored("blocks.json")
        values = array("f", numbers_of_blocks())
        self.assertEqual(sorted(case["encode"]), sorted(ENCODERS))
        for name, profiles in case["encode"].items():
            for legacy, want in profiles.items():
                got = ENCODERS[name](values, legacy == "True") if legacy == "True" else ENCODERS[name](values)
                size = {"q4_0": 18, "q2_1": 16}.get(name, 34)
                for i in range(0, len(values) // 32 * size, size):
                    self.assertEqual(got[i : i + size].hex(), want[2 * i : 2 * (i + size)], (name, legacy, i // size))
                self.assertEqual(len(got), len(want) // 2)

    def test_the_older_profile_is_another_one(self) -> None:
        case = stored("blocks.json")["encode"]
        for name in ("q8_0", "g256", "q4_0", "q4i"):
            self.assertNotEqual(case[name]["False"], case[name]["True"], name)

    def test_lists_arrays_and_memoryviews_of_the_same_values_give_the_same_bytes(self) -> None:
        values = array("f", numbers_of_blocks())
        for name, encode in ENCODERS.items():
            want = encode(values)
            self.assertEqual(encode(list(values)), want, name)
            self.assertEqual(encode(tuple(values)), want, name)
            self.assertEqual(encode(memoryview(values)), want, name)

    def test_no_values_are_no_bytes(self) -> None:
        for name, encode in ENCODERS.items():
            self.assertEqual(encode(array("f")), b"", name)


class Q80(unittest.TestCase):
    def test_a_block_of_zeros_is_34_zero_bytes(self) -> None:
        self.assertEqual(blocks.q8_0_encode(block()), bytes(34))
        self.assertEqual(blocks.q8_0_encode(block(rest=-0.0)), bytes(34))
        self.assertEqual(blocks.q8_0_encode(block(), True), bytes(34))

    def test_the_scale_is_the_largest_magnitude_over_127(self) -> None:
        self.assertEqual(q8(127.0, -64.0, 1.0), ("003c", [127, -64, 1]))
        self.assertEqual(q8(-254.0, 254.0, 2.0), ("0040", [-127, 127, 1]))

    def test_ties_go_away_from_zero(self) -> None:
        self.assertEqual(
            q8(127.0, 0.5, -0.5, 1.5, -1.5, 2.5, -2.5, 126.5, -126.5)[1], [127, 1, -1, 2, -2, 3, -3, 127, -127]
        )

    def test_the_half_is_added_in_single_precision(self) -> None:
        # 0.5 - 2^-25 plus 0.5 is 1 - 2^-25, which single precision rounds to 1.
        self.assertEqual(q8(127.0, 0.5 * DOWN, -0.5 * DOWN)[1], [127, 1, -1])
        self.assertEqual(q8(127.0, 1.5 - 2.0**-23, -(1.5 - 2.0**-23), 0.49999)[1], [127, 1, -1, 0])
        # Above 64 the sum keeps one digit less than the term: 65.5 - 2^-17 + 0.5 is 66 - 2^-17, which is a number.
        self.assertEqual(q8(127.0, 65.5 - 2.0**-17, 65.5)[1], [127, 65, 66])

    def test_codes_come_from_the_product_with_the_rounded_reciprocal(self) -> None:
        # Largest 1: s = f32(1 / 127), r = f32(1 / s). What r is off moves 0.5 / 127 * k over or under its tie.
        s = nearest_single(Fraction(1, 127))
        r = nearest_single(1 / Fraction(s))
        for k in range(1, 127, 2):
            x = nearest_single(Fraction(k, 254))
            t = nearest_single(Fraction(x) * Fraction(r))
            want = int(nearest_single(Fraction(t) + Fraction(1, 2)))
            self.assertEqual(q8(1.0, x, -x)[1], [127, want, -want], k)

    def test_codes_come_from_the_scale_before_it_is_rounded_to_a_half(self) -> None:
        # s = 127.0625 / 127 = 1.00049…, whose half is 1.0009…: with that the code of 63.54 would be 63
        self.assertEqual(q8(127.0625, 63.54), ("013c", [127, 64]))

    def test_codes_end_at_127(self) -> None:
        # The product can come to a hair above 127, never to 128 with its half: nothing is ever clamped.
        for a in (1.0, 1e-3, 3.3, 1e30, 3.4028234663852886e38):
            self.assertEqual(q8(a, -a)[1], [127, -127], a)

    def test_tiny_values_meet_the_floor_of_the_scale(self) -> None:
        tiny = nearest_single(Fraction(10) ** -10)
        # All below 1e-10 and up to 127 times it: s = 1e-10, which as a half is zero; the codes are what they are.
        self.assertEqual(q8(1e-12, -1e-12), ("0000", [0, 0]))
        self.assertEqual(q8(tiny, -tiny, 3 * tiny, 126 * tiny), ("0000", [1, -1, 3, 126]))
        self.assertEqual(q8(1e-45, -1e-45), ("0000", [0, 0]))
        self.assertEqual(q8(254 * tiny, 127 * tiny), ("0000", [127, 64]))

    def test_a_scale_below_the_smallest_half_is_zero_and_up_to_the_middle(self) -> None:
        self.assertEqual(q8(127 * 2.0**-25)[0], "0000")
        self.assertEqual(q8(127 * 2.0**-24)[0], "0100")
        self.assertEqual(q8(127 * 1.5 * 2.0**-24)[0], "0200")
        self.assertEqual(q8(127 * 2.0**-24, legacy=True)[0], "0000")
        self.assertEqual([q8(127 * 2.0**-14, legacy=flag)[0] for flag in (False, True)], ["0004", "0004"])

    def test_a_scale_too_large_for_a_half_is_infinite_and_the_codes_are_right(self) -> None:
        self.assertEqual(q8(127 * 65519.0, 127.0)[0], "ff7b")
        self.assertEqual(q8(127 * 65536.0, 65536.0, -65536.0 * 3), ("007c", [127, 1, -3]))
        self.assertEqual(q8(3.4028234663852886e38, -1e38), ("007c", [127, -37]))

    def test_a_nan_has_code_0_and_does_not_count_for_the_scale(self) -> None:
        self.assertEqual(q8(NAN, 127.0, -3.0, NAN), ("003c", [0, 127, -3, 0]))
        self.assertEqual(blocks.q8_0_encode(block(rest=NAN)), bytes(34))
        self.assertEqual(q8(NAN, 127.0, -0.5, legacy=True), ("003c", [0, 127, 0]))

    def test_an_infinity_makes_an_infinite_scale_and_codes_of_0(self) -> None:
        for strange in (INF, -INF):
            self.assertEqual(q8(strange, 1.0, -1e38, NAN), ("007c", [0, 0, 0, 0]))
            self.assertEqual(q8(strange, 1.0, -1e38, NAN, legacy=True), ("007c", [0, 0, 0, 0]))

    def test_the_older_profile_cuts_the_scale_and_rounds_negatives_up(self) -> None:
        got = q8(127.0, 0.5, -0.5, -0.6, 1.5, -1.5, -1.6, -2.5, -126.5, -127.0, legacy=True)
        self.assertEqual(got, ("003c", [127, 1, 0, 0, 2, -1, -1, -2, -126, -126]))
        self.assertEqual([q8(127 * (1 + 1.5 * 2.0**-10), legacy=flag)[0] for flag in (False, True)], ["023c", "013c"])
        self.assertEqual([q8(127 * 65535.0, legacy=flag)[0] for flag in (False, True)], ["007c", "ff7b"])


class Q40(unittest.TestCase):
    def test_a_block_of_zeros_has_scale_1_and_codes_of_8(self) -> None:
        for zero, legacy in itertools.product((0.0, -0.0), (False, True)):
            self.assertEqual(blocks.q4_0_encode(block(rest=zero), legacy).hex(), "003c" + "88" * 16)
        self.assertEqual(blocks.q4i_encode(block()).hex(), "003c" + "00" * 32)

    def test_the_largest_has_code_0_and_its_opposite_is_clamped_to_15(self) -> None:
        self.assertEqual(q4(-8.0, 8.0, 7.0, -7.0, 0.0, 1.0), ("003c", [0, 15, 15, 1, 8, 9]))
        self.assertEqual(q4(8.0, -8.0, 7.0, -7.0, 0.0, 1.0), ("00bc", [0, 15, 1, 15, 8, 7]))

    def test_the_first_of_equal_magnitudes_gives_the_sign(self) -> None:
        self.assertEqual(q4(1.0, -8.0, 8.0, -8.0), ("003c", [9, 0, 15, 0]))
        self.assertEqual(q4(1.0, 8.0, -8.0, 8.0), ("00bc", [7, 0, 15, 0]))
        self.assertEqual(q4(*[3.0] * 31, -8.0 * UP)[0], "003c")
        self.assertEqual(q4(8.0, *[0.0] * 30, -8.0 * UP)[0], "003c", "a larger one later wins all the same")

    def test_ties_go_up(self) -> None:
        self.assertEqual(q4(-8.0, 0.5, -0.5, 1.5, -1.5, 6.5, -7.5)[1], [0, 9, 8, 10, 7, 15, 1])

    def test_product_and_sum_are_rounded_one_after_the_other(self) -> None:
        # -0.5 and a hair: 8 - 2^-24 is no single-precision number, 8 is. In doubles, or fused, it would be 7.
        self.assertEqual(q4(-8.0, -0.5 * UP, -0.5 - 2.0**-22, -0.5 - 2.0**-21)[1], [0, 8, 8, 7])
        # M = -3: d = 0.375, i = f32(8 / 3). 0.5625 * i is just above 1.5 and rounds to it; the code is 10 either way.
        i = nearest_single(Fraction(8, 3))
        x = nearest_single(Fraction(15, 2) / Fraction(i))
        for value in (x, -x, x * UP, x * DOWN):
            value = nearest_single(Fraction(value))
            t = nearest_single(Fraction(value) * Fraction(i))
            want = min(15, int(nearest_single(Fraction(t) + Fraction(17, 2))))
            self.assertEqual(q4(-3.0, value), ("0036", [0, want]), value)

    def test_codes_come_from_the_scale_before_it_is_rounded_to_a_half(self) -> None:
        d = 1 + 2.0**-12  # as a half 1
        x = 6.5 * d - 2.0**-14  # 6.49994 of the true scale, more than 6.5 of the rounded one
        self.assertEqual((x > 6.5, q4(-8 * d, x)), (True, ("003c", [0, 14])))

    def test_a_scale_beyond_the_halves(self) -> None:
        self.assertEqual(q4(-8e6, 1e6), ("007c", [0, 9]))
        self.assertEqual(q4(8e6, 1e6), ("00fc", [0, 7]))
        self.assertEqual(q4(8e-9, -1e-9), ("0080", [0, 9]))
        self.assertEqual(q4(-(2.0**-21), 2.0**-24), ("0100", [0, 9]))
        self.assertEqual(q4(-(2.0**-21), 2.0**-24, legacy=True), ("0000", [0, 9]))

    def test_values_too_small_for_their_eighth_have_scale_1(self) -> None:
        # 2^-149 / -8 is zero in single precision, so d is 1 and every code 8; 2^-146 has d = -2^-149, 1 / d = -inf.
        self.assertEqual(q4(2.0**-149, -(2.0**-149)), ("003c", [8, 8]))
        self.assertEqual(q4(2.0**-146, -(2.0**-149)), ("0080", [0, 15]))
        self.assertEqual(q4(-(2.0**-146), 2.0**-149), ("0000", [0, 15]))

    def test_zeros_beside_an_infinite_reciprocal_are_a_nan_and_have_code_0(self) -> None:
        self.assertEqual(q4(-(2.0**-146), 0.0)[1], [0, 0])

    def test_the_largest_numbers(self) -> None:
        top = 3.4028234663852886e38
        self.assertEqual(q4(-top, top, top / 2, 0.0), ("007c", [0, 15, 12, 8]))

    def test_a_nan_has_code_0_and_does_not_count_for_the_scale(self) -> None:
        self.assertEqual(q4(NAN, -8.0, 1.0, NAN), ("003c", [0, 0, 9, 0]))
        self.assertEqual(blocks.q4_0_encode(block(rest=NAN)).hex(), "003c" + "00" * 16)

    def test_an_infinity_follows_the_arithmetic(self) -> None:
        # d = inf / -8, 1 / d = -0: finite values are at 8, infinity times zero is a NaN.
        self.assertEqual(q4(INF, 1.0, -1e38, NAN, -INF), ("00fc", [0, 8, 8, 0, 0]))
        self.assertEqual(q4(-INF, 1.0), ("007c", [0, 8]))

    def test_the_older_profile_cuts_the_scale_and_leaves_the_codes(self) -> None:
        m = -8 * (1 + 1.5 * 2.0**-10)
        self.assertEqual([q4(m, 1.0, legacy=flag) for flag in (False, True)], [("023c", [0, 9]), ("013c", [0, 9])])

    def test_element_j_is_in_the_low_nibble_of_byte_j_and_16_more_in_the_high_one(self) -> None:
        values = array("f", [*range(-8, 8), *range(7, -9, -1)])
        data = blocks.q4_0_encode(values)
        self.assertEqual(data.hex(), "003c" + "".join("%x%x" % (15 - j, j) for j in range(16)))
        self.assertEqual(blocks.q4_0_decode(data), values)

    def test_q4i_is_the_same_scale_and_the_codes_less_8_in_natural_order(self) -> None:
        values = array("f", [*range(-8, 8), *range(7, -9, -1)])
        self.assertEqual(blocks.q4i_encode(values), struct.pack("<e32b", 1, *map(int, values)))
        for legacy in (False, True):
            data, q4_0 = blocks.q4i_encode(block(-8e-9, 3e-9), legacy), blocks.q4_0_encode(block(-8e-9, 3e-9), legacy)
            self.assertEqual((data[:2], list(data[2:5])), (q4_0[:2], [248, 3, 0]))


class G256(unittest.TestCase):
    def test_eight_blocks_have_one_scale(self) -> None:
        values = array("f", [1.0] * 32 * 16)
        values[77], values[256 + 255] = -127.0, 254.0
        data = blocks.g256_encode(values)
        self.assertEqual({data[34 * b : 34 * b + 2].hex() for b in range(8)}, {"003c"})
        self.assertEqual({data[34 * b : 34 * b + 2].hex() for b in range(8, 16)}, {"0040"})
        decoded = blocks.q8_0_decode(data)
        self.assertEqual((decoded[0], decoded[77], decoded[255], decoded[511]), (1.0, -127.0, 1.0, 254.0))
        self.assertEqual(set(decoded[256:511]), {2.0}, "1 / 2 is a tie and goes up")

    def test_a_group_of_equal_blocks_is_q8_0(self) -> None:
        values = array("f", [math.sin(i) for i in range(32)] * 8)
        self.assertEqual(blocks.g256_encode(values), blocks.q8_0_encode(values))

    def test_what_is_left_behind_the_last_full_group_stays_zero_bytes(self) -> None:
        for n in (32, 224):
            self.assertEqual(blocks.g256_encode(array("f", [1.0] * n)), bytes(n // 32 * 34))
        for n in (256, 288, 480):
            data = blocks.g256_encode(array("f", [1.0] * n))
            self.assertEqual(data[: 8 * 34], blocks.q8_0_encode(array("f", [1.0] * 256)))
            self.assertEqual(data[8 * 34 :], bytes((n - 256) // 32 * 34))

    def test_lost_values_do_not_count_for_a_scale(self) -> None:
        values = array("f", [1.0] * 256 + [1e6] * 32)
        self.assertEqual(blocks.g256_encode(values)[:272], blocks.q8_0_encode(values[:256]))

    def test_zeros_nan_and_the_older_profile_are_as_in_q8_0(self) -> None:
        self.assertEqual(blocks.g256_encode(array("f", [0.0] * 256)), bytes(272))
        values = array("f", [127.0 * (1 + 1.5 * 2.0**-10), -0.6, NAN, -1.6] + [0.0] * 252)
        for legacy, start in ((False, "023c7fff00fe"), (True, "013c7f0000ff")):
            self.assertEqual(blocks.g256_encode(values, legacy)[:6].hex(), start)


class Q21(unittest.TestCase):
    def test_a_half_runs_from_its_minimum_in_thirds(self) -> None:
        data = blocks.q2_1_encode(array("f", [0.0, 1.0, 2.0, 3.0] * 4 + [-1.0, -0.5, 0.0, 0.5] * 4))
        self.assertEqual(data.hex(), "003c" + "0000" + "0038" + "00bc" + "e4" * 8)

    def test_element_i_is_in_byte_i_over_4_at_bit_2_times_its_rest(self) -> None:
        codes = [0, 3, 1, 2, 3, 0, 0, 0, 0, 0, 0, 3, 2, 2, 1, 1]
        data = blocks.q2_1_encode(array("f", codes * 2))
        self.assertEqual(data[8:12], bytes([0b10011100, 0b00000011, 0b11000000, 0b01011010]))
        self.assertEqual(data[12:], data[8:12])
        self.assertEqual(blocks.q2_1_decode(data).tolist(), codes * 2)

    def test_a_constant_half_has_scale_1_and_codes_of_0(self) -> None:
        self.assertEqual(
            blocks.q2_1_encode(array("f", [5.0] * 16 + [-2.0] * 16)).hex(), "003c0045" + "003c00c0" + "00" * 8
        )
        self.assertEqual(blocks.q2_1_encode(array("f", [0.0] * 32)).hex(), "003c0000" * 2 + "00" * 8)

    def test_ties_go_up(self) -> None:
        data = blocks.q2_1_encode(array("f", ([0.0, 3.0, 0.5, 1.5, 2.5, 0.5 - 2.0**-23] + [0.0] * 10) * 2))
        self.assertEqual([data[8] >> s & 3 for s in (0, 2, 4, 6)] + [data[9] & 3, data[9] >> 2 & 3], [0, 3, 1, 2, 3, 0])

    def test_codes_come_from_scale_and_minimum_before_they_are_rounded_to_halves(self) -> None:
        lo = 1 + 2.0**-12  # as a half 1
        data = blocks.q2_1_encode(array("f", [lo, lo + 3.0, lo + 0.49999, lo + 1.5] * 8))
        self.assertEqual(data.hex(), "003c003c" * 2 + "8c" * 8)

    def test_a_nan_has_code_0(self) -> None:
        data = blocks.q2_1_encode(array("f", ([0.0, 3.0, NAN, 2.0] + [1.0] * 12) * 2))
        self.assertEqual(data.hex(), "003c0000" * 2 + "8c555555" * 2)

    def test_what_is_not_finite_raises_nothing(self) -> None:
        for strange in (NAN, INF, -INF, 3.4e38, -3.4e38, 1e-45):
            data = blocks.q2_1_encode(block(strange, 1.0, -strange, rest=2.0))
            self.assertEqual((len(data), len(blocks.q2_1_decode(data))), (16, 32))


class Anything(unittest.TestCase):
    def test_what_is_not_finite_raises_nothing(self) -> None:
        strange = [NAN, INF, -INF, 3.4028234663852886e38, 2.0**-149, -(2.0**-146), 0.0, -0.0]
        for first, second in itertools.product(strange, repeat=2):
            values = array("f", [first, second, 1.0, second] * 64)
            for name, encode in ENCODERS.items():
                for legacy in (False,) if name == "q2_1" else (False, True):
                    data = encode(values, legacy) if legacy else encode(values)
                    self.assertEqual(len(data), 8 * {"q4_0": 18, "q2_1": 16}.get(name, 34), (name, first, second))

    def test_no_value_is_further_off_than_its_step_and_its_scale_s_rounding(self) -> None:
        values = array("f", [math.sin(i * i) * 2 ** (i // 32 % 10 - 3) for i in range(32 * 40)])
        for encode, decode, step in (
            (blocks.q8_0_encode, blocks.q8_0_decode, 0.5 / 127),
            (blocks.q4_0_encode, blocks.q4_0_decode, 1 / 8),  # a whole step for what is clamped to 15
            (blocks.q4i_encode, blocks.q8_0_decode, 1 / 8),
        ):
            again = decode(encode(values))
            for at in range(0, len(values), 32):
                largest = max(map(abs, values[at : at + 32]))
                worst = max(abs(a - b) for a, b in zip(values[at : at + 32], again[at : at + 32]))
                self.assertLessEqual(worst, largest * (step + 2.0**-10), (encode, at))


if __name__ == "__main__":
    unittest.main()

"""Halves, bf16 and single precision: every half, every boundary, both conversions to f16, both byte orders.

What is right comes from exact integers here and from numpy and gguf-py in kat/files/numbers/floats.json, which
kat/gen/blocks.py makes.
"""

from __future__ import annotations

import bisect
import hashlib
import json
import math
import struct
import sys
import types
import unittest
from array import array
from fractions import Fraction
from pathlib import Path
from unittest import mock

from vqfref.quant import floats

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Sequence

FILES = Path(__file__).resolve().parent.parent / "kat" / "files" / "numbers"
INF, NAN = math.inf, math.nan
FOREIGN = types.SimpleNamespace(
    byteorder="big" if sys.byteorder == "little" else "little", version_info=sys.version_info
)


def stored(name: str) -> Any:
    """A JSON file of kat/files/numbers."""
    return json.loads((FILES / name).read_text(encoding="utf-8"))


def numbers(text: str, code: str) -> list[Any]:
    """The little-endian numbers of a text of hex digits."""
    data = bytes.fromhex(text)
    return list(struct.unpack("<%d%s" % (len(data) // struct.calcsize("<" + code), code), data))


def f32_bytes(values: Sequence[float]) -> bytes:
    """Little-endian, every NaN as 0000c07f; the values are single-precision numbers."""
    return b"".join([struct.pack("<f", v) if v == v else b"\0\0\xc0\x7f" for v in values])


def f32_sha256(values: Sequence[float]) -> str:
    return hashlib.sha256(f32_bytes(values)).hexdigest()


def exact(x: float) -> int:
    """A finite single-precision number in units of 2^-149, of which it is a whole number."""
    n, d = x.as_integer_ratio()
    return n * ((1 << 149) // d)


def half(bits: int) -> int:
    """The magnitude of a finite half in the same units, by its definition: 5 bits of exponent, 10 of mantissa."""
    e, m = bits >> 10 & 31, bits & 1023
    return m << 125 if e == 0 else 1024 + m << 124 + e


HALVES = [half(bits) for bits in range(0x7C00)] + [65536 << 149]  # and what infinity rounds like


def nearest_half(x: float) -> int:
    """The bits of the half nearest to x, ties to the even one; by comparing exact integers."""
    sign = 0x8000 if math.copysign(1, x) < 0 else 0
    a = abs(exact(x))
    if a >= HALVES[-1]:
        return sign | 0x7C00
    low = bisect.bisect_right(HALVES, a) - 1
    below, above = a - HALVES[low], HALVES[low + 1] - a
    return sign | (low + (above < below or (above == below and low % 2 == 1)))


def truncated_half(x: float) -> int:
    """Section 9's other conversion: mantissa cut off, small ones zero, overflow infinite; by exact integers."""
    sign = 0x8000 if math.copysign(1, x) < 0 else 0
    a = abs(exact(x))
    if a >= HALVES[-1]:
        return sign | 0x7C00
    return sign | (bisect.bisect_right(HALVES, a) - 1 if a >= 1 << 135 else 0)


def near_every_half() -> array[float]:
    """Single-precision numbers: every eleventh half, the middle to the next one, and what lies beside that middle."""
    found = array("f")
    for low in [*range(0, 0x7C00, 11), 0x7BFF, 0x3FF, 0x400]:
        (middle,) = struct.unpack("<I", struct.pack("<f", math.ldexp(HALVES[low] + HALVES[low + 1], -150)))
        words = struct.pack("<3I", middle - 1, middle, middle + 1)
        found.extend([math.ldexp(HALVES[low], -149), *struct.unpack("<3f", words)])
    return found + array("f", [-v for v in found])


class Halves(unittest.TestCase):
    def test_all_65536_halves_have_numpy_s_values(self) -> None:
        every = struct.pack("<65536H", *range(65536))
        values = floats.f16_decode(every)
        self.assertEqual((values.typecode, len(values)), ("f", 65536))
        self.assertEqual(f32_sha256(values), stored("floats.json")["halves_f32_sha256"])
        self.assertEqual([floats.f16_value(bits) for bits in range(0x7C00)], list(values[:0x7C00]))

    def test_all_finite_halves_have_the_value_of_their_definition(self) -> None:
        every = floats.f16_decode(struct.pack("<65536H", *range(65536)))
        for bits in range(0x7C00):
            if (exact(every[bits]), exact(every[bits | 0x8000])) != (half(bits), -half(bits)):
                self.fail("0x%04x: %r, %r" % (bits, every[bits], every[bits | 0x8000]))
        self.assertEqual([every[0x7C00], every[0xFC00]], [INF, -INF])
        self.assertTrue(all(math.isnan(every[b]) for b in (*range(0x7C01, 0x8000), *range(0xFC01, 0x10000))))

    def test_landmarks(self) -> None:
        landmarks = {
            0x0001: 2.0**-24, 0x03FF: 1023 * 2.0**-24, 0x0400: 2.0**-14, 0x3555: 0.333251953125, 0x3C00: 1.0,
            0x3C01: 1.0009765625, 0xC000: -2.0, 0x7BFF: 65504.0, 0x7C00: INF, 0xFC00: -INF,
        }  # fmt: skip
        for bits, value in landmarks.items():
            self.assertEqual(list(floats.f16_decode(struct.pack("<H", bits))), [value])
            self.assertEqual(floats.f16_value(bits), value)
            self.assertEqual(
                (floats.f16_bits(value), floats.f16_bits_truncated(value)), (bits, bits if bits > 1023 else 0)
            )
        self.assertEqual(math.copysign(1, floats.f16_value(0x8000)), -1)

    def test_every_half_but_nan_comes_back(self) -> None:
        bits = [b for b in range(65536) if b & 0x7FFF <= 0x7C00]
        data = struct.pack("<%dH" % len(bits), *bits)
        self.assertEqual(floats.f16_encode(floats.f16_decode(data)), data)

    def test_the_bytes_may_be_of_any_kind(self) -> None:
        for data in (b"\0<\0\xc0", bytearray(b"\0<\0\xc0"), memoryview(b"-\0<\0\xc0-")[1:5]):
            self.assertEqual(floats.f16_decode(data).tolist(), [1.0, -2.0])
            self.assertEqual(floats.bf16_decode(data).tolist(), floats.f32_decode(b"\0\0\0<\0\0\0\xc0").tolist())
        self.assertEqual([len(f(b"")) for f in (floats.f16_decode, floats.bf16_decode, floats.f32_decode)], [0, 0, 0])


class ToHalves(unittest.TestCase):
    def test_nearest_even_around_every_boundary(self) -> None:
        values = near_every_half()
        got = struct.unpack("<%dH" % len(values), floats.f16_encode(values))
        wrong = [(x, bits, nearest_half(x)) for x, bits in zip(values, got) if bits != nearest_half(x)]
        self.assertEqual(wrong, [])

    def test_truncation_around_every_boundary(self) -> None:
        values = near_every_half()
        got = struct.unpack("<%dH" % len(values), floats.f16_encode_truncated(values))
        wrong = [(x, bits, truncated_half(x)) for x, bits in zip(values, got) if bits != truncated_half(x)]
        self.assertEqual(wrong, [])

    def test_numpy_s_halves(self) -> None:
        case = stored("floats.json")
        words, want = numbers(case["f32"], "I"), numbers(case["f16"], "H")
        values = floats.f32_decode(bytes.fromhex(case["f32"]))
        self.assertGreater(len(words), 1300)
        for word, x, bits in zip(words, values, want):
            if math.isnan(x):
                self.assertTrue(math.isnan(floats.f16_value(floats.f16_bits(x))), hex(word))
            elif floats.f16_bits(x) != bits:
                self.fail("0x%08x: 0x%04x, expected 0x%04x" % (word, floats.f16_bits(x), bits))

    def test_what_is_too_large_is_infinite_from_the_middle_on(self) -> None:
        for x, bits in (
            (65519.996, 0x7BFF), (65520.0, 0x7C00), (65535.996, 0x7C00), (65536.0, 0x7C00), (3.4028234663852886e38, 0x7C00),
            (1e300, 0x7C00), (INF, 0x7C00),
        ):  # fmt: skip
            self.assertEqual([floats.f16_bits(x), floats.f16_bits(-x)], [bits, bits | 0x8000], x)

    def test_what_is_too_small_is_zero_up_to_the_middle(self) -> None:
        for x, bits in (
            (2.0**-25, 0),
            (1.0000001 * 2**-25, 1),
            (1.5 * 2**-24, 2),
            (2.5 * 2**-24, 2),
            (1e-45, 0),
            (0.0, 0),
        ):
            self.assertEqual([floats.f16_bits(x), floats.f16_bits(-x)], [bits, bits | 0x8000], x)

    def test_a_double_is_rounded_once(self) -> None:
        # The middle of two halves and a hair: by way of single precision it would be the middle, and go down.
        self.assertEqual([floats.f16_bits(1 + 2.0**-11), floats.f16_bits(1 + 2.0**-11 + 2.0**-40)], [0x3C00, 0x3C01])

    def test_truncation_makes_small_ones_zero_and_large_ones_and_nan_infinite(self) -> None:
        for x, bits in (
            (2.0**-14, 0x0400), (2.0**-14 - 2.0**-38, 0), (2.0**-24, 0), (1e-45, 0), (0.0, 0), (1.9999999, 0x3FFF),
            (65504.0, 0x7BFF), (65535.996, 0x7BFF), (65536.0, 0x7C00), (98304.0, 0x7C00), (131071.0, 0x7C00), (3e38, 0x7C00),
            (INF, 0x7C00),
        ):  # fmt: skip
            self.assertEqual([floats.f16_bits_truncated(x), floats.f16_bits_truncated(-x)], [bits, bits | 0x8000], x)
        self.assertEqual(floats.f16_bits_truncated(NAN) & 0x7FFF, 0x7C00)
        self.assertEqual(floats.f16_encode_truncated([1.0, -1e9, NAN])[:4].hex(), "003c00fc")

    def test_a_nan_stays_one(self) -> None:
        self.assertTrue(math.isnan(floats.f16_value(floats.f16_bits(NAN))))
        self.assertTrue(all(map(math.isnan, floats.f16_decode(floats.f16_encode([NAN, -NAN])))))


class Bf16(unittest.TestCase):
    def test_every_bf16_is_the_upper_half_of_a_single(self) -> None:
        bits = [b for b in range(65536) if b & 0x7FFF <= 0x7F80]
        values = floats.bf16_decode(struct.pack("<%dH" % len(bits), *bits))
        self.assertEqual(floats.f32_encode(values), struct.pack("<%dI" % len(bits), *[b << 16 for b in bits]))
        nan = floats.bf16_decode(struct.pack("<254H", *range(0x7F81, 0x8000), *range(0xFF81, 0x10000)))
        self.assertTrue(all(map(math.isnan, nan)))

    def test_every_bf16_comes_back(self) -> None:
        bits = [b for b in range(65536) if b & 0x7FFF <= 0x7F80]
        data = struct.pack("<%dH" % len(bits), *bits)
        self.assertEqual(floats.bf16_encode(floats.bf16_decode(data)), data)
        strange = struct.pack("<254H", *range(0x7F81, 0x8000), *range(0xFF81, 0x10000))
        self.assertTrue(all(map(math.isnan, floats.bf16_decode(floats.bf16_encode(floats.bf16_decode(strange))))))

    def test_ties_go_to_the_even_one(self) -> None:
        for word, bits in (
            (0x3F808000, 0x3F80), (0x3F818000, 0x3F82), (0x3F807FFF, 0x3F80), (0x3F808001, 0x3F81), (0x00008000, 0),
            (0x00008001, 1), (0x00018000, 2), (0x7F7F7FFF, 0x7F7F), (0x7F7F8000, 0x7F80), (0x7F7FFFFF, 0x7F80),
        ):  # fmt: skip
            for sign in (0, 1):
                (x,) = struct.unpack("<f", struct.pack("<I", word | sign << 31))
                self.assertEqual(floats.bf16_encode([x]), struct.pack("<H", bits | sign << 15), hex(word))

    def test_a_nan_stays_one_whatever_its_payload(self) -> None:
        # Cut off, 7f800001 would be an infinity; rounded up, 7fffffff would be minus zero.
        words = (0x7F800001, 0x7F80FFFF, 0x7FC00000, 0x7FFFFFFF, 0xFF800001, 0xFFFFFFFF)
        values = floats.f32_decode(struct.pack("<6I", *words))
        got = struct.unpack("<6H", floats.bf16_encode(values))
        self.assertTrue(all(b & 0x7FFF > 0x7F80 for b in got), got)
        self.assertEqual([b >> 15 for b in got], [0, 0, 0, 0, 1, 1])

    def test_gguf_py_s_bf16(self) -> None:
        case = stored("floats.json")
        values = floats.f32_decode(bytes.fromhex(case["bf16_f32"]))
        self.assertGreater(len(values), 500)
        for x, word, got, want in zip(
            values,
            numbers(case["bf16_f32"], "I"),
            numbers(floats.bf16_encode(values).hex(), "H"),
            numbers(case["bf16"], "H"),
        ):
            if math.isnan(x):  # hosts differ about the payload of a signalling NaN that was a double
                self.assertTrue(got & 0x7FFF > 0x7F80 < want & 0x7FFF, hex(word))
            elif got != want:
                self.fail("0x%08x: 0x%04x, expected 0x%04x" % (word, got, want))


class Singles(unittest.TestCase):
    def test_doubles_are_rounded_as_numpy_rounds_them(self) -> None:
        case = stored("floats.json")
        doubles, want = numbers(case["doubles"], "d"), bytes.fromhex(case["doubles_f32"])
        self.assertGreater(len(doubles), 700)
        self.assertEqual(f32_bytes(floats.round_f32(doubles)), want)
        self.assertEqual(f32_bytes([floats.f32(x) for x in doubles]), want)
        self.assertEqual(floats.f32_encode(doubles), want)

    def test_beyond_the_range_is_infinite(self) -> None:
        edge = 2.0**128 - 2.0**103  # the middle between the largest and what would come next
        self.assertEqual([floats.f32(x) for x in (edge, -edge, 1e300)], [INF, -INF, INF])
        self.assertEqual(floats.f32(edge - 2.0**75), 2.0**128 - 2.0**104)
        self.assertEqual(floats.f32_encode([1e300, -1e300]).hex(), "0000807f000080ff")

    def test_small_ones_are_subnormal_and_zeros_keep_their_sign(self) -> None:
        self.assertEqual([floats.f32(x) for x in (2.0**-149, 1.5 * 2.0**-149, 2.0**-150)], [2.0**-149, 2.0**-148, 0.0])
        self.assertEqual(floats.f32_encode([-0.0, -1e-60]).hex(), "0000008000000080")

    def test_products_and_sums_in_doubles_rounded_once_are_those_of_single_precision(self) -> None:
        a, b = floats.f32(1 + 2.0**-23), floats.f32(1 - 2.0**-24)
        product = Fraction(a) * Fraction(b)  # 1 + 2^-24 - 2^-47: just below the middle of 1 and 1 + 2^-23
        self.assertEqual((product < 1 + Fraction(1, 1 << 24), floats.f32(a * b)), (True, 1.0))

    def test_bits_come_through(self) -> None:
        words = (0, 1, 0x80000000, 0x7F7FFFFF, 0x7F800000, 0xFF800000, 0x7FC12345, 0x3F800000)
        data = struct.pack("<8I", *words)
        self.assertEqual(floats.f32_encode(floats.f32_decode(data)), data)

    def test_lists_and_arrays_of_doubles_do_as_well(self) -> None:
        want = struct.pack("<3f", 1.5, -2.25, 1e10)
        for values in (
            [1.5, -2.25, 1e10],
            (1.5, -2.25, 1e10),
            array("d", [1.5, -2.25, 1e10]),
            iter([1.5, -2.25, 1e10]),
        ):
            self.assertEqual(floats.f32_encode(values), want)
        self.assertEqual(floats.f32_encode([]), b"")


class Finite(unittest.TestCase):
    def test_one_nan_or_infinity_anywhere_is_seen(self) -> None:
        for strange in (NAN, INF, -INF):
            for at in (0, 5, 9):
                values = array("f", range(10))
                values[at] = strange
                self.assertFalse(floats.all_finite(values))
                self.assertEqual(floats.count_nonfinite(values), (1, 0) if strange != strange else (0, 1))

    def test_infinities_that_cancel_are_seen(self) -> None:
        values = array("f", [1, INF, -INF, NAN, INF])
        self.assertFalse(floats.all_finite(values[:3]))
        self.assertEqual(floats.count_nonfinite(values), (1, 3))

    def test_the_largest_numbers_are_finite_however_many(self) -> None:
        self.assertTrue(floats.all_finite(array("f", [3.4028234663852886e38] * 5000)))
        self.assertTrue(floats.all_finite(array("f")))
        self.assertEqual(floats.count_nonfinite(array("f", [0.0, -3.4e38])), (0, 0))


class ByteOrder(unittest.TestCase):
    """On a host of the other byte order the words of an array must be turned. Here the host is told that it is such
    a one, so that what comes out is what a reader of the other order would see."""

    def test_bytes_are_turned_on_a_host_of_the_other_order(self) -> None:
        data = bytes.fromhex("3f80000040490fdbff7fffff00000001")
        with mock.patch.object(floats, "sys", FOREIGN):
            self.assertEqual(floats.f32_decode(data).tolist(), list(struct.unpack(">4f", data)))
            values = array("f", struct.unpack(">4f", data))
            self.assertEqual(floats.f32_encode(values), data)
            self.assertEqual(floats.f32_encode(values.tolist()), data)
            self.assertEqual(values.tolist(), list(struct.unpack(">4f", data)), "the array itself stays as it was")

    def test_halves_are_little_endian_on_every_host(self) -> None:
        with mock.patch.object(floats, "sys", FOREIGN):
            self.assertEqual(floats.f16_decode(b"\x00\x3c").tolist(), [1.0])
            self.assertEqual(floats.f16_encode([1.0]).hex(), "003c")
            self.assertEqual(floats.f16_encode_truncated([1.0]).hex(), "003c")

    def test_what_is_written_is_little_endian_on_this_host(self) -> None:
        self.assertEqual(floats.f32_encode(array("f", [1.0, -2.0])).hex(), "0000803f000000c0")
        self.assertEqual(floats.bf16_encode([1.0, -2.0]).hex(), "803f00c0")
        self.assertEqual(floats.f32_decode(bytes.fromhex("0000803f000000c0")).tolist(), [1.0, -2.0])
        self.assertEqual(floats.bf16_decode(bytes.fromhex("803f00c0")).tolist(), [1.0, -2.0])


if __name__ == "__main__":
    unittest.main()

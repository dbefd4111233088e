"""The floats of 8 and 4 bits, and FP8, F8Q8 and MXFP4: against the engine's layer, independent readings, and by hand."""

from __future__ import annotations

import bisect
import math
import random
import struct
import unittest
from array import array
from fractions import Fraction

from tests.test_kquants import f32, f32_sha256, stored
from vqfref.quant import minifloat as mf
from vqfref.quant.floats import bf16_decode, bf16_encode, f32_encode


def entry(name: str, key: str) -> bytes:
    data: str = stored("layer.json")["types"][name][key]
    return bytes.fromhex(data)


def source() -> array[float]:
    return bf16_decode(bytes.fromhex(stored("layer.json")["source"]))


def finite_e4m3() -> list[Fraction]:
    """The 127 values from 0 to 448 by walking: 16 steps of 2^-9, then eight at a time of twice the width before."""
    step, values = Fraction(1, 512), [Fraction(0)]
    while len(values) < 127:
        values.append(values[-1] + step)
        if len(values) % 8 == 1 and len(values) > 16:
            step *= 2
    return values


def bf16(x: float) -> float:
    return bf16_decode(bf16_encode([x]))[0]


class Bytes(unittest.TestCase):
    def test_all_256_values_of_e4m3(self) -> None:
        walked = finite_e4m3()
        self.assertEqual([Fraction(v) for v in mf.E4M3[:127]], walked)
        self.assertEqual([Fraction(-v) for v in mf.E4M3[128:255]], walked)
        self.assertTrue(math.isnan(mf.E4M3[127]) and math.isnan(mf.E4M3[255]))
        self.assertEqual([math.copysign(1, mf.E4M3[b]) for b in (0, 128)], [1, -1])

    def test_landmarks_of_e4m3(self) -> None:
        landmarks = {
            0x01: 0.001953125, 0x07: 0.013671875, 0x08: 0.015625, 0x09: 0.017578125, 0x38: 1.0, 0x39: 1.125,
            0x40: 2.0, 0x7D: 416.0, 0x7E: 448.0, 0xB8: -1.0, 0xFE: -448.0,
        }  # fmt: skip
        for byte, value in landmarks.items():
            self.assertEqual(list(mf.e4m3_decode(bytes([byte]))), [value])
            self.assertEqual(mf.e4m3_encode_byte(value), byte)

    def test_every_byte_of_e4m3_comes_back(self) -> None:
        self.assertEqual(mf.e4m3_encode(mf.E4M3[:255]), bytes(range(255)))
        self.assertIn(mf.e4m3_encode_byte(math.nan), (0x7F, 0xFF))

    def test_encoding_takes_the_nearest_value_and_of_two_the_even_byte(self) -> None:
        values = finite_e4m3()
        for byte, (low, high) in enumerate(zip(values, values[1:])):
            tie = float((low + high) / 2)
            self.assertEqual(mf.e4m3_encode_byte(tie), byte + byte % 2)
            self.assertEqual(mf.e4m3_encode_byte(-tie), 128 + byte + byte % 2)
            self.assertEqual(mf.e4m3_encode_byte(tie * (1 - 2**-24)), byte)
            self.assertEqual(mf.e4m3_encode_byte(tie * (1 + 2**-23)), byte + 1)

    def test_encoding_agrees_with_a_search_through_the_values(self) -> None:
        values = finite_e4m3()
        noise = random.Random(23)
        for _ in range(3000):
            x = f32(noise.uniform(0, 1) * 2.0 ** noise.randint(-12, 9))
            k = bisect.bisect_left(values, Fraction(x))
            near = [b for b in (k - 1, k) if 0 <= b < 127]
            want = min(near, key=lambda b: (abs(values[b] - Fraction(x)), b % 2))
            self.assertEqual(mf.e4m3_encode_byte(x), want, "%r" % x)

    def test_large_values_saturate_and_small_ones_keep_their_sign(self) -> None:
        for x in (448.0, 449.0, 464.0, 480.0, 1e9, 3e38, math.inf):
            self.assertEqual([mf.e4m3_encode_byte(v) for v in (x, -x)], [0x7E, 0xFE])
        for x in (0.0, 1e-45, 0.0009, 2.0**-10):
            self.assertEqual([mf.e4m3_encode_byte(v) for v in (x, -x)], [0x00, 0x80])

    def test_landmarks_of_e5m2_and_e8m0(self) -> None:
        pairs = {0x00: 0.0, 0x01: 2.0**-16, 0x04: 2.0**-14, 0x3C: 1.0, 0x3D: 1.25, 0x7B: 57344.0, 0x7C: math.inf}
        for byte, value in pairs.items():
            self.assertEqual(list(mf.e5m2_decode(bytes([byte, byte + 128]))), [value, -value])
        self.assertTrue(math.isnan(mf.E5M2[0x7D]) and math.isnan(mf.E5M2[0xFF]))
        self.assertEqual(list(mf.e8m0_decode(b"\x00\x01\x7f\x80\xfe")), [2.0**-127, 2.0**-126, 1.0, 2.0, 2.0**127])
        self.assertTrue(math.isnan(mf.E8M0[255]))

    def test_e5m2_is_the_upper_byte_of_a_half(self) -> None:
        for byte in range(256):
            (half,) = struct.unpack("<e", bytes([0, byte]))
            self.assertEqual(str(mf.E5M2[byte]).lstrip("-"), str(half).lstrip("-"))
            self.assertEqual(math.copysign(1, mf.E5M2[byte]), math.copysign(1, half))


class Fp8(unittest.TestCase):
    def test_the_layer_is_the_engine_s_both_ways(self) -> None:
        data, quant, dequant = mf.fp8_encode(source())
        self.assertEqual(data, entry("fp8", "weight"))
        self.assertEqual(f32_encode([quant]), entry("fp8", "weight.quant_scale"))
        for key in ("weight.dequant_w_scale", "weight.dequant_x_scale"):
            self.assertEqual(f32_encode([dequant]), entry("fp8", key))
        self.assertEqual(f32_sha256(mf.fp8_decode(data, dequant)), stored("layer.json")["types"]["fp8"]["f32_sha256"])

    def test_small_weights_share_the_scale_416(self) -> None:
        for x in (0.0, 1e-45, 0.5, 1.0):
            self.assertEqual(mf.fp8_encode(array("f", [x, 0.0]))[1:], (416.0, f32(1 / 416)))

    def test_larger_ones_have_a_bf16_that_takes_the_largest_near_416(self) -> None:
        data, quant, dequant = mf.fp8_encode(array("f", [3.0, -1.5, 100.0]))
        self.assertEqual(quant, bf16(416 * bf16(0.01)))
        self.assertEqual((quant, dequant), (4.15625, f32(1 / 4.15625)))
        self.assertEqual(list(mf.e4m3_decode(data)), [12.0, -6.0, 416.0])  # 12.5 is a tie: bytes 54 and 55

    def test_every_product_is_rounded_to_bf16_before_it_becomes_a_byte(self) -> None:
        values = array("f", [bf16(v * 0.37 + 0.01) for v in range(1, 300)])
        data, quant, _ = mf.fp8_encode(values)
        self.assertEqual(data, bytes([mf.e4m3_encode_byte(bf16(v * quant)) for v in values]))

    def test_values_are_e4m3_times_the_scale_in_single_precision(self) -> None:
        scale = f32(0.1)
        values = mf.fp8_decode(bytes(range(127)), scale)
        self.assertEqual(list(values), [f32(float(v) * scale) for v in finite_e4m3()])


class F8q8(unittest.TestCase):
    def test_the_layer_is_the_engine_s_both_ways(self) -> None:
        data = mf.f8q8_encode(source())
        self.assertEqual(data, entry("f8q8", "weight"))
        self.assertEqual(f32_sha256(mf.f8q8_decode(data, 2048)), stored("layer.json")["types"]["f8q8"]["f32_sha256"])

    def test_the_scale_is_divided_by_416(self) -> None:
        block = bytes([0x7D]) + struct.pack("<32b", *range(-16, 16))
        self.assertEqual(list(mf.f8q8_decode(block, 32)), list(range(-16, 16)))
        self.assertEqual(mf.f8q8_decode(b"\x38" + bytes([3]) * 32, 1)[0], f32(3 * f32(1 / 416)))

    def test_the_last_block_is_padded_with_zeros_which_decoding_drops(self) -> None:
        values = array("f", [127.0] * 40)
        data = mf.f8q8_encode(values)
        self.assertEqual(data, b"\x7d" + b"\x7f" * 32 + b"\x7d" + b"\x7f" * 8 + bytes(24))
        self.assertEqual(mf.f8q8_decode(data, 40), values)
        self.assertEqual((mf.f8q8_encode([]), len(mf.f8q8_decode(b"", 0))), (b"", 0))

    def test_beyond_136_8_the_scale_saturates(self) -> None:
        for amax, byte in ((130.0, 0x7D), (136.0, 0x7E), (1000.0, 0x7E), (3e38, 0x7E)):
            self.assertEqual(mf.f8q8_encode(array("f", [amax] * 32)), bytes([byte]) + b"\x7f" * 32)

    def test_codes_come_from_the_scale_before_it_is_rounded(self) -> None:
        data = mf.f8q8_encode(array("f", [1.27, 0.635, -0.005, 0.0] + [0.0] * 28))
        self.assertEqual(struct.unpack("<B4b", data[:5])[1:], (127, 64, -1, 0))
        self.assertEqual(mf.E4M3[data[0]], 4.0)  # of 4.16

    def test_every_operation_is_rounded(self) -> None:
        noise = random.Random(9)
        for _ in range(100):
            x = [f32(noise.gauss(0, 0.05)) for _ in range(32)]
            d = f32(max(map(abs, x)) / 127)
            scaled = [f32(v * f32(1 / d)) for v in x]
            codes = [int(math.copysign(math.floor(abs(t) + 0.5), t)) for t in scaled]
            want = struct.pack("<B32b", mf.e4m3_encode_byte(f32(d * 416)), *codes)
            self.assertEqual(mf.f8q8_encode(array("f", x)), want)

    def test_zeros_and_what_is_too_small_to_invert(self) -> None:
        self.assertEqual(mf.f8q8_encode([0.0, -0.0] * 16), bytes(33))
        self.assertEqual(mf.f8q8_encode(array("f", [1e-42, -1e-42] * 16)), b"\0" + b"\x7f\x80" * 16)


class Mxfp4(unittest.TestCase):
    def test_the_layer_is_the_engine_s_both_ways(self) -> None:
        packed, scales = mf.mxfp4_encode(source())
        self.assertEqual((packed, scales), (entry("mxfp4", "weight"), entry("mxfp4", "weight.scales")))
        values = mf.mxfp4_decode(packed, scales)
        self.assertEqual(f32_sha256(values), stored("layer.json")["types"]["mxfp4"]["f32_sha256"])

    def test_elements_lie_two_in_a_byte_the_even_one_low(self) -> None:
        packed = bytes([0x10, 0x32, 0x54, 0x76, 0x98, 0xBA, 0xDC, 0xFE] * 2)
        want = [0, 0.5, 1, 1.5, 2, 3, 4, 6, 0, -0.5, -1, -1.5, -2, -3, -4, -6] * 2
        values = mf.mxfp4_decode(packed, b"\x7f")
        self.assertEqual(list(values), want)
        self.assertEqual(math.copysign(1, values[8]), -1)
        self.assertEqual(list(mf.mxfp4_decode(packed * 2, b"\x80\x7d")), [2 * v for v in want] + [v / 4 for v in want])

    def test_scale_bytes_at_the_ends(self) -> None:
        packed = bytes([0x20, 0x0A] + [0x22] * 14)
        self.assertEqual(list(mf.mxfp4_decode(packed, b"\x01"))[:4], [0.0, 2.0**-126, -(2.0**-126), 0.0])
        self.assertEqual(list(mf.mxfp4_decode(packed, b"\xfe"))[:4], [0.0, 2.0**127, -(2.0**127), 0.0])
        self.assertEqual(list(mf.mxfp4_decode(packed, b"\x00")), [0.0] * 32)
        first, second, third, *_ = mf.mxfp4_decode(packed, b"\xff")
        self.assertTrue(math.isnan(first))
        self.assertEqual((second, third), (math.inf, -math.inf))

    def test_a_value_on_a_threshold_takes_the_larger_code(self) -> None:
        thresholds = [0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0]
        below = [t * (1 - 2**-20) for t in thresholds]
        packed, scales = mf.mxfp4_encode(array("f", [6.0, 0.0] + thresholds + below + [-5.0, -0.25] + [0.0] * 14))
        codes = [code for byte in packed for code in (byte & 15, byte >> 4)]
        self.assertEqual(scales, b"\x7f")
        self.assertEqual(codes, [7, 0] + [1, 2, 3, 4, 5, 6, 7] + [0, 1, 2, 3, 4, 5, 6] + [15, 9] + [0] * 14)

    def test_a_negative_value_that_rounds_to_zero_is_minus_zero_and_a_negative_zero_is_zero(self) -> None:
        packed, _ = mf.mxfp4_encode(array("f", [-0.1, -0.0, 6.0, 0.0] + [0.0] * 28))
        self.assertEqual(packed[:2].hex(), "0807")

    def test_the_scale_is_the_power_of_two_that_keeps_the_largest_at_6_or_saturates(self) -> None:
        # largest value: scale byte; above 6 up to 12 the same power serves, and 6 is the end of the codes
        pairs = {0.0: 127, 6.0: 127, 11.9: 127, 12.0: 128, 5.99: 126, 3.0: 126, 1e-45: 0, 3e38: 252, 2.0**-126: 0}
        for amax, byte in pairs.items():
            self.assertEqual(list(mf.mxfp4_encode(array("f", [amax] + [0.0] * 31))[1]), [byte], amax)
        self.assertEqual(mf.mxfp4_encode(array("f", [11.9] + [0.0] * 31))[0][0], 7)

    def test_a_hair_below_a_power_of_two_counts_as_the_power(self) -> None:
        # the logarithm in single precision of 32 * (1 - 2^-24) is 5; in double precision it would be below
        self.assertEqual(mf.mxfp4_encode(array("f", [192.0 * (1 - 2**-24)] + [0.0] * 31))[1], b"\x84")


class Strange(unittest.TestCase):
    def test_what_is_not_finite_raises_nothing(self) -> None:
        for strange in (math.nan, math.inf, -math.inf, 3.4e38, 1e-45):
            values = array("f", [strange, -strange, 1.0, 0.0] * 8)
            self.assertEqual(len(mf.fp8_encode(values)[0]), 32)
            self.assertEqual(len(mf.f8q8_encode(values)), 33)
            self.assertEqual(len(mf.mxfp4_encode(values)[0]), 16)
        self.assertEqual(mf.fp8_encode([])[0], b"")


if __name__ == "__main__":
    unittest.main()

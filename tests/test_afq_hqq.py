"""AFQ and HQQ: against the engine's layers, and by hand where no file of the engine has been seen."""

from __future__ import annotations

import math
import random
import struct
import unittest
from array import array

from tests.test_kquants import f32, f32_sha256, stored
from vqfref.quant.afq import BITS, GROUP_SIZES, afq_decode, afq_encode
from vqfref.quant.floats import bf16_decode, f16_decode, f16_encode, f32_decode, f32_encode
from vqfref.quant.hqq import SHIFTS, hqq_decode, hqq_encode

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def entry(name: str, key: str) -> bytes:
    data: str = stored("layer.json")["types"][name][key]
    return bytes.fromhex(data)


def floats(name: str, key: str) -> array[float]:
    return f32_decode(entry(name, key))


def source() -> array[float]:
    return bf16_decode(bytes.fromhex(stored("layer.json")["source"]))


class Afq(unittest.TestCase):
    def test_layers_decode_to_the_engine_s_values(self) -> None:
        for bits in BITS:
            name = "afq%d" % bits
            values = afq_decode(
                entry(name, "weight"), floats(name, "weight.scales"), floats(name, "weight.biases"), bits, 64
            )
            self.assertEqual(f32_sha256(values), stored("layer.json")["types"][name]["f32_sha256"], name)

    def test_layers_encode_to_the_engine_s_bytes(self) -> None:
        for bits in BITS:
            name = "afq%d" % bits
            packed, scales, biases = afq_encode(source(), bits)
            got = [packed, f32_encode(scales), f32_encode(biases)]
            self.assertEqual(got, [entry(name, k) for k in ("weight", "weight.scales", "weight.biases")], name)

    def test_codes_are_one_stream_of_bits_lowest_first_and_straddle_words(self) -> None:
        noise = random.Random(11)
        for bits in BITS:
            for size in GROUP_SIZES:
                codes = [noise.randrange(1 << bits) for _ in range(2 * size)]
                text = "".join([format(code, "0%db" % bits) for code in reversed(codes)])  # bit 0 is the last digit
                packed = int(text, 2).to_bytes(2 * size * bits // 8, "little")
                self.assertEqual(list(afq_decode(packed, [1.0, 1.0], [0.0, 0.0], bits, size)), codes)
                (first,) = struct.unpack_from("<I", packed)
                self.assertEqual(first & (1 << bits) - 1, codes[0])

    def test_an_encoded_stream_reads_back(self) -> None:
        for bits in BITS:
            for size in GROUP_SIZES:
                top = (1 << bits) - 1
                steps = [float(j * 5 % (top + 1)) for j in range(size - 2)]
                values = array("f", [0.0, float(top)] + steps + [-float(top), 0.0] * (size // 2))
                packed, scales, biases = afq_encode(values, bits, size)
                self.assertEqual((len(packed), list(scales), list(biases)), (size * bits // 4, [1.0, 1.0], [0.0, -top]))
                self.assertEqual(afq_decode(packed, scales, biases, bits, size), values)

    def test_product_and_sum_are_rounded_one_after_the_other(self) -> None:
        scale, bias = f32(0.1), f32(-3.3)
        values = afq_decode(bytes(range(32)), [scale], [bias], 8, 32)
        self.assertEqual(list(values), [f32(bias + f32(scale * code)) for code in range(32)])
        self.assertNotEqual(list(values), [f32(bias + scale * code) for code in range(32)])

    def test_a_group_without_spread_has_scale_1(self) -> None:
        packed, scales, biases = afq_encode(array("f", [0.3] * 64 + [0.0, 9e-13] * 32), 4)
        self.assertEqual((packed, list(scales), list(biases)), (bytes(64), [1.0, 1.0], [f32(0.3), 0.0]))
        packed, scales, _ = afq_encode(array("f", [0.0, 2e-12] * 32), 4)
        self.assertEqual((packed, scales[0] < 1e-12), (b"\xf0" * 32, True))

    def test_codes_are_rounded_half_away_from_zero_and_never_above_the_top(self) -> None:
        packed, _, _ = afq_encode(array("f", [0.0, 0.5, 1.5, 2.5, 14.5, 15.0, 0.25, 0.75] + [1.0] * 56), 4)
        self.assertEqual(packed[:4].hex(), "1032ff10")

    def test_what_is_not_finite_raises_nothing(self) -> None:
        for strange in (math.nan, math.inf, -math.inf, 3.4e38):
            self.assertEqual(len(afq_encode(array("f", [strange, -strange] * 32), 3)[0]), 24)


class Hqq(unittest.TestCase):
    def layer(self, bits: int) -> Any:
        return stored("layer.json")["types"]["hqq%d" % bits]

    def test_layers_decode_to_the_engine_s_values(self) -> None:
        for bits in (4, 8):
            name = "hqq%d" % bits
            values = hqq_decode(
                entry(name, "weight"), floats(name, "weight.scales"), floats(name, "weight.zeros"), bits, 64, 2048
            )
            self.assertEqual(f32_sha256(values), self.layer(bits)["f32_sha256"], name)

    def test_layers_encode_to_the_engine_s_bytes(self) -> None:
        for bits in (4, 8):
            packed, scales, zeros = hqq_encode(source(), bits)
            got = [packed, f32_encode(scales), f32_encode(zeros)]
            self.assertEqual(got, [entry("hqq%d" % bits, k) for k in ("weight", "weight.scales", "weight.zeros")])

    def test_a_word_holds_rows_a_step_apart_the_first_highest(self) -> None:
        noise = random.Random(17)
        columns = 3
        for bits in (8, 4, 2, 1, 3):
            for group in (64, 80, 16):
                fields, word = (10, "<i") if bits == 3 else (8 // bits, "<B")
                rows = -(-group // fields) * fields  # whole words, with rows of padding for 3 bits
                step = rows // fields
                code = [[noise.randrange(1 << bits) for _ in range(columns)] for _ in range(group)]
                padded = code + [[0] * columns for _ in range(rows - group)]
                packed = bytearray()
                for p in range(step):
                    for c in range(columns):
                        value = 0
                        for block in range(fields):
                            value = value << bits | padded[block * step + p][c]
                        packed += struct.pack(word, value)
                scales, zeros = [1.0, 0.5, -2.0], [0.0, 1.5, 0.25]
                want = [(code[r][c] - zeros[c]) * scales[c] for r in range(group) for c in range(columns)]
                got = hqq_decode(bytes(packed), scales, zeros, bits, group, group * columns)
                self.assertEqual(list(got), want, "%d bits, groups of %d" % (bits, group))

    def test_the_fields_of_every_width_are_those_of_the_specification(self) -> None:
        self.assertEqual({bits: len(shifts) for bits, shifts in SHIFTS.items()}, {8: 1, 4: 2, 3: 10, 2: 4, 1: 8})
        for bits, shifts in SHIFTS.items():
            self.assertEqual(list(shifts), list(range((len(shifts) - 1) * bits, -1, -bits)))

    def test_difference_and_product_are_rounded_to_the_dtype_of_the_scales(self) -> None:
        scale, zero, codes = f16_decode(f16_encode([0.1]))[0], f16_decode(f16_encode([7.77]))[0], bytes(range(200, 216))
        f32s = [f32(f32(c - zero) * scale) for c in codes]
        f16s = [f16_decode(f16_encode([f16_decode(f16_encode([c - zero]))[0] * scale]))[0] for c in codes]
        self.assertEqual(list(hqq_decode(codes, [scale], [zero], 8, 16, 16)), f32s)
        self.assertEqual(list(hqq_decode(codes, [scale], [zero], 8, 16, 16, "F16")), f16s)
        self.assertNotEqual(f32s, f16s)
        # 200 - 7.75 = 192.25, as a bf16 192; times 0.1001 = 0.10009765625 is 19.21875, as a bf16 19.25
        scale = bf16_decode(b"\xcd\x3d")[0]
        self.assertEqual(list(hqq_decode(b"\xc8" * 2, [scale], [7.75], 8, 2, 2, "BF16")), [19.25] * 2)

    def test_a_column_of_one_value_has_the_largest_scale_there_is(self) -> None:
        packed, scales, zeros = hqq_encode(array("f", [0.0] * 128), 8)
        self.assertEqual((packed, list(scales), list(zeros)), (bytes(128), [f32(1 / 20000)] * 2, [0.0, 0.0]))

    def test_columns_are_groups_and_rows_of_the_weight_do_not_matter(self) -> None:
        values = array("f", [float(r * (c + 1)) for r in range(64) for c in range(4)])
        packed, scales, zeros = hqq_encode(values, 8)
        self.assertEqual((len(packed), len(scales), len(zeros)), (256, 4, 4))
        back = hqq_decode(packed, scales, zeros, 8, 64, 256)
        for c in range(4):
            worst = max([abs(a - b) for a, b in zip(values[c::4], back[c::4])])
            self.assertLess(worst, 63 * (c + 1) / 255, "column %d" % c)

    def test_what_is_not_finite_raises_nothing(self) -> None:
        for strange in (math.nan, math.inf, -math.inf, 3.4e38):
            for bits in (4, 8):
                self.assertEqual(len(hqq_encode(array("f", [strange, -strange, 1.0, 0.0] * 32), bits)[0]), 16 * bits)


if __name__ == "__main__":
    unittest.main()

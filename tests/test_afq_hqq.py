"""AFQ and HQQ: against the engine's layers, and by hand where no file of the engine has been seen."""

from __future__ import annotations

import math
import random
import struct
import unittest
from array import array

from tests.test_kquants import f32, f32_sha256, stored
from vqfref.quant.afq import BITS, GROUP_SIZES, afq_decode, afq_encode
from vqfref.quant.floats import bf16_decode, bf16_encode, f16_decode, f16_encode, f32_decode, f32_encode
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


# ---- a naive reading of section 16: one element at a time, every operation rounded


def away(x: float) -> int:
    """The nearest integer, ties away from zero."""
    return int(math.copysign(math.floor(abs(x) + 0.5), x))


def naive_afq(group: list[float], bits: int) -> tuple[list[int], float, float]:
    low, high = min(group), max(group)
    spread, top = f32(high - low), (1 << bits) - 1
    scale = f32(spread / top) if spread >= 1e-12 else 1.0
    return [min(top, max(0, away(f32(f32(x - low) / scale)))) for x in group], scale, low


def naive_hqq(values: list[float], bits: int) -> tuple[list[int], list[float], list[float], int]:
    """(codes, scales before they are inverted, zeros, rounds)."""
    columns, top = range(len(values) // 64), (1 << bits) - 1
    s, z = [], []
    for c in columns:
        w = values[c :: len(columns)]
        s.append(min(20000.0, f32(top * f32(1 / f32(max(w) - min(w))))))
        z.append(f32(-min(w) * s[c]))

    def quantize(f: int) -> int:
        c = f % len(columns)
        return min(top, max(0, away(f32(f32(values[f] * s[c]) + z[c]))))

    best, rounds = math.inf, 0
    for k in range(10):
        rounds += 1
        beta, sums, error = f32(10 * 1.01**k), [0.0] * len(columns), 0.0
        for f, w_f in enumerate(values):
            c, q = f % len(columns), quantize(f)
            difference = f32(w_f - f32(f32(q - z[c]) / s[c]))
            a, e = abs(difference), 0.0
            if a:
                e = math.copysign(max(0.0, f32(a - f32(f32(a ** f32(0.7 - 1)) / beta))), difference)
            sums[c] = f32(sums[c] + f32(q - f32(f32(w_f - e) * s[c])))
            error = f32(error + a)
        z = [f32(v / 64) for v in sums]
        error = f32(error / len(values))
        if error >= best:
            break
        best = error
    return [quantize(f) for f in range(len(values))], s, z, rounds


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

    def test_every_operation_of_the_encoder_is_rounded(self) -> None:
        noise = random.Random(5)
        for bits in BITS:
            groups = [[f32(noise.randrange(5 + 9 * g) / 512 - 0.1) for _ in range(64)] for g in range(40)]
            packed, scales, biases = afq_encode(array("f", [x for group in groups for x in group]), bits)
            codes = afq_decode(packed, [1.0] * 40, [0.0] * 40, bits, 64)
            got = [(list(codes[64 * g : 64 * g + 64]), scales[g], biases[g]) for g in range(40)]
            self.assertEqual(got, [naive_afq(group, bits) for group in groups])

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

    def test_every_operation_of_the_encoder_is_rounded_where_outliers_count_too(self) -> None:
        # The error of a layer's usual weights never passes the soft threshold of 0.17: these do.
        noise = random.Random(8)
        seen = set()
        for width, bits in ((0.05, 4), (1.0, 4), (8.0, 4), (40.0, 4), (0.05, 8), (100.0, 8), (1000.0, 8), (9.0, 8)):
            values = [bf16_decode(bf16_encode([noise.gauss(0, width)]))[0] for _ in range(384)]
            codes, s, zeros, rounds = naive_hqq(values, bits)
            packed, got_scales, got_zeros = hqq_encode(array("f", values), bits)
            got = hqq_decode(packed, [1.0] * 6, [0.0] * 6, bits, 64, 384)
            want = (codes, [f32(1 / v) for v in s], zeros)
            self.assertEqual((list(got), list(got_scales), list(got_zeros)), want, (width, bits))
            seen.add(rounds)
        self.assertTrue(10 in seen and min(seen) < 10, "searches that end early, and one that does not: %s" % seen)

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

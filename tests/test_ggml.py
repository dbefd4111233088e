"""GGML's types of 32 elements and fewer, and the table of all: against the engine's bytes, gguf-py's, and by hand."""

from __future__ import annotations

import hashlib
import math
import struct
import unittest
from array import array

from tests.test_kquants import f32_sha256, stored
from vqfref.errors import UsageError
from vqfref.quant import afq, blocks, floats, ggml, minifloat
from vqfref.quant.floats import bf16_decode, f32_decode, f32_encode

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Sequence

# section 6.1, line by line
TABLE = """
0 f32 1 4
1 f16 1 2
2 q4_0 32 18
3 q4_1 32 20
6 q5_0 32 22
7 q5_1 32 24
8 q8_0 32 34
9 q8_1 32 36
10 q2k 256 84
11 q3k 256 110
12 q4k 256 144
13 q5k 256 176
14 q6k 256 210
15 q8k 256 292
30 bf16 1 2
"""
OF_32 = ("q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "q8_1")
CODES = bytes(range(0x10, 0x20))  # nibbles: element j is j, element 16 + j is 1


def one(name: str, block: str) -> list[float]:
    return list(ggml.decode(name, bytes.fromhex(block)))


def block(name: str, values: Sequence[float]) -> str:
    """The block of values that are followed by zeros, in hex."""
    return ggml.encode(name, array("f", [*values] + [0.0] * (32 - len(values)))).hex()


class Table(unittest.TestCase):
    def test_codes_names_and_sizes_are_those_of_the_specification(self) -> None:
        lines = ["%d %s %d %d" % t for t in ggml.TYPES.values()]
        self.assertEqual(lines, TABLE.split("\n")[1:-1])
        self.assertEqual([t.code for t in ggml.TYPES.values()], list(ggml.TYPES))

    def test_every_type_encodes_and_decodes_whole_blocks(self) -> None:
        for t in ggml.TYPES.values():
            data = ggml.encode(t.name, array("f", [0.5, -1.0] * 256))
            self.assertEqual(len(data), 512 // t.block_elements * t.block_bytes, t.name)
            self.assertEqual(len(ggml.decode(t.name, data)), 512, t.name)
            self.assertEqual(ggml.encode(t.name, [0.5, -1.0] * 256), data, "%s: a list does as well" % t.name)

    def test_plain_floats_are_little_endian(self) -> None:
        self.assertEqual(block("f32", [1.0])[:8], "0000803f")
        self.assertEqual(block("f16", [1.0, 1e9])[:8], "003c007c")
        self.assertEqual(block("bf16", [1.0, -2.0])[:8], "803f00c0")
        self.assertEqual([one("f32", "0000803f"), one("f16", "003c"), one("bf16", "00c0")], [[1.0], [1.0], [-2.0]])


class Decoders(unittest.TestCase):
    def test_layers_decode_to_the_engine_s_values(self) -> None:
        types = stored("layer.json")["types"]
        for name in OF_32:
            values = ggml.decode(name, bytes.fromhex(types[name]["weight"]))
            self.assertEqual(f32_sha256(values), types[name]["f32_sha256"], name)

    def test_values_are_gguf_py_s_with_extreme_scales_too(self) -> None:
        for name, case in stored("gguf.json")["decode"].items():
            if name in OF_32:
                self.assertEqual(f32_sha256(ggml.decode(name, bytes.fromhex(case["blocks"]))), case["f32_sha256"], name)

    def test_low_nibbles_come_first_then_the_high_ones(self) -> None:
        q, count, ones = CODES.hex(), list(range(16)), [1] * 16
        self.assertEqual(one("q4_0", "003c" + q), [n - 8 for n in count + ones])
        self.assertEqual(one("q4_1", "003c0040" + q), [n + 2 for n in count + ones])
        self.assertEqual(one("q5_0", "003c0000ff00" + q), [n - 16 for n in count + [17] * 8 + [1] * 8])
        self.assertEqual(one("q5_1", "003c004001000080" + q), [18, *range(3, 18)] + [3] * 15 + [19])

    def test_q8_1_has_a_sum_that_does_not_count(self) -> None:
        q = struct.pack("<32b", *range(-16, 16)).hex()
        self.assertEqual(one("q8_0", "003c" + q), list(range(-16, 16)))
        self.assertEqual(one("q8_1", "003cffff" + q), list(range(-16, 16)))


class Encoders(unittest.TestCase):
    def test_layers_encode_to_the_engine_s_bytes(self) -> None:
        layer = stored("layer.json")
        values = bf16_decode(bytes.fromhex(layer["source"]))
        for name in OF_32:
            self.assertEqual(ggml.encode(name, values).hex(), layer["types"][name]["weight"], name)

    def test_bytes_are_gguf_py_s_over_the_whole_range(self) -> None:
        case = stored("gguf.json")
        values = f32_decode(bytes.fromhex(case["values"]))
        for name, want in case["encode"].items():
            self.assertEqual(ggml.encode(name, values).hex(), want, name)

    def test_every_operation_is_rounded(self) -> None:
        raw = hashlib.shake_256(b"many").digest(33 * 1024)
        values = array("f")
        for i, width in enumerate(raw[32 * 1024 :]):
            block = raw[32 * i : 32 * i + 32]
            values.extend([(b % (1 + width) - width // 2) / 512 - i % 2 / 10 for b in block])
        for name, want in stored("gguf.json")["many_sha256"].items():
            self.assertEqual(hashlib.sha256(ggml.encode(name, values)).hexdigest(), want, name)

    def test_codes_come_from_the_scale_before_it_is_rounded_to_a_half(self) -> None:
        # d = 127.0625 / 127 = 1.00049…, whose half is 1.0009…: with that the code of 63.54 would be 63
        data = ggml.encode("q8_0", array("f", [127.0625, 63.54] + [0.0] * 30))
        self.assertEqual((data[:2].hex(), data[3]), ("013c", 64))

    def test_the_first_of_two_equal_peaks_gives_the_sign(self) -> None:
        for name, n in (("q4_0", 8), ("q5_0", 16)):
            for first in (1.0, -1.0):
                (d,) = struct.unpack_from("<e", bytes.fromhex(block(name, [first, -first])))
                self.assertEqual(d, -first / n, name)

    def test_ties_go_away_from_zero_in_the_8_bit_types_and_up_in_the_others(self) -> None:
        self.assertEqual(block("q8_0", [127.0, 0.5, -0.5, 1.5, -1.5, 2.5])[4:16], "7f01ff02fe03")
        self.assertEqual([int(block("q4_0", [-8.0, v])[6:8], 16) & 15 for v in (0.5, -0.5, 1.5, 7.0)], [9, 8, 10, 15])
        self.assertEqual([int(block("q4_1", [15.0, v])[10:12], 16) & 15 for v in (0.5, 1.5, 14.4)], [1, 2, 14])

    def test_the_sum_of_q8_1_is_rounded_to_a_half_before_and_after(self) -> None:
        # 31 * 127 + 126 = 4063, as a half 4064; d = 0.1 as a half; their product as a half
        data = bytes.fromhex(block("q8_1", [12.7] * 31 + [12.6]))
        self.assertEqual(struct.unpack_from("<2e", data), (0.0999755859375, 406.25))
        self.assertEqual(sum(data[4:]), 4063)

    def test_zeros_have_no_scale(self) -> None:
        for name, zeros in (("q4_0", "0080" + "88" * 16), ("q5_0", "0080" + "ff" * 4 + "00" * 16)):
            self.assertEqual(block(name, []), zeros)
            for first, d in ((0.0, "0080"), (-0.0, "0000")):
                self.assertEqual(block(name, [first] * 3), d + zeros[4:], name)
                self.assertEqual(block(name, [first] + [-first] * 31), d + zeros[4:], name)
                self.assertEqual(block(name, [math.nan, first, -first])[:4], d, name)
        for name in ("q4_1", "q5_1", "q8_0", "q8_1"):
            self.assertEqual(
                block(name, []), "00" * ggml.TYPES[{"q4_1": 3, "q5_1": 7, "q8_0": 8, "q8_1": 9}[name]].block_bytes
            )

    def test_the_minimum_keeps_the_sign_of_the_first_zero(self) -> None:
        for name in ("q4_1", "q5_1"):
            self.assertEqual([block(name, v)[4:8] for v in ([-0.0, 1.0], [0.0, -0.0, 1.0])], ["0080", "0000"], name)

    def test_a_scale_too_small_to_invert_saturates_the_codes(self) -> None:
        self.assertEqual(block("q8_0", [1e-42, -1e-42])[4:10], "7f8000")
        self.assertEqual(block("q8_1", [1e-42, -1e-42])[8:14], "7f8000")
        for name in OF_32:
            self.assertTrue(
                all(map(math.isfinite, ggml.decode(name, bytes.fromhex(block(name, [1e-42, -1e-42]))))), name
            )

    def test_what_is_no_whole_block_is_refused_and_nothing_is_no_block(self) -> None:
        decoders = [(lambda data, t=t: ggml.decode(t.name, data), t.block_bytes) for t in ggml.TYPES.values()]
        decoders += [
            (blocks.q8_0_decode, 34), (blocks.q4_0_decode, 18), (blocks.q2_1_decode, 16), (floats.f32_decode, 4),
            (floats.f16_decode, 2), (floats.bf16_decode, 2), (lambda data: minifloat.f8q8_decode(data, 32), 33),
        ]  # fmt: skip
        encoders = [(lambda x, t=t: ggml.encode(t.name, x), t.block_elements) for t in ggml.TYPES.values()]
        encoders += [(getattr(blocks, n + "_encode"), 32) for n in ("q8_0", "q4_0", "q4i", "g256", "q2_1")]
        encoders += [(minifloat.mxfp4_encode, 32), (lambda x: afq.afq_encode(x, 4), 64)]
        for call, unit in [(f, n) for f, n in decoders + encoders if n > 1]:
            for nothing in (bytes(0), bytes(unit)):
                call(nothing)
            for length in (1, unit - 1, unit + 1, 40 * unit + 1):
                with self.assertRaises(UsageError) as caught:
                    call(bytes(length))
                self.assertEqual(caught.exception.code, "usage.blocks.truncated")

    def test_codes_and_scales_must_belong_together(self) -> None:
        one = array("f", [1.0])
        for call in (
            lambda: minifloat.mxfp4_decode(bytes(16), bytes(2)),
            lambda: minifloat.mxfp4_decode(bytes(17), bytes(1)),
            lambda: afq.afq_decode(bytes(32), one, one + one, 4, 64),
            lambda: afq.afq_decode(bytes(32), one + one, one, 4, 64),
            lambda: afq.afq_decode(bytes(36), one, one, 4, 64),
        ):
            with self.assertRaises(UsageError) as caught:
                call()
            self.assertEqual(caught.exception.code, "usage.scales.shape")

    def test_an_unknown_type_is_refused_by_name(self) -> None:
        for call in (ggml.encode, ggml.decode):
            with self.assertRaises(UsageError) as caught:
                call("q9_0", b"")
            self.assertEqual(caught.exception.code, "usage.type.unsupported")

    def test_what_is_not_finite_raises_nothing(self) -> None:
        for name in OF_32:
            for strange in (math.nan, math.inf, -math.inf, 3.4e38):
                self.assertEqual(len(block(name, [strange, -strange, strange])), len(block(name, [])))

    def test_arrays_and_lists_of_the_same_values_give_the_same_bytes(self) -> None:
        values = f32_decode(bytes.fromhex(stored("gguf.json")["values"]))
        self.assertEqual(f32_encode(list(values)), f32_encode(values))
        for name in OF_32:
            self.assertEqual(ggml.encode(name, list(values)), ggml.encode(name, values))


if __name__ == "__main__":
    unittest.main()

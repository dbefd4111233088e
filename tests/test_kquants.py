"""The K-quants: decoders against a naive reading and gguf-py's values, encoders against the engine's bytes.

kat/gen/quant.py says where the files in kat/files/quant come from; their readers below serve the other encodings too.
"""

from __future__ import annotations

import hashlib
import json
import math
import random
import struct
import unittest
from array import array
from pathlib import Path

from vqfref.quant import kquants
from vqfref.quant.arith import divide, nearest, pack_fields, total, unpack_fields
from vqfref.quant.floats import f32_decode, f32_encode

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Sequence

FILES = Path(__file__).resolve().parent.parent / "kat" / "files" / "quant"
SIZES = {"q2k": 84, "q3k": 110, "q4k": 144, "q5k": 176, "q6k": 210, "q8k": 292}


def stored(name: str) -> Any:
    """A JSON file of kat/files/quant."""
    return json.loads((FILES / name).read_text())


def f32_sha256(values: Sequence[float]) -> str:
    """The hash of values as little-endian F32, every NaN as 0000c07f."""
    words = [struct.pack("<f", v) if v == v else b"\0\0\xc0\x7f" for v in values]
    return hashlib.sha256(b"".join(words)).hexdigest()


def decode(name: str, data: bytes | memoryview) -> array[float]:
    values: array[float] = getattr(kquants, name + "_decode")(data)
    return values


def encode(name: str, values: Sequence[float]) -> bytes:
    data: bytes = getattr(kquants, name + "_encode")(values)
    return data


# ---- a naive reading of section 6.1: one element at a time, every operation rounded


def f32(x: float) -> float:
    return array("f", [x])[0]


def half(block: bytes, at: int) -> float:
    value: float = struct.unpack_from("<e", block, at)[0]
    return value


def signed(byte: int) -> int:
    return byte - 256 if byte > 127 else byte


def q2k(b: bytes, e: int) -> float:
    h, j, m, i = e // 128, e % 128 // 32, e % 32 // 16, e % 16
    code, scale = b[16 + 32 * h + 16 * m + i] >> 2 * j & 3, b[8 * h + 2 * j + m]
    return f32(f32(f32(half(b, 80) * (scale & 15)) * code) - f32(half(b, 82) * (scale >> 4)))


def q3k(b: bytes, e: int) -> float:
    h, j, m, i = e // 128, e % 128 // 32, e % 32 // 16, e % 16
    g, s = 8 * h + 2 * j + m, b[96:108]
    code = b[32 + 32 * h + 16 * m + i] >> 2 * j & 3
    if not b[16 * m + i] >> 4 * h + j & 1:
        code -= 4
    low = s[g] & 15 if g < 8 else s[g - 8] >> 4
    scale = low + 16 * (s[8 + g % 4] >> 2 * (g // 4) & 3) - 32
    return f32(f32(half(b, 108) * scale) * code)


def q4k(b: bytes, e: int) -> float:
    g, i = e // 32, e % 32
    return of_32(b, g, b[16 + 32 * (g // 2) + i] >> 4 * (g % 2) & 15)


def q5k(b: bytes, e: int) -> float:
    g, i = e // 32, e % 32
    return of_32(b, g, (b[48 + 32 * (g // 2) + i] >> 4 * (g % 2) & 15) + 16 * (b[16 + i] >> g & 1))


def of_32(b: bytes, g: int, code: int) -> float:
    k = b[4:16]
    if g < 4:
        scale, least = k[g] % 64, k[g + 4] % 64
    else:
        scale, least = k[g + 4] % 16 + k[g - 4] // 64 * 16, k[g + 4] // 16 + k[g] // 64 * 16
    return f32(f32(f32(half(b, 0) * scale) * code) - f32(half(b, 2) * least))


def q6k(b: bytes, e: int) -> float:
    h, t, i = e // 128, e % 128 // 32, e % 32
    low = b[64 * h + 32 * (t % 2) + i] >> (0 if t < 2 else 4) & 15
    code = low + 16 * (b[128 + 32 * h + i] >> 2 * t & 3) - 32
    return f32(f32(half(b, 208) * signed(b[192 + 8 * h + 2 * t + i // 16])) * code)


def q8k(b: bytes, e: int) -> float:
    d: float = struct.unpack_from("<f", b)[0]
    return f32(d * signed(b[4 + e]))


NAIVE = {"q2k": q2k, "q3k": q3k, "q4k": q4k, "q5k": q5k, "q6k": q6k, "q8k": q8k}


class Decoders(unittest.TestCase):
    def test_every_element_stands_where_the_layout_says(self) -> None:
        noise = random.Random(41)
        for name, naive in NAIVE.items():
            blocks = [bytes([noise.randrange(256) for _ in range(SIZES[name])]) for _ in range(8)]
            want = [naive(block, e) for block in blocks for e in range(256)]
            self.assertEqual(f32_sha256(decode(name, b"".join(blocks))), f32_sha256(want), name)

    def test_values_are_gguf_py_s_with_extreme_scales_too(self) -> None:
        for name, case in stored("gguf.json")["decode"].items():
            if name in SIZES:
                self.assertEqual(f32_sha256(decode(name, bytes.fromhex(case["blocks"]))), case["f32_sha256"], name)

    def test_any_buffer_will_do_and_no_block_gives_no_value(self) -> None:
        for name, size in SIZES.items():
            data = (FILES / ("kquants-%s.bin" % name)).read_bytes()[: 2 * size]
            self.assertEqual(f32_encode(decode(name, memoryview(data))), f32_encode(decode(name, data)))
            self.assertEqual(len(decode(name, data)), 512)
            self.assertEqual(len(decode(name, b"")), 0)

    def test_the_sums_of_q8k_are_not_needed(self) -> None:
        block = (FILES / "kquants-q8k.bin").read_bytes()[-292:]
        self.assertEqual(decode("q8k", block), decode("q8k", block[:260] + b"\xff" * 32))


class Encoders(unittest.TestCase):
    def test_bytes_are_the_engine_s(self) -> None:
        values = f32_decode((FILES / "kquants-input.f32").read_bytes())
        for name, size in SIZES.items():
            want = (FILES / ("kquants-%s.bin" % name)).read_bytes()
            got = encode(name, values)
            wrong = [k for k in range(len(values) // 256) if got[k * size :][:size] != want[k * size :][:size]]
            self.assertEqual((name, len(got), wrong), (name, len(want), []))

    def test_every_block_stands_alone(self) -> None:
        values = f32_decode((FILES / "kquants-input.f32").read_bytes())[-768:]
        for name in SIZES:
            parts = [encode(name, values[k : k + 256]) for k in range(0, 768, 256)]
            self.assertEqual(b"".join(parts), encode(name, values), name)

    def test_zeros_are_zero_bytes_but_for_q6k_s_negative_d(self) -> None:
        for zero in (0.0, -0.0):
            for name, size in SIZES.items():
                want = bytes(size - 2) + (b"\x00\x80" if name == "q6k" else b"\0\0")
                self.assertEqual(encode(name, [zero] * 256), want, name)

    def test_a_constant_is_lost_where_groups_have_a_minimum(self) -> None:
        for name in ("q2k", "q4k", "q5k"):
            self.assertEqual(set(decode(name, encode(name, [0.25] * 256))), {0.0}, name)
        for name in ("q3k", "q6k", "q8k"):
            self.assertNotIn(0.0, decode(name, encode(name, [0.25] * 256)), name)

    def test_the_first_of_two_equal_peaks_gives_the_sign(self) -> None:
        for first in (0.5, -0.5):
            block = [first, -first] + [0.0] * 254
            d, *codes = struct.unpack_from("<f256b", encode("q8k", block))
            self.assertEqual((codes[:2], d * first < 0), ([-127, 127], True))

    def test_values_come_back_as_near_as_the_type_allows(self) -> None:
        noise = random.Random(7)
        values = array("f", [noise.gauss(0, 0.05) for _ in range(4096)])
        power = math.fsum([v * v for v in values])
        for name, percent in (("q2k", 29), ("q3k", 15), ("q4k", 7.5), ("q5k", 3.7), ("q6k", 1.8), ("q8k", 0.7)):
            back = decode(name, encode(name, values))
            error = 100 * math.sqrt(math.fsum([(a - b) ** 2 for a, b in zip(values, back)]) / power)
            self.assertTrue(
                0.85 * percent < error < 1.15 * percent, "%s: %.2f %%, expected %s" % (name, error, percent)
            )

    def test_what_is_not_finite_raises_nothing(self) -> None:
        strange = [math.nan, math.inf, -math.inf, 3.4e38, -3.4e38, 1e-45, 0.0, -0.0]
        noise = random.Random(3)
        for _ in range(5):
            block = array("f", [noise.choice(strange) for _ in range(256)])
            for name, size in SIZES.items():
                self.assertEqual(len(encode(name, block)), size)


class Steps(unittest.TestCase):
    def test_nearest_rounds_ties_away_from_zero_and_keeps_inside(self) -> None:
        pairs = [(0.5, 1), (-0.5, -1), (2.5, 3), (-2.5, -3), (0.49999997, 0), (-0.49999997, 0), (8388609.0, 8388609)]
        pairs += [(math.nan, 0), (math.inf, 2**31 - 1), (-math.inf, -(2**31)), (3e9, 2**31 - 1), (-0.0, 0)]
        self.assertEqual([nearest(v) for v, _ in pairs], [n for _, n in pairs])
        self.assertEqual([nearest(v, -4, 3) for v in (3.4, 3.6, 9.0, -4.6, -3.5, math.nan)], [3, 3, 3, -4, -4, 0])

    def test_division_by_zero_is_infinite_or_nan(self) -> None:
        self.assertEqual([divide(1, 0.0), divide(1, -0.0), divide(-1, -0.0)], [math.inf, -math.inf, math.inf])
        self.assertEqual([divide(math.inf, 0.0), divide(math.inf, -0.0)], [math.inf, -math.inf])
        self.assertTrue(all(map(math.isnan, (divide(0.0, 0.0), divide(math.nan, 0.0), divide(math.inf, math.inf)))))
        self.assertEqual([divide(1, 3), divide(3e38, 1e-3), divide(0.0, 5)], [0.3333333432674408, math.inf, 0.0])

    def test_sums_are_rounded_after_every_addition(self) -> None:
        self.assertEqual(total([16777216.0, 1.0, 1.0]), 16777216.0)
        self.assertEqual(total([1.0, 1.0, 16777216.0]), 16777218.0)
        self.assertEqual(total([]), 0.0)

    def test_fields_lie_a_run_apart_the_first_lowest(self) -> None:
        self.assertEqual(pack_fields([1, 2, 3, 4], 4, 2), b"\x31\x42")
        self.assertEqual(pack_fields([1, 0, 0, 0, 0, 0, 0, 1], 1, 1), b"\x81")
        noise = random.Random(1)
        for bits, run in ((1, 32), (2, 4), (2, 32), (4, 8), (4, 64)):
            codes = [noise.randrange(1 << bits) for _ in range(2 * run * 8 // bits)]
            self.assertEqual(unpack_fields(pack_fields(codes, bits, run), bits, run), codes)


if __name__ == "__main__":
    unittest.main()

"""Matrix times vector on blocks: integer sums exact, floats step by step as numpy computes them, and within the bound.

The rules are those of spec section 10; kat/files/numbers/matmul.json comes from kat/gen/blocks.py, which follows them in
numpy's float32. Exact results are fractions computed here.
"""

from __future__ import annotations

import math
import random
import struct
import unittest
from array import array
from fractions import Fraction

from tests.test_floats import INF, NAN, stored
from tests.test_tiles import tiled
from vqfref import kernels
from vqfref.errors import UsageError
from vqfref.quant import blocks, matmul

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Sequence

LAYOUTS = {"q8_0": ("q8_8x8", "q8_4x4"), "q4_0": ("q4_4x4", "q4_8x8l")}
SIZE = {"q8_0": 34, "q4_0": 18}


def f32s(text: str) -> array[float]:
    data = bytes.fromhex(text)
    return array("f", struct.unpack("<%df" % (len(data) // 4), data))


def random_rows(rng: random.Random, rows: int, cols: int, encoding: str) -> list[bytes]:
    """Linear rows of blocks with codes of any bits and finite scales, large and small."""
    made = []
    for _ in range(rows):
        row = b""
        for _ in range(cols // 32):
            d = rng.choice((rng.uniform(-1, 1), rng.uniform(-1e-4, 1e-4), 0.0, rng.choice((65504.0, 2.0**-24))))
            row += struct.pack("<e", d) + bytes(rng.randrange(256) for _ in range(SIZE[encoding] - 2))
        made.append(row)
    return made


def integers(row: bytes, encoding: str) -> list[tuple[Fraction, list[int]]]:
    """(d, 32 integers) of each block of a row, by section 7."""
    found = []
    for at in range(0, len(row), SIZE[encoding]):
        (d,) = struct.unpack_from("<e", row, at)
        q = row[at + 2 : at + SIZE[encoding]]
        if encoding == "q8_0":
            codes = [b - 256 if b > 127 else b for b in q]
        else:
            codes = [b % 16 - 8 for b in q] + [b // 16 - 8 for b in q]
        found.append((Fraction(d), codes))
    return found


def exact(
    row: bytes, scales: Sequence[float], codes: Sequence[Sequence[int]], encoding: str
) -> tuple[Fraction, Fraction]:
    """(the sum, the bound) of one output by section 10, in fractions."""
    terms = []
    for (d, q), s, x in zip(integers(row, encoding), scales, codes):
        terms.append(sum(map(int.__mul__, q, x)) * d * Fraction(s))
    return sum(terms, Fraction(0)), len(terms) * Fraction(1, 1 << 23) * sum(map(abs, terms))


class Activations(unittest.TestCase):
    def test_scales_and_codes_are_numpy_s(self) -> None:
        case = stored("matmul.json")
        scales, codes = matmul.quantize_activation(f32s(case["x"]))
        self.assertEqual(scales, list(f32s(case["scales"])))
        self.assertEqual(codes, case["codes"])

    def test_codes_are_those_of_q8_0_and_the_scale_is_not_rounded_to_a_half(self) -> None:
        x = array("f", [math.sin(3 * i) * 10 ** (i // 32 - 2) for i in range(160)])
        scales, codes = matmul.quantize_activation(x)
        data = blocks.q8_0_encode(x)
        for b in range(5):
            d, *q = struct.unpack_from("<e32b", data, 34 * b)
            self.assertEqual(codes[b], q)
            self.assertNotEqual(scales[b], d)
            self.assertEqual(struct.pack("<e", scales[b]), struct.pack("<e", d))
            largest = max(map(abs, x[32 * b : 32 * b + 32]))
            self.assertEqual(scales[b], array("f", [largest / 127])[0])

    def test_zeros_have_the_smallest_scale_and_codes_of_0(self) -> None:
        for zero in (0.0, -0.0):
            scales, codes = matmul.quantize_activation(array("f", [zero] * 64))
            self.assertEqual((scales, codes), ([array("f", [1e-10])[0]] * 2, [[0] * 32] * 2))

    def test_ties_go_away_from_zero(self) -> None:
        _, ((*codes,),) = matmul.quantize_activation(array("f", [127, 0.5, -0.5, 1.5, -1.5, 2.5] + [0] * 26))
        self.assertEqual(codes[:6], [127, 1, -1, 2, -2, 3])

    def test_what_is_not_finite_has_code_0(self) -> None:
        scales, codes = matmul.quantize_activation(
            array("f", [NAN, 127.0] + [1.0] * 30 + [INF, -INF, NAN] + [1.0] * 29)
        )
        self.assertEqual((scales, codes), ([1.0, INF], [[0, 127] + [1] * 30, [0] * 32]))

    def test_lists_do_as_well_and_no_columns_are_no_blocks(self) -> None:
        x = [0.25 * i for i in range(64)]
        self.assertEqual(matmul.quantize_activation(x), matmul.quantize_activation(array("f", x)))
        self.assertEqual(matmul.quantize_activation([]), ([], []))


class Sums(unittest.TestCase):
    def test_block_sums_are_exact_integers(self) -> None:
        rng = random.Random(10)
        codes = [[rng.randrange(-127, 128) for _ in range(32)] for _ in range(5)]
        for encoding in SIZE:
            for row in random_rows(rng, 20, 160, encoding):
                want = [sum(w * x for w, x in zip(q, xq)) for (_, q), xq in zip(integers(row, encoding), codes)]
                got = matmul.block_sums(row, codes, encoding)
                self.assertEqual(got, want)
                self.assertTrue(all(type(s) is int for s in got))
                self.assertEqual(matmul.block_sums(memoryview(row), codes, encoding), want)

    def test_the_largest_sums(self) -> None:
        # -128 occurs in files of others, though no encoder here makes it.
        row = struct.pack("<e32b", 1, *[-128] * 32) + struct.pack("<e32b", 1, *[127] * 32)
        self.assertEqual(matmul.block_sums(row, [[-127] * 32, [-127] * 32], "q8_0"), [520192, -516128])
        row = struct.pack("<e", 1) + bytes(16) + struct.pack("<e", 1) + b"\xff" * 16
        self.assertEqual(matmul.block_sums(row, [[-127] * 32, [127] * 32], "q4_0"), [32512, 28448])

    def test_scales_and_codes_of_a_row(self) -> None:
        q8 = struct.pack("<e32b", 0.5, *range(-16, 16)) + struct.pack("<e32b", -2, *[3] * 32)
        self.assertEqual(list(matmul.blocks_of(q8, "q8_0")), [(0.5, list(range(-16, 16))), (-2.0, [3] * 32)])
        q4 = struct.pack("<e", 0.5) + bytes(j | (15 - j) << 4 for j in range(16))
        want = [j - 8 for j in range(16)] + [7 - j for j in range(16)]
        self.assertEqual(list(matmul.blocks_of(q4, "q4_0")), [(0.5, want)])

    def test_numpy_s_sums(self) -> None:
        case = stored("matmul.json")
        for encoding in SIZE:
            data = bytes.fromhex(case[encoding]["matrix"])
            rows = list(matmul.rows_of(data, 96, encoding))
            self.assertEqual(
                [matmul.block_sums(r, case["codes"], encoding) for r in rows], case[encoding]["block_sums"]
            )


class Products(unittest.TestCase):
    def test_results_are_numpy_s_bit_for_bit(self) -> None:
        case = stored("matmul.json")
        x = f32s(case["x"])
        for encoding in SIZE:
            data = bytes.fromhex(case[encoding]["matrix"])
            got = matmul.matvec(data, x, encoding)
            self.assertEqual((got.typecode, got), ("f", f32s(case[encoding]["y"])), encoding)
            self.assertEqual(matmul.matvec_float(data, x, encoding), f32s(case[encoding]["float"]), encoding)

    def test_results_are_within_the_bound_of_the_exact_ones(self) -> None:
        rng = random.Random(23)
        for encoding in SIZE:
            for cols in (32, 64, 256, 1024):
                rows = random_rows(rng, 8, cols, encoding)
                x = array("f", [rng.gauss(0, 1) * 10 ** (i // 32 % 5 - 2) for i in range(cols)])
                scales, codes = matmul.quantize_activation(x)
                for row, y in zip(rows, matmul.matvec(b"".join(rows), x, encoding)):
                    want, bound = exact(row, scales, codes, encoding)
                    self.assertLessEqual(abs(Fraction(y) - want), bound, (encoding, cols))

    def test_the_bound_is_no_wide_gate(self) -> None:
        # A kernel that rounds the activation's scale to a half, or forgets one block, misses it.
        rng = random.Random(24)
        (row,) = random_rows(rng, 1, 256, "q8_0")
        row = b"".join([struct.pack("<e", 0.1) + row[at + 2 : at + 34] for at in range(0, len(row), 34)])
        scales, codes = matmul.quantize_activation(array("f", [rng.gauss(0, 1) for _ in range(256)]))
        want, bound = exact(row, scales, codes, "q8_0")
        rounded = [struct.unpack("<e", struct.pack("<e", s))[0] for s in scales]
        self.assertGreater(abs(Fraction(matmul.dot(row, (rounded, codes), "q8_0")) - want), bound)
        self.assertGreater(abs(Fraction(matmul.dot(row[:-34], (scales, codes), "q8_0")) - want), bound)

    def test_blocks_are_summed_in_order_in_single_precision(self) -> None:
        # 2^24 and then 1 three times: in single precision each 1 is lost; in doubles, or from behind, they are not.
        row = b"".join([struct.pack("<e32b", d, q, *[0] * 31) for d, q in ((4096.0, 64), (1.0, 1), (1.0, 1), (1.0, 1))])
        activation: Any = ([1.0] * 4, [[64] + [0] * 31] + [[1] + [0] * 31] * 3)
        self.assertEqual(matmul.dot(row, activation, "q8_0"), 2.0**24)

    def test_each_product_is_rounded_on_its_own(self) -> None:
        d, third = 1.0009765625, array("f", [1 / 3])[0]
        row = struct.pack("<e32b", d, 5, *[0] * 31)
        got = matmul.dot(row, ([third], [[1] + [0] * 31]), "q8_0")
        self.assertEqual(got, array("f", [5 * array("f", [d * third])[0]])[0], "d_w * d_x first")
        self.assertNotEqual(got, array("f", [5 * d * third])[0])
        self.assertNotEqual(got, array("f", [array("f", [5 * d])[0] * third])[0])

    def test_tiles_give_the_same_bits_as_rows(self) -> None:
        rng = random.Random(8)
        for encoding, layouts in LAYOUTS.items():
            rows = random_rows(rng, 16, 96, encoding)
            x = array("f", [rng.gauss(0, 1) for _ in range(96)])
            want = matmul.matvec(b"".join(rows), x, encoding)
            wanted_float = matmul.matvec_float(b"".join(rows), x, encoding)
            for layout in layouts:
                data = tiled(rows, layout)
                self.assertNotEqual(data, b"".join(rows))
                self.assertEqual(matmul.matvec(data, x, encoding, layout), want, layout)
                self.assertEqual(matmul.matvec(memoryview(data), x, encoding, layout), want, layout)
                self.assertEqual(matmul.matvec_float(data, x, encoding, layout), wanted_float, layout)
                self.assertEqual([bytes(r) for r in matmul.rows_of(data, 96, encoding, layout)], rows, layout)

    def test_a_scrambled_x8_copy_gives_the_same_bits_too(self) -> None:
        rng = random.Random(88)
        rows = random_rows(rng, 16, 96, "q4_0")
        x = array("f", [rng.gauss(0, 1) for _ in range(96)])
        q4 = tiled(rows, "q4_4x4")
        copy = tiled([q4[i : i + 54] for i in range(0, len(q4), 54)], "q4_8x8l")
        want = matmul.matvec(b"".join(rows), x, "q4_0")
        self.assertEqual(matmul.matvec(copy, x, "q4_0", "q4_8x8l of q4_4x4"), want)
        self.assertNotEqual(matmul.matvec(copy, x, "q4_0", "q4_8x8l"), want)

    def test_several_vectors_give_one_result_each(self) -> None:
        rng = random.Random(3)
        rows = random_rows(rng, 8, 64, "q4_0")
        xs = [array("f", [rng.gauss(0, 1) for _ in range(64)]) for _ in range(3)]
        data = tiled(rows, "q4_4x4")
        self.assertEqual(
            matmul.matmul(data, xs, "q4_0", "q4_4x4"), [matmul.matvec(data, x, "q4_0", "q4_4x4") for x in xs]
        )
        self.assertEqual(matmul.matmul(data, [], "q4_0", "q4_4x4"), [])

    def test_an_activation_can_be_quantized_once(self) -> None:
        rng = random.Random(4)
        rows = random_rows(rng, 4, 64, "q8_0")
        x = [rng.gauss(0, 1) for _ in range(64)]
        activation = matmul.quantize_activation(x)
        self.assertEqual(
            matmul.matvec_quantized(b"".join(rows), activation, "q8_0"), matmul.matvec(b"".join(rows), x, "q8_0")
        )

    def test_a_matrix_without_rows_has_no_results(self) -> None:
        for layout in ("linear", "q8_8x8"):
            self.assertEqual(matmul.matvec(b"", [1.0] * 32, "q8_0", layout), array("f"))
            self.assertEqual(matmul.matvec_float(b"", [1.0] * 32, "q8_0", layout), array("f"))


class Refusals(unittest.TestCase):
    def test_what_is_no_matrix_for_this_vector_is_refused(self) -> None:
        for rows in (1, 16):  # few and many: the plain version and the quick one
            for size, cols, encoding, layout, code in (
                (68 * rows - 1, 64, "q8_0", "linear", "usage.blocks.truncated"),
                (68 * rows + 34, 64, "q8_0", "linear", "usage.matrix.shape"),
                (68 * rows, 0, "q8_0", "linear", "usage.matrix.shape"),
                (68 * rows, 63, "q8_0", "linear", "usage.blocks.truncated"),
                (68 * rows, 64, "q9_0", "linear", "usage.type.unsupported"),
                (68 * 8, 64, "q8_0", "q9_8x8", "usage.layout.unsupported"),
                (18 * 34 * 8, 32, "q8_0", "q4_8x8l", "usage.tiles.layout"),
                (68 * 7, 64, "q8_0", "q8_8x8", "usage.matrix.shape"),
            ):
                for function in (matmul.matvec, kernels.matvec):
                    with self.assertRaises(UsageError) as caught:
                        function(bytes(size), array("f", [1.0] * cols), encoding, layout)
                    self.assertEqual(caught.exception.code, code, (size, cols, encoding, layout))

    def test_block_sums_of_a_row_and_a_vector_of_unequal_length_are_refused(self) -> None:
        for size, count, encoding, code in (
            (68, 1, "q8_0", "usage.vector.shape"),
            (34, 2, "q8_0", "usage.vector.shape"),
            (35, 1, "q8_0", "usage.blocks.truncated"),
            (34, 1, "q5_0", "usage.type.unsupported"),
        ):
            with self.assertRaises(UsageError) as caught:
                matmul.block_sums(bytes(size), [[0] * 32] * count, encoding)
            self.assertEqual(caught.exception.code, code)


class Floats(unittest.TestCase):
    def test_the_sum_runs_in_order_in_single_precision(self) -> None:
        self.assertEqual(matmul.dot_float([2.0**24, 1.0, 1.0], [1.0, 1.0, 1.0]), 2.0**24)
        self.assertEqual(matmul.dot_float([1.0, 1.0, 2.0**24], [1.0, 1.0, 1.0]), 2.0**24 + 2)
        third = array("f", [1 / 3])[0]
        self.assertEqual(matmul.dot_float([third], [third]), array("f", [third * third])[0])
        self.assertEqual(matmul.dot_float([], []), 0.0)

    def test_dequantized_weights_times_floats_are_near_the_exact_product(self) -> None:
        rng = random.Random(6)
        for encoding in SIZE:
            rows = random_rows(rng, 4, 128, encoding)
            x = array("f", [rng.gauss(0, 1) for _ in range(128)])
            for row, y in zip(rows, matmul.matvec_float(b"".join(rows), x, encoding)):
                terms = [
                    d * q * Fraction(x[32 * b + j])
                    for b, (d, codes) in enumerate(integers(row, encoding))
                    for j, q in enumerate(codes)
                ]
                bound = len(terms) * Fraction(1, 1 << 23) * sum(map(abs, terms))
                self.assertLessEqual(abs(Fraction(y) - sum(terms)), bound, encoding)


if __name__ == "__main__":
    unittest.main()

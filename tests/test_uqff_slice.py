"""Tensor-parallel slices (section 14): ranges, cuts of every family, biases, experts.

The property behind all of them: the slices of all ranks, put together, are the layer.
"""

from __future__ import annotations

import struct
import unittest
from array import array

from tests.uqff_samples import (
    BITS,
    FILES,
    GGML,
    Folder,
    FolderTest,
    Tensor,
    afq,
    f8q8,
    fp8,
    gguf,
    hqq,
    mxfp4,
    named,
    noise,
    product,
    raised,
    smooth,
    unquant,
)
from vqfref.errors import UsageError
from vqfref.uqff import families
from vqfref.uqff.reader import UqffFile
from vqfref.uqff.slicing import Range, expert_plan, offset_range, shard_range, slice_blocked

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Sequence

Q = "model.layers.0.self_attn.q_proj"
DOWN = "model.layers.0.mlp.down_proj"
STACK = "model.layers.0.mlp.experts.%s_proj"


def cut(values: Sequence[Any], dims: Sequence[int], dim: int, start: int, length: int) -> list[Any]:
    """Elements `start … start + length` of one axis, row-major: by the plain definition, one element after the other."""
    inner = product(dims[dim + 1 :])
    return [v for i, v in enumerate(values) if start <= i // inner % dims[dim] < start + length]


def bits_of(values: array[float]) -> list[int]:
    """Values as bit patterns, so that NaN equals NaN."""
    return list(struct.unpack("<%dI" % len(values), struct.pack("<%df" % len(values), *values)))


def refused(test: unittest.TestCase, code: str, call: Callable[..., Any], *args: Any, **how: Any) -> None:
    """A call is a UsageError of S1, of the class that is named unless it is empty."""
    error = raised(call, *args, **how)
    test.assertIsInstance(error, UsageError, (args, how))
    test.assertEqual(error.code, "uqff.s1." + code if code else error.code)
    test.assertTrue(error.code.startswith("uqff.s1."))


class Ranges(unittest.TestCase):
    def test_equal_parts(self) -> None:
        self.assertEqual([shard_range((8, 6), 0, r, 4) for r in range(4)], [(0, 0, 2), (0, 2, 2), (0, 4, 2), (0, 6, 2)])
        self.assertEqual([shard_range((8, 6), 1, r, 3) for r in range(3)], [(1, 0, 2), (1, 2, 2), (1, 4, 2)])
        self.assertEqual(shard_range((2, 4, 6), 2, 5, 6), (2, 5, 1))

    def test_a_world_of_one_is_the_whole(self) -> None:
        for dim in (0, 1):
            self.assertIsNone(shard_range((7, 5), dim, 0, 1))

    def test_what_is_no_part_is_refused(self) -> None:
        for dims, dim, rank, world in (
            ((8, 6), 2, 0, 2), ((8, 6), -1, 0, 2), ((8, 6), 2, 0, 1), ((), 0, 0, 1),  # no such dimension
            ((8, 6), 0, 0, 0), ((8, 6), 0, 0, -1),  # no world
            ((8, 6), 0, 2, 2), ((8, 6), 0, -1, 2), ((8, 6), 0, 1, 1),  # no such rank
        ):  # fmt: skip
            refused(self, "range", shard_range, dims, dim, rank, world)
        for dims, dim, rank, world in (((8, 6), 0, 0, 3), ((8, 6), 1, 0, 4), ((8, 6), 0, 0, 16)):
            refused(self, "shape", shard_range, dims, dim, rank, world)

    def test_offsets(self) -> None:
        self.assertEqual(offset_range((8, 6), 0, 2, 3), (0, 2, 3))
        self.assertEqual(offset_range((8, 6), 1, 0, 5), (1, 0, 5))
        self.assertEqual(offset_range((8, 6), 1, 5, 1), (1, 5, 1))

    def test_an_offset_that_covers_everything_is_the_whole(self) -> None:
        self.assertIsNone(offset_range((8, 6), 0, 0, 8))
        self.assertIsNone(offset_range((8, 6), 1, 0, 6))

    def test_offsets_that_leave_the_dimension_are_refused(self) -> None:
        for dim, start, length in (
            (2, 0, 1), (-1, 0, 1), (0, 0, 9), (0, 8, 1), (0, 7, 2), (0, -1, 2), (0, 2, -1), (0, (1 << 64) - 1, 2),
            (0, 1 << 63, 1 << 63), (0, 9, 0),
        ):  # fmt: skip
            refused(self, "range", offset_range, (8, 6), dim, start, length)


class Blocked(unittest.TestCase):
    """`slice_blocked` on its own: one byte for a block of two elements, its value the block's number."""

    def numbers(self, dims: tuple[int, ...], dim: int, start: int, length: int) -> list[int]:
        return list(slice_blocked(bytes(range(product(dims) // 2)), dims, 2, 1, dim, start, length))

    def test_examples_of_the_specification(self) -> None:
        self.assertEqual(self.numbers((3, 8), 1, 4, 4), [2, 3, 6, 7, 10, 11])
        self.assertEqual(self.numbers((3, 8), 0, 1, 2), [4, 5, 6, 7, 8, 9, 10, 11])
        self.assertEqual(self.numbers((2, 4, 4), 1, 2, 2), [4, 5, 6, 7, 12, 13, 14, 15])
        self.assertEqual(self.numbers((2, 4, 4), 2, 2, 2), [1, 3, 5, 7, 9, 11, 13, 15])
        refused(self, "align", slice_blocked, bytes(12), (3, 8), 2, 1, 1, 1, 4)

    def test_a_length_inside_a_block_is_refused_too(self) -> None:
        refused(self, "align", slice_blocked, bytes(12), (3, 8), 2, 1, 1, 0, 3)

    def test_any_cut_is_that_of_the_elements(self) -> None:
        for dims in ((6,), (3, 8), (2, 4, 4), (3, 1, 2), (1, 5, 6)):
            elements = [i // 2 for i in range(product(dims))]
            for dim in range(len(dims)):
                unit = 2 if dim == len(dims) - 1 else 1
                for start in range(0, dims[dim], unit):
                    for length in range(unit, dims[dim] - start + 1, unit):
                        self.assertEqual(
                            self.numbers(dims, dim, start, length), cut(elements, dims, dim, start, length)[::2]
                        )

    def test_blocks_of_several_bytes_stay_together(self) -> None:
        data = noise(3 * 4 * 5)  # rows of 4 blocks of 5 bytes
        self.assertEqual(
            slice_blocked(data, (3, 8), 2, 5, 1, 2, 4), b"".join([data[20 * r + 5 : 20 * r + 15] for r in range(3)])
        )
        self.assertEqual(slice_blocked(data, (3, 8), 2, 5, 0, 1, 1), data[20:40])

    def test_what_can_not_be_cut_is_refused(self) -> None:
        data = bytes(100)
        for dims, block, size, dim, start, length in (
            ((), 2, 1, 0, 0, 1), ((0, 8), 2, 1, 1, 0, 2), ((3, 0), 2, 1, 0, 0, 1), ((3, 8), 0, 1, 0, 0, 1),
            ((3, 8), 2, 0, 0, 0, 1), ((3, 8), 2, 1, 2, 0, 1), ((3, 8), 2, 1, -1, 0, 1), ((3, 8), 2, 1, 0, 3, 1),
            ((3, 8), 2, 1, 0, 0, 4), ((3, 8), 2, 1, 0, 1 << 63, 1 << 63), ((3, 7), 2, 1, 0, 0, 1), ((50, 8), 2, 1, 0, 0, 1),
        ):  # fmt: skip
            refused(self, "", slice_blocked, data, dims, block, size, dim, start, length)

    def test_data_of_exactly_the_rows_is_enough(self) -> None:
        self.assertEqual(len(slice_blocked(bytes(12), (3, 8), 2, 1, 0, 0, 1)), 4)
        refused(self, "bounds", slice_blocked, bytes(11), (3, 8), 2, 1, 0, 0, 1)


# Layers to cut: what they are, and the unit of their last dimension.
LAYERS: dict[str, tuple[dict[str, Any], int]] = {
    **{label: (gguf(code, 4, 4 * elements), elements) for code, (label, elements, _) in GGML.items()},
    "a stack of q4_0": (gguf(2, 4, 2, 64), 32), "a stack of q3k": (gguf(11, 2, 4, 512), 256),
    "a vector of q8_0": (gguf(8, 128), 32),
    **{"afq%d in %d" % (b, g): (afq(b, 4, 4 * g, group=g), g) for b in (2, 3, 4, 6, 8) for g in (32, 64, 128)},
    "afq4 of BF16": (afq(4, 4, 256, dtype="BF16"), 64), "a stack of afq3": (afq(3, 2, 4, 128, group=32), 32),
    "mxfp4": (mxfp4(4, 128), 32), "a stack of mxfp4": (mxfp4(2, 4, 64), 32), "f8q8": (f8q8(4, 128), 32),
    "fp8": (fp8(4, 12), 1), "unquant F32": (unquant("F32", 4, 12), 1), "unquant BF16": (unquant("BF16", 4, 6), 1),
    "a stack of unquant": (unquant("F16", 2, 4, 6), 1),
}  # fmt: skip


class Families(FolderTest):
    file: UqffFile

    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        tensors: dict[str, Any] = {}
        for key, (layer, _) in LAYERS.items():
            tensors.update(named(key, layer))
        cls.file = UqffFile(cls.place(Folder.of(tensors)))

    @classmethod
    def tearDownClass(cls) -> None:
        cls.file.close()
        super().tearDownClass()

    def test_slices_of_all_ranks_together_are_the_layer(self) -> None:
        count = 0
        for key, (_, unit) in LAYERS.items():
            dims = self.file.info(key).shape
            whole = bits_of(self.file.get_tensor(key))
            for dim in range(len(dims)):
                for world in (1, 2, 4):
                    step = unit if dim == len(dims) - 1 else 1
                    if dims[dim] % (world * step):
                        continue
                    for rank in range(world):
                        part = self.file.slice(key, dim=dim, rank=rank, world=world)
                        n = dims[dim] // world
                        self.assertEqual(part.shape, (*dims[:dim], n, *dims[dim + 1 :]), key)
                        self.assertEqual(
                            bits_of(families.decode(part)), cut(whole, dims, dim, rank * n, n), (key, dim, world)
                        )
                        count += 1
        self.assertGreater(count, 300)

    def test_offsets_cut_whole_units(self) -> None:
        for key, (_, unit) in LAYERS.items():
            dims = self.file.info(key).shape
            whole = bits_of(self.file.get_tensor(key))
            for dim in range(len(dims)):
                step = unit if dim == len(dims) - 1 else 1
                start, length = step, dims[dim] - step
                if length:
                    part = self.file.slice(key, dim=dim, start=start, length=length)
                    self.assertEqual(bits_of(families.decode(part)), cut(whole, dims, dim, start, length), (key, dim))

    def test_a_cut_inside_a_unit_of_the_last_dimension_is_refused(self) -> None:
        for key, (_, unit) in LAYERS.items():
            dims = self.file.info(key).shape
            if unit == 1:
                self.assertEqual(self.file.slice(key, dim=len(dims) - 1, start=1, length=1).shape[-1], 1)
                continue
            for start, length in ((0, 1), (1, unit), (unit // 2, unit), (0, unit + unit // 2), (unit, 1)):
                refused(self, "align", self.file.slice, key, dim=len(dims) - 1, start=start, length=length)

    def test_ranks_whose_part_is_no_whole_unit_are_refused(self) -> None:
        key = "q4_0"  # 4 blocks of 32
        refused(self, "align", self.file.slice, key, dim=1, rank=0, world=8)
        refused(self, "shape", self.file.slice, key, dim=1, rank=0, world=3)
        refused(self, "align", self.file.slice, "afq4 in 64", dim=1, rank=0, world=8)
        refused(self, "align", self.file.slice, "mxfp4", dim=1, rank=0, world=8)
        refused(self, "align", self.file.slice, "f8q8", dim=1, rank=0, world=8)

    def test_bad_parameters_are_refused_for_every_layer(self) -> None:
        for key in LAYERS:
            rank = len(self.file.info(key).shape)
            n = self.file.info(key).shape[0]
            for how in (
                {"dim": rank, "rank": 0, "world": 1}, {"dim": -1, "rank": 0, "world": 1}, {"dim": 0, "rank": 1, "world": 1},
                {"dim": 0, "rank": 0, "world": 0}, {"dim": 0, "start": 0, "length": n + 1},
                {"dim": rank, "start": 0, "length": 1},
                {"dim": 0, "start": n, "length": 1}, {"dim": 0, "start": -1, "length": 1},
            ):  # fmt: skip
                refused(self, "range", self.file.slice, key, **how)

    def test_a_part_is_asked_for_in_one_of_two_ways(self) -> None:
        for how in ({}, {"rank": 0}, {"world": 1}, {"start": 0}, {"length": 1}, {"rank": 0, "length": 1},
                    {"rank": 0, "world": 1, "start": 0, "length": 1}):  # fmt: skip
            self.assertIsInstance(raised(self.file.slice, "q4_0", dim=0, **how), UsageError)

    def test_a_whole_layer_keeps_every_byte(self) -> None:
        for key, (layer, _) in LAYERS.items():
            n = self.file.info(key).shape[0]
            for part in (self.file.slice(key, dim=0, rank=0, world=1), self.file.slice(key, dim=0, start=0, length=n)):
                self.assertEqual(set(part.pieces), set(layer))
                for suffix, piece in part.pieces.items():
                    self.assertEqual((piece.dtype, tuple(piece.shape), bytes(piece.data)), tuple(layer[suffix]), key)

    def test_pieces_are_sound_tensors(self) -> None:
        for key in LAYERS:
            part = self.file.slice(key, dim=0, rank=1, world=2)
            for suffix, piece in part.pieces.items():
                self.assertEqual(len(piece.data) * 8, product(piece.shape) * BITS[piece.dtype], (key, suffix))

    def test_shape_entries_follow_the_cut(self) -> None:
        part = self.file.slice("a stack of q4_0", dim=1, rank=1, world=2)
        self.assertEqual(part.numbers(".shape"), (4, 1, 64))
        part = self.file.slice("f8q8", dim=0, rank=1, world=2)
        self.assertEqual((part.numbers(".shape"), part.number(".num_blocks")), ((2, 128), 8))

    def test_afq_cuts_words_scales_and_biases_by_its_groups(self) -> None:
        for bits in (2, 3, 4, 6, 8):
            layer, _ = LAYERS["afq%d in 32" % bits]
            part = self.file.slice("afq%d in 32" % bits, dim=1, start=32, length=64)
            words = [bytes(layer[""].data)[r * 16 * bits :][: 16 * bits] for r in range(4)]  # a row is 128 values
            self.assertEqual(bytes(part.pieces[""].data), b"".join([w[4 * bits : 12 * bits] for w in words]))
            self.assertEqual(part.pieces[""].shape, (4, 2 * bits))
            for suffix in (".scales", ".biases"):
                rows = [layer[suffix].data[r * 16 :][:16] for r in range(4)]
                self.assertEqual(bytes(part.pieces[suffix].data), b"".join([r[4:12] for r in rows]))
                self.assertEqual(part.pieces[suffix].shape, (4, 2))

    def test_mxfp4_cuts_half_bytes_and_scales(self) -> None:
        layer, _ = LAYERS["mxfp4"]
        part = self.file.slice("mxfp4", dim=1, start=32, length=64)
        self.assertEqual(
            bytes(part.pieces[""].data), b"".join([layer[""].data[64 * r + 16 : 64 * r + 48] for r in range(4)])
        )
        self.assertEqual(
            bytes(part.pieces[".scales"].data),
            b"".join([layer[".scales"].data[4 * r + 1 : 4 * r + 3] for r in range(4)]),
        )

    def test_scales_of_fp8_stay_whole(self) -> None:
        layer, _ = LAYERS["fp8"]
        for dim in (0, 1):
            part = self.file.slice("fp8", dim=dim, rank=1, world=2)
            for suffix in (".dequant_w_scale", ".dequant_x_scale", ".quant_scale", ".dtype", ".format"):
                self.assertEqual(bytes(part.pieces[suffix].data), layer[suffix].data)


class Unaligned(FolderTest):
    def opened(self, layer: dict[str, Any], bias: Any = None) -> UqffFile:
        file = UqffFile(self.place(Folder.of(named("a", layer, bias))))
        self.addCleanup(file.close)
        return file

    def test_hqq_is_not_cut_at_all(self) -> None:
        f = self.opened(hqq(4, 4, 64))
        part = f.slice("a", dim=0, rank=0, world=1)
        self.assertEqual(part.shape, (4, 64))
        self.assertEqual(families.decode(part), f.get_tensor("a"))
        for how in ({"dim": 0, "rank": 0, "world": 2}, {"dim": 1, "rank": 1, "world": 2}, {"dim": 0, "start": 0, "length": 2},
                    {"dim": 0, "start": 0, "length": 4}, {"dim": 1, "start": 0, "length": 64}):  # fmt: skip
            refused(self, "unsupported", f.slice, "a", **how)
        self.assertIn("HQQ", str(raised(f.slice, "a", dim=0, start=0, length=4)))

    def test_f8q8_whose_blocks_cross_rows_is_not_cut(self) -> None:
        f = self.opened(f8q8(4, 16))
        for how in (
            {"dim": 0, "rank": 0, "world": 2},
            {"dim": 1, "rank": 0, "world": 2},
            {"dim": 0, "start": 2, "length": 2},
        ):
            refused(self, "align", f.slice, "a", **how)
        self.assertEqual(families.decode(f.slice("a", dim=0, rank=0, world=1)), f.get_tensor("a"))
        self.assertEqual(families.decode(f.slice("a", dim=1, start=0, length=16)), f.get_tensor("a"))

    def test_a_faulty_layer_is_refused_before_its_cut(self) -> None:
        f = self.opened({**gguf(8, 4, 64), ".dtype": Tensor("U32", (), b"\x63\0\0\0")})
        self.assertEqual(raised(f.slice, "a", dim=9, rank=9, world=0).code, "uqff.g1.dtype")


class Biases(FolderTest):
    def part(self, layer: dict[str, Any], bias: Any, **how: Any) -> Any:
        with UqffFile(self.place(Folder.of(named("a", layer, bias)))) as f:
            return f.slice("a", **how).bias

    def test_a_matrix_cut_by_outputs_takes_its_part_of_the_bias(self) -> None:
        bias = smooth("F32", 4)
        for layer in (gguf(8, 4, 64), afq(4, 4, 64), unquant("F32", 4, 64), f8q8(4, 64), fp8(4, 64), mxfp4(4, 64)):
            for rank in (0, 1):
                piece = self.part(layer, bias, dim=0, rank=rank, world=2)
                self.assertEqual(
                    (piece.dtype, tuple(piece.shape), bytes(piece.data)), ("F32", (2,), bias.data[8 * rank :][:8])
                )

    def test_a_matrix_cut_by_inputs_takes_none(self) -> None:
        for layer in (gguf(8, 4, 64), afq(4, 4, 128), unquant("F32", 4, 64), f8q8(4, 64), fp8(4, 64), mxfp4(4, 64)):
            for rank in (0, 1):
                self.assertIsNone(self.part(layer, smooth("F32", 4), dim=1, rank=rank, world=2))

    def test_a_whole_matrix_takes_it_whole(self) -> None:
        bias = smooth("BF16", 4)
        for how in (
            {"dim": 0, "rank": 0, "world": 1},
            {"dim": 1, "rank": 0, "world": 1},
            {"dim": 1, "start": 0, "length": 64},
        ):
            piece = self.part(gguf(8, 4, 64), bias, **how)
            self.assertEqual((piece.dtype, tuple(piece.shape), bytes(piece.data)), ("BF16", (4,), bias.data))
        self.assertEqual(bytes(self.part(hqq(4, 4, 64), bias, dim=0, rank=0, world=1).data), bias.data)

    def test_a_stack_cuts_its_bias_along_the_same_dimension(self) -> None:
        bias = smooth("F32", 2, 4)
        values = list(struct.unpack("<8f", bias.data))
        for dim in (0, 1):
            for rank in (0, 1):
                n = (2, 4)[dim] // 2
                piece = self.part(gguf(8, 2, 4, 64), bias, dim=dim, rank=rank, world=2)
                self.assertEqual(list(struct.unpack("<4f", bytes(piece.data))), cut(values, (2, 4), dim, rank * n, n))
        self.assertIsNone(self.part(gguf(8, 2, 4, 64), bias, dim=2, rank=0, world=2))

    def test_a_missing_bias_is_fine(self) -> None:
        self.assertIsNone(self.part(gguf(8, 4, 64), None, dim=0, rank=0, world=2))

    def test_a_vector_that_is_cut_takes_none(self) -> None:
        self.assertIsNone(self.part(gguf(8, 64), smooth("F32"), dim=0, rank=0, world=2))


class Experts(FolderTest):
    """When a block of experts is cut, and when each rank holds it whole."""

    def plan(self, down: dict[str, Any], world: int, bias: Any = None) -> tuple[bool, str]:
        tensors = {**named("gate", gguf(8, 2, 64, 32)), **named("down", down, bias)}
        with UqffFile(self.place(Folder.of(tensors))) as f:
            return expert_plan(f.layers["gate"], f.layers["down"], world)

    def test_aligned_blocks_are_cut(self) -> None:
        for down, world in (
            (gguf(8, 2, 32, 64), 2), (gguf(12, 2, 32, 512), 2), (afq(4, 2, 32, 128), 2), (mxfp4(2, 32, 128), 4),
            (unquant("F32", 2, 32, 6), 3), (gguf(0, 2, 32, 6), 6),
        ):  # fmt: skip
            self.assertEqual(self.plan(down, world)[0], True)

    def test_one_rank_cuts_nothing(self) -> None:
        self.assertEqual(self.plan(gguf(8, 2, 32, 64), 1)[0], False)

    def test_unaligned_blocks_are_held_whole_by_every_rank(self) -> None:
        for down, world in (
            (gguf(8, 2, 32, 64), 4), (gguf(8, 2, 32, 64), 3), (gguf(12, 2, 32, 256), 2), (afq(4, 2, 32, 64), 2),
            (mxfp4(2, 32, 64), 4), (unquant("F32", 2, 32, 6), 4),
        ):  # fmt: skip
            self.assertEqual(self.plan(down, world)[0], False)

    def test_the_reason_tells_a_bias_from_geometry(self) -> None:
        bias = smooth("F32", 2, 32)
        cut_it, why = self.plan(gguf(8, 2, 32, 64), 2, bias)
        self.assertFalse(cut_it)
        self.assertIn("bias", why)
        for down, world in ((gguf(8, 2, 32, 64), 4), (gguf(8, 2, 32, 64), 3)):
            self.assertNotIn("bias", self.plan(down, world)[1])

    def test_the_unit_is_that_of_the_down_projection(self) -> None:
        for name, unit in (("moe-q4_0", 32), ("moe-afq4", 64)):
            with UqffFile(str(FILES / name)) as f:
                gate, down = f.layers[STACK % "gate"], f.layers[STACK % "down"]
                inter = down.logical_shape()[-1]
                for world in (2, 3, 4, 8):
                    wanted = inter % world == 0 and inter // world % unit == 0
                    self.assertEqual(expert_plan(gate, down, world)[0], wanted, (name, world))


class Real(unittest.TestCase):
    """Layers of the engine, cut as its parallel layers are."""

    def test_outputs_inputs_and_stacks_put_together_again(self) -> None:
        for name, key, dim, world in (
            ("afq3", Q, 0, 4), ("afq3", DOWN, 1, 2), ("bias-q8_0", Q, 0, 2), ("bias-q8_0", DOWN, 1, 2), ("f8q8", Q, 0, 4),
            ("f8q8", DOWN, 1, 2), ("fp8", Q, 0, 4), ("fp8", DOWN, 1, 4), ("mxfp4", Q, 0, 2), ("mxfp4", DOWN, 1, 2),
            ("q2k", Q, 0, 2), ("odd100-afq4", Q, 0, 4), ("topo1-q4_0", Q, 0, 2), ("moe-q4_0", STACK % "gate", 1, 2),
            ("moe-q4_0", STACK % "down", 2, 2), ("moe-afq4", STACK % "up", 1, 2), ("moe-afq4", STACK % "down", 0, 2),
        ):  # fmt: skip
            with self.subTest("%s %s" % (name, key)), UqffFile(str(FILES / name)) as f:
                dims = f.info(key).shape
                whole = bits_of(f.get_tensor(key))
                n = dims[dim] // world
                for rank in range(world):
                    part = f.slice(key, dim=dim, rank=rank, world=world)
                    self.assertEqual(bits_of(families.decode(part)), cut(whole, dims, dim, rank * n, n))

    def test_a_range_is_a_dimension_start_and_length(self) -> None:
        self.assertEqual(Range(1, 2, 3), (1, 2, 3))
        self.assertEqual(Range(1, 2, 3).length, 3)


if __name__ == "__main__":
    unittest.main()

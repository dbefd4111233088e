"""Every tensor of VQF decoded: by layer, expert and rows, whole and in pieces, plain and encrypted; and matvec.

A `Model` writes a file whose matrices are known as linear rows of blocks, lays them into tiles by the byte model of
tests/test_tiles.py, and says what each row decodes to by a decoder of its own. The layout of every tensor is written down
in MODELS, after spec sections 6 to 8.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import random
import struct
import unittest
from array import array
from collections import namedtuple
from fractions import Fraction
from operator import mul
from unittest import mock

from tests import samples
from tests.samples import F16, F32, HEADER, Q4_0, Q4_8X8L, Q8_0, arch, patch, place_of, real
from tests.test_matmul import exact
from tests.test_tiles import tiled
from tests.tools import thorough
from vqfref import kernels
from vqfref.crypto.sm3 import SM3
from vqfref.crypto.sm4 import sm4_ctr
from vqfref.errors import IntegrityError, TensorNotFound, UnsupportedError, UsageError
from vqfref.quant import matmul
from vqfref.source import Source
from vqfref.vqf import reader
from vqfref.vqf.reader import VqfFile

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterator, Sequence

SIZES = {Q8_0: 34, Q4_0: 18, Q4_8X8L: 18}
HEIGHTS = {"q8_8x8": 8, "q8_4x4": 4, "q4_4x4": 4, "q4_8x8l": 8, "q4_8x8l of q4_4x4": 8}
PASSPHRASE = b"correct horse battery staple"

Tensor = namedtuple("Tensor", "name qtype layers out cols experts axis pad layout data")
Tensor.__doc__ = """out, cols: one layer as it is stored; experts share its rows (axis 0) or columns (axis 1); pad: columns
of it that are padding; data: for each layer its linear rows of blocks, or its flat bytes where rows are no whole blocks."""


class Model:
    """A file of an arch: `data` its bytes, `tensors` what is in it. layouts: those of q8_*, q4_* and x8_*; `linear` names
    the tensors that don't fit them."""

    def __init__(
        self, a: dict[str, Any], families: str, flags: int, layouts: Sequence[str], linear: Sequence[str] = (),
        version: int = 2, q8_tile: int = 0,
    ) -> None:  # fmt: skip
        rows = samples.text_rows(a, families) + (samples.vision_rows(a) if flags & 0x40 else [])
        if not flags & 0x20:
            rows[0] = samples.row("token_embed", F32, a["vocab_size"], a["dim"])
        self.q8_tile = q8_tile
        self.data = samples.build(a, rows, flags, version=version, seal=False)
        self.tensors: dict[str, Tensor] = {}
        for row in rows:
            prefix = {"q8_": 0, "q4_": 1, "x8_": 2}.get(row.name[:3])
            layout = "linear" if prefix is None or row.name in linear else layouts[prefix]
            t = self.tensors[row.name] = self.tensor(a, row, layout)
            stored = b"".join(lay_out(layer, t) for layer in t.data)
            if len(stored) != row.bytes:
                raise AssertionError("%s: %d bytes, the directory has %d" % (row.name, len(stored), row.bytes))
            self.data = patch(self.data, place_of(self.data, row.name)[0], "%ds" % len(stored), stored)

    def tensor(self, a: dict[str, Any], row: samples.Row, layout: str) -> Tensor:
        layers, out, cols, pad = matrix_of(a, row.name)
        kind = row.name[3:] if row.name[2:3] == "_" else ""
        experts = a["n_experts"] if kind in ("gate", "up", "down") else 0
        axis = 1 if kind == "down" else 0
        data = [contents("%s %d" % (row.name, i), row.qtype, out, cols, pad) for i in range(layers)]
        return Tensor(row.name, row.qtype, layers, out, cols, experts, axis, pad, layout, data)

    def open(self, source: Source | None = None, passphrase: bytes | None = None) -> VqfFile:
        return VqfFile(source or Source(self.data), passphrase=passphrase, q8_tile=self.q8_tile)

    def places(self) -> Iterator[tuple[Tensor, int, int | None, range, range]]:
        """(tensor, layer, expert, rows, columns) of every single matrix, in the order of `get_tensor` without layer and
        expert; the last two inside the stored matrix."""
        for t in self.tensors.values():
            for layer in range(t.layers):
                for expert in range(t.experts) if t.experts else (None,):
                    yield t, layer, expert, *part(t, expert)


def matrix_of(a: dict[str, Any], name: str) -> tuple[int, int, int, int]:
    """(layers, rows, columns, columns that are padding) of a tensor as it is stored; section 6."""
    nl, dim, ff = a["n_layers"], a["dim"], a["ffn_dim"]
    q_out, k_out = a["n_heads"] * a["head_dim"], a["n_kv_heads"] * a["head_dim"]
    vh, vd, vf, out, ds = (a["vis_" + n] for n in ("hidden", "depth", "ffn", "out_dim", "ds_count"))
    mi = vh * a["vis_merge"] ** 2
    text = {
        "token_embed": (1, a["vocab_size"], dim), "final_norm": (1, 1, dim), "attn_norm": (nl, 1, dim),
        "ffn_norm": (nl, 1, dim), "q_norm": (nl, 1, a["head_dim"]), "k_norm": (nl, 1, a["head_dim"]),
        "moe_router": (nl, a["n_experts"], dim), "q": (nl, q_out, dim), "k": (nl, k_out, dim), "v": (nl, k_out, dim),
        "o": (nl, dim, q_out), "gate": (nl, ff, dim), "up": (nl, ff, dim), "down": (nl, dim, ff),
        "lm": (1, a["vocab_size"], dim),
        "v_q8_qkv": (vd, 3 * vh, vh), "v_q8_proj": (vd, vh, vh), "v_q8_fc1": (vd, vf, vh),
        "v_q8_fc2": (vd, vh, (vf + 31) // 32 * 32),
        "v_patch_embed": (1, vh, 3 * a["vis_temporal"] * a["vis_patch"] ** 2), "v_patch_bias": (1, 1, vh),
        "v_pos_embed": (1, a["vis_max_pos"], vh), "v_qkv_bias": (vd, 1, 3 * vh), "v_proj_bias": (vd, 1, vh),
        "v_norm1_w": (vd, 1, vh), "v_norm1_b": (vd, 1, vh), "v_norm2_w": (vd, 1, vh), "v_norm2_b": (vd, 1, vh),
        "v_fc1_bias": (vd, 1, vf), "v_fc2_bias": (vd, 1, vh), "v_merger_nw": (1, 1, vh), "v_merger_nb": (1, 1, vh),
        "v_merger_f1w": (1, mi, mi), "v_merger_f1b": (1, 1, mi), "v_merger_f2w": (1, out, mi),
        "v_merger_f2b": (1, 1, out), "v_ds_nw": (ds, 1, mi), "v_ds_nb": (ds, 1, mi), "v_ds_f1w": (ds, mi, mi),
        "v_ds_f1b": (ds, 1, mi), "v_ds_f2w": (ds, out, mi), "v_ds_f2b": (ds, 1, out),
    }  # fmt: skip
    layers, rows, cols = text[name if name in text else name[3:]]
    return layers, rows, cols, -vf % 32 if name == "v_q8_fc2" else 0


def contents(label: str, qtype: int, out: int, cols: int, pad: int) -> bytes:
    """One layer in flat rows: floats of sane size, or blocks of any codes with sane scales, or padding of zeros."""
    n = out * cols
    noise = hashlib.shake_256(label.encode()).digest(4 * n)
    if qtype in (F32, F16):
        words = struct.unpack("<%dh" % n, noise[: 2 * n])
        return struct.pack("<%d%s" % (n, "f" if qtype == F32 else "e"), *[w / 4096 for w in words])
    size = SIZES[qtype]
    made = bytearray()
    for b in range(n // 32):
        codes = bytearray(noise[b * size + 2 : (b + 1) * size])
        if pad and (b + 1) * 32 % cols == 0:
            codes[32 - pad :] = bytes(pad)
        made += struct.pack("<e", 2.0 ** -(noise[b * size] % 5) * (1 if noise[b * size + 1] & 1 else -1.5)) + codes
    return bytes(made)


def lay_out(flat: bytes, t: Tensor) -> bytes:
    """The bytes of a layer in its layout."""
    if t.layout == "linear":
        return flat
    outer, _, inner = t.layout.partition(" of ")
    size = t.cols // 32 * SIZES[t.qtype]
    if inner:
        flat = tiled([flat[i : i + size] for i in range(0, len(flat), size)], inner)
    return tiled([flat[i : i + size] for i in range(0, len(flat), size)], outer)


def decoded(flat: bytes, qtype: int) -> list[float]:
    """The values of flat bytes, by section 7."""
    if qtype in (F32, F16):
        code, size = ("f", 4) if qtype == F32 else ("e", 2)
        return list(struct.unpack("<%d%s" % (len(flat) // size, code), flat))
    values: list[float] = []
    for at in range(0, len(flat), SIZES[qtype]):
        (d,) = struct.unpack_from("<e", flat, at)
        codes = flat[at + 2 : at + SIZES[qtype]]
        if qtype == Q8_0:
            values += [d * (q - 256 if q > 127 else q) for q in codes]
        else:
            values += [d * (q % 16 - 8) for q in codes] + [d * (q // 16 - 8) for q in codes]
    return values


def part(t: Tensor, expert: int | None) -> tuple[range, range]:
    """The rows and columns of an expert, or of the whole without its padding, inside the stored matrix."""
    rows, cols = range(t.out), range(t.cols - t.pad)
    if expert is not None and t.axis == 0:
        n = t.out // t.experts
        rows = range(expert * n, expert * n + n)
    elif expert is not None:
        n = t.cols // t.experts
        cols = range(expert * n, expert * n + n)
    return rows, cols


@functools.lru_cache(maxsize=None)
def matrix(model: str, name: str, layer: int) -> list[list[float]]:
    """The rows of one stored matrix."""
    t = made(model).tensors[name]
    flat = decoded(t.data[layer], t.qtype)
    return [flat[i : i + t.cols] for i in range(0, len(flat), t.cols)]


def wanted(model: str, t: Tensor, layer: int, rows: range, cols: range) -> list[float]:
    whole = matrix(model, t.name, layer)
    return [v for row in rows for v in whole[row][cols.start : cols.stop]]


def fewest_bytes(t: Tensor, rows: range, cols: range) -> int:
    """How many bytes hold these rows and columns, in whole blocks or tiles; of a copy of tiles, in whole rows of them."""
    if not rows or not cols:
        return 0
    if t.qtype in (F32, F16):
        return len(rows) * len(cols) * (4 if t.qtype == F32 else 2)
    size = SIZES[t.qtype]
    if t.layout == "linear":
        blocks = {
            b for r in rows for b in range((r * t.cols + cols.start) // 32, (r * t.cols + cols.stop - 1) // 32 + 1)
        }
        return len(blocks) * size
    height = HEIGHTS[t.layout]
    groups = rows[-1] // height - rows[0] // height + 1
    width = t.cols // 32 if " of " in t.layout else cols[-1] // 32 - cols[0] // 32 + 1
    return groups * width * height * size


# ---- models: layouts by section 8; every flag is written out

SMALL = arch(dim=64, n_layers=2, n_heads=4, n_kv_heads=2, head_dim=8, head_dim_full=8, ffn_dim=64, vocab_size=40)
LINEAR_O = arch(dim=64, n_layers=2, n_heads=3, n_kv_heads=1, head_dim=20, head_dim_full=20, ffn_dim=32, vocab_size=36)
EXPERTS = arch(
    dim=64,
    n_layers=2,
    n_heads=2,
    head_dim=16,
    head_dim_full=16,
    vocab_size=40,
    ffn_dim=96,
    n_experts=3,
    moe_ffn=32,
    top_k=2,
)
# 20 rows an expert: tiles of eight rows and blocks of 32 columns belong to two of them.
SHARED = {**EXPERTS, "dim": 32, "ffn_dim": 160, "n_experts": 8, "moe_ffn": 20}
VISION = arch(
    has_vision=1, vis_depth=2, vis_hidden=32, vis_heads=2, vis_ffn=40, vis_patch=2, vis_temporal=2, vis_merge=1,
    vis_out_dim=32, vis_in_chan=3, vis_max_pos=9, vis_ds_count=2, vis_ds_idx1=1,
)  # fmt: skip
NARROW = {**VISION, "vis_hidden": 16, "vis_ffn": 24, "vis_merge": 2, "vis_ds_count": 1}  # rows of half a block
TILES = ("q8_8x8", "q4_4x4", "q4_8x8l of q4_4x4")
ROWS = ("linear", "linear", "q4_8x8l")

MODELS: dict[str, Any] = {
    "tiles": (SMALL, "84x", 0x27, TILES),
    "rows": (SMALL, "84x", 0x24, ROWS),
    "rows of f32": (SMALL, "4", 0, ROWS),
    "q8 4x4": (SMALL, "8", 0x22, ("q8_4x4", "", ""), (), 2, 4),
    "q4i": (SMALL, "8", 0x2A, ROWS),
    "g256": (SMALL, "8", 0x33, TILES),
    "o linear": (LINEAR_O, "84", 0x22, ("linear", "q4_4x4", ""), ("q4_o",)),
    "moe": (EXPERTS, "84x", 0x227, TILES, (), 3),
    "moe rows": (EXPERTS, "84x", 0x224, ROWS, (), 3),
    "shared": (SHARED, "84", 0x223, TILES, (), 3),
    "shared rows": (SHARED, "84", 0x220, ROWS, (), 3),
    "vision": (VISION, "4", 0x63, TILES),
    "narrow": (NARROW, "4", 0x63, TILES),
}


@functools.lru_cache(maxsize=None)
def made(name: str) -> Model:
    return Model(*MODELS[name])


@functools.lru_cache(maxsize=None)
def encrypted(name: str) -> bytes:
    """The same file with its data area encrypted as section 5 has it; the tag is none."""
    data = made(name).data
    (flags,) = struct.unpack_from("<I", data, 8)
    start, stop = struct.unpack_from("<QQ", data, HEADER[448]["data_offset"])
    iv = bytes(range(0xF1, 0x100)) + b"\xff"
    data = patch(patch(data, 8, "I", flags | 0x80), HEADER[448]["enc_iv"], "16s", iv)
    key = SM3(PASSPHRASE).digest()[:16]
    return data[:start] + sm4_ctr(key, iv, data[start:stop], 0) + bytes(32)


class Counting(Source):
    """A source that notes which bytes are asked for."""

    def __init__(self, data: bytes) -> None:
        super().__init__(data)
        self.asked: list[tuple[int, int]] = []

    def view(self, offset: int, length: int) -> memoryview:
        self.asked.append((offset, length))
        return super().view(offset, length)

    def read_at(self, offset: int, length: int) -> bytes:
        self.asked.append((offset, length))
        return super().read_at(offset, length)


def some_rows(n: int) -> list[slice]:
    """Selections of n rows that begin and end inside of tiles, at their ends and beyond."""
    return [
        slice(0, 1),
        slice(3, 9),
        slice(n - 1, n),
        slice(4, 8),
        slice(7, None),
        slice(-5, -2),
        slice(2, 2),
        slice(0, n + 9),
    ]


class Case(unittest.TestCase):
    def same(self, got: array[float], want: list[float], *what: object) -> None:
        self.assertEqual(got.typecode, "f")
        if got != array("f", want):
            self.assertEqual(got.tolist(), want, what)


class Decoding(Case):
    @thorough
    def test_every_tensor_of_every_model_whole_and_by_layer_and_expert(self) -> None:
        for name in MODELS:
            f = made(name).open()
            whole: dict[str, list[float]] = {}
            for t, layer, expert, rows, cols in made(name).places():
                want = wanted(name, t, layer, rows, cols)
                self.same(f.get_tensor(t.name, layer=layer, expert=expert), want, name, t.name, layer, expert)
                whole.setdefault(t.name, []).extend(want)
            self.assertEqual(list(whole), f.keys())
            for tensor, want in whole.items():
                self.same(f.get_tensor(tensor), want, name, tensor)

    def test_true_shapes_multiply_to_the_number_of_values(self) -> None:
        for name in MODELS:
            f = made(name).open()
            for t in made(name).tensors.values():
                info = f.info(t.name)
                rows, cols = part(t, 0 if t.experts else None)
                self.assertEqual(info.shape[-1], len(cols), (name, t.name))
                self.assertEqual(info.shape[0] if len(info.shape) == 2 else 1, len(rows), (name, t.name))
                self.assertEqual(info.experts, t.experts, (name, t.name))
                self.assertEqual(max(info.layers, 1), t.layers, (name, t.name))
                count = max(info.layers, 1) * max(info.experts, 1) * len(rows) * len(cols)
                self.assertEqual(count, len(f.get_tensor(t.name)), (name, t.name))

    @thorough
    def test_rows_are_a_slice_of_one_matrix_and_cost_their_own_blocks_and_tiles_alone(self) -> None:
        for name in MODELS:
            source = Counting(made(name).data)
            f = made(name).open(source)
            for t, layer, expert, rows, cols in made(name).places():
                if layer != t.layers - 1 or t.out == 1 or (expert is not None and expert not in (1, t.experts - 1)):
                    continue
                for some in some_rows(len(rows)):
                    del source.asked[:]
                    got = f.get_tensor(t.name, layer=layer, expert=expert, rows=some)
                    self.same(got, wanted(name, t, layer, rows[some], cols), name, t.name, expert, some)
                    self.assertEqual(
                        sum(n for _, n in source.asked), fewest_bytes(t, rows[some], cols), (name, t.name, expert, some)
                    )
                    offset, size = place_of(made(name).data, t.name)
                    size //= t.layers
                    for start, n in source.asked:
                        self.assertTrue(offset + layer * size <= start <= start + n <= offset + (layer + 1) * size)

    def test_one_layer_or_expert_costs_its_own_bytes_alone(self) -> None:
        for name in ("tiles", "moe", "shared", "shared rows", "vision"):
            source = Counting(made(name).data)
            f = made(name).open(source)
            for t, layer, expert, rows, cols in made(name).places():
                del source.asked[:]
                f.get_tensor(t.name, layer=layer, expert=expert)
                self.assertEqual(sum(n for _, n in source.asked), fewest_bytes(t, rows, cols), (name, t.name, expert))

    def test_x8_copies_are_unscrambled_to_the_values_of_their_q4(self) -> None:
        rows = [r for r in samples.text_rows(SMALL, "4x") if r.name in ("q4_gate", "x8_gate")]
        data = samples.build(SMALL, rows, 0x27, seal=False)
        q4 = made("tiles").tensors["q4_gate"]
        for name in ("q4_gate", "x8_gate"):
            t = q4 if name == "q4_gate" else q4._replace(layout="q4_8x8l of q4_4x4")
            stored = b"".join(lay_out(layer, t) for layer in q4.data)
            data = patch(data, place_of(data, name)[0], "%ds" % len(stored), stored)
        f = VqfFile(Source(data))
        self.assertNotEqual(f.raw("x8_gate"), f.raw("q4_gate"))
        self.assertEqual(f.get_tensor("x8_gate"), f.get_tensor("q4_gate"))
        self.assertEqual(
            f.get_tensor("x8_gate", layer=1, rows=slice(5, 21)), f.get_tensor("q4_gate", layer=1, rows=slice(5, 21))
        )

    def test_tiled_and_linear_forms_decode_to_the_same_values(self) -> None:
        tiles, rows = made("tiles").open(), made("rows").open()
        for name in made("rows").tensors:
            self.assertEqual(tiles.get_tensor(name), rows.get_tensor(name), name)
            if name[:3] in ("q8_", "q4_", "x8_"):
                self.assertNotEqual(tiles.raw(name), rows.raw(name), name)


class Pieces(Case):
    def test_values_and_rows_one_by_one_are_those_of_get_tensor(self) -> None:
        some = ("tiles", "rows of f32", "q8 4x4", "o linear", "moe rows", "narrow")
        for name, at_once in (
            *((m, 300) for m in some),
            ("shared", 1),
            ("vision", 1),
            ("moe", 1 << 18),
        ):
            f = made(name).open()
            with mock.patch.object(reader, "VALUES_AT_ONCE", at_once):
                for t in made(name).tensors.values():
                    pieces = list(f.values(t.name))
                    self.assertEqual(sum(pieces, array("f")), f.get_tensor(t.name), (name, t.name))
                    self.assertLessEqual(max(map(len, pieces)), max(8 * t.cols, at_once), (name, t.name))
                if at_once != 300:
                    continue
                for t, layer, expert, rows, cols in made(name).places():
                    if layer == t.layers - 1:
                        got = list(f.iter_rows(t.name, layer=layer, expert=expert))
                        self.assertEqual([len(row) for row in got], [len(cols)] * len(rows), (name, t.name))
                        self.same(sum(got, array("f")), wanted(name, t, layer, rows, cols), name, t.name)

    def test_some_rows_one_by_one_are_those_of_get_tensor(self) -> None:
        for name in ("tiles", "o linear", "moe", "shared", "vision"):
            f = made(name).open()
            for t, layer, expert, rows, _ in made(name).places():
                if layer == t.layers - 1 and t.out > 1:
                    for some, at_once in itertools.product(
                        (slice(3, 9), slice(-5, None), slice(5, 30), slice(9, 3)), (1, 1 << 18)
                    ):
                        with mock.patch.object(reader, "VALUES_AT_ONCE", at_once):
                            got = list(f.iter_rows(t.name, layer=layer, expert=expert, rows=some))
                        self.assertEqual(len(got), len(rows[some]))
                        want = f.get_tensor(t.name, layer=layer, expert=expert, rows=some)
                        self.assertEqual(sum(got, array("f")), want, (name, t.name, some))

    def test_a_pass_over_all_values_reads_every_byte_once(self) -> None:
        # Rows that are no whole blocks come eight at a time: those begin and end with blocks.
        for name, at_once in (("tiles", 1024), ("tiles", 1), ("rows", 1), ("o linear", 1), ("vision", 200)):
            source = Counting(made(name).data)
            f = made(name).open(source)
            with mock.patch.object(reader, "VALUES_AT_ONCE", at_once):
                for t in made(name).tensors.values():
                    del source.asked[:]
                    for _ in f.values(t.name):
                        pass
                    self.assertEqual(sum(n for _, n in source.asked), f.info(t.name).nbytes, (name, t.name))

    def test_rows_are_read_as_they_are_asked_for(self) -> None:
        source = Counting(made("tiles").data)
        f = made("tiles").open(source)
        del source.asked[:]
        with mock.patch.object(reader, "VALUES_AT_ONCE", 1):
            rows = f.iter_rows("q8_gate", layer=1)
            next(rows)
        self.assertEqual([n for _, n in source.asked], [8 * 2 * 34])


class Encrypted(Case):
    def test_tensors_decode_to_the_values_of_the_plain_file(self) -> None:
        plain = made("shared").open()
        f = made("shared").open(Source(encrypted("shared")), PASSPHRASE)
        for t in ("token_embed", "k_norm", "moe_router", "q8_v", "q4_o", "q4_down", "q4_lm"):
            self.assertNotEqual(f.raw(t), plain.raw(t), t)
            self.assertEqual(f.get_tensor(t), plain.get_tensor(t), t)
        self.assertEqual(sum(f.values("q8_o"), array("f")), plain.get_tensor("q8_o"))

    def test_rows_and_experts_cost_the_reading_and_decrypting_of_their_own_bytes_alone(self) -> None:
        lengths: list[int] = []

        def counted(key: bytes, iv: bytes, data: bytes, offset: int) -> bytes:
            lengths.append(len(data))
            return sm4_ctr(key, iv, data, offset)

        source = Counting(encrypted("shared"))
        f = made("shared").open(source, PASSPHRASE)
        with mock.patch.object(kernels, "sm4_ctr", counted):
            for t, layer, expert, rows, cols in made("shared").places():
                if layer != t.layers - 1 or t.out == 1 or (expert is not None and expert != 5):
                    continue
                for some in (slice(3, 9), slice(7, 8)):
                    del source.asked[:], lengths[:]
                    got = f.get_tensor(t.name, layer=layer, expert=expert, rows=some)
                    self.same(got, wanted("shared", t, layer, rows[some], cols), t.name, some)
                    want = fewest_bytes(t, rows[some], cols)
                    self.assertEqual((sum(n for _, n in source.asked), sum(lengths)), (want, want), (t.name, some))

    def test_matvec_and_rows_without_the_passphrase_are_refused(self) -> None:
        f = made("shared").open(Source(encrypted("shared")))
        for call in (
            lambda: f.matvec("q8_q", [0.0] * 32),
            lambda: f.matvec("moe_router", [0.0] * 32),
            lambda: next(f.iter_rows("q8_q")),
            lambda: next(f.values("q8_q")),
        ):
            with self.assertRaises(IntegrityError) as caught:
                call()
            self.assertEqual(caught.exception.code, "vqf.enc.key")

    def test_matvec_of_an_encrypted_file_is_that_of_the_plain_one(self) -> None:
        x = [0.125 * (i % 17 - 8) for i in range(32)]
        plain = made("shared").open()
        f = made("shared").open(Source(encrypted("shared")), PASSPHRASE)
        for name, expert in (("q8_q", None), ("q4_up", 5), ("moe_router", None)):
            self.assertEqual(f.matvec(name, x, layer=1, expert=expert), plain.matvec(name, x, layer=1, expert=expert))


# ---- matvec


def quantized(x: Sequence[float]) -> tuple[list[float], list[list[int]]]:
    """Section 10's activation: per 32 columns section 9's Q8_0 arithmetic, the scale kept in single precision."""
    scales, codes = [], []
    for at in range(0, len(x), 32):
        block = array("f", x[at : at + 32])
        floor = array("f", [1e-10])[0]
        s = max(array("f", [max([floor, *map(abs, block)]) / 127])[0], floor)
        r = array("f", [1 / s])[0]
        t = array("f", [v * r for v in block])
        t = array("f", [v - 0.5 if v < 0 else v + 0.5 for v in t])
        scales.append(s)
        codes.append([int(v) for v in t])
    return scales, codes


def vector(n: int, seed: int = 1) -> array[float]:
    rng = random.Random(seed)
    return array("f", [rng.gauss(0, 1) * 4 ** (i // 32 % 3) for i in range(n)])


class Matvec(Case):
    def expect(self, got: array[float], rows: Sequence[Sequence[float]], x: Sequence[float], *what: object) -> None:
        """A product of dequantized rows and the quantized vector, all exact, within section 10's bound."""
        self.assertEqual((got.typecode, len(got)), ("f", len(rows)), what)
        scales, codes = quantized(x)
        for y, row in zip(got, rows):
            # A block's weights are a half times small integers: their products and sums are exact in doubles.
            sums = [sum(map(mul, row[32 * b : 32 * b + 32], block)) for b, block in enumerate(codes)]
            terms = [Fraction(total) * Fraction(s) for total, s in zip(sums, scales)]
            bound = len(terms) * Fraction(1, 1 << 23) * sum(map(abs, terms))
            self.assertLessEqual(abs(Fraction(y) - sum(terms)), bound, what)

    def test_every_matrix_of_the_real_files(self) -> None:
        # One layer of 32 x 32 in tiles of four rows: a block a row.
        x = vector(32)
        scales, codes = quantized(x)
        first = {}
        for kind in samples.REAL:
            f = VqfFile(Source(real(kind)), passphrase=PASSPHRASE if "enc" in kind else None)
            for name in ("q4_q", "q4_k", "q4_v", "q4_o", "q4_gate", "q4_up", "q4_down", "q4_lm"):
                y = f.matvec(name, x)
                self.assertEqual(first.setdefault(name, y), y, (kind, name))
                if kind != "h448-plain":
                    continue
                offset, size = place_of(real(kind), name)
                tiles = real(kind)[offset : offset + size]
                rows = untiled_4x4(tiles)
                self.assertEqual(tiled(rows, "q4_4x4"), tiles)
                self.expect(y, [decoded(row, Q4_0) for row in rows], x, name)
                for row, view, got in zip(rows, matmul.rows_of(f.raw(name), 32, "q4_0", "q4_4x4"), y):
                    nibbles = [b % 16 - 8 for b in row[2:]] + [b // 16 - 8 for b in row[2:]]
                    integer = sum(map(int.__mul__, nibbles, codes[0]))
                    self.assertEqual(matmul.block_sums(view, codes, "q4_0"), [integer])
                    want, bound = exact(row, scales, codes, "q4_0")
                    self.assertLessEqual(abs(Fraction(got) - want), bound)

    @thorough
    def test_every_matrix_of_every_model(self) -> None:
        for name in ("tiles", "rows", "q8 4x4", "q4i", "moe", "moe rows", "vision"):
            f = made(name).open()
            for t, layer, expert, rows, cols in made(name).places():
                if t.qtype in (F32, F16) or layer != t.layers - 1 or expert == 0:
                    continue
                x = vector(len(cols), layer)
                matrix_rows = matrix(name, t.name, layer)
                want = [matrix_rows[r][cols.start : cols.stop] for r in rows]
                self.expect(f.matvec(t.name, x, layer=layer, expert=expert), want, x, name, t.name, layer, expert)

    def test_tiles_and_rows_give_the_same_bits(self) -> None:
        for tiles_name, rows_name in (("tiles", "rows"), ("moe", "moe rows"), ("shared", "shared rows")):
            tiles, rows = made(tiles_name).open(), made(rows_name).open()
            for t, layer, expert, _, cols in made(tiles_name).places():
                if t.out > 1 and layer == t.layers - 1 and (cols.start % 32, len(cols) % 32) == (0, 0):
                    x = vector(len(cols), 2)
                    got = tiles.matvec(t.name, x, layer=layer, expert=expert)
                    self.assertEqual(
                        got, rows.matvec(t.name, x, layer=layer, expert=expert), (tiles_name, t.name, expert)
                    )

    def test_experts_that_share_tiles_have_their_own_rows(self) -> None:
        for name in ("shared", "shared rows"):
            f = made(name).open()
            x = vector(32)
            for tensor, layer, expert in itertools.product(("q8_gate", "q4_up"), (0, 1), range(8)):
                want = matrix(name, tensor, layer)[20 * expert : 20 * expert + 20]
                self.expect(f.matvec(tensor, x, layer=layer, expert=expert), want, x, name, tensor, layer, expert)

    def test_all_experts_of_a_layer_are_its_stored_matrix(self) -> None:
        f = made("moe").open()
        for tensor in ("q8_gate", "q4_down"):
            t = made("moe").tensors[tensor]
            x = vector(t.cols)
            self.expect(f.matvec(tensor, x, layer=1), matrix("moe", tensor, 1), x, tensor)
        self.assertEqual(
            f.matvec("q8_gate", vector(64), layer=1),
            sum([f.matvec("q8_gate", vector(64), layer=1, expert=e) for e in range(3)], array("f")),
        )

    def test_the_first_layer_is_the_default(self) -> None:
        f = made("tiles").open()
        x = vector(64)
        self.assertEqual(f.matvec("q8_q", x), f.matvec("q8_q", x, layer=0))
        self.assertNotEqual(f.matvec("q8_q", x), f.matvec("q8_q", x, layer=1))

    def test_float_matrices_are_multiplied_in_single_precision(self) -> None:
        for name, tensor, layer in (
            ("tiles", "token_embed", 0), ("rows of f32", "token_embed", 0), ("moe", "moe_router", 1), ("vision", "v_ds_f1w", 1),
            ("vision", "v_patch_embed", 0), ("tiles", "attn_norm", 1),
        ):  # fmt: skip
            f = made(name).open()
            t = made(name).tensors[tensor]
            x = vector(t.cols, 3)
            for y, row in zip(f.matvec(tensor, x, layer=layer), matrix(name, tensor, layer)):
                total = 0.0
                for w, v in zip(row, x):
                    total = struct.unpack(
                        "<f", struct.pack("<f", total + struct.unpack("<f", struct.pack("<f", w * v))[0])
                    )[0]
                self.assertEqual(y, total, (name, tensor))
            self.assertEqual(len(f.matvec(tensor, x, layer=layer)), t.out)

    def test_padding_columns_of_vision_fc2_take_no_part(self) -> None:
        f = made("vision").open()  # 40 columns, stored as 64
        x = vector(40)
        for layer in (0, 1):
            want = matrix("vision", "v_q8_fc2", layer)
            self.expect(f.matvec("v_q8_fc2", x, layer=layer), want, [*x, *[0.0] * 24], layer)

    def test_a_matrix_whose_rows_are_no_whole_blocks_is_refused_with_the_way_out(self) -> None:
        for name, tensor, n, expert in (
            ("narrow", "v_q8_qkv", 16, None),
            ("o linear", "q4_o", 60, None),
            ("shared", "q8_down", 20, 1),
            ("shared rows", "q4_down", 20, 0),
        ):
            f = made(name).open()
            with self.assertRaises(UnsupportedError) as caught:
                f.matvec(tensor, [0.0] * n, layer=1, expert=expert)
            self.assertEqual((caught.exception.code, caught.exception.field), ("vqf.columns.align", tensor))
            self.assertIn("dequantize", str(caught.exception))
            self.assertEqual(len(f.get_tensor(tensor, layer=1, expert=expert)) % n, 0)

    def test_a_product_costs_the_bytes_of_its_matrix_alone(self) -> None:
        for name in ("tiles", "moe", "shared"):
            source = Counting(made(name).data)
            f = made(name).open(source)
            for t, layer, expert, rows, cols in made(name).places():
                if layer == t.layers - 1 and (cols.start % 32, len(cols) % 32) == (0, 0) and expert in (None, 1):
                    del source.asked[:]
                    f.matvec(t.name, [0.0] * len(cols), layer=layer, expert=expert)
                    self.assertEqual(sum(n for _, n in source.asked), fewest_bytes(t, rows, cols), (name, t.name))

    def test_what_does_not_fit_is_the_caller_s_fault(self) -> None:
        f = made("moe").open()
        for code, name, n, options in (
            ("usage.vector.shape", "q8_q", 63, {}),
            ("usage.vector.shape", "q8_q", 0, {}),
            ("usage.vector.shape", "q8_down", 96, {"expert": 0}),
            ("usage.vector.shape", "token_embed", 65, {}),
            ("usage.layer.range", "q8_q", 64, {"layer": 2}),
            ("usage.layer.range", "q8_q", 64, {"layer": -1}),
            ("usage.layer.range", "q8_lm", 64, {"layer": 1}),
            ("usage.layer.range", "moe_router", 64, {"layer": 2}),
            ("usage.expert.range", "q8_gate", 64, {"expert": 3}),
            ("usage.expert.range", "q8_q", 64, {"expert": 0}),
            ("usage.expert.range", "moe_router", 64, {"expert": 0}),
        ):
            with self.subTest(name, **options), self.assertRaises(UsageError) as caught:
                f.matvec(name, [0.0] * n, **options)
            self.assertEqual(caught.exception.code, code, (name, options))
        with self.assertRaises(TensorNotFound):
            f.matvec("q2_q", [0.0] * 64)


def untiled_4x4(tiles: bytes) -> list[bytes]:
    """Rows of one Q4_0 block from tiles of four rows, by section 8."""
    rows = []
    for at in range(0, len(tiles), 72):
        tile = tiles[at : at + 72]
        for m in range(4):
            chunks = [tile[8 + 4 * i : 12 + 4 * i] for i in range(16) if i % 4 == m]
            rows.append(tile[2 * m : 2 * m + 2] + bytes(b ^ 0x88 for b in b"".join(chunks)))
    return rows


class Chunks(Case):
    """An lm of 16384 + 12 rows: its first chunk is in tiles, the last in tiles of four rows or linear, as 12 is no
    multiple of 8. All rows but the first and last 8 of each chunk are zero."""

    ROWS = 16384 + 12
    KNOWN = (*range(8), *range(16376, 16396))

    @classmethod
    def setUpClass(cls) -> None:
        a = arch(vocab_size=cls.ROWS)
        rows = [r for r in samples.text_rows(a, "84") if r.name in ("q8_lm", "q4_lm")]
        data = samples.build(a, rows, 0x23, seal=False)
        cls.known = {}
        for name, qtype, layout, last in (("q8_lm", Q8_0, "q8_8x8", "linear"), ("q4_lm", Q4_0, "q4_4x4", "q4_4x4")):
            size = SIZES[qtype]
            flat = contents(name, qtype, len(cls.KNOWN), 32, 0)
            blocks = [flat[i : i + size] for i in range(0, len(flat), size)]
            cls.known[name] = dict(zip(cls.KNOWN, [decoded(b, qtype) for b in blocks]))
            zeros = tiled([bytes(2) + (bytes(32) if qtype == Q8_0 else b"\x88" * 16)] * 8, layout) * ((16384 - 16) // 8)
            stored = tiled(blocks[:8], layout) + zeros + tiled(blocks[8:16], layout)
            stored += b"".join(blocks[16:]) if last == "linear" else tiled(blocks[16:], last)
            data = patch(data, place_of(data, name)[0], "%ds" % len(stored), stored)
        cls.data = data

    @classmethod
    def tearDownClass(cls) -> None:
        del cls.data, cls.known

    def test_rows_on_both_sides_of_the_seam(self) -> None:
        for name, tile in (("q8_lm", 272), ("q4_lm", 72)):
            source = Counting(self.data)
            f = VqfFile(source)
            block = {272: 34, 72: 18}[tile]
            for rows, size in (
                (slice(0, 8), 8 * block), (slice(16383, 16385), tile + (34 if tile == 272 else 72)),
                (slice(16380, 16390), tile + (6 * 34 if tile == 272 else 2 * 72)), (slice(16384, None), 12 * block),
                (slice(-1, None), 34 if tile == 272 else 72), (slice(16376, 16384), 8 * block),
            ):  # fmt: skip
                del source.asked[:]
                want = [v for row in range(self.ROWS)[rows] for v in self.known[name][row]]
                self.same(f.get_tensor(name, rows=rows), want, name, rows)
                self.assertEqual(sum(n for _, n in source.asked), size, (name, rows))
                self.same(sum(f.iter_rows(name, rows=rows), array("f")), want, name, rows)

    def test_the_product_runs_over_all_chunks(self) -> None:
        f = VqfFile(Source(self.data))
        x = vector(32)
        scales, codes = quantized(x)
        quantized_x = [Fraction(scales[0]) * c for c in codes[0]]
        for name, known in self.known.items():
            y = f.matvec(name, x)
            self.assertEqual(len(y), self.ROWS)
            self.assertEqual(sum(v != 0 for v in y[8:16376]), 0)
            for row, values in known.items():
                term = sum(Fraction(w) * v for w, v in zip(values, quantized_x))
                self.assertLessEqual(abs(Fraction(y[row]) - term), Fraction(1, 1 << 23) * abs(term), (name, row))


if __name__ == "__main__":
    unittest.main()

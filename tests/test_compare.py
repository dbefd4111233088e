"""A converted file judged against its source: verdicts, the place of the first difference, and the error figures.

Figures are computed a second time here, from the second converter's blocks (tests/test_convert.py), in plain loops over
the model's own values. Places are held against what decodes differently.
"""

from __future__ import annotations

import json
import math
import os
import re
import struct
import tempfile
import unittest
from unittest import mock

from tests import models, samples
from tests.models import Model, model
from tests.samples import FILES, place_of
from tests.test_convert import (
    ARCHS,
    SMALL_TOWER,
    dense,
    half_cut,
    layer_count,
    mode,
    q4_0,
    q8_0,
    source_rows,
    tower,
)
from tests.test_decode_vqf import decoded
from tests.tools import put, run_main, thorough
from vqfref.errors import IntegrityError
from vqfref.safetensors.reader import open_folder
from vqfref.source import Source
from vqfref.vqf import compare as compare_module
from vqfref.vqf import convert as convert_module
from vqfref.vqf.compare import EXPLAINED, IDENTICAL, MISSING, NO_SOURCE, NOT_EXPLAINED, compare
from vqfref.vqf.convert import convert
from vqfref.vqf.reader import VqfFile

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Sequence

    from vqfref.vqf.compare import Comparison

PLACE = re.compile(
    r"(?:layer (?P<layer>\d+), )?(?:rows (?P<top>\d+) to (?P<bottom>\d+)|row (?P<row>\d+))"
    r"(?:, columns? (?P<left>\d+)(?: to (?P<right>\d+))?)?"
)


class Files(unittest.TestCase):
    """Models and what they become, in a folder."""

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory(prefix="vqfref-")
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.count = 0

    def source(self, m: Model | str) -> str:
        self.count += 1
        return (model(m) if isinstance(m, str) else m).write(os.path.join(self.folder, "model-%d" % self.count))

    def converted(self, m: Model | str, wmode: str = "q4", **how: Any) -> bytes:
        out = os.path.join(self.folder, "out.vqf")
        convert(m if isinstance(m, str) and os.path.isdir(m) else self.source(m), out, **{**mode(wmode), **how})
        with open(out, "rb") as file:
            return file.read()

    def compare(
        self, data: bytes, source: Model | str, passphrase: bytes | None = None, q8_tile: int = 0
    ) -> dict[str, Comparison]:
        """The comparisons by tensor, all of the file's."""
        folder = source if isinstance(source, str) and os.path.isdir(source) else self.source(source)
        with VqfFile(Source(data), passphrase=passphrase, q8_tile=q8_tile) as f, open_folder(folder) as files:
            found = list(compare(f, files, folder))
            self.assertEqual([c.name for c in found if c.verdict != MISSING], f.keys())
        return {c.name: c for c in found}

    def verdicts(self, found: dict[str, Comparison], usual: str = IDENTICAL) -> dict[str, str]:
        """The verdicts that are not the usual one."""
        return {name: c.verdict for name, c in found.items() if c.verdict != usual}


def changed(data: bytes, name: str, offset: int, new: bytes | None = None) -> bytes:
    """A copy with bytes of a tensor replaced, or one of them inverted."""
    start, length = place_of(data, name)
    new = bytes([data[start + offset] ^ 0xFF]) if new is None else new
    if offset + len(new) > length or data[start + offset : start + offset + len(new)] == new:
        raise AssertionError("nothing is changed there")
    return data[: start + offset] + new + data[start + offset + len(new) :]


class Verdicts(Files):
    @thorough
    def test_every_mode_of_every_model_is_identical_to_its_source(self) -> None:
        for name, modes in (
            ("dense", ("dual", "q4i", "g256", "q4+8x8l")), ("moe", ("dual",)), ("vision", ("q8",)),
            ("tied-f16-vocab66", ("g256", "dual")), ("odd-rows", ("dual", "g256")), ("mini", ("dual",)),
        ):  # fmt: skip
            folder = self.source(name)
            for wmode in modes:
                found = self.compare(self.converted(folder, wmode), folder)
                self.assertEqual(self.verdicts(found), {}, (name, wmode))
                self.assertEqual({c.detail for c in found.values()}, {""})

    def test_tiles_of_4_rows_are_identical_to_who_is_told_of_them(self) -> None:
        folder = self.source("odd-rows")
        data = self.converted(folder, "q8 4x4")
        self.assertEqual(self.verdicts(self.compare(data, folder, q8_tile=4)), {})
        found = self.verdicts(self.compare(data, folder))
        tiled = ["q8_" + k for k in ("q", "k", "v", "gate", "up", "down", "lm")]  # o has 60 columns and is linear
        self.assertEqual(found, dict.fromkeys(tiled, NOT_EXPLAINED))

    def test_small_row_groups_make_no_difference(self) -> None:
        folder = self.source("dense")
        data = changed(self.converted(folder, "g256"), "q8_up", 9000)
        want = self.compare(data, folder)
        with mock.patch.object(convert_module, "MAX_GROUP", 1):
            found = self.compare(data, folder)
        for name, c in found.items():
            self.assertEqual((c[:4], c.max, c.worst), (want[name][:4], want[name].max, want[name].worst))
            self.assertAlmostEqual(c.rmse, want[name].rmse, delta=1e-12)
        self.assertEqual(self.verdicts(found), {"q8_up": NOT_EXPLAINED})

    def test_a_file_of_the_older_rounding_is_explained(self) -> None:
        folder = self.source("mini")
        for wmode, explained in (("dual", 16), ("q4i", 8), ("g256", 8)):
            found = self.compare(self.converted(folder, wmode, legacy=True), folder)
            verdicts = self.verdicts(found)
            self.assertEqual(verdicts, dict.fromkeys([n for n in found if n[:3] in ("q8_", "q4_")], EXPLAINED))
            self.assertEqual(len(verdicts), explained)
            self.assertIn("2026-09-10", found[next(iter(verdicts))].detail)

    def test_where_both_roundings_agree_it_is_identical(self) -> None:
        # Quarters of whole numbers with a largest of -2: every scale is exact, and no code of a negative is a tie.
        m = model("mini").as_dtype("F32")
        values = [(-2.0, 0.0, 0.25, 0.5, -0.25, 1.75, -1.5, 1.0)[i % 8] for i in range(1024)]
        name = "model.language_model.layers.0.mlp.gate_proj.weight"
        m = m.replaced(name, data=struct.pack("<1024f", *values))
        found = self.compare(self.converted(m, legacy=True), m)
        self.assertEqual((found["q4_gate"].verdict, found["q4_up"].verdict), (IDENTICAL, EXPLAINED))

    def test_an_embedding_of_f32_is_compared_as_such(self) -> None:
        a = samples.arch()
        rows = samples.text_rows(a)
        rows[0] = samples.row("token_embed", samples.F32, 32, 32)
        data = samples.build(a, rows, 0x03, seal=False)
        m = model("mini")
        embed = m.values("model.language_model.embed_tokens.weight")
        data = changed(data, "token_embed", 0, struct.pack("<1024f", *embed))
        found = self.compare(data, m)
        self.assertEqual((found["token_embed"].verdict, found["token_embed"].max), (IDENTICAL, 0.0))
        self.assertEqual(found["q4_q"].verdict, NOT_EXPLAINED)

    def test_encrypted_files_are_compared_with_their_passphrase(self) -> None:
        for form in (448, 432):
            data = samples.real("h%d-enc-signed" % form)
            found = self.compare(data, "mini", passphrase=b"correct horse battery staple")
            self.assertEqual(self.verdicts(found), {})
            with self.assertRaises(IntegrityError) as caught:
                self.compare(data, "mini")
            self.assertEqual(caught.exception.code, "vqf.enc.key")

    def test_nan_and_infinities_are_compared_by_the_bytes(self) -> None:
        m = model("mini").patched("model.language_model.layers.0.mlp.up_proj.weight", _3=math.nan, _50=math.inf)
        m = m.patched("model.language_model.norm.weight", _1=-math.inf)
        data = self.converted(m, "dual")
        self.assertEqual(self.verdicts(self.compare(data, m)), {})
        self.assertEqual(self.verdicts(self.compare(changed(data, "q4_up", 30), m)), {"q4_up": NOT_EXPLAINED})


class Missing(Files):
    """What the file lacks, by its arch and by the source."""

    LAYER = "model.language_model.layers.0."

    def missing(self, data: bytes, source: Model | str) -> list[str]:
        return [name for name, c in self.compare(data, source).items() if c.verdict == MISSING]

    def test_a_tensor_that_the_arch_calls_for_is_missing_and_its_source_is_not_named_again(self) -> None:
        for name in ("final_norm", "q_norm", "q4_k", "q4_lm"):
            self.assertEqual(self.missing(samples.without("mini", name), "mini"), [name])
        self.assertEqual(self.missing(samples.without("moe", "q4_up"), "moe"), ["q4_up"])

    def test_a_source_tensor_of_which_nothing_was_made_is_missing(self) -> None:
        data = samples.without("mini", "q_norm", "k_norm")
        data = samples.patch(data, samples.WORD["has_q_norm"], "I", 0)
        norms = [self.LAYER + "self_attn.%s_norm.weight" % k for k in "kq"]
        self.assertEqual(sorted(self.missing(data, "mini")), norms)
        more = Model(model("mini").config, [*model("mini").tensors, models.Tensor("mtp.weight", "F32", (1,), bytes(4))])
        self.assertEqual(self.missing(self.converted("mini"), more), ["mtp.weight"])

    @thorough
    def test_every_tensor_of_every_model_is_used(self) -> None:
        for name in ("dense", "moe", "vision", "tied-f16-vocab66"):
            self.assertEqual(self.missing(self.converted(name, "q8"), name), [])

    def test_an_arch_of_any_number_of_layers_ends(self) -> None:
        data = samples.patch(self.converted("mini"), samples.WORD["n_layers"], "I", (1 << 32) - 1)
        self.assertEqual(self.missing(data, "mini"), [])

    def test_it_is_an_exit_code_of_1(self) -> None:
        path = put(os.path.join(self.folder, "lacks.vqf"), samples.without("mini", "q4_k"))
        status, out, _ = run_main("compare", path, self.source("mini"))
        self.assertEqual(status, 1)
        self.assertIn("q4_k: missing: the arch calls for this tensor, but the file lacks it", out)
        self.assertIn(", 1 missing", out.splitlines()[-1])


class Differences(Files):
    """What does not come from the source is found, alone, and at its place."""

    def place(self, c: Comparison) -> dict[str, int]:
        self.assertEqual(c.verdict, NOT_EXPLAINED)
        self.assertTrue(c.detail.startswith("first difference in "), c.detail)
        found = PLACE.search(c.detail)
        self.assertIsNotNone(found, c.detail)
        return {k: int(v) for k, v in found.groupdict().items() if v is not None}

    def test_a_single_code_in_tiles_is_placed_by_layer_rows_and_columns(self) -> None:
        folder = self.source("dense")
        data = self.converted(folder, "dual")
        # Layer 1 of 96 rows of 64: tiles of 4 rows and 18 bytes each; the 13th group of rows, its second tile.
        bad = changed(data, "q4_gate", 96 * 64 // 32 * 18 + (12 * 2 + 1) * 72 + 8 + 5)
        found = self.compare(bad, folder)
        self.assertEqual(self.verdicts(found), {"q4_gate": NOT_EXPLAINED})
        want = {"layer": 1, "top": 48, "bottom": 51, "left": 32, "right": 63}
        self.assertEqual(self.place(found["q4_gate"]), want)
        # Tiles of 8 rows and 34 bytes each; the last group of rows, its third tile.
        bad = changed(data, "q8_down", 64 * 96 // 32 * 34 + (7 * 3 + 2) * 272 + 16)
        found = self.compare(bad, folder)
        self.assertEqual(self.verdicts(found), {"q8_down": NOT_EXPLAINED})
        want = {"layer": 1, "top": 56, "bottom": 63, "left": 64, "right": 95}
        self.assertEqual(self.place(found["q8_down"]), want)

    @thorough
    def test_a_single_code_in_rows_is_placed_by_its_block(self) -> None:
        folder = self.source("tied-f16-vocab66")
        data = self.converted(folder, "dual")
        block = 96 * 2 + 50 * 2 + 1  # layer 1, row 50, second block
        found = self.compare(changed(data, "q4_up", block * 18 + 17), folder)
        self.assertEqual(self.verdicts(found), {"q4_up": NOT_EXPLAINED})
        self.assertEqual(self.place(found["q4_up"]), {"layer": 1, "row": 50, "left": 32})
        found = self.compare(changed(data, "q8_lm", 65 * 2 * 34 + 3), folder)
        self.assertEqual(self.place(found["q8_lm"]), {"row": 65, "left": 0})

    def test_a_single_scale_is_found_and_both_bytes_are_shown(self) -> None:
        folder = self.source("dense")
        data = self.converted(folder, "q8")
        start, _ = place_of(data, "q8_v")
        old = data[start + 6]
        found = self.compare(changed(data, "q8_v", 6, bytes([old ^ 1])), folder)
        self.assertEqual(self.verdicts(found), {"q8_v": NOT_EXPLAINED})
        self.assertEqual(self.place(found["q8_v"]), {"layer": 0, "top": 0, "bottom": 7, "left": 0, "right": 31})
        self.assertIn("stored %02x, expected %02x" % (old ^ 1, old), found["q8_v"].detail)

    def test_a_wrong_float_is_placed_by_row_and_column(self) -> None:
        folder = self.source("dense")
        data = self.converted(folder)
        for name, offset, want in (
            ("attn_norm", 256 + 20, {"layer": 1, "row": 0, "left": 5}),
            ("final_norm", 4 * 63, {"row": 0, "left": 63}),
            ("k_norm", 4 * 31, {"layer": 0, "row": 0, "left": 31}),
            ("token_embed", 2 * (3 * 64 + 9), {"row": 3, "left": 9}),
        ):
            found = self.compare(changed(data, name, offset), folder)
            self.assertEqual(self.verdicts(found), {name: NOT_EXPLAINED})
            self.assertEqual(self.place(found[name]), want)

    @thorough
    def test_the_first_byte_that_differs_has_its_offset_in_the_file(self) -> None:
        folder = self.source("dense")
        data = self.converted(folder, "dual")
        for name, offset in (("final_norm", 12), ("q4_up", 3456 + 75), ("q8_down", 2000), ("token_embed", 511)):
            found = self.compare(changed(data, name, offset), folder)
            self.assertIn(", at 0x%x: stored" % (place_of(data, name)[0] + offset), found[name].detail)

    @thorough
    def test_the_place_is_where_values_decode_differently(self) -> None:
        for name, wmode, tensors in (
            ("dense", "q4+8x8l", ("q4_q", "x8_q", "x8_down", "x8_gate", "q4_lm")), ("dense", "g256", ("q8_up", "q8_o")),
            ("odd-rows", "dual", ("q8_o", "q4_o", "q8_lm")), ("moe", "q4", ("q4_gate", "q4_down", "moe_router")),
            ("vision", "q4i", ("v_q8_fc2", "v_q8_qkv", "v_ds_f1w", "q8_k")),
        ):  # fmt: skip
            folder = self.source(name)
            data = self.converted(folder, wmode)
            for tensor in tensors:
                _, length = place_of(data, tensor)
                for offset in (length * 2 // 3, 5, length - 2):
                    bad = changed(data, tensor, offset)
                    place = self.place(self.compare_one(bad, folder, tensor))
                    self.holds(data, bad, tensor, place)

    def compare_one(self, data: bytes, folder: str, name: str) -> Comparison:
        with VqfFile(Source(data)) as f, open_folder(folder) as files, mock.patch.object(
            VqfFile, "__iter__", lambda self: iter([name])
        ):
            return next(compare(f, files, folder))

    def holds(self, data: bytes, bad: bytes, name: str, place: dict[str, int]) -> None:
        """What decodes differently lies in the place, block for block."""
        with VqfFile(Source(data)) as one, VqfFile(Source(bad)) as two:
            g = one.geometry(name)
            rows, cols = g.matrix
            for layer in range(g.layers):
                a, b = (self.matrix(f, name, g, layer) for f in (one, two))
                found = [i for i, (x, y) in enumerate(zip(a, b)) if struct.pack("<f", x) != struct.pack("<f", y)]
                if layer != place.get("layer", 0):
                    self.assertEqual(found, [], (name, place))
                    continue
                if "top" in place:
                    inside = {
                        row * cols + col
                        for row in range(place["top"], place["bottom"] + 1)
                        for col in range(place.get("left", 0), place.get("right", cols - 1) + 1)
                    }
                else:
                    start = place["row"] * cols + place["left"]
                    size = 32 if name[:3] in ("q8_", "q4_", "x8_") or name.startswith("v_q8") else 1
                    inside = set(range(start, start + size))
                self.assertLessEqual(set(found), inside, (name, place, rows))

    def matrix(self, f: VqfFile, name: str, g: Any, layer: int) -> list[float]:
        """One layer as it is stored, experts and padding in their places."""
        values = list(f.get_tensor(name, layer=layer))
        if g.experts and g.expert_axis == 1:
            out, width = g.shape
            parts = [values[i : i + out * width] for i in range(0, len(values), out * width)]
            return [x for row in range(out) for part in parts for x in part[row * width : (row + 1) * width]]
        if g.pad_cols:
            width = g.shape[1]
            return [x for i in range(0, len(values), width) for x in (*values[i : i + width], *[0.0] * g.pad_cols)]
        return values

    def test_swapped_layers_are_found(self) -> None:
        folder = self.source("dense")
        data = self.converted(folder)
        start, length = place_of(data, "q4_up")
        half = length // 2
        swapped = data[start + half : start + length] + data[start : start + half]
        found = self.compare(changed(data, "q4_up", 0, swapped), folder)
        self.assertEqual(self.verdicts(found), {"q4_up": NOT_EXPLAINED})
        self.assertEqual(self.place(found["q4_up"])["layer"], 0)
        self.assertLess(found["q4_up"].cosine, 0.5)
        self.assertGreater(found["q4_down"].cosine, 0.99)

    def test_a_transposed_matrix_is_found(self) -> None:
        name = "model.language_model.layers.1.self_attn.k_proj.weight"  # 64 x 64
        values = model("dense").values(name)
        turned = [values[col * 64 + row] for row in range(64) for col in range(64)]
        data = self.converted(model("dense").replaced(name, data=models.bf16(turned)), "dual")
        found = self.compare(data, "dense")
        self.assertEqual(self.verdicts(found), {"q8_k": NOT_EXPLAINED, "q4_k": NOT_EXPLAINED})
        self.assertEqual({self.place(found[n])["layer"] for n in ("q8_k", "q4_k")}, {1})

    def test_norms_in_each_other_s_place_are_found(self) -> None:
        m = model("dense")
        one, two = ("model.language_model.layers.0.%s_layernorm.weight" % k for k in ("input", "post_attention"))
        data = self.converted(m.replaced(one, data=m[two].data).replaced(two, data=m[one].data))
        found = self.compare(data, "dense")
        self.assertEqual(self.verdicts(found), {"attn_norm": NOT_EXPLAINED, "ffn_norm": NOT_EXPLAINED})

    def test_experts_in_each_other_s_place_are_found(self) -> None:
        m = model("moe")
        one, two = ("model.layers.1.mlp.experts.%d.down_proj.weight" % e for e in (1, 3))
        data = self.converted(m.replaced(one, data=m[two].data).replaced(two, data=m[one].data))
        found = self.compare(data, "moe")
        self.assertEqual(self.verdicts(found), {"q4_down": NOT_EXPLAINED})
        place = self.place(found["q4_down"])
        self.assertEqual((place["layer"], place["left"]), (1, 32), "expert 1 has columns 32 to 63")

    @thorough
    def test_another_model_is_not_explained(self) -> None:
        found = self.compare(self.converted("dense", "dual"), dense())
        self.assertEqual(set(self.verdicts(found).values()), {NOT_EXPLAINED})
        self.assertEqual(len(self.verdicts(found)), 22)

    def test_an_old_file_with_a_wrong_code_is_placed_by_the_older_rounding(self) -> None:
        folder = self.source("mini")
        data = self.converted(folder, legacy=True)
        found = self.compare(changed(data, "q4_up", 576 - 72 + 8), folder)
        self.assertEqual(self.verdicts(found, EXPLAINED)["q4_up"], NOT_EXPLAINED)
        want = {"layer": 0, "top": 28, "bottom": 31, "left": 0, "right": 31}
        self.assertEqual(self.place(found["q4_up"]), want)

    @thorough
    def test_a_tensor_of_the_model_that_is_missing_or_misshapen_is_named(self) -> None:
        name = "model.language_model.layers.1.mlp.up_proj.weight"
        data = self.converted("dense", "dual")
        for m in (model("dense").without(name), model("dense").replaced(name, shape=(64, 96))):
            found = self.compare(data, m)
            self.assertEqual(self.verdicts(found), {"q8_up": NO_SOURCE, "q4_up": NO_SOURCE})
            self.assertIn(name, found["q4_up"].detail)
            self.assertEqual((found["q4_up"].count, math.isnan(found["q4_up"].rmse)), (0, True))

    def test_a_tensor_that_the_format_does_not_know_has_no_source(self) -> None:
        a = samples.arch()
        data = samples.build(a, [*samples.text_rows(a), samples.row("q4_extra", samples.Q4_0, 32, 32)], 0x23)
        found = self.compare(data, "mini")
        self.assertEqual(found["q4_extra"].verdict, NO_SOURCE)

    def test_a_tensor_that_contradicts_the_arch_has_no_source(self) -> None:
        a = samples.arch()
        short = samples.row("final_norm", samples.F32, 16, 1)
        rows = [short if r.name == "final_norm" else r for r in samples.text_rows(a)]
        self.assertEqual(self.compare(samples.build(a, rows, 0x23), "mini")["final_norm"].verdict, NO_SOURCE)


class Figures(Files):
    def figures(self, source: Sequence[float], stored: Sequence[float]) -> tuple[int, float, float, float]:
        """(count, RMSE, largest error, cosine), each by its definition."""
        n = len(source)
        errors = [s - v for s, v in zip(source, stored)]
        rmse = math.sqrt(math.fsum(e * e for e in errors) / n)
        norms = math.sqrt(math.fsum(s * s for s in source)) * math.sqrt(math.fsum(v * v for v in stored))
        cosine = math.fsum(s * v for s, v in zip(source, stored)) / norms
        return n, rmse, max(abs(e) for e in errors), cosine

    @thorough
    def test_figures_are_those_of_their_definitions(self) -> None:
        encoders = {
            "q8": lambda flat: decoded(q8_0(flat), samples.Q8_0),
            "q4": lambda flat: decoded(q4_0(flat), samples.Q4_0),
            "f16": lambda flat: [struct.unpack("<e", half_cut(x))[0] for x in flat],
            "f32": list,
        }
        for model_name, wmode, cases in (
            ("dense", "q4+8x8l", (("q4_up", "q4"), ("x8_up", "q4"), ("q4_lm", "q4"), ("token_embed", "f16"))),
            ("dense", "q4", (("attn_norm", "f32"), ("final_norm", "f32"))),
            ("moe", "q8", (("q8_gate", "q8"), ("q8_down", "q8"), ("moe_router", "f32"))),
            ("vision", "q4", (("v_q8_fc2", "q8"), ("v_q8_qkv", "q8"), ("v_patch_embed", "f32"))),
            ("odd-rows", "dual", (("q8_o", "q8"), ("q4_o", "q4"))),
        ):  # fmt: skip
            found = self.compare(self.converted(model_name, wmode), model_name)
            a = ARCHS[model_name]
            for name, encoding in cases:
                source, stored, where = [], [], []
                for layer in range(layer_count(name, a)):
                    rows = source_rows(model(model_name), name, layer, a)
                    flat = [x for row in rows for x in row]
                    values = encoders[encoding](flat)
                    width = len(rows[0])
                    real = width - (-a["vis_ffn"] % 32 if name == "v_q8_fc2" else 0)  # without the padding
                    for i, (x, y) in enumerate(zip(flat, values)):
                        if i % width < real:
                            source.append(x)
                            stored.append(y)
                            where.append((layer, *divmod(i, width)))
                count, rmse, largest, cosine = self.figures(source, stored)
                c = found[name]
                self.assertEqual((c.count, c.max), (count, largest), name)
                self.assertAlmostEqual(c.rmse, rmse, delta=1e-9 * (1 + rmse), msg=name)
                self.assertAlmostEqual(c.cosine, cosine, delta=1e-9, msg=name)
                if not largest:
                    self.assertEqual(c.worst, "")
                    continue
                layer, row, col = where[max(range(count), key=lambda i: abs(source[i] - stored[i]))]
                place = {k: int(v) for k, v in PLACE.search(c.worst).groupdict().items() if v is not None}
                want = {"row": row, "left": col // 32 * 32, "right": col // 32 * 32 + 31}
                once = name in ("q4_lm", "token_embed")
                self.assertEqual(place, want if once else {"layer": layer, **want}, name)

    def test_figures_hold_whatever_the_verdict(self) -> None:
        folder = self.source("mini")
        data = self.converted(folder)
        found = self.compare(changed(data, "final_norm", 0, struct.pack("<f", 100.0)), folder)["final_norm"]
        self.assertEqual((found.count, found.max), (32, 103.5))  # the model has -3.5 there
        values = model("mini").values("model.language_model.norm.weight")
        count, rmse, largest, cosine = self.figures(values, [100.0, *values[1:]])
        self.assertAlmostEqual(found.rmse, rmse, delta=1e-9)
        self.assertAlmostEqual(found.cosine, cosine, delta=1e-12)
        self.assertEqual((count, largest), (32, 103.5))

    def test_opposite_and_zero_vectors_have_a_cosine(self) -> None:
        m = model("mini")
        name = "model.language_model.norm.weight"
        data = self.converted(m)
        start, length = place_of(data, "final_norm")
        negative = struct.pack("<32f", *[-v for v in struct.unpack("<32f", data[start : start + length])])
        self.assertAlmostEqual(self.compare(changed(data, "final_norm", 0, negative), m)["final_norm"].cosine, -1)
        zeros = m.replaced(name, data=bytes(64))
        self.assertEqual(self.compare(self.converted(zeros), zeros)["final_norm"].cosine, 1)
        self.assertEqual(self.compare(data, zeros)["final_norm"].cosine, 0)

    def test_an_empty_tensor_is_identical(self) -> None:
        m = tower(**SMALL_TOWER, deepstack_visual_indexes=[])
        found = self.compare(self.converted(m), m)
        self.assertEqual(self.verdicts(found), {})
        self.assertEqual((found["v_ds_nw"].count, found["v_ds_nw"].rmse, found["v_ds_nw"].worst), (0, 0, ""))

    def test_progress_rises_to_its_total(self) -> None:
        folder = self.source("dense")
        data = self.converted(folder)
        calls: list[tuple[int, int]] = []
        with VqfFile(Source(data)) as f, open_folder(folder) as files:
            for _ in compare(f, files, folder, lambda done, total: calls.append((done, total))):
                pass
        done = [n for n, _ in calls]
        self.assertEqual((done, {total for _, total in calls}), (sorted(done), {done[-1]}))
        self.assertGreater(len(set(done)), 10)


class NaN(Files):
    def test_nan_in_the_file_is_counted_and_is_the_largest_error(self) -> None:
        m = model("mini")
        data = self.converted(m)
        bad = changed(data, "token_embed", 2 * (32 * 3 + 5), b"\xff\xff")
        bad = changed(bad, "token_embed", 2 * (32 * 7 + 1), b"\x00\x7e")
        bad = changed(bad, "token_embed", 2 * (32 * 9), b"\x00\x7c")  # infinity, a smaller error than NaN
        c = self.compare(bad, m)["token_embed"]
        self.assertTrue(math.isnan(c.max) and math.isnan(c.rmse))
        self.assertEqual(c.worst, "row 3, columns 0 to 31")
        self.assertTrue(c.detail.endswith("; 2 NaN in the file"), c.detail)
        bad = changed(data, "q4_up", 8, b"\xff\xff")  # in tiles of 4 rows: a scale would be NaN, this is two codes
        self.assertFalse(math.isnan(self.compare(bad, m)["q4_up"].max))
        c = self.compare(changed(data, "q4_up", 2, b"\xff\xff"), m)["q4_up"]  # the scale of the second row
        self.assertEqual((math.isnan(c.max), c.worst), (True, "layer 0, row 1, columns 0 to 31"))
        self.assertTrue(c.detail.endswith("; 32 NaN in the file"), c.detail)

    def test_equal_infinities_are_no_error(self) -> None:
        m = model("mini").patched("model.language_model.norm.weight", _1=-math.inf)
        c = self.compare(self.converted(m), m)["final_norm"]
        self.assertEqual((c.verdict, c.max, c.rmse, c.detail), (IDENTICAL, 0.0, 0.0, ""))


class CommandLine(Files):
    def put(self, data: bytes, name: str = "file.vqf") -> str:
        return put(os.path.join(self.folder, name), data)

    def test_identical_is_good_and_every_tensor_has_its_line(self) -> None:
        status, out, err = run_main("compare", str(FILES / "mini-q4-h448-plain.vqf"), self.source("mini"))
        self.assertEqual((status, err), (0, ""))
        lines = out.splitlines()
        self.assertEqual(len(lines), 16)  # a head, 14 tensors, the count
        self.assertEqual([line.split()[1] for line in lines[1:15]], ["identical"] * 14)
        self.assertEqual(lines[-1], "14 identical")

    def test_older_rounding_is_good_and_said(self) -> None:
        folder = self.source("mini")
        status, out, _ = run_main("compare", self.put(self.converted(folder, legacy=True)), folder)
        self.assertEqual(status, 0)
        self.assertIn("2026-09-10", out)
        self.assertIn("8 explained", out)

    def test_a_difference_is_placed_and_makes_the_status_1(self) -> None:
        folder = self.source("mini")
        path = self.put(changed(self.converted(folder), "q4_o", 80))
        status, out, _ = run_main("compare", path, folder)
        self.assertEqual(status, 1)
        self.assertIn("q4_o: not explained: first difference in layer 0, rows 4 to 7, columns 0 to 31", out)
        self.assertIn("13 identical", out)
        self.assertIn("1 not explained", out)

    def test_a_missing_source_makes_the_status_1(self) -> None:
        name = "model.language_model.layers.0.mlp.up_proj.weight"
        status, out, _ = run_main(
            "compare", str(FILES / "mini-q4-h448-plain.vqf"), self.source(model("mini").without(name))
        )
        self.assertEqual(status, 1)
        self.assertIn(name, out)
        self.assertIn("1 no source", out)

    def test_an_encrypted_file_takes_its_passphrase_from_a_file(self) -> None:
        folder = self.source("mini")
        encrypted = str(FILES / "mini-q4-h432-enc.vqf")
        secret = self.put(b"correct horse battery staple\n", "secret")
        status, out, err = run_main("compare", encrypted, folder, "--passphrase-file", secret)
        self.assertEqual((status, err), (0, ""))
        self.assertIn("14 identical", out)
        status, out, err = run_main("compare", encrypted, folder)
        self.assertEqual((status, out), (1, ""))
        self.assertIn("vqf.enc.key", err)

    def test_tiles_of_4_rows_are_an_option(self) -> None:
        folder = self.source("odd-rows")
        path = self.put(self.converted(folder, "q8 4x4"))
        self.assertEqual(run_main("compare", path, folder, "--q8-tile", "4")[0], 0)
        self.assertEqual(run_main("compare", path, folder)[0], 1)

    def test_as_json(self) -> None:
        name = "model.language_model.norm.weight"
        folder = self.source(model("mini").without(name))
        path = self.put(changed(samples.real("h448-plain"), "q4_o", 80))
        status, out, err = run_main("compare", path, folder, "--json")
        found = json.loads(out)
        self.assertEqual((status, err, found["ok"], found["format"], found["findings"]), (1, "", False, "vqf", []))
        self.assertEqual(set(found), {"file", "format", "ok", "findings", "tensors"})
        by_name = {t["name"]: t for t in found["tensors"]}
        self.assertEqual(len(by_name), 14)
        for t in found["tensors"]:
            self.assertEqual(list(t), ["name", "verdict", "detail", "count", "rmse", "max", "cosine", "worst"])
        verdicts = [by_name[name]["verdict"] for name in ("final_norm", "q4_o", "q4_q")]
        self.assertEqual(verdicts, ["no source", "not explained", "identical"])
        self.assertEqual(by_name["q4_q"]["count"], 1024)
        self.assertIsInstance(by_name["q4_q"]["rmse"], float)
        json.loads(out, parse_constant=lambda word: self.fail("%s is no JSON" % word))

    def test_a_source_that_holds_a_uqff_file_too_is_still_a_model(self) -> None:
        folder = self.source("mini")
        for name in ("q4k-0.uqff", "residual.safetensors"):
            with open(os.path.join(folder, name), "wb") as file:
                file.write(struct.pack("<Q", 8) + b"{}      ")
        status, out, err = run_main("compare", str(FILES / "mini-q4-h448-plain.vqf"), folder)
        self.assertEqual((status, err), (0, ""))
        self.assertIn("14 identical", out)

    def test_faults_have_their_status(self) -> None:
        mini = str(FILES / "mini-q4-h448-plain.vqf")
        nowhere = os.path.join(self.folder, "nowhere")
        folder = self.source("mini")
        no_config = self.source("mini")
        os.unlink(os.path.join(no_config, "config.json"))
        bare = os.path.join(self.folder, "bare")
        os.mkdir(bare)
        for status, word, argv in (
            (3, nowhere, (nowhere, folder)), (3, nowhere, (mini, nowhere)), (3, "config.json", (mini, no_config)),
            (1, "st.folder.missing", (mini, bare)), (2, "SOURCE_DIR", (mini,)),
            (2, "VQF", (os.path.join(folder, "model.safetensors"), folder)),
        ):  # fmt: skip
            found, out, err = run_main("compare", *argv)
            self.assertEqual((found, out), (status, ""), (argv, err))
            self.assertIn(word, err)
            self.assertNotIn("Traceback", err)

    def test_a_file_in_place_of_the_source_folder_is_said_to_be_one(self) -> None:
        folder = self.source("mini")
        status, out, err = run_main(
            "compare", str(FILES / "mini-q4-h448-plain.vqf"), os.path.join(folder, "model.safetensors")
        )
        self.assertIn(status, (2, 3), err)
        self.assertEqual(out, "")
        self.assertIn("directory", err.lower())


class Costs(Files):
    def test_only_the_groups_of_one_tensor_are_in_memory(self) -> None:
        """The comparison goes row group by row group, as the conversion does."""
        folder = self.source("dense")
        data = self.converted(folder)
        sizes: list[int] = []
        add = compare_module.Figures.add

        def noted(figures: Any, values: Any, floats: Any, layer: int, row: int) -> None:
            sizes.append(len(floats))
            add(figures, values, floats, layer, row)

        with mock.patch.object(convert_module, "MAX_GROUP", 1024), mock.patch.object(
            compare_module.Figures, "add", noted
        ):
            self.assertEqual(self.verdicts(self.compare(data, folder)), {})
        self.assertLessEqual(max(sizes), 1024)
        weights = sum(math.prod(t.shape) if hasattr(math, "prod") else len(t.data) // 2 for t in model("dense").tensors)
        self.assertEqual(sum(sizes), weights)


if __name__ == "__main__":
    unittest.main()

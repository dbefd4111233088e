"""A UQFF artifact against its source: verdicts on the engine's own folders, figures by hand, every kind of difference."""

from __future__ import annotations

import json
import math
import os
import struct
import unittest
from unittest import mock

import vqfref
from tests.test_uqff_writer import EMBED, NORM, SOURCES, Q, WriterTest, tensor, tiny
from tests.tools import get, put, run_main, thorough
from tests.uqff_samples import FILES, Folder, f32, hqq, named, parse, u32
from vqfref.comparison import IDENTICAL, NO_SOURCE, NOT_EXPLAINED
from vqfref.safetensors.reader import open_folder
from vqfref.uqff import encode
from vqfref.uqff.compare import compare
from vqfref.uqff.targets import Pins

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable


DENSE = str(SOURCES / "dense64")
BIAS = Q + ".bias"


class CompareTest(WriterTest):
    def found(self, folder: str, source: str) -> dict[str, Any]:
        with vqfref.open(folder) as f, open_folder(source, "pread") as sources:
            rows = {c.name: c for c in compare(f, sources, source)}
            self.assertEqual(list(rows), f.keys())
        return rows

    def edited_copy(self, folder: str, edit: Callable[[dict[str, Any]], Any]) -> str:
        """A folder of one shard again, its tensors edited."""
        (shard,) = [n for n in os.listdir(folder) if n.endswith(".uqff")]
        _, tensors = parse(get(os.path.join(folder, shard)))
        edit(tensors)
        residual = get(os.path.join(folder, "residual.safetensors"))
        return self.place(Folder({shard: (None, tensors)}, {"residual.safetensors": residual}))


class Verdicts(CompareTest):
    @thorough
    def test_the_engines_folders_are_identical(self) -> None:
        for name, source in (("afq3", "dense64"), ("f8q8", "dense64"), ("fp8", "dense64"), ("mxfp4", "dense64"),
                             ("q8_1", "dense64"), ("moe-q4_0", "moe64"), ("moe-afq4", "moe64"),
                             ("topo1-q4_0", "two64")):  # fmt: skip
            rows = self.found(str(FILES / name), str(SOURCES / source))
            self.assertEqual({c.verdict for c in rows.values()}, {IDENTICAL}, name)
            self.assertTrue(all(not c.detail and c.cosine > 0.85 for c in rows.values()), name)
            exact = {n for n in rows if n.endswith(("norm.weight", "mlp.gate.weight"))}
            self.assertEqual({n for n, c in rows.items() if c.max == 0}, exact, name)

    def test_every_family_bias_and_working_dtype(self) -> None:
        model = tiny(
            tensor(Q + ".weight", 2, 64, dtype="F32", values=[i / 999 for i in range(128)]),
            tensor(BIAS, 2, dtype="F32", values=[1 / 3, 1e-3]),
            tensor("model.layers.0.mlp.up_proj.weight", 3, 48), tensor("model.layers.1.k_proj.weight", 1, 256),
        )  # fmt: skip
        source = self.source(model)
        for name in ("q4_0", "q4k", "afq4", "fp8", "f8q8", "hqq8"):
            pins = Pins([("/up_proj/", "afq8")])
            for dtype in ("f32", "bf16", "f16"):
                folder = self.written(source, name, dtype=dtype, pins=pins)
                rows = self.found(folder, source)
                self.assertEqual({c.verdict for c in rows.values()}, {IDENTICAL}, (name, dtype, rows))
                self.assertEqual(rows[BIAS].count, 2)

    def test_the_working_dtype_without_a_residual(self) -> None:
        source = self.source(tiny(tensor(Q + ".weight", 2, 64, dtype="F32", values=[i / 999 for i in range(128)])))
        for name in ("afq4", "q4_0"):
            folder = self.written(source, name, dtype="f16")
            os.unlink(os.path.join(folder, "residual.safetensors"))
            verdict = IDENTICAL if name == "afq4" else NOT_EXPLAINED  # its scales tell; for Q types F32 is assumed
            self.assertEqual(self.found(folder, source)[Q].verdict, verdict)

    def test_other_groups_of_afq(self) -> None:
        """Not what the engine's writer makes, but the same encoder explains them."""
        from vqfref.quant.afq import afq_encode

        model = tiny(tensor(Q + ".weight", 2, 128))
        source = self.source(model)
        for group in (32, 128):
            for bits in (2, 3, 4, 6, 8):

                def edit(tensors: dict[str, Any], group: int = group, bits: int = bits) -> None:
                    packed, scales, biases = afq_encode(model.values(Q + ".weight"), bits, group)
                    groups = (2, 128 // group)
                    for suffix, dtype, shape, data in (
                        ("", "U32", (2, 128 * bits // 32), packed), (".bits", "U8", (), bytes([bits])),
                        (".group_size", "U8", (), bytes([group])),
                        (".scales", "F32", groups, struct.pack("<%df" % len(scales), *scales)),
                        (".biases", "F32", groups, struct.pack("<%df" % len(biases), *biases)),
                    ):  # fmt: skip
                        old = tensors[Q + ".weight" + suffix]
                        tensors[Q + ".weight" + suffix] = old._replace(dtype=dtype, shape=shape, data=bytes(data))

                folder = self.edited_copy(self.written(source, "afq4"), edit)
                self.assertEqual(self.found(folder, source)[Q].verdict, IDENTICAL, (group, bits))

    def test_the_first_byte_that_differs_is_named(self) -> None:
        source = self.source(tiny(tensor(BIAS, 2)))
        for name, suffix, at in (
            ("q4_0", ".weight", 0), ("q4_0", ".weight", 71), ("afq4", ".weight", 63), ("afq4", ".weight.scales", 7),
            ("afq4", ".weight.biases", 4), ("hqq4", ".weight", 5), ("hqq4", ".weight.zeros", 7), ("hqq4", ".weight.scales", 1),
            ("f8q8", ".weight", 33), ("mxfp4", ".weight.scales", 3), ("fp8", ".weight", 127),
            ("fp8", ".weight.dequant_w_scale", 0), ("fp8", ".weight.quant_scale", 3),
        ):  # fmt: skip

            def edit(tensors: dict[str, Any], entry: str = Q + suffix, at: int = at) -> None:
                t = tensors[entry]
                self.before = t.data[at]
                data = t.data[:at] + bytes([t.data[at] ^ 1]) + t.data[at + 1 :]
                tensors[entry] = t._replace(data=data)

            rows = self.found(self.edited_copy(self.written(source, name), edit), source)
            self.assertEqual({n for n, c in rows.items() if c.verdict != IDENTICAL}, {Q}, (name, suffix))
            self.assertEqual(rows[Q].verdict, NOT_EXPLAINED)
            self.assertEqual(rows[Q].detail, "first difference in %s: byte %d: stored %02x, expected %02x"
                             % (Q + suffix, at, self.before ^ 1, self.before))  # fmt: skip

    def test_a_difference_in_a_later_piece(self) -> None:
        source = self.source(tiny(tensor(Q + ".weight", 24, 64)))

        def edit(tensors: dict[str, Any]) -> None:
            t = tensors[Q + ".weight"]
            tensors[Q + ".weight"] = t._replace(data=t.data[:700] + bytes([t.data[700] ^ 1]) + t.data[701:])

        folder = self.edited_copy(self.written(source, "q4_0"), edit)
        whole = self.found(folder, source)[Q]
        self.assertIn(": byte 700: ", whole.detail)
        with mock.patch.object(encode, "ROWS_AT_ONCE", 100), mock.patch("vqfref.safetensors.reader.VALUES_AT_ONCE", 70):
            self.assertEqual(self.found(folder, source)[Q], whole)

    def test_bias_and_residual(self) -> None:
        source = self.source(tiny(tensor(BIAS, 2)))
        folder = self.written(source, "q8_0")
        other = self.source(tiny(tensor(BIAS, 2, values=[0.5, 9.0]), tensor(NORM, 64, values=[2.0] * 64)))
        rows = self.found(folder, other)
        self.assertEqual([rows[n].verdict for n in (Q, EMBED, BIAS, NORM)],
                         [IDENTICAL, IDENTICAL, NOT_EXPLAINED, NOT_EXPLAINED])  # fmt: skip
        self.assertTrue(rows[BIAS].detail.startswith("first difference: byte "), rows[BIAS].detail)

    def test_what_the_source_lacks(self) -> None:
        folder = self.written(tiny(tensor(BIAS, 2), tensor("model.layers.0.mlp.up_proj.weight", 2, 64)), "q8_0")
        model = tiny(tensor(Q + ".weight", 4, 32), tensor(NORM, 32))
        rows = self.found(folder, self.source(model.without(EMBED + ".weight")))
        self.assertEqual({c.verdict for c in rows.values()}, {NO_SOURCE})
        self.assertEqual(rows[Q].detail, "the source's shape is [4, 32], the layer's [2, 64]")
        self.assertEqual(rows[NORM].detail, "the source's shape is [32], the file's [64]")
        self.assertEqual(rows[BIAS].detail, "the source has no such tensor")
        self.assertEqual(rows[EMBED].detail, "the source has no such layer")
        self.assertTrue(all(c.count == 0 and math.isnan(c.rmse) for c in rows.values()))

    def test_what_has_no_encoder(self) -> None:
        source = self.source(tiny())
        for bits, group in ((3, 64), (2, 64), (1, 64), (4, 32), (8, 128)):
            layer = named(Q, hqq(bits, 2, 64, group=group))
            residual = get(os.path.join(self.written(source, "q8_0"), "residual.safetensors"))
            rows = self.found(self.place(Folder.of(layer, files={"residual.safetensors": residual})), source)
            self.assertEqual(rows[Q].verdict, NOT_EXPLAINED)
            self.assertEqual(rows[Q].detail, "no bit-exact encoder for hqq%d in groups of %d" % (bits, group))
            self.assertEqual(rows[Q].count, 128)

    def test_a_faulty_layer_and_a_source_with_nan_leave_the_others(self) -> None:
        source = self.source(tiny())
        folder = self.edited_copy(self.written(source, "q8_0"), lambda t: t.update({Q + ".weight.dtype": u32(99)}))
        rows = self.found(folder, source)
        self.assertEqual((rows[Q].verdict, rows[EMBED].verdict), (NOT_EXPLAINED, IDENTICAL))
        self.assertIn("99", rows[Q].detail)
        rows = self.found(self.written(source, "q8_0"), self.source(tiny().patched(Q + ".weight", _5=math.nan)))
        self.assertEqual((rows[Q].verdict, rows[EMBED].verdict), (NOT_EXPLAINED, IDENTICAL))
        self.assertIn("NaN", rows[Q].detail)


class Figures(CompareTest):
    def test_errors_by_hand(self) -> None:
        """FP8 bytes whose scale is doubled: every value is off by itself."""
        model = tiny(tensor(Q + ".weight", 2, 64, values=[0.0] * 127 + [1.0]))
        source = self.source(model)
        folder = self.written(source, "fp8")
        _, tensors = parse(get(os.path.join(folder, "fp8-0.uqff")))
        (scale,) = struct.unpack("<f", tensors[Q + ".weight.dequant_w_scale"].data)

        def edit(t: dict[str, Any]) -> None:
            t[Q + ".weight.dequant_w_scale"] = f32(3 * scale)

        row = self.found(self.edited_copy(folder, edit), source)[Q]
        exact = self.found(folder, source)[Q]
        self.assertEqual((row.count, row.cosine, row.worst), (128, 1.0, "row 1, columns 32 to 63"))
        self.assertAlmostEqual(row.max, 2.0, places=5)
        self.assertAlmostEqual(row.rmse, 2 / math.sqrt(128), places=5)
        self.assertLess(exact.max, 1e-5)

    def test_the_worst_place_in_a_stack(self) -> None:
        source = str(SOURCES / "moe64")
        folder = str(FILES / "moe-q4_0")
        with vqfref.open(folder) as f, open_folder(source) as s:
            key = "model.layers.0.mlp.experts.up_proj"
            got = f.get_tensor(key)
            n = f.info(key).experts
            want = [v for e in range(n) for v in s.get_tensor("model.layers.0.mlp.experts.%d.up_proj.weight" % e)]
        errors = [abs(a - b) for a, b in zip(got, want)]
        at = errors.index(max(errors))
        row = self.found(folder, source)[key]
        self.assertEqual((row.count, row.max), (len(want), max(errors)))
        self.assertAlmostEqual(row.rmse, math.sqrt(sum(e * e for e in errors) / len(errors)), places=12)
        col = at % 64 // 32 * 32
        self.assertEqual(row.worst, "expert %d, row %d, columns %d to %d" % (at // 4096, at // 64 % 64, col, col + 31))


class CommandLine(CompareTest):
    def test_good_and_bad(self) -> None:
        folder = str(FILES / "q8_1")
        status, out, err = run_main("compare", folder, DENSE)
        self.assertEqual((status, err), (0, ""))
        self.assertEqual(out.splitlines()[-1], "14 identical")
        status, out, err = run_main("compare", folder, str(SOURCES / "two64"))
        self.assertEqual((status, err), (1, ""))
        self.assertIn("model.norm.weight: not explained: first difference: byte ", out)
        self.assertIn("lm_head: no source: the source's shape is [64, 64], the layer's [96, 64]", out)

    def test_json(self) -> None:
        status, out, _ = run_main("compare", str(FILES / "q8_1"), DENSE, "--json")
        root = json.loads(out)
        self.assertEqual((status, root["format"], root["ok"], root["findings"]), (0, "uqff", True, []))
        self.assertEqual(len(root["tensors"]), 14)
        self.assertEqual(
            set(root["tensors"][0]), {"name", "verdict", "detail", "count", "rmse", "max", "cosine", "worst"}
        )

    def test_one_set_of_several(self) -> None:
        folder = self.written(DENSE, "q8_0", "afq4")
        status, _, err = run_main("compare", folder, DENSE)
        self.assertEqual(status, 2)
        self.assertIn("q8_0", err)
        for name in ("q8_0", "afq4"):
            status, out, err = run_main("compare", os.path.join(folder, name), DENSE)
            self.assertEqual((status, out.splitlines()[-1], err), (0, "14 identical", ""))

    def test_what_it_does_not_read(self) -> None:
        status, out, err = run_main("compare", DENSE, DENSE)
        self.assertEqual((status, out), (2, ""))
        self.assertIn("this verb reads VQF and UQFF", err)

    def test_a_source_that_is_not_there_or_no_model(self) -> None:
        folder = str(FILES / "q8_1")
        self.assertEqual(run_main("compare", folder, os.path.join(self.new(), "none")).status, 3)
        empty = self.new()
        os.mkdir(empty)
        self.assertEqual(run_main("compare", folder, empty).status, 1)
        source = self.source(tiny())
        put(os.path.join(source, "config.json"), b"{")
        status, _, err = run_main("compare", folder, source)
        self.assertEqual(status, 1)
        self.assertIn("json.syntax.json", err)


if __name__ == "__main__":
    unittest.main()

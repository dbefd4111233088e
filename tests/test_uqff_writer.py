"""Writing UQFF: the engine's own bytes from the models it read; what is refused before anything is written; what an
interruption leaves. Which type a layer gets is in test_uqff_targets.py."""

from __future__ import annotations

import functools
import hashlib
import json
import math
import os
import signal
import struct
import subprocess
import sys
import unittest
from array import array
from pathlib import Path
from unittest import mock

import vqfref
from tests.models import ENCODE, Model, Tensor, safetensors
from tests.tools import get, put, run_main, thorough
from tests.uqff_samples import PRODUCER, REPORT, RESIDUAL, VERSION_NAMES, FolderTest, noise, parse, raised, real_files
from vqfref import sink
from vqfref.quant.floats import bf16_decode, bf16_encode
from vqfref.safetensors.reader import SafetensorsFile
from vqfref.safetensors.writer import write as write_safetensors
from vqfref.source import Source
from vqfref.uqff import encode, writer
from vqfref.uqff.targets import Pins

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
FLAGS = ["-" + "O" * sys.flags.optimize] * (sys.flags.optimize > 0) + ["-W" + w for w in sys.warnoptions]
SOURCES = Path(ROOT) / "kat" / "files" / "uqff-sources"
QUANT = Path(ROOT) / "kat" / "files" / "quant"
Q, EMBED, NORM = "model.layers.0.self_attn.q_proj", "model.embed_tokens", "model.norm.weight"

# 12.4: the order in which a layer's tensors are dealt out to shards
EMISSION = {
    "q4_0": ".format, .dtype .shape",
    "f32": ".format, .dtype .shape",
    "unquant": ".format,",
    "hqq4": ".format, .scales .zeros .shape .bits .group_size .axis .optimization_steps .round_zeros .channel_wise",
    "fp8": ".format, .dequant_w_scale .dequant_x_scale .quant_scale .dtype",
    "afq4": ".format .bits .group_size, .scales .biases",
    "f8q8": ".format, .num_blocks .shape",
    "mxfp4": ".format, .scales",
}


def emission(stored: str, key: str) -> list[str]:
    """The names of a layer's tensors in that order; the comma stands for the weight itself."""
    return [key + ".weight" + suffix for suffix in EMISSION[stored].replace(",", " ,").replace(",", "").split(" ")]


@functools.lru_cache(maxsize=None)
def expected() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((SOURCES / "expected.json").read_bytes())
    return found


def floats(seed: int, n: int) -> list[float]:
    """Values between -2 and 2 that are exact in every dtype."""
    return [(b - 128) / 64 for b in noise(n, seed)]


def tensor(name: str, *shape: int, dtype: str = "BF16", values: list[float] | None = None) -> Tensor:
    values = floats(len(name) + sum(shape), math.prod(shape)) if values is None else values
    return Tensor(name, dtype, shape, ENCODE[dtype](values))


def tiny(*more: Tensor, **config: Any) -> Model:
    """A model of one layer, a norm and an embedding, and whatever else is given; later ones replace those of a name."""
    own = [tensor(EMBED + ".weight", 4, 64), tensor(Q + ".weight", 2, 64), tensor(NORM, 64)]
    tensors = {t.name: t for t in [*own, *more]}
    return Model(json.dumps(config).encode(), list(tensors.values()))


def without_metadata(data: bytes) -> tuple[int, bytes, bytes]:
    """(length of the header, its text behind the metadata, whose order is the engine's chance, the data)."""
    (length,) = struct.unpack_from("<Q", data)
    text = data[8 : 8 + length]
    return length, text[text.index(b"}") :], data[8 + length :]


def without_author(report: bytes) -> bytes:
    """The bytes of a report but for generated_by."""
    start = report.index(b'"generated_by"')
    return report[:start] + report[report.index(b"}", start) :]


class WriterTest(FolderTest):
    def source(self, model: Model) -> str:
        return model.write(self.new())

    def written(self, source: Model | str, *types: str, **how: Any) -> str:
        """The folder that a model becomes; the findings in self.findings."""
        folder = source if isinstance(source, str) else self.source(source)
        out = self.new()
        self.findings = writer.write(folder, out, types, **how)
        return out

    def tensors(self, source: Model | str, *types: str, **how: Any) -> dict[str, Any]:
        """The tensors of the first type's first shard."""
        folder = self.written(source, *types, **how)
        return parse(get(os.path.join(folder, types[0] + "-0.uqff")))[1]

    def tree(self, folder: str) -> dict[str, bytes]:
        """All files under a folder, hidden ones too."""
        return {
            os.path.relpath(os.path.join(where, name), folder): get(os.path.join(where, name))
            for where, _, names in os.walk(folder)
            for name in names
        }


class Engine(WriterTest):
    """The engine's folders again, from the models that it read."""

    maxDiff = None

    def same(self, real: str, source: str, *types: str, **how: Any) -> None:
        folder = self.written(str(SOURCES / source), *types, **how)
        for name, data in real_files(real).items():
            if name == "generation_config.json":
                continue  # the source was stored without it
            new = get(os.path.join(folder, name))
            if name.endswith((".uqff", ".safetensors")):
                self.assertEqual(parse(new)[0], parse(data)[0], name)
                self.assertEqual(without_metadata(new), without_metadata(data), name)
            elif name == REPORT:
                self.assertEqual(without_author(new), without_author(data))
                self.assertEqual(json.loads(new)["generated_by"], {"tool": "vqfref uqff write"})
            else:
                self.assertEqual(new, data, name)
        self.assertEqual(set(os.listdir(folder)), set(real_files(real)) - {"generation_config.json"})

    @thorough
    def test_whole_folders_of_the_plain_model(self) -> None:
        for name in ("afq3", "f8q8", "fp8", "hqq4", "mxfp4", "q8_1"):
            with self.subTest(name):
                self.same(name, "dense64", name)

    def test_whole_folders_of_stacked_experts(self) -> None:
        self.same("moe-afq4", "moe64", "afq4")
        self.same("moe-q4_0", "moe64", "q4_0")

    def test_a_whole_folder_of_pinned_layers(self) -> None:
        from vqfref.uqff.targets import parse_topology

        self.same("topo1-q4_0", "two64", "q4_0", pins=parse_topology((SOURCES / "topo1.yml").read_bytes()))

    @thorough
    def test_every_entry_of_the_other_types_and_the_runtime_type_last(self) -> None:
        types = list(expected())
        folder = self.written(str(SOURCES / "dense64"), *types)
        for name, wanted in expected().items():
            _, tensors = parse(get(os.path.join(folder, name + "-0.uqff")))
            got = [
                [n, t.dtype, list(t.shape), t.data.hex() if len(t.data) <= 8 else hashlib.sha256(t.data).hexdigest()]
                for n, t in tensors.items()
            ]
            self.assertEqual(got, wanted["entries"], name)
        outputs = json.loads(get(os.path.join(folder, REPORT)))["outputs"]
        self.assertEqual([o["quant"] for o in outputs], [*types[1:], types[0]])
        self.assertEqual({o["quant"]: o["actual_counts"] for o in outputs},
                         {name: wanted["counts"] for name, wanted in expected().items()})  # fmt: skip

    def test_shapes_that_fall_back(self) -> None:
        """The engine's folder keeps all layers but o_proj as they were, so that they are their own source."""
        name = "odd100-afq4"
        real = {n: t for f, data in real_files(name).items() if f.endswith(".uqff") for n, t in parse(data)[1].items()}
        rest = parse(real_files(name)[RESIDUAL])[1]
        dense = {n: t for n, t in {**real, **rest}.items() if t.dtype == "F32" and "o_proj" not in n}
        source = Model(real_files(name)["config.json"], [Tensor(n, *t) for n, t in dense.items()])
        folder = self.written(source, "afq4")
        got = parse(get(os.path.join(folder, "afq4-0.uqff")))[1]
        self.assertEqual(got, {n: t for n, t in real.items() if "o_proj" not in n})
        self.assertEqual(
            without_metadata(get(os.path.join(folder, RESIDUAL))), without_metadata(real_files(name)[RESIDUAL])
        )
        (new,) = json.loads(get(os.path.join(folder, REPORT)))["outputs"]
        (old,) = json.loads(real_files(name)[REPORT])["outputs"]
        self.assertEqual(new["fallbacks"], old["fallbacks"])
        self.assertEqual(new["layer_details"], [d for d in old["layer_details"] if "o_proj" not in d["module"]])

    def test_blocks_of_256(self) -> None:
        values = array("f", get(str(QUANT / "kquants-input.f32")))
        if sys.byteorder == "big":
            values.byteswap()
        source = self.source(tiny(tensor(Q + ".weight", len(values) // 256, 256, dtype="F32", values=values.tolist())))
        for name in ("q2k", "q3k", "q4k", "q5k", "q6k", "q8k"):
            self.assertEqual(
                self.tensors(source, name)[Q + ".weight"].data, get(str(QUANT / ("kquants-%s.bin" % name)))
            )


class Folder(WriterTest):
    """What is written beside the quantized values."""

    def test_our_own_verify_and_check_find_nothing(self) -> None:
        model = tiny(tensor("model.layers.0.mlp.up_proj.weight", 64, 64), tensor(Q + ".bias", 2))
        source = self.source(model)
        for name in ("tokenizer.json", "tokenizer_config.json", "generation_config.json"):
            put(os.path.join(source, name), b"{}")
        for name in ("q4_0,afq4,hqq8", "f8q8", "q4k"):
            out = self.new()
            self.assertEqual(run_main("uqff", "write", source, out, "--type", name), (0, out + "\n", ""))
            status, text, err = run_main("uqff", "verify", out, "--strict")
            self.assertEqual((status, err), (0, ""), text)
            self.assertNotIn("error", text)
            self.assertEqual([str(f) for f in vqfref.check(out)], [], name)

    def test_values_come_back_within_the_error_of_their_type(self) -> None:
        """Relative RMS, section 16; these values are not normal but uniform, so that a factor of 2 is allowed."""
        figures = {"q8_0": 0.005, "afq8": 0.005, "hqq8": 0.005, "f8q8": 0.023, "fp8": 0.027, "q5_1": 0.039,
                   "q4_0": 0.087, "hqq4": 0.086, "afq4": 0.09, "mxfp4": 0.19, "afq2": 0.46}  # fmt: skip
        weight = tensor(Q + ".weight", 16, 64)
        want = floats(len(weight.name) + 80, 16 * 64)
        source = self.source(tiny(weight))
        for name, figure in figures.items():
            with vqfref.open(self.written(source, name)) as f:
                self.assertEqual(f.info(Q).shape, (16, 64))
                got = f.get_tensor(Q)
            error = math.sqrt(sum((a - b) ** 2 for a, b in zip(got, want)) / sum(b * b for b in want))
            self.assertTrue(figure / 4 < error < figure * 2, (name, error))

    def test_a_shard_that_is_read_and_written_again_is_the_same(self) -> None:
        folder = self.written(str(SOURCES / "two64"), "afq4")
        for path in (os.path.join(folder, "afq4-0.uqff"), os.path.join(folder, RESIDUAL)):
            again = self.new()
            with SafetensorsFile(Source(path)) as f:
                tensors = {n: Tensor(n, f.info(n).dtype, f.info(n).shape, f.raw(n)) for n in f}
                write_safetensors(again, dict(reversed(list(tensors.items()))), f.metadata()["metadata"])
                del tensors
            self.assertEqual(get(again), get(path))

    def test_the_same_again_is_the_same_bytes(self) -> None:
        folders = [self.tree(self.written(str(SOURCES / "moe64"), "q8_0", "afq2", dtype="f16")) for _ in range(2)]
        self.assertEqual(folders[0], folders[1])
        self.assertEqual(len(folders[0]), 5)

    def test_residual_in_the_working_dtype(self) -> None:
        model = tiny(
            tensor("model.layers.0.mlp.gate.weight", 4, 64), tensor("model.layers.0.conv.bias", 3, dtype="F32")
        )
        for dtype in ("f32", "bf16", "f16"):
            metadata, tensors = parse(get(os.path.join(self.written(model, "q8_0", dtype=dtype), RESIDUAL)))
            self.assertEqual(metadata, PRODUCER)
            self.assertEqual(list(tensors), ["model.layers.0.conv.bias", "model.layers.0.mlp.gate.weight", NORM])
            for name, t in tensors.items():
                self.assertEqual(t, (dtype.upper(), model[name].shape, ENCODE[dtype.upper()](model.values(name))))

    def test_values_are_rounded_to_the_working_dtype_first(self) -> None:
        values = [1 + i / 1000 for i in range(128)]
        rounded = bf16_decode(bf16_encode(array("f", values))).tolist()
        self.assertNotEqual(array("f", values).tolist(), rounded)
        for name in ("q4_0", "q8_1", "afq4", "fp8", "f8q8", "mxfp4", "hqq4"):
            exact, bias = tensor(Q + ".weight", 2, 64, dtype="F32", values=values), tensor(Q + ".bias", 2, dtype="F32",
                                                                                          values=values[:2])  # fmt: skip
            cut = tensor(Q + ".weight", 2, 64, dtype="F32", values=rounded)
            cut_bias = tensor(Q + ".bias", 2, dtype="F32", values=rounded[:2])
            got = self.tensors(tiny(exact, bias), name, dtype="bf16")
            self.assertEqual(got, self.tensors(tiny(cut, cut_bias), name, dtype="bf16"))
            if name not in ("fp8", "mxfp4"):  # one starts from BF16 in any case, the other is too coarse
                self.assertNotEqual(got, self.tensors(tiny(exact, bias), name), name)

    def test_dtypes_that_follow_the_working_dtype(self) -> None:
        odd = tensor(Q + ".weight", 2, 80)
        for dtype in ("F32", "BF16", "F16"):
            got = self.tensors(tiny(), "afq4", dtype=dtype.lower())
            self.assertEqual([got[Q + ".weight" + s].dtype for s in (".scales", ".biases")], [dtype] * 2)
            got = self.tensors(tiny(odd), "afq4", dtype=dtype.lower())
            self.assertEqual(got[Q + ".weight"], (dtype, (2, 80), ENCODE[dtype](floats(len(Q) + 7 + 82, 160))))
            got = self.tensors(tiny(), "hqq4", dtype=dtype.lower())
            self.assertEqual(got[Q + ".weight.scales"].dtype, "F32")

    def test_dtype_of_a_bias(self) -> None:
        """Section 7; lm_head is replicated, the others are parallel."""
        values = [0.5, -3.0]
        for name, parallel, replicated in (
            ("q4_0", "F32", "F32"), ("hqq4", "F32", "F32"), ("f8q8", "F32", "F32"), ("afq4", "F16", "F16"),
            ("fp8", "F8_E4M3", "BF16"), ("mxfp4", "BF16", "BF16"),
        ):  # fmt: skip
            model = tiny(
                tensor(Q + ".bias", 2, values=values), tensor("lm_head.weight", 2, 64),
                tensor("lm_head.bias", 2, values=values),
            )  # fmt: skip
            got = self.tensors(model, name, dtype="f16")
            for key, dtype in ((Q, parallel), ("lm_head", replicated)):
                data = bytes.fromhex("30c4") if dtype == "F8_E4M3" else ENCODE[dtype](values)
                self.assertEqual(got[key + ".bias"], (dtype, (2,), data), (name, key))

    def test_dtype_of_a_bias_of_a_layer_that_stays_dense(self) -> None:
        for name, dtype in (("afq4", "F16"), ("q4_0", "F32")):
            model = tiny(tensor(Q + ".weight", 2, 80), tensor(Q + ".bias", 2, values=[0.5, -3.0]))
            got = self.tensors(model, name, dtype="f16")
            self.assertEqual(got[Q + ".bias"], (dtype, (2,), ENCODE[dtype]([0.5, -3.0])))

    def test_biases_of_experts_are_stacked(self) -> None:
        experts = [
            tensor("m.experts.%d.%s_proj.%s" % (i, m, kind), *((2, 64) if kind == "weight" else (2,)))
            for i in range(11)
            for m in ("gate", "up", "down")
            for kind in ("weight", "bias")
        ]
        model = tiny(*experts)
        got = self.tensors(model, "q8_0")
        for m in ("gate", "up", "down"):
            self.assertEqual(got["m.experts.%s_proj.weight.shape" % m].data, struct.pack("<3I", 11, 2, 64))
            values = [v for i in range(11) for v in model.values("m.experts.%d.%s_proj.bias" % (i, m))]
            self.assertEqual(got["m.experts.%s_proj.bias" % m], ("F32", (11, 2), ENCODE["F32"](values)))

    def test_tied_embeddings_store_no_head(self) -> None:
        head = tensor("lm_head.weight", 4, 64)
        for tied in (True, False):
            folder = self.written(tiny(head, tie_word_embeddings=tied), "q8_0")
            self.assertEqual("lm_head.weight" in parse(get(os.path.join(folder, "q8_0-0.uqff")))[1], not tied)
            self.assertEqual(list(parse(get(os.path.join(folder, RESIDUAL)))[1]), [NORM])

    def test_a_bias_alone_is_no_layer_and_is_not_lost(self) -> None:
        folder = self.written(tiny(tensor("model.layers.0.mlp.up_proj.bias", 2)), "q8_0")
        self.assertEqual(list(parse(get(os.path.join(folder, RESIDUAL)))[1]), ["model.layers.0.mlp.up_proj.bias", NORM])

    def test_config_is_cleaned_and_its_numbers_printed_as_rust_does(self) -> None:
        text = """{"b":1,"quantization_config":{"bits":4},"a":{"quantization_config":null,"x":[{"quantization_config":1}]},
            "n":[1e-06,1e-5,0.0001,10000.0,1e16,123456789012345680.0,1e15,0.0,-0.0,1.5,-2.5e-7,1E+2,3,-7,18446744073709551615,
            5e-324,1.7976931348623157e308,0.1],"e":[],"o":{},"t":"\\u00e9\\u2028\\n\\u0001\\"","z":null,"y":true}"""
        want = """{
  "b": 1,
  "a": {
    "x": [
      {}
    ]
  },
  "n": [
    1e-6, 0.00001, 0.0001, 10000.0, 1e16, 1.2345678901234568e17, 1000000000000000.0, 0.0, -0.0, 1.5, -2.5e-7, 100.0, 3, -7,
    18446744073709551615, 5e-324, 1.7976931348623157e308, 0.1
  ],
  "e": [],
  "o": {},
  "t": "\u00e9\u2028\\n\\u0001\\"",
  "z": null,
  "y": true
}"""
        start, end = want.index("    1e-6"), want.index('\n  ],\n  "e"')
        numbers = want[start:end].replace(",\n    ", ", ").strip().split(", ")
        want = want[:start] + ",\n".join("    " + n for n in numbers) + want[end:]
        model = Model(text.encode(), tiny().tensors)
        got = get(os.path.join(self.written(model, "q8_0"), "config.json"))
        self.assertEqual(got.decode().splitlines(), want.splitlines())
        self.assertFalse(got.endswith(b"\n"))

    def test_shards_of_other_writes_in_the_folder_are_spoken_of(self) -> None:
        folder = self.new()
        source = self.source(tiny())

        def told(*types: str) -> list[tuple[str, str | None]]:
            found = writer.write(source, folder, types)
            return [(f.code, f.field) for f in found if f.severity == "note"]

        self.assertEqual(told("q8_0", "q4_0"), [])
        self.assertEqual(told("q8_0", "q4_0"), [])
        self.assertEqual(told("q4_1"), [("uqff.w7.policy", "q4_0-0.uqff"), ("uqff.w7.policy", "q8_0-0.uqff")])
        self.assertEqual(told("q8_0"), [("uqff.w7.policy", "q4_0-0.uqff"), ("uqff.w7.policy", "q4_1-0.uqff")])
        os.remove(os.path.join(folder, "uqff_report.json"))
        self.assertTrue({"q4_0-0.uqff", "q4_1-0.uqff", "q8_0-0.uqff"} < set(os.listdir(folder)))

    def test_assets_are_copied_and_those_missing_warned_about(self) -> None:
        source = self.source(tiny())
        folder = self.written(source, "q8_0")
        self.assertEqual(
            [(f.severity, f.code, f.field) for f in self.findings],
            [("warning", "uqff.w5.missing", n)
             for n in ("tokenizer.json", "tokenizer_config.json", "generation_config.json")],
        )  # fmt: skip
        assets = ("tokenizer.json", "tokenizer_config.json", "generation_config.json", "processor_config.json",
                  "preprocessor_config.json")  # fmt: skip
        for name in assets:
            put(os.path.join(source, name), b'{ "n": 1e-06 }\n' + name.encode())
        put(os.path.join(source, "notes.txt"), b"")
        folder = self.written(source, "q8_0")
        self.assertEqual(self.findings, [])
        self.assertEqual(set(os.listdir(folder)), {*assets, "config.json", RESIDUAL, REPORT, "q8_0-0.uqff"})
        for name in assets:
            self.assertEqual(get(os.path.join(folder, name)), b'{ "n": 1e-06 }\n' + name.encode())

    def test_the_report_names_the_base_model_only_if_told(self) -> None:
        source, out = self.source(tiny()), self.new()
        for argv, wanted in (((), None), (("--base-model", "org/naïve"), "org/naïve")):
            self.assertEqual(run_main("uqff", "write", source, out, "--type", "q8_0", *argv).status, 0)
            self.assertEqual(json.loads(get(os.path.join(out, REPORT))).get("base_model"), wanted)

    def test_report_write_counts_what_the_writer_counted(self) -> None:
        folder = self.written(str(SOURCES / "two64"), "q4_0", "afq8", pins=Pins([("0-1", "q5_0")]))
        before = json.loads(get(os.path.join(folder, REPORT)))
        os.unlink(os.path.join(folder, REPORT))
        self.assertEqual(run_main("uqff", "report", folder, "--write").status, 0)
        after = json.loads(get(os.path.join(folder, REPORT)))
        self.assertEqual(after["generated_by"]["tool"], "mistralrs uqff report")
        for a, b in zip(sorted(before["outputs"], key=lambda o: o["quant"]), after["outputs"]):
            for key in ("quant", "shards", "layers", "actual_counts", "fallback_count"):
                self.assertEqual(a[key], b[key])

    def test_progress_counts_every_tensor(self) -> None:
        seen: list[tuple[int, int]] = []
        self.written(tiny(), "q8_0", progress=lambda done, total: seen.append((done, total)))
        self.assertEqual(seen, [(i + 1, 11) for i in range(11)])  # 3 versions, 2 layers of 4 tensors

    def test_large_tensors_are_encoded_in_pieces_with_the_same_bytes(self) -> None:
        model = tiny(tensor(Q + ".weight", 24, 96))
        for name in ("q4_0", "afq4", "f8q8", "mxfp4"):
            whole = self.tensors(model, name)
            with mock.patch.object(encode, "ROWS_AT_ONCE", 100), mock.patch(
                "vqfref.safetensors.reader.VALUES_AT_ONCE", 70
            ):
                self.assertEqual(self.tensors(model, name), whole, name)


class Shards(WriterTest):
    """12.4: split by payload bytes, tensor by tensor, in emission order."""

    def wanted(self, names: list[str], sizes: dict[str, int], cap: int) -> list[list[str]]:
        """The rule as the specification has it."""
        shards: list[list[str]] = []
        chunk, size = list(VERSION_NAMES), 12
        for name in names:
            if chunk and size + sizes[name] > cap:
                shards.append(chunk)
                chunk, size = [], 0
            chunk.append(name)
            size += sizes[name]
            if size >= cap:
                shards.append(chunk)
                chunk, size = [], 0
        return [*shards, chunk] if chunk else shards

    @thorough
    def test_every_cap_of_every_family(self) -> None:
        for name, stored, shape in (
            ("q4_0", "q4_0", (2, 64)), ("q4_0", "f32", (2, 48)), ("afq4", "afq4", (2, 64)), ("afq4", "unquant", (2, 48)),
            ("hqq4", "hqq4", (2, 64)), ("fp8", "fp8", (2, 64)), ("f8q8", "f8q8", (2, 64)), ("mxfp4", "mxfp4", (2, 64)),
        ):  # fmt: skip
            model = Model(b"{}", [tensor("a_proj.weight", *shape), tensor("b_proj.weight", *shape),
                                  tensor("b_proj.bias", 2), tensor("norm.weight", 4)])  # fmt: skip
            source = self.source(model)
            whole = self.tensors(source, name)
            names = [*emission(stored, "a_proj"), *emission(stored, "b_proj"), "b_proj.bias"]
            self.assertEqual(set(whole), {*names, *VERSION_NAMES}, stored)
            sizes = {n: len(t.data) for n, t in whole.items()}
            total = sum(sizes.values())
            for cap in (1, 11, 12, 13, 40, 72, 73, 84, total - 1, total, total + 1):
                folder = self.written(source, name, max_shard_bytes=cap)
                want = self.wanted(names, sizes, cap)
                (output,) = json.loads(get(os.path.join(folder, REPORT)))["outputs"]
                self.assertEqual(output["shards"], ["%s-%d.uqff" % (name, i) for i in range(len(want))])
                shards = [parse(get(os.path.join(folder, n)))[1] for n in output["shards"]]
                self.assertEqual([sorted(s) for s in shards], [sorted(s) for s in want], (stored, cap))
                self.assertEqual({n: t for s in shards for n, t in s.items()}, whole)

    def test_a_split_set_opens_as_one(self) -> None:
        out = self.new()
        status, _, _ = run_main(
            "uqff", "write", str(SOURCES / "two64"), out, "--type", "q4_0", "--max-shard-bytes", "9000"
        )
        self.assertEqual(status, 0)
        self.assertGreater(len([n for n in os.listdir(out) if n.endswith(".uqff")]), 4)
        self.assertEqual(run_main("uqff", "verify", out, "--strict").status, 0)
        with vqfref.open(out) as f, vqfref.open(self.written(str(SOURCES / "two64"), "q4_0")) as whole:
            self.assertEqual(f.keys(), whole.keys())
            for name in f:
                self.assertEqual(f.get_tensor(name), whole.get_tensor(name))


class Names(WriterTest):
    """Where OUT leads."""

    def shards(self, folder: str) -> list[str]:
        return sorted(n for n in os.listdir(folder) if n.endswith(".uqff"))

    def test_a_stem_or_a_folder(self) -> None:
        source, base = self.source(tiny()), self.new()
        os.mkdir(base)
        for out, types, folder, shards in (
            ("m.uqff", "q8_0", "", ["m-0.uqff"]),
            ("x/my-model-7.uqff", "q4k", "x", ["my-model-7-0.uqff"]),
            ("y", "q4k", "y", ["q4k-0.uqff"]),
            ("z/", "4", "z", ["afq4-0.uqff", "q4k-0.uqff"]),
            ("Q", "Q8_0,AFQ2", "Q", ["afq2-0.uqff", "q8_0-0.uqff"]),
        ):
            status, text, err = run_main("uqff", "write", source, os.path.join(base, out), "--type", types)
            self.assertEqual((status, text), (0, os.path.join(base, out) + "\n"), err)
            self.assertEqual(self.shards(os.path.join(base, folder)), shards)
            self.assertTrue(os.path.isfile(os.path.join(base, folder, REPORT)))

    def test_a_folder_inside_the_source_changes_nothing_of_it(self) -> None:
        source = self.source(tiny())
        before = self.tree(source)
        writer.write(source, os.path.join(source, "UQFF"), ["q8_0"])
        after = {n: d for n, d in self.tree(source).items() if not n.startswith("UQFF")}
        self.assertEqual(after, before)
        self.assertEqual(self.shards(os.path.join(source, "UQFF")), ["q8_0-0.uqff"])

    def test_what_stays_and_what_goes_of_a_folder_that_exists(self) -> None:
        """12.7."""
        source = self.source(tiny())

        def listing(*types: str, report: str | None, single: bool = False) -> set[str]:
            folder = self.new()
            os.mkdir(folder)
            for name in (
                "q8_0-0.uqff",
                "q8_0-7.uqff",
                "q8_0-x.uqff",
                "q8_0.uqff",
                "q4_1-0.uqff",
                "notes.txt",
                "modules.json",
                "old-0.uqff",
            ):
                put(os.path.join(folder, name), b"old")
            if report is not None:
                put(os.path.join(folder, REPORT), report.encode())
            writer.write(source, os.path.join(folder, types[0] + ".uqff") if single else folder, types)
            return {n for n in os.listdir(folder) if get(os.path.join(folder, n)) == b"old"}

        report = json.dumps(
            {
                "schema": 1,
                "generated_by": {"tool": "t"},
                "uqff_version": "1.2.0",
                "outputs": [
                    {
                        "quant": "q",
                        "shards": ["%s-0.uqff", "old-0.uqff"],
                        "layers": 1,
                        "actual_counts": {},
                        "fallback_count": 0,
                    }
                ],
            }
        )
        unrelated = {"q8_0-x.uqff", "q8_0.uqff", "q4_1-0.uqff", "notes.txt", "modules.json", "old-0.uqff"}
        for single in (False, True):
            self.assertEqual(listing("q8_0", report=None, single=single), unrelated)
            self.assertEqual(listing("q8_0", report="{}", single=single), unrelated)  # one that says nothing
            self.assertEqual(listing("q8_0", report=report % "q4_1", single=single), unrelated)  # another's report
            self.assertEqual(
                listing("q8_0", report=report % "q8_0", single=single), unrelated - {"modules.json", "old-0.uqff"}
            )
        self.assertEqual(listing("q8_0", "afq4", report=None), unrelated - {"modules.json"})


class Refused(WriterTest):
    """Errors before anything is written: neither OUT nor anything beside it appears."""

    def refused(self, code: str, source: Model | str, types: str = "q8_0", out: str = "out", field: str | None = None,
                status: int | None = None, argv: tuple[str, ...] = ()) -> None:  # fmt: skip
        folder = source if isinstance(source, str) else self.source(source)
        base = self.new()
        os.mkdir(base)
        target = os.path.join(base, out) if out and not os.path.isabs(out) else out
        got, text, err = run_main("uqff", "write", folder, target, "--type", types, *argv)
        kind = {"u": 2, "c": 1}["u" if "usage" in code or code[5:7] in ("w1", "w2", "m2", "q2") else "c"]
        self.assertEqual((got, text), (status or kind, ""), (code, err))
        self.assertEqual(os.listdir(base), [], code)
        error = raised(writer.write, folder, target, types.split(","), **self.options(argv))
        if error is not None:
            self.assertEqual((error.code, error.field), (code, field), error)
            self.assertIn(error.message, err)
            self.assertEqual(os.listdir(base), [], code)
        else:
            self.fail("%s was written" % code)

    def options(self, argv: tuple[str, ...]) -> dict[str, Any]:
        how = dict(zip(argv[::2], argv[1::2]))
        return {
            "dtype": how.get("--dtype", "f32"),
            "device": how.get("--device", "cpu"),
            "max_shard_bytes": int(how.get("--max-shard-bytes", 1 << 40)),
        }

    def test_types(self) -> None:
        source = self.source(tiny())
        for types, code in (
            ("", "usage.type.unsupported"), ("q4k,", "usage.type.unsupported"), ("q3_k", "usage.type.unsupported"),
            ("nvfp4", "usage.type.unsupported"), ("hqq2", "usage.type.unsupported"), ("7", "usage.type.unsupported"),
            ("f32", "usage.type.unsupported"), ("q4k,Q4K", "usage.type.duplicate"), ("4,afq4", "usage.type.duplicate"),
        ):  # fmt: skip
            self.refused(code, source, types)
        self.assertEqual(raised(writer.write, source, self.new(), []).code, "usage.type.missing")
        self.refused("uqff.w2.policy", source, "q4k,afq4", "x.uqff")
        self.refused("uqff.w2.policy", source, "4", "x.uqff")
        for device in ("cuda", "metal"):
            self.refused("uqff.q2.unsupported", source, "f8q8", argv=("--device", device))
        for cap in ("0", "-1"):
            self.refused("usage.size.range", source, argv=("--max-shard-bytes", cap))
        self.assertEqual(
            raised(writer.write, source, self.new(), ["q8_0"], dtype="f64").code, "usage.dtype.unsupported"
        )

    def test_out(self) -> None:
        source = self.source(tiny())
        before = self.tree(source)
        link = self.new()
        os.symlink(source, link)
        for out in ("", ".uqff", source, source + "/", source + "/x.uqff", link, link + "/x.uqff"):
            self.refused("usage.out.policy", source, out=out)
        self.assertEqual(self.tree(source), before)

    def test_a_stack_of_experts_in_a_type_that_has_none(self) -> None:
        moe = str(SOURCES / "moe64")
        key = "model.layers.0.mlp.experts.gate_proj"
        for name in ("hqq4", "hqq8", "fp8", "f8q8", "mxfp4"):
            self.refused("uqff.m2.unsupported", moe, name, field=key)
            self.refused("uqff.m2.unsupported", moe, "q4k," + name, field=key)
        topology = put(self.new(), b"/experts/:\n  isq: fp8\n")
        out = self.new()
        status, _, err = run_main("uqff", "write", moe, out, "--type", "q4_0", "--topology", topology)
        self.assertEqual((status, os.path.exists(out)), (2, False))
        self.assertIn("fp8 can't hold stacked experts: use a Q type or AFQ", err)

    def test_shapes_that_a_type_cannot_hold(self) -> None:
        for types, shape, refused in (
            ("hqq4", (3, 21), True), ("hqq4", (16, 12), False), ("hqq8", (1, 63), True), ("hqq8", (1, 64), False),
            ("mxfp4", (2, 48), True), ("mxfp4", (2, 33), True), ("mxfp4", (2, 96), False), ("q8_0", (0, 64), True),
            ("fp8", (2, 0), True), ("q8_0", (), True), ("f8q8", (1, 1, 1, 64), True), ("q8_0", (1,), False),
            ("afq4", (1, 0, 64), True), ("f8q8", (3, 7), False), ("fp8", (1, 1), False),
        ):  # fmt: skip
            model = tiny(tensor(Q + ".weight", *shape))
            if refused:
                self.refused("uqff.w1.shape", model, types, field=Q)
            else:
                with vqfref.open(self.written(model, types)) as f:
                    self.assertEqual(f.info(Q).shape, shape)

    def test_sources_that_are_not_whole(self) -> None:
        def expert(n: object, module: str, *shape: int, kind: str = "weight") -> Tensor:
            return tensor("m.experts.%s.%s_proj.%s" % (n, module, kind), *(shape or (2, 64)))

        four = [expert(n, m) for n in range(4) for m in ("gate", "up", "down")]
        lack = "m.experts.%s.%s_proj.weight"
        stack = "m.experts.%s_proj"
        self.written(tiny(*four), "q8_0")
        for model, code, field in (
            (tiny(*four).without(lack % (3, "up")), "uqff.w3.missing", stack % "up"),
            (tiny(*four).without(lack % (0, "gate")), "uqff.w3.missing", stack % "gate"),
            (tiny(*four).without(*[lack % (n, "down") for n in range(4)]), "uqff.w3.missing", stack % "down"),
            (tiny(*four, expert(5, "gate")), "uqff.w3.missing", stack % "gate"),
            (tiny(*four, expert(3, "up", 2, 32)), "uqff.w3.shape", stack % "up"),
            (tiny(*four, expert(2, "up", 2, kind="bias")), "uqff.w3.missing", stack % "up"),
            (tiny(*four, expert("04", "gate")), "uqff.w3.unsupported", lack % ("04", "gate")),
            (tiny(*four, tensor("m.experts.gate_proj.weight", 4, 2, 64)), "uqff.w3.unsupported", stack % "gate"),
            (tiny(tensor("m.experts.gate_up_proj", 4, 2, 64)), "uqff.w3.unsupported", "m.experts.gate_up_proj"),
            (
                tiny(tensor("m.experts.gate_up_proj.weight", 4, 2, 64)),
                "uqff.w3.unsupported",
                "m.experts.gate_up_proj.weight",
            ),
            (tiny(tensor("m.experts.down_proj", 4, 2, 64)), "uqff.w3.unsupported", "m.experts.down_proj"),
            (tiny(tensor("m.experts.0.w1.weight", 2, 64)), "uqff.w3.unsupported", "m.experts.0.w1.weight"),
            (tiny(tensor(Q + ".bias", 3)), "uqff.w3.shape", Q + ".bias"),
            (tiny(tensor(Q + ".bias", 1, 2)), "uqff.w3.shape", Q + ".bias"),
            (tiny(tensor(Q + ".bias", 64)), "uqff.w3.shape", Q + ".bias"),
            (tiny().without(EMBED + ".weight", Q + ".weight"), "uqff.w3.missing", None),
            (tiny(Tensor("x", "I8", (2,), b"\1\2")), "convert.source.dtype", "x"),
        ):
            self.refused(code, model, field=field)

    def test_values_without_meaning(self) -> None:
        nan, inf = math.nan, math.inf
        for place in (0, 127):
            for value in (nan, inf, -inf):
                model = tiny().patched(Q + ".weight", **{"_%d" % place: value})
                for types in ("q4_0", "afq4", "hqq4", "fp8", "f8q8", "mxfp4", "afq2,q4_0"):
                    self.refused("uqff.w4.range", model, types, field=Q + ".weight")
        self.refused("uqff.w4.range", tiny(tensor(Q + ".bias", 2, values=[nan, 0.0])), field=Q + ".bias")
        large = tiny(tensor(Q + ".weight", 2, 64, dtype="F32", values=[7e4] * 128))
        self.refused("uqff.w4.range", large, "q4_0", field=Q + ".weight", argv=("--dtype", "f16"))
        self.written(large, "q4_0", dtype="bf16")

    def test_folders_that_are_no_model(self) -> None:
        def model(edit: Callable[[str], Any]) -> str:
            folder = self.source(tiny())
            edit(folder)
            return folder

        def index(folder: str) -> None:
            text = json.dumps({"weight_map": {"missing_proj.weight": "model.safetensors"}})
            put(os.path.join(folder, "model.safetensors.index.json"), text.encode())

        def config(text: bytes) -> Callable[[str], Any]:
            return lambda folder: put(os.path.join(folder, "config.json"), text)

        uqff = self.written(tiny(), "q8_0")
        for folder, code, field in (
            (uqff, "st.folder.missing", None),  # writing from UQFF is refused
            (model(index), "st.index.missing", "missing_proj.weight"),
            (model(config(b"{")), "json.syntax.json", None),
            (model(config(b"[]")), "config.root.json", None),
            (model(config(b'{"a":1,"a":1}')), "json.key.duplicate", "a"),
            (model(lambda f: put(os.path.join(f, "model.safetensors"), b"junk")), "st.length.truncated", None),
            (model(lambda f: put(os.path.join(f, "model.safetensors"), safetensors(tiny().tensors)[:-1])),
             "st.data.truncated", None),
        ):  # fmt: skip
            self.refused(code, folder, field=field)

    def test_what_the_system_refuses_is_an_error_of_input_or_output(self) -> None:
        source = self.source(tiny())
        base = self.new()
        os.mkdir(base)
        file = put(os.path.join(base, "file"), b"old")
        os.mkdir(os.path.join(base, "full"))
        os.mkdir(os.path.join(base, "full", "q8_0-0.uqff"))
        before = self.tree(base)
        lacks = self.source(tiny())
        os.unlink(os.path.join(lacks, "config.json"))
        for argv, named in (
            ((source, file), file),
            ((source, os.path.join(file, "x.uqff")), file),
            ((source, os.path.join(base, "no", "such")), os.path.join(base, "no")),
            ((source, os.path.join(base, "full")), os.path.join(base, "full", "q8_0-0.uqff")),
            ((os.path.join(base, "none"), os.path.join(base, "out")), os.path.join(base, "none")),
            ((file, os.path.join(base, "out")), file),
            ((lacks, os.path.join(base, "out")), os.path.join(lacks, "config.json")),
            ((source, os.path.join(base, "out"), "--topology", os.path.join(base, "none")), os.path.join(base, "none")),
        ):
            status, text, err = run_main("uqff", "write", *argv, "--type", "q8_0")
            self.assertEqual((status, text), (3, ""), err)
            self.assertIn(named, err)
            self.assertNotIn(".vqfref-", err)
            self.assertEqual(self.tree(base), before)
            self.assertEqual(sorted(os.listdir(base)), ["file", "full"])


class Interrupted(WriterTest):
    """Whatever stops it, the target is what it was."""

    def setUp(self) -> None:
        self.base = self.new()
        os.mkdir(self.base)
        self.out = os.path.join(self.base, "out")
        self.model = self.source(tiny())

    def test_any_exception_at_any_tensor(self) -> None:
        for old in (False, True):
            if old:
                writer.write(self.model, self.out, ["q8_0", "q4_1"])
                put(os.path.join(self.out, "notes.txt"), b"mine")
            before = self.tree(self.base)
            for fault in (KeyboardInterrupt(), OSError(28, "No space left on device"), MemoryError(), SystemExit(3)):
                for at in (1, 6, 11):

                    def stop(done: int, total: int, at: int = at, fault: BaseException = fault) -> None:
                        if done == at:
                            raise fault

                    with self.assertRaises(type(fault)):
                        writer.write(self.model, self.out, ["afq4", "q8_0"], progress=stop)
                    self.assertEqual(self.tree(self.base), before)
                    self.assertEqual(os.listdir(self.base), ["out"] if old else [])

    def test_an_exception_behind_any_of_the_moves(self) -> None:
        """An interrupt may come when a rename is done and before anything else knows of it."""
        writer.write(self.model, self.out, ["q8_0", "q4_1"])
        before = self.tree(self.base)
        rename, moves = os.rename, 0

        def counted(a: str, b: str) -> None:
            nonlocal moves
            rename(a, b)
            moves += 1
            if moves == stop:
                raise KeyboardInterrupt

        stop = 0
        with mock.patch.object(sink.os, "rename", counted):
            writer.write(self.source(tiny(changed=True)), self.out, ["q8_0", "q4_1"])
        self.assertNotEqual(self.tree(self.base), before)
        before, total = self.tree(self.base), moves
        self.assertGreater(total, 9)
        for stop in range(1, total + 1):
            moves = 0
            with mock.patch.object(sink.os, "rename", counted), self.assertRaises(KeyboardInterrupt):
                writer.write(self.model, self.out, ["q8_0", "q4_1"])
            self.assertEqual(self.tree(self.base), before, stop)
            self.assertEqual(os.listdir(self.base), ["out"])
            self.assertEqual(sorted(os.listdir(self.out)), sorted(os.path.basename(n) for n in before))

    def test_what_cannot_be_restored_stays_in_the_hidden_folder(self) -> None:
        writer.write(self.model, self.out, ["q8_0"])
        before = {os.path.basename(n): d for n, d in self.tree(self.base).items()}
        rename, moves = os.rename, 0

        def broken(a: str, b: str) -> None:
            nonlocal moves
            moves += 1
            if moves > 2:
                raise OSError(5, "Input/output error")
            rename(a, b)

        with mock.patch.object(sink.os, "rename", broken), self.assertRaises(OSError):
            writer.write(self.source(tiny(changed=True)), self.out, ["q8_0"])
        self.assertEqual({os.path.basename(n): d for n, d in self.tree(self.base).items()}, before)

    def child(self, code: str, **how: Any) -> Any:
        """A fresh interpreter that runs `code`."""
        return subprocess.Popen(
            [sys.executable, *FLAGS, "-c", code, self.model, self.out], cwd=ROOT, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, **how,
        )  # fmt: skip

    WAITS = """
import signal, sys, time
import vqfref.cli.output
from vqfref.cli import main
def waits(done, total):
    if done > total // 2:
        print("half", flush=True)
        for _ in range(600):  # a signal just before one long sleep would not end it
            time.sleep(0.1)
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
vqfref.cli.output.progress = lambda what: waits
import vqfref.cli
vqfref.cli._end_by_exception()
sys.exit(main(["uqff", "write", sys.argv[1], sys.argv[2], "--type", "q8_0,afq4"]))
"""

    @unittest.skipUnless(os.name == "posix", "signals")
    def test_signals(self) -> None:
        """Ctrl-C and SIGTERM leave nothing; a kill leaves a hidden folder, and no half-made one."""
        for number, status, err in (
            (signal.SIGINT, 130, b"vqfref: interrupted\n"), (signal.SIGTERM, 143, b""), (signal.SIGKILL, -9, b""),
        ):  # fmt: skip
            with self.child(self.WAITS) as process:
                self.assertEqual(process.stdout.readline(), b"half\n")
                process.send_signal(number)
                self.assertEqual(process.communicate(timeout=30), (b"", err))
            self.assertEqual(process.returncode, status)
            left = os.listdir(self.base)
            self.assertEqual([n[:8] for n in left], [".vqfref-"] if number == signal.SIGKILL else [])
        writer.write(self.model, self.out, ["q8_0"])
        self.assertEqual(sorted(os.listdir(self.base)), sorted([*left, "out"]))

    @unittest.skipUnless(os.name == "posix", "limits")
    def test_a_full_disk_names_the_file_that_did_not_fit(self) -> None:
        code = """
import resource, sys
from vqfref.cli import main
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
sys.exit(main(["uqff", "write", sys.argv[1], sys.argv[2], "--type", "q8_0"]))
"""
        with self.child(code) as process:
            out, err = process.communicate(timeout=30)
        self.assertEqual((process.returncode, out, os.listdir(self.base)), (3, b"", []), err)
        self.assertIn(os.fsencode(os.path.join(self.out, "q8_0-0.uqff")), err)
        self.assertEqual(err.count(b"\n"), 1, err)

    @unittest.skipUnless(os.name == "posix", "signals")
    def test_a_source_that_is_cut_while_it_is_read_is_an_error_and_no_crash(self) -> None:
        code = """
import os, sys
import vqfref.cli.output
from vqfref.cli import main
vqfref.cli.output.progress = lambda what: lambda done, total: os.truncate(sys.argv[1] + "/model.safetensors", 0)
sys.exit(main(["uqff", "write", sys.argv[1], sys.argv[2], "--type", "q8_0"]))
"""
        with self.child(code) as process:
            out, err = process.communicate(timeout=30)
        self.assertEqual((process.returncode, out, os.listdir(self.base)), (1, b"", []), err)
        self.assertIn(b"model.safetensors", err)
        self.assertNotIn(b"Traceback", err)


if __name__ == "__main__":
    unittest.main()

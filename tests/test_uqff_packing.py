"""Pack factors and the storage-expansion check (section 13): the spec's own numbers, through layers that have them."""

from __future__ import annotations

import unittest

from tests.uqff_samples import (
    FILES,
    GGML,
    REAL,
    Folder,
    FolderTest,
    afq,
    expected,
    f8q8,
    fp8,
    gguf,
    hqq,
    mxfp4,
    named,
    product,
    raised,
    smooth,
    u8,
    unquant,
    zeros,
)
from vqfref.errors import FormatError, UsageError
from vqfref.uqff.packing import bucket_factor, global_factor, layer_factor, layout, pack_factor, repeating_id
from vqfref.uqff.reader import UqffFile

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

TWO = ("BF16", "F16")
Q = "model.layers.0.self_attn.q_proj"


class Formula(unittest.TestCase):
    def test_self_check_values(self) -> None:
        for elements, resident, two, four in ((32, 24, 2, 5), (64, 76, 1, 3), (32, 33, 1, 3), (32, 17, 3, 6)):
            self.assertEqual((pack_factor(elements, 2, resident), pack_factor(elements, 4, resident)), (two, four))

    def test_bucket_of_the_specification(self) -> None:
        self.assertEqual(bucket_factor([(256, 84), (64, 128)], 2), 3)

    def test_the_factor_is_the_definition_s(self) -> None:
        for elements in (1, 2, 31, 32, 64, 100, 256):
            for size in (2, 4):
                for resident in (0, 1, 2, 17, 18, 33, 84, 1000):
                    f = max(1, elements * size // max(1, resident))
                    while f > 1 and elements // f * size < resident:
                        f -= 1
                    self.assertEqual(pack_factor(elements, size, resident), f)
                    self.assertEqual(bucket_factor([(elements, resident)], size), f)

    def test_an_estimate_is_never_below_what_is_there(self) -> None:
        for elements, resident in ((4096, 2304), (96, 65), (1000, 563), (7, 3)):
            for size in (2, 4):
                f = pack_factor(elements, size, resident)
                self.assertTrue(f == 1 or elements // f * size >= resident)

    def test_repeating_layers_are_named_by_their_first_index(self) -> None:
        for key, name in (
            ("model.layers.3.mlp.up_proj", "model.layers.3"), ("model.layers.12", "model.layers.12"),
            ("transformer.h.0.attn.c_attn", "transformer.h.0"), ("visual.blocks.7.attn.qkv", "visual.blocks.7"),
            ("a.layers.1.b.layers.2.c", "a.layers.1"), ("layers.0.x", "layers.0"),
            ("a.layers.x.blocks.4.y", "a.layers.x.blocks.4"),
            ("lm_head", None), ("model.embed_tokens", None), ("model.layers.mlp.3", None), ("layers", None), ("3.layers", None),
            ("model.layer.3.x", None), ("model.layers.3a.x", None), ("model.layers.٣.x", None), ("hh.3", None), ("", None),
        ):  # fmt: skip
            self.assertEqual(repeating_id(key), name, key)


NOMINAL = {  # factors by type: for a dtype of 2 bytes and for F32
    "q4_0": (3, 6), "q4_1": (3, 6), "q5_0": (2, 5), "q5_1": (2, 5), "q8_0": (1, 3), "q8_1": (1, 3), "q2k": (6, 12),
    "q3k": (4, 9), "q4k": (3, 7), "q5k": (2, 5), "q6k": (2, 4), "q8k": (1, 3), "afq2": (5, 8), "afq3": (4, 6), "afq4": (3, 5),
    "afq6": (2, 4), "afq8": (1, 3), "hqq4": (3, 6), "hqq8": (1, 3), "f8q8": (1, 3), "mxfp4": (3, 6),
}  # fmt: skip


def block(name: str, dtype: str) -> dict[str, Any]:
    """A layer of one block of a type, its AFQ metadata in the model's dtype."""
    codes = {label: (code, elements) for code, (label, elements, _) in GGML.items()}
    if name in codes:
        return gguf(codes[name][0], 1, codes[name][1])
    if name.startswith("afq"):
        return afq(int(name[3:]), 1, 32, group=32, dtype=dtype)
    if name.startswith("hqq"):
        return hqq(int(name[3:]), 1, 64)
    return f8q8(1, 32) if name == "f8q8" else mxfp4(1, 32)


class Layers(FolderTest):
    def layers(self, made: dict[str, Any]) -> Any:
        tensors = {}
        for key, layer in made.items():
            tensors.update(named(key, layer))
        file = UqffFile(self.place(Folder.of(tensors)))
        self.addCleanup(file.close)
        return file.layers

    def test_nominal_factors_are_those_of_one_block(self) -> None:
        for dtypes, column in ((TWO, 0), (("F32",), 1)):
            for dtype in dtypes:
                layers = self.layers({name: block(name, dtype) for name in NOMINAL})
                for name, factors in NOMINAL.items():
                    self.assertEqual(layer_factor(layers[name], dtype), factors[column], (name, dtype))

    def test_elements_and_bytes_of_every_family(self) -> None:
        rows: dict[str, tuple[dict[str, Any], int, int]] = {
            "gguf": (gguf(2, 4, 64), 256, 4 * 2 * 18), "stack": (gguf(10, 2, 3, 256), 1536, 6 * 84),
            "unquant": (unquant("BF16", 3, 5), 15, 30), "f8q8": (f8q8(10, 10), 100, 4 * 33),
            "afq": (afq(3, 4, 128, group=32), 512, 4 * 48 + 2 * 4 * 4 * 4),
            "afq16": (afq(4, 4, 128, dtype="F16"), 512, 256 + 2 * 16),
            "hqq": (hqq(4, 2, 64), 128, 64 + 2 * 8), "hqq3": (hqq(3, 2, 64), 128, 7 * 2 * 4 + 2 * 8),
            "fp8": (fp8(8, 8), 64, 64 + 12), "mxfp4": (mxfp4(3, 64), 192, 96 + 6),
        }  # fmt: skip
        layers = self.layers({key: row[0] for key, row in rows.items()})
        for key, (_, elements, resident) in rows.items():
            self.assertEqual(layout(layers[key]), (elements, resident), key)

    def test_biases_do_not_count(self) -> None:
        tensors = named("a", gguf(8, 4, 64), smooth("F32", 4))
        with UqffFile(self.place(Folder.of(tensors))) as f:
            self.assertEqual(layout(f.layers["a"]), (256, 272))

    def test_self_check_values_through_layers(self) -> None:
        rows = {
            "afq": (afq(4, 1, 32, group=32), 2, 5), "hqq": (hqq(4, 1, 32, group=32), 2, 5), "fp8": (fp8(8, 8), 1, 3),
            "f8q8": (f8q8(1, 32), 1, 3), "mxfp4": (mxfp4(1, 32), 3, 6),
        }  # fmt: skip
        layers = self.layers({key: row[0] for key, row in rows.items()})
        for key, (_, two, four) in rows.items():
            self.assertEqual((layer_factor(layers[key], "BF16"), layer_factor(layers[key], "F32")), (two, four), key)

    def test_a_bucket_averages_a_dense_layer_with_its_block(self) -> None:
        layers = self.layers({"model.layers.0.a": gguf(10, 1, 256), "model.layers.0.b": unquant("BF16", 2, 32)})
        self.assertEqual(global_factor(layers.values(), "BF16"), 3)

    def test_a_dense_layer_outside_of_all_blocks_forces_one(self) -> None:
        layers = self.layers({"model.layers.0.a": gguf(10, 1, 256), "lm_head": unquant("BF16", 2, 32)})
        self.assertEqual(global_factor(layers.values(), "BF16"), 1)

    def test_without_any_repeating_layer_all_are_one_bucket(self) -> None:
        layers = self.layers({"first": gguf(10, 1, 256), "lm_head": unquant("BF16", 2, 32)})
        self.assertEqual(global_factor(layers.values(), "BF16"), 3)

    def test_the_result_is_the_smallest_over_the_buckets(self) -> None:
        made = {
            "model.layers.0.a": gguf(10, 1, 256),
            "model.layers.1.a": gguf(8, 1, 256),
            "model.layers.2.a": gguf(2, 1, 256),
        }
        layers = self.layers(made)
        factors = [layer_factor(layers[key], "F32") for key in made]
        self.assertEqual(global_factor(layers.values(), "F32"), min(f or 0 for f in factors))
        self.assertEqual(global_factor([layers["model.layers.0.a"]], "F32"), factors[0])

    def test_no_layer_at_all_gives_one(self) -> None:
        self.assertEqual(global_factor([], "F32"), 1)

    def test_no_format_no_factor(self) -> None:
        with UqffFile(self.place(Folder.of({"a.weight": zeros("U8", 4), **named("b", gguf(8, 1, 32))}))) as f:
            self.assertIsNone(layer_factor(f.layers["a"], "F32"))
            self.assertIsNone(layer_factor(f.layers.get("nothing"), "F32"))
            self.assertEqual(global_factor(f.layers.values(), "F32"), 3)

    def test_a_format_without_a_weight_is_refused(self) -> None:
        with UqffFile(self.place(Folder.of({"a.weight.format": u8(0), **named("b", gguf(8, 1, 32))}))) as f:
            self.assertEqual(raised(layer_factor, f.layers["a"], "F32").code, "uqff.o1.missing")
            self.assertEqual(raised(global_factor, f.layers.values(), "F32").code, "uqff.o1.missing")

    def test_an_unknown_dtype_is_the_callers_fault(self) -> None:
        layers = self.layers({"a": gguf(8, 1, 32)})
        for dtype in ("F64", "bf16", "", "I8"):
            self.assertIsInstance(raised(layer_factor, layers["a"], dtype), UsageError)


class Expansion(FolderTest):
    """X1: more bytes stored than the layer takes dense in the model's dtype."""

    def test_dense_layers_in_a_narrower_dtype_are_refused(self) -> None:
        made = {"f32": gguf(0, 3, 5), "unquant": unquant("F32", 3, 5), "f16": gguf(1, 3, 5), "q": gguf(8, 3, 32)}
        tensors = {}
        for key, layer in made.items():
            tensors.update(named(key, layer))
        with UqffFile(self.place(Folder.of(tensors))) as f:
            for dtype in TWO:
                for key in ("f32", "unquant"):
                    error = raised(global_factor, f.layers.values(), dtype)
                    self.assertEqual(error.code, "uqff.x1.limit")
                    error = raised(layer_factor, f.layers[key], dtype)
                    self.assertIsInstance(error, FormatError)
                    self.assertEqual(error.code, "uqff.x1.limit")
                    for word in (key, "60", "30", dtype, "wider", "device map"):
                        self.assertIn(word, str(error))
                self.assertEqual(layer_factor(f.layers["f16"], dtype), 1)
            for key in made:
                self.assertIsNotNone(layer_factor(f.layers[key], "F32"))

    def test_as_many_bytes_as_dense_are_no_expansion(self) -> None:
        with UqffFile(self.place(Folder.of(named("a", unquant("F32", 3, 5))))) as f:
            self.assertEqual(layer_factor(f.layers["a"], "F32"), 1)

    def test_small_layers_expand_by_their_metadata(self) -> None:
        # 8 bytes of FP8 and three scales: 20 bytes, 16 in BF16
        with UqffFile(self.place(Folder.of(named("a", fp8(2, 4))))) as f:
            self.assertEqual(raised(layer_factor, f.layers["a"], "BF16").code, "uqff.x1.limit")
            self.assertEqual(layer_factor(f.layers["a"], "F32"), 1)

    def test_decoding_does_not_mind(self) -> None:
        with UqffFile(self.place(Folder.of(named("a", unquant("F32", 3, 5))))) as f:
            self.assertEqual(len(f.get_tensor("a")), 15)


class Real(unittest.TestCase):
    def test_folders_of_the_engine(self) -> None:
        # by section 13 from the shapes and the sizes of the entries, one bucket a block and one a layer outside
        for name in REAL:
            with UqffFile(str(FILES / name)) as f:
                buckets: dict[str, list[tuple[int, int]]] = {}
                for layer in expected(name):
                    key = layer["key"]
                    parts = Folder.real(name).layer(key)
                    counted = {4: ("", ".scales", ".biases"), 2: ("", ".scales", ".zeros"), 6: ("", ".scales"), 3: (
                        "", ".dequant_w_scale", ".dequant_x_scale", ".quant_scale")}.get(layer["format"], ("",))  # fmt: skip
                    one = (product(layer["shape"]), sum(len(parts[s].data) for s in counted))
                    self.assertEqual(layout(f.layers[key]), one, key)
                    block = ".".join(key.split(".")[:3]) if key.startswith("model.layers.") else key
                    buckets.setdefault(block, []).append(one)
                wanted = []
                for members in buckets.values():
                    n, resident = sum(m[0] for m in members), sum(m[1] for m in members)
                    factor = max(1, n * 4 // resident)
                    while factor > 1 and (
                        n // factor * 4 < resident or sum(m[0] // factor * 4 for m in members) < resident
                    ):
                        factor -= 1
                    wanted.append(factor)
                self.assertEqual(global_factor(f.layers.values(), "F32"), min(wanted), name)
                self.assertEqual(f.pack_factor(dtype="F32"), min(wanted), name)
                for key, layer in f.layers.items():
                    self.assertEqual(f.pack_factor(key, dtype="F32"), layer_factor(layer, "F32"), key)

    def test_a_dense_fallback_stops_a_model_of_two_bytes(self) -> None:
        with UqffFile(str(FILES / "odd100-afq4")) as f:
            self.assertEqual(raised(global_factor, f.layers.values(), "BF16").code, "uqff.x1.limit")
            self.assertEqual(global_factor(f.layers.values(), "F32"), 1)
            self.assertIsNotNone(layer_factor(f.layers["model.layers.0.self_attn.o_proj"], "BF16"))


if __name__ == "__main__":
    unittest.main()

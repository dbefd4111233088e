"""Which type each layer gets: names and shorthands, promotion, fallback, topologies. UQFF section 9."""

from __future__ import annotations

import json
import os
import tempfile
import unittest

from tests.tools import put, run_main
from tests.uqff_samples import raised
from vqfref.errors import FormatError, UsageError
from vqfref.uqff.targets import Pins, expand_types, layer_number, parse_topology, resolve_target, stored_type

TYPE_CHECKING = False
if TYPE_CHECKING:
    pass

TYPES = (
    "q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "q8_1", "q2k", "q3k", "q4k", "q5k", "q6k", "q8k", "hqq4", "hqq8", "fp8",
    "afq2", "afq3", "afq4", "afq6", "afq8", "f8q8", "mxfp4",
)  # fmt: skip
SHORTHANDS = {"2": "q2k afq2", "3": "q3k afq3", "4": "q4k afq4", "5": "q5k", "6": "q6k afq6", "8": "q8_0 afq8"}
PROMOTED = {
    "afq2": "afq6", "afq3": "afq6", "afq4": "afq6", "afq6": "afq8", "afq8": "afq8", "q2k": "q6k", "q3k": "q6k",
    "q4k": "q6k", "q4_0": "q6k", "q4_1": "q6k", "q5k": "q8_0", "q6k": "q8_0", "q8k": "q8_0", "q5_0": "q8_0",
    "q5_1": "q8_0", "q8_0": "q8_0", "q8_1": "q8_0",
}  # fmt: skip
NARROW = {
    "q2k": "q4_0",
    "q3k": "q4_0",
    "q4k": "q4_1",
    "q5k": "q5_0",
    "q6k": "q5_1",
    "q8k": "q8_1",
}  # a K-quant's, below 256
GGML = TYPES[:12]
KEY = "model.layers.3.mlp.up_proj"


class Names(unittest.TestCase):
    def test_every_type_in_any_case(self) -> None:
        self.assertEqual(len(TYPES), 22)
        for name in TYPES:
            self.assertEqual(expand_types([name]), [name])
            self.assertEqual(expand_types([name.upper()]), [name])
        for name in (
            "",
            "q4",
            "q3_k",
            "q4_k",
            "hqq2",
            "hqq",
            "nvfp4",
            "7",
            "04",
            " 4",
            "f32",
            "f16",
            "bf16",
            "unquant",
        ):
            self.assertEqual(raised(expand_types, [name]).code, "usage.type.unsupported", name)

    def test_shorthands_in_order_and_in_reverse_on_metal(self) -> None:
        for number, names in SHORTHANDS.items():
            for device in ("cpu", "cuda"):
                self.assertEqual(expand_types([number], device), names.split())
            self.assertEqual(expand_types([number], "metal"), names.split()[::-1])
        self.assertEqual(expand_types(["8", "q4_0", "2"]), ["q8_0", "afq8", "q4_0", "q2k", "afq2"])

    def test_none_or_twice_the_same(self) -> None:
        self.assertEqual(raised(expand_types, []).code, "usage.type.missing")
        for names in (["q4k", "Q4K"], ["afq4", "4"], ["2", "2"]):
            self.assertEqual(raised(expand_types, names).code, "usage.type.duplicate", names)

    def test_f8q8_is_for_the_cpu(self) -> None:
        self.assertEqual(expand_types(["f8q8"], "cpu"), ["f8q8"])
        for device in ("cuda", "metal"):
            error = raised(expand_types, ["q4k", "f8q8"], device)
            self.assertEqual((type(error), error.code), (UsageError, "uqff.q2.unsupported"))
            self.assertIn("fp8", error.message)


class Promotion(unittest.TestCase):
    def resolved(self, key: str, name: str, pins: Pins | None = None) -> str:
        return str(resolve_target(key, (64, 256), name, pins, key).resolved)

    def test_embedding_and_head_get_a_better_type(self) -> None:
        for name in TYPES:
            for key in ("model.embed_tokens", "lm_head", "language_model.lm_head", "model.language_model.embed_tokens"):
                self.assertEqual(self.resolved(key, name), PROMOTED.get(name, name), (key, name))
            for key in (KEY, "vision.embed_tokens", "model.lm_head", "x.lm_head"):
                self.assertEqual(self.resolved(key, name), name, (key, name))

    def test_a_pin_overrides_promotion(self) -> None:
        for name in TYPES:
            self.assertEqual(self.resolved("lm_head", name, Pins([("/lm_head/", "q2k")])), "q2k")

    def test_the_promoted_type_falls_back_too(self) -> None:
        for name, shape, stored in (
            ("q4_0", (96, 64), "q5_1"), ("q4_0", (96, 48), "f32"), ("q8k", (96, 64), "q8_0"), ("afq2", (33, 100), "unquant"),
            ("afq4", (33, 64), "afq6"), ("q2k", (33, 512), "q6k"),
        ):  # fmt: skip
            target = resolve_target("lm_head", shape, name, None, "lm_head")
            self.assertEqual((target.default, target.resolved, target.stored), (name, PROMOTED[name], stored))


class Fallback(unittest.TestCase):
    def test_ggml_by_the_last_dimension(self) -> None:
        reason = "tensor is not quantizable"
        for name in GGML:
            narrow = NARROW.get(name, name)
            for last, stored in (
                (256, name), (1024, name), (64, narrow), (32, narrow), (288, narrow), (255, "f32"), (257, "f32"), (100, "f32"),
                (16, "f32"), (1, "f32"),
            ):  # fmt: skip
                for shape in ((7, last), (3, 7, last), (last,)):
                    self.assertEqual(
                        stored_type(name, shape), (stored, reason if stored == "f32" else None), (name, shape)
                    )

    def test_afq_by_groups_of_64(self) -> None:
        for name in ("afq2", "afq3", "afq4", "afq6", "afq8"):
            for last in (64, 128, 320):
                self.assertEqual(stored_type(name, (3, last)), (name, None))
                self.assertEqual(stored_type(name, (2, 3, last)), (name, None))
            for last in (1, 32, 63, 65, 96, 100):
                unquant = ("unquant", "last dim is not divisible by group size 64")
                self.assertEqual(stored_type(name, (3, last)), unquant)
                self.assertEqual(stored_type(name, (2, 3, last)), unquant)

    def test_fp8_and_f8q8_take_any_shape_but_stacks(self) -> None:
        for name in ("fp8", "f8q8"):
            for shape in ((1, 1), (100, 100), (3, 7), (5,)):
                self.assertEqual(stored_type(name, shape), (name, None))

    def test_the_whole_write_fails(self) -> None:
        for name, shape, code in (
            ("hqq4", (3, 21), "w1"), ("hqq8", (1, 65), "w1"), ("hqq4", (16, 20), None), ("hqq8", (2, 96), None),
            ("mxfp4", (2, 48), "w1"), ("mxfp4", (2, 31), "w1"), ("mxfp4", (2, 96), None), ("hqq4", (2, 2, 64), "m2"),
            ("hqq8", (2, 2, 64), "m2"), ("fp8", (2, 2, 64), "m2"), ("f8q8", (2, 2, 64), "m2"), ("mxfp4", (2, 2, 64), "m2"),
            ("q4_0", (), "w1"), ("q4_0", (0, 32), "w1"), ("afq4", (2, 0), "w1"), ("fp8", (1, 1, 1, 1), "w1"),
        ):  # fmt: skip
            error = raised(stored_type, name, shape)
            if code is None:
                self.assertEqual(stored_type(name, shape), (name, None))
            else:
                self.assertEqual(error.code, {"w1": "uqff.w1.shape", "m2": "uqff.m2.unsupported"}[code], (name, shape))
                self.assertIn("use a Q type or AFQ" if code == "m2" else "", error.message)
                error = raised(resolve_target, KEY, shape, name, None, KEY)
                self.assertEqual(error.field, KEY)


class Selectors(unittest.TestCase):
    def match(self, selectors: list[tuple[str, str]], key: str, source: str | None = None) -> str | None:
        return Pins(selectors).match(key, source or key)

    def test_layer_numbers(self) -> None:
        for key, number in (
            ("model.layers.0.x_proj", 0), ("h.12.x_proj", 12), ("a.h.3.layers.4.x", 3), ("model.layers.007.x", 7),
            ("layers.x.1", None), ("blocks.1.x", None), ("model.layers", None), ("model.layers.+1.x", None),
            ("model.layers.1_0.x", None), ("model.layers.\u0663.x", None), ("model.layers.-1.x", None),
            ("model.layers.%s.x" % ("9" * 5000), None), ("model.layers.x.h.2.y", 2),
        ):  # fmt: skip
            self.assertEqual(layer_number(key), number, key[:40])

    def test_ranges_end_before_their_end(self) -> None:
        for number, pinned in ((1, None), (2, "q5_0"), (4, "q5_0"), (5, None)):
            self.assertEqual(self.match([("2-5", "Q5_0")], "model.layers.%d.x_proj" % number), pinned)
        self.assertEqual(self.match([("3", "q5_0")], KEY), "q5_0")
        self.assertEqual(self.match([("4", "q5_0")], KEY), None)
        self.assertEqual(self.match([("0-9", "q5_0")], "lm_head"), None)

    def test_who_wins(self) -> None:
        up, all_layers = ("/up_proj/", "q4_0"), ("0-9", "q5_0")
        for selectors, pinned in (
            ([up, all_layers], "q4_0"), ([all_layers, up], "q4_0"),  # regexes before ranges
            ([up, ("/layers/", "q8_0")], "q8_0"), ([("/layers/", "q8_0"), up], "q4_0"),  # the last regex
            ([("0-5", "q4_1"), all_layers], "q5_0"), ([all_layers, ("0-5", "q4_1")], "q5_0"),  # the larger end
            ([all_layers, ("3-9", "q4_1")], "q4_1"), ([("3-9", "q4_1"), all_layers], "q5_0"),  # the later of a tie
            ([("3", "q4_1"), ("0-4", "q5_1")], "q5_1"), ([("0-4", "q5_1"), ("3", "q4_1")], "q4_1"),
        ):  # fmt: skip
            self.assertEqual(self.match(selectors, KEY), pinned, selectors)

    def test_a_regex_is_searched_in_the_source_path_with_weight(self) -> None:
        stack, source = "m.experts.up_proj", "m.experts.0.up_proj"
        self.assertEqual(self.match([("/experts\\.0\\.up_proj\\.weight$/", "q4_0")], stack, source), "q4_0")
        self.assertEqual(self.match([("/experts\\.up_proj/", "q4_0")], stack, source), None)
        self.assertEqual(self.match([("//", "q4_0")], stack, source), "q4_0")
        self.assertEqual(self.match([("/^up/", "q4_0")], stack, source), None)

    def test_selectors_that_are_none(self) -> None:
        for selector, code in (
            ("", "name"), ("x", "name"), ("/x", "name"), ("/", "name"), ("1-", "name"), ("-1", "name"), ("1-2-3", "name"),
            ("+1", "name"), ("1 - 2", "name"), ("\u0661", "name"), ("9" * 5000, "name"), ("0-" + "9" * 5000, "name"),
            ("18446744073709551616", "name"), ("/(/", "name"), ("/a{99999999999}/", "name"), ("2-2", "range"), ("3-2", "range"),
        ):  # fmt: skip
            error = raised(Pins, [(selector, "q4_0")])
            self.assertEqual((type(error), error.code), (UsageError, "usage.topology." + code), selector[:20])
            self.assertLess(len(str(error)), 300)
        self.assertEqual(raised(Pins, [("1", "nvfp4")]).code, "usage.type.unsupported")


class Topology(unittest.TestCase):
    def pinned(self, text: str | bytes) -> list[str | None]:
        pins = parse_topology(text if isinstance(text, bytes) else text.encode())
        return [pins.match(k, k) for k in ("lm_head", "model.layers.0.q_proj", "model.layers.1.q_proj")]

    def test_lines_and_json_say_the_same(self) -> None:
        want = ["q8_0", "afq4", "q5_0"]
        lines = "# pins\n\n'/lm_head/':\n  isq: Q8_0\n/0\\.q_proj/:\n    isq: 'AFQ4'\n\n0-2:\r\n  isq: \"q5_0\"\n"
        self.assertEqual(self.pinned(lines), want)
        self.assertEqual(self.pinned(lines.rstrip("\n")), want)
        root = {"/lm_head/": {"isq": "q8_0"}, "/0\\.q_proj/": {"isq": "AFQ4"}, "0-2": {"isq": "q5_0"}}
        self.assertEqual(self.pinned(json.dumps(root)), want)
        self.assertEqual(self.pinned(" \n" + json.dumps(root, indent=1)), want)
        self.assertEqual(self.pinned('"/lm_head/" : \n isq: q8_0\n"1":\n isq: q5_0\n0:\n isq: afq4'), want)
        self.assertEqual(self.pinned("'/(?:lm)_head/':\n isq: q8_0"), ["q8_0", None, None])

    def test_nothing_pins_nothing(self) -> None:
        for text in ("", "\n", "# only words", "{}"):
            self.assertEqual(self.pinned(text), [None] * 3)

    def test_everything_else_is_refused(self) -> None:
        for text in (
            "0-1", "0-1: q4k", "0-1:", "0-1:\nisq: q4k", "0-1:\n  isq:", "0-1:\n  isq: q4k\n  device: cpu",
            "0-1:\n  device: cpu", "0-1:\n\tisq: q4k", "0-1:\n  isq: q4k\n  isq: q5k", "0-1:\n2-3:\n  isq: q4k",
            "  0-1:\n  isq: q4k", "  isq: q4k", "---\n0-1:\n  isq: q4k", "0-1: {isq: q4k}", "- 0-1", "0-1: &a\n  isq: q4k",
            "'0-1:\n  isq: q4k", '"/a\\\\.b/":\n  isq: q4k', '0-1:\n  isq: "q4\\x6b"', "'/a''b/':\n  isq: q4k",
            "0-1:\n  quant: q4k", '{"0-1":"q4k"}', '{"0-1":{}}', '{"0-1":{"isq":4}}', '{"0-1":{"isq":"q4k","device":"cpu"}}',
            '{"0-1":["isq"]}',
        ):  # fmt: skip
            error = raised(parse_topology, text.encode(), "topology")
            self.assertEqual(
                (type(error), error.code, error.path), (FormatError, "usage.topology.json", "topology"), text
            )
        for text, code in (
            ('{"0":{"isq":"q4k"},"0":{"isq":"q5k"}}', "json.key.duplicate"), ('{"0":', "json.syntax.json"),
            ("0-1:\n  isq: q4k # words", "usage.type.unsupported"), ("0-1:\n  isq: [q4k]", "usage.type.unsupported"),
            ("x:\n  isq: q4k", "usage.topology.name"), ("? a:\n  isq: q4k", "usage.topology.name"),
            ("\ufeff0-1:\n  isq: q4k", "usage.topology.name"),
        ):  # fmt: skip
            self.assertEqual(raised(parse_topology, text.encode()).code, code, text)

    def test_bytes_that_are_no_text(self) -> None:
        error = raised(parse_topology, b"/\xff/:\n  isq: q4k")
        self.assertEqual((error.code, error.offset), ("usage.topology.json", 1))

    def test_a_topology_beyond_the_limit_is_not_read_by_half(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            long = put(os.path.join(folder, "t"), b"0-1:\n  isq: q4k\n" + b"#" * (1 << 20))
            out = os.path.join(folder, "out")
            status, _, err = run_main("uqff", "write", folder, out, "--type", "q4k", "--topology", long)
            self.assertEqual((status, os.path.exists(out)), (1, False))
            self.assertIn("usage.topology.limit", err)


if __name__ == "__main__":
    unittest.main()

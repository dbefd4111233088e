"""uqff_report.json: read, written, made by a scan (sections 11 and 15.2)."""

from __future__ import annotations

import io
import json
import os
import unittest
from contextlib import redirect_stdout

from tests.uqff_samples import (
    FILES,
    REAL,
    REPORT,
    Folder,
    FolderTest,
    afq,
    gguf,
    mxfp4,
    named,
    raised,
    real_files,
    u8,
    unquant,
    version,
)
from vqfref.cli import main
from vqfref.errors import FormatError
from vqfref.uqff import naming
from vqfref.uqff.report import as_json, check_identity, dump, identity_faults, load, parse
from vqfref.uqff.scan import scan, scan_report, summary
from vqfref.uqff.shards import listing

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

SMALL: dict[str, Any] = {
    "schema": 1,
    "generated_by": {"tool": "mistralrs quantize"},
    "uqff_version": "1.2.0",
    "outputs": [
        {"quant": "q4k", "shards": ["q4k-0.uqff"], "layers": 1, "actual_counts": {"q4k": 1}, "fallback_count": 0}
    ],
}
FALLBACK = {"module": "a", "from": "q4k", "to": "f32", "shape": [1, 2]}
DETAIL = {"module": "a", "stored": "f32", "shape": [1, 2]}


def small(**output: Any) -> bytes:
    """A report of one output with other fields."""
    return json.dumps({**SMALL, "outputs": [{**SMALL["outputs"][0], **output}]}).encode()


def made(path: str, **how: Any) -> Any:
    """The report of a scan of all groups."""
    available = listing(path)
    scans = [scan(path, g) for g in naming.groups(available, load(path, available))]
    try:
        return scan_report(scans, "mistralrs uqff report", **how)
    finally:
        for s in scans:
            for file in s.shards:
                file.close()


class Reading(unittest.TestCase):
    def test_every_report_of_the_engine_is_written_again_to_the_byte(self) -> None:
        for name in REAL:
            data = real_files(name)[REPORT]
            self.assertEqual(dump(parse(data)), data, name)

    def test_fields_of_a_real_report(self) -> None:
        report = parse(real_files("odd100-afq4")[REPORT])
        self.assertEqual(
            (report.schema, report.uqff_version, report.base_model, report.repo_id), (1, "1.2.0", None, None)
        )
        self.assertEqual(
            report.generated_by, {"tool": "mistralrs quantize", "mistralrs_version": "0.9.5", "git_revision": "unknown"}
        )
        (output,) = report.outputs
        self.assertEqual((output.quant, len(output.shards), output.layers), ("afq4", 5, 9))
        self.assertEqual((output.actual_counts, output.fallback_count), ({"afq4": 1, "unquant": 8}, 8))
        self.assertEqual(tuple(output.fallbacks[0]), (
            "lm_head", "afq6", "unquant", [33, 100], "last dim is not divisible by group size 64"))  # fmt: skip
        self.assertEqual(tuple(output.layer_details[0]), ("lm_head", "afq4", "afq6", "unquant", [33, 100]))

    def test_only_the_marked_fields_may_be_missing(self) -> None:
        report = parse(json.dumps(SMALL).encode())
        self.assertEqual((report.outputs[0].fallbacks, report.outputs[0].layer_details), ([], []))
        for field in SMALL:
            root = {k: v for k, v in SMALL.items() if k != field}
            error = raised(parse, json.dumps(root).encode(), "some/path")
            self.assertEqual((error.code, error.path), ("uqff.r7.json", "some/path"))
            self.assertIn(field, str(error))
        for field in SMALL["outputs"][0]:
            output = {k: v for k, v in SMALL["outputs"][0].items() if k != field}
            error = raised(parse, json.dumps({**SMALL, "outputs": [output]}).encode())
            self.assertEqual(error.code, "uqff.r7.json")
            self.assertIn(field, str(error))
        for field in FALLBACK:
            record = {k: v for k, v in FALLBACK.items() if k != field}
            self.assertEqual(raised(parse, small(fallbacks=[record])).code, "uqff.r7.json", field)
        for field in DETAIL:
            record = {k: v for k, v in DETAIL.items() if k != field}
            self.assertEqual(raised(parse, small(layer_details=[record])).code, "uqff.r7.json", field)
        parse(small(fallbacks=[FALLBACK], layer_details=[DETAIL]))

    def test_unknown_fields_are_ignored_everywhere(self) -> None:
        root = json.loads(small(fallbacks=[{**FALLBACK, "x": 1}], layer_details=[{**DETAIL, "x": 1}], x=None))
        root["x"] = [1]
        root["generated_by"]["x"] = {}
        self.assertEqual(
            dump(parse(json.dumps(root).encode())), dump(parse(small(fallbacks=[FALLBACK], layer_details=[DETAIL])))
        )

    def test_any_schema_of_32_bits_is_read(self) -> None:
        for schema in (0, 2, (1 << 32) - 1):
            self.assertEqual(parse(json.dumps({**SMALL, "schema": schema}).encode()).schema, schema)
        for schema in (1 << 32, -1, 1.0, "1", None, True, [1]):
            self.assertEqual(
                raised(parse, json.dumps({**SMALL, "schema": schema}).encode()).code, "uqff.r7.json", schema
            )

    def test_counts_are_unsigned_integers_of_64_bits(self) -> None:
        for value in (-1, 1.0, "1", None, True, 1 << 64):
            for output in (
                {"layers": value}, {"fallback_count": value}, {"actual_counts": {"q4k": value}},
                {"fallbacks": [{**FALLBACK, "shape": [value]}]}, {"layer_details": [{**DETAIL, "shape": [1, value]}]},
            ):  # fmt: skip
                self.assertEqual(raised(parse, small(**output)).code, "uqff.r7.json", output)

    def test_other_types_than_the_fields_are_refused(self) -> None:
        for output in (
            {"quant": 4}, {"quant": None}, {"shards": "q4k-0.uqff"}, {"shards": [1]}, {"shards": None}, {"actual_counts": []},
            {"fallbacks": {}}, {"fallbacks": None}, {"fallbacks": [1]}, {"layer_details": None}, {"layer_details": ["a"]},
            {"fallbacks": [{**FALLBACK, "reason": 1}]}, {"fallbacks": [{**FALLBACK, "shape": 1}]},
            {"layer_details": [{**DETAIL, "default_target": 1}]}, {"layer_details": [{**DETAIL, "module": None}]},
        ):  # fmt: skip
            self.assertEqual(raised(parse, small(**output)).code, "uqff.r7.json", output)
        for root in (
            [], None, "x", 1, {}, {**SMALL, "outputs": {}}, {**SMALL, "outputs": [1]}, {**SMALL, "generated_by": "x"},
            {**SMALL, "generated_by": {}}, {**SMALL, "generated_by": {"tool": 1}}, {**SMALL, "uqff_version": 1},
            {**SMALL, "base_model": 1}, {**SMALL, "generated_by": {"tool": "x", "git_revision": 1}},
        ):  # fmt: skip
            self.assertEqual(raised(parse, json.dumps(root).encode()).code, "uqff.r7.json", root)

    def test_what_is_no_json_is_r7_with_the_place(self) -> None:
        for data in (b"", b"{", b"nonsense", b'{"schema": 1,}', b"\xff", b'{"schema": 1, "schema": 1}', b"[" * 1000):
            error = raised(parse, data, "some/report.json")
            self.assertIsInstance(error, FormatError)
            self.assertEqual((error.code, error.path), ("uqff.r7.json", "some/report.json"))

    def test_no_outputs_are_read_but_not_accepted(self) -> None:
        report = parse(json.dumps({**SMALL, "outputs": []}).encode())
        self.assertEqual([f.code for f in identity_faults(report, [])], ["uqff.r1.missing"])


class Identity(unittest.TestCase):
    def faults(self, *outputs: dict[str, Any], there: tuple[str, ...] = ("a", "b")) -> list[str]:
        root = {**SMALL, "outputs": [{**SMALL["outputs"][0], **o} for o in outputs]}
        report = parse(json.dumps(root).encode())
        found = [f.code for f in identity_faults(report, there)]
        error = raised(check_identity, report, there)
        self.assertEqual(error.code if error else None, found[0] if found else None)
        return found

    def test_sound_outputs(self) -> None:
        self.assertEqual(self.faults({"quant": "x", "shards": ["a"]}, {"quant": "y", "shards": ["b"]}), [])
        self.assertIsNone(raised(check_identity, None, []))

    def test_each_rule(self) -> None:
        self.assertEqual(self.faults({"quant": " ", "shards": ["a"]}), ["uqff.r2.name"])
        self.assertEqual(
            self.faults({"quant": "X", "shards": ["a"]}, {"quant": "x", "shards": ["b"]}), ["uqff.r3.duplicate"]
        )
        self.assertEqual(self.faults({"quant": "x", "shards": []}), ["uqff.r4.missing"])
        self.assertEqual(self.faults({"quant": "x", "shards": ["c"]}), ["uqff.r5.missing"])
        self.assertEqual(self.faults({"quant": "x", "shards": ["a", "a"]}), ["uqff.r6.duplicate"])
        self.assertEqual(
            self.faults({"quant": "x", "shards": ["a"]}, {"quant": "y", "shards": ["a"]}), ["uqff.r6.duplicate"]
        )

    def test_messages_name_quant_and_shard(self) -> None:
        root = {**SMALL, "outputs": [{**SMALL["outputs"][0], "quant": q, "shards": ["a", "c"]} for q in ("one", "two")]}
        texts = [str(f) for f in identity_faults(parse(json.dumps(root).encode()), ["a"], "path")]
        self.assertIn("one", texts[0])
        self.assertIn("'c'", texts[0])
        for text, shard in zip(texts[1:], ("'a'", "'c'")):
            for word in ("one", "two", shard):
                self.assertIn(word, text)


class Writing(unittest.TestCase):
    def test_layout_is_two_spaces_an_item_a_line_and_no_newline_at_the_end(self) -> None:
        report = parse(small(fallbacks=[{**FALLBACK, "reason": "why"}], layer_details=[DETAIL]))
        self.assertEqual(dump(report).decode(), json.dumps(as_json(report), indent=2))
        self.assertNotEqual(dump(report)[-1:], b"\n")

    def test_unset_fields_and_empty_lists_are_left_out_never_null(self) -> None:
        for data in (
            small(),
            small(fallbacks=[], layer_details=[]),
            small(fallbacks=[FALLBACK], layer_details=[DETAIL]),
        ):
            text = dump(parse(data)).decode()
            self.assertNotIn("null", text)
            self.assertNotIn("[]", text)
        self.assertNotIn("reason", dump(parse(small(fallbacks=[FALLBACK]))).decode())
        self.assertNotIn("default_target", dump(parse(small(layer_details=[DETAIL]))).decode())

    def test_null_for_an_optional_text_is_unset(self) -> None:
        root = {**SMALL, "base_model": None, "repo_id": None}
        self.assertEqual(dump(parse(json.dumps(root).encode())), dump(parse(json.dumps(SMALL).encode())))

    def test_counts_are_sorted_and_fields_in_their_order(self) -> None:
        output = {
            "fallback_count": 0,
            "actual_counts": {"q6k": 1, "afq4": 2},
            "layers": 3,
            "shards": ["a"],
            "quant": "x",
        }
        root = {"outputs": [output],
                "uqff_version": "1.2.0", "repo_id": "r", "base_model": "b", "generated_by": {"git_revision": "g", "tool": "t"},
                "schema": 1}  # fmt: skip
        text = dump(parse(json.dumps(root).encode())).decode()
        order = ["schema", "generated_by", "tool", "git_revision", "base_model", "repo_id", "uqff_version", "outputs", "quant",
                 "shards", "layers", "actual_counts", "afq4", "q6k", "fallback_count"]  # fmt: skip
        places = [text.index('"%s"' % name) for name in order]
        self.assertEqual(places, sorted(places))

    def test_text_that_is_not_ascii_stays_as_it_is(self) -> None:
        root = {**SMALL, "base_model": 'модель \u2028 "q" \\ \n'}
        data = dump(parse(json.dumps(root).encode()))
        self.assertIn("модель".encode(), data)
        self.assertEqual(parse(data).base_model, root["base_model"])


class Scanned(FolderTest):
    def test_a_scan_agrees_with_the_writer_about_all_but_targets(self) -> None:
        for name in REAL:
            written = parse(real_files(name)[REPORT]).outputs
            scanned = made(str(FILES / name)).outputs
            for w, s in zip(written, scanned):
                self.assertEqual(
                    (s.quant, s.shards, s.layers, s.actual_counts), (w.quant, w.shards, w.layers, w.actual_counts)
                )
                self.assertEqual(
                    [(d.module, d.stored, list(d.shape)) for d in s.layer_details],
                    [(d.module, d.stored, list(d.shape)) for d in w.layer_details],
                )
                self.assertTrue(all((d.default_target, d.resolved_target) == (s.quant, None) for d in s.layer_details))
                self.assertEqual(s.fallback_count, w.fallback_count, name)
                self.assertEqual([(f.module, f.to, list(f.shape)) for f in s.fallbacks], [
                    (f.module, f.to, list(f.shape)) for f in w.fallbacks])  # fmt: skip
                self.assertTrue(all(f.reason is None and f.from_ == s.quant for f in s.fallbacks))

    def test_fallbacks_are_dense_labels_other_than_the_groups_name(self) -> None:
        layers = {
            "a": gguf(0, 1, 4),
            "b": gguf(1, 1, 4),
            "c": gguf(30, 1, 4),
            "d": unquant("F32", 1, 4),
            "e": gguf(8, 1, 32),
        }
        tensors = {}
        for key, layer in layers.items():
            tensors.update(named(key, layer))
        for stem, wanted in (("q4k", "abcd"), ("f16", "acd"), ("unquant", "abc")):
            output = made(self.place(Folder.of(tensors, stem))).outputs[0]
            self.assertEqual("".join(f.module for f in output.fallbacks), wanted)
            self.assertEqual(output.fallback_count, len(wanted))

    def test_shapes_are_stored_ones_where_no_shape_is_written(self) -> None:
        tensors = {
            **named("a", afq(4, 3, 64)),
            **named("b", mxfp4(3, 64)),
            **named("c", gguf(8, 3, 64)),
            **named("d", unquant("F16", 2, 3, 5)),
        }
        output = made(self.place(Folder.of(tensors))).outputs[0]
        self.assertEqual([list(d.shape) for d in output.layer_details], [[3, 8], [3, 32], [3, 64], [2, 3, 5]])

    def test_the_version_is_the_first_text_found(self) -> None:
        shards: Any = {
            "a-0.uqff": (None, version(1, 0, 0)),
            "a-1.uqff": ({"uqff.version": "1.1.7"}, {}),
            "a-2.uqff": ({"uqff.version": "9.9.9"}, {}),
        }
        self.assertEqual(made(self.place(Folder(shards))).uqff_version, "1.1.7")
        self.assertEqual(made(self.place(Folder({"a-0.uqff": (None, version(1, 0, 0))}))).uqff_version, "1.2.0")

    def test_a_reports_outputs_come_first_with_their_names(self) -> None:
        def edit(folder: Folder) -> None:
            folder.shards["a-0.uqff"] = (None, {**version(), **named("x.y", gguf(8, 1, 32))})
            folder.report(lambda r: r["outputs"][0].update(quant="My Quant"))

        report = made(self.edited("afq3", edit, report=True))
        self.assertEqual(
            [(o.quant, o.shards) for o in report.outputs], [("My Quant", ["afq3-0.uqff"]), ("a", ["a-0.uqff"])]
        )

    def test_entries_of_odd_names_are_layers_too(self) -> None:
        tensors = {
            "x.weight": u8(0),
            "y.weight.scales": u8(0),
            "plain": u8(0),
            "z.bias": u8(0),
            **named("ok", gguf(8, 1, 32)),
        }
        output = made(self.place(Folder.of(tensors))).outputs[0]
        self.assertEqual(
            {d.module: d.stored for d in output.layer_details}, {"ok": "q8_0", "x": "unknown", "y": "unknown"}
        )

    def test_names_of_the_caller_stand_in_the_report(self) -> None:
        report = made(str(FILES / "afq3"), base_model="base", repo_id="repo")
        self.assertEqual(
            (report.base_model, report.repo_id, report.generated_by),
            ("base", "repo", {"tool": "mistralrs uqff report"}),
        )


class Summary(FolderTest):
    def test_lines(self) -> None:
        report = made(str(FILES / "topo1-q4_0"), base_model="Base/Model", repo_id="some/repo")
        lines = summary(report)
        self.assertIn("Base/Model", lines[0])
        for word in ("1.2.0", "some/repo", "mistralrs uqff report"):
            self.assertTrue(any(word in line for line in lines[1:4]), word)
        self.assertEqual(
            lines[-1], "q4_0: 16 layers, 1 shard(s), 1 afq4, 7 q4_0, 6 q5_0, 1 q5_1, 1 q8_0, 0 fallback(s)"
        )

    def test_fallbacks_are_listed_verbosely(self) -> None:
        report = parse(real_files("odd100-afq4")[REPORT])
        self.assertEqual(len(summary(report)) + 8, len(summary(report, verbose=True)))
        self.assertIn("lm_head: afq6 -> unquant [33, 100]: last dim is not divisible by group size 64", [
            line.strip() for line in summary(report, verbose=True)])  # fmt: skip


class Command(FolderTest):
    """vqfref uqff report."""

    def run_it(self, *args: str) -> str:
        out = io.StringIO()
        with redirect_stdout(out):
            self.assertEqual(main(["uqff", "report", *args]), 0)
        return out.getvalue()

    def test_text_json_and_verbose(self) -> None:
        path = str(FILES / "odd100-afq4")
        self.assertIn("afq4: 9 layers, 5 shard(s), 1 afq4, 8 unquant, 8 fallback(s)", self.run_it(path))
        self.assertNotIn("->", self.run_it(path))
        self.assertEqual(self.run_it(path, "-v").count("->"), 8)
        result = json.loads(self.run_it(path, "--json", "--base-model", "B", "--repo-id", "R"))
        self.assertEqual((result["report"]["base_model"], result["report"]["repo_id"]), ("B", "R"))
        self.assertEqual(result["report"]["outputs"][0]["fallback_count"], 8)
        self.assertEqual(
            list(result["report"]), ["schema", "generated_by", "base_model", "repo_id", "uqff_version", "outputs"]
        )

    def test_write_puts_it_into_the_folder_and_nothing_else(self) -> None:
        path = self.edited("odd100-afq4", lambda f: None)
        before = set(os.listdir(path))
        self.run_it(path)
        self.assertEqual(set(os.listdir(path)), before)
        self.run_it(path, "--write", "--base-model", "B")
        self.assertEqual(set(os.listdir(path)), before | {REPORT})
        with open(os.path.join(path, REPORT), "rb") as file:
            data = file.read()
        self.assertEqual(dump(parse(data)), data)
        self.assertEqual(parse(data).base_model, "B")
        with redirect_stdout(io.StringIO()):
            self.assertEqual(main(["uqff", "verify", path]), 0)

    def test_write_replaces_a_report_that_says_something_wrong(self) -> None:
        def lie(r: dict[str, Any]) -> None:
            r["outputs"][0].update(layers=3)

        edit: Callable[[Folder], Any] = lambda f: f.report(lie)  # noqa: E731
        path = self.edited("afq3", edit, report=True)
        with redirect_stdout(io.StringIO()):
            self.assertEqual(main(["uqff", "verify", path]), 1)
            self.run_it(path, "--write")
            self.assertEqual(main(["uqff", "verify", path]), 0)

    def test_quant_selects_a_group(self) -> None:
        def edit(folder: Folder) -> None:
            folder.shards["q8_0-0.uqff"] = (None, {**version(), **named("a.b", gguf(8, 1, 32))})

        path = self.edited("afq3", edit)
        self.assertEqual(
            [o["quant"] for o in json.loads(self.run_it(path, "--json"))["report"]["outputs"]], ["afq3", "q8_0"]
        )
        self.assertEqual(
            [o["quant"] for o in json.loads(self.run_it(path, "--json", "--quant", "8"))["report"]["outputs"]], ["q8_0"]
        )


if __name__ == "__main__":
    unittest.main()

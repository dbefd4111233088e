"""The engine's `uqff verify`, check by check (section 15.3), the comparison with the report, and what it does not look at.

A row of the tables is one fault in a real folder, and the only line that verify then says.
"""

from __future__ import annotations

import io
import json
import os
import struct
import unittest
from collections import namedtuple
from contextlib import redirect_stderr, redirect_stdout

from tests.uqff_samples import (
    FILES,
    MAJOR,
    MINOR,
    PATCH,
    REAL,
    REPORT,
    VERSION_NAMES,
    Folder,
    FolderTest,
    Tensor,
    build,
    compose,
    f32,
    gguf,
    hqq,
    named,
    raised,
    smooth,
    u8,
    u32,
    u32s,
    unquant,
    version,
    zeros,
)
from vqfref.cli import main
from vqfref.errors import UsageError
from vqfref.uqff import naming
from vqfref.uqff.inspect import size_text
from vqfref.uqff.report import load
from vqfref.uqff.scan import verify
from vqfref.uqff.shards import listing

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

Q = "model.layers.0.self_attn.q_proj"
DOWN = "model.layers.0.mlp.down_proj"
W = Q + ".weight"
FIRST, SECOND = "afq3-0.uqff", "afq3-1.uqff"


def run(path: str, quant: str | None = None, **how: Any) -> Any:
    """verify over a folder, selected as the command line selects."""
    available = listing(path)
    report = load(path, available)
    groups = naming.select(quant, naming.groups(available, report), available)
    return verify(path, groups, report, all_selected=quant in (None, "all"), **how)


def cli(*args: str) -> tuple[int, str]:
    """(exit code, standard output) of `vqfref uqff verify …`."""
    out = io.StringIO()
    with redirect_stdout(out), redirect_stderr(io.StringIO()):
        code = main(["uqff", "verify", *args])
    return code, out.getvalue()


def nothing(folder: Folder) -> None:
    """No edit."""


def drop(*names: str) -> Callable[[Folder], Any]:
    def edit(folder: Folder) -> None:
        for name in names:
            del folder[name]

    return edit


def put(name: str, tensor: Any) -> Callable[[Folder], Any]:
    def edit(folder: Folder) -> None:
        folder[name] = tensor(folder[name]) if callable(tensor) else tensor

    return edit


def all_of(*edits: Callable[[Folder], Any]) -> Callable[[Folder], Any]:
    def edit(folder: Folder) -> None:
        for e in edits:
            e(folder)

    return edit


def shard(index: int, **tensors: Any) -> Callable[[Folder], Any]:
    """One more shard, of version entries: shard(1, major=…)."""

    def edit(folder: Folder) -> None:
        named_so = {"uqff.version." + name: t for name, t in tensors.items()}
        folder.shards["afq3-%d.uqff" % index] = ({"uqff.producer": "mistral.rs"}, named_so)

    return edit


def metadata(value: Any) -> Callable[[Folder], Any]:
    """The first shard's metadata."""

    def edit(folder: Folder) -> None:
        folder.shards[folder.first] = (value, folder.shards[folder.first][1])

    return edit


def copied(name: str) -> Callable[[Folder], Any]:
    """A tensor in a second shard, too."""

    def edit(folder: Folder) -> None:
        folder.shards[SECOND] = (None, {name: folder[name]})

    return edit


Row = namedtuple("Row", "name edit says")
ROWS = [
    Row("1: a name in two shards", copied(W), [("afq3", W)]),
    Row("1: two names in two shards", all_of(copied(W), put(W + ".bits", lambda t: t), lambda f: f.shards[SECOND][1].update(
        {W + ".bits": f[W + ".bits"]})), [("afq3", W), ("afq3", W + ".bits")]),
    *[Row("2: %s is missing" % name, drop(name), [("afq3", name, "missing")]) for name in VERSION_NAMES],
    Row("2: all version entries are missing", drop(*VERSION_NAMES), [("afq3", n, "missing") for n in VERSION_NAMES]),
    Row("3, 4: a version entry of I32", put(MINOR, Tensor("I32", (), b"\2\0\0\0")), [
        ("afq3", MINOR, "invalid header"), ("afq3", MINOR, FIRST)]),
    Row("3, 4: a version entry of rank 1", put(PATCH, u32s(0)), [("afq3", PATCH, "invalid header"), ("afq3", PATCH, FIRST)]),
    Row("4: the first copy of two is no U32 scalar", all_of(put(MAJOR, u8(1)), shard(1, major=u32(1))), [
        ("afq3", MAJOR, FIRST)]),
    Row("3, 4: the last copy of two is no U32 scalar", shard(1, major=u8(1)), [
        ("afq3", MAJOR, "invalid header"), ("afq3", MAJOR, SECOND)]),
    Row("5: two copies differ", shard(1, patch=u32(7)), [("afq3", PATCH, "7", SECOND, "0")]),
    Row("5: two of three copies differ from the first", all_of(shard(1, patch=u32(7)), shard(2, patch=u32(8))), [
        ("afq3", PATCH, "7", SECOND, "0"), ("afq3", PATCH, "8", "afq3-2.uqff", "0")]),
    *[Row("6: the text %r in place of a missing entry" % text, all_of(drop(MINOR), metadata(
        {"uqff.version": text, "uqff.producer": "x"})), [("afq3", MINOR, "missing"), ("afq3", text)])
      for text in ("1.2", "1.2.0.0", "one.two.three", "1.2.x", "1..0", "-1.2.0", "1.2.0 ", "1_0.2.0", "v1.2.0")],
    Row("6: neither entry nor text", all_of(drop(MINOR), metadata({"uqff.producer": "x"})), [
        ("afq3", MINOR, "missing"), ("afq3", "missing")]),
    Row("7: major 2", put(MAJOR, u32(2)), [("afq3", "2", "1", "major")]),
    Row("7: major 0 hides a newer minor", all_of(put(MAJOR, u32(0)), put(MINOR, u32(9))), [("afq3", "0", "1", "major")]),
    Row("7: the text's major in place of a missing entry", all_of(drop(PATCH), metadata(
        {"uqff.version": "2.2.0", "uqff.producer": "x"})), [("afq3", PATCH, "missing"), ("afq3", "2", "1", "major")]),
    Row("8: minor 3", put(MINOR, u32(3)), [("afq3", "3", "2", "minor")]),
    Row("10: index 0 is missing", lambda f: f.shards.update({"afq3-1.uqff": f.shards.pop(FIRST)}), [("afq3", "0", "1")]),
    Row("10: the first gap alone", all_of(shard(2), shard(4)), [("afq3", "1", "2")]),
    Row("10: one index twice", lambda f: f.shards.update({"afq3-00.uqff": (None, {})}), [("afq3", "0", "1")]),
    Row("11: an undotted name", put("plain", u8(0)), [("afq3", FIRST, "1", "plain", "old format", "namespace")]),
    Row("12 … 14: a tag of U32", put(W + ".format", u32(4)), [
        (Q, "invalid format header"), (Q, "invalid discriminator"), (Q, "structure")]),
    Row("13: tag 7", put(W + ".format", u8(7)), [(Q, "invalid discriminator", "7")]),
    Row("12 … 14: no tag", drop(W + ".format"), [
        (Q, "invalid format header"), (Q, "invalid discriminator"), (Q, "structure")]),
    Row("14: an entry less", drop(W + ".biases"), [(Q, "structure")]),
    Row("14: an entry more", put(W + ".more", u8(0)), [(Q, "structure")]),
    Row("14: no weight", drop(W), [(Q, "structure")]),
    Row("14: a group size of U32", put(W + ".group_size", u32(64)), [(Q, "structure")]),
    Row("14: a width of rank 1", put(W + ".bits", Tensor("U8", (1,), b"\3")), [(Q, "structure")]),
    Row("12 … 14: a suffix of no layer", put("x.weight.scales", u8(0)), [
        ("x", "invalid format header"), ("x", "invalid discriminator"), ("x", "structure")]),
    *[Row("15: tag %d on a layer of AFQ" % tag, put(W + ".format", u8(tag)), [(Q, name, "afq")])
      for tag, name in enumerate(("gguf", "unquant", "hqq", "fp8", "", "f8q8", "mxfp4")) if name],
]  # fmt: skip


class Checks(FolderTest):
    """One group, no report."""

    def said(self, lines: list[str], rows: Any) -> None:
        self.assertEqual(len(lines), len(rows), lines)
        for words in rows:
            self.assertTrue(any(all(w in line for w in words) for line in lines), (words, lines))

    def test_sound_folders_pass_without_a_word(self) -> None:
        for name in REAL:
            for report in (False, True):
                verdict = run(self.edited(name, nothing, report))
                self.assertEqual((verdict.ok, verdict.errors, verdict.warnings), (True, [], []), name)

    def test_a_fault_is_one_error_and_says_what_it_must(self) -> None:
        for row in ROWS:
            with self.subTest(row.name):
                path = self.edited("afq3", row.edit)
                verdict = run(path)
                self.assertFalse(verdict.ok)
                self.assertEqual(verdict.warnings, [])
                self.said(verdict.errors, row.says)
                for line in verdict.errors:
                    self.assertIn("afq3", line)  # the group
                code, out = cli(path)
                self.assertEqual(code, 1)
                self.assertIn("FAIL", out.splitlines()[0])
                self.assertEqual(out.count("error: "), len(verdict.errors))

    def test_the_text_serves_where_an_entry_is_missing(self) -> None:
        edit = all_of(drop(PATCH), metadata({"uqff.version": "1.2.0", "uqff.producer": "x"}))
        self.said(run(self.edited("afq3", edit)).errors, [("afq3", PATCH, "missing")])

    def test_the_text_does_not_count_beside_all_three_entries(self) -> None:
        for text in ("9.9.9", "nonsense"):
            edit = metadata({"uqff.version": text, "uqff.producer": "x"})
            self.assertTrue(run(self.edited("afq3", edit)).ok)

    def test_a_newer_minor_may_be_allowed_but_not_a_major(self) -> None:
        path = self.edited("afq3", put(MINOR, u32(3)))
        self.assertTrue(run(path, allow_newer_minor=True).ok)
        self.assertEqual(cli(path, "--allow-newer-minor")[0], 0)
        path = self.edited("afq3", put(MAJOR, u32(2)))
        self.assertFalse(run(path, allow_newer_minor=True).ok)

    def test_lower_minors_and_any_patch_pass(self) -> None:
        for name, value in ((MINOR, 0), (MINOR, 1), (PATCH, 9)):
            self.assertTrue(run(self.edited("afq3", put(name, u32(value)))).ok)

    def test_9_a_missing_producer_is_a_warning_and_strictly_an_error(self) -> None:
        for value in (None, {}, {"uqff.version": "1.2.0"}, {"uqff.producer.mistralrs.version": "0.9.5"}):
            path = self.edited("afq3", metadata(value), report=True)
            verdict = run(path)
            self.assertEqual((verdict.ok, verdict.errors), (True, []))
            self.said(verdict.warnings, [("afq3", "producer")])
            code, out = cli(path)
            self.assertEqual(code, 0)
            self.assertIn("\nwarning: ", out)
            verdict = run(path, strict=True)
            self.assertEqual((verdict.ok, verdict.warnings), (False, []))
            self.said(verdict.errors, [("afq3", "producer")])

    def test_9_one_shard_with_a_producer_is_enough(self) -> None:
        path = self.edited("afq3", all_of(metadata(None), shard(1)))
        self.assertEqual(run(path).warnings, [])

    def test_10_is_skipped_for_an_output_of_the_report(self) -> None:
        def edit(folder: Folder) -> None:
            folder.shards["afq3-5.uqff"] = folder.shards.pop(FIRST)
            folder.report(lambda r: r["outputs"][0].update(shards=["afq3-5.uqff"]))

        self.assertTrue(run(self.edited("afq3", edit, report=True)).ok)

    def test_10_is_skipped_where_a_name_has_no_index(self) -> None:
        self.assertTrue(run(self.edited("afq3", lambda f: f.shards.update({"model.uqff": f.shards.pop(FIRST)}))).ok)
        for name in ("afq3-.uqff", "afq3-%d.uqff" % (1 << 64)):
            path = self.edited("afq3", lambda f, n=name: f.shards.update({n: (None, {}), "afq3-7.uqff": (None, {})}))
            self.assertNotIn("index", " ".join(run(path).errors))

    def test_11_says_it_once_a_shard_with_three_examples_in_order_of_number(self) -> None:
        def edit(folder: Folder) -> None:
            for name in ("10", "9", "007", "b", "a"):
                folder[name] = u8(0)
            folder.shards[SECOND] = (None, {"zz": u8(1)})

        errors = run(self.edited("afq3", edit)).errors
        self.said(errors, [(FIRST, "5"), (SECOND, "1", "zz")])
        line = next(e for e in errors if FIRST in e)
        self.assertRegex(line, r"\b007\W+9\W+10\b")
        self.assertNotIn("zz", line)

    def test_11_numbers_of_any_length_are_sorted(self) -> None:
        def edit(folder: Folder) -> None:
            for name in ("0" * 5000 + "2", "1" * 5000, "3"):
                folder[name] = u8(0)

        self.assertEqual(len(run(self.edited("afq3", edit)).errors), 1)

    def test_17_shapes_must_be_vectors_of_positive_u32(self) -> None:
        for name, tensor in (("no values", u32s()), ("a zero", u32s(0, 64)), ("only zeros", u32s(0))):
            with self.subTest(name):
                self.said(run(self.edited("bias-q8_0", put(W + ".shape", tensor))).errors, [("q8_0", Q, "shape")])
        for name, tensor in (
            ("a scalar", u32(64)), ("rank 2", Tensor("U32", (1, 2), bytes(8))), ("I32", Tensor("I32", (2,), bytes(8))),
        ):  # fmt: skip
            with self.subTest(name):  # check 14 sees these too
                self.said(run(self.edited("bias-q8_0", put(W + ".shape", tensor))).errors, [
                    ("q8_0", Q, "structure"), ("q8_0", Q, "shape")])  # fmt: skip

    def test_17_holds_for_a_shape_of_any_layer(self) -> None:
        self.said(run(self.edited("afq3", put(W + ".shape", u32s(0)))).errors, [(Q, "structure"), (Q, "shape payload")])

    def test_18_counts_fallbacks_only_strictly(self) -> None:
        path = self.edited("odd100-afq4", nothing, report=True)
        self.assertTrue(run(path).ok)
        verdict = run(path, strict=True)
        self.said(verdict.errors, [("afq4", "8", "fallback")])
        self.assertEqual(verdict.warnings, [])

    def test_18_dense_labels_are_fallbacks_unless_the_group_is_called_so(self) -> None:
        for label, layer in (
            ("f32", gguf(0, 2, 4)),
            ("f16", gguf(1, 2, 4)),
            ("bf16", gguf(30, 2, 4)),
            ("unquant", unquant("F32", 2, 4)),
        ):
            for stem, count in ((label, 0), ("q4k", 1)):
                path = self.place(Folder.of(named("a.b", layer), stem))
                errors = [e for e in run(path, strict=True).errors if "fallback" in e]
                self.assertEqual(len(errors), count, (label, stem))

    def test_18_leaves_out_what_the_report_means_to_be_native(self) -> None:
        def native(r: dict[str, Any]) -> None:
            for d in r["outputs"][0]["layer_details"]:
                if d["stored"] == "unquant":
                    del d["default_target"], d["resolved_target"]

        self.assertTrue(run(self.edited("odd100-afq4", lambda f: f.report(native), report=True), strict=True).ok)
        for spoil in (
            {"stored": "f32"}, {"shape": [1, 1]}, {"default_target": "afq4"}, {"resolved_target": "afq4"},
            {"module": "else.where"},
        ):  # fmt: skip

            def edit(r: dict[str, Any], spoil: dict[str, Any] = spoil) -> None:
                native(r)
                next(d for d in r["outputs"][0]["layer_details"] if d["stored"] == "unquant").update(spoil)

            path = self.edited("odd100-afq4", lambda f, edit=edit: f.report(edit), report=True)
            self.said(run(path, strict=True).errors, [("afq4", "1", "fallback")])

    def test_what_verify_does_not_look_at(self) -> None:
        # sizes against shapes, dtypes of payloads and scales, values of bits and groups, biases, rank 3: all pass
        rows: list[tuple[str, Callable[[Folder], Any]]] = [
            ("afq3", put(W, lambda t: t._replace(dtype="I32"))), ("afq3", put(W + ".scales", zeros("I64", 1))),
            ("afq3", put(W + ".bits", u8(5))), ("afq3", put(W + ".group_size", u8(1))), ("afq3", put(W + ".scales", f32(1))),
            ("bias-q8_0", put(W, lambda t: t._replace(data=t.data[:-34], shape=(len(t.data) - 34,)))),
            ("bias-q8_0", put(W + ".dtype", u32(99))), ("bias-q8_0", put(Q + ".bias", zeros("U8", 3))),
            ("bias-q8_0", put(W + ".shape", u32s(1, 1, 1, 1, 7))), ("afq3", put("lonely.bias", f32(1))),
            ("hqq4", put(W + ".axis", u8(9))), ("hqq4", put(W + ".shape", u32s(1, 64, 64))),
            ("f8q8", put(W + ".num_blocks", u32(1))),
            ("fp8", put(W + ".dequant_w_scale", zeros("F64", 3))), ("mxfp4", put(W + ".scales", zeros("U8", 1))),
            ("afq3", put("some.thing", u8(0))),
        ]  # fmt: skip
        for i, (name, edit) in enumerate(rows):
            verdict = run(self.edited(name, edit))
            self.assertEqual((verdict.ok, verdict.errors, verdict.warnings), (True, [], []), (i, name))

    def test_what_the_engine_overlooks_fails_here_and_says_so(self) -> None:
        path = self.edited("afq3", put(W + ".bits", u8(5)))
        code, out = cli(path)
        self.assertEqual(code, 1)
        self.assertIn("FAIL", out.splitlines()[0])
        self.assertIn("error[uqff.a1.range]", out)
        code, out = cli(path, "--json")
        result = json.loads(out)
        self.assertEqual((result["ok"], result["errors"], result["warnings"]), (False, [], []))
        self.assertEqual([(f["code"], f["engine"]) for f in result["findings"]], [("uqff.a1.range", "refuses")])

    def test_names_that_the_engines_verify_lets_pass_fail_not(self) -> None:
        # E1 is an error of verify where its checks 11 and 14 see it: not for a lone bias, not for a name with a dot
        for name in ("lonely.bias", "some.thing"):
            code, out = cli(self.edited("afq3", put(name, u8(0))))
            self.assertEqual((code, "warning[uqff.e1.name]" in out), (0, True), name)
        for name in ("plain", W + ".more", "x.weight.scales"):
            self.assertEqual(cli(self.edited("afq3", put(name, u8(0))))[0], 1, name)


class Containers(FolderTest):
    def test_a_file_that_can_not_be_scanned_skips_its_group(self) -> None:
        for edit in (lambda d: b"", lambda d: d[:100], lambda d: d + b"x", lambda d: compose(b"{", b"")):

            def spoil(folder: Folder, edit: Any = edit) -> None:
                folder["plain"] = u8(0)
                folder.spoil(edit)

            errors = run(self.edited("afq3", spoil)).errors
            self.assertIn("afq3: ", errors[0])
            self.assertIn(FIRST, errors[0])
            self.assertFalse([e for e in errors if "plain" in e])

    def test_a_fault_that_only_the_loader_sees_is_marked(self) -> None:
        # 15.1: the engine's scan looks neither at the tiling nor for bytes behind the last tensor
        errors = run(self.edited("afq3", lambda f: f.spoil(lambda d: d + b"x"))).errors
        self.assertIn("accepts", errors[0])
        self.assertIn("refuses", errors[0])

    def test_other_groups_are_checked_all_the_same(self) -> None:
        def edit(folder: Folder) -> None:
            folder.spoil(lambda d: d[:7])
            folder.shards["b-0.uqff"] = (None, {**version(), "plain": u8(0), **named("a.b", gguf(8, 1, 32))})

        errors = run(self.edited("afq3", edit)).errors
        self.assertTrue(any("plain" in e for e in errors))

    def test_no_output_at_all_is_an_error(self) -> None:
        errors = run(self.edited("afq3", lambda f: f.spoil(lambda d: d[:7]))).errors
        self.assertTrue(any("artifacts" in e and "no outputs" in e for e in errors), errors)

    def test_a_group_without_layers_is_an_error(self) -> None:
        path = self.place(Folder.of({"a.b": u8(0)}))
        errors = run(path).errors
        self.assertEqual(len(errors), 1)
        self.assertIn("artifacts", errors[0])
        self.assertIn("no layers", errors[0])


class Reports(FolderTest):
    """The report against the scan."""

    def errors(self, edit: Callable[[dict[str, Any]], Any], base: str = "topo1-q4_0") -> list[str]:
        verdict = run(self.edited(base, lambda f: f.report(edit), report=True))
        self.assertEqual(verdict.ok, not verdict.errors)
        return list(verdict.errors)

    def test_counts_and_shards_must_be_the_same(self) -> None:
        def output(**fields: Any) -> Callable[[dict[str, Any]], Any]:
            return lambda r: r["outputs"][0].update(fields)

        for edit, words in (
            (output(layers=15), ("q4_0", "15", "16")),
            (output(actual_counts={"q4_0": 16}), ("q4_0", "actual_counts")),
            (output(actual_counts={}), ("q4_0", "actual_counts")),
        ):
            errors = self.errors(edit)
            self.assertEqual(len(errors), 1, errors)
            for word in (*words, REPORT):
                self.assertIn(word, errors[0])

    def test_zero_layers_are_an_error_of_their_own(self) -> None:
        errors = self.errors(lambda r: r["outputs"][0].update(layers=0))
        self.assertEqual(len(errors), 2)
        self.assertTrue(any("no layers" in e and REPORT in e for e in errors))

    def test_what_verify_does_not_compare(self) -> None:
        for edit in (
            lambda r: r.update(schema=7), lambda r: r.update(uqff_version="0.0.0"),
            lambda r: r["outputs"][0].update(fallback_count=9, fallbacks=[]), lambda r: r["outputs"][0].pop("layer_details"),
            lambda r: r["outputs"][0]["layer_details"][0].update(stored="q2k", shape=[1]), lambda r: r.update(extra=1),
        ):  # fmt: skip
            self.assertEqual(self.errors(edit), [])

    def test_r8_is_an_error_of_the_command_only_strictly(self) -> None:
        path = self.edited("topo1-q4_0", lambda f: f.report(lambda r: r.update(schema=7)), report=True)
        code, out = cli(path)
        self.assertEqual((code, "warning[uqff.r8.json]" in out), (0, True))
        code, out = cli(path, "--strict")
        self.assertEqual((code, "error[uqff.r8.json]" in out), (1, True))

    def test_a_missing_report_is_an_error_only_strictly(self) -> None:
        path = self.edited("afq3", nothing)
        self.assertTrue(run(path).ok)
        errors = run(path, strict=True).errors
        self.assertEqual(len(errors), 1)
        self.assertIn(REPORT, errors[0])
        self.assertEqual((cli(path)[0], cli(path, "--strict")[0]), (0, 1))

    def test_a_group_that_no_output_claims_is_one_error_by_its_files(self) -> None:
        def edit(folder: Folder) -> None:
            for i in (1, 2):
                tensors = named("a.b%d" % i, gguf(8, 1, 32))
                folder.shards["q4_0-%d.uqff" % i] = (dict(folder.shards["q4_0-0.uqff"][0]), {**version(), **tensors})

        verdict = run(self.edited("topo1-q4_0", edit, report=True))
        missing = [e for e in verdict.errors if "q4_0-1.uqff" in e and "q4_0-2.uqff" in e and REPORT in e]
        self.assertEqual(len(missing), 1, verdict.errors)
        self.assertFalse([e for e in verdict.errors if "actual_counts" in e or "layers" in e.partition("q4_0-1")[0]])

    def test_report_identity_is_judged_before_anything_else(self) -> None:
        for edit in (
            lambda r: r.update(outputs=[]), lambda r: r["outputs"][0].update(quant=" "), lambda r: r.pop("schema"),
            lambda r: r["outputs"][0].update(shards=[]), lambda r: r["outputs"][0]["shards"].append("x.uqff"),
        ):  # fmt: skip
            path = self.edited("afq3", lambda f, edit=edit: f.report(edit), report=True)
            for action in ("verify", "report", "inspect"):
                with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()) as err:
                    self.assertEqual(main(["uqff", action, path]), 1)
                self.assertRegex(err.getvalue(), r"uqff\.r[12457]\.")

    def test_json_has_the_engines_four_keys(self) -> None:
        for name, report in (("afq3", True), ("afq3", False)):
            path = self.edited(name, nothing, report)
            code, out = cli(path, "--json")
            result = json.loads(out)
            self.assertEqual((code, result["ok"], result["warnings"], result["errors"]), (0, True, [], []))
            tool = "mistralrs quantize" if report else "mistralrs uqff verify"
            self.assertEqual(result["report"]["generated_by"]["tool"], tool)
            self.assertEqual("mistralrs_version" in result["report"]["generated_by"], report)
            if report:
                with open(os.path.join(path, REPORT), "rb") as file:
                    self.assertEqual(result["report"], json.load(file))

    def test_text_is_a_verdict_the_summary_and_a_line_each(self) -> None:
        code, out = cli(self.edited("odd100-afq4", nothing, report=True))
        lines = out.splitlines()
        self.assertEqual(code, 0)
        self.assertTrue(lines[0].startswith("OK"))
        self.assertIn("afq4: 9 layers, 5 shard(s), 1 afq4, 8 unquant, 8 fallback(s)", lines)
        self.assertNotIn("->", out)  # not verbose


class Selection(FolderTest):
    """--quant."""

    def folder(self, report: bool = True) -> str:
        def edit(folder: Folder) -> None:
            tensors = {**version(), **named("a.b", gguf(8, 1, 32))}
            folder.shards["q8_0-0.uqff"] = ({"uqff.producer": "x"}, tensors)
            broken = {**version(2), **named("a.b", gguf(8, 1, 32))}
            folder.shards["other-0.uqff"] = ({"uqff.producer": "x"}, broken)

        return self.edited("afq3", edit, report)

    def test_only_the_selected_groups_are_checked(self) -> None:
        path = self.folder(report=False)
        self.assertFalse(run(path).ok)
        for quant in ("afq3", "AFQ3", "3", "q8_0", "8", "q8_0-0.uqff"):
            verdict = run(path, quant)
            self.assertEqual((verdict.ok, verdict.errors), (True, []), quant)
            self.assertEqual(len(verdict.report.outputs), 1)
            self.assertEqual(cli(path, "--quant", quant)[0], 0, quant)
        verdict = run(path, "other")
        self.assertEqual(len(verdict.errors), 1)
        self.assertIn("other", verdict.errors[0])
        self.assertEqual(cli(path, "--quant", "other")[0], 1)

    def test_all_is_every_group(self) -> None:
        path = self.folder(report=False)
        self.assertEqual(run(path, "all").errors, run(path).errors)

    def test_the_reports_other_outputs_are_not_compared(self) -> None:
        def two(folder: Folder) -> None:
            tensors = {**version(), **named("a.b", gguf(8, 1, 32))}
            folder.shards["q8_0-0.uqff"] = ({"uqff.producer": "x"}, tensors)
            output = {"quant": "q8_0", "shards": ["q8_0-0.uqff"], "layers": 7, "actual_counts": {}, "fallback_count": 0}
            folder.report(lambda r: r["outputs"].append(output))

        path = self.edited("afq3", two, report=True)
        self.assertEqual(run(path, "afq3").errors, [])
        self.assertEqual(len(run(path, "q8_0").errors), 2)  # layers, actual_counts
        self.assertEqual(len(run(path).errors), 2)

    def test_the_report_is_dropped_where_it_knows_none_of_the_selected(self) -> None:
        path = self.folder()
        verdict = run(path, "q8_0")
        self.assertEqual((verdict.ok, verdict.errors), (True, []))
        self.assertEqual(verdict.report.outputs[0].quant, "q8_0")
        self.assertFalse(run(path, "q8_0", strict=True).ok)  # as if there were none

    def test_nothing_to_select_is_a_usage_error_that_lists_the_files(self) -> None:
        path = self.folder()
        error = raised(run, path, "q2k")
        self.assertIsInstance(error, UsageError)
        self.assertIn("afq3-0.uqff", str(error))
        self.assertEqual(cli(path, "--quant", "q2k")[0], 2)

    def test_folders_without_shards_and_files_are_refused(self) -> None:
        empty = self.new()
        os.mkdir(empty)
        self.assertEqual(cli(empty)[0], 1)
        self.assertEqual(cli(str(FILES / "afq3" / "afq3-0.uqff"))[0], 2)
        self.assertEqual(cli(os.path.join(self.base, "nothing"))[0], 3)


class Inspect(FolderTest):
    """15.4: a dump of the tree."""

    def lines(self, path: str, *args: str) -> list[str]:
        out = io.StringIO()
        with redirect_stdout(out):
            self.assertEqual(main(["uqff", "inspect", path, *args]), 0)
        return out.getvalue().splitlines()

    def test_every_tensor_has_a_line_with_dtype_shape_and_size(self) -> None:
        for name in REAL:
            lines = self.lines(str(FILES / name))
            tensors = [t for file in os.listdir(str(FILES / name)) if file.endswith(".uqff")
                       for t in Folder.real(name).shards[file][1].items()]  # fmt: skip
            text = "\n".join(lines)
            leaves = [line for line in lines if not line.strip().startswith("-") and "[" in line]
            self.assertEqual(len(leaves), len(tensors), name)
            for full, t in tensors:
                last = full.rpartition(".")[2]
                last = "data" if full.endswith(".weight") else last
                self.assertIn("%s  %s %s %s" % (last, t.dtype, list(t.shape), size_text(len(t.data))), text)

    def test_title_metadata_and_summary(self) -> None:
        lines = self.lines(str(FILES / "odd100-afq4"))
        self.assertEqual(lines[0], "UQFF artifact")
        self.assertIn("afq4:9 layers/8 fallback(s)", lines)
        self.assertIn("afq4-0.uqff.uqff.producer = mistral.rs", [x.strip() for x in lines])
        path = self.edited("afq3", lambda f: f.report(lambda r: r.update(base_model="Qwen/Qwen3")), report=True)
        self.assertEqual(self.lines(path)[0], "Qwen/Qwen3")

    def test_weights_carry_their_own_label_and_fallbacks_say_so(self) -> None:
        lines = [x.strip() for x in self.lines(str(FILES / "topo1-q4_0")) if " weight " in x]
        for label, count in (("q4_0", 7), ("q5_0", 6), ("q5_1", 1), ("q8_0", 1), ("afq4", 1)):
            self.assertEqual(sum("[%s]" % label in x for x in lines), count, label)
        for name, count in (("odd100-afq4", 8), ("topo1-q4_0", 0), ("afq3", 0)):
            lines = [x for x in self.lines(str(FILES / name)) if "[fallback]" in x]
            self.assertEqual(len(lines), count, name)

    def test_undotted_names_are_invalid_and_old(self) -> None:
        lines = self.lines(self.edited("afq3", put("plain", u8(0))))
        (line,) = [x for x in lines if "plain" in x]
        self.assertIn("[invalid]", line)
        self.assertIn("[old-format]", line)

    def test_numbers_sort_naturally(self) -> None:
        tensors = {}
        for i in (10, 9, 1, 100):
            tensors.update(named("model.layers.%d.q" % i, gguf(8, 1, 32)))
        lines = self.lines(self.place(Folder.of(tensors)))
        self.assertEqual([x.split()[1] for x in lines if x.startswith("      - ")], ["1", "9", "10", "100"])

    def test_names_of_many_digits_are_shown(self) -> None:
        for digits in ("9" * 5000, "0" * 5000 + "7"):
            tensors = named("model.%s.q" % digits, gguf(8, 1, 32))
            self.assertTrue(any(digits in x for x in self.lines(self.place(Folder.of(tensors)))))

    def test_a_tensor_that_is_a_branch_too_is_shown(self) -> None:
        lines = self.lines(self.place(Folder.of({"a": u32(1), "a.b": u8(2), **named("c", gguf(8, 1, 32))})))
        self.assertTrue(any(x.strip().startswith("a  U32 []") for x in lines), lines)
        self.assertTrue(any(x.strip().startswith("b  U8 []") for x in lines))

    def test_a_name_of_many_dots_makes_no_deep_tree(self) -> None:
        lines = self.lines(self.place(Folder.of({"." * 5000: u8(2), **named("c", gguf(8, 1, 32))})))
        self.assertLess(sum(map(len, lines)), 50_000)

    def test_sizes_count_in_steps_of_1024(self) -> None:
        for n, text in ((0, "0 B"), (1023, "1023 B"), (1024, "1.0 KB"), (1536, "1.5 KB"), (1 << 20, "1.0 MB"),
                        (3 << 29, "1.5 GB"), (1 << 40, "1024.0 GB")):  # fmt: skip
            self.assertEqual(size_text(n), text)

    def test_a_selection_shows_that_group_alone(self) -> None:
        def edit(folder: Folder) -> None:
            folder.shards["q8_0-0.uqff"] = (None, {**version(), **named("a.b", gguf(8, 1, 32))})

        path = self.edited("afq3", edit)
        lines = self.lines(path, "--quant", "8")
        self.assertFalse([x for x in lines if "q_proj" in x])
        self.assertTrue([x for x in lines if x.startswith("- q8_0")])
        self.assertEqual(len([x for x in self.lines(path) if x.startswith("- ")]), 3)  # metadata and two groups

    def test_control_characters_are_escaped(self) -> None:
        path = self.place(Folder.of(named("a\x1b[2Jb.c", gguf(8, 1, 32))))
        self.assertNotIn("\x1b", "\n".join(self.lines(path)))


class ScanShapes(FolderTest):
    def test_labels_need_structure_and_tag_alike(self) -> None:
        rows: tuple[tuple[Callable[[Folder], Any], dict[str, int]], ...] = (
            (nothing, {"afq3": 7, "afq6": 2}),
            (put(W + ".bits", u8(5)), {"afq": 1, "afq3": 6, "afq6": 2}),
            (put(W + ".format", u8(0)), {"afq3": 6, "afq6": 2, "unknown": 1}),
            (drop(W + ".biases"), {"afq3": 6, "afq6": 2, "unknown": 1}),
            (put(W + ".more", u8(0)), {"afq3": 6, "afq6": 2, "unknown": 1}),
            (put("x.weight", u8(0)), {"afq3": 7, "afq6": 2, "unknown": 1}),
        )
        for edit, counts in rows:
            verdict = run(self.edited("afq3", edit))
            self.assertEqual(verdict.report.outputs[0].actual_counts, counts)
            self.assertEqual(verdict.report.outputs[0].layers, sum(counts.values()))

    def test_an_unknown_ggml_code_is_unknown(self) -> None:
        path = self.place(Folder.of(named("a", {**gguf(8, 1, 32), ".dtype": u32(4)})))
        self.assertEqual(run(path).report.outputs[0].actual_counts, {"unknown": 1})

    def test_hqq_labels_have_any_number_of_bits(self) -> None:
        # 15.1 limits the widths of AFQ alone
        for bits in (1, 2, 3, 4, 5, 8):
            path = self.place(Folder.of(named("a", {**hqq(4, 1, 64), ".bits": u8(bits)})))
            self.assertEqual(run(path).report.outputs[0].actual_counts, {"hqq%d" % bits: 1})

    def test_the_last_weight_in_a_name_ends_the_prefix(self) -> None:
        folder = Folder.of(named("a.weight.b", gguf(8, 1, 32)))
        report = run(self.place(folder)).report
        self.assertEqual([d.module for d in report.outputs[0].layer_details], ["a.weight.b"])

    def test_later_shards_go_over_earlier_ones(self) -> None:
        def edit(folder: Folder) -> None:
            folder.shards[SECOND] = (None, {W + ".format": u8(6)})

        errors = run(self.edited("afq3", edit)).errors
        self.assertTrue(any("mxfp4" in e and "afq" in e for e in errors), errors)

    def test_a_shape_of_a_megabyte_costs_no_more_than_that(self) -> None:
        # only payloads of up to 4096 bytes are metadata (section 15)
        big = Tensor("U32", (1 << 18,), struct.pack("<I", 1) * (1 << 18))
        path = self.edited("bias-q8_0", put(W + ".shape", big))
        self.assertLess(sum(map(len, run(path).errors)), 10_000)
        code, out = cli(path)
        self.assertEqual(code, 1)
        self.assertLess(len(out), 20_000)

    def test_residuals_are_not_scanned(self) -> None:
        path = self.edited(
            "afq3", lambda f: f.files.update({"residual.safetensors": build({"plain": smooth("F32", 2)})})
        )
        self.assertTrue(run(path).ok)


if __name__ == "__main__":
    unittest.main()

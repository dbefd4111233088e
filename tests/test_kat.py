"""The suite's loader, the judge of replies, and what is printed and exported.

The rules are those of kat/README.md; each fault here breaks one of them in a suite that is otherwise good.
"""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import struct
import subprocess
import tempfile
import unittest
import xml.etree.ElementTree as xml
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from unittest import mock

from tests.kat_samples import ABC, FNV_A, KAT, OFFSET_BASIS, G, case, fnv_case, manifest, sm3_case, vqfref, write
from tests.mutants.__main__ import main as mutants
from vqfref.cli import main
from vqfref.errors import FormatError, UsageError, VqfrefError
from vqfref.kat import cases, runner
from vqfref.kat.cases import OPERATIONS, POLICY, Suite
from vqfref.kat.export import c_string
from vqfref.kat.ops import OPS, answer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

CC = shutil.which("cc")
README = (KAT / "README.md").read_text("utf-8")
BELOW = (1 << 53) - 1
BY_HAND = {
    "sm3": [sm3_case()],
    "fnv1a64": [fnv_case(), fnv_case("fnv1a64-a", {"msg": "61"}, {"hash": FNV_A})],
}


class Folder(unittest.TestCase):
    """Each test has a folder of its own."""

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def fault(self, code: str, file: str, field: str | None = None) -> VqfrefError:
        """The suite in the folder is refused with this code, about this file."""
        with self.assertRaises(FormatError) as caught:
            Suite(str(self.folder))
        error = caught.exception
        self.assertEqual((error.code, error.path), (code, str(self.folder / file)), str(error))
        if field is not None:
            self.assertEqual(error.field, field)
        return error


# ---- the loader


class Manifest(Folder):
    def edited(self, edit: Callable[[dict[str, Any]], None]) -> None:
        """The good suite, its manifest edited."""
        write(self.folder, BY_HAND)
        path = self.folder / "manifest.json"
        whole = json.loads(path.read_bytes())
        edit(whole)
        path.write_text(json.dumps(whole), "utf-8")

    def test_a_good_suite_is_read_in_order(self) -> None:
        suite = Suite(write(self.folder, BY_HAND))
        self.assertEqual([c.id for c in suite.cases], ["sm3-abc", "fnv1a64-empty", "fnv1a64-a"])
        self.assertEqual(suite.version, "1.0.0")
        first = suite.cases[0]
        self.assertEqual((first.op, first.inputs, first.outputs), ("sm3", {"msg": "616263"}, {"digest": ABC}))
        self.assertEqual(
            (first.flags, first.result, first.error, first.level), (("a-flag",), "valid", None, "required")
        )

    def test_a_suite_without_cases_is_one(self) -> None:
        self.assertEqual(Suite(write(self.folder, {"sm3": []})).cases, [])
        self.assertEqual(Suite(write(self.folder, {})).cases, [])

    def test_it_is_an_object_of_this_suite(self) -> None:
        for edit in (
            lambda m: m.update(suite="other"), lambda m: m.pop("suite"), lambda m: m.update(suite=["vqfref-kat"]),
            lambda m: m.update(version="1.0"), lambda m: m.update(version=1), lambda m: m.pop("version"),
            lambda m: m.update(version="1.0.x"), lambda m: m.update(version="1.0.\u0660"),
            lambda m: m.update(files=[]), lambda m: m.pop("files"), lambda m: m.update(files=None),
        ):  # fmt: skip
            self.edited(edit)
            self.fault("kat.manifest.json", "manifest.json")
        for text in ("[]", "null", "1", '"vqfref-kat"'):
            (self.folder / "manifest.json").write_text(text)
            self.fault("kat.manifest.json", "manifest.json")

    def test_an_entry_names_operation_sum_and_counts(self) -> None:
        def entry(**new: Any) -> Callable[[dict[str, Any]], None]:
            return lambda m: m["files"]["sm3.json"].update(new)

        for edit in (
            entry(op="sm4"), entry(op="fnv1a64"), entry(op=None), entry(op=["sm3"]), entry(op={}), entry(more=1),
            entry(valid=2), entry(invalid=1), entry(acceptable=1), entry(valid=True), entry(valid="1"), entry(valid=1.0),
            entry(invalid=-1), entry(acceptable=None), entry(valid=1 << 70), lambda m: m["files"]["sm3.json"].pop("valid"),
            lambda m: m["files"]["sm3.json"].pop("sha256"), lambda m: m["files"].update({"sm3.json": "sm3"}),
            lambda m: m["files"].update({"sm3.json": None}),
        ):  # fmt: skip
            self.edited(edit)
            self.fault("kat.manifest.json", "manifest.json", "sm3.json")

    def test_a_file_is_named_as_its_operation(self) -> None:
        for name in (
            "manifest.json",
            "sm3",
            "sm3.txt",
            "../sm3.json",
            "files/sm3.json",
            "/sm3.json",
            "",
            "sm3\0.json",
            "é.json",
        ):
            self.edited(lambda m, name=name: m["files"].update({name: m["files"].pop("sm3.json")}))  # type: ignore[misc]
            self.fault("kat.manifest.json", "manifest.json", name)

    def test_a_changed_file_of_cases_is_told(self) -> None:
        write(self.folder, BY_HAND)
        path = self.folder / "sm3.json"
        good = path.read_bytes()
        for content in (good + b"\n", good.replace(b"616263", b"616264"), good[:-1], b"[]", b""):
            path.write_bytes(content)
            self.assertIn("sha256", str(self.fault("kat.file.tag", "sm3.json")))
        path.write_bytes(good)
        for wrong in ("0" * 64, good.hex(), None, 0, [], "", "E" * 64):
            self.edited(lambda m, wrong=wrong: m["files"]["sm3.json"].update(sha256=wrong))  # type: ignore[misc]
            self.fault("kat.file.tag", "sm3.json")

    def test_without_hashlib_the_sums_are_not_held(self) -> None:
        write(self.folder, BY_HAND)
        (self.folder / "sm3.json").write_bytes((self.folder / "sm3.json").read_bytes() + b"\n")
        with mock.patch.dict("sys.modules", {"hashlib": None}):
            self.assertEqual(len(Suite(str(self.folder)).cases), 3)

    def test_a_file_that_is_named_must_be_there(self) -> None:
        write(self.folder, BY_HAND)
        (self.folder / "sm3.json").unlink()
        with self.assertRaises(FileNotFoundError):
            Suite(str(self.folder))
        run = vqfref("kat", "selftest", "--suite", str(self.folder))
        self.assertEqual(run.code, 3)
        self.assertIn("sm3.json", run.err)

    def test_json_is_read_strictly(self) -> None:
        write(self.folder, BY_HAND)
        path = self.folder / "manifest.json"
        good = path.read_text("utf-8")
        for code, text in (
            ("json.key.duplicate", good.replace('"suite"', '"suite": 1, "suite"')),
            ("json.syntax.json", good + "x"), ("json.syntax.json", good[:-1]), ("json.syntax.json", ""),
            ("json.depth.limit", "[" * 100000), ("json.digits.limit", "[%s]" % ("9" * 5000)),
        ):  # fmt: skip
            path.write_text(text, "utf-8")
            with self.assertRaises(VqfrefError) as caught:
                Suite(str(self.folder))
            self.assertEqual((caught.exception.code, caught.exception.path), (code, str(path)))

    def test_a_file_larger_than_any_is_not_read(self) -> None:
        write(self.folder, BY_HAND)
        with open(self.folder / "sm3.json", "wb") as file:
            file.truncate(cases.MAX_FILE + 1)
        self.fault("kat.file.limit", "sm3.json")

    def test_the_real_suite_has_the_operations_of_its_text(self) -> None:
        rows = re.findall(
            r"^\| (`[a-z0-9_`, ]+`) \| (.*?) \| (.*?) \|", README.partition("## 5.")[2].partition("## 6.")[0], re.M
        )
        told: dict[str, tuple[tuple[str, ...], ...]] = {}
        for ops, *sides in rows:
            fields = [re.findall(r"(?:^|, )([a-z][a-z0-9_]*)", re.sub(r" \(.*?\)", "", side)) for side in sides]
            for op in re.findall(r"[a-z0-9_]+", ops):
                told[op] = tuple(tuple(w for w in words if w not in ("all", "decimal", "none")) for words in fields)
        self.assertEqual(told, OPERATIONS)
        self.assertEqual(set(OPS), set(OPERATIONS))

    def test_the_policy_flags_are_those_of_the_text(self) -> None:
        told = README.partition("Policy flags")[2].partition("\n## ")[0]
        self.assertEqual(set(re.findall(r"`([a-z0-9-]+)`", told)) - {"acceptable"}, set(POLICY))


class Cases(Folder):
    """Each rule of a case's form."""

    def refused(self, made: Any, op: str = "sm3", code: str = "kat.case.json") -> VqfrefError:
        write(self.folder, {op: [made]})
        name = made.get("id") if isinstance(made, dict) and isinstance(made.get("id"), str) else None
        return self.fault(code, op + ".json", name)

    def taken(self, made: Any, op: str = "sm3") -> None:
        self.assertEqual(len(Suite(write(self.folder, {op: [made]})).cases), 1)

    def test_a_file_is_a_list_of_objects(self) -> None:
        write(self.folder, {"sm3": {"id": "x"}})  # type: ignore[dict-item]
        self.fault("kat.case.json", "sm3.json")
        for made in ([], None, 1, "sm3-abc", [sm3_case()]):
            self.refused(made)

    def test_every_field_is_there_and_no_other(self) -> None:
        for name in ("id", "comment", "level", "flags", "source", "since", "in", "out", "result"):
            made = sm3_case()
            del made[name]
            self.refused(made)
        self.refused(sm3_case(more=1))

    def test_an_id_is_a_slug_that_is_there_once(self) -> None:
        for name in ("", "-", "a-", "-a", "a--b", "A", "a b", "a_b", "a.b", "é", "a\n", "a" * 101, 1, None, ["a"], {}):
            self.refused(sm3_case(name))
        for name in ("a", "0", "a-b-0", "a" * 100):
            self.taken(sm3_case(name))
        write(self.folder, {"sm3": [sm3_case("a"), sm3_case("b"), sm3_case("a")]})
        self.fault("kat.case.duplicate", "sm3.json", "a")
        write(self.folder, {"sm3": [sm3_case("a")], "fnv1a64": [fnv_case("a")]})
        self.fault("kat.case.duplicate", "fnv1a64.json", "a")

    def test_words_come_from_their_lists(self) -> None:
        for new in (
            {"level": "optional"}, {"level": None}, {"level": ["required"]}, {"result": "good"}, {"result": None},
            {"result": ["valid"]}, {"comment": ""}, {"comment": 1}, {"comment": "a\nb"}, {"source": ""}, {"source": None},
            {"since": "1.0"}, {"since": 1.0}, {"since": None}, {"since": "1..0"}, {"flags": "a-flag"}, {"flags": None},
            {"flags": ["A"]}, {"flags": [1]}, {"flags": [[]]}, {"flags": ["a", "a"]}, {"flags": {"a": 1}},
        ):  # fmt: skip
            self.refused(sm3_case(**new))
        self.taken(sm3_case(flags=[], level="recommended", since="1.12.3"))

    def test_error_belongs_to_invalid_cases_and_is_a_class(self) -> None:
        into = {"msg": "616263"}
        for error in ("wrong", "", None, 1, ["key"], {}):
            self.refused(case("a", into, error=error))
        self.refused(case("a", into, result="invalid"))
        self.refused(sm3_case(error="key", result="valid"))
        self.refused(sm3_case(error="key", result="acceptable", flags=["prefix-04"]))
        self.taken(case("a", into, error="key"))

    def test_acceptable_needs_a_policy_flag(self) -> None:
        made = case("a", {"pub": "04" + G}, {"pub": G}, result="acceptable", flags=["g"])
        self.refused(made, "sm2_pubkey")
        made["flags"] = ["g", "prefix-04"]
        self.taken(made, "sm2_pubkey")

    def test_inputs_are_those_of_the_operation_in_order(self) -> None:
        good = {"key": "", "msg": ""}
        self.taken(case("a", good, {"tag": ""}), "hmac_sm3")
        for into in (
            {"msg": "", "key": ""},
            {"key": ""},
            {**good, "id": ""},
            {"key": "", "message": ""},
            {},
            [],
            None,
            "key",
        ):
            self.refused(case("a", into, {"tag": ""}), "hmac_sm3")  # type: ignore[arg-type]

    def test_outputs_are_those_of_the_operation_in_order(self) -> None:
        into = {"mode": "encrypt", "key": "", "block": ""}
        for out in ({}, {"data": ""}, {"block": "", "tol": ""}, {"block": "", "more": ""}, [], "block"):
            self.refused(case("a", into, out), "sm4_block")
        self.refused(case("a", into, {"block": ""}, error="key"), "sm4_block")
        self.taken(case("a", into, error="key"), "sm4_block")
        into, out = {"path": "files"}, {"label": "F32", "shape": "1,2", "sm3": ""}
        self.refused(case("a", {"key": "k", **into}, {k: out[k] for k in ("shape", "label", "sm3")}), "uqff_layer")

    def test_hex_is_lower_case_in_pairs(self) -> None:
        for value in ("6", "6G", "AB", "61 62", "0x61", " ", "é", 61, None, [], {}, True, 1.5):
            self.refused(case("a", {"msg": value}, {"digest": ABC}))
            self.refused(case("a", {"msg": ""}, {"digest": value}))

    def test_numbers_are_json_below_2_to_53_or_decimal_text(self) -> None:
        for klen in (
            0,
            1,
            BELOW,
            -BELOW,
            "0",
            "1",
            "9007199254740992",
            "340282366920938463463374607431768211455",
            "-9007199254740992",
        ):
            self.taken(case("a", {"z": "", "klen": klen}, {"key": ""}), "sm3_kdf")
        for klen in (
            1 << 53, -1 << 53, 1 << 64, 1.0, 1e3, True, None, [], "", "-", "01", "-0", "+1", "1e3", "0x10", " 1", "1 ",
            "\u0661",
        ):  # fmt: skip
            self.refused(case("a", {"z": "", "klen": klen}, {"key": ""}), "sm3_kdf")

    def test_words_hold_no_spaces(self) -> None:
        for mode in ("a b", "a\n", "é", "\x7f", 1, None, ["encrypt"]):
            self.refused(case("a", {"mode": mode, "key": "", "block": ""}, {"block": ""}), "sm4_block")

    def test_a_path_leads_to_a_file_of_the_suite(self) -> None:
        (self.folder / "files").mkdir()
        (self.folder / "files" / "a b.vqf").touch()
        for path in ("files/a b.vqf",):
            self.taken(case("a", {"path": path}), "vqf_file")
        for path in (
            "files", "/etc/passwd", "../files/a", "files/../a", "files//a", "files/./a", "files/", "sm3.json", "",
            "files/a\nb", 1, None,
            "files/a\0", "./files/a",
        ):  # fmt: skip
            self.refused(case("a", {"path": path}), "vqf_file")
        self.refused(case("a", {"path": "files/no.vqf"}), "vqf_file", "kat.file.missing")
        self.refused(case("a", {"path": "files/no.vqf"}, error="bounds"), "vqf_file", "kat.file.missing")
        self.taken(case("a", {"path": "files/no.vqf"}, error="missing"), "vqf_file")

    def test_a_tolerance_is_as_long_as_its_floats(self) -> None:
        into = {"type": "q8_0", "layout": "linear", "cols": 32, "data": "", "x": ""}
        self.taken(case("a", into, {"y": "0000803f", "tol": "00000000"}), "matvec")
        self.taken(case("a", into, {"y": "0000803f"}), "matvec")
        for out in ({"y": "0000803f", "tol": ""}, {"y": "0000803f", "tol": "0"}, {"y": "0000", "tol": "0000"}, {"y": "0000"},
                    {"y": "0000803f", "tol": 0}, {"y": "0000803f", "tol": None}, {"y": "", "tol": "00000000"}):  # fmt: skip
            self.refused(case("a", into, out), "matvec")
        self.refused(sm3_case(out={"digest": ABC, "tol": ABC}))

    def test_inputs_fit_on_a_line(self) -> None:
        self.taken(sm3_case(into={"msg": "00" * 30000}))
        self.refused(sm3_case(into={"msg": "00" * 30001}))


class Requests(unittest.TestCase):
    """This library's own adapter, line by line."""

    def test_the_greeting_lists_every_operation(self) -> None:
        words = answer("hello vqfref-kat/1").split(" ")
        self.assertEqual(words[:3], ["hello", "vqfref-kat/1", "name=vqfref"])
        self.assertEqual(set(words[4].partition("=")[2].split(",")), set(OPERATIONS))

    def test_answers(self) -> None:
        self.assertEqual(answer("sm3-abc sm3 msg=616263"), "sm3-abc ok digest=" + ABC)
        self.assertEqual(answer("x fnv1a64 msg="), "x ok hash=" + OFFSET_BASIS)
        self.assertEqual(answer("x unknown a=b"), "x skip")
        self.assertTrue(answer("x sm4_ctr key=00 iv=%s offset=0 data=" % ("00" * 16)).startswith("x err key "))

    def test_a_request_that_is_none_is_refused(self) -> None:
        for line in ("x sm3", "x sm3 ", "x sm3 other=", "x hmac_sm3 key=00", "x vqf_file"):
            self.assertTrue(answer(line).startswith("x err missing "), line)
        for line in (
            "x sm3 msg=6",
            "x sm3 msg=zz",
            "x sm3_kdf z= klen=a",
            "x sm3_kdf z= klen=",
            "x sm3_kdf z= klen=" + "9" * 9999,
        ):
            self.assertTrue(answer(line).startswith("x err json "), line)

    def test_a_path_takes_the_rest_of_the_line(self) -> None:
        with tempfile.TemporaryDirectory(prefix="a = b ") as folder:
            path = os.path.join(folder, "c d=e.vqf")
            shutil.copy(str(KAT / "files" / "mini-q4-h448-plain.vqf"), path)
            self.assertEqual(answer("x vqf_file path=" + path), "x ok")


# ---- judging replies


def f32(*values: float) -> str:
    return struct.pack("<%df" % len(values), *values).hex()


def judged(made: dict[str, Any], op: str, reply: str) -> str:
    """The outcome of a reply to a case."""
    with tempfile.TemporaryDirectory() as folder:
        (loaded,) = Suite(write(Path(folder), {op: [made]})).cases
    word, _, rest = reply.partition(" ")
    return runner.judge(loaded, word, rest)[0]


class Judge(unittest.TestCase):
    maxDiff = None

    def check(self, made: dict[str, Any], op: str, verdicts: dict[str, str]) -> None:
        self.assertEqual({reply: judged(made, op, reply) for reply in verdicts}, verdicts)

    def test_a_valid_case(self) -> None:
        self.check(sm3_case(), "sm3", {
            "ok digest=" + ABC: "PASS", "ok digest=" + ABC.upper(): "PASS", "skip": "SKIP", "skip not built": "SKIP",
            "ok digest=" + ABC[:-1] + "1": "FAIL", "ok digest=": "FAIL", "ok digest=" + ABC[:-2]: "FAIL",
            "ok digest=" + ABC + "00": "FAIL", "err": "FAIL", "err key": "FAIL", "ok": "PROTOCOL", "ok " + ABC: "PROTOCOL",
            "ok tag=" + ABC: "PROTOCOL", "ok digest=%s digest=%s" % (ABC, ABC): "PROTOCOL",
            "ok digest=%s more=1" % ABC: "PROTOCOL", "ok digest=%s done" % ABC: "PROTOCOL",
        })  # fmt: skip

    def test_an_invalid_case(self) -> None:
        made = case("a", {"pub": "00"}, error="key")
        self.check(made, "sm2_pubkey", {
            "err key": "PASS", "err key of one byte": "PASS", "err": "PASS", "err ": "PASS", "skip": "SKIP",
            "err point": "WRONG-ERROR", "err Key": "WRONG-ERROR", "err keys": "WRONG-ERROR", "ok": "FAIL",
            "ok pub=00": "FAIL",
        })  # fmt: skip

    def test_an_acceptable_case_takes_either_answer_but_no_wrong_output(self) -> None:
        made = case("a", {"pub": "04" + G}, {"pub": G}, result="acceptable", flags=["prefix-04"])
        self.check(made, "sm2_pubkey", {
            "ok pub=" + G: "PASS", "err key": "PASS", "err": "PASS", "err point": "PASS", "skip": "SKIP",
            "ok pub=04" + G: "FAIL", "ok": "PROTOCOL",
        })  # fmt: skip

    def test_an_operation_without_outputs(self) -> None:
        made = case("a", {"pub": "", "e": "", "sig": ""})
        self.check(made, "sm2_verify_digest", {
            "ok": "PASS", "ok ": "PASS", "ok valid=false": "PROTOCOL", "ok fnv=" + OFFSET_BASIS: "PROTOCOL", "err": "FAIL"
        })  # fmt: skip

    def test_fnv_stands_for_one_exact_output_in_hex(self) -> None:
        made = case("a", {"z": "", "klen": 1}, {"key": "61"})
        self.check(made, "sm3_kdf", {
            "ok fnv=" + FNV_A: "PASS", "ok fnv=" + FNV_A.upper(): "PASS", "ok fnv=" + OFFSET_BASIS: "FAIL", "ok fnv=": "FAIL",
            "ok key=61 fnv=" + FNV_A: "PROTOCOL",
        })  # fmt: skip
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "files").mkdir()
            write(Path(folder), {"st_header": [case("a", {"path": "files/a"}, {"n": 1})]})
            (Path(folder) / "files" / "a").touch()
            (loaded,) = Suite(folder).cases
        self.assertEqual(runner.judge(loaded, "ok", "fnv=" + FNV_A)[0], "PROTOCOL")
        self.assertEqual(runner.judge(loaded, "ok", "n=1")[0], "PASS")
        self.assertEqual(runner.judge(loaded, "ok", "n=01")[0], "FAIL")
        sums = case("a", {"type": "q8_0", "row": "", "x": ""}, {"sums": "1,-2"})
        self.check(sums, "block_sums", {"ok sums=1,-2": "PASS", "ok sums=1,2": "FAIL", "ok fnv=" + FNV_A: "PROTOCOL"})

    def test_several_outputs(self) -> None:
        out = {"form": 448, "n_tensors": 1, "data_offset": 512, "file_len": "18446744073709551615"}
        made = case("a", {"size": 0, "head": ""}, out)
        good = "ok form=448 n_tensors=1 data_offset=512 file_len=18446744073709551615"
        self.check(made, "vqf_header", {
            good: "PASS", good[:-1]: "FAIL", good.replace("448", "432"): "FAIL", good.rpartition(" ")[0]: "PROTOCOL",
            "ok fnv=" + FNV_A: "PROTOCOL",
        })  # fmt: skip

    def test_tolerance_goes_element_by_element(self) -> None:
        into = {"type": "q8_0", "layout": "linear", "cols": 32, "data": "", "x": ""}
        nan = float("nan")
        made = case("a", into, {"y": f32(1, 100, nan), "tol": f32(0.5, 0, 0)})
        self.check(made, "matvec", {
            "ok y=" + f32(1, 100, nan): "PASS", "ok y=" + f32(1.5, 100, nan): "PASS", "ok y=" + f32(0.5, 100, -nan): "PASS",
            "ok y=" + f32(1.5, 100, nan).upper(): "PASS", "ok y=" + f32(1.6, 100, nan): "FAIL",
            "ok y=" + f32(1, 100.5, nan): "FAIL", "ok y=" + f32(1, 100, 0): "FAIL", "ok y=" + f32(nan, 100, nan): "FAIL",
            "ok y=" + f32(1, 100): "FAIL", "ok y=" + f32(1, 100, nan, 0): "FAIL", "ok y=": "FAIL", "ok y=zz": "FAIL",
            "ok y=1": "FAIL", "ok fnv=" + FNV_A: "PROTOCOL",
        })  # fmt: skip
        exact = case("a", into, {"y": f32(1)})
        self.check(exact, "matvec", {"ok y=" + f32(1): "PASS", "ok y=" + f32(1.0000001): "FAIL"})

    def detail(self, op: str, expected: dict[str, str], reply: str) -> str:
        """What is told of a wrong reply to a case with these outputs."""
        made = cases.Case(op, "a", "", "required", (), "", "1.0.0", {}, expected, "valid", None)
        outcome, detail = runner.judge(made, "ok", reply)
        self.assertEqual(outcome, "FAIL")
        return detail

    def test_floats_are_told_by_element_and_value(self) -> None:
        right = f32(1, -128, 3, 4)
        self.assertEqual(self.detail("dequantize", {"f32": right}, "f32=" + f32(1, 128, 3, 4).upper()),
                         "f32[1] is 128, expected -128; 1 of 4 differs")  # fmt: skip
        self.assertEqual(self.detail("dequantize", {"f32": right}, "f32=" + f32(1.0000001, 0, 3, 5)),
                         "f32[0] is 1.00000012, expected 1; 3 of 4 differ")  # fmt: skip
        self.assertEqual(self.detail("dequantize", {"f32": f32(0)}, "f32=" + f32(-0.0)),
                         "f32[0] is -0, expected 0; 1 of 1 differs")  # fmt: skip
        self.assertEqual(self.detail("f16_decode", {"f32": "0000c07f"}, "f32=0100c07f"),
                         "f32[0] is nan (0100c07f), expected nan (0000c07f); 1 of 1 differs")  # fmt: skip
        self.assertEqual(self.detail("dequantize", {"f32": right}, "f32=" + right[8:]), "f32 has 3 floats, expected 4")
        self.assertEqual(self.detail("dequantize", {"f32": right}, "f32="), "f32 has 0 floats, expected 4")
        for value in ("zz", right[2:], right[1:], "1,-128,3,4"):
            self.assertIn(
                "expected floats of four bytes in hex", self.detail("dequantize", {"f32": right}, "f32=" + value)
            )
        inexact = {"y": f32(1, 100, float("inf")), "tol": f32(0.5, 0.25, 0)}
        self.assertEqual(self.detail("matvec", inexact, "y=" + f32(1.5, 101, float("inf"))),
                         "y[1] is 101, expected 100 (within 0.25); 1 of 3 differs")  # fmt: skip

    def test_lists_are_told_by_entry(self) -> None:
        sums = {"sums": "1,-2,3"}
        self.assertEqual(self.detail("block_sums", sums, "sums=1,2,3"), "sums[1] is 2, expected -2; 1 of 3 differs")
        self.assertEqual(self.detail("block_sums", sums, "sums=,-2,0"), "sums[0] is , expected 1; 2 of 3 differ")
        self.assertEqual(
            self.detail("block_sums", sums, "sums=1,-2"), "sums has 2 entries, expected 3: 1,-2, expected 1,-2,3"
        )

    def test_of_a_wrong_fnv_it_is_told_what_may_be_wrong(self) -> None:
        self.assertEqual(
            self.detail("sm3_kdf", {"key": "61"}, "fnv=" + OFFSET_BASIS), "fnv of key: %s, expected %s; the output or "
            "the FNV is wrong: reply with key=… in its place to see where" % (OFFSET_BASIS, FNV_A))  # fmt: skip

    def test_a_long_output_is_shown_where_it_differs(self) -> None:
        right = "00" * 500
        self.assertIn("character 800", runner.difference("00" * 400 + "01" + "00" * 99, right))
        self.assertIn("01", runner.difference("00" * 400 + "01" + "00" * 99, right))
        self.assertIn("1002 characters, expected 1000", runner.difference(right + "00", right))
        self.assertEqual(runner.difference("", "61"), "empty, expected 61")

    def test_expected_failures(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            suite = Suite(write(Path(folder), {"sm3": [sm3_case("a"), sm3_case("b"), sm3_case("c")]}))
        replies = {"a": ("ok", "digest=00"), "b": ("ok", "digest=" + ABC), "c": ("skip", "")}
        xfail = runner.read_xfail("# why\n\n  a  known \nb\nc other\n")
        self.assertEqual(xfail, {"a": "known", "b": "no reason given", "c": "other"})
        outcomes = list(runner.run(suite.cases, lambda c: replies[c.id], xfail))
        self.assertEqual([o.outcome for o in outcomes], ["XFAIL", "XPASS", "SKIP"])
        self.assertEqual(outcomes[0].detail, "known")
        self.assertEqual(runner.totals(outcomes, "1.0.0", False), (
            "kat 1.0.0: 0 passed, 1 failed, 1 skipped, 1 expected to fail (valid 0/2, invalid 0/0)", False))  # fmt: skip


# ---- the command line


class Commands(Folder):
    def setUp(self) -> None:
        super().setUp()
        made = {
            "sm3": [sm3_case(), sm3_case("sm3-wrong", out={"digest": "00" * 32}, flags=["b"], level="recommended")],
            "sm2_pubkey": [
                case("pub-g", {"pub": G}, {"pub": G}),
                case("pub-short", {"pub": "00"}, error="point", comment='<&> " \x7f'[:6]),
                case("pub-04", {"pub": "04" + G}, {"pub": G}, result="acceptable", flags=["prefix-04"]),
            ],
        }
        self.suite = write(self.folder, made)

    def kat(self, action: str, *words: str) -> Any:
        return vqfref("kat", action, "--suite", self.suite, *words)

    def test_the_selftest_tells_what_fails_and_counts(self) -> None:
        run = self.kat("selftest")
        self.assertEqual(run.code, 1)
        self.assertEqual(run.out.splitlines(), [
            "FAIL        sm3-wrong  sm3: digest %s, expected %s" % (ABC, "00" * 32),
            "WRONG-ERROR pub-short  sm2_pubkey: refused as key, expected point",
            "kat 1.0.0: 4 passed, 1 failed, 0 skipped (valid 2/3, invalid 1/1, acceptable 1/1)",
        ])  # fmt: skip
        run = self.kat("selftest", "--strict-errors", "-v")
        self.assertEqual(run.code, 1)
        self.assertEqual(run.last, "kat 1.0.0: 3 passed, 2 failed, 0 skipped (valid 2/3, invalid 0/1, acceptable 1/1)")
        self.assertEqual(run.out.splitlines()[0], "PASS        sm3-abc  sm3")

    def test_filters(self) -> None:
        for words, ids in (
            (["--op", "sm3"], "sm3-abc sm3-wrong"), (["--only", "sm3-*"], "sm3-abc sm3-wrong"),
            (["--only", "pub-?", "--only", "*-abc"], "sm3-abc pub-g"), (["--skip", "*-*o*", "--op", "sm3"], "sm3-abc"),
            (["--level", "recommended"], "sm3-wrong"), (["--flag", "prefix-04"], "pub-04"),
            (["--only", "pub*", "--skip", "*g", "--skip", "*4"], "pub-short"), (["--flag", "a-flag", "--op", "sm3"], "sm3-abc"),
            (["--op", "sm2_pubkey,sm3", "--skip", "*04"], "sm3-abc sm3-wrong pub-g pub-short"),
            (["--op", "sm2_pubkey", "--op", "sm3,sm4_ctr", "--skip", "*04"], "sm3-abc sm3-wrong pub-g pub-short"),
        ):  # fmt: skip
            run = self.kat("list", *words)
            self.assertEqual([line.split()[0] for line in run.out.splitlines()[1:]], ids.split(), words)
        for words, hint in (
            (["--op", "sm4_ctr"], ""), (["--op", "sm3", "--flag", "prefix-04"], ""), (["--only", "SM3*"], ""),
            (["--flag", "a-flog"], "did you mean a-flag"), (["--only", ""], ""),
        ):  # fmt: skip
            run = self.kat("selftest", *words)
            self.assertEqual((run.code, run.out), (2, ""))
            self.assertIn("no case is left by these filters", run.err)
            self.assertIn(hint, run.err)
        self.assertEqual(self.kat("list", "--level", "any").code, 2)
        for words in (["--op", "sm4"], ["--op", "sm3,sm4"], ["--op", "sm3,"], ["--op", "sm3", "--op", "sm4"]):
            run = self.kat("selftest", *words)
            self.assertEqual((run.code, run.out), (2, ""))
            self.assertIn("no operation '%s'" % words[-1].rpartition(",")[2], run.err)
        self.assertIn(
            "did you mean sm4_ctr", self.kat("list", "--op", "sm4").err + self.kat("list", "--op", "sm4_ct").err
        )

    def test_matching(self) -> None:
        for text, pattern, good in (
            ("sm3-abc", "*", True), ("sm3-abc", "sm3-abc", True), ("sm3-abc", "sm3", False), ("sm3-abc", "?m3*c", True),
            ("abc", "a*b*c*", True), ("abc", "a?c?", False), ("", "*", True), ("", "", True), ("", "?", False),
            ("a" * 50, "*a" * 25 + "b", False), ("ab", "*b*a", False), ("[a]", "[a]", True),
        ):  # fmt: skip
            self.assertEqual(cases.matches(text, pattern), good, (text, pattern))

    def test_tap(self) -> None:
        run = self.kat("selftest", "--format", "tap", "--strict-errors")
        self.assertEqual(run.out.splitlines(), [
            "TAP version 13", "1..5", "ok 1 - sm3-abc", "not ok 2 - sm3-wrong",
            "# FAIL: digest %s, expected %s" % (ABC, "00" * 32), "ok 3 - pub-g", "not ok 4 - pub-short",
            "# WRONG-ERROR: refused as key, expected point", "ok 5 - pub-04",
            "# kat 1.0.0: 3 passed, 2 failed, 0 skipped (valid 2/3, invalid 0/1, acceptable 1/1)",
        ])  # fmt: skip

    def test_xfail_in_all_forms(self) -> None:
        list_ = self.folder / "xfail"
        list_.write_bytes(b"\xef\xbb\xbfsm3-wrong <made> & \xff wrong\r\n")
        run = self.kat("selftest", "--xfail", str(list_))
        counts = "4 passed, 0 failed, 0 skipped, 1 expected to fail (valid 2/3, invalid 1/1, acceptable 1/1)"
        self.assertEqual((run.code, run.last), (0, "kat 1.0.0: " + counts))
        run = self.kat("selftest", "--xfail", str(list_), "--format", "tap")
        self.assertIn("not ok 2 - sm3-wrong # TODO <made> & \\xff wrong", run.out.splitlines())
        tree = xml.fromstring(self.kat("selftest", "--xfail", str(list_), "--format", "junit").out)
        self.assertEqual([s.get("message") for s in tree.iter("skipped")], ["<made> & \\xff wrong"])
        list_.write_text("sm3-abc passes\n")
        run = self.kat("selftest", "--xfail", str(list_), "--op", "sm3")
        self.assertEqual(run.code, 1)
        self.assertIn("XPASS       sm3-abc  sm3: passes, but is expected to fail: passes", run.out)
        list_.write_text("sm3-abd typed wrongly\n")
        run = self.kat("selftest", "--xfail", str(list_))
        self.assertEqual(run.code, 2)
        self.assertIn("did you mean sm3-abc", run.err)
        self.assertEqual(self.kat("selftest", "--xfail", str(self.folder / "none")).code, 3)

    def test_junit(self) -> None:
        run = self.kat("selftest", "--format", "junit", "--strict-errors")
        self.assertEqual(run.code, 1)
        tree = xml.fromstring(run.out)
        self.assertEqual((tree.tag, dict(tree.attrib)), (
            "testsuite", {"name": "vqfref-kat", "tests": "5", "failures": "2", "skipped": "0"}))  # fmt: skip
        self.assertEqual([t.get("name") for t in tree], ["sm3-abc", "sm3-wrong", "pub-g", "pub-short", "pub-04"])
        self.assertEqual([f.get("type") for f in tree.iter("failure")], ["FAIL", "WRONG-ERROR"])
        self.assertEqual(tree[1].get("classname"), "sm3")

    def test_junit_is_xml_whatever_a_program_writes(self) -> None:
        loaded = Suite(self.suite).cases[0]
        detail = "".join(map(chr, range(256))) + "\u2028\ud800\U0001f600"
        outcome = runner.Outcome(loaded, "PROTOCOL", detail)
        text = runner.junit([outcome], False)
        self.assertTrue(text.isascii())
        message = xml.fromstring(text).find("testcase/failure").get("message")  # type: ignore[union-attr]
        self.assertIn("<=>", message or "")
        self.assertIn("\\x00", message or "")
        self.assertIn("\xe9", message or "")

    def test_json(self) -> None:
        run = self.kat("selftest", "--format", "json")
        whole = json.loads(run.out)
        self.assertEqual((run.code, whole["suite"], whole["name"], whole["ok"]), (1, "1.0.0", "vqfref", False))
        self.assertEqual(whole["summary"], self.kat("selftest").last)
        self.assertEqual({k: v for k, v in whole["counts"].items() if v}, {"PASS": 3, "FAIL": 1, "WRONG-ERROR": 1})
        self.assertEqual([(c["id"], c["op"], c["outcome"]) for c in whole["cases"]][1], ("sm3-wrong", "sm3", "FAIL"))

    def test_many_alike_are_counted(self) -> None:
        loaded = Suite(self.suite).cases[0]
        outcomes = [runner.Outcome(loaded, "CRASH", "gone")] * 10 + [runner.Outcome(loaded, "FAIL", "other")] * 2
        lines = list(runner.text_lines(outcomes, False))
        self.assertEqual(lines[:3], ["CRASH       sm3-abc  sm3: gone"] * 3)
        self.assertEqual(
            lines[3:], [*["FAIL        sm3-abc  sm3: other"] * 2, "CRASH       … and 7 more of sm3 (-v shows all)"]
        )
        self.assertEqual(list(runner.text_lines(outcomes[:10], True)), ["CRASH       sm3-abc  sm3: gone"] * 10)
        self.assertEqual(
            list(runner.text_lines(outcomes[:4], False))[-1], "CRASH       … and 1 more of sm3 (-v shows all)"
        )

    def test_of_an_operation_ten_lines_an_outcome_and_the_first_of_each_flag(self) -> None:
        """An SM3 with one wrong digit: every answer is wrong in its own way."""
        sm3, _, pub, *_ = Suite(self.suite).cases

        def made(first: runner.Case, outcome: str, *flags: str) -> list[runner.Outcome]:
            return [
                runner.Outcome(first._replace(id="%s-%d" % (flag, i), flags=(flag,)), outcome, "%s %d" % (flag, i))
                for i, flag in enumerate(flags)
            ]

        outcomes = made(sm3, "FAIL", *["a"] * 200, "b", "b", "c") + made(sm3, "WRONG-ERROR", *"aaaaaaaaaaab")
        outcomes += made(pub, "FAIL", *["a"] * 11)
        lines = list(runner.text_lines(outcomes, False))
        ids = [line.split()[1] for line in lines]
        ten = ["a-%d" % i for i in range(10)]
        self.assertEqual(ids, [*ten, "b-200", "c-202", *ten, "b-11", "…", "…", *ten, "…"])
        self.assertEqual([line for line in lines if "…" in line], [
            "FAIL        … and 191 more of sm3 (-v shows all)",
            "WRONG-ERROR … and 1 more of sm3 (-v shows all)",
            "FAIL        … and 1 more of sm2_pubkey (-v shows all)",
        ])  # fmt: skip
        self.assertEqual(len(list(runner.text_lines(outcomes, True))), len(outcomes))

    def test_progress_is_for_terminals_and_leaves_no_trace(self) -> None:
        class Terminal(io.StringIO):
            def isatty(self) -> bool:
                return True

        for words, marks in (([], True), (["-v"], False), (["--format", "tap"], False)):
            screen = Terminal()
            with redirect_stdout(screen), redirect_stderr(screen):
                main(["kat", "selftest", "--suite", self.suite, *words])
            text = screen.getvalue()
            self.assertEqual("\rtesting  20 %" in text, marks, words)
            rows = [line.rpartition("\r")[2] for line in text.split("\n")]
            self.assertEqual([line for line in rows if "testing" in line], [])
            self.assertEqual(rows, self.kat("selftest", *words).out.split("\n"))

    def test_show(self) -> None:
        run = self.kat("show", "sm3-abc")
        shown = json.loads(run.out)
        self.assertEqual(shown.pop("op"), "sm3")
        self.assertEqual(shown.pop("line"), "sm3-abc sm3 msg=616263")
        self.assertEqual(shown, sm3_case())
        run = self.kat("show", "sm3-abd")
        self.assertEqual(run.code, 2)
        self.assertIn("did you mean sm3-abc", run.err)

    def test_a_suite_that_is_none(self) -> None:
        run = vqfref("kat", "list", "--suite", str(self.folder / "none"))
        self.assertEqual(run.code, 2)
        (self.folder / "sm3.json").write_text("[]")
        run = self.kat("selftest")
        self.assertEqual(run.code, 1)
        self.assertIn("error[kat.file.tag]", run.err)
        self.assertIn("sm3.json", run.err)
        with self.assertRaises(UsageError):
            cases.find(str(self.folder / "none"))


# ---- export


def read_flat(text: str) -> list[dict[str, str]]:
    """Blocks of `key = value` lines, as kat/README.md has them."""
    return [dict(line.partition(" = ")[::2] for line in b.split("\n") if line) for b in text.split("\n\n") if b.strip()]


class Export(Folder):
    def export(self, *words: str) -> Any:
        """Export from a suite that has a few of the real one's files."""
        suite = self.folder / "suite"
        suite.mkdir(exist_ok=True)
        content = {op: (KAT / (op + ".json")).read_bytes() for op in ("sm2_pubkey", "sm4_ctr", "fnv1a64")}
        for op, data in content.items():
            (suite / (op + ".json")).write_bytes(data)
        (suite / "manifest.json").write_text(json.dumps(manifest(content)), "utf-8")
        return vqfref("kat", "export", "--suite", str(suite), *words)

    def test_json_is_the_suite_again(self) -> None:
        run = self.export(str(self.folder / "out"), "--op", "sm2_pubkey")
        self.assertEqual((run.code, run.out), (0, str(self.folder / "out" / "sm2_pubkey.json") + "\n"))
        whole = json.loads((self.folder / "out" / "sm2_pubkey.json").read_bytes())
        self.assertEqual(whole, json.loads((KAT / "sm2_pubkey.json").read_bytes()))
        self.assertEqual(
            [list(c) for c in whole], [list(c) for c in json.loads((KAT / "sm2_pubkey.json").read_bytes())]
        )

    def test_the_flat_text_beside_the_suite_is_the_suite(self) -> None:
        self.assertEqual(vqfref("kat", "export", str(self.folder / "flat"), "--format", "flat").code, 0)
        made = {p.name: p.read_bytes() for p in (self.folder / "flat").iterdir()}
        stored = {p.name: p.read_bytes() for p in (KAT / "flat").iterdir()}
        wrong = sorted(n for n in {*made, *stored} if made.get(n) != stored.get(n))
        self.assertEqual(wrong, [], "run: python3 -m vqfref kat export kat/flat --format flat")

    def test_flat_text_read_again_has_every_field(self) -> None:
        for op in ("sm2_pubkey", "sm4_ctr", "fnv1a64"):
            self.assertEqual(self.export(str(self.folder), "--format", "flat", "--op", op).code, 0)
            blocks = read_flat((self.folder / (op + ".txt")).read_text("utf-8"))
            expected = []
            for c in json.loads((KAT / (op + ".json")).read_bytes()):
                block = {"id": c["id"], "op": op, "result": c["result"]}
                block.update({"error": c["error"]} if "error" in c else {})
                block.update(level=c["level"], flags=",".join(c["flags"]))
                block.update({"%s.%s" % (side, k): str(v) for side in ("in", "out") for k, v in c[side].items()})
                expected.append(block)
            self.assertEqual(blocks, expected)
            self.assertEqual([list(b) for b in blocks], [list(b) for b in expected])

    def test_a_c_string_is_read_by_c_as_it_was(self) -> None:
        for text in ("", "a", 'a"b\\c?\n\t0', "é\0", "1" * 199 + "\n" + "2" * 300, "\n7" * 500):
            literal = c_string(text)
            self.assertTrue(literal.isascii() and "??" not in literal)
            pieces = re.findall(r'"((?:[^"\\]|\\[0-7]{3})*)"', literal)
            self.assertEqual(" ".join('"%s"' % p for p in pieces), literal)
            joined = re.sub(r"\\([0-7]{3})", lambda m: chr(int(m[1], 8)), "".join(pieces))
            self.assertEqual(joined.encode("latin-1").decode("utf-8"), text)

    @unittest.skipUnless(CC, "no C compiler")
    def test_the_c_header_compiles_and_holds_every_case(self) -> None:
        run = self.export(str(self.folder), "--format", "c", "--op", "sm2_pubkey")
        self.assertEqual(run.out, str(self.folder / "vqfref_kat.h") + "\n")
        (self.folder / "main.c").write_text(
            '#include <stdio.h>\n#include "vqfref_kat.h"\nint main(void) {\n'
            "  for (const vqfref_kat_case *c = vqfref_kat_cases; c->id; c++)\n"
            '    printf("%s|%s|%s|%s|%s|%s%c", c->id, c->op, c->result, c->error, c->in, c->out, 0);\n  return 0;\n}\n'
        )
        program = str(self.folder / "main")
        command = [
            "cc",
            "-std=c11",
            "-Wall",
            "-Wextra",
            "-Werror",
            "-pedantic",
            "-o",
            program,
            str(self.folder / "main.c"),
        ]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.assertEqual((done.returncode, done.stdout), (0, b""))
        expected = []
        for c in json.loads((KAT / "sm2_pubkey.json").read_bytes()):
            sides = ["\n".join("%s=%s" % item for item in c[side].items()) for side in ("in", "out")]
            expected.append("|".join([c["id"], "sm2_pubkey", c["result"], c.get("error", ""), *sides]))
        printed = subprocess.run([program], stdout=subprocess.PIPE, check=True).stdout.decode()
        self.assertEqual(printed.split("\0"), [*expected, ""])

    def test_the_suite_itself_is_not_written_over(self) -> None:
        folder = write(self.folder, BY_HAND)
        before = (self.folder / "sm3.json").read_bytes()
        run = vqfref("kat", "export", folder + "/.", "--suite", folder)
        self.assertEqual(run.code, 2)
        self.assertIn("the suite itself", run.err)
        self.assertEqual((self.folder / "sm3.json").read_bytes(), before)


class Mutants(unittest.TestCase):
    def test_they_tell_their_usage(self) -> None:
        for words, code in ((["--help"], 0), (["-h"], 0), (["--no-such"], 2), (["sm3", "-x"], 2)):
            out = io.StringIO()
            with redirect_stdout(out):
                self.assertEqual(mutants(words), code, words)
            self.assertIn("python3 -m tests.mutants [WORD …]", out.getvalue())


class Counts(unittest.TestCase):
    def test_the_manifest_of_the_samples_is_that_of_the_real_suite(self) -> None:
        whole = json.loads((KAT / "manifest.json").read_bytes())
        op = "sm2_pubkey"
        made = manifest({op: (KAT / (op + ".json")).read_bytes()})
        self.assertEqual(made["files"][op + ".json"], whole["files"][op + ".json"])


if __name__ == "__main__":
    unittest.main()

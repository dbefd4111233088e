"""The verb bench: what it says, draws and refuses. Sizes are tiny here, and no figure is judged: time is the machine's."""

from __future__ import annotations

import json
import os
import sys
import tempfile
import unittest
from unittest import mock

from tests.tools import get, run_main, thorough
from vqfref import kernels
from vqfref.bench import measure, operations, peers, picture, report
from vqfref.bench.measure import Goal, Row, Way
from vqfref.errors import UsageError

try:
    from xml.etree import ElementTree
except ImportError:  # small images
    ElementTree = None  # type: ignore[assignment]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

KEYS = {"operation", "variant", "plain", "fast", "unit", "ratio", "peers", "goals", "equal", "note"}
HAS_FAST = "fast" in kernels.choices().values()


def tiny(glob: str | None) -> dict[str, Any]:
    """A report over very small inputs, one round."""
    with mock.patch.object(report, "QUICK_LEAST", 0.0):
        return report.run(glob, 1, True, shrink=256)


def without_peers() -> Any:
    """Nothing installed, and no command openssl, which would take a second."""
    return mock.patch.multiple(peers, package=lambda name: None, openssl_speed=lambda size: 0.0)


class Reports(unittest.TestCase):
    @thorough
    def test_every_operation_of_the_library_itself_is_measured_and_equal(self) -> None:
        with without_peers():
            found = tiny("[fqbhs]*[!n]")
        names = list(dict.fromkeys(r["operation"] for r in found["results"]))
        self.assertEqual(names, report.wanted("[fqbhs]*[!n]"))
        for r in found["results"]:
            self.assertEqual(set(r), KEYS)
            self.assertGreater(r["plain"], 0)
            if r["unit"] != "ms":
                self.assertIs(r["equal"], True if HAS_FAST else None, r)
                self.assertEqual(r["ratio"] is None, not HAS_FAST)
            for goal in r["goals"]:
                self.assertEqual(set(goal), {"against", "wanted", "found", "reached"})
        self.assertTrue(all(set(r["peers"]) <= {"hashlib"} for r in found["results"]))

    def test_the_sparse_file_is_the_size_of_the_model_and_nothing_stays_behind(self) -> None:
        with tempfile.TemporaryDirectory() as folder, mock.patch.dict(os.environ, TMPDIR=folder):
            (found,) = tiny("open")["results"]
            self.assertEqual(os.listdir(folder), [])
        self.assertEqual((found["variant"], found["unit"], found["fast"]), ("VQF of 2.33 GB", "ms", None))
        self.assertEqual([g["against"] for g in found["goals"]], ["limit"])

    @thorough
    def test_child_processes_end_well(self) -> None:
        self.assertEqual([r["operation"] for r in tiny("i[mn]*")["results"]], ["import", "info"])

    def test_every_operation_is_named_and_each_gives_rows_of_its_names(self) -> None:
        self.assertEqual(len(set(operations.NAMES)), len(operations.NAMES))
        self.assertEqual(report.wanted(None), operations.NAMES)
        self.assertEqual(report.wanted("sm2_*"), ["sm2_sign", "sm2_verify"])
        with self.assertRaisesRegex(UsageError, "sm4_ctr"):
            report.wanted("sm4_ctx")

    def test_without_quick_versions_it_says_so_and_shows_plain_alone(self) -> None:
        with mock.patch.dict(os.environ, VQFREF_PURE="1"), mock.patch.dict(kernels._chosen, clear=True):
            with mock.patch.object(kernels, "_new", None), without_peers():
                found = tiny("sm2_sign")
                (row,) = found["results"]
                self.assertEqual((row["fast"], row["ratio"], row["equal"]), (None, None, None))
                self.assertEqual({g["reached"] for g in row["goals"]}, {None})
                self.assertIs(found["fast"], False)
                self.assertIn("VQFREF_PURE", "\n".join(report.heading(found)))
                picture.svg(found)
        with mock.patch.dict(sys.modules, {"vqfref.fast": None, "vqfref.fast.sm2": None}):
            with mock.patch.dict(kernels._chosen, clear=True):
                self.assertEqual(kernels.versions("sm2_public_key")[1], None)
                self.assertIn("no folder fast/", report.without_fast())


class Measuring(unittest.TestCase):
    def test_the_median(self) -> None:
        self.assertEqual(measure.median([3, 1, 2]), 2)
        self.assertEqual(measure.median([4, 1, 2, 3]), 2.5)

    def test_a_peer_that_does_not_run_is_left_out_and_one_of_ours_is_an_error(self) -> None:
        def broken() -> None:
            raise RuntimeError

        ways = [Way("plain", int, 1), Way("fast", int, 2), Way("numpy", broken, 1), Way("OpenSSL", None, 0, 5.0)]
        found = measure.measure(Row("x", "y", "/s", ways, [Goal("numpy", 1), Goal("OpenSSL", 1e9)]), 1, 0.0)
        self.assertEqual(found["peers"], {"OpenSSL": 5.0})
        self.assertEqual([g["reached"] for g in found["goals"]], [None, False])
        with self.assertRaises(RuntimeError):
            measure.measure(Row("x", "y", "/s", [Way("plain", broken, 1)]), 1, 0.0)

    def test_a_goal_is_judged_by_rates_or_by_its_limit(self) -> None:
        took = {"plain": 6.0, "fast": 2.0, "gguf": 1.0}
        for against, wanted, found, reached in (
            ("plain", 3, 3.0, True), ("plain", 3.1, 3.0, False), ("gguf", 0.5, 0.5, True), ("gmssl", 1, None, None),
            ("limit", 2000, 2000.0, True), ("limit", 1999, 2000.0, False),
        ):  # fmt: skip
            judged = measure._judged(Goal(against, wanted), took)
            self.assertEqual((judged["found"], judged["reached"]), (found, reached), against)


class Verb(unittest.TestCase):
    def run_bench(self, *argv: str) -> Any:
        with without_peers(), mock.patch.object(report, "QUICK_LEAST", 0.0):
            return run_main("bench", "--quick", "--rounds", "1", *argv)

    def test_json_and_picture(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "b.svg")
            ran = self.run_bench("--only", "sm2_*", "--json", "--svg", path)
            self.assertEqual((ran.status, ran.err), (0, ""))
            found = json.loads(ran.out)
            self.assertEqual([r["operation"] for r in found["results"]], ["sm2_sign", "sm2_verify", "sm2_verify"])
            self.assertLessEqual({"date", "python", "machine", "fast", "peers", "rounds", "results"}, set(found))
            if ElementTree is not None:
                root = ElementTree.fromstring(get(path))
                texts = " ".join(t for t in root.itertext() if t)
                for text in ("sm2_verify, known key", found["date"], found["python"], found["machine"]):
                    self.assertIn(text, texts)
                self.assertEqual(root.findall(".//{http://www.w3.org/2000/svg}script"), [])

    def test_the_table_has_a_line_for_each_row(self) -> None:
        ran = self.run_bench("--only", "open")
        self.assertEqual((ran.status, ran.err), (0, ""))
        self.assertIn("\nOPERATION ", ran.out)
        self.assertRegex(ran.out, r"(?m)^open +VQF of 2.33 GB +\S+ +ms +at most 1 ms: (reached|missed)$")

    def test_unknown_names_and_numbers_of_rounds_are_usage_errors(self) -> None:
        for argv in (["--only", "sm5"], ["--rounds", "0"], ["--rounds", "x"], ["sm4_ctr"]):
            self.assertEqual(run_main("bench", *argv).status, 2, argv)

    @unittest.skipUnless(HAS_FAST, "without fast/ nothing can differ")
    def test_a_quick_version_that_differs_makes_the_exit_code_1(self) -> None:
        with mock.patch.object(kernels, "versions", return_value=(lambda *_: 1, lambda *_: 2)):
            ran = self.run_bench("--only", "sm2_sign")
        self.assertEqual(ran.status, 1)
        self.assertIn("sm2_sign", ran.err)


if __name__ == "__main__":
    unittest.main()

"""Names: numbers, shards, groups, and which files an item stands for.

The spec's own examples (sections 3, 9.1 and 10), those that were observed with the engine among them.
"""

from __future__ import annotations

import os
import unittest
from collections import namedtuple

import vqfref
from tests.uqff_samples import REPORT, Folder, FolderTest, raised, version
from vqfref.errors import FormatError, UsageError
from vqfref.uqff import naming
from vqfref.uqff.reader import UqffFile

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

Out = namedtuple("Out", "quant shards")
Listing = namedtuple("Listing", "outputs")


def report(**outputs: list[str]) -> Any:
    """As much of a report as the resolution looks at."""
    return Listing([Out(quant, shards) for quant, shards in outputs.items()])


def resolve(items: Any, available: str, outputs: Any = None) -> list[str]:
    """`naming.resolve`, the files given as words; `name-i` stands for name-i.uqff."""
    names = [n if "." in n else n + ".uqff" for n in available.split()]
    return naming.resolve(items, names, outputs, "folder")


class Numbers(unittest.TestCase):
    def test_unsigned_integers_are_ascii_digits_with_an_optional_plus(self) -> None:
        for text in ("0", "7", "007", "+5", "+0", str((1 << 64) - 1), "0" * 40 + "1"):
            self.assertTrue(naming.is_unsigned(text), text)

    def test_what_pythons_int_takes_besides_is_no_number(self) -> None:
        for text in ("", "+", "-1", "-0", "1_000", " 1", "1 ", "1\n", "٣", "²", "1.0", "1e3", "0x1", "++1", "+-1"):
            self.assertFalse(naming.is_unsigned(text), repr(text))

    def test_numbers_end_below_two_to_the_64(self) -> None:
        for text in (str(1 << 64), "+" + str(1 << 64), "9" * 30, "1" + "0" * 400, "1" + "0" * 30):
            self.assertFalse(naming.is_unsigned(text), text)


class Types(unittest.TestCase):
    def test_twenty_two_types_have_names(self) -> None:
        names = (
            "q4_0 q4_1 q5_0 q5_1 q8_0 q8_1 q2k q3k q4k q5k q6k q8k hqq4 hqq8 fp8 afq2 afq3 afq4 afq6 afq8 f8q8 mxfp4"
        )
        self.assertEqual(set(naming.TYPES), set(names.split()))

    def test_shorthands_try_types_in_the_order_off_metal(self) -> None:
        table = {
            "2": "q2k afq2", "3": "q3k afq3", "4": "q4k afq4", "5": "q5k", "6": "q6k afq6", "8": "q8_0 afq8",
        }  # fmt: skip
        for n in range(12):
            wanted = ["%s-0.uqff" % t for t in table.get(str(n), "").split()]
            self.assertEqual(naming.type_files(str(n)), wanted, n)

    def test_type_names_ignore_case(self) -> None:
        self.assertEqual(naming.type_files("Q4K"), ["q4k-0.uqff"])
        self.assertEqual(naming.type_files("MXFP4"), ["mxfp4-0.uqff"])

    def test_unknown_types_stand_for_no_file(self) -> None:
        for text in ("q3_k", "hqq2", "nvfp4", "7", "04", "+4", "", " 4"):
            self.assertEqual(naming.type_files(text), [], text)


class LoaderNames(unittest.TestCase):
    """10.1, the loader's parser."""

    def test_stem_is_split_at_its_last_dash(self) -> None:
        for name, parsed in (
            ("my-model-7-0.uqff", ("my-model-7", 0)), ("q4_0-0", ("q4_0", 0)), ("q4_0-00.uqff", ("q4_0", 0)),
            ("q4_0-12.uqff", ("q4_0", 12)), ("-3.uqff", ("", 3)), ("a--1.uqff", ("a-", 1)), ("q-+2.uqff", ("q", 2)),
            ("q-%d.uqff" % ((1 << 64) - 1), ("q", (1 << 64) - 1)), ("model-1.5", ("model", 1)), (".x-1", (".x", 1)),
        ):  # fmt: skip
            self.assertEqual(naming.parse_shard(name), parsed, name)

    def test_other_names_are_not_sharded(self) -> None:
        for name in ("model.uqff", "q4_0-.uqff", "q4_0-x.uqff", "q4_0-1_0.uqff", "q4_0-%d.uqff" % (1 << 64), "7.uqff", "",
                     "q-٣.uqff", "q- 1.uqff", "a-0.b.uqff"):  # fmt: skip
            self.assertIsNone(naming.parse_shard(name), name)

    def test_one_extension_goes_whatever_it_is(self) -> None:
        self.assertEqual(naming.parse_shard("q4_0-0.gguf"), ("q4_0", 0))
        self.assertEqual(naming.parse_shard("a.b-4.uqff"), ("a.b", 4))
        self.assertIsNone(naming.parse_shard("q4_0-0.tar.gz"))


class GroupNames(unittest.TestCase):
    """10.1, the key of report, verify and inspect."""

    def test_digits_after_the_last_dash_are_cut_off(self) -> None:
        for name, key in (
            ("q4_0-0.uqff", ("q4_0", 0)), ("my-model-7-0.uqff", ("my-model-7", 0)), ("q4_0-007.uqff", ("q4_0", 7)),
            ("a-b-12.uqff", ("a-b", 12)),
        ):  # fmt: skip
            self.assertEqual(naming.group_key(name), key, name)

    def test_no_digits_at_all_count_as_digits(self) -> None:
        self.assertEqual(naming.group_key("q4_0-.uqff")[0], "q4_0")

    def test_else_the_whole_stem_is_the_key(self) -> None:
        for name in ("model.uqff", "q4_0-x.uqff", "q4_0-+1.uqff", "q4_0-1a.uqff", "q-٣.uqff"):
            self.assertEqual(naming.group_key(name), (name[:-5], None), name)

    def test_the_two_parsers_differ_about_plus_and_empty(self) -> None:
        self.assertEqual((naming.parse_shard("q-+1.uqff"), naming.group_key("q-+1.uqff")), (("q", 1), ("q-+1", None)))
        self.assertEqual((naming.parse_shard("q-.uqff"), naming.group_key("q-.uqff")[0]), (None, "q"))


class Resolution(unittest.TestCase):
    """10.2 without a report."""

    def test_any_member_names_the_whole_contiguous_set(self) -> None:
        for item in ("q4_0-0.uqff", "q4_0-1.uqff", "q4_0-2.uqff"):
            self.assertEqual(resolve(item, "q4_0-2 q4_0-0 q4_0-1"), ["q4_0-0.uqff", "q4_0-1.uqff", "q4_0-2.uqff"], item)

    def test_a_gap_ends_the_set_even_for_a_shard_behind_it(self) -> None:
        self.assertEqual(resolve("q4_0-2.uqff", "q4_0-0 q4_0-2"), ["q4_0-0.uqff"])

    def test_a_shard_without_its_first_loads_by_itself(self) -> None:
        self.assertEqual(resolve("q4_0-1.uqff", "q4_0-1 q4_0-2"), ["q4_0-1.uqff"])

    def test_a_set_goes_on_in_the_order_of_numbers_not_of_texts(self) -> None:
        names = ["m-%d.uqff" % i for i in range(12)]
        self.assertEqual(naming.resolve("m-3.uqff", sorted(names), None, "folder"), names)

    def test_a_name_without_index_is_that_file_alone(self) -> None:
        self.assertEqual(resolve("model.uqff", "model model-0"), ["model.uqff"])

    def test_types_and_shorthands_find_their_first_shard(self) -> None:
        self.assertEqual(resolve("q4k", "q4k-0 q4k-1 afq4-0"), ["q4k-0.uqff", "q4k-1.uqff"])
        self.assertEqual(resolve("Q4K", "q4k-0"), ["q4k-0.uqff"])
        self.assertEqual(resolve("4", "afq4-0 q4k-0"), ["q4k-0.uqff"])
        self.assertEqual(resolve("4", "afq4-0 q4_0-0"), ["afq4-0.uqff"])

    def test_four_does_not_mean_q4_0(self) -> None:
        error = raised(resolve, "4", "q4_0-0")
        self.assertIsInstance(error, FormatError)
        self.assertEqual(error.code, "uqff.n1.missing")

    def test_custom_stems_are_reachable_by_file_name_alone(self) -> None:
        self.assertEqual(resolve("gemma-q4k-0.uqff", "gemma-q4k-0"), ["gemma-q4k-0.uqff"])
        for item in ("q4k", "gemma-q4k", "4"):
            self.assertEqual(raised(resolve, item, "gemma-q4k-0").code, "uqff.n1.missing", item)

    def test_an_item_without_extension_expands_as_well(self) -> None:
        # `q4_0-0` parses [obs], and what is collected is `<prefix>-<n>.uqff`
        self.assertEqual(resolve("q4_0-0", "q4_0-0 q4_0-1"), ["q4_0-0.uqff", "q4_0-1.uqff"])
        self.assertEqual(resolve("q4_0-00.uqff", "q4_0-0 q4_0-1"), ["q4_0-0.uqff", "q4_0-1.uqff"])

    def test_an_item_that_is_not_there_expands_by_its_prefix(self) -> None:
        self.assertEqual(resolve("q4_0-7.uqff", "q4_0-0 q4_0-1"), ["q4_0-0.uqff", "q4_0-1.uqff"])

    def test_items_come_as_list_or_with_semicolons(self) -> None:
        wanted = ["b-0.uqff", "b-1.uqff", "a-0.uqff"]
        for items in ("b-0.uqff;a-0.uqff", ["b-1.uqff", "a-0.uqff"], "b-0.uqff;b-1.uqff;a-0.uqff;b-0.uqff"):
            self.assertEqual(resolve(items, "a-0 b-0 b-1"), wanted, items)

    def test_empty_items_are_the_callers_fault(self) -> None:
        for items in ("", ";", "a-0.uqff;", ";a-0.uqff", "a-0.uqff;;a-0.uqff", [], [""], ["a-0.uqff", ""]):
            self.assertIsInstance(raised(resolve, items, "a-0"), UsageError, items)

    def test_spaces_belong_to_an_item(self) -> None:
        error = raised(resolve, "a-0.uqff; b.uqff", "a-0 b")
        self.assertEqual((error.code, error.field), ("uqff.n1.missing", " b.uqff"))

    def test_a_missing_file_is_named_with_folder_and_shards_there(self) -> None:
        for item in ("x.uqff", "4", "q5k"):
            error = raised(naming.resolve, item, ["q4_0-0.uqff", "config.json"], None, "/some/folder")
            self.assertEqual(error.code, "uqff.n1.missing")
            for word in (item, "/some/folder", "q4_0-0.uqff"):
                self.assertIn(word, str(error))

    def test_names_of_any_length_are_resolved_or_refused(self) -> None:
        for item in ("q-" + "0" * 5000 + "1", "q-" + "9" * 5000, "0" * 5000):
            self.assertIsInstance(raised(resolve, item, "q-0"), (vqfref.VqfrefError, type(None)))


class ResolutionByReport(unittest.TestCase):
    """10.2 with a report."""

    def test_a_reported_shard_stands_for_its_outputs_list_in_its_order(self) -> None:
        r = report(q4k=["q4k-1.uqff", "q4k-0.uqff"])
        for item in ("q4k-0.uqff", "q4k-1.uqff"):
            self.assertEqual(resolve(item, "q4k-0 q4k-1", r), ["q4k-1.uqff", "q4k-0.uqff"])

    def test_a_shard_that_the_report_leaves_out_is_ignored(self) -> None:
        r = report(q4k=["q4k-0.uqff"])
        for item in ("q4k-0.uqff", "q4k", "Q4k", "4"):
            self.assertEqual(resolve(item, "q4k-0 q4k-1", r), ["q4k-0.uqff"], item)

    def test_quants_of_any_name_match_whatever_the_case(self) -> None:
        r = report(MyQuant=["strange name.uqff"])
        self.assertEqual(naming.resolve("mYqUANT", ["strange name.uqff"], r, "folder"), ["strange name.uqff"])

    def test_shorthands_match_aliases_of_quants_in_their_order(self) -> None:
        r = report(afq4=["a.uqff"], q4k=["b.uqff"])
        self.assertEqual(resolve("4", "a b", r), ["b.uqff"])
        self.assertEqual(resolve("4", "a", report(afq4=["a.uqff"])), ["a.uqff"])
        self.assertEqual(resolve("4", "a", report(AFQ4=["a.uqff"])), ["a.uqff"])

    def test_a_shard_name_goes_before_a_quant(self) -> None:
        r = Listing([Out("x.uqff", ["q.uqff"]), Out("y", ["x.uqff"])])
        self.assertEqual(resolve("x.uqff", "x q", r), ["x.uqff"])

    def test_without_a_match_the_folder_decides(self) -> None:
        r = report(q4k=["q4k-0.uqff"])
        self.assertEqual(resolve("q8_0", "q4k-0 q8_0-0 q8_0-1", r), ["q8_0-0.uqff", "q8_0-1.uqff"])
        self.assertEqual(resolve("q4k-1.uqff", "q4k-0 q4k-1", r), ["q4k-0.uqff", "q4k-1.uqff"])


class Groups(unittest.TestCase):
    """10.3."""

    FILES = ("b-1.uqff", "b-0.uqff", "a-10.uqff", "a-9.uqff", "q4k-0.uqff", "q4k-1.uqff", "single.uqff", "config.json")
    REPORT = report(q4k=["q4k-0.uqff"])

    def test_reported_groups_come_first_then_the_unclaimed_by_key(self) -> None:
        found = naming.groups(self.FILES, self.REPORT)
        self.assertEqual([(g.name, g.files) for g in found], [
            ("q4k", ["q4k-0.uqff"]), ("a", ["a-9.uqff", "a-10.uqff"]), ("b", ["b-0.uqff", "b-1.uqff"]),
            ("q4k", ["q4k-1.uqff"]), ("single", ["single.uqff"]),
        ])  # fmt: skip
        self.assertEqual([g.output is not None for g in found], [True, False, False, False, False])

    def pick(self, quant: Any, outputs: Any = None) -> list[Any]:
        found = naming.groups(self.FILES, outputs)
        return [(g.name, g.files) for g in naming.select(quant, found, self.FILES)]

    def test_none_and_all_select_every_group(self) -> None:
        self.assertEqual(len(self.pick(None, self.REPORT)), 5)
        self.assertEqual(self.pick("all", self.REPORT), self.pick(None, self.REPORT))

    def test_a_file_name_selects_its_group(self) -> None:
        self.assertEqual(self.pick("q4k-1.uqff", self.REPORT), [("q4k", ["q4k-1.uqff"])])
        self.assertEqual(self.pick("a-10.uqff"), [("a", ["a-9.uqff", "a-10.uqff"])])

    def test_a_quant_selects_the_reported_group_before_an_unclaimed_key(self) -> None:
        for quant in ("q4k", "Q4K", "4"):
            self.assertEqual(self.pick(quant, self.REPORT), [("q4k", ["q4k-0.uqff"])], quant)

    def test_an_unclaimed_key_matches_exactly_or_by_shorthand(self) -> None:
        self.assertEqual(self.pick("single"), [("single", ["single.uqff"])])
        self.assertEqual(self.pick("4"), [("q4k", ["q4k-0.uqff", "q4k-1.uqff"])])
        self.assertEqual(self.pick("Q4K"), [("q4k", ["q4k-0.uqff", "q4k-1.uqff"])])  # by the type's first file
        self.assertIsInstance(raised(self.pick, "Single"), UsageError)

    def test_no_match_is_an_error_that_lists_the_shards(self) -> None:
        error = raised(self.pick, "q8_0", self.REPORT)
        self.assertIsInstance(error, UsageError)
        for name in self.FILES[:-1]:
            self.assertIn(name, str(error))
        self.assertNotIn("config.json", str(error))


class Opening(FolderTest):
    """Items, folders and shards through UqffFile and vqfref.open."""

    def folder(self, *shards: str, **files: bytes) -> str:
        tensors = {name: (None, {**version(), "t.%s" % name: version()["uqff.version.major"]}) for name in shards}
        return self.place(Folder(tensors, {k.replace("__", "."): v for k, v in files.items()}))

    def names(self, path: str, items: Any = None) -> list[str]:
        with UqffFile(path, items) as f:
            return f.names

    def test_a_folder_of_one_group_opens_as_that(self) -> None:
        path = self.folder("m-0.uqff", "m-1.uqff")
        self.assertEqual(self.names(path), ["m-0.uqff", "m-1.uqff"])
        with vqfref.open(path) as f:
            self.assertEqual((f.format, f.names), ("uqff", ["m-0.uqff", "m-1.uqff"]))

    def test_a_folder_of_several_groups_asks_for_one_and_lists_them(self) -> None:
        path = self.folder("q4k-0.uqff", "afq4-0.uqff", "other.uqff")
        error = raised(vqfref.open, path)
        self.assertIsInstance(error, UsageError)
        for name in ("q4k", "afq4", "other"):
            self.assertIn(name, str(error))

    def test_a_folder_and_a_type_shorthand_or_shard_is_a_path(self) -> None:
        path = self.folder("q4k-0.uqff", "q4k-1.uqff", "afq4-0.uqff")
        for last, wanted in (
            ("q4k", ["q4k-0.uqff", "q4k-1.uqff"]), ("Q4K", ["q4k-0.uqff", "q4k-1.uqff"]), ("4", ["q4k-0.uqff", "q4k-1.uqff"]),
            ("afq4", ["afq4-0.uqff"]), ("q4k-1.uqff", ["q4k-0.uqff", "q4k-1.uqff"]), ("q4k-0", ["q4k-0.uqff", "q4k-1.uqff"]),
        ):  # fmt: skip
            with vqfref.open(os.path.join(path, last)) as f:
                self.assertEqual(f.names, wanted, last)
            self.assertEqual(vqfref.sniff(os.path.join(path, last)), "uqff")

    def test_a_name_of_nothing_is_n1_with_name_and_folder(self) -> None:
        path = self.folder("q4k-0.uqff")
        for last in ("q8_0", "8", "nothing.uqff"):
            error = raised(vqfref.open, os.path.join(path, last))
            self.assertEqual(error.code, "uqff.n1.missing", last)
            self.assertIn(last, str(error))
            self.assertIn(path, str(error))

    def test_a_folder_without_shards_is_no_uqff(self) -> None:
        path = self.new()
        os.mkdir(path)
        self.assertEqual(raised(UqffFile, path).code, "uqff.n1.missing")
        self.assertNotEqual(vqfref.sniff(path), "uqff")

    def test_the_report_decides_what_belongs_to_a_set(self) -> None:
        output = (
            b'{"quant": "q4k", "shards": ["b.uqff", "a.uqff"], "layers": 0, "actual_counts": {}, "fallback_count": 0}'
        )
        root = b'{"schema": 1, "generated_by": {"tool": "t"}, "uqff_version": "1.2.0", "outputs": [' + output + b"]}"
        shards = {n: (None, {**version(), "t." + n: version()["uqff.version.major"]}) for n in ("a.uqff", "b.uqff")}
        path = self.place(Folder(shards, {REPORT: root}))
        for items in (None, "q4k", "4", "a.uqff", ["b.uqff", "q4k"]):
            self.assertEqual(self.names(path, items), ["b.uqff", "a.uqff"], items)

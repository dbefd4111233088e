"""strictjson: every text here goes through both parsers, and both must say the same, to the byte.

The truth is partly RFC 8259, in the tables, and partly the json module, where strictness makes no difference.
"""

from __future__ import annotations

import json
import json.scanner
import random
import subprocess
import sys
import unittest
from contextlib import contextmanager
from pathlib import Path

from tests.tools import thorough
from vqfref import strictjson
from vqfref.errors import WORDS, FormatError, LimitError, VqfrefError
from vqfref.strictjson import MAX_DEPTH, MAX_DIGITS, MAX_NAME, dumps, loads

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterator

HAS_QUICK = getattr(json.scanner, "c_make_scanner", None) is not None
ROOT = str(Path(__file__).resolve().parent.parent)

VALID = [
    ("{}", {}),
    ("[]", []),
    (" \t\r\n[ \t\r\n1 ,\n2 ] \r\n\t", [1, 2]),
    ('{ "a" : { "b" : [ ] } , "c" : null }', {"a": {"b": []}, "c": None}),
    ("[true,false,null]", [True, False, None]),
    ("null", None),
    ('"text"', "text"),
    ('""', ""),
    ('{"":0}', {"": 0}),
    ("0", 0),
    ("-1", -1),
    ("-0", -0.0),
    ("-0.0", -0.0),
    ("0e0", 0.0),
    ("-0e9", -0.0),
    ("0.10", 0.1),
    ("1E+2", 100.0),
    ("1e-2", 0.01),
    ("1.5e3", 1500.0),
    ("1e3", 1000.0),
    ("1e-999", 0.0),
    ("1.7976931348623157e308", 1.7976931348623157e308),
    ("18446744073709551616", 1 << 64),
    ("-9223372036854775809", -(1 << 63) - 1),
    ("9" * MAX_DIGITS, 10**MAX_DIGITS - 1),
    ("-" + "9" * (MAX_DIGITS - 1), 1 - 10 ** (MAX_DIGITS - 1)),
    ("0." + "1" * (MAX_DIGITS - 2), 0.1111111111111111),
    ('"/\x7f\x80\xa0é€😀\ufeff\u2028"', "/\x7f\x80\xa0é€😀\ufeff\u2028"),
    (r'"\"\\\/\b\f\n\r\t"', '"\\/\b\f\n\r\t'),
    (r'"\u0000\u0041\u00e9\u20AC\uD83D\uDE00"', "\0Aé€😀"),
    (r'"\uD800\uDC00\uDBFF\uDFFF"', "\U00010000\U0010ffff"),
    (r'"\\u0041"', "\\u0041"),
    (r'["\"", "\\", "\\\"", "a\\"]', ['"', "\\", '\\"', "a\\"]),
    (r'{"\u0061":1,"\\u0061":2,"A":3}', {"a": 1, "\\u0061": 2, "A": 3}),
    ('["[", "]", "{[", "}", "[]"]', ["[", "]", "{[", "}", "[]"]),
    ('[""," ","",[""]]', ["", " ", "", [""]]),
    ('{"a":{"a":{"a":1}},"b":{"a":1}}', {"a": {"a": {"a": 1}}, "b": {"a": 1}}),
    ('{"%s":1}' % ("k" * MAX_NAME), {"k" * MAX_NAME: 1}),
    ('{"%s":1}' % ("€" * MAX_NAME), {"€" * MAX_NAME: 1}),
]  # fmt: skip

SYNTAX = [  # the text, and where its fault is, in characters
    ("", 0),
    (" \n", 2),
    ("\0", 0),
    ("\ufeff{}", 0),
    ("{}\0", 2),
    ("{} {}", 3),
    ("{},", 2),
    ("1 2", 2),
    ("\x0b1", 0),
    ("\xa01", 0),
    ("[", 1),
    ("[1", 2),
    ("[1,", 3),
    ("[1,]", 3),
    ("[,1]", 1),
    ("[1 2]", 3),
    ("[1}", 2),
    ("]", 0),
    ("{", 1),
    ('{"a"', 4),
    ('{"a":', 5),
    ('{"a":1', 6),
    ('{"a":1,', 7),
    ('{"a":1,}', 7),
    ('{"a" 1}', 5),
    ('{"a":}', 5),
    ('{"a",1}', 4),
    ('{"a":1]', 6),
    ("{a:1}", 1),
    ("{'a':1}", 1),
    ("{1:1}", 1),
    ("{,}", 1),
    ("[{]}", 2),
    ("NaN", 0),
    ("[Infinity]", 1),
    ("[-Infinity]", 1),
    ("nul", 0),
    ("nulls", 4),
    ("True", 0),
    ("[1]/**/", 3),
    ("+1", 0),
    (".5", 0),
    ("-", 0),
    ("--1", 0),
    ("01", 0),
    ("-01", 0),
    ("00", 0),
    ("1.", 0),
    ("1.e5", 0),
    ("-.5", 0),
    ("1e", 0),
    ("1e+", 0),
    ("1e5.5", 0),
    ("1e5e5", 0),
    ("1.2.3", 0),
    ("1-1", 0),
    ("[0,1+]", 3),
    ("0x10", 1),
    ("1_000", 1),
    ("1,", 1),
    ("１", 0),
    ("1１", 1),
    ('["é", ٣]', 6),
    ('"', 0),
    ('["a', 1),
    ('["a, 1]', 1),
    ("'a'", 0),
    ('"a\tb"', 2),
    ('"a\nb"', 2),
    ('"a\0"', 2),
    ('"\x1f"', 1),
    ('"é€😀\x01"', 4),
    ('{"a\n":1}', 3),
    ('"a\\', 0),
    ('"a\\"', 0),
    (r'"\a"', 1),
    (r'"\x41"', 1),
    (r'"\U0041"', 1),
    (r'"\ "', 1),
    (r'"€\u12"', 2),
    (r'"\u12G4"', 1),
    (r'"\u+123"', 1),
    (r'"\u1_23"', 1),
    (r'"\u１２３４"', 1),
    (r'"\ud800\u12"', 7),
    ('"\\n\n"', 3),
]  # fmt: skip

FAULTS = [  # the text, the code, where, in characters
    ('{"a":1,"a":2}', "json.key.duplicate", 7),
    ('{"a":1, "b":2, "a":1}', "json.key.duplicate", 15),
    ('{"":1,"":1}', "json.key.duplicate", 6),
    ('[{"x":{"é":1,"é":2}}]', "json.key.duplicate", 13),
    (r'{"a":1,"\u0061":2}', "json.key.duplicate", 7),
    (r'{"\u00e9":1,"é":2}', "json.key.duplicate", 12),
    (r'{"\ud83d\ude00":1,"😀":2}', "json.key.duplicate", 18),
    (r'{"/":1,"\/":2}', "json.key.duplicate", 7),
    ('{"a":{},"a":', "json.key.duplicate", 8),
    ("1e999", "json.number.range", 0),
    ("[1,-1e999]", "json.number.range", 3),
    ("1.8e308", "json.number.range", 0),
    ('["é", %s.5]' % ("9" * 400), "json.number.range", 6),
    (r'"\ud800"', "json.surrogate.json", 1),
    (r'"é\udfff"', "json.surrogate.json", 2),
    (r'"\ud800\ud800\udc00"', "json.surrogate.json", 1),
    (r'"\ud800\u0041"', "json.surrogate.json", 1),
    (r'"\ud800\n"', "json.surrogate.json", 1),
    (r'"\ud800x\udc00"', "json.surrogate.json", 1),
    (r'"\udc00\ud800"', "json.surrogate.json", 1),
    (r'"\udc00\udc00"', "json.surrogate.json", 1),
    (r'"\ud800\ue000"', "json.surrogate.json", 1),
    (r'{"\ud800":1}', "json.surrogate.json", 2),
    ("1" * (MAX_DIGITS + 1), "json.digits.limit", 0),
    ("[-%s]" % ("1" * MAX_DIGITS), "json.digits.limit", 1),
    ("[1.%s]" % ("1" * MAX_DIGITS), "json.digits.limit", 1),
    ("1e" + "0" * MAX_DIGITS, "json.digits.limit", 0),
    ("0" * 1000000, "json.digits.limit", 0),
    ('[{"é":{"%s":1}}]' % ("k" * (MAX_NAME + 1)), "json.name.limit", 7),
    ('{"%s":1}' % ("\\n" * (MAX_NAME + 1)), "json.name.limit", 1),
    ("[" * (MAX_DEPTH + 1) + "]" * (MAX_DEPTH + 1), "json.depth.limit", MAX_DEPTH),
    ('{"a":' * (MAX_DEPTH + 1) + "1" + "}" * (MAX_DEPTH + 1), "json.depth.limit", 5 * MAX_DEPTH),
    ("[" * 100000, "json.depth.limit", MAX_DEPTH),
    ("[" * 100000 + "]" * 100000, "json.depth.limit", MAX_DEPTH),
    ('{"a":' * 100000, "json.depth.limit", 5 * MAX_DEPTH),
    ('["]",' * 100000, "json.depth.limit", 5 * MAX_DEPTH),  # as brackets alone: [][][]
    ('["]",' * 100 + "1" + ',"["]' * 100, "json.depth.limit", 5 * MAX_DEPTH),
    ("[[]," * 100 + "1" + "]" * 100, "json.depth.limit", 4 * (MAX_DEPTH - 1) + 1),
]  # fmt: skip

NO_UTF8 = [
    (b"\xff", 0),
    (b"\xff\xfe{\0}\0", 0),
    (b'"\xe2\x82', 1),
    (b'["\xc3\xa9", "\xc3"]', 8),
    (b'"\xc0\x80"', 1),
    (b'"\xed\xa0\x80"', 1),
    (b'"\xf4\x90\x80\x80"', 1),
    (b"[1, 2, oops \x80", 12),
]  # fmt: skip

SMALL = '{"a é":{"dtype":"F16","shape":[2,-0,3],"data_offsets":[0,12e1]},"\\u00e9\\n":[true,null,"x",-1.5]} '.encode()
BOUNDARY = b'\0\x01\x1f !"+-./019:,Ee[\\]anu{}\x7f\x80\xbf\xc0\xc3\xe2\xed\xf0\xf4\xff'


@contextmanager
def without_json() -> Iterator[None]:
    """`import json` fails within."""
    saved = sys.modules["json"]
    sys.modules["json"] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        sys.modules["json"] = saved


def outcome(data: Any, **where: Any) -> tuple[Any, ...]:
    """All that a caller sees of loads, comparable: repr tells 0.0 from -0.0, 1 from 1.0, and orders of keys."""
    try:
        return ("value", repr(loads(data, **where)))
    except VqfrefError as error:
        return (type(error), error.code, error.offset, error.field, error.path, error.message)


def int_or_negative_zero(literal: str) -> float:
    return -0.0 if literal == "-0" else int(literal)


def height(value: Any) -> int:
    """How many arrays and objects lie inside each other."""
    inner = value.values() if isinstance(value, dict) else value
    return 1 + max(map(height, inner), default=0) if isinstance(value, (list, dict)) else 0


def random_text(rng: random.Random) -> str:
    alphabet = rng.choice(["ab", 'a"\\/\n\t[]{}', "aé€😀\0\x7f\x85\u2028", "[]{},:"])
    return "".join(rng.choice(alphabet) for _ in range(rng.randrange(6)))


def random_value(rng: random.Random, depth: int) -> Any:
    kind = rng.randrange(8 if depth else 6)
    if kind == 0:
        return rng.choice([None, True, False])
    if kind == 1:
        return rng.randrange(-(10 ** rng.randrange(1, 40)), 10 ** rng.randrange(1, 40))
    if kind == 2:
        return rng.choice([0.0, -0.0, 1e300, 5e-324, rng.uniform(-1, 1), rng.uniform(-1e9, 1e9)])
    if kind < 6:
        return random_text(rng)
    size = rng.randrange(5)
    if kind == 6:
        return [random_value(rng, depth - 1) for _ in range(size)]
    return {random_text(rng): random_value(rng, depth - 1) for _ in range(size)}


class BothWays(unittest.TestCase):
    def read(self, data: Any, **where: Any) -> tuple[Any, ...]:
        """The outcome of loads, after proof that it does not depend on the json module."""
        with_json = outcome(data, **where)
        with without_json():
            self.assertEqual(outcome(data, **where), with_json, msg=repr(data[:200]))
        return with_json

    def assert_fault(self, text: str, code: str, place: int) -> None:
        """As str and as bytes, the fault has this code, and the byte offset of this place in the text."""
        data = text.encode("utf-8")
        kind = LimitError if code.endswith(".limit") else FormatError
        offset = len(text[:place].encode("utf-8"))
        found = self.read(data)
        self.assertEqual(found[:3], (kind, code, offset), msg=repr(text[:200]))
        self.assertEqual(outcome(text), found)
        self.assertIn(code.rsplit(".", 1)[1], WORDS)
        self.assertRegex(found[5], "^found .+, expected .+")


class TestReading(BothWays):
    def test_every_valid_text_has_its_value(self) -> None:
        for text, value in VALID:
            with self.subTest(text[:60]):
                data = text.encode("utf-8")
                for given in (data, bytearray(data), memoryview(data), text):
                    self.assertEqual(self.read(given), ("value", repr(value)))

    def test_every_syntax_error_is_found_at_its_byte(self) -> None:
        for text, place in SYNTAX:
            with self.subTest(text[:60]):
                self.assert_fault(text, "json.syntax.json", place)

    def test_every_other_fault_is_found_at_its_byte(self) -> None:
        for text, code, place in FAULTS:
            with self.subTest(text[:60]):
                self.assert_fault(text, code, place)

    def test_bytes_that_are_no_utf8_are_found_at_the_first_wrong_one(self) -> None:
        for data, offset in NO_UTF8:
            with self.subTest(data):
                self.assertEqual(self.read(data)[:3], (FormatError, "json.utf8.json", offset))

    def test_a_str_with_a_surrogate_is_no_utf8_either(self) -> None:
        self.assertEqual(self.read('["é", "\udc80"]')[:3], (FormatError, "json.utf8.json", 8))

    def test_other_unicode_encodings_are_not_guessed(self) -> None:
        for encoding in ("utf-16", "utf-16-le", "utf-32-be", "utf-8-sig"):
            self.assertEqual(self.read('{"a":1}'.encode(encoding))[0], FormatError)

    def test_a_duplicate_names_its_key(self) -> None:
        self.assertEqual(self.read(b'{"weight":1,"w\\u0065ight":2}')[3], "weight")

    def test_errors_carry_the_path_and_count_from_the_offset(self) -> None:
        for data, code, offset in (
            ('["é",]'.encode(), "json.syntax.json", 1006),
            (b'{"a":1,"a":1}', "json.key.duplicate", 1007),
            (b"[ \xff]", "json.utf8.json", 1002),
        ):
            found = self.read(data, path="m.safetensors", offset=1000)
            self.assertEqual((found[1], found[2], found[4]), (code, offset, "m.safetensors"))

    def test_a_memoryview_may_have_gaps(self) -> None:
        self.assertEqual(self.read(memoryview(b"[.1.,.2.].")[::2]), ("value", "[1, 2]"))

    def test_64_levels_are_fine_and_65_are_not(self) -> None:
        for left, right in (("[", "]"), ('{"a":', "}"), ("[ [], ", " ]"), ('["", ', ', "a"]'), ('[{"a":[1]}, ', "]")):
            for levels in (MAX_DEPTH - 3, MAX_DEPTH, MAX_DEPTH + 1, MAX_DEPTH + 2):
                with self.subTest((left, levels)):
                    text = left * levels + "1" + right * levels
                    value = json.loads(text)
                    found = self.read(text)
                    if height(value) <= MAX_DEPTH:
                        self.assertEqual(found, ("value", repr(value)))
                    else:
                        self.assertEqual(found[:2], (LimitError, "json.depth.limit"))

    def test_an_integer_longer_than_python_is_set_to_read_is_a_limit(self) -> None:
        if not hasattr(sys, "set_int_max_str_digits"):
            self.skipTest("this Python has no such setting")
        saved = sys.get_int_max_str_digits()
        sys.set_int_max_str_digits(640)
        try:
            self.assertEqual(self.read(b"[%s]" % (b"1" * 700))[:3], (LimitError, "json.digits.limit", 1))
        finally:
            sys.set_int_max_str_digits(saved)

    @thorough
    def test_long_texts_take_linear_time(self) -> None:
        n = 50000  # in quadratic time, minutes
        for text in (
            '"' + '\\"' * n,
            '["' + "\\n" * n + '"]',
            '"' + "\\u0041" * n + '"',
            "[" + '"\\\\",' * (n // 4) + "1]",
            " " * n + "1" + " " * n,
            '"' + "\x80" * n + '"',
            "[" + "1," * (n // 4) + "1]",
            "1" * n,
            '["' * n,
            "{" + ",".join('"%d":%d' % (i, i) for i in range(n // 10)) + "}",
        ):
            self.read(text)


class TestAgainstTheJsonModule(BothWays):
    def test_random_documents_read_alike(self) -> None:
        rng = random.Random(8259)
        for _ in range(800):
            value = random_value(rng, 4)
            separators = rng.choice([(",", ":"), (", ", ": "), (" ,\t", "\r\n:\n")])
            indent, ensure_ascii = rng.choice([None, 2]), rng.random() < 0.5
            text = json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators)
            self.assertEqual(self.read(text.encode("utf-8")), ("value", repr(value)))

    def test_what_is_read_from_damaged_documents_is_what_json_reads(self) -> None:
        rng = random.Random(65)
        for _ in range(2500):
            data = bytearray(dumps(random_value(rng, 3)).encode())
            at = rng.randrange(len(data))
            data[at : at + rng.randrange(3)] = bytes(rng.choice(BOUNDARY) for _ in range(rng.randrange(3)))
            self.check_damaged(bytes(data))

    def test_a_document_cut_anywhere_is_refused(self) -> None:
        self.assertEqual(self.read(SMALL)[0], "value")
        for end in range(len(SMALL) - 1):
            self.assertNotEqual(self.check_damaged(SMALL[:end])[0], "value")

    def test_any_byte_changed_to_a_boundary_value_is_read_rightly_or_refused(self) -> None:
        for at in range(len(SMALL)):
            for value in BOUNDARY:
                self.check_damaged(SMALL[:at] + bytes([value]) + SMALL[at + 1 :])

    def check_damaged(self, data: bytes) -> tuple[Any, ...]:
        """Read both ways: a value must be json's too; an error has a place in the data and a word of the list."""
        found = self.read(data)
        if found[0] == "value":
            self.assertEqual(found[1], repr(json.loads(data, parse_int=int_or_negative_zero)))
        else:
            self.assertIn(found[1].rsplit(".", 1)[1], WORDS)
            self.assertTrue(0 <= found[2] <= len(data), msg=data)
        return found


class TestTheTwoPaths(unittest.TestCase):
    def setUp(self) -> None:
        plain = strictjson._parse_plain
        self.plain_calls: list[str] = []

        def counted(text: str) -> Any:
            self.plain_calls.append(text)
            return plain(text)

        self.addCleanup(setattr, strictjson, "_parse_plain", plain)
        strictjson._parse_plain = counted

    def test_the_quick_parser_reads_usual_headers_alone(self) -> None:
        if not HAS_QUICK:
            self.skipTest("no C scanner here")
        loads('{"é":{"dtype":"F16","shape":[2,-0],"data_offsets":[0,1e1]},"__metadata__":{"":""}}')
        loads("[" * MAX_DEPTH + "]" * MAX_DEPTH)
        self.assertEqual(self.plain_calls, [])

    def test_the_plain_parser_takes_over_at_any_doubt(self) -> None:
        doubts = ['"\\n"', '["["]', "[" * 65 + "]" * 65, '{"a":1,"a":2}', "NaN", "1e999", "[1,]"]
        for text in doubts:
            outcome(text)
        self.assertEqual(self.plain_calls, doubts)

    def test_integers_are_the_same_by_both(self) -> None:
        for text in (
            "-0",
            "10",
            "-1",
            "9" * 599,
            "9" * 600,
            "1" * 640,
            "1" * 1000,
            "1" * 1001,
            "[1,-0,2]",
            "-0.0",
            "01",
        ):
            quick = outcome(text)
            with without_json():
                plain = outcome(text)
            self.assertEqual(repr(quick), repr(plain), text[:20])

    def test_without_json_the_plain_parser_does_it_all(self) -> None:
        with without_json():
            self.assertEqual(loads("[1]"), [1])
        self.assertEqual(self.plain_calls, ["[1]"])

    def test_a_foreign_module_named_json_does_no_harm(self) -> None:
        saved = sys.modules["json"]
        sys.modules["json"] = sys  # a module, but not that one
        try:
            self.assertEqual(loads("[1]"), [1])
        finally:
            sys.modules["json"] = saved

    def test_the_import_loads_neither_json_nor_re_nor_typing(self) -> None:
        code = "import sys; sys.path.insert(0, %r); import vqfref.strictjson; print(sorted(sys.modules))" % ROOT
        listed = subprocess.check_output([sys.executable, "-S", "-E", "-c", code]).decode()
        self.assertIn("'vqfref.strictjson'", listed)
        for module in ("json", "re", "typing"):
            self.assertNotIn("'%s'" % module, listed)


class TestWriting(unittest.TestCase):
    def test_random_values_are_written_as_json_writes_them(self) -> None:
        rng = random.Random(4627)
        for _ in range(800):
            value = random_value(rng, 4)
            self.assertEqual(dumps(value), json.dumps(value, separators=(",", ":")))
            for indent in (0, 1, 4):
                self.assertEqual(dumps(value, indent=indent), json.dumps(value, indent=indent))

    def test_what_is_written_is_read_again(self) -> None:
        rng = random.Random(7159)
        for _ in range(300):
            value = random_value(rng, 4)
            self.assertEqual(repr(loads(dumps(value, indent=rng.choice([None, 2])))), repr(value))

    def test_every_character_is_written_as_json_writes_it(self) -> None:
        text = "".join(map(chr, range(0x300))) + "\u2028\ud7ff\ud800\udc80\udfff\ue000\uffff\U00010000\U0010ffff"
        self.assertEqual(dumps(text), json.dumps(text))

    def test_lone_surrogates_of_file_names_are_written_as_escapes(self) -> None:
        self.assertEqual(dumps(b"\xff.vqf".decode("utf-8", "surrogateescape")), '"\\udcff.vqf"')

    def test_numbers_without_json_are_written_as_strings(self) -> None:
        inf = float("inf")
        self.assertEqual(dumps([inf - inf, inf, -inf]), '["NaN","Infinity","-Infinity"]')

    def test_tuples_are_lists_and_empty_containers_stay_on_their_line(self) -> None:
        self.assertEqual(dumps((1, (), [], {})), "[1,[],[],{}]")
        self.assertEqual(dumps({"a": [], "b": {}}, indent=2), '{\n  "a": [],\n  "b": {}\n}')

    def test_subclasses_are_written_as_their_bases(self) -> None:
        class Named(int):
            def __repr__(self) -> str:
                return "Named"

        class Marked(float):
            def __repr__(self) -> str:
                return "Marked"

        self.assertEqual(dumps([Named(3), Marked(0.5)]), "[3,0.5]")

    def test_the_order_of_keys_is_kept(self) -> None:
        self.assertEqual(dumps({"b": 1, "a": 2}), '{"b":1,"a":2}')

    def test_anything_else_is_a_type_error(self) -> None:
        for value in (b"a", {1}, 1j, object(), range(2), [b""], {"a": {1: 2}}, {None: 1}, {("a",): 1}, {b"a": 1}):
            with self.assertRaises(TypeError):
                dumps(value)


if __name__ == "__main__":
    unittest.main()

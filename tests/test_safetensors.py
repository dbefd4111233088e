"""safetensors: every rule of the container as a file that breaks it alone, what is legal, model folders, peers' files.

The rules are those of the format's description and of UQFF section 2. The files in kat/files/safetensors are written by
the safetensors package itself; verdicts.json has its opinion of small files, right and wrong (kat/gen/blocks.py).
"""

from __future__ import annotations

import json
import os
import random
import struct
import tempfile
import time
import tracemalloc
import unittest
from array import array
from collections import namedtuple
from pathlib import Path

import vqfref
from tests import tools
from tests.test_strictjson import without_json
from tests.tools import thorough
from vqfref import weights
from vqfref.errors import FormatError, LimitError, TensorNotFound, UnsupportedError, UsageError, VqfrefError
from vqfref.findings import Findings
from vqfref.safetensors import explain, reader, writer
from vqfref.safetensors.reader import SafetensorsFile
from vqfref.source import Source

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

FILES = Path(__file__).resolve().parent.parent / "kat" / "files" / "safetensors"
MIB = 1 << 20


def stored(name: str) -> Any:
    return json.loads((FILES / name).read_text(encoding="utf-8"))


def file(header: object, data: bytes = b"", length: int | None = None) -> bytes:
    """A file of a header, as text or as what json makes of it, and of data; `length` if the header's is to be wrong."""
    if isinstance(header, (str, bytes)):
        raw = header if isinstance(header, bytes) else header.encode("utf-8", "surrogatepass")
    else:
        raw = json.dumps(header, separators=(",", ":")).encode()
    return struct.pack("<Q", len(raw) if length is None else length) + raw + data


def entry(dtype: object = "F32", shape: object = (1,), offsets: object = (0, 4), **more: object) -> dict[str, object]:
    return {"dtype": dtype, "shape": shape, "data_offsets": offsets, **more}


def one(**parts: object) -> bytes:
    """A file of one tensor "a" of four bytes, with some parts of its entry replaced."""
    return file({"a": entry(**parts)}, b"\0\0\x80\x3f")


def text_entry(shape: str = "[1]", offsets: str = "[0,4]", dtype: str = '"F32"') -> str:
    return '{"dtype":%s,"shape":%s,"data_offsets":%s}' % (dtype, shape, offsets)


GOOD = text_entry()

Fault = namedtuple("Fault", "code field offset data")


def fault(code: str, data: bytes, field: str | None = None, offset: int | None = 8) -> Fault:
    return Fault(code, field, offset, data)


def pair(*offsets: tuple[int, int], size: int = 8) -> bytes:
    """A file of tensors a, b … of U8 at these offsets."""
    rows = {chr(97 + i): entry("U8", [e - b], [b, e]) for i, (b, e) in enumerate(offsets)}
    return file(rows, bytes(size))


def data_start(data: bytes) -> int:
    return 8 + struct.unpack_from("<Q", data)[0]


HOLE, GAP, OVERLAP, TWICE = pair((4, 8)), pair((0, 3), (4, 8)), pair((0, 5), (4, 8)), pair((0, 8), (0, 8))
SHORT, LONG = pair((0, 8), size=7), pair((0, 8), size=9)

FAULTS: dict[str, Fault] = {
    # the length
    "an empty file": fault("st.length.truncated", b"", offset=0),
    "seven bytes": fault("st.length.truncated", b"\2\0\0\0\0\0\0", offset=7),
    "a header one byte longer than the file": fault("st.length.bounds", file("{}", b"", 3), offset=0),
    "a length alone": fault("st.length.bounds", struct.pack("<Q", 2), offset=0),
    "a header of a hundred million bytes in a small file": fault("st.length.bounds", file("{}", b"", 10**8), offset=0),
    "a header above the limit": fault("st.length.limit", file("{}", b"", 10**8 + 1), offset=0),
    "a length of 2^63": fault("st.length.limit", file("{}", b"", 1 << 63), offset=0),
    "a length that wraps to the file's start": fault("st.length.limit", file("{}", b"", (1 << 64) - 8), offset=0),
    "a length that wraps to the header's end": fault("st.length.limit", file("{}", b"", (1 << 64) - 6), offset=0),
    "a length that is 2 in its low 32 bits": fault("st.length.limit", file("{}", b"", (1 << 32) + 2), offset=0),
    # the text
    "no header at all": fault("st.header.json", file(""), offset=0),
    "bytes that are not UTF-8": fault("json.utf8.json", file(b'{"\xff":%s}' % GOOD.encode(), bytes(4)), offset=10),
    "UTF-8 of a surrogate": fault("json.utf8.json", file('{"\ud800":%s}' % GOOD, bytes(4)), offset=10),
    "an overlong UTF-8": fault("json.utf8.json", file(b'{"\xc0\x80":%s}' % GOOD.encode(), bytes(4)), offset=10),
    "UTF-16": fault("json.utf8.json", file("{}".encode("utf-16"))),
    "a byte order mark": fault("json.syntax.json", file("\ufeff{}")),
    "an array": fault("st.header.json", file("[]")),
    "a string": fault("st.header.json", file('"{}"')),
    "a number": fault("st.header.json", file("1")),
    "null": fault("st.header.json", file("null")),
    "two objects": fault("json.syntax.json", file("{}{}"), offset=10),
    "half an object": fault("json.syntax.json", file('{"a"'), offset=12),
    "NUL padding": fault("json.syntax.json", file("{}\0\0\0\0\0\0"), offset=10),
    "a comment": fault("json.syntax.json", file("{/**/}"), offset=9),
    "a comma too many": fault("json.syntax.json", file('{"a":%s,}' % GOOD, bytes(4)), offset=8 + len('{"a":%s,' % GOOD)),
    "single quotes": fault("json.syntax.json", file("{'a':1}"), offset=9),
    "NaN": fault("json.syntax.json", file('{"a":NaN}'), offset=13),
    # keys
    "a tensor twice": fault("json.key.duplicate", file('{"a":%s,"a":%s}' % (GOOD, GOOD), bytes(4)), "a", 14 + len(GOOD)),
    "a tensor twice, once by an escape": fault(
        "json.key.duplicate", file('{"a":%s,"\\u0061":%s}' % (GOOD, GOOD), bytes(4)), "a", 14 + len(GOOD)
    ),
    "a field twice": fault("json.key.duplicate", file('{"a":{"dtype":"F32",%s}' % GOOD[1:], bytes(4)), "dtype", 28),
    "a field twice, once by an escape": fault(
        "json.key.duplicate", file('{"a":{"\\u0064type":"F32",%s}' % GOOD[1:], bytes(4)), "dtype", 33
    ),
    "metadata twice": fault("json.key.duplicate", file('{"__metadata__":{},"__metadata__":{}}'), "__metadata__", 27),
    "a key of metadata twice": fault("json.key.duplicate", file('{"__metadata__":{"k":"","k":""}}'), "k", 32),
    "an unknown field's key twice": fault(
        "json.key.duplicate", file('{"a":{"x":{"y":1,"y":2},%s}' % GOOD[1:], bytes(4)), "y", 25
    ),
    # metadata
    "metadata that is a list": fault("st.metadata.json", file({"__metadata__": []}), "__metadata__"),
    "metadata that is text": fault("st.metadata.json", file({"__metadata__": "k"}), "__metadata__"),
    "metadata that is null": fault("st.metadata.json", file({"__metadata__": None}), "__metadata__"),
    "metadata with a number": fault("st.metadata.json", file({"__metadata__": {"k": 1}}), "__metadata__"),
    "metadata with null": fault("st.metadata.json", file({"__metadata__": {"j": "", "k": None}}), "__metadata__"),
    "metadata with a list": fault("st.metadata.json", file({"__metadata__": {"k": ["v"]}}), "__metadata__"),
    "metadata with an object": fault("st.metadata.json", file({"__metadata__": {"k": {}}}), "__metadata__"),
    # entries
    "an entry that is a number": fault("st.entry.json", file({"a": 1}), "a"),
    "an entry that is null": fault("st.entry.json", file({"a": None}), "a"),
    "an entry that is a list": fault("st.entry.json", file({"a": ["F32", [1], [0, 4]]}, bytes(4)), "a"),
    "an entry that is text": fault("st.entry.json", file({"a": "F32"}), "a"),
    "an empty entry": fault("st.entry.missing", file({"a": {}}), "a"),
    "no dtype": fault("st.entry.missing", file({"a": {"shape": [1], "data_offsets": [0, 4]}}, bytes(4)), "a"),
    "no shape": fault("st.entry.missing", file({"a": {"dtype": "F32", "data_offsets": [0, 4]}}, bytes(4)), "a"),
    "no data_offsets": fault("st.entry.missing", file({"a": {"dtype": "F32", "shape": [1]}}, bytes(4)), "a"),
    # dtypes
    "an unknown dtype": fault("st.entry.dtype", one(dtype="F31"), "a"),
    "a dtype in small letters": fault("st.entry.dtype", one(dtype="f32"), "a"),
    "an empty dtype": fault("st.entry.dtype", one(dtype=""), "a"),
    "a dtype with a space": fault("st.entry.dtype", one(dtype="F32 "), "a"),
    "a dtype that is a number": fault("st.entry.dtype", one(dtype=32), "a"),
    "a dtype that is null": fault("st.entry.dtype", one(dtype=None), "a"),
    "a dtype that is a list": fault("st.entry.dtype", one(dtype=["F32"]), "a"),
    # shapes
    "a shape that is a number": fault("st.entry.shape", one(shape=1), "a"),
    "a shape that is text": fault("st.entry.shape", one(shape="1"), "a"),
    "a shape that is null": fault("st.entry.shape", one(shape=None), "a"),
    "a shape that is an object": fault("st.entry.shape", one(shape={"0": 1}), "a"),
    "a negative dimension": fault("st.entry.shape", one(shape=[-1]), "a"),
    "two negative dimensions": fault("st.entry.shape", one(shape=[-1, -1]), "a"),
    "a float for a dimension": fault("st.entry.shape", one(shape=[1.0]), "a"),
    "an exponent in a dimension": fault("st.entry.shape", file('{"a":%s}' % text_entry("[1e0]"), bytes(4)), "a"),
    "minus zero for a dimension": fault("st.entry.shape", file('{"a":%s}' % text_entry("[-0]", "[0,0]")), "a"),
    "true for a dimension": fault("st.entry.shape", one(shape=[True]), "a"),
    "text for a dimension": fault("st.entry.shape", one(shape=["1"]), "a"),
    "null for a dimension": fault("st.entry.shape", one(shape=[None]), "a"),
    "a list for a dimension": fault("st.entry.shape", one(shape=[[1]]), "a"),
    "a dimension of 2^64": fault("st.entry.shape", one(shape=[1 << 64, 0], offsets=[0, 0]), "a"),
    "a dimension of 2^64 + 1": fault("st.entry.shape", one(shape=[(1 << 64) + 1]), "a"),
    "half a byte": fault("st.entry.shape", file({"a": entry("F4", [1], [0, 1])}, b"\0"), "a"),
    "six bits": fault("st.entry.shape", file({"a": entry("F6_E2M3", [1], [0, 1])}, b"\0"), "a"),
    "three bytes and six bits": fault("st.entry.shape", file({"a": entry("F6_E3M2", [5], [0, 4])}, bytes(4)), "a"),
    # offsets
    "offsets that are a number": fault("st.offsets.bounds", one(offsets=4), "a"),
    "one offset": fault("st.offsets.bounds", one(offsets=[4]), "a"),
    "three offsets": fault("st.offsets.bounds", one(offsets=[0, 4, 4]), "a"),
    "offsets that are null": fault("st.offsets.bounds", one(offsets=None), "a"),
    "offsets in an object": fault("st.offsets.bounds", one(offsets={"begin": 0, "end": 4}), "a"),
    "a negative offset": fault("st.offsets.bounds", one(offsets=[-4, 0]), "a"),
    "a float for an offset": fault("st.offsets.bounds", one(offsets=[0, 4.0]), "a"),
    "an exponent in an offset": fault("st.offsets.bounds", file('{"a":%s}' % text_entry("[1]", "[0,4e0]"), bytes(4)), "a"),
    "minus zero for an offset": fault("st.offsets.bounds", file('{"a":%s}' % text_entry("[1]", "[-0,4]"), bytes(4)), "a"),
    "false for an offset": fault("st.offsets.bounds", one(offsets=[False, 4]), "a"),
    "text for an offset": fault("st.offsets.bounds", one(offsets=["0", "4"]), "a"),
    "an offset of 2^64": fault("st.offsets.bounds", one(offsets=[0, (1 << 64) + 4]), "a"),
    "offsets that run backwards": fault("st.offsets.bounds", one(shape=[0], offsets=[4, 0]), "a"),
    # sizes
    "more elements than bytes": fault("st.size.shape", one(shape=[2]), "a"),
    "fewer elements than bytes": fault("st.size.shape", one(shape=[0]), "a"),
    "a scalar of two elements": fault("st.size.shape", file({"a": entry("F32", [], [0, 8])}, bytes(8)), "a"),
    "another width": fault("st.size.shape", one(dtype="F64"), "a"),
    "a product that is 1 in its low 32 bits": fault("st.size.shape", one(shape=[(1 << 32) + 1]), "a"),
    "a product that wraps at 2^32": fault("st.size.shape", one(dtype="U8", shape=[65537, 65532]), "a"),
    "bytes that wrap at 2^32": fault("st.size.shape", one(shape=[(1 << 30) + 1]), "a"),
    "a product that wraps at 2^64 to 0": fault("st.entry.shape", one(shape=[1 << 32, 1 << 32], offsets=[0, 0]), "a"),
    "a product of 2^64 before a zero": fault("st.entry.shape", one(dtype="F4", shape=[1 << 63, 2, 0], offsets=[0, 0]), "a"),
    "2^64 bytes and no more": fault("st.entry.shape", one(dtype="U8", shape=[1 << 32, 1 << 32], offsets=[0, 0]), "a"),
    "a product that wraps at 2^64 to 4": fault("st.entry.shape", one(dtype="U8", shape=[4, (1 << 62) + 1]), "a"),
    "bytes that wrap at 2^64 to 4": fault("st.entry.shape", one(shape=[(1 << 62) + 1]), "a"),
    "a product that wraps twice": fault("st.entry.shape", one(dtype="U8", shape=[1 << 63, 1 << 63, 4]), "a"),
    "bits that wrap at 2^64 to 32": fault("st.size.shape", one(shape=[(1 << 59) + 1]), "a"),
    "2^64 - 1 bytes at the end of the numbers": fault(
        "st.data.truncated", file({"a": entry("U8", [(1 << 64) - 1], [0, (1 << 64) - 1])}, bytes(4)), None, ...
    ),
    # the tiling
    "a first tensor not at 0": fault("st.hole.bounds", HOLE, "a", data_start(HOLE)),
    "a hole": fault("st.hole.bounds", GAP, "b", data_start(GAP) + 3),
    "an overlap": fault("st.tensors.overlap", OVERLAP, "b", data_start(OVERLAP) + 4),
    "the same bytes twice": fault("st.tensors.overlap", TWICE, "b", data_start(TWICE)),
    "a tensor inside of another": fault("st.tensors.overlap", pair((0, 8), (2, 4)), "b", ...),
    "an empty tensor inside of another": fault("st.tensors.overlap", pair((0, 8), (4, 4)), "b", ...),
    "an empty tensor beyond the end": fault("st.hole.bounds", pair((0, 8), (9, 9)), "b", ...),
    "an overlap in a file whose entries stand in another order": fault("st.tensors.overlap", pair((4, 8), (0, 5)), "a", ...),
    "a byte missing": fault("st.data.truncated", SHORT, None, len(SHORT)),
    "no data at all": fault("st.data.truncated", pair((0, 8), size=0), None, ...),
    "a byte too many": fault("st.trailing.bounds", LONG, None, len(LONG) - 1),
    "data without tensors": fault("st.trailing.bounds", file({}, b"x"), None, 10),
    "data behind empty tensors": fault("st.trailing.bounds", file({"a": entry("F32", [0], [0, 0])}, bytes(4)), None, ...),
    # limits
    "65 levels": fault("json.depth.limit", file('{"a":' + "[" * 64 + "]" * 64 + "}"), None, ...),
    "a hundred thousand levels": fault("json.depth.limit", file("[" * 100_000), None, 8 + 64),
    "a hundred thousand objects inside each other": fault("json.depth.limit", file('{"a":' * 100_000), None, ...),
    "1001 digits": fault("json.digits.limit", file('{"a":%s}' % text_entry("[%s]" % ("1" * 1001)), bytes(4)), None, ...),
    "a million digits": fault("json.digits.limit", file('{"a":%s}' % text_entry("[1]", "[0,%s]" % ("4" * 10**6))), None, ...),
    "1000 digits": fault("st.entry.shape", file('{"a":%s}' % text_entry("[%s]" % ("1" * 1000)), bytes(4)), "a"),
    "a million zeros in an exponent": fault("json.digits.limit", file('{"a":1e%s}' % ("0" * 10**6)), None, ...),
    "a name of 65536 characters": fault("json.name.limit", file('{"%s":%s}' % ("n" * 65536, GOOD), bytes(4)), None, 9),
    "65 dimensions": fault("st.rank.limit", one(shape=[1] * 65), "a"),
    "a lone high surrogate": fault("json.surrogate.json", file('{"\\ud800":%s}' % GOOD, bytes(4)), None, 10),
    "a lone low surrogate": fault("json.surrogate.json", file('{"\\udc00":%s}' % GOOD, bytes(4)), None, 10),
    "surrogates in the wrong order": fault("json.surrogate.json", file('{"\\udc00\\ud800":%s}' % GOOD, bytes(4)), None, 10),
    "a surrogate in metadata": fault("json.surrogate.json", file('{"__metadata__":{"k":"\\udfff"}}'), None, 30),
    "a number beyond the doubles": fault("json.number.range", file('{"a":%s}' % text_entry("[1e999]")), None, ...),
}  # fmt: skip

LEGAL: dict[str, tuple[bytes, list[str]]] = {
    # name: the file, and its tensors
    "no tensors at all": (file({}), []),
    "metadata only": (file({"__metadata__": {"format": "pt", "": ""}}), []),
    "empty metadata": (file({"__metadata__": {}}), []),
    "a scalar": (file({"a": entry("F64", [], [0, 8])}, bytes(8)), ["a"]),
    "a dimension of zero": (file({"a": entry("F32", [0], [0, 0])}), ["a"]),
    "a zero behind as many as 64 bits hold": (file({"a": entry("F64", [(1 << 64) - 1, 0], [0, 0])}), ["a"]),
    "zero between large dimensions": (file({"a": entry("F32", [7, 0, 1 << 40], [0, 0])}), ["a"]),
    "empty tensors between others": (pair((0, 0), (0, 4), (4, 4), (4, 8), (8, 8)), ["a", "b", "c", "d", "e"]),
    "entries in any order": (pair((4, 8), (2, 4), (0, 2)), ["a", "b", "c"]),
    "an empty name": (file({"": entry()}, bytes(4)), [""]),
    "a name like the metadata's": (file({"__metadata": entry()}, bytes(4)), ["__metadata"]),
    "a name with control characters and quotes": (file({'a\0\x1b["\\/': entry()}, bytes(4)), ['a\0\x1b["\\/']),
    "a name of 65535 characters": (file('{"%s":%s}' % ("n" * 65535, GOOD), bytes(4)), ["n" * 65535]),
    "a name in any script": (
        file('{"\u4e2d\U0001f600\\ud83d\\ude00":%s}' % GOOD, bytes(4)),
        ["中\U0001f600\U0001f600"],
    ),
    "64 dimensions": (one(shape=[1] * 64), ["a"]),
    "spaces behind the header": (file('{"a":%s}       ' % GOOD, bytes(4)), ["a"]),
    "other white space behind and within": (file('{ "a" :\n%s\t}\r\n ' % GOOD, bytes(4)), ["a"]),
    "fields in another order": (
        file('{"a":{"data_offsets":[0,4],"shape":[1],"dtype":"F32"}}', bytes(4)),
        ["a"],
    ),
    "data at an odd address": (file('{"a":%s}' % GOOD + " " * (len(GOOD) % 2), bytes(4)), ["a"]),
    "odd offsets of wide elements": (
        file({"a": entry("U8", [3], [0, 3]), "b": entry("F64", [1], [3, 11])}, bytes(11)),
        ["a", "b"],
    ),
    "whole bytes of narrow elements": (
        file({"a": entry("F4", [2, 3], [0, 3]), "b": entry("F6_E3M2", [4], [3, 6])}, bytes(6)),
        ["a", "b"],
    ),
    "62 levels in a field that is unknown": (
        file('{"a":{"x":%s%s,%s}' % ("[" * 62, "]" * 62, GOOD[1:]), bytes(4)),
        ["a"],
    ),
}


class Case(unittest.TestCase):
    def folder(self) -> str:
        """A new folder, which goes with the test."""
        made = tempfile.TemporaryDirectory()
        self.addCleanup(made.cleanup)
        return made.name

    def opened(self, data: bytes) -> SafetensorsFile:
        return SafetensorsFile(Source(data))

    def refused(self, code: str, data: bytes) -> VqfrefError:
        with self.assertRaises(VqfrefError) as caught:
            self.opened(data)
        self.assertEqual(caught.exception.code, code, caught.exception)
        self.assertIsInstance(caught.exception, LimitError if code.endswith(".limit") else FormatError)
        return caught.exception

    def audited(self, data: bytes) -> list[tuple[str, str]]:
        """(severity, code) of all findings."""
        found = Findings(None)
        reader.audit_container(Source(data), found)
        return [(f.severity, f.code) for f in found.sorted()]

    def fails(self, code: str, call: Any, *args: object, **options: object) -> VqfrefError:
        with self.assertRaises(VqfrefError) as caught:
            call(*args, **options)
        self.assertEqual(caught.exception.code, code, caught.exception)
        return caught.exception


class Rules(Case):
    def test_each_fault_alone_is_reported_with_its_code_field_and_offset(self) -> None:
        for name, f in FAULTS.items():
            with self.subTest(name):
                error = self.refused(f.code, f.data)
                if f.field is not None or f.code.startswith("st."):
                    self.assertEqual(error.field, f.field)
                if f.offset is not ...:
                    self.assertEqual(error.offset, f.offset, error)
                self.assertTrue(0 <= error.offset <= len(f.data))
                self.assertLess(len(str(error)), 70_000 if f.code == "json.name.limit" else 2000)

    def test_the_audit_finds_the_same_and_nothing_else(self) -> None:
        for name, f in FAULTS.items():
            with self.subTest(name):
                found = Findings(None)
                self.assertIsNone(reader.audit_container(Source(f.data), found))
                self.assertEqual({x.code for x in found.sorted()} - self.consequences(f.code), {f.code})
                error = self.refused(f.code, f.data)
                self.assertIn(
                    (f.code, error.offset, error.field), [(x.code, x.offset, x.field) for x in found.sorted()]
                )

    def test_the_audit_of_a_good_file_gives_its_header(self) -> None:
        for name, (data, _) in LEGAL.items():
            self.assertEqual(reader.audit_container(Source(data), Findings(None)), self.opened(data).header, name)

    def consequences(self, code: str) -> set[str]:
        """An entry that is wrong leaves its bytes to nobody."""
        return {"st.trailing.bounds", "st.data.truncated"} - {code}

    def test_faults_without_the_json_module_are_the_same(self) -> None:
        for name, f in FAULTS.items():
            if len(f.data) < 300_000:
                with self.subTest(name), without_json():
                    self.refused(f.code, f.data)

    def test_all_faults_of_a_header_are_found(self) -> None:
        header = {
            "a": entry("F31"), "b": entry(shape=[-1]), "c": entry(offsets=[4, 0]), "d": entry(shape=[2]), "e": 1,
            "f": entry("U8", [2], [2, 4]), "g": entry("U8", [4], [3, 7]), "__metadata__": 1,
        }  # fmt: skip
        data = file(header, bytes(9))
        found = [c for _, c in self.audited(data)]
        self.assertEqual(
            sorted(found),
            sorted(
                ["st.metadata.json", "st.entry.dtype", "st.entry.shape", "st.offsets.bounds", "st.size.shape",
                 "st.entry.json", "st.hole.bounds", "st.tensors.overlap", "st.trailing.bounds"]
            ),
        )  # fmt: skip
        self.refused("st.metadata.json", data)

    def test_a_thousand_faults_of_one_kind_are_listed_and_the_rest_counted(self) -> None:
        data = file({"t%d" % i: 1 for i in range(1500)})
        found = Findings(None)
        reader.audit_container(Source(data), found)
        self.assertEqual(len(found.sorted()), 1000)
        self.assertIn("500 more", found.sorted()[-1].message)

    @thorough
    def test_more_tensors_than_any_real_file_are_a_limit(self) -> None:
        self.assertEqual(
            self.refused("st.tensors.limit", file("{%s}" % ",".join('"%d":1' % i for i in range(131073)))).offset, 8
        )

    def test_a_header_above_the_limit_is_not_read(self) -> None:
        class Claims(Source):
            def read_at(self, offset: int, length: int) -> bytes:
                if length > 512:
                    raise AssertionError("%d bytes read" % length)
                return super().read_at(offset, length)

        source = Claims(struct.pack("<Q", 100_000_001))
        source.size = 1 << 40
        with self.assertRaises(LimitError):
            SafetensorsFile(source)


class Legal(Case):
    def test_what_is_legal_is_accepted(self) -> None:
        for name, (data, names) in LEGAL.items():
            with self.subTest(name):
                f = self.opened(data)
                self.assertEqual(f.keys(), names)
                self.assertEqual([s for s, _ in self.audited(data) if s == "error"], [])
                self.assertEqual(sum(len(f.raw(n)) for n in names), len(data) - data_start(data))
                with without_json():
                    self.assertEqual(self.opened(data).header, f.header)

    def test_most_of_it_is_without_any_finding(self) -> None:
        for name, (data, _) in LEGAL.items():
            if "unknown" not in name:
                self.assertEqual(self.audited(data), [], name)

    def test_white_space_before_the_header_is_a_warning(self) -> None:
        for space in (" ", "\n\t\r "):
            data = file('%s{"a":%s}' % (space, GOOD), bytes(4))
            self.assertEqual(self.opened(data).keys(), ["a"])
            self.assertEqual(self.audited(data), [("warning", "st.space.policy")])

    def test_unknown_fields_of_an_entry_are_a_note_that_names_them(self) -> None:
        data = one(stride=[1], note=None)
        self.assertEqual(self.opened(data).keys(), ["a"])
        (finding,) = self.opened(data).check()
        self.assertEqual((finding.severity, finding.code, finding.field), ("note", "st.field.policy", "a"))
        self.assertIn("note, stride", finding.message)

    def test_the_header_as_a_record(self) -> None:
        data = file({"__metadata__": {"k": "v"}, "b": entry("U8", [3], [4, 7]), "a": entry()}, bytes(7))
        h = self.opened(data).header
        self.assertEqual((h.metadata, h.data_start, h.data_length), ({"k": "v"}, len(data) - 7, 7))
        self.assertEqual(list(h.entries), ["b", "a"])
        self.assertEqual(h.entries["b"], ("b", "U8", (3,), 4, 7))


class Verdicts(Case):
    """What the safetensors package says of the same files."""

    def test_files_open_where_they_open_for_the_package(self) -> None:
        cases = stored("verdicts.json")
        self.assertGreater(sum(opens for _, _, opens in cases), 10)
        self.assertGreater(sum(not opens for _, _, opens in cases), 150)
        for name, data, opens in cases:
            with self.subTest(name):
                try:
                    self.opened(bytes.fromhex(data))
                    got = True
                except (FormatError, LimitError):
                    got = False
                self.assertEqual(got, opens)


class Peers(Case):
    """Files that the safetensors package wrote."""

    def test_they_open_without_a_finding_with_its_names_shapes_and_metadata(self) -> None:
        for name, want in stored("values.json").items():
            path = str(FILES / (name + ".safetensors"))
            self.assertEqual(vqfref.check(path), [], name)
            for backend in (None, "pread"):
                with vqfref.open(path, backend=backend) as f:
                    self.assertEqual((f.format, f.path), ("safetensors", path))
                    self.assertEqual(sorted(f.keys()), sorted(want["tensors"]))
                    self.assertEqual(f.metadata()["metadata"], want["metadata"])
                    self.assertEqual(f.metadata()["n_tensors"], len(want["tensors"]))
                    for key, t in want["tensors"].items():
                        info = f.info(key)
                        self.assertEqual((info.name, info.dtype, list(info.shape)), (key, t["dtype"], t["shape"]))
                        self.assertEqual((info.layers, info.experts, info.nbytes), (0, 0, len(t["bytes"]) // 2))
                        self.assertEqual(f.raw(key).hex(), t["bytes"])
                        self.assertEqual(b"".join(f.chunks(key, 3)).hex(), t["bytes"])

    def test_their_values_are_numpy_s(self) -> None:
        for name, want in stored("values.json").items():
            with vqfref.open(str(FILES / (name + ".safetensors"))) as f:
                for key, t in want["tensors"].items():
                    if t["f32"] is None:
                        self.fails("st.decode.unsupported", f.get_tensor, key)
                        self.fails("st.decode.unsupported", f.values, key)
                        continue
                    values = f.get_tensor(key)
                    self.assertEqual(values.typecode, "f")
                    hexed = b"".join([struct.pack("<f", v) if v == v else b"\0\0\xc0\x7f" for v in values]).hex()
                    self.assertEqual(hexed, t["f32"], key)
                    pieces = b"".join(
                        [struct.pack("<f", v) if v == v else b"\0\0\xc0\x7f" for p in f.values(key) for v in p]
                    )
                    self.assertEqual(pieces.hex(), t["f32"], key)

    def test_what_is_written_here_is_what_the_package_writes(self) -> None:
        for name, want in stored("values.json").items():
            path = os.path.join(self.folder(), "again.safetensors")
            tensors = {
                key: Tensor(t["dtype"], t["shape"], bytes.fromhex(t["bytes"]))
                for key, t in reversed(list(want["tensors"].items()))
            }
            writer.write(path, tensors, want["metadata"])
            self.assertEqual(Path(path).read_bytes(), (FILES / (name + ".safetensors")).read_bytes(), name)


Tensor = namedtuple("Tensor", "dtype shape data")


class Values(Case):
    def setUp(self) -> None:
        rows = {
            "u8": ("U8", (3,), b"\1\2\xff"), "f": ("F32", (5, 2), struct.pack("<10f", *range(10))),
            "scalar": ("F32", (), struct.pack("<f", 2.5)), "cube": ("I16", (2, 3, 2), struct.pack("<12h", *range(12))),
            "empty": ("F16", (0, 4), b""), "flat": ("F16", (4, 0), b""), "c": ("C64", (1,), bytes(8)),
        }  # fmt: skip
        header, data = {}, b""
        for name, (dtype, shape, content) in rows.items():
            header[name] = entry(dtype, shape, [len(data), len(data) + len(content)])
            data += content
        self.data = file(header, data)
        self.f = self.opened(self.data)

    def test_values_of_data_at_odd_offsets(self) -> None:
        self.assertEqual(self.f.info("f").offset % 2, (data_start(self.data) + 3) % 2)
        self.assertEqual(self.f.get_tensor("u8").tolist(), [1, 2, 255])
        self.assertEqual(self.f.get_tensor("f").tolist(), list(range(10)))
        self.assertEqual(self.f.get_tensor("scalar").tolist(), [2.5])
        self.assertEqual(self.f.get_tensor("empty").tolist(), [])

    def test_rows_cut_the_first_axis(self) -> None:
        for rows in (
            slice(0, 1),
            slice(1, 3),
            slice(None),
            slice(-2, None),
            slice(4, 99),
            slice(3, 3),
            slice(3, 1),
            slice(7, 9),
        ):
            want = [v for row in range(5)[rows] for v in (2 * row, 2 * row + 1)]
            self.assertEqual(self.f.get_tensor("f", rows=rows).tolist(), want, rows)
        self.assertEqual(self.f.get_tensor("cube", rows=slice(1, 2)).tolist(), [6, 7, 8, 9, 10, 11])
        self.assertEqual(self.f.get_tensor("u8", rows=slice(1, 3)).tolist(), [2, 255])
        for name in ("empty", "flat"):
            self.assertEqual(self.f.get_tensor(name, rows=slice(0, 2)).tolist(), [])

    def test_rows_read_their_own_bytes_alone(self) -> None:
        asked = []

        class Noting(Source):
            def view(self, offset: int, length: int) -> memoryview:
                asked.append((offset, length))
                return super().view(offset, length)

        f = SafetensorsFile(Noting(self.data))
        f.get_tensor("f", rows=slice(1, 3))
        self.assertEqual(asked, [(f.info("f").offset + 8, 16)])
        del asked[:]
        f.get_tensor("cube", rows=slice(1, 2))
        self.assertEqual(asked, [(f.info("cube").offset + 12, 12)])

    def test_rows_that_are_not_there_are_the_caller_s_fault(self) -> None:
        for name, rows in (("scalar", slice(0, 1)), ("f", slice(0, 4, 2)), ("f", slice(None, None, -1))):
            self.assertIsInstance(self.fails("usage.rows.range", self.f.get_tensor, name, rows=rows), UsageError)

    def test_raw_is_a_view_and_read_only(self) -> None:
        view = self.f.raw("f")
        self.assertTrue(view.readonly)
        self.assertEqual(view, struct.pack("<10f", *range(10)))
        self.assertEqual(len(self.f.raw("empty")), 0)

    def test_views_outlive_the_file(self) -> None:
        path = os.path.join(self.folder(), "x.safetensors")
        Path(path).write_bytes(self.data)
        with vqfref.open(path) as f:
            view = f.raw("u8")
        self.assertEqual(bytes(view), b"\1\2\xff")
        self.fails("usage.closed.policy", f.raw, "u8")

    def test_values_come_in_pieces(self) -> None:
        n = (1 << 18) + 5
        f = self.opened(file({"a": entry("BF16", [n], [0, 2 * n])}, b"\x80\x3f" * n))
        self.assertEqual([len(p) for p in f.values("a")], [1 << 18, 5])
        self.assertEqual(sum(f.values("a"), array("f")), array("f", [1.0]) * n)

    def test_wide_numbers_are_rounded_and_too_wide_ones_infinite(self) -> None:
        data = struct.pack("<2d2q2Q", 1e300, 0.1, (1 << 24) + 1, -(1 << 63), (1 << 64) - 1, 3)
        f = self.opened(
            file(
                {"d": entry("F64", [2], [0, 16]), "i": entry("I64", [2], [16, 32]), "u": entry("U64", [2], [32, 48])},
                data,
            )
        )
        self.assertEqual(f.get_tensor("d").tolist(), [float("inf"), 0.10000000149011612])
        self.assertEqual(f.get_tensor("i").tolist(), [2.0**24, -(2.0**63)])
        self.assertEqual(f.get_tensor("u").tolist(), [2.0**64, 3.0])

    def test_a_name_that_is_not_there_is_a_key_error_with_its_neighbours(self) -> None:
        for call in (self.f.info, self.f.raw, self.f.chunks, self.f.get_tensor, self.f.values, self.f.entry):
            with self.assertRaises(KeyError) as caught:
                call("cubes")
            self.assertIsInstance(caught.exception, TensorNotFound)
            self.assertIn("did you mean cube?", str(caught.exception))

    def test_it_authenticates_nothing(self) -> None:
        result = self.f.verify()
        self.assertEqual((result.ok, result.authenticated, self.f.authenticated), (True, False, False))
        required = self.f.verify(require=["signature"])
        self.assertEqual((required.ok, [f.code for f in required.findings]), (False, ["file.authentication.missing"]))


class Opening(Case):
    def put(self, folder: str, name: str, data: bytes) -> str:
        path = os.path.join(folder, name)
        Path(path).write_bytes(data)
        return path

    def test_a_file_is_known_by_its_name_or_its_first_bytes(self) -> None:
        folder = self.folder()
        for name, data in (("a.safetensors", file("  {}")), ("a.bin", one()), ("noname", file({}))):
            path = self.put(folder, name, data)
            self.assertEqual(weights.sniff(path), "safetensors", name)
            with weights.open(path) as f:
                self.assertIsInstance(f, SafetensorsFile)
            self.assertEqual([f.code for f in weights.check(path) if f.severity == "error"], [])

    def test_a_bad_one_says_which_file(self) -> None:
        path = self.put(self.folder(), "bad.safetensors", FAULTS["a hole"].data)
        self.assertEqual(self.fails("st.hole.bounds", weights.open, path).path, path)
        (finding,) = weights.check(path)
        self.assertEqual((finding.code, finding.path, finding.engine), ("st.hole.bounds", path, "refuses"))
        for data, code in ((b"", "st.length.truncated"), (b"FQ", "st.length.truncated")):
            self.fails(code, weights.open, self.put(self.folder(), "bad.safetensors", data))

    def test_a_refused_file_is_closed(self) -> None:
        if not os.path.isdir("/proc/self/fd"):
            self.skipTest("no /proc here")
        folder = self.folder()
        bad = self.put(folder, "bad.safetensors", b"1234")
        self.put(folder, "model-00001-of-00002.safetensors", one())
        self.put(folder, "model-00002-of-00002.safetensors", FAULTS["a hole"].data)
        before = len(os.listdir("/proc/self/fd"))
        for path in (bad, folder):
            with self.assertRaises(FormatError):
                weights.open(path)
        self.assertEqual(len(os.listdir("/proc/self/fd")), before)

    def test_a_file_cut_at_any_byte_is_refused(self) -> None:
        data = (FILES / "odd.safetensors").read_bytes()
        for end in range(len(data)):
            with self.assertRaises(FormatError):
                self.opened(data[:end])

    def test_the_head_explained(self) -> None:
        data = file({"__metadata__": {"k": "v\n"}, "a": entry()}, struct.pack("<f", 1))
        title, rows = explain.header_rows(Source(data), directory=True)
        self.assertIn("1 tensors", title)
        found = {r.field: (r.offset, r.size, r.value) for r in rows}
        self.assertEqual(found["header_len"], (0, 8, str(len(data) - 12)))
        self.assertEqual(found["header"][:2], (8, len(data) - 12))
        self.assertEqual(found["__metadata__.k"][2], '"v\\n"')
        self.assertEqual(found["a"], (len(data) - 4, 4, "F32 [1]"))
        self.assertEqual(explain.file_fields(Source(data))[1], len(data) - 4)
        title, rows = explain.header_rows(Source(FAULTS["a hole"].data))
        self.assertIn("begins at 4", title)
        self.assertEqual([r.field for r in rows], ["header_len"])
        for data in (b"", b"123", FAULTS["65 levels"].data):
            self.assertTrue(explain.header_rows(Source(data))[0])
            self.assertLessEqual(explain.file_fields(Source(data))[1], 8)


# ---- model folders


def shard(*names: str, start: int = 0) -> bytes:
    """A file of scalar tensors; their values count on from `start`."""
    rows = {n: entry("F32", [1], [4 * i, 4 * i + 4]) for i, n in enumerate(names)}
    return file(rows, struct.pack("<%df" % len(names), *range(start, start + len(names))))


def index(weight_map: object, **more: object) -> bytes:
    return json.dumps({"metadata": {"total_size": 8}, "weight_map": weight_map, **more}).encode()


NAME = "model-%05d-of-%05d.safetensors"
INDEX = "model.safetensors.index.json"


class Folders(Case):
    def made(self, files: dict[str, bytes]) -> str:
        folder = self.folder()
        for name, data in files.items():
            Path(folder, name).write_bytes(data)
        return folder

    def expect(self, files: dict[str, bytes], *names: str, path: str = "") -> None:
        folder = os.path.join(self.made(files), path) if path else self.made(files)
        self.assertEqual(weights.sniff(folder), "safetensors")
        self.assertEqual(weights.check(folder), [])
        for backend in (None, "pread"):
            with weights.open(folder, backend=backend) as f:
                self.assertEqual((f.format, f.keys()), ("safetensors", list(names)))
                self.assertEqual([f.get_tensor(n).tolist() for n in names], [[float(i)] for i in range(len(names))])
                self.assertEqual([bytes(f.raw(n)) for n in names], [struct.pack("<f", i) for i in range(len(names))])
                self.assertEqual(
                    [b"".join(f.chunks(n)) for n in names], [struct.pack("<f", i) for i in range(len(names))]
                )
                self.assertEqual(
                    [[p.tolist() for p in f.values(n)] for n in names], [[[float(i)]] for i in range(len(names))]
                )
                self.assertTrue(all(os.path.exists(f.info(n).path) for n in names))
                self.assertTrue(f.verify().ok)
                self.fails("usage.tensor.name", f.info, "no such")
                self.fails("usage.tensor.name", f.get_tensor, "no such")

    def refused(self, code: str, files: dict[str, bytes], path: str = "") -> VqfrefError:
        folder = os.path.join(self.made(files), path) if path else self.made(files)
        error = self.fails(code, weights.open, folder)
        self.assertIn(code, [f.code for f in weights.check(folder)])
        self.assertTrue(error.path and error.path.startswith(folder))
        return error

    def test_an_index_goes_before_a_single_file_and_before_shards(self) -> None:
        single = {"model.safetensors": shard("s")}
        numbered = {NAME % (1, 2): shard("x"), NAME % (2, 2): shard("y", start=1)}
        indexed = {INDEX: index({"p": "one.safetensors", "q": "two.safetensors"})}
        parts = {"one.safetensors": shard("p"), "two.safetensors": shard("q", start=1)}
        self.expect({**indexed, **parts, **single, **numbered}, "p", "q")
        self.expect({**single, **numbered}, "s")
        self.expect(numbered, "x", "y")

    def test_shards_come_in_the_order_of_their_numbers(self) -> None:
        files = {NAME % (i, 11): shard("t%d" % i, start=i - 1) for i in range(11, 0, -1)}
        self.expect(files, *["t%d" % i for i in range(1, 12)])

    def test_an_index_can_be_opened_by_its_own_name(self) -> None:
        files = {"other.safetensors.index.json": index({"p": "one.safetensors"}), "one.safetensors": shard("p")}
        self.expect(files, "p", path="other.safetensors.index.json")

    def test_other_files_in_the_folder_do_not_matter(self) -> None:
        files = {
            NAME % (1, 1): shard("x"),
            "model-1-of-2.safetensors": b"",
            "model-00001-of-00002.bin": b"",
            "x.json": b"{",
        }
        files["model-0000x-of-00002.safetensors"] = b""
        for name in ("xmodel-00001-of-00002", "model-00001-xx-00002", "model-00001-of-00002-x", "model-00001"):
            files[name + ".safetensors"] = b""
        files["model-00001-of-00002.safetensors.tmp"] = b""
        self.expect(files, "x")

    def test_a_folder_without_any_or_with_gaps_is_incomplete(self) -> None:
        for files in (
            {},
            {"weights.safetensors": shard("x")},
            {NAME % (2, 2): shard("x")},
            {NAME % (1, 2): shard("x")},
            {NAME % (1, 3): shard("x"), NAME % (3, 3): shard("y")},
            {NAME % (0, 2): shard("x"), NAME % (1, 2): shard("y")},
            {NAME % (0, 0): shard("x")},
            {NAME % (1, 2): shard("x"), NAME % (2, 2): shard("y"), NAME % (3, 2): shard("z")},
            {NAME % (1, 1): shard("x"), NAME % (1, 2): shard("x"), NAME % (2, 2): shard("y")},
            {NAME % (1, 99999): shard("x")},
        ):
            with self.subTest(sorted(files)):
                self.refused("st.folder.missing", files)
        for there, missing in (((1, 3), 2), ((2, 3), 1), ((1, 2), 3)):
            error = self.refused("st.folder.missing", {NAME % (i, 3): shard("t%d" % i) for i in there})
            self.assertIn("shard %d is not there" % missing, error.message)

    def test_a_tensor_in_two_shards_is_named_with_both(self) -> None:
        error = self.refused("st.shards.duplicate", {NAME % (1, 2): shard("x", "y"), NAME % (2, 2): shard("y")})
        self.assertEqual(error.field, "y")
        for i in (1, 2):
            self.assertIn(NAME % (i, 2), error.message)

    def test_a_bad_shard_is_named(self) -> None:
        error = self.refused("st.hole.bounds", {NAME % (1, 2): shard("x"), NAME % (2, 2): HOLE})
        self.assertTrue(error.path.endswith(NAME % (2, 2)))

    def test_names_that_lead_out_of_the_folder_are_refused(self) -> None:
        for name in (
            "../one.safetensors", "..", ".", "", "/etc/passwd", "sub/one.safetensors", "..\\one.safetensors",
            "one\0.safetensors", "./one.safetensors", "one.safetensors/", "C:\\one.safetensors",
        ):  # fmt: skip
            with self.subTest(name):
                files = {INDEX: index({"p": "one.safetensors", "q": name}), "one.safetensors": shard("p", "q")}
                error = self.refused("st.index.name", files)
                self.assertEqual((error.field, os.path.basename(error.path)), ("q", INDEX))

    def test_an_index_that_is_none(self) -> None:
        for content, code in (
            (b"", "json.syntax.json"), (b"[]", "st.index.json"), (b"null", "st.index.json"), (b"{}", "st.index.json"),
            (b'{"weight_map":[]}', "st.index.json"), (b'{"weight_map":{"p":1}}', "st.index.json"),
            (b'{"weight_map":{"p":null}}', "st.index.json"), (b"\xff", "json.utf8.json"), (b"[" * 1000, "json.depth.limit"),
            (b'{"weight_map":{"p":"one.safetensors","p":"two.safetensors"}}', "json.key.duplicate"),
        ):  # fmt: skip
            with self.subTest(content[:40]):
                error = self.refused(
                    code, {INDEX: content, "one.safetensors": shard("p"), "two.safetensors": shard("p")}
                )
                self.assertTrue(error.path.endswith(INDEX))

    def test_an_index_that_places_a_tensor_where_it_is_not(self) -> None:
        files = {"one.safetensors": shard("p"), "two.safetensors": shard("q")}
        error = self.refused(
            "st.index.missing", {INDEX: index({"p": "one.safetensors", "q": "one.safetensors"}), **files}
        )
        self.assertEqual(error.field, "q")
        self.assertIn("one.safetensors", error.message)
        self.refused("st.index.missing", {INDEX: index({"p": "two.safetensors", "q": "one.safetensors"}), **files})

    def test_a_file_of_the_index_that_is_not_there_is_an_os_error(self) -> None:
        folder = self.made({INDEX: index({"p": "one.safetensors"})})
        for call in (weights.open, weights.check):
            with self.assertRaises(FileNotFoundError):
                call(folder)

    def test_an_index_of_two_tensors_in_one_file_that_has_three(self) -> None:
        files = {
            INDEX: index({"p": "one.safetensors", "r": "one.safetensors"}),
            "one.safetensors": shard("p", "q", "r"),
        }
        with weights.open(self.made(files)) as f:
            self.assertLessEqual({"p", "r"}, set(f.keys()))

    def test_metadata_and_findings_of_all_shards(self) -> None:
        two = file({"__metadata__": {"format": "pt"}, "y": entry(extra=1)}, struct.pack("<f", 1))
        folder = self.made({NAME % (1, 2): shard("x"), NAME % (2, 2): two})
        with weights.open(folder) as f:
            self.assertEqual([x.code for x in f.check()], ["st.field.policy"])
            self.assertTrue(f.check()[0].path.endswith(NAME % (2, 2)))
            self.assertEqual(f.info("y").path, os.path.join(folder, NAME % (2, 2)))
            self.assertEqual(f.get_tensor("y", rows=slice(0, 1)).tolist(), [1.0])
            self.assertIn("pt", json.dumps(f.metadata()))
        self.fails("usage.closed.policy", f.raw, "x")


# ---- writing


class Writing(Case):
    def written(self, tensors: dict[str, Tensor], metadata: dict[str, str] | None = None) -> bytes:
        path = os.path.join(self.folder(), "x.safetensors")
        writer.write(path, tensors, metadata)
        return Path(path).read_bytes()

    def test_wide_dtypes_come_first_then_names_by_their_bytes(self) -> None:
        ranks = [  # UQFF section 2, from low to high
            "BOOL", "F4", "F6_E2M3", "F6_E3M2", "U8", "I8", "F8_E5M2", "F8_E4M3", "F8_E8M0", "I16", "U16", "F16", "BF16", "I32",
            "U32", "F32", "C64", "F64", "I64", "U64",
        ]  # fmt: skip
        names = {d: Tensor(d, (8,), bytes(reader.DTYPES[d])) for d in ranks}
        self.assertEqual(self.opened(self.written(names)).keys(), ranks[::-1])
        tensors = {n: Tensor("U8", (1,), n.encode()[:1]) for n in ("b", "a", "ä", "Z", "a.b", "\U0001f600", "\ue000")}
        want = ["Z", "a", "a.b", "b", "ä", "\ue000", "\U0001f600"]
        self.assertEqual(self.opened(self.written(tensors)).keys(), want)

    def test_the_header_is_compact_and_padded_to_eight(self) -> None:
        data = self.written({"a": Tensor("F32", [1], b"abcd"), "é": Tensor("U8", (), b"x")}, {"z": "1", "y": 'ü"\n'})
        text = (
            '{"__metadata__":{"z":"1","y":"ü\\"\\n"},"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},'
            '"é":{"dtype":"U8","shape":[],"data_offsets":[4,5]}}'
        ).encode()
        text += b" " * (-len(text) % 8)
        self.assertEqual(data, struct.pack("<Q", len(text)) + text + b"abcdx")
        self.assertEqual(self.written({}), struct.pack("<Q", 8) + b"{}      ")
        for n in range(1, 20):
            head = writer.header_bytes([("n" * n, "U8", (1,))])
            self.assertEqual((len(head) % 8, data_start(head)), (0, len(head)))

    def test_what_is_written_is_read_again(self) -> None:
        rng = random.Random(5)
        for _ in range(6):
            tensors = {}
            for i in range(rng.randrange(20)):
                dtype = rng.choice(list(reader.DTYPES))
                shape = [rng.choice((0, 1, 2, 8)) for _ in range(rng.randrange(3))] + [8]
                n = reader.DTYPES[dtype]
                for d in shape[:-1]:
                    n *= d
                tensors["%s.%d" % (rng.choice("abc"), i)] = Tensor(
                    dtype, shape, bytes(rng.randrange(256) for _ in range(n))
                )
            f = self.opened(self.written(tensors, {"n": str(len(tensors))}))
            self.assertEqual((set(f.keys()), f.header.metadata), (set(tensors), {"n": str(len(tensors))}))
            for name, t in tensors.items():
                self.assertEqual((f.info(name).dtype, list(f.info(name).shape), bytes(f.raw(name))), tuple(t))
            self.assertEqual(f.check(), [])

    def test_data_may_come_in_pieces(self) -> None:
        whole = self.written({"a": Tensor("U8", (6,), b"abcdef")})
        for data in (
            iter([b"abc", b"", b"def"]),
            [b"abcdef"],
            bytearray(b"abcdef"),
            memoryview(b"abcdef"),
            (b"a", b"bcdef"),
        ):
            self.assertEqual(self.written({"a": Tensor("U8", (6,), data)}), whole)

    def test_data_of_another_length_leaves_no_file_and_the_old_one_as_it_was(self) -> None:
        folder = self.folder()
        path = os.path.join(folder, "x.safetensors")
        for data in (b"abc", b"abcde", [b"ab"], iter([])):
            error = self.fails("usage.data.shape", writer.write, path, {"a": Tensor("F32", (1,), data)})
            self.assertEqual((error.field, os.listdir(folder)), ("a", []))
        Path(path).write_bytes(b"old")
        self.fails("usage.data.shape", writer.write, path, {"a": Tensor("F32", (1,), b"")})
        self.assertEqual((Path(path).read_bytes(), os.listdir(folder)), (b"old", ["x.safetensors"]))

    def test_an_unknown_dtype_is_the_caller_s_fault(self) -> None:
        self.assertIsInstance(self.fails("usage.dtype.unsupported", writer.nbytes, "f32", [1]), UsageError)


# ---- size


def many(n: int) -> bytes:
    """A file of n tensors with names of usual length."""
    rows = ",".join(
        '"model.layers.%d.mlp.experts.up_proj.weight":{"dtype":"BF16","shape":[2,1],"data_offsets":[%d,%d]}'
        % (i, 4 * i, 4 * i + 4)
        for i in range(n)
    )
    return file("{%s}" % rows, bytes(4 * n))


def pace() -> float:
    """How many times slower than a usual machine this one is, at least 1."""
    start = time.process_time()
    for _ in range(3):
        json.loads(json.dumps([{"k%d" % i: [i, "v"]} for i in range(4000)]))
    return max(1.0, (time.process_time() - start) / 0.05)


def peak(data: bytes) -> int:
    """Bytes that opening takes at most, and of an error too."""
    source = Source(data)
    tracemalloc.start()
    try:
        SafetensorsFile(source)
    except VqfrefError:
        pass
    finally:
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    return most


class Large(Case):
    @thorough
    def test_20000_tensors_open_quickly_with_the_json_module_and_without(self) -> None:
        data = many(20_000)
        slow = pace()
        start = time.process_time()
        f = self.opened(data)
        quick = time.process_time() - start
        self.assertEqual(len(f), 20_000)
        self.assertEqual(
            f.header.entries["model.layers.777.mlp.experts.up_proj.weight"][1:], ("BF16", (2, 1), 3108, 3112)
        )
        start = time.process_time()
        with without_json():
            again = self.opened(data)
        plain = time.process_time() - start
        self.assertEqual(again.header, f.header)
        self.assertLess(quick, 2 * slow)  # half a second and one and a half; the rest is for a busy machine
        self.assertLess(plain, 6 * slow)

    def test_memory_is_in_proportion_to_the_header(self) -> None:
        small, large = many(2500), many(5000)
        a, b = peak(small), peak(large)
        self.assertLess(b, 2.3 * a)
        self.assertLess(b, 14 * data_start(large))

    def test_headers_of_many_tiny_values_are_held_to_their_size(self) -> None:
        # 64 MiB and four times the header, two seconds; a list of empty lists would take 24 times its length.
        n, slow = 5 * 10**6, pace()
        for unit in (b"[],", b"{},", b'"ab",'):
            data = file(b'{"a":[' + unit * (n // len(unit)) + b"0]}")
            start = time.process_time()
            self.assertLess(peak(data), 64 * MIB + 4 * len(data), unit)
            self.assertLess(time.process_time() - start, 12 * slow, unit)  # tracemalloc slows what it sees

    def test_an_offset_lies_in_the_file_also_where_the_fault_would_be_behind_it(self) -> None:
        entries = {"a": entry("U8", [48], [0, 48]), "b": entry("U8", [8], [100, 108])}
        data = file(entries, b"")
        with self.assertRaises(FormatError) as caught:
            self.opened(data)
        self.assertEqual((caught.exception.code, caught.exception.offset), ("st.hole.bounds", len(data)))

    def test_long_values_are_not_repeated_in_messages(self) -> None:
        for bad in (
            {"dtype": "x" * 10**6},
            {"shape": ["y" * 10**6]},
            {"offsets": [0] * 10**5},
            {"shape": {"z": [1] * 10**5}},
        ):
            error = self.fails(
                {"dtype": "st.entry.dtype", "shape": "st.entry.shape", "offsets": "st.offsets.bounds"}[next(iter(bad))],
                self.opened, one(**bad),
            )  # fmt: skip
            self.assertLess(len(str(error)), 300)


# ---- anything at all


NUMBERS = (
    "0", "1", "2", "4", "8", "-1", "-0", "1.0", "1e0", "255", "2147483647", "2147483648", "4294967295", "4294967296",
    "9223372036854775807", "9223372036854775808", "18446744073709551615", "18446744073709551616", "1" * 30, "true", "null",
    '"1"', "[]", "{}", "1e400", "0x1",
)  # fmt: skip
SNIPPETS = (
    b'"',
    b"\\",
    b"{",
    b"}",
    b"[",
    b"]",
    b",",
    b":",
    b"\0",
    b" ",
    b"\xff",
    b"\xc3",
    b"\\u0061",
    b"\\ud800",
    b"1",
    b"-",
    b"e",
)


def mutated(seed: int) -> bytes:
    """A small file with one to three things changed: numbers, dtypes, bytes, structure, length, data."""
    rng = random.Random(seed)
    at, rows = 0, []
    for i in range(rng.randrange(5)):
        dtype = rng.choice(("F32", "U8", "BF16", "F64", "F4", "BOOL", "F8_E4M3", "C64"))
        shape = [rng.choice((0, 1, 2, 2, 4)) for _ in range(rng.randrange(4))]
        n = reader.DTYPES[dtype]
        for d in shape:
            n *= d
        n //= 8
        rows.append(
            [
                '"%s%d"' % (rng.choice(("t", "layer.", "é")), i),
                '"%s"' % dtype,
                list(map(str, shape)),
                [str(at), str(at + n)],
            ]
        )
        at += n
    size, times = at, rng.randrange(4)
    for _ in range(times):
        kind = rng.randrange(8)
        row = rng.choice(rows) if rows else None
        if kind == 0 and row and row[2]:
            row[2][rng.randrange(len(row[2]))] = rng.choice(NUMBERS)
        elif kind == 1 and row:
            row[3][rng.randrange(len(row[3]))] = rng.choice(NUMBERS)
        elif kind == 2 and row:
            row[2].append(rng.choice(NUMBERS))
        elif kind == 3 and row:
            row[1] = rng.choice(('"F16"', '"f32"', "1", "null", '"I64"', '"F6_E2M3"', "[]"))
        elif kind == 4 and row:
            rows.append(row)
        elif kind == 5:
            size = max(0, size + rng.choice((-1, 1, 4, 8)))
        elif kind == 6:
            rng.shuffle(rows)
        elif row and all(n.isdigit() for n in row[3]):
            move = rng.choice((-4, -1, 1, 4, size))
            row[3] = [str(max(0, int(n) + move)) for n in row[3]]
    parts = [
        '%s:{"dtype":%s,"shape":[%s],"data_offsets":[%s]}' % (n, d, ",".join(s), ",".join(o)) for n, d, s, o in rows
    ]
    if rng.random() < 0.3:
        parts.insert(
            rng.randrange(len(parts) + 1), '"__metadata__":{"k":%s}' % rng.choice(('"v"', '"v"', "1", '"\\n"'))
        )
    text = bytearray(("{%s}" % ",".join(parts)).encode())
    if rng.random() < 0.35:
        for _ in range(rng.randrange(1, 3)):
            place = rng.randrange(len(text) + 1)
            kind = rng.randrange(4)
            if kind == 0:
                text[place : place + 1] = bytes([rng.randrange(256)])
            elif kind == 1:
                text[place:place] = rng.choice(SNIPPETS)
            elif kind == 2:
                del text[place : place + rng.randrange(1, 9)]
            else:
                other = rng.randrange(len(text) + 1)
                text[place:place] = text[other : other + 30]
    length = len(text)
    if rng.random() < 0.05:
        length = rng.choice(
            (0, 1, length - 1, length + 1, length + size, 10**8, 1 << 32, (1 << 64) - 8, (1 << 64) - 1)
        ) % (1 << 64)
    data = struct.pack("<Q", length) + bytes(text) + bytes(range(256)) * (size // 256 + 1)
    return data[: 8 + len(text) + size] if rng.random() < 0.97 else data[: rng.randrange(8 + len(text) + size + 1)]


class Fuzz(Case):
    COUNT = 8000 if tools.LONG else 2000

    def test_any_bytes_are_read_or_refused_and_the_audit_agrees(self) -> None:
        opened, codes = 0, set()
        for seed in range(self.COUNT):
            data = mutated(seed)
            try:
                opened += self.exercise(data, codes)
            except Exception as error:
                raise AssertionError("mutated(%d), %d bytes: %r" % (seed, len(data), error)) from error
        # Neither side is there by accident.
        self.assertTrue(self.COUNT // 8 < opened < self.COUNT * 4 // 5, opened)
        expected = {
            "st.length.truncated", "st.length.bounds", "st.length.limit", "st.metadata.json", "st.entry.dtype",
            "st.entry.shape", "st.size.shape", "st.offsets.bounds", "st.hole.bounds", "st.tensors.overlap",
            "st.data.truncated", "st.trailing.bounds", "json.key.duplicate", "json.syntax.json", "json.utf8.json",
            "json.number.range",
        }  # fmt: skip
        self.assertEqual(expected - codes, set())

    def exercise(self, data: bytes, codes: set[str]) -> bool:
        start = time.process_time()
        found = Findings(None)
        reader.audit_container(Source(data), found)
        errors = [f.code for f in found.sorted() if f.severity == "error"]
        try:
            f = self.opened(data)
        except (FormatError, LimitError) as error:
            self.assertIn(error.code, errors)
            self.assertTrue(error.offset is not None and 0 <= error.offset <= len(data), error)
            codes.add(error.code)
            return False
        self.assertEqual(errors, [])
        total = 0
        for name in f:
            info = f.info(name)
            total += len(f.raw(name))
            try:
                values = f.get_tensor(name)
            except UnsupportedError as error:
                self.assertEqual(error.code, "st.decode.unsupported")
                continue
            count = 1
            for d in info.shape:
                count *= d
            self.assertEqual(len(values), count)
        self.assertEqual(total, len(data) - f.header.data_start)
        self.assertLess(time.process_time() - start, 6)
        return True

    def test_the_plain_parser_sees_the_same_files(self) -> None:
        for seed in range(0, self.COUNT, 10):
            data = mutated(seed)
            with without_json():
                plain = self.outcome(data)
            self.assertEqual(plain, self.outcome(data), seed)

    def outcome(self, data: bytes) -> object:
        try:
            return self.opened(data).header
        except VqfrefError as error:
            return type(error), error.code, error.offset, error.field, error.message


if __name__ == "__main__":
    unittest.main()

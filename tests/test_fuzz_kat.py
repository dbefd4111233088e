"""The invariant for what comes as JSON: a suite of known answers loads or raises a VqfrefError, an inference record is
judged, within 2 s, whatever the bytes.

Suites and records are made from good ones, each from its own seed, which a failure prints; and every place of a suite
holds once each of the values that do not belong there.
"""

from __future__ import annotations

import copy
import hashlib
import json
import os
import random
import tempfile
import unittest
from pathlib import Path

from tests.kat_samples import ABC, KAT, G, case, fnv_case, manifest, sm3_case
from tests.test_attest import OUTPUT, PUBLIC, RECORD, RECORD_2, REQUEST
from tests.test_fuzz_vqf import Hang, limit
from tests.tools import LONG, SECONDS
from vqfref import attest
from vqfref.errors import WORDS, VqfrefError
from vqfref.kat import export, runner
from vqfref.kat.cases import MAX_FILE, Suite

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterator

SUITES = 6000 if LONG else 300
RECORDS = 6000 if LONG else 200

Q8_ROW = "003c" + "01" * 32
ONES = "0000803f" * 32
GOOD: dict[str, list[dict[str, Any]]] = {
    "sm3": [sm3_case(), sm3_case("sm3-wrong", out={"digest": "00" * 32})],
    "fnv1a64": [fnv_case()],
    "sm3_kdf": [
        case("kdf", {"z": "", "klen": 4}, {"key": "00112233"}),
        case("long", {"z": "", "klen": "9007199254740993"}, error="range"),
    ],
    "sm2_pubkey": [
        case("g", {"pub": G}, {"pub": G}),
        case("g-04", {"pub": "04" + G}, {"pub": G}, result="acceptable", flags=["prefix-04"]),
        case("short", {"pub": "00"}, error="key"),
    ],
    "matvec": [
        case("product", {"type": "q8_0", "layout": "linear", "cols": 32, "data": Q8_ROW, "x": ONES},
             {"y": "00000042", "tol": "00000000"}),
    ],
    "vqf_file": [case("file", {"path": "files/a.vqf"}, error="truncated")],
    "uqff_layer": [case("layer", {"key": "a.b", "path": "files/a.vqf"}, error="json")],
    "vqf_geometry": [
        case("geometry", {"wmode": "q4", "x8": 0, "q8_tile": 8, "form": 448, "arch": "dim:1"}, error="header"),
    ],
}  # fmt: skip
STRANGE: list[Any] = [
    None, True, False, 0, 1, -1, 1.5, 1e308, 1 << 53, 1 << 64, 10**900, "", " ", "a", "0", "00", "\0", "\n", "é", "\U0001f600",
    "..", "files/..", "/", "sm3", "valid", "invalid", "acceptable", "key", "x" * 3000, [], {}, [[]], [{}], {"": {}}, {"a": 1},
    ["a"] * 50,
]  # fmt: skip
TOKENS = (
    b"{", b"}", b"[", b"]", b",", b":", b'"', b"\\", b"\\u0000", b"\\ud800", b"\\udc00", b"\xff", b"\xc3", b"\0", b"1e999",
    b"-", b"-0",
    b"9" * 1200, b"[" * 100, b'{"a":' * 100, b"null", b"NaN", b"Infinity", b"//", b"\xef\xbb\xbf", b'"in":{}', b'"id":"a"',
    b"\xe2\x80\xae",
)  # fmt: skip


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path of every value inside a JSON value, its own first."""
    yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield from places(inner, (*path, key))


def replaced(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    """A copy with another value at a path."""
    if not path:
        return new
    whole = copy.deepcopy(value)
    inner = whole
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = new
    return whole


def bent(rng: random.Random, value: Any) -> Any:
    """A copy with a value replaced, left out, moved, or under another name."""
    path = rng.choice(list(places(value)))
    way = rng.randrange(5)
    if way < 2 or not path:
        return replaced(value, path, rng.choice(STRANGE))
    whole = copy.deepcopy(value)
    inner = whole
    for key in path[:-1]:
        inner = inner[key]
    old = inner.pop(path[-1])
    if way == 2 and isinstance(inner, dict):
        inner[rng.choice(("", "a", "id", "tol", "fnv", "sm3.json", "é", "\0"))] = old
    elif way == 3 and isinstance(inner, dict):
        inner[path[-1]] = old  # at the end now
    elif way == 3:
        inner += [old, old]
    return whole


def broken(rng: random.Random, data: bytes) -> bytes:
    """A copy with bytes changed, gone, or come in."""
    out = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 5))):
        at = rng.randrange(len(out) + 1)
        way = rng.randrange(5)
        if way == 0 and at < len(out):
            out[at] ^= 1 << rng.randrange(8)
        elif way == 1:
            del out[at : at + rng.choice((1, 2, 8, 100))]
        elif way == 2:
            out[at:at] = out[rng.randrange(len(out) + 1) :][: rng.choice((1, 10, 100))]
        elif way == 3:
            out[at:at] = rng.choice(TOKENS)
        else:
            del out[at:]
    return bytes(out)


def mutated(seed: int) -> dict[str, bytes]:
    """The files of a suite by name, one of them changed; mostly with a manifest that fits."""
    rng = random.Random(seed)
    files = {op: json.dumps(cases).encode() for op, cases in GOOD.items()}
    way = rng.randrange(10)
    op = rng.choice(sorted(files))
    if way < 4:
        files[op] = json.dumps(bent(rng, GOOD[op])).encode()
    elif way < 7:
        files[op] = broken(rng, files[op])
    about = manifest(files)
    text = json.dumps(bent(rng, about) if way in (7, 8) else about).encode()
    return {
        "manifest.json": broken(rng, text) if way == 9 else text,
        **{op + ".json": data for op, data in files.items()},
    }


class Memory(Suite):
    """A suite whose JSON is not on a disk."""

    def __init__(self, folder: str, files: dict[str, bytes]) -> None:
        self.files = files
        super().__init__(folder)

    def _read(self, name: str) -> bytes:
        if name not in self.files:
            raise FileNotFoundError(name)
        return self.files[name]


class Suites(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        (self.folder / "files").mkdir()
        (self.folder / "files" / "a.vqf").write_bytes(b"VQF")

    def exercise(self, files: dict[str, bytes], rng: random.Random) -> bool:
        """Load a suite and use all of it. True if it loaded."""
        try:
            suite = Memory(str(self.folder), files)
        except VqfrefError as error:
            self.assertIn(error.code.split(".")[0], ("kat", "json"))
            self.assertIn(error.word, WORDS)
            self.assertEqual(os.path.dirname(error.path or ""), str(self.folder))
            str(error).encode("utf-8", "backslashreplace")
            return False
        except FileNotFoundError:  # a file of the manifest's that is not there
            return False
        json.loads(export.json_text(suite.cases))
        export.flat(suite.cases).encode("utf-8")
        self.assertTrue(export.c_header(suite, suite.cases).isascii())
        for c in suite.cases:
            self.assertLess(len(" ".join(suite.lines(c).values())), 65000)
            reply = rng.choice(
                ("ok", "ok y=", "ok fnv=00", "ok digest=%s" % ABC, "err", "err key x", "skip", "ok y==", "ok n=\0", "")
            )
            runner.judge(c, *reply.partition(" ")[::2])
        short = [c for c in suite.cases if c.op != "sm3_kdf" or int(c.inputs["klen"]) < 1000]
        list(runner.run(short, runner.in_process(suite), {}))
        return True

    def test_any_suite_is_loaded_or_refused(self) -> None:
        loaded = 0
        for seed in range(SUITES):
            try:
                with limit(SECONDS):
                    loaded += self.exercise(mutated(seed), random.Random(seed))
            except (Exception, Hang) as error:
                raise AssertionError("mutated(%d): %r" % (seed, error)) from error
        self.assertGreater(loaded, SUITES // 50)  # neither side is there by accident
        self.assertLess(loaded, SUITES // 2)

    def test_every_place_refuses_what_does_not_belong_there(self) -> None:
        may_be: dict[Any, Any] = {"klen": (int, str), "flags": list, 0: str}
        may_be.update(dict.fromkeys(("id", "comment", "source", "error", "level", "z", "key"), str))
        good = GOOD["sm3_kdf"]
        for path in places(good):
            for value in STRANGE:
                data = json.dumps(replaced(good, path, value)).encode()
                files = {"sm3_kdf.json": data, "manifest.json": json.dumps(manifest({"sm3_kdf": data})).encode()}
                with limit(SECONDS):
                    loaded = self.exercise(files, random.Random(0))
                if loaded and path and json.loads(data) != good:
                    self.assertIsInstance(value, may_be.get(path[-1], ()), path)
                    self.assertNotIsInstance(value, bool)
        data = json.dumps(good).encode()
        about = manifest({"sm3_kdf": data})
        for path in places(about):
            for value in STRANGE:
                other = replaced(about, path, value)
                files = {"sm3_kdf.json": data, "manifest.json": json.dumps(other).encode()}
                loaded = self.exercise(files, random.Random(0))
                same = json.dumps(other) == json.dumps(about) or (path == ("files",) and value == {})
                self.assertEqual(loaded, same, (path, value))

    def test_the_largest_files_take_little_time(self) -> None:
        n = MAX_FILE if LONG else MAX_FILE // 16
        for data in (
            b"[" + b"{}," * (n // 3 - 2) + b"{}]", b"[" * n, b"[]" * (n // 2), b'["' + b"\\u0041" * (n // 6 - 2) + b'"]',
            b"[" + b"9" * (n - 2) + b"]", b'{"' + b"a" * (n - 8) + b'":0}', b'["' + b"\xff" * (n - 4) + b'"]',
        ):  # fmt: skip
            about = manifest({"sm3": b"[]"})
            about["files"]["sm3.json"]["sha256"] = hashlib.sha256(data).hexdigest()
            with limit(SECONDS):
                files = {"sm3.json": data, "manifest.json": json.dumps(about).encode()}
                self.assertFalse(self.exercise(files, random.Random(0)))

    def test_the_real_suite_with_any_file_cut_is_refused(self) -> None:
        names = sorted(json.loads((KAT / "manifest.json").read_bytes())["files"])
        for name in names:
            folder = self.folder / name[:-5]
            folder.mkdir()
            data = (KAT / name).read_bytes()
            about = json.loads((KAT / "manifest.json").read_bytes())
            about["files"] = {name: about["files"][name]}
            (folder / "manifest.json").write_text(json.dumps(about), "utf-8")
            (folder / name).write_bytes(data[: len(data) // 2])
            with self.assertRaises(VqfrefError) as caught:
                Suite(str(folder))
            self.assertEqual(caught.exception.code, "kat.file.tag")


class Attestations(unittest.TestCase):
    def judged(self, data: bytes, request: bytes, output: bytes, key: bytes) -> bool:
        """The verdict on a record; every finding is well formed."""
        try:
            result = attest.verify(data, request, output, key)
        except VqfrefError as error:  # the caller's key
            self.assertNotEqual(key, PUBLIC)
            self.assertIn(error.word, WORDS)
            return False
        self.assertEqual(result.ok, not result.findings)
        for finding in result.findings:
            self.assertIn(finding.code.rsplit(".", 1)[-1], WORDS)
            self.assertTrue(finding.message.isprintable(), finding.message)
        return bool(result.ok)

    def test_any_record_is_judged_and_only_the_same_content_passes(self) -> None:
        bases = [RECORD, RECORD_2]
        passed = 0
        for seed in range(RECORDS):
            rng = random.Random(seed)
            base = rng.choice(bases)
            data = json.dumps(base, ensure_ascii=rng.random() < 0.5).encode()
            request, output, key = REQUEST, OUTPUT, PUBLIC
            way = rng.randrange(20)
            if way < 9:
                data = json.dumps(bent(rng, base)).encode()
            elif way < 17:
                data = broken(rng, data)
            elif way == 17:
                request = broken(rng, request)
            elif way == 18:
                output = broken(rng, output)
            else:
                key = broken(rng, key)
            try:
                with limit(SECONDS):
                    good = self.judged(data, request, output, key)
            except (Exception, Hang) as error:
                raise AssertionError("record %d: %r" % (seed, error)) from error
            passed += good
            if good:
                self.assertEqual((request, output), (REQUEST, OUTPUT), seed)
                self.assertIn(key, (PUBLIC, b"\x04" + PUBLIC), seed)
                record = json.loads(data)
                for name in attest.COVERED:
                    same = (
                        str(record[name]).lower() == str(base[name]).lower()
                        if name == "body_sha"
                        else record[name] == base[name]
                    )
                    self.assertTrue(same, (seed, name))
        self.assertGreater(passed, 0)
        self.assertLess(passed, RECORDS // 3)

    def test_every_place_of_a_record(self) -> None:
        for path in places(RECORD):
            for value in STRANGE:
                with limit(SECONDS):
                    good = self.judged(json.dumps(replaced(RECORD, path, value)).encode(), REQUEST, OUTPUT, PUBLIC)
                self.assertFalse(good, (path, value))


if __name__ == "__main__":
    unittest.main()

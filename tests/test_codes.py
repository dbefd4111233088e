"""The codes of errors and findings: each is explained in vqfref/codes.py, and each can occur."""

from __future__ import annotations

import ast
import os
import re
import tempfile
import types
import unittest
from functools import lru_cache
from pathlib import Path
from unittest import mock

import vqfref
from tests import faults
from tests.samples import at, flip, model, patch, real
from tests.tools import thorough
from vqfref.codes import CODES
from vqfref.errors import WORDS, VqfrefError
from vqfref.sink import InPlace
from vqfref.source import MAX_WINDOW, Source
from vqfref.vqf.audit import audit
from vqfref.vqf.geometry import Geometry, plan
from vqfref.vqf.head import load_head
from vqfref.vqf.map import svg
from vqfref.vqf.reader import VqfFile
from vqfref.vqf.reseal import reseal
from vqfref.vqf.seal import verify
from vqfref.vqf.structs import Q8_0
from vqfref.weightfile import Verification

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Iterator

LIBRARY = Path(vqfref.__file__).parent
PASSPHRASE = b"correct horse battery staple"
PUBLIC_KEY = bytes.fromhex(
    "09f9df311e5421a150dd7d161e4bc5c672179fad1833fc076bb08ff356f35020"
    "ccea490ce26775a52dc6ea718cc1aa600aed05fbf35e084a6632f6072da9ad13"
)  # of kat/files/sealed.json

CODE = re.compile(r"[a-z][a-z0-9]*\.(?:[a-z0-9]+|%s)\.[a-z]+")  # a part may be filled in


def literals() -> Iterator[tuple[str, str]]:
    """(file, text) of every string in the library's sources that looks like a code, its table apart."""
    for path in sorted(LIBRARY.rglob("*.py")):
        if path.name == "codes.py":
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and CODE.fullmatch(node.value):
                yield path.name, node.value


@lru_cache(maxsize=None)
def used() -> tuple[dict[str, str], dict[str, str]]:
    """The codes in the sources and the patterns of codes ("usage.%s.range"), each with a file that has it."""
    families = {code.partition(".")[0] for code in CODES}
    codes, patterns = {}, {}
    for file, text in literals():
        family, _, rest = text.partition(".")
        if text.startswith("uqff.version."):  # names of tensors
            continue
        if rest.rpartition(".")[2] in WORDS or family in families:
            (patterns if "%s" in text else codes)[text] = file
    return codes, patterns


def matches(pattern: str, code: str) -> bool:
    return re.fullmatch(re.escape(pattern).replace("%s", "[a-z0-9]+"), code) is not None


class Table(unittest.TestCase):
    maxDiff = None

    def test_every_code_in_the_sources_is_explained(self) -> None:
        codes, patterns = used()
        self.assertGreater(len(codes), 60)
        self.assertEqual(["%s in %s" % item for item in codes.items() if item[0] not in CODES], [])
        for pattern, file in patterns.items():
            self.assertTrue(any(matches(pattern, code) for code in CODES), "%s in %s" % (pattern, file))

    def test_every_explained_code_is_in_the_sources(self) -> None:
        codes, patterns = used()
        idle = [c for c in CODES if c not in codes and not any(matches(p, c) for p in patterns)]
        self.assertEqual(idle, [])

    def test_a_code_has_three_parts_and_its_last_is_a_word_of_the_closed_list(self) -> None:
        for code in CODES:
            self.assertIsNotNone(re.fullmatch(r"[a-z][a-z0-9]*\.[a-z0-9]+\.[a-z]+", code), code)
            self.assertIn(code.rpartition(".")[2], WORDS, code)

    def test_meaning_and_cure_are_sentences(self) -> None:
        for code, texts in CODES.items():
            self.assertEqual(len(texts), 2, code)
            for text in texts:
                self.assertRegex(text, r"\A\S.*[.?]\Z", code)

    def test_word_of_an_error_is_the_last_part_of_its_code(self) -> None:
        self.assertEqual(VqfrefError("vqf.directory.overlap", "").word, "overlap")


# ---- codes at run time


def of_audit(data: bytes) -> list[str]:
    return [f.code for f in audit(Source(data))]


def of_verify(data: bytes, **how: Any) -> list[str]:
    source = Source(data)
    return [f.code for f in verify(source, load_head(source), **how).findings]


def of_error(call: Callable[[], Any]) -> list[str]:
    try:
        call()
    except VqfrefError as error:
        return [error.code]
    return []


def window() -> list[str]:
    """More than a 32-bit host maps at once, from a sparse file."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "sparse")
        with open(path, "wb") as file:
            file.truncate(MAX_WINDOW + 1)
        small = types.SimpleNamespace(maxsize=(1 << 31) - 1)
        with mock.patch("vqfref.source.sys", small), Source(path) as source:
            return of_error(lambda: source.view(0, MAX_WINDOW + 1))


def resign() -> list[str]:
    """A change of what a signature covers."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "signed.vqf")
        Path(path).write_bytes(real("h448-signed"))
        return of_error(lambda: reseal(path, os.path.join(folder, "out.vqf"), fields={"bos_id": 7}))


def wide_geometry() -> Geometry:
    """So many rows that a column of them has too many byte ranges."""
    return Geometry("q8_q", Q8_0, 1 << 19, 64, (1 << 19, 64))


def wide_rows() -> list[str]:
    """Tiles of rows that are too wide to be read together."""
    file = VqfFile(Source(real("h448-plain")))
    with mock.patch("vqfref.vqf.reader.MAX_ROW", 31):
        return of_error(lambda: list(file.values("q4_q")))


def changed_meanwhile() -> list[str]:
    """A file that no longer has the bytes that were to be replaced."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "file"
        path.write_bytes(b"new")
        with InPlace(path) as target:
            return of_error(lambda: target.apply([(0, b"old", b"newer")]))


def crowded_map() -> list[str]:
    """More parts than a picture can show."""
    with mock.patch("vqfref.vqf.map.MAX_PARTS", 10):
        return of_error(lambda: svg(VqfFile(Source(real("h448-plain")))))


PROVOKED: list[Callable[[], list[str]]] = [
    # reading
    lambda: of_error(lambda: Source(b"abc").read_at(0, 4)),
    window,
    changed_meanwhile,
    lambda: of_verify(real("h448-plain"), public_key=PUBLIC_KEY),
    lambda: of_error(lambda: wide_geometry().ranges(cols=(0, 32))),
    wide_rows,
    crowded_map,
    lambda: of_error(lambda: plan(VqfFile(Source(real("h448-plain"))).header.arch._replace(dim=1 << 32), "q4")),
    lambda: of_error(lambda: plan(VqfFile(Source(real("h448-plain"))).header.arch._replace(n_layers=1 << 27), "q4")),
    lambda: [str(VqfFile(Source(real("h448-enc")), passphrase=b"another").doubts().code)],  # type: ignore[union-attr]
    lambda: of_error(lambda: VqfFile(Source(real("h448-enc"))).get_tensor("final_norm")),
    lambda: of_error(lambda: VqfFile(Source(patch(real("h448-plain"), at(7, "qtype"), "I", 9))).get_tensor("q4_k")),
    lambda: of_error(lambda: VqfFile(Source(model("tails"))).matvec("q8_o", [1.0] * 24)),
    # sealing, without and with what is required
    lambda: of_verify(real("h448-enc")),
    lambda: of_verify(real("h448-enc"), passphrase=b"another"),
    lambda: of_verify(real("h448-plain"), passphrase=PASSPHRASE),
    lambda: of_verify(real("h448-plain"), require=["hmac"]),
    lambda: of_verify(real("h448-plain"), require=["signature"]),
    lambda: of_verify(real("h448-signed"), require=["signature"]),
    lambda: of_verify(flip(real("h448-signed"), 8 * 5000)),
    lambda: of_verify(real("h448-signed"), user_ids=[b"somebody else"]),
    lambda: of_verify(flip(real("h448-signed"), 8 * (248 + 95)), public_key=PUBLIC_KEY),
    lambda: of_verify(flip(real("h448-signed"), 8 * 248), public_key=PUBLIC_KEY),
    lambda: [f.code for f in Verification.of_structure([], ["signature"]).findings],
    resign,
    # the medium
    lambda: of_verify(patch(real("h448-plain"), 4096, "4096s", b"\xff" * 4096)),
    lambda: of_audit(patch(real("h448-plain"), 12, "I", 15)),
    # more than the library takes on
    lambda: of_audit(faults.LIMIT.make()),
    lambda: of_audit(faults.many_layers(1 << 17)),
]


class Occurrence(unittest.TestCase):
    @thorough
    def test_each_code_of_vqf_and_of_files_occurs_and_is_explained(self) -> None:
        seen: set[str] = set()
        for fault in faults.GATES + faults.FINDINGS:
            seen.update(of_audit(fault.make()))
        for fault in faults.VERIFY:
            seen.update(of_verify(fault.make()))
        for provoke in PROVOKED:
            codes = provoke()
            self.assertTrue(codes, provoke)
            seen.update(codes)
        self.assertEqual(sorted(code for code in seen if code not in CODES), [])
        expected = {code for code in CODES if code.startswith(("vqf.", "file."))}
        self.assertEqual(sorted(expected - seen), [])


if __name__ == "__main__":
    unittest.main()

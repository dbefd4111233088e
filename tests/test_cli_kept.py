"""What a command line must not cost: no output replaces an input, no failure leaves half of what was to be written."""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

from tests.samples import real
from tests.tools import Ran, get, put, run_main
from vqfref import sink
from vqfref.pyz import write_pyz

ROOT = Path(__file__).resolve().parent.parent
KAT = ROOT / "kat"
# GB/T 32918.5, Annex A
PRIVATE = b"3945208f7b2144b13f36e38ac6d39f95889393692860b51a42fb81ef4df7c5b8\n"


class Case(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.base = folder.name

    def file(self, name: str, data: bytes) -> str:
        return put(os.path.join(self.base, name), data)

    def tree(self) -> dict[str, bytes]:
        found = [os.path.join(where, n) for where, _, names in os.walk(self.base) for n in names]
        return {os.path.relpath(path, self.base): get(path) for path in found}


class Inputs(Case):
    def refuses(self, *argv: str) -> None:
        before = self.tree()
        ran = run_main(*argv)
        self.assertEqual((ran.status, ran.out), (2, ""), (argv, ran))
        self.assertIn("OUT is a file that is read", ran.err, argv)
        self.assertEqual(self.tree(), before, argv)

    def test_no_output_replaces_what_is_read(self) -> None:
        model = self.file("model.vqf", real("h448-plain"))
        key, secret = self.file("key", PRIVATE), self.file("secret", b"a long secret\n")
        link = os.path.join(self.base, "link")
        os.symlink(secret, link)
        self.refuses("map", model, "-o", model)
        self.refuses("cat", model, "token_embed", "-o", model)
        self.refuses("sign", model, "--priv", key, "-o", key)
        self.refuses("encrypt", model, "--passphrase-file", secret, "-o", secret)
        self.refuses("encrypt", model, "--passphrase-file", secret, "-o", link)
        fields, request = self.file("fields", b"{}"), self.file("request", b"{}")
        evidence = ("--request", request, "--output", request, "--priv", key)
        for out in (fields, request, key):
            self.refuses("attest", "make", fields, *evidence, "-o", out)

    def test_a_rewritten_weight_file_may_take_the_place_of_the_old_one(self) -> None:
        model, key = self.file("model.vqf", real("h448-plain")), self.file("key", PRIVATE)
        self.assertEqual(run_main("sign", model, "--priv", key, "-o", model).status, 0)
        self.assertNotEqual(get(model), real("h448-plain"))

    def test_a_slice_does_not_replace_the_set(self) -> None:
        shutil.copytree(KAT / "files" / "uqff" / "q2k", os.path.join(self.base, "u"))
        folder = os.path.join(self.base, "u")
        for name in [n for n in os.listdir(folder) if n.endswith((".uqff", ".safetensors"))]:
            out = os.path.join(folder, name)
            self.refuses("uqff", "slice", folder, "lm_head", "--dim", "0", "--rank", "0", "--world", "2", "-o", out)

    def test_a_pyz_replaces_neither_package_nor_suite(self) -> None:
        for path in (ROOT / "vqfref" / "pyz.py", KAT / "manifest.json"):
            before = path.read_bytes()
            self.assertEqual(run_main("pyz", str(path)).status, 2)
            self.assertEqual(path.read_bytes(), before)

    def test_without_zipfile_it_says_so(self) -> None:
        with mock.patch.dict(sys.modules, {"zipfile": None}), self.assertRaisesRegex(ValueError, "zipfile"):
            write_pyz(os.path.join(self.base, "out"), lambda: str(KAT))


class Failures(Case):
    def expect(self, ran: Ran, status: int, words: str) -> None:
        self.assertEqual((ran.status, ran.out), (status, ""), ran)
        self.assertIn(words, ran.err)

    def test_rows_of_a_scalar_are_refused_in_every_form(self) -> None:
        header = b'{"s":{"dtype":"F32","shape":[],"data_offsets":[0,4]}}'
        path = self.file("s.safetensors", struct.pack("<Q", len(header)) + header + b"\0\0\x80?")
        for form in ("f32", "text", "npy"):
            out = os.path.join(self.base, "out")
            self.expect(run_main("cat", path, "s", "--as", form, "--rows", "0:1", "-o", out), 2, "scalar")

    def test_set_refuses_what_becomes_zero_in_an_f32_and_a_field_twice(self) -> None:
        model, out = self.file("model.vqf", real("h448-plain")), os.path.join(self.base, "out")
        for field in ("rope_theta=1e-50", "norm_eps=1e-46", "max_seq_len=0"):
            self.expect(run_main("set", model, field, "-o", out), 2, "not a positive number")
        self.expect(run_main("set", model, "bos_id=5", "arch.bos_id=6", "-o", out), 2, "twice")

    def test_a_user_id_without_a_key_is_refused(self) -> None:
        self.expect(run_main("convert", self.base, "out", "--wmode", "q4", "--id", "me"), 2, "without a key")

    def test_a_private_key_that_can_not_be_written_takes_the_public_one_along(self) -> None:
        private, public = os.path.join(self.base, "private"), os.path.join(self.base, "public")
        real_link = sink.AtomicFile._link

        def link(file: sink.AtomicFile) -> None:
            if file.path == private:
                raise OSError(28, "No space left on device", private)
            real_link(file)

        with mock.patch.object(sink.AtomicFile, "_link", link):
            ran = run_main("keygen", private, public)
        self.assertEqual((ran.status, self.tree()), (3, {}))
        self.assertEqual(run_main("keygen", private, public).status, 0)

    def test_a_publication_that_can_not_begin_leaves_no_folder(self) -> None:
        made = []

        def mkdir(path: str, mode: int = 0o777) -> None:
            made.append(path)
            if len(made) == 2:
                raise OSError(28, "No space left on device", path)
            real_mkdir(path, mode)

        real_mkdir, out = os.mkdir, os.path.join(self.base, "out")
        with mock.patch("os.mkdir", mkdir), self.assertRaises(OSError) as caught:
            sink.Publication(out)
        self.assertEqual((caught.exception.filename, os.listdir(self.base)), (out, []))

    @unittest.skipUnless(os.path.exists("/dev/full"), "no /dev/full")
    def test_help_that_can_not_be_written_is_3(self) -> None:
        for argv in (["--version"], ["help"], ["check", "--help"]):
            with open("/dev/full", "w") as full:
                done = subprocess.run(
                    [sys.executable, "-m", "vqfref", *argv],
                    cwd=str(ROOT),
                    stdout=full,
                    stderr=subprocess.PIPE,
                    check=False,
                )
            self.assertEqual((done.returncode, b"Traceback" in done.stderr), (3, False), argv)

    @unittest.skipUnless(shutil.which("sh"), "no shell")
    def test_serve_without_an_input_ends(self) -> None:
        command = ["sh", "-c", '"$0" -m vqfref kat serve <&-', sys.executable]
        done = subprocess.run(command, cwd=str(ROOT), capture_output=True, check=False)
        self.assertEqual((done.returncode, done.stderr), (0, b""))


if __name__ == "__main__":
    unittest.main()

"""The examples of kat/examples under test themselves: they pass what they have, and with one fault put in they fail.

The faults are those of real programs: a counter of 32 bits, a directory entry without its bound, a sum that wraps around,
an abort on a bad header.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import tempfile
import unittest
from collections import Counter
from functools import lru_cache
from pathlib import Path

from tests.kat_samples import ABC, KAT, vqfref
from tests.tools import thorough
from vqfref.kat.adapter import Adapter
from vqfref.kat.cases import Suite
from vqfref.kat.runner import by_adapter, run

EXAMPLES = KAT / "examples"
CC = shutil.which("cc")
OPENSSL = shutil.which("openssl")
STRICT = ["-std=c11", "-Wall", "-Wextra", "-Werror", "-pedantic"]
SANITIZE = ["-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
C_OPERATIONS = {
    "sm3", "hmac_sm3", "sm4_ctr", "fnv1a64", "quantize", "dequantize", "vqf_header", "vqf_directory",
}  # fmt: skip

COUNTER = ("i >= 0 && n; i--", "i >= 12 && n; i--")
BOUNDS = (
    'offset > h->file_len || length > h->file_len - offset) return "bounds"',
    'offset > h->file_len) return "bounds"',
)
WRAPS = ("length > h->file_len - offset)", "offset + length > h->file_len)")
ABORTS = ('if (!le(h.data + POSITIVE[i], 4)) return "header"', "if (!le(h.data + POSITIVE[i], 4)) abort()")


@lru_cache(maxsize=None)
def suite() -> Suite:
    return Suite(str(KAT))


def outcomes(command: list[str], *ops: str) -> Counter[str]:
    """How many cases of some operations come out how; of all cases where none is named."""
    adapter = Adapter(command)
    cases = [c for c in suite().cases if not ops or c.op in ops]
    try:
        found = Counter(o.outcome for o in run(cases, by_adapter(suite(), adapter), {}))
        wrong = adapter.close()
    finally:
        adapter.kill()
    if wrong:
        raise AssertionError(wrong)
    return found


@unittest.skipUnless(CC, "no C compiler")
class C(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def built(self, *flags: str, change: tuple[str, str] | None = None) -> list[str]:
        """The adapter compiled, with one text of it replaced."""
        source = (EXAMPLES / "adapter.c").read_text("utf-8")
        if change:
            self.assertEqual(source.count(change[0]), 1, change[0])
            source = source.replace(*change)
        (self.folder / "adapter.c").write_text(source, "utf-8")
        program = str(self.folder / "adapter")
        command = ["cc", *flags, "-o", program, str(self.folder / "adapter.c")]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.assertEqual((done.returncode, done.stdout), (0, b""), done.stdout.decode("utf-8", "replace"))
        return [program]

    def test_it_needs_nothing_beyond_libc(self) -> None:
        source = (EXAMPLES / "adapter.c").read_text("utf-8")
        found = {line.split()[1] for line in source.splitlines() if line.startswith("#include")}
        self.assertEqual(found, {"<stdint.h>", "<stdio.h>", "<stdlib.h>", "<string.h>"})

    def test_it_passes_all_that_it_has(self) -> None:
        program = self.built("-O1", *STRICT)
        done = vqfref("kat", "run", "--suite", str(KAT), "--strict-errors", "--", *program)
        self.assertEqual((done.code, done.err, len(done.out.splitlines())), (0, "", 1), done.out)
        self.assertIn(" 0 failed, ", done.last)
        for op in C_OPERATIONS:
            self.assertGreater(outcomes(program, op)["PASS"], 10, op)

    @thorough
    def test_it_is_clean_under_the_sanitizers(self) -> None:
        (self.folder / "probe.c").write_text("int main(void) { return 0; }\n")
        probe = [*SANITIZE, "-o", str(self.folder / "probe"), str(self.folder / "probe.c")]
        if subprocess.run(["cc", *probe], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode:
            self.skipTest("the compiler has no sanitizers")
        if subprocess.run(
            [str(self.folder / "probe")], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        ).returncode:
            self.skipTest("programs with sanitizers don't run here")
        self.assertEqual(set(outcomes(self.built(*SANITIZE, *STRICT))), {"PASS", "SKIP"})

    @thorough
    def test_a_counter_of_32_bits_fails(self) -> None:
        found = outcomes(self.built(change=COUNTER), "sm4_ctr")
        self.assertEqual(set(found), {"PASS", "FAIL"})

    def test_a_directory_without_its_bound_fails(self) -> None:
        found = outcomes(self.built(change=BOUNDS), "vqf_directory")
        self.assertEqual(set(found), {"PASS", "FAIL"})
        wrapping = outcomes(self.built(change=WRAPS), "vqf_directory")
        self.assertEqual(set(wrapping), {"PASS", "FAIL"})
        self.assertLess(wrapping["FAIL"], found["FAIL"])

    def test_an_abort_on_a_bad_header_is_a_crash(self) -> None:
        found = outcomes(self.built(change=ABORTS), "vqf_header")
        self.assertEqual(set(found), {"PASS", "CRASH"})
        self.assertGreater(found["PASS"], found["CRASH"])


class Python(unittest.TestCase):
    def test_the_least_adapter_passes(self) -> None:
        command = [sys.executable, str(EXAMPLES / "adapter.py")]
        try:
            hashlib.new("sm3")
            ops = ["sm3", "fnv1a64"]
        except ValueError:
            ops = ["fnv1a64"]
        for op in ops:
            self.assertEqual(set(outcomes(command, op)), {"PASS"}, op)
        self.assertEqual(set(outcomes(command)), {"PASS", "SKIP"})

    def test_with_a_wrong_prime_it_fails(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "adapter.py"
            text = (EXAMPLES / "adapter.py").read_text("utf-8")
            self.assertEqual(text.count("0x100000001B3"), 1)
            path.write_text(text.replace("0x100000001B3", "0x1000001B3"), "utf-8")
            found = outcomes([sys.executable, str(path)], "fnv1a64")
        self.assertEqual(set(found), {"PASS", "FAIL"})  # nothing at all hashes right
        self.assertEqual(found["PASS"], 1)


@unittest.skipUnless(OPENSSL, "no openssl command")
class OpenSSL(unittest.TestCase):
    def setUp(self) -> None:
        done = subprocess.run(
            ["openssl", "dgst", "-sm3", "-r"], input=b"abc", stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        if not done.stdout.startswith(ABC.encode()):
            self.skipTest("an openssl without SM3")
        done = subprocess.run(["openssl", "version"], stdout=subprocess.PIPE)
        if not done.stdout.startswith(b"OpenSSL 3"):
            self.skipTest("not OpenSSL 3")

    def kat(self, *words: str) -> str:
        """The last line of a run of some cases."""
        run = [sys.executable, str(EXAMPLES / "openssl_adapter.py")]
        done = vqfref("kat", "run", "--suite", str(KAT), *words, "--", *run)
        self.assertEqual((done.code, done.err), (0, ""), done.out)
        return str(done.last)

    @thorough
    def test_a_sample_of_it(self) -> None:
        xfail = ("--xfail", str(EXAMPLES / "openssl.xfail"))
        self.assertIn(
            ", 0 failed, 0 skipped",
            self.kat(*xfail, "--only", "sm3-abc", "--only", "sm4-ctr-*-0", "--only", "sm2-pubkey-a*"),
        )
        self.assertIn(
            "0 passed, 0 failed, 0 skipped, 1 expected to fail", self.kat(*xfail, "--only", "hmac-sm3-key-0-msg-0")
        )


if __name__ == "__main__":
    unittest.main()

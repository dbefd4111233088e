"""vqfref.pyz: what is in it, that it is always the same, and that it works alone."""

import os
import subprocess
import sys
import tempfile
import unittest
import zipfile
from pathlib import Path

from tests.tools import thorough
from vqfref.pyz import write_pyz

ROOT = Path(__file__).resolve().parent.parent


class Pyz(unittest.TestCase):
    @classmethod
    def setUpClass(cls) -> None:
        cls.folder = tempfile.TemporaryDirectory(prefix="vqfref-")
        cls.addClassCleanup(cls.folder.cleanup)
        cls.path = os.path.join(cls.folder.name, "vqfref.pyz")
        cls.size = write_pyz(cls.path, lambda: str(ROOT / "kat"))
        cls.temporary = os.path.join(cls.folder.name, "temporary")
        os.mkdir(cls.temporary)

    def run_it(self, *argv: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [sys.executable, "-I", "-S", self.path, *argv], cwd=self.folder.name, capture_output=True, text=True,
            timeout=120, env={**os.environ, "TMPDIR": self.temporary}, check=False,
        )  # fmt: skip

    def test_it_holds_the_package_and_the_suite_and_nothing_else(self) -> None:
        self.assertEqual(os.path.getsize(self.path), self.size)
        with zipfile.ZipFile(self.path) as archive:
            self.assertIsNone(archive.testzip())
            infos = archive.infolist()
        self.assertEqual({i.compress_type for i in infos}, {zipfile.ZIP_STORED})
        names = [i.filename for i in infos]
        self.assertEqual(names, sorted(names))
        package = {str(p.relative_to(ROOT)) for p in (ROOT / "vqfref").rglob("*") if p.suffix in (".py", ".typed")}
        kat = {str(p.relative_to(ROOT / "kat")) for p in (ROOT / "kat").rglob("*") if p.is_file()}
        suite = {"vqfref/kat/suite/" + n for n in kat if n.split("/")[0] not in ("gen", "examples", "flat")}
        self.assertEqual(set(names), package | suite | {"__main__.py", "vqfref/kat/suite/FILES"})

    def test_it_is_the_same_every_time(self) -> None:
        again = self.path + ".again"
        write_pyz(again, lambda: str(ROOT / "kat"))
        self.assertEqual(Path(again).read_bytes(), Path(self.path).read_bytes())

    def test_it_checks_a_file(self) -> None:
        done = self.run_it("check", str(ROOT / "kat" / "files" / "mini-q4-h448-plain.vqf"))
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertIn("clean", done.stdout)

    @thorough
    def test_the_suite_inside_is_run_and_leaves_nothing(self) -> None:
        done = self.run_it("kat", "selftest", "--op", "sm4_ctr")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertRegex(done.stdout, r"^kat 1\.0\.0: \d+ passed, 0 failed, 0 skipped")
        self.assertEqual(os.listdir(self.temporary), [])

    def test_it_does_not_write_itself(self) -> None:
        done = self.run_it("pyz", os.path.join(self.folder.name, "other.pyz"))
        self.assertEqual(done.returncode, 2)
        self.assertIn("already", done.stderr)


if __name__ == "__main__":
    unittest.main()

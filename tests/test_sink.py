"""Files written at one stroke, or in place: what stays after every way in which writing can go wrong."""

from __future__ import annotations

import errno
import importlib.util
import os
import socket
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

from vqfref import sink
from vqfref.errors import IntegrityError
from vqfref.sink import AtomicFile, InPlace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

ROOT = str(Path(__file__).resolve().parent.parent)
POSIX = os.name == "posix"
IS_ROOT = POSIX and os.geteuid() == 0


class Files(unittest.TestCase):
    """A test with a folder of its own, `umask` 022, and no descriptor left open."""

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory(prefix="vqfref-")
        self.addCleanup(folder.cleanup)
        self.folder = os.path.realpath(folder.name)
        self.target = os.path.join(self.folder, "target")
        old = os.umask(0o022)
        self.addCleanup(os.umask, old)
        self.descriptors = self.open_descriptors()

    def tearDown(self) -> None:
        self.assertEqual(self.open_descriptors(), self.descriptors)

    def open_descriptors(self) -> int:
        return len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0

    def old(self, data: bytes = b"old", mode: int = 0o644) -> str:
        with open(self.target, "wb") as file:
            file.write(data)
        os.chmod(self.target, mode)
        return self.target

    def read(self, path: str | bytes | None = None) -> bytes:
        with open(path or self.target, "rb") as file:
            return file.read()

    def names(self) -> list[str]:
        return sorted(os.listdir(self.folder))

    def mode(self, path: str | None = None) -> int:
        return os.stat(path or self.target).st_mode & 0o7777

    def write(self, data: bytes = b"new", path: str | None = None, **how: Any) -> None:
        with AtomicFile(path or self.target, **how) as file:
            file.write(data)


class Success(Files):
    def test_the_file_has_all_bytes_and_is_alone(self) -> None:
        with AtomicFile(self.target) as file:
            for part in (b"a", bytearray(b"bc"), memoryview(b"def"), b"", b"x" * 3_000_000):
                file.write(part)
        self.assertEqual(self.read(), b"abcdef" + b"x" * 3_000_000)
        self.assertEqual(self.names(), ["target"])

    def test_no_bytes_make_an_empty_file(self) -> None:
        self.old()
        self.write(b"")
        self.assertEqual(self.read(), b"")

    def test_a_path_object_will_do(self) -> None:
        with AtomicFile(Path(self.target)) as file:
            file.write(b"new")
        self.assertEqual(self.read(), b"new")

    def test_a_name_without_a_folder_is_in_the_current_one(self) -> None:
        here = os.getcwd()
        os.chdir(self.folder)
        try:
            self.write(b"new", "target")
        finally:
            os.chdir(here)
        self.assertEqual((self.names(), self.read()), (["target"], b"new"))

    def test_nothing_is_seen_of_it_until_it_is_whole(self) -> None:
        for old in (None, b"old"):
            if old:
                self.old(old)
            with AtomicFile(self.target) as file:
                file.write(b"x" * 3_000_000)
                hidden = [name for name in self.names() if name != "target"]
                self.assertEqual(len(hidden), 1)  # beside the target, so that the rename stays on one medium
                self.assertTrue(hidden[0].startswith("."))
                if old:
                    self.assertEqual(self.read(), old)
                else:
                    self.assertFalse(os.path.exists(self.target))
            os.unlink(self.target)

    def test_the_medium_has_the_bytes_before_they_get_their_name(self) -> None:
        calls: list[str] = []

        def note(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
            def noted(*args: Any, **kw: Any) -> Any:
                calls.append(name)
                return call(*args, **kw)

            return noted

        for overwrite, rename in ((True, "replace"), (False, "link")):
            calls.clear()
            noted = {"fsync": note("fsync", os.fsync), rename: note("rename", getattr(os, rename))}
            with mock.patch.multiple(sink.os, **noted):
                self.write(path=self.target + rename, overwrite=overwrite)
            self.assertEqual(calls[:2], ["fsync", "rename"])
            if POSIX:
                self.assertEqual(calls[2:], ["fsync"])  # of the folder: the new name lasts

    def test_write_at_overwrites_and_write_goes_on_behind(self) -> None:
        with AtomicFile(self.target) as file:
            file.write(b"0123456789")
            file.write_at(2, b"ab")
            file.write(b"xyz")
            file.write_at(0, b"-")
        self.assertEqual(self.read(), b"-1ab456789xyz")


@unittest.skipUnless(POSIX, "mode bits")
class Modes(Files):
    def test_a_new_file_has_what_the_umask_leaves(self) -> None:
        for umask, mode in ((0o022, 0o644), (0o077, 0o600), (0, 0o666)):
            os.umask(umask)
            path = "%s%o" % (self.target, umask)
            self.write(path=path)
            self.assertEqual(self.mode(path), mode)

    def test_a_private_file_is_private_from_the_start(self) -> None:
        os.umask(0)
        with AtomicFile(self.target, mode=0o600) as file:
            file.write(b"secret")
            (name,) = self.names()
            self.assertEqual(self.mode(os.path.join(self.folder, name)), 0o600)
        self.assertEqual(self.mode(), 0o600)

    def test_an_old_file_keeps_its_bits_whatever_the_umask(self) -> None:
        for mode in (0o600, 0o640, 0o666, 0o755, 0o444, 0o400):
            for umask in (0, 0o022, 0o077):
                os.umask(umask)
                self.old(mode=mode)
                with AtomicFile(self.target) as file:
                    file.write(b"new")
                    (name,) = set(self.names()) - {"target"}
                    self.assertEqual(self.mode(os.path.join(self.folder, name)) & ~mode, 0)
                self.assertEqual((self.mode(), self.read()), (mode, b"new"))
                os.unlink(self.target)

    def test_a_new_mode_does_not_open_an_old_file(self) -> None:
        self.old(mode=0o600)
        self.write(mode=0o666)
        self.assertEqual(self.mode(), 0o600)


class Interrupted(Files):
    """Whatever ends the block early, or fails at its end, the target is as it was and nothing else is there."""

    def untouched(self, call: Callable[[], None], error: type[BaseException]) -> None:
        for old in (None, b"old"):
            if old:
                self.old(old)
            with self.assertRaises(error):
                call()
            self.assertEqual(self.names(), ["target"] if old else [])
            if old:
                self.assertEqual(self.read(), old)

    def test_by_an_exception(self) -> None:
        for error in (ValueError, OSError, KeyboardInterrupt, SystemExit, MemoryError, GeneratorExit):

            def call(error: type[BaseException] = error) -> None:
                with AtomicFile(self.target) as file:
                    file.write(b"x" * 3_000_000)
                    raise error

            self.untouched(call, error)
            if os.path.exists(self.target):
                os.unlink(self.target)

    def test_by_an_exception_before_the_first_byte(self) -> None:
        def call() -> None:
            with AtomicFile(self.target):
                raise KeyboardInterrupt

        self.untouched(call, KeyboardInterrupt)

    def test_by_a_fault_of_the_medium_at_the_end(self) -> None:
        for name in ("fsync", "replace"):
            with mock.patch.object(sink.os, name, side_effect=OSError(errno.EIO, "Input/output error")):
                self.untouched(self.write, OSError)
            os.unlink(self.target)

    def test_by_ctrl_c_at_the_end(self) -> None:
        for name in ("fsync", "replace"):
            with mock.patch.object(sink.os, name, side_effect=KeyboardInterrupt):
                self.untouched(self.write, KeyboardInterrupt)
            os.unlink(self.target)

    def test_by_a_file_system_that_refuses_the_old_mode(self) -> None:
        self.old()
        refusal = PermissionError(errno.EPERM, "Operation not permitted")
        with mock.patch.object(sink.os, "chmod", side_effect=refusal), self.assertRaises(PermissionError):
            self.write()
        self.assertEqual((self.names(), self.read()), (["target"], b"old"))

    @unittest.skipUnless(POSIX, "needs resource limits")
    def test_by_a_full_disk(self) -> None:
        # A limit on the size of files stands for a full disk: writing fails in the middle of a buffer.
        code = (
            "import resource, signal, sys\n"
            "from vqfref.sink import AtomicFile\n"
            "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
            "resource.setrlimit(resource.RLIMIT_FSIZE, (100000, 100000))\n"
            "try:\n"
            "    with AtomicFile(sys.argv[1]) as file:\n"
            "        for _ in range(int(sys.argv[2])):\n"
            "            file.write(b'x' * 70000)\n"
            "except OSError as error:\n"
            "    print(error.errno)\n"
        )
        for count in (2, 100):  # found at the flush, and while writing
            for old in (None, b"old"):
                if old:
                    self.old(old)
                out = subprocess.run(
                    [sys.executable, "-W", "error", "-c", code, self.target, str(count)],
                    cwd=ROOT, stdout=subprocess.PIPE, check=True,
                )  # fmt: skip
                self.assertEqual(out.stdout.split(), [b"%d" % errno.EFBIG])
                self.assertEqual(self.names(), ["target"] if old else [])
                if old:
                    self.assertEqual(self.read(), old)
                    os.unlink(self.target)


class NotOverwriting(Files):
    def test_an_old_file_is_refused_before_anything_is_written(self) -> None:
        self.old()
        with self.assertRaises(FileExistsError) as caught:
            AtomicFile(self.target, overwrite=False)
        self.assertEqual(caught.exception.filename, self.target)
        self.assertEqual((self.names(), self.read()), (["target"], b"old"))

    def test_one_that_appears_meanwhile_is_refused_too(self) -> None:
        with self.assertRaises(FileExistsError) as caught, AtomicFile(self.target, overwrite=False) as file:
            file.write(b"new")
            self.old(b"another's")
        self.assertEqual(caught.exception.filename, self.target)
        self.assertEqual((self.names(), self.read()), (["target"], b"another's"))

    def test_a_new_one_is_written(self) -> None:
        self.write(mode=0o600, overwrite=False)
        self.assertEqual((self.names(), self.read(), self.mode()), (["target"], b"new", 0o600))
        self.assertEqual(os.stat(self.target).st_nlink, 1)

    def test_an_interruption_leaves_nothing(self) -> None:
        with self.assertRaises(KeyboardInterrupt), AtomicFile(self.target, overwrite=False) as file:
            file.write(b"new")
            raise KeyboardInterrupt
        self.assertEqual(self.names(), [])

    def test_a_file_system_without_hard_links_will_do(self) -> None:
        # FAT, as on a board's memory card
        with mock.patch.object(sink.os, "link", side_effect=PermissionError(errno.EPERM, "Operation not permitted")):
            self.write(mode=0o600, overwrite=False)
            self.assertEqual((self.names(), self.read(), self.mode()), (["target"], b"new", 0o600))
            with self.assertRaises(FileExistsError):
                self.write(b"again", overwrite=False)
            with self.assertRaises(FileExistsError), AtomicFile(self.target + "2", overwrite=False) as file:
                file.write(b"new")
                self.write(b"another's", self.target + "2")
        self.assertEqual((self.names(), self.read()), (["target", "target2"], b"new"))
        self.assertEqual(self.read(self.target + "2"), b"another's")


class Targets(Files):
    """What a target can be, and what it can't."""

    def refused(self, path: str, error: type[OSError], **how: Any) -> OSError:
        before = self.names()
        with self.assertRaises(error) as caught:
            self.write(path=path, **how)
        self.assertEqual(self.names(), before)
        return caught.exception

    def test_a_folder_is_refused(self) -> None:
        for path in (self.folder, self.folder + os.sep, os.path.join(self.folder, "..")):
            self.refused(path, IsADirectoryError)

    def test_a_missing_folder_is_refused_by_the_targets_name(self) -> None:
        path = os.path.join(self.folder, "missing", "target")
        self.assertEqual(self.refused(path, FileNotFoundError).filename, path)

    def test_a_file_is_no_folder(self) -> None:
        self.old()
        path = os.path.join(self.target, "below")
        self.assertEqual(self.refused(path, OSError).filename, path)

    @unittest.skipIf(IS_ROOT or not POSIX, "root may write anywhere")
    def test_a_folder_without_permission_is_refused_by_the_targets_name(self) -> None:
        self.old()
        os.chmod(self.folder, 0o555)
        self.addCleanup(os.chmod, self.folder, 0o755)
        self.assertEqual(self.refused(self.target, PermissionError).filename, self.target)
        self.assertEqual(self.read(), b"old")

    @unittest.skipUnless(hasattr(os, "mkfifo"), "no FIFOs here")
    def test_what_is_no_regular_file_is_refused_and_stays(self) -> None:
        # To rename over /dev/null would put a file in its place. A FIFO and a socket stand for it here.
        fifo = os.path.join(self.folder, "fifo")
        os.mkfifo(fifo)
        with socket.socket(socket.AF_UNIX) as bound:
            here = os.getcwd()
            os.chdir(self.folder)  # the path of a socket must be short
            try:
                bound.bind("socket")
            finally:
                os.chdir(here)
        os.symlink("fifo", os.path.join(self.folder, "link"))
        for name in ("fifo", "socket", "link"):
            path = os.path.join(self.folder, name)
            before = os.stat(path)
            self.refused(path, OSError)
            self.assertEqual((os.stat(path).st_mode, os.stat(path).st_ino), (before.st_mode, before.st_ino))

    @unittest.skipUnless(POSIX, "symlinks")
    def test_a_symlink_is_followed_and_stays(self) -> None:
        os.mkdir(os.path.join(self.folder, "elsewhere"))
        real = os.path.join(self.folder, "elsewhere", "real")
        with open(real, "wb") as file:
            file.write(b"old")
        os.chmod(real, 0o640)
        os.symlink(os.path.join("elsewhere", "real"), self.target)
        os.symlink("target", self.target + "2")
        self.write(path=self.target + "2")
        self.assertTrue(os.path.islink(self.target) and os.path.islink(self.target + "2"))
        self.assertEqual((self.read(real), self.mode(real)), (b"new", 0o640))
        self.assertEqual(os.listdir(os.path.join(self.folder, "elsewhere")), ["real"])

    @unittest.skipUnless(POSIX, "symlinks")
    def test_a_symlink_to_nothing_makes_the_file_it_names(self) -> None:
        os.symlink("real", self.target)
        self.write()
        self.assertTrue(os.path.islink(self.target))
        self.assertEqual(self.read(os.path.join(self.folder, "real")), b"new")

    @unittest.skipUnless(POSIX, "symlinks")
    def test_a_symlink_to_itself_is_refused(self) -> None:
        os.symlink("target", self.target)
        self.refused(self.target, OSError)
        self.assertTrue(os.path.islink(self.target))

    @unittest.skipUnless(sys.platform.startswith("linux"), "names of any bytes")
    def test_a_name_that_is_not_utf8(self) -> None:
        path = os.path.join(os.fsencode(self.folder), b"\xff\xfe-\xe4.vqf")
        self.write(path=os.fsdecode(path))
        self.assertEqual(self.read(path), b"new")
        self.write(b"newer", path=os.fsdecode(path))
        self.assertEqual(self.read(path), b"newer")
        self.assertEqual(os.listdir(os.fsencode(self.folder)), [b"\xff\xfe-\xe4.vqf"])

    def test_names_as_long_as_the_file_system_takes(self) -> None:
        for name in ("n" * 255, "模" * 85, "😀" * 63 + "abc", "é" * 127 + "a"):
            self.assertEqual(len(name.encode()), 255)
            path = os.path.join(self.folder, name)
            try:
                with open(path, "wb"):
                    pass
                os.unlink(path)
            except (OSError, ValueError) as error:
                self.skipTest("no such name here: %s" % error)
            for data in (b"new", b"newer"):
                self.write(data, path=path)
                self.assertEqual(self.read(path), data)
            self.assertEqual(self.names(), [name])
            os.unlink(path)

    def test_a_name_that_is_too_long_is_an_error_of_the_system(self) -> None:
        self.refused(os.path.join(self.folder, "n" * 256), OSError)


class Patch(Files):
    """InPlace: a few bytes of a file that exists."""

    def patch(self, path: str, *parts: tuple[int, bytes, bytes]) -> None:
        with InPlace(path) as target:
            target.apply(list(parts))

    def test_parts_are_overwritten_and_nothing_else(self) -> None:
        self.old(b"0123456789", 0o640)
        before = os.stat(self.target)
        self.patch(self.target, (0, b"01", b"ab"), (8, b"89", b"yz"), (4, b"4", b"-"), (5, b"", b""))
        after = os.stat(self.target)
        self.assertEqual(self.read(), b"ab23-567yz")
        self.assertEqual((after.st_ino, after.st_mode), (before.st_ino, before.st_mode))
        self.assertEqual(self.names(), ["target"])

    def test_parts_are_written_in_their_order_each_on_the_medium_before_the_next(self) -> None:
        self.old(b"0123456789")
        states: list[bytes] = []
        with mock.patch.object(sink.os, "fsync", lambda fd: states.append(self.read())):
            self.patch(self.target, (8, b"89", b"yz"), (0, b"01", b"ab"))
        self.assertEqual(states, [b"01234567yz", b"ab234567yz"])

    def test_a_part_that_the_system_writes_in_bits_is_written_whole(self) -> None:
        self.old(b"0123456789")
        write = os.write
        with mock.patch.object(sink.os, "write", lambda fd, data: write(fd, bytes(data[:3]))):
            self.patch(self.target, (1, b"12345678", b"abcdefgh"))
        self.assertEqual(self.read(), b"0abcdefgh9")

    def test_an_interruption_brings_the_old_bytes_back(self) -> None:
        for at in range(2):
            self.old(b"0123456789")
            calls = [None] * at + [KeyboardInterrupt] + [None] * 3
            with mock.patch.object(sink.os, "fsync", side_effect=calls), self.assertRaises(KeyboardInterrupt):
                self.patch(self.target, (0, b"01", b"ab"), (8, b"89", b"yz"))
            self.assertEqual(self.read(), b"0123456789")

    def test_a_full_medium_brings_the_old_bytes_back(self) -> None:
        self.old(b"0123456789")
        write = os.write

        def full(fd: int, data: memoryview) -> int:
            if bytes(data) == b"yz":
                raise OSError(errno.ENOSPC, "No space left on device")
            return write(fd, data)

        with mock.patch.object(sink.os, "write", full), self.assertRaises(OSError) as caught:
            self.patch(self.target, (0, b"01", b"ab"), (8, b"89", b"yz"))
        self.assertEqual(caught.exception.filename, self.target)
        self.assertEqual(self.read(), b"0123456789")

    def test_a_file_that_changed_meanwhile_is_left_alone(self) -> None:
        self.old(b"0123456789")
        with self.assertRaises(IntegrityError) as caught:
            self.patch(self.target, (0, b"01", b"ab"), (8, b"99", b"yz"))
        self.assertEqual((caught.exception.code, caught.exception.offset), ("file.changed.tag", 8))
        self.assertEqual(self.read(), b"0123456789")

    @unittest.skipUnless(importlib.util.find_spec("fcntl"), "no advisory locks")
    def test_a_second_writer_is_kept_out(self) -> None:
        self.old(b"0123456789")
        with InPlace(self.target), self.assertRaises(OSError) as caught:
            InPlace(self.target)
        self.assertEqual((caught.exception.errno, caught.exception.filename), (errno.EAGAIN, self.target))
        self.patch(self.target, (0, b"01", b"ab"))
        self.assertEqual(self.read(), b"ab23456789")

    def test_a_missing_file_and_a_folder_are_errors_and_nothing_is_made(self) -> None:
        with self.assertRaises(FileNotFoundError):
            InPlace(self.target)
        with self.assertRaises(OSError):
            InPlace(self.folder)
        self.assertEqual(self.names(), [])

    @unittest.skipIf(IS_ROOT or not POSIX, "root may write anywhere")
    def test_a_read_only_file_is_refused(self) -> None:
        self.old(mode=0o444)
        with self.assertRaises(PermissionError):
            InPlace(self.target)
        self.assertEqual(self.read(), b"old")


if __name__ == "__main__":
    unittest.main()

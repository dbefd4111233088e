"""The bytes of a file: pread and mmap say the same, and what is no file, or no longer all there, is an error."""

from __future__ import annotations

import errno
import os
import random
import subprocess
import sys
import tempfile
import types
import unittest
from pathlib import Path
from unittest import mock

import vqfref
import vqfref.vqf.reader  # before a test gives up the right to read it
from vqfref import source
from vqfref.errors import FormatError, LimitError, UsageError, VqfrefError
from vqfref.source import Source

ROOT = str(Path(__file__).resolve().parent.parent)
MINI = os.path.join(ROOT, "kat", "files", "mini-q4-h448-plain.vqf")
BACKENDS = ("mmap", "pread") if source.mmap else ("pread",)
GIB = 1 << 30

DATA = random.Random(3).getrandbits(8 * 10000).to_bytes(10000, "little")


class Files(unittest.TestCase):
    """A test with a folder of its own."""

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory(prefix="vqfref-")
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def file(self, data: bytes = DATA, name: str = "file") -> str:
        path = os.path.join(self.folder, name)
        with open(path, "wb") as file:
            file.write(data)
        return path

    def sparse(self, size: int, *pieces: tuple[int, bytes]) -> str:
        """A file of `size` bytes with holes; skips the test where it would take real space or can't be made."""
        path = self.file(b"", "sparse")
        try:
            with open(path, "r+b") as file:
                for offset, data in pieces:
                    file.seek(offset)
                    file.write(data)
                file.truncate(size)
        except (OSError, OverflowError) as error:
            self.skipTest("no file of %d bytes here: %s" % (size, error))
        if getattr(os.stat(path), "st_blocks", size) * 512 > 1 << 20:
            self.skipTest("no sparse files here")
        return path

    def open(self, path: str | bytes, backend: str | None = None) -> Source:
        opened = Source(path, backend)
        self.addCleanup(opened.close)
        return opened

    def refused(self, code: str, call: object, *args: object) -> VqfrefError:
        with self.assertRaises(VqfrefError) as caught:
            call(*args)  # type: ignore[operator]
        self.assertEqual(caught.exception.code, code)
        return caught.exception


class Reading(Files):
    def test_mmap_and_pread_and_memory_give_the_same_bytes(self) -> None:
        path = self.file()
        opened = [self.open(path, backend) for backend in BACKENDS] + [self.open(DATA)]
        rng = random.Random(5)
        ranges = [(0, 0), (0, 10000), (10000, 0), (9999, 1), (4095, 2), (4096, 4096)]
        ranges += [(a, rng.randrange(10001 - a)) for a in (rng.randrange(10000) for _ in range(50))]
        for s in opened:
            self.assertEqual(s.size, 10000)
            for offset, length in ranges:
                want = DATA[offset : offset + length]
                self.assertEqual(s.read_at(offset, length), want)
                self.assertEqual(s.view(offset, length), want)

    def test_read_at_gives_bytes_and_view_a_read_only_memoryview(self) -> None:
        path = self.file()
        for s in (*(self.open(path, backend) for backend in BACKENDS), self.open(bytearray(DATA))):
            for length in (0, 100):
                self.assertIs(type(s.read_at(7, length)), bytes)
                view = s.view(7, length)
                self.assertIs(type(view), memoryview)
                self.assertTrue(view.readonly)
                self.assertEqual((view.format, view.itemsize, view.nbytes), ("B", 1, length))

    @unittest.skipUnless(source.mmap, "this Python has no mmap")
    def test_a_mapped_view_is_no_copy(self) -> None:
        path = self.file()
        view = self.open(path, "mmap").view(100, 5)
        with open(path, "r+b") as file:
            file.seek(100)
            file.write(b"fresh")
        self.assertEqual(view, b"fresh")

    def test_a_view_by_pread_is_a_copy(self) -> None:
        path = self.file()
        s = self.open(path, "pread")
        self.assertEqual(s.backend, "pread")
        view = s.view(100, 5)
        with open(path, "r+b") as file:
            file.seek(100)
            file.write(b"fresh")
        self.assertEqual(view, DATA[100:105])

    def test_views_outlive_close(self) -> None:
        path = self.file()
        for backend in BACKENDS:
            s = Source(path, backend)
            views = [s.view(0, 10000), s.view(5000, 10)]
            s.close()
            os.unlink(path)
            self.assertEqual(views[0], DATA)
            views[0].release()
            self.assertEqual(views[1], DATA[5000:5010])
            views[1].release()
            self.file()

    def test_the_last_view_lets_go_of_the_file(self) -> None:
        if not os.path.exists("/proc/self/maps"):
            self.skipTest("no /proc")
        path = self.file(name="vqfref-mapped")
        s = Source(path)
        view = s.view(0, 100)

        def held() -> bool:
            return b"vqfref-mapped" in Path("/proc/self/maps").read_bytes() or path in [
                os.path.realpath("/proc/self/fd/" + fd) for fd in os.listdir("/proc/self/fd")
            ]

        if not held():
            self.skipTest("/proc does not show what is open")
        s.close()
        view.release()
        del view
        self.assertFalse(held())

    def test_a_closed_source_says_so(self) -> None:
        path = self.file()
        for backend in BACKENDS:
            s = Source(path, backend)
            s.view(0, 10).release()
            s.close()
            s.close()
            for call in (s.read_at, s.view):
                error = self.refused("usage.closed.policy", call, 0, 10)
                self.assertIsInstance(error, UsageError)
                self.assertEqual(error.path, path)

    def test_a_with_block_closes(self) -> None:
        path = self.file()
        with Source(path) as s:
            self.assertEqual(s.read_at(0, 4), DATA[:4])
        self.refused("usage.closed.policy", s.read_at, 0, 4)

    def test_reading_beyond_the_end_says_where_the_end_is(self) -> None:
        path = self.file()
        for s in (*(self.open(path, backend) for backend in BACKENDS), self.open(DATA)):
            for call in (s.read_at, s.view):
                for offset, length in (
                    (9999, 2), (10000, 1), (10001, 0), (0, 10001), (1 << 64, 1), (0, 1 << 64), (-1, 1), (-10, 20), (0, -1),
                    (5, -1), (-1, 0),
                ):  # fmt: skip
                    error = self.refused("file.cut.truncated", call, offset, length)
                    self.assertIsInstance(error, FormatError)
                    self.assertEqual((error.offset, error.path), (10000, s.path))
                    self.assertIn("10000", error.message)

    def test_pieces_cover_a_range_in_order_and_the_last_is_short(self) -> None:
        for s in (self.open(self.file(), "pread"), self.open(DATA)):
            pieces = list(s.pieces(100, 10000, 4000))
            self.assertEqual([len(p) for p in pieces], [4000, 4000, 1900])
            self.assertEqual(b"".join(pieces), DATA[100:])
            self.assertEqual(list(s.pieces(0, 10000)), [DATA])
            self.assertEqual(list(s.pieces(0, 8000, 4000)), [DATA[:4000], DATA[4000:8000]])
            self.assertEqual(list(s.pieces(500, 500)), [])
            self.assertEqual(list(s.pieces(9997, 10000, 1)), [DATA[9997:9998], DATA[9998:9999], DATA[9999:]])

    def test_a_piece_is_a_mebibyte(self) -> None:
        s = self.open(bytes((1 << 20) + 5))
        self.assertEqual([len(p) for p in s.pieces(0, s.size)], [1 << 20, 5])

    def test_pieces_beyond_the_end_give_what_is_there_and_then_an_error(self) -> None:
        s = self.open(self.file(), "pread")
        pieces = s.pieces(0, 12000, 6000)
        self.assertEqual(next(pieces), DATA[:6000])
        self.refused("file.cut.truncated", next, pieces)

    def test_a_short_read_of_the_system_is_read_on(self) -> None:
        s = self.open(self.file(), "pread")
        real = source._pread
        with mock.patch.object(source, "_pread", lambda fd, length, at: real(fd, min(length, 1000), at)):
            self.assertEqual(s.read_at(50, 9000), DATA[50:9050])

    def test_an_unknown_backend_is_the_caller_s_fault(self) -> None:
        error = self.refused("usage.backend.unsupported", Source, self.file(), "aio")
        self.assertIsInstance(error, UsageError)

    def test_without_mmap_files_are_read_by_pread(self) -> None:
        path = self.file()
        with mock.patch.object(source, "mmap", None):
            s = self.open(path)
            self.assertEqual(s.backend, "pread")
            self.assertEqual(s.view(5, 100), DATA[5:105])
            self.refused("usage.backend.unsupported", Source, path, "mmap")

    def test_mmap_is_the_default_where_it_exists(self) -> None:
        self.assertEqual(self.open(self.file()).backend, BACKENDS[0])


class Truncation(Files):
    """Another process cuts the file while it is open."""

    def cut(self, path: str, size: int) -> None:
        with open(path, "r+b") as file:
            file.truncate(size)

    def test_read_at_meets_the_cut_with_an_error(self) -> None:
        for backend in BACKENDS:
            path = self.file()
            s = self.open(path, backend)
            self.cut(path, 6000)
            self.assertEqual(s.read_at(0, 6000), DATA[:6000])
            for offset, length in ((0, 6001), (5999, 2), (6000, 1), (9999, 1)):
                error = self.refused("file.cut.truncated", s.read_at, offset, length)
                self.assertEqual((error.offset, error.path), (max(offset, 6000), path))

    def test_view_meets_the_cut_with_an_error_and_not_with_a_signal(self) -> None:
        for backend in BACKENDS:
            for mapped_before in (False, True):
                path = self.file()
                s = self.open(path, backend)
                if mapped_before:
                    s.view(0, 10000).release()
                self.cut(path, 4096)
                self.assertEqual(s.view(0, 4096), DATA[:4096])
                for offset, length in ((0, 4097), (4095, 2), (8192, 1), (9999, 1)):
                    error = self.refused("file.cut.truncated", s.view, offset, length)
                    self.assertEqual(error.path, path)

    @unittest.skipUnless(source.mmap, "this Python has no mmap")
    def test_a_cut_in_the_moment_of_mapping_is_the_same_error(self) -> None:
        path = self.file()
        s = self.open(path, "mmap")
        self.cut(path, 4096)
        with mock.patch.object(source, "_size", lambda fd, path: 10000):  # what it was just before
            self.refused("file.cut.truncated", s.view, 0, 10000)
            self.assertEqual(s.view(0, 4096), DATA[:4096])

    def test_pieces_meet_the_cut_with_an_error(self) -> None:
        path = self.file()
        s = self.open(path)
        pieces = s.pieces(0, 10000, 4000)
        self.assertEqual(next(pieces), DATA[:4000])
        self.cut(path, 5000)
        self.refused("file.cut.truncated", next, pieces)

    def test_a_file_that_grows_keeps_the_size_that_it_had(self) -> None:
        path = self.file()
        for backend in BACKENDS:
            s = self.open(path, backend)
            self.cut(path, 20000)
            self.assertEqual(s.size, 10000)
            self.refused("file.cut.truncated", s.read_at, 9999, 2)
            self.refused("file.cut.truncated", s.view, 9999, 2)
            self.cut(path, 10000)


class Systems(Files):
    """What else a name can lead to."""

    def test_an_empty_file_has_no_bytes(self) -> None:
        path = self.file(b"")
        for s in (*(self.open(path, backend) for backend in BACKENDS), self.open(b"")):
            self.assertEqual(s.size, 0)
            self.assertEqual(s.read_at(0, 0), b"")
            self.assertEqual(s.view(0, 0), b"")
            self.assertEqual(list(s.pieces(0, 0)), [])
            self.refused("file.cut.truncated", s.view, 0, 1)

    def test_an_empty_file_is_no_weight_file(self) -> None:
        path = self.file(b"")
        error = self.refused("vqf.magic.truncated", vqfref.open, path)
        self.assertEqual((error.offset, error.path), (0, path))

    def test_a_directory_is_an_os_error_with_its_name(self) -> None:
        with self.assertRaises(IsADirectoryError) as caught:
            Source(self.folder)
        self.assertEqual((caught.exception.errno, caught.exception.filename), (errno.EISDIR, self.folder))

    def test_a_missing_file_is_an_os_error_with_its_name(self) -> None:
        path = os.path.join(self.folder, "nothing")
        for call in (Source, vqfref.open, vqfref.check):
            with self.assertRaises(FileNotFoundError) as caught:
                call(path)
            self.assertEqual(caught.exception.filename, path)

    @unittest.skipUnless(hasattr(os, "mkfifo"), "no FIFOs here")
    def test_a_fifo_without_a_writer_does_not_hang(self) -> None:
        path = os.path.join(self.folder, "fifo")
        try:
            os.mkfifo(path)
        except OSError as error:
            self.skipTest("no FIFO here: %s" % error)
        code = (
            "import sys, vqfref\ntry: vqfref.open(sys.argv[1])\nexcept OSError as e: print(e.filename == sys.argv[1])"
        )
        done = subprocess.run(
            [sys.executable, "-c", code, path], cwd=ROOT, stdout=subprocess.PIPE, timeout=60, check=True
        )
        self.assertEqual(done.stdout.split(), [b"True"])

    @unittest.skipUnless(os.path.exists("/dev/null"), "no devices here")
    def test_a_device_without_a_size_is_an_os_error(self) -> None:
        with self.assertRaises(OSError) as caught:
            Source("/dev/null")
        self.assertEqual((caught.exception.errno, caught.exception.filename), (errno.EINVAL, "/dev/null"))
        self.assertNotIsInstance(caught.exception, VqfrefError)

    def test_nothing_stays_open_when_opening_fails(self) -> None:
        if not os.path.isdir("/proc/self/fd"):
            self.skipTest("no /proc")
        path = self.file()
        before = len(os.listdir("/proc/self/fd"))
        for _ in range(3):
            self.assertRaises(OSError, Source, self.folder)
            self.assertRaises(VqfrefError, vqfref.open, path)
            self.assertRaises(VqfrefError, vqfref.open, MINI, q8_tile=5)
        self.assertEqual(len(os.listdir("/proc/self/fd")), before)

    @unittest.skipUnless(hasattr(os, "geteuid"), "no permissions here")
    def test_a_file_that_may_not_be_read_is_a_permission_error(self) -> None:
        path = self.file()
        os.chmod(self.folder, 0o755)
        os.chmod(path, 0o200)
        root = os.geteuid() == 0
        if root:
            try:
                os.seteuid(65534)
            except OSError as error:
                self.skipTest("root can't become another user: %s" % error)
        try:
            for call in (Source, vqfref.open, vqfref.check):
                with self.assertRaises(PermissionError) as caught:
                    call(path)
                self.assertEqual(caught.exception.filename, path)
        finally:
            if root:
                os.seteuid(0)

    def test_a_name_that_is_not_utf_8_is_a_name(self) -> None:
        raw = os.path.join(os.fsencode(self.folder), b"caf\xe9.vqf")
        try:
            with open(raw, "wb") as file:
                file.write(Path(MINI).read_bytes())
        except OSError as error:
            self.skipTest("no such names here: %s" % error)
        path = os.fsdecode(raw)
        with vqfref.open(path) as f:
            self.assertEqual((len(f), f.path), (14, path))
        self.file(b"FQFW", os.fsdecode(b"\xff"))
        error = self.refused("vqf.magic.truncated", vqfref.open, os.path.join(self.folder, os.fsdecode(b"\xff")))
        self.assertEqual(os.fsencode(error.path), os.path.join(os.fsencode(self.folder), b"\xff"))

    def test_a_path_object_is_a_name(self) -> None:
        with vqfref.open(Path(MINI)) as f:
            self.assertEqual((len(f), f.path), (14, MINI))

    def test_bytes_are_a_file_in_memory_and_no_name(self) -> None:
        s = self.open(os.fsencode(MINI))
        self.assertEqual((s.path, s.size), (None, len(os.fsencode(MINI))))

    @unittest.skipUnless(hasattr(os, "symlink"), "no symlinks here")
    def test_a_symlink_leads_to_its_file(self) -> None:
        link = os.path.join(self.folder, "link")
        try:
            os.symlink(MINI, link)
        except OSError as error:
            self.skipTest("no symlinks here: %s" % error)
        for backend in BACKENDS:
            with vqfref.open(link, backend=backend) as f:
                self.assertEqual((f.path, f.raw("token_embed")), (link, Path(MINI).read_bytes()[0x1000:0x1800]))
        os.symlink(link, link + "2")
        os.unlink(link)
        self.assertRaises(FileNotFoundError, Source, link + "2")

    def test_a_file_of_more_than_4_gib_is_read_at_its_end(self) -> None:
        size = 5 * GIB + 123
        path = self.sparse(size, (size - 5, b"THE>!"), (4 * GIB - 2, b"over"))
        for backend in BACKENDS:
            s = self.open(path, backend)
            self.assertEqual(s.size, size)
            self.assertEqual(s.read_at(4 * GIB - 2, 4), b"over")
            self.assertEqual(s.read_at(size - 5, 5), b"THE>!")
            self.assertEqual(s.view(4 * GIB - 3, 6), b"\0over\0")
            self.assertEqual(s.view(size - 6, 6), b"\0THE>!")
            self.refused("file.cut.truncated", s.view, size - 5, 6)

    @unittest.skipUnless(source.mmap and sys.maxsize > 1 << 32, "a 64-bit host has no limit, if it has mmap")
    def test_a_64_bit_host_maps_a_view_of_any_length(self) -> None:
        s = self.open(self.sparse(5 * GIB, (4 * GIB, b"over")), "mmap")
        view = s.view(1, 5 * GIB - 1)
        self.assertEqual((view.nbytes, view[4 * GIB - 1 : 4 * GIB + 3]), (5 * GIB - 1, b"over"))


class On32Bits(Files):
    """A 32-bit address space, pretended: windows of at most 256 MiB instead of one map of the whole file."""

    def setUp(self) -> None:
        super().setUp()
        narrow = types.SimpleNamespace(**{**vars(sys), "maxsize": (1 << 31) - 1})
        patch = mock.patch.object(source, "sys", narrow)
        patch.start()
        self.addCleanup(patch.stop)

    def test_a_view_of_more_than_256_mib_is_a_limit_and_read_at_is_not(self) -> None:
        path = self.sparse((1 << 28) + 10, (1 << 28, b"beyond"))
        for backend in BACKENDS:
            s = self.open(path, backend)
            error = self.refused("file.window.limit", s.view, 2, (1 << 28) + 1)
            self.assertIsInstance(error, LimitError)
            self.assertEqual((error.offset, error.path), (2, path))
            self.assertEqual(s.read_at(1 << 28, 6), b"beyond")
            self.refused("file.cut.truncated", s.view, 0, (1 << 28) + 11)  # what isn't there comes first

    @unittest.skipUnless(source.mmap, "this Python has no mmap")
    def test_a_view_of_256_mib_is_a_window_of_its_own(self) -> None:
        s = self.open(self.sparse((1 << 28) + 5000, (5000, b"start"), ((1 << 28) + 4990, b"end")), "mmap")
        with s.view(5000, 1 << 28) as view:
            self.assertEqual((view.nbytes, view[:6], view[-10:]), (1 << 28, b"start\0", b"end" + bytes(7)))

    def test_windows_start_where_they_are_asked_to(self) -> None:
        path = self.file(DATA * 20)
        for backend in BACKENDS:
            s = self.open(path, backend)
            for offset, length in ((0, 200000), (1, 1), (4095, 2), (4096, 10), (65535, 2), (65536, 70000), (199999, 1)):
                self.assertEqual(s.view(offset, length), (DATA * 20)[offset : offset + length])
            self.assertEqual(s.view(200000, 0), b"")

    def test_windows_outlive_close(self) -> None:
        for backend in BACKENDS:
            s = Source(self.file(DATA * 20), backend)
            view = s.view(70001, 50)
            s.close()
            self.assertEqual(view, (DATA * 20)[70001:70051])

    def test_a_window_far_behind_4_gib_can_be_had(self) -> None:
        path = self.sparse(5 * GIB, (4 * GIB + 77, b"far"))
        for backend in BACKENDS:
            self.assertEqual(self.open(path, backend).view(4 * GIB + 76, 5), b"\0far\0")

    def test_a_cut_file_is_an_error_here_too(self) -> None:
        path = self.file(DATA * 20)
        for backend in BACKENDS:
            s = self.open(path, backend)
            with open(path, "r+b") as file:
                file.truncate(100000)
            self.refused("file.cut.truncated", s.view, 99999, 2)
            self.file(DATA * 20)

    def test_raw_of_a_large_tensor_is_a_limit_and_chunks_is_not(self) -> None:
        # A mini file with one F32 tensor that is 64 bytes longer than a window, here of a mebibyte.
        data = Path(MINI).read_bytes()
        nbytes = (1 << 20) + 64
        header = (
            data[:12] + (1).to_bytes(4, "little") + data[16:208] + (4096 + nbytes).to_bytes(8, "little") + data[216:448]
        )
        entry = b"big".ljust(32, b"\0") + b"".join(
            n.to_bytes(size, "little") for n, size in ((1, 4), (nbytes // 4, 4), (1, 4), (0, 4), (4096, 8), (nbytes, 8))
        )
        big = DATA * 105
        path = self.file((header + entry).ljust(4096, b"\0") + big[:nbytes] + bytes(8))
        with mock.patch.object(source, "MAX_WINDOW", 1 << 20), vqfref.open(path) as f:
            self.assertEqual(f.keys(), ["big"])
            error = self.refused("file.window.limit", f.raw, "big")
            self.assertEqual((error.offset, error.path), (4096, path))
            self.assertEqual(b"".join(f.chunks("big", 1 << 18)), big[:nbytes])


if __name__ == "__main__":
    unittest.main()

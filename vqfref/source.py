"""The bytes of a file, and the only place in this library that opens one for reading.

Two ways lead to the bytes. `read_at` copies them out with pread: for headers, for passes over a whole file in pieces,
and wherever mmap is missing. `view` hands out a read-only memoryview of the file mapped into memory, without a copy.

What it does not do: guard a mapping against another process that truncates the file. The kernel then kills this
process with SIGBUS at the next access; `read_at` meets the same case with an error.
"""

from __future__ import annotations

import os
import sys

try:
    import mmap
except ImportError:  # Debian's python3-minimal
    mmap = None  # type: ignore[assignment]

from vqfref.errors import FormatError, LimitError, UsageError, VqfrefError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterator

PIECE = 1 << 20  # bytes in one piece of a pass over a whole file
MAX_WINDOW = 1 << 28  # a 32-bit address space has room for a few maps of this size, not for a whole model


OTHERS = (  # what stands where a weight file should be
    (b"FQFW", "a VQF file"),
    (b"GGUF", "a GGUF file"),
    (b"PK\x03\x04", "a zip archive, as PyTorch checkpoints are"),
    (b"\x1f\x8b", "compressed by gzip"),
    (b"\xfd7zXZ", "compressed by xz"),
    (b"\x28\xb5\x2f\xfd", "compressed by zstd"),
    (b"BZh", "compressed by bzip2"),
    (b"\x7fELF", "a program"),
    (b"<", "a web page or XML: an error that was saved instead of the file?"),
    (b"version https://git-lfs", "a git-lfs pointer instead of the file: fetch it with `git lfs pull`"),
    (b"{", "JSON: a config, an index, or an error that was saved instead of the file"),
    (b"\xef\xbb\xbf", "text with a byte order mark: a text editor or a transfer in text mode changed the file"),
    (b"Salted__", "encrypted by `openssl enc`"),
    (b"\xff" * 8, "nothing but ff: erased flash that was never written"),
    (bytes(8), "zeros: space that was kept for a download and never filled"),
)


def looks_like(data: bytes) -> str:
    """What a file may be that is not what it should be, by its first bytes; as words to add to a message, or empty."""
    for start, what in OTHERS:
        if data.lstrip(b" \t\r\n").startswith(start) if start in (b"<", b"{") else data.startswith(start):
            return "; this is " + what
    if data[257:262] == b"ustar":
        return "; this is a tar archive: unpack it"
    if data[8:9] == b"{":
        return "; this may be a safetensors file"
    return ""


MAX_SEARCHED = 1 << 22  # bytes in which the traces of a transfer in text mode are looked for
MIN_PAIRS = 4  # of random bytes, one 0a in 256 follows a 0d
MIN_FEEDS = 10  # of random bytes, as many are 0d as are 0a
MIN_BYTES = 1 << 10  # that tell something; of random bytes, half are above 7f


def text_mode(source: Source) -> str:
    """How a transfer that took a binary file for text changed its bytes; as words to add to a message, or empty.

    Judged by the first MAX_SEARCHED bytes, and only where there is so much of it that chance can't be the reason.
    """
    data = source.read_at(0, min(source.size, MAX_SEARCHED))
    feeds, returns, pairs = data.count(b"\n"), data.count(b"\r"), data.count(b"\r\n")
    high = len(data.translate(None, bytes(range(128))))
    low = len(data) - high - data.count(0)
    what = ""
    if pairs >= MIN_PAIRS and feeds - pairs <= pairs // 100:
        what = "%d of %d bytes 0a follow a 0d, the first at 0x%x" % (pairs, feeds, data.find(b"\r\n"))
    elif high >= MIN_FEEDS and _is_utf8(data):
        what = "all bytes are UTF-8, as if each above 7f had been taken for a character"
    elif high == 0 and low >= MIN_BYTES:
        what = "no byte is above 7f, as if the eighth bit had been stripped"
    elif returns == 0 and feeds >= MIN_FEEDS and high >= MIN_BYTES:
        what = "there are %d bytes 0a and no 0d at all" % feeds
    if not what:
        return ""
    where = " in the first %d MiB" % (MAX_SEARCHED >> 20) if source.size > MAX_SEARCHED else ""
    return "; %s%s: it was transferred in text mode; fetch it in binary" % (what, where)


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError as error:
        return error.reason == "unexpected end of data"  # a character that the end of the search cuts
    return True


class Source:
    """An open file, or bytes that stand for one: `size`, `read_at`, `view`, `pieces`, `close`.

    path: a file name, or bytes for a file that is already in memory (then `self.path` is None).
    backend: "mmap", "pread", or None for mmap where the interpreter has it.

    Raises OSError as the system gives it, also for a directory and for what has no size (a FIFO, a terminal).
    """

    def __init__(self, path: str | os.PathLike[str] | bytes, backend: str | None = None) -> None:
        if backend not in (None, "mmap", "pread"):
            raise UsageError("usage.backend.unsupported", "backend %r: expected 'mmap' or 'pread'" % (backend,))
        if backend == "mmap" and mmap is None:
            raise UsageError("usage.backend.unsupported", "this Python has no mmap module: use backend='pread'")
        self.backend = backend or ("mmap" if mmap else "pread")
        self._fd = -1
        self._map: Any = None
        self._bytes: memoryview | None = None
        if isinstance(path, (bytes, bytearray, memoryview)):
            self.path: str | None = None
            self._bytes = memoryview(path).cast("B")
            self.size = len(self._bytes)
            return
        self.path = os.fspath(path)
        # O_NONBLOCK: opening a FIFO must not wait for a writer.
        flags = os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
        self._fd = os.open(self.path, flags)
        try:
            self.size = _size(self._fd, self.path)
        except BaseException:
            self.close()
            raise

    def read_at(self, offset: int, length: int) -> bytes:
        """Exactly `length` bytes from `offset`, copied.

        Raises FormatError (file.cut.truncated) where the file ends before that, also when it was cut meanwhile.
        """
        if offset < 0 or length < 0 or offset + length > self.size:
            raise self._beyond(offset, length, self.size)
        if self._bytes is not None:
            return bytes(self._bytes[offset : offset + length])
        fd = self._open_fd()
        parts = []
        at, end = offset, offset + length
        while at < end:
            part = _pread(fd, min(end - at, 1 << 30), at)  # one read of 2 GiB fails on 32-bit hosts
            if not part:
                raise self._beyond(offset, length, at)
            parts.append(part)
            at += len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def view(self, offset: int, length: int) -> memoryview:
        """A read-only memoryview of `length` bytes from `offset`, without a copy where the file can be mapped.

        It stays valid after `close`. Raises as `read_at` does, and LimitError (file.window.limit) for more than 256
        MiB on a 32-bit host.
        """
        if offset < 0 or length < 0 or offset + length > self.size:
            raise self._beyond(offset, length, self.size)
        if self._bytes is not None:
            return self._bytes[offset : offset + length].toreadonly()
        if sys.maxsize < 1 << 32 and length > MAX_WINDOW:
            raise LimitError(
                "file.window.limit",
                "%d bytes in one piece: this 32-bit host maps at most %d; read in chunks" % (length, MAX_WINDOW),
                offset=offset,
                path=self.path,
            )
        fd = self._open_fd()
        if self.backend == "pread" or length == 0:
            return memoryview(self.read_at(offset, length))
        now = _size(fd, self.path)  # mapping what is no longer there would kill the process, not raise
        if now < offset + length:
            raise self._beyond(offset, length, now)
        try:
            if sys.maxsize < 1 << 32:
                start = offset - offset % mmap.ALLOCATIONGRANULARITY
                window = mmap.mmap(fd, offset - start + length, access=mmap.ACCESS_READ, offset=start)
                return memoryview(window)[offset - start : offset - start + length]
            if self._map is None:
                self._map = mmap.mmap(fd, self.size, access=mmap.ACCESS_READ)
        except ValueError:  # the file was cut: behind these bytes, or in this very moment
            return memoryview(self.read_at(offset, length))
        return memoryview(self._map)[offset : offset + length]

    def pieces(self, start: int, stop: int, size: int = PIECE) -> Iterator[bytes]:
        """The bytes of `start .. stop`, one `read_at` of at most `size` after the other."""
        if size < 1:
            raise UsageError("usage.size.range", "pieces of %d bytes, expected at least 1" % size)
        for offset in range(start, stop, size):
            yield self.read_at(offset, min(size, stop - offset))

    def close(self) -> None:
        """Let go of the file. Views that are still alive stay valid; the map goes with the last of them."""
        if self._map is not None:
            try:
                self._map.close()
            except BufferError:  # views are alive
                pass
            self._map = None
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def __enter__(self) -> Source:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _open_fd(self) -> int:
        if self._fd < 0:
            raise UsageError("usage.closed.policy", "the file has been closed", path=self.path)
        return self._fd

    def _beyond(self, offset: int, length: int, size: int) -> VqfrefError:
        return FormatError(
            "file.cut.truncated",
            "%d bytes wanted at offset %d, but the file ends at %d" % (length, offset, size),
            offset=size,
            path=self.path,
        )


def _size(fd: int, path: str | None) -> int:
    """The size of a regular file or a block device; OSError for anything else."""
    mode = os.fstat(fd).st_mode & 0o170000
    if mode == 0o040000:
        raise IsADirectoryError(21, "Is a directory", path)
    if mode not in (0o100000, 0o060000):
        raise OSError(22, "not a regular file: its bytes can't be read by offset", path)
    return os.lseek(fd, 0, 2)


if hasattr(os, "pread"):
    _pread = os.pread
else:

    def _pread(fd: int, length: int, offset: int) -> bytes:
        """pread for hosts without it (Windows); not safe between threads that share the descriptor."""
        os.lseek(fd, offset, 0)
        return os.read(fd, length)

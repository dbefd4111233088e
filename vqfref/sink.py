"""Writes files so that nobody ever sees half of one.

A new file grows under a temporary name beside its target, is flushed to the medium and renamed over it: whatever
interrupts, the target holds the old bytes or the new ones. Where only a few bytes of a large file change, `patch`
writes those in place instead; that can't be atomic, and its docstring says what an interruption leaves.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class AtomicFile:
    """A file to write, in a `with` block: on success it takes its name, on any exception nothing of it stays.

    path: the target; a symlink is followed. mode: permission bits of a new file; an existing target's are kept.
    overwrite: False refuses an existing target with FileExistsError, also one that appears meanwhile.
    """

    def __init__(self, path: str | os.PathLike[str], *, mode: int = 0o666, overwrite: bool = True) -> None:
        self.path = os.path.realpath(os.fspath(path))
        self._overwrite = overwrite
        if not overwrite and os.path.lexists(self.path):
            raise FileExistsError(17, "File exists", self.path)
        if os.path.isdir(self.path):
            raise IsADirectoryError(21, "Is a directory", self.path)
        folder, name = os.path.split(self.path)
        self._temporary = os.path.join(folder, ".%s.%s.tmp" % (name[:100], os.urandom(6).hex()))
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
        try:
            mode = os.stat(self.path).st_mode & 0o777
            exact = True
        except FileNotFoundError:
            exact = False
        self._file: Any = os.fdopen(os.open(self._temporary, flags, mode), "wb", 1 << 20)
        if exact:
            os.chmod(self._temporary, mode)  # the umask took bits away that the old file had

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Append bytes."""
        self._file.write(data)

    def write_at(self, offset: int, data: bytes) -> None:
        """Overwrite bytes that were written before; the next `write` still appends."""
        self._file.seek(offset)
        self._file.write(data)
        self._file.seek(0, os.SEEK_END)

    def __enter__(self) -> AtomicFile:
        return self

    def __exit__(self, kind: object, *exc: object) -> None:
        if kind is not None:
            self._discard()
            return
        try:
            self._file.flush()
            os.fsync(self._file.fileno())
            self._file.close()
            if self._overwrite:
                os.replace(self._temporary, self.path)
            else:
                os.link(self._temporary, self.path)  # unlike rename, fails where the target exists
                os.unlink(self._temporary)
        except BaseException:
            self._discard()
            raise
        sync_folder(os.path.dirname(self.path))

    def _discard(self) -> None:
        try:
            self._file.close()
        except OSError:  # the medium is full: its last buffer can't be written either
            pass
        try:
            os.unlink(self._temporary)
        except FileNotFoundError:
            pass


def sync_folder(folder: str) -> None:
    """Make a rename in a folder last, where the system knows how."""
    try:
        fd = os.open(folder or ".", os.O_RDONLY)
    except OSError:
        return
    try:
        os.fsync(fd)
    except OSError:  # some file systems can't
        pass
    finally:
        os.close(fd)


def patch(path: str | os.PathLike[str], parts: list[tuple[int, bytes]]) -> None:
    """Overwrite parts (offset, bytes) of an existing file, in this order, each flushed to the medium before the next.

    An interruption leaves the parts before it written and the others not; so the tag goes last.
    """
    fd = os.open(path, os.O_WRONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0))
    try:
        for offset, data in parts:
            os.lseek(fd, offset, os.SEEK_SET)
            view = memoryview(data)
            while view:
                view = view[os.write(fd, view) :]
            os.fsync(fd)
    finally:
        os.close(fd)

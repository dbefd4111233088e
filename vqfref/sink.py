"""Writes files so that nobody ever sees half of one.

A new file grows under a temporary name beside its target, is flushed to the medium and renamed over it: whatever
interrupts, the target holds the old bytes or the new ones. Where only a few bytes of a large file change, `InPlace`
writes just those; that can't be atomic, and its docstring says what an interruption leaves.
"""

from __future__ import annotations

import os
from contextlib import contextmanager

from vqfref.errors import IntegrityError, UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterable, Iterator


def keep_sources(out: str | os.PathLike[str], sources: Iterable[str]) -> None:
    """Raises UsageError if a file that is read would be replaced by what is made of it."""
    for source in sources:
        if os.path.exists(out) and os.path.exists(source) and os.path.samefile(out, source):
            raise UsageError("usage.out.policy", "OUT is a file that is read: name another", path=os.fspath(out))


class AtomicFile:
    """A file to write, in a `with` block: on success it takes its name, on any exception nothing of it stays.

    path: the target; a symlink is followed. mode: permission bits of a new file; an existing target's are kept.
    overwrite: False refuses an existing target with FileExistsError, also one that appears meanwhile. shown: the path
    that errors name, where it is not the target's.
    """

    def __init__(
        self, path: str | os.PathLike[str], *, mode: int = 0o666, overwrite: bool = True, shown: str | None = None
    ) -> None:
        self.path = os.path.realpath(os.fspath(path))
        self._shown = shown or self.path
        self._overwrite = overwrite
        old = _mode(self.path)
        if old is not None:
            kind = old & 0o170000
            if kind == 0o040000:
                raise IsADirectoryError(21, "Is a directory", self.path)
            if kind != 0o100000:
                raise OSError(22, "not a regular file: it can't be replaced", self.path)
            if not overwrite:
                raise FileExistsError(17, "File exists", self.path)
        folder, name = os.path.split(self.path)
        start = name[:50]  # a name may be as long as the file system takes
        self._temporary = os.path.join(folder, ".%s.%s.tmp" % (start, os.urandom(6).hex()))
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
        with self._named():
            fd = os.open(self._temporary, flags, mode if old is None else old & 0o777)
            self._file: Any = os.fdopen(fd, "wb", 1 << 20)
        if old is not None:
            try:
                with self._named():
                    os.chmod(self._temporary, old & 0o777)  # the umask took bits away that the old file had
            except BaseException:
                self._discard()
                raise

    @contextmanager
    def _named(self) -> Iterator[None]:
        """Errors of the system are about the target, not about the temporary name that nobody knows."""
        try:
            yield
        except OSError as error:
            error.filename, error.filename2 = self._shown, None
            raise

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Append bytes."""
        with self._named():
            self._file.write(data)

    def write_at(self, offset: int, data: bytes) -> None:
        """Overwrite bytes that were written before; the next `write` still appends."""
        with self._named():
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
            with self._named():
                self._file.flush()
                os.fsync(self._file.fileno())
                self._file.close()
                if self._overwrite:
                    os.replace(self._temporary, self.path)
                else:
                    self._link()
        except BaseException:
            self._discard()
            raise
        sync_folder(os.path.dirname(self.path))

    def _link(self) -> None:
        """Take the name unless it is taken: a link, unlike a rename, fails where the target exists."""
        try:
            os.link(self._temporary, self.path)
        except FileExistsError:
            raise
        except OSError:  # a file system without hard links
            os.close(os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
            os.replace(self._temporary, self.path)
        else:
            os.unlink(self._temporary)

    def _discard(self) -> None:
        try:
            self._file.close()
        except OSError:  # the medium is full: its last buffer can't be written either
            pass
        try:
            os.unlink(self._temporary)
        except FileNotFoundError:
            pass


def _mode(path: str) -> int | None:
    """The mode of what is there, or None for nothing."""
    try:
        return os.stat(path).st_mode
    except FileNotFoundError:
        return os.lstat(path).st_mode if os.path.lexists(path) else None


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


class InPlace:
    """An existing file of which a few bytes are to change, in a `with` block that keeps other such writers out.

    `apply` overwrites parts one after the other, each flushed to the medium before the next; so the tag goes last. If one
    can't be written, those before it get their old bytes back. A kill in between leaves the parts before it written and
    the others not.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Raises OSError, also (EAGAIN) where another writer holds the file."""
        self.path = os.fspath(path)
        self._fd = os.open(self.path, os.O_RDWR | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0))
        try:
            import fcntl
        except ImportError:  # Windows has no advisory locks
            return
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._fd)
            raise BlockingIOError(11, "another writer is at work on this file", self.path) from None

    def __enter__(self) -> InPlace:
        return self

    def __exit__(self, *exc: object) -> None:
        os.close(self._fd)

    def apply(self, parts: list[tuple[int, bytes, bytes]]) -> None:
        """Overwrite parts (offset, old bytes, new bytes). Raises IntegrityError (file.changed.tag) where the file no
        longer has the old bytes, and writes nothing then."""
        for offset, old, _ in parts:
            if self._read(offset, len(old)) != old:
                raise IntegrityError("file.changed.tag", "the file changed while it was read: nothing was written",
                                     offset=offset, path=self.path)  # fmt: skip
        done = []
        try:
            for offset, old, new in parts:
                done.append((offset, old))
                self._write(offset, new)
        except BaseException:
            for offset, old in reversed(done):
                self._write(offset, old)
            raise

    def _read(self, offset: int, length: int) -> bytes:
        os.lseek(self._fd, offset, os.SEEK_SET)
        return os.read(self._fd, length)

    def _write(self, offset: int, data: bytes) -> None:
        os.lseek(self._fd, offset, os.SEEK_SET)
        view = memoryview(data)
        try:
            while view:
                view = view[os.write(self._fd, view) :]
            os.fsync(self._fd)
        except OSError as error:
            error.filename = self.path
            raise


class Publication:
    """Files that appear in a folder together, in a `with` block: made in a hidden folder beside it and moved in at the end.

    A folder that does not exist appears at one stroke, by a rename. In one that exists, files of the same name and those
    given to `remove` are put aside first, and come back if anything fails; other files stay untouched. On an exception
    nothing of the new ones stays. A kill leaves the hidden folder, whose name begins with `.vqfref-`; in the middle of the
    moves, with the old files in it.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = os.path.realpath(os.fspath(folder))
        if os.path.lexists(self.folder) and not os.path.isdir(self.folder):
            raise NotADirectoryError(20, "Not a directory", self.folder)
        where = self.folder if os.path.isdir(self.folder) else os.path.dirname(self.folder)
        self._work = os.path.join(where, ".vqfref-%s" % os.urandom(6).hex())
        self._new = os.path.join(self._work, "new")
        self._old = os.path.join(self._work, "old")
        self._names: list[str] = []
        self._stale: list[str] = []
        try:
            os.mkdir(self._work)
            os.mkdir(self._new)
        except OSError as error:
            if os.path.isdir(self._work):
                os.rmdir(self._work)
            error.filename = self.folder  # nobody knows the hidden name
            raise

    def file(self, name: str) -> AtomicFile:
        """A file of the publication, to be written in a `with` block."""
        self._names.append(name)
        return AtomicFile(os.path.join(self._new, name), shown=os.path.join(self.folder, name))

    def add(self, name: str, pieces: Iterable[bytes]) -> None:
        """A whole file of the publication."""
        with self.file(name) as file:
            for piece in pieces:
                file.write(piece)

    def remove(self, names: Iterable[str]) -> None:
        """Files of the folder that go when the new ones come."""
        self._stale += names

    def __enter__(self) -> Publication:
        return self

    def __exit__(self, kind: object, *exc: object) -> None:
        try:
            if kind is None:
                self._publish()
        finally:
            self._clean()

    def _publish(self) -> None:
        if not os.path.isdir(self.folder):
            os.rename(self._new, self.folder)
            sync_folder(os.path.dirname(self.folder))
            return
        going = [n for n in dict.fromkeys([*self._names, *self._stale]) if os.path.lexists(self._there(n))]
        for name in going:
            if os.path.isdir(self._there(name)) and not os.path.islink(self._there(name)):
                raise IsADirectoryError(21, "Is a directory", self._there(name))
        os.mkdir(self._old)
        try:
            for name in going:
                os.rename(self._there(name), os.path.join(self._old, name))
            for name in self._names:
                os.rename(os.path.join(self._new, name), self._there(name))
            sync_folder(self.folder)
        except BaseException:
            self._restore()
            raise
        _empty(self._old)

    def _there(self, name: str) -> str:
        return os.path.join(self.folder, name)

    def _restore(self) -> None:
        """Undo the moves. What lies where tells which were made: an interrupt may come right behind one."""
        for name in set(self._names) - set(os.listdir(self._new)):
            os.rename(self._there(name), os.path.join(self._new, name))
        for name in os.listdir(self._old):
            os.rename(os.path.join(self._old, name), self._there(name))
        os.rmdir(self._old)

    def _clean(self) -> None:
        _empty(self._new)
        if not os.path.isdir(self._old):  # else it could not be restored: the old files stay in it
            os.rmdir(self._work)


def _empty(folder: str) -> None:
    """Remove a folder of files, if it is there."""
    if os.path.isdir(folder):
        for name in os.listdir(folder):
            os.unlink(os.path.join(folder, name))
        os.rmdir(folder)

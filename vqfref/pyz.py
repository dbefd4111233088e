"""The library and the suite as one file, vqfref.pyz, which any Python from 3.8 runs: `python3 vqfref.pyz FILE`.

A zip archive with nothing compressed, in the order of names and with one date for all: the same files give the same
bytes on every machine. Python reads its modules from inside; the suite is unpacked into a temporary folder when it is
run, since other programs read its files by path.
"""

from __future__ import annotations

import os

from vqfref.errors import UsageError
from vqfref.sink import AtomicFile, keep_sources

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Iterator

DATE = (1980, 1, 1, 0, 0, 0)  # the earliest that a zip archive can say
SUITE = "vqfref/kat/suite/"
INDEX = SUITE + "FILES"  # the names of the suite's files: an importer can't list what it holds
NOT_PACKED = ("gen", "examples", "flat", "__pycache__")
MAIN = b"""import sys

if sys.version_info < (3, 8):
    sys.exit("vqfref needs Python 3.8 or newer; this is " + sys.version.split()[0])
from vqfref.cli import main

sys.exit(main())
"""


def write_pyz(path: str | os.PathLike[str], find: Callable[[], str]) -> int:
    """Write the archive, the suite of the folder that `find` gives inside, and return its size in bytes. Raises
    UsageError where this runs from such an archive itself, without the zipfile module, or where a file of the package or
    the suite would be replaced; OSError."""
    try:
        import io
        import zipfile
    except ImportError:
        raise UsageError("usage.module.unsupported", "this Python has no zipfile module") from None
    package = os.path.dirname(os.path.abspath(__file__))
    if not os.path.isdir(package):
        raise UsageError("usage.pyz.unsupported", "this is a .pyz already: copy the file itself")
    suite = find()
    keep_sources(path, [os.path.join(top, name) for top in (package, suite) for name in files(top, ())])
    members = {"vqfref/" + name: os.path.join(package, *name.split("/")) for name in files(package, ())}
    members = {name: place for name, place in members.items() if not name.startswith(SUITE)}
    names = sorted(files(suite, NOT_PACKED))
    members.update((SUITE + name, os.path.join(suite, *name.split("/"))) for name in names)
    content = {"__main__.py": MAIN, INDEX: "".join(name + "\n" for name in names).encode()}
    for name, place in members.items():
        with open(place, "rb") as file:
            content[name] = file.read()
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_STORED) as zipped:
        for name in sorted(content):
            info = zipfile.ZipInfo(name, DATE)
            info.create_system, info.external_attr = 3, 0o100644 << 16
            zipped.writestr(info, content[name])
    data = b"#!/usr/bin/env python3\n" + archive.getvalue()
    with AtomicFile(path) as out:
        out.write(data)
    return len(data)


def files(folder: str, without: tuple[str, ...], prefix: str = "") -> Iterator[str]:
    """The names of all files below a folder, with / on every system, but for bytecode and some folders at its top."""
    for name in os.listdir(folder):
        place = os.path.join(folder, name)
        if name == "__pycache__" or name in without:
            continue
        if os.path.isdir(place):
            yield from files(place, (), prefix + name + "/")
        else:
            yield prefix + name


def unpacked_suite() -> str | None:
    """A temporary folder with the suite of the archive that this runs from; it goes when the process ends. None where
    this runs from no archive."""
    loader: Any = globals().get("__loader__")
    archive = getattr(loader, "archive", None)
    if archive is None:
        return None
    import atexit

    try:
        index = loader.get_data(os.path.join(archive, *INDEX.split("/")))
    except OSError:
        return None
    folder = os.path.join(os.environ.get("TMPDIR") or "/tmp", "vqfref-%s" % os.urandom(8).hex())
    places: list[str] = []
    atexit.register(_remove, folder, places)
    try:
        os.mkdir(folder, 0o700)
        for name in index.decode("utf-8").splitlines():
            place = os.path.join(folder, *name.split("/"))
            os.makedirs(os.path.dirname(place), exist_ok=True)
            places.append(place)
            with open(place, "wb") as file:
                file.write(loader.get_data(os.path.join(archive, *(SUITE + name).split("/"))))
    except OSError as error:
        raise UsageError("usage.suite.limit", "the suite can't be unpacked into %s: %s; set TMPDIR to a folder with room for "
                         "%d files" % (folder, error.strerror, index.count(b"\n"))) from None  # fmt: skip
    return folder


def _remove(folder: str, places: list[str]) -> None:
    """Remove what was unpacked, whatever signal comes; shutil is not on every image."""
    try:
        import signal
    except ImportError:
        pass
    else:
        for name in ("SIGINT", "SIGTERM", "SIGHUP"):
            signal.signal(getattr(signal, name), signal.SIG_IGN)
    for place in places:
        try:
            os.remove(place)
        except OSError:
            pass
    for inner, _, _ in sorted(os.walk(folder), reverse=True):
        try:
            os.rmdir(inner)
        except OSError:
            pass

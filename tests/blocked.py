"""What small images lack: three sets of modules, and a way to run without them. Imports nothing but sys.

`install("debian")` makes every later import of such a module fail as it does there. In a fresh `python3 -I -S` that is
as near to the image as one gets without it; `.ci/hosts` runs the real ones.

Names stand for their submodules too. The lists are what was found missing on the images (DEBIAN: any of 3.9 to 3.14;
OPENWRT: read from the feed's package lists), not what this project happens to use.
"""

import sys

DEBIAN = {  # python3-minimal
    "asyncio", "bz2", "concurrent", "contextvars", "ctypes", "dataclasses", "decimal", "difflib", "fractions",
    "graphlib", "gzip", "hmac", "html", "http.client", "importlib.metadata", "importlib.resources", "json", "logging",
    "lzma", "mmap", "multiprocessing", "numbers", "pathlib", "pprint", "queue", "resource", "secrets", "shutil",
    "sqlite3", "statistics", "tarfile", "tempfile", "timeit", "unittest", "urllib.request", "uuid", "xml.etree",
    "zipapp", "zipfile", "_bz2", "_ctypes", "_decimal", "_json", "_lzma", "_sqlite3", "_uuid",
}  # fmt: skip

YOCTO = DEBIAN | {"datetime", "hashlib", "random", "zlib", "_datetime", "_hashlib", "_random"}  # python3-core

OPENWRT = {  # python3-light
    "asyncio", "cgi", "cgitb", "ctypes", "curses", "dbm", "decimal", "distutils", "doctest", "email", "ensurepip",
    "lib2to3", "logging", "lzma", "multiprocessing", "pathlib", "pydoc", "readline", "sqlite3", "ssl", "unicodedata",
    "unittest", "urllib", "uuid", "venv", "xml", "_ctypes", "_curses", "_dbm", "_decimal", "_hashlib", "_lzma",
    "_sqlite3", "_ssl", "_uuid",
}  # fmt: skip

SETS = {"none": set(), "debian": DEBIAN, "yocto": YOCTO, "openwrt": OPENWRT}

# What argparse itself imports on a Python that none of these images has.
if sys.version_info < (3, 9):
    NEEDED = {"shutil"}
elif sys.version_info >= (3, 14):
    NEEDED = {"dataclasses"}  # through _colorize; the images of 3.14 have it
else:
    NEEDED = set()


class Blocker:
    """A finder for sys.meta_path that finds nothing and forbids some names."""

    def __init__(self, names):
        self.names = names

    def find_spec(self, name, path=None, target=None):
        parts = name.split(".")
        if any(".".join(parts[: i + 1]) in self.names for i in range(len(parts))):
            raise ModuleNotFoundError("No module named %r" % name, name=name)


def install(image):
    """From here on this interpreter lacks what the image lacks; returns the names."""
    blocker = Blocker(SETS[image] - NEEDED)
    for name in list(sys.modules):
        try:
            blocker.find_spec(name)
        except ModuleNotFoundError:
            del sys.modules[name]
    sys.meta_path.insert(0, blocker)
    return blocker.names

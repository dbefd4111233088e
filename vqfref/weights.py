"""Opens a weight file of whatever format it is, and checks one without opening it."""

from __future__ import annotations

import os

from vqfref.errors import VqfrefError
from vqfref.source import Source
from vqfref.weightfile import TensorInfo, WeightFile

TYPE_CHECKING = False
if TYPE_CHECKING:
    from vqfref.findings import Finding

__all__ = ["TensorInfo", "WeightFile", "check", "open"]


def open(
    path: str | os.PathLike[str], *, passphrase: bytes | str | None = None, backend: str | None = None, q8_tile: int = 0
) -> WeightFile:
    """Open a weight file by its headers alone; nothing reads the whole of it.

    path: a VQF file. passphrase: for an encrypted VQF file, bytes or text (taken as UTF-8); it is not checked here,
    `verify` does. backend: "mmap" (the default where it exists) or "pread". q8_tile: see VqfFile. A mapped file that
    somebody truncates kills the process when a view is read; with backend="pread" that is an error.

    Raises OSError; a VqfrefError with the first gate that the file does not pass.
    """
    from vqfref.vqf.reader import VqfFile

    source = Source(path, backend)
    try:
        key = passphrase.encode() if isinstance(passphrase, str) else passphrase
        return VqfFile(source, passphrase=key, q8_tile=q8_tile)
    except BaseException as error:
        source.close()
        if isinstance(error, VqfrefError) and error.path is None:
            error.path = source.path
        raise


def check(path: str | os.PathLike[str], *, q8_tile: int = 0) -> list[Finding]:
    """Everything that is wrong or odd about a file, ordered by offset; an empty list is a clean file.

    No key is needed, and little of the data is read. Raises OSError alone.
    """
    from vqfref.vqf.audit import audit

    with Source(path, "pread") as source:
        return audit(source, q8_tile=q8_tile)

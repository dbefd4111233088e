"""Opens a weight file of whatever format it is, and checks one without opening it."""

from __future__ import annotations

import os

from vqfref.errors import UsageError, VqfrefError
from vqfref.findings import Finding, Findings
from vqfref.source import Source
from vqfref.weightfile import TensorInfo, WeightFile

__all__ = ["TensorInfo", "WeightFile", "check", "open", "sniff"]


def open(
    path: str | os.PathLike[str], *, passphrase: bytes | str | None = None, backend: str | None = None, q8_tile: int = 0
) -> WeightFile:
    """Open a weight file by its headers alone; nothing reads the whole of it.

    path: a VQF file; a safetensors file, an index of such, or a Hugging Face model folder; a UQFF folder, shard, or a
    folder and a type or shorthand as its last part (`dir/q4k`, `dir/4`). passphrase: for an encrypted VQF file, bytes or
    text (taken as UTF-8); it is not checked here, `verify` does. backend: "mmap" (the default where it exists) or
    "pread". q8_tile: see VqfFile. A mapped file that somebody truncates kills the process when a view is read; with
    backend="pread" that is an error.

    Raises OSError; a VqfrefError with the first gate that the file does not pass.
    """
    path = os.fspath(path)
    uqff = uqff_place(path)
    if uqff is not None:
        from vqfref.uqff.reader import UqffFile

        return UqffFile(*uqff, backend)
    if os.path.isdir(path):
        from vqfref.safetensors.reader import open_folder

        return open_folder(path, backend)
    if path.endswith(".index.json"):
        from vqfref.safetensors.reader import open_index

        return open_index(path, backend)
    source = Source(path, backend)
    try:
        if is_safetensors(source):
            from vqfref.safetensors.reader import SafetensorsFile

            return SafetensorsFile(source)
        from vqfref.vqf.reader import VqfFile

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
    path = os.fspath(path)
    if q8_tile not in (0, 4):
        raise UsageError("usage.q8tile.unsupported", "q8_tile %r: expected 0 or 4" % (q8_tile,))
    uqff = uqff_place(path)
    if uqff is not None:
        return check_uqff(*uqff)
    if os.path.isdir(path) or path.endswith(".index.json"):
        try:
            with open(path, backend="pread") as files:
                findings: list[Finding] = files.check()
                return findings
        except VqfrefError as error:
            return [Finding.from_error(error)]
    with Source(path, "pread") as source:
        if is_safetensors(source):
            from vqfref.safetensors.reader import audit_container

            found = Findings(path)
            audit_container(source, found)
            return found.sorted()
        from vqfref.vqf.audit import audit

        return audit(source, q8_tile=q8_tile)


def sniff(path: str | os.PathLike[str]) -> str | None:
    """The format of a file or folder by its name and first bytes: 'vqf', 'safetensors', 'uqff', or None.

    Raises OSError.
    """
    path = os.fspath(path)
    if uqff_place(path) is not None:
        return "uqff"
    if os.path.isdir(path) or path.endswith(".index.json"):
        return "safetensors"
    with Source(path, "pread") as source:
        if is_safetensors(source):
            return "safetensors"
        return "vqf" if source.read_at(0, min(source.size, 4)) == b"FQFW" else None


def uqff_place(path: str) -> tuple[str, str | None] | None:
    """(folder, item) where a path stands for UQFF: a folder with shards, a shard, or a folder and a type or shorthand;
    item is None for the folder's only set. None for any other path."""
    if os.path.isdir(path):
        return (path, None) if _has_shards(path) else None
    folder, item = os.path.split(path)
    if os.path.exists(path):
        return (folder or ".", item) if item.endswith(".uqff") else None
    return (folder or ".", item) if item and os.path.isdir(folder or ".") and _has_shards(folder or ".") else None


def _has_shards(folder: str) -> bool:
    return any(name.endswith(".uqff") for name in os.listdir(folder))


def check_uqff(folder: str, item: str | None) -> list[Finding]:
    """`check` for a UQFF folder, or for the set that an item stands for."""
    from vqfref.uqff.audit import audit
    from vqfref.uqff.shards import shard_names

    try:
        return audit(folder, None if item is None else shard_names(folder, item))
    except UsageError:
        raise
    except VqfrefError as error:
        return [Finding.from_error(error)]


def is_safetensors(source: Source) -> bool:
    """Does a file look like safetensors? By its name, or by a JSON object behind eight bytes of length."""
    start = source.read_at(0, min(source.size, 9))
    if start.startswith(b"FQFW"):
        return False
    return (source.path or "").endswith((".safetensors", ".uqff")) or (start[8:] == b"{" and start[5:8] == bytes(3))

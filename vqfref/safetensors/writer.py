"""Writes safetensors files, byte for byte as the safetensors library lays them out, and at one stroke. Spec: UQFF section 2.

Tensors are ordered by dtype, widest rank first, then by name; the header names them in that order behind __metadata__,
compact, padded with spaces to a multiple of 8.
"""

from __future__ import annotations

from vqfref import strictjson
from vqfref.errors import UsageError
from vqfref.safetensors.reader import DTYPES
from vqfref.sink import AtomicFile

TYPE_CHECKING = False
if TYPE_CHECKING:
    import os
    from typing import Any, Iterable, Mapping

RANK = {dtype: i for i, dtype in enumerate(DTYPES)}


def order(names: Iterable[str], dtypes: Mapping[str, str]) -> list[str]:
    """Tensor names in the order of the file: dtype rank descending, then name by its bytes."""
    return sorted(names, key=lambda n: (-RANK[dtypes[n]], n.encode("utf-8")))


def nbytes(dtype: str, shape: Iterable[int]) -> int:
    """Bytes of a tensor. Raises UsageError for an unknown dtype."""
    if dtype not in DTYPES:
        raise UsageError("usage.dtype.unsupported", "dtype %r: expected one of %s" % (dtype, " ".join(DTYPES)))
    bits = DTYPES[dtype]
    for n in shape:
        bits *= n
    return bits // 8


def header_bytes(tensors: Iterable[tuple[str, str, Iterable[int]]], metadata: Mapping[str, str] | None = None) -> bytes:
    """The length and the header of a file whose tensors (name, dtype, shape) follow in this order."""
    root: dict[str, Any] = {"__metadata__": dict(metadata)} if metadata else {}
    at = 0
    for name, dtype, shape in tensors:
        size = nbytes(dtype, shape)
        root[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [at, at + size]}
        at += size
    text = strictjson.dumps(root, ascii_only=False).encode("utf-8")
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text


def write(path: str | os.PathLike[str], tensors: Mapping[str, Any], metadata: Mapping[str, str] | None = None) -> None:
    """Write a file of tensors by name, each with dtype, shape and data (bytes, or an iterable of bytes).

    Raises UsageError for data of another length than dtype and shape give; OSError. Nothing half-written stays.
    """
    names = order(tensors, {n: t.dtype for n, t in tensors.items()})
    with AtomicFile(path) as file:
        file.write(header_bytes(((n, tensors[n].dtype, tensors[n].shape) for n in names), metadata))
        for name in names:
            t = tensors[name]
            written = 0
            for piece in [t.data] if isinstance(t.data, (bytes, bytearray, memoryview)) else t.data:
                file.write(piece)
                written += len(piece)
            if written != nbytes(t.dtype, t.shape):
                raise UsageError("usage.data.shape", "%d bytes, but %s of %s takes %d"
                                 % (written, t.dtype, list(t.shape), nbytes(t.dtype, t.shape)), field=name)  # fmt: skip

"""Writes safetensors files, byte for byte as the safetensors library lays them out, and at one stroke. Spec: UQFF section 2.

Tensors are ordered by dtype, widest rank first, then by name; the header names them in that order behind __metadata__,
compact, padded with spaces to a multiple of 8.
"""

from __future__ import annotations

from vqfref import strictjson
from vqfref.errors import UsageError
from vqfref.safetensors.reader import DTYPES, INDEX_NAME, SINGLE_NAME
from vqfref.sink import AtomicFile, Publication

TYPE_CHECKING = False
if TYPE_CHECKING:
    import os
    from typing import Any, Iterable, Mapping

RANK = {dtype: i for i, dtype in enumerate(DTYPES)}


def order(names: Iterable[str], dtypes: Mapping[str, str]) -> list[str]:
    """Tensor names in the order of the file: dtype rank descending, then name by its bytes. Raises UsageError."""
    return sorted(names, key=lambda n: (-RANK[_known(dtypes[n])], encoded(n)))


def _known(dtype: str) -> str:
    if dtype not in DTYPES:
        raise UsageError("usage.dtype.unsupported", "dtype %r: expected one of %s" % (dtype, " ".join(DTYPES)))
    return dtype


def encoded(name: str) -> bytes:
    """The bytes of a tensor's name. Raises UsageError for what no header can hold as one."""
    try:
        data = name.encode("utf-8")
    except UnicodeEncodeError:
        raise UsageError("usage.tensor.name", "%r is not UTF-8" % name) from None
    if name == "__metadata__":
        raise UsageError("usage.tensor.name", "%s is no name for a tensor" % name)
    return data


def nbytes(dtype: str, shape: Iterable[int]) -> int:
    """Bytes of a tensor. Raises UsageError for an unknown dtype, negative dimensions, and parts of a byte."""
    shape = list(shape)
    bits = DTYPES[_known(dtype)]
    for n in shape:
        bits *= n
    if bits % 8 or any(n < 0 for n in shape):
        raise UsageError("usage.data.shape", "%s of %s is no number of whole bytes" % (dtype, shape))
    return bits // 8


def header_bytes(tensors: Iterable[tuple[str, str, Iterable[int]]], metadata: Mapping[str, str] | None = None) -> bytes:
    """The length and the header of a file whose tensors (name, dtype, shape) follow in this order. Raises UsageError."""
    root: dict[str, Any] = {"__metadata__": dict(metadata)} if metadata else {}
    at = 0
    for name, dtype, shape in tensors:
        encoded(name)
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
    with AtomicFile(path) as file:
        _write(file, tensors, metadata)


def _write(file: AtomicFile, tensors: Mapping[str, Any], metadata: Mapping[str, str] | None) -> None:
    names = order(tensors, {n: t.dtype for n, t in tensors.items()})
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


def write_model(
    folder: str | os.PathLike[str], tensors: Mapping[str, Any], max_shard_bytes: int,
    metadata: Mapping[str, str] | None = None,
) -> list[str]:  # fmt: skip
    """Write tensors as a model folder has them; returns the names of the files, which appear together.

    All that fit into max_shard_bytes of data become model.safetensors; else shards model-00001-of-0000N.safetensors, dealt
    out in the order of `tensors`, with an index. A tensor larger than that has a shard of its own. Errors as in `write`.
    """
    shards: list[dict[str, Any]] = [{}]
    total = filled = 0
    for name, t in tensors.items():
        size = nbytes(t.dtype, t.shape)
        if shards[-1] and filled + size > max_shard_bytes:
            shards.append({})
            filled = 0
        shards[-1][name] = t
        filled, total = filled + size, total + size
    names = ["model-%05d-of-%05d.safetensors" % (i + 1, len(shards)) for i in range(len(shards))]
    if len(shards) == 1:
        names = [SINGLE_NAME]
    with Publication(folder) as publication:
        for file_name, shard in zip(names, shards):
            with publication.file(file_name) as file:
                _write(file, shard, metadata)
        if len(shards) > 1:
            weight_map = {n: file_name for file_name, shard in zip(names, shards) for n in shard}
            index = {"metadata": {"total_size": total}, "weight_map": {n: weight_map[n] for n in sorted(weight_map)}}
            publication.add(INDEX_NAME, [strictjson.dumps(index, indent=2, ascii_only=False).encode("utf-8")])
            publication.remove([SINGLE_NAME])
        else:
            publication.remove([INDEX_NAME])  # it would be read first
    return names

#!/usr/bin/env python3
"""Our safetensors files against the real package, both ways, and our UQFF shards too. Not part of the test suite.

    python3 tests/peers.py        from the project's folder; needs the packages numpy and safetensors

1. What vqfref writes opens in the package with equal dtypes, shapes, values and metadata, and the package writes the same
   bytes of it.
2. What the package writes opens in vqfref with the same, and vqfref writes the same bytes of it.
3. The shards and the residual that `uqff write` makes, and a model folder in shards with its index, open in the package.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections import namedtuple

import numpy as np
import safetensors
from safetensors.numpy import load_file, save_file

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from tests.uqff_samples import FILES, noise
from vqfref.cli import main
from vqfref.safetensors.reader import SafetensorsFile, open_folder
from vqfref.safetensors.writer import write, write_model
from vqfref.source import Source

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

Tensor = namedtuple("Tensor", "dtype shape data")
NUMPY = {
    "BOOL": "?", "U8": "<u1", "I8": "<i1", "I16": "<i2", "U16": "<u2", "F16": "<f2", "I32": "<i4", "U32": "<u4",
    "F32": "<f4", "F64": "<f8", "I64": "<i8", "U64": "<u8",
}  # fmt: skip
SHAPES = ((), (1,), (0,), (3,), (2, 5), (2, 0, 3), (1, 2, 3, 4))
NAMES = ("a", "model.layers.10.x", "model.layers.2.x", "\u00e9", "\U0001f600", " ", '"\\', "\x7f\u2028")
METADATA = ({}, {"format": "pt"}, {"k\u00e9y": 'v\n"', "a": ""})


def expect(same: object, what: object) -> None:
    """These are proofs, under -O too."""
    if not same:
        raise SystemExit("differs: %s" % (what,))


def data_of(dtype: str, shape: tuple[int, ...], seed: int) -> bytes:
    data = noise(int(np.prod(shape, dtype=int)) * np.dtype(NUMPY[dtype]).itemsize, seed)
    return bytes(b & 1 for b in data) if dtype == "BOOL" else data


def sets() -> list[dict[str, Tensor]]:
    """Tensors of every dtype that numpy has, in every shape; every name; none at all."""
    everything = {
        "%s-%d" % (dtype, i): Tensor(dtype, shape, data_of(dtype, shape, i + 1))
        for dtype in NUMPY
        for i, shape in enumerate(SHAPES)
    }
    names = {name: Tensor("U8", (i,), noise(i, i + 1)) for i, name in enumerate(NAMES)}
    padding = [{"n" * n: Tensor("F16", (n,), noise(2 * n))} for n in range(1, 12)]
    return [everything, names, {}, *padding]


def in_package(path: str) -> tuple[dict[str, Any], dict[str, str]]:
    """(arrays, metadata) as the package reads them."""
    with safetensors.safe_open(path, "np") as f:
        names = f.keys()  # it can't be iterated over itself
        return {name: f.get_tensor(name) for name in names}, f.metadata() or {}


def both_ways(folder: str) -> int:
    ours, theirs = os.path.join(folder, "ours"), os.path.join(folder, "theirs")
    count = 0
    for tensors in sets():
        arrays = {n: np.frombuffer(t.data, NUMPY[t.dtype]).reshape(t.shape) for n, t in tensors.items()}
        for metadata in METADATA:
            write(ours, tensors, metadata)
            read, read_metadata = in_package(ours)
            expect(read_metadata == metadata and set(read) == set(arrays), (read_metadata, sorted(read)))
            for name, array in arrays.items():
                got = read[name]
                expect((got.dtype, got.shape, got.tobytes()) == (array.dtype, array.shape, array.tobytes()), name)
            save_file(arrays, theirs, metadata or None)
            with SafetensorsFile(Source(theirs)) as f:
                expect(f.metadata()["metadata"] == metadata and set(f) == set(arrays), theirs)
                for name, t in tensors.items():
                    info = f.info(name)
                    expect((info.dtype, info.shape, bytes(f.raw(name))) == tuple(t), name)
                    expect(t.dtype in ("BOOL", "C64") or list(f.get_tensor(name)) == values(arrays[name]), name)
            if len(metadata) < 2:  # the package's order of metadata is random
                expect(open_bytes(ours) == open_bytes(theirs), "bytes of %s" % sorted(tensors))
            count += 1
    return count


def values(array: Any) -> Any:
    """An array's values rounded to single precision, NaN told apart from nothing else."""
    with np.errstate(all="ignore"):
        return [Value(v) for v in array.astype("<f4").reshape(-1).tolist()]


class Value(float):
    def __eq__(self, other: object) -> bool:
        return float.__eq__(self, other) or (self != self and other != other)

    __hash__ = float.__hash__


def open_bytes(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def models(folder: str) -> int:
    source, count = os.path.join(folder, "source"), 0
    shape = {"model.embed_tokens": (8, 64), "model.layers.0.q_proj": (2, 256), "model.layers.0.k_proj": (16, 100)}
    tensors = {k + ".weight": Tensor("F32", s, (np.arange(np.prod(s)) % 97 / 97 - 0.5).astype("<f4").tobytes())
               for k, s in shape.items()}  # fmt: skip
    tensors["model.norm.weight"] = Tensor("F32", (64,), np.ones(64, "<f4").tobytes())
    for cap in (1 << 20, 3000, 1):
        names = write_model(source, tensors, cap, {"format": "pt"})
        homes = {name: n for n in names for name in load_file(os.path.join(source, n))}
        expect(set(homes) == set(tensors), homes)
        if len(names) > 1:
            index = json.loads(open_bytes(os.path.join(source, "model.safetensors.index.json")))
            expect(index["weight_map"] == homes, index)
        with open_folder(source) as f:
            expect(set(f) == set(tensors), sorted(f))
    with open(os.path.join(source, "config.json"), "w") as file:
        file.write("{}")
    types = ("q4k", "afq3", "hqq8", "f8q8", "q8_1")
    for dtype in ("f32", "f16"):
        out = os.path.join(folder, "uqff-" + dtype)
        expect(main(["uqff", "write", source, out, "--type", ",".join(types), "--dtype", dtype]) == 0, out)
        for name in sorted(os.listdir(out)):
            if name.endswith((".uqff", ".safetensors")):
                same_as_ours(os.path.join(out, name))
                count += 1
    for path in sorted(FILES.glob("*/*.uqff")):  # the engine's own, whose F8_E4M3 and BF16 numpy does not have
        if not path.parent.name.endswith("fp8"):
            same_as_ours(str(path))
            count += 1
    return count


def same_as_ours(path: str) -> None:
    """The package reads of a file what we read."""
    read, metadata = in_package(path)
    with SafetensorsFile(Source(path)) as f:
        expect((metadata, sorted(read)) == (f.metadata()["metadata"], sorted(f)), path)
        for name, array in read.items():
            expect(
                (array.shape, array.tobytes()) == (f.info(name).shape, bytes(f.raw(name))), "%s in %s" % (name, path)
            )


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        print("%d files both ways, %d shards and residuals read: safetensors %s, numpy %s"
              % (both_ways(place), models(place), safetensors.__version__, np.__version__))  # fmt: skip

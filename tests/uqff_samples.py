"""UQFF folders for tests: the engine's own in kat/files/uqff, ways to edit them, and layers of every family made anew.

Nothing here uses the library. A shard is a dict of tensors in the header's order; building it again gives the bytes that
it came from, which tests/test_uqff_reader.py holds. Folders are those of the engine as they are, but for q2k and
odd100-afq4: to stay small, their one shard is split as the engine splits at its limit of 10 GiB, and the report lists the
parts.
"""

from __future__ import annotations

import functools
import json
import os
import shutil
import struct
import tempfile
import unittest
from collections import namedtuple
from pathlib import Path

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Iterable

FILES = Path(__file__).resolve().parent.parent / "kat" / "files" / "uqff"
REAL = (
    "afq3", "bias-fp8", "bias-q8_0", "f8q8", "fp8", "hqq4", "moe-afq4", "moe-q4_0", "mxfp4", "odd100-afq4", "q2k", "q8_1",
    "topo1-q4_0",
)  # fmt: skip
MAJOR, MINOR, PATCH = VERSION_NAMES = ("uqff.version.major", "uqff.version.minor", "uqff.version.patch")
RESIDUAL, REPORT = "residual.safetensors", "uqff_report.json"
PRODUCER = {
    "uqff.version": "1.2.0", "uqff.producer": "mistral.rs", "uqff.producer.mistralrs.version": "0.9.5",
    "uqff.producer.mistralrs.git_revision": "unknown",
}  # fmt: skip
BITS = {
    "BOOL": 8, "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6, "U8": 8, "I8": 8, "F8_E5M2": 8, "F8_E4M3": 8, "F8_E8M0": 8, "I16": 16,
    "U16": 16, "F16": 16, "BF16": 16, "I32": 32, "U32": 32, "F32": 32, "C64": 64, "F64": 64, "I64": 64, "U64": 64,
}  # fmt: skip

Tensor = namedtuple("Tensor", "dtype shape data")


def product(numbers: Iterable[int]) -> int:
    """The product of some numbers."""
    result = 1
    for n in numbers:
        result *= n
    return result


# ---- tensors


def u8(value: int) -> Any:
    """A U8 scalar."""
    return Tensor("U8", (), bytes([value]))


def u32(value: int) -> Any:
    """A U32 scalar."""
    return Tensor("U32", (), struct.pack("<I", value))


def u32s(*values: int) -> Any:
    """A U32 vector."""
    return Tensor("U32", (len(values),), struct.pack("<%dI" % len(values), *values))


def f32(value: float) -> Any:
    """An F32 scalar."""
    return Tensor("F32", (), struct.pack("<f", value))


def zeros(dtype: str, *shape: int) -> Any:
    """A tensor of zero bytes."""
    return Tensor(dtype, shape, bytes(product(shape) * BITS[dtype] // 8))


def noise(n: int, seed: int = 1) -> bytes:
    """Bytes that look random and never change (a linear congruence, its high bits)."""
    out = bytearray()
    for _ in range(n):
        seed = (seed * 6364136223846793005 + 1442695040888963407) % (1 << 64)
        out.append(seed >> 56)
    return bytes(out)


def smooth(dtype: str, *shape: int, seed: int = 1) -> Any:
    """A tensor of small finite floats: multiples of 1/64 between -2 and 2, exact in every dtype here."""
    values = [(b - 128) / 64 for b in noise(product(shape), seed)]
    if dtype == "BF16":
        data = b"".join([struct.pack("<f", v)[2:] for v in values])
    else:
        data = struct.pack("<%d%s" % (len(values), {"F32": "f", "F16": "e", "F64": "d"}[dtype]), *values)
    return Tensor(dtype, shape, data)


# ---- layers of every family, as section 6 has them: a dict of tensors by suffix, "" for `<key>.weight`

GGML = {  # code: (label, elements, bytes) of a block
    0: ("f32", 1, 4), 1: ("f16", 1, 2), 2: ("q4_0", 32, 18), 3: ("q4_1", 32, 20), 6: ("q5_0", 32, 22), 7: ("q5_1", 32, 24),
    8: ("q8_0", 32, 34), 9: ("q8_1", 32, 36), 10: ("q2k", 256, 84), 11: ("q3k", 256, 110), 12: ("q4k", 256, 144),
    13: ("q5k", 256, 176), 14: ("q6k", 256, 210), 15: ("q8k", 256, 292), 30: ("bf16", 1, 2),
}  # fmt: skip


def gguf(code: int, *shape: int) -> dict[str, Any]:
    """Tag 0. The scales of the blocks are whatever the noise gives, NaN among them."""
    _, elements, size = GGML[code]
    data = noise(product(shape) // elements * size, code + 1)
    return {"": Tensor("U8", (len(data),), data), ".format": u8(0), ".dtype": u32(code), ".shape": u32s(*shape)}


def unquant(dtype: str, *shape: int) -> dict[str, Any]:
    """Tag 1."""
    return {"": smooth(dtype, *shape), ".format": u8(1)}


def hqq(bits: int, *shape: int, group: int = 64, dtype: str = "F32") -> dict[str, Any]:
    """Tag 2, axis 0, channel-wise. Words of 3 bits keep their two top bits clear."""
    columns = product(shape) // group
    rows = -(-group // {8: 1, 4: 2, 2: 4, 1: 8, 3: 10}[bits])
    data = noise(rows * columns * (4 if bits == 3 else 1), bits)
    if bits == 3:
        data = b"".join([struct.pack("<I", w & 0x3FFFFFFF) for (w,) in struct.iter_unpack("<I", data)])
    return {
        "": Tensor("I32" if bits == 3 else "U8", (rows, columns), data), ".format": u8(2),
        ".scales": smooth(dtype, 1, columns, seed=3), ".zeros": smooth(dtype, 1, columns, seed=4), ".shape": u32s(*shape),
        ".bits": u8(bits), ".group_size": u32(group), ".axis": u8(0), ".optimization_steps": u32(10),
        ".round_zeros": u8(0), ".channel_wise": u8(1),
    }  # fmt: skip


def fp8(*shape: int, scale: float = 0.5) -> dict[str, Any]:
    """Tag 3."""
    return {
        "": Tensor("F8_E4M3", shape, noise(product(shape), 5)), ".format": u8(3), ".dequant_w_scale": f32(scale),
        ".dequant_x_scale": f32(scale), ".quant_scale": f32(1 / scale), ".dtype": u32(9),
    }  # fmt: skip


def afq(bits: int, *shape: int, group: int = 64, dtype: str = "F32") -> dict[str, Any]:
    """Tag 4."""
    *lead, last = shape
    words = (*lead, last * bits // 32)
    return {
        "": Tensor("U32", words, noise(4 * product(words), bits)), ".format": u8(4), ".bits": u8(bits),
        ".group_size": u8(group), ".scales": smooth(dtype, *lead, last // group, seed=6),
        ".biases": smooth(dtype, *lead, last // group, seed=7),
    }  # fmt: skip


def f8q8(*shape: int) -> dict[str, Any]:
    """Tag 5."""
    blocks = -(-product(shape) // 32)
    data = noise(33 * blocks, 8)
    return {
        "": Tensor("U8", (33 * blocks,), data),
        ".format": u8(5),
        ".num_blocks": u32(blocks),
        ".shape": u32s(*shape),
    }


def mxfp4(*shape: int) -> dict[str, Any]:
    """Tag 6; the scale bytes lie around 127, so that all values are finite."""
    *lead, last = shape
    scales = bytes([120 + b % 16 for b in noise(product(lead) * last // 32, 9)])
    return {
        "": Tensor("U8", (*lead, last // 2), noise(product(shape) // 2, 10)), ".format": u8(6),
        ".scales": Tensor("U8", (*lead, last // 32), scales),
    }  # fmt: skip


def named(key: str, layer: dict[str, Any], bias: Any = None) -> dict[str, Any]:
    """The tensors of a layer by their full names."""
    tensors = {"%s.weight%s" % (key, suffix): t for suffix, t in layer.items()}
    return {**tensors, key + ".bias": bias} if bias is not None else tensors


def version(major: int = 1, minor: int = 2, patch: int = 0) -> dict[str, Any]:
    """The three version entries."""
    return {MAJOR: u32(major), MINOR: u32(minor), PATCH: u32(patch)}


# ---- shards


def parse(data: bytes) -> tuple[dict[str, str] | None, dict[str, Any]]:
    """(metadata, tensors) of a sound safetensors file, in the header's order."""
    (length,) = struct.unpack_from("<Q", data)
    header = json.loads(data[8 : 8 + length])
    body = data[8 + length :]
    metadata = header.pop("__metadata__", None)
    tensors = {
        name: Tensor(e["dtype"], tuple(e["shape"]), body[e["data_offsets"][0] : e["data_offsets"][1]])
        for name, e in header.items()
    }
    return metadata, tensors


def header_of(tensors: dict[str, Any], metadata: dict[str, str] | None = None) -> dict[str, Any]:
    """The JSON object of a header, the tensors laid one behind the other."""
    header: dict[str, Any] = {} if metadata is None else {"__metadata__": metadata}
    at = 0
    for name, t in tensors.items():
        header[name] = {"dtype": t.dtype, "shape": list(t.shape), "data_offsets": [at, at + len(t.data)]}
        at += len(t.data)
    return header


def compose(header: Any, body: bytes, length: int | None = None) -> bytes:
    """A file from a header (an object, or its text as bytes) and its data; length: what the first 8 bytes say."""
    text = header if isinstance(header, bytes) else json.dumps(header, separators=(",", ":")).encode()
    if not isinstance(header, bytes):
        text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text) if length is None else length) + text + body


def build(tensors: dict[str, Any], metadata: dict[str, str] | None = None) -> bytes:
    """A sound file of some tensors in their order."""
    return compose(header_of(tensors, metadata), b"".join([t.data for t in tensors.values()]))


def relabelled(data: bytes, edit: Callable[[dict[str, Any]], Any]) -> bytes:
    """A file whose header alone is edited: `edit` changes the object, or returns other text for it as bytes."""
    (length,) = struct.unpack_from("<Q", data)
    header = json.loads(data[8 : 8 + length])
    text = edit(header)
    return compose(text if isinstance(text, bytes) else header, data[8 + length :])


# ---- folders


@functools.lru_cache(maxsize=None)
def real_files(name: str) -> dict[str, bytes]:
    """The files of a real folder by name, without what is expected of it."""
    return {f.name: f.read_bytes() for f in sorted((FILES / name).iterdir()) if f.is_file()}


@functools.lru_cache(maxsize=None)
def real_shard(name: str, file: str) -> tuple[dict[str, str] | None, dict[str, Any]]:
    return parse(real_files(name)[file])


@functools.lru_cache(maxsize=None)
def expected(name: str) -> list[dict[str, Any]]:
    """What the engine's layers decode to: key, stored, shape, f32_sha256, first8."""
    layers: list[dict[str, Any]] = json.loads((FILES / name / "expected" / "index.json").read_bytes())["layers"]
    return layers


ASSETS = {
    "config.json": b"{}",
    "tokenizer.json": b"{}",
    "tokenizer_config.json": b"{}",
    "generation_config.json": b"{}",
}


class Folder:
    """A folder in memory. shards: by file name (metadata, tensors), to be edited; files: the bytes of all others, and of
    shards that have been spoiled beyond parsing, which go before."""

    def __init__(self, shards: dict[str, Any], files: dict[str, bytes] | None = None) -> None:
        self.shards = {name: (metadata, dict(tensors)) for name, (metadata, tensors) in shards.items()}
        self.files = {**ASSETS, RESIDUAL: build({"model.norm.weight": smooth("F32", 8)}), **(files or {})}

    @classmethod
    def real(cls, name: str, report: bool = False) -> Folder:
        """A real folder with the assets that were left out, so that nothing is wrong with it. Its report is there only
        if it is asked for: most edits would make it lie."""
        files = dict(real_files(name))
        shards = {f: real_shard(name, f) for f in files if f.endswith(".uqff")}
        others = {f: data for f, data in files.items() if f not in shards and (report or f != REPORT)}
        return cls(shards, others)

    @classmethod
    def of(cls, tensors: dict[str, Any], stem: str = "made", files: dict[str, bytes] | None = None) -> Folder:
        """A folder of one shard, with version entries before the tensors."""
        return cls({stem + "-0.uqff": (dict(PRODUCER), {**version(), **tensors})}, files)

    @property
    def first(self) -> str:
        """The first shard."""
        return min(self.shards)

    def home(self, name: str) -> dict[str, Any]:
        """The tensors of the shard that has a name."""
        found: dict[str, Any] = next(tensors for _, tensors in self.shards.values() if name in tensors)
        return found

    def __getitem__(self, name: str) -> Any:
        return self.home(name)[name]

    def __setitem__(self, name: str, tensor: Any) -> None:
        """Put a tensor in the place of one, or at the end of the first shard."""
        home = [tensors for _, tensors in self.shards.values() if name in tensors]
        (home[0] if home else self.shards[self.first][1])[name] = tensor

    def __delitem__(self, name: str) -> None:
        del self.home(name)[name]

    def rename(self, old: str, new: str) -> None:
        """Another name at the same place."""
        tensors = self.home(old)
        items = list(tensors.items())
        tensors.clear()
        tensors.update((new if name == old else name, t) for name, t in items)

    def layer(self, key: str) -> dict[str, Any]:
        """The tensors of a layer by suffix."""
        weight = key + ".weight"
        return {
            name[len(weight) :]: t
            for _, tensors in self.shards.values()
            for name, t in tensors.items()
            if name == weight or name.startswith(weight + ".")
        }

    def split(self, parts: int, deal: Callable[[int, str], int] | None = None) -> None:
        """Spread the tensors of the only shard over several, in turn or as `deal(index, name)` says; versions stay."""
        ((file, (metadata, tensors)),) = self.shards.items()
        stem = file[: -len("-0.uqff")]
        names = [n for n in tensors if n not in VERSION_NAMES]
        dealt: list[dict[str, Any]] = [{n: t for n, t in tensors.items() if n in VERSION_NAMES}]
        dealt += [{} for _ in range(parts - 1)]
        for i, n in enumerate(names):
            dealt[deal(i, n) if deal else i % parts][n] = tensors[n]
        self.shards = {"%s-%d.uqff" % (stem, i): (metadata, d) for i, d in enumerate(dealt)}

    def content(self, file: str | None = None) -> bytes:
        """The bytes of a file, of the first shard unless another is named."""
        file = file or self.first
        if file in self.files:
            return self.files[file]
        metadata, tensors = self.shards[file]
        return build(tensors, metadata)

    def spoil(self, edit: Callable[[bytes], bytes], file: str | None = None) -> None:
        """Replace the bytes of a file, of the first shard unless another is named, by others."""
        self.files[file or self.first] = edit(self.content(file))

    def relabel(self, edit: Callable[[dict[str, Any]], Any], file: str | None = None) -> None:
        """Edit the header of a file and leave its data alone."""
        self.spoil(lambda data: relabelled(data, edit), file)

    def report(self, edit: Callable[[dict[str, Any]], Any]) -> None:
        """Edit the report's JSON."""
        root = json.loads(self.files[REPORT])
        edit(root)
        self.files[REPORT] = json.dumps(root).encode()

    def write(self, path: str) -> str:
        """Make the folder."""
        os.makedirs(path)
        for name in {**self.shards, **self.files}:
            with open(os.path.join(path, name), "wb") as file:
                file.write(self.content(name))
        return path


class FolderTest(unittest.TestCase):
    """Tests that need folders on the disk."""

    base = ""  # where they lie; each is written once and stays until the class is done
    count = 0

    @classmethod
    def setUpClass(cls) -> None:
        memory = "/dev/shm"  # a file system in memory, where there is one: these are thousands of small files
        cls.base = tempfile.mkdtemp(prefix="uqff-test-", dir=memory if os.access(memory, os.W_OK) else None)

    @classmethod
    def tearDownClass(cls) -> None:
        shutil.rmtree(cls.base)

    @classmethod
    def new(cls) -> str:
        """A path that nothing has yet."""
        cls.count += 1
        return os.path.join(cls.base, "f%d" % cls.count)

    @classmethod
    def place(cls, folder: Folder) -> str:
        """A folder's path, after it has been written."""
        return folder.write(cls.new())

    def edited(self, name: str, edit: Callable[[Folder], Any], report: bool = False) -> str:
        """The path of a real folder after an edit."""
        folder = Folder.real(name, report)
        edit(folder)
        return self.place(folder)


def raised(call: Callable[..., Any], *args: Any, **how: Any) -> Any:
    """The ValueError that a call raises; None where it returns."""
    try:
        call(*args, **how)
    except ValueError as error:
        return error
    return None

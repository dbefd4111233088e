"""UQFF for the suite's generators: layers of every family, their values, shards and folders. Uses nothing of vqfref.

A layer is a dict of tensors by suffix, "" for the weight. Values are computed with gguf-py where it knows the type, else
by the format's formulas with numpy, in F32 and rounded after every operation.
"""

from __future__ import annotations

import struct

import gguf
import ml_dtypes
import numpy as np
from st import BITS, count, packed, product
from suite import data, prove

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict

    from st import Tensor, Tensors

    Layer = Dict[str, Tensor]  # by suffix, "" for the weight
    Edit = Dict[str, Any]  # suffixes whose tensors are replaced, or left out where None stands

SPEC = "generator, by the format's formulas with numpy"
CATALOGUE = "generator, by the catalogue of what the engine refuses"
STRICTER = "generator, by the rules where the engine does not look"

KEY = "lm_head"


def u8(value: int) -> Tensor:
    return "U8", (), bytes([value])


def u32(*values: int) -> Tensor:
    """A scalar."""
    return "U32", (), struct.pack("<%dI" % len(values), *values)


def u32s(*values: int) -> Tensor:
    return "U32", (len(values),), struct.pack("<%dI" % len(values), *values)


def blank(dtype: str, *shape: int) -> Tensor:
    return dtype, shape, bytes(product(shape) * BITS[dtype] // 8)


def noise(dtype: str, *shape: int) -> Tensor:
    """Any bytes."""
    return dtype, shape, data("uqff %s %s" % (dtype, shape), product(shape) * BITS[dtype] // 8)


def smooth(label: str, dtype: str, *shape: int) -> Tensor:
    """Small floats, exact in every dtype."""
    values = (np.frombuffer(data(label, product(shape)), "u1").astype("f4") - 128) / 64
    return dtype, shape, values.astype(NUMPY[dtype]).tobytes()


NUMPY = {
    "F32": np.dtype("<f4"), "F16": np.dtype("<f2"), "F64": np.dtype("<f8"), "BF16": np.dtype(ml_dtypes.bfloat16),
    "F8_E4M3": np.dtype(ml_dtypes.float8_e4m3fn), "F8_E5M2": np.dtype(ml_dtypes.float8_e5m2),
}  # fmt: skip


# ---- layers of every family

GGML = {  # code: label, elements and bytes of a block
    0: ("f32", 1, 4), 1: ("f16", 1, 2), 2: ("q4_0", 32, 18), 3: ("q4_1", 32, 20), 6: ("q5_0", 32, 22),
    7: ("q5_1", 32, 24),
    8: ("q8_0", 32, 34), 9: ("q8_1", 32, 36), 10: ("q2k", 256, 84), 11: ("q3k", 256, 110), 12: ("q4k", 256, 144),
    13: ("q5k", 256, 176), 14: ("q6k", 256, 210), 15: ("q8k", 256, 292), 30: ("bf16", 1, 2),
}  # fmt: skip


def ggml(code: int, *shape: int) -> Layer:
    """Tag 0; the halves of the blocks are small, and so are all values."""
    label, elements, size = GGML[code]
    n = product(shape)
    if elements == 1:
        content = smooth(label, label.upper(), n)[2]
    else:
        rows = np.frombuffer(data(label, n // elements * size), "u1").reshape(-1, size).copy()
        for at in {"q2k": (81, 83), "q3k": (109,), "q6k": (209,), "q4_0": (1,), "q8_0": (1,), "q5_0": (1,)}.get(
            label, (1, 3)
        ):
            rows[:, at] = 0x2C | rows[:, at] & 0x83
        content = rows.tobytes()
    return {"": ("U8", (len(content),), content), ".format": u8(0), ".dtype": u32(code), ".shape": u32s(*shape)}


def unquant(dtype: str, *shape: int) -> Layer:
    """Tag 1."""
    return {"": smooth("unquant", dtype, *shape), ".format": u8(1)}


PER_WORD = {8: 1, 4: 2, 3: 10, 2: 4, 1: 8}


def hqq(bits: int, *shape: int, group: int = 64, dtype: str = "F32") -> Layer:
    """Tag 2. Words of 3 bits have their two top bits clear."""
    columns = product(shape) // group
    rows = -(-group // PER_WORD[bits])
    words = np.frombuffer(data("hqq %d" % bits, 4 * rows * columns), "<u4").reshape(rows, columns)
    weight = ("I32", (words & 0x3FFFFFFF).tobytes()) if bits == 3 else ("U8", words.astype("u1").tobytes())
    return {
        "": (weight[0], (rows, columns), weight[1]), ".format": u8(2),
        ".scales": smooth("hqq scales", dtype, 1, columns), ".zeros": smooth("hqq zeros", dtype, 1, columns),
        ".shape": u32s(*shape), ".bits": u8(bits), ".group_size": u32(group), ".axis": u8(0),
        ".optimization_steps": u32(10), ".round_zeros": u8(0), ".channel_wise": u8(1),
    }  # fmt: skip


def fp8(*shape: int, scale: float = 0.375) -> Layer:
    """Tag 3, every byte but the two NaN."""
    good = [b for b in range(256) if b & 0x7F != 0x7F]
    content = bytes(good[i % 254] for i in range(product(shape)))
    scales = {".dequant_w_scale": scale, ".dequant_x_scale": scale, ".quant_scale": 1 / scale if scale else 0.0}
    packed_scales = {s: ("F32", (), struct.pack("<f", v)) for s, v in scales.items()}
    return {"": ("F8_E4M3", shape, content), ".format": u8(3), **packed_scales, ".dtype": u32(9)}


def afq(bits: int, *shape: int, group: int = 64, dtype: str = "F32") -> Layer:
    """Tag 4."""
    *lead, last = shape
    return {
        "": noise("U32", *lead, last * bits // 32), ".format": u8(4), ".bits": u8(bits), ".group_size": u8(group),
        ".scales": smooth("afq scales", dtype, *lead, last // group),
        ".biases": smooth("afq biases", dtype, *lead, last // group),
    }  # fmt: skip


def f8q8(*shape: int) -> Layer:
    """Tag 5."""
    blocks = -(-product(shape) // 32)
    rows = np.frombuffer(data("f8q8", 33 * blocks), "u1").reshape(-1, 33).copy()
    rows[:, 0] = np.arange(blocks) * 37 % 127  # no NaN
    return {
        "": ("U8", (33 * blocks,), rows.tobytes()), ".format": u8(5), ".num_blocks": u32(blocks),
        ".shape": u32s(*shape),
    }  # fmt: skip


def mxfp4(*shape: int, scales: bytes | None = None) -> Layer:
    """Tag 6."""
    *lead, last = shape
    n = product(shape) // 32
    scales = scales or bytes(120 + b % 16 for b in data("mxfp4", n))
    return {"": noise("U8", *lead, last // 2), ".format": u8(6), ".scales": ("U8", (*lead, last // 32), scales)}


# ---- values


def number(t: Tensor) -> int:
    return int.from_bytes(t[2], "little")


def floats(t: Tensor) -> Any:
    """The values of a float tensor as f32, in its shape."""
    return np.frombuffer(t[2], NUMPY[t[0]]).astype("<f4").reshape(t[1])


def label_of(layer: Layer) -> str:
    """The label of reports."""
    tag = number(layer[".format"])
    if tag == 0:
        return GGML[number(layer[".dtype"])][0]
    return ("", "unquant", "hqq", "fp8", "afq", "f8q8", "mxfp4")[tag] + (
        str(number(layer[".bits"])) if tag in (2, 4) else ""
    )


def decoded(layer: Layer) -> Any:
    """All values of a layer in its logical shape, in f32, rounded after every operation."""
    tag, (_, dims, content) = number(layer[".format"]), layer[""]
    shape = np.frombuffer(layer[".shape"][2], "<u4") if ".shape" in layer else dims
    f32 = np.float32
    with np.errstate(invalid="raise", over="ignore", under="ignore"):
        if tag == 0:
            return ggml_values(GGML[number(layer[".dtype"])][0], content).reshape(shape)
        if tag == 1:
            return floats(layer[""])
        if tag == 2:
            return hqq_values(layer).reshape(shape)
        if tag == 3:
            return floats(layer[""]) * floats(layer[".dequant_w_scale"])
        if tag == 4:
            scales, biases, bits, group = (layer[s] for s in (".scales", ".biases", ".bits", ".group_size"))
            stream = np.unpackbits(np.frombuffer(content, "u1"), bitorder="little").reshape(
                *scales[1], number(group), number(bits)
            )
            codes = (stream.astype("i4") << np.arange(number(bits))).sum(-1).astype("f4")
            values = floats(biases)[..., None] + codes * floats(scales)[..., None]
            return values.reshape(*dims[:-1], -1)
        if tag == 5:
            rows = np.frombuffer(content, "u1").reshape(-1, 33)
            scales = rows[:, :1].copy().view(NUMPY["F8_E4M3"]).astype("f4") / f32(416)
            return (
                (rows[:, 1:].copy().view("i1").astype("f4") * scales) .reshape(-1)[: product(map(int,
                 shape))] .reshape(shape)
            )  # fmt: skip
        codes = np.frombuffer(content, "u1").reshape(*dims, 1) >> np.array([0, 4], "u1") & 15
        e2m1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6], "f4")
        table = np.concatenate([e2m1, -e2m1])
        scales = (
            (np.frombuffer(layer[".scales"][2], "u1").astype("<u4") << 23).view("f4").reshape(*layer[".scales"][1], 1)
        )
        return (table[codes].reshape(*scales.shape[:-1], 32) * scales).reshape(*dims[:-1], -1)


def ggml_values(label: str, content: bytes) -> Any:
    rows = np.frombuffer(content, "u1")
    if label in ("f32", "f16", "bf16"):
        return floats((label.upper(), (-1,), content))
    if label == "q8_1":
        rows = rows.reshape(-1, 36)
        return rows[:, :2].copy().view("<f2").astype("f4") * rows[:, 4:].copy().view("i1").astype("f4")
    if label == "q8k":
        rows = rows.reshape(-1, 292)
        return rows[:, :4].copy().view("<f4") * rows[:, 4:260].copy().view("i1").astype("f4")
    kind = gguf.GGMLQuantizationType[label.upper().replace("K", "_K")]
    return gguf.quants.dequantize(rows, kind)


def hqq_values(layer: Layer) -> Any:
    """Blocks of rows from the most significant field down; rows of padding behind the group are dropped."""
    bits, group = number(layer[".bits"]), number(layer[".group_size"])
    _, dims, content = layer[""]
    words = np.frombuffer(content, "<i4" if bits == 3 else "u1").reshape(dims)
    fields = [words >> bits * i & (1 << bits) - 1 for i in reversed(range(PER_WORD[bits]))]
    codes = np.concatenate(fields)[:group].astype("f4")
    dtype = NUMPY[layer[".scales"][0]]
    less = (codes - floats(layer[".zeros"])).astype(dtype).astype("f4")
    return (less * floats(layer[".scales"])).astype(dtype).astype("f4")


# ---- shards


def version(major: int = 1, minor: int = 2, patch: int = 0) -> Tensors:
    return {"uqff.version.major": u32(major), "uqff.version.minor": u32(minor), "uqff.version.patch": u32(patch)}


def named(layer: Layer, bias: Tensor | None = None, key: str = KEY) -> Tensors:
    """The tensors of a layer by their full names."""
    tensors = {key + ".weight" + suffix: t for suffix, t in layer.items()}
    return {**tensors, key + ".bias": bias} if bias else tensors


def edited(layer: Layer, edit: Edit) -> Layer:
    """A layer with some tensors replaced, or left out."""
    return {s: t for s, t in {**layer, **edit}.items() if t is not None}


class Folder:
    """Shards, each a file in a folder with the other files that a loader wants."""

    def __init__(self, files: dict[str, bytes]) -> None:
        self.files = files
        self.put("shards/config.json", b"{}")
        self.put("shards/tokenizer.json", b"{}")
        self.put("shards/residual.safetensors", RESIDUAL)

    def put(self, name: str, content: bytes) -> None:
        prove(self.files.setdefault(name, content) == content, "one content a name: " + name)

    def shard(self, name: str, content: bytes) -> str:
        """One shard by itself, not numbered, so that it stands for no other; its path."""
        file = "shards/%s%s.uqff" % (name, "-only" if name[-1].isdigit() else "")
        self.put(file, content)
        return "files/uqff-cases/" + file

    def folder(self, name: str, **files: bytes) -> str:
        """A folder of its own, with what a loader wants; its path."""
        for file, content in {"config.json": b"{}", "residual.safetensors": RESIDUAL, **files}.items():
            self.put("%s/%s" % (name, file), content)
        return "files/uqff-cases/" + name


RESIDUAL = packed({"model.norm.weight": smooth("norm", "F32", 8)})
TINY = named(ggml(2, 2, 32))  # a layer for sets whose layers do not matter


def sound(tensors: Tensors) -> bytes:
    """A shard; the package safetensors finds all tensors in it."""
    content = packed(tensors)
    prove(count(content) == len(tensors), "a sound container")
    return content

"""Hugging Face model folders for tests, made by the recipe that the converter's known files were made from.

Nothing here uses the library, and no model is stored: values come from a linear congruential generator, over all tensors
in their order. The digests at the end are those of the models that the engine's converter read; `model` holds each against
them, so that whatever is built on these models stands on the same ground. The configs are kat/files/models/NAME.json.

A `Model` is a config text and a list of tensors. Its methods give variants: other values, shapes and dtypes, tensors
taken away, the same tensors as shards.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import struct
from array import array
from collections import namedtuple
from pathlib import Path

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Iterator, Sequence

CONFIGS = Path(__file__).resolve().parent.parent / "kat" / "files" / "models"
NAMES = ("dense", "tied-f16-vocab66", "moe", "vision", "mini", "odd-rows")
SEEDS = {"dense": 0x9E3779B9, "tied-f16-vocab66": 11, "moe": 17, "vision": 19, "mini": 23, "odd-rows": 29}
MICRO_F32 = struct.unpack("<f", struct.pack("<f", 1e-6))[0]
SIZES = {"BF16": 2, "F16": 2, "F32": 4, "F64": 8, "I8": 1}

Tensor = namedtuple("Tensor", "name dtype shape data")
Tensor.__doc__ = "One tensor of a source: `data` is its stored bytes."


class Model:
    """A model folder before it is written: the config text, and its tensors in order."""

    def __init__(self, config: bytes, tensors: Sequence[Tensor]) -> None:
        self.config = config
        self.tensors = list(tensors)

    def __getitem__(self, name: str) -> Tensor:
        return next(t for t in self.tensors if t.name == name)

    def values(self, name: str) -> list[float]:
        """A tensor's values, by this file's own decoders."""
        t = self[name]
        return DECODE[t.dtype](t.data)

    def replaced(self, name: str, **parts: Any) -> Model:
        """A copy in which one tensor has another name, dtype, shape or data."""
        if name not in [t.name for t in self.tensors]:
            raise KeyError(name)
        return Model(self.config, [t._replace(**parts) if t.name == name else t for t in self.tensors])

    def patched(self, name: str, **values: float) -> Model:
        """A copy with some values of a tensor replaced: patched(name, _0=nan, _17=2.0)."""
        t = self[name]
        data = bytearray(t.data)
        for index, value in values.items():
            at = int(index[1:]) * SIZES[t.dtype]
            data[at : at + SIZES[t.dtype]] = ENCODE[t.dtype]([value])
        return self.replaced(name, data=bytes(data))

    def without(self, *names: str) -> Model:
        """A copy that lacks some tensors."""
        return Model(self.config, [t for t in self.tensors if t.name not in names])

    def configured(self, change: Callable[[dict[str, Any]], Any]) -> Model:
        """A copy whose config was changed, as JSON."""
        root = json.loads(self.config)
        change(root)
        return Model(json.dumps(root).encode(), self.tensors)

    def as_dtype(self, dtype: str) -> Model:
        """The same values in another dtype, rounded to it."""
        return Model(self.config, [
            t._replace(dtype=dtype, data=ENCODE[dtype](DECODE[t.dtype](t.data))) for t in self.tensors
        ])  # fmt: skip

    def write(self, folder: str) -> str:
        """The folder, with config.json and one model.safetensors. Gives the folder back."""
        self._write(folder, {"model.safetensors": safetensors(self.tensors)})
        return folder

    def write_shards(self, folder: str, count: int, index: bool) -> str:
        """The folder with the tensors dealt out round robin over so many shards, with or without an index."""
        hands = [self.tensors[i::count] for i in range(count)]
        names = ["model-%05d-of-%05d.safetensors" % (i + 1, count) for i in range(count)]
        files = {name: safetensors(hand) for name, hand in zip(names, hands)}
        if index:
            homes = {t.name: name for name, hand in zip(names, hands) for t in hand}
            size = sum(len(t.data) for t in self.tensors)
            text = json.dumps({"metadata": {"total_size": size}, "weight_map": dict(sorted(homes.items()))}, indent=2)
            files["model.safetensors.index.json"] = text.encode()
        self._write(folder, files)
        return folder

    def _write(self, folder: str, files: dict[str, bytes]) -> None:
        os.makedirs(folder, exist_ok=True)
        for name, data in [("config.json", self.config), *files.items()]:
            with open(os.path.join(folder, name), "wb") as file:
                file.write(data)


def safetensors(tensors: Sequence[Tensor]) -> bytes:
    """A safetensors file: compact header with the metadata first, padded with spaces to a multiple of 8."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    at = 0
    for t in tensors:
        header[t.name] = {"dtype": t.dtype, "shape": list(t.shape), "data_offsets": [at, at + len(t.data)]}
        at += len(t.data)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + b"".join([t.data for t in tensors])


# ---- dtypes


def bf16(values: Sequence[float]) -> bytes:
    """BF16, to nearest even. A NaN keeps its upper bits, which must not be an infinity's."""
    words = struct.unpack("<%dI" % len(values), struct.pack("<%df" % len(values), *values))
    halves = [w >> 16 if w & 0x7F800000 == 0x7F800000 else w + 0x7FFF + (w >> 16 & 1) >> 16 for w in words]
    return struct.pack("<%dH" % len(halves), *halves)


def _pack(code: str) -> Callable[[Sequence[float]], bytes]:
    return lambda values: struct.pack("<%d%s" % (len(values), code), *values)


def _unpack(code: str, size: int) -> Callable[[bytes], list[float]]:
    return lambda data: list(struct.unpack("<%d%s" % (len(data) // size, code), data))


def bf16_values(data: bytes) -> list[float]:
    """BF16 is the upper half of a single-precision number."""
    return _unpack("f", 4)(b"".join([b"\0\0" + data[i : i + 2] for i in range(0, len(data), 2)]))


ENCODE = {"BF16": bf16, "F16": _pack("e"), "F32": _pack("f"), "F64": _pack("d")}
DECODE = {"BF16": bf16_values, "F16": _unpack("e", 2), "F32": _unpack("f", 4), "F64": _unpack("d", 8)}


# ---- the recipe


def shapes(config: dict[str, Any], tied: bool) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Names and shapes of a model's tensors in the recipe's order."""
    text = config.get("text_config", config)
    prefix = "model.language_model." if "text_config" in config else "model."
    dim, head = text["hidden_size"], text["head_dim"]
    q_out, k_out = text["num_attention_heads"] * head, text["num_key_value_heads"] * head
    experts, ffn = text.get("num_experts", 0), text["intermediate_size"]
    yield prefix + "embed_tokens.weight", (text["vocab_size"], dim)
    yield prefix + "norm.weight", (dim,)
    for layer in range(text["num_hidden_layers"]):
        at = "%slayers.%d." % (prefix, layer)
        yield at + "input_layernorm.weight", (dim,)
        yield at + "post_attention_layernorm.weight", (dim,)
        for name, shape in (("q", (q_out, dim)), ("k", (k_out, dim)), ("v", (k_out, dim)), ("o", (dim, q_out))):
            yield "%sself_attn.%s_proj.weight" % (at, name), shape
        for name in ("q_norm", "k_norm"):
            yield "%sself_attn.%s.weight" % (at, name), (head,)
        if experts:
            yield at + "mlp.gate.weight", (experts, dim)
        width = text["moe_intermediate_size"] if experts else ffn
        for where in ["mlp.experts.%d." % e for e in range(experts)] or ["mlp."]:
            for name, shape in (("gate", (width, dim)), ("up", (width, dim)), ("down", (dim, width))):
                yield "%s%s%s_proj.weight" % (at, where, name), shape
    if not tied:
        yield "lm_head.weight", (text["vocab_size"], dim)
    if "vision_config" in config:
        yield from vision_shapes(config["vision_config"])


def vision_shapes(v: dict[str, Any]) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Those of the vision tower."""
    hidden, ffn, out = v["hidden_size"], v["intermediate_size"], v["out_hidden_size"]
    patch, merged = v["patch_size"], v["hidden_size"] * v["spatial_merge_size"] ** 2

    def linear(name: str, rows: int, cols: int) -> list[tuple[str, tuple[int, ...]]]:
        return [("model.visual.%s.weight" % name, (rows, cols)), ("model.visual.%s.bias" % name, (rows,))]

    def norm(name: str, n: int) -> list[tuple[str, tuple[int, ...]]]:
        return [("model.visual.%s.weight" % name, (n,)), ("model.visual.%s.bias" % name, (n,))]

    yield "model.visual.patch_embed.proj.weight", (hidden, 3, v["temporal_patch_size"], patch, patch)
    yield "model.visual.patch_embed.proj.bias", (hidden,)
    yield "model.visual.pos_embed.weight", (v["num_position_embeddings"], hidden)
    for b in range(v["depth"]):
        yield from norm("blocks.%d.norm1" % b, hidden)
        yield from norm("blocks.%d.norm2" % b, hidden)
        yield from linear("blocks.%d.attn.qkv" % b, 3 * hidden, hidden)
        yield from linear("blocks.%d.attn.proj" % b, hidden, hidden)
        yield from linear("blocks.%d.mlp.linear_fc1" % b, ffn, hidden)
        yield from linear("blocks.%d.mlp.linear_fc2" % b, hidden, ffn)
    yield from norm("merger.norm", hidden)
    yield from linear("merger.linear_fc1", merged, merged)
    yield from linear("merger.linear_fc2", out, merged)
    for d in range(len(v["deepstack_visual_indexes"])):
        yield from norm("deepstack_merger_list.%d.norm" % d, merged)
        yield from linear("deepstack_merger_list.%d.linear_fc1" % d, merged, merged)
        yield from linear("deepstack_merger_list.%d.linear_fc2" % d, out, merged)


def made(config: bytes, dtype: str, seed: int) -> Model:
    """The model of a config by the recipe."""
    root = json.loads(config)
    tied = root.get("text_config", root)["tie_word_embeddings"]
    x, tensors = seed, []
    for name, shape in shapes(root, tied):
        n = functools.reduce(int.__mul__, shape, 1)
        values = array("f", bytes(4 * n))
        for i in range(n):
            x = (x * 1664525 + 1013904223) & 0xFFFFFFFF
            values[i] = ((x >> 8 & 0xFFFF) - 32768) / 32768
        for i in range(0, n, 777):
            values[i] = 0
        for i in range(0, n, 991):
            values[i] = -3.5
        if n >= 64:
            for i in range(32, 64):
                values[i] *= MICRO_F32
        tensors.append(Tensor(name, dtype, shape, ENCODE[dtype](values)))
    return Model(config, tensors)


@functools.lru_cache(None)
def model(name: str) -> Model:
    """One of the models that the converter's known files were made from. Don't change it: take its variants."""
    config = (CONFIGS / (name + ".json")).read_bytes()
    found = made(config, "F16" if "f16" in name else "BF16", SEEDS[name])
    digests = tuple(hashlib.sha256(data).hexdigest() for data in (config, safetensors(found.tensors)))
    if digests != DIGESTS[name]:
        raise AssertionError("the model %s is not the one that the engine's converter read" % name)
    return found


# sha256 of config.json and of model.safetensors, as the engine's converter read them
DIGESTS = {
    "dense": (
        "424f0844fe61df819a9fd05b28433f35d52292bd3f8873a831891d788bbd0809",
        "7d7ed3a6649d5d6b7507760be111cb6a33ea671def7a8b99b483bd637c587d10",
    ),
    "tied-f16-vocab66": (
        "810c13dbac6a114c6d05315863f2f3ceb41e3c3b7d54b251605ad5790b2f12b2",
        "4a8a2e69021f611cadfac04caead62394d4aa75f4a77a0262f57088297ab0927",
    ),
    "moe": (
        "974af66bf0dc934e4d0c976d7af50384ac705a9085a91d4e9d33dd2e9e288eb9",
        "6ce098b361233d183ac8a56e0d911f8db5ce652b9a5705a1c7d7712173d4fe56",
    ),
    "vision": (
        "69669324762c5fbfdc7ac2ffea59c1a8d226784dbae4d3acc13b98814d706b3e",
        "446bdc958449290d3d34df3a4584d8f1599ac54a050ed33ddf4bc72230106b1d",
    ),
    "mini": (
        "0b284cca3d970b09872e9a3a977caac27eae12c4c59b90e22a2996ea1d04cfa0",
        "5c524130da711b6a4dbd93b7a783f9efec33ddee8841849fefec1bc7ef36f36b",
    ),
    "odd-rows": (
        "ec59cbb9427cf2a2e29c31f2bdd869f8c26c3be1899ccf34eb391d1f658b1af8",
        "47f937ed10716e225db63abcdf8f0216ab34e55e1cf9ca63f885440c2e49de53",
    ),
}

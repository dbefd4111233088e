"""Tensor-parallel slices of UQFF layers for the suite: the cases of uqff_slice. Run by files.py.

Parts are cut out of arrays that have a unit (a block, a group) of each row as an element. That they are right is proved
twice: together they make the whole, and each decodes to its part of the values.
"""

from __future__ import annotations

import numpy as np
from openssl import sm3
from st import BITS, product
from suite import case, prove
from uqff import (
    CATALOGUE,
    GGML,
    KEY,
    SPEC,
    STRICTER,
    Folder,
    afq,
    blank,
    decoded,
    f8q8,
    fp8,
    ggml,
    hqq,
    mxfp4,
    named,
    noise,
    number,
    smooth,
    sound,
    u8,
    u32s,
    unquant,
    version,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterator

    from suite import Case
    from uqff import Layer

# What a flag's cases catch.
FLAGS = {
    "uqff-slice": "the part of a rank",
    "uqff-slice-stack": "a cut through stacks",
    "uqff-slice-range": "dimension, rank and world in their ranges",
    "uqff-slice-divide": "the world divides the dimension",
    "uqff-slice-align": "a cut of the last dimension falls between blocks",
    "uqff-slice-hqq": "HQQ can't be cut, and has zeros",
}


def units(layer: Layer) -> tuple[int, dict[str, Any]]:
    """The values a unit of the last dimension has, and the stored bytes of each entry as [..., units, bytes a unit]."""
    tag, dims = number(layer[".format"]), decoded(layer).shape
    unit = {
        0: GGML[number(layer[".dtype"])][1] if tag == 0 else 1, 4: number(layer.get(".group_size", u8(1))), 5: 32,
        6: 32,
    }.get(tag, 1)  # fmt: skip
    prove(dims[-1] % unit == 0, "whole units a row")
    cells = (*dims[:-1], dims[-1] // unit)
    return unit, {
        s: np.frombuffer(layer[s][2], "u1").reshape(*cells, -1) for s in ("", ".scales", ".biases") if s in layer
    }


CUT = ("", ".scales", ".zeros", ".biases")
KEPT = (".dequant_w_scale", ".dequant_x_scale", ".quant_scale")  # FP8's; every rank has them whole


def hashed(layer: Layer, content: bytes | None = None) -> bytes:
    """The sm3 over the tables that are cut, or over what was cut of them, and those that are kept."""
    if content is None:
        content = b"".join(layer[s][2] for s in CUT if s in layer)
    return sm3(content + b"".join(layer[s][2] for s in KEPT if s in layer))


def part_of(layer: Layer, dim: int, rank: int, world: int) -> tuple[list[int], bytes, Any]:
    """(shape, bytes, values) of a rank's part."""
    values = decoded(layer)
    unit, cells = units(layer)
    last = dim == values.ndim - 1
    per_rank = values.shape[dim] // world
    prove(values.shape[dim] % world == 0 and (not last or per_rank % unit == 0), "a cut between units")
    divided = per_rank // (unit if last else 1)
    cut = {s: np.take(c, range(rank * divided, (rank + 1) * divided), dim) for s, c in cells.items()}
    shape = list(values.shape)
    shape[dim] = per_rank
    return (
        shape, b"".join(c.tobytes() for c in cut.values()),
        np.take(values, range(rank * per_rank, (rank + 1) * per_rank), dim),
    )  # fmt: skip


def with_bytes(layer: Layer, shape: list[int], content: bytes) -> Layer:
    """The part as a layer of its own, to be decoded."""
    made = dict(layer)
    at = 0
    for s in ("", ".scales", ".biases"):
        if s in layer:
            dtype, _, whole = layer[s]
            share = len(whole) * product(shape) // decoded(layer).size
            flat = number(layer[".format"]) in (0, 5)
            size = BITS[dtype] // 8
            lead = product(shape[:-1])
            made[s] = (dtype, (share,) if flat else (*shape[:-1], share // size // lead), content[at : at + share])
            at += share
    prove(at == len(content), "all bytes are used")
    return {**made, ".shape": u32s(*shape)} if ".shape" in layer else made


SLICED = {  # name: layer, and (dim, world) to cut it by
    "q4-0": (ggml(2, 4, 128), ((0, 2), (0, 4), (1, 2), (1, 4))),
    "q5-1": (ggml(7, 2, 64), ((0, 2), (1, 2))),
    "q4k": (ggml(12, 2, 512), ((0, 2), (1, 2))),
    "q2k": (ggml(10, 3, 512), ((0, 3), (1, 2))),
    "f16": (ggml(1, 6, 6), ((0, 3), (1, 2), (1, 6))),
    "q8-0-stack": (ggml(8, 2, 4, 64), ((0, 2), (1, 2), (1, 4), (2, 2))),
    "q4-0-vector": (ggml(2, 96), ((0, 3),)),
    "unquant-f32": (unquant("F32", 4, 6), ((0, 2), (1, 3))),
    "unquant-bf16": (unquant("BF16", 3, 5), ((0, 3), (1, 5))),
    "unquant-stack": (unquant("F16", 2, 4, 6), ((0, 2), (1, 4), (2, 3))),
    "fp8": ({**fp8(4, 6), ".dequant_x_scale": smooth("fp8 x", "F32")}, ((0, 4), (1, 2))),
    "afq2": (afq(2, 2, 128), ((0, 2), (1, 2))),
    "afq3": (afq(3, 2, 256), ((1, 2), (1, 4))),
    "afq4-group-32": (afq(4, 2, 128, group=32), ((1, 4),)),
    "afq6": (afq(6, 2, 128), ((1, 2),)),
    "afq8-group-128": (afq(8, 2, 256, group=128, dtype="BF16"), ((1, 2),)),
    "afq3-stack": (afq(3, 2, 4, 128), ((0, 2), (1, 2), (2, 2))),
    "f8q8": (f8q8(4, 64), ((0, 2), (1, 2))),
    "mxfp4": (mxfp4(4, 64), ((0, 4), (1, 2))),
    "mxfp4-stack": (mxfp4(2, 3, 64), ((0, 2), (1, 3), (2, 2))),
}  # fmt: skip


def make_uqff_slice(files: dict[str, bytes]) -> Iterator[Case]:
    place = Folder(files)
    paths: dict[str, str] = {}

    def one(
        name: str,
        comment: str,
        flags: str,
        layer: str,
        dim: int,
        rank: int,
        world: int,
        source: str = SPEC,
        **more: Any,
    ) -> Case:
        into = {"key": KEY, "dim": dim, "rank": rank, "world": world, "path": paths[layer]}
        return case("uqff-slice-" + name, comment, source, flags, into, **more)

    for name, (layer, cuts) in SLICED.items():
        paths[name] = place.shard("slice-%s-whole" % name, sound({**version(), **named(layer)}))
        whole = decoded(layer)
        stored = b"".join(layer[s][2] for s in ("", ".scales", ".biases") if s in layer)
        for dim, world in cuts:
            parts = [part_of(layer, dim, rank, world) for rank in range(world)]
            joined = np.concatenate([values for _, _, values in parts], dim)
            prove((joined == whole).all() and joined.shape == whole.shape, "the parts make the whole")
            for shape, content, values in parts:
                prove((decoded(with_bytes(layer, shape, content)) == values).all(), "a part decodes to its values")
            prove(sorted(b"".join(c for _, c, _ in parts)) == sorted(stored), "no byte is lost")
            for rank in sorted({0, 1, world - 1}):
                shape, content, _ = parts[rank]
                out = {"shape": ",".join(map(str, shape)), "sm3": hashed(layer, content)}
                comment = "rank %d of %d along dimension %d of %s" % (rank, world, dim, list(whole.shape))
                flags = "uqff-slice-stack" if whole.ndim == 3 else "uqff-slice"
                yield one(
                    "%s-dim-%d-rank-%d-of-%d" % (name, dim, rank, world), comment, flags, name, dim, rank, world,
                    out=out,
                )  # fmt: skip
        last = whole.ndim - 1
        out = {"shape": ",".join(map(str, whole.shape)), "sm3": hashed(layer)}
        comment = "%s in a world of one: nothing is cut" % name
        yield one(name + "-whole", comment, "uqff-slice", name, last, 0, 1, out=out)
    h4, odd = hqq(4, 4, 32), f8q8(2, 48)
    paths["hqq4"] = place.shard("slice-hqq4-whole", sound({**version(), **named(h4)}))
    paths["f8q8-odd"] = place.shard("slice-f8q8-48-wide", sound({**version(), **named(odd)}))
    for name, layer, dim in (("hqq4", h4, 0), ("hqq4", h4, 1), ("f8q8-odd", odd, 0), ("f8q8-odd", odd, 1)):
        out = {"shape": ",".join(map(str, decoded(layer).shape)), "sm3": hashed(layer)}
        comment = "a world of one along dimension %d: nothing is cut" % dim
        yield one(
            "%s-whole-dim-%d" % (name, dim), comment, "uqff-slice-hqq" if name == "hqq4" else "uqff-slice-align",
            name, dim, 0, 1, out=out,
        )  # fmt: skip
    paths["biased"] = place.shard("slice-biased", sound({**version(), **named(ggml(2, 4, 128), blank("F32", 4))}))
    shape, content, _ = part_of(ggml(2, 4, 128), 0, 1, 2)
    out = {"shape": ",".join(map(str, shape)), "sm3": hashed(ggml(2, 4, 128), content)}
    yield one(
        "biased-dim-0-rank-1-of-2", "a layer with a bias, which is no part of it", "uqff-slice", "biased", 0, 1, 2,
        out=out,
    )  # fmt: skip

    for name, comment, flags, error, layer, dim, rank, world in (
        ("dim-2-of-two", "dimension 2 of 2", "uqff-slice-range", "range", "q4-0", 2, 0, 2),
        ("dim-2-of-two-whole", "dimension 2 of 2, a world of one", "uqff-slice-range", "range", "q4-0", 2, 0, 1),
        ("dim-3-of-three", "dimension 3 of 3", "uqff-slice-range", "range", "q8-0-stack", 3, 0, 2),
        ("dim-1-of-one", "dimension 1 of 1", "uqff-slice-range", "range", "q4-0-vector", 1, 0, 3),
        ("dim-2-32", "dimension 2^32, modulo 2^32 the first", "uqff-slice-range", "range", "q4-0", 1 << 32, 0, 2),
        ("dim-256", "dimension 256, modulo 2^8 the first", "uqff-slice-range", "range", "q4-0", 256, 0, 2),
        ("world-0", "a world of 0", "uqff-slice-range", "range", "q4-0", 0, 0, 0),
        ("rank-2-of-2", "rank 2 of 2", "uqff-slice-range", "range", "q4-0", 0, 2, 2),
        ("rank-1-of-1", "rank 1 of 1", "uqff-slice-range", "range", "q4-0", 0, 1, 1),
        ("rank-3-of-2", "rank 3 of 2", "uqff-slice-range", "range", "q4-0", 1, 3, 2),
        ("rank-2-32", "rank 2^32, modulo 2^32 the first", "uqff-slice-range", "range", "q4-0", 0, 1 << 32, 2),
        ("rank-top", "rank 2^32 - 1 of 2", "uqff-slice-range", "range", "q4-0", 0, (1 << 32) - 1, 2),
        ("unquant-dim-2", "dimension 2 of 2, a dense layer", "uqff-slice-range", "range", "unquant-f32", 2, 0, 2),
        ("afq-rank", "rank 4 of 4, AFQ", "uqff-slice-range", "range", "afq3", 1, 4, 4),
        ("mxfp4-rank", "rank 2 of 2, MXFP4", "uqff-slice-range", "range", "mxfp4", 1, 2, 2),
        ("f8q8-dim-2", "dimension 2 of 2, F8Q8", "uqff-slice-range", "range", "f8q8", 2, 0, 2),
        ("fp8-world-0", "a world of 0, FP8", "uqff-slice-range", "range", "fp8", 0, 0, 0),
        ("world-3-of-4", "4 rows in a world of 3", "uqff-slice-divide", "shape", "q4-0", 0, 0, 3),
        ("world-8-of-4", "4 rows in a world of 8", "uqff-slice-divide", "shape", "q4-0", 0, 0, 8),
        ("world-5-of-128", "128 columns in a world of 5", "uqff-slice-divide", "shape", "q4-0", 1, 4, 5),
        ("world-2-32", "a world of 2^32 + 2, modulo 2^32 of 2", "uqff-slice-divide", "shape", "q4-0", 0, 0,
         (1 << 32) + 2),
        ("unquant-world-4-of-6", "6 columns in a world of 4", "uqff-slice-divide", "shape", "unquant-f32", 1, 0, 4),
        ("fp8-world-5-of-6", "6 columns in a world of 5", "uqff-slice-divide", "shape", "fp8", 1, 0, 5),
        ("stack-world-3-of-2", "2 experts in a world of 3", "uqff-slice-divide", "shape", "q8-0-stack", 0, 0, 3),
        ("afq-world-3-of-2", "2 rows in a world of 3", "uqff-slice-divide", "shape", "afq2", 0, 2, 3),
        ("mxfp4-world-3-of-64", "64 columns in a world of 3", "uqff-slice-divide", "shape", "mxfp4", 1, 0, 3),
        ("f8q8-world-3-of-4", "4 rows in a world of 3", "uqff-slice-divide", "shape", "f8q8", 0, 0, 3),
        ("q4-0-half-block", "16 columns a rank, blocks of 32", "uqff-slice-align", "align", "q4-0", 1, 0, 8),
        ("q4-0-one-column", "a column a rank", "uqff-slice-align", "align", "q4-0", 1, 127, 128),
        ("q4k-half-block", "128 columns a rank, blocks of 256", "uqff-slice-align", "align", "q4k", 1, 1, 4),
        ("q2k-32-columns", "32 columns a rank, blocks of 256", "uqff-slice-align", "align", "q2k", 1, 0, 16),
        ("stack-half-block", "16 columns a rank of a stack", "uqff-slice-align", "align", "q8-0-stack", 2, 3, 4),
        ("vector-half-block", "48 values a rank, blocks of 32", "uqff-slice-align", "align", "q4-0-vector", 0, 1, 2),
        ("afq-half-group", "32 columns a rank, groups of 64", "uqff-slice-align", "align", "afq2", 1, 0, 4),
        ("afq-group-128", "64 columns a rank, groups of 128", "uqff-slice-align", "align", "afq8-group-128", 1, 0, 4),
        ("afq-group-32", "16 columns a rank, groups of 32", "uqff-slice-align", "align", "afq4-group-32", 1, 7, 8),
        ("afq-stack-half-group", "32 columns a rank of a stack", "uqff-slice-align", "align", "afq3-stack", 2, 0, 4),
        ("mxfp4-half-block", "16 columns a rank, blocks of 32", "uqff-slice-align", "align", "mxfp4", 1, 0, 4),
        ("mxfp4-stack-half-block", "16 columns a rank of a stack", "uqff-slice-align", "align", "mxfp4-stack", 2, 3, 4),
        ("f8q8-half-block", "16 columns a rank, blocks of 32", "uqff-slice-align", "align", "f8q8", 1, 0, 4),
        ("f8q8-48-wide-rows", "rows of 48 columns: a row's end lies within a block", "uqff-slice-align", "align",
         "f8q8-odd", 0, 0, 2),
        ("f8q8-48-wide-columns", "24 of 48 columns", "uqff-slice-align", "align", "f8q8-odd", 1, 0, 2),
        ("hqq-rows", "HQQ along dimension 0", "uqff-slice-hqq", "unsupported", "hqq4", 0, 0, 2),
        ("hqq-columns", "HQQ along dimension 1", "uqff-slice-hqq", "unsupported", "hqq4", 1, 1, 2),
        ("hqq-rows-of-4", "HQQ, a row a rank", "uqff-slice-hqq", "unsupported", "hqq4", 0, 3, 4),
    ):  # fmt: skip
        yield one("not-" + name, comment, flags, layer, dim, rank, world, CATALOGUE, error=error)
    into = {"key": "other", "dim": 0, "rank": 0, "world": 2, "path": paths["q4-0"]}
    yield case("uqff-slice-not-key", "a layer that is not there", CATALOGUE, "uqff-key", into, error="missing")
    paths["short"] = place.shard(
        "slice-payload-short", sound({**version(), **named({**ggml(2, 4, 64), "": noise("U8", 126)})})
    )
    comment = "the second half of rows whose last block is missing"
    yield one(
        "not-payload-short", comment, "uqff-length", "short", 0, 1, 2, STRICTER, error="bounds", level="recommended"
    )
    paths["tag"] = place.shard("slice-tag-unknown", sound({**version(), **named({**ggml(2, 4, 64), ".format": u8(7)})}))
    yield one("not-tag-unknown", "a layer of family 7", "uqff-tag", "tag", 0, 0, 2, CATALOGUE, error="unsupported")

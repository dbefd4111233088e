"""Faults of UQFF, each alone in a real folder: what is said about it, what the engine does, and what still works.

Two tables follow sections 17 and 18 row by row: SET has the faults for which `open` refuses the whole, LAYER those of one
layer, and what is only reported. For every row `check` must find exactly this and nothing else.
"""

from __future__ import annotations

import os
import struct
import unittest
from collections import Counter, namedtuple

import vqfref
from tests.tools import thorough
from tests.uqff_samples import (
    ASSETS,
    FILES,
    GGML,
    MAJOR,
    MINOR,
    PATCH,
    REPORT,
    RESIDUAL,
    VERSION_NAMES,
    Folder,
    FolderTest,
    Tensor,
    afq,
    build,
    compose,
    f8q8,
    f32,
    fp8,
    gguf,
    hqq,
    mxfp4,
    named,
    raised,
    smooth,
    u8,
    u32,
    u32s,
    unquant,
    version,
    zeros,
)
from vqfref.findings import SEVERITIES, engine_verdict
from vqfref.uqff import packing
from vqfref.uqff.audit import audit
from vqfref.uqff.naming import resolve
from vqfref.uqff.reader import UqffFile

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

Q = "model.layers.0.self_attn.q_proj"
DOWN = "model.layers.0.mlp.down_proj"
EXPERTS = "model.layers.0.mlp.experts.gate_proj"
W = Q + ".weight"
REFUSES, ACCEPTS, UNKNOWN = "refuses", "accepts", "unknown"
ERROR, WARNING, NOTE = "error", "warning", "note"

# ---- faults of the set

SetFault = namedtuple("SetFault", "name folder edit code engine says", defaults=(REFUSES, ()))
SetFault.__doc__ = (
    "name; folder: the real one that `edit` spoils; code, engine: of the only finding; says: words of it."
)


def header(edit: Callable[[dict[str, Any]], Any]) -> Callable[[Folder], Any]:
    """Edit the first shard's header."""
    return lambda folder: folder.relabel(edit)


def entry(name: str, **fields: Any) -> Callable[[Folder], Any]:
    """Replace fields of an entry in the first shard's header."""
    return header(lambda h: h[name].update(fields))


def text(replace: Callable[[bytes], bytes]) -> Callable[[bytes], bytes]:
    """Replace the header's text and its length."""

    def spoil(data: bytes) -> bytes:
        (length,) = struct.unpack_from("<Q", data)
        return compose(replace(data[8 : 8 + length]), data[8 + length :])

    return spoil


def length(value: int) -> Callable[[bytes], bytes]:
    """Replace the header's length alone."""
    return lambda data: struct.pack("<Q", value) + data[8:]


def spoiled(edit: Callable[[bytes], bytes]) -> Callable[[Folder], Any]:
    """Spoil the first shard's bytes."""
    return lambda folder: folder.spoil(edit)


def offsets(name: str, begin: int, end: int) -> Callable[[Folder], Any]:
    """Move both offsets of an entry by so much."""

    def edit(h: dict[str, Any]) -> None:
        a, b = h[name]["data_offsets"]
        h[name]["data_offsets"] = [a + begin, b + end]

    return header(edit)


def without(*names: str) -> Callable[[Folder], Any]:
    """Take tensors away."""

    def edit(folder: Folder) -> None:
        for name in names:
            del folder[name]

    return edit


def put(**tensors: Any) -> Callable[[Folder], Any]:
    """Put version entries: put(major=…)."""

    def edit(folder: Folder) -> None:
        for name, tensor in tensors.items():
            folder["uqff.version." + name] = tensor

    return edit


def second(*names: str, **tensors: Any) -> Callable[[Folder], Any]:
    """A second shard with tensors of the first, and version entries of its own."""

    def edit(folder: Folder) -> None:
        copies = {name: folder[name] for name in names}
        copies.update(("uqff.version." + name, tensor) for name, tensor in tensors.items())
        folder.shards[folder.first.replace("-0", "-1")] = (None, copies)

    return edit


def numeric(extra: dict[str, Any]) -> Callable[[Folder], Any]:
    """A shard of numbers, and what else."""

    def edit(folder: Folder) -> None:
        folder.shards[folder.first] = (None, {"0": u8(0), "+17": u8(1), "18446744073709551615": u8(2), **extra})

    return edit


def raw_pair(name: str) -> Callable[[bytes], bytes]:
    """The header's text with an entry that stands in it twice, both times the same."""

    def edit(old: bytes) -> bytes:
        at = old.index(b'"%s"' % name.encode())
        whole = old[at : old.index(b"}", at) + 1]
        return old[:at] + whole + b"," + old[at:]

    return edit


FIRST = "afq3-0.uqff"
SET = [
    SetFault("an empty file", "afq3", spoiled(lambda d: b""), "uqff.c1.truncated", says=(FIRST, "0")),
    SetFault("seven bytes", "afq3", spoiled(lambda d: d[:7]), "uqff.c1.truncated", says=(FIRST, "7")),
    SetFault("a header of 100 MB and a byte", "afq3", spoiled(length(100_000_001)), "uqff.c2.limit", says=(
        "100000001", "100000000")),
    SetFault("a header of 2^64 - 1", "afq3", spoiled(length((1 << 64) - 1)), "uqff.c2.limit", says=(str((1 << 64) - 1),)),
    SetFault("a header of 2^64 - 8, which wraps to 0", "afq3", spoiled(length((1 << 64) - 8)), "uqff.c2.limit"),
    SetFault("no JSON", "afq3", spoiled(text(lambda t: b"x" + t[1:])), "uqff.c3.json", says=(FIRST,)),
    SetFault("no header at all", "afq3", spoiled(lambda d: bytes(8)), "uqff.c3.json", says=(FIRST,)),
    SetFault("not UTF-8", "afq3", spoiled(text(lambda t: t.replace(b"lm_head", b"lm_\xffead", 1))), "uqff.c3.json"),
    SetFault("a list", "afq3", spoiled(lambda d: compose(b"[]", b"")), "uqff.c3.json"),
    SetFault("two objects", "afq3", spoiled(text(lambda t: b"{}" + t)), "uqff.c3.json"),
    SetFault("zeros behind the object", "afq3", spoiled(text(lambda t: t.rstrip() + b"\0\0")), "uqff.c3.json"),
    SetFault("a trailing comma", "afq3", spoiled(text(lambda t: t.rstrip()[:-1] + b",}")), "uqff.c3.json"),
    SetFault("NaN", "afq3", spoiled(text(lambda t: t.replace(b'"shape":[]', b'"shape":[NaN]', 1))), "uqff.c3.json"),
    SetFault("a byte order mark", "afq3", spoiled(text(lambda t: b"\xef\xbb\xbf" + t)), "uqff.c3.json"),
    SetFault("an entry that is no object", "afq3", header(lambda h: h.update({"a.b": 7})), "uqff.c3.json", says=("a.b",)),
    SetFault("an entry without dtype", "afq3", header(lambda h: h[W].pop("dtype")), "uqff.c3.missing", says=(W, "dtype")),
    SetFault("an entry without shape", "afq3", header(lambda h: h[W].pop("shape")), "uqff.c3.missing", says=(W, "shape")),
    SetFault("an entry without data_offsets", "afq3", header(lambda h: h[W].pop("data_offsets")), "uqff.c3.missing",
             says=(W, "data_offsets")),
    SetFault("a dtype that nobody knows", "afq3", entry(W, dtype="U7"), "uqff.c3.dtype", says=(W, "U7")),
    SetFault("a dtype in small letters", "afq3", entry(W, dtype="u32"), "uqff.c3.dtype", says=(W, "u32")),
    SetFault("a header as long as the file", "afq3", spoiled(lambda d: length(len(d))(d)), "uqff.c4.bounds"),
    SetFault("a header one byte beyond the end", "afq3", spoiled(lambda d: length(len(d) - 7)(d)), "uqff.c4.bounds"),
    SetFault("a header alone, cut", "afq3", spoiled(lambda d: d[:900]), "uqff.c4.bounds", says=("900",)),
    SetFault("a byte behind the last tensor", "afq3", spoiled(lambda d: d + b"\0"), "uqff.c5.bounds"),
    SetFault("a byte less than the tensors", "afq3", spoiled(lambda d: d[:-1]), "uqff.c5.truncated"),
    SetFault("a shape that is not the length", "afq3", entry(MAJOR, shape=[2]), "uqff.c5.shape", says=(MAJOR,)),
    SetFault("a dtype of another size", "afq3", entry(MAJOR, dtype="U16"), "uqff.c5.shape", says=(MAJOR,)),
    SetFault("a product that wraps at 2^32", "afq3", entry(MAJOR, shape=[1 << 16, (1 << 16) + 1]), "uqff.c5.shape",
             says=(MAJOR,)),
    SetFault("a product of 2^64 + 1", "afq3", entry(MAJOR, shape=[274177, 67280421310721]), "uqff.j1.shape", says=(MAJOR,)),
    SetFault("a product that wraps to 0", "afq3", entry(MAJOR, shape=[1 << 32, 1 << 32]), "uqff.j1.shape", says=(MAJOR,)),
    SetFault("bytes that wrap to 4", "afq3", entry(MAJOR, shape=[(1 << 62) + 1]), "uqff.j1.shape", says=(MAJOR,)),
    SetFault("a dimension of 2^64", "afq3", entry(MAJOR, shape=[1 << 64]), "uqff.j1.shape", says=(MAJOR,)),
    SetFault("a negative dimension", "afq3", entry(MAJOR, shape=[-1]), "uqff.j1.shape", says=(MAJOR,)),
    SetFault("two negative dimensions", "afq3", entry(MAJOR, shape=[-1, -1]), "uqff.j1.shape", says=(MAJOR,)),
    SetFault("a dimension of 1.0", "afq3", entry(MAJOR, shape=[1.0]), "uqff.j1.shape", says=(MAJOR,)),
    SetFault("a dimension that is true", "afq3", entry(MAJOR, shape=[True]), "uqff.j1.shape", says=(MAJOR,)),
    SetFault("a dimension in quotes", "afq3", entry(MAJOR, shape=["1"]), "uqff.j1.shape", says=(MAJOR,)),
    SetFault("a shape that is a number", "afq3", entry(MAJOR, shape=1), "uqff.j1.shape", says=(MAJOR,)),
    SetFault("an offset of 0.0", "afq3", spoiled(text(lambda t: t.replace(b"[0,", b"[0.0,", 1))), "uqff.j1.bounds"),
    SetFault("an offset of -0", "afq3", spoiled(text(lambda t: t.replace(b"[0,", b"[-0,", 1))), "uqff.j1.bounds"),
    SetFault("an offset of 0e1", "afq3", spoiled(text(lambda t: t.replace(b"[0,", b"[0e1,", 1))), "uqff.j1.bounds"),
    SetFault("a negative offset", "afq3", spoiled(text(lambda t: t.replace(b"[0,", b"[-1,", 1))), "uqff.j1.bounds"),
    SetFault("three offsets", "afq3", entry(MAJOR, data_offsets=[0, 1, 2]), "uqff.j1.bounds", says=(MAJOR,)),
    SetFault("offsets of no length", "afq3", entry(MAJOR, data_offsets=[]), "uqff.j1.bounds", says=(MAJOR,)),
    SetFault("metadata of numbers", "afq3", header(lambda h: h.update(__metadata__={"a": 1})), "uqff.j1.json"),
    SetFault("metadata with null", "afq3", header(lambda h: h.update(__metadata__={"a": None})), "uqff.j1.json"),
    SetFault("metadata that is a list", "afq3", header(lambda h: h.update(__metadata__=[])), "uqff.j1.json"),
    SetFault("an entry twice", "afq3", spoiled(text(raw_pair(W))), "uqff.j1.duplicate", ACCEPTS, (W,)),
    SetFault("an entry twice, once with an escape", "afq3", spoiled(text(
        lambda t: raw_pair("lm_head.weight")(t).replace(b'"lm_head.weight"', b'"lm\\u005fhead.weight"', 1))),
        "uqff.j1.duplicate", ACCEPTS, ("lm_head.weight",)),
    SetFault("metadata with a key twice", "afq3", spoiled(text(lambda t: t.replace(
        b'"uqff.version":"1.2.0"', b'"uqff.version":"1.2.0","uqff.version":"1.2.0"', 1))), "uqff.j1.duplicate", ACCEPTS,
        ("uqff.version",)),
    SetFault("a version entry of I32", "afq3", put(major=Tensor("I32", (), b"\1\0\0\0")), "uqff.v1.version",
             says=(MAJOR, FIRST, "must be a U32 scalar")),
    SetFault("a version entry of rank 1", "afq3", put(patch=u32s(0)), "uqff.v1.version",
             says=(PATCH, FIRST, "must be a U32 scalar")),
    SetFault("a version entry of eight bytes", "afq3", put(minor=Tensor("I64", (), b"\2" + bytes(7))), "uqff.v1.version",
             says=(MINOR, FIRST, "must be a U32 scalar")),
    SetFault("an empty version entry", "afq3", put(minor=u32s()), "uqff.v1.version", says=(MINOR,)),
    SetFault("a second shard's version entry of U8", "afq3", second(patch=u8(0)), "uqff.v1.version",
             says=(PATCH, "afq3-1.uqff")),
    SetFault("two shards with two versions", "afq3", second(minor=u32(1)), "uqff.v2.version",
             says=(MINOR, "afq3-0.uqff", "afq3-1.uqff", "1", "2")),
    SetFault("two shards with two patches", "afq3", second(patch=u32(9)), "uqff.v2.version",
             says=(PATCH, "afq3-0.uqff", "afq3-1.uqff", "0", "9")),
    SetFault("no version entries", "afq3", without(*VERSION_NAMES), "uqff.v3.version",
             says=("1.0", "mistralrs quantize")),
    SetFault("no major version", "afq3", without(MAJOR), "uqff.v3.version", says=("1.0", "mistralrs quantize")),
    SetFault("no tensors at all", "afq3", spoiled(lambda d: compose({}, b"")), "uqff.v3.version"),
    SetFault("metadata alone", "afq3", spoiled(lambda d: build({}, {"uqff.version": "1.2.0"})), "uqff.v3.version"),
    SetFault("no minor version", "afq3", without(MINOR), "uqff.v4.version", says=(MINOR,)),
    SetFault("no patch version", "afq3", without(PATCH), "uqff.v4.version", says=(PATCH,)),
    SetFault("version 0", "afq3", put(major=u32(0)), "uqff.v5.version", says=("0.2.0", "1.2.0", "mistralrs quantize")),
    SetFault("version 2", "afq3", put(major=u32(2)), "uqff.v5.version", says=("2.2.0", "1.2.0", "mistralrs quantize")),
    SetFault("a major version of 2^32 - 1", "afq3", put(major=u32((1 << 32) - 1)), "uqff.v5.version"),
    SetFault("version 1.3", "afq3", put(minor=u32(3)), "uqff.v6.version", says=("1.3.0", "1.2.0", "upgrade")),
    SetFault("numbers for names", "afq3", numeric({}), "uqff.l1.version", says=("mistralrs quantize",)),
    SetFault("a tensor in two shards", "afq3", second(W), "uqff.d1.duplicate", says=(W, "afq3-0.uqff", "afq3-1.uqff")),
    SetFault("a scalar in two shards", "afq3", second(W + ".bits"), "uqff.d1.duplicate", says=(
        W + ".bits", "afq3-0.uqff", "afq3-1.uqff")),
    # What section 2 says of shards holds for the residual.
    SetFault("an empty residual", "afq3", lambda f: f.spoil(lambda d: b"", RESIDUAL), "uqff.c1.truncated", says=(RESIDUAL,)),
    SetFault("a residual with a large header", "afq3", lambda f: f.spoil(length(1 << 40), RESIDUAL), "uqff.c2.limit",
             says=(RESIDUAL,)),
    SetFault("a residual without JSON", "afq3", lambda f: f.spoil(text(lambda t: t[1:]), RESIDUAL), "uqff.c3.json",
             says=(RESIDUAL,)),
    SetFault("a residual cut in its header", "afq3", lambda f: f.spoil(lambda d: d[:50], RESIDUAL), "uqff.c4.bounds",
             says=(RESIDUAL,)),
    SetFault("a residual cut in its data", "afq3", lambda f: f.spoil(lambda d: d[:-4], RESIDUAL), "uqff.c5.truncated",
             says=(RESIDUAL,)),
    SetFault("a residual that goes on", "afq3", lambda f: f.spoil(lambda d: d + bytes(8), RESIDUAL), "uqff.c5.bounds",
             says=(RESIDUAL,)),
    SetFault("a residual with an entry twice", "afq3", lambda f: f.spoil(text(raw_pair("model.norm.weight")), RESIDUAL),
             "uqff.j1.duplicate", ACCEPTS, (RESIDUAL, "model.norm.weight")),
]  # fmt: skip

# ---- faults of a layer

LayerFault = namedtuple("LayerFault", "name base key edit findings says", defaults=((),))
LayerFault.__doc__ = """base: a real folder's name, or a function that makes one; key: the layer that is spoiled; findings:
(code, severity, engine) of all that is found; says: words of the first. An error forbids the layer's use."""


def one(code: str, severity: str = ERROR, engine: str = REFUSES) -> tuple[Any, ...]:
    """A fault that comes alone."""
    return ((code, severity, engine),)


def change(suffix: str, tensor: Any, key: str = Q) -> Callable[[Folder], Any]:
    """Put another tensor at a suffix of a layer."""

    def edit(folder: Folder) -> None:
        folder[key + ".weight" + suffix] = tensor(folder[key + ".weight" + suffix]) if callable(tensor) else tensor

    return edit


def drop(*suffixes: str, key: str = Q) -> Callable[[Folder], Any]:
    """Take entries of a layer away."""
    return without(*[key + ".weight" + s for s in suffixes])


def both(*edits: Callable[[Folder], Any]) -> Callable[[Folder], Any]:
    """One edit after the other."""

    def edit(folder: Folder) -> None:
        for e in edits:
            e(folder)

    return edit


def dtype(name: str) -> Callable[[Any], Any]:
    """The same bytes under another dtype."""
    return lambda t: t._replace(dtype=name)


def shape(*dims: int) -> Callable[[Any], Any]:
    """The same bytes in another shape."""
    return lambda t: t._replace(shape=dims)


def add(name: str, tensor: Any) -> Callable[[Folder], Any]:
    """One more tensor."""

    def edit(folder: Folder) -> None:
        folder[name] = tensor

    return edit


def made(layer: dict[str, Any], bias: Any = None) -> Callable[[], Folder]:
    """A folder of a layer q_proj that is made anew, beside a sound one."""
    tensors = {**named(Q, layer, bias), **named(DOWN, gguf(8, 2, 32))}
    return lambda: Folder.of(tensors)


def nothing(folder: Folder) -> None:
    """No edit."""


WRONG = {  # what does for a scalar of a dtype, or a vector of U32 ("V"), and is none
    "U8": (u32(4), Tensor("F8_E4M3", (), b"\4"), Tensor("U8", (1,), b"\4"), Tensor("U8", (0,), b"")),
    "U32": (u8(1), Tensor("I32", (), bytes(4)), u32s(1), Tensor("I64", (), bytes(8)), u32s()),
    "V": (u32(64), Tensor("I64", (2,), bytes(16)), Tensor("U32", (1, 2), bytes(8)), Tensor("U8", (2,), b"\x40\x40")),
}  # fmt: skip
METADATA = {  # section 5's table: the entries whose type is checked, by folder
    "bias-q8_0": {".dtype": "U32", ".shape": "V"},
    "hqq4": {
        ".shape": "V", ".bits": "U8", ".group_size": "U32", ".axis": "U8", ".optimization_steps": "U32",
        ".round_zeros": "U8", ".channel_wise": "U8",
    },
    "fp8": {".dtype": "U32"},
    "afq3": {".bits": "U8", ".group_size": "U8"},
    "f8q8": {".num_blocks": "U32", ".shape": "V"},
}  # fmt: skip
T1 = [
    LayerFault("%s %s of %s %s" % (folder, suffix, wrong.dtype, list(wrong.shape)), folder, Q, change(suffix, wrong),
               one("uqff.t1.dtype", ERROR, ACCEPTS if suffix == ".num_blocks" else REFUSES), (W + suffix, wrong.dtype))
    for folder, suffixes in METADATA.items()
    for suffix, kind in suffixes.items()
    for wrong in WRONG[kind]
]  # fmt: skip

T2_CODE = "uqff.t2.dtype"
T2 = [
    LayerFault("%s %s of %s" % (folder, suffix or "weight", name), folder, Q, change(suffix, dtype(name)),
               one(T2_CODE, ERROR, UNKNOWN), (W + suffix, name))
    for folder, suffix, name in (
        ("afq3", "", "I32"), ("afq3", "", "F32"), ("afq3", ".scales", "U32"), ("afq3", ".biases", "I32"), ("fp8", "", "U8"),
        ("mxfp4", "", "F8_E4M3"), ("mxfp4", ".scales", "F8_E4M3"), ("hqq4", "", "F8_E4M3"), ("hqq4", ".scales", "I32"),
        ("hqq4", ".zeros", "U32"),
    )
]  # fmt: skip

# A missing entry: code by folder and suffix.
MISSING = [
    LayerFault("%s without %s" % (folder, suffix), folder, Q, drop(suffix), one(code), (W + suffix,))
    for folder, code, suffixes in (
        ("bias-q8_0", "uqff.g2.missing", (".dtype", ".shape")),
        ("f8q8", "uqff.g2.missing", (".shape",)),
        ("afq3", "uqff.a3.missing", (".scales", ".biases")),
        ("hqq4", "uqff.h4.missing", (".scales", ".zeros", ".shape", ".bits", ".group_size", ".axis",
                                     ".optimization_steps", ".round_zeros", ".channel_wise")),
        ("fp8", "uqff.p2.missing", (".dequant_w_scale", ".dequant_x_scale", ".quant_scale")),
        ("mxfp4", "uqff.k1.missing", (".scales",)),
    )
    for suffix in suffixes
]  # fmt: skip

ALL_FAMILIES = {  # a folder each
    "bias-q8_0": Q, "odd100-afq4": Q, "hqq4": Q, "fp8": Q, "afq3": Q, "f8q8": Q, "mxfp4": Q, "moe-q4_0": EXPERTS,
    "moe-afq4": EXPERTS,
}  # fmt: skip
TAGS = [
    LayerFault("%s with %s" % (folder, what), folder, key, change(".format", tensor, key), one(code), says)
    for folder, key in ALL_FAMILIES.items()
    for what, tensor, code, says in (
        ("tag 7", u8(7), "uqff.f1.unsupported", ("7",)),
        ("tag 255", u8(255), "uqff.f1.unsupported", ("255",)),
        ("a tag of U32", u32(0), "uqff.f2.dtype", (key + ".weight.format",)),
        ("a tag of rank 1", Tensor("U8", (1,), b"\0"), "uqff.f2.dtype", (key + ".weight.format",)),
        ("a tag of no values", Tensor("U8", (0,), b""), "uqff.f2.dtype", (key + ".weight.format",)),
    )
] + [
    LayerFault("%s without a %s" % (folder, what), folder, key, drop(suffix, key=key), one(code), (key,))
    for folder, key in ALL_FAMILIES.items()
    for what, suffix, code in (("tag", ".format", "uqff.f2.missing"), ("weight", "", "uqff.o1.missing"))
]  # fmt: skip

NAN = float("nan")
LAYER = TAGS + MISSING + T1 + T2 + [
    # Gguf
    *[LayerFault("GGML code %d" % code, "bias-q8_0", Q, change(".dtype", u32(code)), one("uqff.g1.dtype"), (str(code),))
      for code in (4, 5, 16, 29, 31, 99, (1 << 32) - 1)],
    LayerFault("blocks of F8_E4M3", "bias-q8_0", Q, change("", dtype("F8_E4M3")), one("uqff.g3.dtype"), (W, "F8_E4M3")),
    LayerFault("blocks of U32", "f8q8", Q, change("", zeros("U32", 33 * 32)), one("uqff.g3.dtype"), (W, "U32")),
    LayerFault("blocks of F16", "bias-q8_0", Q, change("", zeros("F16", 17)), one("uqff.g3.dtype"), (W, "F16")),
    LayerFault("a row that ends in a block", "bias-q8_0", Q, change(".shape", u32s(256, 16)), one("uqff.g4.shape")
               + one("uqff.b1.shape", ERROR, ACCEPTS), ("[256, 16]", "32")),
    LayerFault("a row that ends in a block of 256", made(gguf(12, 1, 256)), Q, change(".shape", u32s(2, 128)),
               one("uqff.g4.shape"), ("[2, 128]", "256")),
    LayerFault("a block too few", made(gguf(8, 4, 64)), Q, change("", zeros("U8", 7 * 34)),
               one("uqff.g6.bounds", ERROR, ACCEPTS), ("238", "272")),
    LayerFault("a byte too few", made(gguf(8, 4, 64)), Q, change("", zeros("U8", 271)), one("uqff.g6.bounds", ERROR, ACCEPTS)),
    LayerFault("no bytes", made(gguf(8, 4, 64)), Q, change("", zeros("U8", 0)), one("uqff.g6.bounds", ERROR, ACCEPTS)),
    LayerFault("a block too many", made(gguf(8, 4, 64)), Q, change("", zeros("U8", 9 * 34)),
               one("uqff.g6.shape", ERROR, ACCEPTS), ("306", "272")),
    LayerFault("a shape of 2^32 rows and two more", made(gguf(8, 4, 64)), Q, change(".shape", u32s((1 << 32) - 1, 64)),
               one("uqff.g6.bounds", ERROR, ACCEPTS)),
    LayerFault("a shape that wraps at 2^64", made(gguf(0, 1, 4)), Q, change(".shape", u32s(1 << 31, 1 << 31, 4)),
               one("uqff.g6.bounds", ERROR, ACCEPTS)),
    LayerFault("a code of smaller blocks", made(gguf(8, 4, 64)), Q, change(".dtype", u32(2)),
               one("uqff.g6.shape", ERROR, ACCEPTS)),
    LayerFault("a code of larger blocks", made(gguf(2, 4, 64)), Q, change(".dtype", u32(8)),
               one("uqff.g6.bounds", ERROR, ACCEPTS)),
    LayerFault("a payload of rank 2", "bias-q8_0", Q, change("", shape(34, 128)), one("uqff.g7.shape", NOTE, ACCEPTS)),
    LayerFault("an F8Q8 payload of rank 3", made(f8q8(2, 32)), Q, change("", shape(2, 3, 11)),
               one("uqff.g7.shape", NOTE, ACCEPTS)),
    LayerFault("four dimensions of blocks", made(gguf(8, 4, 64)), Q, change(".shape", u32s(1, 1, 4, 64)),
               one("uqff.g8.shape", ERROR, ACCEPTS), ("[1, 1, 4, 64]",)),
    LayerFault("no dimensions of blocks", made(gguf(8, 4, 64)), Q, change(".shape", u32s()),
               one("uqff.g8.shape", ERROR, ACCEPTS)),
    LayerFault("no rows of blocks", made(gguf(8, 4, 64)), Q, both(change(".shape", u32s(0, 64)), change("", zeros("U8", 0))),
               one("uqff.g8.shape", ERROR, ACCEPTS), ("[0, 64]",)),
    LayerFault("no columns of blocks", made(gguf(8, 4, 64)), Q, change(".shape", u32s(4, 0)),
               one("uqff.g8.shape", ERROR, ACCEPTS)),
    LayerFault("q8_1", made(gguf(9, 2, 32)), Q, nothing, one("uqff.g5.unsupported", WARNING), ("q8_1",)),
    LayerFault("q8k", made(gguf(15, 2, 256)), Q, nothing, one("uqff.g5.unsupported", WARNING), ("q8k",)),
    # Unquant
    LayerFault("no rows of values", made(unquant("F32", 2, 8)), Q, change("", zeros("F32", 0, 8)),
               one("uqff.g8.shape", ERROR, ACCEPTS)),
    LayerFault("four dimensions of values", made(unquant("F32", 2, 8)), Q, change("", zeros("F32", 1, 1, 2, 8)),
               one("uqff.g8.shape", ERROR, ACCEPTS)),
    LayerFault("a single value", made(unquant("F32", 2, 8)), Q, change("", f32(1.0)), one("uqff.g8.shape", ERROR, ACCEPTS)),
    LayerFault("integers", made(unquant("F32", 2, 8)), Q, change("", zeros("I32", 2, 8)), one(T2_CODE, ERROR, UNKNOWN)),
    # HQQ
    *[LayerFault("HQQ of %d bits" % bits, "hqq4", Q, change(".bits", u8(bits)), one("uqff.h1.range"), (str(bits),))
      for bits in (0, 5, 6, 7, 16, 255)],
    LayerFault("HQQ axis 2", "hqq4", Q, change(".axis", u8(2)), one("uqff.h2.range"), ("2",)),
    LayerFault("an HQQ group of 0", "hqq4", Q, change(".group_size", u32(0)), one("uqff.h3.range"), ("0",)),
    LayerFault("HQQ axis 1", "hqq4", Q, change(".axis", u8(1)), one("uqff.h5.unsupported", ERROR, ACCEPTS), ("1",)),
    LayerFault("HQQ of one scale", made(hqq(4, 2, 64)), Q, both(
        change(".channel_wise", u8(0)), change(".scales", zeros("F32", 1)), change(".zeros", zeros("F32", 1))),
        one("uqff.h5.unsupported", ERROR, ACCEPTS)),
    LayerFault("HQQ scales of rank 1", made(hqq(4, 2, 64)), Q, change(".scales", shape(2)),
               one("uqff.h5.unsupported", ERROR, ACCEPTS)),
    LayerFault("HQQ zeros of two rows", made(hqq(4, 2, 64)), Q, change(".zeros", shape(2, 1)),
               one("uqff.h5.unsupported", ERROR, ACCEPTS)),
    LayerFault("HQQ groups that don't divide", made(hqq(4, 2, 64)), Q, change(".group_size", u32(48)),
               one("uqff.h6.shape", ERROR, ACCEPTS), ("48",)),
    LayerFault("HQQ groups of an odd number of nibbles", made(hqq(4, 2, 64)), Q, change(".group_size", u32(1)),
               one("uqff.h6.shape", ERROR, ACCEPTS)),
    LayerFault("HQQ of another group", made(hqq(4, 2, 64)), Q, change(".group_size", u32(32)),
               one("uqff.h6.shape", ERROR, ACCEPTS) * 3),
    LayerFault("an HQQ weight of other rows", made(hqq(4, 2, 64)), Q, change("", shape(16, 4)),
               one("uqff.h6.shape", ERROR, ACCEPTS), ("[16, 4]", "[32, 2]")),
    LayerFault("an HQQ weight of rank 1", made(hqq(4, 2, 64)), Q, change("", shape(64)), one("uqff.h6.shape", ERROR, ACCEPTS)),
    LayerFault("HQQ scales of more columns", made(hqq(4, 2, 64)), Q, change(".scales", zeros("F32", 1, 3)),
               one("uqff.h6.shape", ERROR, ACCEPTS)),
    LayerFault("HQQ of 8 bits in 4", made(hqq(4, 2, 64)), Q, change(".bits", u8(8)), one("uqff.h6.shape", ERROR, ACCEPTS)),
    LayerFault("an HQQ shape of no rows", made(hqq(4, 2, 64)), Q, change(".shape", u32s(0, 64)),
               one("uqff.g8.shape", ERROR, ACCEPTS)),
    LayerFault("HQQ zeros of another dtype than the scales", made(hqq(4, 2, 64)), Q, change(".zeros", zeros("F16", 1, 2)),
               one(T2_CODE, ERROR, UNKNOWN), (W + ".zeros", "F16")),
    LayerFault("3-bit words of U32", made(hqq(3, 2, 64)), Q, change("", dtype("U32")), one(T2_CODE, ERROR, UNKNOWN)),
    LayerFault("a 3-bit word with its top bit set", made(hqq(3, 2, 64)), Q, change(
        "", lambda t: t._replace(data=t.data[:3] + bytes([t.data[3] | 0x80]) + t.data[4:])),
        one("uqff.z1.range", WARNING, ACCEPTS)),
    LayerFault("a 3-bit word with bit 30 set", made(hqq(3, 2, 64)), Q, change(
        "", lambda t: t._replace(data=t.data[:-1] + bytes([t.data[-1] | 0x40]))), one("uqff.z1.range", WARNING, ACCEPTS)),
    # FP8
    *[LayerFault("FP8 element code %d" % code, "fp8", Q, change(".dtype", u32(code)), one("uqff.p1.dtype"), (str(code),))
      for code in (14, 99, (1 << 32) - 1)],
    *[LayerFault("FP8 %s of %s %s" % (s, wrong.dtype, list(wrong.shape)), "fp8", Q, change(s, wrong),
                 one("uqff.p3.dtype", ERROR, ACCEPTS), (W + s,))
      for s in (".dequant_w_scale", ".dequant_x_scale", ".quant_scale")
      for wrong in (smooth("F32", 1), smooth("F64"), smooth("F16"), Tensor("U32", (), b"\1\0\0\0"), zeros("F32", 0))],
    *[LayerFault("FP8 %s %r" % (s, value), "fp8", Q, change(s, f32(value)), one("uqff.p3.range", WARNING, ACCEPTS), (W + s,))
      for s in (".dequant_w_scale", ".dequant_x_scale", ".quant_scale") for value in (0.0, -0.0, NAN)],
    LayerFault("FP8 without its element code", "fp8", Q, drop(".dtype"), one("uqff.p2.missing"), (W + ".dtype",)),
    LayerFault("no rows of FP8", made(fp8(2, 8)), Q, change("", zeros("F8_E4M3", 0, 8)), one("uqff.g8.shape", ERROR, ACCEPTS)),
    LayerFault("FP8 with a bias", made(fp8(2, 8), smooth("F32", 2)), Q, nothing, one("uqff.u3.policy", WARNING, ACCEPTS)),
    # AFQ
    *[LayerFault("AFQ of %d bits" % bits, "afq3", Q, change(".bits", u8(bits)), one("uqff.a1.range"), (str(bits),))
      for bits in (0, 1, 5, 7, 16, 255)],
    *[LayerFault("AFQ groups of %d" % group, "afq3", Q, change(".group_size", u8(group)), one("uqff.a2.range"), (str(group),))
      for group in (0, 16, 48, 65, 255)],
    LayerFault("AFQ of 5 bits in groups of 5", "afq3", Q, both(change(".bits", u8(5)), change(".group_size", u8(5))),
               one("uqff.a1.range") + one("uqff.a2.range")),
    LayerFault("AFQ of other bits than its words", "afq3", Q, change(".bits", u8(4)), one("uqff.a4.shape", ERROR, ACCEPTS)),
    LayerFault("AFQ of other groups than its scales", "afq3", Q, change(".group_size", u8(32)),
               one("uqff.a4.shape", ERROR, ACCEPTS)),
    LayerFault("AFQ scales of more columns", made(afq(4, 2, 64)), Q, both(
        change(".scales", zeros("F32", 2, 2)), change(".biases", zeros("F32", 2, 2))), one("uqff.a4.shape", ERROR, ACCEPTS)),
    LayerFault("AFQ scales of more rows", made(afq(4, 2, 64)), Q, both(
        change(".scales", zeros("F32", 3, 1)), change(".biases", zeros("F32", 3, 1))), one("uqff.a4.shape", ERROR, ACCEPTS)),
    LayerFault("AFQ biases unlike the scales", made(afq(4, 2, 64)), Q, change(".biases", zeros("F32", 1, 1)),
               one("uqff.a4.shape", ERROR, ACCEPTS)),
    LayerFault("AFQ scales of rank 1", made(afq(4, 2, 64)), Q, both(change(".scales", shape(2)), change(".biases", shape(2))),
               one("uqff.a4.shape", ERROR, ACCEPTS)),
    LayerFault("AFQ scales of rank 0", made(afq(4, 2, 64)), Q, both(
        change(".scales", f32(1)), change(".biases", f32(1))), one("uqff.a4.shape", ERROR, ACCEPTS)),
    LayerFault("AFQ scales of rank 0 beside a bias", made(afq(4, 2, 64), smooth("F32", 2)), Q, both(
        change(".scales", f32(1)), change(".biases", f32(1))), one("uqff.a4.shape", ERROR, ACCEPTS)),
    LayerFault("AFQ of rank 0 beside a bias", made(afq(4, 2, 64), smooth("F32", 2)), Q, both(
        change("", u32(1)), change(".scales", f32(1)), change(".biases", f32(1))), one("uqff.a4.shape", ERROR, ACCEPTS)),
    LayerFault("AFQ words for half of the rows", made(afq(4, 2, 64)), Q, change("", shape(1, 16)),
               one("uqff.a4.shape", ERROR, ACCEPTS)),
    LayerFault("no rows of AFQ", made(afq(4, 2, 64)), Q, both(change("", zeros("U32", 0, 8)), change(
        ".scales", zeros("F32", 0, 1)), change(".biases", zeros("F32", 0, 1))), one("uqff.g8.shape", ERROR, ACCEPTS)),
    # F8Q8
    LayerFault("a byte behind the blocks of F8Q8", made(f8q8(2, 32)), Q, change("", zeros("U8", 67)), one("uqff.q1.shape"),
               ("67", "33")),
    LayerFault("F8Q8 of another number of blocks", "f8q8", Q, change(".num_blocks", u32(1)),
               one("uqff.q3.shape", ERROR, ACCEPTS), ("1",)),
    LayerFault("F8Q8 without its number of blocks", "f8q8", Q, drop(".num_blocks"),
               one("uqff.q3.missing", ERROR, ACCEPTS), (W + ".num_blocks",)),
    LayerFault("F8Q8 of a block too many", made(f8q8(2, 32)), Q, both(change("", zeros("U8", 99)), change(
        ".num_blocks", u32(3))), one("uqff.q3.shape", ERROR, ACCEPTS)),
    LayerFault("F8Q8 of a block too few", made(f8q8(2, 32)), Q, both(change("", zeros("U8", 33)), change(
        ".num_blocks", u32(1))), one("uqff.q3.shape", ERROR, ACCEPTS)),
    LayerFault("F8Q8 of a larger shape", made(f8q8(2, 32)), Q, change(".shape", u32s(2, 33)),
               one("uqff.q3.shape", ERROR, ACCEPTS)),
    LayerFault("F8Q8 without its number of blocks, and a byte behind them", made(f8q8(2, 32)), Q, both(
        drop(".num_blocks"), change("", zeros("U8", 67))),
        one("uqff.q3.missing", ERROR, ACCEPTS) + one("uqff.q1.shape"), (W + ".num_blocks",)),
    LayerFault("F8Q8 with a number of blocks of U8, and a byte behind them", made(f8q8(2, 32)), Q, both(
        change(".num_blocks", u8(2)), change("", zeros("U8", 67))),
        one("uqff.t1.dtype", ERROR, ACCEPTS) + one("uqff.q1.shape")),
    LayerFault("no rows of F8Q8", made(f8q8(2, 32)), Q, both(change(".shape", u32s(0, 32)), change("", zeros("U8", 0)), change(
        ".num_blocks", u32(0))), one("uqff.g8.shape", ERROR, ACCEPTS)),
    LayerFault("five dimensions of F8Q8", made(f8q8(2, 32)), Q, change(".shape", u32s(1, 1, 1, 2, 32)),
               one("uqff.g8.shape", ERROR, ACCEPTS)),
    # MXFP4
    LayerFault("an MXFP4 stack", made(mxfp4(2, 2, 32)), Q, nothing, one("uqff.u3.policy", WARNING, ACCEPTS)),
    LayerFault("MXFP4 with a bias", made(mxfp4(2, 32), smooth("BF16", 2)), Q, nothing, one("uqff.u3.policy", WARNING, ACCEPTS)),
    LayerFault("no rows of MXFP4", made(mxfp4(2, 32)), Q, both(change("", zeros("U8", 0, 16)), change(
        ".scales", zeros("U8", 0, 1))), one("uqff.g8.shape", ERROR, ACCEPTS)),
    # Stacks
    LayerFault("a stack of HQQ", made(hqq(4, 2, 2, 64)), Q, nothing, one("uqff.m1.unsupported"), (Q, "hqq", "stacked")),
    LayerFault("a stack of FP8", made(fp8(2, 2, 8)), Q, nothing, one("uqff.m1.unsupported"), (Q, "fp8", "stacked")),
    LayerFault("a stack of F8Q8", made(f8q8(2, 2, 32)), Q, nothing, one("uqff.m1.unsupported"), (Q, "f8q8", "stacked")),
    LayerFault("a matrix of HQQ with three numbers for its shape", "hqq4", Q, change(
        ".shape", lambda t: u32s(1, *struct.unpack("<2I", t.data))), one("uqff.m1.unsupported"), (Q, "hqq")),
    LayerFault("a matrix of F8Q8 with three numbers for its shape", "f8q8", Q, change(
        ".shape", lambda t: u32s(1, *struct.unpack("<2I", t.data))), one("uqff.m1.unsupported"), (Q, "f8q8")),
    LayerFault("a stack of HQQ without its axis", made(hqq(4, 2, 2, 64)), Q, drop(".axis"),
               one("uqff.m1.unsupported") + one("uqff.h4.missing"), (Q, "hqq")),
    LayerFault("a stack of FP8 without a scale", made(fp8(2, 2, 8)), Q, drop(".quant_scale"),
               one("uqff.m1.unsupported") + one("uqff.p2.missing"), (Q, "fp8")),
    LayerFault("a stack of F8Q8 without its number of blocks", made(f8q8(2, 2, 32)), Q, drop(".num_blocks"),
               one("uqff.m1.unsupported") + one("uqff.q3.missing", ERROR, ACCEPTS), (Q, "f8q8")),
    # Biases
    LayerFault("a bias of another length", made(gguf(8, 4, 64), smooth("F32", 5)), Q, nothing,
               one("uqff.b1.shape", ERROR, ACCEPTS), (Q + ".bias", "[5]", "[4]")),
    LayerFault("a bias of the inputs", made(gguf(8, 4, 64), smooth("F32", 64)), Q, nothing,
               one("uqff.b1.shape", ERROR, ACCEPTS)),
    LayerFault("a bias of rank 2", made(afq(4, 4, 64), smooth("F32", 1, 4)), Q, nothing, one("uqff.b1.shape", ERROR, ACCEPTS)),
    LayerFault("a bias of one value", made(unquant("F32", 4, 8), f32(1)), Q, nothing, one("uqff.b1.shape", ERROR, ACCEPTS)),
    LayerFault("a stack's bias for one expert", made(gguf(8, 3, 4, 64), smooth("F32", 4)), Q, nothing,
               one("uqff.b1.shape", ERROR, ACCEPTS), ("[4]", "[3, 4]")),
    *[LayerFault("a bias of %s" % name, made(f8q8(4, 32), zeros(name, 4)), Q, nothing,
                 one("uqff.b1.dtype", ERROR, ACCEPTS), (Q + ".bias", name)) for name in ("U8", "I32", "I64", "U32")],
    # Tag 1 where the layer is made of blocks: the engine takes them for values.
    *[LayerFault("blocks of %s with tag 1" % folder, folder, Q, change(".format", u8(1)), one("uqff.u1.layout", ERROR, ACCEPTS)
                 * n + one("uqff.e1.name", WARNING, ACCEPTS) * others)
      for folder, n, others in (("bias-q8_0", 2, 0), ("hqq4", 1, 8), ("fp8", 1, 3), ("f8q8", 1, 1))],
    LayerFault("values of tag 0 with tag 1", made(gguf(0, 2, 8)), Q, change(".format", u8(1)),
               one("uqff.u1.layout", ERROR, ACCEPTS) * 2),
    # Blocks of another family: what that family wants is missing, and the engine sees it first.
    LayerFault("blocks of Gguf with tag 5", made(gguf(2, 4, 64)), Q, change(".format", u8(5)), one("uqff.q3.missing", ERROR,
               ACCEPTS) + one("uqff.e1.name", WARNING, ACCEPTS) + one("uqff.q1.shape")),
    # What belongs to no layer
    *[LayerFault("a name %r" % name, "afq3", Q, add(name, u8(3)), one("uqff.e1.name", WARNING, ACCEPTS), (name,))
      for name in ("undotted", "7", "some.thing", "x.bias", "x.weight.scales", "x.weight.", ".weight.scales",
                   "uqff.version", "uqff.version.majors")],
    *[LayerFault("an unknown entry of %s" % folder, folder, key, add(key + ".weight.extra", u8(3)),
                 one("uqff.e1.name", WARNING, ACCEPTS), (key + ".weight.extra",)) for folder, key in ALL_FAMILIES.items()],
    LayerFault("a shape of AFQ", "afq3", Q, add(W + ".shape", u32s(64, 64)), one("uqff.e1.name", WARNING, ACCEPTS)),
]  # fmt: skip

# MXFP4: the scales' shape; the spec leaves open what the engine makes of it.
K1 = [
    LayerFault(name, made(mxfp4(2, 64)), Q, edit, one("uqff.k1.shape"))
    for name, edit in (
        ("MXFP4 scales of more rows", change(".scales", zeros("U8", 3, 2))),
        ("MXFP4 scales of more columns", change(".scales", zeros("U8", 2, 3))),
        ("MXFP4 scales of rank 1", change(".scales", shape(4))),
        ("MXFP4 scales of rank 0", change(".scales", u8(127))),
        ("an MXFP4 row that ends in a block", change("", zeros("U8", 2, 24))),
        ("an MXFP4 stack beside scales of a matrix", change("", shape(1, 2, 32))),
    )
]  # fmt: skip


def say(finding: Any) -> str:
    """All that a finding says, in one text."""
    return "%s %s %s" % (finding.path, finding.field, finding.message)


class RowTest(FolderTest):
    """Tests that go through a table; a row's folder is written once."""

    paths: dict[str, str] = {}

    def path(self, row: Any) -> str:
        """The folder of a row."""
        if row.name not in self.paths:
            base = getattr(row, "base", None) or row.folder
            folder = base() if callable(base) else Folder.real(base)
            row.edit(folder)
            self.paths[row.name] = self.place(folder)
        return self.paths[row.name]


class SetFaults(RowTest):
    """`open` refuses, and `check` finds just this."""

    paths: dict[str, str] = {}

    def test_the_folders_are_sound_before_the_edits(self) -> None:
        for name in ("afq3", *ALL_FAMILIES, "topo1-q4_0", "q2k"):
            self.assertEqual([str(f) for f in vqfref.check(self.edited(name, nothing))], [], name)

    def test_open_refuses_with_the_code_of_the_row(self) -> None:
        for row in SET:
            with self.subTest(row.name):
                path = self.path(row)
                for call in (UqffFile, vqfref.open):
                    error = raised(call, path)
                    self.assertIsInstance(error, vqfref.VqfrefError)
                    self.assertEqual(error.code, row.code)
                    for word in row.says:
                        self.assertIn(word, "%s %s" % (error.path, error))

    def test_check_finds_the_row_and_nothing_else(self) -> None:
        for row in SET:
            with self.subTest(row.name):
                found = vqfref.check(self.path(row))
                # an entry that is wrong leaves a hole; numbers belong to no layer
                found = [f for f in found if f.code == row.code or f.code not in ("uqff.c5.bounds", "uqff.e1.name")]
                self.assertEqual([(f.code, f.severity, f.engine) for f in found], [(row.code, ERROR, row.engine)])
                for word in row.says:
                    self.assertIn(word, say(found[0]))

    def test_a_fault_of_the_json_has_its_place(self) -> None:
        found = vqfref.check(self.edited("afq3", spoiled(text(lambda t: t.replace(b"lm_head", b"lm_\xffead", 1)))))
        data = Folder.real("afq3").content()
        self.assertEqual(found[0].offset, data.index(b"lm_head") + 3)

    def test_holes_and_overlaps_are_c5_and_name_an_entry(self) -> None:
        last = list(Folder.real("afq3").shards[FIRST][1])[-1]
        rows: tuple[tuple[str, Callable[[Folder], Any], str], ...] = (
            ("a hole", both(offsets(last, 1, 1), lambda f: f.spoil(lambda d: d + b"\0")), "uqff.c5.bounds"),
            ("an overlap", both(offsets(last, -1, -1), lambda f: f.spoil(lambda d: d[:-1])), "uqff.c5.overlap"),
        )
        for name, edit, code in rows:
            with self.subTest(name):
                path = self.edited("afq3", edit)
                self.assertEqual(raised(UqffFile, path).code, code)
                found = vqfref.check(path)
                self.assertEqual([(f.code, f.engine, f.field) for f in found], [(code, REFUSES, last)])

    def test_tensors_that_do_not_start_at_zero_are_a_hole(self) -> None:
        def edit(folder: Folder) -> None:
            folder.shards = {"m-0.uqff": (None, {**version()})}
            folder.relabel(lambda h: [e.update(data_offsets=[x + 4 for x in e["data_offsets"]]) for e in h.values()])
            folder.spoil(lambda d: d + bytes(4))

        path = self.edited("afq3", lambda f: edit(f))
        self.assertEqual(raised(UqffFile, path).code, "uqff.c5.bounds")

    def test_offsets_that_run_backwards_are_refused(self) -> None:
        path = self.edited("afq3", header(lambda h: h[MAJOR]["data_offsets"].reverse()))
        error = raised(UqffFile, path)
        self.assertIn(error.code.rpartition(".")[0], ("uqff.c5", "uqff.j1"))
        self.assertIn(MAJOR, str(error))
        self.assertEqual(engine_verdict(vqfref.check(path)), REFUSES)

    def test_a_product_that_passes_2_to_64_on_its_way_to_zero_is_refused(self) -> None:
        # "product or sum beyond 2^64": a checked product from the left fails before it meets the 0
        tensors = {**version(), "a.b": Tensor("U8", (1 << 32, 1 << 33, 0), b"")}
        path = self.place(Folder({"m-0.uqff": (None, tensors)}))
        self.assertEqual(raised(UqffFile, path).code, "uqff.j1.shape")

    def test_a_duplicate_key_hides_no_other_fault_of_the_container(self) -> None:
        # the engine takes the last of two; if that leaves a hole, it refuses all the same
        def edit(old: bytes) -> bytes:
            at = old.index(b'"%s"' % W.encode())
            whole = old[at : old.index(b"}", at) + 1]
            other = b'"%s":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}' % W.encode()
            return old[:at] + whole + b"," + other + old[at + len(whole) :]

        found = vqfref.check(self.edited("afq3", spoiled(text(edit))))
        self.assertEqual((found[0].code, engine_verdict(found)), ("uqff.j1.duplicate", REFUSES))

    def test_several_faults_are_all_found(self) -> None:
        def edit(folder: Folder) -> None:
            put(major=u32(2))(folder)
            second(W, W + ".bits", patch=u8(1))(folder)

        found = vqfref.check(self.edited("afq3", edit))
        self.assertEqual(Counter(f.code for f in found), Counter({"uqff.d1.duplicate": 2, "uqff.v1.version": 1}))

    def test_one_bad_shard_does_not_hide_faults_of_another_file(self) -> None:
        def edit(folder: Folder) -> None:
            folder.split(3)
            folder.spoil(lambda d: d[:7], "afq3-1.uqff")
            folder.spoil(lambda d: d + b"x", "afq3-2.uqff")
            folder.spoil(lambda d: d[:-1], RESIDUAL)

        found = vqfref.check(self.edited("afq3", edit))
        self.assertEqual(
            sorted((f.code, os.path.basename(f.path)) for f in found),
            [("uqff.c1.truncated", "afq3-1.uqff"), ("uqff.c5.bounds", "afq3-2.uqff"), ("uqff.c5.truncated", RESIDUAL)],
        )


class FirstFault(FolderTest):
    """Section 3: of several faults, which one `open` reports."""

    def code(self, edit: Callable[[Folder], Any]) -> str:
        error = raised(UqffFile, self.edited("afq3", edit))
        self.assertIsNotNone(error)
        return str(error.code)

    def test_every_container_is_checked_before_any_version(self) -> None:
        self.assertEqual(
            self.code(
                both(put(major=u32(2)), second("lm_head.weight"), lambda f: f.spoil(lambda d: b"", "afq3-1.uqff"))
            ),
            "uqff.c1.truncated",
        )

    def test_numbers_go_before_a_missing_version(self) -> None:
        self.assertEqual(self.code(numeric({})), "uqff.l1.version")

    def test_numbers_and_something_else_are_an_untagged_file(self) -> None:
        self.assertEqual(self.code(numeric({"a.b": u8(0)})), "uqff.v3.version")
        for name in ("18446744073709551616", "-1", "1_0", "٣", " 1", "+", "1.0"):
            self.assertEqual(self.code(numeric({name: u8(0)})), "uqff.v3.version", name)

    def test_duplicates_are_met_on_the_walk_before_the_version_is_judged(self) -> None:
        for edit in (put(major=u32(2)), put(minor=u32(9)), without(MAJOR), without(MINOR)):
            self.assertEqual(self.code(both(edit, second("lm_head.weight"))), "uqff.d1.duplicate")

    def test_versions_are_walked_in_the_order_of_shards(self) -> None:
        self.assertEqual(self.code(both(put(major=u8(1)), second("lm_head.weight"))), "uqff.v1.version")
        self.assertEqual(self.code(both(second("lm_head.weight"), lambda f: f.shards.update(
            {"afq3-2.uqff": (None, {MAJOR: u8(1)})}))), "uqff.d1.duplicate")  # fmt: skip

    def test_an_ill_formed_copy_goes_before_one_that_disagrees(self) -> None:
        self.assertEqual(self.code(second(major=Tensor("U32", (1,), b"\2\0\0\0"))), "uqff.v1.version")

    def test_disagreement_goes_before_an_unsupported_version(self) -> None:
        self.assertEqual(self.code(both(put(major=u32(2)), second(major=u32(1)))), "uqff.v2.version")

    def test_a_missing_entry_goes_before_an_unsupported_major(self) -> None:
        self.assertEqual(self.code(both(put(major=u32(2)), without(PATCH))), "uqff.v4.version")

    def test_major_goes_before_minor(self) -> None:
        self.assertEqual(self.code(put(major=u32(2), minor=u32(3))), "uqff.v5.version")
        self.assertEqual(self.code(put(major=u32(0), minor=u32(99))), "uqff.v5.version")

    def test_no_major_is_untagged_whatever_else_is_missing(self) -> None:
        self.assertEqual(self.code(without(MAJOR, MINOR)), "uqff.v3.version")

    def test_versions_in_the_residual_do_not_count(self) -> None:
        def edit(folder: Folder) -> None:
            without(*VERSION_NAMES)(folder)
            folder.files[RESIDUAL] = build({**version(), "model.norm.weight": smooth("F32", 64)})

        self.assertEqual(self.code(edit), "uqff.v3.version")


class LayerFaults(RowTest):
    """The set opens; `keys` lists the layer; using it is refused, and the others stay readable."""

    paths: dict[str, str] = {}

    def test_rows_have_names_of_their_own(self) -> None:
        for table in (SET, LAYER + K1):
            self.assertEqual([n for n, k in Counter(row.name for row in table).items() if k > 1], [])

    @thorough
    def test_check_finds_the_row_and_nothing_else(self) -> None:
        for row in LAYER:
            with self.subTest(row.name):
                found = vqfref.check(self.path(row))
                self.assertEqual(
                    Counter((f.code, f.severity, f.engine) for f in found), Counter(row.findings), list(map(str, found))
                )
                first = next(f for f in found if f.code == row.findings[0][0])
                for word in row.says:
                    self.assertIn(word, say(first))
                self.assertIn(row.key if row.findings[0][0] != "uqff.e1.name" else "", first.field or "")

    def test_scales_of_mxfp4_must_fit(self) -> None:
        for row in K1:
            with self.subTest(row.name):
                found = vqfref.check(self.path(row))
                self.assertEqual([(f.code, f.severity) for f in found], [("uqff.k1.shape", ERROR)])
                self.assertIn(found[0].engine, (REFUSES, UNKNOWN))
                self.assertIn(W, found[0].field)

    @thorough
    def test_errors_forbid_the_layer_and_that_alone(self) -> None:
        for row in LAYER + K1:
            errors = [code for code, severity, _ in row.findings if severity == ERROR]
            with self.subTest(row.name), UqffFile(self.path(row)) as f:
                key = row.key
                self.assertIn(key, f.keys())
                self.assertEqual(f.info(key).name, key)
                calls: tuple[Callable[[], Any], ...] = (
                    lambda f=f, key=key: f.get_tensor(key),
                    lambda f=f, key=key: list(f.values(key)),
                    lambda f=f, key=key: f.slice(key, dim=0, rank=0, world=1),
                    lambda f=f, key=key: packing.layout(f.layers[key]),
                    lambda f=f, key=key: packing.global_factor([f.layers[key]], "F32"),
                )
                for i, call in enumerate(calls):
                    error = raised(call)
                    if i == 4 and f.layers[key].entry(".format") is None:
                        self.assertIsNone(error)  # no format, no factor
                    elif errors:
                        self.assertIsInstance(error, vqfref.VqfrefError, i)
                        self.assertIn(error.code, errors, i)
                        self.assertIn(key, str(error), i)
                    else:
                        self.assertIsNone(error, i)
                others = [k for k in f.layers if k not in (key, "")]
                self.assertTrue(len(f.get_tensor(others[0])))

    def test_the_first_error_that_is_raised_is_the_first_that_is_reported(self) -> None:
        for row in LAYER:
            errors = [code for code, severity, _ in row.findings if severity == ERROR]
            if len(set(errors)) > 1:
                with self.subTest(row.name), UqffFile(self.path(row)) as f:
                    self.assertEqual(raised(f.get_tensor, row.key).code, errors[0])

    def test_a_missing_width_or_group_of_afq_is_an_error_of_a(self) -> None:
        for suffix in (".bits", ".group_size"):
            found = vqfref.check(self.edited("afq3", drop(suffix)))
            self.assertEqual([(f.code.rpartition(".")[0][:6], f.severity, f.engine) for f in found], [
                ("uqff.a", ERROR, REFUSES)])  # fmt: skip
            self.assertIn(W + suffix, say(found[0]))

    def test_every_family_with_every_other_tag_is_refused_to_the_reader(self) -> None:
        for folder, key in ALL_FAMILIES.items():
            own = Folder.real(folder)[key + ".weight.format"].data[0]
            with UqffFile(str(FILES / folder)) as f:
                names = sorted(f.keys())
            for tag in range(7):
                if tag == own:
                    continue
                with self.subTest("%s with tag %d" % (folder, tag)):
                    path = self.edited(folder, change(".format", u8(tag), key))
                    with UqffFile(path) as f:
                        error = raised(f.get_tensor, key)
                        self.assertIsInstance(error, vqfref.VqfrefError)
                        self.assertRegex(error.code, r"^uqff\.(g2|h4|p2|a3|q3|k1|u1|t1|t2|m1)\.")
                        self.assertEqual(sorted(f.keys()), names)

    def test_two_faults_of_two_layers_are_both_found(self) -> None:
        path = self.edited("afq3", both(change(".bits", u8(5)), change(".group_size", u8(1), DOWN)))
        self.assertEqual(Counter(f.code for f in vqfref.check(path)), Counter(["uqff.a1.range", "uqff.a2.range"]))

    def test_faults_of_every_entry_are_found_not_the_first_alone(self) -> None:
        path = self.edited("hqq4", drop(".axis", ".zeros", ".bits"))
        self.assertEqual([f.code for f in vqfref.check(path)], ["uqff.h4.missing"] * 3)


class Legal(FolderTest):
    """What must not be refused: check finds nothing that is an error, and all layers are read."""

    def readable(self, path: str, allowed: tuple[str, ...] = ()) -> None:
        with UqffFile(path) as f:
            for key in f:
                self.assertTrue(len(f.get_tensor(key)), key)
        found = vqfref.check(path)
        self.assertEqual({f.code for f in found}, set(allowed), list(map(str, found)))
        self.assertNotIn(ERROR, [f.severity for f in found])
        self.assertEqual(engine_verdict(found), ACCEPTS)

    def test_lower_minors_and_any_patch(self) -> None:
        for numbers in ((1, 0, 0), (1, 1, 0), (1, 2, 9), (1, 0, (1 << 32) - 1), (1, 1, 77)):
            major, minor, patch = map(u32, numbers)
            path = self.edited("afq3", put(major=major, minor=minor, patch=patch))
            self.readable(path)
            with UqffFile(path) as f:
                self.assertEqual(f.version, numbers)

    def test_version_entries_in_any_shards(self) -> None:
        def copies(folder: Folder) -> None:
            folder.split(3)
            folder.shards["afq3-2.uqff"][1].update(version())

        def elsewhere(folder: Folder) -> None:
            folder.split(3)
            for i, name in enumerate(VERSION_NAMES):
                tensor = folder[name]
                del folder[name]
                folder.shards["afq3-%d.uqff" % i][1][name] = tensor

        self.readable(self.edited("afq3", copies))
        self.readable(self.edited("afq3", elsewhere))

    @thorough
    def test_entries_of_a_layer_over_several_shards(self) -> None:
        for name in ("afq3", "hqq4", "fp8", "f8q8", "mxfp4", "moe-q4_0", "moe-afq4", "topo1-q4_0"):
            plain = self.edited(name, nothing)
            for parts in (2, 5):
                path = self.edited(name, lambda f, parts=parts: f.split(parts))
                self.readable(path)
                with UqffFile(path) as f, UqffFile(plain) as g:
                    self.assertEqual(sorted(f.keys()), sorted(g.keys()))
                    for key in f.layers:
                        self.assertEqual(f.get_tensor(key), g.get_tensor(key))

    def test_a_shard_without_tensors(self) -> None:
        self.readable(self.edited("afq3", lambda f: f.shards.update({"afq3-1.uqff": (None, {})})))

    def test_odd_offsets_everywhere(self) -> None:
        def edit(folder: Folder) -> None:
            metadata, tensors = folder.shards[folder.first]
            folder.shards[folder.first] = (metadata, {"one.byte": u8(0), **tensors})

        for name in ("afq3", "hqq4", "fp8", "f8q8", "mxfp4", "moe-afq4", "odd100-afq4"):
            folder = Folder.real(name)
            edit(folder)
            self.readable(self.place(folder), ("uqff.e1.name",))

    def test_a_header_whose_length_is_no_multiple_of_eight(self) -> None:
        self.readable(self.edited("afq3", spoiled(text(lambda t: t.rstrip() + b" "))))
        self.readable(self.edited("afq3", spoiled(text(lambda t: t.rstrip() + b"   \n\t\r"))))

    def test_tensors_in_another_order_than_the_engines(self) -> None:
        def edit(folder: Folder) -> None:
            metadata, tensors = folder.shards[folder.first]
            folder.shards[folder.first] = (metadata, dict(reversed(list(tensors.items()))))

        self.readable(self.edited("topo1-q4_0", edit))

    def test_a_header_in_another_order_than_its_offsets(self) -> None:
        def edit(h: dict[str, Any]) -> bytes:
            import json

            return json.dumps(dict(reversed(list(h.items())))).encode()

        self.readable(self.edited("afq3", header(edit)))

    def test_no_metadata_and_a_wrong_version_text(self) -> None:
        for metadata in (None, {}, {"uqff.version": "9.9.9"}, {"uqff.version": "nonsense"}, {"x": "y"}):

            def edit(folder: Folder, metadata: Any = metadata) -> None:
                folder.shards[folder.first] = (metadata, folder.shards[folder.first][1])

            self.readable(self.edited("afq3", edit))

    def test_unknown_names_and_suffixes(self) -> None:
        def edit(folder: Folder) -> None:
            for name in ("undotted", "12", "a.b", W + ".extra", W + ".shape.more", "lonely.bias"):
                folder[name] = u8(1)

        self.readable(self.edited("bias-q8_0", edit), ("uqff.e1.name",))

    def test_numbers_for_names_beside_valid_versions(self) -> None:
        path = self.edited("afq3", both(add("0", u8(0)), add("1", u8(0))))
        self.readable(path, ("uqff.e1.name",))

    def test_a_tensor_in_both_shards_and_residual(self) -> None:
        def edit(folder: Folder) -> None:
            folder.files[RESIDUAL] = build({
                "lm_head.weight": zeros("F32", 96, 64), Q + ".weight": zeros("F32", 64, 64),
                "model.norm.weight": smooth("F32", 64),
            })  # fmt: skip

        path = self.edited("afq3", edit)
        self.readable(path)
        with UqffFile(path) as f, UqffFile(self.edited("afq3", nothing)) as g:
            self.assertEqual(f.get_tensor("lm_head"), g.get_tensor("lm_head"))  # the shards' wins
            self.assertNotIn("lm_head.weight", f.keys())

    def test_embeddings_in_the_residual(self) -> None:
        def edit(folder: Folder) -> None:
            put(minor=u32(1))(folder)
            for suffix in folder.layer("model.embed_tokens"):
                del folder["model.embed_tokens.weight" + suffix]
            folder.files[RESIDUAL] = build({"model.embed_tokens.weight": smooth("F32", 96, 64)})

        path = self.edited("afq3", edit)
        self.readable(path)
        with UqffFile(path) as f:
            self.assertIn("model.embed_tokens.weight", f.keys())
            self.assertEqual(list(f.get_tensor("model.embed_tokens.weight"))[:4], [
                v for (v,) in struct.iter_unpack("<f", smooth("F32", 96, 64).data[:16])])  # fmt: skip

    def test_payloads_of_blocks_in_any_rank_are_read_flat(self) -> None:
        for key, base in ((Q, "bias-q8_0"), (Q, "f8q8")):
            data = Folder.real(base)[key + ".weight"].data
            for dims in ((1, len(data)), (len(data) // 2, 2), (len(data) // 4, 2, 2), (1, 1, 1, len(data))):
                path = self.edited(base, change("", shape(*dims), key))
                self.readable(path, ("uqff.g7.shape",))
                with UqffFile(path) as f, UqffFile(self.edited(base, nothing)) as g:
                    self.assertEqual(f.get_tensor(key), g.get_tensor(key))

    def test_layers_of_every_family_type_and_dtype(self) -> None:
        layers: list[dict[str, Any]] = [gguf(code, 2, 256) for code in GGML if code not in (9, 15)]
        layers += [gguf(8, 2, 3, 64), gguf(2, 32), gguf(0, 5, 7), unquant("F32", 3, 5), unquant("F16", 2, 3, 5)]
        layers += [unquant("BF16", 3, 5), fp8(3, 5), fp8(1, 1), f8q8(10, 10), f8q8(1, 1), f8q8(3, 32), mxfp4(3, 64)]
        layers += [hqq(bits, 2, 80, group=40) for bits in (8, 4, 2, 1, 3)]
        layers += [hqq(4, 2, 64, dtype=d) for d in ("F16", "BF16")] + [hqq(3, 2, 64), hqq(8, 2, 64, group=1)]
        layers += [afq(bits, 2, 128, group=g) for bits in (2, 3, 4, 6, 8) for g in (32, 64, 128)]
        layers += [afq(4, 2, 3, 64), afq(4, 2, 64, dtype="F16"), afq(6, 2, 64, dtype="BF16")]
        tensors = {}
        for i, layer in enumerate(layers):
            tensors.update(named("model.layers.%d.q_proj" % i, layer))
        path = self.place(Folder.of(tensors))
        self.readable(path)
        with UqffFile(path) as f:
            self.assertEqual(len(f.layers), len(layers))

    def test_metadata_that_decoding_does_not_use_may_have_any_value(self) -> None:
        for suffix, tensor in (
            (".optimization_steps", u32(0)),
            (".round_zeros", u8(1)),
            (".optimization_steps", u32(99)),
        ):
            self.readable(self.edited("hqq4", change(suffix, tensor)))
        self.readable(self.edited("fp8", both(change(".dequant_x_scale", f32(7)), change(".quant_scale", f32(3)))))
        for code in range(14):
            self.readable(self.edited("fp8", change(".dtype", u32(code))))

    def test_biases_of_any_float_dtype(self) -> None:
        for name in ("F32", "F16", "BF16", "F64", "F8_E4M3"):
            self.readable(self.place(made(gguf(8, 4, 64), zeros(name, 4))()))
        self.readable(self.place(made(gguf(8, 3, 4, 64), smooth("F32", 3, 4))()))

    def test_a_bias_of_e5m2_is_a_float_that_the_engine_cannot_write(self) -> None:
        path = self.place(made(gguf(8, 4, 64), zeros("F8_E5M2", 4))())
        self.assertEqual([(f.code, f.severity) for f in vqfref.check(path)], [("uqff.e2.dtype", WARNING)])
        with UqffFile(path) as f:
            self.assertEqual(len(f.get_tensor(Q)), 4 * 64)

    def test_zero_dimensions_and_scalars_in_tensors_of_no_layer(self) -> None:
        path = self.edited("afq3", both(add("a.empty", zeros("F32", 0, 7)), add("a.scalar", f32(1))))
        self.assertEqual([f.code for f in vqfref.check(path)], ["uqff.e1.name"] * 2)
        with UqffFile(path) as f:
            self.assertEqual(len(f.get_tensor("a.empty")), 0)
            self.assertEqual(list(f.get_tensor("a.scalar")), [1.0])

    def test_keys_with_dots_weights_and_strange_characters(self) -> None:
        keys = ("weight", "a.weight.b", "модель.слой", "a b", "x" * 300, "bias")
        tensors = {}
        for key in keys:
            tensors.update(named(key, gguf(8, 1, 32)))
        path = self.place(Folder.of(tensors))
        self.readable(path)
        with UqffFile(path) as f:
            self.assertEqual(sorted(f.layers), sorted(keys))


class OtherDtypes(FolderTest):
    """Section 2: a known dtype that the engine's writer can't make is a warning where the layer does not forbid it."""

    def test_a_dtype_outside_of_the_ten_is_a_warning(self) -> None:
        for name in ("I8", "U16", "F8_E5M2", "BOOL", "U64", "C64"):
            found = vqfref.check(self.edited("afq3", add("some.thing", zeros(name, 2))))
            self.assertEqual(
                {(f.code, f.severity) for f in found}, {("uqff.e1.name", WARNING), ("uqff.e2.dtype", WARNING)}
            )
            self.assertTrue(all(f.field == "some.thing" for f in found))

    def test_where_the_layer_forbids_it_that_is_the_fault(self) -> None:
        for folder, suffix, name, code in (
            ("fp8", "", "F8_E5M2", T2_CODE), ("mxfp4", "", "I8", T2_CODE), ("mxfp4", ".scales", "F8_E8M0", T2_CODE),
            ("bias-q8_0", "", "I8", "uqff.g3.dtype"), ("hqq4", ".bits", "I8", "uqff.t1.dtype"),
        ):  # fmt: skip
            found = vqfref.check(self.edited(folder, change(suffix, dtype(name))))
            self.assertEqual([(f.code, f.field) for f in found], [(code, W + suffix)])

    def test_the_residual_may_have_any_dtype(self) -> None:
        residual = build({"a.%s" % name: zeros(name, 2) for name in ("I8", "U16", "F8_E5M2", "BOOL", "U64", "C64")})
        self.assertEqual(vqfref.check(self.edited("afq3", lambda f: f.files.update({RESIDUAL: residual}))), [])


class Residual(FolderTest):
    """Section 1 and J2: what lies beside the shards."""

    def codes(self, edit: Callable[[Folder], Any]) -> list[tuple[str, str, str]]:
        return [(f.code, f.severity, f.engine) for f in vqfref.check(self.edited("afq3", edit))]

    def test_no_weights_at_all_are_an_error_of_the_folder_alone(self) -> None:
        path = self.edited("afq3", lambda f: f.files.pop(RESIDUAL))
        (found,) = vqfref.check(path)
        self.assertIn(found.code.rpartition(".")[0], ("uqff.n3", "uqff.s2"))
        self.assertEqual((found.severity, found.engine), (ERROR, REFUSES))
        with UqffFile(path) as f:
            self.assertTrue(len(f.get_tensor(Q)))

    def test_other_weights_do_instead(self) -> None:
        model = build({"model.norm.weight": smooth("F32", 64)})
        index = b'{"weight_map": {"model.norm.weight": "model-00001-of-00001.safetensors"}}'
        for files in ({"model.safetensors": model}, {"pytorch_model.bin": b""}, {"consolidated.00.pth": b""}, {
            "model.safetensors.index.json": index, "model-00001-of-00001.safetensors": model,
        }):  # fmt: skip
            self.assertEqual(self.codes(lambda f, files=files: (f.files.pop(RESIDUAL), f.files.update(files))), [])

    def test_a_missing_config_is_an_error_a_missing_tokenizer_a_warning(self) -> None:
        self.assertEqual(self.codes(lambda f: f.files.pop("config.json")), [("uqff.s2.missing", ERROR, REFUSES)])
        self.assertEqual(self.codes(lambda f: f.files.pop("tokenizer.json")), [("uqff.s2.missing", WARNING, REFUSES)])

    def test_other_missing_assets_are_notes(self) -> None:
        for name in ("tokenizer_config.json", "generation_config.json"):
            self.assertEqual(self.codes(lambda f, name=name: f.files.pop(name)), [("uqff.s3.missing", NOTE, ACCEPTS)])

    def test_a_config_that_is_no_json_is_an_error(self) -> None:
        self.assertEqual(
            self.codes(lambda f: f.files.update({"config.json": b"{"})), [("uqff.s2.json", ERROR, REFUSES)]
        )

    def test_files_of_other_kinds_are_nobodys_business(self) -> None:
        self.assertEqual(
            self.codes(lambda f: f.files.update({"README.md": b"x", "model.py": b"", "chat_template.jinja": b""})), []
        )

    def test_a_check_of_one_set_looks_beside_it_too(self) -> None:
        path = self.edited("afq3", lambda f: f.files.pop("config.json"))
        found = vqfref.check(os.path.join(path, "afq3-0.uqff"))
        self.assertEqual([(f.code, f.field) for f in found], [("uqff.s2.missing", "config.json")])


class Reports(FolderTest):
    """R1 to R8 through open and check."""

    def spoil(self, edit: Callable[[dict[str, Any]], Any], base: str = "afq3") -> str:
        return self.edited(base, lambda f: f.report(edit), report=True)

    def refused(self, path: str, code: str, *says: str) -> None:
        for call in (UqffFile, vqfref.open):
            error = raised(call, path)
            self.assertIsInstance(error, vqfref.FormatError)
            self.assertEqual(error.code, code)
            for word in says:
                self.assertIn(word, "%s %s" % (error.path, error))
        self.assertEqual(raised(UqffFile, path, "afq3-0.uqff").code, code)  # an item meets it too
        found = [f for f in vqfref.check(path) if f.severity == ERROR]
        self.assertEqual([(f.code, f.engine) for f in found], [(code, REFUSES)])
        for word in says:
            self.assertIn(word, say(found[0]))

    def test_r1_no_outputs(self) -> None:
        self.refused(self.spoil(lambda r: r.update(outputs=[])), "uqff.r1.missing", "no outputs")

    def test_r2_blank_quant(self) -> None:
        for quant in ("", " ", "\t\n"):
            self.refused(
                self.spoil(lambda r, quant=quant: r["outputs"][0].update(quant=quant)), "uqff.r2.name", "quant"
            )

    def test_r3_one_quant_twice_whatever_the_case(self) -> None:
        def edit(r: dict[str, Any]) -> None:
            r["outputs"].append({**r["outputs"][0], "quant": "AFQ3", "shards": ["other.uqff"]})

        folder = Folder.real("afq3", report=True)
        folder.report(edit)
        folder.shards["other.uqff"] = (None, version())
        self.refused(self.place(folder), "uqff.r3.duplicate", "AFQ3")

    def test_r4_no_shards(self) -> None:
        self.refused(self.spoil(lambda r: r["outputs"][0].update(shards=[])), "uqff.r4.missing", "afq3")

    def test_r5_a_shard_that_is_not_there(self) -> None:
        for name in ("afq3-1.uqff", "", "../afq3-0.uqff", "AFQ3-0.uqff"):
            edit = lambda r, name=name: r["outputs"][0]["shards"].append(name)  # noqa: E731
            self.refused(self.spoil(edit), "uqff.r5.missing", "afq3", name)

    def test_r6_a_shard_twice(self) -> None:
        self.refused(
            self.spoil(lambda r: r["outputs"][0]["shards"].append("afq3-0.uqff")), "uqff.r6.duplicate", "afq3-0.uqff"
        )

        def claim(r: dict[str, Any]) -> None:
            r["outputs"].append({**r["outputs"][0], "quant": "other"})

        self.refused(self.spoil(claim), "uqff.r6.duplicate", "afq3-0.uqff", "afq3", "other")

    def test_r7_a_report_that_can_not_be_read(self) -> None:
        whole = Folder.real("afq3", report=True).files[REPORT]
        for data in (
            b"",
            b"{",
            b"[]",
            b"null",
            whole[:-1],
            whole + b"}",
            whole.replace(b"afq3", b"af\xff3"),
            b"\xef\xbb\xbf" + whole,
        ):
            self.refused(
                self.edited("afq3", lambda f, d=data: f.files.update({REPORT: d}), report=True), "uqff.r7.json", REPORT
            )

    def test_r7_required_fields(self) -> None:
        for name in ("schema", "generated_by", "uqff_version", "outputs"):
            self.refused(self.spoil(lambda r, name=name: r.pop(name)), "uqff.r7.json", REPORT, name)
        for name in ("quant", "shards", "layers", "actual_counts", "fallback_count"):
            self.refused(self.spoil(lambda r, name=name: r["outputs"][0].pop(name)), "uqff.r7.json", REPORT, name)
        for name in ("module", "stored", "shape"):
            edit = lambda r, name=name: r["outputs"][0]["layer_details"][0].pop(name)  # noqa: E731
            self.refused(self.spoil(edit), "uqff.r7.json", REPORT, name)
        self.refused(self.spoil(lambda r: r["generated_by"].pop("tool")), "uqff.r7.json", REPORT, "tool")

    def test_unknown_fields_and_any_schema_are_no_reason_to_refuse(self) -> None:
        path = self.spoil(lambda r: (r.update(more=[1], schema=2), r["outputs"][0].update(more={"a": None})))
        with UqffFile(path) as f:
            self.assertTrue(len(f.get_tensor(Q)))
        self.assertEqual(
            [(f.code, f.severity, f.engine) for f in vqfref.check(path)], [("uqff.r8.json", WARNING, ACCEPTS)]
        )

    def test_r8_is_a_warning_for_what_the_report_says_wrong(self) -> None:
        def details(**fields: Any) -> Callable[[dict[str, Any]], Any]:
            return lambda r: r["outputs"][0]["layer_details"][0].update(fields)

        def output(**fields: Any) -> Callable[[dict[str, Any]], Any]:
            return lambda r: r["outputs"][0].update(fields)

        rows: list[tuple[str, Callable[[dict[str, Any]], Any], str]] = [
            ("schema", lambda r: r.update(schema=0), "schema"),
            ("uqff_version", lambda r: r.update(uqff_version="1.1.0"), "uqff_version"),
            ("stored", details(stored="afq4"), "layer_details"),
            ("shape", details(shape=[1, 2]), "layer_details"),
            ("module", lambda r: r["outputs"][0]["layer_details"].append(
                {"module": "no.such", "stored": "afq3", "shape": []}), "layer_details"),
            ("fallback_count", output(fallback_count=1), "fallback_count"),
            ("fallbacks", lambda r: r["outputs"][0].update(fallback_count=1, fallbacks=[
                {"module": Q, "from": "afq3", "to": "f32", "shape": [64, 64]}]), "fallbacks"),
        ]  # fmt: skip
        for name, edit, field in rows:
            with self.subTest(name):
                path = self.spoil(edit)
                found = vqfref.check(path)
                self.assertEqual({(f.code, f.severity, f.engine) for f in found}, {("uqff.r8.json", WARNING, ACCEPTS)})
                self.assertIn(field, [f.field for f in found])
                with UqffFile(path) as f:
                    self.assertTrue(len(f.get_tensor(Q)))

    def test_reports_of_the_engine_say_nothing_wrong(self) -> None:
        for name in ALL_FAMILIES:
            self.assertEqual(vqfref.check(self.edited(name, nothing, report=True)), [], name)

    def test_a_file_that_no_report_claims_is_a_set_of_its_own(self) -> None:
        def edit(folder: Folder) -> None:
            folder.shards["other-0.uqff"] = (None, {"a.b": u8(0)})

        found = vqfref.check(self.edited("afq3", edit, report=True))
        self.assertEqual([f.code for f in found if f.severity == ERROR], ["uqff.v3.version"])


class Names(FolderTest):
    def test_n1_names_file_and_folder(self) -> None:
        path = self.edited("afq3", nothing)
        for call in (
            lambda: UqffFile(path, "nothing-0.uqff"),
            lambda: resolve(["nothing-0.uqff"], ["a.uqff"], None, path),
        ):
            error = raised(call)
            self.assertEqual(error.code, "uqff.n1.missing")
            self.assertIn("nothing-0.uqff", str(error))
            self.assertIn(path, str(error))

    def test_a_layer_that_only_the_report_knows_is_missing(self) -> None:
        # N2: neither in the shards nor in the residual. A reader can not tell for sure, so the engine's word is open.
        def edit(folder: Folder) -> None:
            for suffix in folder.layer(Q):
                del folder[Q + ".weight" + suffix]

        found = vqfref.check(self.edited("afq3", edit, report=True))
        self.assertIn(("uqff.n2.missing", UNKNOWN), [(f.code, f.engine) for f in found])
        self.assertTrue(any(Q in say(f) for f in found))

    def test_layers_behind_a_gap_in_the_indexes_are_missing(self) -> None:
        # 10.2: with -0 and -2, even asking for -2 loads only -0, and then fails on missing layers [obs]
        def edit(folder: Folder) -> None:
            folder.split(2)
            folder.shards["afq3-2.uqff"] = folder.shards.pop("afq3-1.uqff")

        path = self.edited("afq3", edit)
        found = vqfref.check(path)
        self.assertEqual([(f.code, f.severity, f.engine) for f in found], [("uqff.n2.missing", ERROR, REFUSES)])
        self.assertIn("afq3-2.uqff", say(found[0]))
        with vqfref.open(os.path.join(path, "afq3-2.uqff")) as f:
            self.assertEqual(f.names, ["afq3-0.uqff"])

    def test_a_lone_shard_of_a_higher_index_lacks_nothing(self) -> None:
        path = self.edited("afq3", lambda f: f.shards.update({"afq3-7.uqff": f.shards.pop("afq3-0.uqff")}))
        self.assertEqual(vqfref.check(path), [])


class Findings(FolderTest):
    def test_every_finding_has_the_facts(self) -> None:
        for row in LAYER[::7]:
            folder = row.base() if callable(row.base) else Folder.real(row.base)
            row.edit(folder)
            path = self.place(folder)
            for f in audit(path):
                self.assertIn(f.severity, SEVERITIES)
                self.assertIn(f.engine, (REFUSES, ACCEPTS, UNKNOWN))
                self.assertTrue(f.path.startswith(path))
                self.assertIn(f.code.rpartition(".")[2], vqfref.errors.WORDS)

    def test_offsets_point_at_the_tensor(self) -> None:
        folder = Folder.real("afq3")
        change(".bits", u8(5))(folder)
        data = folder.content()
        (length,) = struct.unpack_from("<Q", data)
        tensors = folder.shards[folder.first][1]
        at = 8 + length
        for name, t in tensors.items():
            if name == W + ".bits":
                break
            at += len(t.data)
        (found,) = vqfref.check(self.place(folder))
        self.assertEqual((found.offset, data[at]), (at, 5))

    def test_assets_of_the_samples_are_what_the_audit_wants(self) -> None:
        self.assertEqual(
            set(ASSETS), {"config.json", "tokenizer.json", "tokenizer_config.json", "generation_config.json"}
        )


if __name__ == "__main__":
    unittest.main()

"""Layers of UQFF for the suite: the cases of uqff_layer. Run by files.py.

What layers decode to is the engine's: its folders in files/uqff and its layers in files/quant are decoded with gguf-py
and numpy, and the values must have the engine's sha256. What the engine never wrote (3-, 2- and 1-bit HQQ, AFQ in groups
of 32 and 128, dense GGML types) is decoded by the same functions. What is refused follows the engine's catalogue of
refusals; the level is recommended where the engine does not look.
"""

from __future__ import annotations

import hashlib
import json
from itertools import chain

import numpy as np
from openssl import sm3
from st import product
from suite import KAT, case, data, prove
from uqff import (
    CATALOGUE,
    GGML,
    KEY,
    PER_WORD,
    SPEC,
    STRICTER,
    Folder,
    afq,
    blank,
    decoded,
    edited,
    f8q8,
    fp8,
    ggml,
    hqq,
    label_of,
    mxfp4,
    named,
    noise,
    number,
    smooth,
    sound,
    u8,
    u32,
    u32s,
    unquant,
    version,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterator, Tuple

    from suite import Case
    from uqff import Edit, Layer, Tensor, Tensors

    Fault = Tuple[str, str, str, str, str, Layer, Edit]  # name, comment, flags, class, level, good twin, what is edited

ENGINE = "mistralrs 0.9.5, whose sha256 of the values is met"
PEER = "gguf-py"

# What a flag's cases catch.
FLAGS = {
    "uqff-ggml": "the GGML types by their codes, each with its blocks",
    "uqff-unquant": "dense layers in their own dtype",
    "uqff-hqq-bits": "HQQ's fields: their order within a word, the padding of 3 bits",
    "uqff-hqq-columns": "HQQ's groups run down the columns, not along the rows",
    "uqff-hqq-round": "HQQ's difference and product are rounded to the dtype of the scales",
    "uqff-fp8": "FP8's E4M3, subnormals too, and its one scale",
    "uqff-afq-bits": "AFQ's bit streams",
    "uqff-afq-group": "AFQ's groups of 32, 64 and 128",
    "uqff-afq-dtype": "AFQ's scales in F16 and BF16",
    "uqff-f8q8": "F8Q8's divisor 416; blocks that cross rows",
    "uqff-mxfp4": "MXFP4's scale bytes 0, 1, 254, 255 and the order of its nibbles",
    "uqff-stack": "stacks of experts, where the family has them",
    "uqff-spread": "the entries of one layer in several shards",
    "uqff-extra": "entries of no family, which are ignored",
    "uqff-bias": "a bias of any float dtype does not matter to the weight",
    "uqff-flat": "blocks in a payload of another rank are read flat",
    "uqff-tag": "family tags 0 to 6",
    "uqff-tag-type": "the family tag is a U8 scalar",
    "uqff-orphan": "a layer has a weight",
    "uqff-ggml-code": "codes of GGML types, all 32 bits of them",
    "uqff-missing": "every entry of a family is there",
    "uqff-metadata": "the dtype and rank of metadata",
    "uqff-payload": "the dtype of payloads",
    "uqff-block": "no block crosses a row",
    "uqff-length": "a payload has the bytes of its shape",
    "uqff-length-wrap": "a number of bytes that modulo 2^32 or 2^64 is that of the payload",
    "uqff-dims": "one to three dimensions, none of them 0",
    "uqff-mixed": "a dense layer has no dtype and no shape beside it",
    "uqff-bits": "the widths that AFQ and HQQ have",
    "uqff-group": "the groups that AFQ and HQQ have",
    "uqff-axis": "HQQ along axis 0 with one scale a column",
    "uqff-geometry": "weight, scales, zeros or biases that do not fit each other",
    "uqff-fp8-code": "codes of element types in FP8",
    "uqff-fp8-scale": "FP8's scales are F32 scalars",
    "uqff-num-blocks": "F8Q8's num_blocks",
    "uqff-no-stack": "families that have no stacks of experts",
    "uqff-bias-shape": "the shape of a bias, which holds floats",
    "uqff-key": "a layer that is not there",
    "uqff-lazy": "what is wrong with a layer does not spoil the set",
    "uqff-names": "names of no layer",
}

# The good twins.
Q4, DENSE, H4, F8, A4 = ggml(2, 2, 32), unquant("F32", 2, 3), hqq(4, 4, 32), fp8(2, 4), afq(4, 2, 64)
F5, MX = f8q8(2, 32), mxfp4(2, 64)
TWINS = {"ggml": Q4, "unquant": DENSE, "hqq": H4, "fp8": F8, "afq": A4, "f8q8": F5, "mxfp4": MX}
YES, NO = "required", "recommended"
# A payload that does not fit its shape is two rules of the format: G6, where a short one is read past its end, and Q3,
# where shape, payload and num_blocks are to agree.
RULES = {"q4_0": "; G6: a short payload is bounds, a long one shape", "f8q8": "; Q3: shape"}


# ---- what is good


def engine_layer(name: str) -> Layer:
    """The engine's layer of a type, from files/quant/layer.json."""
    found = json.loads((KAT / "files/quant/layer.json").read_text())
    stored = {k[len("weight") :]: bytes.fromhex(v) for k, v in found["types"][name].items() if k.startswith("weight")}
    out, width = found["shape"]
    made: Layer = {}
    for suffix, content in stored.items():
        if suffix == ".shape":
            made[suffix] = ("U32", (len(content) // 4,), content)
        elif suffix not in ("", ".scales", ".biases", ".zeros"):
            made[suffix] = ("U8" if len(content) == 1 else "F32" if "scale" in suffix else "U32", (), content)
        elif name.startswith("afq"):
            made[suffix] = ("F32" if suffix else "U32", (out, len(content) // out // 4), content)
        elif name.startswith("hqq"):
            made[suffix] = (
                ("F32", (1, len(content) // 4), content) if suffix else ("U8", (-1, out * width // 64), content)
            )
        elif name in ("fp8", "mxfp4"):
            made[suffix] = ("F8_E4M3" if name == "fp8" else "U8", (out, len(content) // out), content)
        else:
            made[suffix] = ("U8", (len(content),), content)
    if name.startswith("hqq"):
        columns = out * width // 64
        made[""] = ("U8", (len(made[""][2]) // columns, columns), made[""][2])
    values = decoded(made)
    prove(
        hashlib.sha256(values.tobytes()).hexdigest() == found["types"][name]["f32_sha256"],
        "the engine's values of " + name,
    )
    prove(list(values.shape) == found["shape"], "the engine's shape")
    return made


def engine_cases() -> Iterator[tuple[str, str, str, Layer, str]]:
    """(name, key, path, layer, sha256 of its values) of the engine's own folders: each label in each shape once."""
    seen = set()
    for folder in sorted((KAT / "files/uqff").iterdir()):
        tensors: Tensors = {}
        for file in sorted(folder.glob("*.uqff")):
            content = file.read_bytes()
            size = 8 + int.from_bytes(content[:8], "little")
            for name, e in json.loads(content[8:size]).items():
                if name != "__metadata__":
                    a, b = e["data_offsets"]
                    tensors[name] = (e["dtype"], tuple(e["shape"]), content[size + a : size + b])
        for expected in json.loads((folder / "expected/index.json").read_text())["layers"]:
            key, shape = expected["key"], tuple(expected["shape"])
            weight = key + ".weight"
            layer = {n[len(weight) :]: t for n, t in tensors.items() if n == weight or n.startswith(weight + ".")}
            kind = (expected["stored"], shape, key + ".bias" in tensors)
            if kind in seen:
                continue
            seen.add(kind)
            prove(label_of(layer) == expected["stored"], "the engine's label")
            name = "engine-%s-%s" % (expected["stored"].replace("_", "-"), "x".join(map(str, shape)))
            yield name + "-bias" * kind[2], key, "files/uqff/" + folder.name, layer, expected["f32_sha256"]


def made_layers() -> Iterator[tuple[str, str, str, Layer, Tensor | None, str, str]]:
    """(name, comment, flags, layer, bias, source, level)."""
    for name in json.loads((KAT / "files/quant/layer.json").read_text())["types"]:
        if name in ("afq2", "afq4", "afq8", "hqq8", "q4_1"):  # the folders have the others
            flags = {"a": "uqff-afq-bits", "h": "uqff-hqq-bits"}.get(name[0], "uqff-ggml")
            yield (
                name.replace("_", "-"), "a layer of %s that the engine wrote" % name, flags, engine_layer(name), None, ENGINE,
                "required",
            )  # fmt: skip
    for code, (label, elements, size) in GGML.items():
        if elements == 256:
            blocks = (KAT / "files/quant" / ("kquants-%s.bin" % label)).read_bytes()[-4 * size :]
            layer = {**ggml(code, 4, 256), "": ("U8", (4 * size,), blocks)}
            level = "recommended" if label == "q8k" else "required"
            source = "mistralrs 0.9.5 wrote it; %s decodes it" % ("numpy" if label == "q8k" else PEER)
            comment = "four rows of %s that the engine wrote" % label
            yield "rows-" + label, comment, "uqff-ggml", layer, None, source, level
    for code, shape in (
        (0, (3, 5)), (1, (3, 5)), (30, (3, 5)), (2, (32,)), (3, (2, 3, 32)), (6, (1, 1, 64)), (8, (3, 2, 32)),
        (10, (2, 1, 256)),
    ):  # fmt: skip
        label = GGML[code][0]
        name = "ggml-%s-rank-%d" % (label.replace("_", "-"), len(shape))
        comment, flags = "%s of shape %s" % (label, list(shape)), "uqff-ggml" + " uqff-stack" * (len(shape) == 3)
        yield name, comment, flags, ggml(code, *shape), None, PEER if code not in (0, 1, 30) else SPEC, "required"
    comment = "a payload of shape [2, 18]"
    flat = ggml(2, 2, 32)
    yield (
        "ggml-payload-rank-2", comment, "uqff-flat", {**flat, "": ("U8", (2, 18), flat[""][2])}, None, PEER,
        "required",
    )  # fmt: skip
    for dtype in ("F32", "F16", "BF16"):
        for shape in ((3, 5), (2, 3, 5)):
            name = "unquant-%s-rank-%d" % (dtype.lower(), len(shape))
            flags = "uqff-unquant" + " uqff-stack" * (len(shape) == 3)
            comment = "a dense layer of %s, shape %s" % (dtype, list(shape))
            yield name, comment, flags, unquant(dtype, *shape), None, SPEC, "required"
    for bits in PER_WORD:
        for group in (64, 40):
            name = "hqq%d-group-%s" % (bits, group)
            comment = "%d bits, a group of %d down the columns; rows of 16" % (bits, group)
            yield (
                name, comment, "uqff-hqq-bits uqff-hqq-columns", hqq(bits, 20, 16, group=group), None, SPEC,
                "required",
            )  # fmt: skip
    for dtype in ("F16", "BF16"):
        yield (
            "hqq4-" + dtype.lower(), "scales and zeros of " + dtype, "uqff-hqq-round", hqq(4, 8, 16, dtype=dtype),
            None, SPEC, "required",
        )  # fmt: skip
    edit = {".round_zeros": u8(1), ".optimization_steps": u32(0)}
    yield (
        "hqq4-other-options", "round_zeros 1, no steps: nothing changes", "uqff-hqq-bits", {**hqq(4, 4, 32), **edit},
        None, SPEC, "required",
    )  # fmt: skip
    edit = {".round_zeros": u8(255), ".channel_wise": u8(255), ".optimization_steps": u32(0xFFFFFFFF)}
    yield (
        "hqq4-highest-options", "round_zeros and channel_wise 255, 2^32 - 1 steps: nothing changes", "uqff-hqq-bits",
        {**hqq(4, 4, 32), **edit}, None, SPEC, "recommended",
    )  # fmt: skip
    yield "fp8-all-bytes", "all bytes but NaN", "uqff-fp8", fp8(2, 127), None, SPEC, "required"
    yield "fp8-scale-0", "a scale of 0", "uqff-fp8", fp8(2, 4, scale=0.0), None, SPEC, "required"
    layer = {**fp8(2, 4), ".dequant_x_scale": smooth("fp8 x", "F32")}
    yield "fp8-scales-differ", "another scale for the activations", "uqff-fp8", layer, None, SPEC, "required"
    yield "fp8-scale-negative", "a negative scale", "uqff-fp8", fp8(2, 4, scale=-0.1), None, SPEC, "required"
    for name, code in (("lowest", 0), ("highest", 13)):
        layer = {**fp8(2, 4), ".dtype": u32(code)}
        yield "fp8-code-" + name, "the code %d of its table" % code, "uqff-fp8-code", layer, None, SPEC, "required"
    for bits in (2, 3, 4, 6, 8):
        for group in (32, 128):
            name, comment = "afq%d-group-%d" % (bits, group), "%d bits in groups of %d" % (bits, group)
            yield (
                name + "-wide", comment, "uqff-afq-bits uqff-afq-group", afq(bits, 2, 128, group=group), None, SPEC,
                "required",
            )  # fmt: skip
    for dtype in ("F16", "BF16"):
        yield (
            "afq4-" + dtype.lower(), "scales and biases of " + dtype, "uqff-afq-dtype", afq(4, 2, 64, dtype=dtype),
            None, SPEC, "required",
        )  # fmt: skip
    yield "afq3-stack", "a stack of experts", "uqff-afq-bits uqff-stack", afq(3, 2, 3, 64), None, SPEC, "required"
    for name, shape in (("one-block", (1, 32)), ("padded", (1, 31)), ("across-rows", (3, 20)), ("one-value", (1, 1))):
        yield "f8q8-" + name, "shape %s" % list(shape), "uqff-f8q8", f8q8(*shape), None, SPEC, "required"
    yield "f8q8-many-scales", "127 blocks, all scales but NaN", "uqff-f8q8", f8q8(127, 32), None, SPEC, "required"
    yield (
        "mxfp4-all-codes", "all nibbles", "uqff-mxfp4", {**mxfp4(2, 256), "": ("U8", (2, 128), bytes(range(256)))},
        None, SPEC, "required",
    )  # fmt: skip
    nonzero = bytes(b | 0x11 for b in data("mxfp4 nonzero", 32))
    for name, byte in (("0", 0), ("1", 1), ("254", 254), ("255", 255)):
        layer = {**mxfp4(2, 32, scales=bytes([byte, 127])), "": ("U8", (2, 16), nonzero)}
        yield "mxfp4-scale-%s-first" % name, "a scale byte of " + name, "uqff-mxfp4", layer, None, SPEC, "required"
    yield "mxfp4-stack", "a stack of experts", "uqff-mxfp4 uqff-stack", mxfp4(2, 2, 32), None, SPEC, "required"
    for dtype in ("F32", "F16", "BF16", "F64", "F8_E4M3", "F8_E5M2"):
        bias = smooth("bias", dtype, 2)
        yield (
            "bias-" + dtype.lower().replace("_", "-"), "a bias of " + dtype, "uqff-bias", afq(4, 2, 64), bias, SPEC,
            "required",
        )  # fmt: skip
    flat = f8q8(2, 32)
    yield (
        "f8q8-payload-rank-2", "a payload of shape [2, 33]", "uqff-flat", {**flat, "": ("U8", (2, 33), flat[""][2])},
        None, SPEC, "required",
    )  # fmt: skip
    for name, layer, why in (
        ("fp8", fp8(2, 4), "; the engine loads it, and fails in forward"),
        ("mxfp4", mxfp4(2, 32), "; the engine loads it, and fails in forward"), ("f8q8", f8q8(2, 32), ""),
        ("hqq", hqq(4, 2, 64), ""), ("unquant", unquant("F32", 2, 3), ""),
    ):  # fmt: skip
        comment, bias = "an F32 bias beside a weight of %s%s" % (name, why), smooth("bias", "F32", 2)
        yield "bias-beside-" + name, comment, "uqff-bias", layer, bias, SPEC, "required"
    yield (
        "bias-of-stack", "a bias of [experts, out]", "uqff-bias uqff-stack", afq(4, 2, 3, 64),
        smooth("bias", "F32", 2, 3), SPEC, "required",
    )  # fmt: skip
    for name, edit in (
        ("suffix", {".quux": u8(1)}), ("other-family", {".scales": smooth("x", "F32", 2)}),
        ("nested", {".a.b": u32(1)}),
    ):  # fmt: skip
        comment = "an entry weight%s, which is none of its family" % "".join(edit)
        yield "extra-" + name, comment, "uqff-extra", {**ggml(2, 2, 32), **edit}, None, PEER, "required"
    for name, layer, extra in (
        ("unquant-scales", unquant("F32", 2, 3), {".scales": blank("F32", 2)}),
        ("afq-shape", afq(4, 2, 64), {".shape": u32s(3, 64)}), ("mxfp4-shape", mxfp4(2, 32), {".shape": u32s(3, 32)}),
        ("fp8-shape", fp8(2, 4), {".shape": u32s(4, 2)}), ("hqq-biases", hqq(4, 2, 64), {".biases": blank("F32", 2)}),
        ("f8q8-dtype", f8q8(2, 32), {".dtype": u32(99)}),
    ):  # fmt: skip
        comment = "an entry weight%s, which this family does not read" % "".join(extra)
        yield "extra-" + name, comment, "uqff-extra", {**layer, **extra}, None, SPEC, "required"


# ---- what is not


def told(layer: Layer, edit: Edit) -> str:
    """What is edited, beside what is as it was."""

    def facts(tensors: Edit) -> str:
        found = []
        for suffix, t in tensors.items():
            value: Any = list(t[1])
            if suffix == ".shape":
                value = np.frombuffer(t[2], "<u4").tolist()
            elif suffix in (".bits", ".group_size"):
                value = number(t)
            found.append("%s %s" % (suffix[1:] or "weight", value))
        return ", ".join(found)

    fixed = (".format", ".axis", ".optimization_steps", ".round_zeros", ".channel_wise", *edit)
    rest = facts({s: t for s, t in layer.items() if s not in fixed})
    return facts(edit) + (", beside " + rest if rest else "")


def faulty_tags() -> Iterator[Fault]:
    """Family tags, weights and entries that are missing or unknown."""
    for tag in (7, 8, 16, 127, 128, 255):
        yield "tag-%d-unknown" % tag, "family tag %d" % tag, "uqff-tag", "unsupported", YES, Q4, {".format": u8(tag)}
    yield "tag-missing", "no family tag", "uqff-tag-type", "missing", YES, Q4, {".format": None}
    for name, tensor in (
        ("u32", u32(0)), ("i8", ("I8", (), b"\0")), ("u16", ("U16", (), b"\0\0")), ("bool", ("BOOL", (), b"\0")),
        ("rank-one", ("U8", (1,), b"\0")), ("empty", ("U8", (0,), b"")), ("rank-two", ("U8", (1, 1), b"\0")),
    ):  # fmt: skip
        yield (
            "tag-" + name, "the family tag as %s of shape %s" % (tensor[0], list(tensor[1])), "uqff-tag-type",
            "dtype", YES, Q4, {".format": tensor},
        )  # fmt: skip
    for family, layer in TWINS.items():
        yield family + "-no-weight", "everything but the weight", "uqff-orphan", "missing", YES, layer, {"": None}
        for suffix in layer:
            if suffix not in ("", ".format"):
                level = NO if suffix == ".num_blocks" else YES
                name = "%s-no-%s" % (family, suffix[1:].replace("_", "-"))
                yield name, "no %s" % suffix, "uqff-missing", "missing", level, layer, {suffix: None}


def faulty_metadata() -> Iterator[Fault]:
    """Codes, and metadata of another dtype or rank."""
    for code in (4, 5, 16, 17, 29, 31, 99, 255, 256 + 2, 65536 + 2, (1 << 31) + 2, (1 << 32) - 1):
        wrap = ", whose low byte is that of q4_0" if code & 255 == 2 else ""
        yield (
            "ggml-code-%d-unknown" % code, "GGML code %d%s" % (code, wrap), "uqff-ggml-code", "dtype", YES, Q4,
            {".dtype": u32(code)},
        )  # fmt: skip
    for family, suffixes in (
        ("ggml", (".dtype",)), ("fp8", (".dtype",)), ("afq", (".bits", ".group_size")), ("f8q8", (".num_blocks",)),
        ("hqq", (".bits", ".group_size", ".axis", ".optimization_steps", ".round_zeros", ".channel_wise")),
    ):  # fmt: skip
        for suffix in suffixes:
            dtype, _, content = TWINS[family][suffix]
            other = ("U32", (), content + bytes(3)) if dtype == "U8" else ("I32", (), content)
            name = "%s-%s" % (family, suffix[1:].replace("_", "-"))
            level = NO if suffix == ".num_blocks" else YES
            for kind, tensor in ((other[0].lower(), other), ("rank-one", (dtype, (1,), content))):
                comment = "%s as %s of shape %s" % (suffix, tensor[0], list(tensor[1]))
                yield (
                    "%s-as-%s" % (name, kind), comment, "uqff-metadata", "dtype", level, TWINS[family],
                    {suffix: tensor},
                )  # fmt: skip
    yield (
        "hqq-group-size-as-u8", "group_size as U8, as AFQ has it", "uqff-metadata", "dtype", YES, H4,
        {".group_size": u8(64)},
    )  # fmt: skip
    for family in ("ggml", "hqq", "f8q8"):
        _, (rank,), content = TWINS[family][".shape"]
        wide = b"".join(content[i : i + 4] + bytes(4) for i in range(0, len(content), 4))
        for kind, tensor in (
            ("i32", ("I32", (rank,), content)), ("i64", ("I64", (rank,), wide)),
            ("rank-two", ("U32", (1, rank), content)),
            ("scalar", ("U32", (), content[:4])),
        ):  # fmt: skip
            comment = ".shape as %s of shape %s" % (tensor[0], list(tensor[1]))
            yield (
                "%s-shape-as-%s" % (family, kind), comment, "uqff-metadata", "dtype", YES, TWINS[family],
                {".shape": tensor},
            )  # fmt: skip


def faulty_dtypes() -> Iterator[Fault]:
    """Payloads of another dtype."""
    for family, suffix, dtypes in (
        ("ggml", "", ("I8", "F8_E4M3", "BOOL")), ("f8q8", "", ("I8",)), ("unquant", "", ("I32", "U32")),
        ("hqq", "", ("I8", "BOOL")),
        ("hqq", ".scales", ("I32", "U32")), ("hqq", ".zeros", ("I32",)), ("fp8", "", ("U8", "F8_E5M2", "I8")),
        ("afq", "", ("I32", "F32")),
        ("afq", ".scales", ("I32", "U32")), ("afq", ".biases", ("I32",)), ("mxfp4", "", ("I8", "F8_E4M3")),
        ("mxfp4", ".scales", ("I8", "F8_E8M0")),
    ):  # fmt: skip
        for dtype in dtypes:
            _, shape, content = TWINS[family][suffix]
            name = "%s-%s-as-%s" % (family, suffix[1:] or "weight", dtype.lower().replace("_", "-"))
            level = YES if family in ("ggml", "f8q8") else NO
            comment = "%s of %s" % (suffix or "weight", dtype)
            yield name, comment, "uqff-payload", "dtype", level, TWINS[family], {suffix: (dtype, shape, content)}
    for dtype in ("F64", "F8_E4M3", "U8", "I16", "U64"):
        yield (
            "unquant-" + dtype.lower().replace("_", "-"), "a dense weight of " + dtype, "uqff-payload", "dtype", NO,
            DENSE, {"": blank(dtype, 2, 3)},
        )  # fmt: skip
    yield "hqq3-weight-as-u8", "3 bits in bytes", "uqff-payload", "dtype", NO, hqq(3, 4, 32), {"": blank("U8", 7, 2)}
    yield "hqq4-weight-as-i32", "4 bits in words", "uqff-payload", "dtype", NO, H4, {"": blank("I32", 32, 2)}
    for family, both in (("hqq", (".scales", ".zeros")), ("afq", (".scales", ".biases"))):
        for dtype in ("I32", "F64"):
            edit = {suffix: blank(dtype, *TWINS[family][suffix][1]) for suffix in both}
            name = "%s-numbers-as-%s" % (family, dtype.lower())
            yield name, "%s and %s of %s" % (*both, dtype), "uqff-payload", "dtype", NO, TWINS[family], edit
    for family, other in (("hqq", ".zeros"), ("afq", ".biases")):
        shape = TWINS[family][other][1]
        for dtype in ("F16", "BF16"):
            name = "%s-%s-of-%s" % (family, other[1:], dtype.lower())
            comment = "%s of %s beside scales of F32" % (other, dtype)
            yield name, comment, "uqff-payload", "dtype", NO, TWINS[family], {other: smooth("x", dtype, *shape)}


def faulty_ggml() -> Iterator[Fault]:
    """Blocks across rows; payloads that are too short or too long."""
    for name, code, shape, size in (
        ("16-wide", 2, (2, 16), 18), ("48-wide", 2, (2, 48), 54), ("one-wide", 8, (32, 1), 34),
        ("31-wide", 8, (32, 31), 34 * 31),
        ("128-wide", 12, (2, 128), 144), ("transposed", 2, (32, 2), 36), ("stack", 3, (2, 1, 16), 20),
    ):  # fmt: skip
        label, elements, block = GGML[code]
        prove(product(shape) % elements == 0 and product(shape) // elements * block == size, "whole blocks in all")
        comment = "%s of shape %s: blocks would cross rows" % (label, list(shape))
        edit = {".dtype": u32(code), ".shape": u32s(*shape), "": noise("U8", size)}
        yield "ggml-%s-rows" % name, comment, "uqff-block", "shape", YES, Q4, edit
    for name, shape, size in (
        ("empty", (2, 32), 0), ("one-block-short", (2, 32), 18), ("one-byte-short", (2, 32), 35),
        ("one-row-more", (3, 32), 36),
        ("one-expert-more", (2, 2, 32), 54), ("top", (0xFFFFFFFF, 32), 36),
    ):  # fmt: skip
        comment = "%d bytes, shape %s of q4_0" % (size, list(shape))
        yield (
            "ggml-payload-" + name, comment, "uqff-length", "bounds", NO, Q4,
            {"": noise("U8", size), ".shape": u32s(*shape)},
        )  # fmt: skip
    for name, shape, size in (
        ("one-byte-long", (2, 32), 37), ("one-block-long", (2, 32), 54), ("one-row-less", (1, 32), 36),
        ("one-dimension", (32,), 36),
    ):  # fmt: skip
        comment = "%d bytes, shape %s of q4_0" % (size, list(shape))
        yield (
            "ggml-payload-" + name, comment, "uqff-length", "shape", NO, Q4,
            {"": noise("U8", size), ".shape": u32s(*shape)},
        )  # fmt: skip
    yield (
        "ggml-payload-of-q4-1", "blocks of q4_1, the code of q4_0", "uqff-length", "shape", NO, Q4,
        {"": noise("U8", 40)},
    )  # fmt: skip
    yield (
        "ggml-payload-of-q4-0", "blocks of q4_0, the code of q4_1", "uqff-length", "bounds", NO, Q4,
        {".dtype": u32(3)},
    )  # fmt: skip
    for name, code, shape, word in (
        ("bytes-32", 2, ((1 << 31) + 2, 32), 32), ("elements-32", 0, (641, 6700417), 32),
        ("elements-64", 2, (315916329, 1824726041, 32), 64), ("to-0", 30, (1 << 31, 2, 1), 32),
        ("to-0-in-64", 30, (1 << 31, 1 << 31, 4), 64),
    ):  # fmt: skip
        _, elements, block = GGML[code]
        n = product(shape)
        size = (
            n % (1 << word) // elements * block if name.startswith("elements") else n // elements * block % (1 << word)
        )
        prove(size <= 64 and max(n, n // elements * block) >= 1 << word, "the bytes wrap around")
        edit = {".dtype": u32(code), ".shape": u32s(*shape), "": noise("U8", size)}
        comment = "shape %s, modulo 2^%d %d bytes" % (list(shape), word, size)
        yield "ggml-wrap-" + name, comment, "uqff-length uqff-length-wrap", "bounds", NO, Q4, edit


def faulty_dims() -> Iterator[Fault]:
    """Dimensions of 0, too many, none."""
    for family, layer in (("ggml", Q4), ("f8q8", F5), ("hqq", H4)):
        for name, shape in (
            ("no-dimensions", ()), ("four", (1, 1, 4 if family == "hqq" else 2, 32)), ("zero-rows", (0, 32)),
            ("zero-columns", (2, 0)),
        ):  # fmt: skip
            edit: Edit = {".shape": u32s(*shape)}
            if 0 in shape and family == "hqq":
                edit.update({s: blank(layer[s][0], *layer[s][1][:1], 0) for s in ("", ".scales", ".zeros")})
            elif 0 in shape:
                edit.update({"": blank("U8", 0), **({".num_blocks": u32(0)} if family == "f8q8" else {})})
            elif family == "ggml" and not shape:
                edit.update({".dtype": u32(0), "": blank("U8", 4)})  # one F32
            yield "%s-dims-%s" % (family, name), "shape %s" % list(shape), "uqff-dims", "shape", NO, layer, edit
    for name, shape in (("no-dimensions", ()), ("four", (1, 1, 2, 3)), ("zero-rows", (0, 3)), ("zero-columns", (2, 0))):
        yield (
            "unquant-dims-" + name, "shape %s" % list(shape), "uqff-dims", "shape", NO, DENSE,
            {"": blank("F32", *shape)},
        )  # fmt: skip
        edit = {"": blank("F8_E4M3", *shape)}
        yield "fp8-dims-" + name, "shape %s" % list(shape), "uqff-dims", "shape", NO, F8, edit
    for name, lead in (("zero-rows", (0,)), ("four", (1, 1, 2)), ("zero-experts", (0, 2))):
        edit = {"": blank("U32", *lead, 8), ".scales": blank("F32", *lead, 1), ".biases": blank("F32", *lead, 1)}
        yield "afq-dims-" + name, "leading dimensions %s" % list(lead), "uqff-dims", "shape", NO, A4, edit
        edit = {"": blank("U8", *lead, 32), ".scales": blank("U8", *lead, 2)}
        yield "mxfp4-dims-" + name, "leading dimensions %s" % list(lead), "uqff-dims", "shape", NO, MX, edit


def faulty_numbers() -> Iterator[Fault]:
    """Widths, groups and axes that there are not."""
    for suffix, tensor in ((".shape", u32s(2, 3)), (".dtype", u32(0))):
        yield (
            "unquant-with" + suffix.replace(".", "-"), "a dense layer with a %s" % suffix, "uqff-mixed", "layout", NO,
            DENSE, {suffix: tensor},
        )  # fmt: skip
    for bits in (0, 1, 5, 7, 9, 16, 32):
        edit = {".bits": u8(bits), "": blank("U32", 2, 2 * bits)}
        yield "afq-bits-%d-wide" % bits, "%d bits, in a weight that fits" % bits, "uqff-bits", "range", YES, A4, edit
    for group in (0, 16, 31, 48, 63, 65, 96, 255):
        words, groups = (group, 4) if group else (8, 1)  # four groups of 8-bit codes, a word a code
        scales = blank("F32", 2, groups)
        edit = {
            ".bits": u8(8), ".group_size": u8(group), "": blank("U32", 2, words), ".scales": scales,
            ".biases": scales,
        }  # fmt: skip
        yield "afq-group-%d-values" % group, "groups of %d" % group, "uqff-group", "range", YES, A4, edit
    for bits in (0, 5, 6, 7, 16, 32, 255):
        yield "hqq-bits-%d-wide" % bits, "%d bits" % bits, "uqff-bits", "range", YES, H4, {".bits": u8(bits)}
    yield "hqq-group-0-values", "a group size of 0", "uqff-group", "range", YES, H4, {".group_size": u32(0)}
    for axis in (2, 3, 128, 255):
        yield "hqq-axis-%d-of-two" % axis, "axis %d" % axis, "uqff-axis", "range", YES, H4, {".axis": u8(axis)}
    yield (
        "hqq-axis-1-of-two", "axis 1, whose packing nobody has specified", "uqff-axis", "unsupported", NO, H4,
        {".axis": u8(1)},
    )  # fmt: skip
    yield "hqq-not-channel-wise", "channel_wise 0", "uqff-axis", "unsupported", NO, H4, {".channel_wise": u8(0)}


def faulty_hqq() -> Iterator[Fault]:
    """HQQ's entries do not fit each other."""
    for name, edit in (
        ("weight-rows", {"": blank("U8", 33, 2)}), ("weight-rows-less", {"": blank("U8", 31, 2)}),
        ("weight-columns", {"": blank("U8", 32, 3)}),
        ("weight-unpacked", {"": blank("U8", 64, 2)}), ("weight-flat", {"": blank("U8", 64)}),
        ("weight-transposed", {"": blank("U8", 2, 32)}),
        ("scales-more", {".scales": blank("F32", 1, 3)}), ("scales-less", {".scales": blank("F32", 1, 1)}),
        ("zeros-more", {".zeros": blank("F32", 1, 3)}), ("zeros-none", {".zeros": blank("F32", 1, 0)}),
        ("shape-more", {".shape": u32s(6, 32)}), ("group-doubled", {".group_size": u32(128)}),
        ("elements-odd", {".shape": u32s(3, 31)}),
        ("elements-floor", {**{s: hqq(4, 2, 32)[s] for s in ("", ".scales", ".zeros")}, ".shape": u32s(3, 31)}),
        ("group-above", {".group_size": u32((1 << 32) - 64)}),
    ):  # fmt: skip
        yield "hqq-" + name, told(H4, edit), "uqff-geometry", "shape", NO, H4, edit
    for bits, group in ((4, 1), (4, 63), (2, 2), (2, 62), (1, 4), (1, 60)):
        wrong = hqq(bits, 2, group, group=group)
        prove(wrong[""][1] == (-(-group // PER_WORD[bits]), 2), "nothing else is wrong: its rows are rounded up")
        edit = {suffix: wrong[suffix] for suffix in ("", ".shape", ".bits", ".group_size")}
        comment = "a group of %d, which does not fill bytes of %d bits" % (group, bits)
        yield "hqq%d-group-of-%d-rows" % (bits, group), comment, "uqff-geometry", "shape", NO, H4, edit
    for name, rows in (("less", 6), ("more", 8)):
        comment, edit = "%d rows of 3-bit words instead of 7" % rows, {"": blank("I32", rows, 2)}
        yield "hqq3-rows-" + name, comment, "uqff-geometry", "shape", NO, hqq(3, 4, 32), edit
    for name, shape in (
        ("flat", (2,)), ("transposed", (2, 1)), ("two-rows", (2, 2)), ("scalar", ()), ("rank-three", (1, 1, 2)),
    ):  # fmt: skip
        yield (
            "hqq-scales-" + name, "scales of shape %s" % list(shape), "uqff-geometry", "unsupported", NO, H4,
            {".scales": blank("F32", *shape)},
        )  # fmt: skip


def faulty_fp8() -> Iterator[Fault]:
    """FP8's codes and scales."""
    for code in (14, 15, 99, 256 + 9, 65536 + 9, (1 << 31) + 9, (1 << 32) - 1):
        yield (
            "fp8-code-%d-unknown" % code, "element type %d" % code, "uqff-fp8-code", "dtype", YES, F8,
            {".dtype": u32(code)},
        )  # fmt: skip
    for suffix in (".dequant_w_scale", ".dequant_x_scale", ".quant_scale"):
        for kind, tensor in (
            ("f16", blank("F16")), ("f64", blank("F64")), ("u32", blank("U32")), ("rank-one", smooth("x", "F32", 1)),
            ("two", smooth("x", "F32", 2)),
        ):  # fmt: skip
            name = "fp8-%s-%s" % (suffix[1:].replace("_", "-"), kind)
            comment = "%s as %s of shape %s" % (suffix, tensor[0], list(tensor[1]))
            yield name, comment, "uqff-fp8-scale", "dtype", NO, F8, {suffix: tensor}


def faulty_afq() -> Iterator[Fault]:
    """AFQ's and MXFP4's entries do not fit each other."""
    for name, edit in (
        ("weight-more", {"": blank("U32", 2, 9)}), ("weight-less", {"": blank("U32", 2, 7)}),
        ("weight-rows", {"": blank("U32", 3, 8)}),
        ("weight-flat", {"": blank("U32", 16)}),
        ("scales-more", {".scales": blank("F32", 2, 2), ".biases": blank("F32", 2, 2)}),
        ("scales-none", {".scales": blank("F32", 2, 0), ".biases": blank("F32", 2, 0)}),
        ("scales-rows", {".scales": blank("F32", 1, 1), ".biases": blank("F32", 1, 1)}),
        ("scales-flat", {".scales": blank("F32", 2), ".biases": blank("F32", 2)}),
        ("scales-transposed", {".scales": blank("F32", 1, 2), ".biases": blank("F32", 1, 2)}),
        ("biases-more", {".biases": blank("F32", 2, 2)}), ("biases-less", {".biases": blank("F32", 1, 1)}),
        ("bits-other", {".bits": u8(8)}), ("bits-less", {".bits": u8(3)}), ("group-other", {".group_size": u8(32)}),
        ("group-more", {".group_size": u8(128)}),
    ):  # fmt: skip
        yield "afq-" + name, told(A4, edit), "uqff-geometry", "shape", NO, A4, edit
    for name, edit in (
        ("scales-more", {".scales": blank("U8", 2, 3)}), ("scales-less", {".scales": blank("U8", 2, 1)}),
        ("scales-rows", {".scales": blank("U8", 1, 2)}),
        ("scales-flat", {".scales": blank("U8", 4)}), ("scales-scalar", {".scales": blank("U8")}),
        ("weight-rows", {"": blank("U8", 3, 32)}),
        ("weight-half-block", {"": blank("U8", 2, 24), ".scales": blank("U8", 2, 1)}),
        ("weight-half-block-up", {"": blank("U8", 2, 24), ".scales": blank("U8", 2, 2)}),
        ("weight-flat", {"": blank("U8", 64)}),
        ("weight-scalar", {"": blank("U8")}),
    ):  # fmt: skip
        yield "mxfp4-" + name, told(MX, edit), "uqff-geometry", "shape", NO, MX, edit


def faulty_f8q8() -> Iterator[Fault]:
    """F8Q8's blocks."""
    for size in (1, 32, 34, 65, 67, 99 - 1):
        yield (
            "f8q8-payload-of-%d-bytes" % size, "%d bytes, blocks of 33" % size, "uqff-length", "shape", YES, F5,
            {"": noise("U8", size)},
        )  # fmt: skip
    for name, shape, blocks, stated in (
        ("stated-less", (2, 32), 2, 1), ("stated-more", (2, 32), 2, 3), ("stated-0", (2, 32), 2, 0),
        ("stated-wrap", (2, 32), 2, 258),
        ("shape-more", (2, 33), 2, 2), ("shape-less", (1, 32), 2, 2), ("payload-more", (2, 32), 3, 3),
        ("payload-empty", (2, 32), 0, 0),
    ):  # fmt: skip
        flags = "uqff-num-blocks" if name.startswith("stated") else "uqff-length"
        comment = "shape %s, %d blocks, num_blocks %d" % (list(shape), blocks, stated)
        edit = {".shape": u32s(*shape), "": noise("U8", 33 * blocks), ".num_blocks": u32(stated)}
        yield "f8q8-" + name, comment, flags, "shape", NO, F5, edit
    shape = ((1 << 27) + 1, 32)
    edit = {".shape": u32s(*shape), "": noise("U8", 33), ".num_blocks": u32(1)}
    prove(product(shape) % (1 << 32) == 32, "one block modulo 2^32")
    yield (
        "f8q8-wrap", "shape %s, modulo 2^32 one block" % list(shape), "uqff-length uqff-length-wrap", "shape", NO, F5,
        edit,
    )  # fmt: skip


def faulty_stacks() -> Iterator[Fault]:
    """Stacks of experts where there are none."""
    yield (
        "hqq-stack", "an HQQ layer with three values in its shape", "uqff-no-stack", "unsupported", YES, H4,
        {".shape": u32s(2, 2, 32)},
    )  # fmt: skip
    yield (
        "f8q8-stack", "an F8Q8 layer with three values in its shape", "uqff-no-stack", "unsupported", YES, F5,
        {".shape": u32s(2, 1, 32)},
    )  # fmt: skip
    yield (
        "fp8-stack", "an FP8 weight of rank 3", "uqff-no-stack", "unsupported", YES, F8,
        {"": blank("F8_E4M3", 2, 2, 2)},
    )  # fmt: skip


FAULTS = (
    faulty_tags, faulty_metadata, faulty_dtypes, faulty_ggml, faulty_dims, faulty_numbers, faulty_hqq, faulty_fp8,
    faulty_afq, faulty_f8q8, faulty_stacks,
)  # fmt: skip


def faulty_biases() -> Iterator[tuple[str, Layer, Tensor]]:
    """(name, layer, bias)."""
    matrix, stack = ggml(2, 2, 32), ggml(2, 2, 3, 32)
    for name, shape in (
        ("more", (3,)), ("less", (1,)), ("none", (0,)), ("scalar", ()), ("of-columns", (32,)), ("row", (1, 2)),
        ("column", (2, 1)), ("like-weight", (2, 32)),
    ):  # fmt: skip
        yield "shape-" + name, matrix, smooth("bias", "F32", *shape)
    for name, shape in (
        ("out-only", (3,)), ("experts-only", (2,)), ("transposed", (3, 2)), ("flat", (6,)),
        ("like-weight", (2, 3, 32)),
    ):  # fmt: skip
        yield "stack-" + name, stack, smooth("bias", "F32", *shape)
    for dtype in ("I32", "U8", "I64", "BOOL"):
        yield "of-" + dtype.lower(), matrix, blank(dtype, 2)


# ---- the cases


def make_uqff_layer(files: dict[str, bytes]) -> Iterator[Case]:
    place = Folder(files)

    def good(
        name: str, comment: str, source: str, flags: str, key: str, path: str, layer: Layer, level: str = "required"
    ) -> Case:
        values = decoded(layer)
        prove(values.dtype == np.float32 and not np.isnan(values).any(), "f32 without NaN")
        out = {"label": label_of(layer), "shape": ",".join(map(str, values.shape)), "sm3": sm3(values.tobytes())}
        return case("uqff-layer-" + name, comment, source, flags, {"key": key, "path": path}, out, level=level)

    families = ("uqff-ggml", "uqff-unquant", "uqff-hqq-columns", "uqff-fp8", "uqff-afq-bits", "uqff-f8q8", "uqff-mxfp4")
    for name, key, path, layer, sha256 in engine_cases():
        prove(hashlib.sha256(decoded(layer).tobytes()).hexdigest() == sha256, "the engine's values of " + name)
        flags = families[number(layer[".format"])]
        level = "recommended" if label_of(layer) in ("q8_1", "q8k") else "required"
        comment = "the engine's layer %s of %s" % (key, path.rpartition("/")[2])
        yield good(name, comment, ENGINE, flags, key, path, layer, level)
    for name, comment, flags, layer, bias, source, level in made_layers():
        path = place.shard("layer-" + name, sound({**version(), **named(layer, bias)}))
        yield good(name, comment, source, flags, KEY, path, layer, level)
    layer = hqq(8, 4, 32)
    parts = list(named(layer).items())
    shards = {"spread-%d.uqff" % i: sound({**(version() if i == 0 else {}), **dict(parts[i::3])}) for i in range(3)}
    path = place.folder("spread", **shards)
    yield good("spread-folder", "a layer whose entries lie in three shards", SPEC, "uqff-spread", KEY, path, layer)
    yield good(
        "spread-last-shard", "the same, the last shard named", SPEC, "uqff-spread", KEY, path + "/spread-2.uqff", layer
    )
    other = {"odd": noise("U8", 3), **version(), **named(afq(4, 2, 64))}
    path = place.shard("layer-unaligned", sound(other))
    yield good("unaligned", "data at odd offsets", SPEC, "uqff-extra", KEY, path, afq(4, 2, 64))
    broken = {**version(), **named(ggml(2, 2, 32)), **named({".format": u8(9)}, key="other")}
    path = place.shard("layer-beside-faulty", sound(broken))
    yield good("beside-faulty", "a good layer beside one that is none", PEER, "uqff-lazy", KEY, path, ggml(2, 2, 32))
    key = "model.layers.0.mlp.experts.gate_proj." + "x" * 300
    path = place.shard("layer-long-key", sound({**version(), **named(ggml(2, 2, 32), key=key)}))
    yield good("long-key", "a key of 337 characters", PEER, "uqff-names", key, path, ggml(2, 2, 32))
    key = "weight.weight"
    path = place.shard("layer-key-weight", sound({**version(), **named(ggml(2, 2, 32), key=key)}))
    yield good("key-weight", "a key that is weight.weight", PEER, "uqff-names", key, path, ggml(2, 2, 32))

    twins: dict[str, str] = {}
    for name, comment, flags, error, level, layer, edit in chain(*(rule() for rule in FAULTS)):
        prove(edited(layer, edit) != layer, "something is edited: " + name)
        path = place.shard("layer-not-" + name, sound({**version(), **named(edited(layer, edit))}))
        label = label_of(layer)
        if label not in twins:
            twins[label] = place.shard(
                "layer-twin-%s-good" % label.replace("_", "-"), sound({**version(), **named(layer)})
            )
            yield good(
                "twin-" + label.replace("_", "-"), "the good twin of those that follow", SPEC, "", KEY, twins[label],
                layer,
            )  # fmt: skip
        source = CATALOGUE
        if level != "required":
            source = STRICTER + (RULES.get(label, "") if "uqff-length" in flags else "")
        yield case(
            "uqff-layer-not-" + name, comment, source, flags, {"key": KEY, "path": path}, error=error, level=level
        )
    for name, layer, bias in faulty_biases():
        path = place.shard("layer-not-bias-" + name, sound({**version(), **named(layer, bias)}))
        comment = "a bias of %s, shape %s" % (bias[0], list(bias[1]))
        kind = "dtype" if name.startswith("of-") and name != "of-columns" else "shape"
        yield case(
            "uqff-layer-not-bias-" + name, comment, STRICTER, "uqff-bias-shape", {"key": KEY, "path": path},
            error=kind, level="recommended",
        )  # fmt: skip
    for name, key in (
        ("unknown", "model.embed_tokens"), ("upper-case", KEY.upper()), ("prefix", KEY[:-1]), ("longer", KEY + "2"),
        ("entry", KEY + ".weight.quux"),
        ("empty", ""),
    ):  # fmt: skip
        into = {"key": key, "path": twins["q4_0"]}
        comment = 'the key "%s", where only %s is there' % (key, KEY)
        yield case("uqff-layer-not-key-" + name, comment, CATALOGUE, "uqff-key", into, error="missing")

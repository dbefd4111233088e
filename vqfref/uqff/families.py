"""The seven families of UQFF layers: which entries each has, what is wrong with a layer, its values. Spec: UQFF 5 to 8.

A `Layer` is the entries of one key; nothing of the payload is read until it is needed. `faults` yields everything that
is wrong with a layer as errors with a severity and the engine's verdict (sections 17 and 18); `decode` raises the first
that forbids its use. Codes are uqff.<id of the catalogue>.<class>.
"""

from __future__ import annotations

import struct
from array import array
from collections import namedtuple

from vqfref.errors import FormatError, UnsupportedError
from vqfref.quant import ggml
from vqfref.quant.afq import afq_decode
from vqfref.quant.hqq import hqq_decode
from vqfref.quant.minifloat import f8q8_decode, fp8_decode, mxfp4_decode
from vqfref.safetensors.reader import decoder
from vqfref.uqff.naming import AFQ, F8Q8, FP8, GGUF, HQQ, MXFP4, UNQUANT

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterator

    from vqfref.safetensors.reader import Entry, SafetensorsFile
    from vqfref.uqff.slicing import Slice

# Section 5. Checks of an entry: "S(T)" a scalar of dtype T, "N(T)" rank 1 or more, "V" a rank-1 U32, "*" anything.
Family = namedtuple("Family", "tag name suffixes")
FAMILIES = (
    Family(GGUF, "gguf", {"": "N(U8)", ".format": "S(U8)", ".dtype": "S(U32)", ".shape": "V"}),
    Family(UNQUANT, "unquant", {"": "*", ".format": "S(U8)"}),
    Family(
        HQQ,
        "hqq",
        {
            "": "*", ".format": "S(U8)", ".scales": "*", ".zeros": "*", ".shape": "V", ".bits": "S(U8)",
            ".group_size": "S(U32)", ".axis": "S(U8)", ".optimization_steps": "S(U32)", ".round_zeros": "S(U8)",
            ".channel_wise": "S(U8)",
        },
    ),
    Family(
        FP8,
        "fp8",
        {
            "": "*", ".format": "S(U8)", ".dequant_w_scale": "*", ".dequant_x_scale": "*", ".quant_scale": "*",
            ".dtype": "S(U32)",
        },
    ),
    Family(
        AFQ,
        "afq",
        {"": "*", ".format": "S(U8)", ".bits": "S(U8)", ".group_size": "S(U8)", ".scales": "*", ".biases": "*"},
    ),
    Family(F8Q8, "f8q8", {"": "N(U8)", ".format": "S(U8)", ".num_blocks": "S(U32)", ".shape": "V"}),
    Family(MXFP4, "mxfp4", {"": "*", ".format": "S(U8)", ".scales": "*"}),
)  # fmt: skip
MISSING = {
    GGUF: "uqff.g2.missing", HQQ: "uqff.h4.missing", FP8: "uqff.p2.missing", AFQ: "uqff.a3.missing",
    F8Q8: "uqff.g2.missing", MXFP4: "uqff.k1.missing",
}  # fmt: skip
FLOATS = ("F32", "F16", "BF16")
FP8_DTYPES = range(14)  # 6.4: codes of the element type
AFQ_BITS, AFQ_GROUPS = (2, 3, 4, 6, 8), (32, 64, 128)
HQQ_BITS = (8, 4, 3, 2, 1)

MAX_METADATA = 4096  # bytes of an entry that the metadata commands read (15)

Fault = namedtuple("Fault", "error severity engine")
Fault.__doc__ = "Something wrong with a layer: a VqfrefError, its severity, and the engine's verdict, as in a Finding."


class Tensor:
    """One stored tensor: its name, the SafetensorsFile that holds it, its Entry there."""

    __slots__ = ("name", "file", "entry")

    def __init__(self, name: str, file: SafetensorsFile, entry: Entry) -> None:
        self.name, self.file, self.entry = name, file, entry

    @property
    def offset(self) -> int:
        """Where its bytes start in the file."""
        return int(self.file.header.data_start + self.entry.begin)


class Layer:
    """The entries of one key: `<key>.weight`, `<key>.weight.<x>` by suffix, and its bias."""

    def __init__(self, key: str) -> None:
        self.key = key
        self.tensors: dict[str, Tensor] = {}  # by suffix, "" for the weight itself
        self.bias: Tensor | None = None

    def entry(self, suffix: str) -> Entry | None:
        """The Entry of a suffix, or None."""
        t = self.tensors.get(suffix)
        return t.entry if t else None

    def dtype(self, suffix: str) -> str:
        """The dtype of an entry."""
        return str(self.tensors[suffix].entry.dtype)

    def read(self, suffix: str) -> memoryview:
        """The bytes of an entry."""
        t = self.tensors[suffix]
        return t.file.raw(t.name)

    def number(self, suffix: str) -> int:
        """The value of a scalar entry of U8 or U32, which has been checked."""
        return int.from_bytes(self.read(suffix), "little")

    def numbers(self, suffix: str) -> tuple[int, ...]:
        """The values of a rank-1 U32 entry, which has been checked; of one beyond MAX_METADATA the first few."""
        data = self.read(suffix)
        data = data if len(data) <= MAX_METADATA else data[:32]
        return struct.unpack("<%dI" % (len(data) // 4), data)

    def path(self, suffix: str = "") -> str | None:
        """The file of an entry."""
        t = self.tensors.get(suffix)
        return t.file.path if t else None

    # -- what the entries say

    @property
    def tag(self) -> int | None:
        """The family tag, or None where it is missing or of the wrong type."""
        entry = self.entry(".format")
        return self.number(".format") if entry and matches(entry, "S(U8)") else None

    @property
    def family(self) -> Any:
        """The Family of the tag, or None."""
        tag = self.tag
        return FAMILIES[tag] if tag is not None and tag < len(FAMILIES) else None

    @property
    def rank(self) -> int:
        """Values in `.shape` if there is one, else the rank of the weight (section 5)."""
        shape, weight = self.entry(".shape"), self.entry("")
        if shape is not None and matches(shape, "V"):
            return int(shape.shape[0])
        return len(weight.shape) if weight else 0

    def logical_shape(self) -> tuple[int, ...]:
        """The shape of the values: [out, in], or [experts, out, in]. For layers without faults."""
        weight = self.entry("")
        tag = self.tag
        if weight is None:
            return ()
        if tag in (GGUF, HQQ, F8Q8):
            return self.numbers(".shape")
        if tag == AFQ:
            scales = self.tensors[".scales"].entry
            return (*scales.shape[:-1], scales.shape[-1] * self.number(".group_size"))
        if tag == MXFP4:
            return (*weight.shape[:-1], weight.shape[-1] * 2)
        return tuple(weight.shape)

    def label(self) -> str:
        """The label of reports (section 5): q4k, afq4, hqq8, fp8 …; unknown where the entries don't tell."""
        tag = self.tag
        if tag == GGUF:
            code = self.entry(".dtype")
            known = ggml.TYPES.get(self.number(".dtype")) if code and matches(code, "S(U32)") else None
            return known.name if known else "unknown"
        if tag in (AFQ, HQQ):
            bits = self.entry(".bits")
            n = self.number(".bits") if bits and matches(bits, "S(U8)") else 0
            name: str = FAMILIES[tag].name
            return "%s%d" % (name, n) if n in AFQ_BITS or (tag == HQQ and n) else name
        family = self.family
        return family.name if family else "unknown"


def matches(entry: Entry, check: str) -> bool:
    """Does an entry pass a check of section 5's table?"""
    if check == "*":
        return True
    if check == "V":
        return entry.dtype == "U32" and len(entry.shape) == 1
    kind, dtype = check[0], check[2:-1]
    return entry.dtype == dtype and (len(entry.shape) == 0) == (kind == "S")


def structural_matches(layer: Layer) -> list[Any]:
    """The families whose entry set is exactly the layer's, dtypes and ranks included (section 5)."""
    return [
        f
        for f in FAMILIES
        if set(f.suffixes) == set(layer.tensors)
        and all(matches(layer.tensors[s].entry, check) for s, check in f.suffixes.items())
    ]


# ---- what is wrong with a layer


def faults(layer: Layer) -> Iterator[Fault]:
    """Everything about one layer that sections 17 and 18 name, in the order in which a reader meets it."""
    judge = _Judge(layer)
    yield from judge.common()
    if judge.stop:
        return
    yield from judge.entries()
    if judge.stop:
        return
    yield from judge.family_rules[layer.tag or 0]()
    yield from judge.bias()


def check(layer: Layer) -> None:
    """Raise the first fault that forbids the layer's use."""
    for fault in faults(layer):
        if fault.severity == "error":
            raise fault.error


class _Judge:
    """The rules for one layer; `stop` is set where what follows can't be judged."""

    def __init__(self, layer: Layer) -> None:
        self.layer = layer
        self.stop = False
        self.family_rules = (self.gguf, self.unquant, self.hqq, self.fp8, self.afq, self.f8q8, self.mxfp4)

    def fault(
        self, code: str, message: str, suffix: str = "", severity: str = "error", engine: str = "refuses"
    ) -> Fault:
        layer = self.layer
        kind = UnsupportedError if code.endswith("unsupported") else FormatError
        t = layer.tensors.get(suffix)
        offset = t.offset if t else None
        path = t.file.path if t else layer.path() or layer.path(".format")
        error = kind(code, message, offset=offset, field=layer.key + ".weight" + suffix, path=path)
        return Fault(error, severity, engine)

    def common(self) -> Iterator[Fault]:
        """Orphans, the tag, rank 3."""
        layer = self.layer
        weight, tag_entry = layer.entry(""), layer.entry(".format")
        if weight is None:
            self.stop = True
            if tag_entry is not None:
                yield self.fault("uqff.o1.missing", "a layer's format without its weight", ".format")
            return
        if tag_entry is None or not matches(tag_entry, "S(U8)"):
            self.stop = True
            code, found = "uqff.f2.missing", "missing"
            if tag_entry is not None:
                code, found = "uqff.f2.dtype", "%s of shape %s" % (tag_entry.dtype, list(tag_entry.shape))
            yield self.fault(code, "the family tag %s.weight.format is %s, expected a U8 scalar"
                             % (layer.key, found), ".format")  # fmt: skip
            return
        tag = layer.tag
        if layer.family is None:
            self.stop = True
            yield self.fault("uqff.f1.unsupported", "family tag %s, expected 0 to 6" % tag, ".format")
            return
        if layer.rank == 3 and tag in (HQQ, FP8, F8Q8):
            yield self.fault("uqff.m1.unsupported", "a stack of experts (rank 3) in family %s: stacked expert gather is "
                             "unsupported for it" % layer.family.name)  # fmt: skip

    def entries(self) -> Iterator[Fault]:
        """Entries that are missing, of the wrong type, or not the family's."""
        layer, family = self.layer, self.layer.family
        for suffix, rule in family.suffixes.items():
            entry = layer.entry(suffix)
            unread = suffix == ".num_blocks"  # the engine never looks at it
            engine = "accepts" if unread else "refuses"
            if entry is None:
                self.stop = self.stop or not unread
                code = "uqff.q3.missing" if unread else MISSING[family.tag]
                yield self.fault(code, "%s.weight%s is missing" % (layer.key, suffix), suffix, engine=engine)
            elif suffix and not matches(entry, rule):
                self.stop = self.stop or not unread
                wanted = {"V": "a rank-1 U32"}.get(rule, "a %s scalar" % rule[2:-1])
                yield self.fault("uqff.t1.dtype", "%s of shape %s, expected %s" % (entry.dtype, list(entry.shape), wanted),
                                 suffix, engine=engine)  # fmt: skip
        for suffix in layer.tensors:
            if suffix in family.suffixes:
                continue
            if family.tag == UNQUANT and suffix in (".dtype", ".shape"):
                self.stop = True  # its payload is that of another family
                yield self.fault("uqff.u1.layout", "tag 1 (Unquant) on a layer that has %s: the engine would take its "
                                 "blocks for values" % suffix, suffix, engine="accepts")  # fmt: skip
            else:
                yield self.fault("uqff.e1.name", "not an entry of family %s: the engine ignores it" % family.name, suffix,
                                 "warning", "accepts")  # fmt: skip

    def payload(self, allowed: tuple[str, ...], suffix: str = "", code: str = "uqff.t2.dtype") -> Iterator[Fault]:
        """The dtype of a payload."""
        entry = self.layer.tensors[suffix].entry
        if entry.dtype not in allowed:
            self.stop = True
            engine = "refuses" if code == "uqff.g3.dtype" else "unknown"
            yield self.fault(code, "%s, expected %s" % (entry.dtype, " or ".join(allowed)), suffix, engine=engine)

    def dims(self, shape: tuple[int, ...], suffix: str = "") -> Iterator[Fault]:
        """G8: one to three dimensions, none of them 0."""
        rank = self.layer.rank if suffix else len(shape)
        if not 1 <= rank <= 3 or 0 in shape:
            self.stop = True
            shown = "%s%s" % (list(shape), " … of %d" % rank if rank > len(shape) else "")
            yield self.fault("uqff.g8.shape", "shape %s, expected one to three dimensions, none of them 0" % shown,
                             suffix, engine="accepts")  # fmt: skip

    def flat(self) -> Iterator[Fault]:
        """G7: the payload of blocks has rank 1."""
        entry = self.layer.tensors[""].entry
        if len(entry.shape) != 1:
            yield self.fault("uqff.g7.shape", "payload of shape %s, written as rank 1: read flat" % list(entry.shape), "",
                             "note", "accepts")  # fmt: skip

    def gguf(self) -> Iterator[Fault]:
        layer = self.layer
        yield from self.payload(("U8",), code="uqff.g3.dtype")
        code = layer.number(".dtype")
        info = ggml.TYPES.get(code)
        if info is None:
            self.stop = True
            yield self.fault("uqff.g1.dtype", "GGML type code %d is unknown" % code, ".dtype")
        shape = layer.numbers(".shape")
        yield from self.dims(shape, ".shape")
        if self.stop or info is None:
            return
        yield from self.flat()
        if info.name in ("q8_1", "q8k"):
            yield self.fault("uqff.g5.unsupported", "%s: the engine writes this type, but refuses to load it" % info.name,
                             ".dtype", "warning")  # fmt: skip
        if shape[-1] % info.block_elements:
            yield self.fault("uqff.g4.shape", "shape %s: the last dimension is not a multiple of the block of %d (%s)"
                             % (list(shape), info.block_elements, info.name), ".shape")  # fmt: skip
            return
        expected = product(shape) // info.block_elements * info.block_bytes
        found = self.payload_bytes()
        if found != expected:
            rule, what = "uqff.g6.shape", "too long"
            if found < expected:
                rule, what = "uqff.g6.bounds", "the engine reads past the end"
            yield self.fault(rule, "%d bytes, but %s of %s takes %d: %s"
                             % (found, info.name, list(shape), expected, what), engine="accepts")  # fmt: skip

    def payload_bytes(self) -> int:
        entry = self.layer.tensors[""].entry
        return int(entry.end - entry.begin)

    def unquant(self) -> Iterator[Fault]:
        yield from self.payload(FLOATS)
        yield from self.dims(tuple(self.layer.tensors[""].entry.shape))

    def hqq(self) -> Iterator[Fault]:
        layer = self.layer
        bits, group, axis = (layer.number(s) for s in (".bits", ".group_size", ".axis"))
        if bits not in HQQ_BITS:
            self.stop = True
            yield self.fault("uqff.h1.range", "%d bits, expected 8, 4, 3, 2 or 1" % bits, ".bits")
        if axis not in (0, 1):
            self.stop = True
            yield self.fault("uqff.h2.range", "axis %d, expected 0 or 1" % axis, ".axis")
        if group == 0:
            self.stop = True
            yield self.fault("uqff.h3.range", "group size 0", ".group_size")
        if bits in HQQ_BITS:
            yield from self.payload(("I32",) if bits == 3 else ("U8",))
        for suffix in (".scales", ".zeros"):
            yield from self.payload(FLOATS, suffix)
        scales, zeros = layer.tensors[".scales"].entry, layer.tensors[".zeros"].entry
        if scales.dtype != zeros.dtype and not self.stop:
            self.stop = True
            yield self.fault("uqff.t2.dtype", "zeros of %s beside scales of %s" % (zeros.dtype, scales.dtype), ".zeros",
                             engine="unknown")  # fmt: skip
        shape = layer.numbers(".shape")
        yield from self.dims(shape, ".shape")
        if axis == 1:
            self.stop = True
            yield self.fault("uqff.h5.unsupported", "axis 1: its packing is not specified; the engine fails at run time",
                             ".axis", engine="accepts")  # fmt: skip
        elif layer.number(".channel_wise") == 0:
            self.stop = True
            yield self.fault("uqff.h5.unsupported", "channel_wise 0 is unsupported; the engine fails at run time",
                             ".channel_wise", engine="accepts")  # fmt: skip
        if self.stop:
            return
        yield from self.hqq_geometry(bits, group, shape)

    def hqq_geometry(self, bits: int, group: int, shape: tuple[int, ...]) -> Iterator[Fault]:
        layer = self.layer
        elements, per_word = product(shape), {8: 1, 4: 2, 2: 4, 1: 8, 3: 10}[bits]
        if elements % group:
            yield self.h6("%d elements are not a multiple of the group size %d" % (elements, group), ".group_size")
            return
        if bits != 3 and group % per_word:
            yield self.h6(
                "group size %d is not a multiple of the %d values in a byte" % (group, per_word), ".group_size"
            )
            return
        columns = elements // group
        for suffix in (".scales", ".zeros"):
            entry = layer.tensors[suffix].entry
            if tuple(entry.shape) != (1, columns):
                if len(entry.shape) != 2 or entry.shape[0] != 1:
                    yield self.fault("uqff.h5.unsupported", "shape %s, only [1, C] is supported" % list(entry.shape), suffix,
                                     engine="accepts")  # fmt: skip
                else:
                    yield self.h6("shape %s, expected [1, %d]" % (list(entry.shape), columns), suffix)
        packed = (-(-group // per_word), columns)
        weight = layer.tensors[""].entry
        if tuple(weight.shape) != packed:
            yield self.h6("weight of shape %s, expected %s" % (list(weight.shape), list(packed)), "")
        elif bits == 3:
            words = struct.unpack("<%dI" % (packed[0] * packed[1]), layer.read(""))
            wild = sum([w >> 30 != 0 for w in words])
            if wild:
                yield self.fault("uqff.z1.range", "%d words with their top two bits set: codes outside of 0 … 7 have no "
                                 "meaning" % wild, "", "warning", "accepts")  # fmt: skip

    def h6(self, message: str, suffix: str) -> Fault:
        return self.fault("uqff.h6.shape", message + "; the engine fails at run time", suffix, engine="accepts")

    def fp8(self) -> Iterator[Fault]:
        layer = self.layer
        code = layer.number(".dtype")
        if code not in FP8_DTYPES:
            yield self.fault("uqff.p1.dtype", "element type code %d is unknown" % code, ".dtype")
        yield from self.payload(("F8_E4M3",))
        for suffix in (".dequant_w_scale", ".dequant_x_scale", ".quant_scale"):
            entry = layer.tensors[suffix].entry
            if not matches(entry, "S(F32)"):
                yield self.fault("uqff.p3.dtype", "%s of shape %s, expected an F32 scalar"
                                 % (entry.dtype, list(entry.shape)), suffix, engine="accepts")  # fmt: skip
                continue
            (value,) = struct.unpack("<f", layer.read(suffix))
            if value != value or value == 0:
                yield self.fault("uqff.p3.range", "the scale is %r" % value, suffix, "warning", "accepts")
        yield from self.dims(tuple(layer.tensors[""].entry.shape))
        if layer.bias is not None:
            yield self.runtime("FP8 with a bias")

    def runtime(self, what: str) -> Fault:
        return self.fault("uqff.u3.policy", what + " loads, but the engine fails in forward", "", "warning", "accepts")

    def afq(self) -> Iterator[Fault]:
        layer = self.layer
        bits, group = layer.number(".bits"), layer.number(".group_size")
        if bits not in AFQ_BITS:
            yield self.fault("uqff.a1.range", "%d bits, expected 2, 3, 4, 6 or 8" % bits, ".bits")
        if group not in AFQ_GROUPS:
            yield self.fault("uqff.a2.range", "group size %d, expected 32, 64 or 128" % group, ".group_size")
        yield from self.payload(("U32",))
        for suffix in (".scales", ".biases"):
            yield from self.payload(FLOATS, suffix)
        weight, scales, biases = (layer.tensors[s].entry for s in ("", ".scales", ".biases"))
        if scales.dtype != biases.dtype and not self.stop:
            self.stop = True
            yield self.fault("uqff.t2.dtype", "biases of %s beside scales of %s" % (biases.dtype, scales.dtype), ".biases",
                             engine="unknown")  # fmt: skip
        if bits not in AFQ_BITS or group not in AFQ_GROUPS:
            self.stop = True
        if self.stop:
            return
        w, s, b = weight.shape, scales.shape, biases.shape
        if s != b or len(w) != len(s) or not w or w[:-1] != s[:-1] or w[-1] * 32 != bits * group * s[-1]:
            self.stop = True
            yield self.fault("uqff.a4.shape", "weight %s, scales %s, biases %s don't fit %d bits in groups of %d: the engine "
                             "fails at the first matmul" % (list(w), list(s), list(b), bits, group), "",
                             engine="accepts")  # fmt: skip
            return
        yield from self.dims((*s[:-1], s[-1] * group))

    def f8q8(self) -> Iterator[Fault]:
        layer = self.layer
        yield from self.payload(("U8",), code="uqff.g3.dtype")
        shape = layer.numbers(".shape")
        yield from self.dims(shape, ".shape")
        if self.stop:
            return
        yield from self.flat()
        length, entry = self.payload_bytes(), layer.entry(".num_blocks")
        if length % 33:
            yield self.fault("uqff.q1.shape", "%d bytes are not a multiple of the block of 33" % length)
            return
        blocks = -(-product(shape) // 32)
        stated = layer.number(".num_blocks") if entry and matches(entry, "S(U32)") else blocks
        if not blocks == length // 33 == stated:
            yield self.fault("uqff.q3.shape", "shape %s takes %d blocks, the payload has %d, num_blocks says %d"
                             % (list(shape), blocks, length // 33, stated), ".num_blocks", engine="accepts")  # fmt: skip

    def mxfp4(self) -> Iterator[Fault]:
        layer = self.layer
        for suffix in ("", ".scales"):
            yield from self.payload(("U8",), suffix)
        w, s = layer.tensors[""].entry.shape, layer.tensors[".scales"].entry.shape
        if len(w) != len(s) or not w or w[:-1] != s[:-1] or w[-1] % 16 or w[-1] // 16 != s[-1]:
            self.stop = True
            yield self.fault("uqff.k1.shape", "scales of shape %s, expected %s for a weight of %s"
                             % (list(s), [*w[:-1], w[-1] * 2 // 32] if w else "rank 2 or 3", list(w)), ".scales")  # fmt: skip
            return
        yield from self.dims((*w[:-1], w[-1] * 2))
        if layer.bias is not None:
            yield self.runtime("MXFP4 with a bias")
        if len(w) == 3:
            yield self.runtime("an MXFP4 stack of experts")

    def bias(self) -> Iterator[Fault]:
        """B1: [out], or [experts, out] for a stack, of floats."""
        layer = self.layer
        if layer.bias is None or self.stop:
            return
        entry, shape = layer.bias.entry, layer.logical_shape()
        problems = []
        if tuple(entry.shape) != shape[:-1]:
            problems.append(("uqff.b1.shape", "bias of shape %s, expected %s" % (list(entry.shape), list(shape[:-1]))))
        if entry.dtype not in (*FLOATS, "F64", "F8_E4M3", "F8_E5M2"):
            problems.append(("uqff.b1.dtype", "bias of %s, expected floats" % entry.dtype))
        for code, message in problems:
            error = FormatError(code, message + "; the engine fails at run time", field=layer.bias.name,
                                offset=layer.bias.offset, path=layer.bias.file.path)  # fmt: skip
            yield Fault(error, "error", "accepts")


def product(values: tuple[int, ...]) -> int:
    """The product of some numbers."""
    result = 1
    for v in values:
        result *= v
    return result


# ---- values


def decode(layer: Layer | Slice) -> array[float]:
    """All values of a layer, or of a slice of one, as array('f'), row-major. The layer has been checked."""
    tag = layer.tag
    if tag == GGUF:
        return ggml.decode(ggml.TYPES[layer.number(".dtype")].name, layer.read(""))
    if tag == UNQUANT:
        return floats(layer, "")
    if tag == HQQ:
        return hqq_decode(
            layer.read(""), floats(layer, ".scales"), floats(layer, ".zeros"), layer.number(".bits"),
            layer.number(".group_size"), product(layer.numbers(".shape")), layer.dtype(".scales"),
        )  # fmt: skip
    if tag == FP8:
        (scale,) = struct.unpack("<f", layer.read(".dequant_w_scale"))
        return fp8_decode(layer.read(""), scale)
    if tag == AFQ:
        return afq_decode(
            layer.read(""), floats(layer, ".scales"), floats(layer, ".biases"), layer.number(".bits"),
            layer.number(".group_size"),
        )  # fmt: skip
    if tag == F8Q8:
        return f8q8_decode(layer.read(""), product(layer.numbers(".shape")))
    return mxfp4_decode(layer.read(""), layer.read(".scales"))


def floats(layer: Layer | Slice, suffix: str) -> array[float]:
    """The values of a float entry."""
    return decoder(layer.dtype(suffix))(layer.read(suffix))

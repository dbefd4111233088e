"""The layers of a Hugging Face model, and one layer as the tensors of a UQFF shard. Spec: UQFF sections 6, 7, 8, 12, 16.

Used by the writer and by the comparison of an artifact with its source.
"""

from __future__ import annotations

import struct
from array import array
from collections import namedtuple

from vqfref import kernels
from vqfref.errors import FormatError, UnsupportedError
from vqfref.quant import ggml
from vqfref.quant.afq import afq_encode
from vqfref.quant.floats import f32_encode
from vqfref.quant.hqq import hqq_encode
from vqfref.quant.minifloat import e4m3_encode, f8q8_encode, fp8_encode, mxfp4_encode
from vqfref.uqff.families import product
from vqfref.uqff.naming import AFQ, F8Q8, FP8, GGUF, HQQ, MXFP4, TYPES, UNQUANT
from vqfref.uqff.targets import AFQ_GROUP, HQQ_GROUP

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterator, Sequence

    from vqfref.weightfile import WeightFile

ROWS_AT_ONCE = 1 << 20  # values that are encoded in one go where a family allows it
STACKED = ("gate_proj", "up_proj", "down_proj")  # the modules of a block of experts

Part = namedtuple("Part", "suffix dtype shape")
Part.__doc__ = (
    "One tensor of a layer before it is made: suffix behind `<key>.weight`, or None for the bias; dtype; shape."
)


# ---- the layers of a model: sections 8 and 12.5


class LayerSource:
    """A layer of the source: its key, shape, the tensors it comes from (several for a stack of experts), its bias."""

    def __init__(self, key: str, shape: tuple[int, ...], sources: list[str], biases: list[str]) -> None:
        self.key, self.shape, self.sources, self.biases = key, shape, sources, biases

    @property
    def source_key(self) -> str:
        """The path of its (first) source tensor, without .weight."""
        return self.sources[0][: -len(".weight")]


def tracked(files: WeightFile, tied: bool) -> tuple[dict[str, LayerSource], list[str]]:
    """(layers by key, names of the residual): every module that ends in _proj, lm_head, embed_tokens, and the stacks of
    experts under their canonical keys. With tied embeddings the embedding serves for the head.

    Raises FormatError (uqff.w3.…) for experts of which some are missing or differ in shape and for biases that don't fit
    their layer; UnsupportedError for experts in a layout that is not known here.
    """
    layers: dict[str, LayerSource] = {}
    experts: dict[str, dict[str, dict[int, str]]] = {}
    names = set(files.keys())
    rest = []
    for name in files:
        key, _, kind = name.rpartition(".")
        module = key.rpartition(".")[2]
        expert = expert_parts(key) if ".experts." in name else None
        if ".experts." in name and (expert is None or kind not in ("weight", "bias")):
            raise UnsupportedError("uqff.w3.unsupported", "experts in a layout that is not known here: expected "
                                   "experts.<n>.<module>.weight", field=name, path=files.path)  # fmt: skip
        if not is_tracked(key) or kind not in ("weight", "bias"):
            rest.append(name)
        elif module == "lm_head" and tied:
            continue
        elif key + ".weight" not in names:
            rest.append(name)  # a bias alone
        elif kind == "weight" and expert is not None and expert[1] is not None:
            experts.setdefault(expert[0], {}).setdefault(module, {})[expert[1]] = key
        elif kind == "weight":
            layers[key] = _layer(files, key, [key], names)
    for prefix, modules in experts.items():
        numbers = range(max(map(max, modules.values())) + 1)
        for module in STACKED:
            found = modules.get(module, {})
            missing = [n for n in numbers if n not in found]
            if missing:
                message = "of %d experts some are missing: %s" % (len(numbers), missing[:8])
                raise FormatError("uqff.w3.missing", message, field="%s.%s" % (prefix, module), path=files.path)
            key = "%s.%s" % (prefix, module)
            if key in layers:
                raise UnsupportedError("uqff.w3.unsupported", "experts as a stack and one by one", field=key,
                                       path=files.path)  # fmt: skip
            layers[key] = _layer(files, key, [found[n] for n in numbers], names, True)
    return layers, rest


def _layer(files: WeightFile, key: str, keys: list[str], names: set[str], stacked: bool = False) -> LayerSource:
    """The layer of one source matrix, or of a stack of them, with its bias."""
    shapes = {tuple(files.info(k + ".weight").shape) for k in keys}
    if len(shapes) > 1:
        message = "experts of different shapes: %s" % sorted(shapes)
        raise FormatError("uqff.w3.shape", message, field=key, path=files.path)
    (shape,) = shapes
    biases = [k + ".bias" for k in keys if k + ".bias" in names]
    if biases and len(biases) < len(keys):
        message = "%d of %d experts have a bias" % (len(biases), len(keys))
        raise FormatError("uqff.w3.missing", message, field=key, path=files.path)
    for name in biases:
        if tuple(files.info(name).shape) != shape[:-1]:
            message = "shape %s, expected %s" % (list(files.info(name).shape), list(shape[:-1]))
            raise FormatError("uqff.w3.shape", message, field=name, path=files.path)
    return LayerSource(key, (len(keys), *shape) if stacked else shape, [k + ".weight" for k in keys], biases)


def is_tracked(key: str) -> bool:
    """Is a module one whose weight becomes a layer?"""
    module = key.rpartition(".")[2]
    return module.endswith("_proj") or module in ("lm_head", "embed_tokens")


def expert_parts(key: str) -> tuple[str, int | None] | None:
    """(prefix of the experts, number) of `<prefix>.experts.<n>.<module>`; number None for `<prefix>.experts.<module>`,
    which is a stack already; None for any other key."""
    parts = key.split(".")
    if parts[-1] not in STACKED:
        return None
    if parts[-2:-1] == ["experts"]:
        return ".".join(parts[:-1]), None
    number = parts[-2] if parts[-3:-2] == ["experts"] else ""
    if not number.isascii() or not number.isdigit() or len(number) > 5 or number != str(int(number)):
        return None
    return ".".join(parts[:-2]), int(number)


# ---- one layer


class LayerEncoder:
    """The tensors of one layer: what they are, then their bytes, large payloads piece by piece.

    stored: the type that it is stored as, unquant and f32 included; dtype: the working dtype; group: of AFQ.
    """

    def __init__(self, files: WeightFile, layer: LayerSource, stored: str, dtype: str, group: int = AFQ_GROUP) -> None:
        self.files, self.layer, self.stored, self.dtype, self.group = files, layer, stored, dtype, group
        self.family = UNQUANT if stored == "unquant" else TYPES.get(stored, GGUF)
        self.small = self.constants()

    def parts(self) -> list[Part]:
        """The tensors in the engine's emission order (12.4)."""
        shape, rows = self.layer.shape, self.layer.shape[:-1]
        scalar = [Part(".format", "U8", ())]
        if self.family == GGUF:
            info = next(t for t in ggml.TYPES.values() if t.name == self.stored)
            size = product(shape) // info.block_elements * info.block_bytes
            parts = [*scalar, Part("", "U8", (size,)), Part(".dtype", "U32", ()), Part(".shape", "U32", (len(shape),))]
        elif self.family == UNQUANT:
            parts = [*scalar, Part("", self.dtype, shape)]
        elif self.family == HQQ:
            bits = int(self.stored[3:])
            columns = product(shape) // HQQ_GROUP
            parts = [
                *scalar, Part("", "U8", (HQQ_GROUP * bits // 8, columns)), Part(".scales", "F32", (1, columns)),
                Part(".zeros", "F32", (1, columns)), Part(".shape", "U32", (len(shape),)), Part(".bits", "U8", ()),
                Part(".group_size", "U32", ()), Part(".axis", "U8", ()), Part(".optimization_steps", "U32", ()),
                Part(".round_zeros", "U8", ()), Part(".channel_wise", "U8", ()),
            ]  # fmt: skip
        elif self.family == FP8:
            parts = [
                *scalar, Part("", "F8_E4M3", shape), Part(".dequant_w_scale", "F32", ()),
                Part(".dequant_x_scale", "F32", ()), Part(".quant_scale", "F32", ()), Part(".dtype", "U32", ()),
            ]  # fmt: skip
        elif self.family == AFQ:
            bits, groups = int(self.stored[3:]), (*rows, shape[-1] // self.group)
            parts = [
                *scalar, Part(".bits", "U8", ()), Part(".group_size", "U8", ()),
                Part("", "U32", (*rows, shape[-1] * bits // 32)), Part(".scales", self.dtype, groups),
                Part(".biases", self.dtype, groups),
            ]  # fmt: skip
        elif self.family == F8Q8:
            blocks = -(-product(shape) // 32)
            parts = [
                *scalar, Part("", "U8", (33 * blocks,)), Part(".num_blocks", "U32", ()),
                Part(".shape", "U32", (len(shape),)),
            ]  # fmt: skip
        else:
            parts = [*scalar, Part("", "U8", (*rows, shape[-1] // 2)), Part(".scales", "U8", (*rows, shape[-1] // 32))]
        if self.layer.biases:
            parts.append(Part(None, self.bias_dtype(), rows))
        return parts

    def bias_dtype(self) -> str:
        """Section 7: the dtype in which the engine stores a bias."""
        if self.family in (AFQ, UNQUANT):
            return self.dtype
        parallel = self.layer.key.endswith("_proj")
        if self.family == FP8:
            return "F8_E4M3" if parallel else str(self.files.info(self.layer.biases[0]).dtype)
        if self.family == MXFP4:
            return "BF16" if parallel else str(self.files.info(self.layer.biases[0]).dtype)
        return "F32"

    def constants(self) -> dict[str, bytes]:
        """The entries that follow from type and shape, by suffix."""
        shape = self.layer.shape
        numbers: dict[str, tuple[Any, ...]] = {".format": ("B", self.family)}
        if self.family in (GGUF, HQQ, F8Q8):
            numbers[".shape"] = ("%dI" % len(shape), *shape)
        if self.family == GGUF:
            numbers[".dtype"] = ("I", next(t.code for t in ggml.TYPES.values() if t.name == self.stored))
        elif self.family == FP8:
            numbers[".dtype"] = ("I", 9)
        elif self.family == AFQ:
            numbers.update({".bits": ("B", int(self.stored[3:])), ".group_size": ("B", self.group)})
        elif self.family == F8Q8:
            numbers[".num_blocks"] = ("I", -(-product(shape) // 32))
        elif self.family == HQQ:
            numbers.update({
                ".bits": ("B", int(self.stored[3:])), ".group_size": ("I", HQQ_GROUP), ".axis": ("B", 0),
                ".optimization_steps": ("I", 10), ".round_zeros": ("B", 0), ".channel_wise": ("B", 1),
            })  # fmt: skip
        return {suffix: struct.pack("<" + n[0], *n[1:]) for suffix, n in numbers.items()}

    def pieces(self, part: Part) -> Iterator[bytes]:
        """The bytes of one part, in the order of `parts`: the payload comes before the scales that it gives."""
        if part.suffix is None:
            for values in working_values(self.files, self.layer.biases, self.dtype):
                yield encode_floats(values, part.dtype)
        elif part.suffix in self.small:
            yield self.small[part.suffix]
        else:
            yield from self.payload()

    def payload(self) -> Iterator[bytes]:
        """The bytes of `<key>.weight`, in pieces; what is found on the way (scales …) goes to `small`."""
        if self.family in (FP8, HQQ):  # over the whole tensor at once
            values = array("f")
            for piece in working_values(self.files, self.layer.sources, self.dtype):
                values.extend(piece)
            yield self.whole(values)
            return
        scales, biases = bytearray(), bytearray()
        for values in self.rows():
            if self.family == GGUF:
                yield ggml.encode(self.stored, values)
            elif self.family == UNQUANT:
                yield encode_floats(values, self.dtype)
            elif self.family == AFQ:
                packed, s, b = afq_encode(values, int(self.stored[3:]), self.group)
                scales += encode_floats(s, self.dtype)
                biases += encode_floats(b, self.dtype)
                yield packed
            elif self.family == F8Q8:
                yield f8q8_encode(values)
            else:
                packed, codes = mxfp4_encode(values)
                scales += codes
                yield packed
        self.small.update({".scales": bytes(scales), ".biases": bytes(biases)})

    def whole(self, values: array[float]) -> bytes:
        """FP8 and HQQ."""
        if self.family == FP8:
            data, quant, dequant = fp8_encode(values)
            self.small[".quant_scale"] = struct.pack("<f", quant)
            self.small[".dequant_w_scale"] = self.small[".dequant_x_scale"] = struct.pack("<f", dequant)
            return data
        packed, scales, zeros = hqq_encode(values, int(self.stored[3:]))
        self.small.update({".scales": f32_encode(scales), ".zeros": f32_encode(zeros)})
        return packed

    def rows(self) -> Iterator[array[float]]:
        """The values in pieces of whole rows; for F8Q8, whose blocks cross rows, of whole blocks."""
        width = self.layer.shape[-1] if self.family != F8Q8 else 32
        pending = array("f")
        for piece in working_values(self.files, self.layer.sources, self.dtype):
            pending.extend(piece)
            n = len(pending) // width * width
            if n >= ROWS_AT_ONCE:
                yield pending[:n]
                pending = pending[n:]
        if pending:
            yield pending


# ---- values


def working_values(files: WeightFile, names: Sequence[str], dtype: str) -> Iterator[array[float]]:
    """The values of source tensors one after another, rounded to the working dtype, in pieces.

    Raises FormatError (uqff.w4.range) for NaN and infinities, which the encoders were not proved on, also for those that
    only the rounding makes.
    """
    for name in names:
        for piece in files.values(name):
            values = as_working(piece, dtype)
            if not kernels.all_finite(values):
                what = (
                    "NaN or infinite values in the source"
                    if values is piece
                    else "not all values are finite in " + dtype
                )
                raise FormatError("uqff.w4.range", what, field=name, path=files.path)
            yield values


def as_working(values: array[float], dtype: str) -> array[float]:
    """Values rounded to the working dtype and widened again."""
    if dtype == "BF16":
        return kernels.bf16_decode(kernels.bf16_encode(values))
    return kernels.f16_decode(kernels.f16_encode(values)) if dtype == "F16" else values


def encode_floats(values: array[float], dtype: str) -> bytes:
    """Values as stored in a dtype."""
    return {"F32": f32_encode, "BF16": kernels.bf16_encode, "F16": kernels.f16_encode, "F8_E4M3": e4m3_encode}[dtype](
        values
    )

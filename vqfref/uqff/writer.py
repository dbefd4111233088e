"""A Hugging Face model folder to UQFF, byte for byte what the engine writes. Spec: UQFF sections 2, 7, 11, 12, 16.

First everything is settled: which tensors are layers, what each becomes, which shard holds what; whatever can't be done
is an error before anything is written. Then shards, residual, assets and report are made in a folder beside the target
and moved in together.

What differs from the engine: tokenizer files are copied, not serialized anew, and the report names this program.
"""

from __future__ import annotations

import os
import struct
from array import array
from collections import namedtuple

from vqfref import kernels, strictjson
from vqfref.errors import FormatError, UnsupportedError, UsageError
from vqfref.findings import Findings
from vqfref.quant import ggml
from vqfref.quant.afq import afq_encode
from vqfref.quant.floats import f32_encode
from vqfref.quant.hqq import hqq_encode
from vqfref.quant.minifloat import e4m3_encode, f8q8_encode, fp8_encode, mxfp4_encode
from vqfref.safetensors.reader import open_folder
from vqfref.safetensors.writer import header_bytes, nbytes, order
from vqfref.sink import AtomicFile, Publication
from vqfref.source import Source
from vqfref.uqff.families import product
from vqfref.uqff.naming import (
    AFQ,
    EXTENSION,
    F8Q8,
    FP8,
    GGUF,
    HQQ,
    MXFP4,
    REPORT_NAME,
    RESIDUAL_NAME,
    TYPES,
    UNQUANT,
    group_key,
)
from vqfref.uqff.report import Detail, Fallback, Output, Report, dump, load
from vqfref.uqff.scan import DENSE
from vqfref.uqff.targets import AFQ_GROUP, HQQ_GROUP, expand_types, resolve_target

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Iterator, Sequence

    from vqfref.findings import Finding
    from vqfref.uqff.targets import Pins, Target
    from vqfref.weightfile import WeightFile

    Progress = Callable[[int, int], None]

CAP = 10 * 1024**3  # payload bytes of a shard
VERSION = (("uqff.version.major", 1), ("uqff.version.minor", 2), ("uqff.version.patch", 0))
METADATA = {
    "uqff.producer": "mistral.rs",
    "uqff.version": "1.2.0",
    "uqff.producer.mistralrs.version": "0.9.5",
    "uqff.producer.mistralrs.git_revision": "unknown",
}  # what the engine whose bytes these are writes
TOOL = "vqfref uqff write"
DTYPES = {"f32": "F32", "bf16": "BF16", "f16": "F16"}
SOURCE_DTYPES = ("F32", "BF16", "F16")
COPIED = ("tokenizer.json", "tokenizer_config.json", "generation_config.json", "processor_config.json",
          "preprocessor_config.json")  # fmt: skip
WANTED = ("tokenizer.json", "tokenizer_config.json", "generation_config.json")  # a source without them is warned about
MANAGED = (RESIDUAL_NAME, "config.json", "modules.json", "chat_template.jinja", REPORT_NAME, *COPIED)
ROWS_AT_ONCE = 1 << 20  # values that are encoded in one go where a family allows it

Part = namedtuple("Part", "suffix dtype shape")
Part.__doc__ = (
    "One tensor of a layer before it is made: suffix behind `<key>.weight`, or None for the bias; dtype; shape."
)


class LayerSource:
    """A layer of the source: its key, shape, the tensors it comes from (several for a stack of experts), its bias."""

    def __init__(self, key: str, shape: tuple[int, ...], sources: list[str], biases: list[str]) -> None:
        self.key, self.shape, self.sources, self.biases = key, shape, sources, biases

    @property
    def source_key(self) -> str:
        """The path of its (first) source tensor, without .weight."""
        return self.sources[0][: -len(".weight")]


def write(
    folder: str | os.PathLike[str], out: str | os.PathLike[str], types: Sequence[str], *, dtype: str = "f32",
    pins: Pins | None = None, max_shard_bytes: int = CAP, base_model: str | None = None, device: str = "cpu",
    progress: Progress | None = None,
) -> list[Finding]:  # fmt: skip
    """Quantize a model folder into a UQFF folder; returns warnings about the source.

    out: a name that ends in .uqff gives the stem of the shards (one type only), anything else is a folder. types: names
    or shorthands, the runtime type first. dtype: the working dtype, f32, bf16 or f16. pins: from a topology. device:
    cpu, cuda or metal, which decides about shorthands.

    Raises UsageError for the preconditions of section 12.1 and for what a type can't hold (M2, Q2); FormatError,
    UnsupportedError for the source; OSError. An interrupted run leaves the target as it was.
    """
    out = os.fspath(out)
    names = expand_types(list(types), device)
    single = out.endswith(EXTENSION)
    if single and len(names) > 1:
        raise UsageError("uqff.w2.policy", "several types need a folder, not a name that ends in %s" % EXTENSION)
    if dtype not in DTYPES:
        raise UsageError("usage.dtype.unsupported", "dtype %r: expected f32, bf16 or f16" % dtype)
    if max_shard_bytes < 1:
        raise UsageError("usage.size.range", "shards of %d bytes" % max_shard_bytes)
    target = os.path.dirname(out) or "." if single else out
    with open_folder(os.fspath(folder)) as files:
        job = _Job(files, os.fspath(folder), DTYPES[dtype], pins, max_shard_bytes)
        plans = [
            (name, os.path.basename(out)[: -len(EXTENSION)] if single else name, job.targets(name)) for name in names
        ]
        with Publication(target) as publication:
            outputs = [job.write_set(publication, stem, name, targets, progress) for name, stem, targets in plans[1:]]
            name, stem, targets = plans[0]
            outputs.append(job.write_set(publication, stem, name, targets, progress))  # the runtime type comes last
            job.write_residual(publication)
            job.write_assets(publication)
            report = Report(1, {"tool": TOOL}, base_model, None, METADATA["uqff.version"], outputs)
            publication.add(REPORT_NAME, [dump(report)])
            publication.remove(stale_names(target, [stem for _, stem, _ in plans]))
        return job.found.sorted()


def stale_names(target: str, stems: Sequence[str]) -> list[str]:
    """Files of an earlier write that must not stay beside the new ones (12.7)."""
    if not os.path.isdir(target):
        return []
    available = os.listdir(target)
    shards = [
        n for n in available if n.endswith(EXTENSION) and group_key(n)[1] is not None and group_key(n)[0] in stems
    ]
    try:
        report = load(target, available)
    except FormatError:
        report = None
    listed = [s for o in (report.outputs if report else []) for s in o.shards]
    if len(stems) > 1 or any(group_key(s)[0] in stems for s in listed):
        shards += [n for n in (*MANAGED, *listed) if n in available]
    return shards


class _Job:
    """One write: the source's layers and what is left over, the working dtype."""

    def __init__(self, files: WeightFile, folder: str, dtype: str, pins: Pins | None, cap: int) -> None:
        self.files, self.folder, self.dtype, self.pins, self.cap = files, folder, dtype, pins, cap
        self.found = Findings(folder)
        self.config = read_config(folder)
        self.layers, self.rest = tracked(files, bool(self.config.get("tie_word_embeddings")))
        if not self.layers:
            raise FormatError("uqff.w3.missing", "the source has no linear layers or embeddings", path=folder)
        for name in files:
            if files.info(name).dtype not in SOURCE_DTYPES:
                message = "dtype %s, expected F32, BF16 or F16" % files.info(name).dtype
                raise UnsupportedError("convert.source.dtype", message, field=name, path=folder)

    def targets(self, default: str) -> dict[str, Target]:
        """What every layer becomes; raises where one can't."""
        return {
            key: resolve_target(key, layer.shape, default, self.pins, layer.source_key)
            for key, layer in self.layers.items()
        }

    # -- shards

    def write_set(
        self, publication: Publication, stem: str, name: str, targets: dict[str, Target], progress: Progress | None
    ) -> Output:
        """All shards of one type; returns its output for the report."""
        shards = self.shards(targets)
        total = sum(len(parts) for parts in shards)
        done = 0
        files = []
        values: _Values | None = None
        for index, parts in enumerate(shards):
            file_name = "%s-%d%s" % (stem, index, EXTENSION)
            with publication.file(file_name) as file:
                at = layout_file(file, [(full_name(key, p), p.dtype, p.shape) for key, p in parts], METADATA)
                for key, part in parts:
                    if key is None:
                        file.write_at(at[part.suffix], struct.pack("<I", dict(VERSION)[part.suffix]))
                    elif values is None or values.layer.key != key:
                        values = _Values(self, self.layers[key], targets[key])
                    if key is not None and values is not None:
                        values.write(part, file, at[full_name(key, part)])
                    done += 1
                    if progress:
                        progress(done, total)
            files.append(file_name)
        return self.output(name, files, targets)

    def shards(self, targets: dict[str, Target]) -> list[list[tuple[str | None, Part]]]:
        """The tensors of each shard, split by the cap at the granularity of tensors (12.4)."""
        chunk: list[tuple[str | None, Part]] = [(None, Part(name, "U32", ())) for name, _ in VERSION]
        size, found = 12, []
        for key in sorted(self.layers, key=lambda k: k.encode("utf-8")):
            for part in self.parts(self.layers[key], targets[key].stored):
                n = nbytes(part.dtype, part.shape)
                if chunk and size + n > self.cap:
                    found.append(chunk)
                    chunk, size = [], 0
                chunk.append((key, part))
                size += n
                if size >= self.cap:
                    found.append(chunk)
                    chunk, size = [], 0
        return [*found, chunk] if chunk else found

    def parts(self, layer: LayerSource, stored: str) -> list[Part]:
        """The tensors of a layer in the engine's emission order."""
        shape, rows = layer.shape, layer.shape[:-1]
        family = UNQUANT if stored == "unquant" else TYPES.get(stored, GGUF)
        scalar = [Part(".format", "U8", ())]
        if family == GGUF:
            info = next(t for t in ggml.TYPES.values() if t.name == stored)
            size = product(shape) // info.block_elements * info.block_bytes
            parts = [*scalar, Part("", "U8", (size,)), Part(".dtype", "U32", ()), Part(".shape", "U32", (len(shape),))]
        elif family == UNQUANT:
            parts = [*scalar, Part("", self.dtype, shape)]
        elif family == HQQ:
            bits = int(stored[3:])
            columns = product(shape) // HQQ_GROUP
            parts = [
                *scalar, Part("", "U8", (HQQ_GROUP * bits // 8, columns)), Part(".scales", "F32", (1, columns)),
                Part(".zeros", "F32", (1, columns)), Part(".shape", "U32", (len(shape),)), Part(".bits", "U8", ()),
                Part(".group_size", "U32", ()), Part(".axis", "U8", ()), Part(".optimization_steps", "U32", ()),
                Part(".round_zeros", "U8", ()), Part(".channel_wise", "U8", ()),
            ]  # fmt: skip
        elif family == FP8:
            parts = [
                *scalar, Part("", "F8_E4M3", shape), Part(".dequant_w_scale", "F32", ()),
                Part(".dequant_x_scale", "F32", ()), Part(".quant_scale", "F32", ()), Part(".dtype", "U32", ()),
            ]  # fmt: skip
        elif family == AFQ:
            bits, groups = int(stored[3:]), (*rows, shape[-1] // AFQ_GROUP)
            parts = [
                *scalar, Part(".bits", "U8", ()), Part(".group_size", "U8", ()),
                Part("", "U32", (*rows, shape[-1] * bits // 32)), Part(".scales", self.dtype, groups),
                Part(".biases", self.dtype, groups),
            ]  # fmt: skip
        elif family == F8Q8:
            blocks = -(-product(shape) // 32)
            parts = [
                *scalar, Part("", "U8", (33 * blocks,)), Part(".num_blocks", "U32", ()),
                Part(".shape", "U32", (len(shape),)),
            ]  # fmt: skip
        else:
            parts = [*scalar, Part("", "U8", (*rows, shape[-1] // 2)), Part(".scales", "U8", (*rows, shape[-1] // 32))]
        if layer.biases:
            parts.append(Part(None, self.bias_dtype(layer, family), layer.shape[:-1]))
        return parts

    def bias_dtype(self, layer: LayerSource, family: int) -> str:
        """Section 7: the dtype in which the engine stores a bias."""
        if family in (AFQ, UNQUANT):
            return self.dtype
        parallel = layer.key.endswith("_proj")
        if family == FP8:
            return "F8_E4M3" if parallel else str(self.files.info(layer.biases[0]).dtype)
        if family == MXFP4:
            return "BF16" if parallel else str(self.files.info(layer.biases[0]).dtype)
        return "F32"

    def output(self, name: str, files: list[str], targets: dict[str, Target]) -> Output:
        """The output of the report (section 11)."""
        counts: dict[str, int] = {}
        fallbacks, details = [], []
        for key in sorted(targets, key=lambda k: k.encode("utf-8")):
            t, layer = targets[key], self.layers[key]
            counts[t.stored] = counts.get(t.stored, 0) + 1
            if t.reason is not None or (t.stored in DENSE and t.stored != t.resolved):
                fallbacks.append(Fallback(key, t.resolved, t.stored, list(layer.shape), t.reason))
            parts = {p.suffix: p for p in self.parts(layer, t.stored)}
            shape = layer.shape if ".shape" in parts else parts[""].shape
            details.append(Detail(key, t.default, t.resolved, t.stored, list(shape)))
        return Output(name, files, len(targets), counts, len(fallbacks), fallbacks, details)

    # -- values

    def values(self, names: Sequence[str]) -> Iterator[array[float]]:
        """The values of source tensors one after another, rounded to the working dtype, in pieces. Refuses NaN and
        infinities, which the encoders were not proved on."""
        for name in names:
            for piece in self.files.values(name):
                if not kernels.all_finite(piece):
                    raise FormatError(
                        "uqff.w4.range", "NaN or infinite values in the source", field=name, path=self.folder
                    )
                yield as_working(piece, self.dtype)

    # -- what lies beside the shards

    def write_residual(self, publication: Publication) -> None:
        """All tensors that are no layers, in the working dtype (12.5)."""
        names = order(self.rest, dict.fromkeys(self.rest, self.dtype))
        with publication.file(RESIDUAL_NAME) as file:
            file.write(header_bytes([(n, self.dtype, self.files.info(n).shape) for n in names], METADATA))
            for name in names:
                for piece in self.files.values(name):
                    file.write(encode_floats(piece, self.dtype))

    def write_assets(self, publication: Publication) -> None:
        """config.json cleaned, the rest copied (12.6); what the source lacks is a warning."""
        cleaned = clean_config(self.config)
        publication.add(
            "config.json", [strictjson.dumps(cleaned, indent=2, ascii_only=False, real=rust_float).encode()]
        )
        for name in COPIED:
            path = os.path.join(self.folder, name)
            if os.path.isfile(path):
                with Source(path, "pread") as source:
                    publication.add(name, source.pieces(0, source.size))
            elif name in WANTED:
                self.found.add("warning", "uqff.w5.missing", "the source has no %s" % name, None, name)


class _Values:
    """The encoded tensors of one layer: made once, large payloads piece by piece, written where they belong."""

    def __init__(self, job: _Job, layer: LayerSource, target: Target) -> None:
        self.job, self.layer, self.stored = job, layer, target.stored
        self.family = UNQUANT if self.stored == "unquant" else TYPES.get(self.stored, GGUF)
        self.small: dict[str | None, bytes] = {}
        self.constants()

    def constants(self) -> None:
        """The entries that follow from type and shape."""
        shape = self.layer.shape
        numbers: dict[str, tuple[Any, ...]] = {".format": ("B", self.family), ".shape": ("%dI" % len(shape), *shape)}
        if self.family == GGUF:
            code = next(t.code for t in ggml.TYPES.values() if t.name == self.stored)
            numbers[".dtype"] = ("I", code)
        elif self.family == FP8:
            numbers[".dtype"] = ("I", 9)
        elif self.family == AFQ:
            numbers.update({".bits": ("B", int(self.stored[3:])), ".group_size": ("B", AFQ_GROUP)})
        elif self.family == F8Q8:
            numbers[".num_blocks"] = ("I", -(-product(shape) // 32))
        elif self.family == HQQ:
            numbers.update({
                ".bits": ("B", int(self.stored[3:])), ".group_size": ("I", HQQ_GROUP), ".axis": ("B", 0),
                ".optimization_steps": ("I", 10), ".round_zeros": ("B", 0), ".channel_wise": ("B", 1),
            })  # fmt: skip
        self.small = {suffix: struct.pack("<" + n[0], *n[1:]) for suffix, n in numbers.items()}

    def write(self, part: Part, file: AtomicFile, offset: int) -> None:
        """Put one tensor into its place in the file."""
        if part.suffix is None:
            values = array("f")
            for name in self.layer.biases:
                values.extend(self.job.files.get_tensor(name))
            file.write_at(offset, encode_floats(values, part.dtype))
            return
        if part.suffix in self.small:
            file.write_at(offset, self.small[part.suffix])
            return
        for piece in self.payload():
            file.write_at(offset, piece)
            offset += len(piece)

    def payload(self) -> Iterator[bytes]:
        """The bytes of `<key>.weight`, in pieces; what is found on the way (scales …) goes to `small`."""
        if self.family in (FP8, HQQ):  # over the whole tensor at once
            values = array("f")
            for piece in self.job.values(self.layer.sources):
                values.extend(piece)
            yield self.whole(values)
            return
        scales, biases = bytearray(), bytearray()
        for values in self.rows():
            if self.family == GGUF:
                yield ggml.encode(self.stored, values)
            elif self.family == UNQUANT:
                yield encode_floats(values, self.job.dtype)
            elif self.family == AFQ:
                packed, s, b = afq_encode(values, int(self.stored[3:]), AFQ_GROUP)
                scales += encode_floats(s, self.job.dtype)
                biases += encode_floats(b, self.job.dtype)
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
        for piece in self.job.values(self.layer.sources):
            pending.extend(piece)
            n = len(pending) // width * width
            if n >= ROWS_AT_ONCE:
                yield pending[:n]
                pending = pending[n:]
        if pending:
            yield pending


def tracked(files: WeightFile, tied: bool) -> tuple[dict[str, LayerSource], list[str]]:
    """(layers by key, names of the residual): every module that ends in _proj, lm_head, embed_tokens, and the stacks of
    experts under their canonical keys (sections 8 and 12.5). Raises FormatError for stacks with gaps."""
    layers: dict[str, LayerSource] = {}
    stacks: dict[str, dict[int, str]] = {}
    names = set(files.keys())
    rest = []
    for name in files:
        key, _, kind = name.rpartition(".")
        if not is_tracked(key) or kind not in ("weight", "bias"):
            rest.append(name)
            continue
        if key.rpartition(".")[2] == "lm_head" and tied:
            continue  # the embedding serves for it
        prefix, expert, module = expert_parts(key)
        if kind == "bias":
            continue
        if expert is not None:
            stacks.setdefault("%s.%s" % (prefix, module), {})[expert] = key
        else:
            bias = [key + ".bias"] if key + ".bias" in names else []
            layers[key] = LayerSource(key, tuple(files.info(name).shape), [name], bias)
    for key, experts in stacks.items():
        if sorted(experts) != list(range(len(experts))):
            raise FormatError(
                "uqff.w3.missing", "experts %s: some are missing" % sorted(experts), field=key, path=files.path
            )
        keys = [experts[i] for i in range(len(experts))]
        shapes = {tuple(files.info(k + ".weight").shape) for k in keys}
        if len(shapes) > 1:
            raise FormatError(
                "uqff.w3.shape", "experts of different shapes: %s" % sorted(shapes), field=key, path=files.path
            )
        biases = [k + ".bias" for k in keys if k + ".bias" in names]
        shape = (len(keys), *shapes.pop())
        layers[key] = LayerSource(key, shape, [k + ".weight" for k in keys], biases)
    return layers, rest


def is_tracked(key: str) -> bool:
    """Is a module one whose weight becomes a layer?"""
    module = key.rpartition(".")[2]
    return module.endswith("_proj") or module in ("lm_head", "embed_tokens")


def expert_parts(key: str) -> tuple[str, int | None, str]:
    """(prefix of the experts, number, module) of `<prefix>.experts.<n>.<module>`; number None for any other key."""
    parts = key.split(".")
    if len(parts) >= 3 and parts[-3] == "experts" and parts[-2].isascii() and parts[-2].isdigit():
        return ".".join(parts[:-2]), int(parts[-2]), parts[-1]
    return key, None, ""


def full_name(key: str | None, part: Part) -> str:
    """The name of a tensor in the file."""
    if key is None:
        return str(part.suffix)
    return key + ".bias" if part.suffix is None else "%s.weight%s" % (key, part.suffix)


def layout_file(
    file: AtomicFile, tensors: list[tuple[str, str, tuple[int, ...]]], metadata: dict[str, str]
) -> dict[str, int]:
    """Write the header of a safetensors file whose tensors will be put into their places; their offsets by name."""
    by_name = {name: (dtype, shape) for name, dtype, shape in tensors}
    names = order(by_name, {n: d for n, (d, _) in by_name.items()})
    head = header_bytes([(n, *by_name[n]) for n in names], metadata)
    file.write(head)
    offsets, at = {}, len(head)
    for n in names:
        offsets[n] = at
        at += nbytes(*by_name[n])
    return offsets


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


# ---- config.json: 12.6


def read_config(folder: str) -> dict[str, Any]:
    """The source's config.json. Raises OSError, FormatError."""
    path = os.path.join(folder, "config.json")
    with Source(path, "pread") as source:
        config = strictjson.loads(source.read_at(0, min(source.size, 1 << 24)), path=path)
    if not isinstance(config, dict):
        raise FormatError("config.root.json", "expected a JSON object", path=path)
    return config


def clean_config(value: Any) -> Any:
    """A config without any quantization_config, at any depth."""
    if isinstance(value, dict):
        return {k: clean_config(v) for k, v in value.items() if k != "quantization_config"}
    return [clean_config(v) for v in value] if isinstance(value, list) else value


def rust_float(x: float) -> str:
    """A float as Rust's serde_json prints it: shortest digits, plain notation from 1e-5 to below 1e16, else an exponent.

    >>> rust_float(1e-06), rust_float(10000.0), rust_float(1e-5), rust_float(1e16), rust_float(1.5e300)
    ('1e-6', '10000.0', '0.00001', '1e16', '1.5e300')
    """
    if x == 0:
        return "-0.0" if str(x).startswith("-") else "0.0"
    sign = "-" if x < 0 else ""
    mantissa, _, exponent = ("%r" % abs(x)).partition("e")
    whole, _, fraction = mantissa.partition(".")
    digits = (whole + fraction).lstrip("0")
    point = len(whole.lstrip("0")) + int(exponent or 0)  # digits before the decimal point
    if not whole.lstrip("0"):
        point = len(fraction.lstrip("0")) - len(fraction) + int(exponent or 0)
    digits = digits.rstrip("0") or "0"
    if len(digits) <= point <= 16:
        return "%s%s.0" % (sign, digits.ljust(point, "0"))
    if 0 < point <= 16:
        return "%s%s.%s" % (sign, digits[:point], digits[point:])
    if -5 < point <= 0:
        return "%s0.%s%s" % (sign, "0" * -point, digits)
    return "%s%s%se%d" % (sign, digits[0], "." + digits[1:] if len(digits) > 1 else "", point - 1)

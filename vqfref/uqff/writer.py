"""A Hugging Face model folder to UQFF, byte for byte what the engine writes. Spec: UQFF sections 2, 7, 11, 12, 16.

First everything is settled: which tensors are layers, what each becomes, which shard holds what; whatever can't be done
is an error before anything is written. Then shards, residual, assets and report are made in a folder beside the target
and moved in together.

What differs from the engine: tokenizer files are copied, not serialized anew, and the report names this program.
"""

from __future__ import annotations

import os
import struct

from vqfref import strictjson
from vqfref.errors import FormatError, UnsupportedError, UsageError
from vqfref.findings import Findings
from vqfref.safetensors.reader import open_folder
from vqfref.safetensors.writer import header_bytes, nbytes, order
from vqfref.sink import AtomicFile, Publication
from vqfref.source import Source
from vqfref.uqff.encode import LayerEncoder, LayerSource, Part, encode_floats, tracked
from vqfref.uqff.naming import EXTENSION, REPORT_NAME, RESIDUAL_NAME, group_key
from vqfref.uqff.report import Detail, Fallback, Output, Report, dump, load
from vqfref.uqff.targets import expand_types, resolve_target

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Sequence

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
# A source without them is warned about: what the engine does with a folder that lacks them.
WANTED = {"tokenizer.json": "refuses", "tokenizer_config.json": "accepts", "generation_config.json": "accepts"}
MANAGED = (RESIDUAL_NAME, "config.json", "modules.json", "chat_template.jinja", REPORT_NAME, *COPIED)


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
    stem = os.path.basename(out)[: -len(EXTENSION)] if single else None
    if not out or stem == "":
        raise UsageError("usage.out.policy", "OUT %r names neither a folder nor a stem" % out)
    target = os.path.dirname(out) or "." if single else out
    if os.path.isdir(target) and os.path.isdir(folder) and os.path.samefile(target, folder):
        raise UsageError("usage.out.policy", "OUT would replace files of the source: name another folder", path=target)
    with open_folder(os.fspath(folder)) as files:
        job = _Job(files, os.fspath(folder), DTYPES[dtype], pins, max_shard_bytes)
        plans = [(name, stem or name, job.targets(name)) for name in names]
        with Publication(target) as publication:
            outputs = [
                job.write_set(publication, stem, name, targets, progress)
                for name, stem, targets in [*plans[1:], plans[0]]  # the runtime type comes last
            ]
            job.write_residual(publication)
            job.write_assets(publication)
            report = Report(1, {"tool": TOOL}, base_model, None, METADATA["uqff.version"], outputs)
            publication.add(REPORT_NAME, [dump(report)])
            stale = stale_names(target, [stem for _, stem, _ in plans])
            job.tell_of_others(target, stale, [name for o in outputs for name in o.shards])
            publication.remove(stale)
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

    def encoder(self, layer: LayerSource, stored: str) -> LayerEncoder:
        return LayerEncoder(self.files, layer, stored, self.dtype)

    # -- shards

    def write_set(
        self, publication: Publication, stem: str, name: str, targets: dict[str, Target], progress: Progress | None
    ) -> Output:
        """All shards of one type; returns its output for the report."""
        shards = self.shards(targets)
        total = sum(len(parts) for parts in shards)
        done = 0
        files = []
        encoder: LayerEncoder | None = None  # of the layer that is being written, perhaps over several shards
        for index, parts in enumerate(shards):
            file_name = "%s-%d%s" % (stem, index, EXTENSION)
            with publication.file(file_name) as file:
                at = layout_file(file, [(full_name(key, p), p.dtype, p.shape) for key, p in parts], METADATA)
                for key, part in parts:
                    if key is None:
                        file.write_at(at[part.suffix], struct.pack("<I", dict(VERSION)[part.suffix]))
                    elif encoder is None or encoder.layer.key != key:
                        encoder = self.encoder(self.layers[key], targets[key].stored)
                    if key is not None and encoder is not None:
                        offset = at[full_name(key, part)]
                        for piece in encoder.pieces(part):
                            file.write_at(offset, piece)
                            offset += len(piece)
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
            for part in self.encoder(self.layers[key], targets[key].stored).parts():
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

    def output(self, name: str, files: list[str], targets: dict[str, Target]) -> Output:
        """The output of the report (section 11)."""
        counts: dict[str, int] = {}
        fallbacks, details = [], []
        for key in sorted(targets, key=lambda k: k.encode("utf-8")):
            t, layer = targets[key], self.layers[key]
            counts[t.stored] = counts.get(t.stored, 0) + 1
            if t.reason is not None:
                fallbacks.append(Fallback(key, t.resolved, t.stored, list(layer.shape), t.reason))
            parts = {p.suffix: p for p in self.encoder(layer, t.stored).parts()}
            shape = layer.shape if ".shape" in parts else parts[""].shape
            details.append(Detail(key, t.default, t.resolved, t.stored, list(shape)))
        return Output(name, files, len(targets), counts, len(fallbacks), fallbacks, details)

    # -- what lies beside the shards

    def tell_of_others(self, target: str, stale: list[str], written: list[str]) -> None:
        """Notes about the shards of other writes that lie in the folder: they go, or stay without being reported."""
        present = sorted(os.listdir(target)) if os.path.isdir(target) else []
        for name in (n for n in present if n.endswith(EXTENSION) and n not in written):
            if name in stale:
                self.found.add("note", "uqff.w7.name", "of an earlier write, is removed", None, name)
            else:
                self.found.add("note", "uqff.w7.policy", "stays, but the new report does not list it: "
                               "`vqfref uqff report --write` lists all sets", None, name)  # fmt: skip

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
                self.found.add("warning", "uqff.w5.missing", "the source has no %s" % name, None, name, WANTED[name])


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

"""Verbs that show a file: info, header, ls, hexdump."""

from __future__ import annotations

from vqfref.cli.check import summary
from vqfref.cli.output import add_file, count, finding_lines, finish, human, number, table
from vqfref.errors import printable
from vqfref.findings import engine_verdict
from vqfref.weights import sniff

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from typing import Any, Callable, Iterator

    from vqfref.uqff.reader import UqffFile
    from vqfref.vqf.reader import VqfFile
    from vqfref.weightfile import WeightFile


def add_verbs(add_verb: Callable[..., Any]) -> None:
    verb = add_verb("info", run_info, "what a file is (also: vqfref FILE)", """\
Explain a file in a screenful: form, sizes, flags, model, weights, seals, and what `check` finds.

Example: vqfref info model.vqf""")  # fmt: skip
    add_file(verb)

    verb = add_verb("header", run_header, "every header field: offset, size, bytes, value, meaning", """\
Print every field of the header, of the form that the file has. A file that can't be opened is explained all the same:
a version 1 header, a header whose file was cut, one that is damaged.

Example: vqfref header model.vqf
Example: vqfref header --directory model.vqf""")  # fmt: skip
    add_file(verb)
    verb.add_argument("--directory", action="store_true", help="the fields of every directory entry too")

    verb = add_verb("ls", run_ls, "the tensors: shape, encoding, offset, length", """\
List the tensors in the file's order. SHAPE is the true [out, in] of one matrix; `28 x` before it are layers, `28 x 128 x`
layers and experts. With --layer (and --expert), list the byte ranges that hold one layer, as an engine that streams
layers needs them.

Example: vqfref ls model.vqf
Example: vqfref ls --layer 3 model.vqf""")  # fmt: skip
    add_file(verb)
    verb.add_argument("--layer", type=int, metavar="N", help="byte ranges of layer N in every tensor that has layers")
    verb.add_argument("--expert", type=int, metavar="E", help="of expert E alone, where a tensor has experts")

    verb = add_verb("hexdump", run_hexdump, "bytes like od -A x -t x1, with the fields' names", """\
Print bytes exactly as `od -A x -t x1` does on the board, and behind them the fields that start there; a name behind …
goes on from the line before. Without -j and -N: header and directory. With TENSOR: the start of its data.

Example: vqfref hexdump model.vqf
Example: vqfref hexdump -j 0xc8 -N 16 model.vqf
Example: vqfref hexdump model.vqf q4_q""")  # fmt: skip
    add_file(verb, json=False)
    verb.add_argument("tensor", nargs="?", metavar="TENSOR", help="start at this tensor (256 bytes, or -N)")
    verb.add_argument("-j", "--skip", type=number, metavar="OFFSET", help="first byte, decimal or 0x…")
    verb.add_argument("-N", "--count", type=number, metavar="BYTES", help="how many bytes")
    verb.add_argument("-v", dest="all", action="store_true", help="print repeated lines instead of *")


# ---- info


def run_info(args: argparse.Namespace) -> int:
    import vqfref

    with vqfref.open(args.file, backend=args.backend, q8_tile=args.q8_tile) as f:
        findings = f.check()
        extra = {"metadata": f.metadata(), "engine": engine_verdict(findings)}
        ok = not any(x.severity == "error" for x in findings)
        explain = {"vqf": vqf_info, "safetensors": safetensors_info, "uqff": uqff_info}[f.format]
        rows = explain(f, findings)  # type: ignore[operator]
        return finish(args, f.format, ok, findings, extra, table(rows) + finding_lines(findings, args.file))


def safetensors_info(f: WeightFile, findings: list[Any]) -> Iterator[tuple[str, str]]:
    """The rows of `info` for a safetensors file or set."""
    infos = list(f.tensors())
    files = sorted({t.path or "" for t in infos})
    yield "file", f.path or ""
    yield "format", "safetensors, %s in %s" % (count(len(infos), "tensor"), count(max(len(files), 1), "file"))
    yield "data", human(sum(t.nbytes for t in infos))
    for dtype in sorted({t.dtype for t in infos}):
        members = [t for t in infos if t.dtype == dtype]
        yield "", "%-8s %5d  %s" % (dtype, len(members), human(sum(t.nbytes for t in members)))
    for key, value in f.metadata().get("metadata", {}).items():
        yield "metadata", "%s = %s" % (key, value)
    yield "sealed", "this format authenticates nothing"
    yield "structure", summary(findings)


def uqff_info(f: UqffFile, findings: list[Any]) -> Iterator[tuple[str, str]]:
    """The rows of `info` for a UQFF artifact."""
    facts = f.metadata()
    yield "folder", f.folder
    yield (
        "format",
        "UQFF %s, %s in %s" % (facts["version"], count(len(f.layers), "layer"), count(len(f.shards), "shard")),
    )
    for shard in f.shards:
        yield "", "%s  %s" % (shard.path, human(shard.source.size))
    yield "written by", "%s %s" % (
        facts["metadata"].get("uqff.producer", "unknown"), facts["metadata"].get("uqff.producer.mistralrs.version", ""),
    )  # fmt: skip
    for label, n in facts["labels"].items():
        nbytes = sum(f.info(key).nbytes for key, layer in f.layers.items() if layer.label() == label)
        yield "layers", "%-8s %5d  %s" % (label, n, human(nbytes))
    residual = f.residual
    yield "residual", "%s, %s" % (count(len(residual.header.entries), "tensor"), human(residual.source.size)) if (
        residual
    ) else "missing"  # fmt: skip
    yield "sealed", "this format authenticates nothing"
    yield "structure", summary(findings)


def vqf_info(f: VqfFile, findings: list[Any]) -> Iterator[tuple[str, str]]:
    """The rows of `info` for a VQF file."""
    from vqfref.vqf import structs

    h, a = f.header, f.header.arch
    kind = "mixture of experts" if h.version == structs.VERSION_MOE else "dense"
    yield "file", printable(f.path or "")
    yield "format", "VQF version %d (%s), header of %d bytes" % (h.version, kind, f.form)
    tag = "HMAC-SM3, 32 bytes" if f.encrypted else "FNV-1a-64, 8 bytes"
    yield "size", human(f.head.size)
    yield "map", "header 0x0, directory 0x%x, data 0x%x .. 0x%x, then the tag (%s)" % (
        structs.DIR_OFFSET, h.data_offset, h.file_len, tag,
    )  # fmt: skip
    yield "flags", "0x%x  %s" % (h.flags, structs.flag_names(h.flags))
    for flag in structs.FLAGS:
        if h.flags >> flag.bit & 1:
            yield "", "%-8s %s" % (flag.name, flag.meaning)
    yield "model", "%s, dim %d, ffn %d, vocabulary %d, context %d" % (
        count(a.n_layers, "layer"), a.dim, a.ffn_dim, a.vocab_size, a.max_seq_len,
    )  # fmt: skip
    yield "attention", "%s and %s of %d%s, rope theta %.9g%s" % (
        count(a.n_heads, "query head"), count(a.n_kv_heads, "kv head"), a.head_dim,
        ", q and k norms" if a.has_q_norm else "", a.rope_theta,
        ", mrope %s" % list(a.mrope_sections[: a.mrope_n_sec]) if a.has_mrope else "",
    )  # fmt: skip
    if a.n_experts:
        yield "experts", "%d of width %d, %d for a token, %d shared" % (
            a.n_experts, a.moe_ffn, a.top_k, a.shared_experts,
        )  # fmt: skip
    if a.has_vision:
        yield "vision", "%s, hidden %d, patch %d, output %d" % (
            count(a.vis_depth, "block"), a.vis_hidden, a.vis_patch, a.vis_out_dim,
        )  # fmt: skip
    yield "weights", count(len(f.directory), "tensor")
    for name, members in families(f).items():
        yield "", "%-12s %3d  %s" % (name, len(members), human(sum(e.nbytes for e in members)))
    yield (
        "sealed",
        "%s; %s"
        % (
            "encrypted with SM4-CTR" if f.encrypted else "not encrypted",
            "signed as %r" % printable(f.header.sig.id.rstrip(b"\0").decode("ascii", "backslashreplace"))
            if h.flags & structs.FLAG_SIGNED
            else "not signed",
        ),
    )
    yield "", "the tag is not checked here: `vqfref verify` reads the whole file"
    yield "structure", summary(findings)


def families(f: VqfFile) -> dict[str, list[Any]]:
    """Directory entries by family: the weight sets, the vision tower, the norms and embeddings."""
    found: dict[str, list[Any]] = {}
    for e in f.directory:
        family = next((p + "*" for p in ("q8_", "q4_", "x8_", "v_") if e.name.startswith(p)), "other")
        found.setdefault(family, []).append(e)
    return found


# ---- header


def run_header(args: argparse.Namespace) -> int:
    import vqfref
    from vqfref.source import Source

    with Source(args.file, args.backend) as source:
        form, rows = explainer(args.file).header_rows(source, args.directory)
    findings = vqfref.check(args.file, q8_tile=args.q8_tile)
    ok = not any(f.severity == "error" for f in findings)
    lines = ["# " + form]
    lines += table([("OFFSET", "SIZE", "FIELD", "BYTES", "VALUE", "MEANING")] + [
        ("0x%03x" % r.offset, r.size, r.field, shortened(r.raw), r.value, r.meaning) for r in rows
    ], " r")  # fmt: skip
    lines += finding_lines(findings, args.file)
    extra = {"layout": form, "fields": [r._asdict() for r in rows]}
    return finish(args, sniff(args.file), ok, findings, extra, lines)


def explainer(path: str) -> Any:
    """The module that explains the fields of a file's format."""
    if sniff(path) in ("safetensors", "uqff"):
        from vqfref.safetensors import explain
    else:
        from vqfref.vqf import explain  # type: ignore[no-redef]
    return explain


def shortened(raw: str) -> str:
    """Hex bytes in pairs, the first eight of a long field.

    >>> shortened("46514657")
    '46 51 46 57'
    """
    pairs = [raw[i : i + 2] for i in range(0, len(raw), 2)]
    return " ".join(pairs[:8]) + (" …" if len(pairs) > 8 else "")


# ---- ls


def run_ls(args: argparse.Namespace) -> int:
    import vqfref

    with vqfref.open(args.file, backend=args.backend, q8_tile=args.q8_tile) as f:
        if args.layer is None and args.expert is None:
            infos = list(f.tensors())
            rows: list[tuple[object, ...]] = [("NAME", "SHAPE", "DTYPE", "ENCODING", "OFFSET", "BYTES")]
            rows += [(t.name, shape_text(t), t.dtype, t.encoding, "0x%x" % t.offset, t.nbytes) for t in infos]
            tensors = [{**t._asdict(), "shape": list(t.shape)} for t in infos]
            return finish(args, f.format, True, [], {"tensors": tensors}, table(rows, "    rr"))
        if args.layer is None:
            raise vqfref.UsageError("usage.layer.missing", "--expert of which layer? give --layer too")
        if f.format != "vqf":
            raise vqfref.UsageError("usage.layer.range", "tensors of this format have no layers")
        parts = list(layer_parts(f, args.layer, args.expert))
        rows = [("NAME", "ENCODING", "OFFSET", "BYTES", "RANGES")]
        rows += [(name, enc, "0x%x" % r[0][0], sum(n for _, n in r), len(r)) for name, enc, r in parts if r]
        ranges = [{"name": n, "encoding": enc, "ranges": [list(x) for x in r]} for n, enc, r in parts]
        return finish(args, f.format, True, [], {"layer": args.layer, "tensors": ranges}, table(rows, "  rrr"))


def layer_parts(f: VqfFile, layer: int | None, expert: int | None) -> Iterator[tuple[str, str, list[tuple[int, int]]]]:
    """(name, encoding, byte ranges) of one layer or expert, for every tensor that has such."""
    from vqfref.errors import UsageError

    found = False
    for t in f.tensors():
        if t.layers and (expert is None or t.experts) and 0 <= (layer or 0) < t.layers:
            found = True
            yield t.name, t.encoding, f.ranges(t.name, layer or 0, expert=expert)
    if not found:
        raise UsageError("usage.layer.range", "no tensor has layer %s%s" % (
            layer or 0, "" if expert is None else " and experts"))  # fmt: skip


def shape_text(t: Any) -> str:
    """A shape with its layers and experts before it.

    >>> from vqfref.weightfile import TensorInfo
    >>> shape_text(TensorInfo("q4_q", (2048, 2048), 28, 0, "q4_0", "q4_0", 0, 0, None))
    '28 x [2048, 2048]'
    """
    counts = (t.layers, t.experts) if len(t.shape) < 3 else (t.layers,)
    return "".join("%d x " % n for n in counts if n) + str(list(t.shape))


# ---- hexdump

MARGIN = 16  # names behind a line; a line of 16 bytes has no more fields, unless they overlap


def run_hexdump(args: argparse.Namespace) -> int:
    import vqfref
    from vqfref.source import Source

    start, stop = args.skip or 0, None
    if args.tensor is not None:
        with vqfref.open(args.file, backend=args.backend) as f:
            t = f.info(args.tensor)
        start = t.offset + start
        stop = min(start + 256, t.offset + t.nbytes)
    with Source(args.file, args.backend) as source:
        fields, data_offset = explainer(args.file).file_fields(source)
        if args.count is not None:
            stop = start + args.count
        elif stop is None:
            stop = data_offset if args.skip is None else source.size
        stop = min(stop, source.size)
        if start > source.size or start < 0 or stop < start:
            message = "from %d to %d: the file has %d bytes" % (start, stop, source.size)
            raise vqfref.UsageError("usage.offset.range", message)
        for line in dump_lines(source.pieces(start, stop, 1 << 16), start, fields, args.all):
            print(printable(line))
    return 0


def dump_lines(
    pieces: Iterator[bytes], start: int, fields: list[tuple[int, int, str]], every: bool = False
) -> Iterator[str]:
    """The lines of `od -A x -t x1`, each with the names of the fields (offset, size, name) that touch it."""
    at, last, starred = start, b"", False
    waiting = sorted((f for f in fields if f[0] + f[1] > start), reverse=True)  # by offset, the next one last
    touching: list[tuple[int, int, str]] = []
    for piece in pieces:
        for k in range(0, len(piece), 16):
            row = piece[k : k + 16]
            touching = [f for f in touching if f[0] + f[1] > at]
            while waiting and waiting[-1][0] < at + len(row):
                f = waiting.pop()
                if len(touching) < MARGIN:
                    touching.append(f)
            if row == last and not every and len(row) == 16:
                if not starred:
                    yield "*"
                starred = True
            else:
                margin = " ".join([name if offset >= at else "…" + name for offset, _, name in touching])
                text = "%06x %s" % (at, " ".join(["%02x" % b for b in row]))
                yield text + " " * max(56 - len(text), 2) + margin if margin else text
                starred = False
            last = row
            at += len(row)
    yield "%06x" % at

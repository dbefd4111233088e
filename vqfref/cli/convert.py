"""Verbs between a model folder and a VQF file: plan, convert, config, compare, map."""

from __future__ import annotations

import sys

from vqfref.cli import secrets
from vqfref.cli.output import add_file, finish, human, progress, table

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from typing import Any, Callable

    from vqfref.vqf.reader import VqfFile

WMODES = ("dual", "q4", "q8", "q4i", "g256")


def add_verbs(add_verb: Callable[..., Any]) -> None:
    verb = add_verb("plan", run_plan, "tensors, offsets and sizes of a conversion, before it", """\
Print the VQF file that a config.json would become: flags, every tensor with its offset and length, and the size on disk.
No weights are needed; whether there are q and k norms is guessed from model_type unless --q-norm says it.

Example: vqfref plan config.json --wmode q4""")  # fmt: skip
    verb.add_argument("file", metavar="CONFIG", help="config.json, or the folder that holds it")
    add_mode(verb)
    verb.add_argument("--q-norm", choices=("yes", "no"), help="are there q_norm and k_norm tensors?")
    verb.add_argument("--json", action="store_true", help="print one JSON object instead of text")

    verb = add_verb("convert", run_convert, "a Hugging Face model folder to VQF", """\
Convert MODEL_DIR (config.json and safetensors in BF16, F16 or F32) into OUT, byte for byte as the engine's converter does.

wmode: dual (q8 and q4), q4, q8, q4i (Q4 values as int8), g256 (q8 with scales for groups of 256). With a passphrase the
file is encrypted, with a private key signed, in the same pass. A missing or misshapen tensor is an error that names it;
NaN and infinities are counted and warned about. OUT appears when all of it is written; an interrupted run leaves nothing.

Example: vqfref convert Qwen3-VL-2B model.vqf --wmode q4""")  # fmt: skip
    verb.add_argument("file", metavar="MODEL_DIR")
    verb.add_argument("out", metavar="OUT")
    add_mode(verb)
    verb.add_argument("--legacy-rounding", action="store_true", help="round as converters before 2026-09-10 did")
    secrets.add_passphrase(verb)
    secrets.add_private(verb)
    verb.add_argument("--id", metavar="ID", help="SM2 user id (default: that of the header form)")

    verb = add_verb("config", run_config, "a file's arch against a config.json", """\
Compare every word of a file's arch with a config.json: equal ones, expected differences (such as the clamp of the context
length to 8192), real ones, and where the engine's text search would read another number than the JSON's structure
gives. Real differences make the exit code 1.

Example: vqfref config model.vqf config.json""")  # fmt: skip
    add_file(verb)
    verb.add_argument("config", metavar="CONFIG", help="config.json, or the folder that holds it")

    verb = add_verb("compare", run_compare, "a converted file against the model it was made from", """\
VQF and UQFF. For each tensor: RMSE, largest error, cosine, the block with the largest error, and a verdict. identical:
our bit-exact encoder gives the same bytes. explained: it does with the older rounding (VQF). not explained: with the
first block that differs. no source: the model has no such tensor. missing: the arch calls for a tensor that the file
lacks, or nothing in the file is made from a tensor of the model (VQF). The last three make the exit code 1.

Example: vqfref compare model.vqf Qwen3-VL-2B
Example: vqfref compare gemma-UQFF/q4k gemma""")  # fmt: skip
    add_file(verb)
    verb.add_argument("source", metavar="SOURCE_DIR")
    secrets.add_passphrase(verb)

    verb = add_verb("map", run_map, "the file drawn to scale, as an SVG picture", """\
Draw the file to scale: header, directory, tensors by family and layer, padding. Open the picture in a browser; it names
each part under the pointer.

Example: vqfref map model.vqf -o map.svg""")  # fmt: skip
    add_file(verb, json=False)
    verb.add_argument("-o", "--out", metavar="OUT", help="the file to write (default: standard output)")


def add_mode(verb: argparse.ArgumentParser) -> None:
    """What decides about the tensors of a conversion."""
    verb.add_argument("--wmode", required=True, choices=WMODES)
    verb.add_argument("--x8", action="store_true", help="x8_* copies too (wmode q4 only)")
    verb.add_argument("--q8-tile", choices=("8", "4", "none"), default="8", help="rows in a q8 tile (default 8)")
    verb.add_argument("--header", type=int, choices=(448, 432), default=448, help="header form in bytes (default 448)")


def mode(args: argparse.Namespace) -> dict[str, Any]:
    """The same as keyword arguments."""
    return {"x8": args.x8, "q8_tile": 0 if args.q8_tile == "none" else int(args.q8_tile), "form": args.header}


def run_plan(args: argparse.Namespace) -> int:
    from vqfref.vqf import structs
    from vqfref.vqf.convert import read_config
    from vqfref.vqf.geometry import plan

    config = read_config(args.file, q_norm=None if args.q_norm is None else args.q_norm == "yes")
    p = plan(config.arch, args.wmode, **mode(args))
    rows: list[tuple[object, ...]] = [("NAME", "QTYPE", "ROWS", "COLS", "LAYERS", "SHAPE", "OFFSET", "BYTES")]
    tensors = []
    for t, offset in zip(p.tensors, p.offsets):
        qtype, layers = structs.QTYPES[t.qtype].name, t.layers if t.layered else 0
        rows.append((t.name, qtype, t.rows, t.cols, layers or "", list(t.shape), "0x%x" % offset, t.nbytes))
        tensors.append({"name": t.name, "qtype": qtype, "rows": t.rows, "cols": t.cols, "layers": layers,
                        "experts": t.experts, "shape": list(t.shape), "offset": offset, "nbytes": t.nbytes})  # fmt: skip
    lines = table(rows, "  rrr rr")
    lines.append("version %d, flags 0x%x (%s), header of %d bytes" % (
        p.version, p.flags, structs.flag_names(p.flags), p.form))  # fmt: skip
    lines.append("%d tensors, data_offset 0x%x, file_len 0x%x" % (len(p.tensors), p.data_offset, p.file_len))
    lines.append("size %s; encrypted %d" % (human(p.size), p.file_len + 32))
    lines += ["remark: %s: %s" % remark for remark in config.remarks]
    extra = {
        "version": p.version, "flags": p.flags, "flag_names": structs.flag_names(p.flags).split(), "header_bytes": p.form,
        "n_tensors": len(p.tensors), "data_offset": p.data_offset, "file_len": p.file_len, "size": p.size,
        "tensors": tensors, "remarks": [list(r) for r in config.remarks],
    }  # fmt: skip
    return finish(args, "vqf", True, [], extra, lines)


def run_convert(args: argparse.Namespace) -> int:
    import os

    from vqfref.cli.output import say
    from vqfref.errors import UsageError, printable
    from vqfref.vqf.convert import convert
    from vqfref.vqf.reseal import Signer

    signer = None
    if args.priv is not None or os.environ.get(secrets.ENV_PRIVATE):
        signer = Signer(secrets.private_key(args), os.fsencode(args.id) if args.id else None)
    elif args.id is not None:
        raise UsageError("usage.id.missing", "--id without a key: the file would not be signed")
    passphrase = secrets.passphrase(args.passphrase_file)
    result = convert(args.file, args.out, args.wmode, **mode(args), legacy=args.legacy_rounding,
                     passphrase=passphrase or None, signer=signer, progress=progress("converting"))  # fmt: skip
    for finding in result.findings:
        say(str(finding))
    print("%s: %d tensors, %s" % (printable(args.out), len(result.plan.tensors), human(result.plan.size)))
    return 0


def open_vqf(args: argparse.Namespace) -> VqfFile:
    """The file, which must be VQF."""
    import vqfref
    from vqfref.vqf.reader import VqfFile

    f = secrets.open_file(args)
    if not isinstance(f, VqfFile):
        f.close()
        raise vqfref.UsageError("usage.format.unsupported", "this verb reads VQF files", path=args.file)
    return f


def run_config(args: argparse.Namespace) -> int:
    from vqfref.vqf.config import compare_arch
    from vqfref.vqf.convert import read_config

    with open_vqf(args) as f:
        config = read_config(args.config, f.keys())
        differences = compare_arch(f.header.arch, config)
        rows: list[tuple[object, ...]] = [("WORD", "FILE", "CONFIG", "VERDICT", "")]
        rows += [(d.word, d.file, d.config, d.kind, d.text) for d in differences if d.kind != "equal"]
        counts = {kind: sum(d.kind == kind for d in differences) for kind in ("equal", "expected", "different")}
        lines = table(rows) if len(rows) > 1 else []
        lines.append("%(equal)d words equal, %(expected)d expected differences, %(different)d real ones" % counts)
        words = [d._asdict() for d in differences]
        return finish(args, f.format, not counts["different"], [], {"words": words, "counts": counts}, lines)


def run_compare(args: argparse.Namespace) -> int:
    from vqfref.comparison import EXPLAINED, IDENTICAL
    from vqfref.errors import UsageError
    from vqfref.safetensors.reader import open_folder

    args.backend = args.backend or "pread"  # it reads all of the file
    with secrets.open_file(args) as f:
        if f.format == "vqf":
            from vqfref.vqf.compare import compare
        elif f.format == "uqff":
            from vqfref.uqff.compare import compare  # type: ignore[assignment]
        else:
            raise UsageError("usage.format.unsupported", "this verb reads VQF and UQFF")
        with open_folder(args.source, "pread") as sources:
            results = list(compare(f, sources, args.source, progress("comparing")))
        ok = all(c.verdict in (IDENTICAL, EXPLAINED) for c in results)
        rows: list[tuple[object, ...]] = [("TENSOR", "VERDICT", "RMSE", "MAX", "COSINE", "WORST BLOCK")]
        rows += [(c.name, c.verdict, "%.3e" % c.rmse, "%.3e" % c.max, "%.6f" % c.cosine, c.worst) for c in results]
        lines = table(rows, "  rrr")
        lines += ["%s: %s: %s" % (c.name, c.verdict, c.detail) for c in results if c.detail]
        verdicts = [c.verdict for c in results]
        lines.append(", ".join("%d %s" % (verdicts.count(v), v) for v in dict.fromkeys(verdicts)))
        return finish(args, f.format, ok, [], {"tensors": [c._asdict() for c in results]}, lines)


def run_map(args: argparse.Namespace) -> int:
    from vqfref.sink import AtomicFile
    from vqfref.vqf.map import svg

    with open_vqf(args) as f:
        picture = svg(f)
    if args.out is None:
        sys.stdout.write(picture)
    else:
        with AtomicFile(args.out) as file:
            file.write(picture.encode())
    return 0

"""The verb uqff: report, verify, inspect, slice."""

from __future__ import annotations

from vqfref.cli.output import finding_lines, finish, human
from vqfref.findings import engine_verdict

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from typing import Any, Callable

    from vqfref.uqff.report import Report


def add_verbs(add_verb: Callable[..., Any]) -> None:
    verb = add_verb("uqff", None, "UQFF folders: report, verify, inspect, slice, write", """\
What `mistralrs uqff` does, on local folders, and what one rank of a tensor-parallel engine would hold.

Example: vqfref uqff verify gemma-UQFF --strict
Example: vqfref uqff slice gemma-UQFF/q4k model.layers.0.mlp.up_proj --dim 0 --rank 1 --world 2""")  # fmt: skip
    actions = verb.add_subparsers(metavar="ACTION", dest="action", required=True)

    def add(name: str, run: object, text: str) -> argparse.ArgumentParser:
        action: argparse.ArgumentParser = actions.add_parser(name, help=text.split(".")[0], description=text)
        action.set_defaults(run=run)
        action.add_argument("file", metavar="DIR", help="a UQFF folder")
        action.add_argument("--json", action="store_true", help="print one JSON object instead of text")
        return action

    action = add(
        "report", run_report, "Print the report that a scan of the shards gives. Without --write nothing changes."
    )
    action.add_argument("--quant", metavar="Q", help="one set: file name, type, or shorthand (default: all)")
    action.add_argument("--base-model", metavar="NAME")
    action.add_argument("--repo-id", metavar="ID")
    action.add_argument("--write", action="store_true", help="write uqff_report.json into the folder")
    action.add_argument("-v", "--verbose", action="store_true", help="every fallback")

    action = add("verify", run_verify, "Check versions, structure and report as the engine's verify does. What it does not "
                 "look at (payload sizes, geometry, residual, assets) is checked apart, each finding with what the engine "
                 "makes of it.")  # fmt: skip
    action.add_argument("--quant", metavar="Q", help="one set: file name, type, or shorthand (default: all)")
    action.add_argument("--strict", action="store_true", help="producer metadata, report and no fallbacks are required; "
                        "our warnings about the report count too")  # fmt: skip
    action.add_argument("--allow-newer-minor", action="store_true", help="accept a newer minor version")

    action = add("inspect", run_inspect, "Print the tree of tensors. Labels stand behind each layer.")
    action.add_argument("--quant", metavar="Q", help="one set: file name, type, or shorthand (default: all)")
    action.add_argument(
        "--dtype", choices=("bf16", "f16", "f32"), help="print the pack factors for a model of this dtype too"
    )

    action = actions.add_parser(
        "write",
        help="quantize a model folder",
        description="""\
Quantize a Hugging Face model folder into UQFF, byte for byte as the engine does: shards, residual, config, report. OUT that
ends in .uqff gives the stem of the shards (one type); anything else is a folder. All of it appears together, or nothing.
In a folder that holds an earlier write, shards of the same names go; a write of several types replaces all that the old
report lists. A set that stays is no part of the new report: `uqff report --write` lists them all.

Example: vqfref uqff write Qwen3-0.6B qwen-UQFF --type q4k,afq4""",
    )
    action.set_defaults(run=run_write)
    action.add_argument("file", metavar="SRC", help="the model folder")
    action.add_argument("out", metavar="OUT")
    action.add_argument("--type", required=True, metavar="T[,T…]", help="types or shorthands, the runtime type first")
    action.add_argument("--dtype", choices=("f32", "bf16", "f16"), default="f32", help="working dtype (default f32)")
    action.add_argument("--topology", metavar="F", help="pins: `selector:` lines with `isq: TYPE`, or the same as JSON")
    action.add_argument(
        "--max-shard-bytes", type=int, default=None, metavar="N", help="payload of a shard (default 10 GiB)"
    )
    action.add_argument("--base-model", metavar="NAME", help="for the report")
    action.add_argument("--device", choices=("cpu", "cuda", "metal"), default="cpu", help="decides about shorthands")

    action = add("slice", run_slice, "Cut a layer as the engine's loader cuts it. DIR may name a set (dir/q4k).")
    action.add_argument("key", metavar="KEY", help="the layer, such as model.layers.0.mlp.up_proj")
    action.add_argument("--dim", type=int, required=True, metavar="D", help="the dimension that is cut")
    action.add_argument("--rank", type=int, metavar="R", help="which part")
    action.add_argument("--world", type=int, metavar="W", help="of how many equal parts")
    action.add_argument("--start", type=int, metavar="N", help="first index, instead of rank and world")
    action.add_argument("--length", type=int, metavar="N", help="how many")
    action.add_argument("-o", "--out", metavar="OUT", help="write the slice as a safetensors file")


def load(args: argparse.Namespace) -> tuple[list[Any], Report | None, bool]:
    """(selected groups, report, whether all are selected). Raises what the engine raises up front: R1 to R7."""
    import os

    from vqfref.errors import FormatError, UsageError
    from vqfref.uqff import naming
    from vqfref.uqff.report import check_identity
    from vqfref.uqff.report import load as load_report
    from vqfref.uqff.shards import listing

    if os.path.isfile(args.file):
        raise UsageError("usage.folder.policy", "%s is a file: name its folder" % args.file)
    available = listing(args.file)
    report = load_report(args.file, available)
    check_identity(report, available, os.path.join(args.file, naming.REPORT_NAME))
    groups = naming.groups(available, report)
    if not groups:
        raise FormatError("uqff.n1.missing", "no .uqff files in the folder", path=args.file)
    selected = naming.select(args.quant, groups, available)
    return selected, report, args.quant in (None, "all")


def run_report(args: argparse.Namespace) -> int:
    import os

    from vqfref.sink import AtomicFile
    from vqfref.uqff.naming import REPORT_NAME
    from vqfref.uqff.report import as_json, dump
    from vqfref.uqff.scan import scan_report, summary

    groups, _, _ = load(args)
    with scans_of(args.file, groups) as scans:
        report = scan_report(scans, "mistralrs uqff report", args.base_model, args.repo_id)
    if args.write:
        with AtomicFile(os.path.join(args.file, REPORT_NAME)) as file:
            file.write(dump(report))
    return finish(args, "uqff", True, [], {"report": as_json(report)}, summary(report, args.verbose))


def scans_of(folder: str, groups: list[Any]) -> Any:
    """A context manager over the Scans of some groups."""
    from contextlib import ExitStack, contextmanager

    from vqfref.uqff.scan import scan

    @contextmanager
    def opened() -> Any:
        with ExitStack() as stack:
            scans = []
            for group in groups:
                s = scan(folder, group)
                for file in s.shards:
                    stack.callback(file.close)
                scans.append(s)
            yield scans

    return opened()


def run_verify(args: argparse.Namespace) -> int:
    from vqfref.uqff.audit import audit
    from vqfref.uqff.report import as_json
    from vqfref.uqff.scan import summary, verify

    groups, report, all_selected = load(args)
    verdict = verify(
        args.file,
        groups,
        report,
        strict=args.strict,
        allow_newer_minor=args.allow_newer_minor,
        all_selected=all_selected,
    )
    findings = audit(args.file) if all_selected else [f for g in groups for f in audit(args.file, g.files)]
    findings = [f for f in findings if not (args.allow_newer_minor and f.code == "uqff.v6.version")]
    for f in findings:
        name = f.field or ""
        seen = f.code == "uqff.e1.name" and ("." not in name or ".weight." in name)  # by checks 11 and 14
        if seen or (args.strict and f.code == "uqff.r8.json"):
            f.severity = "error"
    ok = verdict.ok and not any(f.severity == "error" for f in findings)
    lines = ["%s: %s" % ("OK" if ok else "FAIL", args.file), *summary(verdict.report)]
    lines += ["warning: " + text for text in verdict.warnings] + ["error: " + text for text in verdict.errors]
    lines += finding_lines(findings, args.file)
    if ok and engine_verdict(findings) == "refuses":
        lines.append("the engine does not load this folder as it is")
    extra = {"report": as_json(verdict.report), "warnings": verdict.warnings, "errors": verdict.errors}
    return finish(args, "uqff", ok, findings, extra, lines)


def run_write(args: argparse.Namespace) -> int:
    from vqfref.cli.output import progress, say
    from vqfref.errors import LimitError, printable
    from vqfref.source import Source
    from vqfref.uqff.targets import MAX_TOPOLOGY, parse_topology
    from vqfref.uqff.writer import CAP, write

    pins = None
    if args.topology is not None:
        with Source(args.topology, "pread") as source:
            if source.size > MAX_TOPOLOGY:
                raise LimitError("usage.topology.limit", "%d bytes, expected at most %d" % (source.size, MAX_TOPOLOGY),
                                 path=args.topology)  # fmt: skip
            pins = parse_topology(source.read_at(0, source.size), args.topology)
    findings = write(
        args.file, args.out, args.type.split(","), dtype=args.dtype, pins=pins,
        max_shard_bytes=CAP if args.max_shard_bytes is None else args.max_shard_bytes, base_model=args.base_model,
        device=args.device, progress=progress("quantizing"),
    )  # fmt: skip
    for finding in findings:
        say(str(finding))
    if any(f.engine == "refuses" for f in findings):
        say("the engine does not load this folder as it is")
    print(printable(args.out))
    return 0


def run_inspect(args: argparse.Namespace) -> int:
    from vqfref.uqff.inspect import tree
    from vqfref.uqff.reader import UqffFile
    from vqfref.uqff.report import as_json
    from vqfref.uqff.scan import scan_report

    groups, report, _ = load(args)
    with scans_of(args.file, groups) as scans:
        scanned = scan_report(scans, "mistralrs uqff inspect")
        title = (report.base_model if report is not None else None) or "UQFF artifact"
        lines = [
            title,
            *("%s:%d layers/%d fallback(s)" % (o.quant, o.layers, o.fallback_count) for o in scanned.outputs),
        ]
        lines += tree(scans)
    extra = {"report": as_json(scanned)}
    if args.dtype:
        extra["pack_factors"] = {}
        for group in groups:
            with UqffFile(args.file, group.files) as f:
                factor = f.pack_factor(dtype=args.dtype.upper())
            extra["pack_factors"][group.name] = factor
            lines.append("pack factor of %s for %s: %d" % (group.name, args.dtype, factor))
    return finish(args, "uqff", True, [], extra, lines)


def run_slice(args: argparse.Namespace) -> int:
    import vqfref
    from vqfref import kernels
    from vqfref.uqff.reader import UqffFile

    with vqfref.open(args.file) as f:
        if not isinstance(f, UqffFile):
            raise vqfref.UsageError("usage.format.unsupported", "%s is no UQFF folder" % args.file)
        part = f.slice(args.key, dim=args.dim, rank=args.rank, world=args.world, start=args.start, length=args.length)
        tensors = {args.key + ".weight" + suffix: piece for suffix, piece in part.pieces.items()}
        if part.bias is not None:
            tensors[args.key + ".bias"] = part.bias
        rows = [
            {
                "name": n,
                "dtype": p.dtype,
                "shape": list(p.shape),
                "nbytes": len(p.data),
                "sm3": kernels.sm3(p.data).hex(),
            }
            for n, p in tensors.items()
        ]
        lines = ["%s: shape %s" % (args.key, list(part.shape))]
        lines += ["  %(name)s %(dtype)s %(shape)s %(nbytes)d bytes, SM3 %(sm3)s" % r for r in rows]
        if args.out is not None:
            from vqfref.safetensors.writer import write
            from vqfref.sink import keep_sources

            keep_sources(args.out, [s.path for s in (*f.shards, f.residual) if s is not None and s.path is not None])
            write(args.out, tensors)
            lines.append("%s: %s" % (args.out, human(sum(len(p.data) for p in tensors.values()))))
        return finish(args, f.format, True, [], {"shape": list(part.shape), "tensors": rows}, lines)

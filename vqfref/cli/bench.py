"""The verb bench: plain and quick versions and other people's packages side by side."""

from __future__ import annotations

from vqfref.cli.output import progress, say, table

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from typing import Any, Callable


def add_verbs(add_verb: Callable[..., Any]) -> None:
    verb = add_verb("bench", run_bench, "how quick the plain and the quick versions are, beside each other and others'", """\
Measure the hot operations: the plain version, the quick one, and those of numpy, gguf, gmssl, gmalg, cryptography and
safetensors, each where it is installed. They take turns in this process; the figures are medians. Ratios are what
counts: they come out alike on a busy machine too. Where the plain version would take seconds it gets less to do.

A goal that is missed is no failure; a quick version that gives another result than the plain one is one: exit code 1.

Example: vqfref bench --svg bench.svg
Example: vqfref bench --only 'sm*' --rounds 20""")  # fmt: skip
    verb.add_argument("--only", metavar="GLOB", help="the operations whose names fit the pattern")
    verb.add_argument("--rounds", type=_rounds, metavar="N", help="turns of each version (default 15, quick 3)")
    verb.add_argument("--quick", action="store_true", help="short turns and few: some 10 s in all")
    verb.add_argument("--svg", metavar="FILE", help="draw the ratios into this file")
    verb.add_argument("--json", action="store_true", help="print one JSON object instead of text")


def _rounds(text: str) -> int:
    n = int(text)
    if not 1 <= n <= 10000:
        raise ValueError
    return n


def run_bench(args: argparse.Namespace) -> int:
    from vqfref import strictjson
    from vqfref.bench import picture, report

    found = report.run(args.only, args.rounds, args.quick, progress=progress("measuring"))
    results = found["results"]
    if args.json:
        print(strictjson.dumps(found, indent=2))
    else:
        print(
            "\n".join([*report.heading(found), "", *table(report.cells(results), "  rr r"), "", *report.notes(results)])
        )
    if args.svg:
        from vqfref.sink import AtomicFile

        with AtomicFile(args.svg) as file:
            file.write(picture.svg(found).encode("utf-8"))
    wrong = [r for r in results if r["equal"] is False]
    for r in wrong:
        say("vqfref: the quick %s, %s, gives another result than the plain one" % (r["operation"], r["variant"]))
    return 1 if wrong else 0

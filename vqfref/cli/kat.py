"""The verb kat: the known-answer-test suite against this library and against other programs."""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from typing import Any, Callable

    from vqfref.kat.cases import Case, Suite
    from vqfref.kat.runner import Outcome


def add_verbs(add_verb: Callable[..., Any]) -> None:
    verb = add_verb("kat", None, "the known-answer tests, against this library and against other programs", """\
Run the suite of known answers. kat/README.md is the normative text of its format and of the protocol.

Example: vqfref kat selftest
Example: vqfref kat run --op sm3 -- ./adapter
Example: vqfref kat run --op vqf_file --verify-cmd 'mytool check {file}'""")  # fmt: skip
    actions = verb.add_subparsers(metavar="ACTION", dest="action", required=True)

    def add(name: str, run: object, text: str) -> argparse.ArgumentParser:
        action: argparse.ArgumentParser = actions.add_parser(name, help=text, description=text)
        action.set_defaults(run=run)
        action.add_argument("--suite", metavar="DIR", help="the suite (default: kat/ beside the package, or inside it)")
        return action

    action = add("selftest", run_selftest, "this library, in process")
    add_filters(action)
    add_output(action)

    action = add("run", run_program, "another program: a long-lived adapter, or a command a file")
    add_filters(action)
    add_output(action)
    action.add_argument("--verify-cmd", metavar="CMD", help="a command that judges one file, {file} in it: 0 accepts, 1 "
                        "rejects, 2 is wrong usage, 77 skips; split at spaces, never through a shell")  # fmt: skip
    action.add_argument("--fresh", action="store_true", help="a process a case")
    action.add_argument("--timeout-scale", type=float, default=1.0, metavar="X", help="10 s a case times X (default 1)")
    action.add_argument("program", nargs="*", metavar="PROGRAM ARG", help="the adapter, behind --")

    action = add("list", run_list, "ids, operations, verdicts and flags of the cases")
    add_filters(action)

    action = add("show", run_show, "one case, all of it")
    action.add_argument("id", metavar="ID")

    action = add("export", run_export, "the suite in another form: json, flat text, a C header")
    add_filters(action)
    action.add_argument("folder", metavar="DIR")
    action.add_argument("--format", choices=("json", "flat", "c"), default="json")

    add("serve", run_serve, "this library as an adapter: the protocol on standard input and output")


def add_filters(action: argparse.ArgumentParser) -> None:
    action.add_argument("--only", action="append", default=[], metavar="GLOB", help="only cases whose id matches")
    action.add_argument("--skip", action="append", default=[], metavar="GLOB", help="no cases whose id matches")
    action.add_argument("--op", metavar="OP", help="one operation")
    action.add_argument("--level", choices=("required", "recommended"))
    action.add_argument("--flag", metavar="FLAG", help="cases with this flag")


def add_output(action: argparse.ArgumentParser) -> None:
    action.add_argument("--xfail", metavar="FILE", help="cases that are expected to fail: an id and a reason a line")
    action.add_argument("--strict-errors", action="store_true", help="a wrong error class is a failure")
    action.add_argument("--format", choices=("text", "tap", "junit", "json"), default="text")
    action.add_argument("-v", "--verbose", action="store_true", help="a line for every case")


def load(args: argparse.Namespace) -> tuple[Suite, list[Case]]:
    """The suite and the chosen cases. Raises UsageError where the filters leave none."""
    from vqfref.errors import UsageError
    from vqfref.kat.cases import Suite, chosen, find

    suite = Suite(find(args.suite))
    cases = list(chosen(suite.cases, args.only, args.skip, args.op, args.level, args.flag))
    if not cases:
        raise UsageError("usage.filter.missing", "no case is left by these filters")
    return suite, cases


def report(args: argparse.Namespace, suite: Suite, outcomes: list[Outcome], about: dict[str, Any]) -> int:
    """Print the outcomes in the chosen form; the exit code."""
    from vqfref.errors import printable
    from vqfref.kat import runner

    line, ok = runner.totals(outcomes, suite.version, args.strict_errors)
    if args.format == "json":
        print(runner.as_json(outcomes, suite.version, args.strict_errors, about))
    elif args.format == "junit":
        print(runner.junit(outcomes, args.strict_errors))
    else:
        lines = runner.tap_lines(outcomes, args.strict_errors) if args.format == "tap" else (
            runner.text_lines(outcomes, args.verbose))  # fmt: skip
        for text in lines:
            print(printable(text))
        print(line if args.format == "text" else "# " + line)
    return 0 if ok else 1


def xfail(args: argparse.Namespace) -> dict[str, str]:
    from vqfref.kat.runner import read_xfail

    if args.xfail is None:
        return {}
    with open(args.xfail, encoding="utf-8") as file:
        return read_xfail(file.read())


def run_selftest(args: argparse.Namespace) -> int:
    from vqfref import __version__
    from vqfref.kat import runner

    suite, cases = load(args)
    outcomes = list(runner.run(cases, runner.in_process(suite), xfail(args)))
    return report(args, suite, outcomes, {"name": "vqfref", "version": __version__})


def run_program(args: argparse.Namespace) -> int:
    from vqfref.errors import UsageError
    from vqfref.kat import runner
    from vqfref.kat.adapter import TIMEOUT, Adapter

    if bool(args.verify_cmd) == bool(args.program):
        raise UsageError("usage.program.missing", "give a program behind --, or --verify-cmd")
    suite, cases = load(args)
    timeout = TIMEOUT * args.timeout_scale
    if args.verify_cmd:
        ask = runner.by_command(suite, args.verify_cmd.split(), timeout)
        outcomes = list(runner.run(cases, ask, xfail(args), accept_only=True))
        return report(args, suite, outcomes, {"command": args.verify_cmd})
    adapter = Adapter(args.program, timeout, args.fresh)
    try:
        outcomes = list(runner.run(cases, runner.by_adapter(suite, adapter), xfail(args)))
        wrong = adapter.close()
    finally:
        adapter.kill()
    if wrong:
        print("vqfref: the program %s" % wrong, file=sys.stderr)
    code = report(args, suite, outcomes, {"name": adapter.name, "version": adapter.version})
    return code or (1 if wrong else 0)


def run_list(args: argparse.Namespace) -> int:
    from vqfref.cli.output import table

    _, cases = load(args)
    rows = [(c.id, c.op, c.result, c.error or "", c.level, ",".join(c.flags)) for c in cases]
    print("\n".join(table([("ID", "OP", "RESULT", "ERROR", "LEVEL", "FLAGS"), *rows])))
    return 0


def run_show(args: argparse.Namespace) -> int:
    from vqfref import strictjson
    from vqfref.errors import UsageError
    from vqfref.kat.cases import Suite, find

    suite = Suite(find(args.suite))
    for c in suite.cases:
        if c.id == args.id:
            shown = {**c._asdict(), "flags": list(c.flags), "line": " ".join(
                [c.id, c.op, *("%s=%s" % item for item in suite.lines(c).items())])}  # fmt: skip
            print(strictjson.dumps(shown, indent=2))
            return 0
    raise UsageError("usage.case.name", "no case %r" % args.id)


def run_export(args: argparse.Namespace) -> int:
    from vqfref.kat.export import export

    suite, cases = load(args)
    for path in export(suite, cases, args.folder, args.format):
        print(path)
    return 0


def run_serve(args: argparse.Namespace) -> int:
    from vqfref.kat.ops import answer

    for line in sys.stdin:
        sys.stdout.write(answer(line.rstrip("\n")) + "\n")
        sys.stdout.flush()
    return 0

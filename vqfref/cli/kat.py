"""The verb kat: the known-answer-test suite against this library and against other programs."""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from typing import Any, Callable, Iterator

    from vqfref.kat.cases import Case, Suite
    from vqfref.kat.runner import Outcome

MAX_SCALE = 10000  # of the time for a reply: longer than a day


def add_verbs(add_verb: Callable[..., Any]) -> None:
    verb = add_verb("kat", None, "the known-answer tests, against this library and against other programs", """\
Run the suite of known answers. kat/README.md is the normative text of its format and of the protocol.

Example: vqfref kat selftest
Example: vqfref kat run --op sm3,hmac_sm3 -- ./adapter
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
    action.add_argument("--op", action="append", default=[], metavar="OP,OP", help="only these operations")
    action.add_argument("--level", choices=("required", "recommended"))
    action.add_argument("--flag", metavar="FLAG", help="cases with this flag")


def add_output(action: argparse.ArgumentParser) -> None:
    action.add_argument("--xfail", metavar="FILE", help="cases that are expected to fail: an id and a reason a line")
    action.add_argument("--strict-errors", action="store_true", help="a wrong error class is a failure")
    action.add_argument("--format", choices=("text", "tap", "junit", "json"), default="text")
    action.add_argument("-v", "--verbose", action="store_true", help="a line for every case")


def load(args: argparse.Namespace) -> tuple[Suite, list[Case]]:
    """The suite and the chosen cases. Raises UsageError where the filters leave none."""
    from vqfref.errors import UsageError, did_you_mean
    from vqfref.kat.cases import OPERATIONS, Suite, chosen, find

    ops = [op for words in args.op for op in words.split(",")]
    for op in ops:
        if op not in OPERATIONS:
            raise UsageError("usage.op.name", "no operation %r%s" % (op, did_you_mean(op, list(OPERATIONS))))
    suite = Suite(find(args.suite))
    cases = list(chosen(suite.cases, args.only, args.skip, ops, args.level, args.flag))
    if not cases:
        flags = sorted({flag for c in suite.cases for flag in c.flags})
        hint = did_you_mean(args.flag, flags) if args.flag and args.flag not in flags else ""
        raise UsageError("usage.filter.missing", "no case is left by these filters" + hint)
    return suite, cases


def expected_failures(args: argparse.Namespace, suite: Suite) -> dict[str, str]:
    """The reasons in --xfail by case id. Raises OSError; UsageError for an id that the suite has not."""
    from vqfref.errors import UsageError, did_you_mean
    from vqfref.kat.runner import read_xfail

    if args.xfail is None:
        return {}
    with open(args.xfail, encoding="utf-8-sig", errors="backslashreplace") as file:
        found = read_xfail(file.read())
    ids = [c.id for c in suite.cases]
    for case_id in sorted(set(found) - set(ids)):
        message = "%s names a case that there is not: %s%s" % (args.xfail, case_id, did_you_mean(case_id, ids))
        raise UsageError("usage.case.name", message)
    return found


def report(
    args: argparse.Namespace, suite: Suite, count: int, running: Iterator[Outcome], about: dict[str, Any],
    end: Callable[[], str | None] = lambda: None,
) -> int:  # fmt: skip
    """Run the cases and print their outcomes in the chosen form, line by line where it has lines; the exit code.

    about: what is under test, filled while it runs. end: ends it, and says what went wrong then.
    """
    from vqfref.cli.output import progress, say
    from vqfref.errors import printable
    from vqfref.kat import runner

    outcomes = []
    show = progress("testing") if args.format == "text" and not args.verbose else None

    def watched() -> Iterator[Outcome]:
        for outcome in running:
            outcomes.append(outcome)
            if show:
                show(len(outcomes), count)
            yield outcome

    lines: Iterator[str] = iter(())
    if args.format == "text":
        lines = runner.text_lines(watched(), args.verbose)
    elif args.format == "tap":
        lines = runner.tap_lines(watched(), count, args.strict_errors)
    for text in lines:
        if show:
            show(count, count)  # erases it
        print(printable(text), flush=True)  # at once, beside what the program itself says on standard error
    outcomes += running
    wrong = end()
    if wrong:
        say("vqfref: the program %s" % wrong)
    line, ok = runner.totals(outcomes, suite.version, args.strict_errors)
    if args.format == "json":
        print(runner.as_json(outcomes, suite.version, args.strict_errors, about))
    elif args.format == "junit":
        print(runner.junit(outcomes, args.strict_errors))
    else:
        print(line if args.format == "text" else "# " + line)
    if all(o.outcome == runner.SKIP for o in outcomes):
        say("vqfref: no case was run: the program has none of these operations")
    return 0 if ok and not wrong else 1


def run_selftest(args: argparse.Namespace) -> int:
    from vqfref import __version__
    from vqfref.kat import runner

    suite, cases = load(args)
    running = runner.run(cases, runner.in_process(suite), expected_failures(args, suite))
    return report(args, suite, len(cases), running, {"name": "vqfref", "version": __version__})


def run_program(args: argparse.Namespace) -> int:
    from vqfref.cli.output import say
    from vqfref.errors import UsageError
    from vqfref.kat import runner
    from vqfref.kat.adapter import TIMEOUT, Adapter
    from vqfref.kat.cases import OPERATIONS

    if bool(args.verify_cmd) == bool(args.program):
        raise UsageError("usage.program.missing", "give a program behind --, or --verify-cmd")
    if not 0 < args.timeout_scale <= MAX_SCALE:
        raise UsageError("usage.timeout.range", "--timeout-scale must be above 0, and at most %d" % MAX_SCALE)
    timeout = TIMEOUT * args.timeout_scale
    suite, cases = load(args)
    xfail = expected_failures(args, suite)
    if args.verify_cmd:
        if "{file}" not in args.verify_cmd:
            raise UsageError("usage.program.missing", "--verify-cmd has no {file}, the place of the file's path")
        ask = runner.by_command(suite, args.verify_cmd.split(), timeout)
        running = runner.run(cases, ask, xfail, accept_only=True)
        return report(args, suite, len(cases), running, {"command": args.verify_cmd})
    adapter = Adapter(args.program, timeout, args.fresh)
    about: dict[str, Any] = {}

    def end() -> str | None:
        about.update(name=adapter.name, version=adapter.version)
        unknown = sorted(adapter.ops - set(OPERATIONS))
        if unknown:
            say("vqfref: the program lists operations that there are not: %s" % " ".join(unknown))
        return adapter.close()

    try:
        return report(args, suite, len(cases), runner.run(cases, runner.by_adapter(suite, adapter), xfail), about, end)
    finally:
        adapter.kill()


def run_list(args: argparse.Namespace) -> int:
    from vqfref.cli.output import table

    _, cases = load(args)
    rows = [(c.id, c.op, c.result, c.error or "", c.level, ",".join(c.flags)) for c in cases]
    print("\n".join(table([("ID", "OP", "RESULT", "ERROR", "LEVEL", "FLAGS"), *rows])))
    return 0


def run_show(args: argparse.Namespace) -> int:
    from vqfref import strictjson
    from vqfref.errors import UsageError, did_you_mean
    from vqfref.kat.cases import Suite, find
    from vqfref.kat.export import as_dict

    suite = Suite(find(args.suite))
    for c in suite.cases:
        if c.id == args.id:
            line = " ".join([c.id, c.op, *("%s=%s" % item for item in suite.lines(c).items())])
            print(strictjson.dumps({"op": c.op, **as_dict(c), "line": line}, indent=2))
            return 0
    raise UsageError("usage.case.name", "no case %r%s" % (args.id, did_you_mean(args.id, [c.id for c in suite.cases])))


def run_export(args: argparse.Namespace) -> int:
    from vqfref.errors import UsageError
    from vqfref.kat.export import export

    suite, cases = load(args)
    if os.path.realpath(args.folder) == os.path.realpath(suite.folder):
        raise UsageError("usage.out.policy", "%s is the suite itself" % args.folder)
    for path in export(suite, cases, args.folder, args.format):
        print(path)
    return 0


def run_serve(args: argparse.Namespace) -> int:
    from vqfref.kat.ops import answer

    for line in sys.stdin.buffer if sys.stdin is not None else ():  # bytes, since a path may be any
        print(answer(os.fsdecode(line).rstrip("\r\n")), flush=True)
    return 0

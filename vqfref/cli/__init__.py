"""The command line: parses arguments, calls the library, prints. It decides nothing about formats.

Exit codes: 0 good; 1 the file is bad, a check failed or two files differ; 2 usage; 3 input or output error; 130
interrupted. A closed pipe ends silently, with 141 as the shell reports SIGPIPE.
"""

from __future__ import annotations

import os
import sys

from vqfref.errors import UsageError, VqfrefError

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from typing import Any, TextIO

GOOD, BAD, USAGE, IO_ERROR, PIPE, INTERRUPTED = 0, 1, 2, 3, 141, 130


def main(argv: list[str] | None = None) -> int:
    """Run one command and return its exit code."""
    args = sys.argv[1:] if argv is None else list(argv)
    if sys.stdout is None:  # closed by whoever started this
        sys.stdout = _nowhere()
    if sys.stderr is None:
        sys.stderr = _nowhere()
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    from vqfref.cli.output import say

    if argv is None:
        _end_by_exception()
    try:
        code = _run(args)
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        code = PIPE
    except KeyboardInterrupt:
        say("vqfref: interrupted")
        code = INTERRUPTED
    except Terminated as signal:
        code = 128 + signal.number
    except MemoryError:
        say("vqfref: out of memory")
        code = IO_ERROR
    except OSError as error:
        where = "%s: " % os.fsdecode(error.filename) if error.filename is not None else ""
        say("vqfref: %s%s" % (where, error.strerror or error))
        code = IO_ERROR
    _silence(sys.stdout)
    _silence(sys.stderr)
    return code


class Terminated(BaseException):
    """SIGTERM or SIGHUP: ends like an exception, so that half-written files go."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def _end_by_exception() -> None:
    """Let SIGTERM and SIGHUP raise, where the interpreter knows signals."""
    try:
        import signal
    except ImportError:
        return

    def end(number: int, frame: object) -> None:
        raise Terminated(number)

    for name in ("SIGTERM", "SIGHUP"):
        number = getattr(signal, name, None)
        if number is not None and signal.getsignal(number) == signal.SIG_DFL:  # nohup's SIG_IGN stays
            signal.signal(number, end)


def _run(argv: list[str]) -> int:
    parser, verbs = build_parser()
    try:
        if argv and argv[0] not in verbs and not argv[0].startswith("-"):
            if not os.path.exists(argv[0]) and not set("./\\") & set(argv[0]):
                parser.error("%r is neither a verb nor a file; verbs: %s" % (argv[0], " ".join(verbs)))
            argv = ["info", *argv]
        args = parser.parse_args(argv or ["help"])
    except SystemExit as stop:  # argparse has said why
        return int(stop.code or 0)
    try:
        return int(args.run(args))
    except UsageError as error:
        from vqfref.cli.output import say

        say("vqfref: %s" % error)
        return USAGE
    except VqfrefError as error:
        from vqfref.cli.output import report_error

        report_error(args, error)
        return BAD


def build_parser() -> tuple[argparse.ArgumentParser, list[str]]:
    """The argument parser, and the names of all verbs."""
    import argparse

    from vqfref import __version__
    from vqfref.cli import attest, check, convert, help, kat, make, show, tensors, uqff
    from vqfref.cli.output import width

    class Formatter(argparse.RawDescriptionHelpFormatter):
        def __init__(self, prog: str) -> None:
            super().__init__(prog, width=width())  # argparse would import shutil, which minimal images lack

    class Parser(argparse.ArgumentParser):
        """No abbreviations: a new option must not break somebody's script."""

        def __init__(self, **kwargs: Any) -> None:
            super().__init__(formatter_class=Formatter, allow_abbrev=False, **kwargs)

    parser = Parser(
        prog="vqfref",
        description="The truth about the bytes of VQF weight files.",
        epilog="`vqfref FILE` alone is `vqfref info FILE`. `vqfref VERB --help` explains a verb.",
    )
    parser.add_argument("--version", action="version", version="vqfref " + __version__)
    subparsers = parser.add_subparsers(metavar="VERB", dest="verb", required=True)

    def add_verb(name: str, run: object, summary: str, text: str) -> argparse.ArgumentParser:
        verb = subparsers.add_parser(name, help=summary, description=text)
        verb.set_defaults(run=run)
        return verb

    for group in (show, tensors, check, convert, make, uqff, attest, kat, help):
        group.add_verbs(add_verb)
    return parser, list(subparsers.choices)


def _nowhere() -> TextIO:
    """A text stream that leads to nothing, and needs no closing."""
    return open(os.open(os.devnull, os.O_WRONLY), "w", encoding="utf-8", closefd=False)


def _silence(stream: object) -> None:
    """Flush a standard output; where it is closed or full, point it at nothing, so that the interpreter's last flush
    does not complain."""
    try:
        stream.flush()  # type: ignore[attr-defined]
        return
    except (OSError, ValueError):
        pass
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())  # type: ignore[attr-defined]
    except (OSError, ValueError, AttributeError):  # not a real file
        pass

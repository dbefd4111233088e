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


# The modules of this package with their verbs, in the order of the overview. Only what runs is imported.
VERBS = {
    "show": ("info", "header", "ls", "hexdump"),
    "tensors": ("cat", "hash", "diff"),
    "check": ("check", "verify"),
    "convert": ("plan", "convert", "config", "compare", "map"),
    "make": ("keygen", "pubkey", "sign", "encrypt", "decrypt", "set"),
    "uqff": ("uqff",),
    "attest": ("attest",),
    "kat": ("kat",),
    "bench": ("bench",),
    "help": ("pyz", "env", "help"),
}
ALL_VERBS = [verb for verbs in VERBS.values() for verb in verbs]


def main(argv: list[str] | None = None) -> int:
    """Run one command and return its exit code."""
    args = sys.argv[1:] if argv is None else list(argv)
    if sys.stdout is None:  # closed by whoever started this
        sys.stdout = _nowhere()
    if sys.stderr is None:
        sys.stderr = _nowhere()
    try:
        for stream in (sys.stdout, sys.stderr):
            if hasattr(stream, "reconfigure"):
                stream.reconfigure(errors="backslashreplace")
        if argv is None:
            _end_by_exception()
        code = _run(args)
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        code, why = PIPE, ""
    except KeyboardInterrupt:
        code, why = INTERRUPTED, "interrupted"
    except Terminated as signal:
        code, why = 128 + signal.number, ""
    except MemoryError:
        code, why = IO_ERROR, "out of memory"
    except OSError as error:
        where = "%s: " % os.fsdecode(error.filename) if error.filename is not None else ""
        code, why = IO_ERROR, "%s%s" % (where, error.strerror or error)
    if why:
        from vqfref.cli.output import say

        say("vqfref: " + why)
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
    argv = argv or ["help"]
    if argv[0] not in ALL_VERBS and not argv[0].startswith("-"):
        if not os.path.exists(argv[0]) and not set("./\\") & set(argv[0]):
            from vqfref.cli.output import say
            from vqfref.errors import did_you_mean

            say("vqfref: error: %r is neither a verb nor a file%s; verbs: %s" % (
                argv[0], did_you_mean(argv[0], ALL_VERBS), " ".join(ALL_VERBS)))  # fmt: skip
            return USAGE
        argv = ["info", *argv]
    try:
        args = build_parser(argv[0]).parse_args(argv)
    except SystemExit as stop:  # argparse has said why
        return int(stop.code or 0)
    try:
        keep_inputs(args)
        return int(args.run(args))
    except UsageError as error:
        from vqfref.cli.output import say

        say("vqfref: %s%s" % (os.fsdecode(error.path) + ": " if error.path else "", error))
        return USAGE
    except VqfrefError as error:
        from vqfref.cli.output import report_error

        report_error(args, error)
        return BAD


def keep_inputs(args: argparse.Namespace) -> None:
    """Raises UsageError where OUT is one of the files that a verb reads: a key, a passphrase, the weight file. The verbs
    that rewrite a weight file may put the new one in its place."""
    out = getattr(args, "out", None)
    if isinstance(out, str):
        from vqfref.sink import keep_sources

        own = ("out", "file") if args.verb in VERBS["make"] else ("out",)
        inputs = [v for name, v in vars(args).items() if name not in own and isinstance(v, str)]
        keep_sources(out, [v for v in inputs if not os.path.isdir(v)])


def build_parser(verb: str | None = None) -> argparse.ArgumentParser:
    """The argument parser of all verbs, or one that knows the verb and those of its module."""
    import argparse

    from vqfref import __version__
    from vqfref.cli.output import width

    class Formatter(argparse.RawDescriptionHelpFormatter):
        def __init__(self, prog: str) -> None:
            super().__init__(prog, width=width())  # argparse would import shutil, which minimal images lack

    class Parser(argparse.ArgumentParser):
        """No abbreviations: a new option must not break somebody's script."""

        def __init__(self, **kwargs: Any) -> None:
            super().__init__(formatter_class=Formatter, allow_abbrev=False, **kwargs)

        def _print_message(self, message: str, file: Any = None) -> None:
            """argparse's own leaves out that a disk is full or a pipe closed."""
            if message:
                (file or sys.stderr).write(message)

    parser = Parser(
        prog="vqfref",
        description="The truth about the bytes of VQF, UQFF and safetensors weight files.",
        epilog="`vqfref FILE` alone is `vqfref info FILE`. `vqfref VERB --help` explains a verb.",
    )
    parser.add_argument("--version", action="version", version="vqfref " + __version__)
    subparsers = parser.add_subparsers(metavar="VERB", dest="verb", required=True)

    def add_verb(name: str, run: object, summary: str, text: str) -> argparse.ArgumentParser:
        verb = subparsers.add_parser(name, help=summary, description=text)
        verb.set_defaults(run=run)
        return verb

    for module, verbs in VERBS.items():
        if verb not in ALL_VERBS or verb in verbs:
            __import__("vqfref.cli." + module, fromlist=["add_verbs"]).add_verbs(add_verb)
    return parser


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

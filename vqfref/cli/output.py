"""What all verbs print alike: tables, findings, JSON, progress."""

from __future__ import annotations

import os
import sys

from vqfref import strictjson
from vqfref.errors import printable
from vqfref.findings import Finding

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from typing import Any, Callable, Iterable

    from vqfref.errors import VqfrefError


def width() -> int:
    """Columns of the terminal; 100 where there is none."""
    try:
        return min(os.get_terminal_size(sys.stdout.fileno()).columns, 120)
    except (OSError, ValueError, AttributeError):
        return 100


def add_file(verb: argparse.ArgumentParser, json: bool = True, backend: bool = True) -> None:
    """The arguments of every verb that reads one file."""
    verb.add_argument("file", metavar="FILE", help="a weight file")
    if json:
        verb.add_argument("--json", action="store_true", help="print one JSON object instead of text")
    verb.add_argument(
        "--q8-tile", type=int, choices=(0, 4), default=0, metavar="N",
        help="4: q8_* lie in tiles of 4 rows, which no flag tells (default 0, by the flags)",
    )  # fmt: skip
    if backend:
        verb.add_argument(
            "--backend", choices=("mmap", "pread"), help="how to reach the bytes (default mmap if possible)"
        )


def finish(
    args: argparse.Namespace, format: str | None, ok: bool, findings: list[Finding], extra: dict[str, Any],
    lines: Iterable[str] = (),
) -> int:  # fmt: skip
    """Print a verb's outcome as text or as the JSON object that all read verbs share; return the exit code."""
    if args.json:
        result = {
            "file": getattr(args, "file", None),
            "format": format,
            "ok": ok,
            "findings": [f.as_dict() for f in findings],
            **extra,
        }
        print(strictjson.dumps(result, indent=2))
    else:
        for line in lines:
            print(printable(line))
    return 0 if ok else 1


def finding_lines(findings: list[Finding], file: str) -> list[str]:
    """A line a finding; where it is about another file than the one named, that file stands behind it."""
    folder = file if os.path.isdir(file) else os.path.dirname(file) or "."
    lines = []
    for f in findings:
        elsewhere = f.path if f.path != file else None
        lines.append("%s (in %s)" % (f, os.path.relpath(elsewhere, folder)) if elsewhere else str(f))
    return lines


def say(text: str) -> None:
    """A line on standard error, safe for a terminal; lost where standard error is closed or full."""
    try:
        print(printable(text), file=sys.stderr, flush=True)
    except (OSError, ValueError):
        pass


def report_error(args: argparse.Namespace, error: VqfrefError) -> None:
    """An error that ended a verb: the JSON object with it as the only finding, or its line on stderr."""
    finding = Finding.from_error(error)
    if getattr(args, "json", False):
        finish(args, None, False, [finding], {})
    else:
        say("%s: %s" % (error.path or getattr(args, "file", args.verb), finding))


def table(rows: Iterable[Iterable[object]], right: str = "") -> list[str]:
    """Columns padded to their widest cell; `right` has an r for each column that is aligned right.

    >>> table([("a", 1), ("bcd", 22)], " r")
    ['a     1', 'bcd  22']
    """
    cells = [[printable(str(c)) for c in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells)]
    lines = []
    for row in cells:
        padded = [c.rjust(w) if right[i : i + 1] == "r" else c.ljust(w) for i, (c, w) in enumerate(zip(row, widths))]
        lines.append("  ".join(padded).rstrip())
    return lines


def human(n: int) -> str:
    """A byte count with its digits grouped, and in units of 1024 from a megabyte up.

    >>> human(2331316232)
    '2,331,316,232 bytes (2.17 GiB)'
    """
    text = "{:,} bytes".format(n)
    for unit, size in (("GiB", 1 << 30), ("MiB", 1 << 20)):
        if n >= size:
            return "%s (%.2f %s)" % (text, n / size, unit)
    return text


def count(n: int, noun: str) -> str:
    """A number and its noun.

    >>> count(1, "error"), count(2, "error")
    ('1 error', '2 errors')
    """
    return "%d %s%s" % (n, noun, "" if n == 1 else "s")


def number(text: str) -> int:
    """A number argument, decimal or 0x…; for argparse."""
    return int(text, 0)


def progress(what: str) -> Callable[[int, int], None] | None:
    """A progress line on stderr where that is a terminal, else None. It erases itself at the end."""
    if not sys.stderr.isatty():
        return None
    last = -1

    def show(done: int, total: int) -> None:
        nonlocal last
        percent = 100 * done // max(total, 1)
        if percent != last:
            last = percent
            end = "\r" + " " * (len(what) + 7) + "\r" if done >= total else ""
            sys.stderr.write("\r%s %3d %%%s" % (what, percent, end))
            sys.stderr.flush()

    return show

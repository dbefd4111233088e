"""One run of `vqfref bench`: what is measured on which machine, and the table of it."""

from __future__ import annotations

import os
import sys

from vqfref import __version__, kernels
from vqfref.bench import peers
from vqfref.bench.measure import measure
from vqfref.bench.operations import NAMES, OPERATIONS
from vqfref.errors import UsageError, did_you_mean

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Iterator

ROUNDS, QUICK_ROUNDS = 15, 3
LEAST, QUICK_LEAST = 0.02, 0.004  # seconds of one turn


def wanted(glob: str | None) -> list[str]:
    """The operations that a pattern stands for. Raises UsageError for none."""
    fits: Callable[[str, str], bool]
    try:
        from fnmatch import fnmatchcase as fits
    except ImportError:
        fits = str.__eq__
    names = [name for name in NAMES if glob is None or fits(name, glob)]
    if not names:
        raise UsageError("usage.bench.name", "no operation %r%s; there are %s" % (
            glob, did_you_mean(glob or "", NAMES), " ".join(NAMES)))  # fmt: skip
    return names


def run(
    glob: str | None = None, rounds: int | None = None, quick: bool = False, shrink: int = 1,
    progress: Callable[[int, int], None] | None = None,
) -> dict[str, Any]:  # fmt: skip
    """The report, as it stands in the JSON. shrink: a divisor of most sizes. Raises UsageError, OSError."""
    names = wanted(glob)
    rounds = rounds or (QUICK_ROUNDS if quick else ROUNDS)
    results = []
    for done, (group, rows) in enumerate(OPERATIONS.items()):
        if set(group) & set(names):
            for row in rows(lambda n: max(n // shrink, 64)):
                if row.operation in names:
                    results.append(measure(row, rounds, QUICK_LEAST if quick else LEAST))
        if progress:
            progress(done + 1, len(OPERATIONS))
    return {**machine(), "rounds": rounds, "results": results}


def machine() -> dict[str, Any]:
    """When and where this runs, and what is there to compare with."""
    import time

    system = os.uname() if hasattr(os, "uname") else None
    return {
        "vqfref": __version__,
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "python": "%s %s" % (sys.implementation.name, sys.version.split()[0]),
        "machine": "%s %s" % (system.sysname, system.machine) if system else sys.platform,
        "processor": _processor(),
        "cpus": os.cpu_count(),
        "fast": "fast" in kernels.choices().values(),
        "peers": peers.versions(),
    }


def _processor() -> str | None:
    """The processor's name as Linux has it; None where it has none."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
            for line in file:
                if line.startswith(("model name", "Model")):
                    return line.partition(":")[2].strip()
    except OSError:
        pass
    return None


def without_fast() -> str:
    """Why there are no quick versions."""
    pure = os.environ.get("VQFREF_PURE") == "1"
    return "plain versions alone: " + (
        "VQFREF_PURE is 1" if pure else "there is no folder fast/, or none that works here"
    )


def heading(report: dict[str, Any]) -> Iterator[str]:
    """Some lines about the run."""
    yield "vqfref %s, %s, %s" % (report["vqfref"], report["python"], report["date"])
    place = [report["machine"], report["processor"], "%s CPUs" % report["cpus"]]
    yield "%s; medians of %d rounds" % (", ".join(filter(None, place)), report["rounds"])
    if report["peers"]:
        yield "beside " + ", ".join("%s %s" % peer for peer in report["peers"].items())
    if not report["fast"]:
        yield without_fast()


def cells(results: list[dict[str, Any]]) -> Iterator[tuple[str, ...]]:
    """The rows of the table, its head first."""
    yield "OPERATION", "VARIANT", "PLAIN", "FAST", "UNIT", "RATIO", "GOALS", "PEERS"
    for r in results:
        ratio = "" if r["ratio"] is None else "%.1f" % r["ratio"]
        peers_ = ", ".join("%s %s" % (name, number(v)) for name, v in r["peers"].items())
        goals = ", ".join(map(goal, r["goals"]))
        yield r["operation"], r["variant"], number(r["plain"]), number(r["fast"]), r["unit"], ratio, goals, peers_


def notes(results: list[dict[str, Any]]) -> Iterator[str]:
    """What is to be known about some rows, a line each."""
    for note in dict.fromkeys(r["note"] for r in results if r["note"]):
        yield "%s: %s" % (note, ", ".join(dict.fromkeys(r["operation"] for r in results if r["note"] == note)))


def number(v: float | None) -> str:
    """Three digits, or all those before the point."""
    if v is None:
        return ""
    return "%.0f" % v if v >= 100 else "%.3g" % v


def goal(g: dict[str, Any]) -> str:
    """A goal in words: what was wanted, and whether it was reached."""
    said = {True: "reached", False: "missed", None: "not compared"}[g["reached"]]
    if g["against"] == "limit":
        return "at most %g ms: %s" % (g["wanted"], said)
    whom = "" if g["against"] == "plain" else " " + g["against"]
    found = "" if g["found"] is None or not whom else " (%.2g)" % g["found"]
    return "%g x%s: %s%s" % (g["wanted"], whom, said, found)

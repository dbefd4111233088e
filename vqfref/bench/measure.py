"""Measures several ways to do one thing: interleaved in one process, the median of some rounds each.

On a busy machine figures of one moment say little and figures of different moments nothing; ratios within one row, whose
ways take turns, come out alike again and again. Those are what the goals are about.
"""

from __future__ import annotations

from collections import namedtuple
from time import perf_counter

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Sequence

Way = namedtuple("Way", "name call amount rate", defaults=(None,))
Way.__doc__ = """One way: plain, fast or a peer's name; a function without arguments; the units of work in one call. A `rate`
is what a program of its own has measured already, and there is nothing to call."""

Goal = namedtuple("Goal", "against wanted")
Goal.__doc__ = (
    """A ratio to what `against` names, plain or a peer: so many times its speed. Or a limit: so many ms at most."""
)

Row = namedtuple("Row", "operation variant unit ways goals is_equal base note", defaults=((), None, None, ""))
Row.__doc__ = """What is measured together. unit: of the rates, or ms for times. is_equal: do plain and fast give the same?
base: a call whose time is no part of it, such as the start of an interpreter."""


def median(values: Sequence[float]) -> float:
    """The middle value, or the mean of the two in the middle."""
    ordered, half = sorted(values), len(values) // 2
    return ordered[half] if len(values) % 2 else (ordered[half - 1] + ordered[half]) / 2


def seconds(call: Callable[[], object], times: int = 1) -> float:
    """The time of one call, over some of them."""
    start = perf_counter()
    for _ in range(times):
        call()
    return (perf_counter() - start) / times


def measure(row: Row, rounds: int, least: float) -> dict[str, Any]:
    """The result of a row, as it stands in the JSON. least: seconds that one turn of a way should take."""
    calls = {way.name: way.call for way in row.ways if way.call and _works(way)}
    if row.base:
        calls["(base)"] = row.base
    turns = {name: max(1, int(least / max(seconds(call), 1e-9))) for name, call in calls.items()}
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            times[name].append(seconds(call, turns[name]))
    base = median(times.pop("(base)")) if row.base else 0.0
    took = {way.name: max(median(times[way.name]) - base, 1e-9) / way.amount for way in row.ways if way.name in times}
    took.update((way.name, 1 / way.rate) for way in row.ways if way.rate)
    values = {name: _rounded(1000 * t if row.unit == "ms" else 1 / t) for name, t in took.items()}
    plain, fast = values.pop("plain", None), values.pop("fast", None)
    return {
        "operation": row.operation,
        "variant": row.variant,
        "plain": plain,
        "fast": fast,
        "unit": row.unit,
        "ratio": None if fast is None else _rounded(took["plain"] / took["fast"]),
        "peers": values,
        "goals": [_judged(goal, took) for goal in row.goals],
        "equal": None if row.is_equal is None or fast is None else row.is_equal(),
        "note": row.note,
    }


def _works(way: Way) -> bool:
    """Call a way once, also to warm it up. A peer may be installed and not run; ours must."""
    try:
        way.call()
    except Exception:
        if way.name in ("plain", "fast"):
            raise
        return False
    return True


def _judged(goal: Goal, took: dict[str, float]) -> dict[str, Any]:
    """A goal with what was found, which is None where there is nothing to compare with."""
    ours = took.get("fast", took["plain"])
    if goal.against == "limit":
        found, reached = 1000 * ours, 1000 * ours <= goal.wanted
    elif goal.against not in took or (goal.against == "plain" and "fast" not in took):
        return {"against": goal.against, "wanted": goal.wanted, "found": None, "reached": None}
    else:
        found = took[goal.against] / ours
        reached = found >= goal.wanted
    return {"against": goal.against, "wanted": goal.wanted, "found": _rounded(found), "reached": reached}


def _rounded(x: float) -> float:
    return float("%.4g" % x)

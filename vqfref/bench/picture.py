"""The report as an SVG picture: for every operation a bar for how many times the plain version's speed the quick one has, on a
logarithmic axis, with a mark for the goal and a dot for each peer; times that have no ratio stand below as text."""

from __future__ import annotations

import math

from vqfref.bench.report import goal, heading, number
from vqfref.errors import printable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterator

LEFT, PLOT, RIGHT, LINE, BAR = 300, 620, 230, 30, 16  # pixels
REACHED, MISSED, INK, PALE = "#2a9d8f", "#c98a2b", "#222", "#e4e4e4"
PEERS = ("#1f4e8c", "#b0569b", "#8a63c9", "#c23b3b", "#4aa3df", "#6b6b6b")


def svg(report: dict[str, Any]) -> str:
    """The picture as SVG text."""
    drawn = [r for r in report["results"] if r["ratio"] is not None]
    others = [r for r in report["results"] if r["ratio"] is None]
    title, *small = heading(report)
    top = 60 + 18 * len(small) + 44
    bottom = top + LINE * len(drawn)
    height = bottom + 50 + 20 * len(others) + 20
    names = list(dict.fromkeys(name for r in drawn for name in r["peers"]))
    colours = {name: PEERS[i % len(PEERS)] for i, name in enumerate(names)}
    out = [
        '<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" font-family="sans-serif" font-size="13" fill="%s">'
        % (LEFT + PLOT + RIGHT, height, INK),
        '<rect width="100%" height="100%" fill="white"/>',
        _text(20, 34, "Times the speed of the plain version", 'font-size="20"'),
    ]
    out += [_text(20, 58 + 18 * i, line, 'fill="#555"') for i, line in enumerate([title, *small])]
    if drawn:
        low, high = _decades(drawn)

        def x(ratio: float) -> float:
            return LEFT + PLOT * (math.log10(max(ratio, 1e-9)) - low) / (high - low)

        for decade in range(low, high + 1):
            at = x(10.0**decade)
            out.append(_line(at, top - 6, bottom, INK if decade == 0 else PALE))
            out.append(_text(at, bottom + 16, "%g ×" % 10.0**decade, 'text-anchor="middle" fill="#555"'))
        out += _legend(colours, top - 24)
        for i, r in enumerate(drawn):
            out += _bar(r, top + LINE * i, x, colours)
    for i, r in enumerate(others):
        said = "; ".join([goal(g) for g in r["goals"]] + ["%s %s" % (n, number(v)) for n, v in r["peers"].items()])
        value = r["fast"] if r["fast"] is not None else r["plain"]
        y = bottom + 54 + 20 * i
        out.append(_text(LEFT - 12, y, "%s, %s" % (r["operation"], r["variant"]), 'text-anchor="end"'))
        out.append(_text(LEFT, y, "%s %s: %s" % (number(value), r["unit"], said)))
    return "\n".join([*out, "</svg>", ""])


def _decades(drawn: list[dict[str, Any]]) -> tuple[int, int]:
    """The powers of ten between which everything lies."""
    shown = [v for r in drawn for v in (r["ratio"], *_peers(r).values(), *_goals(r))]
    return min(math.floor(math.log10(min(shown))), 0), max(math.ceil(math.log10(max(shown))), 1)


def _peers(r: dict[str, Any]) -> dict[str, float]:
    """How many times the plain version's speed each peer has; all of these rows have rates."""
    return {name: value / r["plain"] for name, value in r["peers"].items()}


def _goals(r: dict[str, Any]) -> list[float]:
    return [g["wanted"] for g in r["goals"] if g["against"] == "plain"]


def _bar(r: dict[str, Any], y: float, x: Any, colours: dict[str, str]) -> Iterator[str]:
    """One operation: its name, bar, goal and peers, and the figures at the right."""
    goals = _goals(r)
    is_reached = all(r["ratio"] >= wanted for wanted in goals)
    start, stop, middle = x(1.0), x(r["ratio"]), y + LINE / 2
    yield _text(LEFT - 12, middle + 4, "%s, %s" % (r["operation"], r["variant"]), 'text-anchor="end"')
    yield '<rect x="%.1f" y="%.1f" width="%.1f" height="%d" fill="%s"/>' % (
        min(start, stop), middle - BAR / 2, abs(stop - start), BAR, REACHED if is_reached else MISSED)  # fmt: skip
    for wanted in goals:
        yield _line(x(wanted), middle - BAR / 2 - 4, middle + BAR / 2 + 4, INK, 2)
    for name, ratio in _peers(r).items():
        yield '<circle cx="%.1f" cy="%.1f" r="5" fill="%s" stroke="white"><title>%s</title></circle>' % (
            x(ratio), middle, colours[name], _escape("%s: %s %s" % (name, number(r["peers"][name]), r["unit"])))  # fmt: skip
    yield _text(LEFT + PLOT + 70, middle + 4, "%.1f ×" % r["ratio"], 'text-anchor="end" font-weight="bold"')
    yield _text(LEFT + PLOT + 84, middle + 4, "%s → %s %s" % (number(r["plain"]), number(r["fast"]), r["unit"]))


def _legend(colours: dict[str, str], y: float) -> Iterator[str]:
    at = float(LEFT)
    marks = [('<rect x="%.1f" y="%.1f" width="12" height="12" fill="' + REACHED + '"/>', "goal reached"),
             ('<rect x="%.1f" y="%.1f" width="12" height="12" fill="' + MISSED + '"/>', "missed"),
             ('<rect x="%.1f" y="%.1f" width="2" height="12" fill="' + INK + '"/>', "goal")]  # fmt: skip
    marks += [('<rect x="%.1f" y="%.1f" rx="6" width="12" height="12" fill="' + colour + '"/>', name)
              for name, colour in colours.items()]  # fmt: skip
    for mark, name in marks:
        yield mark % (at, y - 11)
        yield _text(at + 18, y, name)
        at += 34 + 7 * len(name)


def _line(x: float, top: float, bottom: float, colour: str, width: int = 1) -> str:
    shape = '<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" stroke="%s" stroke-width="%d"/>'
    return shape % (x, top, x, bottom, colour, width)


def _text(x: float, y: float, text: str, how: str = "") -> str:
    return '<text x="%.1f" y="%.1f" %s>%s</text>' % (x, y, how, _escape(text))


def _escape(text: str) -> str:
    return printable(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace('"', "&quot;")

"""Runs cases, judges replies, and prints the outcome as text, TAP, JUnit or JSON."""

from __future__ import annotations

import math
from collections import namedtuple

from vqfref import kernels, strictjson
from vqfref.errors import VqfrefError
from vqfref.kat import ops
from vqfref.kat.adapter import Failure, verify_command
from vqfref.kat.cases import OPERATIONS
from vqfref.quant.floats import f32_decode

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Iterable, Iterator

    from vqfref.kat.adapter import Adapter
    from vqfref.kat.cases import Case, Suite

PASS, FAIL, WRONG_ERROR, SKIP = "PASS", "FAIL", "WRONG-ERROR", "SKIP"
CRASH, HANG, PROTOCOL, XFAIL, XPASS = "CRASH", "HANG", "PROTOCOL", "XFAIL", "XPASS"
BAD = (FAIL, CRASH, HANG, PROTOCOL, XPASS)

Outcome = namedtuple("Outcome", "case outcome detail")


def judge(case: Case, word: str, rest: str) -> tuple[str, str]:
    """(outcome, detail) of a reply."""
    if word == "skip":
        return SKIP, ""
    if word == "err":
        if case.result == "valid":
            return FAIL, "refused (%s), but valid" % (rest or "no class")
        found = rest.partition(" ")[0]
        if case.result == "invalid" and found and found != case.error:
            return WRONG_ERROR, "refused as %s, expected %s" % (found, case.error)
        return PASS, ""
    if case.result == "invalid":
        return FAIL, "accepted, but invalid (%s): %s" % (case.error, case.comment)
    outputs = dict(w.partition("=")[::2] for w in rest.split(" ") if w)
    return judge_outputs(case, outputs)


def judge_outputs(case: Case, outputs: dict[str, str]) -> tuple[str, str]:
    """Are the outputs those of the case?"""
    wanted = {n: v for n, v in case.outputs.items() if n != "tol"}
    if "fnv" in outputs and len(wanted) == 1:
        ((name, value),) = wanted.items()
        expected = "%016x" % kernels.fnv1a64(bytes.fromhex(value))
        good = outputs["fnv"].lower() == expected
        return (PASS, "") if good else (FAIL, "fnv of %s: %s, expected %s" % (name, outputs["fnv"], expected))
    for name in OPERATIONS[case.op][1]:
        if name not in wanted:
            continue
        if name not in outputs:
            return FAIL, "no %s in the reply" % name
        value, expected = outputs[name].lower(), str(wanted[name]).lower()
        if value != expected and not ("tol" in case.outputs and within(value, expected, case.outputs["tol"])):
            return FAIL, "%s %s, expected %s" % (name, shorten(value), shorten(expected))
    return PASS, ""


def within(value: str, expected: str, tolerance: str) -> bool:
    """Are floats (hex of f32) as close to the expected ones as the case allows, each with its own tolerance?"""
    try:
        a, b, t = (f32_decode(bytes.fromhex(h)) for h in (value, expected, tolerance))
    except ValueError:
        return False
    return len(a) == len(b) and all(abs(x - y) <= d or (math.isnan(x) and math.isnan(y)) for x, y, d in zip(a, b, t))


def shorten(text: str) -> str:
    """The first 64 characters."""
    return text if len(text) <= 64 else text[:64] + "…"


# ---- running


def in_process(suite: Suite) -> Callable[[Case], tuple[str, str]]:
    """This library itself as the program under test."""

    def ask(case: Case) -> tuple[str, str]:
        try:
            outputs = ops.run(case.op, suite.lines(case))
        except VqfrefError as error:
            return "err", "%s %s" % (error.word, error)
        return "ok", " ".join("%s=%s" % item for item in outputs.items())

    return ask


def by_adapter(suite: Suite, adapter: Adapter) -> Callable[[Case], tuple[str, str]]:
    """A program that speaks the protocol."""
    return lambda case: adapter.ask(case.id, case.op, suite.lines(case))


def by_command(suite: Suite, words: list[str], timeout: float) -> Callable[[Case], tuple[str, str]]:
    """A command that judges one file; only cases whose input is a file can be run."""

    def ask(case: Case) -> tuple[str, str]:
        if tuple(case.inputs) != ("path",) or any(n for n in case.outputs if case.op not in ("vqf_file", "st_header")):
            return "skip", ""
        word, rest = verify_command(words, suite.lines(case)["path"], timeout)
        return word, rest

    return ask


def run(
    cases: Iterable[Case], ask: Callable[[Case], tuple[str, str]], xfail: dict[str, str], accept_only: bool = False
) -> Iterator[Outcome]:
    """One Outcome a case. xfail: reasons by case id. accept_only: the program tells acceptance alone, no outputs."""
    for case in cases:
        try:
            word, rest = ask(case)
        except Failure as failure:
            outcome, detail = failure.kind, str(failure)
        else:
            if accept_only and word == "ok" and case.result != "invalid":
                outcome, detail = PASS, ""
            else:
                outcome, detail = judge(case, word, rest)
        if case.id in xfail and outcome != SKIP:
            if outcome == PASS:
                outcome, detail = XPASS, "passes, but is expected to fail: " + xfail[case.id]
            elif outcome != HANG:
                outcome, detail = XFAIL, xfail[case.id]
        yield Outcome(case, outcome, detail)


def read_xfail(text: str) -> dict[str, str]:
    """Reasons by case id, from lines of an id and a reason; # begins a comment."""
    found = {}
    for line in text.splitlines():
        line = line.strip()
        if line and not line.startswith("#"):
            case_id, _, reason = line.partition(" ")
            found[case_id] = reason.strip() or "no reason given"
    return found


# ---- printing


def totals(outcomes: list[Outcome], version: str, strict: bool) -> tuple[str, bool]:
    """(last line, all well?). The parts count the cases that were run, by their result."""
    bad = [o for o in outcomes if o.outcome in BAD or (strict and o.outcome == WRONG_ERROR)]
    skipped = [o for o in outcomes if o.outcome == SKIP]
    parts = []
    for result in ("valid", "invalid", "acceptable"):
        ran = [o for o in outcomes if o.case.result == result and o.outcome != SKIP]
        if ran or result != "acceptable":
            parts.append("%s %d/%d" % (result, sum(o not in bad for o in ran), len(ran)))
    line = "kat %s: %d passed, %d failed, %d skipped (%s)" % (
        version, len(outcomes) - len(bad) - len(skipped), len(bad), len(skipped), ", ".join(parts),
    )  # fmt: skip
    return line, not bad


def text_lines(outcomes: Iterable[Outcome], verbose: bool) -> Iterator[str]:
    """A line for each case that did not pass; for all with verbose."""
    for o in outcomes:
        if verbose or o.outcome not in (PASS, SKIP):
            yield "%-11s %s  %s%s" % (o.outcome, o.case.id, o.case.op, ": " + o.detail if o.detail else "")


def tap_lines(outcomes: list[Outcome], strict: bool) -> Iterator[str]:
    """Test Anything Protocol, version 13."""
    yield "TAP version 13"
    yield "1..%d" % len(outcomes)
    for i, o in enumerate(outcomes, 1):
        bad = o.outcome in BAD or (strict and o.outcome == WRONG_ERROR)
        directive = {SKIP: " # SKIP", XFAIL: " # TODO " + o.detail}.get(o.outcome, "")
        ok = "not ok" if bad or o.outcome == XFAIL else "ok"
        yield "%s %d - %s%s" % (ok, i, o.case.id, directive)
        if o.detail and not directive:
            yield "# %s: %s" % (o.outcome, o.detail)


def junit(outcomes: list[Outcome], strict: bool) -> str:
    """A JUnit report."""

    def escape(text: str) -> str:
        for a, b in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ('"', "&quot;")):
            text = text.replace(a, b)
        return text

    bad = [o for o in outcomes if o.outcome in BAD or (strict and o.outcome == WRONG_ERROR)]
    lines = ['<?xml version="1.0" encoding="UTF-8"?>']
    skipped = sum(o.outcome in (SKIP, XFAIL) for o in outcomes)
    lines.append(
        '<testsuite name="vqfref-kat" tests="%d" failures="%d" skipped="%d">' % (len(outcomes), len(bad), skipped)
    )
    for o in outcomes:
        lines.append('<testcase classname="%s" name="%s">' % (escape(o.case.op), escape(o.case.id)))
        if o in bad:
            lines.append('<failure type="%s" message="%s"/>' % (o.outcome, escape(o.detail)))
        elif o.outcome in (SKIP, XFAIL):
            lines.append('<skipped message="%s"/>' % escape(o.detail))
        lines.append("</testcase>")
    return "\n".join([*lines, "</testsuite>"])


def as_json(outcomes: list[Outcome], version: str, strict: bool, about: dict[str, Any]) -> str:
    """All outcomes as one JSON object."""
    line, ok = totals(outcomes, version, strict)
    cases = [{"id": o.case.id, "op": o.case.op, "outcome": o.outcome, "detail": o.detail} for o in outcomes]
    return strictjson.dumps({"suite": version, **about, "ok": ok, "summary": line, "cases": cases}, indent=2)

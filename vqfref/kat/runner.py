"""Runs cases, judges replies, and prints the outcome as text, TAP, JUnit or JSON."""

from __future__ import annotations

import math
from collections import Counter, namedtuple

from vqfref import kernels, strictjson
from vqfref.errors import WORDS, VqfrefError, printable
from vqfref.kat import ops
from vqfref.kat.adapter import Failure, verify_command
from vqfref.kat.cases import FLOATS, LISTS, OPERATIONS, RESULTS, kind
from vqfref.quant.floats import f32_decode

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Iterable, Iterator

    from vqfref.kat.adapter import Adapter
    from vqfref.kat.cases import Case, Suite

PASS, FAIL, WRONG_ERROR, SKIP = "PASS", "FAIL", "WRONG-ERROR", "SKIP"
CRASH, HANG, PROTOCOL, XFAIL, XPASS = "CRASH", "HANG", "PROTOCOL", "XFAIL", "XPASS"
OUTCOMES = (PASS, FAIL, WRONG_ERROR, SKIP, CRASH, HANG, PROTOCOL, XFAIL, XPASS)
BAD = (FAIL, CRASH, HANG, PROTOCOL, XPASS)

SHOWN = 64  # characters of a value in a message: a digest
ALIKE = 3  # lines for cases in a row with the same outcome and detail; the others are counted
PER_OP = (
    10  # lines for cases of an operation with the same outcome; of the others the first one of each flag has its line
)
PATIENCE = 3  # hangs in a row at an operation, or at all where nothing was answered yet, before cases are not asked

Outcome = namedtuple("Outcome", "case outcome detail")


def judge(case: Case, word: str, rest: str) -> tuple[str, str]:
    """(outcome, detail) of a reply."""
    if word == "skip":
        return SKIP, ""
    if word == "err":
        if case.result == "valid":
            return FAIL, "refused (%s), but valid: %s" % (shorten(rest) or "no class", case.comment)
        found = rest.partition(" ")[0]
        if case.result == "invalid" and found and found != case.error:
            known = "" if found in WORDS else ", which is no error class"
            return WRONG_ERROR, "refused as %s%s, expected %s" % (shorten(found), known, case.error)
        return PASS, ""
    if case.result == "invalid":
        return FAIL, "accepted, but invalid (%s): %s" % (case.error, case.comment)
    return judge_outputs(case, rest)


def judge_outputs(case: Case, rest: str) -> tuple[str, str]:
    """Are the outputs those of the case? rest: the reply behind `ok`."""
    names = OPERATIONS[case.op][1]
    outputs: dict[str, str] = {}
    for word in rest.split():
        name, equals, value = word.partition("=")
        if not equals or name in outputs or name not in (*names, "fnv"):
            expected = " ".join(n + "=…" for n in names) or "nothing"
            return PROTOCOL, "found %r, expected %s behind ok" % (shorten(word), expected)
        outputs[name] = value
    if "fnv" in outputs:
        return judge_fnv(case, outputs)
    for name in names:
        if name not in outputs:
            return PROTOCOL, "no %s=… in the reply" % name
        value, expected = outputs[name], str(case.outputs[name])
        if kind(case.op, name) == "hex":
            value = value.lower()
        if value != expected:
            wrong = fault_of(name, value, expected, case.outputs.get("tol", ""))
            if wrong:
                return FAIL, wrong
    return PASS, ""


def fault_of(name: str, value: str, expected: str, tolerance: str) -> str:
    """What is wrong with an output that is not the expected text; empty where it is within its tolerance."""
    if name in FLOATS:
        return float_fault(name, value, expected, tolerance)
    if name in LISTS:
        found, right = value.split(","), expected.split(",")
        if len(found) != len(right):
            return "%s has %d entries, expected %d: %s" % (name, len(found), len(right), difference(value, expected))
        return elements_fault(name, found, right, [a != b for a, b in zip(found, right)])
    return "%s %s" % (name, difference(value, expected))


def float_fault(name: str, value: str, expected: str, tolerance: str) -> str:
    """The same for floats (hex of f32), each with its own tolerance; none asks for the same bits."""
    try:
        found, right, near = (f32_decode(bytes.fromhex(h)) for h in (value, expected, tolerance))
    except ValueError:
        return "%s %s: expected floats of four bytes in hex" % (name, shorten(value) or "empty")
    if len(found) != len(right):
        return "%s has %d floats, expected %d" % (name, len(found), len(right))
    wrong, texts = [], []
    for i, (x, y) in enumerate(zip(found, right)):
        at = slice(8 * i, 8 * i + 8)
        close = bool(near) and (abs(x - y) <= near[i] or (math.isnan(x) and math.isnan(y)))
        wrong.append(value[at] != expected[at] and not close)
        both = "%.9g" % x, "%.9g" % y  # nine digits tell every two floats apart, but NaNs
        texts.append(
            both if both[0] != both[1] else ("%s (%s)" % (both[0], value[at]), "%s (%s)" % (both[1], expected[at]))
        )
    if not any(wrong):
        return ""
    within = " (within %.3g)" % near[wrong.index(True)] if near else ""
    return elements_fault(name, [a for a, _ in texts], [b + within for _, b in texts], wrong)


def elements_fault(name: str, found: list[str], expected: list[str], wrong: list[bool]) -> str:
    """The first of the elements that are wrong, and how many are.

    >>> elements_fault("y", ["1", "2"], ["1", "3"], [False, True])
    'y[1] is 2, expected 3; 1 of 2 differs'
    """
    i, n = wrong.index(True), sum(wrong)
    return "%s[%d] is %s, expected %s; %d of %d differ%s" % (
        name, i, shorten(found[i]), shorten(expected[i]), n, len(wrong), "s" if n == 1 else "")  # fmt: skip


def judge_fnv(case: Case, outputs: dict[str, str]) -> tuple[str, str]:
    """The same where the reply has the FNV-1a-64 of an output's bytes in its place."""
    name = OPERATIONS[case.op][1][0] if OPERATIONS[case.op][1] else ""
    if len(outputs) > 1 or len(OPERATIONS[case.op][1]) != 1 or kind(case.op, name) != "hex" or "tol" in case.outputs:
        return PROTOCOL, "fnv=… stands for one exact output in hex, which %s has not" % case.op
    expected = "%016x" % kernels.fnv1a64(bytes.fromhex(case.outputs[name]))
    if outputs["fnv"].lower() == expected:
        return PASS, ""
    message = "fnv of %s: %s; the output or the FNV is wrong: reply with %s=… in its place to see where"
    return FAIL, message % (name, difference(outputs["fnv"], expected), name)


def difference(found: str, expected: str) -> str:
    """Two texts that differ, in a message; of long ones the part around the first difference.

    >>> difference("ab", "ac")
    'ab, expected ac'
    """
    if max(len(found), len(expected)) <= SHOWN:
        return "%s, expected %s" % (found or "empty", expected or "empty")
    if len(found) != len(expected):
        return "has %d characters, expected %d: %s, expected %s" % (
            len(found), len(expected), shorten(found) or "empty", shorten(expected) or "empty")  # fmt: skip
    first = next(i for i, (a, b) in enumerate(zip(found, expected)) if a != b) // 8 * 8
    return "differs from character %d on: %s, expected %s" % (first, shorten(found[first:]), shorten(expected[first:]))


def shorten(text: str) -> str:
    """Its first characters."""
    return text if len(text) <= SHOWN else text[:SHOWN] + "…"


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
        if tuple(case.inputs) != ("path",):
            return "skip", ""
        return verify_command(words, suite.lines(case)["path"], timeout)

    return ask


def with_patience(ask: Callable[[Case], tuple[str, str]]) -> Callable[[Case], tuple[str, str]]:
    """`ask`, until a program has hung too often: where it never answered no case is asked any more, else none of the
    operation. A program that hangs on all of the suite would cost hours."""
    hangs: Counter[str] = Counter()  # in a row, by operation
    answered = False

    def asked(case: Case) -> tuple[str, str]:
        nonlocal answered
        if hangs[case.op] >= PATIENCE or (not answered and sum(hangs.values()) >= PATIENCE):
            what = case.op + " hung" if answered else "the program hung, and has answered nothing yet: does it flush"
            what += "" if answered else " standard output after each reply?"
            raise Failure(HANG, "not asked any more: %d times in a row %s" % (PATIENCE, what))
        try:
            word, rest = ask(case)
        except Failure as failure:
            hangs[case.op] = hangs[case.op] + 1 if failure.kind == HANG else 0
            raise
        hangs[case.op] = 0
        answered = answered or word != SKIP.lower()
        return word, rest

    return asked


def run(
    cases: Iterable[Case], ask: Callable[[Case], tuple[str, str]], xfail: dict[str, str], accept_only: bool = False
) -> Iterator[Outcome]:
    """One Outcome a case. xfail: reasons by case id. accept_only: the program tells acceptance alone, no outputs."""
    ask = with_patience(ask)
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


def is_bad(o: Outcome, strict: bool) -> bool:
    """Is it a failure?"""
    return o.outcome in BAD or (strict and o.outcome == WRONG_ERROR)


def totals(outcomes: list[Outcome], version: str, strict: bool) -> tuple[str, bool]:
    """(last line, all well?). The parts count the cases that were run, by their result; all is not well where none was."""
    n = Counter("failed" if is_bad(o, strict) else o.outcome for o in outcomes)
    parts = []
    for result in RESULTS:
        ran = [o for o in outcomes if o.case.result == result and o.outcome != SKIP]
        if ran or result != "acceptable":
            good = sum(o.outcome != XFAIL and not is_bad(o, strict) for o in ran)
            parts.append("%s %d/%d" % (result, good, len(ran)))
    counts = "%d passed, %d failed, %d skipped" % (n[PASS] + n[WRONG_ERROR], n["failed"], n[SKIP])
    if n[XFAIL]:
        counts += ", %d expected to fail" % n[XFAIL]
    return "kat %s: %s (%s)" % (version, counts, ", ".join(parts)), not n["failed"] and n[SKIP] < len(outcomes)


def text_lines(outcomes: Iterable[Outcome], verbose: bool) -> Iterator[str]:
    """A line for each case that did not pass; where many come out alike, for some of them. For all with verbose."""
    op, last, alike = "", ("", ""), 0
    shown: Counter[str] = Counter()  # of the operation, by outcome
    hidden: Counter[str] = Counter()
    flags: set[tuple[str, str]] = set()  # of those shown, with their outcome
    for o in outcomes:
        if not verbose and o.outcome in (PASS, SKIP):
            continue
        if o.case.op != op:
            yield from hidden_lines(op, hidden)
            op = o.case.op
            for known in (shown, hidden, flags):
                known.clear()
        alike = alike + 1 if (o.outcome, o.detail) == last else 1
        last = o.outcome, o.detail
        own = {(o.outcome, flag) for flag in o.case.flags}
        if verbose or (alike <= ALIKE and (shown[o.outcome] < PER_OP or own - flags)):
            shown[o.outcome] += 1
            flags |= own
            yield "%-11s %s  %s%s" % (o.outcome, o.case.id, o.case.op, ": " + o.detail if o.detail else "")
        else:
            hidden[o.outcome] += 1
    yield from hidden_lines(op, hidden)


def hidden_lines(op: str, hidden: Counter[str]) -> Iterator[str]:
    """The lines for those of an operation that text_lines left out, by outcome."""
    for outcome, n in hidden.items():
        yield "%-11s … and %d more of %s (-v shows all)" % (outcome, n, op)


def tap_lines(outcomes: Iterable[Outcome], count: int, strict: bool) -> Iterator[str]:
    """Test Anything Protocol, version 13."""
    yield "TAP version 13"
    yield "1..%d" % count
    for i, o in enumerate(outcomes, 1):
        directive = {SKIP: " # SKIP", XFAIL: " # TODO " + o.detail}.get(o.outcome, "")
        ok = "not ok" if is_bad(o, strict) or o.outcome == XFAIL else "ok"
        yield "%s %d - %s%s" % (ok, i, o.case.id, directive)
        if o.detail and not directive:
            yield "# %s: %s" % (o.outcome, o.detail)


def junit(outcomes: list[Outcome], strict: bool) -> str:
    """A JUnit report."""

    def escape(text: str) -> str:
        for a, b in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ('"', "&quot;")):
            text = text.replace(a, b)
        return printable(text).encode("ascii", "xmlcharrefreplace").decode("ascii")

    bad = sum(is_bad(o, strict) for o in outcomes)
    skipped = sum(o.outcome in (SKIP, XFAIL) for o in outcomes)
    lines = ['<?xml version="1.0" encoding="UTF-8"?>']
    lines.append('<testsuite name="vqfref-kat" tests="%d" failures="%d" skipped="%d">' % (len(outcomes), bad, skipped))
    for o in outcomes:
        lines.append('<testcase classname="%s" name="%s">' % (escape(o.case.op), escape(o.case.id)))
        if is_bad(o, strict):
            lines.append('<failure type="%s" message="%s"/>' % (o.outcome, escape(o.detail)))
        elif o.outcome in (SKIP, XFAIL):
            lines.append('<skipped message="%s"/>' % escape(o.detail))
        lines.append("</testcase>")
    return "\n".join([*lines, "</testsuite>"])


def as_json(outcomes: list[Outcome], version: str, strict: bool, about: dict[str, Any]) -> str:
    """All outcomes as one JSON object."""
    line, ok = totals(outcomes, version, strict)
    n = Counter(o.outcome for o in outcomes)
    counts = {outcome: n[outcome] for outcome in OUTCOMES}
    cases = [{"id": o.case.id, "op": o.case.op, "outcome": o.outcome, "detail": o.detail} for o in outcomes]
    whole = {"suite": version, **about, "ok": ok, "summary": line, "counts": counts, "cases": cases}
    return strictjson.dumps(whole, indent=2)

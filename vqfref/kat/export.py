"""Writes the suite in other forms: JSON, flat `key = value` text for programs without a JSON parser, a C header."""

from __future__ import annotations

import os

from vqfref import strictjson
from vqfref.sink import Publication

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from vqfref.kat.cases import Case, Suite


def by_operation(cases: list[Case]) -> dict[str, list[Case]]:
    """The cases of each operation."""
    found: dict[str, list[Case]] = {}
    for c in cases:
        found.setdefault(c.op, []).append(c)
    return found


def export(suite: Suite, cases: list[Case], folder: str, form: str) -> list[str]:
    """Write one file an operation (one header for C) into a folder, all or none; their paths. Paths in the cases stay
    relative to the suite."""
    if form == "c":
        texts = {"vqfref_kat.h": c_header(suite, cases)}
    else:
        suffix, text_of = (".txt", flat) if form == "flat" else (".json", json_text)
        texts = {op + suffix: text_of(group) for op, group in by_operation(cases).items()}
    with Publication(folder) as publication:
        for name, text in texts.items():
            publication.add(name, [text.encode("utf-8")])
    return [os.path.join(folder, name) for name in texts]


def as_dict(case: Case) -> dict[str, Any]:
    """A case as the suite has it."""
    found = {
        "id": case.id, "comment": case.comment, "level": case.level, "flags": list(case.flags), "source": case.source,
        "since": case.since, "in": case.inputs, "out": case.outputs, "result": case.result,
    }  # fmt: skip
    return found if case.error is None else {**found, "error": case.error}


def json_text(cases: list[Case]) -> str:
    """A list of cases, a line each."""
    return "[\n" + ",\n".join(strictjson.dumps(as_dict(c)) for c in cases) + "\n]\n"


def flat(cases: list[Case]) -> str:
    """Blocks of `key = value` lines, a blank line between two; inputs as in.<field>, outputs as out.<field>."""
    blocks = []
    for c in cases:
        lines = ["id = " + c.id, "op = " + c.op, "result = " + c.result]
        lines += ["error = " + c.error] if c.error else []
        lines += ["level = " + c.level, "flags = " + ",".join(c.flags)]
        lines += ["in.%s = %s" % item for item in c.inputs.items()]
        lines += ["out.%s = %s" % item for item in c.outputs.items()]
        blocks.append("\n".join(lines) + "\n")
    return "\n".join(blocks)


def c_string(text: str) -> str:
    """A C string literal of the text's UTF-8 bytes, in pieces that every compiler takes.

    >>> c_string('a"b')
    '"a\\\\042b"'
    """
    plain = set(range(32, 127)) - set(b'"\\?')
    escaped = [chr(b) if b in plain else "\\%03o" % b for b in text.encode("utf-8")]
    return " ".join('"%s"' % "".join(escaped[i : i + 200]) for i in range(0, len(escaped), 200)) or '""'


def c_header(suite: Suite, cases: list[Case]) -> str:
    """A header with one array: inputs and outputs as `field=value` texts separated by newlines."""
    out = [
        "/* Known answers of vqfref-kat %s, CC0. One entry a case; see kat/README.md. */" % suite.version,
        "#ifndef VQFREF_KAT_H",
        "#define VQFREF_KAT_H",
        "typedef struct { const char *id, *op, *result, *error, *in, *out; } vqfref_kat_case;",
        "static const vqfref_kat_case vqfref_kat_cases[] = {",
    ]
    for c in cases:
        texts = ("\n".join("%s=%s" % item for item in fields.items()) for fields in (c.inputs, c.outputs))
        out.append("  { %s }," % ", ".join(c_string(t) for t in (c.id, c.op, c.result, c.error or "", *texts)))
    return "\n".join([*out, "  { 0, 0, 0, 0, 0, 0 }", "};", "#endif", ""])

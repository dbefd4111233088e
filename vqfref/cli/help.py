"""Verbs about this program: pyz, env, help."""

from __future__ import annotations

import sys

from vqfref.cli.output import table

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from typing import Any, Callable


def add_verbs(add_verb: Callable[..., Any]) -> None:
    verb = add_verb("pyz", run_pyz, "this library and its suite as one file for a board", """\
Write vqfref and the suite of known answers into one file that any Python from 3.8 on runs. It is a zip archive with
nothing compressed; the same version gives the same bytes everywhere. On the board: python3 vqfref.pyz VERB …

Example: python3 -m vqfref pyz vqfref.pyz""")  # fmt: skip
    verb.add_argument("out", metavar="OUT", help="the file to write; one that is there is replaced")

    verb = add_verb("env", run_env, "which modules and fast paths this machine has", """\
Print what this interpreter offers to vqfref. Nothing here is needed; where something is missing, vqfref does without.

Example: python3 -m vqfref env""")  # fmt: skip
    verb.add_argument("--json", action="store_true", help="print one JSON object instead of text")

    verb = add_verb("help", run_help, "this overview, a verb, or an error code with its cure", """\
Explain a verb; a code that an error or a finding carries, or all that begin so, with meaning and cure; or all codes.

Example: vqfref help check
Example: vqfref help vqf.header.magic
Example: vqfref help codes""")  # fmt: skip
    verb.add_argument("topic", nargs="?", metavar="VERB|CODE|codes")


def run_pyz(args: argparse.Namespace) -> int:
    from vqfref.errors import printable
    from vqfref.kat.cases import find
    from vqfref.pyz import write_pyz

    size = write_pyz(args.out, find)
    print("%s: %d bytes" % (printable(args.out), size))
    return 0


def run_help(args: argparse.Namespace) -> int:
    from vqfref.cli import ALL_VERBS, build_parser
    from vqfref.codes import CODES
    from vqfref.errors import UsageError, did_you_mean

    if args.topic is None:
        build_parser().print_help()
    elif args.topic in ALL_VERBS:
        try:
            build_parser(args.topic).parse_args([args.topic, "--help"])
        except SystemExit:
            pass
    else:
        codes = [c for c in sorted(CODES) if args.topic in ("codes", c) or c.startswith(args.topic.rstrip(".") + ".")]
        if not codes:
            raise UsageError("usage.help.name", "%r is neither a verb nor a code%s: expected codes, a code or its "
                             "beginning, or one of %s" % (args.topic, did_you_mean(args.topic, [*ALL_VERBS, *CODES]),
                                                          " ".join(ALL_VERBS)))  # fmt: skip
        for code in codes:
            print("%s\n    %s\n    Cure: %s" % (code, *CODES[code]))
    return 0


OPTIONAL = (
    ("mmap", "zero-copy reading; without it pread"),
    ("json", "quicker parsing of JSON; without it our own parser alone"),
    ("hashlib", "SM3 in C where OpenSSL has it, SHA-256 for `hash`"),
    ("ctypes", "the VQFHeader … mirrors"),
    ("difflib", "hints for misspelled names"),
    ("unittest", "this project's tests"),
)


def run_env(args: argparse.Namespace) -> int:
    from vqfref import __version__, strictjson
    from vqfref.source import Source

    modules = {}
    for name, _ in OPTIONAL:
        try:
            __import__(name)
            modules[name] = True
        except ImportError:
            modules[name] = False
    facts = {
        "vqfref": __version__,
        "python": sys.version.split()[0],
        "implementation": sys.implementation.name,
        "platform": sys.platform,
        "byte_order": sys.byteorder,
        "pointer_bits": 64 if sys.maxsize > 1 << 32 else 32,
        "backend": Source(b"").backend,
        "modules": modules,
    }
    if args.json:
        print(strictjson.dumps(facts, indent=2))
        return 0
    rows: list[tuple[object, ...]] = [(k, v) for k, v in facts.items() if k != "modules"]
    rows += [("module " + name, "%-4s %s" % ("yes" if modules[name] else "no", use)) for name, use in OPTIONAL]
    print("\n".join(table(rows)))
    return 0

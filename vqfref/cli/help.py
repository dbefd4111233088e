"""Verbs about this program: help, env."""

from __future__ import annotations

import sys

from vqfref.cli.output import table

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from typing import Any, Callable


def add_verbs(add_verb: Callable[..., Any]) -> None:
    verb = add_verb("env", run_env, "which modules and fast paths this machine has", """\
Print what this interpreter offers to vqfref. Nothing here is needed; where something is missing, vqfref does without.

Example: python3 -m vqfref env""")  # fmt: skip
    verb.add_argument("--json", action="store_true", help="print one JSON object instead of text")

    verb = add_verb("help", run_help, "this overview; `help codes`: every error code with its cure", """\
Explain a verb, or print every code that errors and findings carry, with its meaning and its cure.

Example: vqfref help check
Example: vqfref help codes""")  # fmt: skip
    verb.add_argument("topic", nargs="?", metavar="VERB|codes")


def run_help(args: argparse.Namespace) -> int:
    if args.topic == "codes":
        from vqfref.codes import CODES

        for code, (meaning, cure) in sorted(CODES.items()):
            print("%s\n    %s\n    Cure: %s" % (code, meaning, cure))
        return 0
    from vqfref.cli import build_parser
    from vqfref.errors import UsageError

    parser, verbs = build_parser()
    if args.topic is None:
        parser.print_help()
        return 0
    if args.topic not in verbs:
        raise UsageError("usage.help.name", "no verb %r: expected codes or one of %s" % (args.topic, " ".join(verbs)))
    try:
        parser.parse_args([args.topic, "--help"])
    except SystemExit:
        pass
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

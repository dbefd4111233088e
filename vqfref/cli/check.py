"""Verbs that judge a file: check, verify."""

from __future__ import annotations

import os

from vqfref.cli import secrets
from vqfref.cli.output import add_file, count, finding_lines, finish, progress
from vqfref.findings import engine_verdict

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from typing import Any, Callable

    import vqfref
    from vqfref.findings import Finding


def add_verbs(add_verb: Callable[..., Any]) -> None:
    verb = add_verb("check", run_check, "structure: every fault, no key needed", """\
Check a file's structure and print every finding, one a line, by offset:

    error[vqf.directory.overlap] @0x1f0 q4_k: bytes 0x1c80 .. 0x1cc0 belong to q4_q too

Errors make the exit code 1; warnings do with --strict; notes never. The last line says whether the engine would load
the file in spite of them. `vqfref help codes` has each code with its cure. No key is needed, and of the data only
padding and suspected zeros are read: `vqfref verify` checks the rest.

Example: vqfref check model.vqf""")  # fmt: skip
    add_file(verb, backend=False)
    verb.add_argument("--strict", action="store_true", help="warnings make the exit code 1 too")

    verb = add_verb("verify", run_verify, "checksum, tag and signature: reads the whole file", """\
Check what seals a file, reading all of it: the checksum of a plain file, the HMAC of an encrypted one, the signature; and
say which key and id were used, what was not checked, and why.

A checksum is not authentication: it finds accidents, and anybody can make it. --require refuses a file that was stripped
of its tag or signature. An encrypted file fails without its passphrase; a signed one without a public key passes, its
signature reported as not checked, unless --require signature.

Example: vqfref verify model.vqf
Example: vqfref verify sealed.vqf --passphrase-file secret.txt --pub sign.pub --require hmac,signature""")  # fmt: skip
    add_file(verb)
    secrets.add_passphrase(verb)
    secrets.add_public(verb)
    verb.add_argument("--id", action="append", metavar="ID", help="a user id to accept (default: both that are in use)")
    verb.add_argument("--require", default="", metavar="WHAT", help="hmac, signature, or both with a comma")


def run_check(args: argparse.Namespace) -> int:
    import vqfref

    findings = vqfref.check(args.file, q8_tile=args.q8_tile)
    bad = ("error", "warning") if args.strict else ("error",)
    ok = not any(f.severity in bad for f in findings)
    engine = engine_verdict(findings)
    lines = finding_lines(findings, args.file)
    format = vqfref.sniff(args.file)
    who = "the safetensors library" if format == "safetensors" else "the engine"
    does = {"accepts": "would load", "refuses": "refuses", "unknown": "may load"}[engine]
    what = "this folder" if format == "uqff" else "this file"
    doubt = ": its versions differ" if engine == "unknown" else ""
    lines.append("%s; %s %s %s%s" % (summary(findings), who, does, what, doubt))
    return finish(args, format, ok, findings, {"engine": engine}, lines)


def summary(findings: list[Finding]) -> str:
    """The counts of findings in words."""
    words = [count(n, s) for s in ("error", "warning", "note") for n in [sum(f.severity == s for f in findings)] if n]
    return ", ".join(words) or "clean"


def run_verify(args: argparse.Namespace) -> int:
    import vqfref

    passphrase, pub = secrets.passphrase(args.passphrase_file), secrets.public_key(args)
    try:
        opened = vqfref.open(args.file, passphrase=passphrase, backend=args.backend, q8_tile=args.q8_tile)
    except vqfref.FormatError as error:
        name_the_signing_tool(args.file, passphrase, error)
        raise
    with opened as f:
        result = f.verify(
            public_key=pub,
            user_ids=[os.fsencode(i) for i in args.id] if args.id else None,
            require=[r for r in args.require.split(",") if r],
            progress=progress("verifying"),
        )
        steps = [step._asdict() for step in result.steps]
        lines = ["%s: %s (%s)" % step for step in result.steps] + finding_lines(result.findings, args.file)
        extra = {"authenticated": result.authenticated, "steps": steps}
        return finish(args, f.format, result.ok, result.findings, extra, lines)


def name_the_signing_tool(path: str, passphrase: bytes | None, error: vqfref.FormatError) -> None:
    """With the passphrase it can be told for sure that the engine's signing tool spoiled a file."""
    if error.code != "vqf.signtool.bounds" or not passphrase:
        return
    from vqfref.source import Source
    from vqfref.vqf.seal import is_signing_tool_output

    with Source(path, "pread") as source:
        if is_signing_tool_output(source, passphrase):
            error.message += " (and it is that tool's: the last 32 bytes are the HMAC of the ciphertext alone)"

"""The verb attest: verify, make and fingerprint the engine's signed inference records."""

from __future__ import annotations

from vqfref.cli import secrets
from vqfref.cli.output import finish

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from typing import Any, Callable


def add_verbs(add_verb: Callable[..., Any]) -> None:
    verb = add_verb("attest", None, "the engine's signed inference records", """\
Verify, make and explain signed inference records: JSON objects that bind a model, a request and an output.

Example: vqfref attest verify proof.json --request request.json --output answer.txt --pub attest.pub""")  # fmt: skip
    actions = verb.add_subparsers(metavar="ACTION", dest="action", required=True)

    def add(name: str, run: object, summary: str) -> argparse.ArgumentParser:
        action: argparse.ArgumentParser = actions.add_parser(name, help=summary, description=summary)
        action.set_defaults(run=run)
        return action

    action = add("verify", run_verify, "check a record against request, output and public key")
    action.add_argument("file", metavar="PROOF")
    add_evidence(action)
    secrets.add_public(action)
    action.add_argument("--json", action="store_true", help="print one JSON object instead of text")

    action = add("make", run_make, "sign a record; FIELDS is a JSON object with model, model_fp, device, user, params, "
                 "prompt_tokens, n_tokens, finish, ts and, if not 3, schema")  # fmt: skip
    action.add_argument("fields", metavar="FIELDS")
    add_evidence(action)
    secrets.add_private(action)
    action.add_argument("-o", "--out", metavar="OUT", help="the record to write (default: standard output)")

    action = add("fingerprint", run_fingerprint, "model_fp of a model folder")
    action.add_argument("folder", metavar="MODEL_DIR")
    action.add_argument("--name", required=True, metavar="NAME", help="the model's name")
    action.add_argument("--dir", metavar="PATH", help="the folder's path as the engine knows it (default: MODEL_DIR)")


def add_evidence(action: argparse.ArgumentParser) -> None:
    action.add_argument("--request", required=True, metavar="FILE", help="the request body, byte for byte")
    action.add_argument("--output", required=True, metavar="FILE", help="the output text, byte for byte")


MAX_EVIDENCE = 1 << 28  # bytes of a request or an output


def read(path: str, limit: int = MAX_EVIDENCE) -> bytes:
    """The bytes of a file, at most `limit` and one more."""
    from vqfref.errors import LimitError

    with open(path, "rb") as file:
        data = file.read(limit + 1)
    if len(data) > limit:
        raise LimitError("attest.size.limit", "more than %d bytes" % limit, path=path)
    return data


def run_verify(args: argparse.Namespace) -> int:
    from vqfref import attest
    from vqfref.errors import UsageError

    pub = secrets.public_key(args)
    if pub is None:
        raise UsageError("usage.public.missing", "a public key is needed: --pub F, or $%s" % secrets.ENV_PUBLIC)
    result = attest.verify(read(args.file, attest.MAX_RECORD), read(args.request), read(args.output), pub, args.file)
    lines = ["%s: %s (%s)" % step for step in result.steps] + [str(f) for f in result.findings]
    steps = [step._asdict() for step in result.steps]
    return finish(args, "attest", result.ok, result.findings, {"steps": steps}, lines)


def run_make(args: argparse.Namespace) -> int:
    import sys

    from vqfref import attest, strictjson
    from vqfref.errors import UsageError
    from vqfref.sink import AtomicFile

    fields = strictjson.loads(read(args.fields), path=args.fields)
    if not isinstance(fields, dict):
        raise UsageError("usage.attest.json", "%s: expected a JSON object" % args.fields)
    record = attest.make(fields, read(args.request), read(args.output), secrets.private_key(args))
    text = strictjson.dumps(record, indent=2) + "\n"
    if args.out is None:
        sys.stdout.write(text)
    else:
        with AtomicFile(args.out) as file:
            file.write(text.encode())
    return 0


def run_fingerprint(args: argparse.Namespace) -> int:
    from vqfref import attest

    print(attest.fingerprint(args.folder, args.name, args.dir))
    return 0

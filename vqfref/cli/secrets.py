"""Keys and passphrases for the verbs: from files or the engine's environment variables, never from the command line."""

from __future__ import annotations

import os

from vqfref.crypto import sm2
from vqfref.errors import SignatureError, UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from typing import Any, Callable

    from vqfref.weightfile import WeightFile

MAX_SECRET = 1 << 20  # bytes of a key file
ENV_PASSPHRASE, ENV_PRIVATE, ENV_PUBLIC = "VLLM_VQF_KEY", "VLLM_VQF_SIGN_PRIV", "VLLM_VQF_SIGN_PUB"


def add_passphrase(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("--passphrase-file", metavar="F", help="file with the passphrase (default: $%s)" % ENV_PASSPHRASE)


def add_public(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("--pub", metavar="F", help="file with the public key, 128 hex digits (default: $%s)" % ENV_PUBLIC)


def add_private(verb: argparse.ArgumentParser) -> None:
    verb.add_argument(
        "--priv", metavar="F", help="file with the private key, 64 hex digits (default: $%s)" % ENV_PRIVATE
    )


def read_secret(path: str) -> bytes:
    """The bytes of a key file; exactly one trailing newline does not count."""
    with open(path, "rb") as file:
        data = file.read(MAX_SECRET + 1)
    if len(data) > MAX_SECRET:
        raise UsageError("usage.secret.limit", "%s: more than %d bytes, which no key has" % (path, MAX_SECRET))
    return data[:-1] if data.endswith(b"\n") else data


def passphrase(path: str | None) -> bytes | None:
    """From the file, else from the environment, else None. An empty file is an error, for it can't mean "none"."""
    if path is not None:
        secret = read_secret(path)
        if not secret:
            raise UsageError(
                "usage.passphrase.key", "no passphrase in it: an empty one would mean no encryption", path=path
            )
        return secret
    return os.environb.get(ENV_PASSPHRASE.encode()) if hasattr(os, "environb") else None


def open_file(args: argparse.Namespace, path: str | None = None) -> WeightFile:
    """The file that the arguments name, with its passphrase; says so where that makes noise."""
    import vqfref
    from vqfref.cli.output import say

    key = passphrase(args.passphrase_file) if hasattr(args, "passphrase_file") else None
    f = vqfref.open(path or args.file, passphrase=key, backend=args.backend, q8_tile=args.q8_tile)
    warning = f.doubts()
    if warning is not None:
        say("%s: %s" % (f.path, warning))
    return f


def public_key(args: argparse.Namespace) -> bytes | None:
    """The 64 bytes of the public key to trust, or None if none was given."""
    data = _hex(args.pub, ENV_PUBLIC, "public key", 128)
    if data is not None:
        _key(sm2.public_key_from_bytes_checked, data)
    return data


def private_key(args: argparse.Namespace) -> int:
    """The private key; a UsageError if none was given."""
    data = _hex(args.priv, ENV_PRIVATE, "private key", 64)
    if data is None:
        raise UsageError("usage.private.missing", "a private key is needed: --priv F, or $%s" % ENV_PRIVATE)
    d: int = _key(sm2.private_key_from_bytes_checked, data)
    return d


def _key(check: Callable[[bytes], Any], data: bytes) -> Any:
    """A key that the caller gave; a wrong one is the caller's fault."""
    try:
        return check(data)
    except SignatureError as error:
        raise UsageError(error.code, error.message) from None


def _hex(path: str | None, variable: str, what: str, digits: int) -> bytes | None:
    """Hex digits from a file, or from a variable that holds the digits or names the file."""
    text = os.environ.get(variable) if path is None else None
    if text is not None and os.path.exists(text):
        path, text = text, None
    if path is not None:
        text = read_secret(path).decode("ascii", "replace")
    if path is None and not text:
        return None
    text = text or ""
    if len(text) != digits or set(text) - set("0123456789abcdefABCDEF"):
        raise UsageError("usage.hex.key", "%s: expected %d hex digits%s" % (
            what, digits, ", found %d characters" % len(text) if len(text) != digits else ""))  # fmt: skip
    return bytes.fromhex(text)

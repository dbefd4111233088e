"""Verbs that write VQF files and keys: keygen, pubkey, sign, encrypt, decrypt, set."""

from __future__ import annotations

import os
import sys

from vqfref.cli import secrets
from vqfref.cli.output import progress

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from typing import Any, Callable

SAFE = """
The old tag is checked before anything is written, and OUT gets its name when all of it is on the medium: an interrupted
run leaves the old file."""


def add_verbs(add_verb: Callable[..., Any]) -> None:
    verb = add_verb("keygen", run_keygen, "make an SM2 key pair", """\
Write a new private key (64 hex digits, mode 0600) to PRIV, and its public key (128 hex digits) to PUB or to standard
output. An existing file is never overwritten.

Example: vqfref keygen sign.key sign.pub""")  # fmt: skip
    verb.add_argument("priv", metavar="PRIV")
    verb.add_argument("pub", metavar="PUB", nargs="?")

    verb = add_verb("pubkey", run_pubkey, "the public key of a private one", """\
Print the public key, 128 hex digits x then y, of the private key in the file PRIV.

Example: vqfref pubkey sign.key""")  # fmt: skip
    verb.add_argument("priv", metavar="PRIV")

    verb = add_verb("sign", run_sign, "sign a VQF file, again, or take its signature off", """\
Sign with an SM2 private key; a signature that is there is replaced. The digest covers header, directory and plaintext,
so an encrypted file needs its passphrase. --remove takes the signature off and leaves the bytes of the unsigned file.
""" + SAFE + """

Example: vqfref sign model.vqf --priv sign.key -o signed.vqf
Example: vqfref sign model.vqf --priv sign.key --in-place
Example: vqfref sign signed.vqf --remove -o model.vqf""")  # fmt: skip
    add_rewrite(verb, in_place=True)
    secrets.add_private(verb)
    verb.add_argument("--id", metavar="ID", help="SM2 user id (default: vllm-kestrel-vqf, or vllm-shs-vqf for the "
                      "432-byte header)")  # fmt: skip
    verb.add_argument("--remove", action="store_true", help="take the signature off")

    verb = add_verb("encrypt", run_encrypt, "encrypt a VQF file, or change its passphrase", """\
Encrypt the data area with SM4-CTR under a passphrase, with a fresh random IV, and tag the file with HMAC-SM3. An encrypted
file gets the new passphrase in place of the one in --old-passphrase-file. A signed file must be signed again (--priv),
since the signature covers flags and IV.
""" + SAFE + """

Example: vqfref encrypt model.vqf -o sealed.vqf --passphrase-file secret.txt""")  # fmt: skip
    add_rewrite(verb)
    verb.add_argument("--old-passphrase-file", metavar="F", help="passphrase of a file that is encrypted already")
    secrets.add_private(verb)

    verb = add_verb("decrypt", run_decrypt, "decrypt a VQF file", """\
Take the encryption off and tag the file with a plain checksum. A signed file must be signed again (--priv).
""" + SAFE + """

Example: vqfref decrypt sealed.vqf -o model.vqf --passphrase-file secret.txt""")  # fmt: skip
    add_rewrite(verb)
    secrets.add_private(verb)

    verb = add_verb("set", run_set, "change header fields such as max_seq_len", """\
Set words of the header that don't decide where tensors lie, and make tag and signature anew; arrays take their numbers
separated by commas. A signed file must be signed again (--priv), an encrypted one needs its passphrase.
""" + SAFE + """

Example: vqfref set model.vqf max_seq_len=4096 --in-place
Example: vqfref set model.vqf rope_theta=1e6 mrope_sections=24,20,20,0 -o new.vqf""")  # fmt: skip
    add_rewrite(verb, in_place=True)
    verb.add_argument("fields", metavar="FIELD=VALUE", nargs="+")
    secrets.add_private(verb)


def add_rewrite(verb: argparse.ArgumentParser, in_place: bool = False) -> None:
    """The arguments of a verb that writes a file again."""
    verb.add_argument("file", metavar="FILE")
    target = verb.add_mutually_exclusive_group(required=True)
    target.add_argument("-o", "--out", metavar="OUT", help="the file to write; it may be FILE itself")
    if in_place:
        target.add_argument("--in-place", action="store_true", help="change header and tag in FILE, the tag last; an "
                            "interruption between the two leaves a file that does not verify")  # fmt: skip
    secrets.add_passphrase(verb)


def run_keygen(args: argparse.Namespace) -> int:
    from vqfref.crypto import sm2
    from vqfref.errors import UsageError
    from vqfref.sink import AtomicFile

    if args.pub is not None and os.path.realpath(args.priv) == os.path.realpath(args.pub):
        raise UsageError("usage.keygen.policy", "the private and the public key need two files")
    d = sm2.generate_private_key()
    pub = sm2.public_key_to_bytes(sm2.public_key(d)).hex() + "\n"
    published = False
    try:
        with AtomicFile(args.priv, mode=0o600, overwrite=False) as private:
            private.write(b"%064x\n" % d)
            if args.pub is None:
                sys.stdout.write(pub)
            else:  # inside, so that without it there is no private key either
                with AtomicFile(args.pub, overwrite=False) as public:
                    public.write(pub.encode())
                published = True
    except BaseException:
        if published:
            os.remove(args.pub)
        raise
    return 0


def run_pubkey(args: argparse.Namespace) -> int:
    from vqfref.crypto import sm2

    print(sm2.public_key_to_bytes(sm2.public_key(secrets.private_key(args))).hex())
    return 0


def run_sign(args: argparse.Namespace) -> int:
    from vqfref.errors import UsageError
    from vqfref.vqf.reseal import Signer

    if args.remove and (args.priv or args.id):
        raise UsageError("usage.sign.policy", "--remove takes neither --priv nor --id")
    signer = None if args.remove else Signer(secrets.private_key(args), os.fsencode(args.id) if args.id else None)
    return rewrite(args, passphrase=secrets.passphrase(args.passphrase_file), signer=signer)


def run_encrypt(args: argparse.Namespace) -> int:
    from vqfref.errors import UsageError

    new = secrets.passphrase(args.passphrase_file)
    if not new:
        raise UsageError("usage.passphrase.missing", "a passphrase is needed: --passphrase-file F, or $%s"
                         % secrets.ENV_PASSPHRASE)  # fmt: skip
    old = secrets.read_secret(args.old_passphrase_file) if args.old_passphrase_file else None
    return rewrite(args, passphrase=old, new_passphrase=new, **signer_if_given(args))


def run_decrypt(args: argparse.Namespace) -> int:
    return rewrite(args, passphrase=secrets.passphrase(args.passphrase_file), new_passphrase=None,
                   **signer_if_given(args))  # fmt: skip


def run_set(args: argparse.Namespace) -> int:
    from vqfref.errors import UsageError

    fields = {}
    for text in args.fields:
        name, equals, value = text.partition("=")
        name = name.strip()
        try:
            numbers = [float(v) if name in ("rope_theta", "norm_eps") else int(v, 0) for v in value.split(",")]
        except ValueError:
            equals = ""
        if not equals:
            raise UsageError("usage.field.range", "%r: expected FIELD=NUMBER, or numbers with commas" % text)
        name = name[5:] if name.startswith("arch.") else name
        if name in fields:
            raise UsageError("usage.field.duplicate", "%s is set twice" % name, field=name)
        fields[name] = tuple(numbers)
    return rewrite(args, passphrase=secrets.passphrase(args.passphrase_file), fields=fields, **signer_if_given(args))


def signer_if_given(args: argparse.Namespace) -> dict[str, Any]:
    """The signer that a private key on hand makes, for files that are signed; nothing for others."""
    from vqfref.source import Source
    from vqfref.vqf.head import load_head
    from vqfref.vqf.reseal import Signer
    from vqfref.vqf.structs import FLAG_SIGNED

    if args.priv is None and not os.environ.get(secrets.ENV_PRIVATE):
        return {}
    with Source(args.file, "pread") as source:
        header = load_head(source).header
    if not header.flags & FLAG_SIGNED:
        return {}
    sig = header.sig
    return {"signer": Signer(secrets.private_key(args), sig.id[: sig.id_len])}


def rewrite(args: argparse.Namespace, **how: Any) -> int:
    from vqfref.vqf.reseal import reseal

    reseal(args.file, args.out, progress=progress(args.verb), **how)
    return 0

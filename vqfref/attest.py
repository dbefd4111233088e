"""The engine's signed inference record: which model gave which output to which request. Spec: VQF section 12.

A record is a JSON object. Its digest covers the listed fields and the output text, each behind its length; its signature
is SM2 over the digest. A record passes when its schema is known, body_sha and digest come out again from the request
and the output, and the signature is right under the key that the caller trusts.
"""

from __future__ import annotations

import os
from collections import namedtuple

from vqfref import kernels, strictjson
from vqfref.crypto import sm2
from vqfref.errors import FormatError, LimitError, SignatureError, UsageError, VqfrefError
from vqfref.findings import Findings
from vqfref.source import Source
from vqfref.weightfile import Step

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

MAGIC = {2: b"VLLM-AT-2", 3: b"VLLM-AT-3"}  # by schema; bare, without a length
ALGO = "SM2-SM3"
USER_ID = b"VLLM-ATTEST-1"
FINGERPRINT_MAGIC = b"MODEL-FP-1"
MAX_RECORD = 1 << 20  # bytes of a record; real ones have less than 2 KB

# The fields that the digest covers, in its order; the output text follows them.
COVERED = (
    "model_fp", "model", "device", "user", "params", "prompt_tokens", "n_tokens", "finish", "ts", "body_sha",
)  # fmt: skip
HEX_FIELDS = {"model_fp": 64, "body_sha": 64, "digest": 64, "signature": 128}
NUMBERS = ("prompt_tokens", "n_tokens", "ts")

Attestation = namedtuple("Attestation", "ok steps findings")
Attestation.__doc__ = "The outcome of `verify`: ok, a Step for each check, and a Finding for each that failed."


def framed(x: bytes) -> bytes:
    """F(x): the length of x as 32-bit big-endian, then x."""
    return len(x).to_bytes(4, "big") + x


def parse(data: bytes, path: str | None = None) -> dict[str, Any]:
    """A record from its JSON. Raises FormatError or LimitError for what is not an object with all fields in their types."""
    if len(data) > MAX_RECORD:
        raise LimitError("attest.size.limit", "%d bytes, expected at most %d" % (len(data), MAX_RECORD), path=path)
    record = strictjson.loads(data, path=path)
    if not isinstance(record, dict):
        raise FormatError("attest.record.json", "expected a JSON object", offset=0, path=path)
    for name in ("schema", "algo", *COVERED, "digest", "signature"):
        if name not in record:
            raise FormatError("attest.field.missing", "missing", field=name, path=path)
        check_field(name, record[name], path)
    return record


def check_field(name: str, value: Any, path: str | None = None) -> None:
    """The type of one field: text, a number where section 12 says so, hex digits of the right count; and the schema."""
    number = type(value) is int and 0 <= value < 1 << 64
    if name == "schema" or (name in NUMBERS and name != "ts"):
        ok, expected = number, "an unsigned integer"
    elif name == "ts":
        ok, expected = number or _is_text(value), "an unsigned integer or text"
    elif name in HEX_FIELDS:
        digits = HEX_FIELDS[name]
        ok = isinstance(value, str) and len(value) == digits and not set(value) - set("0123456789abcdefABCDEF")
        expected = "%d hex digits" % digits
    else:
        ok, expected = _is_text(value), "text"
    if not ok:
        raise FormatError(
            "attest.field.json", "found %s, expected %s" % (_shown(value), expected), field=name, path=path
        )
    if name == "schema" and value not in MAGIC:
        raise FormatError("attest.schema.version", "schema %s, expected 2 or 3" % _shown(value), field=name, path=path)


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and not any("\ud800" <= c <= "\udfff" for c in value)


def _shown(value: Any) -> str:
    """A value of a record in a message: short, and safe to print."""
    if type(value) is int and value >= 1 << 64:
        return "a number of %d bits" % value.bit_length()
    return ascii(value)[:60]


def digest(record: dict[str, Any], output: bytes) -> bytes:
    """The 32 bytes that the signature covers. The fields have been checked."""
    fields = b"".join(framed(str(record[name]).encode("utf-8")) for name in COVERED)
    return kernels.sm3(MAGIC[record["schema"]] + fields + framed(output))


def verify(data: bytes, request: bytes, output: bytes, public_key: bytes, path: str | None = None) -> Attestation:
    """Check a record against the request body, the output text and the key to trust (64 bytes x ‖ y).

    Every check that can be made is made; the findings say why each that failed did. Raises SignatureError for a public
    key that is none.
    """
    trusted = sm2.public_key_from_bytes_checked(public_key)
    found = Findings(path)
    steps: list[Step] = []

    def step(name: str, good: bool, detail: str, code: str, field: str | None, offset: int | None = None) -> None:
        steps.append(Step(name, "ok" if good else "failed", detail))
        if not good:
            found.add("error", code, detail, offset, field, "refuses")

    try:
        record = parse(data, path)
        computed = digest(record, output)
    except VqfrefError as error:
        step("record", False, error.message, error.code, error.field, error.offset)
        return Attestation(False, steps, found.sorted())
    step("record", True, "schema %d" % record["schema"], "", None)
    step(
        "algo",
        record["algo"] == ALGO,
        "%s, expected %s" % (ascii(record["algo"])[1:-1][:60], ALGO),
        "attest.algo.unsupported",
        "algo",
    )
    body = kernels.sm3(request).hex()
    step("body_sha", record["body_sha"].lower() == body, "record %s…, request body %s…" % (record["body_sha"][:16], body[:16]),
         "attest.body.tag", "body_sha")  # fmt: skip
    step("digest", record["digest"].lower() == computed.hex(),
         "record %s…, fields and output give %s…" % (record["digest"][:16], computed.hex()[:16]), "attest.digest.tag",
         "digest")  # fmt: skip
    try:
        kernels.sm2_check(trusted, computed, bytes.fromhex(record["signature"]), USER_ID)
        step("signature", True, "SM2 by %s…" % public_key.hex()[:16], "", None)
    except SignatureError as error:
        step("signature", False, error.message, "attest.sm2.signature", "signature")
    return Attestation(not found.sorted(), steps, found.sorted())


def make(fields: dict[str, Any], request: bytes, output: bytes, d: int) -> dict[str, Any]:
    """A signed record from its free fields (all of COVERED but body_sha; schema is 3 if absent) and a private key.

    Raises UsageError for a field that is missing, unknown or of the wrong type.
    """
    for name in fields:
        if name not in ("schema", "algo", "digest", "signature", *COVERED):
            raise UsageError("usage.attest.name", "no field of a record", field=name)
    record: dict[str, Any] = {"algo": ALGO}
    for name in ("schema", *COVERED):
        value = kernels.sm3(request).hex() if name == "body_sha" else fields.get(name, 3 if name == "schema" else None)
        try:
            if value is None:
                raise FormatError("attest.field.missing", "missing", field=name)
            check_field(name, value)
        except FormatError as error:
            raise UsageError("usage.attest.missing", error.message, field=name) from None
        record[name] = value
    covered = digest(record, output)
    record["digest"] = covered.hex()
    record["signature"] = kernels.sm2_sign(d, covered, USER_ID).hex()
    order = ("schema", "algo", "ts", "model", "model_fp", "device", "user", "params", "prompt_tokens", "n_tokens",
             "finish", "body_sha", "digest", "signature")  # fmt: skip
    return {name: record[name] for name in order}


def fingerprint(folder: str | os.PathLike[str], name: str, model_dir: str | None = None) -> str:
    """model_fp of a model folder, 64 hex digits.

    name: the model's name; model_dir: the folder's path as the engine knows it (default: as given). Covers config.json
    by its SM3, and every regular file of the folder by name and size alone. Raises OSError; FormatError
    (attest.config.missing) without config.json.
    """
    folder = os.fspath(folder)
    names = os.listdir(os.fsencode(folder))
    config = os.path.join(folder, "config.json")
    if not os.path.isfile(config):
        raise FormatError("attest.config.missing", "no config.json in the folder", path=folder)
    with Source(config, "pread") as source:
        h = kernels.sm3_new()
        for piece in source.pieces(0, source.size):
            h.update(piece)
    text = framed(FINGERPRINT_MAGIC) + framed(name.encode("utf-8", "surrogateescape"))
    text += framed(os.fsencode(folder if model_dir is None else model_dir)) + framed(h.digest())
    for entry in sorted(names):
        path = os.path.join(os.fsencode(folder), entry)
        if not entry.startswith(b".") and os.path.isfile(path):
            text += framed(entry + b":%d" % os.stat(path).st_size)
    return kernels.sm3(text).hex()

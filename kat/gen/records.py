"""Signed inference records for the suite: the cases of attest. Run by files.py.

A record is written as JSON text here, its digest is OpenSSL's SM3, its signature is made with Python's integers from a
fixed nonce and judged by OpenSSL: good wherever the signature is not what a case is about, and where it is, refused.
"""

from __future__ import annotations

import json

from openssl import (
    b32,
    e_of,
    is_signature,
    n,
    openssl,
    p,
    point_is_accepted,
    public_from_private,
    raw,
    scalar,
    sign_with,
    sm3,
)
from suite import case, data, prove

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, Iterator

    from suite import Case

    Record = Dict[str, Any]

SOURCE = "generator; SM3 and the verdict over the signature by OpenSSL 3"

FIXED = (
    'the format: schema (2 or 3), algo "SM2-SM3", model_fp (64 hex), body_sha (64 hex), digest (64 hex), signature '
    "(128 hex, r \u2016 s)"
)

# What a flag's cases catch.
FLAGS = {
    "attest-schema": "the magic of schema 2 and of schema 3",
    "attest-version": "schemas that nobody knows",
    "attest-algo": "algo is SM2-SM3",
    "attest-fields": "the digest covers every field of its list",
    "attest-order": "the digest's order of fields, whatever the record's own",
    "attest-framing": "each field of the digest stands behind its length",
    "attest-numbers": "numbers as decimal text, up to 64 bits",
    "attest-text": "texts in UTF-8, escapes undone",
    "attest-output": "the digest covers the output text",
    "attest-body": "body_sha is the SM3 of the request",
    "attest-digest": "digest is compared",
    "attest-signature": "the signature is verified, with the key that the caller trusts",
    "attest-id": "the signature is over the digest's bytes, with the id VLLM-ATTEST-1",
    "attest-key": "the key is a point of the curve",
    "attest-json": "a record is one JSON object",
    "attest-duplicate": "a key that stands twice",
    "attest-missing": "every field is there",
    "attest-types": "texts are texts and numbers are unsigned integers",
    "attest-hex": "hex fields have their number of digits",
}

COVERED = ("model_fp", "model", "device", "user", "params", "prompt_tokens", "n_tokens", "finish", "ts", "body_sha")
ORDER = ("schema", "algo", "ts", "model", "model_fp", "device", "user", "params", "prompt_tokens", "n_tokens", "finish",
         "body_sha", "digest", "signature")  # fmt: skip
USER_ID = b"VLLM-ATTEST-1"
REQUEST, OUTPUT = b'{"messages":[{"role":"user","content":"2+2?"}]}', b"4"
D = scalar("attest")
KEY = public_from_private(D)
FREE: Record = {
    "schema": 3, "algo": "SM2-SM3", "ts": 1767225600, "model": "qwen3-0.6b", "model_fp": data("model fp", 32).hex(),
    "device": "board-7", "user": "alice", "params": "temperature=0,top_p=1", "prompt_tokens": 12, "n_tokens": 1,
    "finish": "stop",
}  # fmt: skip


def framing(x: bytes) -> bytes:
    return len(x).to_bytes(4, "big") + x


def digest_of(record: Record, output: bytes) -> bytes:
    magic = b"VLLM-AT-2" if record["schema"] == 2 else b"VLLM-AT-3"
    fields = b"".join(framing(as_text(record[name]).encode("utf-8", "surrogatepass")) for name in COVERED)
    return sm3(magic + fields + framing(output))


def as_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def signature(label: str, digest: bytes, d: int = D, user_id: bytes = USER_ID) -> str:
    """A signature of the digest, which OpenSSL takes."""
    P = public_from_private(d)
    r, s = sign_with(d, e_of(P, user_id, digest), scalar("attest nonce " + label))
    prove(is_signature(P, user_id, digest, r, s), "OpenSSL takes the signature of " + label)
    return (b32(r) + b32(s)).hex()


def signed(label: str, request: bytes = REQUEST, output: bytes = OUTPUT, **edit: Any) -> Record:
    """A record that is right in all its parts but what is edited, which the digest then covers."""
    record = {**FREE, "body_sha": sm3(request).hex(), **edit}
    digest = digest_of(record, output)
    record["digest"] = digest.hex()
    record["signature"] = signature(label, digest)
    return {name: record[name] for name in (*ORDER, *(set(edit) - set(ORDER)))}


def text(record: Record) -> bytes:
    return json.dumps(record, ensure_ascii=False, separators=(",", ":")).encode("utf-8")


def one(
    name: str, comment: str, flags: str, record: bytes, error: str | None = None, request: bytes = REQUEST,
    output: bytes = OUTPUT, pub: bytes | None = None, source: str = SOURCE, **more: Any,
) -> Case:  # fmt: skip
    into = {"record": record, "request": request, "output": output, "pub": raw(KEY) if pub is None else pub}
    return case("attest-" + name, comment, source, flags, into, error=error, **more)


def valid() -> Iterator[Case]:
    good = signed("twin")
    yield one("twin", "the good twin of most of the others", "attest-fields", text(good))
    yield one("schema-2", "schema 2", "attest-schema", text(signed("schema 2", schema=2)))
    yield one("ts-text", "ts as text, with the same digest", "attest-numbers", text(signed("ts text", ts="1767225600")))
    yield one("ts-iso", "ts as a date", "attest-numbers", text(signed("ts iso", ts="2026-01-01T00:00:00Z")))
    for name, value in (("0", 0), ("2-53-plus-1", (1 << 53) + 1), ("2-63", 1 << 63), ("2-64-minus-1", (1 << 64) - 1)):
        record = signed("numbers " + name, prompt_tokens=value, n_tokens=value, ts=value)
        yield one("numbers-" + name, "all numbers are %d" % value, "attest-numbers", text(record))
    record = signed("empty", model="", device="", user="", params="", finish="", ts="")
    yield one("texts-empty", "empty texts", "attest-framing", text(record))
    odd = signed("unicode", model="\u901a\u4e49-\U0001f600", user='a"b\\c\n\0', device="\u00e9")
    yield one("texts-unicode", "texts beyond ASCII", "attest-text", text(odd))
    escaped = json.dumps(odd).replace("SM2-SM3", "\\u0053M2\\u002dSM3").encode()
    yield one("texts-escaped", "the same record, all of it in escapes", "attest-text", escaped)
    decomposed = signed("decomposed", device="e\u0301")
    yield one(
        "texts-decomposed", "e and an accent as two characters, which nobody puts together", "attest-text",
        text(decomposed),
    )  # fmt: skip
    long = signed("long", params="x" * 300, user="y" * 256, model="z" * 255)
    yield one("texts-long", "texts of 255, 256 and 300 bytes", "attest-framing", text(long))
    turned = dict(reversed(list(good.items())))
    yield one("order", "the fields in another order", "attest-order", text(turned))
    yield one(
        "white-space", "white space of all kinds", "attest-json", (json.dumps(good, indent="\t") + " \r\n").encode()
    )
    yield one("white-space-before", "white space before the brace", "attest-json", b" \n" + text(good))
    for name, request, output in (
        ("request-empty", b"", OUTPUT), ("output-empty", REQUEST, b""), ("both-empty", b"", b""),
        ("output-binary", REQUEST, bytes(range(256))), ("output-2000", REQUEST, data("output", 2000)),
        ("request-nul", REQUEST + b"\0", OUTPUT), ("output-utf8", REQUEST, "\u56db".encode()),
    ):  # fmt: skip
        record = signed(name, request, output)
        flags = "attest-output" if request == REQUEST else "attest-body"
        comment = "a request of %d bytes, an output of %d" % (len(request), len(output))
        yield one(name, comment, flags, text(record), request=request, output=output)
    upper = signed("model fp", model_fp=good["model_fp"].upper())
    yield one("model-fp-upper-case", "model_fp in upper case, which the digest covers so", "attest-hex", text(upper))


def changed() -> Iterator[Case]:
    """Something is not what was signed."""
    good = signed("twin")
    for name in COVERED:
        value = good[name]
        if name == "body_sha":
            continue
        other = value + 1 if isinstance(value, int) else ("0" if value[0] != "0" else "1") + value[1:]
        comment = "%s is another" % name
        yield one("not-%s" % name.replace("_", "-"), comment, "attest-fields", text({**good, name: other}), "tag")
        record = {**good, name: other}
        record["digest"] = digest_of(record, OUTPUT).hex()
        comment = "%s is another, the digest fits, the signature is the old one" % name
        yield one("not-%s-digest-anew" % name.replace("_", "-"), comment, "attest-signature", text(record), "signature")
    for name, other in (
        ("n_tokens", 0), ("ts", "1767225600 "), ("user", ""), ("model", "qwen3-0.6B"), ("finish", "stop\0"),
    ):  # fmt: skip
        comment = "%s is %r" % (name, other)
        yield one(
            "not-%s-%s" % (name.replace("_", "-"), "zero" if other == 0 else "subtly"), comment, "attest-fields",
            text({**good, name: other}), "tag",
        )  # fmt: skip
    moved = {**good, "device": good["device"][:-1], "user": good["device"][-1] + good["user"]}
    prove("".join(moved[k] for k in ("device", "user")) == good["device"] + good["user"], "the same text in all")
    yield one("not-moved-text", "the last character of device stands before user", "attest-framing", text(moved), "tag")
    moved = {**good, "prompt_tokens": 1, "n_tokens": 21}
    yield one("not-moved-digit", "12 and 1 tokens become 1 and 21", "attest-framing", text(moved), "tag")
    yield one(
        "not-swapped", "device and user swapped", "attest-order",
        text({**good, "device": good["user"], "user": good["device"]}), "tag",
    )  # fmt: skip
    for schema in (2, 3):
        record = {**signed("schema %d" % schema, schema=schema), "schema": 5 - schema}
        yield one(
            "not-schema-%d-for-%d" % (5 - schema, schema), "signed as schema %d" % schema, "attest-schema",
            text(record), "tag",
        )  # fmt: skip
    for name, output in (("other", b"5"), ("longer", OUTPUT + b"\0"), ("empty", b""), ("newline", OUTPUT + b"\n")):
        yield one("not-output-" + name, "the output %r" % output, "attest-output", text(good), "tag", output=output)
    for name, request in (("other", REQUEST[:-1] + b" "), ("longer", REQUEST + b"\n"), ("empty", b"")):
        yield one(
            "not-request-" + name, "another request, of %d bytes" % len(request), "attest-body", text(good), "tag",
            request=request,
        )  # fmt: skip
    for name, other in (
        ("other", sm3(b"x").hex()), ("one-bit", "%064x" % (int(good["body_sha"], 16) ^ 1)), ("zeros", "0" * 64),
        ("of-hex", sm3(REQUEST.hex().encode()).hex()),
    ):  # fmt: skip
        comment = "body_sha is another, and signed so"
        yield one("not-body-sha-" + name, comment, "attest-body", text(signed("body " + name, body_sha=other)), "tag")
    value = int(good["digest"], 16)
    for name, other in (
        ("first-bit", value ^ 1 << 255), ("last-bit", value ^ 1), ("zeros", 0),
        ("reversed", int.from_bytes(bytes.fromhex(good["digest"])[::-1], "big")),
    ):  # fmt: skip
        comment = "the digest field alone is another"
        yield one("not-digest-" + name, comment, "attest-digest", text({**good, "digest": "%064x" % other}), "tag")

    # digests by other rules, each signed
    values = [as_text(good[name]).encode() for name in COVERED]
    body = b"".join(map(framing, values))
    for name, comment, flags, hashed in (
        ("no-lengths", "without lengths", "attest-framing", b"VLLM-AT-3" + b"".join(values) + OUTPUT),
        ("little-endian-lengths", "lengths little-endian", "attest-framing",
         b"VLLM-AT-3" + b"".join(len(v).to_bytes(4, "little") + v for v in (*values, OUTPUT))),
        ("framed-magic", "the magic behind its length", "attest-schema",
         framing(b"VLLM-AT-3") + body + framing(OUTPUT)),
        ("no-magic", "without magic", "attest-schema", body + framing(OUTPUT)),
        ("bare-output", "the output without length", "attest-framing", b"VLLM-AT-3" + body + OUTPUT),
        ("no-output", "without the output", "attest-output", b"VLLM-AT-3" + body),
        ("output-hash", "the output's SM3 in its place", "attest-output", b"VLLM-AT-3" + body + framing(sm3(OUTPUT))),
        ("record-order", "fields in the record's order", "attest-order",
         b"VLLM-AT-3" + b"".join(framing(as_text(good[k]).encode()) for k in ORDER if k in COVERED) + framing(OUTPUT)),
        ("raw-body-sha", "body_sha as 32 bytes", "attest-fields",
         b"VLLM-AT-3" + b"".join(map(framing, values[:-1])) + framing(sm3(REQUEST)) + framing(OUTPUT)),
    ):  # fmt: skip
        digest = sm3(hashed)
        prove(digest.hex() != good["digest"], "another digest")
        record = {**good, "digest": digest.hex(), "signature": signature(name, digest)}
        yield one("not-digest-" + name, "the digest of the fields " + comment, flags, text(record), "tag")
    sha256 = openssl("dgst -sha256 -binary", b"VLLM-AT-3" + body + framing(OUTPUT))
    record = {**good, "digest": sha256.hex(), "signature": signature("sha256", sha256)}
    yield one("not-digest-sha256", "SHA-256 instead of SM3", "attest-digest", text(record), "tag")


def badly_signed() -> Iterator[Case]:
    good = signed("twin")
    digest = bytes.fromhex(good["digest"])
    r, s = int(good["signature"][:64], 16), int(good["signature"][64:], 16)
    for name, comment, u, v in (
        ("r-other", "the lowest bit of r flipped", r ^ 1, s), ("s-other", "the lowest bit of s flipped", r, s ^ 1),
        ("swapped", "s, then r", s, r), ("s-negated", "n - s for s", r, n - s), ("r-negated", "n - r for r", n - r, s),
    ):  # fmt: skip
        prove(not is_signature(KEY, USER_ID, digest, u, v), "OpenSSL refuses it")
        record = {**good, "signature": (b32(u) + b32(v)).hex()}
        yield one("not-signature-" + name, comment, "attest-signature", text(record), "signature")
    for name, comment, user_id in (
        ("no-id", "an empty user id", b""), ("default-id", "the default id", b"1234567812345678"),
        ("vqf-id", "the id of VQF files", b"VLLM-VQF-1"),
        ("id-2", "the id VLLM-ATTEST-2", b"VLLM-ATTEST-2"), ("id-nul", "a zero byte behind the id", USER_ID + b"\0"),
    ):  # fmt: skip
        record = {**good, "signature": signature(name, digest, user_id=user_id)}
        yield one("not-signature-" + name, "signed with " + comment, "attest-id", text(record), "signature")
    for name, comment, message in (
        ("of-hex", "over the digest's hex digits", digest.hex().encode()),
        ("of-sm3", "over the SM3 of the digest", sm3(digest)),
        ("of-nothing", "over an empty message", b""), ("of-output", "over the output", OUTPUT),
    ):  # fmt: skip
        record = {**good, "signature": signature(name, message)}
        yield one("not-signature-" + name, "signed " + comment, "attest-id", text(record), "signature")
    e = int.from_bytes(digest, "big")
    u, v = sign_with(D, e, scalar("attest without z"))
    record = {**good, "signature": (b32(u) + b32(v)).hex()}
    yield one(
        "not-signature-without-z", "signed without Z: the digest itself is e", "attest-id", text(record), "signature"
    )
    other = scalar("attest other")
    record = {**good, "signature": signature("other", digest, other)}
    yield one(
        "not-signature-other-key", "signed with somebody else's key", "attest-signature", text(record), "signature"
    )
    yield one(
        "not-key-other", "somebody else's key is trusted", "attest-signature", text(good), "signature",
        pub=raw(public_from_private(other)),
    )  # fmt: skip
    yield one(
        "not-key-minus", "the point with -y is trusted", "attest-signature", text(good), "signature",
        pub=raw((KEY[0], p - KEY[1])),
    )  # fmt: skip
    top = (1 << 256) - 1
    for name, comment, u, v in (
        ("r-0", "r = 0", 0, s), ("s-0", "s = 0", r, 0), ("both-0", "r = s = 0", 0, 0), ("r-n", "r = n", n, s),
        ("s-n", "s = n", r, n), ("r-top", "r = 2^256 - 1", top, s), ("s-top", "s = 2^256 - 1", r, top),
        ("r-plus-s-n", "r + s = n", r, n - r),
    ):  # fmt: skip
        record = {**good, "signature": (b32(u) + b32(v)).hex()}
        yield one("not-signature-" + name, comment, "attest-signature", text(record), "signature")
    x, y = KEY
    for name, comment, pub, error in (
        ("off-curve", "y + 1", b32(x) + b32(y + 1), "point"), ("zeros", "64 zero bytes", bytes(64), "point"),
        ("swapped", "y, then x", b32(y) + b32(x), "point"),
        ("x-p", "x = p", b32(p) + b32(y), "range"), ("y-top", "y of all ones", b32(x) + b"\xff" * 32, "range"),
        ("63-bytes", "63 bytes", raw(KEY)[:63], "key"), ("65-bytes", "65 bytes", raw(KEY) + b"\0", "key"),
        ("empty", "no key", b"", "key"), ("x-only", "x alone", b32(x), "key"),
        ("compressed", "the compressed form", bytes([2 + y % 2]) + b32(x), "key"),
        ("hex", "the hex digits as text", raw(KEY).hex().encode(), "key"),
    ):  # fmt: skip
        prove(len(pub) != 64 or not point_is_accepted(pub), "OpenSSL takes no such point")
        yield one("not-key-" + name, "a key that is none: " + comment, "attest-key", text(good), error, pub=pub)


def malformed() -> Iterator[Case]:
    """Records that are none; a lenient reader would find all the rest in order."""
    good = signed("twin")
    whole = text(good)
    for name, comment, record in (
        ("empty", "nothing", b""), ("null", "null", b"null"), ("array", "the object in an array", b"[" + whole + b"]"),
        ("text", "the object as a JSON text", json.dumps(whole.decode()).encode()),
        ("pairs", "pairs of name and value", json.dumps(list(good.items())).encode()),
        ("cut", "without its brace", whole[:-1]), ("brace", "a brace too many", whole + b"}"),
        ("two", "two records", whole + whole), ("nul-behind", "a NUL behind it", whole + b"\0"),
        ("byte-order-mark", "a byte order mark", b"\xef\xbb\xbf" + whole),
        ("comma", "a comma behind the last field", whole[:-1] + b",}"),
        ("single-quotes", "single quotes", whole.replace(b'"', b"'")),
        ("utf-16", "UTF-16", whole.decode().encode("utf-16")),
        ("latin-1", "a byte ff in a text", whole.replace(b"alice", b"alic\xff")),
        ("raw-newline", "a line feed in a text", whole.replace(b"alice", b"al\nce")),
        ("surrogate", "a lone surrogate in a text", whole.replace(b"alice", b"\\ud800")),
        ("comment", "a comment", b"/**/" + whole),
        ("leading-zero", "a number as 012", whole.replace(b":12,", b":012,")),
        ("plus", "a number as +12", whole.replace(b":12,", b":+12,")),
    ):  # fmt: skip
        yield one("not-json-" + name, comment, "attest-json", record, "json")
    for name, value in (("same", '"alice"'), ("other", '"mallory"')):
        for place, record in (
            ("first", b'{"user":%s,' % value.encode() + whole[1:]),
            ("last", whole[:-1] + b',"user":%s}' % value.encode()),
        ):  # fmt: skip
            comment = "user stands twice, %s as the %s" % (value, place)
            yield one("not-duplicate-%s-%s" % (name, place), comment, "attest-duplicate", record, "duplicate")
    record = b'{"us\\u0065r":"mallory",' + whole[1:]
    yield one(
        "not-duplicate-escaped", "user stands twice, once with an escape", "attest-duplicate", record, "duplicate"
    )
    yield one(
        "not-duplicate-signature", "signature stands twice", "attest-duplicate",
        whole[:-1] + b',"signature":"%s"}' % (b"0" * 128), "duplicate",
    )  # fmt: skip
    for name in ORDER:
        record = {k: v for k, v in good.items() if k != name}
        yield one("not-without-" + name.replace("_", "-"), "no " + name, "attest-missing", text(record), "missing")
    yield one("not-object-empty", "{}", "attest-missing", b"{}", "missing")
    yield one("not-upper-case-name", "USER for user", "attest-missing", whole.replace(b'"user"', b'"USER"'), "missing")
    for schema in (0, 1, 4, 23, 258, 259, (1 << 32) + 3, 1 << 63):
        wrap = ", whose low byte or word is known" if schema > 200 and schema & 255 in (2, 3) else ""
        record = signed("schema %d" % schema, schema=schema)
        yield one("not-schema-%d" % schema, "schema %d%s" % (schema, wrap), "attest-version", text(record), "version")
    for name, algo in (
        ("lower-case", "sm2-sm3"), ("empty", ""), ("ecdsa", "ECDSA-SHA256"), ("none", "none"), ("space", "SM2-SM3 "),
        ("prefix", "SM2"),
    ):  # fmt: skip
        yield one("not-algo-" + name, 'algo "%s"' % algo, "attest-algo", text({**good, "algo": algo}), "unsupported")
    for name, field, value in (
        ("schema-text", "schema", "3"), ("schema-null", "schema", None), ("schema-list", "schema", [3]),
        ("algo-null", "algo", None), ("algo-list", "algo", ["SM2-SM3"]), ("model-fp-number", "model_fp", 0),
        ("body-sha-null", "body_sha", None),
    ):  # fmt: skip
        record = signed("type " + name, **{field: value})
        comment = "%s is %s, and signed so" % (field, json.dumps(value))
        yield one("not-type-" + name, comment, "attest-types", text(record), "json", source=FIXED)
    for name, field, value in (
        ("schema-float", "schema", 3.0),
        ("n-tokens-text", "n_tokens", "1"), ("n-tokens-float", "n_tokens", 1.0), ("n-tokens-negative", "n_tokens", -1),
        ("n-tokens-true", "n_tokens", True), ("n-tokens-null", "n_tokens", None),
        ("n-tokens-2-64", "n_tokens", 1 << 64), ("prompt-tokens-text", "prompt_tokens", "12"),
        ("prompt-tokens-half", "prompt_tokens", 0.5), ("prompt-tokens-negative", "prompt_tokens", -12),
        ("prompt-tokens-list", "prompt_tokens", [12]), ("ts-float", "ts", 1767225600.5), ("ts-negative", "ts", -1),
        ("ts-false", "ts", False), ("ts-null", "ts", None), ("ts-2-64", "ts", 1 << 64),
        ("model-number", "model", 7), ("model-null", "model", None), ("device-list", "device", []),
        ("user-object", "user", {}), ("user-true", "user", True), ("params-object", "params", {"top_p": 1}),
        ("finish-null", "finish", None),
    ):  # fmt: skip
        record = signed("type " + name, **{field: value})
        comment = "%s is %s, signed as JSON writes it; the format fixes no type here, a careful reader does"
        yield one(
            "not-type-" + name, comment % (field, json.dumps(value)), "attest-types", text(record), "json",
            level="recommended",
        )  # fmt: skip
    exponent = whole.replace(b'"prompt_tokens":12', b'"prompt_tokens":1.2e1')
    prove(exponent != whole, "replaced")
    yield one(
        "not-type-exponent", "prompt_tokens is 1.2e1 for the 12 that is signed; a careful reader takes no float",
        "attest-types", exponent, "json", level="recommended",
    )  # fmt: skip
    for name, field, value in (
        ("digest-63", "digest", good["digest"][:-1]), ("digest-66", "digest", good["digest"] + "00"),
        ("digest-empty", "digest", ""), ("digest-0x", "digest", "0x" + good["digest"]),
        ("digest-not-hex", "digest", "g" + good["digest"][1:]), ("digest-space", "digest", good["digest"] + " "),
        ("signature-126", "signature", good["signature"][:-2]),
        ("signature-130", "signature", good["signature"] + "00"),
        ("signature-127", "signature", good["signature"][:-1]), ("signature-empty", "signature", ""),
        ("signature-not-hex", "signature", "z" + good["signature"][1:]),
        ("signature-colons", "signature", ":".join(good["signature"][i : i + 2] for i in range(0, 128, 2))),
        ("signature-spaced", "signature", good["signature"][:64] + " " + good["signature"][64:]),
        ("digest-null", "digest", None), ("signature-null", "signature", None), ("signature-number", "signature", 1),
    ):  # fmt: skip
        form = "%d hex digits" % (128 if field == "signature" else 64)
        found = "%d characters" % len(value) if isinstance(value, str) else json.dumps(value)
        found += ", one of them no digit" if found in ("64 characters", "128 characters") else ""
        comment, record = "%s is %s, not %s" % (field, found, form), text({**good, field: value})
        yield one("not-hex-" + name, comment, "attest-hex", record, "json", source=FIXED)
    for name, field, value in (
        ("model-fp-63", "model_fp", good["model_fp"][:-1]), ("model-fp-not-hex", "model_fp", "x" * 64),
        ("model-fp-empty", "model_fp", ""), ("model-fp-65", "model_fp", good["model_fp"] + "0"),
        ("body-sha-62", "body_sha", good["body_sha"][:-2]), ("body-sha-empty", "body_sha", ""),
        ("body-sha-base64", "body_sha", "U00z" * 16),
    ):  # fmt: skip
        prove(len(value) != 64 or set(value) - set("0123456789abcdefABCDEF"), "not 64 hex digits")
        no_digits = ", not all of them digits" if len(value) == 64 else ""
        comment = "%s is %d characters%s, not 64 hex digits; signed so" % (field, len(value), no_digits)
        record = text(signed(name, **{field: value}))
        yield one("not-hex-" + name, comment, "attest-hex", record, "json", source=FIXED)
    deep = whole[:-1] + b',"x":' + b"[" * 1000 + b"]" * 1000 + b"}"
    yield one(
        "not-depth", "1000 arrays inside each other in a field that nothing covers; all else is right", "attest-json",
        deep, "limit", level="recommended",
    )  # fmt: skip
    shallow = whole[:-1] + b',"x":' + b"[" * 32 + b"]" * 32 + b"}"
    yield one("depth-33", "32 arrays inside each other in a field that nothing covers", "attest-json", shallow)
    digits = text(signed("digits", prompt_tokens=10**2000))
    yield one(
        "not-digits", "prompt_tokens is a number of 2001 digits, and signed so", "attest-types", digits, "limit",
        level="recommended",
    )  # fmt: skip


def make_attest(_: dict[str, Case]) -> Iterator[Case]:
    yield from valid()
    yield from changed()
    yield from badly_signed()
    yield from malformed()

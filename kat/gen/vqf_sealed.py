#!/usr/bin/env python3
"""Makes the suite's cases of sealed VQF files and of the values in them: vqf_verify and vqf_tensor.

    python3 kat/gen/vqf_sealed.py            write the files of kat/ that stand in MAKERS
    python3 kat/gen/vqf_sealed.py --check    make them again and compare; 1 if one differs

It needs the command of OpenSSL 3: SM3, SM4, HMAC and every verdict over a signature are its. `faults` judges a file by
the format's text, sections 3 to 5: each case must have the one fault that it names. vqf_tensor.py has the cases of
vqf_tensor. Uses nothing of vqfref.
"""

from __future__ import annotations

import functools
import json
import struct
import sys
from collections import namedtuple

import vqf_tensor
from openssl import b32, e_of, hmac_sm3, is_signature, n, p, public_from_private, raw, rhs, scalar, sign_with, sm3, sm4
from suite import KAT, case, data, main, prove
from vqf_parts import (
    DIRECTORY,
    EMB_F16,
    ENC,
    F32,
    GENERATOR,
    IV,
    MODELS,
    PLACES,
    SIGNED,
    U32,
    U64,
    USER_IDS,
    Model,
    build,
    canonical,
    flags_of,
    fnv1a64,
    head_fault,
    row,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, Iterator

    from suite import Case

    Field = Dict[str, int]

# What a flag's cases catch.
VERIFY_FLAGS = {
    "enc-key": "an encrypted file and no passphrase; an empty one is none",
    "passphrase": "the passphrase counts byte by byte, whatever it holds",
    "surplus": "a passphrase for a plain file is not used, and refuses nothing",
    "tag": "the whole of the HMAC is compared",
    "tag-cover": "header, directory and data are authenticated, each to its last byte",
    "tag-keys": "K[16:32] is the key of the HMAC",
    "tag-header": "the HMAC covers the canonical header: file_len and the signature block zero, 448 or 432 bytes",
    "tag-order": "the HMAC covers header, directory and ciphertext, in this order, and nothing else",
    "uncovered": "what no tag covers may be any bytes",
    "cipher": "SM4-CTR with K[0:16], counter big-endian from enc_iv on; a signature vouches for the plaintext",
    "digest": "the block's digest is compared with that of the file",
    "digest-cover": "the digest covers flags, enc_iv, header, directory and plaintext",
    "user-id": "the ids in use, either of them with either form of header, and no others",
    "id-len": "id_len says how long the id is, at most 32",
    "unjudged": "without a trusted key the signature as such is not judged; digest and id are",
    "signature": "the signature is one over Z and D",
    "trusted": "the key that was given is the one that counts, not the one in the file",
    "block-key": "the key in the signature block is the trusted one",
    "trusted-form": "a trusted key that is none",
    "checksum": "the checksum of a plain file, signed or not; a stored 0 is none",
    "gates": "magic, size and the directory's bounds, under the right tag",
}
FLAGS = {"vqf-verify-" + k: v for k, v in VERIFY_FLAGS.items()}
FLAGS.update({"vqf-tensor-" + k: v for k, v in vqf_tensor.FLAGS.items()})

FILES: dict[str, bytes] = {}
PASSPHRASE = b"passphrase"
Q4 = MODELS["q4"]
MOE = MODELS["moe"]
FORMS = (448, 432)
BLOCK = {f: PLACES[f] + 48 for f in FORMS}  # where the signature block lies
SIG: Field = {"pub": 0, "r": 64, "s": 96, "digest": 128, "id": 160, "id_len": 192, "reserved": 196}

# ---- sealing

Parts = namedtuple("Parts", "form header canonical directory plain stored key")
Parts.__doc__ = "What tags and signatures are made of; `key` is SM3 of the passphrase, or empty."


def seal(
    m: Model, passphrase: bytes = PASSPHRASE, *, iv: bytes = IV, sign: Callable[[Parts], bytes] | None = None,
    mac: Callable[[Parts], bytes] | None = None, cipher: Callable[[bytes, bytes, bytes], bytes] | None = None,
    start: int | None = None, places: dict[int, int] | None = None, change: Any = (),
) -> bytes:  # fmt: skip
    """A file sealed step by step, so that each of them can be another; an empty passphrase leaves it plain."""
    at, block = PLACES[m.form], BLOCK[m.form]
    out = bytearray(build(m, start=start, places=places, change=change, seal=lambda *_: b""))
    struct.pack_into("<I", out, 8, m.flags | (ENC if passphrase else 0) | (SIGNED if sign else 0))
    begin = int.from_bytes(out[at : at + 8], "little")
    key, plain = sm3(passphrase) if passphrase else b"", bytes(out[begin:])
    if passphrase:
        out[at + 16 : at + 32] = iv
        out[begin:] = (cipher or ctr)(key, iv, plain)
    header = bytes(out[: m.form])
    directory = bytes(out[DIRECTORY : DIRECTORY + 64 * len(m.rows)])
    parts = Parts(m.form, header, canonical(header, m.form), directory, plain, bytes(out[begin:]), key)
    if sign:
        out[block : block + 200] = sign(parts)
        parts = parts._replace(header=bytes(out[: m.form]))
    return bytes(out) + (mac or tag)(parts)


def ctr(key: bytes, iv: bytes, plain: bytes) -> bytes:
    return sm4("ctr", key[:16], plain, iv)


def tag(parts: Parts) -> bytes:
    if parts.key:
        return hmac_sm3(parts.key[16:], parts.canonical + parts.directory + parts.stored)
    return struct.pack("<Q", fnv1a64(parts.directory, parts.stored))


def signed_text(parts: Parts) -> bytes:
    """What D is the hash of."""
    return bytes(parts.canonical + parts.directory + parts.plain)


@functools.lru_cache(maxsize=None)
def public(signer: str) -> Any:
    return public_from_private(scalar(signer))


SIGNER = "vqf signer"


def signing(
    signer: str = SIGNER, user_id: bytes | None = None, *, over: Callable[[Parts], bytes] = signed_text,
    e: Callable[[Any, bytes, bytes], int] = e_of, **parts_of_block: bytes,
) -> Callable[[Parts], bytes]:  # fmt: skip
    """A way to sign: whose key, which id; the text that is digested; the number that is signed; parts of the block that
    take another value afterwards."""

    def block(parts: Parts) -> bytes:
        name = USER_IDS[parts.form] if user_id is None else user_id
        digest, P = sm3(over(parts)), public(signer)
        r, s = sign_with(scalar(signer), e(P, name, digest), scalar("nonce %s %s" % (digest.hex(), name.hex())))
        out = raw(P) + b32(r) + b32(s) + digest + name.ljust(32, b"\0") + struct.pack("<II", len(name), 0)
        for field, value in parts_of_block.items():
            out = out[: SIG[field]] + value + out[SIG[field] + len(value) :]
        return out

    return block


def patched(file: bytes, offset: int, value: bytes) -> bytes:
    """A copy with other bytes at an offset, from the end if that is negative."""
    offset %= len(file)
    prove(file[offset : offset + len(value)] != value, "the bytes change")
    return file[:offset] + value + file[offset + len(value) :]


def flipped(file: bytes, offset: int, bits: int = 1) -> bytes:
    """A copy with some bits of one byte changed."""
    return patched(file, offset, bytes([file[offset] ^ bits]))


# ---- judging


def faults(file: bytes, passphrase: bytes, pub: bytes) -> set[str]:
    """The classes of all faults that can be told, gates 1 to 11 of section 4."""
    fault, form = head_fault(file[:448], len(file))
    if fault:
        return {fault}
    flags, count = struct.unpack_from("<II", file, 8)
    start, stop = struct.unpack_from("<QQ", file, PLACES[form])
    for i in range(count):
        offset, size = struct.unpack_from("<QQ", file, DIRECTORY + 64 * i + 48)
        if offset < start or offset + size > stop:
            return {"bounds"}
    covered = canonical(file[:form], form) + file[DIRECTORY : DIRECTORY + 64 * count]
    plain, stored = file[start:stop], file[stop:]
    found = set()
    if flags & ENC:
        if not passphrase:
            return {"key"}
        key = sm3(passphrase)
        if hmac_sm3(key[16:], covered + plain) != stored:
            return {"tag"}
        iv = file[PLACES[form] + 16 : PLACES[form] + 32]
        plain = sm4("ctr", key[:16], plain, iv, decrypt=True)
    elif any(stored) and struct.pack("<Q", fnv1a64(file[DIRECTORY : DIRECTORY + 64 * count], plain)) != stored:
        found.add("tag")
    x, y = int.from_bytes(pub[:32], "big"), int.from_bytes(pub[32:], "big")
    if pub and (len(pub) != 64 or max(x, y) >= p or (y * y - rhs(x)) % p):
        return found | {"key" if len(pub) != 64 else "range" if max(x, y) >= p else "point"}
    if flags & SIGNED:
        block = file[BLOCK[form] : BLOCK[form] + 200]
        r, s = int.from_bytes(block[64:96], "big"), int.from_bytes(block[96:128], "big")
        digest, id_len = sm3(covered + plain), int.from_bytes(block[192:196], "little")
        name = block[160 : 160 + min(id_len, 32)]
        good = digest == block[128:160] and id_len <= 32 and name in USER_IDS.values()
        if not good or (pub and not (is_signature((x, y), name, digest, r, s) and block[:64] == pub)):
            found.add("signature")
    return found


def judged(
    name: str, comment: str, flags: str, file: bytes | str, error: str | None = None, *, passphrase: bytes = b"",
    pub: bytes | None = None, level: str = "required",
) -> Case:  # fmt: skip
    """One case: its file, or the path of one that is there, has the named fault alone. pub: the signer's where the file
    says that it is signed."""
    content = file if isinstance(file, bytes) else (KAT / file).read_bytes()
    if pub is None:
        pub = raw(public(SIGNER)) if int.from_bytes(content[8:12], "little") & SIGNED else b""
    found = faults(content, passphrase, pub)
    prove(found == ({error} if error else set()), "%s: %s" % (name, found))
    if isinstance(file, bytes):
        same = [known for known, other in FILES.items() if other == file]
        path = same[0] if same else name + ".vqf"
        FILES[path] = file
        file = "files/vqf-sealed/" + path
    into = {"passphrase": passphrase, "pub": pub, "path": file}
    return case("vqf-verify-" + name, comment, GENERATOR + "; OpenSSL 3 agrees", flags_of(flags, "vqf-verify-"), into, {},
                error, level)  # fmt: skip


# ---- the cases


def make_vqf_verify(_: dict[str, Case]) -> Iterator[Case]:
    yield from engine_files()
    yield from passphrases()
    yield from tags()
    yield from covered()
    yield from macs()
    yield from ciphers()
    yield from digests()
    yield from user_ids()
    yield from signatures()
    yield from keys()
    yield from plain_files()
    yield from gates()


def engine_files() -> Iterator[Case]:
    """The files of kat/files that were sealed by OpenSSL alone."""
    for facts in json.loads((KAT / "files" / "sealed.json").read_text("utf-8")):
        name, path = facts["file"][:-4], "files/" + facts["file"]
        passphrase = (facts["passphrase"] or "").encode()
        pub = bytes.fromhex(facts["public_key"] or "")
        flags = "tag-header " * bool(passphrase) + "signature " * bool(pub) + "checksum" * (not passphrase)
        yield judged(name, "as it should be: " + name, flags, path, passphrase=passphrase, pub=pub)
        if pub:
            yield judged(
                name + "-no-pub", "the same without a trusted key", "unjudged", path, passphrase=passphrase, pub=b""
            )
            yield judged(name + "-other-pub", "the same, another key trusted", "trusted", path, "signature",
                         passphrase=passphrase, pub=raw(public("another")))  # fmt: skip
        if passphrase:
            yield judged(name + "-no-passphrase", "the same without the passphrase", "enc-key", path, "key", pub=pub)
            yield judged(name + "-newline", "the same, a newline behind the passphrase", "passphrase", path, "tag",
                         passphrase=passphrase + b"\n", pub=pub)  # fmt: skip
        else:
            yield judged(name + "-passphrase", "the same and a passphrase, which a plain file does not need", "surplus", path,
                         passphrase=b"any", pub=pub)  # fmt: skip


def passphrases() -> Iterator[Case]:
    good = seal(Q4)
    for name, text, wrong in (
        ("case", "one letter large", b"Passphrase"), ("last", "the last letter another", b"passphrasf"),
        ("short", "the last letter missing", b"passphras"), ("long", "a letter more", b"passphrasee"),
        ("twice", "it stands there twice", PASSPHRASE * 2), ("newline", "a newline behind it", b"passphrase\n"),
        ("space", "a space behind it", b"passphrase "), ("nul", "a zero byte behind it", b"passphrase\0"),
        ("nul-alone", "a zero byte alone, which is not empty", b"\0"),
        ("hex", "its hex digits", PASSPHRASE.hex().encode()), ("hash", "its SM3", sm3(PASSPHRASE)),
        ("utf-16", "in UTF-16", "passphrase".encode("utf-16-le")),
    ):  # fmt: skip
        yield judged("passphrase-" + name, "a wrong passphrase: " + text, "passphrase", good, "tag", passphrase=wrong)
    yield judged("passphrase-empty", "an empty passphrase is none", "enc-key", good, "key")
    for name, text, right in (
        ("ends-in-newline", "one that ends in a newline", b"passphrase\n"), ("ends-in-nul", "one that ends in zero", b"pass\0"),
        ("one-zero", "one zero byte", b"\0"), ("not-utf-8", "no UTF-8", b"\xff\xfe\x80"), ("one-space", "one space", b" "),
        ("200-bytes", "200 bytes, more than three blocks of SM3", data("a long passphrase", 200)),
    ):  # fmt: skip
        yield judged("passphrase-" + name, "a passphrase: " + text, "passphrase", seal(Q4, right), passphrase=right)
    yield judged("passphrase-of-empty", "encrypted under the SM3 of nothing, and no passphrase given", "enc-key",
                 sealed_under(b""), "key")  # fmt: skip
    yield judged("passphrase-cut-at-nul", "the same passphrase up to its zero byte", "passphrase", seal(Q4, b"pass\0"), "tag",
                 passphrase=b"pass")  # fmt: skip


def sealed_under(passphrase: bytes) -> bytes:
    """Encrypted under any passphrase, the empty one too."""
    key = sm3(passphrase)
    return seal(Q4, cipher=lambda _, iv, plain: ctr(key, iv, plain), mac=lambda parts: tag(parts._replace(key=key)))


def tags() -> Iterator[Case]:
    for form in FORMS:
        good = seal(Q4._replace(form=form))
        right = good[-32:]
        yield judged(
            "enc-%d" % form,
            "encrypted, the %d-byte header" % form,
            "passphrase tag tag-header tag-keys tag-cover",
            good,
            passphrase=PASSPHRASE,
        )
        for name, text, wrong in (
            ("first-bit", "its first bit another", bytes([right[0] ^ 0x80]) + right[1:]),
            ("last-bit", "its last bit another", right[:-1] + bytes([right[-1] ^ 1])),
            ("second-half", "its second half another", right[:16] + sm3(b"second half")[16:]),
            ("first-half", "its first half another", sm3(b"first half")[:16] + right[16:]),
            ("byte-8", "its byte 8 another, behind the 8 of a checksum", right[:8] + bytes([right[8] ^ 0xFF]) + right[9:]),
            ("zero", "zeros, which would be no checksum in a plain file", bytes(32)),
            ("ones", "ones", b"\xff" * 32),
            ("reversed", "its bytes in reverse order", right[::-1]),
            ("fnv", "the checksum of a plain file, and zeros", struct.pack("<Q", fnv1a64(good[DIRECTORY:-32])) + bytes(24)),
        ):  # fmt: skip
            yield judged("tag-%s-%d" % (name, form), "the tag: " + text, "tag", good[:-32] + wrong, "tag",
                         passphrase=PASSPHRASE)  # fmt: skip


def covered() -> Iterator[Case]:
    """One change after sealing, in what the HMAC covers and in what it doesn't."""
    for form in FORMS:
        m = Q4._replace(form=form)
        at = PLACES[form]
        signed = seal(m, sign=signing(), start=448 + 64 * 13)
        start, stop = 448 + 64 * 13, len(signed) - 32
        yield judged(
            "enc-signed-%d" % form,
            "encrypted and signed",
            "tag-header tag-cover uncovered signature",
            signed,
            passphrase=PASSPHRASE,
        )
        for name, text, offset, bits in (
            ("flag", "an unused flag", 11, 0x40), ("word", "max_seq_len", 16 + 4 * 7, 1),
            ("float", "norm_eps", 16 + 4 * 9, 1), ("last-word", "the arch's last word", at - 5 if form == 432 else at - 8, 1),
            ("iv-first", "enc_iv's first byte", at + 16, 1), ("iv-last", "enc_iv's last byte", at + 31, 1),
            ("enc-rsvd", "enc_rsvd's last byte", at + 47, 1),
            ("name", "a letter of a name", DIRECTORY + 64 * 3, 0x20), ("rows", "rows of a tensor", DIRECTORY + 36, 1),
            ("alignment", "the padding inside an entry", DIRECTORY + 64 * 11 + 44, 1),
            ("first", "the first byte of the data", start, 1), ("byte-16", "byte 16 of the data", start + 16, 0x80),
            ("byte-64", "byte 64 of the data", start + 64, 1), ("last", "the last byte of the data", stop - 1, 0x80),
        ):  # fmt: skip
            yield judged("changed-%s-%d" % (name, form), text + " changed after sealing", "tag-cover",
                         flipped(signed, offset, bits), "tag", passphrase=PASSPHRASE)  # fmt: skip
        for name, text, offset in (
            ("padding", "padding behind the directory", start - 1),
            ("reserved", "the signature block's last, reserved word", BLOCK[form] + SIG["reserved"]),
            ("id-padding", "the id's padding", BLOCK[form] + SIG["id"] + 31),
        ):  # fmt: skip
            yield judged("uncovered-%s-%d" % (name, form), text + " changed after sealing, which nothing covers", "uncovered",
                         flipped(signed, offset), passphrase=PASSPHRASE)  # fmt: skip
    yield judged("uncovered-behind-header", "byte 432, behind a header of 432 bytes, changed after sealing", "uncovered",
                 flipped(signed, 432), passphrase=PASSPHRASE)  # fmt: skip
    good = seal(Q4)
    begin = len(good) - 32 - 768
    swapped = patched(good, begin, good[begin + 16 : begin + 32] + good[begin : begin + 16])
    yield judged("changed-order", "two blocks of ciphertext in the other order", "tag-cover", swapped, "tag",
                 passphrase=PASSPHRASE)  # fmt: skip
    entries = patched(
        good, DIRECTORY + 64, good[DIRECTORY + 128 : DIRECTORY + 192] + good[DIRECTORY + 64 : DIRECTORY + 128]
    )
    yield judged("changed-entries", "two entries of the directory in the other order", "tag-cover", entries, "tag",
                 passphrase=PASSPHRASE)  # fmt: skip


def macs() -> Iterator[Case]:
    """Tags made in another way."""
    for form in FORMS:
        m = Q4._replace(form=form)
        for name, text, flags, mac in (
            ("raw-header", "over the header as it is written", "tag-header",
             lambda q: hmac_sm3(q.key[16:], q.header + q.directory + q.stored)),
            ("file-len", "file_len not zeroed", "tag-header",
             lambda q: hmac_sm3(q.key[16:], q.header[: BLOCK[q.form]].ljust(q.form, b"\0") + q.directory + q.stored)),
            ("signature-block", "the signature block not zeroed", "tag-header",
             lambda q: hmac_sm3(q.key[16:], q.canonical[: BLOCK[q.form]] + q.header[BLOCK[q.form] :] + q.directory + q.stored)),
            ("other-length", "the header in the other form's length", "tag-header",
             lambda q: hmac_sm3(q.key[16:], q.canonical[:432].ljust(880 - q.form, b"\0") + q.directory + q.stored)),
            ("first-half", "with K[0:16]", "tag-keys",
             lambda q: hmac_sm3(q.key[:16], q.canonical + q.directory + q.stored)),
            ("whole-key", "with the whole of K", "tag-keys", lambda q: hmac_sm3(q.key, q.canonical + q.directory + q.stored)),
            ("passphrase", "with the passphrase itself", "tag-keys",
             lambda q: hmac_sm3(PASSPHRASE, q.canonical + q.directory + q.stored)),
            ("hash", "a bare SM3 behind the key", "tag-keys",
             lambda q: sm3(q.key[16:] + q.canonical + q.directory + q.stored)),
            ("plaintext", "over the plaintext", "tag-order",
             lambda q: hmac_sm3(q.key[16:], q.canonical + q.directory + q.plain)),
            ("no-header", "without the header", "tag-order", lambda q: hmac_sm3(q.key[16:], q.directory + q.stored)),
            ("no-directory", "without the directory", "tag-order", lambda q: hmac_sm3(q.key[16:], q.canonical + q.stored)),
            ("data-alone", "over the ciphertext alone, as the engine's signing tool does", "tag-order",
             lambda q: hmac_sm3(q.key[16:], q.stored)),
            ("data-first", "over the ciphertext first", "tag-order",
             lambda q: hmac_sm3(q.key[16:], q.stored + q.canonical + q.directory)),
            ("last-byte", "without the last byte", "tag-order",
             lambda q: hmac_sm3(q.key[16:], (q.canonical + q.directory + q.stored)[:-1])),
        ):  # fmt: skip
            yield judged("mac-%s-%d" % (name, form), "the HMAC: " + text, flags, seal(m, mac=mac, sign=signing()), "tag",
                         passphrase=PASSPHRASE)  # fmt: skip


def ciphers() -> Iterator[Case]:
    """Other ways to encrypt under the right HMAC: only the signature over the plaintext can tell."""

    def wrapping(key: bytes, iv: bytes, plain: bytes, bits: int) -> bytes:
        """A counter whose carry is lost beyond its low bits."""
        low = 1 << bits
        counters = [(int.from_bytes(iv, "big") // low * low + (int.from_bytes(iv, "big") + i) % low).to_bytes(16, "big")
                    for i in range(len(plain) // 16)]  # fmt: skip
        stream = sm4("ecb", key[:16], b"".join(counters))
        return bytes(x ^ y for x, y in zip(plain, stream))

    full = b"\xff" * 16
    for name, text, iv in (
        ("ones", "an IV of ones: the counter goes on at zero", full), ("zero", "an IV of zeros", bytes(16)),
        ("32", "a carry out of the counter's low 32 bits", IV[:12] + full[:4]),
        ("64", "a carry out of the counter's low 64 bits", IV[:8] + full[:8]),
    ):  # fmt: skip
        good = seal(Q4, iv=iv, sign=signing())
        yield judged("iv-" + name, text, "cipher", good, passphrase=PASSPHRASE)
    for name, text, iv, cipher in (
        ("carry-32", "a counter of 32 bits, which wraps", IV[:12] + full[:4], lambda k, iv, x: wrapping(k, iv, x, 32)),
        ("carry-64", "a counter of 64 bits, which wraps", IV[:8] + full[:8], lambda k, iv, x: wrapping(k, iv, x, 64)),
        ("carry-8", "a counter of 8 bits, which wraps", IV[:15] + b"\xff", lambda k, iv, x: wrapping(k, iv, x, 8)),
        ("next-iv", "the counter begins at enc_iv + 1", bytes(15) + b"\1", lambda k, _, x: ctr(k, bytes(15) + b"\2", x)),
        ("reversed-iv", "the IV's bytes in reverse order", IV, lambda k, iv, x: ctr(k, iv[::-1], x)),
        ("second-half", "with K[16:32]", IV, lambda k, iv, x: sm4("ctr", k[16:], x, iv)),
        ("none", "the data not encrypted at all", IV, lambda k, iv, x: x),
        ("ofb", "OFB instead of CTR", IV, lambda k, iv, x: sm4("ofb", k[:16], x, iv)),
        ("by-tensor", "the stream begins anew after 64 bytes", IV,
         lambda k, iv, x: b"".join(ctr(k, iv, x[i : i + 64]) for i in range(0, len(x), 64))),
    ):  # fmt: skip
        made = seal(Q4, iv=iv, sign=signing(), cipher=cipher)
        yield judged("cipher-" + name, "the cipher: " + text, "cipher", made, "signature", passphrase=PASSPHRASE)


def digests() -> Iterator[Case]:
    for form in FORMS:
        m = Q4._replace(form=form)
        at = PLACES[form]

        def other_flags(q: Parts, keep: int = ~ENC) -> bytes:
            return struct.pack("<I", int.from_bytes(q.canonical[8:12], "little") & keep & 0xFFFFFFFF)

        for name, text, over in (
            ("ciphertext", "over the ciphertext", lambda q: q.canonical + q.directory + q.stored),
            ("raw-header", "over the header as it is written", lambda q: q.header + q.directory + q.plain),
            ("no-header", "without the header", lambda q: q.directory + q.plain),
            ("no-directory", "without the directory", lambda q: q.canonical + q.plain),
            ("data-alone", "over the data alone", lambda q: q.plain),
            ("plain-flags", "with ENC clear, as a plain copy has it",
             lambda q: q.canonical[:8] + other_flags(q) + signed_text(q)[12:]),
            ("unsigned-flags", "with SIGNED clear, as before signing",
             lambda q: q.canonical[:8] + other_flags(q, ~SIGNED) + signed_text(q)[12:]),
            ("plain-iv", "with enc_iv zero, as a plain copy has it",
             lambda q: q.canonical[: PLACES[q.form] + 16] + bytes(16) + signed_text(q)[PLACES[q.form] + 32 :]),
            ("other-length", "over the header in the other form's length",
             lambda q: q.canonical[:432].ljust(880 - q.form, b"\0") + q.directory + q.plain),
            ("last-byte", "without the last byte", lambda q: signed_text(q)[:-1]),
        ):  # fmt: skip
            made = seal(m, sign=signing(over=over))
            yield judged("digest-%s-%d" % (name, form), "signed and digest: " + text, "digest-cover", made, "signature",
                         passphrase=PASSPHRASE)  # fmt: skip
        good = seal(m, sign=signing())
        for name, text, offset in (("first", "first byte", 128), ("last", "last byte", 159)):
            made = flipped(good, BLOCK[form] + offset, 0x10)
            yield judged("digest-%s-%d" % (name, form), "the block's digest: its %s another" % text, "digest", made,
                         "signature", passphrase=PASSPHRASE)  # fmt: skip
        made = patched(good, BLOCK[form] + 128, bytes(32))
        yield judged(
            "digest-zero-%d" % form, "the block's digest is zero", "digest", made, "signature", passphrase=PASSPHRASE
        )
        yield judged("digest-unjudged-%d" % form, "the block's digest is zero, and no key is trusted", "unjudged digest", made,
                     "signature", passphrase=PASSPHRASE, pub=b"")  # fmt: skip
        # a plain file: no HMAC stands before the digest
        good = seal(m, b"", sign=signing())
        start, stop = 448 + 64 * 12, len(good) - 8

        def again(file: bytes, stop: int = stop) -> bytes:
            """The file with the checksum of what it holds now."""
            return file[:stop] + struct.pack("<Q", fnv1a64(file[DIRECTORY:stop]))

        yield judged("signed-%d" % form, "plain and signed", "signature digest-cover", good)
        for name, text, offset in (
            ("flag", "an unused flag", 11), ("word", "max_seq_len", 16 + 4 * 7), ("iv", "enc_iv", at + 16),
            ("enc-rsvd", "enc_rsvd's last byte", at + 47), ("rows", "rows of a tensor", DIRECTORY + 36),
            ("data", "the first byte of the data", start), ("last", "the last byte of the data", stop - 1),
        ):  # fmt: skip
            yield judged("resigned-%s-%d" % (name, form), text + " changed after signing, the checksum made again",
                         "digest-cover", again(flipped(good, offset)), "signature")  # fmt: skip


def user_ids() -> Iterator[Case]:
    for form in FORMS:
        m = Q4._replace(form=form)
        other = USER_IDS[880 - form]
        made = seal(m, sign=signing(user_id=other))
        yield judged(
            "id-other-form-%d" % form, "signed under the other form's user id", "user-id", made, passphrase=PASSPHRASE
        )
        for name, user_id in (
            ("default", b"1234567812345678"), ("upper-case", USER_IDS[form].upper()), ("attest", b"VLLM-ATTEST-1"),
            ("prefix", USER_IDS[form][:-1]), ("longer", USER_IDS[form] + b"2"), ("one-byte", b"v"), ("empty", b""),
            ("32-bytes", USER_IDS[form].ljust(32, b"-")), ("nul", USER_IDS[form] + b"\0"),
        ):  # fmt: skip
            made = seal(m, sign=signing(user_id=user_id))
            text = "signed under the user id %s" % (user_id.decode().replace("\0", " and a zero byte") or "of no bytes")
            yield judged("id-%s-%d" % (name, form), text, "user-id", made, "signature", passphrase=PASSPHRASE)
        for name, id_len in (("33", 33), ("max", U32 - 1), ("wrap-8", 256 + len(USER_IDS[form])),
                             ("wrap-16", 65536 + len(USER_IDS[form]))):  # fmt: skip
            made = seal(m, sign=signing(id_len=struct.pack("<I", id_len)))
            yield judged("id-len-%s-%d" % (name, form), "id_len is %d" % id_len, "id-len", made, "signature",
                         passphrase=PASSPHRASE)  # fmt: skip
        made = seal(m, sign=signing(id_len=struct.pack("<I", len(USER_IDS[form]) - 1)))
        yield judged("id-len-shorter-%d" % form, "id_len leaves out the id's last letter", "id-len", made, "signature",
                     passphrase=PASSPHRASE)  # fmt: skip
        made = seal(m, sign=signing(id=other.ljust(32, b"\0"), id_len=struct.pack("<I", len(other))))
        yield judged("id-renamed-%d" % form, "the block names the other id in use than the one signed under", "user-id", made,
                     "signature", passphrase=PASSPHRASE)  # fmt: skip
        made = seal(m, sign=signing(user_id=b"1234567812345678"))
        yield judged("id-unjudged-%d" % form, "a user id that is not in use, and no key is trusted", "unjudged user-id", made,
                     "signature", passphrase=PASSPHRASE, pub=b"")  # fmt: skip


def signatures() -> Iterator[Case]:
    for form in FORMS:
        for kind, passphrase in (("", PASSPHRASE), ("plain-", b"")):
            m = Q4._replace(form=form)
            good = seal(m, passphrase, sign=signing())
            at = BLOCK[form]
            r, s = good[at + 64 : at + 96], good[at + 96 : at + 128]
            R, S = int.from_bytes(r, "big"), int.from_bytes(s, "big")
            rows = [
                ("swapped", "r and s in each other's place", "signature", s + r),
                ("r-bit", "a bit of r is another", "signature", bytes([r[0] ^ 1]) + r[1:] + s),
                ("s-bit", "a bit of s is another", "signature", r + s[:-1] + bytes([s[-1] ^ 1])),
                ("minus-s", "n - s in place of s, as ECDSA would take it", "signature", r + b32(n - S)),
                ("little-endian", "r and s little-endian", "signature", r[::-1] + s[::-1]),
                ("r-zero", "r = 0", "signature", bytes(32) + s), ("s-zero", "s = 0", "signature", r + bytes(32)),
                ("r-n", "r = n", "signature", b32(n) + s), ("s-n", "s = n", "signature", r + b32(n)),
                ("zero", "r and s are 0", "signature", bytes(64)),
                ("ones", "all bits of r and s set", "signature", b"\xff" * 64),
                ("t-zero", "s = n - r, so that r + s is 0 modulo n", "signature", r + b32(n - R)),
            ]  # fmt: skip
            for name, text, flags, wrong in rows if kind == "" else rows[::3]:
                made = patched(good, at + 64, wrong)
                yield judged("sm2-%s%s-%d" % (kind, name, form), text, flags, made, "signature", passphrase=passphrase)
            for name, text, e in (
                ("bare", "a signature over D alone, without Z", lambda P, i, d: int.from_bytes(d, "big")),
                ("no-z", "a signature over the SM3 of D, without Z", lambda P, i, d: int.from_bytes(sm3(d), "big")),
                ("hex", "a signature over D's hex digits", lambda P, i, d: e_of(P, i, d.hex().encode())),
                ("no-id", "a signature with Z of an empty id", lambda P, i, d: e_of(P, b"", d)),
                ("padded-id", "a signature with Z of the id padded to 32 bytes",
                 lambda P, i, d: e_of(P, i.ljust(32, b"\0"), d)),
            ) if kind == "" else ():  # fmt: skip
                made = seal(m, passphrase, sign=signing(e=e))
                yield judged("sm2-%s-%d" % (name, form), text, "signature", made, "signature", passphrase=passphrase)
            made = patched(good, at + 64, bytes(64))
            yield judged("sm2-%sunjudged-%d" % (kind, form), "r and s are 0, and no key is trusted: not judged", "unjudged",
                         made, passphrase=passphrase, pub=b"")  # fmt: skip


def keys() -> Iterator[Case]:
    mine, other = raw(public(SIGNER)), raw(public("another"))
    for form in FORMS:
        m = Q4._replace(form=form)
        good = seal(m, sign=signing())
        theirs = seal(m, sign=signing("another"))
        for name, text, flags, made, pub in (
            ("other-trusted", "signed by the key in the block, another one trusted", "trusted", good, other),
            ("own-key", "signed again by somebody else, with that key in the block", "trusted", theirs, mine),
            ("own-key-mine", "signed by somebody else, with the trusted key in the block", "trusted",
             seal(m, sign=signing("another", pub=mine)), mine),
            ("block-other", "the signature is right, the block names another key", "block-key",
             seal(m, sign=signing(pub=other)), mine),
            ("block-zero", "the signature is right, the block's key is zero", "block-key",
             seal(m, sign=signing(pub=bytes(64))), mine),
            ("block-first", "the signature is right, a bit of x in the block is another", "block-key",
             flipped(good, BLOCK[form]), mine),
            ("block-last", "the signature is right, a bit of y in the block is another", "block-key",
             flipped(good, BLOCK[form] + 63), mine),
            ("block-swapped", "the signature is right, the block has y and x", "block-key",
             seal(m, sign=signing(pub=mine[32:] + mine[:32])), mine),
            ("minus", "the trusted key is the signer's with -y", "trusted", good,
             mine[:32] + b32(p - int.from_bytes(mine[32:], "big"))),
        ):  # fmt: skip
            yield judged("pub-%s-%d" % (name, form), text, flags, made, "signature", passphrase=PASSPHRASE, pub=pub)
        yield judged("pub-theirs-%d" % form, "the good twin: somebody else signed, and that key is trusted", "trusted", theirs,
                     passphrase=PASSPHRASE, pub=other)  # fmt: skip
        yield judged("pub-unjudged-%d" % form, "the block names another key, and none is trusted", "unjudged",
                     seal(m, sign=signing(pub=other)), passphrase=PASSPHRASE, pub=b"")  # fmt: skip
    good = seal(Q4, sign=signing())
    for name, text, pub, error in (
        ("63-bytes", "a trusted key of 63 bytes", mine[:63], "key"), ("32-bytes", "x alone", mine[:32], "key"),
        ("128-bytes", "the hex digits of a key", mine.hex().encode(), "key"),
        ("x-p", "x = p", b32(p) + mine[32:], "range"), ("y-ones", "y = 2^256 - 1", mine[:32] + b"\xff" * 32, "range"),
        ("zero", "x = y = 0, no point of the curve", bytes(64), "point"),
        ("y-bit", "a bit of y is another: no point of the curve", mine[:63] + bytes([mine[63] ^ 1]), "point"),
    ):  # fmt: skip
        yield judged("pub-form-" + name, text, "trusted-form", good, error, passphrase=PASSPHRASE, pub=pub)


def plain_files() -> Iterator[Case]:
    for form in FORMS:
        m = Q4._replace(form=form)
        good, signed = seal(m, b""), seal(m, b"", sign=signing())
        yield judged("plain-%d" % form, "plain, its checksum right", "checksum", good)
        yield judged(
            "plain-none-%d" % form, "plain, the checksum 0, which means none", "checksum", good[:-8] + bytes(8)
        )
        yield judged(
            "signed-none-%d" % form, "signed, the checksum 0, which means none", "checksum", signed[:-8] + bytes(8)
        )
        yield judged("plain-surplus-%d" % form, "plain, and a passphrase", "surplus", good, passphrase=PASSPHRASE)
        for name, text, made in (
            ("bit", "a bit of the checksum is another", flipped(signed, len(signed) - 1, 0x80)),
            ("half", "the checksum's upper half is zero", patched(signed, len(signed) - 4, bytes(4))),
            ("over-data", "a checksum over the data alone",
             signed[:-8] + struct.pack("<Q", fnv1a64(signed[448 + 64 * 12 : -8]))),
            ("over-header", "a checksum over the header too",
             signed[:-8] + struct.pack("<Q", fnv1a64(signed[:form], signed[DIRECTORY:-8]))),
        ):  # fmt: skip
            yield judged("signed-checksum-%s-%d" % (name, form), "signed, but " + text, "checksum", made, "tag")


def gates() -> Iterator[Case]:
    """Structural faults under right seals."""
    for form in FORMS:
        m = Q4._replace(form=form)
        extra = m._replace(rows=[*m.rows, row("extra", F32, 16, 1)])
        end = 448 + 64 * 13 + 768
        good = seal(m, sign=signing())
        for name, text, made, error in (
            ("behind", "a tensor behind the data area", seal(extra, sign=signing(), places={12: end}), "bounds"),
            ("wrap", "a tensor whose end wraps around at 2^64", seal(extra, sign=signing(), places={12: U64 - 64}), "bounds"),
            ("before", "a tensor over the directory", seal(extra, sign=signing(), places={12: 512}), "bounds"),
            ("cut", "the last byte missing", good[:-1], "truncated"),
            ("checksum-length", "24 bytes missing: the tag as long as a checksum", good[:-24], "truncated"),
            ("one-more", "a byte more", good + b"\0", "bounds"),
            ("signing-tool", "a second tag behind the first, as the engine's signing tool leaves it",
             good + hmac_sm3(sm3(PASSPHRASE)[16:], good[448 + 64 * 12 : -32]), "bounds"),
        ):  # fmt: skip
            yield judged(
                "gate-%s-%d" % (name, form),
                "encrypted and signed: " + text,
                "gates",
                made,
                error,
                passphrase=PASSPHRASE,
            )
    magic = seal(Q4, change=[(0, "4s", b"VQFW")])
    yield judged("gate-magic", "the magic as documents have it, under the right tag", "gates", magic, "magic",
                 passphrase=PASSPHRASE)  # fmt: skip
    made = seal(MOE, sign=signing())
    yield judged("moe", "a MoE model, version 3, encrypted and signed", "tag-header", made, passphrase=PASSPHRASE)
    made = seal(MODELS["vision"]._replace(form=432), sign=signing())
    yield judged("vision-432", "with a vision tower, 432 bytes of header, encrypted and signed", "tag-header", made,
                 passphrase=PASSPHRASE)  # fmt: skip
    made = seal(Q4, sign=signing(), start=4096)
    yield judged("page", "data on the next page", "tag-order", made, passphrase=PASSPHRASE)
    over = [(448 + 64 * 12, "8s", b"not zero")]
    made = seal(Q4, sign=signing(), start=4096, change=over)
    yield judged(
        "page-padding", "the same, bytes other than zero in the padding", "uncovered", made, passphrase=PASSPHRASE
    )
    prove(Q4.flags == EMB_F16, "a model without tiles")


MAKERS = {"vqf_verify": make_vqf_verify, "vqf_tensor": vqf_tensor.make_vqf_tensor}

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], __doc__, FLAGS, MAKERS, {"vqf-sealed": FILES, "vqf-tensor": vqf_tensor.FILES}))

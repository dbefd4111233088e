#!/usr/bin/env python3
"""Makes the suite's vectors of SM3, HMAC-SM3, the KDF, SM4, SM4-CTR, SM2 and FNV-1a. Uses nothing of vqfref.

    python3 kat/gen/openssl.py            write the files of kat/ that stand in FILES
    python3 kat/gen/openssl.py --check    make them again and compare; 1 if one differs
    python3 kat/gen/openssl.py --cross N  vqfref signs and OpenSSL verifies, then the other way round, N times each

It needs the command of OpenSSL 3 and, for FNV, the package fnvhash; it is no part of what runs on a board. Outputs are
OpenSSL's, or from the examples of the standards, which OpenSSL must confirm. What never happens by chance is constructed
with Python's integers: every construction is proved here, by `prove`, and judged by OpenSSL too, in both directions: it
must accept what is called valid and refuse what is called invalid.

All inputs come from SHAKE-256 of the case's own name, so that a new case changes no other. OpenSSL signs with random
nonces: a signature that stands in the file already, for the same input, stays as long as OpenSSL verifies it.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path

from suite import KAT, case, data, main, prove

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, Iterator, Optional, Tuple

    from suite import Case

    Point = Optional[Tuple[int, int]]

OPENSSL = "OpenSSL 3"
AGREES = "generator; OpenSSL 3 agrees"

# What a flag's cases catch.
FLAGS = {
    "padding": "the end of the message falls where the padding needs, or just does not need, one more block",
    "length-field": "the bit length in the padding has more than one or two bytes",
    "high-bytes": "bytes above 7f, which a signed char makes negative (as in libstdc++'s FNV)",
    "long-key": "an HMAC key longer than a block, which is hashed first; one of exactly a block is not",
    "zero-key": "HMAC keys that differ only in zeros at the end, and the empty key",
    "counter": "the counter of the KDF: its start at 1, its second byte",
    "partial-block": "an output, or an input, that ends inside a block",
    "counter-wrap": "the carry of the 128-bit counter, through every byte and back to zero",
    "offset": "decryption that starts inside the stream",
    "key-length": "keys of a wrong length",
    "iv-length": "IVs of a wrong length",
    "decrypt": "the round keys in reverse order",
    "leading-zeros": "numbers shorter than 32 bytes",
    "entl": "ENTL: bits, not bytes; big-endian; two bytes of it; 0 for an empty id; no wrap-around at 65536",
    "id": "the user id is part of what is signed",
    "z": "what is signed is Z and the message, not the message alone",
    "id-length": "a user id of more than 8191 bytes can't be expressed",
    "mismatch": "the final comparison",
    "compare-all": "a final comparison that leaves out bytes at one end",
    "r-range": "r in 1 … n-1; the equation would hold modulo n",
    "s-range": "s in 1 … n-1; the equation would hold modulo n",
    "r-plus-n": "r or s with n added: the same numbers modulo n",
    "t-zero": "r + s is not 0 modulo n; the equation would hold",
    "t-reduced": "r + s is reduced modulo n, and its carry not lost",
    "infinity": "[s]G + [t]P at infinity, where x1 = 0 would make the equation hold",
    "equal-points": "[s]G = [t]P: the addition has to double",
    "edge-scalar": "s or t is 1 or n-1",
    "edge-key": "P = G and P = -G: tables of multiples meet infinity or a doubling",
    "e-reduced": "e = 0, and e >= n, which is not an error",
    "x1-reduced": "x1 >= n, which happens once in 2^128",
    "sig-length": "signatures that are not 64 bytes: no DER, no hex, no stripped zeros",
    "pub-on-curve": "the public key satisfies the curve's equation",
    "pub-range": "the coordinates of the public key are below p",
    "pub-length": "encodings of a public key other than x and y",
    "prefix-04": "policy: an implementation may take or refuse the 65 bytes 04 ‖ x ‖ y",
    "private-range": "a private key in 1 … n-2",
    "nonce-range": "a nonce in 1 … n-1",
    "nonce-useless": "a nonce that gives r = 0, r + k = n or s = 0",
    "fnv-order": "FNV-1a, xor before multiplication, on 64 bits",
}


def scalar(label: str) -> int:
    """A number in 1 … n-2."""
    return 1 + int.from_bytes(data(label, 48), "big") % (n - 2)


def b32(v: int) -> bytes:
    return v.to_bytes(32, "big")


# ---- OpenSSL


def openssl(command: str, stdin: bytes = b"", **files: bytes) -> bytes:
    """The output of a command that must succeed; `files` are files that it names."""
    status, out, err = attempt(command, stdin, **files)
    prove(status == 0, "openssl %.200s: %s" % (command, err.decode()))
    return out


def attempt(command: str, stdin: bytes = b"", **files: bytes) -> tuple[int, bytes, bytes]:
    """Status, output and error output of a command."""
    argv = ["openssl", *command.split()]
    with tempfile.TemporaryDirectory(prefix="vqfref-kat-") as folder:
        for name, content in files.items():
            (Path(folder) / name).write_bytes(content)
        run = subprocess.run(argv, input=stdin, capture_output=True, cwd=folder)
    return run.returncode, run.stdout, run.stderr


def sm3(message: bytes) -> bytes:
    return openssl("dgst -sm3 -binary", message)


def hmac_sm3(key: bytes, message: bytes) -> bytes:
    hexkey = (key or b"\0").hex()  # the command takes no empty key; one zero byte is the same key (RFC 2104)
    return openssl("dgst -sm3 -mac HMAC -macopt hexkey:%s -binary" % hexkey, message)


def kdf(z: bytes, klen: int) -> bytes:
    """X9.63's KDF without shared info: the KDF of GB/T 32918.4."""
    return openssl("kdf -keylen %d -kdfopt digest:SM3 -kdfopt hexsecret:%s -binary X963KDF" % (klen, z.hex()))


def sm4(mode: str, key: bytes, blocks: bytes, iv: bytes | None = None, decrypt: bool = False) -> bytes:
    command = "enc %s -sm4-%s -nopad -K %s" % ("-d" if decrypt else "-e", mode, key.hex())
    return openssl(command if iv is None else command + " -iv " + iv.hex(), blocks)


SPKI = bytes.fromhex("3059301306072a8648ce3d020106082a811ccf5501822d034200")
PKCS8 = bytes.fromhex("3041020100301306072a8648ce3d020106082a811ccf5501822d04273025020101")


def public_from_private(d: int) -> Point:
    """[d]G by OpenSSL."""
    key = openssl("pkey -inform DER -in key -pubout -outform DER", key=pkcs8(d))
    prove(key == spki(key[-64:]), "OpenSSL's public key has the expected form")
    return int.from_bytes(key[-64:-32], "big"), int.from_bytes(key[-32:], "big")


def pkcs8(d: int) -> bytes:
    """A private key as OpenSSL reads it."""
    return PKCS8 + b"\x04\x20" + b32(d)


def spki(pub: bytes) -> bytes:
    """A public key as OpenSSL reads it."""
    return SPKI + b"\x04" + pub


def point_is_accepted(pub: bytes) -> bool:
    """Does OpenSSL take these bytes as an uncompressed point, 04 put in front of them?"""
    status, out, err = attempt("pkey -pubin -inform DER -in key -pubcheck -noout", key=spki(pub))
    prove(status == (0 if b"Key is valid" in out else 1), err.decode())
    return status == 0


def der(r: int, s: int) -> bytes:
    """ECDSA-Sig-Value: what OpenSSL calls a signature."""

    def tlv(tag: int, content: bytes) -> bytes:
        return bytes((tag, len(content))) + content

    return tlv(0x30, b"".join(tlv(2, v.to_bytes(v.bit_length() // 8 + 1, "big")) for v in (r, s)))


def from_der(signature: bytes) -> tuple[int, int]:
    size = signature[3]
    r, s = (int.from_bytes(v, "big") for v in (signature[4 : 4 + size], signature[6 + size :]))
    prove(der(r, s) == signature, "OpenSSL's signature has the expected form")
    return r, s


def is_signature_of_digest(P: Point, e: int, r: int, s: int) -> bool:
    """OpenSSL's verdict over a digest."""
    command = "pkeyutl -verify -pubin -keyform DER -inkey pub -sigfile sig -in e"
    return verdict(*attempt(command, pub=spki(raw(P)), sig=der(r, s), e=b32(e)))


def is_signature(P: Point, user_id: bytes, message: bytes, r: int, s: int) -> bool:
    """OpenSSL's verdict over a message; it must not change when Z and e are spelt out."""
    said = is_signature_of_digest(P, e_of(P, user_id, message), r, s)
    if len(user_id) < 8191:  # OpenSSL refuses already the longest id that ENTL can express
        command = "pkeyutl -verify -pubin -keyform DER -inkey pub -sigfile sig -in m -rawin -digest sm3"
        command += " -pkeyopt hexdistid:" + user_id.hex()
        got = attempt(command, pub=spki(raw(P)), sig=der(r, s), m=message)
        prove(verdict(*got) == said, "OpenSSL's own Z and e are those that were spelt out")
    return said


def verdict(status: int, out: bytes, err: bytes) -> bool:
    good, bad = b"Signature Verified Successfully" in out, b"Signature Verification Failure" in out
    prove(good != bad and status == (0 if good else 1), (out + err).decode())
    return good


def sign(d: int, user_id: bytes, message: bytes) -> tuple[int, int]:
    """A signature by OpenSSL, another one every time."""
    command = "pkeyutl -sign -keyform DER -inkey key -in m -rawin -digest sm3 -pkeyopt hexdistid:" + user_id.hex()
    return from_der(openssl(command, key=pkcs8(d), m=message))


# ---- the curve, for constructions

p = 0xFFFFFFFEFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFF00000000FFFFFFFFFFFFFFFF
a = p - 3
b = 0x28E9FA9E9D9F5E344D5A9E4BCF6509A7F39789F515AB8F92DDBCBD414D940E93
n = 0xFFFFFFFEFFFFFFFFFFFFFFFFFFFFFFFF7203DF6B21C6052B53BBF40939D54123
G = (
    0x32C4AE2C1F1981195F9904466A39C9948FE30BBFF2660BE1715A4589334C74C7,
    0xBC3736A2F4F6779C59BDCEE36B692153D0A9877CC62A474002DF32E52139F0A0,
)


def prove_the_curve() -> None:
    """The numbers above are those of OpenSSL's curve SM2."""
    text = openssl("ecparam -name SM2 -param_enc explicit -text -noout").decode()
    found = dict(re.findall(r"(?m)^(\w+).*:\s*((?:\n +[0-9a-f:]+)+)", text))
    values = {name: int(re.sub(r"[\s:]", "", digits), 16) for name, digits in found.items()}
    generator = int.from_bytes(b"\4" + raw(G), "big")
    prove(values == {"Prime": p, "A": a, "B": b, "Order": n, "Generator": generator}, "the curve is OpenSSL's SM2")


def rhs(x: int) -> int:
    return (x * x * x + a * x + b) % p


def plus(A: Point, B: Point) -> Point:
    if A is None or B is None:
        return A or B
    (x, y), (u, v) = A, B
    if x == u and (y + v) % p == 0:
        return None
    m = (3 * x * x + a) * pow(2 * y, -1, p) if x == u else (v - y) * pow(u - x, -1, p)
    w = (m * m - x - u) % p
    return w, (m * (x - w) - y) % p


def times(k: int, A: Point) -> Point:
    total = None
    while k:
        if k & 1:
            total = plus(total, A)
        A, k = plus(A, A), k >> 1
    return total


def minus(A: Point) -> Point:
    return A and (A[0], -A[1] % p)


def x_of(A: Point) -> int:
    prove(A is not None, "this point is not at infinity")
    return A[0] if A else 0


def raw(A: Point) -> bytes:
    return b32(x_of(A)) + b32(A[1] if A else 0)


def lift(x: int) -> Point:
    """The point of the curve with this x and even y, or None."""
    y = pow(rhs(x), (p + 1) // 4, p)  # p = 3 mod 4
    if y * y % p != rhs(x):
        return None
    return x, y if y % 2 == 0 else p - y


def first_point(xs: Iterator[int] | range) -> Point:
    return next(filter(None, map(lift, xs)))


def low_y_point() -> Point:
    """The point with the smallest y for which x^3 + ax + b - y^2 has exactly one root."""
    for y in range(1, 100):
        c = (b - y * y) % p

        def multiply(u: list[int], v: list[int], c: int = c) -> list[int]:
            """u v mod x^3 + ax + c; coefficients from the constant up."""
            w = [0] * 5
            for i in range(3):
                for j in range(3):
                    w[i + j] += u[i] * v[j]
            for i in (4, 3):
                w[i - 2] -= a * w[i]
                w[i - 3] -= c * w[i]
            return [v % p for v in w[:3]]

        power = [1, 0, 0]
        for bit in bin(p)[2:]:  # x^p: its difference to x is 0 in the roots, and there alone
            power = multiply(power, power)
            if bit == "1":
                power = multiply(power, [0, 1, 0])
        f, g = [c, a, 0, 1], [power[0], (power[1] - 1) % p, power[2]]
        while any(g):  # the greatest common divisor
            while g[-1] == 0:
                g.pop()
            while len(f) >= len(g):
                q, shift = f[-1] * pow(g[-1], -1, p), len(f) - len(g)
                f = [(v - q * g[i - shift] if i >= shift else v) % p for i, v in enumerate(f)][:-1]
            f, g = g, f
        if len(f) == 2:
            x = -f[0] * pow(f[1], -1, p) % p
            prove(rhs(x) == y * y, "x is a root")
            return x, y
    raise AssertionError("no y below 100")


def z_input(P: Point, user_id: bytes, entl: bytes | None = None) -> bytes:
    """What Z is the hash of."""
    entl = (8 * len(user_id)).to_bytes(2, "big") if entl is None else entl
    return entl + user_id + b32(a) + b32(b) + raw(G) + raw(P)


def e_of(P: Point, user_id: bytes, message: bytes) -> int:
    return int.from_bytes(sm3(sm3(z_input(P, user_id)) + message), "big")


def sign_with(d: int, e: int, k: int) -> tuple[int, int]:
    """(r, s) of GB/T 32918.2, 6.1, A5 and A6; any numbers, no checks."""
    r = (e + x_of(times(k, G))) % n
    return r, pow(1 + d, -1, n) * (k - r * d) % n


def e_for(P: Point, r: int, s: int) -> int:
    """The digest below n for which the equation of verification holds modulo n; infinity counts as x1 = 0."""
    point = plus(times(s % n, G), times((r + s) % n, P))
    return (r - (point[0] if point else 0)) % n


# GB/T 32918.5-2017, annex A
ANNEX_D = 0x3945208F7B2144B13F36E38AC6D39F95889393692860B51A42FB81EF4DF7C5B8
ANNEX_K = 0x59276E27D506861A16680F3AD9C02DCCEF3CC1FA3CDBE4CE6D54B80DEAC1BC21
ANNEX_P = (
    0x09F9DF311E5421A150DD7D161E4BC5C672179FAD1833FC076BB08FF356F35020,
    0xCCEA490CE26775A52DC6EA718CC1AA600AED05FBF35E084A6632F6072DA9AD13,
)
ANNEX_Z = bytes.fromhex("b2e14c5c79c6df5b85f4fe7ed8db7a262b9da7e07ccb0ea9f4747b8ccda8a4f3")
ANNEX_E = 0xF0B43E94BA45ACCAACE692ED534382EB17E6AB5A19CE7B31F4486FDFC0D28640
ANNEX_R = 0xF5A03B0648D2C4630EEAC513E1BB81A15944DA3827D5B74143AC7EACEEE720B3
ANNEX_S = 0xB1B6AA29DF212FD8763182BC0D421CA1BB9038FD1F7F42D4840B69C485BBC1AA
ANNEX = "GB/T 32918.5-2017, annex A; OpenSSL 3 agrees"
DEFAULT_ID = b"1234567812345678"

# ---- the files


def make_sm3(_: dict[str, Case]) -> Iterator[Case]:
    for name, message, digest, where in (
        ("sm3-abc", b"abc", "66c7f0f462eeedd9d1f2d46bdc10e4e24167c4875cf2f7a2297da02b8f4ba8e0", "A.1"),
        ("sm3-abcd-16", b"abcd" * 16, "debe9ff92275b8a138604889c18e5a4d6fdb70e5387e5765293dcba39c0c5732", "A.2"),
    ):
        prove(sm3(message).hex() == digest, "OpenSSL gives the standard's digest")
        source = "GB/T 32905-2016, %s; OpenSSL 3 agrees" % where
        yield case(name, "the standard's example", source, "", {"msg": message}, {"digest": bytes.fromhex(digest)})
    for size in [*range(201), 255, 256, 257, 1000, 4096, 8191, 8192]:
        edge = size % 64 in (0, 55, 56, 63)
        flags = "padding " * edge + "length-field" * (size >= 32)
        message = data("sm3 %d" % size, size)
        text = "a message of %d bytes" % size
        yield case("sm3-length-%d" % size, text, OPENSSL, flags, {"msg": message}, {"digest": sm3(message)})
    for name, byte in (("00", 0x00), ("7f", 0x7F), ("80", 0x80), ("ff", 0xFF)):
        message = bytes([byte]) * 100
        flags, out = "high-bytes" if byte > 127 else "", {"digest": sm3(message)}
        yield case("sm3-all-" + name, "100 bytes " + name, OPENSSL, flags, {"msg": message}, out)


def make_hmac_sm3(_: dict[str, Case]) -> Iterator[Case]:
    def one(name: str, comment: str, flags: str, key: bytes, message: bytes) -> Case:
        return case(name, comment, OPENSSL, flags, {"key": key, "msg": message}, {"tag": hmac_sm3(key, message)})

    for k in (0, 1, 16, 31, 32, 33, 63, 64, 65, 66, 127, 128, 129, 200):
        for m in (0, 1, 32, 55, 56, 63, 64, 200):
            flags = "zero-key" if k == 0 else "long-key" if k >= 64 else ""
            key, message = data("hmac key %d %d" % (k, m), k), data("hmac msg %d %d" % (k, m), m)
            text = "a key of %d bytes, a message of %d" % (k, m)
            yield one("hmac-sm3-key-%d-msg-%d" % (k, m), text, flags, key, message)
    key, message = data("hmac zeros", 20), b"zeros at the end"
    tags = set()
    for zeros in (0, 1, 44):
        text = "the same key with %d zero bytes behind it: the same tag" % zeros
        made = one("hmac-sm3-zeros-%d" % zeros, text, "zero-key", key + bytes(zeros), message)
        tags.add(made["out"]["tag"])
        yield made
    prove(len(tags) == 1, "zeros that fill the block change nothing")
    made = one("hmac-sm3-zeros-45", "zeros that go beyond a block: another tag", "long-key", key + bytes(45), message)
    prove(made["out"]["tag"] not in tags, "a key of 65 bytes is hashed")
    yield made
    long = data("hmac long", 65)
    pair = [
        one("hmac-sm3-hashed-key", "a key of 65 bytes", "long-key", long, message),
        one("hmac-sm3-hash-as-key", "the SM3 of that key: the same tag", "long-key", sm3(long), message),
    ]
    prove(pair[0]["out"] == pair[1]["out"], "a long key stands for its hash")
    yield from pair
    key = sm3(b"passphrase")[16:]
    yield one("hmac-sm3-vqf", "the key that VQF makes from a passphrase", "", key, data("hmac vqf", 448))


def make_sm3_kdf(_: dict[str, Case]) -> Iterator[Case]:
    x2 = "64d20d27d0632957f8028c1e024f6b02edf23102a566c932ae8bd613a8e865fe"
    y2 = "58d225eca784ae300a81a2d48281a828e1cedf11c4219099840265375077bf78"
    t = bytes.fromhex("006e30dae231b071dfad8aa379e90264491603")
    z = bytes.fromhex(x2 + y2)
    prove(kdf(z, 19) == t, "OpenSSL gives the standard's key")
    source = "GB/T 32918.5-2017, annex C; OpenSSL 3 agrees"
    yield case("sm3-kdf-annex-c", "the standard's example", source, "partial-block", {"z": z, "klen": 19}, {"key": t})
    sizes = [(zlen, klen) for zlen in (1, 32, 51, 52, 59, 60, 64, 65, 128) for klen in (1, 16, 31, 32, 33, 64, 65, 100)]
    for zlen, klen in sizes + [(32, 255 * 32), (32, 256 * 32), (32, 257 * 32)]:
        flags = "counter " * (klen > 32) + "partial-block " * (klen % 32 > 0)
        flags += "padding" * ((zlen + 4) % 64 in (0, 55, 56, 63))
        z = data("kdf %d %d" % (zlen, klen), zlen)
        name, text = "sm3-kdf-z-%d-klen-%d" % (zlen, klen), "%d bytes from a secret of %d" % (klen, zlen)
        yield case(name, text, OPENSSL, flags, {"z": z, "klen": klen}, {"key": kdf(z, klen)})


def make_sm4_block(_: dict[str, Case]) -> Iterator[Case]:
    def one(
        name: str, comment: str, key: bytes, block: bytes, out: bytes, mode: str = "encrypt", source: str = OPENSSL
    ) -> Case:
        flags = "decrypt" if mode == "decrypt" else ""
        return case(name, comment, source, flags, {"mode": mode, "key": key, "block": block}, {"block": out})

    key, cipher = bytes.fromhex("0123456789abcdeffedcba9876543210"), bytes.fromhex("681edf34d206965e86b3e94f536e4246")
    prove(sm4("ecb", key, key) == cipher, "OpenSSL gives the standard's block")
    source = "GB/T 32907-2016, A.1; OpenSSL 3 agrees"
    yield one("sm4-block-annex-a", "the standard's example", key, key, cipher, source=source)
    yield one("sm4-block-annex-a-back", "the standard's example, decrypted", key, cipher, key, "decrypt", source)
    walking = [(1 << 127 - bit).to_bytes(16, "big") for bit in range(128)]
    zero = bytes(16)
    outs = sm4("ecb", zero, b"".join(walking))
    for bit, block in enumerate(walking):
        text = "a block with bit %d alone set, counted from the left" % bit
        yield one("sm4-block-bit-%d" % bit, text, zero, block, outs[16 * bit : 16 * bit + 16])
    for mode in ("encrypt", "decrypt"):
        for bit, key in enumerate(walking):
            block = data("sm4 %s key %d" % (mode, bit), 16)
            out = sm4("ecb", key, block, decrypt=mode == "decrypt")
            text = "%s with a key that has bit %d alone set, counted from the left" % (mode, bit)
            yield one("sm4-block-%s-key-bit-%d" % (mode[:3], bit), text, key, block, out, mode)
    for byte in (0x00, 0x7F, 0x80, 0xFF):
        block = bytes([byte]) * 16
        out = sm4("ecb", block, block)
        yield one("sm4-block-all-%02x" % byte, "key and block of bytes %02x" % byte, block, block, out)
    for size in (0, 8, 15, 17, 24, 32):
        into = {"mode": "encrypt", "key": data("sm4 key length", size), "block": zero}
        name, text = "sm4-block-key-%d-bytes" % size, "a key of %d bytes" % size
        yield case(name, text, "generator", "key-length", into, error="key")


def make_sm4_ctr(_: dict[str, Case]) -> Iterator[Case]:
    def one(
        name: str, comment: str, flags: str, iv: bytes, size: int, offset: int = 0, key: bytes | None = None
    ) -> Case:
        """`offset` becomes a later counter and bytes that are thrown away: OpenSSL knows no offset."""
        key = data("key " + name, 16) if key is None else key
        plain = data("plain " + name, size)
        counter = b128(int.from_bytes(iv, "big") + offset // 16)
        skip = bytes(offset % 16)
        out = sm4("ctr", key, skip + plain, counter)[len(skip) :]
        back = sm4("ctr", key, skip + out, counter, decrypt=True)[len(skip) :]
        prove(back == plain, "decrypting gives the plaintext")
        if offset < 4096:
            prove(sm4("ctr", key, bytes(offset) + plain, iv)[offset:] == out, "the whole stream says the same")
        if size:
            first = xor(sm4("ecb", key, counter), (skip + plain)[:16])[len(skip) :]
            prove(out.startswith(first[:size]), "the block cipher says the same")
        into = {"key": key, "iv": iv, "offset": offset, "data": plain}
        level = "recommended" if offset else "required"
        return case(name, comment, OPENSSL, flags, into, {"data": out}, level=level)

    def b128(v: int) -> bytes:
        return (v % (1 << 128)).to_bytes(16, "big")

    def xor(x: bytes, y: bytes) -> bytes:
        return bytes(i ^ j for i, j in zip(x, y))

    key = bytes.fromhex("0123456789abcdeffedcba9876543210")
    stream = bytes.fromhex("6811af7e097364e786fb45ce5d9a60f02677f46b09c122cc975533105bd4a22a4e")
    prove(sm4("ctr", key, bytes(33), b"\xff" * 16) == stream, "the known stream")
    into = {"key": key, "iv": b"\xff" * 16, "offset": 0, "data": bytes(33)}
    yield case("sm4-ctr-all-ff", "33 zero bytes, the IV all ff", OPENSSL, "counter-wrap", into, {"data": stream})
    for size in range(81):
        flags = "partial-block" if size % 16 else ""
        iv = data("ctr iv %d" % size, 16)
        yield one("sm4-ctr-length-%d" % size, "%d bytes" % size, flags, iv, size)
    for bits in range(8, 129, 8):
        for before in (1, 2, 3):
            high = int.from_bytes(data("ctr high %d %d" % (bits, before), 16), "big") << bits
            high &= ~(1 << bits)  # so that the carry ends where the name says
            iv = b128(high + (1 << bits) - before)
            name = "sm4-ctr-wrap-%d-after-%d" % (bits, before)
            text = "the counter's low %d bits go back to zero after %d blocks" % (bits, before)
            yield one(name, text, "counter-wrap partial-block", iv, 16 * before + 17)
    for offset in range(1, 50):
        flags, iv = "offset partial-block", data("ctr offset %d" % offset, 16)
        yield one("sm4-ctr-offset-%d" % offset, "33 bytes, %d into the stream" % offset, flags, iv, 33, offset)
    for offset, size in ((5, 0), (5, 1), (5, 10), (5, 11), (5, 12), (15, 1), (15, 2), (16, 0), (31, 17)):
        name = "sm4-ctr-offset-%d-length-%d" % (offset, size)
        iv = data("ctr " + name, 16)
        yield one(name, "%d bytes, %d into the stream" % (size, offset), "offset partial-block", iv, size, offset)
    for name, offset, text in (
        ("4g", (1 << 32) + 3, "offset beyond 32 bits"),
        ("64g", (1 << 36) - 5, "32 bits of blocks"),
        ("2-53", (1 << 53) - 7, "the largest offset that a JSON number takes"),
    ):
        iv = data("ctr far " + name, 16)
        yield one("sm4-ctr-offset-" + name, text, "offset partial-block", iv, 40, offset)
    text = "the offset takes the counter beyond 2^128"
    yield one("sm4-ctr-offset-wrap", text, "offset counter-wrap partial-block", b128(-2), 33, 16 * 5 + 3)
    for size in (0, 8, 15, 17, 24, 32):
        into = {"key": data("ctr key length", size), "iv": bytes(16), "offset": 0, "data": bytes(20)}
        name, text = "sm4-ctr-key-%d-bytes" % size, "a key of %d bytes" % size
        yield case(name, text, "generator", "key-length", into, error="key")
    for size in (0, 8, 12, 15, 17, 32):
        into = {"key": key, "iv": data("ctr iv length", size), "offset": 0, "data": bytes(20)}
        name, text = "sm4-ctr-iv-%d-bytes" % size, "an IV of %d bytes" % size
        yield case(name, text, "generator", "iv-length", into, error="iv")


IDS = {
    "default": DEFAULT_ID,
    "empty": b"",
    "one-byte": b"A",
    "shs": b"vllm-shs-vqf",
    "kestrel": b"vllm-kestrel-vqf",
    "attest": b"VLLM-ATTEST-1",
    "nul": b"vllm\0shs\0",
    "utf8": "设备一".encode(),
    "31-bytes": b"0123456789" * 3 + b"0",
    "32-bytes": b"0123456789" * 3 + b"01",
    "256-bytes": data("id 256", 256),
    "8190-bytes": data("id 8190", 8190),
    "8191-bytes": data("id 8191", 8191),
}
LONGEST = "8191 bytes, the longest user id that ENTL can express; OpenSSL stops at 8190"
ENTL_IDS = ("empty", "31-bytes", "32-bytes", "256-bytes", "8190-bytes", "8191-bytes")


def short_keys() -> dict[str, int]:
    """Private keys whose public key begins with, or whose y is, a number of fewer than 32 bytes."""
    found: dict[str, int] = {}
    d = scalar("short keys")
    P = times(d, G)
    while len(found) < 2:
        if P and P[0] >> 248 == 0:
            found.setdefault("x", d)
        elif P and P[1] >> 248 == 0:
            found.setdefault("y", d)
        d, P = d + 1, plus(P, G)
    return found


def make_sm2_za(_: dict[str, Case]) -> Iterator[Case]:
    prove(public_from_private(ANNEX_D) == ANNEX_P == times(ANNEX_D, G), "the standard's key")
    prove(sm3(z_input(ANNEX_P, DEFAULT_ID)) == ANNEX_Z, "the standard's Z")
    into = {"pub": raw(ANNEX_P), "id": DEFAULT_ID}
    yield case("sm2-za-annex-a", "the standard's example", ANNEX, "", into, {"za": ANNEX_Z})
    source = "SM3 by OpenSSL 3 over the bytes spelt out"
    P = public_from_private(scalar("za"))
    for name, user_id in IDS.items():
        flags = "entl" if name in ENTL_IDS else ""
        into, out = {"pub": raw(P), "id": user_id}, {"za": sm3(z_input(P, user_id))}
        text, level = "a user id of %d bytes" % len(user_id), "required"
        if len(user_id) == 8191:
            text, level = LONGEST, "recommended"
        yield case("sm2-za-id-" + name, text, source, flags, into, out, level=level)
    for axis, d in short_keys().items():
        P = public_from_private(d)
        prove(raw(P)[0 if axis == "x" else 32] == 0, "that coordinate is short")
        into = {"pub": raw(P), "id": DEFAULT_ID}
        text = "a public key whose %s begins with a zero byte" % axis
        yield case("sm2-za-short-" + axis, text, source, "leading-zeros", into, {"za": sm3(z_input(P, DEFAULT_ID))})
    into = {"pub": raw(ANNEX_P), "id": data("id 8192", 8192)}
    text = "8192 bytes are 65536 bits: ENTL would be 0"
    yield case("sm2-za-id-8192-bytes", text, "generator", "id-length", into, error="range")


def make_sm2_pubkey(_: dict[str, Case]) -> Iterator[Case]:
    def one(
        name: str, comment: str, pub: bytes, flags: str = "", error: str | None = None, level: str = "required"
    ) -> Case:
        """The field and the verdict, which OpenSSL's must be wherever the bytes could be a point to it."""
        if len(pub) == 64:
            prove(point_is_accepted(pub) == (error is None), "OpenSSL agrees on " + name)
        source = AGREES if len(pub) == 64 else "generator"
        into, out = {"pub": pub}, None if error else {"pub": pub}
        return case("sm2-pubkey-" + name, comment, source, flags, into, out, error, level)

    x, y = ANNEX_P
    yield one("annex-a", "the key of the standard's example", raw(ANNEX_P))
    yield one("annex-a-minus", "the same with -y", raw(minus(ANNEX_P)))
    yield one("g", "the base point", raw(G), "edge-key")
    yield one("minus-g", "-G, whose private key n-1 nobody may have: still a point", raw(minus(G)), "edge-key")
    low_x, low_y, at_zero = first_point(range(1, p)), low_y_point(), lift(0)
    high_x = first_point(iter(range(p - 1, n, -1)))
    above_n = first_point(iter(range(n, p)))
    prove(low_x and low_y and high_x and above_n and at_zero, "these points exist")
    prove(low_x and low_x[0] + p < 1 << 256 and low_y and low_y[1] + p < 1 << 256, "p can be added to them")
    yield one("zero-x", "a point with x = 0", raw(at_zero), "leading-zeros")
    yield one("low-x", "the smallest x but that", raw(low_x), "leading-zeros")
    yield one("low-y", "a point with a very small y", raw(low_y), "leading-zeros")
    yield one("high-x", "the point with the largest x", raw(high_x), "pub-range")
    yield one("x-above-n", "x lies between n and p", raw(above_n), "pub-range")
    for axis, d in short_keys().items():
        text = "%s begins with a zero byte" % axis
        yield one("short-" + axis, text, raw(public_from_private(d)), "leading-zeros")
    for name, P in (("annex-a", ANNEX_P), ("g", G)):
        into, out = {"pub": b"\4" + raw(P)}, {"pub": raw(P)}
        yield case(
            "sm2-pubkey-prefix-04-" + name, "65 bytes, 04 in front", AGREES, "prefix-04", into, out,
            level="recommended", result="acceptable",
        )  # fmt: skip

    p256 = bytes.fromhex(
        "6b17d1f2e12c4247f8bce6e563a440f277037d812deb33a0f4a13945d898c296"
        "4fe342e2fe1a7f9b8ee7eb4a7c0f9e162bce33576b315ececbb6406837bf51f5"
    )
    for name, comment, pub in (
        ("zero", "(0, 0), which some take for the point at infinity", bytes(64)),
        ("y-plus-1", "y + 1", b32(x) + b32(y + 1)),
        ("x-flipped", "the lowest bit of x is another", b32(x ^ 1) + b32(y)),
        ("y-zero", "y = 0: no point of this curve has order 2", b32(x) + bytes(32)),
        ("x-zero", "x = 0 with another point's y", bytes(32) + b32(y)),
        ("twist", "on the twist: the y that a square root without a check gives", raw(twist_point())),
        ("swapped", "y then x", b32(y) + b32(x)),
        ("little-endian", "the coordinates little-endian", b32(x)[::-1] + b32(y)[::-1]),
        ("p256", "the base point of NIST P-256", p256),
    ):
        prove(rhs(int.from_bytes(pub[:32], "big")) != int.from_bytes(pub[32:], "big") ** 2 % p, "off the curve")
        prove(max(int.from_bytes(v, "big") for v in (pub[:32], pub[32:])) < p, "in range")
        yield one(name, comment, pub, "pub-on-curve", "point")
    for name, comment, pub in (
        ("x-plus-p", "p added to a small x", b32(x_of(low_x) + p) + raw(low_x)[32:]),
        ("y-plus-p", "p added to a small y", raw(low_y)[:32] + b32(raw(low_y)[63] + p)),
        ("x-is-p", "x = p, for the point with x = 0", b32(p) + raw(at_zero)[32:]),
    ):
        u, v = int.from_bytes(pub[:32], "big"), int.from_bytes(pub[32:], "big")
        prove((v * v - rhs(u)) % p == 0 and max(u, v) >= p, "on the curve modulo p, not in range")
        yield one(name, comment, pub, "pub-range", "range")
    yield one("all-ff", "64 bytes ff", b"\xff" * 64, "pub-range", "range")
    odd = y % 2
    for name, comment, pub in (
        ("0-bytes", "no bytes", b""),
        ("infinity", "the single byte 00, the standard's point at infinity", b"\0"),
        ("x-alone", "x without y", b32(x)),
        ("compressed", "compressed: 02 or 03, then x", bytes([2 + odd]) + b32(x)),
        ("63-bytes", "63 bytes", raw(ANNEX_P)[:63]),
        ("65-bytes", "65 bytes, a zero behind", raw(ANNEX_P) + b"\0"),
        ("prefix-00", "65 bytes beginning with 00", b"\0" + raw(ANNEX_P)),
        ("prefix-02", "65 bytes beginning with 02", b"\2" + raw(ANNEX_P)),
        ("hybrid", "65 bytes in the hybrid form, 06 or 07", bytes([6 + odd]) + raw(ANNEX_P)),
        ("prefix-0004", "66 bytes: 00 04, as in a bit string", b"\0\4" + raw(ANNEX_P)),
        ("der", "a whole SubjectPublicKeyInfo", spki(raw(ANNEX_P))),
        ("hex", "the hex digits as text", raw(ANNEX_P).hex().encode()),
    ):
        level = "recommended" if name in ("compressed", "hybrid") else "required"  # they do name the point
        yield one(name, comment, pub, "pub-length", "key", level)


def twist_point() -> Point:
    """The smallest x that no point of the curve has, with the y of -y^2 = x^3 + ax + b."""
    x = next(x for x in range(p) if lift(x) is None)
    y = pow(rhs(x), (p + 1) // 4, p)
    prove((y * y + rhs(x)) % p == 0, "a point of the twist")
    return x, y


def by_message(
    name: str, comment: str, flags: str, P: Point, user_id: bytes, message: bytes, r: int, s: int,
    error: str | None = None, source: str = AGREES, sig: bytes | None = None, level: str = "required",
) -> Case:  # fmt: skip
    """A case of sm2_verify. Where `sig` is not r ‖ s, (r, s) itself must be good."""
    good = is_signature(P, user_id, message, r, s) if len(user_id) < 8192 else True
    prove(good == (error is None or sig is not None or len(user_id) > 8191), "OpenSSL agrees on " + name)
    into = {"pub": raw(P), "id": user_id, "msg": message, "sig": b32(r) + b32(s) if sig is None else sig}
    return case("sm2-verify-" + name, comment, source, flags, into, error=error, level=level)


def make_sm2_verify(kept: dict[str, Case]) -> Iterator[Case]:
    def signed(name: str, comment: str, flags: str, user_id: bytes, message: bytes) -> Case:
        """Signed by OpenSSL: the signature in the file, if there is one, or a new one."""
        d = scalar("verify " + name)
        P = public_from_private(d)
        old = kept.get("sm2-verify-" + name, {}).get("in", {})
        wanted = {"pub": raw(P).hex(), "id": user_id.hex(), "msg": message.hex()}
        if {k: v for k, v in old.items() if k != "sig"} == wanted:
            r, s = int(old["sig"][:64], 16), int(old["sig"][64:], 16)
        else:
            r, s = sign(d, user_id, message)
        return by_message(name, comment, flags, P, user_id, message, r, s, source="signed by OpenSSL 3")

    def constructed(name: str, user_id: bytes, message: bytes, d: int | None = None) -> tuple[Point, int, int]:
        """A good signature whose nonce is known."""
        d = scalar("verify " + name) if d is None else d
        P = public_from_private(d)
        return (P, *sign_with(d, e_of(P, user_id, message), scalar("nonce " + name)))

    text = b"message digest"
    prove(e_of(ANNEX_P, DEFAULT_ID, text) == ANNEX_E, "the standard's e")
    yield by_message(
        "annex-a", "the standard's example", "", ANNEX_P, DEFAULT_ID, text, ANNEX_R, ANNEX_S, source=ANNEX
    )  # fmt: skip
    digest = data("digest", 32)
    for name, user_id in IDS.items():
        flags = "entl" if name in ENTL_IDS else "id"
        comment = "a user id of %d bytes" % len(user_id)
        if len(user_id) < 8191:
            yield signed("id-" + name, comment, flags, user_id, digest)
        else:  # OpenSSL does not sign with it
            P, r, s = constructed("id-" + name, user_id, digest)
            yield by_message("id-" + name, LONGEST, flags, P, user_id, digest, r, s, level="recommended")
    for size in (0, 23, 24, 1000):
        flags = "padding" if size in (23, 24) else ""
        message = data("verify msg %d" % size, size)
        yield signed("msg-%d-bytes" % size, "a message of %d bytes" % size, flags, DEFAULT_ID, message)
    for axis, d in short_keys().items():
        P, r, s = constructed("short-" + axis, DEFAULT_ID, text, d)
        comment = "a public key whose %s begins with a zero byte" % axis
        yield by_message("short-" + axis, comment, "leading-zeros", P, DEFAULT_ID, text, r, s)
    d, k = scalar("short r and s"), scalar("nonce short r and s")
    P, K = times(d, G), times(k, G)
    e, inverse = e_of(P, DEFAULT_ID, text), pow(1 + d, -1, n)
    short: dict[str, tuple[int, int]] = {}
    while len(short) < 2:
        r = (e + x_of(K)) % n
        s = inverse * (k - r * d) % n
        for half, value in (("r", r), ("s", s)):
            if value >> 248 == 0:
                short.setdefault(half, (r, s))
        k, K = k + 1, plus(K, G)
    for half, (r, s) in sorted(short.items()):
        comment = "%s begins with a zero byte" % half
        yield by_message("short-" + half, comment, "leading-zeros", P, DEFAULT_ID, text, r, s)

    # one fault each
    P, r, s = constructed("twin", DEFAULT_ID, text)
    d = scalar("verify twin")
    yield by_message("twin", "the good twin of those that follow", "", P, DEFAULT_ID, text, r, s)
    other = public_from_private(scalar("verify other"))
    for name, comment, flags, pub, user_id, message in (
        ("other-msg", "one bit of the message is another", "mismatch", P, DEFAULT_ID, b"message digesu"),
        ("longer-msg", "a zero byte behind the message", "mismatch", P, DEFAULT_ID, text + b"\0"),
        ("no-msg", "an empty message", "mismatch", P, DEFAULT_ID, b""),
        ("other-id", "another user id", "id", P, b"vllm-shs-vqf", text),
        ("no-id", "an empty user id instead of the default", "id", P, b"", text),
        ("longer-id", "a zero byte behind the user id", "id entl", P, DEFAULT_ID + b"\0", text),
        ("other-key", "somebody else's key", "mismatch", other, DEFAULT_ID, text),
        ("minus-key", "the point with -y", "mismatch", minus(P), DEFAULT_ID, text),
    ):
        yield by_message(name, comment, flags, pub, user_id, message, r, s, "signature")
    yield by_message("swapped", "s then r", "mismatch", P, DEFAULT_ID, text, s, r, "signature")
    z = sm3(z_input(P, DEFAULT_ID))
    little = (8 * len(DEFAULT_ID)).to_bytes(2, "little")
    in_bytes = len(DEFAULT_ID).to_bytes(2, "big")
    without_curve = (8 * len(DEFAULT_ID)).to_bytes(2, "big") + DEFAULT_ID + raw(P)
    for name, comment, flags, hashed in (
        ("without-z", "e is the hash of the message alone", "z", text),
        ("z-without-curve", "Z leaves out a, b and G", "z", sm3(without_curve) + text),
        ("z-behind", "the message, then Z", "z", text + z),
        ("msg-hashed", "the message was hashed before Z was put in front", "z", z + sm3(text)),
        ("z-hex", "Z as hex digits", "z", z.hex().encode() + text),
        ("entl-little-endian", "ENTL is little-endian", "entl", sm3(z_input(P, DEFAULT_ID, little)) + text),
        ("entl-bytes", "ENTL counts bytes", "entl", sm3(z_input(P, DEFAULT_ID, in_bytes)) + text),
        ("without-entl", "Z leaves out ENTL", "entl", sm3(z_input(P, DEFAULT_ID, b"")) + text),
    ):
        e = int.from_bytes(sm3(hashed), "big")
        u, v = sign_with(d, e, scalar("nonce " + name))
        prove(is_signature_of_digest(P, e, u, v), "good for the wrong digest")
        yield by_message(name, "signed so: " + comment, flags, P, DEFAULT_ID, text, u, v, "signature")
    long = data("id 8192", 8192)
    e = int.from_bytes(sm3(sm3(z_input(P, long, b"\0\0")) + text), "big")
    u, v = sign_with(d, e, scalar("nonce 8192"))
    prove(is_signature_of_digest(P, e, u, v), "good if ENTL wraps around")
    comment = "8192 bytes; good, if ENTL wraps around to 0"
    yield by_message("id-8192-bytes", comment, "id-length", P, long, text, u, v, "range")
    both = b32(r) + b32(s)
    for name, comment, sig in (
        ("no-sig", "no signature", b""),
        ("sig-63-bytes", "the last byte is missing", both[:63]),
        ("sig-65-bytes", "a zero byte behind", both + b"\0"),
        ("sig-der", "DER, as OpenSSL writes signatures", der(r, s)),
        ("sig-hex", "the hex digits as text", both.hex().encode()),
    ):
        yield by_message(name, comment, "sig-length", P, DEFAULT_ID, text, r, s, "signature", sig=sig)


def by_digest(
    name: str, comment: str, flags: str, P: Point, e: int, r: int, s: int,
    error: str | None = None, source: str = AGREES,
) -> Case:  # fmt: skip
    """A case of sm2_verify_digest, judged by OpenSSL."""
    prove(is_signature_of_digest(P, e, r, s) == (error is None), "OpenSSL agrees on " + name)
    into = {"pub": raw(P), "e": b32(e), "sig": b32(r) + b32(s)}
    return case("sm2-verify-digest-" + name, comment, source, flags, into, error=error)


def make_sm2_verify_digest(_: dict[str, Case]) -> Iterator[Case]:
    yield by_digest("annex-a", "the standard's example", "", ANNEX_P, ANNEX_E, ANNEX_R, ANNEX_S, source=ANNEX)

    # r and s at the ends of their range, in combination; the equation always holds modulo n
    P = public_from_private(scalar("digest"))
    ends = (("0", 0), ("1", 1), ("n-1", n - 1), ("n", n), ("n-plus-1", n + 1), ("p", p))
    for r_name, r in ends:
        for s_name, s in ends:
            flags = "r-range " * (not 0 < r < n) + "s-range" * (not 0 < s < n)
            flags = flags or ("t-zero" if (r + s) % n == 0 else "edge-scalar")
            error = None if flags == "edge-scalar" else "range"
            name, comment = "r-%s-s-%s" % (r_name, s_name), "r = %s, s = %s" % (r_name, s_name)
            yield by_digest(name, comment, flags, P, e_for(P, r, s), r, s, error)
    s = scalar("digest t zero")
    yield by_digest("t-zero", "r = n - s", "t-zero", P, e_for(P, n - s, s), n - s, s, "range")

    r, s = (int.from_bytes(data("digest small " + half, 24), "big") for half in "rs")
    e = e_for(P, r, s)
    yield by_digest("small", "r and s of 24 bytes; the good twin of the next three", "leading-zeros", P, e, r, s)
    prove(max(r, s) + n < 1 << 256, "n can be added")
    for name, comment, u, v in (
        ("r-plus-n", "r replaced by r + n, which fits in 32 bytes", r + n, s),
        ("s-plus-n", "s replaced by s + n, which fits in 32 bytes", r, s + n),
        ("r-and-s-plus-n", "n added to both", r + n, s + n),
    ):
        yield by_digest(name, comment, "r-plus-n", P, e, u, v, "range")

    # t
    for name, comment, flags, r, s in (
        ("t-1", "r + s = n + 1, so t = 1", "t-reduced edge-scalar", n + 1 - scalar("t 1"), scalar("t 1")),
        ("t-n-1", "r + s = n - 1", "edge-scalar", n - 1 - scalar("t n-1"), scalar("t n-1")),
        ("t-no-carry", "n < r + s < 2^256", "t-reduced", n + 5 - scalar("t 5"), scalar("t 5")),
        ("t-carry", "r + s >= 2^256", "t-reduced", n - scalar("t c") // 16, n - scalar("t d") // 16),
    ):
        prove(("no-carry" in name) <= (n < r + s < 1 << 256) and (name == "t-carry") <= (r + s >= 1 << 256), comment)
        prove(0 < r < n and 0 < s < n, "r and s are in range")
        yield by_digest(name, comment, flags, P, e_for(P, r, s), r, s)

    # the points
    d = scalar("digest points")
    P = public_from_private(d)
    t = scalar("digest infinity")
    s = -t * d % n
    r = (t - s) % n
    prove(plus(times(s, G), times(t, P)) is None, "[s]G + [t]P is at infinity")
    prove(0 < r < n and 0 < s < n and e_for(P, r, s) == r, "nothing else is wrong, and x1 = 0 would do")
    yield by_digest("infinity", "[s]G + [t]P at infinity; e = r", "infinity", P, r, r, s, "point")
    t = scalar("digest equal")
    s = t * d % n
    r = (t - s) % n
    prove(times(s, G) == times(t, P), "both points are equal")
    yield by_digest("equal-points", "[s]G = [t]P", "equal-points", P, e_for(P, r, s), r, s)
    for name, P, d in (("g", G, 1), ("minus-g", minus(G), n - 1)):
        r, s = scalar("digest r " + name), scalar("digest s " + name)
        prove(times(d, G) == P, "the key is what its name says")
        comment = "P = %s; t is reduced" % ("G" if d == 1 else "-G")
        yield by_digest("key-" + name, comment, "edge-key", P, e_for(P, r, s), r, s)
        comment = "P = %s; s = 1, t = 2" % ("G" if d == 1 else "-G")
        yield by_digest("key-" + name + "-s-1", comment, "edge-key edge-scalar", P, e_for(P, 1, 1), 1, 1)

    # e and x1
    d = scalar("digest e")
    P = public_from_private(d)
    k = scalar("digest e nonce")
    for name, e in (("0", 0), ("n-1", n - 1), ("n", n), ("n-plus-1", n + 1), ("2-256-1", (1 << 256) - 1)):
        yield by_digest("e-" + name, "e = " + name, "e-reduced", P, e, *sign_with(d, e, k))
    R = first_point(iter(range(n, p)))
    top, below = first_point(iter(range(p - 1, n, -1))), first_point(iter(range(n - 1, 0, -1)))
    for name, comment, flags, point, e in (
        ("x1-above-n", "x1 >= n", "x1-reduced", R, scalar("digest x1")),
        ("x1-above-n-e-0", "x1 >= n, e = 0: r is x1 - n", "x1-reduced e-reduced", R, 0),
        ("x1-and-e-above-n", "x1 >= n and e >= n: n goes twice into their sum", "x1-reduced e-reduced", top, n + 7),
        ("x1-above-n-e-n-1", "x1 > n, e = n - 1: n goes twice into their sum", "x1-reduced", top, n - 1),
        ("x1-top-e-top", "the largest x1, e = 2^256 - 1", "x1-reduced e-reduced", top, (1 << 256) - 1),
        ("x1-below-n-e-top", "x1 < n, e >= n: n goes twice into their sum", "e-reduced", below, (1 << 256) - 1),
    ):
        x1 = x_of(point)
        prove(n <= x1 < p if point != below else 0 < x1 < n, comment)
        prove("n goes twice" not in comment or e + x1 >= 2 * n, comment)
        s = scalar("digest s " + name)
        r = (e + x1) % n
        P = times(pow(r + s, -1, n), plus(point, minus(times(s, G))))
        prove(plus(times(s, G), times((r + s) % n, P)) == point, "[s]G + [t]P is that point")
        yield by_digest(name, comment, flags, P, e, r, s)

    # one fault each
    d = scalar("digest twin")
    P = public_from_private(d)
    e = scalar("digest twin e")
    r, s = sign_with(d, e, scalar("digest twin nonce"))
    yield by_digest("twin", "the good twin of those that follow", "", P, e, r, s)
    other = public_from_private(scalar("digest other"))
    for name, comment, pub, digest, u, v in (
        ("other-e", "one bit of e is another", P, e ^ 1, r, s),
        ("e-negated", "n - e", P, n - e, r, s),
        ("other-r", "r + 1", P, e, r + 1, s),
        ("other-s", "s + 1", P, e, r, s + 1),
        ("r-negated", "n - r", P, e, n - r, s),
        ("s-negated", "n - s, which is as good in ECDSA", P, e, r, n - s),
        ("swapped", "s then r", P, e, s, r),
        ("other-key", "somebody else's key", other, e, r, s),
        ("minus-key", "the point with -y", minus(P), e, r, s),
    ):
        yield by_digest(name, comment, "mismatch", pub, digest, u, v, "signature")
    k = scalar("digest ecdsa nonce")
    u = x_of(times(k, G)) % n
    v = pow(k, -1, n) * (e + u * d) % n
    w = pow(v, -1, n)
    prove(x_of(plus(times(e * w % n, G), times(u * w % n, P))) % n == u, "it is good in ECDSA")
    yield by_digest("ecdsa", "an ECDSA signature", "mismatch", P, e, u, v, "signature")
    for name, comment, bit in (
        ("last-bit", "e + x1 and r differ in the lowest bit alone", 0),
        ("first-bit", "e + x1 and r differ in the highest bit alone", 255),
    ):
        u, v = scalar("digest r " + name) % (1 << 255), scalar("digest s " + name)
        e1 = (e_for(P, u, v) + (u ^ 1 << bit) - u) % n
        prove(0 < u ^ 1 << bit < n, "both are in range")
        yield by_digest(name, comment, "compare-all", P, e1, u, v, "signature")

    sig = b32(r) + b32(s)
    short = int.from_bytes(data("digest stripped r", 31), "big")
    short_e = e_for(P, short, s)
    prove(is_signature_of_digest(P, short_e, short, s), "its twin is good")
    for name, comment, digest, wrong in (
        ("no-sig", "no signature", e, b""),
        ("sig-32-bytes", "r alone", e, b32(r)),
        ("sig-63-bytes", "the last byte is missing", e, sig[:63]),
        ("sig-65-bytes", "a zero byte behind", e, sig + b"\0"),
        ("sig-stripped", "the leading zero byte of r is left out", short_e, b32(short)[1:] + b32(s)),
        ("sig-33-byte-halves", "a zero byte in front of each half", e, b"\0" + b32(r) + b"\0" + b32(s)),
        ("sig-der", "DER, as OpenSSL writes signatures", e, der(r, s)),
        ("sig-hex", "the hex digits as text", e, sig.hex().encode()),
    ):
        name, into = "sm2-verify-digest-" + name, {"pub": raw(P), "e": b32(digest), "sig": wrong}
        yield case(name, comment, "generator; the twin checked with OpenSSL 3", "sig-length", into, error="signature")

    # keys with which anybody can sign, where the key is not checked: the plain formulas never use b
    key: Point
    for name, comment, key in (
        ("pub-zero", "P = (0, 0), t even: [t]P vanishes", (0, 0)),
        ("pub-off-curve", "P off the curve", (x_of(P), 1)),
        ("pub-twist", "P on the twist", twist_point()),
    ):
        t, s = 2 * (scalar("digest t " + name) // 2), scalar("digest s " + name)
        r = (t - s) % n
        prove(not point_is_accepted(raw(key)), "OpenSSL agrees on " + name)
        prove(name != "pub-zero" or times(t, key) is None, "[t]P vanishes")
        into = {"pub": raw(key), "e": b32(e_for(key, r, s)), "sig": b32(r) + b32(s)}
        name, comment = "sm2-verify-digest-" + name, comment + "; the equation holds"
        yield case(name, comment, AGREES, "pub-on-curve", into, error="point")
    low = first_point(range(1, p))
    r, s = scalar("digest r pub-x"), scalar("digest s pub-x")
    e = e_for(low, r, s)
    yield by_digest("pub-low-x", "a public key with a very small x; the good twin", "leading-zeros", low, e, r, s)
    high = b32(x_of(low) + p) + raw(low)[32:]
    prove(not point_is_accepted(high), "OpenSSL agrees on pub-x-plus-p")
    into = {"pub": high, "e": b32(e), "sig": b32(r) + b32(s)}
    name, comment = "sm2-verify-digest-pub-x-plus-p", "p added to x of the public key"
    yield case(name, comment, AGREES, "pub-range", into, error="range")


def make_sm2_sign_digest(_: dict[str, Case]) -> Iterator[Case]:
    def one(name: str, comment: str, flags: str, d: int, e: int, k: int, source: str = "") -> Case:
        """x1 is OpenSSL's [k]G, and OpenSSL verifies the signature."""
        r, s = sign_with(d, e, k)
        prove(0 < r < n and 0 < s < n and r + k != n, "the nonce is good")
        prove(k == n - 1 or (e + x_of(public_from_private(k))) % n == r, "r is OpenSSL's")
        prove(is_signature_of_digest(times(d, G), e, r, s), "OpenSSL verifies " + name)
        into, out = {"d": b32(d), "e": b32(e), "k": b32(k)}, {"sig": b32(r) + b32(s)}
        source = source or "generator, x1 by OpenSSL 3, which verifies the signature"
        return case("sm2-sign-digest-" + name, comment, source, flags, into, out)

    def bad(name: str, comment: str, flags: str, d: bytes, e: int, k: int, error: str = "range") -> Case:
        into = {"d": d, "e": b32(e), "k": b32(k)}
        return case("sm2-sign-digest-" + name, comment, "generator", flags, into, error=error)

    annex = one("annex-a", "the standard's example", "", ANNEX_D, ANNEX_E, ANNEX_K, ANNEX)
    prove(annex["out"]["sig"] == (b32(ANNEX_R) + b32(ANNEX_S)).hex(), "the standard's signature")
    yield annex
    d, e, k = scalar("sign d"), scalar("sign e"), scalar("sign k")
    x1 = x_of(public_from_private(k))
    inverse = pow(d, -1, n)
    yield one("twin", "the good twin of those that follow", "", d, e, k)
    for name, comment, flags, d1, e1, k1 in (
        ("d-1", "d = 1", "edge-key", 1, e, k),
        ("d-n-2", "d = n - 2, the largest", "edge-key private-range", n - 2, e, k),
        ("k-1", "k = 1", "edge-scalar", d, e, 1),
        ("k-n-1", "k = n - 1, the largest", "edge-scalar nonce-range", d, e, n - 1),
        ("e-0", "e = 0", "e-reduced", d, 0, k),
        ("e-n", "e = n", "e-reduced", d, n, k),
        ("e-2-256-1", "e = 2^256 - 1", "e-reduced", d, (1 << 256) - 1, k),
        ("r-1", "r = 1", "leading-zeros", d, (1 - x1) % n, k),
        ("r-n-1", "r = n - 1", "edge-scalar", d, (-1 - x1) % n, k),
        ("s-1", "s = 1", "leading-zeros", d, ((k - (1 + d)) * inverse - x1) % n, k),
        ("s-n-1", "s = n - 1", "edge-scalar", d, ((k + (1 + d)) * inverse - x1) % n, k),
    ):
        made = one(name, comment, flags, d1, e1, k1)
        half = made["out"]["sig"][:64] if name[0] == "r" else made["out"]["sig"][64:]
        want = {"r-1": 1, "r-n-1": n - 1, "s-1": 1, "s-n-1": n - 1}.get(name)
        prove(want is None or int(half, 16) == want, comment)
        yield made
    for name, comment, flags, value in (
        ("d-0", "d = 0", "private-range", 0),
        ("d-n-1", "d = n - 1: 1 + d has no inverse", "private-range", n - 1),
        ("d-n", "d = n", "private-range", n),
        ("d-n-plus-1", "d = n + 1, which is 1 modulo n", "private-range", n + 1),
        ("d-2-256-1", "d = 2^256 - 1", "private-range", (1 << 256) - 1),
    ):
        yield bad(name, comment, flags, b32(value), e, k)
    for key in (b"", b32(d)[1:], b"\0" + b32(d)):
        name, comment = "d-%d-bytes" % len(key), "a private key of %d bytes" % len(key)
        yield bad(name, comment, "key-length", key, e, k, "key")
    for name, comment, value in (
        ("k-0", "k = 0", 0),
        ("k-n", "k = n", n),
        ("k-n-plus-1", "k = n + 1, which is 1 modulo n", n + 1),
        ("k-2-256-1", "k = 2^256 - 1", (1 << 256) - 1),
    ):
        yield bad(name, comment, "nonce-range", b32(d), e, value)
    for name, comment, e1, r, s in (
        ("r-0", "the nonce gives r = 0", -x1 % n, 0, None),
        ("r-plus-k", "the nonce gives r + k = n", (n - k - x1) % n, n - k, None),
        ("s-0", "the nonce gives s = 0", (k * inverse - x1) % n, None, 0),
    ):
        u, v = sign_with(d, e1, k)
        prove(r in (None, u) and s in (None, v), comment)
        prove((u == 0) + (u + k == n) + (v == 0) == 1, "that alone")
        yield bad(name, comment, "nonce-useless", b32(d), e1, k)


def make_fnv1a64(kept: dict[str, Case]) -> Iterator[Case]:
    """By fnvhash of PyPI. libstdc++'s std::_Fnv_hash_bytes would not do: it takes bytes above 7f for negative."""
    try:
        from fnvhash import fnv1a_64  # type: ignore[import-not-found,import-untyped,unused-ignore]
    except ImportError:
        print("fnv1a64: left as it is; python3 -m pip install fnvhash")
        yield from kept.values()
        return

    def one(name: str, comment: str, flags: str, message: bytes, known: int | None = None) -> Case:
        value = fnv1a_64(message)
        prove(known in (None, value), "fnvhash agrees on " + name)
        source = "fnvhash 0.2.1" if known is None else "draft-eastlake-fnv; fnvhash 0.2.1 agrees"
        into, out = {"msg": message}, {"hash": value.to_bytes(8, "big")}
        return case("fnv1a64-" + name, comment, source, flags, into, out)

    for name, message, known in (
        ("empty", b"", 0xCBF29CE484222325),
        ("a", b"a", 0xAF63DC4C8601EC8C),
        ("foobar", b"foobar", 0x85944171F73967E8),
        ("a-nul", b"a\0", 0x089BE207B544F1E4),
        ("foobar-nul", b"foobar\0", 0x34531CA7168B8F38),
    ):
        yield one(name, "%s, an example of its authors" % ascii(message)[1:], "fnv-order", message, known)
    text = "the authors' shortest message whose hash is 0, which is a hash like any other"
    yield one("zero-hash", text, "fnv-order high-bytes", bytes.fromhex("d56bb95342870836"), 0)
    for byte in [1 << bit for bit in range(8)] + [0x00, 0x7F, 0xFF]:
        flags = "high-bytes fnv-order" if byte > 127 else "fnv-order"
        yield one("byte-%02x" % byte, "one byte %02x" % byte, flags, bytes([byte]))
    for size in [*range(2, 34), 63, 64, 65, 255, 256, 257, 1000, 4096]:
        yield one("length-%d" % size, "%d bytes" % size, "", data("fnv %d" % size, size))
    for name, message in (
        ("zeros", bytes(100)),
        ("ff", b"\xff" * 100),
        ("zeros-8", bytes(8)),
        ("counting", bytes(range(256))),
        ("counting-back", bytes(range(255, -1, -1))),
    ):
        comment = "%d bytes, from %02x to %02x" % (len(message), message[0], message[-1])
        yield one(name, comment, "high-bytes" if max(message) > 127 else "", message)


FILES: dict[str, Callable[[dict[str, Case]], Iterator[Case]]] = {  # op: its cases, from those in the file by id
    "sm3": make_sm3,
    "hmac_sm3": make_hmac_sm3,
    "sm3_kdf": make_sm3_kdf,
    "sm4_block": make_sm4_block,
    "sm4_ctr": make_sm4_ctr,
    "sm2_za": make_sm2_za,
    "sm2_pubkey": make_sm2_pubkey,
    "sm2_verify": make_sm2_verify,
    "sm2_verify_digest": make_sm2_verify_digest,
    "sm2_sign_digest": make_sm2_sign_digest,
    "fnv1a64": make_fnv1a64,
}


def cross(count: int) -> int:
    """Signatures of vqfref's judged by OpenSSL, and OpenSSL's by vqfref, each good and with one bit flipped."""
    sys.path.insert(0, str(KAT.parent))
    from vqfref.crypto import sm2  # the one place, and no vector comes from it

    for i in range(count):
        d, user_id = scalar("cross %d" % i), data("cross id %d" % i, i % 40)
        message = data("cross msg %d" % i, i)
        P = sm2.public_key(d)
        prove(public_from_private(d) == P, "the same public key: %d" % i)
        ours = sm2.sign(d, message, user_id)
        r, s = int.from_bytes(ours[:32], "big"), int.from_bytes(ours[32:], "big")
        prove(is_signature(P, user_id, message, r, s), "OpenSSL takes ours: %d" % i)
        prove(not is_signature(P, user_id, message, r, s ^ 1 << i % 250), "OpenSSL refuses ours with a flip: %d" % i)
        r, s = sign(d, user_id, message)
        prove(sm2.verify(P, message, b32(r) + b32(s), user_id), "vqfref takes OpenSSL's: %d" % i)
        prove(not sm2.verify(P, message, b32(r ^ 1 << i % 250) + b32(s), user_id), "vqfref refuses a flip: %d" % i)
    print("%d signatures each way: all agree" % count)
    return 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["--cross"]:
        sys.exit(cross(int(sys.argv[2])))
    prove_the_curve()
    sys.exit(main(sys.argv[1:], __doc__, FLAGS, FILES))

"""SM2 signatures: GB/T 32918.2-2016 over the recommended curve of GB/T 32918.5-2017.

Affine arithmetic, double and add: the plainest form of the standard, some 30 ms a verification. A point is (x, y) or
None for the point at infinity. Names are the standard's: d private key, P public key, Z hash of the signer's data, e
digest, k nonce, (r, s) signature. Left out: encryption and key exchange.

Python is not constant-time. Sign with a key worth stealing elsewhere.
"""

from __future__ import annotations

import os

from vqfref.crypto.sm3 import sm3
from vqfref.errors import SignatureError, UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, Optional, Tuple

    Point = Optional[Tuple[int, int]]

# GB/T 32918.5-2017, section 2: y^2 = x^3 + a x + b over F_p, base point G of prime order n
p = 0xFFFFFFFEFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFF00000000FFFFFFFFFFFFFFFF
a = 0xFFFFFFFEFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFF00000000FFFFFFFFFFFFFFFC
b = 0x28E9FA9E9D9F5E344D5A9E4BCF6509A7F39789F515AB8F92DDBCBD414D940E93
n = 0xFFFFFFFEFFFFFFFFFFFFFFFFFFFFFFFF7203DF6B21C6052B53BBF40939D54123
G = (
    0x32C4AE2C1F1981195F9904466A39C9948FE30BBFF2660BE1715A4589334C74C7,
    0xBC3736A2F4F6779C59BDCEE36B692153D0A9877CC62A474002DF32E52139F0A0,
)
DEFAULT_ID = b"1234567812345678"  # GM/T 0009, for signers without an id of their own
MAX_ID = 8191  # bytes: ENTL counts bits in two bytes


# ---- the curve


def is_on_curve(x: int, y: int) -> bool:
    """Do coordinates in 0 … p-1 satisfy the curve's equation?"""
    return (y * y - (x * x * x + a * x + b)) % p == 0


def add(A: Point, B: Point) -> Point:
    """The sum of two points (GB/T 32918.1, 3.2.3.1): with infinity, opposite, equal and other points."""
    if A is None:
        return B
    if B is None:
        return A
    (x1, y1), (x2, y2) = A, B
    if x1 == x2:
        if (y1 + y2) % p == 0:
            return None
        slope = (3 * x1 * x1 + a) * pow(2 * y1, -1, p) % p
    else:
        slope = (y2 - y1) * pow(x2 - x1, -1, p) % p
    x3 = (slope * slope - x1 - x2) % p
    return x3, (slope * (x1 - x3) - y1) % p


def multiply(k: int, A: Point) -> Point:
    """[k]A by double and add, from the highest bit down; k >= 0."""
    R: Point = None
    for bit in bin(k)[2:]:
        R = add(R, R)
        if bit == "1":
            R = add(R, A)
    return R


# ---- keys and their bytes


def private_key_from_bytes_checked(data: bytes) -> int:
    """A private key d in 1 … n-2 from 32 big-endian bytes. Raises SignatureError for anything else."""
    if len(data) != 32:
        raise SignatureError("sm2.private.key", "private key of %d bytes, expected 32" % len(data))
    d = int.from_bytes(data, "big")
    if not 1 <= d <= n - 2:
        raise SignatureError("sm2.private.range", "private key is not in 1 … n-2")
    return d


def public_key(d: int) -> tuple[int, int]:
    """P = [d]G. Raises SignatureError for a d outside 1 … n-2."""
    P = multiply(d, G) if 1 <= d <= n - 2 else None
    if P is None:
        raise SignatureError("sm2.private.range", "private key is not in 1 … n-2")
    return P


def public_key_from_bytes_checked(data: bytes) -> tuple[int, int]:
    """A point of the curve from 64 bytes x ‖ y, or from 65 with the prefix 04. Raises SignatureError."""
    if len(data) == 65 and data[0] == 4:
        data = data[1:]
    if len(data) != 64:
        raise SignatureError("sm2.public.key", "public key of %d bytes%s, expected 64: x then y, or 65 beginning with 04"
                             % (len(data), ", prefix %02x" % data[0] if len(data) == 65 else ""))  # fmt: skip
    x, y = int.from_bytes(data[:32], "big"), int.from_bytes(data[32:], "big")
    if x >= p or y >= p:
        raise SignatureError("sm2.public.range", "public key: a coordinate is not below p")
    if not is_on_curve(x, y):
        raise SignatureError("sm2.public.point", "public key is not on the curve")
    return x, y


def public_key_to_bytes(P: tuple[int, int]) -> bytes:
    """x ‖ y, 64 bytes."""
    return P[0].to_bytes(32, "big") + P[1].to_bytes(32, "big")


def random_scalar(limit: int, random: Callable[[int], bytes] = os.urandom) -> int:
    """A uniform number in 1 … limit-1, by rejection from the system's generator."""
    while True:
        k = int.from_bytes(random(32), "big")
        if 1 <= k < limit:
            return k


def generate_private_key() -> int:
    """A random private key, 1 … n-2."""
    return random_scalar(n - 1)


# ---- GB/T 32918.2, 5.5: Z and e


def za(P: tuple[int, int], user_id: bytes = DEFAULT_ID, hash: Callable[[bytes], bytes] = sm3) -> bytes:
    """Z = H(ENTL ‖ ID ‖ a ‖ b ‖ xG ‖ yG ‖ xP ‖ yP). Raises UsageError for an id of more than 8191 bytes."""
    if len(user_id) > MAX_ID:
        raise UsageError("sm2.id.range", "user id of %d bytes, expected at most %d" % (len(user_id), MAX_ID))
    numbers = b"".join(v.to_bytes(32, "big") for v in (a, b, *G, *P))
    return hash((8 * len(user_id)).to_bytes(2, "big") + user_id + numbers)


def digest(
    P: tuple[int, int], message: bytes, user_id: bytes = DEFAULT_ID, hash: Callable[[bytes], bytes] = sm3
) -> int:
    """e = H(Z ‖ M) as an integer."""
    return int.from_bytes(hash(za(P, user_id, hash) + message), "big")


# ---- GB/T 32918.2, 6.1: signing


def sign_with_nonce(d: int, e: int, k: int) -> tuple[int, int]:
    """(r, s) for the digest e with the nonce k, steps A4 to A6.

    Raises SignatureError (sm2.nonce.range) for a nonce outside 1 … n-1, or that the standard tells to throw away: one
    that gives r = 0, r + k = n or s = 0; sm2.private.range for a private key outside 1 … n-2.
    """
    if not 1 <= d <= n - 2:
        raise SignatureError("sm2.private.range", "private key is not in 1 … n-2")
    if not 1 <= k <= n - 1:
        raise SignatureError("sm2.nonce.range", "nonce is not in 1 … n-1")
    point = multiply(k, G)
    x1 = point[0] if point else 0
    r = (e + x1) % n
    if r == 0 or r + k == n:
        raise SignatureError("sm2.nonce.range", "nonce gives r = 0 or r + k = n: take another")
    s = pow(1 + d, -1, n) * (k - r * d) % n
    if s == 0:
        raise SignatureError("sm2.nonce.range", "nonce gives s = 0: take another")
    return r, s


def sign_digest(d: int, e: int) -> tuple[int, int]:
    """(r, s) for the digest e with a random nonce; the result is verified before it is given out."""
    if not 1 <= d <= n - 2:
        raise SignatureError("sm2.private.range", "private key is not in 1 … n-2")
    while True:
        try:
            r, s = sign_with_nonce(d, e, random_scalar(n))
        except SignatureError:  # one nonce in 2^254
            continue
        check_digest(public_key(d), e, r, s)  # a fault in the computation would give the key away
        return r, s


def sign(d: int, message: bytes, user_id: bytes = DEFAULT_ID) -> bytes:
    """The signature r ‖ s of a message, 64 bytes big-endian."""
    r, s = sign_digest(d, digest(public_key(d), message, user_id))
    return r.to_bytes(32, "big") + s.to_bytes(32, "big")


# ---- GB/T 32918.2, 7.1: verification


def check_digest(P: tuple[int, int], e: int, r: int, s: int) -> None:
    """Verify (r, s) for the digest e, steps B1, B2 and B5 to B7. Raises SignatureError that says which step failed.

    P must come from public_key_from_bytes_checked: with a point off the curve anybody can sign.
    """
    if not 1 <= r <= n - 1:
        raise SignatureError("sm2.r.range", "r is not in 1 … n-1")
    if not 1 <= s <= n - 1:
        raise SignatureError("sm2.s.range", "s is not in 1 … n-1")
    t = (r + s) % n
    if t == 0:
        raise SignatureError("sm2.t.range", "r + s is 0 mod n")
    point = add(multiply(s, G), multiply(t, P))
    if point is None:
        raise SignatureError("sm2.infinity.point", "[s]G + [t]P is the point at infinity")
    if (e + point[0]) % n != r:
        raise SignatureError("sm2.mismatch.signature", "signature does not match: other data, another key or id")


def check(P: tuple[int, int], message: bytes, signature: bytes, user_id: bytes = DEFAULT_ID) -> None:
    """Verify a 64-byte signature r ‖ s of a message. Raises SignatureError that says what is wrong, UsageError for a
    user id of more than 8191 bytes. P must come from public_key_from_bytes_checked, as for `check_digest`."""
    if len(signature) != 64:
        raise SignatureError("sm2.length.signature", "signature of %d bytes, expected 64" % len(signature))
    r, s = int.from_bytes(signature[:32], "big"), int.from_bytes(signature[32:], "big")
    check_digest(P, digest(P, message, user_id), r, s)


def verify_digest(P: tuple[int, int], e: int, r: int, s: int) -> bool:
    """Is (r, s) a signature of the digest e? Any fault of r and s is False; the key must come from a checked one."""
    try:
        check_digest(P, e, r, s)
    except SignatureError:
        return False
    return True


def verify(P: tuple[int, int], message: bytes, signature: bytes, user_id: bytes = DEFAULT_ID) -> bool:
    """Is this a signature of the message by the owner of P with this user id? Raises UsageError for a user id of more
    than 8191 bytes."""
    try:
        check(P, message, signature, user_id)
    except SignatureError:
        return False
    return True

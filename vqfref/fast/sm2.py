"""SM2 with inversions saved: points as X/Z^2, Y/Z^3, and tables of multiples.

Jacobian coordinates (X, Y, Z) stand for the affine point (X / Z^2, Y / Z^3), Z = 0 for infinity; the formulas are those of
GB/T 32918.1, A.1.2.3.2, with a = -3. A known point (G, or the key of a Verifier) has a table of d * 2^(w i) * P for all
places i and digits d: a multiple is then one addition for each digit, and no doubling. Digits are signed, since -P costs
nothing. A point seen once gets a window of odd multiples. `% p` and `pow(x, -1, p)` are quicker in Python than any special
reduction. All of it is exact arithmetic in the same field; where two points are equal or opposite, the formula says so.

The plain check_digest computes [s]G + [t]P and so does this one: same steps, same order, same errors.
"""

from __future__ import annotations

import functools

from vqfref.crypto import sm2 as plain
from vqfref.crypto.sm2 import G, n, p
from vqfref.errors import SignatureError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, Sequence, Tuple

    Affine = Tuple[int, int]
    Jacobian = Tuple[int, int, int]

INFINITY = (0, 1, 0)
WIDTH = 6  # bits in a digit of a table: 43 rows of 32 points, some 250 KB
WINDOW, WIDE_WINDOW = 5, 11  # bits in a window: for a point that is seen once, and for G beside it


# ---- points


def double(P: Jacobian, times: int = 1) -> Jacobian:
    """P + P, and again as often as told."""
    X, Y, Z = P
    for _ in range(times):
        zz, yy = Z * Z % p, Y * Y % p
        m, s = 3 * (X - zz) * (X + zz) % p, 4 * X * yy % p
        Z = 2 * Y * Z % p
        X = (m * m - 2 * s) % p
        Y = (m * (s - X) - 8 * yy * yy) % p
    return X, Y, Z


def add(P: Jacobian, Q: Affine) -> Jacobian:
    """P + Q, for an affine Q."""
    X, Y, Z = P
    x, y = Q
    if not Z:
        return x, y, 1
    zz = Z * Z % p
    h, r = (x * zz - X) % p, (y * zz % p * Z - Y) % p
    if not h:
        return INFINITY if r else double(P)
    hh = h * h % p
    hhh, v = hh * h % p, X * hh % p
    x = (r * r - hhh - 2 * v) % p
    return x, (r * (v - x) - Y * hhh) % p, Z * h % p


def affine(points: Sequence[Jacobian]) -> list[Affine]:
    """Several points, none of them infinity, with one inversion (Montgomery's trick)."""
    products = [1]
    for _, _, Z in points:
        products.append(products[-1] * Z % p)
    inverse = pow(products.pop(), -1, p)
    out = []
    for X, Y, Z in reversed(points):
        z = inverse * products.pop() % p
        inverse = inverse * Z % p
        out.append((X * z * z % p, Y * z * z % p * z % p))
    return out[::-1]


# ---- multiples


class Table:
    """The points d * 2^(6 i) * P for d = 1 … 32 and i = 0 … 42."""

    def __init__(self, P: Affine) -> None:
        points: list[Jacobian] = []
        half = 1 << WIDTH - 1
        for _ in range(-(-257 // WIDTH)):
            first = (*P, 1)
            row = [first]
            while len(row) < half:
                row.append(add(row[-1], P))
            points += row
            (P,) = affine([double(row[-1])])
        flat = affine(points)
        self.rows = [flat[i : i + half] for i in range(0, len(flat), half)]

    def add_to(self, S: Jacobian, k: int) -> Jacobian:
        """S + [k]P, 0 <= k < 2^256."""
        for row in self.rows:
            digit = k & (1 << WIDTH) - 1
            k >>= WIDTH
            if digit > 1 << WIDTH - 1:
                digit -= 1 << WIDTH
                k += 1
            if digit > 0:
                S = add(S, row[digit - 1])
            elif digit:
                x, y = row[-digit - 1]
                S = add(S, (x, p - y))
        return S


@functools.lru_cache(maxsize=1)
def _table_of_G() -> Table:
    return Table(G)


def odd_multiples(P: Affine, width: int) -> list[Affine]:
    """P, 3P, 5P, … up to 2^(width - 1) - 1: what signed windows of that many bits need.

    On the isomorphic curve where every Z is divided by that of 2P, 2P is affine without an inversion; additions are the
    same there, and no point is added to itself.
    """
    X, Y, Z = double((*P, 1))
    zz = Z * Z % p
    points: list[Jacobian] = [(P[0] * zz % p, P[1] * zz * Z % p, 1)]
    while len(points) < 1 << width - 2:
        points.append(add(points[-1], (X, Y)))
    return affine([(x, y, z * Z % p) for x, y, z in points])


@functools.lru_cache(maxsize=1)
def _odd_multiples_of_G() -> list[Affine]:
    return odd_multiples(G, WIDE_WINDOW)


def sum_of_multiples(*terms: tuple[int, list[Affine], int]) -> Jacobian:
    """The sum of [k]P for several (k, odd multiples of P, width of the window): they share the doublings."""
    additions: list[list[Affine]] = [[] for _ in range(258)]
    for k, odd, width in terms:
        i = 0
        while k:
            zeros = (k & -k).bit_length() - 1
            i += zeros
            k >>= zeros
            digit = k & (1 << width) - 1
            if digit >> width - 1:
                digit -= 1 << width
                x, y = odd[-digit >> 1]
                additions[i].append((x, p - y))
            else:
                additions[i].append(odd[digit >> 1])
            k -= digit
    S, doublings = INFINITY, 0
    for points in reversed(additions):
        doublings += 1
        if points:
            S = double(S, doublings)
            for Q in points:
                S = add(S, Q)
            doublings = 0
    return double(S, doublings)


# ---- the operations


def public_key(d: int) -> tuple[int, int]:
    """P = [d]G."""
    if not 1 <= d <= n - 2:
        return plain.public_key(d)
    return affine([_table_of_G().add_to(INFINITY, d)])[0]


def sign_with_nonce(d: int, e: int, k: int) -> tuple[int, int]:
    """(r, s) for the digest e with the nonce k, steps A4 to A6."""
    if not 1 <= d <= n - 2 or not 1 <= k <= n - 1:
        return plain.sign_with_nonce(d, e, k)
    ((x, _),) = affine([_table_of_G().add_to(INFINITY, k)])
    r = (e + x) % n
    if r == 0 or r + k == n:
        raise SignatureError("sm2.nonce.range", "nonce gives r = 0 or r + k = n: take another")
    s = pow(1 + d, -1, n) * (k - r * d) % n
    if s == 0:
        raise SignatureError("sm2.nonce.range", "nonce gives s = 0: take another")
    return r, s


def check_digest(P: tuple[int, int], e: int, r: int, s: int) -> None:
    """Verify (r, s) for the digest e, steps B1, B2 and B5 to B7. Raises SignatureError that says which step failed."""
    t = (r + s) % n
    if not 1 <= r <= n - 1 or not 1 <= s <= n - 1 or t == 0 or not _is_fit(P):
        plain.check_digest(P, e, r, s)
        return
    terms = (s, _odd_multiples_of_G(), WIDE_WINDOW), (t, odd_multiples(P, WINDOW), WINDOW)
    _judge(sum_of_multiples(*terms), e, r)


def digest_checker(P: tuple[int, int]) -> Callable[[int, int, int], None]:
    """`check_digest` for one key, of which it makes a table: a function of e, r and s."""
    table = Table(P) if _is_fit(P) else None

    def check(e: int, r: int, s: int) -> None:
        t = (r + s) % n
        if table is None or not 1 <= r <= n - 1 or not 1 <= s <= n - 1 or t == 0:
            plain.check_digest(P, e, r, s)
            return
        _judge(_table_of_G().add_to(table.add_to(INFINITY, t), s), e, r)

    return check


def _is_fit(P: Affine) -> bool:
    """Is it a point of the curve, and so of prime order?"""
    return 0 <= P[0] < p and 0 <= P[1] < p and plain.is_on_curve(*P)


def _judge(point: Jacobian, e: int, r: int) -> None:
    """Steps B6 and B7. The point's x, which is r - e mod n, lies below p: it is that number, or n more."""
    X, _, Z = point
    if not Z:
        raise SignatureError("sm2.infinity.point", "[s]G + [t]P is the point at infinity")
    x = (r - e) % n
    if (X - x * Z * Z) % p and (x + n >= p or (X - (x + n) * Z * Z) % p):
        raise SignatureError("sm2.mismatch.signature", "signature does not match: other data, another key or id")


# ---- known answers: the example of GB/T 32918.5, A.2, "message digest" signed with its nonce

_D = 0x3945208F7B2144B13F36E38AC6D39F95889393692860B51A42FB81EF4DF7C5B8
_E = 0xF0B43E94BA45ACCAACE692ED534382EB17E6AB5A19CE7B31F4486FDFC0D28640
_K = 0x59276E27D506861A16680F3AD9C02DCCEF3CC1FA3CDBE4CE6D54B80DEAC1BC21
_R = 0xF5A03B0648D2C4630EEAC513E1BB81A15944DA3827D5B74143AC7EACEEE720B3
_S = 0xB1B6AA29DF212FD8763182BC0D421CA1BB9038FD1F7F42D4840B69C485BBC1AA
_P = (
    0x09F9DF311E5421A150DD7D161E4BC5C672179FAD1833FC076BB08FF356F35020,
    0xCCEA490CE26775A52DC6EA718CC1AA600AED05FBF35E084A6632F6072DA9AD13,
)


def _told(check: Callable[[int, int, int], None]) -> list[str]:
    """What a check says of the right signature, of another digest, and of [s]G + [t]P = infinity, where P = [d]G."""
    said = []
    for e, r, s in ((_E, _R, _S), (_E + 1, _R, _S), (_E, _R, -_R * _D * pow(1 + _D, -1, n) % n)):
        try:
            check(e, r, s)
            said.append("right")
        except SignatureError as error:
            said.append(error.code)
    return said


_RIGHT = ["right", "sm2.mismatch.signature", "sm2.infinity.point"]

CHECKS: dict[str, tuple[Callable[[], object], object]] = {
    "public_key": (lambda: public_key(_D), _P),
    "sign_with_nonce": (lambda: sign_with_nonce(_D, _E, _K), (_R, _S)),
    "check_digest": (lambda: _told(lambda e, r, s: check_digest(_P, e, r, s)), _RIGHT),
    "digest_checker": (lambda: _told(digest_checker(_P)), _RIGHT),
}

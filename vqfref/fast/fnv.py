"""FNV-1a-64 of many bytes in steps of big integers.

Write b for a byte of the data, h for the hash before it, l for the lowest byte of h, and x = l ^ b. Then h ^ b = h + d with
d = x - l = 2 (x & b) - b, so that after n bytes h is h P^n + the sum of d_i P^(n-i). Two steps:

1. The x_i. The next l is the lowest byte of 0xb3 x: bit by bit from the lowest, bit k of it is bit k of x, xor something
   that the lower bits of x give. Hence bit k of all x_i is a prefix xor, and eight planes of bits, one after the other,
   give all x_i of a row of `row` bytes. (A prefix xor of n bits is log2 n times `t ^= t << s`.)
2. The sum. P^row = 1 + E, where row * 4 divides E (P = 3 mod 8 makes P^(2^k) = 1 mod 2^(k+2)). So E^4 is 0 mod 2^64 if
   row >= 2^14, and a row that R more rows follow weighs 1 + R E + C(R, 2) E^2 + C(R, 3) E^3. Each byte's place in the row
   gets lanes for the sum of its d over the rows, for the sum of those sums, and so on: four of them, by additions only. At
   the end the lanes are weighed with the powers of P within a row.

No lane overflows, whatever the data: d lies in -255 … 255, and lanes begin with 255 for each row to stay positive. Over
R rows the sums stay below 510 R + 255, in 16 bits up to R = 128, and the fourth below 255 (R C(R+2, 3) + C(R+3, 4)), in 32
bits up to R = 93.
"""

from __future__ import annotations

import functools

from vqfref.crypto.fnv import OFFSET_BASIS, PRIME
from vqfref.crypto.fnv import fnv1a64 as plain_fnv1a64

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import List

    Planes = List[int]

MOST_ROWS = 92
ROWS = ((1 << 22, 1 << 16), (1 << 19, 1 << 15), (1 << 16, 1 << 14))  # for so many bytes and more, rows of so many
_M64 = (1 << 64) - 1


def fnv1a64(data: bytes | bytearray | memoryview, h: int = OFFSET_BASIS) -> int:
    """The FNV-1a-64 of `data`, continuing from `h`, the hash of what came before."""
    view, at = memoryview(data).cast("B"), 0
    size = next((row for enough, row in ROWS if len(view) >= enough), 0)
    if size:
        row, rows = _row(size), len(view) // size
        groups = -(-rows // MOST_ROWS)
        for i in range(1, groups + 1):
            stop = rows * i // groups * size
            h = row.hash(view[at:stop], h)
            at = stop
    return plain_fnv1a64(view[at:], h)


@functools.lru_cache(maxsize=3)
def _row(size: int) -> Row:
    return Row(size)


class Row:
    """What rows of `size` bytes, a power of two, need. A row is eight strands, one behind the other; in a plane of bits, bit
    j of byte i belongs to byte i of strand j."""

    def __init__(self, size: int) -> None:
        strand = size // 8

        def fill(bits: int, width: int) -> int:
            return int.from_bytes(bits.to_bytes(width, "little") * (strand // width), "little")

        self.size, self.strand, self.last = size, strand, 8 * (strand - 1)
        self.full, self.ones = fill(0xFF, 1), fill(0x01, 1)
        self.swaps = tuple((s, fill(mask, 1)) for s, mask in ((4, 0x0F), (2, 0x33), (1, 0x55)))
        self.shifts = tuple(8 << i for i in range(strand.bit_length() - 1))
        self.one_of_2, self.byte_of_2, self.nine_bits_of_2 = fill(1, 2), fill(0xFF, 2), fill(0x1FE, 2)
        self.two_of_4, self.four_of_16, self.eight_of_16 = fill(0xFFFF, 4), fill(0xFFFFFFFF, 16), fill(_M64, 16)
        self.powers = tuple(pow(PRIME, k, 1 << 64) for k in range(16))
        self.weight_of_strand = pow(PRIME, strand, 1 << 64)
        self.weight_of_row = pow(PRIME, size, 1 << 64)
        self.all_weights = (pow(PRIME, size, PRIME - 1 << 64) - 1) // (PRIME - 1)  # 1 + P + … + P^(size - 1)

    def hash(self, data: memoryview, h: int) -> int:
        """Go on from h over at most MOST_ROWS whole rows."""
        rows, low = len(data) // self.size, h & 255
        sums = [[self.one_of_2 * (255 * rows)] * 2 + [0] * 12 for _ in range(8)]
        for at in range(0, len(data), self.size):
            strands = [data[i : i + self.strand] for i in range(at, at + self.size, self.strand)]
            b = [int.from_bytes(s, "little") for s in strands]
            planes = self.transposed(b[:])
            x, low = self.automaton(planes, low)
            both = self.transposed([p & q for p, q in zip(x, planes)])
            for s, p, q in zip(sums, b, both):
                self.add(s, p, q)
        t0, t1, t2, t3 = (self.weighed([self.parts(s)[j] for s in sums]) for j in range(4))
        e = self.weight_of_row - 1
        # Over the rows, the sums of d, R d, C(R, 2) d and C(R, 3) d, for R rows that follow
        d = t0 + e * (t1 - t0) + e * e * (t2 - 2 * t1 + t0) + e * e * e * (t3 - 3 * t2 + 3 * t1 - t0)
        d -= 255 * rows * self.all_weights * pow(self.weight_of_row, rows - 1, 1 << 64)
        return (h * pow(self.weight_of_row, rows, 1 << 64) + d * PRIME) & _M64

    def transposed(self, p: Planes) -> Planes:
        """Strands of bytes into planes of bits, and back."""
        for s, mask in self.swaps:
            for i in range(8):
                if not i & s:
                    t = (p[i] >> s ^ p[i + s]) & mask
                    p[i + s] ^= t
                    p[i] ^= t << s
        return p

    def automaton(self, b: Planes, low: int) -> tuple[Planes, int]:
        """The planes of x from those of b and the lowest byte of the hash before; and that byte behind the row.

        0xb3 x = u + 16 u + 128 x with u = 3 x = x + 2 x. `f` is what bit k of it has beyond bit k of x.
        """
        x: Planes = []
        u: Planes = []
        last, full, low_after = self.last, self.full, 0
        f = g = carry_u = carry = 0
        for k in range(8):
            # x ^ (x of the byte before) is b ^ (f of the byte before), which for a strand's first byte is the last of the
            # strand before it
            t = b[k] ^ f << 8 & full ^ f >> last << 1 & 255
            for shift in self.shifts:
                t ^= t << shift
            t &= full
            before = _before(t >> last) ^ 255 * (low >> k & 1)  # for each strand the xor of all that came before it
            x_k = t ^ self.ones * before
            low_after |= (x_k >> last + 7 ^ f >> last + 7) << k
            u.append(x_k ^ g)
            carry_u = _majority(x_k, x[k - 1], carry_u) if k else 0
            x.append(x_k)
            carry = _majority(u[k], u[k - 4], carry) if k > 3 else 0
            f = g = x_k ^ carry_u
            if k > 2:
                f ^= u[k - 3] ^ carry
            if k == 6:
                f ^= x[0]
        return x, low_after

    def add(self, s: Planes, b: int, both: int) -> None:
        """Add d = 2 (x & b) - b to the sums of a strand: s[0:2] sums of bytes at even and odd places, in 16 bits; from s[2]
        on, for each of the four places in a word, sums of these sums, of those, and again, in 32 bits."""
        half = self.two_of_4
        even = s[0] = s[0] + (both << 1 & self.nine_bits_of_2) - (b & self.byte_of_2)
        odd = s[1] = s[1] + (both >> 7 & self.nine_bits_of_2) - (b >> 8 & self.byte_of_2)
        for i, t in enumerate((even & half, odd & half, even >> 16 & half, odd >> 16 & half), 2):
            t = s[i] = s[i] + t
            t = s[i + 4] = s[i + 4] + t
            s[i + 8] += t

    def parts(self, s: Planes) -> list[Planes]:
        """Four times four integers: the sums of each order, for the four places in a word, in 32 bits."""
        half = self.two_of_4
        return [[s[0] & half, s[1] & half, s[0] >> 16 & half, s[1] >> 16 & half], s[2:6], s[6:10], s[10:]]

    def weighed(self, strands: list[Planes]) -> int:
        """The sum of what is in the lanes, each times P to the number of bytes that follow in the row."""
        total = 0
        for words in strands:
            lanes = 0  # of 16 bytes
            for i, word in enumerate(words):
                for k in range(4):
                    lanes += (word >> 32 * k & self.four_of_16) * self.powers[15 - 4 * k - i]
            n = self.strand // 16
            while n > 1:  # the earlier half of the lanes onto the later one
                n //= 2
                lanes &= self.eight_of_16 & (1 << 256 * n) - 1
                lanes = (lanes & (1 << 128 * n) - 1) * pow(PRIME, 16 * n, 1 << 64) + (lanes >> 128 * n)
            total = total * self.weight_of_strand + lanes & _M64
        return total


def _majority(a: int, b: int, c: int) -> int:
    return a & b | c & (a | b)


def _before(bits: int) -> int:
    """Bit j of the result is the xor of the bits below bit j of a byte."""
    r = 0
    for j in range(7):
        r |= ((r >> j ^ bits >> j) & 1) << j + 1
    return r


def _known() -> int:
    """Five rows, and a few bytes."""
    return fnv1a64(bytes(range(256)) * 256 + b"\xff" * 20000, 0x123456789ABCDEF0)


CHECKS = {"fnv1a64": (_known, 0xC46912E75A0152D0)}

"""SM4's counter mode on many blocks at once: byte planes for a few blocks, bit planes for many.

Byte planes. A word of the cipher's state, for all n blocks, is one integer of 4 n bytes: first the n highest bytes of
the word, then the n next ones, and so on. Xor is xor, the S-box is one bytes.translate, a rotation by 8 bits moves the
planes round (a slice at n), a rotation by 2 is two shifts with masks and one such move. Every step is GB/T 32907's own.

Bit planes. Bit j of a word, for all n blocks, is one integer of n bits; the state is 128 of them. All rotations are other
orders of the same planes. The S-box becomes 105 gates: an affine map, the inversion in GF(((2^2)^2)^2) and another affine
map; S(x) = box(x ^ 0x75) ^ 0xd3. The 0x75 goes into the round keys, and so does the 0xd3: L(d3d3d3d3) is d3d3d3d3 ^ its
four rotations = 4f4f4f4f, which stays in every word once the round made it, until four rounds later the same constant
comes again and takes it away. After 32 rounds it is away. Counters are periodic patterns in their lower planes and change
at most once in their higher ones. Bits become bytes by 8 x 8 transpositions, and planes of bytes blocks by strided slices.
"""

from __future__ import annotations

import binascii
import io
import struct

from vqfref.crypto.sm4 import SBOX, expand_key
from vqfref.crypto.sm4 import sm4_ctr as plain_sm4_ctr

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import List, Sequence

    Planes = List[int]

FEW = 4  # blocks: from here on byte planes
MANY = 2048  # blocks: from here on bit planes
BYTE_BATCH = 1024  # blocks in one batch of byte planes
BIT_BATCH = 32768  # blocks in one batch of bit planes: 4 KB a plane
_WRAP = (1 << 128) - 1


def sm4_ctr(key: bytes, iv: bytes, data: bytes | memoryview, offset: int = 0) -> bytes:
    """Encrypt or decrypt `data`, which starts `offset` bytes into the stream whose first counter is `iv`."""
    view = memoryview(data).cast("B")
    size = len(view)
    if size < 16 * FEW or len(key) != 16 or len(iv) != 16 or offset < 0:
        return plain_sm4_ctr(key, iv, data, offset)
    rk = expand_key(key)
    counter = int.from_bytes(iv, "big") + offset // 16
    at = -(offset % 16)  # where in `data` the next block begins
    out = io.BytesIO()
    batch: BytePlanes | BitPlanes | None = None
    while at < size:
        blocks = -(-(size - at) // 16)
        if blocks < MANY:
            if not isinstance(batch, BytePlanes) or batch.n > blocks:
                batch = BytePlanes(rk, min(blocks, BYTE_BATCH))
        elif batch is None:
            batches = -(-blocks // BIT_BATCH)
            batch = BitPlanes(rk, -(-blocks // batches // 8) * 8)
        piece = bytearray(view[max(at, 0) : at + 16 * batch.n])
        skip, length = max(-at, 0), len(piece)
        if length < 16 * batch.n:
            piece = (bytearray(skip) + piece).ljust(16 * batch.n, b"\0")
        out.write(memoryview(batch.crypt(counter & _WRAP, piece))[skip : skip + length])
        counter += batch.n
        at += 16 * batch.n
    return out.getvalue()


# ---- byte planes


class BytePlanes:
    """n blocks at a time, one integer a word."""

    def __init__(self, rk: Sequence[int], n: int) -> None:
        self.n = n
        self.keys = [int.from_bytes(b"".join([bytes([v]) * n for v in k.to_bytes(4, "big")]), "little") for k in rk]
        self.all8, self.low2, self.high6 = (int.from_bytes(bytes([m]) * 4 * n, "little") for m in (0xFF, 0x03, 0xFC))

    def crypt(self, counter: int, data: bytearray) -> bytes:
        """n blocks of data, xor the encrypted counters from `counter` on."""
        n, all8, low2, high6, from_bytes = self.n, self.all8, self.low2, self.high6, int.from_bytes
        size, turn, turn2, turn3, turn_6 = 4 * n, 8 * n, 16 * n, 24 * n, 8 * n + 6
        planes = counter_bytes(counter, n)
        a, b, c, d = (from_bytes(b"".join(planes[i : i + 4]), "little") for i in range(0, 16, 4))
        for k in self.keys:
            s = (b ^ c ^ d ^ k).to_bytes(size, "little").translate(SBOX)
            s2 = from_bytes(s + s, "little")  # its lower half shifted down by n bytes is s <<< 8, and so on
            v = s2 ^ s2 >> turn ^ s2 >> turn2  # s ^ s<<<8 ^ s<<<16, of which L wants the rotation by 2
            a ^= (s2 ^ s2 >> turn3) & all8 ^ v << 2 & high6 ^ v >> turn_6 & low2
            a, b, c, d = b, c, d, a
        out = bytearray(16 * n)
        for i, word in enumerate((d, c, b, a)):
            w = word.to_bytes(size, "little")
            for j in range(4):
                out[4 * i + j :: 16] = w[j * n : j * n + n]
        return (from_bytes(data, "little") ^ from_bytes(out, "little")).to_bytes(16 * n, "little")


def counter_bytes(counter: int, n: int) -> list[bytes]:
    """Byte i, the highest first, of the 16-byte counters from `counter` on, n of each."""
    planes = [b""] * 16
    while n:
        low = counter & 0xFFFF
        count = min(n, 0x10000 - low)
        lowest = struct.pack(">%dH" % count, *range(low, low + count))
        rest = [bytes([v]) * count for v in (counter >> 16 & _WRAP >> 16).to_bytes(14, "big")]
        planes = [p + q for p, q in zip(planes, [*rest, lowest[::2], lowest[1::2]])]
        counter += count
        n -= count
    return planes


# ---- bit planes


class BitPlanes:
    """n blocks at a time, n a multiple of 8, one integer a bit."""

    def __init__(self, rk: Sequence[int], n: int) -> None:
        self.n = n
        self.full = (1 << n) - 1
        self.keys = []
        for i, k in enumerate(rk):
            odd = sum([j // 4 & 1 for j in (i + 1, i + 2, i + 3)]) & 1  # words that carry a 4f4f4f4f
            k ^= 0x75757575 ^ 0x4F4F4F4F * odd
            self.keys.append([k >> j & 1 for j in range(32)])
        self.masks = [(s, int.from_bytes(bytes([m]) * (n // 8), "little")) for s, m in ((4, 15), (2, 0x33), (1, 0x55))]
        self.periodic = []  # bit j of 0, 1, … 2 period - 1, for a period of 2^(number of these) >= n
        for j in range((n - 1).bit_length()):
            pattern, width = (1 << (1 << j)) - 1 << (1 << j), 2 << j
            while width < 2 * n:
                pattern |= pattern << width
                width *= 2
            self.periodic.append(pattern)

    def crypt(self, counter: int, data: bytearray) -> bytearray:
        """n blocks of data, xor the encrypted counters from `counter` on."""
        n, full = self.n, self.full
        planes = self.counters(counter)
        a, b, c, d = planes[96:], planes[64:96], planes[32:64], planes[:32]
        cd: Planes = []
        for i, key in enumerate(self.keys):
            if not i & 1:  # two rounds share the xor of the two words that both of them take
                cd = [p ^ q for p, q in zip(c, d)]
            first = d if i & 1 else b
            s: Planes = []
            for j in range(0, 32, 8):
                byte = zip(first[j : j + 8], cd[j : j + 8], key[j : j + 8])
                s += box(*[p ^ q ^ full if k else p ^ q for p, q, k in byte])
            u = [p ^ q for p, q in zip(s, s[8:] + s[:8])]  # s ^ s<<<24
            rotated = zip(a, u, u[22:] + u[:22], s[14:] + s[:14])  # … ^ (s ^ s<<<24)<<<10 ^ s<<<18 is L
            a, b, c, d = b, c, d, [p ^ q ^ r ^ v for p, q, r, v in rotated]
            del s, u, rotated  # what is free is taken again first, while the caches still hold it
        out = bytearray(16 * n)
        for i, word in enumerate((d, c, b, a)):
            for j in range(4):  # the highest byte first
                for k, plane in enumerate(self.transposed(word[24 - 8 * j : 32 - 8 * j])):
                    at = slice(4 * i + j + 16 * k, None, 128)
                    out[at] = (int.from_bytes(data[at], "little") ^ plane).to_bytes(n // 8, "little")
        return out

    def counters(self, counter: int) -> Planes:
        """The 128 planes of the counters from `counter` on, the lowest bit first."""
        full, m = self.full, len(self.periodic)
        start, high = counter & (1 << m) - 1, counter >> m
        before = full & (1 << (1 << m) - start) - 1  # the blocks before the carry into bit m
        after = full ^ before
        return [p >> start & full for p in self.periodic] + [
            (before if high >> j & 1 else 0) | (after if high + 1 >> j & 1 else 0) for j in range(128 - m)
        ]

    def transposed(self, planes: Planes) -> Planes:
        """Eight planes of bits into eight planes of bytes: byte i of result k belongs to block 8 i + k."""
        for s, mask in self.masks:
            for i in range(8):
                if not i & s:
                    t = (planes[i] >> s ^ planes[i + s]) & mask
                    planes[i + s] ^= t
                    planes[i] ^= t << s
        return planes


def box(x0: int, x1: int, x2: int, x3: int, x4: int, x5: int, x6: int, x7: int) -> tuple[int, ...]:
    """S(x ^ 0x75) ^ 0xd3, planes from the lowest bit up. What is used once has no name, and a name is taken again as soon
    as its value is spent: fewer planes are alive, and the processor's caches keep them."""
    x4 = x5 ^ x4 ^ x7
    x3 = x3 ^ x5
    x5 = x1 ^ x5
    x2 = x2 ^ x6
    x7 = x7 ^ x3
    a = x5 ^ x7
    b = x1 ^ x2
    c = x0 ^ x5
    d = b ^ x4
    e = x6 ^ d
    f = x0 ^ x3
    g = f ^ x4
    h = c ^ e
    i = x7 ^ h
    j = x1 | i
    k = x2 ^ g
    r = j ^ (x2 | x7)
    j = j ^ b & h
    m = x4 & c
    x6 = g & x5 ^ m ^ j ^ x6
    m = (f | x0) ^ m ^ r
    n = d | e
    j = (k | a) ^ n ^ j
    o = x0 ^ i
    p = x1 ^ f
    x3 = p & o ^ n ^ r ^ x3
    n = x6 ^ m
    x6 = x6 & j
    r = x3 ^ x6
    x6 = (m ^ x6) & (j ^ x3) ^ x3
    m = n & r ^ m
    x3 = x3 & (r ^ x6)
    n = n ^ m & (r ^ x3)
    x3 = x3 ^ j ^ x6
    o = m & o
    r = x3 & g
    j = x6 & f ^ r
    x0 = x6 & x0
    g = m ^ n
    f = g & d
    k = n & k ^ f
    d = x6 ^ x3
    x4 = d & x4 ^ k ^ r
    x6 = m ^ x6
    r = n ^ x3
    q = x6 ^ r
    b = q & b
    x1 = x6 & x1 ^ b
    p = m & p ^ f ^ x1 ^ j
    x2 = r & x2 ^ b ^ j
    m = g & e ^ o ^ p
    x6 = x6 & i ^ x4 ^ m
    m = d & c ^ x0 ^ m
    q = q & h ^ x6
    o = n & a ^ o ^ q
    x5 = x3 & x5 ^ x0 ^ q
    x7 = r & x7 ^ x6
    x6 = k ^ x1
    x3 = p ^ x5 ^ x7
    x7 = x6 ^ x7
    x6 = x6 ^ x5
    return x7, x5, x3, x4, x6, m, o, x2


def _known() -> int:
    """One batch of bit planes that wraps at 2^128, and one of byte planes that begins within a block."""
    key, iv = bytes(range(16)), bytes([255] * 14 + [250, 0])
    return binascii.crc32(sm4_ctr(key, iv, bytes(40), 5), binascii.crc32(sm4_ctr(key, iv, bytes(16 * MANY))))


CHECKS = {"sm4_ctr": (_known, 0x1F34FF0F)}

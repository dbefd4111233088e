"""SM3 with the message expansion of many blocks at once; and many messages of one length side by side.

A word is a lane of 64 bits of one integer, one lane a block. With the word twice in its lane, x << 32 | x, a shift down by
32 - r leaves x <<< r in the lower half, for all lanes at once. What then stands in the upper half is masked before it can
reach a neighbour: xor keeps bits apart, and a sum of words has the upper half for its carries.

One stream: the words W and W' of 64 blocks are computed so, since they don't depend on the chaining value; the rounds run
over Python integers, with x * (2^32 + 1) for the word twice. Many messages: the rounds, too, are computed in lanes. FF is
written as a & b | c & (a | b), and GG as g ^ e & (f ^ g): the same functions with fewer operations.
"""

from __future__ import annotations

import struct

from vqfref.crypto import sm3 as plain
from vqfref.crypto.sm3 import IV, T, pad

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Iterator, Sequence, Tuple

    Words = Tuple[int, ...]

_TWICE, _MASK = (1 << 32) + 1, 0xFFFFFFFF
BATCH = 64  # blocks whose words are computed at once
FEW = 3  # messages of one length: with fewer, one after the other is as quick
MANY = 2048  # messages side by side
MOST_BYTES = 1 << 22  # of messages side by side


def _expand(first: Sequence[int], mask: int) -> tuple[list[int], list[int]]:
    """5.3.2 Message expansion in lanes: W_0 … W_67 and W'_0 … W'_63, from W_0 … W_15."""
    w = list(first)
    twice = [x << 32 | x for x in w]
    for j in range(16, 68):
        x = (w[j - 16] ^ w[j - 9] ^ twice[j - 3] >> 17) & mask
        y = x << 32 | x
        x = (x ^ y >> 17 ^ y >> 9 ^ twice[j - 13] >> 25 ^ w[j - 6]) & mask
        w.append(x)
        twice.append(x << 32 | x)
    return w, [x ^ y for x, y in zip(w, w[4:])]


# ---- one stream


def compress(v: Words, data: bytes | memoryview) -> Words:
    """5.3.3 The chaining value after all blocks of `data`."""
    for at in range(0, len(data), 64 * BATCH):
        for w, w_prime in _words(data[at : at + 64 * BATCH]):
            v = _rounds(v, w, w_prime)
    return v


def _words(data: bytes | memoryview) -> Iterator[tuple[Words, Words]]:
    """W_0 … W_63 and W'_0 … W'_63 of each block."""
    n = len(data) // 64
    lanes = struct.Struct("<%dQ" % n)
    first = [int.from_bytes(lanes.pack(*column), "little") for column in zip(*struct.iter_unpack(">16I", data))]
    w, w_prime = _expand(first, int.from_bytes(lanes.pack(*[_MASK] * n), "little"))
    rows = (zip(*[lanes.unpack(x.to_bytes(8 * n, "little")) for x in words]) for words in (w[:64], w_prime))
    return zip(*rows)


def _rounds(v: Words, w: Words, w_prime: Words) -> Words:
    """The 64 rounds. aa, bb, ff, … are words twice; rotations leave something above 32 bits until the next mask."""
    k, mask = _TWICE, _MASK
    a, b, c, d, e, f, g, h = v
    bb, ff = b * k, f * k
    for t, x, y in zip(T[:16], w, w_prime):
        aa = a * k
        a12 = aa >> 20
        ss1 = (a12 + e + t & mask) * k >> 25
        y = (a ^ b ^ c) + d + (ss1 ^ a12) + y & mask
        x = (e ^ f ^ g) + h + ss1 + x & mask
        d, c, b = c, bb >> 23 & mask, a
        bb, a = aa, y
        h, g, f = g, ff >> 13 & mask, e
        ff = e * k
        y = x * k
        e = (x ^ y >> 23 ^ y >> 15) & mask
    for t, x, y in zip(T[16:], w[16:], w_prime[16:]):
        aa = a * k
        a12 = aa >> 20
        ss1 = (a12 + e + t & mask) * k >> 25
        y = (a & b | c & (a | b)) + d + (ss1 ^ a12) + y & mask
        x = (g ^ e & (f ^ g)) + h + ss1 + x & mask
        d, c, b = c, bb >> 23 & mask, a
        bb, a = aa, y
        h, g, f = g, ff >> 13 & mask, e
        ff = e * k
        y = x * k
        e = (x ^ y >> 23 ^ y >> 15) & mask
    return v[0] ^ a, v[1] ^ b, v[2] ^ c, v[3] ^ d, v[4] ^ e, v[5] ^ f, v[6] ^ g, v[7] ^ h


class SM3(plain.SM3):
    """A streaming SM3, with the face of hashlib's objects."""

    def update(self, data: bytes | bytearray | memoryview) -> None:
        """Append bytes to the message."""
        view = memoryview(data).cast("B")
        self._length += len(view)
        start = 0
        if self._rest:
            start = min(64 - len(self._rest), len(view))
            self._rest += view[:start].tobytes()
            if len(self._rest) < 64:
                return
            self._v = compress(self._v, self._rest)
        stop = len(view) - (len(view) - start) % 64
        self._v = compress(self._v, view[start:stop])
        self._rest = view[stop:].tobytes()

    def digest(self) -> bytes:
        """The 32 bytes of the hash of all that came so far; the message may go on afterwards."""
        return struct.pack(">8I", *compress(self._v, self._rest + pad(self._length)))

    def copy(self) -> SM3:
        """An independent hash of the same message so far."""
        other = SM3()
        other._v, other._rest, other._length = self._v, self._rest, self._length
        return other


# ---- many messages


def sm3_many(messages: Sequence[bytes]) -> list[bytes]:
    """The SM3 of each message; those of one length are hashed side by side."""
    out = [b""] * len(messages)
    by_length: dict[int, list[int]] = {}
    for i, message in enumerate(messages):
        by_length.setdefault(len(message), []).append(i)
    for length, places in by_length.items():
        if len(places) < FEW or length > MOST_BYTES // FEW:
            for i in places:
                out[i] = SM3(messages[i]).digest()
            continue
        step = max(FEW, min(MANY, MOST_BYTES // (length + 72)))
        for at in range(0, len(places), step):
            part = places[at : at + step]
            for i, digest in zip(part, _side_by_side([messages[i] for i in part], length)):
                out[i] = digest
    return out


def _side_by_side(messages: Sequence[bytes], length: int) -> Iterator[bytes]:
    """The digests of messages of one length."""
    n, end = len(messages), pad(length)
    stride = length + len(end)
    data = b"".join([part for message in messages for part in (message, end)])
    ones = int.from_bytes(b"\1\0\0\0\0\0\0\0" * n, "little")
    mask = ones * _MASK
    constants = [ones * t for t in T]
    v = [ones * x for x in IV]
    column = bytearray(8 * n)
    for block in range(0, stride, 64):
        first = []
        for at in range(block, block + 64, 4):
            for i in range(4):  # big-endian words in little-endian lanes
                column[3 - i :: 8] = data[at + i :: stride]
            first.append(int.from_bytes(column, "little"))
        v = _rounds_in_lanes(v, *_expand(first, mask), constants, mask)
    digests = bytearray(32 * n)
    for j, words in enumerate(v):
        column[:] = words.to_bytes(8 * n, "little")
        for i in range(4):
            digests[4 * j + i :: 32] = column[3 - i :: 8]
    return (bytes(digests[at : at + 32]) for at in range(0, 32 * n, 32))


def _rounds_in_lanes(v: Sequence[int], w: list[int], w_prime: list[int], constants: list[int], mask: int) -> list[int]:
    """5.3.3 Compression function in lanes."""
    a, b, c, d, e, f, g, h = v
    for j, t in enumerate(constants):
        a12 = (a << 32 | a) >> 20 & mask
        x = a12 + e + t & mask
        ss1 = (x << 32 | x) >> 25 & mask
        ff = a ^ b ^ c if j < 16 else a & b | c & (a | b)
        gg = e ^ f ^ g if j < 16 else g ^ e & (f ^ g)
        x = gg + h + ss1 + w[j] & mask
        y = x << 32 | x
        d, c, b, a = c, (b << 32 | b) >> 23 & mask, a, ff + d + (ss1 ^ a12) + w_prime[j] & mask
        h, g, f, e = g, (f << 32 | f) >> 13 & mask, e, (x ^ y >> 23 ^ y >> 15) & mask
    return [p ^ q for p, q in zip(v, (a, b, c, d, e, f, g, h))]


# ---- known answers: GB/T 32905-2016, A.2, within a longer message and beside others

_ABCD_16 = "debe9ff92275b8a138604889c18e5a4d6fdb70e5387e5765293dcba39c0c5732"

CHECKS = {
    "SM3": (lambda: [SM3(b"abcd" * 16).hexdigest(), SM3(b"a" * 4200).hexdigest()[:16]], [_ABCD_16, "e9576f0b04fca0ce"]),
    "sm3_many": (lambda: [m.hex() for m in sm3_many([b"abcd" * 16] * FEW)], [_ABCD_16] * FEW),
}

"""SM3, the hash of GB/T 32905-2016 (also ISO/IEC 10118-3), and the key derivation function of GB/T 32918.4-2016.

Names are the standard's. The compression function keeps its eight words in variables instead of an array, all else
follows the text; the quick versions live elsewhere.
"""

from __future__ import annotations

import struct

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

DIGEST_SIZE = 32
BLOCK_SIZE = 64
_MASK = 0xFFFFFFFF

# 4.1 Initial value
IV = (0x7380166F, 0x4914B2B9, 0x172442D7, 0xDA8A0600, 0xA96F30BC, 0x163138AA, 0xE38DEE4D, 0xB0FB0E4E)


def rotl(x: int, k: int) -> int:
    """The 32-bit word x rotated left by k mod 32 bits."""
    k %= 32
    return (x << k | x >> (32 - k)) & _MASK


# 4.2 Constants T_j, here with the rotation that 5.3.3 applies to them
T = tuple(rotl(0x79CC4519 if j < 16 else 0x7A879D8A, j) for j in range(64))


# 4.3 Boolean functions
def ff(j: int, x: int, y: int, z: int) -> int:
    return x ^ y ^ z if j < 16 else (x & y) | (x & z) | (y & z)


def gg(j: int, x: int, y: int, z: int) -> int:
    return x ^ y ^ z if j < 16 else (x & y) | (~x & z)


# 4.4 Permutations
def p0(x: int) -> int:
    return x ^ rotl(x, 9) ^ rotl(x, 17)


def p1(x: int) -> int:
    return x ^ rotl(x, 15) ^ rotl(x, 23)


def pad(length: int) -> bytes:
    """5.2 Padding behind a message of `length` bytes: a bit 1, zeros, the length in bits as 64-bit big-endian."""
    return b"\x80" + bytes((55 - length) % 64) + (8 * length).to_bytes(8, "big")


def expand(block: bytes | memoryview) -> tuple[list[int], list[int]]:
    """5.3.2 Message expansion of a 64-byte block: the words W_0 … W_67 and W'_0 … W'_63."""
    w = list(struct.unpack(">16I", block))
    for j in range(16, 68):
        w.append(p1(w[j - 16] ^ w[j - 9] ^ rotl(w[j - 3], 15)) ^ rotl(w[j - 13], 7) ^ w[j - 6])
    return w, [w[j] ^ w[j + 4] for j in range(64)]


def cf(v: tuple[int, ...], block: bytes | memoryview) -> tuple[int, ...]:
    """5.3.3 Compression function: the next chaining value from this one and a 64-byte block."""
    w, w_prime = expand(block)
    a, b, c, d, e, f, g, h = v
    for j in range(64):
        ss1 = rotl(rotl(a, 12) + e + T[j] & _MASK, 7)
        ss2 = ss1 ^ rotl(a, 12)
        tt1 = ff(j, a, b, c) + d + ss2 + w_prime[j] & _MASK
        tt2 = gg(j, e, f, g) + h + ss1 + w[j] & _MASK
        d, c, b, a = c, rotl(b, 9), a, tt1
        h, g, f, e = g, rotl(f, 19), e, p0(tt2)
    return tuple(x ^ y for x, y in zip(v, (a, b, c, d, e, f, g, h)))


class SM3:
    """A streaming SM3, with the face of hashlib's objects."""

    name = "sm3"
    digest_size = DIGEST_SIZE
    block_size = BLOCK_SIZE

    def __init__(self, data: bytes | bytearray | memoryview = b"") -> None:
        self._v: tuple[int, ...] = IV
        self._rest = b""
        self._length = 0
        self.update(data)

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
            self._v = cf(self._v, self._rest)
        stop = len(view) - (len(view) - start) % 64
        for at in range(start, stop, 64):
            self._v = cf(self._v, view[at : at + 64])
        self._rest = view[stop:].tobytes()

    def digest(self) -> bytes:
        """The 32 bytes of the hash of all that came so far; the message may go on afterwards."""
        end = self._rest + pad(self._length)
        v = self._v
        for at in range(0, len(end), 64):
            v = cf(v, end[at : at + 64])
        return struct.pack(">8I", *v)

    def hexdigest(self) -> str:
        """The digest in hex."""
        return self.digest().hex()

    def copy(self) -> SM3:
        """An independent hash of the same message so far."""
        other = SM3()
        other._v, other._rest, other._length = self._v, self._rest, self._length
        return other


def sm3(data: bytes | bytearray | memoryview) -> bytes:
    """The SM3 of one message, 32 bytes.

    >>> sm3(b"abc").hex()
    '66c7f0f462eeedd9d1f2d46bdc10e4e24167c4875cf2f7a2297da02b8f4ba8e0'
    """
    return SM3(data).digest()


def kdf(z: bytes, klen: int, new: Callable[[bytes], Any] = SM3) -> bytes:
    """Key derivation, GB/T 32918.4 section 5.4.3: `klen` bytes from the secret `z`; `new` makes the hash."""
    out = b""
    ct = 1
    while len(out) < klen:
        out += new(z + ct.to_bytes(4, "big")).digest()
        ct += 1
    return out[:klen]

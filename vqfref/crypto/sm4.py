"""SM4, the block cipher of GB/T 32907-2016, and its counter mode as VQF uses it (GB/T 17964, NIST SP 800-38A 6.5).

Counter: all 128 bits, big-endian, plus one a block, wrapping at 2^128. The quick version lives elsewhere.
"""

from __future__ import annotations

import struct

from vqfref.errors import UsageError

BLOCK_SIZE = 16
_MASK = 0xFFFFFFFF

# 6.2 S-box
SBOX = bytes.fromhex(
    "d690e9fecce13db716b614c228fb2c05 2b679a762abe04c3aa44132649860699"
    "9c4250f491ef987a33540b43edcfac62 e4b31ca9c908e89580df94fa758f3fa6"
    "4707a7fcf37317ba83593c19e6854fa8 686b81b27164da8bf8eb0f4b70569d35"
    "1e240e5e6358d1a225227c3b01217887 d40046579fd327524c3602e7a0c4c89e"
    "eabf8ad240c738b5a3f7f2cef96115a1 e0ae5da49b341a55ad933230f58cb1e3"
    "1df6e22e8266ca60c02923ab0d534e6f d5db3745defd8e2f03ff6a726d6c5b51"
    "8d1baf92bbddbc7f11d95c411f105ad8 0ac13188a5cd7bbd2d74d012b8e5b4b0"
    "8969974a0c96777e65b9f109c56ec684 18f07dec3adc4d2079ee5f3ed7cb3948"
)

# 7.3 Key expansion: system parameter FK and fixed parameters CK
FK = (0xA3B1BAC6, 0x56AA3350, 0x677D9197, 0xB27022DC)
CK = tuple(int.from_bytes(bytes((4 * i + j) * 7 % 256 for j in range(4)), "big") for i in range(32))


def rotl(x: int, k: int) -> int:
    """The 32-bit word x rotated left by k bits."""
    return (x << k | x >> (32 - k)) & _MASK


def tau(a: int) -> int:
    """6.2 The S-box on each byte of a word."""
    return SBOX[a >> 24] << 24 | SBOX[a >> 16 & 255] << 16 | SBOX[a >> 8 & 255] << 8 | SBOX[a & 255]


def t(a: int) -> int:
    """6.2 The round's mixing: tau, then the linear transformation L."""
    b = tau(a)
    return b ^ rotl(b, 2) ^ rotl(b, 10) ^ rotl(b, 18) ^ rotl(b, 24)


def t_prime(a: int) -> int:
    """7.3 The mixing of the key expansion: tau, then L'."""
    b = tau(a)
    return b ^ rotl(b, 13) ^ rotl(b, 23)


def expand_key(key: bytes) -> tuple[int, ...]:
    """7.3 The 32 round keys of a 16-byte key. Raises UsageError for another length."""
    if len(key) != 16:
        raise UsageError("sm4.length.key", "key of %d bytes, expected 16" % len(key))
    k = [mk ^ fk for mk, fk in zip(struct.unpack(">4I", key), FK)]
    for i in range(32):
        k.append(k[i] ^ t_prime(k[i + 1] ^ k[i + 2] ^ k[i + 3] ^ CK[i]))
    return tuple(k[4:])


def encrypt_block(rk: tuple[int, ...], block: bytes) -> bytes:
    """7.1 One block of 16 bytes through 32 rounds and the reverse transformation R. Raises UsageError for another length."""
    if len(block) != 16:
        raise UsageError("sm4.length.shape", "block of %d bytes, expected 16" % len(block))
    x0, x1, x2, x3 = struct.unpack(">4I", block)
    for k in rk:
        x0, x1, x2, x3 = x1, x2, x3, x0 ^ t(x1 ^ x2 ^ x3 ^ k)
    return struct.pack(">4I", x3, x2, x1, x0)


def decrypt_block(rk: tuple[int, ...], block: bytes) -> bytes:
    """7.2 The same rounds with the keys in reverse order."""
    return encrypt_block(rk[::-1], block)


def sm4_ctr(key: bytes, iv: bytes, data: bytes | memoryview, offset: int = 0) -> bytes:
    """Encrypt or decrypt `data`, which starts `offset` bytes into the stream whose first counter is `iv`.

    Returns as many bytes as it was given. Raises UsageError for a key or an iv that is not 16 bytes long.

    >>> key = bytes.fromhex("0123456789abcdeffedcba9876543210")
    >>> sm4_ctr(key, b"\\xff" * 16, bytes(33)).hex()
    '6811af7e097364e786fb45ce5d9a60f02677f46b09c122cc975533105bd4a22a4e'
    """
    if len(iv) != 16:
        raise UsageError("sm4.length.iv", "iv of %d bytes, expected 16" % len(iv))
    if offset < 0:
        raise UsageError("sm4.offset.range", "offset %d in the stream, expected 0 or more" % offset)
    rk = expand_key(key)
    data = memoryview(data).cast("B")
    skip = offset % 16
    counter = int.from_bytes(iv, "big") + offset // 16
    stream = bytearray()
    while len(stream) < skip + len(data):
        stream += encrypt_block(rk, (counter % (1 << 128)).to_bytes(16, "big"))
        counter += 1
    return bytes(a ^ b for a, b in zip(data, stream[skip:]))

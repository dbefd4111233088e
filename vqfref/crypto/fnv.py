"""FNV-1a, 64 bits: the checksum of a plain VQF file. It detects accidents and authenticates nothing.

Follows draft-eastlake-fnv, section 2 (FNV-1a). Leaves out the other widths and FNV-1.
"""

from __future__ import annotations

OFFSET_BASIS = 0xCBF29CE484222325
PRIME = 0x100000001B3
_MASK = (1 << 64) - 1


def fnv1a64(data: bytes | bytearray | memoryview, h: int = OFFSET_BASIS) -> int:
    """The FNV-1a-64 of `data`, continuing from `h`, the hash of what came before.

    >>> hex(fnv1a64(b"a"))
    '0xaf63dc4c8601ec8c'
    """
    for byte in memoryview(data).cast("B"):
        h = (h ^ byte) * PRIME & _MASK
    return h

"""HMAC (RFC 2104; GB/T 15852.2) over a hash with 64-byte blocks; here SM3. Also a comparison that does not stop early."""

from __future__ import annotations

from vqfref.crypto.sm3 import BLOCK_SIZE, SM3

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

_IPAD = bytes(b ^ 0x36 for b in range(256))
_OPAD = bytes(b ^ 0x5C for b in range(256))


class HMAC:
    """A streaming HMAC; `new` makes the hash. A key longer than a block is hashed first (RFC 2104, section 2)."""

    def __init__(self, key: bytes, data: bytes = b"", new: Callable[[], Any] = SM3) -> None:
        if len(key) > BLOCK_SIZE:
            h = new()
            h.update(key)
            key = h.digest()
        key = key.ljust(BLOCK_SIZE, b"\0")
        self._inner, self._outer = new(), new()
        self._inner.update(key.translate(_IPAD))
        self._outer.update(key.translate(_OPAD))
        self.update(data)

    def update(self, data: bytes | memoryview) -> None:
        """Append bytes to the message."""
        self._inner.update(data)

    def digest(self) -> bytes:
        """The tag of all that came so far."""
        outer = self._outer.copy()
        outer.update(self._inner.digest())
        tag: bytes = outer.digest()
        return tag


def hmac_sm3(key: bytes, data: bytes) -> bytes:
    """The HMAC-SM3 of one message, 32 bytes.

    >>> hmac_sm3(b"key", b"The quick brown fox jumps over the lazy dog").hex()
    'bd4a34077888162b210645b8ebf74b9af357303789357a27c7fc457244ebd398'
    """
    return HMAC(key, data).digest()


def equal(a: bytes, b: bytes) -> bool:
    """Are two tags equal? Looks at every byte, whatever the first difference."""
    if len(a) != len(b):
        return False
    difference = 0
    for x, y in zip(a, b):
        difference |= x ^ y
    return difference == 0

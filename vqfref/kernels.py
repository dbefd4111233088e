"""The one place that chooses between the plain version of an operation and a quick one.

Callers import hot operations from here and never from their own files. The only quick one so far is hashlib's SM3,
where the interpreter's OpenSSL has it and gives the right answer; VQFREF_PURE=1 in the environment turns it off.
"""

from __future__ import annotations

import os

from vqfref.crypto.fnv import fnv1a64
from vqfref.crypto.sm3 import SM3
from vqfref.crypto.sm4 import sm4_ctr
from vqfref.quant.blocks import (
    g256_encode,
    q4_0_decode,
    q4_0_encode,
    q4i_encode,
    q8_0_decode,
    q8_0_encode,
)
from vqfref.quant.floats import all_finite, bf16_decode, f16_decode, f32_decode
from vqfref.quant.matmul import dot_float, matvec, matvec_float, matvec_quantized, quantize_activation, rows_of
from vqfref.quant.minifloat import e4m3_decode, e5m2_decode, e8m0_decode
from vqfref.quant.tiles import tile, untile

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

__all__ = [
    "all_finite", "bf16_decode", "dot_float", "e4m3_decode", "e5m2_decode", "e8m0_decode", "f16_decode", "f32_decode",
    "fnv1a64", "g256_encode", "matvec", "matvec_float", "matvec_quantized", "q4_0_decode", "q4_0_encode",
    "q4i_encode", "q8_0_decode", "q8_0_encode", "quantize_activation", "rows_of", "sm3", "sm3_new", "sm4_ctr", "tile", "untile",
]  # fmt: skip

# GB/T 32905-2016, A.1
_SM3_ABC = "66c7f0f462eeedd9d1f2d46bdc10e4e24167c4875cf2f7a2297da02b8f4ba8e0"
_new: Any = None


def sm3_new(data: bytes | bytearray | memoryview = b"") -> Any:
    """A streaming SM3 with hashlib's face: update, digest, hexdigest, copy."""
    global _new
    if _new is None:
        _new = SM3 if os.environ.get("VQFREF_PURE") == "1" else _hashlib_sm3() or SM3
    return _new(data)


def sm3(data: bytes | bytearray | memoryview) -> bytes:
    """The SM3 of one message, 32 bytes."""
    digest: bytes = sm3_new(data).digest()
    return digest


def _hashlib_sm3() -> Any:
    """hashlib's SM3, or None. Its algorithms_available does not always tell, so try it."""
    try:
        import hashlib

        def new(data: bytes | bytearray | memoryview = b"") -> Any:
            return hashlib.new("sm3", data)

        return new if new(b"abc").hexdigest() == _SM3_ABC else None
    except (ImportError, ValueError):
        return None

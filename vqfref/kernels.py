"""The one place that chooses between the plain version of an operation and a quick one.

Callers import hot operations from here and never from their own files. A quick version is chosen at the first call: if
there is one in fast/, if VQFREF_PURE is not 1 in the environment, and if it gives a known answer; one that does not is
never used, and a warning says so. SM3 comes from hashlib where the interpreter's OpenSSL has it and gives the right
answer. Without the folder fast/ everything here still works.

What has a plain twin of several lines rather than a name elsewhere (many messages at once, a matrix or a public key that is
used many times) has it here.
"""

from __future__ import annotations

import os

from vqfref.crypto import fnv, sm2, sm4
from vqfref.crypto.hmac_sm3 import HMAC
from vqfref.crypto.sm3 import SM3
from vqfref.errors import SignatureError
from vqfref.quant import blocks, floats, matmul, tiles
from vqfref.quant.floats import f32_decode
from vqfref.quant.matmul import dot_float, matvec_float, rows_of
from vqfref.quant.minifloat import e4m3_decode, e5m2_decode, e8m0_decode

TYPE_CHECKING = False
if TYPE_CHECKING:
    from array import array
    from typing import Any, Callable, Sequence, TypeVar

    from vqfref.quant.matmul import Activation

    F = TypeVar("F", bound=Callable[..., Any])

__all__ = [
    "PackedMatrix", "Verifier", "all_finite", "bf16_decode", "bf16_encode", "choices", "dot_float", "e4m3_decode",
    "e5m2_decode", "e8m0_decode", "f16_decode", "f16_encode", "f16_encode_truncated", "f32_decode", "fnv1a64",
    "g256_encode", "hmac_sm3", "matvec", "matvec_float", "matvec_quantized", "packed_matrix", "q4_0_decode",
    "q4_0_encode", "q4i_encode", "q8_0_decode", "q8_0_encode", "quantize_activation", "rows_of", "sm2_check",
    "sm2_check_digest", "sm2_public_key", "sm2_sign", "sm2_sign_with_nonce", "sm3", "sm3_many", "sm3_new", "sm4_ctr",
    "tile", "untile", "versions",
]  # fmt: skip

# GB/T 32905-2016, A.1
_SM3_ABC = "66c7f0f462eeedd9d1f2d46bdc10e4e24167c4875cf2f7a2297da02b8f4ba8e0"
_new: Any = None
_chosen: dict[str, Any] = {}  # operation: the version that this process uses
_operations: dict[str, tuple[str, Any]] = {}  # operation: its file in fast/, its plain version


# ---- the choice


def _quick(plain: F, file: str, name: str = "") -> F:
    """A function that does `plain`, or what has its name in that file of fast/: it chooses at its first call."""
    name = name or plain.__name__
    _operations[name] = file, plain

    def call(*args: Any, **kwargs: Any) -> Any:
        return (_chosen.get(name) or _choose(name))(*args, **kwargs)

    result: Any = call
    result.__name__ = result.__qualname__ = name
    result.__doc__ = plain.__doc__
    result.__wrapped__ = plain
    chooser: F = result
    return chooser


def _choose(name: str) -> Any:
    """The version of an operation that this process uses from now on."""
    file, plain = _operations[name]
    _chosen[name] = plain
    if os.environ.get("VQFREF_PURE") == "1":
        return plain
    try:
        module: Any = __import__("vqfref.fast." + file, fromlist=["CHECKS"])
    except ImportError:
        return plain
    try:
        attribute = plain.__name__.lstrip("_")
        answer, right = module.CHECKS[attribute]
        is_right = answer() == right
    except Exception:  # whatever it is: the plain version can do without
        is_right = False
    if is_right:
        _chosen[name] = getattr(module, attribute)
    else:
        _warn("the quick %s gives a wrong answer on this machine; the plain one takes its place" % name)
    return _chosen[name]


def _warn(text: str) -> None:
    try:
        import warnings
    except ImportError:
        return
    warnings.warn(text, RuntimeWarning, stacklevel=4)


def versions(name: str) -> tuple[Any, Any]:
    """The plain and the quick version of an operation, to compare them; None for a quick one that is not used here."""
    plain, used = _operations[name][1], _chosen.get(name) or _choose(name)
    return plain, None if used is plain else used


def choices() -> dict[str, str]:
    """For every operation that may be quick the version that this process uses: fast, plain or hashlib."""
    sm3_new()
    used = {name: _chosen.get(name) or _choose(name) for name in sorted(_operations)}
    found = {name: "plain" if used[name] is plain else "fast" for name, (_, plain) in _operations.items()}
    if _new is not used["sm3"]:
        found["sm3"] = found["sm3_many"] = "hashlib" if _new is not SM3 else "plain"
    return found


# ---- crypto

fnv1a64 = _quick(fnv.fnv1a64, "fnv")
sm4_ctr = _quick(sm4.sm4_ctr, "sm4")


def sm3_new(data: bytes | bytearray | memoryview = b"") -> Any:
    """A streaming SM3 with hashlib's face: update, digest, hexdigest, copy."""
    global _new
    if _new is None:
        _new = SM3 if os.environ.get("VQFREF_PURE") == "1" else _hashlib_sm3() or _choose("sm3")
    return _new(data)


def _hashlib_sm3() -> Any:
    """hashlib's SM3, or None. Its algorithms_available does not always tell, so try it."""
    try:
        import hashlib

        def new(data: bytes | bytearray | memoryview = b"") -> Any:
            return hashlib.new("sm3", data)

        return new if new(b"abc").hexdigest() == _SM3_ABC else None
    except (ImportError, ValueError):
        return None


def sm3(data: bytes | bytearray | memoryview) -> bytes:
    """The SM3 of one message, 32 bytes."""
    digest: bytes = sm3_new(data).digest()
    return digest


def _sm3_many(messages: Sequence[bytes]) -> list[bytes]:
    return [SM3(message).digest() for message in messages]


_operations["sm3"] = "sm3", SM3
_lanes = _quick(_sm3_many, "sm3", "sm3_many")


def sm3_many(messages: Sequence[bytes]) -> list[bytes]:
    """The SM3 of each message. Without hashlib, messages of one length are hashed side by side."""
    sm3_new()
    return _lanes(messages) if _new in (SM3, _chosen.get("sm3")) else [sm3(message) for message in messages]


def hmac_sm3(key: bytes, data: bytes) -> bytes:
    """The HMAC-SM3 of one message, 32 bytes."""
    return HMAC(key, data, sm3_new).digest()


sm2_public_key = _quick(sm2.public_key, "sm2", "sm2_public_key")
sm2_sign_with_nonce = _quick(sm2.sign_with_nonce, "sm2", "sm2_sign_with_nonce")
sm2_check_digest = _quick(sm2.check_digest, "sm2", "sm2_check_digest")


def sm2_sign(d: int, message: bytes, user_id: bytes = sm2.DEFAULT_ID) -> bytes:
    """The signature r ‖ s of a message, 64 bytes, verified before it is given out; `sm2.sign` with quick parts."""
    if not 1 <= d <= sm2.n - 2:
        raise SignatureError("sm2.private.range", "private key is not in 1 … n-2")
    P = sm2_public_key(d)
    e = sm2.digest(P, message, user_id, sm3)
    while True:
        try:
            r, s = sm2_sign_with_nonce(d, e, sm2.random_scalar(sm2.n))
        except SignatureError:  # one nonce in 2^254
            continue
        sm2_check_digest(P, e, r, s)
        return r.to_bytes(32, "big") + s.to_bytes(32, "big")


def sm2_check(P: tuple[int, int], message: bytes, signature: bytes, user_id: bytes = sm2.DEFAULT_ID) -> None:
    """Verify a 64-byte signature r ‖ s of a message; `sm2.check` with quick parts. Raises SignatureError."""
    sm2_check_digest(P, sm2.digest(P, message, user_id, sm3), *_r_s(signature))


def _r_s(signature: bytes) -> tuple[int, int]:
    if len(signature) != 64:
        raise SignatureError("sm2.length.signature", "signature of %d bytes, expected 64" % len(signature))
    return int.from_bytes(signature[:32], "big"), int.from_bytes(signature[32:], "big")


def _digest_checker(P: tuple[int, int]) -> Callable[[int, int, int], None]:
    """`sm2.check_digest` for one key: a function of e, r and s."""
    return lambda e, r, s: sm2.check_digest(P, e, r, s)


_known_key = _quick(_digest_checker, "sm2", "sm2_known_key")


class Verifier:
    """A public key by which many signatures are verified: what can be computed once is. P is a checked point."""

    def __init__(self, P: tuple[int, int]) -> None:
        self.P = P
        self.check_digest = _known_key(P)

    def check(self, message: bytes, signature: bytes, user_id: bytes = sm2.DEFAULT_ID) -> None:
        """Verify a 64-byte signature r ‖ s of a message. Raises SignatureError that says what is wrong."""
        self.check_digest(sm2.digest(self.P, message, user_id, sm3), *_r_s(signature))


# ---- numbers

all_finite = _quick(floats.all_finite, "floats")
bf16_decode = _quick(floats.bf16_decode, "floats")
bf16_encode = _quick(floats.bf16_encode, "floats")
f16_decode = _quick(floats.f16_decode, "floats")
f16_encode = _quick(floats.f16_encode, "floats")
f16_encode_truncated = _quick(floats.f16_encode_truncated, "floats")
g256_encode = _quick(blocks.g256_encode, "blocks")
q4_0_decode = _quick(blocks.q4_0_decode, "blocks")
q4_0_encode = _quick(blocks.q4_0_encode, "blocks")
q4i_encode = _quick(blocks.q4i_encode, "blocks")
q8_0_decode = _quick(blocks.q8_0_decode, "blocks")
q8_0_encode = _quick(blocks.q8_0_encode, "blocks")
quantize_activation = _quick(matmul.quantize_activation, "blocks")
matvec_quantized = _quick(matmul.matvec_quantized, "matmul")
tile = _quick(tiles.tile, "tiles")
untile = _quick(tiles.untile, "tiles")


def matvec(data: bytes | memoryview, x: Sequence[float], encoding: str, layout: str = "linear") -> array[float]:
    """A matrix of Q8_0 or Q4_0 rows times the vector x, whose length is the number of columns, a multiple of 32."""
    return matvec_quantized(data, quantize_activation(x), encoding, layout)


def _multiplier(
    data: bytes | memoryview, encoding: str, layout: str, cols: int
) -> Callable[[Activation], array[float]]:
    """`matvec_quantized` for one matrix: a function of the activation."""
    return lambda activation: matmul.matvec_quantized(data, activation, encoding, layout)


_packed = _quick(_multiplier, "matmul", "packed_matrix")


class PackedMatrix:
    """A matrix of Q8_0 or Q4_0 rows by which many vectors are multiplied. It may hold the weights in another form, of four
    times their size; the plain one keeps `data`."""

    def __init__(self, data: bytes | memoryview, encoding: str, layout: str, cols: int) -> None:
        self.cols = cols
        self.matvec_quantized = _packed(data, encoding, layout, cols)

    def matvec(self, x: Sequence[float]) -> array[float]:
        """The matrix times the vector x of `cols` values."""
        return self.matvec_quantized(quantize_activation(x))


def packed_matrix(data: bytes | memoryview, encoding: str, layout: str, cols: int) -> PackedMatrix:
    """A matrix made ready for `matvec` with many vectors, equal to the function `matvec` with each."""
    return PackedMatrix(data, encoding, layout, cols)

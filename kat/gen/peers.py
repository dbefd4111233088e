"""The encodings of numbers by others' hands: numpy, gguf-py, ml_dtypes, and numpy again in the order of the formats' own
texts. What the peers don't have is proved on the engine's bytes in kat/files/quant. Uses nothing of vqfref.

An encoder here takes `how`, which names a slip that an implementation might make; "" is none. So that a generator can
look for values on which the slip shows.
"""

from __future__ import annotations

import hashlib
import json
import math

import blocks as vqf
import gguf
import ml_dtypes
import numpy as np
from suite import KAT, data, prove

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

f32 = np.float32

# type: (elements a block, bytes a block)
SIZES = {
    "vqf_q8_0": (32, 34), "vqf_q4_0": (32, 18), "vqf_q4i": (32, 34), "vqf_g256": (32, 34), "vqf_q2_1": (32, 16),
    "q4_0": (32, 18), "q4_1": (32, 20), "q5_0": (32, 22), "q5_1": (32, 24), "q8_0": (32, 34), "q8_1": (32, 36),
    "q2k": (256, 84), "q3k": (256, 110), "q4k": (256, 144), "q5k": (256, 176), "q6k": (256, 210), "q8k": (256, 292),
    "f8q8": (32, 33), "mxfp4": (32, 17),
    "afq2": (64, 24), "afq3": (64, 32), "afq4": (64, 40), "afq6": (64, 56), "afq8": (64, 72),
}  # fmt: skip
GGUF = {
    "vqf_q8_0": "Q8_0", "vqf_q4_0": "Q4_0", "vqf_q4i": "Q8_0", "vqf_g256": "Q8_0", "q4_0": "Q4_0", "q4_1": "Q4_1",
    "q5_0": "Q5_0", "q5_1": "Q5_1", "q8_0": "Q8_0", "q2k": "Q2_K", "q3k": "Q3_K", "q4k": "Q4_K", "q5k": "Q5_K",
    "q6k": "Q6_K",
}  # fmt: skip
GGUF_ENCODES = ("q4_0", "q4_1", "q5_0", "q5_1", "q8_0")


def floats(values: Any) -> bytes:
    """Single-precision values as a case has them."""
    return bytes(np.asarray(values, "<f4").tobytes())


def half(x: float) -> bytes:
    with np.errstate(over="ignore"):
        return bytes(np.float16(x).astype("<f2").tobytes())


def random(label: str, *shape: int) -> Any:
    """Uniform values in -1 … 1 that anybody can make again."""
    words = np.frombuffer(data(label, 4 * math.prod(shape)), "<i4").astype("f4")
    return (words / f32(2**31)).reshape(shape)


# ---- decoders


def decode(name: str, content: bytes) -> Any:
    """The values of whole blocks as a flat array of float32."""
    _, size = SIZES[name]
    n = len(content) // size
    if n == 0:
        return np.zeros(0, "f4")
    raw = np.frombuffer(content, "u1").reshape(n, size)
    with np.errstate(all="ignore"):
        if name in GGUF:
            return gguf.quants.dequantize(raw, gguf.GGMLQuantizationType[GGUF[name]]).astype("f4").reshape(-1)
        return OWN[name[:3]](name, content, raw).astype("f4").reshape(-1)


def decode_q8_1(_: str, content: bytes, raw: Any) -> Any:
    return raw[:, :2].copy().view("<f2").astype("f4") * raw[:, 4:].view("i1").astype("f4")


def decode_q8k(_: str, content: bytes, raw: Any) -> Any:
    return raw[:, :4].copy().view("<f4") * raw[:, 4:260].view("i1").astype("f4")


def decode_q2_1(_: str, content: bytes, raw: Any) -> Any:
    heads = raw[:, :8].copy().view("<f2").astype("f4").reshape(-1, 2, 2)
    codes = raw[:, 8:, None] >> np.arange(0, 8, 2, dtype="u1") & 3
    return heads[:, :, 1:] + heads[:, :, :1] * codes.reshape(-1, 2, 16).astype("f4")


def decode_f8q8(_: str, content: bytes, raw: Any) -> Any:
    scales = raw[:, :1].copy().view(ml_dtypes.float8_e4m3fn).astype("f4") / f32(416)
    return scales * raw[:, 1:].view("i1").astype("f4")


def decode_mxfp4(_: str, content: bytes, raw: Any) -> Any:
    n = len(raw)
    packed = np.frombuffer(content[: 16 * n], "u1").reshape(n, 16)
    scales = (np.frombuffer(content[16 * n :], "u1").astype("u4") << 23).view("f4")
    nibbles = np.stack([packed & 15, packed >> 4], axis=2).reshape(n, 32)
    return nibbles.view(ml_dtypes.float4_e2m1fn).astype("f4") * scales.reshape(n, 1)


def decode_afq(name: str, content: bytes, raw: Any) -> Any:
    n, bits = len(raw), int(name[3:])
    stream = np.unpackbits(np.frombuffer(content[: 8 * bits * n], "u1"), bitorder="little").reshape(n, 64, bits)
    codes = (stream * (1 << np.arange(bits))).sum(axis=2).astype("f4")
    scales, biases = np.frombuffer(content[8 * bits * n :], "<f4").reshape(2, n, 1)
    return biases + codes * scales


OWN = {
    "q8_": decode_q8_1, "q8k": decode_q8k, "vqf": decode_q2_1, "f8q": decode_f8q8, "mxf": decode_mxfp4,
    "afq": decode_afq,
}  # fmt: skip


# ---- encoders; x: rows of one block


def encode(name: str, values: Any, how: str = "") -> bytes:
    """Whole blocks of float32 values, the K-quants apart; f8q8 pads the last one."""
    elements, _ = SIZES[name]
    values = np.asarray(values, "f4").reshape(-1)
    if name == "f8q8":
        values = np.append(values, np.zeros(-len(values) % 32, "f4"))
    x = values.reshape(-1, elements)
    if len(x) == 0:
        return b""
    with np.errstate(all="ignore"):
        made: bytes = ENCODERS[name.rstrip("23468") if name.startswith("afq") else name](name, x, how)
        if how == "" and name in GGUF_ENCODES and not is_beyond_gguf(name, x):
            theirs = gguf.quants.quantize(x, gguf.GGMLQuantizationType[GGUF[name]]).tobytes()
            prove(made == theirs, "gguf-py makes the same of it: %s" % name)
        theirs = getattr(vqf, name[4:], None) if how == "" and name.startswith("vqf_") else None
        prove(theirs is None or made == theirs(x), "numpy on whole arrays makes the same of it: %s" % name)
    return made


def is_beyond_gguf(name: str, x: Any) -> bool:
    """Zeros of both signs, of which numpy's minimum takes any, or a reciprocal of d that is infinite."""
    zeros, tops = np.signbit(x[x == 0]), np.abs(x).max(axis=1)
    any_zero = name in ("q4_1", "q5_1") and zeros.any() and not zeros.all()
    return bool(any_zero or (tops[tops > 0] < 2.0**-120).any())


def scaled(x: Any, d: Any, how: str) -> Any:
    """x times the reciprocal of d, in single precision, or with a slip."""
    if how == "division":
        return np.where(d == 0, f32(0), x / d)
    if how == "double":
        return np.where(d == 0, 0.0, x.astype("f8") * (1 / d.astype("f8")))
    if how == "rounded-d":
        d = d.astype("f2").astype("f4")
    return x * np.where(d == 0, f32(0), f32(1) / d)


def peak(x: Any, how: str) -> Any:
    """The first element of largest magnitude of each row."""
    magnitudes = np.abs(x)
    at = x.shape[1] - 1 - magnitudes[:, ::-1].argmax(axis=1) if how == "last-peak" else magnitudes.argmax(axis=1)
    found = x[np.arange(len(x)), at].reshape(-1, 1)
    return np.abs(found) if how == "unsigned-peak" else found


def cut(t: Any, high: int) -> Any:
    """Truncated and kept in 0 … high; 0 for a NaN."""
    return np.clip(np.trunc(np.where(np.isnan(t), 0, t)), 0, high).astype("u1")


def plus(t: Any, bias: float, how: str) -> Any:
    """The sum in single precision, of a product that was rounded before."""
    if how == "one-rounding":
        return (t.astype("f8") + bias).astype("f4")
    if how == "exact-sum":
        return t.astype("f8") + bias
    return t + (bias if t.dtype == "f8" else f32(bias))


def symmetric(x: Any, n: int, how: str) -> tuple[Any, Any]:
    d = peak(x, how) / f32(-n)
    if how == "one-rounding":  # a fused multiply-add
        t = x.astype("f8") * np.where(d == 0, f32(0), f32(1) / d).astype("f8")
    else:
        t = scaled(x, d, how)
    return d, cut(plus(t, n + 0.5, how), 2 * n - 1)


def nibbles(codes: Any, how: str = "") -> Any:
    if how == "neighbours":
        return codes[:, ::2] & 15 | codes[:, 1::2] << 4
    if how == "swapped":
        codes = np.hstack([codes[:, 16:], codes[:, :16]])
    return codes[:, :16] & 15 | codes[:, 16:] << 4


def fifth_bits(codes: Any) -> Any:
    return np.packbits(codes >> 4 & 1, axis=1, bitorder="little")


def heads(*values: Any) -> Any:
    return np.hstack([v.astype("<f2").reshape(-1, 1).view("u1") for v in values])


def encode_symmetric(name: str, x: Any, how: str) -> bytes:
    five = name == "q5_0"
    d, codes = symmetric(x, 16 if five else 8, how)
    return np.hstack([heads(d), *([fifth_bits(codes)] if five else []), nibbles(codes, how)]).tobytes()


def encode_affine(name: str, x: Any, how: str) -> bytes:
    five = name == "q5_1"
    low, high, n = x.min(axis=1, keepdims=True), x.max(axis=1, keepdims=True), 31 if five else 15
    for row, m in zip(x, low):  # of zeros of both signs the first
        if m[0] == 0:
            m[0] = row[row == 0][0]
    d = (high - low) / f32(n)
    codes = cut(plus(scaled(x - low, d, how), 0.5, how), n)
    return np.hstack([heads(d, low), *([fifth_bits(codes)] if five else []), nibbles(codes, how)]).tobytes()


def away(t: Any, how: str) -> Any:
    """Rounded to the nearest, halves away from zero; kept in an int8."""
    if how == "half-even":
        t = np.rint(t)
    elif how == "add-half":
        t = np.trunc(np.where(t < 0, t - f32(0.5), t + f32(0.5)))
    else:
        whole = np.trunc(t)
        t = whole + np.where(np.abs(t - whole) >= 0.5, np.sign(t), 0)
    return np.clip(np.where(np.isnan(t), 0, t), -128, 127).astype("i1")


def encode_nearest(name: str, x: Any, how: str) -> bytes:
    d = np.abs(x).max(axis=1, keepdims=True) / f32(127)
    codes = away(scaled(x, d, how), how)
    if name == "q8_0":
        return np.hstack([heads(d), codes.view("u1")]).tobytes()
    s = d.astype("f2") * codes.astype("i4").sum(axis=1, keepdims=True).astype("f2")
    return np.hstack([heads(d, s), codes.view("u1")]).tobytes()


def encode_vqf_q8(name: str, x: Any, how: str) -> bytes:
    groups = x
    if name == "vqf_g256":
        groups = x[: len(x) // 8 * 8].reshape(-1, 256)
    s = np.maximum(np.maximum(f32(1e-10), np.abs(groups).max(axis=1, keepdims=True)) / f32(127), f32(1e-10))
    if how == "no-floor":
        s = np.abs(groups).max(axis=1, keepdims=True) / f32(127)
    s = np.repeat(s, groups.shape[1] // 32, axis=0)
    t = scaled(groups.reshape(-1, 32), s, how)
    if how == "half-even":
        codes = np.rint(t)
    elif how == "half-up":
        codes = np.floor(t + f32(0.5))
    elif how == "legacy":
        codes = np.trunc(t + f32(0.5))
    elif how == "exact-sum":
        codes = np.trunc(t.astype("f8") + np.where(t < 0, -0.5, 0.5))
    else:
        codes = np.trunc(np.where(t < 0, t - f32(0.5), t + f32(0.5)))
    made = np.hstack([heads(s), np.clip(codes, -127, 127).astype("i1").view("u1")]).tobytes()
    return made + bytes(34 * len(x) - len(made))


def encode_vqf_q4(name: str, x: Any, how: str) -> bytes:
    d, codes = symmetric(np.where(np.abs(x).max(axis=1, keepdims=True) == 0, f32(-8), x), 8, how)
    zero = np.abs(x).max(axis=1) == 0
    codes[zero] = 0 if how == "zero-is-zero" else 8
    if name == "vqf_q4_0":
        return np.hstack([heads(d), nibbles(codes, how)]).tobytes()
    return np.hstack([heads(d), codes - np.uint8(8)]).tobytes()


def encode_vqf_q2_1(_: str, x: Any, how: str) -> bytes:
    return bytes(vqf.q2_1(x))


def encode_f8q8(_: str, x: Any, how: str) -> bytes:
    d = np.abs(x).max(axis=1, keepdims=True) / f32(127)
    codes = away(scaled(x, d, how), how)
    top = d * f32(448 if how == "448" else 416)
    scales = np.minimum(top, f32(448)).astype(ml_dtypes.float8_e4m3fn)
    return np.hstack([scales.view("u1"), codes.view("u1")]).tobytes()


def encode_mxfp4(_: str, x: Any, how: str) -> bytes:
    amax = np.abs(x).max(axis=1, keepdims=True)
    s = np.clip(np.floor(np.log2(amax / f32(6))) + 127, 0, 254)
    s = np.where(amax == 0, 127, s).astype("i4")
    v = (x.astype("f8") * 2.0 ** (127 - s)).astype("f4")
    index = np.zeros(x.shape, "u1")
    for t in (0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0):
        index += np.abs(v) > t if how == "threshold-down" else np.abs(v) >= t
    codes = index | np.where(v < 0, 8, 0).astype("u1")
    return (codes[:, ::2] | codes[:, 1::2] << 4).tobytes() + s.astype("u1").tobytes()


def encode_afq(name: str, x: Any, how: str) -> bytes:
    bits = int(name[3:])
    top = (1 << bits) - 1
    low, high = x.min(axis=1, keepdims=True), x.max(axis=1, keepdims=True)
    scale = np.where(high - low < f32(1e-12), f32(1), (high - low) / f32(top))
    t = (x - low) * (f32(1) / scale) if how == "reciprocal" else (x - low) / scale
    codes = np.clip(np.rint(t) if how == "half-even" else np.floor(t.astype("f8") + 0.5), 0, top).astype("u1")
    stream = np.unpackbits(codes[:, :, None], axis=2, bitorder="little")[:, :, :bits]
    return np.packbits(stream.reshape(-1), bitorder="little").tobytes() + floats(scale) + floats(low)


ENCODERS = {
    "vqf_q8_0": encode_vqf_q8, "vqf_g256": encode_vqf_q8, "vqf_q4_0": encode_vqf_q4, "vqf_q4i": encode_vqf_q4,
    "vqf_q2_1": encode_vqf_q2_1, "q4_0": encode_symmetric, "q5_0": encode_symmetric, "q4_1": encode_affine,
    "q5_1": encode_affine, "q8_0": encode_nearest, "q8_1": encode_nearest, "f8q8": encode_f8q8, "mxfp4": encode_mxfp4,
    "afq": encode_afq,
}  # fmt: skip


# ---- tiles; a matrix: rows x block columns x bytes of a block


def tiled(content: bytes, cols: int, layout: str) -> bytes:
    """Linear rows of blocks as tiles."""
    height, chunk = {"q4_4x4": (4, 4), "q8_8x8": (8, 4), "q8_4x4": (4, 4), "q4_8x8l": (8, 8)}[layout]
    size = 18 if layout.startswith("q4") else 34
    m = np.frombuffer(content, "u1").reshape(-1, height, cols // 32, size).transpose(0, 2, 1, 3)
    groups, across = m.shape[:2]
    codes = m[..., 2:] ^ np.uint8(0x88 if size == 18 else 0)
    codes = codes.reshape(groups, across, height, -1, chunk).swapaxes(2, 3).reshape(groups, across, -1)
    return np.concatenate([m[..., :2].reshape(groups, across, -1), codes], axis=2).tobytes()


# ---- what the engines made


def prove_by_the_engines() -> None:
    """Blocks, tiles and values that mistral.rs and VQF's kernels made, made again."""
    layer = json.loads((KAT / "files" / "quant" / "layer.json").read_text("utf-8"))
    source = (np.frombuffer(bytes.fromhex(layer["source"]), "<u2").astype("u4") << 16).view("f4")
    for name, made in layer["types"].items():
        if name in SIZES:
            content = b"".join(bytes.fromhex(made.get("weight" + s, "")) for s in ("", ".scales", ".biases"))
            prove(encode(name, source) == content, "the engine's own blocks of a layer: %s" % name)
            digest = hashlib.sha256(floats(decode(name, content))).hexdigest()
            prove(digest == made["f32_sha256"], "the engine's own values of a layer: %s" % name)
    x, state = np.zeros(96 * 4096, "f4"), 0x9E3779B9
    for i in range(len(x)):  # VQF's check of its kernels: xorshift32
        state ^= state << 13 & 0xFFFFFFFF
        state ^= state >> 17
        state ^= state << 5 & 0xFFFFFFFF
        x[i] = state >> 8
    x = (x / f32(16777215) * f32(2) - f32(1)).reshape(96, 4096)
    x[32] = x[39] = 0
    x[80] = np.arange(4096) % 7 - 1000
    q8, q4 = (encode(name, x) for name in ("vqf_q8_0", "vqf_q4_0"))
    for what, content, expected in (
        ("input", floats(x), 0x46F6ECE8297797C5),
        ("q8_0", q8, 0x1F98E05C86C6F599),
        ("q8_8x8", tiled(q8, 4096, "q8_8x8"), 0x28DB4B9BFFA3D4F5),
        ("q4_0", q4, 0x4A1990FC330E1021),
        ("q4_4x4", tiled(q4, 4096, "q4_4x4"), 0x93BB0C8F1D22451D),
    ):
        prove(fnv1a64(content) == expected, "the FNV of the engine's own kernel check: %s" % what)


def fnv1a64(content: bytes) -> int:
    value = 0xCBF29CE484222325
    for byte in content:
        value = (value ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return value

"""The cases of quantize and dequantize: each field of each block, each rule of each encoder, and what is no block.

numerics.py writes them. Blocks and values come from peers.py and, for the encoders of the K-quants, from the engine's own
blocks in kat/files/quant. Uses nothing of vqfref.
"""

from __future__ import annotations

import struct

import numpy as np
from peers import SIZES, decode, encode, f32, floats, half, is_beyond_gguf, random
from suite import KAT, case, data, prove

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterator

    from suite import Case

FLAGS = {
    "nibbles": "element j in the low nibble of byte j, 16 + j in its high one",
    "high-bits": "the bits of codes that are stored apart",
    "signed-codes": "int8 codes down to -128",
    "code-offset": "what is taken off a code: 8, 16, 4, 32",
    "group-scales": "which elements a group's scale is for, and how scales are packed",
    "signed-scales": "group scales below zero",
    "mins": "what is added to or taken off all elements of a block or group",
    "half-scale": "scales of a block that are subnormal, negative, zero, the largest, infinite",
    "redundant-sum": "the sums that q8_1 and q8k store are not needed to decode",
    "f8q8-416": "the scale is divided, or multiplied, by 416, not by 448",
    "mxfp4-scale": "the scale byte as the exponent of a float: 0 is zero, 255 infinite",
    "mxfp4-codes": "the values of E2M1 and the order of their nibbles",
    "afq-stream": "codes that straddle bytes and words; all codes, then all scales, then all biases",
    "parts": "all codes come before the first scale, not block by block",
    "half-codes": "each half of a q2_1 block has its own scale and offset",
    "blocks": "every block has a scale of its own",
    "first-peak": "d comes from the first element of largest magnitude, with its sign",
    "clamp": "codes that would leave their range",
    "half-away": "codes are rounded half away from zero, on both sides of it",
    "half-up-single": "VQF adds 0.5 (8.5) in single precision and cuts: a product just below a half may round up",
    "two-roundings": "the product is rounded to single precision before the sum is",
    "single-reciprocal": "codes come from the product with 1 / d rounded to single precision, not from x / d or doubles",
    "true-division": "codes come from x / d, not from the product with a reciprocal",
    "unrounded-d": "codes come from d before it is rounded to a half",
    "scale-floor": "VQF's Q8_0 has no scale below 1e-10",
    "zero-block": "what an encoder makes of zeros alone",
    "tiny-d": "a scale so small that it is zero as a half, or its reciprocal infinite",
    "huge-d": "a scale that is infinite as a half",
    "zero-sign": "of zeros of both signs the first is the minimum",
    "zero-first": "the first of nothing but zeros gives d its sign",
    "finite": "K-quants refuse NaN and infinities",
    "vqf-nan": "VQF's code for a NaN is 0, and no NaN is the largest",
    "vqf-infinity": "an infinity makes VQF's d infinite, and all products zero or NaN",
    "group-256": "g256: one scale for 256 elements, zero bytes behind the last full group",
    "q8-1-sum": "s is the product of two halves, rounded to a half",
    "f8q8-saturate": "the scale byte ends at 448",
    "f8q8-padding": "the last block is filled with zeros",
    "mxfp4-threshold": "a value on a threshold takes the larger code",
    "mxfp4-exponent": "the scale is floor(log2(amax / 6)) in 0 … 254",
    "negative-zero": "a negative value that becomes zero keeps its sign; zero itself has none",
    "afq-constant": "a group of (nearly) equal values has scale 1",
    "k-search": "the K-quants' search for scales and codes",
    "k-zero": "K-quants of zeros, of constants, and of what is too small for a half",
    "k-large": "K-quants of what is too large for a half",
    "k-sign": "K-quants of values of one sign, and of equal magnitudes of both",
    "whole-blocks": "bytes, or values, that end inside a block",
    "type-name": "types that don't exist",
}  # fmt: skip
GENERATOR = "generator; the rules in numpy, proved on the engine's own blocks"
GGUF_PY = "gguf-py"
ENGINE = "mistralrs 0.9.5, CPU"
VQF_NUMPY = "generator; numpy, proved by the FNV of the engine's kernel check"


def slug(name: str) -> str:
    return name.replace("_", "-")


# ---- dequantize


def nibble_bytes(codes: Any) -> bytes:
    """32 codes below 16: element j low in byte j, element 16 + j high."""
    return bytes(a | b << 4 for a, b in zip(codes[:16], codes[16:]))


ORDER = [(5 * j + j // 16) % 16 for j in range(32)]  # no two halves, and no two neighbours, are alike
BYTES = [(37 * j + 11) % 256 for j in range(256)]
# name: (d, what it is)
SCALES = {
    "negative": (-1.5, "a negative d"),
    "least": (2.0**-24, "the smallest half above zero as d"),
    "subnormal": (1023 * 2.0**-24, "the largest subnormal half as d"),
    "largest": (65504, "the largest half as d"),
    "zero": (0.0, "d = 0: zeros, negative for negative codes"),
    "minus-zero": (-0.0, "d = -0"),
    "infinite": (np.inf, "d is infinite; no code is zero"),
}


def fives(codes: Any) -> bytes:
    """The u32 of fifth bits and the nibbles of 32 codes below 32."""
    return struct.pack("<I", sum(c >> 4 << e for e, c in enumerate(codes))) + nibble_bytes([c & 15 for c in codes])


def small_blocks(name: str) -> Iterator[tuple[str, str, str, bytes]]:
    """(slug, comment, flags, blocks) of the types of 32 elements with a d of one half."""
    int8 = name in ("q8_0", "q8_1", "vqf_q8_0", "vqf_q4i", "vqf_g256")
    five = name.startswith("q5")
    tail = {"q4_1": half(0), "q5_1": half(0), "q8_1": half(0)}.get(name, b"")

    def block(d: float, codes: Any, m: float | None = None) -> bytes:
        packed = bytes(c & 255 for c in codes) if int8 else fives(codes) if five else nibble_bytes(codes)
        return half(d) + (tail if m is None else half(m)) + packed

    order = [(7 * j) % 64 - 31 for j in range(32)] if int8 else [(5 * j + 3) % 32 for j in range(32)] if five else ORDER
    yield "order", "d = 1, every code another than its neighbours", "" if int8 or five else "nibbles", block(1, order)
    top, bottom = (127, -128) if int8 else (31, 0) if five else (15, 0)
    ends = [bottom if j % 2 else top for j in range(32)]
    flags = "signed-codes" if int8 else "code-offset high-bits" if five else "code-offset"
    yield "ends", "the largest and the smallest code in turn", flags, block(1, ends)
    yield "lowest", "the smallest code alone", flags, block(0.5, [bottom] * 32)
    for key, (d, text) in SCALES.items():
        codes = [c or 1 for c in order] if np.isinf(d) else order
        if np.isinf(d) and not int8:
            codes = [15 if c in (8, 16) else c for c in codes]
        if not np.isinf(d) or not tail or int8:  # inf * 0 is NaN
            yield "d-" + key, text, "half-scale", block(d, codes)
    yield "two", "two blocks with scales of their own", "blocks", block(2, order) + block(-0.25, order[::-1])
    if five:
        for key, codes in (
            ("first", [16] + [0] * 31),
            ("last", [0] * 31 + [16]),
            ("middle", [0] * 15 + [16, 16] + [0] * 15),
            ("third", [16 * (j % 3 == 0) for j in range(32)]),
        ):
            yield "high-bit-" + key, "only fifth bits: %s" % key, "high-bits", block(1, codes)
    if name in ("q4_1", "q5_1"):
        for key, m in (("one", 1.0), ("negative", -2.5), ("least", 2.0**-24), ("largest", 65504.0)):
            yield "m-" + key, "d = 0, m = %g: every element is m" % m, "mins", block(0, order, m)
        yield "m-rounds", "code * d + m is rounded once", "mins", block(0.333, order, 1000.5)
    if name == "q8_1":
        yield "sum", "s says something else than the codes", "redundant-sum", block(1, order, 65504.0)


def q2_1_blocks() -> Iterator[tuple[str, str, str, bytes]]:
    def block(d0: float, m0: float, d1: float, m1: float, codes: bytes) -> bytes:
        return half(d0) + half(m0) + half(d1) + half(m1) + codes

    order = bytes.fromhex("e44eb1931b72c639")
    yield "order", "codes in all orders, d = 1, m = 0", "half-codes", block(1, 0, 1, 0, order)
    yield "halves", "d and m of the halves differ", "half-codes", block(1, 100, 0.5, -3, order)
    yield "m0", "the first half's offset alone", "mins", block(0, 7, 0, 0, order)
    yield "m1", "the second half's offset alone", "mins", block(0, 0, 0, 7, order)
    yield "negative", "negative scales", "half-scale", block(-1, 1, -2, 2, order)
    yield "subnormal", "the smallest half as scale and offset", "half-scale", block(2.0**-24, 0, 0, 2.0**-24, order)
    yield "rounds", "the sum is rounded once", "mins", block(0.3333, 2000, 0.001, -1000, order)
    yield "two", "two blocks", "blocks", block(1, 0, 2, 1, order) + block(3, -1, 4, -2, order[::-1])


def k_blocks(name: str) -> Iterator[tuple[str, str, str, bytes]]:
    """The same for the K-quants: codes, group scales and mins, each alone."""
    order, flat = bytes(BYTES), bytes([0x55]) * 256

    def six(scales: Any, mins: Any) -> bytes:
        """The 12 bytes of q4k and q5k."""
        first = [v & 63 | later >> 4 << 6 for part in (scales, mins) for v, later in zip(part[:4], part[4:])]
        return bytes(first + [s & 15 | (m & 15) << 4 for s, m in zip(scales[4:], mins[4:])])

    def block(
        d: float, scales: Any, mins: Any = (0,) * 16, codes: bytes = flat, high: bytes = flat, dmin: float = 0
    ) -> bytes:
        if name == "q2k":
            return bytes(s | m << 4 for s, m in zip(scales, mins)) + codes[:64] + half(d) + half(dmin)
        if name == "q3k":
            low = bytes(a & 15 | (b & 15) << 4 for a, b in zip(scales[:8], scales[8:]))
            tops = bytes(sum(scales[g + 4 * k] >> 4 << 2 * k for k in range(4)) for g in range(4))
            return high[:32] + codes[:64] + low + tops + half(d)
        if name in ("q4k", "q5k"):
            packed = six(scales[:8], mins[:8])
            return half(d) + half(dmin) + packed + (high[:32] if name == "q5k" else b"") + codes[:128]
        if name == "q6k":
            return codes[:128] + high[:64] + bytes(s & 255 for s in scales) + half(d)
        sums = struct.pack("<16h", *[sum(struct.unpack("16b", codes[k : k + 16])) for k in range(0, 256, 16)])
        return struct.pack("<f", d) + codes + sums

    if name == "q8k":
        yield "order", "d = 1, every code once", "signed-codes", block(1, ())
        made = block(1, (), codes=order)
        yield "sums", "the sums say something else than the codes", "redundant-sum", made[:260] + b"\xff\x7f" * 16
        for key, d in (("negative", -0.1), ("least", 2.0**-149), ("large", 1e36)):
            yield "d-" + key, "d, a single-precision number, is %g" % d, "half-scale", block(d, (), codes=order)
        return
    top = {"q2k": 15, "q3k": 63, "q4k": 63, "q5k": 63, "q6k": 127}[name]
    ones = [33 if name == "q3k" else 1] * 16
    yield "order", "codes in all orders, every group scale 1", "high-bits", block(1, ones, codes=order, high=order[5:])
    spread = [(11 * g + 5) % (top + 1) for g in range(16)]
    yield "scales", "every group scale another", "group-scales", block(1, spread)
    if name not in ("q2k",):
        for bit in (0, 1, 2, 3, 4, 5):
            walk = [1 << bit if g % 2 else 0 for g in range(16)]
            if bit in (0, 3, 4, 5):
                text = "group scales of bit %d alone, in every other group" % bit
                yield "scale-bit-%d" % bit, text, "group-scales", block(1, walk)
    yield "scales-top", "every group scale at its largest", "group-scales", block(1, [top] * 16)
    if name in ("q3k", "q6k"):
        low = 0 if name == "q3k" else -128
        yield "scales-low", "every group scale at its smallest", "signed-scales code-offset", block(1, [low] * 16)
        mixed = [(g * 2 + low + 1) if g % 2 else top - g for g in range(16)]
        yield "scales-mixed", "group scales of both signs", "signed-scales group-scales", block(0.5, mixed)
        yield "code-low", "the smallest code alone", "code-offset", block(1, ones, codes=bytes(256), high=bytes(64))
    else:
        mins = [(7 * g + 3) % (top + 1) for g in range(16)]
        yield "mins", "d = 0: the groups' mins alone, every one another", "mins", block(0, ones, mins, dmin=1)
        yield "mins-top", "every min at its largest", "mins", block(0, ones, [top] * 16, dmin=0.5)
        yield "dmin-negative", "a negative dmin", "mins half-scale", block(1, spread, mins, order, order, -0.75)
        if name != "q2k":
            walk = [48 if g in (1, 6) else 0 for g in range(16)]
            yield "min-high", "the two high bits of two mins alone", "mins group-scales", block(0, ones, walk, dmin=1)
            yield "scale-high", "the two high bits of two scales alone", "group-scales", block(1, walk)
        yield "rounds", "the difference is rounded once", "mins", block(0.0123, spread, mins, order, order, 7.77)
    yield "d-negative", "a negative d", "half-scale", block(-0.7, spread, codes=order, high=order)
    yield "d-least", "the smallest half above zero as d", "half-scale", block(2.0**-24, spread, codes=order, high=order)
    yield "d-largest", "the largest half as d", "half-scale", block(65504, spread, codes=order, high=order)
    if name not in ("q2k", "q4k"):
        yield "high", "the high bits of the codes alone", "high-bits", block(1, ones, codes=bytes(256), high=order)
        yield "low", "the low bits of the codes alone", "high-bits", block(1, ones, codes=order, high=bytes(64))


def f8q8_blocks() -> Iterator[tuple[str, str, str, bytes]]:
    codes = bytes((9 * j + 120) % 256 for j in range(32))
    for byte, text in (
        (0x7D, "416: a scale of 1"), (0x38, "1: a scale of 1 / 416"), (0x7E, "448, the largest"),
        (0x01, "the smallest subnormal"), (0x07, "the largest subnormal"), (0x08, "the smallest normal"),
        (0xB8, "-1: a negative scale"), (0x00, "zero"),
    ):  # fmt: skip
        flags = "f8q8-416" if byte in (0x7D, 0x38, 0x7E) else "half-scale"
        yield "scale-%02x" % byte, "the scale byte is " + text, flags, bytes([byte]) + codes
    yield "ends", "codes -128 and 127", "signed-codes", b"\x7d" + b"\x80\x7f" * 16
    yield "two", "two blocks, each with its scale in front", "blocks parts", b"\x7d" + codes + b"\x45" + codes[::-1]


def mxfp4_blocks() -> Iterator[tuple[str, str, str, bytes]]:
    every = bytes((2 * j % 16) | (2 * j + 1) % 16 << 4 for j in range(16))
    yield "codes", "scale 1, all codes in their order, negative zero too", "mxfp4-codes", every + b"\x7f"
    mirrored = bytes(b >> 4 | (b & 15) << 4 for b in every[::-1])
    yield "order", "the same backwards", "mxfp4-codes", mirrored + b"\x7f"
    for byte, text in (
        (0, "0: zeros"), (1, "1: 2^-126"), (126, "126: a half"), (128, "128: two"), (252, "252"),
    ):  # fmt: skip
        yield "scale-%d" % byte, "the scale byte is " + text, "mxfp4-scale", every + bytes([byte])
    yield "scale-255", "the scale byte 255 is infinite; no code is zero", "mxfp4-scale", bytes(
        [0x21, 0xF9] * 8) + b"\xff"  # fmt: skip
    yield "scale-254", "the largest finite scale; 4 and 6 times it are infinite", "mxfp4-scale", every + b"\xfe"
    three = every + mirrored + every
    yield "three", "three blocks: all codes, then all scales", "parts blocks", three + b"\x80\x7d\x7f"


def afq_blocks(name: str) -> Iterator[tuple[str, str, str, bytes]]:
    bits = int(name[3:])
    stream = data("dequantize " + name, 8 * bits)

    def group(content: bytes, scale: float, bias: float) -> bytes:
        return content + floats([scale, bias])

    yield "codes", "any codes, scale 1, bias 0", "afq-stream", group(stream, 1, 0)
    bit = bytes([128]) + bytes(8 * bits - 1)
    yield "eighth-bit", "only the eighth bit of the stream is set", "afq-stream", group(bit, 1, 0)
    last = bytes(8 * bits - 1) + bytes([128])
    yield "last-bit", "only the last bit of the stream is set", "afq-stream", group(last, 1, 0)
    yield "top", "all bits are set: the largest code", "afq-stream", group(b"\xff" * 8 * bits, 0.5, -1)
    yield "bias", "scale 0: the bias alone", "mins", group(stream, 0, -1.25)
    yield "rounds", "product and sum are each rounded", "mins", group(stream, 0.1, 33.3)
    yield "negative", "a negative scale", "half-scale", group(stream, -2, 0)
    other = data("dequantize 2 " + name, 8 * bits)
    three = stream + other + stream + floats([1, 2, 3]) + floats([-100, 100, 0])
    yield "three", "three groups: all codes, all scales, all biases", "parts blocks", three


def blocks_of(name: str) -> Iterator[tuple[str, str, str, bytes]]:
    if name == "vqf_q2_1":
        return q2_1_blocks()
    if name == "f8q8":
        return f8q8_blocks()
    if name == "mxfp4":
        return mxfp4_blocks()
    if name.startswith("afq"):
        return afq_blocks(name)
    return k_blocks(name) if name.endswith("k") else small_blocks(name)


# names that somebody might give a type
STRANGERS = (
    "q9_0",
    "Q8_0",
    "q4_k",
    "afq5",
    "afq1",
    "afq16",
    "afq",
    "vqf_q8_1",
    "q5_k_m",
    "iq4_nl",
    "mxfp6",
    "f8q4",
    "q4",
    "q8k_0",
    "",
)


def make_dequantize(_: dict[str, Case]) -> Iterator[Case]:
    for name, (_, size) in SIZES.items():
        source = GENERATOR if name in ("q8_1", "q8k", "vqf_q2_1", "f8q8", "mxfp4") or name[0] == "a" else GGUF_PY
        for key, comment, flags, content in blocks_of(name):
            if name in ("vqf_q4i", "vqf_g256") and key not in ("order", "ends", "two"):
                continue  # they decode as Q8_0 does
            prove(len(content) % size == 0, "whole blocks: %s %s" % (name, key))
            values = decode(name, content)
            prove(not np.isnan(values).any(), "no NaN, whose bits nobody defines: %s %s" % (name, key))
            out = {"f32": floats(values)}
            yield case(
                "dequantize-%s-%s" % (slug(name), key), comment, source, flags, {"type": name, "data": content}, out
            )
        empty: dict[str, Any] = {"type": name, "data": b""}
        yield case("dequantize-%s-none" % slug(name), "no block at all", GENERATOR, "", empty, {"f32": b""})
        whole = data("dequantize whole " + name, size)
        for key, content, text in (
            ("short", whole[:-1], "a block without its last byte"),
            ("long", whole + b"\0", "a byte behind a block"),
            ("head", whole[:2], "the first two bytes of a block"),
            ("half", whole + whole[: size // 2], "a block and a half"),
        ):
            into = {"type": name, "data": content}
            prove(len(content) % size != 0, "not whole blocks")
            yield case("dequantize-%s-%s" % (slug(name), key), text, GENERATOR, "whole-blocks", into, error="truncated")
    for stranger in STRANGERS:
        into = {"type": stranger, "data": bytes(144)}
        text = "no type is called %r" % stranger
        key = "dequantize-type-%s" % (slug(stranger) or "empty")
        key += "-capital" if stranger != stranger.lower() else ""
        yield case(key.lower(), text, GENERATOR, "type-name", into, error="unsupported")


# ---- quantize


def seen(name: str, how: str, label: str, count: int = 20000) -> Any:
    """The first of many random blocks, of few digits each, on which a slip in the encoder shows."""
    elements, size = SIZES[name]
    width = (np.arange(count) % 255 + 1).astype("f4").reshape(-1, 1)
    x = np.rint(random("quantize %s %s" % (label, how), count, elements) * width) / np.array(
        [[512], [509]] * (count // 2), "f4"
    )
    good, bad = (np.frombuffer(encode(name, x, h), "u1") for h in ("", how))
    good, bad = (raw[: count * (size - 8 * (name[0] == "a"))].reshape(count, -1) for raw in (good, bad))
    different = (good != bad).any(axis=1)
    prove(different.any(), "a block on which %s shows: %s" % (how, name))
    found = x[different.argmax()]
    prove(encode(name, found) != encode(name, found, how), "%s shows: %s" % (how, name))
    return found


def ramp(*head: float) -> Any:
    """32 small values, the first ones as given."""
    x = (np.arange(32) * 5 % 13 - 6).astype("f4") / f32(16)
    x[: len(head)] = head
    return x


def steps(top: float, unit: float) -> Any:
    """Halves of a unit between codes, both signs, `top` first."""
    x = np.array([top, *[(k // 2 + 0.5) * unit * (-1) ** k for k in range(31)]], "f4")
    x[1:] = np.clip(x[1:], -abs(top), abs(top))
    return x


def near_a_half(name: str, bias: float) -> Any:
    """Values whose product with the reciprocal is the number just below a half, so that the sum with `bias` rounds up."""
    below = np.nextafter(f32(0.5), f32(0))
    found = np.zeros(32, "f4")
    found[0] = 127 if bias == 0.5 else -8
    found[1], found[2] = below, -below
    return found


def vqf_values(name: str) -> Iterator[tuple[str, str, str, Any]]:
    """(slug, comment, flags, values) for VQF's encoders of 32."""
    zeros = np.zeros(32, "f4")
    yield "zeros", "zeros", "zero-block", zeros
    yield "minus-zeros", "negative zeros", "zero-block", -zeros
    if name == "vqf_q8_0":
        yield "order", "every code another", "", (np.arange(32) * 7 % 64 - 31).astype("f4") * f32(127 / 31)
        yield "halves", "127 is the largest: halves between codes, both signs", "half-away", steps(127, 1)
        yield "peak-negative", "the largest magnitude is negative", "first-peak", ramp(-3, 2.9)
        yield "peaks", "equal magnitudes of both signs: codes 127 and -127", "clamp", ramp(-1, 1, -1)
        for how, flag in (
            ("division", "single-reciprocal"), ("double", "single-reciprocal"), ("rounded-d", "unrounded-d"),
            ("half-up", "half-away"),
        ):  # fmt: skip
            label = "half-up" if how == "half-up" else ""
            x = steps(127, 1) * f32(0.25) if label else seen(name, how, "vqf")
            prove(encode(name, x) != encode(name, x, how), how)
            yield "not-" + how, "a block on which the slip '%s' shows" % how, flag, x
        x = near_a_half(name, 0.5)
        prove(encode(name, x) != encode(name, x, "exact-sum"), "the sum rounds up")
        yield "below-half", "just below a half, the sum with 0.5 rounds up to 1", "half-up-single", x
        floor = f32(1e-10)
        for key, top in (("below", 1e-9), ("at", 1.27e-8), ("above", 2e-8), ("least", 1e-45)):
            text = "the largest magnitude is %g" % top
            yield "floor-" + key, text, "scale-floor", (ramp(1) * f32(top)).astype("f4")
        x = (ramp(1) * f32(1e-9)).astype("f4")
        prove(encode(name, x) != encode(name, x, "no-floor"), "the floor of %g matters" % floor)
        subnormal, text = (ramp(1) * f32(127 * 2.0**-20)).astype("f4"), "d is a subnormal half"
        yield "d-subnormal", text, "tiny-d", subnormal
        tie = np.append(f32(127 * 2.0**-24 * 2.5), np.zeros(31, "f4")).astype("f4")
        yield "d-tie", "d lies half-way between two subnormal halves: to the even one", "tiny-d", tie
        yield "d-zero", "d is zero as a half, the codes are not", "tiny-d", (ramp(1) * f32(1e-7)).astype("f4")
        yield "d-largest", "d is the largest half", "huge-d", (ramp(1) * f32(127 * 65504)).astype("f4")
        yield "d-infinite", "d is infinite as a half, the codes are as ever", "huge-d", ramp(1) * f32(1e9)
        yield "huge", "the largest single-precision number", "huge-d", ramp(3.4028235e38)
        two = np.concatenate([ramp(5), ramp(-0.01)])
        yield "two", "two blocks, each with its scale", "blocks", two
        return
    yield "order", "every code, in an order of their own", "nibbles", np.array([c - 8 for c in ORDER], "f4")
    yield "peak-negative", "the largest magnitude is negative: code 0 for it, d positive", "first-peak", ramp(-1)
    yield "peak-positive", "the largest magnitude is positive: d is negative", "first-peak", ramp(1)
    for key, head in (("plus-first", (0.1, 1, -1)), ("minus-first", (0.1, -1, 1))):
        x = ramp(*head)
        prove(encode(name, x) != encode(name, x, "last-peak"), "which peak counts shows")
        yield "peaks-" + key, "equal magnitudes of both signs: the first counts", "first-peak clamp", x
    x = np.array([-8, *np.tile([-7.5, -0.5, 0.5, 6.5, 7.49], 6), 7.5], "f4")
    yield "halves", "halves between codes, and what would be code 16", "clamp half-away", x
    for how, flag in (
        ("division", "single-reciprocal"), ("double", "single-reciprocal"), ("rounded-d", "unrounded-d"),
        ("one-rounding", "two-roundings"),
    ):  # fmt: skip
        yield "not-" + how, "a block on which the slip '%s' shows" % how, flag, seen(name, how, "vqf")
    yield "d-subnormal", "d is a subnormal half", "tiny-d", (ramp(1) * f32(2.0**-18)).astype("f4")
    yield "d-zero", "d is zero as a half, the codes are as ever", "tiny-d", (ramp(1) * f32(1e-8)).astype("f4")
    yield "d-largest", "d is the largest half", "huge-d", (ramp(-1) * f32(8 * 65504)).astype("f4")
    yield "d-infinite", "d is infinite as a half", "huge-d", (ramp(-1) * f32(1e7)).astype("f4")
    yield "lone", "one value alone, the rest zeros", "first-peak", np.append(np.zeros(31), 0.3).astype("f4")
    yield "two", "two blocks, each with its scale", "blocks", np.concatenate([ramp(5), ramp(-0.01)])


def g256_values() -> Iterator[tuple[str, str, str, Any]]:
    x = np.tile(ramp(0.5), 9).reshape(9, 32)
    one = x[:8].copy()
    one[5, 7] = 100
    yield "group", "the largest value is in the sixth block: all eight have its scale", "group-256", one
    two = np.concatenate([one, x[:8] * f32(3)])
    yield "two-groups", "two groups, each with its scale", "group-256 blocks", two
    yield (
        "tail",
        "a block behind a full group: zero bytes, its scale too",
        "group-256",
        np.concatenate([one, x[:1] * 9]),
    )
    yield "seven", "seven blocks are no group: zero bytes", "group-256", x[:7]
    yield "one", "one block is no group: zero bytes", "group-256", x[:1]
    yield "zeros", "a group of zeros", "zero-block", np.zeros(256, "f4")
    yield "halves", "halves between codes", "half-away", np.concatenate([steps(127, 1), *[steps(60, 2)] * 7])


def q2_1_values() -> Iterator[tuple[str, str, str, Any]]:
    yield "order", "every code", "half-codes", np.array([c % 4 for c in ORDER], "f4")
    yield "halves", "the halves differ in size", "half-codes", np.concatenate([ramp(1)[:16] * 100, ramp(-1)[16:]])
    yield "constant", "a constant half: d = 1, all codes 0", "zero-block", np.array([0.3] * 16 + [-2.0] * 16, "f4")
    yield "zeros", "zeros: d = 1", "zero-block", np.zeros(32, "f4")
    yield "ties", "halves between codes go up", "half-away", np.array(([0, 3, 0.5, 1.5, 2.5, 1, 2, 0.49] * 4), "f4")
    yield "negative", "negative values alone", "mins", -np.abs(ramp(1)) - 1
    yield "tiny", "a range too small for a half", "tiny-d", (ramp(1) * f32(1e-9)).astype("f4")
    yield "huge", "a range too large for a half", "huge-d", (ramp(1) * f32(1e6)).astype("f4")
    yield "two", "two blocks", "blocks", np.concatenate([ramp(-0.01), ramp(5)])


def ggml_values(name: str) -> Iterator[tuple[str, str, str, Any]]:
    """The same for GGML's types of 32."""
    zeros = np.zeros(32, "f4")
    yield "zeros", "zeros: d = 0" + ", unlike VQF's Q4_0" * (name == "q4_0"), "zero-block", zeros
    mixed = zeros.copy()
    mixed[9:] = -0.0
    signed = name in ("q4_0", "q5_0")
    for key, text, x in (
        ("minus-zeros", "negative zeros alone", -zeros), ("zeros-plus-first", "zeros of both signs, +0 first", mixed),
        ("zeros-minus-first", "zeros of both signs, -0 first", -mixed),
    ):  # fmt: skip
        if name in ("q4_1", "q5_1") and key != "minus-zeros":
            continue  # nobody says which zero is the maximum, whose difference to the minimum has a sign
        prove(not signed or encode(name, x)[:2] == (b"\0\0" if np.signbit(x[0]) else b"\0\x80"), "d is first over -n")
        text += ": d is the first over %d" % (-8 if name == "q4_0" else -16) if signed else ": d is +0"
        text += ", m the first" * (name in ("q4_1", "q5_1"))
        yield key, text, "zero-block" + " zero-first" * signed, x
    yield "two", "two blocks, each with its scale", "blocks", np.concatenate([ramp(5), ramp(-0.01)])
    yield "d-subnormal", "d is a subnormal half", "tiny-d", (ramp(1) * f32(2.0**-18)).astype("f4")
    yield "d-zero", "d is zero as a half, the codes are as ever", "tiny-d", (ramp(1) * f32(1e-9)).astype("f4")
    yield "d-infinite", "d is infinite as a half", "huge-d", (ramp(-1) * f32(1e9)).astype("f4")
    slips = [("division", "single-reciprocal"), ("double", "single-reciprocal"), ("rounded-d", "unrounded-d")]
    if name in ("q4_0", "q5_0"):
        n = 8 if name == "q4_0" else 16
        slips.append(("one-rounding", "two-roundings"))
        for key, head in (("plus-first", (0.1, 1, -1)), ("minus-first", (0.1, -1, 1))):
            x = ramp(*head)
            prove(encode(name, x) != encode(name, x, "last-peak"), "which peak counts shows")
            yield "peaks-" + key, "equal magnitudes of both signs: the first counts", "first-peak clamp", x
        x = np.array([-n, *np.tile([-n + 0.5, -0.5, 0.5, n - 1.5, n - 0.51], 6), n - 0.5], "f4")
        yield "halves", "halves between codes, and what would be a code too much", "clamp half-away", x
        yield (
            "order",
            "every code",
            "nibbles" if n == 8 else "high-bits",
            (np.arange(32) * 5 % (2 * n) - n).astype("f4"),
        )
        yield "lone", "one value alone, the rest zeros", "first-peak", np.append(np.zeros(31), 0.3).astype("f4")
    elif name in ("q4_1", "q5_1"):
        n = 15 if name == "q4_1" else 31
        x = np.array([0, n, *[k + 0.5 for k in range(n - 1)], *[k + 0.49 for k in range(30)]][:32], "f4")
        yield "halves", "halves between codes go up", "half-away", x
        yield "order", "every code", "nibbles" if n == 15 else "high-bits", (np.arange(32) * 7 % (n + 1)).astype("f4")
        yield "constant", "a constant block: d = 0, m the constant", "zero-block mins", np.full(32, -0.3, "f4")
        yield "negative", "negative values alone", "mins", (-np.abs(ramp(1)) - 1).astype("f4")
        yield "positive", "positive values alone: m is not zero", "mins", (np.abs(ramp(1)) + 1).astype("f4")
        for key, first in (("plus", 0.0), ("minus", -0.0)):
            x = np.abs(ramp(1)) + f32(1)
            x[9], x[20] = first, -first
            yield "zero-" + key, "the minimum is a zero, of both signs: the first counts", "zero-sign", x
    else:
        yield "halves", "127 is the largest: halves between codes, both signs", "half-away", steps(127, 1)
        x = near_a_half(name, 0.5)
        prove(encode(name, x) != encode(name, x, "add-half"), "a sum would round up")
        yield "below-half", "just below a half is 0: no sum with 0.5 in single precision", "half-away", x
        yield "order", "every code another", "", (np.arange(32) * 7 % 64 - 31).astype("f4") * f32(127 / 31)
        yield "peaks", "equal magnitudes of both signs: 127 and -127", "clamp", ramp(-1, 1)
        tiny = np.array([1e-42, -1e-42, 5e-43, *[0] * 29], "f4")
        prove(np.abs(tiny).max() / f32(127) < 2.0**-128, "the reciprocal is infinite")
        yield "d-reciprocal", "1 / d is infinite: codes 127, -128, and 0 for 0", "tiny-d clamp", tiny
        if name == "q8_1":
            for key, x in (("rounds", np.abs(ramp(1)) + f32(0.9)), ("negative", -np.abs(ramp(1)))):
                yield "sum-" + key, "s is rounded, the sum and the product", "q8-1-sum", x.astype("f4")
            d = f32(1 + 2.0**-10)
            x = np.array([127.0] * 23 + [80.0] + [0.0] * 8, "f4") * d
            first = half(float(d) * float(np.float16(3001)))
            prove(first != half(float(d) * 3001), "the sum of codes, 3001, is no half")
            prove(encode(name, x)[:4] == half(float(d)) + first, "the sum is rounded before the product")
            yield "sum-twice-rounded", "the sum of codes, 3001, is rounded to a half before the product", "q8-1-sum", x
            yield "sum-infinite", "s is too large for a half", "q8-1-sum huge-d", np.full(32, 65504.0 * 50, "f4")
    for how, flag in slips:
        yield "not-" + how, "a block on which the slip '%s' shows" % how, flag, seen(name, how, "ggml")


def f8q8_values() -> Iterator[tuple[str, str, str, Any]]:
    yield "zeros", "zeros", "zero-block", np.zeros(32, "f4")
    yield "minus-zeros", "negative zeros: the scale byte is +0", "zero-block", -np.zeros(32, "f4")
    yield "halves", "halves between codes, both signs", "half-away", steps(127, 1) * f32(0.25)
    yield "below-half", "just below a half is 0", "half-away", near_a_half("f8q8", 0.5)
    x = ramp(1)
    prove(encode("f8q8", x) != encode("f8q8", x, "448"), "416 matters")
    yield "scale", "the scale byte is d * 416", "f8q8-416", x
    for key, top in (("at", 127 * 448 / 416), ("above", 200.0), ("far", 1e30)):
        yield "saturate-" + key, "the largest magnitude is %g" % top, "f8q8-saturate", (x * f32(top)).astype("f4")
    tie = np.append(f32(127 * 17 / 416), np.zeros(31, "f4")).astype("f4")
    yield "scale-tie", "d * 416 half-way between 16 and 18, or next to it", "f8q8-416", tie
    yield "scale-subnormal", "d * 416 is a subnormal E4M3", "tiny-d", (x * f32(127 * 2.0**-8 / 416)).astype("f4")
    yield "scale-zero", "d * 416 is zero as E4M3, the codes are as ever", "tiny-d", (x * f32(1e-6)).astype("f4")
    yield "one", "one value: 31 zeros are added", "f8q8-padding", np.array([0.7], "f4")
    yield "thirty-three", "a value more than a block: a second block", "f8q8-padding", np.append(x, f32(-3))
    yield "thirty-one", "a value less than a block", "f8q8-padding", x[:31]
    yield (
        "not-division",
        "a block on which the slip 'division' shows",
        "single-reciprocal",
        seen("f8q8", "division", "f8"),
    )
    yield "two", "two blocks", "blocks parts", np.concatenate([ramp(5), ramp(-0.01)])


def mxfp4_values() -> Iterator[tuple[str, str, str, Any]]:
    thresholds = np.array([0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0], "f4")
    below = np.nextafter(thresholds, f32(0))
    x = np.concatenate([[6, -6], thresholds, -thresholds, below, np.zeros(9)]).astype("f4")
    prove(encode("mxfp4", x) != encode("mxfp4", x, "threshold-down"), "the thresholds matter")
    yield "thresholds", "values on the thresholds, and just below", "mxfp4-threshold", x
    yield "thresholds-negative", "the same with all signs changed", "mxfp4-threshold", -x
    yield "zeros", "zeros: scale byte 127", "zero-block", np.zeros(32, "f4")
    yield "minus-zeros", "negative zeros: codes 0", "negative-zero", -np.zeros(32, "f4")
    small = np.array([6, *[-0.1, 0.1, -0.0, 0.0] * 7, -0.2, 0.2, -0.25], "f4")
    yield "negative-small", "negative values that become zero: code 8", "negative-zero", small
    for key, top, text in (
        ("six", 6.0, "exactly 6: scale byte 127"), ("below-six", float(np.nextafter(f32(6), f32(0))), "just below 6"),
        ("twelve", 12.0, "12: 128"), ("eleven", 11.0, "11: the values above 6 times the scale saturate"),
        ("half", 3.0, "3: 126"), ("least", 1e-45, "the smallest: scale byte 0"),
        ("byte-1", 6 * 2.0**-126, "6 * 2^-126: scale byte 1"), ("byte-0", 6 * 2.0**-127, "6 * 2^-127: scale byte 0"),
        ("hair", float(np.nextafter(f32(96), f32(0))), "just below 96, whose logarithm rounds up to 4: 131"),
        ("large", 3.4028235e38, "the largest"),
    ):  # fmt: skip
        y = (ramp(1) * f32(top)).astype("f4")
        yield "top-" + key, "the largest magnitude is " + text, "mxfp4-exponent", y
    every = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6], "f4")
    yield "order", "all values of E2M1", "mxfp4-codes", np.concatenate([every, -every[::-1], every[::-1], -every])
    yield "two", "two blocks: all codes, then both scales", "parts blocks", np.concatenate([ramp(5), ramp(-0.01)])


def afq_values(name: str) -> Iterator[tuple[str, str, str, Any]]:
    top = (1 << int(name[3:])) - 1
    order = (np.arange(64) * 29 % (top + 1)).astype("f4")
    order[0], order[1] = 0, top
    yield "order", "every code it can, scale 1", "afq-stream", order
    halves = np.minimum(order + f32(0.5), top).astype("f4")
    halves[0] = 0
    prove(encode(name, halves) != encode(name, halves, "half-even"), "halves go up")
    yield "halves", "halves between codes go up", "half-away", halves
    yield "constant", "a constant: scale 1, the bias the constant", "afq-constant", np.full(64, -0.3, "f4")
    close = np.full(64, 1e-13, "f4")
    close[5] = 1e-13 + 9.99e-13
    yield "close", "a range below 1e-12: scale 1", "afq-constant", close
    narrow = close.copy()
    narrow[5] = 1e-13 + 1.001e-12
    prove(close[5] - close[0] < 1e-12 < narrow[5] - narrow[0], "ranges on both sides of 1e-12")
    yield "narrow", "a range just above 1e-12: a scale", "afq-constant", narrow
    yield "negative", "negative values alone", "mins", -order - f32(1)
    slip = seen(name, "reciprocal", "afq")
    yield "not-reciprocal", "a group on which the slip 'reciprocal' shows", "true-division", slip
    two = np.concatenate([order, order[::-1] * f32(0.1)])
    yield "two", "two groups: all codes, both scales, both biases", "parts blocks", two


# What is in kat/files/quant/kquants-input.f32, block by block
KINDS = (
    ("zeros", "zeros", "k-zero"),
    ("constant", "one value, 0.25", "k-zero"),
    ("constant-negative", "one value, -0.25", "k-zero"),
    ("lone", "one value among zeros", "k-zero"),
    ("empty-groups", "groups of zeros among others", "k-zero"),
    ("constant-groups", "every group of 16 is constant", "k-zero"),
    ("outlier", "one value a thousand times the others", "k-search"),
    ("positive", "positive values alone", "k-sign"),
    ("negative", "negative values alone", "k-sign"),
    ("small", "values near 1e-5: d is a subnormal half", "k-zero"),
    ("tiny", "values near 1e-9: d is zero", "k-zero"),
    ("subnormal", "subnormal single-precision values", "k-zero"),
    ("eighths", "eighths between -1 and 1: ties", "k-search"),
    ("sixteenths", "thirty-seconds: ties", "k-search"),
    ("signed-zeros", "half the values are zeros, mostly negative", "k-sign"),
    ("two-values", "two negative values in turn", "k-sign"),
    ("four-values", "±0.1 and ±0.05: equal peaks of both signs", "k-sign"),
    ("heavy", "many small values and a few large", "k-search"),
    ("wide", "values of many sizes within a group", "k-search"),
    ("ramp", "a ramp through zero", "k-search"),
    ("near-one", "values near 1", "k-sign"),
    ("near-minus-one", "values near -1", "k-sign"),
    ("sparse", "a tenth of the values, and zeros of both signs", "k-zero"),
    ("uneven-groups", "groups that differ by powers of ten", "k-search"),
    ("stairs", "groups around offsets of their own", "k-search"),
    ("flat-groups", "groups that are constant but for a unit", "k-search"),
    ("none-positive", "negative values and negative zeros", "k-sign"),
    ("neighbours", "two neighbouring numbers near -0.3", "k-search"),
    ("plain", "values as a model has them", "k-search"),
    ("large", "values near 1e7", "k-large"),
    ("larger", "values near 1e15: d is infinite", "k-large"),
    ("largest", "values near 1e37: sums overflow", "k-large"),
    ("smallest", "multiples of the smallest number", "k-zero"),
    ("row-107", "a row of a model", "k-search"),
    ("row-33", "another row, of bf16 values", "k-search"),
    ("row-20", "a row on which the product with 1 / step shows", "k-search"),
    ("row-34", "a row on which a sum that is rounded once shows", "k-search"),
)  # fmt: skip
FEW = {  # types that share much of their code with another
    "q3k": tuple(k[0] for k in KINDS if k[0] not in ("constant-negative", "heavy", "negative", "near-minus-one", "plain",
                                                     "none-positive", "larger", "row-33")),
    "q4k": ("zeros", "constant", "lone", "empty-groups", "outlier", "small", "tiny", "subnormal", "eighths", "positive",
            "negative", "signed-zeros", "two-values", "near-one", "uneven-groups", "stairs", "ramp", "none-positive",
            "larger", "largest", "smallest", "neighbours", "row-20", "row-34"),
    "q5k": ("zeros", "constant", "lone", "outlier", "small", "tiny", "eighths", "signed-zeros", "two-values", "near-one",
            "uneven-groups", "larger", "neighbours", "row-107"),
    "q8k": ("zeros", "constant", "constant-negative", "lone", "outlier", "subnormal", "eighths", "four-values", "largest",
            "smallest", "row-107"),
}  # fmt: skip


def k_values(name: str) -> Iterator[tuple[str, str, str, Any, bytes]]:
    """Blocks and what the engine made of them."""
    folder, size = KAT / "files" / "quant", SIZES[name][1]
    x = np.frombuffer((folder / "kquants-input.f32").read_bytes(), "<f4").reshape(-1, 256)
    made = (folder / ("kquants-%s.bin" % name)).read_bytes()
    prove(len(x) == len(KINDS) and len(made) == size * len(x), "a name for each block")
    for i, (key, text, flags) in enumerate(KINDS):
        if key in FEW.get(name, (key,)):
            yield key, text, flags, x[i], made[i * size : (i + 1) * size]


# Blocks of 16 times 1, 16 times -1, and zeros, by hand. q3k: scales 0 (less 32) and 63, where 64 would be, the others 32,
# d = 1 / 128; q6k: scales -128 and 127, where 128 would be, d = 1 / 4096. The codes are all the smallest.
OPPOSITE = {
    "q3k": bytes(96) + bytes([0x00, 0x0F, *[0] * 6, 0xA8, 0xAB, 0xAA, 0xAA]) + half(1 / 128),
    "q6k": bytes(192) + bytes([0x80, 0x7F]) + bytes(14) + half(1 / 4096),
}


def prove_the_kinds() -> None:
    """Of the blocks of K-quants, what their names say."""
    x = {k[0]: v for k, v in zip(KINDS, k_inputs())}
    groups = {k: v.reshape(16, 16) for k, v in x.items()}
    prove(not x["zeros"].any() and set(x["constant"]) == {0.25} == {-v for v in x["constant-negative"]}, "constants")
    prove((x["lone"] != 0).sum() == 1 and not groups["empty-groups"].any(axis=1).all(), "zeros")
    prove((np.ptp(groups["constant-groups"], axis=1) == 0).all(), "constant groups")
    prove(x["positive"].min() > 0 > x["negative"].max() and x["near-one"].min() > 0.9 > 0, "signs")
    prove(0 < np.abs(x["subnormal"]).max() < 2.0**-126 and x["largest"].max() > 1e37, "sizes")
    prove((x["eighths"] * 8 == np.rint(x["eighths"] * 8)).all(), "eighths")
    prove(np.signbit(x["signed-zeros"][x["signed-zeros"] == 0]).any(), "negative zeros")
    prove(len(set(x["four-values"])) == 4 and len(set(x["neighbours"])) == len(set(x["two-values"])) == 2, "few values")


def k_inputs() -> Any:
    return np.frombuffer((KAT / "files" / "quant" / "kquants-input.f32").read_bytes(), "<f4").reshape(-1, 256)


def vqf_not_finite(name: str) -> Iterator[tuple[str, str, str, Any, bytes]]:
    """NaN and infinities for VQF's encoders, with the blocks by hand: integers whose d is 1, so that they are their codes.
    C leaves open what they become; the format's text says it for readers and writers in other languages."""
    whole = np.array([(7 * j) % 15 - 7 for j in range(32)], "f4")
    if name in ("vqf_q8_0", "vqf_g256"):
        whole[11] = 127
    else:
        whole[11] = -8
    times = 8 if name == "vqf_g256" else 1

    def block(d: float, codes: Any) -> bytes:
        """codes: what a d of 1 makes of them, so less 8 in Q4_0."""
        if name == "vqf_q4_0":
            return half(d) + nibble_bytes([int(c) + 8 for c in codes])
        return half(d) + bytes(int(c) & 255 for c in codes)

    floor = 0 if name in ("vqf_q8_0", "vqf_g256") else -8  # what the code 0 is
    for key, text, at in (
        ("first", "a NaN first", (0,)), ("middle", "three NaN", (3, 17, 30)), ("last", "a NaN last", (31,)),
    ):  # fmt: skip
        x, codes = np.tile(whole, times), np.tile(whole, times)
        x[list(at)] = np.nan
        codes[list(at)] = floor
        made = b"".join(block(1, c) for c in codes.reshape(-1, 32))
        yield "nan-" + key, text + ": code 0, d as without", "vqf-nan", x, made
    for key, sign in (("plus", 1), ("minus", -1)):
        x, codes = np.tile(whole, times), np.zeros(32 * times)
        x[5] = sign * np.inf
        codes[5] = floor
        d = np.inf if floor == 0 else -sign * np.inf
        made = b"".join(block(d, c) for c in codes.reshape(-1, 32))
        text = "an infinity: d is infinite, every product 0, the infinity's own a NaN"
        yield "infinity-" + key, text, "vqf-infinity", x, made


def q2_1_not_finite() -> Iterator[tuple[str, str, str, Any, bytes]]:
    """The same for Q2_1, but for NaN, of which nobody says whether they are a half's smallest or largest value."""
    codes = np.tile(np.arange(4), 4)
    for key, value, m in (("plus", np.inf, 0.0), ("minus", -np.inf, -np.inf)):
        x = np.tile(codes, 2).astype("f4")
        x[5] = value
        made = half(np.inf) + half(m) + half(1) + half(0) + bytes(4) + b"\xe4" * 4
        text = "an infinity in the first half: its d is infinite, its codes are 0; the second is as ever"
        yield "infinity-" + key, text, "vqf-infinity", x, made


def k_not_finite(name: str) -> Iterator[tuple[str, str, Any]]:
    whole = np.tile(ramp(1), 8)
    for key, text, at, value in (
        ("nan", "a NaN in the middle", 100, np.nan), ("nan-first", "a NaN first", 0, np.nan),
        ("nan-second-block", "a NaN as the last of two blocks", 511, np.nan),
        ("infinity", "an infinity", 7, np.inf), ("infinity-minus", "a negative infinity last", 255, -np.inf),
    ):  # fmt: skip
        x = np.tile(whole, 2) if at > 255 else whole.copy()
        x[at] = value
        prove((~np.isfinite(x)).sum() == 1, "one value is not finite")
        yield key, text, x


def values_for(name: str) -> Iterator[tuple[str, str, str, Any]]:
    if name == "vqf_g256":
        return g256_values()
    if name == "vqf_q2_1":
        return q2_1_values()
    if name.startswith("vqf_"):
        return vqf_values(name)
    if name == "f8q8":
        return f8q8_values()
    if name == "mxfp4":
        return mxfp4_values()
    return afq_values(name) if name.startswith("afq") else ggml_values(name)


def make_quantize(_: dict[str, Case]) -> Iterator[Case]:
    prove_the_kinds()
    for name, (elements, _) in SIZES.items():

        def one(key: str, text: str, flags: str, x: Any, made: bytes, source: str, name: str = name) -> Case:
            into = {"type": name, "f32": floats(x)}
            return case("quantize-%s-%s" % (slug(name), key), text, source, flags, into, {"data": made})

        if name.endswith("k"):
            for key, text, flags, x, made in k_values(name):
                yield one(key, text, flags, x, made, ENGINE)
            zeros = np.zeros(256, "f4")
            (made,) = (made for key, _, _, _, made in k_values(name) if key == "zeros")
            for key, text, x in (
                ("minus-zeros", "negative zeros alone", -zeros),
                ("zeros-minus-first", "zeros of both signs, -0 first", np.append(-zeros[:9], zeros[9:])),
            ):
                source = "mistralrs 0.9.5 for +0; the rules know no sign of a zero"
                yield one(key, text + ": as zeros", "k-zero", x, made, source)
            for key, text, x in k_not_finite(name):
                into = {"type": name, "f32": floats(x)}
                source = "the format: not tried with the engine, to be refused"
                yield case(
                    "quantize-%s-not-%s" % (slug(name), key), text, source, "finite", into, error="range",
                    level="recommended",
                )  # fmt: skip
            if name in OPPOSITE:
                x = np.zeros(256, "f4")
                x[:16], x[16:32] = 1, -1
                text = "a group of 1, one of -1: the second scale would be one beyond the largest"
                values = decode(name, OPPOSITE[name])
                prove(np.abs(values - x).max() < 0.04, "the blocks are near the values")
                yield one("opposite", text, "k-sign clamp", x, OPPOSITE[name], "generator; by hand, from the rules")
        else:
            source = VQF_NUMPY if name.startswith("vqf_") else GENERATOR
            source = GGUF_PY if name in ("q4_0", "q4_1", "q5_0", "q5_1", "q8_0") else source
            for key, text, flags, x in values_for(name):
                x = np.asarray(x, "f4")
                beyond = source == GGUF_PY and is_beyond_gguf(name, x.reshape(-1, elements))
                yield one(key, text, flags, x, encode(name, x), GENERATOR if beyond else source)
        if name.startswith("vqf_"):
            for key, text, flags, x, made in q2_1_not_finite() if name == "vqf_q2_1" else vqf_not_finite(name):
                yield {**one(key, text, flags, x, made, "the format's text, by hand"), "level": "recommended"}
        yield one("none", "no value at all", "", np.zeros(0, "f4"), b"", GENERATOR)
        x = floats(np.tile(ramp(1), 10)[: elements + 1])
        cuts: list[tuple[str, bytes, str]] = [("cut", x[: 4 * elements - 1], "the last value without its last byte")]
        if name != "f8q8":
            cuts += [
                ("short", x[: 4 * elements - 4], "a value short of a block"),
                ("long", x[: 4 * elements + 4], "a value behind a block"),
                ("single", x[:4], "one value"),
            ]
            if elements > 32:
                cuts.append(("thirty-two", x[:128], "32 values, which are a block of other types"))
        for key, content, text in cuts:
            into = {"type": name, "f32": content}
            key = "quantize-%s-%s" % (slug(name), key)
            yield case(key, text, GENERATOR, "whole-blocks", into, error="truncated")
    for stranger in STRANGERS:
        into = {"type": stranger, "f32": floats(np.tile(ramp(1), 2))}
        key = "quantize-type-%s" % (slug(stranger) or "empty")
        key += "-capital" if stranger != stranger.lower() else ""
        yield case(key.lower(), "no type is called %r" % stranger, GENERATOR, "type-name", into, error="unsupported")

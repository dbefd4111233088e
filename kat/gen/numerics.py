#!/usr/bin/env python3
"""Makes the suite's vectors of floats, blocks, tiles and products. Uses nothing of vqfref.

    python3 kat/gen/numerics.py            write the files of kat/ that stand in FILES
    python3 kat/gen/numerics.py --check    make them again and compare; 1 if one differs

It needs the packages numpy, gguf, ml_dtypes and safetensors (blocks.py's); it is no part of what runs on a board. Values
of floats are numpy's and ml_dtypes', those of blocks come from peers.py, products from fractions. The cases of quantize
and dequantize are in block_cases.py. Where a NaN comes out, whose payload nobody defines, the case has a `tol`, by which
every NaN is right.
"""

from __future__ import annotations

import sys
from fractions import Fraction

import block_cases
import ml_dtypes
import numpy as np
from block_cases import slug
from peers import encode, f32, floats, half, prove_by_the_engines, random, tiled
from suite import case, data, main, prove

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterator

    from suite import Case

NUMPY = "numpy"
ML_DTYPES = "ml_dtypes"
RULES = "generator; the rule in numpy"

# What a flag's cases catch.
FLAGS = {
    "subnormal": "numbers below the smallest normal one",
    "signed-zero": "the sign of a zero",
    "infinity": "infinities",
    "nan": "NaN, which stays one, or becomes what the format says",
    "half-even": "ties go to the even neighbour",
    "carry": "rounding up into the next exponent",
    "overflow": "from where on a number is too large",
    "truncate": "the truncating conversion cuts the mantissa off",
    "truncate-flush": "the truncating conversion has no subnormal halves",
    "saturate": "E4M3 ends at 448, without infinities",
    "e8m0": "E8M0 is a power of two: 0 is 2^-127, not zero, 255 is NaN",
    "mode-name": "modes that don't exist",
    "tile-scales": "the rows' scales stand first in a tile, in the order of the rows, without xor",
    "tile-chunks": "the order of the chunks in a tile",
    "tile-xor": "nibbles in tiles are xored with 88, int8 codes are not",
    "tile-order": "tiles of a row group by block column, then the next row group",
    "tile-rows": "the rows are whole groups",
    "tile-cols": "the columns are whole blocks, at least one",
    "cols-wrap": "numbers of columns that would fit modulo 2^32 or 2^64",
    "layout-name": "layouts that don't exist",
    "tile-type": "a layout for blocks of another type",
    "exact-sum": "integer sums that leave 16 bits, or saturate",
    "minus-128": "the code -128",
    "nibble-order": "element j in the low nibble of byte j, 16 + j in its high one; less 8",
    "vector-length": "a vector that does not fit the row or the number of columns",
    "activation": "the vector's own scale, in single precision, for each 32 columns; its codes",
    "weight-scale": "the scale of each block of the matrix",
    "matrix-rows": "the order of rows, and where one ends",
    **block_cases.FLAGS,
}


def bits(*words: int) -> Any:
    """Single-precision numbers by their bits."""
    return np.array(words, "u4").view("f4")


def both(x: Any) -> Any:
    """The numbers and their negatives."""
    return np.concatenate([x, -x])


# ---- floats to f32


def decoded(op: str, name: str, comment: str, source: str, flags: str, content: bytes, values: Any) -> Case:
    x = np.asarray(values, "f4")
    out = {"f32": floats(x)}
    if np.isnan(x).any():
        prove(np.isnan(x).all(), "NaN alone: %s" % name)
        out["tol"] = floats(np.zeros(len(x)))
    return case("%s-%s" % (slug(op), name), comment, source, flags, {"data": content}, out)


def cut_off(op: str, into: dict[str, Any], unit: int, key: str = "") -> Iterator[Case]:
    """Fields whose last value is incomplete: some bytes of one, one and some."""
    (field,) = (f for f in into if into[f] == b"")
    for size in (*range(1, unit), unit + 1, 3 * unit - 1, 64 * unit + 1):
        text = "%d bytes, not whole values of %d" % (size, unit)
        name = "%s-%ssize-%d" % (slug(op), key, size)
        yield case(name, text, RULES, "whole-blocks", {**into, field: data(name, size)}, error="truncated")


def make_f16_decode(_: dict[str, Case]) -> Iterator[Case]:
    def one(name: str, comment: str, flags: str, *words: int) -> Case:
        content = np.array(words, "<u2")
        return decoded("f16_decode", name, comment, NUMPY, flags, content.tobytes(), content.view("<f2").astype("f4"))

    yield one("zeros", "zeros of both signs", "signed-zero", 0x0000, 0x8000)
    yield one("one", "1 and -2: little-endian bytes", "", 0x3C00, 0xC000)
    yield one("exponents", "all exponents of normal halves", "", *[e << 10 for e in range(1, 31)])
    yield one("exponents-full", "the same with all bits of the mantissa", "", *[e << 10 | 0x3FF for e in range(1, 31)])
    yield one("mantissa", "each bit of the mantissa alone", "", *[0x3C00 | 1 << k for k in range(10)])
    yield one("negative", "negative halves", "", *[0x8000 | 0x111 * k for k in range(4, 100, 7)])
    yield one("subnormal-least", "the smallest numbers above and below zero", "subnormal", 0x0001, 0x8001)
    yield one("subnormal-bits", "each bit of a subnormal alone", "subnormal", *[1 << k for k in range(10)])
    yield one(
        "subnormal-last", "the largest subnormals, the smallest normal ones", "subnormal", 0x3FF, 0x400, 0x83FF, 0x8400
    )
    yield one("largest", "65504 and -65504", "", 0x7BFF, 0xFBFF)
    yield one("infinity", "infinities", "infinity", 0x7C00, 0xFC00)
    yield one("nan", "NaN: quiet, with one bit, with all", "nan", 0x7E00, 0x7C01, 0x7FFF, 0xFE00, 0xFC01, 0xFFFF)
    yield decoded("f16_decode", "none", "no bytes", NUMPY, "", b"", [])
    yield one(
        "many", "256 values, all kinds but NaN", "subnormal", *[k * 129 for k in range(246)], *range(0x7BF6, 0x7C00)
    )
    yield from cut_off("f16_decode", {"data": b""}, 2)


def make_bf16_decode(_: dict[str, Case]) -> Iterator[Case]:
    def one(name: str, comment: str, flags: str, *words: int) -> Case:
        content = np.array(words, "<u2")
        values = content.view(ml_dtypes.bfloat16).astype("f4")
        return decoded("bf16_decode", name, comment, ML_DTYPES, flags, content.tobytes(), values)

    yield one("zeros", "zeros of both signs", "signed-zero", 0x0000, 0x8000)
    yield one("one", "1 and -2: little-endian bytes", "", 0x3F80, 0xC000)
    yield one("exponents", "every other exponent", "", *[e << 7 for e in range(1, 255, 2)])
    yield one("mantissa", "each bit of the mantissa alone", "", *[0x3F80 | 1 << k for k in range(7)])
    yield one("subnormal", "subnormal numbers", "subnormal", 0x0001, 0x0040, 0x007F, 0x0080, 0x8001, 0x807F)
    yield one("largest", "the largest numbers", "", 0x7F7F, 0xFF7F)
    yield one("infinity", "infinities", "infinity", 0x7F80, 0xFF80)
    yield one("nan", "quiet NaN of both signs", "nan", 0x7FC0, 0x7FFF, 0xFFC0)
    yield decoded("bf16_decode", "none", "no bytes", ML_DTYPES, "", b"", [])
    yield from cut_off("bf16_decode", {"data": b""}, 2)


def make_e4m3_decode(_: dict[str, Case]) -> Iterator[Case]:
    def one(name: str, comment: str, flags: str, *codes: int) -> Case:
        content = np.array(codes, "u1")
        values = content.view(ml_dtypes.float8_e4m3fn).astype("f4")
        return decoded("e4m3_decode", name, comment, ML_DTYPES, flags, content.tobytes(), values)

    yield one("zeros", "zeros of both signs", "signed-zero", 0x00, 0x80)
    yield one("positive", "all positive numbers", "", *range(0x08, 0x78))
    yield one("negative", "all negative numbers", "", *range(0x88, 0xF8))
    yield one("subnormal", "the subnormal numbers of both signs", "subnormal", *range(1, 8), *range(0x81, 0x88))
    yield one(
        "top", "the highest exponent holds numbers, up to 448", "saturate", *range(0x78, 0x7F), *range(0xF8, 0xFF)
    )
    yield one("nan", "the two NaN", "nan", 0x7F, 0xFF)
    yield decoded("e4m3_decode", "none", "no bytes", ML_DTYPES, "", b"", [])


def make_e8m0_decode(_: dict[str, Case]) -> Iterator[Case]:
    def one(name: str, comment: str, flags: str, *codes: int) -> Case:
        content = np.array(codes, "u1")
        values = content.view(ml_dtypes.float8_e8m0fnu).astype("f4")
        return decoded("e8m0_decode", name, comment, ML_DTYPES, flags, content.tobytes(), values)

    yield one("one", "127 is 1", "", 127)
    yield one("normal", "all powers from 2^-126 to 2^127", "", *range(1, 255))
    yield one("zero", "0 is 2^-127, a subnormal single-precision number", "e8m0 subnormal", 0)
    yield one("largest", "254 is 2^127", "e8m0", 254)
    yield one("nan", "255 is NaN, not infinite", "e8m0 nan", 255)
    yield decoded("e8m0_decode", "none", "no bytes", ML_DTYPES, "", b"", [])


# ---- floats from f32


def between(low: Any, high: Any) -> tuple[Any, Any, Any]:
    """What lies half-way between neighbours, and the single-precision numbers just below and above that."""
    middle = ((low.astype("f8") + high.astype("f8")) / 2).astype("f4")
    return middle, np.nextafter(middle, f32(-np.inf)), np.nextafter(middle, f32(np.inf))


def to_half(mode: str, x: Any) -> bytes:
    with np.errstate(over="ignore"):
        if mode == "nearest":
            return bytes(x.astype("<f2").tobytes())
    w = x.view("u4").astype("i8")
    e = (w >> 23 & 0xFF) - 112
    made = np.where(e <= 0, 0, np.where(e >= 31, 0x7C00, e << 10 | w >> 13 & 0x3FF))
    return bytes((made | (w >> 16 & 0x8000)).astype("<u2").tobytes())


def make_f16_encode(_: dict[str, Case]) -> Iterator[Case]:
    def one(name: str, comment: str, flags: str, x: Any) -> Iterator[Case]:
        x = both(np.asarray(x, "f4"))
        for mode, theirs in zip(("nearest", "truncate"), flags.split("|")):
            made = to_half(mode, x)
            source = NUMPY if mode == "nearest" else RULES
            into = {"mode": mode, "f32": floats(x)}
            yield case("f16-encode-%s-%s" % (mode, name), comment, source, theirs, into, {"data": made})

    def halves(*words: int) -> Any:
        return np.array(words, "u2").view("f2").astype("f4")

    normal = [e << 10 | m for e in range(1, 31) for m in (0, 0x155)]
    low, high = halves(*normal), halves(*[h + 1 for h in normal])
    middle, below, above = between(low, high)
    prove(to_half("nearest", middle[::2]) == to_half("nearest", low[::2]), "a tie goes to the even neighbour below")
    prove(to_half("nearest", middle[1::2]) == to_half("nearest", high[1::2]), "a tie goes to the even neighbour above")
    yield from one("exact", "numbers that are halves", "|truncate", low)
    yield from one("ties", "half-way between halves, at every exponent", "half-even|truncate", middle)
    yield from one("below-ties", "just below half-way", "half-even|truncate", below)
    yield from one("above-ties", "just above half-way", "half-even|truncate", above)
    last = [e << 10 | 0x3FF for e in range(1, 30)]
    up = between(halves(*last), halves(*[h + 1 for h in last]))
    yield from one(
        "carry",
        "half-way to the next power of two, just below and above",
        "carry half-even|truncate",
        np.concatenate(up),
    )
    small = np.arange(1, 16, dtype="u2")
    yield from one("subnormal", "subnormal halves", "subnormal|truncate-flush", small.view("f2").astype("f4"))
    ties = between(halves(*range(12)), halves(*range(1, 13)))
    for name, x in zip(("ties", "below-ties", "above-ties"), ties):
        text = "%s of subnormal halves, from 2^-25 on" % name.replace("-", " ")
        yield from one("subnormal-" + name, text, "subnormal half-even|truncate-flush", x)
    edge = np.concatenate([*between(halves(0x3FF), halves(0x400)), halves(0x3FF, 0x400)])
    yield from one("subnormal-edge", "around the smallest normal half", "subnormal carry|truncate-flush", edge)
    yield from one("underflow", "what is below half the smallest half", "subnormal|truncate-flush",
                   np.concatenate([bits(1, 0x7FFFFF, 0x800000), [1e-10, 2.0**-26]]))  # fmt: skip
    yield from one("zeros", "zeros", "signed-zero|signed-zero", [0.0])
    edge = np.array(
        [65503.99, 65504, 65519, 65519.996, 65520, 65535.996, 65536, 98304, 131072, 1e6, 3.4028235e38], "f4"
    )
    prove(to_half("nearest", edge[3:5]) == bytes.fromhex("ff7b007c"), "65520 is the first that is infinite")
    prove(to_half("truncate", edge[5:7]) == bytes.fromhex("ff7b007c"), "65536 is the first that is infinite")
    yield from one("overflow", "from where on a half is infinite", "overflow|overflow truncate", edge)
    yield from one("infinity", "infinities", "infinity|infinity", [np.inf])
    x = bits(0x7FC00000, 0x7F800001, 0xFFC00000, 0xFF812345, 0x7FFFFFFF)
    into = {"mode": "truncate", "f32": floats(x)}
    text = "the truncating conversion makes NaN infinite, and keeps the sign"
    out = {"data": bytes.fromhex("007c007c00fc00fc007c")}
    yield case("f16-encode-truncate-nan", text, RULES, "nan", into, out)
    for mode in ("nearest", "truncate"):
        into = {"mode": mode, "f32": b""}
        yield case("f16-encode-%s-none" % mode, "no values", NUMPY, "", into, {"data": b""})
        yield from cut_off("f16_encode", into, 4, mode + "-")
    for mode in ("up", "Nearest", "truncated", ""):
        key = "f16-encode-mode-%s" % (mode.lower() or "empty")
        into = {"mode": mode, "f32": floats([1.0])}
        yield case(key, "no mode is called %r" % mode, RULES, "mode-name", into, error="unsupported")


def make_bf16_encode(_: dict[str, Case]) -> Iterator[Case]:
    def one(name: str, comment: str, flags: str, x: Any) -> Case:
        x = both(np.asarray(x, "f4"))
        with np.errstate(invalid="ignore"):
            made = x.astype(ml_dtypes.bfloat16).view("<u2").tobytes()
        return case("bf16-encode-" + name, comment, ML_DTYPES, flags, {"f32": floats(x)}, {"data": made})

    tops = np.array([e << 7 | m for e in range(1, 255, 9) for m in (0, 0x55)], "u4") << 16
    yield one("exact", "numbers that are bf16", "", tops.view("f4"))
    for name, rest in (("ties", 0x8000), ("below-ties", 0x7FFF), ("above-ties", 0x8001)):
        yield one(
            name, "half-way between bf16 numbers, or next to it", "half-even", (tops + np.uint32(rest)).view("f4")
        )
    yield one(
        "carry", "rounding up into the next exponent", "carry", bits(0x3FFF8000, 0x3FFFFFFF, 0x407F7FFF, 0x407F8000)
    )
    yield one(
        "subnormal",
        "subnormal numbers",
        "subnormal half-even",
        bits(1, 0x7FFF, 0x8000, 0x8001, 0x18000, 0x7F8000, 0x7FFFFF),
    )
    yield one(
        "overflow", "what rounds up to infinity", "overflow", bits(0x7F7F0000, 0x7F7F7FFF, 0x7F7F8000, 0x7F7FFFFF)
    )
    yield one("zeros", "zeros", "signed-zero", [0.0])
    yield one("infinity", "infinities", "infinity", [np.inf])
    x = bits(0x7F800001, 0x7F80FFFF, 0x7FC00000, 0x7FC00001)
    yield one("nan", "NaN whose upper half alone would be infinite, and quiet ones", "nan", x)
    yield case("bf16-encode-none", "no values", ML_DTYPES, "", {"f32": b""}, {"data": b""})
    yield from cut_off("bf16_encode", {"f32": b""}, 4)


def make_e4m3_encode(_: dict[str, Case]) -> Iterator[Case]:
    def one(name: str, comment: str, flags: str, x: Any) -> Case:
        x = both(np.asarray(x, "f4"))
        with np.errstate(invalid="ignore"):
            made = np.clip(x, -448, 448).astype(ml_dtypes.float8_e4m3fn).tobytes()
        return case("e4m3-encode-" + name, comment, ML_DTYPES, flags, {"f32": floats(x)}, {"data": made})

    every = np.arange(0x7F, dtype="u1").view(ml_dtypes.float8_e4m3fn).astype("f4")
    yield one("exact", "all normal numbers", "", every[8:])
    for name, x in zip(("ties", "below-ties", "above-ties"), between(every[8:-1], every[9:])):
        yield one(name, "half-way between all normal numbers, or next to it", "half-even carry", x)
    yield one("subnormal", "the subnormal numbers", "subnormal", every[1:8])
    for name, x in zip(("ties", "below-ties", "above-ties"), between(every[:8], every[1:9])):
        text = "%s between subnormal numbers" % name.replace("-", " ")
        yield one("subnormal-" + name, text, "subnormal half-even", x)
    yield one("underflow", "what is at most half the smallest number", "subnormal half-even", [2.0**-10, 1e-5, 1e-45])
    yield one("zeros", "zeros", "signed-zero", [0.0])
    yield one("saturate", "448 and more", "saturate", [447.9, 448, 449, 463.9, 464, 464.1, 480, 512, 1e9, 3.4028235e38])
    yield one("infinity", "infinities become 448", "saturate infinity", [np.inf])
    yield one("nan", "NaN of both signs", "nan", bits(0x7FC00000, 0x7F800001))
    yield case("e4m3-encode-none", "no values", ML_DTYPES, "", {"f32": b""}, {"data": b""})
    yield from cut_off("e4m3_encode", {"f32": b""}, 4)


# ---- tiles

# layout: rows, bytes a block
LAYOUTS = {"q4_4x4": (4, 18), "q8_8x8": (8, 34), "q8_4x4": (4, 34), "q4_8x8l": (8, 18)}
WRAPS = ((1 << 32, "2^32"), (1 << 64, "2^64"), ((1 << 27) * 32 * 17, "17 * 2^32"))
NO_LAYOUTS = ("linear", "q4_8x8", "q8_8x8l", "Q4_4X4", "q4", "")


def matrices(layout: str) -> Iterator[tuple[str, str, str, int, bytes]]:
    """(slug, comment, flags, columns, linear rows)."""
    height, size = LAYOUTS[layout]
    numbered = b"".join(half(m + 1) + bytes([16 * m + k % 16 for k in range(size - 2)]) for m in range(height))
    yield "one", "one tile; every row another", "tile-chunks tile-scales", 32, numbered
    counting = b"".join(bytes(2) + bytes(range(size - 2)) for _ in range(height))
    yield "bytes", "one tile; every byte of a block another", "tile-chunks tile-xor", 32, counting
    yield "zeros", "zero bytes: nibbles become 88", "tile-xor", 32, bytes(height * size)
    scales = b"".join(bytes([m, 0x80 | m]) + b"\x88" * (size - 2) for m in range(height))
    yield "scales", "scales alone", "tile-scales tile-xor", 32, scales
    for key, groups, across in (("wide", 1, 3), ("high", 3, 1), ("both", 2, 2)):
        name = "tile %s %s" % (layout, key)
        text = "%d groups of rows, %d blocks a row" % (groups, across)
        yield key, text, "tile-order", 32 * across, data(name, groups * across * height * size)
    yield "none", "no rows", "", 64, b""


def tile_cases(op: str) -> Iterator[Case]:
    for layout, (height, size) in LAYOUTS.items():
        prefix = "%s-%s" % (op, slug(layout))
        for key, text, flags, cols, rows in matrices(layout):
            there = tiled(rows, cols, layout) if rows else b""
            pair = (rows, there) if op == "tile" else (there, rows)
            into = {"layout": layout, "cols": cols, "data": pair[0]}
            yield case("%s-%s" % (prefix, key), text, RULES, flags, into, {"data": pair[1]})
        whole = data(prefix, height * size)
        for key, flags, error, text, cols, content in (
            ("row-short", "tile-rows", "shape", "a row less than a group", 32, whole[:-size]),
            ("row-long", "tile-rows", "shape", "a row more than a group", 32, whole + whole[:size]),
            ("row-one", "tile-rows", "shape", "one row", 32, whole[:size]),
            ("half-group", "tile-rows", "shape", "a group and a half", 32, whole + whole[: len(whole) // 2]),
            ("row-open", "tile-rows", "shape", "the last row has one block of two", 64, (whole * 2)[:-size]),
            ("too-wide", "tile-rows", "shape", "one tile for rows of two blocks", 64, whole),
            ("byte-short", "whole-blocks", "truncated", "a byte short", 32, whole[:-1]),
            ("byte-long", "whole-blocks", "truncated", "a byte too many", 32, whole + b"\0"),
            ("scale-only", "whole-blocks", "truncated", "a scale behind the last tile", 32, whole + b"\0\0"),
            ("cols-zero", "tile-cols", "shape", "no columns", 0, whole),
            ("cols-zero-none", "tile-cols", "shape", "no columns and no bytes", 0, b""),
            ("cols-31", "tile-cols", "shape", "31 columns", 31, whole),
            ("cols-33", "tile-cols", "shape", "33 columns", 33, whole),
            ("cols-16", "tile-cols", "shape", "16 columns", 16, whole),
            ("cols-negative", "tile-cols", "shape", "-32 columns", -32, whole),
        ):
            into = {"layout": layout, "cols": cols, "data": content}
            yield case("%s-%s" % (prefix, key), text, RULES, flags, into, error=error)
        for wrap, text in WRAPS[:2]:
            cols = wrap + 32
            into = {"layout": layout, "cols": cols if cols < 1 << 53 else str(cols), "data": whole}
            name = "%s-cols-wrap-%s" % (prefix, text.replace("2^", ""))
            yield case(name, "%s + 32 columns" % text, RULES, "cols-wrap", into, error="shape")
    for layout in NO_LAYOUTS:
        name = "%s-layout-%s" % (op, slug(layout) or "empty")
        name += "-capital" if layout != layout.lower() else ""
        into = {"layout": layout, "cols": 32, "data": bytes(8 * 34 if layout.startswith("q8") else 8 * 18)}
        yield case(
            name.lower(), "no layout of tiles is called %r" % layout, RULES, "layout-name", into, error="unsupported"
        )


def make_tile(_: dict[str, Case]) -> Iterator[Case]:
    return tile_cases("tile")


def make_untile(_: dict[str, Case]) -> Iterator[Case]:
    yield from tile_cases("untile")
    for layout, (height, size) in LAYOUTS.items():
        rows = data("untile many " + layout, 2 * height * 8 * size)
        into = {"layout": layout, "cols": 256, "data": tiled(rows, 256, layout)}
        text = "sixteen tiles, in two groups of rows"
        yield case("untile-%s-sixteen" % slug(layout), text, RULES, "tile-order tile-chunks", into, {"data": rows})


# ---- integer sums


def codes_of(kind: str, row: bytes) -> Any:
    """The integer codes of linear blocks: blocks x 32."""
    raw = np.frombuffer(row, "u1").reshape(-1, 34 if kind == "q8_0" else 18)[:, 2:]
    if kind == "q8_0":
        return raw.view("i1").astype("i8")
    return np.hstack([raw & 15, raw >> 4]).astype("i8") - 8


def make_block_sums(_: dict[str, Case]) -> Iterator[Case]:
    for kind, size in (("q8_0", 34), ("q4_0", 18)):
        top, low = (b"\x7f", b"\x80") if kind == "q8_0" else (b"\xff", b"\x00")

        def row(*parts: bytes, size: int = size) -> bytes:
            return b"".join(half(1) + (p * (size - 2))[: size - 2] for p in parts)

        order = data("block_sums order", 32)
        step = bytes(range(1, size - 1))
        for key, text, flags, w, x in (
            ("ends", "the largest codes times 127", "exact-sum", row(top), b"\x7f" * 32),
            ("ends-negative", "the smallest codes times 127", "exact-sum minus-128", row(low), b"\x7f" * 32),
            ("minus-128", "the largest codes times -128", "exact-sum minus-128", row(top), b"\x80" * 32),
            ("minus-128-both", "the smallest codes times -128", "exact-sum minus-128", row(low), b"\x80" * 32),
            (
                "pairs",
                "neighbours whose products leave 16 bits, and cancel",
                "exact-sum",
                row(low + top),
                b"\x80\x80\x7f\x7f" * 8,
            ),
            ("first", "the first element alone", "nibble-order", row(step), b"\x01" + bytes(31)),
            ("sixteenth", "element 16 alone", "nibble-order", row(step), bytes(16) + b"\x01" + bytes(15)),
            ("last", "the last element alone", "nibble-order", row(step), bytes(31) + b"\x01"),
            ("order", "every element counts otherwise", "nibble-order", row(step), order),
            ("zero-codes", "zero bytes in the row", "nibble-order", row(b"\0"), order),
            ("zeros", "a vector of zeros", "", row(step), bytes(32)),
            (
                "blocks",
                "three blocks: a sum of each",
                "blocks",
                row(step, top, low),
                order + b"\x01" * 32 + b"\xff" * 32,
            ),
            ("none", "no blocks: no sums", "", b"", b""),
        ):
            sums = (codes_of(kind, w) * np.frombuffer(x, "i1").astype("i8").reshape(-1, 32)).sum(axis=1) if w else []
            prove(key != "ends" or sums[0] == (127 if kind == "q8_0" else 7) * 127 * 32, "the sum by hand")
            into = {"type": kind, "row": w, "x": x}
            out = {"sums": ",".join(str(int(s)) for s in sums)}
            yield case("block-sums-%s-%s" % (slug(kind), key), text, RULES, flags, into, out)
        w, x = row(step, top), order + b"\x01" * 32
        for key, flags, error, text, w2, x2 in (
            ("row-short", "whole-blocks", "truncated", "a row without its last byte", w[:-1], x),
            ("row-long", "whole-blocks", "truncated", "a byte behind the row", w + b"\0", x),
            ("x-short", "vector-length", "shape", "a vector of 63 for a row of 64", w, x[:-1]),
            ("x-long", "vector-length", "shape", "a vector of 65 for a row of 64", w, x + b"\0"),
            ("x-fewer", "vector-length", "shape", "a vector of one block for a row of two", w, x[:32]),
            ("x-more", "vector-length", "shape", "a vector of three blocks for a row of two", w, x + x[:32]),
            ("x-none", "vector-length", "shape", "no vector for a row of two blocks", w, b""),
            ("row-none", "vector-length", "shape", "no row for a vector of two blocks", b"", x),
        ):
            into = {"type": kind, "row": w2, "x": x2}
            yield case("block-sums-%s-%s" % (slug(kind), key), text, RULES, flags, into, error=error)
    for stranger in ("q9_0", "q4", "f16", "q8_8x8"):
        into = {"type": stranger, "row": bytes(34 * 18), "x": bytes(32)}
        name = "block-sums-type-%s" % slug(stranger)
        yield case(
            name, "no blocks of 32 codes are called %r" % stranger, RULES, "type-name", into, error="unsupported"
        )


# ---- a matrix times a vector


def product(kind: str, rows: bytes, x: Any) -> tuple[bytes, bytes]:
    """(y, tol): the exact results in single precision, and n_blocks * 2^-23 * sum |term| beside each."""
    n = len(x) // 32
    quantized = encode("vqf_q8_0", x)  # its codes; the scale before it becomes a half is made here
    q = codes_of("q8_0", quantized)
    s = np.maximum(np.maximum(f32(1e-10), np.abs(x.reshape(-1, 32)).max(axis=1)) / f32(127), f32(1e-10))
    size = 34 if kind == "q8_0" else 18
    codes = codes_of(kind, rows).reshape(-1, n, 32)
    d = np.frombuffer(rows, "u1").reshape(-1, size)[:, :2].copy().view("<f2").reshape(-1, n)
    prove(bool(np.isfinite(d).all()), "finite scales")
    ys, tols = [], []
    for row, scales in zip((codes * q).sum(axis=2), d):
        terms = [int(v) * Fraction(float(a)) * Fraction(float(b)) for v, a, b in zip(row, scales, s)]
        exact = sum(terms, Fraction(0))
        y = f32(float(exact))
        bound = n * Fraction(1, 1 << 23) * sum(map(abs, terms)) + abs(Fraction(float(y)) - exact)
        tol = f32(float(bound))
        ys.append(y)
        tols.append(tol if Fraction(float(tol)) >= bound else np.nextafter(tol, f32(np.inf)))
    return floats(ys), floats(tols)


def rows_of(kind: str, label: str, rows: int, across: int) -> bytes:
    """Rows of any codes, scales of both signs and several sizes."""
    size = 34 if kind == "q8_0" else 18
    d = random("scales " + label, rows * across) / f32(64)
    codes = data("codes " + label, rows * across * (size - 2))
    return b"".join(half(v) + codes[i * (size - 2) : (i + 1) * (size - 2)] for i, v in enumerate(d))


def no_products(kind: str, layouts: tuple[str, ...], eight: bytes, x: Any) -> Iterator[tuple[Any, ...]]:
    """(slug, flags, error, comment, layout, columns, matrix, vector) of what is refused; `eight` rows of 64 columns fit x."""
    size = 34 if kind == "q8_0" else 18
    pair, fewer = eight[: 4 * size], x[:32]
    for key, flags, error, text, cols, rows, v in (
        ("data-short", "whole-blocks", "truncated", "a byte short", 64, pair[:-1], x),
        ("data-long", "whole-blocks", "truncated", "a byte too many", 64, pair + b"\0", x),
        ("data-open", "matrix-rows", "shape", "the last row has one block of two", 64, pair[:-size], x),
        ("x-cut", "whole-blocks", "truncated", "the vector's last value lacks a byte", 64, pair, floats(x)[:-1]),
        ("x-fewer", "vector-length", "shape", "a vector of 32 for 64 columns", 64, pair, fewer),
        ("x-short", "vector-length", "shape", "a vector of 63 for 64 columns", 64, pair, x[:63]),
        ("x-more", "vector-length", "shape", "a vector of 96 for 64 columns", 64, pair, np.append(x, fewer)),
        ("x-none", "vector-length", "shape", "no vector for 64 columns", 64, pair, b""),
        ("cols-fewer", "vector-length", "shape", "32 columns for a vector of 64", 32, pair, x),
        ("cols-zero", "tile-cols", "shape", "no columns and no vector", 0, pair, b""),
        ("cols-negative", "tile-cols", "shape", "-64 columns", -64, pair, x),
        ("cols-wrap-32", "cols-wrap vector-length", "shape", "2^32 + 64 columns", (1 << 32) + 64, pair, x),
        ("cols-wrap-64", "cols-wrap vector-length", "shape", "2^64 + 64 columns", str((1 << 64) + 64), pair, x),
    ):
        yield key, flags, error, text, "linear", cols, rows, v
    for layout in layouts:
        height, _ = LAYOUTS[layout]
        for rows in (height - 1, height + 1, 1):
            text = "%d rows in tiles of %d" % (rows, height)
            stored = (eight * 2)[: rows * 2 * size]
            yield "%s-rows-%d" % (slug(layout), rows), "tile-rows", "shape", text, layout, 64, stored, x
        text = "a byte behind the tiles"
        yield slug(layout) + "-byte", "whole-blocks", "truncated", text, layout, 64, eight + b"\0", x
        text = "a vector of 32 for 64 columns"
        yield slug(layout) + "-x-fewer", "vector-length", "shape", text, layout, 64, eight, fewer
    for layout in sorted(set(LAYOUTS) - set(layouts)):
        stored = rows_of(kind, "matvec other", 136 if kind == "q4_0" else 72, 1)
        height, other = LAYOUTS[layout]
        prove(len(stored) % (height * other) == 0, "whole tiles of the other type, too")
        text = "tiles of blocks of another type"
        yield "as-" + slug(layout), "tile-type", "layout", text, layout, 32, stored, fewer
    for layout in ("q9_8x8", "rows", ""):
        text = "no layout is called %r" % layout
        yield "layout-%s" % (slug(layout) or "empty"), "layout-name", "unsupported", text, layout, 64, pair, x


def make_matvec(_: dict[str, Case]) -> Iterator[Case]:
    for kind, size, layouts in (("q8_0", 34, ("q8_8x8", "q8_4x4")), ("q4_0", 18, ("q4_4x4", "q4_8x8l"))):

        def one(key: str, text: str, flags: str, rows: bytes, x: Any, layout: str = "linear", kind: str = kind) -> Case:
            x = np.asarray(x, "f4")
            y, tol = product(kind, rows, x) if rows else (b"", b"")
            stored = rows if layout == "linear" or not rows else tiled(rows, len(x), layout)
            into = {"type": kind, "layout": layout, "cols": len(x), "data": stored, "x": floats(x)}
            name = "matvec-%s-%s" % (slug(kind), key)
            return case(name, text, "generator; fractions", flags, into, {"y": y, "tol": tol})

        x = random("matvec x", 64)
        x[32:] *= f32(1e-3)
        eight = rows_of(kind, "matvec " + kind, 8, 2)
        row_bytes = 2 * size
        yield one(
            "linear", "eight rows of two blocks; the vector's halves differ in size", "activation matrix-rows", eight, x
        )
        for layout in layouts:
            key = slug(layout)
            yield one(key, "the same in tiles", "tile-order matrix-rows", eight, x, layout)
            text = "two groups of rows, three blocks a row"
            rows = rows_of(kind, "matvec wide " + kind, 16, 3)
            yield one(key + "-wide", text, "tile-order matrix-rows", rows, random("matvec wide x", 96), layout)
            yield one(key + "-none", "no rows", "", b"", x, layout)
        yield one("one", "one row of one block", "", eight[:size], x[:32])
        yield one("none", "no rows", "", b"", x)
        yield one("seventeen", "seventeen rows", "matrix-rows", rows_of(kind, "matvec 17 " + kind, 17, 1), x[:32])
        yield one("zero", "a vector of zeros", "activation", eight, np.zeros(64))
        yield one(
            "zero-half", "a vector whose second half is zeros", "activation", eight, np.append(x[:32], np.zeros(32))
        )
        yield one("zero-row", "a matrix of zero scales", "weight-scale", bytes(row_bytes * 2), x)
        unit = np.zeros(64)
        unit[33] = -3
        yield one("unit", "one element of the vector", "activation nibble-order", eight, unit)
        halves = np.array([127, *[(k // 2 + 0.5) * (-1) ** k for k in range(31)]] * 2)
        yield one("halves", "halves between the vector's codes go away from zero", "activation", eight, halves)
        slips = np.concatenate([block_cases.seen("vqf_q8_0", how, "vqf") for how in ("division", "double")])
        text = "codes from x / d, or in double precision, would be others"
        yield one("reciprocal", text, "activation", rows_of(kind, "matvec reciprocal " + kind, 4, 2), slips)
        yield one("tiny", "a vector below the floor of its scale", "activation scale-floor", eight, x * f32(1e-12))
        yield one("small", "a vector whose scale would be zero as a half", "activation", eight, x * f32(1e-8))
        yield one("large", "a vector whose scale would be infinite as a half", "activation", eight, x * f32(1e9))
        codes = bytes(range(3, size + 1))
        for key, d in (("negative", -0.5), ("least", 2.0**-24), ("largest", 65504.0)):
            text = "the scale of the row's block is %g" % d
            yield one("d-" + key, text, "weight-scale", half(d) + codes, x[:32])
        two = half(1) + codes + half(-2) + codes
        yield one(
            "d-two", "the two blocks of the row have scales of their own", "weight-scale", two, random("matvec d", 64)
        )
        low = half(1) + (b"\x80" if kind == "q8_0" else b"\0") * (size - 2)
        yield one("lowest", "the smallest code, times -127 and 127", "minus-128 exact-sum", low, [-1.0] * 31 + [1.0])

        for key, flags, error, text, layout, cols, stored, v in no_products(kind, layouts, eight, x):
            content = v if isinstance(v, bytes) else floats(v)
            into = {"type": kind, "layout": layout, "cols": cols, "data": stored, "x": content}
            yield case("matvec-%s-%s" % (slug(kind), key), text, RULES, flags, into, error=error)
    for stranger in ("q9_0", "f16", "vqf_q8", "Q8_0", ""):
        into = {"type": stranger, "layout": "linear", "cols": 32, "data": bytes(34 * 18), "x": floats(np.ones(32))}
        name = "matvec-type-%s" % (stranger.lower().replace("_", "-") or "empty")
        yield case(name, "no matrix has the type %r" % stranger, RULES, "type-name", into, error="unsupported")


FILES = {
    "f16_decode": make_f16_decode,
    "f16_encode": make_f16_encode,
    "bf16_decode": make_bf16_decode,
    "bf16_encode": make_bf16_encode,
    "e4m3_decode": make_e4m3_decode,
    "e4m3_encode": make_e4m3_encode,
    "e8m0_decode": make_e8m0_decode,
    "quantize": block_cases.make_quantize,
    "dequantize": block_cases.make_dequantize,
    "tile": make_tile,
    "untile": make_untile,
    "block_sums": make_block_sums,
    "matvec": make_matvec,
}

if __name__ == "__main__":
    prove_by_the_engines()
    sys.exit(main(sys.argv[1:], __doc__, FLAGS, FILES))

#!/usr/bin/env python3
"""Makes kat/files/numbers and kat/files/safetensors: what peers make of floats, blocks and files. Uses nothing of vqfref.

    python3 kat/gen/blocks.py            write the files
    python3 kat/gen/blocks.py --check    make them again and compare; 1 if one differs

It needs the packages numpy, gguf, ml_dtypes and safetensors; it is no part of what runs on a board.

| file | holds | whose values |
|---|---|---|
| numbers/floats.json | all halves as f32; f32 to f16, doubles to f32, f32 to bf16 around boundaries | numpy; bf16: gguf-py |
| numbers/blocks.json | Q8_0 and Q4_0 blocks of any bits with the sha256 of their values; values, encoded | gguf-py; numpy |
| numbers/matmul.json | a matrix times a vector, step by step in float32 | numpy |
| numbers/npy.json | the bytes of .npy files before their data, by shape | numpy |
| safetensors/*.safetensors | files of all dtypes, odd shapes and names, no tensors | safetensors |
| safetensors/values.json | dtype, shape and values of every tensor in them, as f32 | numpy, ml_dtypes |
| safetensors/verdicts.json | small files, right and wrong, and whether they open | safetensors |

Numbers are little-endian, as hex. In hashes of values every NaN counts as 0000c07f.
"""

from __future__ import annotations

import hashlib
import io
import json
import sys
from pathlib import Path

import gguf
import ml_dtypes
import numpy as np
import safetensors

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

FILES = Path(__file__).resolve().parent.parent / "files"
f32 = np.float32


def data(label: str, size: int) -> bytes:
    """Bytes without meaning that anybody can make again."""
    return hashlib.shake_256(label.encode()).digest(size)


def words(label: str, count: int) -> Any:
    """Random 32-bit words."""
    return np.frombuffer(data(label, 4 * count), "<u4")


def values_sha256(x: Any) -> str:
    x = x.astype("<f4").copy()
    x[np.isnan(x)] = np.frombuffer(bytes.fromhex("0000c07f"), "<f4")[0]
    return hashlib.sha256(x.tobytes()).hexdigest()


# ---- floats


def near_halves() -> Any:
    """F32 words on, between and beside halves: for every exponent, at both ends and within."""
    finite = np.arange(0x7C00, dtype=np.uint16)
    low = [h for e in range(31) for h in (e << 10, e << 10 | 1, e << 10 | 0x155, e << 10 | 0x3FE, e << 10 | 0x3FF)]
    values = finite.view(np.float16).astype("f4")
    after = np.append(values[1:], f32(65536))
    found = []
    for h in low:
        middle = (values[h] + after[h]) / f32(2)
        found += [values[h], np.nextafter(middle, f32(0)), middle, np.nextafter(middle, f32("inf"))]
    found += [65535.996, 65536, 65537, 1e38, 3.4028235e38, "inf", 1e-45, 1e-40, 2**-25, 2**-26, 2**-24, 2**-14]
    found = np.array(found, "f4").view("u4")
    return np.concatenate([found, found | 0x80000000, words("f16", 64), np.array([0x7FC00000, 0xFF800001], "u4")])


def near_singles() -> Any:
    """Doubles on, between and beside single-precision numbers, large and small."""
    singles = np.concatenate([words("f32", 96) & 0x7FFFFFFF, [0, 1, 2, 0x7FFFFF, 0x800000, 0x3F800000, 0x7F7FFFFF]])
    singles = singles.astype("u4")
    singles = singles[singles < 0x7F800000]
    low = singles.view("f4").astype("f8")
    high = (singles + np.uint32(1)).view("f4").astype("f8")
    high[np.isinf(high)] = 2.0**128
    middle = (low + high) / 2
    found = np.concatenate([low, np.nextafter(middle, 0), middle, np.nextafter(middle, np.inf)])
    return np.concatenate([found, -found, [1e300, -1e300, 5e-324, 1e-60, np.inf, -np.inf]])


def near_bf16() -> Any:
    """F32 words on, between and beside bf16 numbers; NaN with payloads low and high."""
    top = np.array([0, 1, 0x7F, 0x80, 0x3F80, 0x3F81, 0x7F7E, 0x7F7F, 0x4049], "u4") << 16
    top = np.concatenate([top, words("bf16", 32) & 0x7FFF0000])
    found = np.concatenate([top + np.uint32(n) for n in (0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF)])
    found = np.concatenate([found, np.array([0x7F800000, 0x7F800001, 0x7F80FFFF, 0x7FFFFFFF, 0x7FC00001], "u4")])
    return np.concatenate([found, found | 0x80000000]).astype("u4")


def floats() -> dict[str, Any]:
    every = np.arange(65536, dtype="<u2")
    singles, doubles, tops = near_halves(), near_singles(), near_bf16()
    with np.errstate(over="ignore"):
        halves = singles.view("f4").astype(np.float16).view("<u2")
        rounded = doubles.astype("<f4")
    bf16 = gguf.quants.quantize(tops.view("f4").reshape(1, -1), gguf.GGMLQuantizationType.BF16)
    return {
        "halves_f32_sha256": values_sha256(every.view(np.float16).astype("f4")),
        "f32": singles.astype("<u4").tobytes().hex(),
        "f16": halves.astype("<u2").tobytes().hex(),
        "doubles": doubles.astype("<f8").tobytes().hex(),
        "doubles_f32": rounded.tobytes().hex(),
        "bf16_f32": tops.astype("<u4").tobytes().hex(),
        "bf16": bf16.tobytes().hex(),
    }


# ---- blocks, by section 9, every operation on arrays of float32


def truncated(x: Any) -> Any:
    """The older conversion of f32 to f16, as 16-bit words."""
    w = x.astype("f4").view("u4").astype("i8")
    exponent = (w >> 23 & 0xFF) - 112
    made = np.where(exponent <= 0, 0, np.where(exponent >= 31, 0x7C00, (exponent << 10) | (w >> 13 & 0x3FF)))
    return (made | (w >> 16 & 0x8000)).astype("<u2")


def halves(x: Any, legacy: bool) -> Any:
    """The scales of rows, as two bytes each."""
    w = truncated(x) if legacy else x.astype("f4").astype(np.float16).view("<u2")
    return w.astype("<u2").reshape(-1, 1).view("u1")


def q8_codes(x: Any, s: Any, legacy: bool) -> Any:
    r = (f32(1) / s).reshape(-1, 1)
    t = x * r
    t = np.where((t < 0) & (not legacy), t - f32(0.5), t + f32(0.5))
    return np.clip(np.trunc(t), -127, 127).astype("i1")


def q8_scale(x: Any) -> Any:
    a = np.maximum(f32(1e-10), np.abs(x).max(axis=1))
    return np.maximum(a / f32(127), f32(1e-10))


def q8_0(x: Any, legacy: bool = False) -> bytes:
    s = q8_scale(x)
    return np.hstack([halves(s, legacy), q8_codes(x, s, legacy).view("u1")]).tobytes()


def g256(x: Any, legacy: bool = False) -> bytes:
    """x: all values of one layer, rows of 32."""
    full = len(x) // 8 * 8
    s = np.repeat(q8_scale(x[:full].reshape(-1, 256)), 8)
    made = np.hstack([halves(s, legacy), q8_codes(x[:full], s, legacy).view("u1")]).tobytes()
    return made + bytes(34 * (len(x) - full))


def q4_codes(x: Any) -> tuple[Any, Any]:
    m = x[np.arange(len(x)), np.abs(x).argmax(axis=1)]
    d = m / f32(-8)
    d = np.where(d == 0, f32(1), d)
    i = (f32(1) / d).reshape(-1, 1)
    return d, np.clip(np.trunc(x * i + f32(8.5)), 0, 15).astype("u1")


def q4_0(x: Any, legacy: bool = False) -> bytes:
    d, n = q4_codes(x)
    return np.hstack([halves(d, legacy), n[:, :16] | n[:, 16:] << 4]).tobytes()


def q4i(x: Any, legacy: bool = False) -> bytes:
    d, n = q4_codes(x)
    return np.hstack([halves(d, legacy), n - np.uint8(8)]).tobytes()


def q2_1(x: Any) -> bytes:
    x = x.reshape(-1, 16)
    lo, hi = x.min(axis=1), x.max(axis=1)
    d = (hi - lo) / f32(3)
    d = np.where(d > 0, d, f32(1))
    q = np.trunc((x - lo.reshape(-1, 1)) * (f32(1) / d).reshape(-1, 1) + f32(0.5))
    q = np.clip(q, 0, 3).astype("u1").reshape(-1, 4, 4)
    q = q[..., 0] | q[..., 1] << 2 | q[..., 2] << 4 | q[..., 3] << 6
    scales = np.hstack([halves(d, False), halves(lo, False)])
    return np.hstack([scales.reshape(-1, 8), q.reshape(-1, 8)]).tobytes()


def blocks_of_values() -> Any:
    """17 groups of 32: sizes from the smallest to the largest, ties, one sign, equal peaks, constants, zeros."""
    uniform = words("values", 32 * 17).astype("i4").astype("f4").reshape(17, 32) / f32(2**31)
    scale = np.array([0.05, 1, 1e-7, 1e6, 1e-20, 1e30, 1, -1, 4, 1, 1, 1, 1e-9, 6e-6, 3e-5, 1e-3, 2], "f4")
    made = (uniform * scale.reshape(-1, 1)).astype("f4")
    made[6:8] = np.copysign(made[6:8], scale[6:8].reshape(-1, 1))
    made[8] = np.round(made[8] * f32(4)) / f32(8)  # with the largest 127 / 64: ties
    made[8, 0] = 127 / 64
    made[9, 3], made[9, 5], made[9, 7] = -1.5, 1.5, -1.5
    made[10], made[11] = -0.3, 0
    made[16, 20] = 2.5
    return made


def blocks() -> dict[str, Any]:
    decoded = {}
    for name, size in (("Q8_0", 34), ("Q4_0", 18)):
        content = data(name, 160 * size)
        with np.errstate(all="ignore"):
            array = np.frombuffer(content, np.uint8).reshape(160, size)
            got = gguf.quants.dequantize(array, gguf.GGMLQuantizationType[name])
        decoded[name.lower()] = {"blocks": content.hex(), "f32_sha256": values_sha256(got)}
    x = blocks_of_values()
    encoded = {}
    with np.errstate(all="ignore"):
        for function in (q8_0, g256, q4_0, q4i):
            encoded[function.__name__] = {str(legacy): function(x, legacy).hex() for legacy in (False, True)}
        encoded["q2_1"] = {"False": q2_1(x).hex()}
    return {"decode": decoded, "values": x.astype("<f4").tobytes().hex(), "encode": encoded}


# ---- section 10


def matmul() -> dict[str, Any]:
    """Eight rows of 96 columns: int8 activations, and floats times dequantized weights; sums in order, in float32."""
    rows, cols = 8, 96
    x = (words("x", cols).astype("i4").astype("f4") / f32(2**31)).astype("f4")
    x[32:64] *= f32(1e-3)
    s = q8_scale(x.reshape(-1, 32))
    codes = q8_codes(x.reshape(-1, 32), s, False).astype("i4")
    made: dict[str, Any] = {"x": x.tobytes().hex(), "scales": s.tobytes().hex(), "codes": codes.tolist()}
    for name, size in (("q8_0", 34), ("q4_0", 18)):
        content = np.frombuffer(data("matrix " + name, rows * cols // 32 * size), "u1").reshape(-1, size).copy()
        d = (words("d " + name, len(content)).astype("i4").astype("f4") / f32(2**31)).astype(np.float16)
        content[:, :2] = d.view("u1").reshape(-1, 2)
        if name == "q8_0":
            q = content[:, 2:].view("i1").astype("i4")
        else:
            q = np.hstack([content[:, 2:] & 15, content[:, 2:] >> 4]).astype("i4") - 8
        q, d = q.reshape(rows, -1, 32), d.astype("f4").reshape(rows, -1)
        sums = (q * codes).sum(axis=2)
        y, z = np.zeros(rows, "f4"), np.zeros(rows, "f4")
        for b in range(cols // 32):
            y = y + sums[:, b].astype("f4") * (d[:, b] * s[b])
            for j in range(32):
                z = z + q[:, b, j].astype("f4") * d[:, b] * x[32 * b + j]
        made[name] = {
            "matrix": content.tobytes().hex(),
            "block_sums": sums.tolist(),
            "y": y.tobytes().hex(),
            "float": z.tobytes().hex(),
        }
    return made


# ---- .npy

SHAPES = (
    (), (0,), (1,), (3,), (1234567890123,), (2, 3), (0, 32), (32, 0), (151936, 2048), (3, 32, 64), (2, 4, 32, 32),
    (48, 128, 768, 2048), (1,) * 14, (10,) * 12, (1,) * 31, (64,), (2, 64), (5, 2), (7, 64), (3, 64), (40, 64),
    (2, 3, 32, 64), (2, 32, 64), (3, 32, 64), (32, 64), (2, 3, 64, 32),
)  # fmt: skip


def npy() -> list[Any]:
    made = []
    for shape in SHAPES:
        file = io.BytesIO()
        header = {"descr": "<f4", "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(file, header)
        if np.prod(shape, dtype="f8") < 1e6:  # np.save writes just this
            whole = io.BytesIO()
            np.save(whole, np.zeros(shape, "<f4"))
            if not whole.getvalue().startswith(file.getvalue()):
                raise AssertionError("np.save writes another header for %s" % (shape,))
        made.append([list(shape), file.getvalue().hex()])
    return made


# ---- safetensors

DTYPES = {  # the package's name, numpy's
    "BOOL": ("bool", "?"), "F4": ("float4_e2m1fn_x2", None), "U8": ("uint8", "u1"), "I8": ("int8", "i1"),
    "F8_E5M2": ("float8_e5m2", ml_dtypes.float8_e5m2), "F8_E4M3": ("float8_e4m3fn", ml_dtypes.float8_e4m3fn),
    "F8_E8M0": ("float8_e8m0fnu", ml_dtypes.float8_e8m0fnu), "I16": ("int16", "<i2"), "U16": ("uint16", "<u2"),
    "F16": ("float16", "<f2"), "BF16": ("bfloat16", ml_dtypes.bfloat16), "I32": ("int32", "<i4"),
    "U32": ("uint32", "<u4"), "F32": ("float32", "<f4"), "C64": ("complex64", None), "F64": ("float64", "<f8"),
    "I64": ("int64", "<i8"), "U64": ("uint64", "<u8"),
}  # fmt: skip


def tensor(dtype: str, shape: tuple[int, ...], label: str) -> tuple[str, tuple[int, ...], Any]:
    """(dtype, shape, bytes as an array); wide integers stay below 2^53, so that one rounding makes them f32."""
    kind = DTYPES[dtype][1]
    n = int(np.prod(shape, dtype="i8"))
    if dtype == "F4":
        return dtype, shape, np.frombuffer(data(label, n // 2), "u1")
    size = 8 if kind is None else np.dtype(kind).itemsize
    content = np.frombuffer(data(label, n * size), "u1").copy()
    if dtype == "BOOL":
        content &= 1
    elif dtype in ("I64", "U64"):
        content = (content.view("<u8") >> np.uint64(12)).view("u1")
    elif dtype == "F64":
        values = np.frombuffer(data(label, 4 * n), "<i4").astype("f8") / 3
        content = (
            np.concatenate([values[:-2], [1e300, 1e-300]]).astype("<f8").view("u1") if n > 2 else values.view("u1")
        )
    return dtype, shape, content


FILES_OF = {
    # name: (metadata, tensors)
    "dtypes": ({"format": "pt"}, {"t." + d: (d, (3, 4), d) for d in DTYPES}),
    "odd": (
        {"note": "Größe\n\"quoted\" \\ \u2028"},
        {
            "scalar": ("F32", (), "s"), "empty": ("F32", (0,), "e"), "no columns": ("I64", (5, 0), "n"), "": ("U8", (3,), "u"),
            "odd.byte": ("BOOL", (1,), "b"), "höhe/\U0001f600": ("F16", (2, 1, 3), "h"), "tab\tname": ("BF16", (7,), "t"),
            "rank 12": ("I16", (1,) * 11 + (2,), "r"), "a\"b\\c": ("F8_E4M3", (5,), "q"),
        },
    ),
    "metadata": ({"only": "metadata"}, {}),
    "nothing": (None, {}),
}  # fmt: skip


def serialized(metadata: Any, tensors: dict[str, Any]) -> bytes:
    specs = {}
    for name, (dtype, shape, content) in tensors.items():
        stored = (*shape[:-1], shape[-1] // 2) if dtype == "F4" else shape  # the package doubles it
        specs[name] = safetensors.TensorSpec(
            dtype=DTYPES[dtype][0], shape=list(stored), data_ptr=content.ctypes.data, data_len=len(content)
        )
    return bytes(safetensors.serialize(specs, metadata=metadata))


def as_f32(dtype: str, content: Any) -> str | None:
    """The values as hex of f32; None where the elements are not plain numbers."""
    kind = DTYPES[dtype][1]
    if kind is None:
        return None
    with np.errstate(all="ignore"):
        x = content.view(kind).astype("f4") if len(content) else np.zeros(0, "f4")
    x[np.isnan(x)] = np.frombuffer(bytes.fromhex("0000c07f"), "<f4")[0]
    return str(x.astype("<f4").tobytes().hex())


def safetensors_files() -> dict[str, bytes]:
    made, values = {}, {}
    for file, (metadata, rows) in FILES_OF.items():
        tensors = {name: tensor(*row) for name, row in rows.items()}
        made[file + ".safetensors"] = serialized(metadata, tensors)
        values[file] = {
            "metadata": metadata or {},
            "tensors": {
                name: {
                    "dtype": dtype,
                    "shape": list(shape),
                    "bytes": content.tobytes().hex(),
                    "f32": as_f32(dtype, content),
                }
                for name, (dtype, shape, content) in tensors.items()
            },
        }
    made["values.json"] = text(values)
    return made


def verdicts() -> list[Any]:
    """Small files of one or two tensors with something replaced, and whether the package takes them."""

    def entry(**changes: Any) -> dict[str, Any]:
        made = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8], **changes}
        return {k: v for k, v in made.items() if v is not ...}

    def file(header: Any, size: int = 8) -> bytes:
        raw = header if isinstance(header, str) else json.dumps(header, separators=(",", ":"), ensure_ascii=False)
        return len(raw.encode()).to_bytes(8, "little") + raw.encode() + bytes(size)

    strange = [
        -1, -0.0, 0, 1, 1.0, 2, 3, 8, 2**31, 2**32, 2**32 + 2, 2**61, 2**62, 2**63, 2**64 - 1, 2**64, 2**64 + 2, 10**30,
        True, None, "2", [], {},
    ]  # fmt: skip
    files = {}
    for v in strange:
        files["shape %r" % (v,)] = file({"a": entry(shape=v)})
        files["shape [%r]" % (v,)] = file({"a": entry(shape=[v])})
        files["shape [2, %r]" % (v,)] = file({"a": entry(shape=[2, v])})
        files["offsets [0, %r]" % (v,)] = file({"a": entry(data_offsets=[0, v])})
        files["offsets [%r, 8]" % (v,)] = file({"a": entry(data_offsets=[v, 8])})
        files["offsets %r" % (v,)] = file({"a": entry(data_offsets=v)})
        files["dtype %r" % (v,)] = file({"a": entry(dtype=v)})
        files["metadata %r" % (v,)] = file({"__metadata__": {"k": v}}, 0)
        files["entry %r" % (v,)] = file({"a": v}, 0)
        files["header %r" % (v,)] = file(json.dumps(v), 0)
    for key in ("dtype", "shape", "data_offsets"):
        files["no " + key] = file({"a": entry(**{key: ...})})
    for a, b in ((0, 4), (4, 8), (4, 4), (2, 6), (0, 8), (8, 8), (8, 12), (0, 0)):
        for n in (0, 1):
            pair = {"a": entry(shape=[1], data_offsets=[0, 4]), "b": entry(shape=[n], data_offsets=[a, b])}
            files["then %d … %d of %d" % (a, b, n)] = file(pair)
    for size in (0, 4, 7, 9, 16):
        files["%d bytes of data" % size] = file({"a": entry()}, size)
    for bits, dtype in (
        (d, t) for t in ("F4", "F6_E2M3", "F6_E3M2", "C64", "F8_E4M3", "f32", "FP8") for d in (1, 2, 4)
    ):
        files["%s [%d] in 3" % (dtype, bits)] = file({"a": entry(dtype=dtype, shape=[bits], data_offsets=[0, 3])}, 3)
    for tail in ("", " ", "\n\t\r ", "\0", "}", "x", "\ufeff"):
        files["tail %r" % tail] = file('{"a":{"dtype":"U8","shape":[8],"data_offsets":[0,8]}}' + tail)
        files["lead %r" % tail] = file(tail + '{"a":{"dtype":"U8","shape":[8],"data_offsets":[0,8]}}')
    made = []
    for name, content in files.items():
        try:
            safetensors.deserialize(content)
            opens = True
        except safetensors.SafetensorError:
            opens = False
        made.append([name, content.hex(), opens])
    return made


# ----


def text(value: Any) -> bytes:
    return (json.dumps(value, indent=1) + "\n").encode()


def lines(value: list[Any]) -> bytes:
    """A list as JSON, a line each."""
    return ("[\n" + ",\n".join(json.dumps(v) for v in value) + "\n]\n").encode()


def main(argv: list[str]) -> int:
    made = {
        "numbers/floats.json": text(floats()),
        "numbers/blocks.json": text(blocks()),
        "numbers/matmul.json": json.dumps(matmul()).encode() + b"\n",
        "numbers/npy.json": lines(npy()),
        "safetensors/verdicts.json": lines(verdicts()),
    }
    made.update({"safetensors/" + name: content for name, content in safetensors_files().items()})
    too_large = [name for name, content in made.items() if len(content) > 65536]
    differing = [
        name for name, content in made.items() if argv == ["--check"] and (FILES / name).read_bytes() != content
    ]
    for name, content in made.items():
        if argv != ["--check"]:
            (FILES / name).parent.mkdir(exist_ok=True)
            (FILES / name).write_bytes(content)
    print("%d files, %d differ" % (len(made), len(differing)), *differing, *too_large)
    return 1 if differing or too_large else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

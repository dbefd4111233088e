#!/usr/bin/env python3
"""Makes kat/files/quant, the small vectors of the number encodings. Uses nothing of vqfref.

    python3 kat/gen/quant.py VECTORS            write the files
    python3 kat/gen/quant.py VECTORS --check    make them again and compare; 1 if one differs

VECTORS is the folder with the engine's own output: kquants/, uqff/, uqff-sources/. It needs the packages gguf and numpy;
it is no part of what runs on a board.

| file | holds | whose bytes |
|---|---|---|
| kquants-input.f32 | 37 blocks of 256 little-endian F32: 33 kinds of edge cases, 4 rows of a model | input |
| kquants-q2k.bin … | the same blocks encoded | mistralrs 0.9.5, CPU |
| layer.json | a BF16 layer of 32 x 64; for each of 16 types its entries and the sha256 of its values | mistralrs 0.9.5, CPU |
| gguf.json | blocks of any bits and of extreme scales, with the sha256 of their values; values, encoded | gguf-py |

Values are hashed as little-endian F32; in gguf.json every NaN counts as 0000c07f. Its "many" are 1024 blocks of 32 made
of SHAKE-256("many"): bytes b, 32 a block, and behind them a byte w for each block; value j of block i is the F32 of
(b mod (1 + w) - w // 2) / 512 - (i mod 2) / 10. Of the four blocks of each kind in kquants/ the one was taken with which
the 33 find every slip in an encoder that all 132 find, of 79 that were tried; the 4 rows find the multiplication by
1 / step, and the sum that is rounded only once.
"""

from __future__ import annotations

import hashlib
import json
import struct
import sys
from pathlib import Path

import gguf
import numpy

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, Tuple

    Entries = Dict[str, Tuple[str, Any, bytes]]

OUT = Path(__file__).resolve().parent.parent / "files" / "quant"

KQUANTS = {"q2k": 84, "q3k": 110, "q4k": 144, "q5k": 176, "q6k": 210, "q8k": 292}
CHOSEN = (
    0, 6, 11, 13, 16, 21, 24, 29, 32, 38, 40, 47, 49, 52, 56, 60, 66, 68, 72, 76, 81, 84, 88, 93, 96, 101, 105, 108,
    113, 117, 123, 126, 128,
)  # fmt: skip

# Rows of dense256, as BF16 in the source; a layer has one block a row.
ROWS = (("self_attn.q_proj", 107), ("mlp.down_proj", 33), ("mlp.gate_proj", 20), ("mlp.gate_proj", 34))

LAYER = "model.layers.0.self_attn.k_proj"
LAYER_TYPES = (
    "q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "q8_1", "hqq4", "hqq8", "fp8", "afq2", "afq3", "afq4", "afq6", "afq8",
    "f8q8", "mxfp4",
)  # fmt: skip

# gguf-py's name, bytes a block, where the halves lie
GGUF = {
    "q4_0": ("Q4_0", 18, (0,)),
    "q4_1": ("Q4_1", 20, (0, 2)),
    "q5_0": ("Q5_0", 22, (0,)),
    "q5_1": ("Q5_1", 24, (0, 2)),
    "q8_0": ("Q8_0", 34, (0,)),
    "q2k": ("Q2_K", 84, (80, 82)),
    "q3k": ("Q3_K", 110, (108,)),
    "q4k": ("Q4_K", 144, (0, 2)),
    "q5k": ("Q5_K", 176, (0, 2)),
    "q6k": ("Q6_K", 210, (208,)),
}
# zeros, the smallest and largest subnormal, the smallest and largest normal, 1, infinities, NaN; any bits come besides
HALVES = (0, 0x8000, 1, 0x8001, 0x3FF, 0x400, 0x7BFF, 0xFBFF, 0x3C00, 0x7C00, 0xFC00, 0x7E00)


def data(label: str, size: int) -> bytes:
    """Bytes without meaning that anybody can make again."""
    return hashlib.shake_256(label.encode()).digest(size)


def entries(path: Path) -> Entries:
    """name: (dtype, shape, bytes) of a safetensors file."""
    content = path.read_bytes()
    (n,) = struct.unpack_from("<Q", content)
    header = json.loads(content[8 : 8 + n])
    header.pop("__metadata__", None)
    found = {}
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        found[name] = (entry["dtype"], entry["shape"], content[8 + n + begin : 8 + n + end])
    return found


def kquants(vectors: Path) -> dict[str, bytes]:
    source = entries(vectors / "uqff-sources" / "dense256" / "model.safetensors")
    made = {}
    for name, size in [("input.f32", 1024)] + [(t + ".bin", size) for t, size in KQUANTS.items()]:
        content = (vectors / "kquants" / name).read_bytes()
        blocks = [content[i * size : i * size + size] for i in CHOSEN]
        shard = source if size == 1024 else entries(vectors / "uqff" / name[:3] / (name[:3] + "-0.uqff"))
        for key, row in ROWS:
            weight = shard["model.layers.0.%s.weight" % key][2]
            if size == 1024:
                blocks.append((numpy.frombuffer(weight, "<u2")[256 * row :][:256].astype("<u4") << 16).tobytes())
            else:
                blocks.append(weight[row * size :][:size])
        made["kquants-" + name] = b"".join(blocks)
    return made


def layer(vectors: Path) -> dict[str, Any]:
    dtype, shape, source = entries(vectors / "uqff-sources" / "dense64" / "model.safetensors")[LAYER + ".weight"]
    types = {}
    for name in LAYER_TYPES:
        folder = vectors / "uqff" / name
        index = json.loads((folder / "expected" / "index.json").read_text())
        (expected,) = [x for x in index["layers"] if x["key"] == LAYER]
        if expected["stored"] != name:
            raise AssertionError("%s is stored as %s" % (name, expected["stored"]))
        made: dict[str, Any] = {}
        for entry, (_, _, content) in entries(folder / (name + "-0.uqff")).items():
            if entry.startswith(LAYER + ".weight"):
                made[entry[len(LAYER) + 1 :]] = content.hex()
        made["f32_sha256"] = expected["f32_sha256"]
        types[name] = made
    return {"key": LAYER, "dtype": dtype, "shape": shape, "source": source.hex(), "types": types}


def blocks(name: str) -> bytes:
    """24 blocks of any bits, every third as it is, the scales of the others extreme or sane."""
    _, size, places = GGUF[name]
    made = bytearray(data(name, 24 * size))
    for i in range(24):
        for at in places:
            pick = data("%s %d %d" % (name, i, at), 1)[0]
            half = (None, HALVES[pick % len(HALVES)], 0x2000 + 8 * pick)[i % 3]
            if half is not None:
                struct.pack_into("<H", made, i * size + at, half)
    return bytes(made)


def values() -> Any:
    """Blocks of 32 for the encoders: of every size, ties, equal peaks, constants, zeros."""
    uniform = numpy.frombuffer(data("values", 4 * 32 * 12), "<i4").astype("f4").reshape(12, 32) / numpy.float32(2**31)
    scale = numpy.array([0.05, 1, 1e-7, 1e6, 1e-20, 1e30, 1, -1, 4, 1, 1, 1], "f4").reshape(12, 1)
    made = (uniform * scale).astype("f4")
    made[6:8] = numpy.copysign(made[6:8], scale[6:8])  # all of one sign
    made[8] = numpy.round(made[8] * 2) / 2  # ties
    made[9, 3], made[9, 5], made[9, 7] = -1.5, 1.5, -1.5  # the first peak counts
    made[10] = -0.3
    made[11] = 0
    return made


def many() -> Any:
    """1024 blocks of few digits, in which every rounding of an encoder is seen somewhere."""
    raw = data("many", 33 * 1024)
    made = []
    for i, width in enumerate(raw[32 * 1024 :]):
        made += [(b % (1 + width) - width // 2) / 512 - i % 2 / 10 for b in raw[32 * i : 32 * i + 32]]
    return numpy.array(made, "f4").reshape(-1, 32)


def with_gguf() -> dict[str, Any]:
    decoded, x = {}, values()
    for name, (theirs, size, _) in GGUF.items():
        content = blocks(name)
        with numpy.errstate(all="ignore"):
            array = numpy.frombuffer(content, numpy.uint8).reshape(24, size)
            got = gguf.quants.dequantize(array, gguf.GGMLQuantizationType[theirs]).astype("<f4")
        got[numpy.isnan(got)] = numpy.frombuffer(bytes.fromhex("0000c07f"), "<f4")[0]
        decoded[name] = {"blocks": content.hex(), "f32_sha256": hashlib.sha256(got.tobytes()).hexdigest()}
    encoded, hashes = {}, {}
    for name, (theirs, _, _) in GGUF.items():
        if not name.endswith("k"):
            with numpy.errstate(all="ignore"):
                encoded[name] = gguf.quants.quantize(x, gguf.GGMLQuantizationType[theirs]).tobytes().hex()
            blocks_of_many = gguf.quants.quantize(many(), gguf.GGMLQuantizationType[theirs]).tobytes()
            hashes[name] = hashlib.sha256(blocks_of_many).hexdigest()
    return {"decode": decoded, "values": x.astype("<f4").tobytes().hex(), "encode": encoded, "many_sha256": hashes}


def main(argv: list[str]) -> int:
    vectors, check = Path(argv[0]), argv[1:] == ["--check"]
    made = kquants(vectors)
    for name, content in (("layer.json", layer(vectors)), ("gguf.json", with_gguf())):
        made[name] = (json.dumps(content, indent=1) + "\n").encode()
    differing = [name for name, content in made.items() if check and (OUT / name).read_bytes() != content]
    for name, content in made.items():
        if not check:
            (OUT / name).write_bytes(content)
    print("%d files, %d differ" % (len(made), len(differing)), *differing)
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""The cases of vqf_tensor for kat/gen/vqf_sealed.py: the values of one tensor of a VQF file, by layer and expert.

`fill` puts blocks with scales of all kinds into a file, in the tiles of the format's sections 7 and 8; `values` takes them
out again. Where a byte of a tile lies is written once, `place`, and held against the suite's cases of `tile`. Uses nothing
of vqfref.
"""

from __future__ import annotations

import functools
import json
import struct

from openssl import sm3, sm4
from suite import KAT, case, data, prove
from vqf_parts import (
    BLOCK,
    DIRECTORY,
    EMB_F16,
    ENC,
    F16,
    F32,
    G256,
    GENERATOR,
    HAS_X8,
    IV,
    KEY,
    MODELS,
    MOE,
    PLACES,
    Q4_4X4,
    Q8,
    Q8_8X8,
    Q8BUF_Q4,
    U32,
    U64,
    VISION,
    WORDS,
    X8,
    Model,
    align,
    arch,
    build,
    faults,
    flags_of,
    lay_out,
    row,
    text_rows,
    vision_rows,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterator

    from suite import Case
    from vqf_parts import Arch, Row

# What a flag's cases catch.
FLAGS = {
    "linear": "blocks one after the other, also across rows",
    "q4-tiles": "tiles of 4 rows of Q4_0",
    "q8-tiles": "tiles of 8 rows of Q8_0",
    "x8": "x8 copies of linear rows",
    "x8-tiles": "x8 copies of tiles: both are undone",
    "stays-linear": "a matrix that does not fit the tiles of its flag is linear: its rows, its columns",
    "q4i": "q4i is never tiled, and its codes are small int8",
    "g256": "scales shared by groups of 256, in tiles",
    "layers": "where a layer begins, and all of them in one",
    "experts": "an expert's rows, also where they begin inside a tile",
    "expert-columns": "an expert's columns of down, also where they begin inside a block",
    "f16": "halves, subnormal ones and infinities too",
    "f32": "single precision, bit by bit",
    "padding": "fc2's rows are stored up to a multiple of 32",
    "vision": "the vision tower's shapes; it is never tiled",
    "tail": "a last block that is not full",
    "empty": "a tensor without layers has no values",
    "form-432": "data_offset, flags and enc_iv of the 432-byte header",
    "stream": "the data area is one stream: decryption begins in its middle",
    "stream-wrap": "the counter's carry",
    "enc-key": "an encrypted file and no passphrase",
    "name": "names that the file does not have",
    "layer-range": "layers that the tensor does not have",
    "expert-range": "experts that the layer does not have",
    "dtype": "a type that is unknown",
    "shape": "a directory that contradicts the arch",
    "layer-blocks": "layers that are not whole blocks",
    "gates": "the file as such: size, bounds of any entry",
}
FILES: dict[str, bytes] = {}
TILES = {"q4_4x4": (4, 18, 4, 0x88), "q8_8x8": (8, 34, 4, 0), "q4_8x8l": (8, 18, 8, 0x88)}  # rows, block, chunk, xor

# ---- tiles


def place(layout: str, columns: int, index: int) -> tuple[int, int]:
    """Where byte `index` of rows of `columns` blocks lies in tiles, and what it is xored with."""
    rows, size, chunk, xor = TILES[layout]
    block, at = divmod(index, size)
    r, c = divmod(block, columns)
    base, m = (r // rows * columns + c) * rows * size, r % rows
    if at < 2:
        return base + 2 * m + at, 0
    number, inside = divmod(at - 2, chunk)
    return base + 2 * rows + chunk * (rows * number + m) + inside, xor


def tiled(linear: bytes, layout: str, columns: int) -> bytes:
    out = bytearray(len(linear))
    for index, byte in enumerate(linear):
        at, xor = place(layout, columns, index)
        out[at] = byte ^ xor
    return bytes(out)


def untiled(stored: bytes, layout: str, columns: int) -> bytes:
    places = [place(layout, columns, index) for index in range(len(stored))]
    return bytes(stored[at] ^ xor for at, xor in places)


def prove_the_tiles() -> None:
    """The suite's cases of `tile`, which a rule in numpy made."""
    cases = [c for c in json.loads((KAT / "tile.json").read_text("utf-8")) if c["result"] == "valid"]
    for c in cases:
        if c["in"]["layout"] in TILES:
            linear = bytes.fromhex(c["in"]["data"])
            made = tiled(linear, c["in"]["layout"], int(c["in"]["cols"]) // 32)
            prove(made.hex() == c["out"]["data"], "the tiles of " + c["id"])
            prove(untiled(made, c["in"]["layout"], int(c["in"]["cols"]) // 32) == linear, "and back")
    prove({c["in"]["layout"] for c in cases} >= set(TILES), "every layout has cases")


# ---- matrices, section 6


def matrix(a: Arch, flags: int, name: str) -> tuple[int | None, int, int, int, int, int]:
    """Layers or None; rows and columns as stored; experts; 1 where these are columns; columns of padding."""
    nl, dim, ff, V, hd = (a[w] for w in ("n_layers", "dim", "ffn_dim", "vocab_size", "head_dim"))
    q_out, k_out = a["n_heads"] * hd, a["n_kv_heads"] * hd
    if name[:3] in ("q4_", "q8_", "x8_"):
        rows, cols = {"q": (q_out, dim), "k": (k_out, dim), "v": (k_out, dim), "o": (dim, q_out), "gate": (ff, dim),
                      "up": (ff, dim), "down": (dim, ff), "lm": (V, dim)}[name[3:]]  # fmt: skip
        experts = a["n_experts"] if flags & MOE and name[3:] in ("gate", "up", "down") else 0
        return (None if name.endswith("lm") else nl), rows, cols, experts, int(name.endswith("down")), 0
    text = {"token_embed": (None, V, dim), "final_norm": (None, 1, dim), "attn_norm": (nl, 1, dim), "ffn_norm": (nl, 1, dim),
            "q_norm": (nl, 1, hd), "k_norm": (nl, 1, hd), "moe_router": (nl, a["n_experts"], dim)}  # fmt: skip
    if name in text:
        layers, rows, cols = text[name]
        return layers, rows, cols, 0, 0, 0
    vd, vh, vf, out, ds = (a["vis_" + w] for w in ("depth", "hidden", "ffn", "out_dim", "ds_count"))
    mi, kind = vh * a["vis_merge"] ** 2, name[2:]
    layers, rows, cols = {
        "q8_qkv": (vd, 3 * vh, vh), "q8_proj": (vd, vh, vh), "q8_fc1": (vd, vf, vh), "q8_fc2": (vd, vh, align(vf, 32)),
        "patch_embed": (None, vh, 3 * a["vis_temporal"] * a["vis_patch"] ** 2), "patch_bias": (None, 1, vh),
        "pos_embed": (None, a["vis_max_pos"], vh), "qkv_bias": (vd, 1, 3 * vh), "fc1_bias": (vd, 1, vf),
        "merger_f1w": (None, mi, mi), "merger_f2w": (None, out, mi), "merger_f2b": (None, 1, out),
        "ds_nw": (ds, 1, mi), "ds_f1w": (ds, mi, mi), "ds_f2w": (ds, out, mi), "ds_f2b": (ds, 1, out),
        **dict.fromkeys(("proj_bias", "fc2_bias", "norm1_w", "norm1_b", "norm2_w", "norm2_b"), (vd, 1, vh)),
        "merger_nw": (None, 1, vh), "merger_nb": (None, 1, vh), "merger_f1b": (None, 1, mi), "ds_nb": (ds, 1, mi),
        "ds_f1b": (ds, 1, mi),
    }[kind]  # fmt: skip
    return layers, rows, cols, 0, 0, (align(vf, 32) - vf if kind == "q8_fc2" else 0)


VECTORS = ("final_norm", "attn_norm", "ffn_norm", "q_norm", "k_norm")


def layouts(flags: int, name: str, rows: int, cols: int) -> list[str]:
    """The tiles of a matrix, those last that were made first; section 8."""
    found = []
    if name.startswith("x8_"):
        found.append("q4_8x8l")
    if name[:3] in ("q4_", "x8_") and flags & Q4_4X4:
        found.append("q4_4x4")
    if name.startswith("q8_") and flags & Q8_8X8:
        found.append("q8_8x8")
    return [] if cols % 32 else [x for x in found if rows % TILES[x][0] == 0]


# ---- making


def blocks(label: str, qtype: int, count: int, flags: int = 0) -> bytes:
    """Linear content of `count` elements: scales of either sign, of any size up to 2, subnormal ones too."""
    if qtype == F32:
        return b"".join(struct.pack("<I", v & ~(1 << 30)) for (v,) in struct.iter_unpack("<I", data(label, 4 * count)))
    if qtype == F16:
        words = [v & ~(1 << 14) for (v,) in struct.iter_unpack("<H", data(label, 2 * count))]
        words[:4] = [0x7C00, 0xFC00, 0x8000, 0x7BFF]
        return struct.pack("<%dH" % count, *words[:count])
    size = BLOCK[qtype][1]
    out = bytearray(data(label, -(-count // 32) * size))
    for at in range(0, len(out), size):
        scale = at // (8 * size) * (8 * size) if flags & G256 else at
        out[at : at + 2] = struct.pack("<H", int.from_bytes(out[scale : scale + 2], "little") & ~(1 << 14))
        if flags & Q8BUF_Q4:
            out[at + 2 : at + size] = bytes((b % 16 - 8) & 0xFF for b in out[at + 2 : at + size])
    return bytes(out)


def stored(m: Model, r: Row, label: str) -> bytes:
    """A tensor's bytes as the file has them."""
    if not r.bytes:
        return b""
    layers, rows, cols, _, _, padding = matrix(m.arch, m.flags, r.name)
    out = b""
    text = r.name[:2] != "v_"
    for layer in range(layers or 1):
        source = "q4_" + r.name[3:] if r.name.startswith("x8_") else r.name  # a copy has the same values
        linear = blocks("%s %s %d" % (label, source, layer), r.qtype, rows * cols, m.flags if text else 0)
        if padding:
            zeros = bytearray(linear)
            for i in range(rows * cols):
                if i % cols >= cols - padding:
                    zeros[i // 32 * 34 + 2 + i % 32] = 0
            linear = bytes(zeros)
        for layout in reversed(layouts(m.flags, r.name, rows, cols) if text else []):
            linear = tiled(linear, layout, cols // 32)
        out += linear
    prove(len(out) == r.bytes, "as many bytes as the directory says: %s" % r.name)
    return out


def fill(label: str, m: Model, **more: Any) -> bytes:
    """A file of a model, all its tensors with such values."""
    start = more.get("start") or align(DIRECTORY + 64 * len(m.rows))
    offsets, _ = lay_out(m.rows, start, {})
    change = [(offset, "%ds" % r.bytes, stored(m, r, label)) for r, offset in zip(m.rows, offsets)]
    return build(m, change=change, **more)


# ---- reading


@functools.lru_cache(maxsize=64)
def opened(file: bytes, key: bytes) -> tuple[int, int, bytes]:
    """The form, the flags, and the file with its data area decrypted."""
    flags = int.from_bytes(file[8:12], "little")
    tag = 32 if flags & ENC else 8
    fitting = [f for f in (448, 432) if int.from_bytes(file[PLACES[f] + 8 :][:8], "little") + tag == len(file)]
    prove(len(fitting) == 1, "the form is told by the size")
    at = PLACES[fitting[0]]
    start = int.from_bytes(file[at : at + 8], "little")
    plain = file[start:-tag]
    if flags & ENC:
        plain = sm4("ctr", key[:16], plain, file[at + 16 : at + 32], decrypt=True)
    return fitting[0], flags, file[:start] + plain


def values(file: bytes, name: str, layer: int | None, expert: int | None, key: bytes) -> tuple[list[int], bytes]:
    """The shape and the little-endian single-precision values of a tensor, a layer of it, or an expert of that."""
    form, flags, plain = opened(file, key)
    words = struct.unpack_from("<45I" if form == 448 else "<41I", plain, 16) + ((0,) * 4 if form == 432 else ())
    a = dict(zip(WORDS, words))
    entries = [
        struct.unpack_from("<32sIIIIQQ", plain, DIRECTORY + 64 * i)
        for i in range(int.from_bytes(plain[12:16], "little"))
    ]
    ((_, qtype, _, _, _, offset, size),) = [e for e in entries if e[0] == name.encode().ljust(32, b"\0")]
    layers, rows, cols, experts, by_columns, padding = matrix(a, flags, name)
    count = 1 if layers is None else layers
    per = size // count if count else 0
    shape = [] if layers is None or layer is not None else [layers]
    width = cols - padding
    kept: list[bytes] = []
    for index in range(count) if layer is None else [layer]:
        linear = plain[offset + index * per : offset + (index + 1) * per]
        for layout in layouts(flags, name, rows, cols) if name[:2] != "v_" else []:
            linear = untiled(linear, layout, cols // 32)
        flat = decoded(linear, qtype)
        lines = [flat[4 * r * cols : 4 * (r * cols + width)] for r in range(rows)]
        for e in (range(experts) if expert is None else [expert]) if experts else []:
            if by_columns:
                step = 4 * width // experts
                kept += [line[e * step : (e + 1) * step] for line in lines]
            else:
                kept += lines[e * rows // experts : (e + 1) * rows // experts]
        kept += [] if experts else lines
    if experts:
        shape += [experts] if expert is None else []
        rows, width = (rows, width // experts) if by_columns else (rows // experts, width)
    vector = name in VECTORS or (name[:2] == "v_" and (rows == 1 and name not in ("v_pos_embed", "v_patch_embed")))
    shape += [width] if vector else [rows, width]
    flat = b"".join(kept)
    total = 4
    for n in shape:
        total *= n
    prove(len(flat) == total, "as many values as the shape says: %s" % name)
    return shape, flat


def decoded(linear: bytes, qtype: int) -> bytes:
    """Blocks to single precision, in which each of these products is exact; section 7."""
    if qtype == F32:
        return linear
    if qtype == F16:
        return struct.pack("<%df" % (len(linear) // 2), *(v for (v,) in struct.iter_unpack("<e", linear)))
    out = []
    if qtype == Q8:
        for d, *codes in struct.iter_unpack("<e32b", linear):
            out += [d * q for q in codes]
    else:
        for d, packed in struct.iter_unpack("<e16s", linear):
            out += [d * ((b & 15) - 8) for b in packed] + [d * ((b >> 4) - 8) for b in packed]
    return struct.pack("<%df" % len(out), *out)


# ---- models

WIDE = {"dim": 64, "ffn_dim": 32, "n_heads": 2, "head_dim": 8, "n_layers": 2, "vocab_size": 12, "has_q_norm": 1}
A = arch(**WIDE)  # q_out is 16: o stays linear; rows of q8_lm don't fill tiles of 8
B = arch(**{**WIDE, "n_heads": 4, "n_layers": 1, "vocab_size": 8, "has_q_norm": 0})  # x8 copies fit
C = arch(**{**WIDE, "n_heads": 4, "n_layers": 2, "vocab_size": 10, "has_q_norm": 0})  # and q4 is linear
MIXED = arch(dim=32, ffn_dim=32, n_experts=16, moe_ffn=2, top_k=3, n_layers=2)  # experts cut tiles and blocks
CUT = arch(dim=8, ffn_dim=24, n_experts=3, moe_ffn=8, top_k=1, n_layers=2)  # linear, columns inside blocks
TAIL = arch(dim=4, vocab_size=10)
ODD = arch(dim=5)  # 40 elements a matrix: a last block that is not full, in the only layer
TOWER = arch(
    has_vision=1, vis_depth=2, vis_hidden=8, vis_heads=1, vis_ffn=40, vis_patch=2, vis_temporal=2, vis_merge=1,
    vis_out_dim=4, vis_in_chan=3, vis_max_pos=3, vis_ds_count=2,
)  # fmt: skip
FLAT = {**TOWER, "vis_ds_count": 0}
SMALL = arch(dim=32, ffn_dim=32)
BOTH = EMB_F16 | Q8_8X8 | Q4_4X4

OWN = {
    "q4": Model(A, text_rows(A, "4"), BOTH),
    "q4-untiled": Model(A, text_rows(A, "4"), EMB_F16),
    "q8": Model(A, text_rows(A, "8"), BOTH),
    "q8-untiled": Model(A, text_rows(A, "8"), EMB_F16 | Q4_4X4),
    "dual": Model(B, text_rows(B, "84"), BOTH),
    "q4i": Model(A, text_rows(A, "8"), EMB_F16 | Q4_4X4 | Q8BUF_Q4),
    "g256": Model(A, text_rows(A, "8"), BOTH | G256),
    "x8": Model(B, text_rows(B, "4x"), BOTH | HAS_X8),
    "x8-layers": Model(C, text_rows(C, "4x"), EMB_F16 | Q8_8X8 | HAS_X8),
    "moe": Model(MIXED, text_rows(MIXED, "4"), BOTH | MOE, 3),
    "moe-q8": Model(MIXED, text_rows(MIXED, "8"), BOTH | MOE, 3),
    "moe-linear": Model(CUT, text_rows(CUT, "4"), EMB_F16 | MOE, 3),
    "f32": Model(TAIL, text_rows(TAIL, "4", F32), 0),
    "tail": Model(TAIL, text_rows(TAIL, "8"), EMB_F16),
    "odd": Model(ODD, text_rows(ODD, "84"), EMB_F16),
    "vision": Model(TOWER, text_rows(TOWER, "4") + vision_rows(TOWER), EMB_F16 | VISION),
    "vision-g256": Model(TOWER, text_rows(TOWER, "8") + vision_rows(TOWER), EMB_F16 | VISION | G256),
    "no-deepstack": Model(FLAT, text_rows(FLAT, "4") + vision_rows(FLAT), EMB_F16 | VISION),
    "small": Model(SMALL, text_rows(SMALL, "4"), BOTH),
}


# ---- the cases


def named(label: str, file: bytes) -> str:
    """The path of a file of these cases."""
    prove(FILES.setdefault(label + ".vqf", file) == file, "one file of a name: " + label)
    return "files/vqf-tensor/%s.vqf" % label


def one(
    name: str, comment: str, flags: str, path: str, tensor: str, layer: int | str = "-", expert: int | str = "-",
    passphrase: bytes = b"", error: str | None = None, level: str = "required",
) -> Case:  # fmt: skip
    """One case; what is valid is read here too."""
    into = {"name": tensor, "layer": str(layer), "expert": str(expert), "passphrase": passphrase, "path": path}
    out = {}
    if error is None:
        file = (KAT / path).read_bytes() if path.startswith("files/mini") else FILES[path.rpartition("/")[2]]
        which = [None if v == "-" else int(v) for v in (layer, expert)]
        shape, flat = values(file, tensor, which[0], which[1], sm3(passphrase))
        out = {"shape": ",".join(map(str, shape)), "sm3": sm3(flat)}
    return case("vqf-tensor-" + name, comment, GENERATOR, flags_of(flags, "vqf-tensor-"), into, out, error, level)


def make_vqf_tensor(_: dict[str, Case]) -> Iterator[Case]:
    prove_the_tiles()
    yield from engine_files()
    yield from plain_tensors()
    yield from streams()
    yield from no_such_thing()
    yield from contradictions()


def engine_files() -> Iterator[Case]:
    """The small model in its eight forms: the same values in all of them."""
    seen = set()
    for facts in json.loads((KAT / "files" / "sealed.json").read_text("utf-8")):
        path, passphrase = "files/" + facts["file"], (facts["passphrase"] or "").encode()
        flags = "stream " * bool(passphrase) + "form-432 " * (facts["header_bytes"] == 432)
        for tensor in ("token_embed", "k_norm", "q4_down"):
            extra = {"q4_down": "q4-tiles", "token_embed": "f16", "k_norm": "f32"}[tensor]
            name = "%s-%s" % (facts["file"][:-4], tensor.replace("_", "-"))
            text = "%s of the small model, %s" % (tensor, facts["file"][8:-4])
            made = one(
                name, text, flags + extra, path, tensor, "-" if tensor == "token_embed" else 0, passphrase=passphrase
            )
            seen.add((tensor, made["out"]["sm3"]))
            yield made
        if passphrase:
            name = facts["file"][:-4] + "-no-passphrase"
            text = "the small model, encrypted, and no passphrase"
            yield one(name, text, "enc-key", path, "q4_q", 0, error="key")
    prove(len(seen) == 3, "sealing changes no values")


def plain_tensors() -> Iterator[Case]:
    paths = {name: named(name, fill(name, m)) for name, m in OWN.items()}
    for model, tensor, layer, expert, flags, text in (
        ("q4", "q4_q", 0, "-", "q4-tiles", "two tiles a row"),
        ("q4", "q4_q", 1, "-", "q4-tiles layers", "the second layer in tiles"),
        ("q4", "q4_k", "-", "-", "q4-tiles layers", "both layers in tiles"),
        ("q4", "q4_down", 1, "-", "q4-tiles layers", "sixteen groups of one tile"),
        ("q4", "q4_lm", "-", "-", "q4-tiles", "three groups of rows; no layers"),
        ("q4", "q4_o", 1, "-", "stays-linear", "columns that are no multiple of 32"),
        ("q4", "token_embed", "-", "-", "f16", "halves: infinities, a negative zero, the largest, subnormals"),
        ("q4", "attn_norm", 1, "-", "f32 layers", "the second layer of a norm"),
        ("q4", "ffn_norm", "-", "-", "f32 layers", "both layers of a norm"),
        ("q4", "q_norm", 1, "-", "f32 layers", "a norm of the heads"),
        ("q4", "final_norm", "-", "-", "f32", "a norm that is there once"),
        ("q4-untiled", "q4_q", 1, "-", "linear layers", "flags clear: linear"),
        ("q4-untiled", "q4_down", "-", "-", "linear layers", "flags clear: linear, both layers"),
        ("q8", "q8_q", 0, "-", "q8-tiles", "two groups of two tiles"),
        ("q8", "q8_k", 1, "-", "q8-tiles layers", "the second layer in tiles"),
        ("q8", "q8_up", "-", "-", "q8-tiles layers", "both layers in tiles"),
        ("q8", "q8_o", 0, "-", "stays-linear", "columns that are no multiple of 32"),
        ("q8", "q8_lm", "-", "-", "stays-linear", "rows that don't fill tiles of 8, though those of q fit"),
        ("q8-untiled", "q8_gate", 1, "-", "linear layers", "flag clear: linear, whatever the flag of q4 says"),
        ("dual", "q8_lm", "-", "-", "q8-tiles", "one group of eight rows; no layers"),
        ("dual", "q8_v", 0, "-", "q8-tiles", "both families in a file: the int8 one"),
        ("dual", "q4_v", 0, "-", "q4-tiles", "both families in a file: the nibbles"),
        ("q4i", "q8_q", 1, "-", "q4i layers", "linear, though q4 would be tiled"),
        ("q4i", "q8_down", 0, "-", "q4i", "codes from -8 to 7"),
        ("g256", "q8_gate", 0, "-", "g256 q8-tiles", "one scale for each eight blocks, in tiles"),
        ("g256", "q8_lm", "-", "-", "g256 stays-linear", "one scale for each eight blocks, linear"),
        ("x8", "x8_q", 0, "-", "x8-tiles", "made from tiles of 4 rows"),
        ("x8", "x8_o", 0, "-", "x8-tiles", "one tile a row, made from tiles of 4 rows"),
        ("x8", "x8_k", "-", "-", "x8-tiles", "one group of rows, made from tiles of 4 rows"),
        ("x8", "q4_o", 0, "-", "q4-tiles", "what a copy was made from"),
        ("x8-layers", "x8_q", 1, "-", "x8 layers", "made from linear rows, the second layer"),
        ("x8-layers", "x8_down", "-", "-", "x8 layers", "made from linear rows, both layers"),
        ("x8-layers", "x8_k", 0, "-", "x8", "one group of rows"),
        ("moe", "moe_router", 1, "-", "f32 layers", "one row an expert"),
        ("moe", "q4_gate", 1, 1, "experts", "rows in the middle of a tile"),
        ("moe", "q4_up", 0, 15, "experts", "the last expert"),
        ("moe", "q4_gate", 0, "-", "experts", "all experts"),
        ("moe", "q4_up", "-", 2, "experts layers", "one expert of both layers"),
        ("moe", "q4_down", 0, 0, "expert-columns", "the first two columns of each block"),
        ("moe", "q4_down", 1, 9, "expert-columns", "columns 18 and 19, which are high nibbles"),
        ("moe", "q4_down", "-", "-", "expert-columns layers", "all experts of both layers, each a matrix"),
        ("moe", "q4_q", 1, "-", "q4-tiles layers", "a matrix without experts"),
        ("moe-q8", "q8_gate", 1, 3, "experts", "rows in the middle of a tile of 8"),
        ("moe-q8", "q8_down", 0, 15, "expert-columns", "the last two columns of each block"),
        ("moe-q8", "q8_down", 1, "-", "expert-columns", "all experts"),
        ("moe-linear", "q4_gate", 1, 2, "experts linear", "linear rows, the last expert"),
        ("moe-linear", "q4_down", 0, 1, "expert-columns linear", "columns that cross blocks"),
        ("moe-linear", "q4_down", 1, "-", "expert-columns linear", "all experts"),
        ("f32", "token_embed", "-", "-", "f32", "an embedding in single precision"),
        ("f32", "q4_q", 0, "-", "linear", "eight rows in one block"),
        ("f32", "q4_lm", "-", "-", "tail", "40 nibbles, the second block with 8 of them"),
        ("tail", "q8_lm", "-", "-", "tail", "40 values, the second block with 8 of them"),
        ("odd", "q4_o", 0, "-", "tail linear", "one layer whose last block is not full, nibbles"),
        ("odd", "q8_down", "-", "-", "tail linear", "one layer whose last block is not full"),
        ("vision", "v_q8_fc2", 0, "-", "padding", "rows of 40 values, stored as 64"),
        ("vision", "v_q8_fc2", "-", "-", "padding layers", "both layers"),
        ("vision", "v_q8_qkv", 1, "-", "vision layers", "q, k and v in one"),
        ("vision", "v_q8_proj", 0, "-", "vision", "the projection"),
        ("vision", "v_q8_fc1", 1, "-", "vision layers", "the first linear layer of a block"),
        ("vision", "v_patch_embed", "-", "-", "vision f32", "the patches: three channels"),
        ("vision", "v_pos_embed", "-", "-", "vision f32", "the positions"),
        ("vision", "v_qkv_bias", 1, "-", "vision layers", "a bias"),
        ("vision", "v_fc1_bias", 0, "-", "vision", "a bias as long as vis_ffn, without padding"),
        ("vision", "v_merger_f2w", "-", "-", "vision f32", "the merger"),
        ("vision", "v_ds_f2w", 1, "-", "vision layers", "the second deepstack merger"),
        ("vision", "v_ds_nw", "-", "-", "vision layers", "a norm of both deepstack mergers"),
        ("vision", "q4_q", 0, "-", "linear", "the text model beside it"),
        ("vision-g256", "v_q8_fc1", 0, "-", "vision", "beside groups of 256, each block with a scale of its own"),
        ("no-deepstack", "v_ds_f1w", "-", "-", "empty", "no deepstack mergers: no values"),
        ("no-deepstack", "v_ds_nb", "-", "-", "empty", "no deepstack mergers: no values of a vector"),
    ):  # fmt: skip
        name = "%s-%s" % (model, tensor.replace("_", "-"))
        name += ("" if layer == "-" else "-layer-%s" % layer) + ("" if expert == "-" else "-expert-%s" % expert)
        yield one(name, "%s: %s" % (tensor, text), flags, paths[model], tensor, layer, expert)
    for model, text in (("q4", "text"), ("vision", "with a vision tower")):
        m = OWN[model]._replace(form=432)
        path = named(model + "-432", fill(model, m))
        tensor = "q4_gate" if model == "q4" else "v_q8_fc2"
        yield one(model + "-432", "%s, the 432-byte header" % text, "form-432", path, tensor, 1)


def streams() -> Iterator[Case]:
    """Encrypted: the same model under several IVs."""
    full = b"\xff" * 16
    m = OWN["q4"]._replace(flags=BOTH | ENC)
    plain = FILES["q4.vqf"]
    for form in (448, 432):
        file = fill("q4", m._replace(form=form))
        path = named("enc-%d" % form, file)
        for tensor, layer in (
            ("token_embed", "-"),
            ("q_norm", 1),
            ("q4_q", 1),
            ("q4_o", 0),
            ("q4_down", 1),
            ("q4_lm", "-"),
        ):
            name = "enc-%d-%s" % (form, tensor.replace("_", "-"))
            flags = "stream form-432" if form == 432 else "stream"
            made = one(name, "%s, encrypted" % tensor, flags, path, tensor, layer, passphrase=b"passphrase")
            shape, flat = values(plain, tensor, None if layer == "-" else int(layer), None, KEY)
            prove(
                made["out"] == {"shape": ",".join(map(str, shape)), "sm3": sm3(flat).hex()}, "the plain file's values"
            )
            yield made
        yield one(
            "enc-%d-no-passphrase" % form, "encrypted, and no passphrase", "enc-key", path, "q4_q", 0, error="key"
        )
        yield one(
            "enc-%d-norm-no-passphrase" % form, "a norm is encrypted too", "enc-key", path, "final_norm", error="key"
        )
    path = named("enc-later", fill("q4", m, start=4096))
    yield one(
        "enc-later",
        "data on the next page: the stream begins there",
        "stream",
        path,
        "q4_up",
        1,
        passphrase=b"passphrase",
    )
    small = OWN["small"]._replace(flags=BOTH | ENC)
    for name, text, iv in (
        ("8", "one byte", IV[:15] + b"\xf0"), ("32", "the low 32 bits", IV[:12] + full[:3] + b"\xf0"),
        ("64", "the low 64 bits", IV[:8] + full[:7] + b"\xf0"), ("128", "all of it", full[:15] + b"\xf0"),
    ):  # fmt: skip
        path = named("wrap-" + name, fill("small", small, iv=iv))
        for tensor in ("token_embed", "q4_lm"):
            where = "inside" if tensor == "token_embed" else "before"
            yield one("wrap-%s-%s" % (name, where), "the counter wraps in %s, %s the tensor" % (text, where), "stream-wrap",
                      path, tensor, passphrase=b"passphrase")  # fmt: skip
    moe = OWN["moe"]._replace(flags=OWN["moe"].flags | ENC)
    path = named("enc-moe", fill("moe", moe))
    yield one("enc-moe-down", "columns of an expert, encrypted", "stream expert-columns", path, "q4_down", 1, 5,
              passphrase=b"passphrase")  # fmt: skip
    yield one(
        "enc-moe-gate",
        "rows of an expert, encrypted",
        "stream experts",
        path,
        "q4_gate",
        1,
        5,
        passphrase=b"passphrase",
    )
    yield one(
        "enc-moe-no-passphrase",
        "an expert, encrypted, and no passphrase",
        "enc-key",
        path,
        "q4_gate",
        1,
        5,
        error="key",
    )


def no_such_thing() -> Iterator[Case]:
    """Good files, asked for what they don't have."""
    q4, moe, vision, none = ("files/vqf-tensor/%s.vqf" % f for f in ("q4", "moe", "vision", "no-deepstack"))
    for name, text, tensor in (
        ("other", "a name of nobody's", "nothing"), ("family", "a family that the file lacks", "q8_q"),
        ("x8", "a copy that the file lacks", "x8_q"), ("prefix", "a name's beginning", "q4_"),
        ("longer", "a letter more", "q4_qq"), ("case", "large letters", "Q4_Q"), ("x8-lm", "a copy that no file has", "x8_lm"),
        ("vision", "a tensor of the tower, and no tower", "v_q8_qkv"), ("empty", "no name", ""),
        ("router", "a router, and no experts", "moe_router"), ("source", "the name in a model's folder", "lm_head.weight"),
    ):  # fmt: skip
        yield one("name-" + name, text, "name", q4, tensor, error="name")
    for name, text, path, tensor, layer in (
        ("2", "the third of two layers", q4, "q4_q", 2), ("minus-1", "layer -1", q4, "q4_q", -1),
        ("32-bits", "layer 2^32, which is 0 in 32 bits", q4, "q4_q", U32),
        ("31-bits", "layer 2^31", q4, "q4_q", U32 // 2), ("u32", "layer 2^32 - 1", q4, "q4_q", U32 - 1),
        ("64-bits", "layer 2^64, which is 0 in 64 bits", q4, "q4_q", U64),
        ("u64", "layer 2^64 - 1", q4, "q4_q", U64 - 1), ("norm", "the third of two layers of a norm", q4, "attn_norm", 2),
        ("embed", "a second layer of the embedding", q4, "token_embed", 1),
        ("lm", "a second layer of the output", q4, "q4_lm", 1),
        ("bytes-wrap", "layer 2^61, whose bytes are 0 modulo 2^64", q4, "q4_q", 1 << 61),
        ("tower", "as many layers as the text model has, not the tower", vision, "v_q8_fc2", 2),
        ("deepstack", "the third of two deepstack mergers", vision, "v_ds_f1w", 2),
        ("none", "the first of no deepstack mergers", none, "v_ds_f1w", 0),
        ("experts", "the third of two layers of experts", moe, "q4_gate", 2),
    ):  # fmt: skip
        yield one("layer-" + name, text, "layer-range", path, tensor, layer, error="range")
    for name, text, path, tensor, expert in (
        ("16", "the seventeenth of 16 experts", moe, "q4_gate", 16), ("minus-1", "expert -1", moe, "q4_gate", -1),
        ("columns-16", "the seventeenth of 16 experts' columns", moe, "q4_down", 16),
        ("columns-minus-1", "expert -1, by columns", moe, "q4_down", -1),
        ("32-bits", "expert 2^32, which is 0 in 32 bits", moe, "q4_up", U32),
        ("64-bits", "expert 2^64, which is 0 in 64 bits", moe, "q4_down", U64),
        ("rows-wrap", "expert 2^31, whose rows are 0 in 32 bits", moe, "q4_gate", U32 // 2),
        ("q", "an expert of q, which has none", moe, "q4_q", 0), ("router", "an expert of the router", moe, "moe_router", 0),
        ("dense", "an expert of a dense model", q4, "q4_gate", 0), ("norm", "an expert of a norm", moe, "attn_norm", 0),
    ):  # fmt: skip
        yield one("expert-" + name, text, "expert-range", path, tensor, 0, expert, error="range")


def contradictions() -> Iterator[Case]:
    """Files whose directory or size can't be right, the tag right."""
    q4 = MODELS["q4"]

    def other(tensor: str, **parts: int) -> bytes:
        return build(q4._replace(rows=[r._replace(**parts) if r.name == tensor else r for r in q4.rows]))

    for name, text, tensor, file, error in (
        ("qtype-0", "qtype 0", "q4_q", other("q4_q", qtype=0), "dtype"),
        ("qtype-6", "qtype 6", "q4_q", other("q4_q", qtype=6), "dtype"),
        ("qtype-259", "qtype 259, which is 3 in a byte", "q4_q", other("q4_q", qtype=259), "dtype"),
        ("qtype-max", "qtype 2^32 - 1", "q4_k", other("q4_k", qtype=U32 - 1), "dtype"),
        ("norm-qtype-0", "qtype 0 of a norm", "attn_norm", other("attn_norm", qtype=0), "dtype"),
        ("q8-for-q4", "q4_q as Q8_0, with as many bytes as that takes", "q4_q", other("q4_q", qtype=Q8, bytes=34), "shape"),
        ("x8-for-q4", "q4_q as Q4_8X8L, of the same size", "q4_q", other("q4_q", qtype=X8), "shape"),
        ("f16-norm", "a norm in halves", "final_norm", other("final_norm", qtype=F16, bytes=8), "shape"),
        ("rows", "more rows than the arch says", "q4_q", other("q4_q", rows=16, cols=8, bytes=72), "shape"),
        ("norm-longer", "a norm longer than the arch says", "attn_norm", other("attn_norm", rows=8, bytes=32), "shape"),
        ("norm-shorter", "a norm shorter than the arch says", "ffn_norm", other("ffn_norm", rows=3, bytes=12), "shape"),
        ("no-bytes", "no bytes", "q4_v", other("q4_v", rows=0, bytes=0), "shape"),
        ("byte-less", "a byte less than the block has", "q4_o", other("q4_o", bytes=17), "shape"),
        ("byte-more", "a byte more than the block has", "q4_o", other("q4_o", bytes=19), "shape"),
        ("block-more", "a block more than the arch says", "q4_lm", other("q4_lm", bytes=36), "shape"),
    ):  # fmt: skip
        found = faults(file)
        prove(found == {error}, "%s: %s" % (name, found))
        yield one("entry-" + name, text, "dtype" if error == "dtype" else "shape", named("entry-" + name, file), tensor,
                  error=error, level="recommended")  # fmt: skip
    odd = arch(dim=5, n_layers=2)
    file = build(Model(odd, text_rows(odd, "4"), EMB_F16))
    prove(faults(file) == {"shape"}, "layers that are not whole blocks")
    for tensor, layer in (("q4_q", 0), ("q4_down", 1), ("q4_o", "-")):
        yield one("layer-blocks-" + tensor[3:], "%s: two layers of 40 elements each, blocks of 32" % tensor, "layer-blocks",
                  named("layer-blocks", file), tensor, layer, error="shape", level="recommended")  # fmt: skip
    good = FILES["small.vqf"]
    extra = q4._replace(rows=[*q4.rows, row("extra", F32, 16, 1)])
    end = DIRECTORY + 64 * 13 + 768
    for name, text, file, error in (
        ("cut", "the file's last byte missing", good[:-1], "truncated"),
        ("cut-data", "the file's last tensor missing", good[: -8 - 64], "truncated"),
        ("longer", "a byte more at the file's end", good + b"\0", "bounds"),
        ("bounds", "another tensor behind the data area", build(extra, places={12: end}), "bounds"),
        ("wrap", "another tensor whose end wraps around at 2^64", build(extra, places={12: U64 - 64}), "bounds"),
    ):  # fmt: skip
        prove(faults(file) == {error}, name)
        yield one("gate-" + name, text, "gates", named("gate-" + name, file), "q4_q", 0, error=error)

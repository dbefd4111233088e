"""VQF files for tests: the real ones in kat/files, and a small builder for other models.

Nothing here uses the library. Every offset is a literal from the tables of the format, the checksum is a loop of its
own, and tests/test_audit.py holds the builder against the real files and against the sizes of known models. It leaves
out encryption and signatures: the real files have those.
"""

from __future__ import annotations

import functools
import struct
from collections import namedtuple
from pathlib import Path

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Sequence

FILES = Path(__file__).resolve().parent.parent / "kat" / "files"
REAL = tuple("h%d-%s" % (form, kind) for form in (432, 448) for kind in ("plain", "enc", "signed", "enc-signed"))

# Where everything lies. Arch words are 4 bytes each from offset 16; the 41-word form ends before n_experts.
ARCH = 16
ARCH_WORDS = (
    "dim", "n_layers", "n_heads", "n_kv_heads", "head_dim", "ffn_dim", "vocab_size",
    "max_seq_len", "rope_theta", "norm_eps", "bos_id", "eos_id", "has_q_norm", "has_mrope",
    "head_dim_full", "kv_lora_rank", "has_vision", "vis_depth", "vis_hidden", "vis_heads", "vis_ffn",
    "vis_patch", "vis_temporal", "vis_merge", "vis_out_dim", "vis_in_chan", "vis_max_pos", "vis_ds_count",
    "mrope_n_sec", "vis_ds_idx0", "vis_ds_idx1", "vis_ds_idx2", "vis_ds_idx3",
    "mrope_sections0", "mrope_sections1", "mrope_sections2", "mrope_sections3",
    "vision_start_id", "vision_end_id", "image_token_id", "video_token_id",
    "n_experts", "moe_ffn", "top_k", "shared_experts",
)  # fmt: skip
WORD = {name: ARCH + 4 * index for index, name in enumerate(ARCH_WORDS)}
HEADER = {
    448: {"pad": 196, "data_offset": 200, "file_len": 208, "enc_iv": 216, "enc_rsvd": 232, "sig": 248},
    432: {"pad": 180, "data_offset": 184, "file_len": 192, "enc_iv": 200, "enc_rsvd": 216, "sig": 232},
}
SIG = {"pub": 0, "r": 64, "s": 96, "digest": 128, "id": 160, "id_len": 192, "reserved": 196}
DIRECTORY = 448
ENTRY = {"name": 0, "qtype": 32, "rows": 36, "cols": 40, "pad": 44, "offset": 48, "bytes": 56}
F32, Q8_0, Q4_0, Q4_8X8L, F16 = 1, 2, 3, 4, 5

Row = namedtuple("Row", "name qtype rows cols bytes")  # one directory entry that has no place yet


def real(name: str) -> bytes:
    """The bytes of a real file, by the part of its name that differs: real("h448-plain")."""
    return (FILES / ("mini-q4-%s.vqf" % name)).read_bytes()


def patch(data: bytes, offset: int, fmt: str, *values: Any) -> bytes:
    """A copy with little-endian values written over what was at `offset`; nothing grows."""
    out = bytearray(data)
    struct.pack_into("<" + fmt, out, offset, *values)
    return bytes(out)


def flip(data: bytes, bit: int) -> bytes:
    """A copy with one bit turned over; bit 0 is the lowest of byte 0."""
    out = bytearray(data)
    out[bit >> 3] ^= 1 << (bit & 7)
    return bytes(out)


def missing(n: int) -> str:
    """What a message says of so many bytes too few."""
    return "1 byte is missing" if n == 1 else "%d bytes are missing" % n


def fnv1a64(data: bytes) -> int:
    """FNV-1a of 64 bits, as its authors write it."""
    h = 0xCBF29CE484222325
    for byte in data:
        h ^= byte
        h = h * 0x100000001B3 % (1 << 64)
    return h


def reseal(data: bytes, form: int = 448) -> bytes:
    """A plain file with the right checksum behind file_len, over directory and data area as the header has them."""
    (n,) = struct.unpack_from("<I", data, 12)
    start, stop = struct.unpack_from("<QQ", data, HEADER[form]["data_offset"])
    return data[:stop] + struct.pack("<Q", fnv1a64(data[DIRECTORY : DIRECTORY + 64 * n] + data[start:stop]))


def at(index: int, field: str = "name") -> int:
    """Where a field of directory entry `index` lies."""
    return DIRECTORY + 64 * index + ENTRY[field]


def index_of(data: bytes, name: str) -> int:
    """The position of a name in the directory."""
    wanted = name.encode().ljust(32, b"\0")
    return next(i for i in range(struct.unpack_from("<I", data, 12)[0]) if data[at(i) : at(i) + 32] == wanted)


def place_of(data: bytes, name: str) -> tuple[int, int]:
    """(offset, bytes) of a tensor, from its directory entry."""
    offset, nbytes = struct.unpack_from("<QQ", data, at(index_of(data, name), "offset"))
    return offset, nbytes


# ---- other models


def arch(**words: float) -> dict[str, float]:
    """The arch of the real files, with some words replaced."""
    mini = dict.fromkeys(ARCH_WORDS, 0)
    mini.update(
        dim=32, n_layers=1, n_heads=1, n_kv_heads=1, head_dim=32, ffn_dim=32, vocab_size=32, max_seq_len=8192,
        bos_id=151643, eos_id=151645, has_q_norm=1, has_mrope=1, head_dim_full=32, mrope_n_sec=3,
        mrope_sections0=8, mrope_sections1=4, mrope_sections2=4,
        vision_start_id=151652, vision_end_id=151653, image_token_id=151655, video_token_id=151656,
    )  # fmt: skip
    if set(words) - set(mini):
        raise KeyError(sorted(set(words) - set(mini)))
    return {**mini, "rope_theta": 5e6, "norm_eps": 1e-6, **words}


def row(name: str, qtype: int, rows: int, cols: int) -> Row:
    """A directory entry with the bytes that its numbers call for."""
    n = rows * cols
    size = {F32: n * 4, F16: n * 2, Q8_0: -(-n // 32) * 34, Q4_0: -(-n // 32) * 18, Q4_8X8L: -(-n // 32) * 18}
    return Row(name, qtype, rows, cols, size[qtype])


def text_rows(a: dict[str, Any], families: str = "4") -> list[Row]:
    """The tensors of a text model in the writer's order; families as "8", "4", "4x", "84"."""
    nl, dim, ff, vocab = a["n_layers"], a["dim"], a["ffn_dim"], a["vocab_size"]
    q_out, k_out = a["n_heads"] * a["head_dim"], a["n_kv_heads"] * a["head_dim"]
    rows = [
        row("token_embed", F16, vocab, dim),
        row("final_norm", F32, dim, 1),
        row("attn_norm", F32, nl * dim, 1),
        row("ffn_norm", F32, nl * dim, 1),
    ]
    if a["has_q_norm"]:
        rows += [row("q_norm", F32, nl * a["head_dim"], 1), row("k_norm", F32, nl * a["head_dim"], 1)]
    if a["n_experts"]:
        rows.append(row("moe_router", F32, nl * a["n_experts"], dim))
    for family in families:
        prefix, qtype = {"8": ("q8_", Q8_0), "4": ("q4_", Q4_0), "x": ("x8_", Q4_8X8L)}[family]
        rows += [
            row(prefix + "q", qtype, nl * dim, q_out),
            row(prefix + "k", qtype, nl * dim, k_out),
            row(prefix + "v", qtype, nl * dim, k_out),
            row(prefix + "o", qtype, nl * q_out, dim),
            row(prefix + "gate", qtype, nl * ff, dim),
            row(prefix + "up", qtype, nl * ff, dim),
            row(prefix + "down", qtype, nl * dim, ff),
        ]
        if family != "x":
            rows.append(row(prefix + "lm", qtype, vocab, dim))
    return rows


def vision_rows(a: dict[str, Any]) -> list[Row]:
    """The 27 tensors of a vision tower."""
    vd, vh, vf, out, ds = a["vis_depth"], a["vis_hidden"], a["vis_ffn"], a["vis_out_dim"], a["vis_ds_count"]
    mi, vfp = vh * a["vis_merge"] * a["vis_merge"], (vf + 31) // 32 * 32
    table = (
        ("v_q8_qkv", Q8_0, vd, 3 * vh * vh), ("v_q8_proj", Q8_0, vd, vh * vh),
        ("v_q8_fc1", Q8_0, vd, vf * vh), ("v_q8_fc2", Q8_0, vd, vh * vfp),
        ("v_patch_embed", F32, 1, vh * 3 * a["vis_temporal"] * a["vis_patch"] * a["vis_patch"]),
        ("v_patch_bias", F32, 1, vh), ("v_pos_embed", F32, 1, a["vis_max_pos"] * vh),
        ("v_qkv_bias", F32, vd, 3 * vh), ("v_proj_bias", F32, vd, vh),
        ("v_norm1_w", F32, vd, vh), ("v_norm1_b", F32, vd, vh), ("v_norm2_w", F32, vd, vh), ("v_norm2_b", F32, vd, vh),
        ("v_fc1_bias", F32, vd, vf), ("v_fc2_bias", F32, vd, vh),
        ("v_merger_nw", F32, 1, vh), ("v_merger_nb", F32, 1, vh),
        ("v_merger_f1w", F32, 1, mi * mi), ("v_merger_f1b", F32, 1, mi),
        ("v_merger_f2w", F32, 1, mi * out), ("v_merger_f2b", F32, 1, out),
        ("v_ds_nw", F32, ds, mi), ("v_ds_nb", F32, ds, mi), ("v_ds_f1w", F32, ds, mi * mi), ("v_ds_f1b", F32, ds, mi),
        ("v_ds_f2w", F32, ds, mi * out), ("v_ds_f2b", F32, ds, out),
    )  # fmt: skip
    return [row(*entry) for entry in table]


def align64(x: int) -> int:
    return (x + 63) & ~63


def page_after_directory(n: int) -> int:
    """data_offset of a file of n tensors: the end of the directory, rounded up to 4096."""
    return (DIRECTORY + 64 * n + 4095) // 4096 * 4096


def lay_out(rows: Sequence[Row], data_offset: int, places: dict[int, int] | None = None) -> tuple[list[int], int]:
    """The tensors' offsets and file_len; `places` puts single ones elsewhere, by index, and the rest goes on behind."""
    offsets, end = [], data_offset
    for index, r in enumerate(rows):
        offset = (places or {}).get(index, end)
        offsets.append(offset)
        end = align64(max(end, offset + r.bytes))
    return offsets, end


def build(
    a: dict[str, Any],
    rows: Sequence[Row],
    flags: int,
    *,
    form: int = 448,
    version: int = 2,
    data_offset: int | None = None,
    places: dict[int, int] | None = None,
    file_len: int | None = None,
    seal: bool = True,
) -> bytes:
    """A plain file. No byte of a tensor is zero, every byte of padding is; places as in lay_out, unsealed tags are 1."""
    start = page_after_directory(len(rows)) if data_offset is None else data_offset
    offsets, end = lay_out(rows, start, places)
    end = end if file_len is None else file_len
    out = bytearray(end + 8)
    struct.pack_into("<4sIII", out, 0, bytes.fromhex("46514657"), version, flags, len(rows))
    for name in ARCH_WORDS if form == 448 else ARCH_WORDS[:41]:
        kind = "f" if name in ("rope_theta", "norm_eps") else "i" if a[name] < 0 else "I"
        struct.pack_into("<" + kind, out, WORD[name], a[name])
    struct.pack_into("<QQ", out, HEADER[form]["data_offset"], start, end)
    for index, (r, offset) in enumerate(zip(rows, offsets)):
        name = r.name if isinstance(r.name, bytes) else r.name.encode()
        struct.pack_into("<32sIII4xQQ", out, at(index), name, r.qtype, r.rows, r.cols, offset, r.bytes)
        if start <= offset and offset + r.bytes <= end:
            out[offset : offset + r.bytes] = pattern(index, r.bytes)
    struct.pack_into("<Q", out, end, 1)
    return reseal(bytes(out), form) if seal else bytes(out)


def pattern(index: int, length: int) -> bytes:
    """Bytes 1..255 over and over, each tensor beginning at another one."""
    start = 17 * index % 255
    return (bytes(range(1, 256)) * (length // 255 + 2))[start : start + length]


# Archs and flag words (bit 0 Q8_8X8, 1 Q4_4X4, 2 X8, 3 Q8BUF_Q4, 4 G256, 5 EMB_F16, 6 VISION, 9 MOE) of other models.
LAYERS = arch(dim=64, n_layers=3, n_heads=4, n_kv_heads=2, head_dim=8, head_dim_full=8, ffn_dim=96, vocab_size=40)
MOE = arch(
    n_layers=2, n_heads=2, head_dim=16, head_dim_full=16, vocab_size=40, ffn_dim=128, n_experts=4, moe_ffn=32, top_k=2
)
VISION = arch(
    has_vision=1, vis_depth=2, vis_hidden=16, vis_heads=2, vis_ffn=24, vis_patch=2, vis_temporal=2, vis_merge=2,
    vis_out_dim=32, vis_in_chan=3, vis_max_pos=16, vis_ds_count=1, vis_ds_idx0=1,
)  # fmt: skip
NO_DEEPSTACK = {**VISION, "vis_ds_count": 0, "vis_ds_idx0": 0}
TAILS = arch(n_layers=2, n_heads=2, head_dim=12, head_dim_full=12, vocab_size=40)  # k, v: 384 elements a layer
LM_TAIL = arch(vocab_size=36)  # q8_lm: 1152 elements

MODELS = {
    # name: (arch, rows, flags, version)
    "mini": (arch(), text_rows(arch()), 0x23, 2),
    "layers": (LAYERS, text_rows(LAYERS), 0x23, 2),
    "dual": (LAYERS, text_rows(LAYERS, "84"), 0x23, 2),
    "q8": (LAYERS, text_rows(LAYERS, "8"), 0x23, 2),
    "x8": (LAYERS, text_rows(LAYERS, "4x"), 0x27, 2),
    "q4i": (LAYERS, text_rows(LAYERS, "8"), 0x2A, 2),
    "g256": (LAYERS, text_rows(LAYERS, "8"), 0x33, 2),
    "tails": (TAILS, text_rows(TAILS, "8"), 0x32, 2),
    "lm-tail": (LM_TAIL, text_rows(LM_TAIL, "8"), 0x33, 2),
    "moe": (MOE, text_rows(MOE), 0x223, 3),
    "moe-dual": (MOE, text_rows(MOE, "84"), 0x223, 3),
    "vision": (VISION, text_rows(VISION) + vision_rows(VISION), 0x63, 2),
    "no-deepstack": (NO_DEEPSTACK, text_rows(NO_DEEPSTACK) + vision_rows(NO_DEEPSTACK), 0x63, 2),
}


@functools.lru_cache(maxsize=None)
def model(name: str, form: int = 448) -> bytes:
    """One of MODELS as a clean plain file."""
    a, rows, flags, version = MODELS[name]
    return build(a, rows, flags, form=form, version=version)


def without(name: str, *missing: str) -> bytes:
    """One of MODELS that lacks some tensors and is right in all else."""
    a, rows, flags, version = MODELS[name]
    return build(a, [r for r in rows if r.name not in missing], flags, version=version)

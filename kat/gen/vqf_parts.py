"""VQF files byte by byte, from the format's tables: how kat/gen/vqf.py builds them, and how it judges them.

`build` makes a file with a right tag, whatever else is wrong with it; `head_fault` and `faults` say what is wrong, by the
format's text. SM3, SM4, HMAC and the verdict over signatures are OpenSSL's. Numbers are little-endian. To keep files
small, data_offset is the first multiple of 64 behind the directory, which the format allows; its own converter takes the
next page. Uses nothing of vqfref.
"""

from __future__ import annotations

import functools
import struct
from collections import namedtuple

from openssl import G as BASE_POINT
from openssl import b32, hmac_sm3, is_signature, public_from_private, raw, scalar, sign_with, sm3, sm4, times, z_input
from suite import data, prove

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, Sequence

    Arch = Dict[str, Any]

# ---- the format's tables

MAGIC = bytes.fromhex("46514657")
F32, Q8, Q4, X8, F16 = 1, 2, 3, 4, 5
BLOCK = {F32: (1, 4), Q8: (32, 34), Q4: (32, 18), X8: (32, 18), F16: (1, 2)}  # elements, bytes
Q8_8X8, Q4_4X4, HAS_X8, Q8BUF_Q4, G256, EMB_F16, VISION, ENC, SIGNED, MOE = (1 << bit for bit in range(10))
WORDS = (
    "dim", "n_layers", "n_heads", "n_kv_heads", "head_dim", "ffn_dim", "vocab_size", "max_seq_len", "rope_theta",
    "norm_eps", "bos_id", "eos_id", "has_q_norm", "has_mrope", "head_dim_full", "kv_lora_rank", "has_vision",
    "vis_depth", "vis_hidden", "vis_heads", "vis_ffn", "vis_patch", "vis_temporal", "vis_merge", "vis_out_dim",
    "vis_in_chan", "vis_max_pos", "vis_ds_count", "mrope_n_sec", "vis_ds_idx0", "vis_ds_idx1", "vis_ds_idx2",
    "vis_ds_idx3", "mrope_sections0", "mrope_sections1", "mrope_sections2", "mrope_sections3", "vision_start_id",
    "vision_end_id", "image_token_id", "video_token_id", "n_experts", "moe_ffn", "top_k", "shared_experts",
)  # fmt: skip
POSITIVE = ("dim", "n_layers", "n_heads", "head_dim", "ffn_dim", "vocab_size")
PLACES = {448: 200, 432: 184}  # of data_offset; file_len, enc_iv, enc_rsvd and the signature block follow
DIRECTORY = 448
GENERATOR = "generator, from the format's text"
U32, U64 = 1 << 32, 1 << 64

Row = namedtuple("Row", "name qtype rows cols bytes")
Row.__doc__ = "A directory entry without a place."
Model = namedtuple("Model", "arch rows flags version form", defaults=(2, 448))


def flags_of(words: str, prefix: str = "vqf-") -> str:
    """The full names of flags."""
    return " ".join(prefix + word for word in words.split())


def align(x: int, to: int = 64) -> int:
    return -(-x // to) * to


def row(name: str, qtype: int, rows: int, cols: int) -> Row:
    elements, size = BLOCK[qtype]
    return Row(name, qtype, rows, cols, -(-rows * cols // elements) * size)


def text_rows(a: Arch, families: str, embed: int = F16) -> list[Row]:
    """The tensors of the text model, section 6; families: any of "8", "4", "x"."""
    nl, dim, ff, V, hd = (a[w] for w in ("n_layers", "dim", "ffn_dim", "vocab_size", "head_dim"))
    q_out, k_out = a["n_heads"] * hd, a["n_kv_heads"] * hd
    rows = [row("token_embed", embed, V, dim), row("final_norm", F32, dim, 1)]
    rows += [row(name, F32, nl * dim, 1) for name in ("attn_norm", "ffn_norm")]
    rows += [row(name, F32, nl * hd, 1) for name in ("q_norm", "k_norm") if a["has_q_norm"]]
    if a["n_experts"]:
        rows.append(row("moe_router", F32, nl * a["n_experts"], dim))
    for family in families:
        qtype = {"8": Q8, "4": Q4, "x": X8}[family]
        for suffix, r, c in (
            ("q", nl * dim, q_out), ("k", nl * dim, k_out), ("v", nl * dim, k_out), ("o", nl * q_out, dim),
            ("gate", nl * ff, dim), ("up", nl * ff, dim), ("down", nl * dim, ff), ("lm", V, dim),
        ):  # fmt: skip
            if (family, suffix) != ("x", "lm"):
                rows.append(row({"8": "q8_", "4": "q4_", "x": "x8_"}[family] + suffix, qtype, r, c))
    return rows


def vision_rows(a: Arch) -> list[Row]:
    """The 27 tensors of the vision tower, section 6."""
    vd, vh, vf, out, ds = (a["vis_" + w] for w in ("depth", "hidden", "ffn", "out_dim", "ds_count"))
    mi = vh * a["vis_merge"] ** 2
    patch = vh * 3 * a["vis_temporal"] * a["vis_patch"] ** 2
    found = [
        row("v_q8_qkv", Q8, vd, 3 * vh * vh), row("v_q8_proj", Q8, vd, vh * vh), row("v_q8_fc1", Q8, vd, vf * vh),
        row("v_q8_fc2", Q8, vd, vh * align(vf, 32)),
    ]  # fmt: skip
    for name, r, c in (
        ("patch_embed", 1, patch), ("patch_bias", 1, vh), ("pos_embed", 1, a["vis_max_pos"] * vh), ("qkv_bias", vd, 3 * vh),
        ("proj_bias", vd, vh), ("norm1_w", vd, vh), ("norm1_b", vd, vh), ("norm2_w", vd, vh), ("norm2_b", vd, vh),
        ("fc1_bias", vd, vf), ("fc2_bias", vd, vh), ("merger_nw", 1, vh), ("merger_nb", 1, vh), ("merger_f1w", 1, mi * mi),
        ("merger_f1b", 1, mi), ("merger_f2w", 1, mi * out), ("merger_f2b", 1, out), ("ds_nw", ds, mi), ("ds_nb", ds, mi),
        ("ds_f1w", ds, mi * mi), ("ds_f1b", ds, mi), ("ds_f2w", ds, mi * out), ("ds_f2b", ds, out),
    ):  # fmt: skip
        found.append(row("v_" + name, F32, r, c))
    return found


def q4_gate(a: Arch) -> bool:
    fours = (a["vocab_size"], a["n_heads"] * a["head_dim"], a["n_kv_heads"] * a["head_dim"])
    return not any(v % 4 for v in fours) and not (a["dim"] % 32 or a["ffn_dim"] % 32)


def q8_gate(a: Arch) -> bool:
    eights = (a["n_heads"] * a["head_dim"], a["n_kv_heads"] * a["head_dim"])
    return not any(v % 8 for v in eights) and not (a["dim"] % 32 or a["ffn_dim"] % 32)


def arch(**words: float) -> Arch:
    """A very small dense model, with some words replaced: each of its matrices is one block."""
    a: Arch = dict.fromkeys(WORDS, 0)
    a.update(
        dim=4,
        n_layers=1,
        n_heads=1,
        n_kv_heads=1,
        head_dim=8,
        head_dim_full=8,
        ffn_dim=8,
        vocab_size=8,
        max_seq_len=64,
        rope_theta=1e4,
        norm_eps=1e-6,
        bos_id=1,
        eos_id=2,
    )
    prove(set(words) <= set(a), "words of the format")
    a.update(words)
    return a


TINY = arch()
TILED = arch(dim=32, ffn_dim=32)  # passes both gates
WIDE = arch(dim=32, ffn_dim=32, n_heads=4)  # x8 copies fit
EXPERTS = arch(n_experts=2, moe_ffn=8, ffn_dim=16, top_k=1)
TOWER = arch(
    has_vision=1, vis_depth=1, vis_hidden=8, vis_heads=1, vis_ffn=4, vis_patch=1, vis_temporal=1, vis_merge=1,
    vis_out_dim=4, vis_in_chan=3, vis_max_pos=2, vis_ds_count=1,
)  # fmt: skip
FLAT = {**TOWER, "vis_ds_count": 0}
NORMED = arch(has_q_norm=1)
TWO = arch(n_layers=2)

MODELS = {
    "q4": Model(TINY, text_rows(TINY, "4"), EMB_F16),
    "q8": Model(TINY, text_rows(TINY, "8"), EMB_F16),
    "dual": Model(TINY, text_rows(TINY, "84"), EMB_F16),
    "q4i": Model(TINY, text_rows(TINY, "8"), EMB_F16 | Q8BUF_Q4),
    "g256": Model(TINY, text_rows(TINY, "8"), EMB_F16 | G256),
    "f32-embed": Model(TINY, text_rows(TINY, "4", F32), 0),
    "two-layers": Model(TWO, text_rows(TWO, "4"), EMB_F16),
    "q-norm": Model(NORMED, text_rows(NORMED, "4"), EMB_F16),
    "tiled-q4": Model(TILED, text_rows(TILED, "4"), EMB_F16 | Q8_8X8 | Q4_4X4),
    "tiled-q8": Model(TILED, text_rows(TILED, "8"), EMB_F16 | Q8_8X8 | Q4_4X4),
    "tiled-q4i": Model(TILED, text_rows(TILED, "8"), EMB_F16 | Q8BUF_Q4 | Q4_4X4),
    "x8": Model(WIDE, text_rows(WIDE, "4x"), EMB_F16 | Q8_8X8 | Q4_4X4 | HAS_X8),
    "moe": Model(EXPERTS, text_rows(EXPERTS, "4"), EMB_F16 | MOE, 3),
    "moe-q8": Model(EXPERTS, text_rows(EXPERTS, "8"), EMB_F16 | MOE, 3),
    "moe-dual": Model(EXPERTS, text_rows(EXPERTS, "84"), EMB_F16 | MOE, 3),
    "vision": Model(TOWER, text_rows(TOWER, "4") + vision_rows(TOWER), EMB_F16 | VISION),
    "no-deepstack": Model(FLAT, text_rows(FLAT, "4") + vision_rows(FLAT), EMB_F16 | VISION),
}
KEY = sm3(b"passphrase")  # SM4 key, then HMAC key
IV = data("vqf iv", 16)
USER_IDS = {448: b"vllm-kestrel-vqf", 432: b"vllm-shs-vqf"}

# ---- building files


def fnv1a64(*pieces: bytes) -> int:
    h = 0xCBF29CE484222325
    for byte in b"".join(pieces):
        h = (h ^ byte) * 0x100000001B3 % U64
    return h


for _text, _hash in ((b"", 0xCBF29CE484222325), (b"a", 0xAF63DC4C8601EC8C), (b"foobar", 0x85944171F73967E8)):
    prove(fnv1a64(_text) == _hash, "the examples that FNV's authors publish")


def header_bytes(
    a: Arch, flags: int = EMB_F16, n: int = 1, start: int = 512, stop: int = 576, *, version: int = 2, form: int = 448,
    iv: bytes = b"", magic: bytes = MAGIC,
) -> bytes:  # fmt: skip
    """The first 448 bytes of a file, in either form."""
    out = bytearray(448)
    struct.pack_into("<4sIII", out, 0, magic, version, flags, n)
    for index, name in enumerate(WORDS[: 45 if form == 448 else 41]):
        struct.pack_into("<f" if name in ("rope_theta", "norm_eps") else "<I", out, 16 + 4 * index, a[name])
    struct.pack_into("<QQ16s", out, PLACES[form], start, stop, iv)
    return bytes(out)


def content(r: Row) -> bytes:
    """A tensor's bytes: plausible values, none of them zero."""
    size = max(r.bytes, 0)
    noise = bytes(b or 1 for b in data("tensor %r" % (r.name,), size + 32))
    per = {F32: b"\x80\x3f", F16: b"\x3c", Q8: b"\x00\x2c", Q4: b"\x00\x2c", X8: b"\x00\x2c"}.get(r.qtype, b"\x3c")
    step = BLOCK.get(r.qtype, (1, 2))[1]
    out = bytearray(noise[:size])
    for i in range(0, size, step):  # the scale of a block, the exponent of a number
        at = i if r.qtype in (Q8, Q4, X8) else i + step - len(per)
        out[at : at + len(per)] = per
    return bytes(out[:size])


def lay_out(rows: Sequence[Row], start: int, places: dict[int, int]) -> tuple[list[int], int]:
    """Offsets, one behind the other but for those in `places`, and file_len."""
    offsets, end = [], start
    for index, r in enumerate(rows):
        offset = places.get(index, end)
        offsets.append(offset)
        if index not in places:
            end = align(offset + r.bytes)
    return offsets, end


def build(
    model: Model, *, places: dict[int, int] | None = None, start: int | None = None, file_len: int | None = None,
    room: int = 0, change: Sequence[tuple[int, str, Any]] = (), sign: bool = False, user_id: bytes | None = None,
    iv: bytes = IV, seal: Callable[[bytes, int, int, int], bytes] | None = None,
) -> bytes:  # fmt: skip
    """A file with the right tag. places: offsets of single tensors, by index, where the rest lies as if they were not
    there; room: bytes kept free behind the others; change: (offset, struct format, value) written before it is sealed;
    seal: another tag, from the file without one, data_offset, file_len and the end of the directory."""
    a, rows, flags, version, form = model
    directory_end = DIRECTORY + 64 * len(rows)
    start = align(directory_end) if start is None else start
    offsets, end = lay_out(rows, start, places or {})
    end = end + room if file_len is None else file_len
    flags |= SIGNED if sign else 0
    out = bytearray(end)
    out[:448] = header_bytes(a, flags, len(rows), start, end, version=version, form=form, iv=iv if flags & ENC else b"")
    for index, (r, offset) in enumerate(zip(rows, offsets)):
        name = r.name if isinstance(r.name, bytes) else r.name.encode()
        at = DIRECTORY + 64 * index
        struct.pack_into("<32sIII4xQQ", out, at, name, r.qtype, r.rows, r.cols, offset, r.bytes)
        if start <= offset and offset + r.bytes <= end:
            out[offset : offset + r.bytes] = content(r)
    for offset, fmt, value in change:
        struct.pack_into("<" + fmt, out, offset, value)
    size = 448 if form == 448 else 432
    plain = bytes(out[start:])
    if sign:
        block = signature(
            canonical(bytes(out[:size]), form) + out[DIRECTORY:directory_end] + plain, user_id or USER_IDS[form]
        )
        out[PLACES[form] + 48 : PLACES[form] + 248] = block
    if flags & ENC:
        out[start:] = sm4("ctr", KEY[:16], plain, iv)
    sealed = bytes(out)
    if seal:
        return sealed + seal(sealed, start, end, directory_end)
    return sealed + tag(sealed, start, directory_end, form)


def canonical(header: bytes, form: int) -> bytes:
    """A header as HMAC and digest cover it: file_len and the signature block zero."""
    at = PLACES[form]
    return header[: at + 8] + bytes(8) + header[at + 16 : at + 48] + bytes(form - at - 48)


def tag(sealed: bytes, start: int, directory_end: int, form: int) -> bytes:
    """The tag of a file that has none yet."""
    directory, area = sealed[DIRECTORY:directory_end], sealed[start:]
    if int.from_bytes(sealed[8:12], "little") & ENC:
        return hmac_sm3(KEY[16:], canonical(sealed[:form], form) + directory + area)
    return struct.pack("<Q", fnv1a64(directory, area))


@functools.lru_cache(maxsize=None)
def signature(signed: bytes, user_id: bytes) -> bytes:
    """The signature block; its nonce comes from the digest, so that it is always the same."""
    d, digest = scalar("vqf signer"), sm3(signed)
    P = signer()
    k = scalar("vqf nonce " + digest.hex())
    prove(times(d, BASE_POINT) == P, "the signer's key")
    e = int.from_bytes(sm3(z_of(user_id) + digest), "big")
    r, s = sign_with(d, e, k)
    prove(is_signature(P, user_id, digest, r, s), "OpenSSL takes the signature")
    return raw(P) + b32(r) + b32(s) + digest + user_id.ljust(32, b"\0") + struct.pack("<II", len(user_id), 0)


@functools.lru_cache(maxsize=None)
def signer() -> Any:
    return public_from_private(scalar("vqf signer"))


@functools.lru_cache(maxsize=None)
def z_of(user_id: bytes) -> bytes:
    return sm3(z_input(signer(), user_id))


# ---- reading them: which faults a file has


def head_fault(head: bytes, size: int) -> tuple[str | None, int]:
    """Gates 1 to 6: the class of the first that fails, or None and the form."""
    if size < 8:
        return "truncated", 0
    if head[:4] != MAGIC:
        return "magic", 0
    if int.from_bytes(head[4:8], "little") not in (2, 3):
        return "version", 0
    if size < 512:
        return "truncated", 0
    words = dict(zip(WORDS, struct.unpack_from("<45I", head, 16)))
    if any(words[name] == 0 for name in POSITIVE):
        return "header", 0
    flags, n = struct.unpack_from("<II", head, 8)
    tag_length = 32 if flags & ENC else 8
    formed, fits = [], []
    for form, place in PLACES.items():
        start, stop = struct.unpack_from("<QQ", head, place)
        if start and start % 64 == 0 and start >= 448 + 64 * n and stop > start:
            formed.append(stop + tag_length)
            if start < size and stop + tag_length == size:
                fits.append(form)
    if len(fits) == 1:
        return None, fits[0]
    if not fits and len(formed) == 1:
        return ("truncated" if size < formed[0] else "bounds"), 0
    return "layout", 0


def faults(file: bytes) -> set[str]:
    """The classes of all faults of a file, by the format's text; of a signature, its digest and ids."""
    fault, form = head_fault(file[:448], len(file))
    if fault:
        return {fault}
    version, flags, n = struct.unpack_from("<III", file, 4)
    a = dict(zip(WORDS, (*struct.unpack_from("<41I", file, 16), 0, 0, 0, 0)))
    if form == 448:
        a = dict(zip(WORDS, struct.unpack_from("<45I", file, 16)))
    start, stop = struct.unpack_from("<QQ", file, PLACES[form])
    entries = [struct.unpack_from("<32sIIIIQQ", file, DIRECTORY + 64 * i) for i in range(n)]
    names = [e[0].partition(b"\0")[0].decode("latin-1") for e in entries]
    found = set()
    spans = []
    every = {**a, "has_q_norm": 1}
    known = {r.name: r for r in text_rows(every, "84x", F16 if flags & EMB_F16 else F32) + vision_rows(a)}
    known["moe_router"] = row("moe_router", F32, a["n_layers"] * a["n_experts"], a["dim"])
    for (name, qtype, rows, cols, _, offset, size), text in zip(entries, names):
        if b"\0" not in name or not text or not all(" " <= c <= "~" for c in text):
            found.add("name")
        if qtype not in BLOCK:
            found.add("dtype")
        elif row("", qtype, rows, cols).bytes != size:
            found.add("shape")
        r = known.get(text)
        if r and qtype in BLOCK and (r.qtype, r.rows, r.cols) != (qtype, rows, cols):
            found.add("shape")
        if offset % 64:
            found.add("align")
        if offset < start or offset + size > stop:
            found.add("bounds")
        elif size:
            spans.append((offset, offset + size))
    spans.sort()
    if any(end > begin for (_, end), (begin, _) in zip(spans, spans[1:])):
        found.add("overlap")
    if len(set(names)) < n:
        found.add("duplicate")
    has = {prefix: any(x.startswith(prefix) and x in known for x in names) for prefix in ("q8_", "q4_", "x8_", "v_")}
    families = "".join(f for f, prefix in (("8", "q8_"), ("4", "q4_"), ("x", "x8_")) if has[prefix])
    moe = bool(flags & MOE) or version == 3
    wanted = {r.name for r in text_rows(a, families) if r.bytes}
    wanted |= {r.name for r in vision_rows(a) if r.bytes} if has["v_"] else set()
    if "q_norm" in names or "k_norm" in names:
        wanted |= {"q_norm", "k_norm"}
    if wanted - set(names) or not {"q8_q", "q4_q"} & set(names):
        found.add("missing")
    if moe and ("moe_router" not in names or not {"q8_gate", "q4_gate"} & set(names)):
        found.add("missing")
    if moe and form == 448 and not a["n_experts"]:
        found.add("header")
    if (
        bool(flags & HAS_X8) != has["x8_"] or bool(flags & VISION) != has["v_"]
        or bool(flags & MOE) != ("moe_router" in names) or (flags & (Q8BUF_Q4 | G256) and not has["q8_"])
        or (flags & Q8BUF_Q4 and flags & (Q8_8X8 | G256)) or (flags & Q8_8X8 and not q8_gate(a))
        or (flags & Q4_4X4 and not q4_gate(a)) or (moe and form == 432)
        or ("token_embed", F32 if flags & EMB_F16 else F16) in zip(names, (e[1] for e in entries))
    ):  # fmt: skip
        found.add("layout")
    if (
        not a["n_kv_heads"] or a["n_heads"] % a["n_kv_heads"] or bool(a["has_vision"]) != has["v_"]
        or bool(a["has_q_norm"]) != bool({"q_norm", "k_norm"} & set(names))
        or (form == 448 and flags & MOE and a["n_experts"]
            and (a["ffn_dim"] != a["n_experts"] * a["moe_ffn"] or not 1 <= a["top_k"] <= a["n_experts"]))
    ):  # fmt: skip
        found.add("shape")
    if a["n_layers"] > 1 and any(
        r.qtype != F32 and r.name[:2] != "v_" and r.rows * r.cols // a["n_layers"] % 32
        for r in known.values() if r.name in names and r.name[3:] != "lm" and r.name != "token_embed"
    ):  # fmt: skip
        found.add("shape")
    directory_end = DIRECTORY + 64 * n
    right = tag(file[:stop], start, directory_end, form)
    if file[stop:] != right and (flags & ENC or any(file[stop:])):
        found.add("tag")
    if not any(file[start:]):
        found.add("truncated")
    if flags & SIGNED:
        block = file[PLACES[form] + 48 : PLACES[form] + 248]
        id_len = int.from_bytes(block[192:196], "little")
        if not 0 < id_len <= 32 or b"\0" in block[160 : 160 + id_len]:
            found.add("signature")
        if not flags & ENC:
            digest = sm3(canonical(file[:form], form) + file[DIRECTORY:directory_end] + file[start:stop])
            if digest != block[128:160] or block[160 : 160 + id_len] not in USER_IDS.values():
                found.add("signature")
    return found

"""kat/README.md is enough: a reader of VQF and safetensors files made of its sections 10 and 11 alone decides every case.

Nothing of the library is under test here, nor does it help: SM3 apart, what the text leaves out would be seen as a case
that comes out otherwise than the suite says.
"""

from __future__ import annotations

import json
import re
import struct
import unittest
from collections import defaultdict
from math import prod

from tests.kat_samples import KAT
from vqfref.crypto.sm3 import sm3
from vqfref.errors import WORDS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterator

README = (KAT / "README.md").read_text("utf-8")
Q8_8X8, Q4_4X4, X8, Q8BUF_Q4, G256, EMB_F16, VISION, ENC, SIGNED, MOE = (1 << i for i in range(10))
ARCH = """dim n_layers n_heads n_kv_heads head_dim ffn_dim vocab_size max_seq_len rope_theta norm_eps bos_id eos_id
has_q_norm has_mrope head_dim_full kv_lora_rank has_vision vis_depth vis_hidden vis_heads vis_ffn vis_patch vis_temporal
vis_merge vis_out_dim vis_in_chan vis_max_pos vis_ds_count mrope_n_sec . . . . . . . . vision_start_id vision_end_id
image_token_id video_token_id n_experts moe_ffn top_k shared_experts""".split()  # noqa: SIM905
SIZES = ("dim", "n_layers", "n_heads", "head_dim", "ffn_dim", "vocab_size")
F32, Q8, Q4, Q4_8X8L, F16 = range(1, 6)
BLOCK = {F32: (1, 4), Q8: (32, 34), Q4: (32, 18), Q4_8X8L: (32, 18), F16: (1, 2)}
BITS = {"F4": 4, "F6_E2M3": 6, "F6_E3M2": 6, "BOOL": 8, "U8": 8, "I8": 8, "F8_E5M2": 8, "F8_E4M3": 8, "F8_E8M0": 8}
BITS.update({"I16": 16, "U16": 16, "F16": 16, "BF16": 16, "I32": 32, "U32": 32, "F32": 32})
BITS.update({"C64": 64, "F64": 64, "I64": 64, "U64": 64})


class Refused(Exception):
    """The class of a refusal."""


def need(good: object, word: str) -> None:
    if not good:
        raise Refused(word)


def cases(op: str) -> list[Any]:
    found: list[Any] = json.loads((KAT / (op + ".json")).read_bytes())
    return found


# ---- VQF


class Header:
    """Gates 1 to 6."""

    def __init__(self, head: bytes, size: int) -> None:
        need(size >= 8, "truncated")
        need(head[:4] == bytes.fromhex("46514657"), "magic")
        self.version = int.from_bytes(head[4:8], "little")
        need(self.version in (2, 3), "version")
        need(size >= 512, "truncated")
        self.flags, self.n = struct.unpack_from("<II", head, 8)
        self.tag = 32 if self.flags & ENC else 8
        words = dict(zip(ARCH, struct.unpack_from("<45I", head, 16)))
        need(all(words[name] for name in SIZES), "header")
        pairs = [(form, *struct.unpack_from("<QQ", head, at)) for form, at in ((448, 200), (432, 184))]
        formed = [p for p in pairs if p[1] and p[1] % 64 == 0 and 448 + 64 * self.n <= p[1] < p[2]]
        fitting = [p for p in formed if p[1] < size and p[2] + self.tag == size]
        if not fitting and len(formed) == 1:
            raise Refused("truncated" if size < formed[0][2] + self.tag else "bounds")
        need(len(fitting) == 1, "layout")
        self.form, self.start, self.stop = fitting[0]
        self.arch = words if self.form == 448 else {**words, **dict.fromkeys(ARCH[41:], 0)}


def entries(h: Header, data: bytes) -> list[Any]:
    """Gate 7."""
    found = [struct.unpack_from("<32sIII4xQQ", data, 64 * i) for i in range(h.n)]
    need(all(h.start <= e[4] and e[4] + e[5] <= h.stop for e in found), "bounds")
    return found


def tensors(a: dict[str, int], moe: object) -> dict[str, tuple[tuple[int, ...], int, int]]:
    """The table: types, rows, cols by name, in order."""
    nl, dim, ff, V = a["n_layers"], a["dim"], a["ffn_dim"], a["vocab_size"]
    q, k = a["n_heads"] * a["head_dim"], a["n_kv_heads"] * a["head_dim"]
    t: dict[str, tuple[tuple[int, ...], int, int]] = {
        "token_embed": ((F16, F32), V, dim),
        "final_norm": ((F32,), dim, 1),
    }
    for name, rows in (
        ("attn_norm", dim), ("ffn_norm", dim), ("q_norm", a["head_dim"]), ("k_norm", a["head_dim"])
    ):  # fmt: skip
        t[name] = (F32,), nl * rows, 1
    if moe:
        t["moe_router"] = (F32,), nl * a["n_experts"], dim
    for prefix, qtype in (("q8_", Q8), ("q4_", Q4), ("x8_", Q4_8X8L)):
        for name, rows, cols in (
            ("q", nl * dim, q), ("k", nl * dim, k), ("v", nl * dim, k), ("o", nl * q, dim), ("gate", nl * ff, dim),
            ("up", nl * ff, dim), ("down", nl * dim, ff), ("lm", V, dim),
        ):  # fmt: skip
            if prefix + name != "x8_lm":
                t[prefix + name] = (qtype,), rows, cols
    vd, vh, vf, out, ds = (a[n] for n in ("vis_depth", "vis_hidden", "vis_ffn", "vis_out_dim", "vis_ds_count"))
    mi, patch = vh * a["vis_merge"] ** 2, vh * 3 * a["vis_temporal"] * a["vis_patch"] ** 2
    for name, cols in (("qkv", 3 * vh * vh), ("proj", vh * vh), ("fc1", vf * vh), ("fc2", vh * ((vf + 31) // 32 * 32))):
        t["v_q8_" + name] = (Q8,), vd, cols
    for name, rows, cols in (
        ("patch_embed", 1, patch), ("patch_bias", 1, vh), ("pos_embed", 1, a["vis_max_pos"] * vh), ("qkv_bias", vd, 3 * vh),
        ("proj_bias", vd, vh), ("norm1_w", vd, vh), ("norm1_b", vd, vh), ("norm2_w", vd, vh), ("norm2_b", vd, vh),
        ("fc1_bias", vd, vf), ("fc2_bias", vd, vh), ("merger_nw", 1, vh), ("merger_nb", 1, vh), ("merger_f1w", 1, mi * mi),
        ("merger_f1b", 1, mi), ("merger_f2w", 1, mi * out), ("merger_f2b", 1, out), ("ds_nw", ds, mi), ("ds_nb", ds, mi),
        ("ds_f1w", ds, mi * mi), ("ds_f1b", ds, mi), ("ds_f2w", ds, mi * out), ("ds_f2b", ds, out),
    ):  # fmt: skip
        t["v_" + name] = (F32,), rows, cols
    return t


def size_of(qtype: int, elements: int) -> int:
    count, nbytes = BLOCK[qtype]
    return -(-elements // count) * nbytes


def layers_of(name: str, a: dict[str, int]) -> int:
    return 1 if name.endswith("_lm") else a["vis_depth"] if name.startswith("v_") else a["n_layers"]


def tile_gates(a: dict[str, int]) -> int:
    """The flags of tiles whose gate an arch passes."""
    q, k = a["n_heads"] * a["head_dim"], a["n_kv_heads"] * a["head_dim"]
    wide = a["dim"] % 32 == a["ffn_dim"] % 32 == 0
    by4 = wide and a["vocab_size"] % 4 == q % 4 == k % 4 == 0
    by8 = wide and q % 8 == k % 8 == a["ffn_dim"] % 8 == a["dim"] % 8 == 0
    return by4 * Q4_4X4 | by8 * Q8_8X8


def fnv1a64(data: bytes) -> int:
    h = 0xCBF29CE484222325
    for byte in data:
        h = (h ^ byte) * 0x100000001B3 % (1 << 64)
    return h


def vqf_faults(whole: bytes) -> Iterator[str]:
    """The classes of all that is wrong with a file."""
    h = Header(whole[:448], len(whole))
    a, flags, found = h.arch, h.flags, entries(h, whole[448:])
    names = [e[0].partition(b"\0")[0].decode("latin-1") for e in found]
    moe = flags & MOE or h.version == 3
    table = tensors(a, flags & MOE)
    known = {n for n in names if n in table or n == "moe_router"}

    def has(prefix: str) -> bool:
        return any(n.startswith(prefix) for n in known)

    for name, e in zip(names, found):
        _, qtype, rows, cols, offset, nbytes = e
        if len(name) == 32 or not re.fullmatch("[ -~]+", name):
            yield "name"
        if offset % 64:
            yield "align"
        if qtype not in BLOCK:
            yield "dtype"
            continue
        if size_of(qtype, rows * cols) != nbytes:
            yield "shape"
        if name in table:
            types, r, c = table[name]
            whole_blocks = qtype in (F32, F16) or not nbytes or rows * cols // layers_of(name, a) % 32 == 0
            if qtype not in types or (rows, cols) != (r, c) or not whole_blocks:
                yield "shape"
        if name == "token_embed" and qtype in (F16, F32) and (qtype == F16) != bool(flags & EMB_F16):
            yield "layout"
    if len(set(names)) < len(names):
        yield "duplicate"
    taken = sorted((e[4], e[4] + e[5]) for e in found if e[5])
    if any(b[0] < a[1] for a, b in zip(taken, taken[1:])):
        yield "overlap"
    norms = bool(a["has_q_norm"]) or has("q_norm") or has("k_norm")

    def called_for(name: str) -> bool:
        family = next((f for f in ("q8_", "q4_", "x8_", "v_") if name.startswith(f)), "")
        return has(family) if family else norms or name not in ("q_norm", "k_norm")

    wanted = {n for n, (types, r, c) in table.items() if size_of(types[0], r * c) and called_for(n)}
    groups = [{"q8_q", "q4_q"}, {"token_embed"}] + [{"moe_router"}, {"q8_gate", "q4_gate"}] * bool(moe)
    if wanted - set(names) or not all(g & set(names) for g in groups):
        yield "missing"
    if not a["n_kv_heads"] or a["n_heads"] % a["n_kv_heads"]:
        yield "shape"
    if bool(a["has_q_norm"]) != (has("q_norm") or has("k_norm")) or bool(a["has_vision"]) != has("v_"):
        yield "shape"
    if moe and h.form == 448 and not a["n_experts"]:
        yield "header"
    elif flags & MOE and h.form == 448:
        if a["ffn_dim"] != a["n_experts"] * a["moe_ffn"] or not 0 < a["top_k"] <= a["n_experts"]:
            yield "shape"
    for flag, prefix in ((X8, "x8_"), (VISION, "v_"), (MOE, "moe_router")):
        if bool(flags & flag) != has(prefix):
            yield "layout"
    if (flags & (Q8BUF_Q4 | G256) and not has("q8_")) or (flags & Q8BUF_Q4 and flags & (Q8_8X8 | G256)):
        yield "layout"
    if flags & (Q8_8X8 | Q4_4X4) & ~tile_gates(a) or (moe and h.form == 432):
        yield "layout"
    yield from seal_faults(whole, h)


def seal_faults(whole: bytes, h: Header) -> Iterator[str]:
    """Those of checksum and signature block."""
    directory, data, tag = whole[448 : 448 + 64 * h.n], whole[h.start : h.stop], whole[h.stop :]
    if not h.flags & ENC:
        zeros = len(data) - len(data.rstrip(b"\0"))
        if not any(tag) and zeros >= min(4096, len(data)):
            yield "truncated"
        if any(tag) and int.from_bytes(tag, "little") != fnv1a64(directory + data):
            yield "tag"
    if h.flags & SIGNED:
        at = h.form - 200
        digest, name, length = struct.unpack_from("<128x32s32sI", whole, at)
        if not 0 < length <= 32 or 0 in name[:length]:
            yield "signature"
        elif not h.flags & ENC:
            head = bytearray(whole[: h.form])
            head[at - 40 : at - 32] = bytes(8)
            head[at:] = bytes(200)
            if sm3(bytes(head) + directory + data) != digest:
                yield "signature"
            if name[:length] not in (b"vllm-kestrel-vqf", b"vllm-shs-vqf"):
                yield "signature"


# ---- safetensors


def safetensors(whole: bytes) -> int:
    """The number of tensors."""
    need(len(whole) >= 8, "truncated")
    length = int.from_bytes(whole[:8], "little")
    need(length <= 100_000_000, "limit")
    need(8 + length <= len(whole), "bounds")
    data = len(whole) - 8 - length

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        need(len(dict(pairs)) == len(pairs), "duplicate")
        need(not any("\ud800" <= c <= "\udfff" for k, _ in pairs for c in k), "json")
        return dict(pairs)

    def integer(text: str) -> int | str:
        need(len(text) < 1000, "limit")
        return int(text) if text[0] != "-" else text

    def other(text: str) -> str:
        need(len(text) < 1000, "limit")
        need(text not in ("NaN", "Infinity", "-Infinity"), "json")
        return text

    try:
        text = whole[8 : 8 + length].decode("utf-8")
        need(deepest(text) < 1000, "limit")
        header = json.loads(text, object_pairs_hook=once, parse_int=integer, parse_float=other, parse_constant=other)
    except ValueError:
        raise Refused("json") from None
    need(isinstance(header, dict), "json")
    metadata = header.pop("__metadata__", {})
    need(isinstance(metadata, dict) and all(isinstance(v, str) for v in metadata.values()), "json")
    spans = []
    for entry in header.values():
        need(isinstance(entry, dict), "json")
        need({"dtype", "shape", "data_offsets"} <= set(entry), "missing")
        dtype, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
        need(isinstance(dtype, str) and dtype in BITS, "dtype")
        need(isinstance(shape, list) and all(type(n) is int and n < 1 << 64 for n in shape), "shape")
        need(isinstance(offsets, list) and len(offsets) == 2, "bounds")
        need(all(type(n) is int and n < 1 << 64 for n in offsets) and offsets[0] <= offsets[1], "bounds")
        need(all(prod(shape[: i + 1]) < 1 << 64 for i in range(len(shape))), "shape")
        need(prod(shape) * BITS[dtype] == 8 * (offsets[1] - offsets[0]), "shape")
        spans.append(offsets)
    at = 0
    for begin, end in sorted(spans):
        need(begin >= at, "overlap")
        need(begin == at, "bounds")
        at = end
    need(at <= data, "truncated")
    need(at == data, "bounds")
    return len(header)


def deepest(text: str) -> int:
    """The most levels that arrays and objects have inside each other."""
    depth = most = 0
    for c in re.sub(r'"(?:[^"\\]|\\.)*"', "", text):
        depth += (c in "[{") - (c in "]}")
        most = max(most, depth)
    return most


# ---- the cases


class Readme(unittest.TestCase):
    maxDiff = None

    def test_the_classes_of_each_operation_are_those_of_its_cases(self) -> None:
        table = README.partition("| operation | classes |")[2].partition("\n\n")[0]
        told = {}
        for ops, words in re.findall(r"^\| (`.*?`) \| ([a-z0-9, ]+) \|$", table, re.M):
            told.update({op: set(words.split(", ")) for op in re.findall(r"[a-z0-9_]+", ops)})
        found = defaultdict(set)
        for name in json.loads((KAT / "manifest.json").read_bytes())["files"]:
            for case in cases(name[: -len(".json")]):
                if case["result"] == "invalid":
                    found[name[: -len(".json")]].add(case["error"])
        self.assertEqual(told, dict(found))

    def test_every_class_is_explained(self) -> None:
        table = README.partition("| class | what is wrong |")[2].partition("\n\n")[0]
        told = re.findall(r"[a-z]+", " ".join(re.findall(r"^\| ([a-z, ]+) \|", table, re.M)))
        self.assertEqual(sorted(told), sorted(WORDS))

    def check(self, op: str, found: dict[str, str]) -> None:
        expected = {c["id"]: c.get("error", "ok") for c in cases(op) if c["id"] in found}
        self.assertEqual(found, expected)

    def test_vqf_header_and_vqf_directory(self) -> None:
        for op in ("vqf_header", "vqf_directory"):
            found = {}
            for case in cases(op):
                fields, out = case["in"], case["out"]
                try:
                    h = Header(bytes.fromhex(fields["head"]), int(fields["size"]))
                    if op == "vqf_directory":
                        h.n = len(entries(h, bytes.fromhex(fields["directory"])))
                    found[case["id"]] = "ok"
                except Refused as refused:
                    found[case["id"]] = str(refused)
                    continue
                made = {"form": h.form, "n_tensors": h.n, "data_offset": h.start, "file_len": h.stop, "n": h.n}
                if out:
                    self.assertEqual({k: int(v) for k, v in out.items()}, {k: made[k] for k in out}, case["id"])
            self.check(op, found)

    def test_vqf_file(self) -> None:
        found = {}
        for case in cases("vqf_file"):
            try:
                faults = set(vqf_faults((KAT / case["in"]["path"]).read_bytes()))
            except Refused as refused:
                faults = {str(refused)}
            found[case["id"]] = " ".join(sorted(faults)) or "ok"
        self.check("vqf_file", found)

    def test_st_header(self) -> None:
        found = {}
        for case in cases("st_header"):
            if case["result"] == "acceptable":
                continue
            try:
                n = safetensors((KAT / case["in"]["path"]).read_bytes())
                found[case["id"]] = "ok"
                if case["out"]:
                    self.assertEqual(n, case["out"]["n"], case["id"])
            except Refused as refused:
                found[case["id"]] = str(refused)
        self.check("st_header", found)

    def test_vqf_geometry(self) -> None:
        for case in cases("vqf_geometry"):
            if case["result"] != "valid":
                continue
            fields = case["in"]
            a = dict.fromkeys(ARCH, 0)
            a.update((n, int(v)) for n, v in (part.split(":") for part in fields["arch"].split(",")))
            wmode, x8, flags = fields["wmode"], int(fields["x8"]), EMB_F16
            families = {"dual": ["q8_", "q4_"], "q4": ["q4_"]}.get(wmode, ["q8_"]) + ["x8_"] * x8
            flags |= tile_gates(a) & (Q4_4X4 | Q8_8X8 * (int(fields["q8_tile"]) == 8 and wmode != "q4i"))
            flags |= Q8BUF_Q4 * (wmode == "q4i") | G256 * (wmode == "g256") | X8 * x8
            flags |= VISION * (a["has_vision"] != 0) | MOE * (a["n_experts"] != 0)
            start, sizes = 0, []
            for name, (types, rows, cols) in tensors(a, a["n_experts"]).items():
                wanted = (name[:3] in families or name[:3] not in ("q8_", "q4_", "x8_")) and (
                    (a["has_q_norm"] or name not in ("q_norm", "k_norm")) and (a["has_vision"] or name[:2] != "v_")
                )
                nbytes = size_of(types[0], rows * cols)
                if wanted and (nbytes or name.startswith("v_ds_")):
                    sizes.append(nbytes)
            start = at = (448 + 64 * len(sizes) + 4095) // 4096 * 4096
            for nbytes in sizes:
                at = (at + nbytes + 63) // 64 * 64
            made = [3 if a["n_experts"] else 2, flags, len(sizes), start, at, at + 8]
            self.assertEqual(made, [int(v) for v in case["out"].values()], case["id"])


if __name__ == "__main__":
    unittest.main()

"""Model folders converted to VQF: byte for byte the engine converter's files, and nothing at all where that can't be.

The truth comes from outside. KNOWN has the digests of files that the engine's converter wrote; kat/files has one model
in all its seals, made with OpenSSL. Where these end (odd shapes, many layers, chunks, NaN, older rounding), a second
converter stands in: `converted` below, which follows spec sections 6 to 9 value by value, shares nothing with the library
and is itself held against KNOWN.
"""

from __future__ import annotations

import hashlib
import math
import os
import signal
import struct
import subprocess
import sys
import tempfile
import unittest
from array import array
from pathlib import Path
from unittest import mock

from tests import models, samples
from tests.models import Model, Tensor, model
from tests.samples import HEADER, Q4_0, Q8_0, at, patch, place_of, real
from tests.test_reseal import PRIVATE, sm2_verifies
from tests.test_seal import PASSPHRASE, PUBLIC, USER_ID, hmac_tag
from tests.test_tiles import tiled
from tests.tools import LONG, VARIABLES, put, run_main, thorough
from vqfref.errors import FormatError, SignatureError, UnsupportedError, UsageError, VqfrefError
from vqfref.vqf import convert as convert_module
from vqfref.vqf import geometry
from vqfref.vqf.convert import convert
from vqfref.vqf.reseal import Signer, reseal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Sequence

    Rows = list[list[float]]

ROOT = str(Path(__file__).resolve().parent.parent)
FLAGS = ["-" + "O" * sys.flags.optimize] * (sys.flags.optimize > 0) + ["-W" + w for w in sys.warnoptions]
NAN, INF = math.nan, math.inf

# What the engine's converter made: model, mode, header bytes, size, flags, tensors, sha256.
KNOWN = (
    ("dense", "dual", 448, 160520, 35, 22, "6de08f93c26e197dba133e8d5c9ea617bd1ef40c97412dd3281a6a5036b99a09"),
    ("dense", "dual", 432, 160520, 35, 22, "0b50c35c70d8e22baf5ee563af9ddc8b461457030ce2becbc793f22d8c353953"),
    ("dense", "q4", 448, 64776, 35, 14, "ca44d4c5f0a407f920f87a612a8b33952f0fdeaca3609c9bd2c95fcb78133c15"),
    ("dense", "q4", 432, 64776, 35, 14, "c0e78a2f209e4ed9e3063a2dc8bc5f0c77afeda9b1c4fb3ee02c9367ba936705"),
    ("dense", "q8", 448, 109832, 35, 14, "c9884eaaabb10754002f4ac811ff48ff0fbccd875544447ac358b1c0feb80940"),
    ("dense", "q8", 432, 109832, 35, 14, "3190c4625f0d90cc13703e36b7e24ad87f0d1b74240793a3843ea237ba52330b"),
    ("dense", "q4i", 448, 109832, 42, 14, "12d393cb6b4f0ea31c5038d61b9c0dd19209f7bb5328a22d5d38c8fb67b44683"),
    ("dense", "q4i", 432, 109832, 42, 14, "ea68bde1d3b68feb7e76c566efa8232f5139b68aef618d2c8c5bc844634a61dd"),
    ("dense", "g256", 448, 109832, 51, 14, "a0c3ab27fd79c0ae23407a12be866b6b1ee64bbf984da0f2975c9a02a68de14c"),
    ("dense", "g256", 432, 109832, 51, 14, "626c9a98370df917594f1e293d453a78dc634b0a6d74fb686ccfd5d9e71f33a0"),
    ("dense", "q4+8x8l", 448, 113160, 39, 21, "161ed22d6102d2a413dd71651d1d63d0e44418d4158f8b69595779807226a1a6"),
    ("dense", "q8 4x4", 448, 109832, 34, 14, "9ef5295b6c255a1000f8b25de88ba70d480c698d91457a406f18863a953812d5"),
    ("moe", "dual", 448, 182536, 547, 23, "851d11c8cbd64715f01104728bccf72eb09bb6bbaa5c0511f12b8d1b3f55f1fc"),
    ("moe", "q4", 448, 73736, 547, 15, "b1954a4b0b9f3c82dfccc00ed73245b6b20e11230bf33764eb680242a73b555c"),
    ("moe", "q8", 448, 124936, 547, 15, "ba88a160f6f3e0fdc5e38a9f93b8908b1d9ff127fb6ec6129a0bbd7f34642413"),
    ("moe", "q4i", 448, 124936, 554, 15, "decb340e778a7a8ebe2dc9b72d44c85e04014e5f3c6d5c6787970c4851fc874d"),
    ("tied-f16-vocab66", "dual", 448, 161096, 33, 22, "38f9501f962a4d81b22f0891c8ebe4701eb376d4bfd29f9c3ceb2a1c181fde2d"),
    ("tied-f16-vocab66", "dual", 432, 161096, 33, 22, "fe548394015d4f093d2476e8c5612c2b48336eca34ecb35af4dc2a6e2f529409"),
    ("tied-f16-vocab66", "q8", 448, 110280, 33, 14, "5e6b1af91c0a38365a5b06870834df12eb826ce335999884aed60182f2610b72"),
    ("tied-f16-vocab66", "q8", 432, 110280, 33, 14, "9e426ea7d312ee66b0573f2fb12a540b83564c8e05ffdfe275058880129409ce"),
    ("tied-f16-vocab66", "q4i", 448, 110280, 40, 14, "c183f623d8a38e2aa852e9327ecb2cd2a04673500ca703a4b2cb27e82d88223f"),
    ("tied-f16-vocab66", "q4i", 432, 110280, 40, 14, "4da1ca0d8c2582d2e6748ba8e2f661d197166e0035d11c2151149f042c37738c"),
    ("tied-f16-vocab66", "g256", 448, 110280, 49, 14, "a94027700b793ce6b2ff557e33aeaa68eeb31aff8e54f82c88b7dd8c2a44e303"),
    ("tied-f16-vocab66", "g256", 432, 110280, 49, 14, "41389bce21fe4004f2677e4a817bb7d9ef0fea7c11409cb9ca1c79c8766054a3"),
    ("vision", "dual", 448, 383688, 99, 49, "6d4483bc0ca663963454d590625c629bea2df4eb3abdfc8aa560f5d18906931b"),
    ("vision", "dual", 432, 383688, 99, 49, "19d5f032bd00b3008b6ddf4e899ddccea85c2e59a0cce24d105bbd09680ee127"),
    ("vision", "q4", 448, 287944, 99, 41, "608b5d77583d612cb02f3bbc89bae7107d1b866681b7b47fbedb4716d71bed18"),
    ("vision", "q4", 432, 287944, 99, 41, "ded7e88a15d27cfa4ad77724bc6dd9b1ff26b3699edb4f8e9bdf6aff2e4018a4"),
    ("vision", "q8", 448, 333000, 99, 41, "312bd0ec8df82dd5a4e3d81dee35810c96ff072b285aad310bac99b1cb403217"),
    ("vision", "q8", 432, 333000, 99, 41, "e1e6fbfb36ce7358c9efea257f4b4c65cfeb0fcb6b41b836b685bda511cbff2b"),
    ("vision", "q4i", 448, 333000, 106, 41, "2ffe1ff78c404c0c3d9d1a902c842d77b3c119fc109ffb796f6477bbd874fb9f"),
    ("vision", "q4i", 432, 333000, 106, 41, "e81a4a3ec941c4a9668162b668ccd7b4c1204da9b1d7a69d661e7c2ac1cfb6d0"),
    ("odd-rows", "dual", 448, 115080, 34, 22, "ff30eba1a06cbf8275e8a264533497148bc1d7adbf9324a9aa465780093585b0"),
    ("odd-rows", "q8 4x4", 448, 80200, 34, 14, "79e3eeb94e2923433d79544d42f1dfebcda8ca01708748786401dd9a6ac092db"),
)  # fmt: skip


def mode(name: str, header: int = 448) -> dict[str, Any]:
    """The arguments of `convert` for a mode as the list of known files has it."""
    how: dict[str, Any] = {"q4+8x8l": {"wmode": "q4", "x8": True}, "q8 4x4": {"wmode": "q8", "q8_tile": 4}}.get(
        name, {"wmode": name}
    )
    return {**how, "form": header}


def known(name: str, wmode: str, header: int = 448) -> str:
    """The sha256 of a known file."""
    return next(row[6] for row in KNOWN if row[:3] == (name, wmode, header))


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


# ---- the converter a second time, value by value


def single(x: float) -> float:
    """x rounded to single precision, infinite beyond it."""
    return array("f", (x,))[0]


TINY = single(1e-10)


def half(x: float, legacy: bool) -> bytes:
    """A scale as f16: to nearest even, or by the older, truncating conversion."""
    if legacy:
        return half_cut(x)
    try:
        return struct.pack("<e", x)
    except OverflowError:
        return struct.pack("<e", math.copysign(INF, x))


def half_cut(x: float) -> bytes:
    """The truncating conversion: below the smallest normal half a signed zero; overflow and NaN infinite."""
    sign, a = math.copysign(1, x), abs(x)
    if not a < 65536:
        return struct.pack("<e", sign * INF)
    if a < 2.0**-14:
        return struct.pack("<e", sign * 0.0)
    unit = 2.0 ** (math.frexp(a)[1] - 11)
    return struct.pack("<e", sign * math.floor(a / unit) * unit)


def q8_0(values: Sequence[float], span: int = 32, legacy: bool = False) -> bytes:
    """Q8_0 blocks whose scales are computed over `span` elements: 32, or 256 for g256."""
    out = bytearray(len(values) // 32 * 34)
    for start in range(0, len(values) - span + 1, span):
        a = TINY
        for x in values[start : start + span]:
            if abs(x) > a:
                a = abs(x)
        s = max(single(a / 127), TINY)
        r = single(1 / s)
        products = array("f", [x * r for x in values[start : start + span]])
        sums = array("f", [t - 0.5 if t < 0 and not legacy else t + 0.5 for t in products])
        codes = [0 if t != t else int(max(-127.0, min(127.0, t))) for t in sums]
        for b in range(0, span, 32):
            place = (start + b) // 32 * 34
            out[place : place + 34] = half(s, legacy) + struct.pack("<32b", *codes[b : b + 32])
    return bytes(out)


def q4_codes(block: Sequence[float]) -> tuple[float, list[int]]:
    m = 0.0
    for x in block:
        if abs(x) > abs(m):
            m = x
    d = single(m / -8)
    if d == 0:
        d = 1.0
    i = single(1 / d)
    sums = array("f", [t + 8.5 for t in array("f", [x * i for x in block])])
    return d, [0 if t != t else int(max(0.0, min(15.0, t))) for t in sums]


def q4_0(values: Sequence[float], legacy: bool = False, wide: bool = False) -> bytes:
    """Q4_0 blocks, or `wide` as q4i: one int8 a value."""
    out = bytearray()
    for start in range(0, len(values), 32):
        d, n = q4_codes(values[start : start + 32])
        codes = struct.pack("<32b", *[v - 8 for v in n]) if wide else bytes(n[j] + 16 * n[16 + j] for j in range(16))
        out += half(d, legacy) + codes
    return bytes(out)


PARTS = {
    "token_embed": "embed_tokens", "final_norm": "norm", "attn_norm": "layers.%d.input_layernorm",
    "ffn_norm": "layers.%d.post_attention_layernorm", "q_norm": "layers.%d.self_attn.q_norm",
    "k_norm": "layers.%d.self_attn.k_norm", "moe_router": "layers.%d.mlp.gate", "q": "layers.%d.self_attn.q_proj",
    "k": "layers.%d.self_attn.k_proj", "v": "layers.%d.self_attn.v_proj", "o": "layers.%d.self_attn.o_proj",
    "gate": "layers.%d.mlp.gate_proj", "up": "layers.%d.mlp.up_proj", "down": "layers.%d.mlp.down_proj",
    "v_q8_qkv": "blocks.%d.attn.qkv.weight", "v_q8_proj": "blocks.%d.attn.proj.weight",
    "v_q8_fc1": "blocks.%d.mlp.linear_fc1.weight", "v_q8_fc2": "blocks.%d.mlp.linear_fc2.weight",
    "v_patch_embed": "patch_embed.proj.weight", "v_patch_bias": "patch_embed.proj.bias",
    "v_pos_embed": "pos_embed.weight", "v_qkv_bias": "blocks.%d.attn.qkv.bias",
    "v_proj_bias": "blocks.%d.attn.proj.bias", "v_norm1_w": "blocks.%d.norm1.weight",
    "v_norm1_b": "blocks.%d.norm1.bias", "v_norm2_w": "blocks.%d.norm2.weight", "v_norm2_b": "blocks.%d.norm2.bias",
    "v_fc1_bias": "blocks.%d.mlp.linear_fc1.bias", "v_fc2_bias": "blocks.%d.mlp.linear_fc2.bias",
    "v_merger_nw": "merger.norm.weight", "v_merger_nb": "merger.norm.bias",
    "v_merger_f1w": "merger.linear_fc1.weight", "v_merger_f1b": "merger.linear_fc1.bias",
    "v_merger_f2w": "merger.linear_fc2.weight", "v_merger_f2b": "merger.linear_fc2.bias",
    "v_ds_nw": "deepstack_merger_list.%d.norm.weight", "v_ds_nb": "deepstack_merger_list.%d.norm.bias",
    "v_ds_f1w": "deepstack_merger_list.%d.linear_fc1.weight", "v_ds_f1b": "deepstack_merger_list.%d.linear_fc1.bias",
    "v_ds_f2w": "deepstack_merger_list.%d.linear_fc2.weight", "v_ds_f2b": "deepstack_merger_list.%d.linear_fc2.bias",
}  # fmt: skip


def layer_count(name: str, a: dict[str, Any]) -> int:
    part = PARTS.get(name) or PARTS.get(name[3:], "")
    if "%d" not in part:
        return 1
    return a["vis_ds_count" if name.startswith("v_ds") else "vis_depth" if name.startswith("v_") else "n_layers"]


def source_rows(m: Model, name: str, layer: int, a: dict[str, Any]) -> Rows:
    """One layer of a VQF tensor as rows of floats, as they are stored."""
    prefix = "model.language_model." if any(t.name.startswith("model.language_model.") for t in m.tensors) else "model."

    def rows_of(source: str) -> Rows:
        t, values = m[source], m.values(source)
        if t.dtype == "F16":
            values = [NAN if v - v != 0 else v for v in values]
        width = len(values) // t.shape[0] if len(t.shape) > 1 else len(values)
        return [values[i : i + width] for i in range(0, len(values), width)]

    if name.startswith("v_"):
        part = PARTS[name]
        found = rows_of("model.visual." + (part % layer if "%d" in part else part))
        pad = -a["vis_ffn"] % 32 if name == "v_q8_fc2" else 0
        return [row + [0.0] * pad for row in found]
    kind = name[3:] if name[:3] in ("q8_", "q4_", "x8_") else name
    if kind == "lm":
        tied = "lm_head.weight" not in [t.name for t in m.tensors]
        return rows_of(prefix + "embed_tokens.weight" if tied else "lm_head.weight")
    if a["n_experts"] and kind in ("gate", "up", "down"):
        experts = [
            rows_of("%slayers.%d.mlp.experts.%d.%s_proj.weight" % (prefix, layer, e, kind))
            for e in range(a["n_experts"])
        ]
        if kind == "down":  # side by side
            return [[x for part in row for x in part] for row in zip(*experts)]
        return [row for rows in experts for row in rows]
    part = PARTS[kind]
    return rows_of(prefix + (part % layer if "%d" in part else part) + ".weight")


def stored(m: Model, row: samples.Row, a: dict[str, Any], flags: int, how: dict[str, Any]) -> bytes:
    """All bytes of one VQF tensor."""
    legacy, out = how["legacy"], b""
    for layer in range(layer_count(row.name, a)):
        rows = source_rows(m, row.name, layer, a)
        chunk = how["lm_chunk"] if row.name.endswith("_lm") else max(len(rows), 1)
        for top in range(0, len(rows), chunk):
            piece = rows[top : top + chunk]
            flat = [x for row in piece for x in row]
            if row.qtype not in (Q8_0, Q4_0, samples.Q4_8X8L):
                out += struct.pack("<%df" % len(flat), *flat) if row.qtype == samples.F32 else b"".join(
                    [half_cut(x) for x in flat])  # fmt: skip
                continue
            text = not row.name.startswith("v_")
            if row.qtype == Q8_0 and text and flags & 8:
                blocks = q4_0(flat, legacy, wide=True)
            elif row.qtype == Q8_0:
                blocks = q8_0(flat, 256 if text and flags & 16 else 32, legacy)
            else:
                blocks = q4_0(flat, legacy)
            layouts = how["layouts"].get(row.name, how["layouts"].get(row.name[:3], "")) if text else ""
            for layout in layouts.split():
                if len(piece) % (8 if "8x8" in layout else 4) == 0:
                    size = len(blocks) // len(piece)
                    blocks = tiled([blocks[i : i + size] for i in range(0, len(blocks), size)], layout)
            out += blocks
    return out


def converted(
    m: Model, a: dict[str, Any], families: str, flags: int, layouts: dict[str, str], *, form: int = 448,
    legacy: bool = False, lm_chunk: int = 16384,
) -> bytes:  # fmt: skip
    """The plain file that a model becomes. layouts: tile layouts by prefix, or by name where a tensor differs; those of
    x8_* are applied one after the other."""
    how = {"layouts": layouts, "legacy": legacy, "lm_chunk": lm_chunk}
    rows = samples.text_rows(a, families) + (samples.vision_rows(a) if flags & 0x40 else [])
    data = samples.build(a, rows, flags, form=form, version=3 if flags & 0x200 else 2, seal=False)
    for row in rows:
        made = stored(m, row, a, flags, how)
        if len(made) != row.bytes:
            raise AssertionError("%s: %d bytes, the directory has %d" % (row.name, len(made), row.bytes))
        data = patch(data, place_of(data, row.name)[0], "%ds" % len(made), made)
    return samples.reseal(data, form)


TILES = {"q8_": "q8_8x8", "q4_": "q4_4x4", "x8_": "q4_4x4 q4_8x8l"}

# The arch words of the models, by section 11 from the numbers in their config.json.
DENSE = samples.arch(dim=64, n_layers=2, n_heads=4, n_kv_heads=2, ffn_dim=96, vocab_size=64)
NO_MROPE = {
    "has_mrope": 0, "mrope_n_sec": 0, "mrope_sections0": 0, "mrope_sections1": 0, "mrope_sections2": 0,
    "vision_start_id": 0, "vision_end_id": 0, "image_token_id": 0, "video_token_id": 0,
}  # fmt: skip
ARCHS = {
    "dense": DENSE,
    "tied-f16-vocab66": {**DENSE, "vocab_size": 66},
    "moe": {**DENSE, **NO_MROPE, "ffn_dim": 128, "n_experts": 4, "moe_ffn": 32, "top_k": 2},
    "vision": {
        **DENSE, "has_vision": 1, "vis_depth": 1, "vis_hidden": 32, "vis_heads": 2, "vis_ffn": 40, "vis_patch": 4,
        "vis_temporal": 2, "vis_merge": 2, "vis_out_dim": 64, "vis_in_chan": 3, "vis_max_pos": 16, "vis_ds_count": 1,
    },
    "mini": samples.arch(),
    "odd-rows": {
        **DENSE, "n_heads": 3, "n_kv_heads": 1, "head_dim": 20, "head_dim_full": 20, "vocab_size": 68,
    },
}  # fmt: skip


class SecondConverter(unittest.TestCase):
    """What the other tests lean on must itself give the engine's files."""

    @thorough
    def test_it_gives_the_known_files(self) -> None:
        for name, wmode, families, flags, layouts, form in (
            ("dense", "q4+8x8l", "4x", 39, TILES, 448),
            ("moe", "dual", "84", 547, TILES, 448),
            ("moe", "q4i", "8", 554, {}, 448),
            ("vision", "q8", "8", 99, TILES, 432),
            ("tied-f16-vocab66", "g256", "8", 49, TILES, 448),
            ("odd-rows", "dual", "84", 34, {"q4_": "q4_4x4", "q4_o": ""}, 448),
        ):
            data = converted(model(name), ARCHS[name], families, flags, layouts, form=form)
            self.assertEqual(sha256(data), known(name, wmode, form), (name, wmode))

    def test_the_truncating_half_cuts_towards_zero(self) -> None:
        for x, want in (
            (1 + 2.0**-10 + 2.0**-11, 1 + 2.0**-10), (-1 - 2.0**-10 - 2.0**-23, -1 - 2.0**-10), (65535.0, 65504.0),
            (65536.0, INF), (NAN, INF), (-INF, -INF), (2.0**-14, 2.0**-14), (2.0**-14 - 2.0**-38, 0.0), (0.0, 0.0),
        ):  # fmt: skip
            self.assertEqual(struct.unpack("<e", half_cut(x))[0], want, x)
        self.assertEqual(half_cut(-(2.0**-15)), b"\0\x80")


# ---- conversions


class Files(unittest.TestCase):
    """A test with a folder for sources and one for what is written."""

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory(prefix="vqfref-")
        self.addCleanup(folder.cleanup)
        self.folder = os.path.realpath(folder.name)
        self.work = os.path.join(self.folder, "work")
        os.mkdir(self.work)
        self.out = os.path.join(self.work, "out.vqf")
        self.count = 0

    def source(self, m: Model | str) -> str:
        """A model folder with this in it."""
        self.count += 1
        return (model(m) if isinstance(m, str) else m).write(os.path.join(self.folder, "model-%d" % self.count))

    def read(self, path: str | None = None) -> bytes:
        with open(path or self.out, "rb") as file:
            return file.read()

    def names(self) -> list[str]:
        return sorted(os.listdir(self.work))

    def convert(self, m: Model | str, wmode: str = "q4", header: int = 448, **how: Any) -> bytes:
        """The bytes that a model becomes; findings in self.findings."""
        folder = m if isinstance(m, str) and os.path.isdir(m) else self.source(m)
        result = convert(folder, self.out, **{**mode(wmode, header), **how})
        self.findings = result.findings
        self.plan = result.plan
        data = self.read()
        self.assertEqual((result.plan.size, self.names()), (len(data), ["out.vqf"]))
        return data

    def same(self, got: bytes, want: bytes, what: object = None) -> None:
        """Equal files; else the first tensor that differs."""
        if got != want:
            first = next((i for i, (x, y) in enumerate(zip(got, want)) if x != y), min(len(got), len(want)))
            names = [
                got[at(i) : at(i) + 32].rstrip(b"\0").decode() for i in range(struct.unpack_from("<I", got, 12)[0])
            ]
            where = [n for n in names if place_of(got, n)[0] <= first < sum(place_of(got, n))]
            self.fail("%s: byte %d differs, in %s; %d and %d bytes" % (what, first, where, len(got), len(want)))

    def refused(
        self, code: str, field: str | None, m: Model | str, error: type[Exception] = VqfrefError, wmode: str = "q4",
        text: str = "", **how: Any,
    ) -> VqfrefError:  # fmt: skip
        """Refused with this code and field, and nothing written: neither a new file nor over an old one."""
        folder = m if isinstance(m, str) and os.path.isdir(m) else self.source(m)
        for old in (None, b"old"):
            if old is not None:
                put(self.out, old)
            with self.assertRaises(error) as caught:
                convert(folder, self.out, **{**mode(wmode), **how})
            fault: Any = caught.exception
            self.assertEqual((fault.code, fault.field), (code, field), fault)
            self.assertIn(text, fault.message)
            self.assertEqual(self.names(), [] if old is None else ["out.vqf"])
        self.assertEqual(self.read(), b"old")
        os.unlink(self.out)
        return fault


class KnownFiles(Files):
    def test_every_known_file_comes_out_byte_for_byte(self) -> None:
        folders = {name: self.source(name) for name in models.NAMES}
        self.assertEqual(len(KNOWN), 34)
        for name, wmode, header, size, flags, count, digest in KNOWN if LONG else KNOWN[::3]:
            data = self.convert(folders[name], wmode, header)
            found = (len(data), *struct.unpack_from("<II", data, 8), sha256(data))
            self.assertEqual(found, (size, flags, count, digest), (name, wmode, header))
            self.assertEqual((self.plan.flags, len(self.plan.tensors), self.plan.form), (flags, count, header))

    def test_a_file_of_mini_is_the_real_one_in_both_forms(self) -> None:
        for form in (448, 432):
            self.same(self.convert("mini", "q4", form), real("h%d-plain" % form), form)

    def test_q8_can_be_left_linear(self) -> None:
        data = self.convert("dense", "dual", q8_tile=0)
        self.same(data, converted(model("dense"), DENSE, "84", 34, {"q4_": "q4_4x4"}))

    def test_x8_copies_of_linear_q4_are_tiles_of_plain_rows(self) -> None:
        # 66 tokens are no multiple of 4, so q4 is linear; the seven matrices fit tiles of 8 rows all the same.
        data = self.convert("tied-f16-vocab66", "q4", x8=True)
        a = ARCHS["tied-f16-vocab66"]
        self.same(data, converted(model("tied-f16-vocab66"), a, "4x", 0x25, {"x8_": "q4_8x8l"}))

    @thorough
    def test_experts_go_with_x8_too(self) -> None:
        self.same(self.convert("moe", "q4", x8=True), converted(model("moe"), ARCHS["moe"], "4x", 0x227, TILES))

    def test_experts_and_odd_columns_go_with_g256(self) -> None:
        data = self.convert("moe", "g256")
        self.same(data, converted(model("moe"), ARCHS["moe"], "8", 0x233, TILES))
        data = self.convert("odd-rows", "g256")
        self.same(data, converted(model("odd-rows"), ARCHS["odd-rows"], "8", 0x32, {}))

    @thorough
    def test_vision_matrices_are_plain_q8_0_in_g256_and_with_4_row_tiles(self) -> None:
        for wmode, flags, layouts in (("g256", 0x73, TILES), ("q8 4x4", 0x62, {"q8_": "q8_4x4"})):
            self.same(self.convert("vision", wmode), converted(model("vision"), ARCHS["vision"], "8", flags, layouts))


# Towers and models that the known ones don't cover.


def tower(**changes: Any) -> Model:
    """The vision model with a smaller text part and other numbers in vision_config."""

    def change(root: dict[str, Any]) -> None:
        root["text_config"].update(hidden_size=32, num_hidden_layers=1, num_attention_heads=1, num_key_value_heads=1,
                                   intermediate_size=32, vocab_size=32)  # fmt: skip
        root["vision_config"].update(changes)

    return models.made(model("vision").configured(change).config, "BF16", 31)


def dense(seed: int = 37, dtype: str = "BF16", **changes: Any) -> Model:
    """The dense model with other numbers in text_config."""
    config = model("dense").configured(lambda root: root["text_config"].update(changes)).config
    return models.made(config, dtype, seed)


TOWER = {**samples.arch(), **{k: v for k, v in ARCHS["vision"].items() if k.startswith(("vis_", "has_vision"))}}
SMALL_TOWER = {
    "hidden_size": 16, "intermediate_size": 24, "patch_size": 2, "out_hidden_size": 32, "num_position_embeddings": 9
}  # fmt: skip
SMALL_TOWER_WORDS = {"vis_hidden": 16, "vis_ffn": 24, "vis_patch": 2, "vis_out_dim": 32, "vis_max_pos": 9}


class Vision(Files):
    def test_several_blocks_and_deepstack_mergers_follow_one_another(self) -> None:
        m = tower(**SMALL_TOWER, depth=3, deepstack_visual_indexes=[0, 2])
        a = {**TOWER, **SMALL_TOWER_WORDS, "vis_depth": 3, "vis_ds_count": 2, "vis_ds_idx1": 2}
        self.same(self.convert(m), converted(m, a, "4", 0x63, TILES))

    def test_without_deepstack_its_six_tensors_are_there_with_no_bytes(self) -> None:
        m = tower(**SMALL_TOWER, deepstack_visual_indexes=[])
        data = self.convert(m)
        self.same(data, converted(m, {**TOWER, **SMALL_TOWER_WORDS, "vis_ds_count": 0}, "4", 0x63, TILES))
        self.assertEqual(place_of(data, "v_ds_f2b")[1], 0)

    def test_a_feed_forward_of_whole_blocks_needs_no_padding(self) -> None:
        m = tower(**{**SMALL_TOWER, "intermediate_size": 64})
        self.same(self.convert(m), converted(m, {**TOWER, **SMALL_TOWER_WORDS, "vis_ffn": 64}, "4", 0x63, TILES))

    def test_the_tower_is_left_out_where_the_config_has_none_or_depth_0(self) -> None:
        plain = known("dense", "q4")
        m = Model(model("dense").config, model("vision").tensors)
        text = [t for t in m.tensors if not t.name.startswith("model.visual.")]
        self.assertNotEqual(len(text), len(m.tensors))
        with_tower = Model(m.config, model("dense").tensors + [t for t in m.tensors if t not in text])
        self.assertEqual(sha256(self.convert(with_tower)), plain)
        with_tower = with_tower.configured(lambda root: root.update(vision_config={"depth": 0, "hidden_size": 32}))
        self.assertEqual(sha256(self.convert(with_tower)), plain)


class Sources(Files):
    @thorough
    def test_shards_with_and_without_an_index_give_the_same_file(self) -> None:
        for name, wmode, count in (("dense", "dual", 3), ("moe", "q4", 5), ("vision", "q4", 2)):
            for index in (True, False):
                self.count += 1
                folder = os.path.join(self.folder, "shards-%d" % self.count)
                model(name).write_shards(folder, count, index)
                self.assertEqual(len([n for n in os.listdir(folder) if n.endswith(".safetensors")]), count)
                self.assertEqual(sha256(self.convert(folder, wmode)), known(name, wmode), (name, index))

    def test_the_index_goes_before_the_single_file_and_that_before_the_shards(self) -> None:
        other = dense().tensors
        folder = model("dense").write_shards(os.path.join(self.folder, "a"), 2, True)
        put(os.path.join(folder, "model.safetensors"), models.safetensors(other))
        self.assertEqual(sha256(self.convert(folder)), known("dense", "q4"))
        folder = Model(model("dense").config, other).write_shards(os.path.join(self.folder, "b"), 2, False)
        put(os.path.join(folder, "model.safetensors"), models.safetensors(model("dense").tensors))
        self.assertEqual(sha256(self.convert(folder)), known("dense", "q4"))

    def test_sources_of_f32_give_the_same_file(self) -> None:
        for name, wmode in (("dense", "dual"), ("tied-f16-vocab66", "dual"), ("vision", "q8"), ("odd-rows", "q8 4x4")):
            data = self.convert(model(name).as_dtype("F32"), wmode)
            self.assertEqual(sha256(data), known(name, wmode), name)

    def test_values_of_f32_that_no_half_has_keep_their_digits(self) -> None:
        m = dense(dtype="F32", num_hidden_layers=1)
        data = b"".join(
            struct.pack("<f", v * (1 + 2.0**-20)) for v in m.values("model.language_model.layers.0.mlp.up_proj.weight")
        )
        m = m.replaced("model.language_model.layers.0.mlp.up_proj.weight", data=data)
        self.same(self.convert(m, "dual"), converted(m, {**DENSE, "n_layers": 1}, "84", 35, TILES))

    def test_each_tensor_may_have_its_own_dtype(self) -> None:
        m = model("dense")
        wide = m.as_dtype("F32")
        mixed = Model(m.config, [(a, b)[i % 2] for i, (a, b) in enumerate(zip(m.tensors, wide.tensors))])
        self.assertEqual({t.dtype for t in mixed.tensors}, {"BF16", "F32"})
        self.assertEqual(sha256(self.convert(mixed)), known("dense", "q4"))

    def test_the_order_of_tensors_and_tensors_that_are_not_needed_do_not_matter(self) -> None:
        m = model("dense")
        extra = [
            Tensor("model.language_model.layers.0.self_attn.rotary_emb.inv_freq", "F32", (16,), bytes(64)),
            Tensor("model.language_model.layers.2.self_attn.q_proj.weight", "I8", (3,), bytes(3)),
        ]
        self.assertEqual(sha256(self.convert(Model(m.config, m.tensors[::-1] + extra))), known("dense", "q4"))

    def test_names_may_begin_with_model_alone(self) -> None:
        m = model("dense")
        short = [t._replace(name=t.name.replace("model.language_model.", "model.")) for t in m.tensors]
        self.assertEqual(sha256(self.convert(Model(m.config, short))), known("dense", "q4"))

    def test_the_lm_head_is_its_own_where_it_is_there_whatever_the_config_says(self) -> None:
        m = model("dense").configured(lambda root: root["text_config"].update(tie_word_embeddings=True))
        self.assertEqual(sha256(self.convert(m)), known("dense", "q4"))

    def test_without_an_lm_head_it_is_the_embedding_whatever_the_config_says(self) -> None:
        m = model("dense").without("lm_head.weight")
        self.same(self.convert(m), converted(m, DENSE, "4", 35, TILES))

    def test_without_q_norms_there_are_none(self) -> None:
        m = model("dense")
        m = m.without(*[t.name for t in m.tensors if "q_norm" in t.name or "k_norm" in t.name])
        self.same(self.convert(m), converted(m, {**DENSE, "has_q_norm": 0}, "4", 35, TILES))

    def test_the_source_is_left_as_it_was(self) -> None:
        folder = self.source("mini")
        before = {name: self.read(os.path.join(folder, name)) for name in os.listdir(folder)}
        self.convert(folder)
        self.assertEqual({name: self.read(os.path.join(folder, name)) for name in os.listdir(folder)}, before)


class Seals(Files):
    """The real sealed files were made with OpenSSL from what the engine's converter made of the model mini."""

    def iv(self, form: int) -> bytes:
        return real("h%d-enc" % form)[HEADER[form]["enc_iv"] :][:16]

    def test_encryption_in_the_same_pass_gives_the_real_file(self) -> None:
        for form in (448, 432):
            data = self.convert("mini", "q4", form, passphrase=PASSPHRASE, iv=self.iv(form))
            self.same(data, real("h%d-enc" % form), form)
            self.assertEqual(self.plan.flags, 0x23 | 0x80)

    def test_signing_in_the_same_pass_gives_the_real_file_but_for_the_number_that_is_drawn(self) -> None:
        for form in (448, 432):
            for kind, keys in (("signed", {}), ("enc-signed", {"passphrase": PASSPHRASE, "iv": self.iv(form)})):
                data = self.convert("mini", "q4", form, signer=Signer(PRIVATE, None), **keys)
                wanted, r = real("h%d-%s" % (form, kind)), HEADER[form]["sig"] + 64
                self.assertNotEqual(data[r : r + 64], bytes(64))
                self.same(data[:r] + wanted[r : r + 64] + data[r + 64 :], wanted, (form, kind))
                digest = wanted[r + 64 : r + 96]
                self.assertTrue(sm2_verifies(PUBLIC, digest, data[r : r + 64], USER_ID[form]), (form, kind))

    def test_it_is_what_sealing_afterwards_gives(self) -> None:
        for name, wmode in (("mini", "dual"), ("mini", "g256")):
            plain = put(os.path.join(self.folder, "plain.vqf"), self.convert(name, wmode))
            sealed = os.path.join(self.folder, "sealed.vqf")
            reseal(plain, sealed, new_passphrase=b"p", iv=bytes(range(16)))
            self.same(self.convert(name, wmode, passphrase=b"p", iv=bytes(range(16))), self.read(sealed), name)

    def test_small_pieces_are_one_stream_of_ciphertext(self) -> None:
        with mock.patch.object(convert_module, "MAX_GROUP", 1):
            data = self.convert("mini", "q4", 448, passphrase=PASSPHRASE, iv=self.iv(448))
        self.same(data, real("h448-enc"))

    def test_each_encryption_draws_its_own_iv(self) -> None:
        ivs = []
        for _ in range(2):
            data = self.convert("mini", passphrase=PASSPHRASE)
            self.assertEqual(data[-32:], hmac_tag(data, 448))
            ivs.append(data[HEADER[448]["enc_iv"] :][:16])
        self.assertNotEqual(*ivs)
        self.assertNotIn(bytes(16), ivs)

    def test_the_signer_s_id_goes_into_the_block(self) -> None:
        data = self.convert("mini", signer=Signer(PRIVATE, b"me"))
        block = data[HEADER[448]["sig"] :][:200]
        self.assertEqual(block[160:], b"me".ljust(32, b"\0") + struct.pack("<II", 2, 0))
        self.assertTrue(sm2_verifies(PUBLIC, block[128:160], block[64:128], b"me"))

    def test_keys_that_are_none_are_refused_and_nothing_is_written(self) -> None:
        for code, error, how in (
            ("usage.passphrase.key", UsageError, {"passphrase": b""}),
            ("sm4.length.iv", UsageError, {"passphrase": b"p", "iv": bytes(15)}),
            ("usage.userid.signature", UsageError, {"signer": Signer(PRIVATE, b"i" * 33)}),
            ("sm2.private.range", SignatureError, {"signer": Signer(0, None)}),
        ):
            self.refused(code, None, "mini", error, **how)

    def test_keys_are_judged_before_the_work_and_not_after_it(self) -> None:
        folder, calls = self.source("mini"), mock.Mock()
        for how in ({"passphrase": b""}, {"passphrase": b"p", "iv": bytes(15)}, {"signer": Signer(PRIVATE, b"i" * 33)},
                    {"signer": Signer(0, None)}):  # fmt: skip
            with self.assertRaises(VqfrefError):
                convert(folder, self.out, "q4", progress=calls, **how)
        calls.assert_not_called()


class Streaming(Files):
    """Row groups: whatever their size, the bytes are the same, and none is larger than allowed."""

    def groups(self, limit: int) -> Any:
        """While this lasts, groups are of at most so many floats where one unit fits; their sizes go to self.sizes."""
        self.sizes: list[int] = []
        encode = convert_module.Encoder.encode

        def noted(encoder: Any, of: Any, segment: Any, floats: Any) -> bytes:
            self.sizes.append(len(floats))
            return encode(encoder, of, segment, floats)

        return mock.patch.multiple(convert_module, MAX_GROUP=limit), mock.patch.object(
            convert_module.Encoder, "encode", noted
        )

    @thorough
    def test_the_smallest_groups_give_the_known_files(self) -> None:
        for name, wmode in (
            ("dense", "dual"), ("dense", "g256"), ("dense", "q4+8x8l"), ("dense", "q8 4x4"), ("moe", "dual"),
            ("moe", "q4i"), ("tied-f16-vocab66", "g256"), ("vision", "dual"), ("odd-rows", "dual"),
            ("odd-rows", "q8 4x4"),
        ):  # fmt: skip
            limit, noting = self.groups(1)
            with limit, noting:
                data = self.convert(name, wmode)
            self.assertEqual(sha256(data), known(name, wmode), (name, wmode))
            self.assertGreater(len(self.sizes), 5 * len(self.plan.tensors), "these are no small groups")

    @thorough
    def test_no_group_is_larger_than_the_limit(self) -> None:
        for name, wmode in (("dense", "dual"), ("moe", "q4"), ("vision", "q4")):
            for bound in (2048, 5000):
                limit, noting = self.groups(bound)
                with limit, noting:
                    data = self.convert(name, wmode)
                self.assertEqual(sha256(data), known(name, wmode), (name, bound))
                self.assertLessEqual(max(self.sizes), bound, (name, bound))

    @thorough
    def test_a_layer_of_long_rows_comes_in_groups_of_whole_tiles_and_blocks(self) -> None:
        # o has rows of 60 values: 64 of them are the fewest that end with a block, a group of 256 and a tile.
        m = dense(hidden_size=192, num_attention_heads=3, num_key_value_heads=1, head_dim=20, num_hidden_layers=1,
                  intermediate_size=32, vocab_size=36)  # fmt: skip
        a = {**DENSE, "dim": 192, "n_heads": 3, "n_kv_heads": 1, "head_dim": 20, "head_dim_full": 20, "n_layers": 1,
             "ffn_dim": 32, "vocab_size": 36}  # fmt: skip
        for wmode, families, flags, layouts in (
            ("dual", "84", 0x22, {"q4_": "q4_4x4", "q4_o": ""}),
            ("g256", "8", 0x32, {}),
            ("q8 4x4", "8", 0x22, {"q8_": "q8_4x4", "q8_o": ""}),
        ):
            limit, noting = self.groups(1)
            with limit, noting:
                data = self.convert(m, wmode)
            self.same(data, converted(m, a, families, flags, layouts), wmode)
            self.assertEqual(self.sizes.count(64 * 60), 3 * len(families), "o comes in three groups")

    @thorough
    def test_groups_may_end_inside_of_an_expert(self) -> None:
        # 24 rows an expert: groups of 8, 16 and 32 rows begin and end anywhere among three experts.
        def change(root: dict[str, Any]) -> None:
            root.update(num_experts=4, moe_intermediate_size=24, num_hidden_layers=1, vocab_size=32)

        m = models.made(model("moe").configured(change).config, "BF16", 41)
        a = {**ARCHS["moe"], "n_experts": 4, "moe_ffn": 24, "ffn_dim": 96, "n_layers": 1, "vocab_size": 32}
        want = converted(m, a, "84", 0x223, TILES)
        for rows in (8, 16, 32, 1000):
            with mock.patch.object(convert_module, "MAX_GROUP", rows * 64):
                self.same(self.convert(m, "dual"), want, rows)

    @thorough
    def test_an_lm_is_encoded_and_tiled_chunk_by_chunk(self) -> None:
        # 60 rows of 32: chunks of 24 rows, and 12 left, which fit tiles of 4 rows but not of 8, nor groups of 256 values.
        m = dense(hidden_size=32, num_attention_heads=1, num_key_value_heads=1, num_hidden_layers=1,
                  intermediate_size=32, vocab_size=60)  # fmt: skip
        a = samples.arch(vocab_size=60)
        for wmode, families, flags, layouts in (
            ("dual", "84", 35, TILES), ("g256", "8", 51, TILES), ("q8 4x4", "8", 34, {"q8_": "q8_4x4"}),
            ("q4i", "8", 42, {}),
        ):  # fmt: skip
            for chunk in (24, 20, 64):
                want = converted(m, a, families, flags, layouts, lm_chunk=chunk)
                for limit in (1, 1 << 24):
                    with mock.patch.object(geometry, "LM_CHUNK", chunk), mock.patch.object(
                        convert_module, "MAX_GROUP", limit
                    ):
                        self.same(self.convert(m, wmode), want, (wmode, chunk, limit))

    def test_a_real_chunk_has_16384_rows(self) -> None:
        # 16390 rows: the last 6 fit neither tiles of 8 nor of 4, although the first 16384 do.
        m = dense(hidden_size=32, num_attention_heads=1, num_key_value_heads=1, num_hidden_layers=1,
                  intermediate_size=32, vocab_size=32)  # fmt: skip
        rows, lm = 16390, "lm_head.weight"
        embed = "model.language_model.embed_tokens.weight"
        one = m[lm].data  # 32 rows
        data = (one * (rows // 32 + 1))[: rows * 64]
        m = m.configured(lambda root: root["text_config"].update(vocab_size=rows))
        m = m.replaced(lm, data=data, shape=(rows, 32)).replaced(embed, data=bytes(rows * 64), shape=(rows, 32))
        found = self.convert(m, "q8")
        start, length = place_of(found, "q8_lm")
        blocks = [q8_0(models.bf16_values(one[i : i + 64])) for i in range(0, len(one), 64)]
        lanes = tiled(blocks, "q8_8x8")
        self.assertEqual(found[8:12], struct.pack("<I", 0x21), "tiles of 8 rows for q8, none for q4")
        self.assertEqual(found[start : start + length], lanes * 512 + b"".join(blocks[:6]))

    def test_progress_rises_to_the_total_of_the_data_area(self) -> None:
        for name, steps, keys in (("vision", 50, {}), ("mini", 10, {"passphrase": b"p"})):
            calls: list[tuple[int, int]] = []
            with mock.patch.object(convert_module, "MAX_GROUP", 4096):
                data = self.convert(name, "q4", progress=lambda done, total, to=calls: to.append((done, total)), **keys)
            start, stop = struct.unpack_from("<QQ", data, HEADER[448]["data_offset"])
            self.assertEqual({total for _, total in calls}, {stop - start})
            done = [n for n, _ in calls]
            self.assertEqual(done, sorted(done))
            self.assertEqual(done[-1], stop - start)
            self.assertGreater(len(set(done)), steps)


class OlderRounding(Files):
    def test_scales_are_cut_and_negative_codes_rounded_up(self) -> None:
        for name, wmode, families, flags, layouts in (
            ("mini", "dual", "84", 35, TILES),
            ("mini", "q4i", "8", 42, {}),
            ("mini", "g256", "8", 51, TILES),
        ):
            data = self.convert(name, wmode, legacy=True)
            self.same(data, converted(model(name), ARCHS[name], families, flags, layouts, legacy=True), wmode)
            self.assertNotEqual(data, self.convert(name, wmode))

    def test_floats_and_the_embedding_are_as_ever(self) -> None:
        m = tower(**SMALL_TOWER)
        old, new = self.convert(m, legacy=True), self.convert(m)
        for name in ("token_embed", "attn_norm", "v_patch_embed", "v_q8_fc2", "q4_o"):
            start, length = place_of(new, name)
            same = old[start : start + length] == new[start : start + length]
            self.assertEqual(same, name not in ("v_q8_fc2", "q4_o"), name)


# ---- bad input


class Refusals(Files):
    def test_each_missing_tensor_is_named(self) -> None:
        for name in ("mini", "moe", "vision"):
            m = model(name)
            for t in m.tensors:
                # All q norms away would be a model without; the head away is a tied one.
                if t.name == "lm_head.weight" or (name == "mini" and "q_norm" in t.name):
                    continue
                with self.assertRaises(FormatError) as caught:
                    convert(self.source(m.without(t.name)), self.out, "q4")
                self.assertEqual((caught.exception.code, caught.exception.field), ("convert.source.missing", t.name))
                self.assertEqual(self.names(), [])
        self.refused("convert.source.missing", t.name, m.without(t.name), FormatError, text="v_ds_f2b")

    def test_each_tensor_of_another_shape_is_named_with_both_shapes(self) -> None:
        for name in ("mini", "moe", "vision"):
            m = model(name)
            for t in m.tensors:
                shape = (t.shape[0] + 1, *t.shape[1:])
                data = t.data + t.data[: len(t.data) // t.shape[0]]
                with self.assertRaises(FormatError) as caught:
                    convert(self.source(m.replaced(t.name, shape=shape, data=data)), self.out, "q4")
                self.assertEqual((caught.exception.code, caught.exception.field), ("convert.source.shape", t.name))
                self.assertIn(str(list(shape)), caught.exception.message)
                self.assertIn(str(list(t.shape)), caught.exception.message)
                self.assertEqual(self.names(), [])

    def test_a_transposed_matrix_a_flat_one_and_one_of_another_rank_are_misshapen(self) -> None:
        name = "model.language_model.layers.1.mlp.down_proj.weight"
        for shape in ((96, 64), (6144,), (1, 64, 96), (64, 96, 1)):
            self.refused("convert.source.shape", name, model("dense").replaced(name, shape=shape), FormatError)
        name = "model.visual.patch_embed.proj.weight"
        for shape in ((32, 96), (32, 2, 3, 4, 4), (32, 3, 2, 16)):
            self.refused("convert.source.shape", name, model("vision").replaced(name, shape=shape), FormatError)

    def test_other_dtypes_are_refused_by_name(self) -> None:
        name = "model.language_model.layers.0.mlp.up_proj.weight"
        for dtype, size in (("F64", 8), ("I8", 1), ("F8_E4M3", 1), ("I32", 4), ("U8", 1)):
            m = model("mini").replaced(name, dtype=dtype, data=bytes(1024 * size))
            self.refused("convert.source.dtype", name, m, UnsupportedError, text=dtype)

    def test_the_first_fault_of_the_source_stops_it_before_anything_is_encoded(self) -> None:
        last = model("vision").without("model.visual.deepstack_merger_list.0.linear_fc2.bias")
        with mock.patch.object(convert_module.Encoder, "encode") as encode:
            self.refused("convert.source.missing", "model.visual.deepstack_merger_list.0.linear_fc2.bias", last)
        encode.assert_not_called()

    def test_a_config_without_a_required_key_is_refused(self) -> None:
        for name, key in (
            ("dense", "hidden_size"), ("dense", "num_hidden_layers"), ("dense", "num_attention_heads"),
            ("dense", "vocab_size"), ("dense", "intermediate_size"), ("moe", "hidden_size"), ("moe", "vocab_size"),
        ):  # fmt: skip
            m = model(name).configured(lambda root, key=key: root.get("text_config", root).pop(key))
            self.refused("config.key.missing", key, m, FormatError)

    def test_a_layer_that_is_not_whole_blocks_is_refused_by_name(self) -> None:
        for name, m in (
            ("q4_q", dense(hidden_size=12, head_dim=5, num_attention_heads=1, num_key_value_heads=1)),
            ("q4_k", dense(hidden_size=8, head_dim=2, num_attention_heads=2, num_key_value_heads=1)),
            ("q4_gate", dense(hidden_size=16, intermediate_size=31)),
            ("q4_lm", dense(hidden_size=16, intermediate_size=32, vocab_size=33)),
            ("q4_q", dense(hidden_size=12, head_dim=5, num_attention_heads=1, num_key_value_heads=1,
                           num_hidden_layers=1)),
            ("v_q8_qkv", tower(**{**SMALL_TOWER, "hidden_size": 6})),
            ("v_q8_fc1", tower(**{**SMALL_TOWER, "intermediate_size": 25})),
        ):  # fmt: skip
            self.refused("vqf.layer.shape", name, m, FormatError)

    def test_modes_that_the_engine_could_not_have_written_are_refused(self) -> None:
        for code, name, how in (
            ("usage.form.unsupported", "moe", {"form": 432}),
            ("usage.x8.unsupported", "dense", {"wmode": "dual", "x8": True}),
            ("usage.x8.unsupported", "dense", {"wmode": "q8", "x8": True}),
            ("usage.x8.unsupported", "dense", {"wmode": "q4i", "x8": True}),
            ("usage.x8.unsupported", "dense", {"wmode": "g256", "x8": True}),
            ("usage.x8.unsupported", "odd-rows", {"x8": True}),
            ("usage.wmode.unsupported", "dense", {"wmode": "Q4"}),
            ("usage.q8tile.unsupported", "dense", {"q8_tile": 16}),
            ("usage.form.unsupported", "dense", {"form": 45}),
        ):
            self.refused(code, None, name, UsageError, **how)

    def test_folders_that_are_no_models_are_refused(self) -> None:
        folder = os.path.join(self.folder, "empty")
        os.mkdir(folder)
        put(os.path.join(folder, "config.json"), model("mini").config)
        self.refused("st.folder.missing", None, folder)
        put(os.path.join(folder, "model-00001-of-00002.safetensors"), models.safetensors(model("mini").tensors))
        self.refused("st.folder.missing", None, folder, text="shard 2")
        os.unlink(os.path.join(folder, "config.json"))
        os.rename(os.path.join(folder, "model-00001-of-00002.safetensors"), os.path.join(folder, "model.safetensors"))
        with self.assertRaises(FileNotFoundError) as caught:
            convert(folder, self.out, "q4")
        self.assertIn("config.json", str(caught.exception.filename))
        put(os.path.join(folder, "config.json"), b"{")
        self.refused("json.syntax.json", None, folder)
        for missing in (os.path.join(self.folder, "nowhere"), os.path.join(folder, "config.json")):
            with self.assertRaises(OSError):
                convert(missing, self.out, "q4")
        self.assertEqual(self.names(), [])

    def test_a_source_that_ends_early_is_refused(self) -> None:
        folder = self.source("mini")
        path = os.path.join(folder, "model.safetensors")
        put(path, self.read(path)[:-1])
        self.refused("st.data.truncated", None, folder)

    def test_the_target_must_be_a_place_for_a_file(self) -> None:
        folder = self.source("mini")
        for out, error in (
            (self.work, IsADirectoryError), (os.path.join(self.work, "no", "out.vqf"), FileNotFoundError),
        ):  # fmt: skip
            with self.assertRaises(error):
                convert(folder, out, "q4")
        put(self.out, b"old")
        with self.assertRaises(FileExistsError):
            convert(folder, self.out, "q4", overwrite=False)
        self.assertEqual((self.names(), self.read()), (["out.vqf"], b"old"))

    @unittest.skipUnless(hasattr(os, "mkfifo"), "no FIFOs here")
    def test_a_device_is_not_replaced_by_a_file(self) -> None:
        pipe = os.path.join(self.work, "pipe")
        os.mkfifo(pipe)
        with self.assertRaises(OSError):
            convert(self.source("mini"), pipe, "q4")
        self.assertEqual(self.names(), ["pipe"])

    def test_a_file_of_the_source_is_not_replaced(self) -> None:
        folder = self.source("mini")
        for name in ("model.safetensors", "config.json"):
            old = self.read(os.path.join(folder, name))
            with self.assertRaises(UsageError):
                convert(folder, os.path.join(folder, name), "q4")
            self.assertEqual(self.read(os.path.join(folder, name)), old)
        self.assertEqual(sorted(os.listdir(folder)), ["config.json", "model.safetensors"])
        convert(folder, os.path.join(folder, "model.vqf"), "q4")
        self.assertEqual(self.read(os.path.join(folder, "model.vqf")), real("h448-plain"))


class NotFinite(Files):
    UP = "model.language_model.layers.0.mlp.up_proj.weight"

    def remarks(self) -> list[tuple[str | None, str]]:
        return [(f.field, f.message) for f in self.findings if f.code == "convert.values.range"]

    def test_nan_and_infinities_are_counted_and_named_and_follow_the_arithmetic(self) -> None:
        base = model("mini").as_dtype("F32")
        m = base.patched(self.UP, _0=NAN, _40=INF, _41=1.0, _70=-INF, _71=NAN, _200=NAN, _999=-INF)
        for wmode, families, flags, layouts, names in (
            ("dual", "84", 35, TILES, ["q8_up", "q4_up"]),
            ("g256", "8", 51, TILES, ["q8_up"]),
            ("q4i", "8", 42, {}, ["q8_up"]),
            ("q4+8x8l", "4x", 39, TILES, ["q4_up", "x8_up"]),
        ):
            self.same(self.convert(m, wmode), converted(m, samples.arch(), families, flags, layouts), wmode)
            self.assertEqual([name for name, _ in self.remarks()], names)
            for _, message in self.remarks():
                self.assertIn("3 NaN and 3 infinite", message)
            self.assertEqual({f.severity for f in self.findings}, {"warning"})

    def test_a_bf16_source_has_them_too(self) -> None:
        m = model("mini").patched(self.UP, _5=INF, _33=NAN)
        self.same(self.convert(m), converted(m, samples.arch(), "4", 35, TILES))
        self.assertEqual([name for name, _ in self.remarks()], ["q4_up"])
        self.assertIn("1 NaN and 1 infinite", self.remarks()[0][1])

    def test_an_infinity_of_f16_becomes_a_nan(self) -> None:
        m = model("mini").as_dtype("F16").patched(self.UP, _5=INF, _33=NAN, _64=-INF)
        data = self.convert(m, "dual")
        self.same(data, converted(m, samples.arch(), "84", 35, TILES))
        self.assertNotEqual(data, self.convert(m.as_dtype("F32"), "dual"))
        norm = "model.language_model.norm.weight"
        data = self.convert(m.patched(norm, _0=INF, _1=-INF))
        values = struct.unpack_from("<3f", data, place_of(data, "final_norm")[0])
        self.assertEqual([v != v for v in values], [True, True, False])

    def test_embedding_norms_and_bias_are_watched_as_well(self) -> None:
        embed, norm = "model.language_model.embed_tokens.weight", "model.language_model.norm.weight"
        bias = "model.visual.blocks.0.attn.qkv.bias"
        m = tower(**SMALL_TOWER).patched(embed, _0=NAN, _1=-INF, _2=1e-6).patched(norm, _3=INF).patched(bias, _1=NAN)
        data = self.convert(m)
        self.assertEqual(self.remarks()[0][0], "token_embed")
        self.assertEqual([name for name, _ in self.remarks()], ["token_embed", "final_norm", "v_qkv_bias"])
        start, _ = place_of(data, "token_embed")
        self.assertEqual(data[start : start + 6], bytes.fromhex("007c00fc0000"))
        start, _ = place_of(data, "v_qkv_bias")
        self.assertTrue(math.isnan(struct.unpack_from("<f", data, start + 4)[0]))

    def test_values_too_large_for_a_half_are_no_fault(self) -> None:
        m = model("mini").as_dtype("F32").patched(self.UP, _0=3e38, _33=-3.4e38)
        self.same(self.convert(m, "dual"), converted(m, samples.arch(), "84", 35, TILES))
        self.assertEqual(self.remarks(), [])

    def test_a_plain_model_has_remarks_about_its_config_alone(self) -> None:
        self.convert("dense", "dual")
        self.assertEqual([(f.code, f.field) for f in self.findings], [("config.word.policy", "max_seq_len")])


# ---- interruptions


class Interrupted(Files):
    def test_whatever_stops_it_nothing_of_the_new_file_stays(self) -> None:
        folder = self.source("dense")
        for fault in (KeyboardInterrupt(), OSError(28, "No space left on device"), MemoryError(), SystemExit(3)):
            for old in (None, b"old"):
                if old is not None:
                    put(self.out, old)
                seen = []

                def stop(done: int, total: int, fault: BaseException = fault, seen: list[int] = seen) -> None:
                    seen.append(done)
                    if done > total // 2:
                        raise fault

                with self.assertRaises(type(fault)):
                    convert(folder, self.out, "q4", progress=stop)
                self.assertGreater(len(seen), 3)
                self.assertEqual(self.names(), [] if old is None else ["out.vqf"])
            self.assertEqual(self.read(), b"old")
            os.unlink(self.out)

    def child(self, code: str, *argv: str, **how: Any) -> Any:
        """A fresh interpreter that runs `code`."""
        environment = {k: v for k, v in os.environ.items() if k not in VARIABLES}
        return subprocess.Popen(
            [sys.executable, *FLAGS, "-c", code, *argv], cwd=ROOT, env=environment, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, **how,
        )  # fmt: skip

    WAITS = """
import sys, time
from vqfref.vqf import convert
from vqfref.cli import main
def waits(done, total):
    if done > total // 2:
        print("half", flush=True)
        for _ in range(600):  # a signal just before one long sleep would not end it
            time.sleep(0.1)
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
import vqfref.cli.convert
vqfref.cli.convert.progress = lambda what: waits
sys.exit(main(["convert", sys.argv[1], sys.argv[2], "--wmode", "q4"]))
"""

    @unittest.skipUnless(os.name == "posix", "signals")
    def test_ctrl_c_in_the_middle_ends_with_130_and_leaves_the_old_file(self) -> None:
        put(self.out, b"old")
        with self.child(self.WAITS, self.source("mini"), self.out) as process:
            self.assertEqual(process.stdout.readline(), b"half\n")
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=30)
        self.assertEqual(process.returncode, 130, err)
        self.assertEqual((out, err), (b"", b"vqfref: interrupted\n"))
        self.assertEqual((self.names(), self.read()), (["out.vqf"], b"old"))

    @unittest.skipUnless(os.name == "posix", "signals")
    def test_a_kill_in_the_middle_leaves_the_old_file_and_a_hidden_one(self) -> None:
        put(self.out, b"old")
        with self.child(self.WAITS, self.source("mini"), self.out) as process:
            self.assertEqual(process.stdout.readline(), b"half\n")
            process.kill()
            process.communicate(timeout=30)
        self.assertEqual(self.read(), b"old")
        left = [name for name in self.names() if name != "out.vqf"]
        self.assertEqual(len(left), 1)
        self.assertTrue(left[0].startswith(".out.vqf."), left)

    @unittest.skipUnless(os.name == "posix", "signals")
    def test_a_source_that_is_cut_while_it_is_read_is_an_error_and_no_crash(self) -> None:
        code = """
import os, sys
import vqfref.cli.convert
from vqfref.cli import main
vqfref.cli.convert.progress = lambda what: lambda done, total: os.truncate(sys.argv[1] + "/model.safetensors", 0)
sys.exit(main(["convert", sys.argv[1], sys.argv[2], "--wmode", "q4"]))
"""
        with self.child(code, self.source("dense"), self.out) as process:
            out, err = process.communicate(timeout=60)
        self.assertEqual((process.returncode, out, self.names()), (1, b"", []), err)
        self.assertIn(b"model.safetensors", err)
        self.assertNotIn(b"Traceback", err)

    @unittest.skipUnless(os.name == "posix", "limits")
    def test_a_full_disk_is_an_error_of_output_and_leaves_the_old_file(self) -> None:
        code = """
import resource, sys
from vqfref.cli import main
resource.setrlimit(resource.RLIMIT_FSIZE, (20000, 20000))
sys.exit(main(["convert", sys.argv[1], sys.argv[2], "--wmode", "q4"]))
"""
        for old in (None, b"old"):
            if old is not None:
                put(self.out, old)
            with self.child(code, self.source("dense"), self.out) as process:
                out, err = process.communicate(timeout=60)
            self.assertEqual((process.returncode, out), (3, b""), err)
            self.assertIn(os.fsencode(self.out), err)
            self.assertEqual(err.count(b"\n") - err.count(b"warning["), 1, err)
            self.assertEqual(self.names(), [] if old is None else ["out.vqf"])
        self.assertEqual(self.read(), b"old")


# ---- the command line


class CommandLine(Files):
    def test_each_mode_has_its_options(self) -> None:
        folder = self.source("dense")
        for wmode, header, options in (
            ("dual", 432, ("--wmode", "dual", "--header", "432")),
            ("q4", 448, ("--wmode", "q4")),
            ("q8", 448, ("--wmode", "q8", "--q8-tile", "8", "--header", "448")),
            ("q4i", 448, ("--wmode", "q4i")),
            ("g256", 432, ("--wmode", "g256", "--header", "432")),
            ("q4+8x8l", 448, ("--wmode", "q4", "--x8")),
            ("q8 4x4", 448, ("--wmode", "q8", "--q8-tile", "4")),
        ):
            status, out, err = run_main("convert", folder, self.out, *options)
            self.assertEqual((status, sha256(self.read())), (0, known("dense", wmode, header)), err)
            size, count = next(row[3::2] for row in KNOWN if row[:3] == ("dense", wmode, header))[:2]
            self.assertIn("%d tensors, {:,} bytes".format(size) % count, out)
        status, _, err = run_main("convert", folder, self.out, "--wmode", "q8", "--q8-tile", "none")
        self.assertEqual((status, self.read()[8]), (0, 34), err)
        status, _, err = run_main("convert", self.source("mini"), self.out, "--wmode", "q4", "--legacy-rounding")
        self.assertEqual(self.read(), converted(model("mini"), samples.arch(), "4", 35, TILES, legacy=True))

    def test_keys_come_from_files_or_from_the_environment(self) -> None:
        folder = self.source("mini")
        secret = put(os.path.join(self.folder, "secret"), PASSPHRASE + b"\n")
        private = put(os.path.join(self.folder, "private"), b"%064x\n" % PRIVATE)
        for argv, variables in (
            (("--passphrase-file", secret, "--priv", private, "--id", "me"), {}),
            (("--id", "me"), {"VLLM_VQF_KEY": PASSPHRASE.decode(), "VLLM_VQF_SIGN_PRIV": "%064x" % PRIVATE}),
        ):
            status, _, err = run_main("convert", folder, self.out, "--wmode", "q4", *argv, **variables)
            self.assertEqual(status, 0, err)
            data = self.read()
            self.assertEqual(data[8:12], struct.pack("<I", 0x1A3))
            self.assertEqual(data[-32:], hmac_tag(data, 448))
            block = data[HEADER[448]["sig"] :][:200]
            self.assertTrue(sm2_verifies(PUBLIC, block[128:160], block[64:128], b"me"))

    def test_an_empty_passphrase_file_is_an_error_and_no_plain_file(self) -> None:
        secret = put(os.path.join(self.folder, "secret"), b"\n")
        status, out, err = run_main(
            "convert", self.source("mini"), self.out, "--wmode", "q4", "--passphrase-file", secret
        )
        self.assertEqual((status, out, self.names()), (2, "", []), err)

    def test_warnings_go_to_stderr_and_the_status_is_good(self) -> None:
        m = model("mini").patched(NotFinite.UP, _0=NAN)
        status, out, err = run_main("convert", self.source(m), self.out, "--wmode", "q4")
        self.assertEqual(status, 0)
        self.assertIn("warning[convert.values.range] q4_up: 1 NaN", err)
        self.assertIn("warning[config.word.policy] max_seq_len: ", err)
        self.assertNotIn("warning", out)

    def test_each_fault_has_its_status_and_names_what_is_wrong(self) -> None:
        up = NotFinite.UP
        mini = model("mini")
        nowhere = os.path.join(self.folder, "nowhere")
        no_key = mini.configured(lambda root: root["text_config"].pop("vocab_size"))
        for status, text, argv in (
            (1, up, (self.source(mini.without(up)), self.out, "--wmode", "q4")),
            (1, up, (self.source(mini.replaced(up, shape=(1024,))), self.out, "--wmode", "q4")),
            (1, up, (self.source(mini.replaced(up, dtype="F64", data=bytes(8192))), self.out, "--wmode", "q4")),
            (1, "vocab_size", (self.source(no_key), self.out, "--wmode", "q4")),
            (2, "448", (self.source("moe"), self.out, "--wmode", "q4", "--header", "432")),
            (2, "x8", (self.source("odd-rows"), self.out, "--wmode", "q4", "--x8")),
            (2, "--wmode", (self.source("mini"), self.out, "--wmode", "q5")),
            (2, "--wmode", (self.source("mini"), self.out)),
            (3, nowhere, (nowhere, self.out, "--wmode", "q4")),
            (3, nowhere, (self.source("mini"), os.path.join(nowhere, "out"), "--wmode", "q4")),
        ):
            found, out, err = run_main("convert", *argv)
            self.assertEqual((found, out, self.names()), (status, "", []), (argv, err))
            self.assertIn(text, err)
            self.assertNotIn("Traceback", err)


if __name__ == "__main__":
    unittest.main()

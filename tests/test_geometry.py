"""Where everything lies in a VQF file: which tensors, how large, and which bytes hold which rows and columns.

The truth comes from outside: sizes of real files (spec section 6), of files that the engine's converter made of small
models, the directories in kat/files, and for `ranges` a model of section 8's tile table that is written down here a
second time, byte by byte.
"""

from __future__ import annotations

import struct
import unittest
from pathlib import Path

from tests.tools import thorough
from vqfref.errors import FormatError, UsageError
from vqfref.vqf import geometry, structs
from vqfref.vqf.geometry import LINEAR, Q4_4X4, Q8_4X4, Q8_8X8, Geometry, plan, tensors
from vqfref.vqf.structs import F16, F32, Q4_0, Q4_8X8L, Q8_0

FILES = Path(__file__).resolve().parent.parent / "kat" / "files"


def arch(**words: int) -> structs.Arch:
    """An Arch of these words, the rest zero."""
    words = {**dict.fromkeys(structs.Arch._fields, 0), **words}
    return structs.Arch(**words)


# Small models that the engine's converter turned into files: the numbers of their config.json.
DENSE = {
    "dim": 64, "n_layers": 2, "n_heads": 4, "n_kv_heads": 2, "head_dim": 32, "ffn_dim": 96, "vocab_size": 64,
    "has_q_norm": 1, "has_mrope": 1,
}  # fmt: skip
TOWER = {
    "has_vision": 1, "vis_depth": 1, "vis_hidden": 32, "vis_heads": 2, "vis_ffn": 40, "vis_patch": 4,
    "vis_temporal": 2, "vis_merge": 2, "vis_out_dim": 64, "vis_in_chan": 3, "vis_max_pos": 16, "vis_ds_count": 1,
}  # fmt: skip
MOE = {**DENSE, "has_mrope": 0, "ffn_dim": 4 * 32, "n_experts": 4, "moe_ffn": 32, "top_k": 2}
MINI = {
    "dim": 32, "n_layers": 1, "n_heads": 1, "n_kv_heads": 1, "head_dim": 32, "ffn_dim": 32, "vocab_size": 32,
    "has_q_norm": 1, "has_mrope": 1,
}  # fmt: skip
ODD = {
    "dim": 64, "n_layers": 2, "n_heads": 3, "n_kv_heads": 1, "head_dim": 20, "ffn_dim": 96, "vocab_size": 68,
    "has_q_norm": 1, "has_mrope": 1,
}  # fmt: skip
MODELS = {
    "dense": arch(**DENSE),
    "tied-f16-vocab66": arch(**{**DENSE, "vocab_size": 66}),
    "moe": arch(**MOE),
    "vision": arch(**DENSE, **TOWER),
    "odd-rows": arch(**ODD),
}
MINI_ARCH = arch(**MINI)

# What the converter made of them: model, wmode, arch words, size on disk, flags, tensors.
CONVERTED = (
    ("dense", "dual", 45, 160520, 35, 22),
    ("dense", "dual", 41, 160520, 35, 22),
    ("dense", "q4", 45, 64776, 35, 14),
    ("dense", "q4", 41, 64776, 35, 14),
    ("dense", "q8", 45, 109832, 35, 14),
    ("dense", "q8", 41, 109832, 35, 14),
    ("dense", "q4i", 45, 109832, 42, 14),
    ("dense", "q4i", 41, 109832, 42, 14),
    ("dense", "g256", 45, 109832, 51, 14),
    ("dense", "g256", 41, 109832, 51, 14),
    ("dense", "q4+8x8l", 45, 113160, 39, 21),
    ("dense", "q8 4x4", 45, 109832, 34, 14),
    ("moe", "dual", 45, 182536, 547, 23),
    ("moe", "q4", 45, 73736, 547, 15),
    ("moe", "q8", 45, 124936, 547, 15),
    ("moe", "q4i", 45, 124936, 554, 15),
    ("tied-f16-vocab66", "dual", 45, 161096, 33, 22),
    ("tied-f16-vocab66", "dual", 41, 161096, 33, 22),
    ("tied-f16-vocab66", "q8", 45, 110280, 33, 14),
    ("tied-f16-vocab66", "q8", 41, 110280, 33, 14),
    ("tied-f16-vocab66", "q4i", 45, 110280, 40, 14),
    ("tied-f16-vocab66", "q4i", 41, 110280, 40, 14),
    ("tied-f16-vocab66", "g256", 45, 110280, 49, 14),
    ("tied-f16-vocab66", "g256", 41, 110280, 49, 14),
    ("vision", "dual", 45, 383688, 99, 49),
    ("vision", "dual", 41, 383688, 99, 49),
    ("vision", "q4", 45, 287944, 99, 41),
    ("vision", "q4", 41, 287944, 99, 41),
    ("vision", "q8", 45, 333000, 99, 41),
    ("vision", "q8", 41, 333000, 99, 41),
    ("vision", "q4i", 45, 333000, 106, 41),
    ("vision", "q4i", 41, 333000, 106, 41),
    ("odd-rows", "dual", 45, 115080, 34, 22),
    ("odd-rows", "q8 4x4", 45, 80200, 34, 14),
)

# Section 6, check values of real files.
QWEN3_VL_2B = arch(
    dim=2048, n_layers=28, n_heads=16, n_kv_heads=8, head_dim=128, ffn_dim=6144, vocab_size=151936, has_q_norm=1,
    has_mrope=1, has_vision=1, vis_depth=24, vis_hidden=1024, vis_heads=16, vis_ffn=4096, vis_patch=16, vis_temporal=2,
    vis_merge=2, vis_out_dim=2048, vis_in_chan=3, vis_max_pos=2304, vis_ds_count=3,
)  # fmt: skip
QWEN3_30B_A3B = arch(
    dim=2048, n_layers=48, n_heads=32, n_kv_heads=4, head_dim=128, ffn_dim=128 * 768, vocab_size=151936, has_q_norm=1,
    n_experts=128, moe_ffn=768, top_k=8,
)  # fmt: skip

MATRICES = ("q", "k", "v", "o", "gate", "up", "down", "lm")
VISION_NAMES = [
    "v_q8_qkv", "v_q8_proj", "v_q8_fc1", "v_q8_fc2", "v_patch_embed", "v_patch_bias", "v_pos_embed", "v_qkv_bias",
    "v_proj_bias", "v_norm1_w", "v_norm1_b", "v_norm2_w", "v_norm2_b", "v_fc1_bias", "v_fc2_bias", "v_merger_nw",
    "v_merger_nb", "v_merger_f1w", "v_merger_f1b", "v_merger_f2w", "v_merger_f2b", "v_ds_nw", "v_ds_nb", "v_ds_f1w",
    "v_ds_f1b", "v_ds_f2w", "v_ds_f2b",
]  # fmt: skip


def by_name(found: list[Geometry]) -> dict[str, Geometry]:
    return {t.name: t for t in found}


class Plans(unittest.TestCase):
    def test_small_models_get_size_flags_and_count_of_the_converter(self) -> None:
        for model, wmode, words, size, flags, n in CONVERTED:
            with self.subTest(model=model, wmode=wmode, words=words):
                options = {"q4+8x8l": {"x8": True}, "q8 4x4": {"q8_tile": 4}}.get(wmode, {})
                got = plan(
                    MODELS[model],
                    wmode.partition("+")[0].partition(" ")[0],
                    form=448 if words == 45 else 432,
                    **options,
                )
                self.assertEqual((got.size, got.flags, len(got.tensors)), (size, flags, n))
                self.assertEqual(got.file_len, size - 8)
                self.assertEqual((got.form, got.data_offset), (448 if words == 45 else 432, 4096))
                self.assertEqual(got.version, 3 if model == "moe" else 2)

    def test_qwen3_vl_2b_as_q4_has_2331316224_bytes_and_a_tag(self) -> None:
        got = plan(QWEN3_VL_2B, "q4", form=432)
        self.assertEqual((len(got.tensors), got.data_offset, got.file_len), (41, 4096, 2331316224))
        self.assertEqual((got.size, got.flags, got.version), (2331316232, 0x63, 2))

    def test_qwen3_vl_2b_as_dual_has_4159295496_bytes(self) -> None:
        got = plan(QWEN3_VL_2B, "dual", form=432)
        self.assertEqual((len(got.tensors), got.size, got.flags), (49, 4159295496, 0x63))

    def test_qwen3_30b_a3b_as_q4_has_17665601544_bytes(self) -> None:
        got = plan(QWEN3_30B_A3B, "q4")
        self.assertEqual((got.size, got.flags, got.version), (17665601544, 0x223, 3))

    def test_an_encrypted_file_is_24_bytes_longer_and_has_the_flag(self) -> None:
        plain, encrypted = plan(MINI_ARCH, "q4"), plan(MINI_ARCH, "q4", encrypted=True)
        self.assertEqual((plain.size, plain.flags), (11400, 0x23))
        self.assertEqual((encrypted.size, encrypted.flags), (11424, 0xA3))
        self.assertEqual(encrypted.file_len, plain.file_len)

    def test_the_directory_of_the_real_files_is_the_plan_entry_for_entry(self) -> None:
        files = sorted(FILES.glob("*.vqf"))
        self.assertEqual(len(files), 8)
        for path in files:
            with self.subTest(path.name):
                data = path.read_bytes()
                got = plan(MINI_ARCH, "q4", form=432 if "h432" in path.name else 448, encrypted="enc" in path.name)
                entries = [struct.unpack_from("<32sIII4xQQ", data, 448 + 64 * i) for i in range(14)]
                self.assertEqual(
                    [
                        (t.name.encode().ljust(32, b"\0"), t.qtype, t.rows, t.cols, offset, t.nbytes)
                        for t, offset in zip(got.tensors, got.offsets)
                    ],
                    entries,
                )
                self.assertEqual((got.size, got.file_len, got.data_offset), (len(data), 0x2C80, 0x1000))

    def test_tensors_start_at_multiples_of_64_with_less_than_64_bytes_between(self) -> None:
        for model in MODELS.values():
            got = plan(model, "dual")
            at = got.data_offset
            for t, offset in zip(got.tensors, got.offsets):
                self.assertEqual(offset % 64, 0)
                self.assertTrue(0 <= offset - at < 64, t)
                at = offset + t.nbytes
            self.assertTrue(0 <= got.file_len - at < 64)
            self.assertEqual(got.file_len % 64, 0)

    def test_sizes_are_rounded_up_to_64_each(self) -> None:
        self.assertEqual(geometry.place([1, 64, 0, 65, 63], 4096), ([4096, 4160, 4224, 4224, 4352], 4416))
        self.assertEqual(geometry.place([], 4096), ([], 4096))

    def test_tag_is_8_bytes_or_32_when_encrypted(self) -> None:
        self.assertEqual([geometry.tag_length(f) for f in (0, 0x7F, 0x80, 0x180, 0x100)], [8, 8, 32, 32, 8])

    def test_57_entries_fit_into_the_first_page_and_58_do_not(self) -> None:
        self.assertEqual(structs.align(448 + 64 * 57, structs.PAGE), 4096)
        self.assertEqual(structs.align(448 + 64 * 58, structs.PAGE), 8192)

    def test_what_the_engine_could_not_have_written_is_refused(self) -> None:
        dense, moe = MODELS["dense"], MODELS["moe"]
        for code, call in (
            ("usage.wmode.unsupported", lambda: plan(dense, "q5")),
            ("usage.wmode.unsupported", lambda: plan(dense, "q4+8x8l")),
            ("usage.form.unsupported", lambda: plan(dense, "q4", form=440)),
            ("usage.form.unsupported", lambda: plan(moe, "q4", form=432)),
            ("usage.x8.unsupported", lambda: plan(dense, "dual", x8=True)),
            ("usage.x8.unsupported", lambda: plan(dense, "q8", x8=True)),
            ("usage.x8.unsupported", lambda: plan(MODELS["odd-rows"], "q4", x8=True)),  # k_out 20, q_out 60
            (
                "usage.x8.unsupported",
                lambda: plan(dense._replace(head_dim=24, n_heads=1, n_kv_heads=1), "q4", x8=True),
            ),  # o: 24 cols
            ("usage.q8tile.unsupported", lambda: plan(dense, "q8", q8_tile=5)),
        ):
            with self.assertRaises(UsageError, msg=code) as caught:
                call()
            self.assertEqual(caught.exception.code, code)

    def test_an_arch_that_gate_5_refuses_has_no_plan(self) -> None:
        for word in ("dim", "n_layers", "n_heads", "head_dim", "ffn_dim", "vocab_size"):
            self.refused("vqf.arch.header", "arch." + word, MINI_ARCH._replace(**{word: 0}))

    def test_words_of_arch_have_32_bits(self) -> None:
        for word, value in (("dim", (1 << 32) + 32), ("dim", -32), ("vocab_size", 1 << 32), ("bos_id", 1 << 32),
                            ("vis_depth", (1 << 32) + 1), ("shared_experts", -1)):  # fmt: skip
            self.refused("vqf.arch.range", "arch." + word, MINI_ARCH._replace(**{word: value}))

    def test_heads_and_experts_that_contradict_one_another_have_no_plan(self) -> None:
        dense, moe = MODELS["dense"], MODELS["moe"]
        for heads, kv in ((4, 0), (4, 3), (2, 4), (3, 2)):
            self.refused("vqf.arch.shape", "arch.n_kv_heads", dense._replace(n_heads=heads, n_kv_heads=kv))
        for word, words in (
            ("ffn_dim", {"ffn_dim": 96}), ("ffn_dim", {"moe_ffn": 0}), ("top_k", {"top_k": 0}), ("top_k", {"top_k": 5}),
            ("ffn_dim", {"n_experts": 65536, "moe_ffn": 65537, "ffn_dim": 65536}),  # the product modulo 2^32
        ):  # fmt: skip
            self.refused("vqf.arch.shape", "arch." + word, moe._replace(**words))
        self.assertEqual(plan(moe._replace(top_k=4), "q4").size, plan(moe, "q4").size)

    def test_rows_and_columns_of_the_directory_have_32_bits(self) -> None:
        for tensor, words in (
            ("attn_norm", {"n_layers": 1 << 27}), ("q4_q", {"n_heads": 1 << 27, "n_kv_heads": 1}),
            ("q4_gate", {"n_layers": 1 << 12, "ffn_dim": 1 << 20}), ("q4_o", {"n_layers": 1 << 12, "n_heads": 1 << 15}),
        ):  # fmt: skip
            self.refused("vqf.plan.range", tensor, MINI_ARCH._replace(**words))
        last = plan(MINI_ARCH._replace(n_layers=(1 << 27) - 1), "q4")
        self.assertEqual(max(t.rows for t in last.tensors), (1 << 32) - 32)

    def test_offsets_have_64_bits(self) -> None:
        wide = MINI_ARCH._replace(dim=1 << 31, ffn_dim=1 << 31)
        self.assertGreater(plan(wide, "q4").size, 1 << 62)  # three matrices of 2^62 elements, 18 bytes for 32 of them
        self.refused("vqf.plan.range", None, wide, wmode="dual")

    def refused(self, code: str, field: str | None, words: structs.Arch, wmode: str = "q4") -> None:
        with self.assertRaises(FormatError, msg=code) as caught:
            plan(words, wmode)
        self.assertEqual((caught.exception.code, caught.exception.field), (code, field))


class Names(unittest.TestCase):
    def test_a_dual_file_with_vision_has_these_49_tensors_in_this_order(self) -> None:
        names = [t.name for t in plan(MODELS["vision"], "dual").tensors]
        self.assertEqual(
            names,
            ["token_embed", "final_norm", "attn_norm", "ffn_norm", "q_norm", "k_norm"]
            + ["q8_" + m for m in MATRICES]
            + ["q4_" + m for m in MATRICES]
            + VISION_NAMES,
        )

    def test_the_router_comes_behind_the_norms(self) -> None:
        names = [t.name for t in plan(MODELS["moe"], "q4").tensors]
        self.assertEqual(names[4:8], ["q_norm", "k_norm", "moe_router", "q4_q"])

    def test_without_has_q_norm_there_are_no_head_norms(self) -> None:
        names = [t.name for t in plan(arch(**{**DENSE, "has_q_norm": 0}), "q8").tensors]
        self.assertEqual(names[:5], ["token_embed", "final_norm", "attn_norm", "ffn_norm", "q8_q"])
        self.assertEqual(len(names), 12)

    def test_x8_copies_come_behind_q4_and_have_no_lm(self) -> None:
        names = [t.name for t in plan(MODELS["dense"], "q4", x8=True).tensors]
        self.assertEqual(names[-9:], ["q4_down", "q4_lm", *("x8_" + m for m in MATRICES[:-1])])

    def test_each_wmode_has_its_families(self) -> None:
        for wmode, prefixes in (
            ("dual", {"q8_", "q4_"}), ("q4", {"q4_"}), ("q8", {"q8_"}), ("q4i", {"q8_"}), ("g256", {"q8_"}),
        ):  # fmt: skip
            names = {t.name[:3] for t in plan(MODELS["dense"], wmode).tensors if t.name[1].isdigit()}
            self.assertEqual(names, prefixes, wmode)

    def test_directory_numbers_are_transposed_for_q_k_v_o_and_shapes_are_true(self) -> None:
        # dim 64, 2 layers, q_out 128, k_out 64, ff 96, V 64: name, qtype, rows, cols, shape, layered
        found = plan(MODELS["dense"], "dual").tensors
        for prefix, qtype in (("q8_", Q8_0), ("q4_", Q4_0)):
            table = (
                ("q", 128, 128, (128, 64), True),
                ("k", 128, 64, (64, 64), True),
                ("v", 128, 64, (64, 64), True),
                ("o", 256, 64, (64, 128), True),
                ("gate", 192, 64, (96, 64), True),
                ("up", 192, 64, (96, 64), True),
                ("down", 128, 96, (64, 96), True),
                ("lm", 64, 64, (64, 64), False),
            )
            for suffix, rows, cols, shape, layered in table:
                t = by_name(found)[prefix + suffix]
                with self.subTest(t.name):
                    self.assertEqual((t.qtype, t.rows, t.cols, t.shape), (qtype, rows, cols, shape))
                    self.assertEqual((t.layered, t.layers, t.experts), (layered, 2 if layered else 1, 0))
                    self.assertEqual(t.layer_bytes * t.layers, t.nbytes)

    def test_norms_and_embedding_have_these_numbers(self) -> None:
        table = (
            ("token_embed", F16, 64, 64, (64, 64), False, 8192),
            ("final_norm", F32, 64, 1, (64,), False, 256),
            ("attn_norm", F32, 128, 1, (64,), True, 512),
            ("ffn_norm", F32, 128, 1, (64,), True, 512),
            ("q_norm", F32, 64, 1, (32,), True, 256),
            ("k_norm", F32, 64, 1, (32,), True, 256),
        )
        for t, row in zip(plan(MODELS["dense"], "q4").tensors, table):
            self.assertEqual((t.name, t.qtype, t.rows, t.cols, t.shape, t.layered, t.nbytes), row)

    def test_token_embed_is_f32_where_the_flag_is_clear(self) -> None:
        t = tensors(MODELS["dense"], "4", 0)[0]
        self.assertEqual((t.name, t.qtype, t.nbytes), ("token_embed", F32, 16384))

    def test_vision_tensors_have_these_numbers(self) -> None:
        # vh 32, vf 40 (padded 64), patch 4, temporal 2, merge 2 (mi 128), out 64, max_pos 16, one deepstack merger
        cols = [
            3072, 1024, 1280, 2048, 3072, 32, 512, 96, 32, 32, 32, 32, 32, 40, 32, 32, 32, 16384, 128, 8192, 64, 128,
            128, 16384, 128, 8192, 64,
        ]  # fmt: skip
        found = plan(MODELS["vision"], "q4").tensors[-27:]
        self.assertEqual([(t.name, t.qtype, t.rows, t.cols) for t in found],
                         [(n, Q8_0 if i < 4 else F32, 1, c) for i, (n, c) in enumerate(zip(VISION_NAMES, cols))])  # fmt: skip
        self.assertEqual([t.nbytes for t in found[:4]], [3264, 1088, 1360, 2176])
        self.assertEqual([t.tile for t in found], [LINEAR] * 27)
        fc2 = by_name(found)["v_q8_fc2"]
        self.assertEqual((fc2.shape, fc2.matrix, fc2.pad_cols), ((32, 40), (32, 64), 24))

    def test_vision_layers_are_the_rows_of_the_directory(self) -> None:
        found = by_name(plan(QWEN3_VL_2B, "q4").tensors)
        for name, rows, cols, shape in (
            ("v_q8_qkv", 24, 3 * 1024 * 1024, (3072, 1024)), ("v_q8_fc2", 24, 1024 * 4096, (1024, 4096)),
            ("v_fc1_bias", 24, 4096, (4096,)), ("v_pos_embed", 1, 2304 * 1024, (2304, 1024)),
            ("v_patch_embed", 1, 1024 * 1536, (1024, 1536)), ("v_merger_f2w", 1, 4096 * 2048, (2048, 4096)),
            ("v_ds_f1w", 3, 4096 * 4096, (4096, 4096)), ("v_ds_f2b", 3, 2048, (2048,)),
        ):  # fmt: skip
            t = found[name]
            self.assertEqual((t.rows, t.cols, t.shape), (rows, cols, shape), name)
            self.assertEqual((t.layers, t.layered), (rows, rows > 1), name)

    def test_the_patch_embedding_has_three_channels_whatever_vis_in_chan_says(self) -> None:
        t = by_name(tensors(arch(**DENSE, **{**TOWER, "vis_in_chan": 4}), "4", structs.FLAG_VISION))["v_patch_embed"]
        self.assertEqual(t.cols, 32 * 3 * 2 * 4 * 4)

    def test_without_deepstack_its_six_tensors_are_there_with_no_bytes(self) -> None:
        got = plan(arch(**DENSE, **{**TOWER, "vis_ds_count": 0}), "q4")
        self.assertEqual([(t.name, t.rows, t.nbytes) for t in got.tensors[-6:]], [(n, 0, 0) for n in VISION_NAMES[-6:]])
        self.assertEqual(set(got.offsets[-6:]), {got.file_len})

    def test_experts_share_the_rows_of_gate_and_up_and_the_columns_of_down(self) -> None:
        found = by_name(plan(MODELS["moe"], "dual").tensors)
        router = found["moe_router"]
        self.assertEqual((router.qtype, router.rows, router.cols, router.shape), (F32, 8, 64, (4, 64)))
        for prefix in ("q8_", "q4_"):
            for suffix, rows, cols, shape, axis, matrix in (
                ("gate", 256, 64, (32, 64), 0, (128, 64)),
                ("up", 256, 64, (32, 64), 0, (128, 64)),
                ("down", 128, 128, (64, 32), 1, (64, 128)),
            ):
                t = found[prefix + suffix]
                self.assertEqual((t.rows, t.cols, t.shape, t.matrix), (rows, cols, shape, matrix), t.name)
                self.assertEqual((t.experts, t.expert_axis), (4, axis), t.name)
            self.assertEqual(found[prefix + "q"].experts, 0)

    def test_without_the_flag_or_with_words_that_contradict_ffn_dim_there_are_no_experts(self) -> None:
        for words, flags in ((MOE, 0x03), ({**MOE, "moe_ffn": 16}, 0x203), ({**MOE, "n_experts": 0}, 0x203)):
            found = by_name(tensors(arch(**words), "84", flags))
            for name, shape in (("q4_gate", (128, 64)), ("q8_down", (64, 128))):
                self.assertEqual((found[name].shape, found[name].experts), (shape, 0), (name, flags))
            self.assertEqual("moe_router" in found, flags == 0x203)


class Sizes(unittest.TestCase):
    def test_a_block_that_is_begun_counts_whole(self) -> None:
        for qtype, elements, nbytes in (
            (F32, 3, 12), (F16, 3, 6), (Q8_0, 32, 34), (Q8_0, 33, 68), (Q8_0, 0, 0), (Q4_0, 64, 36), (Q4_0, 65, 54),
            (Q4_8X8L, 1, 18), (Q8_0, 2**33, 2**28 * 34),
        ):  # fmt: skip
            self.assertEqual(geometry.stored_bytes(qtype, elements), nbytes)

    def test_a_layer_that_is_no_whole_number_of_blocks_has_no_next_one(self) -> None:
        t = Geometry("q8_q", Q8_0, 40, 3, (3, 20), 2)
        self.assertEqual(t.nbytes, 4 * 34)  # 120 elements of the whole tensor
        for call in (lambda: t.layer_bytes, t.segments, lambda: t.ranges(0)):
            with self.assertRaises(FormatError) as caught:
                call()
            self.assertEqual((caught.exception.code, caught.exception.field), ("vqf.layer.shape", "q8_q"))
        once = Geometry("q8_lm", Q8_0, 3, 20, (3, 20))
        self.assertEqual((once.layer_bytes, once.ranges()), (68, [(0, 68)]))


class Gates(unittest.TestCase):
    """Section 8: the gates that decide about tiles."""

    Q8, Q4, EMB = 0x01, 0x02, 0x20

    def test_each_condition_of_the_gates_clears_its_flags(self) -> None:
        both, q8, q4, none = self.Q8 | self.Q4 | self.EMB, self.Q8 | self.EMB, self.Q4 | self.EMB, self.EMB
        for change, flags in (
            ({}, both),
            ({"vocab_size": 66}, q8),  # V is asked for q4 alone
            ({"vocab_size": 68}, both),
            ({"n_heads": 1, "head_dim": 12, "n_kv_heads": 2}, q4),  # q_out 12
            ({"n_heads": 1, "head_dim": 16, "n_kv_heads": 1}, both),
            ({"n_heads": 4, "head_dim": 4, "n_kv_heads": 1}, q4),  # k_out 4
            ({"n_heads": 4, "head_dim": 2, "n_kv_heads": 1}, none),  # k_out 2
            ({"n_heads": 1, "head_dim": 2, "n_kv_heads": 4}, none),  # q_out 2
            ({"dim": 48}, none),
            ({"ffn_dim": 80}, none),
            ({"dim": 32, "ffn_dim": 32}, both),
        ):
            with self.subTest(change):
                self.assertEqual(geometry.layout_flags(arch(**{**DENSE, **change}), "dual"), flags)

    def test_flags_are_set_whether_or_not_the_family_is_there(self) -> None:
        self.assertEqual(plan(MODELS["dense"], "q4").flags & 3, 3)
        self.assertEqual(plan(MODELS["dense"], "q8").flags & 3, 3)

    def test_q4i_is_never_in_tiles(self) -> None:
        for q8_tile in (8, 4, 0):
            got = plan(MODELS["dense"], "q4i", q8_tile=q8_tile)
            self.assertEqual(got.flags & 0x19, 0x08)
            self.assertEqual({t.tile for t in got.tensors}, {LINEAR})

    def test_tiles_of_q8_can_be_switched_off_or_to_four_rows(self) -> None:
        for q8_tile, flag, tile in ((8, 1, Q8_8X8), (4, 0, Q8_4X4), (0, 0, LINEAR)):
            got = plan(MODELS["dense"], "q8", q8_tile=q8_tile)
            self.assertEqual(got.flags & 1, flag)
            self.assertEqual({t.tile for t in got.tensors if t.name.startswith("q8_")}, {tile})

    def test_tiles_of_four_rows_need_their_gate_too(self) -> None:
        change = {"n_heads": 1, "head_dim": 6, "n_kv_heads": 1}  # q_out and k_out 6
        got = plan(arch(**{**DENSE, **change}), "q8", q8_tile=4)
        self.assertEqual({t.tile for t in got.tensors}, {LINEAR})

    def test_a_reader_that_is_told_of_four_rows_asks_the_same_gate(self) -> None:
        four = 4  # a file without a flag, and its reader says: four rows
        odd = tensors(arch(**{**DENSE, "n_heads": 1, "head_dim": 6, "n_kv_heads": 2}), "8", 0x20, four)
        self.assertEqual({s.layout for t in odd for s in t.segments()}, {LINEAR})
        q4i = tensors(MODELS["dense"], "8", 0x28, four)
        self.assertEqual({s.layout for t in q4i for s in t.segments()}, {LINEAR})
        plain = by_name(tensors(MODELS["dense"], "8", 0x20, four))
        self.assertEqual({s.layout for s in plain["q8_gate"].segments()}, {Q8_4X4})

    def test_the_flag_of_eight_rows_goes_before_the_parameter(self) -> None:
        found = by_name(tensors(MODELS["dense"], "8", 0x21, 4))
        self.assertEqual(found["q8_q"].tile, Q8_8X8)

    def test_x8_copies_need_rows_in_eights_and_columns_in_thirty_twos(self) -> None:
        self.assertTrue(geometry.x8_fits(MODELS["dense"]))
        self.assertTrue(geometry.x8_fits(MODELS["tied-f16-vocab66"]))  # lm has no copy
        for change in (
            {"dim": 48}, {"ffn_dim": 80}, {"ffn_dim": 100}, {"n_heads": 1, "head_dim": 24},
            {"n_kv_heads": 1, "head_dim": 4, "n_heads": 8},
        ):  # fmt: skip
            self.assertFalse(geometry.x8_fits(arch(**{**DENSE, **change})), change)


class Segments(unittest.TestCase):
    """Section 8: lm goes by chunks of 16384 rows, and what doesn't fit its tiles stays linear."""

    def lm(self, vocab: int, qtype: int, flags: int, dim: int = 32) -> list[tuple]:
        name = "q8_lm" if qtype == Q8_0 else "q4_lm"
        words = {**DENSE, "vocab_size": vocab, "dim": dim}
        return [tuple(s) for s in by_name(tensors(arch(**words), "84", flags))[name].segments()]

    def test_a_short_last_chunk_that_is_no_multiple_of_r_stays_linear(self) -> None:
        chunk8, chunk4 = 16384 * 34, 16384 * 18
        self.assertEqual(
            self.lm(2 * 16384 + 4, Q8_0, 3),
            [
                (0, 16384, Q8_8X8, 0, chunk8),
                (16384, 16384, Q8_8X8, chunk8, chunk8),
                (32768, 4, LINEAR, 2 * chunk8, 136),
            ],
        )
        self.assertEqual(
            self.lm(2 * 16384 + 4, Q4_0, 3),
            [(0, 16384, Q4_4X4, 0, chunk4), (16384, 16384, Q4_4X4, chunk4, chunk4), (32768, 4, Q4_4X4, 2 * chunk4, 72)],
        )
        self.assertEqual(self.lm(16384 + 6, Q4_0, 2), [(0, 16384, Q4_4X4, 0, chunk4), (16384, 6, LINEAR, chunk4, 108)])

    def test_an_lm_of_exactly_one_chunk_is_one_segment(self) -> None:
        self.assertEqual(self.lm(16384, Q8_0, 1, dim=64), [(0, 16384, Q8_8X8, 0, 16384 * 68)])
        self.assertEqual(len(self.lm(16385, Q8_0, 1)), 2)

    def test_the_lm_of_a_vocabulary_of_66_stays_linear_under_the_flag(self) -> None:
        self.assertEqual(self.lm(66, Q8_0, 1), [(0, 66, LINEAR, 0, 66 * 34)])

    def test_other_matrices_are_not_cut_into_chunks(self) -> None:
        words = {**DENSE, "ffn_dim": 32768, "vocab_size": 32768}
        found = by_name(tensors(arch(**words), "84", 0x23))
        for name in ("q8_gate", "q4_gate", "token_embed"):
            self.assertEqual([(s.row, s.rows) for s in found[name].segments()], [(0, 32768)])

    def test_a_matrix_whose_columns_are_no_multiple_of_32_stays_linear_under_the_flag(self) -> None:
        found = by_name(tensors(MODELS["odd-rows"], "4", 0x22))
        self.assertEqual([s.layout for s in found["q4_o"].segments()], [LINEAR])  # [64, 60]
        self.assertEqual([s.layout for s in found["q4_q"].segments()], [Q4_4X4])  # [60, 64]
        self.assertEqual([s.layout for s in found["q4_k"].segments()], [Q4_4X4])  # [20, 64]


# ---- section 8, byte by byte: which elements does a byte serve?

BLOCK = {Q8_0: 34, Q4_0: 18, Q4_8X8L: 18}


def linear(qtype: int, rows: int, cols: int) -> list[list[int]]:
    """For every byte of a matrix in plain rows: the flat indices of the elements that need it."""
    n = rows * cols
    if qtype in (F32, F16):
        return [[byte // (4 if qtype == F32 else 2)] for byte in range(n * (4 if qtype == F32 else 2))]
    found: list[list[int]] = []
    for first in range(0, n, 32):
        block = list(range(first, min(first + 32, n)))
        found += [block, block]  # d
        if qtype == Q8_0:
            found += [[e for e in (first + j,) if e < n] for j in range(32)]
        else:
            found += [[e for e in (first + j, first + 16 + j) if e < n] for j in range(16)]
    return found


def tiled(block: int, r: int, chunk: int, rows: int, cols: int) -> list[int]:
    """For every byte of a matrix in tiles of r rows: which byte of the plain rows lies there.

    A tile: the d of its r rows, then chunks: chunk i is bytes chunk*(i//r) .. of the codes of row i % r.
    """
    nb = cols // 32
    found = []
    for group in range(rows // r):
        for b in range(nb):
            start = [((group * r + row) * nb + b) * block for row in range(r)]
            found += [start[row] + i for row in range(r) for i in (0, 1)]
            for i in range((block - 2) * r // chunk):
                found += [start[i % r] + 2 + chunk * (i // r) + j for j in range(chunk)]
    return found


TILES = {  # layout: qtype, rows, bytes of a chunk, bytes of a tile
    "q4 4x4": (Q4_0, 4, 4, 72),
    "q8 8x8": (Q8_0, 8, 4, 272),
    "q8 4x4": (Q8_0, 4, 4, 136),
    "q4 8x8l": (Q4_8X8L, 8, 8, 144),
}


def units(qtype: int, layout: str, rows: int, cols: int) -> list[tuple[int, int, int]]:
    """The blocks or tiles of a matrix: offset, length, and as a bit set the elements that need any of its bytes.

    "q4 8x8l of 4x4" is what the converter makes where Q4_4X4 is on: tiles of tiles, read as if they were rows. A tile of
    it holds pieces of several columns, so a whole row of tiles is taken for the unit.
    """
    plain = linear(qtype, rows, cols)
    if layout == "linear":
        size, serves = {F32: 4, F16: 2, **BLOCK}[qtype], plain
    else:
        outer, _, inner = layout.partition(" of ")
        _, r, chunk, size = TILES[outer]
        if inner:
            plain = [plain[i] for i in tiled(18, 4, 4, rows, cols)]
            size *= cols // 32
        serves = [plain[i] for i in tiled(BLOCK[qtype], r, chunk, rows, cols)]
    found = []
    for start in range(0, len(serves), size):
        elements = 0
        for byte in serves[start : start + size]:
            for e in byte:
                elements |= 1 << e
        found.append((start, size, elements))
    return found


def selection(cols: int, r0: int, r1: int, c0: int, c1: int) -> int:
    """The elements of some rows and columns, as a bit set."""
    row = ((1 << (c1 - c0)) - 1) << c0
    return sum(row << (r * cols) for r in range(r0, r1))


def wanted(blocks: list[tuple[int, int, int]], elements: int, base: int) -> list[tuple[int, int]]:
    """The ranges of the units that any of these elements needs, neighbours joined."""
    found: list[tuple[int, int]] = []
    for start, length, served in blocks:
        if served & elements:
            if found and sum(found[-1]) == base + start:
                found[-1] = (found[-1][0], found[-1][1] + length)
            else:
                found.append((base + start, length))
    return found


def bounds(n: int) -> list[int]:
    """Interesting bounds of n rows or columns."""
    return sorted({b for b in (0, 1, 3, 4, 5, 8, 16, 31, 32, 33, 64, n - 1, n) if 0 <= b <= n})


class Ranges(unittest.TestCase):
    """`ranges` against the byte model above: exactly the blocks or tiles that hold what was asked for."""

    def compare(self, t: Geometry, layout: str, layers: tuple[int, ...] = (0, 1)) -> None:
        rows, cols = t.matrix
        blocks = units(t.qtype, layout, rows, cols)
        self.compare_units(t, blocks, layers)

    def compare_units(self, t: Geometry, blocks: list[tuple[int, int, int]], layers: tuple[int, ...]) -> None:
        rows, cols = t.matrix
        size = sum(blocks[-1][:2])
        row_pairs = [(a, b) for a in bounds(rows) for b in bounds(rows) if a <= b]
        col_pairs = [(a, b) for a in bounds(cols) for b in bounds(cols) if a <= b]
        for layer in layers:
            self.assertEqual(t.ranges(layer), [(layer * size, size)])
            for r0, r1 in row_pairs:
                self.assertEqual(
                    t.ranges(layer, rows=(r0, r1)),
                    wanted(blocks, selection(cols, r0, r1, 0, cols), layer * size),
                    (t, layer, r0, r1),
                )
        layer = layers[-1]
        for r0, r1 in row_pairs:
            for c0, c1 in col_pairs:
                got = t.ranges(layer, rows=(r0, r1), cols=(c0, c1))
                want = wanted(blocks, selection(cols, r0, r1, c0, c1), layer * size)
                if got != want:
                    self.fail("%r rows %d:%d cols %d:%d: %r, expected %r" % (t, r0, r1, c0, c1, got, want))

    def test_the_tiles_of_the_model_have_the_sizes_of_the_spec(self) -> None:
        for qtype, r, chunk, size in TILES.values():
            self.assertEqual(sorted(tiled(BLOCK[qtype], r, chunk, r, 32)), list(range(size)))

    def test_rows_of_floats(self) -> None:
        self.compare(Geometry("t", F32, 10, 7, (5, 7), 2), "linear")
        self.compare(Geometry("t", F16, 10, 7, (5, 7), 2), "linear")

    def test_linear_blocks(self) -> None:
        self.compare(Geometry("t", Q8_0, 20, 64, (10, 64), 2), "linear")
        self.compare(Geometry("t", Q4_0, 20, 64, (10, 64), 2), "linear")

    def test_linear_blocks_that_cross_rows(self) -> None:
        self.compare(Geometry("t", Q8_0, 16, 36, (8, 36), 2), "linear")
        self.compare(Geometry("t", Q4_0, 16, 20, (8, 20), 2), "linear")
        self.compare(Geometry("t", Q4_0, 5, 20, (5, 20)), "linear", (0,))  # the last block is not full

    def test_q4_tiles_of_four_rows(self) -> None:
        self.compare(Geometry("t", Q4_0, 24, 96, (12, 96), 2, tile=Q4_4X4), "q4 4x4")

    def test_q8_tiles_of_eight_rows(self) -> None:
        self.compare(Geometry("t", Q8_0, 32, 96, (16, 96), 2, tile=Q8_8X8), "q8 8x8")

    def test_q8_tiles_of_four_rows(self) -> None:
        self.compare(Geometry("t", Q8_0, 24, 96, (12, 96), 2, tile=Q8_4X4), "q8 4x4")

    def test_a_matrix_that_does_not_fit_its_tiles_is_linear(self) -> None:
        self.compare(Geometry("t", Q8_0, 24, 64, (12, 64), 2, tile=Q8_8X8), "linear")  # rows
        self.compare(Geometry("t", Q8_0, 32, 36, (16, 36), 2, tile=Q8_8X8), "linear")  # cols
        self.compare(Geometry("t", Q4_0, 12, 64, (6, 64), 2, tile=Q4_4X4), "linear")
        self.compare(Geometry("t", Q4_0, 16, 20, (8, 20), 2, tile=Q4_4X4), "linear")

    @thorough
    def test_chunks_of_an_lm_follow_one_another_each_in_its_own_layout(self) -> None:
        for qtype, tile, layout, rows in (
            (Q8_0, Q8_8X8, "q8 8x8", 38), (Q8_0, Q8_4X4, "q8 4x4", 36), (Q4_0, Q4_4X4, "q4 4x4", 22),
            (Q8_0, Q8_8X8, "q8 8x8", 24),
        ):  # fmt: skip
            blocks = []
            for row in range(0, rows, 16):
                n = min(16, rows - row)
                fits = n % TILES[layout][1] == 0
                at = row * 64 // 32 * BLOCK[qtype]
                for start, length, elements in units(qtype, layout if fits else "linear", n, 64):
                    blocks.append((at + start, length, elements << (row * 64)))
            with self.subTest(layout, rows=rows):
                self.compare_units(Geometry("t", qtype, rows, 64, (rows, 64), tile=tile, chunk=16), blocks, (0,))

    # dim 96, q_out 32, k_out 32, ff 160: three and five blocks a row
    X8 = arch(**{**DENSE, "dim": 96, "n_heads": 1, "n_kv_heads": 1, "ffn_dim": 160})

    def test_x8_tiles_of_eight_rows(self) -> None:
        found = by_name(tensors(self.X8, "4x", 0x04))
        self.compare(found["x8_q"], "q4 8x8l")
        self.compare(found["x8_o"], "q4 8x8l")

    def test_x8_tiles_that_were_made_of_q4_tiles_take_the_bytes_through_both(self) -> None:
        found = by_name(tensors(self.X8, "4x", 0x06))
        for name in ("x8_q", "x8_o"):
            with self.subTest(name):
                self.compare(found[name], "q4 8x8l of 4x4")

    def test_experts_own_rows_of_gate_and_up_and_columns_of_down(self) -> None:
        # 3 experts of 32 (down of an expert: one block wide) in 2 layers, dim 32
        words = {**MOE, "dim": 32, "n_experts": 3, "moe_ffn": 32, "ffn_dim": 96, "n_heads": 1, "n_kv_heads": 1}
        for flags, layouts in (
            (0x200, {"q8_": "linear", "q4_": "linear"}),
            (0x203, {"q8_": "q8 8x8", "q4_": "q4 4x4"}),
            (0x204, {"x8_": "q4 8x8l"}),
            (0x206, {"x8_": "q4 8x8l of 4x4"}),
        ):
            found = by_name(tensors(arch(**words), "84x", flags))
            for prefix, layout in layouts.items():
                for suffix in ("gate", "up", "down"):
                    t = found[prefix + suffix]
                    with self.subTest(t.name, layout=layout):
                        self.experts(t, layout, 3)

    def test_experts_whose_columns_are_no_whole_blocks_share_them(self) -> None:
        # 4 experts of 24: columns 24:48 of down take blocks 0 and 1
        words = {**MOE, "dim": 32, "n_experts": 4, "moe_ffn": 24, "ffn_dim": 96, "n_heads": 1, "n_kv_heads": 1}
        for name, layout in (("q8_down", "q8 8x8"), ("q4_down", "q4 4x4"), ("q8_up", "q8 8x8"), ("q4_up", "q4 4x4")):
            self.experts(by_name(tensors(arch(**words), "84", 0x203))[name], layout, 4)

    def experts(self, t: Geometry, layout: str, n: int) -> None:
        rows, cols = t.matrix
        out, width = t.shape
        blocks = units(t.qtype, layout, rows, cols)
        size = sum(blocks[-1][:2])
        down = t.name.endswith("down")
        for e in range(n):
            dr, dc = (0, e * width) if down else (e * out, 0)
            for r0, r1, c0, c1 in (
                (0, out, 0, width),
                (3, 9, 0, width),
                (0, out, 7, width),
                (8, 9, 5, 6),
                (4, 4, 0, 1),
            ):
                got = t.ranges(1, rows=(r0, r1), cols=(c0, c1), expert=e)
                want = wanted(blocks, selection(cols, r0 + dr, r1 + dr, c0 + dc, c1 + dc), size)
                self.assertEqual(got, want, (t, e, r0, r1, c0, c1))
            self.assertEqual(t.ranges(1, expert=e), t.ranges(1, rows=(0, out), cols=(0, width), expert=e))

    def test_one_expert_of_qwen3_30b_a3b_is_read_like_this(self) -> None:
        found = by_name(plan(QWEN3_30B_A3B, "q4").tensors)
        # layer: 98304 * 2048 / 32 * 18 = 113246208 bytes; expert: 768 rows = 884736 bytes
        self.assertEqual(found["q4_gate"].ranges(5, expert=7), [(5 * 113246208 + 7 * 884736, 884736)])
        self.assertEqual(found["q4_up"].ranges(47, expert=127), [(48 * 113246208 - 884736, 884736)])
        down = found["q4_down"].ranges(5, expert=7)  # 512 groups of 4 rows, in each 24 of 3072 tiles of 72 bytes
        self.assertEqual(down, [(5 * 113246208 + g * 3072 * 72 + 7 * 24 * 72, 24 * 72) for g in range(512)])

    def test_rows_on_both_sides_of_an_lm_chunk_of_16384(self) -> None:
        found = by_name(tensors(arch(**{**DENSE, "vocab_size": 16384 + 6}), "84", 3))
        # q8: rows 16383 and 16384 are in the last tile row (of 8) of one chunk and in a linear row of the next
        self.assertEqual(found["q8_lm"].ranges(rows=(16383, 16385)), [(16376 * 68, 9 * 68)])
        self.assertEqual(
            found["q8_lm"].ranges(rows=(16383, 16385), cols=(0, 32)), [(16376 * 68, 272), (16384 * 68, 34)]
        )
        self.assertEqual(found["q4_lm"].ranges(rows=(16386, 16388)), [(16386 * 36, 2 * 36)])
        self.assertEqual(found["q4_lm"].ranges(rows=(16379, 16380), cols=(40, 41)), [(16376 * 36 + 72, 72)])

    def test_padding_columns_of_vision_fc2_are_part_of_its_rows(self) -> None:
        t = by_name(plan(MODELS["vision"], "q4").tensors)["v_q8_fc2"]  # [32, 40] stored as [32, 64]
        self.assertEqual(t.ranges(0, rows=(1, 2)), [(68, 68)])
        self.assertEqual(t.ranges(0, rows=(1, 3), cols=(0, 32)), [(68, 34), (136, 34)])
        self.assertEqual(t.ranges(0, rows=(1, 2), cols=(39, 64)), [(102, 34)])

    def test_a_vector_is_one_row(self) -> None:
        t = by_name(plan(MODELS["dense"], "q4").tensors)["attn_norm"]
        self.assertEqual(t.ranges(1), [(256, 256)])
        self.assertEqual(t.ranges(1, rows=(0, 1), cols=(3, 5)), [(256 + 12, 8)])

    def test_no_rows_and_no_columns_are_no_bytes(self) -> None:
        t = Geometry("t", Q8_0, 16, 64, (8, 64), 2, tile=Q8_8X8)
        for rows, cols in (((3, 3), None), (None, (64, 64)), ((8, 8), (0, 64)), ((0, 0), (0, 0))):
            self.assertEqual(t.ranges(1, rows, cols), [])

    def test_what_is_not_there_is_the_caller_s_fault(self) -> None:
        found = by_name(plan(MODELS["moe"], "q4").tensors)
        gate, q, embed = found["q4_gate"], found["q4_q"], found["token_embed"]  # [128, 64], [128, 64], [64, 64]
        empty = by_name(plan(arch(**DENSE, **{**TOWER, "vis_ds_count": 0}), "q4").tensors)["v_ds_f1w"]
        for code, call in (
            ("usage.layer.range", lambda: gate.ranges(2)),
            ("usage.layer.range", lambda: gate.ranges(-1)),
            ("usage.layer.range", lambda: embed.ranges(1)),
            ("usage.layer.range", lambda: empty.ranges(0)),
            ("usage.expert.range", lambda: gate.ranges(0, expert=4)),
            ("usage.expert.range", lambda: gate.ranges(0, expert=-1)),
            ("usage.expert.range", lambda: q.ranges(0, expert=0)),
            ("usage.expert.range", lambda: embed.ranges(0, expert=0)),
            ("usage.expert.range", lambda: found["attn_norm"].ranges(0, expert=0)),
            ("usage.rows.range", lambda: gate.ranges(0, rows=(0, 129))),
            ("usage.rows.range", lambda: gate.ranges(0, rows=(0, 33), expert=0)),
            ("usage.rows.range", lambda: gate.ranges(0, rows=(-1, 3))),
            ("usage.rows.range", lambda: gate.ranges(0, rows=(3, 2))),
            ("usage.rows.range", lambda: found["attn_norm"].ranges(0, rows=(0, 2))),
            ("usage.cols.range", lambda: gate.ranges(0, cols=(0, 65))),
            ("usage.cols.range", lambda: gate.ranges(0, cols=(-32, 32))),
            ("usage.cols.range", lambda: found["q4_down"].ranges(0, cols=(0, 33), expert=3)),
        ):
            with self.assertRaises(UsageError, msg=code) as caught:
                call()
            self.assertEqual(caught.exception.code, code)


class BlockSpans(unittest.TestCase):
    """`block_spans` gives the bytes of one Q8_0 block in their order, scale first, out of a segment."""

    def compare(self, tile: str, source: list[int], rows: int, cols: int) -> None:
        t = Geometry("t", Q8_0, rows, cols, (rows, cols), tile=tile)
        segment = t.segments()[0]
        place = {byte: at for at, byte in enumerate(source)}
        for block in range(rows * cols // 32):
            got = [at + i for at, n in t.block_spans(segment, block) for i in range(n)]
            self.assertEqual(got, [place[34 * block + i] for i in range(34)], (tile, block))

    def test_a_linear_block_is_one_piece(self) -> None:
        self.compare(LINEAR, list(range(12 * 68)), 12, 64)
        t = Geometry("t", Q8_0, 8, 36, (8, 36))  # blocks that cross rows
        self.assertEqual(t.block_spans(t.segments()[0], 8), [(272, 34)])

    def test_a_block_in_a_tile_of_eight_rows_is_a_scale_and_eight_pieces(self) -> None:
        self.compare(Q8_8X8, tiled(34, 8, 4, 16, 96), 16, 96)

    def test_a_block_in_a_tile_of_four_rows_is_a_scale_and_eight_pieces(self) -> None:
        self.compare(Q8_4X4, tiled(34, 4, 4, 12, 96), 12, 96)

    def test_a_matrix_that_does_not_fit_its_tiles_has_linear_blocks(self) -> None:
        self.compare(Q8_8X8, list(range(12 * 68)), 12, 64)

    def test_spans_are_relative_to_the_chunk_of_an_lm(self) -> None:
        t = Geometry("t", Q8_0, 24, 32, (24, 32), tile=Q8_8X8, chunk=16)
        first, last = t.segments()
        self.assertEqual((last.row, last.offset), (16, 16 * 34))
        self.assertEqual(t.block_spans(last, 0), t.block_spans(first, 0))
        self.assertEqual(t.block_spans(first, 1)[:2], [(2, 2), (16 + 4, 4)])


if __name__ == "__main__":
    unittest.main()

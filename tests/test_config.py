"""config.json to arch words, a file's arch against a config.json, and the plan that follows from a config alone.

Rules and numbers are those of spec section 11; the sizes of plans are those of real files (section 6). Words are compared
by name and all of them, so that no word changes unseen.
"""

from __future__ import annotations

import json
import os
import struct
import tempfile
import unittest

from tests import models, samples
from tests.samples import FILES, WORD, patch, real
from tests.tools import put, run_main
from vqfref.errors import FormatError, VqfrefError
from vqfref.source import Source
from vqfref.vqf.config import arch_from_config, compare_arch
from vqfref.vqf.convert import read_config
from vqfref.vqf.reader import VqfFile

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# A config without anything to remark on, and the words that it becomes.
PLAIN: dict[str, Any] = {
    "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
    "intermediate_size": 96, "vocab_size": 50, "max_position_embeddings": 4096, "bos_token_id": 7, "eos_token_id": 8,
    "rope_theta": 10000.0, "rms_norm_eps": 0.5, "head_dim": 24, "vision_start_token_id": 11,
    "vision_end_token_id": 12, "image_token_id": 13, "video_token_id": 14,
}  # fmt: skip
WORDS: dict[str, Any] = {
    "dim": 64, "n_layers": 2, "n_heads": 4, "n_kv_heads": 2, "head_dim": 24, "ffn_dim": 96, "vocab_size": 50,
    "max_seq_len": 4096, "rope_theta": 10000.0, "norm_eps": 0.5, "bos_id": 7, "eos_id": 8, "has_q_norm": 0,
    "has_mrope": 0, "head_dim_full": 24, "kv_lora_rank": 0, "has_vision": 0, "vis_depth": 0, "vis_hidden": 0,
    "vis_heads": 0, "vis_ffn": 0, "vis_patch": 0, "vis_temporal": 0, "vis_merge": 0, "vis_out_dim": 0,
    "vis_in_chan": 0, "vis_max_pos": 0, "vis_ds_count": 0, "mrope_n_sec": 0, "vis_ds_idx": (0, 0, 0, 0),
    "mrope_sections": (0, 0, 0, 0), "vision_start_id": 11, "vision_end_id": 12, "image_token_id": 13,
    "video_token_id": 14, "n_experts": 0, "moe_ffn": 0, "top_k": 0, "shared_experts": 0,
}  # fmt: skip
TOWER = {
    "depth": 3, "hidden_size": 16, "num_heads": 2, "intermediate_size": 40, "patch_size": 4, "temporal_patch_size": 2,
    "spatial_merge_size": 5, "out_hidden_size": 66, "in_channels": 6, "num_position_embeddings": 9,
    "deepstack_visual_indexes": [0, 2],
}  # fmt: skip
TOWER_WORDS = {
    "has_vision": 1, "vis_depth": 3, "vis_hidden": 16, "vis_heads": 2, "vis_ffn": 40, "vis_patch": 4,
    "vis_temporal": 2, "vis_merge": 5, "vis_out_dim": 66, "vis_in_chan": 6, "vis_max_pos": 9, "vis_ds_count": 2,
    "vis_ds_idx": (0, 2, 0, 0),
}  # fmt: skip
MOE = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32, "num_shared_experts": 1}
MOE_WORDS = {"n_experts": 4, "top_k": 2, "moe_ffn": 32, "shared_experts": 1, "ffn_dim": 128}
ABSENT = object()


def text(**changes: Any) -> bytes:
    """PLAIN as JSON with some keys changed, or taken away."""
    root = {**PLAIN, **changes}
    return json.dumps({k: v for k, v in root.items() if v is not ABSENT}).encode()


class Case(unittest.TestCase):
    def check(self, data: bytes, remarked: tuple[str, ...] = (), names: Any = (), **words: Any) -> dict[str, list[str]]:
        """Every word is that of WORDS but for these, and there are remarks about these words alone."""
        config = arch_from_config(data, names)
        self.assertEqual(config.arch._asdict(), {**WORDS, **words})
        self.assertEqual(sorted({word for word, _ in config.remarks}), sorted(remarked), config.remarks)
        remarks: dict[str, list[str]] = {}
        for word, sentence in config.remarks:
            remarks.setdefault(word, []).append(sentence)
        return remarks

    def refused(self, code: str, field: str | None, data: bytes) -> FormatError:
        with self.assertRaises(FormatError) as caught:
            arch_from_config(data, (), path="the/config.json")
        error = caught.exception
        self.assertEqual((error.code, error.field, error.path), (code, field, "the/config.json"), error)
        return error


class Keys(Case):
    def test_each_key_becomes_its_word(self) -> None:
        self.check(text())

    def test_the_text_fields_may_be_nested_in_text_config(self) -> None:
        nested = {k: v for k, v in PLAIN.items() if "token_id" not in k or k[1:2] == "o"}  # bos and eos too
        outer = {k: v for k, v in PLAIN.items() if k not in nested}
        self.check(json.dumps({**outer, "text_config": nested}).encode())

    def test_the_nested_value_goes_before_that_at_top_level(self) -> None:
        self.check(json.dumps({"text_config": {**PLAIN, "vocab_size": 51}, **PLAIN}).encode(), vocab_size=51)
        data = json.dumps({**PLAIN, "text_config": {**PLAIN, "vocab_size": 51}}).encode()
        self.check(data, ("vocab_size",), vocab_size=51)  # the engine would find 50 first

    def test_a_text_config_that_is_no_object_is_none(self) -> None:
        for value in (None, [], 5):
            self.check(text(text_config=value))

    def test_token_ids_may_lie_inside_or_outside(self) -> None:
        self.check(json.dumps({"text_config": PLAIN}).encode())

    def test_the_sequence_length_is_clamped_to_8192(self) -> None:
        self.check(text(max_position_embeddings=8192), max_seq_len=8192)
        for value in (8193, 262144, 1 << 40):
            remarks = self.check(text(max_position_embeddings=value), ("max_seq_len",), max_seq_len=8192)
            self.assertIn(str(value), remarks["max_seq_len"][0])

    def test_head_dim_is_hidden_size_over_heads_where_it_is_absent(self) -> None:
        for value in (ABSENT, None, 0):
            self.check(text(head_dim=value), ("head_dim",), head_dim=16, head_dim_full=16)
        self.check(text(head_dim=ABSENT, hidden_size=67), ("head_dim",), dim=67, head_dim=16, head_dim_full=16)

    def test_a_head_must_have_a_width(self) -> None:
        with self.assertRaises(FormatError) as caught:
            arch_from_config(text(head_dim=ABSENT, hidden_size=3), ())
        self.assertEqual(caught.exception.field, "head_dim")

    def test_there_are_as_many_kv_heads_as_heads_where_the_key_is_absent(self) -> None:
        for value in (ABSENT, None):
            self.check(text(num_key_value_heads=value), ("n_kv_heads",), n_kv_heads=4)

    def test_what_is_absent_or_null_is_0_with_a_remark(self) -> None:
        for key, word in (
            ("max_position_embeddings", "max_seq_len"), ("bos_token_id", "bos_id"), ("eos_token_id", "eos_id"),
            ("rms_norm_eps", "norm_eps"), ("rope_theta", "rope_theta"),
        ):  # fmt: skip
            for value in (ABSENT, None):
                self.check(text(**{key: value}), (word,), **{word: 0})

    def test_token_ids_of_pictures_are_0_where_they_are_absent(self) -> None:
        keys = ("vision_start_token_id", "vision_end_token_id", "image_token_id", "video_token_id")
        self.check(text(**dict.fromkeys(keys, ABSENT)), vision_start_id=0, vision_end_id=0, image_token_id=0,
                   video_token_id=0)  # fmt: skip

    def test_lists_texts_and_truth_values_are_0_with_a_remark_that_shows_them(self) -> None:
        for value, shown in (([151645, 151643], "151645"), ("8", "'8'"), (True, "True"), ({}, "{}")):
            for key, word in (("eos_token_id", "eos_id"), ("image_token_id", "image_token_id")):
                remarks = self.check(text(**{key: value}), (word,), **{word: 0})
                self.assertIn(shown, remarks[word][0])

    def test_a_whole_number_may_be_written_as_a_float(self) -> None:
        data = text().replace(b'"hidden_size": 64', b'"hidden_size": 6.4e1')
        self.assertEqual(arch_from_config(data, ()).arch.dim, 64)
        self.check(text(rope_theta=10000))

    def test_the_fraction_of_a_number_is_cut_off_with_a_remark(self) -> None:
        remarks = self.check(text(bos_token_id=7.9), ("bos_id",), bos_id=7)
        self.assertIn("7.9", remarks["bos_id"][0])


class Required(Case):
    def test_a_required_key_that_is_absent_null_0_or_no_number_is_an_error(self) -> None:
        for key in ("hidden_size", "num_hidden_layers", "num_attention_heads", "vocab_size", "intermediate_size"):
            for value in (ABSENT, None, 0, [64], "64"):
                error = self.refused("config.key.missing", key, text(**{key: value}))
                self.assertIn(key, error.message)

    def test_experts_do_without_intermediate_size(self) -> None:
        self.check(text(**MOE, intermediate_size=ABSENT), **MOE_WORDS)
        self.refused("config.key.missing", "vocab_size", text(**MOE, vocab_size=ABSENT))

    def test_numbers_that_their_word_cannot_hold_are_errors(self) -> None:
        for word, changes in (
            ("dim", {"hidden_size": 1 << 32}), ("n_layers", {"num_hidden_layers": -2}),
            ("vocab_size", {"vocab_size": 1e300}), ("bos_id", {"bos_token_id": -1}),
            ("image_token_id", {"image_token_id": 1 << 64}), ("eos_id", {"eos_token_id": 10**300}),
            ("ffn_dim", {**MOE, "num_experts": 1 << 16, "moe_intermediate_size": 1 << 16}),
            ("vis_patch", {"vision_config": {**TOWER, "patch_size": -4}}),
            ("vis_ds_idx", {"vision_config": {**TOWER, "deepstack_visual_indexes": [1, 1 << 31]}}),
            ("mrope_sections", {"rope_scaling": {"mrope_section": [-(1 << 31) - 1]}}),
            ("rope_theta", {"rope_theta": 1e39}), ("rope_theta", {"rope_theta": 10**400}),
            ("norm_eps", {"rms_norm_eps": 1e300}),
            ("rope_theta", {"rope_theta": ABSENT, "rope_parameters": {"rope_theta": -1e39}}),
        ):  # fmt: skip
            self.refused("config.number.range", word, text(**changes))

    def test_the_largest_numbers_fit(self) -> None:
        self.check(text(bos_token_id=(1 << 32) - 1, rope_theta=3e38), bos_id=(1 << 32) - 1, rope_theta=3e38)

    def test_what_is_no_json_object_is_an_error(self) -> None:
        for code, data in (
            ("config.root.json", b"[]"), ("config.root.json", b"7"), ("config.root.json", b"null"),
            ("json.syntax.json", b""), ("json.syntax.json", b"{'a': 1}"), ("json.syntax.json", text() + b"}"),
            ("json.syntax.json", text()[:-1]), ("json.syntax.json", b'{"rope_theta": NaN}'),
            ("json.syntax.json", b"\xef\xbb\xbf{}"), ("json.utf8.json", b'{"\xff": 1}'),
        ):  # fmt: skip
            self.refused(code, None, data)

    def test_a_key_that_is_there_twice_is_an_error(self) -> None:
        for key in ("vocab_size", "vocab\\u005fsize"):
            data = text()[:-1] + b', "%s": 50}' % key.encode()
            self.refused("json.key.duplicate", "vocab_size", data)


class Rope(Case):
    def test_theta_may_sit_in_rope_parameters_or_rope_scaling(self) -> None:
        for place in ("rope_parameters", "rope_scaling"):
            for direct in (ABSENT, None):
                data = text(rope_theta=direct, **{place: {"rope_theta": 5e6}})
                remarks = self.check(data, ("rope_theta",), rope_theta=5e6)
                self.assertIn(place, remarks["rope_theta"][0])

    def test_theta_of_its_own_goes_before_both(self) -> None:
        self.check(text(rope_scaling={"rope_theta": 10000.0}, rope_parameters={"rope_theta": 10000}))
        data = text(rope_parameters={"rope_theta": 5.0})
        self.assertEqual(arch_from_config(data, ()).arch.rope_theta, 10000.0)

    def test_rope_may_be_null_or_a_text(self) -> None:
        for value in (None, "default", []):
            self.check(text(rope_scaling=value, rope_parameters=value))

    def test_sections_come_with_their_number(self) -> None:
        for place in ("rope_parameters", "rope_scaling"):
            for sections, count, words in (
                ([24, 20, 20], 3, (24, 20, 20, 0)), ([1, 2, 3, 4], 4, (1, 2, 3, 4)), ([], 0, (0, 0, 0, 0)),
                ([-1], 1, (-1, 0, 0, 0)),
            ):  # fmt: skip
                data = text(**{place: {"mrope_section": sections}})
                self.check(data, has_mrope=1, mrope_n_sec=count, mrope_sections=words)

    def test_more_than_four_sections_are_cut_with_a_remark(self) -> None:
        remarks = self.check(
            text(rope_scaling={"mrope_section": [1, 2, 3, 4, 5]}), ("mrope_sections",), has_mrope=1, mrope_n_sec=4,
            mrope_sections=(1, 2, 3, 4),
        )  # fmt: skip
        self.assertIn("5", remarks["mrope_sections"][0])

    def test_mrope_is_there_where_the_text_or_a_tensor_says_the_word(self) -> None:
        self.check(text(rope_scaling={"mrope_interleaved": True}), has_mrope=1)
        self.check(text(), names=("model.mrope.weight",), has_mrope=1)


class QNorm(Case):
    def test_a_tensor_s_name_tells(self) -> None:
        self.check(text(), names=["a", "model.layers.0.self_attn.q_norm.weight"], has_q_norm=1)
        self.check(text(model_type="qwen3"), names=["a", "model.layers.0.self_attn.k_norm.weight"])

    def test_the_word_in_the_config_s_text_tells(self) -> None:
        self.check(text(use_q_norm=False), has_q_norm=1)
        config = arch_from_config(text(use_q_norm=True, model_type="other"))
        self.assertEqual(config.arch.has_q_norm, 1, "a conversion with this config has them too")

    def test_from_a_config_alone_model_type_tells(self) -> None:
        for data, want in (
            (text(model_type="qwen3"), 1), (text(model_type="qwen3_vl"), 1), (text(model_type="qwen3_moe"), 1),
            (text(model_type="qwen2"), 0), (text(model_type="my_qwen3"), 0), (text(), 0), (text(model_type=None), 0),
            (text(model_type=3), 0),
            (json.dumps({"model_type": "x", "text_config": {**PLAIN, "model_type": "qwen3_vl_text"}}).encode(), 1),
            (json.dumps({"model_type": "qwen3_vl", "text_config": PLAIN}).encode(), 1),
        ):  # fmt: skip
            config = arch_from_config(data)
            self.assertEqual(config.arch.has_q_norm, want, data)
            self.assertEqual([word for word, _ in config.remarks], ["has_q_norm"], "that it was guessed is remarked on")

    def test_the_caller_may_say_it(self) -> None:
        for said in (True, False):
            config = arch_from_config(text(model_type="qwen3"), q_norm=said)
            self.assertEqual((config.arch.has_q_norm, config.remarks), (int(said), []))


class Experts(Case):
    def test_all_three_numbers_make_a_moe_and_replace_the_feed_forward_width(self) -> None:
        self.check(text(**MOE), **MOE_WORDS)
        self.check(text(**{**MOE, "num_shared_experts": ABSENT}), **{**MOE_WORDS, "shared_experts": 0})
        nested = {"text_config": {**PLAIN, **MOE}}
        self.check(json.dumps(nested).encode(), **MOE_WORDS)

    def test_with_one_of_them_missing_or_0_it_is_dense(self) -> None:
        for key in ("num_experts", "num_experts_per_tok", "moe_intermediate_size"):
            for value in (ABSENT, None, 0, -1):
                arch = arch_from_config(text(**{**MOE, key: value}), ()).arch
                self.assertEqual((arch.ffn_dim, arch.n_experts), (96, 0), (key, value))

    def test_numbers_of_experts_at_the_top_count_too(self) -> None:
        self.check(json.dumps({"text_config": PLAIN, **MOE}).encode(), **MOE_WORDS)


class Vision(Case):
    def test_each_key_of_vision_config_becomes_its_word(self) -> None:
        self.check(text(vision_config=TOWER), **TOWER_WORDS)

    def test_all_is_0_without_vision_config_or_with_depth_0(self) -> None:
        for value in (None, {**TOWER, "depth": 0}):
            self.check(text(vision_config=value))

    def test_a_tower_whose_depth_is_no_number_does_not_go_unseen(self) -> None:
        for depth in ("24", None, ABSENT, [3]):
            tower = {k: v for k, v in {**TOWER, "depth": depth}.items() if v is not ABSENT}
            self.check(text(vision_config=tower), ("vis_depth",))

    def test_a_depth_may_be_written_as_a_float(self) -> None:
        data = text(vision_config={**TOWER, "depth": 3.0})
        arch = arch_from_config(data, ()).arch
        self.assertEqual((arch.has_vision, arch.vis_depth), (1, 3))

    def test_what_is_absent_in_a_tower_is_0_with_a_remark(self) -> None:
        for key, word in (("num_heads", "vis_heads"), ("in_channels", "vis_in_chan"), ("patch_size", "vis_patch")):
            tower = {k: v for k, v in TOWER.items() if k != key}
            self.check(text(vision_config=tower), (word,), **{**TOWER_WORDS, word: 0})

    def test_a_tower_s_keys_are_not_looked_for_outside(self) -> None:
        tower = {k: v for k, v in TOWER.items() if k != "hidden_size"}
        self.check(text(vision_config=tower), ("vis_hidden",), **{**TOWER_WORDS, "vis_hidden": 0})

    def test_deepstack_has_room_for_four(self) -> None:
        for indexes, count, words, remarked in (
            ([5, 11, 17], 3, (5, 11, 17, 0), ()), ([], 0, (0, 0, 0, 0), ()), ([1, 2, 3, 4], 4, (1, 2, 3, 4), ()),
            ([1, 2, 3, 4, 5, 6], 4, (1, 2, 3, 4), ("vis_ds_idx",)),
        ):  # fmt: skip
            data = text(vision_config={**TOWER, "deepstack_visual_indexes": indexes})
            self.check(data, remarked, **{**TOWER_WORDS, "vis_ds_count": count, "vis_ds_idx": words})
        tower = {k: v for k, v in TOWER.items() if k != "deepstack_visual_indexes"}
        self.check(text(vision_config=tower), **{**TOWER_WORDS, "vis_ds_count": 0, "vis_ds_idx": (0, 0, 0, 0)})


class TextSearch(Case):
    """The engine takes the first place in the text; where that gives another number, it is remarked on."""

    def test_a_vision_config_in_front_of_the_text_config(self) -> None:
        data = json.dumps({"vision_config": TOWER, "text_config": PLAIN}).encode()
        remarks = self.check(data, ("dim", "ffn_dim"), **TOWER_WORDS)
        self.assertIn("hidden_size = 16", remarks["dim"][0])
        self.assertIn("intermediate_size = 40", remarks["ffn_dim"][0])

    def test_no_remark_where_both_give_the_same(self) -> None:
        data = json.dumps({"vision_config": {**TOWER, "hidden_size": 64, "intermediate_size": 96}, **PLAIN}).encode()
        self.check(data, **{**TOWER_WORDS, "vis_hidden": 64, "vis_ffn": 96})

    def test_a_number_that_only_the_search_finds(self) -> None:
        data = json.dumps({**{k: v for k, v in PLAIN.items() if k != "head_dim"}, "other": {"head_dim": 40}}).encode()
        remarks = self.check(data, ("head_dim",), head_dim=16, head_dim_full=16)
        self.assertIn("head_dim = 40", " ".join(remarks["head_dim"]))
        data = json.dumps({**PLAIN, "draft": {"num_experts": 8}}).encode()
        remarks = self.check(data, ("n_experts",))
        self.assertIn("num_experts = 8", remarks["n_experts"][0])

    def test_a_null_or_a_list_in_front_of_the_number(self) -> None:
        for first in ("null", "[7]", '"7"'):
            data = b'{"draft": {"bos_token_id": %s}, %s' % (first.encode(), text()[1:])
            remarks = self.check(data, ("bos_id",))
            self.assertIn("search", remarks["bos_id"][0], first)

    def test_white_space_around_the_colon_and_the_form_of_a_number_do_not_matter(self) -> None:
        data = text().replace(b'"vocab_size": 50', b'"vocab_size"\t:\n  50.0').replace(b": 0.5", b" : 5e-1")
        self.check(data)

    def test_a_longer_key_with_the_same_end_is_another_key(self) -> None:
        self.check(json.dumps({"my_vocab_size": 7, "moe_intermediate_size": 5, **PLAIN}).encode())


class RealConfigs(Case):
    def test_the_known_models_become_the_words_of_the_real_files(self) -> None:
        arch = read_config(str(models.CONFIGS / "mini.json"), ["q_norm"]).arch
        with VqfFile(Source(real("h448-plain"))) as f:
            stored = f.header.arch
        for word in arch._fields:
            value = getattr(arch, word)
            if word in ("rope_theta", "norm_eps"):
                value = struct.unpack("<f", struct.pack("<f", value))[0]
            self.assertEqual(value, getattr(stored, word), word)

    def test_a_config_is_found_in_its_folder(self) -> None:
        with tempfile.TemporaryDirectory(prefix="vqfref-") as folder:
            with open(os.path.join(folder, "config.json"), "wb") as file:
                file.write(text())
            for path in (folder, os.path.join(folder, "config.json")):
                self.assertEqual(read_config(path).arch.vocab_size, 50)
            with open(os.path.join(folder, "config.json"), "wb") as file:
                file.truncate((1 << 24) + 1)
            with self.assertRaises(VqfrefError) as caught:
                read_config(folder)
            self.assertEqual(caught.exception.code, "config.size.limit")
            os.unlink(os.path.join(folder, "config.json"))
            self.assertRaises(FileNotFoundError, read_config, folder)


# ---- a file against a config


MINI = (models.CONFIGS / "mini.json").read_bytes()


def verdicts(data: bytes, config: bytes) -> dict[str, Any]:
    """The differences by word."""
    with VqfFile(Source(data)) as f:
        return {d.word: d for d in compare_arch(f.header.arch, arch_from_config(config, f.keys()))}


class Compared(unittest.TestCase):
    def test_the_real_files_are_equal_to_their_config_but_for_the_clamp(self) -> None:
        for form in (448, 432):
            found = verdicts(real("h%d-plain" % form), MINI)
            self.assertEqual(list(found), list(WORDS))
            kinds = {word: d.kind for word, d in found.items() if d.kind != "equal"}
            self.assertEqual(kinds, {"max_seq_len": "expected"})
            self.assertIn("262144", found["max_seq_len"].text)
            self.assertEqual((found["max_seq_len"].file, found["max_seq_len"].config), (8192, 8192))

    def test_each_word_that_differs_is_named_with_both_values(self) -> None:
        for word, value, name in (
            ("dim", 64, "dim"), ("max_seq_len", 4096, "max_seq_len"), ("eos_id", 0, "eos_id"), ("has_mrope", 0, "has_mrope"),
            ("mrope_sections1", 5, "mrope_sections"), ("video_token_id", 1, "video_token_id"), ("n_experts", 2, "n_experts"),
            ("head_dim_full", 31, "head_dim_full"), ("kv_lora_rank", 9, "kv_lora_rank"),
        ):  # fmt: skip
            found = verdicts(patch(real("h448-plain"), WORD[word], "I", value), MINI)
            different = {d.word: d for d in found.values() if d.kind == "different"}
            self.assertEqual(list(different), [name])
            self.assertEqual(different[name].file, (8, 5, 4, 0) if name == "mrope_sections" else value)
            self.assertNotEqual(different[name].file, different[name].config)

    def test_floats_are_compared_as_single_precision(self) -> None:
        for value, kind in ((1e-6, "equal"), (1.0000001e-6, "different")):
            found = verdicts(patch(real("h448-plain"), WORD["norm_eps"], "f", value), MINI)
            self.assertEqual(found["norm_eps"].kind, kind)

    def test_what_the_engine_s_text_search_finds_is_said(self) -> None:
        root = json.loads(MINI)
        config = json.dumps({"vision_config": {"depth": 0, "hidden_size": 16}, **root}).encode()
        found = verdicts(patch(real("h448-plain"), WORD["dim"], "I", 16), config)
        self.assertEqual((found["dim"].kind, found["dim"].file, found["dim"].config), ("different", 16, 32))
        self.assertIn("text search", found["dim"].text)
        found = verdicts(patch(real("h448-plain"), WORD["dim"], "I", 17), config)
        self.assertEqual(found["dim"].kind, "different")
        self.assertNotIn("the file has", found["dim"].text)


# ---- the command line


class CommandLine(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory(prefix="vqfref-")
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def put(self, name: str, data: bytes) -> str:
        return put(os.path.join(self.folder, name), data)

    def mini(self) -> str:
        return str(FILES / "mini-q4-h448-plain.vqf")


class ConfigVerb(CommandLine):
    def test_equal_words_and_expected_differences_are_good(self) -> None:
        config = self.put("config.json", MINI)
        for given in (config, self.folder):
            status, out, err = run_main("config", self.mini(), given)
            self.assertEqual((status, err), (0, ""))
            self.assertIn("38 words equal", out)
            self.assertRegex(out, "max_seq_len +8192 +8192 +expected .*262144")
            self.assertEqual(len(out.splitlines()), 3, "words that are equal are not listed")

    def test_a_real_difference_is_named_and_makes_the_status_1(self) -> None:
        root = json.loads(MINI)
        root["text_config"]["vocab_size"] = 33
        status, out, _ = run_main("config", self.mini(), self.put("config.json", json.dumps(root).encode()))
        self.assertEqual(status, 1)
        self.assertRegex(out, "vocab_size +32 +33 +different")

    def test_encrypted_files_need_no_key_for_it(self) -> None:
        config = self.put("config.json", MINI)
        status, _, err = run_main("config", str(FILES / "mini-q4-h432-enc-signed.vqf"), config)
        self.assertEqual((status, err), (0, ""))

    def test_as_json(self) -> None:
        status, out, _ = run_main("config", self.mini(), self.put("config.json", MINI), "--json")
        found = json.loads(out)
        self.assertEqual((status, found["ok"], found["format"], found["findings"]), (0, True, "vqf", []))
        self.assertEqual(set(found), {"file", "format", "ok", "findings", "words", "counts"})
        self.assertEqual(found["counts"], {"equal": 38, "expected": 1, "different": 0})
        self.assertEqual([w["word"] for w in found["words"]], list(WORDS))
        for w in found["words"]:
            self.assertEqual(set(w), {"word", "file", "config", "kind", "text"})
        by_name = {w["word"]: w for w in found["words"]}
        self.assertEqual(by_name["mrope_sections"]["config"], [8, 4, 4, 0])
        root = json.loads(MINI)
        root["text_config"]["vocab_size"] = 33
        status, out, _ = run_main("config", self.mini(), self.put("config.json", json.dumps(root).encode()), "--json")
        found = json.loads(out)
        self.assertEqual((status, found["ok"], found["counts"]["different"]), (1, False, 1))

    def test_faults_have_their_status_and_name_the_right_file(self) -> None:
        bad = self.put("bad.json", b"{")
        no_key = self.put("no_key.json", text(vocab_size=ABSENT))
        nowhere = os.path.join(self.folder, "nowhere")
        weights = self.put("a.safetensors", struct.pack("<Q", 2) + b"{}")
        config = self.put("config.json", MINI)
        for status, words, argv in (
            (1, [bad, "json.syntax.json"], (self.mini(), bad)), (1, [no_key, "vocab_size"], (self.mini(), no_key)),
            (3, [nowhere], (self.mini(), nowhere)), (3, [nowhere], (nowhere, config)), (2, ["VQF"], (weights, config)),
            (1, ["magic"], (bad, config)), (2, ["CONFIG"], (self.mini(),)),
        ):  # fmt: skip
            found, out, err = run_main("config", *argv)
            self.assertEqual((found, out), (status, ""), (argv, err))
            for word in words:
                self.assertIn(word, err)
            self.assertNotIn("Traceback", err)


# The two models of section 6.
QWEN3_VL_2B = {
    "model_type": "qwen3_vl",
    "text_config": {
        "hidden_size": 2048, "num_hidden_layers": 28, "num_attention_heads": 16, "num_key_value_heads": 8,
        "head_dim": 128, "intermediate_size": 6144, "vocab_size": 151936, "max_position_embeddings": 262144,
        "bos_token_id": 151643, "eos_token_id": 151645, "rms_norm_eps": 1e-6, "rope_theta": 5000000,
        "rope_scaling": {"mrope_section": [24, 20, 20]},
    },
    "vision_config": {
        "depth": 24, "hidden_size": 1024, "num_heads": 16, "intermediate_size": 4096, "patch_size": 16,
        "temporal_patch_size": 2, "spatial_merge_size": 2, "out_hidden_size": 2048, "in_channels": 3,
        "num_position_embeddings": 2304, "deepstack_visual_indexes": [5, 11, 17],
    },
}  # fmt: skip
QWEN3_30B_A3B = {
    "model_type": "qwen3_moe", "hidden_size": 2048, "num_hidden_layers": 48, "num_attention_heads": 32,
    "num_key_value_heads": 4, "head_dim": 128, "intermediate_size": 6144, "moe_intermediate_size": 768,
    "num_experts": 128, "num_experts_per_tok": 8, "vocab_size": 151936, "max_position_embeddings": 40960,
    "bos_token_id": 151643, "eos_token_id": 151645, "rms_norm_eps": 1e-6, "rope_theta": 1000000.0,
}  # fmt: skip


class PlanVerb(CommandLine):
    def config(self, root: dict[str, Any]) -> str:
        return self.put("config.json", json.dumps(root).encode())

    def test_the_sizes_of_the_real_files(self) -> None:
        for root, wmode, size, tensors, flags in (
            (QWEN3_VL_2B, "q4", "2,331,316,232", 41, "flags 0x63 "),
            (QWEN3_VL_2B, "dual", "4,159,295,496", 49, "flags 0x63 "),
            (QWEN3_30B_A3B, "q4", "17,665,601,544", 15, "version 3, flags 0x223 "),
        ):
            for given in (self.config(root), self.folder):
                status, out, err = run_main("plan", given, "--wmode", wmode)
                self.assertEqual((status, err), (0, ""))
                self.assertIn("size %s bytes" % size, out)
                self.assertIn("%d tensors" % tensors, out)
                self.assertIn(flags, out)

    def test_every_tensor_with_its_place(self) -> None:
        _, out, _ = run_main("plan", self.config(QWEN3_VL_2B), "--wmode", "q4")
        rows = {line.split()[0]: line.split() for line in out.splitlines() if "0x" in line}
        self.assertEqual(rows["token_embed"][-2:], ["0x1000", "622329856"])
        self.assertIn("file_len 0x8af51000", out)
        for name in ("final_norm", "q4_down", "v_q8_fc2", "v_ds_f2b"):
            self.assertIn(name, rows)
        self.assertRegex(out, r"q4_down +q4_0 +57344 +6144 +28 +\[2048, 6144\]")

    def test_as_json(self) -> None:
        status, out, _ = run_main("plan", self.config(QWEN3_VL_2B), "--wmode", "q4", "--json")
        found = json.loads(out)
        self.assertEqual(status, 0)
        self.assertEqual(
            set(found),
            {"file", "format", "ok", "findings", "version", "flags", "flag_names", "header_bytes", "n_tensors",
             "data_offset", "file_len", "size", "tensors", "remarks"},
        )  # fmt: skip
        numbers = ("version", "flags", "header_bytes", "n_tensors", "data_offset", "file_len", "size")
        self.assertEqual([found[k] for k in numbers], [2, 0x63, 448, 41, 4096, 2331316224, 2331316232])
        self.assertEqual(len(found["tensors"]), 41)
        self.assertEqual(
            found["tensors"][0],
            {"name": "token_embed", "qtype": "f16", "rows": 151936, "cols": 2048, "layers": 0, "experts": 0,
             "shape": [151936, 2048], "offset": 4096, "nbytes": 622329856},
        )  # fmt: skip
        self.assertEqual({word for word, _ in found["remarks"]}, {"max_seq_len", "has_q_norm"})

    def test_the_small_models_get_the_size_of_their_files(self) -> None:
        for name, options, size in (
            ("dense", ("--wmode", "dual"), 160520), ("dense", ("--wmode", "q4", "--header", "432"), 64776),
            ("dense", ("--wmode", "q4", "--x8"), 113160), ("odd-rows", ("--wmode", "q8", "--q8-tile", "4"), 80200),
            ("moe", ("--wmode", "q4i"), 124936), ("vision", ("--wmode", "q8"), 333000),
            ("tied-f16-vocab66", ("--wmode", "g256"), 110280),
        ):  # fmt: skip
            status, out, _ = run_main("plan", str(models.CONFIGS / (name + ".json")), *options, "--json")
            self.assertEqual((status, json.loads(out)["size"]), (0, size), name)

    def test_q_norm_may_be_said(self) -> None:
        config = self.put("config.json", text(model_type="qwen3"))
        for options, count in (((), 14), (("--q-norm", "yes"), 14), (("--q-norm", "no"), 12)):
            status, out, _ = run_main("plan", config, "--wmode", "q4", *options)
            self.assertEqual(status, 0)
            self.assertIn("%d tensors" % count, out)
            self.assertEqual("guessed" in out, not options)

    def test_the_size_of_the_encrypted_file_is_said_too(self) -> None:
        _, out, _ = run_main("plan", self.config(QWEN3_VL_2B), "--wmode", "q4")
        self.assertRegex(out, "encrypted 2,?331,?316,?256")

    def test_remarks_are_printed(self) -> None:
        _, out, _ = run_main("plan", self.config(QWEN3_30B_A3B), "--wmode", "q4")
        self.assertIn("remark: max_seq_len: ", out)

    def test_faults_have_their_status(self) -> None:
        moe = self.config(QWEN3_30B_A3B)
        bad = self.put("bad.json", text(vocab_size=ABSENT))
        blocks = self.put("blocks.json", text(hidden_size=10, head_dim=3))
        nowhere = os.path.join(self.folder, "nowhere")
        for status, word, argv in (
            (2, "448", (moe, "--wmode", "q4", "--header", "432")), (2, "x8", (moe, "--wmode", "q8", "--x8")),
            (2, "--wmode", (moe,)), (2, "--wmode", (moe, "--wmode", "q3")), (1, "vocab_size", (bad, "--wmode", "q4")),
            (3, nowhere, (nowhere, "--wmode", "q4")), (1, "q4_q", (blocks, "--wmode", "q4")),
        ):  # fmt: skip
            found, out, err = run_main("plan", *argv)
            self.assertEqual((found, out), (status, ""), (argv, err))
            self.assertIn(word, err)
            self.assertNotIn("Traceback", err)

    def test_an_error_as_json_is_the_only_finding(self) -> None:
        status, out, err = run_main("plan", self.put("bad.json", b"{"), "--wmode", "q4", "--json")
        found = json.loads(out)
        self.assertEqual((status, err, found["ok"]), (1, "", False))
        self.assertEqual([f["code"] for f in found["findings"]], ["json.syntax.json"])


class Samples(unittest.TestCase):
    def test_the_words_of_this_file_are_all_words(self) -> None:
        flat = [w.rstrip("0123") if w[-1:].isdigit() else w for w in samples.ARCH_WORDS]
        self.assertEqual(list(dict.fromkeys(flat)), list(WORDS))


if __name__ == "__main__":
    unittest.main()

"""config.json to arch: which key becomes which word of the header. Spec: VQF section 11.

`arch_from_config` reads the JSON by its structure, `text_search` finds a key the way the engine does: the first place in
the text wins, whatever object it is in. Where the two would differ, that is a remark. `compare_arch` holds a file's
arch against a config.
"""

from __future__ import annotations

from collections import namedtuple
from math import inf, isfinite

from vqfref import strictjson
from vqfref.errors import FormatError
from vqfref.quant.floats import f32
from vqfref.vqf.structs import ARCH_41, Arch

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterable

MAX_SEQ_LEN = 8192  # the converter clamps max_position_embeddings to it
MAX_U32 = (1 << 32) - 1

# (arch word, config key) of the text model, in text_config where there is one
TEXT_KEYS = (
    ("dim", "hidden_size"),
    ("n_layers", "num_hidden_layers"),
    ("n_heads", "num_attention_heads"),
    ("n_kv_heads", "num_key_value_heads"),
    ("ffn_dim", "intermediate_size"),
    ("vocab_size", "vocab_size"),
    ("max_seq_len", "max_position_embeddings"),
    ("bos_id", "bos_token_id"),
    ("eos_id", "eos_token_id"),
    ("norm_eps", "rms_norm_eps"),
    ("rope_theta", "rope_theta"),
    ("head_dim", "head_dim"),
    ("n_experts", "num_experts"),
    ("top_k", "num_experts_per_tok"),
    ("moe_ffn", "moe_intermediate_size"),
    ("shared_experts", "num_shared_experts"),
)
REQUIRED = ("dim", "n_layers", "n_heads", "vocab_size")
OPTIONAL = ("n_experts", "top_k", "moe_ffn", "shared_experts", "head_dim", "n_kv_heads")  # their absence is no remark

# of vision_config
VISION_KEYS = (
    ("vis_depth", "depth"),
    ("vis_hidden", "hidden_size"),
    ("vis_heads", "num_heads"),
    ("vis_ffn", "intermediate_size"),
    ("vis_patch", "patch_size"),
    ("vis_temporal", "temporal_patch_size"),
    ("vis_merge", "spatial_merge_size"),
    ("vis_out_dim", "out_hidden_size"),
    ("vis_in_chan", "in_channels"),
    ("vis_max_pos", "num_position_embeddings"),
)
TOKEN_KEYS = (
    ("vision_start_id", "vision_start_token_id"),
    ("vision_end_id", "vision_end_token_id"),
    ("image_token_id", "image_token_id"),
    ("video_token_id", "video_token_id"),
)
FLOATS = ("rope_theta", "norm_eps")

Config = namedtuple("Config", "arch remarks text")
Config.__doc__ = """A config.json as the header has it: the Arch record, remarks about every departure from a plain value
as (arch word, sentence), and the text."""

Difference = namedtuple("Difference", "word file config kind text")
Difference.__doc__ = """One arch word against a config: kind is 'equal', 'expected' or 'different'; text says why."""


def arch_from_config(
    data: bytes, tensor_names: Iterable[str] | None = None, *, q_norm: bool | None = None, path: str | None = None
) -> Config:
    """The arch of a model from its config.json.

    tensor_names: those of its weights, which tell about q_norm and mrope; without them model_type does, unless q_norm
    says it. Raises FormatError for what is not JSON, lacks a required key, or has a number that its word can't hold.
    """
    root = strictjson.loads(data, path=path)
    if not isinstance(root, dict):
        raise FormatError("config.root.json", "expected a JSON object", path=path)
    return _Reader(root, bytes(data).decode("utf-8"), path).read(tensor_names, q_norm)


class _Reader:
    """One config.json: its objects, and the words and remarks that come of it."""

    def __init__(self, root: dict[str, Any], text: str, path: str | None) -> None:
        self.root, self.text, self.path = root, text, path
        nested = root.get("text_config")
        self.text_config = nested if isinstance(nested, dict) else root
        self.words: dict[str, Any] = dict.fromkeys(Arch._fields, 0)
        self.words["vis_ds_idx"] = self.words["mrope_sections"] = (0, 0, 0, 0)
        self.remarks: list[tuple[str, str]] = []

    def read(self, tensor_names: Iterable[str] | None, q_norm: bool | None) -> Config:
        w = self.words
        for word, key in TEXT_KEYS:
            w[word] = self.number(word, self.find(key), word in FLOATS)
        for word, key in TOKEN_KEYS:
            w[word] = self.number(word, self.token(key), optional=True)
        moe = w["n_experts"] > 0 and w["top_k"] > 0 and w["moe_ffn"] > 0
        if moe:
            w["ffn_dim"] = w["n_experts"] * w["moe_ffn"]
        else:
            w["n_experts"] = w["top_k"] = w["moe_ffn"] = w["shared_experts"] = 0
        for word in REQUIRED if moe else (*REQUIRED, "ffn_dim"):
            if not w[word]:
                raise FormatError("config.key.missing", "%s is missing, null or 0" % dict(TEXT_KEYS)[word],
                                  field=dict(TEXT_KEYS)[word], path=self.path)  # fmt: skip
        if self.find("num_key_value_heads") is None:
            w["n_kv_heads"] = w["n_heads"]
            self.remark("n_kv_heads", "num_key_value_heads is absent: as many as num_attention_heads")
        if not w["head_dim"]:
            w["head_dim"] = w["dim"] // w["n_heads"]
            if not w["head_dim"]:
                raise FormatError("config.key.missing", "head_dim is missing, and hidden_size // num_attention_heads is 0",
                                  field="head_dim", path=self.path)  # fmt: skip
            self.remark("head_dim", "head_dim is absent: hidden_size // num_attention_heads = %d" % w["head_dim"])
        w["head_dim_full"] = w["head_dim"]
        if w["max_seq_len"] > MAX_SEQ_LEN:
            self.remark("max_seq_len", "max_position_embeddings %d is clamped to 8192" % w["max_seq_len"])
            w["max_seq_len"] = MAX_SEQ_LEN
        self.rope()
        self.features(None if tensor_names is None else list(tensor_names), q_norm)
        self.vision()
        self.check_range()
        self.search_remarks()
        return Config(Arch(**w), self.remarks, self.text)

    def remark(self, word: str, sentence: str) -> None:
        self.remarks.append((word, sentence))

    def find(self, key: str) -> Any:
        """A key of the text model: in text_config, else at top level."""
        value = self.text_config.get(key)
        return self.root.get(key) if value is None else value

    def token(self, key: str) -> Any:
        """A token id: at top level, else in text_config."""
        value = self.root.get(key)
        return self.text_config.get(key) if value is None else value

    def number(self, word: str, value: Any, real: bool = False, optional: bool = False) -> Any:
        """A number as the engine takes it: 0 for what is absent, null or a list, each with a remark."""
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            if real:
                try:
                    return float(value)
                except OverflowError:  # an int of hundreds of digits; check_range refuses it
                    return inf
            if value != int(value):
                self.remark(word, "%r is not a whole number: %d" % (value, int(value)))
            return int(value)
        if value is None:
            if not optional and word not in OPTIONAL and word not in REQUIRED and word not in ("ffn_dim", "rope_theta"):
                self.remark(word, "absent or null: 0")
        else:
            self.remark(word, "%.60r is not a number: 0" % (value,))
        return 0.0 if real else 0

    def rope(self) -> None:
        """rope_theta and mrope_section, which may also sit in rope_parameters or rope_scaling."""
        w = self.words
        for place in ("rope_parameters", "rope_scaling"):
            inner = self.find(place)
            if not isinstance(inner, dict):
                continue
            if not w["rope_theta"] and inner.get("rope_theta") is not None:
                w["rope_theta"] = self.number("rope_theta", inner["rope_theta"], real=True)
                self.remark("rope_theta", "taken from %s" % place)
            sections = inner.get("mrope_section")
            if isinstance(sections, list) and not w["mrope_n_sec"]:
                w["mrope_n_sec"], w["mrope_sections"] = self.four("mrope_sections", sections)
        if not w["rope_theta"]:
            self.remark("rope_theta", "absent or null: 0")

    def four(self, word: str, values: list[Any]) -> tuple[int, tuple[int, ...]]:
        """(count, four numbers) of a list; what is beyond the fourth is dropped with a remark."""
        if len(values) > 4:
            self.remark(word, "%d values, the header has room for 4" % len(values))
        kept = [int(self.number(word, v)) for v in values[:4]]
        return len(kept), (*kept, 0, 0, 0, 0)[:4]

    def features(self, names: list[str] | None, q_norm: bool | None) -> None:
        w = self.words
        if q_norm is not None:
            w["has_q_norm"] = int(q_norm)
        elif names is not None or "q_norm" in self.text:
            w["has_q_norm"] = int("q_norm" in self.text or any("q_norm" in n for n in names or ()))
        else:
            model_type = self.text_config.get("model_type") or self.root.get("model_type") or ""
            w["has_q_norm"] = int(str(model_type).startswith("qwen3"))
            self.remark("has_q_norm", "guessed from model_type %r: the tensors decide" % model_type)
        w["has_mrope"] = int("mrope" in self.text or any("mrope" in n for n in names or ()))

    def vision(self) -> None:
        w = self.words
        config = self.root.get("vision_config")
        if not isinstance(config, dict):
            return
        w["vis_depth"] = self.number("vis_depth", config.get("depth"))
        if w["vis_depth"] <= 0:
            w["vis_depth"] = 0
            return
        for word, key in VISION_KEYS[1:]:
            w[word] = self.number(word, config.get(key))
        indexes = config.get("deepstack_visual_indexes")
        if isinstance(indexes, list):
            w["vis_ds_count"], w["vis_ds_idx"] = self.four("vis_ds_idx", indexes)
        w["has_vision"] = 1

    def check_range(self) -> None:
        for f in ARCH_41.fields:
            values = self.words[f.name]
            for value in values if isinstance(values, tuple) else (values,):
                low, high = (-(1 << 31), (1 << 31) - 1) if f.type == "i32" else (0, MAX_U32)
                if not isfinite(f32(value)) if f.type == "f32" else not low <= value <= high:
                    raise FormatError("config.number.range", "%s = %s does not fit the header" % (f.name, value),
                                      field=f.name, path=self.path)  # fmt: skip

    def search_remarks(self) -> None:
        """Where the engine's text search would read another number than the structure gives."""
        for word, key in TEXT_KEYS + TOKEN_KEYS:
            structure = self.token(key) if (word, key) in TOKEN_KEYS else self.find(key)
            if word == "rope_theta":  # the search finds it in rope_parameters too
                structure = self.words[word]
            if not isinstance(structure, (int, float)) or isinstance(structure, bool):
                structure = 0
            searched = text_search(self.text, key) or 0
            if searched != structure:
                self.remark(
                    word, "the engine's text search would read %s = %s, the first in the text" % (key, searched)
                )


def text_search(text: str, key: str) -> int | float | None:
    """The number behind the first `"key":` in the text, wherever it is; None where there is no number."""
    at = text.find('"%s"' % key)
    if at < 0:
        return None
    rest = text[at + len(key) + 2 : at + len(key) + 200].lstrip(" \t\r\n:")
    digits = rest[: next((i for i, c in enumerate(rest) if c not in "+-.eE0123456789"), len(rest))]
    try:
        return int(digits) if digits.lstrip("-").isdigit() else float(digits)
    except ValueError:
        return None


def compare_arch(arch: Any, config: Config) -> list[Difference]:
    """Every arch word of a file against a config's: equal, expected (the 8192 clamp, what was remarked on), different."""
    remarks: dict[str, list[str]] = {}
    for word, sentence in config.remarks:
        remarks.setdefault(word, []).append(sentence)
    found = []
    for word in Arch._fields:
        a, b = getattr(arch, word), getattr(config.arch, word)
        same = a == (f32(b) if word in FLOATS else b)
        notes = "; ".join(remarks.get(word, []))
        searched = text_search(config.text, dict(TEXT_KEYS + TOKEN_KEYS).get(word, ""))
        if same:
            kind = "expected" if notes else "equal"
        elif word in dict(TEXT_KEYS + TOKEN_KEYS) and searched == a:
            kind, notes = "different", "the file has what the engine's text search finds"
        else:
            kind = "different"
        found.append(Difference(word, a, b, kind, notes))
    return found

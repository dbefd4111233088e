"""Where a model's own tensors go in a VQF file: source names, their shapes, and rows of any VQF matrix as floats.

Spec: VQF section 11. Used by the converter and by the comparison of a file with its source.
"""

from __future__ import annotations

from array import array

from vqfref import kernels
from vqfref.errors import FormatError, UnsupportedError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from vqfref.vqf.geometry import Geometry
    from vqfref.weightfile import WeightFile

# VQF name, or the suffix of a matrix -> source name behind the prefix; {0} layer, {1} expert
TEXT = {
    "token_embed": "embed_tokens.weight",
    "final_norm": "norm.weight",
    "attn_norm": "layers.{0}.input_layernorm.weight",
    "ffn_norm": "layers.{0}.post_attention_layernorm.weight",
    "q_norm": "layers.{0}.self_attn.q_norm.weight",
    "k_norm": "layers.{0}.self_attn.k_norm.weight",
    "moe_router": "layers.{0}.mlp.gate.weight",
    "q": "layers.{0}.self_attn.q_proj.weight",
    "k": "layers.{0}.self_attn.k_proj.weight",
    "v": "layers.{0}.self_attn.v_proj.weight",
    "o": "layers.{0}.self_attn.o_proj.weight",
    "gate": "layers.{0}.mlp.gate_proj.weight",
    "up": "layers.{0}.mlp.up_proj.weight",
    "down": "layers.{0}.mlp.down_proj.weight",
}
EXPERT = "layers.{0}.mlp.experts.{1}.%s_proj.weight"
VISION_PREFIX = "model.visual."
VISION = {
    "v_q8_qkv": "blocks.{0}.attn.qkv.weight",
    "v_q8_proj": "blocks.{0}.attn.proj.weight",
    "v_q8_fc1": "blocks.{0}.mlp.linear_fc1.weight",
    "v_q8_fc2": "blocks.{0}.mlp.linear_fc2.weight",
    "v_patch_embed": "patch_embed.proj.weight",
    "v_patch_bias": "patch_embed.proj.bias",
    "v_pos_embed": "pos_embed.weight",
    "v_qkv_bias": "blocks.{0}.attn.qkv.bias",
    "v_proj_bias": "blocks.{0}.attn.proj.bias",
    "v_norm1_w": "blocks.{0}.norm1.weight",
    "v_norm1_b": "blocks.{0}.norm1.bias",
    "v_norm2_w": "blocks.{0}.norm2.weight",
    "v_norm2_b": "blocks.{0}.norm2.bias",
    "v_fc1_bias": "blocks.{0}.mlp.linear_fc1.bias",
    "v_fc2_bias": "blocks.{0}.mlp.linear_fc2.bias",
    "v_merger_nw": "merger.norm.weight",
    "v_merger_nb": "merger.norm.bias",
    "v_merger_f1w": "merger.linear_fc1.weight",
    "v_merger_f1b": "merger.linear_fc1.bias",
    "v_merger_f2w": "merger.linear_fc2.weight",
    "v_merger_f2b": "merger.linear_fc2.bias",
    "v_ds_nw": "deepstack_merger_list.{0}.norm.weight",
    "v_ds_nb": "deepstack_merger_list.{0}.norm.bias",
    "v_ds_f1w": "deepstack_merger_list.{0}.linear_fc1.weight",
    "v_ds_f1b": "deepstack_merger_list.{0}.linear_fc1.bias",
    "v_ds_f2w": "deepstack_merger_list.{0}.linear_fc2.weight",
    "v_ds_f2b": "deepstack_merger_list.{0}.linear_fc2.bias",
}
MATRIX_PREFIXES = ("q8_", "q4_", "x8_")
DTYPES = ("BF16", "F16", "F32")


class Sources:
    """A model's tensors by their VQF names."""

    def __init__(self, files: WeightFile, arch: Any) -> None:
        self.files = files
        self.arch = arch
        names = set(files.keys())
        self.names = names
        self.prefix = "model.language_model." if any(n.startswith("model.language_model.") for n in names) else "model."
        self.tied = "lm_head.weight" not in names

    def name(self, tensor: str, layer: int = 0, expert: int | None = None) -> str:
        """The source of one matrix or vector of a VQF tensor."""
        if tensor in VISION:
            return VISION_PREFIX + VISION[tensor].format(layer)
        suffix = tensor[3:] if tensor.startswith(MATRIX_PREFIXES) else tensor
        if suffix == "lm":
            return self.prefix + TEXT["token_embed"] if self.tied else "lm_head.weight"
        if expert is not None:
            return self.prefix + (EXPERT % suffix).format(layer, expert)
        return self.prefix + TEXT[suffix].format(layer)

    def shape(self, geometry: Geometry) -> tuple[int, ...]:
        """The shape that a source tensor of this geometry must have."""
        if geometry.name == "v_patch_embed":
            a = self.arch
            return (a.vis_hidden, 3, a.vis_temporal, a.vis_patch, a.vis_patch)
        return geometry.shape

    def check(self, geometry: Geometry) -> None:
        """Every source tensor of a VQF tensor is there, in its shape and a known dtype. Raises FormatError."""
        expected = self.shape(geometry)
        for layer in range(geometry.layers):
            for expert in range(geometry.experts) if geometry.experts else (None,):
                name = self.name(geometry.name, layer, expert)
                if name not in self.names:
                    raise FormatError("convert.source.missing", "the source has no such tensor, needed for %s"
                                      % geometry.name, field=name, path=self.files.path)  # fmt: skip
                info = self.files.info(name)
                if tuple(info.shape) != expected:
                    message = "shape %s, expected %s for %s" % (list(info.shape), list(expected), geometry.name)
                    raise FormatError("convert.source.shape", message, field=name, path=info.path)
                if info.dtype not in DTYPES:
                    raise UnsupportedError("convert.source.dtype", "dtype %s, expected BF16, F16 or F32" % info.dtype,
                                           field=name, path=info.path)  # fmt: skip

    def rows(self, geometry: Geometry, layer: int, start: int, stop: int) -> array[float]:
        """Rows start … stop of one layer's matrix as it is stored: experts side by side, rows padded. f32 values."""
        height = geometry.shape[0]
        out = array("f")
        if not geometry.experts:
            out = self._values(self.name(geometry.name, layer), geometry, start, stop)
        elif geometry.expert_axis == 0:
            for expert in range(start // height, -(-stop // height)):
                a, b = max(start - expert * height, 0), min(stop - expert * height, height)
                out.extend(self._values(self.name(geometry.name, layer, expert), geometry, a, b))
        else:
            width = geometry.shape[1]
            parts = [
                self._values(self.name(geometry.name, layer, e), geometry, start, stop) for e in range(geometry.experts)
            ]
            for at in range(0, (stop - start) * width, width):
                for part in parts:
                    out.extend(part[at : at + width])
        if geometry.pad_cols:
            padding = array("f", bytes(4 * geometry.pad_cols))
            width = geometry.shape[1]
            padded = array("f")
            for at in range(0, len(out), width):
                padded.extend(out[at : at + width])
                padded.extend(padding)
            return padded
        return out

    def _values(self, name: str, geometry: Geometry, start: int, stop: int) -> array[float]:
        """Rows of one source tensor; a vector is one row. The engine's F16 reader makes NaN of infinities too."""
        rows = slice(start, stop) if len(geometry.shape) == 2 else None
        values = self.files.get_tensor(name, rows=rows)
        if self.files.info(name).dtype == "F16" and not kernels.all_finite(values):
            for i, v in enumerate(values):
                if v - v != 0:
                    values[i] = float("nan")
        return values

"""The model folders of the conversion cases, made by their recipe instead of stored (kat/README.md, "Models").

Values come from x -> (x * 1664525 + 1013904223) mod 2^32, one step a value over all tensors in order;
v = (((x >> 8) mod 65536) - 32768) / 32768; within each tensor every 777th value is 0, then every 991st is -3.5, and in
tensors of 64 values or more the values 32 … 63 are multiplied by 1e-6.
"""

from __future__ import annotations

from array import array

from vqfref import strictjson
from vqfref.errors import UsageError
from vqfref.kernels import bf16_encode, f16_encode
from vqfref.safetensors.writer import nbytes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

SEEDS = {"dense": 0x9E3779B9, "tied-f16-vocab66": 11, "moe": 17, "vision": 19, "mini": 23, "odd-rows": 29}
TIED = ("tied-f16-vocab66",)


def text_tensors(c: dict[str, Any], prefix: str, tied: bool) -> list[tuple[str, tuple[int, ...]]]:
    """Names and shapes of the text model, in the recipe's order."""
    dim, heads, kv, width = (c[k] for k in ("hidden_size", "num_attention_heads", "num_key_value_heads", "head_dim"))
    found: list[tuple[str, tuple[int, ...]]] = [
        (prefix + "embed_tokens.weight", (c["vocab_size"], dim)),
        (prefix + "norm.weight", (dim,)),
    ]
    for i in range(c["num_hidden_layers"]):
        p = "%slayers.%d." % (prefix, i)
        found += [(p + n + ".weight", (dim,)) for n in ("input_layernorm", "post_attention_layernorm")]
        for n, out, into in (
            ("q", heads * width, dim),
            ("k", kv * width, dim),
            ("v", kv * width, dim),
            ("o", dim, heads * width),
        ):
            found.append(("%sself_attn.%s_proj.weight" % (p, n), (out, into)))
        found += [("%sself_attn.%s_norm.weight" % (p, n), (width,)) for n in "qk"]
        mlps = [(p + "mlp.", c["intermediate_size"])]
        if c.get("num_experts"):
            found.append((p + "mlp.gate.weight", (c["num_experts"], dim)))
            mlps = [("%smlp.experts.%d." % (p, e), c["moe_intermediate_size"]) for e in range(c["num_experts"])]
        for q, ff in mlps:
            found += [(q + n + "_proj.weight", (ff, dim)) for n in ("gate", "up")] + [
                (q + "down_proj.weight", (dim, ff))
            ]
    return found if tied else [*found, ("lm_head.weight", (c["vocab_size"], dim))]


def vision_tensors(c: dict[str, Any]) -> list[tuple[str, tuple[int, ...]]]:
    """Names and shapes of the vision tower, in the recipe's order."""
    vh, vf, out = c["hidden_size"], c["intermediate_size"], c["out_hidden_size"]
    mi = vh * c["spatial_merge_size"] ** 2
    patch = (vh, c["in_channels"], c["temporal_patch_size"], c["patch_size"], c["patch_size"])
    found: list[tuple[str, tuple[int, ...]]] = [
        ("patch_embed.proj.weight", patch),
        ("patch_embed.proj.bias", (vh,)),
        ("pos_embed.weight", (c["num_position_embeddings"], vh)),
    ]

    def both(name: str, shape: tuple[int, ...]) -> list[tuple[str, tuple[int, ...]]]:
        return [(name + ".weight", shape), (name + ".bias", shape[:1])]

    for i in range(c["depth"]):
        b = "blocks.%d." % i
        found += both(b + "norm1", (vh,)) + both(b + "norm2", (vh,)) + both(b + "attn.qkv", (3 * vh, vh))
        found += both(b + "attn.proj", (vh, vh))
        found += both(b + "mlp.linear_fc1", (vf, vh)) + both(b + "mlp.linear_fc2", (vh, vf))
    mergers = [("merger.", vh)] + [
        ("deepstack_merger_list.%d." % i, mi) for i in range(len(c["deepstack_visual_indexes"]))
    ]
    for m, norm in mergers:
        found += both(m + "norm", (norm,)) + both(m + "linear_fc1", (mi, mi)) + both(m + "linear_fc2", (out, mi))
    return [("model.visual." + n, s) for n, s in found]


def values(n: int, x: int) -> tuple[array[float], int]:
    """n values of one tensor, and the generator's state behind them."""
    out = array("f")
    for _ in range(n):
        x = (x * 1664525 + 1013904223) & 0xFFFFFFFF
        out.append(((x >> 8) % 65536 - 32768) / 32768)
    out[::777] = array("f", [0.0] * len(out[::777]))
    out[::991] = array("f", [-3.5] * len(out[::991]))
    if n >= 64:
        tiny = array("f", [1e-6])[0]
        out[32:64] = array("f", [v * tiny for v in out[32:64]])
    return out, x


def model_bytes(name: str, config: dict[str, Any]) -> bytes:
    """The model.safetensors of a model with this config."""
    text = config.get("text_config", config)
    prefix = "model.language_model." if "text_config" in config else "model."
    tensors = text_tensors(text, prefix, name in TIED)
    if "vision_config" in config:
        tensors += vision_tensors(config["vision_config"])
    dtype, encode = ("F16", f16_encode) if "f16" in name else ("BF16", bf16_encode)
    root: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    at, x, data = 0, SEEDS[name], []
    for tensor, shape in tensors:
        size = nbytes(dtype, shape)
        root[tensor] = {"dtype": dtype, "shape": list(shape), "data_offsets": [at, at + size]}
        at += size
        floats, x = values(size // 2, x)
        data.append(encode(floats))
    header = strictjson.dumps(root).encode()
    header += b" " * (-len(header) % 8)
    return len(header).to_bytes(8, "little") + header + b"".join(data)


_made: dict[str, str] = {}


def model_folder(name: str) -> str:
    """A folder with the model, made once a process in the system's place for temporary files."""
    import os

    from vqfref.kat.cases import find

    if name not in SEEDS:
        raise UsageError("kat.model.name", "no model %r: expected one of %s" % (name, " ".join(SEEDS)))
    if name not in _made:
        with open(os.path.join(find(), "files", "models", name + ".json"), "rb") as file:
            config = file.read()
        folder = os.path.join(temporary_folder(), name)
        os.mkdir(folder)
        for part, content in (
            ("config.json", config),
            ("model.safetensors", model_bytes(name, strictjson.loads(config))),
        ):
            with open(os.path.join(folder, part), "wb") as file:
                file.write(content)
        _made[name] = folder
    return _made[name]


_temporary: list[str] = []


def temporary_folder() -> str:
    """A folder that is removed when the interpreter ends; without tempfile, which minimal images lack."""
    import os

    if not _temporary:
        try:
            import atexit
        except ImportError:
            atexit = None  # type: ignore[assignment]
        base = os.environ.get("TMPDIR") or "/tmp"
        _temporary.append(os.path.join(base, "vqfref-%s" % os.urandom(6).hex()))
        os.mkdir(_temporary[0], 0o700)
        if atexit is not None:
            atexit.register(_remove, _temporary[0])
    return _temporary[0]


def _remove(folder: str) -> None:
    import os

    for root, folders, files in os.walk(folder, topdown=False):
        for name in files:
            os.unlink(os.path.join(root, name))
        for name in folders:
            os.rmdir(os.path.join(root, name))
    os.rmdir(folder)


def converted(name: str, wmode: str, x8: bool, q8_tile: int, form: int) -> tuple[bytes, int, int]:
    """(bytes, flags, number of tensors) of the VQF file that a model converts to."""
    import os

    from vqfref.vqf.convert import convert

    out = os.path.join(temporary_folder(), "converted.vqf")
    result = convert(model_folder(name), out, wmode, x8=x8, q8_tile=q8_tile, form=form)
    with open(out, "rb") as file:
        return file.read(), result.plan.flags, len(result.plan.tensors)

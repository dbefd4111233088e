"""Pack factors and the storage-expansion check, by which the engine bounds memory before it loads. Spec: UQFF section 13."""

from __future__ import annotations

from vqfref.errors import FormatError, UsageError
from vqfref.uqff import families
from vqfref.uqff.naming import AFQ, FP8, HQQ, MXFP4

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Iterable

    from vqfref.uqff.families import Layer

DTYPE_BYTES = {"BF16": 2, "F16": 2, "F32": 4}
REPEATING = ("layers", "blocks", "h")  # path segments that an index of a repeating layer follows


def pack_factor(elements: int, dtype_bytes: int, resident: int) -> int:
    """F(N, dt, B): how many dense elements of the model dtype one estimated element stands for; 1 or more."""
    f = max(1, elements * dtype_bytes // max(1, resident))
    while f > 1 and elements // f * dtype_bytes < resident:
        f -= 1
    return f


def layout(layer: Layer) -> tuple[int, int]:
    """(logical elements N, resident bytes B) of a layer that may be used. Raises what is wrong with it."""
    families.check(layer)

    def nbytes(*suffixes: str) -> int:
        return sum(len(layer.read(s)) for s in suffixes)

    if layer.tag == AFQ:
        resident = nbytes("", ".scales", ".biases")
    elif layer.tag == HQQ:
        resident = nbytes("", ".scales", ".zeros")
    elif layer.tag == FP8:
        resident = nbytes("", ".dequant_w_scale", ".dequant_x_scale", ".quant_scale")
    elif layer.tag == MXFP4:
        resident = nbytes("", ".scales")
    else:
        resident = nbytes("")
    return families.product(layer.logical_shape()), resident


def checked_layout(layer: Layer, dtype: str) -> tuple[int, int]:
    """The same, refusing a layer that would take more room than dense in the model's dtype (X1)."""
    if dtype not in DTYPE_BYTES:
        raise UsageError("usage.dtype.unsupported", "dtype %r: expected BF16, F16 or F32" % dtype)
    elements, resident = layout(layer)
    dense = elements * DTYPE_BYTES[dtype]
    if resident > dense:
        raise FormatError("uqff.x1.limit", "%d bytes stored, but %d as %s: use an equal or wider model dtype, or an explicit "
                          "device map" % (resident, dense, dtype), field=layer.key, path=layer.path())  # fmt: skip
    return elements, resident


def layer_factor(layer: Layer | None, dtype: str) -> int | None:
    """The pack factor of one layer; None where there is no layer with a format."""
    if layer is None or layer.entry(".format") is None:
        return None
    elements, resident = checked_layout(layer, dtype)
    return pack_factor(elements, DTYPE_BYTES[dtype], resident)


def repeating_id(key: str) -> str | None:
    """The part of a key up to the first integer that follows `layers`, `blocks` or `h`; None where there is none.

    >>> repeating_id("model.layers.3.mlp.up_proj")
    'model.layers.3'
    """
    parts = key.split(".")
    for i in range(1, len(parts)):
        if parts[i - 1] in REPEATING and parts[i].isascii() and parts[i].isdigit():
            return ".".join(parts[: i + 1])
    return None


def global_factor(layers: Iterable[Layer], dtype: str) -> int:
    """The conservative factor of a whole artifact: the smallest over its buckets, which are the repeating blocks and each
    layer outside of them. Raises FormatError uqff.x1.limit, and what is wrong with a layer."""
    found = [layer for layer in layers if layer.entry(".format") is not None]
    layouts = {layer.key: checked_layout(layer, dtype) for layer in found}
    buckets: dict[str, list[tuple[int, int]]] = {}
    repeating = any(repeating_id(key) for key in layouts)
    for key, one in layouts.items():
        buckets.setdefault(repeating_id(key) or (key if repeating else ""), []).append(one)
    return min((bucket_factor(b, DTYPE_BYTES[dtype]) for b in buckets.values()), default=1)


def bucket_factor(layouts: list[tuple[int, int]], dtype_bytes: int) -> int:
    """The factor of layers that are estimated together: as large as leaves the sum of their estimates no smaller than
    what they take."""
    resident = sum(b for _, b in layouts)
    f = pack_factor(sum(n for n, _ in layouts), dtype_bytes, resident)
    while f > 1 and sum(n // f * dtype_bytes for n, _ in layouts) < resident:
        f -= 1
    return f

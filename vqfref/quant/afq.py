"""AFQ: groups of 32, 64 or 128 elements with a scale and an offset, codes of 2, 3, 4, 6 or 8 bits in one bit stream.

Spec: UQFF sections 6.5 and 16. Element j of a row is bits j * bits … of the row's stream of little-endian u32 words, the
lowest bit first. A row is whole groups and a group is `bits * group_size / 32` whole words, so the rows of a matrix, or
the matrices of a stack, are simply one stream, and nobody here asks for rows. The "biases" are the groups' offsets and
have nothing to do with a layer's bias.
"""

from __future__ import annotations

from array import array

from vqfref.errors import UsageError
from vqfref.quant.arith import nearest
from vqfref.quant.floats import check_whole, f32

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Sequence

BITS = (2, 3, 4, 6, 8)
GROUP_SIZES = (32, 64, 128)
_TINY = f32(1e-12)


def afq_decode(
    packed: bytes | bytearray | memoryview, scales: Sequence[float], biases: Sequence[float], bits: int, group_size: int
) -> array[float]:
    """The values biases[g] + code * scales[g], product and sum each rounded to single precision.

    `packed` is whole little-endian u32 words, scales and biases are single-precision values, one of each a group. What
    the engine does with the result, a cast to the dtype in which the scales are stored, is left to the caller.
    """
    size, stop, mask = group_size * bits // 8, group_size * bits, (1 << bits) - 1
    if not len(packed) == size * len(scales) == size * len(biases):
        found = len(packed), len(scales), len(biases)
        raise UsageError("usage.scales.shape", "%d bytes of codes for %d scales and %d biases" % found)
    out = array("f")
    for g, (scale, bias) in enumerate(zip(scales, biases)):
        stream = int.from_bytes(packed[g * size : (g + 1) * size], "little")
        products = array("f", [scale * (stream >> k & mask) for k in range(0, stop, bits)])
        out.extend([bias + p for p in products])
    return out


def afq_encode(values: Sequence[float], bits: int, group_size: int = 64) -> tuple[bytes, array[float], array[float]]:
    """(packed words, scales, biases) of single-precision values, a multiple of group_size of them.

    Scales and biases are in single precision, from which the codes come; to store them the caller casts them to the
    working dtype.
    """
    check_whole(len(values), group_size, "values")
    top = (1 << bits) - 1
    packed, scales, biases = bytearray(), array("f"), array("f")
    for at in range(0, len(values), group_size):
        group = values[at : at + group_size]
        bias, high = min(group), max(group)
        spread = f32(high - bias)
        scale = f32(spread / top) if spread >= _TINY else 1.0
        offsets = array("f", [x - bias for x in group])
        codes = [nearest(t, 0, top) for t in array("f", [x / scale for x in offsets])]
        packed += sum([code << bits * j for j, code in enumerate(codes)]).to_bytes(group_size * bits // 8, "little")
        scales.append(scale)
        biases.append(bias)
    return bytes(packed), scales, biases

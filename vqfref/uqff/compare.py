"""A UQFF artifact against the model it was made from: how far its values are off, and whether our encoders explain them.

For each layer, bias and residual tensor: RMSE, largest error, cosine, the worst block, and a verdict. *identical*: the
bit-exact encoder of the stored type gives the same bytes in every entry. *not explained*: it does not, with the first
byte that differs, or there is no such encoder (HQQ of 3, 2 and 1 bits or other groups). Spec: UQFF section 16.
"""

from __future__ import annotations

from array import array

from vqfref.comparison import IDENTICAL, NO_SOURCE, NOT_EXPLAINED, Comparison, Figures, without_figures
from vqfref.errors import VqfrefError
from vqfref.uqff.encode import LayerEncoder, LayerSource, encode_floats, tracked, working_values
from vqfref.uqff.naming import AFQ, HQQ, UNQUANT
from vqfref.uqff.targets import AFQ_GROUP, HQQ_GROUP
from vqfref.uqff.writer import read_config

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, Iterable, Iterator

    from vqfref.uqff.families import Layer
    from vqfref.uqff.reader import UqffFile
    from vqfref.weightfile import WeightFile

    Progress = Callable[[int, int], None]

FLOATS = ("F32", "BF16", "F16")


def compare(f: UqffFile, sources: WeightFile, folder: str, progress: Progress | None = None) -> Iterator[Comparison]:
    """One Comparison for each name of `f.keys()`.

    sources: the model folder opened; folder: its path, for config.json. Raises FormatError for a config or a model that
    can't be read, UnsupportedError for experts in a layout that is not known.
    """
    layers, _ = tracked(sources, bool(read_config(folder).get("tie_word_embeddings")))
    names = f.keys()
    for done, name in enumerate(names):
        try:
            if name in f.layers:
                yield _layer(f, f.layer(name), layers, sources)
            else:
                yield _plain(f, name, layers, sources)
        except VqfrefError as error:  # a faulty layer, or NaN in the source
            yield without_figures(name, NOT_EXPLAINED, str(error))
        if progress:
            progress(done + 1, len(names))


def _layer(f: UqffFile, layer: Layer, layers: dict[str, LayerSource], sources: WeightFile) -> Comparison:
    source = layers.get(layer.key)
    if source is None:
        return without_figures(layer.key, NO_SOURCE, "the source has no such layer")
    shape = layer.logical_shape()
    if source.shape != shape:
        message = "the source's shape is %s, the layer's %s" % (list(source.shape), list(shape))
        return without_figures(layer.key, NO_SOURCE, message)
    dtype = _working_dtype(f, layer)
    figures = Figures(layer.key, shape[-1])
    done, height = 0, shape[-2] if len(shape) > 1 else 1
    for values, floats in _together(f.values(layer.key), working_values(sources, source.sources, dtype)):
        expert, row = divmod(done, height)
        figures.add(values, floats, "expert %d, " % expert if len(shape) == 3 else "", row)
        done += len(values) // shape[-1]
    group = layer.number(".group_size") if layer.tag in (AFQ, HQQ) else AFQ_GROUP
    if layer.tag == HQQ and (layer.number(".bits") not in (4, 8) or group != HQQ_GROUP):
        return figures.result(NOT_EXPLAINED, "no bit-exact encoder for %s in groups of %d" % (layer.label(), group))
    difference = _first_difference(layer, LayerEncoder(sources, source, layer.label(), dtype, group))
    return figures.result(NOT_EXPLAINED if difference else IDENTICAL, difference)


def _working_dtype(f: UqffFile, layer: Layer) -> str:
    """The dtype that the model had when it was quantized: that of the layer's floats where it keeps it, else that of the
    residual."""
    if layer.tag == UNQUANT:
        return layer.dtype("")
    if layer.tag == AFQ:
        return layer.dtype(".scales")
    entries = f.residual.header.entries.values() if f.residual else ()
    return next((str(e.dtype) for e in entries if e.dtype in FLOATS), "F32")


def _first_difference(layer: Layer, encoder: LayerEncoder) -> str:
    """Where the encoder's bytes are not those of the layer for the first time, in words; empty for nowhere."""
    for part in encoder.parts():
        if part.suffix is None:
            continue  # the bias has a comparison of its own
        t = layer.tensors[part.suffix]
        if t.entry.dtype != part.dtype or tuple(t.entry.shape) != part.shape:
            return "%s is %s of %s, expected %s of %s" % (
                t.name, t.entry.dtype, list(t.entry.shape), part.dtype, list(part.shape))  # fmt: skip
        difference = _different(t.file.chunks(t.name), encoder.pieces(part))
        if difference:
            return "first difference in %s: %s" % (t.name, difference)
    return ""


def _plain(f: UqffFile, name: str, layers: dict[str, LayerSource], sources: WeightFile) -> Comparison:
    """A bias, or a tensor of the residual: the source's values in the stored dtype."""
    stored, key = f.info(name), name[: -len(".bias")]
    owner = f.layers.get(key) if name.endswith(".bias") else None
    if owner is None:
        origin = [name] if name in sources else []
    else:
        origin = layers[key].biases if key in layers else []
    if not origin:
        return without_figures(name, NO_SOURCE, "the source has no such tensor")
    shapes = [tuple(sources.info(n).shape) for n in origin]
    shape = (len(shapes), *shapes[0]) if len(shapes) > 1 else shapes[0]
    if shape != tuple(stored.shape):
        message = "the source's shape is %s, the file's %s" % (list(shape), list(stored.shape))
        return without_figures(name, NO_SOURCE, message)
    floats = array("f")
    if owner is None:
        floats = sources.get_tensor(name)
    else:
        for piece in working_values(sources, origin, _working_dtype(f, owner)):
            floats.extend(piece)
    figures = Figures(name, max(shape[-1], 1) if shape else 1)
    figures.add(f.get_tensor(name), floats, "", 0)
    if stored.dtype not in (*FLOATS, "F8_E4M3"):
        return figures.result(NOT_EXPLAINED, "no bit-exact encoder for %s" % stored.dtype)
    difference = _different(f.chunks(name), iter([encode_floats(floats, stored.dtype)]))
    return figures.result(NOT_EXPLAINED if difference else IDENTICAL, difference and "first difference: " + difference)


def _together(
    values: Iterable[array[float]], floats: Iterator[array[float]]
) -> Iterator[tuple[array[float], array[float]]]:
    """Pieces of two streams of equal length, cut as the first is."""
    pending = array("f")
    for piece in values:
        while len(pending) < len(piece):
            pending.extend(next(floats))
        yield piece, pending[: len(piece)]
        pending = pending[len(piece) :]


def _different(stored: Iterator[bytes], expected: Iterator[bytes]) -> str:
    """The first byte in which two streams of equal length differ, in words; empty if they are equal."""
    done, have = 0, b""
    for want in expected:
        while len(have) < len(want):
            have += next(stored)
        if have[: len(want)] != want:
            i = next(i for i, (a, b) in enumerate(zip(have, want)) if a != b)
            return "byte %d: stored %02x, expected %02x" % (done + i, have[i], want[i])
        have, done = have[len(want) :], done + len(want)
    return ""

"""A converted file against the model it was made from: how far its values are off, and whether our encoder explains them.

For each tensor: RMSE, largest error, cosine, the worst block, and a verdict. *identical*: the bit-exact encoder gives the
same bytes. *explained*: it does with the older rounding profile (spec section 9). *not explained*: with the first
block that differs. *missing*: a tensor that the arch calls for and the file lacks, or a source tensor that no tensor of
the file is made from. Values are read through the file's own layout, so the figures hold whatever the verdict.
"""

from __future__ import annotations

from vqfref import kernels
from vqfref.comparison import (
    EXPLAINED,
    IDENTICAL,
    MISSING,
    NO_SOURCE,
    NOT_EXPLAINED,
    Comparison,
    Figures,
    without_figures,
)
from vqfref.errors import FormatError, UnsupportedError
from vqfref.vqf.audit import all_tensors, called_for
from vqfref.vqf.convert import Encoder, read_config
from vqfref.vqf.geometry import LINEAR, TILE_ROWS, X8_OF_Q4_4X4
from vqfref.vqf.reader import DECODERS
from vqfref.vqf.sources import Sources
from vqfref.vqf.structs import QTYPES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from array import array
    from typing import Callable, Iterator

    from vqfref.vqf.geometry import Geometry
    from vqfref.vqf.reader import VqfFile
    from vqfref.weightfile import WeightFile

    Progress = Callable[[int, int], None]


def compare(f: VqfFile, sources: WeightFile, folder: str, progress: Progress | None = None) -> Iterator[Comparison]:
    """One Comparison for each tensor of the file's directory, and for each that is missing.

    f: opened with its passphrase if it is encrypted; sources: the model folder opened; folder: its path, for
    config.json. Raises FormatError for a config that can't be read, IntegrityError without the passphrase.
    """
    read_config(folder, sources.keys())
    wanted = Sources(sources, f.header.arch)
    done = 0
    for name in f:
        try:
            geometry = f.geometry(name)
            if name not in f.known_names():
                raise UnsupportedError("vqf.plan.name", "not a name of the format")
            wanted.check(geometry)
        except (FormatError, UnsupportedError) as error:
            yield without_figures(name, NO_SOURCE, "%s%s" % (error.field + ": " if error.field else "", error.message))
        else:
            yield _compare_tensor(f, wanted, geometry)
        done += f.info(name).nbytes
        if progress:
            progress(min(done, f.head.size), f.head.size)
    yield from _missing(f, wanted)
    if progress:
        progress(f.head.size, f.head.size)


def _missing(f: VqfFile, sources: Sources) -> Iterator[Comparison]:
    """What the arch calls for and the file lacks, and source tensors that nothing is made from."""
    h = f.header
    known, plan = all_tensors(h.arch, h.flags), called_for(h.arch, h.flags, f.keys())
    lacking = [name for name, t in plan.items() if name not in f and t.nbytes]
    for name in lacking:
        yield without_figures(name, MISSING, "the arch calls for this tensor, but the file lacks it")
    used: set[str] = set()
    for name in [*f.keys(), *lacking]:
        if name in known:
            used.update(_origins(sources, known[name]))
    for name in sources.files:
        if name not in used:
            yield without_figures(name, MISSING, "the source has this tensor, but nothing in the file is made from it")


def _origins(sources: Sources, geometry: Geometry) -> Iterator[str]:
    """The names of the tensors that one of the file is made from; an arch may claim any number of layers, so that after
    as many misses as there are names it ends."""
    misses = 0
    for layer in range(geometry.layers):
        for expert in range(geometry.experts) if geometry.experts else (None,):
            name = sources.name(geometry.name, layer, expert)
            yield name
            misses += name not in sources.names
            if misses > len(sources.names):
                return


def _compare_tensor(f: VqfFile, sources: Sources, geometry: Geometry) -> Comparison:
    figures = Figures(geometry.name, geometry.matrix[1], geometry.pad_cols)
    first = _first_difference(f, sources, geometry, False, figures)
    if first is None:
        return figures.result(IDENTICAL, "")
    older = _first_difference(f, sources, geometry, True)
    if older is None:
        return figures.result(EXPLAINED, "the rounding of files from before 2026-09-10")
    if older[0] > first[0]:  # the older rounding explains more of it
        return figures.result(NOT_EXPLAINED, older[1] + " by the older rounding")
    return figures.result(NOT_EXPLAINED, first[1])


def _first_difference(
    f: VqfFile, sources: Sources, geometry: Geometry, legacy: bool, figures: Figures | None = None
) -> tuple[int, str] | None:
    """Where the encoder's bytes are not those of the file for the first time: the offset in the tensor, and its place in
    words. Adds all values to `figures`; without them it ends at the first difference."""
    first = None
    start = at = f.info(geometry.name).offset
    for layer, row, _, floats, expected in Encoder(sources, f.header.flags, legacy).groups(geometry):
        stored = bytes(f.plain(at, len(expected)))
        layout = next(s.layout for s in geometry.segments() if s.row <= row < s.row + s.rows)
        if first is None and stored != expected:
            byte = next(i for i, (a, b) in enumerate(zip(stored, expected)) if a != b)
            first = at - start + byte, _first_block(geometry, stored, expected, byte, layer, row, layout, at + byte)
            if figures is None:
                break
        at += len(expected)
        if figures is not None:
            where = "layer %d, " % layer if geometry.layered else ""
            figures.add(_values(geometry, stored, layout), floats, where, row)
    return first


def _values(geometry: Geometry, stored: bytes, layout: str) -> array[float]:
    """The values of whole stored rows."""
    if layout != LINEAR:
        stored = kernels.untile(stored, geometry.matrix[1], layout)
    return DECODERS[geometry.qtype](stored)


def _first_block(
    geometry: Geometry, stored: bytes, expected: bytes, at: int, layer: int, row: int, layout: str, offset: int
) -> str:
    """Where byte `at` of two encodings of the same rows lies, in words and in the file, and what it is in both."""
    info = QTYPES[geometry.qtype]
    cols, height = geometry.matrix[1], TILE_ROWS[layout]
    where = "layer %d, " % layer if geometry.layered else ""
    if layout == LINEAR:
        element = at // info.block_bytes * info.block_elements
        place = "row %d, column %d" % (row + element // cols, element % cols)
    else:
        group, tile = divmod(at // (info.block_bytes * height), cols // 32)
        place = "rows %d to %d" % (row + group * height, row + group * height + height - 1)
        if layout != X8_OF_Q4_4X4:  # in a copy of tiles, columns are not in their places
            place += ", columns %d to %d" % (tile * 32, tile * 32 + 31)
    return "first difference in %s%s, at 0x%x: stored %02x, expected %02x" % (
        where, place, offset, stored[at], expected[at])  # fmt: skip

"""A Hugging Face model folder to a VQF file, byte for byte what the engine's converter writes. Spec: VQF sections 6 to 11.

The plan comes first (geometry.plan): it fixes every offset and flag. Then the tensors are written in its order, streaming
through row groups of a few MiB of floats whatever the tensor's size, and encrypted and hashed as they go; the header
with its signature comes last. All source tensors are checked before the first byte is written.
"""

from __future__ import annotations

import math
import os
from collections import namedtuple

from vqfref import kernels
from vqfref.errors import FormatError
from vqfref.findings import Findings
from vqfref.quant.floats import count_nonfinite, f32_encode
from vqfref.safetensors.reader import INDEX_NAME, open_folder
from vqfref.sink import AtomicFile, keep_sources
from vqfref.source import Source
from vqfref.vqf import structs
from vqfref.vqf.config import arch_from_config
from vqfref.vqf.geometry import LINEAR, Q4_4X4, X8_OF_Q4_4X4, plan, tag_length
from vqfref.vqf.reseal import Signer, new_encryption, signature_block
from vqfref.vqf.seal import Tags, canonical_header
from vqfref.vqf.sources import Sources
from vqfref.vqf.structs import DIR_OFFSET, FLAG_ENC, FLAG_G256, FLAG_Q8BUF_Q4, FLAG_SIGNED, SIG, TENSOR

TYPE_CHECKING = False
if TYPE_CHECKING:
    from array import array
    from typing import Callable, Iterator

    from vqfref.vqf.config import Config
    from vqfref.vqf.geometry import Geometry, Plan, Segment
    from vqfref.weightfile import WeightFile

    Progress = Callable[[int, int], None]

MAX_GROUP = 1 << 20  # floats in a row group: 4 MiB; as Python numbers they take thirty times that
CONFIG_NAME = "config.json"

Conversion = namedtuple("Conversion", "plan findings")
Conversion.__doc__ = "What a conversion did: the Plan it followed, and findings (all warnings) about source and config."


def read_config(path: str, tensor_names: list[str] | None = None, q_norm: bool | None = None) -> Config:
    """The Config of a config.json, or of a folder that holds one. Raises OSError, FormatError."""
    if os.path.isdir(path):
        path = os.path.join(path, CONFIG_NAME)
    with Source(path, "pread") as source:
        if source.size > 1 << 24:
            raise FormatError("config.size.limit", "%d bytes, expected at most 16 MiB" % source.size, path=path)
        return arch_from_config(source.read_at(0, source.size), tensor_names, q_norm=q_norm, path=path)


def convert(
    folder: str | os.PathLike[str],
    out: str | os.PathLike[str],
    wmode: str,
    *,
    x8: bool = False,
    q8_tile: int = 8,
    form: int = 448,
    legacy: bool = False,
    passphrase: bytes | None = None,
    iv: bytes | None = None,
    signer: Signer | None = None,
    overwrite: bool = True,
    progress: Progress | None = None,
) -> Conversion:
    """Convert a model folder into a VQF file.

    wmode, x8, q8_tile, form: as in geometry.plan. legacy: the rounding of files from before 2026-09-10. passphrase: to
    encrypt, with a random iv unless one is given; signer: to sign. The file appears when all of it is written.

    Raises UsageError for a plan that the engine could not have made; FormatError for a config without a key, a source
    tensor that is missing or misshapen; UnsupportedError for an unknown dtype; OSError.
    """
    folder = os.fspath(folder)
    with open_folder(folder, "pread") as files:
        keep_sources(out, [os.path.join(folder, name) for name in (CONFIG_NAME, INDEX_NAME, *files.files)])
        config = read_config(folder, files.keys())
        found = Findings(folder)
        for word, sentence in config.remarks:
            found.add("warning", "config.word.policy", sentence, None, word)
        the_plan = plan(config.arch, wmode, x8=x8, q8_tile=q8_tile, form=form, encrypted=passphrase is not None)
        writer = _Writer(files, the_plan, legacy, found)
        with AtomicFile(out, overwrite=overwrite) as file:
            writer.write(file, passphrase, iv, signer, progress)
    return Conversion(writer.plan, found.sorted())


class Encoder:
    """Encodes a model's tensors for one plan: the stored bytes of any of them, row group by row group."""

    def __init__(self, sources: Sources, flags: int, legacy: bool) -> None:
        self.sources, self.flags, self.legacy = sources, flags, legacy

    def groups(self, geometry: Geometry) -> Iterator[tuple[int, int, int, array[float], bytes]]:
        """(layer, first row, rows, source floats, stored bytes) of every row group, in the order of the file."""
        for layer in range(geometry.layers):
            for segment in geometry.segments():
                step = group_rows(geometry)
                for at in range(0, segment.rows, step):
                    n = min(step, segment.rows - at)
                    row = segment.row + at
                    floats = self.sources.rows(geometry, layer, row, row + n)
                    yield layer, row, n, floats, self.encode(geometry, segment, floats)

    def encode(self, geometry: Geometry, segment: Segment, floats: array[float]) -> bytes:
        """The stored bytes of whole rows of one segment."""
        qtype, cols = geometry.qtype, geometry.matrix[1]
        if qtype == structs.F32:
            return f32_encode(floats)
        if qtype == structs.F16:
            return kernels.f16_encode_truncated(floats)
        if qtype == structs.Q8_0:
            text = not geometry.name.startswith("v_")
            if text and self.flags & FLAG_Q8BUF_Q4:
                blocks = kernels.q4i_encode(floats, self.legacy)
            elif text and self.flags & FLAG_G256:
                blocks = kernels.g256_encode(floats, self.legacy)
            else:
                blocks = kernels.q8_0_encode(floats, self.legacy)
        else:
            blocks = kernels.q4_0_encode(floats, self.legacy)
        if segment.layout == X8_OF_Q4_4X4:  # the converter takes the q4 bytes as they stand
            blocks = kernels.tile(blocks, cols, Q4_4X4)
        return blocks if segment.layout == LINEAR else kernels.tile(blocks, cols, segment.layout.partition(" ")[0])


def group_rows(geometry: Geometry) -> int:
    """Rows of a group: whole tiles, whole groups of 256 elements, at most MAX_GROUP floats if one such unit fits."""
    cols = geometry.matrix[1]
    unit = 256 // math.gcd(max(cols, 1), 256)
    unit = unit * 8 // math.gcd(unit, 8)
    per_row = max(cols, 1)
    return max(unit, MAX_GROUP // per_row // unit * unit)


class _Writer:
    """One conversion: source, plan, and what was remarked on the way."""

    def __init__(self, files: WeightFile, the_plan: Plan, legacy: bool, found: Findings) -> None:
        self.plan = the_plan
        self.found = found
        self.sources = Sources(files, the_plan.arch)
        for geometry in the_plan.tensors:
            self.sources.check(geometry)
        self.encoder = Encoder(self.sources, the_plan.flags, legacy)

    def write(
        self, file: AtomicFile, passphrase: bytes | None, iv: bytes | None, signer: Signer | None,
        progress: Progress | None,
    ) -> None:  # fmt: skip
        p = self.plan
        keys, iv = (None, bytes(16)) if passphrase is None else new_encryption(passphrase, iv)
        if signer:
            signature_block(signer, bytes(32), p.form)  # a key or id that can't sign is found now, not after the data
        flags = p.flags | (FLAG_ENC if keys else 0) | (FLAG_SIGNED if signer else 0)
        layout = structs.HEADER_448 if p.form == 448 else structs.HEADER_432
        header = structs.Header(
            structs.MAGIC, p.version, flags, len(p.tensors), p.arch, bytes(4), p.data_offset, p.file_len, iv, bytes(16),
            SIG.unpack(bytes(SIG.size)),
        )  # fmt: skip
        raw = layout.pack(header)
        directory = b"".join(
            TENSOR.pack(structs.Tensor(t.name.encode(), t.qtype, t.rows, t.cols, bytes(4), offset, t.nbytes))
            for t, offset in zip(p.tensors, p.offsets)
        )
        tags = Tags(canonical_header(raw, layout), directory, fnv=keys is None, hmac_key=keys.hmac if keys else None,
                    digest=signer is not None)  # fmt: skip
        file.write((raw.ljust(DIR_OFFSET, b"\0") + directory).ljust(p.data_offset, b"\0"))
        done, total = 0, p.file_len - p.data_offset
        for plain in self.data():
            stored = kernels.sm4_ctr(keys.sm4, iv, plain, done) if keys else plain
            tags.update(stored, plain)
            file.write(stored)
            done += len(stored)
            if progress:
                progress(done, total)
        if done != total:
            raise AssertionError("wrote %d bytes of data, planned %d" % (done, total))
        file.write(tags.tag())
        if signer:
            file.write_at(layout.offset_of("sig"), signature_block(signer, tags.digest(), p.form))
        self.plan = p._replace(flags=flags, size=p.file_len + tag_length(flags))

    def data(self) -> Iterator[bytes]:
        """The data area: every tensor in order, each with its zero padding."""
        for geometry in self.plan.tensors:
            nans = infinities = written = 0
            for _, _, _, floats, stored in self.encoder.groups(geometry):
                if not kernels.all_finite(floats):
                    a, b = count_nonfinite(floats)
                    nans, infinities = nans + a, infinities + b
                written += len(stored)
                yield stored
            if written != geometry.nbytes:
                raise AssertionError("%s: %d bytes, planned %d" % (geometry.name, written, geometry.nbytes))
            yield bytes(-written % structs.TENSOR_ALIGN)
            if nans or infinities:
                made = "stored as infinities" if geometry.qtype == structs.F16 else (
                    "codes 0 for NaN, infinities follow the arithmetic")  # fmt: skip
                message = "%d NaN and %d infinite values as read (an infinite F16 is read as NaN): %s"
                self.found.add(
                    "warning", "convert.values.range", message % (nans, infinities, made), None, geometry.name
                )

"""What a VQF file is sealed with: its checksum or tag, over which bytes, and what a check of it proves. Spec section 5.

So far the FNV-1a-64 of plain files.
"""

from __future__ import annotations

from collections import namedtuple

from vqfref import kernels
from vqfref.errors import IntegrityError
from vqfref.findings import Findings
from vqfref.vqf.geometry import tag_length
from vqfref.vqf.structs import DIR_OFFSET, FLAG_ENC, FLAG_SIGNED, TENSOR

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Iterator

    from vqfref.source import Source
    from vqfref.vqf.reader import Head

    Progress = Callable[[int, int], None]

Step = namedtuple("Step", "name result detail")
Step.__doc__ = "One check of a verification: its name, 'ok', 'failed' or 'not checked', and why or what that means."

Verification = namedtuple("Verification", "ok authenticated steps findings")
Verification.__doc__ = """The outcome of `verify`. ok: nothing failed and nothing that was required is missing;
authenticated: a key that the caller gave has vouched for the bytes; steps: all Steps; findings: all Findings."""


def verify(source: Source, head: Head, *, progress: Progress | None = None) -> Verification:
    """Check what seals the file. Nothing raises but OSError; a failed check is a finding of severity error."""
    found = Findings(source.path)
    if head.header.flags & FLAG_ENC:
        error = IntegrityError(
            "vqf.enc.key", "encrypted: the tag can't be checked without the passphrase", offset=8, field="flags"
        )
        found.add_error(error)
        steps = [Step("hmac", "not checked", "no passphrase")]
    else:
        steps = [_checksum_step(source, head, found, progress)]
    if head.header.flags & FLAG_SIGNED:
        steps.append(Step("signature", "not checked", "no public key"))
    findings = found.sorted()
    return Verification(not any(f.severity == "error" for f in findings), False, steps, findings)


def checksum(source: Source, head: Head, progress: Progress | None = None) -> int:
    """FNV-1a-64 over the directory and the data area; neither the header nor the padding between is covered."""
    h = kernels.fnv1a64(source.read_at(DIR_OFFSET, TENSOR.size * head.header.n_tensors))
    for piece in _data(source, head, progress):
        h = kernels.fnv1a64(piece, h)
    return h


def _checksum_step(source: Source, head: Head, found: Findings, progress: Progress | None) -> Any:
    stored = int.from_bytes(source.read_at(head.header.file_len, tag_length(head.header.flags)), "little")
    if stored == 0:
        found.add("note", "vqf.checksum.missing", "the stored checksum is 0, which means none", head.header.file_len, "tag")
        return Step("checksum", "not checked", "none is stored")
    computed = checksum(source, head, progress)
    if computed == stored:
        return Step("checksum", "ok", "FNV-1a-64 %016x; not authenticated: anybody can make it" % stored)
    found.add(
        "error",
        "vqf.checksum.tag",
        "stored FNV-1a-64 %016x, but directory and data give %016x" % (stored, computed),
        head.header.file_len,
        "tag",
        "unknown",
    )
    return Step("checksum", "failed", "stored %016x, computed %016x" % (stored, computed))


def _data(source: Source, head: Head, progress: Progress | None) -> Iterator[bytes]:
    """The data area in pieces."""
    start, stop = head.header.data_offset, head.header.file_len
    done = 0
    for piece in source.pieces(start, stop):
        yield piece
        done += len(piece)
        if progress:
            progress(done, stop - start)



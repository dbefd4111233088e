#!/usr/bin/env python3
"""Makes the suite's cases of VQF: header, directory, whole files, geometry and conversion.

    python3 kat/gen/vqf.py [VECTORS]            write the files of kat/ that stand in FILES
    python3 kat/gen/vqf.py --check [VECTORS]    make them again and compare; 1 if one differs

VECTORS is a folder with convert-expected.json, what the engine's converter made of the models; without it the cases of
conversion stay as they are. vqf_parts.py builds and judges the files, vqf_files.py has those of vqf_file: each must have
the one fault that its case names, and no other. Nothing of vqfref is used but its converter, in the cases of
conversion: what it writes must have the SHA-256 of the engine's file.
"""

from __future__ import annotations

import hashlib
import json
import struct
import sys
from pathlib import Path

from openssl import sm3
from suite import KAT, case, main, prove
from vqf_files import FILES, make_vqf_file
from vqf_parts import (
    DIRECTORY,
    EMB_F16,
    ENC,
    F32,
    G256,
    GENERATOR,
    HAS_X8,
    MODELS,
    MOE,
    PLACES,
    POSITIVE,
    Q4_4X4,
    Q8_8X8,
    Q8BUF_Q4,
    SIGNED,
    TINY,
    U32,
    U64,
    VISION,
    WORDS,
    align,
    flags_of,
    head_fault,
    header_bytes,
    q4_gate,
    q8_gate,
    text_rows,
    vision_rows,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterator

    from suite import Case
    from vqf_parts import Arch

ENGINE = "the engine's converter"

# What a flag's cases catch.
FLAGS = {
    # header
    "vqf-magic": "the magic, all four bytes of it",
    "vqf-version": "versions other than 2 and 3",
    "vqf-version-first": "the version is judged before the size: an old file is called old, not cut",
    "vqf-min-size": "8 bytes for magic and version, 512 for the header and one entry",
    "vqf-arch-zero": "dim, n_layers, n_heads, head_dim, ffn_dim, vocab_size are not 0",
    "vqf-arch-any": "all other values of these six, and zeros elsewhere, pass the header's gates",
    "vqf-form-432": "the header with 41 words of arch: numbers at 184 and 192",
    "vqf-form-both": "both forms fit: refused, not guessed",
    "vqf-form-fit": "of two well-formed readings the one that fits the size counts",
    "vqf-start-align": "data_offset is a multiple of 64",
    "vqf-start-directory": "data_offset is not before the directory's end",
    "vqf-n-tensors-wrap": "64 * n_tensors in more than 32 bits",
    "vqf-empty-data": "file_len is greater than data_offset",
    "vqf-file-len": "file_len and the tag make the size of the file, to the byte",
    "vqf-tag-length": "32 bytes of tag behind encrypted data, 8 behind plain data",
    "vqf-64-bits": "data_offset and file_len have 64 bits, unsigned",
    # directory
    "vqf-lower-bound": "no tensor begins before data_offset",
    "vqf-upper-bound": "no tensor ends behind file_len",
    "vqf-bounds-tag": "the tag belongs to no tensor",
    "vqf-bounds-wrap": "offset + bytes beyond 2^64 or 2^32",
    "vqf-every-entry": "every entry is judged, the last one too",
    "vqf-zero-sized": "a tensor of no bytes: legal, may lie at file_len, shares bytes with nothing",
    # names
    "vqf-name-nul": "a name of 32 characters has no NUL",
    "vqf-name-ascii": "names are printable ASCII",
    "vqf-name-empty": "every entry has a name",
    "vqf-name-any": "other names are ignored: up to 31 characters of any printable ASCII",
    "vqf-duplicate": "no name is there twice",
    # entries
    "vqf-dtype": "qtype is 1 to 5",
    "vqf-align": "offsets are multiples of 64",
    "vqf-overlap": "tensors share no bytes",
    "vqf-overlap-any": "nor with one that is no neighbour in the directory",
    "vqf-bytes": "bytes is what qtype, rows and cols make",
    "vqf-bytes-wrap": "that product in more than 32 or 64 bits",
    "vqf-plan-shape": "qtype, rows and cols are what the arch calls for",
    "vqf-plan-missing": "every tensor that the arch calls for is there",
    "vqf-core": "token_embed, and q8_q or q4_q",
    "vqf-core-moe": "moe_router, and q8_gate or q4_gate, and experts",
    "vqf-order": "other orders, and gaps, are no faults",
    "vqf-layer-blocks": "a layer is a whole number of blocks",
    # flags and arch against the tensors
    "vqf-flag-x8": "flag X8 and the x8 copies",
    "vqf-flag-vision": "flag VISION and the vision tower",
    "vqf-flag-moe": "flag MOE and the router",
    "vqf-flag-q4i": "flag Q8BUF_Q4: with q8 tensors, without Q8_8X8 and G256",
    "vqf-flag-g256": "flag G256 needs q8 tensors",
    "vqf-flag-embed": "flag EMB_F16 and token_embed's qtype",
    "vqf-flag-gates": "Q8_8X8 and Q4_4X4 only where the arch passes their gates; clear is always right",
    "vqf-moe-form": "a MoE model needs the 448-byte header",
    "vqf-arch-kv": "n_kv_heads divides n_heads",
    "vqf-arch-q-norm": "has_q_norm and the tensors q_norm, k_norm",
    "vqf-arch-vision": "has_vision and the vision tower",
    "vqf-arch-experts": "ffn_dim is n_experts * moe_ffn",
    "vqf-arch-top-k": "top_k is 1 to n_experts",
    "vqf-deepstack": "of 0 deepstack mergers the six tensors may be there or not",
    # seals
    "vqf-checksum": "the stored FNV-1a-64 is compared, all of it",
    "vqf-checksum-range": "it covers the directory and the data area, and nothing else",
    "vqf-checksum-form": "FNV-1a of 64 bits, stored little-endian",
    "vqf-checksum-none": "a stored 0 means none",
    "vqf-unfilled": "nothing but zeros to the end, the checksum too: a download that was never filled",
    "vqf-digest": "the signature block's digest: over canonical header, directory and data",
    "vqf-user-id": "user ids other than the two in use",
    "vqf-id-len": "id_len is 1 to 32 and does not reach into the id's padding",
    # plans
    "vqf-plan-wmode": "the sets of weights of each wmode, in order",
    "vqf-plan-arguments": "a wmode, tile or header form that does not exist",
    "vqf-plan-q4-gate": "the gate of Q4_4X4: V, q_out, k_out in fours, dim and ff in thirty-twos",
    "vqf-plan-q8-gate": "the gate of Q8_8X8: q_out, k_out in eights, dim and ff in thirty-twos, V never asked",
    "vqf-plan-tile": "Q8_8X8 is clear for tiles of 4 rows and for linear q8",
    "vqf-plan-x8": "x8 copies: q4 alone, rows in eights, columns in thirty-twos, no lm",
    "vqf-plan-moe": "MoE: version, flag, router, form of the header",
    "vqf-plan-vision": "the vision tower",
    "vqf-plan-fc2": "rows of v_q8_fc2 are padded to whole blocks",
    "vqf-plan-page": "data_offset is the next page behind the directory",
    "vqf-plan-64-bits": "sizes beyond 2^32, 2^53, 2^63",
    "vqf-plan-blocks": "a matrix that is not a whole number of blocks",
    "vqf-plan-zero": "an arch that the header's gates would refuse",
    "vqf-plan-heads": "n_kv_heads divides n_heads",
    "vqf-plan-experts": "ffn_dim = n_experts * moe_ffn, top_k in 1 ... n_experts",
    "vqf-plan-range": "words and rows and cols that 32 bits don't hold, sizes that 64 don't",
    # conversions
    "vqf-convert-form": "the header with 41 words of arch",
    "vqf-convert-g256": "scales over 256 elements, tails left zero",
    "vqf-convert-q4i": "Q4 values as int8",
    "vqf-convert-q8": "Q8_0 and its tiles",
    "vqf-convert-q4": "Q4_0 and its tiles",
    "vqf-convert-x8": "x8 copies, made from q4 as it is tiled already",
    "vqf-convert-experts": "experts stacked: rows of gate and up, columns of down",
    "vqf-convert-vision": "the vision tower: plain Q8_0, fc2 padded row by row",
    "vqf-convert-tied": "lm_head is token_embed where it is missing; F16 sources",
}  # fmt: skip


def number(v: int) -> int | str:
    """An integer as a case holds it."""
    return v if v < 1 << 53 else str(v)


# ---- vqf_header: gates 1 to 6


def make_vqf_header(_: dict[str, Case]) -> Iterator[Case]:
    def one(
        name: str, comment: str, flags: str, head: bytes, size: int, error: str | None = None, level: str = "required"
    ) -> Case:
        """The verdict is proved by the reader of vqf_parts.py; what comes out is read where the form has it."""
        head = head[:size]
        fault, form = head_fault(head, size)
        prove(fault == error, "header %s: %s" % (name, fault))
        out: dict[str, Any] = {}
        if not fault:
            start, stop = struct.unpack_from("<QQ", head, PLACES[form])
            n = int.from_bytes(head[12:16], "little")
            out = {"form": form, "n_tensors": n, "data_offset": number(start), "file_len": number(stop)}
        into = {"size": number(size), "head": head}
        return case("vqf-header-" + name, comment, GENERATOR, flags_of(flags), into,
                    out, error, level)  # fmt: skip

    for form in (448, 432):
        text = "the %d-byte header" % form
        flags = "form-432" if form == 432 else ""
        yield one("%d" % form, text, flags, header_bytes(TINY, form=form), 584)
        head = header_bytes(TINY, 0x23, 14, 4096, 11392, form=form)
        yield one("%d-page" % form, text + ", data on the next page", flags, head, 11400)
        head = header_bytes(TINY, EMB_F16 | ENC, form=form, iv=b"\x80" + bytes(14) + b"\1")
        yield one("%d-enc" % form, text + ", encrypted", flags + " tag-length" if flags else "tag-length", head, 608)
        head = header_bytes(TINY, EMB_F16 | SIGNED, form=form)
        yield one("%d-signed" % form, text + ", signed", flags, head, 584)
    yield one("moe", "a MoE file", "version", header_bytes(MODELS["moe"].arch, 0x220, version=3), 584)
    qwen = {**TINY, **QWEN_30B}
    head = header_bytes(qwen, 0x223, 15, 4096, 17665601536, version=3)
    yield one("30b", "a MoE model of 30 billion weights", "64-bits", head, 17665601544)
    head = header_bytes({**TINY, **QWEN_2B}, 0x63, 41, 4096, 2331316224)
    yield one("2b", "a model of 2 billion weights", "", head, 2331316232)
    head = header_bytes(TINY, version=3, form=432)
    yield one("version-3-432", "version 3 in the 432-byte form: the form's test is the same", "form-432", head, 584,
              level="recommended")  # fmt: skip
    head = header_bytes(TINY, 0xFFFFFFFF & ~ENC)
    yield one(
        "all-flags", "all flags but ENC, those without a meaning too", "tag-length", head, 584, level="recommended"
    )

    # gates 1 to 4
    good = header_bytes(TINY)
    for size in (0, 1, 4, 7):
        yield one("%d-bytes" % size, "a file of %d bytes" % size, "min-size", good, size, "truncated")
    for size in (8, 16, 231, 232, 432, 447, 448, 449, 511):
        yield one("%d-bytes" % size, "a file of %d bytes: no room for header and entry" % size, "min-size", good, size,
                  "truncated")  # fmt: skip
    head = header_bytes(TINY, n=0, start=448, stop=504)
    yield one("512-bytes", "512 bytes, the smallest file: no tensors, a data area of 56 bytes", "min-size", head, 512)
    for name, magic, text in (
        ("vqfw", b"VQFW", "what documents say"),
        ("reversed", b"WFQF", "the bytes reversed"),
        ("zero", bytes(4), "zeros"),
        ("first", b"\xb9QFW", "the first byte is another"),
        ("second", b"F\xaeFW", "the second byte is another"),
        ("third", b"FQfW", "the third byte is another"),
        ("fourth", b"FQFV", "the last byte is another"),
        ("gguf", b"GGUF", "a GGUF file"),
    ):
        head = header_bytes(TINY, magic=magic)
        yield one("magic-" + name, "magic: " + text, "magic", head, 584, "magic")
    yield one("magic-only", "8 bytes of a GGUF file: the magic is judged before the size", "magic",
              b"GGUF\3\0\0\0", 8, "magic")  # fmt: skip
    for version in (0, 1, 4, 0x102, 0x10002, 0x20000, 0x03000000, 0x80000002, U32 - 1):
        head = header_bytes(TINY, version=version)
        yield one("version-%x" % version, "version %d" % version, "version", head, 584, "version")
    for size in (8, 232, 256, 511):
        head = header_bytes(TINY, version=1)
        yield one("version-1-%d-bytes" % size, "version 1 in a file of %d bytes" % size, "version-first", head, size,
                  "version")  # fmt: skip
    old = bytes.fromhex("46514657010000006300000031000000").ljust(448, b"\0")
    yield one(
        "version-1-page", "the header page of a version 1 file, its arch gone", "version-first", old, 4096, "version"
    )

    # gate 5
    for form in (448, 432):
        for word in POSITIVE:
            head = header_bytes({**TINY, word: 0}, form=form)
            yield one("%s-0-%d" % (word.replace("_", "-"), form), "%s is 0" % word, "arch-zero", head, 584, "header")
    for word in POSITIVE:
        for value in (0x100, 0x10000, 0x80000000, U32 - 1):
            head = header_bytes({**TINY, word: value})
            yield one(
                "%s-%x" % (word.replace("_", "-"), value),
                "%s is 0x%x: not 0" % (word, value),
                "arch-any",
                head,
                584,
                level="recommended",
            )
    head = header_bytes({**dict.fromkeys(WORDS, 0), **dict.fromkeys(POSITIVE, 1)})
    yield one("arch-ones", "the six words are 1, all others 0", "arch-any", head, 584, level="recommended")

    # gate 6, each condition in both forms
    for form in (448, 432):

        def formed(
            name: str, comment: str, marks: str, size: int, error: str | None = None, level: str = "required",
            form: int = form, **parts: Any,
        ) -> Case:  # fmt: skip
            head = header_bytes(TINY, form=form, **parts)
            return one("%s-%d" % (name, form), comment, marks, head, size, error, level)

        for start in (513, 544, 575, 516, 520):
            yield formed(
                "start-%d" % start,
                "data_offset %d is no multiple of 64" % start,
                "start-align",
                712,
                "layout",
                start=start,
                stop=704,
            )
        yield formed("start-0", "data_offset is 0", "start-directory", 584, "layout", start=0)
        for n, start in ((1, 448), (2, 512), (3, 576), (3, 64), (64, 4480)):
            yield formed("start-%d-of-%d" % (start, n), "data_offset %d, the directory of %d ends at %d"
                         % (start, n, 448 + 64 * n), "start-directory", 4616, "layout", n=n, start=start,
                         stop=4608)  # fmt: skip
        for n in (0, 2, 57, 58):
            start = 448 + 64 * n
            yield formed(
                "start-at-directory-%d" % n,
                "data begin where the directory of %d ends" % n,
                "start-directory start-align",
                start + 72,
                n=n,
                start=start,
                stop=start + 64,
            )
        for n in (1 << 26, (1 << 26) + 1, (1 << 31) + 1, 1 << 31, U32 - 1):
            yield formed("n-tensors-%x" % n, "%d entries: 64 times that is %d modulo 2^32" % (n, 64 * n % U32),
                         "n-tensors-wrap", 584, "layout", n=n)  # fmt: skip
        n, start = 1 << 26, (1 << 32) + 448
        yield formed("n-tensors-2-26-right", "2^26 entries and a data_offset behind them", "n-tensors-wrap 64-bits",
                     start + 72, n=n, start=start, stop=start + 64, level="recommended")  # fmt: skip
        yield formed("empty-data", "file_len is data_offset", "empty-data", 584, "layout", start=576)
        yield formed("stop-before-start", "file_len is below data_offset", "empty-data", 584, "layout", start=640)
        yield formed("one-byte", "a data area of one byte", "empty-data", 521, stop=513)
        yield formed(
            "odd-length", "file_len is no multiple of 64, as data_offset must be", "empty-data", 1007, stop=999
        )
        for plus in (1, 7, 8, 23, 63, 64, 4096):
            yield formed("%d-more" % plus, "%d bytes behind the tag" % plus, "file-len", 584 + plus, "bounds")
        for less in (1, 7, 8, 9, 63, 64):
            yield formed("%d-less" % less, "the last %d bytes are missing" % less, "file-len", 584 - less, "truncated")
        yield formed("enc-flag", "flag ENC over plain data: the tag is 24 bytes short", "tag-length", 584, "truncated",
                     flags=EMB_F16 | ENC)  # fmt: skip
        yield formed("no-enc-flag", "encrypted data without flag ENC: 24 bytes too many", "tag-length", 608, "bounds")
        yield formed("enc-signing-tool", "32 bytes too many, as the engine's signing tool leaves them", "file-len", 640,
                     "bounds", flags=EMB_F16 | ENC | SIGNED)  # fmt: skip
        for name, stop in (
            ("2-32", U32 + 576), ("2-63", (1 << 63) + 576), ("2-64", U64 - 8), ("2-64-less-64", U64 - 64),
            ("minus-1", U64 - 1),
        ):  # fmt: skip
            yield formed("stop-" + name, "file_len 0x%x, the file has 584 bytes" % stop, "64-bits", 584, "truncated",
                         stop=stop)  # fmt: skip
        for name, start in (("2-32", U32 + 512), ("2-63", (1 << 63) + 512), ("minus-64", U64 - 64)):
            yield formed("start-" + name, "data_offset 0x%x in a file of 584 bytes" % start, "64-bits", 584, "layout",
                         start=start)  # fmt: skip
        for name, start, stop in (
            ("4-gib", 512, U32 + 64), ("5-gb", 4096, 5_000_000_000), ("far-start", U32 + 4096, U32 + 8192),
            ("2-53", 4096, (1 << 53) + 64), ("2-63", 4096, (1 << 63) - 64), ("over-2-63", 4096, (1 << 63) + 64),
        ):  # fmt: skip
            yield formed("size-" + name, "a file of %d bytes" % (stop + 8), "64-bits", stop + 8, start=start, stop=stop,
                         level="required" if stop < 1 << 40 else "recommended")  # fmt: skip
        yield formed(
            "size-2-32-more", "the file is 2^32 bytes longer than it should be", "64-bits", U32 + 584, "bounds"
        )

    # gate 6, which form: the MoE words lie where the 432-byte form has its numbers, the IV where the other has them
    def both(
        name: str, comment: str, flags: str, ours: tuple[int, int], theirs: tuple[int, int], size: int,
        error: str | None = None,
    ) -> Iterator[Case]:  # fmt: skip
        """Two readings, in both arrangements: ours in one form, theirs in the other."""
        for form, other in ((448, 432), (432, 448)):
            head = bytearray(header_bytes(TINY, start=ours[0], stop=ours[1], form=form))
            struct.pack_into("<QQ", head, PLACES[other], *theirs)
            yield one("%s-%d" % (name, form), comment, flags, bytes(head), size, error, "recommended")

    yield next(both("both-same", "both readings are the same", "form-both", (512, 576), (512, 576), 584, "layout"))
    yield from both("both-other-start", "both readings fit, one with another data_offset", "form-both", (512, 704),
                    (576, 704), 712, "layout")  # fmt: skip
    yield from both(
        "neither-fits",
        "both readings are well-formed, neither fits",
        "form-both",
        (512, 576),
        (512, 640),
        700,
        "layout",
    )
    yield from both("other-formed", "the other reading is well-formed, and of another size", "form-fit", (512, 576),
                    (512, 640), 584)  # fmt: skip
    yield from both("other-shorter", "the other reading is well-formed, and of a smaller size", "form-fit", (512, 704),
                    (512, 576), 712)  # fmt: skip
    yield from both("other-unaligned", "the other reading has the right size and a data_offset of 520", "form-fit",
                    (512, 576), (520, 576), 584)  # fmt: skip
    yield from both("other-in-directory", "the other reading has the right size and a data_offset in the directory",
                    "form-fit", (512, 576), (448, 576), 584)  # fmt: skip
    yield from both("other-zero-start", "the other reading has the right size and data_offset 0", "form-fit",
                    (512, 576), (0, 576), 584)  # fmt: skip
    yield from both(
        "other-empty", "the other reading has the right size and no data", "form-fit", (512, 576), (576, 576), 584
    )
    yield from both("other-32-bits", "the other reading would fit if 32 bits were read", "form-fit 64-bits", (512, 576),
                    (U32 + 512, U32 + 576), 584)  # fmt: skip
    moe = {**MODELS["moe"].arch, "moe_ffn": 768, "top_k": 8, "shared_experts": 1}
    head = header_bytes(moe, 0x220, version=3)
    yield one("moe-words", "MoE words that a reader of the 432-byte form takes for offsets", "form-fit", head, 584)


# ---- vqf_directory: gate 7


def make_vqf_directory(_: dict[str, Case]) -> Iterator[Case]:
    def one(
        name: str, comment: str, flags: str, entries: list[tuple[int, int]], *, good: bool = True, start: int = 640,
        stop: int = 1024, form: int = 448, enc: bool = False, level: str = "required",
    ) -> Case:  # fmt: skip
        """Entries as (offset, bytes); the verdict is proved with unbounded integers."""
        prove(good == all(start <= o and o + n <= stop for o, n in entries), "the directory " + name)
        size = stop + (32 if enc else 8)
        head = header_bytes(TINY, EMB_F16 | (ENC if enc else 0), len(entries), start, stop, form=form)
        prove(head_fault(head, size) == (None, form), "the header of " + name)
        directory = b"".join(
            struct.pack("<32sIII4xQQ", b"t%d" % i, F32, n // 4 % U32, 1, offset, n)
            for i, (offset, n) in enumerate(entries)
        )
        into = {"size": number(size), "head": head, "directory": directory}
        flags = flags_of(flags)
        out = {"n": len(entries)} if good else {}
        return case("vqf-directory-" + name, comment, GENERATOR, flags, into, out, None if good else "bounds", level)

    for form in (448, 432):
        yield one("three-%d" % form, "three tensors, the %d-byte header" % form, "form-432" if form == 432 else "",
                  [(640, 64), (704, 256), (960, 64)], form=form)  # fmt: skip
        yield one(
            "whole-%d" % form, "a tensor that fills the data area", "upper-bound lower-bound", [(640, 384)], form=form
        )
        yield one("end-plus-64-%d" % form, "it ends 64 bytes behind file_len", "upper-bound", [(960, 128)], good=False,
                  form=form)  # fmt: skip
        yield one("begin-minus-64-%d" % form, "it begins 64 bytes before data_offset", "lower-bound", [(576, 64)],
                  good=False, form=form, level="recommended")  # fmt: skip
    yield one("none", "a directory of no entries", "zero-sized", [], start=448, stop=512)
    yield one("many", "60 tensors", "every-entry", [(4288 + 64 * i, 64) for i in range(60)], start=4288, stop=8128)
    yield one("same-place", "tensors that share bytes: not this gate's business", "", [(640, 64), (640, 64)])
    yield one("backwards", "offsets that go down", "", [(960, 64), (640, 64)])
    yield one("unaligned", "an offset that is no multiple of 64: not this gate's business", "", [(641, 64)])
    for plus in (1, 4, 8, 63):
        yield one("end-plus-%d" % plus, "it ends %d bytes behind file_len" % plus, "upper-bound bounds-tag"
                  if plus < 9 else "upper-bound", [(960, 64 + plus)], good=False)  # fmt: skip
    for less in (1, 63):
        yield one("end-minus-%d" % less, "it ends %d bytes before file_len" % less, "upper-bound", [(960, 64 - less)])
    yield one("over-tag", "it ends where the file does, behind the tag", "bounds-tag", [(640, 392)], good=False)
    yield one(
        "over-enc-tag", "the same, with the 32 bytes of an HMAC", "bounds-tag", [(640, 416)], good=False, enc=True
    )
    yield one("enc", "an encrypted file", "", [(640, 384)], enc=True)
    yield one("in-tag", "it begins at file_len: the tag", "bounds-tag upper-bound", [(1024, 8)], good=False)
    yield one("behind", "it begins behind the file", "upper-bound", [(4096, 64)], good=False)
    for place in (0, 64, 448, 512):
        text = "it begins at %d: in the %s" % (place, "header" if place < 448 else "directory")
        yield one("begin-%d" % place, text, "lower-bound", [(place, 64)], good=False, level="recommended")
    yield one("begin-minus-1", "it begins one byte before data_offset", "lower-bound", [(639, 64)], good=False,
              level="recommended")  # fmt: skip
    yield one("header-to-end", "it begins with the file and ends at file_len", "lower-bound", [(0, 1024)], good=False,
              level="recommended")  # fmt: skip
    fine = [(704, 64), (768, 64), (832, 64), (896, 64)]
    for index in range(4):
        for name, bad, flags, level in (
            ("behind", (1024, 64), "upper-bound every-entry", "required"),
            ("before", (640, 64), "lower-bound every-entry", "recommended"),
        ):
            entries = [bad if i == index else e for i, e in enumerate(fine)]
            yield one("%s-entry-%d" % (name, index), "entry %d of 4 is the bad one" % index, flags, entries, good=False,
                      start=704, level=level)  # fmt: skip
    # what wraps
    for name, offset, n in (
        ("end-0", U64 - 64, 64), ("end-start", U64 - 64, 64 + 640), ("end-inside", U64 - 64, 64 + 704),
        ("end-stop", U64 - 64, 64 + 1024), ("end-1", U64 - 1, 2), ("length-minus-64", 704, U64 - 64),
        ("length-minus-1", 1024, U64 - 1), ("length-max", 640, U64 - 1), ("length-to-start", 960, U64 - 320),
        ("halves", 1 << 63, (1 << 63) + 704),
    ):  # fmt: skip
        prove(offset + n >= U64 and (offset + n) % U64 <= 1024, "offset + bytes wraps into the file")
        yield one(
            "wrap-64-" + name,
            "offset 0x%x, bytes 0x%x: the end is 0x%x modulo 2^64" % (offset, n, (offset + n) % U64),
            "bounds-wrap",
            [(offset, n)],
            good=False,
            level="recommended",
        )
    for name, offset, n in (
        ("offset", U32 + 640, 64), ("length", 640, U32 + 64), ("end", U32 - 64, 64 + 704), ("both", U32 + 640, U32 + 64),
    ):  # fmt: skip
        prove((offset + n) % U32 <= 1024 < offset + n, "the end wraps into the file at 2^32")
        yield one(
            "wrap-32-" + name,
            "offset 0x%x, bytes 0x%x: inside the file modulo 2^32" % (offset, n),
            "bounds-wrap",
            [(offset, n)],
            good=False,
        )
    for name, offset, n in (
        ("offset-2-63", 1 << 63, 64), ("length-2-63", 640, 1 << 63), ("offset-minus-2-63", (1 << 63) + 640, 0),
        ("end-2-64-less-64", U64 - 128, 64),
    ):  # fmt: skip
        yield one(name, "offset 0x%x, bytes 0x%x: negative where numbers are signed" % (offset, n), "bounds-wrap",
                  [(offset, n)], good=False)  # fmt: skip
    big = {"start": 4096, "stop": 5 * U32}
    yield one("big", "tensors beyond 2^32", "64-bits", [(4096, 4 * U32), (4 * U32 + 4096, U32 - 4096)], **big)
    yield one(
        "big-over", "its end is one block too far, beyond 2^32", "upper-bound", [(4 * U32, U32 + 64)], good=False, **big
    )
    # no bytes
    for name, offset, good in (
        ("start", 640, True), ("inside", 704, True), ("stop", 1024, True), ("behind-stop", 1088, False),
        ("stop-plus-1", 1025, False), ("before-start", 576, False), ("zero", 0, False), ("max", U64 - 64, False),
    ):  # fmt: skip
        yield one("empty-at-" + name, "a tensor of no bytes at %d" % offset, "zero-sized", [(offset, 0)], good=good,
                  level="recommended" if offset < 640 else "required")  # fmt: skip


# ---- vqf_geometry: plans, by section 6

DENSE = {"dim": 64, "n_layers": 2, "n_heads": 4, "n_kv_heads": 2, "head_dim": 32, "ffn_dim": 96, "vocab_size": 64,
         "has_q_norm": 1}  # fmt: skip
SEEING = {"has_vision": 1, "vis_depth": 1, "vis_hidden": 32, "vis_heads": 2, "vis_ffn": 40, "vis_patch": 4,
          "vis_temporal": 2, "vis_merge": 2, "vis_out_dim": 64, "vis_in_chan": 3, "vis_max_pos": 16,
          "vis_ds_count": 1}  # fmt: skip
ARCHS = {
    "dense": DENSE,
    "mini": {**DENSE, "dim": 32, "n_layers": 1, "n_heads": 1, "n_kv_heads": 1, "ffn_dim": 32, "vocab_size": 32},
    "moe": {**DENSE, "ffn_dim": 128, "n_experts": 4, "moe_ffn": 32, "top_k": 2},
    "tied-f16-vocab66": {**DENSE, "vocab_size": 66},
    "vision": {**DENSE, **SEEING},
    "odd-rows": {**DENSE, "n_heads": 3, "n_kv_heads": 1, "head_dim": 20, "vocab_size": 68},
}  # the models of files/models
QWEN_2B = {
    "dim": 2048,
    "n_layers": 28,
    "n_heads": 16,
    "n_kv_heads": 8,
    "head_dim": 128,
    "ffn_dim": 6144,
    "vocab_size": 151936,
    "has_q_norm": 1,
    "has_vision": 1,
    "vis_depth": 24,
    "vis_hidden": 1024,
    "vis_heads": 16,
    "vis_ffn": 4096,
    "vis_patch": 16,
    "vis_temporal": 2,
    "vis_merge": 2,
    "vis_out_dim": 2048,
    "vis_in_chan": 3,
    "vis_max_pos": 2304,
    "vis_ds_count": 3,
}
QWEN_30B = {
    "dim": 2048,
    "n_layers": 48,
    "n_heads": 32,
    "n_kv_heads": 4,
    "head_dim": 128,
    "ffn_dim": 98304,
    "vocab_size": 151936,
    "has_q_norm": 1,
    "n_experts": 128,
    "moe_ffn": 768,
    "top_k": 8,
}
FAMILIES = {"dual": "84", "q4": "4", "q8": "8", "q4i": "8", "g256": "8"}
PLAN_WORDS = ("version", "flags", "n_tensors", "data_offset", "file_len", "size")


def plan(words: dict[str, int], wmode: str, x8: bool = False, tile: int = 8, form: int = 448) -> dict[str, int] | str:
    """What vqf_geometry gives for an arch, or the class of the first fault."""
    if wmode not in FAMILIES or tile not in (8, 4, 0) or form not in (448, 432):
        return "unsupported"
    a: Arch = {**dict.fromkeys(WORDS, 0), **words}
    if not all(0 <= v < U32 for v in a.values()):
        return "range"
    if not all(a[word] for word in POSITIVE):
        return "header"
    if a["n_kv_heads"] == 0 or a["n_heads"] % a["n_kv_heads"]:
        return "shape"
    moe = a["n_experts"] > 0
    if moe and (a["ffn_dim"] != a["n_experts"] * a["moe_ffn"] or not 1 <= a["top_k"] <= a["n_experts"]):
        return "shape"
    dim, ff, V = a["dim"], a["ffn_dim"], a["vocab_size"]
    q_out, k_out = a["n_heads"] * a["head_dim"], a["n_kv_heads"] * a["head_dim"]
    seven = [(q_out, dim), (k_out, dim), (k_out, dim), (dim, q_out), (ff, dim), (ff, dim), (dim, ff)]
    if (moe and form == 432) or (x8 and (wmode != "q4" or any(r % 8 or c % 32 for r, c in seven))):
        return "unsupported"
    layers = [r * c for r, c in (*seven, (V, dim))]
    if a["has_vision"]:
        vh, vf = a["vis_hidden"], a["vis_ffn"]
        layers += [3 * vh * vh, vh * vh, vf * vh, vh * align(vf, 32)]
    if any(n % 32 for n in layers):
        return "shape"
    flags = EMB_F16 | (q4_gate(a) and Q4_4X4) | (x8 and HAS_X8) | (moe and MOE) | (a["has_vision"] and VISION)
    flags |= {"q4i": Q8BUF_Q4, "g256": G256}.get(wmode, 0)
    flags |= Q8_8X8 if q8_gate(a) and tile == 8 and wmode != "q4i" else 0
    rows = text_rows(a, FAMILIES[wmode] + "x" * x8) + (vision_rows(a) if a["has_vision"] else [])
    if any(r.rows >= U32 or r.cols >= U32 for r in rows):
        return "range"
    start = align(DIRECTORY + 64 * len(rows), 4096)
    stop = start + sum(align(r.bytes) for r in rows)
    return (
        dict(zip(PLAN_WORDS, (3 if moe else 2, flags, len(rows), start, stop, stop + 8))) if stop + 8 < U64 else "range"
    )


def make_vqf_geometry(_: dict[str, Case]) -> Iterator[Case]:
    def one(
        name: str, comment: str, marks: str, words: dict[str, int], wmode: str = "q4", *, x8: bool = False, tile: int = 8,
        form: int = 448, error: str | None = None, level: str = "required", **out: int,
    ) -> Case:  # fmt: skip
        """`error` and `out` are what must come out; the plan of this file says the same."""
        prove(set(words) <= set(WORDS), "words of the format")
        made = plan(words, wmode, x8, tile, form)
        prove(made == error if isinstance(made, str) else error is None, "the plan %s: %s" % (name, made))
        outputs = {} if isinstance(made, str) else made
        prove(all(outputs.get(k) == v for k, v in out.items()), "the plan %s: %s" % (name, made))
        text = ",".join("%s:%d" % item for item in words.items())
        into = {"wmode": wmode, "x8": int(x8), "q8_tile": tile, "form": form, "arch": text}
        marks = flags_of(marks, "vqf-plan-")
        return case("vqf-geometry-" + name, comment, GENERATOR, marks, into,
                    {k: number(v) for k, v in outputs.items()}, error, level)  # fmt: skip

    # known files, and the models of the conversions
    yield one("2b-q4", "Qwen3-VL-2B: a real file", "64-bits vision", QWEN_2B, "q4", n_tensors=41, data_offset=4096,
              file_len=2331316224, size=2331316232)  # fmt: skip
    yield one("2b-dual", "Qwen3-VL-2B: a real file", "64-bits vision wmode", QWEN_2B, "dual", n_tensors=49,
              size=4159295496, flags=0x63)  # fmt: skip
    yield one("30b-q4", "Qwen3-30B-A3B: a real file", "64-bits moe", QWEN_30B, "q4", size=17665601544, flags=0x223,
              version=3)  # fmt: skip
    for wmode in ("q8", "q4i", "g256"):
        yield one("2b-" + wmode, "Qwen3-VL-2B", "64-bits wmode", QWEN_2B, wmode)
        yield one("30b-" + wmode, "Qwen3-30B-A3B", "64-bits moe wmode", QWEN_30B, wmode)
    yield one("30b-dual", "Qwen3-30B-A3B", "64-bits moe", QWEN_30B, "dual")
    for model, words in ARCHS.items():
        kind = {"moe": "moe", "vision": "vision fc2", "odd-rows": "q8-gate", "tied-f16-vocab66": "q4-gate"}.get(
            model, "wmode"
        )
        for wmode in FAMILIES:
            yield one("%s-%s" % (model, wmode), "%s, %s" % (model, wmode), kind, words, wmode)
        if model != "moe":
            yield one("%s-432" % model, "the 432-byte header: nothing else changes", kind, words, form=432)
        if model != "odd-rows":
            yield one("%s-x8" % model, "with x8 copies", "x8", words, x8=True)
    for wmode in FAMILIES:
        for tile in (4, 0):
            yield one(
                "tile-%d-%s" % (tile, wmode),
                "%s, q8 in %s" % (wmode, "tiles of 4 rows" if tile else "linear rows"),
                "tile",
                DENSE,
                wmode,
                tile=tile,
            )
    yield one("tile-4-odd-rows", "tiles of 4 rows where those of 8 don't fit", "tile", ARCHS["odd-rows"], "q8", tile=4)

    # the gates of the tiles
    base = {"dim": 32, "n_layers": 1, "n_heads": 2, "n_kv_heads": 1, "head_dim": 8, "ffn_dim": 32, "vocab_size": 8}
    yield one("gates-both", "the good twin: both gates pass", "q4-gate q8-gate", base, "dual", flags=0x23)
    for name, words, flags, which in (
        ("v-1", {"vocab_size": 9}, 0x21, "q4-gate q8-gate"),
        ("v-2", {"vocab_size": 10}, 0x21, "q4-gate q8-gate"),
        ("v-4", {"vocab_size": 12}, 0x23, "q4-gate q8-gate"),
        ("k-4", {"head_dim": 4}, 0x22, "q4-gate q8-gate"),
        ("k-12", {"head_dim": 12}, 0x22, "q8-gate"),
        ("k-2", {"head_dim": 2}, 0x20, "q4-gate q8-gate"),
        ("k-10", {"head_dim": 10}, 0x20, "q4-gate"),
        ("q-6", {"n_heads": 3, "head_dim": 2}, 0x20, "q4-gate"),
        ("k-8-by-heads", {"n_heads": 8, "n_kv_heads": 4, "head_dim": 2}, 0x23, "q4-gate q8-gate"),
        ("dim-16", {"dim": 16}, 0x20, "q4-gate q8-gate"),
        ("dim-48", {"dim": 48}, 0x20, "q4-gate q8-gate"),
        ("dim-8", {"dim": 8}, 0x20, "q4-gate q8-gate"),
        ("dim-96", {"dim": 96}, 0x23, "q4-gate q8-gate"),
        ("ffn-16", {"ffn_dim": 16}, 0x20, "q4-gate q8-gate"),
        ("ffn-40", {"ffn_dim": 40}, 0x20, "q4-gate q8-gate"),
        ("ffn-33", {"ffn_dim": 33}, 0x20, "q4-gate q8-gate"),
        ("ffn-64", {"ffn_dim": 64}, 0x23, "q4-gate q8-gate"),
    ):  # fmt: skip
        for wmode in ("dual", "q8") if name in ("v-2", "k-12", "dim-16") else ("dual",):
            yield one("gates-%s-%s" % (name, wmode), "flags 0x%x" % flags, which, {**base, **words}, wmode, flags=flags)
    for wmode, flags in (("q4", 0x23), ("q8", 0x23), ("q4i", 0x2A), ("g256", 0x33)):
        yield one(
            "flags-" + wmode,
            "both tile flags, whatever tensors there are" if flags == 0x23 else "flags of " + wmode,
            "wmode q4-gate q8-gate",
            base,
            wmode,
            flags=flags,
        )
    yield one("flags-q4i-tile-0", "q4i never has Q8_8X8", "tile", base, "q4i", tile=0, flags=0x2A)
    moe = {**base, "n_experts": 4, "moe_ffn": 8, "top_k": 2}
    yield one(
        "moe-gates", "MoE: the gates ask ffn_dim, not the width of an expert", "moe q4-gate", moe, "dual", flags=0x223
    )
    yield one(
        "moe-one", "one expert", "moe", {**base, "n_experts": 1, "moe_ffn": 32, "top_k": 1}, version=3, flags=0x223
    )
    yield one("moe-top-k-all", "top_k is n_experts", "moe experts", {**moe, "top_k": 4})
    yield one("moe-words-dense", "n_experts 0: dense, whatever the other words say", "moe",
              {**base, "moe_ffn": 8, "top_k": 2}, version=2, flags=0x23, level="recommended")  # fmt: skip
    yield one("no-q-norm", "has_q_norm 0: two tensors less", "wmode page", {**DENSE, "has_q_norm": 0}, n_tensors=12)
    # the vision tower
    tower = {**base, **SEEING}
    for name, words, flags in (
        ("ffn-1", {"vis_ffn": 1}, "vision fc2"),
        ("ffn-31", {"vis_ffn": 31}, "vision fc2"),
        ("ffn-32", {"vis_ffn": 32}, "vision fc2"),
        ("ffn-33", {"vis_ffn": 33}, "vision fc2"),
        ("no-deepstack", {"vis_ds_count": 0}, "vision"),
        ("four-deepstack", {"vis_ds_count": 4}, "vision"),
        ("depth-3", {"vis_depth": 3}, "vision"),
        ("merge-1", {"vis_merge": 1}, "vision"),
        ("merge-3", {"vis_merge": 3}, "vision"),
        ("patch-1", {"vis_patch": 1, "vis_temporal": 1}, "vision"),
        ("patch-5", {"vis_patch": 5, "vis_temporal": 3}, "vision"),
        ("in-chan-4", {"vis_in_chan": 4}, "vision"),
        ("out-1", {"vis_out_dim": 1}, "vision"),
        ("max-pos-1", {"vis_max_pos": 1}, "vision"),
        ("hidden-8", {"vis_hidden": 8}, "vision"),
        ("hidden-64", {"vis_hidden": 64}, "vision"),
    ):
        yield one("vision-" + name, "a vision tower with %s" % ", ".join("%s %d" % w for w in words.items()), flags,
                  {**tower, **words})  # fmt: skip
    yield one(
        "vision-off",
        "has_vision 0: no tower, whatever the other words say",
        "vision",
        {**tower, "has_vision": 0},
        n_tensors=12,
        flags=0x23,
        level="recommended",
    )
    yield one("vision-dual-57", "49 tensors on one page", "vision page", tower, "dual", n_tensors=47, data_offset=4096)
    yield one("vision-dual-x", "the 57th entry fills the page, the 58th would not", "page",
              {**tower, "has_q_norm": 1}, "dual", n_tensors=49, data_offset=4096)  # fmt: skip
    # sizes
    wide = {"dim": 1 << 31, "n_layers": 1, "n_heads": 1, "n_kv_heads": 1, "head_dim": 32, "ffn_dim": 1 << 31,
            "vocab_size": 1 << 28}  # fmt: skip
    deep = {"dim": 1 << 20, "n_layers": 1 << 10, "n_heads": 1 << 13, "n_kv_heads": 1 << 13, "head_dim": 128,
            "ffn_dim": 1 << 20, "vocab_size": 1 << 20}  # fmt: skip
    for name, words, wmode, low in (("2-53", deep, "dual", 1 << 53), ("2-63", wide, "q4", 1 << 63)):
        made = plan(words, wmode)
        prove(isinstance(made, dict) and made["size"] > low, "it is that big")
        yield one(
            "size-" + name, "a file of more than 2^%s bytes" % name[2:], "64-bits", words, wmode, level="recommended"
        )
    odd = {**base, "dim": U32 - 32, "vocab_size": (1 << 28) + 1}
    made = plan(odd, "q4")
    prove(isinstance(made, dict) and int(float(made["size"])) != made["size"], "no double holds its size")
    yield one("size-odd", "sizes that doubles don't hold", "64-bits", odd, level="recommended")
    step = {**wide, "n_heads": 1 << 10, "vocab_size": 1}
    most, too_many = 1, 1 << 20  # times 4096 rows of vocabulary
    while too_many - most > 1:
        middle = (most + too_many) // 2
        fits = plan({**step, "vocab_size": middle << 12}, "q8") != "range"
        most, too_many = (middle, too_many) if fits else (most, middle)
    last = {**step, "vocab_size": most << 12}
    yield one(
        "size-last", "the last of these whose size 64 bits hold", "range 64-bits", last, "q8", level="recommended"
    )
    yield one(
        "size-2-64",
        "4096 rows of vocabulary more: beyond 2^64",
        "range",
        {**last, "vocab_size": too_many << 12},
        "q8",
        error="range",
        level="recommended",
    )
    # rows and cols have 32 bits
    for name, words, error in (
        ("v-max", {"vocab_size": U32 - 1}, None),
        ("layers-last", {"n_layers": (1 << 27) - 1}, None),
        ("layers-wrap", {"n_layers": 1 << 27}, "range"),
        ("layers-wrap-32", {"n_layers": (1 << 27) + 1}, "range"),
        ("q-last", {"n_heads": (1 << 29) - 1}, None),
        ("q-wrap", {"n_heads": 1 << 29}, "range"),
        ("q-wrap-8", {"n_heads": (1 << 29) + 1}, "range"),
        ("k-wrap", {"n_heads": 1 << 30, "n_kv_heads": 1 << 30, "head_dim": 4}, "range"),
        ("o-rows-wrap", {"n_layers": 1 << 10, "n_heads": 1 << 19, "dim": 32}, "range"),
        ("ffn-rows-wrap", {"n_layers": 1 << 10, "ffn_dim": 1 << 22}, "range"),
        ("ffn-rows-last", {"n_layers": 1 << 10, "ffn_dim": (1 << 22) - 32}, None),
        ("q-norm-wrap", {"has_q_norm": 1, "n_layers": 1 << 20, "dim": 1, "n_heads": 1, "head_dim": 1 << 12,
                         "ffn_dim": 32, "vocab_size": 32}, "range"),
        ("router-wrap", {"n_layers": 1 << 16, "dim": 32, "ffn_dim": 1 << 16, "n_experts": 1 << 16, "moe_ffn": 1, "top_k": 1},
         "range"),
        ("vision-qkv-wrap", {**SEEING, "vis_hidden": 37888}, "range"),
        ("vision-qkv-last", {**SEEING, "vis_hidden": 37832, "vis_merge": 1}, None),
        ("vision-merger-wrap", {**SEEING, "vis_merge": 1 << 6, "vis_hidden": 32}, "range"),
        ("vision-patch-wrap", {**SEEING, "vis_patch": 1 << 13}, "range"),
        ("vision-pos-wrap", {**SEEING, "vis_max_pos": 1 << 27}, "range"),
    ):  # fmt: skip
        yield one(
            "rows-" + name,
            "%s in 32 bits" % ("rows or cols don't fit" if error else "rows and cols just fit"),
            "range",
            {**base, **words},
            error=error,
            level="recommended",
        )
    for word in ("dim", "n_layers", "n_heads", "n_kv_heads", "ffn_dim", "vocab_size"):
        yield one(
            "%s-2-32" % word.replace("_", "-"),
            "%s is 2^32 and 32 more" % word,
            "range",
            {**base, word: U32 + 32},
            error="range",
            level="recommended",
        )
    for word in ("max_seq_len", "bos_id", "vis_heads", "shared_experts"):
        yield one(
            "%s-2-32" % word.replace("_", "-"),
            "%s is 2^32: no size depends on it, but a word does not hold it" % word,
            "range",
            {**base, word: U32},
            error="range",
            level="recommended",
        )
        yield one("%s-max" % word.replace("_", "-"), "the good twin: %s is 2^32 - 1" % word, "range",
                  {**base, word: U32 - 1}, level="recommended")  # fmt: skip
    yield one("dim-negative", "dim is -32", "range", {**base, "dim": -32}, error="range", level="recommended")
    yield one("vis-depth-2-32", "vis_depth is 2^32 + 1", "range", {**tower, "vis_depth": U32 + 1}, error="range",
              level="recommended")  # fmt: skip
    # an arch that no reader would take
    for word in POSITIVE:
        yield one("%s-0" % word.replace("_", "-"), "%s is 0" % word, "zero", {**base, word: 0}, error="header",
                  level="recommended")  # fmt: skip
    for heads, kv in ((2, 0), (3, 2), (2, 3), (1, 2), (8, 3)):
        yield one("heads-%d-%d" % (heads, kv), "%d heads, %d for key and value" % (heads, kv), "heads",
                  {**base, "n_heads": heads, "n_kv_heads": kv}, error="shape", level="recommended")  # fmt: skip
    for heads, kv in ((1, 1), (8, 8), (12, 4)):
        yield one("heads-%d-%d" % (heads, kv), "%d heads, %d for key and value" % (heads, kv), "heads",
                  {**base, "n_heads": heads, "n_kv_heads": kv})  # fmt: skip
    for name, words in (
        ("ffn-64", {"ffn_dim": 64}), ("ffn-8", {"ffn_dim": 8}), ("moe-ffn-0", {"moe_ffn": 0}),
        ("wrap", {"n_experts": 65536, "moe_ffn": 65537, "ffn_dim": 65536}), ("top-k-0", {"top_k": 0}),
        ("top-k-5", {"top_k": 5}), ("top-k-max", {"top_k": U32 - 1}),
    ):  # fmt: skip
        yield one("experts-" + name, "4 experts of 8: %s" % ", ".join("%s %d" % w for w in words.items()), "experts",
                  {**moe, **words}, error="shape", level="recommended")  # fmt: skip
    one_expert = {**moe, "n_experts": 1, "moe_ffn": 32, "top_k": 1}
    for name, words in (("ffn", {"moe_ffn": 16}), ("top-k", {"top_k": 2})):
        yield one("one-expert-" + name, "one expert: %s" % ", ".join("%s %d" % w for w in words.items()), "experts",
                  {**one_expert, **words}, error="shape", level="recommended")  # fmt: skip
    # blocks
    for name, words in (
        ("q", {"dim": 4, "n_heads": 1, "head_dim": 4}), ("k", {"dim": 4, "n_heads": 4, "head_dim": 4}),
        ("ffn", {"dim": 4, "ffn_dim": 12}), ("lm", {"dim": 4, "vocab_size": 7}), ("lm-odd", {"dim": 8, "vocab_size": 33}),
        ("layers", {"dim": 4, "n_heads": 4, "head_dim": 4, "n_layers": 2}),
    ):  # fmt: skip
        yield one(
            "blocks-" + name,
            "a matrix of the text model is no whole number of blocks",
            "blocks",
            {**base, **words},
            error="shape",
        )
    for name, words in (
        ("proj", {"vis_hidden": 4}), ("fc1", {"vis_hidden": 8, "vis_ffn": 5}), ("hidden-12", {"vis_hidden": 12}),
        ("fc1-ffn-0-1", {"vis_hidden": 8, "vis_ffn": 1}),
    ):  # fmt: skip
        yield one("blocks-vision-" + name, "a matrix of the vision tower is no whole number of blocks", "blocks vision",
                  {**tower, **words}, error="shape")  # fmt: skip
    yield one("blocks-v-33", "the good twin: rows that are no blocks, a matrix that is", "blocks",
              {**base, "dim": 16, "vocab_size": 34})  # fmt: skip
    # arguments
    for wmode in ("q5", "Q4", "q4_0", "q4+8x8l", "auto", ""):
        yield one("wmode-%s" % (wmode.replace("_", "-").replace("+", "-") or "empty").replace("Q4", "upper-case"),
                  "wmode %r" % wmode, "arguments", base, wmode, error="unsupported")  # fmt: skip
    for tile in (1, 2, 5, 16, -8):
        yield one("tile-%d" % tile if tile > 0 else "tile-negative", "tiles of %d rows" % tile, "arguments", base, "q8",
                  tile=tile, error="unsupported")  # fmt: skip
    for form in (0, 41, 45, 232, 440, 464):
        yield one("form-%d" % form, "a header of %d" % form, "arguments", base, form=form, error="unsupported")
    for wmode in ("dual", "q8", "q4i", "g256"):
        yield one("x8-" + wmode, "x8 copies go with q4 alone", "x8", DENSE, wmode, x8=True, error="unsupported")
    for name, words in (
        ("k-4", {"head_dim": 4, "n_heads": 8}), ("k-12", {"head_dim": 12, "n_heads": 8}), ("q-out-16", {}),
        ("q-out-48", {"n_heads": 6}), ("dim-16", {"dim": 16, "n_heads": 4}), ("ffn-16", {"ffn_dim": 16, "n_heads": 4}),
        ("ffn-40", {"ffn_dim": 40, "n_heads": 4}), ("dim-48", {"dim": 48, "n_heads": 4}),
    ):  # fmt: skip
        yield one("x8-" + name, "rows not in eights or columns not in thirty-twos", "x8", {**base, **words}, x8=True,
                  error="unsupported", level="recommended")  # fmt: skip
    yield one("x8-fits", "the good twin", "x8", {**base, "n_heads": 4}, x8=True, n_tensors=19, flags=0x27)
    yield one(
        "x8-v-9", "the vocabulary is not asked", "x8", {**base, "n_heads": 4, "vocab_size": 9}, x8=True, flags=0x25
    )
    for wmode in FAMILIES:
        yield one("moe-432-" + wmode, "a MoE model has no room in the 432-byte header", "moe", moe, wmode, form=432,
                  error="unsupported")  # fmt: skip


# ---- vqf_convert

MODES = {"q4+8x8l": ("q4", 1, 8), "q8 4x4": ("q8", 0, 4)}  # as the engine's list names them
HEADERS = {45: 448, 41: 432}


def make_vqf_convert(kept: dict[str, Case]) -> Iterator[Case]:
    yield from converted_models(kept)
    for name, comment, error, model, wmode, x8, tile, form in (
        *(("x8-" + w, "x8 copies go with q4 alone", "unsupported", "dense", w, 1, 8, 448) for w in FAMILIES if w != "q4"),
        ("x8-odd-rows", "x8 copies of matrices that don't fit them", "unsupported", "odd-rows", "q4", 1, 8, 448),
        *(("moe-432-" + w, "a MoE model has no room in the 432-byte header", "unsupported", "moe", w, 0, 8, 432)
          for w in FAMILIES),
        ("wmode-q5", "an unknown wmode", "unsupported", "mini", "q5", 0, 8, 448),
        ("wmode-empty", "no wmode", "unsupported", "mini", "", 0, 8, 448),
        ("tile-16", "tiles of 16 rows", "unsupported", "mini", "q8", 0, 16, 448),
        ("form-440", "a header of 440 bytes", "unsupported", "mini", "q4", 0, 8, 440),
    ):  # fmt: skip
        into = {"model": model, "wmode": wmode, "x8": x8, "q8_tile": tile, "form": form}
        prove(plan(ARCHS[model], wmode, bool(x8), tile, form) == error, "the plan is refused")
        flag = {"x8": "x8", "mo": "moe"}.get(name[:2], "arguments")
        yield case("vqf-convert-" + name, comment, GENERATOR, "vqf-plan-" + flag, into, error=error)


def converted_models(kept: dict[str, Case]) -> Iterator[Case]:
    """What the engine's converter makes; every plan of this file agrees."""
    rows = []
    if VECTORS:
        rows = json.loads((VECTORS / "convert-expected.json").read_text("utf-8"))
    else:
        print("without the engine's vectors the cases of conversion stay as they are")
        yield from (c for c in kept.values() if c["result"] == "valid" and c["in"]["model"] != "mini")
    for r in rows:
        wmode, x8, tile = MODES.get(r["wmode"], (r["wmode"], 0, 8))
        model, form = r["model"], HEADERS[r["header"]]
        made = plan(ARCHS[model], wmode, bool(x8), tile, form)
        prove(
            isinstance(made, dict)
            and [made[k] for k in ("size", "flags", "n_tensors")] == [r["size"], r["flags"], r["n"]],
            "the plan of %s %s is the engine's" % (model, r["wmode"]),
        )
        file = by_vqfref(model, wmode, x8, tile, form)
        prove(hashlib.sha256(file).hexdigest() == r["sha256"], "the file is the engine's")
        yield conversion(model, wmode, x8, tile, form, file)
    for form in (448, 432):
        file = (KAT / "files" / ("mini-q4-h%d-plain.vqf" % form)).read_bytes()
        yield conversion("mini", "q4", 0, 8, form, file)
    for c in kept.values():
        if c["result"] == "valid":
            into, out = c["in"], c["out"]
            made = plan(ARCHS[into["model"]], into["wmode"], bool(into["x8"]), into["q8_tile"], into["form"])
            prove(
                isinstance(made, dict) and all(made[k] == out[k] for k in ("size", "flags", "n_tensors")),
                "the plan agrees",
            )


def conversion(model: str, wmode: str, x8: int, tile: int, form: int, file: bytes) -> Case:
    into = {"model": model, "wmode": wmode, "x8": x8, "q8_tile": tile, "form": form}
    flags, n = struct.unpack_from("<II", file, 8)
    out = {"size": len(file), "flags": flags, "n_tensors": n, "sm3": sm3(file)}
    marks = ["form"] * (form == 432) + ["x8"] * x8 + ["q4"] * (wmode in ("q4", "dual")) + ["q4i"] * (wmode == "q4i")
    marks += ["q8"] * (wmode in ("q8", "dual")) + ["g256"] * (wmode == "g256") + ["experts"] * (model == "moe")
    marks += ["vision"] * (model == "vision") + ["tied"] * model.startswith("tied")
    name = "%s-%s%s%s-%d" % (model, wmode, "-x8" * x8, "-4x4" * (tile == 4), form)
    text = "%s as %s%s%s, the %d-byte header" % (
        model,
        wmode,
        " with x8 copies" * x8,
        " in tiles of 4 rows" * (tile == 4),
        form,
    )
    return case("vqf-convert-" + name, text, ENGINE, flags_of(" ".join(marks), "vqf-convert-"), into, out)


def by_vqfref(model: str, wmode: str, x8: int, tile: int, form: int) -> bytes:
    """vqfref's conversion; its SHA-256 is held against the engine's."""
    sys.path.insert(0, str(KAT.parent))
    from vqfref.kat.models import converted

    return converted(model, wmode, bool(x8), tile, form)[0]


MAKERS = {
    "vqf_header": make_vqf_header,
    "vqf_directory": make_vqf_directory,
    "vqf_file": make_vqf_file,
    "vqf_geometry": make_vqf_geometry,
    "vqf_convert": make_vqf_convert,
}

if __name__ == "__main__":
    ARGV = sys.argv[1:]
    VECTORS = Path(ARGV.pop()) if ARGV and ARGV[-1] != "--check" else None
    sys.exit(main(ARGV, __doc__, FLAGS, MAKERS, {"vqf": FILES}))

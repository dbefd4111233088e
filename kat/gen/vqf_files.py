"""The cases of vqf_file for kat/gen/vqf.py: whole VQF files, each with one fault or none, and the right tag.

A structural fault is built with a tag over the faulty file; `broken_seals` has those whose tag or signature is the
fault. The bad entry is a tensor more wherever that is possible, so that no tensor of the model is touched.
"""

from __future__ import annotations

import struct

from openssl import sm3
from suite import case, prove
from vqf_parts import (
    DIRECTORY,
    EMB_F16,
    ENC,
    F16,
    F32,
    G256,
    GENERATOR,
    HAS_X8,
    MODELS,
    MOE,
    PLACES,
    POSITIVE,
    Q4,
    Q4_4X4,
    Q8,
    Q8_8X8,
    Q8BUF_Q4,
    TINY,
    U32,
    U64,
    VISION,
    WORDS,
    X8,
    Model,
    Row,
    arch,
    build,
    canonical,
    faults,
    flags_of,
    fnv1a64,
    q4_gate,
    q8_gate,
    row,
    text_rows,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterator

    from suite import Case

FILES: dict[str, bytes] = {}
EXTRA = row("extra", F32, 16, 1)


def at(index: int, field: str = "name") -> int:
    """Where a field of a directory entry lies."""
    return DIRECTORY + 64 * index + {"name": 0, "qtype": 32, "rows": 36, "cols": 40, "offset": 48, "bytes": 56}[field]


def having(name: str, *rows: Row) -> Model:
    """One of MODELS with more tensors behind its own."""
    return MODELS[name]._replace(rows=[*MODELS[name].rows, *rows])


def without(name: str, *missing: str) -> Model:
    """One of MODELS that lacks some tensors."""
    return MODELS[name]._replace(rows=[r for r in MODELS[name].rows if r.name not in missing])


def with_row(name: str, tensor: str, **parts: Any) -> Model:
    """One of MODELS with another entry for a tensor."""
    m = MODELS[name]
    prove(tensor in [r.name for r in m.rows], "a tensor of the model")
    return m._replace(rows=[r._replace(**parts) if r.name == tensor else r for r in m.rows])


def with_words(name: str, **words: int) -> Model:
    """One of MODELS with other words in its header, the tensors as they are."""
    prove(set(words) <= set(WORDS), "words of the format")
    return MODELS[name]._replace(arch={**MODELS[name].arch, **words})


def judged(
    name: str, comment: str, flags: str, file: bytes, error: str | None = None, level: str = "recommended",
    also: str = "",
) -> Case:  # fmt: skip
    """One case and its file; what the readers of vqf_parts.py find is the named fault, and what `also` says follows."""
    found = faults(file)
    prove(found == ({error} if error else set()) | set(also.split()), "%s: %s" % (name, found))
    prove(file not in FILES.values(), "no file is another one's copy: " + name)
    FILES[name + ".vqf"] = file
    flags = flags_of(flags)
    return case("vqf-" + name, comment, GENERATOR, flags, {"path": "files/vqf/%s.vqf" % name}, {}, error, level)


def bad_tag(file: bytes) -> bytes:
    """The same plain file with its last byte changed."""
    return file[:-1] + bytes([file[-1] ^ 0x80])


def make_vqf_file(_: dict[str, Case]) -> Iterator[Case]:
    yield from good_files()
    yield from broken_heads()
    yield from broken_directories()
    yield from broken_names()
    yield from missing_tensors()
    yield from contradictions()
    yield from broken_seals()
    yield from encrypted_files()


def good_files() -> Iterator[Case]:
    """What must not be refused, each with a twin whose tag is wrong where the model is another."""
    flags = {
        "q4": "core",
        "vision": "flag-vision arch-vision",
        "no-deepstack": "deepstack",
        "moe": "core-moe flag-moe",
        "moe-q8": "core-moe",
        "x8": "flag-x8",
        "f32-embed": "flag-embed",
        "q4i": "flag-q4i",
        "tiled-q4i": "flag-q4i",
        "g256": "flag-g256",
        "q-norm": "arch-q-norm",
        "q8": "core",
        "tiled-q4": "flag-gates",
    }
    for name, m in MODELS.items():
        yield judged("good-" + name, "a whole model: " + name, flags.get(name, ""), build(m), level="required")
        if m.form == 448 and len(m.rows) < 20:
            file = bad_tag(build(m))
            yield judged("tag-of-" + name, "the same model, its tag wrong", "checksum", file, "tag", "required")
    for name in ("q4", "q-norm", "vision"):
        file = build(MODELS[name]._replace(form=432))
        yield judged("good-%s-432" % name, "with the 432-byte header", "form-432", file, level="required")
    yield judged("tag-of-q4-432", "the 432-byte header, its tag wrong", "checksum form-432",
                 bad_tag(build(MODELS["q4"]._replace(form=432))), "tag", "required")  # fmt: skip
    m = MODELS["q4"]
    file = build(m, start=4096)
    yield judged("good-page", "data on the next page, as the converter puts them", "", file, level="required")
    yield judged("tag-of-page", "data on the next page, the tag wrong", "checksum", bad_tag(file), "tag", "required")
    yield judged(
        "good-start-later", "128 bytes of padding behind the directory", "", build(m, start=1344), level="required"
    )
    file = build(m, seal=lambda *_: bytes(8))
    yield judged("checksum-none", "the stored checksum is 0, which means none", "checksum-none", file, level="required")
    file = build(m._replace(arch={**m.arch, "max_seq_len": U32 - 1, "bos_id": U32 - 1}))
    yield judged("good-high-words", "words of 2^32 - 1 where any number goes", "arch-any", file)
    for name, bits in (("q8-8x8", Q4_4X4), ("q4-4x4", Q8_8X8), ("tiles", 0)):
        file = build(MODELS["tiled-q4"]._replace(flags=EMB_F16 | bits))
        yield judged(
            "clear-" + name, "flags of tiles clear though the arch passes their gates: linear", "flag-gates", file
        )
    # other names
    for name, text in (
        ("longest", "n" * 31), ("punctuation", "model.layers.0/a-b:c%20;[]{}"), ("space", "two words"), ("tilde", "~"),
        ("one-letter", "x"), ("longer", "q4_qq"), ("shorter", "q4_"), ("upper-case", "Q4_Q"), ("prefix-v", "v_other"),
        ("prefix-x8", "x8_other"), ("digits", "0123456789"),
    ):  # fmt: skip
        file = build(having("q4", EXTRA._replace(name=text)))
        yield judged("name-" + name, "one more tensor, named %r: ignored" % text, "name-any", file)
    pair = [EXTRA._replace(name="n" * 30 + c) for c in "ab"]
    yield judged("name-last-letter", "two names that differ in the 31st character", "name-any duplicate",
                 build(having("q4", *pair)))  # fmt: skip
    pair = [EXTRA._replace(name=n) for n in ("Extra", "extra")]
    yield judged("name-case", "two names that differ in case", "name-any duplicate", build(having("q4", *pair)))
    many = [Row("t%03d" % i, F32, 0, 1, 0) for i in range(200)]
    yield judged("many-entries", "200 more entries of no bytes", "zero-sized name-any", build(having("q4", *many)))
    # no bytes
    none = Row("none", F32, 0, 1, 0)
    m, end = having("q4", none), 448 + 64 * 13 + 12 * 64
    for name, place in (("start", 448 + 64 * 13), ("inside", 448 + 64 * 15), ("end", end)):
        file = build(m, places={12: place})
        yield judged("empty-at-" + name, "a tensor of no bytes at %d" % place, "zero-sized", file)
    big = row("big", F32, 64, 1)
    file = build(having("q4", big, none), places={13: 448 + 64 * 14 + 768 + 64})
    yield judged("empty-within", "a tensor of no bytes, 64 into one of 256", "zero-sized overlap", file)
    file = build(having("q4", none, none._replace(name="nor")))
    yield judged("empty-twice", "two tensors of no bytes at one place", "zero-sized overlap", file)
    for qtype, size in ((F16, "f16"), (Q8, "q8"), (Q4, "q4"), (X8, "x8")):
        file = build(having("q4", none._replace(qtype=qtype, rows=7, cols=0)))
        yield judged("empty-" + size, "7 rows of no columns, %s" % size.upper(), "zero-sized bytes", file)
    for qtype, r, c in ((Q8, 1, 33), (Q4, 3, 11), (X8, 1, 1), (Q4, 31, 31), (F16, 1, 1)):
        file = build(having("q4", row("extra", qtype, r, c)))
        yield judged(
            "last-block-%d-%d-%d" % (qtype, r, c),
            "qtype %d, %d x %d: the last block counts whole" % (qtype, r, c),
            "bytes",
            file,
        )
    # orders and gaps
    m = MODELS["q4"]
    rows = list(m.rows)
    yield judged("order-names", "up and down in the other order", "order",
                 build(m._replace(rows=[*rows[:9], rows[10], rows[9], rows[11]])))  # fmt: skip
    yield judged("order-reversed", "all tensors in the other order", "order", build(m._replace(rows=rows[::-1])))
    first = 448 + 64 * 12
    yield judged("order-data", "the data of two tensors in the other order", "order overlap",
                 build(m, places={10: first + 704, 11: first + 640}, room=128))  # fmt: skip
    yield judged("gap-start", "64 bytes before the first tensor that nobody owns", "order",
                 build(m, places={i: first + 64 + 64 * i for i in range(12)}, room=832))  # fmt: skip
    yield judged("gap-end", "64 bytes behind the last tensor", "order", build(m, room=64))
    yield judged("gap-end-odd", "one byte behind the last tensor's padding", "order", build(m, room=1))
    flat = without("no-deepstack", "v_ds_nw", "v_ds_nb", "v_ds_f1w", "v_ds_f1b", "v_ds_f2w", "v_ds_f2b")
    yield judged("no-deepstack-absent", "no deepstack mergers, and no tensors for them", "deepstack", build(flat))
    # signed
    for form in (448, 432):
        file = build(MODELS["q4"]._replace(form=form), sign=True)
        yield judged("signed-%d" % form, "signed, the %d-byte header" % form, "digest user-id", file, level="required")
        other = {448: b"vllm-shs-vqf", 432: b"vllm-kestrel-vqf"}[form]
        file = build(MODELS["q4"]._replace(form=form), sign=True, user_id=other)
        yield judged("signed-%d-other-id" % form, "signed with the user id of the other form", "user-id", file)


def broken_heads() -> Iterator[Case]:
    """Gates 1 to 6 on whole files."""
    m = MODELS["q4"]
    good = build(m)
    start, stop = 1216, 1984
    for size, where in (
        (0, "nothing"), (7, "seven bytes"), (8, "magic and version"), (448, "the header"), (511, "not a whole entry"),
        (512, "the header and one entry"), (1215, "one byte of the directory is missing"), (1216, "no data"),
        (1217, "one byte of data"), (1600, "half of the data"), (1983, "one byte of data is missing"), (1984, "no tag"),
        (1985, "one byte of the tag"), (1991, "one byte of the tag is missing"),
    ):  # fmt: skip
        flags = "min-size" if size < 512 else "file-len"
        yield judged("cut-%d" % size, "cut: " + where, flags, good[:size], "truncated", "required")
    old = good[:4] + b"\1" + good[5:]
    yield judged("version-1", "version 1", "version", old, "version", "required")
    yield judged(
        "version-1-lone-page",
        "the first 448 bytes of a version 1 file",
        "version-first",
        old[:448],
        "version",
        "required",
    )
    yield judged("version-4", "version 4", "version", good[:4] + b"\4" + good[5:], "version", "required")
    yield judged("magic-vqfw", "magic VQFW", "magic", b"VQFW" + good[4:], "magic", "required")
    yield judged("magic-big-endian", "the magic's bytes reversed", "magic", b"WFQF" + good[4:], "magic", "required")
    for plus in (1, 8, 24, 4096):
        yield judged(
            "%d-behind" % plus, "%d bytes behind the tag" % plus, "file-len", good + bytes(plus), "bounds", "required"
        )
    yield judged("twice", "the file twice, one behind the other", "file-len", good + good, "bounds", "required")
    for word in POSITIVE:
        a = arch(**{word: 0})
        file = build(Model(a, text_rows(a, "4"), EMB_F16), room=64)  # the tensors are what this arch calls for
        yield judged("%s-0" % word.replace("_", "-"), "%s is 0" % word, "arch-zero", file, "header", "required")
    for form in (448, 432):
        f, place = m._replace(form=form), PLACES[form]
        for name, at_place, value, flags, error in (
            ("start-unaligned", place, start + 1, "start-align", "layout"),
            ("start-in-directory", place, start - 64, "start-directory", "layout"),
            ("start-0", place, 0, "start-directory", "layout"),
            ("start-at-stop", place, stop, "empty-data", "layout"),
            ("stop-plus-1", place + 8, stop + 1, "file-len", "truncated"),
            ("stop-minus-1", place + 8, stop - 1, "file-len", "bounds"),
            ("stop-2-32", place + 8, stop + U32, "64-bits", "truncated"),
            ("stop-covers-tag", place + 8, stop + 8, "file-len", "truncated"),
        ):  # fmt: skip
            head = bytearray(build(f))
            struct.pack_into("<Q", head, at_place, value)
            yield judged("%s-%d" % (name, form), name.replace("-", " "), flags, bytes(head), error, "required")
        for n in ((1 << 26) + 12, U32 - 1):
            head = bytearray(build(f))
            struct.pack_into("<I", head, 12, n)
            yield judged("n-tensors-%x-%d" % (n, form), "n_tensors %d" % n, "n-tensors-wrap", bytes(head), "layout",
                         "required")  # fmt: skip
    for name, file in (("plain-enc-flag", good), ("enc-no-flag", build(m._replace(flags=m.flags | ENC)))):
        flipped = bytes([file[8] ^ ENC])
        error = "truncated" if name == "plain-enc-flag" else "bounds"
        yield judged(name, "flag ENC is wrong", "tag-length", file[:8] + flipped + file[9:], error, "required")
    file = build(m._replace(flags=m.flags | ENC), sign=True)
    yield judged("signing-tool", "32 bytes behind the tag, as the engine's signing tool leaves them", "file-len",
                 file + bytes(32), "bounds", "required")  # fmt: skip
    file = bytearray(build(m._replace(form=432)))
    struct.pack_into("<QQ", file, 200, start, stop)
    yield judged("both-forms", "both forms of the header fit", "form-both", bytes(file), "layout")


def broken_directories() -> Iterator[Case]:
    """Gate 7, and entries that are wrong in themselves."""
    start = 448 + 64 * 13
    end = start + 64 * 12  # of the model's own tensors
    extra = having("q4", EXTRA)

    def placed(
        name: str, comment: str, flags: str, error: str | None, offset: int, r: Row = EXTRA, room: int = 0,
        level: str = "recommended",
    ) -> Case:  # fmt: skip
        return judged(name, comment, flags, build(having("q4", r), places={12: offset}, room=room), error, level)

    # bounds
    yield placed("bounds-fits", "the good twin: it ends at file_len", "upper-bound", None, end, room=64)
    for name, offset, n, flags, level in (
        ("behind", end, 16, "upper-bound bounds-tag", "required"),
        ("far", 1 << 40, 16, "upper-bound", "required"),
        ("2-63", 1 << 63, 16, "bounds-wrap", "required"),
        ("2-32", U32 + start, 16, "bounds-wrap", "required"),
        ("header", 0, 16, "lower-bound", "recommended"),
        ("directory", 448, 16, "lower-bound", "recommended"),
        ("before", start - 64, 16, "lower-bound", "recommended"),
        ("wrap-0", U64 - 64, 16, "bounds-wrap", "recommended"),
        ("wrap-inside", U64 - 64, 16 + (start + 64) // 4, "bounds-wrap", "recommended"),
        ("wrap-file-len", U64 - 64, 16 + end // 4, "bounds-wrap", "recommended"),
        ("empty-behind", end + 64, 0, "zero-sized", "required"),
        ("empty-before", start - 64, 0, "zero-sized", "recommended"),
        ("empty-header", 0, 0, "zero-sized", "recommended"),
    ):  # fmt: skip
        yield placed(
            "bounds-" + name,
            "offset 0x%x, %d bytes; the data area is 0x%x .. 0x%x" % (offset, 4 * n, start, end),
            flags,
            "bounds",
            offset,
            row("extra", F32, n, 1),
            level=level,
        )
    m, behind = MODELS["q4"], 448 + 64 * 12 + 704
    for index in (0, 6, 11):
        file = build(m, places={index: behind + 64})
        yield judged(
            "bounds-entry-%d" % index,
            "entry %d of 12 lies behind the data area" % index,
            "every-entry upper-bound",
            file,
            "bounds",
            "required",
        )
    rows, cols = 4 * ((1 << 29) - 1), 4 * ((1 << 29) + 1)
    r = row("extra", F32, rows, cols)
    prove(r.bytes == U64 - 64, "its length is 2^64 - 64")
    yield placed("bounds-length-wrap", "a length of 2^64 - 64, which rows and cols do make", "bounds-wrap", "bounds",
                 start + 128, r)  # fmt: skip
    yield placed(
        "bounds-end-plus-4",
        "it ends 4 bytes behind file_len, in the tag",
        "upper-bound bounds-tag",
        "bounds",
        end,
        row("extra", F32, 17, 1),
        64,
        "required",
    )
    # align
    for plus in (1, 2, 4, 8, 16, 32, 63):
        yield placed("align-%d" % plus, "%d past a multiple of 64" % plus, "align", "align", end + plus, room=128)
    for index in (0, 5):
        file = build(m, places={index: behind + 32}, room=128)
        yield judged(
            "align-entry-%d" % index,
            "entry %d lies 32 past a multiple of 64" % index,
            "align every-entry",
            file,
            "align",
        )
    # overlap
    big = row("big", F32, 64, 1)  # 256 bytes
    two = having("q4", big, EXTRA)
    at_big = 448 + 64 * 14 + 768
    for plus in (0, 64, 128, 192):
        file = build(two, places={13: at_big + plus})
        yield judged("overlap-%d" % plus, "a tensor of 64 bytes, %d into one of 256" % plus, "overlap", file, "overlap")
    file = build(two, places={13: at_big + 256}, room=64)
    yield judged("overlap-not", "the good twin: it begins where the other ends", "overlap", file)
    file = build(having("q4", row("big", F16, 33, 1), EXTRA), places={13: at_big + 64}, room=64)
    yield judged("overlap-two-bytes", "two bytes are shared", "overlap", file, "overlap")
    file = build(having("q4", big), places={12: end - 64}, room=192)
    yield judged("overlap-front", "a tensor of 256 bytes begins in the last of the model", "overlap", file, "overlap")
    file = build(having("q4", big), places={12: start + 512})
    yield judged("overlap-covers", "a tensor of 256 bytes over four others", "overlap", file, "overlap")
    for name, index in (("first", 0), ("middle", 6), ("last", 11)):
        file = build(extra, places={12: start + 64 * index})
        yield judged(
            "overlap-with-" + name, "it lies where the %s tensor does" % name, "overlap overlap-any", file, "overlap"
        )
    three = having("q4", big, row("a", F32, 16, 1), row("b", F32, 16, 1))
    at_big += 64
    file = build(three, places={13: at_big + 256, 14: at_big + 128}, room=64)
    yield judged(
        "overlap-second-next", "the third within the first, the second behind both", "overlap-any", file, "overlap"
    )
    file = build(three, places={12: at_big, 13: at_big + 256, 14: at_big + 320}, room=384)
    yield judged("overlap-none-of-three", "the good twin: one behind the other", "overlap-any", file)
    # dtype
    for qtype in (0, 6, 7, 0x101, 0x103, 0x10003, 0x80000003, U32 - 1):
        file = build(having("q4", EXTRA._replace(qtype=qtype)))
        yield judged("dtype-%x" % qtype, "qtype %d" % qtype, "dtype", file, "dtype")
    for tensor in ("token_embed", "q4_q", "q4_lm"):
        file = build(with_row("q4", tensor, qtype=6))
        yield judged("dtype-of-" + tensor.replace("_", "-"), "qtype 6 of " + tensor, "dtype every-entry", file, "dtype")
    # bytes
    for qtype, r, c in ((F32, 16, 1), (F16, 32, 1), (Q8, 2, 32), (Q4, 3, 32), (X8, 8, 32)):
        right = row("extra", qtype, r, c)
        block = {F32: 4, F16: 2, Q8: 34, Q4: 18, X8: 18}[qtype]
        for name, n in (("less", right.bytes - block), ("more", right.bytes + block), ("none", 0)):
            file = build(having("q4", right._replace(bytes=n)))
            yield judged(
                "bytes-%s-%d" % (name, qtype),
                "%d bytes for qtype %d of %d x %d" % (n, qtype, r, c),
                "bytes",
                file,
                "shape",
            )
    for name, n in (("63", 63), ("65", 65), ("twice", 128)):
        file = build(having("q4", EXTRA._replace(bytes=n)))
        yield judged("bytes-" + name, "%d bytes for 16 numbers" % n, "bytes", file, "shape")
    for name, qtype, r, c, n in (
        ("q8-floor", Q8, 1, 33, 34), ("q4-floor", Q4, 1, 63, 18), ("q4-rows", Q4, 2, 16, 36), ("q8-rows", Q8, 4, 8, 136),
    ):  # fmt: skip
        file = build(having("q4", Row("extra", qtype, r, c, n)))
        text = "%d x %d in %d bytes: blocks %s" % (r, c, n, "don't begin anew with each row" if "rows" in name else
                                                   "are rounded up")  # fmt: skip
        yield judged("bytes-" + name, text, "bytes", file, "shape")
    for name, qtype, r, c, n in wraps():
        file = build(having("q4", Row("extra", qtype, r, c, n)))
        yield judged("bytes-wrap-" + name, "qtype %d, %d x %d would take %d bytes if %s bits held it" % (
            qtype, r, c, n, name.partition("-")[0]), "bytes-wrap", file, "shape")  # fmt: skip
    # what the arch calls for
    for name, tensor, parts in (
        ("transposed", "q4_q", {"rows": 8, "cols": 4}),
        ("o-transposed", "q4_o", {"rows": 4, "cols": 8}),
        ("flat", "q4_gate", {"rows": 1, "cols": 32}),
        ("norm-as-row", "final_norm", {"rows": 1, "cols": 4}),
        ("embed-transposed", "token_embed", {"rows": 4, "cols": 8}),
        ("bigger-vocab", "q4_lm", {"rows": 16, "bytes": 36}),
        ("smaller-norm", "attn_norm", {"rows": 3, "bytes": 12}),
        ("q8-in-q4", "q4_up", {"qtype": Q8, "bytes": 34}),
        ("x8-in-q4", "q4_v", {"qtype": X8}),
        ("f16-norm", "ffn_norm", {"qtype": F16, "bytes": 8}),
        ("empty-norm", "ffn_norm", {"rows": 0, "bytes": 0}),
        ("embed-q8", "token_embed", {"qtype": Q8, "bytes": 34}),
        ("cols-7", "q4_q", {"cols": 7}),  # 28 elements, which take a block as 32 do
        ("rows-3", "q4_down", {"rows": 3}),
        ("norm-of-two", "final_norm", {"cols": 2, "bytes": 32}),
    ):  # fmt: skip
        m = with_row("q4", tensor, **parts)
        yield judged("plan-" + name, "%s is not what the arch calls for" % tensor, "plan-shape", build(m), "shape")
    for word, value in (
        ("vocab_size", 16),
        ("dim", 8),
        ("n_layers", 2),
        ("ffn_dim", 16),
        ("head_dim", 4),
        ("n_heads", 2),
    ):
        file = build(with_words("q4", **{word: value}))
        yield judged("plan-%s-%d" % (word.replace("_", "-"), value), "%s is %d, the tensors are for %d"
                     % (word, value, TINY[word]), "plan-shape", file, "shape")  # fmt: skip
    for tensor in ("v_q8_fc2", "v_pos_embed", "v_merger_f1w", "v_ds_f2b"):
        r = next(r for r in MODELS["vision"].rows if r.name == tensor)
        file = build(with_row("vision", tensor, rows=r.rows * r.cols, cols=1))
        yield judged(
            "plan-" + tensor.replace("_", "-"), "%s as a column of numbers" % tensor, "plan-shape", file, "shape"
        )
    half = arch(n_layers=2, head_dim=4)  # k and v: 16 elements a layer
    m = Model(half, text_rows(half, "4"), EMB_F16)
    yield judged("half-blocks", "two layers of half a block each in q, k, v and o", "layer-blocks", build(m), "shape")


def wraps() -> Iterator[tuple[str, int, int, int, int]]:
    """Rows and cols whose product, or its bytes, are small modulo 2^32 or 2^64, and those bytes."""
    f, g = (1 << 29) - (1 << 15) + 1, (1 << 29) + (1 << 15) + 1
    prove(f * g == (1 << 58) + 1, "two numbers that make 2^58 + 1")
    target = -(-U64 // 34) * 32  # elements of Q8_0 whose bytes just pass 2^64
    r = next(
        r for r in range(U32 - 1, 0, -1) if target <= -(-target // r) * r <= target + 32 * 60 and -(-target // r) < U32
    )
    c = -(-target // r)
    for name, qtype, rows, cols in (
        ("32-elements", F32, 16, (1 << 28) + 1),
        ("32-elements-0", F32, 1 << 16, 1 << 16),
        ("32-bytes", F32, 4, (1 << 28) + 4),
        ("32-elements-q4", Q4, 32, (1 << 27) + 1),
        ("32-elements-q8", Q8, 64, (1 << 26) + 1),
        ("32-f16", F16, 2, (1 << 30) + 16),
        ("64-f32-0", F32, 1 << 31, 1 << 31),
        ("64-f32", F32, 4 * f, 4 * g),
        ("64-f16", F16, 8 * f, 4 * g),
        ("64-q8", Q8, r, c),
    ):  # fmt: skip
        bits = int(name[:2])
        true = row("", qtype, rows, cols).bytes
        wrapped = true % (1 << bits)
        if "elements" in name:
            true, wrapped = rows * cols, row("", qtype, rows * cols % U32, 1).bytes
        prove(true >= 1 << bits and wrapped < 4096 and max(rows, cols) < U32, "it wraps: %s %d" % (name, wrapped))
        yield name, qtype, rows, cols, wrapped


def broken_names() -> Iterator[Case]:
    for name, text, flags in (
        ("32-letters", b"n" * 32, "name-nul"),
        ("32-known", b"q4_q".ljust(32, b"_"), "name-nul"),
        ("utf8", "größe".encode(), "name-ascii"),
        ("latin-1", b"caf\xe9", "name-ascii"),
        ("80", b"a\x80", "name-ascii"),
        ("ff", b"\xff", "name-ascii"),
        ("known-high-bit", b"q4_\xf1", "name-ascii"),
        ("escape", b"a\x1b[2Jb", "name-ascii"),
        ("line-feed", b"a\nb", "name-ascii"),
        ("tab", b"a\tb", "name-ascii"),
        ("01", b"\x01", "name-ascii"),
        ("1f", b"a\x1f", "name-ascii"),
        ("delete", b"a\x7f", "name-ascii"),
        ("empty", b"", "name-empty"),
    ):
        file = build(having("q4", EXTRA._replace(name=text)))
        yield judged("name-is-" + name, "a name of the bytes %s" % (text.hex() or "00"), flags, file, "name")
    file = bad_tag(build(having("q4", EXTRA)))
    yield judged("tag-of-name", "a tensor more with a good name, the tag wrong", "checksum", file, "tag", "required")
    rows = MODELS["q4"].rows
    m = MODELS["q4"]
    for name, which in (("adjacent", 11), ("first-and-last", 0), ("q4-k", 5)):
        file = build(m._replace(rows=[*rows, rows[which]]))
        yield judged("duplicate-" + name, "%s is there twice" % rows[which].name, "duplicate", file, "duplicate")
    file = build(m._replace(rows=[rows[0], rows[0], *rows[1:]]))
    yield judged("duplicate-first", "token_embed twice, one behind the other", "duplicate", file, "duplicate")
    for name, pair in (
        ("unknown", (EXTRA, EXTRA)),
        ("unknown-other-shape", (EXTRA, row("extra", F32, 4, 4))),
        ("empty-tensors", (Row("extra", F32, 0, 1, 0),) * 2),
        ("longest", (EXTRA._replace(name="n" * 31),) * 2),
    ):
        yield judged(
            "duplicate-" + name,
            "another tensor's name is there twice",
            "duplicate",
            build(having("q4", *pair)),
            "duplicate",
        )
    apart = [EXTRA, *(Row("t%02d" % i, F32, 0, 1, 0) for i in range(30)), EXTRA]
    yield judged(
        "duplicate-far-apart", "30 entries lie between the two", "duplicate", build(having("q4", *apart)), "duplicate"
    )


def missing_tensors() -> Iterator[Case]:
    for r in MODELS["q4"].rows:
        core = r.name in ("token_embed", "q4_q")
        text, level = "%s is not there" % r.name, "required" if core else "recommended"
        yield judged(
            "no-" + r.name.replace("_", "-"),
            text,
            "core" if core else "plan-missing",
            build(without("q4", r.name)),
            "missing",
            level,
        )
    for model, *names in (
        ("q8", "q8_q"), ("q8", "q8_lm"), ("dual", "q4_q"), ("dual", "q8_q"), ("dual", "q8_down"), ("dual", "q4_lm"),
        ("x8", "x8_q"), ("x8", "x8_down"), ("q-norm", "k_norm"), ("q-norm", "q_norm"), ("vision", "v_q8_qkv"),
        ("vision", "v_merger_f2b"), ("vision", "v_ds_nw"), ("two-layers", "q4_v"), ("moe", "q4_down"),
        ("moe-dual", "q4_gate"), ("moe-dual", "q8_gate"), ("dual", "q4_q", "q8_q"),
    ):  # fmt: skip
        flags = "core" if (model, *names) in (("q8", "q8_q"), ("dual", "q4_q", "q8_q")) else "plan-missing"
        slug = "-".join(names).replace("_", "-")
        yield judged(
            "%s-no-%s" % (model, slug),
            "%s without %s" % (model, " and ".join(names)),
            flags,
            build(without(model, *names)),
            "missing",
            "required" if flags == "core" else "recommended",
        )
    for model, names in (("moe", ("q4_gate",)), ("moe-q8", ("q8_gate",)), ("moe-dual", ("q4_gate", "q8_gate"))):
        yield judged(
            "%s-no-gate" % model,
            "a MoE model without a gate",
            "core-moe",
            build(without(model, *names)),
            "missing",
            "required",
        )
    m = without("moe", "moe_router")._replace(flags=EMB_F16)
    yield judged(
        "moe-no-router", "version 3, so a MoE model, without its router", "core-moe", build(m), "missing", "required"
    )
    m = with_row("moe", "moe_router", rows=0, bytes=0)
    file = build(m._replace(arch={**m.arch, "n_experts": 0}))
    yield judged("moe-no-experts", "a MoE model of 0 experts, its router empty", "core-moe", file, "header", "required")
    m = m._replace(arch={**m.arch, "n_experts": 0}, version=2)
    yield judged("moe-no-experts-version-2", "the same with version 2: flag MOE alone makes it a MoE model", "core-moe",
                 build(m), "header", "required")  # fmt: skip
    m = without("moe", "q4_gate")._replace(version=2)
    yield judged("moe-no-gate-version-2", "version 2 and flag MOE, without a gate", "core-moe", build(m), "missing",
                 "required")  # fmt: skip
    rows = [EXTRA]
    yield judged("alien", "no tensor of the format", "core", build(Model(TINY, rows, EMB_F16)), "missing", "required")
    yield judged(
        "no-tensors", "no tensors at all", "core", build(Model(TINY, [], EMB_F16), room=64), "missing", "required"
    )
    upper = [r._replace(name=r.name.upper()) if r.name == "token_embed" else r for r in MODELS["q4"].rows]
    yield judged(
        "core-upper-case",
        "TOKEN_EMBED instead of token_embed",
        "core",
        build(MODELS["q4"]._replace(rows=upper)),
        "missing",
        "required",
    )


def contradictions() -> Iterator[Case]:
    """Flags and words against the tensors."""
    for name, model, flags, what, also, text in (
        ("x8-without", "q4", EMB_F16 | HAS_X8, "flag-x8", "", "X8 without x8 copies"),
        ("x8-clear", "x8", EMB_F16 | Q8_8X8 | Q4_4X4, "flag-x8", "", "x8 copies without X8"),
        ("vision-without", "q4", EMB_F16 | VISION, "flag-vision", "", "VISION without a vision tower"),
        ("vision-clear", "vision", EMB_F16, "flag-vision", "", "a vision tower without VISION"),
        ("q4i-without-q8", "q4", EMB_F16 | Q8BUF_Q4, "flag-q4i", "", "Q8BUF_Q4 without q8 tensors"),
        ("q4i-8x8", "tiled-q4i", EMB_F16 | Q8BUF_Q4 | Q8_8X8, "flag-q4i", "", "Q8BUF_Q4 in tiles of 8 rows"),
        ("q4i-g256", "q4i", EMB_F16 | Q8BUF_Q4 | G256, "flag-q4i", "", "Q8BUF_Q4 and G256"),
        ("g256-without-q8", "q4", EMB_F16 | G256, "flag-g256", "", "G256 without q8 tensors"),
        ("embed-clear", "q4", 0, "flag-embed", "shape", "EMB_F16 clear over an F16 embedding"),
        ("embed-set", "f32-embed", EMB_F16, "flag-embed", "shape", "EMB_F16 over an F32 embedding"),
        ("q8-8x8-gate", "q4", EMB_F16 | Q8_8X8, "flag-gates", "", "Q8_8X8 where dim is 4"),
        ("q8-8x8-gate-q8", "q8", EMB_F16 | Q8_8X8, "flag-gates", "", "Q8_8X8 where dim is 4, with q8 tensors"),
        ("q4-4x4-gate", "q4", EMB_F16 | Q4_4X4, "flag-gates", "", "Q4_4X4 where dim is 4"),
    ):  # fmt: skip
        file = build(MODELS[model]._replace(flags=flags))
        yield judged("flag-" + name, text, what, file, "layout", also=also)
    for name, words, flag, text in (
        ("v", {"vocab_size": 10, "dim": 32, "ffn_dim": 32}, Q4_4X4, "V is 10"),
        ("k-out", {"dim": 32, "ffn_dim": 32, "n_heads": 2, "head_dim": 2, "head_dim_full": 2}, Q4_4X4, "k_out is 2"),
        ("ffn", {"dim": 32, "ffn_dim": 48}, Q4_4X4, "ffn_dim is 48"),
        ("dim", {"dim": 48, "ffn_dim": 32}, Q4_4X4, "dim is 48"),
        ("k-out", {"dim": 32, "ffn_dim": 32, "n_heads": 2, "head_dim": 4, "head_dim_full": 4}, Q8_8X8, "k_out is 4"),
        ("ffn", {"dim": 32, "ffn_dim": 40}, Q8_8X8, "ffn_dim is 40"),
    ):  # fmt: skip
        a = arch(**words)
        m = Model(a, text_rows(a, "4"), EMB_F16 | flag)
        kind = "q4-4x4" if flag == Q4_4X4 else "q8-8x8"
        prove(not (q4_gate(a) if flag == Q4_4X4 else q8_gate(a)), "the gate fails")
        yield judged("flag-%s-%s" % (kind, name), "%s where %s" % (kind, text), "flag-gates", build(m), "layout")
    file = build(MODELS["moe"]._replace(flags=EMB_F16))
    yield judged("flag-moe-clear", "version 3 and a router, flag MOE clear", "flag-moe", file, "layout")
    # 432 bytes have no room for the MoE words
    m = without("moe", "moe_router")._replace(form=432)
    router = row("moe_router", F32, 0, 4)
    for name, version in (("2", 2), ("3", 3)):
        file = build(m._replace(version=version, rows=[*m.rows[:4], router, *m.rows[4:]]))
        yield judged(
            "moe-432-version-" + name,
            "a MoE model with the 432-byte header, version " + name,
            "moe-form",
            file,
            "layout",
        )
    for name, model, words, flags, text in (
        ("kv-heads-0", "q4", {"n_kv_heads": 0}, "arch-kv", "n_kv_heads is 0"),
        ("q-norm-0", "q-norm", {"has_q_norm": 0}, "arch-q-norm", "has_q_norm 0, and the tensors are there"),
        ("vision-0", "vision", {"has_vision": 0}, "arch-vision", "has_vision 0, and a vision tower"),
        ("vision-1", "q4", {"has_vision": 1}, "arch-vision", "has_vision 1, and no vision tower"),
        ("moe-ffn-9", "moe", {"moe_ffn": 9}, "arch-experts", "ffn_dim 16, 2 experts of 9"),
        ("moe-ffn-0", "moe", {"moe_ffn": 0}, "arch-experts", "ffn_dim 16, 2 experts of 0"),
        ("moe-ffn-wrap", "moe", {"moe_ffn": (1 << 31) + 8}, "arch-experts", "n_experts * moe_ffn is 16 modulo 2^32"),
        ("top-k-0", "moe", {"top_k": 0}, "arch-top-k", "top_k is 0"),
        ("top-k-3", "moe", {"top_k": 3}, "arch-top-k", "top_k is 3 of 2 experts"),
        ("top-k-max", "moe", {"top_k": U32 - 1}, "arch-top-k", "top_k is 2^32 - 1"),
    ):  # fmt: skip
        yield judged("arch-" + name, text, flags, build(with_words(model, **words)), "shape")
    a = arch(n_kv_heads=0)
    file = build(Model(a, text_rows(a, "4"), EMB_F16))
    yield judged("arch-kv-heads-none", "n_kv_heads is 0, and k and v are empty", "arch-kv", file, "shape")
    yield judged(
        "arch-top-k-2", "the good twin: top_k is 2 of 2 experts", "arch-top-k", build(with_words("moe", top_k=2))
    )
    for heads, kv in ((3, 2), (2, 3), (4, 3), (1, 2)):
        a = arch(n_heads=heads, n_kv_heads=kv)
        m = Model(a, text_rows(a, "4"), EMB_F16)
        yield judged(
            "arch-heads-%d-%d" % (heads, kv),
            "%d heads, %d for key and value" % (heads, kv),
            "arch-kv",
            build(m),
            "shape",
        )
    for heads, kv in ((4, 2), (3, 1), (3, 3)):
        a = arch(n_heads=heads, n_kv_heads=kv)
        m = Model(a, text_rows(a, "4"), EMB_F16)
        yield judged(
            "good-heads-%d-%d" % (heads, kv), "%d heads, %d for key and value" % (heads, kv), "arch-kv", build(m)
        )


def broken_seals() -> Iterator[Case]:
    m = MODELS["q4"]
    good = build(m)
    start, stop = 1216, 1984
    directory, area = good[DIRECTORY:start], good[start:stop]

    def pack(h: int, order: str = "<") -> bytes:
        return struct.pack(order + "Q", h)

    def other(basis: int, prime: int, *, before: bool = True, bits: int = 64, signed: bool = False) -> int:
        """A hash of FNV's kind that is not FNV-1a-64."""
        h = basis
        for byte in directory + area:
            byte = byte | ~0xFF if signed and byte > 127 else byte
            h = ((h ^ byte) * prime if before else h * prime ^ byte) % (1 << bits)
        return h

    basis, prime = 0xCBF29CE484222325, 0x100000001B3
    prove(other(basis, prime) == fnv1a64(directory, area), "FNV-1a-64")
    for name, text, flags, wrong in (
        ("first-bit", "the tag's first bit is another", "checksum", pack(fnv1a64(directory, area) ^ 1)),
        ("bit-32", "bit 32 of the tag is another", "checksum", pack(fnv1a64(directory, area) ^ 1 << 32)),
        ("upper-half", "the upper half of the tag is another", "checksum", pack(fnv1a64(directory, area) ^ 0xFF << 40)),
        ("ones", "a tag of ones", "checksum checksum-none", b"\xff" * 8),
        ("one", "a tag of 1", "checksum checksum-none", pack(1)),
        ("big-endian", "the tag big-endian", "checksum-form", pack(fnv1a64(directory, area), ">")),
        ("fnv-1", "FNV-1: multiplied before the xor", "checksum-form", pack(other(basis, prime, before=False))),
        ("fnv-32", "FNV-1a of 32 bits", "checksum-form", pack(other(0x811C9DC5, 0x01000193, bits=32))),
        ("fnv-0", "without the offset basis", "checksum-form", pack(other(0, prime))),
        ("signed-char", "bytes above 7f made negative", "checksum-form", pack(other(basis, prime, signed=True))),
        ("data-alone", "over the data area without the directory", "checksum-range", pack(fnv1a64(area))),
        ("directory-alone", "over the directory without the data area", "checksum-range", pack(fnv1a64(directory))),
        ("data-first", "over the data area, then the directory", "checksum-range", pack(fnv1a64(area, directory))),
        ("header-too", "over the header too", "checksum-range", pack(fnv1a64(good[:stop]))),
        ("without-padding", "over the tensors without their padding", "checksum-range",
         pack(fnv1a64(directory, *tensor_bytes(good)))),
        ("last-byte-missing", "over all but the last byte", "checksum-range", pack(fnv1a64(directory, area[:-1]))),
    ):  # fmt: skip
        yield judged("tag-" + name, text, flags, good[:stop] + wrong, "tag", "required")
    far = build(m, start=start + 64)
    wrong = pack(fnv1a64(far[DIRECTORY : stop + 64]))
    prove(wrong != far[-8:], "the padding counts")
    yield judged(
        "tag-directory-padding",
        "over the padding behind the directory too",
        "checksum-range",
        far[:-8] + wrong,
        "tag",
        "required",
    )
    for name, where in (("first", start), ("last-tensor", stop - 64), ("middle", start + 64 * 5 + 3)):
        changed = good[:where] + bytes([good[where] ^ 4]) + good[where + 1 :]
        yield judged("data-%s-bit" % name, "one bit of the data is another", "checksum", changed, "tag", "required")
    word = good[:44] + b"\7" + good[45:]
    yield judged(
        "header-word",
        "another max_seq_len under the same tag, which does not cover the header",
        "checksum-range",
        word,
        level="required",
    )
    # never filled
    empty = good[:start] + bytes(stop + 8 - start)
    yield judged("unfilled", "zeros from the data area to the end", "unfilled", empty, "truncated")
    yield judged("unfilled-not", "the good twin: data to the end, the checksum 0", "unfilled checksum-none",
                 build(having("q4", EXTRA), seal=lambda *_: bytes(8)))  # fmt: skip
    # signatures
    for form in (448, 432):
        signed = build(m._replace(form=form), sign=True)
        block = PLACES[form] + 48

        def patched(offset: int, value: bytes, signed: bytes = signed, block: int = block) -> bytes:
            return signed[: block + offset] + value + signed[block + offset + len(value) :]

        sealed, whole = canonical(signed[:form], form), signed[:form]
        rest = signed[DIRECTORY:stop]
        for name, text, digest in (
            (
                "flipped",
                "its last bit is another",
                signed[block + 128 : block + 159] + bytes([signed[block + 159] ^ 1]),
            ),
            ("zero", "it is zero", bytes(32)),
            ("whole-header", "made over the header as it is written", sm3(whole + rest)),
            ("no-header", "made without the header", sm3(rest)),
            ("data-alone", "made over the data alone", sm3(signed[start:stop])),
            (
                "other-form",
                "made over %d bytes of header" % (880 - form),
                sm3(sealed[:432].ljust(880 - form, b"\0") + rest),
            ),
            ("with-tag", "made over the tag too", sm3(sealed + signed[DIRECTORY:])),
        ):
            yield judged("digest-%s-%d" % (name, form), "the signature block's digest: " + text, "digest",
                         patched(128, digest), "signature", "required")  # fmt: skip
        for id_len in (0, 33, 64, U32 - 1):
            yield judged("id-len-%x-%d" % (id_len, form), "id_len is %d" % id_len, "id-len",
                         patched(192, struct.pack("<I", id_len)), "signature", "required")  # fmt: skip
        used = signed[block + 192]
        yield judged(
            "id-len-longer-%d" % form,
            "id_len reaches into the id's padding",
            "id-len",
            patched(192, bytes([used + 1])),
            "signature",
            "required",
        )
        yield judged("id-len-shorter-%d" % form, "id_len leaves out the id's last letter", "user-id",
                     patched(192, bytes([used - 1])), "signature", "required")  # fmt: skip
        for name, user_id in (
            ("default", b"1234567812345678"), ("upper-case", b"VLLM-KESTREL-VQF"), ("attest", b"VLLM-ATTEST-1"),
            ("32-bytes", b"vllm-kestrel-vqf".ljust(32, b"-")),
        ):  # fmt: skip
            file = build(m._replace(form=form), sign=True, user_id=user_id)
            yield judged(
                "user-id-%s-%d" % (name, form),
                "signed under the user id %s" % user_id.decode(),
                "user-id",
                file,
                "signature",
                "required",
            )
        yield judged(
            "signed-tag-%d" % form, "signed, the checksum wrong", "checksum", bad_tag(signed), "tag", "required"
        )


def tensor_bytes(file: bytes) -> Iterator[bytes]:
    """The bytes of each tensor of a good file, by its directory."""
    for i in range(int.from_bytes(file[12:16], "little")):
        offset, n = struct.unpack_from("<QQ", file, at(i, "offset"))
        yield file[offset : offset + n]


def encrypted_files() -> Iterator[Case]:
    """What can be judged without the passphrase; the HMAC is right."""
    m = MODELS["q4"]._replace(flags=EMB_F16 | ENC)
    for form in (448, 432):
        yield judged(
            "enc-%d" % form,
            "encrypted, the %d-byte header" % form,
            "tag-length",
            build(m._replace(form=form)),
            level="required",
        )
        yield judged(
            "enc-signed-%d" % form,
            "encrypted and signed",
            "tag-length",
            build(m._replace(form=form), sign=True),
            level="required",
        )
    yield judged(
        "enc-moe",
        "an encrypted MoE model",
        "core-moe",
        build(MODELS["moe"]._replace(flags=EMB_F16 | MOE | ENC)),
        level="required",
    )
    yield judged("enc-iv-ones", "an IV of ones", "", build(m, iv=b"\xff" * 16), level="required")
    extra = m._replace(rows=[*m.rows, EXTRA])
    start = 448 + 64 * 13
    end = start + 768
    for name, text, flags, file, error, level in (
        ("bounds", "a tensor behind the data area", "upper-bound", build(extra, places={12: end}), "bounds", "required"),
        ("bounds-tag", "a tensor that ends in the HMAC", "bounds-tag",
         build(m._replace(rows=[*m.rows, row("extra", F32, 24, 1)]), places={12: end}, room=64), "bounds", "required"),
        ("before", "a tensor in the header", "lower-bound", build(extra, places={12: 0}), "bounds", "recommended"),
        ("overlap", "two tensors at one place", "overlap", build(extra, places={12: start}), "overlap", "recommended"),
        ("align", "an offset 32 past a multiple of 64", "align", build(extra, places={12: end + 32}, room=128), "align",
         "recommended"),
        ("dtype", "qtype 6", "dtype", build(m._replace(rows=[*m.rows, EXTRA._replace(qtype=6)])), "dtype", "recommended"),
        ("bytes", "128 bytes for 16 numbers", "bytes", build(m._replace(rows=[*m.rows, EXTRA._replace(bytes=128)])), "shape",
         "recommended"),
        ("duplicate", "q4_lm twice", "duplicate", build(m._replace(rows=[*m.rows, m.rows[-1]])), "duplicate", "recommended"),
        ("name", "a name of 32 letters", "name-nul", build(m._replace(rows=[*m.rows, EXTRA._replace(name="n" * 32)])), "name",
         "recommended"),
        ("no-embed", "no token_embed", "core", build(m._replace(rows=m.rows[1:])), "missing", "required"),
        ("no-lm", "no q4_lm", "plan-missing", build(m._replace(rows=m.rows[:-1])), "missing", "recommended"),
        ("plan", "q4_q transposed", "plan-shape",
         build(with_row("q4", "q4_q", rows=8, cols=4)._replace(flags=EMB_F16 | ENC)), "shape", "recommended"),
        ("x8-flag", "X8 without x8 copies", "flag-x8", build(m._replace(flags=m.flags | HAS_X8)), "layout", "recommended"),
        ("zero-word", "vocab_size is 0", "arch-zero", build(m._replace(arch={**TINY, "vocab_size": 0})), "header", "required"),
    ):  # fmt: skip
        yield judged("enc-" + name, "encrypted: " + text, flags, file, error, level)
    full = b"an id of thirty-two bytes, no NUL"[:32]
    where = PLACES[448] + 48 + 192  # of id_len
    for name, user_id, id_len in (
        ("0", None, 0), ("33", None, 33), ("max", None, U32 - 1), ("longer", None, 17), ("33-full", full, 33),
    ):  # fmt: skip
        file = bytearray(build(m, sign=True, user_id=user_id))
        struct.pack_into("<I", file, where, id_len)
        yield judged("enc-id-len-" + name, "encrypted: id_len is %d of %d" % (id_len, len(user_id or b"vllm-kestrel-vqf")),
                     "id-len", bytes(file), "signature", "required")  # fmt: skip
    yield judged("enc-id-32-bytes", "encrypted: an id of 32 bytes, which nobody can judge without the passphrase", "id-len",
                 build(m, sign=True, user_id=full))  # fmt: skip

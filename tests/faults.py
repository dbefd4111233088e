"""Files with one fault each, and what must be said about it: code, severity, offset, field and the engine's verdict.

Each entry follows a sentence of the format's description: the gates that a reader reports (tables GATES and VERIFY),
what the engine overlooks (FINDINGS), and arithmetic that comes back into the file when it wraps at 2^32 or 2^64 (among
both). Tags are right, so that the fault is the only one. `also` names what follows from it: a tensor moved elsewhere
leaves its old place without an owner.
"""

from __future__ import annotations

from collections import namedtuple

from tests.samples import (
    F32,
    HEADER,
    MODELS,
    SIG,
    WORD,
    Row,
    arch,
    at,
    build,
    index_of,
    model,
    patch,
    place_of,
    real,
    reseal,
    row,
    text_rows,
    without,
)  # fmt: skip

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

Fault = namedtuple("Fault", "name make code severity offset field engine also", defaults=((),))
Fault.__doc__ = """name: what is wrong; make(): the bytes; code … engine: of the finding that says so; also: (code, field)
of the findings that follow from it."""

U64 = 1 << 64
PLAIN, PLAIN_432 = real("h448-plain"), real("h432-plain")
SIGNED, ENC, ENC_SIGNED = real("h448-signed"), real("h448-enc"), real("h448-enc-signed")
SIGNED_432, ENC_432 = real("h432-signed"), real("h432-enc")

# The real files' directory, by index, and where their data lies.
EMBED, FINAL_NORM, ATTN_NORM, FFN_NORM, Q_NORM, K_NORM, Q, K, V, OUT, GATE, UP, DOWN, LM = range(14)
ROWS = text_rows(arch())
END = 448 + 14 * 64  # of the directory
FILE_LEN = 11392


# ---- ways to make one


def word(name: str, value: int, data: bytes = PLAIN) -> Callable[[], bytes]:
    """A real file with one word of arch replaced; no checksum covers the header."""
    return lambda: patch(data, WORD[name], "I", value)


def header(offset: int, fmt: str, *values: Any, data: bytes = PLAIN) -> Callable[[], bytes]:
    return lambda: patch(data, offset, fmt, *values)


def entry(index: int, field: str, fmt: str, *values: Any) -> Callable[[], bytes]:
    """A real file with a field of one directory entry replaced, sealed again."""
    return lambda: reseal(patch(PLAIN, at(index, field), fmt, *values))


def extra(*rows: Row, **how: Any) -> Callable[[], bytes]:
    """The real model with more tensors behind its own."""
    return lambda: build(arch(), [*ROWS, *rows], 0x23, **how)


def mini(
    change: dict[int, Row] | None = None, words: dict[str, int] | None = None, flags: int = 0x23, **how: Any
) -> Any:
    """The real model with some directory entries, words or places other than they should be."""
    return lambda: build(arch(**words or {}), [(change or {}).get(i, r) for i, r in enumerate(ROWS)], flags, **how)


def many_layers(n: int, families: str = "4", flags: int = 0x20, fill: int = 1) -> bytes:
    """A hostile model of `n` layers of one block each, all its tensors at the same place; the tag is not right."""
    a = arch(dim=1, n_layers=n, n_heads=1, head_dim=32, ffn_dim=32, has_q_norm=0)
    rows = [r for r in text_rows(a, families) if r.name[1:3] in ("8_", "4_") and r.name[3:] != "lm"]
    data = build(a, rows, flags, places=dict.fromkeys(range(len(rows)), 4096), seal=False)
    return data if fill else data[:4096] + bytes(len(data) - 4104) + data[-8:]


def zeroed(name: str, tensor: str, start: int = 0, length: int | None = None) -> Callable[[], bytes]:
    """One of the models with part of a tensor zero, sealed again."""

    def make() -> bytes:
        offset, nbytes = place_of(model(name), tensor)
        n = nbytes - start if length is None else length
        return reseal(patch(model(name), offset + start, "%ds" % n, bytes(n)))

    return make


def changed(name: str, flags: int | None = None, version: int | None = None, **words: int) -> Callable[[], bytes]:
    """One of the models with other words in its header and the tensors as they are."""

    def make() -> bytes:
        a, rows, right_flags, right_version = MODELS[name]
        return build(
            {**a, **words},
            rows,
            right_flags if flags is None else flags,
            version=right_version if version is None else version,
        )

    return make


# ---- the gates: VqfFile refuses, and the audit reports the same

GATES = [
    # 1
    Fault("an empty file", lambda: b"", "vqf.magic.truncated", "error", 0, None, "refuses"),
    Fault("seven bytes", lambda: PLAIN[:7], "vqf.magic.truncated", "error", 7, None, "refuses"),
    # 2
    *(
        Fault("magic %r" % magic, header(0, "4s", magic), "vqf.header.magic", "error", 0, "magic", "refuses")
        for magic in (b"VQFW", b"WFQF", b"GGUF", b"PK\3\4", b"\x7fELF", b"<htm", b"vers", b"\0\0\0\0", b"FQFV")
    ),
    # 3: before any further size check
    *(
        Fault(
            "version %d in a file of %d bytes" % (version, size),
            lambda version=version, size=size: patch(PLAIN, 4, "I", version)[:size],
            "vqf.header.version", "error", 4, "version", "refuses",
        )
        for version in (0, 1, 4, 0x10002, 0xFFFFFFFF)
        for size in (8, 448, 4096, len(PLAIN))
    ),
    Fault(
        "the header page of a version 1 file",
        lambda: bytes.fromhex("46514657010000006300000031000000").ljust(4096, b"\0"),
        "vqf.header.version", "error", 4, "version", "refuses",
    ),
    # 4
    *(
        Fault("%d bytes" % size, lambda size=size: PLAIN[:size], "vqf.file.truncated", "error", size, None, "refuses")
        for size in (8, 232, 432, 448, 511)
    ),
    # 5: the tensors show the value that was meant, so nothing follows from it
    *(
        Fault("%s 0 in the %d-byte form" % (name, form), word(name, 0, data),
              "vqf.arch.header", "error", WORD[name], "arch." + name, "refuses")
        for form, data in ((448, PLAIN), (432, PLAIN_432))
        for name in ("dim", "n_layers", "n_heads", "head_dim", "ffn_dim", "vocab_size")
    ),
    Fault("n_layers 0, and the tensors have 3, two bits apart", changed("layers", n_layers=0),
          "vqf.arch.header", "error", WORD["n_layers"], "arch.n_layers", "refuses",
          [("vqf.plan.shape", r.name) for r in MODELS["layers"][1] if r.name not in ("token_embed", "final_norm", "q4_lm")]),
    # 6: the size
    *(
        Fault("cut to %d bytes" % size, lambda size=size, data=data: data[:size],
              "vqf.size.truncated", "error", size, "file_len", "refuses")
        for size, data in ((512, PLAIN), (4096, PLAIN), (4097, PLAIN_432), (11391, PLAIN), (11399, PLAIN_432), (11400, ENC))
    ),
    *(
        Fault("%d bytes too many" % n, lambda n=n, data=data: data + bytes(n),
              "vqf.size.bounds", "error", len(data), "file_len", "refuses")
        for n, data in ((1, PLAIN), (8, PLAIN_432), (24, PLAIN), (32, ENC), (4096, PLAIN))
    ),
    Fault("32 bytes too many, as the engine's signing tool leaves them", lambda: ENC_SIGNED + bytes(32),
          "vqf.signtool.bounds", "error", 11424, "file_len", "refuses"),
    Fault("the ENC flag on a plain file", header(8, "I", 0xA3), "vqf.size.truncated", "error", 11400, "file_len", "refuses"),
    Fault("no ENC flag on an encrypted file", header(8, "I", 0x23, data=ENC),
          "vqf.size.bounds", "error", 11400, "file_len", "refuses"),
    Fault("file_len one more", header(208, "Q", FILE_LEN + 1), "vqf.size.truncated", "error", 11400, "file_len", "refuses"),
    Fault("file_len one less", header(208, "Q", FILE_LEN - 1), "vqf.size.bounds", "error", 11399, "file_len", "refuses"),
    Fault("file_len that wraps at 2^64 to the right one", header(208, "Q", U64 - 8),
          "vqf.size.truncated", "error", 11400, "file_len", "refuses"),
    # 6: the form
    *(
        Fault("%s in the %d-byte form" % (name, form),
              header(HEADER[form]["data_offset"], "QQ", start, stop, data=data),
              "vqf.header.layout", "error", HEADER[form]["data_offset"], "data_offset", "refuses")
        for form, data in ((448, PLAIN), (432, PLAIN_432))
        for name, start, stop in (
            ("data_offset 0", 0, FILE_LEN), ("data_offset not in 64s", 4097, FILE_LEN),
            ("data_offset inside the directory", END - 64, FILE_LEN), ("an empty data area", FILE_LEN, FILE_LEN),
            ("file_len before data_offset", 4096, 4032), ("both 2^64 - 64", U64 - 64, U64 - 64),
        )
    ),
    Fault("an IV that reads as the numbers of the other form", header(200, "QQ", 4096, FILE_LEN, data=ENC_432),
          "vqf.header.layout", "error", 200, "data_offset", "refuses"),
    Fault("MoE words that read as the numbers of the other form", header(184, "QQ", 4096, FILE_LEN),
          "vqf.header.layout", "error", 200, "data_offset", "refuses"),
    Fault("n_tensors whose directory wraps at 2^32 to one entry", header(12, "I", (1 << 26) + 1),
          "vqf.header.layout", "error", 200, "data_offset", "refuses"),
    Fault("the most tensors a header can name", header(12, "I", 0xFFFFFFFF),
          "vqf.header.layout", "error", 200, "data_offset", "refuses"),
    # 7: the engine adds 64-bit numbers that can wrap, and has no lower bound
    *(
        Fault(name, extra(Row("extra", F32, rows, cols, nbytes), places={14: offset}, file_len=FILE_LEN),
              "vqf.directory.bounds", "error", at(14, "offset"), "extra", engine, [("vqf.plan.name", "extra"), *also])
        for name, rows, cols, nbytes, offset, engine, also in (
            ("a tensor behind the data area", 16, 1, 64, FILE_LEN, "refuses", []),
            ("a tensor that ends behind the data area", 32, 1, 128, FILE_LEN - 64, "refuses", []),
            ("no bytes behind the data area", 0, 0, 0, FILE_LEN + 64, "refuses", []),
            ("an offset of 2^63", 16, 1, 64, 1 << 63, "refuses", []),
            ("a tensor in the header", 16, 1, 64, 0, "accepts", [("vqf.order.layout", "extra")]),
            ("a tensor that begins before the data area", 32, 1, 128, 4032, "accepts", [("vqf.order.layout", "extra")]),
            ("an end that wraps at 2^64 to 0", 16, 1, 64, U64 - 64, "accepts", []),
            ("an end that wraps at 2^64 into the file", 2048, 1, 8192, U64 - 64, "accepts", []),
            ("an end that wraps at 2^64 to one behind the file", 3072, 1, 12288, U64 - 64, "refuses", []),
            ("a length that wraps at 2^64", 4 * ((1 << 29) - 1), 4 * ((1 << 29) + 1), U64 - 64, 10816, "accepts", []),
        )
    ),
]  # fmt: skip

LIMIT = Fault(
    "more tensors than this library reads",
    lambda: build(arch(), [*ROWS, *[Row(b"", F32, 0, 0, 0)] * 65523], 0x23, seal=False),
    "vqf.directory.limit", "error", 12, "n_tensors", "unknown",
)  # fmt: skip

# ---- what sealing says: gates 8 and 10

VERIFY = [
    Fault("a changed byte of data", lambda: patch(PLAIN, 5000, "B", PLAIN[5000] ^ 1),
          "vqf.checksum.tag", "error", FILE_LEN, "tag", "unknown"),
    Fault("a changed byte of the directory", header(at(LM, "pad"), "B", 1),
          "vqf.checksum.tag", "error", FILE_LEN, "tag", "unknown"),
    Fault("a changed tag", lambda: patch(PLAIN, FILE_LEN, "B", PLAIN[FILE_LEN] ^ 1),
          "vqf.checksum.tag", "error", FILE_LEN, "tag", "unknown"),
    Fault("no checksum", header(FILE_LEN, "Q", 0), "vqf.checksum.missing", "note", FILE_LEN, "tag", "accepts"),
]  # fmt: skip

# ---- what the audit finds in files that open

_EXTRA = row("extra", F32, 16, 1)
_TILE_TAIL = 32 * 34  # bytes of q8_lm in lm-tail before its last 4 blocks

FINDINGS = [
    # gate 13: core tensors
    Fault("no token_embed", lambda: without("mini", "token_embed"),
          "vqf.core.missing", "error", END - 64, "token_embed", "refuses"),
    Fault("neither q8_q nor q4_q", lambda: without("mini", "q4_q"),
          "vqf.core.missing", "error", END - 64, "q8_q", "refuses"),
    Fault("a MoE file without its router", lambda: without("moe", "moe_router"),
          "vqf.core.missing", "error", 448 + 64 * 14, "moe_router", "refuses", [("vqf.flags.layout", "flags")]),
    Fault("a MoE file with neither q8_gate nor q4_gate", lambda: without("moe", "q4_gate"),
          "vqf.core.missing", "error", 448 + 64 * 14, "q8_gate", "refuses"),
    Fault("a MoE file of no experts", changed("moe", n_experts=0),
          "vqf.experts.header", "error", 180, "arch.n_experts", "refuses",
          [("vqf.plan.shape", "moe_router"), ("vqf.arch.shape", "arch.top_k")]),
    # names
    Fault("a name of 32 characters and no NUL", extra(_EXTRA._replace(name="n" * 32)),
          "vqf.unterminated.name", "error", at(14), "n" * 32, "accepts", [("vqf.plan.name", "n" * 32)]),
    Fault("a name beyond ASCII", extra(_EXTRA._replace(name=b"caf\xc3\xa9")),
          "vqf.ascii.name", "error", at(14), "caf\\xc3\\xa9", "accepts", [("vqf.plan.name", "caf\\xc3\\xa9")]),
    Fault("a name with a control character", extra(_EXTRA._replace(name="a\x1b[2Jb")),
          "vqf.ascii.name", "error", at(14), "a\x1b[2Jb", "accepts", [("vqf.plan.name", "a\x1b[2Jb")]),
    Fault("an empty name", extra(_EXTRA._replace(name=b"")), "vqf.empty.name", "error", at(14), None, "accepts"),
    Fault("a byte behind the name's NUL", entry(K, "name", "6s", b"q4_k\0x"),
          "vqf.padding.name", "warning", at(K) + 5, "q4_k", "accepts"),
    Fault("a byte at the end of the name's padding", entry(K, "name", "32s", b"q4_k".ljust(31, b"\0") + b"x"),
          "vqf.padding.name", "warning", at(K) + 31, "q4_k", "accepts"),
    Fault("a name that is there twice",
          lambda: build(arch(), [*ROWS[: K + 1], *ROWS[K:]], 0x23),
          "vqf.directory.duplicate", "error", at(K + 1), "q4_k", "accepts"),
    Fault("a name twice, of which one has padding behind it",
          lambda: build(arch(), [*ROWS[: K + 1], ROWS[K]._replace(name=b"q4_k\0\1"), *ROWS[K + 1 :]], 0x23),
          "vqf.directory.duplicate", "error", at(K + 1), "q4_k", "accepts", [("vqf.padding.name", "q4_k")]),
    Fault("a name that the format does not know", extra(_EXTRA), "vqf.plan.name", "warning", at(14), "extra", "accepts"),
    # qtype, alignment, overlaps
    *(
        Fault("qtype %d" % qtype, entry(V, "qtype", "I", qtype),
              "vqf.directory.dtype", "error", at(V, "qtype"), "q4_v", "accepts")
        for qtype in (0, 6, 0x103, 0xFFFFFFFF)
    ),
    *(
        Fault("an offset %d past a multiple of 64" % n, mini(places={LM: 10816 + n}),
              "vqf.directory.align", "error", at(LM, "offset"), "q4_lm", "accepts")
        for n in (1, 32, 63)
    ),
    Fault("a tensor that begins before the one ahead of it ends", mini(places={LM: 10240 + 512}),
          "vqf.directory.overlap", "error", at(LM, "offset"), "q4_lm", "accepts"),
    Fault("a tensor at the place of another", mini(places={LM: 10240}),
          "vqf.directory.overlap", "error", at(LM, "offset"), "q4_lm", "accepts"),
    Fault("a tensor within another, and a third behind both within it too",
          extra(row("a", F32, 16, 1), row("b", F32, 16, 1), places={14: 10816 + 64, 15: 10816 + 192}),
          "vqf.directory.overlap", "error", at(14, "offset"), "a", "accepts",
          [("vqf.directory.overlap", "b"), ("vqf.plan.name", "a"), ("vqf.plan.name", "b")]),
    # bytes
    Fault("64 bytes more than qtype, rows and cols make", mini({LM: ROWS[LM]._replace(bytes=640)}),
          "vqf.directory.shape", "error", at(LM, "bytes"), "q4_lm", "accepts"),
    Fault("64 bytes less", mini({LM: ROWS[LM]._replace(bytes=512)}),
          "vqf.directory.shape", "error", at(LM, "bytes"), "q4_lm", "accepts"),
    Fault("no bytes", mini({LM: ROWS[LM]._replace(bytes=0)}),
          "vqf.directory.shape", "error", at(LM, "bytes"), "q4_lm", "accepts"),
    Fault("rows * cols that wraps at 2^32 to the right product", entry(LM, "rows", "II", 1024, (1 << 22) + 1),
          "vqf.directory.shape", "error", at(LM, "bytes"), "q4_lm", "accepts", [("vqf.plan.shape", "q4_lm")]),
    Fault("an unknown tensor whose rows * cols wraps at 2^32", extra(Row("extra", F32, 16, (1 << 28) + 1, 64)),
          "vqf.directory.shape", "error", at(14, "bytes"), "extra", "accepts", [("vqf.plan.name", "extra")]),
    # padding, reserved fields, alignment holes
    *(
        Fault("a byte behind the directory, at %d" % offset, header(offset, "B", 1),
              "vqf.padding.layout", "warning", offset, "directory", "accepts")
        for offset in (END, 2000, 4095)
    ),
    *(
        Fault("a byte at %d behind the header of 432" % offset, header(offset, "B", 0x80, data=PLAIN_432),
              "vqf.padding.layout", "warning", offset, "header", "accepts")
        for offset in (432, 447)
    ),
    Fault("a byte between tensors", lambda: reseal(patch(model("layers"), sum(place_of(model("layers"), "q_norm")), "B", 1)),
          "vqf.padding.layout", "warning", sum(place_of(model("layers"), "q_norm")), "q_norm", "accepts"),
    Fault("a byte behind the last tensor",
          lambda: reseal(patch(model("layers"), sum(place_of(model("layers"), "q4_lm")) + 31, "B", 1)),
          "vqf.padding.layout", "warning", sum(place_of(model("layers"), "q4_lm")) + 31, "q4_lm", "accepts"),
    *(
        Fault("a byte in the hole at %d of the %d-byte header" % (offset, form), header(offset, "B", 1, data=data),
              "vqf.reserved.header", "warning", offset, "pad", "accepts")
        for form, data, hole in ((448, PLAIN, 196), (432, PLAIN_432, 180)) for offset in (hole, hole + 3)
    ),
    Fault("a byte in the hole of an entry", entry(Q, "pad", "B", 1),
          "vqf.reserved.header", "warning", at(Q, "pad"), "q4_q", "accepts"),
    *(
        Fault("a byte at %d in %s of the %d-byte header" % (inside, field, form),
              header(HEADER[form][field] + inside, "B", 1, data=data),
              code, "warning", HEADER[form][field] + inside, field, "accepts")
        for form, data in ((448, PLAIN), (432, PLAIN_432))
        for field, size, code in (("enc_rsvd", 16, "vqf.reserved.header"), ("enc_iv", 16, "vqf.reserved.iv"),
                                  ("sig", 200, "vqf.unsigned.signature"))
        for inside in (0, size - 1)
    ),
    Fault("sig.reserved", header(248 + SIG["reserved"], "I", 1, data=SIGNED),
          "vqf.reserved.header", "warning", 248 + 196, "sig.reserved", "accepts"),
    Fault("a byte behind the user id", header(248 + SIG["id"] + 31, "B", 1, data=SIGNED),
          "vqf.reserved.header", "warning", 248 + 160 + 31, "sig.id", "accepts"),
    *(
        Fault("id_len %d in a %s file" % (n, kind), header(248 + SIG["id_len"], "I", n, data=data),
              "vqf.sigid.signature", "error", 248 + 192, "sig.id_len", engine, also)
        for kind, data, engine, also in (("plain", SIGNED, "unknown", []),
                                         ("encrypted", ENC_SIGNED, "refuses", [("vqf.data.policy", None)]))
        for n in (0, 33, 0xFFFFFFFF)
    ),
    Fault("id_len 20 with an id of 16", header(248 + SIG["id_len"], "I", 20, data=SIGNED),
          "vqf.sigid.signature", "error", 248 + 192, "sig.id_len", "unknown"),
    Fault("an IV of zeros in an encrypted file", header(216, "16s", bytes(16), data=ENC),
          "vqf.zero.iv", "warning", 216, "enc_iv", "accepts", [("vqf.data.policy", None)]),
    # order and completeness
    Fault("two names in the other order", lambda: build(arch(), [*ROWS[:UP], ROWS[DOWN], ROWS[UP], ROWS[LM]], 0x23),
          "vqf.order.layout", "warning", at(DOWN), "q4_up", "accepts"),
    Fault("two tensors' data in the other order", mini(places={UP: 10240, DOWN: 9664, LM: 10816}, file_len=FILE_LEN),
          "vqf.order.layout", "warning", at(DOWN, "offset"), "q4_down", "accepts"),
    *(
        Fault("no %s" % name, lambda which=which, name=name: without(which, name),
              "vqf.plan.missing", "error", 448 + 64 * (len(MODELS[which][1]) - 1), name, "accepts")
        for which, name in (("mini", "final_norm"), ("mini", "q4_k"), ("mini", "q4_lm"), ("x8", "x8_up"),
                            ("vision", "v_norm1_w"), ("dual", "q8_q"), ("dual", "q4_q"), ("moe-dual", "q4_gate"))
    ),
    Fault("64 bytes that no tensor owns", mini(places={LM: 10816 + 64}),
          "vqf.gap.layout", "note", 10816, "q4_down", "accepts"),
    Fault("64 bytes behind the last tensor", mini(file_len=FILE_LEN + 64),
          "vqf.gap.layout", "note", FILE_LEN, "q4_lm", "accepts"),
    *(
        Fault("data at %d instead of the next page" % start, mini(data_offset=start),
              "vqf.page.layout", "note", 200, "data_offset", "accepts")
        for start in (END, 4032, 8192)
    ),
    # geometry other than the plan's
    Fault("rows and cols of q4_k in the other order, the matrix not square",
          lambda: reseal(patch(model("layers"), at(index_of(model("layers"), "q4_k"), "rows"), "II", 16, 3 * 64)),
          "vqf.plan.shape", "error", at(index_of(model("layers"), "q4_k"), "qtype"), "q4_k", "accepts"),
    Fault("q4_v as F32 of as many bytes", mini({V: Row("q4_v", F32, 144, 1, 576)}),
          "vqf.plan.shape", "error", at(V, "qtype"), "q4_v", "accepts"),
    Fault("a vocabulary of 36 over tensors of 32 rows, one bit apart", word("vocab_size", 36),
          "vqf.arch.shape", "error", WORD["vocab_size"], "arch.vocab_size", "accepts"),
    Fault("a vocabulary of 44 over tensors of 32 rows, two bits apart", word("vocab_size", 44),
          "vqf.plan.shape", "error", at(EMBED, "qtype"), "token_embed", "accepts", [("vqf.plan.shape", "q4_lm")]),
    Fault("two layers of half a block each", lambda: build(*_half_blocks(), 0x20),
          "vqf.layer.shape", "error", at(7), "q4_k", "accepts", [("vqf.layer.shape", "q4_v")]),
    # flags
    *(
        Fault("flag bit %d" % bit, header(8, "I", 0x23 | 1 << bit), "vqf.flags.header", "warning", 8, "flags", "accepts")
        for bit in (10, 16, 31)
    ),
    *(
        Fault(name, header(8, "I", flags), "vqf.flags.layout", "error", 8, "flags", "accepts", also)
        for name, flags, also in (
            ("X8 without x8 copies", 0x27, []),
            ("G256 without q8 tensors", 0x33, []),
            ("Q8BUF_Q4 without q8 tensors", 0x2A, []),
            ("Q8BUF_Q4 with Q8_8X8, without q8 tensors", 0x2B, [("vqf.flags.layout", "flags")]),
            ("EMB_F16 clear over an F16 embedding", 0x03, [("vqf.plan.shape", "token_embed")]),
        )
    ),
    Fault("x8 copies without X8", changed("x8", flags=0x23), "vqf.flags.layout", "error", 8, "flags", "accepts"),
    Fault("q4i in tiles of 8 rows", changed("q4i", flags=0x2B), "vqf.flags.layout", "error", 8, "flags", "accepts"),
    Fault("q4i and g256 at once", changed("q4i", flags=0x3A), "vqf.flags.layout", "error", 8, "flags", "accepts"),
    Fault("EMB_F16 over an F32 embedding", mini({EMBED: row("token_embed", F32, 32, 32)}),
          "vqf.flags.layout", "error", 8, "flags", "accepts", [("vqf.plan.shape", "token_embed")]),
    Fault("Q8_8X8 where k and v have 12 rows", changed("tails", flags=0x33),
          "vqf.flags.layout", "error", 8, "flags", "accepts"),
    Fault("Q4_4X4 where V is odd", lambda: build(arch(vocab_size=33), text_rows(arch(vocab_size=33)), 0x23),
          "vqf.flags.layout", "error", 8, "flags", "accepts"),
    *(
        Fault("%s clear although the gate passes" % name, header(8, "I", flags),
              "vqf.tiles.layout", "note", 8, "flags", "accepts")
        for name, flags in (("Q8_8X8", 0x22), ("Q4_4X4", 0x21))
    ),
    Fault("VISION clear over a vision tower", changed("vision", flags=0x23),
          "vqf.flags.layout", "error", 8, "flags", "accepts"),
    Fault("VISION without a vision tower", header(8, "I", 0x63), "vqf.flags.layout", "error", 8, "flags", "accepts"),
    # versions
    Fault("version 2 on a MoE file", changed("moe", version=2), "vqf.moe.version", "warning", 4, "version", "unknown"),
    Fault("version 3 on a dense file", header(4, "I", 3), "vqf.moe.version", "warning", 4, "version", "unknown",
          [("vqf.core.missing", "moe_router"), ("vqf.experts.header", "arch.n_experts")]),
    Fault("version 3 in the 432-byte form", header(4, "I", 3, data=PLAIN_432), "vqf.moe.layout", "error", 4, "version",
          "unknown", [("vqf.moe.version", "version"), ("vqf.core.missing", "moe_router")]),
    Fault("flag MOE in the 432-byte form", header(8, "I", 0x223, data=PLAIN_432), "vqf.moe.layout", "error", 4, "version",
          "unknown", [("vqf.moe.version", "version"), ("vqf.core.missing", "moe_router"), ("vqf.flags.layout", "flags")]),
    *(
        Fault("the 432-byte form in a file that is %s" % kind, lambda data=data: data,
              "vqf.form.policy", "note", 8, "flags", "unknown", also)
        for kind, data, also in (("signed", SIGNED_432, []), ("encrypted", ENC_432, [("vqf.data.policy", None)]))
    ),
    Fault("an encrypted file", lambda: ENC, "vqf.data.policy", "note", 4096, None, "accepts"),
    # arch words that contradict the tensors or one another
    *(
        Fault("%s %d" % (name, value), word(name, value), "vqf.arch.shape", severity, WORD[name.rstrip("0123")],
              "arch." + name.rstrip("0123"), "accepts", also)
        for name, value, severity, also in (
            ("has_q_norm", 0, "error", []),
            ("has_q_norm", 2, "warning", []),
            ("has_vision", 1, "error", []),
            ("has_mrope", 0, "warning", []),
            ("has_mrope", 2, "warning", []),
            ("n_kv_heads", 0, "error", []),
            ("n_kv_heads", 2, "error", [("vqf.plan.shape", "q4_k"), ("vqf.plan.shape", "q4_v")]),
            ("head_dim_full", 64, "warning", []),
            ("kv_lora_rank", 1, "warning", []),
            ("mrope_n_sec", 5, "warning", []),
            ("vis_ds_count", 5, "warning", [("vqf.arch.shape", "arch.vis_ds_count")]),
            ("vis_depth", 24, "warning", []),
            ("vis_in_chan", 3, "warning", []),
            ("vis_max_pos", 2304, "warning", []),
            ("n_experts", 8, "warning", []),
            ("moe_ffn", 8, "warning", []),
            ("top_k", 8, "warning", []),
            ("shared_experts", 1, "warning", []),
        )
    ),
    Fault("mrope_sections beyond mrope_n_sec", header(WORD["mrope_sections3"], "i", -1),
          "vqf.arch.shape", "warning", WORD["mrope_sections0"], "arch.mrope_sections", "accepts"),
    Fault("vis_ds_idx beyond vis_ds_count", header(WORD["vis_ds_idx0"], "i", 5),
          "vqf.arch.shape", "warning", WORD["vis_ds_idx0"], "arch.vis_ds_idx", "accepts"),
    Fault("has_q_norm without the tensors", lambda: without("mini", "q_norm", "k_norm"),
          "vqf.arch.shape", "error", WORD["has_q_norm"], "arch.has_q_norm", "accepts",
          [("vqf.plan.missing", "q_norm"), ("vqf.plan.missing", "k_norm")]),
    Fault("has_vision 0 with a vision tower", changed("vision", has_vision=0),
          "vqf.arch.shape", "error", WORD["has_vision"], "arch.has_vision", "accepts"),
    Fault("n_experts * moe_ffn that is not ffn_dim", changed("moe", moe_ffn=33),
          "vqf.arch.shape", "error", WORD["ffn_dim"], "arch.ffn_dim", "accepts"),
    *(
        Fault("top_k %d of 4 experts" % n, changed("moe", top_k=n),
              "vqf.arch.shape", "error", WORD["top_k"], "arch.top_k", "accepts")
        for n in (0, 5)
    ),
    # matrices and tails of zeros
    *(
        Fault("%s of %s from byte %d on zero" % (tensor, name, start), zeroed(name, tensor, start, length),
              "vqf.zeros.missing", "warning", place_of(model(name), tensor)[0] + start, tensor, "accepts")
        for name, tensor, start, length in (
            ("mini", "token_embed", 0, None), ("mini", "q4_lm", 0, None),
            ("layers", "q4_k", 576, 576), ("layers", "q4_down", 2 * 3456, 3456),  # one layer: 16 * 64, 64 * 96 elements
            ("x8", "x8_o", 1152, 1152),
            ("moe", "q4_gate", 3 * 576, 576), ("moe", "q4_up", 4 * 576, 576),  # layer 0, expert 3; layer 1, expert 0
            ("moe", "moe_router", 512, 512),
            ("vision", "v_q8_fc1", 408, 408), ("vision", "v_merger_f1w", 0, None),
        )
    ),
    *(
        Fault("the tail of %s, layer %d, zero" % (tensor, layer), zeroed("tails", tensor, 408 * layer + 8 * 34, 4 * 34),
              "vqf.tail.missing", "warning", place_of(model("tails"), tensor)[0] + 408 * layer + 8 * 34, tensor, "accepts")
        for tensor in ("q8_k", "q8_v") for layer in (0, 1)
    ),
    Fault("the tail of a tiled file's q8_lm zero", zeroed("lm-tail", "q8_lm", _TILE_TAIL),
          "vqf.tail.missing", "warning", place_of(model("lm-tail"), "q8_lm")[0] + _TILE_TAIL, "q8_lm", "accepts"),
    Fault("no checksum", header(FILE_LEN, "Q", 0), "vqf.checksum.missing", "note", FILE_LEN, "tag", "accepts"),
    Fault("a download that was not filled from 0x1801 on", lambda: PLAIN[:0x1801].ljust(FILE_LEN + 8, b"\0"),
          "vqf.zeros.truncated", "error", len(PLAIN[:0x1801].rstrip(b"\0")), None, "accepts"),
    Fault("a file of which only the header came", lambda: PLAIN[:4096].ljust(FILE_LEN + 8, b"\0"),
          "vqf.zeros.truncated", "error", 4096, None, "accepts"),
]  # fmt: skip


def _half_blocks() -> tuple[dict[str, Any], list[Row]]:
    """A model whose k and v have layers of 16 elements, so that a block would reach into the next layer."""
    a = arch(dim=16, n_layers=2, n_heads=2, head_dim=1, head_dim_full=1, ffn_dim=32)
    return a, text_rows(a)

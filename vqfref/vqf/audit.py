"""Everything that is wrong or odd about a VQF file, by structure alone: no key, no hash, one pass over what is small.

Where a reader stops at the first gate, the audit goes on and reports every fault of spec section 4, the many that the
engine overlooks included, ordered by offset. `engine` in a finding says whether the engine would load the file all the
same. Of the data it reads the padding, and the matrices only as far as the first byte that is not zero.
"""

from __future__ import annotations

from vqfref.errors import FormatError, LimitError, UsageError, VqfrefError, did_you_mean
from vqfref.findings import Findings
from vqfref.vqf import structs
from vqfref.vqf.geometry import Geometry, contradictions, layout_flags, q4_gate, q8_gate, tensors
from vqfref.vqf.head import (
    MIN_SIZE,
    POSITIVE,
    Head,
    check_bounds,
    check_magic,
    check_size,
    entry_offset,
    find_form,
    load_directory,
    read_directory,
    with_transfer,
    zero_word,
)
from vqfref.vqf.seal import unfilled
from vqfref.vqf.structs import DIR_OFFSET, HEADER_432, HEADER_448, QTYPES, SIG, TENSOR

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterable, Iterator

    from vqfref.findings import Finding
    from vqfref.source import Source
    from vqfref.vqf.head import Entry

_U64 = 1 << 64
MAX_SEARCH = 1 << 29  # what a search for bytes other than zero may cost: bytes, and PER_READ more for each read
PER_READ = 4096  # so some 120,000 gaps and matrices; the largest known models have 47,000
MAX_PADDING = 1 << 20  # of a gap no more is searched; it is a finding anyhow
MAX_HINTS = 16  # unknown names for which a missing one is looked for; real files have none
BLANK = {bytes(TENSOR.size): "zeros", b"\xff" * TENSOR.size: "ff"}  # entries of a medium that was erased
# Words of arch that two tensors or more depend on, so that the directory can show which value was meant.
SHOWN_WORDS = (
    "dim", "n_layers", "n_heads", "n_kv_heads", "head_dim", "ffn_dim", "vocab_size", "vis_depth", "vis_hidden", "vis_ffn",
    "vis_merge", "vis_out_dim", "vis_ds_count",
)  # fmt: skip


def audit(source: Source, *, q8_tile: int = 0) -> list[Finding]:
    """All findings about a VQF file, ordered by offset; an empty list is a clean file."""
    found = Findings(source.path)
    try:
        head = _audit_gates(source, found)
        if head is not None:
            _Audit(source, head, found, q8_tile).run()
    except UsageError:  # the caller's fault, such as a source that was closed
        raise
    except VqfrefError as error:
        found.add_error(error)
    return found.sorted()


def _audit_gates(source: Source, found: Findings) -> Head | None:
    """Gates 1 to 6. None where nothing behind the header can be judged; zeros in arch don't prevent that."""
    data = source.read_at(0, min(source.size, MIN_SIZE))
    check_magic(data, source.size)
    check_size(source.size)
    arch = HEADER_448.unpack(data).arch
    for name in POSITIVE:
        if getattr(arch, name) == 0:
            found.add_error(zero_word(name))
    try:
        return find_form(data, source.size)
    except FormatError as error:
        raise with_transfer(error, source) from None


def all_tensors(arch: Any, flags: int, q8_tile: int = 0) -> dict[str, Geometry]:
    """Every tensor of the format, by name, in the size that an arch gives it."""
    return {t.name: t for t in tensors(arch._replace(has_q_norm=1), "84x", flags | structs.FLAG_VISION, q8_tile)}


def called_for(arch: Any, flags: int, names: Iterable[str], q8_tile: int = 0) -> dict[str, Geometry]:
    """The tensors that an arch calls for in a file that has these names: of the families that are there, all. Flags and
    words of arch that contradict them are findings of their own."""
    present = set(names).intersection(all_tensors(arch, flags | structs.FLAG_MOE, q8_tile))

    def has(prefix: str) -> bool:
        return any(name.startswith(prefix) for name in present)

    families = "".join(family for family, prefix in (("8", "q8_"), ("4", "q4_"), ("x", "x8_")) if has(prefix))
    flags = flags | structs.FLAG_VISION if has("v_") else flags & ~structs.FLAG_VISION
    arch = arch._replace(has_q_norm=int(bool(arch.has_q_norm) or has("q_norm") or has("k_norm")))
    return {t.name: t for t in tensors(arch, families, flags, q8_tile)}


class _Audit:
    """The findings of one file, in the order of its parts."""

    def __init__(self, source: Source, head: Head, found: Findings, q8_tile: int) -> None:
        self.source = source
        self.head = head
        self.header = head.header
        self.arch = head.header.arch
        self.found = found
        self.add = found.add
        self.encrypted = bool(self.header.flags & structs.FLAG_ENC)
        entries = load_directory(source, head)
        self.dir_end = DIR_OFFSET + TENSOR.size * len(entries)
        stored = source.read_at(DIR_OFFSET, self.dir_end - DIR_OFFSET)
        pieces = [stored[at : at + TENSOR.size] for at in range(0, len(stored), TENSOR.size)]
        self.blank = {i: BLANK[piece] for i, piece in enumerate(pieces) if piece in BLANK}  # erased: no entries at all
        self.entries = [e for e in entries if e.index not in self.blank]
        self.names = {e.name for e in self.entries}
        self.q8_tile = q8_tile
        self.search_left = MAX_SEARCH
        self.hints_left = MAX_HINTS
        self.filled = self.header.file_len  # beyond it are the zeros of a download that was never filled
        self.mend_arch()
        flags = self.header.flags
        self.known = all_tensors(self.arch, flags, q8_tile)
        self.format_names = self.names.intersection([*self.known, "moe_router"])
        self.plan = called_for(self.arch, flags, self.names, q8_tile)
        # Writers leave out what is empty.
        self.missing = [name for name, t in self.plan.items() if name not in self.names and t.nbytes]
        self.lost = self.missing if len(self.missing) <= len(self.blank) else []  # with the erased entries

    def run(self) -> None:
        self.version_and_form()
        self.flags()
        self.arch_words()
        self.reserved()
        self.directory()
        self.order()
        self.core()
        inside = self.overlaps()
        if not self.encrypted:
            self.checksum_word()
        try:
            self.padding(inside)
            if not self.encrypted:
                self.zeros(inside)
        except LimitError as error:  # of the two searches
            self.add("note", error.code, error.message, error.offset, None)
        if self.encrypted:
            self.add("note", "vqf.data.policy", "encrypted: padding and zeros in the data area can't be judged without "
                     "the passphrase", self.header.data_offset, None)  # fmt: skip

    def mend_arch(self) -> None:
        """One bit wrong in a word of arch makes every tensor wrong that depends on it. Where the directory agrees on the
        value that the word had, say that, and judge all else by it."""
        flags, entries = self.header.flags, {e.name: e for e in reversed(self.entries)}  # of a name, the first

        def misfits(arch: Any) -> int:
            known = all_tensors(arch, flags, self.q8_tile)
            pairs = ((known[name], e) for name, e in entries.items() if name in known)
            return sum((t.rows, t.cols) != (e.rows, e.cols) for t, e in pairs)

        now = misfits(self.arch)
        if now < 2:
            return
        tries = []
        for word in SHOWN_WORDS:
            for bit in range(32):
                arch = self.arch._replace(**{word: getattr(self.arch, word) ^ 1 << bit})
                tries.append((misfits(arch), word, arch))
        best = min(t[0] for t in tries)
        if best > now // 4 or sum(t[0] == best for t in tries) > 1:
            return
        _, word, arch = min(tries, key=lambda t: t[0])
        was, fits = getattr(self.arch, word), getattr(arch, word)
        if was or word not in POSITIVE:  # else gate 5 has said it
            self.add("error", "vqf.arch.shape", "%d, but the directory fits %d, one bit apart; %d tensors would be wrong "
                     "otherwise" % (was, fits, now - best), self._offset("arch." + word), "arch." + word)  # fmt: skip
        self.arch = arch

    def _has(self, prefix: str) -> bool:
        return any(name.startswith(prefix) for name in self.format_names)

    def _offset(self, path: str) -> int:
        return int(self.head.layout.offset_of(path))

    # -- the header

    def version_and_form(self) -> None:
        flags, version = self.header.flags, self.header.version
        moe = bool(flags & structs.FLAG_MOE)
        if moe != (version == structs.VERSION_MOE):
            self.add("warning", "vqf.moe.version", "version %d with flag MOE %s: writers put version 3 on MoE files and "
                     "on no others" % (version, "set" if moe else "clear"), 4, "version", "unknown")  # fmt: skip
        if self.head.layout is HEADER_432:
            if version == structs.VERSION_MOE or moe:
                self.add("error", "vqf.moe.layout", "a MoE file with the 432-byte header, which has no room for the MoE "
                         "words", 4, "version", "unknown")  # fmt: skip
            if flags & (structs.FLAG_ENC | structs.FLAG_SIGNED):
                self.add("note", "vqf.form.policy", "encrypted or signed with the 432-byte header: the older engine "
                         "loads it, engines with the 448-byte header refuse it", 8, "flags", "unknown")  # fmt: skip

    def flags(self) -> None:
        flags = self.header.flags
        at = 8
        if flags >> len(structs.FLAGS):
            self.add("warning", "vqf.flags.header", "unknown bits set: 0x%x" % (flags >> 10 << 10), at, "flags")

        def contradiction(message: str) -> None:
            self.add("error", "vqf.flags.layout", message, at, "flags")

        for bit, prefix in (
            (structs.FLAG_X8, "x8_"), (structs.FLAG_VISION, "v_"), (structs.FLAG_Q8BUF_Q4, "q8_"),
            (structs.FLAG_G256, "q8_"), (structs.FLAG_MOE, "moe_router"),
        ):  # fmt: skip
            name = structs.flag_names(bit)
            if flags & bit and not self._has(prefix):
                contradiction(
                    "%s set, but there is no %s tensor" % (name, prefix.rstrip("_") + "_*"[: prefix[-1] == "_"])
                )
            if not flags & bit and self._has(prefix) and prefix != "q8_":
                contradiction("%s clear, but there are %s tensors" % (name, prefix))
        if flags & structs.FLAG_Q8BUF_Q4 and flags & (structs.FLAG_Q8_8X8 | structs.FLAG_G256):
            contradiction("Q8BUF_Q4 goes with neither Q8_8X8 nor G256")
        if flags & structs.FLAG_Q8_8X8 and not q8_gate(self.arch):
            contradiction("Q8_8X8 set, but the arch does not pass the gate for tiles of 8 rows")
        if flags & structs.FLAG_Q4_4X4 and not q4_gate(self.arch):
            contradiction("Q4_4X4 set, but the arch does not pass the gate for tiles of 4 rows")
        usual = layout_flags(self.arch, "q4i" if flags & structs.FLAG_Q8BUF_Q4 else "q8")
        for bit in (structs.FLAG_Q8_8X8, structs.FLAG_Q4_4X4):
            if usual & bit & ~flags and not (bit == structs.FLAG_Q8_8X8 and self.q8_tile):
                self.add("note", "vqf.tiles.layout", "%s clear although the arch passes its gate: read as linear rows; "
                         "if values look shuffled, they may be tiled" % structs.flag_names(bit), at, "flags")  # fmt: skip
        for e in self.entries:
            if e.name == "token_embed" and e.qtype in (structs.F16, structs.F32):
                if (e.qtype == structs.F16) != bool(flags & structs.FLAG_EMB_F16):
                    contradiction("EMB_F16 is %s, but token_embed is %s"
                                  % ("set" if flags & structs.FLAG_EMB_F16 else "clear", QTYPES[e.qtype].name))  # fmt: skip
                break

    def arch_words(self) -> None:
        a = self.arch
        q_norm = not {"q_norm", "k_norm"}.isdisjoint([*self.names, *self.lost])
        vision = self._has("v_")

        def wrong(severity: str, name: str, message: str) -> None:
            self.add(severity, "vqf.arch.shape", message, self._offset("arch." + name), "arch." + name)

        for name, present in (("has_q_norm", q_norm), ("has_vision", vision)):
            if bool(getattr(a, name)) != present:
                wrong(
                    "error", name, "%d, but the tensors %s there" % (getattr(a, name), "are" if present else "are not")
                )
        for name in ("has_q_norm", "has_mrope", "has_vision"):
            if getattr(a, name) > 1:
                wrong("warning", name, "%d, expected 0 or 1" % getattr(a, name))
        for name in structs.POSITIVE_WORDS:
            value = getattr(a, name)
            if not 0 < value < float("inf"):
                wrong("warning", name, "%r, expected a positive number" % value)
        moe = bool(self.header.flags & structs.FLAG_MOE)
        has_moe_words = moe and self.head.layout is not HEADER_432  # else a finding of its own
        for name, message in contradictions(a, has_moe_words):
            wrong("error", name, message)
        if a.head_dim_full != a.head_dim:
            wrong("warning", "head_dim_full", "%d, but head_dim is %d" % (a.head_dim_full, a.head_dim))
        if a.kv_lora_rank:
            wrong("warning", "kv_lora_rank", "%d, expected 0 as in all known files" % a.kv_lora_rank)
        if bool(a.mrope_n_sec) and not a.has_mrope:
            wrong("warning", "has_mrope", "0, but mrope_n_sec is %d" % a.mrope_n_sec)
        for count, array in (("vis_ds_count", "vis_ds_idx"), ("mrope_n_sec", "mrope_sections")):
            n, values = getattr(a, count), getattr(a, array)
            if n > 4:
                wrong("warning", count, "%d, but there is room for 4" % n)
            elif any(values[n:]):
                wrong("warning", array, "%s, but %s is %d" % (list(values), count, n))
        if not a.has_vision and not vision:
            for name in structs.Arch._fields:
                if name.startswith("vis_") and name != "vis_ds_idx" and getattr(a, name):
                    wrong("warning", name, "%d without vision, expected 0" % getattr(a, name))
        if not moe:
            for name in ("n_experts", "moe_ffn", "top_k", "shared_experts"):
                if getattr(a, name):
                    wrong("warning", name, "%d in a dense file, expected 0" % getattr(a, name))

    def reserved(self) -> None:
        """Words that no writer sets: reserved fields, padding of the C compiler, the blocks of features not in use."""
        h, flags = self.header, self.header.flags
        self._zero("warning", "vqf.reserved.header", "pad", h.pad, "alignment padding")
        self._zero("warning", "vqf.reserved.header", "enc_rsvd", h.enc_rsvd, "reserved")
        if not flags & structs.FLAG_ENC:
            self._zero("warning", "vqf.reserved.iv", "enc_iv", h.enc_iv, "not encrypted")
        elif not any(h.enc_iv):
            self.add("warning", "vqf.zero.iv", "all zero: the IV of an encrypted file should be random and used once",
                     self._offset("enc_iv"), "enc_iv")  # fmt: skip
        if not flags & structs.FLAG_SIGNED:
            self._zero("warning", "vqf.unsigned.signature", "sig", SIG.pack(h.sig), "not signed")
            return
        sig = h.sig
        self._zero("warning", "vqf.reserved.header", "sig.reserved", sig.reserved.to_bytes(4, "little"), "reserved")
        if not 0 < sig.id_len <= 32 or b"\0" in sig.id[: sig.id_len]:
            message = "id_len %d, expected 1 to 32" % sig.id_len
            if 0 < sig.id_len <= 32:
                message = "id_len %d reaches into the id's zero padding" % sig.id_len
            self.add("error", "vqf.sigid.signature", message, self._offset("sig.id_len"), "sig.id_len",
                     "refuses" if self.encrypted else "unknown")  # fmt: skip
        elif any(sig.id[sig.id_len :]):
            first = len(sig.id) - len(sig.id[sig.id_len :].lstrip(b"\0"))
            self.add("warning", "vqf.reserved.header", "bytes behind the %d of the id, expected zeros" % sig.id_len,
                     self._offset("sig.id") + first, "sig.id")  # fmt: skip

    def _zero(self, severity: str, code: str, path: str, value: bytes, why: str) -> None:
        if any(value):
            first = len(value) - len(value.lstrip(b"\0"))
            text = value.hex() if len(value) <= 16 else value[first : first + 16].hex() + "…"
            self.add(severity, code, "%s, expected zeros (%s)" % (text, why), self._offset(path) + first, path)

    # -- the directory

    def directory(self) -> None:
        self.erased()
        seen: set[str] = set()
        for e in self.entries:
            self._entry_name(e, seen)
            if any(e.pad):
                self.add("warning", "vqf.reserved.header", "%s in the entry's alignment padding, expected zeros"
                         % e.pad.hex(), entry_offset(e, "pad"), e.name)  # fmt: skip
            if e.offset % structs.TENSOR_ALIGN:
                self.add("error", "vqf.directory.align", "offset 0x%x is not a multiple of 64" % e.offset,
                         entry_offset(e, "offset"), e.name)  # fmt: skip
            try:
                check_bounds(e, self.head)
            except FormatError as error:  # the engine adds in 64 bits, and has no lower bound
                wrapped = (e.offset + e.nbytes) % _U64
                self.found.add_error(error, "refuses" if wrapped > self.header.file_len else "accepts")
            self._entry_geometry(e)

    def erased(self) -> None:
        """Each run of entries that were erased, as one finding."""
        first = None
        for i, kind in self.blank.items():
            first = i if first is None else first
            if self.blank.get(i + 1) == kind:
                continue
            which = "entry %d is" % i if first == i else "entries %d to %d are" % (first, i)
            hint = "; lost with them: " + ", ".join(self.lost[:8]) + " …" * (len(self.lost) > 8) if self.lost else ""
            if i == self.header.n_tensors - 1 and not self.missing:
                hint = "; none is missing: is n_tensors %d?" % first
            self.add("error", "vqf.erased.name", "%s nothing but %s: an erased sector, or never written%s" % (
                which, kind, hint), DIR_OFFSET + TENSOR.size * first, None,
                "refuses" if kind == "ff" else "accepts")  # fmt: skip
            first = None

    def _entry_name(self, e: Entry, seen: set[str]) -> None:
        def wrong(severity: str, code: str, message: str, at: int = 0) -> None:
            self.add(severity, code, message, entry_offset(e) + at, e.name or None)

        text, _, rest = e.raw_name.partition(b"\0")
        if len(text) == 32:
            wrong("error", "vqf.unterminated.name", "32 characters and no NUL: a C reader runs into the next field")
        if not text:
            wrong("error", "vqf.empty.name", "entry %d has no name" % e.index)
        elif not text.isascii() or not text.decode("ascii").isprintable():
            shown = repr(text) if text.strip(b"\xff") else "%d bytes ff" % len(text)
            wrong("error", "vqf.ascii.name", "%s: expected printable ASCII" % shown)
        if any(rest):
            wrong("warning", "vqf.padding.name", "%s behind the name's NUL, expected zeros" % rest.hex(),
                  32 - len(rest.lstrip(b"\0")))  # fmt: skip
        if e.name in seen:
            wrong("error", "vqf.directory.duplicate", "this name is there before; a reader takes the first")
        seen.add(e.name)

    def _entry_geometry(self, e: Entry) -> None:
        if e.qtype not in QTYPES:
            self.add("error", "vqf.directory.dtype", "qtype %d: expected 1 to 5" % e.qtype,
                     entry_offset(e, "qtype"), e.name)  # fmt: skip
            return
        plain = Geometry(e.name, e.qtype, e.rows, e.cols, (e.rows, e.cols))
        if plain.nbytes != e.nbytes:
            self.add("error", "vqf.directory.shape", "%d bytes, but %s of %d x %d takes %d"
                     % (e.nbytes, QTYPES[e.qtype].name, e.rows, e.cols, plain.nbytes),
                     entry_offset(e, "bytes"), e.name)  # fmt: skip
        known = self.known.get(e.name)
        if known is None and e.name:
            hint = did_you_mean(e.name, self.missing) if self.missing and self.hints_left > 0 else ""
            self.hints_left -= 1
            self.add("warning", "vqf.plan.name", "not a name of the format: the engine ignores it%s" % hint,
                     entry_offset(e), e.name)  # fmt: skip
        if known is None:
            return
        if (known.qtype, known.rows, known.cols) != (e.qtype, e.rows, e.cols):
            self.add("error", "vqf.plan.shape", "%s of %d x %d, but the arch calls for %s of %d x %d"
                     % (QTYPES[e.qtype].name, e.rows, e.cols, QTYPES[known.qtype].name, known.rows, known.cols),
                     entry_offset(e, "qtype"), e.name)  # fmt: skip

    def order(self) -> None:
        """Order and completeness against the plan of section 6."""
        place = {name: i for i, name in enumerate(self.plan)}
        last = None
        for e in self.entries:
            if e.name not in place:
                continue
            if last is not None and place[e.name] < place[last]:
                self.add("warning", "vqf.order.layout", "comes behind %s; writers put it before" % last,
                         entry_offset(e), e.name)  # fmt: skip
                break
            last = e.name
        offsets = [e.offset for e in self.entries]
        for before, e in zip(offsets, self.entries[1:]):
            if e.offset < before:
                self.add("warning", "vqf.order.layout", "its data lies before that of the entry ahead of it",
                         entry_offset(e, "offset"), e.name)  # fmt: skip
                break
        end, core = self.dir_end, self._core()
        for name in self.missing if not self.lost else ():
            if name not in core or not self.names.isdisjoint(core[name]):  # else gate 13 names it
                self.add("error", "vqf.plan.missing", "the arch calls for this tensor (%d bytes)" % self.plan[name].nbytes,
                         end, name)  # fmt: skip
        if self.header.data_offset != structs.align(end, structs.PAGE):
            self.add("note", "vqf.page.layout", "0x%x; the converter puts the data at 0x%x, the next page behind the "
                     "directory" % (self.header.data_offset, structs.align(end, structs.PAGE)),
                     self._offset("data_offset"), "data_offset")  # fmt: skip

    def _core(self) -> dict[str, tuple[str, ...]]:
        """Gate 13: what the engine needs, each with the names that will do."""
        core: dict[str, tuple[str, ...]] = {"token_embed": ("token_embed",)}
        core["q8_q"] = core["q4_q"] = ("q8_q", "q4_q")
        if self.header.flags & structs.FLAG_MOE or self.header.version == structs.VERSION_MOE:
            core["moe_router"] = ("moe_router",)
            core["q8_gate"] = core["q4_gate"] = ("q8_gate", "q4_gate")
        return core

    def core(self) -> None:
        end = self.dir_end
        for names in dict.fromkeys(self._core().values()):
            if self.names.isdisjoint(names):
                self.add("error", "vqf.core.missing", "%s: the engine can't run without it" % " or ".join(names),
                         end, names[0], "refuses")  # fmt: skip
        moe = self.header.flags & structs.FLAG_MOE or self.header.version == structs.VERSION_MOE
        if moe and self.head.layout is HEADER_448 and self.arch.n_experts == 0:
            self.add("error", "vqf.experts.header", "0 in a MoE file", self._offset("arch.n_experts"), "arch.n_experts",
                     "refuses")  # fmt: skip

    # -- the data area

    def overlaps(self) -> list[Entry]:
        """Reports tensors that share bytes; returns the entries inside the data area, by offset."""
        start, stop = self.header.data_offset, self.header.file_len
        inside = [e for e in self.entries if e.nbytes and start <= e.offset and e.offset + e.nbytes <= stop]
        inside.sort(key=lambda e: (e.offset, e.nbytes))
        widest = None
        for e in inside:
            if widest is not None and e.offset < widest.offset + widest.nbytes:
                self.add("error", "vqf.directory.overlap", "bytes 0x%x .. 0x%x belong to %s too"
                         % (e.offset, min(e.offset + e.nbytes, widest.offset + widest.nbytes), widest.name or "another"),
                         entry_offset(e, "offset"), e.name)  # fmt: skip
            if widest is None or e.offset + e.nbytes > widest.offset + widest.nbytes:
                widest = e
        return inside

    def padding(self, inside: list[Entry]) -> None:
        """Bytes that belong to nothing: behind the header, the directory, each tensor."""
        gaps = [("header", self.head.layout.size, DIR_OFFSET), ("directory", self.dir_end, self.header.data_offset)]
        if not self.encrypted and not self.lost:  # what has lost its entry is no padding
            at, name = self.header.data_offset, "data_offset"
            for e in inside:
                gaps.append((name, at, e.offset))
                if e.offset + e.nbytes > at:
                    at, name = e.offset + e.nbytes, e.name
            gaps.append((name, at, self.header.file_len))
        for name, start, stop in gaps:
            if stop <= start:
                continue
            first = self._first_nonzero(start, min(stop, start + MAX_PADDING))
            if first is not None:
                value = self.source.read_at(first, min(stop - first, 8)).hex()
                hint = self._more_entries(start, stop) if name == "directory" else ""
                self.add("warning", "vqf.padding.layout", "%s in the %d bytes of padding behind %s, expected zeros%s"
                         % (value, stop - start, name, hint), first, name)  # fmt: skip
            if name not in ("header", "directory") and stop - start >= structs.TENSOR_ALIGN:
                self.add("note", "vqf.gap.layout", "%d bytes behind %s that no tensor owns; writers leave at most 63"
                         % (stop - start, name), start, name)  # fmt: skip

    def _more_entries(self, start: int, stop: int) -> str:
        """Entries that follow the last of the directory, as n_tensors with a bit lost leaves them; in words."""
        count = (min(stop, start + TENSOR.size * len(self.missing)) - start) // TENSOR.size
        found = []
        for e in read_directory(self.source.read_at(start, TENSOR.size * count), self.head):
            if e.name not in self.missing:
                break
            found.append(e.name)
        n = self.header.n_tensors + len(found)
        return "; these are directory entries, %s: is n_tensors %d?" % (", ".join(found), n) if found else ""

    def zeros(self, inside: list[Entry]) -> None:
        """Matrices, and tails that the g256 encoder leaves out, that decode to nothing but zeros."""
        end = 0
        for e in inside:
            t = self.known.get(e.name)
            fresh, end = e.offset >= end, max(end, e.offset + e.nbytes)  # what tensors share is searched once
            if not fresh or t is None or len(t.shape) != 2 or t.nbytes != e.nbytes or t.qtype != e.qtype:
                continue
            try:
                t.layer_bytes  # noqa: B018 - raises where layers are not whole blocks
            except FormatError as error:
                self.add("error", error.code, error.message, entry_offset(e), e.name)
                continue
            for layer in range(t.layers):
                if self.filled <= e.offset + layer * t.layer_bytes:
                    return  # it is said already that nothing follows
                self._zero_matrix(e, t, layer)
                if self.header.flags & structs.FLAG_G256 and e.name.startswith("q8_"):
                    self._zero_tail(e, t, layer)

    def _zero_matrix(self, e: Entry, t: Geometry, layer: int) -> None:
        start = e.offset + layer * t.layer_bytes
        count, zero = 0, []
        for at, n, what in _parts(t, start):
            count += 1
            if self._first_nonzero(at, at + n) is None:
                zero.append((at, what))
        if zero and len(zero) == count:
            zero = [(start, "the whole matrix")]
        for at, what in zero:
            where = "layer %d, " % layer if t.layered else ""
            self.add("warning", "vqf.zeros.missing", "%s%s: nothing but zero bytes" % (where, what), at, e.name)

    def _zero_tail(self, e: Entry, t: Geometry, layer: int) -> None:
        for s in t.segments():
            elements = s.rows * t.matrix[1]
            first = elements // 256 * 8  # blocks before the tail
            blocks = range(first, elements // 32)
            if not blocks:
                continue
            base = e.offset + layer * t.layer_bytes + s.offset
            spans = [(base + at, n) for b in blocks for at, n in t.block_spans(s, b)]
            if all(self._first_nonzero(at, at + n) is None for at, n in spans):
                self.add("warning", "vqf.tail.missing", "layer %d: the last %d elements decode to zero; the g256 encoder "
                         "leaves out what does not fill a group of 256" % (layer, 32 * len(blocks)),
                         spans[0][0], e.name)  # fmt: skip

    def checksum_word(self) -> None:
        error = unfilled(self.source, self.head)
        if error is not None:
            self.filled = error.offset or 0
            self.add("error", error.code, error.message, error.offset, None, "accepts")
        elif not any(self.source.read_at(self.header.file_len, self.head.tag_length)):
            self.add("note", "vqf.checksum.missing", "the stored checksum is 0, which means none",
                     self.header.file_len, "tag")  # fmt: skip

    def _first_nonzero(self, start: int, stop: int) -> int | None:
        """Offset of the first byte in `start .. stop` that is not zero; reads no further than its piece.

        Raises LimitError where all searches together have cost more than MAX_SEARCH.
        """
        size = 64
        while start < stop:
            n = min(size, stop - start)
            self.search_left -= n + PER_READ
            if self.search_left < 0:
                raise LimitError("vqf.zeros.limit", "padding and zeros were searched up to here, no further: that would "
                                 "take too long", offset=start)  # fmt: skip
            piece = self.source.read_at(start, n)
            if piece != _ZEROS[:n]:
                return start + n - len(piece.lstrip(b"\0"))
            start += n
            size = len(_ZEROS)
        return None


_ZEROS = bytes(1 << 16)


def _parts(t: Geometry, start: int) -> Iterator[tuple[int, int, str]]:
    """The pieces of a layer at `start` that are judged apart, as (offset, length, what): experts, chunks of lm, or all."""
    if t.experts and t.expert_axis == 0:
        return ((start + at, n, "expert %d" % x) for x in range(t.experts) for at, n in t.ranges(0, expert=x))
    return ((start + s.offset, s.nbytes, "rows %d:%d" % (s.row, s.row + s.rows)) for s in t.segments())

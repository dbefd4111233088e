"""The invariant: for any bytes a reader returns or raises a VqfrefError, within 2 s and 64 MiB plus four headers.

Twenty thousand files are made from the real ones and from small models of other kinds, each from its own seed, which a
failure prints: `mutated(seed)` makes the same bytes again. Hostile files that chance would not find have tests of
their own.
"""

from __future__ import annotations

import random
import signal
import struct
import time
import tracemalloc
import unittest
from contextlib import contextmanager

from tests.faults import many_layers
from tests.samples import (
    ARCH_WORDS,
    F16,
    F32,
    HEADER,
    Q4_0,
    Q8_0,
    REAL,
    SIG,
    WORD,
    Row,
    arch,
    at,
    build,
    lay_out,
    model,
    patch,
    real,
    row,
    text_rows,
)
from tests.tools import LONG, SECONDS
from vqfref.errors import FormatError, VqfrefError
from vqfref.source import Source
from vqfref.vqf import explain
from vqfref.vqf.audit import audit
from vqfref.vqf.reader import VqfFile

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Iterator

FILES = 20000 if LONG else 600
PASSPHRASE = b"correct horse battery staple"
MIB = 1 << 20

# ---- made by chance

BASES = [real(name) for name in REAL] + [model("mini"), model("mini", 432)] * 3
BASES += [
    model(name) for name in ("layers", "dual", "q8", "x8", "q4i", "tails", "moe", "moe", "moe-dual", "no-deepstack")
]

U32 = (0, 1, 2, 3, 7, 8, 31, 32, 33, 63, 64, 255, 256, 448, 4096, 65535, 65536, 16384, 1 << 26, (1 << 26) + 1, 1 << 31,
       (1 << 31) - 1, (1 << 32) - 1, (1 << 32) - 2, (1 << 32) - 64)  # fmt: skip
U64 = (
    *U32,
    1 << 32,
    (1 << 32) + 64,
    1 << 63,
    (1 << 63) - 1,
    (1 << 64) - 1,
    (1 << 64) - 8,
    (1 << 64) - 64,
    11392,
    11400,
)

HEADER_U32 = [4, 8, 12, *(WORD[word] for word in ARCH_WORDS), *(HEADER[f]["sig"] + SIG["id_len"] for f in HEADER)]
HEADER_U64 = [HEADER[form][field] for form in HEADER for field in ("data_offset", "file_len", "enc_iv")]
NAMES = [r.name.encode() for r in text_rows(arch(n_experts=1), "84x")] + [
    b"",
    b"v_q8_fc2",
    b"v_ds_nw",
    b"\xff",
    b"n" * 32,
]


def a_bit(rng: random.Random, data: bytearray) -> None:
    """A few bits turned over, mostly in header and directory."""
    for _ in range(rng.choice((1, 1, 2, 8))):
        if data:
            end = len(data) if rng.random() < 0.2 else min(len(data), 1400)
            data[rng.randrange(end)] ^= 1 << rng.randrange(8)


def a_word(rng: random.Random, data: bytearray) -> None:
    """A boundary value in a field of the header."""
    if rng.random() < 0.75:
        put(data, rng.choice(HEADER_U32), "I", rng.choice(U32))
    else:
        put(data, rng.choice(HEADER_U64), "Q", rng.choice(U64))


def an_entry(rng: random.Random, data: bytearray) -> None:
    """A boundary value, or another name, in a field of the directory."""
    index = rng.randrange(rng.choice((1, 14, 14, 30)))
    kind = rng.randrange(6)
    if kind == 0:
        put(data, at(index), "32s", rng.choice(NAMES))
    elif kind < 3:
        put(data, at(index, rng.choice(("qtype", "rows", "cols", "pad"))), "I", rng.choice(U32))
    elif kind < 5:
        put(data, at(index, rng.choice(("offset", "bytes"))), "Q", rng.choice(U64))
    else:  # nothing, but very often
        put(data, at(index, "rows"), "II", *rng.sample(((1 << 32) - 1, 0), 2))
        put(data, at(index, "bytes"), "Q", 0)


def an_entry_again(rng: random.Random, data: bytearray) -> None:
    a, b = rng.randrange(16), rng.randrange(16)
    if len(data) > at(16):
        data[at(a) : at(a + 1)] = data[at(b) : at(b + 1)]


def a_splice(rng: random.Random, data: bytearray) -> None:
    """A piece of another file, or of this one, over what was there."""
    other = rng.choice(BASES)
    start = rng.choice((0, 16, 184, 200, 232, 248, 448, 4096, rng.randrange(1400)))
    length = rng.choice((16, 64, 200, 448, 4096))
    target = start if rng.random() < 0.7 else rng.randrange(1400)
    piece = other[start : start + length]
    data[target : target + len(piece)] = piece


def a_cut(rng: random.Random, data: bytearray) -> None:
    n = rng.choice((rng.randrange(600), rng.randrange(len(data) + 1), len(data) - min(len(data), rng.randrange(40))))
    del data[n:]


def a_growth(rng: random.Random, data: bytearray) -> None:
    data += bytes([rng.choice((0, 0xFF))]) * rng.choice((1, 8, 24, 32, 64, 4096))


def a_shift(rng: random.Random, data: bytearray) -> None:
    """Bytes that were lost or have come in."""
    offset, n = rng.randrange(len(data) + 1), rng.choice((1, 4, 8, 16, 64))
    if rng.random() < 0.5:
        del data[offset : offset + n]
    else:
        data[offset:offset] = bytes(n)


def zeros(rng: random.Random, data: bytearray) -> None:
    start = rng.randrange(len(data) + 1)
    n = min(len(data) - start, rng.choice((4, 64, 576, 4096)))
    data[start : start + n] = bytes(n)


MUTATIONS = (
    a_bit,
    a_bit,
    a_word,
    a_word,
    an_entry,
    an_entry,
    an_entry_again,
    a_splice,
    a_cut,
    a_growth,
    a_shift,
    zeros,
)


def put(data: bytearray, offset: int, fmt: str, *values: Any) -> None:
    if offset + struct.calcsize("<" + fmt) <= len(data):
        struct.pack_into("<" + fmt, data, offset, *values)


def mutated(seed: int) -> bytes:
    """The file of a seed."""
    rng = random.Random(seed)
    data = bytearray(rng.choice(BASES))
    for _ in range(rng.choice((1, 1, 2, 3))):
        rng.choice(MUTATIONS)(rng, data)
    if rng.random() < 0.5 and len(data) >= 512:  # past gate 6, so that what is behind it is tried too
        tag = 32 if data[8] & 0x80 else 8
        for form in HEADER:
            if struct.unpack_from("<Q", data, HEADER[form]["data_offset"])[0] % 64 == 0:
                put(data, HEADER[form]["file_len"], "Q", len(data) - tag)
                break
    return bytes(data)


# ---- what is done with each


def attempt(call: Callable[..., Any], *args: Any, **how: Any) -> Any:
    """The result, or None where the library refuses in its own way."""
    try:
        return call(*args, **how)
    except VqfrefError:
        return None


def exercise(data: bytes, seed: int) -> bool:
    """All that reads a file without a key, for some seeds the values too. True if the file opened."""
    rng = random.Random(~seed)
    source = Source(data)
    audit(source, q8_tile=4 * (seed & 1))
    explain.file_fields(source)  # guesses the layout and explains its fields, too
    if seed % 16 == 0:
        cut = data[: rng.randrange(600)]
        layout, _ = explain.guess_layout(cut, len(data))
        explain.explain_fields(layout, cut)
    file = attempt(VqfFile, source, passphrase=PASSPHRASE, q8_tile=4 * (seed >> 1 & 1))
    if file is None:
        return False
    file.metadata()
    names = file.keys()
    some = rng.sample(names, min(3, len(names)))
    for name in some:
        file.info(name)
        file.raw(name)
        attempt(file.ranges, name)
        attempt(file.ranges, name, rng.choice((0, 1, -1)), rows=(0, 1), cols=(0, 1), expert=rng.choice((None, 0, 3)))
    if seed % 16 == 1:
        for name in some:
            attempt(file.get_tensor, name)
            attempt(file.get_tensor, name, layer=0, rows=slice(0, 3), expert=rng.choice((None, 0)))
            attempt(lambda name=name: sum(map(len, file.iter_rows(name))))
    if seed % 64 == 2:
        file.verify()
    return True


class Hang(BaseException):
    """A file took too long; no handler for errors catches this."""


@contextmanager
def limit(seconds: float) -> Iterator[None]:
    """Stops what computes for longer, in seconds of this process, where the system can; then fails in any case."""

    def stop(*_: Any) -> None:
        raise Hang("more than %s s" % seconds)

    can = hasattr(signal, "setitimer")
    start = time.process_time()
    if can:
        before = signal.signal(signal.SIGPROF, stop)
        signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        if can:
            signal.setitimer(signal.ITIMER_PROF, 0)
            signal.signal(signal.SIGPROF, before)
    if time.process_time() - start > seconds:
        raise Hang("more than %s s" % seconds)


@contextmanager
def bounded() -> Iterator[None]:
    """A failure, not the end of the run, for what takes too long."""
    try:
        with limit(SECONDS):
            yield
    except Hang as error:
        raise AssertionError(str(error)) from None


class Fuzz(unittest.TestCase):
    def test_any_bytes_are_read_or_refused(self) -> None:
        count = opened = 0
        for seed in range(FILES):
            data = mutated(seed)
            try:
                with limit(SECONDS):
                    opened += exercise(data, seed)
            except (Exception, Hang) as error:
                raise AssertionError("mutated(%d), %d bytes: %r" % (seed, len(data), error)) from error
            count += 1
        self.assertEqual(count, FILES)
        # Neither side is there by accident.
        self.assertGreater(opened, FILES // 5)
        self.assertLess(opened, FILES * 4 // 5)

    def test_files_of_the_fuzzer_meet_most_codes(self) -> None:
        codes = {f.code for seed in range(0, FILES, 20) for f in audit(Source(mutated(seed)))}
        self.assertGreater(len(codes), 30 if LONG else 25, sorted(codes))


# ---- made on purpose


class Sparse(Source):
    """A file of some bytes and zeros behind them, as large as need be."""

    def __init__(self, start: bytes, size: int) -> None:
        super().__init__(b"")
        self.start, self.size = start, size

    def read_at(self, offset: int, length: int) -> bytes:
        if offset < 0 or length < 0 or offset + length > self.size:
            raise FormatError("file.cut.truncated", "beyond the end", offset=self.size)
        return self.start[offset : offset + length].ljust(length, b"\0")

    def view(self, offset: int, length: int) -> memoryview:
        return memoryview(self.read_at(offset, length))


def sparse(n_tensors: int, data_offset: int, file_len: int) -> Sparse:
    """The real header over a directory of zeros."""
    header = patch(patch(real("h448-plain"), 12, "I", n_tensors), 200, "QQ", data_offset, file_len)
    return Sparse(header[:448], file_len + 8)


def infos(source: Source) -> int:
    """All that is known of all tensors."""
    return sum(1 for _ in VqfFile(source).tensors())


def crowd(n: int, **fields: Any) -> bytes:
    """A file of `n` tensors with names of their own, all at one place."""
    rows = [Row(fields.get("name", "t%d") % i, fields.get("qtype", F32), 1, 1, 4) for i in range(n)]
    start = lay_out([], (448 + 64 * n + 4095) & ~4095)[1]
    return build(arch(), rows, 0x23, places=dict.fromkeys(range(n), start + fields.get("shift", 0)), seal=False)


def zero_matrix() -> Sparse:
    """A token_embed of 2^40 bytes, all of them zero."""
    a = arch(vocab_size=1 << 31, dim=1 << 8)
    data = build(a, [row("token_embed", F16, 1, 1)], 0x23, seal=False)[:4096]
    data = patch(data, at(0, "rows"), "II4xQQ", 1 << 31, 1 << 8, 4096, 1 << 40)
    return Sparse(patch(data, 208, "Q", 4096 + (1 << 40)), 4096 + (1 << 40) + 8)


def many_experts(n: int) -> bytes:
    """A hostile layer of `n` experts of one block each."""
    a = arch(dim=1, head_dim=32, ffn_dim=32 * n, n_experts=n, moe_ffn=32, top_k=1, has_q_norm=0)
    rows = [row("q4_%s" % name, Q4_0, 32 * n, 1) for name in ("gate", "up")]
    return build(a, rows, 0x220, version=3, seal=False)


def nothing(name: str, qtype: int, rows: int, cols: int, **words: int) -> bytes:
    """A file with a tensor of no bytes, but of very many layers or rows."""
    return build(arch(**words), [Row(name, qtype, rows, cols, 0), row("t", F32, 16, 1)], 0x263, version=3)


BILLIONS = (1 << 32) - 1
# What, the file or its Source, the entries in its directory if memory is to be measured, too (which is slow).
HOSTILE: list[tuple[str, Callable[[], Any], int | None]] = [
    ("65536 tensors", lambda: crowd(65536), 65536),
    (
        "65536 tensors of one name and unknown type, misplaced",
        lambda: crowd(65536, name="\x1b%.0s", qtype=9, shift=1),
        None,
    ),
    ("65536 entries of zeros, then much", lambda: sparse(65536, 1 << 23, (1 << 23) + 64), None),
    ("65537 entries of zeros", lambda: sparse(65537, 1 << 23, 1 << 40), 0),
    ("2^26 entries of zeros", lambda: sparse(1 << 26, (1 << 32) + 4096, 1 << 40), 0),
    ("2^32 - 1 entries of zeros", lambda: sparse(BILLIONS, (1 << 38) + 448, 1 << 40), 0),
    ("64 MiB behind the directory", lambda: sparse(14, 1 << 26, (1 << 26) + 64), None),
    ("64 MiB that nobody owns", lambda: sparse(14, 4096, 1 << 26), 14),
    ("a tebibyte behind the directory", lambda: sparse(14, 1 << 40, (1 << 40) + 64), None),
    ("a tebibyte that nobody owns", lambda: sparse(14, 4096, 1 << 40), None),
    ("a tebibyte of a matrix of zeros", zero_matrix, None),
    ("30,000 layers of a block", lambda: many_layers(30_000, "84"), 14),
    ("30,000 layers of a zero block", lambda: many_layers(30_000, "84", fill=0), None),
    ("30,000 layers without their tails", lambda: many_layers(30_000, "8", 0x30, fill=0), None),
    ("10^6 layers of a block", lambda: many_layers(1_000_000), None),
    ("10^6 experts of a block", lambda: many_experts(1_000_000), None),
]

EMPTY = [
    nothing("q4_k", Q4_0, 0, 0, n_layers=BILLIONS, n_kv_heads=0),
    nothing("moe_router", F32, 0, 32, n_layers=BILLIONS, n_experts=0),
    nothing("v_q8_qkv", Q8_0, BILLIONS, 0, vis_depth=BILLIONS),
    nothing("v_ds_nw", F32, BILLIONS, 0, vis_ds_count=BILLIONS),
    nothing("anything", F32, BILLIONS, 0),
    nothing("anything", F32, 0, BILLIONS),
    nothing("anything", Q4_0, 5, 0),
]


class Hostile(unittest.TestCase):
    def peak(self, source: Source, call: Callable[[Source], Any]) -> int:
        """The most memory that a call holds, in bytes."""
        tracemalloc.start()
        try:
            attempt(call, source)
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    @unittest.skipUnless(LONG, "set VQFREF_LONG=1 for the files of many megabytes")
    def test_hostile_files_cost_little_time_and_memory(self) -> None:
        for what, make, entries in HOSTILE:
            made = make()
            source = made if isinstance(made, Source) else Source(made)
            for call in (audit, explain.file_fields, VqfFile, infos):
                with self.subTest("%s: %s" % (what, call.__name__)):
                    with bounded():
                        attempt(call, source)
                    if entries is not None and call in (audit, explain.file_fields):
                        self.assertLess(self.peak(source, call), 64 * MIB + 4 * (448 + 64 * entries))

    def test_tensors_of_no_bytes_have_no_values_however_many_layers_they_claim(self) -> None:
        calls: list[Callable[[VqfFile, str], int]] = [
            lambda file, name: len(file.get_tensor(name)),
            lambda file, name: sum(map(len, file.iter_rows(name))),
            lambda file, name: sum(map(len, file.values(name))),
            lambda file, name: sum(n for _, n in file.ranges(name)),
        ]
        for data in EMPTY:
            file = VqfFile(Source(data))
            name = file.keys()[0]
            for call in calls:
                with self.subTest(name), bounded():
                    self.assertIn(attempt(call, file, name), (0, None))

    def test_opening_reads_header_and_directory_alone(self) -> None:
        class Counting(Sparse):
            read = 0

            def read_at(self, offset: int, length: int) -> bytes:
                self.read += length
                return super().read_at(offset, length)

        source = Counting(real("h448-plain"), 1 << 42)
        source.start = patch(source.start, 208, "Q", (1 << 42) - 8)
        file = VqfFile(source)
        self.assertEqual(file.header.file_len, (1 << 42) - 8)
        self.assertLessEqual(source.read, 512 + 14 * 64)


if __name__ == "__main__":
    unittest.main()

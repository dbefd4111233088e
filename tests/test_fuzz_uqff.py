"""The invariant on UQFF: for any bytes of shards and reports, everything here returns or raises a VqfrefError, within 2 s
and 64 MiB plus four headers.

Each folder is made from its own seed, which a failure prints: `mutated(seed)` makes the same one again. Hostile folders
that chance would not find have tests of their own.
"""

from __future__ import annotations

import json
import os
import random
import struct
import time
import tracemalloc
import unittest

import vqfref
from tests.tools import LONG, SECONDS, thorough
from tests.uqff_samples import (
    BITS,
    MAJOR,
    PRODUCER,
    REPORT,
    RESIDUAL,
    Folder,
    FolderTest,
    Tensor,
    afq,
    build,
    compose,
    f8q8,
    f32,
    fp8,
    gguf,
    header_of,
    hqq,
    mxfp4,
    named,
    smooth,
    u8,
    u32,
    u32s,
    unquant,
    version,
)
from vqfref.errors import VqfrefError
from vqfref.uqff import families, naming, packing
from vqfref.uqff.audit import audit
from vqfref.uqff.inspect import tree
from vqfref.uqff.reader import UqffFile
from vqfref.uqff.report import check_identity, dump, load, parse
from vqfref.uqff.scan import scan, scan_report, summary, verify
from vqfref.uqff.shards import listing

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

FOLDERS = 2000 if LONG else 150
REPORTS = 1000 if LONG else 100
MIB = 1 << 20

# ---- what is mutated

LAYERS = (
    gguf(2, 2, 32), gguf(0, 1, 3), gguf(10, 1, 256), gguf(8, 2, 1, 32), unquant("F32", 2, 3), unquant("BF16", 1, 2, 3),
    hqq(4, 2, 64), hqq(3, 1, 40, group=20), afq(3, 2, 64), afq(4, 1, 2, 64, dtype="F16"), fp8(2, 4), f8q8(3, 11),
    mxfp4(2, 32), mxfp4(1, 2, 32),
)  # fmt: skip
BIG = (0, 1, 2, 3, 7, 8, 31, 32, 63, 64, 255, 256, 1 << 16, (1 << 31) - 1, 1 << 31, (1 << 32) - 1, 1 << 32, (1 << 63) - 1,
       1 << 63, (1 << 64) - 1, 1 << 64)  # fmt: skip
SUFFIXES = (
    "", ".format", ".dtype", ".shape", ".scales", ".zeros", ".biases", ".bits", ".group_size", ".axis", ".num_blocks", ".extra",
    ".dequant_w_scale", ".quant_scale", ".channel_wise", ".weight", ".",
)  # fmt: skip
REPORT_BASE = {
    "schema": 1, "generated_by": {"tool": "t", "git_revision": "g"}, "base_model": "b", "uqff_version": "1.2.0",
    "outputs": [{
        "quant": "m", "shards": ["m-0.uqff"], "layers": 2, "actual_counts": {"q4_0": 1, "afq3": 1}, "fallback_count": 1,
        "fallbacks": [{"module": "l0.x", "from": "m", "to": "f32", "shape": [1, 2], "reason": "r"}],
        "layer_details": [{"module": "l0.x", "default_target": "m", "stored": "q4_0", "shape": [2, 32]}],
    }],
}  # fmt: skip

VALUES: tuple[Any, ...] = (
    None, True, 0, -1, 1 << 32, 1 << 64, 1.5, "", " ", "m", "m-0.uqff", "m-1.uqff", "x" * 300, "\x00\x1b[2J", [], {}, [1],
    ["m-0.uqff"], [[]], {"a": 1},
)  # fmt: skip


def tensor(rng: random.Random, dtype: str | None = None) -> Any:
    """Some small tensor."""
    dtype = dtype or rng.choice(list(BITS))
    shape = tuple(rng.choice((0, 1, 2, 3, 4, 32)) for _ in range(rng.choice((0, 0, 1, 1, 2, 3, 4))))
    n = BITS[dtype]
    for d in shape:
        n *= d
    if n % 8 or n > 1 << 15:
        return u8(rng.randrange(256))
    return Tensor(dtype, shape, rng.getrandbits(8 * (n // 8) + 1).to_bytes(n // 8 + 1, "little")[: n // 8])


def change_tensor(rng: random.Random, t: Any) -> Any:
    """A tensor with one thing about it changed, still a sound one."""
    way = rng.randrange(6)
    if way == 0 and t.dtype in ("U8", "U32"):  # another number
        n = len(t.data) // (BITS[t.dtype] // 8)
        if n and n <= 4:
            top = 1 << BITS[t.dtype]
            values = [rng.choice([v for v in BIG if v < top]) for _ in range(n)]
            return t._replace(data=struct.pack("<%d%s" % (n, "B" if t.dtype == "U8" else "I"), *values))
    if way == 1:  # another dtype of the same size
        return t._replace(dtype=rng.choice([d for d in BITS if BITS[d] == BITS[t.dtype]]))
    if way == 2 and t.shape:  # another order of dimensions
        dims = list(t.shape)
        rng.shuffle(dims)
        return t._replace(shape=tuple(dims))
    if way == 3:  # another rank
        return t._replace(shape=rng.choice(((1, *t.shape), (*t.shape, 1), (1, 1, *t.shape))))
    if way == 4 and t.shape and t.shape[0]:  # another length
        row = len(t.data) // t.shape[0]
        n = rng.choice((0, 1, t.shape[0] - 1, t.shape[0] + 1))
        return t._replace(shape=(n, *t.shape[1:]), data=(t.data * 2)[: row * n])
    return tensor(rng)


def mutated(seed: int) -> dict[str, bytes]:
    """The files of a folder."""
    rng = random.Random(seed)
    tensors: dict[str, Any] = dict(version())
    for i in range(rng.choice((1, 2, 3))):
        layer = rng.choice(LAYERS)
        bias = None
        if rng.random() < 0.3:
            bias = smooth("F32", 2)
        tensors.update(named(rng.choice(("l%d.x", "model.layers.%d.q")) % i, layer, bias))
    keys = [n[: -len(".weight.format")] for n in tensors if n.endswith(".weight.format")]
    for _ in range(rng.choice((0, 1, 1, 2, 3))):  # the tensors
        way, name = rng.randrange(8), rng.choice(list(tensors))
        if way < 4:
            tensors[name] = change_tensor(rng, tensors[name])
        elif way == 4 and len(tensors) > 1:
            del tensors[name]
        elif way == 5:
            tensors[rng.choice(keys) + ".weight" + rng.choice(SUFFIXES)] = tensor(rng)
        elif way == 6:
            key = rng.choice(keys)
            tensors[key + ".weight.format"] = u8(rng.choice((0, 1, 2, 3, 4, 5, 6, 7, 255)))
        else:
            tensors[rng.choice(("7", "plain", ".weight", "a.bias", "a.weight", "\ud7ff", "a" * 300, MAJOR, ""))] = (
                tensor(rng)
            )
    metadata = rng.choice((None, PRODUCER, {"uqff.version": rng.choice(("1.2", "x", "1.2.0", "9" * 5000 + ".0.0"))}))
    files = {}
    if rng.random() < 0.2:  # two shards
        names = list(tensors)
        at = rng.randrange(len(names) + 1)
        second = {n: tensors[n] for n in names[at:]}
        if rng.random() < 0.5 and at:
            second[names[rng.randrange(at)]] = tensor(rng)
        files[rng.choice(("m-1.uqff", "m-1.uqff", "m-2.uqff", "n.uqff"))] = build(second)
        tensors = {n: tensors[n] for n in names[:at]}
    header, body = header_of(tensors, metadata), b"".join([t.data for t in tensors.values()])
    data = compose(header, body)
    if rng.random() < 0.15 and tensors:  # the header
        entry = header[rng.choice(list(tensors))]
        way = rng.randrange(5)
        if way == 0:
            entry["shape"] = [rng.choice(BIG) for _ in range(rng.choice((0, 1, 2, 3, 65)))]
        elif way == 1:
            entry["data_offsets"] = [rng.choice(BIG), rng.choice(BIG)]
        elif way == 2:
            entry[rng.choice(("dtype", "shape", "data_offsets"))] = rng.choice(
                (None, 1, "U8", [], {}, [1.5], [-1], [True], ["1"])
            )
        elif way == 3:
            del entry[rng.choice(("dtype", "shape", "data_offsets"))]
        else:
            header["__metadata__"] = rng.choice((1, [], {"a": 1}, None, {"a": None}))
        data = compose(header, body)
    if rng.random() < 0.15:  # the bytes
        out = bytearray(data)
        for _ in range(rng.choice((1, 1, 4))):
            out[rng.randrange(len(out))] = rng.choice((0, 0x22, 0x2C, 0x5C, 0x7B, 0xFF, rng.randrange(256)))
        data = bytes(out[: rng.choice((len(out), len(out), rng.randrange(len(out)), 7, 8))])
    files["m-0.uqff"] = data
    if rng.random() < 0.3:
        files[REPORT] = mutated_report(rng)
    if rng.random() < 0.2:
        files[RESIDUAL] = (
            build({"l0.x.weight": smooth("F32", 2), "n": f32(1)}) if rng.random() < 0.7 else data[: rng.randrange(200)]
        )
    return files


def mutated_report(rng: random.Random) -> bytes:
    """A report with some values replaced."""
    root = json.loads(json.dumps(REPORT_BASE))
    for _ in range(rng.choice((0, 1, 1, 2))):
        where: Any = root
        while True:  # down to some value
            items = list(where.items() if isinstance(where, dict) else enumerate(where))
            if not items:
                break
            key, value = rng.choice(items)
            if isinstance(value, (dict, list)) and value and rng.random() < 0.8:
                where = value
                continue
            way = rng.randrange(4)
            if way == 0:
                del where[key]
            elif way == 1 and isinstance(where, list):
                where.append(where[key])
            else:
                where[key] = rng.choice(VALUES)
            break
    data = json.dumps(root).encode()
    if rng.random() < 0.1:
        out = bytearray(data)
        out[rng.randrange(len(out))] = rng.randrange(256)
        data = bytes(out[: rng.choice((len(out), rng.randrange(len(out))))])
    return data


# ---- what is done with it


def attempt(call: Callable[..., Any], *args: Any, **how: Any) -> Any:
    """The result, or None where the library refuses in its own way."""
    try:
        return call(*args, **how)
    except VqfrefError:
        return None


def use(f: UqffFile, rng: random.Random) -> None:
    """What reads an open artifact."""
    f.metadata()
    list(f.tensors())
    for key in f:
        attempt(f.raw, key)
        attempt(f.get_tensor, key)
    for key, layer in f.layers.items():
        for fault in families.faults(layer):
            str(fault.error)
        for dtype in ("F32", "BF16"):
            attempt(packing.layer_factor, layer, dtype)
        dim = rng.choice((0, 1, 2))
        part = attempt(f.slice, key, dim=dim, rank=rng.choice((0, 1)), world=rng.choice((0, 1, 2)))
        part = part or attempt(f.slice, key, dim=dim, start=rng.choice((0, 1, 32)), length=rng.choice((0, 1, 32)))
        if part is not None:
            families.decode(part)
        attempt(f.get_tensor, key, rows=slice(0, 1), expert=rng.choice((None, 0)))
    attempt(packing.global_factor, f.layers.values(), "F32")


def exercise(path: str, seed: int) -> bool:
    """Everything that looks at a folder. True if it opened."""
    rng = random.Random(~seed)
    audit(path)
    available = listing(path)
    report = attempt(load, path, available)
    if report is not None:
        dump(report)
        summary(report, verbose=True)
        try:
            check_identity(report, available)
        except VqfrefError:
            report = None
    groups = naming.groups(available, report)
    verify(path, groups, report, strict=bool(seed & 1), allow_newer_minor=bool(seed & 2))
    if seed % 4 == 0:
        scans = [s for s in (attempt(scan, path, g) for g in groups) if s is not None]
        list(tree(scans))
        parse(dump(scan_report(scans, "fuzz")))
        for s in scans:
            for file in s.shards:
                file.close()
    f = attempt(UqffFile, path, "m-0.uqff")
    if f is None:
        return False
    with f:
        use(f, rng)
    return True


class Fuzz(FolderTest):
    def write(self, files: dict[str, bytes]) -> str:
        """Puts files in the place of all that are there."""
        for name in os.listdir(self.base):
            os.unlink(os.path.join(self.base, name))
        for name, data in files.items():
            with open(os.path.join(self.base, name), "wb") as file:
                file.write(data)
        return self.base

    def test_any_folder_is_read_or_refused(self) -> None:
        opened = count = 0
        for seed in range(FOLDERS):
            files = mutated(seed)
            start = time.process_time()
            try:
                opened += exercise(self.write(files), seed)
            except Exception as error:
                raise AssertionError("mutated(%d): %r" % (seed, error)) from error
            self.assertLess(time.process_time() - start, SECONDS, "mutated(%d)" % seed)
            count += 1
        self.assertEqual(count, FOLDERS)
        # Neither side is there by accident.
        self.assertGreater(opened, FOLDERS // 4)
        self.assertLess(opened, FOLDERS * 7 // 8)

    def test_folders_of_the_fuzzer_meet_most_codes(self) -> None:
        codes = {f.code for seed in range(0, FOLDERS, 10) for f in audit(self.write(mutated(seed)))}
        self.assertGreater(len({c for c in codes if c.startswith("uqff.")}), 35 if LONG else 20, sorted(codes))

    def test_any_report_is_read_or_refused(self) -> None:
        read = 0
        for seed in range(REPORTS):
            data = mutated_report(random.Random(seed))
            try:
                report = attempt(parse, data)
                if report is not None:
                    read += 1
                    attempt(check_identity, report, ["m-0.uqff"])
                    self.assertEqual(parse(dump(report)), report)
                    summary(report, verbose=True)
            except Exception as error:
                raise AssertionError("report %d: %r" % (seed, error)) from error
        self.assertGreater(read, REPORTS // 5)
        self.assertLess(read, REPORTS * 9 // 10)


class Cut(FolderTest):
    def test_a_shard_cut_anywhere_is_refused(self) -> None:
        folder = Folder.of({**named("a", gguf(2, 2, 32)), **named("b", afq(3, 2, 64))}, "m")
        data = folder.content()
        path = self.place(folder)
        for length in range(len(data)):
            with open(os.path.join(path, "m-0.uqff"), "r+b") as file:
                file.truncate(0)
                file.write(data[:length])
            with self.assertRaises(VqfrefError):
                UqffFile(path)
            if length % 50 == 0:
                self.assertTrue(audit(path))

    def test_a_report_cut_anywhere_is_refused(self) -> None:
        data = json.dumps(REPORT_BASE).encode()
        for length in range(len(data)):
            with self.assertRaises(VqfrefError):
                parse(data[:length])


class Hostile(FolderTest):
    """Folders made on purpose: time and memory stay in proportion to the header."""

    def bounded(self, path: str, header: int) -> None:
        start = time.process_time()
        exercise(path, 0)
        used = time.process_time() - start
        self.assertLess(used, 2 * SECONDS)  # several readers, one after the other
        if used < 0.5:  # tracing takes several times as long
            tracemalloc.start()
            try:
                exercise(path, 0)
                peak = tracemalloc.get_traced_memory()[1]
            finally:
                tracemalloc.stop()
            self.assertLess(peak, 64 * MIB + 4 * header)

    def of(self, tensors: dict[str, Any], **files: bytes) -> tuple[str, int]:
        folder = Folder.of(tensors, "m", {k.replace("__", "."): v for k, v in files.items()})
        data = folder.content()
        return self.place(folder), struct.unpack_from("<Q", data)[0]

    def test_a_shape_of_two_million_numbers(self) -> None:
        big = Tensor("U32", (1 << 21,), b"\1\0\0\0" * (1 << 21))
        for layer in (gguf(2, 2, 32), hqq(4, 2, 64), f8q8(2, 32), afq(3, 2, 64)):
            self.bounded(*self.of(named("a", {**layer, ".shape": big})))

    def test_findings_about_a_large_shape_are_short(self) -> None:
        big = Tensor("U32", (1 << 16,), b"\1\0\0\0" * (1 << 16))
        path, _ = self.of(named("a", {**gguf(2, 2, 32), ".shape": big}))
        self.assertLess(sum(len(str(f)) for f in vqfref.check(path)), 20_000)

    def test_shapes_whose_product_is_immense(self) -> None:
        for shape in (((1 << 32) - 1,) * 3, ((1 << 32) - 1, (1 << 32) - 32), ((1 << 32) - 32,)):
            for layer in (gguf(2, 2, 32), f8q8(2, 32), hqq(4, 2, 64), hqq(3, 2, 64), gguf(0, 1, 3)):
                self.bounded(*self.of(named("a", {**layer, ".shape": u32s(*shape)})))

    def test_an_hqq_group_of_four_billion(self) -> None:
        for group in ((1 << 32) - 1, 1 << 31, 3):
            self.bounded(*self.of(named("a", {**hqq(4, 2, 64), ".group_size": u32(group)})))

    @thorough
    def test_many_layers_without_weights(self) -> None:
        self.bounded(*self.of({"l%d.weight.format" % i: u8(0) for i in range(1000)}))

    def test_many_names_of_nothing(self) -> None:
        self.bounded(*self.of({"%d" % i: u8(0) for i in range(1000)}))

    def test_a_name_of_sixty_thousand_dots(self) -> None:
        self.bounded(*self.of({"." * 60_000: u8(0), "a" + ".weight" * 8000: u8(0)}))

    @thorough
    def test_a_report_of_many_outputs(self) -> None:
        output = REPORT_BASE["outputs"][0]  # type: ignore[index]
        root = {**REPORT_BASE, "outputs": [{**output, "quant": "q%d" % i} for i in range(500)]}
        data = json.dumps(root).encode()
        path, header = self.of(named("a", gguf(2, 2, 32)), uqff_report__json=data)
        self.bounded(path, header + len(data))


if __name__ == "__main__":
    unittest.main()

"""Writing safetensors: the order of tensors, what no file can hold, shards with an index, nothing half-written.

tests/peers.py holds the writer against the real package.
"""

from __future__ import annotations

import json
import os
import struct
import tempfile
import unittest
from unittest import mock

from tests.tools import get, put
from tests.uqff_samples import BITS, REAL, Tensor, noise, parse, raised, real_files, zeros
from vqfref import sink
from vqfref.errors import UsageError
from vqfref.safetensors.reader import SafetensorsFile, open_folder
from vqfref.safetensors.writer import header_bytes, nbytes, order, write, write_model
from vqfref.source import Source

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterator

RANKS = list(BITS)  # UQFF section 2: from low to high


class Files(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.path = os.path.join(self.folder, "x.safetensors")

    def written(self, tensors: dict[str, Any], metadata: dict[str, str] | None = None) -> bytes:
        write(self.path, tensors, metadata)
        self.assertEqual(os.listdir(self.folder), ["x.safetensors"])
        return get(self.path)


class Bytes(Files):
    def test_the_engines_files_come_out_as_they_went_in(self) -> None:
        count = 0
        for name in REAL:
            for file, data in real_files(name).items():
                if file.endswith((".uqff", ".safetensors")):
                    metadata, tensors = parse(data)
                    self.assertEqual(self.written(dict(sorted(tensors.items())), metadata), data, (name, file))
                    count += 1
        self.assertGreater(count, 30)

    def test_tensors_by_dtype_the_highest_rank_first_then_by_bytes_of_the_name(self) -> None:
        names = ["b", "a", "B", "\u00e9", "z", "\U00010000", "\uffff", "a.", "a-", ""]
        tensors = {d + n: zeros(d, 8) for d in RANKS for n in names}
        data = self.written(tensors)
        wanted = [d + n for d in reversed(RANKS) for n in sorted(names, key=lambda n: n.encode())]
        self.assertEqual(list(parse(data)[1]), wanted)
        self.assertEqual(order(tensors, {n: t.dtype for n, t in tensors.items()}), wanted)
        self.assertLess(wanted.index("U8\uffff"), wanted.index("U8\U00010000"))  # not as UTF-16 would have it

    def test_a_small_file_to_the_byte(self) -> None:
        tensors = {
            "b": Tensor("U8", (3,), b"\1\2\3"),
            "a": Tensor("F32", (), b"\0\0\x80?"),
            "z": Tensor("U8", (0, 2), b""),
        }
        text = (
            b'{"__metadata__":{"k":"\xc3\xa9","a":"1"},"a":{"dtype":"F32","shape":[],"data_offsets":[0,4]},'
            b'"b":{"dtype":"U8","shape":[3],"data_offsets":[4,7]},"z":{"dtype":"U8","shape":[0,2],"data_offsets":[7,7]}}'
        )
        text += b" " * (-len(text) % 8)
        self.assertEqual(self.written(tensors, {"k": "\u00e9", "a": "1"}),
                         struct.pack("<Q", len(text)) + text + b"\0\0\x80?\1\2\3")  # fmt: skip

    def test_the_header_ends_at_a_multiple_of_8_whatever_its_length(self) -> None:
        for n in range(1, 18):
            data = self.written({"n" * n: zeros("U8", 1)})
            (length,) = struct.unpack_from("<Q", data)
            self.assertEqual(length % 8, 0)
            self.assertEqual(len(data), 8 + length + 1)
            text = data[8 : 8 + length]
            self.assertLess(len(text) - len(text.rstrip(b" ")), 8)

    def test_no_tensors_and_no_metadata(self) -> None:
        self.assertEqual(self.written({}), b"\x08\0\0\0\0\0\0\0{}      ")
        self.assertEqual(self.written({}, {}), b"\x08\0\0\0\0\0\0\0{}      ")
        self.assertEqual(parse(self.written({}, {"a": "b"})), ({"a": "b"}, {}))

    def test_data_as_bytes_view_or_pieces(self) -> None:
        data = noise(96)
        want = self.written({"x": Tensor("F32", (24,), data)})
        for form in (bytearray(data), memoryview(data), [data[:1], b"", data[1:]], iter([data[:50], data[50:]])):
            self.assertEqual(self.written({"x": Tensor("F32", (24,), form)}), want)

    def test_odd_names_come_back(self) -> None:
        names = ["", " ", "\0", '"', "\\", "\x7f", "\u2028", "n" * 5000, "__metadata", "{}", "\U0001f600"]
        data = self.written({n: zeros("U8", i) for i, n in enumerate(names)})
        with SafetensorsFile(Source(self.path)) as f:
            self.assertEqual(sorted(f), sorted(names))
        self.assertEqual(set(parse(data)[1]), set(names))


class Refused(Files):
    def test_what_no_file_can_hold(self) -> None:
        for tensors, code in (
            ({"__metadata__": zeros("U8", 1)}, "usage.tensor.name"),
            ({"\udc80": zeros("U8", 1)}, "usage.tensor.name"),
            ({"x": Tensor("f32", (1,), b"\0" * 4)}, "usage.dtype.unsupported"),
            ({"x": Tensor("U4", (2,), b"\0")}, "usage.dtype.unsupported"),
            ({"x": Tensor("F4", (3,), b"\0")}, "usage.data.shape"),  # a byte and a half
            ({"x": Tensor("U8", (-1,), b"")}, "usage.data.shape"),
            ({"x": Tensor("U8", (-1, -1), b"\0")}, "usage.data.shape"),
            ({"x": Tensor("F32", (2,), b"\0" * 7)}, "usage.data.shape"),
            ({"x": Tensor("F32", (2,), b"\0" * 9)}, "usage.data.shape"),
            ({"x": Tensor("F32", (2,), [b"\0" * 4, b"\0" * 8])}, "usage.data.shape"),
            ({"x": Tensor("F32", (0,), b"\0")}, "usage.data.shape"),
        ):
            for old in (None, b"old"):
                if old is not None:
                    put(self.path, old)
                error = raised(write, self.path, tensors)
                self.assertEqual((type(error), error.code), (UsageError, code), tensors)
                self.assertEqual(os.listdir(self.folder), [] if old is None else ["x.safetensors"])
            self.assertEqual(get(self.path), b"old")
            os.unlink(self.path)

    def test_half_a_byte_is_right_where_two_make_one(self) -> None:
        self.assertEqual([nbytes("F4", (2,)), nbytes("F6_E2M3", (4,)), nbytes("F4", (0,))], [1, 3, 0])
        self.assertEqual(raised(nbytes, "F4", ()).code, "usage.data.shape")
        self.assertEqual(raised(header_bytes, [("x", "F6_E3M2", (3,))]).code, "usage.data.shape")


class Interrupted(Files):
    def test_nothing_half_written_stays(self) -> None:
        def pieces(fault: BaseException) -> Iterator[bytes]:
            yield b"\0" * 4
            raise fault

        for fault in (KeyboardInterrupt(), OSError(28, "No space left on device"), MemoryError()):
            for old in (None, b"old"):
                if old is not None:
                    put(self.path, old)
                with self.assertRaises(type(fault)):
                    write(self.path, {"x": Tensor("F32", (2,), pieces(fault))})
                self.assertEqual(os.listdir(self.folder), [] if old is None else ["x.safetensors"])
            self.assertEqual(get(self.path), b"old")
            os.unlink(self.path)


class Model(Files):
    TENSORS = {"c": zeros("F32", 10), "a": Tensor("U8", (60,), noise(60)), "b": zeros("F16", 3, 5), "e": zeros("U8", 0)}

    def model(self, cap: int, tensors: dict[str, Any] | None = None) -> tuple[list[str], str]:
        folder = os.path.join(self.folder, "model")
        return write_model(folder, self.TENSORS if tensors is None else tensors, cap, {"format": "pt"}), folder

    def same(self, folder: str) -> None:
        with open_folder(folder) as f:
            self.assertEqual({n: (f.info(n).dtype, f.info(n).shape, bytes(f.raw(n))) for n in f},
                             {n: tuple(t) for n, t in self.TENSORS.items()})  # fmt: skip

    def test_one_file_where_all_fits(self) -> None:
        for cap in (130, 1 << 40):
            names, folder = self.model(cap)
            self.assertEqual((names, os.listdir(folder)), (["model.safetensors"], ["model.safetensors"]))
            self.same(folder)

    def test_shards_in_the_order_given_and_an_index(self) -> None:
        for cap, wanted in ((129, ["ca", "be"]), (100, ["ca", "be"]), (99, ["c", "abe"]),
                            (60, ["c", "a", "be"]), (1, ["c", "a", "b", "e"])):  # fmt: skip
            names, folder = self.model(cap)
            n = len(wanted)
            self.assertEqual(names, ["model-%05d-of-%05d.safetensors" % (i + 1, n) for i in range(n)], cap)
            self.assertEqual(sorted(os.listdir(folder)), [*names, "model.safetensors.index.json"])
            for name, letters in zip(names, wanted):
                metadata, tensors = parse(get(os.path.join(folder, name)))
                self.assertEqual((metadata, sorted(tensors)), ({"format": "pt"}, sorted(letters)))
            index = json.loads(get(os.path.join(folder, "model.safetensors.index.json")))
            homes = {c: name for name, letters in zip(names, wanted) for c in letters}
            self.assertEqual(index, {"metadata": {"total_size": 130}, "weight_map": homes})
            self.assertEqual(list(index["weight_map"]), ["a", "b", "c", "e"])
            self.same(folder)
            for name in os.listdir(folder):
                os.unlink(os.path.join(folder, name))

    def test_what_is_read_first_is_what_was_written_last(self) -> None:
        """An index that stayed beside a single file would win over it."""
        _, folder = self.model(100)
        put(os.path.join(folder, "notes.txt"), b"")
        self.model(1 << 20)
        self.assertNotIn("model.safetensors.index.json", os.listdir(folder))
        self.same(folder)
        self.model(60)
        self.assertNotIn("model.safetensors", os.listdir(folder))
        self.assertIn("notes.txt", os.listdir(folder))
        self.same(folder)

    def test_all_of_it_or_nothing(self) -> None:
        bad = {**self.TENSORS, "d": Tensor("F32", (3,), b"\0" * 8)}
        self.assertEqual(raised(self.model, 60, bad).code, "usage.data.shape")
        self.assertEqual(os.listdir(self.folder), [])
        self.model(60)
        before = {n: get(os.path.join(self.folder, "model", n)) for n in os.listdir(os.path.join(self.folder, "model"))}
        with mock.patch.object(sink, "sync_folder", side_effect=KeyboardInterrupt), self.assertRaises(
            KeyboardInterrupt
        ):
            self.model(1 << 20)
        after = {n: get(os.path.join(self.folder, "model", n)) for n in os.listdir(os.path.join(self.folder, "model"))}
        self.assertEqual(after, before)


if __name__ == "__main__":
    unittest.main()

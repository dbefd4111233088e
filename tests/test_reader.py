"""The reader of VQF: gates 1 to 7 in their order, the two header forms, the directory, the values and the checksum.

What the files must give is written down here as numbers of spec sections 3 to 6, or read out of the same bytes by
struct. Real files are those of kat/files; others come from tests/samples.py, which uses nothing of the library.
"""

from __future__ import annotations

import itertools
import os
import struct
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

import vqfref
from tests import samples
from tests.samples import F16, F32, HEADER, Q4_0, Q8_0, WORD, at, patch, real, reseal
from tests.test_geometry import TILES, tiled
from tests.tools import thorough
from vqfref.errors import FormatError, IntegrityError, LimitError, TensorNotFound, UnsupportedError, UsageError
from vqfref.source import Source
from vqfref.source import mmap as HAS_MMAP
from vqfref.vqf.head import read_head
from vqfref.vqf.reader import VqfFile

TYPE_CHECKING = False
if TYPE_CHECKING:
    from array import array

ROOT = str(Path(__file__).resolve().parent.parent)
SIZE, FILE_LEN = 11400, 11392  # of the real plain files; data_offset is 4096
U64 = 1 << 64

# The directory of the real files: name, qtype, dtype, shape, layers, offset, bytes.
MINI = (
    ("token_embed", F16, "f16", (32, 32), 0, 0x1000, 0x800),
    ("final_norm", F32, "f32", (32,), 0, 0x1800, 0x80),
    ("attn_norm", F32, "f32", (32,), 1, 0x1880, 0x80),
    ("ffn_norm", F32, "f32", (32,), 1, 0x1900, 0x80),
    ("q_norm", F32, "f32", (32,), 1, 0x1980, 0x80),
    ("k_norm", F32, "f32", (32,), 1, 0x1A00, 0x80),
    ("q4_q", Q4_0, "q4_0", (32, 32), 1, 0x1A80, 0x240),
    ("q4_k", Q4_0, "q4_0", (32, 32), 1, 0x1CC0, 0x240),
    ("q4_v", Q4_0, "q4_0", (32, 32), 1, 0x1F00, 0x240),
    ("q4_o", Q4_0, "q4_0", (32, 32), 1, 0x2140, 0x240),
    ("q4_gate", Q4_0, "q4_0", (32, 32), 1, 0x2380, 0x240),
    ("q4_up", Q4_0, "q4_0", (32, 32), 1, 0x25C0, 0x240),
    ("q4_down", Q4_0, "q4_0", (32, 32), 1, 0x2800, 0x240),
    ("q4_lm", Q4_0, "q4_0", (32, 32), 0, 0x2A40, 0x240),
)
NAMES = [row[0] for row in MINI]


def field(form: int, name: str) -> int:
    """Where a header field lies: an arch word, or a member behind arch."""
    start = {"magic": 0, "version": 4, "flags": 8, "n_tensors": 12}
    return {**start, **WORD, **HEADER[form]}[name]


def header(data: bytes, form: int = 448, **fields: int) -> bytes:
    """A copy with some header fields replaced; magic, version, flags, n_tensors and arch words are 4 bytes, else 8."""
    for name, value in fields.items():
        data = patch(data, field(form, name), "Q" if name in ("data_offset", "file_len") else "I", value)
    return data


class Cases(unittest.TestCase):
    def opened(self, data: bytes, **options: int) -> VqfFile:
        return VqfFile(Source(data), **options)

    def refused(self, code: str, data: bytes, **options: int) -> vqfref.VqfrefError:
        """The error that opening these bytes raises, which must have this code."""
        with self.assertRaises(vqfref.VqfrefError) as caught:
            self.opened(data, **options)
        self.assertEqual(caught.exception.code, code, caught.exception)
        return caught.exception

    def fails(self, code: str, kind: type, call: object, *args: object, **options: object) -> vqfref.VqfrefError:
        with self.assertRaises(kind) as caught:
            call(*args, **options)  # type: ignore[operator]
        self.assertEqual(caught.exception.code, code, caught.exception)
        return caught.exception


class RealFiles(Cases):
    def test_the_sealed_files_open_in_their_form_with_their_directory(self) -> None:
        for name in samples.REAL:
            f = self.opened(real(name))
            with self.subTest(name):
                self.assertEqual(f.form, 432 if "h432" in name else 448)
                self.assertEqual((f.format, f.encrypted, f.authenticated), ("vqf", "enc" in name, False))
                self.assertEqual(f.keys(), NAMES)
                self.assertEqual(len(f), 14)
                for t, row in zip(f.tensors(), MINI):
                    _, _, dtype, shape, layers, offset, nbytes = row
                    self.assertEqual(
                        (t.name, t.dtype, t.shape, t.layers, t.experts, t.offset, t.nbytes),
                        (row[0], dtype, shape, layers, 0, offset, nbytes),
                    )
                self.assertEqual([e.qtype for e in f.directory], [row[1] for row in MINI])
                self.assertEqual([e.index for e in f.directory], list(range(14)))

    def test_the_sealed_files_say_their_size_and_tag(self) -> None:
        for name in samples.REAL:
            f = self.opened(real(name))
            self.assertEqual(f.header.file_len, FILE_LEN)
            self.assertEqual((f.head.size, f.head.tag_length), (11424, 32) if "enc" in name else (11400, 8))

    def test_metadata_says_what_the_header_says(self) -> None:
        meta = self.opened(real("h432-enc-signed")).metadata()
        words = meta.pop("arch")
        self.assertEqual(
            meta,
            {
                "version": 2, "header_bytes": 432, "flags": 0x1A3, "n_tensors": 14, "data_offset": 4096,
                "flag_names": ["Q8_8X8", "Q4_4X4", "EMB_F16", "ENC", "SIGNED"], "file_len": 11392, "size": 11424,
                "encrypted": True, "signed": True,
            },
        )  # fmt: skip
        self.assertEqual((words["dim"], words["rope_theta"], words["eos_id"]), (32, 5000000.0, 151645))
        self.assertEqual((list(words["mrope_sections"]), words["n_experts"]), ([8, 4, 4, 0], 0))

    def test_metadata_tells_the_four_seals_apart(self) -> None:
        for name in samples.REAL:
            meta = self.opened(real(name)).metadata()
            self.assertEqual((meta["encrypted"], meta["signed"]), ("enc" in name, "signed" in name), name)

    def test_tiles_are_part_of_the_encoding(self) -> None:
        f = self.opened(real("h448-plain"))
        self.assertEqual([t.encoding for t in f.tensors()], ["f16"] + ["f32"] * 5 + ["q4_0 in tiles 4x4"] * 8)

    def test_both_backends_read_the_same(self) -> None:
        path = str(samples.FILES / "mini-q4-h448-plain.vqf")
        data = real("h448-plain")
        for backend in ("mmap", "pread") if HAS_MMAP else ("pread",):
            with vqfref.open(path, backend=backend) as f:
                self.assertEqual(f.path, path)
                for name, _, _, _, _, offset, nbytes in MINI:
                    self.assertEqual(f.raw(name), data[offset : offset + nbytes])


# Every gate with one fault that it must find: (gate, code, what the fault is, the fault).
FAULTS = (
    (1, "vqf.magic.truncated", "7 bytes", lambda d: d[:7]),
    (2, "vqf.header.magic", "another magic", lambda d: b"VQFW" + d[4:]),
    (3, "vqf.header.version", "version 1", lambda d: header(d, version=1)),
    (3, "vqf.header.version", "version 4", lambda d: header(d, version=4)),
    (4, "vqf.file.truncated", "511 bytes", lambda d: d[:511]),
    (4, "vqf.file.truncated", "8 bytes", lambda d: d[:8]),
    (5, "vqf.arch.header", "dim 0", lambda d: header(d, dim=0)),
    (5, "vqf.arch.header", "vocab_size 0", lambda d: header(d, vocab_size=0)),
    (6, "vqf.size.truncated", "a byte missing", lambda d: d[:-1]),
    (6, "vqf.size.bounds", "a byte too many", lambda d: d + b"\0"),
    (6, "vqf.header.layout", "no data_offset", lambda d: header(d, data_offset=0)),
    (7, "vqf.directory.bounds", "a tensor in the header", lambda d: patch(d, at(3, "offset"), "Q", 0)),
)  # fmt: skip


class Gates(Cases):
    """Section 4: the first gate that a file does not pass is reported, whatever else is wrong."""

    def test_each_fault_alone_is_reported_by_its_gate(self) -> None:
        for gate, code, what, fault in FAULTS:
            with self.subTest(gate=gate, fault=what):
                self.refused(code, fault(samples.model("mini")))

    def test_of_two_faults_the_earlier_gate_s_is_reported(self) -> None:
        for (gate1, code, what1, fault1), (gate2, _, what2, fault2) in itertools.combinations(FAULTS, 2):
            if gate1 == gate2:
                continue
            with self.subTest(what1 + " before " + what2):
                data = samples.model("mini")
                self.refused(code, fault1(fault2(data)) if len(fault2(data)) >= 8 else fault2(fault1(data)))

    def test_seven_bytes_are_too_few_for_magic_and_version(self) -> None:
        for size in range(8):
            error = self.refused("vqf.magic.truncated", real("h448-plain")[:size])
            self.assertEqual(error.offset, size)
            self.assertIn("%d bytes" % size, error.message)
            self.assertIsInstance(error, FormatError)

    def test_a_wrong_magic_is_shown_beside_the_right_one(self) -> None:
        for magic, hint in (
            (b"VQFW", "FQFW"), (b"WFQF", "big-endian"), (b"GGUF", "GGUF"), (b"PK\3\4", "zip"), (b"\x7fELF", "program"),
            (b"version https://git-lfs", "git-lfs"), (bytes(8), "zeros"), (b"fqfw", ""), (b"FQFV", "one bit"),
            (b"\xff" * 8, "erased flash"),
            (b"<!DOCTYPE html>", "web page"), (b"\n {", "JSON"), (b"RlFGVw", "base64"), (b"\xef\xbb\xbfF", "text mode"),
            (b"\x1f\x8b\x08\0", "gzip"), (b"\xfd7zXZ", "xz"), (b"Salted__", "openssl"),
        ):  # fmt: skip
            error = self.refused("vqf.header.magic", magic + real("h448-plain")[len(magic) :])
            self.assertEqual((error.offset, error.field), (0, "magic"))
            self.assertIn(magic[:4].hex(" "), error.message)
            self.assertIn("46 51 46 57", error.message)
            self.assertIn(hint, error.message)
        error = self.refused("vqf.header.magic", struct.pack("<Q", 1000) + b'{"a":' + bytes(600))
        self.assertIn("safetensors", error.message)

    def test_version_is_reported_before_size(self) -> None:
        page = bytes.fromhex("46514657 01000000 63000000 31000000").ljust(4096, b"\0")  # of the 2B dual file, section 6
        for size in (8, 16, 232, 256, 511, 512, 4096):
            error = self.refused("vqf.header.version", page[:size])
            self.assertIsInstance(error, UnsupportedError)
            self.assertIn("version 1 unsupported (need 2)", error.message)
            self.assertEqual((error.offset, error.field), (4, "version"))

    def test_other_versions_are_reported_by_number(self) -> None:
        for version in (0, 4, 0x02000000, 0xFFFFFFFF):
            error = self.refused("vqf.header.version", header(samples.model("mini"), version=version)[:8])
            self.assertIsInstance(error, UnsupportedError)
            self.assertIn("version %d " % version, error.message)

    def test_a_version_that_is_one_bit_away_is_called_so(self) -> None:
        for version, near in ((6, 2), (10, 2), (7, 3), (0x10002, 2), (1 << 31 | 3, 3), (0, 0), (4, 0), (5, 0)):
            error = self.fails(
                "vqf.header.version", UnsupportedError, self.opened, patch(real("h448-plain"), 4, "I", version)
            )
            self.assertEqual("one bit away from %d:" % near in error.message, near > 0, version)
            self.assertEqual("one bit" in error.message, near > 0, version)

    def test_a_file_needs_room_for_a_header_page_start_and_one_entry(self) -> None:
        for size in (8, 432, 448, 511):
            error = self.refused("vqf.file.truncated", real("h432-plain")[:size])
            self.assertEqual(error.offset, size)
            self.assertIn("512", error.message)
        self.refused("vqf.size.truncated", real("h432-plain")[:512])

    def test_six_arch_words_must_not_be_zero(self) -> None:
        for form in (432, 448):
            for name, offset in (
                ("dim", 16), ("n_layers", 20), ("n_heads", 24), ("head_dim", 32), ("ffn_dim", 36), ("vocab_size", 40)
            ):  # fmt: skip
                error = self.refused("vqf.arch.header", patch(samples.model("mini", form), offset, "I", 0))
                self.assertIsInstance(error, FormatError)
                self.assertEqual((error.offset, error.field), (offset, "arch." + name))

    def test_other_arch_words_may_be_zero(self) -> None:
        for form in (432, 448):
            data = samples.model("mini", form)
            for name in ("n_kv_heads", "max_seq_len", "rope_theta", "bos_id", "has_q_norm", "head_dim_full"):
                self.assertEqual(len(self.opened(header(data, form, **{name: 0}))), 14, name)

    def test_errors_carry_the_path_of_the_file(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "bad.vqf")
            for _, code, what, fault in FAULTS:
                Path(path).write_bytes(fault(samples.model("mini")))
                with self.subTest(what):
                    error = self.fails(code, vqfref.VqfrefError, vqfref.open, path)
                    self.assertEqual(error.path, path)

    def test_a_reader_wants_no_more_than_the_first_512_bytes_for_the_header(self) -> None:
        for name in samples.REAL:
            data = real(name)
            head = read_head(data[:512], len(data))
            self.assertEqual((head.layout.size, head.header.file_len), (432 if "h432" in name else 448, FILE_LEN))


class Forms(Cases):
    """Section 3: which of the two headers a file has."""

    def pair(self, data: bytes, form: int, data_offset: int, file_len: int) -> bytes:
        """Writes a (data_offset, file_len) where the header of this form has it."""
        return patch(data, HEADER[form]["data_offset"], "QQ", data_offset, file_len)

    def test_the_form_that_fits_is_taken(self) -> None:
        for form in (432, 448):
            self.assertEqual(self.opened(samples.model("mini", form)).form, form)

    def test_versions_2_and_3_pass_the_same_test(self) -> None:
        for form in (432, 448):
            for version in (2, 3):
                self.assertEqual(self.opened(header(samples.model("mini", form), form, version=version)).form, form)

    def test_both_fit_is_undetermined(self) -> None:
        # In the 432-byte form the other pair is enc_iv; in the 448-byte form it is the MoE words.
        for data, form, other in (
            (real("h432-enc"), 432, 448), (real("h448-enc"), 448, 432), (samples.model("mini"), 448, 432),
        ):  # fmt: skip
            error = self.refused("vqf.header.layout", self.pair(data, other, 4096, FILE_LEN))
            self.assertIsInstance(error, FormatError)
            self.assertIn("both", error.message)
            self.assertIn(str(FILE_LEN), error.message)
            self.assertEqual(self.opened(data).form, form)

    def test_both_fit_even_with_different_data_offsets(self) -> None:
        self.refused("vqf.header.layout", self.pair(real("h432-enc"), 448, 4160, FILE_LEN))

    def test_a_pair_that_is_well_formed_and_does_not_fit_is_no_rival(self) -> None:
        for file_len in (FILE_LEN + 64, FILE_LEN - 64, FILE_LEN + 1, 4097, U64 - 64, U64 - 1):
            data = self.pair(real("h432-enc"), 448, 4096, file_len)
            self.assertEqual(self.opened(data).form, 432, file_len)

    def test_a_rival_of_the_right_size_must_be_well_formed_too(self) -> None:
        for data_offset in (0, 32, 4097, 4128, 448 + 64 * 13, FILE_LEN, FILE_LEN + 64):
            data = self.pair(real("h432-enc"), 448, data_offset, FILE_LEN)
            self.assertEqual(self.opened(data).form, 432, data_offset)

    def test_data_offset_must_be_a_multiple_of_64_behind_the_directory_and_before_file_len(self) -> None:
        data = real("h448-plain")
        for data_offset, file_len in (
            (0, FILE_LEN), (4096 - 1, FILE_LEN), (4096 + 32, FILE_LEN), (448 + 64 * 13, FILE_LEN), (448, FILE_LEN),
            (64, FILE_LEN), (11392, FILE_LEN), (11456, FILE_LEN), (U64 - 64, FILE_LEN), (4096, 4096), (4096, 0),
        ):  # fmt: skip
            with self.subTest(data_offset=data_offset, file_len=file_len):
                error = self.refused("vqf.header.layout", self.pair(data, 448, data_offset, file_len))
                self.assertIn(str(data_offset), error.message)

    def test_data_may_start_right_behind_the_directory(self) -> None:
        data = self.pair(real("h448-plain"), 448, 448 + 64 * 14, FILE_LEN)
        self.assertEqual(self.opened(data).header.data_offset, 1344)

    def test_a_cut_file_is_reported_by_size_with_both_numbers(self) -> None:
        for name in samples.REAL:
            data = real(name)
            for missing in (1, 8, 100, len(data) - 512):
                with self.subTest(name, missing=missing):
                    error = self.refused("vqf.size.truncated", data[:-missing])
                    self.assertIsInstance(error, FormatError)
                    self.assertEqual((error.offset, error.field), (len(data) - missing, "file_len"))
                    for number in (samples.missing(missing), str(len(data)), str(len(data) - missing)):
                        self.assertIn(number, error.message)

    def test_a_grown_file_is_reported_by_size_with_both_numbers(self) -> None:
        for name in samples.REAL:
            data = real(name)
            for more in (1, 8, 4096):
                with self.subTest(name, more=more):
                    error = self.refused("vqf.size.bounds", data + bytes(more))
                    self.assertEqual((error.offset, error.field), (len(data), "file_len"))
                    for number in (
                        "%d byte%s too many" % (more, "" if more == 1 else "s"),
                        str(len(data)),
                        str(len(data) + more),
                    ):
                        self.assertIn(number, error.message)

    def test_each_form_says_why_it_is_refused_and_the_likelier_is_named(self) -> None:
        for form in (448, 432):
            data = samples.model("mini", form)
            for start, stop, why in (
                (4100, FILE_LEN, "4100 is no multiple of 64"),
                (1280, FILE_LEN, "1280 lies inside the directory, whose 14 entries end at 1344"),
                (0, FILE_LEN, "data_offset is 0"),
                (4096, 4032, "file_len is not behind data_offset"),
                (4097, FILE_LEN + 64, "4097 is no multiple of 64"),
            ):
                error = self.refused("vqf.header.layout", self.pair(data, form, start, stop))
                self.assertIn("a %d-byte header data_offset %d and file_len %d (%s)" % (form, start, stop, why),
                              error.message)  # fmt: skip
                self.assertEqual(error.offset, HEADER[form]["data_offset"])

    def test_an_absurd_file_len_is_called_damaged_and_not_subtracted(self) -> None:
        data = real("h448-plain")
        for file_len, why in (
            (1 << 63, "no file is that long, so file_len itself"), (U64 - 8, "no file is that long, so file_len itself"),
            (11400 * 1000 + 1, "file_len is damaged, or all but the first bytes are missing: "),
            (11400 * 1000, "11388608 bytes are missing: "),
        ):  # fmt: skip
            error = self.refused("vqf.size.truncated", header(data, 448, file_len=file_len))
            self.assertTrue(error.message.startswith(why), error.message)

    def test_a_transfer_in_text_mode_is_named_behind_the_size(self) -> None:
        # 64 KiB of every pair of bytes behind the real header, so that each trace is there by number.
        data = real("h448-plain")[:4096] + bytes(b for i in range(256) for j in range(128) for b in (i, 2 * j + i % 2))
        data = patch(data, HEADER[448]["file_len"], "Q", len(data)) + bytes(8)
        self.assertEqual(len(self.opened(data)), 14)
        feeds = data.count(b"\n")
        first = data.index(b"\n")
        for kind, changed, words in (
            ("LF to CRLF", data.replace(b"\n", b"\r\n"), "%d of %d bytes 0a follow a 0d, the first at 0x%x"
             % (feeds, feeds, first)),
            ("no CR", data.replace(b"\r", b""), "there are %d bytes 0a and no 0d" % feeds),
            ("Latin-1 to UTF-8", data.decode("latin-1").encode(), "all bytes are UTF-8"),
            ("losses in UTF-8", data.decode("utf-8", "replace").encode(), "all bytes are UTF-8"),
            ("seven bits", bytes(b & 127 for b in data[:-1]), "no byte is above 7f"),
        ):  # fmt: skip
            with self.subTest(kind):
                with self.assertRaises(FormatError) as caught:
                    self.opened(changed)
                self.assertIn(words, caught.exception.message)
                self.assertIn("text mode; fetch it in binary", caught.exception.message)
        small = real("h448-plain")
        self.assertEqual((small.count(b"\n"), small.index(b"\n")), (12, 0x199E))
        changed = small.replace(b"\n", b"\r\n")
        self.assertIn(
            "12 of 12 bytes 0a follow a 0d, the first at 0x199e", self.refused("vqf.size.bounds", changed).message
        )
        changed = small.replace(b"\r", b"")
        self.assertIn("12 bytes 0a and no 0d", self.refused("vqf.size.truncated", changed).message)
        changed = small.replace(b"\n", b"\r\n", 6)  # half of it is no text mode
        self.assertNotIn("text mode", self.refused("vqf.size.bounds", changed).message)
        for kind, changed in (("cut", data[:-1]), ("grown", data + b"\r\n" * 8), ("zeros", data[:512] + bytes(70000))):
            with self.subTest(kind):
                with self.assertRaises(FormatError) as caught:
                    self.opened(changed)
                self.assertNotIn("text mode", caught.exception.message)

    def test_a_cut_file_in_which_both_are_well_formed_is_undetermined(self) -> None:
        data = self.pair(real("h432-enc"), 448, 4096, FILE_LEN)
        for cut in (data[:-1], data + b"\0"):
            error = self.refused("vqf.header.layout", cut)
            self.assertIn("none", error.message)

    def test_a_file_len_beyond_64_bits_is_not_taken_for_a_small_one(self) -> None:
        data = self.pair(real("h448-plain"), 448, 4096, U64 - 8)  # plus a tag of 8: 0 in 64 bits
        error = self.refused("vqf.size.truncated", data)
        self.assertIn(str(U64), error.message)

    def test_the_enc_flag_is_asked_for_where_the_sizes_differ_by_the_two_tags(self) -> None:
        for form in (432, 448):
            error = self.refused("vqf.size.truncated", header(real("h%d-plain" % form), flags=0x23 | 0x80))
            self.assertIn("24 bytes are missing", error.message)
            self.assertIn("ENC", error.message)
            error = self.refused("vqf.size.bounds", header(real("h%d-signed" % form), flags=0x123)[:-8] + bytes(32))
            self.assertIn("24 bytes too many", error.message)
            self.assertIn("ENC", error.message)
        self.assertNotIn("ENC", self.refused("vqf.size.truncated", real("h448-plain")[:-24]).message)

    def test_the_signing_tool_s_32_bytes_too_many_are_recognised(self) -> None:
        for name in ("h432-enc-signed", "h448-enc-signed"):
            error = self.refused("vqf.signtool.bounds", real(name) + bytes(32))
            self.assertEqual((error.offset, error.field), (11424, "file_len"))
            for text in ("32 bytes too many", "signing tool", "11424", "11456"):
                self.assertIn(text, error.message)
        for data in (
            real("h448-enc-signed") + bytes(31), real("h448-enc-signed") + bytes(33), real("h448-signed") + bytes(32),
            real("h448-plain") + bytes(32),
        ):  # fmt: skip
            self.assertNotIn("signing tool", self.refused("vqf.size.bounds", data).message)

    def test_a_moe_file_has_the_448_byte_form(self) -> None:
        f = self.opened(samples.model("moe"))
        self.assertEqual((f.form, f.header.version, f.header.flags), (448, 3, 0x223))
        a = f.header.arch
        self.assertEqual((a.n_experts, a.moe_ffn, a.top_k, a.shared_experts, a.ffn_dim), (4, 32, 2, 0, 128))


class Directory(Cases):
    """Gate 7: every entry inside data_offset .. file_len, judged with unbounded integers."""

    def entry(self, index: int, offset: int, nbytes: int, form: int = 448) -> bytes:
        return patch(samples.model("mini", form), at(index, "offset"), "QQ", offset, nbytes)

    def test_entries_that_leave_the_data_area_are_refused(self) -> None:
        for form in (432, 448):
            for offset, nbytes in (
                (FILE_LEN, 1), (FILE_LEN - 64, 65), (FILE_LEN + 64, 0), (4096, FILE_LEN - 4096 + 1), (11456, 64),
            ):  # fmt: skip
                error = self.refused("vqf.directory.bounds", self.entry(5, offset, nbytes, form))
                self.assertIsInstance(error, FormatError)
                self.assertEqual((error.offset, error.field), (448 + 64 * 5 + 48, "k_norm"))

    def test_entries_before_the_data_area_are_refused(self) -> None:
        for offset, nbytes in ((0, 64), (448, 64), (4032, 64), (4032, 128), (4095, 1), (0, 0), (64, FILE_LEN - 64)):
            self.refused("vqf.directory.bounds", self.entry(0, offset, nbytes))

    def test_sums_that_wrap_around_into_the_file_are_refused(self) -> None:
        for offset, nbytes in (
            (U64 - 64, 64 + 8192),  # ends at 8192 in 64 bits, and starts before 0
            (U64 - 64, 64),  # ends at 0
            (U64 - 64, 0),
            (8192, U64 - 64),  # ends at 8128
            (8192, U64 - 1),
            (U64 - 1, U64 - 1),
            ((1 << 32) + 8192, 64),  # inside, if offsets were 32 bits
            (8192, 1 << 32),
            (1 << 63, 1 << 63),
        ):
            error = self.refused("vqf.directory.bounds", self.entry(7, offset, nbytes))
            self.assertIn("0x%x" % (offset + nbytes), error.message)

    def test_the_first_bad_entry_is_reported(self) -> None:
        data = patch(self.entry(9, 0, 64), at(2, "bytes"), "Q", 1 << 40)
        self.assertEqual(self.refused("vqf.directory.bounds", data).field, "attn_norm")

    def test_entries_may_fill_the_data_area_to_its_ends(self) -> None:
        f = self.opened(self.entry(0, 4096, FILE_LEN - 4096))
        self.assertEqual(f.raw("token_embed").nbytes, FILE_LEN - 4096)
        for offset in (4096, FILE_LEN):
            self.assertEqual(self.opened(self.entry(1, offset, 0)).raw("final_norm"), b"")

    def test_a_directory_whose_size_wraps_around_is_undetermined(self) -> None:
        for form in (432, 448):
            for n in ((1 << 26) + 1, (1 << 26) + 14, 0xFFFFFFFF, 1 << 31, 58):  # 64 * (2^26 + 14) is 64 * 14 in 32 bits
                self.refused("vqf.header.layout", header(samples.model("mini", form), form, n_tensors=n))

    def test_57_entries_fit_before_4096_and_58_do_not(self) -> None:
        f = self.opened(header(samples.model("mini"), n_tensors=14))
        self.assertEqual(f.header.data_offset, 4096)
        rows = [samples.row("t%d" % i, F32, 4, 4) for i in range(58)]
        for n, data_offset in ((57, 4096), (58, 8192)):
            f = self.opened(samples.build(samples.arch(), rows[:n], 0x23))
            self.assertEqual((len(f), f.header.data_offset), (n, data_offset))
        self.refused("vqf.header.layout", samples.build(samples.arch(), rows, 0x23, data_offset=4096, seal=False))

    def test_a_file_without_tensors_opens(self) -> None:
        f = self.opened(header(samples.model("mini"), n_tensors=0))
        self.assertEqual((f.keys(), list(f.tensors()), len(f)), ([], [], 0))

    @thorough
    def test_65536_entries_are_read_and_one_more_is_a_limit(self) -> None:
        for n in (1 << 16, (1 << 16) + 1):
            start = (448 + 64 * n + 4095) // 4096 * 4096
            data = header(samples.model("mini")[:448], n_tensors=n, data_offset=start, file_len=start + 64)
            entries = b"".join(
                struct.pack("<32sIII4xQQ", b"model.layers.%d.norm" % i, F32, 4, 4, start, 64) for i in range(n)
            )
            data = (data + entries).ljust(start + 64 + 8, b"\0")
            if n == 1 << 16:
                f = self.opened(data)
                self.assertEqual((len(f), f.keys()[-1]), (n, "model.layers.65535.norm"))
                self.assertEqual(f.info("model.layers.40000.norm").nbytes, 64)
                # A hint is not worth seconds: difflib takes some 0.03 ms a name.
                with mock.patch("difflib.get_close_matches", return_value=[]) as search:
                    self.fails("usage.tensor.name", TensorNotFound, f.info, "model.layers.x.norm")
                self.assertLess(sum(len(call[0][1]) for call in search.call_args_list), 1 << 14)
            else:
                error = self.refused("vqf.directory.limit", data)
                self.assertIsInstance(error, LimitError)
                self.assertEqual((error.offset, error.field), (12, "n_tensors"))
                self.assertIn("65537", error.message)

    def test_of_entries_with_the_same_name_the_first_is_taken(self) -> None:
        data = samples.model("mini")
        twice = patch(data, at(4), "32s", b"attn_norm")
        f = self.opened(twice)
        self.assertEqual(f.keys(), [n for n in NAMES if n != "q_norm"])
        self.assertEqual((len(f), len(f.directory)), (13, 14))
        self.assertEqual(f.info("attn_norm").offset, 0x1880)
        self.assertEqual(f.raw("attn_norm"), data[0x1880:0x1900])

    def test_names_end_at_the_first_nul_and_may_have_32_characters(self) -> None:
        long = b"0123456789abcdef0123456789abcdef"
        data = patch(patch(samples.model("mini"), at(1), "32s", long), at(2), "32s", b"attn\0norm")
        f = self.opened(data)
        self.assertEqual(f.keys()[:3], ["token_embed", long.decode(), "attn"])
        self.assertEqual(f.directory[2].raw_name, b"attn\0norm".ljust(32, b"\0"))

    def test_names_that_are_not_ascii_are_escaped(self) -> None:
        f = self.opened(patch(samples.model("mini"), at(1), "32s", b"n\xc3\xb6rm\x1b[2J"))
        self.assertEqual(f.keys()[1], "n\\xc3\\xb6rm\x1b[2J")
        f.info(f.keys()[1])


class Infos(Cases):
    """What `info` says of tensors that the plan knows, and of others."""

    def test_layers_and_experts_are_apart_from_the_shape(self) -> None:
        f = self.opened(samples.model("moe"))  # dim 32, 2 layers, q_out 32, k_out 16, 4 experts of 32, V 40
        for name, shape, layers, experts in (
            ("token_embed", (40, 32), 0, 0), ("final_norm", (32,), 0, 0), ("attn_norm", (32,), 2, 0),
            ("q_norm", (16,), 2, 0), ("moe_router", (4, 32), 2, 0), ("q4_q", (32, 32), 2, 0), ("q4_k", (16, 32), 2, 0),
            ("q4_o", (32, 32), 2, 0), ("q4_gate", (32, 32), 2, 4), ("q4_up", (32, 32), 2, 4), ("q4_down", (32, 32), 2, 4),
            ("q4_lm", (40, 32), 0, 0),
        ):  # fmt: skip
            t = f.info(name)
            self.assertEqual((t.shape, t.layers, t.experts), (shape, layers, experts), name)

    def test_shapes_of_q_k_v_o_are_not_the_transposed_ones_of_the_directory(self) -> None:
        f = self.opened(samples.model("dual"))  # dim 64, 3 layers, q_out 32, k_out 16, ff 96
        for suffix, shape in (
            ("q", (32, 64)), ("k", (16, 64)), ("v", (16, 64)), ("o", (64, 32)), ("gate", (96, 64)), ("down", (64, 96)),
        ):  # fmt: skip
            for prefix in ("q8_", "q4_"):
                self.assertEqual(f.info(prefix + suffix).shape, shape)
        self.assertEqual((f.directory[6].name, f.directory[6].rows, f.directory[6].cols), ("q8_q", 192, 32))

    def test_encodings_say_tiles_and_q8_variants(self) -> None:
        for name, tensor, encoding in (
            ("dual", "q8_gate", "q8_0 in tiles 8x8"), ("dual", "q4_gate", "q4_0 in tiles 4x4"),
            ("q4i", "q8_gate", "q4i"), ("g256", "q8_gate", "g256 in tiles 8x8"), ("vision", "v_q8_qkv", "q8_0"),
            ("layers", "token_embed", "f16"), ("layers", "attn_norm", "f32"),
        ):  # fmt: skip
            self.assertEqual(self.opened(samples.model(name)).info(tensor).encoding, encoding, (name, tensor))

    def test_the_encoding_of_x8_copies_says_of_what_they_are_copies(self) -> None:
        a, rows, _, _ = samples.MODELS["x8"]
        plain = self.opened(samples.build(a, rows, 0x25)).info("x8_gate").encoding
        twice = self.opened(samples.build(a, rows, 0x27)).info("x8_gate").encoding
        self.assertIn("8x8l", plain.partition(" in tiles ")[2])
        self.assertNotIn("4x4", plain)
        self.assertIn("8x8l", twice.partition(" in tiles ")[2])
        self.assertIn("4x4", twice.partition(" in tiles ")[2])

    def test_a_matrix_that_stays_linear_under_the_flag_is_called_linear(self) -> None:
        # q_out 60: q4_o is [64, 60]; section 8, "any single matrix"
        a = samples.arch(dim=64, n_layers=2, n_heads=3, n_kv_heads=1, head_dim=20, ffn_dim=96, vocab_size=68)
        f = self.opened(samples.build(a, samples.text_rows(a), 0x22))
        self.assertEqual(f.info("q4_q").encoding, "q4_0 in tiles 4x4")
        self.assertEqual(f.info("q4_o").encoding, "q4_0")
        a = samples.arch(vocab_size=66)  # q8_lm is [66, 32], and the gate does not ask V
        f = self.opened(samples.build(a, samples.text_rows(a, "8"), 0x21))
        self.assertEqual(f.info("q8_q").encoding, "q8_0 in tiles 8x8")
        self.assertEqual(f.info("q8_lm").encoding, "q8_0")

    def test_tiles_of_four_rows_are_the_caller_s_word(self) -> None:
        a, rows, _, _ = samples.MODELS["q8"]
        data = samples.build(a, rows, 0x22)
        self.assertEqual(self.opened(data).info("q8_gate").encoding, "q8_0")
        self.assertEqual(self.opened(data, q8_tile=4).info("q8_gate").encoding, "q8_0 in tiles 4x4")
        self.assertEqual(self.opened(samples.model("q8"), q8_tile=4).info("q8_gate").encoding, "q8_0 in tiles 8x8")
        for tile in (8, 1, 5):
            self.assertIsInstance(self.refused("usage.q8tile.unsupported", data, q8_tile=tile), UsageError)

    def test_unknown_tensors_have_the_numbers_of_the_directory(self) -> None:
        rows = [*samples.text_rows(samples.arch()), samples.row("mystery", F32, 6, 5), samples.row("blob", Q8_0, 3, 32)]
        data = samples.build(samples.arch(), rows, 0x23)
        f = self.opened(data)
        offset, _ = samples.place_of(data, "mystery")
        t = f.info("mystery")
        self.assertEqual((t.name, t.shape, t.layers, t.experts), ("mystery", (6, 5), 0, 0))
        self.assertEqual((t.dtype, t.encoding, t.offset, t.nbytes), ("f32", "f32", offset, 120))
        f = self.opened(patch(data, offset, "30f", *range(30)))
        self.assertEqual(f.get_tensor("mystery").tolist(), list(range(30)))
        self.assertEqual(f.get_tensor("mystery", rows=slice(4, 6)).tolist(), list(range(20, 30)))
        self.assertEqual((f.info("blob").dtype, f.info("blob").nbytes), ("q8_0", 102))

    def test_an_unknown_qtype_can_be_listed_and_read_raw_but_not_decoded(self) -> None:
        data = patch(samples.model("mini"), at(1, "qtype"), "I", 9)
        f = self.opened(data)
        t = f.info("final_norm")
        self.assertEqual((t.dtype, t.shape, t.nbytes), ("qtype 9", (32, 1), 128))
        self.assertEqual(f.raw("final_norm"), data[0x1800:0x1880])
        for call in (f.get_tensor, f.geometry, f.ranges):
            error = self.fails("vqf.directory.dtype", UnsupportedError, call, "final_norm")
            self.assertEqual((error.offset, error.field), (448 + 64 + 32, "final_norm"))

    def test_a_tensor_whose_bytes_contradict_the_arch_is_listed_and_not_decoded(self) -> None:
        f = self.opened(patch(samples.model("mini"), at(1, "bytes"), "Q", 124))
        self.assertEqual((f.info("final_norm").shape, f.info("final_norm").nbytes), ((32, 1), 124))
        for call in (f.get_tensor, f.geometry, f.ranges):
            error = self.fails("vqf.plan.shape", FormatError, call, "final_norm")
            self.assertEqual((error.offset, error.field), (448 + 64 + 56, "final_norm"))
            self.assertIn("124", error.message)
            self.assertIn("128", error.message)

    def test_an_unknown_tensor_whose_bytes_contradict_its_rows_and_cols_is_not_decoded(self) -> None:
        data = patch(samples.model("mini"), at(1), "32s", b"mystery")  # F32 of 32 x 1
        self.assertEqual(len(self.opened(data).get_tensor("mystery")), 32)
        f = self.opened(patch(data, at(1, "rows"), "I", 33))
        self.assertEqual((f.info("mystery").shape, f.info("mystery").nbytes), ((33, 1), 128))
        error = self.fails("vqf.plan.shape", FormatError, f.get_tensor, "mystery")
        self.assertIn("132", error.message)

    def test_a_tensor_whose_layers_are_no_whole_blocks_is_listed_and_not_decoded(self) -> None:
        a = samples.arch(n_layers=2, ffn_dim=33, dim=33)  # layers of 1089 elements
        data = samples.build(a, samples.text_rows(a), 0x20)
        f = self.opened(data)
        t = f.info("q4_gate")
        self.assertEqual((t.shape, t.layers, t.dtype, t.encoding, t.nbytes), ((33, 33), 2, "q4_0", "q4_0", 69 * 18))
        self.assertEqual(len(list(f.tensors())), 14)
        self.assertEqual(f.raw("q4_gate").nbytes, 69 * 18)
        self.fails("vqf.layer.shape", FormatError, f.get_tensor, "q4_gate")

    def test_rows_and_cols_of_the_directory_are_diagnostic(self) -> None:
        data = patch(samples.model("mini"), at(0, "rows"), "II", 7, 9)
        f = self.opened(data)
        self.assertEqual(f.info("token_embed").shape, (32, 32))
        self.assertEqual(len(f.get_tensor("token_embed")), 1024)

    def test_errors_about_one_tensor_carry_the_path(self) -> None:
        a = samples.arch(n_layers=2, ffn_dim=33, dim=33)  # layers of 1089 elements: no whole blocks
        rows = samples.text_rows(a)
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "odd.vqf")
            Path(path).write_bytes(samples.build(a, rows, 0x20))
            with vqfref.open(path) as f:
                self.assertEqual(self.fails("usage.tensor.name", TensorNotFound, f.info, "?").path, path)
                error = self.fails("vqf.layer.shape", FormatError, f.ranges, "q4_gate", 1)
                self.assertEqual((error.field, error.path), ("q4_gate", path))


class Values(Cases):
    """raw, chunks, ranges and get_tensor against the same bytes."""

    def test_raw_is_the_bytes_as_stored_and_read_only(self) -> None:
        for name in samples.REAL:  # ciphertext where the file is encrypted
            data = real(name)
            f = self.opened(data)
            for tensor, _, _, _, _, offset, nbytes in MINI:
                view = f.raw(tensor)
                self.assertIsInstance(view, memoryview)
                self.assertTrue(view.readonly)
                self.assertEqual(view, data[offset : offset + nbytes])
        self.assertNotEqual(self.opened(real("h448-enc")).raw("q4_q"), self.opened(real("h448-plain")).raw("q4_q"))

    def test_chunks_are_raw_in_pieces(self) -> None:
        data = real("h448-plain")
        f = self.opened(data)
        for size, lengths in ((1000, [1000, 1000, 48]), (2048, [2048]), (1 << 20, [2048]), (1024, [1024, 1024])):
            pieces = list(f.chunks("token_embed", size))
            self.assertEqual([len(p) for p in pieces], lengths)
            self.assertEqual(b"".join(pieces), data[0x1000:0x1800])
        self.assertEqual(list(f.chunks("q4_lm")), [data[0x2A40:0x2C80]])

    def test_chunks_of_no_size_are_the_caller_s_fault(self) -> None:
        f = self.opened(real("h448-plain"))
        for size in (0, -1):
            with self.assertRaises(UsageError):
                list(f.chunks("token_embed", size))

    def test_floats_are_those_of_the_bytes(self) -> None:
        for name in ("h432-plain", "h448-plain", "h432-signed", "h448-signed"):
            data = real(name)
            f = self.opened(data)
            for tensor, qtype, _, _, _, offset, nbytes in MINI:
                if qtype in (F16, F32):
                    form = "<%de" % (nbytes // 2) if qtype == F16 else "<%df" % (nbytes // 4)
                    got = f.get_tensor(tensor)
                    self.assertEqual((got.typecode, got.itemsize), ("f", 4))
                    self.assertEqual(got.tolist(), list(struct.unpack_from(form, data, offset)), tensor)

    def test_floats_are_those_of_the_model_that_was_converted(self) -> None:
        # The mini model's recipe: a generator of seed 23 over token_embed, final_norm, attn_norm, …, in BF16.
        state = 23

        def tensor(n: int) -> list[float]:
            nonlocal state
            values = []
            for _ in range(n):
                state = (state * 1664525 + 1013904223) % (1 << 32)
                values.append((((state >> 8) % 65536) - 32768) / 32768)
            values[::777] = [0.0] * len(values[::777])
            values[::991] = [-3.5] * len(values[::991])
            if n >= 64:
                values[32:64] = [v * 1e-6 for v in values[32:64]]
            return [bf16(v) for v in values]

        def bf16(value: float) -> float:
            (bits,) = struct.unpack("<I", struct.pack("<f", value))
            bits = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16 << 16
            return struct.unpack("<f", struct.pack("<I", bits))[0]

        f = self.opened(real("h448-plain"))
        # F16 has fewer small numbers: the converter makes zeros of all that no normal half can hold.
        embed = [v if abs(v) >= 2**-14 else 0.0 for v in tensor(1024)]
        self.assertEqual(f.get_tensor("token_embed").tolist(), embed)
        for name in ("final_norm", "attn_norm", "ffn_norm"):
            self.assertEqual(f.get_tensor(name).tolist(), tensor(32), name)

    def test_infinities_nans_and_subnormals_come_through(self) -> None:
        data = patch(samples.model("mini"), 0x1000, "8H", 0x7C00, 0xFC00, 0x7E00, 1, 0x8001, 0x8000, 0x7BFF, 0x3C01)
        data = patch(data, 0x1800, "4I", 0x7F800000, 0x7FC00000, 1, 0x80000000)
        f = self.opened(data)
        half = f.get_tensor("token_embed")[:8].tolist()
        self.assertEqual(half[:2], [float("inf"), float("-inf")])
        self.assertNotEqual(half[2], half[2])
        self.assertEqual(half[3:5] + half[6:], [2.0**-24, -(2.0**-24), 65504.0, 1 + 2.0**-10])
        self.assertEqual(str(half[5]), "-0.0")
        single = f.get_tensor("final_norm")[:4].tolist()
        self.assertEqual((single[0], single[2], str(single[3])), (float("inf"), 2.0**-149, "-0.0"))
        self.assertNotEqual(single[1], single[1])

    def test_rows_are_a_slice_of_the_matrix(self) -> None:
        data = real("h448-plain")
        f = self.opened(data)
        values = list(struct.unpack_from("<1024e", data, 0x1000))
        for rows in (
            slice(0, 1), slice(5, 8), slice(None), slice(31, 32), slice(30, 99), slice(-2, None), slice(None, -31),
            slice(5, 5), slice(8, 5), slice(40, 50), slice(3, 4, 1),
        ):  # fmt: skip
            want = [v for row in range(32)[rows] for v in values[32 * row : 32 * row + 32]]
            self.assertEqual(f.get_tensor("token_embed", rows=rows).tolist(), want, rows)
            self.assertEqual(f.get_tensor("token_embed", layer=0, rows=rows).tolist(), want, rows)

    def test_a_vector_is_one_row(self) -> None:
        f = self.opened(real("h448-plain"))
        whole = f.get_tensor("final_norm").tolist()
        self.assertEqual(f.get_tensor("final_norm", rows=slice(0, 1)).tolist(), whole)
        self.assertEqual(f.get_tensor("final_norm", rows=slice(1, 2)).tolist(), [])

    def test_layers_follow_one_another(self) -> None:
        data = samples.model("layers")  # 3 layers, dim 64
        offset, nbytes = samples.place_of(data, "attn_norm")
        self.assertEqual(nbytes, 768)
        f = self.opened(patch(data, offset, "192f", *range(192)))
        self.assertEqual(f.get_tensor("attn_norm").tolist(), list(range(192)))
        for layer in range(3):
            self.assertEqual(f.get_tensor("attn_norm", layer=layer).tolist(), list(range(64 * layer, 64 * layer + 64)))

    def test_rows_of_a_matrix_in_one_layer(self) -> None:
        data = samples.model("moe")  # moe_router: 2 layers of [4, 32]
        f = self.opened(patch(data, samples.place_of(data, "moe_router")[0], "256f", *range(256)))
        for layer in (0, 1):
            for a, b in ((0, 4), (1, 3), (3, 4)):
                got = f.get_tensor("moe_router", layer=layer, rows=slice(a, b)).tolist()
                self.assertEqual(got, list(range(128 * layer + 32 * a, 128 * layer + 32 * b)))

    def test_layers_and_rows_and_experts_that_are_not_there_are_the_caller_s_fault(self) -> None:
        f = self.opened(samples.model("moe"))
        for code, name, options in (
            ("usage.layer.range", "moe_router", {"layer": 2}),
            ("usage.layer.range", "moe_router", {"layer": -1}),
            ("usage.layer.range", "token_embed", {"layer": 1}),
            ("usage.layer.missing", "moe_router", {"rows": slice(0, 1)}),
            ("usage.rows.range", "token_embed", {"rows": slice(0, 4, 2)}),
            ("usage.rows.range", "token_embed", {"rows": slice(None, None, -1)}),
            ("usage.expert.range", "moe_router", {"layer": 0, "expert": 0}),
            ("usage.expert.range", "moe_router", {"expert": 0}),
            ("usage.expert.range", "final_norm", {"expert": 0}),
            ("usage.expert.range", "token_embed", {"rows": slice(0, 1), "expert": 1}),
        ):
            with self.subTest(name, **options):
                self.fails(code, UsageError, f.get_tensor, name, **options)

    def test_ranges_are_offsets_in_the_file(self) -> None:
        data = samples.model("moe")  # q4_gate: 2 layers of 4 experts of [32, 32], 576 bytes an expert, in tiles of 72
        f = self.opened(data)
        offset, nbytes = samples.place_of(data, "q4_gate")
        self.assertEqual(nbytes, 2 * 4 * 576)
        self.assertEqual(f.ranges("q4_gate"), [(offset, 4 * 576)])
        self.assertEqual(f.ranges("q4_gate", 1), [(offset + 4 * 576, 4 * 576)])
        self.assertEqual(f.ranges("q4_gate", 1, expert=2), [(offset + 6 * 576, 576)])
        self.assertEqual(f.ranges("q4_gate", 1, expert=2, rows=(5, 6)), [(offset + 6 * 576 + 72, 72)])
        down = samples.place_of(data, "q4_down")[0]  # [32, 128]: 8 rows of 4 tiles
        self.assertEqual(f.ranges("q4_down", 1, expert=2), [(down + 2304 + 288 * g + 144, 72) for g in range(8)])
        self.assertEqual(f.ranges("q4_down", 0, cols=(0, 32), rows=(0, 4)), [(down, 72)])
        self.fails("usage.expert.range", UsageError, f.ranges, "q4_gate", 0, expert=4)

    def test_an_encrypted_file_gives_no_values_without_its_passphrase(self) -> None:
        for name in samples.REAL:
            if "enc" in name:
                f = self.opened(real(name))
                for tensor in ("token_embed", "final_norm"):
                    self.fails("vqf.enc.key", IntegrityError, f.get_tensor, tensor)
                    self.fails("vqf.enc.key", IntegrityError, f.get_tensor, tensor, rows=slice(0, 1))

    def test_rows_that_are_read_one_by_one_are_the_rows_of_the_matrix(self) -> None:
        data = real("h448-plain")
        f = self.opened(data)
        values = list(struct.unpack_from("<1024e", data, 0x1000))
        for rows in (None, slice(3, 9), slice(-1, None), slice(7, 7)):
            want = [values[32 * row : 32 * row + 32] for row in range(32)[rows or slice(None)]]
            self.assertEqual([row.tolist() for row in f.iter_rows("token_embed", rows=rows)], want)
        for rows in (slice(0, 8, 2), slice(None, None, -1)):
            self.fails("usage.rows.range", UsageError, lambda rows=rows: list(f.iter_rows("token_embed", rows=rows)))

    @thorough
    def test_many_rows_are_read_in_pieces_and_none_is_lost(self) -> None:
        a = samples.arch(vocab_size=33000)  # token_embed has more than 2^20 values
        data = samples.build(a, samples.text_rows(a)[:1], 0x23, seal=False)
        data = patch(data, 4096, "%dH" % (33000 * 32), *(i * 7 % 0x7C00 for i in range(33000 * 32)))
        f = self.opened(data)
        whole = f.get_tensor("token_embed")
        self.assertEqual(whole.tolist(), list(struct.unpack_from("<%de" % (33000 * 32), data, 4096)))
        for pieces in (f.iter_rows("token_embed"), f.values("token_embed")):
            again = whole[:0]
            n = 0
            for piece in pieces:
                again += piece
                n += 1
            self.assertGreater(n, 1)
            self.assertEqual(again, whole)
        self.assertEqual(len(list(f.iter_rows("token_embed", rows=slice(1, -1)))), 32998)

    def test_a_matrix_without_columns_has_no_values(self) -> None:
        rows = [*samples.text_rows(samples.arch()), samples.row("flat", F32, 3, 0), samples.row("none", F16, 0, 3)]
        f = self.opened(samples.build(samples.arch(), rows, 0x23))
        for name in ("flat", "none"):
            self.assertEqual((f.info(name).nbytes, f.raw(name)), (0, b""))
            self.assertEqual((f.get_tensor(name).tolist(), sum(map(len, f.iter_rows(name)))), ([], 0))

    def test_an_unknown_name_is_a_key_error_that_names_its_neighbours(self) -> None:
        f = self.opened(real("h448-plain"))
        for call in (f.info, f.raw, f.chunks, f.get_tensor, f.geometry, f.ranges):
            with self.assertRaises(KeyError) as caught:
                call("q4_gaet")
            error = caught.exception
            self.assertIsInstance(error, TensorNotFound)
            self.assertIsInstance(error, UsageError)
            self.assertEqual((error.code, error.field), ("usage.tensor.name", "q4_gaet"))
            self.assertIn("'q4_gaet'", str(error))
            self.assertIn("q4_gate", str(error))
        self.assertNotIn("did you mean", str(self.fails("usage.tensor.name", KeyError, f.raw, "zzzzzzzz")))

    def test_names_can_be_asked_for(self) -> None:
        f = self.opened(real("h448-plain"))
        self.assertIn("q4_gate", f)
        self.assertNotIn("q8_gate", f)
        self.assertNotIn("", f)
        self.assertNotIn(7, f)


class Blocks(Cases):
    """Quantized tensors against a decoder of a few lines, through the tiles of section 8 as tests/test_geometry.py has
    them: whole, by layer, by expert and by rows."""

    def expected(self, data: bytes, name: str, rows: int, cols: int, layer: int, layout: str) -> list[list[float]]:
        """The values of one layer, row by row."""
        q8 = "q8_" in name
        block = 34 if q8 else 18
        offset, size = samples.place_of(data, name)[0], rows * cols // 32 * block
        stored = data[offset + layer * size : offset + (layer + 1) * size]
        while layout != "linear":
            outer, _, layout = layout.partition(" of ")
            layout = "q4 " + layout if layout else "linear"
            _, r, chunk, tile = TILES[outer]
            plain = bytearray(size)
            for at_tile, at_plain in enumerate(tiled(block, r, chunk, rows, cols)):
                code = not q8 and at_tile % tile >= 2 * r
                plain[at_plain] = stored[at_tile] ^ (0x88 if code else 0)
            stored = bytes(plain)
        values: list[float] = []
        for start in range(0, size, block):
            (d,) = struct.unpack_from("<e", stored, start)
            codes = stored[start + 2 : start + block]
            if q8:
                values += [d * (q - 256 if q > 127 else q) for q in codes]
            else:
                values += [d * ((q & 15) - 8) for q in codes] + [d * ((q >> 4) - 8) for q in codes]
        return [values[cols * row : cols * row + cols] for row in range(rows)]

    def compare(
        self, data: bytes, name: str, rows: int, cols: int, layout: str, experts: int = 0, pad: int = 0, **options: int
    ) -> None:
        f = self.opened(data, **options)
        layers = f.info(name).layers
        whole = []
        for layer in range(max(layers, 1)):
            matrix = [row[: cols - pad] for row in self.expected(data, name, rows, cols, layer, layout)]
            if not experts:
                parts = [(None, matrix)]
            elif name.endswith("down"):
                width = cols // experts
                parts = [(e, [row[e * width : (e + 1) * width] for row in matrix]) for e in range(experts)]
            else:
                height = rows // experts
                parts = [(e, matrix[e * height : (e + 1) * height]) for e in range(experts)]
            for expert, part in parts:
                where = {"layer": layer, "expert": expert}
                self.same(f.get_tensor(name, **where), part, where)
                n = len(part)
                if layer == max(layers - 1, 0):
                    for some in (slice(0, 1), slice(3, 9), slice(n - 1, n), slice(7, 8), slice(4, n), slice(2, 2)):
                        self.same(f.get_tensor(name, rows=some, **where), part[some], (where, some))
                whole += part
        self.same(f.get_tensor(name), whole, "all layers")

    def same(self, got: array, want: list[list[float]], what: object) -> None:
        # As text, since NaN is not equal to itself; a product of a half and an int8 is exact in single precision.
        self.assertEqual(str(got.tolist()), str([value for row in want for value in row]), what)

    @thorough
    def test_matrices_in_tiles_and_in_rows(self) -> None:
        dual = samples.model("dual")  # dim 64, 3 layers, q_out 32, k_out 16, ff 96, V 40
        q8 = samples.MODELS["q8"]
        linear = samples.build(q8[0], q8[1], 0x20)
        for suffix, rows, cols in (("q", 32, 64), ("k", 16, 64), ("o", 64, 32), ("down", 64, 96), ("lm", 40, 64)):
            with self.subTest(suffix):
                self.compare(dual, "q8_" + suffix, rows, cols, "q8 8x8")
                self.compare(dual, "q4_" + suffix, rows, cols, "q4 4x4")
                self.compare(linear, "q8_" + suffix, rows, cols, "linear")
                self.compare(linear, "q8_" + suffix, rows, cols, "q8 4x4", q8_tile=4)
        self.compare(samples.model("q4i"), "q8_gate", 96, 64, "linear")
        self.compare(samples.model("g256"), "q8_gate", 96, 64, "q8 8x8")

    def test_a_linear_matrix_in_a_tiled_file(self) -> None:
        a = samples.arch(dim=64, n_layers=2, n_heads=3, n_kv_heads=1, head_dim=20, ffn_dim=96, vocab_size=68)
        data = samples.build(a, samples.text_rows(a), 0x22)
        self.compare(data, "q4_o", 64, 60, "linear")  # a row is no whole number of blocks
        self.compare(data, "q4_k", 20, 64, "q4 4x4")

    def test_vision_matrices_are_linear_and_fc2_has_padded_rows(self) -> None:
        data = samples.model("vision")  # 2 blocks, hidden 16, ffn 24
        self.compare(data, "v_q8_qkv", 48, 16, "linear")
        self.compare(data, "v_q8_fc1", 24, 16, "linear")
        self.compare(data, "v_q8_fc2", 16, 32, "linear", pad=8)

    def test_experts(self) -> None:
        data = samples.model("moe-dual")  # dim 32, 2 layers, 4 experts of 32
        for suffix, rows, cols in (("gate", 128, 32), ("up", 128, 32), ("down", 32, 128)):
            self.compare(data, "q8_" + suffix, rows, cols, "q8 8x8", 4)
            self.compare(data, "q4_" + suffix, rows, cols, "q4 4x4", 4)
        self.fails("usage.layer.missing", UsageError, self.opened(data).get_tensor, "q4_up", layer=0, rows=slice(0, 1))

    def test_experts_of_x8_copies(self) -> None:
        for flags, layout in ((0x227, "q4 8x8l of 4x4"), (0x225, "q4 8x8l")):
            data = samples.build(samples.MOE, samples.text_rows(samples.MOE, "4x"), flags, version=3)
            for suffix, rows, cols in (("gate", 128, 32), ("down", 32, 128)):
                self.compare(data, "x8_" + suffix, rows, cols, layout, 4)

    def test_x8_copies_are_taken_through_both_tilings(self) -> None:
        a, rows, _, _ = samples.MODELS["x8"]
        for flags, layout in ((0x27, "q4 8x8l of 4x4"), (0x25, "q4 8x8l")):
            data = samples.build(a, rows, flags)
            for suffix, n, cols in (("q", 32, 64), ("k", 16, 64), ("o", 64, 32), ("down", 64, 96)):
                with self.subTest(suffix, layout=layout):
                    self.compare(data, "x8_" + suffix, n, cols, layout)

    def test_an_encrypted_file_decodes_to_the_same_values_with_its_passphrase(self) -> None:
        for form in ("h432-", "h448-"):
            plain = self.opened(real(form + "plain"))
            for kind in ("enc", "enc-signed"):
                f = VqfFile(Source(real(form + kind)), passphrase=b"correct horse battery staple")
                for name in NAMES:
                    self.assertEqual(f.get_tensor(name), plain.get_tensor(name), name)
                for name in ("token_embed", "q4_down"):
                    some = slice(5, 7)
                    self.assertEqual(f.get_tensor(name, layer=0, rows=some), plain.get_tensor(name, layer=0, rows=some))


class Closing(Cases):
    PATH = str(samples.FILES / "mini-q4-h448-plain.vqf")

    def test_close_leaves_live_views_valid(self) -> None:
        data = real("h448-plain")
        for backend in ("mmap", "pread") if HAS_MMAP else ("pread",):
            f = vqfref.open(self.PATH, backend=backend)
            views = {name: f.raw(name) for name in NAMES}
            f.close()
            f.close()
            for name, _, _, _, _, offset, nbytes in MINI:
                self.assertEqual(views[name], data[offset : offset + nbytes])

    def test_a_closed_file_still_knows_its_directory_and_says_that_it_is_closed(self) -> None:
        with vqfref.open(self.PATH) as f:
            pass
        self.assertEqual((f.keys(), f.info("q4_q").offset, f.header.n_tensors), (NAMES, 0x1A80, 14))
        for call in (f.raw, f.get_tensor, lambda name: list(f.chunks(name))):
            self.assertEqual(self.fails("usage.closed.policy", UsageError, call, "final_norm").path, self.PATH)

    def test_a_with_block_gives_the_file_and_closes_it_after_an_error(self) -> None:
        with self.assertRaises(ZeroDivisionError), vqfref.open(self.PATH) as f:
            self.assertIsInstance(f, VqfFile)
            self.assertIsInstance(f, vqfref.WeightFile)
            raise ZeroDivisionError
        self.fails("usage.closed.policy", UsageError, f.raw, "final_norm")

    def test_opening_a_bad_file_closes_it(self) -> None:
        closed = []
        real_close = Source.close

        def close(source: Source) -> None:
            closed.append(source)
            real_close(source)

        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "cut.vqf")
            Path(path).write_bytes(real("h448-plain")[:-1])
            with mock.patch.object(Source, "close", close):
                self.fails("vqf.size.truncated", FormatError, vqfref.open, path)
        self.assertEqual([s.path for s in closed], [path])

    def test_a_file_that_is_cut_while_it_is_open_is_an_error(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "cut.vqf")
            for backend in ("mmap", "pread") if HAS_MMAP else ("pread",):
                for read_before in (False, True):
                    Path(path).write_bytes(real("h448-plain"))
                    with vqfref.open(path, backend=backend) as f:
                        if read_before:
                            f.get_tensor("final_norm")
                        os.truncate(path, 0x1900)
                        self.assertEqual(f.raw("attn_norm"), real("h448-plain")[0x1880:0x1900])
                        for call in (f.raw, f.get_tensor, lambda name, f=f: list(f.chunks(name))):
                            self.fails("file.cut.truncated", FormatError, call, "ffn_norm")


# Qwen3-VL-2B as q4, section 6: name, qtype, directory rows, cols.
QWEN3_VL_2B = (
    ("token_embed", F16, 151936, 2048), ("final_norm", F32, 2048, 1), ("attn_norm", F32, 28 * 2048, 1),
    ("ffn_norm", F32, 28 * 2048, 1), ("q_norm", F32, 28 * 128, 1), ("k_norm", F32, 28 * 128, 1),
    ("q4_q", Q4_0, 28 * 2048, 2048), ("q4_k", Q4_0, 28 * 2048, 1024), ("q4_v", Q4_0, 28 * 2048, 1024),
    ("q4_o", Q4_0, 28 * 2048, 2048), ("q4_gate", Q4_0, 28 * 6144, 2048), ("q4_up", Q4_0, 28 * 6144, 2048),
    ("q4_down", Q4_0, 28 * 2048, 6144), ("q4_lm", Q4_0, 151936, 2048),
    ("v_q8_qkv", Q8_0, 24, 3 * 1024 * 1024), ("v_q8_proj", Q8_0, 24, 1024 * 1024), ("v_q8_fc1", Q8_0, 24, 4096 * 1024),
    ("v_q8_fc2", Q8_0, 24, 1024 * 4096), ("v_patch_embed", F32, 1, 1024 * 3 * 2 * 16 * 16),
    ("v_patch_bias", F32, 1, 1024), ("v_pos_embed", F32, 1, 2304 * 1024), ("v_qkv_bias", F32, 24, 3 * 1024),
    ("v_proj_bias", F32, 24, 1024), ("v_norm1_w", F32, 24, 1024), ("v_norm1_b", F32, 24, 1024),
    ("v_norm2_w", F32, 24, 1024), ("v_norm2_b", F32, 24, 1024), ("v_fc1_bias", F32, 24, 4096),
    ("v_fc2_bias", F32, 24, 1024), ("v_merger_nw", F32, 1, 1024), ("v_merger_nb", F32, 1, 1024),
    ("v_merger_f1w", F32, 1, 4096 * 4096), ("v_merger_f1b", F32, 1, 4096), ("v_merger_f2w", F32, 1, 4096 * 2048),
    ("v_merger_f2b", F32, 1, 2048), ("v_ds_nw", F32, 3, 4096), ("v_ds_nb", F32, 3, 4096),
    ("v_ds_f1w", F32, 3, 4096 * 4096), ("v_ds_f1b", F32, 3, 4096), ("v_ds_f2w", F32, 3, 4096 * 2048),
    ("v_ds_f2b", F32, 3, 2048),
)  # fmt: skip

OPEN_AND_LIST = """
import resource, sys, time
import vqfref, vqfref.vqf.reader

def peak():
    try:
        with open("/proc/self/status") as status:
            return next(int(line.split()[1]) for line in status if line.startswith("VmHWM"))
    except (OSError, StopIteration):  # includes the parent's peak on some systems
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // (1024 if sys.platform == "darwin" else 1)

before, start = peak(), time.perf_counter()
with vqfref.open(sys.argv[1]) as f:
    infos = list(f.tensors())
    last = f.raw("v_ds_f2b")[-4:].tobytes()
seconds, kib = time.perf_counter() - start, peak() - before
print(len(infos), f.form, sum(t.nbytes for t in infos), last.hex(), int(seconds >= 2), kib)
"""


class Large(Cases):
    """A sparse file in the place of Qwen3-VL-2B: 2,331,316,232 bytes that take a page of disk."""

    def setUp(self) -> None:
        a = samples.arch(
            dim=2048, n_layers=28, n_heads=16, n_kv_heads=8, head_dim=128, head_dim_full=128, ffn_dim=6144,
            vocab_size=151936, has_vision=1, vis_depth=24, vis_hidden=1024, vis_heads=16, vis_ffn=4096, vis_patch=16,
            vis_temporal=2, vis_merge=2, vis_out_dim=2048, vis_in_chan=3, vis_max_pos=2304, vis_ds_count=3,
        )  # fmt: skip
        rows = [samples.row(*r) for r in QWEN3_VL_2B]
        offsets, end = samples.lay_out(rows, 4096)
        self.assertEqual((len(rows), end), (41, 2331316224))
        small = samples.build(a, [], 0x63, form=432, data_offset=4096)[:448]
        data = bytearray(small.ljust(4096, b"\0"))
        data[:16] = bytes.fromhex("46514657 02000000 63000000 29000000")
        data[184:232] = bytes.fromhex("0010000000000000 0010f58a00000000 0000000000000000") + bytes(24)
        for index, (r, offset) in enumerate(zip(rows, offsets)):
            struct.pack_into(
                "<32sIII4xQQ", data, 448 + 64 * index, r.name.encode(), r.qtype, r.rows, r.cols, offset, r.bytes
            )
        self.offsets = dict(zip((r.name for r in rows), offsets))
        folder = tempfile.TemporaryDirectory(prefix="vqfref-")
        self.addCleanup(folder.cleanup)
        self.path = os.path.join(folder.name, "2b.vqf")
        try:
            with open(self.path, "wb") as file:
                file.write(data)
                file.seek(end - 4)
                file.write(b"last")
                file.truncate(end + 8)
        except OSError as error:
            self.skipTest("no file of this size here: %s" % error)
        if getattr(os.stat(self.path), "st_blocks", end) * 512 > 1 << 20:
            self.skipTest("no sparse files here")

    def test_it_opens_and_lists_by_its_first_page(self) -> None:
        with vqfref.open(self.path) as f:
            self.assertEqual((f.form, f.head.size, len(f)), (432, 2331316232, 41))
            self.assertEqual(f.keys(), [r[0] for r in QWEN3_VL_2B])
            self.assertEqual([t.offset for t in f.tensors()], list(self.offsets.values()))
            for name, shape, layers in (
                ("token_embed", (151936, 2048), 0), ("q_norm", (128,), 28), ("q4_q", (2048, 2048), 28),
                ("q4_k", (1024, 2048), 28), ("q4_gate", (6144, 2048), 28), ("q4_down", (2048, 6144), 28),
                ("v_q8_qkv", (3072, 1024), 24), ("v_q8_fc2", (1024, 4096), 24), ("v_pos_embed", (2304, 1024), 0),
                ("v_ds_f1w", (4096, 4096), 3),
            ):  # fmt: skip
                self.assertEqual((f.info(name).shape, f.info(name).layers), (shape, layers), name)
            # layer 27 of q4_down: 2048 * 6144 / 32 * 18 bytes a layer
            self.assertEqual(f.ranges("q4_down", 27), [(self.offsets["q4_down"] + 27 * 7077888, 7077888)])

    def test_opening_and_listing_it_is_quick_and_takes_little_memory(self) -> None:
        try:
            import resource  # noqa: F401
        except ImportError:
            self.skipTest("this Python can't measure memory")
        done = subprocess.run(
            [sys.executable, "-c", OPEN_AND_LIST, self.path], cwd=ROOT, stdout=subprocess.PIPE, timeout=120, check=True
        )
        n, form, nbytes, last, slow, kib = done.stdout.decode().split()
        self.assertEqual((n, form, last), ("41", "432", b"last".hex()))
        self.assertTrue(2331316224 - 4096 - 41 * 63 <= int(nbytes) <= 2331316224 - 4096)
        self.assertLess(int(kib), 30 << 10)
        self.assertEqual(slow, "0", "2 seconds or more")

    def test_a_byte_less_is_a_byte_missing(self) -> None:
        os.truncate(self.path, 2331316231)
        error = self.fails("vqf.size.truncated", FormatError, vqfref.open, self.path)
        for text in ("1 byte is missing", "2331316232", "2331316231"):
            self.assertIn(text, error.message)


class Checksum(Cases):
    """Gate 10: FNV-1a-64 over directory and data area, which proves nothing about the origin."""

    PLAIN = ("h432-plain", "h448-plain", "h432-signed", "h448-signed")

    def steps(self, data: bytes) -> tuple[bool, dict[str, str], list[tuple[str, str]]]:
        got = self.opened(data).verify()
        self.assertFalse(got.authenticated)
        return got.ok, {s.name: s.result for s in got.steps}, [(f.code, f.severity) for f in got.findings]

    def test_the_checksums_of_the_real_plain_files_are_ok_and_nothing_more(self) -> None:
        for name in self.PLAIN:
            ok, steps, findings = self.steps(real(name))
            self.assertEqual((ok, steps["checksum"], findings), (True, "ok", []), name)
            if "signed" in name:
                self.assertEqual(steps["signature"], "not checked")

    def test_an_ok_checksum_is_not_called_authentication(self) -> None:
        (step,) = self.opened(real("h448-plain")).verify().steps
        self.assertIn("not authenticated", step.detail)
        self.assertIn("%016x" % struct.unpack_from("<Q", real("h448-plain"), FILE_LEN), step.detail)

    def test_files_with_a_right_checksum_of_ours_are_ok(self) -> None:
        for name in ("moe", "vision", "dual"):
            self.assertEqual(self.steps(samples.model(name))[0], True, name)

    def test_a_flipped_byte_of_data_or_directory_or_tag_fails(self) -> None:
        for name in self.PLAIN[:2]:
            data = real(name)
            for offset in (4096, 0x1801, FILE_LEN - 1, 448, at(13, "name") + 31, at(5, "rows"), at(5, "pad"), FILE_LEN):
                bad = samples.flip(data, 8 * offset)
                ok, steps, findings = self.steps(bad)
                with self.subTest(name, offset=offset):
                    self.assertEqual((ok, steps["checksum"]), (False, "failed"))
                    self.assertEqual(findings, [("vqf.checksum.tag", "error")])

    def test_a_failed_checksum_shows_both_numbers_at_the_tag(self) -> None:
        data = samples.flip(real("h448-plain"), 8 * 5000)
        (finding,) = self.opened(data).verify().findings
        self.assertEqual((finding.offset, finding.field), (FILE_LEN, "tag"))
        stored = struct.unpack_from("<Q", data, FILE_LEN)[0]
        computed = struct.unpack_from("<Q", reseal(data), FILE_LEN)[0]
        self.assertIn("%016x" % stored, finding.message)
        self.assertIn("%016x" % computed, finding.message)

    def test_header_and_padding_before_the_data_are_not_covered(self) -> None:
        for name, offsets in (
            ("h448-plain", (8, 44, 60, 180, 196, 232, 248, 447, 448 + 64 * 14, 4095)),
            ("h432-plain", (8, 44, 60, 180, 216, 232, 431, 432, 447, 448 + 64 * 14, 4095)),
        ):
            for offset in offsets:
                ok, steps, _ = self.steps(samples.flip(real(name), 8 * offset))
                self.assertEqual((ok, steps["checksum"]), (True, "ok"), (name, offset))

    def test_padding_between_tensors_is_covered(self) -> None:
        a = samples.arch()
        data = samples.build(a, samples.text_rows(a)[:1] + [samples.row("odd", F32, 3, 1)], 0x23)
        end = sum(samples.place_of(data, "odd"))
        self.assertEqual((end % 64, data[end]), (12, 0))
        self.assertEqual(self.steps(data)[1], {"checksum": "ok"})
        self.assertEqual(self.steps(samples.flip(data, 8 * end))[1], {"checksum": "failed"})

    def test_a_stored_0_means_none_and_passes_with_a_note(self) -> None:
        data = patch(real("h448-plain"), FILE_LEN, "Q", 0)
        for damaged in (data, samples.flip(data, 8 * 5000)):
            ok, steps, findings = self.steps(damaged)
            self.assertEqual((ok, steps["checksum"]), (True, "not checked"))
            self.assertEqual(findings, [("vqf.checksum.missing", "note")])

    def test_an_encrypted_file_is_not_ok_without_its_key(self) -> None:
        ok, steps, findings = self.steps(real("h448-enc"))
        self.assertEqual((ok, steps["hmac"]), (False, "not checked"))
        self.assertNotIn("checksum", steps)
        self.assertEqual(findings, [("vqf.enc.key", "error")])

    def test_progress_counts_the_data_area_to_its_end(self) -> None:
        seen: list[tuple[int, int]] = []
        self.opened(real("h448-plain")).verify(progress=lambda done, total: seen.append((done, total)))
        self.assertEqual(seen[-1], (FILE_LEN - 4096, FILE_LEN - 4096))

    def test_a_file_that_is_cut_while_it_is_verified_is_a_finding(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "cut.vqf")
            for size in (9000, FILE_LEN, SIZE - 1):
                Path(path).write_bytes(real("h448-plain"))
                with vqfref.open(path) as f:
                    os.truncate(path, size)
                    got = f.verify()
                self.assertFalse(got.ok)
                self.assertEqual(
                    [(x.code, x.severity, x.path) for x in got.findings], [("file.cut.truncated", "error", path)]
                )


if __name__ == "__main__":
    unittest.main()

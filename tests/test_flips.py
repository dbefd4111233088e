"""Single bits turned over and files cut short: what structure alone notices, and what only a checksum or tag can.

The truth is the tables of what structure can't judge and of what each tag covers; all other flips must be reported.
"""

from __future__ import annotations

import struct
import unittest

from tests.samples import (
    ARCH_WORDS,
    DIRECTORY,
    ENTRY,
    HEADER,
    SIG,
    WORD,
    at,
    flip,
    missing,
    real,
)
from tests.tools import LONG, thorough
from vqfref.errors import VqfrefError
from vqfref.source import Source
from vqfref.vqf.audit import audit
from vqfref.vqf.head import load_head
from vqfref.vqf.reader import VqfFile
from vqfref.vqf.seal import verify

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

N_TENSORS, SIZE, DATA_OFFSET, FILE_LEN = 14, 11400, 4096, 11392  # of the real plain files
PASSPHRASE = b"correct horse battery staple"

# Any value of these is as good as another to somebody who sees the file alone.
FREE = {"arch." + word for word in (
    "max_seq_len", "rope_theta", "norm_eps", "bos_id", "eos_id", "mrope_sections0", "mrope_sections1",
    "mrope_sections2", "vision_start_id", "vision_end_id", "image_token_id", "video_token_id",
)}  # fmt: skip
FREE_IF_SIGNED = {"sig.pub", "sig.r", "sig.s", "sig.digest", "sig.id"}  # of sig.id the bytes that id_len counts
FREE_IF_ENCRYPTED = {"enc_iv"}


def header_fields(form: int) -> list[tuple[str, int, int]]:
    """(name, offset, size) of everything in a header, without gaps."""
    where = HEADER[form]
    words = ARCH_WORDS if form == 448 else ARCH_WORDS[:41]
    sizes = {"pub": 64, "r": 32, "s": 32, "digest": 32, "id": 32, "id_len": 4, "reserved": 4}
    return [
        ("magic", 0, 4), ("version", 4, 4), ("flags", 8, 4), ("n_tensors", 12, 4),
        *(("arch." + word, WORD[word], 4) for word in words),
        ("pad", where["pad"], 4), ("data_offset", where["data_offset"], 8), ("file_len", where["file_len"], 8),
        ("enc_iv", where["enc_iv"], 16), ("enc_rsvd", where["enc_rsvd"], 16),
        *(("sig." + name, where["sig"] + offset, sizes[name]) for name, offset in SIG.items()),
    ]  # fmt: skip


def nonsense(data: bytes, field: str) -> bool:
    """Is a free field's value one that no model has? sig.id has a test of its own."""
    if field in ("arch.rope_theta", "arch.norm_eps"):
        return not 0 < struct.unpack_from("<f", data, WORD[field[5:]])[0] < float("inf")
    return field == "sig.id" or (field == "arch.max_seq_len" and not any(data[WORD["max_seq_len"] :][:4]))


def bits(offset: int, size: int) -> range:
    return range(8 * offset, 8 * (offset + size))


def report(data: bytes) -> list[tuple[Any, ...]]:
    return [(f.code, f.severity, f.offset, f.field, f.message) for f in audit(Source(data))]


class Headers(unittest.TestCase):
    def assert_noticed(self, name: str, free: set[str], only: tuple[str, ...] = ("",), step: int = 1) -> None:
        """Every flip is reported, but for those in free fields; there none is.

        only: how the fields looked at begin; step: every how many bits, in the thorough run of long fields alone.
        """
        data = real(name)
        before = set(report(data))
        quiet, missed, wrong = set(), [], []
        for field, offset, size in header_fields(int(name[1:4])):
            if not field.startswith(only):
                continue
            for bit in bits(offset, size)[:: step if size > 4 or not LONG else 1]:
                noticed = bool(set(report(flip(data, bit))) - before)
                if not noticed:
                    quiet.add(field)
                if not noticed and field not in free:
                    missed.append((field, bit))
                if noticed and field in free and not nonsense(flip(data, bit), field):
                    wrong.append((field, bit))
        self.assertEqual(missed, [])
        self.assertEqual(wrong, [])
        self.assertEqual(quiet, free)

    def test_fields_of_the_tests_cover_each_header_without_gaps(self) -> None:
        for form in (448, 432):
            end = 0
            for name, offset, size in header_fields(form):
                self.assertEqual(offset, end, name)
                end += size
            self.assertEqual(end, form)

    def test_every_flip_in_a_448_byte_header_is_reported_but_in_free_words(self) -> None:
        self.assert_noticed("h448-plain", FREE, step=1 if LONG else 7)

    @thorough
    def test_flips_in_a_432_byte_header_are_reported_but_in_free_words(self) -> None:
        self.assert_noticed("h432-plain", FREE, step=5)

    def test_a_signature_block_is_free_but_its_id_length_and_reserved_word(self) -> None:
        for name in ("h448-signed", "h432-signed"):
            self.assert_noticed(name, FREE_IF_SIGNED, only=("sig.", "enc_", "flags"), step=5)

    def test_the_iv_of_an_encrypted_file_is_free(self) -> None:
        self.assert_noticed("h448-enc", FREE_IF_ENCRYPTED, only=("sig.", "enc_", "flags"), step=5)

    def test_bytes_of_the_user_id_are_free_and_those_behind_it_are_not(self) -> None:
        for name, start, length in (("h448-signed", 248 + 160, 16), ("h432-signed", 232 + 160, 12)):
            data = real(name)
            before = set(report(data))
            for byte in range(32):
                noticed = bool(set(report(flip(data, 8 * (start + byte) + byte % 8))) - before)
                self.assertEqual(noticed, byte >= length, "%s, byte %d of the id" % (name, byte))

    def test_bytes_432_to_447_behind_the_shorter_header_are_looked_at(self) -> None:
        data = real("h432-plain")
        for bit in bits(432, 16):
            self.assertEqual([(r[0], r[2]) for r in report(flip(data, bit))], [("vqf.padding.layout", bit >> 3)])

    @thorough
    def test_reader_refuses_exactly_where_the_audit_finds_a_gate(self) -> None:
        gates = {
            "vqf.header.magic", "vqf.header.version", "vqf.arch.header", "vqf.header.layout", "vqf.size.truncated",
            "vqf.size.bounds", "vqf.directory.bounds",
        }  # fmt: skip
        for name in ("h448-plain", "h432-plain"):
            data = real(name)
            refused = 0
            for bit in [*bits(0, int(name[1:4]))[::7], *bits(at(6), 64)[::3]]:
                flipped = flip(data, bit)
                expected = {r[0] for r in report(flipped)} & gates
                try:
                    VqfFile(Source(flipped))
                except VqfrefError as error:
                    self.assertIn(error.code, expected, bit)
                    refused += 1
                else:
                    self.assertEqual(expected, set(), bit)
            self.assertGreater(refused, 50)


class Directory(unittest.TestCase):
    def test_every_flip_in_a_directory_is_reported(self) -> None:
        # All bits of three entries: the first, one in the middle, the last; of the others one bit of each byte.
        data = real("h448-plain")
        self.assertEqual(report(data), [])
        missed = []
        for index in range(N_TENSORS):
            whole = index in (0, 7, N_TENSORS - 1) if LONG else index == 7
            for byte in range(64):
                for bit in range(8) if whole else [(byte + index) % 8]:
                    if not report(flip(data, 8 * (at(index) + byte) + bit)):
                        missed.append((index, byte, bit))
        self.assertEqual(missed, [])

    def test_every_flip_in_the_directory_of_an_encrypted_file_is_reported(self) -> None:
        data = real("h448-enc")
        before = set(report(data))
        missed = []
        for index in (0, 5, N_TENSORS - 1):
            for byte in range(64):
                bit = 8 * (at(index) + byte) + (3 * byte + index) % 8
                if not set(report(flip(data, bit))) - before:
                    missed.append((index, byte))
        self.assertEqual(missed, [])

    def test_every_byte_of_padding_behind_a_directory_is_looked_at(self) -> None:
        data = real("h448-plain")
        for byte in range(DIRECTORY + 64 * N_TENSORS, DATA_OFFSET, 61):
            self.assertEqual(
                [(r[0], r[2]) for r in report(flip(data, 8 * byte + byte % 8))], [("vqf.padding.layout", byte)]
            )


class Truncation(unittest.TestCase):
    def expected(self, n: int) -> tuple[str, str]:
        """Code and the words of the message for a file of `n` bytes."""
        if n < 8:
            return "vqf.magic.truncated", "%d bytes, expected at least 8" % n
        if n < 512:
            return "vqf.file.truncated", "%d bytes, expected at least 512" % n
        return "vqf.size.truncated", missing(SIZE - n)

    def test_reader_says_at_every_length_how_much_is_missing(self) -> None:
        for name, step in (("h448-plain", 1 if LONG else 5), ("h432-plain", 7)):
            data = real(name)
            self.assertEqual(len(data), SIZE)
            for n in range(0, SIZE, step):
                code, words = self.expected(n)
                with self.assertRaises(VqfrefError) as caught:
                    VqfFile(Source(data[:n]))
                error = caught.exception
                self.assertEqual((error.code, error.offset, error.word), (code, n, "truncated"))
                self.assertIn(words, error.message)

    def test_audit_says_the_same(self) -> None:
        for name, step in (("h448-plain", 3), ("h432-plain", 11)):
            data = real(name)
            for n in range(0, SIZE, step):
                code, words = self.expected(n)
                findings = audit(Source(data[:n]))
                self.assertEqual([(f.code, f.offset, f.engine) for f in findings], [(code, n, "refuses")])
                self.assertIn(words, findings[0].message)

    def test_an_encrypted_file_misses_its_longer_tag(self) -> None:
        for name in ("h448-enc", "h432-enc"):
            data = real(name)
            for n in (SIZE + 23, SIZE, FILE_LEN, DATA_OFFSET, 512):
                with self.assertRaises(VqfrefError) as caught:
                    VqfFile(Source(data[:n]))
                self.assertEqual(caught.exception.code, "vqf.size.truncated")
                self.assertIn(missing(SIZE + 24 - n), caught.exception.message)


class Tags(unittest.TestCase):
    """Which flips the checksum and the tags notice."""

    def checksum(self, data: bytes) -> str | None:
        """What the checksum step of a verification says, None for a file that does not open."""
        source = Source(data)
        try:
            head = load_head(source)
        except VqfrefError:
            return None
        return next(step.result for step in verify(source, head).steps if step.name == "checksum")

    def test_checksum_does_not_cover_the_header(self) -> None:
        for name in ("h448-plain", "h432-plain", "h448-signed"):
            data = real(name)
            self.assertEqual(self.checksum(data), "ok")
            judged = set()
            for field, offset, size in header_fields(int(name[1:4])):
                if field in ("n_tensors", "data_offset", "file_len"):
                    continue  # they say what is covered
                result = self.checksum(flip(data, 8 * (offset + size - 1)))
                self.assertIn(result, ("ok", None), field)
                if result:
                    judged.add(field)
            self.assertLessEqual(FREE | {"pad", "enc_iv", "enc_rsvd", "sig.pub", "sig.reserved"}, judged)

    def test_checksum_does_not_cover_the_padding_behind_header_and_directory(self) -> None:
        for byte in (DIRECTORY + 64 * N_TENSORS, 2000, DATA_OFFSET - 1):
            self.assertEqual(self.checksum(flip(real("h448-plain"), 8 * byte)), "ok")
        for byte in (432, 447):
            self.assertEqual(self.checksum(flip(real("h432-plain"), 8 * byte)), "ok")

    def test_checksum_covers_every_field_of_a_directory_entry(self) -> None:
        for index in (0, 6, N_TENSORS - 1):
            for offset in ENTRY.values():
                bit = 8 * (at(index) + offset)
                self.assertEqual(self.checksum(flip(real("h448-plain"), bit)), "failed", (index, offset))

    def test_checksum_covers_every_byte_of_data(self) -> None:
        data = real("h448-plain")
        for byte in [*range(DATA_OFFSET, DATA_OFFSET + 32), *range(FILE_LEN - 32, FILE_LEN)]:
            self.assertEqual(self.checksum(flip(data, 8 * byte + byte % 8)), "failed", byte)

    def test_every_bit_of_the_checksum_counts(self) -> None:
        for bit in bits(FILE_LEN, 8)[::3]:
            self.assertEqual(self.checksum(flip(real("h432-plain"), bit)), "failed", bit)

    # (what, offset, does the HMAC notice, does the digest D notice) for the 448-byte form
    COVERED = (
        ("arch.rope_theta", 48, True, True),
        ("arch.video_token_id", 176, True, True),
        ("pad", 196, True, True),
        ("enc_rsvd", 232, True, True),
        ("sig.pub", 248, False, False),
        ("sig.reserved", 447, False, False),
        ("directory, name padding", at(3) + 31, True, True),
        ("directory, alignment hole of the last entry", at(N_TENSORS - 1, "pad") + 3, True, True),
        ("padding behind the directory", 1344, False, False),
        ("padding before the data", 4095, False, False),
        ("first byte of data", 4096, True, True),
        ("last byte of data", FILE_LEN - 1, True, True),
    )

    def test_hmac_covers_header_directory_and_data_but_neither_signature_block_nor_padding(self) -> None:
        self.assert_covered("h448-enc-signed", "hmac", 2, passphrase=PASSPHRASE)

    def test_digest_of_a_signature_covers_the_same(self) -> None:
        self.assert_covered("h448-signed", "signature", 3)

    def assert_covered(self, name: str, step: str, column: int, **how: Any) -> None:
        for row in self.COVERED:
            source = Source(flip(real(name), 8 * row[1]))
            steps = verify(source, load_head(source), **how).steps
            failed = [s.result for s in steps if s.name == step] == ["failed"]
            self.assertEqual(failed, row[column], row[0])

    def test_hmac_of_the_432_byte_form_covers_its_own_header_and_no_more(self) -> None:
        for byte, noticed in (
            (48, True),
            (180, True),
            (216, True),
            (232, False),
            (431, False),
            (432, False),
            (447, False),
        ):
            source = Source(flip(real("h432-enc-signed"), 8 * byte))
            steps = verify(source, load_head(source), passphrase=PASSPHRASE).steps
            self.assertEqual(steps[0][:2], ("hmac", "failed" if noticed else "ok"), byte)


if __name__ == "__main__":
    unittest.main()

"""Files rewritten with other seals: encrypted, decrypted, signed, unsigned, fields set; and nothing written on any fault.

What must come out is known from outside: the real files of each form are one model as plain, encrypted, signed and both,
so that each must turn into each of the others byte for byte; the sha256 of other encryptions and the tag of another
header were made with OpenSSL 3.0. Signatures are random: here a real one takes the place of the number that `sign` draws,
or a verification of its own, with hashlib's SM3, says whether a new one is right.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import struct
import tempfile
import unittest
from unittest import mock

from tests.samples import ARCH_WORDS, HEADER, WORD, arch, at, build, flip, model, patch, real, row, text_rows
from tests.samples import reseal as retag
from tests.test_seal import (
    FILE_LEN,
    FORMS,
    KINDS,
    PASSPHRASE,
    PUBLIC,
    SIGNATURES,
    USER_ID,
    hmac_tag,
    sig_at,
    sm3,
    verify,
)
from vqfref import kernels, sink
from vqfref.crypto import sm2
from vqfref.errors import FormatError, IntegrityError, SignatureError, UnsupportedError, UsageError, VqfrefError
from vqfref.vqf import seal
from vqfref.vqf.reseal import Signer, reseal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterator

PRIVATE = 0x3945208F7B2144B13F36E38AC6D39F95889393692860B51A42FB81EF4DF7C5B8  # of PUBLIC; an example of the standard
SIGNER = Signer(PRIVATE, None)

# (form, passphrase, IV) -> sha256 of the real plain file encrypted with OpenSSL (dgst -sm3, enc -sm4-ctr, mac HMAC).
COUNTING = bytes(range(16))
ENCRYPTED = {
    (448, b"two newlines\n", b"\xff" * 16): "b9dfd8ff4b810404a8d30f9047445c3eec1bde3566e59275099cfdf310f1131f",
    (432, b"two newlines\n", b"\xff" * 16): "377144d53986281565e6c0c418fc5365209b78fab8393db5ba04bde05a28373c",
    (448, b"\xff\0\xe4", COUNTING): "fb128f463add663b1309368adb7170baf4b9857ad582ddda39f18ce83a59519f",
    (432, b"\xff\0\xe4", COUNTING): "6a2decac519a57ab6f3a4ae72841ce078f40880a2918a4c4f40832bb0d171017",
    (448, b"p" * 70000, COUNTING): "cf8ca29d15ef83ecc643140e674075dbbe1adb37e6ae3086d154cd96009d94d8",
}
# The tag of the real encrypted file once max_seq_len is 4096.
TAG_OF_4096 = {
    448: "c4fecfd0d9e1f249cd062748763411d9a7f1daea37f100d8c2d17bcb30db9339",
    432: "5313dee93740c33c3b717426dc6cabd34418a48f7c9982bde2a19ad6311d122e",
}


def kind(form: int, name: str) -> bytes:
    return real("h%d-%s" % (form, name))


def iv_of(form: int) -> bytes:
    """The IV of the real encrypted files; both of a form have the same."""
    return kind(form, "enc")[HEADER[form]["enc_iv"] :][:16]


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


class Files(unittest.TestCase):
    """A test with a folder of its own."""

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory(prefix="vqfref-")
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.out = os.path.join(folder.name, "out.vqf")

    def file(self, data: bytes, name: str = "in.vqf") -> str:
        path = os.path.join(self.folder, name)
        with open(path, "wb") as file:
            file.write(data)
        return path

    def read(self, path: str | None = None) -> bytes:
        with open(path or self.out, "rb") as file:
            return file.read()

    def reseal(self, data: bytes, **how: Any) -> bytes:
        """The bytes that `data` becomes in another file."""
        reseal(self.file(data), self.out, **how)
        return self.read()

    def in_place(self, data: bytes, **how: Any) -> bytes:
        path = self.file(data)
        reseal(path, None, **how)
        return self.read(path)

    def refused(self, code: str, data: bytes, error: type[VqfrefError] = VqfrefError, **how: Any) -> None:
        """Refused with this code, and nothing written: to another file, over an old one, over itself, in place."""
        path = self.file(data)
        old = self.file(b"old", "old.vqf")
        for out in (self.out, old, path, None):
            with self.assertRaises(error) as caught:
                reseal(path, out, **how)
            self.assertEqual(caught.exception.code, code)
            self.assertEqual((self.read(path), self.read(old)), (data, b"old"))
            self.assertEqual(sorted(os.listdir(self.folder)), ["in.vqf", "old.vqf"])


@contextlib.contextmanager
def signing(form: int, target: bytes) -> Iterator[mock.Mock]:
    """While `sign` draws its number, the signature of a real file stands in for what it would make."""
    start = sig_at(form, "r")
    with mock.patch.object(kernels, "sm2_sign", return_value=target[start : start + 64]) as sign:
        yield sign


# ---- a verification that shares nothing with the library's


def sm2_verifies(public: bytes, message: bytes, signature: bytes, user_id: bytes) -> bool:
    """GB/T 32918.2, 7.1, in Jacobian coordinates; SM3 by hashlib."""
    p = 0xFFFFFFFEFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFF00000000FFFFFFFFFFFFFFFF
    n = 0xFFFFFFFEFFFFFFFFFFFFFFFFFFFFFFFF7203DF6B21C6052B53BBF40939D54123
    b = bytes.fromhex("28e9fa9e9d9f5e344d5a9e4bcf6509a7f39789f515ab8f92ddbcbd414d940e93")
    g = bytes.fromhex(
        "32c4ae2c1f1981195f9904466a39c9948fe30bbff2660be1715a4589334c74c7"
        "bc3736a2f4f6779c59bdcee36b692153d0a9877cc62a474002df32e52139f0a0"
    )

    def point(data: bytes) -> tuple[int, int, int]:
        return int.from_bytes(data[:32], "big"), int.from_bytes(data[32:], "big"), 1

    def double(A: tuple[int, int, int]) -> tuple[int, int, int]:
        x, y, z = A
        m = 3 * (x - z * z) * (x + z * z)  # a = -3
        s = 4 * x * y * y
        x3 = m * m - 2 * s
        return x3 % p, (m * (s - x3) - 8 * y**4) % p, 2 * y * z % p

    def add(A: tuple[int, int, int], B: tuple[int, int, int]) -> tuple[int, int, int]:
        if A[2] == 0:
            return B
        u1, u2 = A[0] * B[2] ** 2, B[0] * A[2] ** 2
        s1, s2 = A[1] * B[2] ** 3, B[1] * A[2] ** 3
        h, r = (u2 - u1) % p, (s2 - s1) % p
        x3 = r * r - h**3 - 2 * u1 * h * h
        return x3 % p, (r * (u1 * h * h - x3) - s1 * h**3) % p, h * A[2] * B[2] % p

    r, s = int.from_bytes(signature[:32], "big"), int.from_bytes(signature[32:], "big")
    z = sm3(struct.pack(">H", 8 * len(user_id)) + user_id + (p - 3).to_bytes(32, "big") + b + g + public)
    e = int.from_bytes(sm3(z + message), "big")
    t = (r + s) % n
    total = (1, 1, 0)
    for bit in range(255, -1, -1):
        total = double(total)
        for scalar, base in ((s, g), (t, public)):
            if scalar >> bit & 1:
                total = add(total, point(base))
    x = total[0] * pow(total[2], p - 3, p) % p  # x / z^2
    return 0 < r < n and 0 < s < n and (e + x) % n == r


class EachIntoEach(Files):
    """The four real files of a form are one model: each turns into each of the others to the byte."""

    def how(self, form: int, old: str, new: str) -> dict[str, Any]:
        how: dict[str, Any] = {"passphrase": PASSPHRASE} if "enc" in old else {}
        if "enc" in new and "enc" not in old:
            how.update(new_passphrase=PASSPHRASE, iv=iv_of(form))
        elif "enc" in old and "enc" not in new:
            how.update(new_passphrase=None)
        if "signed" in new:
            how.update(signer=SIGNER)
        elif "signed" in old:
            how.update(signer=None)
        return how

    def test_each_into_each(self) -> None:
        for form in FORMS:
            for old in KINDS:
                for new in KINDS:
                    if old == new and "signed" not in old:
                        continue  # nothing to do
                    with self.subTest("%s into %s" % (old, new), form=form):
                        target = kind(form, new)
                        with signing(form, target) as sign:
                            self.assertEqual(self.reseal(kind(form, old), **self.how(form, old, new)), target)
                        if "signed" in new:  # D, and the id of the form
                            digest = target[sig_at(form, "digest") :][:32]
                            sign.assert_called_once_with(PRIVATE, digest, USER_ID[form])
                        else:
                            sign.assert_not_called()

    def test_signing_in_place_gives_the_same(self) -> None:
        for form in FORMS:
            for old, new in (("plain", "signed"), ("signed", "plain"), ("enc", "enc-signed"), ("enc-signed", "enc")):
                with self.subTest("%s into %s" % (old, new), form=form):
                    target = kind(form, new)
                    with signing(form, target):
                        self.assertEqual(self.in_place(kind(form, old), **self.how(form, old, new)), target)

    def test_encrypting_and_decrypting_again_gives_the_old_bytes(self) -> None:
        for form in FORMS:
            sealed = self.reseal(kind(form, "plain"), new_passphrase=b"secret")
            self.assertEqual(sealed[8], 0xA3)
            self.assertEqual(self.reseal(sealed, passphrase=b"secret", new_passphrase=None), kind(form, "plain"))

    def test_signing_and_taking_the_signature_off_gives_the_old_bytes(self) -> None:
        for form in FORMS:
            for old in ("plain", "enc"):
                how = {"passphrase": PASSPHRASE} if old == "enc" else {}
                marked = self.reseal(kind(form, old), signer=SIGNER, **how)
                self.assertNotEqual(marked, kind(form, old))
                self.assertEqual(self.reseal(marked, signer=None, **how), kind(form, old))

    def test_pieces_of_any_size_give_the_same(self) -> None:
        for size in (16, 112, 4096):
            with mock.patch.object(seal, "PIECE", size):
                how = self.how(448, "plain", "enc")
                self.assertEqual(self.reseal(kind(448, "plain"), **how), kind(448, "enc"))
                with signing(448, kind(448, "signed")):
                    how = self.how(448, "enc-signed", "signed")
                    self.assertEqual(self.reseal(kind(448, "enc-signed"), **how), kind(448, "signed"))

    def test_the_file_itself_can_be_the_target(self) -> None:
        path = self.file(kind(448, "plain"))
        reseal(path, path, new_passphrase=PASSPHRASE, iv=iv_of(448))
        self.assertEqual(self.read(path), kind(448, "enc"))
        reseal(path, os.path.join(self.folder, ".", "in.vqf"), passphrase=PASSPHRASE, new_passphrase=None)
        self.assertEqual(self.read(path), kind(448, "plain"))
        self.assertEqual(os.listdir(self.folder), ["in.vqf"])

    def test_a_symlink_to_the_file_can_be_the_target(self) -> None:
        path = self.file(kind(448, "plain"))
        os.symlink("in.vqf", self.out)
        reseal(path, self.out, new_passphrase=PASSPHRASE, iv=iv_of(448))
        self.assertTrue(os.path.islink(self.out))
        self.assertEqual(self.read(path), kind(448, "enc"))

    def test_what_no_tag_covers_stays_as_it_was(self) -> None:
        plain = patch(patch(kind(432, "plain"), 432, "16s", b"behind a header."), 2000, "4s", b"free")
        sealed = self.reseal(plain, new_passphrase=b"x")
        self.assertEqual((sealed[432:448], sealed[2000:2004]), (b"behind a header.", b"free"))
        self.assertEqual(self.reseal(sealed, passphrase=b"x", new_passphrase=None), plain)
        self.assertEqual(self.reseal(plain, fields={"eos_id": 7}), patch(plain, WORD["eos_id"], "I", 7))

    def test_padding_inside_the_data_area_is_encrypted_too(self) -> None:
        for name in ("layers", "moe"):
            plain = model(name)
            sealed = self.reseal(plain, new_passphrase=b"x")
            self.assertEqual(len(sealed), len(plain) + 24)
            self.assertTrue(verify(sealed, b"x").ok)
            self.assertEqual(self.reseal(sealed, passphrase=b"x", new_passphrase=None), plain)


class Encryption(Files):
    def test_the_ciphertext_and_the_tag_are_those_of_openssl(self) -> None:
        for (form, passphrase, iv), expected in ENCRYPTED.items():
            with self.subTest(passphrase[:20], form=form):
                plain = self.reseal(kind(form, "plain"), new_passphrase=passphrase, iv=iv)
                self.assertEqual(sha256(plain), expected)

    def test_another_passphrase_takes_the_place_of_the_old_one(self) -> None:
        for (form, passphrase, iv), expected in ENCRYPTED.items():
            with self.subTest(passphrase[:20], form=form):
                sealed = self.reseal(kind(form, "enc"), passphrase=PASSPHRASE, new_passphrase=passphrase, iv=iv)
                self.assertEqual(sha256(sealed), expected)

    def test_the_passphrase_of_a_plain_file_does_not_matter(self) -> None:
        how = {"new_passphrase": PASSPHRASE, "iv": iv_of(448)}
        self.assertEqual(self.reseal(kind(448, "plain"), passphrase=b"any", **how), kind(448, "enc"))

    def test_the_iv_differs_between_runs(self) -> None:
        files = [self.reseal(kind(448, "plain"), new_passphrase=b"x") for _ in range(3)]
        files.append(self.reseal(files[0], passphrase=b"x", new_passphrase=b"x"))
        for start, length in ((216, 16), (4096, 64), (FILE_LEN, 32)):
            self.assertEqual(len({data[start : start + length] for data in files}), 4)
        for data in files:
            self.assertNotEqual(data[216:232], bytes(16))
            self.assertEqual(self.reseal(data, passphrase=b"x", new_passphrase=None), kind(448, "plain"))

    def test_an_iv_that_is_not_16_bytes_is_refused(self) -> None:
        for iv in (b"", bytes(15), bytes(17)):
            self.refused("sm4.length.iv", kind(448, "plain"), UsageError, new_passphrase=b"x", iv=iv)

    def test_an_empty_new_passphrase_is_refused(self) -> None:
        for name, how in (("plain", {}), ("enc", {"passphrase": PASSPHRASE})):
            self.refused("usage.passphrase.key", kind(448, name), UsageError, new_passphrase=b"", **how)

    def test_a_plain_file_can_not_be_decrypted(self) -> None:
        self.refused("usage.decrypt.policy", kind(448, "plain"), UsageError, passphrase=b"x", new_passphrase=None)

    def test_encryption_does_not_go_in_place(self) -> None:
        for name, how in (
            ("plain", {"new_passphrase": b"x"}),
            ("enc", {"passphrase": PASSPHRASE, "new_passphrase": b"x"}),
            ("enc", {"passphrase": PASSPHRASE, "new_passphrase": None}),
        ):
            with self.assertRaises(UsageError) as caught:
                self.in_place(kind(448, name), **how)
            self.assertEqual(caught.exception.code, "usage.inplace.policy")
            self.assertEqual(self.read(os.path.join(self.folder, "in.vqf")), kind(448, name))

    def test_decrypting_leaves_a_right_checksum(self) -> None:
        none = patch(kind(448, "plain"), FILE_LEN, "Q", 0)
        sealed = self.reseal(none, new_passphrase=PASSPHRASE, iv=iv_of(448))
        self.assertEqual(sealed, kind(448, "enc"))
        self.assertEqual(self.reseal(sealed, passphrase=PASSPHRASE, new_passphrase=None), kind(448, "plain"))

    def test_an_encrypted_file_is_tagged_anew_without_decrypting_it(self) -> None:
        with mock.patch.object(kernels, "sm4_ctr", side_effect=AssertionError("decrypted for nothing")):
            self.reseal(kind(448, "enc"), passphrase=PASSPHRASE, fields={"max_seq_len": 4096})
            self.reseal(kind(448, "enc-signed"), passphrase=PASSPHRASE, signer=None)

    def test_progress_ends_at_the_length_of_the_data(self) -> None:
        calls: list[tuple[int, int]] = []
        self.reseal(kind(448, "plain"), new_passphrase=b"x", progress=lambda *call: calls.append(call))
        self.assertEqual(calls[-1], (7296, 7296))
        self.assertEqual({total for _, total in calls}, {7296})


class Signing(Files):
    def check(self, data: bytes, form: int, user_id: bytes, public: bytes = PUBLIC) -> None:
        """The block is what section 2 says, and an independent verification takes its signature."""
        block = data[HEADER[form]["sig"] :][:200]
        digest = block[128:160]
        self.assertEqual(block[:64], public)
        self.assertEqual(block[160:], user_id.ljust(32, b"\0") + struct.pack("<II", len(user_id), 0))
        self.assertTrue(sm2_verifies(public, digest, block[64:128], user_id))
        self.assertFalse(sm2_verifies(public, digest, block[64:128], user_id + b"x"))

    def test_the_independent_verification_knows_right_from_wrong(self) -> None:
        for form in FORMS:
            block = kind(form, "signed")[HEADER[form]["sig"] :][:200]
            self.assertTrue(sm2_verifies(PUBLIC, block[128:160], block[64:128], USER_ID[form]))
            self.assertFalse(sm2_verifies(PUBLIC, block[128:160], block[64:128], b"x"))
            self.assertFalse(sm2_verifies(PUBLIC, bytes(32), block[64:128], USER_ID[form]))

    def test_a_new_signature_is_right(self) -> None:
        for form in FORMS:
            for name, how in (("plain", {}), ("enc", {"passphrase": PASSPHRASE})):
                data = self.reseal(kind(form, name), signer=SIGNER, **how)
                target = kind(form, "enc-signed" if name == "enc" else "signed")
                start = sig_at(form, "digest")
                self.assertEqual(data[start : start + 32], target[start : start + 32])
                self.check(data, form, USER_ID[form])

    def test_signing_again_replaces_the_signature_and_nothing_else(self) -> None:
        for form in FORMS:
            old, start = kind(form, "signed"), sig_at(form, "r")
            new = self.reseal(old, signer=SIGNER)
            self.assertNotEqual(new[start : start + 64], old[start : start + 64])  # another random number
            self.assertEqual(new[:start] + new[start + 64 :], old[:start] + old[start + 64 :])
            self.check(new, form, USER_ID[form])

    def test_any_id_of_1_to_32_bytes_can_be_chosen(self) -> None:
        for user_id in (b"x", b"\xc3\xa9", b"i" * 32):
            target = bytes.fromhex(SIGNATURES[448, user_id])
            with mock.patch.object(kernels, "sm2_sign", return_value=target) as sign:
                data = self.reseal(kind(448, "plain"), signer=Signer(PRIVATE, user_id))
            sign.assert_called_once_with(PRIVATE, kind(448, "signed")[376:408], user_id)
            self.check(data, 448, user_id)
            self.assertEqual(data[408:448], user_id.ljust(32, b"\0") + struct.pack("<II", len(user_id), 0))

    def test_other_ids_are_refused(self) -> None:
        for user_id in (b"", b"i" * 33):
            self.refused("usage.userid.signature", kind(448, "plain"), UsageError, signer=Signer(PRIVATE, user_id))

    def test_a_private_key_out_of_range_is_refused(self) -> None:
        for d in (0, sm2.n - 1, sm2.n):
            self.refused("sm2.private.range", kind(448, "plain"), SignatureError, signer=Signer(d, None))

    def test_an_unsigned_file_has_no_signature_to_take_off(self) -> None:
        self.refused("usage.unsign.policy", kind(448, "plain"), UsageError, signer=None)

    def test_a_signature_that_would_not_hold_any_more_never_stays(self) -> None:
        for form in FORMS:
            plain, both = kind(form, "signed"), kind(form, "enc-signed")
            sealed = {"passphrase": PASSPHRASE}
            self.refused("vqf.resign.signature", plain, SignatureError, fields={"max_seq_len": 4096})
            self.refused("vqf.resign.signature", plain, SignatureError, new_passphrase=b"x")
            self.refused("vqf.resign.signature", both, SignatureError, **sealed, fields={"max_seq_len": 4096})
            self.refused("vqf.resign.signature", both, SignatureError, **sealed, new_passphrase=None)
            self.refused("vqf.resign.signature", both, SignatureError, **sealed, new_passphrase=PASSPHRASE)

    def test_a_change_that_changes_nothing_needs_no_key(self) -> None:
        old = kind(448, "signed")
        self.assertEqual(self.reseal(old, fields={"max_seq_len": 8192}), old)
        self.assertEqual(self.in_place(old, fields={"max_seq_len": 8192}), old)

    def test_a_change_and_a_new_signature_go_together(self) -> None:
        for form in FORMS:
            data = self.reseal(kind(form, "signed"), signer=SIGNER, fields={"max_seq_len": 4096})
            start = HEADER[form]["sig"]
            self.assertEqual(data[:start], patch(kind(form, "signed"), WORD["max_seq_len"], "I", 4096)[:start])
            at_len = HEADER[form]["file_len"]
            canonical = data[:at_len] + bytes(8) + data[at_len + 8 : start] + bytes(200)
            digest = sm3(canonical + data[448 : 448 + 14 * 64] + data[4096:FILE_LEN])
            self.assertEqual(data[sig_at(form, "digest") :][:32], digest)
            self.check(data, form, USER_ID[form])


class Setting(Files):
    """Words of the header that don't decide where tensors lie."""

    VALUES: tuple[tuple[str, Any, str, str], ...] = (
        # name, value, word it starts at, struct format
        ("max_seq_len", 4096, "max_seq_len", "I"), ("max_seq_len", 0xFFFFFFFF, "max_seq_len", "I"),
        ("rope_theta", 1e6, "rope_theta", "f"), ("rope_theta", 0.1, "rope_theta", "f"), ("rope_theta", 7, "rope_theta", "f"),
        ("norm_eps", 1e-5, "norm_eps", "f"), ("norm_eps", 1e-45, "norm_eps", "f"),
        ("bos_id", 0, "bos_id", "I"), ("eos_id", 7, "eos_id", "I"), ("has_mrope", 0, "has_mrope", "I"),
        ("mrope_n_sec", 2, "mrope_n_sec", "I"), ("mrope_sections", (24, 20, -20, 0), "mrope_sections0", "4i"),
        ("mrope_sections", [1, 2, 3, 4], "mrope_sections0", "4i"), ("vis_ds_idx", (5, 11, 17, -1), "vis_ds_idx0", "4i"),
        ("vision_start_id", 1, "vision_start_id", "I"), ("vision_end_id", 2, "vision_end_id", "I"),
        ("image_token_id", 3, "image_token_id", "I"), ("video_token_id", 4, "video_token_id", "I"),
        ("top_k", 8, "top_k", "I"),
    )  # fmt: skip

    def packed(self, value: Any, fmt: str) -> tuple[Any, ...]:
        return tuple(value) if isinstance(value, (tuple, list)) else (value,)

    def test_a_plain_file_differs_in_the_field_alone(self) -> None:
        for form in FORMS:
            for name, value, word, fmt in self.VALUES:
                if name == "top_k" and form == 432:
                    continue
                with self.subTest(name, form=form):
                    plain = kind(form, "plain")
                    expected = patch(plain, WORD[word], fmt, *self.packed(value, fmt))
                    self.assertEqual(self.reseal(plain, fields={name: value}), expected)
                    self.assertEqual(self.in_place(plain, fields={name: value}), expected)

    def test_an_encrypted_file_gets_a_new_tag_too(self) -> None:
        for form in FORMS:
            expected = patch(kind(form, "enc"), WORD["max_seq_len"], "I", 4096)[:FILE_LEN]
            expected += bytes.fromhex(TAG_OF_4096[form])
            how: dict[str, Any] = {"passphrase": PASSPHRASE, "fields": {"max_seq_len": 4096}}
            self.assertEqual(self.reseal(kind(form, "enc"), **how), expected)
            self.assertEqual(self.in_place(kind(form, "enc"), **how), expected)

    def test_every_field_of_an_encrypted_file_is_under_the_tag(self) -> None:
        for name, value, word, fmt in self.VALUES:
            expected = patch(kind(448, "enc"), WORD[word], fmt, *self.packed(value, fmt))[:FILE_LEN]
            expected += hmac_tag(expected, 448)
            how: dict[str, Any] = {"passphrase": PASSPHRASE, "fields": {name: value}}
            self.assertEqual(self.in_place(kind(448, "enc"), **how), expected, name)

    def test_several_fields_are_set_at_once(self) -> None:
        expected = patch(patch(kind(448, "plain"), WORD["bos_id"], "I", 1), WORD["norm_eps"], "f", 0.5)
        self.assertEqual(self.reseal(kind(448, "plain"), fields={"bos_id": 1, "norm_eps": 0.5}), expected)

    def test_set_and_encrypt_go_together(self) -> None:
        fields = {"max_seq_len": 4096}
        data = self.reseal(kind(448, "plain"), new_passphrase=PASSPHRASE, iv=iv_of(448), fields=fields)
        self.assertEqual(data[FILE_LEN:].hex(), TAG_OF_4096[448])

    def test_what_decides_where_tensors_lie_can_not_be_set(self) -> None:
        free = {name for name, *_ in self.VALUES}
        words = {word.rstrip("0123") for word in ARCH_WORDS} - free
        self.assertLessEqual({"dim", "n_layers", "ffn_dim", "vocab_size", "has_q_norm", "n_experts"}, words)
        others = (
            "magic version flags n_tensors arch pad data_offset file_len enc_iv enc_rsvd sig pub no arch.max_seq_len"
        )
        for name in sorted(words | {*others.split(), "", "mrope_sections0"}):
            with self.subTest(name):
                with self.assertRaises(UsageError) as caught:
                    self.in_place(kind(448, "plain"), fields={"bos_id": 1, name: 1})
                self.assertEqual((caught.exception.code, caught.exception.field), ("usage.field.policy", name))
                self.assertEqual(self.read(os.path.join(self.folder, "in.vqf")), kind(448, "plain"))

    def test_a_word_that_the_form_lacks_can_not_be_set(self) -> None:
        self.refused("usage.field.policy", kind(432, "plain"), UsageError, fields={"top_k": 2})

    def test_a_value_that_its_type_can_not_hold_is_refused(self) -> None:
        for name, value in (
            ("max_seq_len", -1), ("max_seq_len", 1 << 32), ("max_seq_len", 1.5), ("max_seq_len", "4096"),
            ("max_seq_len", None), ("max_seq_len", 0), ("rope_theta", 0.0), ("norm_eps", -1e-6),
            ("max_seq_len", (1, 2)), ("max_seq_len", ()), ("rope_theta", 1e39),
            ("rope_theta", "1e6"), ("rope_theta", 10**400), ("mrope_sections", 1), ("mrope_sections", (1, 2, 3)),
            ("mrope_sections", (1, 2, 3, 4, 5)), ("mrope_sections", (1, 2, 3, 1 << 31)), ("vis_ds_idx", (0, 0, 0, 0.5)),
        ):  # fmt: skip
            with self.subTest("%s = %.20r" % (name, value)):
                self.refused("usage.field.range", kind(448, "plain"), UsageError, fields={name: value})

    def test_a_number_too_long_to_print_is_refused_like_any_other(self) -> None:
        self.refused("usage.field.range", kind(448, "plain"), UsageError, fields={"max_seq_len": 10**5000})

    def test_a_stored_checksum_of_zero_stays_zero(self) -> None:
        for form in FORMS:
            none = patch(kind(form, "plain"), FILE_LEN, "Q", 0)
            expected = patch(none, WORD["eos_id"], "I", 7)
            self.assertEqual(self.reseal(none, fields={"eos_id": 7}), expected)
            self.assertEqual(self.in_place(none, fields={"eos_id": 7}), expected)
            target = patch(kind(form, "signed"), FILE_LEN, "Q", 0)
            with signing(form, target):
                self.assertEqual(self.reseal(none, signer=SIGNER), target)
                self.assertEqual(self.in_place(none, signer=SIGNER), target)
            self.assertEqual(self.reseal(target, signer=None), none)


class InPlace(Files):
    """Header and tag are written, in this order, and nothing else."""

    def writes(self, data: bytes, **how: Any) -> tuple[list[tuple[int, int]], bytes]:
        """The (offset, length) of each write to the file, in order, and the file afterwards."""
        path = self.file(data)
        seen: list[tuple[int, int]] = []
        write, fsync = os.write, os.fsync

        def recorded(fd: int, part: Any) -> int:
            seen.append((os.lseek(fd, 0, os.SEEK_CUR), len(part)))
            return write(fd, part)

        def synced(fd: int) -> None:
            seen.append((-1, 0))
            fsync(fd)

        with mock.patch.object(sink.os, "write", recorded), mock.patch.object(sink.os, "fsync", synced):
            reseal(path, None, **how)
        self.assertEqual(os.listdir(self.folder), ["in.vqf"])
        return seen, self.read(path)

    def test_an_encrypted_file_gets_its_header_first_and_its_tag_last(self) -> None:
        for form in FORMS:
            seen, data = self.writes(kind(form, "enc"), passphrase=PASSPHRASE, fields={"max_seq_len": 4096})
            places = [place for place in seen if place[1]]
            self.assertEqual([offset for offset, _ in places], [0, FILE_LEN])
            self.assertLessEqual(places[0][1], 448)
            self.assertEqual(places[1][1], 32)
            self.assertEqual(seen[1::2], [(-1, 0)] * 2)  # the medium has the header before the tag is written
            self.assertEqual(data[448:FILE_LEN], kind(form, "enc")[448:FILE_LEN])

    def test_a_plain_file_gets_its_header_alone(self) -> None:
        for form in FORMS:
            for how in ({"fields": {"max_seq_len": 4096}}, {"signer": SIGNER}):
                seen, data = self.writes(kind(form, "plain"), **how)
                self.assertEqual([offset for offset, length in seen if length], [0])
                self.assertEqual(data[448:], kind(form, "plain")[448:])

    def test_nothing_is_written_where_nothing_changes(self) -> None:
        seen, _ = self.writes(kind(448, "plain"), fields={"max_seq_len": 8192})
        self.assertEqual([place for place in seen if place[1]], [])

    def test_the_inode_and_the_mode_stay(self) -> None:
        path = self.file(kind(448, "plain"))
        os.chmod(path, 0o640)
        before = os.stat(path)
        reseal(path, None, fields={"max_seq_len": 4096})
        after = os.stat(path)
        self.assertEqual((after.st_ino, after.st_mode, after.st_size), (before.st_ino, before.st_mode, before.st_size))

    def test_an_interruption_between_header_and_tag_leaves_the_old_file(self) -> None:
        path = self.file(kind(448, "enc"))
        with mock.patch.object(sink.os, "fsync", side_effect=KeyboardInterrupt), self.assertRaises(KeyboardInterrupt):
            reseal(path, None, passphrase=PASSPHRASE, fields={"max_seq_len": 4096})
        self.assertEqual(self.read(path), kind(448, "enc"))

    def test_a_change_between_the_passes_leaves_nothing(self) -> None:
        for data, how in (
            (kind(448, "enc"), {"passphrase": PASSPHRASE, "fields": {"max_seq_len": 4096}}),
            (kind(448, "enc"), {"passphrase": PASSPHRASE, "new_passphrase": None}),
            (kind(448, "plain"), {"new_passphrase": b"new"}),
            (kind(448, "plain"), {"signer": SIGNER}),
        ):
            path, out = self.file(data), os.path.join(self.folder, "out.vqf")
            passes: list[int] = []

            def tamper(done: int, total: int, path: str = path, passes: list[int] = passes) -> None:
                if done == total and not passes:
                    passes.append(1)
                    with open(path, "r+b") as file:
                        file.seek(0x1C00)
                        file.write(b"\x55\xaa\x55\xaa")

            with self.assertRaises(IntegrityError) as caught:
                reseal(path, out, progress=tamper, **how)
            self.assertEqual(caught.exception.code, "file.changed.tag")
            self.assertEqual(os.listdir(self.folder), ["in.vqf"], "something half-written stayed")

    def test_what_was_not_signed_is_not_signed_by_the_way(self) -> None:
        data = bytearray(kind(448, "signed"))
        data[0x1C00] ^= 1
        forged = retag(bytes(data))
        self.refused("vqf.digest.signature", forged, SignatureError, signer=SIGNER, fields={"max_seq_len": 4096})
        with self.assertRaises(SignatureError):
            reseal(self.file(forged), self.out, signer=SIGNER, new_passphrase=b"new")
        reseal(self.file(forged), os.path.join(self.folder, "out.vqf"), signer=SIGNER)  # on purpose


class NothingWritten(Files):
    """Whatever is wrong with the file or the key, no target changes."""

    def test_a_wrong_passphrase(self) -> None:
        for form in FORMS:
            for wrong in (b"wrong", PASSPHRASE + b"\n"):
                for how in ({"fields": {"max_seq_len": 1}}, {"signer": SIGNER}):
                    self.refused("vqf.hmac.tag", kind(form, "enc"), IntegrityError, passphrase=wrong, **how)
        for how in ({"new_passphrase": None}, {"new_passphrase": b"x"}):
            self.refused_elsewhere("vqf.hmac.tag", kind(448, "enc"), passphrase=b"wrong", **how)

    def test_no_passphrase(self) -> None:
        for none in (None, b""):
            for how in (
                {"fields": {"eos_id": 1}},
                {"new_passphrase": None},
                {"new_passphrase": b"x"},
                {"signer": SIGNER},
            ):
                self.refused("vqf.enc.key", kind(448, "enc"), IntegrityError, passphrase=none, **how)

    def test_a_damaged_plain_file(self) -> None:
        for offset in (448, 4096, FILE_LEN - 1, FILE_LEN):
            data = flip(kind(448, "plain"), 8 * offset)
            for how in ({"fields": {"max_seq_len": 1}}, {"signer": SIGNER}):
                self.refused("vqf.checksum.tag", data, IntegrityError, **how)
            self.refused_elsewhere("vqf.checksum.tag", data, new_passphrase=b"x")

    def test_a_damaged_encrypted_file(self) -> None:
        for offset in (WORD["bos_id"], 448, 4096, FILE_LEN):
            data = flip(kind(448, "enc"), 8 * offset)
            self.refused("vqf.hmac.tag", data, IntegrityError, passphrase=PASSPHRASE, fields={"max_seq_len": 1})
        zero = patch(kind(448, "enc"), FILE_LEN, "32s", bytes(32))  # 0 means none in plain files alone
        self.refused("vqf.hmac.tag", zero, IntegrityError, passphrase=PASSPHRASE, fields={"max_seq_len": 1})

    def test_files_that_do_not_open(self) -> None:
        plain = kind(448, "plain")
        for code, data, error in (
            ("vqf.header.magic", b"GGUF" + plain[4:], FormatError),
            ("vqf.header.version", patch(plain, 4, "I", 1), UnsupportedError),
            ("vqf.size.truncated", plain[:-1], FormatError),
            ("vqf.size.bounds", plain + b"\0", FormatError),
            ("vqf.arch.header", patch(plain, WORD["dim"], "I", 0), FormatError),
            ("vqf.magic.truncated", b"", FormatError),
        ):
            self.refused(code, data, error, fields={"max_seq_len": 1})

    def test_a_directory_that_points_outside_is_not_sealed(self) -> None:
        rows = [*text_rows(arch()), row("extra", 1, 16, 1)]
        data = build(arch(), rows, 0x23, places={14: 64}, file_len=FILE_LEN)
        self.refused("vqf.directory.bounds", data, FormatError, signer=SIGNER)

    def test_the_error_names_the_tag(self) -> None:
        path = self.file(flip(kind(448, "plain"), 8 * at(0)))
        with self.assertRaises(IntegrityError) as caught:
            reseal(path, None, signer=SIGNER)
        error = caught.exception
        self.assertEqual((error.offset, error.field, error.path), (FILE_LEN, "tag", path))

    def test_an_error_while_writing_leaves_the_old_file(self) -> None:
        path = self.file(kind(448, "plain"))
        old = self.file(b"old", "old.vqf")
        for out in (self.out, old, path):
            full = OSError(28, "No space left on device")
            with mock.patch.object(sink.os, "fsync", side_effect=full), self.assertRaises(OSError):
                reseal(path, out, new_passphrase=b"x")
            self.assertEqual((self.read(path), self.read(old)), (kind(448, "plain"), b"old"))
            self.assertEqual(sorted(os.listdir(self.folder)), ["in.vqf", "old.vqf"])

    def refused_elsewhere(self, code: str, data: bytes, **how: Any) -> None:
        """As `refused`, for what can't go in place anyway."""
        path = self.file(data)
        old = self.file(b"old", "old.vqf")
        for out in (self.out, old, path):
            with self.assertRaises(IntegrityError) as caught:
                reseal(path, out, **how)
            self.assertEqual(caught.exception.code, code)
            self.assertEqual((self.read(path), self.read(old)), (data, b"old"))
            self.assertEqual(sorted(os.listdir(self.folder)), ["in.vqf", "old.vqf"])


if __name__ == "__main__":
    unittest.main()

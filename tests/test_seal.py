"""What `verify` says of a file: the real sealed ones, each branch of gates 8 to 11 in their order, and which bytes a tag
covers. Also reads that decrypt.

Every right signature, tag and ciphertext here was made with OpenSSL 3.0: those of the real files, and the few that stand
as hex. What is not made so is a right file with something changed, and what must be said of it is what the format's
description says (sections 4 and 5).
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import tempfile
import unittest
from collections import namedtuple
from unittest import mock

import vqfref
from tests.samples import ARCH_WORDS, FILES, HEADER, SIG, WORD, at, flip, model, patch, place_of, real, reseal
from tests.tools import thorough
from vqfref import kernels
from vqfref.errors import FormatError, IntegrityError, SignatureError, UnsupportedError, UsageError
from vqfref.source import Source
from vqfref.vqf import seal
from vqfref.vqf.reader import VqfFile

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterator

FACTS = {fact["file"]: fact for fact in json.loads((FILES / "sealed.json").read_text())}
FORMS = (448, 432)
KINDS = ("plain", "enc", "signed", "enc-signed")
PASSPHRASE = b"correct horse battery staple"
PUBLIC = bytes.fromhex(
    "09f9df311e5421a150dd7d161e4bc5c672179fad1833fc076bb08ff356f35020"
    "ccea490ce26775a52dc6ea718cc1aa600aed05fbf35e084a6632f6072da9ad13"
)
# Another pair of keys, private 128b2fa8 bd433c6c 068c8d80 3dff7979 2a519a55 171b1b65 0c23661d 15897263.
OTHER_PUBLIC = bytes.fromhex(
    "d5548c7825cbb56150a3506cd57464af8a1ae0519dfaf3c58221dc810caf28dd"
    "921073768fe3d59ce54e79a49445cf73fed23086537027264d168946d479533e"
)
USER_ID = {448: b"vllm-kestrel-vqf", 432: b"vllm-shs-vqf"}
N = 0xFFFFFFFEFFFFFFFFFFFFFFFFFFFFFFFF7203DF6B21C6052B53BBF40939D54123  # the order of the curve's group
FILE_LEN = 11392  # of all real files; their data starts at 4096, and they have 14 tensors

# D of the real signed plain file of each form, signed with OpenSSL: by the key of the real files under other user ids,
# and by the other key. (pkeyutl -sign -rawin -digest sm3 -pkeyopt hexdistid:ID)
SIGNATURES = {
    (448, b"vllm-shs-vqf"): "558f09218dd017237423cb78bbf228fba0c47a9f5572d10eb23fca3a069dba98"
    "8e3fc6ad3c86b711defb02e56ed1949ab9f89ec0c7f5748b628b1e9fd7dc4755",
    (432, b"vllm-kestrel-vqf"): "86a0658d1bf353e623763498e2b2ac039e25e66e541a062f5c230d6e0a6f5dc5"
    "cb3bcbecba23ff17dbe5659371c3bb562c4b62eac91bfe00d2d7f3783155b44d",
    (448, b"\xc3\xa9"): "2085eef93833e908c83c27aaeae01bb64463bf94e6cab5e5d0c08d8ae49a83dd"
    "578109b53867a5e4f96b37d829a97f531af4868c979891bfa9a4075c06b218f2",
    (448, b"i" * 32): "fd98cc5dd891c97f1ec875057d96cb1efcd9d89f2e765859dcd615f2cc979624"
    "a1e904d5e77b5fa3fd81af5c34b27b3ffb5be7f7582ccaf432f0b5932f7d3802",
    (448, b"x"): "0e3d1d275be0d34cfb7644d3bf76e42d7676e2ec1fcf1468fc71fa4c208454f1"
    "de9ec5ac30a321b0a0c1ee0af6778dd226b8733a96a7406ac6c9d58f505aebe2",
}  # fmt: skip
OTHER_SIGNATURE = bytes.fromhex(
    "b7ddb53171b06b0d4b134e16028692f0fa462ea5cc545653899882d183f25689"
    "ad99ba677da34f0f2af31288af387c63fac970a90f57ee51871e2db873f6727f"
)
# HMAC-SM3 of the real encrypted files' ciphertext alone, as the engine's signing tool makes it; the same in both forms.
TOOL_TAG = bytes.fromhex("9dcb168d9053854a385ece7055b6ca5b7af2099afd2b94b3d66de12d6200bf92")


def sm3(data: bytes) -> bytes:
    """SM3 by OpenSSL through hashlib; skips the test where this Python has none."""
    try:
        return hashlib.new("sm3", data).digest()
    except ValueError:
        raise unittest.SkipTest("this Python's hashlib has no SM3") from None


def hmac_tag(data: bytes, form: int, passphrase: bytes = PASSPHRASE) -> bytes:
    """The tag that belongs behind an encrypted file, by hashlib and hmac; `data` may have a wrong one or none."""
    at_len, at_sig = HEADER[form]["file_len"], HEADER[form]["sig"]
    message = data[:at_len] + bytes(8) + data[at_len + 8 : at_sig] + bytes(200) + data[448 : 448 + 64 * 14]
    key = sm3(passphrase)[16:]
    return hmac.new(key, message + data[4096:FILE_LEN], lambda: hashlib.new("sm3")).digest()


def sig_at(form: int, field: str) -> int:
    """Where a field of the signature block lies."""
    return HEADER[form]["sig"] + SIG[field]


def signed(form: int, **fields: Any) -> bytes:
    """The real signed plain file with other bytes in its signature block; no checksum covers that."""
    return sealed(form, "signed", **fields)


def sealed(form: int, kind: str, **fields: Any) -> bytes:
    data = real("h%d-%s" % (form, kind))
    for field, value in fields.items():
        data = patch(data, sig_at(form, field), "I" if isinstance(value, int) else "%ds" % len(value), value)
    return data


def signed_as(user_id: bytes) -> bytes:
    """The real signed plain file of 448 with the signature under another user id."""
    signature = bytes.fromhex(SIGNATURES[448, user_id])
    return signed(448, r=signature[:32], s=signature[32:], id=user_id.ljust(32, b"\0"), id_len=len(user_id))


def damaged(data: bytes, offset: int = 5000) -> bytes:
    return flip(data, 8 * offset)


def verify(data: bytes, passphrase: bytes | None = None, **how: Any) -> seal.Verification:
    return VqfFile(Source(data), passphrase=passphrase).verify(**how)


def codes(result: seal.Verification) -> list[str]:
    return [f.code for f in result.findings]


def results(result: seal.Verification) -> list[tuple[str, str]]:
    return [(step.name, step.result) for step in result.steps]


class RealFiles(unittest.TestCase):
    """Files made with OpenSSL."""

    def facts(self, *kinds: str) -> Iterator[tuple[bytes, bytes | None, bytes | None]]:
        """(bytes, passphrase, public key) of the files of some kinds, both forms."""
        for form in FORMS:
            for kind in kinds or KINDS:
                fact = FACTS["mini-q4-h%d-%s.vqf" % (form, kind)]
                passphrase, public = fact["passphrase"], fact["public_key"]
                yield (
                    (FILES / fact["file"]).read_bytes(),
                    passphrase.encode() if passphrase else None,
                    bytes.fromhex(public) if public else None,
                )

    def test_all_eight_verify_with_their_passphrase_and_key(self) -> None:
        seen = 0
        for data, passphrase, public in self.facts():
            result = verify(data, passphrase, public_key=public)
            steps = [("hmac" if passphrase else "checksum", "ok")] + [("signature", "ok")] * bool(public)
            self.assertEqual((result.ok, codes(result), results(result)), (True, [], steps))
            self.assertEqual(result.authenticated, bool(passphrase or public))
            seen += 1
        self.assertEqual(seen, 8)

    def test_what_is_required_and_there_changes_nothing(self) -> None:
        for data, passphrase, public in self.facts():
            require = ["hmac"] * bool(passphrase) + ["signature"] * bool(public)
            self.assertTrue(verify(data, passphrase, public_key=public, require=require).ok)

    def test_a_wrong_passphrase_fails_at_the_hmac(self) -> None:
        for data, _, public in self.facts("enc", "enc-signed"):
            for wrong in (b"correct horse battery stapl", PASSPHRASE + b"\n", b"\0", b"x" * 1000):
                result = verify(data, wrong, public_key=public)
                self.assertEqual((result.ok, codes(result)), (False, ["vqf.hmac.tag"]))
                self.assertFalse(result.authenticated)

    def test_a_wrong_key_fails_at_the_signature(self) -> None:
        for data, passphrase, _ in self.facts("signed", "enc-signed"):
            result = verify(data, passphrase, public_key=OTHER_PUBLIC)
            self.assertEqual((result.ok, codes(result)), (False, ["vqf.sm2.signature"]))
            self.assertFalse(result.authenticated)

    def test_without_its_passphrase_an_encrypted_file_fails(self) -> None:
        for data, _, public in self.facts("enc", "enc-signed"):
            for none in (None, b""):
                result = verify(data, none, public_key=public)
                self.assertEqual((result.ok, codes(result)), (False, ["vqf.enc.key"]))
                self.assertFalse(result.authenticated)

    def test_without_a_key_a_signature_is_not_checked_and_that_is_no_failure(self) -> None:
        for data, passphrase, _ in self.facts("signed", "enc-signed"):
            result = verify(data, passphrase)
            self.assertEqual((result.ok, codes(result)), (True, []))
            self.assertEqual(results(result)[1:], [("signature", "not checked")])
            self.assertEqual(result.authenticated, passphrase is not None)  # the HMAC's key vouches alone

    def test_a_key_for_an_unsigned_file_vouches_for_nothing(self) -> None:
        for data, _, _ in self.facts("plain"):
            result = verify(data, public_key=PUBLIC)
            self.assertEqual((result.ok, result.authenticated), (True, False))

    @thorough
    def test_pieces_of_any_size_give_the_same(self) -> None:
        for data, passphrase, public in self.facts():
            for size in (16, 48, 4096):
                with mock.patch.object(seal, "PIECE", size):
                    self.assertTrue(verify(data, passphrase, public_key=public).ok)
                    self.assertFalse(verify(damaged(data, FILE_LEN - 1), passphrase, public_key=public).ok)

    def test_progress_ends_at_the_length_of_the_data(self) -> None:
        for data, passphrase, _ in self.facts():
            progress = mock.Mock()
            with mock.patch.object(seal, "PIECE", 4096):
                verify(data, passphrase, progress=progress)
            self.assertEqual(progress.call_args_list, [mock.call(4096, 7296), mock.call(7296, 7296)])

    def test_a_passphrase_as_text_is_utf8(self) -> None:
        path = str(FILES / "mini-q4-h448-enc.vqf")
        for right, text in ((True, PASSPHRASE.decode()), (False, "ä")):
            with vqfref.open(path, passphrase=text) as f:
                self.assertEqual(f.verify().ok, right)

    def test_a_plain_tag_is_called_a_checksum_and_never_verified(self) -> None:
        result = verify(real("h448-plain"))
        self.assertIn("not authenticated", result.steps[0].detail)
        self.assertNotIn("verified", " ".join(map(str, result.steps)))

    def test_an_unsigned_encrypted_file_is_verified_without_decrypting_it(self) -> None:
        with mock.patch.object(kernels, "sm4_ctr", side_effect=AssertionError("decrypted for nothing")):
            self.assertTrue(verify(real("h448-enc"), PASSPHRASE).ok)


class Authenticated(unittest.TestCase):
    """`authenticated` of an open file."""

    def test_it_is_false_until_verify_has_passed_with_a_key(self) -> None:
        for kind, passphrase, public in (
            ("enc", PASSPHRASE, None), ("signed", None, PUBLIC), ("enc-signed", PASSPHRASE, PUBLIC),
        ):  # fmt: skip
            f = VqfFile(Source(real("h448-" + kind)), passphrase=passphrase)
            self.assertFalse(f.authenticated)
            f.get_tensor("final_norm")
            self.assertFalse(f.authenticated)
            f.verify(public_key=public)
            self.assertTrue(f.authenticated)

    def test_a_checksum_does_not_make_it_true(self) -> None:
        f = VqfFile(Source(real("h448-plain")), passphrase=PASSPHRASE)
        self.assertTrue(f.verify(public_key=PUBLIC).ok)
        self.assertFalse(f.authenticated)

    def test_an_hmac_alone_does_not_make_it_true_where_the_signature_fails(self) -> None:
        f = VqfFile(Source(real("h448-enc-signed")), passphrase=PASSPHRASE)
        self.assertFalse(f.verify(public_key=OTHER_PUBLIC).ok)
        self.assertFalse(f.authenticated)

    def test_a_later_verification_that_fails_takes_it_back(self) -> None:
        f = VqfFile(Source(real("h448-signed")))
        f.verify(public_key=PUBLIC)
        self.assertTrue(f.authenticated)
        f.verify(public_key=OTHER_PUBLIC)
        self.assertFalse(f.authenticated)

    def test_a_later_verification_that_can_not_end_takes_it_back(self) -> None:
        with tempfile.TemporaryDirectory(prefix="vqfref-") as folder:
            path = os.path.join(folder, "file")
            with open(path, "wb") as file:
                file.write(real("h448-signed"))
            with vqfref.open(path, backend="pread") as f:
                f.verify(public_key=PUBLIC)
                with mock.patch.object(Source, "pieces", side_effect=OSError(5, "Input/output error")):
                    self.assertRaises(OSError, f.verify, public_key=PUBLIC)
                self.assertFalse(f.authenticated)
                f.verify(public_key=PUBLIC)
                self.assertTrue(f.authenticated)
                os.truncate(path, 6000)
                result = f.verify(public_key=PUBLIC)
                self.assertEqual((result.ok, result.authenticated), (False, False))
                self.assertEqual(codes(result), ["file.cut.truncated"])
                self.assertFalse(f.authenticated)


class Damage(unittest.TestCase):
    """What a broken seal is told with, so that it can be mended."""

    def notes(self, data: bytes, passphrase: bytes | None = None) -> list[tuple[str, int | None, str]]:
        found = [f for f in verify(data, passphrase).findings if f.code == "vqf.erased.missing"]
        self.assertEqual({f.severity for f in found} - {"note"}, set())
        return [(f.message.rpartition(" nothing but ")[2].partition(":")[0], f.offset, f.message) for f in found]

    def test_pages_of_ff_or_zeros_are_named_where_the_seal_is_broken(self) -> None:
        whole = model("layers")
        for byte, kind in ((0, "zeros"), (255, "ff")):
            for at_page, n in ((4096, 1), (8192, 3), (4096, 12)):
                data = patch(whole, at_page, "%ds" % (4096 * n), bytes([byte]) * 4096 * n)
                ((found, offset, message),) = self.notes(data)
                self.assertEqual((found, offset), (kind, at_page))
                self.assertIn("the page of 4096 bytes here is" if n == 1 else "%d pages of 4096 bytes" % n, message)
            for start, stop in ((4097, 8192 + 4095), (4096, 8191), (12288 + 1, 16384)):  # no whole page that is aligned
                self.assertEqual(
                    self.notes(patch(whole, start, "%ds" % (stop - start), bytes([byte]) * (stop - start))), []
                )

    def test_they_are_found_whatever_the_pieces_of_the_pass(self) -> None:
        data = patch(model("layers"), 8192, "8192s", bytes(8192))
        for piece in (4096, 12288):
            with mock.patch.object(seal, "PIECE", piece):
                self.assertEqual([n[:2] for n in self.notes(data)], [("zeros", 8192)])

    def test_pages_of_zeros_under_a_right_seal_are_meant(self) -> None:
        self.assertEqual(verify(reseal(patch(model("layers"), 8192, "8192s", bytes(8192)))).findings, [])

    def test_ciphertext_is_searched_too(self) -> None:
        data = patch(real("h448-enc"), 4096, "4096s", b"\xff" * 4096)
        self.assertEqual([n[:2] for n in self.notes(data, PASSPHRASE)], [("ff", 4096)])

    def test_a_transfer_that_made_each_0d_a_0a_is_named(self) -> None:
        data = model("q8")
        text = data[:4096] + data[4096:].replace(b"\r", b"\n")
        self.assertGreater(data.count(b"\r"), 100)
        self.assertIn("bytes 0a and no 0d at all: it was transferred in text mode", verify(text).findings[0].message)
        self.assertNotIn("text mode", verify(damaged(data)).findings[0].message)


class CallersFaults(unittest.TestCase):
    def test_an_unknown_requirement_is_a_usage_error(self) -> None:
        for require in (["hmac", "fnv"], ["Signature"], [""], "hmac"):
            with self.assertRaises(UsageError) as caught:
                verify(real("h448-plain"), require=require)
            self.assertEqual(caught.exception.code, "usage.require.unsupported")

    def test_a_public_key_that_is_none_is_refused(self) -> None:
        for key, code in (
            (b"", "sm2.public.key"), (PUBLIC[:63], "sm2.public.key"), (b"\2" + PUBLIC, "sm2.public.key"),
            (b"\xff" * 64, "sm2.public.range"), (bytes(64), "sm2.public.point"),
            (PUBLIC[:63] + b"\x12", "sm2.public.point"),
        ):  # fmt: skip
            with self.assertRaises(SignatureError) as caught:
                verify(real("h448-signed"), public_key=key)
            self.assertEqual(caught.exception.code, code)

    def test_a_public_key_may_have_the_prefix_04(self) -> None:
        self.assertTrue(verify(real("h448-signed"), public_key=b"\4" + PUBLIC, require=["signature"]).authenticated)


# ---- gates 8 to 11

Case = namedtuple("Case", "name data how findings steps")
Case.__doc__ = """data: the file; how: arguments of `verify`; findings: (severity, code, field), by offset; steps: (name,
result). The file passes where no finding is an error."""

HMAC = ("hmac",)
SIGNATURE = ("signature",)
ENC_KEY = ("error", "vqf.enc.key", "flags")
HMAC_TAG = ("error", "vqf.hmac.tag", "tag")
HMAC_MISSING = ("error", "vqf.hmac.missing", "flags")
SIGNATURE_MISSING = ("error", "vqf.signature.missing", "flags")
PUBKEY_MISSING = ("error", "vqf.pubkey.missing", "flags")
CHECKSUM_TAG = ("error", "vqf.checksum.tag", "tag")
DIGEST = ("error", "vqf.digest.signature", "sig.digest")
USERID = ("error", "vqf.userid.signature", "sig.id")
SM2 = ("error", "vqf.sm2.signature", "sig.r")
PUB = ("error", "vqf.pub.signature", "sig.pub")
SURPLUS = ("note", "vqf.passphrase.policy", "flags")
NO_CHECKSUM = ("note", "vqf.checksum.missing", "tag")

OPEN, SHUT, FAILED = "ok", "not checked", "failed"


def key(**how: Any) -> dict[str, Any]:
    return {"public_key": PUBLIC, **how}


def secret(**how: Any) -> dict[str, Any]:
    return {"passphrase": PASSPHRASE, **how}


def gate_8(form: int) -> list[Case]:
    plain, enc, both = (real("h%d-%s" % (form, kind)) for kind in ("plain", "enc", "enc-signed"))
    hmac_shut, both_shut = [("hmac", SHUT)], [("hmac", SHUT), ("signature", SHUT)]
    return [
        Case("no passphrase", enc, {}, [ENC_KEY], hmac_shut),
        Case("an empty passphrase is none", enc, {"passphrase": b""}, [ENC_KEY], hmac_shut),
        Case("no passphrase where an HMAC is required", enc, {"require": HMAC}, [ENC_KEY], hmac_shut),
        Case("no passphrase, signed", both, key(), [ENC_KEY], both_shut),
        Case("no passphrase, signed, where both are required", both, key(require=HMAC + SIGNATURE),
             [ENC_KEY, SIGNATURE_MISSING], both_shut),
        Case("no passphrase, unsigned, where a signature is required", enc, key(require=SIGNATURE),
             [ENC_KEY, SIGNATURE_MISSING], both_shut),
        Case("a passphrase for a plain file", plain, secret(), [SURPLUS], [("checksum", OPEN)]),
        Case("an empty passphrase for a plain file", plain, {"passphrase": b""}, [], [("checksum", OPEN)]),
        Case("a passphrase for a damaged plain file", damaged(plain), secret(), [SURPLUS, CHECKSUM_TAG],
             [("checksum", FAILED)]),
    ]  # fmt: skip


def gate_9(form: int) -> list[Case]:
    enc, both = real("h%d-enc" % form), real("h%d-enc-signed" % form)
    failed, shut = [("hmac", FAILED)], [("hmac", FAILED), ("signature", SHUT)]
    return [
        *(
            Case("a changed byte at %d" % offset, damaged(enc, offset), secret(), [HMAC_TAG], failed)
            for offset in (WORD["max_seq_len"], at(3, "name"), 4096, FILE_LEN - 1, FILE_LEN, FILE_LEN + 31)
        ),
        Case("a tag of zeros is no tag", patch(enc, FILE_LEN, "32s", bytes(32)), secret(), [HMAC_TAG], failed),
        Case("another passphrase", enc, {"passphrase": b"x"}, [HMAC_TAG], failed),
        Case("damaged and signed", damaged(both), secret(public_key=PUBLIC), [HMAC_TAG], shut),
        Case("damaged and signed, where a signature is required", damaged(both),
             secret(public_key=PUBLIC, require=SIGNATURE), [SIGNATURE_MISSING, HMAC_TAG], shut),
        Case("damaged, where a signature is required that is not there", damaged(enc),
             secret(public_key=PUBLIC, require=SIGNATURE), [SIGNATURE_MISSING, HMAC_TAG], shut),
        Case("the SIGNED flag taken off", patch(both, 8, "I", 0xA3), secret(), [HMAC_TAG], failed),
    ]  # fmt: skip


def gate_10(form: int) -> list[Case]:
    plain, marked = real("h%d-plain" % form), real("h%d-signed" % form)
    none = patch(plain, FILE_LEN, "Q", 0)
    return [
        *(
            Case("a changed byte at %d" % offset, damaged(plain, offset), {}, [CHECKSUM_TAG], [("checksum", FAILED)])
            for offset in (at(3, "name"), 4096, FILE_LEN - 1, FILE_LEN, FILE_LEN + 7)
        ),
        Case("a stored 0 means none", none, {}, [NO_CHECKSUM], [("checksum", SHUT)]),
        Case("a stored 0 and damaged data", damaged(none), {}, [NO_CHECKSUM], [("checksum", SHUT)]),
        Case("an HMAC is required", plain, {"require": HMAC}, [HMAC_MISSING], [("hmac", SHUT), ("checksum", OPEN)]),
        Case("an HMAC is required, and a passphrase given", plain, secret(require=HMAC),
             [HMAC_MISSING, SURPLUS], [("hmac", SHUT), ("checksum", OPEN)]),
        Case("an HMAC is required, signed", marked, key(require=HMAC),
             [HMAC_MISSING], [("hmac", SHUT), ("checksum", OPEN), ("signature", OPEN)]),
        Case("damaged and signed: D covers the same bytes", damaged(marked), key(), [DIGEST, CHECKSUM_TAG],
             [("checksum", FAILED), ("signature", FAILED)]),
    ]  # fmt: skip


def gate_11(form: int, kind: str) -> list[Case]:
    """The branches in their order, on the plain signed file or the encrypted one; the tag is right in all of them."""
    base = real("h%d-%s" % (form, kind))
    plain = kind == "signed"
    how: dict[str, Any] = {} if plain else secret()
    tag = ("checksum", OPEN) if plain else ("hmac", OPEN)

    def case(name: str, data: bytes, more: dict[str, Any], finding: tuple[str, str, str] | None, result: str) -> Case:
        findings = [finding] if finding else []
        return Case("%s, %s" % (name, kind), data, {**how, **more}, findings, [tag, ("signature", result)])

    block = sealed(form, kind)[HEADER[form]["sig"] :][:200]
    r, s, d = block[64:96], block[96:128], block[128:160]
    bad_id = {"id": b"vllm-other-vqf".ljust(32, b"\0"), "id_len": 14}
    unsigned = real("h%d-%s" % (form, "plain" if plain else "enc"))
    return [
        case("a signature is required and not there", unsigned, key(require=SIGNATURE), SIGNATURE_MISSING, SHUT),
        case("no block, though the flag is set", sealed(form, kind, pub=bytes(200)), key(), DIGEST, FAILED),
        case("another D in the block", sealed(form, kind, digest=flip(d, 0)), key(), DIGEST, FAILED),
        case("another D, and no key", sealed(form, kind, digest=flip(d, 255)), {}, DIGEST, FAILED),
        case("D before the id", sealed(form, kind, digest=flip(d, 255), **bad_id), {}, DIGEST, FAILED),
        *(
            case("id_len %d" % n, sealed(form, kind, id_len=n), key(), USERID, FAILED)
            for n in (0, 1, len(USER_ID[form]) - 1, len(USER_ID[form]) + 1, 32, 33, 64, 0xFFFFFFFF)
        ),
        case("an id that nobody expects", sealed(form, kind, **bad_id), key(), USERID, FAILED),
        case("an id that nobody expects, and no key", sealed(form, kind, **bad_id), {}, USERID, FAILED),
        case("the id before the key", sealed(form, kind, **bad_id), {"require": SIGNATURE}, USERID, FAILED),
        case("an id that the caller does not expect", base, key(user_ids=[b"vllm", b"other"]), USERID, FAILED),
        case("a caller who expects no id", base, key(user_ids=[]), USERID, FAILED),
        case("the one id that the caller expects", base, key(user_ids=[USER_ID[form]]), None, OPEN),
        case("no key", base, {}, None, SHUT),
        case("no key, and a bad signature", sealed(form, kind, r=bytes(32)), {}, None, SHUT),
        case("no key, and a signature is required", base, {"require": SIGNATURE}, PUBKEY_MISSING, SHUT),
        case("an id that is another's", sealed(form, kind, id=USER_ID[880 - form].ljust(32, b"\0"),
             id_len=len(USER_ID[880 - form])), key(), SM2, FAILED),
        *(
            case("r of %x…" % (value >> 224), sealed(form, kind, r=value.to_bytes(32, "big")), key(), SM2, FAILED)
            for value in (int.from_bytes(r, "big") ^ 1, *((0, N - int.from_bytes(s, "big"), N, 2**256 - 1) if plain else ()))
        ),
        *(
            case("s of %x…" % (value >> 224), sealed(form, kind, s=value.to_bytes(32, "big")), key(), SM2, FAILED)
            for value in (int.from_bytes(s, "big") ^ 1 << 255, *((0, N, 2**256 - 1) if plain else ()))
        ),
        case("SM2 before pub", sealed(form, kind, s=bytes(32), pub=OTHER_PUBLIC), key(), SM2, FAILED),
        case("another key that the block names too", sealed(form, kind, pub=OTHER_PUBLIC), key(public_key=OTHER_PUBLIC),
             SM2, FAILED),
        case("another pub in the block", sealed(form, kind, pub=OTHER_PUBLIC), key(), PUB, FAILED),
        case("no pub in the block", sealed(form, kind, pub=bytes(64)), key(), PUB, FAILED),
        case("another pub, and no key", sealed(form, kind, pub=OTHER_PUBLIC), {}, None, SHUT),
        case("a right signature", base, key(require=SIGNATURE), None, OPEN),
    ]  # fmt: skip


class Gates(unittest.TestCase):
    """Every branch of gates 8 to 11, in their order."""

    def hold(self, cases: list[Case], form: int) -> None:
        for case in cases:
            with self.subTest(case.name, form=form):
                passphrase = case.how.get("passphrase")
                how = {name: value for name, value in case.how.items() if name != "passphrase"}
                result = verify(case.data, passphrase, **how)
                self.assertEqual([(f.severity, f.code, f.field) for f in result.findings], case.findings)
                self.assertEqual(results(result), case.steps)
                self.assertEqual(result.ok, not any(f.severity == "error" for f in result.findings))
                keyed = ("hmac", "ok") in case.steps or ("signature", "ok") in case.steps
                self.assertEqual(result.authenticated, result.ok and keyed)
                for finding in result.findings:
                    self.assertEqual(finding.offset, self.offset(form, finding.field))

    def offset(self, form: int, field: str) -> int:
        if field.startswith("sig."):
            return sig_at(form, field[4:])
        return {"flags": 8, "tag": FILE_LEN}[field]

    def test_gate_8_the_key(self) -> None:
        for form in FORMS:
            self.hold(gate_8(form), form)

    def test_gate_9_the_hmac(self) -> None:
        for form in FORMS:
            self.hold(gate_9(form), form)

    def test_gate_10_the_checksum(self) -> None:
        for form in FORMS:
            self.hold(gate_10(form), form)

    def test_gate_11_the_signature_of_a_plain_file(self) -> None:
        for form in FORMS:
            self.hold(gate_11(form, "signed"), form)

    def test_gate_11_the_signature_of_an_encrypted_file(self) -> None:
        for form in FORMS:
            self.hold(gate_11(form, "enc-signed"), form)

    def test_both_ids_are_expected_in_both_forms(self) -> None:
        for form, user_id in ((448, b"vllm-shs-vqf"), (432, b"vllm-kestrel-vqf")):
            rs = bytes.fromhex(SIGNATURES[form, user_id])
            data = signed(form, r=rs[:32], s=rs[32:], id=user_id.ljust(32, b"\0"), id_len=len(user_id))
            self.assertTrue(verify(data, public_key=PUBLIC).authenticated)
            self.assertEqual(codes(verify(data, public_key=PUBLIC, user_ids=[USER_ID[form]])), ["vqf.userid.signature"])

    def test_other_ids_pass_where_the_caller_expects_them(self) -> None:
        for user_id in (b"x", b"i" * 32, b"\xc3\xa9"):
            with self.subTest(user_id):
                data = signed_as(user_id)
                self.assertTrue(verify(data, public_key=PUBLIC, user_ids=[b"a", user_id]).authenticated)
                self.assertEqual(codes(verify(data, public_key=PUBLIC)), ["vqf.userid.signature"])

    def test_a_wrong_signature_under_an_id_beyond_ascii_is_a_finding_too(self) -> None:
        data = signed_as(b"\xc3\xa9")
        result = verify(data, public_key=OTHER_PUBLIC, user_ids=[b"\xc3\xa9"])
        self.assertEqual(codes(result), ["vqf.sm2.signature"])

    def test_a_key_that_is_right_for_the_signature_but_not_for_the_block_is_told_apart(self) -> None:
        data = signed(448, r=OTHER_SIGNATURE[:32], s=OTHER_SIGNATURE[32:])  # the block still names the first key
        self.assertEqual(codes(verify(data, public_key=OTHER_PUBLIC)), ["vqf.pub.signature"])
        self.assertEqual(codes(verify(data, public_key=PUBLIC)), ["vqf.sm2.signature"])
        data = sealed_by_other()
        self.assertTrue(verify(data, public_key=OTHER_PUBLIC).authenticated)

    def test_the_first_gate_that_fails_is_the_one_that_is_told(self) -> None:
        # all at once, then mended one after the other
        rs = OTHER_SIGNATURE
        data = sealed(448, "enc-signed", pub=OTHER_PUBLIC, r=rs[:32], s=rs[32:], digest=bytes(32), id=b"y" * 32)
        data = damaged(data)
        right = real("h448-enc-signed")
        self.assertEqual(codes(verify(data)), ["vqf.enc.key"])
        self.assertEqual(codes(verify(data, PASSPHRASE)), ["vqf.hmac.tag"])
        data = damaged(data)
        self.assertEqual(codes(verify(data, PASSPHRASE)), ["vqf.digest.signature"])
        block = right[248:448]
        data = patch(data, sig_at(448, "digest"), "32s", block[128:160])
        self.assertEqual(codes(verify(data, PASSPHRASE)), ["vqf.userid.signature"])
        data = patch(data, sig_at(448, "id"), "32s", block[160:192])
        self.assertEqual(codes(verify(data, PASSPHRASE, require=SIGNATURE)), ["vqf.pubkey.missing"])
        self.assertEqual(codes(verify(data, PASSPHRASE, public_key=PUBLIC)), ["vqf.sm2.signature"])
        data = patch(data, sig_at(448, "r"), "64s", block[64:128])
        self.assertEqual(codes(verify(data, PASSPHRASE, public_key=PUBLIC)), ["vqf.pub.signature"])
        data = patch(data, sig_at(448, "pub"), "64s", block[:64])
        self.assertEqual(data, right)

    def test_the_engine_refuses_a_bad_seal_of_an_encrypted_file_by_itself(self) -> None:
        for data, how in (
            (damaged(real("h448-enc")), {}), (sealed(448, "enc-signed", s=bytes(32)), {"public_key": PUBLIC}),
        ):  # fmt: skip
            self.assertEqual([f.engine for f in verify(data, PASSPHRASE, **how).findings], ["refuses"])
        self.assertEqual([f.engine for f in verify(real("h448-enc")).findings], ["refuses"])

    def test_the_engine_looks_at_the_seal_of_a_plain_file_only_when_asked(self) -> None:
        result = verify(damaged(real("h448-signed")), public_key=PUBLIC)
        self.assertEqual([f.engine for f in result.findings], ["unknown", "unknown"])


def sealed_by_other() -> bytes:
    """The real signed plain file of 448, signed by the other key."""
    return signed(448, pub=OTHER_PUBLIC, r=OTHER_SIGNATURE[:32], s=OTHER_SIGNATURE[32:])


class Downgrade(unittest.TestCase):
    """A file stripped of what authenticates it, by somebody without any key."""

    def stripped(self, form: int) -> bytes:
        """An encrypted signed file rewritten as plain: flags, IV and block cleared, other data, a fresh checksum."""
        data = real("h%d-enc-signed" % form)
        data = patch(data, 8, "I", 0x23)
        data = patch(data, HEADER[form]["enc_iv"], "16s", bytes(16))
        data = patch(data, HEADER[form]["sig"], "200s", bytes(200))
        return reseal(data, form)

    def test_a_file_rewritten_as_plain_is_refused_where_an_hmac_is_required(self) -> None:
        for form in FORMS:
            result = verify(self.stripped(form), PASSPHRASE, require=["hmac"])
            self.assertEqual((result.ok, result.authenticated), (False, False))
            self.assertEqual(codes(result), ["vqf.hmac.missing", "vqf.passphrase.policy"])

    def test_a_file_rewritten_as_plain_is_refused_where_a_signature_is_required(self) -> None:
        for form in FORMS:
            result = verify(self.stripped(form), public_key=PUBLIC, require=["signature"])
            self.assertEqual((result.ok, codes(result)), (False, ["vqf.signature.missing"]))

    def test_without_a_requirement_it_passes_and_is_not_authenticated(self) -> None:
        for form in FORMS:
            result = verify(self.stripped(form), PASSPHRASE, public_key=PUBLIC)
            self.assertEqual((result.ok, result.authenticated), (True, False))
            self.assertEqual(codes(result), ["vqf.pubkey.policy", "vqf.passphrase.policy"])
            self.assertEqual([f.severity for f in result.findings], ["warning", "note"])

    def test_a_cleared_flag_strips_a_plain_file_of_its_signature(self) -> None:
        for form in FORMS:
            data = patch(real("h%d-signed" % form), 8, "I", 0x23)
            self.assertTrue(verify(data, public_key=PUBLIC).ok)
            self.assertFalse(verify(data, public_key=PUBLIC).authenticated)
            self.assertEqual(codes(verify(data, public_key=PUBLIC, require=["signature"])), ["vqf.signature.missing"])

    def test_a_stored_checksum_of_zero_does_not_hide_a_broken_signature(self) -> None:
        data = patch(damaged(real("h448-signed")), FILE_LEN, "Q", 0)
        self.assertEqual(codes(verify(data, public_key=PUBLIC)), ["vqf.digest.signature", "vqf.checksum.missing"])


# ---- which bytes each tag covers: the table of the README

NOTHING, TAG, GATE = "not noticed", "by the tag", "by a gate before it"


def header_rows(form: int) -> list[tuple[str, int, int, str, str, str]]:
    """(what, offset, bit to flip, FNV, HMAC, signature) for every field of a header. A bit is chosen so that the
    structure stays possible; where none can be, a gate notices."""
    h = HEADER[form]
    words = ARCH_WORDS if form == 448 else ARCH_WORDS[:41]
    user_id = USER_ID[form]
    return [
        ("magic", 0, 0, GATE, GATE, GATE),
        ("version", 4, 0, NOTHING, TAG, TAG),
        ("flags", 8, 0, NOTHING, TAG, TAG),
        ("n_tensors", 12, 1, TAG, TAG, TAG),  # 12 instead of 14: another directory
        *(("arch." + word, WORD[word], 1, NOTHING, TAG, TAG) for word in words),
        ("pad", h["pad"] + 3, 7, NOTHING, TAG, TAG),
        ("data_offset", h["data_offset"], 6, GATE, GATE, GATE),
        ("file_len", h["file_len"], 0, GATE, GATE, GATE),
        ("enc_iv", h["enc_iv"], 0, NOTHING, TAG, TAG),
        ("enc_iv, last byte", h["enc_iv"] + 15, 7, NOTHING, TAG, TAG),
        ("enc_rsvd", h["enc_rsvd"], 0, NOTHING, TAG, TAG),
        ("enc_rsvd, last byte", h["enc_rsvd"] + 15, 7, NOTHING, TAG, TAG),
        ("sig.pub", sig_at(form, "pub"), 0, NOTHING, NOTHING, TAG),
        ("sig.pub, last byte", sig_at(form, "pub") + 63, 0, NOTHING, NOTHING, TAG),
        ("sig.r", sig_at(form, "r") + 31, 0, NOTHING, NOTHING, TAG),
        ("sig.s", sig_at(form, "s") + 31, 0, NOTHING, NOTHING, TAG),
        ("sig.digest", sig_at(form, "digest"), 0, NOTHING, NOTHING, TAG),
        ("sig.id", sig_at(form, "id"), 0, NOTHING, NOTHING, TAG),
        ("sig.id, last character", sig_at(form, "id") + len(user_id) - 1, 0, NOTHING, NOTHING, TAG),
        ("sig.id, padding", sig_at(form, "id") + len(user_id), 0, NOTHING, NOTHING, NOTHING),
        ("sig.id_len", sig_at(form, "id_len"), 0, NOTHING, NOTHING, TAG),
        ("sig.reserved", sig_at(form, "reserved"), 0, NOTHING, NOTHING, NOTHING),
    ]


def other_rows(form: int) -> list[tuple[str, int, int, str, str, str]]:
    """The same for what follows the header. The signature says nothing of the checksum behind the data."""
    end = 448 + 14 * 64
    step = (FILE_LEN - 4096 - 1) / 63
    return [
        *(("header padding", offset, 0, NOTHING, NOTHING, NOTHING) for offset in range(form, 448)),
        *(
            ("entry 5, " + what, at(5, field) + byte, 0, TAG, TAG, TAG)
            for what, field, byte in (
                ("name", "name", 0), ("name padding", "name", 31), ("qtype", "qtype", 0), ("rows", "rows", 0),
                ("cols", "cols", 0), ("padding", "pad", 3), ("offset", "offset", 0), ("bytes", "bytes", 0),
            )
        ),
        ("first entry", at(0), 0, TAG, TAG, TAG),
        ("last entry", at(13) + 31, 0, TAG, TAG, TAG),
        *(("padding before the data", offset, 0, NOTHING, NOTHING, NOTHING) for offset in (end, 2000, 4095)),
        *(("data", 4096 + round(i * step), i % 8, TAG, TAG, TAG) for i in range(64)),
    ]  # fmt: skip


class Coverage(unittest.TestCase):
    """Section 4, "What no tag covers", and section 5, flip by flip."""

    def noticed(self, data: bytes, passphrase: bytes | None, public: bytes | None, tag_codes: tuple[str, ...]) -> str:
        try:
            result = verify(data, passphrase, public_key=public)
        except (FormatError, UnsupportedError):
            return GATE
        if result.ok:
            return NOTHING
        errors = [f.code for f in result.findings if f.severity == "error"]
        self.assertLessEqual(set(errors), set(tag_codes))
        return TAG

    def hold(self, kind: str, column: int, *args: Any) -> None:
        for form in FORMS:
            data = real("h%d-%s" % (form, kind))
            if kind == "signed":
                data = patch(data, FILE_LEN, "Q", 0)  # no checksum, so that the signature alone can notice
            self.assertEqual(self.noticed(data, *args), NOTHING)
            for row in header_rows(form) + other_rows(form):
                with self.subTest(row[0], form=form, offset=row[1]):
                    self.assertEqual(self.noticed(flip(data, 8 * row[1] + row[2]), *args), row[column])

    @thorough
    def test_the_checksum_covers_directory_and_data_alone(self) -> None:
        self.hold("plain", 3, None, None, ("vqf.checksum.tag",))

    def test_the_hmac_covers_the_header_too_but_not_the_signature_block(self) -> None:
        self.hold("enc", 4, PASSPHRASE, None, ("vqf.hmac.tag",))

    def test_the_signature_covers_the_header_and_what_is_used_of_its_block(self) -> None:
        codes = ("vqf.digest.signature", "vqf.userid.signature", "vqf.sm2.signature", "vqf.pub.signature")
        self.hold("signed", 5, None, PUBLIC, codes)

    def test_every_byte_of_a_tag_is_compared(self) -> None:
        for form in FORMS:
            for kind, passphrase, length in (("plain", None, 8), ("enc", PASSPHRASE, 32)):
                data = real("h%d-%s" % (form, kind))
                self.assertEqual(len(data), FILE_LEN + length)
                for i in range(length):
                    self.assertFalse(verify(flip(data, 8 * (FILE_LEN + i) + i % 8), passphrase).ok)

    def test_the_checksum_covers_padding_between_tensors(self) -> None:
        data = model("layers")
        offset = sum(place_of(data, "q_norm"))
        self.assertEqual(data[offset : offset + 32], bytes(32))
        self.assertTrue(verify(data).ok)
        self.assertEqual(codes(verify(damaged(data, offset))), ["vqf.checksum.tag"])

    def test_every_header_field_has_its_row(self) -> None:
        for form in FORMS:
            offsets = [row[1] for row in header_rows(form)]
            starts = [0, 4, 8, 12, *range(16, HEADER[form]["pad"], 4), *HEADER[form].values()]
            starts += [HEADER[form]["sig"] + at for at in SIG.values()]
            for start, end in zip(sorted(set(starts)), [*sorted(set(starts))[1:], form]):
                self.assertTrue(any(start <= offset < end for offset in offsets), (form, start))


# ---- reads that decrypt


class DecryptingReads(unittest.TestCase):
    """An encrypted file opened with its passphrase reads as the plain one does."""

    def pairs(self) -> Iterator[tuple[VqfFile, VqfFile, bytes]]:
        """(the plain file, an encrypted one, the latter's bytes)."""
        for form in FORMS:
            plain = VqfFile(Source(real("h%d-plain" % form)))
            for kind in ("enc", "enc-signed"):
                data = real("h%d-%s" % (form, kind))
                yield plain, VqfFile(Source(data), passphrase=PASSPHRASE), data

    def test_every_tensor_decodes_to_the_same(self) -> None:
        for plain, enc, _ in self.pairs():
            read = 0
            for name in plain.keys():  # noqa: SIM118 - a method of the file, not a dict's
                try:
                    expected = plain.get_tensor(name)
                except UnsupportedError:
                    continue
                self.assertEqual(enc.get_tensor(name).tobytes(), expected.tobytes(), name)
                read += 1
            self.assertGreaterEqual(read, 6)  # token_embed and the norms at least

    def test_rows_decode_to_the_same(self) -> None:
        for plain, enc, _ in self.pairs():
            for rows in (slice(0, 1), slice(5, 9), slice(31, 32), slice(7, 7)):
                expected = plain.get_tensor("token_embed", rows=rows)
                self.assertEqual(enc.get_tensor("token_embed", rows=rows), expected)
                self.assertEqual(len(expected), 32 * (rows.stop - rows.start))

    def test_bytes_from_any_offset_are_the_plain_ones(self) -> None:
        for _, enc, data in self.pairs():
            expected = real("h%d-plain" % enc.form)
            self.assertNotEqual(data[4096:FILE_LEN], expected[4096:FILE_LEN])
            for offset, length in (
                *((4096 + start, n) for start in (0, 1, 15, 16, 17, 31) for n in (0, 1, 15, 16, 17, 33)),
                (5003, 100), (FILE_LEN - 1, 1), (FILE_LEN - 33, 33), (FILE_LEN, 0),
            ):  # fmt: skip
                self.assertEqual(enc.plain(offset, length), expected[offset : offset + length], (offset, length))

    def test_only_the_blocks_that_are_needed_are_decrypted(self) -> None:
        for _, enc, _ in self.pairs():
            with mock.patch.object(kernels, "sm4_ctr", wraps=kernels.sm4_ctr) as ctr:
                enc.get_tensor("token_embed", rows=slice(5, 6))
            self.assertEqual(sum(len(call[0][2]) for call in ctr.call_args_list), 64)

    def test_raw_and_chunks_give_the_ciphertext(self) -> None:
        for _, enc, data in self.pairs():
            t = enc.info("q4_gate")
            stored = data[t.offset : t.offset + t.nbytes]
            self.assertEqual(enc.raw("q4_gate"), stored)
            self.assertEqual(b"".join(enc.chunks("q4_gate", 100)), stored)

    def test_without_a_passphrase_reading_is_an_error_and_looking_is_not(self) -> None:
        for passphrase in (None, b""):
            f = VqfFile(Source(real("h448-enc")), passphrase=passphrase)
            with self.assertRaises(IntegrityError) as caught:
                f.get_tensor("final_norm")
            self.assertEqual(caught.exception.code, "vqf.enc.key")
            self.assertEqual(f.info("final_norm").shape, (32,))
            self.assertEqual(len(f.raw("final_norm")), 128)

    def test_a_passphrase_does_not_change_what_a_plain_file_reads_as(self) -> None:
        data = real("h448-plain")
        f = VqfFile(Source(data), passphrase=PASSPHRASE)
        self.assertEqual(f.plain(5003, 100), data[5003:5103])


# ---- what the engine's signing tool leaves


class SigningTool(unittest.TestCase):
    """An encrypted file signed with the engine's tool: its HMAC covers the ciphertext alone and stands behind the old
    tag. Section 5."""

    def spoiled(self, form: int) -> bytes:
        data = real("h%d-enc" % form)
        block = real("h%d-enc-signed" % form)[HEADER[form]["sig"] :][:200]
        data = patch(data, 8, "I", 0x1A3)
        return patch(data, HEADER[form]["sig"], "200s", block) + TOOL_TAG

    def path(self, data: bytes) -> str:
        folder = tempfile.TemporaryDirectory(prefix="vqfref-")
        self.addCleanup(folder.cleanup)
        path = os.path.join(folder.name, "model.vqf")
        with open(path, "wb") as file:
            file.write(data)
        return path

    def test_the_stored_tag_is_that_of_the_ciphertext_alone(self) -> None:
        for form in FORMS:
            ciphertext = real("h%d-enc" % form)[4096:FILE_LEN]
            tag = hmac.new(sm3(PASSPHRASE)[16:], ciphertext, lambda: hashlib.new("sm3")).digest()
            self.assertEqual(tag, TOOL_TAG)

    def test_open_refuses_it_and_names_it(self) -> None:
        for form in FORMS:
            with self.assertRaises(FormatError) as caught:
                verify(self.spoiled(form), PASSPHRASE, public_key=PUBLIC)
            error = caught.exception
            self.assertEqual((error.code, error.offset, error.field), ("vqf.signtool.bounds", 11424, "file_len"))

    def test_check_names_it(self) -> None:
        for form in FORMS:
            findings = [f for f in vqfref.check(self.path(self.spoiled(form))) if f.severity == "error"]
            self.assertEqual([(f.code, f.engine) for f in findings], [("vqf.signtool.bounds", "refuses")])

    def test_other_surplus_is_not_blamed_on_the_tool(self) -> None:
        for form in FORMS:
            for data in (
                real("h%d-enc" % form) + TOOL_TAG,  # not signed
                real("h%d-signed" % form) + TOOL_TAG,  # not encrypted
                self.spoiled(form) + b"\0",
                self.spoiled(form)[:-1],
            ):
                with self.assertRaises(FormatError) as caught:
                    verify(data, PASSPHRASE)
                self.assertEqual(caught.exception.code, "vqf.size.bounds")

    def test_the_passphrase_tells_for_sure(self) -> None:
        for form in FORMS:
            data = self.spoiled(form)
            self.assertTrue(seal.is_signing_tool_output(Source(data), PASSPHRASE))
            self.assertFalse(seal.is_signing_tool_output(Source(data), b"another"))
            self.assertFalse(seal.is_signing_tool_output(Source(flip(data, 8 * len(data) - 1)), PASSPHRASE))
            self.assertFalse(seal.is_signing_tool_output(Source(damaged(data)), PASSPHRASE))
            self.assertFalse(seal.is_signing_tool_output(Source(real("h%d-enc-signed" % form)), PASSPHRASE))


if __name__ == "__main__":
    unittest.main()

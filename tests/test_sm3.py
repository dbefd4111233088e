"""SM3, HMAC-SM3 and the key derivation function; and which SM3 `kernels` takes."""

from __future__ import annotations

import array
import hashlib
import os
import sys
import unittest
from unittest import mock

from tests.test_crypto import Vectors, vectors
from tests.tools import thorough
from vqfref import kernels
from vqfref.crypto.hmac_sm3 import HMAC, equal, hmac_sm3
from vqfref.crypto.sm3 import SM3, kdf, pad, sm3

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

EDGES = (55, 56, 63, 64, 65, 119, 120, 127, 128, 200)
NEW = (SM3, kernels.sm3_new)  # the two ways to a streaming hash


def message_of(size: int) -> tuple[bytes, bytes]:
    """A message of the vectors and its digest."""
    case = next(case for case in vectors("sm3") if case["id"] == "sm3-length-%d" % size)
    return case["in"]["msg"], case["out"]["digest"]


try:
    from vqfref.fast.sm3 import SM3 as Quick
except ImportError:  # the folder was deleted
    Quick = SM3
OWN = (SM3, Quick)  # what may take the place of hashlib's


class Sm3(Vectors):
    def test_the_vectors_hold(self) -> None:
        self.hold("sm3", lambda msg: {"digest": sm3(msg)})
        self.hold("sm3", lambda msg: {"digest": kernels.sm3(msg)})

    @thorough
    def test_a_message_cut_in_two_anywhere_has_the_digest_of_the_whole(self) -> None:
        for size in EDGES:
            message, want = message_of(size)
            for cut in range(size + 1):
                for new in NEW:
                    h = new(message[:cut])
                    h.update(message[cut:])
                    self.assertEqual(h.digest(), want, "%d of %d" % (cut, size))

    def test_pieces_of_any_size_give_the_digest_of_the_whole(self) -> None:
        message, want = message_of(1000)
        for step in (1, 3, 55, 56, 63, 64, 65, 128, 129, 999):
            for new in NEW:
                h = new()
                for at in range(0, 1000, step):
                    h.update(message[at : at + step])
                    h.update(b"")
                self.assertEqual(h.digest(), want, step)

    def test_a_digest_in_the_middle_changes_nothing(self) -> None:
        message, want = message_of(200)
        for new in NEW:
            for cut in (0, 55, 56, 63, 64, 120, 128):
                h = new(message[:cut])
                self.assertEqual(h.digest(), new(message[:cut]).digest(), cut)
                self.assertNotEqual(h.digest(), want)
                h.update(message[cut:])
                self.assertEqual(h.digest(), want, cut)
                self.assertEqual(h.digest(), want, "a second time")

    def test_a_copy_goes_its_own_way(self) -> None:
        message, want = message_of(120)
        for new in NEW:
            for cut in (0, 1, 64, 100):
                h = new(message[:cut])
                other = h.copy()
                other.update(b"something else")
                h.update(message[cut:])
                self.assertEqual(h.digest(), want)
                other = h.copy()
                h.update(b"something else")
                self.assertEqual(other.digest(), want)

    def test_it_has_the_face_of_hashlib(self) -> None:
        for new in NEW:
            h = new(b"abc")
            self.assertEqual((h.name, h.digest_size, h.block_size), ("sm3", 32, 64))
            self.assertEqual(h.hexdigest(), "66c7f0f462eeedd9d1f2d46bdc10e4e24167c4875cf2f7a2297da02b8f4ba8e0")

    def test_it_reads_the_bytes_of_whatever_has_a_buffer(self) -> None:
        message, want = message_of(200)
        words = memoryview(array.array("I", message))
        self.assertEqual((words.nbytes, words.itemsize), (200, 4))
        for data in (bytearray(message), memoryview(message), words):
            for new in NEW:
                self.assertEqual(new(data).digest(), want)
            self.assertEqual(sm3(data), want)
            self.assertEqual(kernels.sm3(data), want)
        self.assertEqual(sm3(memoryview(array.array("f"))), message_of(0)[1])
        view = memoryview(b"-" + message + b"-")[1:-1]
        for new in NEW:
            self.assertEqual(new(view).digest(), want, "a view with an offset")

    def test_padding_ends_a_block_with_the_length_in_64_bits(self) -> None:
        # GB/T 32905-2016, 5.2: k is the least number of zero bits for which l + 1 + k = 448 mod 512
        self.assertEqual(pad(3).hex(), "80" + "00" * 52 + "0000000000000018")
        self.assertEqual(pad(55).hex(), "80" + "00000000000001b8")
        self.assertEqual(pad(56).hex(), "80" + "00" * 63 + "00000000000001c0")
        self.assertEqual(pad((1 << 29) + 3).hex(), "80" + "00" * 52 + "0000000100000018")
        self.assertEqual(pad((1 << 61) - 1).hex(), "80" + "00" * 56 + "fffffffffffffff8")


class Hmac(Vectors):
    def test_the_vectors_hold(self) -> None:
        self.hold("hmac_sm3", lambda key, msg: {"tag": hmac_sm3(key, msg)})
        self.hold("hmac_sm3", lambda key, msg: {"tag": HMAC(key, msg, kernels.sm3_new).digest()})

    def test_a_message_in_pieces_has_the_tag_of_the_whole(self) -> None:
        for case in vectors("hmac_sm3"):
            key, message, tag = case["in"]["key"], case["in"]["msg"], case["out"]["tag"]
            if len(message) == 200:
                for step in (1, 63, 64, 199):
                    mac = HMAC(key, new=kernels.sm3_new)
                    for at in range(0, 200, step):
                        mac.update(memoryview(message)[at : at + step])
                    self.assertEqual(mac.digest(), tag, case["id"])
                    self.assertEqual(mac.digest(), tag, "a second time")

    def test_the_hash_is_a_parameter(self) -> None:
        # RFC 4231, test cases 1 and 6: HMAC-SHA-256, whose blocks have 64 bytes too
        for key, data, tag in (
            (b"\x0b" * 20, b"Hi There", "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7"),
            (
                b"\xaa" * 131,
                b"Test Using Larger Than Block-Size Key - Hash Key First",
                "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54",
            ),
        ):
            self.assertEqual(HMAC(key, data, hashlib.sha256).digest().hex(), tag)


class Equal(unittest.TestCase):
    def test_equal_bytes_are_equal(self) -> None:
        for data in (b"", b"\0", bytes(range(32))):
            self.assertIs(equal(data, bytes(bytearray(data))), True)

    def test_one_bit_anywhere_makes_a_difference(self) -> None:
        tag = bytes(range(100, 132))
        for bit in range(256):
            other = bytearray(tag)
            other[bit // 8] ^= 1 << bit % 8
            self.assertIs(equal(tag, bytes(other)), False, bit)

    def test_differences_that_cancel_out_are_differences(self) -> None:
        self.assertIs(equal(b"\1\1", b"\0\0"), False)
        self.assertIs(equal(b"\1\2", b"\2\1"), False)

    def test_another_length_is_a_difference(self) -> None:
        self.assertIs(equal(b"", b"\0"), False)
        self.assertIs(equal(b"tag", b"ta"), False)
        self.assertIs(equal(b"ta", b"tag"), False)


class Kdf(Vectors):
    def test_the_vectors_hold(self) -> None:
        self.hold("sm3_kdf", lambda z, klen: {"key": kdf(z, klen)})

    def test_the_hash_is_a_parameter(self) -> None:
        made = []

        def new(data: bytes) -> Any:
            made.append(data)
            return kernels.sm3_new(data)

        self.hold("sm3_kdf", lambda z, klen: {"key": kdf(z, klen, new)})
        self.assertIn(b"\0\0\1\1", [data[-4:] for data in made], "the counter goes to 257")

    def test_no_key_needs_no_hash(self) -> None:
        self.assertEqual(kdf(b"secret", 0), b"")


class Choice(Vectors):
    """kernels.sm3_new: hashlib's SM3 where it is there and right, the plain one everywhere else."""

    class Right(SM3):
        """An SM3 that can be told from the plain one."""

    def setUp(self) -> None:
        for patch in (mock.patch.object(kernels, "_new", None), mock.patch.dict(os.environ)):
            patch.start()
            self.addCleanup(patch.stop)
        os.environ.pop("VQFREF_PURE", None)

    def hashlib_new(self, new: Any) -> mock.Mock:
        """Put this in the place of hashlib.new until the test ends."""
        patch = mock.patch.object(hashlib, "new", side_effect=new)
        self.addCleanup(patch.stop)
        return patch.start()

    def right(self, name: str, data: Any = b"", **_: Any) -> SM3:
        if name != "sm3":
            raise ValueError("unsupported hash type " + name)
        return self.Right(data)

    def test_a_right_one_is_taken(self) -> None:
        new = self.hashlib_new(self.right)
        self.assertIs(type(kernels.sm3_new(b"abc")), self.Right)
        calls = new.call_count
        self.assertEqual(kernels.sm3(b"abcd" * 16), message_digest("sm3-abcd-16"))
        self.assertEqual(new.call_count, calls + 1, "and it alone does the work")

    def test_a_wrong_one_is_not_taken(self) -> None:
        new = self.hashlib_new(lambda name, data=b"", **_: hashlib.sha256(data))
        self.assertIn(type(kernels.sm3_new(b"abc")), OWN)
        self.assertGreater(new.call_count, 0, "it was asked")

    def test_one_that_gives_too_few_or_too_many_bytes_is_not_taken(self) -> None:
        for digest in (b"", message_digest("sm3-abc")[:31], message_digest("sm3-abc") + b"\0"):
            wrong = mock.Mock()
            wrong.digest.return_value, wrong.hexdigest.return_value = digest, digest.hex()
            with mock.patch.object(kernels, "_new", None), mock.patch.object(hashlib, "new", return_value=wrong):
                self.assertIn(type(kernels.sm3_new(b"abc")), OWN)

    def test_without_sm3_in_hashlib_the_plain_one_is_taken(self) -> None:
        new = self.hashlib_new(ValueError("unsupported hash type sm3"))
        self.assertIn(type(kernels.sm3_new(b"abc")), OWN)
        self.assertGreater(new.call_count, 0, "it was asked")

    def test_without_hashlib_the_plain_one_is_taken(self) -> None:
        with mock.patch.dict(sys.modules, {"hashlib": None}):
            self.assertIn(type(kernels.sm3_new(b"abc")), OWN)

    def test_vqfref_pure_1_never_asks_hashlib(self) -> None:
        os.environ["VQFREF_PURE"] = "1"
        new = self.hashlib_new(self.right)
        self.assertIs(type(kernels.sm3_new(b"abc")), SM3)
        self.assertEqual(kernels.sm3(b"abc"), message_digest("sm3-abc"))
        new.assert_not_called()

    def test_vqfref_pure_0_or_empty_says_nothing(self) -> None:
        self.hashlib_new(self.right)
        for value in ("0", ""):
            os.environ["VQFREF_PURE"] = value
            with mock.patch.object(kernels, "_new", None):
                self.assertIs(type(kernels.sm3_new()), self.Right)

    def test_both_choices_hold_the_vectors(self) -> None:
        chosen = set()
        for pure in ("0", "1"):
            os.environ["VQFREF_PURE"] = pure
            with mock.patch.object(kernels, "_new", None):
                chosen.add(type(kernels.sm3_new()))
                self.hold("sm3", lambda msg: {"digest": kernels.sm3(msg)})
        self.assertIn(SM3, chosen)
        try:
            has_sm3 = hashlib.new("sm3", b"abc").digest() == message_digest("sm3-abc")
        except ValueError:
            has_sm3 = False
        self.assertEqual(len(chosen), 2 if has_sm3 else 1)


def message_digest(name: str) -> bytes:
    """The digest of one vector."""
    digest: bytes = next(case["out"]["digest"] for case in vectors("sm3") if case["id"] == name)
    return digest


if __name__ == "__main__":
    unittest.main()

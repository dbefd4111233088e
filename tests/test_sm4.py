"""SM4 and its counter mode."""

from __future__ import annotations

import unittest

from tests.test_crypto import Vectors, vectors
from vqfref import kernels
from vqfref.crypto.sm4 import CK, SBOX, decrypt_block, encrypt_block, expand_key, sm4_ctr
from vqfref.errors import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

KEY = bytes.fromhex("0123456789abcdeffedcba9876543210")  # of GB/T 32907-2016, A.1
CTR = {sm4_ctr, kernels.sm4_ctr}  # the plain one, and the quick one where there is one


class Block(Vectors):
    def test_the_vectors_hold(self) -> None:
        functions = {"encrypt": encrypt_block, "decrypt": decrypt_block}
        self.hold("sm4_block", lambda mode, key, block: {"block": functions[mode](expand_key(key), block)})

    def test_decryption_takes_encryption_back_and_the_other_way_round(self) -> None:
        for case in vectors("sm4_block"):
            if case["result"] == "valid":
                back = {"encrypt": decrypt_block, "decrypt": encrypt_block}[case["in"]["mode"]]
                self.assertEqual(back(expand_key(case["in"]["key"]), case["out"]["block"]), case["in"]["block"])

    def test_the_round_keys_are_those_of_the_standard_s_example(self) -> None:
        rk = expand_key(KEY)
        self.assertEqual(len(rk), 32)
        self.assertEqual([rk[0], rk[1], rk[31]], [0xF12186F9, 0x41662B61, 0x9124A012])

    def test_the_fixed_parameters_are_those_of_the_standard(self) -> None:
        self.assertEqual([CK[0], CK[1], CK[31]], [0x00070E15, 0x1C232A31, 0x646B7279])
        self.assertEqual(sorted(SBOX), list(range(256)), "the S-box is a permutation")
        self.assertEqual(SBOX[0xEF], 0x84, "the standard's own example of its use")


class Ctr(Vectors):
    def test_the_vectors_hold(self) -> None:
        for function in CTR:

            def answer(key: bytes, iv: bytes, offset: int, data: bytes, function: Any = function) -> dict[str, bytes]:
                return {"data": function(key, iv, data, offset)}

            self.hold("sm4_ctr", answer)

    def test_decrypting_is_encrypting(self) -> None:
        for case in vectors("sm4_ctr")[::5]:
            i = case["in"]
            if case["result"] == "valid":
                for function in CTR:
                    self.assertEqual(function(i["key"], i["iv"], case["out"]["data"], i["offset"]), i["data"])

    def test_a_stream_cut_in_two_anywhere_is_the_stream_in_one_piece(self) -> None:
        for name in ("sm4-ctr-length-50", "sm4-ctr-wrap-128-after-2", "sm4-ctr-offset-13"):
            case = next(case for case in vectors("sm4_ctr") if case["id"] == name)
            key, iv, offset, data = (case["in"][field] for field in ("key", "iv", "offset", "data"))
            for function in CTR:
                for cut in range(len(data) + 1):
                    parts = function(key, iv, data[:cut], offset), function(key, iv, data[cut:], offset + cut)
                    self.assertEqual(b"".join(parts), case["out"]["data"], cut)

    def test_every_part_of_a_stream_can_be_decrypted_alone(self) -> None:
        case = next(case for case in vectors("sm4_ctr") if case["id"] == "sm4-ctr-length-40")
        key, iv, data, out = case["in"]["key"], case["in"]["iv"], case["in"]["data"], case["out"]["data"]
        for function in CTR:
            for start in range(0, 41, 3):
                for stop in (start, start + 1, start + 15, start + 16, start + 17, 40):
                    self.assertEqual(function(key, iv, out[start:stop], start), data[start:stop])

    def test_it_reads_memoryviews_and_returns_bytes(self) -> None:
        case = next(case for case in vectors("sm4_ctr") if case["id"] == "sm4-ctr-length-33")
        key, iv, data = case["in"]["key"], case["in"]["iv"], case["in"]["data"]
        for function in CTR:
            for kind in (bytes, memoryview):
                out = function(key, iv, kind(data))
                self.assertIs(type(out), bytes)
                self.assertEqual(out, case["out"]["data"])
            self.assertEqual(function(key, iv, memoryview(b"-" + data)[1:]), case["out"]["data"])

    def test_a_wrong_key_iv_or_offset_is_the_caller_s_fault_and_says_what_was_expected(self) -> None:
        for key, iv, offset, code, text in (
            (KEY[:15], bytes(16), 0, "sm4.length.key", "15 bytes, expected 16"),
            (KEY, bytes(12), 0, "sm4.length.iv", "12 bytes, expected 16"),
            (KEY, bytes(16), -1, "sm4.offset.range", "-1"),
        ):
            for function in CTR:
                for data in (b"", b"data"):
                    with self.assertRaises(UsageError) as caught:
                        function(key, iv, data, offset)
                    self.assertEqual(caught.exception.code, code)
                    self.assertIn(text, str(caught.exception))


if __name__ == "__main__":
    unittest.main()

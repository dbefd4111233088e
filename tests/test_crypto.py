"""The vectors of the crypto room: how the tests read them, what form they have, and the checksum FNV-1a.

Expected values are those of the standards, of OpenSSL and of fnvhash, put into kat/*.json by kat/gen/openssl.py; the
tests of SM3, SM4 and SM2 import `Vectors` from here.
"""

from __future__ import annotations

import functools
import re
import unittest
from pathlib import Path

from vqfref import kernels, strictjson
from vqfref.crypto.fnv import OFFSET_BASIS, fnv1a64
from vqfref.errors import WORDS, VqfrefError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

KAT = Path(__file__).resolve().parent.parent / "kat"

# op: the fields of `in`, of `out`, and those of them that are no bytes
FIELDS = {
    "sm3": ("msg", "digest", ""),
    "hmac_sm3": ("key msg", "tag", ""),
    "sm3_kdf": ("z klen", "key", "klen"),
    "sm4_block": ("mode key block", "block", "mode"),
    "sm4_ctr": ("key iv offset data", "data", "offset"),
    "sm2_za": ("pub id", "za", ""),
    "sm2_pubkey": ("pub", "pub", ""),
    "sm2_verify": ("pub id msg sig", "", ""),
    "sm2_verify_digest": ("pub e sig", "", ""),
    "sm2_sign_digest": ("d e k", "sig", ""),
    "fnv1a64": ("msg", "hash", ""),
}
POLICIES = {"prefix-04"}  # flags that allow a case to be `acceptable`


@functools.lru_cache(maxsize=None)
def vectors(op: str) -> list[dict[str, Any]]:
    """The cases of one operation, with bytes where the file has hex."""
    cases: list[dict[str, Any]] = strictjson.loads((KAT / (op + ".json")).read_bytes())
    other = FIELDS[op][2].split()
    for case in cases:
        for side in ("in", "out"):
            case[side] = {k: v if k in other else bytes.fromhex(v) for k, v in case[side].items()}
    return cases


class Vectors(unittest.TestCase):
    """A test that goes through a file of vectors."""

    def hold(self, op: str, answer: Callable[..., dict[str, Any]]) -> None:
        """`answer` gets the fields of `in` and gives `out`, or raises an error of the case's class."""
        for case in vectors(op):
            with self.subTest(case["id"]):
                try:
                    out = answer(**case["in"])
                except VqfrefError as error:
                    self.assertNotEqual(case["result"], "valid", "%s: %s" % (error.code, error))
                    if case["result"] == "invalid":
                        self.assertEqual(error.word, case["error"], "%s: %s" % (error.code, error))
                else:
                    self.assertNotEqual(case["result"], "invalid", case["comment"])
                    self.assertEqual(out, case["out"], case["comment"])


class Form(unittest.TestCase):
    """The files, as the suite's protocol describes them."""

    def raw_cases(self) -> list[tuple[str, dict[str, Any]]]:
        return [(op, case) for op in FIELDS for case in strictjson.loads((KAT / (op + ".json")).read_bytes())]

    def test_every_case_has_the_fields_of_its_operation_in_their_order(self) -> None:
        for op, case in self.raw_cases():
            names, invalid = "id comment level flags source since in out result", case["result"] == "invalid"
            self.assertEqual(" ".join(case), names + " error" * invalid, case["id"])
            self.assertEqual(" ".join(case["in"]), FIELDS[op][0], case["id"])
            self.assertEqual(" ".join(case["out"]), "" if invalid else FIELDS[op][1], case["id"])

    def test_ids_are_slugs_and_each_is_there_once(self) -> None:
        ids = [case["id"] for _, case in self.raw_cases()]
        self.assertEqual(len(set(ids)), len(ids))
        for op, case in self.raw_cases():
            self.assertRegex(case["id"], r"\A%s(-[a-z0-9]+)+\Z" % op.replace("_", "-"))

    def test_values_are_lower_case_hex_or_numbers_that_json_readers_agree_on(self) -> None:
        for op, case in self.raw_cases():
            for name, value in [*case["in"].items(), *case["out"].items()]:
                if name not in FIELDS[op][2].split():
                    self.assertIsNotNone(re.fullmatch("(?:[0-9a-f]{2})*", value), case["id"])
                elif name == "mode":
                    self.assertIn(value, ("encrypt", "decrypt"))
                else:
                    self.assertIs(type(value), int)
                    self.assertTrue(0 <= value < 1 << 53, case["id"])

    def test_verdicts_and_levels_are_those_of_the_protocol(self) -> None:
        for _, case in self.raw_cases():
            self.assertIn(case["result"], ("valid", "invalid", "acceptable"), case["id"])
            self.assertIn(case["level"], ("required", "recommended"), case["id"])
            self.assertIn(case.get("error", WORDS[0]), WORDS, case["id"])
            self.assertEqual(case["since"], "1.0.0", case["id"])
            if case["result"] != "valid":
                self.assertTrue(case["flags"], "%s: which check does it catch?" % case["id"])
            if case["result"] == "acceptable":
                self.assertTrue(POLICIES & set(case["flags"]), case["id"])

    def test_a_case_fits_on_one_line_of_the_protocol(self) -> None:
        for op, case in self.raw_cases():
            fields = ["%s=%s" % field for field in case["in"].items()]
            self.assertLess(len(" ".join([case["id"], op, *fields])), 65536, case["id"])


class Fnv(Vectors):
    def test_the_vectors_hold(self) -> None:
        for function in {fnv1a64, kernels.fnv1a64}:
            self.hold("fnv1a64", lambda msg, f=function: {"hash": f(msg).to_bytes(8, "big")})

    def test_a_message_in_two_parts_has_the_hash_of_the_whole(self) -> None:
        case = next(case for case in vectors("fnv1a64") if len(case["in"]["msg"]) == 257)
        message, want = case["in"]["msg"], int.from_bytes(case["out"]["hash"], "big")
        for function in {fnv1a64, kernels.fnv1a64}:
            self.assertEqual(function(message, OFFSET_BASIS), want)
            for cut in (0, 1, 8, 128, 256, 257):
                self.assertEqual(function(message[cut:], function(message[:cut])), want)

    def test_it_reads_bytes_bytearray_and_memoryview_alike(self) -> None:
        for kind in (bytes, bytearray, memoryview):
            self.assertEqual(kernels.fnv1a64(kind(b"foobar")), 0x85944171F73967E8)


if __name__ == "__main__":
    unittest.main()

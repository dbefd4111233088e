"""SM2: signatures are judged as the standard and OpenSSL judge them, and what is refused says which step refused it."""

from __future__ import annotations

import unittest
from unittest import mock

from tests.test_crypto import Vectors, vectors
from tests.tools import thorough
from vqfref.crypto import sm2
from vqfref.errors import SignatureError, UsageError, VqfrefError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

P_MINUS_1, N = sm2.p - 1, 0xFFFFFFFEFFFFFFFFFFFFFFFFFFFFFFFF7203DF6B21C6052B53BBF40939D54123

# GB/T 32918.5-2017, annex A
ANNEX_D = 0x3945208F7B2144B13F36E38AC6D39F95889393692860B51A42FB81EF4DF7C5B8
ANNEX_K = 0x59276E27D506861A16680F3AD9C02DCCEF3CC1FA3CDBE4CE6D54B80DEAC1BC21
ANNEX_E = 0xF0B43E94BA45ACCAACE692ED534382EB17E6AB5A19CE7B31F4486FDFC0D28640
ANNEX_RS = (
    0xF5A03B0648D2C4630EEAC513E1BB81A15944DA3827D5B74143AC7EACEEE720B3,
    0xB1B6AA29DF212FD8763182BC0D421CA1BB9038FD1F7F42D4840B69C485BBC1AA,
)
ANNEX_SIGNATURE = bytes.fromhex("%064x%064x" % ANNEX_RS)

# d and [d]G: the example's, then OpenSSL's
PUBLIC = {
    ANNEX_D: "09f9df311e5421a150dd7d161e4bc5c672179fad1833fc076bb08ff356f35020"
    "ccea490ce26775a52dc6ea718cc1aa600aed05fbf35e084a6632f6072da9ad13",
    1: "32c4ae2c1f1981195f9904466a39c9948fe30bbff2660be1715a4589334c74c7"
    "bc3736a2f4f6779c59bdcee36b692153d0a9877cc62a474002df32e52139f0a0",
    2: "56cefd60d7c87c000d58ef57fa73ba4d9c0dfa08c08a7331495c2e1da3f2bd52"
    "31b7e7e6cc8189f668535ce0f8eaf1bd6de84c182f6c8e716f780d3a970a23c3",
    3: "a97f7cd4b3c993b4be2daa8cdb41e24ca13f6bd945302244e26918f1d0509ebf"
    "530b5dd88c688ef5ccc5cec08a72150f7c400ee5cd045292aaacdd037458f6e6",
    1 << 128: "b692e5b574d55da93db7b24888c21f3a2b2308f6484e1b38eae3d9a9d13a42ed"
    "a175051b0f3fb6135a924f85544926f9db61ac1773438e6dd186469de295e5ab",
    N // 2: "0a3721db9207e1c46e24f06ec2d2d4d785617828a72b72f62370952e0572e033"
    "8ce19c69102762056b4ea4ed593676fd3f4cd5f2ea2aa138227401acfd5708b4",
    N - 2: "56cefd60d7c87c000d58ef57fa73ba4d9c0dfa08c08a7331495c2e1da3f2bd52"
    "ce481818337e760997aca31f07150e429217b3e6d093718f9087f2c568f5dc3c",
}
OUT_OF_RANGE = (-1, 0, N - 1, N, N + 1, (1 << 256) - 1)  # no private keys

# What a flag's case must be refused with.
CODES = {
    "r-range": "sm2.r.range",
    "s-range": "sm2.s.range",
    "t-zero": "sm2.t.range",
    "infinity": "sm2.infinity.point",
    "mismatch": "sm2.mismatch.signature",
    "compare-all": "sm2.mismatch.signature",
    "id": "sm2.mismatch.signature",
    "z": "sm2.mismatch.signature",
    "entl": "sm2.mismatch.signature",
    "sig-length": "sm2.length.signature",
    "id-length": "sm2.id.range",
    "pub-on-curve": "sm2.public.point",
    "pub-range": "sm2.public.range",
    "pub-length": "sm2.public.key",
    "private-range": "sm2.private.range",
    "key-length": "sm2.private.key",
    "nonce-range": "sm2.nonce.range",
    "nonce-useless": "sm2.nonce.range",
}


def point(text: str) -> tuple[int, int]:
    return int(text[:64], 16), int(text[64:], 16)


def numbers(signature: bytes) -> tuple[int, int]:
    """r and s, as a caller of the digest functions takes 64 bytes apart."""
    if len(signature) != 64:
        raise SignatureError("sm2.length.signature", "%d bytes" % len(signature))
    return int.from_bytes(signature[:32], "big"), int.from_bytes(signature[32:], "big")


def check(pub: bytes, id: bytes, msg: bytes, sig: bytes) -> dict[str, bytes]:
    sm2.check(sm2.public_key_from_bytes_checked(pub), msg, sig, id)
    return {}


def check_digest(pub: bytes, e: bytes, sig: bytes) -> dict[str, bytes]:
    sm2.check_digest(sm2.public_key_from_bytes_checked(pub), int.from_bytes(e, "big"), *numbers(sig))
    return {}


def sign_digest(d: bytes, e: bytes, k: bytes) -> dict[str, bytes]:
    key = sm2.private_key_from_bytes_checked(d)
    r, s = sm2.sign_with_nonce(key, int.from_bytes(e, "big"), int.from_bytes(k, "big"))
    return {"sig": r.to_bytes(32, "big") + s.to_bytes(32, "big")}


def pubkey(pub: bytes) -> dict[str, bytes]:
    return {"pub": sm2.public_key_to_bytes(sm2.public_key_from_bytes_checked(pub))}


def za(pub: bytes, id: bytes) -> dict[str, bytes]:
    return {"za": sm2.za(sm2.public_key_from_bytes_checked(pub), id)}


OPS: dict[str, Callable[..., dict[str, bytes]]] = {
    "sm2_za": za,
    "sm2_pubkey": pubkey,
    "sm2_verify": check,
    "sm2_verify_digest": check_digest,
    "sm2_sign_digest": sign_digest,
}


class Refusals(Vectors):
    def refused(self, code: str, call: Callable[..., Any], *args: Any) -> VqfrefError:
        with self.assertRaises(VqfrefError) as caught:
            call(*args)
        self.assertEqual(caught.exception.code, code, str(caught.exception))
        return caught.exception


class Verdicts(Refusals):
    @thorough
    def test_the_vectors_hold(self) -> None:
        for op, function in OPS.items():
            self.hold(op, function)

    @thorough
    def test_each_refusal_names_the_step_that_refused(self) -> None:
        seen = set()
        for op, function in OPS.items():
            for case in vectors(op):
                if case["result"] == "invalid":
                    with self.subTest(case["id"]):
                        flag = case["flags"][0]
                        if flag == "r-plus-n":
                            flag = "s-range" if case["id"].endswith("digest-s-plus-n") else "r-range"
                        seen.add(flag)
                        self.refused(CODES[flag], function, *case["in"].values())
        self.assertEqual(seen, set(CODES))

    @thorough
    def test_verify_gives_true_or_false_for_what_check_lets_pass_or_refuses(self) -> None:
        verdicts = {True: 0, False: 0}
        for case in vectors("sm2_verify")[::3]:
            if case["flags"] != ["id-length"]:
                i, want = case["in"], case["result"] == "valid"
                P = sm2.public_key_from_bytes_checked(i["pub"])
                self.assertIs(sm2.verify(P, i["msg"], i["sig"], i["id"]), want, case["id"])
                verdicts[want] += 1
        for case in vectors("sm2_verify_digest")[::3]:
            i, want = case["in"], case["result"] == "valid"
            if len(i["sig"]) == 64 and case["flags"] != ["pub-on-curve"] and "pub-x" not in case["id"]:
                P = sm2.public_key_from_bytes_checked(i["pub"])
                self.assertIs(sm2.verify_digest(P, int.from_bytes(i["e"], "big"), *numbers(i["sig"])), want, case["id"])
                verdicts[want] += 1
        self.assertGreater(min(verdicts.values()), 10)

    def test_numbers_that_no_32_bytes_can_carry_are_refused_too(self) -> None:
        P, (r, s) = point(PUBLIC[ANNEX_D]), ANNEX_RS
        for value in (-1, r - N, r + N, r + (1 << 256)):
            self.refused("sm2.r.range", sm2.check_digest, P, ANNEX_E, value, s)
        for value in (-1, s - N, s + N, s + (1 << 256)):
            self.refused("sm2.s.range", sm2.check_digest, P, ANNEX_E, r, value)

    def test_the_default_id_is_that_of_the_example(self) -> None:
        P = point(PUBLIC[ANNEX_D])
        sm2.check(P, b"message digest", ANNEX_SIGNATURE)
        self.assertIs(sm2.verify(P, b"message digest", ANNEX_SIGNATURE), True)
        self.assertEqual(sm2.digest(P, b"message digest"), ANNEX_E)
        self.assertEqual(sm2.za(P).hex(), "b2e14c5c79c6df5b85f4fe7ed8db7a262b9da7e07ccb0ea9f4747b8ccda8a4f3")

    def test_an_id_that_is_too_long_is_the_caller_s_fault_everywhere(self) -> None:
        P, long = point(PUBLIC[ANNEX_D]), bytes(8192)
        for call, args in (
            (sm2.za, (P, long)),
            (sm2.digest, (P, b"", long)),
            (sm2.check, (P, b"", bytes(64), long)),
            (sm2.verify, (P, b"", bytes(64), long)),
            (sm2.sign, (ANNEX_D, b"", long)),
        ):
            self.assertIsInstance(self.refused("sm2.id.range", call, *args), UsageError)

    def test_the_hash_is_a_parameter(self) -> None:
        P, asked = point(PUBLIC[ANNEX_D]), []

        def hash(data: bytes) -> bytes:
            asked.append(data)
            return b"%032d" % len(asked)

        self.assertEqual(sm2.za(P, b"id", hash), b"%032d" % 1)
        self.assertEqual(sm2.digest(P, b"message", b"id", hash), int.from_bytes(b"%032d" % 3, "big"))
        self.assertEqual(asked[0], asked[1])
        self.assertEqual(asked[0][:4], b"\0\x10id")
        self.assertEqual(len(asked[0]), 4 + 6 * 32)
        self.assertEqual(asked[2], b"%032d" % 2 + b"message")


class Curve(unittest.TestCase):
    def test_multiples_of_the_base_point_are_openssl_s(self) -> None:
        for d, text in PUBLIC.items():
            self.assertEqual(sm2.multiply(d, sm2.G), point(text), d)
            self.assertEqual(sm2.public_key(d), point(text), d)
            self.assertEqual(sm2.public_key_to_bytes(point(text)).hex(), text)
            self.assertTrue(sm2.is_on_curve(*point(text)))

    def test_the_order_of_the_base_point_is_n(self) -> None:
        x, y = sm2.G
        self.assertIsNone(sm2.multiply(N, sm2.G))
        self.assertIsNone(sm2.multiply(0, sm2.G))
        self.assertEqual(sm2.multiply(N - 1, sm2.G), (x, sm2.p - y))
        self.assertEqual(sm2.multiply(N + 1, sm2.G), sm2.G)

    def test_addition_knows_infinity_opposite_equal_and_other_points(self) -> None:
        one, two, three = (point(PUBLIC[d]) for d in (1, 2, 3))
        minus_one, minus_two = (one[0], sm2.p - one[1]), point(PUBLIC[N - 2])
        self.assertIsNone(sm2.add(None, None))
        self.assertEqual(sm2.add(None, two), two)
        self.assertEqual(sm2.add(two, None), two)
        self.assertIsNone(sm2.add(one, minus_one))
        self.assertIsNone(sm2.add(minus_two, two))
        self.assertEqual(sm2.add(one, one), two)
        self.assertEqual(sm2.add(minus_one, minus_one), minus_two)
        self.assertEqual(sm2.add(one, two), three)
        self.assertEqual(sm2.add(two, one), three)
        self.assertEqual(sm2.add(three, minus_two), one)
        self.assertEqual(sm2.add(three, minus_one), two)

    def test_infinity_stays_infinity(self) -> None:
        self.assertIsNone(sm2.multiply(5, None))

    def test_a_point_beside_the_curve_is_not_on_it(self) -> None:
        x, y = sm2.G
        for other in ((x, y + 1), (x + 1, y), (y, x), (0, 0), (x, 0), (P_MINUS_1, P_MINUS_1)):
            self.assertFalse(sm2.is_on_curve(*other))


class Keys(Refusals):
    def test_private_keys_at_both_ends_of_the_range_pass(self) -> None:
        for d in (1, 2, ANNEX_D, N - 2):
            self.assertEqual(sm2.private_key_from_bytes_checked(d.to_bytes(32, "big")), d)

    def test_bytes_of_a_private_key_out_of_range_are_refused(self) -> None:
        for d in OUT_OF_RANGE[1:]:
            error = self.refused("sm2.private.range", sm2.private_key_from_bytes_checked, d.to_bytes(32, "big"))
            self.assertIsInstance(error, SignatureError)

    def test_a_number_out_of_range_is_nobody_s_private_key(self) -> None:
        for d in OUT_OF_RANGE:
            with self.subTest(d):
                self.refused("sm2.private.range", sm2.public_key, d)
                self.refused("sm2.private.range", sm2.sign, d, b"message")
                self.refused("sm2.private.range", sm2.sign_digest, d, ANNEX_E)
                self.refused("sm2.private.range", sm2.sign_with_nonce, d, ANNEX_E, ANNEX_K)

    def test_a_message_never_holds_the_private_key(self) -> None:
        secret = (N + 0x1234567).to_bytes(32, "big")
        for data in (secret, secret + b"\0", secret.hex().encode()):
            with self.assertRaises(SignatureError) as caught:
                sm2.private_key_from_bytes_checked(data)
            for text in (str(caught.exception), repr(caught.exception)):
                self.assertNotIn("1234567", text)
                self.assertNotIn(str(N + 0x1234567), text)

    def test_the_form_with_04_in_front_is_taken(self) -> None:
        for text in PUBLIC.values():
            self.assertEqual(sm2.public_key_from_bytes_checked(b"\4" + bytes.fromhex(text)), point(text))
            self.assertEqual(sm2.public_key_from_bytes_checked(bytes.fromhex(text)), point(text))

    def test_the_message_about_a_public_key_says_its_length_and_prefix(self) -> None:
        text = str(self.refused("sm2.public.key", sm2.public_key_from_bytes_checked, b"\7" + bytes(64)))
        self.assertIn("65 bytes", text)
        self.assertIn("07", text)
        text = str(self.refused("sm2.public.key", sm2.public_key_from_bytes_checked, bytes(33)))
        self.assertIn("33 bytes", text)

    def test_short_numbers_keep_their_zeros(self) -> None:
        self.assertEqual(sm2.public_key_to_bytes((1, 2)), bytes(31) + b"\1" + bytes(31) + b"\2")

    def test_random_scalars_are_drawn_again_until_they_fit(self) -> None:
        values = [0, N, (1 << 256) - 1, N - 1, 5]
        for limit, want, left in ((N, N - 1, 1), (N - 1, 5, 0), (6, 5, 0)):
            draws = [v.to_bytes(32, "big") for v in reversed(values)]

            def random(size: int, draws: list[bytes] = draws) -> bytes:
                self.assertEqual(size, 32)
                return draws.pop()

            self.assertEqual(sm2.random_scalar(limit, random), want)
            self.assertEqual(len(draws), left)

    def test_random_scalars_begin_at_1_and_end_before_the_limit(self) -> None:
        self.assertEqual(sm2.random_scalar(N, lambda _: (1).to_bytes(32, "big")), 1)
        self.assertEqual(sm2.random_scalar(N - 1, lambda _: (N - 2).to_bytes(32, "big")), N - 2)

    def test_generated_private_keys_are_below_n_minus_1_and_never_the_same(self) -> None:
        with mock.patch.object(sm2, "random_scalar", return_value=7) as scalar:
            self.assertEqual(sm2.generate_private_key(), 7)
        self.assertEqual(scalar.call_args[0][0], N - 1)
        self.assertEqual(len({sm2.generate_private_key() for _ in range(8)}), 8)


class Signing(Refusals):
    def test_what_is_signed_verifies_and_nothing_else_does(self) -> None:
        for d in (ANNEX_D, N - 2):
            P = sm2.public_key(d)
            for user_id in (sm2.DEFAULT_ID, b"", b"vllm-kestrel-vqf"):
                signature = sm2.sign(d, b"message", user_id)
                self.assertEqual((type(signature), len(signature)), (bytes, 64))
                sm2.check(P, b"message", signature, user_id)
                self.assertFalse(sm2.verify(P, b"massage", signature, user_id))
                self.assertFalse(sm2.verify(P, b"message", signature, b"another id"))

    def test_sign_takes_the_default_id_of_the_standard(self) -> None:
        with mock.patch.object(sm2, "random_scalar", return_value=ANNEX_K) as scalar:
            self.assertEqual(sm2.sign(ANNEX_D, b"message digest"), ANNEX_SIGNATURE)
            self.assertEqual(sm2.sign_digest(ANNEX_D, ANNEX_E), ANNEX_RS)
        self.assertEqual([call[0][0] for call in scalar.call_args_list], [N, N], "nonces are below n")

    def test_two_signatures_of_one_message_have_two_nonces(self) -> None:
        self.assertEqual(len({sm2.sign_digest(ANNEX_D, ANNEX_E)[0] for _ in range(3)}), 3)

    def test_a_useless_nonce_is_thrown_away(self) -> None:
        for case in vectors("sm2_sign_digest"):
            if case["flags"] == ["nonce-useless"]:
                d, e, k = (int.from_bytes(case["in"][name], "big") for name in "dek")
                with mock.patch.object(sm2, "random_scalar", side_effect=[k, k, ANNEX_K]) as scalar:
                    signature = sm2.sign_digest(d, e)
                self.assertEqual(scalar.call_count, 3, case["id"])
                self.assertEqual(signature, sm2.sign_with_nonce(d, e, ANNEX_K))

    def test_a_signature_that_does_not_verify_is_not_given_out(self) -> None:
        r, s = ANNEX_RS
        for fault in ((r, s ^ 1), (r ^ 1, s), (r, 0)):
            with mock.patch.object(sm2, "sign_with_nonce", return_value=fault), self.assertRaises(SignatureError):
                sm2.sign_digest(ANNEX_D, ANNEX_E)

    def test_a_nonce_out_of_range_is_refused(self) -> None:
        for k in (-1, 0, N, N + 1, 1 << 256):
            self.refused("sm2.nonce.range", sm2.sign_with_nonce, ANNEX_D, ANNEX_E, k)


class Constructions(unittest.TestCase):
    """The rare vectors have the property that they are there for: no random case has it."""

    def numbers(self, name: str) -> tuple[tuple[int, int], int, int, int]:
        case = next(case for case in vectors("sm2_verify_digest") if case["id"] == "sm2-verify-digest-" + name)
        P = point(case["in"]["pub"].hex())
        return (P, int.from_bytes(case["in"]["e"], "big"), *numbers(case["in"]["sig"]))

    def sum(self, P: tuple[int, int], r: int, s: int) -> Any:
        return sm2.add(sm2.multiply(s, sm2.G), sm2.multiply((r + s) % N, P))

    def test_the_points_meet_where_the_id_says_so(self) -> None:
        P, _, r, s = self.numbers("equal-points")
        self.assertEqual(sm2.multiply(s, sm2.G), sm2.multiply((r + s) % N, P))
        P, e, r, s = self.numbers("infinity")
        self.assertIsNone(self.sum(P, r, s))
        self.assertEqual(e, r)

    def test_x1_lies_between_n_and_p_where_the_id_says_so(self) -> None:
        for name in ("x1-above-n", "x1-above-n-e-0", "x1-and-e-above-n", "x1-above-n-e-n-1", "x1-top-e-top"):
            P, e, r, s = self.numbers(name)
            x1 = self.sum(P, r, s)[0]
            self.assertTrue(N <= x1 < sm2.p, name)
            self.assertEqual((e + x1) % N, r, name)

    def test_the_keys_off_the_curve_would_pass_a_verifier_that_does_not_look(self) -> None:
        for name in ("pub-zero", "pub-off-curve", "pub-twist"):
            P, e, r, s = self.numbers(name)
            sm2.check_digest(P, e, r, s)
            self.assertFalse(sm2.is_on_curve(*P), name)

    def test_the_numbers_with_n_added_are_those_of_the_good_twin(self) -> None:
        P, e, r, s = self.numbers("small")
        for name, dr, ds in (("r-plus-n", N, 0), ("s-plus-n", 0, N), ("r-and-s-plus-n", N, N)):
            self.assertEqual(self.numbers(name), (P, e, r + dr, s + ds), name)


if __name__ == "__main__":
    unittest.main()

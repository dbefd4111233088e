"""How `kernels` chooses between plain and quick versions, and that the package works without the quick ones."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import unittest
import warnings
from array import array
from unittest import mock

import vqfref
from tests.tools import thorough
from vqfref import kernels
from vqfref.crypto.sm3 import SM3
from vqfref.errors import SignatureError

try:
    from vqfref.fast import blocks, floats, fnv, matmul, sm2, sm3, sm4, tiles
except ImportError:
    raise unittest.SkipTest("without fast/ there is nothing to choose from") from None

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

PACKAGE = os.path.dirname(os.path.abspath(vqfref.__file__))
FLAGS = ["-" + "O" * sys.flags.optimize] * (sys.flags.optimize > 0) + ["-W" + w for w in sys.warnoptions]
FILES = {
    "blocks": blocks,
    "floats": floats,
    "fnv": fnv,
    "matmul": matmul,
    "sm2": sm2,
    "sm3": sm3,
    "sm4": sm4,
    "tiles": tiles,
}

# One number for what every operation of kernels gives; run with a folder that holds a package
EVERYTHING = """
import sys
sys.path.insert(0, sys.argv[1])
import binascii, os
from array import array
from vqfref import kernels as k
from vqfref.quant.floats import f32_encode
assert k.__file__.startswith(sys.argv[1]), k.__file__
x = array("f", [(i * 7919 % 4093 - 2046) / 1000 for i in range(512)])
some = bytes(i * i % 251 for i in range(70000))
q8, q4 = k.q8_0_encode(x) * 8, k.q4_0_encode(x) * 8
activation = k.quantize_activation(x[:64])
results = [
    b"%x" % k.fnv1a64(some), k.sm4_ctr(some[:16], some[16:32], some[:5000], 3), k.sm3(some[:500]),
    b"".join(k.sm3_many([some[i : i + 100] for i in range(9)])), k.hmac_sm3(some[:20], some[:99]), q8, q4,
    k.q4i_encode(x), k.g256_encode(x), k.bf16_encode(x), k.f16_encode(x), k.f16_encode_truncated(x),
    k.tile(q8, 64, "q8_8x8"), k.untile(q4, 64, "q4_4x4"), repr(activation).encode(), repr(k.all_finite(x)).encode(),
    b"".join(f32_encode(values) for values in (
        k.bf16_decode(k.bf16_encode(x)), k.f16_decode(k.f16_encode(x)), k.q8_0_decode(q8), k.q4_0_decode(q4),
        k.matvec(q8, x[:64], "q8_0"), k.matvec_quantized(q4, activation, "q4_0"),
        k.packed_matrix(q8, "q8_0", "linear", 64).matvec(x[:64]))),
]
P, e = k.sm2_public_key(12345), 67890
r, s = k.sm2_sign_with_nonce(12345, e, 424242)
k.sm2_check_digest(P, e, r, s)
k.Verifier(P).check_digest(e, r, s)
results.append(repr((P, r, s)).encode())
k.Verifier(P).check(b"message", k.sm2_sign(12345, b"message", b"id"), b"id")
print([binascii.crc32(b) for b in results])
print(sorted(set(k.choices().values()) - {"hashlib"}), any(m.startswith("vqfref.fast") for m in sys.modules))
"""


def run(folder: str, **environment: str) -> list[str]:
    """The lines that EVERYTHING prints for the package in a folder."""
    env = {key: value for key, value in os.environ.items() if key != "VQFREF_PURE"}
    env.update(environment, PYTHONDONTWRITEBYTECODE="1")
    done = subprocess.run([sys.executable, *FLAGS, "-c", EVERYTHING, folder], env=env, capture_output=True)
    if done.returncode:
        raise AssertionError(done.stderr.decode())
    return done.stdout.decode().splitlines()


class Choice(unittest.TestCase):
    def setUp(self) -> None:
        for patch in (mock.patch.dict(kernels._chosen, clear=True), mock.patch.dict(os.environ),
                      mock.patch.object(kernels, "_new", None)):  # fmt: skip
            patch.start()
            self.addCleanup(patch.stop)
        os.environ.pop("VQFREF_PURE", None)

    def test_every_operation_has_a_quick_version_with_a_known_answer_that_it_gives(self) -> None:
        known = []
        for name, (file, plain) in kernels._operations.items():
            attribute = plain.__name__.lstrip("_")
            answer, right = FILES[file].CHECKS[attribute]
            self.assertEqual(answer(), right, name)
            self.assertTrue(callable(getattr(FILES[file], attribute)), name)
            known.append((file, attribute))
        self.assertEqual(sorted(known), sorted((file, a) for file, module in FILES.items() for a in module.CHECKS))

    def test_the_known_answers_are_the_plain_versions_too(self) -> None:
        for name, (file, plain) in kernels._operations.items():
            attribute = plain.__name__.lstrip("_")
            answer, right = FILES[file].CHECKS[attribute]
            with mock.patch.object(FILES[file], attribute, plain):
                self.assertEqual(answer(), right, name)

    def test_the_first_call_chooses(self) -> None:
        self.assertEqual(kernels._chosen, {})
        kernels.fnv1a64(b"")
        self.assertEqual(kernels._chosen, {"fnv1a64": fnv.fnv1a64})
        self.assertEqual(set(kernels.choices().values()) - {"hashlib"}, {"fast"})

    def test_one_with_a_wrong_answer_hands_back_with_a_warning_and_once(self) -> None:
        for name, (file, plain) in kernels._operations.items():
            attribute = plain.__name__.lstrip("_")
            answer = FILES[file].CHECKS[attribute][0]
            with mock.patch.dict(FILES[file].CHECKS, {attribute: (answer, "another")}):
                with self.assertWarnsRegex(RuntimeWarning, "quick %s " % name):
                    self.assertIs(kernels._choose(name), plain)
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                self.assertIs(kernels._chosen[name], plain)

    def test_the_warning_points_to_the_caller(self) -> None:
        with mock.patch.dict(fnv.CHECKS, {"fnv1a64": (lambda: 1, 2)}), self.assertWarns(RuntimeWarning) as caught:
            self.assertEqual(kernels.fnv1a64(b"a"), 0xAF63DC4C8601EC8C)
        self.assertEqual(os.path.basename(caught.filename), "test_fast.py")

    def test_one_that_raises_hands_back_too(self) -> None:
        def broken() -> int:
            raise MemoryError

        for checks in ({"fnv1a64": (broken, 1)}, {}):
            kernels._chosen.clear()
            with mock.patch.dict(fnv.CHECKS, checks, clear=True), self.assertWarns(RuntimeWarning):
                self.assertEqual(kernels.fnv1a64(b"a"), 0xAF63DC4C8601EC8C)

    def test_vqfref_pure_1_takes_only_plain_ones_and_other_values_say_nothing(self) -> None:
        os.environ["VQFREF_PURE"] = "1"
        self.assertEqual(set(kernels.choices().values()), {"plain"})
        for value in ("", "0"):
            os.environ["VQFREF_PURE"] = value
            kernels._chosen.clear()
            with mock.patch.object(kernels, "_new", None):
                self.assertEqual(set(kernels.choices().values()) - {"hashlib"}, {"fast"})

    def test_without_hashlib_sm3_is_the_quick_one_and_a_wrong_one_the_plain_one(self) -> None:
        with mock.patch.dict(sys.modules, {"hashlib": None}):
            self.assertIs(type(kernels.sm3_new()), sm3.SM3)
            self.assertEqual(kernels.choices()["sm3"], "fast")
            self.assertEqual(kernels.sm3_many([b"abc"] * 9), [SM3(b"abc").digest()] * 9)
            self.assertEqual(kernels.choices()["sm3_many"], "fast")
            with mock.patch.object(kernels, "_new", None), mock.patch.dict(sm3.CHECKS, {"SM3": (lambda: 1, 2)}):
                with self.assertWarns(RuntimeWarning):
                    self.assertIs(type(kernels.sm3_new()), SM3)

    def test_with_hashlib_many_messages_go_there(self) -> None:
        with mock.patch.object(kernels, "_hashlib_sm3", return_value=lambda data=b"": hashlib.sha256(data)):
            self.assertEqual(kernels.sm3_many([b"abc"] * 9), [hashlib.sha256(b"abc").digest()] * 9)
            self.assertEqual(kernels.choices()["sm3_many"], "hashlib")

    def test_the_quick_functions_have_the_face_of_the_plain_ones(self) -> None:
        for name in ("sm4_ctr", "q8_0_decode", "tile", "matvec_quantized"):
            function: Any = getattr(kernels, name)
            self.assertEqual(function.__name__, name)
            self.assertEqual(function.__doc__, function.__wrapped__.__doc__)

    def test_every_name_in_all_is_there_and_sorted(self) -> None:
        for name in kernels.__all__:
            self.assertIsNotNone(getattr(kernels, name))
        self.assertEqual(sorted(set(kernels.__all__)), kernels.__all__)


class WithoutFast(unittest.TestCase):
    @thorough
    def test_a_copy_without_the_folder_and_vqfref_pure_give_the_same_results(self) -> None:
        quick = run(os.path.dirname(PACKAGE))
        self.assertEqual(quick[1], "['fast'] True")
        self.assertEqual(run(os.path.dirname(PACKAGE), VQFREF_PURE="1"), [quick[0], "['plain'] False"])
        with tempfile.TemporaryDirectory() as folder:
            shutil.copytree(
                PACKAGE, os.path.join(folder, "vqfref"), ignore=shutil.ignore_patterns("fast", "__pycache__")
            )
            self.assertEqual(run(folder), [quick[0], "['plain'] False"])

    def test_importing_kernels_loads_no_quick_version(self) -> None:
        code = "import sys, vqfref.kernels; print([m for m in sys.modules if 'fast' in m or m == 'hashlib'])"
        env = dict(os.environ, PYTHONPATH=os.path.dirname(PACKAGE))
        done = subprocess.run([sys.executable, *FLAGS, "-c", code], env=env, stdout=subprocess.PIPE)
        self.assertEqual(done.stdout.split(), [b"[]"])


class Composed(unittest.TestCase):
    """What kernels itself makes of several operations."""

    def test_sm2_sign_and_check_and_a_verifier_say_what_the_plain_ones_say(self) -> None:
        from vqfref.crypto import sm2 as plain

        P = kernels.sm2_public_key(99)
        self.assertEqual(P, plain.public_key(99))
        signature = kernels.sm2_sign(99, b"message", b"somebody")
        verifier = kernels.Verifier(P)
        plain.check(P, b"message", signature, b"somebody")
        for check in (lambda *a: plain.check(P, *a), lambda *a: kernels.sm2_check(P, *a), verifier.check):
            check(b"message", signature, b"somebody")
            for args, code in (((b"other", signature, b"somebody"), "sm2.mismatch.signature"),
                               ((b"message", signature), "sm2.mismatch.signature"),
                               ((b"message", signature[:63], b"somebody"), "sm2.length.signature"),
                               ((b"message", bytes(64), b"somebody"), "sm2.r.range")):  # fmt: skip
                with self.assertRaises(SignatureError) as caught:
                    check(*args)
                self.assertEqual(caught.exception.code, code)
        for d in (0, plain.n - 1, plain.n, -1):
            with self.assertRaises(SignatureError) as caught:
                kernels.sm2_sign(d, b"message")
            self.assertEqual(caught.exception.code, "sm2.private.range")

    def test_a_nonce_that_does_not_serve_is_followed_by_another(self) -> None:
        faults = [SignatureError("sm2.nonce.range", "take another"), (1, 2)]
        with mock.patch.object(kernels, "sm2_sign_with_nonce", side_effect=faults) as sign:
            with self.assertRaises(SignatureError):  # (1, 2) is none, and never leaves the house
                kernels.sm2_sign(99, b"message")
        self.assertEqual(sign.call_count, 2)

    def test_hmac_is_that_of_the_plain_hash(self) -> None:
        from vqfref.crypto.hmac_sm3 import hmac_sm3

        for key, data in ((b"", b""), (b"k" * 64, b"d" * 200), (b"k" * 65, b"")):
            self.assertEqual(kernels.hmac_sm3(key, data), hmac_sm3(key, data))

    def test_a_packed_matrix_has_matvec_and_its_columns(self) -> None:
        x = array("f", [i - 31.5 for i in range(64)])
        data = kernels.q8_0_encode(array("f", [i % 97 - 48.0 for i in range(64 * 16)]))
        matrix = kernels.packed_matrix(data, "q8_0", "linear", 64)
        self.assertIs(type(matrix), kernels.PackedMatrix)
        self.assertEqual(matrix.cols, 64)
        self.assertEqual(matrix.matvec(x), kernels.matvec(data, x, "q8_0"))


if __name__ == "__main__":
    unittest.main()

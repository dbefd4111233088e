"""Signed inference records: three made with OpenSSL 3.0, others built here by hashlib's SM3; every reason to refuse one.

The format's description, section 12, says what the digest covers; `covered` writes that down once more, on its own.
"""

from __future__ import annotations

import json
import os
import random
import struct
import sys
import tempfile
import unittest
from unittest import mock

from tests.test_reseal import PRIVATE, sm2_verifies
from tests.test_seal import OTHER_PUBLIC, PUBLIC, sm3
from tests.tools import LONG
from vqfref import attest
from vqfref.crypto import sm2
from vqfref.errors import FormatError, LimitError, SignatureError, UsageError, VqfrefError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

REQUEST = b'{"prompt": "Guten Tag"}'
OUTPUT = "Grüß dich\n".encode()
USER_ID = b"VLLM-ATTEST-1"

# Digests by `openssl dgst -sm3`, signatures by `openssl pkeyutl` with distid VLLM-ATTEST-1 and the key of PUBLIC.
RECORD: dict[str, Any] = {
    "schema": 3,
    "algo": "SM2-SM3",
    "ts": 1796000000,
    "model": "Qwen3-VL-2B",
    "model_fp": "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
    "device": "board-07",
    "user": "Käthe",
    "params": '{"temperature":0.7,"top_k":20}',
    "prompt_tokens": 17,
    "n_tokens": 42,
    "finish": "stop",
    "body_sha": "f25b5b49e577961d0b6a6ad1a0dfb59dfbcbff6d6333d62d1d9b244e671c1f54",
    "digest": "fb8eccdb2f8a59d95720520279965ea59e087932acd4c9d576eb6437cd686a51",
    "signature": "9bf849a9165ea7e3ddb6a1171306d6840759fefd0d0688ae90557032bd05c2d6"
    "d9e64ae7d333c3f6025d1acbadc64264e64ca02294ddf8ed9e5a72eaad6bf0f2",
}
RECORD_2 = {
    **RECORD,
    "schema": 2,
    "ts": "2026-09-10T12:00:00Z",
    "digest": "f37bcb308e7a7d60a1f8a82d793721329c664581d7fe57c5d73088a8bcbd8792",
    "signature": "cb61ce61a85db33523540e597952f042e5fd9cf3a4442a03b5ecfcd1e64050d6"
    "70a9be911a57f1c7feb01c7f841448ce387308feeb3c8e130b8610c1d4fa8d01",
}
RECORD_OTHER = {  # signed with the key of OTHER_PUBLIC
    **RECORD,
    "signature": "f6c410c69682e7eca59068951c698580fca742cbf071bdafdbb666621a6c1c64"
    "9f6865b22d5c9d70b4cdc6096dd1eb431cbbaa1a3e11ba13c26e601ca16732bf",
}

COVERED = ["model_fp", "model", "device", "user", "params", "prompt_tokens", "n_tokens", "finish", "ts", "body_sha"]
TEXT = ["model", "device", "user", "params", "finish", "algo"]
HEX = {"model_fp": 64, "body_sha": 64, "digest": 64, "signature": 128}
COUNTS = ["prompt_tokens", "n_tokens"]
FREE = {name: RECORD[name] for name in RECORD if name not in ("algo", "body_sha", "digest", "signature")}


def encode(record: Any) -> bytes:
    return json.dumps(record).encode()


def framed(x: bytes) -> bytes:
    return struct.pack(">I", len(x)) + x


def covered(record: dict[str, Any], output: bytes = OUTPUT) -> bytes:
    """The digest by section 12, with hashlib's SM3; skips where there is none."""
    fields = b"".join(framed(str(record[name]).encode("utf-8")) for name in COVERED)
    return sm3(b"VLLM-AT-%d" % record["schema"] + fields + framed(output))


def verify(record: Any, request: bytes = REQUEST, output: bytes = OUTPUT, key: bytes = PUBLIC) -> attest.Attestation:
    data = record if isinstance(record, bytes) else encode(record)
    return attest.verify(data, request, output, key, "proof.json")


class Records(unittest.TestCase):
    def found(self, result: attest.Attestation, *codes: str) -> None:
        self.assertEqual(sorted(f.code for f in result.findings), sorted(codes))
        self.assertEqual(result.ok, not codes)
        for finding in result.findings:
            self.assertEqual((finding.severity, finding.path), ("error", "proof.json"))


class Right(Records):
    def test_records_made_with_openssl_pass(self) -> None:
        for record, key in ((RECORD, PUBLIC), (RECORD_2, PUBLIC), (RECORD_OTHER, OTHER_PUBLIC)):
            result = verify(record, key=key)
            self.found(result)
            self.assertEqual(
                [(step.name, step.result) for step in result.steps],
                [(name, "ok") for name in ("record", "algo", "body_sha", "digest", "signature")],
            )

    def test_their_digests_are_what_hashlib_gives(self) -> None:
        for record in (RECORD, RECORD_2):
            self.assertEqual(covered(record).hex(), record["digest"])
            self.assertEqual(attest.digest(record, OUTPUT), covered(record))
            self.assertEqual(sm3(REQUEST).hex(), record["body_sha"])

    def test_hex_digits_may_be_capitals(self) -> None:
        for name in ("body_sha", "digest", "signature"):
            record = {**RECORD, name: RECORD[name].upper()}
            if name == "body_sha":  # the digest covers it as it is written
                record["digest"] = covered(record).hex()
                self.found(verify(record), "attest.sm2.signature")
            else:
                self.found(verify(record))

    def test_order_white_space_and_unknown_fields_don_t_matter(self) -> None:
        backwards = {"note": [1, {"a": None}], **dict(reversed(list(RECORD.items())))}
        self.found(verify(json.dumps(backwards, indent=3, ensure_ascii=False).encode()))

    def test_a_public_key_may_have_the_prefix_04(self) -> None:
        self.found(verify(RECORD, key=b"\4" + PUBLIC))

    def test_a_public_key_that_is_none_is_the_callers_fault(self) -> None:
        for key in (b"", PUBLIC[:-1], bytes(64)):
            with self.assertRaises(SignatureError):
                verify(RECORD, key=key)


class Wrong(Records):
    """Each reason has its own code."""

    def test_another_request(self) -> None:
        for request in (REQUEST + b"\n", b"", REQUEST[:-1]):
            self.found(verify(RECORD, request=request), "attest.body.tag")

    def test_another_output_changes_digest_and_signature(self) -> None:
        for output in (OUTPUT[:-1], b"", OUTPUT + b"x"):
            self.found(verify(RECORD, output=output), "attest.digest.tag", "attest.sm2.signature")

    def test_another_value_in_any_covered_field(self) -> None:
        for name in COVERED:
            value = RECORD[name]
            other = value + 1 if isinstance(value, int) else "1" + value[1:] if name in HEX else value + "x"
            more = ["attest.body.tag"] if name == "body_sha" else []
            with self.subTest(name):
                self.found(verify({**RECORD, name: other}), "attest.digest.tag", "attest.sm2.signature", *more)

    def test_the_other_schema_is_another_magic(self) -> None:
        self.found(verify({**RECORD, "schema": 2}), "attest.digest.tag", "attest.sm2.signature")

    def test_another_digest_in_the_record_alone(self) -> None:
        self.found(verify({**RECORD, "digest": "0" * 64}), "attest.digest.tag")

    def test_another_signature_or_key(self) -> None:
        self.found(verify(RECORD_OTHER), "attest.sm2.signature")
        self.found(verify(RECORD, key=OTHER_PUBLIC), "attest.sm2.signature")
        rs = RECORD["signature"]
        for signature in ("0" * 128, "f" * 128, rs[:64] + "0" * 64, "0" * 64 + rs[64:], rs[64:] + rs[:64]):
            self.found(verify({**RECORD, "signature": signature}), "attest.sm2.signature")

    def test_bytes_can_not_move_from_one_field_to_the_next(self) -> None:
        moved = {**RECORD, "model": "Qwen3-VL-2", "device": "Bboard-07"}
        self.found(verify(moved), "attest.digest.tag", "attest.sm2.signature")

    def test_an_unknown_algo_is_told_beside_the_rest(self) -> None:
        for algo in ("SM2-SHA256", "sm2-sm3", "", "SM2-SM3 "):
            self.found(verify({**RECORD, "algo": algo}), "attest.algo.unsupported")

    def test_what_the_record_says_is_safe_to_print(self) -> None:
        for name in TEXT:
            result = verify({**RECORD, name: "\x1b[2J\u202e" + "x" * 500})
            text = " ".join([step.detail for step in result.steps] + [str(f) for f in result.findings])
            self.assertTrue(text.isprintable(), name)
            self.assertLess(len(text), 1500)

    def test_an_unknown_schema(self) -> None:
        for schema in (0, 1, 4, 23, 1 << 32):
            result = verify({**RECORD, "schema": schema})
            self.found(result, "attest.schema.version")
            self.assertEqual([f.field for f in result.findings], ["schema"])

    def test_a_number_of_many_digits_is_refused_in_a_few_words(self) -> None:
        for name in ("schema", *COUNTS, "ts"):
            result = verify({**RECORD, name: 10**900})
            self.assertFalse(result.ok)
            self.assertLess(max(len(f.message) for f in result.findings), 200)

    def test_a_missing_field(self) -> None:
        for name in RECORD:
            result = verify({key: value for key, value in RECORD.items() if key != name})
            self.found(result, "attest.field.missing")
            self.assertEqual([f.field for f in result.findings], [name])

    def test_a_field_of_the_wrong_type(self) -> None:
        cases: list[tuple[str, list[Any]]] = [
            *((name, [1, None, True, [], {}, 1.5]) for name in TEXT),
            *((name, ["17", -1, 17.0, True, None, [], {}]) for name in [*COUNTS, "schema"]),
            ("ts", [-1, 1.5, None, True, [], {}]),
            *(
                (name, [1, None, "", "0" * (n - 1), "0" * (n + 1), "g" + "0" * (n - 1), " " + "0" * (n - 1),
                        "0" * (n - 1) + "\n", "٠" * n])
                for name, n in HEX.items()
            ),
        ]  # fmt: skip
        for name, values in cases:
            for value in values:
                with self.subTest("%s = %.40r" % (name, value)):
                    result = verify({**RECORD, name: value})
                    self.found(result, "attest.field.json")
                    self.assertEqual([f.field for f in result.findings], [name])

    def test_what_is_no_object(self) -> None:
        for data in (b"[]", b"1", b'"text"', b"null", encode([RECORD])):
            self.found(verify(data), "attest.record.json")

    def test_what_is_no_json(self) -> None:
        good = encode(RECORD)
        for code, data, offset in (
            ("json.syntax.json", b"", 0), ("json.syntax.json", good[:-1], len(good) - 1),
            ("json.syntax.json", good + b"{}", len(good)), ("json.syntax.json", b"\xef\xbb\xbf" + good, 0),
            ("json.utf8.json", b'{"\xff": 1}', 2), ("json.surrogate.json", b'{"a": "\\ud800"}', 7),
            ("json.number.range", b'{"a": 1e999}', 6), ("json.depth.limit", b"[" * 100, 64),
        ):  # fmt: skip
            result = verify(data)
            self.found(result, code)
            self.assertEqual([f.offset for f in result.findings], [offset])

    def test_a_key_that_is_there_twice(self) -> None:
        # the reader that signs must not see another field than the one that checks
        good = json.dumps(RECORD)
        for name in RECORD:
            for key in (name, "\\u%04x%s" % (ord(name[0]), name[1:])):
                data = ('%s, "%s": %s}' % (good[:-1], key, json.dumps(RECORD[name]))).encode()
                result = verify(data)
                self.found(result, "json.key.duplicate")
                (finding,) = result.findings
                self.assertEqual((finding.field, finding.offset), (name, len(good) + 1))

    def test_a_record_too_large_to_be_one(self) -> None:
        padding = b" " * ((1 << 20) - len(encode(RECORD)))
        self.found(verify(encode(RECORD) + padding))
        self.found(verify(encode(RECORD) + padding + b" "), "attest.size.limit")
        with self.assertRaises(LimitError):
            attest.parse(b" " * (1 << 20) + b"{}")

    def test_parse_raises_what_verify_reports(self) -> None:
        self.assertEqual(attest.parse(encode(RECORD)), RECORD)
        for code, data in (
            ("attest.record.json", b"[]"), ("attest.field.missing", b"{}"),
            ("attest.field.json", encode({**RECORD, "user": 1})), ("json.key.duplicate", b'{"a":1,"a":1}'),
        ):  # fmt: skip
            with self.assertRaises(FormatError) as caught:
                attest.parse(data, "proof.json")
            self.assertEqual((caught.exception.code, caught.exception.path), (code, "proof.json"))

    def test_all_that_fails_is_told(self) -> None:
        result = verify({**RECORD, "algo": "x", "n_tokens": 43}, request=b"", output=b"", key=OTHER_PUBLIC)
        self.found(result, "attest.algo.unsupported", "attest.body.tag", "attest.digest.tag", "attest.sm2.signature")
        self.assertEqual({f.engine for f in result.findings}, {"refuses"})
        self.assertEqual([step.result for step in result.steps], ["ok", "failed", "failed", "failed", "failed"])


class Making(Records):
    def test_a_record_is_what_section_12_says(self) -> None:
        without = {name: value for name, value in FREE.items() if name != "schema"}
        for fields in (FREE, {**FREE, "schema": 2, "ts": "2026-09-10"}, without):
            record = attest.make(fields, REQUEST, OUTPUT, PRIVATE)
            self.assertEqual(list(record), list(RECORD))
            for name in FREE:
                self.assertEqual(record[name], fields.get(name, 3))
            self.assertEqual((record["algo"], record["body_sha"]), ("SM2-SM3", RECORD["body_sha"]))
            digest = covered(record)
            self.assertEqual(record["digest"], digest.hex())
            self.assertTrue(sm2_verifies(PUBLIC, digest, bytes.fromhex(record["signature"]), USER_ID))

    def test_the_digest_of_known_fields_is_the_known_one(self) -> None:
        record = attest.make(FREE, REQUEST, OUTPUT, PRIVATE)
        self.assertEqual({**record, "signature": RECORD["signature"]}, RECORD)

    def test_what_was_made_verifies(self) -> None:
        for output in (b"", OUTPUT, bytes(range(256)) * 300):
            record = attest.make(FREE, REQUEST, output, PRIVATE)
            self.found(verify(record, output=output))
            self.found(verify(record, output=output + b"x"), "attest.digest.tag", "attest.sm2.signature")

    def test_fields_that_follow_from_others_are_not_taken(self) -> None:
        more = {"body_sha": "0" * 64, "digest": "0" * 64, "signature": "0" * 128, "algo": "none"}
        record = attest.make({**FREE, **more}, REQUEST, OUTPUT, PRIVATE)
        self.assertEqual({**record, "signature": RECORD["signature"]}, RECORD)

    def test_a_field_that_no_record_has_is_refused(self) -> None:
        for name in ("note", "sig", "Model", ""):
            with self.assertRaises(UsageError) as caught:
                attest.make({**FREE, name: "x"}, REQUEST, OUTPUT, PRIVATE)
            self.assertEqual((caught.exception.code, caught.exception.field), ("usage.attest.name", name))

    def test_a_missing_field_is_the_callers_fault(self) -> None:
        for name in FREE:
            if name != "schema":
                self.refused(name, {key: value for key, value in FREE.items() if key != name})

    def test_a_field_that_could_not_be_verified_is_the_callers_fault(self) -> None:
        for name, value in (
            ("schema", 1), ("schema", 4), ("schema", 2.0), ("schema", "3"), ("schema", []), ("schema", None),
            ("schema", True), ("model", 1), ("model", None), ("model", "\ud800"), ("user", b"x"), ("params", {}),
            ("prompt_tokens", -1), ("prompt_tokens", 1.0), ("n_tokens", "42"), ("n_tokens", True), ("ts", 1.5),
            ("ts", None), ("model_fp", "0" * 63), ("model_fp", "g" * 64),
        ):  # fmt: skip
            with self.subTest("%s = %r" % (name, value)):
                self.refused(name, {**FREE, name: value})

    def refused(self, name: str, fields: dict[str, Any]) -> None:
        with self.assertRaises(UsageError) as caught:
            attest.make(fields, REQUEST, OUTPUT, PRIVATE)
        self.assertEqual((caught.exception.code, caught.exception.field), ("usage.attest.missing", name))

    def test_a_private_key_out_of_range_is_refused(self) -> None:
        for d in (0, -1, 0xFFFFFFFEFFFFFFFFFFFFFFFFFFFFFFFF7203DF6B21C6052B53BBF40939D54122):
            with self.assertRaises(SignatureError):
                attest.make(FREE, REQUEST, OUTPUT, d)


class Fingerprint(unittest.TestCase):
    """model_fp. Two folders have theirs from `openssl dgst -sm3`."""

    CONFIG = b'{"hidden_size": 32}\n'
    ALONE = "0dc75ba9268b24de835733669bb920dc6067dd6937dae45af0e79858bea4abef"
    WITH_FILES = "c0ae6e1328f0e30bc44771f8ab417d33a3a4669d7159a20c25d0d6de67617fd4"

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory(prefix="vqfref-")
        self.addCleanup(folder.cleanup)
        self.folder = os.path.join(folder.name, "model")
        os.mkdir(self.folder)
        self.add("config.json", self.CONFIG)

    def add(self, name: str | bytes, data: bytes) -> None:
        with open(os.path.join(os.fsencode(self.folder), os.fsencode(name)), "wb") as file:
            file.write(data)

    def fingerprint(self) -> str:
        return attest.fingerprint(self.folder, "mini", "/models/mini")

    def expected(self, *files: bytes, name: bytes = b"mini", folder: bytes = b"/models/mini") -> str:
        """Section 12 by hashlib; files as name:size, sorted by the caller."""
        parts = [b"MODEL-FP-1", name, folder, sm3(self.CONFIG), *files]
        return sm3(b"".join(map(framed, parts))).hex()

    def test_a_folder_with_nothing_but_its_config(self) -> None:
        self.assertEqual(self.fingerprint(), self.ALONE)
        self.assertEqual(self.expected(b"config.json:20"), self.ALONE)

    def test_files_count_by_name_and_size_in_the_order_of_their_bytes(self) -> None:
        for name, size in (("é", 7), ("model.safetensors", 10), ("a", 0), ("B", 3)):
            self.add(name, b"x" * size)
        self.assertEqual(self.fingerprint(), self.WITH_FILES)
        files = [b"B:3", b"a:0", b"config.json:20", b"model.safetensors:10", "é:7".encode()]
        self.assertEqual(self.expected(*files), self.WITH_FILES)
        self.add("a", b"y")
        self.assertNotEqual(self.fingerprint(), self.WITH_FILES)
        self.add("a", b"")
        self.add("B", b"yyy")  # other bytes, the same size
        self.assertEqual(self.fingerprint(), self.WITH_FILES)

    def test_the_bytes_of_the_config_count(self) -> None:
        self.add("config.json", self.CONFIG.replace(b"32", b"33"))
        self.assertNotEqual(self.fingerprint(), self.ALONE)

    def test_dot_files_and_subfolders_are_left_out(self) -> None:
        self.add(".hidden", b"x")
        self.add(".DS_Store", b"x")
        os.mkdir(os.path.join(self.folder, "onnx"))
        with open(os.path.join(self.folder, "onnx", "model"), "wb"):
            pass
        self.assertEqual(self.fingerprint(), self.ALONE)

    @unittest.skipUnless(os.name == "posix", "symlinks and FIFOs")
    def test_symlinks_count_as_what_they_point_to(self) -> None:
        self.add("é", b"7 bytes")
        self.add("model.safetensors", b"ten bytes.")
        self.add("B", b"abc")
        os.symlink("B", os.path.join(self.folder, "C"))
        os.symlink("../model", os.path.join(self.folder, "folder"))
        os.mkfifo(os.path.join(self.folder, "fifo"))
        files = [b"B:3", b"C:3", b"config.json:20", b"model.safetensors:10", "é:7".encode()]
        self.assertEqual(self.fingerprint(), self.expected(*files))

    @unittest.skipUnless(os.name == "posix", "symlinks")
    def test_a_symlink_to_nothing_is_no_file(self) -> None:
        os.symlink("gone", os.path.join(self.folder, "link"))
        os.symlink("host:1234", os.path.join(self.folder, ".#config.json"))  # an editor's lock
        self.assertEqual(self.fingerprint(), self.ALONE)

    @unittest.skipUnless(sys.platform.startswith("linux"), "names of any bytes")
    def test_names_that_are_not_utf8_are_sorted_and_hashed_as_bytes(self) -> None:
        self.add(b"\xff", b"x")
        self.add("é", b"x")
        self.add("\U0001f600", b"")  # in UTF-16 it would stand before U+FFFD
        self.add("\ufffd", b"")
        files = [b"config.json:20", b"\xc3\xa9:1", b"\xef\xbf\xbd:0", b"\xf0\x9f\x98\x80:0", b"\xff:1"]
        self.assertEqual(self.fingerprint(), self.expected(*files))
        self.assertEqual(
            attest.fingerprint(self.folder, os.fsdecode(b"m\xff"), os.fsdecode(b"/d\xfe")),
            self.expected(*files, name=b"m\xff", folder=b"/d\xfe"),
        )

    def test_the_folders_name_is_as_given(self) -> None:
        self.assertEqual(
            attest.fingerprint(self.folder, "Käthe"),
            self.expected(b"config.json:20", name="Käthe".encode(), folder=os.fsencode(self.folder)),
        )
        self.assertNotEqual(attest.fingerprint(self.folder + os.sep, "x"), attest.fingerprint(self.folder, "x"))

    def test_without_config_json_there_is_none(self) -> None:
        os.unlink(os.path.join(self.folder, "config.json"))
        self.add("model.safetensors", b"x")
        for make in (lambda: None, lambda: os.mkdir(os.path.join(self.folder, "config.json"))):
            make()
            with self.assertRaises(FormatError) as caught:
                self.fingerprint()
            self.assertEqual((caught.exception.code, caught.exception.path), ("attest.config.missing", self.folder))

    def test_what_is_no_folder_is_an_error_of_the_system(self) -> None:
        for path in (os.path.join(self.folder, "missing"), os.path.join(self.folder, "config.json")):
            with self.assertRaises(OSError):
                attest.fingerprint(path, "mini")


class Fuzz(unittest.TestCase):
    """Whatever the record, `verify` comes to an outcome. SM2, which costs too much for all cases, is stood in for: the two
    known signatures are right for their digests, and no other is for any."""

    def setUp(self) -> None:
        known = [(record["digest"], record["signature"]) for record in (RECORD, RECORD_2)]

        def check(key: Any, message: bytes, signature: bytes, user_id: bytes) -> None:
            if (message.hex(), signature.hex()) not in known:
                raise SignatureError("sm2.mismatch.signature", "another one")

        patch = mock.patch.object(sm2, "check", check)
        patch.start()
        self.addCleanup(patch.stop)

    def test_mutated_records_are_refused_and_raise_nothing(self) -> None:
        rng = random.Random(12)
        records = [encode(RECORD), json.dumps(RECORD_2, ensure_ascii=False).encode()]
        tokens = [b"{", b"}", b"[", b"]", b'"', b",", b":", b"\\", b"\\u", b"\\ud800", b"null", b"true", b"-", b"0", b"e9",
                  b"1" * 50, b"\xff", b"\0", b"\n", b'"schema"', b'"schema": 2,', b'"ts": 1e400,', b"[" * 70]  # fmt: skip
        seen = set()
        for case in range(6000 if LONG else 700):
            good = records[case % 2]
            data = bytearray(good)
            for _ in range(rng.choice((1, 1, 1, 2, 5))):
                start = rng.randrange(len(data) + 1)
                end = min(len(data), start + rng.choice((0, 0, 1, 1, 2, 30)))
                data[start:end] = rng.choice(
                    (b"", rng.choice(tokens), bytes([rng.randrange(256)]), bytes(data[start:end]) * 2)
                )
            try:
                result = verify(bytes(data))
            except VqfrefError as error:
                self.fail("case %d raised %r: %r" % (case, error, bytes(data)))
            if result.ok:  # white space, perhaps an unknown field: nothing that the signature covers
                same = json.loads(bytes(data))
                same.update(digest=same["digest"].lower(), signature=same["signature"].lower())
                self.assertEqual({name: same[name] for name in RECORD}, json.loads(good), case)
            seen |= {f.code for f in result.findings}
        self.assertLessEqual({"attest.sm2.signature", "attest.digest.tag", "attest.field.json", "attest.field.missing",
                              "json.syntax.json", "json.key.duplicate"}, seen)  # fmt: skip

    def test_values_of_any_type_in_any_field_are_refused_and_raise_nothing(self) -> None:
        rng = random.Random(7)
        odd: list[Any] = [
            None, True, False, 0, -1, 1 << 64, 10**300, 0.5, 1e308, "", "x", "0" * 64, "f" * 128, "\0", "\x1b", "😀",
            [], {}, [[]], {"a": {"b": 1}}, "9" * 5000,
        ]  # fmt: skip
        for case in range(400):
            record = dict(RECORD)
            for name in rng.sample(list(record), rng.choice((1, 2, 4))):
                record[name] = rng.choice(odd)
            if record == RECORD:
                continue
            self.assertFalse(verify(record).ok, case)


if __name__ == "__main__":
    unittest.main()

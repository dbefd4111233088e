"""The verbs that seal: keygen, pubkey, sign, encrypt, decrypt, set, attest; and verify with keys.

What must be written is known from the real files and by hashlib; the statuses are 0 good, 1 the file is bad, 2 usage,
3 input or output, 130 interrupted. Most runs are in this process; a fresh one where signals matter.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path
from unittest import mock

import vqfref
from tests.samples import FILES, HEADER, WORD, arch, build, flip, patch, real, text_rows
from tests.test_attest import FREE, OUTPUT, RECORD, RECORD_OTHER, REQUEST, covered
from tests.test_reseal import ENCRYPTED, PRIVATE, TAG_OF_4096, sha256, signing, sm2_verifies
from tests.test_seal import (
    FILE_LEN,
    FORMS,
    OTHER_PUBLIC,
    PASSPHRASE,
    PUBLIC,
    TOOL_TAG,
    USER_ID,
    hmac_tag,
    signed_as,
)  # fmt: skip
from tests.tools import Ran, thorough
from tests.tools import run_main as run
from vqfref.sink import AtomicFile
from vqfref.vqf.reseal import reseal

ROOT = str(Path(__file__).resolve().parent.parent)
FLAGS = ["-" + "O" * sys.flags.optimize] * (sys.flags.optimize > 0) + ["-W" + w for w in sys.warnoptions]
N = 0xFFFFFFFEFFFFFFFFFFFFFFFFFFFFFFFF7203DF6B21C6052B53BBF40939D54123


class Files(unittest.TestCase):
    """A test with a folder that has a key pair, a passphrase and the place for what is written."""

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory(prefix="vqfref-")
        self.addCleanup(folder.cleanup)
        self.folder = os.path.realpath(folder.name)
        self.keys = os.path.join(self.folder, "keys")
        os.mkdir(self.keys)
        self.work = os.path.join(self.folder, "work")
        os.mkdir(self.work)
        self.out = os.path.join(self.work, "out.vqf")
        self.priv = self.key(b"%064x\n" % PRIVATE)
        self.pub = self.key(PUBLIC.hex().encode() + b"\n")
        self.other = self.key(OTHER_PUBLIC.hex().encode() + b"\n")
        self.secret = self.key(PASSPHRASE + b"\n")
        self.wrong = self.key(b"wrong")

    def key(self, data: bytes) -> str:
        """A new file with a key or a passphrase."""
        path = os.path.join(self.keys, str(len(os.listdir(self.keys))))
        with open(path, "wb") as file:
            file.write(data)
        return path

    def file(self, data: bytes, name: str = "in.vqf") -> str:
        path = os.path.join(self.work, name)
        with open(path, "wb") as file:
            file.write(data)
        return path

    def read(self, path: str | None = None) -> bytes:
        with open(path or self.out, "rb") as file:
            return file.read()

    def names(self) -> list[str]:
        return sorted(os.listdir(self.work))

    def good(self, *argv: str, **variables: str) -> Ran:
        ran = run(*argv, **variables)
        self.assertEqual((ran.status, ran.err), (0, ""), argv)
        return ran

    def writes(self, *argv: str, **variables: str) -> bytes:
        """The bytes of OUT after a silent success."""
        ran = self.good(*argv, "-o", self.out, **variables)
        self.assertEqual(ran.out, "")
        return self.read()

    def fails(self, status: int, text: str, *argv: str, **variables: str) -> Ran:
        """Ends with a status, says so on stderr in one line, and leaves the folder as it was."""
        before = {name: self.read(os.path.join(self.work, name)) for name in self.names()}
        ran = run(*argv, **variables)
        self.assertEqual((ran.status, ran.out), (status, ""), (argv, ran.err))
        self.assertIn(text, ran.err)
        self.assertNotIn("Traceback", ran.err)
        if "usage:" not in ran.err:  # argparse has more lines
            self.assertEqual(ran.err.count("\n"), 1, ran.err)
        self.assertEqual({name: self.read(os.path.join(self.work, name)) for name in self.names()}, before)
        return ran


def sample(form: int, kind: str) -> str:
    return str(FILES / ("mini-q4-h%d-%s.vqf" % (form, kind)))


# ---- keys


class Keygen(Files):
    def test_it_writes_both_keys_as_hex_the_private_one_for_its_owner_alone(self) -> None:
        priv, pub = os.path.join(self.work, "priv"), os.path.join(self.work, "pub")
        umask = os.umask(0)
        try:
            ran = self.good("keygen", priv, pub)
        finally:
            os.umask(umask)
        self.assertEqual(ran.out, "")
        self.assertEqual(self.names(), ["priv", "pub"])
        self.assertRegex(self.read(priv), rb"\A[0-9a-f]{64}\n\Z")
        self.assertRegex(self.read(pub), rb"\A[0-9a-f]{128}\n\Z")
        self.assertTrue(0 < int(self.read(priv), 16) < N - 1)
        if os.name == "posix":
            self.assertEqual(os.stat(priv).st_mode & 0o7777, 0o600)

    def test_the_keys_belong_together(self) -> None:
        priv, pub = os.path.join(self.work, "priv"), os.path.join(self.work, "pub")
        self.good("keygen", priv, pub)
        data = self.writes("sign", sample(448, "plain"), "--priv", priv)
        public = bytes.fromhex(self.read(pub).decode())
        self.assertTrue(sm2_verifies(public, data[376:408], data[312:376], USER_ID[448]))
        self.assertEqual(self.good("pubkey", priv).out.encode(), self.read(pub))

    def test_the_public_key_goes_to_stdout_where_it_has_no_file(self) -> None:
        priv = os.path.join(self.work, "priv")
        ran = self.good("keygen", priv)
        self.assertRegex(ran.out, r"\A[0-9a-f]{128}\n\Z")
        self.assertEqual(self.good("pubkey", priv).out, ran.out)
        self.assertEqual(self.names(), ["priv"])
        self.assertNotIn(self.read(priv).decode().strip(), ran.out)

    def test_every_pair_is_another(self) -> None:
        for name in "abc":
            self.good("keygen", os.path.join(self.work, name))
        self.assertEqual(len({self.read(os.path.join(self.work, name)) for name in "abc"}), 3)

    def test_an_existing_file_is_never_overwritten_and_no_half_pair_is_left(self) -> None:
        there, new = self.file(b"mine", "there"), os.path.join(self.work, "new")
        self.fails(3, there, "keygen", there)
        self.fails(3, there, "keygen", there, new)
        self.fails(3, there, "keygen", new, there)

    def test_a_folder_that_is_not_there_is_3(self) -> None:
        new, path = os.path.join(self.work, "new"), os.path.join(self.work, "no", "key")
        self.fails(3, path, "keygen", path)
        self.fails(3, path, "keygen", new, path)

    def test_no_file_is_2(self) -> None:
        self.fails(2, "PRIV", "keygen")


class Pubkey(Files):
    def test_it_prints_the_public_key(self) -> None:
        self.assertEqual(self.good("pubkey", self.priv).out, PUBLIC.hex() + "\n")

    def test_a_missing_file_is_3(self) -> None:
        path = os.path.join(self.work, "no")
        self.fails(3, path, "pubkey", path)


class KeyFiles(Files):
    """Files and variables that hold keys. What they hold is never printed."""

    GOOD = b"%064x" % PRIVATE

    def malformed_private(self) -> list[bytes]:
        return [
            b"", b"\n", self.GOOD[:-1], self.GOOD + b"0", self.GOOD + b"\n\n", b" " + self.GOOD, self.GOOD + b" ",
            b"0x" + self.GOOD[2:], self.GOOD[:-1] + b"g", self.GOOD * 2, bytes(32), self.GOOD[:-2] + "é".encode(),
            b"0" * 64, b"%064x" % (N - 1), b"%064x" % N, b"f" * 64, b"-----BEGIN EC PRIVATE KEY-----\n",
        ]  # fmt: skip

    def malformed_public(self) -> list[bytes]:
        good = PUBLIC.hex().encode()
        return [
            b"", b"\n", good[:-1], good + b"0", good + b"\n\n", b"04" + good, good[:64], good[:-1] + b"g", b"0" * 128,
            b"f" * 128, good[:-1] + b"0", PUBLIC,
        ]  # fmt: skip

    def test_a_malformed_private_key_is_2_for_every_verb_that_takes_one(self) -> None:
        plain, marked = sample(448, "plain"), sample(448, "signed")
        fields, request, output = self.key(json.dumps(FREE).encode()), self.key(REQUEST), self.key(OUTPUT)
        for data in self.malformed_private():
            path = self.key(data)
            for argv in (
                ("sign", plain, "-o", self.out, "--priv", path),
                ("set", marked, "eos_id=1", "-o", self.out, "--priv", path),
                ("encrypt", marked, "-o", self.out, "--passphrase-file", self.secret, "--priv", path),
                ("pubkey", path),
                ("attest", "make", fields, "--request", request, "--output", output, "--priv", path),
            ):
                with self.subTest(argv[0], data=data):
                    ran = self.fails(2, "private key", *argv)
                    if len(data) > 10:
                        self.assertNotIn(data.decode("latin-1")[:10], ran.err)

    def test_a_malformed_public_key_is_2_for_every_verb_that_takes_one(self) -> None:
        proof, request, output = (self.key(data) for data in (json.dumps(RECORD).encode(), REQUEST, OUTPUT))
        for data in self.malformed_public():
            path = self.key(data)
            for argv in (
                ("verify", sample(448, "signed"), "--pub", path),
                ("attest", "verify", proof, "--request", request, "--output", output, "--pub", path),
            ):
                with self.subTest(argv[0], data=data):
                    self.fails(2, "public key", *argv)

    def test_a_key_file_that_is_not_there_is_3(self) -> None:
        path = os.path.join(self.work, "no")
        plain = sample(448, "plain")
        self.fails(3, path, "sign", plain, "-o", self.out, "--priv", path)
        self.fails(3, path, "encrypt", plain, "-o", self.out, "--passphrase-file", path)
        self.fails(3, path, "verify", plain, "--pub", path)
        self.fails(3, path, "verify", plain, "--passphrase-file", path)

    def test_no_key_is_2(self) -> None:
        plain = sample(448, "plain")
        self.fails(2, "private key", "sign", plain, "-o", self.out)
        self.fails(2, "private key", "sign", plain, "-o", self.out, VLLM_VQF_SIGN_PRIV="")
        self.fails(2, "passphrase", "encrypt", plain, "-o", self.out)
        self.fails(2, "passphrase", "encrypt", plain, "-o", self.out, VLLM_VQF_KEY="")
        self.fails(2, "passphrase", "encrypt", plain, "-o", self.out, "--passphrase-file", self.key(b"\n"))

    def test_capitals_and_one_newline_don_t_matter(self) -> None:
        for end in (b"", b"\n"):
            self.assertEqual(self.good("pubkey", self.key(self.GOOD.upper() + end)).out, PUBLIC.hex() + "\n")
            pub = self.key(PUBLIC.hex().upper().encode() + end)
            self.good("verify", sample(448, "signed"), "--pub", pub, "--require", "signature")

    def test_the_engines_variables_hold_the_keys_or_name_their_files(self) -> None:
        for priv, pub in ((self.GOOD.decode(), PUBLIC.hex()), (self.priv, self.pub)):
            data = self.writes("sign", sample(448, "plain"), VLLM_VQF_SIGN_PRIV=priv)
            self.assertEqual(data[248:312], PUBLIC)
            self.good("verify", self.out, "--require", "signature", VLLM_VQF_SIGN_PUB=pub)
        for form in FORMS:
            enc, passphrase = sample(form, "enc"), PASSPHRASE.decode()
            self.assertEqual(self.writes("decrypt", enc, VLLM_VQF_KEY=passphrase), real("h%d-plain" % form))
            self.good("verify", enc, "--require", "hmac", VLLM_VQF_KEY=passphrase)

    @unittest.skipUnless(os.name == "posix", "variables of any bytes")
    def test_a_passphrase_in_a_variable_may_be_any_bytes(self) -> None:
        path = self.file(real("h448-plain"))
        reseal(path, path, new_passphrase=b"\xff\xe4\n", iv=bytes(range(16)))
        self.good("verify", path, VLLM_VQF_KEY=os.fsdecode(b"\xff\xe4\n"))

    def test_a_file_goes_before_a_variable(self) -> None:
        enc, marked = sample(448, "enc"), sample(448, "signed")
        self.good("verify", enc, "--passphrase-file", self.secret, VLLM_VQF_KEY="wrong")
        ran = run("verify", enc, "--passphrase-file", self.wrong, VLLM_VQF_KEY=PASSPHRASE.decode())
        self.assertEqual(ran.status, 1)
        self.good("verify", marked, "--pub", self.pub, "--require", "signature", VLLM_VQF_SIGN_PUB=OTHER_PUBLIC.hex())
        self.assertEqual(run("verify", marked, "--pub", self.other, VLLM_VQF_SIGN_PUB=PUBLIC.hex()).status, 1)
        data = self.writes("sign", sample(448, "plain"), "--priv", self.priv, VLLM_VQF_SIGN_PRIV="1" * 64)
        self.assertEqual(data[248:312], PUBLIC)

    def test_a_malformed_variable_is_2_and_not_shown(self) -> None:
        ran = self.fails(2, "private key", "sign", sample(448, "plain"), "-o", self.out, VLLM_VQF_SIGN_PRIV="abc" * 21)
        self.assertNotIn("abcabc", ran.err)
        self.fails(2, "public key", "verify", sample(448, "signed"), VLLM_VQF_SIGN_PUB="0" * 128)

    def test_exactly_one_newline_at_the_end_of_a_passphrase_file_does_not_count(self) -> None:
        for content, passphrase in (
            (b"x", b"x"), (b"x\n", b"x"), (b"x\n\n", b"x\n"), (b"\n\n", b"\n"), (b" x \n", b" x "), (b"x\ny", b"x\ny"),
            (b"\nx", b"\nx"), (b"x\0\xff\n", b"x\0\xff"), (b"x\r", b"x\r"), (b"x\n\n\n", b"x\n\n"), (b"\n x", b"\n x"),
        ):  # fmt: skip
            with self.subTest(content):
                data = self.writes("encrypt", sample(448, "plain"), "--passphrase-file", self.key(content))
                self.assertEqual(data[FILE_LEN:], hmac_tag(data, 448, passphrase))

    def test_a_passphrase_that_ends_in_two_newlines_keeps_one(self) -> None:
        for form in FORMS:
            path = self.file(real("h%d-plain" % form))
            reseal(path, path, new_passphrase=b"two newlines\n", iv=b"\xff" * 16)
            self.assertEqual(sha256(self.read(path)), ENCRYPTED[form, b"two newlines\n", b"\xff" * 16])  # by OpenSSL
            self.good("verify", path, "--passphrase-file", self.key(b"two newlines\n\n"))
            for content in (b"two newlines\n", b"two newlines", b"two newlines\n\n\n"):
                self.assertEqual(run("verify", path, "--passphrase-file", self.key(content)).status, 1)

    def test_a_long_passphrase_is_used_whole_or_refused(self) -> None:
        for n in (1000, 65535, 65536, 65537, 70000):
            ran = run("encrypt", sample(448, "plain"), "-o", self.out, "--passphrase-file", self.key(b"p" * n))
            if ran.status == 2:
                self.assertGreater(n, 60000)
                self.assertEqual(self.names(), [])
            else:
                data = self.read()
                self.assertEqual(data[FILE_LEN:], hmac_tag(data, 448, b"p" * n))
                os.unlink(self.out)

    def test_what_stands_on_the_command_line_is_the_name_of_a_file_and_never_the_secret(self) -> None:
        plain = sample(448, "plain")
        for argv in (
            ("sign", plain, "--priv", self.GOOD.decode()),
            ("encrypt", plain, "--passphrase-file", PASSPHRASE.decode()),
            ("decrypt", sample(448, "enc"), "--passphrase-file", PASSPHRASE.decode()),
        ):
            self.fails(3, "No such file", *argv, "-o", self.out)
        for verb, option in (
            ("encrypt", "--passphrase"),
            ("encrypt", "--password"),
            ("sign", "--key"),
            ("set", "--secret"),
        ):
            self.fails(2, "usage:", verb, plain, option, "x", "-o", self.out)


# ---- sign, encrypt, decrypt, set


class Sign(Files):
    def test_a_plain_file(self) -> None:
        for form in FORMS:
            target = real("h%d-signed" % form)
            with signing(form, target):
                self.assertEqual(self.writes("sign", sample(form, "plain"), "--priv", self.priv), target)

    def test_an_encrypted_file(self) -> None:
        for form in FORMS:
            target = real("h%d-enc-signed" % form)
            with signing(form, target):
                argv = ("sign", sample(form, "enc"), "--priv", self.priv, "--passphrase-file", self.secret)
                self.assertEqual(self.writes(*argv), target)

    def test_in_place(self) -> None:
        for form in FORMS:
            path = self.file(real("h%d-plain" % form))
            target = real("h%d-signed" % form)
            with signing(form, target):
                self.good("sign", path, "--priv", self.priv, "--in-place")
            self.assertEqual((self.read(path), self.names()), (target, ["in.vqf"]))

    def test_the_file_itself_as_out(self) -> None:
        path = self.file(real("h448-plain"))
        self.good("sign", path, "--priv", self.priv, "-o", path)
        self.good("verify", path, "--pub", self.pub, "--require", "signature")
        self.assertEqual(self.names(), ["in.vqf"])

    def test_removing_leaves_the_bytes_of_the_unsigned_file(self) -> None:
        for form in FORMS:
            self.assertEqual(self.writes("sign", sample(form, "signed"), "--remove"), real("h%d-plain" % form))
            argv = ("sign", sample(form, "enc-signed"), "--remove", "--passphrase-file", self.secret)
            self.assertEqual(self.writes(*argv), real("h%d-enc" % form))
            path = self.file(real("h%d-enc-signed" % form))
            self.good("sign", path, "--remove", "--in-place", "--passphrase-file", self.secret)
            self.assertEqual(self.read(path), real("h%d-enc" % form))

    def test_removing_does_not_mind_a_key_in_the_environment(self) -> None:
        data = self.writes("sign", sample(448, "signed"), "--remove", VLLM_VQF_SIGN_PRIV=self.priv)
        self.assertEqual(data, real("h448-plain"))

    def test_another_id(self) -> None:
        for text in ("x", "é", "i" * 32, os.fsdecode(b"\xff")):
            user_id = os.fsencode(text)
            data = self.writes("sign", sample(448, "plain"), "--priv", self.priv, "--id", text)
            self.assertEqual(data[408:441], user_id.ljust(32, b"\0") + bytes([len(user_id)]))
            self.assertTrue(sm2_verifies(PUBLIC, data[376:408], data[312:376], user_id))
            self.good("verify", self.out, "--pub", self.pub, "--id", text, "--require", "signature")
            self.assertEqual(run("verify", self.out, "--pub", self.pub).status, 1)

    def test_an_id_that_does_not_fit_is_2(self) -> None:
        self.fails(2, "33 bytes", "sign", sample(448, "plain"), "--priv", self.priv, "--id", "i" * 33, "-o", self.out)

    def test_wrong_usage_is_2(self) -> None:
        plain, marked = sample(448, "plain"), sample(448, "signed")
        for argv in (
            (plain, "--priv", self.priv),  # where to?
            (plain, "--priv", self.priv, "-o", self.out, "--in-place"),
            (marked, "--remove", "--priv", self.priv, "-o", self.out),
            (marked, "--remove", "--id", "x", "-o", self.out),
            (plain, "--remove", "-o", self.out),  # not signed
            ("-o", self.out),
        ):
            self.fails(2, "", "sign", *argv)

    def test_what_is_wrong_with_the_file_is_1(self) -> None:
        enc, damaged = sample(448, "enc"), self.file(flip(real("h448-plain"), 8 * 5000))
        self.fails(1, "vqf.enc.key", "sign", enc, "--priv", self.priv, "-o", self.out)
        self.fails(1, "vqf.hmac.tag", "sign", enc, "--priv", self.priv, "-o", self.out, "--passphrase-file", self.wrong)
        self.fails(1, "vqf.checksum.tag", "sign", damaged, "--priv", self.priv, "-o", self.out)
        self.fails(1, "vqf.checksum.tag", "sign", damaged, "--priv", self.priv, "--in-place")


class Encrypt(Files):
    def test_the_new_file_has_a_right_tag_and_decrypts_to_the_old_one(self) -> None:
        for form in FORMS:
            data = self.writes("encrypt", sample(form, "plain"), "--passphrase-file", self.secret)
            self.assertEqual((len(data), data[8]), (FILE_LEN + 32, 0xA3))
            self.assertEqual(data[FILE_LEN:], hmac_tag(data, form))
            self.assertNotEqual(data[4096:4160], real("h%d-plain" % form)[4096:4160])
            back = os.path.join(self.work, "back.vqf")
            self.good("decrypt", self.out, "-o", back, "--passphrase-file", self.secret)
            self.assertEqual(self.read(back), real("h%d-plain" % form))

    def test_the_iv_of_two_runs_differs(self) -> None:
        first, second = (self.writes("encrypt", sample(448, "plain"), VLLM_VQF_KEY="x")[216:232] for _ in range(2))
        self.assertEqual(len({first, second, bytes(16)}), 3)

    def test_another_passphrase_takes_the_place_of_the_old_one(self) -> None:
        new = self.key(b"new")
        argv = ("encrypt", sample(448, "enc"), "--old-passphrase-file", self.secret, "--passphrase-file", new)
        data = self.writes(*argv)
        self.assertEqual(data[FILE_LEN:], hmac_tag(data, 448, b"new"))
        self.assertEqual(run("verify", self.out, "--passphrase-file", self.secret).status, 1)
        back = os.path.join(self.work, "back.vqf")
        self.good("decrypt", self.out, "-o", back, "--passphrase-file", new)
        self.assertEqual(self.read(back), real("h448-plain"))

    def test_the_old_passphrase_must_be_given_and_right(self) -> None:
        enc = sample(448, "enc")
        argv = ("encrypt", enc, "-o", self.out, "--passphrase-file", self.secret)
        self.fails(1, "vqf.enc.key", *argv)
        self.fails(1, "vqf.enc.key", *argv, VLLM_VQF_KEY=PASSPHRASE.decode())
        self.fails(1, "vqf.hmac.tag", *argv, "--old-passphrase-file", self.wrong)

    def test_a_signed_file_is_signed_again_under_its_own_id_or_refused(self) -> None:
        argv = ("encrypt", "--passphrase-file", self.secret)
        self.fails(1, "vqf.resign.signature", *argv, sample(448, "signed"), "-o", self.out)
        path = self.file(signed_as(b"x"))
        for more, variables in (("--priv", self.priv), {}), ((), {"VLLM_VQF_SIGN_PRIV": self.priv}):
            data = self.writes(*argv, path, *more, **variables)
            self.assertEqual((data[408:410], data[440]), (b"x\0", 1))
            self.assertTrue(sm2_verifies(PUBLIC, data[376:408], data[312:376], b"x"))
            self.assertEqual(data[FILE_LEN:], hmac_tag(data, 448))
            self.good("verify", self.out, "--passphrase-file", self.secret, "--pub", self.pub, "--id", "x",
                      "--require", "hmac,signature")  # fmt: skip

    def test_a_key_on_hand_does_not_sign_an_unsigned_file(self) -> None:
        data = self.writes("encrypt", sample(448, "plain"), VLLM_VQF_KEY="x", VLLM_VQF_SIGN_PRIV=self.priv)
        self.assertEqual((data[8:10], data[248:448]), (b"\xa3\0", bytes(200)))

    def test_it_does_not_go_in_place(self) -> None:
        path = self.file(real("h448-plain"))
        for verb in ("encrypt", "decrypt"):
            self.fails(2, "usage:", verb, path, "--in-place", "--passphrase-file", self.secret)

    def test_a_file_of_another_format_is_1(self) -> None:
        path = self.file(b"\x02\0\0\0\0\0\0\0{}".ljust(1024, b" "), "model.safetensors")
        argv = ("encrypt", path, "-o", self.out, "--passphrase-file", self.secret)
        self.fails(1, "vqf.header.magic", *argv)
        self.fails(1, "vqf.header.magic", *argv, "--priv", self.priv)

    def test_targets_that_can_t_be_written_are_3(self) -> None:
        argv = ("encrypt", sample(448, "plain"), "--passphrase-file", self.secret, "-o")
        missing = os.path.join(self.work, "no", "out.vqf")
        self.assertNotIn(".tmp", self.fails(3, missing, *argv, missing).err)
        self.fails(3, self.folder, *argv, self.folder)
        self.fails(3, "no.vqf", "encrypt", os.path.join(self.work, "no.vqf"), *argv[2:], self.out)

    @unittest.skipUnless(hasattr(os, "mkfifo"), "no FIFOs here")
    def test_a_device_is_3_and_stays_a_device(self) -> None:
        path = os.path.join(self.folder, "fifo")  # stands for /dev/null
        os.mkfifo(path)
        self.fails(3, path, "encrypt", sample(448, "plain"), "--passphrase-file", self.secret, "-o", path)
        self.assertEqual(os.stat(path).st_mode & 0o170000, 0o010000)


class Decrypt(Files):
    def test_the_plain_file_comes_out(self) -> None:
        for form in FORMS:
            argv = ("decrypt", sample(form, "enc"), "--passphrase-file", self.secret)
            self.assertEqual(self.writes(*argv), real("h%d-plain" % form))

    def test_a_signed_file_is_signed_again_or_refused(self) -> None:
        for form in FORMS:
            argv = ("decrypt", sample(form, "enc-signed"), "--passphrase-file", self.secret)
            self.fails(1, "vqf.resign.signature", *argv, "-o", os.path.join(self.work, "no.vqf"))
            target = real("h%d-signed" % form)
            with signing(form, target):
                self.assertEqual(self.writes(*argv, "--priv", self.priv), target)

    def test_a_wrong_passphrase_or_none_is_1_and_none_is_shown(self) -> None:
        argv = ("decrypt", sample(448, "enc"), "-o", self.out)
        self.fails(1, "vqf.enc.key", *argv)
        secret = self.key(b"squeamish ossifrage")
        self.assertNotIn("ossifrage", self.fails(1, "vqf.hmac.tag", *argv, "--passphrase-file", secret).err)
        self.file(b"old", "out.vqf")
        self.fails(1, "vqf.hmac.tag", *argv, "--passphrase-file", secret)

    def test_a_plain_file_is_2(self) -> None:
        self.fails(2, "not encrypted", "decrypt", sample(448, "plain"), "-o", self.out)


class Set(Files):
    def test_fields_as_numbers_of_every_kind(self) -> None:
        plain = real("h448-plain")
        for argv, expected in (
            (["max_seq_len=4096"], patch(plain, WORD["max_seq_len"], "I", 4096)),
            (["max_seq_len=0x1000"], patch(plain, WORD["max_seq_len"], "I", 4096)),
            (["arch.max_seq_len=4096"], patch(plain, WORD["max_seq_len"], "I", 4096)),
            (["rope_theta=1e6", "norm_eps=0.5"], patch(patch(plain, WORD["rope_theta"], "f", 1e6), WORD["norm_eps"], "f", 0.5)),
            (["rope_theta=1000000"], patch(plain, WORD["rope_theta"], "f", 1e6)),
            (["mrope_sections=24,20,-20,0"], patch(plain, WORD["mrope_sections0"], "4i", 24, 20, -20, 0)),
            (["vis_ds_idx=1, 2, 3, 4"], patch(plain, WORD["vis_ds_idx0"], "4i", 1, 2, 3, 4)),
            (["eos_id=4294967295"], patch(plain, WORD["eos_id"], "I", 0xFFFFFFFF)),
        ):  # fmt: skip
            with self.subTest(argv):
                self.assertEqual(self.writes("set", sample(448, "plain"), *argv), expected)
                path = self.file(plain)
                self.good("set", path, *argv, "--in-place")
                self.assertEqual(self.read(path), expected)

    def test_an_encrypted_file(self) -> None:
        for form in FORMS:
            expected = patch(real("h%d-enc" % form), WORD["max_seq_len"], "I", 4096)[:FILE_LEN]
            expected += bytes.fromhex(TAG_OF_4096[form])
            argv = ("max_seq_len=4096", "--passphrase-file", self.secret)
            self.assertEqual(self.writes("set", sample(form, "enc"), *argv), expected)
            path = self.file(real("h%d-enc" % form))
            self.good("set", path, "--in-place", *argv)
            self.assertEqual(self.read(path), expected)

    def test_a_signed_file(self) -> None:
        path = self.file(real("h448-signed"))
        self.fails(1, "vqf.resign.signature", "set", path, "max_seq_len=4096", "--in-place")
        self.good("set", path, "max_seq_len=4096", "--in-place", "--priv", self.priv)
        data = self.read(path)
        self.assertEqual(data[WORD["max_seq_len"] :][:4], b"\0\x10\0\0")
        self.assertTrue(sm2_verifies(PUBLIC, data[376:408], data[312:376], USER_ID[448]))
        self.good("verify", path, "--pub", self.pub, "--require", "signature")

    def test_wrong_fields_and_values_are_2(self) -> None:
        path = self.file(real("h448-plain"))
        for text in (
            "dim=32", "n_layers=1", "flags=0", "file_len=1", "nothing=1", "=1", "max_seq_len", "max_seq_len=",
            "max_seq_len=x", "max_seq_len=1.5", "max_seq_len=-1", "max_seq_len=4294967296", "max_seq_len=1,2",
            "mrope_sections=1,2,3", "mrope_sections=1,2,3,x", "rope_theta=1e39", "rope_theta=x", "",
            "max_seq_len=0x" + "f" * 5000,
        ):  # fmt: skip
            with self.subTest(text[:30]):
                self.fails(2, "", "set", path, "eos_id=1", text, "--in-place")
        self.fails(2, "", "set", path, "--in-place")
        self.fails(2, "top_k", "set", sample(432, "plain"), "top_k=2", "-o", self.out)


class Interrupted(Files):
    """Ctrl-C and kill -9 leave the target as it was, or as it was to become."""

    def test_ctrl_c_is_130_and_leaves_nothing(self) -> None:
        path = self.file(real("h448-plain"))
        self.file(b"old", "old.vqf")
        for out in (self.out, os.path.join(self.work, "old.vqf"), path):
            with mock.patch.object(AtomicFile, "write", side_effect=KeyboardInterrupt):
                ran = run("encrypt", path, "-o", out, "--passphrase-file", self.secret)
            self.assertEqual((ran.status, ran.out, ran.err), (130, "", "vqfref: interrupted\n"))
            self.assertEqual(self.names(), ["in.vqf", "old.vqf"])
            self.assertEqual(self.read(path), real("h448-plain"))
            self.assertEqual(self.read(os.path.join(self.work, "old.vqf")), b"old")

    @unittest.skipUnless(os.name == "posix", "signals")
    def test_a_real_ctrl_c_is_130_and_leaves_nothing(self) -> None:
        code = (
            "import signal, sys, time\n"
            "from vqfref import cli, sink\n"
            "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
            "write = sink.AtomicFile.write\n"
            "def slow(self, data):\n"
            "    write(self, data)\n"
            "    print('writing', flush=True)\n"
            "    time.sleep(20)\n"
            "sink.AtomicFile.write = slow\n"
            "sys.exit(cli.main(sys.argv[1:]))\n"
        )
        path = self.file(real("h448-plain"))
        old = self.file(b"old", "old.vqf")
        argv = ["encrypt", path, "-o", old, "--passphrase-file", self.secret]
        with subprocess.Popen(
            [sys.executable, *FLAGS, "-c", code, *argv], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        ) as process:
            self.assertEqual(process.stdout.readline(), b"writing\n")
            self.assertEqual(len(self.names()), 3)  # the temporary file is there
            process.send_signal(signal.SIGINT)
            _, err = process.communicate(timeout=30)
        self.assertEqual((process.returncode, err), (130, b"vqfref: interrupted\n"))
        self.assertEqual((self.names(), self.read(old)), (["in.vqf", "old.vqf"], b"old"))

    @unittest.skipUnless(os.name == "posix", "kill")
    @thorough
    def test_kill_9_leaves_the_old_file_or_the_new_one(self) -> None:
        model = arch(vocab_size=1500)
        plain = build(model, text_rows(model), 0x23)  # some 130 KB, a third of a second for the plain SM4
        path = self.file(plain)
        rng = random.Random(9)
        took = self.encrypt_and_kill(path, None)
        killed = 0
        for i in range(6):
            old = self.file(b"old", "out.vqf")
            killed += self.encrypt_and_kill(path, took * (i + rng.random()) / 6) is None
            data = self.read(old)
            if data != b"old":
                self.assert_encrypted(data, plain)
            self.assertEqual(self.read(path), plain)
            for name in set(self.names()) - {"in.vqf", "out.vqf"}:  # all that a kill may leave
                self.assertRegex(name, r"\A\.out\.vqf\..*\.tmp\Z")
                os.unlink(os.path.join(self.work, name))
        self.assertGreater(killed, 0)

    def encrypt_and_kill(self, path: str, after: float | None) -> float | None:
        """Seconds that `encrypt` took, or None where it was killed before its end."""
        argv = ["encrypt", path, "-o", self.out, "--passphrase-file", self.secret]
        start = time.monotonic()
        with subprocess.Popen([sys.executable, *FLAGS, "-m", "vqfref", *argv], cwd=ROOT) as process:
            try:
                process.wait(after)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        if process.returncode == -signal.SIGKILL:
            return None
        self.assertEqual(process.returncode, 0)
        return time.monotonic() - start

    def assert_encrypted(self, data: bytes, plain: bytes) -> None:
        """A whole encrypted file of that plain one."""
        self.assertEqual(len(data), len(plain) + 24)
        with vqfref.open(self.file(data, "whole.vqf"), passphrase=PASSPHRASE) as f:
            self.assertTrue(f.verify(require=["hmac"]).ok)
            h = f.header
            self.assertEqual(f.plain(h.data_offset, h.file_len - h.data_offset), plain[h.data_offset : h.file_len])
        os.unlink(os.path.join(self.work, "whole.vqf"))


# ---- verify


class Verify(Files):
    def bad(self, *argv: str, **variables: str) -> Ran:
        ran = run("verify", *argv, **variables)
        self.assertEqual((ran.status, ran.err), (1, ""), ran)
        return ran

    def test_all_real_files_with_their_keys(self) -> None:
        for form in FORMS:
            keys = ("--passphrase-file", self.secret, "--pub", self.pub)
            for kind, require in (("enc", "hmac"), ("signed", "signature"), ("enc-signed", "hmac,signature")):
                argv = ("verify", sample(form, kind), *keys, "--require", require)
                ran = self.good(*argv) if kind != "signed" else self.good(*argv[:2], *argv[4:])
                for name in require.split(","):
                    self.assertIn("%s: ok (" % name, ran.out)

    def test_each_failure_is_1_and_says_its_code(self) -> None:
        enc, marked, both, plain = (sample(448, kind) for kind in ("enc", "signed", "enc-signed", "plain"))
        for code, argv in (
            ("vqf.enc.key", (enc,)),
            ("vqf.hmac.tag", (enc, "--passphrase-file", self.wrong)),
            ("vqf.hmac.missing", (plain, "--passphrase-file", self.secret, "--require", "hmac")),
            ("vqf.signature.missing", (plain, "--pub", self.pub, "--require", "signature")),
            ("vqf.pubkey.missing", (marked, "--require", "signature")),
            ("vqf.sm2.signature", (marked, "--pub", self.other)),
            ("vqf.userid.signature", (marked, "--pub", self.pub, "--id", "other")),
            ("vqf.sm2.signature", (both, "--passphrase-file", self.secret, "--pub", self.other)),
        ):
            self.assertIn("error[%s]" % code, self.bad(*argv).out)

    def test_several_ids_can_be_expected(self) -> None:
        path = self.file(signed_as(b"\xc3\xa9"))
        self.good("verify", path, "--pub", self.pub, "--id", "x", "--id", "é", "--require", "signature")
        self.assertIn("vqf.userid.signature", self.bad(path, "--pub", self.pub).out)

    def test_a_passphrase_for_a_plain_file_is_a_note(self) -> None:
        ran = self.good("verify", sample(448, "plain"), "--passphrase-file", self.secret)
        self.assertIn("note[vqf.passphrase.policy]", ran.out)

    def test_a_signature_without_a_key_is_0_unless_required(self) -> None:
        ran = self.good("verify", sample(448, "signed"))
        self.assertIn("signature: not checked", ran.out)

    def test_an_unknown_requirement_is_2(self) -> None:
        for require, unknown in (("fnv", "fnv"), ("hmac,fnv", "fnv"), ("Signature", "Signature")):
            self.fails(2, unknown, "verify", sample(448, "plain"), "--require", require)

    def test_json_says_whether_it_is_authenticated_and_each_step(self) -> None:
        for kind, keys, authenticated, status in (
            ("plain", (), False, 0), ("enc", ("--passphrase-file", self.secret), True, 0), ("signed", (), False, 0),
            ("signed", ("--pub", self.pub), True, 0), ("enc", ("--passphrase-file", self.wrong), False, 1),
        ):  # fmt: skip
            ran = run("verify", sample(448, kind), "--json", *keys)
            result = json.loads(ran.out)
            self.assertEqual((ran.status, result["ok"], result["authenticated"]), (status, status == 0, authenticated))
            self.assertEqual({key for step in result["steps"] for key in step}, {"name", "result", "detail"})
            self.assertEqual(len(result["findings"]), status)

    def test_the_passphrase_is_never_shown(self) -> None:
        secret = self.key(b"squeamish ossifrage")
        for kind in ("plain", "enc", "enc-signed"):
            for more in ((), ("--json",)):
                ran = run("verify", sample(448, kind), "--passphrase-file", secret, *more)
                self.assertNotIn("ossifrage", ran.out + ran.err)

    def test_a_file_that_the_engines_signing_tool_spoiled(self) -> None:
        for form in FORMS:
            block = real("h%d-enc-signed" % form)[HEADER[form]["sig"] :][:200]
            data = patch(patch(real("h%d-enc" % form), 8, "I", 0x1A3), HEADER[form]["sig"], "200s", block)
            path = self.file(data + TOOL_TAG)
            checked = run("check", path)
            self.assertEqual(checked.status, 1)
            self.assertIn("error[vqf.signtool.bounds] @0x2ca0 file_len: 32 bytes too many", checked.out)
            sure = "it is that tool's"
            for more, expected in (("--passphrase-file", self.secret), True), ((), False), (
                ("--passphrase-file", self.wrong), False,
            ):  # fmt: skip
                ran = self.fails(1, "vqf.signtool.bounds", "verify", path, "--pub", self.pub, *more)
                self.assertEqual(sure in ran.err, expected)
            # cut off, and signed again, as the message says
            self.file(data[:FILE_LEN] + hmac_tag(data, form))
            secret = ("--passphrase-file", self.secret)
            self.good("sign", path, "--in-place", "--priv", self.priv, *secret)
            self.good("verify", path, *secret, "--pub", self.pub, "--require", "hmac,signature")


# ---- attest


class Attest(Files):
    def setUp(self) -> None:
        super().setUp()
        self.request, self.output = self.key(REQUEST), self.key(OUTPUT)
        self.evidence = ("--request", self.request, "--output", self.output)
        self.proof = self.key(json.dumps(RECORD).encode())

    def test_a_record_made_with_openssl_verifies(self) -> None:
        ran = self.good("attest", "verify", self.proof, *self.evidence, "--pub", self.pub)
        self.assertEqual(ran.out.count(": ok ("), 5)
        self.good("attest", "verify", self.proof, *self.evidence, VLLM_VQF_SIGN_PUB=PUBLIC.hex())
        other = self.key(json.dumps(RECORD_OTHER).encode())
        self.good("attest", "verify", other, *self.evidence, "--pub", self.other)

    def test_each_failure_is_1_and_says_its_code(self) -> None:
        wrong, empty = self.key(b"wrong"), self.key(b"")
        for code, proof, request, output, pub in (
            ("attest.sm2.signature", self.proof, self.request, self.output, self.other),
            ("attest.body.tag", self.proof, wrong, self.output, self.pub),
            ("attest.digest.tag", self.proof, self.request, wrong, self.pub),
            ("json.syntax.json", empty, self.request, self.output, self.pub),
            ("attest.field.missing", self.key(b"{}"), self.request, self.output, self.pub),
        ):
            ran = run("attest", "verify", proof, "--request", request, "--output", output, "--pub", pub)
            self.assertEqual((ran.status, ran.err), (1, ""))
            self.assertIn("error[%s]" % code, ran.out)

    def test_json_has_the_shape_of_all_read_verbs(self) -> None:
        for pub, status in ((self.pub, 0), (self.other, 1)):
            ran = run("attest", "verify", self.proof, *self.evidence, "--pub", pub, "--json")
            result = json.loads(ran.out)
            self.assertEqual(set(result), {"file", "format", "ok", "findings", "steps"})
            self.assertEqual((ran.status, result["ok"], result["file"]), (status, status == 0, self.proof))
            self.assertEqual(len(result["steps"]), 5)

    def test_without_a_key_it_is_2(self) -> None:
        self.fails(2, "public key", "attest", "verify", self.proof, *self.evidence)
        self.fails(2, "private key", "attest", "make", self.key(json.dumps(FREE).encode()), *self.evidence)
        self.fails(2, "ACTION", "attest")

    def test_a_missing_file_is_3(self) -> None:
        missing = os.path.join(self.work, "no")
        key = ("--pub", self.pub)
        self.fails(3, missing, "attest", "verify", missing, *self.evidence, *key)
        self.fails(3, missing, "attest", "verify", self.proof, "--request", missing, "--output", self.output, *key)
        self.fails(3, missing, "attest", "verify", self.proof, "--request", self.request, "--output", missing, *key)
        self.fails(3, missing, "attest", "make", missing, *self.evidence, "--priv", self.priv)
        self.fails(3, missing, "attest", "fingerprint", missing, "--name", "x")

    def test_what_is_made_is_right_and_verifies(self) -> None:
        fields = self.key(json.dumps(FREE, ensure_ascii=False).encode())
        argv = ("attest", "make", fields, *self.evidence, "--priv", self.priv)
        text = self.good(*argv).out
        out = os.path.join(self.work, "proof.json")
        self.assertEqual(self.good(*argv, "-o", out).out, "")
        for record in (json.loads(text), json.loads(self.read(out))):
            self.assertEqual({**record, "signature": RECORD["signature"]}, RECORD)
            self.assertTrue(sm2_verifies(PUBLIC, covered(record), bytes.fromhex(record["signature"]), b"VLLM-ATTEST-1"))
        self.good("attest", "verify", out, *self.evidence, "--pub", self.pub)

    def test_fields_that_do_not_make_a_record(self) -> None:
        out = os.path.join(self.work, "proof.json")
        argv = (*self.evidence, "--priv", self.priv, "-o", out)
        for status, code, data in (
            (2, "object", b"[]"), (2, "model_fp", b"{}"), (2, "schema", json.dumps({**FREE, "schema": 9}).encode()),
            (2, "schema", json.dumps({**FREE, "schema": [3]}).encode()), (2, "user", json.dumps({**FREE, "user": 1}).encode()),
            (1, "json.syntax.json", b""), (1, "json.key.duplicate", b'{"a": 1, "a": 2}'),
        ):  # fmt: skip
            with self.subTest(data=data):
                self.fails(status, code, "attest", "make", self.key(data), *argv)

    def test_the_fingerprint_is_that_of_openssl(self) -> None:
        folder = os.path.join(self.folder, "model")
        os.mkdir(folder)
        with open(os.path.join(folder, "config.json"), "wb") as file:
            file.write(b'{"hidden_size": 32}\n')
        argv = ("attest", "fingerprint", folder, "--name", "mini", "--dir", "/models/mini")
        self.assertEqual(self.good(*argv).out, "0dc75ba9268b24de835733669bb920dc6067dd6937dae45af0e79858bea4abef\n")
        self.fails(2, "--name", "attest", "fingerprint", folder)
        os.unlink(os.path.join(folder, "config.json"))
        self.fails(1, "attest.config.missing", *argv)


if __name__ == "__main__":
    unittest.main()

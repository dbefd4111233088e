"""cat, hash and diff through the command line: bytes, values, .npy headers, lists of hashes, differences, exit codes.

What is printed is held against the files' bytes, hashlib, numpy's own headers (kat/files/numbers/npy.json, made by
kat/gen/blocks.py) and the models of tests/test_decode_vqf.py.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import math
import os
import struct
import tempfile
import unittest
from collections import namedtuple
from pathlib import Path
from unittest import mock

from tests import samples
from tests.samples import WORD, patch, place_of, real
from tests.test_decode_vqf import PASSPHRASE, made, matrix
from tests.test_floats import stored
from tests.test_safetensors import FILES as ST
from tests.test_safetensors import entry, file
from vqfref.cli import main
from vqfref.cli.tensors import npy_header
from vqfref.crypto.sm3 import SM3

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Sequence

PLAIN = str(samples.FILES / "mini-q4-h448-plain.vqf")
ENC = str(samples.FILES / "mini-q4-h448-enc.vqf")
DTYPES, ODD = str(ST / "dtypes.safetensors"), str(ST / "odd.safetensors")

Run = namedtuple("Run", "status out err")


class Terminal(io.TextIOWrapper):
    def isatty(self) -> bool:
        return True


def run(*argv: str, terminal: bool = False) -> Run:
    """One command line in this process: status, the bytes of stdout, the text of stderr."""
    out = (Terminal if terminal else io.TextIOWrapper)(io.BytesIO(), encoding="utf-8", newline="\n")
    err = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", newline="\n")
    kept = {k: v for k, v in os.environ.items() if not k.startswith("VLLM_VQF_")}
    with mock.patch.dict(os.environ, kept, clear=True), contextlib.redirect_stdout(out), contextlib.redirect_stderr(
        err
    ):
        status = main(list(argv))
    for stream in (out, err):
        stream.flush()
    return Run(status, out.buffer.getvalue(), err.buffer.getvalue().decode())


def f32s(values: Sequence[float]) -> bytes:
    return struct.pack("<%df" % len(values), *values)


def flat(rows: Sequence[Sequence[float]]) -> list[float]:
    return [v for row in rows for v in row]


class Case(unittest.TestCase):
    maxDiff = None

    def folder(self) -> str:
        if not hasattr(self, "_folder"):
            self._folder = tempfile.TemporaryDirectory()
            self.addCleanup(self._folder.cleanup)
        return self._folder.name

    def put(self, name: str, data: bytes | str) -> str:
        path = os.path.join(self.folder(), name)
        Path(path).write_bytes(data.encode("utf-8", "surrogateescape") if isinstance(data, str) else data)
        return path

    def model(self, name: str) -> str:
        return self.put(name.replace(" ", "-") + ".vqf", made(name).data)

    def passphrase(self) -> str:
        return self.put("passphrase", PASSPHRASE + b"\n")

    def good(self, *argv: str) -> bytes:
        r = run(*argv)
        self.assertEqual((r.status, r.err), (0, ""), argv)
        return r.out

    def fails(self, status: int, words: str, *argv: str) -> Run:
        r = run(*argv)
        self.assertEqual(r.status, status, (argv, r))
        self.assertIn(words, r.err)
        self.assertEqual(r.out, b"", argv)
        return r


class Cat(Case):
    def test_the_bytes_as_stored_are_what_comes_without_a_form(self) -> None:
        data = real("h448-plain")
        for name in ("token_embed", "final_norm", "q4_q", "q4_lm"):
            offset, size = place_of(data, name)
            for argv in ((), ("--as", "stored"), ("--backend", "pread"), ("--layer", "0")):
                self.assertEqual(self.good("cat", PLAIN, name, *argv), data[offset : offset + size], (name, argv))

    def test_stored_bytes_of_an_encrypted_file_are_ciphertext_and_need_no_key(self) -> None:
        offset, size = place_of(real("h448-enc"), "q4_q")
        self.assertEqual(self.good("cat", ENC, "q4_q"), real("h448-enc")[offset : offset + size])

    def test_stored_bytes_of_a_layer_or_an_expert(self) -> None:
        path, data = self.model("moe"), made("moe").data
        offset, size = place_of(data, "q4_gate")
        self.assertEqual(self.good("cat", path, "q4_gate", "--layer", "1"), data[offset + size // 2 : offset + size])
        third = size // 6  # an expert's rows follow one another
        want = data[offset + size // 2 + third : offset + size // 2 + 2 * third]
        self.assertEqual(self.good("cat", path, "q4_gate", "--layer", "1", "--expert", "1"), want)
        # Its columns of down do not: 16 groups of 4 rows with three tiles of 72 bytes each.
        offset, _ = place_of(data, "q4_down")
        want = b"".join(data[offset + 216 * g + 72 : offset + 216 * g + 144] for g in range(16))
        self.assertEqual(self.good("cat", path, "q4_down", "--layer", "0", "--expert", "1"), want)

    def test_values_are_little_endian_f32(self) -> None:
        path = self.model("tiles")
        for name in ("q8_gate", "q4_gate", "x8_gate", "token_embed"):
            layers = made("tiles").tensors[name].layers
            whole = [flat(matrix("tiles", name, layer)) for layer in range(layers)]
            self.assertEqual(self.good("cat", path, name, "--as", "f32"), f32s(flat(whole)), name)
            last = str(layers - 1)
            self.assertEqual(self.good("cat", path, name, "--as", "f32", "--layer", last), f32s(whole[-1]), name)
            got = self.good("cat", path, name, "--as", "f32", "--layer", last, "--rows", "5:9")
            self.assertEqual(got, f32s(flat(matrix("tiles", name, layers - 1)[5:9])), name)

    def test_rows_as_python_slices(self) -> None:
        rows = matrix("tiles", "q8_lm", 0)
        path = self.model("tiles")
        for text in ("0:1", "3:", ":3", ":", "-2:", "-5:-3", "38:99", "7:7", "9:3"):
            want = f32s(flat(rows[slice(*[int(n) if n else None for n in text.split(":")])]))
            self.assertEqual(self.good("cat", path, "q8_lm", "--as", "f32", "--rows=" + text), want, text)

    def test_tiles_of_four_rows_are_the_caller_s_word(self) -> None:
        path = self.model("q8 4x4")
        want = f32s(flat(matrix("q8 4x4", "q8_up", 1)))
        self.assertEqual(self.good("cat", path, "q8_up", "--as", "f32", "--layer", "1", "--q8-tile", "4"), want)
        self.assertNotEqual(self.good("cat", path, "q8_up", "--as", "f32", "--layer", "1"), want)

    def test_values_of_an_encrypted_file_need_the_passphrase(self) -> None:
        want = self.good("cat", PLAIN, "q4_up", "--as", "f32")
        self.assertEqual(self.good("cat", ENC, "q4_up", "--as", "f32", "--passphrase-file", self.passphrase()), want)
        for form in ("f32", "npy", "text"):
            r = run("cat", ENC, "q4_up", "--as", form)
            self.assertEqual(r.status, 1)
            self.assertIn("error[vqf.enc.key]", r.err)

    def test_values_of_a_safetensors_file(self) -> None:
        for name, t in stored_values()["dtypes"]["tensors"].items():
            if t["f32"] is not None and "c07f" not in t["f32"]:
                self.assertEqual(self.good("cat", DTYPES, name, "--as", "f32").hex(), t["f32"], name)
            self.assertEqual(self.good("cat", DTYPES, name).hex(), t["bytes"], name)
        got = self.good("cat", DTYPES, "t.BF16", "--as", "f32", "--rows", "1:2").hex()
        self.assertEqual(got, stored_values()["dtypes"]["tensors"]["t.BF16"]["f32"][32:64])
        r = run("cat", DTYPES, "t.C64", "--as", "f32")
        self.assertEqual(r.status, 1)
        self.assertIn("error[st.decode.unsupported]", r.err)

    def test_text_has_nine_digits_and_a_line_a_row(self) -> None:
        for argv, rows in (
            (("tiles", "q8_q", "--layer", "1"), matrix("tiles", "q8_q", 1)),
            (("tiles", "q8_q", "--layer", "1", "--rows", "3:5"), matrix("tiles", "q8_q", 1)[3:5]),
            (("moe", "q4_down", "--layer", "0", "--expert", "2"), [r[64:96] for r in matrix("moe", "q4_down", 0)]),
            (("vision", "v_q8_fc2", "--layer", "1"), [r[:40] for r in matrix("vision", "v_q8_fc2", 1)]),
        ):
            lines = self.good("cat", self.model(argv[0]), *argv[1:], "--as", "text").decode().splitlines()
            self.assertEqual(lines, [" ".join("%.9g" % v for v in row) for row in rows], argv)

    def test_text_of_other_ranks(self) -> None:
        rows = {"a": entry("U8", [3], [0, 3]), "b": entry("U8", [2, 1, 3], [3, 9]), "c": entry("U8", [], [9, 10])}
        path = self.put("x.safetensors", file(rows, bytes(range(10))))
        for name, want in (("a", b"0\n1\n2\n"), ("b", b"3 4 5\n6 7 8\n"), ("c", b"9\n")):
            self.assertEqual(self.good("cat", path, name, "--as", "text"), want)

    def test_text_tells_every_single_from_its_neighbour(self) -> None:
        values = [0.1, 1 / 3, 16777217.0, 3.4028234663852886e38, 1e-45, -0.0, math.inf, -math.inf, math.nan, 1e-7]
        singles = struct.unpack("<10f", struct.pack("<10f", *values))
        path = self.put("x.safetensors", file({"a": entry("F32", [10], [0, 40])}, struct.pack("<10f", *values)))
        words = self.good("cat", path, "a", "--as", "text").split()
        again = struct.unpack("<10f", struct.pack("<10f", *map(float, words)))
        self.assertEqual(list(map(repr, again)), list(map(repr, singles)))
        self.assertEqual(words[4:9], [b"1.40129846e-45", b"-0", b"inf", b"-inf", b"nan"])

    def test_a_tensor_without_values_is_no_bytes(self) -> None:
        for name in ("empty", "no columns"):
            for form in ("stored", "f32", "text"):
                self.assertEqual(self.good("cat", ODD, name, "--as", form), b"")

    def test_an_out_file_is_written_whole_or_not_at_all(self) -> None:
        out = os.path.join(self.folder(), "out")
        self.assertEqual(self.good("cat", PLAIN, "q4_q", "-o", out), b"")
        offset, size = place_of(real("h448-plain"), "q4_q")
        self.assertEqual(Path(out).read_bytes(), real("h448-plain")[offset : offset + size])
        self.good("cat", PLAIN, "final_norm", "--as", "text", "-o", out)
        self.assertEqual(len(Path(out).read_text().split()), 32)
        old = Path(out).read_bytes()
        for argv in ((ENC, "q4_q", "--as", "f32"), (PLAIN, "nothing"), (PLAIN, "q4_q", "--layer", "1", "--as", "npy")):
            self.assertNotEqual(run("cat", *argv, "-o", out).status, 0)
            self.assertEqual(Path(out).read_bytes(), old)
        self.assertEqual(sorted(os.listdir(self.folder())), ["out"])

    def test_binary_never_goes_to_a_terminal(self) -> None:
        for form in ("stored", "f32", "npy"):
            r = run("cat", PLAIN, "q4_q", "--as", form, terminal=True)
            self.assertEqual((r.status, r.out), (2, b""))
            self.assertIn("--as text", r.err)
        r = run("cat", PLAIN, "final_norm", "--as", "text", terminal=True)
        self.assertEqual((r.status, len(r.out.split())), (0, 32))
        out = os.path.join(self.folder(), "out")
        self.assertEqual(run("cat", PLAIN, "q4_q", "-o", out, terminal=True).status, 0)
        self.assertEqual(os.path.getsize(out), 576)

    def test_wrong_usage_is_2(self) -> None:
        moe, odd = self.model("moe"), ODD
        for words, argv in (
            ("no tensor 'q4_p'", (PLAIN, "q4_p")),
            ("did you mean", (PLAIN, "q4_gaet", "--as", "text")),
            ("layer 1", (PLAIN, "q4_q", "--layer", "1")),
            ("layer -1", (PLAIN, "q4_q", "--layer", "-1", "--as", "f32")),
            ("layer 1", (PLAIN, "token_embed", "--layer", "1", "--as", "f32")),
            ("expert 3", (moe, "q4_up", "--layer", "0", "--expert", "3")),
            ("expert 0", (moe, "q4_q", "--layer", "0", "--expert", "0", "--as", "f32")),
            ("which layer", (moe, "moe_router", "--rows", "0:1", "--as", "f32")),
            ("which expert", (moe, "q4_up", "--layer", "0", "--rows", "0:1", "--as", "f32")),
            ("--rows", (PLAIN, "q4_q", "--rows", "0:1")),
            ("no layers", (odd, "tab\tname", "--layer", "0")),
            ("no experts", (odd, "tab\tname", "--expert", "0", "--as", "f32")),
            ("scalar", (odd, "scalar", "--rows", "0:1", "--as", "f32")),
            ("--rows", (PLAIN, "q4_q", "--as", "f32", "--rows", "3")),
            ("--rows", (PLAIN, "q4_q", "--as", "f32", "--rows", "a:b")),
            ("--rows", (PLAIN, "q4_q", "--as", "f32", "--rows", "1:2:3")),
            ("--as", (PLAIN, "q4_q", "--as", "f16")),
            ("TENSOR", (PLAIN,)),
        ):
            with self.subTest(argv):
                self.fails(2, words, "cat", *argv)

    def test_a_missing_file_is_3_and_a_bad_one_1(self) -> None:
        self.fails(3, "no-such", "cat", os.path.join(self.folder(), "no-such.vqf"), "q4_q")
        self.fails(1, "error[vqf.header.magic]", "cat", self.put("bad", b"no weights" * 100), "q4_q")
        self.fails(1, "error[st.length.truncated]", "cat", self.put("bad.safetensors", b""), "a")


def stored_values() -> Any:
    return json.loads((ST / "values.json").read_text(encoding="utf-8"))


class Npy(Case):
    def test_headers_are_numpy_s_byte_for_byte(self) -> None:
        cases = stored("npy.json")
        self.assertGreater(len(cases), 20)
        for shape, want in cases:
            self.assertEqual(npy_header(tuple(shape)).hex(), want, shape)

    def header(self, *shape: int) -> bytes:
        """numpy's header for a shape."""
        return next(bytes.fromhex(h) for s, h in stored("npy.json") if s == list(shape))

    def test_layers_and_experts_stand_before_the_matrix(self) -> None:
        tiles, moe = self.model("tiles"), self.model("moe")
        for path, argv, shape in (
            (tiles, ("q8_lm",), (40, 64)),
            (tiles, ("q8_q",), (2, 32, 64)),
            (tiles, ("q8_q", "--layer", "1"), (32, 64)),
            (tiles, ("q8_q", "--layer", "1", "--rows", "4:9"), (5, 64)),
            (tiles, ("q8_q", "--layer", "1", "--rows", "30:99"), (2, 64)),
            (tiles, ("q8_q", "--layer", "1", "--rows", "9:3"), (0, 64)),
            (tiles, ("final_norm",), (64,)),
            (tiles, ("attn_norm",), (2, 64)),
            (tiles, ("attn_norm", "--layer", "0"), (64,)),
            (moe, ("q4_gate",), (2, 3, 32, 64)),
            (moe, ("q4_down",), (2, 3, 64, 32)),
            (moe, ("q4_gate", "--layer", "1"), (3, 32, 64)),
            (moe, ("q4_gate", "--layer", "1", "--expert", "2"), (32, 64)),
            (moe, ("q4_gate", "--expert", "2"), (2, 32, 64)),
            (moe, ("q4_gate", "--layer", "1", "--expert", "2", "--rows", "0:7"), (7, 64)),
            (DTYPES, ("t.BF16",), (3, 4)),
            (DTYPES, ("t.BF16", "--rows", "1:3"), (2, 4)),
            (ODD, ("scalar",), ()),
            (ODD, ("empty",), (0,)),
            (ODD, ("no columns",), (5, 0)),
            (ODD, ("odd.byte",), (1,)),
            (ODD, ("rank 12",), (1,) * 11 + (2,)),
            (ODD, ("tab\tname", "--rows", "2:5"), (3,)),
        ):
            with self.subTest(argv):
                data = self.good("cat", path, *argv, "--as", "npy")
                self.assertEqual(data[:8], b"\x93NUMPY\1\0")
                start = 10 + struct.unpack_from("<H", data, 8)[0]
                self.assertEqual(start % 64, 0)
                self.assertTrue(data[:start].endswith(b" \n"))
                self.assertIn(b"'shape': %s, " % str(shape).encode(), data[:start])
                self.assertEqual(len(data) - start, 4 * math.prod(shape))
                self.assertEqual(data[start:], self.good("cat", path, *argv, "--as", "f32"))

    def test_a_whole_file_is_numpy_s_header_and_the_values(self) -> None:
        values = f32s(flat(matrix("moe", "q4_gate", 1)[32:64]))
        got = self.good("cat", self.model("moe"), "q4_gate", "--layer", "1", "--expert", "1", "--as", "npy")
        self.assertEqual(got, self.header(32, 64) + values)
        out = os.path.join(self.folder(), "x.npy")
        self.good("cat", DTYPES, "t.F32", "--as", "npy", "-o", out)
        self.assertEqual(Path(out).read_bytes()[-48:].hex(), stored_values()["dtypes"]["tensors"]["t.F32"]["f32"])

    def test_rows_of_a_vector_that_is_one_row(self) -> None:
        # A vector of VQF is one row: row 0 is all of it, and there is no other.
        path = self.model("tiles")
        values = f32s(flat(matrix("tiles", "attn_norm", 1)))
        got = self.good("cat", path, "attn_norm", "--layer", "1", "--rows", "0:1", "--as", "npy")
        self.assertEqual(got, self.header(64) + values)
        got = self.good("cat", path, "final_norm", "--rows", "1:2", "--as", "npy")
        self.assertEqual(len(got) % 64, 0, "no values")
        self.assertIn(b"'shape': (0,), ", got)


class Hash(Case):
    def expected(self, path: str, data: bytes, names: Sequence[str]) -> str:
        lines = []
        for name in names:
            offset, size = place_of(data, name)
            lines.append("%s  %s\n" % (hashlib.sha256(data[offset : offset + size]).hexdigest(), name))
        return "".join(lines)

    NAMES = (
        "token_embed", "final_norm", "attn_norm", "ffn_norm", "q_norm", "k_norm", "q4_q", "q4_k", "q4_v", "q4_o", "q4_gate",
        "q4_up", "q4_down", "q4_lm",
    )  # fmt: skip

    def test_lines_are_those_of_sha256sum_in_the_file_s_order(self) -> None:
        want = self.expected(PLAIN, real("h448-plain"), self.NAMES)
        self.assertEqual(self.good("hash", PLAIN).decode(), want)
        self.assertEqual(
            self.good("hash", PLAIN, "--backend", "pread", "--algo", "sha256", "--as", "stored").decode(), want
        )
        self.assertEqual(self.good("hash", ENC).decode(), self.expected(ENC, real("h448-enc"), self.NAMES))

    def test_sm3_of_the_same_bytes(self) -> None:
        data = real("h448-plain")
        lines = self.good("hash", PLAIN, "--algo", "sm3").decode().splitlines()
        for line, name in zip(lines, self.NAMES):
            offset, size = place_of(data, name)
            self.assertEqual(line, "%s  %s" % (SM3(data[offset : offset + size]).hexdigest(), name))
        self.assertEqual(len(lines), 14)

    def test_hashes_of_values_are_alike_in_every_layout_and_under_encryption(self) -> None:
        tiles = self.good("hash", self.model("tiles"), "--as", "f32")
        self.assertEqual(tiles, self.good("hash", self.model("rows"), "--as", "f32"))
        self.assertNotEqual(self.good("hash", self.model("tiles")), self.good("hash", self.model("rows")))
        line = (
            "%s  q4_up"
            % hashlib.sha256(f32s(flat(matrix("rows", "q4_up", 0) + matrix("rows", "q4_up", 1)))).hexdigest()
        )
        self.assertIn(line, tiles.decode().splitlines())
        plain = self.good("hash", PLAIN, "--as", "f32")
        self.assertEqual(self.good("hash", ENC, "--as", "f32", "--passphrase-file", self.passphrase()), plain)

    def test_hashes_of_values_without_the_passphrase_are_refused(self) -> None:
        r = run("hash", ENC, "--as", "f32")
        self.assertEqual(r.status, 1)
        self.assertIn("error[vqf.enc.key]", r.err)

    def test_a_safetensors_file(self) -> None:
        values = stored_values()["odd"]["tensors"]
        lines = self.good("hash", ODD).decode().splitlines()
        want = {hashlib.sha256(bytes.fromhex(t["bytes"])).hexdigest() for t in values.values()}
        self.assertEqual({line.split("  ", 1)[0] for line in lines}, want)
        self.assertIn("%s  tab\\tname" % hashlib.sha256(bytes.fromhex(values["tab\tname"]["bytes"])).hexdigest(), lines)

    def test_json(self) -> None:
        got = json.loads(self.good("hash", PLAIN, "--json"))
        self.assertEqual(
            [got[k] for k in ("file", "format", "ok", "findings", "algo", "as")],
            [PLAIN, "vqf", True, [], "sha256", "stored"],
        )
        lines = self.good("hash", PLAIN).decode().splitlines()
        self.assertEqual(["%s  %s" % (h, n) for n, h in got["hashes"].items()], lines)

    def test_a_list_checks_its_own_file_and_every_other_with_the_same_bytes(self) -> None:
        for path, options in (
            (PLAIN, ()), (ODD, ()), (ODD, ("--as", "f32")), (PLAIN, ("--algo", "sm3")), (PLAIN, ("--as", "f32")), (ENC, ()),
        ):  # fmt: skip
            found = self.good("hash", path, *options)
            listed = self.put("list", found)
            got = self.good("hash", path, *options, "--check", listed).decode().splitlines()
            self.assertEqual(got, ["%s: ok" % line.split("  ", 1)[1] for line in found.decode().splitlines()])
            capital = self.put(
                "list",
                "".join(h.upper() + "  " + n for h, n in (x.split("  ", 1) for x in found.decode().splitlines(True))),
            )
            self.good("hash", path, *options, "--check", capital)
        signed = str(samples.FILES / "mini-q4-h448-signed.vqf")
        self.good("hash", signed, "--check", self.put("list", self.good("hash", PLAIN)))

    def test_what_differs_is_missing_or_not_listed_is_1_and_named(self) -> None:
        data = real("h448-plain")
        path = self.put("changed.vqf", patch(data, place_of(data, "q4_v")[0] + 9, "B", 0x5A))
        lines = self.good("hash", PLAIN).decode().splitlines(True)
        listed = self.put("list", "".join(lines[:-1]) + "\n" + "0" * 64 + "  q8_lm\r\n")
        r = run("hash", path, "--check", listed)
        self.assertEqual((r.status, r.err), (1, ""))
        want = dict.fromkeys(self.NAMES, "ok")
        want.update({"q4_v": "FAILED", "q8_lm": "missing", "q4_lm": "not listed"})
        self.assertEqual(dict(line.split(": ") for line in r.out.decode().splitlines()), want)
        got = json.loads(run("hash", path, "--check", listed, "--json").out)
        self.assertEqual((got["ok"], got["results"], got["algo"]), (False, want, "sha256"))

    def test_an_empty_list_lists_nothing(self) -> None:
        r = run("hash", PLAIN, "--check", self.put("list", "\n\n"))
        self.assertEqual((r.status, {x.split(": ")[1] for x in r.out.decode().splitlines()}), (1, {"not listed"}))

    def test_a_list_of_another_form_is_2_and_a_missing_one_3(self) -> None:
        self.fails(2, "two spaces", "hash", PLAIN, "--check", self.put("list", "%s q4_q\n" % ("0" * 64)))
        self.fails(3, "no-list", "hash", PLAIN, "--check", os.path.join(self.folder(), "no-list"))
        self.fails(2, "--algo", "hash", PLAIN, "--algo", "md5")

    def test_a_list_of_any_bytes_raises_nothing(self) -> None:
        r = run("hash", PLAIN, "--check", self.put("list", b"\xff\xfe\0  \x1b[2J\xff\n"))
        self.assertEqual(r.status, 1)
        self.assertNotIn(b"\x1b", r.out)

    def test_two_names_that_print_alike_are_both_checked(self) -> None:
        rows = {"a\tb": entry("U8", [1], [0, 1]), "a\\tb": entry("U8", [1], [1, 2]), " a  b": entry("U8", [0], [2, 2])}
        path = self.put("alike.safetensors", file(rows, b"\1\2"))
        listed = self.put("list", self.good("hash", path))
        self.assertEqual(run("hash", path, "--check", listed).status, 0)
        other = self.put("other.safetensors", file(rows, b"\3\2"))
        self.assertEqual(run("hash", other, "--check", listed).status, 1)


class Diff(Case):
    def differing(self, *argv: str) -> dict[str, str]:
        """name: result of the tensors that differ, from the JSON object, which must agree with the text."""
        r, text = run("diff", *argv, "--json"), run("diff", *argv)
        got = json.loads(r.out)
        found = {t["name"]: t for t in got["tensors"] if t["result"] != "same"}
        self.assertEqual((r.status, text.status, r.err, text.err), (1 if found else 0,) * 2 + ("", ""))
        self.assertEqual((got["ok"], got["file"], got["other"]), (not found, argv[0], argv[1]))
        lines = text.out.decode().splitlines()
        self.assertEqual(lines[-1], "%d of %d tensors differ" % (len(found), len(got["tensors"])))
        names = [line.split("  ")[0] for line in lines[:-1]]
        facts = ["FACT", *(f["name"] for f in got["facts"])] if got["facts"] else []
        self.assertEqual(names, (["TENSOR", *found] if found else []) + facts)
        self.figures = found
        return {name: t["result"] for name, t in found.items()}

    def st(self, name: str, dtype: str, shape: Sequence[int], data: bytes, **more: bytes) -> str:
        """A file of a tensor "a", and of more tensors of U8."""
        rows, whole = {"a": entry(dtype, shape, [0, len(data)])}, data
        for key, content in more.items():
            rows[key] = entry("U8", [len(content)], [len(whole), len(whole) + len(content)])
            whole += content
        return self.put(name + ".safetensors", file(rows, whole))

    def test_a_file_and_itself(self) -> None:
        for path in (PLAIN, ODD, DTYPES):
            self.assertEqual(self.differing(path, path), {})

    def test_other_layouts_encodings_and_seals_of_the_same_values_are_the_same(self) -> None:
        self.assertEqual(self.differing(self.model("tiles"), self.model("rows")), {})
        for kind in ("h448-enc", "h432-plain", "h432-enc-signed"):
            path = str(samples.FILES / ("mini-q4-%s.vqf" % kind))
            self.assertEqual(self.differing(PLAIN, path, "--passphrase-file", self.passphrase()), {}, kind)
        halves = self.st("halves", "F16", [3], struct.pack("<3e", 1.5, -2, 0))
        singles = self.st("singles", "F32", [3], struct.pack("<3f", 1.5, -2, 0))
        self.assertEqual(self.differing(halves, singles), {})

    def test_the_same_bytes_of_another_dtype_are_other_values(self) -> None:
        a, b = self.st("a", "F16", [2], b"\0\x3c\0\0"), self.st("b", "BF16", [2], b"\0\x3c\0\0")
        self.assertEqual(self.differing(a, b), {"a": "values"})
        self.assertEqual((self.figures["a"]["a"], self.figures["a"]["b"]), (1.0, 2.0**-7))

    def test_one_value_is_named_with_its_place_and_size(self) -> None:
        data = made("tiles").data
        offset, _ = place_of(data, "attn_norm")
        old = matrix("tiles", "attn_norm", 1)[0][6]
        other = self.put("other.vqf", patch(data, offset + 4 * 70, "f", old + 0.5))
        self.assertEqual(self.differing(self.model("tiles"), other), {"attn_norm": "values"})
        t = self.figures["attn_norm"]
        self.assertEqual(
            (t["count"], t["differing"], t["first"], t["a"], t["b"], t["max"]), (128, 1, 70, old, old + 0.5, 0.5)
        )
        self.assertAlmostEqual(t["rms"], math.sqrt(0.25 / 128))
        self.assertIn("1 of 128 values, first [70]", t["text"])

    def test_the_first_difference_has_its_offset_in_both_files(self) -> None:
        data = made("tiles").data
        for name, at, block in (("attn_norm", 280, 4), ("token_embed", 66, 2), ("q4_up", 5 * 72 + 20, 72)):
            start, _ = place_of(data, name)
            other = self.put("other.vqf", patch(data, start + at, "B", data[start + at] ^ 0x11))
            self.assertEqual(self.differing(self.model("tiles"), other), {name: "values"})
            offset = start + at // block * block
            self.assertEqual(self.figures[name]["offsets"], [offset, offset])
            self.assertIn("at 0x%x and 0x%x: " % (offset, offset), self.figures[name]["text"])
        a = self.st("a", "F32", [4], struct.pack("<4f", 1, 2, 3, 4))
        b = self.st("b", "F16", [4], struct.pack("<4e", 1, 2, 3, 5))
        self.differing(a, b)
        sizes = [os.path.getsize(path) for path in (a, b)]
        self.assertEqual(self.figures["a"]["offsets"], [sizes[0] - 4, sizes[1] - 2])

    def test_nan_in_one_file_alone_is_counted_and_is_the_largest_difference(self) -> None:
        a = self.st("a", "F32", [4], struct.pack("<4f", 1, 2, 3, 4))
        b = self.st("b", "F32", [4], struct.pack("<4f", 1, math.nan, 3, 1))
        for one, other in ((a, b), (b, a)):
            self.differing(one, other)
            t = self.figures["a"]
            self.assertEqual((t["differing"], t["nan"], t["first"]), (2, 1, 1))
            self.assertIn("max |d| nan, rms nan; 1 NaN", t["text"])

    def test_figures_over_several_values(self) -> None:
        a = self.st("a", "F32", [4], struct.pack("<4f", 1, 2, 3, 4))
        b = self.st("b", "F32", [4], struct.pack("<4f", 1, 2.5, 3, 1))
        self.assertEqual(self.differing(a, b), {"a": "values"})
        t = self.figures["a"]
        self.assertEqual((t["differing"], t["first"], t["a"], t["b"], t["max"]), (2, 1, 2.0, 2.5, 3.0))
        self.assertAlmostEqual(t["rms"], math.sqrt((0.25 + 9) / 4))

    def test_tensors_that_one_file_lacks_and_other_shapes(self) -> None:
        a = self.st("a", "F32", [2, 3], bytes(24), b=b"x", c=b"y")
        b = self.st("b", "F32", [3, 2], bytes(24), c=b"y", d=b"z")
        self.assertEqual(self.differing(a, b), {"a": "shape", "b": "missing", "d": "missing"})
        self.assertIn(a, self.figures["b"]["text"])
        self.assertIn(b, self.figures["d"]["text"])
        self.assertIn("[2, 3]", self.figures["a"]["text"])
        self.assertIn("[3, 2]", self.figures["a"]["text"])

    def test_two_formats(self) -> None:
        norm = struct.pack(
            "<32f", *struct.unpack_from("<32f", real("h448-plain"), place_of(real("h448-plain"), "final_norm")[0])
        )
        path = self.put("x.safetensors", file({"final_norm": entry("F32", [32], [0, 128])}, norm))
        got = self.differing(PLAIN, path)
        self.assertEqual((got.pop("final_norm", "same"), set(got.values()), len(got)), ("same", {"missing"}, 13))

    def test_nan_is_the_same_as_nan_and_zero_as_minus_zero(self) -> None:
        nan = struct.pack("<I", 0x7FC00000)
        a = self.st("a", "F32", [3], nan + struct.pack("<2f", 0.0, math.inf))
        b = self.st("b", "F32", [3], struct.pack("<I", 0xFFC00001) + struct.pack("<2f", -0.0, math.inf))
        self.assertEqual(self.differing(a, b), {})
        c = self.st("c", "F32", [3], struct.pack("<3f", 1.0, 0.0, math.inf))
        self.assertEqual(self.differing(a, c), {"a": "values"})
        self.assertEqual((self.figures["a"]["differing"], self.figures["a"]["first"]), (1, 0))

    def test_facts_of_the_header_are_listed_and_do_not_count(self) -> None:
        plain = real("h448-plain")
        a, b = self.put("a.vqf", plain), self.put("b.vqf", patch(plain, WORD["max_seq_len"], "I", 4096))
        r = run("diff", a, b)
        self.assertEqual((r.status, r.out.split(b"\n")[:3]), (0, [
            b"FACT              A     B", b"arch.max_seq_len  8192  4096", b"0 of 14 tensors differ"]))  # fmt: skip
        facts = json.loads(run("diff", a, b, "--json").out)["facts"]
        self.assertEqual(facts, [{"name": "arch.max_seq_len", "a": 8192, "b": 4096}])

    def test_large_tensors_are_compared_to_their_last_value(self) -> None:
        n = (1 << 18) + 3
        a = self.st("a", "U8", [n], bytes(n))
        b = self.st("b", "U8", [n], bytes(n - 1) + b"\1")
        self.assertEqual(self.differing(a, b), {"a": "values"})
        self.assertEqual((self.figures["a"]["first"], self.figures["a"]["count"]), (n - 1, n))
        c = self.st("c", "BF16", [n], bytes(2 * n - 1) + b"\x40")  # in other pieces
        self.assertEqual(self.differing(a, c), {"a": "values"})
        self.assertEqual((self.figures["a"]["first"], self.figures["a"]["b"]), (n - 1, 2.0))

    def test_what_cannot_be_decoded_is_compared_by_its_bytes_and_the_rest_goes_on(self) -> None:
        a = self.st("a", "C64", [2], bytes(16), z=b"\1")
        b = self.st("b", "C64", [2], bytes(15) + b"\1", z=b"\2")
        got = self.differing(a, b)
        self.assertEqual((sorted(got), got["z"]), (["a", "z"], "values"))
        self.assertEqual(self.differing(a, a), {})

    def test_wide_numbers_that_round_to_the_same_single_still_differ(self) -> None:
        for dtype, code, x, y in (
            ("I64", "q", 1 << 24, (1 << 24) + 1), ("U64", "Q", 1 << 63, (1 << 63) + 1), ("F64", "d", 1.0, 1.0 + 2.0**-40),
            ("I32", "i", 1 << 24, (1 << 24) + 1), ("U32", "I", 1 << 31, (1 << 31) + 1),
        ):  # fmt: skip
            a = self.st("a", dtype, [2], struct.pack("<2" + code, x, 5))
            b = self.st("b", dtype, [2], struct.pack("<2" + code, y, 5))
            self.assertEqual(list(self.differing(a, b)), ["a"], dtype)

    def test_an_encrypted_file_without_its_passphrase_cannot_be_compared(self) -> None:
        r = run("diff", PLAIN, ENC)
        self.assertEqual(r.status, 1)
        self.assertIn("error[vqf.enc.key]", r.err)

    def test_a_passphrase_that_makes_noise_is_warned_about_and_the_right_one_is_not(self) -> None:
        for key, words in ((b"another", "warning[vqf.passphrase.key]"), (PASSPHRASE, "")):
            path = self.put("key", key)
            r = run("diff", PLAIN, ENC, "--passphrase-file", path)
            self.assertEqual(r.status, int(bool(words)), r.err)
            self.assertIn(words, r.err) if words else self.assertEqual(r.err, "")

    def test_missing_files_are_3_and_bad_ones_1(self) -> None:
        self.fails(3, "no-such", "diff", PLAIN, os.path.join(self.folder(), "no-such"))
        self.fails(1, "error[st.length.truncated]", "diff", PLAIN, self.put("bad.safetensors", b""))
        self.fails(2, "OTHER", "diff", PLAIN)


if __name__ == "__main__":
    unittest.main()

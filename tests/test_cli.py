"""The command line: what it prints, to which stream, and with which status.

Offsets, sizes and values come from the format's specification and from the bytes of real files, hexdumps from the system's
`od`. Most runs are in this process; a fresh one where streams, signals or the locale matter.
"""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import time
import unittest
from contextlib import redirect_stderr, redirect_stdout
from unittest import mock

import vqfref
from vqfref.cli import ALL_VERBS, build_parser, main

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
FILES = os.path.join(ROOT, "kat", "files")
FLAGS = ["-" + "O" * sys.flags.optimize] * (sys.flags.optimize > 0) + ["-W" + w for w in sys.warnoptions]
OD = shutil.which("od")

# The closed list that ends every code, and the shape of a finding.
WORDS = (
    "truncated", "magic", "version", "header", "layout", "bounds", "overlap", "align", "dtype", "shape", "name",
    "duplicate", "json", "missing", "unsupported", "tag", "signature", "key", "iv", "range", "point", "limit", "policy",
)  # fmt: skip
FINDING_KEYS = {"code", "severity", "path", "offset", "field", "message", "engine"}
FINDING_LINE = re.compile(r"(error|warning|note)\[([a-z0-9]+(?:\.[a-z0-9]+)+)\] (?:@0x([0-9a-f]+)(?: (\S.*?))?: )?(.+)")

# ---- the header, by the specification

ARCH = {  # word index: name
    0: "dim", 1: "n_layers", 2: "n_heads", 3: "n_kv_heads", 4: "head_dim", 5: "ffn_dim", 6: "vocab_size", 7: "max_seq_len",
    8: "rope_theta", 9: "norm_eps", 10: "bos_id", 11: "eos_id", 12: "has_q_norm", 13: "has_mrope", 14: "head_dim_full",
    15: "kv_lora_rank", 16: "has_vision", 17: "vis_depth", 18: "vis_hidden", 19: "vis_heads", 20: "vis_ffn",
    21: "vis_patch", 22: "vis_temporal", 23: "vis_merge", 24: "vis_out_dim", 25: "vis_in_chan", 26: "vis_max_pos",
    27: "vis_ds_count", 28: "mrope_n_sec", 29: "vis_ds_idx", 33: "mrope_sections", 37: "vision_start_id",
    38: "vision_end_id", 39: "image_token_id", 40: "video_token_id",
    41: "n_experts", 42: "moe_ffn", 43: "top_k", 44: "shared_experts",
}  # fmt: skip
SIG = (
    ("pub", 0, 64), ("r", 64, 32), ("s", 96, 32), ("digest", 128, 32), ("id", 160, 32), ("id_len", 192, 4),
    ("reserved", 196, 4),
)  # fmt: skip
TENSOR = (
    ("name", 0, 32), ("qtype", 32, 4), ("rows", 36, 4), ("cols", 40, 4), ("pad", 44, 4), ("offset", 48, 8),
    ("bytes", 56, 8),
)  # fmt: skip
TAIL = {  # bytes of the header: words of arch, then the offsets of pad, data_offset, file_len, enc_iv, enc_rsvd, sig
    232: (41, 180, 184, 192, 200, 216, None),
    432: (41, 180, 184, 192, 200, 216, 232),
    448: (45, 196, 200, 208, 216, 232, 248),
}


def header_fields(form: int) -> list[tuple[int, int, str]]:
    """(offset, size, name) of every field of a header."""
    words, pad, data_offset, file_len, enc_iv, enc_rsvd, sig = TAIL[form]
    fields = [(0, 4, "magic"), (4, 4, "version"), (8, 4, "flags"), (12, 4, "n_tensors")]
    for index, name in ARCH.items():
        if index < words:
            size = 16 if name in ("vis_ds_idx", "mrope_sections") else 4
            fields.append((16 + 4 * index, size, "arch." + name))
    fields += [(pad, 4, "pad"), (data_offset, 8, "data_offset"), (file_len, 8, "file_len")]
    fields += [(enc_iv, 16, "enc_iv"), (enc_rsvd, 16, "enc_rsvd")]
    if sig is not None:
        fields += [(sig + offset, size, "sig." + name) for name, offset, size in SIG]
    return fields


def entry_fields(index: int, prefix: str, start: int = 448) -> list[tuple[int, int, str]]:
    """The same of a directory entry."""
    return [(start + 64 * index + offset, size, prefix + "." + name) for name, offset, size in TENSOR]


def says(name: str, raw: bytes, value: str) -> bool:
    """Does the text of a value say what the bytes hold?"""
    name = name.rpartition(".")[2]
    if name in ("rope_theta", "norm_eps"):
        return struct.pack("<f", float(value)) == raw
    if name in ("vis_ds_idx", "mrope_sections"):
        return tuple(map(int, value.split())) == struct.unpack("<4i", raw)
    if name in ("name", "id"):
        return value == repr(raw.partition(b"\0")[0].decode("ascii"))
    if name in ("pad", "enc_iv", "enc_rsvd", "pub", "r", "s", "digest"):
        return value == (raw.hex() if any(raw) else "zero")
    if len(raw) == 8:
        number = struct.unpack("<Q", raw)[0]
        return value == "%d (0x%x)" % (number, number)
    return int(value, 0) == struct.unpack("<I", raw)[0]


# ---- files


def sample(name: str) -> str:
    return os.path.join(FILES, "mini-q4-%s.vqf" % name)


def read(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


PLAIN, OLD_PLAIN = sample("h448-plain"), sample("h432-plain")
ALL_FILES = [sample(form + kind) for form in ("h448-", "h432-") for kind in ("plain", "enc", "signed", "enc-signed")]

# A version 1 header as the 2B model's file has it: 49 tensors, Q8_8X8 Q4_4X4 EMB_F16 VISION.
VERSION_1 = bytes.fromhex("46514657 01000000 63000000 31000000") + struct.pack(
    "<8I 2f 19I 4i 4i 4I I QQ 16s 16s",
    2048, 28, 16, 8, 128, 6144, 151936, 8192, 5000000.0, 1e-6, 151643, 151645, 1, 1, 128, 0,
    1, 24, 1024, 16, 4096, 16, 2, 2, 2048, 3, 2304, 3, 3, 5, 11, 17, 0, 24, 20, 20, 0, 151652, 151653, 151655, 151656,
    0, 4096, 4159295488, bytes(16), bytes(16),
)  # fmt: skip

F32, Q4_0, F16 = 1, 3, 5
MOE_TENSORS = (  # two layers of two experts of width 32; name, qtype, rows, cols, bytes
    ("token_embed", F16, 32, 32, 2048), ("final_norm", F32, 32, 1, 128), ("attn_norm", F32, 64, 1, 256),
    ("ffn_norm", F32, 64, 1, 256), ("moe_router", F32, 4, 32, 512), ("q4_q", Q4_0, 64, 32, 1152),
    ("q4_k", Q4_0, 64, 32, 1152), ("q4_v", Q4_0, 64, 32, 1152), ("q4_o", Q4_0, 64, 32, 1152),
    ("q4_gate", Q4_0, 128, 32, 2304), ("q4_up", Q4_0, 128, 32, 2304), ("q4_down", Q4_0, 64, 64, 2304),
    ("q4_lm", Q4_0, 32, 32, 576),
)  # fmt: skip


def moe_file() -> tuple[bytes, dict[str, int]]:
    """A version 3 file with flags 0x223, and where its tensors lie."""
    arch = {"dim": 32, "n_layers": 2, "n_heads": 1, "n_kv_heads": 1, "head_dim": 32, "ffn_dim": 64, "vocab_size": 32,
            "head_dim_full": 32, "n_experts": 2, "moe_ffn": 32, "top_k": 1}  # fmt: skip
    words = [arch.get(ARCH.get(i, ""), 0) for i in range(45)]
    directory, offsets, at = b"", {}, 4096
    for name, qtype, rows, cols, nbytes in MOE_TENSORS:
        offsets[name] = at
        directory += struct.pack("<32s4IQQ", name.encode(), qtype, rows, cols, 0, at, nbytes)
        at += (nbytes + 63) // 64 * 64
    header = struct.pack("<4I45I4xQQ", 0x57465146, 3, 0x223, len(MOE_TENSORS), *words, 4096, at)
    data = b"".join(b"\1" * nbytes + bytes(-nbytes % 64) for *_, nbytes in MOE_TENSORS)
    return (header.ljust(448, b"\0") + directory).ljust(4096, b"\0") + data + bytes(8), offsets


# ---- running


class Run:
    """The outcome of one command line."""

    def __init__(self, status: int, out: str, err: str) -> None:
        self.status, self.out, self.err = status, out, err
        self.lines = out.splitlines()

    @property
    def json(self) -> dict:
        return json.loads(self.out)


def run(*argv: str, encoding: str = "utf-8") -> Run:
    """One command line in this process."""
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding=encoding, newline="\n") for _ in range(2))
    with redirect_stdout(out), redirect_stderr(err):
        try:
            status = main(list(argv))
        except SystemExit as stop:
            status = stop.code
    texts = []
    for stream in (out, err):
        stream.flush()
        texts.append(stream.buffer.getvalue().decode(encoding))
    return Run(status, *texts)


def command(*argv: str | bytes, env: dict[str, str] | None = None, **how: object) -> subprocess.Popen:
    """One command line in a process of its own; stdout and stderr are pipes unless `how` says otherwise."""
    full = {k: v for k, v in os.environ.items() if k != "PYTHONUNBUFFERED"}
    full.update({"PYTHONPATH": ROOT}, **(env or {}))
    how = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **how}
    return subprocess.Popen([sys.executable, *FLAGS, "-m", "vqfref", *argv], env=full, **how)


def outcome(process: subprocess.Popen) -> tuple[int, bytes, bytes]:
    out, err = process.communicate(timeout=60)
    return process.returncode, out or b"", err or b""


def setUpModule() -> None:
    for name in ("VLLM_VQF_KEY", "VLLM_VQF_SIGN_PRIV", "VLLM_VQF_SIGN_PUB"):
        os.environ.pop(name, None)


class Case(unittest.TestCase):
    maxDiff = None

    def folder(self) -> str:
        """A folder for this test."""
        if not hasattr(self, "_folder"):
            self._folder = tempfile.TemporaryDirectory()
            self.addCleanup(self._folder.cleanup)
        return self._folder.name

    def write(self, name: str, data: bytes, length: int | None = None) -> str:
        """A file in it; `length` makes it longer by a hole."""
        path = os.path.join(self.folder(), name)
        with open(path, "wb") as file:
            file.write(data)
            if length is not None:
                file.truncate(length)
        return path

    def patched(self, source: str, *patches: tuple[int, bytes], name: str = "patched.vqf") -> str:
        """A copy of a real file with some bytes changed."""
        data = bytearray(read(source))
        for offset, new in patches:
            data[offset : offset + len(new)] = new
        return self.write(name, bytes(data))

    def in_folder(self) -> None:
        """Work in that folder until the end of the test."""
        self.addCleanup(os.chdir, os.getcwd())
        os.chdir(self.folder())

    def expect(self, r: Run, status: int, code: str | None = None) -> Run:
        self.assertEqual(r.status, status, r.out + r.err)
        if code is not None:
            self.assertIn("error[%s]" % code, r.out + r.err)
        return r


class Statuses(Case):
    """0 good, 1 the file is bad, 2 usage, 3 input or output, 130 interrupted, 141 nobody reads."""

    def test_a_good_file_is_0_for_every_read_verb(self) -> None:
        for path in ALL_FILES:
            for verb in ("info", "header", "ls", "check", "hexdump"):
                with self.subTest(verb, file=os.path.basename(path)):
                    r = self.expect(run(verb, path), 0)
                    self.assertEqual(r.err, "")
                    self.assertNotEqual(r.out, "")

    def test_a_bad_file_is_1_for_every_verb_that_judges(self) -> None:
        bad = self.write("bad.vqf", read(PLAIN)[:-1])
        for verb in ("info", "header", "ls", "check", "verify"):
            with self.subTest(verb):
                self.expect(run(verb, bad), 1, "vqf.size.truncated")

    def test_an_error_that_ends_a_verb_names_the_file_on_stderr(self) -> None:
        bad = self.write("bad.vqf", b"GGUF" + bytes(600))
        for verb in ("info", "ls", "verify"):
            r = self.expect(run(verb, bad), 1)
            self.assertEqual(r.out, "")
            self.assertTrue(r.err.startswith(bad + ": error[vqf.header.magic] @0x0 magic: "), r.err)

    def test_wrong_usage_is_2_and_prints_nothing_on_stdout(self) -> None:
        for argv in (
            ["nosuchverb"], [""], ["--nosuchoption"], ["info"], ["info", "--nosuchoption", PLAIN], ["check", PLAIN, PLAIN],
            ["hexdump", "-j", "ten", PLAIN], ["hexdump", PLAIN, "no_such_tensor"], ["ls", "--layer", "x", PLAIN],
            ["info", "--q8-tile", "3", PLAIN], ["info", "--backend", "floppy", PLAIN], ["help", "nosuchverb"],
        ):  # fmt: skip
            with self.subTest(argv=argv):
                r = self.expect(run(*argv), 2)
                self.assertEqual(r.out, "")
                self.assertRegex(r.err, r"(?m)^vqfref( [a-z]+)?: ")
                self.assertNotIn("Traceback", r.err)

    def test_main_returns_the_status_of_wrong_usage_and_does_not_raise(self) -> None:
        for argv in (["nosuchverb"], ["info"], ["--nosuchoption"]):
            with self.subTest(argv=argv), redirect_stderr(io.StringIO()):
                self.assertEqual(main(argv), 2)

    def test_what_cannot_be_read_is_3_and_says_which_file_and_why(self) -> None:
        paths = {"nothing.vqf": "No such file"}
        if hasattr(os, "mkfifo"):
            os.mkfifo(os.path.join(self.folder(), "fifo"))
            paths["fifo"] = "not a regular file"
        if hasattr(os, "symlink"):
            os.symlink("nothing.vqf", os.path.join(self.folder(), "link"))
            paths["link"] = "No such file"
        for name, why in paths.items():
            path = os.path.join(self.folder(), name)
            for argv in (["info"], ["header"], ["ls"], ["check"], ["verify"], ["hexdump"], ["check", "--json"], []):
                with self.subTest(name=name, argv=argv):
                    r = self.expect(run(*argv, path), 3)
                    self.assertEqual(r.out, "")
                    self.assertEqual(len(r.err.splitlines()), 1)
                    self.assertIn(path, r.err)
                    self.assertIn(why, r.err)

    def test_a_folder_has_no_bytes_of_its_own_and_an_empty_one_no_weights(self) -> None:
        for verb in ("header", "hexdump"):
            r = self.expect(run(verb, self.folder()), 3)
            self.assertEqual((r.out, r.err), ("", "vqfref: %s: Is a directory\n" % self.folder()))
        for verb in ("info", "ls", "check", "verify"):
            r = self.expect(run(verb, self.folder()), 1)
            self.assertRegex(r.out + r.err, r"(?m)error\[[a-z.]+\.missing\] ")

    @unittest.skipUnless(hasattr(os, "seteuid"), "this system has no user ids")
    def test_a_file_without_permission_is_3(self) -> None:
        path = self.write("secret.vqf", read(PLAIN))
        os.chmod(path, 0)
        os.chmod(self.folder(), 0o755)
        run("check", PLAIN), run("info", PLAIN)  # loads all modules while it is allowed to
        me = os.geteuid()
        if me == 0:
            try:
                os.seteuid(65534)
            except OSError:
                self.skipTest("this root can't become somebody else")
        try:
            results = [run("check", path), run("info", path)]
        finally:
            os.seteuid(me)
        for r in results:
            self.expect(r, 3)
            self.assertEqual(r.err, "vqfref: %s: Permission denied\n" % path)

    def test_an_interruption_is_130_and_one_line(self) -> None:
        for verb in ("check.run_check", "show.run_ls"):
            with mock.patch("vqfref.cli." + verb, side_effect=KeyboardInterrupt):
                r = self.expect(run(verb.partition("_")[2], PLAIN), 130)
            self.assertEqual((r.out, r.err), ("", "vqfref: interrupted\n"))

    def test_a_closed_pipe_ends_silently_with_141(self) -> None:
        for argv in (["info", PLAIN], ["hexdump", "-v", "-j", "0", PLAIN], ["help", "ls"]):
            with self.subTest(argv=argv):
                reader, writer = os.pipe()
                os.close(reader)
                process = command(*argv, stdout=writer)
                os.close(writer)
                self.assertEqual(outcome(process), (141, b"", b""))

    def test_a_reader_that_stops_early_gets_its_bytes_and_141_follows(self) -> None:
        big = self.write("big.vqf", read(PLAIN) + bytes(1 << 16))
        process = command("hexdump", "-v", "-j", "0", big)
        self.assertEqual(process.stdout.read(10), b"000000 46 ")
        process.stdout.close()
        err = process.stderr.read()
        process.stderr.close()
        self.assertEqual((process.wait(60), err), (141, b""))

    @unittest.skipUnless(hasattr(os, "fork"), "needs fork")
    def test_with_stdout_closed_the_status_is_the_verbs_own(self) -> None:
        bad = self.write("bad.vqf", read(PLAIN)[:-1])
        for path, status in ((PLAIN, 0), (bad, 1)):
            process = command("check", path, stdout=None, preexec_fn=lambda: os.close(1))
            self.assertEqual(outcome(process), (status, b"", b""))

    @unittest.skipUnless(hasattr(os, "fork"), "needs fork")
    def test_with_stderr_closed_nothing_of_it_goes_to_stdout(self) -> None:
        bad = self.write("bad.vqf", read(PLAIN)[:-1])
        process = command("verify", PLAIN, stderr=None, preexec_fn=lambda: os.close(2))
        status, out, _ = outcome(process)
        self.assertEqual((status, out[:12]), (0, b"checksum: ok"))
        process = command("verify", bad, stderr=None, preexec_fn=lambda: os.close(2))
        self.assertEqual(outcome(process)[:2], (1, b""))

    @unittest.skipUnless(os.path.exists("/dev/full"), "this system has no /dev/full")
    def test_a_full_disk_is_3_and_one_line(self) -> None:
        for argv in (["info", PLAIN], ["hexdump", "-v", "-j", "0", PLAIN]):
            with self.subTest(argv=argv), open("/dev/full", "wb") as full:
                status, _, err = outcome(command(*argv, stdout=full))
                self.assertEqual((status, err), (3, b"vqfref: No space left on device\n"))

    def test_python_m_vqfref_ends_with_the_status(self) -> None:
        status, out, err = outcome(command("check", PLAIN))
        self.assertEqual((status, out, err), (0, b"clean; the engine would load this file\n", b""))
        status, out, err = outcome(command("nosuchverb"))
        self.assertEqual((status, out), (2, b""))
        self.assertNotIn(b"Traceback", err)


class Words(Case):
    """Verbs, file names and options."""

    def test_a_file_alone_is_info(self) -> None:
        self.assertEqual(run(PLAIN).out, run("info", PLAIN).out)
        self.assertEqual(run(PLAIN, "--json").json, run("info", "--json", PLAIN).json)

    def test_no_argument_is_help(self) -> None:
        r = self.expect(run(), 0)
        self.assertEqual(r.out, run("help").out)

    def test_a_file_that_is_named_like_a_verb(self) -> None:
        self.in_folder()
        self.write("check", read(PLAIN))
        self.expect(run("check"), 2)  # the verb, without a file
        self.assertEqual(self.expect(run("check", "check"), 0).out, "clean; the engine would load this file\n")
        r = self.expect(run("./check"), 0)
        self.assertEqual(r.lines[0].split(), ["file", "./check"])

    def test_a_file_whose_name_has_no_dot_or_begins_with_a_dash(self) -> None:
        self.in_folder()
        self.write("model", read(PLAIN))
        self.write("-x.vqf", read(PLAIN))
        self.assertEqual(self.expect(run("model"), 0).lines[0].split(), ["file", "model"])
        self.expect(run("check", "--", "-x.vqf"), 0)

    def test_version(self) -> None:
        r = self.expect(run("--version"), 0)
        self.assertEqual(r.out, "vqfref %s\n" % vqfref.__version__)
        self.assertRegex(vqfref.__version__, r"^\d+\.\d+\.\d+$")

    def test_both_ways_to_the_bytes_print_the_same(self) -> None:
        for argv in (["info"], ["header", "--directory"], ["ls"], ["verify"], ["hexdump", "-j", "0"]):
            outputs = {run(*argv, "--backend", backend, PLAIN).out for backend in ("mmap", "pread")}
            self.assertEqual(len(outputs), 1, argv)

    def test_a_name_that_is_not_utf_8(self) -> None:
        name = b"mod\xe9l.vqf"
        try:
            with open(os.path.join(os.fsencode(self.folder()), name), "wb") as file:
                file.write(read(PLAIN))
        except OSError:
            self.skipTest("this file system takes UTF-8 alone")
        self.in_folder()
        r = self.expect(run("info", os.fsdecode(name)), 0)
        self.assertEqual(r.lines[0].split(), ["file", r"mod\udce9l.vqf"])
        r = self.expect(run("check", "--json", os.fsdecode(name)), 0)
        self.assertEqual(os.fsencode(r.json["file"]), name)
        self.expect(run("check", os.fsdecode(b"no\xe9.vqf")), 3)
        status, out, err = outcome(command(name, cwd=self.folder()))
        self.assertEqual((status, err), (0, b""))
        self.assertEqual(out.splitlines()[0].split(), [b"file", rb"mod\udce9l.vqf"])

    def test_output_is_the_same_where_only_ascii_can_be_printed(self) -> None:
        for argv in (["info", PLAIN], ["header", PLAIN], ["ls", PLAIN], ["check", OLD_PLAIN], ["verify", PLAIN], ["env"],
                     ["hexdump", PLAIN], ["help"], ["help", "codes"], ["help", "hexdump"], ["nosuchverb\u20ac"]):  # fmt: skip
            with self.subTest(argv=argv):
                full, ascii_only = run(*argv), run(*argv, encoding="ascii")
                self.assertEqual(ascii_only.status, full.status)
                for a, b in ((full.out, ascii_only.out), (full.err, ascii_only.err)):
                    self.assertEqual(a.encode("ascii", "backslashreplace").decode(), b)
        env = {"LANG": "C", "LC_ALL": "C", "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
        status, out, err = outcome(command("hexdump", PLAIN, env=env))
        self.assertEqual((status, err), (0, b""))
        self.assertEqual(out.decode("ascii"), run("hexdump", PLAIN, encoding="ascii").out)

    def test_progress_shows_on_a_terminal_and_erases_itself(self) -> None:
        class Terminal(io.StringIO):
            def isatty(self) -> bool:
                return True

        err, out = Terminal(), io.StringIO()
        with redirect_stderr(err), redirect_stdout(out):
            self.assertEqual(main(["verify", PLAIN]), 0)
        self.assertNotIn("\n", err.getvalue())
        last = err.getvalue().split("\r")
        self.assertIn("100 %", last[-3])
        self.assertEqual((last[-2].strip(), last[-1]), ("", ""))
        self.assertGreaterEqual(len(last[-2]), len(last[-3]))
        self.assertEqual(out.getvalue(), run("verify", PLAIN).out)


class Help(Case):
    """help, --help, env."""

    def verbs(self) -> list[str]:
        return ALL_VERBS

    def test_help_lists_every_verb(self) -> None:
        r = self.expect(run("help"), 0)
        self.assertLessEqual({"info", "header", "ls", "hexdump", "check", "verify", "env", "help"}, set(self.verbs()))
        for verb in self.verbs():
            self.assertRegex(r.out, r"(?m)^ +%s +\S" % verb)

    def test_every_verb_explains_itself_with_an_example(self) -> None:
        for verb in self.verbs():
            with self.subTest(verb):
                r = self.expect(run(verb, "--help"), 0)
                self.assertRegex(r.out, r"(?m)^Example: (python3 -m )?vqfref %s( |$)" % verb)
                self.assertEqual(r.err, "")
                self.assertEqual(self.expect(run("help", verb), 0).out, r.out)

    def test_every_example_is_a_command_line_that_the_parser_takes(self) -> None:
        count = 0
        verbs, parser = self.verbs(), build_parser()
        for verb in verbs:
            for line in run(verb, "--help").lines:
                if line.startswith("Example: "):
                    words = line.split()[1:]
                    argv = words[words.index("vqfref") + 1 :]
                    argv = argv[: next((i for i, word in enumerate(argv) if word[0] in "<>|"), None)]  # the shell's
                    with self.subTest(line), redirect_stderr(io.StringIO()) as err:
                        try:
                            args = parser.parse_args(argv)
                        except SystemExit:
                            self.fail(err.getvalue())
                        self.assertTrue(callable(args.run))
                    count += 1
        self.assertGreaterEqual(count, len(verbs))

    def test_help_codes_prints_every_code_with_meaning_and_cure(self) -> None:
        from vqfref.codes import CODES

        r = self.expect(run("help", "codes"), 0)
        blocks: dict[str, str] = {}
        code = ""
        for line in r.lines:
            if line.startswith(" "):
                blocks[code] += " " + line.strip()
            else:
                code = line
                self.assertNotIn(code, blocks, "once")
                blocks[code] = ""
        self.assertEqual(list(blocks), sorted(CODES))
        for code, (meaning, cure) in CODES.items():
            self.assertIn(code.rpartition(".")[2], WORDS, code)
            self.assertEqual(" ".join(blocks[code].split()), " ".join(("%s Cure: %s" % (meaning, cure)).split()))

    def test_env_says_what_this_machine_is(self) -> None:
        facts = self.expect(run("env", "--json"), 0).json
        self.assertEqual(facts["vqfref"], vqfref.__version__)
        self.assertEqual(facts["python"], sys.version.split()[0])
        self.assertEqual(facts["byte_order"], sys.byteorder)
        self.assertEqual(facts["pointer_bits"], 8 * struct.calcsize("P"))
        self.assertIs(facts["modules"]["unittest"], True)
        self.assertRegex(run("env").out, r"(?m)^module unittest +yes ")


class Json(Case):
    """--json: one object, the same keys for every read verb."""

    def one_object(self, r: Run, path: str, blamed: str | None = None) -> dict:
        value = r.json
        self.assertLessEqual({"file", "format", "ok", "findings"}, set(value))
        self.assertEqual(value["file"], path)
        self.assertIs(value["ok"], r.status == 0)
        for f in value["findings"]:
            self.assertEqual(set(f), FINDING_KEYS)
            self.assertIn(f["severity"], ("error", "warning", "note"))
            self.assertIn(f["engine"], ("refuses", "accepts", "unknown"))
            self.assertIn(f["code"].rpartition(".")[2], WORDS)
            self.assertEqual(f["path"], blamed or path)
            self.assertIsInstance(f["message"], str)
            self.assertTrue(f["offset"] is None or (isinstance(f["offset"], int) and f["offset"] >= 0))
            self.assertTrue(f["field"] is None or isinstance(f["field"], str))
        if not value["ok"]:
            self.assertTrue(any(f["severity"] == "error" for f in value["findings"]))
        return value

    def test_every_read_verb_on_every_real_file(self) -> None:
        for path in ALL_FILES:
            for argv in (
                ["info"], ["header"], ["header", "--directory"], ["ls"], ["ls", "--layer", "0"], ["check"], ["verify"],
                ["hash"],
            ):  # fmt: skip
                with self.subTest(argv=argv, file=os.path.basename(path)):
                    r = run(*argv, "--json", path)
                    self.assertEqual(r.err, "")
                    self.assertEqual(self.one_object(r, path)["format"], "vqf")

    def test_every_read_verb_on_bad_files(self) -> None:
        for name, data in (("Empty", b""), ("cut", read(PLAIN)[:5000]), ("version1", VERSION_1.ljust(4096, b"\0")),
                           ("other", b"GGUF" + bytes(1000))):  # fmt: skip
            path = self.write(name, data)
            for argv in (["info"], ["header"], ["ls"], ["check"], ["verify"], ["hash"], ["diff", PLAIN]):
                with self.subTest(argv=argv, file=name):
                    r = self.expect(run(*argv, "--json", path), 1)
                    self.assertEqual(r.err, "")
                    self.one_object(r, (argv[1:] or [path])[0], blamed=path)

    def test_a_file_of_another_format_is_not_called_vqf(self) -> None:
        path = self.write("model.gguf", b"GGUF" + bytes(1000))
        for verb in ("info", "check", "header"):
            with self.subTest(verb):
                self.assertIsNone(run(verb, "--json", path).json["format"])

    def test_the_verbs_own_keys(self) -> None:
        info = run("info", "--json", PLAIN).json
        self.assertEqual((info["metadata"]["n_tensors"], info["metadata"]["arch"]["dim"]), (14, 32))
        self.assertEqual(info["engine"], "accepts")
        self.assertEqual([t["name"] for t in run("ls", "--json", PLAIN).json["tensors"]][6:8], ["q4_q", "q4_k"])
        self.assertEqual(run("check", "--json", PLAIN).json["engine"], "accepts")
        verify = run("verify", "--json", PLAIN).json
        self.assertIs(verify["authenticated"], False)
        self.assertEqual([(s["name"], s["result"]) for s in verify["steps"]], [("checksum", "ok")])

    def test_text_and_json_have_the_same_findings(self) -> None:
        files = {
            "cut": read(PLAIN)[:5000], "empty": b"", "long": read(PLAIN) + b"x", "version1": VERSION_1.ljust(4096, b"\0"),
            "noisy": read(self.patched(
                PLAIN, (8, b"\x27\x04"), (16 + 15 * 4, b"\7"), (200 - 4, b"\1"), (232 + 3, b"\5"), (448 + 40, b"\1"),
                (448 + 64 + 31, b"x"), (448 + 2 * 64 + 48, b"\1"), (448 + 3 * 64 + 32, b"\x09"), (3000, b"abc"),
            )),
        }  # fmt: skip
        seen = set()
        for name, data in files.items():
            path = self.write(name, data)
            expected = []
            for f in run("check", "--json", path).json["findings"]:
                where = [] if f["offset"] is None else ["@0x%x" % f["offset"]]
                where += [] if f["field"] is None else [f["field"]]
                start = "%s[%s] " % (f["severity"], f["code"])
                expected.append(start + (" ".join(where) + ": " if where else "") + f["message"])
                seen.add(f["severity"])
            r = run("check", path)
            self.assertEqual(r.lines[:-1], expected, name)
            self.assertGreaterEqual(len(expected), 1, name)
            for line in r.lines[:-1]:
                self.assertRegex(line, FINDING_LINE)
            offsets = [f["offset"] or 0 for f in run("check", "--json", path).json["findings"]]
            self.assertEqual(offsets, sorted(offsets))
        self.assertLessEqual({"error", "warning"}, seen)
        self.assertGreaterEqual(len(run("check", os.path.join(self.folder(), "noisy")).lines), 10)


class Header(Case):
    """header: every field with offset, size, bytes, value and meaning."""

    def by_name(self, path: str) -> dict[str, dict]:
        return {row["field"]: row for row in run("header", "--json", path).json["fields"]}

    def expect_rows(self, path: str, form: int, directory: bool = False) -> list[dict]:
        """All rows of `header`, as JSON and as text, against the bytes of the file."""
        data = read(path)
        fields = header_fields(form)
        at = 0
        for offset, size, _ in fields:  # the table of this test: no gap, no overlap
            self.assertEqual(offset, at)
            at += size
        self.assertEqual(at, form)
        if directory:
            start = 256 if form == 232 else 448
            for i in range(struct.unpack_from("<I", data, 12)[0]):
                fields += entry_fields(i, "entry[%d]" % i, start)
        argv = ["header", path] + ["--directory"] * directory
        r = run(*argv, "--json")
        rows = r.json["fields"]
        self.assertEqual([(row["offset"], row["size"], row["field"]) for row in rows], fields)
        for row in rows:
            raw = data[row["offset"] : row["offset"] + row["size"]]
            self.assertEqual(set(row), {"offset", "size", "field", "raw", "value", "meaning"})
            self.assertEqual(row["raw"], raw.hex())
            self.assertTrue(says(row["field"], raw, row["value"]), row)
            self.assertTrue(row["meaning"], row)
        lines = run(*argv).lines
        self.assertEqual(lines[1].split(), ["OFFSET", "SIZE", "FIELD", "BYTES", "VALUE", "MEANING"])
        for line, row in zip(lines[2:], rows):
            cells = re.split(r" {2,}", line.strip())
            pairs = [row["raw"][i : i + 2] for i in range(0, 2 * row["size"], 2)]
            text = " ".join(pairs[:8]) + (" …" if len(pairs) > 8 else "")
            self.assertEqual(cells[:4], ["0x%03x" % row["offset"], str(row["size"]), row["field"], text])
            self.assertTrue(line.endswith("  " + row["meaning"]) and row["value"] in line, line)
        self.assertEqual([line for line in lines[2 + len(rows) :] if not FINDING_LINE.match(line)], [])
        return rows

    def test_every_field_of_both_forms(self) -> None:
        for path in ALL_FILES:
            with self.subTest(os.path.basename(path)):
                self.expect_rows(path, 448 if "h448" in path else 432)

    def test_floats_are_printed_with_all_their_digits(self) -> None:
        path = self.patched(PLAIN, (48, struct.pack("<2f", 16777215.0, 1 / 3)))
        values = {row["field"]: row["value"] for row in self.expect_rows(path, 448)}
        self.assertEqual(values["arch.rope_theta"], "16777215")

    def test_every_field_of_the_directory(self) -> None:
        for path in (PLAIN, OLD_PLAIN):
            self.expect_rows(path, 448 if "h448" in path else 432, directory=True)

    def test_a_moe_header(self) -> None:
        data, _ = moe_file()
        rows = {r["field"]: r for r in self.expect_rows(self.write("moe.vqf", data), 448, directory=True)}
        self.assertEqual((rows["arch.n_experts"]["offset"], rows["arch.n_experts"]["value"]), (180, "2"))
        self.assertIn("mixture of experts", rows["version"]["meaning"])
        self.assertEqual(rows["flags"]["meaning"], "Q8_8X8 Q4_4X4 EMB_F16 MOE")

    def test_the_byte_order_of_the_magic_is_explained_and_flags_are_spelled(self) -> None:
        rows = self.by_name(sample("h448-enc-signed"))
        self.assertEqual((rows["magic"]["raw"], rows["magic"]["value"]), ("46514657", "0x57465146"))
        self.assertIn("little-endian", rows["magic"]["meaning"])
        self.assertIn("FQFW", rows["magic"]["meaning"])
        self.assertEqual(rows["flags"]["value"], "0x1a3")
        self.assertEqual(rows["flags"]["meaning"], "Q8_8X8 Q4_4X4 EMB_F16 ENC SIGNED")
        rows = self.by_name(self.patched(PLAIN, (8, b"\xdc\x06\0\x80")))
        self.assertEqual(rows["flags"]["meaning"], "X8 Q8BUF_Q4 G256 VISION ENC MOE bit10 bit31")

    def test_a_signed_header_shows_its_id(self) -> None:
        for form, name in (("h448", "vllm-kestrel-vqf"), ("h432", "vllm-shs-vqf")):
            rows = self.by_name(sample(form + "-signed"))
            self.assertEqual(rows["sig.id"]["value"], repr(name))
            self.assertEqual(rows["sig.id_len"]["value"], str(len(name)))

    def test_version_1_is_refused_and_explained_in_its_own_form(self) -> None:
        self.assertEqual(len(VERSION_1), 232)
        page = self.write("v1.vqf", VERSION_1.ljust(4096, b"\0"))
        rows = {r["field"]: r for r in self.expect_rows(page, 232)}
        for name, offset in (("pad", 180), ("data_offset", 184), ("file_len", 192), ("enc_iv", 200), ("enc_rsvd", 216)):
            self.assertEqual(rows[name]["offset"], offset)
        self.assertEqual(rows["file_len"]["value"].split()[0], "4159295488")
        self.assertEqual(rows["flags"]["meaning"], "Q8_8X8 Q4_4X4 EMB_F16 VISION")
        r = self.expect(run("header", page), 1)
        self.assertRegex(r.lines[-1], r"^error\[vqf\.header\.version\] @0x4 version: version 1 unsupported \(need 2\)")
        self.assertNotIn("sig.", r.out)
        for verb in ("info", "ls", "check", "verify"):
            r = self.expect(run(verb, page), 1)
            self.assertIn("version 1 unsupported (need 2)", r.out + r.err)

    def test_the_directory_of_version_1_starts_at_256(self) -> None:
        entries = b"".join(struct.pack("<32s4IQQ", b"t%d" % i, 1, 64, 1, 0, 4096 + 256 * i, 256) for i in range(49))
        page = self.write("v1.vqf", (VERSION_1.ljust(256, b"\0") + entries).ljust(4096, b"\0"))
        rows = self.expect_rows(page, 232, directory=True)
        self.assertEqual((rows[-7]["offset"], rows[-7]["value"]), (256 + 48 * 64, "'t48'"))

    def test_a_cut_file_shows_all_fields_and_both_sizes(self) -> None:
        for path in (PLAIN, OLD_PLAIN):
            cut = self.write("cut.vqf", read(path)[:4096])
            self.expect_rows(cut, 448 if "h448" in path else 432, directory=True)
            r = self.expect(run("header", cut), 1, "vqf.size.truncated")
            self.assertRegex(r.lines[-1], r"\b11400\b.*\b4096\b")

    def test_a_file_shorter_than_a_header_says_what_is_cut_off(self) -> None:
        whole = self.by_name(PLAIN)
        for length in (0, 3, 20, 200, 300, 447):
            with self.subTest(length=length):
                path = self.write("short.vqf", read(PLAIN)[:length])
                rows = run("header", "--json", path).json["fields"]
                self.assertEqual([(r["offset"], r["size"], r["field"]) for r in rows], header_fields(448))
                for row in rows:
                    if row["offset"] + row["size"] <= length:
                        self.assertEqual(row, whole[row["field"]])
                    else:
                        self.assertEqual(row["value"], "(cut off)")
                        self.assertEqual(row["raw"], read(PLAIN)[row["offset"] : length].hex())
                code = "vqf.magic.truncated" if length < 8 else "vqf.file.truncated"
                r = self.expect(run("header", path), 1, code)
                self.assertIn("@0x%x: %d bytes" % (length, length), r.lines[-1])

    def test_a_wrong_magic_is_explained(self) -> None:
        r = self.expect(run("header", self.patched(PLAIN, (0, b"VQFW"))), 1, "vqf.header.magic")
        self.assertRegex(r.lines[2], r"^0x000 +4  magic +56 51 46 57 +0x57465156 +expected 0x57465146$")
        self.assertIn("56 51 46 57", r.lines[-1])
        self.assertIn("46 51 46 57", r.lines[-1])


class Hexdump(Case):
    """hexdump: od's bytes, and the names of the fields."""

    def without_margin(self, r: Run) -> str:
        self.expect(r, 0)
        return "".join(line[: line.find(" ") + 48].rstrip() + "\n" for line in r.lines)

    def od(self, path: str, *options: str) -> str:
        argv = [OD, "-A", "x", "-t", "x1", *options, path]
        return subprocess.run(argv, stdout=subprocess.PIPE, check=True, env={"LC_ALL": "C"}).stdout.decode("ascii")

    @unittest.skipUnless(OD, "this system has no od")
    def test_without_its_margin_it_is_what_od_prints(self) -> None:
        data = read(PLAIN)
        repeats = b"0123456789abcdef" * 3 + b"01234567"
        files = {
            PLAIN: ([], ["-N", "4096"]),
            OLD_PLAIN: ([], ["-N", "4096"]),
            self.write("cut", data[:4096]): ([], ["-N", "448"]),
            self.write("v1", VERSION_1.ljust(4096, b"\0")): ([], ["-N", "256"]),
            self.write("empty", b""): ([], []),
            self.write("three", data[:3]): ([], []),
            self.write("twenty", data[:20]): ([], []),
        }
        for path, (ours, theirs) in files.items():
            with self.subTest(os.path.basename(path)):
                self.assertEqual(self.without_margin(run("hexdump", path, *ours)), self.od(path, *theirs))
        zeros = self.write("zeros", bytes(100000))
        for path, *options in (
            (PLAIN, "-j", "0"), (PLAIN, "-v", "-j", "0"), (PLAIN, "-v", "-N", "448"), (PLAIN, "-j", "0xc8", "-N", "16"),
            (PLAIN, "-j", "3", "-N", "5"), (PLAIN, "-j", "17", "-N", "1000"), (PLAIN, "-j", "17", "-N", "1000", "-v"),
            (PLAIN, "-j", "11390"), (PLAIN, "-j", "0x2c80", "-N", "9999"), (PLAIN, "-j", "11400"), (PLAIN, "-N", "0"),
            (PLAIN, "-j", "0x50", "-N", "48"), (PLAIN, "-j", "0x50", "-N", "47"), (OLD_PLAIN, "-j", "400", "-N", "100"),
            (self.write("repeats", repeats), "-j", "0"), (self.write("whole", repeats[:48]), "-j", "0"),
            (zeros, "-j", "0"), (zeros, "-j", "5"), (zeros, "-v", "-j", "65000", "-N", "1100"),
            (self.far(), "-j", "0xfffffd0", "-N", "96"),
        ):  # fmt: skip
            with self.subTest(os.path.basename(path), options=options):
                self.assertEqual(self.without_margin(run("hexdump", *options, path)), self.od(path, *options))

    @unittest.skipUnless(OD, "this system has no od")
    def test_a_tensor_is_dumped_from_its_start(self) -> None:
        for argv, theirs in (
            (["q4_q"], ["-j", "0x1a80", "-N", "256"]), (["final_norm"], ["-j", "0x1800", "-N", "128"]),
            (["q4_q", "-N", "20"], ["-j", "0x1a80", "-N", "20"]), (["q4_q", "-j", "0x20"], ["-j", "0x1aa0", "-N", "256"]),
            (["q4_lm", "-j", "512"], ["-j", "0x2c40", "-N", "64"]),
        ):  # fmt: skip
            with self.subTest(argv=argv):
                r = run("hexdump", PLAIN, *argv)
                self.assertEqual(self.without_margin(r), self.od(PLAIN, *theirs))
                self.assertRegex(r.lines[0], "  …?%s$" % argv[0])

    def far(self) -> str:
        """A file whose last tensor lies behind 256 MiB, where offsets have eight digits."""
        at = 1 << 28
        data = bytearray(read(PLAIN)[:0x2A40])
        struct.pack_into("<Q", data, 208, at + 576)
        struct.pack_into("<Q", data, 448 + 13 * 64 + 48, at)
        return self.write("far.vqf", bytes(data), at + 576 + 8)

    def test_the_margin_keeps_its_distance_at_large_offsets(self) -> None:
        r = self.expect(run("hexdump", "-N", "32", self.far(), "q4_lm"), 0)
        self.assertEqual(r.lines[0], "10000000" + " 00" * 16 + "  q4_lm")
        self.assertEqual(r.lines[1:], ["*", "10000020"])

    def margins(self, path: str, fields: list[tuple[int, int, str]], stop: int) -> None:
        """The names behind every line up to `stop`, against a table of (offset, size, name)."""
        lines = self.expect(run("hexdump", "-v", "-N", str(stop), path), 0).lines
        self.assertEqual(len(lines), (stop + 15) // 16 + 1)
        for at, line in zip(range(0, stop, 16), lines):
            names = []
            for offset, size, name in sorted(fields):
                if offset < at + 16 and offset + size > at:
                    names.append(name if offset >= at else "…" + name)
            self.assertEqual(line[:6], "%06x" % at)
            self.assertEqual(line[54:], "  " + " ".join(names) if names else "", line)

    def test_names_stand_behind_the_lines_where_their_fields_are(self) -> None:
        names = ["token_embed", "final_norm", "attn_norm", "ffn_norm", "q_norm", "k_norm"]
        names += ["q4_" + w for w in ("q", "k", "v", "o", "gate", "up", "down", "lm")]
        for path in (PLAIN, OLD_PLAIN, sample("h448-enc")):
            fields = header_fields(448 if "h448" in path else 432)
            data = read(path)
            for i, name in enumerate(names):
                fields += entry_fields(i, name)
                fields.append((*struct.unpack_from("<QQ", data, 448 + 64 * i + 48), name))
            tag = 32 if "enc" in path else 8
            fields.append((len(data) - tag, tag, "tag"))
            with self.subTest(os.path.basename(path)):
                self.margins(path, fields, len(data) - len(data) % 16)
                self.assertRegex(run("hexdump", "-j", str(len(data) - 8), path).lines[0], "  …?tag$")

    def test_a_file_that_cannot_be_opened_has_the_names_of_its_header(self) -> None:
        self.margins(self.write("v1", VERSION_1.ljust(4096, b"\0")), header_fields(232), 256)
        self.margins(self.write("cut", read(OLD_PLAIN)[:4096]), header_fields(432), 448)

    def test_an_entry_that_spans_the_whole_file_does_not_make_it_slow(self) -> None:
        count, data_offset = 1000, 64512
        words = [{"dim": 32, "ffn_dim": 32, "vocab_size": 32}.get(ARCH.get(i, ""), 1) for i in range(45)]
        header = struct.pack("<4I45I4xQQ", 0x57465146, 2, 0, count, *words, data_offset, data_offset + 64)
        seconds = []
        for first in ((data_offset, 64), (0, data_offset + 64)):
            spans = [first] + [(data_offset, 64)] * (count - 1)
            entries = b"".join(struct.pack("<32s4IQQ", b"t", 1, 16, 1, 0, *span) for span in spans)
            path = self.write("many.vqf", (header.ljust(448, b"\0") + entries).ljust(data_offset + 72, b"\0"))
            before = time.process_time()
            r = self.expect(run("hexdump", "-v", path), 0)
            seconds.append(time.process_time() - before)
            self.assertEqual(len(r.lines), data_offset // 16 + 1)
            self.assertEqual(r.lines[28][54:], "  t.name")  # an entry outside of the data area names no bytes
        self.assertLess(seconds[1], 5 * seconds[0] + 0.1)

    def test_ranges_outside_of_the_file_are_usage(self) -> None:
        for options in (["-j", "11401"], ["-j", "-1"], ["-N", "-1"], ["-j", "0", "-N", "-1"]):
            with self.subTest(options=options):
                r = self.expect(run("hexdump", PLAIN, *options), 2)
                self.assertEqual(r.out, "")


class Hostile(Case):
    """Names that would do things to a terminal, or forge a line of the report."""

    NAMES = (b"q4_up\x1b[31m", b"q4_d\nerror[x] @0x0: forged\r", b"\x7f\x9b2J\xe2\x80\xae\xff\t")

    def expect_harmless(self, r: Run) -> Run:
        bad = [line for line in (r.out + r.err).split("\n") if not line.isprintable() or line.startswith("error[x]")]
        if bad:
            self.fail("%d lines, the first of them %r" % (len(bad), bad[0]))
        return r

    def hostile(self, *more: tuple[int, bytes]) -> str:
        """The last three tensors renamed."""
        patches = [(448 + 64 * (11 + i), name.ljust(32, b"\0")) for i, name in enumerate(self.NAMES)]
        return self.patched(PLAIN, *patches, *more, name="hostile.vqf")

    def test_names_are_escaped_by_every_verb(self) -> None:
        path = self.hostile()
        for argv in (["info"], ["header"], ["header", "--directory"], ["ls"], ["ls", "--layer", "0"], ["check"], ["verify"],
                     ["hash"], ["diff", PLAIN], ["hexdump"], ["hexdump", "-j", "0"]):  # fmt: skip
            for option in ([], ["--json"]):
                if argv[0] == "hexdump" and option:
                    continue
                with self.subTest(argv=argv + option):
                    r = self.expect_harmless(run(*argv, *option, path))
                    if argv[0] in ("ls", "check", "hash", "diff", "hexdump") and "--layer" not in argv and not option:
                        self.assertIn("\\x1b[31m", r.out)
                        self.assertIn("\\n", r.out)
        self.assertRegex(run("check", path).out, r"(?m)^error\[vqf\.ascii\.name\] @0x480 ")

    def test_names_are_escaped_inside_of_messages(self) -> None:
        last, entry = 448 + 64 * 13, 448 + 64 * 12
        for what, *patches in (
            ("vqf.padding.layout", (last + 56, struct.pack("<Q", 512))),  # 64 bytes behind the last one, and not zero
            ("vqf.gap.layout", (last + 56, struct.pack("<Q", 512))),
            ("vqf.directory.overlap", (entry + 48, struct.pack("<QQ", 0x25C0, 640))),
            ("vqf.directory.bounds", (last + 48, struct.pack("<Q", 1 << 40))),
            ("vqf.directory.duplicate", (last, self.NAMES[1].ljust(32, b"\0"))),
            ("vqf.order.layout", (last + 48, struct.pack("<Q", 0x1800))),
        ):
            with self.subTest(what):
                path = self.hostile(*patches)
                r = self.expect_harmless(run("check", path))
                self.assertIn("[%s]" % what, r.out)
                for line in r.lines[:-1]:
                    self.assertRegex(line, FINDING_LINE)
                self.expect_harmless(run("info", path))

    def test_names_are_escaped_in_hints_for_misspelled_ones(self) -> None:
        path = self.hostile()
        for name in ("q4_up[31m", "q4_up\x1b[32m", "q4_d\nerror[x] @0x0: forge", "\x1b[2J"):
            with self.subTest(name=name):
                self.expect_harmless(self.expect(run("hexdump", path, name), 2))

    def test_names_are_escaped_that_a_list_of_hashes_brings_along(self) -> None:
        names = self.write("list", b"00  a\x1b[31m\n00  \x9b2J\n")
        self.expect_harmless(self.expect(run("hash", PLAIN, "--check", names), 1))

    def test_the_user_id_is_escaped(self) -> None:
        path = self.patched(sample("h448-signed"), (408, b"\x1b[31m\n\xff\x7f"))
        for verb in ("info", "header", "check", "verify", "hexdump"):
            with self.subTest(verb):
                self.expect_harmless(run(verb, path))
        self.assertIn("\\x1b", run("header", path).out)

    def test_file_names_are_escaped(self) -> None:
        self.in_folder()
        name = "a\x1b[31m\nerror[x] b.vqf"
        self.write(name, read(PLAIN)[:5000])
        for argv in (["info", name], ["check", name], ["header", name], ["ls", name], [name], ["info", name + "x"],
                     ["check", "--json", name], ["hexdump", name, "q4_q"]):  # fmt: skip
            with self.subTest(argv=argv):
                self.expect_harmless(run(*argv))
        self.write(name, read(PLAIN))
        self.expect_harmless(self.expect(run("info", name), 0))


class Check(Case):
    """check: structure, severities, the engine's verdict."""

    def last(self, r: Run) -> str:
        return r.lines[-1]

    def test_a_clean_file_is_one_line(self) -> None:
        for path in (PLAIN, OLD_PLAIN, sample("h448-signed")):
            r = self.expect(run("check", path), 0)
            self.assertEqual(r.out, "clean; the engine would load this file\n")
            self.expect(run("check", "--strict", path), 0)

    def test_a_warning_is_0_and_with_strict_1(self) -> None:
        path = self.patched(PLAIN, (4000, b"\1"))  # between directory and data: no tag covers it, the engine skips it
        r = self.expect(run("check", path), 0)
        self.assertRegex(r.lines[0], r"^warning\[vqf\.padding\.layout\] @0xfa0 ")
        self.assertEqual(self.last(r), "1 warning; the engine would load this file")
        self.assertEqual(self.expect(run("check", "--strict", path), 1).out, r.out)
        self.assertIs(run("check", "--json", path).json["ok"], True)
        self.assertIs(run("check", "--json", "--strict", path).json["ok"], False)

    def test_a_note_is_0_with_strict_too(self) -> None:
        r = self.expect(run("check", "--strict", sample("h448-enc")), 0)
        self.assertEqual({line.partition("[")[0] for line in r.lines[:-1]}, {"note"})
        self.assertEqual(self.last(r), "1 note; the engine would load this file")

    def test_the_engines_verdict_is_the_last_line(self) -> None:
        for path, status, verdict in (
            (self.write("cut", read(PLAIN)[:5000]), 1, "refuses this file"),
            (self.write("v1", VERSION_1.ljust(4096, b"\0")), 1, "refuses this file"),
            (self.patched(PLAIN, (448, b"token_embex"), name="core"), 1, "refuses this file"),
            (sample("h432-enc"), 0, "may load this file: its versions differ"),
            (self.patched(sample("h432-enc"), (448, b"token_embex"), name="both"), 1, "refuses this file"),
            (self.patched(PLAIN, (448 + 48, b"\x01"), name="align"), 1, "would load this file"),
        ):
            with self.subTest(os.path.basename(path)):
                r = self.expect(run("check", path), status)
                self.assertRegex(self.last(r), "^[0-9a-z, ]+; the engine %s$" % re.escape(verdict))
                word = {"r": "refuses", "m": "unknown", "w": "accepts"}[verdict[0]]
                self.assertEqual(run("check", "--json", path).json["engine"], word)

    def test_all_findings_are_counted_in_the_last_line(self) -> None:
        path = self.patched(PLAIN, (4000, b"\1"), (448 + 64 + 32, b"\x09"), (448 + 5 * 64 + 44, b"\1"))
        r = run("check", path)
        words = [line.partition("[")[0] for line in r.lines[:-1]]
        counts = [(words.count(w), w) for w in ("error", "warning", "note")]
        text = ", ".join("%d %s%s" % (n, w, "s" * (n > 1)) for n, w in counts if n)
        self.assertEqual(self.last(r).partition(";")[0], text)
        self.assertGreater(words.count("error"), 0)
        self.assertGreater(words.count("warning"), 1)


class Verify(Case):
    """verify: what was checked, and what a checksum is not."""

    def test_a_plain_file_passes_and_is_not_authenticated(self) -> None:
        for path in (PLAIN, OLD_PLAIN):
            r = self.expect(run("verify", path), 0)
            stored = "%016x" % struct.unpack("<Q", read(path)[-8:])[0]
            self.assertRegex(r.lines[0], r"^checksum: ok \(.*%s.*not authenticated" % stored)
            self.assertIs(run("verify", "--json", path).json["authenticated"], False)

    def test_one_flipped_bit_of_what_the_checksum_covers_is_1(self) -> None:
        for offset in (4096, 11391, 7000, 448 + 36, 448 + 13 * 64 + 40, 11392, 11399):
            with self.subTest(offset=offset):
                path = self.patched(PLAIN, (offset, bytes([read(PLAIN)[offset] ^ 1])))
                r = self.expect(run("verify", path), 1, "vqf.checksum.tag")
                self.assertRegex(r.lines[0], "^checksum: failed ")
                self.assertRegex(r.lines[-1], r"^error\[vqf\.checksum\.tag\] @0x2c80 tag: ")

    def test_what_the_checksum_leaves_out_does_not_fail_it(self) -> None:
        for offset in (44, 232, 2000):  # max_seq_len, a reserved field, padding before the data
            self.expect(run("verify", self.patched(PLAIN, (offset, bytes([read(PLAIN)[offset] ^ 1])))), 0)

    def test_a_stored_0_means_that_there_is_no_checksum(self) -> None:
        r = self.expect(run("verify", self.patched(PLAIN, (11392, bytes(8)))), 0)
        self.assertRegex(r.lines[0], "^checksum: not checked")
        self.assertRegex(r.out, r"(?m)^note\[vqf\.checksum\.missing\] @0x2c80 ")

    def test_an_encrypted_file_without_its_key_is_1(self) -> None:
        for kind in ("enc", "enc-signed"):
            for form in ("h448-", "h432-"):
                r = self.expect(run("verify", sample(form + kind)), 1, "vqf.enc.key")
                self.assertRegex(r.lines[0], "^hmac: not checked")
                self.assertIs(run("verify", "--json", sample(form + kind)).json["authenticated"], False)

    def test_a_signature_without_a_key_is_0_and_not_checked(self) -> None:
        for form in ("h448", "h432"):
            r = self.expect(run("verify", sample(form + "-signed")), 0)
            self.assertRegex(r.out, "(?m)^signature: not checked")
            self.assertIs(run("verify", "--json", sample(form + "-signed")).json["authenticated"], False)

    def test_without_a_key_nothing_is_ever_called_verified_or_authenticated(self) -> None:
        flipped = self.patched(PLAIN, (5000, b"\xff\xff"))
        for path in (*ALL_FILES, flipped):
            for option in ([], ["--json"]):
                text = run("verify", *option, path).out.lower()
                self.assertNotIn("verified", text)
                self.assertNotRegex(text, r'authenticated"?: *(yes|true|ok)')


class Ls(Case):
    """ls: tensors, layers, experts."""

    def test_every_tensor_stands_with_the_directorys_numbers(self) -> None:
        data = read(PLAIN)
        tensors = run("ls", "--json", PLAIN).json["tensors"]
        lines = run("ls", PLAIN).lines
        self.assertEqual(lines[0].split(), ["NAME", "SHAPE", "DTYPE", "ENCODING", "OFFSET", "BYTES"])
        self.assertEqual(len(lines) - 1, 14)
        for i, (t, line) in enumerate(zip(tensors, lines[1:])):
            name, offset, nbytes = struct.unpack_from("<32s16xQQ", data, 448 + 64 * i)
            name = name.rstrip(b"\0").decode("ascii")
            self.assertEqual((t["name"], t["offset"], t["nbytes"]), (name, offset, nbytes))
            cells = re.split(r" {2,}", line)
            self.assertEqual((cells[0], cells[4], cells[5]), (name, "0x%x" % offset, str(nbytes)))
        self.assertRegex(lines[1], r"^token_embed +\[32, 32\] +f16 +f16 ")
        self.assertRegex(lines[7], r"^q4_q +1 x \[32, 32\] +q4_0 +q4_0 in tiles 4x4 ")

    def test_layers_and_experts_stand_before_the_shape_of_one_matrix(self) -> None:
        data, _ = moe_file()
        path = self.write("moe.vqf", data)
        self.expect(run("check", path), 0)
        out = self.expect(run("ls", path), 0).out
        self.assertRegex(out, r"(?m)^token_embed +\[32, 32\] ")
        self.assertRegex(out, r"(?m)^q4_q +2 x \[32, 32\] ")
        self.assertRegex(out, r"(?m)^moe_router +2 x \[2, 32\] ")
        for name in ("q4_gate", "q4_up", "q4_down"):
            self.assertRegex(out, r"(?m)^%s +2 x 2 x \[32, 32\] " % name)

    def test_a_layer_is_its_share_of_every_tensor_that_has_layers(self) -> None:
        data, offsets = moe_file()
        path = self.write("moe.vqf", data)
        found = {t["name"]: t["ranges"] for t in run("ls", "--json", "--layer", "1", path).json["tensors"]}
        self.assertEqual(
            found,
            {
                name: [[offsets[name] + nbytes // 2, nbytes // 2]]
                for name, _, _, _, nbytes in MOE_TENSORS
                if name not in ("token_embed", "final_norm", "q4_lm")
            },
        )
        lines = run("ls", "--layer", "1", path).lines
        self.assertEqual(lines[0].split(), ["NAME", "ENCODING", "OFFSET", "BYTES", "RANGES"])
        self.assertRegex("\n".join(lines), r"(?m)^q4_q .* 0x%x +576 +1$" % (offsets["q4_q"] + 576))

    def test_an_expert_is_rows_of_gate_and_up_and_columns_of_down(self) -> None:
        data, offsets = moe_file()
        path = self.write("moe.vqf", data)
        found = {
            t["name"]: t["ranges"] for t in run("ls", "--json", "--layer", "1", "--expert", "1", path).json["tensors"]
        }
        # Tiles of 4 rows and 32 columns, 72 bytes each; in q4_down two of them, one an expert, make a group of rows.
        down = offsets["q4_down"] + 1152
        self.assertEqual(
            found,
            {
                "q4_gate": [[offsets["q4_gate"] + 1152 + 576, 576]],
                "q4_up": [[offsets["q4_up"] + 1152 + 576, 576]],
                "q4_down": [[down + 144 * group + 72, 72] for group in range(8)],
            },
        )
        text = run("ls", "--layer", "1", "--expert", "1", path).out
        self.assertRegex(text, r"(?m)^q4_down .* 0x%x +576 +8$" % (down + 72))

    def test_a_layer_or_an_expert_that_is_not_there_is_usage(self) -> None:
        data, _ = moe_file()
        moe = self.write("moe.vqf", data)
        for argv in (
            ["--layer", "1", PLAIN], ["--layer", "-1", PLAIN], ["--expert", "0", PLAIN],
            ["--layer", "0", "--expert", "0", PLAIN],
            ["--layer", "2", moe], ["--layer", "0", "--expert", "2", moe], ["--layer", "0", "--expert", "-1", moe],
            ["--layer", "2", "--expert", "0", moe],
        ):  # fmt: skip
            for option in ([], ["--json"]):
                with self.subTest(argv=argv[:-1] + option):
                    r = self.expect(run("ls", *option, *argv), 2)
                    self.assertEqual(r.out, "")
                    self.assertEqual(len(r.err.splitlines()), 1)


class Info(Case):
    """info: a file in a screenful."""

    def test_it_says_form_size_flags_model_and_seals(self) -> None:
        out = self.expect(run("info", PLAIN), 0).out
        for row in (
            r"format +VQF version 2 \(dense\), header of 448 bytes", r"size +11,400 bytes",
            r"flags +0x23  Q8_8X8 Q4_4X4 EMB_F16",
            r"model +1 layer, dim 32, ffn 32, vocabulary 32, context 8192", r"weights +14 tensors", r"structure +clean",
            r"sealed +not encrypted; not signed",
        ):  # fmt: skip
            self.assertRegex(out, "(?m)^" + row)
        self.assertLessEqual(len(out.splitlines()), 25)
        out = run("info", sample("h432-enc-signed")).out
        self.assertRegex(out, r"(?m)^format .*432 bytes$")
        self.assertRegex(out, r"(?m)^sealed +encrypted with SM4-CTR; signed as '?vllm-shs-vqf'?$")
        data, _ = moe_file()
        out = run("info", self.write("moe.vqf", data)).out
        self.assertRegex(out, r"(?m)^format +VQF version 3 \(mixture of experts\)")
        self.assertRegex(out, r"(?m)^experts +2 of width 32, 1 for a token, 0 shared$")

    def test_findings_stand_below_and_make_the_status(self) -> None:
        path = self.patched(PLAIN, (448 + 48, b"\x01"))
        r = self.expect(run("info", path), 1)
        self.assertEqual([x for x in r.lines if FINDING_LINE.fullmatch(x)], run("check", path).lines[:-1])


if __name__ == "__main__":
    unittest.main()

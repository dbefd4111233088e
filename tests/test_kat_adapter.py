"""Programs under test that go wrong: what the runner calls it, what it tells, and that it goes on.

The programs are a few lines of Python each, started without site packages; none uses the library.
"""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import tempfile
import time
import unittest
import xml.etree.ElementTree as xml
from pathlib import Path
from unittest import mock

from tests.kat_samples import ABC, FNV_A, OFFSET_BASIS, case, fnv_case, sm3_case, vqfref, write
from tests.tools import thorough
from vqfref.errors import UnsupportedError, UsageError
from vqfref.kat import adapter as module
from vqfref.kat.adapter import MAX_LINE, Adapter, Failure, verify_command

TYPE_CHECKING = False
if TYPE_CHECKING:
    from tests.kat_samples import Run

PYTHON = [sys.executable, "-I", "-S"]
start = time.monotonic()
subprocess.run([*PYTHON, "-c", ""], check=True)
SHORT = max(0.4, 8 * (time.monotonic() - start))  # seconds in which every good program here replies
SCALE = "%.3f" % (SHORT / 10)

# What every program begins with; answer(op) is the right reply behind the id.
HEAD = """
import os, sys, time
read = sys.stdin.readline
def say(text):
    sys.stdout.write(text + "\\n")
    sys.stdout.flush()
def greet(ops="sm3,fnv1a64"):
    read()
    say("hello vqfref-kat/1 name=tiny version=0.1 ops=" + ops)
def answer(op):
    return "ok digest=%s" if op == "sm3" else "ok hash=%s"
def serve():
    for line in iter(read, ""):
        name, op = line.split()[:2]
        say(name + " " + answer(op))
""" % (ABC, OFFSET_BASIS)


class Programs(unittest.TestCase):
    """A suite of three cases, and a program in the same folder."""

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory(prefix="a b ")
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        made = {"sm3": [sm3_case("sm3-a"), sm3_case("sm3-b")], "fnv1a64": [fnv_case("fnv-c")]}
        self.suite = write(self.folder, made)

    def program(self, body: str, head: str = HEAD) -> list[str]:
        path = self.folder / "program.py"
        path.write_text(head + body, "utf-8")
        return [*PYTHON, str(path)]

    def run_words(self, command: list[str], *words: str) -> Run:
        return vqfref("kat", "run", "--suite", self.suite, "-v", *words, "--", *command)

    def outcomes(self, body: str, *words: str, scale: str = "1") -> tuple[list[str], Run]:
        """The outcomes of the three cases, and the run."""
        run = self.run_words(self.program(body), "--timeout-scale", scale, *words)
        return [line.split()[0] for line in run.out.splitlines()[:-1]], run

    def check(self, body: str, expected: str, *told: str, words: tuple[str, ...] = (), scale: str = "1") -> Run:
        """The outcomes are these, the texts are all told, and the exit code fits."""
        found, run = self.outcomes(body, *words, scale=scale)
        self.assertEqual(" ".join(found), expected, run.out + run.err)
        for text in told:
            self.assertIn(text, run.out + run.err)
        if set(found) - {"PASS", "SKIP"}:
            self.assertEqual(run.code, 1)
        return run


class Good(Programs):
    def test_all_pass_and_the_last_line_counts(self) -> None:
        run = self.check("greet()\nserve()", "PASS PASS PASS")
        self.assertEqual((run.code, run.err), (0, ""))
        self.assertEqual(run.last, "kat 1.0.0: 3 passed, 0 failed, 0 skipped (valid 3/3, invalid 0/0)")

    def test_carriage_returns_and_upper_case_hex_are_taken(self) -> None:
        body = 'greet()\nfor line in iter(read, ""):\n    name, op = line.split()[:2]\n'
        body += '    word, equals, value = answer(op).partition("=")\n'
        body += '    say(name + " " + word + "=" + value.upper() + "\\r")\n'
        self.assertEqual(self.check(body, "PASS PASS PASS").code, 0)

    def test_operations_that_it_has_not_are_not_asked(self) -> None:
        run = self.check("greet('fnv1a64')\nserve()", "SKIP SKIP PASS")
        self.assertEqual(run.last, "kat 1.0.0: 1 passed, 0 failed, 2 skipped (valid 1/1, invalid 0/0)")
        self.assertEqual(run.code, 0)

    def test_a_run_in_which_no_case_ran_is_no_success(self) -> None:
        found, run = self.outcomes("greet('sm4_ctr')\nserve()")
        self.assertEqual((found, run.code), (["SKIP"] * 3, 1))
        self.assertIn("no case was run", run.err)

    def test_operations_that_there_are_not_are_told(self) -> None:
        run = self.check(
            "greet('sm3,smo3,fnv1a64')\nserve()", "PASS PASS PASS", "lists operations that there are not: smo3"
        )
        self.assertEqual(run.code, 0)

    def test_skip_as_a_reply(self) -> None:
        body = 'greet()\nfor line in iter(read, ""):\n    say(line.split()[0] + " skip")'
        self.assertEqual(self.outcomes(body)[0], ["SKIP"] * 3)

    def test_answers_by_their_fnv(self) -> None:
        made = case("k", {"z": "", "klen": 1}, {"key": "61"})
        self.suite = write(self.folder, {"sm3_kdf": [made]})
        self.check("greet('sm3_kdf')\nread()\nsay('k ok fnv=%s')\nread()" % FNV_A, "PASS")

    def test_the_request_is_as_the_text_has_it(self) -> None:
        (self.folder / "files" / "c d=e").touch()
        self.suite = write(
            self.folder, {"st_header": [case("a", {"path": "files/c d=e"}, {"n": 0})], "sm3": [sm3_case()]}
        )
        log = self.folder / "log"
        body = "log = open(%r, 'w')\n" % str(log)
        body += 'line = read()\nlog.write(line)\nsay("hello vqfref-kat/1 name=a version=1 ops=sm3,st_header")\n'
        body += 'for line in iter(read, ""):\n    log.write(line)\n    log.flush()\n    say(line.split()[0] + " err json")\n'
        self.outcomes(body)
        path = os.path.join(os.path.abspath(self.suite), "files", "c d=e")
        lines = ["hello vqfref-kat/1", "a st_header path=" + path, "sm3-abc sm3 msg=616263"]
        self.assertEqual(log.read_text("utf-8").split("\n"), [*lines, ""])

    def test_it_runs_in_the_callers_folder_with_the_callers_environment(self) -> None:
        body = "greet()\nwhile True:\n    l = read()\n    if not l: break\n    say(l.split()[0] + ' ' + answer(l.split()[1]))\n"
        body += "open(os.environ['KAT_TEST_OUT'], 'w').write(os.getcwd())\n"
        out = self.folder / "cwd"
        with mock.patch.dict(os.environ, {"KAT_TEST_OUT": str(out)}):
            self.assertEqual(self.check(body, "PASS PASS PASS").code, 0)
        self.assertEqual(out.read_text(), os.getcwd())

    @thorough
    def test_much_on_standard_error_stops_nobody(self) -> None:
        body = "greet()\nsys.stderr.write('x' * 300000)\nserve()"
        null = os.open(os.devnull, os.O_WRONLY)
        kept = os.dup(2)
        try:
            os.dup2(null, 2)
            self.check(body, "PASS PASS PASS")
        finally:
            os.dup2(kept, 2)
            os.close(kept)
            os.close(null)

    @thorough
    def test_a_long_line_both_ways_and_a_slow_reader(self) -> None:
        big = "00" * 29000
        made = [
            case("big-%d" % i, {"key": "00" * 16, "iv": "00" * 16, "offset": i, "data": big}, {"data": big})
            for i in (0, 1)
        ]
        self.suite = write(self.folder, {"sm4_ctr": made})
        body = "greet('sm4_ctr')\nfor i in (0, 1):\n    line = b''\n    while not line.endswith(b'\\n'):\n"
        body += "        time.sleep(0.001)\n        line += os.read(0, 5000)\n"
        body += "    out = b'big-%d ok data=' % i + line.split(b'data=')[1]\n"
        body += "    while out:\n        time.sleep(0.001)\n        out = out[os.write(1, out[:5000]):]\n"
        self.check(body, "PASS PASS")

    def test_fresh_starts_a_process_a_case(self) -> None:
        log = self.folder / "log"
        run = self.check("open(%r, 'a').write('x')\ngreet()\nserve()" % str(log), "PASS PASS PASS", words=("--fresh",))
        self.assertEqual((run.code, log.read_text()), (0, "xxx"))

    def test_outcomes_for_machines_name_the_program(self) -> None:
        _, run = self.outcomes("greet()\nserve()", "--format", "json")
        whole = json.loads(run.out)
        self.assertEqual((whole["name"], whole["version"], whole["ok"]), ("tiny", "0.1", True))
        _, run = self.outcomes("greet()\nread()\nos.abort()", "--format", "junit", "--only", "sm3-a")
        self.assertEqual([f.get("type") for f in xml.fromstring(run.out).iter("failure")], ["CRASH"])
        _, run = self.outcomes("greet()\nserve()", "--format", "tap")
        self.assertEqual(run.out.splitlines()[1:5], ["1..3", "ok 1 - sm3-a", "ok 2 - sm3-b", "ok 3 - fnv-c"])


class Wrong(Programs):
    """Replies that are wrong, and those that are none. Where the program is killed, the next case has a new one."""

    def replies(self, expression: str) -> str:
        """A program whose every reply is an expression of name and op."""
        return 'greet()\nfor line in iter(read, ""):\n    name, op = line.split()[:2]\n    say(%s)\n' % expression

    def test_wrong_answers(self) -> None:
        self.check(self.replies('name + " ok digest=" + "00" * 32 if op == "sm3" else name + " err key"'),
                   "FAIL FAIL FAIL", "expected " + ABC, "refused (key), but valid")  # fmt: skip

    def test_a_wrong_class_fails_only_under_strict_errors(self) -> None:
        self.suite = write(self.folder, {"sm3": [case("a", {"msg": ""}, error="limit")]})
        body = self.replies('name + " err range too long"')
        run = self.run_words(self.program(body))
        self.assertEqual((run.code, run.out.split()[0]), (0, "WRONG-ERROR"))
        run = self.run_words(self.program(body), "--strict-errors")
        self.assertEqual(run.code, 1)
        self.check(
            self.replies('name + " err damaged"'), "WRONG-ERROR", "which is no error class", words=("--strict-errors",)
        )

    def test_a_reply_to_another_case(self) -> None:
        self.check(
            self.replies('"sm3-x " + answer(op)'),
            "PROTOCOL PROTOCOL PROTOCOL",
            "expected sm3-a and then ok, err or skip",
        )

    def test_a_reply_without_its_id(self) -> None:
        self.check(self.replies("answer(op)"), "PROTOCOL PROTOCOL PROTOCOL", "reply 'ok digest=66c7")

    @thorough
    def test_a_word_that_is_none(self) -> None:
        for reply in ("name", "name + ' fine'", "''", "name + ' OK'", "name + '  ok'", "name + '\\tok'"):
            self.check(self.replies(reply), "PROTOCOL PROTOCOL PROTOCOL", "standard output is for replies alone")

    def test_bytes_that_are_no_ascii(self) -> None:
        body = "greet()\nread()\nos.write(1, b'sm3-a \\xff\\xfe\\x00\\n')\nread()"
        self.check(body, "PROTOCOL PROTOCOL PROTOCOL", r"\\xff\\xfe\x00")

    def test_words_in_any_language_may_stand_behind_the_class(self) -> None:
        self.suite = write(self.folder, {"sm3": [case("a", {"msg": ""}, error="limit")]})
        self.check("greet('sm3')\nread()\nos.write(1, b'a err limit \\xc3\\xa9\\xff\\n')\nread()", "PASS")

    def test_two_replies_at_once(self) -> None:
        self.check(self.replies('name + " " + answer(op) + "\\n" + name + " " + answer(op)'),
                   "PROTOCOL PROTOCOL PROTOCOL", "more than one line in reply")  # fmt: skip

    def test_a_line_between_reply_and_request(self) -> None:
        body = "greet()\nline = read()\nsay(line.split()[0] + ' ' + answer('sm3'))\nsay('debug: done')\nserve()"
        found, run = self.outcomes(body)
        self.assertNotIn("PASS PASS", " ".join(found))  # the line comes with its reply or before the next request
        self.assertLessEqual(set(found), {"PASS", "PROTOCOL"})
        self.assertIn("debug: done", run.out)

    def test_a_reply_before_the_request(self) -> None:
        body = "read()\nsay('hello vqfref-kat/1 name=a version=1 ops=sm3,fnv1a64\\nsm3-a ok digest=%s')\nserve()" % ABC
        self.check(body, "PROTOCOL PROTOCOL PROTOCOL", "more than one line in reply")

    def test_a_greeting_before_it_is_asked_for(self) -> None:
        run = self.check(
            "say('Kestrel 0.9')\ngreet()\nserve()", "PROTOCOL PROTOCOL PROTOCOL", "Kestrel 0.9", "not started again"
        )
        self.assertEqual(run.out.count("not started again"), 3)

    def test_a_line_without_end(self) -> None:
        body = "greet()\nread()\nos.write(1, b'x' * %d)\ntime.sleep(20)" % (MAX_LINE + 10)
        self.check(body, "PROTOCOL PROTOCOL PROTOCOL", "a line of more than 65535 bytes")

    @thorough
    def test_greetings_that_are_none(self) -> None:
        for reply in (
            "hello", "hello vqfref-kat/2 name=a version=1 ops=sm3", "hello vqfref-kat/1",
            "hello vqfref-kat/1 name=a version=1", "hello vqfref-kat/1 ops=",
            "hello vqfref-kat/1 name=my tool ops=sm3", "hello vqfref-kat/1 ops=sm3, fnv1a64", "",
            "HELLO",
        ):  # fmt: skip
            run = self.check("read()\nsay(%r)\nread()" % reply, "PROTOCOL PROTOCOL PROTOCOL", "at the greeting: reply")
            self.assertEqual(run.code, 1)


class Ends(Programs):
    """Programs that end or hang."""

    def test_a_crash_in_the_middle_costs_one_case(self) -> None:
        for body, told in (
            ("sys.exit(5)", "ended with status 5"), ("os.abort()", "killed by signal 6 (SIGABRT)"),
            ("os.kill(os.getpid(), 11)", "killed by signal 11 (SIGSEGV)"),
            ("os.write(1, b'sm3-b ok dig'); sys.exit(4)", "ended with status 4, behind 'sm3-b ok dig'"),
            ("sys.exit(0)", "it must serve requests until its input ends"),
        ):  # fmt: skip
            program = "greet()\nfor line in iter(read, ''):\n    name, op = line.split()[:2]\n"
            program += "    if name == 'sm3-b': %s\n    say(name + ' ' + answer(op))\n" % body
            self.check(program, "PASS CRASH PASS", "CRASH       sm3-b", told)

    def test_one_reply_a_process_is_told(self) -> None:
        body = "greet()\nline = read()\nsay(line.split()[0] + ' ' + answer(line.split()[1]))"
        self.check(body, "PASS CRASH PASS", "ended with status 0; it must serve requests until its input ends")

    def test_a_crash_at_the_greeting_ends_the_attempts(self) -> None:
        log = self.folder / "log"
        for body in ("sys.exit(127)", "read()\nos.abort()"):
            log.write_text("")
            self.check(
                "open(%r, 'a').write('x')\n" % str(log) + body,
                "CRASH CRASH CRASH",
                "at the greeting",
                "not started again",
            )
            self.assertEqual(log.read_text(), "x")

    @thorough
    def test_a_crash_at_a_later_greeting_does_not(self) -> None:
        log = self.folder / "log"
        log.write_text("")
        body = "open(%r, 'a').write('x')\nn = os.path.getsize(%r)\nif n == 2: sys.exit(9)\ngreet()\n" % (
            str(log),
            str(log),
        )
        body += "if n == 1:\n    read()\n    sys.exit(8)\nserve()"
        self.check(body, "CRASH CRASH PASS", "ended with status 8", "at the greeting: ended with status 9")

    def test_a_hang_costs_one_case_and_its_time(self) -> None:
        program = "greet()\nfor line in iter(read, ''):\n    name, op = line.split()[:2]\n"
        program += "    if name == 'sm3-b':\n        os.write(1, b'sm3-b ok')\n        time.sleep(60)\n"
        program += "    say(name + ' ' + answer(op))\n"
        start = time.monotonic()
        self.check(program, "PASS HANG PASS", "no reply within", "no line feed behind 'sm3-b ok'", scale=SCALE)
        self.assertLess(time.monotonic() - start, SHORT + 2.5)

    def test_replies_that_are_not_flushed_are_told(self) -> None:
        body = "import sys\nfor line in sys.stdin:\n    print('hello vqfref-kat/1 name=a version=1 ops=sm3')\n"
        run = self.run_words(self.program(body, head=""), "--timeout-scale", SCALE)
        self.assertEqual(run.out.split()[0], "HANG")
        self.assertIn("flush standard output after each line", run.out)
        self.assertIn("not started again", run.out)

    @thorough
    def test_a_program_that_never_answers_is_asked_three_times(self) -> None:
        log = self.folder / "log"
        self.suite = write(self.folder, {"sm3": [sm3_case("sm3-%d" % i) for i in range(30)], "fnv1a64": [fnv_case()]})
        start = time.monotonic()
        body = "greet()\nopen(%r, 'a').write(read())\ntime.sleep(60)" % str(log)
        run = self.check(body, " ".join(["HANG"] * 31), "flush standard output after each line", scale=SCALE)
        self.assertLess(time.monotonic() - start, 3 * SHORT + 2.5)
        self.assertEqual([line.split()[0] for line in log.read_text().splitlines()], ["sm3-0", "sm3-1", "sm3-2"])
        told = "not asked any more: 3 times in a row the program hung, and has answered nothing yet: does it flush"
        self.assertEqual(run.out.count(told), 28)
        self.assertEqual(
            (run.code, run.last), (1, "kat 1.0.0: 0 passed, 31 failed, 0 skipped (valid 0/31, invalid 0/0)")
        )

    def test_an_operation_that_hangs_three_times_in_a_row_is_not_asked_any_more(self) -> None:
        self.suite = write(
            self.folder, {"sm3": [sm3_case("sm3-%d" % i) for i in range(9)], "fnv1a64": [fnv_case(), fnv_case("b")]}
        )
        body = "greet()\nfor line in iter(read, ''):\n    name, op = line.split()[:2]\n"
        body += "    if name in %r: time.sleep(60)\n    say(name + ' ' + answer(op))\n"
        hangs = ["sm3-%d" % i for i in (1, 2, 4, 5, 6)]
        run = self.check(body % hangs, "PASS HANG HANG PASS HANG HANG HANG HANG HANG PASS PASS", scale=SCALE)
        self.assertEqual(run.out.count("not asked any more: 3 times in a row sm3 hung"), 2)

    @thorough
    def test_bytes_that_trickle_do_not_stretch_the_time(self) -> None:
        body = "greet()\nread()\nwhile True:\n    os.write(1, b'x')\n    time.sleep(0.05)\n"
        self.check(body, "HANG", "no reply within", scale=SCALE, words=("--only", "sm3-a"))

    @thorough
    def test_a_request_that_is_not_read_hangs(self) -> None:
        big = "00" * 29000
        made = [
            case("big-%d" % i, {"key": "00" * 16, "iv": "00" * 16, "offset": i, "data": big}, {"data": big})
            for i in range(3)
        ]
        self.suite = write(self.folder, {"sm4_ctr": made})
        body = "greet('sm4_ctr')\nsay(os.read(0, 100).split()[0].decode() + ' err')\ntime.sleep(60)"
        found, run = self.outcomes(body, scale=SCALE)
        self.assertEqual(found, ["FAIL", "HANG", "FAIL"], run.out)
        self.assertIn("the request is not read", run.out)

    def test_a_closed_output_is_no_end(self) -> None:
        body = "greet()\nread()\nos.close(1)\ntime.sleep(60)"
        self.check(body, "HANG", "did not end", scale=SCALE, words=("--only", "sm3-a"))

    @thorough
    def test_the_end_of_input_ends_it_with_0(self) -> None:
        for body, told in (
            ("time.sleep(60)", "did not end at the end of its input"),
            ("sys.exit(3)", "ended with status 3 at the end of its input"),
            ("os.abort()", "killed by signal 6 (SIGABRT) at the end of its input"),
            ("say('sm3-a ok')", "wrote behind the reply to fnv-c: 'sm3-a ok'"),
        ):  # fmt: skip
            found, run = self.outcomes("greet()\nserve()\n" + body, scale=SCALE)
            self.assertEqual((found, run.code), (["PASS"] * 3, 1))
            self.assertIn("the program " + told, run.err)
        body = "greet()\nserve()\nos.write(1, b'x' * 200000)"
        self.assertEqual(self.outcomes(body)[1].code, 1)

    @thorough
    def test_fresh_holds_the_end_of_every_process(self) -> None:
        self.check("greet()\nserve()\nsys.exit(23)", "CRASH CRASH CRASH", "ended with status 23", words=("--fresh",))
        words = ("--fresh", "--only", "sm3-a")
        self.check("greet()\nserve()\ntime.sleep(60)", "HANG", "did not end", words=words, scale=SCALE)

    def test_it_is_killed_by_its_own_id_alone(self) -> None:
        pids = self.folder / "pids"
        body = "other = os.fork()\nif other == 0:\n    time.sleep(3)\n    os._exit(0)\n"
        body += "open(%r, 'w').write(str(other))\ngreet()\nread()\ntime.sleep(60)" % str(pids)
        self.check(body, "HANG", scale=SCALE, words=("--only", "sm3-a"))
        child = int(pids.read_text())
        os.kill(child, 0)  # still there
        os.kill(child, 9)

    @thorough
    @unittest.skipUnless(os.path.isdir("/dev/fd"), "no /dev/fd")
    def test_nothing_stays_open(self) -> None:
        adapter = Adapter(["false"], 1.0)
        before = os.listdir("/dev/fd")
        for _ in range(5):
            with self.assertRaises(Failure):
                adapter.start()
        self.assertEqual(len(os.listdir("/dev/fd")), len(before))


class Starting(Programs):
    def test_what_can_not_be_started_is_told_once(self) -> None:
        script = self.folder / "script"
        script.write_text("#!/nowhere/at/all\n")
        for mode, told in ((0o644, "executable (chmod +x)"), (0o755, "first line must name a program")):
            script.chmod(mode)
            run = self.run_words([str(script)])
            self.assertEqual((run.code, run.out), (2, ""))
            self.assertIn("can't start", run.err)
            self.assertIn(told, run.err)
        script.write_bytes(b"\x7fELF\x01\x02garbage")
        self.assertIn("can't start", self.run_words([str(script)]).err)
        run = self.run_words(["no-such-program-at-all"])
        self.assertEqual(run.code, 2)
        self.assertIn("./NAME", run.err)
        self.assertEqual(self.run_words([str(self.folder)]).code, 2)

    def test_usage(self) -> None:
        for words in (
            [],
            ["--verify-cmd", "true"],
            ["--verify-cmd", "true {file}", "--", "true"],
            ["--verify-cmd", " "],
        ):
            run = vqfref("kat", "run", "--suite", self.suite, *words)
            self.assertEqual((run.code, run.out), (2, ""), words)
        for scale in ("0", "-1", "nan", "inf", "1e9", "x"):
            run = vqfref("kat", "run", "--suite", self.suite, "--timeout-scale", scale, "--", "true")
            self.assertEqual((run.code, run.out), (2, ""), scale)

    def test_a_python_without_subprocess_says_so(self) -> None:
        with mock.patch.dict("sys.modules", {"subprocess": None}), self.assertRaises(UnsupportedError):
            module.needed("subprocess")


class VerifyCommand(Programs):
    """Programs that only have a command line."""

    def setUp(self) -> None:
        super().setUp()
        for name in ("good one.vqf", "bad one.vqf"):
            (self.folder / "files" / name).write_text(name)
        made = [
            case("good", {"path": "files/good one.vqf"}),
            case("bad", {"path": "files/bad one.vqf"}, error="bounds"),
        ]
        self.suite = write(self.folder, {"vqf_file": made, "sm3": [sm3_case()]})

    def verify(self, body: str, *words: str) -> tuple[list[str], Run]:
        """A command that has its file's name as `path`, and whether that is the bad file as `bad`."""
        path = self.folder / "verify"
        path.write_text(
            "#!%s\nimport os, sys, time\npath = sys.argv[-1]\nwith open(path) as f:\n    bad = 'bad' in f.read()\n%s\n"
            % (sys.executable, body)
        )
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        with tempfile.TemporaryDirectory() as other:  # whose name has no spaces
            os.symlink(str(path), os.path.join(other, "verify"))
            command = os.path.join(other, "verify") + " check {file}"
            run = vqfref("kat", "run", "--suite", self.suite, "-v", "--verify-cmd", command, *words)
        return [line.split()[0] for line in run.out.splitlines()[:-1]], run

    @thorough
    def test_statuses(self) -> None:
        trace = "raise OSError('no')"
        asan = "sys.stderr.write('==1==ERROR: AddressSanitizer: heap-buffer-overflow\\n')\nsys.exit(1)"
        for body, expected, told in (
            ("sys.exit(bad)", "PASS PASS SKIP", ""), ("sys.exit(0)", "PASS FAIL SKIP", "accepted, but invalid"),
            ("sys.exit(1)", "FAIL PASS SKIP", "refused"), ("sys.exit(77)", "SKIP SKIP SKIP", ""),
            ("sys.stderr.write('try -h\\n\\n')\nsys.exit(2)", "PROTOCOL PROTOCOL SKIP", "status 2: wrong usage: try -h"),
            ("sys.exit(3)", "CRASH CRASH SKIP", "ended with status 3"), ("os.abort()", "CRASH CRASH SKIP", "SIGABRT"),
            (trace, "CRASH CRASH SKIP", "OSError: no"), (asan, "CRASH CRASH SKIP", "AddressSanitizer"),
            ("sys.stdout.write('x' * 300000)\nsys.stderr.write('x' * 300000)\nsys.exit(bad)", "PASS PASS SKIP", ""),
        ):  # fmt: skip
            found, run = self.verify(body)
            self.assertEqual(" ".join(found), expected, body)
            self.assertIn(told, run.out)
            self.assertEqual(run.code, 0 if expected == "PASS PASS SKIP" else 1)

    @thorough
    def test_a_command_that_hangs_on_every_file_is_run_three_times(self) -> None:
        made = [case("bad-%d" % i, {"path": "files/bad one.vqf"}, error="bounds") for i in range(9)]
        self.suite = write(self.folder, {"vqf_file": made})
        start = time.monotonic()
        found, run = self.verify("time.sleep(60)", "--timeout-scale", SCALE)
        self.assertEqual((found, run.code), (["HANG"] * 9, 1))
        self.assertEqual(run.out.count("not asked any more"), 6)
        self.assertLess(time.monotonic() - start, 3 * SHORT + 2.5)

    def test_a_path_with_spaces_is_one_argument(self) -> None:
        found, _ = self.verify("sys.exit(bad if sys.argv[1] == 'check' and len(sys.argv) == 3 else 9)")
        self.assertEqual(found, ["PASS", "PASS", "SKIP"])

    @thorough
    def test_a_hang_is_killed_also_where_its_children_live_on(self) -> None:
        start = time.monotonic()
        body = "if os.fork() == 0:\n    time.sleep(SHORT + 3)\n    os._exit(0)\ntime.sleep(60)".replace(
            "SHORT", "%g" % SHORT
        )
        found, run = self.verify(body, "--timeout-scale", SCALE, "--only", "good")
        self.assertEqual(found, ["HANG"])
        self.assertIn("no end within ", run.out)
        self.assertLess(time.monotonic() - start, SHORT + 2.5)

    def test_a_command_that_can_not_be_started(self) -> None:
        run = vqfref("kat", "run", "--suite", self.suite, "--verify-cmd", "no-such-program {file}")
        self.assertEqual((run.code, run.out), (2, ""))
        with self.assertRaises(UsageError):
            verify_command([str(self.folder)], "x", 1)


if __name__ == "__main__":
    unittest.main()

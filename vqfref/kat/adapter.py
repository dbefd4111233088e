"""Drives another program through the suite: a long-lived process that speaks the line protocol, or a command a file.

The protocol's normative text is kat/README.md. Nothing here judges; it gets replies, and tells a crash from a hang from
nonsense. A program runs in the caller's folder, never through a shell, and is killed by its own pid.
"""

from __future__ import annotations

import os

from vqfref.errors import UnsupportedError, UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

PROTOCOL = "vqfref-kat/1"
MAX_LINE = 65535
TIMEOUT = 10.0  # seconds for a reply, times --timeout-scale


class Failure(Exception):
    """No usable reply: kind is CRASH, HANG or PROTOCOL."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


def needed(name: str) -> Any:
    """A module of the standard library that driving other programs needs, and that an image may lack."""
    try:
        return __import__(name)
    except ImportError:
        message = "this Python has no %s module: it can't drive other programs" % name
        raise UnsupportedError("usage.module.unsupported", message) from None


START_HINTS = {
    "ENOENT": "; in this folder it is ./NAME, and a script's first line must name a program that exists",
    "EACCES": "; is it a file, and executable (chmod +x)?",
    "ENOEXEC": "; it is for another machine, or a script without #! in its first line",
}


def started(command: list[str], **streams: Any) -> Any:
    """A Popen of a command. Raises UsageError where it can't be started: no case could come out otherwise."""
    try:
        return needed("subprocess").Popen(command, **streams)
    except OSError as error:
        name = needed("errno").errorcode.get(error.errno, "")
        message = "can't start %s: %s%s" % (command[0], error.strerror, START_HINTS.get(name, ""))
        raise UsageError("usage.program.missing", message) from None


def ending(status: int) -> str:
    """The end of a process in words.

    >>> ending(3), ending(-6)
    ('ended with status 3', 'killed by signal 6 (SIGABRT)')
    """
    if status >= 0:
        return "ended with status %d" % status
    try:
        return "killed by signal %d (%s)" % (-status, needed("signal").Signals(-status).name)
    except (ValueError, UnsupportedError):
        return "killed by signal %d" % -status


class Adapter:
    """One program under test, started when it is first asked and again after a crash or hang.

    A program that fails at its first greeting is not started again: every case is answered with that failure.
    """

    def __init__(self, command: list[str], timeout: float = TIMEOUT, fresh: bool = False) -> None:
        self.command, self.timeout, self.fresh = command, timeout, fresh
        self.name = self.version = ""
        self.ops: frozenset[str] = frozenset()
        self._process: Any = None
        self._buffer = b""
        self._last = ""  # whose reply came last: the greeting's, or the case of that id
        self._greeted = self._replied = False  # once at least
        self._hopeless = ("", "")  # kind and message of the failure at the first greeting

    def ask(self, case_id: str, op: str, fields: dict[str, str]) -> tuple[str, str]:
        """The reply to one case: (word, rest of the line), word ok, err or skip. Raises Failure."""
        if self._hopeless[0]:
            raise Failure(*self._hopeless)
        if self._process is None:
            self.start()
        if op not in self.ops:
            return "skip", ""
        reply = self._exchange(" ".join([case_id, op, *("%s=%s" % item for item in fields.items())]))
        echo, _, rest = reply.partition(" ")
        word, _, rest = rest.partition(" ")
        if echo != case_id or word not in ("ok", "err", "skip"):
            self.kill()
            words = "reply %.80r, expected %s and then ok, err or skip" % (reply, case_id)
            raise Failure("PROTOCOL", words + "; standard output is for replies alone, notes go to standard error")
        self._last = "the reply to " + case_id
        self._replied = True
        wrong = self.close() if self.fresh else None
        if wrong:
            raise Failure("HANG" if "did not end" in wrong else "CRASH", wrong)
        return word, rest

    def start(self) -> None:
        """Start the program and greet it. Raises Failure; UsageError where there is nothing to start."""
        self._buffer = b""
        self._last = ""
        pipe = needed("subprocess").PIPE
        self._process = started(self.command, stdin=pipe, stdout=pipe, bufsize=0)
        for stream in (self._process.stdin, self._process.stdout):
            os.set_blocking(stream.fileno(), False)
        try:
            self._greet(self._exchange("hello " + PROTOCOL))
        except Failure as failure:
            message = "at the greeting: %s" % failure
            if not self._greeted:
                message += "; the program is not started again"
                self._hopeless = failure.kind, message
            raise Failure(failure.kind, message) from None
        self._greeted = True
        self._last = "the greeting"

    def _greet(self, reply: str) -> None:
        """Read the answer to the greeting."""
        words = reply.split()
        facts = dict(w.partition("=")[::2] for w in words[2:])
        if words[:2] != ["hello", PROTOCOL] or not facts.get("ops") or not all("=" in w for w in words[2:]):
            self.kill()
            raise Failure(
                "PROTOCOL", "reply %.80r, expected hello %s name=… version=… ops=…, ops with commas" % (reply, PROTOCOL)
            )
        self.name, self.version = facts.get("name", "?"), facts.get("version", "?")
        self.ops = frozenset(facts["ops"].split(","))

    def _exchange(self, line: str) -> str:
        """Send a line, take the line that comes back. Reads while it writes, so that neither side waits for the other."""
        select, now = needed("select").select, needed("time").monotonic
        out = line.encode("utf-8", "surrogateescape") + b"\n"
        self._check_silence()
        deadline = now() + self.timeout
        while out or b"\n" not in self._buffer:
            if len(self._buffer) > MAX_LINE:
                self.kill()
                raise Failure("PROTOCOL", "a line of more than %d bytes" % MAX_LINE)
            left = deadline - now()
            inputs, outputs = [self._process.stdout], [self._process.stdin] if out else []
            if left <= 0 or not any(select(inputs, outputs, [], left)):
                raise self._hung(out)
            try:
                out = out[os.write(self._process.stdin.fileno(), out) :] if out else out
            except BlockingIOError:
                pass
            except OSError:
                raise self._ended() from None
            if self._read() == b"":
                raise self._ended()
        reply, _, self._buffer = self._buffer.partition(b"\n")
        if self._buffer:
            self.kill()
            found = self._text(reply), self._text(self._buffer)
            raise Failure("PROTOCOL", "more than one line in reply: %.80r and then %.80r" % found)
        return self._text(reply)

    def _read(self) -> bytes | None:
        """Take what is there into the buffer: None if nothing, b"" at the end."""
        try:
            data = os.read(self._process.stdout.fileno(), 1 << 16)
        except BlockingIOError:
            return None
        self._buffer += data
        return data

    @staticmethod
    def _text(line: bytes) -> str:
        return line.rstrip(b"\r\n").decode("ascii", "backslashreplace")

    def _check_silence(self) -> None:
        """Between a reply and the next request a program says nothing, and does not end."""
        data = self._read()
        if data == b"":
            raise self._ended()
        if data:
            self.kill()
            where = "behind " + self._last if self._last else "before the greeting"
            message = "unasked for, %s: %.80r; a request has one line of reply" % (where, self._text(data))
            raise Failure("PROTOCOL", message)

    def _hung(self, unsent: bytes) -> Failure:
        self.kill()
        message = "no reply within %g s (--timeout-scale)" % self.timeout
        if self._buffer:
            return Failure("HANG", "%s: no line feed behind %.80r" % (message, self._text(self._buffer)))
        if unsent:
            return Failure("HANG", message + ": the request is not read")
        hint = "" if self._replied else "; flush standard output after each line (fflush in C)"
        return Failure("HANG", message + hint)

    def _ended(self) -> Failure:
        """The program is gone: with which status?"""
        try:
            status = self._process.wait(self.timeout)
        except needed("subprocess").TimeoutExpired:
            self.kill()
            return Failure("HANG", "closed its input or output but did not end")
        self._forget()
        rest = ", behind %.80r" % self._text(self._buffer) if self._buffer else ""
        hint = "" if status else "; it must serve requests until its input ends"
        return Failure("CRASH", ending(status) + rest + hint)

    def close(self) -> str | None:
        """End of input; a program that follows the protocol ends with 0. Returns what is wrong, or None."""
        if self._process is None:
            return None
        select, now = needed("select").select, needed("time").monotonic
        deadline = now() + self.timeout
        self._process.stdin.close()
        data: bytes | None = None
        while data != b"":
            left = deadline - now()
            if left <= 0 or not select([self._process.stdout], [], [], left)[0]:
                break
            self._buffer = self._buffer[:80]
            data = self._read()
        try:
            status = self._process.wait(max(deadline - now(), 0))
        except needed("subprocess").TimeoutExpired:
            self.kill()
            return "did not end at the end of its input"
        self._forget()
        if status:
            return "%s at the end of its input, expected status 0" % ending(status)
        return "wrote behind %s: %.80r" % (self._last, self._text(self._buffer)) if self._buffer else None

    def kill(self) -> None:
        """End the program at once."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._forget()

    def _forget(self) -> None:
        for stream in (self._process.stdin, self._process.stdout):
            try:
                stream.close()
            except OSError:
                pass
        self._process = None


REPORTS = (b"Traceback (most recent call last)", b"Sanitizer: ")  # on stderr, with a status of 1 that means no verdict


def verify_command(words: list[str], path: str, timeout: float) -> tuple[str, str]:
    """Run a command on one file: `{file}` in its words becomes the path. The reply in the protocol's words.

    Status 0 accepts, 1 rejects, 77 skips, 2 is wrong usage. Raises Failure for anything else, for a signal, and for a
    status of 1 with a traceback or a sanitizer's report on stderr. Raises UsageError where it can't be started.
    """
    subprocess = needed("subprocess")
    command = [w.replace("{file}", path) for w in words]
    with needed("tempfile").TemporaryFile() as stderr:  # a pipe would stay open in what the command starts itself
        process = started(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=stderr)
        try:
            status = process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise Failure("HANG", "no end within %g s (--timeout-scale)" % timeout) from None
        finally:
            process.kill()
            process.wait()
        stderr.seek(0)
        said = stderr.read(1 << 20)
    if status == 1 and any(mark in said for mark in REPORTS):
        raise Failure("CRASH", "ended with status 1 and a traceback or a sanitizer's report" + last_line(said))
    replies = {0: "ok", 1: "err", 77: "skip"}
    if status in replies:
        return replies[status], ""
    if status == 2:
        raise Failure("PROTOCOL", "status 2: wrong usage" + last_line(said))
    raise Failure("CRASH", ending(status) + last_line(said))


def last_line(said: bytes) -> str:
    """The last line that a program wrote to standard error, to stand behind a message."""
    lines = said.decode("utf-8", "backslashreplace").split("\n")
    return next((": %.80s" % line.strip() for line in reversed(lines) if line.strip()), "")

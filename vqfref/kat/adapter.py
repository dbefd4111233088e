"""Drives another program through the suite: a long-lived process that speaks the line protocol, or a command a file.

The protocol's normative text is kat/README.md. Nothing here judges; it gets replies, and tells a crash from a hang from
nonsense. A program runs in the caller's folder, never through a shell, and is killed by its own pid.
"""

from __future__ import annotations

import os

from vqfref.errors import UnsupportedError

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


class Adapter:
    """One program under test, started when it is first asked and again after a crash or hang."""

    def __init__(self, command: list[str], timeout: float = TIMEOUT, fresh: bool = False) -> None:
        self.command, self.timeout, self.fresh = command, timeout, fresh
        self.name = self.version = ""
        self.ops: frozenset[str] = frozenset()
        self._process: Any = None
        self._buffer = b""

    def ask(self, case_id: str, op: str, fields: dict[str, str]) -> tuple[str, str]:
        """The reply to one case: (word, rest of the line), word ok, err or skip. Raises Failure."""
        if self._process is None:
            self.start()
        if op not in self.ops:
            return "skip", ""
        line = " ".join([case_id, op, *("%s=%s" % item for item in fields.items())])
        if len(line.encode("utf-8", "surrogateescape")) > MAX_LINE:
            raise Failure("PROTOCOL", "the case does not fit a line")
        reply = self._exchange(line)
        if self.fresh:
            self.close()
        echo, _, rest = reply.partition(" ")
        word, _, rest = rest.partition(" ")
        if echo != case_id or word not in ("ok", "err", "skip"):
            self.kill()
            raise Failure("PROTOCOL", "reply %.80r to case %s" % (reply, case_id))
        return word, rest

    def start(self) -> None:
        """Start the program and greet it."""
        self._buffer = b""
        subprocess = needed("subprocess")
        try:
            self._process = subprocess.Popen(self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
        except OSError as error:
            raise Failure("CRASH", "can't start %s: %s" % (self.command[0], error.strerror)) from None
        reply = self._exchange("hello " + PROTOCOL)
        words = reply.split(" ")
        if words[:2] != ["hello", PROTOCOL]:
            self.kill()
            raise Failure("PROTOCOL", "greeting %.80r, expected hello %s" % (reply, PROTOCOL))
        facts = dict(w.partition("=")[::2] for w in words[2:])
        self.name, self.version = facts.get("name", "?"), facts.get("version", "?")
        self.ops = frozenset(facts.get("ops", "").split(","))

    def _exchange(self, line: str) -> str:
        try:
            self._process.stdin.write(line.encode("utf-8", "surrogateescape") + b"\n")
        except OSError:
            raise self._ended() from None
        select = needed("select").select
        while b"\n" not in self._buffer:
            if len(self._buffer) > MAX_LINE:
                self.kill()
                raise Failure("PROTOCOL", "a line of more than %d bytes" % MAX_LINE)
            ready, _, _ = select([self._process.stdout], [], [], self.timeout)
            if not ready:
                self.kill()
                raise Failure("HANG", "no reply within %g s" % self.timeout)
            data = os.read(self._process.stdout.fileno(), 1 << 16)
            if not data:
                raise self._ended()
            self._buffer += data
        reply, _, self._buffer = self._buffer.partition(b"\n")
        return reply.rstrip(b"\r").decode("ascii", "backslashreplace")

    def _ended(self) -> Failure:
        """The program is gone: with which status?"""
        try:
            status = self._process.wait(self.timeout)
        except needed("subprocess").TimeoutExpired:
            self.kill()
            return Failure("HANG", "closed its output but did not end")
        self._forget()
        return Failure("CRASH", "killed by signal %d" % -status if status < 0 else "ended with status %d" % status)

    def close(self) -> str | None:
        """End of input; a program that follows the protocol ends with 0. Returns what is wrong, or None."""
        if self._process is None:
            return None
        try:
            self._process.stdin.close()
            status = self._process.wait(self.timeout)
        except (OSError, needed("subprocess").TimeoutExpired):
            self.kill()
            return "did not end at the end of its input"
        self._forget()
        return None if status == 0 else "ended with status %d at the end of its input" % status

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


def verify_command(words: list[str], path: str, timeout: float) -> tuple[str, str]:
    """Run a command on one file: `{file}` in its words becomes the path. The reply in the protocol's words.

    Status 0 accepts, 1 rejects, 77 skips, 2 is wrong usage. Raises Failure for anything else, for a signal, and for a
    status of 1 with a Python traceback on stderr.
    """
    subprocess = needed("subprocess")
    command = [w.replace("{file}", path) for w in words]
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=timeout, check=False)
    except subprocess.TimeoutExpired:
        raise Failure("HANG", "no end within %g s" % timeout) from None
    except OSError as error:
        raise Failure("CRASH", "can't start %s: %s" % (command[0], error.strerror)) from None
    traceback = b"Traceback (most recent call last)" in done.stderr
    if done.returncode == 0:
        return "ok", ""
    if done.returncode == 1 and not traceback:
        return "err", ""
    if done.returncode == 77:
        return "skip", ""
    if done.returncode == 2:
        raise Failure("PROTOCOL", "status 2: wrong usage")
    if done.returncode < 0:
        raise Failure("CRASH", "killed by signal %d" % -done.returncode)
    raise Failure("CRASH", "a Python traceback" if traceback else "status %d" % done.returncode)

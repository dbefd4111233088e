"""The error tree. Whatever is wrong with the input, a call here raises one of these.

Each carries the same facts: a stable code, the byte offset, the field, and a message that says what was found, what was
expected and where. Codes are dotted; their last part is one word of WORDS, the closed list which the known-answer tests
share with other implementations. `vqfref/codes.py` gives each code its meaning and its cure. A report that goes on to
the end of the file is made of findings (findings.py).
"""

from __future__ import annotations

WORDS = (
    "truncated", "magic", "version", "header", "layout", "bounds", "overlap", "align", "dtype", "shape", "name",
    "duplicate", "json", "missing", "unsupported", "tag", "signature", "key", "iv", "range", "point", "limit", "policy",
)  # fmt: skip


MAX_HINTED = 4096  # names among which a misspelt one is looked for; each takes some 0.03 ms

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Sequence


class VqfrefError(ValueError):
    """The root of all errors raised here; OSError alone passes through untouched.

    code: stable dotted name; offset: byte offset in the file, or None; field: the name of the field or tensor, or
    None; path: the file, or None where only bytes were given; message: the sentence without these.
    """

    def __init__(
        self, code: str, message: str, *, offset: int | None = None, field: str | None = None, path: str | None = None
    ) -> None:
        super().__init__(code, message)  # both in args, so that copies and pickles work
        self.code = code
        self.message = message
        self.offset = offset
        self.field = field
        self.path = path

    @property
    def word(self) -> str:
        """The class of the fault: the last part of the code, one of WORDS."""
        return self.code.rsplit(".", 1)[-1]

    def __str__(self) -> str:
        return location(self.offset, self.field) + self.message


class FormatError(VqfrefError):
    """The bytes break a rule of their format."""


class UnsupportedError(VqfrefError):
    """The bytes may be right, but this library has no rule for them."""


class LimitError(VqfrefError):
    """A limit of this library or of this host was reached; the bytes may be right."""


class IntegrityError(VqfrefError):
    """A checksum or an authentication tag does not match, or the key is wrong or missing."""


class SignatureError(VqfrefError):
    """A signature, its key or its user id is wrong or missing."""


class UsageError(VqfrefError):
    """The caller's fault, not the file's."""


class TensorNotFound(UsageError, KeyError):
    """No tensor of that name."""


def did_you_mean(name: str, names: Sequence[str]) -> str:
    """The names that look like one that is not there, as words to add to a message; empty if none does."""
    try:
        from difflib import get_close_matches  # not in Debian's python3-minimal
    except ImportError:
        return ""
    near = get_close_matches(name, names[:MAX_HINTED], 3)
    return "; did you mean %s?" % " or ".join(near) if near else ""


def location(offset: int | None, field: str | None) -> str:
    """The words before a message: `@0x1c0 token_embed: `, or as much of it as is known."""
    words = []
    if offset is not None:
        words.append("@0x%x" % offset)
    if field is not None:
        words.append(printable(field))
    return " ".join(words) + ": " if words else ""


def printable(text: str) -> str:
    """Text that comes from a file, made safe for a terminal: control, invisible and undecodable characters escaped.

    >>> printable("a\\x1b[2Jb")
    'a\\\\x1b[2Jb'
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)

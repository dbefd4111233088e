"""JSON read strictly, and written (RFC 8259).

Two readers of one document must never see two different things in it. So what RFC 8259 leaves to the reader is an error
here: duplicate keys, lone surrogates, a byte order mark, numbers beyond the doubles; and nesting, keys and numbers have
limits, so that no input costs more than time and memory in proportion to its length.

There are two ways through the same text. The plain parser, one function a rule of the grammar, is the reference and
makes every error. The quick one lets the json module's C scanner do the work, held to the same rules by hooks; at any
doubt it gives way to the plain one. Without json all works the same. Streams are not read, comments not known.
"""

from __future__ import annotations

from math import inf, isfinite

from vqfref.errors import FormatError, LimitError, VqfrefError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

MAX_DEPTH = 64  # arrays and objects inside each other
MAX_DIGITS = 1000  # characters of a number
MAX_NAME = 65535  # characters of a key
MAX_QUICK_DIGITS = 600  # digits that every Python's int reads, whatever its limit

_SPACE = frozenset(" \t\n\r")
_NUMBER_START = frozenset("-0123456789")
_NUMBER = "0123456789+-.eE"
_HEX = "0123456789abcdefABCDEF"
_WORDS = (("true", True), ("false", False), ("null", None))
_ESCAPES = {'"': '"', "\\": "\\", "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_ESCAPED = {char: "\\" + letter for letter, char in _ESCAPES.items() if char != "/"}
_NONFINITE = {inf: "Infinity", -inf: "-Infinity"}
_ZEROS = bytes.maketrans(b"123456789", b"000000000")
_SQUARE = bytes.maketrans(b"{}", b"[]")
_NEITHER = bytes(set(range(256)) - set(b'"[]{}'))  # neither quote nor bracket


def loads(data: bytes | bytearray | memoryview | str, *, path: str | None = None, offset: int = 0) -> Any:
    """The value of exactly one JSON text, with nothing but JSON white space around it.

    Numbers with '.', 'e' or 'E' become float and all others int, but `-0` becomes -0.0, since there is no negative zero
    among the ints. A number too small for a double becomes zero.

    path and offset say where the text lies: an error carries the path, and the offset plus that of the faulty byte (in
    a str: of its UTF-8 form). FormatError: json.syntax.json, json.utf8.json, json.surrogate.json, json.key.duplicate
    (its field is the key, its offset the second key's) and json.number.range. LimitError: json.depth.limit,
    json.digits.limit and json.name.limit. No bytes raise anything else.
    """
    raw = data.encode("utf-8", "surrogatepass") if isinstance(data, str) else memoryview(data).tobytes()
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        message = "found the byte 0x%02x, expected UTF-8 text" % raw[error.start]
        raise FormatError("json.utf8.json", message, offset=offset + error.start, path=path) from None
    try:
        return _parse_quick(raw, text)
    except Exception:  # whatever it was, the plain parser knows better
        pass
    try:
        return _parse_plain(text)
    except VqfrefError as error:  # its offset is a place in the text until here
        error.offset = offset + len(text[: error.offset].encode("utf-8"))
        error.path = path
        raise


# The plain parser: functions (text, place) -> (value, place after it). Places count characters, in their errors too.


def _parse_plain(text: str) -> Any:
    """JSON-text = ws value ws (section 2)."""
    value, pos = _value(text, _skip_space(text, 0), 0)
    pos = _skip_space(text, pos)
    if pos < len(text):
        raise _syntax(text, pos, "nothing after the value")
    return value


def _skip_space(text: str, pos: int) -> int:
    """The place of the next character that is not white space (section 2)."""
    while text[pos : pos + 1] in _SPACE:
        pos += 1
    return pos


def _value(text: str, pos: int, depth: int) -> tuple[Any, int]:
    """A value inside so many arrays and objects (section 3)."""
    char = text[pos : pos + 1]
    if char == '"':
        return _string(text, pos)
    if char in _NUMBER_START:
        return _number(text, pos)
    if char == "{" or char == "[":
        if depth == MAX_DEPTH:
            raise _fault("json.depth.limit", pos, "an array or object inside of %d others" % depth, "no more levels")
        return (_object if char == "{" else _array)(text, pos, depth + 1)
    for word, value in _WORDS:
        if text.startswith(word, pos):
            return value, pos + len(word)
    raise _syntax(text, pos, "a JSON value")


def _object(text: str, pos: int, depth: int) -> tuple[dict[str, Any], int]:
    """An object; its keys must differ once their escapes are undone (section 4)."""
    members: dict[str, Any] = {}
    more, pos = _has_first(text, pos, "}")
    while more:
        key, end = _key(text, pos)
        if key in members:
            raise _fault("json.key.duplicate", pos, "this key again", "keys that differ within an object", field=key)
        members[key], pos = _value(text, end, depth)
        more, pos = _has_next(text, pos, "}")
    return members, pos


def _key(text: str, pos: int) -> tuple[str, int]:
    """A key, with the colon and the white space after it (section 4)."""
    if not text.startswith('"', pos):
        raise _syntax(text, pos, "a key in double quotes")
    key, end = _string(text, pos)
    if len(key) > MAX_NAME:
        raise _fault("json.name.limit", pos, "a key of %d characters" % len(key), "at most %d" % MAX_NAME)
    end = _skip_space(text, end)
    if not text.startswith(":", end):
        raise _syntax(text, end, "':' after a key")
    return key, _skip_space(text, end + 1)


def _array(text: str, pos: int, depth: int) -> tuple[list[Any], int]:
    """An array (section 5)."""
    elements: list[Any] = []
    more, pos = _has_first(text, pos, "]")
    while more:
        element, pos = _value(text, pos, depth)
        elements.append(element)
        more, pos = _has_next(text, pos, "]")
    return elements, pos


def _has_first(text: str, pos: int, close: str) -> tuple[bool, int]:
    """After an opening bracket: does an element follow? The place is that of the element, or after the end."""
    pos = _skip_space(text, pos + 1)
    return (False, pos + 1) if text.startswith(close, pos) else (True, pos)


def _has_next(text: str, pos: int, close: str) -> tuple[bool, int]:
    """After an element: does another follow? The place is that of the other, or after the end."""
    pos = _skip_space(text, pos)
    char = text[pos : pos + 1]
    if char == close:
        return False, pos + 1
    if char != ",":
        raise _syntax(text, pos, "',' or '%s'" % close)
    return True, _skip_space(text, pos + 1)


def _number(text: str, pos: int) -> tuple[int | float, int]:
    """A number; all characters here that numbers are made of belong to it (section 6)."""
    ahead = text[pos : pos + MAX_DIGITS + 1]
    literal = ahead[: len(ahead) - len(ahead.lstrip(_NUMBER))]
    return _number_value(literal, pos), pos + len(literal)


def _number_value(literal: str, pos: int = 0) -> int | float:
    """The value of characters of _NUMBER, which must make a number (section 6) within the limits."""
    shown = literal if len(literal) <= 40 else literal[:37] + "..."
    if len(literal) > MAX_DIGITS:
        raise _fault("json.digits.limit", pos, shown, "at most %d characters of a number" % MAX_DIGITS)
    if not _is_number(literal):
        raise _fault("json.syntax.json", pos, shown, "a number as JSON writes it")
    try:
        value = int(literal) if literal.lstrip("-").isdigit() and literal != "-0" else float(literal)
    except ValueError:  # sys.set_int_max_str_digits may go down to 640
        raise _fault("json.digits.limit", pos, shown, "no more digits than this Python reads") from None
    if value == inf or value == -inf:
        raise _fault("json.number.range", pos, shown, "a number that a double can hold")
    return value


def _is_number(literal: str) -> bool:
    """Do these characters of _NUMBER make [minus] int [frac] [exp]? (section 6)"""
    mantissa, e, exponent = literal.replace("E", "e").partition("e")
    integer, point, fraction = mantissa.partition(".")
    integer = integer[1:] if integer.startswith("-") else integer
    exponent = exponent[1:] if exponent.startswith(("+", "-")) else exponent
    return (
        integer.isdigit()
        and (integer == "0" or not integer.startswith("0"))
        and (fraction.isdigit() or not point)
        and (exponent.isdigit() or not e)
    )


def _string(text: str, pos: int) -> tuple[str, int]:
    """A string; pos is that of its opening quote (section 7)."""
    pieces = []
    start = pos + 1
    end = text.find('"', start)  # of the string, unless that quote turns out to be escaped
    while end >= 0:
        escape = text.find("\\", start, end)
        if escape < 0:
            pieces.append(_unescaped(text, start, end))
            return "".join(pieces), end + 1
        pieces.append(_unescaped(text, start, escape))
        char, start = _escape(text, escape)
        pieces.append(char)
        if start > end:
            end = text.find('"', start)
    raise _fault("json.syntax.json", pos, "a string without end", "a closing quote")


def _unescaped(text: str, start: int, end: int) -> str:
    """A piece of a string without escapes; it must be without control characters too (section 7)."""
    piece = text[start:end]
    if not piece.isprintable():
        for index, char in enumerate(piece):
            if char < " ":
                raise _syntax(text, start + index, "an escape for a control character")
    return piece


def _escape(text: str, pos: int) -> tuple[str, int]:
    """An escape: of one letter, of four hex digits, or of two surrogates that make one character (section 7)."""
    letter = text[pos + 1 : pos + 2]
    if letter in _ESCAPES:
        return _ESCAPES[letter], pos + 2
    code, end = _unicode_escape(text, pos)
    if 0xD800 <= code < 0xDC00 and text.startswith("\\u", end):
        low, low_end = _unicode_escape(text, end)
        if 0xDC00 <= low < 0xE000:
            return chr(0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00)), low_end
    if 0xD800 <= code < 0xE000:
        raise _fault("json.surrogate.json", pos, "the lone surrogate \\u%04x" % code, "a high one, then a low one")
    return chr(code), end


def _unicode_escape(text: str, pos: int) -> tuple[int, int]:
    """The code of an escape of u and four hex digits (section 7)."""
    digits = text[pos + 2 : pos + 6]
    if not text.startswith("u", pos + 1) or len(digits) < 4 or digits.strip(_HEX):
        raise _fault("json.syntax.json", pos, ascii(text[pos : pos + 6]), "an escape of JSON")
    return int(digits, 16), pos + 6


def _syntax(text: str, pos: int, expected: str) -> VqfrefError:
    """The fault that the text does not go on as it should."""
    return _fault("json.syntax.json", pos, ascii(text[pos]) if pos < len(text) else "the end", expected)


def _fault(code: str, pos: int, found: str, expected: str, field: str | None = None) -> VqfrefError:
    kind = LimitError if code.endswith(".limit") else FormatError
    return kind(code, "found %s, expected %s" % (found, expected), offset=pos, field=field)


# The quick parser.


def _parse_quick(raw: bytes, text: str) -> Any:
    """What _parse_plain returns; or any exception, where that might raise."""
    import json.scanner  # for the hint of the C scanner: its Python twin is neither quick nor strict

    if getattr(json.scanner, "c_make_scanner", None) is None or b"\\" in raw or not _is_shallow(raw):
        raise ValueError("not for the quick parser")
    # int itself, without a call a number, is right where no integer is -0 and none has more digits than any Python reads
    plain = b"-0" not in raw and b"0" * MAX_QUICK_DIGITS not in raw.translate(_ZEROS)
    decoder = json.JSONDecoder(
        object_pairs_hook=_quick_object, parse_int=int if plain else _number_value, parse_float=_number_value,
        parse_constant=_refuse,
    )  # fmt: skip
    return decoder.decode(text)


def _is_shallow(raw: bytes) -> bool:
    """Is JSON without backslashes surely no deeper than MAX_DEPTH? Brackets in strings make it unsure.

    Of quotes and brackets alone, first each pair of adjacent quotes goes. If no quote is left then, every run of them
    was even, so that no bracket lay within a string. Each pass then takes away the innermost brackets, and only those.
    """
    brackets = raw.translate(_SQUARE, _NEITHER).replace(b'""', b"")
    if b"[" * (MAX_DEPTH + 1) in brackets:
        return False  # spares the passes on the simplest attack
    for _ in range(MAX_DEPTH):
        brackets = brackets.replace(b"[]", b"")
    return not brackets


def _quick_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs) or max(map(len, members), default=0) > MAX_NAME:
        raise ValueError("a key twice, or a long one")
    return members


def _refuse(word: str) -> None:
    raise ValueError(word)  # NaN, Infinity and -Infinity, which the json module would take


# The writer.


def dumps(
    value: object,
    *,
    indent: int | None = None,
    ascii_only: bool = True,
    real: Callable[[float], str] = float.__repr__,
) -> str:
    """JSON of None, bool, int, float, str, list, tuple, and dict with str keys; anything else is a TypeError.

    Compact without indent; with it, laid out as json.dumps(indent=N) has it. The order of dicts is kept. ascii_only:
    all that is not ASCII is escaped, lone surrogates too, which stand for the undecodable bytes of file names; else
    only what JSON forbids. real: how a finite float is written. NaN and infinities, for which JSON has no numbers,
    become the strings "NaN", "Infinity" and "-Infinity".
    """
    writer = _Writer(ascii_only, real)
    return writer.dump(value, "", "") if indent is None else writer.dump(value, "\n", " " * indent)


class _Writer:
    """How strings and floats are written; all else is the same everywhere."""

    def __init__(self, ascii_only: bool, real: Callable[[float], str]) -> None:
        self.last = "~" if ascii_only else "\U0010ffff"
        self.real = real

    def dump(self, value: object, newline: str, step: str) -> str:
        """JSON with newline before its closing bracket, and one step more before each of its elements."""
        if isinstance(value, str):
            return self.string(value)
        if value is None or value is True or value is False:
            return {None: "null", True: "true", False: "false"}[value]
        if isinstance(value, int):
            return int.__repr__(value)
        if isinstance(value, float):
            return self.real(value) if isfinite(value) else '"%s"' % _NONFINITE.get(value, "NaN")
        inner = newline + step
        if isinstance(value, (list, tuple)):
            brackets, items = "[]", [self.dump(element, inner, step) for element in value]
        elif isinstance(value, dict):
            colon = ": " if newline else ":"
            brackets = "{}"
            items = [self.string(key) + colon + self.dump(value[key], inner, step) for key in value]
        else:
            raise TypeError("JSON has no %s" % type(value).__name__)
        return brackets[0] + inner + ("," + inner).join(items) + newline + brackets[1] if items else brackets

    def string(self, text: object) -> str:
        if not isinstance(text, str):
            raise TypeError("a key in JSON is a str, not %s" % type(text).__name__)
        return '"%s"' % "".join([c if self.plain(c) else _dump_char(ord(c)) for c in text])

    def plain(self, c: str) -> bool:
        return " " <= c <= self.last and c not in '"\\' and not "\ud800" <= c <= "\udfff"


def _dump_char(code: int) -> str:
    if code > 0xFFFF:
        return _dump_char(0xD7C0 + (code >> 10)) + _dump_char(0xDC00 + (code & 0x3FF))
    return _ESCAPED.get(chr(code)) or "\\u%04x" % code

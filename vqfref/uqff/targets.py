"""Which type each layer gets: the requested one, a pin, promotion, and what its shape allows. Spec: UQFF section 9."""

from __future__ import annotations

from collections import namedtuple

from vqfref import strictjson
from vqfref.errors import FormatError, UnsupportedError, UsageError
from vqfref.quant import ggml
from vqfref.uqff.naming import AFQ, F8Q8, FP8, HQQ, MXFP4, SHORTHANDS, TYPES, unsigned

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# 9.2: what a sensitive tensor gets instead of the default; other types stay
PROMOTION = {
    **dict.fromkeys(("afq2", "afq3", "afq4"), "afq6"),
    **dict.fromkeys(("afq6", "afq8"), "afq8"),
    **dict.fromkeys(("q2k", "q3k", "q4k", "q4_0", "q4_1"), "q6k"),
    **dict.fromkeys(("q5k", "q6k", "q8k", "q5_0", "q5_1", "q8_0", "q8_1"), "q8_0"),
}

# 9.2: the paths that model loaders declare as sensitive
SENSITIVE = frozenset(
    (
        "model.embed_tokens", "lm_head", "embed_tokens", "model.text_model.embed_tokens", "llm.model.embed_tokens",
        "language_model.model.embed_tokens", "language_model.lm_head", "model.language_model.embed_tokens",
        "model.language_model.embed_tokens_per_layer", "model.language_model.lm_head", "llm.lm_head",
        "mm_streams_embeddings.embedding_module.tok_embeddings", "output",
    )
)  # fmt: skip

# 9.3: the next type to try where the last dimension does not fit; a 32-block type that does not fit becomes f32
FALLBACK = {"q2k": "q4_0", "q3k": "q4_0", "q4k": "q4_1", "q5k": "q5_0", "q6k": "q5_1", "q8k": "q8_1"}
BLOCK = {t.name: t.block_elements for t in ggml.TYPES.values()}
AFQ_GROUP = HQQ_GROUP = 64  # what the writer uses
MAX_TOPOLOGY = 1 << 20  # bytes
AFQ_REASON = "last dim is not divisible by group size 64"
GGML_REASON = "tensor is not quantizable"

Target = namedtuple("Target", "default resolved stored reason")
Target.__doc__ = """What one layer gets: the requested type, what pin or promotion make of it, what it is stored as
(unquant and f32 included), and the report's reason where it was not quantized."""


def canonical(name: str) -> str:
    """A type name in its canonical form. Raises UsageError for what is none."""
    lower = name.lower()
    if lower not in TYPES:
        raise UsageError("usage.type.unsupported", "type %r: expected one of %s" % (name, " ".join(TYPES)))
    return lower


def expand_types(names: list[str], device: str = "cpu") -> list[str]:
    """Canonical types; a number becomes all types that it stands for, on Metal in reverse order. Raises UsageError for no
    type, an unknown one, one given twice, and f8q8 on an accelerator (Q2)."""
    found: list[str] = []
    for name in names:
        types = SHORTHANDS.get(name)
        found += (types if device != "metal" else types[::-1]) if types else [canonical(name)]
    if not found:
        raise UsageError("usage.type.missing", "at least one type is needed")
    for name in found:
        if found.count(name) > 1:
            raise UsageError("usage.type.duplicate", "type %s is given twice" % name)
        if name == "f8q8" and device != "cpu":
            raise UsageError("uqff.q2.unsupported", "f8q8 is for the CPU only: use fp8 on %s" % device)
    return found


def stored_type(target: str, shape: tuple[int, ...]) -> tuple[str, str | None]:
    """(stored type, reason) of a target for a shape, by the fallback of 9.3.

    Raises UsageError where the whole write fails: experts' stacks in types that have none (M2), HQQ and MXFP4 shapes,
    and what no layer may have (section 18, G8): no dimension, more than three, one of zero.
    """
    if not 1 <= len(shape) <= 3 or 0 in shape:
        raise UsageError("uqff.w1.shape", "shape %s: a layer has one to three dimensions, none of them 0" % list(shape))
    family, last = TYPES[target], shape[-1]
    if len(shape) == 3 and family in (HQQ, FP8, F8Q8, MXFP4):
        raise UsageError("uqff.m2.unsupported", "%s can't hold stacked experts: use a Q type or AFQ" % target)
    if family == AFQ:
        return ("unquant", AFQ_REASON) if last % AFQ_GROUP else (target, None)
    if family == HQQ:
        elements = 1
        for n in shape:
            elements *= n
        if elements % HQQ_GROUP:
            raise UsageError("uqff.w1.shape", "%s: %d elements are not a multiple of 64" % (target, elements))
        return target, None
    if family == MXFP4:
        if last % 32:
            raise UsageError("uqff.w1.shape", "%s: the last dimension %d is not a multiple of 32" % (target, last))
        return target, None
    if family in (FP8, F8Q8):
        return target, None
    while last % BLOCK[target]:
        if target not in FALLBACK:
            return "f32", GGML_REASON
        target = FALLBACK[target]
    return target, None


def resolve_target(key: str, shape: tuple[int, ...], default: str, pins: Pins | None, source_key: str) -> Target:
    """The Target of one layer. source_key: the path of its source tensor, which pins of experts are matched against."""
    pinned = pins.match(key, source_key) if pins else None
    resolved = pinned or (PROMOTION.get(default, default) if key in SENSITIVE else default)
    try:
        stored, reason = stored_type(resolved, shape)
    except UsageError as error:
        error.field = key
        raise
    return Target(default, resolved, stored, reason)


# ---- topology: 9.4


class Pins:
    """Types pinned by selectors: `/regex/` against `<key>.weight`, `a-b` (layers a … b-1), or one layer number."""

    def __init__(self, selectors: list[tuple[str, str]]) -> None:
        """selectors: (selector, type) in the order in which they are declared. Raises UsageError."""
        self._regexes: list[tuple[Any, str]] = []
        self._ranges: list[tuple[int, int, int, str]] = []  # (end, place, start, type)
        for place, (selector, name) in enumerate(selectors):
            target = canonical(name)
            if len(selector) >= 2 and selector.startswith("/") and selector.endswith("/"):
                self._regexes.append((_regex(selector[1:-1]), target))
                continue
            first, dash, last = selector.partition("-")
            start, stop = _number(first), _number(last)
            if start is None or (dash and stop is None):
                raise UsageError(
                    "usage.topology.name", "selector %.60r: expected /regex/, a-b or a layer number" % selector
                )
            stop = start + 1 if stop is None else stop
            if stop <= start:
                raise UsageError("usage.topology.range", "selector %r: no layers" % selector)
            self._ranges.append((stop, place, start, target))

    def match(self, key: str, source_key: str) -> str | None:
        """The type pinned for a layer: the last regex that matches, else the range with the largest end (the later one
        among equals)."""
        for regex, target in reversed(self._regexes):
            if regex.search(source_key + ".weight"):
                return str(target)
        number = layer_number(key)
        if number is None:
            return None
        fitting = [r for r in self._ranges if r[2] <= number < r[0]]
        return str(max(fitting)[3]) if fitting else None


def _regex(text: str) -> Any:
    try:
        import re
    except ImportError:
        raise UnsupportedError("usage.regex.unsupported", "this Python has no re module") from None
    try:
        return re.compile(text)
    except (re.error, OverflowError, RecursionError) as error:
        raise UsageError("usage.topology.name", "regex %r: %s" % (text, error)) from None


def layer_number(key: str) -> int | None:
    """The integer behind a path segment `layers` or `h`, or None."""
    parts = key.split(".")
    for before, part in zip(parts, parts[1:]):
        number = _number(part)
        if before in ("layers", "h") and number is not None:
            return number
    return None


def _number(text: str) -> int | None:
    """The value of ASCII digits below 2^64, or None."""
    return None if text.startswith("+") else unsigned(text)


def parse_topology(data: bytes, path: str | None = None) -> Pins:
    """Pins from a topology file: `selector:` lines, each with an indented `isq: TYPE` line, or the same as JSON.

    Anything else that YAML knows is refused: FormatError usage.topology.json.
    """
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise FormatError("usage.topology.json", "not UTF-8", offset=error.start, path=path) from None
    if text.lstrip().startswith("{"):
        return Pins(_json_selectors(data, path))
    selectors: list[tuple[str, str]] = []
    pending: str | None = None
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        indented = line[0] in " "
        name, colon, value = _split(line)
        if colon and not indented and not value and pending is None:
            pending = name
        elif colon and indented and name == "isq" and value and pending is not None:
            selectors.append((pending, value))
            pending = None
        else:
            message = "line %d: %.60r: expected `selector:` and an indented `isq: TYPE`" % (number, line)
            raise FormatError("usage.topology.json", message, path=path)
    if pending is not None:
        raise FormatError("usage.topology.json", "%r has no isq: TYPE" % pending, path=path)
    return Pins(selectors)


def _split(line: str) -> tuple[str, str, str]:
    """(key, colon, value) of a line, quotes taken off; a key in quotes may hold colons."""
    text = line.strip()
    if '"' in (text[0], text[-1]) and "\\" in text:
        return text, "", ""  # an escape
    if text[0] in "'\"":
        end = text.find(text[0], 1)
        key, rest = text[1:end], text[end + 1 :].lstrip()
        colon, value = rest[:1], rest[1:]
    else:
        key, colon, value = text.partition(":")
    value = value.strip()
    if len(value) >= 2 and value[0] in "'\"" and value[-1] == value[0]:
        value = value[1:-1]
    return key.strip(), ":" if colon == ":" else "", value


def _json_selectors(data: bytes, path: str | None) -> list[tuple[str, str]]:
    root = strictjson.loads(data, path=path)
    selectors = []
    for selector, value in root.items():
        if not isinstance(value, dict) or set(value) != {"isq"} or not isinstance(value["isq"], str):
            message = "%r: expected an object with isq alone" % selector
            raise FormatError("usage.topology.json", message, path=path)
        selectors.append((selector, value["isq"]))
    return selectors

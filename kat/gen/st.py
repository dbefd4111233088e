"""safetensors files for the suite: a small serializer, and the cases of st_header. Run by files.py.

A header is written as text here, so that it can say anything. The package safetensors judges every file: what it takes
is valid and what it refuses is invalid, but where a case's source says otherwise: keys that stand twice and what LOOSE
names are refused here; white space before the header's brace and fields that nobody knows are a matter of policy.
"""

from __future__ import annotations

import json

import safetensors
from suite import case, data, prove

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, Iterator, Tuple

    from suite import Case

    Tensor = Tuple[str, Tuple[int, ...], bytes]
    Tensors = Dict[str, Tensor]

BITS = {
    "BOOL": 8, "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6, "U8": 8, "I8": 8, "F8_E5M2": 8, "F8_E4M3": 8, "F8_E8M0": 8,
    "I16": 16, "U16": 16, "F16": 16, "BF16": 16, "I32": 32, "U32": 32, "F32": 32, "C64": 64, "F64": 64, "I64": 64,
    "U64": 64,
}  # fmt: skip
LIMIT = 100_000_000

PEER = "generator; the package safetensors agrees"
LOOSE = ("metadata-null", "entry-array")  # what the package safetensors takes besides
LAX = "generator; the package safetensors takes the last of the two"
POLICY = "generator; the package safetensors takes it"

# What a flag's cases catch.
FLAGS = {
    "st-short": "a file that has no room for the header's length",
    "st-length": "a header's length that goes past the end of the file",
    "st-length-wrap": "8 plus the header's length, modulo 2^32 or 2^64, lands inside the file",
    "st-limit": "a header's length above 100,000,000",
    "st-object": "the header is a JSON object",
    "st-json": "the header is one JSON text: no comments, no NaN, nothing behind it but white space",
    "st-utf8": "the header is UTF-8",
    "st-surrogate": "a lone surrogate, written as an escape",
    "st-duplicate": "a key that stands twice",
    "st-duplicate-escaped": "a key that stands twice, once with escapes",
    "st-metadata": "__metadata__ is an object of texts",
    "st-entry": "an entry is an object",
    "st-missing": "an entry has dtype, shape and data_offsets",
    "st-dtype": "dtypes by their exact names",
    "st-dtype-size": "the size of every dtype",
    "st-shape": "a shape is a list of unsigned integers of 64 bits",
    "st-offsets": "data_offsets are two unsigned integers of 64 bits",
    "st-order": "an entry begins before it ends",
    "st-start": "the first tensor begins at 0",
    "st-hole": "there is no hole between two tensors",
    "st-overlap": "tensors do not overlap",
    "st-size": "the length of a tensor is that of its shape and dtype",
    "st-wrap-32": "a product of dimensions, or of bytes, that modulo 2^32 is right",
    "st-wrap-64": "a product of dimensions, or of bytes, that modulo 2^64 is right",
    "st-bits": "elements below a byte fill whole bytes",
    "st-trailing": "nothing stands behind the last tensor",
    "st-truncated": "the last tensor ends before the file does",
    "st-depth": "arrays and objects inside each other by the thousand",
    "st-empty": "a file without tensors",
    "st-zero-size": "a tensor with a dimension of 0",
    "st-scalar": "an empty shape has one element",
    "st-unordered": "entries in another order than their data",
    "st-unaligned": "data at odd offsets",
    "st-names": "names of any text, short and long",
    "st-white-space": "white space within the header and behind it",
    "st-escapes": "escapes, in keys and in texts",
    "st-many": "many entries",
    "leading-space": "policy: white space before the header's brace",
    "unknown-fields": "policy: fields of an entry that nobody knows",
}


# ---- the serializer


def entry(dtype: str = "F32", shape: str = "[2]", offsets: str = "[0,8]") -> str:
    """One entry; shape and offsets as JSON."""
    return '{"dtype":"%s","shape":%s,"data_offsets":%s}' % (dtype, shape, offsets)


def header(*entries: tuple[str, str]) -> str:
    """A header's object from names and values, both as they are to stand there."""
    return "{%s}" % ",".join('"%s":%s' % pair for pair in entries)


def framed(text: str | bytes, body: bytes = b"", length: int | None = None) -> bytes:
    """A file from a header's text and the data; length: what the first 8 bytes say."""
    raw = text.encode() if isinstance(text, str) else text
    return (len(raw) if length is None else length).to_bytes(8, "little") + raw + body


def product(numbers: Any) -> int:
    result = 1
    for n in numbers:
        result *= n
    return result


def packed(tensors: Tensors, metadata: dict[str, str] | None = None) -> bytes:
    """A sound file of tensors, one behind the other in their order, as the engine pads its header."""
    found: dict[str, Any] = {} if metadata is None else {"__metadata__": metadata}
    at = 0
    for name, (dtype, shape, content) in tensors.items():
        prove(product(shape) * BITS[dtype] == 8 * len(content), "%s has the bytes of its shape" % name)
        found[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [at, at + len(content)]}
        at += len(content)
    text = json.dumps(found, separators=(",", ":"), ensure_ascii=False).encode()
    return framed(text + b" " * (-len(text) % 8), b"".join(content for _, _, content in tensors.values()))


def count(content: bytes) -> int | None:
    """The number of tensors that the package safetensors finds in a file; None if it refuses it."""
    try:
        return len(safetensors.deserialize(content))
    except safetensors.SafetensorError:
        return None


# ---- faults of a container, for shards and residuals too

BODY = data("st", 16)
A, B = entry(), entry(offsets="[8,16]")
TWO = header(("a", A), ("b", B))


def with_entry(dtype: str = "F32", shape: str = "[2]", offsets: str = "[8,16]") -> bytes:
    """A file of a sound tensor and one more."""
    return framed(header(("a", A), ("b", entry(dtype, shape, offsets))), BODY)


def invalid() -> Iterator[tuple[str, str, str, str, bytes]]:
    """(name, comment, flag, class, file), one fault each."""
    for size in (0, 1, 7):
        yield "size-%d-bytes" % size, "a file of %d bytes" % size, "st-short", "truncated", bytes(size)
    right = framed(TWO, BODY)
    room = len(right) - 8
    for name, comment, flag, length in (
        ("length-one-too-many", "a header that ends a byte behind the file", "st-length", room + 1),
        ("length-top-bit", "the header's length with its bit 24 set", "st-length", len(TWO) + (1 << 24)),
        ("length-at-limit", "a header of the largest length there is, in a small file", "st-length", LIMIT),
        ("length-above-limit", "a header one byte larger than any may be", "st-limit", LIMIT + 1),
        ("length-wrap-32", "2^32 plus the true length", "st-limit st-length-wrap", len(TWO) + (1 << 32)),
        ("length-2-63", "2^63 plus the true length: negative as a signed number", "st-limit", len(TWO) + (1 << 63)),
        ("length-wrap-64", "2^64 - 6: the header would end at byte 2", "st-limit st-length-wrap", (1 << 64) - 6),
        ("length-all-ones", "2^64 - 1: the header would end at byte 7", "st-limit st-length-wrap", (1 << 64) - 1),
        ("length-big-endian", "the length with its most significant byte first", "st-limit", len(TWO) << 56),
    ):  # fmt: skip
        wrapped = (8 + length) % (1 << (32 if name.endswith("32") else 64))
        prove("st-length-wrap" not in flag or wrapped <= len(right), "modulo a word it lies inside the file")
        kind = "limit" if length > LIMIT else "bounds"
        yield name, comment, flag, kind, framed(TWO, BODY, length)
    yield (
        "length-one-too-many-empty", "an empty header that ends a byte behind the file", "st-length", "bounds",
        framed("{}", b"", 3),
    )  # fmt: skip
    yield "length-0", "a header of no bytes", "st-object", "json", framed("")
    yield (
        "length-short", "a header that ends a byte before its brace", "st-json", "json",
        framed(TWO, BODY, len(TWO) - 1),
    )  # fmt: skip

    for name, text in (
        ("array", "[]"), ("array-of-header", "[%s]" % header()), ("null", "null"), ("text", '"{}"'), ("number", "0"),
        ("true", "true"),
    ):  # fmt: skip
        yield "header-" + name, "the header is %s" % text, "st-object", "json", framed(text)
    good = header(("a", A))
    for name, comment, text in (
        ("nul-padding", "NUL behind the header, where spaces may stand", good + "\0\0\0"),
        ("nul-before", "NUL before the header", "\0" + good),
        ("second-object", "a second object behind the first", good + "{}"),
        ("trailing-brace", "a brace too many", good + "}"), ("spaces-only", "nothing but spaces", " " * 8),
        ("no-brace", "the last brace is missing", good[:-1]),
        ("comma-last", "a comma behind the last entry", good[:-1] + ",}"),
        ("comma-missing", "no comma between two entries", TWO.replace(',"b"', '"b"')),
        ("comma-in-shape", "a comma behind the last dimension", header(("a", entry(shape="[2,]")))),
        ("colon-missing", "no colon behind a name", '{"a" %s}' % A),
        ("single-quotes", "names in single quotes", good.replace('"', "'")),
        ("bare-key", "a name without quotes", good.replace('"a"', "a")), ("comment", "a comment", "/* v1 */" + good),
        ("shape-01", "a dimension with a leading zero", header(("a", entry(shape="[02]")))),
        ("shape-plus", "a dimension with a plus sign", header(("a", entry(shape="[+2]")))),
        ("shape-hex", "a dimension in hex", header(("a", entry(shape="[0x2]")))),
        ("shape-nan", "NaN as a dimension", header(("a", entry(shape="[NaN]")))),
        ("shape-infinity", "Infinity as a dimension", header(("a", entry(shape="[Infinity]")))),
        ("tab-in-name", "a tab within a name", header(("a\tb", A))),
        ("newline-in-name", "a line feed within a name", header(("a\nb", A))),
        ("unknown-escape", "the escape \\x41", header(("\\x41", A))),
        ("short-escape", "the escape \\u41", header(("\\u41", A))),
        ("form-feed", "a form feed, which is no white space of JSON", good[:1] + "\f" + good[1:]),
        ("no-break-space", "a no-break space behind the header", good + "\u00a0"),
    ):  # fmt: skip
        yield name, comment, "st-json", "json", framed(text, BODY[:8])
    for name, comment, raw in (
        ("byte-order-mark", "a byte order mark before the header", b"\xef\xbb\xbf" + good.encode()),
        ("utf-16", "the header in UTF-16", good.encode("utf-16-le")),
        ("latin-1", "a name in Latin-1", header(("\u00e4", A)).encode("latin-1")),
        ("utf8-overlong", "a slash as c0 af", header(("a?", A)).encode().replace(b"?", b"\xc0\xaf")),
        ("utf8-surrogate", "a surrogate as ed a0 80", header(("a?", A)).encode().replace(b"?", b"\xed\xa0\x80")),
        ("utf8-beyond", "f4 90 80 80, beyond the last character",
         header(("?", A)).encode().replace(b"?", b"\xf4\x90\x80\x80")),
        ("utf8-cut", "a character that is cut off", header(("a?", A)).encode().replace(b"?", b"\xe2\x82")),
        ("utf8-continuation", "a byte 80 alone", header(("a?", A)).encode().replace(b"?", b"\x80")),
    ):  # fmt: skip
        yield name, comment, "st-utf8", "json", framed(raw, BODY[:8])
    for name, comment, key in (
        ("surrogate-high", "a name with the escape of a high surrogate alone", "a\\ud800"),
        ("surrogate-low", "a name with the escape of a low surrogate alone", "a\\udc00"),
        ("surrogates-swapped", "a low surrogate, then a high one", "\\udc00\\ud800"),
        ("surrogate-high-high", "two high surrogates", "\\ud800\\ud800"),
    ):  # fmt: skip
        yield name, comment, "st-surrogate", "json", framed(header((key, A)), BODY[:8])
    yield from duplicates()

    for name, value in (
        ("null", "null"), ("text", '"format: pt"'), ("array", "[]"), ("pairs", '[["format","pt"]]'), ("true", "true"),
        ("number", "1"), ("value-number", '{"format":1}'), ("value-null", '{"format":null}'),
        ("value-true", '{"format":true}'), ("value-array", '{"format":["pt"]}'), ("value-object", '{"format":{}}'),
        ("second-value", '{"format":"pt","n":1}'), ("tensor", A),
    ):  # fmt: skip
        text = header(("__metadata__", value), ("a", A))
        yield "metadata-" + name, "__metadata__ is %s" % value, "st-metadata", "json", framed(text, BODY[:8])
    for name, value in (
        ("null", "null"), ("text", '"F32"'), ("number", "8"), ("array", '["F32",[2],[8,16]]'),
        ("array-of-entry", "[%s]" % B),
    ):  # fmt: skip
        yield (
            "entry-" + name, "an entry is %s" % value, "st-entry", "json",
            framed(header(("a", A), ("b", value)), BODY),
        )  # fmt: skip
    fields = {"dtype": '"F32"', "shape": "[2]", "data_offsets": "[8,16]"}
    for missing in fields:
        text = header(("a", A), ("b", header(*(f for f in fields.items() if f[0] != missing))))
        yield (
            "no-" + missing.replace("_", "-"), "an entry without %s" % missing, "st-missing", "missing",
            framed(text, BODY),
        )  # fmt: skip
        wrong = text.replace('"b":{', '"b":{"%s":%s,' % (missing.upper(), fields[missing]))
        name, comment = "upper-case-" + missing.replace("_", "-"), "%s in upper case" % missing
        yield name, comment, "st-missing", "missing", framed(wrong, BODY)
    yield "entry-empty", "an entry that is {}", "st-missing", "missing", framed(header(("a", A), ("b", "{}")), BODY)
    for name, dtype in (
        ("unknown", "F128"), ("lower-case", "f32"), ("gguf", "Q8_0"), ("numpy", "<f4"), ("fp8", "F8"),
        ("int32", "INT32"),
        ("empty", ""), ("space-behind", "F32 "), ("nul-behind", "F32\\u0000"), ("prefix", "F3"), ("u-128", "U128"),
    ):  # fmt: skip
        yield "dtype-" + name, 'the dtype "%s"' % dtype, "st-dtype", "dtype", with_entry(dtype)
    for name, value in (("number", "11"), ("is-null", "null"), ("array", '["F32"]')):
        text = TWO.replace('"F32"', value, 1)
        yield "dtype-" + name, "the dtype %s" % value, "st-dtype", "dtype", framed(text, BODY)
    yield from shapes()
    yield from places()
    deep = '{"a":' * 2000 + "{}" + "}" * 2000
    yield "depth-objects", "2000 objects inside each other", "st-depth", "limit", framed(deep)
    yield "depth-arrays", "9000 arrays inside each other", "st-depth", "limit", framed("[" * 9000 + "]" * 9000)
    deep = header(("a", entry(shape="[" * 5000 + "]" * 5000)))
    yield "depth-shape", "a shape of 5000 arrays inside each other", "st-depth", "limit", framed(deep, BODY[:8])
    open_ended = header(("__metadata__", "[" * 9000))
    yield "depth-unclosed", "9000 arrays that are never closed", "st-depth", "limit", framed(open_ended)
    for name, comment, shape in (
        ("digits-shape", "a dimension of 5000 digits", "[1%s]" % ("0" * 4999)),
        ("digits-zeros", "a dimension of 0. and 5000 zeros", "[0.%s]" % ("0" * 5000)),
        ("digits-exponent", "a dimension whose exponent has 5000 digits", "[1e%s]" % ("9" * 5000)),
    ):  # fmt: skip
        yield name, comment, "st-shape", "limit", with_entry(shape=shape)
    digits = "[8,1%s]" % ("6" * 6000)
    yield "digits-offset", "an offset of 6001 digits", "st-offsets", "limit", with_entry(offsets=digits)


def duplicates() -> Iterator[tuple[str, str, str, str, bytes]]:
    """Keys twice: the file would be good with either of them alone."""
    inner = A[1:-1]
    for name, comment, text in (
        ("duplicate-tensor", "a tensor twice, the same entry", header(("a", A), ("a", A))),
        ("duplicate-tensor-apart", "a tensor twice, another between", header(("a", A), ("b", B), ("a", A))),
        ("duplicate-other-shape", "a tensor twice, with two shapes", header(("a", A), ("a", entry(shape="[1,2]")))),
        ("duplicate-other-dtype", "a tensor twice, with two dtypes", header(("a", A), ("a", entry("U32")))),
        ("duplicate-metadata-key", "a key of __metadata__ twice",
         header(("__metadata__", '{"k":"1","k":"2"}'), ("a", A))),
        ("duplicate-dtype", "dtype twice in an entry", header(("a", '{"dtype":"I32",%s}' % inner))),
        ("duplicate-shape", "shape twice in an entry", header(("a", '{"shape":[1],%s}' % inner))),
        ("duplicate-offsets", "data_offsets twice in an entry", header(("a", '{"data_offsets":[0,8],%s}' % inner))),
        ("duplicate-metadata", "__metadata__ twice",
         header(("__metadata__", "{}"), ("a", A), ("__metadata__", '{"k":"v"}'))),
    ):  # fmt: skip
        yield name, comment, "st-duplicate", "duplicate", framed(text, BODY if '"b"' in text else BODY[:8])
    for name, comment, text in (
        ("duplicate-escaped", "a tensor twice, once as \\u0061", header(("a", A), ("\\u0061", A))),
        ("duplicate-escaped-slash", "a tensor twice, once with the escape \\/", header(("a/b", A), ("a\\/b", A))),
        ("duplicate-escaped-pair", "a tensor twice, once as a pair of surrogates",
         header(("\U0001f600", A), ("\\ud83d\\ude00", A))),
        ("duplicate-escaped-dtype", "dtype twice in an entry, once with an escape",
         header(("a", '{"d\\u0074ype":"I32",%s}' % inner))),
        ("duplicate-escaped-key", "a key of __metadata__ twice, once with an escape",
         header(("__metadata__", '{"k":"1","\\u006b":"2"}'), ("a", A))),
        ("duplicate-escaped-metadata", "__metadata__ twice, once with an escape",
         header(("__metadata__", "{}"), ("a", A), ("\\u005f_metadata__", "{}"))),
    ):  # fmt: skip
        yield name, comment, "st-duplicate st-duplicate-escaped", "duplicate", framed(text, BODY[:8])


def shapes() -> Iterator[tuple[str, str, str, str, bytes]]:
    """Shapes that are none, or whose product is not the length."""
    for name, value in (
        ("negative", "[-2]"), ("two-negatives", "[-1,-2]"), ("minus-zero", "[-0,2]"), ("float", "[2.0]"),
        ("exponent", "[2e0]"), ("exponent-large", "[0.2e1]"), ("true", "[true,2]"), ("false", "[false]"),
        ("text", '["2"]'),
        ("null", "[null]"), ("nested", "[[2]]"), ("object", '[{"2":2}]'), ("number", "2"), ("as-text", '"[2]"'),
        ("is-null", "null"), ("is-object", "{}"), ("beyond-64-bits", "[18446744073709551616,0]"),
        ("wraps-to-2", "[18446744073709551618]"), ("half", "[0.5,4]"), ("tiny-exponent", "[2e-0]"),
    ):  # fmt: skip
        place = "[8,8]" if name in ("minus-zero", "false", "beyond-64-bits") else "[8,16]"  # a lenient reader's size
        file = framed(header(("a", A), ("b", entry(shape=value, offsets=place))), BODY[: 8 if place == "[8,8]" else 16])
        yield "shape-" + name, "the shape %s" % value, "st-shape", "shape", file
    for name, shape in (
        ("one-less", "[1]"), ("one-more", "[3]"), ("scalar", "[]"), ("zero", "[0]"), ("zero-among", "[2,0]"),
        ("squared", "[2,2]"),
    ):  # fmt: skip
        yield "size-" + name, "F32 of shape %s in 8 bytes" % shape, "st-size", "shape", with_entry(shape=shape)
    for dtype, bits in BITS.items():
        shape = 64 // bits * 2  # in half the bytes that it takes
        prove(bits == 6 or shape * bits == 128, "twice 8 bytes")
        name = "size-of-" + dtype.lower().replace("_", "-")
        yield (
            name, "%s of shape [%d] in 8 bytes" % (dtype, shape), "st-dtype-size", "shape",
            with_entry(dtype, "[%d]" % shape),
        )  # fmt: skip
    for name, word, dims in (
        ("elements-32", 32, ((1 << 31) + 1, 2)), ("elements-32-factors", 32, (641, 6700417)),
        ("elements-32-to-0", 32, (65536, 65536)), ("bytes-32", 32, ((1 << 30) + 2,)),
        ("bytes-32-top", 32, ((1 << 31) + 2,)),
        ("elements-64", 64, ((1 << 63) + 1, 2)), ("elements-64-factors", 64, (274177, 67280421310721)),
        ("elements-64-to-0", 64, (1 << 22, 1 << 22, 1 << 20)), ("bytes-64", 64, ((1 << 62) + 2,)),
        ("bytes-64-top", 64, ((1 << 63) + 2,)), ("minus-1-minus-2", 64, ((1 << 64) - 1, (1 << 64) - 2)),
        ("sign", 64, (1 << 63, 2)),
    ):  # fmt: skip
        size = product(dims) * 4 % (1 << word)
        prove(size <= 8 and product(dims) * 4 >= 1 << word, "wraps around into the file")
        comment = "F32 of shape %s: modulo 2^%d %d bytes" % (list(dims), word, size)
        second = entry(shape=json.dumps(dims), offsets="[8,%d]" % (8 + size))
        file = framed(header(("a", A), ("b", second)), BODY[: 8 + size])
        yield "wrap-" + name, comment, "st-wrap-%d" % word, "shape", file
    entries = header(("a", A), ("b", entry(shape="[%d,%d,0]" % (1 << 33, 1 << 33), offsets="[8,8]")))
    comment = "a dimension of 0 behind a product beyond 2^64: checked multiplication refuses it"
    yield "wrap-before-zero", comment, "st-wrap-64", "shape", framed(entries, BODY[:8])
    entries = header(("a", A), ("b", entry("F4", "[%d,2,0]" % (1 << 63), "[8,8]")))
    comment = "a dimension of 0 behind 2^64 elements of half a byte"
    yield "wrap-before-zero-f4", comment, "st-wrap-64", "shape", framed(entries, BODY[:8])
    for dtype, n, size in (
        ("F4", 1, 1), ("F4", 3, 2), ("F4", 1, 0), ("F6_E2M3", 1, 1), ("F6_E2M3", 2, 2), ("F6_E3M2", 3, 2),
    ):  # fmt: skip
        shape, end = "[%d]" % n, 8 + size
        entries = header(("a", A), ("b", entry(dtype, shape, "[8,%d]" % end)))
        name = "bits-%s-%d-in-%d" % (dtype.lower().replace("_", "-"), n, size)
        yield name, "%d of %s, %d bits" % (n, dtype, n * BITS[dtype]), "st-bits", "shape", framed(entries, BODY[:end])


def places() -> Iterator[tuple[str, str, str, str, bytes]]:
    """Offsets that are none, and tensors that do not tile the data."""
    for name, value in (
        ("one", "[8]"), ("three", "[8,16,16]"), ("none", "[]"), ("number", "8"), ("is-null", "null"),
        ("text", '["8","16"]'),
        ("floats", "[8.0,16.0]"), ("exponent", "[8,1.6e1]"), ("true", "[8,true]"), ("null-end", "[8,null]"),
        ("object", '{"begin":8,"end":16}'), ("nested", "[[8,16]]"), ("negative", "[-8,0]"), ("minus-zero", "[-0,8]"),
        ("beyond-64-bits", "[8,18446744073709551632]"),
    ):  # fmt: skip
        first = name == "minus-zero"
        prove(not first or value == "[-0,8]", "would be a good offset of the first tensor")
        text = header(("a", entry(offsets=value))) if first else header(("a", A), ("b", entry(offsets=value)))
        yield (
            "offsets-" + name, "data_offsets %s" % value, "st-offsets", "bounds",
            framed(text, BODY[: 8 if first else 16]),
        )  # fmt: skip
    for name, offsets, shape in (
        ("reversed", "[16,8]", "[2]"), ("reversed-empty", "[9,8]", "[0]"),
        ("reversed-wrap", "[18446744073709551608,0]", "[2]"),
    ):  # fmt: skip
        yield (
            "offsets-" + name, "data_offsets %s" % offsets, "st-order", "bounds",
            with_entry(shape=shape, offsets=offsets),
        )  # fmt: skip
    for name, flag, kind, first, second, size in (
        ("start-at-8", "st-start", "bounds", "[8,16]", None, 16),
        ("start-at-1", "st-start", "bounds", "[1,9]", None, 9),
        ("hole-of-1", "st-hole", "bounds", "[0,8]", "[9,17]", 17),
        ("hole-of-8", "st-hole", "bounds", "[0,8]", "[16,24]", 24),
        ("overlap-of-1", "st-overlap", "overlap", "[0,8]", "[7,15]", 15),
        ("overlap-of-4", "st-overlap", "overlap", "[0,8]", "[4,12]", 12),
        ("overlap-all", "st-overlap", "overlap", "[0,8]", "[0,8]", 8),
        ("trailing-1", "st-trailing", "bounds", "[0,8]", "[8,16]", 17),
        ("trailing-8", "st-trailing", "bounds", "[0,8]", None, 16),
        ("truncated-1", "st-truncated", "truncated", "[0,8]", "[8,16]", 15),
        ("truncated-tensor", "st-truncated", "truncated", "[0,8]", "[8,16]", 8),
        ("truncated-all", "st-truncated", "truncated", "[0,8]", None, 0),
    ):  # fmt: skip
        entries = [("a", entry(offsets=first))] + ([("b", entry(offsets=second))] if second else [])
        comment = "tensors at %s in %d bytes of data" % (" and ".join(filter(None, (first, second))), size)
        yield name, comment, flag, kind, framed(header(*entries), data("st " + name, size))
    zero = entry(shape="[0]", offsets="[4,4]")
    comment = "an empty tensor inside of another"
    yield "overlap-empty", comment, "st-overlap", "overlap", framed(header(("a", A), ("b", zero)), BODY[:8])
    zero = entry(shape="[0]", offsets="[16,16]")
    comment = "an empty tensor with a hole before it"
    yield "hole-before-empty", comment, "st-hole", "bounds", framed(header(("a", A), ("b", zero)), BODY)
    three = header(("c", entry(offsets="[16,24]")), ("a", A), ("b", entry(shape="[1]", offsets="[8,12]")))
    comment = "three tensors out of order, a hole before the last"
    yield "hole-out-of-order", comment, "st-hole", "bounds", framed(three, data("st three", 24))
    yield (
        "trailing-metadata", "data, but no tensor", "st-trailing", "bounds",
        framed(header(("__metadata__", "{}")), b"\0"),
    )  # fmt: skip
    yield "trailing-spaces", "spaces behind the last tensor", "st-trailing", "bounds", framed(TWO, BODY + b"   ")
    yield "trailing-nothing", "data behind an empty header", "st-trailing", "bounds", framed("{}", b"{}")
    large = entry("U8", "[4294967304]", "[8,4294967312]")
    comment = "a tensor of 2^32 + 8 bytes where 8 are there"
    yield "truncated-wrap-32", comment, "st-truncated", "truncated", framed(header(("a", A), ("b", large)), BODY)
    large = entry("U8", "[18446744073709551607]", "[8,18446744073709551615]")
    comment = "a tensor that ends at 2^64 - 1"
    yield "truncated-wrap-64", comment, "st-truncated", "truncated", framed(header(("a", A), ("b", large)), BODY)


def valid() -> Iterator[tuple[str, str, str, bytes]]:
    """(name, comment, flag, file): legal, if odd."""
    good = header(("a", A))
    yield "two", "the good twin of most of the others", "", framed(TWO, BODY)
    yield "empty-object", "{}: no tensors, no metadata", "st-empty", framed("{}")
    yield "empty-padded", "{} and 6 spaces", "st-empty st-white-space", framed("{}      ")
    yield "metadata-only", "metadata, but no tensors", "st-empty", framed(header(("__metadata__", '{"format":"pt"}')))
    yield "metadata-empty", "__metadata__ is {}", "", framed(header(("__metadata__", "{}"), ("a", A)), BODY[:8])
    yield (
        "metadata-last", "__metadata__ behind the tensors", "",
        framed(header(("a", A), ("__metadata__", '{"k":"v"}')), BODY[:8]),
    )  # fmt: skip
    text = header(("__metadata__", '{"":"","a":"%s","\\u0000":"\\ud83d\\ude00"}' % ("x" * 300)), ("a", A))
    yield "metadata-odd", "metadata with an empty key, an escape, a long text", "st-escapes", framed(text, BODY[:8])
    text = header(("__metadata__", '{"dtype":"F32","shape":"[2]","data_offsets":"[0,8]"}'), ("a", A))
    yield "metadata-like-entry", "metadata whose keys are those of an entry", "st-metadata", framed(text, BODY[:8])
    text = header(("__metadata__", '{"a":"a"}'), ("a", A))
    yield (
        "metadata-same-key", "a key of the metadata that is also a tensor's name", "st-duplicate",
        framed(text, BODY[:8]),
    )  # fmt: skip
    for name, shape in (
        ("zero", "[0]"), ("zero-first", "[0,2]"), ("zero-last", "[3,0]"), ("zero-all", "[0,0,0]"),
        ("zero-large", "[4294967296,0]"), ("zero-before-large", "[0,9223372036854775807,2]"),
        ("zero-behind-largest", "[18446744073709551615,0]"), ("zero-behind-2-62", "[4611686018427387904,0]"),
    ):  # fmt: skip
        text = header(("a", entry(shape=shape, offsets="[0,0]")))
        yield name, "one tensor of shape %s" % shape, "st-zero-size", framed(text)
    zero = [("z%d" % i, entry(shape="[0]", offsets="[%d,%d]" % (at, at))) for i, at in enumerate((0, 8, 16))]
    text = header(zero[1], ("b", B), zero[2], ("a", A), zero[0])
    yield (
        "zero-between", "empty tensors before, between and behind others", "st-zero-size st-unordered",
        framed(text, BODY),
    )  # fmt: skip
    same = header(*(("z%d" % i, entry(shape="[0]", offsets="[0,0]")) for i in range(3)))
    yield "zero-three", "three empty tensors at one place", "st-zero-size", framed(same)
    yield "scalar", "F32 of shape []", "st-scalar", framed(header(("a", entry(shape="[]", offsets="[0,4]"))), BODY[:4])
    yield "scalar-u8", "U8 of shape []", "st-scalar", framed(header(("a", entry("U8", "[]", "[0,1]"))), BODY[:1])
    for dtype, bits in BITS.items():
        n = {4: 2, 6: 4}.get(bits, 3)
        size = n * bits // 8
        text = header(("a", entry(dtype, "[%d]" % n, "[0,%d]" % size)))
        name = "dtype-" + dtype.lower().replace("_", "-")
        yield (
            name, "%s of shape [%d] in %d bytes" % (dtype, n, size), "st-dtype-size",
            framed(text, data("st dtype", size)),
        )  # fmt: skip
    ones = "[%s]" % ",".join("1" * 32)
    yield (
        "rank-32", "32 dimensions of 1", "st-shape",
        framed(header(("a", entry(shape=ones, offsets="[0,4]"))), BODY[:4]),
    )  # fmt: skip
    yield (
        "unordered", "the entry of the second tensor comes first", "st-unordered",
        framed(header(("b", B), ("a", A)), BODY),
    )  # fmt: skip
    mixed = header(
        ("a", entry("U8", "[1]", "[0,1]")), ("b", entry("F64", "[1]", "[1,9]")), ("c", entry("BF16", "[1]", "[9,11]"))
    )
    yield "unaligned", "an F64 at offset 1, a BF16 at offset 9", "st-unaligned", framed(mixed, BODY[:11])
    yield "header-odd", "a header of 53 bytes, which nothing aligns", "st-unaligned", framed(good, BODY[:8])
    fields = ['"data_offsets":[0,8]', '"shape":[2]', '"dtype":"F32"']
    yield (
        "fields-reversed", "data_offsets, shape, dtype", "st-unordered",
        framed(header(("a", "{%s}" % ",".join(fields))), BODY[:8]),
    )  # fmt: skip
    for name, comment, key in (
        ("name-empty", "a tensor whose name is empty", ""), ("name-space", "a tensor named by a space", " "),
        ("name-dots", "a tensor named ..", ".."), ("name-path", "a tensor named /etc/passwd", "/etc/passwd"),
        ("name-metadata", "a tensor named __metadata", "__metadata"),
        ("name-metadata-case", "a tensor named __METADATA__", "__METADATA__"),
        ("name-unicode", "a name of two scripts", "\u6743\u91cd.\u0432\u0435\u0441"),
        ("name-astral", "a name beyond 16 bits", "\U0001f600"),
        ("name-digits", "a tensor named 0", "0"), ("name-brackets", "a name of brackets", "[[{{]]}}" * 40),
        ("name-dtype", "a tensor named dtype", "dtype"),
        ("name-del", "a name of the character 7f", "\x7f"),
        ("name-line-separator", "a name of the character 2028", "\u2028"),
        ("name-last-character", "a name of the last character, 10ffff", "\U0010ffff"),
    ):  # fmt: skip
        yield name, comment, "st-names", framed(header((key, A)), BODY[:8])
    yield "name-60000", "a name of 60000 characters", "st-names", framed(header(("n" * 60000, A)), BODY[:8])
    composed = header(("\u00e9", A), ("e\u0301", B))
    yield "name-composed", "é as one character and as two: two names", "st-names st-duplicate", framed(composed, BODY)
    yield "name-case", "names that differ in case", "st-names st-duplicate", framed(header(("a", A), ("A", B)), BODY)
    yield (
        "name-space-behind", "names that differ in a space", "st-names st-duplicate",
        framed(header(("a", A), ("a ", B)), BODY),
    )  # fmt: skip
    for name, comment, key in (
        ("escape-letters", "a name of all escapes of one letter", '\\"\\\\\\/\\b\\f\\n\\r\\t'),
        ("escape-nul", "a name of \\u0000", "\\u0000"),
        ("escape-pair", "a name of a pair of surrogates", "\\ud83d\\ude00"),
        ("escape-hex-case", "a name of \\u00E9", "\\u00E9"),
        ("escape-backslash-u", "a name of a backslash and u0061, which is no escape", "\\\\u0061"),
    ):  # fmt: skip
        yield name, comment, "st-escapes", framed(header((key, A)), BODY[:8])
    yield (
        "escape-differs", "a and a backslash with u0061: two names", "st-escapes",
        framed(header(("a", A), ("\\\\u0061", B)), BODY),
    )  # fmt: skip
    dtype = good.replace('"F32"', '"F\\u00332"').replace("shape", "sh\\u0061pe")
    yield "escape-in-fields", "shape and F32 with escapes", "st-escapes", framed(dtype, BODY[:8])
    spaced = good.replace(":", " :\n").replace(",", "\t,\r\n ").replace("[", "[ ").replace("}", "\r}")
    yield (
        "white-space-inside", "all four kinds of white space within the header", "st-white-space",
        framed(spaced, BODY[:8]),
    )  # fmt: skip
    yield (
        "white-space-behind", "all four kinds of white space behind the header", "st-white-space",
        framed(good + " \t\r\n", BODY[:8]),
    )  # fmt: skip
    yield "padding-4096", "4096 spaces behind the header", "st-white-space", framed(good + " " * 4096, BODY[:8])
    many = header(*(("t%d" % i, entry("U8", "[1]", "[%d,%d]" % (i, i + 1))) for i in range(500)))
    yield "many", "500 tensors of a byte", "st-many", framed(many, data("st many", 500))
    backwards = header(*(("t%d" % i, entry("U8", "[1]", "[%d,%d]" % (i, i + 1))) for i in reversed(range(300))))
    yield (
        "many-backwards", "300 tensors, the last first", "st-many st-unordered",
        framed(backwards, data("st many", 300)),
    )  # fmt: skip


def acceptable() -> Iterator[tuple[str, str, str, bytes]]:
    """(name, comment, flag, file): a policy decides."""
    good = header(("a", A))
    for name, space in (("space", " "), ("tab", "\t"), ("newline", "\n"), ("many", " \r\n\t" * 4)):
        yield (
            "leading-" + name, "white space before the brace: %r" % space, "leading-space",
            framed(space + good, BODY[:8]),
        )  # fmt: skip
    for name, comment, field in (
        ("text", "a field comment in an entry", '"comment":"x"'), ("null", "a field null in an entry", '"null":null'),
        ("nested", "a field of objects in an entry", '"more":{"dtype":"F16","shape":[[1]]}'),
        ("empty", "a field without a name in an entry", '"":0'), ("upper-case", "DTYPE beside dtype", '"DTYPE":"F16"'),
    ):  # fmt: skip
        yield "unknown-" + name, comment, "unknown-fields", framed(header(("a", "%s,%s}" % (A[:-1], field))), BODY[:8])


def make_st_header(files: dict[str, bytes]) -> Iterator[Case]:
    """The cases; their files go into `files`."""

    def one(name: str, comment: str, source: str, flags: str, content: bytes, **more: Any) -> Case:
        files[name + ".safetensors"] = content
        return case("st-" + name, comment, source, flags, {"path": "files/st/%s.safetensors" % name}, **more)

    for name, comment, flags, content in valid():
        n = count(content)
        prove(n is not None, "the package safetensors takes " + name)
        yield one(name, comment, PEER, flags, content, out={"n": n})
    for name, comment, flags, error, content in invalid():
        if count(content) is None:
            yield one("not-" + name, comment, PEER, flags, content, error=error)
        else:
            prove(error == "duplicate" or name in LOOSE, "the package safetensors refuses " + name)
            source = LAX if error == "duplicate" else POLICY
            yield one("not-" + name, comment, source, flags, content, error=error, level="recommended")
    for name, comment, flags, content in acceptable():
        n = count(content)
        prove(n == 1, "the package safetensors takes " + name)
        yield one(name, comment, POLICY, flags, content, out={"n": n}, result="acceptable")

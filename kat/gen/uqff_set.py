"""Sets of UQFF shards for the suite: the cases of uqff_set. Run by files.py.

What opens and what does not follows the engine's own order of steps and its catalogue of refusals; faults of single
layers do not count here. A container's verdict is that of the package safetensors, as in st.py.
"""

from __future__ import annotations

import json
import struct

from st import count, entry, framed, invalid, packed
from suite import case, prove
from uqff import CATALOGUE, KEY, STRICTER, TINY, Folder, blank, ggml, named, noise, sound, u8, u32, version

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterator

    from suite import Case
    from uqff import Tensors

# What a flag's cases catch.
FLAGS = {
    "uqff-version": "versions 1.0 to 1.2, any patch",
    "uqff-version-wrap": "versions whose low bytes are good",
    "uqff-version-type": "version entries are U32 scalars",
    "uqff-version-copies": "version entries may stand in any shard, and must agree",
    "uqff-version-missing": "all three version entries are there",
    "uqff-numbers": "names that are all numbers: a file from before 1.0",
    "uqff-container": "every shard is a sound safetensors file",
    "uqff-residual": "the residual is a sound safetensors file",
    "uqff-duplicate": "a name stands in one shard only",
    "uqff-resolve": "which shards a name stands for",
    "uqff-report": "a report that can't be read",
    "uqff-report-identity": "a report's outputs and shards",
    "uqff-report-extra": "what a report may say without harm",
}

# ---- reports


def report(*outputs: dict[str, Any], **edit: Any) -> bytes:
    """uqff_report.json; a field that is edited to None is left out."""
    root = {
        "schema": 1, "generated_by": {"tool": "mistralrs quantize"}, "uqff_version": "1.2.0",
        "outputs": list(outputs), **edit,
    }  # fmt: skip
    return json.dumps({k: v for k, v in root.items() if v is not None}).encode()


def output(quant: str = "q4_0", shards: tuple[str, ...] | None = ("q4_0-0.uqff",), **edit: Any) -> dict[str, Any]:
    found = {"quant": quant, "shards": shards, "layers": 1, "actual_counts": {"q4_0": 1}, "fallback_count": 0, **edit}
    return {k: v for k, v in found.items() if v is not None}


def good_sets(place: Folder) -> Iterator[tuple[str, str, str, str]]:
    """(name, comment, flags, path)."""

    def one(
        name: str, comment: str, flags: str, tensors: Tensors, metadata: dict[str, str] | None = None
    ) -> tuple[str, str, str, str]:
        content = packed(tensors, metadata)
        prove(count(content) == len(tensors), "a sound container")
        return name, comment, flags, place.shard("set-" + name, content)

    def several(
        name: str, comment: str, flags: str, *shards: Tensors, item: str = "", **more: bytes
    ) -> tuple[str, str, str, str]:
        numbered = {"q4_0-%d.uqff" % i: sound(tensors) for i, tensors in enumerate(shards)}
        return name, comment, flags, place.folder("set-" + name, **{**numbered, **more}) + item

    whole = {**version(), **TINY}
    yield one("twin", "the good twin of most of the others", "", whole)
    for numbers in ((1, 0, 0), (1, 1, 0), (1, 1, 77), (1, 2, 9), (1, 2, 0xFFFFFFFF), (1, 0, 0x80000000)):
        text = ".".join(map(str, numbers))
        yield one(
            "version-%s-legal" % text.replace(".", "-"), "version " + text, "uqff-version",
            {**version(*numbers), **TINY},
        )  # fmt: skip
    yield one("version-last", "the version entries behind the layers", "uqff-version", {**TINY, **version()})
    yield one("version-alone", "version entries and no layer", "uqff-version", version())
    yield one(
        "metadata-none-needed", "metadata of another producer and version", "uqff-version", whole,
        {"uqff.version": "9.9.9", "uqff.producer": "x"},
    )  # fmt: skip
    yield one(
        "numbers-and-version", "names that are numbers beside version entries", "uqff-numbers",
        {**version(), "0": blank("U8", 1), "1": blank("U8", 1)},
    )  # fmt: skip
    for name, comment, tensor in (
        ("undotted", "a name without a dot", {"extra": noise("U8", 3)}),
        ("unknown-suffix", "a suffix of no family", {KEY + ".weight.quux": u8(1)}),
        ("lone-bias", "a bias without a weight", {"other.bias": blank("F32", 2)}),
        ("empty-name", "a tensor whose name is empty", {"": u8(1)}),
        ("weight-alone", "a name that is .weight alone", {".weight": blank("F32", 2)}),
        ("long-name", "a name of 5000 characters", {"n" * 5000: u8(1)}),
        ("zero-size", "a tensor without elements", {"extra": blank("F32", 0, 4)}),
        ("version-like", "a name like a version entry's", {"uqff.version.build": u32(7)}),
        ("version-upper-case", "UQFF.VERSION.MAJOR beside the right one", {"UQFF.VERSION.MAJOR": u32(2)}),
        ("unaligned", "data at odd offsets", {"extra": noise("U8", 1), "second": blank("F64", 1)}),
    ):  # fmt: skip
        yield one(name, comment, "uqff-names", {**tensor, **whole})
    for name, comment, tensors in (
        ("tag-unknown", "a layer of family 9", named({**ggml(2, 2, 32), ".format": u8(9)})),
        ("no-weight", "a family tag without a weight", named({".format": u8(0)})),
        ("no-tag", "a weight without a family tag", {"other.weight": blank("F32", 2, 2)}),
        ("payload-short", "a layer whose payload is short", named({**ggml(2, 2, 32), "": noise("U8", 18)})),
        ("code-unknown", "a layer of an unknown GGML type", named({**ggml(2, 2, 32), ".dtype": u32(99)})),
        ("bias-misshapen", "a layer with a bias of another shape", named(ggml(2, 2, 32), blank("F32", 7))),
    ):  # fmt: skip
        yield one(
            "layer-" + name, comment + ", which only its use brings to light", "uqff-lazy", {**version(), **tensors}
        )
    for dtype in ("I64", "F64", "BOOL", "U64", "C64", "F8_E8M0", "F4"):
        yield one(
            "dtype-" + dtype.lower().replace("_", "-") + "-extra", "an entry of " + dtype, "uqff-names",
            {**whole, "extra": blank(dtype, 2)},
        )  # fmt: skip
    many = {"n%d" % i: u8(i % 256) for i in range(150)}
    yield one("many-entries", "150 entries of no layer", "uqff-names", {**version(), **many})

    parts = list(TINY.items())
    first, second = dict(parts[:2]), dict(parts[2:])
    yield several(
        "two-shards", "one layer in two shards, the version in the first", "uqff-spread", {**version(), **first}, second
    )
    yield several(
        "version-second", "the version in the second shard", "uqff-version-copies", first, {**version(), **second}
    )
    yield several(
        "version-both", "the version in both shards", "uqff-version-copies", {**version(), **first},
        {**version(), **second},
    )  # fmt: skip
    split = list(version().items())
    yield several(
        "version-spread", "major, minor and patch in three shards", "uqff-version-copies", dict(split[:1]),
        {**dict(split[1:2]), **first}, {**dict(split[2:]), **second},
    )  # fmt: skip
    yield several("empty-shard", "a second shard without tensors", "uqff-spread", whole, {})
    yield several(
        "numbers-in-one", "a shard whose names are all numbers beside a good one", "uqff-numbers", whole,
        {"0": u8(1), "1": u8(2)},
    )  # fmt: skip
    other = sound({**version(2), **TINY})
    yield several(
        "gap", "shard 2 of another version behind a gap; shard 0 named", "uqff-resolve", whole, item="/q4_0-0.uqff",
        **{"q4_0-2.uqff": other},
    )  # fmt: skip
    yield several(
        "gap-behind", "the same, shard 2 itself named: the loader takes shard 0", "uqff-resolve", whole,
        item="/q4_0-2.uqff", **{"q4_0-2.uqff": other},
    )  # fmt: skip
    yield (
        "lone-shard", "a shard 1 without a shard 0", "uqff-resolve",
        place.folder("set-lone-shard", **{"q4_0-1.uqff": sound(whole)}) + "/q4_0-1.uqff",
    )  # fmt: skip
    yield (
        "leading-zeros", "a shard 00 without a shard 0", "uqff-resolve",
        place.folder("set-leading-zeros", **{"q4_0-00.uqff": sound(whole)}) + "/q4_0-00.uqff",
    )  # fmt: skip
    yield several(
        "other-set", "two sets, one of them of another version; the good one named", "uqff-resolve", whole,
        item="/q4_0-0.uqff", **{"q8_0-0.uqff": other},
    )  # fmt: skip
    yield several(
        "prefix", "a stem with a number of its own: my-7-0 and my-7-1, which has the version, beside my-8-0 of another",
        "uqff-resolve", item="/my-7-0.uqff",
        **{"my-7-0.uqff": sound(TINY), "my-7-1.uqff": sound(version()), "my-8-0.uqff": other},
    )  # fmt: skip
    yield several(
        "tokenizer", "a folder with a tokenizer, which the others do without", "uqff-resolve", whole,
        **{"tokenizer.json": b"{}"},
    )  # fmt: skip
    yield several(
        "residual-empty", "a residual without tensors", "uqff-residual", whole, **{"residual.safetensors": framed("{}")}
    )
    again = packed({KEY + ".weight": blank("F32", 2, 32)})
    yield several(
        "residual-again", "a layer's weight in the residual too", "uqff-residual", whole,
        **{"residual.safetensors": again},
    )  # fmt: skip
    versioned = packed({**version(9), "model.norm.weight": blank("F32", 8)})
    yield several(
        "residual-version", "version entries of 9.2.0 in the residual, where nobody looks", "uqff-residual", whole,
        **{"residual.safetensors": versioned},
    )  # fmt: skip
    yield several(
        "foreign-files", "a README and a broken file of another name", "uqff-resolve", whole,
        **{"README.md": b"#", "broken.safetensors": b"\0", "q4_0-1.uqff.part": b"\0"},
    )  # fmt: skip

    good = output()
    for name, comment, content in (
        ("twin", "the good twin of the reports that follow", report(good)),
        ("schema-2", "schema 2", report(good, schema=2)), ("schema-0", "schema 0", report(good, schema=0)),
        ("schema-top", "schema 2^32 - 1", report(good, schema=0xFFFFFFFF)),
        ("extra", "fields that nobody knows", report({**good, "x": [1]}, x={"y": None})),
        ("other-version", "uqff_version 9.9.9", report(good, uqff_version="9.9.9")),
        ("wrong-counts", "numbers that do not fit the shards",
         report(output(layers=99, actual_counts={"q8k": 7}, fallback_count=3))),
        ("no-layers", "counts that are 0 and empty", report(output(layers=0, actual_counts={}))),
        ("details", "fallbacks and layer_details",
         report(output(fallbacks=[{"module": "a", "from": "q4_0", "to": "f32", "shape": [2, 3], "reason": "x"}],
          layer_details=[{"module": "a", "stored": "f32", "shape": []}]))),
        ("quant-upper-case", "a quant in upper case", report(output("Q4_0"))),
        ("quant-spaces", "a quant with spaces at its ends", report(output(" q4_0 "))),
        ("tool-versions", "mistralrs_version, git_revision, base_model, repo_id",
         report(good, generated_by={"tool": "t", "mistralrs_version": "0.9.5", "git_revision": "unknown"},
          base_model="m", repo_id="r")),
    ):  # fmt: skip
        yield several(
            "report-" + name, "a report: " + comment, "uqff-report-extra", whole, **{"uqff_report.json": content}
        )
    listed = report(output(shards=("q4_0-0.uqff",)))
    yield several(
        "report-lists-one", "a report that lists shard 0 alone, shard 1 of another version", "uqff-resolve", whole,
        {**version(2)}, item="/q4_0-0.uqff", **{"uqff_report.json": listed},
    )  # fmt: skip
    listed = report(output(shards=("b.uqff", "a.uqff")))
    yield (
        "report-other-names", "a report that lists shards b and a", "uqff-resolve",
        place.folder("set-report-other-names", **{"a.uqff": sound(first), "b.uqff": sound({**version(), **second}),
         "uqff_report.json": listed}),
    )  # fmt: skip


def spoiled(content: bytes) -> Iterator[tuple[str, str, str, bytes]]:
    """(name, comment, class, file): a good shard with one fault in its container."""
    size = 8 + int.from_bytes(content[:8], "little")
    text, body = content[8:size].rstrip().decode(), content[size:]
    n = len(body)

    def more(member: str, extra: int = 8, key: str = '"extra"') -> bytes:
        """The shard with one more member in its header and so many bytes behind its data."""
        return framed("%s,%s:%s}" % (text[:-1], key, member), body + bytes(extra))

    def other(shape: str = "[2]", begin: int = 0, end: int = 8, dtype: str = "F32") -> str:
        return entry(dtype, shape, "[%d,%d]" % (n + begin, n + end))

    prove(count(more(other())) == len(json.loads(text)) + 1, "good without a fault")
    for size in (0, 1, 7):
        yield "size-%d-bytes" % size, "%d bytes" % size, "truncated", content[:size]
    for name, comment, error, length in (
        ("length-one-too-many", "a header that ends a byte behind the file", "bounds", len(text) + n + 1),
        ("length-above-limit", "a header of 100,000,001 bytes", "limit", 100_000_001),
        ("length-wrap-32", "2^32 plus the true length of the header", "limit", len(text) + (1 << 32)),
        ("length-wrap-64", "a header of 2^64 - 6 bytes", "limit", (1 << 64) - 6),
    ):  # fmt: skip
        yield name, comment, error, framed(text, body, length)
    for name, comment, file in (
        ("header-array", "its header in an array", framed("[%s]" % text, body)),
        ("nul-padding", "NUL behind its header", framed(text + "\0\0", body)),
        ("second-object", "{} behind its header", framed(text + "{}", body)),
        ("comma-last", "a comma behind the last entry", framed(text[:-1] + ",}", body)),
        ("latin-1", "a name in Latin-1", more(other(), key='"?"').replace(b'"?"', b'"\xe4"')),
        ("surrogate", "a lone surrogate as a name", more(other(), key='"\\ud800"')),
        ("metadata-number", "a number in its metadata", more('{"uqff.version":1}', 0, '"__metadata__"')),
        ("metadata-text", "a text as its metadata", more('"1.2.0"', 0, '"__metadata__"')),
        ("entry-number", "a number as an entry", more("8", 0)),
    ):  # fmt: skip
        yield name, comment, "json", file
    for name, comment, error, file in (
        ("no-shape", "an entry without shape", "missing", more(other().replace('"shape"', '"Shape"'))),
        ("dtype-lower-case", "the dtype f32", "dtype", more(other(dtype="f32"))),
        ("dtype-unknown", "the dtype Q4_0", "dtype", more(other(dtype="Q4_0"))),
        ("shape-negative", "the shape [-1,-2]", "shape", more(other("[-1,-2]"))),
        ("shape-float", "the shape [2.0]", "shape", more(other("[2.0]"))),
        ("shape-exponent", "the shape [2e0]", "shape", more(other("[2e0]"))),
        ("shape-minus-zero", "the shape [-0]", "shape", more(other("[-0]", 0, 0), 0)),
        ("wrap-32", "a shape of 2^32 + 8 bytes", "shape", more(other("[%d]" % ((1 << 30) + 2)))),
        ("wrap-64", "a shape of 2^64 + 8 bytes", "shape", more(other("[%d]" % ((1 << 62) + 2)))),
        ("size-one-more", "a shape of one element more", "shape", more(other("[3]"))),
        ("offsets-three", "three offsets", "bounds", more(other().replace("]}", ",0]}"))),
        ("offsets-reversed", "offsets that run backwards", "bounds", more(other("[0]", 8, 0))),
        ("hole", "a hole of a byte", "bounds", more(other("[2]", 1, 9), 9)),
        ("overlap", "an overlap of a byte", "overlap", more(other("[2]", -1, 7), 7)),
        ("trailing", "a byte behind the last tensor", "bounds", content + b"\0"),
        ("trailing-spaces", "spaces behind the last tensor", "bounds", content + b"    "),
        ("cut", "its last byte missing", "truncated", content[:-1]),
        ("cut-tensor", "its last tensor missing", "truncated", more(other(), 0)),
        ("depth", "9000 arrays inside each other", "limit", more("[" * 9000 + "]" * 9000, 0)),
        ("digits", "an offset of 2000 digits", "limit", more(other().replace("[2]", "[%s]" % ("2" * 2000)))),
        ("key-twice", "a name twice", "duplicate", framed(text[:-1] + ',"%s.weight":%s}' % (KEY, member(text)), body)),
        ("key-twice-escaped", "a name twice, once with an escape", "duplicate",
         framed(text[:-1] + ',"\\u006c%s.weight":%s}' % (KEY[1:], member(text)), body)),
        ("shape-twice", "shape twice in an entry", "duplicate",
         more(other().replace('"shape"', '"shape":[1],"shape"'))),
    ):  # fmt: skip
        yield name, comment, error, file


def member(text: str) -> str:
    """The entry of the layer's weight, as JSON."""
    return json.dumps(json.loads(text)[KEY + ".weight"])


def faulty_sets(place: Folder) -> Iterator[tuple[str, str, str, str, str, str]]:
    """(name, comment, flags, class, level, path)."""
    yes, no = "required", "recommended"

    def one(name: str, comment: str, flags: str, error: str, tensors: Tensors) -> tuple[str, str, str, str, str, str]:
        return name, comment, flags, error, yes, place.shard("set-not-" + name, sound(tensors))

    def several(
        name: str, comment: str, flags: str, error: str, *shards: Tensors, item: str = "", **more: bytes
    ) -> tuple[str, str, str, str, str, str]:
        numbered = {"q4_0-%d.uqff" % i: sound(tensors) for i, tensors in enumerate(shards)}
        return name, comment, flags, error, yes, place.folder("set-not-" + name, **{**numbered, **more}) + item

    # containers: a choice of what st_header has in full
    whole = {**version(), **TINY}
    content = sound(whole)
    for name, comment, error, file in spoiled(content):
        twice = error == "duplicate" and count(file) is not None
        prove(twice or count(file) is None, "the package safetensors refuses " + name)
        flags, level = "uqff-container", no if twice else yes
        yield name, "a shard: " + comment, flags, error, level, place.shard("set-not-" + name, file)
    chosen = (
        "size-7-bytes", "length-one-too-many", "comma-last", "overlap-of-1", "hole-of-1", "trailing-1", "truncated-1",
        "size-one-more",
    )  # fmt: skip
    for name, comment, _, error, file in invalid():
        if name in chosen:
            more = {"residual.safetensors": file}
            yield several("residual-" + name, "the residual: " + comment, "uqff-residual", error, whole, **more)
            more = {"q4_0-1.uqff": file}
            yield several("second-" + name, "the second shard: " + comment, "uqff-container", error, whole, **more)
    size = 8 + int.from_bytes(content[:8], "little")
    text = content[8:size].rstrip()
    twice = framed(
        text[:-1] + b',"uqff.version.major":' + json.dumps(json.loads(text)["uqff.version.major"]).encode() + b"}",
        content[size:],
    )  # fmt: skip
    prove(count(twice) == len(whole), "the package safetensors takes the last of the two")
    yield (
        "version-twice-in-header", "uqff.version.major twice in one header, the same entry",
        "uqff-container uqff-duplicate", "duplicate", no, place.shard("set-not-version-twice-in-header", twice),
    )  # fmt: skip

    # versions
    names = list(version())
    for i, name in enumerate(names):
        part, number_there = name.rpartition(".")[2], (1, 2, 0)[i]
        four = struct.pack("<I", number_there)
        for kind, tensor in (
            ("u8", u8(number_there)), ("u64", ("U64", (), four + bytes(4))), ("i32", ("I32", (), four)),
            ("f32", ("F32", (), struct.pack("<f", number_there))),
            ("rank-one", ("U32", (1,), four)), ("empty", ("U32", (0,), b"")), ("two", ("U32", (2,), four * 2)),
        ):  # fmt: skip
            comment = "%s as %s of shape %s" % (name, tensor[0], list(tensor[1]))
            yield one("%s-as-%s" % (part, kind), comment, "uqff-version-type", "version", {**whole, name: tensor})
        rest = {n: t for n, t in whole.items() if n != name}
        yield one(part + "-missing", "no " + name, "uqff-version-missing", "version", rest)
        other = [1, 2, 0]
        other[i] = (0, 1, 1)[i]
        comment = "%s differs in the second shard" % name
        yield several(
            part + "-differs", comment, "uqff-version-copies", "version", whole, {name: version(*other)[name]}
        )
        comment = "%s differs in the third shard; each alone would do" % name
        if i:
            yield several(
                part + "-differs-late", comment, "uqff-version-copies", "version", whole, {name: version()[name]},
                {name: version(*other)[name]},
            )  # fmt: skip
        comment = "%s of the second shard is a U8" % name
        yield several(part + "-second-u8", comment, "uqff-version-type", "version", whole, {name: u8(number_there)})
    yield one("no-tensors", "a shard without tensors", "uqff-version-missing", "version", {})
    yield one("no-version", "a layer and no version", "uqff-version-missing", "version", TINY)
    yield one(
        "version-in-names-only", "names like a version's", "uqff-version-missing", "version",
        {"uqff.version": u32(1), "version.major": u32(1), **TINY},
    )  # fmt: skip
    yield several(
        "version-in-residual", "the version in the residual alone", "uqff-version-missing", "version", TINY,
        **{"residual.safetensors": packed(version())},
    )  # fmt: skip
    for major in (0, 2, 3, 255, 257, 65537, 1 << 24, 0x80000001, 0xFFFFFFFF):
        flags = "uqff-version" + " uqff-version-wrap" * (major & 0xFF == 1 or major == 1 << 24)
        yield one("major-%d-other" % major, "version %d.2.0" % major, flags, "version", {**version(major), **TINY})
    for minor in (3, 4, 255, 258, 65538, 2 << 24, 0x80000000, 0xFFFFFFFF):
        flags = "uqff-version" + " uqff-version-wrap" * (minor & 0xFF == 2 or minor in (2 << 24, 0x80000000))
        yield one("minor-%d-newer" % minor, "version 1.%d.0" % minor, flags, "version", {**version(1, minor), **TINY})
    yield one("version-0-9-old", "version 0.9.0", "uqff-version", "version", {**version(0, 9), **TINY})
    for name, keys in (
        ("one", ("0",)), ("several", ("0", "1", "2")), ("plus", ("+5", "+007")), ("zeros", ("000", "0")),
        ("top", ("18446744073709551615",)),
        ("beyond", ("18446744073709551616",)), ("underscore", ("1_0",)), ("other-digits", ("\u0663",)),
        ("space", (" 1",)), ("minus", ("-1",)),
        ("and-others", ("0", "1", "a.weight")),
    ):  # fmt: skip
        comment = "the names %s and no version" % ", ".join(keys)
        yield one("numbers-" + name, comment, "uqff-numbers", "version", {k: u8(1) for k in keys})
    yield several(
        "numbers-two-shards", "numbers as names in two shards", "uqff-numbers", "version", {"0": u8(1)}, {"1": u8(1)}
    )

    # one name space
    weight = {KEY + ".weight": TINY[KEY + ".weight"]}
    for name, comment, shards in (
        ("weight", "a weight in two shards, the same bytes", (whole, weight)),
        ("weight-other", "a weight in two shards, other bytes", (whole, {KEY + ".weight": blank("U8", 36)})),
        ("tag", "a family tag in two shards", (whole, {KEY + ".weight.format": u8(0)})),
        ("bias", "a bias in two shards", ({**whole, KEY + ".bias": blank("F32", 2)}, {KEY + ".bias": blank("F32", 2)})),
        ("unknown", "a name of no layer in two shards", ({**whole, "extra": u8(1)}, {"extra": u8(1)})),
        ("third", "a weight in the first and the third shard", (whole, {}, weight)),
        ("number", "a number as name in two shards", ({**whole, "0": u8(1)}, {"0": u8(1)})),
        ("empty-name", "an empty name in two shards", ({**whole, "": u8(1)}, {"": u8(1)})),
        ("zero-size", "a tensor without elements in two shards",
         ({**whole, "extra": blank("U8", 0)}, {"extra": blank("U8", 0)})),
        ("all", "a whole layer in two shards", (whole, whole)),
        ("version-like", "uqff.version.build in two shards",
         ({**whole, "uqff.version.build": u32(1)}, {"uqff.version.build": u32(1)})),
    ):  # fmt: skip
        yield several("duplicate-" + name, comment, "uqff-duplicate", "duplicate", *shards)

    # which shards
    old = {**version(2), **TINY}
    yield several(
        "named-last", "shard 1 named; shard 0 has another version", "uqff-resolve", "version", old, {"extra": u8(1)},
        item="/q4_0-1.uqff",
    )  # fmt: skip
    yield several(
        "named-first", "shard 0 named; shard 1 is cut", "uqff-resolve", "truncated", whole, item="/q4_0-0.uqff",
        **{"q4_0-1.uqff": packed({"extra": blank("U8", 8)})[:-1]},
    )  # fmt: skip
    yield several(
        "gap-behind", "shard 2 named, without shard 1: the loader takes shard 0 alone", "uqff-resolve", "version",
        old, item="/q4_0-2.uqff", **{"q4_0-2.uqff": content},
    )  # fmt: skip
    yield several("no-shards", "a folder without shards", "uqff-resolve", "missing")
    yield several(
        "upper-case-extension", "a folder whose only shard ends in .UQFF", "uqff-resolve", "missing",
        **{"q4_0-0.UQFF": content},
    )  # fmt: skip
    absent = "files/uqff-cases/shards/no-such-file.uqff"
    yield "no-such-file", "a shard that is not there", "uqff-resolve", "missing", yes, absent

    # reports
    def reported(
        name: str, comment: str, flags: str, error: str, content: bytes, **more: bytes
    ) -> tuple[str, str, str, str, str, str]:
        files = {"uqff_report.json": content, **more}
        return several("report-" + name, "a report: " + comment, flags, error, whole, item="/q4_0-0.uqff", **files)

    good = report(output())
    for name, comment, content in (
        ("empty", "nothing in it", b""), ("brace", "{", b"{"), ("array", "a list", b"[]"), ("null", "null", b"null"),
        ("object", "{}", b"{}"), ("nul-behind", "a NUL behind it", good + b"\0"),
        ("two", "two objects", good + good),
        ("latin-1", "a byte ff in a text", good.replace(b"mistralrs quantize", b"\xff")),
        ("comma", "a comma too many", good[:-1] + b",}"),
        ("cut", "without its last byte", good[:-1]), ("byte-order-mark", "a byte order mark", b"\xef\xbb\xbf" + good),
    ):  # fmt: skip
        yield reported(name, comment, "uqff-report", "json", content)
    for field in ("schema", "generated_by", "uqff_version", "outputs"):
        yield reported(
            "no-" + field.replace("_", "-"), "no " + field, "uqff-report", "json", report(output(), **{field: None})
        )
    for field in ("quant", "shards", "layers", "actual_counts", "fallback_count"):
        yield reported(
            "output-no-" + field.replace("_", "-"), "an output without " + field, "uqff-report", "json",
            report(output(**{field: None})),
        )  # fmt: skip
    nothing = good.replace(b'"1.2.0"', b"null")
    yield reported("version-null", "uqff_version is null", "uqff-report", "json", nothing)
    yield reported("no-tool", "generated_by without tool", "uqff-report", "json", report(output(), generated_by={}))
    for name, edit in (
        ("schema-text", {"schema": "1"}), ("schema-negative", {"schema": -1}), ("schema-33-bits", {"schema": 1 << 32}),
        ("schema-float", {"schema": 1.0}), ("schema-true", {"schema": True}),
        ("version-number", {"uqff_version": 1.2}), ("outputs-object", {"outputs": {}}),
        ("outputs-text", {"outputs": ["q4_0"]}), ("tool-number", {"generated_by": {"tool": 1}}),
        ("tool-null", {"generated_by": {"tool": None}}),
        ("generated-by-text", {"generated_by": "mistralrs"}), ("base-model-number", {"base_model": 7}),
    ):  # fmt: skip
        yield reported(name, "%s is %s" % next(iter(edit.items())), "uqff-report", "json", report(output(), **edit))
    for name, edit in (
        ("quant-number", {"quant": 4}), ("shards-text", {"shards": "q4_0-0.uqff"}), ("shards-number", {"shards": [0]}),
        ("layers-negative", {"layers": -1}), ("layers-float", {"layers": 1.5}),
        ("layers-text", {"layers": "1"}), ("layers-65-bits", {"layers": 1 << 64}),
        ("counts-array", {"actual_counts": []}), ("counts-text", {"actual_counts": {"q4_0": "1"}}),
        ("fallback-count-negative", {"fallback_count": -1}), ("fallbacks-object", {"fallbacks": {}}),
        ("fallback-no-to", {"fallbacks": [{"module": "a", "from": "b", "shape": []}]}),
        ("detail-no-stored", {"layer_details": [{"module": "a", "shape": []}]}),
        ("detail-shape-negative", {"layer_details": [{"module": "a", "stored": "f32", "shape": [-1]}]}),
    ):  # fmt: skip
        ((field, value),) = edit.items()
        yield reported(name, "%s is %s" % (field, json.dumps(value)), "uqff-report", "json", report(output(**edit)))
    second = {"q8_0-0.uqff": sound({**version(), "extra": u8(1)})}
    for name, comment, error, content, more in (
        ("outputs-empty", "no outputs", "missing", report(), {}),
        ("quant-empty", "an empty quant", "name", report(output("")), {}),
        ("quant-blank", "a quant of spaces", "name", report(output(" \t ")), {}),
        ("quant-twice", "one quant twice", "duplicate", report(output(), output(shards=("q8_0-0.uqff",))), second),
        ("quant-twice-case", "one quant twice, once in upper case", "duplicate",
         report(output(), output("Q4_0", ("q8_0-0.uqff",))), second),
        ("shards-empty", "an output without shards", "missing", report(output(shards=())), {}),
        ("second-shards-empty", "a second output without shards", "missing", report(output(), output("q8_0", ())), {}),
        ("shard-absent", "a shard that is not there", "missing", report(output(shards=("q4_0-0.uqff", "q4_0-1.uqff"))),
         {}),
        ("shard-case", "a shard in another case", "missing", report(output(shards=("Q4_0-0.uqff",))), {}),
        ("shard-path", "a shard as ./q4_0-0.uqff", "missing", report(output(shards=("./q4_0-0.uqff",))), {}),
        ("second-shard-absent", "the second output has a shard that is not there", "missing",
         report(output(), output("q8_0", ("q8_0-0.uqff",))), {}),
        ("shard-twice", "a shard twice in one output", "duplicate",
         report(output(shards=("q4_0-0.uqff", "q4_0-0.uqff"))), {}),
        ("shard-of-two", "a shard in two outputs", "duplicate",
         report(output(), output("q8_0", ("q8_0-0.uqff", "q4_0-0.uqff"))), second),
    ):  # fmt: skip
        yield reported(name, comment, "uqff-report-identity", error, content, **more)


def make_uqff_set(files: dict[str, bytes]) -> Iterator[Case]:
    place = Folder(files)
    for name, comment, flags, path in good_sets(place):
        source = "generator, by the steps in which the engine opens a set"
        yield case("uqff-set-" + name, comment, source, flags, {"path": path})
    for name, comment, flags, error, level, path in faulty_sets(place):
        source = CATALOGUE if level == "required" else STRICTER
        yield case("uqff-set-not-" + name, comment, source, flags, {"path": path}, error=error, level=level)

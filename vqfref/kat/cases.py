"""Loads the suite: kat/manifest.json and one file an operation. The format's normative text is kat/README.md.

`Suite` finds the folder, checks its form strictly and hands out cases. Nothing here runs them.
"""

from __future__ import annotations

import os
from collections import namedtuple

from vqfref import strictjson
from vqfref.errors import WORDS, FormatError, UsageError
from vqfref.source import Source

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Iterator

RESULTS = ("valid", "invalid", "acceptable")
LEVELS = ("required", "recommended")
FIELDS = ("id", "comment", "level", "flags", "source", "since", "in", "out", "result", "error")
POLICY = ("prefix-04", "leading-space", "unknown-fields")  # flags whose cases are acceptable
MAX_FILE = 1 << 22
MAX_ID = 100
MAX_INPUT = 60000  # characters of a case's inputs, so that it fits on a line of the protocol

Case = namedtuple("Case", "op id comment level flags source since inputs outputs result error")
Case.__doc__ = """One case: what goes in and what must come out, by field; result: valid, invalid or acceptable; error:
the class that a refusal must name, or None."""

# Every operation: the fields that go in and come out, in the order of the protocol. `path` takes the rest of a line.
OPERATIONS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "sm3": (("msg",), ("digest",)),
    "hmac_sm3": (("key", "msg"), ("tag",)),
    "sm3_kdf": (("z", "klen"), ("key",)),
    "sm4_block": (("mode", "key", "block"), ("block",)),
    "sm4_ctr": (("key", "iv", "offset", "data"), ("data",)),
    "fnv1a64": (("msg",), ("hash",)),
    "sm2_za": (("pub", "id"), ("za",)),
    "sm2_pubkey": (("pub",), ("pub",)),
    "sm2_verify": (("pub", "id", "msg", "sig"), ()),
    "sm2_verify_digest": (("pub", "e", "sig"), ()),
    "sm2_sign_digest": (("d", "e", "k"), ("sig",)),
    "f16_decode": (("data",), ("f32",)),
    "f16_encode": (("mode", "f32"), ("data",)),
    "bf16_decode": (("data",), ("f32",)),
    "bf16_encode": (("f32",), ("data",)),
    "e4m3_decode": (("data",), ("f32",)),
    "e4m3_encode": (("f32",), ("data",)),
    "e8m0_decode": (("data",), ("f32",)),
    "quantize": (("type", "f32"), ("data",)),
    "dequantize": (("type", "data"), ("f32",)),
    "tile": (("layout", "cols", "data"), ("data",)),
    "untile": (("layout", "cols", "data"), ("data",)),
    "block_sums": (("type", "row", "x"), ("sums",)),
    "matvec": (("type", "layout", "cols", "data", "x"), ("y",)),
    "vqf_header": (("size", "head"), ("form", "n_tensors", "data_offset", "file_len")),
    "vqf_directory": (("size", "head", "directory"), ("n",)),
    "vqf_file": (("path",), ()),
    "vqf_verify": (("passphrase", "pub", "path"), ()),
    "vqf_tensor": (("name", "layer", "expert", "passphrase", "path"), ("shape", "sm3")),
    "vqf_geometry": (
        ("wmode", "x8", "q8_tile", "form", "arch"), ("version", "flags", "n_tensors", "data_offset", "file_len", "size"),
    ),
    "vqf_convert": (("model", "wmode", "x8", "q8_tile", "form"), ("size", "flags", "n_tensors", "sm3")),
    "st_header": (("path",), ("n",)),
    "uqff_layer": (("key", "path"), ("label", "shape", "sm3")),
    "uqff_set": (("path",), ()),
    "uqff_slice": (("key", "dim", "rank", "world", "path"), ("shape", "sm3")),
    "attest": (("record", "request", "output", "pub"), ()),
}  # fmt: skip


# What the values of a field are: hex, where the name stands in none of these.
DECIMAL = {
    "klen", "offset", "cols", "size", "form", "n_tensors", "data_offset", "file_len", "n", "version", "flags", "x8",
    "q8_tile", "dim", "rank", "world",
}  # fmt: skip
WORD = {
    "mode", "type", "layout", "sums", "wmode", "arch", "model", "label", "shape", "name", "layer", "expert",
}  # fmt: skip
FLOATS = {"f32", "y"}
LISTS = {"sums", "shape"}  # of integers, with commas


def kind(op: str, field: str) -> str:
    """What a field of an operation holds: hex, decimal, path or word."""
    if field == "path":
        return "path"
    if field in WORD or (field == "key" and op.startswith("uqff_")):  # there it is the name of a layer
        return "word"
    return "decimal" if field in DECIMAL else "hex"


def value_fault(op: str, field: str, value: Any) -> str | None:
    """What is wrong with the value of a field, or None."""
    what = kind(op, field)
    if what == "decimal":
        if type(value) is int:
            return None if abs(value) < 1 << 53 else "a number beyond 2^53, expected decimal text"
        digits = value[1:] if isinstance(value, str) and value[:1] == "-" else value
        good = isinstance(digits, str) and is_of(digits, "0123456789") and (digits[0] != "0" or value == "0")
        return None if good else "found %.40s, expected a number or decimal text" % ascii(value)
    if not isinstance(value, str):
        return "found %.40s, expected text" % ascii(value)
    if what == "hex":
        good = not value or (len(value) % 2 == 0 and is_of(value, "0123456789abcdef"))
        return None if good else "found %.40s, expected lower-case hex" % ascii(value)
    if what == "path":
        parts = value.split("/")
        good = parts[0] == "files" and len(parts) > 1 and not {"", ".", ".."} & set(parts) and value.isprintable()
        return None if good else "found %.60s, expected a path that begins with files/" % ascii(value)
    good = all("!" <= c <= "~" for c in value)
    return None if good else "found %.40s, expected ASCII text without spaces" % ascii(value)


def is_of(text: str, alphabet: str) -> bool:
    """Has a text characters, and only these?"""
    return bool(text) and not set(text) - set(alphabet)


def is_slug(text: Any) -> bool:
    """Lower-case letters and digits, with single hyphens between them?"""
    return isinstance(text, str) and all(is_of(w, "abcdefghijklmnopqrstuvwxyz0123456789") for w in text.split("-"))


def is_version(text: Any) -> bool:
    """Three numbers with dots, as SemVer has them?"""
    return isinstance(text, str) and text.count(".") == 2 and all(is_of(w, "0123456789") for w in text.split("."))


class Suite:
    """A suite on disk. folder: where it lies; version: its own, by SemVer; cases: all Cases in order."""

    def __init__(self, folder: str) -> None:
        """Raises OSError; FormatError kat.… for what does not follow the format or is not as the manifest says."""
        self.folder = folder
        manifest = strictjson.loads(self._read("manifest.json"), path=self.path("manifest.json"))
        if not isinstance(manifest, dict) or manifest.get("suite") != "vqfref-kat":
            raise self._manifest_fault("not the manifest of a suite", "suite")
        if not is_version(manifest.get("version")):
            raise self._manifest_fault("expected three numbers with dots", "version")
        files = manifest.get("files")
        if not isinstance(files, dict):
            raise self._manifest_fault("expected an object with an entry a file", "files")
        self.version: str = manifest["version"]
        self.cases: list[Case] = []
        seen: set[str] = set()
        for name, facts in files.items():
            for case in self._file(name, facts):
                if case.id in seen:
                    message = "the id is there twice"
                    raise FormatError("kat.case.duplicate", message, field=case.id, path=self.path(name))
                seen.add(case.id)
                self.cases.append(case)

    def path(self, name: str) -> str:
        """The path of a file of the suite."""
        return os.path.join(self.folder, *name.split("/"))

    def _read(self, name: str) -> bytes:
        path = self.path(name)
        with Source(path, "pread") as source:
            if source.size > MAX_FILE:
                raise FormatError("kat.file.limit", "%d bytes" % source.size, path=path)
            return bytes(source.read_at(0, source.size))

    def _manifest_fault(self, message: str, field: str) -> FormatError:
        return FormatError("kat.manifest.json", message, field=field, path=self.path("manifest.json"))

    def _file(self, name: str, facts: Any) -> list[Case]:
        """The cases of one file, held against its entry in the manifest."""
        op = facts.get("op") if isinstance(facts, dict) else None
        if not isinstance(op, str) or op not in OPERATIONS or name != op + ".json":
            raise self._manifest_fault("expected OPERATION.json with this operation as op", name)
        if set(facts) != {"op", "sha256", *RESULTS}:
            raise self._manifest_fault("expected the fields op sha256 %s" % " ".join(RESULTS), name)
        data = self._read(name)
        if sha256(data) not in (facts["sha256"], None):
            message = "the file is not the one that the manifest tells of: its sha256 differs"
            raise FormatError("kat.file.tag", message, path=self.path(name))
        raw = strictjson.loads(data, path=self.path(name))
        if not isinstance(raw, list):
            raise FormatError("kat.case.json", "expected a list of cases", path=self.path(name))
        cases = [self._case(name, op, c) for c in raw]
        for result in RESULTS:
            n = sum(c.result == result for c in cases)
            if type(facts[result]) is not int or facts[result] != n:
                raise self._manifest_fault("%.40s %s cases, the file has %d" % (ascii(facts[result]), result, n), name)
        return cases

    def _case(self, name: str, op: str, raw: Any) -> Case:
        """One case, its form checked."""

        def fault(message: str, code: str = "kat.case.json") -> FormatError:
            field = raw.get("id") if isinstance(raw, dict) and isinstance(raw.get("id"), str) else None
            return FormatError(code, message, field=field, path=self.path(name))

        if not isinstance(raw, dict) or not set(raw) <= set(FIELDS) or not set(FIELDS[:9]) <= set(raw):
            raise fault("expected an object with the fields %s" % " ".join(FIELDS))
        if not is_slug(raw["id"]) or len(raw["id"]) > MAX_ID:
            raise fault("an id is at most %d lower-case letters and digits, with hyphens" % MAX_ID)
        for field in ("comment", "source"):
            if not isinstance(raw[field], str) or not raw[field] or not raw[field].isprintable():
                raise fault("%s must be a line of text" % field)
        flags, result = raw["flags"], raw["result"]
        if not isinstance(flags, list) or not all(map(is_slug, flags)) or len(set(flags)) < len(flags):
            raise fault("flags must be a list of different slugs")
        if not is_version(raw["since"]):
            raise fault("since must be a version, three numbers with dots")
        if raw["level"] not in LEVELS:
            raise fault("level must be one of %s" % " ".join(LEVELS))
        if result not in RESULTS:
            raise fault("result must be one of %s" % " ".join(RESULTS))
        if result == "acceptable" and not set(flags) & set(POLICY):
            raise fault("an acceptable case has a policy flag: one of %s" % " ".join(POLICY))
        if (result == "invalid") != ("error" in raw) or raw.get("error", WORDS[0]) not in WORDS:
            raise fault("an invalid case names one of the error classes, no other case does")
        self._check_fields(op, raw, fault)
        return Case(
            op, raw["id"], raw["comment"], raw["level"], tuple(flags), raw["source"], raw["since"], raw["in"], raw["out"],
            result, raw.get("error"),
        )  # fmt: skip

    def _check_fields(self, op: str, raw: dict[str, Any], fault: Callable[..., FormatError]) -> None:
        """in and out of a case: the fields of its operation in order, each with values of its kind."""
        inputs, outputs = raw["in"], raw["out"]
        if not isinstance(inputs, dict) or not isinstance(outputs, dict):
            raise fault("in and out must be objects")
        if tuple(inputs) != OPERATIONS[op][0]:
            raise fault("in has %.200s; %s takes %s" % (ascii(list(inputs)), op, " ".join(OPERATIONS[op][0])))
        expected = () if raw["result"] == "invalid" else OPERATIONS[op][1]
        given = tuple(n for n in outputs if n != "tol")
        if given != expected or ("tol" in outputs and not FLOATS & set(expected)):
            raise fault("out has %.200s, expected %s" % (ascii(list(outputs)), " ".join(expected) or "nothing"))
        for name, value in [*inputs.items(), *((n, v) for n, v in outputs.items() if n != "tol")]:
            wrong = value_fault(op, name, value)
            if wrong:
                raise fault("%s: %s" % (name, wrong))
        for name in FLOATS & set(outputs):
            values: str = outputs[name]
            tol: Any = outputs.get("tol", values)
            if len(values) % 8 or value_fault(op, name, tol) or len(tol) != len(values):
                raise fault("%s and its tol must be as many floats of four bytes in hex" % name)
        if sum(len(str(value)) for value in inputs.values()) > MAX_INPUT:
            raise fault("inputs of more than %d characters" % MAX_INPUT)
        there = "path" not in inputs or os.path.exists(self.path(inputs["path"]))
        if not there and raw.get("error") != "missing":  # such a case may be about just that
            raise fault("no such file: %s" % inputs["path"], "kat.file.missing")

    def lines(self, case: Case) -> dict[str, str]:
        """The inputs of a case as texts for the protocol; paths made absolute."""
        found = {}
        for name, value in case.inputs.items():
            text = str(value)
            found[name] = os.path.abspath(self.path(text)) if name == "path" else text
        return found


def sha256(data: bytes) -> str | None:
    """The SHA-256 of some bytes in hex; None where this Python has no hashlib."""
    try:
        import hashlib
    except ImportError:
        return None
    return hashlib.sha256(data).hexdigest()


def find(folder: str | None = None) -> str:
    """The folder of the suite: as given, else kat/ beside the package, else inside the package, unpacked if that is an
    archive. Raises UsageError."""
    package = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    places = (
        [folder] if folder else [os.path.join(os.path.dirname(package), "kat"), os.path.join(package, "kat", "suite")]
    )
    for place in places:
        if os.path.isfile(os.path.join(place, "manifest.json")):
            return place
    from vqfref.pyz import unpacked_suite

    inside = None if folder else unpacked_suite()
    if inside:
        return inside
    raise UsageError("usage.suite.missing", "no suite in %s" % " or ".join(places))


def chosen(
    cases: list[Case], only: list[str], skip: list[str], ops: list[str], level: str | None, flag: str | None
) -> Iterator[Case]:
    """The cases that some filters leave; `only` and `skip` are patterns of ids with * and ?, no `ops` are all of them."""
    for c in cases:
        if only and not any(matches(c.id, p) for p in only):
            continue
        if any(matches(c.id, p) for p in skip) or (ops and c.op not in ops):
            continue
        if (level and c.level != level) or (flag and flag not in c.flags):
            continue
        yield c


def matches(text: str, pattern: str) -> bool:
    """Does a text match a pattern of * and ?; in time proportional to their product.

    >>> matches("sm3-abc", "sm3-*"), matches("sm3-abc", "sm4-*")
    (True, False)
    """
    places = {0}
    for c in pattern:
        if c == "*":
            places = set(range(min(places), len(text) + 1)) if places else places
        else:
            places = {i + 1 for i in places if i < len(text) and c in ("?", text[i])}
    return len(text) in places

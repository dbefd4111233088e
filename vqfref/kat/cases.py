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
    from typing import Any, Iterator

RESULTS = ("valid", "invalid", "acceptable")
LEVELS = ("required", "recommended")
FIELDS = ("id", "comment", "level", "flags", "source", "since", "in", "out", "result", "error")
MAX_FILE = 1 << 26

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


class Suite:
    """A suite on disk. folder: where it lies; version: its own, by SemVer; cases: all Cases in order."""

    def __init__(self, folder: str) -> None:
        """Raises OSError; FormatError kat.… for what does not follow the format."""
        self.folder = folder
        manifest = self._load("manifest.json")
        if not isinstance(manifest, dict) or manifest.get("suite") != "vqfref-kat":
            raise FormatError("kat.manifest.json", "not the manifest of a suite", path=self.path("manifest.json"))
        self.version = str(manifest.get("version"))
        files = manifest.get("files")
        if not isinstance(files, dict):
            raise FormatError("kat.manifest.json", "no files", path=self.path("manifest.json"))
        self.cases: list[Case] = []
        seen: set[str] = set()
        for name, facts in files.items():
            cases = [self._case(name, facts, c) for c in self._case_list(name)]
            for c in cases:
                if c.id in seen:
                    raise FormatError("kat.case.duplicate", "the id is there twice", field=c.id, path=self.path(name))
                seen.add(c.id)
            self.cases += cases

    def path(self, name: str) -> str:
        """The path of a file of the suite."""
        return os.path.join(self.folder, *name.split("/"))

    def _load(self, name: str) -> Any:
        path = self.path(name)
        with Source(path, "pread") as source:
            if source.size > MAX_FILE:
                raise FormatError("kat.file.limit", "%d bytes" % source.size, path=path)
            return strictjson.loads(source.read_at(0, source.size), path=path)

    def _case_list(self, name: str) -> list[Any]:
        if not isinstance(name, str) or "/" in name or not name.endswith(".json"):
            raise FormatError("kat.manifest.json", "%r is no file of cases" % name, path=self.path("manifest.json"))
        cases = self._load(name)
        if not isinstance(cases, list):
            raise FormatError("kat.case.json", "expected a list of cases", path=self.path(name))
        return cases

    def _case(self, name: str, facts: Any, raw: Any) -> Case:
        """One case, its form checked."""

        def fault(message: str) -> FormatError:
            field = raw.get("id") if isinstance(raw, dict) and isinstance(raw.get("id"), str) else None
            return FormatError("kat.case.json", message, field=field, path=self.path(name))

        op = facts.get("op") if isinstance(facts, dict) else None
        if op not in OPERATIONS:
            raise fault("operation %r is unknown" % (op,))
        if not isinstance(raw, dict) or not set(raw) <= set(FIELDS) or not set(FIELDS[:9]) <= set(raw):
            raise fault("expected an object with the fields %s" % " ".join(FIELDS))
        inputs, outputs = raw["in"], raw["out"]
        if not isinstance(inputs, dict) or not isinstance(outputs, dict):
            raise fault("in and out must be objects")
        if tuple(inputs) != OPERATIONS[op][0]:
            raise fault("in has %s, %s takes %s" % (" ".join(inputs), op, " ".join(OPERATIONS[op][0])))
        if raw["result"] not in RESULTS or raw["level"] not in LEVELS or not isinstance(raw["flags"], list):
            raise fault("result, level or flags are none of those that exist")
        if raw["result"] == "invalid" and raw.get("error") not in WORDS:
            raise fault("an invalid case names one of the error classes")
        return Case(
            op, raw["id"], raw["comment"], raw["level"], tuple(raw["flags"]), raw["source"], raw["since"], inputs, outputs,
            raw["result"], raw.get("error"),
        )  # fmt: skip

    def lines(self, case: Case) -> dict[str, str]:
        """The inputs of a case as texts for the protocol; paths made absolute."""
        found = {}
        for name, value in case.inputs.items():
            text = str(value)
            found[name] = os.path.abspath(self.path(text)) if name == "path" else text
        return found


def find(folder: str | None = None) -> str:
    """The folder of the suite: as given, else kat/ beside the package, else inside the package. Raises UsageError."""
    package = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    places = (
        [folder] if folder else [os.path.join(os.path.dirname(package), "kat"), os.path.join(package, "kat", "suite")]
    )
    for place in places:
        if os.path.isfile(os.path.join(place, "manifest.json")):
            return place
    raise UsageError("usage.suite.missing", "no suite in %s" % " or ".join(places))


def chosen(
    cases: list[Case], only: list[str], skip: list[str], op: str | None, level: str | None, flag: str | None
) -> Iterator[Case]:
    """The cases that some filters leave; `only` and `skip` are patterns of ids with * and ?."""
    for c in cases:
        if only and not any(matches(c.id, p) for p in only):
            continue
        if any(matches(c.id, p) for p in skip) or (op and c.op != op):
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

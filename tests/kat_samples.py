"""Small suites of known answers for tests, made anew in a folder, and the command line in this process.

The answers are literals from the standards and from FNV's authors. Nothing here uses the library but `vqfref`, the
command under test.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections import namedtuple
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

from vqfref.cli import main

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List

    Case = Dict[str, Any]
    Files = Dict[str, List[Case]]

KAT = Path(__file__).resolve().parent.parent / "kat"
ABC = "66c7f0f462eeedd9d1f2d46bdc10e4e24167c4875cf2f7a2297da02b8f4ba8e0"  # SM3 of 616263, GB/T 32905 A.1
OFFSET_BASIS = "cbf29ce484222325"  # FNV-1a of nothing
FNV_A = "af63dc4c8601ec8c"  # of 61
G = (  # the base point of SM2
    "32c4ae2c1f1981195f9904466a39c9948fe30bbff2660be1715a4589334c74c7"
    "bc3736a2f4f6779c59bdcee36b692153d0a9877cc62a474002df32e52139f0a0"
)

Run = namedtuple("Run", "code out err last")  # exit code, standard output and error, last line of output


def case(name: Any, into: Any, out: Any = None, **more: Any) -> Case:
    """A case as the suite has it: valid, or invalid where `error` is among `more`."""
    made: Case = {
        "id": name,
        "comment": "about %s" % name,
        "level": "required",
        "flags": ["a-flag"],
        "source": "by hand",
    }
    made.update({"since": "1.0.0", "in": into, "out": {} if out is None else out})
    made["result"] = "invalid" if "error" in more else "valid"
    made.update(more)
    return made


def sm3_case(name: Any = "sm3-abc", into: Any = None, out: Any = None, **more: Any) -> Case:
    return case(name, into or {"msg": "616263"}, out or {"digest": ABC}, **more)


def fnv_case(name: Any = "fnv1a64-empty", into: Any = None, out: Any = None, **more: Any) -> Case:
    return case(name, into or {"msg": ""}, out or {"hash": OFFSET_BASIS}, **more)


def manifest(files: dict[str, bytes]) -> dict[str, Any]:
    """The manifest of some files of cases by operation."""
    entries = {}
    for op, content in files.items():
        try:
            results = [c["result"] if isinstance(c, dict) else None for c in json.loads(content)]
        except (ValueError, TypeError, KeyError, RecursionError):
            results = []
        facts: dict[str, Any] = {"op": op, "sha256": hashlib.sha256(content).hexdigest()}
        facts.update({r: results.count(r) for r in ("valid", "invalid", "acceptable")})
        entries[op + ".json"] = facts
    return {"suite": "vqfref-kat", "version": "1.0.0", "files": entries}


def write(folder: Path, files: Files) -> str:
    """A suite of these cases by operation; the folder's name."""
    content = {op: json.dumps(cases).encode() for op, cases in files.items()}
    for op, data in content.items():
        (folder / (op + ".json")).write_bytes(data)
    (folder / "manifest.json").write_text(json.dumps(manifest(content)), "utf-8")
    (folder / "files").mkdir(exist_ok=True)
    return str(folder)


def vqfref(*words: str) -> Run:
    """Run one command in this process."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        code = main(list(words))
    lines = out.getvalue().splitlines()
    return Run(code, out.getvalue(), err.getvalue(), lines[-1] if lines else "")

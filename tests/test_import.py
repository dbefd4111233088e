"""What an import costs, what it needs, and who may import whom: the import floor and the floors of the design.

One half reads the sources with `ast`; the other runs them in fresh interpreters, with the modules that small images
lack taken away (blocked.py).
"""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import vqfref

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PACKAGE = os.path.join(ROOT, "vqfref")
FLAGS = ["-" + "O" * sys.flags.optimize] * (sys.flags.optimize > 0) + ["-W" + w for w in sys.warnoptions]

# ---- the rules

FIRST = {"os", "sys", "struct"}  # what these three may import at module top
FIRST_MODULES = ("vqfref", "vqfref.errors", "vqfref.source")
FLOOR = FIRST | {
    "array", "binascii", "math", "io", "operator", "itertools", "functools", "collections", "contextlib",
    "time",
}  # fmt: skip
IN_CLI = FLOOR | {"argparse", "re"}

# Imports inside a function of what images lack, without `except ImportError` around them, and why that is right.
UNGUARDED = {
    ("vqfref.pyz", "atexit"): "a part of the interpreter itself, on every image",
    ("vqfref.strictjson", "json.scanner"): "its caller goes on with the plain parser after any exception",
    ("vqfref.vqf.structs", "ctypes"): "the mirrors are ctypes classes; without it, ImportError is the answer",
}

# Room or file -> floor. A file imports from lower floors and from its own room; the files of floor 0 are one room.
ROOMS = {
    "errors": 0, "source": 0, "sink": 0, "strictjson": 0, "findings": 0, "weightfile": 0, "codes": 0, "comparison": 0,
    "crypto": 1, "quant": 1, "pyz": 1, "fast": 2, "kernels": 3, "safetensors": 4, "vqf": 5, "uqff": 5, "attest": 5,
    "weights": 6, "kat": 6, "bench": 7, "cli": 8, "__init__": 9, "__main__": 9,
}  # fmt: skip


class Import:
    """One import statement's name: who imports what, where, and under which conditions."""

    def __init__(self, module: str, target: str, line: int, inside: bool, guarded: bool, types: bool) -> None:
        self.module = module
        self.target = target  # dotted; of ours always a module
        self.line = line
        self.inside = inside  # a function
        self.guarded = guarded  # by `except ImportError`
        self.types = types  # for type checkers only

    def __str__(self) -> str:
        return "%s line %d imports %s" % (self.module, self.line, self.target)

    @property
    def ours(self) -> bool:
        return self.target.split(".")[0] == "vqfref"


def sources() -> dict[str, ast.Module]:
    """Module name -> syntax tree, for every file of the package."""
    found = {}
    for folder, _, names in os.walk(PACKAGE):
        for name in names:
            if name.endswith(".py"):
                path = os.path.join(folder, name)
                parts = os.path.relpath(path, ROOT)[:-3].split(os.sep)
                with open(path, "rb") as file:
                    found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = ast.parse(file.read(), path)
    return found


def face(name: str) -> str:
    """The module in which a name that `vqfref` hands on lives."""
    value = getattr(vqfref, name)
    home = getattr(value, "__module__", "vqfref.errors")  # __version__ is a plain str, as low as anything
    return home if isinstance(home, str) else "vqfref"


def imports(trees: dict[str, ast.Module]) -> list[Import]:
    """Every import of the package. `import vqfref` counts as imports of the modules whose names are then used."""
    found: list[Import] = []

    def resolve(module: str, base: str, name: str) -> str:
        if base + "." + name in trees:
            return base + "." + name
        return face(name) if base == "vqfref" else base

    def walk(module: str, node: ast.AST, inside: bool, guarded: bool, types: bool) -> None:
        def add(target: str) -> None:
            found.append(Import(module, target, node.lineno, inside, guarded, types))  # type: ignore[attr-defined]

        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name != "vqfref":  # that one is resolved by its uses
                    add(alias.name)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                package = module if any(m.startswith(module + ".") for m in trees) else module.rpartition(".")[0]
                parts = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join(parts + ([base] if base else []))
            for alias in node.names:
                add(resolve(module, base, alias.name) if base.split(".")[0] == "vqfref" else base)
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "vqfref":
            add(resolve(module, "vqfref", node.attr))
        elif isinstance(node, ast.Call) and _called(node) in ("__import__", "import_module"):
            text = node.args[0].left if isinstance(node.args[0], ast.BinOp) else node.args[0]
            if isinstance(text, ast.Constant) and isinstance(text.value, str):
                if not text.value.startswith("vqfref."):
                    add(text.value)
            else:
                add("(a name made at run time)")
        for field, value in ast.iter_fields(node):
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST):
                    walk(
                        module,
                        child,
                        inside or isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)),
                        guarded or (isinstance(node, ast.Try) and field == "body" and _catches_import_error(node)),
                        types or (isinstance(node, ast.If) and field == "body" and _is_type_checking(node.test)),
                    )

    for module, tree in trees.items():
        walk(module, tree, False, False, False)
    return found


def _called(node: ast.Call) -> str:
    return getattr(node.func, "id", getattr(node.func, "attr", ""))


def _catches_import_error(node: ast.Try) -> bool:
    names = ("ImportError", "ModuleNotFoundError")
    return any(isinstance(n, ast.Name) and n.id in names for h in node.handlers if h.type for n in ast.walk(h.type))


def _is_type_checking(node: ast.AST) -> bool:
    return isinstance(node, ast.Name) and node.id == "TYPE_CHECKING"


def place(module: str) -> tuple[int, str]:
    """(floor, room) of a module. One that the table does not know passes here; another test names it."""
    name = (module.split(".") + ["__init__"])[1]
    floor = ROOMS.get(name, 0)
    return floor, "floor 0" if floor == 0 else name


def on_a_circle(edges: set[tuple[str, str]]) -> set[tuple[str, str]]:
    """The edges that lie on a circle: those whose end leads back to their start."""
    after: dict[str, set[str]] = {}
    for a, b in edges:
        after.setdefault(a, set()).add(b)

    def reach(start: str) -> set[str]:
        seen: set[str] = set()
        todo = [start]
        while todo:
            for b in after.get(todo.pop(), ()):
                if b not in seen:
                    seen.add(b)
                    todo.append(b)
        return seen

    return {(a, b) for a, b in edges if a == b or a in reach(b)}


class Sources(unittest.TestCase):
    """What the text of the files says."""

    @classmethod
    def setUpClass(cls) -> None:
        cls.trees = sources()
        cls.imports = imports(cls.trees)

    def expect_none(self, wrong: list[str], rule: str) -> None:
        if wrong:
            self.fail("%s:\n%s" % (rule, "\n".join(wrong)))

    def test_the_reading_of_the_sources_sees_what_is_known_to_be_there(self) -> None:
        edges = {(i.module, i.target): i for i in self.imports}
        mmap = edges["vqfref.source", "mmap"]
        self.assertEqual((mmap.inside, mmap.guarded, mmap.types), (False, True, False))
        typing = edges["vqfref.source", "typing"]
        self.assertEqual((typing.inside, typing.guarded, typing.types), (False, False, True))
        ctypes = edges["vqfref.vqf.structs", "ctypes"]
        self.assertEqual((ctypes.inside, ctypes.guarded, ctypes.types), (True, False, False))
        self.assertIn(("vqfref.strictjson", "vqfref.errors"), edges)
        self.assertIn(("vqfref.cli.check", "vqfref.weights"), edges, "through the names of `import vqfref`")

    def test_at_module_top_only_modules_that_every_image_has(self) -> None:
        wrong = []
        for i in self.imports:
            if i.inside or i.guarded or i.types or i.ours or i.target == "__future__":
                continue
            in_cli = i.module.split(".")[1:2] == ["cli"]
            if i.target not in (FIRST if i.module in FIRST_MODULES else IN_CLI if in_cli else FLOOR):
                wrong.append(str(i))
        self.expect_none(wrong, "import it in a function, inside `try … except ImportError`, with a fallback")

    def test_inside_functions_what_images_lack_is_guarded_or_has_a_reason(self) -> None:
        wrong, used = [], set()
        for i in self.imports:
            if not i.inside or i.guarded or i.ours:
                continue
            if i.target not in (IN_CLI if i.module.split(".")[1:2] == ["cli"] else FLOOR):
                used.add((i.module, i.target))
                if (i.module, i.target) not in UNGUARDED:
                    wrong.append(str(i))
        self.expect_none(wrong, "put `try … except ImportError` around it, or give it a reason in UNGUARDED")
        self.assertEqual(set(UNGUARDED) - used, set(), "reasons for imports that are gone")

    def test_every_file_has_a_floor(self) -> None:
        missing = [m for m in self.trees if (m.split(".") + ["__init__"])[1] not in ROOMS]
        self.expect_none(missing, "put it into ROOMS, as the design's table of floors has it")

    def test_no_file_imports_from_above_or_from_the_room_beside(self) -> None:
        wrong = []
        for i in self.imports:
            if i.ours:
                (mine, my_room), (other, other_room) = place(i.module), place(i.target)
                if other > mine or (other == mine and my_room != other_room):
                    wrong.append(
                        "%s (floor %d) imports %s (floor %d), line %d" % (i.module, mine, i.target, other, i.line)
                    )
        self.expect_none(wrong, "a file imports from floors below it, or from its own room")

    def test_imports_run_in_no_circles(self) -> None:
        edges = {(i.module, i.target) for i in self.imports if i.ours and not i.types}
        circle = sorted("%s -> %s" % edge for edge in on_a_circle(edges))
        self.expect_none(circle, "these imports lead back to where they start")

    def test_nothing_is_checked_with_assert(self) -> None:
        wrong = [
            "%s line %d" % (module, node.lineno)
            for module, tree in self.trees.items()
            for node in ast.walk(tree)
            if isinstance(node, ast.Assert)
        ]
        self.expect_none(wrong, "`python3 -O` leaves assert out: raise an error")


# ---- fresh interpreters


def python(code: str, *argv: str) -> str:
    """What a fresh interpreter without site-packages prints; it must end well and leave nothing on stderr."""
    run = subprocess.run(
        [sys.executable, "-I", "-S", "-B", *FLAGS, "-c", code, ROOT, *argv],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=120,
    )
    text, errors = run.stdout.decode("utf-8", "replace"), run.stderr.decode("utf-8", "replace")
    if run.returncode or errors:
        raise AssertionError("status %d\n%s\n%s" % (run.returncode, text[-2000:], errors))
    return text


COST = """
import os, sys
sys.path.insert(0, sys.argv[1])
before = set(sys.modules)
import vqfref
print(" ".join(sorted(set(sys.modules) - before)))
"""

LAZY = """
import os, sys
sys.path.insert(0, sys.argv[1])
import vqfref
def loaded():
    return " ".join(sorted(m[7:] for m in sys.modules if m.startswith("vqfref.")))
print(loaded())
for name in ("__version__", "FormatError", "Finding", "TensorInfo", "WeightFile", "check", "open"):
    getattr(vqfref, name)
    print(name, loaded())
"""

OPENING = """
import os, sys
sys.path.insert(0, sys.argv[1])
import struct, array, binascii, math, io, operator, itertools, functools, collections, contextlib
try:
    import mmap
except ImportError:
    pass
before = set(sys.modules)
import vqfref
path = os.path.join(sys.argv[1], "kat", "files", "mini-q4-h448-plain.vqf")
with vqfref.open(path) as f:
    f.metadata(), [f.info(name) for name in f.keys()], f.get_tensor("final_norm"), bytes(f.raw("q4_q"))
vqfref.check(path)
print(" ".join(sorted(m for m in set(sys.modules) - before if m.split(".")[0] != "vqfref")))
"""

WITHOUT = """
import os, sys
root, image = sys.argv[1:]
sys.path[:0] = [root, os.path.join(root, "tests")]
import blocked
names = blocked.install(image)
for name in names:
    try:
        __import__(name)
    except ModuleNotFoundError:
        continue
    sys.exit("the helper does not keep %s away" % name)

count = 0
for folder, _, files in sorted(os.walk(os.path.join(root, "vqfref"))):
    for file in sorted(files):
        if file.endswith(".py"):
            parts = os.path.relpath(os.path.join(folder, file), root)[:-3].split(os.sep)
            __import__(".".join(parts[:-1] if parts[-1] == "__init__" else parts))
            count += 1
print("imported", count)

import vqfref
from vqfref import strictjson
from vqfref.cli import main

files = os.path.join(root, "kat", "files")
for name in sorted(os.listdir(files)):
    if name.endswith(".vqf"):
        path = os.path.join(files, name)
        with vqfref.open(path) as f:
            print(strictjson.dumps(f.metadata()))
            for t in f.tensors():
                print(t, sum(f.raw(t.name)), [sum(piece) for piece in f.chunks(t.name, 100)], f.ranges(t.name))
            if not f.encrypted:
                print(list(f.get_tensor("final_norm")), list(f.get_tensor("token_embed", rows=slice(1, 3))))
            print(f.verify(), name in f, len(f), [str(x) for x in f.check()])
            try:
                f.get_tensor("finel_norm")
            except vqfref.TensorNotFound as error:
                print(error.code)
        print([str(x) for x in vqfref.check(path)])
print(strictjson.loads('{"a": [1, 2.5e3, "\\\\u00e9"]}'))

path = os.path.join(files, "mini-q4-h448-plain.vqf")
for argv in (
    ["--version"], [path], ["info", path], ["info", "--json", path], ["header", path], ["header", "--directory", path],
    ["header", "--json", path], ["ls", path], ["ls", "--layer", "0", path], ["check", path], ["check", "--json", path],
    ["verify", path], ["verify", os.path.join(files, "mini-q4-h432-enc-signed.vqf")], ["hexdump", path],
    ["hexdump", path, "q4_q"], ["help"], ["help", "codes"], ["help", "hexdump"], ["ls", "--help"],
):
    print("status", main(argv), [os.path.basename(a) for a in argv])
print("the same up to here")
print(" ".join(sorted(names)))
main(["env", "--json"])
print("the end of env")
sys.stderr = sys.stdout
print("--backend mmap", main(["info", "--backend", "mmap", path]))
print("env", main(["env"]))
"""


class Fresh(unittest.TestCase):
    """What a fresh interpreter does."""

    def test_importing_vqfref_loads_nothing_but_itself(self) -> None:
        self.assertEqual(set(python(COST).split()) - {"__future__"}, {"vqfref"})

    def test_each_name_loads_its_own_module_and_no_reader(self) -> None:
        lines = python(LAZY).splitlines()
        self.assertEqual(lines[:3], ["", "__version__ ", "FormatError errors"])
        self.assertEqual(lines[3], "Finding errors findings")
        self.assertEqual(lines[4], "TensorInfo errors findings weightfile")
        self.assertEqual(lines[5], "WeightFile errors findings weightfile")
        self.assertEqual(lines[6:], [n + " errors findings source weightfile weights" for n in ("check", "open")])

    def test_opening_and_checking_a_file_needs_no_module_beyond_the_floor(self) -> None:
        self.assertEqual(set(python(OPENING).split()) - {"__future__"}, set())

    def test_every_image_imports_every_module_and_runs_the_main_verbs_alike(self) -> None:
        full = python(WITHOUT, "none").partition("the same up to here\n")
        self.assertIn("imported %d\n" % len(sources()), full[0])
        for verb, status in (("info", 0), ("header", 0), ("ls", 0), ("check", 0), ("verify", 0), ("hexdump", 0)):
            self.assertIn("status %d ['%s', 'mini-q4-h448-plain.vqf']" % (status, verb), full[0])
        self.assertIn("status 1 ['verify', 'mini-q4-h432-enc-signed.vqf']", full[0])
        self.assertEqual(full[0].count("usage.tensor.name\n"), 8 + 1, "eight files, and once in `help codes`")
        for image in ("debian", "yocto", "openwrt"):
            with self.subTest(image):
                text = python(WITHOUT, image).partition("the same up to here\n")
                self.assertEqual(text[0].splitlines(), full[0].splitlines())
                names, _, rest = text[2].partition("\n")
                env, _, rest = rest.partition("the end of env\n")
                modules = json.loads(env)["modules"]
                self.assertTrue(set(modules) & set(names.split()))
                for name, there in modules.items():
                    if name in names.split():
                        self.assertIs(there, False, name)
                        self.assertRegex(rest, r"(?m)^module %s +no " % name)
                self.assertEqual("--backend mmap 2\n" in rest, "mmap" in names.split(), "asked for what is not there")
                self.assertTrue(rest.endswith("\nenv 0\n"))


class Face(unittest.TestCase):
    """The names of the package."""

    def test_the_folder_runs_from_anywhere(self) -> None:
        with tempfile.TemporaryDirectory() as elsewhere:
            for flags in ([], ["-I", "-S"]):
                run = subprocess.run(
                    [sys.executable, "-B", *FLAGS, *flags, os.path.join(ROOT, "vqfref"), "--version"], cwd=elsewhere,
                    stdin=subprocess.DEVNULL, capture_output=True, timeout=120,
                )  # fmt: skip
                self.assertEqual((run.returncode, run.stderr), (0, b""))
                self.assertTrue(run.stdout.startswith(b"vqfref "), run.stdout)

    def test_an_older_python_is_told_which_one_is_needed(self) -> None:
        code = """
import sys
import tempfile
sys.path.insert(0, sys.argv[1])
sys.version_info = (3, 7, 16, "final", 0)
try:
    import vqfref
except ImportError as error:
    print(error)"""
        self.assertIn("needs Python 3.8 or newer", python(code))
        for name in ("__init__.py", "__main__.py"):  # what Python 3.6 can't compile would hide the message
            text = Path(ROOT, "vqfref", name).read_text(encoding="utf-8")
            self.assertNotRegex(text, r"from __future__|:=|\bf['\"]|@dataclass", name)

    def test_every_name_in_all_is_there(self) -> None:
        for name in vqfref.__all__:
            self.assertIsNotNone(getattr(vqfref, name), name)
        self.assertEqual(sorted(set(vqfref.__all__)), sorted(vqfref.__all__), "each once")
        self.assertLessEqual(set(vqfref.__all__), set(dir(vqfref)))

    def test_the_promised_names_are_in_all(self) -> None:
        for name in (
            "open", "check", "VqfrefError", "FormatError", "UnsupportedError", "LimitError", "IntegrityError",
            "SignatureError", "UsageError", "TensorNotFound",
        ):  # fmt: skip
            self.assertIn(name, vqfref.__all__)

    def test_an_unknown_name_is_an_attribute_error_that_says_it(self) -> None:
        with self.assertRaisesRegex(AttributeError, "no_such_name"):
            vqfref.no_such_name  # noqa: B018
        self.assertFalse(hasattr(vqfref, "_no_such_name"))
        with self.assertRaises(ImportError):
            exec("from vqfref import no_such_name")


if __name__ == "__main__":
    unittest.main()

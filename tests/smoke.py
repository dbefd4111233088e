"""What must work on the smallest Python there is: no unittest, json, mmap or ctypes, perhaps no hashlib.

A plain script, `python3 tests/smoke.py`: one line a check, `smoke: N ok` as the last; it ends at the first failure.
The facts about the files come from kat/files/sealed.json.
"""

import io
import os
import sys

try:
    import hashlib
except ImportError:  # Yocto's core image
    hashlib = None

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
FILES = os.path.join(ROOT, "kat", "files")
sys.path.insert(0, ROOT)

import vqfref
from vqfref import cli, strictjson

passed = 0


def expect(what, got, want):
    """One check: says so and goes on, or ends the script."""
    global passed
    if got != want:
        print("FAIL %s: %r, expected %r" % (what, got, want))
        sys.exit(1)
    print("ok   %s" % what)
    passed += 1


def read(path):
    with open(path, "rb") as file:
        return file.read()


def command(*argv):
    """The exit status and the output of one command line, run in this process."""
    real, sys.stdout = sys.stdout, io.StringIO()
    try:
        status = cli.main(list(argv))
        return status, sys.stdout.getvalue()
    finally:
        sys.stdout = real


facts = strictjson.loads(read(os.path.join(FILES, "sealed.json")))
names = sorted(name for name in os.listdir(FILES) if name.endswith(".vqf"))
expect("facts for every file", sorted(fact["file"] for fact in facts), names)

plain = None  # what every form of the one model must decode to
for fact in facts:
    name, path = fact["file"], os.path.join(FILES, fact["file"])
    data = read(path)
    expect(name + " size", len(data), fact["size"])
    if hashlib:
        expect(name + " sha256", hashlib.sha256(data).hexdigest(), fact["sha256"])
    with vqfref.open(path, passphrase=fact["passphrase"]) as file:
        expect(name + " format", file.format, "vqf")
        infos = [file.info(key) for key in file.keys()]  # noqa: SIM118
        expect(name + " raw sizes", [len(file.raw(t.name)) for t in infos], [t.nbytes for t in infos])
        values = [(t.name, file.get_tensor(t.name).tolist()) for t in infos]
    plain = plain or values
    expect(name + " values", values == plain and len(values) > 0, True)
    expect(name + " no errors", [str(f) for f in vqfref.check(path) if f.severity == "error"], [])

path = os.path.join(FILES, "mini-q4-h448-plain.vqf")
for argv, word in (
    (("--version",), vqfref.__version__),
    (("info", path), "vqf"),
    (("header", path), "data_offset"),
    (("ls", path), plain[0][0]),
    (("check", path), ""),
    (("hexdump", path), ""),
    (("env",), "mmap"),
):
    status, output = command(*argv)
    expect("vqfref " + argv[0], (status, len(output) > 0, word.lower() in output.lower()), (0, True, True))

print("smoke: %d ok" % passed)

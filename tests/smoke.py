"""What must work on the smallest Python there is: no unittest, json, mmap or ctypes, perhaps no hashlib.

A plain script, `python3 tests/smoke.py`: one line a check, `smoke: N ok` as the last; it ends at the first failure.
The facts about the files come from kat/files/sealed.json.
"""

import io
import os
import struct
import sys

try:
    import hashlib
except ImportError:  # Yocto's core image
    hashlib = None

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
FILES = os.path.join(ROOT, "kat", "files")
PLAIN = os.path.join(FILES, "mini-q4-h448-plain.vqf")
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

for argv, word in (
    (("--version",), vqfref.__version__),
    (("info", PLAIN), "vqf"),
    (("header", PLAIN), "data_offset"),
    (("ls", PLAIN), plain[0][0]),
    (("check", PLAIN), ""),
    (("hexdump", PLAIN), ""),
    (("env",), "mmap"),
):
    status, output = command(*argv)
    expect("vqfref " + argv[0], (status, len(output) > 0, word.lower() in output.lower()), (0, True, True))


def beyond_4_gib(path):
    """The sample with 2^26 more tokens, as a sparse file: (offsets by name, values of the last token)."""
    data = bytearray(read(PLAIN))
    n, (start,) = data[12], struct.unpack_from("<Q", data, 200)
    tokens = (1 << 26) + struct.unpack_from("<I", data, 40)[0]
    struct.pack_into("<I", data, 40, tokens)
    offset, offsets, pieces = start, {}, []
    for i in range(n):
        place = 448 + 64 * i
        name, qtype, rows, cols, old, size = struct.unpack_from("<32sIII4xQQ", data, place)
        pieces.append((offset, bytes(data[old : old + size])))
        offsets[name.rstrip(b"\0").decode()] = offset
        if name.startswith((b"token_embed", b"q4_lm")):
            size, rows = size // rows * tokens, tokens
        struct.pack_into("<32sIII4xQQ", data, place, name, qtype, rows, cols, offset, size)
        offset = (offset + size + 63) // 64 * 64
    struct.pack_into("<QQ", data, 200, start, offset)
    with open(path, "wb") as file:
        for at, piece in [(0, bytes(data[:start])), *pieces, (start + 64 * tokens - 64, bytes(range(64)))]:
            file.seek(at)
            file.write(piece)
        file.seek(offset)
        file.write(b"checksum")
    return offsets, list(struct.unpack("<32e", bytes(range(64))))


path = os.path.join(os.environ.get("TMPDIR", "/tmp"), "vqfref-smoke-%d.vqf" % os.getpid())
try:
    offsets, last = beyond_4_gib(path)
    size = os.stat(path).st_size
    expect("sparse file of %d bytes" % size, (size > 5 << 30, offsets["final_norm"] > 1 << 32), (True, True))
    with vqfref.open(path) as file:
        tokens = file.info("token_embed").shape[0]
        values = file.get_tensor("token_embed", rows=slice(tokens - 1, tokens)).tolist()
        expect("the row that ends beyond 4 GiB", values, last)
        for name, expected in plain:
            if name not in ("token_embed", "q4_lm"):
                expect("%s at %#x" % (name, offsets[name]), file.get_tensor(name).tolist(), expected)
        head = file.get_tensor("q4_lm", rows=slice(0, 1)).tolist()
        expect("q4_lm at %#x" % offsets["q4_lm"], head, dict(plain)["q4_lm"][: len(head)])
    expect("its structure is sound", [f.code for f in vqfref.check(path)], ["vqf.zeros.limit"])
finally:
    if os.path.exists(path):
        os.remove(path)

status, output = command("kat", "selftest")
print(output, end="")
expect("vqfref kat selftest", (status, " 0 failed, 0 skipped" in output), (0, True))

print("smoke: %d ok" % passed)

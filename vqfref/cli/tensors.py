"""Verbs that read tensors: cat, hash, diff."""

from __future__ import annotations

import sys

from vqfref.cli import secrets
from vqfref.cli.output import add_file, finish, table
from vqfref.errors import FormatError, UnsupportedError, UsageError, printable

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from array import array
    from typing import Any, Callable, Iterator

    from vqfref.weightfile import WeightFile


def add_verbs(add_verb: Callable[..., Any]) -> None:
    verb = add_verb("cat", run_cat, "a tensor's bytes or values", """\
Write a tensor to standard output or to OUT, always little-endian: the bytes as stored, the values as f32, as an .npy file,
or as text, a line a row. Binary never goes to a terminal. Of a tensor with layers or experts, all of them follow one
another unless --layer and --expert name one.

Example: vqfref cat model.vqf final_norm --as text
Example: vqfref cat model.vqf q4_gate --layer 3 --rows 0:8 --as npy -o rows.npy""")  # fmt: skip
    add_file(verb, json=False)
    verb.add_argument("tensor", metavar="TENSOR")
    verb.add_argument("--as", dest="form", choices=("stored", "f32", "npy", "text"), default="stored")
    verb.add_argument("--layer", type=int, metavar="N")
    verb.add_argument("--expert", type=int, metavar="E")
    verb.add_argument("--rows", type=row_slice, metavar="A:B", help="rows A to B-1 (not with stored bytes)")
    verb.add_argument("-o", "--out", metavar="OUT", help="the file to write, whole or not at all")
    secrets.add_passphrase(verb)

    verb = add_verb("hash", run_hash, "a hash for each tensor; --check compares a list", """\
Print a hash of every tensor's stored bytes (--as f32: of its values as little-endian f32), in the format of sha256sum, so
that two machines can compare. --check LIST reads such lines and says which tensors differ.

Example: vqfref hash model.vqf >list
Example: vqfref hash model.vqf --check list""")  # fmt: skip
    add_file(verb)
    verb.add_argument("--algo", choices=("sha256", "sm3"), default="sha256")
    verb.add_argument("--as", dest="form", choices=("stored", "f32"), default="stored")
    verb.add_argument("--check", metavar="LIST", help="compare with the lines of this file")
    secrets.add_passphrase(verb)

    verb = add_verb("diff", run_diff, "two files of any format, tensor by tensor", """\
Compare two files: tensors that one of them lacks, other shapes, and for other values the first difference, how many differ,
the largest error and the root mean square. Equal values in other encodings count as equal. Facts of header and metadata
that differ are listed too; the exit code goes by the tensors alone.

Example: vqfref diff old.vqf new.vqf""")  # fmt: skip
    add_file(verb)
    verb.add_argument("other", metavar="OTHER", help="the file to compare it with")
    secrets.add_passphrase(verb)


def row_slice(text: str) -> slice:
    """A:B as a slice; for argparse."""
    import argparse

    start, colon, stop = text.partition(":")
    if not colon:
        raise argparse.ArgumentTypeError("%r: expected A:B, rows A to B-1" % text)
    return slice(int(start) if start else None, int(stop) if stop else None)


# ---- cat


def run_cat(args: argparse.Namespace) -> int:
    from vqfref.sink import AtomicFile

    with secrets.open_file(args) as f:
        if args.form == "text":
            pieces: Iterator[bytes] = text_lines(f, args)
        elif args.out is None and sys.stdout.isatty():
            raise UsageError("usage.terminal.policy", "binary does not go to a terminal: use -o OUT, or --as text")
        else:
            pieces = stored_pieces(f, args) if args.form == "stored" else value_pieces(f, args)
        if args.out is not None:
            with AtomicFile(args.out) as file:
                for piece in pieces:
                    file.write(piece)
        elif args.form == "text":
            for piece in pieces:
                sys.stdout.write(piece.decode())
        else:
            sys.stdout.flush()
            for piece in pieces:
                sys.stdout.buffer.write(piece)
            sys.stdout.buffer.flush()
    return 0


def selection(f: WeightFile, args: argparse.Namespace) -> dict[str, Any]:
    """The arguments of get_tensor that were given; layers and experts exist in some formats only."""
    f.info(args.tensor)
    chosen = {name: getattr(args, name) for name in ("layer", "expert", "rows") if getattr(args, name) is not None}
    if f.format != "vqf" and "layer" in chosen:
        raise UsageError("usage.layer.range", "tensors of this format have no layers", field=args.tensor)
    if f.format == "safetensors" and "expert" in chosen:
        raise UsageError("usage.expert.range", "tensors of this format have no experts", field=args.tensor)
    return chosen


def stored_pieces(f: WeightFile, args: argparse.Namespace) -> Iterator[bytes]:
    """The bytes as stored: of the whole tensor, or of the blocks and tiles that hold a layer or expert."""
    if args.rows is not None:
        raise UsageError("usage.rows.policy", "--rows selects values: use --as f32, npy or text")
    if selection(f, args):
        from vqfref.vqf.reader import VqfFile

        if not isinstance(f, VqfFile):
            raise UsageError("usage.expert.policy", "--expert selects values: use --as f32, npy or text")
        for layer in range(f.geometry(args.tensor).layers) if args.layer is None else (args.layer,):
            for offset, length in f.ranges(args.tensor, layer, expert=args.expert):
                yield from f.source.pieces(offset, offset + length)
        return
    yield from f.chunks(args.tensor)


def value_pieces(f: WeightFile, args: argparse.Namespace) -> Iterator[bytes]:
    """The values as little-endian f32; for npy behind a header."""
    from vqfref.quant.floats import f32_encode

    chosen = selection(f, args)
    pieces = [f.get_tensor(args.tensor, **chosen)] if chosen else f.values(args.tensor)  # refuses what is not there
    if args.form == "npy":
        yield npy_header(selected_shape(f, args))
    for values in pieces:
        yield f32_encode(values)


def selected_shape(f: WeightFile, args: argparse.Namespace) -> tuple[int, ...]:
    """The shape of what the arguments select, layers and experts before the matrix."""
    t = f.info(args.tensor)
    shape = list(t.shape[1:] if len(t.shape) == 3 and args.expert is not None else t.shape)
    if args.rows is not None:
        height, width = (1, shape[0]) if f.format == "vqf" and len(shape) == 1 else (shape[0], 1)  # a vector is one row
        start, stop, _ = args.rows.indices(height)
        shape[0] = max(stop - start, 0) * width
    if t.experts and args.expert is None and len(shape) == 2:
        shape.insert(0, t.experts)
    if t.layers and args.layer is None:
        shape.insert(0, t.layers)
    return tuple(shape)


def npy_header(shape: tuple[int, ...]) -> bytes:
    """The header of an .npy file, version 1.0, of little-endian f32 in C order. As numpy writes it, with room for a
    first dimension of 21 digits."""
    text = "{'descr': '<f4', 'fortran_order': False, 'shape': %s, }" % (shape,)
    text += " " * (21 - len(str(shape[0])) if shape else 0)
    text += " " * (-(10 + len(text) + 1) % 64) + "\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text.encode()


def text_lines(f: WeightFile, args: argparse.Namespace) -> Iterator[bytes]:
    """The values as text, nine significant digits, a line a row."""
    chosen = selection(f, args)
    shape = f.info(args.tensor).shape
    width = shape[-1] if len(shape) > 1 else 1
    line: list[str] = []
    for values in [f.get_tensor(args.tensor, **chosen)] if chosen else f.values(args.tensor):
        for value in values:
            line.append("%.9g" % value)
            if len(line) >= width:
                yield (" ".join(line) + "\n").encode()
                line = []
    if line:
        yield (" ".join(line) + "\n").encode()


# ---- hash

MAX_LINE = 1 << 17  # characters in a line of a list of hashes


def hasher(algo: str) -> Any:
    """A new hash object. SHA-256 needs hashlib, which some images lack; SM3 is always there."""
    if algo == "sm3":
        from vqfref import kernels

        return kernels.sm3_new()
    try:
        import hashlib
    except ImportError:
        raise UsageError("usage.sha256.unsupported", "this Python has no hashlib: use --algo sm3") from None
    return hashlib.sha256()


def tensor_hash(f: WeightFile, name: str, algo: str, form: str) -> str:
    """The hash of one tensor, hex."""
    from vqfref.quant.floats import f32_encode

    h = hasher(algo)
    for piece in f.stored(name) if form == "stored" else map(f32_encode, f.values(name)):
        h.update(piece)
    digest: str = h.hexdigest()
    return digest


def hashed(f: WeightFile, form: str) -> list[str]:
    """The names that are hashed: of a UQFF folder, stored, every entry of its shards, so that no scale is left out."""
    return f.stored_names() if form == "stored" else f.keys()


def run_hash(args: argparse.Namespace) -> int:
    with secrets.open_file(args) as f:
        if args.check is not None:
            return check_hashes(f, args)
        hashes = {}
        for name in hashed(f, args.form):
            hashes[name] = tensor_hash(f, name, args.algo, args.form)
            if not args.json:
                print("%s  %s" % (hashes[name], printable(name)))
        return finish(args, f.format, True, [], {"algo": args.algo, "as": args.form, "hashes": hashes})


def check_hashes(f: WeightFile, args: argparse.Namespace) -> int:
    """Compare with the lines of a list, as sha256sum -c does; a tensor of the file that no line names is named too."""
    wanted = []
    with open(args.check, encoding="utf-8", errors="surrogateescape") as file:
        for line in iter(lambda: file.readline(MAX_LINE), ""):
            if line.strip():
                wanted.append(line.rstrip("\r\n").split("  ", 1))
            if len(line) == MAX_LINE:
                raise UsageError("usage.list.name", "%s: a line of more than %d characters" % (args.check, MAX_LINE))
    names: dict[str, list[str]] = {}  # several names may print alike: then their lines stand in the file's order
    for name in hashed(f, args.form):
        names.setdefault(printable(name), []).append(name)
    listed = dict.fromkeys(names, 0)
    results: dict[str, str] = {}
    for words in wanted:
        if len(words) != 2:
            raise UsageError("usage.list.name", "%s: expected lines of a hash, two spaces and a name" % args.check)
        digest, label = words
        if label not in names:
            results[label] = "missing"
            continue
        name = names[label][min(listed[label], len(names[label]) - 1)]
        listed[label] += 1
        same = tensor_hash(f, name, args.algo, args.form) == digest.lower()
        results[label] = "ok" if same and results.get(label, "ok") == "ok" else "FAILED"
    for label, alike in names.items():
        if listed[label] < len(alike) and results.get(label, "ok") == "ok":
            results[label] = "not listed"
    ok = all(r == "ok" for r in results.values())
    lines = ["%s: %s" % (label, result) for label, result in results.items()]
    return finish(args, f.format, ok, [], {"algo": args.algo, "results": results}, lines)


# ---- diff

WIDE = ("I32", "U32", "F64", "I64", "U64")  # safetensors dtypes that f32 can't hold without loss


def run_diff(args: argparse.Namespace) -> int:
    with secrets.open_file(args) as a, secrets.open_file(args, args.other) as b:
        names = list(dict.fromkeys([*a.keys(), *b.keys()]))
        rows = [compare_tensor(a, b, name) for name in names]
        differing = [r for r in rows if r["result"] != "same"]
        lines = table([("TENSOR", "RESULT")] + [(r["name"], r["text"]) for r in differing]) if differing else []
        facts = differing_facts(a.metadata(), b.metadata()) if a.format == b.format else []
        lines += table([("FACT", "A", "B"), *((f["name"], f["a"], f["b"]) for f in facts)]) if facts else []
        lines.append("%d of %d tensors differ" % (len(differing), len(rows)))
        return finish(args, a.format, not differing, [], {"other": args.other, "tensors": rows, "facts": facts}, lines)


def differing_facts(a: Any, b: Any, name: str = "") -> list[dict[str, Any]]:
    """What header or metadata say otherwise, but for sizes and offsets: by dotted name, with both values; None where one
    file has no such fact."""
    if name in ("size", "file_len", "data_offset", "data_start"):
        return []
    if isinstance(a, dict) and isinstance(b, dict):
        prefix = name + "." if name else ""
        return [f for key in dict.fromkeys([*a, *b]) for f in differing_facts(a.get(key), b.get(key), prefix + key)]
    return [] if a == b else [{"name": name, "a": a, "b": b}]


def compare_tensor(a: WeightFile, b: WeightFile, name: str) -> dict[str, Any]:
    """What is different about one tensor: a dict with name, result, text, and the figures where values differ."""
    for f, other in ((a, b), (b, a)):
        if name not in f:
            return {"name": name, "result": "missing", "text": "only in %s" % other.path}
    ta, tb = a.info(name), b.info(name)
    if (ta.shape, ta.layers, ta.experts) != (tb.shape, tb.layers, tb.experts):
        text = "shape %s against %s" % tuple("%s x %s x %s" % (t.layers, t.experts, list(t.shape)) for t in (ta, tb))
        return {"name": name, "result": "shape", "text": text}
    plain = not (a.metadata().get("encrypted") or b.metadata().get("encrypted"))
    # a layer of UQFF may have scales beside its payload
    plain = plain and ("uqff" not in (a.format, b.format) or ta.encoding in ("plain", "gguf", "unquant"))
    if plain and (ta.encoding, ta.dtype, ta.nbytes) == (tb.encoding, tb.dtype, tb.nbytes):
        if all(x == y for x, y in zip(a.chunks(name), b.chunks(name))):
            return {"name": name, "result": "same", "text": ""}
    try:
        figures = value_figures(a.values(name), b.values(name))
    except (FormatError, UnsupportedError) as error:
        return {"name": name, "result": "bytes", "text": "other bytes, which can't be decoded: %s" % error.message}
    if figures["differing"] == 0 and ta.dtype == tb.dtype and ta.dtype in WIDE:
        return {"name": name, "result": "bytes", "text": "other bytes, though the values rounded to f32 are the same"}
    if figures["differing"] == 0:
        return {"name": name, "result": "same", "text": "", "encodings": [ta.encoding, tb.encoding]}
    figures["offsets"] = offsets = [value_offset(f, name, figures["first"], figures["count"]) for f in (a, b)]
    place = " at %s" % " and ".join("?" if at is None else "0x%x" % at for at in offsets) if any(offsets) else ""
    text = (
        "%%(differing)d of %%(count)d values, first [%%(first)d]%s: %%(a).9g against %%(b).9g; max |d| %%(max).6g, "
        "rms %%(rms).6g" % place
    )
    text += "; %(nan)d NaN" if figures["nan"] else ""
    return {"name": name, "result": "values", "text": text % figures, **figures}


def value_offset(f: WeightFile, name: str, index: int, count: int) -> int | None:
    """Where in its file the value `index` of a tensor's `count` lies, or the block or tile that holds it; None for what
    is spread over several places."""
    from vqfref.vqf.reader import VqfFile

    t = f.info(name)
    if not isinstance(f, VqfFile):
        return int(t.offset + index * t.nbytes // count) if t.encoding == "plain" else None
    height, width = t.shape if len(t.shape) == 2 else (1, t.shape[0])
    matrix, at = divmod(index, height * width)
    layer, expert = divmod(matrix, t.experts or 1)
    row, col = divmod(at, width)
    ranges = f.ranges(name, layer, expert=expert if t.experts else None, rows=(row, row + 1), cols=(col, col + 1))
    return ranges[0][0]


def value_figures(a: Iterator[array[float]], b: Iterator[array[float]]) -> dict[str, Any]:
    """Compare two streams of values: count, how many differ, the first of them, how many are NaN in one alone, largest
    and RMS difference; both are NaN where one of those is."""
    import math

    figures: dict[str, Any] = {"count": 0, "differing": 0, "first": 0, "a": 0.0, "b": 0.0, "nan": 0, "max": 0.0,
                               "rms": 0.0}  # fmt: skip
    total = 0.0
    for x, y in same_pieces(a, b):
        if x != y:
            for i, (u, v) in enumerate(zip(x, y)):
                if u == v or (u != u and v != v):
                    continue
                if not figures["differing"]:
                    figures.update(first=figures["count"] + i, a=u, b=v)
                figures["differing"] += 1
                d = abs(u - v)
                figures["nan"] += d != d
                if d > figures["max"] or d != d:  # NaN stays
                    figures["max"] = d
                total += d * d
        figures["count"] += len(x)
    figures["rms"] = math.sqrt(total / figures["count"]) if figures["count"] else 0.0
    return figures


def same_pieces(a: Iterator[array[float]], b: Iterator[array[float]]) -> Iterator[tuple[array[float], array[float]]]:
    """Two streams of the same values in other pieces, cut alike."""
    x, y = next(a, None), next(b, None)
    while x and y:
        n = min(len(x), len(y))
        yield x[:n], y[:n]
        x = x[n:] or next(a, None)
        y = y[n:] or next(b, None)

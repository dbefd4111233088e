"""What `vqfref bench` measures: operations in their variants, with their goals.

Where the plain version would take seconds, it gets a smaller input, since rates are compared; `note` says so. All inputs
are the same in every run. `size` makes a number smaller than it stands here, for tests.
"""

from __future__ import annotations

import contextlib
import functools
import os
import struct
import sys
from array import array

from vqfref import kernels
from vqfref.bench import peers
from vqfref.bench.measure import Goal, Row, Way
from vqfref.crypto.hmac_sm3 import HMAC
from vqfref.safetensors import reader, writer
from vqfref.source import Source
from vqfref.vqf import geometry, structs
from vqfref.weights import open as open_weights

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Iterator

    Size = Callable[[int], int]

KEY, IV = bytes(range(16)), bytes(range(240, 256))


# ---- inputs


def noise(n: int) -> bytes:
    """n bytes without a pattern."""
    return kernels.sm4_ctr(KEY, IV, bytes(n))


def weights(n: int) -> array[float]:
    """n values that lie as weights do, about normal; the same again after 65536."""
    once = min(n, 1 << 16)
    four = struct.iter_unpack("<4H", noise(8 * once))
    values = array("f", [(sum(numbers) - 2 * 65535) / 1e6 for numbers in four])
    return (values * -(-n // once))[:n]


def human(n: int, unit: str) -> str:
    """A number with its unit, in binary steps: 2097152 B as 2 MB."""
    for shift, prefix in ((20, "M"), (10, "K")):
        if n >= 1 << shift:
            return "%g %s%s" % (n / (1 << shift), prefix, unit)
    return "%d %s" % (n, unit)


@contextlib.contextmanager
def folder() -> Iterator[str]:
    """A temporary folder; tempfile is not on every image."""
    path = os.path.join(os.environ.get("TMPDIR") or "/tmp", "vqfref-bench-%s" % os.urandom(8).hex())
    os.mkdir(path, 0o700)
    try:
        yield path
    finally:
        for name in os.listdir(path):
            os.remove(os.path.join(path, name))
        os.rmdir(path)


def compared(
    title: tuple[str, str], unit: str, versions: tuple[Any, Any], run: Callable[[Any, Any], Any],
    work: Callable[[Any], float], full: Any, small: Any, others: list[Way], *goals: Goal, note: str = "",
) -> Row:  # fmt: skip
    """A row of a plain version and a quick one, or None. run(version, input) does what is measured, work(input) is how
    much that is; the quick version gets the full input, the plain one the small one, on which both are compared."""
    plain, fast = versions
    ways = [Way("plain", lambda: run(plain, small), work(small))]
    if fast:
        ways.append(Way("fast", lambda: run(fast, full), work(full)))
    return Row(*title, unit, ways + others, goals, lambda: run(plain, small) == run(fast, small), note=note)


def megabytes(data: bytes) -> float:
    return len(data) / 1e6


def millions(values: array[float]) -> float:
    return len(values) / 1e6


def one(_: object) -> float:
    return 1


# ---- crypto


def sm4_ctr(size: Size) -> Iterator[Row]:
    for n, *goals in (2 << 20, Goal("plain", 170), Goal("OpenSSL", 0.4)), (4 << 10, Goal("plain", 20)):
        data, few = noise(size(n)), noise(size(4 << 10))
        yield compared(("sm4_ctr", human(len(data), "B")), "MB/s", kernels.versions("sm4_ctr"),
                       lambda f, data: f(KEY, IV, data), megabytes, data, few, peers.sm4_ctr(KEY, IV, data, few),
                       *goals, note="plain over " + human(len(few), "B"))  # fmt: skip


def fnv1a64(size: Size) -> Iterator[Row]:
    data = noise(size(8 << 20))
    few = data[: size(256 << 10)]
    yield compared(("fnv1a64", human(len(data), "B")), "MB/s", kernels.versions("fnv1a64"), lambda f, data: f(data),
                   megabytes, data, few, [], Goal("plain", 6), note="plain over " + human(len(few), "B"))  # fmt: skip


def sm3(size: Size) -> Iterator[Row]:
    data = noise(size(16 << 10))
    few = data[: size(4 << 10)]
    yield compared(("sm3", "one stream, no hashlib"), "MB/s", kernels.versions("sm3"),
                   lambda SM3, data: SM3(data).digest(), megabytes, data, data, peers.sm3([data], [few]),
                   Goal("plain", 2.4), Goal("gmssl", 3))  # fmt: skip
    data = noise(256 * size(1024))
    messages = [data[at : at + 256] for at in range(0, len(data), 256)]
    few_ = messages[:32]
    yield compared(("sm3", "%d messages of %d B" % (len(messages), len(messages[0]))), "MB/s",
                   kernels.versions("sm3_many"), lambda f, messages: f(messages), lambda m: sum(map(len, m)) / 1e6,
                   messages, few_, peers.sm3(messages, few_[:8]), Goal("plain", 40), Goal("gmssl", 3),
                   note="plain over %d" % len(few_))  # fmt: skip


def hmac_sm3(size: Size) -> Iterator[Row]:
    data = noise(size(16 << 10))
    yield compared(("hmac_sm3", "one stream, no hashlib"), "MB/s", kernels.versions("sm3"),
                   lambda SM3, data: HMAC(KEY, data, SM3).digest(), megabytes, data, data, peers.hmac_sm3(KEY, data),
                   Goal("plain", 2.4))  # fmt: skip


def sm2(size: Size) -> Iterator[Row]:
    d, e, k = (int.from_bytes(noise(96)[i : i + 32], "big") >> 1 for i in (0, 32, 64))
    P = kernels.sm2_public_key(d)
    r, s = kernels.sm2_sign_with_nonce(d, e, k)
    yield compared(("sm2_sign", "a digest"), "/s", kernels.versions("sm2_sign_with_nonce"), lambda f, _: f(d, e, k), one,
                   None, None, peers.sm2_sign(d, P, e, k), Goal("plain", 26), Goal("gmssl", 1), Goal("gmalg", 1))  # fmt: skip
    others = peers.sm2_verify(d, P, e, r, s)
    yield compared(("sm2_verify", "any key"), "/s", kernels.versions("sm2_check_digest"), lambda f, _: f(P, e, r, s), one,
                   None, None, others, Goal("plain", 11), Goal("gmssl", 1), Goal("gmalg", 1))  # fmt: skip
    plain, fast = (make and make(P) for make in kernels.versions("sm2_known_key"))
    yield compared(("sm2_verify", "known key"), "/s", (plain, fast), lambda f, _: f(e, r, s), one,
                   None, None, others, Goal("plain", 33))  # fmt: skip


# ---- numbers


def matvec(size: Size) -> Iterator[Row]:
    cols = 2048
    x = weights(cols)
    activation = kernels.quantize_activation(x)
    for encoding, encode, straight, packed, gguf in (
        ("q8_0", kernels.q8_0_encode, 8, 30, 1), ("q4_0", kernels.q4_0_encode, 6, 20, 1.4),
    ):  # fmt: skip
        yield from _matvec(encoding, encode(weights(cols * size(1024))), x, activation, straight, packed, gguf)


def _matvec(
    encoding: str, data: bytes, x: array[float], activation: Any, straight: float, packed: float, gguf: float
) -> Iterator[Row]:
    row = len(x) // 32 * {"q8_0": 34, "q4_0": 18}[encoding]
    few, rows = data[: 32 * row], len(data) // row
    others = peers.matvec(data, x, encoding, rows)
    name, note = encoding + "_matvec", "plain over %d rows" % (len(few) // row)

    def work(data: bytes) -> float:
        return len(data) // row * len(x) / 1e6

    yield compared((name, "straight, %d x %d" % (rows, len(x))), "MMAC/s", kernels.versions("matvec_quantized"),
                   lambda f, data: f(data, activation, encoding), work, data, few, others, Goal("plain", straight),
                   note=note)  # fmt: skip
    makers = kernels.versions("packed_matrix")
    plain, again = (make and make(few, encoding, "linear", len(x)) for make in makers)
    ways = [Way("plain", lambda: plain(activation), work(few))]
    if again:
        fast = makers[1](data, encoding, "linear", len(x))
        ways.append(Way("fast", lambda: fast(activation), work(data)))
    yield Row(name, "packed, %d x %d" % (rows, len(x)), "MMAC/s", ways + others,
              (Goal("plain", packed), Goal("gguf", gguf)), lambda: plain(activation) == again(activation),
              note=note)  # fmt: skip


def floats(size: Size) -> Iterator[Row]:
    values = weights(size(1 << 20))
    bf16, f16 = kernels.bf16_encode(values), kernels.f16_encode(values)
    for operation, name, halves, wanted in (
        ("bf16_to_f32", "bf16_decode", bf16, 80),
        ("f16_to_f32", "f16_decode", f16, 7),
    ):
        yield compared((operation, human(len(values), "values")), "M/s", kernels.versions(name), lambda f, data: f(data),
                       lambda data: len(data) / 2e6, halves, halves, peers.floats(operation, values, halves),
                       Goal("plain", wanted))  # fmt: skip
    yield compared(("f32_to_bf16", human(len(values), "values")), "M/s", kernels.versions("bf16_encode"),
                   lambda f, values: f(values), millions, values, values, peers.floats("f32_to_bf16", values, bf16),
                   Goal("plain", 20))  # fmt: skip


def blocks(size: Size) -> Iterator[Row]:
    values = weights(size(1 << 18))
    stored = {"q8_0": kernels.q8_0_encode(values), "q4_0": kernels.q4_0_encode(values)}
    for way, suffix, goals in (("dequantize", "decode", (3.5, 2.5)), ("quantize", "encode", (3.5, 2.6))):
        for (encoding, data), wanted in zip(stored.items(), goals):
            full = data if way == "dequantize" else values
            per = len(values) / len(full) / 1e6
            yield compared(("%s_%s" % (encoding, way), human(len(values), "values")), "M/s",
                           kernels.versions("%s_%s" % (encoding, suffix)), lambda f, x: f(x),
                           functools.partial(_share, per), full, full[: len(full) // 8],
                           peers.blocks(values, data, encoding, way), Goal("plain", wanted),
                           note="plain over an eighth")  # fmt: skip


def _share(per: float, full: Any) -> float:
    return len(full) * per


# ---- files


def _vqf(path: str, wmode: str, **words: int) -> int:
    """A sparse VQF file whose tensors are holes, of the model with these arch words; its size."""
    nothing: dict[str, Any] = dict.fromkeys(structs.Arch._fields, 0)
    nothing.update(dict.fromkeys(("vis_ds_idx", "mrope_sections"), (0, 0, 0, 0)))
    always = {"has_q_norm": 1, "rope_theta": 5e6, "norm_eps": 1e-6, "max_seq_len": 8192}
    arch = structs.Arch(**{**nothing, **always, **words})
    p = geometry.plan(arch, wmode)
    head = structs.Header(
        structs.MAGIC, p.version, p.flags, len(p.tensors), p.arch, bytes(4), p.data_offset, p.file_len, bytes(16),
        bytes(16), structs.SIG.unpack(bytes(structs.SIG.size)),
    )  # fmt: skip
    directory = b"".join([
        structs.TENSOR.pack(structs.Tensor(t.name.encode(), t.qtype, t.rows, t.cols, bytes(4), offset, t.nbytes))
        for t, offset in zip(p.tensors, p.offsets)
    ])  # fmt: skip
    with open(path, "wb") as file:
        file.write(structs.HEADER_448.pack(head).ljust(structs.DIR_OFFSET, b"\0") + directory)
        file.seek(p.file_len)
        file.write(b"checksum")  # which nothing here reads; zeros would look like a broken download
    return int(p.size)


def opening(size: Size) -> Iterator[Row]:
    with folder() as temporary:
        path = os.path.join(temporary, "model.vqf")
        n = _vqf(path, "q4", dim=2048, n_layers=28, n_heads=16, n_kv_heads=8, head_dim=128, head_dim_full=128,
                 ffn_dim=6144, vocab_size=151936, has_vision=1, vis_depth=24, vis_hidden=1024, vis_heads=16, vis_ffn=4096,
                 vis_patch=16, vis_temporal=2, vis_merge=2, vis_out_dim=2048, vis_in_chan=3, vis_max_pos=2304,
                 vis_ds_count=3)  # fmt: skip
        yield Row("open", "VQF of %.2f GB" % (n / 1e9), "ms", [Way("plain", lambda: open_weights(path).close(), 1)],
                  [Goal("limit", 1)], note="a sparse file")  # fmt: skip


def safetensors_header(size: Size) -> Iterator[Row]:
    count = size(20000)
    header = writer.header_bytes(
        ("model.layers.%d.mlp.experts.%d.down_proj.weight" % divmod(i, 128), "BF16", (8, 4)) for i in range(count)
    )
    with folder() as temporary:
        path = os.path.join(temporary, "model.safetensors")
        with open(path, "wb") as file:
            file.write(header)
            file.truncate(len(header) + 64 * count)

        def load() -> None:
            with Source(path) as source:
                reader.load_header(source)

        yield Row("safetensors_header", "%d tensors" % count, "ms",
                  [Way("plain", load, 1), *peers.safetensors_header(path)], [Goal("safe_open", 2)])  # fmt: skip


def starting(size: Size) -> Iterator[Row]:
    """What child processes take beyond an interpreter that does nothing."""
    try:
        import subprocess
    except ImportError:
        return
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

    def child(code: str) -> Callable[[], object]:
        argv = [sys.executable, "-c", "import sys; sys.path.insert(0, %r); %s" % (root, code)]
        return lambda: subprocess.run(argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, check=True)

    note = "beyond the interpreter's own start"
    yield Row("import", "vqfref and its open", "ms", [Way("plain", child("import vqfref; vqfref.open"), 1)],
              [Goal("limit", 10)], base=child("pass"), note=note)  # fmt: skip
    with folder() as temporary:
        path = os.path.join(temporary, "small.vqf")
        _vqf(
            path,
            "q4",
            dim=32,
            n_layers=1,
            n_heads=1,
            n_kv_heads=1,
            head_dim=32,
            head_dim_full=32,
            ffn_dim=32,
            vocab_size=32,
        )
        code = "from vqfref.cli import main; sys.exit(main(['info', %r]))" % path
        yield Row("info", "a small file", "ms", [Way("plain", child(code), 1)], [Goal("limit", 80)], base=child("pass"),
                  note=note)  # fmt: skip


# The names in `operation` of the rows that each gives, so that only what is wanted is made ready.
OPERATIONS: dict[tuple[str, ...], Callable[[Size], Iterator[Row]]] = {
    ("sm4_ctr",): sm4_ctr,
    ("fnv1a64",): fnv1a64,
    ("sm3",): sm3,
    ("hmac_sm3",): hmac_sm3,
    ("q8_0_matvec", "q4_0_matvec"): matvec,
    ("bf16_to_f32", "f16_to_f32", "f32_to_bf16"): floats,
    ("q8_0_dequantize", "q4_0_dequantize", "q8_0_quantize", "q4_0_quantize"): blocks,
    ("sm2_sign", "sm2_verify"): sm2,
    ("open",): opening,
    ("safetensors_header",): safetensors_header,
    ("import", "info"): starting,
}
NAMES = [name for names in OPERATIONS for name in names]

"""What each operation of the suite does in this library: texts in, texts out, a refusal as a VqfrefError.

`run` serves the self-test and `vqfref kat serve`, this library's own adapter. Bytes are hex, floats their IEEE bits in hex
as a file has them (little-endian), integers decimal.
"""

from __future__ import annotations

import os
import struct
from array import array

from vqfref import kernels
from vqfref.crypto import hmac_sm3, sm2, sm3, sm4
from vqfref.errors import FormatError, IntegrityError, LimitError, SignatureError, UsageError, VqfrefError
from vqfref.kat.cases import OPERATIONS
from vqfref.quant import afq, blocks, floats, ggml, matmul, minifloat
from vqfref.source import Source
from vqfref.vqf import geometry, structs
from vqfref.vqf.head import check_bounds, read_directory, read_head

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Mapping, TypeVar

    from vqfref.vqf.head import Head

    Choice = TypeVar("Choice")
    Fields = Mapping[str, str]

MAX_KLEN = 1 << 20  # bytes
MAX_DIGITS = 640  # of an integer; Python refuses to read very long ones

VQF_ENCODERS: dict[str, Callable[[Any], bytes]] = {
    "vqf_q8_0": blocks.q8_0_encode,
    "vqf_q4_0": blocks.q4_0_encode,
    "vqf_q4i": blocks.q4i_encode,
    "vqf_g256": blocks.g256_encode,
    "vqf_q2_1": blocks.q2_1_encode,
}
VQF_DECODERS = {
    "vqf_q8_0": blocks.q8_0_decode,
    "vqf_q4_0": blocks.q4_0_decode,
    "vqf_q4i": blocks.q8_0_decode,
    "vqf_g256": blocks.q8_0_decode,
    "vqf_q2_1": blocks.q2_1_decode,
}
K_QUANTS = {t.name for t in ggml.TYPES.values() if t.block_elements == 256}
AFQ_BITS = {"afq%d" % bits: bits for bits in afq.BITS}


def run(op: str, fields: Fields) -> dict[str, str]:
    """The outputs of one operation by field. Raises VqfrefError for what it refuses, KeyError for an unknown one."""
    for name in OPERATIONS[op][0]:
        if name not in fields:
            raise UsageError("kat.field.missing", "%s takes %s" % (op, " ".join(OPERATIONS[op][0])), field=name)
    return OPS[op](fields)


def _bytes(fields: Fields, name: str) -> bytes:
    try:
        return bytes.fromhex(fields[name])
    except ValueError:
        raise UsageError("kat.field.json", "%s is not hex" % name, field=name) from None


def _floats(fields: Fields, name: str) -> array[float]:
    return floats.f32_decode(_bytes(fields, name))


def _int(fields: Fields, name: str) -> int:
    text = fields[name]
    digits = text[1:] if text.startswith("-") else text
    if not (digits.isascii() and digits.isdigit() and len(digits) <= MAX_DIGITS):
        raise UsageError("kat.field.json", "%s is no integer" % name, field=name)
    return int(text)


def _one_of(fields: Fields, name: str, choices: Mapping[str, Choice]) -> Choice:
    if fields[name] not in choices:
        found = name, fields[name], " ".join(choices)
        raise UsageError("kat.choice.unsupported", "no %s %r; there are %s" % found, field=name)
    return choices[fields[name]]


def _hex(values: Any) -> str:
    return floats.f32_encode(values).hex()


# ---- ciphers


def op_sm3(f: Fields) -> dict[str, str]:
    return {"digest": kernels.sm3(_bytes(f, "msg")).hex()}


def op_hmac_sm3(f: Fields) -> dict[str, str]:
    return {"tag": hmac_sm3.HMAC(_bytes(f, "key"), _bytes(f, "msg"), kernels.sm3_new).digest().hex()}


def op_sm3_kdf(f: Fields) -> dict[str, str]:
    klen = _int(f, "klen")
    if not 0 <= klen <= MAX_KLEN:
        raise LimitError("kat.field.limit", "klen %d, at most %d here" % (klen, MAX_KLEN), field="klen")
    return {"key": sm3.kdf(_bytes(f, "z"), klen, kernels.sm3_new).hex()}


def op_sm4_block(f: Fields) -> dict[str, str]:
    rk = sm4.expand_key(_bytes(f, "key"))
    work = _one_of(f, "mode", {"encrypt": sm4.encrypt_block, "decrypt": sm4.decrypt_block})
    return {"block": work(rk, _bytes(f, "block")).hex()}


def op_sm4_ctr(f: Fields) -> dict[str, str]:
    return {"data": kernels.sm4_ctr(_bytes(f, "key"), _bytes(f, "iv"), _bytes(f, "data"), _int(f, "offset")).hex()}


def op_fnv1a64(f: Fields) -> dict[str, str]:
    return {"hash": "%016x" % kernels.fnv1a64(_bytes(f, "msg"))}


def op_sm2_za(f: Fields) -> dict[str, str]:
    P = sm2.public_key_from_bytes_checked(_bytes(f, "pub"))
    return {"za": sm2.za(P, _bytes(f, "id"), kernels.sm3).hex()}


def op_sm2_pubkey(f: Fields) -> dict[str, str]:
    return {"pub": sm2.public_key_to_bytes(sm2.public_key_from_bytes_checked(_bytes(f, "pub"))).hex()}


def op_sm2_verify(f: Fields) -> dict[str, str]:
    P = sm2.public_key_from_bytes_checked(_bytes(f, "pub"))
    kernels.sm2_check(P, _bytes(f, "msg"), _bytes(f, "sig"), _bytes(f, "id"))
    return {}


def op_sm2_verify_digest(f: Fields) -> dict[str, str]:
    P, sig = sm2.public_key_from_bytes_checked(_bytes(f, "pub")), _bytes(f, "sig")
    if len(sig) != 64:
        raise SignatureError("sm2.length.signature", "signature of %d bytes, expected 64" % len(sig))
    r, s = int.from_bytes(sig[:32], "big"), int.from_bytes(sig[32:], "big")
    kernels.sm2_check_digest(P, int.from_bytes(_bytes(f, "e"), "big"), r, s)
    return {}


def op_sm2_sign_digest(f: Fields) -> dict[str, str]:
    d = sm2.private_key_from_bytes_checked(_bytes(f, "d"))
    k = int.from_bytes(_bytes(f, "k"), "big")
    r, s = kernels.sm2_sign_with_nonce(d, int.from_bytes(_bytes(f, "e"), "big"), k)
    return {"sig": (r.to_bytes(32, "big") + s.to_bytes(32, "big")).hex()}


# ---- numbers


def op_f16_decode(f: Fields) -> dict[str, str]:
    return {"f32": _hex(kernels.f16_decode(_bytes(f, "data")))}


def op_f16_encode(f: Fields) -> dict[str, str]:
    encode = _one_of(f, "mode", {"nearest": kernels.f16_encode, "truncate": kernels.f16_encode_truncated})
    return {"data": encode(_floats(f, "f32")).hex()}


def op_bf16_decode(f: Fields) -> dict[str, str]:
    return {"f32": _hex(kernels.bf16_decode(_bytes(f, "data")))}


def op_bf16_encode(f: Fields) -> dict[str, str]:
    return {"data": kernels.bf16_encode(_floats(f, "f32")).hex()}


def op_e4m3_decode(f: Fields) -> dict[str, str]:
    return {"f32": _hex(minifloat.e4m3_decode(_bytes(f, "data")))}


def op_e4m3_encode(f: Fields) -> dict[str, str]:
    return {"data": minifloat.e4m3_encode(_floats(f, "f32")).hex()}


def op_e8m0_decode(f: Fields) -> dict[str, str]:
    return {"f32": _hex(minifloat.e8m0_decode(_bytes(f, "data")))}


def op_quantize(f: Fields) -> dict[str, str]:
    values, name = _floats(f, "f32"), f["type"]
    if name in K_QUANTS and not kernels.all_finite(values):  # as the writer does
        raise FormatError("uqff.w4.range", "NaN or infinite values, which K-quants don't take", field="f32")
    if name in VQF_ENCODERS:
        return {"data": VQF_ENCODERS[name](values).hex()}
    if name == "f8q8":
        return {"data": minifloat.f8q8_encode(values).hex()}
    if name == "mxfp4":
        packed, scales = minifloat.mxfp4_encode(values)
        return {"data": (packed + scales).hex()}
    if name in AFQ_BITS:
        packed, s, b = afq.afq_encode(values, AFQ_BITS[name])
        return {"data": (packed + floats.f32_encode(s) + floats.f32_encode(b)).hex()}
    return {"data": ggml.encode(name, values).hex()}


def op_dequantize(f: Fields) -> dict[str, str]:
    data, name = _bytes(f, "data"), f["type"]
    if name in VQF_DECODERS:
        return {"f32": _hex(VQF_DECODERS[name](data))}
    if name == "f8q8":
        return {"f32": _hex(minifloat.f8q8_decode(data, len(data) // 33 * 32))}
    if name == "mxfp4":
        floats.check_whole(len(data), 17)
        packed = len(data) // 17 * 16
        return {"f32": _hex(minifloat.mxfp4_decode(data[:packed], data[packed:]))}
    if name in AFQ_BITS:
        bits = AFQ_BITS[name]
        floats.check_whole(len(data), 8 * bits + 8)
        groups = len(data) // (8 * bits + 8)
        packed = groups * 8 * bits
        scales, biases = (floats.f32_decode(data[packed + 4 * groups * i :][: 4 * groups]) for i in (0, 1))
        return {"f32": _hex(afq.afq_decode(data[:packed], scales, biases, bits, 64))}
    return {"f32": _hex(ggml.decode(name, data))}


def op_tile(f: Fields) -> dict[str, str]:
    return {"data": kernels.tile(_bytes(f, "data"), _int(f, "cols"), f["layout"]).hex()}


def op_untile(f: Fields) -> dict[str, str]:
    return {"data": kernels.untile(_bytes(f, "data"), _int(f, "cols"), f["layout"]).hex()}


def op_block_sums(f: Fields) -> dict[str, str]:
    x, row = _bytes(f, "x"), _bytes(f, "row")
    floats.check_whole(len(row), matmul.block_bytes(f["type"]))
    if len(x) % 32:
        raise UsageError("usage.vector.shape", "a vector of %d codes, expected whole blocks of 32" % len(x), field="x")
    codes = [list(block) for block in struct.iter_unpack("<32b", x)]
    return {"sums": ",".join(map(str, matmul.block_sums(row, codes, f["type"])))}


def op_matvec(f: Fields) -> dict[str, str]:
    x, cols = _floats(f, "x"), _int(f, "cols")
    if len(x) != cols:
        raise UsageError("usage.vector.shape", "a vector of %d values for %d columns" % (len(x), cols), field="x")
    return {"y": _hex(kernels.matvec(_bytes(f, "data"), x, f["type"], f["layout"]))}


# ---- files


def _head(f: Fields) -> Head:
    """The header of a request; as many bytes as a file of that size has, up to the longest header's 448."""
    data, size = _bytes(f, "head"), _int(f, "size")
    if len(data) < min(size, structs.DIR_OFFSET):
        raise UsageError("kat.field.truncated", "%d bytes of head for a file of %d" % (len(data), size), field="head")
    return read_head(data, size)


def op_vqf_header(f: Fields) -> dict[str, str]:
    head = _head(f)
    h = head.header
    return {
        "form": str(head.layout.size), "n_tensors": str(h.n_tensors), "data_offset": str(h.data_offset),
        "file_len": str(h.file_len),
    }  # fmt: skip


def op_vqf_directory(f: Fields) -> dict[str, str]:
    head, data = _head(f), _bytes(f, "directory")
    if len(data) != structs.TENSOR.size * head.header.n_tensors:
        raise UsageError("kat.field.truncated", "%d bytes of directory for %d tensors" % (len(data), head.header.n_tensors),
                         field="directory")  # fmt: skip
    entries = read_directory(data, head)
    for entry in entries:
        check_bounds(entry, head)
    return {"n": str(len(entries))}


def op_vqf_file(f: Fields) -> dict[str, str]:
    from vqfref.vqf.audit import audit
    from vqfref.vqf.head import load_head
    from vqfref.vqf.seal import verify

    with Source(f["path"]) as source:
        for finding in audit(source):
            if finding.severity == "error":
                raise FormatError(finding.code, finding.message, offset=finding.offset, field=finding.field)
        head = load_head(source)
        if not head.header.flags & structs.FLAG_ENC:
            for finding in verify(source, head).findings:
                if finding.severity == "error":
                    raise IntegrityError(finding.code, finding.message, offset=finding.offset, field=finding.field)
    return {}


def op_vqf_verify(f: Fields) -> dict[str, str]:
    from vqfref.vqf.reader import VqfFile

    with VqfFile(Source(f["path"]), passphrase=_bytes(f, "passphrase")) as file:
        for finding in file.verify(public_key=_bytes(f, "pub") or None).findings:
            if finding.severity == "error":
                raise IntegrityError(finding.code, finding.message, offset=finding.offset, field=finding.field)
    return {}


def op_vqf_tensor(f: Fields) -> dict[str, str]:
    from vqfref.vqf.reader import VqfFile

    layer, expert = (None if f[name] == "-" else _int(f, name) for name in ("layer", "expert"))
    with VqfFile(Source(f["path"]), passphrase=_bytes(f, "passphrase")) as file:
        values, info = file.get_tensor(f["name"], layer=layer, expert=expert), file.info(f["name"])
        layered = layer is None and file.geometry(f["name"]).layered
        shape = [info.layers] * layered + [info.experts] * (expert is None and info.experts > 0) + list(info.shape)
        return {"shape": ",".join(map(str, shape)), "sm3": kernels.sm3(floats.f32_encode(values)).hex()}


def op_vqf_geometry(f: Fields) -> dict[str, str]:
    words: dict[str, Any] = dict.fromkeys(structs.Arch._fields, 0)
    words["vis_ds_idx"] = words["mrope_sections"] = (0, 0, 0, 0)
    for part in f["arch"].split(","):
        name, _, value = part.partition(":")
        if name not in words:
            raise UsageError("kat.field.json", "no arch word %r" % name, field="arch")
        words[name] = _int({name: value}, name)
    arch = structs.Arch(**words)
    p = geometry.plan(arch, f["wmode"], x8=f["x8"] == "1", q8_tile=_int(f, "q8_tile"), form=_int(f, "form"))
    return {
        "version": str(p.version), "flags": str(p.flags), "n_tensors": str(len(p.tensors)),
        "data_offset": str(p.data_offset), "file_len": str(p.file_len), "size": str(p.size),
    }  # fmt: skip


def op_vqf_convert(f: Fields) -> dict[str, str]:
    from vqfref.kat.models import converted

    data, flags, n = converted(f["model"], f["wmode"], f["x8"] == "1", _int(f, "q8_tile"), _int(f, "form"))
    return {"size": str(len(data)), "flags": str(flags), "n_tensors": str(n), "sm3": kernels.sm3(data).hex()}


def op_st_header(f: Fields) -> dict[str, str]:
    from vqfref.safetensors.reader import SafetensorsFile

    with SafetensorsFile(Source(f["path"])) as file:
        return {"n": str(len(file.keys()))}


def _uqff(path: str) -> Any:
    from vqfref.uqff.reader import UqffFile

    folder, item = os.path.split(path)
    return UqffFile(path) if os.path.isdir(path) else UqffFile(folder, [item])


def _layer_key(file: Any, f: Fields) -> str:
    """The key of a layer of the shards: their other entries and the residual have none."""
    if f["key"] not in file.layers:
        raise FormatError("uqff.n2.missing", "no layer %s" % ascii(f["key"])[1:61], field=f["key"])
    return f["key"]


def op_uqff_layer(f: Fields) -> dict[str, str]:
    with _uqff(f["path"]) as file:
        key = _layer_key(file, f)
        values, info = file.get_tensor(key), file.info(key)
        shape = ",".join(map(str, info.shape))
        return {"label": info.dtype, "shape": shape, "sm3": kernels.sm3(floats.f32_encode(values)).hex()}


def op_uqff_set(f: Fields) -> dict[str, str]:
    with _uqff(f["path"]):
        return {}


# The tables of a slice that are hashed, in this order.
SLICED = ("", ".scales", ".zeros", ".biases", ".dequant_w_scale", ".dequant_x_scale", ".quant_scale")


def op_uqff_slice(f: Fields) -> dict[str, str]:
    with _uqff(f["path"]) as file:
        part = file.slice(_layer_key(file, f), dim=_int(f, "dim"), rank=_int(f, "rank"), world=_int(f, "world"))
        data = b"".join(bytes(part.read(s)) for s in SLICED if s in part.pieces)
        return {"shape": ",".join(map(str, part.shape)), "sm3": kernels.sm3(data).hex()}


def op_attest(f: Fields) -> dict[str, str]:
    from vqfref import attest

    result = attest.verify(_bytes(f, "record"), _bytes(f, "request"), _bytes(f, "output"), _bytes(f, "pub"))
    for finding in result.findings:
        raise SignatureError(finding.code, finding.message, field=finding.field)
    return {}


OPS: dict[str, Callable[[Fields], dict[str, str]]] = {
    name[3:]: value for name, value in list(globals().items()) if name.startswith("op_")
}


def answer(line: str) -> str:
    """The reply of this library's own adapter to one line of the protocol (kat/README.md)."""
    case_id, _, rest = line.partition(" ")
    if case_id == "hello":
        from vqfref import __version__

        return "hello vqfref-kat/1 name=vqfref version=%s ops=%s" % (__version__, ",".join(OPS))
    op, _, text = rest.partition(" ")
    if op not in OPS:
        return case_id + " skip"
    fields = {}
    while text:
        name, _, text = text.partition("=")
        value, text = (text, "") if name == "path" else text.partition(" ")[::2]
        fields[name] = value
    try:
        outputs = run(op, fields)
    except VqfrefError as error:
        return "%s err %s %s" % (case_id, error.word, " ".join(str(error).split()))
    except OSError as error:
        return "%s err missing %s" % (case_id, error.strerror)
    return " ".join([case_id, "ok", *("%s=%s" % item for item in outputs.items())])

"""The C structures of VQF, declared once.

Each structure is a table of its members in the C header's order: type, name, meaning. `lay_out` applies the rule of a
64-bit C ABI (a member starts at a multiple of its own alignment, the gap before it becomes a member `pad`), and from
the result come the `struct` formats that all of this library reads and writes by, the offsets that `vqfref header`
prints, and the ctypes mirrors VQFArch, VQFSig, VQFHeader, VQFTensor for those who want to hold a C program against
them. All numbers are little-endian. Spec: VQF section 2.
"""

from __future__ import annotations

import struct
from collections import namedtuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# Section 2, constants.
MAGIC = 0x57465146  # stored little-endian: 46 51 46 57, "FQFW"
SIZE_WORDS = ("dim", "n_layers", "n_heads", "head_dim", "ffn_dim", "vocab_size")  # of arch: gate 5 refuses a 0
POSITIVE_WORDS = (
    "max_seq_len",
    "rope_theta",
    "norm_eps",
)  # of arch: no model has another, though no gate looks at them
VERSION_OBSOLETE, VERSION_DENSE, VERSION_MOE = 1, 2, 3
TENSOR_ALIGN = 64
PAGE = 4096  # data_offset is a multiple of it in the files of the engine's converter

SIZES = {"u32": ("I", 4), "i32": ("i", 4), "f32": ("f", 4), "u64": ("Q", 8), "u8": ("s", 1), "char": ("s", 1)}

Field = namedtuple("Field", "name offset size type count meaning")
Field.__doc__ = (
    """One member: name, offset in its structure, size in bytes, C type (or a Layout), array length, meaning."""
)


class Layout:
    """A structure: its name, its fields with their offsets, and how its bytes become a record and bytes again."""

    def __init__(self, name: str, fields: tuple[Any, ...], size: int, align: int, record: Any) -> None:
        self.name = name
        self.fields = fields
        self.size = size
        self.align = align
        self.record = record
        self.struct = struct.Struct("<" + "".join(_format(f) for f in fields))
        self._nested: list[tuple[int, int, Any]] = []  # inner structures and arrays: index, values, Layout; last first
        at = 0
        for f in fields:
            inner = f.type if isinstance(f.type, Layout) else None
            n = 1 if inner or f.type in ("u8", "char") else f.count
            if inner or n > 1:
                self._nested.insert(0, (at, n, inner))
            at += n

    def unpack(self, data: bytes | memoryview, offset: int = 0) -> Any:
        """The record at `offset`: numbers as int and float, arrays of numbers as tuples, u8 and char arrays as bytes."""
        values = list(self.struct.unpack_from(data, offset))
        for at, n, inner in self._nested:
            values[at : at + n] = [inner.unpack(values[at]) if inner else tuple(values[at : at + n])]
        return self.record(*values)

    def pack(self, record: Any) -> bytes:
        """The bytes of a record; the inverse of `unpack`."""
        out = bytearray()
        for f in self.fields:
            value = getattr(record, f.name)
            if isinstance(f.type, Layout):
                out += f.type.pack(value)
            else:
                out += struct.pack("<" + _format(f), *value if isinstance(value, tuple) else (value,))
        return bytes(out)

    def offset_of(self, path: str) -> int:
        """The offset of a field, inner ones by dots.

        >>> HEADER_448.offset_of("arch.n_experts")
        180
        """
        name, _, rest = path.partition(".")
        for f in self.fields:
            if f.name == name:
                return int(f.offset) + (f.type.offset_of(rest) if rest else 0)
        raise KeyError(path)


def _format(f: Any) -> str:
    if isinstance(f.type, Layout) or f.type in ("u8", "char"):
        return "%ds" % f.size
    return ("%d" % f.count if f.count > 1 else "") + SIZES[f.type][0]


def lay_out(name: str, members: tuple[tuple[Any, str, str], ...], record: Any = None) -> Layout:
    """Place members by the C rule. A member is (type, name or name[count], meaning)."""
    fields, offset, struct_align = [], 0, 1
    for ctype, declarator, meaning in members:
        field_name, _, count = declarator.rstrip("]").partition("[")
        size, align = (ctype.size, ctype.align) if isinstance(ctype, Layout) else (SIZES[ctype][1],) * 2
        gap = -offset % align
        if gap:
            fields.append(Field("pad", offset, gap, "u8", gap, "alignment padding of the C compiler, zero"))
            offset += gap
        length = int(count or 1)
        fields.append(Field(field_name, offset, size * length, ctype, length, meaning))
        offset += size * length
        struct_align = max(struct_align, align)
    if offset % struct_align:
        raise AssertionError("%s needs padding at its end: declare it" % name)
    return Layout(name, tuple(fields), offset, struct_align, record or _record(name[3:], [f.name for f in fields]))


def _record(name: str, fields: list[str], defaults: int = 0) -> Any:
    """A namedtuple whose last `defaults` fields are 0 unless given."""
    return namedtuple(name, fields, defaults=(0,) * defaults, module=__name__)


_ARCH_41 = (
    ("u32", "dim", "hidden size"),
    ("u32", "n_layers", "transformer layers"),
    ("u32", "n_heads", "query heads"),
    ("u32", "n_kv_heads", "key and value heads"),
    ("u32", "head_dim", "width of one head"),
    ("u32", "ffn_dim", "feed-forward width; n_experts * moe_ffn in a MoE file"),
    ("u32", "vocab_size", "rows of token_embed"),
    ("u32", "max_seq_len", "context length; the converter clamps it to 8192"),
    ("f32", "rope_theta", "RoPE base frequency"),
    ("f32", "norm_eps", "RMSNorm epsilon"),
    ("u32", "bos_id", "token id, beginning of sequence"),
    ("u32", "eos_id", "token id, end of sequence"),
    ("u32", "has_q_norm", "1: q_norm and k_norm tensors present"),
    ("u32", "has_mrope", "1: multimodal RoPE"),
    ("u32", "head_dim_full", "head_dim again"),
    ("u32", "kv_lora_rank", "0 in all known files"),
    ("u32", "has_vision", "1: vision tower present"),
    ("u32", "vis_depth", "vision blocks"),
    ("u32", "vis_hidden", "vision hidden size"),
    ("u32", "vis_heads", "vision attention heads"),
    ("u32", "vis_ffn", "vision feed-forward width"),
    ("u32", "vis_patch", "patch edge in pixels"),
    ("u32", "vis_temporal", "frames a patch"),
    ("u32", "vis_merge", "patches merged along an edge"),
    ("u32", "vis_out_dim", "width handed to the text model"),
    ("u32", "vis_in_chan", "image channels"),
    ("u32", "vis_max_pos", "position embeddings"),
    ("u32", "vis_ds_count", "deepstack mergers"),
    ("u32", "mrope_n_sec", "mrope_sections in use"),
    ("i32", "vis_ds_idx[4]", "vision blocks that feed the deepstack mergers"),
    ("i32", "mrope_sections[4]", "RoPE sections: time, height, width"),
    ("u32", "vision_start_id", "token id"),
    ("u32", "vision_end_id", "token id"),
    ("u32", "image_token_id", "token id"),
    ("u32", "video_token_id", "token id"),
)
_ARCH_MOE = (
    ("u32", "n_experts", "experts a layer; 0 in a dense file"),
    ("u32", "moe_ffn", "feed-forward width of one expert"),
    ("u32", "top_k", "experts used for a token"),
    ("u32", "shared_experts", "experts that every token uses"),
)

# One record type for both forms of arch, and one for all forms of the header: what a form lacks has its default.
Arch = _record("Arch", [m[1].partition("[")[0] for m in _ARCH_41 + _ARCH_MOE], len(_ARCH_MOE))
Header = namedtuple(
    "Header", "magic version flags n_tensors arch pad data_offset file_len enc_iv enc_rsvd sig", defaults=(None,)
)
Arch.__doc__ = "The model's shape, as VQFArch; the four MoE words are 0 where the file has the 41-word form."
Header.__doc__ = "VQFHeader in any of its forms; sig is None in version 1."

ARCH_41 = lay_out("VQFArch41", _ARCH_41, Arch)
ARCH_45 = lay_out("VQFArch", _ARCH_41 + _ARCH_MOE, Arch)

SIG = lay_out(
    "VQFSig",
    (
        ("u8", "pub[64]", "signer's SM2 public key, x then y, big-endian; diagnostic, never the key to trust"),
        ("u8", "r[32]", "signature r, big-endian"),
        ("u8", "s[32]", "signature s, big-endian"),
        ("u8", "digest[32]", "D, SM3 over canonical header, directory and plaintext"),
        ("u8", "id[32]", "SM2 user id, zero padded"),
        ("u32", "id_len", "bytes of id in use"),
        ("u32", "reserved", "zero"),
    ),
)
Sig = SIG.record


def _header(name: str, arch: Layout, signed: bool) -> Layout:
    members: tuple[tuple[Any, str, str], ...] = (
        ("u32", "magic", "0x57465146"),
        ("u32", "version", "1 obsolete, 2 dense, 3 MoE"),
        ("u32", "flags", "what the file holds"),
        ("u32", "n_tensors", "entries in the directory"),
        (arch, "arch", "the model's shape"),
        ("u64", "data_offset", "where the data area starts"),
        ("u64", "file_len", "where the data area ends and the tag starts"),
        ("u8", "enc_iv[16]", "initial counter of SM4-CTR; zero in a plain file"),
        ("u8", "enc_rsvd[16]", "reserved, zero"),
    )
    if signed:
        members += ((SIG, "sig", "signature block; zero in an unsigned file"),)
    return lay_out(name, members, Header)


HEADER_V1 = _header("VQFHeaderV1", ARCH_41, signed=False)
HEADER_432 = _header("VQFHeader432", ARCH_41, signed=True)
HEADER_448 = _header("VQFHeader", ARCH_45, signed=True)

TENSOR = lay_out(
    "VQFTensor",
    (
        ("char", "name[32]", "NUL padded ASCII, at most 31 characters"),
        ("u32", "qtype", "encoding"),
        ("u32", "rows", "diagnostic: all layers together; transposed for q, k, v, o"),
        ("u32", "cols", "diagnostic"),
        ("u64", "offset", "from the start of the file, a multiple of 64"),
        ("u64", "bytes", "length"),
    ),
)
Tensor = TENSOR.record

for _layout, _size in (
    (ARCH_41, 164), (ARCH_45, 180), (SIG, 200), (HEADER_V1, 232), (HEADER_432, 432), (HEADER_448, 448), (TENSOR, 64),
):  # fmt: skip
    if _layout.size != _size:
        raise AssertionError("%s: %d bytes, expected %d" % (_layout.name, _layout.size, _size))

DIR_OFFSET = 448  # align64(432) = align64(448), so both forms share it; 256 in version 1
DIR_OFFSET_V1 = 256

# qtype: code -> (name, elements a block, bytes a block, meaning). Sections 2 and 6.
QTypeInfo = namedtuple("QTypeInfo", "code name block_elements block_bytes meaning")
F32, Q8_0, Q4_0, Q4_8X8L, F16 = 1, 2, 3, 4, 5
QTYPES = {
    q.code: q
    for q in (
        QTypeInfo(F32, "f32", 1, 4, "IEEE single precision"),
        QTypeInfo(Q8_0, "q8_0", 32, 34, "f16 scale and 32 int8"),
        QTypeInfo(Q4_0, "q4_0", 32, 18, "f16 scale and 32 nibbles"),
        QTypeInfo(Q4_8X8L, "q4_8x8l", 32, 18, "q4_0 bytes interleaved in tiles of 8 rows"),
        QTypeInfo(F16, "f16", 1, 2, "IEEE half precision"),
    )
}

# flags: bit -> (name, meaning). Section 2.
FlagInfo = namedtuple("FlagInfo", "bit name meaning")
FLAGS = tuple(
    FlagInfo(bit, name, meaning)
    for bit, (name, meaning) in enumerate(
        (
            ("Q8_8X8", "q8_* in tiles of 8 rows"),
            ("Q4_4X4", "q4_* in tiles of 4 rows"),
            ("X8", "x8_* copies present"),
            ("Q8BUF_Q4", "q8_* hold Q4 values expanded to int8 (q4i)"),
            ("G256", "q8_* scales shared by groups of 256"),
            ("EMB_F16", "token_embed is F16, else F32"),
            ("VISION", "v_* tensors present"),
            ("ENC", "data area encrypted with SM4-CTR, tag is HMAC-SM3"),
            ("SIGNED", "signature block valid"),
            ("MOE", "mixture of experts"),
        )
    )
)
FLAG_Q8_8X8, FLAG_Q4_4X4, FLAG_X8, FLAG_Q8BUF_Q4, FLAG_G256 = (1 << bit for bit in range(5))
FLAG_EMB_F16, FLAG_VISION, FLAG_ENC, FLAG_SIGNED, FLAG_MOE = (1 << bit for bit in range(5, 10))
LAYOUT_FLAGS = 0x1F  # gate 12 compares these


def align(x: int, to: int = TENSOR_ALIGN) -> int:
    """x rounded up to a multiple of `to`, a power of two."""
    return (x + to - 1) & -to


def flag_names(flags: int) -> str:
    """The set flags by name, unknown bits as numbers.

    >>> flag_names(0x63)
    'Q8_8X8 Q4_4X4 EMB_F16 VISION'
    """
    names = [f.name for f in FLAGS if flags >> f.bit & 1]
    names += ["bit%d" % bit for bit in range(len(FLAGS), 32) if flags >> bit & 1]
    return " ".join(names) or "none"


_MIRRORS = {
    "VQFArch41": ARCH_41, "VQFArch": ARCH_45, "VQFSig": SIG, "VQFHeaderV1": HEADER_V1, "VQFHeader432": HEADER_432,
    "VQFHeader": HEADER_448, "VQFTensor": TENSOR,
}  # fmt: skip


def __getattr__(name: str) -> Any:
    """The ctypes mirrors, built when first asked for; where the image has no ctypes, only they are missing."""
    if name not in _MIRRORS:
        raise AttributeError("module %r has no attribute %r" % (__name__, name))
    mirror = globals()[name] = _mirror(_MIRRORS[name])
    return mirror


def _mirror(layout: Layout) -> Any:
    """A ctypes.LittleEndianStructure of a layout; `bytes(mirror)` and `mirror.from_buffer_copy` are the C bytes."""
    import ctypes

    plain = {"u32": ctypes.c_uint32, "i32": ctypes.c_int32, "f32": ctypes.c_float, "u64": ctypes.c_uint64,
             "u8": ctypes.c_uint8, "char": ctypes.c_char}  # fmt: skip
    fields = []
    for f in layout.fields:
        if isinstance(f.type, Layout):
            ctype = __getattr__(f.type.name)
        else:
            ctype = plain[f.type]
            ctype = getattr(ctype, "__ctype_le__", ctype)  # arrays of plain numbers don't swap on big-endian hosts
            if f.count > 1:
                ctype = ctype * f.count
        fields.append((f.name, ctype))
    body = {"_pack_": 1, "_layout_": "ms", "_fields_": fields, "__doc__": "ctypes mirror of %s." % layout.name}
    metaclass: Any = type(ctypes.LittleEndianStructure)
    return metaclass(layout.name, (ctypes.LittleEndianStructure,), body)

"""The C structures of VQF: sizes, offsets, constants, and the ctypes mirrors. All numbers are those of spec section 2."""

from __future__ import annotations

import copy
import pickle
import random
import struct
import unittest
from pathlib import Path

from vqfref.vqf import structs

try:
    import ctypes
except ImportError:
    ctypes = None  # type: ignore[assignment]

FILES = Path(__file__).resolve().parent.parent / "kat" / "files"

SIZES = {
    "ARCH_41": 164, "ARCH_45": 180, "SIG": 200, "HEADER_V1": 232, "HEADER_432": 432, "HEADER_448": 448, "TENSOR": 64,
}  # fmt: skip

MIRRORS = {  # the class -> the layout that it mirrors
    "VQFArch41": "ARCH_41", "VQFArch": "ARCH_45", "VQFSig": "SIG", "VQFHeaderV1": "HEADER_V1",
    "VQFHeader432": "HEADER_432", "VQFHeader": "HEADER_448", "VQFTensor": "TENSOR",
}  # fmt: skip

ARCH_WORDS = (  # word index: name
    (0, "dim"), (1, "n_layers"), (2, "n_heads"), (3, "n_kv_heads"), (4, "head_dim"), (5, "ffn_dim"), (6, "vocab_size"),
    (7, "max_seq_len"), (8, "rope_theta"), (9, "norm_eps"), (10, "bos_id"), (11, "eos_id"), (12, "has_q_norm"),
    (13, "has_mrope"), (14, "head_dim_full"), (15, "kv_lora_rank"), (16, "has_vision"), (17, "vis_depth"),
    (18, "vis_hidden"), (19, "vis_heads"), (20, "vis_ffn"), (21, "vis_patch"), (22, "vis_temporal"), (23, "vis_merge"),
    (24, "vis_out_dim"), (25, "vis_in_chan"), (26, "vis_max_pos"), (27, "vis_ds_count"), (28, "mrope_n_sec"),
    (29, "vis_ds_idx"), (33, "mrope_sections"), (37, "vision_start_id"), (38, "vision_end_id"), (39, "image_token_id"),
    (40, "video_token_id"), (41, "n_experts"), (42, "moe_ffn"), (43, "top_k"), (44, "shared_experts"),
)  # fmt: skip
MOE_WORDS = ("n_experts", "moe_ffn", "top_k", "shared_experts")

# name: (offset, size)
SIG_FIELDS = {
    "pub": (0, 64), "r": (64, 32), "s": (96, 32), "digest": (128, 32), "id": (160, 32), "id_len": (192, 4),
    "reserved": (196, 4),
}  # fmt: skip
TENSOR_FIELDS = {
    "name": (0, 32), "qtype": (32, 4), "rows": (36, 4), "cols": (40, 4), "pad": (44, 4), "offset": (48, 8),
    "bytes": (56, 8),
}  # fmt: skip
START = {"magic": (0, 4), "version": (4, 4), "flags": (8, 4), "n_tensors": (12, 4)}
HEADER_FIELDS = {
    "HEADER_V1": {
        **START, "arch": (16, 164), "pad": (180, 4), "data_offset": (184, 8), "file_len": (192, 8), "enc_iv": (200, 16),
        "enc_rsvd": (216, 16),
    },
    "HEADER_432": {
        **START, "arch": (16, 164), "pad": (180, 4), "data_offset": (184, 8), "file_len": (192, 8), "enc_iv": (200, 16),
        "enc_rsvd": (216, 16), "sig": (232, 200),
    },
    "HEADER_448": {
        **START, "arch": (16, 180), "pad": (196, 4), "data_offset": (200, 8), "file_len": (208, 8), "enc_iv": (216, 16),
        "enc_rsvd": (232, 16), "sig": (248, 200),
    },
}  # fmt: skip


def arch_fields(words: int) -> dict[str, tuple[int, int]]:
    """name: (offset, size) of an arch of 41 or 45 words."""
    return {
        name: (4 * index, 16 if name in ("vis_ds_idx", "mrope_sections") else 4)
        for index, name in ARCH_WORDS
        if index < words
    }


FIELDS = {
    "ARCH_41": arch_fields(41), "ARCH_45": arch_fields(45), "SIG": SIG_FIELDS, "TENSOR": TENSOR_FIELDS, **HEADER_FIELDS,
}  # fmt: skip

# Qwen3-VL-2B, section 6, and what its config.json says beyond that.
ARCH_2B = {
    "dim": 2048, "n_layers": 28, "n_heads": 16, "n_kv_heads": 8, "head_dim": 128, "ffn_dim": 6144,
    "vocab_size": 151936, "max_seq_len": 8192, "rope_theta": 5000000.0, "norm_eps": 1e-6, "bos_id": 151643,
    "eos_id": 151645, "has_q_norm": 1, "has_mrope": 1, "head_dim_full": 128, "kv_lora_rank": 0, "has_vision": 1,
    "vis_depth": 24, "vis_hidden": 1024, "vis_heads": 16, "vis_ffn": 4096, "vis_patch": 16, "vis_temporal": 2,
    "vis_merge": 2, "vis_out_dim": 2048, "vis_in_chan": 3, "vis_max_pos": 2304, "vis_ds_count": 3, "mrope_n_sec": 3,
    "vis_ds_idx": (5, 11, 17, 0), "mrope_sections": (24, 20, 20, 0), "vision_start_id": 151652,
    "vision_end_id": 151653, "image_token_id": 151655, "video_token_id": 151656,
}  # fmt: skip


def real_files() -> list[tuple[str, bytes]]:
    """The sealed files: name and bytes."""
    found = [(path.name, path.read_bytes()) for path in sorted(FILES.glob("*.vqf"))]
    if len(found) != 8:
        raise AssertionError("%d sealed files, expected 8" % len(found))
    return found


def header_name(file: str) -> str:
    return "HEADER_432" if "h432" in file else "HEADER_448"


def random_bytes(name: str, seed: int) -> bytes:
    """Random bytes for a structure; the two f32 words are kept finite, since not every NaN survives a float."""
    rng = random.Random("%s %d" % (name, seed))
    data = bytearray(rng.getrandbits(8) for _ in range(SIZES[name]))
    arch = 0 if name.startswith("ARCH") else 16 if name.startswith("HEADER") else None
    if arch is not None:
        for word in (8, 9):
            data[arch + 4 * word + 3] &= 0xBF  # the exponent's top bit: neither infinite nor NaN
    return bytes(data)


class Offsets(unittest.TestCase):
    def test_sizes_are_those_of_the_engine_s_compile_time_asserts(self) -> None:
        for name, size in SIZES.items():
            layout = getattr(structs, name)
            with self.subTest(name):
                self.assertEqual(layout.size, size)
                self.assertEqual(layout.struct.size, size)

    def test_every_member_lies_where_the_spec_puts_it_and_there_are_no_others(self) -> None:
        for name, fields in FIELDS.items():
            with self.subTest(name):
                found = {f.name: (f.offset, f.size) for f in getattr(structs, name).fields}
                self.assertEqual(found, fields)
                self.assertEqual(list(found), list(fields))

    def test_members_follow_one_another_without_a_hole(self) -> None:
        for name in SIZES:
            with self.subTest(name):
                at = 0
                for f in getattr(structs, name).fields:
                    self.assertEqual(f.offset, at, f.name)
                    at += f.size
                self.assertEqual(at, SIZES[name])

    def test_arch_words_lie_at_16_plus_four_times_their_index_in_every_header(self) -> None:
        for index, name in ARCH_WORDS:
            self.assertEqual(structs.HEADER_448.offset_of("arch." + name), 16 + 4 * index, name)
            if index < 41:
                self.assertEqual(structs.HEADER_432.offset_of("arch." + name), 16 + 4 * index, name)
                self.assertEqual(structs.HEADER_V1.offset_of("arch." + name), 16 + 4 * index, name)

    def test_signature_fields_have_these_offsets_in_a_file(self) -> None:
        for name, (offset, _) in SIG_FIELDS.items():
            self.assertEqual(structs.HEADER_448.offset_of("sig." + name), 248 + offset, name)
            self.assertEqual(structs.HEADER_432.offset_of("sig." + name), 232 + offset, name)

    def test_a_name_that_is_no_member_has_no_offset(self) -> None:
        for layout, name in (
            (structs.HEADER_432, "arch.n_experts"), (structs.HEADER_V1, "sig"), (structs.TENSOR, "nbytes"),
            (structs.HEADER_448, "sig.pad"),
        ):  # fmt: skip
            with self.assertRaises(KeyError):
                layout.offset_of(name)

    def test_both_forms_of_version_2_put_the_directory_at_448(self) -> None:
        self.assertEqual(structs.DIR_OFFSET, 448)
        self.assertEqual(structs.DIR_OFFSET_V1, 256)
        for size, directory in ((432, 448), (448, 448), (232, 256)):
            self.assertEqual(structs.align(size), directory)

    def test_align_rounds_up_to_the_next_multiple(self) -> None:
        for x, to, up in (
            (0, 64, 0), (1, 64, 64), (63, 64, 64), (64, 64, 64), (65, 64, 128), (4096, 4096, 4096), (4097, 4096, 8192),
            ((1 << 64) - 1, 64, 1 << 64),
        ):  # fmt: skip
            self.assertEqual(structs.align(x, to), up)


class Words(unittest.TestCase):
    """unpack and pack against struct formats that are written down here a second time."""

    def test_each_of_the_45_arch_words_is_read_from_its_own_place(self) -> None:
        words: list[int | float] = list(range(1000, 1045))
        words[8], words[9] = 0.5, -2.0
        for index in (*range(29, 33), *range(33, 37)):
            words[index] = -index
        data = struct.pack("<8I2f19I8i8I", *words)
        self.assertEqual(len(data), 180)
        arch = structs.ARCH_45.unpack(data)
        for index, name in ARCH_WORDS:
            if index in (29, 33):
                self.assertEqual(getattr(arch, name), tuple(words[index : index + 4]), name)
            else:
                self.assertEqual(getattr(arch, name), words[index], name)
        self.assertEqual(structs.ARCH_45.pack(arch), data)
        self.assertEqual(structs.ARCH_41.pack(arch), data[:164])

    def test_arch_has_the_names_of_the_spec_in_its_order(self) -> None:
        self.assertEqual(structs.Arch._fields, tuple(name for _, name in ARCH_WORDS))

    def test_the_moe_words_of_a_41_word_arch_are_zero(self) -> None:
        arch = structs.ARCH_41.unpack(b"\xff" * 180)
        self.assertEqual([getattr(arch, name) for name in MOE_WORDS], [0, 0, 0, 0])
        self.assertEqual(arch.video_token_id, 0xFFFFFFFF)

    def test_u32_and_u64_have_no_sign_and_i32_has_one(self) -> None:
        header = structs.HEADER_448.unpack(b"\xff" * 448)
        self.assertEqual((header.n_tensors, header.arch.dim), (2**32 - 1, 2**32 - 1))
        self.assertEqual((header.data_offset, header.file_len), (2**64 - 1, 2**64 - 1))
        self.assertEqual((header.arch.vis_ds_idx, header.arch.mrope_sections), ((-1,) * 4, (-1,) * 4))
        entry = structs.TENSOR.unpack(b"\xff" * 64)
        self.assertEqual((entry.qtype, entry.rows, entry.cols), (2**32 - 1,) * 3)
        self.assertEqual((entry.offset, entry.bytes), (2**64 - 1,) * 2)

    def test_a_directory_entry_is_read_field_by_field(self) -> None:
        data = b"q4_gate".ljust(32, b"\0") + struct.pack("<III4sQQ", 3, 96, 64, b"\1\2\3\4", 1 << 40, 3456)
        entry = structs.TENSOR.unpack(b"??" + data, 2)
        self.assertEqual(tuple(entry), (b"q4_gate" + bytes(25), 3, 96, 64, b"\1\2\3\4", 1 << 40, 3456))
        self.assertEqual(entry._fields, ("name", "qtype", "rows", "cols", "pad", "offset", "bytes"))
        self.assertEqual(structs.TENSOR.pack(entry), data)

    def test_the_signature_block_is_read_field_by_field(self) -> None:
        data = bytes(range(192)) + struct.pack("<II", 16, 0xDEAD)
        sig = structs.SIG.unpack(data)
        self.assertEqual(sig.pub, bytes(range(64)))
        self.assertEqual(sig.r, bytes(range(64, 96)))
        self.assertEqual(sig.s, bytes(range(96, 128)))
        self.assertEqual(sig.digest, bytes(range(128, 160)))
        self.assertEqual(sig.id, bytes(range(160, 192)))
        self.assertEqual((sig.id_len, sig.reserved), (16, 0xDEAD))

    def test_a_version_1_header_has_no_signature_block(self) -> None:
        data = bytearray(range(232))
        data[16 + 32 : 16 + 40] = struct.pack("<2f", 1.0, 2.0)
        header = structs.HEADER_V1.unpack(bytes(data))
        self.assertIsNone(header.sig)
        self.assertEqual(header.pad, bytes(range(180, 184)))
        self.assertEqual(header.data_offset, int.from_bytes(bytes(range(184, 192)), "little"))
        self.assertEqual(header.file_len, int.from_bytes(bytes(range(192, 200)), "little"))
        self.assertEqual((header.enc_iv, header.enc_rsvd), (bytes(range(200, 216)), bytes(range(216, 232))))
        self.assertEqual(structs.HEADER_V1.pack(header), bytes(data))

    def test_packing_what_was_unpacked_gives_the_same_bytes(self) -> None:
        for name in SIZES:
            layout = getattr(structs, name)
            for seed in range(20):
                data = random_bytes(name, seed)
                with self.subTest(name, seed=seed):
                    self.assertEqual(layout.pack(layout.unpack(data)), data)

    def test_real_headers_and_directories_survive_unpack_and_pack(self) -> None:
        for name, data in real_files():
            layout = getattr(structs, header_name(name))
            with self.subTest(name):
                self.assertEqual(layout.pack(layout.unpack(data)), data[: layout.size])
                for at in range(448, 448 + 14 * 64, 64):
                    self.assertEqual(structs.TENSOR.pack(structs.TENSOR.unpack(data, at)), data[at : at + 64])

    def test_infinities_and_nans_in_the_f32_words_are_values_like_others(self) -> None:
        data = bytearray(180)
        data[32:40] = struct.pack("<ff", float("-inf"), float("nan"))
        arch = structs.ARCH_45.unpack(data)
        self.assertEqual(arch.rope_theta, float("-inf"))
        self.assertNotEqual(arch.norm_eps, arch.norm_eps)
        again = structs.ARCH_45.unpack(structs.ARCH_45.pack(arch))
        self.assertEqual(again.rope_theta, float("-inf"))
        self.assertNotEqual(again.norm_eps, again.norm_eps)

    def test_records_can_be_copied_and_pickled(self) -> None:
        header = structs.HEADER_448.unpack(real_files()[-1][1])
        for twin in (copy.copy(header), copy.deepcopy(header)):
            self.assertEqual(twin, header)
        arch = pickle.loads(pickle.dumps(header.arch))
        self.assertEqual(arch, header.arch)


class RealHeaders(unittest.TestCase):
    def test_the_mini_files_say_what_their_config_says(self) -> None:
        for name, data in real_files():
            with self.subTest(name):
                header = getattr(structs, header_name(name)).unpack(data)
                self.assertEqual((header.magic, header.version, header.n_tensors), (0x57465146, 2, 14))
                flags = 0x23 | (0x80 if "enc" in name else 0) | (0x100 if "signed" in name else 0)
                self.assertEqual(header.flags, flags)
                self.assertEqual((header.data_offset, header.file_len), (0x1000, 0x2C80))
                a = header.arch
                self.assertEqual(
                    (a.dim, a.n_layers, a.n_heads, a.n_kv_heads, a.head_dim, a.ffn_dim, a.vocab_size, a.max_seq_len),
                    (32, 1, 1, 1, 32, 32, 32, 8192),
                )
                self.assertEqual(a.rope_theta, 5000000.0)
                self.assertEqual(struct.pack("<f", a.norm_eps), bytes.fromhex("bd378635"))  # 1e-6 as f32
                self.assertEqual((a.bos_id, a.eos_id, a.has_q_norm, a.has_mrope), (151643, 151645, 1, 1))
                self.assertEqual((a.head_dim_full, a.kv_lora_rank, a.has_vision), (32, 0, 0))
                self.assertEqual((a.mrope_n_sec, a.mrope_sections, a.vis_ds_idx), (3, (8, 4, 4, 0), (0, 0, 0, 0)))
                self.assertEqual(
                    (a.vision_start_id, a.vision_end_id, a.image_token_id, a.video_token_id),
                    (151652, 151653, 151655, 151656),
                )
                self.assertEqual([getattr(a, n) for n in MOE_WORDS], [0, 0, 0, 0])
                self.assertEqual((header.pad, header.enc_rsvd), (bytes(4), bytes(16)))

    def test_the_signed_mini_files_name_their_signer(self) -> None:
        for name, data in real_files():
            sig = getattr(structs, header_name(name)).unpack(data).sig
            with self.subTest(name):
                if "signed" not in name:
                    self.assertEqual(structs.SIG.pack(sig), bytes(200))
                    continue
                user = b"vllm-shs-vqf" if "h432" in name else b"vllm-kestrel-vqf"
                self.assertEqual((sig.id, sig.id_len, sig.reserved), (user.ljust(32, b"\0"), len(user), 0))
                self.assertEqual(
                    sig.pub.hex(),
                    "09f9df311e5421a150dd7d161e4bc5c672179fad1833fc076bb08ff356f35020"
                    "ccea490ce26775a52dc6ea718cc1aa600aed05fbf35e084a6632f6072da9ad13",
                )

    def test_the_header_of_qwen3_vl_2b_q4_has_the_bytes_that_the_spec_quotes(self) -> None:
        header = structs.Header(
            0x57465146, 2, 0x63, 41, structs.Arch(**ARCH_2B), bytes(4), 4096, 2331316224, bytes(16), bytes(16),
            structs.SIG.unpack(bytes(200)),
        )  # fmt: skip
        data = structs.HEADER_432.pack(header)
        self.assertEqual(data[:16], bytes.fromhex("46514657 02000000 63000000 29000000"))
        self.assertEqual(data[184:208], bytes.fromhex("0010000000000000 0010f58a00000000 0000000000000000"))
        self.assertEqual(data[200:232], bytes(32))
        self.assertEqual(data[232:], bytes(200))

    def test_the_bytes_that_the_spec_quotes_read_as_qwen3_vl_2b_q4(self) -> None:
        data = bytearray(432)
        data[:16] = bytes.fromhex("46514657 02000000 63000000 29000000")
        data[184:208] = bytes.fromhex("0010000000000000 0010f58a00000000 0000000000000000")
        header = structs.HEADER_432.unpack(data)
        self.assertEqual((header.magic, header.version, header.flags, header.n_tensors), (0x57465146, 2, 0x63, 41))
        self.assertEqual((header.data_offset, header.file_len), (4096, 2331316224))
        self.assertEqual(structs.flag_names(header.flags), "Q8_8X8 Q4_4X4 EMB_F16 VISION")

    def test_the_version_1_file_of_it_has_the_dual_set_of_49_tensors(self) -> None:
        header = structs.HEADER_V1.unpack(bytes.fromhex("46514657 01000000 63000000 31000000") + bytes(216))
        self.assertEqual((header.magic, header.version, header.flags, header.n_tensors), (0x57465146, 1, 0x63, 49))


class Constants(unittest.TestCase):
    def test_the_magic_reads_fqfw_in_a_file(self) -> None:
        self.assertEqual(structs.MAGIC.to_bytes(4, "little"), b"FQFW")
        for name, data in real_files():
            self.assertEqual(structs.MAGIC.to_bytes(4, "little"), data[:4], name)

    def test_versions(self) -> None:
        self.assertEqual((structs.VERSION_OBSOLETE, structs.VERSION_DENSE, structs.VERSION_MOE), (1, 2, 3))

    def test_flag_bits_have_the_names_of_the_spec(self) -> None:
        table = (
            (0, "Q8_8X8"), (1, "Q4_4X4"), (2, "X8"), (3, "Q8BUF_Q4"), (4, "G256"), (5, "EMB_F16"), (6, "VISION"),
            (7, "ENC"), (8, "SIGNED"), (9, "MOE"),
        )  # fmt: skip
        self.assertEqual(tuple((f.bit, f.name) for f in structs.FLAGS), table)
        for bit, name in table:
            self.assertEqual(getattr(structs, "FLAG_" + name), 1 << bit, name)
            self.assertEqual(structs.flag_names(1 << bit), name)
        self.assertEqual(structs.LAYOUT_FLAGS, 0b11111)

    def test_flags_are_named_from_bit_0_up_and_unknown_bits_by_number(self) -> None:
        self.assertEqual(structs.flag_names(0x223), "Q8_8X8 Q4_4X4 EMB_F16 MOE")
        self.assertEqual(structs.flag_names(0), "none")
        self.assertEqual(structs.flag_names(1 << 10 | 1 << 31 | 1 << 2), "X8 bit10 bit31")

    def test_qtypes_have_their_codes_and_block_sizes(self) -> None:
        table = {1: ("f32", 1, 4), 2: ("q8_0", 32, 34), 3: ("q4_0", 32, 18), 4: ("q4_8x8l", 32, 18), 5: ("f16", 1, 2)}
        found = {code: (q.name, q.block_elements, q.block_bytes) for code, q in structs.QTYPES.items()}
        self.assertEqual(found, table)
        self.assertEqual([q.code for q in structs.QTYPES.values()], list(structs.QTYPES))
        self.assertEqual((structs.F32, structs.Q8_0, structs.Q4_0, structs.Q4_8X8L, structs.F16), (1, 2, 3, 4, 5))

    def test_every_field_and_flag_and_qtype_has_a_meaning(self) -> None:
        for name in SIZES:
            for f in getattr(structs, name).fields:
                self.assertTrue(f.meaning, "%s.%s" % (name, f.name))
        for item in (*structs.FLAGS, *structs.QTYPES.values()):
            self.assertTrue(item.meaning, item.name)


@unittest.skipUnless(ctypes, "this Python has no ctypes")
class Mirrors(unittest.TestCase):
    """The ctypes classes say the same as the layouts, of real files and of random bytes."""

    def test_mirrors_have_the_sizes_of_the_c_structures(self) -> None:
        for name, layout in MIRRORS.items():
            self.assertEqual(ctypes.sizeof(getattr(structs, name)), SIZES[layout], name)

    def test_mirrors_have_every_member_at_its_offset(self) -> None:
        for name, layout in MIRRORS.items():
            mirror = getattr(structs, name)
            with self.subTest(name):
                self.assertEqual([f[0] for f in mirror._fields_], list(FIELDS[layout]))
                for field, place in FIELDS[layout].items():
                    member = getattr(mirror, field)
                    self.assertEqual((member.offset, member.size), place, field)

    def test_mirrors_carry_their_c_names_and_are_made_once(self) -> None:
        for name in MIRRORS:
            self.assertEqual(getattr(structs, name).__name__, name)
            self.assertIs(getattr(structs, name), getattr(structs, name))
        self.assertIs(dict(structs.VQFHeader._fields_)["arch"], structs.VQFArch)
        self.assertIs(dict(structs.VQFHeader432._fields_)["arch"], structs.VQFArch41)
        self.assertIs(dict(structs.VQFHeader432._fields_)["sig"], structs.VQFSig)

    def test_a_name_that_is_no_mirror_is_an_attribute_error(self) -> None:
        with self.assertRaises(AttributeError):
            structs.VQFNothing  # noqa: B018

    def test_mirrors_read_the_real_files_as_the_layouts_do(self) -> None:
        for name, data in real_files():
            layout = header_name(name)
            mirror = structs.VQFHeader432 if layout == "HEADER_432" else structs.VQFHeader
            with self.subTest(name):
                self.same(mirror.from_buffer_copy(data), getattr(structs, layout).unpack(data), layout)
                for at in range(448, 448 + 14 * 64, 64):
                    entry = structs.TENSOR.unpack(data, at)
                    self.same(structs.VQFTensor.from_buffer_copy(data, at), entry, "TENSOR")

    def test_mirrors_read_random_bytes_as_the_layouts_do(self) -> None:
        for name, layout in MIRRORS.items():
            for seed in range(5):
                data = random_bytes(layout, seed)
                with self.subTest(name, seed=seed):
                    self.same(
                        getattr(structs, name).from_buffer_copy(data), getattr(structs, layout).unpack(data), layout
                    )

    def test_the_bytes_of_a_mirror_are_the_bytes_of_the_file(self) -> None:
        for name, layout in MIRRORS.items():
            for data in (random_bytes(layout, 99), b"\xff" * SIZES[layout]):
                self.assertEqual(bytes(getattr(structs, name).from_buffer_copy(data)), data, name)

    def test_a_mirror_that_is_filled_in_gives_little_endian_bytes(self) -> None:
        header = structs.VQFHeader(magic=0x57465146, version=3, flags=0x223, n_tensors=15, file_len=1 << 33)
        header.arch.rope_theta = 1.0
        header.arch.mrope_sections[0] = -2
        header.arch.shared_experts = 0x01020304
        header.sig.id_len = 16
        expected = bytearray(448)
        expected[:16] = bytes.fromhex("46514657 03000000 23020000 0f000000")
        expected[48:52] = bytes.fromhex("0000803f")
        expected[148:152] = bytes.fromhex("feffffff")
        expected[192:196] = bytes.fromhex("04030201")
        expected[208:216] = bytes.fromhex("0000000002000000")
        expected[440:444] = bytes.fromhex("10000000")
        self.assertEqual(bytes(header), bytes(expected))
        entry = structs.VQFTensor(name=b"q8_q", qtype=2, rows=0x100, cols=0x20, offset=0x40, bytes=0x2200)
        self.assertEqual(
            bytes(entry),
            b"q8_q".ljust(32, b"\0")
            + bytes.fromhex("02000000 00010000 20000000 00000000 4000000000000000 0022000000000000"),
        )

    def same(self, mirror: ctypes.Structure, record: tuple, layout: str) -> None:
        """Every member of a mirror has the value of the record."""
        for name in FIELDS[layout]:
            got, want = getattr(mirror, name), getattr(record, name)
            if name == "arch":
                self.same(got, want, "ARCH_45" if layout == "HEADER_448" else "ARCH_41")
            elif name == "sig":
                self.same(got, want, "SIG")
            elif layout == "TENSOR" and name == "name":
                self.assertEqual(got, want.partition(b"\0")[0])  # as a C string
            elif isinstance(want, bytes):
                self.assertEqual(bytes(got), want, name)
            elif isinstance(want, tuple):
                self.assertEqual(tuple(got), want, name)
            else:
                self.assertEqual(got, want, name)


if __name__ == "__main__":
    unittest.main()

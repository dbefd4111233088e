"""Reading UQFF: every layer of the engine's folders to its hash; names, shapes, rows, experts, biases, the residual."""

from __future__ import annotations

import hashlib
import os
import struct
import sys
import unittest
from array import array

import vqfref
from tests.uqff_samples import (
    FILES,
    GGML,
    PRODUCER,
    REAL,
    REPORT,
    RESIDUAL,
    VERSION_NAMES,
    Folder,
    FolderTest,
    afq,
    build,
    expected,
    f8q8,
    fp8,
    gguf,
    hqq,
    mxfp4,
    named,
    noise,
    raised,
    real_files,
    real_shard,
    smooth,
    unquant,
    zeros,
)
from vqfref.errors import TensorNotFound, UsageError
from vqfref.uqff.reader import UqffFile

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

Q = "model.layers.0.self_attn.q_proj"
DOWN = "model.layers.0.mlp.down_proj"
STACK = "model.layers.0.mlp.experts.down_proj"


def little(values: array[float]) -> bytes:
    """Values as little-endian F32."""
    if sys.byteorder == "big":
        values = array("f", values)
        values.byteswap()
    return values.tobytes()


def opened(name: str) -> UqffFile:
    return UqffFile(str(FILES / name))


class Samples(unittest.TestCase):
    """The builder of the tests against the engine's own bytes."""

    def test_parsed_files_built_again_are_the_same_bytes(self) -> None:
        count = 0
        for name in REAL:
            for file, data in real_files(name).items():
                if file.endswith((".uqff", ".safetensors")):
                    metadata, tensors = real_shard(name, file)
                    self.assertEqual(build(tensors, metadata), data, (name, file))
                    count += 1
        self.assertGreaterEqual(count, 2 * len(REAL))

    def test_the_folders_have_every_family_and_no_large_file(self) -> None:
        labels = {layer["stored"] for name in REAL for layer in expected(name)}
        self.assertLessEqual(
            {"afq3", "afq4", "afq6", "f8q8", "fp8", "hqq4", "mxfp4", "q2k", "q4_0", "q5_0", "q5_1", "q6k", "q8_0", "q8_1",
             "unquant"}, labels)  # fmt: skip
        for path in FILES.rglob("*"):
            if path.is_file():
                self.assertLessEqual(path.stat().st_size, 1 << 16, path)

    def test_shards_of_the_engine_lie_unaligned(self) -> None:
        # so that a reader which counts on alignment fails here
        odd = 0
        for name in REAL:
            with opened(name) as f:
                odd += sum(t.offset % 2 and t.entry.dtype == "U32" for t in f.entries().values())
                odd += sum(t.offset % 2 and t.entry.dtype == "U8" and t.entry.shape != () for t in f.entries().values())
        self.assertGreater(odd, 0)


class Values(unittest.TestCase):
    def test_every_layer_decodes_to_the_engines_values(self) -> None:
        count = 0
        for name in REAL:
            with opened(name) as f:
                for layer in expected(name):
                    with self.subTest("%s %s" % (name, layer["key"])):
                        values = f.get_tensor(layer["key"])
                        self.assertEqual(
                            list(values[:8]), [struct.unpack("<f", struct.pack("<f", v))[0] for v in layer["first8"]]
                        )
                        self.assertEqual(hashlib.sha256(little(values)).hexdigest(), layer["f32_sha256"])
                        t = f.info(layer["key"])
                        self.assertEqual((list(t.shape), t.dtype), (layer["shape"], layer["stored"]))
                        count += 1
        self.assertEqual(count, 124)

    def test_both_backends_and_values_in_pieces_agree(self) -> None:
        for name in ("topo1-q4_0", "moe-afq4", "hqq4", "f8q8"):
            with opened(name) as f, UqffFile(str(FILES / name), backend="pread") as g:
                for key in f:
                    values = f.get_tensor(key)
                    self.assertEqual(values, g.get_tensor(key))
                    pieces = array("f")
                    for piece in f.values(key):
                        pieces.extend(piece)
                    self.assertEqual(pieces, values)

    def test_residual_tensors_and_biases_are_plain_floats(self) -> None:
        with opened("bias-q8_0") as f:
            for key, t in real_shard("bias-q8_0", RESIDUAL)[1].items():
                self.assertEqual((t.dtype, little(f.get_tensor(key))), ("F32", t.data), key)
            bias = real_shard("bias-q8_0", "q8_0-0.uqff")[1][Q + ".bias"]
            self.assertEqual((bias.dtype, little(f.get_tensor(Q + ".bias"))), ("F32", bias.data))
        with opened("bias-fp8") as f:
            self.assertEqual(f.info(Q + ".bias").dtype, "F8_E4M3")  # a plain cast, unscaled
            self.assertEqual(len(f.get_tensor(Q + ".bias")), f.info(Q).shape[0])


class Names(unittest.TestCase):
    def test_keys_are_layers_then_biases_then_the_residual(self) -> None:
        for name in REAL:
            with opened(name) as f:
                tensors = {n for file in real_files(name) if file.endswith(".uqff") for n in real_shard(name, file)[1]}
                layers = sorted(n[: -len(".weight.format")] for n in tensors if n.endswith(".weight.format"))
                biases = sorted(n for n in tensors if n.endswith(".bias"))
                residual = list(real_shard(name, RESIDUAL)[1])
                self.assertEqual(f.keys()[: len(layers)], layers)
                self.assertEqual(sorted(f.keys()[len(layers) : len(layers) + len(biases)]), biases)
                self.assertEqual(f.keys()[len(layers) + len(biases) :], residual)
                self.assertEqual(list(f), f.keys())
                self.assertEqual(len(f), len(layers) + len(biases) + len(residual))

    def test_entries_are_the_raw_tensors_of_all_shards(self) -> None:
        with opened("q2k") as f:
            self.assertEqual(f.names, ["q2k-0.uqff", "q2k-1.uqff", "q2k-2.uqff"])
            wanted = {n: t for file in f.names for n, t in real_shard("q2k", file)[1].items()}
            self.assertEqual(set(f.entries()), set(wanted))
            for name, t in wanted.items():
                self.assertEqual(bytes(f.raw(name)) if name not in f.layers else t.data, t.data)
                entry = f.entries()[name].entry
                self.assertEqual((entry.dtype, tuple(entry.shape)), (t.dtype, t.shape))

    def test_raw_and_chunks_of_a_layer_are_its_payload(self) -> None:
        for name in ("afq3", "moe-q4_0", "fp8", "q2k"):
            with opened(name) as f:
                for key in f.layers:
                    stored = Folder.real(name)[key + ".weight"].data
                    self.assertEqual(bytes(f.raw(key)), stored)
                    self.assertEqual(b"".join(f.chunks(key, 1000)), stored)
                    t = f.info(key)
                    with open(t.path or "", "rb") as file:
                        self.assertEqual(file.read()[t.offset : t.offset + t.nbytes], stored)

    def test_unknown_names_are_not_found(self) -> None:
        with opened("afq3") as f:
            for name in ("nothing", Q + ".weight.nothing", "", "model.norm"):
                for call in (f.get_tensor, f.info, f.raw):
                    self.assertIsInstance(raised(call, name), TensorNotFound)
                self.assertNotIn(name, f)
            self.assertIsInstance(raised(f.slice, "model.norm.weight", dim=0, rank=0, world=1), TensorNotFound)
            self.assertIn(Q, str(raised(f.get_tensor, Q + "_")))  # the hint

    def test_metadata_tells_version_shards_and_labels(self) -> None:
        with opened("topo1-q4_0") as f:
            facts = f.metadata()
            self.assertEqual(f.version, (1, 2, 0))
            self.assertEqual(facts["version"], "1.2.0")
            self.assertEqual(facts["shards"], ["q4_0-0.uqff"])
            self.assertEqual(facts["metadata"], PRODUCER)
            self.assertEqual(facts["layers"], 16)
            self.assertEqual(facts["labels"], {"afq4": 1, "q4_0": 7, "q5_0": 6, "q5_1": 1, "q8_0": 1})
            self.assertIs(facts["residual"], True)

    def test_verify_says_that_nothing_is_authenticated(self) -> None:
        with opened("afq3") as f:
            result = f.verify()
            self.assertEqual((result.ok, result.authenticated, f.authenticated), (True, False, False))
            self.assertFalse(f.verify(require=["signature"]).ok)

    def test_views_outlive_the_file(self) -> None:
        f = opened("afq3")
        view = f.raw(Q)
        f.close()
        self.assertEqual(bytes(view), Folder.real("afq3")[Q + ".weight"].data)


class Shapes(FolderTest):
    """Sections 5 and 6: the logical shape and label of each family, in layers that are made anew."""

    def infos(self, layers: dict[str, Any]) -> dict[str, Any]:
        tensors = {}
        for key, layer in layers.items():
            tensors.update(named(key, layer))
        with UqffFile(self.place(Folder.of(tensors))) as f:
            self.assertEqual(len(f.layers), len(layers))
            return {t.name: t for t in f.tensors()}

    def test_shape_label_and_family(self) -> None:
        rows: list[tuple[dict[str, Any], tuple[int, ...], str, str]] = [
            (gguf(code, 3, 256), (3, 256), label, "gguf") for code, (label, _, _) in GGML.items()
        ]
        rows += [
            (gguf(8, 2, 3, 64), (2, 3, 64), "q8_0", "gguf"), (gguf(8, 64), (64,), "q8_0", "gguf"),
            (unquant("BF16", 3, 5), (3, 5), "unquant", "unquant"), (unquant("F32", 2, 3, 5), (2, 3, 5), "unquant", "unquant"),
            (fp8(3, 5), (3, 5), "fp8", "fp8"), (f8q8(10, 10), (10, 10), "f8q8", "f8q8"),
            (mxfp4(3, 64), (3, 64), "mxfp4", "mxfp4"), (mxfp4(2, 3, 64), (2, 3, 64), "mxfp4", "mxfp4"),
        ]  # fmt: skip
        rows += [
            (afq(b, 3, 128, group=g), (3, 128), "afq%d" % b, "afq") for b in (2, 3, 4, 6, 8) for g in (32, 64, 128)
        ]
        rows += [(afq(6, 2, 3, 64), (2, 3, 64), "afq6", "afq")]
        rows += [(hqq(b, 3, 80, group=80), (3, 80), "hqq%d" % b, "hqq") for b in (8, 4, 3, 2, 1)]
        found = self.infos({"l%02d.x" % i: row[0] for i, row in enumerate(rows)})
        for i, (layer, shape, label, family) in enumerate(rows):
            t = found["l%02d.x" % i]
            self.assertEqual((t.shape, t.dtype, t.encoding), (shape, label, family))
            self.assertEqual((t.layers, t.experts), (0, shape[0] if len(shape) == 3 else 0))
            self.assertEqual(t.nbytes, len(layer[""].data))

    def test_values_have_as_many_elements_as_the_shape(self) -> None:
        layers = {
            "a": gguf(8, 2, 3, 64), "b": unquant("F16", 3, 5), "c": fp8(3, 5), "d": f8q8(10, 10), "e": mxfp4(2, 3, 64),
            "f": afq(3, 3, 128, group=32), "g": hqq(3, 3, 80, group=80), "h": hqq(3, 2, 64), "i": hqq(1, 2, 64),
        }  # fmt: skip
        tensors = {}
        for key, layer in layers.items():
            tensors.update(named(key, layer))
        with UqffFile(self.place(Folder.of(tensors))) as f:
            for key in layers:
                n = 1
                for d in f.info(key).shape:
                    n *= d
                self.assertEqual(len(f.get_tensor(key)), n, key)

    def test_unquant_values_are_the_tensor(self) -> None:
        for name in ("F32", "F16", "BF16"):
            tensor = smooth(name, 3, 5)
            wanted = [(b - 128) / 64 for b in noise(15)]
            with UqffFile(self.place(Folder.of(named("a", {**unquant(name, 3, 5), "": tensor})))) as f:
                self.assertEqual(list(f.get_tensor("a")), wanted)

    def test_an_afq_row_is_one_stream_of_bits(self) -> None:
        # element j occupies bits j·bits …, bit 0 the lowest of word 0; value = bias + code·scale
        for bits in (2, 3, 4, 6, 8):
            layer = afq(bits, 3, 64, group=32)
            words = layer[""].data
            row_bytes = 64 * bits // 8
            scales = struct.unpack("<6f", layer[".scales"].data)
            biases = struct.unpack("<6f", layer[".biases"].data)
            wanted = []
            for r in range(3):
                stream = int.from_bytes(words[r * row_bytes : (r + 1) * row_bytes], "little")
                for j in range(64):
                    code = stream >> j * bits & ((1 << bits) - 1)
                    wanted.append(biases[2 * r + j // 32] + code * scales[2 * r + j // 32])
            with UqffFile(self.place(Folder.of(named("a", layer)))) as f:
                self.assertEqual(list(f.get_tensor("a")), wanted)  # exact: all are small multiples of 1/64

    def test_hqq_packs_blocks_of_rows_the_first_in_the_highest_bits(self) -> None:
        fields = {8: (0,), 4: (4, 0), 2: (6, 4, 2, 0), 1: tuple(range(7, -1, -1)), 3: tuple(range(27, -1, -3))}
        for bits, shifts in fields.items():
            group, columns = 40, 4
            layer = hqq(bits, 2, 80, group=group)
            size = 4 if bits == 3 else 1
            data = layer[""].data
            words = [int.from_bytes(data[i : i + size], "little") for i in range(0, len(data), size)]
            step = -(-group // len(shifts))
            scales = struct.unpack("<4f", layer[".scales"].data)
            zero = struct.unpack("<4f", layer[".zeros"].data)
            wanted = []
            for flat in range(160):
                row, column = divmod(flat, columns)
                code = words[row % step * columns + column] >> shifts[row // step] & ((1 << bits) - 1)
                wanted.append((code - zero[column]) * scales[column])
            with UqffFile(self.place(Folder.of(named("a", layer)))) as f:
                self.assertEqual(list(f.get_tensor("a")), wanted, bits)

    def test_three_bits_drop_the_rows_that_pad_to_ten(self) -> None:
        layer = hqq(3, 2, 64)  # 64 rows are padded to 70: 7 words a column
        words = [w for (w,) in struct.iter_unpack("<I", layer[""].data)]
        self.assertEqual(layer[""].shape, (7, 2))
        scales, zero = (struct.unpack("<2f", layer[s].data) for s in (".scales", ".zeros"))
        wanted = []
        for flat in range(128):
            row, column = divmod(flat, 2)
            code = words[row % 7 * 2 + column] >> (27 - 3 * (row // 7)) & 7
            wanted.append((code - zero[column]) * scales[column])
        with UqffFile(self.place(Folder.of(named("a", layer)))) as f:
            self.assertEqual(list(f.get_tensor("a")), wanted)

    def test_mxfp4_and_fp8_and_f8q8_by_hand(self) -> None:
        mx, f8, fq = mxfp4(2, 32), fp8(2, 8), f8q8(2, 20)
        tensors = {**named("a", mx), **named("b", f8), **named("c", fq)}
        e2m1 = [0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6]

        def e4m3(b: int) -> float:
            e, m = b >> 3 & 15, b & 7
            value = m * 2.0**-9 if e == 0 else (8 + m) * 2.0 ** (e - 10)
            return float("nan") if b & 127 == 127 else -value if b & 128 else value

        with UqffFile(self.place(Folder.of(tensors))) as f:
            wanted = [
                e2m1[mx[""].data[i // 2] >> 4 * (i % 2) & 15] * 2.0 ** (mx[".scales"].data[i // 32] - 127) for i in range(64)
            ]  # fmt: skip
            self.assertEqual(list(f.get_tensor("a")), wanted)
            self.assertEqual([v if v == v else None for v in f.get_tensor("b")], [
                e4m3(b) * 0.5 if b & 127 != 127 else None for b in f8[""].data])  # fmt: skip
            wanted = []
            for i in range(40):
                block = fq[""].data[33 * (i // 32) :][:33]
                scale = struct.unpack("<f", struct.pack("<f", e4m3(block[0]) / 416))[0]
                code = struct.unpack_from("b", block, 1 + i % 32)[0]
                wanted.append(struct.unpack("<f", struct.pack("<f", code * scale))[0])
            self.assertEqual(list(f.get_tensor("c")), wanted)

    def test_a_zero_scale_of_mxfp4_is_zero_and_255_is_infinite(self) -> None:
        layer = mxfp4(2, 32)
        layer[""] = layer[""]._replace(data=bytes([0x17]) * 32)
        layer[".scales"] = layer[".scales"]._replace(data=b"\x00\xff")
        with UqffFile(self.place(Folder.of(named("a", layer)))) as f:
            values = list(f.get_tensor("a"))
        self.assertEqual(values[:32], [0.0] * 32)
        self.assertEqual(values[32:], [float("inf")] * 32)


class Rows(FolderTest):
    def test_rows_are_a_part_of_the_whole(self) -> None:
        for name, key in (
            ("afq3", Q), ("bias-q8_0", Q), ("f8q8", Q), ("fp8", Q), ("hqq4", Q), ("mxfp4", Q), ("q2k", DOWN),
            ("odd100-afq4", Q),
        ):  # fmt: skip
            with opened(name) as f:
                whole, (height, width) = f.get_tensor(key), f.info(key).shape
                for a, b in ((0, height), (0, 1), (3, 7), (height - 1, height), (5, 5), (7, 3)):
                    self.assertEqual(
                        f.get_tensor(key, rows=slice(a, b)), whole[a * width : max(a, b) * width], (name, a, b)
                    )
                self.assertEqual(f.get_tensor(key, rows=slice(-2, None)), whole[(height - 2) * width :])
                self.assertEqual(f.get_tensor(key, rows=slice(None)), whole)
                self.assertIsInstance(raised(f.get_tensor, key, rows=slice(0, 4, 2)), UsageError)
                self.assertIsInstance(raised(f.get_tensor, key, expert=0), UsageError)

    def test_experts_are_the_parts_of_a_stack(self) -> None:
        for name in ("moe-q4_0", "moe-afq4"):
            with opened(name) as f:
                whole, (experts, height, width) = f.get_tensor(STACK), f.info(STACK).shape
                self.assertEqual(f.info(STACK).experts, experts)
                size = height * width
                for e in range(experts):
                    one = whole[e * size : (e + 1) * size]
                    self.assertEqual(f.get_tensor(STACK, expert=e), one)
                    self.assertEqual(f.get_tensor(STACK, expert=e, rows=slice(2, 5)), one[2 * width : 5 * width])
                for e in (-1, experts):
                    self.assertIsInstance(raised(f.get_tensor, STACK, expert=e), UsageError)
                self.assertIsInstance(raised(f.get_tensor, STACK, rows=slice(0, 1)), UsageError)

    def test_stacks_of_every_family_that_has_them(self) -> None:
        tensors = {
            **named("a", gguf(2, 3, 4, 64)), **named("b", afq(3, 3, 4, 64)), **named("c", unquant("F16", 3, 4, 64)),
            **named("d", mxfp4(3, 4, 64)), **named("e", gguf(0, 3, 4, 64)),
        }  # fmt: skip
        with UqffFile(self.place(Folder.of(tensors))) as f:
            for key in "abcd":
                whole = little(f.get_tensor(key))
                self.assertEqual(whole, b"".join([little(f.get_tensor(key, expert=e)) for e in range(3)]))

    def test_biases_and_residual_have_no_experts(self) -> None:
        with opened("bias-q8_0") as f:
            for name in (Q + ".bias", "model.norm.weight"):
                self.assertIsInstance(raised(f.get_tensor, name, expert=0), UsageError)


class Places(FolderTest):
    """vqfref.open, check and sniff on folders and shards."""

    def test_folder_shard_and_quant_open_the_same_artifact(self) -> None:
        path = str(FILES / "q2k")
        with opened("q2k") as f:
            keys = f.keys()
        for place in (
            path,
            path + "/",
            path + "/q2k-0.uqff",
            path + "/q2k-2.uqff",
            path + "/q2k",
            path + "/Q2K",
            path + "/2",
        ):
            with vqfref.open(place) as f:
                self.assertEqual((f.format, f.keys()), ("uqff", keys), place)
            self.assertEqual(vqfref.sniff(place), "uqff")
            self.assertEqual([x.code for x in vqfref.check(place)], ["uqff.s2.missing", "uqff.s3.missing"], place)

    def test_the_residual_by_itself_is_a_safetensors_file(self) -> None:
        with vqfref.open(str(FILES / "q2k" / RESIDUAL)) as f:
            self.assertEqual(f.format, "safetensors")

    def test_a_folder_inside_the_current_one_needs_no_slash(self) -> None:
        before = os.getcwd()
        try:
            os.chdir(str(FILES / "q2k"))
            for place in (".", "q2k-1.uqff", "q2k", "2"):
                with vqfref.open(place) as f:
                    self.assertEqual(f.format, "uqff", place)
        finally:
            os.chdir(before)

    def test_missing_places_are_errors_of_the_system(self) -> None:
        for place in (self.base + "/nothing", self.base + "/nothing/q4k"):
            with self.assertRaises(OSError):
                vqfref.open(place)

    def test_a_folder_of_the_shard_s_name_is_an_error_of_the_system(self) -> None:
        path = self.place(Folder.real("afq3"))
        os.mkdir(os.path.join(path, "afq3-1.uqff"))
        with self.assertRaises(OSError):
            UqffFile(path)

    def test_nothing_of_the_payload_is_read_to_open(self) -> None:
        # a folder of sparse files: a header, and behind it 3 GiB that nobody wrote
        size = 3 << 30
        layer = gguf(0, 1, 1)
        tensors = named("model.x", layer)
        folder = Folder.of(tensors)
        name = folder.first

        def stretch(h: dict[str, Any]) -> None:
            end = max(e["data_offsets"][1] for n, e in h.items() if n != "__metadata__")
            h["z.z"] = {"dtype": "U8", "shape": [size], "data_offsets": [end, end + size]}

        folder.relabel(stretch)
        path = self.place(folder)
        with open(os.path.join(path, name), "r+b") as file:
            file.truncate(len(folder.content(name)) + size)
        with UqffFile(path) as f:
            self.assertEqual(len(f.get_tensor("model.x")), 1)
        self.assertEqual([x.code for x in vqfref.check(path)], ["uqff.e1.name"])

    def test_a_closed_file_lets_go_of_its_shards(self) -> None:
        f = opened("q2k")
        f.close()
        self.assertIsInstance(raised(f.get_tensor, Q), UsageError)

    def test_version_entries_belong_to_no_layer(self) -> None:
        with opened("afq3") as f:
            for name in VERSION_NAMES:
                self.assertNotIn(name, f.keys())
                self.assertIn(name, f.entries())

    def test_a_report_beside_it_changes_no_value(self) -> None:
        path = self.edited(
            "topo1-q4_0", lambda f: f.report(lambda r: r["outputs"][0]["layer_details"].clear()), report=True
        )
        with UqffFile(path) as f, opened("topo1-q4_0") as g:
            self.assertIn(REPORT, os.listdir(path))
            for key in g:
                self.assertEqual(f.get_tensor(key), g.get_tensor(key))

    def test_empty_residuals_are_legal(self) -> None:
        path = self.edited("afq3", lambda f: f.files.update({RESIDUAL: build({})}))
        with UqffFile(path) as f:
            self.assertEqual(f.keys(), list(f.layers))
        self.assertEqual(vqfref.check(path), [])

    def test_a_residual_of_scalars_and_empty_tensors_is_legal(self) -> None:
        residual = build({"a": zeros("F32"), "b.weight": zeros("I64", 0, 3), "c": zeros("BOOL", 5)}, {"format": "pt"})
        path = self.edited("afq3", lambda f: f.files.update({RESIDUAL: residual}))
        with UqffFile(path) as f:
            self.assertEqual(f.keys()[-3:], ["a", "b.weight", "c"])
            self.assertEqual(list(f.get_tensor("c")), [0.0] * 5)


if __name__ == "__main__":
    unittest.main()

"""The command line on UQFF: info, ls, check, verify, hash, cat, diff, uqff slice; report, verify and inspect have tests of
their own (test_uqff_report.py, test_uqff_verify.py)."""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import struct
import unittest
from contextlib import redirect_stderr, redirect_stdout

from tests.uqff_samples import (
    FILES,
    MINOR,
    REAL,
    RESIDUAL,
    Folder,
    FolderTest,
    afq,
    expected,
    gguf,
    named,
    parse,
    real_shard,
    smooth,
    u8,
    u32,
    unquant,
)
from vqfref.cli import main

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

Q = "model.layers.0.self_attn.q_proj"
STACK = "model.layers.0.mlp.experts.down_proj"
SHAPE_OF_JSON = {"file", "format", "ok", "findings"}
KEYS_OF_FINDING = {"code", "severity", "path", "offset", "field", "message", "engine"}


class Output(io.TextIOWrapper):
    """Standard output that takes text and bytes, and keeps them."""

    def __init__(self) -> None:
        self.bytes = io.BytesIO()
        super().__init__(self.bytes, encoding="utf-8", write_through=True)


def run(*args: str) -> tuple[int, str, str, bytes]:
    """(exit code, text, standard error, bytes) of a command."""
    out, err = Output(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        code = main(list(args))
        out.flush()
    data = out.bytes.getvalue()
    return code, data.decode("utf-8", "replace"), err.getvalue(), data


def place(name: str, *more: str) -> str:
    return os.path.join(str(FILES / name), *more)


def scaled(folder: Folder, suffix: str) -> None:
    """Another scale for the first group of a layer."""
    t = folder[Q + ".weight" + suffix]
    first = bytes([t.data[0] ^ 1]) if t.dtype == "U8" else struct.pack("<f", 100.0)
    folder[Q + ".weight" + suffix] = t._replace(data=first + t.data[len(first) :])


class Show(FolderTest):
    def test_info_tells_version_layers_and_residual(self) -> None:
        for args in (("info", place("topo1-q4_0")), (place("topo1-q4_0"),), ("info", place("topo1-q4_0", "q4_0"))):
            code, out, err, _ = run(*args)
            self.assertEqual((code, err), (0, ""))
            for words in ("UQFF 1.2.0", "16 layers", "mistral.rs 0.9.5", "q4_0-0.uqff", "authenticates nothing"):
                self.assertIn(words, out)
            for label, n in (("q4_0", 7), ("q5_0", 6), ("afq4", 1)):
                self.assertRegex(out, r"(?m)^layers +%s +%d  " % (label, n))

    def test_info_as_json_has_the_common_shape(self) -> None:
        for name in REAL:
            code, out, _, _ = run("info", place(name), "--json")
            result = json.loads(out)
            self.assertEqual((code, result["format"], result["ok"]), (0, "uqff", True))
            self.assertLessEqual(SHAPE_OF_JSON | {"metadata"}, set(result))
            for f in result["findings"]:
                self.assertEqual(set(f), KEYS_OF_FINDING)
            self.assertEqual(result["metadata"]["layers"], len(expected(name)))

    def test_ls_lists_layers_biases_and_residual(self) -> None:
        for name in ("bias-q8_0", "moe-q4_0"):
            code, out, _, _ = run("ls", place(name))
            self.assertEqual(code, 0)
            for layer in expected(name):
                line = next(x for x in out.splitlines() if re.search(r"(^|\s)%s(\s|$)" % re.escape(layer["key"]), x))
                self.assertIn(layer["stored"], line)
            for key in real_shard(name, RESIDUAL)[1]:
                self.assertIn(key, out)
        self.assertIn(Q + ".bias", run("ls", place("bias-q8_0"))[1])

    def test_ls_as_json_has_shapes_and_places(self) -> None:
        code, out, _, _ = run("ls", place("moe-afq4"), "--json")
        self.assertEqual(code, 0)
        rows = {t["name"]: t for t in json.loads(out)["tensors"]}
        for layer in expected("moe-afq4"):
            self.assertEqual(rows[layer["key"]]["shape"], layer["shape"])

    def test_a_folder_of_several_sets_is_a_usage_error_that_lists_them(self) -> None:
        def edit(folder: Folder) -> None:
            folder.shards["q8_0-0.uqff"] = (None, dict(folder.shards[folder.first][1]))

        path = self.edited("afq3", edit)
        for verb in ("info", "ls", "hash", "verify"):
            code, _, err, _ = run(verb, path)
            self.assertEqual(code, 2)
            self.assertIn("afq3", err)
            self.assertIn("q8_0", err)
            self.assertEqual(run(verb, os.path.join(path, "q8_0"))[0], 0)

    def test_missing_shards_and_folders(self) -> None:
        self.assertEqual(run("info", place("afq3", "nothing.uqff"))[0], 1)
        self.assertEqual(run("info", os.path.join(self.base, "nothing"))[0], 3)


class Judge(FolderTest):
    def test_check_of_a_sound_folder_is_clean(self) -> None:
        code, out, _, _ = run("check", self.edited("afq3", lambda f: None, report=True))
        self.assertEqual((code, out), (0, "clean; the engine would load this folder\n"))

    def test_check_prints_every_finding_and_the_engines_word(self) -> None:
        for edit, code_of, word in (
            (lambda f: f.shards[f.first][1].update({Q + ".weight.bits": u8(5)}), "uqff.a1.range", "refuses this folder"),
            (lambda f: f.shards[f.first][1].update({Q + ".bias": smooth("F32", 3)}), "uqff.b1.shape", "would load this folder"),
        ):  # fmt: skip
            path = self.edited("afq3", edit)
            code, out, _, _ = run("check", path)
            self.assertEqual(code, 1)
            lines = out.splitlines()
            self.assertEqual(len(lines), 2)
            self.assertRegex(lines[0], r"^error\[%s\] @0x[0-9a-f]+ %s" % (re.escape(code_of), re.escape(Q)))
            self.assertIn("1 error", lines[1])
            self.assertIn(word, lines[1])
            result = json.loads(run("check", path, "--json")[1])
            self.assertEqual((result["ok"], result["format"], len(result["findings"])), (False, "uqff", 1))

    def test_a_finding_about_one_of_the_shards_names_it(self) -> None:
        def cut(f: Folder) -> None:
            f.shards[f.first][1][Q + ".weight.bits"] = u8(5)

        path = self.edited("afq3", cut)
        (shard,) = [n for n in os.listdir(path) if n.endswith(".uqff")]
        for argv in (("check", path), ("info", path), ("uqff", "verify", path)):
            lines = [n for n in run(*argv)[1].splitlines() if "uqff.a1.range" in n]
            self.assertEqual([n.endswith("(in %s)" % shard) for n in lines], [True], argv)

    def test_check_finds_what_open_refuses(self) -> None:
        path = self.edited("afq3", lambda f: f.shards[f.first][1].update({MINOR: u32(3)}))
        code, out, _, _ = run("check", path)
        self.assertEqual((code, "error[uqff.v6.version]" in out), (1, True))
        code, _, err, _ = run("info", path)
        self.assertEqual((code, "uqff.v6.version" in err), (1, True))

    def test_warnings_count_only_strictly(self) -> None:
        path = self.edited("afq3", lambda f: f.files.pop("tokenizer.json"))
        self.assertEqual((run("check", path)[0], run("check", path, "--strict")[0]), (0, 1))

    def test_verify_says_that_there_is_nothing_to_authenticate(self) -> None:
        code, out, _, _ = run("verify", place("afq3"))
        self.assertEqual((code, "authentication: not checked" in out), (0, True))
        self.assertNotIn("verified", out)
        self.assertEqual(run("verify", place("afq3"), "--require", "signature")[0], 1)
        path = self.edited("afq3", lambda f: f.shards[f.first][1].update({Q + ".weight.bits": u8(5)}))
        self.assertEqual(run("verify", path)[0], 1)

    def test_names_of_the_file_can_not_write_to_the_terminal(self) -> None:
        path = self.place(Folder.of({"a\x1b[31m.b": u8(0), **named("c\x07", gguf(8, 1, 32))}))
        for verb in (("check",), ("ls",), ("info",), ("hash",), ("uqff", "verify"), ("uqff", "inspect")):
            _, out, err, _ = run(*verb, path)
            for c in "\x1b\x07":
                self.assertNotIn(c, out + err, verb)


class Hash(FolderTest):
    def test_values_hash_to_what_is_expected(self) -> None:
        for name in ("afq3", "hqq4", "moe-q4_0", "q2k"):
            code, out, _, _ = run("hash", place(name), "--as", "f32")
            self.assertEqual(code, 0)
            found = {line.split("  ", 1)[1]: line.split("  ", 1)[0] for line in out.splitlines()}
            for layer in expected(name):
                self.assertEqual(found[layer["key"]], layer["f32_sha256"])

    def test_stored_bytes_are_the_payload(self) -> None:
        _, out, _, _ = run("hash", place("bias-q8_0"))
        found = {line.split("  ", 1)[1]: line.split("  ", 1)[0] for line in out.splitlines()}
        tensors = real_shard("bias-q8_0", "q8_0-0.uqff")[1]
        self.assertIn(hashlib.sha256(tensors[Q + ".weight"].data).hexdigest(), (found.get(Q), found.get(Q + ".weight")))
        self.assertEqual(found[Q + ".bias"], hashlib.sha256(tensors[Q + ".bias"].data).hexdigest())
        for key, t in real_shard("bias-q8_0", RESIDUAL)[1].items():
            self.assertEqual(found[key], hashlib.sha256(t.data).hexdigest())

    def test_a_list_is_compared(self) -> None:
        _, out, _, _ = run("hash", place("afq3"))
        path = self.new()
        with open(path, "w", encoding="utf-8") as file:
            file.write(out)
        self.assertEqual(run("hash", place("afq3"), "--check", path)[0], 0)

        def flip(folder: Folder) -> None:
            t = folder[Q + ".weight"]
            folder[Q + ".weight"] = t._replace(data=bytes([t.data[0] ^ 1]) + t.data[1:])

        code, out, _, _ = run("hash", self.edited("afq3", flip), "--check", path)
        failed = [x for x in out.splitlines() if not x.endswith(": ok")]
        self.assertEqual((code, len(failed)), (1, 1))
        self.assertRegex(failed[0], r"^%s(\.weight)?: FAILED$" % re.escape(Q))

    def test_a_list_knows_more_of_a_layer_than_its_payload(self) -> None:
        _, out, _, _ = run("hash", place("afq3"))
        path = self.new()
        with open(path, "w", encoding="utf-8") as file:
            file.write(out)
        for suffix in (".scales", ".biases"):
            code, out, _, _ = run("hash", self.edited("afq3", lambda f, s=suffix: scaled(f, s)), "--check", path)
            self.assertEqual((code, "FAILED" in out), (1, True), suffix)


class Cat(FolderTest):
    def test_stored_f32_npy_and_text(self) -> None:
        tensors = named("a.b", unquant("F16", 3, 4))
        path = self.place(Folder.of(tensors))
        values = [struct.unpack("<e", tensors["a.b.weight"].data[2 * i : 2 * i + 2])[0] for i in range(12)]
        wanted = struct.pack("<12f", *values)
        self.assertEqual(run("cat", path, "a.b")[3], tensors["a.b.weight"].data)
        self.assertEqual(run("cat", path, "a.b", "--as", "f32")[3], wanted)
        npy = run("cat", path, "a.b", "--as", "npy")[3]
        self.assertEqual((npy[:8], npy[-48:]), (b"\x93NUMPY\x01\x00", wanted))
        self.assertIn(b"'shape': (3, 4)", npy)
        text = run("cat", path, "a.b", "--as", "text")[1]
        self.assertEqual(
            [[float(v) for v in line.split()] for line in text.splitlines()], [values[0:4], values[4:8], values[8:]]
        )

    def test_rows_of_a_matrix(self) -> None:
        whole = run("cat", place("afq3"), Q, "--as", "f32")[3]
        self.assertEqual(run("cat", place("afq3"), Q, "--as", "f32", "--rows", "2:5")[3], whole[2 * 256 : 5 * 256])
        self.assertIn(b"'shape': (3, 64)", run("cat", place("afq3"), Q, "--as", "npy", "--rows", "2:5")[3])

    def test_experts_of_a_stack(self) -> None:
        (layer,) = [x for x in expected("moe-q4_0") if x["key"] == STACK]
        experts, height, width = layer["shape"]
        whole = run("cat", place("moe-q4_0"), STACK, "--as", "f32")[3]
        self.assertEqual(hashlib.sha256(whole).hexdigest(), layer["f32_sha256"])
        size = 4 * height * width
        for e in range(experts):
            self.assertEqual(
                run("cat", place("moe-q4_0"), STACK, "--as", "f32", "--expert", str(e))[3], whole[e * size :][:size]
            )
        npy = run("cat", place("moe-q4_0"), STACK, "--as", "npy", "--expert", "1", "--rows", "0:3")[3]
        self.assertIn(("'shape': (3, %d)" % width).encode(), npy)
        self.assertEqual(npy[-12 * width :], whole[size : size + 12 * width])
        npy = run("cat", place("moe-q4_0"), STACK, "--as", "npy")[3]
        self.assertIn(("'shape': (%d, %d, %d)" % (experts, height, width)).encode(), npy)

    def test_what_can_not_be_selected_is_a_usage_error(self) -> None:
        for args in (
            (STACK, "--as", "f32", "--expert", "99"), (STACK, "--as", "f32", "--rows", "0:1"), (STACK, "--expert", "0"),
            (Q, "--as", "f32", "--expert", "0"), (Q, "--as", "f32", "--layer", "0"), ("nothing",), (Q, "--rows", "0:1"),
        ):  # fmt: skip
            self.assertEqual(run("cat", place("moe-q4_0"), *args)[0], 2, args)

    def test_a_faulty_layer_is_refused_and_another_is_not(self) -> None:
        path = self.edited("afq3", lambda f: f.shards[f.first][1].update({Q + ".weight.bits": u8(5)}))
        code, _, err, _ = run("cat", path, Q, "--as", "f32")
        self.assertEqual((code, "uqff.a1.range" in err), (1, True))
        self.assertEqual(run("cat", path, "lm_head", "--as", "f32")[0], 0)


class Diff(FolderTest):
    def test_the_same_folder_differs_in_nothing(self) -> None:
        for name in ("afq3", "bias-q8_0", "moe-q4_0"):
            code, out, _, _ = run("diff", place(name), self.edited(name, lambda f: f.split(3)))
            self.assertEqual((code, out.splitlines()[-1].split()[0]), (0, "0"))

    def test_another_payload_is_found(self) -> None:
        def flip(folder: Folder) -> None:
            t = folder[Q + ".weight"]
            folder[Q + ".weight"] = t._replace(data=bytes([t.data[0] ^ 1]) + t.data[1:])

        code, out, _, _ = run("diff", place("afq3"), self.edited("afq3", flip))
        self.assertEqual((code, Q in out, out.splitlines()[-1].split()[0]), (1, True, "1"))

    def test_another_scale_under_the_same_payload_is_found(self) -> None:
        for name, suffix in (("afq3", ".scales"), ("afq3", ".biases"), ("hqq4", ".zeros"), ("mxfp4", ".scales"), (
            "fp8", ".dequant_w_scale")):  # fmt: skip
            code, out, _, _ = run("diff", place(name), self.edited(name, lambda f, s=suffix: scaled(f, s)))
            self.assertEqual((code, Q in out, out.splitlines()[-1].split()[0]), (1, True, "1"), (name, suffix))

    def test_equal_values_in_another_encoding_are_the_same(self) -> None:
        values = smooth("F32", 2, 8)
        a = self.place(Folder.of(named("x", {**unquant("F32", 2, 8), "": values})))
        layer = gguf(0, 2, 8)
        layer[""] = layer[""]._replace(data=values.data, shape=(len(values.data),))
        b = self.place(Folder.of(named("x", layer)))
        self.assertEqual(run("diff", a, b)[0], 0)

    def test_missing_layers_and_other_shapes_are_differences(self) -> None:
        a = self.place(Folder.of({**named("x", afq(4, 2, 64)), **named("y", gguf(8, 1, 32))}))
        b = self.place(Folder.of(named("x", afq(4, 4, 64))))
        code, out, _, _ = run("diff", a, b)
        self.assertEqual(code, 1)
        self.assertTrue(out.splitlines()[-1].startswith("2 of "))


class Slice(FolderTest):
    def run_slice(self, *args: str) -> Any:
        return run("uqff", "slice", *args)

    def test_a_slice_is_written_as_safetensors(self) -> None:
        path = self.new()
        code, out, _, _ = self.run_slice(place("bias-q8_0"), Q, "--dim", "0", "--rank", "1", "--world", "2", "-o", path)
        self.assertEqual(code, 0)
        with open(path, "rb") as file:
            _, found = parse(file.read())
        whole = real_shard("bias-q8_0", "q8_0-0.uqff")[1]
        rows = struct.unpack("<2I", whole[Q + ".weight.shape"].data)[0]
        weight = whole[Q + ".weight"].data
        self.assertEqual(found[Q + ".weight"].data, weight[len(weight) // 2 :])
        self.assertEqual(struct.unpack("<2I", found[Q + ".weight.shape"].data), (rows // 2, 64))
        self.assertEqual(found[Q + ".bias"].data, whole[Q + ".bias"].data[2 * rows :])
        self.assertEqual(found[Q + ".weight.format"], whole[Q + ".weight.format"])
        self.assertIn("[%d, 64]" % (rows // 2), out)

    def test_json_lists_the_pieces(self) -> None:
        code, out, _, _ = self.run_slice(
            place("afq3", "3"), Q, "--dim", "0", "--start", "8", "--length", "16", "--json"
        )
        result = json.loads(out)
        self.assertEqual((code, result["ok"], result["shape"]), (0, True, [16, 64]))
        self.assertEqual({t["name"][len(Q) :]: t["shape"] for t in result["tensors"]}, {
            ".weight": [16, 6], ".weight.scales": [16, 1], ".weight.biases": [16, 1], ".weight.format": [], ".weight.bits": [],
            ".weight.group_size": []})  # fmt: skip

    def test_what_the_engine_refuses_is_a_usage_error(self) -> None:
        for name, args in (
            ("afq3", ("--dim", "1", "--rank", "0", "--world", "2")), ("afq3", ("--dim", "2", "--rank", "0", "--world", "1")),
            ("afq3", ("--dim", "0", "--rank", "0", "--world", "3")), ("afq3", ("--dim", "0", "--rank", "0", "--world", "0")),
            ("hqq4", ("--dim", "0", "--rank", "0", "--world", "2")), ("afq3", ("--dim", "0", "--rank", "0")),
            ("afq3", ("--dim", "0")),
        ):  # fmt: skip
            code, out, err, _ = self.run_slice(place(name), Q, *args)
            self.assertEqual((code, out), (2, ""), args)
            self.assertTrue(err)
        self.assertEqual(self.run_slice(place("afq3"), "nothing", "--dim", "0", "--rank", "0", "--world", "1")[0], 2)

    def test_a_faulty_layer_is_a_bad_file(self) -> None:
        path = self.edited("afq3", lambda f: f.shards[f.first][1].update({Q + ".weight.bits": u8(5)}))
        self.assertEqual(self.run_slice(path, Q, "--dim", "0", "--rank", "0", "--world", "1")[0], 1)

    def test_other_formats_have_no_slices(self) -> None:
        path = place("afq3", RESIDUAL)
        self.assertEqual(self.run_slice(path, "model.norm.weight", "--dim", "0", "--rank", "0", "--world", "1")[0], 2)


if __name__ == "__main__":
    unittest.main()

"""The audit of VQF files: each fault alone, faults together, and the odd things that are no fault."""

from __future__ import annotations

import struct
import unittest
from collections import Counter

from tests import faults
from tests.samples import (
    F32,
    LM_TAIL,
    MODELS,
    REAL,
    WORD,
    Row,
    arch,
    at,
    build,
    fnv1a64,
    lay_out,
    model,
    page_after_directory,
    patch,
    place_of,
    real,
    reseal,
    row,
    text_rows,
    vision_rows,
    without,
)  # fmt: skip
from tests.tools import LONG, thorough
from vqfref.errors import FormatError, LimitError, UnsupportedError, VqfrefError
from vqfref.findings import MAX_OF_A_CODE, SEVERITIES, Findings
from vqfref.source import Source
from vqfref.vqf.audit import audit
from vqfref.vqf.reader import VqfFile

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

FORM_432 = "vqf.form.policy"
ENCRYPTED = "vqf.data.policy"


def facts(finding: Any) -> tuple[Any, ...]:
    """What the table of faults says about a finding."""
    return (finding.code, finding.severity, finding.offset, finding.field, finding.engine)


def codes(data: bytes, **how: Any) -> list[str]:
    return [f.code for f in audit(Source(data), **how)]


class Samples(unittest.TestCase):
    """The builder of the tests, held against files and sizes that are not its own."""

    def test_builder_writes_the_real_files_header_and_directory(self) -> None:
        for form, real_bytes in ((448, faults.PLAIN), (432, faults.PLAIN_432)):
            self.assertEqual(model("mini", form)[:4096], real_bytes[:4096])
            self.assertEqual(len(model("mini", form)), len(real_bytes))

    def test_checksum_of_the_tests_is_that_of_the_real_files(self) -> None:
        self.assertEqual(fnv1a64(b"a"), 0xAF63DC4C8601EC8C)  # from the authors' own vectors
        self.assertEqual(fnv1a64(b"foobar"), 0x85944171F73967E8)
        for form, real_bytes in ((448, faults.PLAIN), (432, faults.PLAIN_432)):
            self.assertEqual(reseal(real_bytes, form), real_bytes)

    def test_rows_of_known_models_have_their_published_sizes(self) -> None:
        qwen = arch(
            dim=2048, n_layers=28, n_heads=16, n_kv_heads=8, head_dim=128, ffn_dim=6144, vocab_size=151936,
            vis_depth=24, vis_hidden=1024, vis_ffn=4096, vis_patch=16, vis_temporal=2, vis_merge=2, vis_out_dim=2048,
            vis_max_pos=2304, vis_ds_count=3,
        )  # fmt: skip
        moe = arch(
            dim=2048, n_layers=48, n_heads=32, n_kv_heads=4, head_dim=128, ffn_dim=128 * 768, vocab_size=151936,
            n_experts=128, moe_ffn=768, top_k=8,
        )  # fmt: skip
        for rows, count, size in (
            (text_rows(qwen) + vision_rows(qwen), 41, 2331316224 + 8),
            (text_rows(qwen, "84") + vision_rows(qwen), 49, 4159295496),
            (text_rows(moe), None, 17665601544),
        ):
            self.assertEqual(len(rows), count or len(rows))
            self.assertEqual(lay_out(rows, page_after_directory(len(rows)))[1] + 8, size)


_made: dict[Any, bytes] = {}


def made(fault: faults.Fault) -> bytes:
    """The bytes of a fault, made once."""
    if fault.make not in _made:
        _made[fault.make] = fault.make()
    return _made[fault.make]


class EachFault(unittest.TestCase):
    def assert_found(self, fault: faults.Fault, findings: list[Any]) -> None:
        """That fault and what follows from it, and nothing else."""
        expected = Counter([(fault.code, fault.field), *fault.also])
        self.assertEqual(Counter((f.code, f.field) for f in findings), expected)
        self.assertIn(fault[2:7], [facts(f) for f in findings])

    def test_audit_finds_each_gate_and_nothing_else(self) -> None:
        for fault in faults.GATES:
            with self.subTest(fault.name):
                self.assert_found(fault, audit(Source(made(fault))))

    def test_reader_refuses_at_each_gate_with_the_facts_of_the_finding(self) -> None:
        for fault in faults.GATES:
            with self.subTest(fault.name):
                with self.assertRaises((FormatError, UnsupportedError)) as caught:
                    VqfFile(Source(made(fault)))
                error = caught.exception
                self.assertEqual((error.code, error.offset, error.field), (fault.code, fault.offset, fault.field))

    def test_audit_finds_what_the_engine_overlooks_and_nothing_else(self) -> None:
        for fault in faults.FINDINGS:
            with self.subTest(fault.name):
                self.assert_found(fault, audit(Source(made(fault))))

    def test_reader_opens_what_the_engine_overlooks(self) -> None:
        for fault in faults.FINDINGS:
            with self.subTest(fault.name):
                file = VqfFile(Source(made(fault)))
                self.assertEqual(len(file.directory), file.header.n_tensors)
                self.assertEqual([t.name for t in file.tensors()], file.keys())

    def test_checksum_is_right_in_every_plain_file_of_the_table(self) -> None:
        for fault in faults.FINDINGS[::5]:
            file = VqfFile(Source(made(fault)))
            if not file.encrypted and not file.metadata()["signed"] and fault.code != "vqf.zeros.truncated":
                with self.subTest(fault.name):
                    self.assertTrue(file.verify().ok)

    def test_verify_finds_a_wrong_or_missing_checksum(self) -> None:
        for fault in faults.VERIFY:
            with self.subTest(fault.name):
                result = VqfFile(Source(made(fault))).verify()
                self.assertEqual([facts(f) for f in result.findings], [fault[2:7]])
                self.assertEqual(result.ok, fault.severity != "error")
                self.assertFalse(result.authenticated)

    @thorough
    def test_more_tensors_than_the_limit_are_the_librarys_fault_and_not_the_files(self) -> None:
        data = faults.LIMIT.make()
        self.assert_found(faults.LIMIT, audit(Source(data)))
        with self.assertRaises(LimitError) as caught:
            VqfFile(Source(data))
        self.assertEqual((caught.exception.code, caught.exception.offset), (faults.LIMIT.code, faults.LIMIT.offset))

    @thorough
    def test_messages_are_safe_for_a_terminal(self) -> None:
        for fault in faults.GATES + faults.FINDINGS:
            for finding in audit(Source(made(fault))):
                self.assertTrue(str(finding).isprintable(), finding)

    def test_names_of_the_faults_differ(self) -> None:
        for table in (faults.GATES, faults.FINDINGS):
            self.assertEqual([n for n, count in Counter(f.name for f in table).items() if count > 1], [])


class SeveralFaults(unittest.TestCase):
    def test_faults_of_every_part_of_a_file_are_reported_at_once_by_offset(self) -> None:
        data = faults.PLAIN
        for offset, value in ((8, 0x27), (196, 1), (240, 1), (at(3, "pad"), 1), (at(7, "qtype"), 9), (1400, 1)):
            data = patch(data, offset, "B", value)
        found = [(f.offset, f.code) for f in audit(Source(reseal(data)))]
        self.assertEqual(
            found,
            [
                (8, "vqf.flags.layout"),
                (196, "vqf.reserved.header"),
                (240, "vqf.reserved.header"),
                (at(3, "pad"), "vqf.reserved.header"),
                (at(7, "qtype"), "vqf.directory.dtype"),
                (1400, "vqf.padding.layout"),
            ],
        )

    def test_all_zero_words_of_arch_are_reported_not_only_the_first(self) -> None:
        data = patch(faults.PLAIN, 16, "I", 0)  # dim
        data = patch(data, 16 + 4 * 6, "I", 0)  # vocab_size
        found = [f.field for f in audit(Source(data)) if f.code == "vqf.arch.header"]
        self.assertEqual(found, ["arch.dim", "arch.vocab_size"])

    def test_zero_word_of_arch_and_wrong_size_are_both_reported(self) -> None:
        self.assertEqual(codes(patch(faults.PLAIN, 16, "I", 0)[:-1]), ["vqf.arch.header", "vqf.size.truncated"])

    def test_every_entry_out_of_bounds_is_reported_not_only_the_first(self) -> None:
        data = faults.PLAIN
        for index in (2, 5, 13):
            data = patch(data, at(index, "offset"), "Q", 1 << 40)
        found = [f.offset for f in audit(Source(reseal(data))) if f.code == "vqf.directory.bounds"]
        self.assertEqual(found, [at(index, "offset") for index in (2, 5, 13)])

    @thorough
    def test_findings_are_ordered_by_offset_and_at_the_same_place_by_severity(self) -> None:
        for fault in faults.GATES + faults.FINDINGS:
            keys = [
                (-1 if f.offset is None else f.offset, SEVERITIES.index(f.severity)) for f in audit(Source(made(fault)))
            ]
            self.assertEqual(keys, sorted(keys), fault.name)

    def test_a_first_gate_hides_what_lies_behind_it(self) -> None:
        # version before size, magic before version: the order of the gates
        self.assertEqual(codes(patch(faults.PLAIN, 0, "II", 0, 1)[:100]), ["vqf.header.magic"])
        self.assertEqual(codes(patch(faults.PLAIN, 4, "I", 1)[:100]), ["vqf.header.version"])
        self.assertEqual(codes(patch(faults.PLAIN, 16, "I", 0)[:100]), ["vqf.file.truncated"])

    def test_a_thousand_findings_of_a_code_are_kept_and_the_last_counts_the_rest(self) -> None:
        self.assertEqual(MAX_OF_A_CODE, 1000)
        rows = [*faults.ROWS, *(row("unknown%d" % i, F32, 16, 1) for i in range(1003))]
        findings = audit(Source(build(arch(), rows, 0x23)))
        self.assertEqual({f.code for f in findings}, {"vqf.plan.name"})
        self.assertEqual(len(findings), 1000)
        self.assertEqual([f.offset for f in findings], [at(14 + i) for i in range(1000)])
        self.assertTrue(findings[-1].message.endswith("(and 3 more of this code)"), findings[-1].message)
        self.assertFalse(any("more of this code" in f.message for f in findings[:-1]))

    def test_a_code_that_is_left_out_does_not_hide_another(self) -> None:
        rows = [*faults.ROWS, *(row("unknown%d" % i, F32, 16, 1) for i in range(1001)), Row("q4_q", 77, 0, 0, 0)]
        counts = Counter(codes(build(arch(), rows, 0x23)))
        self.assertEqual(counts["vqf.plan.name"], 1000)
        self.assertEqual((counts["vqf.directory.dtype"], counts["vqf.directory.duplicate"]), (1, 1))

    def test_a_report_can_be_sorted_twice_and_says_the_same(self) -> None:
        found = Findings(None)
        for i in range(1002):
            found.add("note", "vqf.gap.layout", "m", 1002 - i, None)
        first = [str(f) for f in found.sorted()]
        self.assertEqual([str(f) for f in found.sorted()], first)


class Damaged(unittest.TestCase):
    """One bit or one sector gone: one finding, and it says what it was."""

    def test_a_bit_of_a_word_that_tensors_depend_on_is_found_at_the_word(self) -> None:
        words = ("dim", "n_layers", "n_heads", "n_kv_heads", "head_dim", "ffn_dim", "vocab_size")
        for which, names in (("mini", words), ("layers", words), ("vision", (*words, "vis_hidden", "vis_depth"))):
            a = arch(**MODELS[which][0])
            for name in names:
                for bit in (0, 2, 5, 11, 31) if LONG else (2, 31):
                    value = a[name] ^ 1 << bit
                    with self.subTest(which, word=name, value=value):
                        findings = audit(Source(patch(model(which), WORD[name], "I", value)))
                        found = [(f.code, f.offset, f.field) for f in findings]
                        code = "vqf.arch.shape" if value or name == "n_kv_heads" else "vqf.arch.header"
                        self.assertEqual(found, [(code, WORD[name], "arch." + name)])
                        if value:
                            self.assertIn("%d, but the directory fits %d, one bit apart" % (value, a[name]),
                                          findings[0].message)  # fmt: skip

    def test_other_faults_are_found_beside_the_bit(self) -> None:
        data = patch(patch(faults.PLAIN, WORD["dim"], "I", 36), at(faults.LM, "rows"), "I", 30)
        found = [(f.code, f.field) for f in audit(Source(data))]
        self.assertEqual(
            found, [("vqf.arch.shape", "arch.dim"), ("vqf.plan.shape", "q4_lm"), ("vqf.directory.shape", "q4_lm")]
        )

    def test_a_single_entry_shows_nothing_about_a_word(self) -> None:
        data = patch(faults.PLAIN, at(faults.FINAL_NORM, "rows"), "I", 36)
        self.assertEqual(codes(data), ["vqf.plan.shape", "vqf.directory.shape"])

    def test_entries_behind_the_directory_are_recognised(self) -> None:
        for n, lost in ((12, "q4_down, q4_lm"), (10, "q4_gate, q4_up, q4_down, q4_lm")):
            data = patch(faults.PLAIN, 12, "I", n)
            found = [f for f in audit(Source(data)) if f.code == "vqf.padding.layout" and f.field == "directory"]
            self.assertEqual([f.offset for f in found], [448 + 64 * n])
            self.assertTrue(found[0].message.endswith("; these are directory entries, %s: is n_tensors 14?" % lost))
        data = patch(faults.PLAIN, 448 + 64 * 14, "32s", b"no entry")
        self.assertNotIn("n_tensors", str(audit(Source(data))[0]))

    def test_a_run_of_erased_entries_is_one_finding(self) -> None:
        for n in (15, 30, 46):
            findings = audit(Source(patch(faults.PLAIN, 12, "I", n)))
            self.assertEqual([(f.code, f.offset) for f in findings], [("vqf.erased.name", 448 + 64 * 14)])
            self.assertTrue(findings[0].message.endswith("; none is missing: is n_tensors 14?"))
        for byte, kind in ((0, "zeros"), (255, "ff")):
            findings = audit(Source(patch(faults.PLAIN, 512, "512s", bytes([byte]) * 512)))
            self.assertEqual([(f.code, f.offset, f.engine) for f in findings],
                             [("vqf.erased.name", 512, "refuses" if byte else "accepts"),
                              ("vqf.core.missing", 448 + 64 * 14, "refuses")])  # fmt: skip
            self.assertIn("entries 1 to 8 are nothing but %s" % kind, findings[0].message)
            self.assertIn("final_norm, attn_norm, ffn_norm, q_norm, k_norm, q4_q, q4_k, q4_v", findings[0].message)
        both = patch(patch(faults.PLAIN, at(3), "64s", bytes(64)), at(4), "64s", b"\xff" * 64)
        self.assertEqual([(f.code, f.offset) for f in audit(Source(both))],
                         [("vqf.erased.name", at(3)), ("vqf.erased.name", at(4))])  # fmt: skip

    def test_what_erased_entries_do_not_explain_is_reported(self) -> None:
        data = patch(faults.PLAIN, at(3), "64s", bytes(64))
        data = patch(data, at(7), "4s", b"q9_k")
        counts = Counter(codes(data))
        self.assertEqual((counts["vqf.plan.missing"], counts["vqf.plan.name"]), (2, 1))

    def test_a_misspelt_name_is_told_the_missing_one(self) -> None:
        data = patch(faults.PLAIN, at(faults.FINAL_NORM), "32s", b"fInal_norm")
        found = {f.code: f.message for f in audit(Source(data))}
        self.assertIn("; did you mean final_norm?", found["vqf.plan.name"])
        self.assertIn("vqf.plan.missing", found)
        data = build(arch(), [*faults.ROWS, row("fInal_norm", F32, 16, 1)], 0x23)  # the right one is there
        self.assertNotIn("did you mean", str(audit(Source(data))[0]))

    def test_a_name_of_ff_is_not_printed_in_full(self) -> None:
        data = patch(faults.PLAIN, at(faults.FINAL_NORM), "32s", b"\xff" * 32)
        found = {f.code: f.message for f in audit(Source(data))}
        self.assertEqual(found["vqf.ascii.name"], "32 bytes ff: expected printable ASCII")


class Clean(unittest.TestCase):
    """What must not be found."""

    def test_real_files_have_no_finding_but_what_their_kind_calls_for(self) -> None:
        for name in REAL:
            expected = []
            if name.startswith("h432") and name != "h432-plain":
                expected.append(FORM_432)
            if "enc" in name:
                expected.append(ENCRYPTED)
            with self.subTest(name):
                findings = audit(Source(real(name)))
                self.assertEqual([f.code for f in findings], expected)
                self.assertEqual({f.severity for f in findings} - {"note"}, set())

    def test_models_of_every_kind_are_clean(self) -> None:
        for name in MODELS:
            for form in (448, 432):
                if form == 448 or not MODELS[name][0]["n_experts"]:
                    with self.subTest("%s, %d" % (name, form)):
                        data = model(name, form)
                        self.assertEqual([str(f) for f in audit(Source(data))], [])
                        self.assertEqual(VqfFile(Source(data)).form, form)

    def test_engine_loads_every_clean_file_of_the_448_byte_form(self) -> None:
        for name in REAL[4:]:
            self.assertEqual({f.engine for f in audit(Source(real(name)))} - {"accepts"}, set())

    def test_tensors_of_no_bytes_are_no_fault(self) -> None:
        # the deepstack of a model without one: six tensors of 0 rows and 0 bytes, at the end of the data area
        data = model("no-deepstack")
        offset, nbytes = place_of(data, "v_ds_f2b")
        self.assertEqual((offset, nbytes), (struct.unpack_from("<Q", data, 208)[0], 0))
        self.assertEqual(codes(data), [])
        self.assertEqual(VqfFile(Source(data)).raw("v_ds_f2b").nbytes, 0)

    def test_deepstack_may_be_absent_where_its_count_is_0(self) -> None:
        names = [r.name for r in MODELS["vision"][1] if r.name.startswith("v_ds_")]
        self.assertEqual(len(names), 6)
        self.assertEqual(codes(without("no-deepstack", *names)), [])
        self.assertEqual(codes(without("vision", *names)), ["vqf.plan.missing"] * 6)

    def test_two_tensors_of_no_bytes_may_share_a_place_with_a_third(self) -> None:
        rows = [*faults.ROWS[:6], Row("a", F32, 0, 7, 0), Row("b", F32, 7, 0, 0), *faults.ROWS[6:]]
        data = build(arch(), rows, 0x23)
        self.assertEqual({place_of(data, name)[0] for name in ("a", "b", "q4_q")}, {0x1A80})
        self.assertEqual(codes(data), ["vqf.plan.name"] * 2)

    def test_a_name_may_have_31_characters(self) -> None:
        data = build(arch(), [*faults.ROWS, row("n" * 31, F32, 16, 1)], 0x23)
        self.assertEqual(codes(data), ["vqf.plan.name"])
        self.assertEqual(VqfFile(Source(data)).keys()[-1], "n" * 31)

    def test_57_tensors_fill_the_first_page_and_58_move_the_data_to_the_next(self) -> None:
        for count, data_offset in ((57, 4096), (58, 8192), (121, 8192), (122, 12288)):
            rows = [*faults.ROWS, *(row("u%d" % i, F32, 16, 1) for i in range(count - 14))]
            data = build(arch(), rows, 0x23)
            self.assertEqual(struct.unpack_from("<Q", data, 200)[0], data_offset)
            self.assertEqual(set(codes(data)), {"vqf.plan.name"})
            self.assertEqual(len(VqfFile(Source(data)).keys()), count)

    @thorough
    def test_65535_tensors_are_not_refused(self) -> None:
        rows = [*faults.ROWS, *(Row("u%d" % i, F32, 0, 0, 0) for i in range(65535 - 14))]
        data = build(arch(), rows, 0x23, seal=False)
        self.assertEqual(set(codes(data)), {"vqf.plan.name"})
        self.assertEqual(len(VqfFile(Source(data)).keys()), 65535)

    def test_unknown_names_are_ignored_whatever_they_begin_with(self) -> None:
        for name in ("q8_zero_point", "x8_lm", "v_extra", "moe_router_bias", "Q4_Q", "q4_", "blk.0.attn_q.weight"):
            data = build(arch(), [*faults.ROWS, row(name, F32, 16, 1)], 0x23)
            with self.subTest(name):
                self.assertEqual([(f.code, f.engine) for f in audit(Source(data))], [("vqf.plan.name", "accepts")])

    def test_no_tensors_at_all_are_judged_by_the_gates(self) -> None:
        # Gates 1 to 7 have nothing against it; gate 13 misses the core.
        data = build(arch(), [], 0x23, file_len=4096 + 64)
        self.assertEqual(VqfFile(Source(data)).keys(), [])
        findings = audit(Source(data))
        self.assertEqual(
            [(f.field, f.engine) for f in findings if f.code == "vqf.core.missing"],
            [("token_embed", "refuses"), ("q8_q", "refuses")],
        )
        # Without a data area it is gate 6: file_len must lie behind data_offset.
        self.assertEqual(codes(build(arch(), [], 0x23, file_len=4096)), ["vqf.header.layout"])

    def test_q8_in_tiles_of_four_rows_or_none_is_a_note_at_most(self) -> None:
        a, rows, flags, _ = MODELS["q8"]
        data = build(a, rows, flags & ~1)
        for q8_tile in (0, 4):
            findings = audit(Source(data), q8_tile=q8_tile)
            self.assertEqual({f.severity for f in findings} - {"note"}, set())
            self.assertEqual({f.engine for f in findings} - {"accepts"}, set())
            self.assertLessEqual({f.code for f in findings}, {"vqf.tiles.layout"})

    def test_q8_that_the_caller_knows_to_be_in_tiles_of_four_rows_is_clean(self) -> None:
        a, rows, flags, _ = MODELS["q8"]
        self.assertEqual(codes(build(a, rows, flags & ~1), q8_tile=4), [])

    def test_x86_converters_q4_tiles_with_the_flag_clear_are_no_fault(self) -> None:
        a = arch(vocab_size=33)  # the gate fails: V is no multiple of 4
        self.assertEqual(codes(build(a, text_rows(a), 0x21)), [])

    def test_a_model_without_q_norm_is_clean(self) -> None:
        a = arch(has_q_norm=0)
        self.assertEqual(codes(build(a, text_rows(a), 0x23)), [])

    def test_a_file_without_lm_opens_and_the_engine_takes_it(self) -> None:
        data = without("mini", "q4_lm")
        self.assertEqual(len(VqfFile(Source(data)).keys()), 13)
        self.assertEqual([(f.code, f.engine) for f in audit(Source(data))], [("vqf.plan.missing", "accepts")])

    def test_an_f32_embedding_is_as_good_as_f16(self) -> None:
        rows = [row("token_embed", F32, 32, 32), *faults.ROWS[1:]]
        self.assertEqual(codes(build(arch(), rows, 0x03)), [])

    def test_numbers_that_no_model_has_are_warned_about(self) -> None:
        for word, value in (("max_seq_len", 0), ("rope_theta", 0.0), ("rope_theta", -1.0), ("norm_eps", -0.0),
                            ("rope_theta", float("inf")), ("norm_eps", float("nan"))):  # fmt: skip
            a = arch(**{word: value})
            found = [(f.code, f.severity, f.field) for f in audit(Source(build(a, text_rows(a), 0x23)))]
            self.assertEqual(found, [("vqf.arch.shape", "warning", "arch." + word)], value)

    def test_words_that_structure_can_not_judge_are_free(self) -> None:
        a = arch(
            max_seq_len=0xFFFFFFFF, rope_theta=3e38, norm_eps=1e-44, bos_id=0xFFFFFFFF, eos_id=0, vision_start_id=0,
            vision_end_id=0, image_token_id=0xFFFFFFFF, video_token_id=1,
        )  # fmt: skip
        self.assertEqual(codes(build(a, text_rows(a), 0x23)), [])

    def test_grouped_heads_and_all_four_mrope_sections_are_no_fault(self) -> None:
        a = arch(n_heads=4, n_kv_heads=2, head_dim=8, head_dim_full=8, mrope_n_sec=4, mrope_sections3=1)
        self.assertEqual(codes(build(a, text_rows(a), 0x23)), [])
        a = arch(has_mrope=0, mrope_n_sec=0, mrope_sections0=0, mrope_sections1=0, mrope_sections2=0)
        self.assertEqual(codes(build(a, text_rows(a), 0x23)), [])

    def test_padding_of_an_encrypted_data_area_is_not_judged(self) -> None:
        # ciphertext between tensors is not zero; here the whole area, tensors included, is as good as random
        self.assertEqual(codes(patch(faults.ENC, 4096, "7296s", bytes(7296))), [ENCRYPTED])

    def test_a_layer_that_is_not_zero_everywhere_is_no_zero_matrix(self) -> None:
        for name in ("layers", "moe", "x8"):
            data = bytearray(model(name))
            for r in MODELS[name][1]:
                offset, nbytes = place_of(data, r.name)
                layers = MODELS[name][0]["n_layers"] * (MODELS[name][0]["n_experts"] or 1)
                if nbytes % layers == 0 and r.name not in ("token_embed", "q4_lm"):
                    for start in range(offset, offset + nbytes, nbytes // layers):  # only the last byte is left
                        data[start : start + nbytes // layers - 1] = bytes(nbytes // layers - 1)
            self.assertEqual(codes(reseal(bytes(data))), [], name)

    def test_zeros_within_a_tensor_that_is_misplaced_are_not_judged_twice(self) -> None:
        data = reseal(patch(faults.PLAIN, at(13, "offset"), "Q", 1 << 50))
        self.assertNotIn("vqf.zeros.missing", codes(data))


class Tails(unittest.TestCase):
    """g256 leaves out the elements behind the last full group of 256 of a layer, or of a chunk of q8_lm."""

    def test_tail_is_looked_for_where_the_tiles_put_it(self) -> None:
        # k and v: 12 x 96 = 1152 elements, so the last 4 blocks of 36: row 10, column 2, and row 11.
        a = arch(dim=96, n_heads=2, head_dim=12, head_dim_full=12, ffn_dim=96)
        clean = build(a, text_rows(a, "8"), 0x32)
        self.assertEqual(codes(clean, q8_tile=4), [])
        start, nbytes = place_of(clean, "q8_k")
        self.assertEqual(nbytes, 36 * 34)

        linear = reseal(patch(clean, start + 32 * 34, "136s", bytes(136)))
        tiled = bytearray(clean)
        for r, column in ((10, 2), (11, 0), (11, 1), (11, 2)):
            tile = start + 136 * (r // 4 * 3 + column)
            tiled[tile + 2 * (r % 4) : tile + 2 * (r % 4) + 2] = bytes(2)
            for k in range(8):
                tiled[tile + 8 + 16 * k + 4 * (r % 4) : tile + 8 + 16 * k + 4 * (r % 4) + 4] = bytes(4)
        tiled = reseal(bytes(tiled))

        self.assertEqual(codes(linear), ["vqf.tail.missing"])
        self.assertEqual(codes(tiled, q8_tile=4), ["vqf.tail.missing"])
        self.assertEqual(codes(linear, q8_tile=4), [])
        self.assertEqual(codes(tiled), [])

    def test_lm_has_a_tail_in_each_of_its_chunks_of_16384_rows(self) -> None:
        a = {**LM_TAIL, "vocab_size": 16384 + 4}  # the first chunk is whole groups, the second half of one
        rows = [r for r in text_rows(a, "8") if r.name != "token_embed"] + [row("token_embed", F32, 1, 1)]
        data = bytearray(build(a, rows, 0x33, seal=False))
        start, nbytes = place_of(data, "q8_lm")
        self.assertEqual(nbytes, 16388 * 34)
        data[start + 16384 * 34 : start + nbytes] = bytes(4 * 34)
        found = [(f.offset, f.code) for f in audit(Source(bytes(data))) if f.field == "q8_lm"]
        self.assertEqual({offset for offset, _ in found}, {start + 16384 * 34})
        self.assertLessEqual({code for _, code in found}, {"vqf.zeros.missing", "vqf.tail.missing"})

    def test_files_that_are_not_g256_have_no_tails(self) -> None:
        offset, _ = place_of(model("tails"), "q8_k")
        data = patch(model("tails"), offset + 8 * 34, "136s", bytes(136))
        data = reseal(patch(data, 8, "I", 0x22))
        self.assertEqual(codes(data), [])


class Robust(unittest.TestCase):
    def test_a_file_that_is_cut_while_it_is_read_is_reported_as_such(self) -> None:
        class Shrinking(Source):
            """Ends at 5000 although its size says otherwise."""

            def read_at(self, offset: int, length: int) -> bytes:
                if offset + length > 5000:
                    raise FormatError("file.cut.truncated", "cut", offset=5000)
                return super().read_at(offset, length)

        findings = audit(Shrinking(faults.PLAIN))
        self.assertEqual([f.code for f in findings], ["file.cut.truncated"])

    @thorough
    def test_an_audit_raises_nothing_for_the_whole_table(self) -> None:
        for fault in faults.GATES + faults.FINDINGS:
            for q8_tile in (0, 4):
                try:
                    audit(Source(made(fault)), q8_tile=q8_tile)
                except VqfrefError as error:
                    self.fail("%s: %s" % (fault.name, error))


if __name__ == "__main__":
    unittest.main()

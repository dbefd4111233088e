"""The map of a file: an SVG picture that any XML parser reads, to scale, with every part of the file in it.

Each part is a rectangle, or several where it goes over the end of a row, with its name, range and length as its title. The
directory of the file says what the areas must be.
"""

from __future__ import annotations

import os
import re
import struct
import tempfile
import time
import unittest

from tests import samples
from tests.samples import FILES, at, patch, real
from tests.tools import run_main
from vqfref.errors import LimitError
from vqfref.source import Source
from vqfref.vqf.map import svg
from vqfref.vqf.reader import VqfFile

try:
    from xml.etree import ElementTree
except ImportError:  # small images
    ElementTree = None  # type: ignore[assignment]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

SVG = "{http://www.w3.org/2000/svg}"
TITLE = re.compile(r"(?P<label>.*): 0x(?P<start>[0-9a-f]+) … 0x(?P<end>[0-9a-f]+), (?P<bytes>\d+) bytes", re.S)


class Picture:
    """What is in a picture: its size, its texts, its rectangles with a title as (label, start, end, x, y, w, h, stroke)."""

    def __init__(self, text: str) -> None:
        self.root = ElementTree.fromstring(text.encode("utf-8"))
        self.width, self.height = float(self.root.get("width", "0")), float(self.root.get("height", "0"))
        self.texts = ["".join(t.itertext()) for t in self.root.iter(SVG + "text")]
        self.parts: list[tuple[Any, ...]] = []
        self.boxes: list[tuple[float, float, float, float]] = []
        for rect in self.root.iter(SVG + "rect"):
            if rect.get("width") == "100%":
                continue
            box = tuple(float(rect.get(k, "0")) for k in ("x", "y", "width", "height"))
            self.boxes.append(box)
            title = rect.find(SVG + "title")
            if title is not None:
                found = TITLE.fullmatch(title.text or "")
                if found is None:
                    raise AssertionError("the title %r" % title.text)
                start, end = int(found["start"], 16), int(found["end"], 16)
                if end - start != int(found["bytes"]):
                    raise AssertionError("the title %r contradicts itself" % title.text)
                stroke = 0.0 if rect.get("stroke", "none") == "none" else float(rect.get("stroke-width", "1"))
                self.parts.append((found["label"], start, end, *box, stroke, rect.get("fill")))

    def spans(self) -> list[tuple[int, int, str]]:
        """(start, end, label) of every part, in order."""
        return sorted({(start, end, label) for label, start, end, *_ in self.parts})

    def areas(self) -> dict[str, float]:
        """The width of all rectangles of a tensor, or of header, directory, padding and tag."""
        found: dict[str, float] = {}
        for label, _, _, _, _, width, _, _, _ in self.parts:
            name = label.partition(",")[0]
            found[name] = found.get(name, 0) + width
        return found


def picture(data: bytes, **how: Any) -> Picture:
    with VqfFile(Source(data), **how) as f:
        return Picture(svg(f))


def directory(data: bytes) -> dict[str, tuple[int, int]]:
    """(offset, bytes) by name."""
    (n,) = struct.unpack_from("<I", data, 12)
    return {
        data[at(i) : at(i) + 32].rstrip(b"\0").decode(): struct.unpack_from("<QQ", data, at(i, "offset"))
        for i in range(n)
    }


@unittest.skipUnless(ElementTree, "this Python has no xml.etree")
class Map(unittest.TestCase):
    def files(self) -> dict[str, bytes]:
        return {
            **{name: real(name) for name in ("h448-plain", "h432-plain", "h448-enc", "h448-enc-signed")},
            **{name: samples.model(name) for name in ("dual", "x8", "moe-dual", "vision", "no-deepstack", "tails")},
        }

    def test_every_tensor_is_named_in_a_title_and_in_the_table(self) -> None:
        for name, data in self.files().items():
            p = picture(data)
            texts = " ".join(p.texts)
            labels = {label.partition(",")[0] for label, *_ in p.parts}
            for tensor, (offset, nbytes) in directory(data).items():
                self.assertIn(tensor, texts, name)
                self.assertIn("0x%x" % offset, texts, (name, tensor))
                if nbytes:
                    self.assertIn(tensor, labels, name)

    def test_header_directory_padding_and_tag_are_parts_too(self) -> None:
        for name, data in self.files().items():
            spans = picture(data).spans()
            form = 432 if name.startswith("h432") else 448
            tag = 32 if "enc" in name else 8
            (n,) = struct.unpack_from("<I", data, 12)
            self.assertIn((0, form, "header"), spans, name)
            self.assertIn((448, 448 + 64 * n), [s[:2] for s in spans if s[2].startswith("directory")], name)
            self.assertIn((len(data) - tag, len(data), "tag"), spans, name)
            self.assertIn((448 + 64 * n, 4096, "padding"), spans, name)

    def test_header_directory_and_tag_are_in_the_table_since_they_are_too_thin_to_see(self) -> None:
        data = samples.model("dual")
        texts = [text.replace(",", "") for text in picture(data).texts]
        (n,) = struct.unpack_from("<I", data, 12)
        for offset, nbytes in ((0, 448), (448, 64 * n), (len(data) - 8, 8)):
            self.assertTrue(any("0x%x %d bytes" % (offset, nbytes) in text for text in texts), offset)
        start, stop = 448 + 64 * n, struct.unpack_from("<Q", data, at(0, "offset"))[0]
        gaps = stop - start + sum(-nbytes % 64 for _, nbytes in directory(data).values())
        self.assertTrue(any("%d bytes" % gaps in text for text in texts), "all padding together")

    def test_the_parts_cover_the_file_once(self) -> None:
        for name, data in self.files().items():
            end = 0
            for start, stop, label in picture(data).spans():
                if start == stop:
                    continue
                self.assertEqual(start, end, (name, label))
                end = stop
            self.assertEqual(end, len(data), name)

    def test_rectangles_lie_inside_the_picture_and_do_not_overlap(self) -> None:
        for name, data in self.files().items():
            p = picture(data)
            for x, y, width, height in p.boxes:
                self.assertGreaterEqual(min(x, y, width, height), 0, name)
                self.assertLessEqual(x + width, p.width + 0.01, name)
                self.assertLessEqual(y + height, p.height + 0.01, name)
            rows: dict[float, list[tuple[float, float]]] = {}
            for _, _, _, x, y, width, _, _, _ in p.parts:
                rows.setdefault(y, []).append((x, width))
            for boxes in rows.values():
                boxes.sort()
                for (x, width), (following, _) in zip(boxes, boxes[1:]):
                    self.assertLessEqual(x + width, following + 0.02, name)

    def test_areas_are_in_proportion_to_bytes(self) -> None:
        for name, data in self.files().items():
            p = picture(data)
            areas = p.areas()
            scale = sum(areas.values()) / len(data)
            for tensor, (_, nbytes) in directory(data).items():
                self.assertAlmostEqual(areas.get(tensor, 0), nbytes * scale, delta=0.5, msg=(name, tensor))
            self.assertAlmostEqual(areas["header"], (432 if name.startswith("h432") else 448) * scale, delta=0.5)

    def test_all_rows_have_the_same_number_of_bytes_and_start_where_their_label_says(self) -> None:
        for name, data in self.files().items():
            p = picture(data)
            labels = {int(t, 16) for t in p.texts if re.fullmatch("0x[0-9a-f]+", t)}
            left = min(x for _, _, _, x, *_ in p.parts)
            rows = sorted({y for _, _, _, _, y, *_ in p.parts})
            steps = sorted(labels)
            self.assertEqual(len(steps), len(rows), name)
            self.assertEqual(len({b - a for a, b in zip(steps, steps[1:])}), 1, name)
            for y, start in zip(rows, steps):
                first = [part for part in p.parts if part[4] == y and part[3] == left]
                self.assertTrue(any(part[1] <= start < part[2] for part in first), (name, hex(start)))

    def test_layers_are_apart_where_there_is_room(self) -> None:
        spans = picture(samples.model("layers")).spans()
        offset, nbytes = directory(samples.model("layers"))["q4_up"]
        step = nbytes // 3
        found = [s[:2] for s in spans if s[2].startswith("q4_up,")]
        self.assertEqual(found, [(offset + i * step, offset + i * step + step) for i in range(3)])
        self.assertEqual([s[2] for s in spans if s[2].startswith("q4_up,")], ["q4_up, layer %d" % i for i in range(3)])

    def test_families_have_colours_of_their_own_and_a_legend(self) -> None:
        p = picture(samples.model("moe-dual"))
        colours: dict[str, str] = {}
        for label, *_, fill in p.parts:
            name = label.partition(",")[0]
            family = name[:2] if name[:3] in ("q8_", "q4_") else name
            self.assertEqual(colours.setdefault(family, fill), fill, name)
        kinds = ("header", "directory", "token_embed", "attn_norm", "moe_router", "q8", "q4", "padding", "tag")
        self.assertEqual(len({colours[k] for k in kinds}), len(kinds))
        self.assertEqual(
            {colours[k] for k in ("final_norm", "attn_norm", "ffn_norm", "q_norm")}, {colours["attn_norm"]}
        )
        for word in ("header", "directory", "token_embed", "norms", "router", "q8", "q4", "padding", "tag"):
            self.assertIn(word, p.texts)

    def large(self) -> bytes:
        """A file of 64 layers whose norms are thin: 256 bytes each, under a pixel."""
        a = samples.arch(dim=64, n_layers=64, vocab_size=65536)
        return samples.build(a, samples.text_rows(a), 0x23, seal=False)

    def test_thin_parts_are_not_hidden_by_their_own_borders(self) -> None:
        p = picture(self.large())
        for label, start, end, _, _, width, _, stroke, _ in p.parts:
            self.assertLessEqual(stroke, width / 2, (label, start, end))

    def test_a_large_file_has_a_picture_of_its_own_size_only(self) -> None:
        p = picture(self.large())
        self.assertLess(len(p.parts), 2000)
        self.assertLessEqual(len({y for _, _, _, _, y, *_ in p.parts}), 40)
        self.assertLess(p.height, 4000)

    def test_names_of_wide_parts_stand_in_the_picture(self) -> None:
        data = samples.model("dual")
        p = picture(data)
        top, bottom = (f(y for _, _, _, _, y, *_ in p.parts) for f in (min, max))
        inside = [
            "".join(t.itertext())
            for t in p.root.iter(SVG + "text")
            if top <= float(t.get("y", "0")) <= bottom + 24 and not re.fullmatch("0x[0-9a-f]+", "".join(t.itertext()))
        ]
        for name in ("token_embed", "q8_gate", "q4_down", "q4_lm"):
            self.assertTrue(any(name in text for text in inside), name)


@unittest.skipUnless(ElementTree, "this Python has no xml.etree")
class Hostile(unittest.TestCase):
    def named(self, name: bytes) -> bytes:
        return patch(real("h448-plain"), at(5), "32s", name)

    def test_names_are_escaped(self) -> None:
        for name, shown in (
            (b"<script>alert(1)</script>", "<script>alert(1)</script>"), (b"a&b", "a&b"), (b"&amp;", "&amp;"),
            (b'"><rect/>', '"><rect/>'), (b"]]>", "]]>"), (b"a'b", "a'b"), (b"a\x01\x1b[2Jb", "a\\x01\\x1b[2Jb"),
            (b"a\nb", "a\\nb"), (b"<!--", "<!--"), (b"%s%d", "%s%d"),
        ):  # fmt: skip
            p = picture(self.named(name))
            self.assertIn(shown, " ".join(p.texts), name)
            self.assertTrue(any(label == shown for label, *_ in p.parts), name)
            self.assertEqual(p.root.findall(".//%sscript" % SVG), [])

    def test_bytes_that_are_no_ascii_are_escaped(self) -> None:
        for name in (b"\xff\xfe", b"\xc3\xa4", b"\xef\xbf\xbe", b"\x80" * 31):
            text = svg(VqfFile(Source(self.named(name))))
            Picture(text)
            text.encode("utf-8")

    def test_a_path_is_escaped_and_need_not_be_utf_8(self) -> None:
        with tempfile.TemporaryDirectory(prefix="vqfref-") as folder:
            for name in (b"<&>\x01.vqf", b"\xff.vqf"):
                path = os.path.join(os.fsencode(folder), name)
                try:
                    with open(path, "wb") as file:
                        file.write(real("h448-plain"))
                except OSError:  # a file system that takes no such names
                    continue
                with VqfFile(Source(os.fsdecode(path))) as f:
                    Picture(svg(f))

    def test_tensors_that_overlap_or_lie_out_of_order_are_drawn_all_the_same(self) -> None:
        data = real("h448-plain")
        data = patch(data, at(3, "offset"), "Q", 4096)
        data = patch(data, at(7, "offset"), "Q", 4096 + 64)
        p = picture(data)
        self.assertIn(4096, [start for label, start, *_ in p.parts if label.startswith("ffn_norm")])
        self.assertEqual(len(directory(data)), 14)

    def test_any_number_of_layers_of_nothing_costs_nothing(self) -> None:
        # Four billion deepstack mergers of no width: six tensors of as many layers, with no bytes.
        a = {**samples.VISION, "vis_hidden": 0, "vis_ds_count": (1 << 32) - 1}
        rows = [r._replace(rows=r.rows & 0xFFFFFFFF) for r in samples.vision_rows(a)]
        rows = [r for r in rows if r.name in ("v_ds_nw", "v_ds_nb", "v_ds_f1w")]
        data = samples.build(a, [*samples.text_rows(a), *rows], 0x63)
        begun = time.process_time()
        self.assertLess(len(picture(data).parts), 200)
        self.assertLess(time.process_time() - begun, 6)

    def test_any_number_of_thin_layers_costs_little(self) -> None:
        # q norms of one value each: a million layers in four megabytes.
        a = samples.arch(n_layers=1 << 20, head_dim=1, head_dim_full=1)
        rows = [samples.row("token_embed", samples.F16, 32, 32), samples.row("q_norm", samples.F32, 1 << 20, 1)]
        data = samples.build(a, rows, 0x23, seal=False)
        begun = time.process_time()
        with VqfFile(Source(data)) as f:
            text = svg(f)
        self.assertLess(len(text), 1 << 20)
        self.assertLess(time.process_time() - begun, 6)

    def test_so_many_tensors_that_no_picture_can_show_them_are_a_limit(self) -> None:
        # 20000 entries of the whole data area each.
        n, start = 20000, 448 + 64 * 20000
        start = -(-start // 4096) * 4096
        rows = [samples.row(b"t%d" % i, samples.F32, 1024, 1024) for i in range(n)]
        a = samples.arch()
        data = samples.build(a, rows[:1], 0x23, seal=False, data_offset=start)
        entry = data[448:512]
        data = patch(data, 12, "I", n)
        entries = b"".join([struct.pack("<32s", b"t%d" % i) + entry[32:] for i in range(n)])
        data = data[:448] + entries + data[448 + len(entries) :]
        begun = time.process_time()
        with VqfFile(Source(data)) as f, self.assertRaises(LimitError):
            svg(f)
        self.assertLess(time.process_time() - begun, 6)


class CommandLine(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory(prefix="vqfref-")
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def test_to_a_file_or_to_standard_output(self) -> None:
        path, out = str(FILES / "mini-q4-h448-plain.vqf"), os.path.join(self.folder, "map.svg")
        status, printed, err = run_main("map", path)
        self.assertEqual((status, err), (0, ""))
        self.assertTrue(printed.startswith("<svg xmlns="))
        self.assertTrue(printed.rstrip().endswith("</svg>"))
        self.assertEqual(run_main("map", path, "-o", out), (0, "", ""))
        with open(out, encoding="utf-8") as file:
            self.assertEqual(file.read(), printed)
        self.assertEqual(os.listdir(self.folder), ["map.svg"])

    def test_it_needs_no_key(self) -> None:
        status, out, err = run_main("map", str(FILES / "mini-q4-h432-enc-signed.vqf"))
        self.assertEqual((status, err), (0, ""))
        self.assertIn("q4_down", out)

    def test_faults_have_their_status_and_leave_no_picture(self) -> None:
        bad, weights = os.path.join(self.folder, "bad"), os.path.join(self.folder, "a.safetensors")
        with open(bad, "wb") as file:
            file.write(b"nothing of the kind")
        with open(weights, "wb") as file:
            file.write(struct.pack("<Q", 2) + b"{}")
        out = os.path.join(self.folder, "map.svg")
        for status, word, argv in (
            (1, "magic", (bad, "-o", out)), (2, "VQF", (weights, "-o", out)),
            (3, "nowhere", (os.path.join(self.folder, "nowhere"), "-o", out)), (2, "FILE", ("-o", out)),
            (3, "no/map.svg", (str(FILES / "mini-q4-h448-plain.vqf"), "-o", os.path.join(self.folder, "no", "map.svg"))),
        ):  # fmt: skip
            found, printed, err = run_main("map", *argv)
            self.assertEqual((found, printed), (status, ""), (argv, err))
            self.assertIn(word, err)
        self.assertEqual(sorted(os.listdir(self.folder)), ["a.safetensors", "bad"])


if __name__ == "__main__":
    unittest.main()

"""A VQF file drawn to scale as an SVG picture: header, directory, every tensor by family and layer, padding.

The file runs from top left to bottom right in rows of equal length, like text; what is too thin to see at that scale is
listed below with its offset. The first row is the first megabytes of the file.
"""

from __future__ import annotations

from vqfref.errors import printable
from vqfref.vqf.structs import DIR_OFFSET, TENSOR

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterator

    from vqfref.vqf.reader import VqfFile

WIDTH, ROW, GAP, LEFT, ROWS = 1000, 24, 6, 110, 24
COLOURS = {
    "header": "#4c566a", "directory": "#8892a6", "token_embed": "#c98a2b", "norms": "#7a9e4b", "router": "#b0569b",
    "q8": "#2f7ebc", "q4": "#2a9d8f", "x8": "#8a63c9", "vision": "#c95f4a", "other": "#999999", "padding": "#e8e8e8",
    "tag": "#22223b",
}  # fmt: skip


def family(name: str) -> str:
    """The family that a tensor is coloured by."""
    for prefix in ("q8_", "q4_", "x8_"):
        if name.startswith(prefix):
            return prefix[:2]
    if name.startswith("v_"):
        return "vision"
    return {"token_embed": "token_embed", "moe_router": "router"}.get(name, "norms" if "norm" in name else "other")


def regions(f: VqfFile) -> Iterator[tuple[int, int, str, str]]:
    """(start, end, family, label) of every part of the file, in order; layers of a tensor apart."""
    h = f.header
    yield 0, f.form, "header", "header"
    end = DIR_OFFSET + TENSOR.size * len(f.directory)
    yield DIR_OFFSET, end, "directory", "directory, %d entries" % len(f.directory)
    at = end
    for e in sorted(f.directory, key=lambda e: e.offset):
        if e.offset > at:
            yield at, e.offset, "padding", "padding"
        t = f.info(e.name)
        if t.layers > 1 and e.nbytes % t.layers == 0:
            step = e.nbytes // t.layers
            for layer in range(t.layers):
                start = e.offset + layer * step
                yield start, start + step, family(e.name), "%s, layer %d" % (e.name, layer)
        else:
            yield e.offset, e.offset + e.nbytes, family(e.name), e.name
        at = max(at, e.offset + e.nbytes)
    if h.file_len > at:
        yield at, h.file_len, "padding", "padding"
    yield h.file_len, f.head.size, "tag", "tag"


def svg(f: VqfFile) -> str:
    """The picture as SVG text."""
    size = f.head.size
    per_row = -(-size // ROWS)
    rows = -(-size // per_row)
    parts = list(regions(f))
    shown = [name for name in COLOURS if any(p[2] == name for p in parts)]
    table = _table(f)
    top = 60
    legend = top + rows * (ROW + GAP) + 24
    height = legend + 30 + 18 * len(table) + 20
    out = [
        '<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" font-family="sans-serif" font-size="12">'
        % (LEFT + WIDTH + 20, height),
        '<rect width="100%" height="100%" fill="white"/>',
        '<text x="10" y="24" font-size="16">%s</text>' % _escape("%s: %d bytes" % (f.path or "", size)),
        '<text x="10" y="44" fill="#555">%d bytes a row; hover over a part for its name</text>' % per_row,
    ]
    for row in range(rows):
        y = top + row * (ROW + GAP)
        out.append('<text x="%d" y="%d" text-anchor="end" fill="#555">0x%x</text>' % (LEFT - 8, y + 16, row * per_row))
    for start, end, kind, label in parts:
        title = _escape("%s: 0x%x … 0x%x, %d bytes" % (label, start, end, end - start))
        for x, y, width in _pieces(start, end, per_row):
            out.append(
                '<rect x="%.2f" y="%d" width="%.2f" height="%d" fill="%s" stroke="white" stroke-width="0.4"><title>%s'
                "</title></rect>" % (LEFT + x, top + y * (ROW + GAP), width, ROW, COLOURS[kind], title)
            )
    x = LEFT
    for name in shown:
        out.append('<rect x="%d" y="%d" width="12" height="12" fill="%s"/>' % (x, legend - 10, COLOURS[name]))
        out.append('<text x="%d" y="%d">%s</text>' % (x + 16, legend, name))
        x += 30 + 8 * len(name)
    for i, (left, right, colour) in enumerate(table):
        y = legend + 30 + 18 * i
        out.append('<rect x="%d" y="%d" width="8" height="12" fill="%s"/>' % (LEFT - 12, y - 10, colour))
        out.append('<text x="%d" y="%d">%s</text>' % (LEFT, y, _escape(left)))
        out.append('<text x="%d" y="%d" text-anchor="end" fill="#555">%s</text>' % (LEFT + 560, y, _escape(right)))
    return "\n".join([*out, "</svg>", ""])


def _table(f: VqfFile) -> list[tuple[str, str, str]]:
    """One line a tensor: name and shape, offset and share of the file, colour."""
    lines = []
    for e in f.directory:
        t = f.info(e.name)
        shape = "".join("%d x " % n for n in (t.layers, t.experts) if n) + str(list(t.shape))
        share = "0x%x, %d bytes, %.1f %%" % (e.offset, e.nbytes, 100 * e.nbytes / f.head.size)
        lines.append(("%s  %s  %s" % (e.name, shape, t.encoding), share, COLOURS[family(e.name)]))
    return lines


def _pieces(start: int, end: int, per_row: int) -> Iterator[tuple[float, int, float]]:
    """(x, row, width) of a byte range cut at the rows' ends."""
    while start < end:
        row, column = divmod(start, per_row)
        n = min(end - start, per_row - column)
        yield WIDTH * column / per_row, row, WIDTH * n / per_row
        start += n


def _escape(text: Any) -> str:
    return printable(str(text)).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace('"', "&quot;")

"""A VQF file drawn to scale as an SVG picture: header, directory, every tensor by family and layer, padding.

The file runs from top left to bottom right in rows of equal length, like text. What is wide enough bears its name; the
table below has everything, also what is too thin to see at that scale.
"""

from __future__ import annotations

from vqfref.errors import LimitError, printable
from vqfref.vqf.structs import DIR_OFFSET, TENSOR

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterator

    from vqfref.vqf.reader import VqfFile

WIDTH, ROW, GAP, LEFT, ROWS = 1000, 24, 6, 110, 24
LETTER = 7  # pixels that a letter takes at most, at this size
THIN = 2.0  # pixels; layers under it are not drawn apart, and nothing under it has a border
MAX_PARTS = 100_000  # rectangles of a picture; a file with more of them is hostile
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


def bytes_a_row(size: int) -> int:
    """Bytes of one row of the picture: at most ROWS of them hold the file, and their offsets are round numbers."""
    least = max(-(-size // ROWS), 1)
    unit = 1 << max(least.bit_length() - 4, 0)
    return -(-least // unit) * unit


def regions(f: VqfFile, thin: float) -> Iterator[tuple[int, int, str, str]]:
    """(start, end, family, label) of every part of the file, in order; layers of more than `thin` bytes apart."""
    h = f.header
    end = DIR_OFFSET + TENSOR.size * len(f.directory)
    yield 0, f.form, "header", "header"
    if f.form < DIR_OFFSET:
        yield f.form, DIR_OFFSET, "padding", "padding"
    yield DIR_OFFSET, end, "directory", "directory, %d entries" % len(f.directory)
    at = end
    for e in sorted(f.directory, key=lambda e: e.offset):
        if e.offset > at:
            yield at, e.offset, "padding", "padding"
        layers = f.info(e.name).layers
        step = e.nbytes // layers if layers > 1 and e.nbytes % layers == 0 else 0
        if step > thin:
            for layer in range(layers):
                start = e.offset + layer * step
                yield start, start + step, family(e.name), "%s, layer %d" % (e.name, layer)
        elif e.nbytes:
            label = "%s, %d layers" % (e.name, layers) if layers > 1 else e.name
            yield e.offset, e.offset + e.nbytes, family(e.name), label
        at = max(at, e.offset + e.nbytes)
    if h.file_len > at:
        yield at, h.file_len, "padding", "padding"
    yield h.file_len, f.head.size, "tag", "tag"


def svg(f: VqfFile) -> str:
    """The picture as SVG text. Raises LimitError (vqf.map.limit) for a file of more parts than a picture can show."""
    size = f.head.size
    per_row = bytes_a_row(size)
    rows = -(-size // per_row)
    parts: list[tuple[int, int, str, str]] = []
    pieces = 0
    for part in regions(f, THIN * per_row / WIDTH):
        parts.append(part)
        pieces += (part[1] - 1) // per_row - part[0] // per_row + 1
        if pieces > MAX_PARTS:
            raise LimitError("vqf.map.limit", "more than %d parts" % MAX_PARTS, path=f.path)
    shown = [name for name in COLOURS if any(p[2] == name for p in parts)]
    table = _table(f, parts)
    top = 60
    legend = top + rows * (ROW + GAP) + 24
    height = legend + 30 + 18 * len(table) + 20
    out = [
        '<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" font-family="sans-serif" font-size="12">'
        % (LEFT + WIDTH + 20, height),
        '<rect width="100%" height="100%" fill="white"/>',
        '<text x="10" y="24" font-size="16">%s</text>' % _escape("%s: %s bytes" % (f.path or "", "{:,}".format(size))),
        '<text x="10" y="44" fill="#555">%s bytes a row; in a browser each part says its name under the pointer</text>'
        % "{:,}".format(per_row),
    ]
    for row in range(rows):
        y = top + row * (ROW + GAP)
        out.append('<text x="%d" y="%d" text-anchor="end" fill="#555">0x%x</text>' % (LEFT - 8, y + 16, row * per_row))
    for start, end, kind, label in parts:
        title = _escape("%s: 0x%x … 0x%x, %d bytes" % (label, start, end, end - start))
        for x, y, width in _pieces(start, end, per_row):
            border = ' stroke="white" stroke-width="0.4"' if width >= THIN else ""
            out.append(
                '<rect x="%.2f" y="%d" width="%.2f" height="%d" fill="%s"%s><title>%s</title></rect>'
                % (LEFT + x, top + y * (ROW + GAP), width, ROW, COLOURS[kind], border, title)
            )
        for name in (label, label.partition(",")[0]):
            need = LETTER * len(printable(name)) + 8
            place = next((piece for piece in _pieces(start, end, per_row) if piece[2] >= need), None)
            if place is not None:
                x, y, _ = place
                out.append(
                    '<text x="%.2f" y="%d" font-size="11" fill="%s" pointer-events="none">%s</text>'
                    % (
                        LEFT + x + 4,
                        top + y * (ROW + GAP) + 16,
                        "#555" if kind == "padding" else "white",
                        _escape(name),
                    )
                )
                break
    x = LEFT
    for kind in shown:
        out.append('<rect x="%d" y="%d" width="12" height="12" fill="%s"/>' % (x, legend - 10, COLOURS[kind]))
        out.append('<text x="%d" y="%d">%s</text>' % (x + 16, legend, kind))
        x += 36 + LETTER * len(kind)
    for i, (left, right, colour) in enumerate(table):
        y = legend + 30 + 18 * i
        out.append('<rect x="%d" y="%d" width="8" height="12" fill="%s"/>' % (LEFT - 12, y - 10, colour))
        out.append('<text x="%d" y="%d">%s</text>' % (LEFT, y, _escape(left)))
        out.append('<text x="%d" y="%d" text-anchor="end" fill="#555">%s</text>' % (LEFT + 640, y, _escape(right)))
    return "\n".join([*out, "</svg>", ""])


def _table(f: VqfFile, parts: list[tuple[int, int, str, str]]) -> list[tuple[str, str, str]]:
    """One line for header, directory, each tensor, all padding, and tag: what it is, where and how much, its colour."""

    def line(text: str, offset: str, nbytes: int, kind: str) -> tuple[str, str, str]:
        return (
            text,
            "%s, %s bytes, %.1f %%" % (offset, "{:,}".format(nbytes), 100 * nbytes / f.head.size),
            COLOURS[kind],
        )

    lines = [line(label, "0x%x" % a, b - a, kind) for a, b, kind, label in parts if kind in ("header", "directory")]
    for e in f.directory:
        t = f.info(e.name)
        shape = "".join("%d x " % n for n in (t.layers, t.experts) if n) + str(list(t.shape))
        lines.append(line("%s  %s  %s" % (e.name, shape, t.encoding), "0x%x" % e.offset, e.nbytes, family(e.name)))
    gaps = [b - a for a, b, kind, _ in parts if kind == "padding"]
    lines.append(line("padding", "in %d places" % len(gaps), sum(gaps), "padding"))
    return lines + [line(label, "0x%x" % a, b - a, kind) for a, b, kind, label in parts if kind == "tag"]


def _pieces(start: int, end: int, per_row: int) -> Iterator[tuple[float, int, float]]:
    """(x, row, width) of a byte range cut at the rows' ends."""
    while start < end:
        row, column = divmod(start, per_row)
        n = min(end - start, per_row - column)
        yield WIDTH * column / per_row, row, WIDTH * n / per_row
        start += n


def _escape(text: Any) -> str:
    return printable(str(text)).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace('"', "&quot;")

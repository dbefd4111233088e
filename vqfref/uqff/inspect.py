"""The tree that `mistralrs uqff inspect` shows, as lines of text. Spec: UQFF section 15.4.

A branch a path segment; the payload `<key>.weight` is the child `data` of the branch `weight` where it has siblings.
Labels are the layers' true ones, also where the engine's display derives them from the group's name.
"""

from __future__ import annotations

import os

from vqfref.errors import printable
from vqfref.uqff.scan import DENSE

MAX_LEVELS = 32  # of the tree; what a name has beyond stays in one piece

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterator, Sequence

    from vqfref.uqff.families import Tensor
    from vqfref.uqff.scan import Scan


def size_text(n: int) -> str:
    """A size in steps of 1024, one decimal from KB up.

    >>> size_text(1023), size_text(1536)
    ('1023 B', '1.5 KB')
    """
    if n < 1024:
        return "%d B" % n
    size = float(n)
    for unit in ("KB", "MB", "GB"):
        size /= 1024
        if size < 1024 or unit == "GB":
            break
    return "%.1f %s" % (size, unit)


class Node:
    """A branch of the tree: children by name, or a Tensor."""

    def __init__(self) -> None:
        self.children: dict[str, Node] = {}
        self.tensor: Tensor | None = None
        self.labels: dict[str, None] = {}

    def tensors(self) -> Iterator[Tensor]:
        """All tensors below."""
        if self.tensor is not None:
            yield self.tensor
        for child in self.children.values():
            yield from child.tensors()


def build(s: Scan) -> Node:
    """The tree of one group."""
    root = Node()
    for name, t in s.merged.items():
        parts = name.split(".", MAX_LEVELS)
        key = name[: -len(".weight")] if name.endswith(".weight") else name.rpartition(".weight.")[0]
        if name.endswith(".weight") and key in s.layers and len(s.layers[key].tensors) > 1:
            parts.append("data")
        node = root
        for part in parts:
            node = node.children.setdefault(part, Node())
            if part == "weight" and key in s.labels:
                label = s.labels[key]
                node.labels[label] = None
                if label in DENSE and label != s.group.name:
                    node.labels["fallback"] = None
        node.tensor = t
        if "." not in name:
            node.labels.update({"invalid": None, "old-format": None})
    return root


def natural(text: str) -> tuple[Any, ...]:
    """A sort key in which numbers count as numbers."""
    parts: list[Any] = []
    digits = ""
    for c in text + "\0":
        if c.isascii() and c.isdigit():
            digits += c
            continue
        if digits:
            significant = digits.lstrip("0")
            parts.append((0, len(significant), significant))  # by value, without int() and its limit of digits
            digits = ""
        parts.append((1, 0, c))
    return tuple(parts)


def lines_of(node: Node, depth: int) -> Iterator[str]:
    """The lines below a node."""
    for name in sorted(node.children, key=natural):
        child = node.children[name]
        indent = "  " * depth
        labels = "".join(" [%s]" % label for label in child.labels)
        if child.tensor is not None:
            e = child.tensor.entry
            yield "%s%s  %s %s %s%s" % (
                indent,
                printable(name),
                e.dtype,
                list(e.shape),
                size_text(e.end - e.begin),
                labels,
            )
        if not child.children:
            continue
        tensors = list(child.tensors())
        total = sum(t.entry.end - t.entry.begin for t in tensors)
        yield "%s- %s%s  %d tensors, %s" % (indent, printable(name), labels, len(tensors), size_text(total))
        yield from lines_of(child, depth + 1)


def tree(scans: Sequence[Scan]) -> Iterator[str]:
    """All lines: the shards' metadata, then a branch a group."""
    yield "- metadata"
    for s in scans:
        for file in s.shards:
            for key, value in file.header.metadata.items():
                yield "  %s.%s = %s" % (os.path.basename(file.path or ""), printable(key), printable(value))
    for s in scans:
        node = build(s)
        tensors = list(node.tensors())
        total = sum(t.entry.end - t.entry.begin for t in tensors)
        yield "- %s  %d tensors, %s" % (printable(s.group.name), len(tensors), size_text(total))
        yield from lines_of(node, 1)

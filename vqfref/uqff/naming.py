"""Names in UQFF: quantization types and their shorthands, shard files, and which shards an item stands for.

Spec: UQFF sections 3 (numbers), 9.1 (types) and 10 (shards). Everything here works on texts and lists of file names.
"""

from __future__ import annotations

from collections import namedtuple

from vqfref.errors import FormatError, UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterable, Sequence

EXTENSION = ".uqff"
REPORT_NAME = "uqff_report.json"
RESIDUAL_NAME = "residual.safetensors"

# 9.1: canonical names, each with its family tag
GGUF, UNQUANT, HQQ, FP8, AFQ, F8Q8, MXFP4 = range(7)
TYPES = {
    **dict.fromkeys(("q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "q8_1", "q2k", "q3k", "q4k", "q5k", "q6k", "q8k"), GGUF),
    "hqq4": HQQ,
    "hqq8": HQQ,
    "fp8": FP8,
    **dict.fromkeys(("afq2", "afq3", "afq4", "afq6", "afq8"), AFQ),
    "f8q8": F8Q8,
    "mxfp4": MXFP4,
}

# 9.1: a number -> types in the order in which they are tried, off Metal; the first is the single type
SHORTHANDS = {
    "2": ("q2k", "afq2"),
    "3": ("q3k", "afq3"),
    "4": ("q4k", "afq4"),
    "5": ("q5k",),
    "6": ("q6k", "afq6"),
    "8": ("q8_0", "afq8"),
}

Group = namedtuple("Group", "name files output")
Group.__doc__ = """Shards that belong together: the group's name, its file names in load order, and its output in the
report, or None for files that no report claims."""


def unsigned(text: str) -> int | None:
    """The value of an unsigned 64-bit integer: an optional +, then ASCII digits; None for any other text."""
    digits = text[1:] if text.startswith("+") else text
    significant = digits.lstrip("0")
    if not digits or set(digits) - set("0123456789") or len(significant) > 20:
        return None  # int() itself refuses thousands of digits, zeros among them
    value = int(significant or "0")
    return value if value < 1 << 64 else None


def is_unsigned(text: str) -> bool:
    """Does a text parse as an unsigned 64-bit integer?"""
    return unsigned(text) is not None


def parse_shard(name: str) -> tuple[str, int] | None:
    """The loader's parser (10.1): (prefix, index), or None for a name without an index.

    >>> parse_shard("my-model-7-0.uqff"), parse_shard("q4_0-00"), parse_shard("model.uqff")
    (('my-model-7', 0), ('q4_0', 0), None)
    """
    stem = name.rpartition(".")[0]
    if not stem:  # no extension, or a name that begins with its only dot
        stem = name
    prefix, dash, text = stem.rpartition("-")
    index = unsigned(text)
    return (prefix, index) if dash and index is not None else None


def group_key(name: str) -> tuple[str, int | None]:
    """The group of a shard for report, verify and inspect (10.1): (key, index), index None where the name has none."""
    stem = name[: -len(EXTENSION)] if name.endswith(EXTENSION) else name
    prefix, dash, index = stem.rpartition("-")
    if dash and not set(index) - set("0123456789"):
        return prefix, unsigned(index)
    return stem, None


def expand(item: str, available: Iterable[str]) -> list[str]:
    """All shards of a file's set (10.2): `<prefix>-0.uqff` and on while they are there, up to the first gap."""
    names = set(available)
    parsed = parse_shard(item)
    if parsed is None:
        return [item]
    found: list[str] = []
    while "%s-%d%s" % (parsed[0], len(found), EXTENSION) in names:
        found.append("%s-%d%s" % (parsed[0], len(found), EXTENSION))
    return found or [item]


def type_files(item: str) -> list[str]:
    """The first shards that a shorthand or type name may mean, in the order in which they are tried."""
    types: Sequence[str] = SHORTHANDS.get(item, (item.lower(),) if item.lower() in TYPES else ())
    return ["%s-0%s" % (t, EXTENSION) for t in types]


def split_items(items: str | Iterable[str]) -> list[str]:
    """Items as a list, from a list or from one text with semicolons. Raises UsageError for an empty one."""
    found = items.split(";") if isinstance(items, str) else list(items)
    if not found or not all(found):
        raise UsageError("usage.item.name", "an empty item in %r" % (items,))
    return found


def resolve(items: str | Iterable[str], available: Sequence[str], report: Any, folder: str) -> list[str]:
    """The shard files that the loader opens for some items, in order and without repetition (10.2).

    available: file names in the folder; report: a Report whose identity is checked, or None. Raises FormatError
    (uqff.n1.missing) for a file that is not there, with the shards that are.
    """
    found: list[str] = []
    for item in split_items(items):
        files = _resolve_one(item, available, report)
        for name in files:
            if name not in available:
                raise FormatError("uqff.n1.missing", "%s is not in %s; shards there: %s" % (
                    name, folder, ", ".join(n for n in sorted(available) if n.endswith(EXTENSION)) or "none"),
                    field=name, path=folder)  # fmt: skip
            if name not in found:
                found.append(name)
    return found


def _resolve_one(item: str, available: Sequence[str], report: Any) -> list[str]:
    outputs = report.outputs if report is not None else []
    for output in outputs:
        if item in output.shards:
            return list(output.shards)
    for output in outputs:
        if output.quant.lower() == item.lower():
            return list(output.shards)
    for alias in type_files(item):
        for output in outputs:
            if "%s-0%s" % (output.quant.lower(), EXTENSION) == alias:
                return list(output.shards)
    if item in available:
        return expand(item, available)
    for name in type_files(item):
        if name in available:
            return expand(name, available)
    return expand(item, available)


def groups(available: Sequence[str], report: Any) -> list[Group]:
    """All groups of a folder (10.3): the report's outputs, then the .uqff files that none of them claims, by key."""
    found = [Group(o.quant, list(o.shards), o) for o in (report.outputs if report is not None else [])]
    claimed = {name for g in found for name in g.files}
    keys: dict[str, list[tuple[int, str]]] = {}
    for name in available:
        if name.endswith(EXTENSION) and name not in claimed:
            key, index = group_key(name)
            keys.setdefault(key, []).append((index or 0, name))
    return found + [Group(key, [name for _, name in sorted(keys[key])], None) for key in sorted(keys)]


def select(quant: str | None, all_groups: list[Group], available: Sequence[str]) -> list[Group]:
    """The groups that `--quant` selects (10.3): all for None or "all". Raises UsageError for no match."""
    if quant is None or quant == "all":
        return all_groups
    reported = [g for g in all_groups if g.output is not None]
    other = [g for g in all_groups if g.output is None]
    aliases = type_files(quant)
    steps = (
        [g for g in all_groups if quant in g.files],
        [g for g in reported if g.name.lower() == quant.lower()],
        [g for a in aliases for g in reported if "%s-0%s" % (g.name.lower(), EXTENSION) == a],
        [g for g in other if g.name == quant],
        [g for a in aliases for g in other if a in g.files],
    )
    for matches in steps:
        if matches:
            return matches[:1]
    shards = ", ".join(n for n in sorted(available) if n.endswith(EXTENSION)) or "none"
    raise UsageError("usage.quant.name", "nothing matches %r; shards: %s" % (quant, shards))

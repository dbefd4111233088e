"""What comparing a file with the model it was made from yields: a verdict and error figures for each tensor.

Used by the comparisons of both formats, vqf/compare.py and uqff/compare.py.
"""

from __future__ import annotations

import math
from collections import namedtuple
from operator import mul, sub

TYPE_CHECKING = False
if TYPE_CHECKING:
    from array import array

IDENTICAL, EXPLAINED, NOT_EXPLAINED, NO_SOURCE = "identical", "explained", "not explained", "no source"
MISSING = "missing"  # in the file, or of a source tensor all that would be made from it

Comparison = namedtuple("Comparison", "name verdict detail count rmse max cosine worst")
Comparison.__doc__ = """One tensor against its source. verdict: one of IDENTICAL, EXPLAINED, NOT_EXPLAINED, NO_SOURCE,
MISSING; detail: why, or where the first block that differs lies; count: values; rmse, max: of the errors; cosine:
between file and source, 1 for equal directions; worst: the place of the largest error, as text. A NaN is the largest."""


def without_figures(name: str, verdict: str, detail: str) -> Comparison:
    """The Comparison of a tensor whose values can't be compared."""
    return Comparison(name, verdict, detail, 0, math.nan, math.nan, math.nan, "")


class Figures:
    """Error figures of one tensor, summed up group of rows by group of rows."""

    def __init__(self, name: str, cols: int, pad_cols: int = 0) -> None:
        """cols: values in a row; pad_cols: those at its end that are padding, zero on both sides."""
        self.name, self.cols, self.pad_cols = name, cols, pad_cols
        self.count = self.nans = 0
        self.errors = self.dots = self.file_squares = self.source_squares = self.max = 0.0
        self.worst = ""

    def add(self, values: array[float], floats: array[float], where: str, row: int) -> None:
        """Whole rows of the file and of the source. where: `layer 3, ` and the like; row: the number of the first."""
        self.count += len(floats) // self.cols * (self.cols - self.pad_cols)
        differences = list(map(abs, map(sub, values, floats)))
        if math.isnan(sum(differences)):  # equal infinities are no error; NaN is, and no other is larger
            differences = [0.0 if a == b else abs(a - b) for a, b in zip(values, floats)]
            self.nans += sum(v != v for v in values)
        self.errors += sum(map(mul, differences, differences))
        self.dots += sum(map(mul, values, floats))
        self.file_squares += sum(map(mul, values, values))
        self.source_squares += sum(map(mul, floats, floats))
        nan = next((i for i, d in enumerate(differences) if d != d), None) if math.isnan(sum(differences)) else None
        largest = max(differences, default=0.0) if nan is None else math.nan
        if largest > self.max or (nan is not None and not math.isnan(self.max)):
            self.max = largest
            at, col = divmod(differences.index(largest) if nan is None else nan, self.cols)
            self.worst = "%srow %d, columns %d to %d" % (where, row + at, col // 32 * 32, col // 32 * 32 + 31)

    def result(self, verdict: str, detail: str) -> Comparison:
        rmse = math.sqrt(self.errors / self.count) if self.count else 0.0
        norm = math.sqrt(self.file_squares * self.source_squares)
        cosine = self.dots / norm if norm else 1.0 if self.file_squares == self.source_squares else 0.0
        if self.nans:
            detail += "%s%d NaN in the file" % ("; " if detail else "", self.nans)
        return Comparison(self.name, verdict, detail, self.count, rmse, self.max, cosine, self.worst)

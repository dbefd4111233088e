"""This library's own adapter: whatever a request says, the answer is a line of the protocol."""

from __future__ import annotations

import time
import unittest
from pathlib import Path

from vqfref.errors import WORDS
from vqfref.kat.cases import OPERATIONS, Suite
from vqfref.kat.ops import answer

KAT = Path(__file__).resolve().parent.parent / "kat"
SLOW = ("vqf_convert",)  # a model is converted for each request that is right


def altered(value: str) -> list[str]:
    """A field's value, cut, doubled, emptied, and replaced by what belongs elsewhere."""
    cut = ["", value[: len(value) // 2], value[:-1], value[:-2]]
    return [*cut, value + value, value + "00", "x", "0", "-1", "1,2", str(1 << 64), "9" * 5000]


class Answer(unittest.TestCase):
    @classmethod
    def setUpClass(cls) -> None:
        cls.suite = Suite(str(KAT))
        cls.first = {}
        for case in cls.suite.cases:
            if case.result == "valid":
                cls.first.setdefault(case.op, case)

    def test_every_operation_has_a_valid_case(self) -> None:
        self.assertEqual(set(self.first), set(OPERATIONS))

    def test_altered_requests_are_answered(self) -> None:
        for op, case in self.first.items():
            fields = self.suite.lines(case)
            for name, value in fields.items():
                for other in altered(value):
                    if op in SLOW and other in ("0", "1"):
                        continue
                    changed = {**fields, name: other}
                    line = "id %s %s" % (op, " ".join("%s=%s" % item for item in changed.items()))
                    with self.subTest(op=op, field=name, value=other[:80]):
                        t0 = time.perf_counter()
                        words = answer(line).split(" ")
                        self.assertLess(time.perf_counter() - t0, 10)
                        self.assertEqual(words[0], "id")
                        self.assertIn(words[1], ("ok", "err"))
                        if words[1] == "err":
                            self.assertIn(words[2], WORDS)


if __name__ == "__main__":
    unittest.main()

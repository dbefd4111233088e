"""Runs the mutants; the package's own words say what they are."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import threading
from collections import Counter, namedtuple
from pathlib import Path
from queue import Empty, Queue

from tests.mutants import __doc__ as usage
from vqfref.kat import runner
from vqfref.kat.adapter import Adapter
from vqfref.kat.cases import Suite, find
from vqfref.kat.runner import BAD

HERE = Path(__file__).resolve().parent
PACKAGE = HERE.parent.parent / "vqfref"
POLICY = {"prefix-04", "leading-space", "unknown-fields"}  # their cases accept either answer: nothing can fail them
WORKERS = 2
# `kat serve` of a copy, without the command line around it.
SERVE = "import sys; sys.path.insert(0, sys.argv[1]); from vqfref.cli.kat import run_serve; run_serve(None)"
QUIET = ["sh", "-c", 'exec "$@" 2>/dev/null', "-"]  # tracebacks of mutants that crash

Mutant = namedtuple("Mutant", "ops flags file old new")


def read(text: str) -> list[Mutant]:
    """The mutants of one file."""
    found = []
    for block in text.strip().split("\n\n"):
        head, *lines = block.split("\n")
        ops, flags, file = head.split(": ")
        old, new = ("\n".join(line[1:] for line in lines if line[0] == sign) for sign in "-+")
        found.append(Mutant(ops.split(), flags.split(), file, old, new))
    return found


class Copy:
    """A copy of the library that is one mutant after another."""

    def __init__(self, folder: Path) -> None:
        self.package = folder / "vqfref"
        shutil.copytree(PACKAGE, self.package, ignore=shutil.ignore_patterns("__pycache__"))
        (folder / "kat").symlink_to(PACKAGE.parent / "kat")  # the models of conversions are made from files there
        self.stamp = 1_000_000_000  # bytecode goes by a file's time in seconds: every version gets its own

    def write(self, file: str, text: str) -> None:
        path = self.package / file
        path.write_text(text, "utf-8")
        self.stamp += 1
        os.utime(path, (self.stamp, self.stamp))

    def run(self, mutant: Mutant, suite: Suite) -> tuple[Counter[str], Counter[str]]:
        """How many cases a mutant runs and how many of them it fails, by flag; "" counts all. It runs until each of its
        flags is failed; one without flags is the control and runs all."""
        whole = (self.package / mutant.file).read_text("utf-8")
        if mutant.flags and whole.count(mutant.old) != 1:
            raise LookupError("%s has this %d times:\n%s" % (mutant.file, whole.count(mutant.old), mutant.old))
        self.write(mutant.file, whole.replace(mutant.old, mutant.new, 1))
        ran: Counter[str] = Counter()
        failed: Counter[str] = Counter()
        adapter = Adapter([*QUIET, sys.executable, "-I", "-S", "-c", SERVE, str(self.package.parent)])
        try:
            flags = set(mutant.flags)
            cases = [c for c in suite.cases if c.op in mutant.ops and (not flags or flags & set(c.flags))]
            for outcome in runner.run(cases, runner.by_adapter(suite, adapter), {}):
                for flag in ("", *outcome.case.flags):
                    ran[flag] += 1
                    failed[flag] += outcome.outcome in BAD
                if flags and all(failed[flag] for flag in flags):
                    break
        finally:
            adapter.kill()
            self.write(mutant.file, whole)
        return ran, failed


def run_all(mutants: list[Mutant], suite: Suite) -> dict[int, tuple[Counter[str], Counter[str]] | LookupError]:
    """What each mutant's run gave, by its place in the list."""
    todo: Queue[int] = Queue()
    for index in range(len(mutants)):
        todo.put(index)
    results: dict[int, tuple[Counter[str], Counter[str]] | LookupError] = {}

    def work() -> None:
        with tempfile.TemporaryDirectory(prefix="vqfref-mutants-") as folder:
            copy = Copy(Path(folder))
            while True:
                try:
                    index = todo.get_nowait()
                except Empty:
                    return
                try:
                    results[index] = copy.run(mutants[index], suite)
                except LookupError as error:
                    results[index] = error

    threads = [threading.Thread(target=work) for _ in range(WORKERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def main(words: list[str]) -> int:
    options = [word for word in words if word.startswith("-")]
    if options:
        print(usage)
        return 0 if set(options) <= {"-h", "--help"} else 2
    os.environ["VQFREF_PURE"] = "1"
    suite = Suite(find())
    mutants = [m for path in sorted(HERE.glob("*.txt")) for m in read(path.read_text("utf-8"))]
    mutants = [m for m in mutants if not words or any(w in " ".join([*m.ops, *m.flags, m.file]) for w in words)]
    ops = sorted({op for m in mutants for op in m.ops})
    mutants = [Mutant([op], [], "errors.py", "", "") for op in ops] + mutants  # the control: a copy without a change
    caught: set[str] = set()
    faults = []
    for index, result in sorted(run_all(mutants, suite).items()):
        m = mutants[index]
        change = " ".join(m.old.split()), " ".join(m.new.split())
        if isinstance(result, LookupError):
            faults.append(str(result))
            continue
        ran, failed = result
        if not m.flags:
            faults += ["an unchanged copy fails %d of %d cases of %s" % (failed[""], ran[""], *m.ops)] * (
                failed[""] > 0
            )
            continue
        missed = [flag for flag in m.flags if not failed[flag]]
        caught |= set(m.flags) - set(missed)
        counts = "%d/%d" % (failed[""], ran[""])
        print("%-8s %9s  %-32s %-20s %s -> %s" % (
            "SURVIVED" if missed else "caught", counts, " ".join(m.flags), m.file, *change))  # fmt: skip
        if missed:
            faults.append("survived the cases of %s: %s: %s -> %s" % (" ".join(missed), m.file, *change))
    flags = {flag for c in suite.cases for flag in c.flags} - POLICY
    if not words:
        faults += ["no mutant is caught by the flag " + flag for flag in sorted(flags - caught)]
    for fault in faults:
        print("FAULT " + fault)
    print("%d mutants, %d of %d flags caught one, %d faults" % (
        len(mutants) - len(ops), len(caught), len(flags), len(faults)))  # fmt: skip
    return 1 if faults or not ops else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Proves the suite: wrong copies of this library, each with one check or constant changed, must all be caught.

    python3 -m tests.mutants [WORD …]    all mutants, or those whose first line has a WORD in it

A mutant runs as an adapter of its own, its plain versions alone, through the cases of its operations that have one of its
flags, until it has failed a case of each. It must come to that, and every flag of the suite must be caught by a mutant: a
flag is a check whose absence its cases catch. A copy without a change must fail none. The table says who caught whom; the
status is 1 where a mutant survives or a flag has none.

The *.txt beside this file hold the mutants, with blank lines between them: a line "operations: flags: file in vqfref/",
then the text that goes, which is in that file once, behind -, and what takes its place, behind +.
"""

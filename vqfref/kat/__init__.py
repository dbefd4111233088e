"""The known-answer-test suite: its cases, what each operation does here, and the driver of other programs."""

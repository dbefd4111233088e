"""What tests of the command line and of files share."""

from __future__ import annotations

import io
import os
import unittest
from collections import namedtuple
from contextlib import redirect_stderr, redirect_stdout
from unittest import mock

from vqfref.cli import main

# CI sets VQFREF_LONG once, on one Python: what takes long there, and whose kinds other tests have too.
LONG = bool(os.environ.get("VQFREF_LONG"))
SECONDS = 6.0  # of the processor: a reader's 2 on a usual machine, three times as much on a busy one
thorough = unittest.skipUnless(LONG, "thorough: with VQFREF_LONG=1")

Ran = namedtuple("Ran", "status out err")
VARIABLES = ("VLLM_VQF_KEY", "VLLM_VQF_SIGN_PRIV", "VLLM_VQF_SIGN_PUB")  # where the command line looks for secrets


def run_main(*argv: str, **variables: str) -> Ran:
    """A command line in this process, with no secrets in the environment but those given."""
    out, err = io.StringIO(), io.StringIO()
    with mock.patch.dict(os.environ, variables):
        for name in VARIABLES:
            if name not in variables:
                os.environ.pop(name, None)
        with redirect_stdout(out), redirect_stderr(err):
            status = main(list(argv))
    return Ran(status, out.getvalue(), err.getvalue())


def put(path: str, data: bytes) -> str:
    """A file's path, after it has been written."""
    with open(path, "wb") as file:
        file.write(data)
    return path


def get(path: str) -> bytes:
    """The bytes of a file."""
    with open(path, "rb") as file:
        return file.read()

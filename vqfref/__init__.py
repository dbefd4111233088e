"""vqfref: the truth about the bytes of VQF and UQFF weight files, in pure standard-library Python.

`vqfref.open(path)` reads a file, `vqfref.check(path)` lists all that is wrong with it. Names are loaded when first used.
"""

import sys

__version__ = "0.1.0"

if sys.version_info < (3, 8):  # nothing in this file may need a newer one, so that this can be said  # noqa: UP036
    raise ImportError("vqfref needs Python 3.8 or newer; this is %s" % sys.version.split()[0])

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from vqfref.errors import (
        FormatError,
        IntegrityError,
        LimitError,
        SignatureError,
        TensorNotFound,
        UnsupportedError,
        UsageError,
        VqfrefError,
    )
    from vqfref.findings import Finding
    from vqfref.weightfile import TensorInfo, WeightFile
    from vqfref.weights import check, open, sniff

_HOME = {
    "errors": (
        "FormatError", "IntegrityError", "LimitError", "SignatureError", "TensorNotFound", "UnsupportedError",
        "UsageError", "VqfrefError",
    ),
    "findings": ("Finding",),
    "weightfile": ("TensorInfo", "WeightFile"),
    "weights": ("check", "open", "sniff"),
}  # fmt: skip

__all__ = [
    "Finding",
    "FormatError",
    "IntegrityError",
    "LimitError",
    "SignatureError",
    "TensorInfo",
    "TensorNotFound",
    "UnsupportedError",
    "UsageError",
    "VqfrefError",
    "WeightFile",
    "__version__",
    "check",
    "open",
    "sniff",
]


def __getattr__(name: str) -> "Any":
    for module, names in _HOME.items():
        if name in names:
            __import__("vqfref." + module)
            value = globals()[name] = getattr(sys.modules["vqfref." + module], name)
            return value
    raise AttributeError("module 'vqfref' has no attribute %r" % name)


def __dir__() -> "list[str]":
    return sorted(__all__)

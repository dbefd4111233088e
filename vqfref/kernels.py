"""The one place that chooses between the plain version of an operation and a quick one.

Callers import hot operations from here and never from their own files. There are no quick ones yet: the plain ones are
handed on as they are.
"""

from __future__ import annotations

from vqfref.crypto.fnv import fnv1a64
from vqfref.quant.floats import f16_decode, f32_decode

__all__ = ["f16_decode", "f32_decode", "fnv1a64"]

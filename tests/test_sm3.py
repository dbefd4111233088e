"""SM3, HMAC-SM3 and the key derivation function; and which SM3 kernels takes."""

from __future__ import annotations

import array
import hashlib
import os
import sys
import unittest
from unittest import mock

from tests.test_crypto import Vectors, vectors
from vqfref import kernels
from vqfref.crypto.hmac_sm3 import HMAC, equal, hmac_sm3
from vqfref.crypto.sm3 import BLOCK_SIZE, CK_MISSING, DIGEST_SIZE, SM3, kdf, pad, sm3

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

#!/usr/bin/env python3
"""Makes the suite's cases of files: safetensors headers, UQFF layers, sets and slices, signed records. Uses nothing of
vqfref.

    python3 kat/gen/files.py            write st_header, uqff_layer, uqff_set, uqff_slice, attest and their files
    python3 kat/gen/files.py --check    make them again and compare; 1 if one differs

It needs the command of OpenSSL 3 and the packages safetensors, numpy,
 ml_dtypes and gguf; it is no part of what runs on a
board. st.py, uqff_layer.py, uqff_set.py, uqff_slice.py and records.py hold the cases and say whose verdicts they are.
"""

from __future__ import annotations

import sys

import records
import st
import uqff_layer
import uqff_set
import uqff_slice
from suite import main

FLAGS = {**st.FLAGS, **uqff_layer.FLAGS, **uqff_set.FLAGS, **uqff_slice.FLAGS, **records.FLAGS}
FOLDERS: dict[str, dict[str, bytes]] = {"st": {}, "uqff-cases": {}}
MAKERS = {
    "st_header": lambda _: st.make_st_header(FOLDERS["st"]),
    "uqff_layer": lambda _: uqff_layer.make_uqff_layer(FOLDERS["uqff-cases"]),
    "uqff_set": lambda _: uqff_set.make_uqff_set(FOLDERS["uqff-cases"]),
    "uqff_slice": lambda _: uqff_slice.make_uqff_slice(FOLDERS["uqff-cases"]),
    "attest": records.make_attest,
}

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], __doc__, FLAGS, MAKERS, FOLDERS))

"""The least adapter: SM3 by hashlib and FNV-1a-64, over the protocol of kat/README.md, section 4. No vqfref in it."""

import hashlib
import sys


def sm3(msg):
    return "digest=" + hashlib.new("sm3", bytes.fromhex(msg)).hexdigest()


def fnv1a64(msg):
    h = 0xCBF29CE484222325
    for byte in bytes.fromhex(msg):
        h = (h ^ byte) * 0x100000001B3 % 2**64
    return "hash=%016x" % h


OPS = {"sm3": sm3, "fnv1a64": fnv1a64}
try:
    sm3("")
except ValueError:  # an OpenSSL without SM3
    del OPS["sm3"]

for line in sys.stdin:
    case, op, *fields = line.rstrip("\n").split(" ")
    if case == "hello":
        reply = "hello vqfref-kat/1 name=adapter.py version=1 ops=" + ",".join(OPS)
    elif op in OPS:
        reply = "%s ok %s" % (case, OPS[op](**dict(f.split("=", 1) for f in fields)))
    else:
        reply = case + " skip"
    print(reply, flush=True)

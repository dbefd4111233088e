"""The `openssl` command (3.0 or later) under test: a real third party behind the protocol of kat/README.md. No vqfref in it.

Each case is one or two runs of openssl. What OpenSSL can't be asked through its command line is answered with skip. Where
it deviates stands in openssl.xfail, with the reason.
"""

import os
import subprocess
import sys
import tempfile

OPENSSL = os.environ.get("OPENSSL", "openssl")
HERE = tempfile.mkdtemp(prefix="openssl-adapter-")
# SubjectPublicKeyInfo of an SM2 key, up to the point's 04 ‖ x ‖ y; the curve is named by its OID 1.2.156.10197.1.301
SPKI = bytes.fromhex("3059301306072a8648ce3d020106082a811ccf5501822d034200")


class Refused(Exception):
    """A class of kat/README.md, section 2."""


def run(*words, data=b""):
    return subprocess.run([OPENSSL, *words], input=data, capture_output=True)


def must(*words, data=b"", word="key"):
    done = run(*words, data=data)
    if done.returncode != 0:
        raise Refused(word)
    return done.stdout


def put(name, data):
    path = os.path.join(HERE, name)
    with open(path, "wb") as file:
        file.write(data)
    return path


def sm3(msg):
    return {"digest": must("dgst", "-sm3", "-binary", data=msg).hex()}


def hmac_sm3(key, msg):
    return {"tag": must("dgst", "-sm3", "-mac", "HMAC", "-macopt", "hexkey:" + key.hex(), "-binary", data=msg).hex()}


def sm4_block(mode, key, block):
    if len(key) != 16:
        raise Refused("key")
    words = ("enc", "-sm4-ecb", "-nopad", "-K", key.hex(), "-e" if mode == b"encrypt" else "-d")
    return {"block": must(*words, data=block).hex()}


def sm4_ctr(key, iv, offset, data):
    if len(key) != 16 or len(iv) != 16:
        raise Refused("key" if len(key) != 16 else "iv")
    offset = int(offset)
    counter = (int.from_bytes(iv, "big") + offset // 16) % 2**128
    words = ("enc", "-sm4-ctr", "-K", key.hex(), "-iv", "%032x" % counter)
    return {"data": must(*words, data=bytes(offset % 16) + data)[offset % 16 :].hex()}


def public_key(pub):
    """A PEM file of the key, once OpenSSL has checked it."""
    if len(pub) == 65 and pub[0] == 4:
        pub = pub[1:]
    if len(pub) != 64:
        raise Refused("key")
    path = put("pub.der", SPKI + b"\x04" + pub)
    must("pkey", "-pubin", "-inform", "DER", "-in", path, "-pubcheck", "-noout", word="point")
    return path, pub


def sm2_pubkey(pub):
    return {"pub": public_key(pub)[1].hex()}


def der_integer(data):
    data = data.lstrip(b"\0") or b"\0"
    data = b"\0" * (data[0] >> 7) + data
    return b"\x02" + bytes([len(data)]) + data


def der_signature(sig):
    body = der_integer(sig[:32]) + der_integer(sig[32:])
    return b"\x30" + bytes([len(body)]) + body


def sm2_verify(pub, id, msg, sig):
    path, _ = public_key(pub)
    if len(sig) != 64:
        raise Refused("signature")
    words = ["pkeyutl", "-verify", "-rawin", "-digest", "sm3", "-pubin", "-keyform", "DER", "-inkey", path]
    words += ["-in", put("msg", msg), "-sigfile", put("sig", der_signature(sig)), "-pkeyopt", "hexdistid:" + id.hex()]
    must(*words, word="signature")
    return {}


OPS = {f.__name__: f for f in (sm3, hmac_sm3, sm4_block, sm4_ctr, sm2_pubkey, sm2_verify)}
TEXT = {"mode", "offset"}  # fields that are not hex


def answer(line):
    case, op, *fields = line.split(" ")
    if case == "hello":
        version = run("version").stdout.split()[1].decode()
        return "hello vqfref-kat/1 name=openssl version=%s ops=%s" % (version, ",".join(OPS))
    if op not in OPS:
        return case + " skip"
    values = {}
    for field in fields:
        name, _, value = field.partition("=")
        values[name] = value.encode() if name in TEXT else bytes.fromhex(value)
    try:
        outputs = OPS[op](**values)
    except Refused as refusal:
        return "%s err %s" % (case, refusal)
    return " ".join([case, "ok", *("%s=%s" % item for item in outputs.items())])


if __name__ == "__main__":
    try:
        for line in sys.stdin:
            print(answer(line.rstrip("\n")), flush=True)
    finally:
        for name in os.listdir(HERE):
            os.unlink(os.path.join(HERE, name))
        os.rmdir(HERE)

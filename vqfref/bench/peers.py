"""What other people's packages do of the same, where they are installed: numpy, gguf, gmssl, gmalg, cryptography,
safetensors; OpenSSL's SM3 by hashlib, its SM4 by its own command where cryptography is missing.

Every function gives the ways that there are here, and none without the packages. They are imported in this file alone.
"""

from __future__ import annotations

import functools

from vqfref.bench.measure import Way

TYPE_CHECKING = False
if TYPE_CHECKING:
    from array import array
    from typing import Any

PACKAGES = ("numpy", "gguf", "gmssl", "gmalg", "cryptography", "safetensors")


@functools.lru_cache(maxsize=None)
def package(name: str) -> Any:
    """A module, or None."""
    try:
        return __import__(name, fromlist=["*"])
    except ImportError:
        return None
    except Exception:  # what is there and broken is not there
        return None


def versions() -> dict[str, str]:
    """The version of each package that is installed; "?" where none is said."""
    return {name: _version(name) for name in PACKAGES if package(name)}


def _version(name: str) -> str:
    try:
        from importlib.metadata import version
    except ImportError:
        return "?"
    try:
        return version(name)
    except Exception:  # a package without its metadata
        return "?"


# ---- crypto


def sm4_ctr(key: bytes, iv: bytes, data: bytes, few: bytes) -> list[Way]:
    """few: what the slow ones get. gmssl and gmalg have no counter mode: their blocks alone."""
    ways = []
    ciphers = package("cryptography.hazmat.primitives.ciphers")
    if ciphers:
        try:  # builds of it without SM4 are known
            cipher = ciphers.Cipher(ciphers.algorithms.SM4(key), ciphers.modes.CTR(iv))
            cipher.encryptor()
        except Exception:
            ciphers = None
        else:
            ways.append(Way("OpenSSL", lambda: cipher.encryptor().update(data), len(data) / 1e6))
    rate = 0.0 if ciphers else openssl_speed(len(data))
    if rate:
        ways.append(Way("OpenSSL", None, 0, rate))
    if package("gmssl.sm4"):
        crypt = package("gmssl.sm4").CryptSM4()
        crypt.set_key(key, 0)
        ways.append(Way("gmssl", lambda: crypt.crypt_ecb(few), len(few) / 1e6))
    if package("gmalg"):
        encrypt = package("gmalg").SM4(key).encrypt
        blocks = [few[i : i + 16] for i in range(0, len(few), 16)]
        ways.append(Way("gmalg", lambda: [encrypt(block) for block in blocks], len(few) / 1e6))
    return ways


@functools.lru_cache(maxsize=None)
def openssl_speed(size: int) -> float:
    """MB/s of `openssl speed` for SM4-CTR over buffers of that size, measured once; 0 where there is no such command."""
    argv = ["openssl", "speed", "-mr", "-seconds", "1", "-bytes", str(size), "-evp", "sm4-ctr"]
    try:
        import subprocess

        done = subprocess.run(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        return float(done.stdout.split(b"+F:")[1].split(b":")[2]) / 1e6
    except (ImportError, OSError, IndexError, ValueError):
        return 0.0


def sm3(messages: list[bytes], few: list[bytes]) -> list[Way]:
    """Messages one after the other; few: what the slow ones get."""
    ways, some, much = [], sum(map(len, few)) / 1e6, sum(map(len, messages)) / 1e6
    try:
        import hashlib

        hashlib.new("sm3")
        ways.append(Way("hashlib", lambda: [hashlib.new("sm3", m).digest() for m in messages], much))
    except (ImportError, ValueError):
        pass
    if package("gmssl.sm3"):
        sm3_hash = package("gmssl.sm3").sm3_hash
        ways.append(Way("gmssl", lambda: [sm3_hash(list(m)) for m in few], some))
    if package("gmalg"):
        SM3 = package("gmalg").SM3

        def digest(message: bytes) -> bytes:
            new = SM3()
            new.update(message)
            value: bytes = new.value()
            return value

        ways.append(Way("gmalg", lambda: [digest(m) for m in few], some))
    return ways


def hmac_sm3(key: bytes, data: bytes) -> list[Way]:
    try:
        import hashlib
        import hmac

        hashlib.new("sm3")
        return [Way("hashlib", lambda: hmac.new(key, data, "sm3").digest(), len(data) / 1e6)]
    except (ImportError, ValueError):
        return []


def _sm2(d: int, P: tuple[int, int]) -> tuple[Any, Any]:
    """The objects of gmssl and of gmalg for a pair of keys."""
    point = b"".join(v.to_bytes(32, "big") for v in P)
    gmssl, gmalg = package("gmssl.sm2"), package("gmalg")
    return (gmssl and gmssl.CryptSM2(private_key="%064x" % d, public_key=point.hex()),
            gmalg and gmalg.SM2(d.to_bytes(32, "big"), b"1234567812345678", b"\4" + point))  # fmt: skip


def sm2_sign(d: int, P: tuple[int, int], e: int, k: int) -> list[Way]:
    ways = []
    gmssl, gmalg = _sm2(d, P)
    if gmssl:
        ways.append(Way("gmssl", lambda: gmssl.sign(e.to_bytes(32, "big"), "%064x" % k), 1))
    if gmalg:
        ways.append(Way("gmalg", lambda: gmalg.sign(b"message"), 1))
    return ways


def sm2_verify(d: int, P: tuple[int, int], e: int, r: int, s: int) -> list[Way]:
    ways = []
    gmssl, gmalg = _sm2(d, P)
    if gmssl:
        ways.append(Way("gmssl", lambda: gmssl.verify("%064x%064x" % (r, s), e.to_bytes(32, "big")), 1))
    if gmalg:
        signature = gmalg.sign(b"message")
        ways.append(Way("gmalg", lambda: gmalg.verify(b"message", *signature), 1))
    return ways


# ---- numbers


def matvec(data: bytes, x: array[float], encoding: str, rows: int) -> list[Way]:
    """numpy's product with what gguf makes of the blocks, every time anew."""
    numpy, quants, work = package("numpy"), package("gguf.quants"), rows * len(x) / 1e6
    if not numpy or not quants:
        return []
    kind = getattr(package("gguf").GGMLQuantizationType, encoding.upper())
    blocks, vector = numpy.frombuffer(data, "u1").reshape(rows, -1), numpy.array(x, "f4")
    return [Way("gguf", lambda: quants.dequantize(blocks, kind) @ vector, work)]


def floats(operation: str, values: array[float], halves: bytes) -> list[Way]:
    """numpy's bf16_to_f32, f16_to_f32 and f32_to_bf16."""
    numpy = package("numpy")
    if not numpy:
        return []
    words, shorts = numpy.array(values, "f4").view("u4"), numpy.frombuffer(halves, "<u2")
    call = {
        "bf16_to_f32": lambda: (shorts.astype("u4") << 16).view("f4"),
        "f16_to_f32": lambda: shorts.view("<f2").astype("f4"),
        "f32_to_bf16": lambda: (words + 0x7FFF + (words >> 16 & 1) >> 16).astype("u2"),
    }[operation]
    return [Way("numpy", call, len(values) / 1e6)]


def blocks(values: array[float], data: bytes, encoding: str, way: str) -> list[Way]:
    """gguf's dequantize or quantize."""
    numpy, quants = package("numpy"), package("gguf.quants")
    if not numpy or not quants:
        return []
    kind = getattr(package("gguf").GGMLQuantizationType, encoding.upper())
    stored, plain = numpy.frombuffer(data, "u1"), numpy.array(values, "f4")
    call = {"dequantize": lambda: quants.dequantize(stored, kind), "quantize": lambda: quants.quantize(plain, kind)}
    return [Way("gguf", call[way], len(values) / 1e6)]


# ---- files


def safetensors_header(path: str) -> list[Way]:
    safetensors = package("safetensors")
    if not safetensors or not package("numpy"):
        return []

    def keys() -> int:
        with safetensors.safe_open(path, framework="numpy") as file:
            return len(file.keys())

    return [Way("safe_open", keys, 1)]

"""What seals a VQF file: the checksum of a plain one, the HMAC of an encrypted one, the signature. Spec section 5.

`verify` runs gates 8 to 11 in one pass over the file with bounded memory and says what was checked, what was not and
why. The pieces it is made of (keys, canonical header, tags, digest D) serve the writers in vqf/reseal.py too.
"""

from __future__ import annotations

from collections import namedtuple

from vqfref import kernels
from vqfref.crypto import sm2
from vqfref.crypto.fnv import OFFSET_BASIS
from vqfref.crypto.hmac_sm3 import HMAC, equal
from vqfref.errors import FormatError, SignatureError, UsageError
from vqfref.findings import Findings
from vqfref.source import text_mode
from vqfref.vqf.structs import DIR_OFFSET, FLAG_ENC, FLAG_SIGNED, HEADER_448, PAGE, TENSOR
from vqfref.weightfile import Step, Verification

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Iterable, Iterator

    from vqfref.source import Source
    from vqfref.vqf.head import Head
    from vqfref.vqf.structs import Layout

    Progress = Callable[[int, int], None]

USER_IDS = {448: b"vllm-kestrel-vqf", 432: b"vllm-shs-vqf"}  # by header form; both are in the wild
REQUIREMENTS = ("hmac", "signature")
PIECE = 1 << 20  # bytes of one piece of a pass; a multiple of the cipher's block
MAX_UNFILLED = 1 << 30  # bytes of zeros, from the end, among which their beginning is looked for

Keys = namedtuple("Keys", "sm4 hmac")
Keys.__doc__ = "What a passphrase becomes: 16 bytes each for SM4 and for HMAC."


def derive_keys(passphrase: bytes) -> Keys:
    """K = SM3(passphrase); K[0:16] is the SM4 key, K[16:32] the HMAC key. No salt, no iterations."""
    k = kernels.sm3(passphrase)
    return Keys(k[:16], k[16:])


def canonical_header(raw: bytes, layout: Layout) -> bytes:
    """A header as tag and digest cover it: file_len zero, the signature block zero, all else as written."""
    at, sig = layout.offset_of("file_len"), layout.offset_of("sig")
    return raw[:at] + bytes(8) + raw[at + 8 : sig] + bytes(layout.size - sig)


class Tags:
    """The three running hashes of a file: FNV-1a-64 over directory ‖ stored data, HMAC-SM3 over canonical header ‖
    directory ‖ stored data, and D = SM3(canonical header ‖ directory ‖ plaintext). Only those asked for are kept."""

    def __init__(self, canonical: bytes, directory: bytes, *, fnv: bool, hmac_key: bytes | None, digest: bool) -> None:
        self._fnv = kernels.fnv1a64(directory, OFFSET_BASIS) if fnv else None
        self._hmac = HMAC(hmac_key, canonical + directory, kernels.sm3_new) if hmac_key is not None else None
        self._digest: Any = kernels.sm3_new(canonical + directory) if digest else None

    def update(self, stored: bytes, plain: bytes | None) -> None:
        """One piece of the data area, as it is stored and as plaintext (None where no key tells)."""
        if self._fnv is not None:
            self._fnv = kernels.fnv1a64(stored, self._fnv)
        if self._hmac is not None:
            self._hmac.update(stored)
        if self._digest is not None and plain is not None:
            self._digest.update(plain)

    def tag(self) -> bytes:
        """The bytes behind file_len."""
        return self._hmac.digest() if self._hmac is not None else (self._fnv or 0).to_bytes(8, "little")

    def digest(self) -> bytes:
        """D, 32 bytes."""
        d: bytes = self._digest.digest()
        return d


def plaintext(source: Source, head: Head, keys: Keys | None, progress: Progress | None = None) -> Iterator[Any]:
    """The data area in pieces, each as (stored, plain); plain is None for ciphertext without keys."""
    h = head.header
    encrypted = bool(h.flags & FLAG_ENC)
    done, total = 0, h.file_len - h.data_offset
    for stored in source.pieces(h.data_offset, h.file_len, PIECE):
        if not encrypted:
            plain: bytes | None = stored
        else:
            plain = kernels.sm4_ctr(keys.sm4, h.enc_iv, stored, done) if keys else None
        yield stored, plain
        done += len(stored)
        if progress:
            progress(done, total)


def verify(
    source: Source,
    head: Head,
    *,
    passphrase: bytes | None = None,
    public_key: bytes | None = None,
    user_ids: Iterable[bytes] | None = None,
    require: Iterable[str] = (),
    progress: Progress | None = None,
) -> Verification:
    """Gates 8 to 11. A failed check is a finding of severity error; nothing raises but OSError and the caller's faults.

    passphrase: bytes; an empty one is none. public_key: 64 bytes x ‖ y, the key to trust. user_ids: those to accept
    (default: the two in use). require: any of "hmac", "signature": their absence is an error, so that a file rewritten
    as plain with a fresh checksum does not pass.

    Raises UsageError for an unknown requirement, SignatureError for a public key that is none.
    """
    required = set(require)
    if not required <= set(REQUIREMENTS):
        raise UsageError("usage.require.unsupported", "require %s: expected %s" % (
            ", ".join(sorted(required - set(REQUIREMENTS))), " or ".join(REQUIREMENTS)))  # fmt: skip
    if user_ids is not None:
        user_ids = [user_ids] if isinstance(user_ids, bytes) else list(user_ids)
        if not all(isinstance(i, bytes) for i in user_ids):
            raise UsageError("usage.userid.unsupported", "user ids must be bytes")
    trusted = sm2.public_key_from_bytes_checked(public_key) if public_key is not None else None
    run = _Verify(source, head, passphrase or None, trusted, user_ids, required)
    try:
        return run.run(progress)
    except FormatError as error:  # the file was cut while it was read
        run.found.add_error(error)
        return Verification(False, False, run.steps, run.found.sorted())


class ErasedPages:
    """Pages of a file that hold nothing but ff or zeros, as a medium leaves them that lost or never wrote them.

    A page of zeros can be meant (in F16 and Q8_0 zero is zero bytes, spec section 9), so they are told of only where
    the seal is broken.
    """

    def __init__(self) -> None:
        self.count = {0: 0, 255: 0}
        self.first: dict[int, int] = {}

    def update(self, at: int, piece: bytes) -> None:
        """One piece of the data, which lies at `at`."""
        for start in range(-at % PAGE, len(piece) - PAGE + 1, PAGE):
            byte = piece[start]
            if byte in self.count and piece.startswith(_PAGES[byte], start):
                self.first.setdefault(byte, at + start)
                self.count[byte] += 1

    def report(self, found: Findings) -> None:
        """A note for each kind that there is."""
        for byte, at in self.first.items():
            pages = "the page of %d bytes here is" % PAGE
            if self.count[byte] > 1:
                pages = "%d pages of %d bytes, of which this is the first, are" % (self.count[byte], PAGE)
            what = "zeros: never written" if byte == 0 else "ff: erased and never written"
            found.add("note", "vqf.erased.missing", "%s nothing but %s" % (pages, what), at, None)


_PAGES = {0: bytes(PAGE), 255: b"\xff" * PAGE}


class _Verify:
    """One verification: what is known, and the steps and findings so far."""

    def __init__(
        self, source: Source, head: Head, passphrase: bytes | None, trusted: tuple[int, int] | None,
        user_ids: Iterable[bytes] | None, required: set[str],
    ) -> None:  # fmt: skip
        self.source, self.head, self.required, self.trusted = source, head, required, trusted
        self.user_ids = list(USER_IDS.values() if user_ids is None else user_ids)
        self.encrypted = bool(head.header.flags & FLAG_ENC)
        self.signed = bool(head.header.flags & FLAG_SIGNED)
        self.keys = derive_keys(passphrase) if passphrase and self.encrypted else None
        self.surplus_passphrase = bool(passphrase) and not self.encrypted
        self.found = Findings(source.path)
        self.steps: list[Step] = []
        self.erased = ErasedPages()
        self.authenticated = False

    def run(self, progress: Progress | None) -> Verification:
        h = self.head.header
        canonical = canonical_header(self.source.read_at(0, self.head.layout.size), self.head.layout)
        directory = self.source.read_at(DIR_OFFSET, TENSOR.size * h.n_tensors)
        stored = self.source.read_at(h.file_len, self.head.tag_length)
        readable = not self.encrypted or self.keys is not None
        fnv = not self.encrypted and any(stored)
        tags = Tags(canonical, directory, fnv=fnv, hmac_key=self.keys.hmac if self.keys else None,
                    digest=self.signed and readable)  # fmt: skip
        if fnv or self.keys or (self.signed and readable):
            keys = self.keys if self.signed else None  # what only the digest needs is not decrypted for nothing
            at = h.data_offset
            for piece, plain in plaintext(self.source, self.head, keys, progress):
                tags.update(piece, plain)
                self.erased.update(at, piece)
                at += len(piece)
        if self.encrypted:
            tag_ok = self.hmac_step(stored, tags)
        else:
            tag_ok = self.checksum_step(stored, tags)
        if tag_ok or not self.encrypted:
            self.signature_step(tags.digest() if self.signed else b"")
        elif self.signed:
            why = "needs the plaintext" if self.keys is None else "the tag failed, so the plaintext is unknown"
            self.skip("signature", why, required_code="vqf.signature.missing")
        else:
            self.no_signature()
        findings = self.found.sorted()
        ok = not any(f.severity == "error" for f in findings)
        return Verification(ok, ok and self.authenticated, self.steps, findings)

    # -- gates 8 and 9

    def hmac_step(self, stored: bytes, tags: Tags) -> bool:
        if self.keys is None:
            self.fail("hmac", "vqf.enc.key", "encrypted, and no passphrase was given", 8, "flags", "not checked")
            return False
        if not equal(stored, tags.tag()):
            self.fail("hmac", "vqf.hmac.tag", "stored HMAC-SM3 %s… is not that of header, directory and data: the file "
                      "was tampered with, or the key is wrong (which of the two can't be told)" % stored[:8].hex()
                      + text_mode(self.source), self.head.header.file_len, "tag")  # fmt: skip
            self.erased.report(self.found)
            return False
        self.authenticated = True
        self.steps.append(Step("hmac", "ok", "HMAC-SM3 with the passphrase's key: header, directory and data"))
        return True

    # -- gate 10

    def checksum_step(self, stored: bytes, tags: Tags) -> bool:
        at = self.head.header.file_len
        if self.surplus_passphrase:
            self.found.add("note", "vqf.passphrase.policy", "the file is not encrypted: the passphrase was not used", 8,
                           "flags")  # fmt: skip
        if "hmac" in self.required:
            self.fail("hmac", "vqf.hmac.missing", "an HMAC is required, but the file is plain: its checksum authenticates "
                      "nothing", 8, "flags", "not checked", "accepts")  # fmt: skip
        text = stored[::-1].hex()
        if not any(stored):
            error = unfilled(self.source, self.head)
            if error is not None:
                self.fail("checksum", error.code, error.message, error.offset or 0, "tag", engine="accepts")
                return False
            self.found.add("note", "vqf.checksum.missing", "the stored checksum is 0, which means none", at, "tag")
            self.steps.append(Step("checksum", "not checked", "none is stored"))
            return True
        if stored != tags.tag():
            computed = tags.tag()[::-1].hex()
            self.fail("checksum", "vqf.checksum.tag", "stored FNV-1a-64 %s, but directory and data give %s"
                      % (text, computed) + text_mode(self.source), at, "tag")  # fmt: skip
            self.erased.report(self.found)
            return False
        self.steps.append(Step("checksum", "ok", "FNV-1a-64 %s; not authenticated: anybody can make it" % text))
        return True

    # -- gate 11

    def signature_step(self, digest: bytes) -> None:
        if not self.signed:
            self.no_signature()
            return
        sig, layout = self.head.header.sig, self.head.layout
        name = sig.id[: sig.id_len] if sig.id_len <= 32 else None
        if not equal(digest, sig.digest):
            self.fail("signature", "vqf.digest.signature", "the block's digest is %s…, but header, directory and "
                      "plaintext give %s…" % (sig.digest[:8].hex(), digest[:8].hex()),
                      layout.offset_of("sig.digest"), "sig.digest")  # fmt: skip
        elif name is None or name not in self.user_ids:
            found = "id_len %d" % sig.id_len if name is None else "user id %r" % _text(name)
            self.fail("signature", "vqf.userid.signature", "%s, expected %s" % (
                found, " or ".join(repr(_text(i)) for i in self.user_ids)),
                layout.offset_of("sig.id"), "sig.id")  # fmt: skip
        elif self.trusted is None:
            self.skip("signature", "no public key", required_code="vqf.pubkey.missing")
        else:
            self.check_signature(self.trusted, digest, name)

    def check_signature(self, trusted: tuple[int, int], digest: bytes, name: bytes) -> None:
        sig, layout = self.head.header.sig, self.head.layout
        try:
            kernels.sm2_check(trusted, digest, sig.r + sig.s, name)
        except SignatureError as error:
            self.fail("signature", "vqf.sm2.signature", "%s (user id %r)" % (error.message, _text(name)),
                      layout.offset_of("sig.r"), "sig.r")  # fmt: skip
            return
        if sm2.public_key_to_bytes(trusted) != sig.pub:
            self.fail("signature", "vqf.pub.signature", "the signature is right, but the block names another public key",
                      layout.offset_of("sig.pub"), "sig.pub")  # fmt: skip
            return
        self.authenticated = True
        self.steps.append(Step("signature", "ok", "SM2 by %s…, user id %r" % (sig.pub[:8].hex(), _text(name))))

    def no_signature(self) -> None:
        """The file is not signed: an error where a signature is required, a word where a key was given for one."""
        if "signature" not in self.required:
            if self.trusted is not None:
                why = "the file has none; the public key was not used"
                self.found.add(
                    "warning", "vqf.pubkey.policy", "the file is not signed: nothing says who made it", 8, "flags"
                )
                self.steps.append(Step("signature", "not checked", why))
            return
        self.fail("signature", "vqf.signature.missing", "a signature is required, but the file has none", 8, "flags",
                  "not checked", "accepts")  # fmt: skip

    # -- what a step can come to

    def fail(
        self, name: str, code: str, message: str, offset: int, field: str, result: str = "failed",
        engine: str | None = None,
    ) -> None:  # fmt: skip
        if engine is None:  # the engine checks encrypted files by itself, plain ones when it is asked to
            engine = "refuses" if self.encrypted else "unknown"
        self.found.add("error", code, message, offset, field, engine)
        self.steps.append(Step(name, result, message))

    def skip(self, name: str, why: str, required_code: str) -> None:
        if name in self.required:
            self.fail(name, required_code, "required, but not checked: " + why, 8, "flags", "not checked", "unknown")
        else:
            self.steps.append(Step(name, "not checked", why))


def _text(user_id: bytes) -> str:
    return user_id.decode("ascii", "backslashreplace")


def unfilled(source: Source, head: Head) -> FormatError | None:
    """The error for a plain file that ends in zeros, its checksum too: space was kept for a download and never filled.

    A stored checksum of 0 means none, so the engine would load such a file. Padding is at most 63 bytes, and a page of
    zeros more than a tensor ends in.
    """
    start, at = head.header.data_offset, head.header.file_len
    if any(source.read_at(at, head.tag_length)):
        return None
    first = max(start, at - PAGE)
    while at > start:
        n = min(1 << 16, at - start)
        rest = len(source.read_at(at - n, n).rstrip(b"\0"))
        at -= n - rest
        if rest or at < head.header.file_len - MAX_UNFILLED:
            break
    if at > first:
        return None
    return FormatError("vqf.zeros.truncated", "nothing but zeros from here to the end, the checksum too: space that was kept "
                       "for a download and never filled", offset=at)  # fmt: skip


def is_signing_tool_output(source: Source, passphrase: bytes) -> bool:
    """Is this what the engine's signing tool makes of an encrypted file: the old tag, and behind it 32 bytes of HMAC
    over the ciphertext alone? Such a file fails gate 6 with vqf.signtool.bounds. Section 5."""
    for layout_offset in (HEADER_448.offset_of("data_offset"), HEADER_448.offset_of("data_offset") - 16):
        numbers = source.read_at(layout_offset, 16)
        data_offset, file_len = int.from_bytes(numbers[:8], "little"), int.from_bytes(numbers[8:], "little")
        if 0 < data_offset < file_len and file_len + 64 == source.size:
            mac = HMAC(derive_keys(passphrase).hmac, new=kernels.sm3_new)
            for piece in source.pieces(data_offset, file_len, PIECE):
                mac.update(piece)
            return equal(mac.digest(), source.read_at(file_len + 32, 32))
    return False

"""Rewrites a sealed VQF file: encrypt, decrypt, change the passphrase, sign, take a signature off, set header fields.

All of these are one operation, `reseal`: check the old tag, settle the new header, write header, data and the new tag.
The first pass over the data checks and computes the digest that a new signature needs; the second writes. Nothing is
written before the old tag was right, and the target is replaced at one stroke (sink.AtomicFile). Where the data area
stays as it is, `in_place` writes the header and then the tag, and nothing else. Spec section 5.
"""

from __future__ import annotations

import os
import struct
from collections import namedtuple

from vqfref import kernels
from vqfref.crypto import sm2
from vqfref.crypto.hmac_sm3 import equal
from vqfref.errors import IntegrityError, SignatureError, UsageError
from vqfref.sink import AtomicFile, InPlace
from vqfref.source import Source
from vqfref.vqf.head import check_bounds, load_directory, load_head
from vqfref.vqf.seal import USER_IDS, Tags, canonical_header, derive_keys, plaintext
from vqfref.vqf.structs import DIR_OFFSET, FLAG_ENC, FLAG_SIGNED, POSITIVE_WORDS, SIG, SIZES, TENSOR

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Iterator, Mapping

    from vqfref.vqf.head import Head
    from vqfref.vqf.seal import Keys

    Progress = Callable[[int, int], None]

Signer = namedtuple("Signer", "d user_id")
Signer.__doc__ = "Who signs: the private key d, an int, and the user id as bytes, or None for that of the header form."

# Words of arch that say nothing about where tensors lie or how they are read.
SETTABLE = (
    "max_seq_len", "rope_theta", "norm_eps", "bos_id", "eos_id", "has_mrope", "mrope_n_sec", "mrope_sections",
    "vision_start_id", "vision_end_id", "image_token_id", "video_token_id", "top_k", "vis_ds_idx",
)  # fmt: skip

KEEP = object()  # "as the file has it", where None means "without"


def reseal(
    path: str | os.PathLike[str],
    out: str | os.PathLike[str] | None,
    *,
    passphrase: bytes | None = None,
    new_passphrase: Any = KEEP,
    signer: Any = KEEP,
    fields: Mapping[str, Any] | None = None,
    iv: bytes | None = None,
    progress: Progress | None = None,
) -> None:
    """Write `path` again with other seals.

    out: the file to write (it may be `path` itself), or None to change header and tag in place. passphrase: that of the
    file, if it is encrypted. new_passphrase: bytes to encrypt with, None to decrypt, KEEP. signer: a Signer, None to
    take the signature off, KEEP. fields: header fields to set, by their names in arch (see SETTABLE); arrays as
    "mrope_sections" with four numbers. iv: 16 bytes for a new encryption; random if None (never use one twice).

    Raises UsageError for what does not go together; IntegrityError where the old tag is wrong or the passphrase missing;
    SignatureError (vqf.resign.signature) where the change would void a signature that is to be kept, and
    (vqf.digest.signature) where a signed file that is to be changed and signed again is not what was signed. A voided
    signature never stays. Raises OSError.
    """
    with Source(path, "pread") as source:
        head = load_head(source)
        for entry in load_directory(source, head):
            check_bounds(entry, head)
        job = _Job(source, head, passphrase, new_passphrase, signer, fields or {}, iv)
        if out is None:
            with InPlace(path) as target:  # from before the first pass, so that no other writer comes between
                job.first_pass(progress, in_place=True)
                target.apply(job.changes())
            return
        with AtomicFile(out) as file:  # a target that can't be written is found at once
            job.first_pass(progress, in_place=False)
            for part in job.second_pass(progress):
                file.write(part)


class _Job:
    """One rewriting: the old file's header and keys, the new one's."""

    def __init__(
        self, source: Source, head: Head, passphrase: bytes | None, new_passphrase: Any, signer: Any,
        fields: Mapping[str, Any], iv: bytes | None,
    ) -> None:  # fmt: skip
        self.source, self.head, self.layout = source, head, head.layout
        h = head.header
        self.old_raw = source.read_at(0, DIR_OFFSET)  # with the padding behind a 432-byte header
        self.directory = source.read_at(DIR_OFFSET, TENSOR.size * h.n_tensors)
        self.gap = (DIR_OFFSET + len(self.directory), h.data_offset)
        was_encrypted, was_signed = bool(h.flags & FLAG_ENC), bool(h.flags & FLAG_SIGNED)
        if was_encrypted and not passphrase:
            raise IntegrityError("vqf.enc.key", "the file is encrypted: its passphrase is needed", offset=8,
                                 field="flags", path=source.path)  # fmt: skip
        self.old_keys: Keys | None = derive_keys(passphrase) if passphrase and was_encrypted else None
        self.recrypt = new_passphrase is not KEEP
        if new_passphrase is KEEP:
            self.new_keys, new_iv = self.old_keys, h.enc_iv
        elif new_passphrase is None:
            if not was_encrypted:
                raise UsageError("usage.decrypt.policy", "the file is not encrypted", path=source.path)
            self.new_keys, new_iv = None, bytes(16)
        else:
            self.new_keys, new_iv = new_encryption(new_passphrase, iv)
        if signer is None and not was_signed:
            raise UsageError("usage.unsign.policy", "the file is not signed", path=source.path)
        self.signer = signer if signer is not KEEP else None
        signed = was_signed if signer is KEEP else signer is not None
        flags = h.flags & ~(FLAG_ENC | FLAG_SIGNED)
        flags |= (FLAG_ENC if self.new_keys else 0) | (FLAG_SIGNED if signed else 0)
        self.new_raw = self._header(flags, new_iv, fields)
        # Who only signs, signs what is there. Whoever changes a signed file signs again what was signed, and nothing else.
        self.judge_digest = was_signed and self.signer is not None and (self.recrypt or bool(fields))
        if signer is KEEP and was_signed:
            if canonical_header(self.new_raw, self.layout) != canonical_header(self.old_raw, self.layout):
                raise SignatureError("vqf.resign.signature", "the signature covers flags, IV and arch and would no longer "
                                     "hold: sign again with the private key, or take the signature off first",
                                     offset=self.layout.offset_of("sig"), field="sig", path=source.path)  # fmt: skip

    def _header(self, flags: int, iv: bytes, fields: Mapping[str, Any]) -> bytes:
        """The old header's bytes with what changes changed; the signature block only ever by `sign`."""
        raw = bytearray(self.old_raw)
        raw[8:12] = flags.to_bytes(4, "little")
        at = self.layout.offset_of("enc_iv")
        raw[at : at + 16] = iv
        if not flags & FLAG_SIGNED:
            at = self.layout.offset_of("sig")
            raw[at : at + SIG.size] = bytes(SIG.size)
        for name, value in fields.items():
            at, packed = packed_field(self.layout, name, value)
            raw[at : at + len(packed)] = packed
        return bytes(raw)

    def first_pass(self, progress: Progress | None, in_place: bool) -> None:
        """Check the old tag; sign; where the data stays, compute the new tag too."""
        h = self.head.header
        if in_place and self.recrypt:
            raise UsageError("usage.inplace.policy", "encryption changes the whole data area: write to another file")
        old = self._old_tags(digest=self.judge_digest)
        new = Tags(canonical_header(self.new_raw, self.layout), self.directory, fnv=False,
                   hmac_key=self.new_keys.hmac if self.new_keys and not self.recrypt else None,
                   digest=self.signer is not None)  # fmt: skip
        keys = self.old_keys if self.signer else None  # only the digest needs the plaintext
        for stored, plain in plaintext(self.source, self.head, keys, progress):
            old.update(stored, plain)
            new.update(stored, plain if self.signer else None)
        tag = self.source.read_at(h.file_len, self.head.tag_length)
        if not equal(tag, old.tag()) and (self.old_keys or any(tag)):
            raise IntegrityError(
                "vqf.hmac.tag" if self.old_keys else "vqf.checksum.tag",
                "the tag is wrong (%s): nothing was written"
                % ("tampered with, or another passphrase" if self.old_keys else "the file is damaged"),
                offset=h.file_len, field="tag", path=self.source.path,
            )  # fmt: skip
        if self.judge_digest and not equal(h.sig.digest, old.digest()):
            raise SignatureError("vqf.digest.signature", "the signature that is there is not one of these bytes: sign them "
                                 "on purpose with `sign`, if they are right", offset=self.layout.offset_of("sig.digest"),
                                 field="sig.digest", path=self.source.path)  # fmt: skip
        self.old_tag, self.checked = tag, old.tag()
        self.new_tag = tag if self.new_keys is None else b"" if self.recrypt else new.tag()
        if self.signer:
            at = self.layout.offset_of("sig")
            block = signature_block(self.signer, new.digest(), self.layout.size)
            self.new_raw = self.new_raw[:at] + block + self.new_raw[at + SIG.size :]

    def _old_tags(self, digest: bool = False) -> Tags:
        return Tags(canonical_header(self.old_raw, self.layout), self.directory, fnv=self.old_keys is None,
                    hmac_key=self.old_keys.hmac if self.old_keys else None, digest=digest)  # fmt: skip

    def changes(self) -> list[tuple[int, bytes, bytes]]:
        """What differs from the old file, for writing in place, as (offset, old, new): the header, and last the tag."""
        parts = [(0, self.old_raw, self.new_raw), (self.head.header.file_len, self.old_tag, self.new_tag)]
        return [p for p in parts if p[1] != p[2]]

    def second_pass(self, progress: Progress | None) -> Iterator[bytes]:
        """All bytes of the new file."""
        yield self.new_raw
        yield self.directory
        yield from self.source.pieces(*self.gap)
        iv = self.new_raw[self.layout.offset_of("enc_iv") :][:16]
        again = self._old_tags()  # what is sealed must be what the first pass checked
        tags = Tags(canonical_header(self.new_raw, self.layout), self.directory,
                    fnv=self.recrypt and self.new_keys is None,
                    hmac_key=self.new_keys.hmac if self.recrypt and self.new_keys else None, digest=False)  # fmt: skip
        done = 0
        for stored, plain in plaintext(self.source, self.head, self.old_keys if self.recrypt else None, progress):
            again.update(stored, None)
            if self.recrypt:
                stored = kernels.sm4_ctr(self.new_keys.sm4, iv, plain, done) if self.new_keys else plain
            tags.update(stored, None)
            done += len(stored)
            yield stored
        if again.tag() != self.checked:
            raise IntegrityError("file.changed.tag", "the file changed while it was read: nothing was written",
                                 offset=self.head.header.data_offset, path=self.source.path)  # fmt: skip
        yield tags.tag() if self.recrypt else self.new_tag  # a stored 0 (no checksum) stays


def new_encryption(passphrase: bytes, iv: bytes | None) -> tuple[Keys, bytes]:
    """Keys and IV to encrypt with; the IV is random if None is given."""
    if not passphrase:
        raise UsageError("usage.passphrase.key", "an empty passphrase would mean no encryption")
    iv = os.urandom(16) if iv is None else iv
    if len(iv) != 16:
        raise UsageError("sm4.length.iv", "iv of %d bytes, expected 16" % len(iv))
    return derive_keys(passphrase), iv


def signature_block(signer: Signer, digest: bytes, form: int) -> bytes:
    """The 200 bytes of VQFSig for a digest D: SM2 over D with the signer's id, or that of the header form."""
    user_id = USER_IDS[form] if signer.user_id is None else signer.user_id
    if not 0 < len(user_id) <= 32:
        raise UsageError("usage.userid.signature", "user id of %d bytes, expected 1 to 32" % len(user_id))
    signature = kernels.sm2_sign(signer.d, digest, user_id)
    pub = sm2.public_key_to_bytes(kernels.sm2_public_key(signer.d))
    return pub + signature + digest + user_id.ljust(32, b"\0") + len(user_id).to_bytes(4, "little") + bytes(4)


def packed_field(layout: Any, name: str, value: Any) -> tuple[int, bytes]:
    """(offset, bytes) of a header field with a new value. Raises UsageError for a field that can't be set, or a value
    that its C type can't hold."""
    arch = next(f.type for f in layout.fields if f.name == "arch")
    field = next((f for f in arch.fields if f.name == name), None)
    if name not in SETTABLE or field is None:
        raise UsageError("usage.field.policy", "%r can't be set: it is unknown, or decides where tensors lie; fields: %s"
                         % (name, " ".join(SETTABLE)), field=name)  # fmt: skip
    values = tuple(value) if isinstance(value, (tuple, list)) else (value,)
    try:
        if any(isinstance(v, float) and v - v != 0 for v in values):
            raise OverflowError("not a finite number")
        form = "<%d%s" % (field.count, SIZES[field.type][0])
        packed = struct.pack(form, *values)
        if name in POSITIVE_WORDS and not struct.unpack(form, packed)[0] > 0:  # also what is too small for an f32
            raise OverflowError("not a positive number")
    except (struct.error, OverflowError) as error:
        raise UsageError("usage.field.range", "%s can't hold this: %s" % (name, error), field=name) from None
    return layout.offset_of("arch." + name), packed

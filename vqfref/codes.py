"""Every code that an error or a finding can carry: what it means, and what to do about it.

Codes are stable. The last part of each is one of errors.WORDS, the classes that the known-answer tests share.
"""

from __future__ import annotations

CODES: dict[str, tuple[str, str]] = {
    # the caller
    "usage.backend.unsupported": (
        "This way of reading is not known or not possible here.",
        "Use 'pread', or leave it out.",
    ),
    "usage.closed.policy": ("The file has been closed.", "Read inside the `with` block."),
    "usage.expert.range": ("The tensor has no such expert.", "`vqfref ls` shows how many there are."),
    "usage.form.unsupported": ("The header has no such form, or this model can't have it.", "Use 448."),
    "usage.help.name": ("No verb of that name.", "`vqfref help` lists them."),
    "usage.layer.missing": ("Rows of a tensor with several layers, and no layer named.", "Pass layer=."),
    "usage.layer.range": ("The tensor has no such layer.", "`vqfref ls` shows how many there are."),
    "usage.offset.range": ("The offset lies outside of the file.", "Give one inside it; 0x… is understood."),
    "usage.q8tile.unsupported": ("Tiles of that height don't exist.", "Use 4, or 0 for what the flags say."),
    "usage.rows.range": ("The matrix has no such rows.", "Give bounds inside its shape, with step 1."),
    "usage.cols.range": ("The matrix has no such columns.", "Give bounds inside its shape."),
    "usage.tensor.name": ("No tensor of that name.", "`vqfref ls` lists them."),
    "usage.wmode.unsupported": ("The converter has no such mode.", "Use dual, q4, q8, q4i or g256."),
    "usage.x8.unsupported": (
        "x8 copies can't be made for this model or mode.",
        "Leave them out: they need mode q4, rows in eights and columns in thirty-twos.",
    ),
    # the file as such
    "file.cut.truncated": (
        "The file ends before the bytes that were asked for; it may have been cut while it was read.",
        "Copy it again and compare sizes.",
    ),
    "file.window.limit": ("More than a 32-bit host can map at once.", "Read with chunks(), or rows=."),
    # JSON
    "json.depth.limit": ("Arrays and objects nested too deep.", "No real file needs it: suspect the file."),
    "json.digits.limit": ("A number with too many digits.", "No real file needs it: suspect the file."),
    "json.key.duplicate": (
        "A key stands twice in one object; readers differ in which of them they take.",
        "Write the file again with each key once.",
    ),
    "json.name.limit": ("A key too long to be meant.", "No real file needs it: suspect the file."),
    "json.number.range": ("A number beyond double precision.", "Write it smaller."),
    "json.surrogate.json": ("Half of a surrogate pair: not a character.", "Escape the whole pair, or write UTF-8."),
    "json.syntax.json": ("Not JSON.", "The offset shows the first byte that does not fit."),
    "json.utf8.json": ("JSON must be UTF-8.", "The offset shows the first byte that is not."),
    # VQF, the gates in their order (spec section 4)
    "vqf.magic.truncated": ("Too short for magic and version.", "The copy failed: copy it again."),
    "vqf.header.magic": (
        "Not a VQF file: it does not begin with 46 51 46 57.",
        "Look at the hint in the message. On disk the magic reads FQFW, whatever documents say.",
    ),
    "vqf.header.version": (
        "A version that engines refuse.",
        "Version 1 is obsolete: convert the model again with a newer converter.",
    ),
    "vqf.file.truncated": ("Too short for a header and one directory entry.", "The copy failed: copy it again."),
    "vqf.arch.header": ("A size of the model is zero.", "The header is damaged or was never filled in: convert again."),
    "vqf.header.layout": (
        "Neither or both of the two header forms explain the file's size.",
        "`vqfref header` shows both numbers. The header is damaged, or not from a known converter.",
    ),
    "vqf.size.truncated": (
        "The file is shorter than its header says.",
        "Copy it again; the message says how many bytes are missing.",
    ),
    "vqf.size.bounds": (
        "The file is longer than its header says.",
        "Something was appended, or the ENC flag is wrong: see the hint in the message.",
    ),
    "vqf.directory.bounds": (
        "A directory entry points outside of the data area.",
        "The directory is damaged: convert or copy again.",
    ),
    "vqf.directory.limit": ("More tensors than this library reads.", "Real files have some fifty: suspect n_tensors."),
    "vqf.enc.key": ("The file is encrypted, and no passphrase was given.", "Give the passphrase."),
    "vqf.checksum.tag": (
        "The stored FNV-1a-64 is not that of directory and data.",
        "The file was damaged, or changed without a new checksum: copy it again.",
    ),
    "vqf.core.missing": ("A tensor that the engine can't do without is missing.", "Convert again."),
    "vqf.experts.header": ("A MoE file that says it has no experts.", "The header is damaged: convert again."),
    # VQF, what the engine does not look at
    "vqf.unterminated.name": ("A tensor name fills all 32 bytes.", "A C reader runs on: shorten it to 31 characters."),
    "vqf.ascii.name": ("A tensor name holds what is not printable ASCII.", "Suspect a damaged directory."),
    "vqf.empty.name": ("A directory entry without a name.", "Suspect a damaged directory."),
    "vqf.padding.name": ("Bytes behind the NUL of a name.", "Harmless to the engine; a clean writer leaves zeros."),
    "vqf.directory.duplicate": ("Two entries of one name.", "Only the first is ever used: convert again."),
    "vqf.directory.dtype": ("An encoding that the format does not know.", "Suspect a damaged or newer file."),
    "vqf.directory.align": (
        "A tensor does not start at a multiple of 64.",
        "The kernels read it misaligned or fault: convert again.",
    ),
    "vqf.directory.overlap": ("Two tensors share bytes.", "One of them is wrong: convert again."),
    "vqf.directory.shape": ("An entry's length is not what its encoding, rows and cols give.", "Convert again."),
    "vqf.plan.shape": ("An entry is not what the arch calls for.", "Arch or directory is wrong: convert again."),
    "vqf.plan.name": ("A tensor that the format does not know.", "The engine ignores it."),
    "vqf.plan.missing": ("A tensor that the arch calls for is not there.", "Convert again, or correct the arch."),
    "vqf.order.layout": ("Tensors in another order than writers use.", "Harmless; not from a known converter."),
    "vqf.page.layout": ("Data elsewhere than on the page behind the directory.", "Harmless; not a known converter."),
    "vqf.gap.layout": ("Bytes that belong to no tensor.", "Wasted room, or a tensor that lost its entry."),
    "vqf.padding.layout": ("Padding that is not zero.", "Harmless to the engine; something was left behind there."),
    "vqf.reserved.header": ("A reserved field that is not zero.", "Suspect a newer writer or a damaged header."),
    "vqf.reserved.iv": ("An IV in a file that is not encrypted.", "Harmless; the ENC flag may have been lost."),
    "vqf.zero.iv": ("An encrypted file whose IV is all zero.", "Encrypt it again: an IV must be used only once."),
    "vqf.unsigned.signature": ("A signature block in a file that is not signed.", "Was the SIGNED flag lost?"),
    "vqf.sigid.signature": ("A user id of impossible length.", "Sign the file again."),
    "vqf.flags.header": ("Flag bits that the format does not know.", "Suspect a newer writer or a damaged header."),
    "vqf.flags.layout": ("Flags that contradict the tensors.", "The engine would read them wrongly: convert again."),
    "vqf.tiles.layout": ("Rows are linear although they would fit tiles.", "Fine if the writer meant it."),
    "vqf.arch.shape": ("A word of arch that contradicts the tensors or itself.", "Convert again."),
    "vqf.moe.version": ("Version and MOE flag contradict each other.", "Version 3 is for MoE files alone."),
    "vqf.moe.layout": ("A MoE file with the header form that has no room for it.", "Convert again."),
    "vqf.form.policy": (
        "Sealed with the older, 432-byte header: newer engines refuse it.",
        "Convert with the 448-byte header for newer engines.",
    ),
    "vqf.data.policy": ("Encrypted: the data area was not judged.", "Give the passphrase to `vqfref verify`."),
    "vqf.zeros.missing": ("A matrix of nothing but zero bytes.", "Its values were never written: convert again."),
    "vqf.tail.missing": (
        "The end of a matrix that the g256 encoder leaves out.",
        "Those weights are lost: use another mode for this model.",
    ),
    "vqf.checksum.missing": ("No checksum is stored.", "Nothing guards this file against accidents."),
    # VQF, reading tensors
    "vqf.layer.shape": (
        "Layers that are not a whole number of blocks: where the next one starts is not defined.",
        "No known converter writes such a file.",
    ),
    "vqf.decode.unsupported": ("This encoding can't be decoded yet.", "Use raw() for the stored bytes."),
}

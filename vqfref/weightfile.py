"""What every weight file has in common, whatever its format: TensorInfo and the base class WeightFile.

The names are those of safetensors' `safe_open` where it has one.
"""

from __future__ import annotations

from collections import namedtuple

from vqfref.errors import TensorNotFound, did_you_mean
from vqfref.findings import Finding

TYPE_CHECKING = False
if TYPE_CHECKING:
    from array import array
    from typing import Any, Iterable, Iterator


FieldRow = namedtuple("FieldRow", "offset size field raw value meaning")
FieldRow.__doc__ = (
    "A field of a header, explained: offset in the file, size, dotted name, raw bytes as hex, value, meaning."
)

VALUES_AT_ONCE = 1 << 18  # in one piece of `values`

TensorInfo = namedtuple("TensorInfo", "name shape layers experts dtype encoding offset nbytes path")
TensorInfo.__doc__ = """One tensor.

shape: (out, in) of one matrix, or (n,) of a vector; layers and experts are apart: `layers` such matrices follow one
another, 0 where the tensor has no layers (a token embedding), and each layer holds `experts` of them, 0 if none.
dtype: the stored element or block type; encoding: how the values are arranged in the bytes. offset: from the start of
the file that holds it, in bytes; nbytes: length as stored; path: that file.
"""

Step = namedtuple("Step", "name result detail")
Step.__doc__ = "One check of a verification: its name, 'ok', 'failed' or 'not checked', and why or what that means."


class Verification(namedtuple("Verification", "ok authenticated steps findings")):
    """The outcome of `verify`. ok: nothing failed and nothing that was required is missing; authenticated: a key that
    the caller gave has vouched for the bytes; steps: all Steps; findings: all Findings."""

    __slots__ = ()

    @classmethod
    def of_structure(cls, findings: list[Finding], require: Iterable[str] = ()) -> Verification:
        """The outcome for a format that authenticates nothing: its structure alone; whatever is required is missing."""
        for name in require:
            message = "%s is required, but this format authenticates nothing" % name
            findings = [*findings, Finding("file.authentication.missing", "error", message, engine="accepts")]
        ok = not any(f.severity == "error" for f in findings)
        steps = [
            Step("structure", "ok" if ok else "failed", "every rule of the container"),
            Step("authentication", "not checked", "this format has neither checksum nor signature"),
        ]
        return cls(ok, False, steps, findings)


class WeightFile:
    """An open weight file. Use it in a `with` block, or call `close`; memoryviews it gave out stay valid.

    format: 'vqf', 'safetensors' or 'uqff'. path: as it was opened. authenticated: True only after `verify` has checked
    a tag or signature with a key that the caller gave.
    """

    format = ""
    path: str | None = None
    authenticated = False

    def keys(self) -> list[str]:
        """Tensor names in the file's order."""
        raise NotImplementedError

    def metadata(self) -> dict[str, Any]:
        """What the file says about itself, as plain values (numbers, text, lists, dicts)."""
        raise NotImplementedError

    def info(self, name: str) -> TensorInfo:
        """The TensorInfo of one tensor. Raises TensorNotFound."""
        raise NotImplementedError

    def tensors(self) -> Iterator[TensorInfo]:
        """All TensorInfos, in the order of `keys`."""
        return (self.info(name) for name in self.keys())

    def raw(self, name: str) -> memoryview:
        """The bytes as stored, read-only and zero-copy (ciphertext in an encrypted file).

        Raises TensorNotFound; LimitError for more than 256 MiB on a 32-bit host: use `chunks` there.
        """
        raise NotImplementedError

    def chunks(self, name: str, size: int = 1 << 20) -> Iterator[bytes]:
        """The bytes as stored, in pieces of at most `size` bytes, on every host."""
        raise NotImplementedError

    def stored_names(self) -> list[str]:
        """The names of all stored tensors; where one tensor is stored in several pieces, those."""
        return self.keys()

    def stored(self, name: str, size: int = 1 << 20) -> Iterator[bytes]:
        """The bytes of one of `stored_names`, in pieces."""
        return self.chunks(name, size)

    def get_tensor(self, name: str, *, rows: slice | None = None) -> array[float]:
        """The values as array('f'), row-major; `rows` selects rows of a matrix."""
        raise NotImplementedError

    def values(self, name: str) -> Iterator[array[float]]:
        """All values of a tensor as `get_tensor` has them, in pieces of some VALUES_AT_ONCE: for tensors of any size."""
        raise NotImplementedError

    def verify(self, *, require: Iterable[str] = (), **how: Any) -> Verification:
        """Check what seals the file; on formats that authenticate nothing, their structure. `require` as in VqfFile."""
        raise NotImplementedError

    def check(self) -> list[Finding]:
        """Everything that is wrong or odd, ordered by offset; no key is needed."""
        raise NotImplementedError

    def close(self) -> None:
        """Let go of the file."""
        raise NotImplementedError

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def doubts(self) -> Finding | None:
        """A warning about the key that the file was opened with, where there is reason for one."""
        return None

    def __iter__(self) -> Iterator[str]:
        return iter(self.keys())

    def __contains__(self, name: object) -> bool:
        return name in self.keys()

    def __len__(self) -> int:
        return len(self.keys())

    def not_found(self, name: str) -> TensorNotFound:
        """The error for a name that is not there, with the names that look like it."""
        hint = did_you_mean(str(name), self.keys())
        message = "no tensor %r%s; `ls` lists them" % (name, hint)
        return TensorNotFound("usage.tensor.name", message, field=str(name), path=self.path)

"""What every weight file has in common, whatever its format: TensorInfo and the base class WeightFile.

The names are those of safetensors' `safe_open` where it has one.
"""

from __future__ import annotations

from collections import namedtuple

from vqfref.errors import TensorNotFound

TYPE_CHECKING = False
if TYPE_CHECKING:
    from array import array
    from typing import Any, Iterator

    from vqfref.findings import Finding

TensorInfo = namedtuple("TensorInfo", "name shape layers experts dtype encoding offset nbytes")
TensorInfo.__doc__ = """One tensor.

shape: (out, in) of one matrix, or (n,) of a vector; layers and experts are apart: `layers` such matrices follow one
another, 0 where the tensor has no layers (a token embedding), and each layer holds `experts` of them, 0 if none.
dtype: the stored element or block type; encoding: how the values are arranged in the bytes. offset: from the start of
the file that holds it, in bytes; nbytes: length as stored.
"""


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

    def get_tensor(self, name: str, *, rows: slice | None = None) -> array[float]:
        """The values as array('f'), row-major; `rows` selects rows of a matrix."""
        raise NotImplementedError

    def verify(self) -> Any:
        """Check what seals the file; on formats that authenticate nothing, their structure."""
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

    def __contains__(self, name: object) -> bool:
        return name in self.keys()

    def __len__(self) -> int:
        return len(self.keys())

    def not_found(self, name: str) -> TensorNotFound:
        """The error for a name that is not there, with the names that look like it."""
        try:
            from difflib import get_close_matches  # not in Debian's python3-minimal
        except ImportError:
            near = []
        else:
            near = get_close_matches(str(name), self.keys(), 3)
        hint = "; did you mean %s?" % " or ".join(near) if near else ""
        return TensorNotFound("usage.tensor.name", "no tensor %r%s" % (name, hint), field=str(name), path=self.path)

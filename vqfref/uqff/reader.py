"""Opens a UQFF artifact: a set of shards, the residual beside them, the rules that hold for the set. Spec: UQFF 1 to 5.

`UqffFile` refuses a set whose containers, versions or names are wrong (sections 3 and 4). A fault of one layer does not:
the layer is listed, and using it raises what is wrong with it, while the others stay readable (section 18).
"""

from __future__ import annotations

import os
from array import array

from vqfref.errors import FormatError, UsageError
from vqfref.safetensors.reader import SafetensorsFile
from vqfref.uqff import families, naming
from vqfref.uqff.families import Layer, Tensor
from vqfref.uqff.naming import RESIDUAL_NAME
from vqfref.uqff.packing import global_factor, layer_factor
from vqfref.uqff.shards import collect_layers, open_shard, read_version, shard_names
from vqfref.uqff.slicing import Range, offset_range, shard_range, slice_layer
from vqfref.weightfile import TensorInfo, Verification, WeightFile

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterable, Iterator

    from vqfref.findings import Finding
    from vqfref.uqff.slicing import Slice


class UqffFile(WeightFile):
    """An open UQFF artifact.

    folder: where it lies; names: its shards in load order; version: (major, minor, patch); layers: Layer by key;
    residual: the SafetensorsFile of residual.safetensors, or None. keys() has the layers, then biases as
    `<key>.bias`, then what the residual adds; entries() the raw tensors of the shards.
    """

    format = "uqff"

    def __init__(self, folder: str, items: str | Iterable[str] | None = None, backend: str | None = None) -> None:
        """items: shard file names, types or shorthands as the loader takes them (section 10.2); None where the folder
        holds one set. Raises OSError; UsageError for no or several sets; FormatError or LimitError for the first fault
        of the set."""
        self.path = self.folder = folder
        self.shards: list[SafetensorsFile] = []
        self.residual: SafetensorsFile | None = None
        self._entries: dict[str, Tensor] = {}
        try:
            self.names = shard_names(folder, items)
            for name in self.names:
                self.shards.append(open_shard(folder, name, backend))
            self.version = read_version(self.shards)
            if os.path.isfile(os.path.join(folder, RESIDUAL_NAME)):
                self.residual = open_shard(folder, RESIDUAL_NAME, backend)
        except BaseException:
            self.close()
            raise
        self.layers, self.others = collect_layers(self.shards)
        self._biases = {layer.key + ".bias": layer for layer in self.layers.values() if layer.bias is not None}

    def keys(self) -> list[str]:
        found = dict.fromkeys([*self.layers, *self._biases])
        for name in self.residual.header.entries if self.residual else ():
            key = name[: -len(".weight")] if name.endswith(".weight") else name
            if key not in self.layers and name not in found:  # where both have a tensor, the shards' wins
                found[name] = None
        return list(found)

    def entries(self) -> dict[str, Tensor]:
        """Every stored tensor of the shards by its full name."""
        if not self._entries:
            self._entries = {n: Tensor(n, f, e) for f in self.shards for n, e in f.header.entries.items()}
        return self._entries

    def stored_names(self) -> list[str]:
        """The entries of the shards by their full names, then what the residual adds."""
        residual = self.residual.header.entries if self.residual else ()
        return [*self.entries(), *(name for name in residual if name not in self.entries())]

    def stored(self, name: str, size: int = 1 << 20) -> Iterator[bytes]:
        """The bytes of one of `stored_names`, in pieces."""
        t = self.entries().get(name)
        if t is not None:
            return t.file.chunks(name, size)
        if self.residual is None or name not in self.residual.header.entries:
            raise self.not_found(name)
        return self.residual.chunks(name, size)

    def metadata(self) -> dict[str, Any]:
        texts: dict[str, str] = {}
        for f in self.shards:
            for key, value in f.header.metadata.items():
                texts.setdefault(key, value)
        labels: dict[str, int] = {}
        for layer in self.layers.values():
            labels[layer.label()] = labels.get(layer.label(), 0) + 1
        return {
            "version": "%d.%d.%d" % self.version,
            "shards": self.names,
            "metadata": texts,
            "layers": len(self.layers),
            "labels": {k: labels[k] for k in sorted(labels)},
            "residual": self.residual is not None,
        }

    def layer(self, key: str) -> Layer:
        """A layer that may be used. Raises TensorNotFound, and the first fault that forbids its use."""
        if key not in self.layers:
            raise self.not_found(key)
        families.check(self.layers[key])
        return self.layers[key]

    def _stored(self, name: str) -> Tensor | None:
        """A bias, a residual tensor or a raw entry; None for a layer."""
        if name in self.layers:
            return None
        if name in self._biases:
            return self._biases[name].bias
        if self.residual is not None and name in self.residual.header.entries:
            return Tensor(name, self.residual, self.residual.header.entries[name])
        if name in self.entries():
            return self.entries()[name]
        raise self.not_found(name)

    def info(self, name: str) -> TensorInfo:
        """A TensorInfo; for a layer the logical shape (a stack of experts is [experts, out, in]), its label as dtype, its
        family as encoding, and the place of its payload. A faulty layer has its stored shape."""
        t = self._stored(name)
        if t is not None:
            return t.file.info(t.name)
        layer = self.layers[name]
        weight = layer.tensors.get("") or next(iter(layer.tensors.values()))
        broken = any(f.severity == "error" for f in families.faults(layer))
        shape = tuple(weight.entry.shape) if broken else layer.logical_shape()
        experts = shape[0] if len(shape) == 3 and not broken else 0
        family = layer.family.name if layer.family else "unknown"
        start = weight.offset
        return TensorInfo(
            name,
            shape,
            0,
            experts,
            layer.label(),
            family,
            start,
            weight.entry.end - weight.entry.begin,
            weight.file.path,
        )

    def raw(self, name: str) -> memoryview:
        """The payload as stored: of a layer the bytes of `<key>.weight`."""
        t = self._payload(name)
        return t.file.raw(t.name)

    def chunks(self, name: str, size: int = 1 << 20) -> Iterator[bytes]:
        t = self._payload(name)
        return t.file.chunks(t.name, size)

    def _payload(self, name: str) -> Tensor:
        t = self._stored(name)
        if t is None:
            t = self.layers[name].tensors.get("")
        if t is None:
            raise FormatError("uqff.o1.missing", "a layer's format without its weight", field=name, path=self.folder)
        return t

    def get_tensor(self, name: str, *, rows: slice | None = None, expert: int | None = None) -> array[float]:
        """The values as array('f'), dequantized, row-major in the logical shape.

        expert: one of a stack. rows: a slice with step 1 of the rows of a matrix (of the expert's, in a stack). Raises
        TensorNotFound, UsageError, and for a faulty layer what is wrong with it.
        """
        t = self._stored(name)
        if t is not None:
            if expert is not None:
                raise UsageError("usage.expert.range", "not a stack of experts", field=name)
            return t.file.get_tensor(t.name, rows=rows)
        layer = self.layer(name)
        shape = layer.logical_shape()
        if expert is not None and (len(shape) != 3 or not 0 <= expert < shape[0]):
            raise UsageError("usage.expert.range", "expert %d of shape %s" % (expert, list(shape)), field=name)
        if rows is None and expert is None:
            return families.decode(layer)
        if rows is not None and len(shape) == 3 and expert is None:
            raise UsageError("usage.layer.missing", "rows of which expert?", field=name)
        start, stop, step = (rows or slice(None)).indices(shape[-2] if len(shape) > 1 else shape[0])
        if step != 1:
            raise UsageError("usage.rows.range", "rows %r: the step must be 1" % (rows,), field=name)
        return _decode_rows(layer, shape, expert, start, max(start, stop))

    def values(self, name: str) -> Iterator[array[float]]:
        t = self._stored(name)
        if t is not None:
            yield from t.file.values(t.name)
            return
        layer = self.layer(name)
        shape = layer.logical_shape()
        if len(shape) == 3 and layer.tag not in (naming.HQQ, naming.F8Q8):
            for expert in range(shape[0]):
                yield self.get_tensor(name, expert=expert)
        else:
            yield families.decode(layer)

    def slice(
        self, key: str, *, dim: int, rank: int | None = None, world: int | None = None, start: int | None = None,
        length: int | None = None,
    ) -> Slice:  # fmt: skip
        """What one rank holds of a layer: `rank` of `world` equal parts of a dimension, or `start`, `length` of it.

        Raises UsageError uqff.s1.… as the engine's loader refuses, and what is wrong with a faulty layer.
        """
        layer = self.layer(key)
        dims = layer.logical_shape()
        if rank is not None and world is not None and start is None and length is None:
            part = shard_range(dims, dim, rank, world)
            whole = world == 1
        elif start is not None and length is not None and rank is None and world is None:
            part, whole = offset_range(dims, dim, start, length), False
        else:
            raise UsageError("usage.slice.missing", "give rank and world, or start and length")
        if layer.tag == naming.HQQ and not whole:
            raise UsageError("uqff.s1.unsupported", "sharded loading is unsupported for HQQ", field=key)
        return slice_layer(layer, part)

    def pack_factor(self, key: str | None = None, *, dtype: str = "BF16") -> int | None:
        """How many dense elements of the model's dtype (BF16, F16 or F32) one stored element stands for: of a layer, None
        for one without a format; without a key the engine's conservative factor of the whole artifact. Spec: UQFF 13.

        Raises UsageError for another dtype; FormatError uqff.x1.limit for a layer that takes more room than dense, and what
        is wrong with a faulty one.
        """
        if key is None:
            return global_factor(self.layers.values(), dtype)
        return layer_factor(self.layer(key), dtype)

    def verify(self, *, require: Iterable[str] = (), **_: Any) -> Verification:
        return Verification.of_structure(self.check(), require)

    def check(self) -> list[Finding]:
        from vqfref.uqff.audit import audit

        return audit(self.folder, self.names)

    def close(self) -> None:
        for f in [*self.shards, *([self.residual] if self.residual else [])]:
            f.close()


def _decode_rows(layer: Layer, shape: tuple[int, ...], expert: int | None, start: int, stop: int) -> array[float]:
    """Rows of one matrix, reading little else where the family allows it."""
    height, width = (shape[-2] if len(shape) > 1 else shape[0]), (shape[-1] if len(shape) > 1 else 1)
    first = (expert or 0) * height + start
    if layer.tag in (naming.HQQ, naming.F8Q8) or len(shape) == 1:
        return families.decode(layer)[first * width : (first + stop - start) * width]
    if start == stop:
        return array("f")
    part = slice_layer(layer, Range(len(shape) - 3, expert, 1) if expert is not None else Range(0, start, stop - start))
    values = families.decode(part)
    return values[start * width : stop * width] if expert is not None else values

#!/usr/bin/env python3
"""Makes kat/files/uqff-sources: small models and what the engine made of them, for UQFF writers. Uses nothing of vqfref.

    python3 kat/gen/uqff_sources.py VECTORS            write the files
    python3 kat/gen/uqff_sources.py VECTORS --check    make them again and compare; 1 if one differs

VECTORS is the folder with the engine's own output: uqff/, uqff-sources/. From it are the models dense64, moe64 and two64,
their tensors dealt out over shards below 64 KiB, and topo1.yml, the topology of kat/files/uqff/topo1-q4_0, which was made
from two64. moe-* there were made from moe64, every other type from dense64.

expected.json has the types of dense64 that kat/files/uqff leaves out: for each the report's counts, and every entry of its
one shard in the header's order: name, dtype, shape, and its bytes as hex where there are at most 8, else their sha256.
mistralrs 0.9.5, CPU.
"""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path

OUT = Path(__file__).resolve().parent.parent / "files" / "uqff-sources"
MODELS = ("dense64", "moe64", "two64")
LIMIT = 60_000  # bytes of data in a shard
TYPES = ("q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "afq2", "afq4", "afq6", "afq8")


def entries(path: Path, manifest: list[dict[str, object]]) -> list[list[object]]:
    """The entries of a safetensors file; the engine's own run noted the same digests in its manifest."""
    file = path.read_bytes()
    length = int.from_bytes(file[:8], "little")
    header, body = json.loads(file[8 : 8 + length]), file[8 + length :]
    del header["__metadata__"]
    found = []
    for (name, e), noted in zip(header.items(), manifest):
        data = body[slice(*e["data_offsets"])]
        digest = hashlib.sha256(data).hexdigest()
        if (name, digest) != (noted["name"], noted["sha256"]):
            raise SystemExit("%s: %s is not what the manifest says" % (path, name))
        found.append([name, e["dtype"], e["shape"], data.hex() if len(data) <= 8 else digest])
    if len(found) != len(manifest) or len(found) != len(header):
        raise SystemExit("%s: not the entries of the manifest" % path)
    return found


def expected(folder: Path) -> dict[str, object]:
    name = folder.name + "-0.uqff"
    (output,) = json.loads((folder / "uqff_report.json").read_bytes())["outputs"]
    noted = json.loads((folder / "manifest.json").read_bytes())["files"][name]["entries"]
    return {"counts": output["actual_counts"], "entries": entries(folder / name, noted)}


def shards(file: bytes) -> dict[str, bytes]:
    """The tensors of one safetensors file, with the bytes they have there, as the shards of a model folder."""
    length = int.from_bytes(file[:8], "little")
    header, body = json.loads(file[8 : 8 + length]), file[8 + length :]
    metadata = header.pop("__metadata__")
    parts: list[dict[str, bytes]] = [{}]
    for name, e in header.items():
        data = body[slice(*e["data_offsets"])]
        if sum(map(len, parts[-1].values())) + len(data) > LIMIT:
            parts.append({})
        parts[-1][name] = data
    files, homes = {}, {}
    for i, part in enumerate(parts):
        root, at = {"__metadata__": metadata}, 0
        for name, data in part.items():
            root[name] = {**header[name], "data_offsets": [at, at + len(data)]}
            at += len(data)
        text = json.dumps(root, separators=(",", ":")).encode()
        text += b" " * (-len(text) % 8)
        file_name = "model-%05d-of-%05d.safetensors" % (i + 1, len(parts))
        files[file_name] = len(text).to_bytes(8, "little") + text + b"".join(part.values())
        homes.update(dict.fromkeys(part, file_name))
    index = {"metadata": {"total_size": len(body)}, "weight_map": homes}
    files["model.safetensors.index.json"] = json.dumps(index, indent=2).encode()
    return files


def made(vectors: Path) -> dict[str, bytes]:
    source = vectors / "uqff-sources"
    files = {"topo1.yml": (source / "topo1.yml").read_bytes()}
    for model in MODELS:
        files[model + "/config.json"] = (source / model / "config.json").read_bytes()
        for name, data in shards((source / model / "model.safetensors").read_bytes()).items():
            files["%s/%s" % (model, name)] = data
    types = {name: expected(vectors / "uqff" / name) for name in TYPES}
    text = json.dumps(types, separators=(",", ":")).replace('],["', '],\n["') + "\n"
    return {**files, "expected.json": text.encode()}


def main(vectors: str, check: bool) -> int:
    bad = 0
    for name, content in made(Path(vectors)).items():
        path = OUT / name
        if check:
            same = path.is_file() and path.read_bytes() == content
            bad += not same
            print("same" if same else "differs", name)
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
            print(len(content), name)
    return 1 if bad else 0


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3) or sys.argv[2:] not in ([], ["--check"]):
        raise SystemExit(__doc__)
    sys.exit(main(sys.argv[1], len(sys.argv) == 3))

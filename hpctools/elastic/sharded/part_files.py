"""One rank's parts as files of a checkpoint: the bytes, and what lies where in them.

    shards-00002.bin     the parts of rank 2, one behind the other
    shards-00002.json    name, shape, type, offsets, sizes and place in the file of each
    plain.pt             the unsharded state, by rank 0

Any number of ranks reads what any number wrote: who wants a part maps the files that hold some of it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

from hpctools.elastic.checkpoint.manifest import FileRecord, digest_of, new_digest
from hpctools.elastic.sharded import layout
from hpctools.elastic.sharded.layout import Holders, Part, Piece, Survey, Version
from hpctools.elastic.sharded.moving import Wanted
from hpctools.elastic.sharded.transfer import copy_pieces
from hpctools.errors import ElasticError

ALIGNMENT = 64
PLAIN = "plain.pt"
_ANY = Version(0, 0)


def write_parts(
    folder: Path,
    rank: int,
    parts: Mapping[str, Part],
    tensors: Mapping[str, torch.Tensor],
    go_on: Callable[[], None],
) -> dict[str, FileRecord]:
    """Write our parts; returns the files.

    Args:
        go_on: called before each tensor; what it raises ends the writing.

    Raises:
        OSError: they cannot be written.
    """
    digest, places, size = new_digest(), {}, 0
    name = f"shards-{rank:05d}"
    with (folder / f"{name}.bin").open("wb") as file:
        for tensor_name, tensor in tensors.items():
            go_on()
            data = tensor.contiguous().view(-1).view(torch.uint8).numpy().tobytes()
            data += b"\0" * (-len(data) % ALIGNMENT)
            places[tensor_name] = size
            size += file.write(data)
            digest.update(data)
    index = json.dumps([layout.encode_parts(parts), places], separators=(",", ":")).encode()
    (folder / f"{name}.json").write_bytes(index)
    return {
        f"{name}.bin": FileRecord(size, digest.hexdigest()),
        f"{name}.json": FileRecord(len(index), digest_of(index)),
    }


def write_plain(folder: Path, plain: Mapping[str, Any]) -> dict[str, FileRecord]:
    """Write the unsharded state."""
    torch.save(plain, folder / PLAIN)
    data = (folder / PLAIN).read_bytes()
    return {PLAIN: FileRecord(len(data), digest_of(data))}


def examples_in(folder: Path) -> dict[str, Part]:
    """An example part of each tensor of a checkpoint."""
    return layout.holders_of(_ANY, _surveys(_indices(folder))).examples


def is_index(name: str) -> bool:
    """Whether a file tells what lies where; these suffice for `examples_in` and `needed`."""
    return name.endswith(".json")


def needed(folder: Path, wanted: Wanted) -> set[str]:
    """The files that `read_parts` and `read_plain` read.

    Raises:
        ElasticError: the files do not hold all of the wanted parts.
    """
    indices, plan = _plan(folder, wanted)
    names = {f"{name}.json" for name, _, _ in indices}
    return names | {f"{indices[each.source][0]}.bin" for each in plan} | {PLAIN}


def read_parts(folder: Path, wanted: Wanted) -> None:
    """Fill the wanted parts.

    Raises:
        ElasticError: the files do not hold all of them.
    """
    indices, plan = _plan(folder, wanted)
    files = {
        source: _mapped(folder / f"{name}.bin", parts, places)
        for source in {each.source for each in plan}
        for name, parts, places in [indices[source]]
    }
    copy_pieces(plan, lambda piece: files[piece.source][piece.name], wanted.tensors)


def check(folder: Path) -> None:
    """Make sure that what all ranks have to understand can be.

    Raises:
        ElasticError: the files do not hold all shards.
        Exception: an index or the unsharded state is not what we wrote.
    """
    _held(folder)
    read_plain(folder)


def read_plain(folder: Path) -> Any:
    """The unsharded state."""
    return torch.load(folder / PLAIN, weights_only=True)


class WholeTensors:
    """The tensors of a checkpoint, each put together when it is asked for.

    Attributes:
        examples: by name, any part of the tensor.

    Raises:
        ElasticError: the files do not hold all of them.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._indices, self._holders = _held(folder)
        self._files: dict[int, dict[str, torch.Tensor]] = {}
        self.examples: Mapping[str, Part] = self._holders.examples

    def read(self, name: str) -> torch.Tensor:
        """One of them, of its whole shape, in memory of its own."""
        shape, dtype = self.examples[name].shape, self.examples[name].dtype
        box = Part(shape, dtype, (0,) * len(shape), shape)
        tensor = torch.empty(shape, dtype=box.torch_dtype)
        plan = layout.pieces(self._holders, [{name: box}])
        copy_pieces(plan, lambda piece: self._file(piece.source)[piece.name], {name: tensor})
        return tensor

    def _file(self, source: int) -> dict[str, torch.Tensor]:
        if source not in self._files:
            name, parts, places = self._indices[source]
            self._files[source] = _mapped(self._folder / f"{name}.bin", parts, places)
        return self._files[source]


_Index = tuple[str, dict[str, Part], dict[str, int]]


def _plan(folder: Path, wanted: Wanted) -> tuple[list[_Index], list[Piece]]:
    """What lies where, and which pieces of it are wanted; a piece's source is its place among the indices."""
    indices, holders = _held(folder)
    return indices, layout.pieces(holders, [wanted.parts])


def _held(folder: Path) -> tuple[list[_Index], Holders]:
    indices = _indices(folder)
    holders = layout.holders_of(_ANY, _surveys(indices))
    if not holders.is_whole:
        raise ElasticError(f"{folder} does not hold all shards")
    return indices, holders


def _indices(folder: Path) -> list[_Index]:
    found = []
    for path in sorted(folder.glob("shards-*.json")):
        parts, places = json.loads(path.read_bytes())
        found.append((path.stem, layout.decode_parts(parts), places))
    return found


def _surveys(indices: list[_Index]) -> list[Survey]:
    return [Survey(((_ANY, parts),)) for _, parts, _ in indices]


def _mapped(path: Path, parts: Mapping[str, Part], places: Mapping[str, int]) -> dict[str, torch.Tensor]:
    size = path.stat().st_size
    data = torch.from_file(str(path), shared=False, size=size, dtype=torch.uint8) if size else torch.empty(0)
    return {
        name: data[places[name] : places[name] + part.bytes].view(part.torch_dtype).view(part.sizes)
        for name, part in parts.items()
        if part.bytes
    }

"""One rank's parts as files of a checkpoint: the bytes, and what lies where in them.

    shards-00002.bin     the parts of rank 2, one behind the other, each as `torch.save` writes it
    shards-00002.json    name, shape, type, offsets, sizes and place in the file of each
    plain.pt             the unsharded state, by rank 0

Any number of ranks reads what any number wrote: who wants a part maps the files that hold some of it. The
index says where the bare values are, so that nobody reads the pickles around them; in checkpoints of earlier
releases there are none. `whole.describe` makes a checkpoint of torch's own of these files.
"""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from hpctools.elastic.checkpoint.dcp import Stored, write_slices
from hpctools.elastic.checkpoint.manifest import FileRecord, digest_of
from hpctools.elastic.readable import check_readable
from hpctools.elastic.sharded import layout
from hpctools.elastic.sharded.layout import Holders, Part, Piece, Survey, Version
from hpctools.elastic.sharded.moving import Wanted
from hpctools.elastic.sharded.transfer import copy_pieces
from hpctools.errors import ElasticError

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
        go_on: called before each piece; what it raises ends the writing.

    Raises:
        OSError: they cannot be written.
    """
    name = f"shards-{rank:05d}"
    record, slices = write_slices(folder / f"{name}.bin", tensors, go_on)
    places = {each: found.values for each, found in slices.items()}
    archives = {each: (found.offset, found.length) for each, found in slices.items()}
    index = json.dumps([layout.encode_parts(parts), places, archives], separators=(",", ":")).encode()
    (folder / f"{name}.json").write_bytes(index)
    return {f"{name}.bin": record, f"{name}.json": FileRecord(len(index), digest_of(index))}


def drop(folder: Path, rank: int) -> None:
    """Remove what we wrote of a checkpoint that cannot be complete; without rank 0 nobody completes it.

    The note that all of it is there goes first: it may be there though it could not be synced.
    """
    if rank == 0:
        shutil.rmtree(folder, ignore_errors=True)
    for path in (*folder.glob(f"*part-{rank:05d}.json*"), *folder.glob(f"shards-{rank:05d}.*")):
        with contextlib.suppress(OSError):
            path.unlink()


def write_plain(folder: Path, plain: Mapping[str, Any]) -> dict[str, FileRecord]:
    """Write the unsharded state.

    Raises:
        ElasticError: something in it could not be read back; names its place.
    """
    check_readable(plain)
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
    names = {f"{each.name}.json" for each in indices}
    return names | {f"{indices[each.source].name}.bin" for each in plan} | {PLAIN}


def read_parts(folder: Path, wanted: Wanted) -> None:
    """Fill the wanted parts.

    Raises:
        ElasticError: the files do not hold all of them.
    """
    indices, plan = _plan(folder, wanted)
    files = {source: _mapped(folder, indices[source]) for source in {each.source for each in plan}}
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
    """The unsharded state, on the CPU: it may be of another node's GPU."""
    return torch.load(folder / PLAIN, weights_only=True, map_location="cpu")


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
            self._files[source] = _mapped(self._folder, self._indices[source])
        return self._files[source]


@dataclass(frozen=True)
class _Index:
    """What lies where in one rank's file.

    Attributes:
        name: of the file, without its ending.
        places: by tensor, offset of its values.
        archives: by tensor, offset and length of what `torch.save` wrote; an earlier release wrote none.
    """

    name: str
    parts: Mapping[str, Part]
    places: Mapping[str, int]
    archives: Mapping[str, tuple[int, int]] = field(default_factory=dict)


def described_by(indices: Mapping[str, bytes]) -> tuple[Mapping[str, Part], Mapping[str, Sequence[Stored]]]:
    """What torch has to know of the parts: an example of each tensor, and where each of its boxes is.

    Args:
        indices: contents of all ranks' indices, by the files' names.
    """
    found = [_decoded(Path(name).stem, data) for name, data in sorted(indices.items())]
    examples = layout.holders_of(_ANY, _surveys(found)).examples
    boxes: dict[str, dict[layout.Numbers, Stored]] = {name: {} for name in examples}
    for each in found:
        for name, (offset, length) in each.archives.items():
            part = each.parts[name]
            box = Stored(f"{each.name}.bin", offset, length, part.offsets, part.sizes)
            boxes[name].setdefault(part.offsets, box)
    return examples, {name: tuple(each.values()) for name, each in boxes.items()}


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
    return [_decoded(path.stem, path.read_bytes()) for path in sorted(folder.glob("shards-*.json"))]


def _decoded(name: str, data: bytes) -> _Index:
    parts, *places = json.loads(data)
    return _Index(name, layout.decode_parts(parts), *places)


def _surveys(indices: list[_Index]) -> list[Survey]:
    return [Survey(((_ANY, each.parts),)) for each in indices]


def _mapped(folder: Path, index: _Index) -> dict[str, torch.Tensor]:
    path, places = folder / f"{index.name}.bin", index.places
    size = path.stat().st_size
    data = torch.from_file(str(path), shared=False, size=size, dtype=torch.uint8) if size else torch.empty(0)
    return {
        name: data[places[name] : places[name] + part.bytes].view(part.torch_dtype).view(part.sizes)
        for name, part in index.parts.items()
        if part.bytes
    }

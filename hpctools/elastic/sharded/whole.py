"""A sharded checkpoint as one of torch Distributed Checkpoint: where it lies, or written anew and whole.

    model.<parameter or buffer>             as `model.state_dict()` names them
    optimizer.state.<parameter>.<key>       as `get_optimizer_state_dict` does, of
    optimizer.param_groups.<n>.<option>     torch.distributed.checkpoint.state_dict
    state.<name>. ...                       what `state=` and `track` gave to the loader

torch's planner makes the names and the list of files from tensors without memory. Where the checkpoint lies
the values are in the ranks' files already (`describe`); else they are put together one after the other while
they are written (`write_whole`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch.distributed.checkpoint.default_planner import DefaultSavePlanner
from torch.distributed.checkpoint.filesystem import FileSystemWriter
from torch.distributed.checkpoint.metadata import MetadataIndex

from hpctools.elastic.checkpoint.dcp import write_planned
from hpctools.elastic.checkpoint.manifest import FileRecord
from hpctools.elastic.checkpoint.store import Stage, Store
from hpctools.elastic.sharded.layout import Part
from hpctools.elastic.sharded.part_files import WholeTensors, described_by, is_index, read_plain
from hpctools.elastic.sharded.trained import MODEL, OPTIMIZER
from hpctools.errors import ElasticError

STATE = "state"


def describe(
    store: Store, stage: Stage, parts: int, plain: Mapping[str, Any], refused: Callable[[str], None]
) -> int:
    """Add what torch needs to read the parts: `.metadata`, and what is not sharded in a file of torch's own.

    Args:
        parts: how many writers there are.
        plain: the unsharded state.
        refused: told why torch can make nothing of such a state; a training goes on from it all the same.

    Returns:
        How many parts there are then.

    Raises:
        PartMissing: a part is not there yet.
        ElasticError: the place cannot be used.
        OSError: it cannot be written.
    """
    indices = {name: store.staged(stage, name) for name in store.gathered(stage, parts) if is_index(name)}
    try:
        files = _described(stage.folder, indices, plain)
    except (ElasticError, OSError):
        raise
    except Exception as error:  # noqa: BLE001 - such as two names that are the same with torch's dots
        refused(" ".join(str(error).split()) or type(error).__name__)
        return parts
    store.add(stage, parts, files)
    return parts + 1


def _described(folder: Path, indices: Mapping[str, bytes], plain: Mapping[str, Any]) -> dict[str, FileRecord]:
    examples, boxes = described_by(indices)
    state, stored = _nested(examples, plain)
    where = {name: boxes[of] for name, of in stored.items()}
    writer = FileSystemWriter(folder, sync_files=False)  # the store does that
    return write_planned(writer, DefaultSavePlanner(), state, lambda: None, where)


def write_whole(source: Path, folder: Path) -> int:
    """Write the sharded checkpoint in `source` into an empty folder, with whole tensors.

    Returns:
        Bytes written.

    Raises:
        ElasticError: shards are missing.
        OSError, RuntimeError: it cannot be read or written.
    """
    tensors = WholeTensors(source)
    state, stored = _nested(tensors.examples, read_plain(source))
    # A file for each tensor: torch keeps all tensors of a file until it is written.
    writer = FileSystemWriter(folder, single_file_per_rank=False)
    files = write_planned(writer, _Planner(tensors, stored), state, lambda: None)
    return sum(each.bytes for each in files.values())


class _Planner(DefaultSavePlanner):
    """torch's planner, for tensors that are put together when they are written.

    Args:
        stored: names in the sharded checkpoint, by the names that torch gives them.
    """

    def __init__(self, tensors: WholeTensors, stored: Mapping[str, str]) -> None:
        super().__init__()
        self._tensors = tensors
        self._stored = stored

    def lookup_object(self, index: MetadataIndex) -> Any:
        """The value that is written next."""
        if index.fqn in self._stored:
            return self._tensors.read(self._stored[index.fqn])
        return super().lookup_object(index)


def _nested(examples: Mapping[str, Part], plain: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    """The state as a training without shards has it; sharded tensors have a shape and no memory."""
    trained, rest = plain["trained"], plain["rest"]
    model: dict[str, Any] = {**trained["buffers"], **trained["parameters"]}
    kept: dict[str, dict[str, Any]] = {name: dict(values) for name, values in trained["kept"].items()}
    stored: dict[str, str] = {}
    for name, part in examples.items():
        empty = torch.empty(part.shape, dtype=part.torch_dtype, device="meta")
        kind, _, of = name.partition(" ")
        if kind == MODEL:
            model[of] = empty
            stored[f"{MODEL}.{of}"] = name
        else:
            key, _, parameter = of.partition(" ")
            kept.setdefault(parameter, {})[key] = empty
            stored[f"{OPTIMIZER}.{STATE}.{parameter}.{key}"] = name
    for alias, name in trained.get("tied", {}).items():  # written twice: `state_dict()` has both names
        model[alias] = model[name]
        if f"{MODEL}.{name}" in stored:
            stored[f"{MODEL}.{alias}"] = stored[f"{MODEL}.{name}"]
    own = {key.removeprefix(f"{STATE} "): value for key, value in rest.items() if key.startswith(f"{STATE} ")}
    optimizer = {STATE: kept, "param_groups": trained["groups"]}
    return {MODEL: model, OPTIMIZER: optimizer, STATE: own}, stored

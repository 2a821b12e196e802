"""A sharded checkpoint written anew as torch Distributed Checkpoint writes a model that is not sharded.

    model.<parameter or buffer>             as `model.state_dict()` names them
    optimizer.state.<parameter>.<key>       as `get_optimizer_state_dict` does, of
    optimizer.param_groups.<n>.<option>     torch.distributed.checkpoint.state_dict
    state.<name>. ...                       what `state=` and `track` gave to the loader

torch's planner makes the names and the list of files from tensors without memory; the values are put together
one after the other while they are written.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch.distributed.checkpoint.default_planner import DefaultSavePlanner
from torch.distributed.checkpoint.filesystem import FileSystemWriter
from torch.distributed.checkpoint.metadata import MetadataIndex

from hpctools.elastic.checkpoint.dcp import write_planned
from hpctools.elastic.sharded.part_files import WholeTensors, read_plain
from hpctools.elastic.sharded.trained import MODEL, OPTIMIZER

STATE = "state"


def write_whole(source: Path, folder: Path) -> int:
    """Write the sharded checkpoint in `source` into an empty folder, with whole tensors.

    Returns:
        Bytes written.

    Raises:
        ElasticError: shards are missing.
        OSError, RuntimeError: it cannot be read or written.
    """
    tensors = WholeTensors(source)
    state, stored = _nested(tensors, read_plain(source))
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


def _nested(tensors: WholeTensors, plain: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    """The state as a training without shards has it; sharded tensors have a shape and no memory."""
    trained, rest = plain["trained"], plain["rest"]
    model: dict[str, Any] = {**trained["buffers"], **trained["parameters"]}
    kept: dict[str, dict[str, Any]] = {name: dict(values) for name, values in trained["kept"].items()}
    stored: dict[str, str] = {}
    for name, part in tensors.examples.items():
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

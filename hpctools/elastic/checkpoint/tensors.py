"""Tensors to files and back, as torch Distributed Checkpoint stores them, imported when it is needed.

By itself that takes half as long as torch; where an optimizer was made, torch has imported most of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

from hpctools.elastic.checkpoint.manifest import FileRecord


def write_state(
    folder: Path, tensors: Mapping[str, torch.Tensor], skeleton: Any, go_on: Callable[[], None]
) -> dict[str, FileRecord]:
    """Write a state into an empty folder and have the disk confirm it.

    Args:
        go_on: called now and then; what it raises ends the writing.

    Returns:
        The files, by name.

    Raises:
        OSError, RuntimeError: it cannot be written.
    """
    from hpctools.elastic.checkpoint import dcp

    return dcp.write_state(folder, tensors, skeleton, go_on)


def read_state(folder: Path) -> Any:
    """The state that `write_state` wrote, in tensors of our own on the CPU.

    Raises:
        ElasticError: the files are no checkpoint of ours.
    """
    from hpctools.elastic.checkpoint import dcp

    return dcp.read_state(folder)

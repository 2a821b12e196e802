"""Where a run's checkpoints are, and how its settings come together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from hpctools.elastic.checkpoint.selection import FOLDER_IN_RUN, newest
from hpctools.elastic.checkpoint.settings import Checkpoint, parse
from hpctools.elastic.folder import RunFolder
from hpctools.elastic.spec import RunSpec
from hpctools.errors import ElasticError


def settings_of(spec: RunSpec, script: Checkpoint | None) -> Checkpoint:
    """What counts in a run: what was said at submit, then what the training says, then the defaults.

    Raises:
        ElasticError: a value makes no sense.
    """
    said: Mapping[str, Any] = {**(script or Checkpoint()).to_json(), **spec.checkpoint}
    settings = parse(said)
    return replace(settings, resume_from=settings.resume_from or spec.resumed_from)


def place_of(folder: RunFolder, settings: Checkpoint) -> str:
    """Where a run's checkpoints are written to."""
    return settings.folder or str(folder.path / FOLDER_IN_RUN)


def can_begin_again(folder: RunFolder) -> bool:
    """Whether there is a checkpoint from which a run whose workers are all gone can begin again.

    Looks where the run's settings say, and where its workers said that they saved (their program may have
    settings of its own). A place that cannot be read counts as empty.
    """
    spec = folder.spec()
    settings = settings_of(spec, None)
    saved = [str(event.detail.get("where", "")) for event in folder.events() if event.event == "saved"]
    places = [place_of(folder, settings), settings.resume_from, *saved[-1:]]
    return any(_has_one(place) for place in places if place)


def _has_one(place: str) -> bool:
    try:
        return newest(place) is not None
    except ElasticError:
        return False

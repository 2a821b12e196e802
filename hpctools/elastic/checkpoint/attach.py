"""A training's keeper of checkpoints, as its environment and its own settings want it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast

from hpctools.elastic.checkpoint.desks import LoneDesk, RunDesk, RunLine
from hpctools.elastic.checkpoint.keeper import Keeper
from hpctools.elastic.checkpoint.place import place_of, settings_of, settled
from hpctools.elastic.checkpoint.settings import Checkpoint
from hpctools.elastic.folder import RunFolder
from hpctools.elastic.session import Session


def keeper_of(
    folder: RunFolder | None,
    session: Session,
    script: Checkpoint | None,
    capture: Callable[[], Mapping[str, Any]],
    describe: Callable[[], Mapping[str, Any]],
) -> Keeper | None:
    """The keeper of a worker of the run in `folder`, or of a process that is in none.

    Args:
        script: what the training says; None: nothing.

    Returns:
        None: a process that is in no run and names no folder has nowhere to save.

    Raises:
        ElasticError: a setting makes no sense.
    """
    if folder is not None:
        settings = settings_of(folder.spec(), script)
        place = place_of(folder, settings)
        desk = RunDesk(folder, cast("RunLine", session), place)
        desk.tell_settings(settings)
        return Keeper(settings, place, desk, capture, describe)
    if script is None or not (script.folder or script.resume_from or script.snapshots):
        return None
    script = settled(script)
    return Keeper(script, script.folder, LoneDesk(), capture, describe)

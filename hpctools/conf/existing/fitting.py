"""Which of the words that were found a site file can have; Slurm's own say the others (`closing.py`)."""

from __future__ import annotations

import copy
import json
from typing import Any

from pydantic import BaseModel, ValidationError

from hpctools.conf.existing.words import Words


def fitting(words: Words, model: type[BaseModel]) -> Words:
    """Leave out values that a site file refuses: too large, a pattern where it wants a path, and the like.

    Args:
        words: an entry of the draft; it stays as it is.
        model: what it must be.

    Returns:
        All of the words where there is no entry without one that is refused: the refusal then says why.
    """
    kept = copy.deepcopy(words)
    while (place := _refused(kept, model)) is not None:
        if not _drop(kept, place):
            return words
    return kept


def _refused(words: Words, model: type[BaseModel]) -> tuple[int | str, ...] | None:
    """The first place that is wrong; None when nothing is."""
    try:
        model.model_validate_json(json.dumps(words))  # lists are what YAML has, too
    except ValidationError as error:
        return error.errors(include_url=False)[0]["loc"]
    return None


def _drop(words: dict[Any, Any], place: tuple[int | str, ...]) -> bool:
    """Drop the innermost entry around a place that is there; False when that is all of them."""
    if not place or place[0] not in words:
        return False
    inner = words[place[0]]
    if not (isinstance(inner, dict) and _drop(inner, place[1:])):
        del words[place[0]]
    return True

"""How many nodes a run may have: `MIN:MAX`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from hpctools.errors import UsageError

# 1-15:4 is sbatch's own (since 23.02): from 1 to 15 in steps of 4.
_SBATCH_STEPS = re.compile(r"\d+-\d+:\d+")
_RANGE = re.compile(r"[0-9]+:[0-9]+")
_REMEDY = "write --nodes MIN:MAX with 1 <= MIN <= MAX, for example --nodes 2:6"


@dataclass(frozen=True)
class NodeRange:
    """Bounds of an elastic run, in nodes.

    Attributes:
        minimum: nodes of the baseline job.
        maximum: nodes of the baseline and of all replica jobs together.
    """

    minimum: int
    maximum: int

    def __str__(self) -> str:
        return f"{self.minimum}:{self.maximum}"


def is_elastic(value: str) -> bool:
    """Whether a value of `--nodes` asks for an elastic run and not for something that sbatch knows."""
    return ":" in value and not _SBATCH_STEPS.fullmatch(value)


def misplaced_range(arguments: Sequence[str]) -> str | None:
    """A range among a script's arguments, where it asks nothing of us; None when there is none."""
    for option, value in pairwise(arguments):
        if option in ("--nodes", "-N") and _RANGE.fullmatch(value):
            return f"{option} {value}"
    attached = (word for word in arguments if re.fullmatch(r"(--nodes=|-N)[0-9]+:[0-9]+", word))
    return next(attached, None)


def parse_range(value: str, place: str) -> NodeRange:
    """Read `MIN:MAX`.

    Args:
        value: what was given to `--nodes`.
        place: where it was given, for messages.

    Raises:
        UsageError: it is not two whole numbers with 1 <= MIN <= MAX.
    """
    lower, _, upper = value.partition(":")
    if not (re.fullmatch(r"[0-9]{1,6}", lower) and re.fullmatch(r"[0-9]{1,6}", upper)):
        raise UsageError(f"{place}: --nodes {value} is not a range of nodes", _REMEDY)
    bounds = NodeRange(int(lower), int(upper))
    if bounds.minimum < 1:
        raise UsageError(f"{place}: --nodes {value}: a run needs at least 1 node", _REMEDY)
    if bounds.minimum > bounds.maximum:
        swapped = f"did you mean --nodes {upper}:{lower}?"
        raise UsageError(f"{place}: --nodes {value}: the minimum is above the maximum", swapped)
    return bounds

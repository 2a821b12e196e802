"""How many nodes a run may have: `MIN:MAX`, `MIN:MAX:STEP` or `A,B,C`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from hpctools.errors import UsageError

# 1-15:4 is sbatch's own (since 23.02): from 1 to 15 in steps of 4.
_SBATCH_STEPS = re.compile(r"\d+-\d+:\d+")
_RANGE = re.compile(r"[0-9]+:[0-9]+(:[0-9]+)?")
# Numbers and commas, and what a slip of the hand leaves between them. sbatch has lists, too (since 23.02),
# but means one job of any of these sizes; those with a range in them (1,4-8) are left to it.
_LIST = re.compile(r"[0-9 ]*(,[0-9 ]*)+")
_REMEDY = (
    "write --nodes MIN:MAX with 1 <= MIN <= MAX, for example --nodes 2:6, or MIN:MAX:STEP, or a list 1,2,4,8"
)


@dataclass(frozen=True)
class NodeSizes:
    """The sizes that an elastic run may have.

    Attributes:
        totals: nodes of the baseline and of all replica jobs together, ascending; the first is the
            baseline's.
        written: as the user wrote it, for messages.
    """

    totals: tuple[int, ...]
    written: str = field(default="", compare=False)

    @classmethod
    def between(cls, minimum: int, maximum: int, step: int = 1) -> NodeSizes:
        """Each step from the minimum on, up to the maximum."""
        return cls(tuple(range(minimum, maximum + 1, step)), f"{minimum}:{maximum}")

    @property
    def minimum(self) -> int:
        """Nodes of the baseline job."""
        return self.totals[0]

    @property
    def maximum(self) -> int:
        """The most nodes that the run may have."""
        return self.totals[-1]

    @property
    def largest_step(self) -> int:
        """Nodes of the largest replica job; 0 when there is none."""
        return max((high - low for low, high in pairwise(self.totals)), default=0)

    @property
    def smallest_step(self) -> int:
        """Nodes of the smallest replica job; 0 when there is none."""
        return min((high - low for low, high in pairwise(self.totals)), default=0)

    @property
    def are_all_between(self) -> bool:
        """Whether every number of nodes from the minimum to the maximum is allowed."""
        return len(self.totals) == self.maximum - self.minimum + 1

    def __str__(self) -> str:
        if self.written or not self.are_all_between:
            return self.written or ",".join(map(str, self.totals))
        return f"{self.minimum}:{self.maximum}"


def is_elastic(value: str) -> bool:
    """Whether a value of `--nodes` asks for an elastic run and not for something that sbatch knows."""
    return (":" in value and not _SBATCH_STEPS.fullmatch(value)) or bool(_LIST.fullmatch(value))


def misplaced_range(arguments: Sequence[str]) -> str | None:
    """A range among a script's arguments, where it asks nothing of us; None when there is none."""
    for option, value in pairwise(arguments):
        if option in ("--nodes", "-N") and _RANGE.fullmatch(value):
            return f"{option} {value}"
    attached = (word for word in arguments if re.fullmatch(rf"(--nodes=|-N){_RANGE.pattern}", word))
    return next(attached, None)


def parse_sizes(value: str, place: str) -> NodeSizes:
    """Read `MIN:MAX`, `MIN:MAX:STEP` or `A,B,C`.

    Args:
        value: what was given to `--nodes`.
        place: where it was given, for messages.

    Raises:
        UsageError: it is none of these; says what it could have been.
    """
    written = value.split(":" if ":" in value else ",")
    known = ":" not in value or len(written) <= 3
    if not known or not all(re.fullmatch(r"[0-9]{1,6}", word) for word in written):
        raise UsageError(f"{place}: --nodes {value} is not a range of nodes", _REMEDY)
    numbers = [int(word) for word in written]
    if numbers[0] < 1 or 0 in numbers:
        raise UsageError(f"{place}: --nodes {value}: a run needs at least 1 node", _REMEDY)
    totals = _steps(numbers, f"{place}: --nodes {value}") if ":" in value else _listed(numbers, value, place)
    return NodeSizes(totals, value)


def _steps(numbers: list[int], said: str) -> tuple[int, ...]:
    low, high, *rest = numbers
    step = rest[0] if rest else 1
    tail = f":{step}" if rest else ""
    if low > high:
        raise UsageError(
            f"{said}: the minimum is above the maximum", f"did you mean --nodes {high}:{low}{tail}?"
        )
    below = high - (high - low) % step
    if below != high:
        nearest = f"{low}:{below}{tail} or {low}:{below + step}{tail}"
        raise UsageError(
            f"{said}: {high} is not {low} and so many steps of {step}", f"did you mean {nearest}?"
        )
    return tuple(range(low, high + 1, step))


def _listed(numbers: list[int], value: str, place: str) -> tuple[int, ...]:
    ascending = sorted(set(numbers))
    if numbers != ascending:
        meant = ",".join(map(str, ascending))
        raise UsageError(
            f"{place}: --nodes {value}: the sizes of a run stand in ascending order, each once",
            f"did you mean --nodes {meant}?",
        )
    return tuple(numbers)

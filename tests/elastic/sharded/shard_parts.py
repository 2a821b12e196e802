"""One rank with one tensor, whose elements all are the number of the step, and its keeper."""

from __future__ import annotations

from typing import Any

import torch
from checkpoint_rig import FakeDesk

from hpctools import elastic
from hpctools.elastic.checkpoint.saver import Origin
from hpctools.elastic.sharded.keeping import ShardKeeper
from hpctools.elastic.sharded.layout import Part, Version
from hpctools.elastic.sharded.moment import Moment
from hpctools.elastic.sharded.moving import PartSet, Wanted
from hpctools.elastic.spec import RunSpec

SPEC = RunSpec("t-1", "t", "nlp1", "", 1, 3, 1, ("true",), "/", (), "/r.sh", "now")
PARTS = {"model weight": Part((4,), "float32", (0,), (4,))}
BY_ORDER = elastic.Checkpoint(every_seconds=0)


def plain_after(step: int) -> dict[str, Any]:
    """The unsharded state after a step: nothing but the number of it."""
    trained: dict[str, Any] = {"buffers": {}, "parameters": {}, "kept": {}, "groups": []}
    return {"trained": trained, "rest": {"step": step}}


class RankOfOne:
    """The only rank of a training, between its steps.

    Args:
        rank, world: which of how many ranks with four elements each; only rank 0 is asked and commits.

    Attributes:
        step: completed steps; the state tells it.
    """

    def __init__(
        self, place: str, settings: elastic.Checkpoint = BY_ORDER, rank: int = 0, world: int = 1
    ) -> None:
        self.step, self.rank, self.world = 0, rank, world
        self.parts = {"model weight": Part((4 * world,), "float32", (4 * rank,), (4,))}
        self.desk = FakeDesk()
        self.desk.saves = rank == 0
        self.keeper = ShardKeeper(settings, place, self.desk, self._living, self._moment)

    def go_to(self, step: int, *, sound: bool = True) -> None:
        """Do a step, in which rank 0 is asked, and come to its boundary."""
        self.step = step
        self.keeper.agreed = self.keeper.wishes(step)
        self.keeper.boundary(step, sound=sound)

    def save_after(self, step: int) -> None:
        """Have a checkpoint of a step, and wait for it."""
        self.step = step
        self.keeper.agreed = True
        self.keeper.boundary(step, sound=True)
        self.keeper.close()
        assert [each["step"] for each in self.desk.of("saved")][-1:] == [step], self.desk.told

    def filled_from(self, step: int) -> torch.Tensor:
        """The tensor, as a checkpoint has it."""
        tensor = torch.zeros(4)
        assert self.keeper.read(step, Wanted(PARTS, {"model weight": tensor})) == plain_after(step)
        return tensor

    def _living(self) -> PartSet:
        tensor = torch.full((4,), float(self.step))
        return PartSet(Version(self.step, 1), self.parts, {"model weight": tensor}, plain_after(self.step))

    def _moment(self, origin: Origin) -> Moment:
        return Moment(self.step, self.rank, self.world, origin, {})

"""What every rank is fed in a step, and how loss and buffers come together; gradients are FSDP's part."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import torch
from torch import nn
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor

from hpctools.elastic.exchange import Exchanged
from hpctools.elastic.gradients import FlatGradients, Totals, Withheld
from hpctools.elastic.group import Group
from hpctools.elastic.pieces import Cut, Fill, Piece, Step, by_shards, practice
from hpctools.elastic.reduction import Share, neighbours
from hpctools.elastic.sampling import Cursor, Sampling, StreamSampling
from hpctools.elastic.sharded.in_order import InOrder
from hpctools.elastic.sharded.inside import check_added_up
from hpctools.elastic.sharded.norm import own_squares, whole_norm
from hpctools.elastic.sharded.process_group import BETWEEN, IN_STEP, ShardGroup
from hpctools.elastic.sharded.trained import local
from hpctools.elastic.summing import Backward, ExactSum


def in_step(sampling: Sampling | StreamSampling, share: Share = neighbours) -> Cut:
    """A worker's virtual shards, and practice until it has as many passes as every other worker.

    Every pass gathers the parameters from all ranks, so all have to do the same number of them. With
    streams the practice comes once they are read (`passes_of`).

    Args:
        share: which shards are whose.
    """
    by_shard = by_shards(sampling, share)
    if isinstance(sampling, StreamSampling):
        return by_shard

    def cut(cursor: Cursor, rank: int, world: int) -> list[Piece]:
        shards = sampling.shards_of(cursor)
        pieces, passes = by_shard(cursor, rank, world), -(-shards // world)
        fillers = range(passes - len(pieces))
        return [*pieces, *(practice(sampling, cursor, shards + place) for place in fillers)]

    return cut


def passes_of(sampling: StreamSampling) -> Fill:
    """Practice in place of streams that have ended, and until a worker has as many passes as every other one.

    So nobody need know whose streams have ended: whoever has how many samples, all do the same passes.
    """

    def fill(pieces: list[Piece], world: int) -> list[Piece]:
        shards = sampling.shards
        fed = [piece if piece.is_fed else replace(piece, is_practice=True) for piece in pieces]
        further = range(shards, shards - (-shards // world) - len(pieces))
        return fed + [replace(fed[-1], number=each, samples=0, is_practice=True) for each in further]

    return fill


SAVE, MEASURE, SQUARES = range(3)
"""What ranks tell each other in a step: rank 0 wants the state saved after it, and the next step's gradients
measured; and the squares of the gradients."""


class _Buffers(nn.Module):
    """Only the buffers of a model, and what else is added up: what ranks tell each other, in front; ...

    Args:
        more: further ones.

    Attributes:
        told: by SAVE, MEASURE and SQUARES; of all ranks together once the step is complete.
    """

    def __init__(self, model: nn.Module, more: Sequence[torch.Tensor]) -> None:
        super().__init__()
        self._model = [model]
        self.told = torch.zeros(3)
        self._more = more

    def parameters(self, recurse: bool = True) -> Iterator[nn.Parameter]:
        return iter(())

    def named_buffers(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, torch.Tensor]]:
        yield "told", self.told
        yield from self._model[0].named_buffers()
        yield from (("further", each) for each in self._more)


class ShardedSum:
    """Adds up loss and buffers over all virtual shards, in the fixed tree; see `summing.Summing`.

    Args:
        wish: whether the state is to be saved after so many completed steps; rank 0 is asked.
        share: which shards are whose.
        in_order: adds up the gradients in the order of the shards; None: FSDP does, in that of the ranks.
        is_due: whether the gradients are to be measured in the next step; rank 0 is asked.

    Attributes:
        agreed: what rank 0 wished in the step that is complete.
        norm: of all gradients of that step; None: it was not measured, as in a step with fewer samples than
            ranks, of which some have nothing to add to.
    """

    device = None  # shards go over `ShardGroup`

    def __init__(
        self,
        model: nn.Module,
        group: ShardGroup,
        wish: Callable[[int], bool],
        share: Share = neighbours,
        in_order: InOrder | None = None,
        is_due: Callable[[], bool] = lambda: False,
    ) -> None:
        self._buffers = _Buffers(model, [] if in_order is None else [in_order.used])
        self._sum = ExactSum(FlatGradients(self._buffers), share)
        self._in_order = in_order
        self._parameters = [each for each in model.parameters() if each.requires_grad]
        self._withheld = Withheld(self._parameters)
        self._layers = [each for each in model.modules() if isinstance(each, FSDPModule)]
        self._shard_group = group
        self._wish = wish
        self._is_due = is_due
        self._measures = True  # the first step of each generation, by all of its ranks
        self._rank = 0
        self._step = Step(0, 1, 1, ())
        self.agreed = False
        self.norm: float | None = None

    def begin(self, step: Step, group: Group) -> None:
        """A step begins, or begins again."""
        self._rank, self._step = group.rank, step
        self._shard_group.phase = IN_STEP
        for layer in self._layers:
            layer.reshard()  # gathered before the optimizer's step, it would be without that
        self._buffers.told.zero_()
        self._withheld.forget()
        if self._in_order is not None:
            self._in_order.used.zero_()
            self._in_order.begin(step.shards)
        self._sum.begin(step, group)

    def begin_piece(self) -> None:
        """Every shard begins with the buffers of before the step."""
        self._sum.begin_piece()

    def add(self, piece: Piece, loss: torch.Tensor, backward: Backward, ready_for: int) -> None:
        """A shard's backward pass, in which FSDP adds up the gradients of all ranks."""
        self._vote(piece)
        if self._in_order is not None:
            self._in_order.begin_pass(counts=piece.samples > 0)
        self._withheld.give_back()
        self._sum.add(piece, loss, _skipped if self._is_lost() else backward, ready_for)
        self._withheld.take()
        if self._in_order is not None:
            self._in_order.end_pass()
        if not piece.samples and piece.number < self._step.shards:
            self.add_nothing(piece)

    def add_nothing(self, piece: Piece) -> None:
        """A shard whose stream has ended adds nothing but rank 0's wish, who may have no other shard."""
        self._sum.set_back()
        self._vote(piece)
        self._sum.add_changes(piece)

    def set_back(self) -> None:
        """Drop what the last shard did to the buffers."""
        self._sum.set_back()

    def measure(self) -> None:
        """All passes are done: add the squares of our gradients, if it was agreed on."""
        if self._measures and not self._shard_group.void:
            self._withheld.give_back()
            self._sum.put(SQUARES, own_squares(each.grad for each in self._parameters))
            self._withheld.take()

    def exchange(self, group: Group, ready_for: int) -> Exchanged:
        """Finish the tree with the others.

        Raises:
            RuntimeError: a peer is gone, or was gone in one of the passes.
        """
        if self._shard_group.void:
            raise self._shard_group.error or RuntimeError("called away in a pass")
        return self._sum.exchange(group, ready_for)

    def apply(self, exchanged: Exchanged) -> Totals:
        """Give the model its buffers; the gradients are there.

        Raises:
            ElasticError: FSDP has not added up some; or in exact mode, virtual shards have trained different
                parameters.
        """
        self._withheld.give_back()
        totals = self._sum.apply(exchanged)
        check_added_up(self._layers)
        if self._in_order is not None:
            self._in_order.check()
        factor = self._step.size / totals.samples if totals.samples else 1.0
        if factor != 1.0:
            self._scale(factor)
        self._hear(factor)
        self._shard_group.phase = BETWEEN
        return totals

    def _vote(self, piece: Piece) -> None:
        if self._rank == 0:
            told = self._buffers.told
            told[SAVE], told[MEASURE] = float(self._wish(piece.cursor.step + 1)), float(self._is_due())

    def _hear(self, factor: float) -> None:
        """What the ranks have told each other, of gradients that were made larger by the factor."""
        told = self._buffers.told.tolist()
        self._buffers.told.zero_()
        is_whole = self._measures and self._step.shards >= self._shard_group.size()
        self.norm = whole_norm(told[SQUARES], factor) if is_whole else None
        self.agreed, self._measures = told[SAVE] > 0, told[MEASURE] > 0

    def _scale(self, factor: float) -> None:
        """Streams had fewer samples than the passes' weights were made for."""
        for parameter in self._parameters:
            if isinstance(gradient := parameter.grad, DTensor):
                local(gradient).mul_(factor)

    def _is_lost(self) -> bool:
        """Whether the pass was done with zeros, so that its gradients mean nothing."""
        return self._shard_group.void and not self._shard_group.pretended


def _skipped(_: float) -> None:
    """A backward pass that is not worth its time."""

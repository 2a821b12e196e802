"""How the gradients of a step's pieces become those of the global batch: to the bit (`ExactSum`) or fast."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Protocol

import torch

from hpctools.elastic.exchange import Exchanged, Plan, exchange
from hpctools.elastic.gradients import FlatGradients, Totals
from hpctools.elastic.group import Group
from hpctools.elastic.pieces import Piece, Step
from hpctools.elastic.reduction import Ladder, Node, Share, children, neighbours
from hpctools.errors import ElasticError

Backward = Callable[[float], None]
"""Does the backward pass of a piece's loss, times a weight."""


class Summing(Protocol):
    """What the loader asks for each step: begin, then each piece, then the exchange, then apply."""

    @property
    def device(self) -> torch.device | None:
        """The GPU on which gradients are added up where nccl can; None: in the host's memory."""
        ...

    def begin(self, step: Step, group: Group) -> None:
        """A step begins, or begins again; what was gathered is forgotten."""
        ...

    def begin_piece(self) -> None:
        """The forward pass of a piece comes next."""
        ...

    def add(self, piece: Piece, loss: torch.Tensor, backward: Backward, ready_for: int) -> None:
        """A piece's backward pass, and its part of the sum."""
        ...

    def add_nothing(self, piece: Piece) -> None:
        """A piece turned out to have no samples; it is not fed."""
        ...

    def set_back(self) -> None:
        """Before the state may move: the model's buffers are those of before the step."""
        ...

    def exchange(self, group: Group, ready_for: int) -> Exchanged:
        """Add up the pieces of all ranks; blocks, in the group's thread.

        Raises:
            RuntimeError: a peer is gone, or is in another step.
        """
        ...

    def apply(self, exchanged: Exchanged) -> Totals:
        """Give the model the sum."""
        ...


class ExactSum:
    """Adds up virtual shards in a fixed tree: the same to the bit whoever computed which.

    Args:
        share: which shards are whose; as `pieces.by_shards` was told.
    """

    device = None

    def __init__(self, gradients: FlatGradients, share: Share = neighbours) -> None:
        self._gradients = gradients
        self._share = share
        self._spare: list[torch.Tensor] = []
        self._sums: dict[Node, torch.Tensor] = {}
        self._ladder = Ladder(())
        self._step = Step(0, 1, 1, ())
        self._group: Group | None = None

    def begin(self, step: Step, group: Group) -> None:
        """Find the tree's nodes that are ours."""
        if self._group is None or group is self._group or self._group.is_sound:
            self._spare.extend(self._sums.values())
        else:
            self._spare = []  # the group that was given up may still use them
        self._sums, self._step, self._group = {}, step, group
        self._ladder = Ladder(self._share(group.rank, group.world, step.shards))
        self._gradients.begin_step()

    def begin_piece(self) -> None:
        """Every shard begins with the buffers of before the step."""
        self._gradients.begin_shard()

    def add(self, piece: Piece, loss: torch.Tensor, backward: Backward, ready_for: int) -> None:
        """A shard's backward pass, and its place in the tree."""
        weight = piece.samples / self._step.size
        backward(weight)
        if piece.samples:
            vector = self._vector()
            self._gradients.capture(vector, loss, weight, piece.samples)
            self._insert(piece.number, vector)

    def add_nothing(self, piece: Piece) -> None:
        """A shard without samples is zero."""
        self._insert(piece.number, self._vector().zero_())

    def add_changes(self, piece: Piece) -> None:
        """A shard without samples is zero, but for what the buffers are now."""
        vector = self._vector()
        self._gradients.capture(vector, torch.zeros(()), 1 / self._step.size, 0)
        self._insert(piece.number, vector)

    def put(self, place: int, value: float) -> None:
        """Add to an element of the sum, after our shards; nothing where none of the step's is ours."""
        for vector in [*self._sums.values()][:1]:
            vector[place] += value

    def set_back(self) -> None:
        """Drop what the last shard did to the buffers."""
        self._gradients.begin_shard()

    def exchange(self, group: Group, ready_for: int) -> Exchanged:
        """Finish the tree with the others."""
        gradients = self._gradients
        vector = gradients.length, gradients.dtype
        plan = Plan(self._step.number, self._step.shards, *vector, ready_for, self._share)
        return exchange(group, self._sums, plan)

    def apply(self, exchanged: Exchanged) -> Totals:
        """Gradients, and buffers as all shards together change them."""
        return self._gradients.apply(exchanged.vector, self._step.size)

    def _vector(self) -> torch.Tensor:
        return self._spare.pop() if self._spare else self._gradients.new_vector()

    def _insert(self, shard: int, vector: torch.Tensor) -> None:
        """Add up neighbours as far as the tree says."""
        self._sums[(shard, shard + 1)] = vector
        for node in self._ladder.push(shard):
            left, right = (self._sums.pop(child) for child in children(node))
            self._sums[node] = left.add_(right)
            self._spare.append(right)


def unscaled(norm: Callable[[], float] | None, scaler: Any) -> Callable[[], float | None] | None:
    """What measures the gradients, as they are without the scale of the step's gradient scaler.

    It measures None where that scale may be what made them infinite: the scaler leaves the step out, and
    makes the scale smaller. With a scale of 1 or less they are so by themselves.
    """
    if norm is None or scaler is None:
        return norm

    def measure() -> float | None:
        scaled, scale = norm(), float(scaler.get_scale())
        return scaled / scale if math.isfinite(scaled) or scale <= 1 else None

    return measure


def backward_of(loss: torch.Tensor, scaler: Any) -> Backward:
    """The backward pass of a loss, which a gradient scaler makes larger first when there is one.

    Raises:
        ElasticError: no gradient can come of it.
    """
    if not isinstance(loss, torch.Tensor) or loss.numel() != 1 or not loss.requires_grad:
        raise ElasticError(
            f"loader.backward was given {_named(loss)}",
            "give the mean loss over the batch's samples: the tensor of one number that the model's "
            "parameters have led to, as for loss.backward()",
        )

    def backward(weight: float) -> None:
        weighted = loss * weight
        (scaler.scale(weighted) if scaler is not None else weighted).backward()

    return backward


def _named(loss: object) -> str:
    if not isinstance(loss, torch.Tensor):
        return f"a {type(loss).__name__}, and no tensor"
    if loss.numel() != 1:
        return f"a loss of shape {tuple(loss.shape)}"
    return "a loss without a graph (computed under torch.no_grad, or detached)"

"""A capacity trace, and what several ways to train make of it on paper. Pure."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

SHORTEST_SECONDS = 20.0
REQUEUE_SECONDS = 148.0
"""From requeue to restart of a job with `--nodes=min-max`, measured on Slurm 22.05.8; 121 are Slurm's own."""


@dataclass(frozen=True)
class Change:
    """From here on there is so much room.

    Attributes:
        at: seconds since the trace began.
        nodes: that the run may have in all.
    """

    at: float
    nodes: int


def trace(seed: int, seconds: float, least: int, most: int, mean: float) -> list[Change]:
    """A seeded history of capacity, from its begin on.

    Args:
        mean: seconds between two changes, on average; never less than SHORTEST_SECONDS.
    """
    draw = random.Random(seed)  # noqa: S311
    changes = [Change(0.0, most)]
    while True:
        at = changes[-1].at + SHORTEST_SECONDS + draw.expovariate(1 / (mean - SHORTEST_SECONDS))
        if at > seconds - SHORTEST_SECONDS:
            return changes
        others = [nodes for nodes in range(least, most + 1) if nodes != changes[-1].nodes]
        changes.append(Change(at, draw.choice(others)))


def spans(changes: Sequence[Change], seconds: float) -> list[tuple[float, int]]:
    """How long there was so much room, in order."""
    ends = [*changes, Change(seconds, 0)]
    return [(after.at - before.at, before.nodes) for before, after in pairwise(ends)]


def oracle(changes: Sequence[Change], seconds: float, rates: Mapping[int, float]) -> float:
    """Steps of a training that resizes at once and at no cost whenever the capacity changes.

    Args:
        rates: steps per second at every size.
    """
    return sum(duration * rates[nodes] for duration, nodes in spans(changes, seconds))


def requeued(changes: Sequence[Change], seconds: float, rates: Mapping[int, float]) -> float:
    """Steps of a job with `--nodes=min-max` that is requeued when nodes are taken from it.

    It restarts REQUEUE_SECONDS later on all that is free then, keeps that size until it is evicted again,
    and loses no step: its best case.
    """
    done, size, resumes = 0.0, changes[0].nodes, 0.0
    for (duration, nodes), change in zip(spans(changes, seconds), changes, strict=True):
        end = change.at + duration
        if change.at >= resumes and nodes < size:
            resumes = change.at + REQUEUE_SECONDS
        if resumes > change.at:
            size = nodes  # what is free when it restarts, if that is in this span
        done += max(0.0, end - max(change.at, resumes)) * rates[min(size, nodes)]
    return done


def complete(rates: Mapping[int, float], sizes: Sequence[int]) -> dict[int, float]:
    """Rates at all sizes: one that was not measured is that of the nearest, in proportion to the nodes.

    Raises:
        ValueError: nothing was measured.
    """
    if not rates:
        raise ValueError("no rate was measured")
    nearest = {size: min(rates, key=lambda known: (abs(known - size), known)) for size in sizes}
    return {size: rates[known] * size / known for size, known in nearest.items()}

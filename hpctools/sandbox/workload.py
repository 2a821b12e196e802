"""A made-up month of work on a cluster: when, where and how large its jobs were; not yet whose. Pure.

Arrivals follow a working week (UTC), run times a log-normal law as real clusters' do (Feitelson, Workload
Modeling, 2015, chapter 3), GPUs come in powers of two. Jobs wait for room, so no node is ever over-allocated.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from random import Random

from hpctools.budget.month import DAY_SECONDS, Month, day_start
from hpctools.budget.tree import NodeGroup

_ARRIVALS = {"workday": (10, 14), "weekend": (2, 5)}
_HOURS = (1, 1, 1, 1, 1, 1, 2, 4, 8, 12, 12, 10, 7, 10, 12, 12, 10, 8, 5, 4, 4, 3, 2, 1)
_MEDIAN_HOURS, _SPREAD, _MOST_HOURS = 6.0, 1.2, 47.0
_LIMITS_HOURS = (1, 2, 4, 8, 12, 24, 48)
_ENDINGS = {"COMPLETED": 78, "FAILED": 9, "TIMEOUT": 6, "CANCELLED": 7}
_PART_OF_PLAN = {"FAILED": (0.01, 0.4), "CANCELLED": (0.1, 0.9)}
_WHOLE_NODES = 0.18
_PARTS_WITHOUT_GPUS = 4
_PATIENCE = DAY_SECONDS


@dataclass(frozen=True)
class Pool:
    """The nodes of one group that run.

    Attributes:
        group: what a node has.
        nodes: their names.
    """

    group: NodeGroup
    nodes: tuple[str, ...]

    @property
    def parts(self) -> int:
        """How many jobs a node holds at most: one for each GPU."""
        return self.group.gpus or _PARTS_WITHOUT_GPUS


@dataclass(frozen=True)
class Shape:
    """A job that nobody owns yet.

    Attributes:
        nodes: where it ran; whole nodes when there are several.
        cpus, memory_mb, gpus: what it held in all.
        submitted, start, end: Unix seconds.
        limit_minutes: its time limit.
        state: COMPLETED, FAILED, TIMEOUT or CANCELLED.
    """

    group: str
    nodes: tuple[str, ...]
    cpus: int
    memory_mb: int
    gpus: int
    submitted: int
    start: int
    end: int
    limit_minutes: int
    state: str


def shapes(pools: Iterable[Pool], months: Iterable[Month], seed: int) -> list[Shape]:
    """What ran in some months in a row, in order of submission; the same for the same arguments.

    Jobs of the last days may end after the last month. Each complete month gets some 200 to 400 jobs.
    """
    running = [pool for pool in pools if pool.nodes and pool.group.cpus]
    if not running:
        return []
    calendar = _Calendar({node: pool.parts for pool in running for node in pool.nodes})
    wishes = (wish for month in months for wish in _wishes(running, month, seed))
    return [shape for wish in wishes if (shape := _placed(wish, calendar))]


@dataclass(frozen=True)
class _Wish:
    """What somebody submitted."""

    submitted: int
    pool: Pool
    nodes: int
    parts: int
    seconds: int
    limit_minutes: int
    state: str


def _wishes(pools: list[Pool], month: Month, seed: int) -> Iterator[_Wish]:
    rng = Random(f"{seed} {month}")  # noqa: S311 - plausible, not secret
    for day in month.days:
        low, high = _ARRIVALS["workday" if day.weekday() < 5 else "weekend"]
        moments = [
            day_start(day) + rng.choices(range(24), _HOURS)[0] * 3600 + rng.randrange(3600)
            for _ in range(rng.randint(low, high))
        ]
        for submitted in sorted(moments):
            yield _wish(pools, submitted, rng)


def _wish(pools: list[Pool], submitted: int, rng: Random) -> _Wish:
    pool = rng.choices(pools, [len(pool.nodes) for pool in pools])[0]
    nodes, parts = _size(pool, rng)
    planned = min(_MOST_HOURS, rng.lognormvariate(math.log(_MEDIAN_HOURS), _SPREAD))
    limit = next(hours for hours in _LIMITS_HOURS if hours >= planned)
    state = rng.choices(list(_ENDINGS), list(_ENDINGS.values()))[0]
    seconds = planned * 3600 * rng.uniform(*_PART_OF_PLAN.get(state, (1, 1)))
    seconds = limit * 3600 if state == "TIMEOUT" else max(20, int(seconds))
    return _Wish(submitted, pool, nodes, parts, seconds, limit * 60, state)


def _size(pool: Pool, rng: Random) -> tuple[int, int]:
    """How many nodes, and how many parts of each."""
    if len(pool.nodes) > 1 and rng.random() < _WHOLE_NODES:
        return rng.choice([2, 2, 2, min(4, len(pool.nodes))]), pool.parts
    powers = [1 << n for n in range(pool.parts.bit_length())]
    return 1, rng.choice(powers)


def _placed(wish: _Wish, calendar: _Calendar) -> Shape | None:
    """The wish with time and place; None when its owner lost patience."""
    found = calendar.place(wish)
    if found is None:
        return None
    start, nodes = found
    group, whole = wish.pool.group, wish.pool.parts
    return Shape(
        group=group.name,
        nodes=nodes,
        cpus=max(1, group.cpus * wish.parts // whole) * len(nodes),
        memory_mb=group.memory_mb * wish.parts // whole * len(nodes),
        gpus=group.gpus * wish.parts // whole * len(nodes),
        submitted=wish.submitted,
        start=start,
        end=start + wish.seconds,
        limit_minutes=wish.limit_minutes,
        state=wish.state,
    )


@dataclass(frozen=True)
class _Hold:
    start: int
    end: int
    parts: int


class _Calendar:
    """Which parts of which node are taken, and when; asked in order of submission."""

    def __init__(self, parts: Mapping[str, int]) -> None:
        self._parts = parts
        self._holds: dict[str, list[_Hold]] = {node: [] for node in parts}

    def place(self, wish: _Wish) -> tuple[int, tuple[str, ...]] | None:
        """Take the earliest time and, at that time, the fullest nodes that still fit."""
        for node, holds in self._holds.items():
            self._holds[node] = [hold for hold in holds if hold.end > wish.submitted]
        for start in self._moments(wish):
            free = {node: self._free(node, start, start + wish.seconds) for node in wish.pool.nodes}
            fitting = sorted((left, node) for node, left in free.items() if left >= wish.parts)
            if len(fitting) >= wish.nodes:
                nodes = tuple(sorted(node for _, node in fitting[: wish.nodes]))
                for node in nodes:
                    self._holds[node].append(_Hold(start, start + wish.seconds, wish.parts))
                return start, nodes
        return None

    def _moments(self, wish: _Wish) -> list[int]:
        """When room may appear: at once (the scheduler takes a second), or when something ends."""
        soon, late = wish.submitted + 1, wish.submitted + _PATIENCE
        ends = {hold.end for node in wish.pool.nodes for hold in self._holds[node]}
        return [soon, *sorted(end for end in ends if soon < end <= late)]

    def _free(self, node: str, begin: int, end: int) -> int:
        """Parts that nobody holds at any moment from `begin` to `end`."""
        holds = [hold for hold in self._holds[node] if hold.start < end and hold.end > begin]
        moments = {begin} | {hold.start for hold in holds if hold.start > begin}
        taken = (sum(h.parts for h in holds if h.start <= moment < h.end) for moment in moments)
        return self._parts[node] - max(taken, default=0)

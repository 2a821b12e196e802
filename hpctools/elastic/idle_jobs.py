"""Replica jobs of which no allowed size is made: when they go back, and when they are asked for again.

With steps of different size one may be missing that has no room, and others are of no use without it. One
that is given back and asked for again at once would get the nodes that it had, stand by as before and be
given back again, for ever.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from hpctools.elastic.policy import ElasticPolicy
from hpctools.elastic.replica_jobs import surplus, waits_for_others

IDLE_SECONDS = 30.0
LONGEST_WAIT = 600.0


class IdleJobs:
    """Notes which replicas were given back; all times in seconds of one clock that only grows.

    Args:
        nodes: of each replica.
    """

    def __init__(self, policy: ElasticPolicy, nodes: Sequence[int]) -> None:
        self._policy = policy
        self._nodes = nodes
        self._idle: tuple[int, float] | None = None  # a job that is of no use, and since when
        self._returned: set[int] = set()
        self._size = 0  # that of the run when they were
        self._wait = 0.0
        self._until = 0.0

    def due(self, serving: Mapping[int, int], now: float) -> int | None:
        """A job that is to be given back now.

        Args:
            serving: the replica of each job that takes part with all of its nodes.
        """
        idle = surplus(self._policy, {job: self._nodes[replica] for job, replica in serving.items()})
        if idle is None or self._idle is None or self._idle[0] != idle:
            self._idle = None if idle is None else (idle, now)
        elif now - self._idle[1] >= IDLE_SECONDS:
            self._idle = None
            self._note(serving[idle], self._size_of(serving.values()), now)
            return idle
        return None

    def _note(self, replica: int, size: int, now: float) -> None:
        self._heed(size)
        self._returned.add(replica)
        self._size, self._wait = size, min(LONGEST_WAIT, 2 * self._wait or IDLE_SECONDS)
        self._until = now + self._wait

    def holds(self, replica: int, serving: Collection[int], now: float) -> bool:
        """Whether a replica that was given back is not asked for again yet.

        It is when it would make the run larger, with those that serve and were not given back themselves:
        else each of two that have no room side by side would call for the other. Or when all that are missing
        were given back, after a while, which doubles: then they are asked for together.
        """
        self._heed(self._size_of(serving))
        lasting = [each for each in serving if each not in self._returned]
        if replica not in self._returned or self._size_of([*lasting, replica]) > self._size_of(lasting):
            return False
        others = set(range(len(self._nodes))) - set(serving) - self._returned
        # One that is only asked for when these serve is not waited for.
        return now < self._until or any(not waits_for_others(self._nodes, each, serving) for each in others)

    def _heed(self, size: int) -> None:
        """At another size others are of use."""
        if size != self._size:
            self._returned.clear()
            self._wait = 0.0

    def _size_of(self, replicas: Collection[int]) -> int:
        nodes = sum(self._nodes[each] for each in replicas)
        return self._policy.largest_within(self._policy.minimum + nodes)

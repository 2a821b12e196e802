"""Replica jobs that no size needs, against a Slurm that starts whatever fits into the nodes that are free."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpctools.elastic.idle_jobs import IDLE_SECONDS, LONGEST_WAIT, IdleJobs
from hpctools.elastic.policy import ElasticPolicy, replica_nodes
from hpctools.elastic.replica_jobs import waits_for_others

HOUR = 3600


class Cluster:
    """A run of 1, 2, 4 or 8 nodes, or of other sizes, and what is free of a cluster beside its replicas."""

    def __init__(self, sizes: tuple[int, ...], free: int) -> None:
        self.policy = ElasticPolicy(sizes)
        self.nodes = replica_nodes(sizes)
        self.jobs = IdleJobs(self.policy, self.nodes)
        self.now, self.free, self.last_job = 0, free, 0
        self.queue: set[int] = set()
        self.serving: dict[int, int] = {}
        self.given_back = 0

    @property
    def size(self) -> int:
        nodes = sum(self.nodes[each] for each in self.serving.values())
        return self.policy.largest_within(self.policy.minimum + nodes)

    def fail(self, replica: int, lost: int) -> None:
        """A replica job ends, and some of its nodes are gone."""
        (job,) = [job for job, each in self.serving.items() if each == replica]
        del self.serving[job]
        self.free += self.nodes[replica] - lost

    def live(self, seconds: int) -> None:
        for _ in range(seconds):
            self.now += 1
            self._submit()
            for replica in sorted(self.queue):
                if self.nodes[replica] <= self.free:
                    self._start(replica)
            if (job := self.jobs.due(self.serving, self.now)) is not None:
                self.free += self.nodes[self.serving.pop(job)]
                self.given_back += 1

    def _submit(self) -> None:
        serving = self.serving.values()
        missing = set(range(len(self.nodes))) - set(serving)
        due = {each for each in missing if not waits_for_others(self.nodes, each, set(serving))}
        self.queue |= {each for each in due if not self.jobs.holds(each, serving, self.now)}

    def _start(self, replica: int) -> None:
        self.queue.discard(replica)
        self.free -= self.nodes[replica]
        self.last_job += 1
        self.serving[self.last_job] = replica


@pytest.mark.parametrize(("replica", "lost", "most"), [(1, 2, 1), (0, 1, 25), (1, 1, 25)])
def test_what_is_given_back_is_not_asked_for_again_for_ever(replica: int, lost: int, most: int) -> None:
    """A step has no room for some hours, and then it has."""
    cluster = Cluster((1, 2, 4, 8), free=7)
    cluster.live(5)
    assert cluster.size == 8
    cluster.fail(replica, lost)
    cluster.live(2 * HOUR)
    assert cluster.size == 4
    assert 1 <= cluster.given_back <= most
    cluster.free += lost
    cluster.live(int(LONGEST_WAIT + IDLE_SECONDS))
    assert cluster.size == 8
    before = cluster.given_back
    cluster.live(HOUR)
    assert cluster.given_back == before


def test_at_another_size_it_is_asked_for_at_once() -> None:
    cluster = Cluster((1, 2, 4, 8), free=7)
    cluster.live(5)
    cluster.fail(1, lost=2)
    cluster.live(60)
    assert cluster.queue == {1}, "the first is given back, and of no use without the second"
    cluster.fail(2, lost=4)
    cluster.live(2)
    assert cluster.size == 2


@given(
    st.sets(st.integers(2, 20), min_size=1, max_size=5),
    st.lists(st.tuples(st.integers(0, 25), st.integers(1, 200)), max_size=8),
)
def test_where_there_is_room_for_all_the_run_gets_all(
    sizes: set[int], histories: list[tuple[int, int]]
) -> None:
    """Whatever was free before: nothing is held back for longer than the longest wait."""
    cluster = Cluster((1, *sorted(sizes)), free=0)
    for free, seconds in histories:
        cluster.free = max(0, free - sum(cluster.nodes[each] for each in cluster.serving.values()))
        cluster.live(seconds)
    cluster.free = max(sizes) - 1 - sum(cluster.nodes[each] for each in cluster.serving.values())
    cluster.live(int(LONGEST_WAIT + 2 * IDLE_SECONDS))
    assert cluster.size == max(sizes)


@pytest.mark.parametrize("sizes", [(2, 4, 8, 16, 17), (1, 3, 6, 12, 13)])
def test_a_small_step_that_waits_for_those_that_were_given_back_does_not_hold_them_back(
    sizes: tuple[int, ...],
) -> None:
    """Each waited for the other, and free nodes stayed free for ever."""
    cluster = Cluster(sizes, free=sizes[-1] - sizes[0])
    cluster.live(5)
    assert cluster.size == sizes[-1]
    cluster.fail(3, 1)
    cluster.fail(1, 2)
    cluster.live(200)
    cluster.free += 3
    cluster.live(4000)
    assert cluster.size == sizes[-1]

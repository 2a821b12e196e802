"""A replica that cannot link with the others keeps nobody else out, and is asked for later and later."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from test_membership import sent, started
from test_replicas import Scene, scene, script

from hpctools.elastic import selection
from hpctools.elastic.coordinator import Coordinator
from hpctools.elastic.effects import NotLinked
from hpctools.elastic.folder import RunFolder
from hpctools.elastic.forming import Member
from hpctools.elastic.membership import LINK_ATTEMPTS, Membership
from hpctools.elastic.peers import Agent
from hpctools.elastic.spec import RunSpec
from hpctools.testing.slurm import FakeSlurm

__all__ = ["scene", "script"]
SPEC = RunSpec("t-1", "t", "nlp1", "", 1, 3, 1, ("true",), "/", (), "/r.sh", "now")
GOOD, BAD = "r1.0.0", "r2.0.0"


def tried(membership: Membership, now: float) -> tuple[int, set[str]]:
    """The generation that is formed next, and its members."""
    membership.consider(now)
    formed = [(to, message) for to, message in sent(membership) if message["kind"] == "form"]
    return membership.last_number, {to for to, _ in formed}


def in_force(membership: Membership, generation: int, members: Sequence[str], now: float) -> None:
    for member in members:
        membership.linked(member, generation, now)
    membership.switching("a", generation)
    for member in members:
        membership.switched(member, generation, 5, now)


@pytest.mark.parametrize("bad_first", [True, False])
def test_a_node_that_cannot_be_linked_keeps_no_other_one_out(bad_first: bool) -> None:
    """All that would join were let go after three failures, whoever was at fault."""
    membership = started(sizes=(2, 3, 4, 5))
    for place, worker in enumerate((BAD, GOOD) if bad_first else (GOOD, BAD)):
        membership.ready(worker, (1, place), now=0)
    let_go: list[NotLinked] = []
    for attempt in range(1, 8):
        generation, members = tried(membership, attempt * 100)
        if BAD in members:
            membership.link_failed("a", generation, attempt * 100)
            let_go += [each for each in membership.effects if isinstance(each, NotLinked)]
            sent(membership)
        elif members:
            assert members == {"a", "b", GOOD}
            in_force(membership, generation, ("a", "b", GOOD), attempt * 100)
    assert set(membership.members) == {"a", "b", GOOD}
    assert let_go == [NotLinked((BAD,))]


def test_who_is_let_go_since_it_cannot_link_is_told() -> None:
    membership = started()
    membership.ready("r.0.0", (1, 7), now=0)
    told = []
    for attempt in range(1, LINK_ATTEMPTS + 1):
        membership.consider(attempt * 100)
        membership.link_failed("a", membership.last_number, attempt * 100)
        told.append([each for each in membership.effects if isinstance(each, NotLinked)])
    assert told == [[], [], [NotLinked(("r.0.0",))]]


@pytest.mark.parametrize(
    ("sizes", "failures", "joining"),
    [
        ((1, 2, 3, 4, 5), 0, {"r1.0.0", "r1.1.0", "r2.0.0", "r2.1.0"}),
        ((1, 2, 3, 4, 5), 1, {"r1.0.0", "r1.1.0"}),
        ((1, 2, 3, 4, 5), 2, {"r2.0.0", "r2.1.0"}),
        ((1, 2, 3, 4, 5), 3, {"r1.0.0", "r1.1.0"}),
        ((1, 5), 1, {"r1.0.0", "r1.1.0", "r2.0.0", "r2.1.0"}),
    ],
)
def test_after_a_failure_each_node_has_its_turn_where_a_size_allows_it(
    sizes: tuple[int, ...], failures: int, joining: set[str]
) -> None:
    workers = ("r1.0.0", "r1.1.0", "r2.0.0", "r2.1.0")
    ready = {"a.0.0": Member((0, 0))} | {name: Member((1, place)) for place, name in enumerate(workers)}
    assert set(selection.grown(ready, ["a.0.0"], sizes, 5, failures)) == {"a.0.0", *joining}


def test_a_job_that_came_to_nothing_is_asked_for_later_and_later(scene: Scene) -> None:
    """Its agent had reported, so the next one was asked for at once, for ever."""

    (slot, *_), waits = scene.replicas._slots, []
    for useful in (False, False, False, True, False):
        slot.job_id, slot.not_before = 7, 0.0
        scene.replicas.serves(7, "a")
        if not useful:
            scene.replicas.came_to_nothing(7)
        slot.free(now=0.0)
        waits.append(slot.not_before)
    assert waits == [1.0, 2.0, 4.0, 0.0, 1.0]


def test_the_coordinator_has_the_jobs_of_those_let_go_asked_for_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def coordinate() -> None:
        coordinator = Coordinator(RunFolder.create(tmp_path / "run", SPEC), FakeSlurm(), 1)
        run, told = coordinator._run, list[int]()
        monkeypatch.setattr(run.replicas, "came_to_nothing", told.append)
        for name, job in (("b0", 1), ("r1", 11), ("r2", 12)):
            writer: Any = SimpleNamespace()
            run.roster.agents[name] = Agent(writer, name, (0,), name, job, name == "b0", 0.0)
        run.membership.effects.append(NotLinked(("r2.0.0", "gone.0.0")))
        coordinator._carry_out()
        assert told == [12]

    asyncio.run(coordinate())

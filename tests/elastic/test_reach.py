"""Nodes that do not reach each other depose each other's coordinators; that comes to an end, and is said."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hpctools.elastic import reach, succession
from hpctools.elastic.agent_line import AgentLine, RunOverError
from hpctools.elastic.coordinator import Coordinator
from hpctools.elastic.folder import CoordinatorAddress, RunFolder
from hpctools.elastic.reach import LONG_SECONDS, MOST_IN_VAIN, Part, Reach, is_cut_off, verdict
from hpctools.elastic.spec import RunSpec
from hpctools.elastic.succession import Succession
from hpctools.errors import ElasticError
from hpctools.testing.slurm import FakeSlurm

SPEC = RunSpec("t-1", "t", "nlp1", "", 2, 2, 1, ("true",), "/", (), "/r.sh", "now")
LIMIT = 60.0
NEEDED = Part("b1", is_needed=True)


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    return RunFolder.create(tmp_path / "run", SPEC)


@pytest.mark.parametrize(
    ("in_vain", "seconds", "cut_off"),
    [
        (0, 1e9, False),
        (1, 1e9, False),
        (2, LONG_SECONDS - 1, False),
        (2, LONG_SECONDS, True),
        (3, 0.0, False),
        (4, 0.0, True),
    ],
)
def test_it_is_taken_for_more_than_chance(in_vain: int, seconds: float, cut_off: bool) -> None:
    assert is_cut_off(in_vain, seconds) == cut_off


@pytest.mark.parametrize(
    ("part", "trains", "has_formed", "what"),
    [
        (NEEDED, False, False, "ends the run"),
        (NEEDED, False, True, "leaves"),
        (NEEDED, True, False, "goes on"),
        (NEEDED, True, True, "goes on"),
        (Part("r7"), False, False, "leaves"),
        (Part("r7"), False, True, "leaves"),
        (Part("b0", is_enough=True), False, False, "goes on"),
        (Part("b0", is_enough=True), False, True, "goes on"),
    ],
)
def test_who_is_cut_off_ends_the_run_only_where_it_could_not_begin(
    part: Part, trains: bool, has_formed: bool, what: str
) -> None:
    assert verdict(part, trains, lambda: has_formed) == what


class Node:
    """An agent whose coordinators live until a later term is claimed, and publish at once."""

    def __init__(self, folder: RunFolder, part: Part, *, heir: int = 0, **more: Any) -> None:
        self.folder, self.part = folder, part
        self.reach = Reach(part, **more)
        self.line = Succession(folder, part.name, self._appoint, is_first=False, reach=self.reach)
        self.line.heir = heir
        self.visited, self.publishes = False, True
        self.terms: list[int] = []
        self.at: list[float] = []
        self._now = 0.0
        self.failed: list[str] = []

    def _appoint(self, term: int) -> Coordinator:
        self.terms.append(term)
        self.at.append(self._now)
        address = CoordinatorAddress(self.part.name, term, "secret", 1, 1, term)
        if self.publishes:
            self.folder.write_coordinator(address)
        beside: Any = SimpleNamespace(had_visitors=self.visited, fail=self.failed.append, run=self._run)
        return beside  # type: ignore[no-any-return]

    async def _run(self) -> int | None:
        return None

    def look(self, now: float) -> None:
        """As its line does; its coordinator is in office as long as its term is the last one."""
        self._now = now
        in_office = bool(self.terms) and self.terms[-1] == self.folder.current_term()
        self.line.work = SimpleNamespace(done=lambda: not in_office)  # type: ignore[assignment]
        if term := self.line.unreached(now, published=self.folder.findable_term()):
            self.line.take_office(term)


def play(*nodes: Node, seconds: float = 300.0, step: float = 0.5) -> float:
    """Have the nodes look for each other in vain; returns when the run was failed, or all of the seconds."""

    async def act() -> float:
        now = 0.0
        while now < seconds:
            for each in nodes:
                each.look(now)
                if each.failed:
                    return now
            now += step
        return now

    return asyncio.run(act())


def test_two_nodes_that_do_not_reach_each_other_fail_the_run_soon(folder: RunFolder) -> None:
    folder.claim_term(1, agent="b0")
    one, two = Node(folder, Part("b0", is_needed=True)), Node(folder, NEEDED, heir=8)
    took = play(one, two)
    assert 20 < took < 60
    assert folder.current_term() < 12
    (said,) = [*one.failed, *two.failed]
    assert said.startswith("the nodes of this run do not reach each other: in 4 terms nobody but b")
    assert ", last at b" in said
    assert "gets no answer at b" in said
    assert "let TCP through between compute nodes" in said


def test_of_many_that_do_not_reach_each_other_one_fails_it_as_soon(folder: RunFolder) -> None:
    folder.claim_term(1, agent="b0")
    nodes = [Node(folder, Part(f"b{n}", is_needed=True), heir=8) for n in range(24)]
    assert play(*nodes) < 90


def test_coordinators_that_die_one_after_the_other_are_none_of_this(folder: RunFolder) -> None:
    """Each node claims once or twice and is gone, or started anew; none was superseded while it lived."""
    folder.claim_term(1, agent="b0")

    async def act() -> None:
        for number in range(50):
            node = Node(folder, Part(f"b{number % 5}", is_needed=True))
            for now in (0.0, 5.0, 10.0):
                node.look(now)
            assert node.terms
            assert not node.reach.is_cut_off(1e9)

    asyncio.run(act())


@pytest.mark.parametrize("how", ["visited", "came to another one", "unpublished"])
def test_who_has_met_another_one_or_could_not_be_found_counts_nothing(how: str, folder: RunFolder) -> None:
    """Also where it is deposed again and again, as by a storage that hangs."""
    folder.claim_term(1, agent="b0")
    one, two = Node(folder, Part("b0", is_needed=True)), Node(folder, NEEDED)
    for node in (one, two):
        node.visited, node.publishes = how == "visited", how != "unpublished"
        if how == "came to another one":
            node.line.reached(CoordinatorAddress("n9", 9, "secret", 1, 1, 1))
    assert play(one, two) == 300.0
    assert one.reach.wait == two.reach.wait == 0.0


def test_a_node_that_the_run_does_without_leaves_and_says_why(folder: RunFolder) -> None:
    folder.claim_term(1, agent="b0")
    enough, replica = Node(folder, Part("b0", is_enough=True)), Node(folder, Part("r7"))
    with pytest.raises(ElasticError, match="nobody but r7 itself came to its coordinator") as caught:
        play(enough, replica)
    assert "docs/elastic-site.md" in caught.value.remedy
    assert not enough.failed


@pytest.mark.parametrize("part", [Part("b0", is_enough=True), Part("b0", is_needed=True)])
def test_who_trains_stays_and_is_out_of_office_for_a_moment_only(folder: RunFolder, part: Part) -> None:
    """In five seconds another coordinator would take the state of the training for lost."""
    folder.claim_term(1, agent="b0")
    trains, other = Node(folder, part, trains=lambda: True), Node(folder, Part("r7"))
    with pytest.raises(ElasticError, match="nobody but r7 itself came to its coordinator"):
        play(trains, other, step=0.1)
    assert len(other.terms) == MOST_IN_VAIN
    assert trains.terms[-MOST_IN_VAIN:] == [term + 1 for term in other.terms]
    back = [theirs - others for theirs, others in zip(trains.at[-MOST_IN_VAIN:], other.at, strict=True)]
    assert max(back) <= 1.0


class Walled(AgentLine):
    """An agent's line behind a firewall: nobody but its own coordinator can be reached."""

    async def _reached(self, address: CoordinatorAddress) -> Any:
        return await super()._reached(address) if address.pid == int(self._hello()["pid"]) else None


def hello_of(number: int) -> dict[str, Any]:
    return {"agent": f"b{number}", "baseline": True, "place": number, "node": f"n{number}", "job_id": 1}


def test_agents_behind_a_firewall_end_the_run(folder: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    """Real coordinators and connections; only what would go to the other node does not get there."""
    monkeypatch.setattr(reach, "FIRST_WAIT", 0.05)
    monkeypatch.setattr(succession, "STRANGER", 1)

    class Known(RunFolder):
        def __init__(self, path: Path, number: int) -> None:
            super().__init__(path)
            self.number = number

        def write_coordinator(self, address: CoordinatorAddress) -> None:
            super().write_coordinator(
                CoordinatorAddress(address.host, address.port, address.token, self.number, 1, address.term)
            )

    def agent(number: int) -> AgentLine:
        own = Known(folder.path, number)
        heirs = Succession(
            *(own, f"b{number}", lambda term: Coordinator(own, FakeSlurm(), 1, term)),
            is_first=number == 0,
            reach=Reach(Part(f"b{number}", is_needed=True)),
        )
        hello = {**hello_of(number), "pid": number}
        return Walled(own, "t-1", heirs, lambda: hello, lambda message: None)

    async def act() -> Sequence[Any]:
        return await asyncio.wait_for(
            asyncio.gather(*(agent(number).keep() for number in (0, 1)), return_exceptions=True), LIMIT
        )

    ends = asyncio.run(act())
    assert [type(each) for each in ends] == [RunOverError, RunOverError]
    status = folder.status()
    assert status is not None
    assert status.state == "failed"
    assert status.message.startswith("the nodes of this run do not reach each other: in 4 terms nobody but b")

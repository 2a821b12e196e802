"""Terms: one coordinator each, whoever claims at once; who is not in office any more does nothing."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from hpctools.elastic import baseline, coordinator
from hpctools.elastic.coordinator import Coordinator
from hpctools.elastic.fence import FRESH_SECONDS, Fence, FencedClient
from hpctools.elastic.folder import CoordinatorAddress, Ending, RunFolder
from hpctools.elastic.journal import FolderJournal
from hpctools.elastic.spec import RunSpec
from hpctools.elastic.succession import (
    CLAIMED_SECONDS,
    HEIR_SECONDS,
    LEAVING,
    VACANT_SECONDS,
    Succession,
)
from hpctools.errors import ElasticError
from hpctools.slurm.types import Job
from hpctools.testing.slurm import FakeSlurm

SPEC = RunSpec("t-1", "t", "nlp1", "", 1, 2, 1, ("true",), "/", (), "/r.sh", "now")


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    return RunFolder.create(tmp_path / "run", SPEC)


def test_a_term_has_one_claimant_and_leaves_nothing_else_behind(folder: RunFolder) -> None:
    with ThreadPoolExecutor(8) as pool:
        won = list(pool.map(lambda name: folder.claim_term(1, agent=name), "abcdefgh"))
    assert won.count(True) == 1
    assert [each.name for each in (folder.path / "terms").iterdir()] == ["1"]
    assert folder.current_term() == 1
    assert folder.claim_term(12, agent="b0")
    assert folder.current_term() == 12


def test_a_folder_of_before_has_no_term_and_can_have_one(folder: RunFolder) -> None:
    (folder.path / "terms").rmdir()
    assert folder.current_term() == 0
    assert folder.claim_term(1, agent="b0")


def test_the_first_wish_to_end_counts(folder: RunFolder) -> None:
    assert folder.ending() is None
    folder.ask_to_end(Ending("cancelled", "by nlp1"))
    folder.ask_to_end(Ending("failed", "too late"))
    assert folder.ending() == Ending("cancelled", "by nlp1")


def test_who_slept_asks_again_before_anything_is_written_or_submitted(
    folder: RunFolder, tmp_path: Path
) -> None:
    folder.claim_term(1, agent="b0")
    now = [0.0]
    fence = Fence(folder, 1, clock=lambda: now[0])
    journal, slurm = FolderJournal(folder, SPEC, fence), FakeSlurm()
    journal.event("started")
    script = tmp_path / "replica.sh"
    script.touch()
    assert FencedClient(slurm, fence).submit([], script)
    folder.claim_term(2, agent="r7")
    now[0] += FRESH_SECONDS
    journal.event("warning", message="I am back")
    journal.job("replica", 9)
    journal.change(state="failed")
    journal.flush(0.0, at_once=True)
    for act in (
        lambda: FencedClient(slurm, fence).submit([], script),
        lambda: FencedClient(slurm, fence).cancel([1]),
    ):
        with pytest.raises(ElasticError, match="another coordinator has taken this run over"):
            act()
    assert [event.event for event in folder.events()] == ["started"]
    assert (folder.jobs(), folder.status(), len(slurm.submitted)) == ([], None, 1)


def test_a_folder_that_cannot_be_read_names_nobody_else(folder: RunFolder) -> None:
    """But Slurm, which can be reached without it, may have heard of another one: it is told nothing then."""
    folder.claim_term(1, agent="b0")
    now = [0.0]
    fence, slurm = Fence(folder, 1, clock=lambda: now[0]), FakeSlurm()
    terms = folder.path / "terms"
    terms.rename(folder.path / "away")
    terms.touch()
    assert fence.holds()
    client = FencedClient(slurm, fence)
    for act in (
        lambda: client.submit([], Path("/b.sh")),
        lambda: client.cancel([1]),
        lambda: client.shorten(1, 5),
        lambda: client.exclude(1, ["n1"]),
    ):
        with pytest.raises(ElasticError, match="cannot be read, and another coordinator may be in office"):
            act()
    assert (slurm.submitted, slurm.cancelled) == ([], [])
    terms.unlink()
    (folder.path / "away").rename(terms)
    now[0] += FRESH_SECONDS
    client.cancel([])


def test_an_empty_folder_in_the_place_of_what_was_mounted_is_no_proof_of_being_in_office(
    folder: RunFolder,
) -> None:
    folder.claim_term(3, agent="b0")
    now = [0.0]
    fence, slurm = Fence(folder, 3, clock=lambda: now[0]), FakeSlurm()
    away = folder.path.with_name("mounted")
    for empty in (False, True):
        folder.path.rename(away)
        if empty:
            folder.path.mkdir()
        now[0] += FRESH_SECONDS
        assert fence.holds()
        assert not fence.holds(unseen=False)
        assert not fence.lost
        with pytest.raises(ElasticError, match="cannot be read, and another coordinator may be in office"):
            FencedClient(slurm, fence).cancel([1])
        if empty:
            folder.path.rmdir()
        away.rename(folder.path)
        assert fence.holds(unseen=False)
    folder.claim_term(4, agent="r7")
    now[0] += FRESH_SECONDS
    assert not fence.holds()
    assert fence.lost
    assert slurm.cancelled == []


class Waits:
    """An agent that finds nobody, on a clock of its own; says when it claims."""

    def __init__(self, folder: RunFolder, *, is_first: bool = False, heir: int | None = None) -> None:
        self.terms: list[int] = []
        self.succession = Succession(folder, "r7", self._appoint, is_first=is_first)  # type: ignore[arg-type]
        if heir is not None:
            self.succession.heir = heir

    def _appoint(self, term: int) -> None:
        self.terms.append(term)
        raise InterruptedError  # before a coordinator is started

    def look(self, now: float, published: int | None) -> None:
        try:
            if term := self.succession.unreached(now, published=published):
                self.succession.take_office(term)
        except InterruptedError:
            return


def test_the_first_term_belongs_to_the_baselines_first_node(folder: RunFolder) -> None:
    other, first = Waits(folder, heir=0), Waits(folder, is_first=True)
    other.look(100.0, None)
    assert folder.current_term() == 0
    first.look(100.0, None)
    assert first.terms == [1]


def test_heirs_wait_for_their_turn_and_claim_once(folder: RunFolder) -> None:
    folder.claim_term(1, agent="b0")
    first, second = Waits(folder, heir=0), Waits(folder, heir=1)
    for agent in (first, second):
        agent.look(0.0, 1)
        agent.look(VACANT_SECONDS, 1)
    assert (first.terms, second.terms) == ([2], [])
    second.look(VACANT_SECONDS + HEIR_SECONDS, 1)
    assert second.terms == [], "another term has begun, and its coordinator has a while to come"
    second.look(VACANT_SECONDS + HEIR_SECONDS + CLAIMED_SECONDS + HEIR_SECONDS, 1)
    assert second.terms == [3]


def test_while_no_term_can_be_found_further_ones_are_claimed_later_and_later(folder: RunFolder) -> None:
    """No address can be written: each term leaves a file behind, and its coordinator reads all events."""
    folder.claim_term(1, agent="b0")
    agent, when = Waits(folder, heir=0), []
    for tick in range(3600):
        agent.look(float(tick), 1)
        when += [tick] * (len(agent.terms) - len(when))
    waits = [later - sooner for sooner, later in pairwise(when)]
    assert waits[:5] == [3, 5, 9, 17, 31], "twice as long each time; a second of it is our clock's"
    assert set(waits[4:]) == {31}
    folder.claim_term(agent.terms[-1] + 1, agent="r8")
    agent.look(3600.0, agent.terms[-1] + 1)
    agent.look(3600.0 + CLAIMED_SECONDS, agent.terms[-1] + 1)
    assert agent.terms[-1] == folder.current_term(), "of one that was found the next one is soon claimed"


def test_who_was_answered_begins_to_wait_anew_and_who_goes_does_not_take_over(folder: RunFolder) -> None:
    folder.claim_term(1, agent="b0")
    agent = Waits(folder, heir=0)
    agent.look(0.0, 1)
    agent.succession.reached(CoordinatorAddress("n1", 1, "t", 1, 1))
    agent.look(50.0, 1)
    assert agent.terms == []
    agent.succession.resign()
    agent.look(99.0, 1)
    assert agent.terms == []


def test_nobody_claims_a_term_in_an_empty_folder_in_the_place_of_the_run_s(folder: RunFolder) -> None:
    """Its mount is gone; to the baseline's first node the run looks as if it had never begun."""
    folder.claim_term(1, agent="b0")
    agent = Waits(folder, is_first=True, heir=0)
    agent.look(0.0, 1)
    folder.path.rename(folder.path.with_name("mounted"))
    folder.path.mkdir()
    agent.look(50.0, None)
    agent.look(99.0, None)
    assert (agent.terms, list(folder.path.iterdir())) == ([], [])
    folder.path.rmdir()
    folder.path.with_name("mounted").rename(folder.path)
    agent.look(100.0, 1)
    assert agent.terms == [2]


def test_who_has_to_go_after_it_has_claimed_a_term_does_not_take_office(folder: RunFolder) -> None:
    agent = Waits(folder, is_first=True)
    term = agent.succession.unreached(0.0, published=None)
    agent.succession.resign()
    agent.succession.take_office(term)
    assert (term, agent.terms) == (1, [])


def test_who_is_about_to_go_takes_over_when_nobody_else_does(folder: RunFolder) -> None:
    """It may be the last one that has the state, and that can submit another baseline job."""
    folder.claim_term(1, agent="b0")
    agent = Waits(folder, heir=0)
    agent.succession.leave()
    agent.succession.named(0)  # told by a coordinator that had not heard of it yet
    agent.look(0.0, 1)
    agent.look(VACANT_SECONDS + (LEAVING - 0.1) * HEIR_SECONDS, 1)
    assert agent.terms == []
    agent.look(VACANT_SECONDS + LEAVING * HEIR_SECONDS, 1)
    assert agent.terms == [2]


class SlowToPublish(RunFolder):
    """Seen by a coordinator that is stopped just before it publishes where it listens."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.arrived, self.goes_on = threading.Event(), threading.Event()

    def write_coordinator(self, address: CoordinatorAddress) -> None:
        self.arrived.set()
        assert self.goes_on.wait(20)
        super().write_coordinator(address)


async def until(condition: Callable[[], object]) -> None:
    async def look() -> None:
        while not condition():
            await asyncio.sleep(0.01)

    await asyncio.wait_for(look(), 20)


def test_a_coordinator_that_wakes_before_it_publishes_hides_nobody(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "run", replace(SPEC, max_nodes=1))

    async def act() -> None:
        slow = SlowToPublish(folder.path)
        folder.claim_term(1, agent="b0")
        old = asyncio.ensure_future(Coordinator(slow, FakeSlurm(), 1, 1).run())
        await until(slow.arrived.is_set)
        folder.claim_term(2, agent="r7")
        new = Coordinator(folder, FakeSlurm(), 7, 2)
        running = asyncio.ensure_future(new.run())
        await until(folder.coordinator)
        published = folder.coordinator()
        slow.goes_on.set()
        assert await asyncio.wait_for(old, 20) is None
        assert published is not None
        assert published.term == 2
        assert folder.coordinator() == published
        new.cancel("enough")
        assert await asyncio.wait_for(running, 20) == 143
        assert folder.coordinator() is None

    asyncio.run(act())


def test_a_baseline_job_that_was_submitted_as_the_term_ended_is_taken_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who submitted it may not write it down any more; two of them would keep nodes for nothing."""
    monkeypatch.setattr(baseline, "RETURN_SECONDS", 0.05)
    script = tmp_path / "baseline.sh"
    script.touch()
    options = ("--comment=hp-run:t-1", "--qos=normal")
    spec = replace(SPEC, max_nodes=1, baseline_script=str(script), baseline_options=options)
    folder = RunFolder.create(tmp_path / "run", spec)
    folder.append_job("baseline", 50)
    slurm = FakeSlurm()
    slurm.queue[50] = Job(50, "t", "nlp1", "nlp", "gpu", "normal", "NODE_FAIL", comment="hp-run:t-1")

    def another_takes_over(job: Job) -> None:
        folder.claim_term(2, agent="r7")
        time.sleep(2 * FRESH_SECONDS)  # sbatch has not returned yet

    slurm.on_submit = another_takes_over

    async def act() -> None:
        folder.claim_term(1, agent="b0")
        old = Coordinator(folder, slurm, 50, 1)
        assert await asyncio.wait_for(old.run(), 20) is None
        assert [(job.role, job.job_id) for job in folder.jobs()] == [("baseline", 50)]
        new = Coordinator(folder, slurm, 7, 2)
        running = asyncio.ensure_future(new.run())
        await until(lambda: len(folder.jobs()) == 2)
        new.cancel("enough")
        assert await asyncio.wait_for(running, 20) == 143

    asyncio.run(act())
    (submitted,) = slurm.submitted
    assert folder.jobs()[1].job_id == submitted.job_id
    assert slurm.cancelled == [submitted.job_id], "it is ours, and ends with the run"


def test_a_coordinator_ends_though_a_cancellation_hangs_with_storage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether it is in office is asked there before each; its node would be kept until Slurm ends the job."""
    monkeypatch.setattr(baseline, "RETURN_SECONDS", 0.05)
    monkeypatch.setattr(coordinator, "CANCEL_SECONDS", 0.2)
    script = tmp_path / "baseline.sh"
    script.touch()
    folder = RunFolder.create(tmp_path / "run", replace(SPEC, max_nodes=1, baseline_script=str(script)))
    folder.append_job("baseline", 50)
    over, asked = threading.Event(), threading.Event()

    class Hanging(FakeSlurm):
        def cancel(self, job_ids: Sequence[int]) -> None:
            asked.set()
            over.wait(60)

    async def act() -> int | None:
        folder.claim_term(1, agent="b0")
        coordinating = Coordinator(folder, slurm, 50, 1)
        running = asyncio.ensure_future(coordinating.run())
        await until(lambda: len(folder.jobs()) == 2)
        coordinating.cancel("enough")
        try:
            return await asyncio.wait_for(running, 20)
        finally:
            over.set()

    slurm = Hanging()
    slurm.queue[50] = Job(50, "t", "nlp1", "nlp", "gpu", "normal", "NODE_FAIL")
    assert asyncio.run(act()) == 143
    assert asked.is_set()

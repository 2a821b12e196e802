"""Terms: one coordinator each, whoever claims at once; who is not in office any more does nothing."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from hpctools.elastic.fence import FRESH_SECONDS, Fence, FencedClient
from hpctools.elastic.folder import Ending, RunFolder
from hpctools.elastic.journal import FolderJournal
from hpctools.elastic.spec import RunSpec
from hpctools.elastic.succession import CLAIMED_SECONDS, HEIR_SECONDS, VACANT_SECONDS, Succession
from hpctools.errors import ElasticError
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
    fence = Fence(folder, 1)
    terms = folder.path / "terms"
    terms.rmdir()
    terms.touch()
    assert fence.holds()


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
            self.succession.unreached(now, published=published)
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


def test_who_was_answered_begins_to_wait_anew_and_who_goes_does_not_take_over(folder: RunFolder) -> None:
    folder.claim_term(1, agent="b0")
    agent = Waits(folder, heir=0)
    agent.look(0.0, 1)
    agent.succession.reached()
    agent.look(50.0, 1)
    assert agent.terms == []
    agent.succession.resign()
    agent.look(99.0, 1)
    assert agent.terms == []

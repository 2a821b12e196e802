"""Jobs that begin while a change is prepared and agreed to: nobody has agreed to disturb them."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from hpctools.conf.apply.request import Prospect
from hpctools.conf.plan.model import DisturbedJob, Plan
from hpctools.errors import ApplyError
from tests.conf.apply.stand_in import StandIn, bundle, texts

RUNS = DisturbedJob(7, "eva", "lab", "RUNNING", "n1", "the partition goes")
LEFT = replace(RUNS, id=8, state="PENDING", nodes="")
HELD = replace(LEFT, state="SPECIAL_EXIT")  # a flag before PENDING
WAITS = replace(RUNS, id=9, waits=True)


def changed(cluster: StandIn, shown: tuple[DisturbedJob, ...], later: tuple[DisturbedJob, ...]) -> None:
    """An apply during whose question the jobs that it disturbs become others."""
    cluster.disturbed = shown

    def meanwhile(prospect: Prospect) -> None:
        assert prospect.plan.jobs == shown
        cluster.disturbed = later

    cluster.apply(bundle("new"), agree=meanwhile)


@pytest.mark.parametrize("shown", [(), (LEFT,), (replace(RUNS, state="PENDING", nodes=""),)])
def test_a_job_that_began_during_the_question_is_not_disturbed(
    shown: tuple[DisturbedJob, ...], cluster: StandIn
) -> None:
    """It was ended: only nodes were looked at again, and not a partition that goes."""
    with pytest.raises(ApplyError, match="nothing has changed:\n  job 7 of eva: the partition goes") as said:
        changed(cluster, shown, (*shown, RUNS))
    assert said.value.remedy == "run the same again: it plans anew"
    assert cluster.files == cluster.loaded == texts(bundle("old"))
    assert cluster.history.last() is None


@pytest.mark.parametrize(
    ("shown", "later"), [((RUNS,), (RUNS,)), ((RUNS, LEFT), ()), ((), (LEFT,)), ((), (HELD,)), ((), (WAITS,))]
)
def test_what_was_agreed_to_and_what_does_not_run_does_not_matter(
    shown: tuple[DisturbedJob, ...], later: tuple[DisturbedJob, ...], cluster: StandIn
) -> None:
    changed(cluster, shown, later)
    assert cluster.files == cluster.loaded == texts(bundle("new"))


def test_a_queue_that_cannot_be_read_again_is_not_taken_for_empty(
    cluster: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = cluster.plan

    def unread(*words: Any, **named: Any) -> Plan:
        return replace(plan(*words, **named), unknown=("jobs are not compared: squeue does not answer",))

    with pytest.raises(
        ApplyError, match="could not be looked at again; nothing has changed:\n  jobs are not"
    ):
        cluster.apply(bundle("new"), agree=lambda prospect: monkeypatch.setattr(cluster, "plan", unread))
    assert cluster.files == cluster.loaded == texts(bundle("old"))


def test_who_came_during_the_question_is_not_removed(cluster: StandIn) -> None:
    """With --prune whoever the site does not name goes, as far as somebody has agreed to it."""

    def meanwhile(prospect: Prospect) -> None:
        (cluster.root / "people").write_text(json.dumps([*sorted(cluster.people), "guest"]))

    with pytest.raises(
        ApplyError, match="it would remove them; nothing has changed:\n  association guest lab"
    ):
        cluster.apply(bundle("new"), agree=meanwhile, prune=True)
    assert "guest" in cluster.people
    assert cluster.files == cluster.loaded == texts(bundle("old"))


def test_a_controller_that_is_down_is_not_asked_again(cluster: StandIn) -> None:
    (cluster.root / "up").unlink()
    changed(cluster, (), (RUNS,))
    assert cluster.files == cluster.loaded == texts(bundle("new"))

"""Notices and drains: each node departs once, and Slurm is asked rarely and elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from hpctools.elastic.actions import Depart, Prepare
from hpctools.elastic.recovery.departures import Drains, Notices
from hpctools.elastic.watchers import MemberView, Report, View
from hpctools.errors import UnreachableError
from hpctools.slurm.types import Node

OURS = View(
    5,
    3,
    1,
    "running",
    (
        MemberView("b0.0.0", "n1", 5, 0.0, True),
        MemberView("r7.0.0", "n2", 5, 0.0, True),
        MemberView("r8.0.0", "n3", 5, 0.0, True),
    ),
)


class Slurm:
    def __init__(self) -> None:
        self.drained: dict[str, str] = {}
        self.asked = 0
        self.down = False

    def nodes(self) -> list[Node]:
        self.asked += 1
        if self.down:
            raise UnreachableError("slurmctld does not answer")
        return [
            Node(
                f"n{n}", "MIXED", ("DRAIN",) if f"n{n}" in self.drained else (), self.drained.get(f"n{n}", "")
            )
            for n in range(1, 5)
        ]


def warned(message: str) -> None:
    raise AssertionError(message)


def at_once(work: Callable[[], None]) -> None:
    work()


SPOT, REBALANCE = (
    "the cloud takes its spot instance back",
    "the cloud expects to take its spot instance back",
)


def test_a_notice_makes_its_node_depart_once() -> None:
    notices = Notices(1)
    spot = Report("notice", "", "n2", what="spot", seconds=118.0)
    assert notices.heard(0.0, spot) == []
    assert notices.tick(0.0, OURS) == [Depart("n2", 118.0, SPOT)]
    notices.heard(5.0, spot)
    notices.heard(5.0, Report("beat", "w", "n1", step=1))
    assert notices.tick(5.0, OURS) == []
    notices.heard(6.0, Report("notice", "", "n1", what="rebalance"))
    assert notices.tick(6.0, OURS) == [Depart("n1", None, REBALANCE)]


def test_a_node_that_the_run_needs_stays_after_a_rebalance_notice_until_there_is_another() -> None:
    """Without it the run would only wait, for something that may never come."""
    notices = Notices(3)
    notices.heard(0.0, Report("notice", "", "n2", what="rebalance"))
    assert notices.tick(0.0, OURS) == [Prepare("n2", None, REBALANCE)]
    assert notices.tick(1000.0, OURS) == []
    starts = View(5, 3, 1, "running", (*OURS.members, MemberView("b9.0.0", "n4", None, 0.0, False)))
    assert notices.tick(1001.0, starts) == [], "it is not ready yet"
    ready = replace(starts, members=(*OURS.members, replace(starts.members[-1], ready=True)))
    assert notices.tick(1002.0, ready) == [Depart("n2", None, REBALANCE)]


def test_a_spot_instance_that_the_run_needs_stays_nearly_to_its_end() -> None:
    notices = Notices(3)
    notices.heard(0.0, Report("notice", "", "n2", what="rebalance"))
    assert notices.tick(0.0, OURS) == [Prepare("n2", None, REBALANCE)]
    notices.heard(10.0, Report("notice", "", "n2", what="spot"))
    notices.heard(11.0, Report("notice", "", "n2", what="rebalance"))
    assert notices.tick(104.0, OURS) == []
    assert notices.tick(106.0, OURS) == [Prepare("n2", 24.0, SPOT)], "what was trained since is saved, too"
    assert notices.tick(114.0, OURS) == []
    assert notices.tick(116.0, OURS) == [Depart("n2", 14.0, SPOT)]
    assert notices.tick(117.0, OURS) == []


def test_a_drained_node_of_the_run_departs_once_until_it_is_resumed() -> None:
    slurm = Slurm()
    drains = Drains(slurm, 1, warned, at_once)
    assert drains.tick(0.0, OURS) == []
    slurm.drained = {"n2": "fan", "n4": "not ours"}
    assert drains.tick(9.9, OURS) == [], "Slurm is asked every ten seconds"
    assert drains.tick(10.0, OURS) == [Depart("n2", None, "it is drained: fan")]
    assert drains.tick(20.0, OURS) == []
    slurm.drained = {}
    assert drains.tick(30.0, OURS) == []
    slurm.drained = {"n2": ""}
    assert drains.tick(40.0, OURS) == [Depart("n2", None, "it is drained")]
    assert slurm.asked == 5


def test_when_slurm_is_away_the_next_time_tells() -> None:
    slurm = Slurm()
    drains = Drains(slurm, 1, warned, at_once)
    slurm.drained, slurm.down = {"n1": "x"}, True
    assert drains.tick(0.0, OURS) == []
    slurm.down = False
    assert drains.tick(10.0, OURS) == [Depart("n1", None, "it is drained: x")]


def test_a_slow_slurm_is_not_asked_twice_and_nobody_waits_for_it() -> None:
    slurm, asked = Slurm(), []
    drains = Drains(slurm, 1, warned, asked.append)
    for second in range(100):
        assert drains.tick(float(second), OURS) == []
    assert len(asked) == 1
    slurm.drained = {"n1": ""}
    asked[0]()
    assert drains.tick(100.0, OURS) == [Depart("n1", None, "it is drained")]


def test_before_there_are_members_nobody_is_asked() -> None:
    slurm = Slurm()
    Drains(slurm, 1, warned, at_once).tick(0.0, View(0, 0, 0, "starting"))
    assert slurm.asked == 0


def test_a_drained_node_that_the_run_needs_is_kept_until_there_are_others() -> None:
    """Slurm lets jobs on drained nodes run to their end; below its minimum the run would only wait there."""
    slurm, said = Slurm(), list[str]()
    drains = Drains(slurm, 2, said.append, at_once)
    slurm.drained = {"n1": "fan", "n2": "fan"}
    assert drains.tick(0.0, OURS) == [
        Depart("n1", None, "it is drained: fan"),
        Prepare("n2", None, "it is drained: fan"),
    ]
    assert said == ["n2 is drained; the run keeps it, since it could not go on without it"]
    fewer = View(6, 2, 2, "running", OURS.members[1:])
    assert drains.tick(1.0, fewer) == []
    assert len(said) == 1, "once"
    more = View(7, 3, 3, "running", (*fewer.members, MemberView("r9.0.0", "n4", 7, 0.0, True)))
    assert drains.tick(2.0, more) == [Depart("n2", None, "it is drained: fan")]

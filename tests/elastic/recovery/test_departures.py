"""Notices and drains: who is to go departs, as often as it comes; Slurm is asked rarely and elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from hpctools.elastic.actions import Depart, Prepare
from hpctools.elastic.recovery.departures import Drains, Notices, pause_after
from hpctools.elastic.watchers import MemberView, Report, View
from hpctools.errors import UnreachableError
from hpctools.slurm.types import Node


def seen(*members: MemberView) -> View:
    """The run with these workers, and the agents that go with them."""
    nodes = frozenset(each.node for each in members)
    staying = frozenset(each.node for each in members if not each.leaves)
    return View(5, len(members), 1, "running", members, nodes, staying)


OURS = seen(
    MemberView("b0.0.0", "n1", 5, 0.0, True),
    MemberView("r7.0.0", "n2", 5, 0.0, True),
    MemberView("r8.0.0", "n3", 5, 0.0, True),
)


def as_they_go(view: View, *nodes: str) -> View:
    """The same, when the agents on some nodes have been told to go."""
    return seen(*(replace(each, leaves=each.leaves or each.node in nodes) for each in view.members))


def without(view: View, *nodes: str) -> View:
    """The same, when these nodes are gone."""
    return seen(*(each for each in view.members if each.node not in nodes))


def with_agents(view: View, *nodes: str) -> View:
    """The same, with agents on further nodes whose workers have not come yet."""
    return replace(view, nodes=view.nodes | set(nodes), staying=view.staying | set(nodes))


class Slurm:
    def __init__(self) -> None:
        self.drained: dict[str, str] = {}
        self.asked = 0
        self.named: set[str] = set()
        self.takes = 0.0
        self.now = 0.0
        self.down = False

    def clock(self) -> float:
        return self.now

    def nodes(self, names: Sequence[str] = ()) -> list[Node]:
        self.asked += 1
        self.named = set(names)
        self.now += self.takes
        if self.down:
            raise UnreachableError("slurmctld does not answer")
        return [
            Node(
                f"n{n}", "MIXED", ("DRAIN",) if f"n{n}" in self.drained else (), self.drained.get(f"n{n}", "")
            )
            for n in range(1, 5)
            if f"n{n}" in names
        ]


def warned(message: str) -> None:
    raise AssertionError(message)


def at_once(work: Callable[[], None]) -> None:
    work()


SPOT, REBALANCE = (
    "the cloud takes its spot instance back",
    "the cloud expects to take its spot instance back",
)


def test_a_notice_makes_its_node_depart_once_as_long_as_it_is_there() -> None:
    notices = Notices(1)
    spot = Report("notice", "", "n2", what="spot", seconds=118.0)
    assert notices.heard(0.0, spot) == []
    assert notices.tick(0.0, OURS) == [Depart("n2", 118.0, SPOT, 418.0)]
    leaves = as_they_go(OURS, "n2")
    notices.heard(5.0, spot)
    notices.heard(5.0, Report("beat", "w", "n1", step=1))
    assert notices.tick(5.0, leaves) == []
    notices.heard(6.0, Report("notice", "", "n1", what="rebalance"))
    assert notices.tick(6.0, leaves) == [Depart("n1", None, REBALANCE, 600.0)]


def test_a_node_that_comes_back_while_its_notice_stands_departs_again() -> None:
    """Its agent tells the notice as soon as it is there; its worker may not have started yet."""
    notices = Notices(1)
    notices.heard(0.0, Report("notice", "", "n2", what="spot", seconds=118.0))
    assert notices.tick(0.0, OURS) == [Depart("n2", 118.0, SPOT, 418.0)]
    assert notices.tick(4.0, without(OURS, "n2")) == []
    again = with_agents(without(OURS, "n2"), "n2")
    notices.heard(20.0, Report("notice", "", "n2", what="spot", seconds=98.0))
    assert notices.tick(20.0, again) == [Depart("n2", 98.0, SPOT, 398.0)]


def test_a_spot_interruption_after_a_rebalance_departure_is_heeded_with_its_time() -> None:
    notices = Notices(1)
    notices.heard(0.0, Report("notice", "", "n2", what="rebalance"))
    assert notices.tick(0.0, OURS) == [Depart("n2", None, REBALANCE, 600.0)]
    assert notices.tick(4.0, without(OURS, "n2")) == []
    assert notices.tick(700.0, OURS) == [], "who is there now has not told of a notice"
    notices.heard(701.0, Report("notice", "", "n2", what="spot", seconds=119.0))
    assert notices.tick(701.0, OURS) == [Depart("n2", 119.0, SPOT, 419.0)]


def test_another_instance_of_the_same_name_stays_until_it_has_a_notice_of_its_own() -> None:
    notices = Notices(1)
    notices.heard(0.0, Report("notice", "", "n2", what="spot", seconds=118.0))
    assert len(notices.tick(0.0, OURS)) == 1
    assert notices.tick(4.0, without(OURS, "n2")) == []
    assert notices.tick(900.0, OURS) == []
    notices.heard(2000.0, Report("notice", "", "n2", what="spot", seconds=120.0))
    assert notices.tick(2000.0, OURS) == [Depart("n2", 120.0, SPOT, 420.0)]


def test_nodes_that_have_left_and_come_back_count_and_those_that_go_do_not() -> None:
    notices = Notices(2)
    notices.heard(0.0, Report("notice", "", "n2", what="rebalance"))
    assert notices.tick(0.0, OURS) == [Depart("n2", None, REBALANCE, 600.0)]
    assert notices.tick(4.0, without(OURS, "n2")) == []
    notices.heard(700.0, Report("notice", "", "n3", what="rebalance"))
    assert notices.tick(700.0, as_they_go(OURS, "n2")) == [Prepare("n3", None, REBALANCE, 600.0)]
    assert notices.tick(701.0, OURS) == [Depart("n3", None, REBALANCE, 600.0)]


def test_one_that_names_no_time_has_that_of_its_first_notice() -> None:
    """Agents repeat what stands every half minute; the end does not move away with that."""
    notices = Notices(3)
    for second in (0.0, 30.0, 60.0, 90.0):
        notices.heard(second, Report("notice", "", "n2", what="spot"))
    notices.tick(90.0, OURS)
    assert notices.tick(106.0, OURS) == [Depart("n2", 14.0, SPOT, 314.0)]


def test_a_node_that_the_run_needs_stays_after_a_rebalance_notice_until_there_is_another() -> None:
    """Without it the run would only wait, for something that may never come."""
    notices = Notices(3)
    notices.heard(0.0, Report("notice", "", "n2", what="rebalance"))
    assert notices.tick(0.0, OURS) == [Prepare("n2", None, REBALANCE, 600.0)]
    assert notices.tick(1000.0, OURS) == []
    starts = MemberView("b9.0.0", "n4", None, 0.0, False)
    assert notices.tick(1001.0, seen(*OURS.members, starts)) == [], "it is not ready yet"
    ready = seen(*OURS.members, replace(starts, ready=True))
    assert notices.tick(1002.0, ready) == [Depart("n2", None, REBALANCE, 600.0)]


def test_a_spot_instance_that_the_run_needs_stays_nearly_to_its_end() -> None:
    notices = Notices(3)
    notices.heard(0.0, Report("notice", "", "n2", what="rebalance"))
    assert notices.tick(0.0, OURS) == [Prepare("n2", None, REBALANCE, 600.0)]
    notices.heard(10.0, Report("notice", "", "n2", what="spot"))
    notices.heard(11.0, Report("notice", "", "n2", what="rebalance"))
    assert notices.tick(104.0, OURS) == []
    assert notices.tick(106.0, OURS) == [Prepare("n2", 24.0, SPOT, 324.0)], "what was trained since is saved"
    assert notices.tick(114.0, OURS) == []
    assert notices.tick(116.0, OURS) == [Depart("n2", 14.0, SPOT, 314.0)]
    assert notices.tick(117.0, as_they_go(OURS, "n2")) == []


def test_a_drained_node_of_the_run_departs_once_until_it_is_resumed() -> None:
    slurm = Slurm()
    drains = Drains(slurm, 1, warned, at_once)
    assert drains.tick(0.0, OURS) == []
    slurm.drained = {"n2": "fan", "n4": "not ours"}
    assert drains.tick(9.9, OURS) == [], "Slurm is asked every ten seconds"
    assert drains.tick(10.0, OURS) == [Depart("n2", None, "it is drained: fan")]
    assert drains.tick(20.0, as_they_go(OURS, "n2")) == []
    slurm.drained = {}
    assert drains.tick(30.0, OURS) == []
    slurm.drained = {"n2": ""}
    assert drains.tick(40.0, OURS) == [Depart("n2", None, "it is drained")]
    assert slurm.asked == 5


def test_a_job_that_slurm_had_given_a_node_before_it_was_drained_leaves_it_too() -> None:
    slurm = Slurm()
    drains = Drains(slurm, 1, warned, at_once)
    slurm.drained = {"n2": "fan"}
    assert drains.tick(0.0, OURS) == [Depart("n2", None, "it is drained: fan")]
    assert drains.tick(1.0, without(OURS, "n2")) == []
    again = with_agents(without(OURS, "n2"), "n2")
    assert drains.tick(2.0, again) == [Depart("n2", None, "it is drained: fan")]


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


def test_a_node_whose_agent_is_mute_is_not_counted_on() -> None:
    """It may be lost as a whole in a moment, with the state if no other node has it."""
    mute = replace(OURS, members=(*OURS.members[:1], replace(OURS.members[1], mute=True)))
    slurm, said = Slurm(), list[str]()
    slurm.drained = {"n1": "fan"}
    drains = Drains(slurm, 1, said.append, at_once)
    assert drains.tick(0.0, mute) == [Prepare("n1", None, "it is drained: fan")]
    assert drains.tick(0.1, replace(OURS, members=OURS.members[:2])) == [
        Depart("n1", None, "it is drained: fan")
    ]


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
    fewer = without(OURS, "n1")
    assert drains.tick(1.0, fewer) == []
    assert len(said) == 1, "once"
    more = seen(*fewer.members, MemberView("r9.0.0", "n4", 7, 0.0, True))
    assert drains.tick(2.0, more) == [Depart("n2", None, "it is drained: fan")]


def test_where_the_node_has_no_thread_left_slurm_is_asked_the_next_time():
    slurm, threads = Slurm(), [None, at_once]
    slurm.drained = {"n2": ""}

    def in_thread(work):
        begin = threads.pop(0)
        if begin is None:
            raise RuntimeError("can't start new thread")
        begin(work)

    drains = Drains(slurm, 1, warned, in_thread)
    assert drains.tick(0.0, OURS) == []
    drains.tick(10.0, OURS)
    assert [each.node for each in drains.tick(10.1, OURS)] == ["n2"]


def test_slurm_is_asked_for_the_nodes_of_the_run_only() -> None:
    """Of all nodes of a large cluster scontrol prints some 40 MB, and the coordinator reads them."""
    slurm = Slurm()
    drains = Drains(slurm, 1, warned, at_once)
    drains.tick(0.0, OURS)
    assert slurm.named == {"n1", "n2", "n3"}
    drains.tick(10.0, with_agents(without(OURS, "n2"), "n4"))
    assert slurm.named == {"n1", "n3", "n4"}


def test_a_slurm_that_takes_long_to_answer_is_asked_less_often() -> None:
    slurm = Slurm()
    drains = Drains(slurm, 1, warned, at_once, slurm.clock)
    slurm.takes = 0.3
    asked = []
    for second in range(100):
        drains.tick(float(second), OURS)
        asked.append(slurm.asked)
    # One answer may be late by chance: the second one counts.
    assert asked == [1 if second < 10 else 2 + (second - 10) // 30 for second in range(100)]
    assert [pause_after(seconds) for seconds in (0.0, 0.05, 0.5, 15.0)] == [10.0, 10.0, 50.0, 120.0]


@pytest.mark.parametrize("fails", [True, False])
def test_one_late_answer_or_none_changes_nothing(fails: bool) -> None:
    """slurmctld is started anew, or this machine stood still for a moment."""
    slurm = Slurm()
    drains = Drains(slurm, 1, warned, at_once, slurm.clock)
    drains.tick(0.0, OURS)
    slurm.takes, slurm.down = 15.0, fails
    drains.tick(10.0, OURS)
    slurm.takes, slurm.down = 0.0, False
    slurm.drained = {"n2": "fan"}
    assert [each.node for each in drains.tick(20.0, OURS)] == ["n2"]

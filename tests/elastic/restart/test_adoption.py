"""What a change of generations took that a new coordinator finds: what agents know, or nothing."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest

from hpctools.elastic.coordinator import Coordinator
from hpctools.elastic.folder import RunFolder, RunStatus
from hpctools.elastic.restart.effects import Resized, Tell
from hpctools.elastic.restart.generations import Generations
from hpctools.elastic.restart.limits import Limits
from hpctools.elastic.spec import RunSpec
from hpctools.testing.slurm import FakeSlurm

NOW = 1000.0
REPORT = {"generation": 4, "members": ["a0", "a1"], "restarts": 0, "committed": 0, "ending": False}


def resized(*reports: dict[str, Any], calls: int = 30) -> list[Resized]:
    """Two agents report at NOW, or one and the other is lost; the next generation's first step is at +20."""
    machine = Generations(Limits(sizes=(1, 2), per_node=1), not_before=NOW + 5)
    for place, report in enumerate(reports):
        rank = [calls, report.pop("told", 0), report.pop("code", None), "why"]
        machine.joined(f"a{place}", (place,), NOW, {**REPORT, "ranks": {"0": rank}, **report})
    if len(reports) == 1:
        machine.tick(NOW + 6)
    for place in range(len(reports)):
        machine.ended(f"a{place}", 4, 0, -15, 0, [], NOW + 7, ours=True)
    machine.tick(NOW + 10)
    machine.offered("a0", 5, "host", 1, NOW + 10)
    for name in machine.members:
        machine.began(name, 5, NOW + 11)
        machine.counted(name, 5, {"0": (1, 0)}, NOW + 20)
    return [each for each in machine.effects if isinstance(each, Resized)]


def test_ranks_that_ended_while_nobody_coordinated() -> None:
    first = {"stopped": 8.0, "moved": 8.5, "ends": {"0": [7.0, False]}, "code": 1}
    (found,) = resized(first, {"stopped": 9.0, "moved": 9.5, "ends": {"0": [9.0, False]}, "code": -9})
    assert found.pause == pytest.approx(29.0)
    assert found.phases["save"] == pytest.approx(2.0), "from the first that ended to the last"
    assert found.cost < 29.0 - 16.0, "that nobody coordinated is no cost of the change"
    assert found.recovered


def test_an_agent_that_is_replaced_while_others_are_still_awaited_has_lost_its_ranks() -> None:
    """Its line had not been noticed to break; the others were waited for in vain, and nothing ever ended."""
    machine = Generations(Limits(sizes=(1, 2), per_node=1), not_before=NOW + 5)
    runs = {**REPORT, "ranks": {"0": [30, 0, None, ""]}}
    machine.joined("a0", (0,), NOW, runs)
    machine.joined("a0", (0,), NOW + 1, {"generation": 0, "ranks": {}})
    machine.joined("a1", (1,), NOW + 2, runs)
    machine.tick(NOW + 6)
    ends = [each.agent for each in machine.effects if isinstance(each, Tell) and each.message["do"] == "end"]
    assert (machine.phase, "a1" in ends) == ("ending", True)
    machine.ended("a1", 4, 0, -15, 0, [], NOW + 7, ours=True)
    machine.tick(NOW + 7)
    assert (machine.phase, machine.generation, machine.members) == ("offering", 5, ("a0", "a1"))


def test_ranks_that_end_while_others_are_still_awaited() -> None:
    machine = Generations(Limits(sizes=(1, 2), per_node=1), not_before=NOW + 5)
    machine.joined("a0", (0,), NOW, {**REPORT, "ranks": {"0": [30, 0, None, ""]}, "moved": 0.1})
    machine.ended("a0", 4, 0, 1, 0, ["why"], NOW + 1, ago=0.5)
    ends = {"stopped": 2.0, "moved": 2.0, "ends": {"0": [2.0, False]}}
    machine.joined("a1", (1,), NOW + 2, {**REPORT, "ranks": {"0": [30, 0, 1, "why"]}, **ends})
    machine.tick(NOW + 10)
    machine.offered("a0", 5, "host", 1, NOW + 10)
    for name in machine.members:
        machine.began(name, 5, NOW + 11)
        machine.counted(name, 5, {"0": (1, 0)}, NOW + 20)
    (found,) = [each for each in machine.effects if isinstance(each, Resized)]
    assert (found.pause, found.phases["save"]) == (pytest.approx(20.0), pytest.approx(0.5))


def test_an_event_that_was_told_and_carried_out_meanwhile() -> None:
    told = {"stopped": 6.0, "moved": 5.0, "told": 30, "committed": 30, "ends": {"0": [4.0, False]}, "code": 0}
    (found,) = resized(dict(told), dict(told))
    assert (found.pause, found.recovered) == (pytest.approx(26.0), False)
    assert found.phases["save"] == pytest.approx(2.0)


def test_ranks_that_hang_since_a_node_was_lost_stopped_after_the_last_step_that_was_seen() -> None:
    (found,) = resized({"stopped": None, "moved": 5.0, "ends": {}})
    assert found.pause == pytest.approx(25.0)


def test_what_nobody_knows_is_not_told() -> None:
    """A script that asks for no events, and that waits in vain."""
    assert resized({"stopped": None, "moved": None, "ends": {}}, calls=0) == []
    assert resized({}, calls=0) == [], "an agent of an earlier release"


@pytest.mark.parametrize("comes_back", [False, True])
def test_who_has_reported_and_is_lost_before_the_last_one_has_is_awaited_again(*, comes_back: bool) -> None:
    """Its ranks ended with its node, and nobody would ever tell: the generation could not end."""
    machine = Generations(Limits(sizes=(2, 3), per_node=1), not_before=NOW + 5)
    report = {**REPORT, "members": ["a0", "a1", "a2"], "ranks": {"0": [30, 0, None, "why"]}}
    machine.joined("a0", (0,), NOW, report)
    machine.joined("a1", (1,), NOW, report)
    machine.gone("a1", NOW + 1)
    machine.joined("a2", (2,), NOW + 2, report)
    assert machine.phase == "adopting"
    if comes_back:
        machine.joined("a1", (1,), NOW + 3, report)
        assert machine.phase == "running"
        return
    machine.tick(NOW + 6)
    assert machine.phase == "ending"
    for name in ("a0", "a2"):
        machine.ended(name, 4, 0, -15, 0, [], NOW + 7, ours=True)
    machine.tick(NOW + 60)
    assert (machine.phase, machine.generation, machine.members) == ("offering", 5, ("a0", "a2"))


@pytest.mark.parametrize("seen", [False, True])
def test_who_is_lost_with_the_coordinator_is_waited_for_as_long_as_the_policy_says(*, seen: bool) -> None:
    """The coordinator's own node never reports; another one may be lost after it has."""
    machine = Generations(Limits(sizes=(1, 2), per_node=1, faulty=30.0), not_before=NOW + 5)
    report = {**REPORT, "ranks": {"0": [30, 0, None, "why"]}}
    if seen:
        machine.joined("a1", (1,), NOW - 1, report)
        machine.gone("a1", NOW)
    machine.joined("a0", (0,), NOW, report)
    machine.tick(NOW + 6)
    machine.ended("a0", 4, 0, -15, 0, [], NOW + 7, ours=True)
    machine.tick(NOW + 29)
    assert machine.phase == "waiting"
    machine.tick(NOW + 30)
    assert (machine.phase, machine.members) == ("offering", ("a0",))


@pytest.mark.parametrize("leaves", [False, True])
def test_who_had_to_go_is_not_waited_for(*, leaves: bool) -> None:
    """It has said so to us, or to the coordinator before us, which then had all of them save."""
    machine = Generations(Limits(sizes=(1, 2), per_node=1, faulty=30.0), not_before=NOW + 5)
    report = {**REPORT, "committed": 0 if leaves else 30, "ranks": {"0": [30, 30, 0, ""]}}
    if leaves:
        machine.joined("a1", (1,), NOW, report)
        machine.leaving("a1", NOW + 60, NOW)
        machine.gone("a1", NOW + 1)
    machine.joined("a0", (0,), NOW + 1, report)
    machine.tick(NOW + 6)
    machine.tick(NOW + 7)
    assert (machine.phase, machine.members) == ("offering", ("a0",))


def ends(machine: Generations) -> list[tuple[str, int]]:
    """Whose ranks were told to end, and of which generation."""
    told = [(each.agent, each.message) for each in machine.effects if isinstance(each, Tell)]
    return [(agent, message["generation"]) for agent, message in told if message["do"] == "end"]


@pytest.mark.parametrize("runs", [False, True])
def test_the_newest_generation_is_gone_on_with_whoever_reports_first(*, runs: bool) -> None:
    """A node that stands by knows only of an earlier one, and on one that was cut off that may still run."""
    machine = Generations(Limits(sizes=(2, 4), per_node=1), not_before=NOW + 5)
    members = [f"a{place}" for place in range(4)]
    old = {"generation": 3, "members": members, "ranks": {"0": [20, 0, None if runs else -15, ""]}}
    machine.joined("a2", (2,), NOW, {**REPORT, **old})
    for place in (0, 1):
        machine.joined(f"a{place}", (place,), NOW, {**REPORT, "ranks": {"0": [30, 0, None, ""]}})
    assert (machine.phase, machine.generation, machine.members) == ("running", 4, ("a0", "a1"))
    assert ends(machine) == ([("a2", 3)] if runs else [])


def test_orders_are_for_the_generation_that_is_on_also_when_a_later_one_is_known() -> None:
    """Who comes late knew more than all others: an order for another generation is not obeyed."""
    machine = Generations(Limits(sizes=(1, 2), per_node=1), not_before=NOW + 5)
    machine.joined("a0", (0,), NOW)
    machine.tick(NOW + 9)
    machine.offered("a0", 1, "host", 1, NOW + 10)
    machine.began("a0", 1, NOW + 11)
    late = {"generation": 7, "members": ["a9"], "ranks": {"0": [9, 0, None, ""]}}
    machine.joined("a9", (9,), NOW + 12, {**REPORT, **late})
    machine.restart("it hangs", NOW + 13)
    assert ends(machine) == [("a9", 7), ("a0", 1)]


def test_those_that_save_do_so_although_one_that_had_to_go_never_reports() -> None:
    """The coordinator was there, had saved first, and is gone."""
    machine = Generations(Limits(sizes=(1, 2), per_node=1), not_before=NOW + 5)
    machine.joined("a1", (1,), NOW, {**REPORT, "committed": 30, "ranks": {"0": [30, 30, None, ""]}})
    machine.tick(NOW + 30)
    assert ends(machine) == []
    machine.ended("a1", 4, 0, 0, 30, [], NOW + 40)
    assert (machine.phase, machine.members) == ("offering", ("a1",))


def ended_while_awaiting(calls: int = 30) -> Generations:
    """A run is ended as its coordinator has gone, whose own node never reports."""
    machine = Generations(Limits(sizes=(1, 2), per_node=1), not_before=NOW + 5)
    machine.joined("a1", (1,), NOW, {**REPORT, "ranks": {"0": [calls, 0, None, ""]}})
    machine.finish(NOW + 0.5, 4.5)
    assert machine.phase == "adopting", "the others are there in a moment"
    machine.tick(NOW + 1.1)
    return machine


def said_to(machine: Generations, agent: str) -> list[tuple[str, int]]:
    told = [each.message for each in machine.effects if isinstance(each, Tell) and each.agent == agent]
    return [(message["do"], message.get("call", 0)) for message in told if message["do"] != "withdraw"]


def test_a_run_that_is_ended_while_a_node_is_awaited_has_its_ranks_save_before_its_time_is_up() -> None:
    """KillWait of 10 s leaves 4.5 s: they heard nothing of it, and were killed with what they had done."""
    machine = ended_while_awaiting()
    ((what, call),) = said_to(machine, "a1")
    assert (machine.phase, what) == ("telling", "propose")
    machine.answered("a1", 4, call, NOW + 1.2, bound=True, calls=30)
    assert said_to(machine, "a1")[-1] == ("commit", call)
    machine.ended("a1", 4, 0, 0, call, [], NOW + 2)
    assert machine.phase == "over"


def test_who_reports_late_while_the_run_ends_saves_with_the_others() -> None:
    machine = ended_while_awaiting()
    ((_, call),) = said_to(machine, "a1")
    machine.answered("a1", 4, call, NOW + 1.2, bound=True, calls=30)
    machine.joined("a0", (0,), NOW + 1.5, {**REPORT, "ranks": {"0": [30, 0, None, ""]}})
    assert said_to(machine, "a0")[-1] == ("commit", call)
    machine.ended("a1", 4, 0, 0, call, [], NOW + 2)
    assert machine.phase == "telling"
    machine.ended("a0", 4, 0, 0, call, [], NOW + 2)
    assert machine.phase == "over"


def test_a_node_that_stands_by_and_reports_first_does_not_end_a_run_whose_ranks_may_save() -> None:
    """It knows of an earlier generation only; those that train are there in a moment."""
    machine = Generations(Limits(sizes=(2, 4), per_node=1), not_before=NOW + 5)
    machine.joined("a9", (9,), NOW, {"generation": 3, "ranks": {}})
    machine.finish(NOW + 0.1, 4.5)
    assert machine.phase == "waiting"
    for place in range(2):
        machine.joined(f"a{place}", (place,), NOW + 0.5, {**REPORT, "ranks": {"0": [30, 0, None, ""]}})
    assert (machine.phase, [what for what, _ in said_to(machine, "a0")]) == ("telling", ["propose"])


def test_a_run_of_which_only_nodes_without_ranks_report_is_over_soon() -> None:
    machine = Generations(Limits(sizes=(2, 4), per_node=1), not_before=NOW + 5)
    machine.joined("a9", (9,), NOW, {"generation": 3, "ranks": {}})
    machine.finish(NOW + 0.1, 4.5)
    machine.tick(NOW + 1.1)
    assert machine.phase == "over"


def test_a_script_that_asks_for_no_events_is_ended_although_a_node_is_awaited() -> None:
    machine = ended_while_awaiting(calls=0)
    ((_, call),) = said_to(machine, "a1")
    machine.answered("a1", 4, call, NOW + 1.2, bound=True, calls=0)
    assert (machine.phase, ends(machine)) == ("ending", [("a1", 4)])


def taken_over(tmp_path: Path, steps: int, last: dict[str, Any] | None = None) -> Generations:
    """What a new coordinator begins with."""
    spec = RunSpec("t-1", "t", "u", "", 1, 2, 1, ("true",), "/", (), "/r", "now", mode="restart")
    folder = RunFolder.create(tmp_path / "run", spec)
    folder.write_status(RunStatus("running", generation=4, step=steps, last_resize=last))

    async def machine() -> Generations:
        restart: Any = Coordinator(folder, FakeSlurm(), 5, term=2)._run.restart
        return restart._generations

    return asyncio.run(machine())


def test_steps_that_earlier_coordinators_knew_of_count_on(tmp_path: Path) -> None:
    """Else the step and its rate would stand still until the new one has seen as many."""
    machine, now = taken_over(tmp_path, 10_050), time.monotonic()
    report = {**REPORT, "ranks": {"0": [50, 0, None, ""]}}
    machine.joined("a0", (0,), now, report)
    assert machine.step == 50, "it is not known yet how many of all are of this generation"
    machine.joined("a1", (1,), now, report)
    assert (machine.phase, machine.step) == ("running", 10_050)
    machine.counted("a0", 4, {"0": (60, 0)}, now + 1)
    assert machine.step == 10_060


@pytest.mark.parametrize(
    ("generation", "calls", "last", "step"),
    [
        pytest.param(4, 5000, {"generation": 4, "step": 1000}, 6000, id="known"),
        pytest.param(4, 5000, {"generation": 3, "step": 900}, 5000, id="of an earlier one"),
        pytest.param(4, 5000, {}, 5000, id="of an earlier release"),
        pytest.param(1, 1040, None, 1040, id="nothing was before the first"),
    ],
)
def test_steps_that_were_done_while_nobody_coordinated_count(
    generation: int, calls: int, last: dict[str, Any] | None, step: int, tmp_path: Path
) -> None:
    """1050 were told of; where it is not known how many were before this generation, those are all."""
    machine, now = taken_over(tmp_path, 1050, last), time.monotonic()
    report = {**REPORT, "generation": generation, "ranks": {"0": [calls, 0, None, ""]}}
    for place in range(2):
        machine.joined(f"a{place}", (place,), now, report)
    assert (machine.phase, machine.step) == ("running", step)


def test_steps_of_generations_that_are_over_count_too(tmp_path: Path) -> None:
    machine, now = taken_over(tmp_path, 10_050), time.monotonic()
    for place in range(2):
        machine.joined(f"a{place}", (place,), now, {"generation": 4, "ranks": {}})
    machine.tick(now + 100)
    machine.offered("a0", 5, "host", 1, now + 100)
    machine.counted("a0", 5, {"0": (3, 0)}, now + 101)
    assert machine.step == 10_053


def test_generations_are_numbered_on_where_no_agent_is_left_that_knew_one(tmp_path: Path) -> None:
    """Else the next coordinator takes it for the run's first, before which no steps were."""
    machine, now = taken_over(tmp_path, 10_050), time.monotonic()
    machine.joined("a0", (0,), now, {"generation": 0, "ranks": {}})
    machine.tick(now + 100)
    assert (machine.phase, machine.generation) == ("offering", 5)

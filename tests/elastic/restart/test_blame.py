"""What a generation's end is put down to: the cause, and not whoever is heard first."""

from __future__ import annotations

import signal
from itertools import permutations

import pytest

from hpctools.elastic.restart.blame import BadEnd, cause_of, reason_of
from hpctools.elastic.restart.effects import Charged, Crashed
from hpctools.elastic.restart.generations import Generations
from hpctools.elastic.restart.limits import Limits

NOW = 100.0
KILLED, BROKEN = -signal.SIGKILL, 1


def end(rank: int, code: int, at: float) -> BadEnd:
    return BadEnd(Crashed(f"a{rank}", 0, rank, code, ("why",)), at)


def running(nodes: int = 3) -> Generations:
    """A machine whose one generation runs, a rank on each node."""
    machine = Generations(Limits(sizes=(nodes,), per_node=1))
    for place in range(nodes):
        machine.joined(f"a{place}", (place,), NOW)
    machine.offered("a0", 1, "host", 1, NOW)
    for place in range(nodes):
        machine.began(f"a{place}", 1, NOW)
    machine.effects.clear()
    return machine


def ended(machine: Generations, rank: int, code: int, ago: float = 0.0, *, ours: bool = False) -> None:
    said = [f"words of {rank}"]
    machine.ended(f"a{rank}", 1, 0, code, 0, said, NOW + 1, ago=ago, ours=ours)


def blamed(machine: Generations) -> tuple[Crashed, str]:
    (crashed,) = [each for each in machine.effects if isinstance(each, Crashed)]
    (charged,) = [each for each in machine.effects if isinstance(each, Charged)]
    return crashed, charged.reason


@pytest.mark.parametrize(
    "order", list(permutations([(0, BROKEN, 0.0), (1, KILLED, 0.01), (2, BROKEN, 0.02)]))
)
def test_who_was_killed_is_the_cause_whoever_is_heard_first(order: list[tuple[int, int, float]]) -> None:
    machine = running()
    for rank, code, ago in order:
        ended(machine, rank, code, ago)
    crashed, reason = blamed(machine)
    assert (crashed.rank, crashed.code, crashed.said) == (1, KILLED, ("words of 1",))
    assert reason == "rank 1 ended with exit code -9: words of 1"


def test_a_rank_that_we_end_is_never_the_cause() -> None:
    machine = running()
    ended(machine, 1, BROKEN)
    ended(machine, 0, KILLED, ago=0.5, ours=True)
    ended(machine, 2, -signal.SIGTERM, ours=True)
    crashed, _ = blamed(machine)
    assert (crashed.rank, crashed.code) == (1, BROKEN)


def test_what_ends_badly_after_an_order_for_another_reason_is_no_crash_of_a_rank() -> None:
    machine = running()
    machine.restart("hang: no step for 600 s", NOW)
    for rank in range(3):
        ended(machine, rank, BROKEN)
    assert [each for each in machine.effects if isinstance(each, Crashed)] == []
    (charged,) = [each for each in machine.effects if isinstance(each, Charged)]
    assert charged.reason == "hang: no step for 600 s"


@pytest.mark.parametrize("crashes", [False, True])
def test_who_was_told_to_save_and_end_may_end_with_any_exit_code(*, crashes: bool) -> None:
    """Libraries abort when rank 0's store has gone; after some resizes in an hour the run would fail."""
    machine = running()
    machine.ended("a0", 1, 0, 0, 7, [], NOW + 1)
    machine.ended("a1", 1, 0, -signal.SIGABRT, 7, ["words of 1"], NOW + 1)
    machine.ended("a2", 1, 0, BROKEN, 0 if crashes else 7, ["words of 2"], NOW + 1.5)
    (crashed,) = [each for each in machine.effects if isinstance(each, Crashed)]
    assert crashed.rank == (2 if crashes else 1)
    assert len([each for each in machine.effects if isinstance(each, Charged)]) == crashes
    assert (machine.phase, machine.restarts) == ("offering", int(crashes))


@pytest.mark.parametrize(
    ("ends", "cause"),
    [
        pytest.param([end(0, 1, 5.0), end(1, 1, 4.9)], 1, id="the earlier one"),
        pytest.param([end(0, 1, 5.0), end(1, 1, 5.0)], 0, id="the first told"),
        pytest.param([end(0, 1, 5.0), end(1, -11, 5.3)], 1, id="a signal of its own"),
        pytest.param([end(0, 1, 5.0), end(1, 128 + 9, 5.3)], 1, id="a signal behind a shell"),
        pytest.param([end(0, 1, 5.0), end(1, -6, 5.3)], 0, id="libraries abort when a peer has gone"),
        pytest.param([end(0, 1, 5.0), end(1, -9, 8.0)], 0, id="much later"),
        pytest.param([end(0, 255, 5.3), end(1, 1, 5.0)], 1, id="an exit code is no signal"),
    ],
)
def test_the_cause_among_several(ends: list[BadEnd], cause: int) -> None:
    assert cause_of(ends).rank == cause


def test_a_rank_that_said_nothing() -> None:
    assert reason_of(Crashed("a0", 0, 3, 2, ())) == "rank 3 ended with exit code 2: it printed nothing"


def test_a_rank_that_breaks_while_a_new_coordinator_still_asks_who_runs_is_noticed() -> None:
    machine = Generations(Limits(sizes=(2,), per_node=1), not_before=NOW + 5)
    report = {"generation": 1, "members": ["a0", "a1"], "restarts": 0, "committed": 0, "ending": False}
    machine.joined("a0", (0,), NOW, {**report, "ranks": {"0": [3, 0, None, ""]}})
    ended(machine, 0, BROKEN)
    machine.joined("a1", (1,), NOW + 1, {**report, "ranks": {"0": [3, 0, None, ""]}})
    ended(machine, 1, -signal.SIGTERM, ours=True)
    crashed, _ = blamed(machine)
    assert crashed.rank == 0


def test_a_new_coordinator_blames_the_same_rank_in_whatever_order_agents_report() -> None:
    report = {"generation": 1, "members": ["a0", "a1", "a2"], "restarts": 0, "committed": 0, "ending": True}
    ranks = {"a0": (BROKEN, 0.2, False), "a1": (KILLED, 0.3, False), "a2": (KILLED, 0.1, True)}
    for order in permutations(ranks):
        machine = Generations(Limits(sizes=(3,), per_node=1), not_before=NOW + 5)
        for name in order:
            code, ago, ours = ranks[name]
            known = {"ranks": {"0": [3, 0, code, "why"]}, "ends": {"0": [ago, ours]}}
            machine.joined(name, (int(name[1]),), NOW, {**report, **known})
        crashed, _ = blamed(machine)
        assert (crashed.rank, crashed.code) == (1, KILLED), order

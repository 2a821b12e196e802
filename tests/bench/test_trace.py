"""Capacity traces, and ways to train on paper."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.resize import TAKEN, Ours, compared, goals, sizes, times
from bench.steps import Pause
from bench.storm import moments
from bench.trace import SHORTEST_SECONDS, Change, complete, oracle, requeued, spans, trace

LINEAR = {size: float(size) for size in range(1, 9)}


@given(st.integers(0, 99), st.floats(60, 3600))
def test_a_trace_is_the_same_for_a_seed_and_stays_in_its_bounds(seed: int, seconds: float):
    changes = trace(seed, seconds, 2, 8, 75.0)
    assert changes == trace(seed, seconds, 2, 8, 75.0)
    assert changes[0] == Change(0.0, 8)
    for before, after in pairwise(changes):
        assert after.at - before.at >= SHORTEST_SECONDS
        assert after.nodes != before.nodes
        assert 2 <= after.nodes <= 8
    assert sum(length for length, _ in spans(changes, seconds)) == pytest.approx(seconds)


def test_traces_of_two_seeds_differ_and_have_the_mean_that_was_asked_for():
    assert trace(1, 1200, 2, 8, 75.0) != trace(2, 1200, 2, 8, 75.0)
    assert len(trace(3, 75_000, 2, 8, 75.0)) == pytest.approx(1000, rel=0.1)


def test_the_oracle_has_what_there_is_room_for():
    changes = [Change(0, 8), Change(10, 2), Change(30, 5)]
    assert oracle(changes, 40.0, LINEAR) == 10 * 8 + 20 * 2 + 10 * 5


def test_a_requeued_job_stands_still_restarts_on_what_is_free_and_grows_no_more():
    changes = [Change(0, 4), Change(100, 8), Change(200, 2), Change(300, 6), Change(500, 8), Change(600, 5)]
    # 4 nodes until 200, evicted until 348, then 6 nodes until it is evicted again at 600.
    assert requeued(changes, 700.0, LINEAR) == 200 * 4 + (600 - 348) * 6
    assert requeued([Change(0, 3)], 50.0, LINEAR) == 150


@given(st.integers(0, 50), st.floats(60, 2000))
def test_nobody_beats_the_oracle(seed: int, seconds: float):
    changes = trace(seed, seconds, 2, 8, 75.0)
    best = oracle(changes, seconds, LINEAR)
    assert requeued(changes, seconds, LINEAR) <= best + 1e-6
    assert seconds * LINEAR[2] <= best + 1e-6


def test_a_rate_that_was_not_measured_is_that_of_the_nearest_in_proportion():
    assert complete({2: 1.0, 8: 3.2}, range(2, 9)) == pytest.approx(
        {2: 1.0, 3: 1.5, 4: 2.0, 5: 2.5, 6: 2.4, 7: 2.8, 8: 3.2}
    )
    with pytest.raises(ValueError, match="no rate"):
        complete({}, [1])


def test_faults_have_the_rate_that_was_asked_for_and_time_to_mend():
    found = moments(62, 1800.0, random.Random(1))
    assert len(found) == 62
    assert found == sorted(found)
    assert all(after - before >= 1800 / 62 / 2 for before, after in pairwise(found))
    assert found[-1] < 1800 - 1800 / 62 / 2


def test_resizes_go_up_and_down_by_every_difference():
    chosen = sizes(16)
    assert chosen[::2] == [8] * 8
    assert {8 - size for size in chosen[1::2]} == set(TAKEN)


def test_how_many_times_longer_is_their_shortest_one_and_not_made_of_noise():
    assert times([7.0, 6.0, 50.0], [0.5, 0.6, 0.7]) == pytest.approx(10.0)
    assert times([7.0, 60.0], [0.5, 0.6, 0.7], 0.95) == pytest.approx(10.0)
    assert times([5.0], [0.0001]) == 500


def test_a_rival_is_judged_by_its_shortest_resize_of_each_kind():
    """Beside ours as bare processes, which theirs are; not on the cluster."""
    ours = {"exact": Ours([Pause(4, 8, 9.0), Pause(8, 4, 9.0)])}
    alike = [Pause(4, 8, 0.5), Pause(8, 4, 0.2), Pause(4, 8, 0.7)]
    rivals = {
        "torchrun": [Pause(4, 8, 9.0), Pause(4, 8, 5.0), Pause(8, 4, 1.9)],
        "torchft": [Pause(8, 4, 2.0), Pause(4, 8, 0.01)],
    }
    found = {goal.name: (goal.value, goal.met) for goal in goals(ours, rivals, alike) if goal.unit == "x"}
    assert found == {
        "grow torchrun's shortest over our p50": (pytest.approx(10.0), True),
        "shrink torchrun's shortest over our p50": (pytest.approx(9.5), False),
        "shrink torchft's shortest over our p50": (pytest.approx(10.0), True),
    }
    lines = {
        (line["who"], line["what"]): (line["p50 s"], line["p95 s"])
        for line in compared(alike, rivals, "ours, no Slurm")
    }
    assert lines[("torchrun's min over ours, no Slurm", "grow")] == ("10.0 x", "7.1 x")
    shown = ("torchft's min over ours, no Slurm", "grow")
    assert shown in lines, "a grow that loses samples is shown, and is no goal"
    assert goals({"fast": Ours()}, rivals, []) == []


def test_a_rival_that_did_not_run_leaves_a_goal_open():
    (goal,) = goals({}, {"torchft": [], "torchrun": [Pause(4, 8, 9.0)]}, [])
    assert (goal.name, goal.met) == ("resizes of torchft to compare with", False)


def test_waits_are_compared_percentile_with_percentile():
    """Slurm's own slow ones are not ours; ours are, however fast its usual ones are."""
    ours = Ours(waits=[2.0] * 15 + [4.5], control=[1.9] * 15 + [2.9], evicted=1)
    found = {goal.name: (goal.value, goal.met) for goal in goals({"fast": ours}, {}, [])}
    assert found == {
        "fast: urgent job's wait p95 beyond Slurm's own p95": (pytest.approx(1.6), False),
        "fast: collateral nodes evicted": (1, False),
    }

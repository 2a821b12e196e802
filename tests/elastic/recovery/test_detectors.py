"""What is found in reports and in the run's view."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpctools.elastic.pieces import by_blocks
from hpctools.elastic.recovery.findings import Finding
from hpctools.elastic.recovery.numbers import Course, Finite, Metrics
from hpctools.elastic.recovery.pace import ENOUGH, MOST_SIZES, Pace, Slow, StepTimes
from hpctools.elastic.recovery.settings import (
    Hang,
    MetricRule,
    NonFinite,
    SlowRank,
    Spike,
    Stall,
    Threshold,
)
from hpctools.elastic.sampling import Cursor, Sampling
from hpctools.elastic.watchers import ASLEEP, MemberView, Report, View

TICK = 0.1


def beat(step: int, worker: str = "b0.0.0", **metrics: float) -> Report:
    in_steps = {"loss": ((step, metrics["loss"]),)} if "loss" in metrics else {}
    return Report("beat", worker, f"node-of-{worker}", step=step, metrics=metrics, in_steps=in_steps)


def beat_of(*losses: float, last: int, worker: str = "b0.0.0") -> Report:
    """A sign of life that tells of several steps; its own loss is that of the last one."""
    steps = tuple((last - len(losses) + 1 + place, loss) for place, loss in enumerate(losses))
    return Report("beat", worker, "n0", last, {"loss": losses[-1]}, {"loss": steps})


def times(shard_s: float, samples: float) -> dict[str, float]:
    return {"shard_seconds": shard_s, "sample_seconds": shard_s / samples}


def members(step: int, waits: tuple[bool, ...], between: tuple[int, ...] = ()) -> tuple[MemberView, ...]:
    return tuple(
        MemberView(f"w{place}", f"n{place}", step, 0.0, trains=True, waits=waiting, between=place in between)
        for place, waiting in enumerate(waits)
    )


class Run:
    """A run seen by one detector: time passes, steps are made or not."""

    def __init__(self, pace: Pace) -> None:
        self.pace = pace
        self.world = 3
        self.now = 100.0
        self.step = 0
        self.generation = 1
        self.waits: tuple[bool, ...] = (True, False, True)
        self.between: tuple[int, ...] = ()

    def resizes(self, world: int) -> None:
        self.generation += 1
        self.world = world

    def passes(self, seconds: float, step_s: float = math.inf, phase: str = "running") -> list[Finding]:
        found, begun = [], self.now
        first = self.step
        while self.now - begun < seconds:
            self.now += TICK
            self.step = first + int((self.now - begun) / step_s)
            there = members(self.step, self.waits, self.between)
            view = View(self.step, self.world, self.generation, phase, there)
            found += self.pace.tick(self.now, view)
        return found


def test_a_stalled_step_is_told_once_with_who_keeps_the_others_waiting() -> None:
    run = Run(Pace(Stall(ratio=5.0, seconds=2.0), None))
    assert run.passes(10.0, step_s=1.0) == []
    (found,) = run.passes(12.0)
    assert (found.cause, found.worker, found.node, found.step) == ("stalledStep", "w1", "n1", 10)
    assert found.numbers == pytest.approx({"seconds": 5.0, "limit_s": 5.0, "median_s": 1.0}, abs=0.25)
    assert run.passes(20.0, step_s=1.0) == [], "it has recovered by itself"
    assert len(run.passes(12.0)) == 1


def test_what_stalled_and_stays_so_is_a_hang_as_well() -> None:
    run = Run(Pace(Stall(ratio=5.0, seconds=2.0), Hang(30.0)))
    run.passes(10.0, step_s=1.0)
    assert [each.cause for each in run.passes(100.0)] == ["stalledStep", "hang"]


def test_short_steps_have_the_absolute_limit() -> None:
    run = Run(Pace(Stall(ratio=5.0, seconds=2.0), None))
    run.passes(5.0, step_s=0.2)
    (found,) = run.passes(5.0)
    assert found.numbers["limit_s"] == 2.0


def test_when_nobody_or_all_wait_nobody_is_to_blame() -> None:
    for waits in ((True, True, True), (False, False, True)):
        run = Run(Pace(None, Hang(3.0)))
        run.waits = waits
        (found,) = run.passes(5.0)
        assert (found.cause, found.worker, found.node) == ("hang", "", "")


def test_a_single_worker_is_always_to_blame() -> None:
    run = Run(Pace(None, Hang(3.0)))
    run.waits = (True,)
    (found,) = run.passes(5.0)
    assert found.worker == "w0"


def test_neither_a_resize_nor_a_wait_for_nodes_is_a_stall() -> None:
    run = Run(Pace(Stall(ratio=5.0, seconds=2.0), Hang(30.0)))
    run.passes(10.0, step_s=1.0)
    assert run.passes(10.0, phase="resizing") == []
    run.generation += 1
    assert run.passes(4.0) == []
    assert run.passes(5.0, step_s=1.0) == []
    assert run.passes(1000.0, phase="waiting") == []
    assert run.passes(3.0, step_s=1.0) == []
    (found,) = run.passes(35.0, phase="recovering")
    assert found.cause == "hang"


def test_a_step_is_measured_by_those_with_as_many_workers() -> None:
    """Sixteen workers, then one: its steps take sixteen times as long, and nothing is wrong with them."""
    run = Run(Pace(Stall(ratio=10.0, seconds=2.0), None))
    run.passes(20.0, step_s=1.0)
    run.resizes(1)
    assert run.passes(65.0, step_s=16.0) == []
    (found,) = run.passes(200.0)
    assert found.numbers["limit_s"] == pytest.approx(160.0, abs=2.0)
    run.resizes(3)
    run.passes(2.0, step_s=1.0)
    (found,) = run.passes(12.0)
    assert found.numbers["limit_s"] == pytest.approx(10.0, abs=0.5), "as it was known before"


@pytest.mark.parametrize("between", [(0, 1, 2), (1,)])
def test_a_validation_between_passes_is_no_stalled_step(between: tuple[int, ...]) -> None:
    """All do it, or one does and the others wait for it in the next pass's first step."""
    run = Run(Pace(Stall(ratio=5.0, seconds=2.0), Hang(600.0)))
    for _ in range(4):
        assert run.passes(3.0, step_s=1.0) == []
        run.between = between
        assert run.passes(120.0) == []
        run.between = ()
    assert run.passes(3.0, step_s=1.0) == []
    (found,) = run.passes(12.0)
    assert found.numbers["limit_s"] == pytest.approx(5.0, abs=0.5), "nor is it the time of a step"
    assert found.why.endswith(" s")


def test_what_never_ends_between_passes_is_a_hang() -> None:
    run = Run(Pace(Stall(ratio=5.0, seconds=2.0), Hang(30.0)))
    run.passes(10.0, step_s=1.0)
    run.between = (1,)
    (found,) = run.passes(40.0)
    assert (found.cause, found.worker) == ("hang", "w1")
    assert found.why.endswith("(between two passes of the loop)")


def test_who_does_not_train_holds_nobody_up_between_its_passes() -> None:
    run = Run(Pace(Stall(ratio=5.0, seconds=2.0), None))
    run.passes(10.0, step_s=1.0)
    newcomer = MemberView("w9", "n9", None, 0.0, trains=False, between=True)
    view = View(run.step, 3, run.generation, "running", (*members(run.step, run.waits), newcomer))
    assert [each.cause for at in range(9) for each in run.pace.tick(run.now + at, view)] == ["stalledStep"]


def test_of_many_sizes_the_one_without_a_step_for_longest_is_forgotten() -> None:
    times = StepTimes()
    for world in [*range(MOST_SIZES), 0, MOST_SIZES]:
        for _ in range(ENOUGH):
            times.add(world, float(world))
    assert (times.median(0), times.median(1), times.median(2)) == (0.0, None, 2.0)
    assert times.median(MOST_SIZES) == MOST_SIZES


def test_time_in_which_everything_stood_still_is_nobodys_step() -> None:
    run = Run(Pace(Stall(ratio=5.0, seconds=2.0), Hang(30.0)))
    run.passes(10.0, step_s=1.0)
    run.now += 120.0
    asleep = View(run.step, 3, run.generation, ASLEEP, members(run.step, run.waits))
    assert run.pace.tick(run.now, asleep) == []
    assert run.passes(4.0) == []
    (found,) = run.passes(3.0)
    assert found.numbers["seconds"] == pytest.approx(5.0, abs=0.3), "counted from when we woke"


def test_a_run_that_never_begins_hangs() -> None:
    run = Run(Pace(None, Hang(5.0)))
    run.generation = 0
    assert [each.cause for each in run.passes(6.0, phase="starting")] == ["hang"]


def test_after_something_was_done_the_clock_begins_anew() -> None:
    run = Run(Pace(None, Hang(5.0)))
    assert len(run.passes(6.0)) == 1
    run.pace.reset()
    assert run.passes(4.5) == []
    assert len(run.passes(1.0)) == 1


def test_slow_rank_needs_its_row_of_points() -> None:
    slow = Slow(SlowRank(ratio=1.5, points=3))
    found: list[Finding] = []
    for step in range(1, 6):
        for worker, seconds in (("b0.0.0", 0.1), ("b1.0.0", 0.11), ("r7.0.0", 0.17 if step != 2 else 0.1)):
            found += slow.heard(0.0, beat(step, worker, **times(seconds, 2)))
            found += slow.heard(0.0, beat(step, worker, **times(seconds, 2)))  # told again in the next beat
    (one,) = found
    assert (one.cause, one.worker, one.step) == ("slowRank", "r7.0.0", 5)
    assert one.numbers == pytest.approx(
        {
            "points": 3.0,
            "shard_seconds": 0.17,
            "median_shard_seconds": 0.105,
            "sample_seconds": 0.085,
            "median_sample_seconds": 0.0525,
        }
    )
    assert one.why == (
        "r7.0.0 is slower than the others (their median): shard_seconds 0.17 (0.105), "
        "sample_seconds 0.085 (0.0525)"
    )


@given(st.floats(0.001, 100.0), st.integers(2, 8))
def test_equal_workers_are_never_slow(seconds: float, workers: int) -> None:
    slow = Slow(SlowRank(ratio=1.01, points=1))
    for step in range(1, 5):
        for worker in range(workers):
            assert slow.heard(0.0, beat(step, f"w{worker}", **times(seconds, 3))) == []


BLOCKS = by_blocks(Sampling(samples=12, batch_size=12, shards=12, epochs=1, seed=0), None)


@given(st.floats(0.0, 1.0), st.floats(0.0, 1.0), st.integers(2, 11))
def test_workers_with_more_samples_than_others_are_not_slow(fixed: float, each: float, world: int) -> None:
    """Fast mode, a batch of 12 on 8 workers: blocks of 2 and of 1; a pass takes time, and each sample."""
    slow = Slow(SlowRank(ratio=1.5, points=1))
    for step in range(1, 4):
        for rank in range(world):
            (piece,) = BLOCKS(Cursor(), rank, world)
            told = times(fixed + each * piece.samples, piece.samples)
            assert slow.heard(0.0, beat(step, f"w{rank}", **told)) == []


def test_a_slow_worker_is_found_among_blocks_of_different_sizes() -> None:
    slow, found = Slow(SlowRank(ratio=1.5, points=2)), set[str]()
    for step in range(1, 5):
        for rank in range(8):
            (piece,) = BLOCKS(Cursor(), rank, 8)
            seconds = (0.1 + 0.1 * piece.samples) * (4 if rank == 3 else 1)
            for each in slow.heard(0.0, beat(step, f"w{rank}", **times(seconds, piece.samples))):
                found.add(each.worker)
    assert found == {"w3"}


def test_a_policy_may_compare_another_number() -> None:
    slow = Slow(SlowRank(points=1, metric="io_s"))
    assert slow.heard(0.0, beat(1, "w0", io_s=1.0)) == []
    assert [each.worker for each in slow.heard(0.0, beat(1, "w1", io_s=2.0))] == ["w1"]


def test_workers_that_are_gone_are_no_measure() -> None:
    slow = Slow(SlowRank(ratio=1.5, points=1))
    slow.heard(0.0, beat(1, "w9", **times(0.01, 1)))
    slow.tick(0.0, View(1, 1, 1, "running", members(1, (False,))))
    assert slow.heard(0.0, beat(1, "w0", **times(1.0, 1))) == []


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_numbers_that_are_not_finite(value: float) -> None:
    finite = Finite(NonFinite(("loss", "grad_norm")))
    assert finite.heard(0.0, beat(4, loss=1.0, grad_norm=2.0, other=math.nan)) == []
    (found,) = finite.heard(0.0, beat(5, loss=1.0, grad_norm=value))
    assert (found.cause, found.name, found.step) == ("nonFinite", "grad_norm", 5)
    late = Report("beat", "w1", "n1", 9, {"loss": value, "first_nonfinite_step": 6.0})
    assert [each.step for each in finite.heard(0.0, late)] == [6]
    assert [each.step for each in finite.heard(0.0, beat_of(1.0, value, 1.0, last=9))] == [8]


def test_a_spike_against_the_recent_course() -> None:
    course = Course(Spike(window=10, ratio=3.0, deviations=None, points=2))
    losses = [2.0, 2.1, 1.9, 2.0, 2.05, 9.0, 2.0, 9.0, 9.5, 2.0]
    found = [each for step, loss in enumerate(losses, 1) for each in course.heard(0.0, beat(step, loss=loss))]
    (one,) = found
    assert (one.cause, one.step) == ("lossSpike", 8), "the first of two in a row"
    assert one.numbers["value"] == 9.5
    assert one.numbers["median"] == pytest.approx(2.0)


@pytest.mark.parametrize(("points", "found"), [(1, 10), (4, 2), (12, 1)])
def test_a_level_that_stays_for_a_window_is_the_new_course(points: int, found: int) -> None:
    """Where nobody acts on it, it is not told for ever."""
    course = Course(Spike(window=10, ratio=3.0, deviations=None, points=points))
    assert course.heard(0.0, beat_of(*[1.0] * 10, last=10)) == []
    told = [each for step in range(11, 111) for each in course.heard(0.0, beat(step, loss=9.0))]
    assert len(told) == found
    (next_one, *_) = course.heard(0.0, beat_of(*[90.0] * points, last=110 + points))
    assert next_one.numbers["median"] == 9.0


def test_many_steps_of_one_report_are_no_course_before_it_is_known_what_is_done() -> None:
    """A thousand steps a second; the first of them leads to a roll back."""
    course = Course(Spike(window=10, ratio=3.0, deviations=None))
    assert course.heard(0.0, beat_of(*[1.0] * 10, last=10)) == []
    for _ in range(2):
        course.tick(0.0, View(200, 1, 1, "running"))
        assert course.heard(0.0, beat_of(*[9.0] * 190, last=200))[0].step == 11
        course.reset()
        course.tick(0.0, View(10, 1, 2, "running"))


def test_spikes_with_sound_steps_or_a_roll_back_in_between_are_no_course() -> None:
    course = Course(Spike(window=10, ratio=3.0, deviations=None))
    assert course.heard(0.0, beat_of(*[1.0] * 10, last=10)) == []
    for place in range(30):
        step = 11 + 10 * place
        assert len(course.heard(0.0, beat_of(*[9.0] * 9, last=step + 8))) == 9
        if place % 2:
            course.reset()
        else:
            assert course.heard(0.0, beat(step + 9, loss=1.0)) == []


def test_a_spike_between_two_signs_of_life_is_found_and_its_own_step_blamed() -> None:
    """Twenty steps a second, four signs of life: each tells of five steps, and the last loss is sound."""
    course = Course(Spike(ratio=3.0, deviations=None))
    assert course.heard(0.0, beat_of(2.0, 2.1, 1.9, 2.0, 2.0, last=5)) == []
    (found,) = course.heard(0.0, beat_of(2.0, 90.0, 2.0, 2.1, 2.0, last=10))
    assert (found.step, found.numbers["value"]) == (7, 90.0)
    assert course.heard(0.0, beat_of(90.0, 2.0, 2.1, 2.0, last=10, worker="b1.0.0")) == [], "told again"
    rule = Metrics((MetricRule("high", "loss", Threshold(50.0, "gt", 2)),))
    (found,) = rule.heard(0.0, beat_of(2.0, 90.0, 95.0, 2.0, last=10))
    assert (found.cause, found.step, found.worker, found.node) == ("metric", 8, "", "")
    assert rule.heard(0.0, beat_of(90.0, 95.0, 2.0, last=10, worker="b1.0.0")) == []


def test_the_gradients_norm_is_one_for_all_whichever_worker_tells_it() -> None:
    """After a loss another worker is the first."""
    rule = Metrics((MetricRule("gradients", "grad_norm", Threshold(2.5, "gt", 2)),))
    assert rule.heard(0.0, Report("beat", "w1", "n1", 7, {"grad_norm": 3.0})) == []
    assert rule.heard(0.0, Report("beat", "w2", "n2", 7, {"grad_norm": 3.0})) == [], "told already"
    (found,) = rule.heard(0.0, Report("beat", "w2", "n2", 8, {"grad_norm": 3.0}))
    assert (found.step, found.worker) == (7, "")


def test_a_number_that_is_not_told_step_by_step_is_that_of_the_last_one() -> None:
    """And the loss, which only the first worker tells so, is nothing of the others'."""
    sampled = Metrics((MetricRule("gradients", "grad_norm", Threshold(2.5, "gt")),))
    assert [each.step for each in sampled.heard(0.0, beat(7, grad_norm=3.0))] == [7]
    assert sampled.heard(0.0, beat(7, grad_norm=3.0)) == []
    rule = Metrics((MetricRule("high", "loss", Threshold(1.0, "gt")),))
    assert rule.heard(0.0, Report("beat", "w1", "n1", 7, {"loss": 3.0})) == []
    assert [each.step for each in rule.heard(0.0, beat_of(0.5, 3.0, last=7))] == [7]


def test_two_rules_on_one_number_both_see_it() -> None:
    both = Metrics(tuple(MetricRule(name, "loss", Threshold(1.0, "gt")) for name in ("a", "b")))
    assert [each.name for each in both.heard(0.0, beat(3, loss=2.0))] == ["a", "b"]


def test_deviations_are_robust_and_both_conditions_must_hold() -> None:
    noisy = [2.0 + 0.1 * (-1) ** step for step in range(30)]
    for spike, found in ((2.5, False), (4.2, True)):
        course = Course(Spike(deviations=10.0))
        for step, loss in enumerate(noisy, 1):
            assert course.heard(0.0, beat(step, loss=loss)) == []
        assert bool(course.heard(0.0, beat(31, loss=spike))) is found
    course = Course(Spike(deviations=1.0, ratio=3.0))
    for step, loss in enumerate(noisy, 1):
        course.heard(0.0, beat(step, loss=loss))
    assert course.heard(0.0, beat(31, loss=4.2)) == []
    assert course.heard(0.0, beat(32, loss=math.nan)) == [], "not finite is another cause"


def test_noise_in_the_first_steps_is_no_spike() -> None:
    """In 3,000 runs; judged from five values on, more than that were set back."""
    noise = random.Random(7)
    false = 0
    for _ in range(3000):
        course = Course(Spike())
        losses = [2.0 - 0.01 * step + noise.gauss(0.0, 0.1) for step in range(24)]
        false += bool(course.heard(0.0, beat_of(*losses, last=24)))
    assert false < 3


def test_a_loss_below_zero_is_judged_by_deviations_alone() -> None:
    noise = random.Random(7)
    course = Course(Spike(ratio=2.0, deviations=None))
    losses = [-2.0 - 0.01 * step + noise.gauss(0.0, 0.05) for step in range(100)]
    assert course.heard(0.0, beat_of(*losses, last=100)) == []
    (found,) = course.heard(0.0, beat_of(5.0, last=101))
    assert found.step == 101
    nothing = Course(Spike(ratio=2.0, deviations=None))
    assert nothing.heard(0.0, beat_of(*[0.0] * 30, last=30)) == []


@given(st.lists(st.floats(0.1, 10.0), min_size=6, max_size=60))
def test_a_falling_loss_is_no_spike(losses: list[float]) -> None:
    course = Course(Spike())
    for step, loss in enumerate(sorted(losses, reverse=True), 1):
        assert course.heard(0.0, beat(step, loss=loss)) == []


def test_steps_that_come_again_after_a_step_back_are_looked_at_again() -> None:
    course = Course(Spike(ratio=3.0, deviations=None))
    for step in range(1, 11):
        course.heard(0.0, beat(step, loss=1.0))
    course.tick(0.0, View(10, 1, 1, "running"))
    assert len(course.heard(0.0, beat(11, loss=9.0))) == 1
    course.tick(0.0, View(10, 1, 1, "running"))
    assert course.heard(0.0, beat(11, loss=9.0)) == [], "the same step, told again"
    course.tick(0.0, View(8, 1, 2, "running"))
    assert len(course.heard(0.0, beat(11, loss=9.0))) == 1


def test_metric_rules_count_for_each_worker() -> None:
    metrics = Metrics((MetricRule("gradients", "mine", Threshold(2.5, "gt", 2)),))
    assert metrics.heard(0.0, beat(1, "w0", mine=3.0)) == []
    assert metrics.heard(0.0, beat(1, "w1", mine=3.0)) == []
    assert metrics.heard(0.0, beat(2, "w1", mine=2.5)) == []
    (found,) = metrics.heard(0.0, beat(2, "w0", mine=math.nan))
    assert (found.cause, found.name, found.worker, found.node) == ("metric", "gradients", "w0", "node-of-w0")

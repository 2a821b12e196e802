"""Growing only when it pays: the rule on given facts, and whole capacity histories in simulated time."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpctools.elastic.deciding import GrowthFacts
from hpctools.elastic.growth import Facts, Patience, Rate, Rule, Tenure
from hpctools.elastic.growth_history import GrowthHistory, Payback
from hpctools.elastic.policy import ElasticPolicy

TICK = 0.5


def test_without_any_history_it_is_half_a_second_after_the_last_and_three_after_the_first() -> None:
    """What the coordinator did before there were policies."""
    growth = Rule()
    facts = Facts(first_ready=10.0, last_ready=10.2)
    early = growth.judge(10.3, 2, 4, facts)
    assert (early.grow, early.to, early.not_before) == (False, 2, 10.7)
    assert growth.judge(10.7, 2, 4, facts).to == 4
    waiting = growth.judge(10.8, 2, 4, replace(facts, starting=2))
    assert (waiting.grow, waiting.not_before) == (False, 13.0)
    assert waiting.why == "2 more are starting: one resize is better than two"
    assert growth.judge(13.0, 2, 4, replace(facts, starting=2)).grow


def test_nobody_is_waited_for_when_all_that_the_run_may_have_are_there() -> None:
    facts = Facts(first_ready=10.0, last_ready=10.2, starting=1, largest=4)
    assert Rule().judge(10.2, 3, 4, facts).grow
    assert Rule().judge(10.2, 2, 3, facts).not_before == 13.0, "one is missing, and one is starting"


def test_a_policys_own_time_is_kept_also_then() -> None:
    patience = Patience.of(ElasticPolicy(sizes=(1, 2, 3, 4), scaling_timeout_s=20.0))
    verdict = Rule(patience).judge(
        10.3, 3, 4, Facts(first_ready=10.0, last_ready=10.2, starting=1, largest=4)
    )
    assert (verdict.grow, verdict.not_before) == (False, 30.2)


@pytest.mark.parametrize("seconds", [0.0, 1.0, 20.0])
def test_a_policys_own_time_is_that_for_workers_that_start_too(seconds: float) -> None:
    """It takes the place of all waits for newcomers, be it shorter or longer than they are."""
    rule = Rule(Patience.of(ElasticPolicy(sizes=(1, 2, 3, 4), scaling_timeout_s=seconds)))
    facts = Facts(first_ready=10.0, last_ready=10.0, starting=1, largest=4)
    assert rule.judge(10.0 + seconds, 2, 3, facts).grow
    assert seconds == 0 or rule.judge(10.0, 2, 3, facts).not_before == 10.0 + seconds


def test_a_verdict_has_the_numbers_that_it_was_decided_by() -> None:
    facts = Facts(
        pauses=(0.3, 0.5, 0.1),
        tenures=(Tenure(10.0, True, 0.0), Tenure(30.0, True, 0.0), Tenure(20.0, False, 0.0)),
    )
    verdict = Rule(Patience(tenure=60.0, half_life=math.inf)).judge(0.0, 4, 6, facts)
    assert verdict.grow
    assert verdict.numbers == {
        "world": 4,
        "possible": 6,
        "expected_tenure_s": 40.0,  # (60 + 10 + 30 + 20) / (1 + 2)
        "gain": 0.5,
        "cost_s": 0.6,  # twice the median pause
        "worth_s": 20.0,
        "strikes": 0.0,
    }
    assert verdict.why == "it pays: expected tenure x gain is more than the cost"


def test_it_does_not_grow_when_it_would_not_pay_and_says_when_it_may() -> None:
    """Twenty replicas left after 2 s each; a resize costs 10 s; those that are there now prove themselves."""
    tenures = (*(Tenure(2.0, True, 0.0) for _ in range(20)), Tenure(5.0, False, 0.0), Tenure(5.0, False, 0.0))
    facts = Facts(pauses=(10.0,), tenures=tenures)
    patience = Patience(tenure=10.0, half_life=math.inf)
    verdict = Rule(patience).judge(100.0, 2, 3, facts)
    assert not verdict.grow
    assert verdict.numbers["worth_s"] == pytest.approx(2.857 * 0.5, abs=0.001)
    assert verdict.numbers["cost_s"] == 20.0
    assert verdict.why == "it would not pay: expected tenure x gain is less than the cost"
    assert verdict.why == Rule(patience).judge(100.1, 2, 3, facts).why, "the same verdict is no news"
    # 40 s x 21 that ended - 60 s that were seen, by the two that are there
    assert verdict.not_before == pytest.approx(100.0 + (40 * 21 - 60) / 2)
    later = replace(facts, tenures=(*tenures[:20], Tenure(396.0, False, 0.0), Tenure(396.0, False, 0.0)))
    assert Rule(patience).judge(491.0, 2, 3, later).grow


def test_a_size_that_was_measured_to_be_no_faster_is_not_taken() -> None:
    rates = {6: Rate(60_000, 600), 7: Rate(60_000, 600)}
    verdict = Rule(Patience(rate_seconds=0.0)).judge(0.0, 6, 7, Facts(rates=rates))
    assert (verdict.grow, verdict.not_before, verdict.numbers["gain"]) == (False, None, 0.0)
    short = {6: Rate(100, 1), 7: Rate(100, 1)}
    assert Rule().judge(0.0, 6, 7, Facts(rates=short)).grow, "a second's measurement does not decide"


def test_a_run_that_is_nearly_over_does_not_grow() -> None:
    facts = Facts(pauses=(1.0,), remaining=3.0)
    assert not Rule().judge(0.0, 4, 5, facts).grow
    assert Rule().judge(0.0, 4, 5, replace(facts, remaining=9.0)).grow


def test_nobody_stays_beyond_the_runs_time_limit() -> None:
    """Four workers, a fifth: a quarter faster, for the 3 s that `--time` leaves, at a cost of 2 s."""
    facts = Facts(pauses=(1.0,), time_left=3.0, remaining=900.0)
    verdict = Rule().judge(0.0, 4, 5, facts)
    assert (verdict.grow, verdict.not_before) == (False, None), "waiting makes it no better"
    numbers = {each: verdict.numbers[each] for each in ("expected_tenure_s", "time_left_s", "worth_s")}
    assert numbers == {"expected_tenure_s": 3.0, "time_left_s": 3.0, "worth_s": 0.75}
    assert Rule().judge(0.0, 4, 5, replace(facts, time_left=9.0)).grow
    assert not Rule().judge(0.0, 4, 5, replace(facts, time_left=9.0, remaining=3.0)).grow


def test_what_is_left_of_the_time_limit_is_asked_at_each_decision() -> None:
    payback, left = Payback(), [5.0]
    payback.history.time_left = lambda: left[0]
    payback.history.paused(1.0)
    facts = GrowthFacts(0.0, 0.0, largest=5)
    assert payback.judge(10.0, 2, 5, facts).grow
    left[0] = 1.0
    verdict = payback.judge(14.0, 2, 5, facts)
    assert (verdict.grow, verdict.numbers["time_left_s"]) == (False, 1.0)


def test_snooze() -> None:
    growth = Rule(Patience.of(ElasticPolicy((1, 2), scaling_timeout_s=30.0, scale_up_snooze_s=120.0)))
    facts = Facts(first_ready=0.0, last_ready=5.0, restarted=10.0)
    assert growth.judge(34.0, 2, 4, facts).not_before == 130.0
    assert growth.judge(130.0, 2, 4, facts).grow
    assert growth.judge(34.0, 2, 4, replace(facts, restarted=-math.inf)).not_before == 35.0


def test_back_off_doubles_and_eases_by_itself() -> None:
    growth = Rule(Patience(back_off=2.0, half_life=600.0, longest_back_off=300.0))
    three = tuple((float(t), t + 1.0) for t in (0, 10, 20))
    until, strikes = growth.back_off(Facts(growths=three), 21.0)
    assert strikes == pytest.approx(3.0, abs=0.05)
    assert until == pytest.approx(21.0 + 8.0, abs=0.3)
    much_later = (*three, (6000.0, 6001.0))
    until, strikes = growth.back_off(Facts(growths=much_later), 6001.0)
    assert strikes == pytest.approx(1.0, abs=0.01)
    assert until == pytest.approx(6003.0, abs=0.05)
    many = tuple((float(t), t + 1.0) for t in range(0, 200, 2))
    assert growth.back_off(Facts(growths=many), 200.0)[0] == 199.0 + 300.0
    slow = Facts(growths=((0.0, 60.0),))
    assert growth.back_off(slow, 60.0) == (-math.inf, 0.0), "a growth that has paid back counts for nothing"


def test_a_policy_may_limit_the_back_off_or_take_it_away() -> None:
    quick = Facts(growths=tuple((10.0 * n, 10.0 * n + 1) for n in range(8)))
    limited, never, ours = (
        Rule(Patience.of(ElasticPolicy((1, 2), back_off_limit_s=limit))) for limit in (5.0, 0.0, None)
    )
    assert limited.back_off(quick, 72.0)[0] == 71.0 + 5.0
    assert never.judge(71.5, 1, 2, quick).grow
    assert not ours.judge(71.5, 1, 2, quick).grow


def test_a_recovery_that_waited_for_hours_is_no_reason_not_to_grow() -> None:
    payback = Payback()
    payback.history.formed(0, 2, 0.0, recovered=True)
    payback.history.formed(2, 2, 10800.0, recovered=True)
    payback.history.resized(10790.0)
    verdict = payback.judge(10900.0, 2, 3, GrowthFacts(waiting_since=10895.0, last_ready=10895.0))
    assert (verdict.grow, verdict.to) == (True, 3)


def test_history_notes_tenures_rates_and_undone_growths() -> None:
    history = GrowthHistory()
    history.arrived("r1", 0.0)
    history.arrived("r2", 5.0)
    history.formed(0, 2, 1.0, recovered=False)
    history.resized(7.0)  # of the first generation: no resize
    history.formed(2, 4, 6.0, recovered=False)
    for second, samples in ((7, 0), (8, 100), (9, 200)):
        history.progressed(second, 4, samples)
    history.resized(0.3)
    history.departed("r1", 10.0, taken=True)
    history.departed("nobody", 10.0, taken=True)
    history.formed(4, 3, 10.5, recovered=True)
    history.progressed(11.0, 3, 250)
    history.progressed(12.0, 3, 300)
    facts = history.facts(20.0, starting=1)
    assert facts == Facts(
        starting=1,
        restarted=10.5,
        pauses=(0.3,),
        tenures=(Tenure(10.0, True, 10.0), Tenure(15.0, False, 20.0)),
        rates={4: Rate(200, 2.0), 3: Rate(50, 1.0)},
        growths=((6.0, 10.5),),
    )


def simulate(
    patience: Patience, high: float, low: float, pause: float, seconds: float
) -> tuple[list[float], float]:
    """A run of 4 that may have 6 while capacity is high; when it grew, and what growing brought, seconds.

    The newcomers are ready as soon as there is capacity.
    """
    history, growth = GrowthHistory(), Rule(patience)
    now, world, ready, grown, won = 0.0, 4, 0.0, [], 0.0
    while now < seconds:
        there = now % (high + low) < high
        present = bool(history.facts(now).tenures) and not history.facts(now).tenures[-1].ended
        if there and not present:
            ready = now
            for name in ("a", "b"):
                history.arrived(name, now)
        elif not there and present:
            for name in ("a", "b"):
                history.departed(name, now, taken=True)
            if world == 6:
                world = 4
                history.formed(6, 4, now, recovered=False)
                history.resized(pause)
                won -= pause
        if there and world == 4:
            facts = history.facts(now, first_ready=ready, last_ready=ready)
            if growth.judge(now, 4, 6, facts).grow:
                world = 6
                grown.append(now)
                history.formed(4, 6, now, recovered=False)
                history.resized(pause)
                won -= pause
        won += 0.5 * TICK if world == 6 else 0.0
        now += TICK
    return grown, won


PRIOR = 60.0
GAIN = 0.5  # from 4 workers to 6
WAVES = {"high": st.floats(0.5, 60.0), "low": st.floats(0.5, 60.0), "pause": st.floats(0.05, 30.0)}


@settings(max_examples=30, deadline=None)
@given(**WAVES)
def test_square_wave_capacity_back_off_alone_bounds_the_resizes(
    high: float, low: float, pause: float
) -> None:
    """With a belief in tenures that nothing shakes, each growth that is undone at once doubles the wait."""
    patience = Patience(tenure=1e12, half_life=1e9, quick=10.0)
    grown, _ = simulate(patience, high, low, pause, 900.0)
    assert len(grown) <= 900.0 / (high + low) + 1
    if high < patience.quick * 2 * pause - 2 * TICK:
        # Waits of 2, 4, 8, ... seconds, each from a loss to the next growth at the earliest.
        assert len(grown) <= 2 + math.log2(1 + 900.0 / patience.back_off)


@settings(max_examples=30, deadline=None)
@given(**WAVES)
def test_square_wave_capacity_payback_alone_stops_growing(high: float, low: float, pause: float) -> None:
    """What was seen in vain adds up: after some growths, however long it goes on, there are no more.

    The longer newcomers would have to stay than they do, the fewer.
    """
    patience = Patience(tenure=PRIOR, half_life=1e9, back_off=1e-9, longest_back_off=1e-9)
    grown, _ = simulate(patience, high, low, pause, 900.0)
    missing = 2 * pause / GAIN - high - 2 * TICK
    if missing > 0:
        assert len(grown) <= 2 + (high + PRIOR / 2) / missing


@settings(max_examples=15, deadline=None)
@given(**WAVES)
def test_square_wave_capacity_as_it_is(high: float, low: float, pause: float) -> None:
    """Both together: few resizes where each is undone at once."""
    grown, _ = simulate(Patience(tenure=PRIOR), high, low, pause, 600.0)
    if high < Patience.quick * 2 * pause - 2 * TICK:
        assert len(grown) <= 2 + math.log2(1 + 600.0 / Patience.back_off)


def test_where_growing_pays_it_is_done_in_every_wave() -> None:
    """Capacity for a minute every two, and pauses of 0.2 s: the run takes all of it but the settling."""
    grown, won = simulate(Patience(), high=60.0, low=60.0, pause=0.2, seconds=1200.0)
    assert len(grown) == 10
    assert won > 0.97 * GAIN * 600.0


def test_stable_capacity_after_a_bad_time_is_used_again() -> None:
    """Half an hour of swings that never pay, then nobody takes anything away: the run grows, and stays."""
    history, growth = GrowthHistory(), Rule(Patience(tenure=60.0))
    now = 0.0
    for _ in range(100):
        history.arrived("a", now)
        history.departed("a", now + 2.0, taken=True)
        history.resized(5.0)
        now += 18.0
    history.arrived("a", now)
    verdict = growth.judge(now + 1.0, 4, 5, history.facts(now + 1.0))
    asked = 1
    while not verdict.grow:
        assert verdict.not_before is not None
        assert verdict.not_before > now
        now = verdict.not_before
        verdict = growth.judge(now, 4, 5, history.facts(now))
        asked += 1
        assert asked < 50
    assert now < 1800.0 + 3600.0


def test_a_policys_timeouts_and_the_end_of_the_training() -> None:
    """What the coordinator's facts add to the history: who waits, and how far it is."""
    payback = Payback(ElasticPolicy((2, 4), scaling_timeout_s=20.0))
    facts = GrowthFacts(waiting_since=0.0, last_ready=10.0, rates={2: 10.0}, now_step=90, total_steps=1000)
    assert payback.judge(15.0, 2, 4, facts).not_before == 30.0
    assert payback.judge(30.0, 2, 4, facts).to == 4
    nearly_over = replace(facts, now_step=997)
    verdict = payback.judge(30.0, 2, 4, nearly_over)
    assert (verdict.grow, verdict.numbers["expected_tenure_s"]) == (False, 0.3)

"""Which faults a storm has, and what is charged to each of them. No run is started here."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench import faults
from bench.faults import LIMITS, Books, Fault, Found, goals, measure, rows
from bench.steps import Audit, Loss
from bench.storm import Left, Weathered, left, parts
from bench.strikes import KINDS, SHARES, deal, shares_on

WHOLE = Audit(100, 0, 0, ())


def test_a_storm_has_every_kind_several_times_and_mostly_workers_and_agents():
    dealt = Counter(deal(62, SHARES, random.Random(1)))
    assert dealt == SHARES
    assert set(dealt) == set(KINDS) == set(LIMITS)
    assert min(dealt.values()) >= 4
    assert dealt["worker"] + dealt["agent"] > 62 / 2
    assert set(shares_on("local")) == set(KINDS) - {"slurmd"}
    assert min(Counter(deal(62, shares_on("local"), random.Random(1))).values()) >= 4


@given(st.integers(1, 80), st.integers(0, 99))
def test_any_number_of_faults_is_dealt_in_proportion(count: int, seed: int):
    dealt = deal(count, SHARES, random.Random(seed))
    assert dealt == deal(count, SHARES, random.Random(seed))
    assert len(dealt) == count
    for kind, number in Counter(dealt).items():
        assert abs(number - count * SHARES[kind] / 62) < 1


@given(st.integers(1, 200))
def test_after_ten_faults_or_so_it_is_calm(count: int):
    found = parts([str(number) for number in range(count)])
    assert [each for part in found for each in part] == [str(number) for number in range(count)]
    lengths = [len(part) for part in found]
    assert max(lengths) - min(lengths) <= 1
    assert len(lengths) == 1 or 7 <= min(lengths) <= max(lengths) <= 13


def test_a_storm_is_held_against_the_calm_around_it():
    """The machine gets twice as slow on the way; of each storm a quarter is lost."""
    log: list[dict[str, float]] = []

    def train(seconds: float, rate: float) -> None:
        begin = log[-1]["at"] if log else 0.0
        log.extend(
            {"step": len(log) + 1, "world": 8, "at": begin + (each + 1) / rate}
            for each in range(round(seconds * rate))
        )

    for seconds, rate in ((10, 8), (40, 6), (10, 8), (40, 4.5), (10, 4), (20, 3), (10, 4)):
        train(seconds, rate)
    had = Weathered(
        (("worker", 15.0), ("agent", 65.0), ("baseline", 115.0)),
        ((10.0, 50.0), (60.0, 100.0), (110.0, 130.0)),
        ((0.0, 10.0), (50.0, 60.0), (100.0, 110.0), (130.0, 140.0)),
    )
    found = left(log, had, 1.5, 8)
    assert found.calm == (8, 8, 4, 4)
    assert found.kept == pytest.approx(0.75)
    assert (found.kinds, found.minutes) == (("worker", "agent", "baseline"), 1.5)


def test_each_fault_is_judged_by_itself():
    """Two steps for one fault are too many, however many faults had none; the worst one is named."""
    books = Books("storm", WHOLE, (("worker", 1), ("agent", 0), ("baseline", 2), ("agent", 0)))
    found = Found(
        [Fault("frozen worker", 3.1, 9.0)],
        Left(("worker", "agent"), 1.0, 0.96, Loss(0.03, 0.01)),
        {},
        [books],
    )
    told = {goal.name: goal.met for goal in goals(found)}
    assert told == {
        "training again after SIGSTOP of worker": True,
        "runs that did not come back to their size after frozen worker": True,
        "throughput kept in 2 faults in 1 minutes": True,
        "samples lost, storm": True,
        "samples doubled, storm": True,
        "steps repeated by one fault, storm (of 4, the worst: baseline)": False,
    }
    lines = [str(row["fault"]) for row in rows(found)]
    assert [row["kept"] for row in rows(found) if row["kept"] != ""] == [0.96, 0.03, 0.01]
    assert lines == [
        "SIGSTOP of worker",
        "storm: 1 worker, 1 agent",
        "lost in the storm while no step ended",
        "lost in the storm with fewer workers",
        "steps repeated by one fault, storm: at most 2 (baseline)",
    ]


def test_a_bench_that_was_broken_off_at_once_has_nothing_to_say():
    assert goals(Found()) == list(rows(Found())) == []


def test_a_part_that_does_not_come_to_its_end_takes_nothing_from_the_others(monkeypatch: pytest.MonkeyPatch):
    def hung(rig: str, *, preload: bool) -> None:
        raise TimeoutError("no 8 workers within 180 s")

    monkeypatch.setattr(faults, "start", hung)
    monkeypatch.setattr(faults, "slow_storage", lambda found: found.around.update(storage=0.1))
    found = Found()
    measure(found, "local", ("each", "around"), 1, 1.0, preload=True)
    assert {goal.name: goal.met for goal in goals(found)} == {
        "broken off: each: no 8 workers within 180 s": False,
        "stop: storage": True,
    }

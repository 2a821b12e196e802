"""The benches' own arithmetic: pauses, rates, and the books of samples."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.steps import (
    Audit,
    Loss,
    Pause,
    Tail,
    audit,
    completed,
    ledger,
    longest_gap,
    loss,
    normal_step,
    pauses,
    quantile,
    rates,
    read,
    repeats,
    since,
    unchanged,
)


def ends(*steps: tuple[float, int]) -> list[dict[str, float]]:
    """Steps that end at a time, with so many workers; numbered from 1."""
    return [{"step": number, "world": world, "at": at} for number, (at, world) in enumerate(steps, 1)]


def steady(begin: float, length: float, world: int, count: int) -> list[tuple[float, int]]:
    return [(begin + length * (place + 1), world) for place in range(count)]


def test_a_pause_is_what_the_first_step_after_took_longer_than_the_next_ones():
    log = ends(*steady(0, 1.0, 2, 4), (5.5, 4), *steady(5.5, 0.5, 4, 6), (9.75, 3), *steady(9.75, 0.75, 3, 5))
    assert list(pauses(log)) == [Pause(2, 4, 1.0, 5.5), Pause(4, 3, 0.5, 9.75)]
    assert [pause.grows for pause in pauses(log)] == [True, False]


def test_what_steps_take_longer_where_nothing_changes():
    """Five before it and five after it have its size; the first one of 2 s is too near to the change."""
    calm = ends(*steady(0, 1.0, 2, 6), (8, 2), *steady(8, 1.0, 2, 6))
    assert list(unchanged(calm)) == [0.0, 1.0, 0.0]
    changing = ends(*steady(0, 1.0, 2, 6), (8, 2), *steady(8, 1.0, 4, 20))
    assert list(unchanged(changing)) == [0.0] * 10


def test_a_pause_is_never_negative_and_not_known_without_a_next_step():
    assert list(pauses(ends((1, 2), (2, 2), (2.1, 4), (3, 4), (4, 4)))) == [Pause(2, 4, 0.0, 2.1)]
    assert list(pauses(ends((1, 2), (2, 4)))) == []
    # The steps that are compared with end where the size changes again.
    assert list(pauses(ends((0, 2), (3, 4), (4, 4), (104, 8), (105, 8)))) == [
        Pause(2, 4, 2.0, 3),
        Pause(4, 8, 99.0, 104),
    ]


def test_the_longest_gap_reaches_over_the_ends_of_the_span():
    log = ends((1, 2), (2, 2), (6, 2), (7, 2), (12, 2))
    assert longest_gap(log, 2.5, 6.5) == 4
    assert longest_gap(log, 2.5, 7.5) == 5
    assert longest_gap(log, 6.5, 6.9) == 1
    assert longest_gap(log, 20, 30) == 0
    assert [step["at"] for step in since(log, 2.5)] == [2, 6, 7, 12]


def test_rates_are_of_neighbours_of_one_size_only():
    log = ends(*steady(0, 1.0, 2, 6), (9, 4), *steady(9, 0.25, 4, 6))
    assert rates(log) == {2: 1.0, 4: 4.0}
    again = [*log, {"step": 3, "world": 4, "at": 20.0}, {"step": 3, "world": 4, "at": 29.0}]
    assert rates(again) == {2: 1.0, 4: 4.0}  # a step that is done again is no step
    assert rates(log[:4]) == {}


def test_completed_counts_a_step_that_comes_again_once():
    log = [{"step": n, "world": 2, "at": float(at)} for at, n in enumerate([1, 2, 3, 3, 4, 5])]
    assert completed(log, 0.0, 5.0) == 4
    assert completed(log, 2.5, 3.5) == 0
    assert completed(log, -1.0, 0.5) == 1


def test_what_a_span_lost_is_told_apart():
    """Of ten seconds 2.5 without a step beyond the one that was due, and six steps that took 0.25 s more."""
    log = ends(*steady(0, 0.5, 8, 10), (8.25, 7), *steady(8.25, 0.75, 7, 5), *steady(12, 0.5, 8, 8))
    assert loss(log, 5.0, 15.0, 8) == Loss(standing=0.25, smaller=0.15)
    assert loss(log, 12.0, 16.0, 8) == Loss(0, 0)
    assert loss(log, 6.0, 9.0, 8).standing == pytest.approx(1.5 / 3)  # of a stop only what is in the span
    with pytest.raises(KeyError):
        loss(log, 5.0, 15.0, 4)


def test_normal_step_is_a_median_and_needs_two():
    assert normal_step(ends((0, 2), (1, 2), (2, 2), (9, 2)), 0, 9) == 1
    with pytest.raises(ValueError, match="1 steps"):
        normal_step(ends((0, 2), (1, 2)), 0.5, 3)


def lines(*committed: list[int], fed: dict[int, list[list[int]]] | None = None) -> list[dict[str, object]]:
    told = [{"step": step, "indices": indices} for step, indices in enumerate(committed, 1)]
    parts = (fed or {step: [indices] for step, indices in enumerate(committed, 1)}).items()
    return [*told, *({"fed": step, "indices": each} for step, pieces in parts for each in pieces)]


def test_books_that_balance():
    log = lines([0, 3], [1, 2], [2, 0], [3, 1], [0, 1])
    assert audit([*log, *log[:5]], samples=4, batch=2) == Audit(5, 0, 0, ())  # several workers tell the same


def test_a_sample_that_takes_the_place_of_another_is_lost_and_doubled():
    assert audit(lines([0, 3], [1, 0]), samples=4, batch=2) == Audit(2, 1, 1, ())
    assert audit(lines([0, 0]), samples=4, batch=2) == Audit(1, 1, 1, (1,))


def test_a_step_that_nobody_committed_is_lost():
    log = [line for line in lines([0, 3], [1, 2], [2, 0]) if line.get("step") != 2]
    assert audit(log, samples=4, batch=2) == Audit(2, 2, 0, ())


def test_workers_that_tell_of_different_samples_in_a_step_are_found():
    log = [*lines([0, 3], [1, 2]), {"step": 2, "indices": [1, 3]}]
    assert audit(log, samples=4, batch=2).doubled == 2


def test_what_is_committed_without_having_been_fed_for_that_step_is_lost():
    log = lines([0, 3], [1, 2], fed={1: [[0], [3]], 2: [[1]], 3: [[2]]})
    assert audit(log, samples=4, batch=2) == Audit(2, 1, 0, ())


def test_what_was_fed_for_a_step_that_is_committed_while_the_books_are_read_is_seen(tmp_path: Path):
    def tell(name: str, line: dict[str, object]) -> None:
        with (tmp_path / f"{name}.ledger").open("a") as file:
            file.write(json.dumps(line) + "\n")

    tell("a", {"step": 1, "indices": [0, 1]})
    tell("b", {"step": 1, "indices": [0, 1]})
    told = ledger(tmp_path)
    found = [next(told), next(told)]  # all of `a` and `b` but what comes now
    for name, index in (("a", 0), ("b", 1)):
        tell(name, {"fed": 1, "indices": [index]})
    assert audit([*found, *told], samples=2, batch=2) == Audit(1, 0, 0, ())


def test_what_workers_of_one_generation_are_fed_twice_for_a_step_is_doubled():
    told = [{"step": 1, "indices": [0, 3]}]
    parts = [(1, [0]), (1, [3]), (2, [3])]  # of the second generation: begun again, and no more than that
    log = [*told, *({"fed": 1, "indices": indices, "in": number} for number, indices in parts)]
    assert audit(log, samples=2, batch=2) == Audit(1, 0, 0, (1,))
    log.append({"fed": 1, "indices": [3], "in": 2})
    assert audit(log, samples=2, batch=2) == Audit(1, 0, 1, (1,))


def test_steps_that_were_begun_again():
    log = lines([0, 3], [1, 2], fed={1: [[0], [3]], 2: [[1], [2], [1]]})
    assert audit(log, samples=4, batch=2) == Audit(2, 0, 0, (2,))


def fed(*parts: tuple[float, int, list[int]]) -> list[dict[str, object]]:
    return [{"at": at, "fed": step, "indices": indices} for at, step, indices in parts]


def test_a_step_that_is_begun_again_is_charged_to_the_last_fault_before():
    log = fed(
        (1.0, 1, [0]), (1.0, 1, [1]), (2.0, 2, [2]),  # until here in peace
        (3.1, 2, [2]), (3.2, 2, [2]), (4.0, 3, [3]),  # the step in flight, twice over: one step
        (5.5, 2, [2]), (5.6, 3, [3]), (6.0, 4, [4]),  # and two steps for the second fault
    )  # fmt: skip
    assert repeats([*log[4:], *log[:4], {"step": 1, "indices": [0, 1]}], [3.0, 5.0, 7.0]) == [
        {2},
        {2, 3},
        set(),
    ]
    assert repeats(log, [5.0]) == [{2, 3}]
    assert repeats(log, []) == []


@given(st.lists(st.floats(0, 1e6), min_size=1), st.floats(0.01, 1))
def test_a_quantile_is_one_of_the_values_that_enough_do_not_exceed(values: list[float], share: float):
    found = quantile(values, share)
    assert found in values
    assert sum(value <= found for value in values) >= share * len(values) - 1e-9
    assert sum(value < found for value in values) < share * len(values)


def test_a_tail_reads_each_line_once_and_only_whole_ones(tmp_path: Path):
    tail = Tail(tmp_path)
    assert tail.look() == []
    (tmp_path / "b.steps").write_text('{"step": 2, "at": 2.0}\n{"step"')
    (tmp_path / "a.steps").write_text('{"step": 1, "at": 1.0}\n')
    assert [line["step"] for line in tail.look()] == [1, 2]
    with (tmp_path / "b.steps").open("a") as file:
        file.write(': 3, "at": 3.0}\n')
    assert [line["step"] for line in tail.look()] == [1, 2, 3] == [line["step"] for line in read(tmp_path)]
    (tmp_path / "a.ledger").write_text(json.dumps({"fed": 1, "indices": [1]}) + '\n{"fed": 2, "ind')
    assert list(ledger(tmp_path)) == [{"fed": 1, "indices": [1]}]

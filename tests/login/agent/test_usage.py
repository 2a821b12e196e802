"""What people use, between two looks at their processes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpctools.login.agent import usage as module
from hpctools.login.agent.processes import TICKS, Process
from hpctools.login.agent.usage import Usage, usage
from tests.login.node_processes import process


def test_processors_and_memory_of_each_person() -> None:
    """10 s: one process ran 5 s, a new one 10 s; root's and ignored programs do not count."""
    before = [process(1, uid=0, ticks=0), process(2, ticks=100), process(3, uid=1002, name="rsync")]
    after = [
        process(1, uid=0, ticks=900),
        process(5, uid=65534, ticks=900),
        process(2, ticks=100 + 5 * TICKS, memory=7),
        process(4, ticks=10 * TICKS, memory=5, name="julia"),
        process(3, uid=1002, ticks=999, name="rsync"),
    ]
    assert usage(before, after, 10.0, ("rsync",)) == {1000: Usage(1.5, 12, "julia (process 4)")}


def test_a_child_that_has_ended_is_not_counted_twice() -> None:
    """A compiler ran 3 s before the first look and 1 s after it; then its parent has all 4 s."""
    before = [process(1, ticks=0, name="make"), process(2, 1, ticks=3 * TICKS)]
    after = [process(1, ticks=4 * TICKS, inherited=4 * TICKS, name="make")]
    assert usage(before, after, 2.0) == {1000: Usage(0.5, 0, "make (process 1)")}


def test_nor_is_one_whose_parent_has_ended_with_it() -> None:
    """A wrapper and its program, 60 s old, end between two looks; their shell has inherited all of it."""
    shell, wrapper = process(1, 0, name="bash"), process(2, 1, name="timeout")
    before = [shell, wrapper, process(3, 2, ticks=60 * TICKS)]
    after = [process(1, 0, ticks=65 * TICKS, inherited=65 * TICKS, name="bash")]
    assert usage(before, after, 10.0) == {1000: Usage(0.5, 0, "bash (process 1)")}


def test_what_init_has_inherited_is_taken_off_nobody() -> None:
    """A program that outlived its parent is gone: its former shell has nothing of it."""
    before = [process(2, ticks=0, name="bash"), process(3, 2), process(4, 3, ticks=60 * TICKS)]
    after = [process(2, ticks=5 * TICKS, name="bash")]
    assert usage(before, after, 10.0) == {1000: Usage(0.5, 0, "bash (process 2)")}


def test_a_make_is_not_counted_for_its_compilers() -> None:
    """Of sixteen at a time most begin and end between two looks: make has theirs, and 1 s of its own."""
    make, driver = process(2, name="make"), process(3, 2, name="g++")
    before = [make, driver, process(4, 3, ticks=2 * TICKS, name="cc1plus")]
    after = [process(2, ticks=161 * TICKS, inherited=160 * TICKS, name="make"), process(5, 2, name="g++")]
    after.append(process(6, 5, ticks=5 * TICKS, name="cc1plus"))
    assert usage(before, after, 10.0, ("cc1plus",)) == {1000: Usage(0.1, 0, "make (process 2)")}
    shell = process(1, 0, ticks=161 * TICKS, inherited=161 * TICKS, name="bash")  # the build is done
    assert usage([process(1, 0, name="bash"), *after], [shell], 10.0, ("cc1plus",))[1000].cpus == 0.0


def test_another_process_with_the_same_number_is_another() -> None:
    before = [process(2, ticks=500, started=1)]
    after = [process(2, ticks=TICKS, started=2)]
    assert usage(before, after, 1.0)[1000].cpus == 1.0


@pytest.mark.parametrize(("left", "name"), [(600, "rsync"), (1, "sh")])
def test_each_of_many_processes_one_below_the_other_is_looked_at_few_times(
    monkeypatch: pytest.MonkeyPatch, left: int, name: str
) -> None:
    """Of ignored programs, and of those that end together, each climbed to the top: 4,000 took seconds."""
    steps, above = [], module._above

    def counted(*words: Any) -> Iterator[Process]:
        for each in above(*words):
            steps.append(each)
            yield each

    monkeypatch.setattr(module, "_above", counted)
    chain = [process(2 + n, 1 + n, name=name, ticks=TICKS) for n in range(600)]
    after = [process(2, 1, name=name, ticks=600 * TICKS, inherited=599 * TICKS), *chain[1:left]]
    found = usage(chain, after, 1.0, ("rsync",))
    assert found == ({1000: Usage(0.0, 0)} if name == "sh" else {})
    assert len(steps) < 3000


@given(st.lists(st.tuples(st.integers(2, 6), st.integers(0, 500)), max_size=8), st.floats(0.1, 100))
def test_nobody_uses_less_than_nothing(ticks: list[tuple[int, int]], seconds: float) -> None:
    before = [process(pid, ticks=count) for pid, count in dict(ticks).items()]
    assert all(each.cpus >= 0 for each in usage(before, before[1:], seconds).values())

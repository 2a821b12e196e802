"""When nodes that were given up for somebody are asked for again."""

from __future__ import annotations

from hpctools.elastic.yielding import LATE_SECONDS, START_SECONDS, Yielding


def test_nobody_on_the_way_out_nothing_to_wait_for() -> None:
    yielding = Yielding(grace=8.0)
    assert not yielding.lasts(0.0)
    yielding.went(7, "r7", 0.0)  # was not asked to leave: it crashed
    assert not yielding.lasts(0.0)


def test_it_lasts_until_the_last_agent_has_gone_and_slurm_has_had_time() -> None:
    yielding = Yielding(grace=8.0)
    yielding.leaves(7, "r7", 0.0)
    yielding.leaves(7, "r7.1", 0.0)
    yielding.went(7, "r7", 1.0)
    assert yielding.lasts(1.0 + START_SECONDS + 1)
    yielding.went(7, "r7.1", 6.0)
    assert yielding.lasts(6.0 + START_SECONDS - 0.1)
    assert not yielding.lasts(6.0 + START_SECONDS)


def test_it_is_over_when_the_nodes_are_known_to_be_taken() -> None:
    yielding = Yielding(grace=8.0)
    for job in (7, 8):
        yielding.leaves(job, f"r{job}", 0.0)
        yielding.went(job, f"r{job}", 1.0)
    yielding.taken(7)
    assert yielding.lasts(1.5)
    yielding.taken(8)
    assert not yielding.lasts(1.5)


def test_who_never_goes_is_not_waited_for_for_ever() -> None:
    yielding = Yielding(grace=8.0)
    yielding.leaves(7, "r7", 0.0)
    yielding.leaves(7, "r7", 30.0)  # told again: counts from the first time
    assert yielding.lasts(8.0 + LATE_SECONDS - 0.1)
    assert not yielding.lasts(8.0 + LATE_SECONDS)

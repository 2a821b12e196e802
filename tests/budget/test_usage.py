from __future__ import annotations

from collections.abc import Callable
from datetime import date

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpctools.budget.month import Month, day_start
from hpctools.budget.tree import BudgetSite, NodeGroup
from hpctools.budget.usage import NANO, Usage, measure
from hpctools.slurm.accounting import JobRecord

MONTH = Month(2026, 11)
START = day_start(MONTH.start)
END = day_start(MONTH.end)
MakeJob = Callable[..., JobRecord]
MakeSite = Callable[..., BudgetSite]


def node_seconds(usage: Usage) -> dict[tuple[str, date, int], float]:
    """Node-seconds by group, day and accounting index."""
    return {
        (group, day, job.dbindex): used / NANO
        for (group, day), jobs in usage.items()
        for job, used in jobs.items()
    }


def test_a_job_across_midnight_counts_on_both_days(
    make_site: MakeSite, make_job: MakeJob, midnight: int, day: date
) -> None:
    job = make_job(1, midnight - 600, midnight + 900)
    assert node_seconds(measure([job], make_site(), MONTH, END)) == {
        ("big", date(2026, 11, 9), 1): 600,
        ("big", day, 1): 900,
    }


def test_a_job_across_months_counts_once_in_each(make_site: MakeSite, make_job: MakeJob) -> None:
    # PySlurm issue 319: a job that crosses a month was counted whole in both.
    job = make_job(1, START - 100, START + 50)
    october = measure([job], make_site(), MONTH.previous, END)
    november = measure([job], make_site(), MONTH, END)
    assert sum(node_seconds(october).values()) == 100
    assert sum(node_seconds(november).values()) == 50


def test_a_running_job_counts_until_now(
    make_site: MakeSite, make_job: MakeJob, midnight: int, day: date
) -> None:
    usage = measure([make_job(1, midnight, None)], make_site(), MONTH, midnight + 30)
    assert node_seconds(usage) == {("big", day, 1): 30}
    assert [job.running for job in usage["big", day]] == [True]


@pytest.mark.parametrize(
    ("got", "share"),
    [
        ({"cpus": 24, "memory_mb": 0, "gpus": 0}, 0.25),
        ({"cpus": 24, "memory_mb": 500, "gpus": 0}, 0.5),
        ({"cpus": 24, "memory_mb": 500, "gpus": 6}, 0.75),
        ({"cpus": 0, "memory_mb": 0, "gpus": 0}, 0),
    ],
)
def test_the_largest_fraction_of_the_node_counts(
    make_site: MakeSite, make_job: MakeJob, midnight: int, got: dict[str, int], share: float
) -> None:
    usage = measure([make_job(1, midnight, midnight + 100, **got)], make_site(), MONTH, END)
    assert sum(node_seconds(usage).values()) == share * 100


def test_shards_are_parts_of_gpus(make_site: MakeSite, make_job: MakeJob, midnight: int) -> None:
    job = make_job(1, midnight, midnight + 100, nodes="small-1", cpus=1, memory_mb=1, gpus=0, shards=4)
    assert sum(node_seconds(measure([job], make_site(), MONTH, END)).values()) == 25


def test_a_job_is_spread_evenly_where_that_fits(
    make_site: MakeSite, make_job: MakeJob, midnight: int, day: date
) -> None:
    job = make_job(1, midnight, midnight + 100, nodes="big-[1-2]", cpus=48, memory_mb=0, gpus=8)
    assert node_seconds(measure([job], make_site(), MONTH, END)) == {("big", day, 1): 100}


def test_unlike_nodes_are_filled_by_their_size_where_an_even_spread_does_not_fit(
    make_site: MakeSite, make_job: MakeJob, midnight: int, day: date
) -> None:
    # 12 GPUs on a node of 8 and one of 4 are both nodes whole; 6 each would not fit on the smaller.
    job = make_job(1, midnight, midnight + 100, nodes="big-1,small-1", cpus=144, memory_mb=0, gpus=12)
    assert node_seconds(measure([job], make_site(), MONTH, END)) == {
        ("big", day, 1): 100,
        ("small", day, 1): 100,
    }


def test_over_subscription_is_scaled_to_the_node_while_it_lasts(
    make_site: MakeSite, make_job: MakeJob, midnight: int, day: date
) -> None:
    # Alone for 100 s, then three quarters and a whole share one node for 70 s: 3/7 and 4/7 of it.
    jobs = [
        make_job(1, midnight, midnight + 170, gpus=6, cpus=1, memory_mb=1),
        make_job(2, midnight + 100, midnight + 170),
    ]
    assert node_seconds(measure(jobs, make_site(), MONTH, END)) == pytest.approx(
        {("big", day, 1): 75 + 30, ("big", day, 2): 40}
    )


def test_pending_jobs_unknown_nodes_and_login_nodes_use_nothing(
    make_site: MakeSite, make_job: MakeJob, midnight: int
) -> None:
    jobs = [
        make_job(1, None, None, nodes=""),
        make_job(2, midnight, midnight + 5, nodes="elsewhere-1"),
        make_job(3, midnight, midnight + 5, nodes="login-1"),
        make_job(4, midnight, midnight),
    ]
    assert measure(jobs, make_site(), MONTH, END) == {}


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(
            st.integers(START - 90_000, END + 90_000),
            st.integers(0, 400_000),
            st.integers(0, 200),
            st.integers(0, 20),
        ),
        max_size=8,
    )
)
def test_a_node_is_never_used_more_than_it_exists(
    make_job: MakeJob, jobs: list[tuple[int, int, int, int]]
) -> None:
    group = NodeGroup("n", "compute", ("n-1",), 1, cpus=64, memory_mb=100, gpus=8)
    site = BudgetSite("uni", (), (group,))
    records = [
        make_job(number, start, start + length, cpus=cpus, gpus=gpus, nodes="n-1", memory_mb=1)
        for number, (start, length, cpus, gpus) in enumerate(jobs)
    ]
    usage = measure(records, site, MONTH, END)
    assert usage == measure(records[::-1], site, MONTH, END)
    for (_, day), used in usage.items():
        assert Month.of(day) == MONTH
        assert 0 < sum(used.values()) <= 86400 * NANO

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import date
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpctools.budget.attribution import Coverage, Line, attribute
from hpctools.budget.bill import BillRow
from hpctools.budget.money import total
from hpctools.budget.month import Month, day_start
from hpctools.budget.tree import BudgetSite, NodeGroup, Weights
from hpctools.budget.usage import NANO
from hpctools.errors import BudgetError
from hpctools.slurm.accounting import JobRecord

MONTH = Month(2026, 11)
START = day_start(MONTH.start)
END = day_start(MONTH.end)
Make = Callable[..., Any]


def amounts(lines: Sequence[Line]) -> dict[tuple[str, str, int], Decimal]:
    """Amounts by kind, account and accounting index."""
    return {(line.key.kind, line.key.account, line.key.dbindex): line.amount for line in lines}


def test_a_day_of_two_nodes_is_divided_by_time_and_share(
    make_site: Make, make_job: Make, make_row: Make, midnight: int
) -> None:
    # 48 node-hours for 480 USD. A node for 6 h and half a node for 12 h: 60 USD each; 36 node-hours are idle.
    jobs = [
        make_job(1, midnight, midnight + 6 * 3600),
        make_job(
            2,
            midnight,
            midnight + 12 * 3600,
            account="cv",
            user="cv1",
            nodes="big-2",
            cpus=48,
            gpus=4,
            memory_mb=1,
        ),
    ]
    result = attribute([make_row()], jobs, make_site(), MONTH, END)
    assert amounts(result.lines) == {
        ("attributed", "nlp-a", 1): 60,
        ("attributed", "cv", 2): 60,
        ("idle", "", 0): 360,
    }
    assert not result.estimated
    assert result.coverage == {
        "cv": Coverage(6 * 3600 * NANO, 6 * 3600 * NANO),
        "nlp-a": Coverage(6 * 3600 * NANO, 6 * 3600 * NANO),
    }


def test_idle_cost_goes_to_the_users_of_the_group_where_the_site_says_so(
    make_site: Make, make_job: Make, make_row: Make, midnight: int, day: date
) -> None:
    jobs = [
        make_job(1, midnight, midnight + 6 * 3600),
        make_job(2, midnight, midnight + 6 * 3600, nodes="big-2"),
        make_job(3, midnight + 7 * 3600, midnight + 11 * 3600, account="cv", user="cv1"),
    ]
    unused_day = make_row("48", day=date(2026, 11, 11))
    result = attribute([make_row(), unused_day], jobs, make_site(idle="proportional"), MONTH, END)
    # 12 and 4 node-hours were used: 160 USD; the other 320 follow 3 to 1. The day without users stays idle.
    assert amounts([line for line in result.lines if line.key.day == day]) == {
        ("attributed", "nlp-a", 1): 60,
        ("attributed", "nlp-a", 2): 60,
        ("attributed", "cv", 3): 40,
        ("idle", "nlp-a", 0): 240,
        ("idle", "cv", 0): 80,
    }
    assert amounts([line for line in result.lines if line.key.day != day]) == {("idle", "", 0): 48}


@pytest.mark.parametrize("state", ["COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "PREEMPTED"])
def test_jobs_are_charged_whatever_became_of_them(
    make_site: Make, make_job: Make, make_row: Make, midnight: int, state: str
) -> None:
    job = make_job(1, midnight, midnight + 86400, nodes="big-[1-2]", state=state, cpus=192, gpus=16)
    assert amounts(attribute([make_row()], [job], make_site(), MONTH, END).lines) == {
        ("attributed", "nlp-a", 1): 480
    }


def test_what_has_no_compute_group_is_shared_or_untagged(make_site: Make, make_row: Make) -> None:
    rows = [
        make_row("10", node_group="login"),
        make_row("5", node_group="", usage="Dollar"),
        make_row("-1", node_group="", usage="Refund"),
        make_row("7", node_group="retired-group"),
    ]
    lines = attribute(rows, [], make_site(), MONTH, END).lines
    assert [(line.key.node_group, line.key.kind, line.amount) for line in lines] == [
        ("", "untagged", 4),
        ("login", "shared", 10),
        ("retired-group", "untagged", 7),
    ]


def test_without_billed_hours_the_always_on_nodes_are_the_whole(
    make_site: Make, make_job: Make, make_row: Make, midnight: int
) -> None:
    row = make_row("480", node_hours=Decimal(0))
    job = make_job(1, midnight, midnight + 3600)
    # Until 06:00 two nodes are 12 node-hours, one of them used.
    result = attribute([row], [job], make_site(), MONTH, midnight + 6 * 3600)
    assert amounts(result.lines) == {("attributed", "nlp-a", 1): 40, ("idle", "", 0): 440}


def test_jobs_that_held_more_than_was_billed_bear_all_of_it(
    make_site: Make, make_job: Make, make_row: Make, midnight: int
) -> None:
    row = make_row("480", node_hours=Decimal(1))
    job = make_job(1, midnight, midnight + 7200)
    assert amounts(attribute([row], [job], make_site(), MONTH, END).lines) == {
        ("attributed", "nlp-a", 1): 480
    }


@pytest.mark.parametrize("state", ["RUNNING", "COMPLETED"])
def test_a_running_job_makes_the_month_estimated(
    make_site: Make, make_job: Make, make_row: Make, midnight: int, state: str
) -> None:
    """So does one of which slurmdbd knows how it ended, and not yet when."""
    job = make_job(1, midnight, None, state=state)
    result = attribute([make_row()], [job], make_site(), MONTH, midnight + 3600)
    assert result.estimated
    assert [line.provisional for line in result.lines if line.key.kind == "attributed"] == [True]


def test_an_estimated_bill_makes_the_month_estimated(make_site: Make, make_row: Make) -> None:
    assert attribute([make_row(estimated=True)], [], make_site(), MONTH, END).estimated


def test_use_before_the_bill_arrives_is_not_covered(
    make_site: Make, make_job: Make, make_row: Make, midnight: int
) -> None:
    jobs = [make_job(1, midnight, midnight + 100), make_job(2, midnight + 86400, midnight + 86400 + 300)]
    result = attribute([make_row()], jobs, make_site(), MONTH, END)
    assert result.coverage == {"nlp-a": Coverage(100 * NANO, 400 * NANO)}


def test_a_recycled_job_id_is_another_job(
    make_site: Make, make_job: Make, make_row: Make, midnight: int
) -> None:
    jobs = [
        make_job(1, midnight, midnight + 3600, job_id=7),
        make_job(2, midnight + 7200, midnight + 10800, job_id=7, account="cv"),
    ]
    assert amounts(attribute([make_row()], jobs, make_site(), MONTH, END).lines) == {
        ("attributed", "nlp-a", 1): 10,
        ("attributed", "cv", 2): 10,
        ("idle", "", 0): 460,
    }


def test_currencies_of_one_day_are_divided_each_for_itself(
    make_site: Make, make_job: Make, make_row: Make, midnight: int
) -> None:
    rows = [make_row("480"), make_row("48", currency="EUR", usage="Marketplace", node_hours=Decimal(0))]
    result = attribute(rows, [make_job(1, midnight, midnight + 12 * 3600)], make_site(), MONTH, END)
    assert [(line.key.kind, line.key.currency, line.amount) for line in result.lines] == [
        ("attributed", "EUR", 12),
        ("attributed", "USD", 120),
        ("idle", "EUR", 36),
        ("idle", "USD", 360),
    ]


def test_two_metrics_count_the_same_money_twice_and_are_refused(make_site: Make, make_row: Make) -> None:
    with pytest.raises(BudgetError, match="mixes the cost measures NetAmortizedCost, UnblendedCost"):
        attribute([make_row(), make_row(metric="UnblendedCost")], [], make_site(), MONTH, END)


def test_a_row_of_another_month_is_refused(make_site: Make, make_row: Make) -> None:
    with pytest.raises(BudgetError, match="the bill of 2026-12 has a row of 2026-11-10"):
        attribute([make_row()], [], make_site(), MONTH.next, END)


groups = st.sampled_from(["big", "small", "login", "", "gone"])
bills = st.lists(
    st.builds(
        lambda day, group, usage, currency, amount, hours, estimated: BillRow(
            "aws-ce", MONTH.days[day], group, usage, "NetAmortizedCost", currency, amount, hours, estimated
        ),
        st.integers(8, 11),
        groups,
        st.sampled_from(["a", "b"]),
        st.sampled_from(["USD", "EUR"]),
        st.decimals(-(10**20), 10**20, places=10),
        st.decimals(0, 100, places=4),
        st.booleans(),
    ),
    max_size=12,
    unique_by=lambda row: (row.day, row.node_group, row.usage, row.currency),
)
_NODES = ["big-1", "big-[1-2]", "big-2,small-1", "small-1", "login-1", "elsewhere", ""]
jobs_of_a_week = st.lists(
    st.tuples(
        st.integers(START + 7 * 86400, START + 12 * 86400),
        st.one_of(st.none(), st.integers(0, 200_000)),
        st.sampled_from(["nlp-a", "nlp-b", "cv", "unknown"]),
        st.sampled_from(_NODES),
        st.integers(0, 300),
        st.integers(0, 20),
        st.integers(0, 20),
    ),
    max_size=8,
)


@settings(max_examples=200, deadline=None)
@given(bills, jobs_of_a_week, st.sampled_from(["unallocated", "proportional"]), st.randoms())
def test_every_bill_is_conserved_whatever_the_jobs_and_their_order(
    make_site: Make, make_job: Make, bill: list[BillRow], week: list[Any], idle: str, random: Any
) -> None:
    jobs: list[JobRecord] = [
        make_job(
            n,
            start,
            None if length is None else start + length,
            account=account,
            nodes=nodes,
            cpus=cpus,
            gpus=gpus,
            shards=shards,
        )
        for n, (start, length, account, nodes, cpus, gpus, shards) in enumerate(week)
    ]
    site: BudgetSite = make_site(idle=idle)
    result = attribute(bill, jobs, site, MONTH, START + 12 * 86400)

    for currency in ("USD", "EUR"):
        assert total(line.amount for line in result.lines if line.key.currency == currency) == total(
            row.amount for row in bill if row.currency == currency
        )
    for line in result.lines:
        assert line.amount != 0
        assert (line.key.kind == "attributed") == bool(line.key.cluster)
    assert len({line.key for line in result.lines}) == len(result.lines)
    shuffled_bill, shuffled_jobs = random.sample(bill, len(bill)), random.sample(jobs, len(jobs))
    assert attribute(shuffled_bill, shuffled_jobs, site, MONTH, START + 12 * 86400) == result


def test_a_month_without_any_bill_is_not_final(make_site: Make) -> None:
    assert attribute([], [], make_site(), MONTH, END).estimated


def test_burst_nodes_that_idle_past_midnight_are_charged_to_those_who_started_them(
    make_site: Make, make_job: Make, make_row: Make, midnight: int
) -> None:
    """Two jobs on the day before, one twice as long; on the day itself nothing ran there."""
    burst = [NodeGroup("big", "compute", ("big-1", "big-2"), 0, cpus=96, memory_mb=1000, gpus=8)]
    jobs = [
        make_job(1, midnight - 7200, midnight - 3600),
        make_job(2, midnight - 7200, midnight, account="cv", user="cv1", nodes="big-2"),
    ]

    def idle(**rules: Any) -> dict[str, Decimal]:
        site = make_site(node_groups=tuple(burst), **rules)
        lines = attribute([make_row("30")], jobs, site, MONTH, END).lines
        assert {line.key.kind for line in lines} == {"idle"}
        return {line.key.account: line.amount for line in lines}

    assert idle(burst=True) == {"nlp-a": 10, "cv": 20}
    assert idle() == idle(idle="proportional") == {"": 30}


def test_a_part_of_a_node_counts_as_much_as_the_site_says(
    make_site: Make, make_job: Make, make_row: Make, midnight: int
) -> None:
    """A quarter of the processors, all of the memory, half of the GPUs of one of two nodes, all day."""
    job = make_job(1, midnight, midnight + 86400, cpus=24, memory_mb=1000, gpus=4)

    def cost(**weights: int) -> Decimal:
        site = make_site(weights=Weights(**weights))
        lines = attribute([make_row("480")], [job], site, MONTH, END).lines
        return total(line.amount for line in lines if line.key.kind == "attributed")

    assert cost() == 240
    assert cost(memory=75) == 180
    assert cost(memory=0) == 120
    assert cost(memory=0, gpu=0) == 60
    assert cost(memory=0, gpu=10, cpu=80) == 48

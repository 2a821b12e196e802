"""The columns against the one-by-one attribution: the same parts for every bill and every set of jobs."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hpctools.budget.attribution import Attribution, Coverage, Line, LineKey, attribute
from hpctools.budget.attribution_table import DayBill, amount, day_bills, divide_day, used_on
from hpctools.budget.bill import BillRow
from hpctools.budget.bill_table import frame_of
from hpctools.budget.money import total
from hpctools.budget.month import Month, day_start
from hpctools.budget.tree import Account, BudgetSite, NodeGroup, Weights
from hpctools.budget.usage_table import Layout
from hpctools.errors import BudgetError
from hpctools.slurm.accounting import JobRecord
from hpctools.slurm.accounting_table import from_records

EMPTY = DayBill({}, {})
MONTH = Month(2026, 11)
START = day_start(MONTH.start)
GROUPS = (
    NodeGroup("big", "compute", ("big-1", "big-2"), 2, cpus=96, memory_mb=1000, gpus=8),
    NodeGroup("small", "compute", ("small-1",), 0, cpus=48, memory_mb=500, gpus=4, shards=16),
    NodeGroup("login", "shared", ("login-1",), 1, cpus=16, memory_mb=64),
)
ACCOUNTS = (
    Account("cv", "department", "root", fair_share=3),
    Account("cv-a", "lab", "cv"),
    Account("nlp", "department", "root", fair_share=5),
)
NODES = ["big-1", "big-[1-2]", "big-2,small-1", "small-1", "login-1", "big-1,elsewhere", "elsewhere", ""]

bills = st.lists(
    st.builds(
        lambda day, group, currency, capacity, money, hours: BillRow(
            "aws-ce", MONTH.days[day], group, "u", "m", currency, money, hours, capacity=capacity
        ),
        st.integers(0, 2),
        st.sampled_from(["big", "small", "login", "", "gone"]),
        st.sampled_from(["USD", "EUR"]),
        st.sampled_from(["", "spot"]),
        st.one_of(st.decimals(-1000, 100_000, places=10), st.decimals(-(10**20), 10**20, places=3)),
        st.one_of(st.just(Decimal(0)), st.decimals(0, 100, places=4)),
    ),
    max_size=12,
)
histories = st.lists(
    st.tuples(
        st.integers(START - 90_000, START + 3 * 86400),
        st.one_of(st.none(), st.integers(0, 200_000)),
        st.sampled_from(["nlp", "cv", "cv-a", "unknown"]),
        st.sampled_from(NODES),
        st.integers(0, 300),
        st.integers(0, 1200),
        st.integers(0, 20),
        st.integers(0, 20),
    ),
    max_size=10,
)
percents = st.sampled_from([0, 1, 50, 100])
sites = st.builds(
    lambda idle, rule, burst, owners, weights: BudgetSite(
        "uni",
        ACCOUNTS,
        GROUPS,
        idle,
        pools={"login": rule},
        burst=burst,
        owners={"big": owners},
        weights=weights,
    ),
    st.sampled_from(["unallocated", "proportional", "partition-owner"]),
    st.sampled_from(["unallocated", "equally", "by-use", "by-fair-share"]),
    st.booleans(),
    st.sampled_from([(), ("nlp",), ("cv", "nlp")]),
    st.one_of(st.just(Weights()), st.builds(Weights, percents, percents, percents)),
)


def records(history: list[Any]) -> list[JobRecord]:
    return [
        JobRecord(
            cluster="uni",
            dbindex=number,
            job_id=number % 3,
            user=f"user{number % 2}",
            account=account,
            partition="p",
            qos="q",
            submitted=start,
            start=start,
            end=None if length is None else start + length,
            suspended_seconds=0,
            state="RUNNING" if length is None else "FAILED",
            cpus=cpus,
            memory_mb=memory,
            gpus=gpus,
            shards=shards,
            nodes=nodes,
            reservation="",
        )
        for number, (start, length, account, nodes, cpus, memory, gpus, shards) in enumerate(history)
    ]


def in_columns(rows: list[BillRow], jobs: list[JobRecord], site: BudgetSite, as_of: int) -> Attribution:
    """The days put together as `attribute` tells them."""
    table, layout, by_day = from_records(jobs), Layout(site), day_bills(frame_of(rows))
    lines: list[Line] = []
    coverage: dict[str, Coverage] = {}
    running = {job.dbindex for job in jobs if job.end is None}
    estimated = not rows or any(row.estimated for row in rows)
    for day in MONTH.days[:4]:
        yesterday = day - timedelta(days=1)
        before = used_on(table, layout, yesterday, as_of)
        result = divide_day(by_day.get(day, EMPTY), table, layout, day, as_of, before)
        estimated = estimated or result.provisional
        for (
            cluster,
            dbindex,
            job_id,
            account,
            user,
            group,
            capacity,
            currency,
            _,
            units,
        ) in result.jobs.iter_rows():
            job = (account, user, cluster, dbindex, job_id)
            key = LineKey(day, group, "attributed", *job, currency, capacity)
            lines.append(Line(key, amount(units, result.places), dbindex in running))
        for group, kind, account, user, capacity, currency, units in result.charges.iter_rows():
            if kind != "attributed":
                key = LineKey(day, group, kind, account, user, "", 0, 0, currency, capacity)
                lines.append(Line(key, amount(units, result.places)))
        for account, billed, used in result.use.iter_rows():
            before = coverage.get(account, Coverage(0, 0))
            coverage[account] = Coverage(before.billed + billed, before.used + used)
        assert total(amount(units, result.places) for units in result.charges["units"]) == total(
            row.amount for row in rows if row.day == day
        )
    return Attribution(tuple(sorted(lines, key=lambda line: line.key)), coverage, estimated)


def compare(rows: list[BillRow], history: list[Any], site: BudgetSite, as_of: int) -> None:
    jobs = records(history)
    whole = attribute(rows, jobs, site, MONTH, as_of)
    got = in_columns(rows, jobs[::-1], site, as_of)
    assert got.lines == whole.lines
    assert {name: each for name, each in got.coverage.items() if each.used} == {
        name: each for name, each in whole.coverage.items() if each.used
    }
    assert got.estimated == whole.estimated


@settings(max_examples=60, deadline=None)
@given(bills, histories, sites, st.integers(START, START + 3 * 86400))
def test_columns_divide_every_bill_as_one_by_one(
    rows: list[BillRow], history: list[Any], site: BudgetSite, as_of: int
) -> None:
    compare(rows, history, site, as_of)


@pytest.mark.long
@pytest.mark.timeout(900)
@settings(max_examples=1000, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(bills, histories, sites, st.integers(START, START + 3 * 86400))
def test_a_thousand_bills_and_histories(
    rows: list[BillRow], history: list[Any], site: BudgetSite, as_of: int
) -> None:
    compare(rows, history, site, as_of)


def test_amounts_beyond_any_bill_are_refused(make_row: Callable[..., BillRow]) -> None:
    (bill,) = day_bills(frame_of([make_row("1" + "0" * 30 + ".00000000000000000001")])).values()
    with pytest.raises(BudgetError, match="check where this bill comes from"):
        divide_day(bill, from_records([]), Layout(BudgetSite("uni", (), GROUPS)), MONTH.start, START)

"""Ten thousand random bills and job sets: columns, one-by-one attribution, and what must hold of both.

A case is made from a number, since a tree of strategies costs more than what it tests; a failure names the
number. Every case has one day, which is what is divided at a time.
"""

from __future__ import annotations

import random
from collections import defaultdict
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from functools import cache
from itertools import product

import polars as pl
import pytest

from api.db.day_store import costs_digest
from hpctools.budget.attribution import attribute
from hpctools.budget.attribution_table import DayBill, DayCosts, amount, day_bills, divide_day, used_on
from hpctools.budget.bill import BillRow
from hpctools.budget.bill_table import digest, frame_of
from hpctools.budget.money import EXACT, total
from hpctools.budget.month import DAY_SECONDS, Month, day_start
from hpctools.budget.tree import Account, BudgetSite, NodeGroup
from hpctools.budget.usage_table import Layout
from hpctools.slurm.accounting import JobRecord
from hpctools.slurm.accounting_table import from_records
from hpctools.slurm.reservations import Reservation

FEW, MANY = 100, 10_000
MONTH = Month(2026, 11)
DAY = MONTH.days[9]
BEGIN = day_start(DAY)
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
NODES = (
    "big-1",
    "big-2",
    "big-[1-2]",
    "big-2,small-1",
    "small-1",
    "login-1",
    "big-1,elsewhere",
    "elsewhere",
    "",
)
IDLE = ("unallocated", "proportional", "partition-owner", "reservation-owner")
POOLS = ("unallocated", "equally", "by-use", "by-fair-share")
OWNERS: tuple[tuple[str, ...], ...] = ((), ("nlp",), ("cv", "nlp"))


@cache
def layouts() -> tuple[Layout, ...]:
    """Of every kind of site."""
    kinds = product(IDLE, POOLS, OWNERS, (False, True))
    return tuple(
        Layout(
            BudgetSite(
                "uni", ACCOUNTS, GROUPS, idle, pools={"login": pool}, owners={"big": owners}, burst=burst
            )
        )
        for idle, pool, owners, burst in kinds
    )


@dataclass(frozen=True)
class Case:
    layout: Layout
    rows: list[BillRow]
    jobs: list[JobRecord]
    as_of: int
    kept: list[Reservation]

    def shuffled(self, dice: random.Random) -> Case:
        rows, jobs = dice.sample(self.rows, len(self.rows)), dice.sample(self.jobs, len(self.jobs))
        return Case(self.layout, rows, jobs, self.as_of, dice.sample(self.kept, len(self.kept)))


def case(number: int) -> Case:
    dice = random.Random(number)
    return Case(
        dice.choice(layouts()),
        [row(dice) for _ in range(dice.choice((0, 1, 2, 3, 5, 8)))],
        [job(dice, index) for index in range(dice.choice((0, 1, 1, 2, 3, 4, 6, 9)))],
        BEGIN + dice.choice((-1, 0, 3600, 50_000, DAY_SECONDS, 10 * DAY_SECONDS)),
        [reservation(dice) for _ in range(dice.choice((0, 1, 2, 4)))],
    )


def row(dice: random.Random) -> BillRow:
    """Credits, crumbs and more money than anybody has."""
    whole, places = dice.choice(((10, 0), (1000, 2), (100_000, 10), (10**18, 3), (1, 16)))
    units = dice.randint(-whole // 10, whole) * 10**places + dice.randrange(10**places)
    return BillRow(
        source="aws-ce",
        day=DAY,
        node_group=dice.choice(("big", "big", "small", "login", "", "gone")),
        usage=f"u{dice.randrange(3)}",
        metric="m",
        currency=dice.choice(("USD", "USD", "EUR")),
        amount=Decimal(units).scaleb(-places, EXACT),
        node_hours=dice.choice((Decimal(0), Decimal(dice.randrange(600_000)) / 10_000)),
        estimated=dice.random() < 0.1,
        capacity=dice.choice(("", "", "spot")),
    )


def job(dice: random.Random, index: int) -> JobRecord:
    """Of the day, across its borders or off it; on too much, on nothing, or still running."""
    start = BEGIN + dice.randrange(-100_000, 100_000)
    end = None if dice.random() < 0.15 else start + dice.choice((0, 1, 600, 7200, 90_000, 200_000))
    return JobRecord(
        cluster="uni",
        dbindex=index + 1,
        job_id=index % 3,
        user=f"user{index % 2}",
        account=dice.choice(("nlp", "cv", "cv-a", "unknown")),
        partition="p",
        qos="q",
        submitted=start,
        start=None if dice.random() < 0.03 else start,
        end=end,
        suspended_seconds=0,
        state="RUNNING" if end is None else "FAILED",
        cpus=dice.choice((0, 1, 24, 48, 96, 192, 300)),
        memory_mb=dice.choice((0, 7, 500, 1000, 1200, 10**11)),
        gpus=dice.choice((0, 0, 1, 3, 8, 20)),
        shards=dice.choice((0, 0, 0, 5, 20)),
        nodes=dice.choice(NODES),
        reservation="",
    )


def reservation(dice: random.Random) -> Reservation:
    """Of the day, across its borders or off it; for some, for nobody, or for whom the site does not know."""
    start = BEGIN + dice.randrange(-100_000, 100_000)
    accounts = dice.sample(("cv", "cv-a", "nlp", "root", "unknown"), dice.choice((0, 1, 1, 2, 3)))
    end = start + dice.choice((1, 7200, 90_000, 200_000))
    return Reservation("uni", "r", start, end, dice.choice(NODES), tuple(sorted(accounts)))


def divided(it: Case) -> tuple[DayBill, DayCosts]:
    bill = day_bills(frame_of(it.rows)).get(DAY, DayBill({}, {}))
    jobs = from_records(it.jobs)
    before = used_on(jobs, it.layout, DAY - timedelta(days=1), it.as_of) if it.layout.site.burst else None
    return bill, divide_day(bill, jobs, it.layout, DAY, it.as_of, before, it.kept)


def lines(costs: DayCosts) -> dict[tuple[object, ...], Decimal]:
    """As `attribute` tells them: a line for each job, and what is nobody's or a whole account's."""
    jobs = costs.jobs.select(
        pl.lit("attributed"), "account", "user", "dbindex", "node_group", "capacity", "currency", "units"
    )
    rest = costs.charges.filter(pl.col("kind") != "attributed").select(
        "kind", "account", "user", pl.lit(0), "node_group", "capacity", "currency", "units"
    )
    return {row[:-1]: amount(row[-1], costs.places) for table in (jobs, rest) for row in table.iter_rows()}


def check(number: int) -> None:
    it = case(number)
    other = it.shuffled(random.Random(-number))
    bill, costs = divided(other)
    is_idempotent(it, costs)
    one_by_one = attribute(it.rows, it.jobs, it.layout.site, MONTH, it.as_of, it.kept)

    # The columns say what one by one says, in whatever order bill and jobs came.
    expected = {
        (
            line.key.kind,
            line.key.account,
            line.key.user,
            line.key.dbindex,
            line.key.node_group,
            line.key.capacity,
            line.key.currency,
        ): line.amount
        for line in one_by_one.lines
        if line.key.day == DAY
    }
    assert lines(costs) == expected
    assert sum(line.key.day != DAY for line in one_by_one.lines) == 0
    # One by one does not depend on the order either.
    assert attribute(other.rows, other.jobs, it.layout.site, MONTH, it.as_of, other.kept) == one_by_one
    # Nothing of the bill is lost or made up, in any currency, nor in any node group and capacity.
    charged: defaultdict[tuple[str, str, str], list[Decimal]] = defaultdict(list)
    for group, currency, capacity, units in costs.charges.select(
        "node_group", "currency", "capacity", "units"
    ).iter_rows():
        charged[group, currency, capacity].append(amount(units, costs.places))
    sums = {cell: total(parts) for cell, parts in charged.items()}
    assert {cell: money for cell, money in sums.items() if money} == {
        cell: money for cell, money in bill.cells.items() if money
    }
    # What decides whether a day is divided again does not see the order.
    assert digest(frame_of(it.rows)) == digest(frame_of(other.rows))
    assert day_bills(frame_of(it.rows)).get(DAY, DayBill({}, {})) == bill


def is_idempotent(it: Case, costs: DayCosts) -> None:
    """The same again, in another order, is the same to the last byte: no entry would be posted."""
    assert costs_digest(divided(it)[1]) == costs_digest(costs)


def failing(numbers: range) -> int:
    """Check cases; a failure says which it was."""
    for number in numbers:
        try:
            check(number)
        except AssertionError as error:
            raise AssertionError(f"case({number}): {error}") from error
    return len(numbers)


def test_random_bills_and_jobs() -> None:
    assert failing(range(FEW)) == FEW


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("part", range(4))
def test_ten_thousand_random_bills_and_jobs(part: int) -> None:
    """In four parts, so that several processes share them."""
    each = MANY // 4
    assert failing(range(FEW + part * each, FEW + (part + 1) * each)) == each

"""What reservations kept free, and who bears it."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable
from datetime import date
from decimal import Decimal
from typing import Any

import polars as pl

from hpctools.budget.attribution import attribute
from hpctools.budget.attribution_table import DayBill, divide_day
from hpctools.budget.month import Month
from hpctools.budget.reserved import Idle, Span, free, kept_in
from hpctools.budget.tree import BudgetSite
from hpctools.budget.usage import NANO, Hold
from hpctools.budget.usage_table import Layout
from hpctools.slurm.accounting_table import from_records
from hpctools.slurm.reservations import Reservation

HOUR = 3600
MakeSite = Callable[..., BudgetSite]


def reservation(start: int, end: int, *accounts: str, nodes: str = "big-1", **changes: Any) -> Reservation:
    values = {"cluster": "uni", "name": "r", "start": start, "end": end, "nodes": nodes}
    return Reservation(**values | changes, accounts=accounts)


def test_a_day_by_hand(make_site: MakeSite, make_job: Any, make_row: Any, day: date, midnight: int) -> None:
    """big-1 and big-2 cost 96. big-1 is kept for cv until noon; nlp-a holds half of it for six hours of it.

    48 node-hours: 3 were the job's; of the 45 idle ones 9 were kept for cv. What nobody kept is nobody's.
    """
    site = make_site(idle="reservation-owner")
    job = make_job(1, midnight, midnight + 6 * HOUR, gpus=4, cpus=0, memory_mb=0)
    kept = [reservation(midnight - HOUR, midnight + 12 * HOUR, "cv")]
    row = make_row("96")
    lines = attribute([row], [job], site, Month.of(day), midnight + 86400, kept).lines
    assert {(line.key.kind, line.key.account): line.amount for line in lines} == {
        ("attributed", "nlp-a"): Decimal(6),
        ("idle", "cv"): Decimal(18),
        ("idle", ""): Decimal(72),
    }
    bill = DayBill({("big", "USD", ""): Decimal(96)}, {"big": Decimal(48)})
    costs = divide_day(bill, from_records([job]), Layout(site), day, midnight + 86400, None, kept)
    units = pl.col("units") // 10**costs.places
    assert sorted(costs.charges.select("kind", "account", units).rows()) == [
        ("attributed", "nlp-a", 6),
        ("idle", "", 72),
        ("idle", "cv", 18),
    ]


def test_by_other_policies_reservations_change_nothing(
    make_site: MakeSite, make_row: Any, day: date, midnight: int
) -> None:
    kept = [reservation(midnight, midnight + 12 * HOUR, "cv")]
    for idle in ("unallocated", "proportional", "partition-owner"):
        site = make_site(idle=idle)
        with_it, without = (
            attribute([make_row("96")], [], site, Month.of(day), midnight + 86400, some)
            for some in (kept, [])
        )
        assert with_it == without


def test_what_keeps_nothing_for_anybody(make_site: MakeSite, midnight: int) -> None:
    """The whole site's (maintenance), strangers', other clusters', login nodes, and what is over."""
    site, end = make_site(), midnight + HOUR
    some = [
        reservation(midnight, end, "root"),
        reservation(midnight, end, "unknown"),
        reservation(midnight, end),
        reservation(midnight, end, "cv", cluster="other"),
        reservation(midnight, end, "cv", nodes="login-1,elsewhere"),
        reservation(midnight - HOUR, midnight, "cv"),
        reservation(end, end + HOUR, "cv"),
    ]
    assert kept_in(some, site, midnight, end) == {}
    both = reservation(midnight - HOUR, end + HOUR, "cv", "root", nodes="big-[1-2]")
    span = Span(midnight, end, ("cv",))
    assert kept_in([both], site, midnight, end) == {"big-1": [span], "big-2": [span]}


def test_more_kept_than_idle_is_borne_by_those_it_was_kept_for() -> None:
    """Where the bill has fewer hours than the reservation: its node was down."""
    assert Idle(10, {"cv": 30}).weights == {"cv": 30, "": 0}
    assert Idle(40, {"cv": 30}).weights == {"cv": 30, "": 10}


def test_what_is_free_is_what_a_look_at_each_second_finds(make_site: MakeSite) -> None:
    """A thousand nodes with reservations that overlap and jobs that overbook them."""
    site, dice = make_site(), random.Random(167)
    for number in range(1000):
        spans = [
            Span(start, start + dice.randint(1, 9), tuple(sorted(dice.sample(("cv", "nlp", "nlp-a"), n))))
            for start, n in ((dice.randrange(12), dice.randint(1, 3)) for _ in range(dice.randint(1, 3)))
        ]
        holds = [
            Hold(start, start + dice.randint(1, 9), dice.choice((NANO // 4, NANO // 2, NANO)), n)
            for n, start in enumerate(dice.randrange(12) for _ in range(dice.randrange(5)))
        ]
        expected: defaultdict[str, int] = defaultdict(int)
        for second in range(25):
            share = sum(hold.share for hold in holds if hold.start <= second < hold.end)
            whose = {name for each in spans if each.start <= second < each.end for name in each.accounts}
            for name in whose:
                expected[name] += max(0, NANO - share) // len(whose)
        found = free({"big-1": spans}, {"big-1": holds}, site).get("big", {})
        # What a part of three loses is cut off once in each piece, and here in each second.
        assert sorted(found) == sorted(name for name, amount in expected.items() if amount), number
        assert all(0 <= amount - expected[name] < 25 for name, amount in found.items()), number

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import date
from decimal import Decimal

from hpctools.budget.bill import BillRow
from hpctools.budget.burn import Burn, Rate, burn, rates
from hpctools.budget.month import day_start
from hpctools.budget.tree import Account, BudgetSite, NodeGroup

SITE = BudgetSite(
    cluster="uni",
    accounts=(Account("nlp", "department", "root"),),
    node_groups=(
        NodeGroup("gpu", nodes=("gpu-1", "gpu-2"), cpus=96, memory_mb=1000, gpus=8),
        NodeGroup("odd", nodes=("odd-1",), cpus=4),
    ),
)
DAY = date(2026, 11, 20)
RATE = {"gpu": Rate("gpu", Decimal(32), "USD", DAY, DAY)}
HOUR = 3600


@dataclass(frozen=True)
class Job:
    account: str = "nlp"
    start: int | None = 0
    end: int | None = None
    cpus: int = 0
    memory_mb: int = 0
    gpus: int = 0
    shards: int = 0
    nodes: str = "gpu-1"


def burnt(*jobs: Job, since: int = 0, now: int = 2 * HOUR) -> dict[str, Burn]:
    found = burn(jobs, SITE, RATE, {"gpu": since}, now, lambda names: names.split(","))
    assert all(sum(each.days.values()) == each.unbilled for each in found.values())
    return found


def row(day: int, amount: str, hours: str = "0", group: str = "gpu", currency: str = "USD") -> BillRow:
    return BillRow(
        "aws-ce",
        date(2026, 11, day),
        group,
        f"{day}-{amount}",
        "M",
        currency,
        Decimal(amount),
        Decimal(hours),
    )


def test_a_rate_is_what_a_groups_nodes_cost_by_their_hours() -> None:
    """Storage of the nodes counts, untagged cost and other currencies do not, nor hours of other groups."""
    rows = [
        *(row(day, "480", "24") for day in range(10, 18)),
        row(17, "24"),
        row(17, "999", "1", group=""),
        row(17, "999", "1", currency="EUR"),
        row(18, "70", "0"),
    ]
    paid, hours, last = 7 * 480 + 24, 7 * 24, date(2026, 11, 17)
    assert rates(rows, "USD") == {
        "gpu": Rate("gpu", Decimal(paid / hours).quantize(Decimal("0.000001")), "USD", last, last, "aws-ce")
    }


def test_the_bill_of_own_nodes_reaches_further_than_a_clouds() -> None:
    """A group that had no nodes for days is billed as far as all that its provider bills."""
    own = replace(row(20, "24", "24", group="odd"), source="rate-card")
    rows = [row(17, "480", "24"), row(18, "480", "24", group="other"), own]
    found = rates(rows, "USD")
    assert {name: rate.billed.day for name, rate in found.items()} == {"gpu": 18, "odd": 20, "other": 18}


def test_a_group_whose_nodes_never_ran_has_no_rate() -> None:
    assert rates([row(1, "5")], "USD") == {}


def test_a_running_job_costs_its_largest_part_of_each_node() -> None:
    """A quarter of the GPUs, half of the memory: half of 32 an hour, for two hours."""
    assert burnt(Job(gpus=2, memory_mb=500, cpus=8)) == {"nlp": Burn(Decimal(16), Decimal(32), 1)}


def test_what_it_was_given_is_spread_over_its_nodes() -> None:
    assert burnt(Job(gpus=8, nodes="gpu-1,gpu-2"))["nlp"].per_hour == 32


def test_only_what_is_not_billed_yet_counts() -> None:
    jobs = (Job(gpus=8), Job(gpus=8, end=HOUR), Job(gpus=8, end=10), Job(start=None))
    assert burnt(*jobs, since=HOUR // 2) == {"nlp": Burn(Decimal(32), Decimal(32 * 1.5 + 32 * 0.5), 1)}


def test_what_is_unbilled_is_told_by_day() -> None:
    """One job from 22:00 to 1:00, one from 23:00 to the end of the next day."""
    begin = day_start(date(2026, 11, 30))
    jobs = (Job(gpus=8, start=begin + 22 * HOUR, end=begin + 25 * HOUR), Job(gpus=8, start=begin + 23 * HOUR))
    since, now = {"gpu": begin}, begin + 48 * HOUR
    found = burn(jobs, SITE, RATE, since, now, lambda names: names.split(","))["nlp"]
    assert found.days == {date(2026, 11, 30): Decimal(3 * 32), date(2026, 12, 1): Decimal(25 * 32)}
    assert found.unbilled == 28 * 32


def test_nodes_without_a_rate_and_strange_ones_cost_nothing_that_is_known() -> None:
    assert burnt(Job(cpus=4, nodes="odd-1"), Job(cpus=4, nodes="gone-1")) == {"nlp": Burn(jobs=2)}

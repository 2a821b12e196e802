"""Bill rows of nodes that nobody sends a bill for: hours of always-on nodes at a price. Pure.

Hours count when they are over, so that a day's cost is exact and grows by the hour. The present month is
estimated.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import date
from decimal import Decimal

from hpctools.budget.bill import BillRow
from hpctools.budget.money import plain
from hpctools.budget.month import Month, day_start

SOURCE = "rate-card"
SERVICE = "own nodes"
NODE, GPU = "node-hours", "gpu-hours"
_HOURS_OF_DAY = 24


@dataclass(frozen=True)
class Price:
    """What the nodes of one group cost from a day on.

    Attributes:
        nodes: how many are always on.
        gpus: of one node.
        per_node_hour, per_gpu_hour: in `currency`.
        until: the first day on which it holds no more; None for never.
    """

    node_group: str
    nodes: int
    gpus: int
    currency: str
    per_node_hour: Decimal
    per_gpu_hour: Decimal
    since: date
    until: date | None = None

    def holds(self, day: date) -> bool:
        """Whether it is the price of a day."""
        return self.since <= day and (self.until is None or day < self.until)


def rows(prices: Iterable[Price], month: Month, metric: str, now: int) -> tuple[BillRow, ...]:
    """A month's bill until now, sorted.

    Args:
        metric: the site's cost measure, so that own nodes and a cloud's add up.
        now: Unix seconds.
    """
    return tuple(
        sorted(
            row
            for price in prices
            for day in month.days
            if price.holds(day)
            for row in _of_day(price, day, month, metric, now)
        )
    )


def _of_day(price: Price, day: date, month: Month, metric: str, now: int) -> Iterator[BillRow]:
    hours = min(_HOURS_OF_DAY, (now - day_start(day)) // 3600) * price.nodes
    if hours <= 0:
        return
    parts = ((NODE, price.per_node_hour, hours), (GPU, price.per_gpu_hour, hours * price.gpus))
    charged = [(usage, rate * quantity) for usage, rate, quantity in parts if rate * quantity]
    over = now >= day_start(month.end)
    for number, (usage, amount) in enumerate(charged):
        yield BillRow(
            source=SOURCE,
            day=day,
            node_group=price.node_group,
            usage=usage,
            metric=metric,
            currency=price.currency,
            amount=plain(amount),
            # Once: the group's hours are the same, whatever they are charged for.
            node_hours=Decimal(hours if number == 0 else 0),
            estimated=not over,
            service=SERVICE,
            invoice=f"internal-{month}" if over else "",
        )

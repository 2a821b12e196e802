"""Where bills come from: one source, or several that each have a part of the site's cost."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

import polars as pl

from api.db.bill_store import Pulled
from api.services.cost_explorer import CostExplorer
from api.services.exports import DataExport
from hpctools.budget import rate_card
from hpctools.budget.bill import BillRow
from hpctools.budget.bill_table import frame_of
from hpctools.budget.billing_site import prices
from hpctools.budget.cost_explorer import ClusterTag
from hpctools.budget.manifest import Export
from hpctools.budget.month import Month
from hpctools.budget.rate_card import Price
from hpctools.site import Site
from hpctools.site.billing import BillingSource


class BillSource(Protocol):
    """Where bills come from."""

    @property
    def name(self) -> str:
        """Its name in the store."""
        ...

    def rows(self, month: Month) -> Iterable[BillRow] | pl.DataFrame | None:
        """The bill of a month as it is now; None when nothing was delivered yet, which changes nothing."""
        ...


@dataclass(frozen=True)
class Combined:
    """Several sources, none of which has money that another one has too.

    Attributes:
        parts: in the order in which they are asked.
    """

    parts: tuple[BillSource, ...]


@dataclass(frozen=True)
class RateCards:
    """Own nodes at the site's prices as a source of bills.

    Attributes:
        clock: Unix seconds now.
        noted: whether the store knows own nodes, if only as some that no longer have a price on any day: it
            is a bill of nothing then, which takes back what was billed.
    """

    prices: tuple[Price, ...]
    metric: str
    clock: Callable[[], float] = time.time
    noted: bool = False
    name: str = rate_card.SOURCE

    def rows(self, month: Month) -> tuple[BillRow, ...]:
        """What the nodes cost until now."""
        return rate_card.rows(self.prices, month, self.metric, int(self.clock()))


def of_site(
    site: Site, metric: str, default_scope: str = "account", own: RateCards | None = None
) -> Combined:
    """The sources that a site names.

    Args:
        metric: the site's cost measure.
        default_scope: of Cost Explorer, where the site does not say it: `account` or `cluster`.
        own: what own nodes cost and did cost; what the site says of them now when None.
    """
    parts = [_provider(site, source, metric, default_scope) for source in site.billing.read_from]
    cards = own or RateCards(prices(site), metric)
    return Combined((*parts, *([cards] if cards.prices or cards.noted else [])))


def _provider(site: Site, source: BillingSource, metric: str, default_scope: str) -> BillSource:
    billing = site.billing
    if source.kind == "cost-explorer":
        tag = ClusterTag(billing.cluster_tag, site.cluster.name)
        of_cluster = (source.scope or default_scope) == "cluster"
        return CostExplorer(metric, billing.node_group_tag, tag if of_cluster else None, source.by_charge)
    return DataExport(
        name=source.name,
        kind=source.kind,
        export=Export(source.bucket or "", source.prefix or "", source.export or ""),
        region=source.region or "",
        metric=metric,
        node_group_tag=billing.node_group_tag,
        cluster_tag=billing.cluster_tag,
        billing_account=source.billing_account or "",
    )


def names(bills: BillSource | Combined) -> tuple[str, ...]:
    """The sources' names in the store."""
    return tuple(part.name for part in _parts(bills))


def pull(bills: BillSource | Combined, month: Month, metric: str) -> tuple[Pulled, ...]:
    """A month's bill of each source that has one.

    Raises:
        UnreachableError: a source does not answer.
        BudgetError: a source refuses, or answers something else than a bill.
    """
    answers = ((part.name, part.rows(month)) for part in _parts(bills))
    return tuple(_pulled(name, metric, month, rows) for name, rows in answers if rows is not None)


def _pulled(name: str, metric: str, month: Month, rows: Iterable[BillRow] | pl.DataFrame) -> Pulled:
    return Pulled(name, metric, month, rows if isinstance(rows, pl.DataFrame) else frame_of(rows))


def _parts(bills: BillSource | Combined) -> tuple[BillSource, ...]:
    return bills.parts if isinstance(bills, Combined) else (bills,)

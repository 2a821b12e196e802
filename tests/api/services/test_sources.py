from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from sqlalchemy import Engine

from api.db.bill_store import current_bill
from api.db.engine import reading
from api.services.cost_explorer import CostExplorer
from api.services.exports import DataExport
from api.services.reconcile import reconcile
from api.services.sources import Combined, RateCards, names, of_site, pull
from api.services.statements import read_statement
from api.services.verification import verify
from hpctools.budget.bill import BillRow
from hpctools.budget.bill_table import frame_of
from hpctools.budget.cost_explorer import ClusterTag
from hpctools.budget.manifest import Export
from hpctools.budget.month import Month, day_start
from hpctools.budget.tree import BudgetSite
from hpctools.errors import BudgetError
from hpctools.site import load, loads

EXAMPLES = Path(__file__).parents[3] / "slurm-conf/examples"
METRIC = "NetAmortizedCost"
NOVEMBER = Month(2026, 11)


@dataclass
class Fixed:
    """A source that has what a test gives it."""

    name: str
    bill: Iterable[BillRow] | pl.DataFrame | None

    def rows(self, month: Month) -> Iterable[BillRow] | pl.DataFrame | None:
        return self.bill


def row(source: str = "aws-cur", **changes: Any) -> BillRow:
    values: dict[str, Any] = {
        "source": source,
        "day": date(2026, 11, 3),
        "node_group": "reserved",
        "usage": "x",
        "metric": METRIC,
        "currency": "USD",
        "amount": Decimal("100.5"),
    }
    return BillRow(**values | changes)


def test_the_reference_site_reads_cost_explorer() -> None:
    bills = of_site(load(EXAMPLES / "university/site.yaml"), METRIC, "cluster")
    # The site says `account`; the setting is for sites that say nothing.
    assert bills == Combined((CostExplorer(METRIC, "hpctools:node-group"),))


def test_the_setting_is_for_sites_that_say_nothing() -> None:
    text = (EXAMPLES / "university/site.yaml").read_text()
    said = "  sources: [{kind: cost-explorer, scope: account, by_charge: false}]\n"
    assert said in text
    site = loads(text.replace(said, ""), "site.yaml")
    tag = ClusterTag("ClusterName", "uni-gpu")
    assert of_site(site, METRIC, "cluster") == Combined((CostExplorer(METRIC, "hpctools:node-group", tag),))


def test_an_export() -> None:
    (source,) = of_site(load(EXAMPLES / "own-network/site.yaml"), METRIC).parts
    assert source == DataExport(
        name="aws-cur-111122223333",
        kind="cur",
        export=Export("lab-billing-111122223333", "exports", "daily"),
        region="us-east-1",
        metric=METRIC,
        node_group_tag="hpctools:node-group",
        cluster_tag="ClusterName",
        billing_account="111122223333",
    )


def test_own_nodes_have_prices() -> None:
    (source,) = of_site(load(EXAMPLES / "centre/site.yaml"), METRIC).parts
    assert isinstance(source, RateCards)
    cards = RateCards(source.prices, METRIC, clock=lambda: day_start(date(2026, 12, 2)))
    days = {each.day for each in cards.rows(NOVEMBER)}
    assert days == set(NOVEMBER.days)
    # 64 nodes for 24 hours at 0.62.
    assert {each.amount for each in cards.rows(NOVEMBER) if each.node_group == "thin"} == {Decimal("952.32")}


def test_rows_and_columns_are_one_bill() -> None:
    of_rows, of_columns = Fixed("aws-cur", [row()]), Fixed("focus", frame_of([row("focus")]))
    bills = Combined((of_rows, of_columns))
    assert names(bills) == ("aws-cur", "focus")
    assert [(each.source, each.table.height) for each in pull(bills, NOVEMBER, METRIC)] == [
        ("aws-cur", 1),
        ("focus", 1),
    ]


@pytest.fixture
def no_jobs() -> Any:
    class NoJobs:
        def windows(self, month: Month, now: int) -> Iterable[Any]:
            return ()

        def jobs(self, month: Month, now: int) -> Iterable[Any]:
            return ()

    return NoJobs()


def stored(engine: Engine, *sources: str) -> list[BillRow]:
    with reading(engine) as session:
        return current_bill(session, sources, METRIC, NOVEMBER)


def test_what_was_not_delivered_yet_takes_nothing_back(
    engine: Engine, site: BudgetSite, no_jobs: Any, now: int
) -> None:
    cloud, own = Fixed("aws-cur", [row()]), Fixed("rate-card", [row("rate-card")])
    both = Combined((cloud, own))
    assert reconcile(engine, site, NOVEMBER, both, no_jobs, now).bill_days == 2
    cloud.bill = None
    assert reconcile(engine, site, NOVEMBER, both, no_jobs, now + 60).bill_days == 0
    assert stored(engine, "aws-cur", "rate-card") == [row(), row("rate-card")]
    cloud.bill = []
    assert reconcile(engine, site, NOVEMBER, both, no_jobs, now + 120).bill_days == 1
    assert stored(engine, "aws-cur", "rate-card") == [row("rate-card")]


def spent(engine: Engine, site: BudgetSite) -> Decimal:
    return read_statement(engine, site, site.by_name["root"], NOVEMBER).spent


def test_another_source_takes_nothing_back_until_it_tells_the_month(
    engine: Engine, site: BudgetSite, no_jobs: Any, now: int
) -> None:
    """Cost Explorer until now; an export from now on, which has no earlier months."""
    old, new = Fixed("aws-ce", [row("aws-ce")]), Fixed("aws-cur", None)
    reconcile(engine, site, NOVEMBER, old, no_jobs, now)
    own = Fixed("rate-card", [row("rate-card", amount=Decimal(7))])
    for later, bills in enumerate((new, Combined((new, own))), 1):
        reconcile(engine, site, NOVEMBER, bills, no_jobs, now + later)
        assert spent(engine, site) == Decimal("100.5") + (7 if bills is not new else 0)
        with reading(engine) as session:
            assert verify(session, site, names(bills), NOVEMBER).findings == []
    new.bill = [row(amount=Decimal(90))]
    reconcile(engine, site, NOVEMBER, Combined((new, own)), no_jobs, now + 60)
    assert spent(engine, site) == 97


def test_of_former_sources_the_last_one_counts(
    engine: Engine, site: BudgetSite, no_jobs: Any, now: int
) -> None:
    """Two changes within a month: both former sources have told all of it."""
    told = (
        Fixed("aws-ce", [row("aws-ce")]),
        Fixed("aws-cur", [row(amount=Decimal(90))]),
        Fixed("focus", None),
    )
    for later, bills in enumerate(told):
        reconcile(engine, site, NOVEMBER, bills, no_jobs, now + later)
    assert spent(engine, site) == 90


def test_a_month_is_not_final_while_a_clouds_bill_of_it_never_came(
    engine: Engine, site: BudgetSite, no_jobs: Any, now: int
) -> None:
    """Own nodes' bill is final when the month is over; the export has nothing of the month yet."""
    later = now + 20 * 86400
    own = Fixed("rate-card", [row("rate-card", invoice="internal-2026-11")])
    for bill, status in ((None, "estimated"), ([row(invoice="7")], "final"), (None, "final")):
        later += 60
        bills = Combined((Fixed("aws-cur", bill), own))
        reconcile(engine, site, NOVEMBER, bills, no_jobs, later)
        assert read_statement(engine, site, site.by_name["root"], NOVEMBER).status == status
    reconcile(engine, site, NOVEMBER, Combined((Fixed("focus", None), own)), no_jobs, later + 60)
    assert read_statement(engine, site, site.by_name["root"], NOVEMBER).status == "final"


def test_a_month_from_before_the_clouds_bill_is_final_some_day(
    engine: Engine, site: BudgetSite, no_jobs: Any, now: int
) -> None:
    """An export is made in a later year: it never has the months before, which own nodes' cards have."""
    bills = Combined(
        (Fixed("aws-cur", None), Fixed("rate-card", [row("rate-card", invoice="internal-2026-11")]))
    )
    for after, status in ((61, "estimated"), (62, "final")):
        reconcile(engine, site, NOVEMBER, bills, no_jobs, day_start(NOVEMBER.end) + after * 86400)
        assert read_statement(engine, site, site.by_name["root"], NOVEMBER).status == status


def test_one_source_that_fails_stores_nothing_of_the_others(
    engine: Engine, site: BudgetSite, no_jobs: Any, now: int
) -> None:
    wrong = Fixed("focus", [row("focus", day=date(2026, 12, 1))])
    bills = Combined((Fixed("aws-cur", [row()]), wrong))
    with pytest.raises(BudgetError, match="focus answered 2026-12-01"):
        reconcile(engine, site, NOVEMBER, bills, no_jobs, now)
    assert stored(engine, "aws-cur", "focus") == []

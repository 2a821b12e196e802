"""The sandbox's bill as exports, by the readers of real ones: the same money as from Cost Explorer."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal

import pytest
from sqlalchemy import Engine

from api.services.reconcile import reconcile
from api.services.sources import of_site
from api.services.statements import read_statement
from hpctools.budget.bill import BillRow
from hpctools.budget.bill_table import rows_of
from hpctools.budget.cost_explorer import parse
from hpctools.budget.month import Month
from hpctools.budget.tree import BudgetSite
from hpctools.sandbox.bill import METRIC, cost_and_usage, seed
from hpctools.site import Site, load
from hpctools.site.billing import BillingSource

TAG = "hpctools:node-group"
KINDS = ("cur", "focus")


def exporting(path: Path, kind: Literal["cur", "focus"], region: str = "us-east-1") -> Site:
    """The university, reading an export."""
    site = load(path)
    source = BillingSource(kind=kind, bucket="uni-billing", region=region, prefix="exports", export="daily")
    return site.model_copy(update={"billing": site.billing.model_copy(update={"sources": (source,)})})


def read(site: Site, month: Month) -> list[BillRow]:
    (source,) = of_site(site, METRIC).parts
    found: Any = source.rows(month)
    assert found is not None
    return rows_of(found)


def sums(rows: Iterable[BillRow]) -> dict[tuple[date, str], tuple[Decimal, Decimal]]:
    """Money and node-hours by day and node group."""
    found: defaultdict[tuple[date, str], list[BillRow]] = defaultdict(list)
    for row in rows:
        found[row.day, row.node_group].append(row)
    return {
        key: (sum((row.amount for row in of), Decimal(0)), sum((row.node_hours for row in of), Decimal(0)))
        for key, of in found.items()
    }


@pytest.mark.parametrize("kind", KINDS)
def test_an_export_is_the_money_of_cost_explorer(
    aws: str, site_path: Path, november: Month, now: int, kind: Literal["cur", "focus"]
) -> None:
    site = exporting(site_path, kind)
    seed(site, aws, now)
    for month in (november.previous, november):
        rows = read(site, month)
        assert sums(rows) == sums(parse([cost_and_usage(site, month, now, {})], METRIC, TAG))
        assert {row.estimated for row in rows} == {month == november}
        assert {row.charge for row in rows} == {"usage", "fee", "tax"}
        capacities = {(row.node_group, row.capacity) for row in rows if row.node_hours}
        assert {("reserved", "reserved"), ("shared", "on-demand")} <= capacities


@pytest.mark.parametrize("kind", KINDS)
def test_what_was_delivered_stays(
    aws: str, site_path: Path, november: Month, now: int, kind: Literal["cur", "focus"]
) -> None:
    site = exporting(site_path, kind, "eu-central-1")
    seed(site, aws, now)
    before = read(site, november)
    seed(site, aws, now + 3600)
    assert read(site, november) == before


@pytest.mark.parametrize("kind", KINDS)
def test_statements_are_the_same_whichever_way_the_bill_came(
    aws: str,
    engine: Engine,
    site: BudgetSite,
    site_path: Path,
    november: Month,
    bills: Any,
    jobs: Any,
    now: int,
    kind: Literal["cur", "focus"],
) -> None:
    reconcile(engine, site, november, bills, jobs, now)
    expected = spent(engine, site, november)
    exported = exporting(site_path, kind)
    seed(exported, aws, now)
    reconcile(engine, site, november, of_site(exported, METRIC), jobs, now)
    found = spent(engine, site, november)
    assert found["root"] == expected["root"]
    # An export tells reserved nodes and their volumes apart: each is divided to a millionth for itself.
    assert {name for name in found if abs(found[name] - expected[name]) > Decimal("0.001")} == set()


def spent(engine: Engine, site: BudgetSite, month: Month) -> dict[str, Decimal]:
    return {
        name: read_statement(engine, site, account, month).spent for name, account in site.by_name.items()
    }

"""What every account spent on each day of a month: one look at the ledger for all of them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import NamedTuple

import polars as pl
from sqlalchemy import Engine
from sqlalchemy.orm import Session

from api.db.ledger import last_run
from api.services.kept import Kept, KeptByStore
from api.services.statements import shape_of, site_month
from hpctools.budget.attribution_table import amount
from hpctools.budget.money import ZERO
from hpctools.budget.month import Month
from hpctools.budget.tree import SITE_ACCOUNT, Account, BudgetSite

_MONTHS = 36


class Spent(NamedTuple):
    """What was spent on a day."""

    day: date
    amount: Decimal


@dataclass(frozen=True)
class AccountMonth:
    """A month of one account; `days` is as a statement has it."""

    days: Sequence[Spent]
    as_of: int | None
    billed_through: date | None


@dataclass(frozen=True)
class MonthDays:
    """A month of all accounts.

    Attributes:
        amounts: by account and currency, what it and those below it spent on each day with any cost.
    """

    month: Month
    as_of: int | None = None
    billed_through: date | None = None
    amounts: Mapping[tuple[str, str], Mapping[date, Decimal]] | None = None

    def of(self, account: Account, site: BudgetSite) -> AccountMonth:
        """One account's, in the currency of its budget."""
        last = self.billed_through
        if self.amounts is None or last is None:
            return AccountMonth((), self.as_of, last)
        currency = site.currency_of(account)
        known = self.amounts.get((account.name, currency), {})
        days = [Spent(day, known.get(day, ZERO)) for day in self.month.days if day <= last]
        return AccountMonth(days, self.as_of, last)


_kept: KeptByStore[Kept[MonthDays]] = KeptByStore(lambda: Kept(_MONTHS))


def read_month_days(engine: Engine, session: Session, site: BudgetSite, month: Month) -> MonthDays:
    """What every account spent on each day of a month, as it is known now; worked out once for each run."""
    run = last_run(session, month, site.metric)
    if run is None:
        return MonthDays(month)
    key = (site.metric, str(month), run.id, run.as_of, shape_of(engine, site))

    def made() -> MonthDays:
        whole = site_month(engine, session, site, month, run)
        known = whole.knowledge
        through = known.billed_through if known else None
        return MonthDays(month, run.as_of, through, _amounts(whole.table, whole.places, site))

    return _kept.of(engine).get(key, made)


def _amounts(
    table: pl.DataFrame, places: int, site: BudgetSite
) -> dict[tuple[str, str], dict[date, Decimal]]:
    """Sums of a site's month by account above, currency and day; all of it is the site's."""
    above = [(name, each) for name in site.by_name for each in site.lineage(name) if each != SITE_ACCOUNT]
    columns = {"account": pl.String, "above": pl.String}
    lineages = pl.DataFrame(above, schema=columns, orient="row")
    days = table.group_by("account", "currency", "day").agg(pl.col("units").sum())
    of_site = days.with_columns(above=pl.lit(SITE_ACCOUNT))
    wanted = ["above", "currency", "day", "units"]
    both = pl.concat([days.join(lineages, on="account").select(wanted), of_site.select(wanted)])
    sums = both.group_by("above", "currency", "day").agg(pl.col("units").sum())
    found: defaultdict[tuple[str, str], dict[date, Decimal]] = defaultdict(dict)
    for name, currency, day, units in sums.iter_rows():
        found[name, currency][day] = amount(units, places)
    return dict(found)

"""All that the page of an account tells."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sqlalchemy import Engine

from api.services.reports import Report, read_report
from api.services.standing import Allowed, Standing, read_allowances, read_standing
from api.services.waste import Waste, read_waste
from hpctools.budget.allowance import Period
from hpctools.budget.tree import Account, BudgetSite


@dataclass(frozen=True)
class Overview:
    """An account in some days.

    Attributes:
        budgets: of the accounts directly below it.
    """

    report: Report
    standing: Standing
    waste: Waste
    budgets: Mapping[str, Allowed | None]


def read_overview(engine: Engine, site: BudgetSite, account: Account, period: Period, now: int) -> Overview:
    """What an account spent in some days, how it stands, what of it bore no fruit.

    Raises:
        UnreachableError: the database does not answer.
    """
    report = read_report(engine, site, account, period)
    return Overview(
        report=report,
        standing=read_standing(engine, site, report, now),
        waste=read_waste(engine, site, account, period),
        budgets=read_allowances(engine, site, site.children(account.name), period, now),
    )

"""A site's month in columns, made small for the statement of one account. Needs the `api` extra."""

from __future__ import annotations

from typing import cast

import polars as pl

from hpctools.budget.attribution import Kind
from hpctools.budget.attribution_table import amount
from hpctools.budget.statement import Charge
from hpctools.budget.tree import SITE_ACCOUNT, Account, BudgetSite


def charges_for(table: pl.DataFrame, places: int, site: BudgetSite, account: Account) -> list[Charge]:
    """What the statement of an account needs to know: the same statement as from every charge of the site.

    Charges of accounts below are put together as those of the child above them, users only matter in a lab,
    and of what nobody is charged with there is one for each day.

    Args:
        table: `day, kind, account, user, currency, units` of the whole site's month.
        places: of `units`.
    """
    whole = account.name == SITE_ACCOUNT
    child = {name: child.name for child in site.children(account.name) for name in site.subtree(child.name)}
    wanted = [*site.subtree(account.name), ""]
    mine = table if whole else table.filter(pl.col("account").is_in(wanted))
    user = pl.col("user") if account.level == "lab" else pl.lit("")
    small = mine.with_columns(pl.col("account").replace(child), user.alias("user"))
    by = ["day", "kind", "account", "user", "currency"]
    sums = small.group_by(by).agg(pl.col("units").sum()).filter(pl.col("units") != 0).sort(by)
    return [
        Charge(day, cast(Kind, kind), name, who, currency, amount(units, places))
        for day, kind, name, who, currency, units in sums.iter_rows()
    ]

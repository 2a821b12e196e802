"""`hpctools-api reconcile`."""

from __future__ import annotations

import time
from datetime import date
from typing import TYPE_CHECKING

import click

from api.commands.store import open_store
from api.settings import read_settings
from hpctools.budget.month import Month, day_of, day_start
from hpctools.errors import BudgetError, UsageError

if TYPE_CHECKING:
    from api.services.reconcile import Outcome


@click.command()
@click.option("--month", help="YYYY-MM; the present month when left out.")
@click.option(
    "--own-nodes-from",
    metavar="YYYY-MM-DD",
    help="Bill own nodes anew from this day of the month to its end, by the counts and prices that the site "
    "file has now; without it days that are over stay as they were billed.",
)
def reconcile(month: str | None, own_nodes_from: str | None) -> None:
    """Read the bill and the jobs of a month and post what changed.

    \b
    Example:  hpctools-api reconcile --month 2026-10
    Example:  hpctools-api reconcile --month 2026-10 --own-nodes-from 2026-10-01
    """
    from api.services.scheduler import by_hand
    from api.services.site_file import SiteFile
    from api.services.site_work import SiteWork

    settings = read_settings()
    now = int(time.time())
    chosen = chosen_month(month, now)
    if day_start(chosen.start) > now:
        raise UsageError(f"{chosen} has not begun", "give the present month or one before it")
    first = _day_within(own_nodes_from, chosen, now)
    site_file = SiteFile(settings.site, settings.metric)
    site_file.current()
    with open_store(settings) as engine:
        outcome = by_hand(engine, chosen, SiteWork(settings, site_file, engine, first), now)
    click.echo(_text(outcome))


def _text(outcome: Outcome) -> str:
    told = (
        f"{outcome.month}: new or changed: {outcome.bill_days} bill days, {outcome.jobs} jobs, "
        f"{outcome.entries} ledger entries"
        + (" (a newer run was there already)" if outcome.superseded else "")
    )
    if outcome.kept_days:
        told += (
            f"\n{outcome.kept_days} days keep the bill that own nodes had: the site file has other counts or "
            "prices now; if they were wrong before, --own-nodes-from bills these days anew (docs/budgets.md)"
        )
    return told


def _day_within(text: str | None, month: Month, now: int) -> date | None:
    """The day that was asked for.

    Raises:
        UsageError: it is none, of another month, or to come.
    """
    if text is None:
        return None
    try:
        day = date.fromisoformat(text)
    except ValueError:
        raise UsageError(f"{text!r} is no day", f"give one such as {month.start}") from None
    if not month.start <= day < month.end:
        raise UsageError(f"{day} is no day of {month}", f"give --month {Month.of(day)}, or another day")
    if day > day_of(now):
        raise UsageError(f"{day} is to come", "what the site file has counts for days to come by itself")
    return day


def chosen_month(text: str | None, now: int) -> Month:
    """The month that was asked for, or the present one.

    Raises:
        UsageError: it is none.
    """
    if text is None:
        return Month.of(day_of(now))
    try:
        return Month.parse(text)
    except BudgetError as error:
        raise UsageError(error.message, error.remedy) from None

"""`hpctools-api verify`."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from api.commands.store import open_store
from api.settings import read_settings
from hpctools.budget.month import Month
from hpctools.errors import BudgetError, UsageError

if TYPE_CHECKING:
    from api.services.verification import Verified

_TOLD = 20


@click.command()
@click.option("--month", help="YYYY-MM; every month when left out.")
@click.option("--json", "as_json", is_flag=True, help="All of it, for programs.")
def verify(month: str | None, as_json: bool) -> None:
    """Work every figure out again from the documents that it was made from; changes nothing, tables neither.

    Exit code 1 when something is not what was stored.

    \b
    Example:  hpctools-api verify --month 2026-10
    """
    from api.db.engine import reading
    from api.services import verification
    from api.services.site_file import SiteFile
    from api.services.sources import names, of_site

    settings = read_settings()
    chosen = _month(month)
    site_file = SiteFile(settings.site, settings.metric)
    site = site_file.current()
    sources = names(of_site(site_file.declared(), settings.metric, settings.bill_scope))
    with open_store(settings, migrate=False) as engine, reading(engine) as session:
        found = verification.verify(session, site, sources, chosen)
    click.echo(json.dumps(asdict(found)) if as_json else _text(found))
    if found.findings:
        raise BudgetError(
            f"{len(found.findings)} figures are not what was stored",
            "somebody has changed the database past the service, or a disk has: stop the service, keep this "
            "database, and restore a backup that verifies; what reconciles again posts what is missing",
        )


def _text(found: Verified) -> str:
    told = [f"{each.where}: {each.what}" for each in found.findings[:_TOLD]]
    more = len(found.findings) - len(told)
    told += [f"... and {more} more (--json tells all)"] if more else []
    told.append(
        f"{found.months} months, {found.days} days, {found.runs} runs and {found.documents} documents "
        f"were looked at: {'all' if not found.findings else 'the others'} as they were stored"
    )
    if found.waiting:
        told.append(
            f"{found.waiting} days could not be divided again: their bill, jobs or rules have changed since; "
            "the next reconciliation does"
        )
    return "\n".join(told)


def _month(text: str | None) -> Month | None:
    try:
        return Month.parse(text) if text else None
    except BudgetError as error:
        raise UsageError(error.message, error.remedy) from None

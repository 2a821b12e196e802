"""`hpctools-api audit`."""

from __future__ import annotations

import click

from api.commands.store import open_store
from api.settings import read_settings
from hpctools.errors import BudgetError


@click.group()
def audit() -> None:
    """The audit trail."""


@audit.command()
def verify() -> None:
    """Check that nothing in it was changed or taken out; print its last digest.

    \b
    Example:  hpctools-api audit verify
    """
    from api.db.engine import reading
    from api.services import audit as trail

    with open_store(read_settings(), migrate=False) as engine, reading(engine) as session:
        broken = trail.verify(session)
        last = trail.head(session)
    if broken is not None:
        raise BudgetError(
            f"the audit trail is broken at entry {broken.id}: {broken.reason}",
            "compare it with a backup; somebody has changed the database past the service",
        )
    click.echo(f"the audit trail is whole; its last digest is {last}")

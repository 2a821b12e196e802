"""`hpctools-api backup` and `restore`."""

from __future__ import annotations

from pathlib import Path

import click

from api.settings import read_settings


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
def backup(file: Path) -> None:
    """Write the whole store to a new FILE; the service may go on meanwhile.

    FILE is readable by you only. PostgreSQL's needs pg_dump of the server's release or a newer one.

    \b
    Example:  hpctools-api backup /backups/budgets-2026-11-21
    """
    from api.services.backup import backup as carry_out

    carry_out(read_settings().database_url, file)
    click.echo(f"the store is in {file}")


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
def restore(file: Path) -> None:
    """Bring a FILE of `backup` into an empty database. Stop the service first.

    \b
    Example:  hpctools-api restore /backups/budgets-2026-11-21
    """
    from api.services.backup import restore as carry_out

    revision = carry_out(read_settings().database_url, file)
    click.echo(f"the store is restored; its tables are at {revision}")

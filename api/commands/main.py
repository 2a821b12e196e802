"""The commands of `hpctools-api`."""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

import click

from api.commands.audit import audit
from api.commands.backup import backup, restore
from api.commands.reconcile import chosen_month, reconcile
from api.commands.store import open_store
from api.commands.tokens import token
from api.commands.verify import verify
from api.commands.watch import check_budgets
from api.db.engine import connect
from api.db.migrate import HEAD, current, upgrade
from api.logs import configure
from api.settings import read_settings
from hpctools.budget.month import day_of
from hpctools.errors import HpctoolsError, SiteError, UsageError

if TYPE_CHECKING:
    from fastapi import FastAPI

_SWITCH_SECONDS = 0.0005


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def cli() -> None:
    """The budget service: the cloud bill joined to Slurm's jobs.

    Settings come from HPCTOOLS_API_DATABASE_URL, HPCTOOLS_API_SITE and others: see docs/budgets.md.
    """


cli.add_command(token)
cli.add_command(audit)
cli.add_command(backup)
cli.add_command(restore)
cli.add_command(check_budgets)
cli.add_command(reconcile)
cli.add_command(verify)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line; a user's mistake is one line and an exit code, never a traceback.

    Args:
        arguments: what follows the program's name; from the process when None.
    """
    try:
        cli(arguments, prog_name="hpctools-api")
    except HpctoolsError as error:
        click.echo(f"hpctools-api: {error}", err=True)
        sys.exit(error.exit_code)


@cli.command()
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", default=8642, show_default=True, type=click.IntRange(0, 65535), help="TCP port.")
def serve(host: str, port: int) -> None:
    """Serve the API and the pages.

    \b
    Example:  hpctools-api serve --port 8642
    """
    import uvicorn

    from api.app import create_app
    from api.services.watch import channels

    settings = read_settings()
    channels(settings)
    configure(settings.log_format)
    with open_store(settings):
        pass
    app = create_app(settings)
    _settle(app)
    # So long, not Python's 5 ms, a thread that has its database's answer waits for the loop to let it on.
    sys.setswitchinterval(_SWITCH_SECONDS)
    uvicorn.run(
        app,
        host=host,
        port=port,
        log_config=None,
        access_log=False,
        server_header=False,
        root_path=settings.root_path,
        proxy_headers=True,
        forwarded_allow_ips=settings.trusted_proxies,
        # A client that never ends its request does not keep the service from ending.
        timeout_graceful_shutdown=10,
    )


def _settle(app: FastAPI) -> None:
    """Make what stays for good, and have the collector of garbage leave it, for which all wait 0.1 s."""
    app.openapi()
    with suppress(SiteError):  # each request that needs the site says so
        app.state.context.site_file.current()
    gc.collect()
    gc.freeze()


@cli.command()
def migrate() -> None:
    """Bring the database's tables up to date.

    \b
    Example:  hpctools-api migrate
    """
    engine = connect(read_settings().database_url)
    before = current(engine)
    upgrade(engine)
    engine.dispose()
    click.echo(
        f"tables are at {HEAD}" if before == HEAD else f"tables brought from {before or 'nothing'} to {HEAD}"
    )


@cli.command()
@click.option("--month", help="YYYY-MM; the present month when left out.")
@click.option(
    "--account", default="root", show_default=True, help="A department, a lab, or root for the site."
)
@click.option("--json", "as_json", is_flag=True, help="Print what the API would answer.")
def statement(month: str | None, account: str, as_json: bool) -> None:
    """Print an account's month.

    \b
    Example:  hpctools-api statement --month 2026-10 --account nlp
    """
    from api.commands.statement import print_statement
    from api.services.budgets import with_budgets
    from api.services.month_statements import read_month_statement
    from api.services.site_file import SiteFile

    settings, now = read_settings(), int(time.time())
    site = SiteFile(settings.site, settings.metric).current()
    if account not in site.by_name:
        raise UsageError(f"there is no account {account!r}", f"there are: {', '.join(site.by_name)}")
    chosen = chosen_month(month, now)
    with open_store(settings) as engine:
        site = with_budgets(engine, site, day_of(now))
        found = read_month_statement(engine, site, site.by_name[account], chosen, now)
    print_statement(found, as_json)

"""`hpctools-api check-budgets`."""

from __future__ import annotations

import time

import click

from api.commands.store import open_store
from api.settings import read_settings


@click.command("check-budgets")
@click.option("--enforce", is_flag=True, help="Also change Slurm's limits, as the budgets say.")
def check_budgets(enforce: bool) -> None:
    """Measure what runs, tell alerts that are due, deliver those that wait: for a timer, every few minutes

    \b
    Example:  hpctools-api check-budgets
    """
    from api.services.burning import SacctJobs
    from api.services.site_file import SiteFile
    from api.services.slurm_limits import SlurmLimits
    from api.services.watch import Watcher, channels

    settings = read_settings()
    site = SiteFile(settings.site, settings.metric).current()
    jobs = SacctJobs(settings.sacct, settings.sacct_timeout)
    with open_store(settings) as engine:
        slurm = SlurmLimits(site.cluster) if enforce else None
        found = Watcher(engine, jobs, channels(settings), slurm).look(site, int(time.time()))
    steps = f", {len(found.enforced.steps)} changes of limits" if found.enforced else ""
    frozen = f" ({found.enforced.frozen})" if found.enforced and found.enforced.frozen else ""
    click.echo(
        f"{found.alerts} new alerts, {found.delivered.sent} messages sent, {found.delivered.failed} failed"
        f"{steps}{frozen}"
    )

"""`hpctools budget jobs`, `runs` and `job`: what is behind an account's figures."""

from __future__ import annotations

import os
from typing import Any
from urllib.parse import quote, urlencode

import click

from hpctools.budget.service import find_service
from hpctools.cli import budget_text
from hpctools.cli.output import show

_AS_JSON = click.option("--json", "as_json", is_flag=True, help="Print what the service answered.")
_MONTH = click.option("--month", help="YYYY-MM (UTC); the present one when left out.")
_LIMIT = click.option("--limit", default=20, show_default=True, type=click.IntRange(1, 1000))


@click.command()
@click.argument("account")
@_MONTH
@click.option("--from", "from_", help="YYYY-MM-DD (UTC), the first day.")
@click.option("--to", help="YYYY-MM-DD (UTC), the last day.")
@click.option("--user", help="Only this one's.")
@click.option("--state", help="Slurm's word, such as FAILED.")
@click.option("--partition")
@click.option("--run", help="Only jobs of this elastic run.")
@click.option(
    "--sort", default="-cost", show_default=True, type=click.Choice(["-cost", "cost", "-start", "start"])
)
@_LIMIT
@_AS_JSON
def jobs(account: str, from_: str | None, as_json: bool, **wanted: Any) -> None:
    """What the jobs of an account, and of those below it, cost: the dearest first.

    \b
    Example:  hpctools budget jobs nlp --month 2026-11
    """
    answer = _ask(account, "jobs", {"from": from_, **wanted})
    show(answer if as_json else budget_text.jobs(answer))


@click.command()
@click.argument("account")
@_MONTH
@_LIMIT
@_AS_JSON
def runs(account: str, as_json: bool, **wanted: Any) -> None:
    """What elastic runs cost, all jobs of each together: the dearest first.

    \b
    Example:  hpctools budget runs nlp
    """
    answer = _ask(account, "runs", wanted)
    show(answer if as_json else budget_text.runs(answer))


@click.command()
@click.argument("job")
@click.option("--month", help="YYYY-MM in which it ran; the last three are looked at when left out.")
@_AS_JSON
def job(job: str, month: str | None, as_json: bool) -> None:
    """What one job cost (123, 123_4 or 123+1), day by day, and how that became known.

    \b
    Example:  hpctools budget job 4711
    """
    query = f"?{urlencode({'month': month})}" if month else ""
    answer = find_service(os.environ).ask("GET", f"/v1/jobs/{quote(job, safe='')}{query}")
    show(answer if as_json else "".join(budget_text.job(each) for each in answer["jobs"]))


def _ask(account: str, what: str, wanted: dict[str, Any]) -> Any:
    query = urlencode({name: value for name, value in wanted.items() if value is not None})
    return find_service(os.environ).ask("GET", f"/v1/accounts/{quote(account, safe='')}/{what}?{query}")

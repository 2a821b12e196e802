"""`hpctools budget enforce`."""

from __future__ import annotations

import os
from urllib.parse import quote

import click

from hpctools.budget.service import find_service
from hpctools.cli import budget_text
from hpctools.cli.output import show

_AS_JSON = click.option("--json", "as_json", is_flag=True, help="Print what the service answered.")


@click.group()
def enforce() -> None:
    """Keep accounts to their budgets. Running jobs are never touched."""


@enforce.command()
@_AS_JSON
def plan(as_json: bool) -> None:
    """What would be done now; changes nothing. Ends with 1 when there is something to do.

    \b
    Example:  hpctools budget enforce plan
    """
    answer = find_service(os.environ).ask("GET", "/v1/enforcement/plan")
    show(answer if as_json else budget_text.enforcement(answer))
    if answer["steps"]:
        raise SystemExit(1)


@enforce.command()
@_AS_JSON
def apply(as_json: bool) -> None:
    """Do it, and read back what became of it.

    \b
    Example:  hpctools budget enforce apply
    """
    answer = find_service(os.environ).ask("POST", "/v1/enforcement/apply", {})
    show(answer if as_json else budget_text.enforcement(answer))


@enforce.command()
@click.argument("account")
@_AS_JSON
def undo(account: str, as_json: bool) -> None:
    """Give back what was taken for an account's budget; the next apply takes it again if nothing changed.

    \b
    Example:  hpctools budget enforce undo nlp
    """
    where = f"/v1/enforcement/accounts/{quote(account, safe='')}/undo"
    answer = find_service(os.environ).ask("POST", where, {})
    show({"steps": answer} if as_json else budget_text.steps(answer))

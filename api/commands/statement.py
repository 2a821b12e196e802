"""A statement on a terminal."""

from __future__ import annotations

import sys
from decimal import Decimal

import click
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from api.pages.wording import moment_name, money, percentage
from api.schemas.statement import StatementOut
from hpctools.budget.money import total
from hpctools.budget.month import moment
from hpctools.budget.statement import Statement


def print_statement(statement: Statement, as_json: bool) -> None:
    """Print a statement as a table, or as the API's JSON."""
    if as_json:
        click.echo(StatementOut.of(statement).model_dump_json(indent=2))
        return
    known = (
        f"as of {moment_name(moment(statement.as_of))}" if statement.as_of is not None else "not reconciled"
    )
    click.echo(f"{statement.account.name}, {statement.month}: {statement.status}, {known}")
    width = None if sys.stdout.isatty() else 100
    Console(width=width, soft_wrap=True).print(_figures(statement))
    if statement.unbilled:
        click.echo(f"{_money(statement, statement.unbilled)} ran since the last day of the bill")
    Console(width=width, soft_wrap=True).print(_parts(statement))


def _figures(statement: Statement) -> Table:
    table = Table("spent", "budget", "left", "used", "expected at month's end")
    left = "-" if statement.left is None else _money(statement, statement.left)
    budget = "-" if statement.budget is None else _money(statement, statement.budget)
    ahead = "-" if statement.projected is None else _money(statement, statement.projected)
    table.add_row(_money(statement, statement.spent), budget, left, percentage(statement.percent_used), ahead)
    return table


def _parts(statement: Statement) -> Table:
    table = Table("name", "kind")
    table.add_column("spent", justify="right")
    table.add_column("share", justify="right")
    uncharged = statement.uncharged
    rows: list[tuple[str, str, Decimal, str]] = [
        (part.name, part.level, part.amount, percentage(part.percent)) for part in statement.parts
    ]
    if statement.account.level == "site":
        nobody = (("idle", uncharged.idle), ("shared", uncharged.shared), ("untagged", uncharged.untagged))
        rows += [(name, "charged to nobody", amount, "") for name, amount in nobody]
    for name, kind, amount, share in rows:
        # Names come from slurmdbd too: what looks like rich's markup is a name all the same.
        table.add_row(escape(name), kind, _money(statement, amount), share)
    table.add_section()
    table.add_row("together", "", _money(statement, total(amount for _, _, amount, _ in rows)), "")
    return table


def _money(statement: Statement, amount: Decimal) -> str:
    return money(amount, statement.currency)

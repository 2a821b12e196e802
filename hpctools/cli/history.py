"""`hpctools history [N]`: who applied what, when, and what came of it."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from hpctools.cli.changing import state_option

if TYPE_CHECKING:
    from hpctools.conf.apply import History, Record

_WIDTH = 100


@click.command()
@click.argument("number", metavar="[N]", type=int, required=False)
@click.option("--diff", is_flag=True, help="With N: the diff of its files.")
@state_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def history(number: int | None, diff: bool, state: Path, as_json: bool) -> None:
    """Show what was changed, when and by whom; with N, one change in full.

    `hpctools rollback N` brings back the configuration that change N left.

    \b
    Example:  hpctools history 12 --diff
    """
    from hpctools.conf.apply import History

    remembered = History(state)
    if number is None:
        _show_all(remembered.records(), as_json=as_json)
        return
    record = remembered.record(number)
    if diff:
        _show_diff(remembered, number)
    else:
        _show_one(remembered, record, as_json=as_json)


def _show_all(records: list[Record], *, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps({"changes": [record.plain() for record in records]}, indent=2))
    elif not records:
        click.echo("nothing has been applied yet")
    else:
        _table(records)


def _table(records: list[Record]) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table(box=box.SIMPLE)
    for column in ("N", "when", "who", "what", "result", "why"):
        table.add_column(column, no_wrap=column in ("N", "when"))
    for record in records:
        why = record.reason.partition("\n")[0]
        table.add_row(
            str(record.number), _time(record.began), record.who, _what(record), _result(record), why
        )
    console = Console(highlight=False, markup=False)
    console.width = console.width if sys.stdout.isatty() else max(console.width, _WIDTH)
    console.print(table)


def _what(record: Record) -> str:
    if record.kind == "as found":
        return "as found"
    what = f"back to {record.back_to}" if record.kind == "rollback" else "apply"
    return f"{what}, {record.changes} change{'' if record.changes == 1 else 's'}"


def _result(record: Record) -> str:
    return record.result or f"under way or killed ({record.phase.value})"


def _time(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds))


def _show_diff(remembered: History, number: int) -> None:
    from hpctools.conf.apply import fileset

    before, after = remembered.files(number, "before"), remembered.files(number, "after")
    click.echo(fileset.diff(before, after, fileset.differing(before, after)), nl=False)


def _show_one(remembered: History, record: Record, *, as_json: bool) -> None:
    folder = remembered.folder / str(record.number)
    text = remembered.document(record.number, "plan.json")
    if as_json:
        plan = json.loads(text) if text else None
        click.echo(json.dumps({**record.plain(), "plan": plan, "kept_in": str(folder)}, indent=2))
        return
    for name, value in _facts(record, folder):
        click.echo(f"{name:<9}{value}")
    if text:
        from hpctools.cli.plan_text import plan_text
        from hpctools.conf.plan.model import Plan

        click.echo("\n" + plan_text(Plan.from_json(text)), nl=False)


def _facts(record: Record, folder: Path) -> list[tuple[str, str]]:
    source = f" from {record.source}" if record.source else ""
    rows = [
        ("change", f"{record.number}: {_what(record)}"),
        ("result", _result(record)),
        ("why", record.reason),
        ("who", f"{record.who} on {record.host}{source}"),
        ("command", record.command),
        ("began", _time(record.began)),
        ("took", f"{record.ended - record.began:.1f} s" if record.ended else ""),
        ("cluster", f"{record.cluster}, Slurm {record.release}, {record.folder}"),
        ("owed", ", ".join(step.need.value for step in record.owed)),
        ("kept in", str(folder)),
    ]
    return [(name, value) for name, value in rows if value]

"""`hpctools rollback [N]`: bring back an earlier configuration, through the same transaction as apply."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from hpctools.cli.changing import carry_out, changing_options, command_line, node_count
from hpctools.cli.target import of_then, refuse_hyperpod

if TYPE_CHECKING:
    from hpctools.conf.apply import History, Record, Request
    from hpctools.site.daemons import DaemonCommands


@click.command()
@click.argument("number", metavar="[N]", type=int, required=False)
@click.option("--folder", type=click.Path(path_type=Path), help="Slurm's folder (default: that of change N).")
@changing_options
def rollback(
    number: int | None,
    folder: Path | None,
    discard_edits: bool,
    yes: bool,
    wait: float,
    state: Path,
    as_json: bool,
) -> int:
    """Bring back the files and the accounts of change N.

    N is a number of `hpctools history`; 0 is what there was before the first change. Without N: what there
    was before the last one, and when said again, before that.

    The way is the same as with apply: plan, preflight, switch, load, verify. It is a change of its own that
    can itself be rolled back. Jobs and their history stay; so do people who have jobs in the queue.

    \b
    Example:  hpctools rollback 12
    """
    from hpctools.conf.apply import History
    from hpctools.conf.apply.return_to import chosen

    history = History(state)
    records = _changes(history, folder, wait)
    record = chosen(records, number)
    last = records[-1].number
    commands, request = _request(history, record, after=last, discard_edits=discard_edits, wait=wait)
    place = folder or Path(record.folder)
    return carry_out(request, commands, place, state, release=None, agreed=yes, as_json=as_json)


def _changes(history: History, folder: Path | None, wait: float) -> list[Record]:
    """All changes, once nobody makes one: what is before the last hangs on what becomes of that."""
    from hpctools.conf.apply.lock import locked
    from hpctools.conf.apply.recovery import closed_records
    from hpctools.conf.apply.who import me

    if history.numbers():
        with locked(history.lock, me(), command_line(), wait):
            return closed_records(history, folder)
    return []


def _request(
    history: History, record: Record, *, after: int, discard_edits: bool, wait: float
) -> tuple[DaemonCommands, Request]:
    """The site and the facts of then: today's may be what somebody goes back from."""
    from hpctools.conf.apply import Request
    from hpctools.conf.apply.return_to import configuration, documents
    from hpctools.conf.apply.who import me
    from hpctools.conf.slurmdbd import Slurmdbd

    kept = documents(history, record)
    site, facts = of_then(kept)
    if record.kind != "as found":  # what was found was HyperPod's own
        refuse_hyperpod(site, facts)
    request = Request(
        bundle=configuration(history, record, Slurmdbd(record.cluster).read),
        nodes=node_count(site),
        slurm_user=facts.slurm_user or site.cluster.slurm_user,
        who=me(),
        command=command_line(),
        kind="rollback",
        prune=True,
        discard_edits=discard_edits,
        documents=kept,
        back_to=record.number,
        after=after,
        wait=wait,
    )
    return facts.daemons or site.cluster.daemons, request

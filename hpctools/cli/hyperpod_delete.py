"""`hpctools hyperpod delete`: a cluster and what is around it, but not its data."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from hpctools.cli.hyperpod_life import agreed, life_of, life_options, resumable
from hpctools.cli.output import json_line, show

if TYPE_CHECKING:
    from hpctools.hyperpod.operations.losses import Holding, Losses


@click.command()
@life_options
@click.option("--delete-data", is_flag=True, help="Delete file systems, buckets and databases, too.")
@click.option("--yes", is_flag=True, help="Do not ask, not for the cluster's name either.")
@click.option("--dry-run", is_flag=True, help="Only show what would be lost.")
def delete(
    site_file: Path, minutes: int, poll: float, as_json: bool, delete_data: bool, yes: bool, dry_run: bool
) -> None:
    """Delete the cluster, and of what is around it all that has no data.

    Shows first what would be lost and what would be kept, and asks. File systems, buckets, databases and what
    they cannot be without stay in the stack, so that `hpctools hyperpod create` finds them again; they go on
    costing money. --delete-data deletes them, too; a database leaves a last snapshot.

    \b
    Example:  hpctools hyperpod delete site.yaml --dry-run
    """
    life = life_of(site_file, as_json, minutes, poll)
    life.aws.account()
    found = life.losses()
    if as_json:
        show(json_line({"losses": asdict(found), "delete_data": delete_data}))
    else:
        show("\n".join(_lines(life.site.cluster.name, life.aws.region, found, delete_data)) + "\n")
    if dry_run or found.nothing or not _asked(life.site.cluster.name, delete_data, yes):
        return
    with resumable(f"delete {site_file}" + (" --delete-data" if delete_data else "")):
        life.delete(data=delete_data)
    if not as_json:
        show(f"deleted; {_left(found, delete_data)}\n")


def _asked(name: str, delete_data: bool, yes: bool) -> bool:
    if delete_data:
        question = f"type the cluster's name ({name}) to delete it with all its data"
        sure = agreed(question, yes, name)
    else:
        sure = agreed("delete it?", yes)
    if not sure:
        click.echo("nothing was deleted", err=True)
    return sure


def _lines(name: str, region: str, found: Losses, delete_data: bool) -> Iterator[str]:
    if found.nothing:
        yield f"there is no cluster {name} and no stack of it in {region}"
        return
    yield "lost:"
    if found.cluster:
        nodes = ", ".join(f"{group.group} {sum(group.states.values())}" for group in found.nodes)
        yield f"  cluster {name} ({found.cluster}), with its jobs and its nodes' disks: {nodes or 'no nodes'}"
    if found.scripts:
        yield f"  bucket {found.scripts}: the nodes' scripts, which create uploads again"
    if found.going:
        yield f"  {len(found.going)} resources of stack {found.stack} that have no data"
    for name in found.never_made:
        yield f"  stack {name}, which was never made: all that is left of the attempt"
    held = [f"  {line}" for line in map(_holding, found.holding)]
    if delete_data:
        yield from held
    elif held:
        yield "kept, and paid for (--delete-data deletes them):"
        yield from held


def _holding(held: Holding) -> str:
    kind = held.kind.removeprefix("AWS::").replace("::", " ")
    return f"{kind} {held.identifier} ({held.region})" + (f": {held.amount}" if held.amount else "")


def _left(found: Losses, delete_data: bool) -> str:
    if found.never_made:
        return "of an attempt, empty buckets and logs may be left, which create takes up again"
    if delete_data or not found.holding:
        return "nothing is left"
    return f"{len(found.holding)} resources with data are left in stack {found.stack}"

"""`hpctools hyperpod update`: what is there, made what the site says now."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from hpctools.cli.hyperpod_life import agreed, life_of, life_options, preparing, resumable
from hpctools.cli.output import json_line, show
from hpctools.errors import HpctoolsError

if TYPE_CHECKING:
    from hpctools.cli.hyperpod_bundle import Cgroup
    from hpctools.hyperpod.operations.clusters import Difference
    from hpctools.hyperpod.operations.stacks import Change

_SIGNS = {"Add": "+", "Modify": "~", "Replace": "!", "Remove": "-"}
_NOT_AGREED = "nothing more was changed"


@click.command()
@life_options
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--slurm", "release", help="The Slurm release on the nodes, if not the site's (24.11).")
@click.option("--cgroup", type=click.Choice(["v1", "v2", "none"]), default="v2", show_default=True)
def update(
    site_file: Path, minutes: int, poll: float, as_json: bool, yes: bool, release: str | None, cgroup: Cgroup
) -> None:
    """Make the stack, the scripts and the cluster what the site says now.

    Shows what changes, and asks. Nodes that are there keep the scripts that they started with; new and
    replaced ones get the new. Groups whose count has a range keep the nodes that they have.

    \b
    Example:  hpctools hyperpod update site.yaml
    """
    life = life_of(site_file, as_json, minutes, poll)
    life.aws.account()

    def agree(changes: tuple[Change, ...]) -> None:
        for change in changes:
            click.echo(f"  {_SIGNS[change.action]} {change.name} ({change.kind})", err=True)
        replaced = [change.name for change in changes if change.action == "Replace"]
        if replaced:
            click.echo(
                f"replaced, so that what is in them is lost or left behind: {', '.join(replaced)}", err=True
            )
        _stop_unless(agreed("change the stack?", yes))

    def agree_cluster(found: Difference) -> None:
        for line in found.lines:
            click.echo(f"  {line}", err=True)
        _stop_unless(agreed("change the cluster?", yes))

    with resumable(f"update {site_file}"):
        found = life.update(preparing(life, release, cgroup), agree, agree_cluster)
    name = life.site.cluster.name
    changed = list(found.lines)
    some = "1 change" if len(changed) == 1 else f"{len(changed)} changes"
    told = f"cluster {name}: {some}" if changed else f"cluster {name} is as the site says"
    show(json_line({"cluster": name, "changed": changed}) if as_json else f"{told}\n")


def _stop_unless(agreed_to: bool) -> None:
    if not agreed_to:
        raise HpctoolsError(_NOT_AGREED)

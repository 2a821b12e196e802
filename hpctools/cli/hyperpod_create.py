"""`hpctools hyperpod create`: from a site to a running cluster."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from hpctools.cli.hyperpod_life import life_of, life_options, preparing, resumable
from hpctools.cli.output import json_line, show

if TYPE_CHECKING:
    from hpctools.cli.hyperpod_bundle import Cgroup


@click.command()
@life_options
@click.option("--slurm", "release", help="The Slurm release on the nodes, if not the site's (24.11).")
@click.option("--cgroup", type=click.Choice(["v1", "v2", "none"]), default="v2", show_default=True)
def create(
    site_file: Path, minutes: int, poll: float, as_json: bool, release: str | None, cgroup: Cgroup
) -> None:
    """Make what is around the cluster, upload the nodes' scripts, and create the cluster.

    It waits and tells how it goes. Interrupted, AWS goes on; the same command goes on where it was, and what
    is there already stays as it is. It costs money from the first minute.

    \b
    Example:  hpctools hyperpod create site.yaml
    """
    from hpctools.hyperpod.operations.status import look

    life = life_of(site_file, as_json, minutes, poll)
    life.aws.account()
    with resumable(f"create {site_file}"):
        life.create(preparing(life, release, cgroup))
    found, name = look(life), life.site.cluster.name
    if as_json:
        told = {"cluster": name, "region": life.aws.region, "entry": found.entry, "missing": found.missing}
        show(json_line(told))
        return
    entry = f"; people log in at {found.entry}" if found.entry else ""
    show(f"cluster {name} is in service{entry}\n")
    if found.missing:
        show(f"{found.missing} nodes are still to come; see: hpctools hyperpod status {site_file}\n")

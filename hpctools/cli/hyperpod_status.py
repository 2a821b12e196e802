"""`hpctools hyperpod status`: what there is of a site's cluster on AWS."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from hpctools.cli.hyperpod_life import life_of, life_options
from hpctools.cli.output import json_line, show

if TYPE_CHECKING:
    from hpctools.hyperpod.operations.status import StackStatus, Status


@click.command()
@life_options
def status(site_file: Path, minutes: int, poll: float, as_json: bool) -> int:
    """Show stack, cluster and nodes. Exit code 0 when all is in service and as the site says, 1 otherwise.

    \b
    Example:  hpctools hyperpod status site.yaml
    """
    from hpctools.hyperpod.operations.status import look

    life = life_of(site_file, as_json, minutes, poll)
    life.aws.account()
    found = look(life)
    name = life.site.cluster.name
    show(json_line({"name": name, **found.as_json()}) if as_json else "\n".join(_lines(name, found)) + "\n")
    return 0 if found.good else 1


def _lines(name: str, found: Status) -> Iterator[str]:
    for stack in found.stacks:
        yield f"stack    {stack.name} ({stack.region}): {stack.status}{_about(stack)}"
    yield f"cluster  {name} ({found.region}): {found.cluster}" + (
        f": {found.failure}" if found.failure else ""
    )
    for group in found.groups:
        states = ", ".join(f"{count} {state}" for state, count in sorted(group.states.items()))
        yield f"  {group.group:<20} {group.wanted:>5} wanted   {states or 'none there'}"
    if found.entry:
        yield f"entry    {found.entry}"


def _about(stack: StackStatus) -> str:
    if stack.reason:
        return f": {stack.reason}"
    if stack.data_only:
        return "; its cluster was deleted, and what has data is left"
    if stack.status != "absent" and not stack.as_the_site_says:
        return "; not as the site says (hpctools hyperpod update)"
    return ""

"""`hpctools login forget`: a login node that is gone is no longer known."""

from __future__ import annotations

import os
from urllib.parse import quote

import click

from hpctools.budget.service import find_service
from hpctools.cli.output import show


@click.command()
@click.argument("nodes", nargs=-1, required=True, metavar="NODE...")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def forget(nodes: tuple[str, ...], as_json: bool) -> None:
    """Forget login nodes that are gone: their places, sessions and drain, and their alarm as silent nodes.

    A node that still reports is refused; one that reports later is known again. Nodes that are silent for
    seven days are forgotten by themselves, unless they are drained. `hpctools login nlb` lets their addresses
    go.

    \b
    Examples:
      hpctools login forget ip-10-0-0-5
    """
    service = find_service(os.environ)
    for node in nodes:
        service.ask("DELETE", f"/v1/login/nodes/{quote(node, safe='')}")
        if not as_json:
            show(f"{node} is forgotten\n")
    if as_json:
        show({"forgotten": list(nodes)})

"""`hpctools login`: login nodes, who is on them, draining them, and what stands in front of them."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import click

from hpctools.budget.service import MissingError, Service, find_service
from hpctools.cli import login_text
from hpctools.cli.login_drain import drain, undrain
from hpctools.cli.login_forget import forget
from hpctools.cli.login_function import function
from hpctools.cli.login_host_keys import host_keys
from hpctools.cli.login_nlb import nlb
from hpctools.cli.login_sessions import all_sessions
from hpctools.cli.output import save, show

_AS_JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


@click.group()
def login() -> None:
    """Login nodes: how they are, who is on them, draining them, what stands in front of them.

    The service is $HPCTOOLS_API; the token is in $HPCTOOLS_API_TOKEN_FILE (~/.hpctools/token, mode 0600) or
    in $HPCTOOLS_API_TOKEN.

    \b
    Examples:
      hpctools login nodes
      hpctools login drain login-1 --wait --deadline 2h --message "new kernel"
      hpctools login undrain login-1
      hpctools login forget login-1
      hpctools login render site.yaml --out /etc/hpctools
      hpctools login host-keys show /shared/hostkeys/login
    """


for command in (drain, undrain, forget, host_keys, nlb, function):
    login.add_command(command)


def service() -> Service:
    """The service that the environment names."""
    return find_service(os.environ)


@login.command()
@_AS_JSON
def nodes(as_json: bool) -> None:
    """Login nodes as they were last heard of. Ends with 1 when none takes sessions.

    \b
    Examples:
      hpctools login nodes
      hpctools login nodes --json | jq -r '.nodes[] | select(.state == "silent").name'
    """
    found = service().ask("GET", "/v1/login/nodes")["nodes"]
    show({"nodes": found} if as_json else login_text.nodes(found))
    if not any(node["state"] == "up" for node in found):
        raise SystemExit(1)


@login.command()
@click.option("--user", help="Only theirs.")
@click.option("--node", help="Only there.")
@_AS_JSON
def sessions(user: str | None, node: str | None, as_json: bool) -> None:
    """Who is on the login nodes, since when, from where: those whom you may see.

    \b
    Examples:
      hpctools login sessions --node login-1
      hpctools login sessions --user nlp1 --json
    """
    found = all_sessions(service(), user=user, node=node)
    show({"sessions": found} if as_json else login_text.sessions(found, time.time()))


@login.command()
@click.argument("numbers", nargs=-1, required=True, type=int, metavar="SESSION...")
@_AS_JSON
def end(numbers: tuple[int, ...], as_json: bool) -> None:
    """End sessions by their numbers (hpctools login sessions); their nodes do it within a heartbeat.

    \b
    Example:
      hpctools login end 812 815
    """
    here = service()
    found: list[Any] = []
    missing: list[str] = []
    try:
        for number in dict.fromkeys(numbers):
            try:
                found.append(here.ask("DELETE", f"/v1/login/sessions/{number}"))
            except MissingError:  # it may have ended by itself: that keeps no other
                missing.append(f"{number}")
    finally:
        if found:
            show({"sessions": found} if as_json else login_text.ending(found))
    if missing:
        gone = f"session{'s' * (len(missing) > 1)} {', '.join(missing)}"
        raise MissingError(f"there is no {gone} that you may end", "see `hpctools login sessions`")


@login.command()
@click.argument("site", type=click.Path(path_type=Path))
@click.option("--out", type=click.Path(path_type=Path), help="Write the files into this folder.")
def render(site: Path, out: Path | None) -> None:
    """Make login-agent.yaml, login-sshd.conf and haproxy.cfg from a site file; printed unless --out is given.

    \b
    Examples:
      hpctools login render site.yaml
      hpctools login render site.yaml --out /etc/hpctools
    """
    from hpctools.login import sshd
    from hpctools.login.agent.from_site import agent_settings, settings_text
    from hpctools.login.haproxy import configuration, login_servers
    from hpctools.site import load

    read = load(site)
    texts = {
        "login-agent.yaml": settings_text(agent_settings(read)),
        "login-sshd.conf": sshd.configuration(),
    }
    if read.login.haproxy is not None:
        texts["haproxy.cfg"] = configuration(read.login.haproxy, login_servers(read))
    for name, text in sorted(texts.items()):
        if out is None:
            show(f"# ---- {name}\n{text}")
        else:
            save(out / name, text)
            show(f"{out / name}\n")


@login.command()
@click.option("--socket", default="/run/hpctools-login/agent.sock", show_default=True)
@_AS_JSON
def here(socket: str, as_json: bool) -> None:
    """What the agent of this very node says; needs no service. Root sees where others came from.

    \b
    Example:
      hpctools login here
    """
    from hpctools.cli.login_drain import ask_agent
    from hpctools.login.agent.listening import people_socket

    people = people_socket(Path(socket))
    found = ask_agent(people if people.exists() else Path(socket), {"ask": "status"})
    show(found if as_json else login_text.status(found, time.time()))

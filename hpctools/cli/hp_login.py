"""hp-login: log in on the login node that the service names, and know why it is that one."""

from __future__ import annotations

import argparse
import getpass
import os
import socket
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol
from urllib.parse import quote

import hpctools
from hpctools.cli.ending import run_command
from hpctools.errors import HpctoolsError, UnreachableError, UsageError

_CONNECT_SECONDS = 3.0
_ASK_SECONDS = 10.0
_EXAMPLES = """\
examples:
  hp-login                                to your tmux or session if you have one, else where there is room
  hp-login --cluster uni                  of ~/.config/hpctools/clusters.yaml
  hp-login -- -L 8888:localhost:8888      what follows -- goes to ssh: here a tunnel for a notebook
  hp-login --sessions                     which sessions you have, where, since when
  hp-login --end 812                      end one of them
  hp-login --dry-run                      say where it would go, and why
"""


class Asked(Protocol):
    """The service."""

    def ask(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """Ask; raises HpctoolsError."""


Answers = Callable[[str, int], bool]
"""Whether an sshd answers at a host's port."""


@dataclass(frozen=True)
class Way:
    """Where to go.

    Attributes:
        why: one sentence for people.
    """

    node: str
    address: str
    why: str


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return its exit code, or become ssh."""
    given = parser().parse_args(argv)
    return run_command("hp-login", lambda: _login(given), debug=given.debug)


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(
        prog="hp-login",
        usage="hp-login [options] [-- SSH-OPTION...]",
        description="Log in on the login node where your session is, or where there is room.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument("ssh", nargs="*", metavar="SSH-OPTION", help="what ssh gets too, a command last")
    made.add_argument("--cluster", metavar="NAME", help="a cluster of clusters.yaml; else its default")
    made.add_argument("--user", help="your account there, where it is another than here")
    made.add_argument("--dry-run", action="store_true", help="say where it would go, and why")
    made.add_argument("--sessions", action="store_true", help="list your sessions")
    made.add_argument("--end", type=int, metavar="SESSION", help="end one of your sessions")
    made.add_argument("--json", action="store_true", help="print JSON (with --dry-run, --sessions, --end)")
    made.add_argument("--debug", action="store_true", help="show a traceback when something fails")
    made.add_argument("-V", "--version", action="version", version=f"hp-login {hpctools.__version__}")
    return made


def _login(given: argparse.Namespace) -> int:  # noqa: RET503 - it becomes ssh
    from hpctools.cli.login_text import ending, sessions
    from hpctools.cli.output import show
    from hpctools.slurm.run import replace

    cluster_user, nodes, service = _reached(given.cluster)
    user = given.user or cluster_user or getpass.getuser()
    if given.sessions or given.end is not None:
        asked = _needed(service)
        if given.end is not None:
            found = [asked.ask("DELETE", f"/v1/login/sessions/{given.end}")]
            show({"sessions": found} if given.json else ending(found))
        else:
            found = asked.ask("GET", f"/v1/login/sessions?user={quote(user, safe='')}")["sessions"]
            show({"sessions": found} if given.json else sessions(found, time.time()))
        return 0
    way = find_way(user, service, nodes, answers_as_sshd)
    if given.dry_run:
        show(vars(way) if given.json else f"{way.node}: {way.why}\n")
        return 0
    print(f"hp-login: {way.node}: {way.why}", file=sys.stderr)
    replace(ssh_command(user if given.user or cluster_user else "", way.address, given.ssh))


def _reached(name: str | None) -> tuple[str, tuple[str, ...], Asked | None]:
    """The account, the login nodes to try without a service, and the service."""
    from hpctools.remote.clusters import Cluster, load, place

    clusters = load(place(os.environ))
    wanted = name or clusters.usual
    cluster = clusters.find(wanted) if wanted else Cluster("", ())
    return cluster.user, cluster.login_nodes, _service(cluster.api)


def _service(api: str) -> Asked | None:
    from dataclasses import replace

    from hpctools.budget.service import find_service

    environment = {**os.environ, **({"HPCTOOLS_API": api} if api else {})}
    if not environment.get("HPCTOOLS_API"):
        return None
    return replace(find_service(environment), seconds=_ASK_SECONDS)


def _needed(service: Asked | None) -> Asked:
    if service is None:
        raise UsageError(
            "no service is named", "set HPCTOOLS_API=https://HOST, or `api` in clusters.yaml (docs/login.md)"
        )
    return service


def find_way(user: str, service: Asked | None, nodes: Sequence[str], answers: Answers) -> Way:
    """Where to go: where the service says, if an sshd answers there; else the first of `nodes` that answers.

    Raises:
        HpctoolsError: the service refuses (too many sessions, all nodes drained).
        UnreachableError: nobody answers anywhere.
    """
    if service is None:
        return _first(nodes, answers, "no service is asked")
    tried: list[str] = []
    while True:
        try:
            found = service.ask("POST", "/v1/login/sessions", {"user": user, "avoid": tried})
        except UnreachableError as error:
            return _first([node for node in nodes if node not in tried], answers, str(error))
        if answers(found["address"], 22):
            return Way(found["node"], found["address"], found["why"])
        if found["node"] in tried:
            raise UnreachableError(f"none of {', '.join(tried)} answers", "see `hpctools login nodes`")
        tried.append(found["node"])


def _first(nodes: Iterable[str], answers: Answers, why: str) -> Way:
    for node in nodes:
        if answers(node, 22):
            return Way(node, node, f"the first of the list that answers ({why}).")
    raise UnreachableError(
        f"no login node answers, and {why}", "see `hp-login --help`, or ask your administrator"
    )


def answers_as_sshd(host: str, port: int) -> bool:
    """Whether an sshd says its first line there; a name that only ssh's configuration knows is taken for yes.

    One that is full hangs up, and one that hangs says nothing.
    """
    try:
        addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError:
        return True
    for family, kind, protocol, _, address in addresses:
        with socket.socket(family, kind, protocol) as connection:
            connection.settimeout(_CONNECT_SECONDS)
            with suppress(OSError):
                connection.connect(address)
                if connection.recv(255).startswith(b"SSH-"):
                    return True
    return False


def ssh_command(user: str, address: str, words: Sequence[str]) -> list[str]:
    """The command: options of ours, then those of `words`, the host, and a command if `words` has one.

    Raises:
        HpctoolsError: the address is none that ssh takes for a host.
    """
    if address.startswith("-") or not address:
        raise HpctoolsError(f"{address!r} is no host", "ask your administrator")
    account = ["-l", user] if user else []
    return ["ssh", *account, *words, address] if not words or words[0].startswith("-") else [
        "ssh", *account, address, "--", *words
    ]  # fmt: skip

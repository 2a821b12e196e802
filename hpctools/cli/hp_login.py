"""hp-login: log in on the login node that the service names, and know why it is that one."""

from __future__ import annotations

import argparse
import os
import shlex
import socket
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import hpctools
from hpctools.cli.ending import arguments, run_command
from hpctools.cli.remote_cluster import ssh_configuration, user_of
from hpctools.errors import HpctoolsError, UnreachableError, UsageError
from hpctools.remote.own_name import by_login

if TYPE_CHECKING:
    from hpctools.budget.service import Service
    from hpctools.cli.login_avoid import Avoided
    from hpctools.remote.clusters import Cluster

_CONNECT_SECONDS = 3.0
_ASK_SECONDS = 10.0
_EXAMPLES = """\
examples:
  hp-login                                to your tmux or session if you have one, else where there is room
  hp-login --cluster uni                  of ~/.config/hpctools/clusters.yaml
  hp-login -- -L 8888:localhost:8888      what follows -- goes to ssh: here a tunnel for a notebook
  hp-login -- -t tmux attach              ... and here an option and a command
  hp-login --sessions                     which sessions you have, where, since when
  hp-login --end 812                      end one of them
  hp-login --dry-run                      say where it would go, and why
  hp-login --not login1                   not there, as it takes no new sessions, say; may be repeated
"""


class Asked(Protocol):
    """The service."""

    def ask(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """Ask; raises HpctoolsError."""


Answers = Callable[[str], bool]
"""Whether a login node answers, by its name in ssh's configuration."""


@dataclass(frozen=True)
class Way:
    """Where to go.

    Attributes:
        address: for ssh.
        why: one sentence for people.
    """

    node: str
    address: str
    why: str


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return its exit code, or become ssh."""
    given = arguments(parser(), argv)
    return run_command("hp-login", lambda: _login(given), debug=given.debug)


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(
        prog="hp-login",
        usage="hp-login [options] [-- SSH-OPTION... COMMAND]",
        description="Log in on the login node where your session is, or where there is room.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument("ssh", nargs="*", metavar="SSH-OPTION", help="ssh's own: options, then a command")
    made.add_argument("--cluster", metavar="NAME", help="a cluster of clusters.yaml; else its default")
    made.add_argument("--user", help="your account there, where it is another than here")
    made.add_argument(
        "--not", dest="avoid", action="append", default=[], metavar="NODE", help="not to this login node"
    )
    made.add_argument("--dry-run", action="store_true", help="say where it would go, and why")
    made.add_argument("--sessions", action="store_true", help="list your sessions")
    made.add_argument("--end", type=int, metavar="SESSION", help="end one of your sessions")
    made.add_argument("--json", action="store_true", help="print JSON (with --dry-run, --sessions, --end)")
    made.add_argument("--debug", action="store_true", help="show a traceback when something fails")
    made.add_argument("-V", "--version", action="version", version=f"hp-login {hpctools.__version__}")
    return made


def _login(given: argparse.Namespace) -> int:  # noqa: RET503 - it becomes ssh
    from hpctools.cli.output import show
    from hpctools.slurm.run import replace

    _check_words(given)
    cluster = _cluster(given.cluster)
    stated = given.user or cluster.user
    if given.sessions or given.end is not None:
        return _tell_sessions(given, stated or _user(cluster), _service(cluster))
    service, why = _service_if_any(cluster)
    avoid, silence = _avoided(given.avoid, cluster.login_nodes, stated, service)
    if silence is not None:  # who has waited for it once does not wait again
        service, why = None, _plain(silence)
    way = find_way(stated or _user(cluster), service, cluster.login_nodes, _answers(stated), why, avoid)
    if given.dry_run:
        show(vars(way) if given.json else f"{way.node}: {way.why}\n")
        return 0
    print(f"hp-login: {way.node}: {way.why}", file=sys.stderr)
    replace(ssh_command(stated, way, given.ssh, ssh_configuration(), cluster.login_nodes))


def _check_words(given: argparse.Namespace) -> None:
    """Refuse what is for logging in where nobody logs in: it would be passed over, or done in earnest.

    Raises:
        UsageError: there is such a word.
    """
    if not given.sessions and given.end is None:
        return
    asked = "--sessions" if given.sessions else "--end"
    if given.sessions and given.end is not None:
        raise UsageError("--sessions and --end are two things", "give one of them")
    for option, value in (("--not", given.avoid), ("--dry-run", given.dry_run)):
        if value:
            raise UsageError(f"{option} is for logging in, and not for {asked}", "leave it out")
    if given.ssh:
        remedy = "run hp-login once for each session" if asked == "--end" else "leave them out"
        raise UsageError(f"{asked} takes no more words: {shlex.join(given.ssh)}", remedy)


def _tell_sessions(given: argparse.Namespace, user: str, service: Service | None) -> int:
    from hpctools.cli.login_sessions import all_sessions
    from hpctools.cli.login_text import ending, sessions
    from hpctools.cli.output import show

    asked = _needed(service)
    if given.end is not None:
        found = [asked.ask("DELETE", f"/v1/login/sessions/{given.end}")]
        show({"sessions": found} if given.json else ending(found))
    else:
        found = all_sessions(asked, user=user)
        show({"sessions": found} if given.json else sessions(found, time.time()))
    return 0


def _cluster(name: str | None) -> Cluster:
    """The cluster that is meant; one without login nodes where there is no clusters.yaml."""
    from hpctools.remote.clusters import Cluster, load, place

    clusters = load(place(os.environ))
    wanted = name or clusters.usual
    return clusters.find(wanted) if wanted else Cluster("", ())


def _user(cluster: Cluster) -> str:
    """Who somebody is there, as ssh's configuration says; their name here where it cannot be asked."""
    return user_of(cluster, ssh_configuration()) if cluster.login_nodes else by_login()


def _service(cluster: Cluster) -> Service | None:
    from dataclasses import replace

    from hpctools.budget.service import find_service

    environment = cluster.asking(os.environ)
    if not environment.get("HPCTOOLS_API"):
        return None
    where = "write `api: https://HOST` into clusters.yaml" if cluster.api else "set HPCTOOLS_API=https://HOST"
    return replace(find_service(environment, where), seconds=_ASK_SECONDS, within=_ASK_SECONDS)


def _service_if_any(cluster: Cluster) -> tuple[Asked | None, str]:
    """The service, or why none is asked: nobody needs it, nor a token of it, to log in."""
    try:
        return _service(cluster), "no service is asked"
    except UsageError as error:
        return None, str(error)


def _needed(service: Service | None) -> Service:
    if service is None:
        raise UsageError(
            "no service is named", "set HPCTOOLS_API=https://HOST, or `api` in clusters.yaml (docs/login.md)"
        )
    return service


def find_way(
    user: str,
    service: Asked | None,
    nodes: Sequence[str],
    answers: Answers,
    without: str = "no service is asked",
    avoid: Avoided | None = None,
) -> Way:
    """Where to go: where the service says, if that answers; else the user's first of `nodes` that does.

    Args:
        nodes: as ssh's configuration calls them; a node of the service's goes by the name that it has there.
        without: why there is no service.
        avoid: nodes that are out of the question.

    Raises:
        UsageError: `avoid` leaves none.
        ConflictError: the service refuses (too many sessions, all nodes drained).
        UnreachableError: nobody answers anywhere.
    """
    from hpctools.cli.login_avoid import Avoided

    avoid = avoid or Avoided()
    nodes = [node for node in nodes if node not in avoid.entries]
    if service is None:
        return _by_list(user, nodes, answers, without, avoid)
    if avoid.spent:
        avoid.check_left(nodes, "")
    return _by_service(user, service, nodes, answers, avoid)


def _by_list(user: str, nodes: Sequence[str], answers: Answers, why: str, avoid: Avoided) -> Way:
    avoid.check_left(nodes, why)
    if not nodes:
        raise UnreachableError(
            f"no login node is known here, and {why}",
            "name them in clusters.yaml, or a service (docs/login.md)",
        )
    return _first(user, nodes, answers, why)


def _by_service(user: str, service: Asked, nodes: Sequence[str], answers: Answers, avoid: Avoided) -> Way:
    """Ask again without those that do not answer; by the list where the service names none that does."""
    from hpctools.errors import ConflictError
    from hpctools.remote.names import shown

    tried: dict[str, str] = {}
    while True:
        try:
            found = service.ask("POST", "/v1/login/sessions", {"user": user, "avoid": [*avoid.told, *tried]})
        except HpctoolsError as error:
            if isinstance(error, ConflictError) and not tried and not avoid.spent:
                raise  # it is about the person, or all nodes
            # It is away, does not know us, or knows no node that answers here: sshd says whether we may in.
            rest = [node for node in nodes if node not in tried.values()]
            avoid.check_left([*rest, *filter(None, tried.values())], _plain(error))
            return _first(user, rest, answers, _plain(error))
        hosts = _hosts(found, nodes)
        if avoid.has([found["node"], str(found["address"])]):
            hosts = []  # an entry that stays may be called alike
        for host in hosts:
            if answers(host):
                return Way(found["node"], host, shown(str(found["why"])))
        if found["node"] in tried:
            raise UnreachableError(f"none of {', '.join(tried)} answers", "see `hpctools login nodes`")
        tried[found["node"]] = hosts[0] if hosts else ""


def _avoided(
    named: Sequence[str], nodes: Sequence[str], user: str, service: Asked | None
) -> tuple[Avoided, UnreachableError | None]:
    """The nodes that are not wanted, and whether the service was asked in vain.

    Raises:
        UsageError: one is no name, or nobody's.
    """
    from hpctools.cli.login_avoid import avoided, nodes_of
    from hpctools.remote.ssh_config import settings

    resolve = lru_cache(None)(lambda node: settings(node, user, ssh_configuration()).host)
    found = avoided(named, nodes, resolve)
    try:
        theirs = nodes_of(service) if named and service is not None else []
    except HpctoolsError as error:
        if found.strange and nodes:
            strange = ", ".join(found.strange)
            why = f"{strange} is not in your list, and the service does not say what that is: {_plain(error)}"
            print(f"hp-login: {why}", file=sys.stderr)
        return found, error if isinstance(error, UnreachableError) else None
    found = avoided(named, nodes, resolve, theirs)
    found.check(nodes, theirs)
    return found.beside(theirs), None


def _hosts(found: Mapping[str, Any], nodes: Sequence[str]) -> list[str]:
    """By what a node may be reached: as the list calls it, by its name, by its address.

    A name comes before an IP address, since ssh's configuration and known_hosts have names.
    """
    from hpctools.remote.placement import in_list, is_address

    node, address = str(found["node"]), str(found["address"])
    listed = in_list(node, address, nodes)
    first = node if is_address(listed) and listed not in nodes else listed
    return [host for host in dict.fromkeys((first, address)) if host]


def _plain(error: HpctoolsError) -> str:
    from hpctools.remote.names import shown

    return shown(str(error))


def _first(user: str, nodes: Sequence[str], answers: Answers, why: str) -> Way:
    from hpctools.remote.placement import own_order

    for node in own_order(user, nodes):
        if answers(node):
            return Way(node, node, f"the first that answers, in your own order of the list ({why}).")
    asked = f" ({', '.join(nodes)})" if nodes else ""
    raise UnreachableError(
        f"no login node answers{asked}, and {why}", "see `hp-login --help`, or ask your administrator"
    )


def _answers(user: str) -> Answers:
    """Whether a login node answers where ssh's configuration has it; behind a proxy only ssh can see that."""

    def answer(node: str) -> bool:
        from hpctools.remote.ssh_config import settings

        found = settings(node, user, ssh_configuration())
        return bool(found.jumps or found.proxy_command) or answers_as_sshd(found.host, found.port)

    return answer


def answers_as_sshd(host: str, port: int) -> bool:
    """Whether an sshd says its first line there: one that is full hangs up, one that hangs says nothing."""
    try:
        addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return False
    for family, kind, protocol, _, address in addresses:
        with suppress(OSError), socket.socket(family, kind, protocol) as connection:
            connection.settimeout(_CONNECT_SECONDS)
            connection.connect(address)
            if connection.recv(255).startswith(b"SSH-"):
                return True
    return False


def ssh_command(
    user: str, way: Way, words: Sequence[str], config: Path | None = None, nodes: Sequence[str] = ()
) -> list[str]:
    """The command: ssh reads options behind the host, too, up to the first word of a command.

    Who goes by an IP address is shown the host key under the node's name: the address of a node that is
    replaced may be another machine's later. But not where the person has another place for the key.

    Args:
        nodes: as the person's list has them.

    Raises:
        HpctoolsError: the address is none that ssh takes for a host.
    """
    if way.address.startswith("-") or not way.address:
        raise HpctoolsError(f"{way.address!r} is no host", "ask your administrator")
    named = ["-F", str(config)] if config else []
    account = ["-l", user] if user else []
    own = any("hostkeyalias" in word.lower() for word in words)
    alias = [] if own or _key_has_a_place(user, way, config, nodes) else ["-o", f"HostKeyAlias={way.node}"]
    return ["ssh", *named, *account, *alias, way.address, *words]


def _key_has_a_place(user: str, way: Way, config: Path | None, nodes: Sequence[str]) -> bool:
    """Whether ssh finds the host key by itself: by a name, by what the person lists or has configured."""
    from hpctools.remote.placement import is_address
    from hpctools.remote.ssh_config import settings

    if not is_address(way.address) or way.address in (way.node, *nodes):
        return True
    return bool(settings(way.address, user, config).known_as)


if __name__ == "__main__":
    sys.exit(main())

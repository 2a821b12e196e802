"""HAProxy's configuration for login nodes. Pure: a site in, a text out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from hpctools.errors import UsageError
from hpctools.site.hostlist import expand
from hpctools.site.login_haproxy import HaProxy
from hpctools.site.model import Site


@dataclass(frozen=True)
class Server:
    """A login node as HAProxy finds it."""

    name: str
    address: str


@dataclass(frozen=True)
class Timing:
    """How often HAProxy asks, in milliseconds; tests are in more of a hurry."""

    check: int = 2000
    agent: int = 2000


_HEAD = """\
# Made by `hpctools login render` from the site file; changes belong there.
global
    log /dev/log local0
    stats socket {socket} mode 660 level admin
    # As root it only opens its port.
    user haproxy
    group haproxy

defaults
    mode tcp
    log global
    option tcplog
    # sshd's ClientAliveInterval keeps a session's connection busy; what is silent for longer is dead.
    timeout connect 5s
    timeout client 1h
    timeout server 1h
    option clitcpka
    option srvtcpka
    retries 2
    option redispatch

frontend login
    bind {bind}:{port}
    default_backend login

backend login
    balance leastconn
    # An sshd that is up says so first. No stickiness: a drain could not be kept with it.
    option tcp-check
    tcp-check expect rstring ^SSH-2\\.0-
    default-server check inter {check}ms fall 3 rise 2 weight 100 agent-check agent-port {agent_port} \
agent-inter {agent}ms init-addr last,libc,none
    # When all nodes are full, people go there all the same, by the second line of each: nodes say no with
    # their reason, and let administrators in. By `track` it stays without those that are down or drained.
    option allbackups
"""


def login_servers(site: Site) -> tuple[Server, ...]:
    """The login nodes that are always there, in the site's order."""
    found: list[Server] = []
    for group in site.node_groups:
        if group.role == "login":
            names = site.node_names(group.name)
            addresses = expand(group.addresses) if group.addresses is not None else names
            found += [Server(*pair) for pair in zip(names, addresses, strict=False)]
    return tuple(found)


def configuration(
    stated: HaProxy,
    servers: Sequence[Server],
    *,
    bind: str = "",
    socket: str = "/run/haproxy/admin.sock",
    timing: Timing | None = None,
) -> str:
    """The whole configuration.

    Args:
        servers: the login nodes; one that has a port of its own says so in its address (`HOST:PORT`).
        bind: the address that people come to; all of the machine when empty.
        socket: where HAProxy's own commands are asked.

    Raises:
        UsageError: there is no login node.
    """
    if not servers:
        raise UsageError("the site has no login nodes", "add a node group of role login")
    often = timing or Timing()
    head = _HEAD.format(
        socket=socket, bind=bind, port=stated.port, check=often.check, agent=often.agent,
        agent_port=stated.agent_port,
    )  # fmt: skip
    return head + "".join(_lines(stated, servers))


def _lines(stated: HaProxy, servers: Sequence[Server]) -> Iterator[str]:
    for server in servers:
        address = server.address if ":" in server.address else f"{server.address}:{stated.node_port}"
        yield f"    server {server.name} {address}\n"
    for server in servers:
        address = server.address if ":" in server.address else f"{server.address}:{stated.node_port}"
        tracking = f"no-check no-agent-check track login/{server.name} backup"
        yield f"    server {server.name}.full {address} {tracking}\n"

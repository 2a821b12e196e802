"""In which order a cluster's login nodes are tried: the site's API knows, else each person has their own."""

from __future__ import annotations

import http.client
import ipaddress
import json
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from typing import Any

from hpctools.login.placement import Node, Policy, rank
from hpctools.remote.clusters import Cluster
from hpctools.remote.names import is_host, shown
from hpctools.submit.prices import Source, find_source

SECONDS = 0.5
"""The longest that an answer is waited for, from the question on, whatever it is that takes long."""
_LARGEST = 1 << 16
_Answer = tuple[int, Any]
"""The status, and what was said."""


def login_nodes(
    cluster: Cluster, user: Callable[[], str], environment: Mapping[str, str], tell: Callable[[str], None]
) -> tuple[str, ...]:
    """Login nodes, the best first. An API that is silent keeps nobody from working.

    Args:
        user: says who logs in there; asked only where there is something to choose.
        tell: says why the API names no node: it knows the sessions, but who enters is for the nodes to say.
    """
    # What the list does not have comes last: the node may be new, but the name may as well be known here as
    # another site's host (decision 0185). A bare address comes after the names: no known_hosts has it.
    stated = cluster.login_nodes
    source = find_source(cluster.asking(environment)) if cluster.api else None
    if source is None and len(stated) == 1:
        return stated
    who = user()
    status, answer = _ask(source, who) if source else (0, {})
    if status == http.client.CONFLICT and (why := _plain(answer.get("detail"))):
        tell(f"the site's API names no login node: {why}")
    said = _said(answer) if status in (http.client.OK, http.client.CREATED) else ()
    named = [each for node, address in said for each in _called(node, address, stated) if is_host(each)]
    new = sorted((each for each in named if each not in stated), key=is_address)
    return tuple(dict.fromkeys([*(each for each in named if each in stated), *own_order(who, stated), *new]))


def own_order(user: str, nodes: Sequence[str]) -> list[str]:
    """Login nodes as the service ranks them for somebody when all are alike: not everybody has the same."""
    # The service calls them by their short names, and so ranks these.
    short = {_short(node): node for node in nodes}
    called = short if len(short) == len(nodes) else {node: node for node in nodes}
    return [called[each.name] for each in rank(user, [Node(name) for name in called], Policy())]


def _called(node: str, address: str, stated: Sequence[str]) -> tuple[str, ...]:
    """As the list calls a node; else its address, and before a bare one its name."""
    found = in_list(node, address, stated)
    return (node, found) if is_address(found) and found not in stated else (found,)


def in_list(node: str, address: str, stated: Sequence[str]) -> str:
    """A node as the person's list, and so ssh's configuration, calls it; its address when it does not."""
    for name in (node, address):
        near = [each for each in stated if name == each or _short(each) == _short(name)]
        if len(near) == 1:
            return near[0]
    return address or node


def is_address(host: str) -> bool:
    """Whether a host is an IP address, and no name."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _short(host: str) -> str:
    return host if is_address(host) else host.partition(".")[0]


def _said(answer: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Node and address of all that the answer names, the best first; older services tell the first's only."""
    if node := str(answer.get("node") or answer.get("address") or ""):
        yield node, str(answer.get("address") or "")
    addresses, others = answer.get("addresses"), answer.get("others", [])
    for other in others if isinstance(others, list) else ():
        yield str(other), str(addresses.get(str(other), "")) if isinstance(addresses, dict) else ""


def _plain(text: object) -> str:
    return "\n".join(shown(line) for line in str(text or "").splitlines())


def _ask(source: Source, user: str) -> tuple[int, Mapping[str, Any]]:
    """What is answered in time, or nothing: names may take long to be found, and an answer to come."""
    found: list[_Answer] = []
    # A daemon: nobody waits for it, at the end neither.
    asking = threading.Thread(target=lambda: found.append(_answered(source, user)), daemon=True)
    asking.start()
    asking.join(SECONDS)
    status, answer = found[0] if found else (0, None)
    return (status, answer) if isinstance(answer, dict) else (0, {})


def _answered(source: Source, user: str) -> _Answer:
    kind = http.client.HTTPSConnection if source.scheme == "https" else http.client.HTTPConnection
    headers = {"Authorization": f"Bearer {source.token}", "Content-Type": "application/json"}
    with (
        suppress(OSError, http.client.HTTPException, ValueError, RecursionError),
        closing(kind(source.host, timeout=SECONDS)) as connection,
    ):
        body = json.dumps({"user": user})
        connection.request("POST", f"{source.path}/v1/login/sessions", body, headers)
        response = connection.getresponse()
        return response.status, json.loads(response.read(_LARGEST))
    return 0, None

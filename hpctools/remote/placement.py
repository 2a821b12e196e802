"""In which order a cluster's login nodes are tried: the site's API knows, else each person has their own."""

from __future__ import annotations

import http.client
import ipaddress
import json
import os
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from typing import Any

from hpctools.budget.service import Service, find_service, token_file
from hpctools.errors import UsageError
from hpctools.login.placement import Node, Policy, rank
from hpctools.remote.clusters import Cluster
from hpctools.remote.names import is_host, shown

SECONDS = 0.5
"""The longest that each step to an answer is waited for: a connection, TLS, the answer itself. Over a long
line each takes a round trip, and TLS 1.2 takes two."""
_GIVEN_UP = 10 * SECONDS
"""What takes so long has nobody who waits for it."""
_LARGEST = 1 << 16
_Answer = tuple[int, Any]
"""The status, and what was said; with 0 why nothing was."""


def login_nodes(
    cluster: Cluster, user: Callable[[], str], environment: Mapping[str, str], tell: Callable[[str], None]
) -> tuple[str, ...]:
    """Login nodes, the best first. An API that is silent keeps nobody from working.

    Args:
        user: says who logs in there; asked only where there is something to choose.
        tell: says why the API names no node: it knows the sessions, but who enters is for the nodes to say.
    """
    return asked(cluster, user, environment, tell)()


def asked(
    cluster: Cluster, user: Callable[[], str], environment: Mapping[str, str], tell: Callable[[str], None]
) -> Callable[[], tuple[str, ...]]:
    """Begin to ask as `login_nodes` does; what comes back waits for the answer, and so is called late."""
    stated = cluster.login_nodes
    source = _source(cluster, environment, tell) if cluster.api else None
    if source is None and len(stated) == 1:
        return lambda: stated
    who = user()
    question = _Question(source, who) if source else None
    return lambda: _ordered(stated, who, question.answer(tell) if question else (0, {}), tell)


def _source(cluster: Cluster, environment: Mapping[str, str], tell: Callable[[str], None]) -> Service | None:
    """The cluster's API, as hp-login finds it; None where it cannot be asked, and why is told.

    Who has no token at all, and names none, has not asked for more than their own order.
    """
    asking = cluster.asking(environment)
    try:
        return find_service(asking, "write `api: https://HOST` into clusters.yaml")
    except UsageError as error:
        if _names_a_token(cluster, asking) or os.path.lexists(token_file(asking)):
            tell(f"the site's API is not asked: {_plain(error)}; login nodes are tried in your own order")
        return None


def _names_a_token(cluster: Cluster, asking: Mapping[str, str]) -> bool:
    """Whether somebody has said where the token is, or what."""
    stated = cluster.names_a_token or (not cluster.token and asking.get("HPCTOOLS_API_TOKEN_FILE"))
    return bool(stated or asking.get("HPCTOOLS_API_TOKEN"))


def _ordered(
    stated: Sequence[str], who: str, answered: tuple[int, Mapping[str, Any]], tell: Callable[[str], None]
) -> tuple[str, ...]:
    # What the list does not have comes last: the node may be new, but the name may as well be known here as
    # another site's host (decision 0185). A bare address comes after the names: no known_hosts has it.
    status, answer = answered
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


class _Question:
    """A question to the service, asked beside whatever else there is to do.

    Attributes:
        since: when its present step began, of time.monotonic().
    """

    def __init__(self, source: Service, user: str) -> None:
        self.source = source
        self.found: _Answer = (0, "")
        self.since = time.monotonic()
        # A daemon: nobody waits for it, at the end neither.
        self.thread = threading.Thread(target=self._ask, args=(user,), daemon=True)
        self.thread.start()

    def answer(self, tell: Callable[[str], None]) -> tuple[int, Mapping[str, Any]]:
        """What is answered in time, or nothing: names may take long to be found, and an answer to come."""
        while self.thread.is_alive() and (left := self.since + SECONDS - time.monotonic()) > 0:
            self.thread.join(left)
        late = self.thread.is_alive()
        status, answer = self.found
        if why := "did not answer in time" if late else _failure(status, answer):
            tell(f"the site's API ({self.source.host}) {why}; login nodes are tried in your own order")
        return (status, answer) if isinstance(answer, dict) and not late else (0, {})

    def _ask(self, user: str) -> None:
        self.found = _answered(self.source, user, self._step)

    def _step(self) -> None:
        self.since = time.monotonic()


def _answered(source: Service, user: str, step: Callable[[], None]) -> _Answer:
    headers = {"Authorization": f"Bearer {source.token}", "Content-Type": "application/json"}
    try:
        with closing(_connected(source, step)) as connection:
            body = json.dumps({"user": user})
            connection.request("POST", f"{source.path}/v1/login/sessions", body, headers)
            response = connection.getresponse()
            return response.status, _understood(response.read(_LARGEST))
    except ssl.SSLCertVerificationError as error:
        authorities = "$SSL_CERT_FILE may name its authority"
        return 0, f"shows a certificate that does not hold here: {error.verify_message} ({authorities})"
    except OSError as error:
        return 0, f"cannot be asked: {error.strerror or error}"
    except (http.client.HTTPException, ValueError) as error:
        return 0, f"cannot be asked: {error or type(error).__name__}"


def _understood(answer: bytes) -> Any:
    """What an answer says; None: nothing that can be read."""
    with suppress(ValueError, RecursionError):
        return json.loads(answer)
    return None


def _failure(status: int, answer: object) -> str:
    """What is the matter with the service or the token, as a person may tell their site; empty: nothing."""
    if status == 0:
        return _plain(answer)
    told = answer if isinstance(answer, dict) else {}
    detail = _plain(told.get("detail")).rstrip(".")
    if told and (status == http.client.CONFLICT or (status < http.client.BAD_REQUEST and any(_said(told)))):
        return ""  # it names nodes, or why there is none, which is told by itself
    if status == http.client.SERVICE_UNAVAILABLE and detail:
        return f"names no login node: {detail}"
    if told and http.client.BAD_REQUEST <= status < http.client.INTERNAL_SERVER_ERROR:
        return f"refuses the question ({status}): {detail}"
    return f"gives no answer that makes sense (status {status})"


def _connected(source: Service, step: Callable[[], None]) -> http.client.HTTPConnection:
    """A connection to the service, over TLS where it is to be; each step on the way is told."""
    if source.scheme != "https":
        connection = http.client.HTTPConnection(source.host, timeout=_GIVEN_UP)
        connection.connect()
        step()
        return connection
    trusted = ssl.create_default_context()  # reads all authorities of this machine
    trusted.set_alpn_protocols(["http/1.1"])
    secure = http.client.HTTPSConnection(source.host, timeout=_GIVEN_UP, context=trusted)
    step()
    http.client.HTTPConnection.connect(secure)  # the connection alone: TLS is a step of its own
    step()
    secure.sock = trusted.wrap_socket(secure.sock, server_hostname=secure.host)
    step()
    return secure

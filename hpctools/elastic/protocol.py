"""How agents, workers and the coordinator talk: one JSON object a line, the first one says who speaks.

Connection opens with {"kind": "hello", "role": "agent" | "worker", "token": ...}; a wrong token closes it, a
right one is answered with {"kind": "welcome", "term": ...}, or, to a worker that was given up and may not
come back, {"kind": "expelled"}. Both sides send a beat now and then; who is silent for SILENCE_SECONDS is
taken to be gone.
"""

from __future__ import annotations

import hmac
import ipaddress
import json
import os
import socket
from typing import Any

from hpctools.elastic.folder import CoordinatorAddress
from hpctools.errors import ElasticError, UnreachableError

Message = dict[str, Any]

EXPELLED = "this worker was given up, and the run goes on without it"
REPLAYED = (
    "the program ended after a pass of its loop that was over before this worker came, not at its own end: "
    "put `if loader.replays: continue` before what stands after each pass of the loop"
)
LINE_LIMIT = 1 << 20
BEAT_SECONDS = 0.5
SILENCE_SECONDS = 2.7  # so that silence is noticed within 3 s, looking included


def encode(kind: str, **fields: Any) -> bytes:
    """One message as a line of bytes."""
    return json.dumps({"kind": kind, **fields}, separators=(",", ":")).encode() + b"\n"


def decode(line: bytes) -> Message:
    """The inverse of `encode`.

    Raises:
        ElasticError: the line is no message.
    """
    try:
        message = json.loads(line)
    except ValueError:
        message = None
    if not isinstance(message, dict) or not isinstance(message.get("kind"), str):
        raise ElasticError(f"received a line that is no message: {line[:80]!r}")
    return message


def worker_name(agent: str, local: int, attempt: int) -> str:
    """The name of an agent's worker number `local`, started for the `attempt`th time (from 0)."""
    return f"{agent}.{local}.{attempt}"


def worker_place(worker: str) -> tuple[str, int, int]:
    """The inverse of `worker_name`.

    Raises:
        ValueError: it is no worker's name.
    """
    agent, local, attempt = worker.rsplit(".", 2)
    return agent, int(local), int(attempt)


def of_generation(rank: str, generation: int) -> str:
    """Under which name a rank's lines are told: what one of before has printed may be told later."""
    return f"{rank}#{generation}"


def told_by(name: str) -> tuple[str, int | None]:
    """The inverse of `of_generation`; None: a worker, or an agent of an earlier release, which says none."""
    rank, _, generation = name.partition("#")
    return rank, int(generation) if generation else None


def token_matches(given: object, expected: str) -> bool:
    """Whether a peer knows the run's secret; takes the same time whatever it sent."""
    return isinstance(given, str) and hmac.compare_digest(given.encode(), expected.encode())


def own_address() -> tuple[str, str]:
    """Where to listen and what to publish, both for other nodes of the cluster.

    The address of the node's own name, numeric. A name that does not resolve, or resolves to a loopback
    address (Debian's 127.0.1.1, SUSE's 127.0.0.2), which no other node can reach, makes us listen everywhere
    and publish the name itself; the token keeps strangers out.
    """
    name = socket.gethostname()
    try:
        address = socket.gethostbyname(name)
    except OSError:
        return "0.0.0.0", name  # noqa: S104
    if ipaddress.ip_address(address).is_loopback:
        return "0.0.0.0", name  # noqa: S104
    return address, address


def check_own_address() -> None:
    """Whether we can listen where `own_address` says.

    Raises:
        ElasticError: the node's own name resolves to an address that the node does not have.
    """
    listen, _ = own_address()
    try:
        socket.create_server((listen, 0)).close()
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
        raise ElasticError(
            f"this node, {socket.gethostname()}, cannot listen at {listen}, to which its own name resolves: "
            f"{reason}",
            "have the name resolve on the node itself to an IPv4 address that one of its interfaces has and "
            "the other nodes reach, and to no floating or translated one (docs/elastic-site.md, The network)",
        ) from None


def connect(address: CoordinatorAddress, timeout: float) -> socket.socket:
    """A blocking connection to the coordinator.

    Raises:
        UnreachableError: nobody listens there.
    """
    try:
        connection = socket.create_connection((address.host, address.port), timeout)
    except OSError as error:
        raise UnreachableError(
            f"the coordinator at {address.host}:{address.port} does not answer: {error.strerror or error}",
            "the run's baseline job has probably ended; hp-status tells",
        ) from None
    connection.settimeout(None)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection

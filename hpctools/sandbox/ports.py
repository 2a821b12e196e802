"""Free TCP ports on 127.0.0.1."""

from __future__ import annotations

import random
import socket
from collections.abc import Iterable

# Below Linux's default ephemeral range (32768-60999), so that no outgoing connection takes a chosen port.
RANGE = range(15000, 32000)


def is_free(port: int) -> bool:
    """Whether a server could bind the port now."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def choose(names: Iterable[str]) -> dict[str, int]:
    """A different free port for each name, at random so that sandboxes made together do not meet."""
    candidates = random.SystemRandom().sample(RANGE, len(RANGE))
    free = (port for port in candidates if is_free(port))
    return {name: next(free) for name in names}

"""Whether the hosts that the configuration names have addresses: asked on the real network, at the edge."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator, Sequence

from hpctools.conf.preflight.model import Problem

_SECONDS = 3.0


def unresolved(hosts: Sequence[str], here: str) -> tuple[tuple[Problem, ...], tuple[str, ...]]:
    """Find controllers without an address; only a controller can tell, so elsewhere nothing is looked up.

    Args:
        hosts: `SlurmctldHost` values in order: `name` or `name(address)`.
        here: this host's name.

    Returns:
        What is wrong, and what is not checked.
    """
    pairs = [host.rstrip(")").partition("(") for host in hosts]
    if _short(here) not in {_short(name) for name, _, _ in pairs}:
        return (), ("names of controllers: whether they have addresses shows only on a controller",)
    answers = _look_up([address or name for name, _, address in pairs])
    late = tuple(f"{name}: looking it up took too long" for name, known in answers.items() if known is None)
    return tuple(_problems(answers)), late


def _problems(answers: dict[str, bool | None]) -> Iterator[Problem]:
    for name, known in answers.items():
        if known is False:
            yield Problem(
                "", f"controller {name} has no address here", "add it to the name service or to /etc/hosts"
            )


def _look_up(names: Sequence[str]) -> dict[str, bool | None]:
    """All at once; None where no answer came in time."""
    answers: dict[str, bool | None] = dict.fromkeys(names)

    def look(name: str) -> None:
        try:
            answers[name] = bool(socket.getaddrinfo(name, None))
        except (OSError, UnicodeError):
            answers[name] = False

    threads = [threading.Thread(target=look, args=(name,), daemon=True) for name in answers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(_SECONDS)
    return dict(answers)


def _short(name: str) -> str:
    return name.split(".")[0]

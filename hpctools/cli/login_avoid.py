"""hp-login --not: which login nodes are meant, whatever they are called here or there.

A node tells people its own name, and their list may have it by another: a Host of ssh's configuration, with
the node's name as its HostName.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from hpctools.errors import UsageError
from hpctools.remote.names import is_host
from hpctools.remote.placement import is_address

_SERVICES_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
"""What the service takes for a node's name."""

Resolve = Callable[[str], str]
"""The host that ssh's configuration has for an entry of the list."""


class _Asked(Protocol):
    def ask(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """Ask; raises HpctoolsError."""


@dataclass(frozen=True)
class Avoided:
    """Login nodes that are out of the question.

    Attributes:
        entries: those of the person's list.
        told: their names for the service.
        called: all that they may be called, in small letters.
        strange: what was named and is nowhere in the list.
    """

    entries: frozenset[str] = frozenset()
    told: tuple[str, ...] = ()
    called: frozenset[str] = frozenset()
    strange: tuple[str, ...] = ()

    def has(self, names: Collection[str]) -> bool:
        """Whether it is one of them that is called so."""
        return any(_forms(name) & self.called for name in names)

    def check(self, nodes: Sequence[str], service: _Asked | None) -> None:
        """Refuse what neither the list nor the service has: whoever mistypes a name would be sent there.

        Args:
            service: None where it is not, or does not answer.

        Raises:
            UsageError: there is one.
            HpctoolsError: the service does not answer.
        """
        if not self.strange:
            return
        found = service.ask("GET", "/v1/login/nodes")["nodes"] if service is not None else []
        theirs = [(str(each["name"]), str(each["address"])) for each in found]
        having = {form for names in theirs for name in names for form in _forms(name)}
        wrong = next((name for name in self.strange if not _forms(name) & having), None)
        if wrong is not None:
            known = ", ".join(dict.fromkeys([*nodes, *(name for name, _ in theirs)]))
            remedy = f"name one of these: {known}" if known else "none is known here: see `hp-login --help`"
            raise UsageError(f"nobody knows a login node {wrong}", remedy)


def avoided(named: Sequence[str], nodes: Sequence[str], resolve: Resolve) -> Avoided:
    """Which nodes these are.

    Args:
        named: what was said with --not.
        nodes: the person's list.

    Raises:
        UsageError: one is no name.
    """
    wrong = next((name for name in named if not is_host(name)), None)
    if wrong is not None:
        raise UsageError(f"{wrong!r} is no login node", "give the name of one: hp-login --not login1")
    hosts = {node: resolve(node) for node in nodes} if named else {}
    meant = {name: _meant(name, hosts) for name in named}
    entries = [node for node in nodes if any(node in each for each in meant.values())]
    # Two at one host are tunnels, say, and it is the name of neither.
    own = [hosts[each] for each in entries if _is_own(hosts, each, entries)]
    names = [*named, *entries]
    told = [*names, *(host for host in own if not is_address(host))]
    told += [name.partition(".")[0] for name in told if not is_address(name)]
    sent = [form for name in told for form in (name, name.lower()) if _SERVICES_NAME.fullmatch(name)]
    called = frozenset(name.lower() for name in [*told, *own])
    strange = tuple(name for name in named if not meant[name])
    return Avoided(frozenset(entries), tuple(dict.fromkeys(sent)), called, strange)


def _meant(name: str, hosts: Mapping[str, str]) -> list[str]:
    """The entries that are called so, there or here; by the short name only where none is by the whole."""
    wanted = name.lower()
    whole = [node for node, host in hosts.items() if wanted in (node.lower(), host.lower())]
    return whole or [node for node, host in hosts.items() if _forms(name) & {*_forms(node), *_forms(host)}]


def _is_own(hosts: Mapping[str, str], entry: str, entries: Collection[str]) -> bool:
    return all(node in entries or host != hosts[entry] for node, host in hosts.items())


def _forms(name: str) -> set[str]:
    """A name and its short one, in small letters."""
    known = name.lower()
    return {known} if is_address(known) else {known, known.partition(".")[0]}

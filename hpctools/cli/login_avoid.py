"""hp-login --not: which login nodes are meant, whatever they are called here or there.

A node tells people its own name, and their list may have it by another: a Host of ssh's configuration, with
the node's name as its HostName.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from hpctools.errors import UsageError
from hpctools.remote.names import is_host
from hpctools.remote.placement import is_address

_SERVICES_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
"""What the service takes for a node's name."""

Node = tuple[str, str]
"""The name and the address of one of the service's nodes."""

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
        called: all that they are called, in small letters.
        short: short names that no other node has, in small letters.
        strange: what was named and is nowhere in the list.
        named: what was named, as it was.
        spent: the service knows no other nodes.
    """

    entries: frozenset[str] = frozenset()
    told: tuple[str, ...] = ()
    called: frozenset[str] = frozenset()
    short: frozenset[str] = frozenset()
    strange: tuple[str, ...] = ()
    named: tuple[str, ...] = ()
    spent: bool = False

    def has(self, names: Collection[str]) -> bool:
        """Whether it is one of them that is called so."""
        return any(name.lower() in self.called or _short(name) in self.short for name in names)

    def beside(self, theirs: Sequence[Node]) -> Avoided:
        """The same where the service knows these nodes: a short name that others of them have is nobody's."""
        shared = frozenset(short for short in self.short if self._is_shared(short, theirs))
        told = tuple(name for name in self.told if name.lower() in self.called or _short(name) not in shared)
        found = replace(self, told=told, short=self.short - shared)
        return replace(found, spent=bool(theirs) and all(found.has(names) for names in theirs))

    def _is_shared(self, short: str, theirs: Sequence[Node]) -> bool:
        """Whether some nodes are called so that are meant by their whole names, and some that are not."""
        alike = [names for names in theirs if short in {_short(name) for name in names}]
        return len({any(name.lower() in self.called for name in names) for names in alike}) > 1

    def check_left(self, nodes: Sequence[str], why: str) -> None:
        """Refuse to look for a node where there is none besides these.

        Args:
            nodes: the others, as far as they are known.
            why: the service knows no other; empty where it was asked.

        Raises:
            UsageError: there is none.
        """
        if self.named and not nodes:
            names = ", ".join(dict.fromkeys(self.named))
            also = f" ({why})" if why else ""
            raise UsageError(f"--not leaves no login node: {names}{also}", "name fewer nodes with --not")

    def check(self, nodes: Sequence[str], theirs: Sequence[Node]) -> None:
        """Refuse what neither the list nor the service has: whoever mistypes a name would be sent there.

        Args:
            theirs: the service's nodes; none where it is not, or does not answer.

        Raises:
            UsageError: there is one.
        """
        having = {form for names in theirs for name in names for form in _forms(name)}
        wrong = next((name for name in self.strange if not _forms(name) & having), None)
        if wrong is not None:
            known = ", ".join(dict.fromkeys([*nodes, *(name for name, _ in theirs)]))
            remedy = f"name one of these: {known}" if known else "none is known here: see `hp-login --help`"
            raise UsageError(f"nobody knows a login node {wrong}", remedy)


def avoided(
    named: Sequence[str], nodes: Sequence[str], resolve: Resolve, theirs: Sequence[Node] = ()
) -> Avoided:
    """Which nodes these are.

    Args:
        named: what was said with --not.
        nodes: the person's list.
        theirs: the service's nodes, as far as they are known.

    Raises:
        UsageError: one is no name.
    """
    wrong = next((name for name in named if not is_host(name)), None)
    if wrong is not None:
        raise UsageError(f"{wrong!r} is no login node", "give the name of one: hp-login --not login1")
    if not named:
        return Avoided()
    hosts = {node: resolve(node) for node in nodes}
    meant = {name: _meant(name, hosts, theirs) for name in named}
    entries = [node for node in nodes if any(node in each for each in meant.values())]
    # Two at one host are tunnels, say, and it is the name of neither.
    own = [hosts[each] for each in entries if _is_own(hosts, each, entries)]
    whole = [*named, *entries, *own]
    names = [name for name in whole if name not in own or not is_address(name)]
    stay = {_short(name) for node in nodes if node not in entries for name in (node, hosts[node])}
    short = frozenset(_short(name) for name in whole if not is_address(name)) - stay
    told = [*names, *(name.partition(".")[0] for name in names if _short(name) in short)]
    sent = [form for name in told for form in (name, name.lower()) if _SERVICES_NAME.fullmatch(name)]
    called = frozenset(name.lower() for name in whole)
    strange = tuple(name for name in named if not meant[name])
    return Avoided(frozenset(entries), tuple(dict.fromkeys(sent)), called, short, strange, tuple(named))


def nodes_of(service: _Asked) -> list[Node]:
    """The login nodes that the service knows.

    Raises:
        HpctoolsError: it does not answer.
    """
    found = service.ask("GET", "/v1/login/nodes")["nodes"]
    return [(str(each["name"]), str(each["address"])) for each in found]


def _meant(name: str, hosts: Mapping[str, str], theirs: Sequence[Node]) -> list[str]:
    """The entries that are called so, there or here; by the short name only where none is by the whole."""
    wanted = name.lower()
    whole = [node for node, host in hosts.items() if wanted in (node.lower(), host.lower())]
    alike = [node for node, host in hosts.items() if _forms(name) & {*_forms(node), *_forms(host)}]
    return whole or [node for node in alike if not _is_another(wanted, {node, hosts[node]}, theirs)]


def _is_another(wanted: str, names: Collection[str], theirs: Sequence[Node]) -> bool:
    """Whether the service has a node that is called as is wanted, and another one by one of these names."""
    called = [{each.lower() for each in node} for node in theirs]
    others = {each for node in called if wanted not in node for each in node}
    return any(wanted in node for node in called) and any(name.lower() in others for name in names)


def _is_own(hosts: Mapping[str, str], entry: str, entries: Collection[str]) -> bool:
    return all(node in entries or host != hosts[entry] for node, host in hosts.items())


def _forms(name: str) -> set[str]:
    """A name and its short one, in small letters."""
    return {name.lower(), _short(name)}


def _short(name: str) -> str:
    """The short name in small letters; an IP address as it is."""
    known = name.lower()
    return known if is_address(known) else known.partition(".")[0]

"""Which login node a session goes to: pure. The same facts give the same answer, in every replica.

Weighted rendezvous hashing (Thaler and Ravishankar 1998; Schindler and Schomaker 2005) with bounded loads
(Mirrokni and others 2018): each user has an order of all nodes that depends on nothing but names and
weights. The first in it that is not fuller than the others wins. So people come back to where they were, a
node that goes takes only its own people along, and no node gets ahead of the others.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

Measure = Literal["sessions", "cpu", "memory"]
State = Literal["up", "full", "closed", "silent", "draining"]

EASY = 0.5
"""Up to this part of its CPUs or memory a login node is as good as an idle one: nobody notices."""
TIGHT = 0.95
"""From this part of its memory on a node is full."""
_LEAST = 0.1


@dataclass(frozen=True)
class Node:
    """A login node as the service knows it.

    Attributes:
        sessions: open ones, and those that were sent there a moment ago.
        cpus: how many it has.
        cpu, memory: the part that is in use, 0 to 1.
        silent_for: seconds since it was heard of, by the service's own clock; None: never.
        closed: its sshd refuses people who connect, or does not answer.
    """

    name: str
    sessions: int = 0
    cpus: int = 1
    cpu: float = 0.0
    memory: float = 0.0
    draining: bool = False
    silent_for: float | None = 0.0
    closed: bool = False


@dataclass(frozen=True)
class Policy:
    """What a site wants.

    Attributes:
        balance_on: what makes a node count as busy; CPUs and memory then lessen its share.
        silent_after: seconds after which a node that tells nothing is avoided.
        most_sessions: of all people on one node; None for no limit.
        slack: a user's own node must be less than this fuller than the emptiest, in sessions of an average
            node. With 2, none of several equal nodes is ever more than one session from even.
    """

    balance_on: tuple[Measure, ...] = ("sessions", "cpu", "memory")
    silent_after: float = 30.0
    most_sessions: int | None = None
    slack: float = 2.0

    def is_silent(self, node: Node) -> bool:
        """Whether nothing was heard of it lately; also of one that is drained."""
        return node.silent_for is None or node.silent_for > self.silent_after

    def state(self, node: Node) -> State:
        """What is to be said of a node."""
        if node.draining:
            return "draining"
        if self.is_silent(node):
            return "silent"
        if node.closed:
            return "closed"
        full = self.most_sessions is not None and node.sessions >= self.most_sessions
        return "full" if full or node.memory >= TIGHT else "up"

    def weight(self, node: Node) -> float:
        """The part of all sessions that a node is to have, against that of others."""
        weight = float(node.cpus)
        if "cpu" in self.balance_on:
            weight *= _ease(node.cpu)
        if "memory" in self.balance_on:
            weight *= _ease(node.memory)
        return weight


@dataclass(frozen=True)
class Home:
    """Where a user is already.

    Attributes:
        sessions: that are connected.
        tmux: also one that nobody is attached to.
        expected: they were sent there a moment ago.
    """

    sessions: int = 0
    tmux: bool = False
    expected: bool = False


@dataclass(frozen=True)
class Placed:
    """An answer.

    Attributes:
        why: one sentence.
        others: nodes to try when it does not answer, the best first; drained ones are not among them.
    """

    node: str
    why: str
    others: tuple[str, ...] = ()


@dataclass(frozen=True)
class Nowhere:
    """There is no node to log in; why.

    Attributes:
        anybody: some node is known: the answer is about the nodes, and not that nothing is known.
    """

    why: str
    anybody: bool = True


@dataclass(frozen=True)
class Wish:
    """Who wants to log in.

    Attributes:
        homes: by node, where they are already.
        avoid: nodes that did not answer them, or are not wanted.
    """

    user: str
    homes: Mapping[str, Home] = field(default_factory=dict)
    avoid: Collection[str] = ()


def place(wish: Wish, nodes: Sequence[Node], policy: Policy) -> Placed | Nowhere:
    """Choose a node.

    Args:
        nodes: all login nodes, in any order.
    """
    nodes = sorted(nodes, key=lambda node: node.name)
    tried = [node for node in nodes if node.name not in wish.avoid]
    usable = [node for node in tried if not node.draining]
    if not usable:
        return Nowhere(_nowhere(nodes, tried), anybody=bool(nodes))
    order = _order(wish, usable, policy)
    home, gone = _home(wish, nodes, policy)
    first = home or order.nodes[0]
    others = tuple(node.name for node in order.nodes if node is not first)
    return Placed(first.name, gone + _why(wish, first, home is not None, order, policy), others)


def rank(user: str, nodes: Sequence[Node], policy: Policy) -> list[Node]:
    """A user's own order of nodes; it depends on nobody's sessions.

    Without one of them the order of the others stays. A node is first for a part of all users that is its
    weight's part of all weights.
    """
    return _ranked(user, nodes, {node.name: policy.weight(node) for node in nodes})


def _ranked(user: str, nodes: Sequence[Node], weights: Mapping[str, float]) -> list[Node]:
    return sorted(nodes, key=lambda node: (-_score(user, node.name, weights[node.name]), node.name))


def _score(user: str, node: str, weight: float) -> float:
    digest = hashlib.blake2b(f"{user}\0{node}".encode(), digest_size=8).digest()
    chance = (int.from_bytes(digest, "big") + 0.5) / 2**64
    return -weight / math.log(chance)


def _ease(used: float) -> float:
    """How little of a node is taken: 1 up to EASY, then down to _LEAST when nothing is left."""
    if used <= EASY:  # of most nodes, asked for each of them with each login
        return 1.0
    over = (min(used, 1.0) - EASY) / (1 - EASY)
    return 1 - (1 - _LEAST) * over


@dataclass(frozen=True)
class _Order:
    """Somebody's order of nodes.

    Attributes:
        up: how many of them take sessions.
        usual: the first of these whatever room they have; None where there are none.
    """

    nodes: list[Node]
    up: int
    usual: Node | None


def _order(wish: Wish, nodes: Sequence[Node], policy: Policy) -> _Order:
    """Healthy nodes, then full, closed, silent ones; of each kind those with room by rank, then by room."""
    groups: dict[State, list[Node]] = {"up": [], "full": [], "closed": [], "silent": [], "draining": []}
    for node in nodes:
        groups[policy.state(node)].append(node)
    weights = {node.name: policy.weight(node) for node in nodes}
    ranked = {state: _ranked(wish.user, group, weights) for state, group in groups.items()}
    found = [node for group in ranked.values() for node in _by_room(group, weights, policy)]
    return _Order(found, len(groups["up"]), ranked["up"][0] if ranked["up"] else None)


def _by_room(ranked: list[Node], weights: Mapping[str, float], policy: Policy) -> list[Node]:
    if "sessions" not in policy.balance_on or not ranked:
        return ranked
    fill = _fill(ranked, weights)
    bound = min(fill.values()) + policy.slack
    # By room, the emptiest first: the first one of those that have some is the user's own choice of them.
    return sorted(ranked, key=lambda node: 0.0 if fill[node.name] < bound else fill[node.name])


def _fill(nodes: Sequence[Node], weights: Mapping[str, float]) -> dict[str, float]:
    """Sessions of each node as they would be on one of average weight."""
    average = sum(weights[node.name] for node in nodes) / len(nodes)
    return {node.name: node.sessions * average / weights[node.name] for node in nodes}


def _home(wish: Wish, nodes: Sequence[Node], policy: Policy) -> tuple[Node | None, str]:
    """The node that the user is on already, tmux first; else what to say of one that does not take them."""
    known = [node for node in nodes if node.name in wish.homes]
    known.sort(key=lambda node: (not wish.homes[node.name].tmux, -wish.homes[node.name].sessions, node.name))
    lost = ""
    for node in known:
        state = policy.state(node)
        takes = state == "up" or (state == "full" and not _at_limit(node, policy))
        if takes and node.name not in wish.avoid:
            return node, ""
        trouble = _AVOIDED if takes else _TROUBLE[state]
        lost = lost or f"{_what(wish.homes[node.name])} on {node.name}, which {trouble}; "
    return None, lost


def _at_limit(node: Node, policy: Policy) -> bool:
    return policy.most_sessions is not None and node.sessions >= policy.most_sessions


_AVOIDED = "did not answer you, or is not wanted"


_TROUBLE = {
    "draining": "takes no new sessions (it is being drained)",
    "silent": "does not answer",
    "closed": "lets nobody in now (its sshd is full or hangs)",
    "full": "has all the sessions that it may have",
}


_GUESSED = {
    "full": "every node is full",
    "closed": "no node's sshd lets everybody in",
    "silent": "no node was heard of lately",
}


def _what(home: Home) -> str:
    if home.tmux:
        return "your tmux is"
    if not home.sessions:
        return "your last place was"
    return "your session is" if home.sessions == 1 else f"your {home.sessions} sessions are"


def _why(wish: Wish, node: Node, home: bool, order: _Order, policy: Policy) -> str:
    if home:
        return f"{_what(wish.homes[node.name])} on {node.name}."
    state = policy.state(node)
    if state != "up":
        kind = _GUESSED[state]
        return f"{node.name} is a guess: {kind}."
    told = f"{_sessions(node.sessions)}, CPU {node.cpu:.0%}, memory {node.memory:.0%}"
    if order.up == 1:
        return f"{node.name} is the only node that takes sessions now ({told})."
    if node is order.usual:
        return f"{node.name} is your usual node, and it has room ({told})."
    return f"{node.name} has the most room for you ({told})."


def _sessions(count: int) -> str:
    return f"{count} session{'' if count == 1 else 's'}"


def _nowhere(nodes: Sequence[Node], tried: Sequence[Node]) -> str:
    if not nodes:
        return "no login node has told of itself yet"
    drained = ", ".join(node.name for node in tried)
    if not tried:
        return "all login nodes are among those that did not answer you, or are not wanted"
    others = ", ".join(node.name for node in nodes if node not in tried)
    rest = (
        f"what else there is ({others}) did not answer you, or is not wanted"
        if others
        else "there is no other login node"
    )
    return f"{drained} {'is' if len(tried) == 1 else 'are'} being drained, and {rest}"

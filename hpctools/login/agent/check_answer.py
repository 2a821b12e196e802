"""What HAProxy's `agent-check` is answered: the share of new connections that this node wants. Pure."""

from __future__ import annotations

from dataclasses import replace

from hpctools.login.agent.own_sshd import Standing
from hpctools.login.placement import Node, Policy

_DRAIN = "drain\n"
_DOWN = "down #its sshd lets nobody in\n"
_LEAST = "up ready 1%\n"


def check_answer(node: Node, policy: Policy, sshd: Standing = "open") -> str:
    """One line as HAProxy reads it (configuration manual, `agent-check`).

    The percentage is of the weight in HAProxy's configuration: this node's weight against that of an idle one
    with as many processors, less the part of its sessions that are taken where it has a limit. Without one
    HAProxy's `leastconn` counts its own connections, and nobody others (docs/decisions/0135). `ready` also
    undoes a drain that somebody made in HAProxy itself: `hpctools login drain` is the way.

    Args:
        node: this node; what it knows of itself is never old.
        sshd: where it refuses some, people go there only if others are no better; where it refuses all, none.
    """
    state = policy.state(replace(node, closed=False))
    if state == "draining":
        return _DRAIN
    if sshd == "closed":
        return _DOWN
    if state == "full":
        return "up ready 0%\n"
    if sshd == "crowded":
        return _LEAST
    share = policy.weight(node) / max(1, node.cpus)
    if policy.most_sessions and "sessions" in policy.balance_on:
        share *= 1 - node.sessions / policy.most_sessions
    return f"up ready {max(1, round(100 * share))}%\n"

"""What HAProxy's `agent-check` is answered: the share of new connections that this node wants. Pure."""

from __future__ import annotations

from hpctools.login.placement import Node, Policy

_DRAIN = "drain\n"


def check_answer(node: Node, policy: Policy) -> str:
    """One line as HAProxy reads it (configuration manual, `agent-check`).

    The percentage is of the weight in HAProxy's configuration: this node's weight against that of an idle one
    with as many processors, less the part of its sessions that are taken where it has a limit. `ready` also
    undoes a drain that somebody made in HAProxy itself: `hpctools login drain` is the way.

    Args:
        node: this node; what it knows of itself is never old.
    """
    state = policy.state(node)
    if state == "draining":
        return _DRAIN
    if state == "full":
        return "up ready 0%\n"
    share = policy.weight(node) / max(1, node.cpus)
    if policy.most_sessions and "sessions" in policy.balance_on:
        share *= 1 - node.sessions / policy.most_sessions
    return f"up ready {max(1, round(100 * share))}%\n"

"""Two machines of one name: the agent that began last is heard, the other one is told so.

Heard in turns, each would have the other's sessions forgotten, and neither's people would be counted. An
agent makes its name anew when it starts: one that nobody has heard yet is a restart, a reboot or another
machine, and is heard at once. One that comes back after another was heard lives beside it.
"""

from __future__ import annotations

from typing import Any

_MOST = 8
"""So many agents are remembered: of a machine whose agent is started again and again, the last ones."""


def is_of_another_machine(known: Any, agent: str, silent: int) -> bool:
    """Whether a report is of an agent that another one has followed, which still tells of the node.

    Args:
        known: the node as it is known.
        silent: Unix seconds; an agent that has not told anything since then is gone.
    """
    return agent in known.former.split() and known.heard_at > silent


def former_agents(known: Any, agent: str) -> str:
    """The agents that a node had before this one.

    One of these, which is heard as the present one is silent, stays the earlier: the silent one does not
    become one of them, so it is heard with its first report when it comes back, as the other one was told.
    """
    before = known.former.split()
    if agent == known.agent:
        return str(known.former)
    others = before if agent in before else [known.agent, *before]
    return " ".join([each for each in others if each != agent][:_MOST])


def two_of_one_name(node: str, other: str) -> str:
    """What the agent that is not heard is told, for its log."""
    where = f", at {other}," if other else ""
    return (
        f"another machine{where} tells of a login node {node} too, and is the one that is heard (of two "
        "the one whose agent began later, unless it was silent): sessions here do not count. Give this "
        "machine another name (`node` in /etc/hpctools/login-agent.yaml, or its host name) or stop its "
        "hp-login-agent; when the other one is silent, this one is heard until it comes back"
    )

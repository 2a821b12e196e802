"""Until when a node that is going to be taken away may keep its workers."""

from __future__ import annotations

from hpctools.elastic.actions import Action, Depart
from hpctools.elastic.connections import Connections
from hpctools.elastic.context import RunContext
from hpctools.elastic.exits import Exits
from hpctools.elastic.peers import Agent, write
from hpctools.elastic.spec import GRACE_RESERVE

UNSAID_SECONDS = 120.0  # as long as a spot instance has: who drains a node, say, names no time


class Deadlines:
    """Ends the part of an agent whose workers did not leave at a step boundary in time.

    Their step is done again by the others, in memory.
    A node that alone has the state is left until it is gone. The agents are told, too, and tell whoever takes
    the coordination over.
    """

    def __init__(self, run: RunContext, connections: Connections, exits: Exits) -> None:
        self._run = run
        self._connections = connections
        self._exits = exits
        self._until: dict[str, float] = {}

    def note(self, action: Action, now: float) -> None:
        """An action was carried out; restart mode keeps its deadlines itself."""
        run = self._run
        if not isinstance(action, Depart):
            return
        for agent in run.roster.agents_on(action.node):
            notice = run.spec.notice_seconds(baseline=agent.is_baseline, preempted=False)
            unsaid = UNSAID_SECONDS if run.restart is None else notice
            stays = run.spec.departure_seconds(unsaid if action.seconds is None else action.seconds)
            until = min(now + stays, self._until.get(agent.name, now + stays))
            if run.restart is None:
                self._until[agent.name] = until
            write(agent.writer, "departs", seconds=until - now + GRACE_RESERVE)

    def tick(self, now: float) -> None:
        """Some time has passed."""
        roster = self._run.roster
        for name, until in list(self._until.items()):
            agent = roster.agents.get(name)
            if agent is None or not (agent.running or roster.workers_of(agent)):
                del self._until[name]
            elif now >= until and self._others_train(agent):
                del self._until[name]
                self._end(agent)

    def _others_train(self, agent: Agent) -> bool:
        run = self._run
        return any(
            each.agent != agent.name and run.membership.trains(each.name)
            for each in run.roster.workers.values()
        )

    def _end(self, agent: Agent) -> None:
        self._run.warn(f"{agent.node} did not leave in time: what it has not finished is done again")
        for worker in self._run.roster.workers_of(agent):
            self._connections.expel(worker)
        self._exits.send_away(agent, agent.reason)
        self._run.carry_out()

"""Until when a node that is going to be taken away may keep its workers."""

from __future__ import annotations

from hpctools.elastic.actions import Action, Depart
from hpctools.elastic.connections import Connections
from hpctools.elastic.context import RunContext
from hpctools.elastic.exits import Exits
from hpctools.elastic.peers import Agent

UNSAID_SECONDS = 120.0  # as long as a spot instance has: who drains a node, say, names no time


class Deadlines:
    """Ends the part of an agent whose workers did not leave at a step boundary in time.

    Their step is done again by the others, in memory.
    A node that alone has the state is left until it is gone.
    """

    def __init__(self, run: RunContext, connections: Connections, exits: Exits) -> None:
        self._run = run
        self._connections = connections
        self._exits = exits
        self._until: dict[str, float] = {}

    def note(self, action: Action, now: float) -> None:
        """An action was carried out; restart mode has deadlines of its own."""
        run = self._run
        if not isinstance(action, Depart) or run.restart is not None:
            return
        left = UNSAID_SECONDS if action.seconds is None else action.seconds
        until = now + run.spec.departure_seconds(left)
        for agent in run.roster.agents_on(action.node):
            self._until[agent.name] = min(until, self._until.get(agent.name, until))

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

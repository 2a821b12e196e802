"""What those that watch the run ask for, carried out."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

from hpctools.elastic.actions import (
    Action,
    Depart,
    Fail,
    Prepare,
    ReplaceNode,
    RestartAll,
    RestartWorker,
    RollBack,
)
from hpctools.elastic.connections import Connections
from hpctools.elastic.context import RunContext
from hpctools.elastic.exits import Exits
from hpctools.elastic.hearing import Hearing
from hpctools.elastic.peers import Agent, Outcome, write
from hpctools.elastic.relinquishing import agents_to_give_up, why_kept

OF_TRAINING = (RestartWorker, ReplaceNode, RollBack)
"""What is of use only as long as there are steps to do."""


class Acting:
    """Carries actions out; each is an event `action` of the run."""

    def __init__(self, run: RunContext, hearing: Hearing, exits: Exits, connections: Connections) -> None:
        self._run = run
        self._hearing = hearing
        self._exits = exits
        self._connections = connections

    def act(self, action: Action, now: float | None = None) -> None:
        """Do what is asked for; nothing when the run ends anyway.

        Args:
            now: the coordinator's clock.
        """
        run = self._run
        if run.is_over:
            return
        if run.completed and isinstance(action, OF_TRAINING):
            # Who does what follows the last step is left alone: started again it would not do it.
            run.warn(f"{type(action).__name__} is not done, since the last step is: {action.reason}")
            return
        if isinstance(action, RollBack) and action.blamed is None and run.restart is None:
            action = replace(action, blamed=self._in_work())  # so that a later coordinator knows it
        detail: dict[str, Any] = asdict(action)
        run.journal.event("action", action=type(action).__name__, **detail)
        if isinstance(action, (Depart, Prepare)):
            run.replicas.avoid(action.node, action.avoid_s)
            self._have_baseline_relieved(action.node)
        if run.restart is not None:
            run.restart.act(action)
        else:
            self._carry_out(action, time.monotonic() if now is None else now)
        run.carry_out()

    def _carry_out(self, action: Action, now: float) -> None:
        if isinstance(action, (RestartWorker, ReplaceNode, RollBack)):
            self._run.at_stake = Outcome("failed", action.reason, action.code)
        if isinstance(action, RestartWorker):
            self._restart_worker(action.worker)
        elif isinstance(action, ReplaceNode):
            self._replace_node(action, now)
        elif isinstance(action, RestartAll):
            self.restart_all(self._to_be_left_out(action))
        elif isinstance(action, RollBack):
            self._roll_back(action, now)
        elif isinstance(action, Depart):
            for agent in self._run.roster.agents_on(action.node):
                self._hearing.leaves(agent, "departed", now, action.seconds)
        elif isinstance(action, Prepare):
            self._run.order_save(action.reason, urgent=False, seconds=action.seconds)
        elif isinstance(action, Fail):
            self._run.fail(action.reason, action.code)

    def _have_baseline_relieved(self, node: str) -> None:
        """A job that loses a node is ended by Slurm, or keeps what is left of it: another one is needed."""
        run = self._run
        for agent in run.roster.agents_on(node):
            if agent.is_baseline:
                run.loses_baseline(agent.job_id)

    def _to_be_left_out(self, action: RestartAll) -> list[int]:
        """What the first generation leaves out: all that ever was, where it begins at the beginning.

        What is saved knows by itself what was left out until then.
        """
        run = self._run
        is_saved = run.has_checkpoint or run.may_have_checkpoint or run.has_saved
        return sorted({*action.skip, *(() if is_saved else run.left_out)})

    def restart_all(self, skip: Sequence[int] = ()) -> None:
        """End every worker, and begin again with what is on disk; at the beginning without steps `skip`."""
        run, roster = self._run, self._run.roster
        run.left_out.update(skip)
        run.membership.begin_again(skip)
        self._exits.begin_again()
        run.journal.went_back(run.membership.last_number + 1)
        run.completed = False
        for worker in list(roster.workers.values()):
            roster.restarting.add(worker.name)
            self._connections.expel(worker)
        for agent in roster.agents.values():
            for name in agent.running:
                roster.restarting.add(name)
                write(agent.writer, "kill", worker=name)
        run.journal.stands(state="starting")

    def _restart_worker(self, worker: str) -> None:
        """A worker that runs is ended, and then started again; one that has ended is started again."""
        roster = self._run.roster
        agent = roster.agent_of(worker) if worker else None
        if agent is None or agent.leaving:
            return
        if worker not in agent.running:
            self._exits.start_again(agent, worker)
            return
        roster.restarting.add(worker)
        write(agent.writer, "kill", worker=worker)
        if (connected := roster.workers.get(worker)) is not None:
            self._connections.expel(connected)

    def _replace_node(self, action: ReplaceNode, now: float) -> None:
        """The node's workers are ended at once, unless nobody else has the state."""
        run = self._run
        if action.exclude:
            run.replicas.exclude(action.node)
        given = agents_to_give_up(run.roster, action.node)
        if (why := why_kept(run, given)) is not None:
            run.warn(f"{action.node} is not replaced: {why}")
            self._restart_worker(action.worker)
            return
        for agent in given:
            if self._has_all_state(agent):
                self._hearing.leaves(agent, "replaced", now)
                continue
            agent.leaving = True
            for worker in run.roster.workers_of(agent):
                self._connections.expel(worker)
            # What crashed there does not come back either.
            run.membership.leaving(run.membership.vanished_of(agent.name), now)
            self._exits.send_away(agent, "replaced")

    def _has_all_state(self, agent: Agent) -> bool:
        trains = [each.agent for each in self._run.roster.workers.values() if self._holds(each.name)]
        return set(trains) == {agent.name}

    def _holds(self, worker: str) -> bool:
        return self._run.membership.trains(worker)

    def _roll_back(self, action: RollBack, now: float) -> None:
        blamed = self._in_work() if action.blamed is None else action.blamed
        to_step = max(0, blamed - max(action.steps, int(action.skip)))
        run = self._run
        run.left_out.update([blamed] if action.skip else [])
        run.membership.roll_back(to_step, [blamed] if action.skip else [], now)
        run.journal.went_back(run.membership.last_number, to_step)
        if run.has_checkpoint:  # perhaps of nothing but what is given up: storage knows, should all be lost
            run.has_checkpoint, run.may_have_checkpoint = False, True

    def _in_work(self) -> int:
        """Number of the step that the run works at, as last told; at its end the last one."""
        status = self._run.journal.status
        return status.step + 1 if status.total_steps is None else min(status.step + 1, status.total_steps)

"""The coordinator's side of its watchers: shows them the run and takes what they ask for."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from hpctools.elastic.actions import Action
from hpctools.elastic.context import RunContext
from hpctools.elastic.peers import Agent, Worker
from hpctools.elastic.watchers import ASLEEP, MemberView, Report, View, Watcher


class Watching:
    """All watchers of a run.

    Args:
        act: carries an action out.
    """

    def __init__(
        self, run: RunContext, watchers: Sequence[Watcher], act: Callable[[Action, float], None]
    ) -> None:
        self._run = run
        self._watchers = tuple(watchers)
        self._act = act

    def handles(self, report: Report) -> bool:
        """Whether a watcher deals with the end of a worker's process."""
        return any(getattr(each, "handles", _never)(report) for each in self._watchers)

    def heard(self, now: float, report: Report) -> None:
        """Pass a report on, and do what is asked for."""
        for watcher in self._watchers:
            for action in watcher.heard(now, report):
                self._act(action, now)

    def beat(self, now: float, worker: Worker, message: Mapping[str, Any]) -> None:
        """A sign of life of a worker that trains, with the numbers that its loop reported."""
        node = self._node_of(worker)
        numbers = numbers_of(message)
        kind = "metric" if numbers else "beat"
        self.heard(now, Report(kind, worker.name, node, worker.step, numbers, in_steps_of(message)))

    def tick(self, now: float, *, slept: bool = False) -> None:
        """Let the watchers look at the run.

        Args:
            slept: we stood still ourselves since the last time, as all others may have: nobody was slow.
        """
        if not self._watchers:
            return
        view = self._view() if self._run.restart is None else self._run.restart.view(now)
        agents = self._run.roster.agents.values()
        view = replace(
            view,
            phase=ASLEEP if slept else view.phase,
            nodes=frozenset(each.node for each in agents),
            staying=frozenset(each.node for each in agents if not each.leaving),
        )
        for watcher in self._watchers:
            for action in watcher.tick(now, view):
                self._act(action, now)

    def _view(self) -> View:
        run = self._run
        status = run.journal.status
        members = tuple(
            MemberView(
                each.name,
                self._node_of(each),
                each.step,
                each.seen,
                trains=self._trains(each),
                waits=each.waits,
                between=each.between,
                ready=run.membership.knows(each.name),
                leaves=self._leaves(each),
                mute=_is_mute(run.roster.agent_of(each.name)),
            )
            for each in run.roster.workers.values()
        )
        world = len(run.membership.members)
        return View(status.step, world, run.membership.generation, run.membership.phase, members)

    def _node_of(self, worker: Worker) -> str:
        """Empty when its agent is not here: a node that nobody can name is not to blame."""
        agent = self._run.roster.agents.get(worker.agent)
        return agent.node if agent is not None else ""

    def _trains(self, worker: Worker) -> bool:
        return worker.name in self._run.membership.members

    def _leaves(self, worker: Worker) -> bool:
        agent = self._run.roster.agents.get(worker.agent)
        return agent is None or agent.leaving


def _is_mute(agent: Agent | None) -> bool:
    return agent is None or agent.mute


def _never(report: Report) -> bool:
    return False


def numbers_of(message: Mapping[str, Any]) -> dict[str, float]:
    """The numbers of a beat: the loss, and what the training's loop has reported."""
    given = message.get("metrics")
    numbers = {str(name): _float(value) for name, value in given.items()} if isinstance(given, dict) else {}
    if message.get("loss") is not None:
        numbers["loss"] = _float(message["loss"])
    return numbers


def in_steps_of(message: Mapping[str, Any]) -> dict[str, tuple[tuple[int, float], ...]]:
    """Of a beat: which values some of the numbers had in which steps."""
    given = message.get("in_steps")
    if (
        given is None
        and message.get("rank", 0) == 0
        and None not in (message.get("step"), message.get("loss"))
    ):
        return {"loss": ((int(message["step"]), _float(message["loss"])),)}  # a worker of an earlier release
    named = given.items() if isinstance(given, dict) else ()
    return {str(name): tuple((int(step), _float(value)) for step, value in steps) for name, steps in named}


def _float(value: object) -> float:
    return float(value) if isinstance(value, (int, float)) else math.nan

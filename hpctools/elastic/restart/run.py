"""The coordinator's part of restart mode: hears agents, carries out what `Generations` decides."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from typing import Any

from hpctools.elastic.actions import Action, Depart, Fail, Prepare, ReplaceNode
from hpctools.elastic.context import RunContext
from hpctools.elastic.effects import Decided, Waiting
from hpctools.elastic.folder import RunFolder, utc_now
from hpctools.elastic.peers import Agent, Outcome, write
from hpctools.elastic.protocol import Message
from hpctools.elastic.relinquishing import agents_to_give_up, why_kept
from hpctools.elastic.restart.adoption import StepsKnown
from hpctools.elastic.restart.budget import read_charges
from hpctools.elastic.restart.effects import (
    Broken,
    Charged,
    Crashed,
    Finished,
    Formed,
    Release,
    Resized,
    Tell,
)
from hpctools.elastic.restart.generations import Generations
from hpctools.elastic.restart.limits import TERM_SECONDS, Limits
from hpctools.elastic.spec import GRACE_RESERVE
from hpctools.elastic.watchers import MemberView, View
from hpctools.errors import ElasticError

TAKEOVER_SECONDS = 5.0
SAVE_RESERVE = GRACE_RESERVE + TERM_SECONDS  # of the time until a node is gone
PHASES = {
    "waiting": "waiting",
    "adopting": "waiting",
    "offering": "starting",
    "running": "running",
    "telling": "resizing",
    "ending": "resizing",
    "over": "finishing",
}


class RestartRun:
    """One coordinator of a run in restart mode.

    Args:
        takes_over: whether another coordinator was there before us, and ranks may be running.
    """

    def __init__(self, run: RunContext, *, takes_over: bool) -> None:
        self._run = run
        self._spec = run.spec
        now = time.monotonic()
        wait = now + TAKEOVER_SECONDS if takes_over else 0.0
        charges = read_charges(run.folder, now) if takes_over else []
        steps = _steps_known(run.folder) if takes_over else None
        self._limits = Limits.of(run.spec)
        self._generations = Generations(self._limits, wait, run.payback.history, charges, steps)
        self._expected: dict[str, tuple[float, Prepare]] = {}
        self._over = asyncio.Event()

    # What happens

    def joined(self, agent: Agent, hello: Message) -> None:
        """An agent was admitted; nothing begins for a node that has to go already."""
        if agent.leaving:
            self.leaving(agent)
        self._generations.joined(agent.name, agent.order, time.monotonic(), hello.get("ranks"))
        self._carry_out()

    def gone(self, agent: Agent) -> None:
        """An agent's connection broke, or it fell silent."""
        self._generations.gone(agent.name, time.monotonic())
        self._carry_out()

    def leaving(self, agent: Agent, seconds: float | None = None) -> None:
        """A node has to go.

        Args:
            seconds: until it is gone; None: as Slurm gives it.
        """
        of = {"baseline": agent.is_baseline, "preempted": agent.reason == "preempted"}
        left = self._spec.notice_seconds(**of) if seconds is None else seconds
        now = time.monotonic()
        self._generations.leaving(agent.name, now + self._spec.departure_seconds(left), now)
        self._carry_out()

    def heard(self, agent: Agent, message: Message) -> None:
        """An agent tells of its ranks (`kind` is `ranks`); when the run ends it counts if they may save."""
        ended = self._run.ended
        if ended.done() and ended.result().state != "cancelled":
            return
        of, generation, now = message["of"], int(message["generation"]), time.monotonic()
        machine, name = self._generations, agent.name
        if of == "offered":
            machine.offered(name, generation, message["host"], message["port"], now)
        elif of == "began":
            machine.began(name, generation, now)
        elif of == "counted":
            machine.counted(name, generation, message["counts"], now)
        elif of == "answered":
            bound, calls = bool(message["bound"]), int(message["calls"])
            machine.answered(name, generation, int(message["call"]), now, bound=bound, calls=calls)
        elif of == "ended":
            local, code, told = (int(message[key]) for key in ("local", "code", "told"))
            ago, ours = float(message.get("ago", 0.0)), bool(message.get("ours"))
            said = list(message["said"])
            machine.ended(name, generation, local, code, told, said, now, ago=ago, ours=ours)
        self._carry_out()

    def act(self, action: Action) -> None:
        """What somebody that watches the run asks for; a single rank cannot be restarted alone."""
        if isinstance(action, Fail):
            self._run.fail(action.reason, action.code)
        elif isinstance(action, Depart):
            self._give_up(self._run.roster.agents_on(action.node), "departed", action.seconds)
        elif isinstance(action, Prepare):
            self._expect(action)
        elif isinstance(action, ReplaceNode):
            self._replace_node(action)
        else:
            self._generations.restart(action.reason, time.monotonic())
            self._carry_out()

    def _expect(self, action: Prepare) -> None:
        """To be told ends the training where no other node is: as late as its script has time to save.

        One of which nobody says when it goes stays until there are others.
        """
        if action.seconds is not None:
            self._expected[action.node] = (time.monotonic() + action.seconds, action)

    def _let_go(self, now: float) -> None:
        """What is expected comes near."""
        for node, (until, action) in list(self._expected.items()):
            if until - now <= self.save_seconds:
                del self._expected[node]
                if any(not each.leaving for each in self._run.roster.agents_on(node)):
                    self._run.act(Depart(node, max(0.0, until - now), action.reason, action.avoid_s))

    def _give_up(self, agents: list[Agent], reason: str, seconds: float | None) -> None:
        for agent in agents:
            if not agent.leaving:
                agent.leaving, agent.reason, agent.told = True, reason, time.monotonic()
        for agent in agents:
            self.leaving(agent, seconds)

    def _replace_node(self, action: ReplaceNode) -> None:
        """A node that the run needs stays, and the ranks are started again there."""
        if action.exclude:
            self._run.replicas.exclude(action.node)
        given = agents_to_give_up(self._run.roster, action.node)
        if (why := why_kept(self._run, given)) is None:
            self._give_up(given, "replaced", None)
            return
        self._run.warn(f"{action.node} is not replaced: {why}")
        self._generations.restart(action.reason, time.monotonic())
        self._carry_out()

    async def finish(self, why: str, seconds: float) -> None:
        """The run ends: ranks are told of an event, and may save; returns when all have ended.

        Args:
            seconds: until they must have.
        """
        self._run.journal.event("told_to_end", why=why, seconds=round(seconds, 1))
        self._generations.finish(time.monotonic(), seconds)
        self._carry_out()
        await self._over.wait()

    @property
    def generation(self) -> int:
        """Number of the generation of ranks that was begun last."""
        return self._generations.generation

    @property
    def asks(self) -> bool:
        """Whether a rank that runs has asked for events."""
        return any(self._generations.calls.values())

    @property
    def save_seconds(self) -> float:
        """How long before it is too late a script is told, to save in the time that the policy gives it."""
        return self._limits.graceful + SAVE_RESERVE

    def tick(self, now: float) -> None:
        """Some time has passed."""
        self._let_go(now)
        self._generations.tick(now)
        self._carry_out()
        if self._generations.step >= max(1, self._run.journal.status.step):  # also while it stands still
            self._run.journal.asked(now, self._generations.step)

    def view(self, now: float) -> View:
        """The run as its watchers see it.

        A script that asks for no events tells no steps: it is taken to do them, since nobody can know.
        """
        machine = self._generations
        step = machine.step or int(now)
        members = tuple(self._members())
        phase = PHASES[machine.phase]
        world = len(machine.members) * self._spec.workers_per_node  # also when one of them has ended well
        return View(step, world, machine.generation, phase, members, begins=not self.asks)

    def _members(self) -> Iterator[MemberView]:
        """Ranks that run, and those that could on nodes without any."""
        machine, agents = self._generations, self._run.roster.agents
        calls = machine.calls
        before, runs = machine.step - max(calls.values(), default=0), {name for name, _ in calls}
        for (name, local), count in calls.items():
            if (agent := agents.get(name)) is not None:
                yield _member(agent, local, before + count)
        for agent in [each for name, each in agents.items() if name not in runs]:
            for local in range(self._spec.workers_per_node):
                yield _member(agent, local, None)

    # What follows

    def _carry_out(self) -> None:
        effects, self._generations.effects = self._generations.effects, []
        for effect in effects:
            if isinstance(effect, Tell):
                self._tell(effect)
            elif isinstance(effect, Release):
                self._release(effect.agent)
            elif isinstance(effect, Finished):
                self._run.end(Outcome("finished"))
            elif isinstance(effect, Broken):
                self._run.fail(effect.reason, effect.code)
            else:
                self._record(effect)
        if self._generations.phase == "over":
            self._over.set()

    def _record(self, effect: Formed | Resized | Crashed | Charged | Decided | Waiting) -> None:
        journal = self._run.journal
        if isinstance(effect, Formed):
            self._formed(effect)
        elif isinstance(effect, Resized):
            values = _resize_event(effect)
            journal.event("resize", **values)
            journal.change(last_resize={**values, "time": utc_now()})
        elif isinstance(effect, Crashed):
            worker, node = f"{effect.agent}.{effect.local}", self._node_of(effect.agent)
            detail: dict[str, Any] = {"worker": worker, "rank": effect.rank, "node": node}
            journal.event("crashed", **detail, code=effect.code, stderr=list(effect.said))
        elif isinstance(effect, Charged):
            journal.event("charged", generation=effect.generation, reason=effect.reason)
        elif isinstance(effect, Decided):
            journal.decided(effect)
        elif not self._run.is_over:  # else who goes has been told to, and the status tells why
            journal.waits(effect.have, effect.need)

    def _formed(self, formed: Formed) -> None:
        journal, per_node = self._run.journal, self._spec.workers_per_node
        nodes = tuple(self._node_of(agent) for agent in formed.members)
        size = len(formed.members) * per_node
        journal.change(
            state="running", generation=formed.generation, world_size=size, nodes=nodes, message=""
        )
        for agent, node in zip(formed.members, nodes, strict=True):
            if agent not in formed.before:
                journal.event("joined", worker=agent, node=node, generation=formed.generation)

    def _tell(self, effect: Tell) -> None:
        agent = self._run.roster.agents.get(effect.agent)
        if agent is not None:
            write(agent.writer, **effect.message)

    def _release(self, name: str) -> None:
        agent = self._run.roster.agents.get(name)
        if agent is not None:
            self._run.send_away(agent)

    def _node_of(self, name: str) -> str:
        agent = self._run.roster.agents.get(name)
        return agent.node if agent is not None else "?"


def _steps_known(folder: RunFolder) -> StepsKnown | None:
    """The steps that an earlier coordinator told of; None where that cannot be read."""
    try:
        status = folder.status()
    except (ElasticError, OSError):
        return None
    if status is None:
        return None
    last = status.last_resize or {}
    is_dated = {"generation", "step"} <= last.keys()  # an earlier release may have written it
    before = {last["generation"]: last["step"]} if is_dated else {}
    return StepsKnown(status.generation, status.step, before)


def _member(agent: Agent, local: int, step: int | None) -> MemberView:
    """A rank; without a step it does not run yet."""
    name, trains = f"{agent.name}.{local}", step is not None
    return MemberView(
        name, agent.node, step, agent.seen, trains=trains, ready=not trains, leaves=agent.leaving
    )


def _resize_event(resized: Resized) -> dict[str, Any]:
    return {
        "from": resized.before,
        "to": resized.after,
        "generation": resized.generation,
        "step": resized.step,
        "recovered": resized.recovered,
        "pause_s": round(resized.pause, 4),
        "normal_step_s": round(resized.normal_step, 4),
        "phases": {name: round(seconds, 4) for name, seconds in resized.phases.items()},
    }

"""What the parts of a coordinator share."""

from __future__ import annotations

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any, Protocol

from hpctools.elastic.actions import Action
from hpctools.elastic.fence import Fence
from hpctools.elastic.folder import RunFolder
from hpctools.elastic.growth_history import Payback
from hpctools.elastic.journal import FolderJournal
from hpctools.elastic.membership import Membership
from hpctools.elastic.peers import Agent, Outcome, Roster, Worker
from hpctools.elastic.protocol import Message
from hpctools.elastic.rate import Rate
from hpctools.elastic.recovery.settings import EXIT_GOES_ON
from hpctools.elastic.replicas import Replicas
from hpctools.elastic.save_orders import SaveOrders
from hpctools.elastic.spec import RunSpec
from hpctools.elastic.watchers import View

RELIEF_SECONDS = 10.0
PACE_SECONDS = 5.0
PACED_SECONDS = 1.0
"""Shorter than that no pace is noted: after a pause of ours several beats are heard in one moment."""


class RestartMode(Protocol):
    """What restart mode makes of what happens; see `restart.run.RestartRun`."""

    def joined(self, agent: Agent, hello: Message) -> None:
        """An agent was admitted."""
        ...

    def gone(self, agent: Agent) -> None:
        """An agent's connection broke, or it fell silent."""
        ...

    def leaving(self, agent: Agent, seconds: float | None = None) -> None:
        """A node has to go."""
        ...

    def heard(self, agent: Agent, message: Message) -> None:
        """An agent tells of its ranks."""
        ...

    def act(self, action: Action) -> None:
        """Somebody that watches the run asks for something."""
        ...

    async def finish(self, why: str, seconds: float) -> None:
        """The run ends: ranks are told, and may save; returns when all have ended."""
        ...

    @property
    def generation(self) -> int:
        """Number of the generation of ranks that was begun last."""
        ...

    @property
    def asks(self) -> bool:
        """Whether the script asks for events, and so can be told."""
        ...

    @property
    def save_seconds(self) -> float:
        """How long before it is too late a script is told, to save in the time that the policy gives it."""
        ...

    def tick(self, now: float) -> None:
        """Some time has passed."""
        ...

    def view(self, now: float) -> View:
        """The run as its watchers see it."""
        ...


class RunContext:
    """One coordinator's view of its run, and the way to end it.

    Args:
        job_id: the job in which this coordinator runs.

    Attributes:
        carry_out: does what the membership has decided; to be called after everything that tells it.
        act: carries out what somebody asks for.
        finishing: whether some worker's program has ended well, so that all others are to end.
        completed: whether the last step is done.
        takes_over: whether another coordinator was in office before us, and none has trained under us yet.
        saves: the orders to save.
        has_checkpoint: whether something was saved from which all can begin again.
        may_have_checkpoint: whether nothing tells of one, and a coordinator before us may have heard of one,
            or one was saved before a roll back, which may be void. Then storage is asked before it counts
            that there is none.
        has_saved: whether anything was ever saved, or the run began from what another one had saved.
        save_seconds: how long the last save took, as far as is known; 0: nothing was saved yet.
        saves_by_itself: whether something is saved by time or steps, as the workers say; None: nobody has
            said so, and the policy in `spec` counts.
        left_out: numbers of the steps whose batches are left out.
        begun_again: how often all have begun again for want of state since something was saved.
        at_stake: how the run ends when what is being done about a fault takes the last of the state along and
            nothing was saved; None: nothing is being done, or the training runs again.
        payback: what is noted for the decision to grow.
        baseline_lost: set when a node of a baseline job has gone, or will.
        failing_baselines: baseline jobs that lose a node; another one is submitted before that.
        relieved: set for a baseline job when another one has its place, and jobs that wait for the run know.
        open_baselines: those that Slurm ends without having said why.
        restart: takes the agents' news in restart mode; None in live mode.
    """

    def __init__(
        self,
        folder: RunFolder,
        spec: RunSpec,
        job_id: int,
        fence: Fence,
        journal: FolderJournal,
        membership: Membership,
        replicas: Replicas,
        payback: Payback,
    ) -> None:
        self.folder = folder
        self.spec = spec
        self.job_id = job_id
        self.fence = fence
        self.journal = journal
        self.membership = membership
        self.replicas = replicas
        self.roster = Roster()
        self.finishing = False
        self.completed = False
        self.takes_over = False
        self.carry_out: Callable[[], None] = lambda: None
        self.act: Callable[[Action], None] = lambda action: None
        self.has_checkpoint = self.may_have_checkpoint = False
        self.has_saved = False
        self.save_seconds = 0.0
        self.saves_by_itself: bool | None = None
        self.left_out: set[int] = set()
        self.begun_again = 0
        self.saves = SaveOrders(fence.term, journal, self._members_present)
        self.at_stake: Outcome | None = None
        self.payback = payback
        self.baseline_lost = asyncio.Event()
        self.failing_baselines: set[int] = set()
        self.relieved: defaultdict[int, asyncio.Event] = defaultdict(asyncio.Event)
        self.open_baselines: set[int] = set()
        self.restart: RestartMode | None = None
        self.ended: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        self._begun: tuple[float, int, int] | None = None
        self._pace = Rate(PACE_SECONDS)
        self._background: set[asyncio.Task[None]] = set()

    @property
    def is_over(self) -> bool:
        """Whether the run has ended, or ends."""
        return self.finishing or self.ended.done()

    @property
    def is_in_office(self) -> bool:
        """Whether we have neither resigned nor been replaced; who then hangs up leaves us, not the run."""
        return not self.ended.done() or self.ended.result().state != "superseded"

    @property
    def is_hearing(self) -> bool:
        """Whether we have taken over and do not know yet how the training stands.

        Until its workers have come and go on, or wait for others, no job is submitted: only they can tell
        that the last step is done. In restart mode it is the agents that tell, and at once.
        """
        membership = self.membership
        recovers = self.takes_over and membership.phase == "recovering"
        return self.restart is None and (membership.is_assembling or recovers)

    def end(self, outcome: Outcome) -> None:
        """End the run so, unless it has ended; the coordinator first looks whether it is still in office."""
        if not self.ended.done():
            self.ended.set_result(outcome)

    def fail(self, reason: str, code: int | None = None) -> None:
        """End the run because it cannot go on."""
        self.end(Outcome("failed", reason, code))

    def loses_baseline(self, job_id: int, *, is_open: bool = False) -> None:
        """A baseline job loses a node, or all: another one is to be submitted before that.

        Args:
            is_open: whether it may be that somebody wanted so; then Slurm is asked first.
        """
        known = self.open_baselines if is_open else self.failing_baselines
        if job_id not in known:
            known.add(job_id)
            self.baseline_lost.set()

    def send_away(self, agent: Agent) -> None:
        """End an agent's part in the run; a baseline's only when who waits for its job knows of the next one.

        That is awaited for a few seconds: what waits for the job's end would begin while the run goes on.
        After the last step there is no next one, and it ends well. A job has the largest exit code of its
        nodes: who leaves while others of it stay says nothing.
        """
        job = agent.job_id
        if not agent.is_baseline or self.completed:
            self.roster.send_away(agent, 0)
        elif self.relieved[job].is_set() or not self.spec.baseline_script:
            self.roster.send_away(agent, self._code_of(agent))
        else:
            self.loses_baseline(job, is_open=job in self.open_baselines)
            self.in_background(self._send_away_relieved(agent))

    def _code_of(self, agent: Agent) -> int:
        """With which a baseline's agent is sent away."""
        others = (each for each in self.roster.agents.values() if each.job_id == agent.job_id)
        stays = any(each.name != agent.name and not each.leaving for each in others)
        return 0 if self.completed or stays else EXIT_GOES_ON

    async def _send_away_relieved(self, agent: Agent) -> None:
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self.relieved[agent.job_id].wait(), RELIEF_SECONDS)
        present = self.roster.agents.get(agent.name)  # it may have come again meanwhile
        if present is not None and not self.is_over:  # else all are told how the run has ended
            self.roster.send_away(present, self._code_of(present))

    def warn(self, message: str) -> None:
        """Something that a person should know."""
        self.journal.event("warning", message=message)

    def order_save(self, why: str, *, urgent: bool, seconds: float | None = None, ends: bool = False) -> None:
        """Have the first worker of the generation in force that is still there save the state.

        Args:
            urgent: whether it is needed before anything else is done.
            seconds: how long there is for it; None: long.
            ends: whether the run ends with that state, so that nobody need train on.
        """
        self.saves.give(why, urgent=urgent, seconds=seconds, ends=ends)

    def _members_present(self) -> list[Worker]:
        known = (self.roster.workers.get(member) for member in self.membership.members)
        return [worker for worker in known if worker is not None]

    def note_progress(self, now: float, step: int, samples: int) -> None:
        """The training has come so far: what the decision to grow has to know of its speed."""
        world = len(self.membership.members)
        self.payback.history.progressed(now, world, samples)
        last, facts = self._begun, self.membership.facts
        if last is None or last[1] != world or step < last[2]:
            self._begun, self._pace = (now, world, step), Rate(PACE_SECONDS)
            last = self._begun
        pace = self._pace.per_second(now, step) or 0.0
        if now - last[0] < PACED_SECONDS:
            self.membership.facts = replace(facts, pace=0.0)
            return
        rates = dict(facts.rates)
        if step > last[2]:
            rates[world] = (step - last[2]) / (now - last[0])
        total = self.journal.status.total_steps
        self.membership.facts = replace(facts, rates=rates, pace=pace, now_step=step, total_steps=total)

    def begin_to_finish(self) -> None:
        """A worker's program has ended well: the others end, too."""
        if not self.finishing:
            self.finishing = True
            self.replicas.stop()
            self.roster.tell_workers("stop")

    def in_background(self, work: Coroutine[Any, Any, None]) -> None:
        """Do something that may take time; given up when the run ends."""
        task: asyncio.Task[None] = asyncio.ensure_future(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    def give_up_background(self) -> None:
        """End what goes on in the background."""
        for task in self._background:
            task.cancel()

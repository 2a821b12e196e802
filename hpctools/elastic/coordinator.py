"""The run's coordinator: listens to agents and workers, and carries out what `Membership` decides.

It lives in an agent: in that of the baseline's first node, and after its end in another one, with a term of
its own. It never blocks: Slurm is asked in threads, and the run's folder is the scribe's, once it has begun.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import time
from typing import Any

from hpctools.elastic import earlier_terms, publishing
from hpctools.elastic.acting import Acting
from hpctools.elastic.actions import Action
from hpctools.elastic.baseline import Baseline
from hpctools.elastic.beginning_again import BeginningAgain
from hpctools.elastic.connections import Connections
from hpctools.elastic.context import RunContext
from hpctools.elastic.deadlines import Deadlines
from hpctools.elastic.earlier_terms import COMPLETED, begun_again, events_of, has_checkpoint, is_complete
from hpctools.elastic.effects import (
    Adopted,
    Broken,
    Completed,
    Decided,
    Effect,
    Formed,
    NotLinked,
    Send,
    Waiting,
    WentBack,
)
from hpctools.elastic.exclusions import exclusions
from hpctools.elastic.exits import Exits
from hpctools.elastic.fence import Fence, FencedClient
from hpctools.elastic.folder import CoordinatorAddress, Ending, RunFolder
from hpctools.elastic.growth_history import Payback
from hpctools.elastic.growth_past import read_past
from hpctools.elastic.hearing import Hearing
from hpctools.elastic.journal import FolderJournal
from hpctools.elastic.last_save import LastSave
from hpctools.elastic.membership import Membership
from hpctools.elastic.own_ends import given_back
from hpctools.elastic.peers import Outcome
from hpctools.elastic.processes import told_in, until
from hpctools.elastic.protocol import LINE_LIMIT, encode, own_address
from hpctools.elastic.recovery.departures import Drains, NodeSource, Notices
from hpctools.elastic.recovery.wiring import longest_silence, watchers_of
from hpctools.elastic.relinquishing import keeping
from hpctools.elastic.replicas import Replicas
from hpctools.elastic.scribe import Scribe
from hpctools.elastic.spec import RunSpec
from hpctools.elastic.time_limit import TimeLimit, seconds_until
from hpctools.elastic.watchers import Watcher
from hpctools.elastic.watching import Watching
from hpctools.errors import ElasticError
from hpctools.slurm.client import RunClient

TICK_SECONDS = 0.1
LATE_SECONDS = 1.0
CLOSING_SECONDS = 10.0
CANCEL_SECONDS = 400.0  # scancel is tried three times, each for two minutes
NOTED_SECONDS = 2.0  # for which the last events are tried again, as nobody does so afterwards
WISH_SECONDS = 0.5


class Coordinator:
    """One coordinator of a run.

    Args:
        job_id: of the job in which it runs.
        term: for which it was claimed; beyond the first it takes over from another coordinator.
    """

    def __init__(self, folder: RunFolder, client: RunClient, job_id: int, term: int = 1) -> None:
        spec = folder.spec()
        fence = Fence(folder, term)
        fenced = FencedClient(client, fence)
        self._scribe = Scribe()
        journal = FolderJournal(folder, spec, fence, self._scribe)
        payback = Payback(spec.elastic_policy)
        baseline_job = _baseline_job(folder) or job_id
        replicas = Replicas(fenced, spec, journal, limit=_time_limit(folder, spec, baseline_job, term))
        run = RunContext(
            folder, spec, job_id, fence, journal, _membership_of(spec, payback), replicas, payback
        )
        self._run = run
        # A run that ends grows no more, least of all while it is saved.
        payback.history.time_left = lambda: 0.0 if run.ended.done() else seconds_until(replicas.end)
        self._term = term
        watching = Watching(run, _watchers(run, client), self.act)
        self._exits = exits = Exits(run)
        hearing = Hearing(run, exits, watching)
        self._baseline = Baseline(
            run, fenced, baseline_job, lambda agent: hearing.leaves(agent, "departed", time.monotonic())
        )
        self._watching = watching
        self._connections = Connections(run, hearing, exits, longest_silence(spec))
        self._acting = Acting(run, hearing, exits, self._connections)
        self._beginning_again = BeginningAgain(run, self._acting.restart_all)
        self._deadlines = Deadlines(run, self._connections, exits)
        self._next_wish = 0.0
        self._wish: Ending | None = None
        self._insists = False
        self._last_save = LastSave(run)
        run.carry_out, run.act = self._carry_out, self.act
        if spec.mode == "restart":
            run.restart = _restart_mode(run, takes_over=term > 1)

    async def run(self) -> int | None:
        """Coordinate to the end of the run.

        Returns:
            The exit code of the baseline job; None: another coordinator has taken the run over.
        """
        run = self._run
        listen, publish = own_address()
        server = await asyncio.start_server(self._connections.serve, listen, 0, limit=LINE_LIMIT)
        self._begin(publish)
        where = (publish, server.sockets[0].getsockname()[1], self._connections.token)
        await publishing.publish(run, CoordinatorAddress(*where, os.getpid(), run.job_id, self._term))
        keeping = [asyncio.ensure_future(work) for work in (run.replicas.keep(), self._baseline.keep())]
        ticking = asyncio.ensure_future(self._tick())
        try:
            outcome = await self._first_outcome(*keeping, ticking)
        finally:
            run.replicas.stop()
        # Storage that hangs counts as one that cannot be read: what is to be saved does not wait for it.
        superseded = outcome.state == "superseded" or not await told_in(WISH_SECONDS, run.fence.holds, True)
        if not superseded:
            await self._last_save.keep(outcome)
        if superseded := superseded or run.fence.lost:  # it may have answered meanwhile
            self._step_down(server, *keeping, ticking)
        else:
            await self._close(outcome, ticking, *keeping)
            server.close()
        # Who resigns has seen what its successor should read; what may not be written any more takes no time.
        await self._scribe.has_written(CLOSING_SECONDS)
        self._scribe.close()
        return None if superseded else outcome.exit_code

    def cancel(self, reason: str, at: float | None = None) -> None:
        """End the run because somebody wants so; who does so twice does not wait for what is saved.

        Args:
            at: when the job was signalled, on the monotonic clock; None: now.
        """
        self._run.end(Outcome("cancelled", reason))
        self._last_save.cancelled(time.monotonic() if at is None else at)

    def fail(self, reason: str) -> None:
        """End the run because it cannot go on."""
        self._run.fail(reason)

    def resign(self) -> None:
        """Our node goes: the run goes on with another coordinator."""
        if not self._run.ended.done():
            self._run.ended.set_result(Outcome("superseded"))

    @property
    def is_completing(self) -> bool:
        """Whether the last step is done: what is left is to hear of the programs' ends."""
        return self._run.completed or self._run.finishing

    @property
    def had_visitors(self) -> bool:
        """Whether an agent of another node ever came, too."""
        return len(self._run.roster.came) > 1

    @property
    def asks_alone(self) -> bool:
        """Whether it is open what became of the baseline job, and no agent is left that could find out."""
        return self._baseline.is_open and all(each.leaving for each in self._run.roster.agents.values())

    def act(self, action: Action, now: float | None = None) -> None:
        """Carry out what somebody that watches the run asks for."""
        self._acting.act(action, now)
        self._deadlines.note(action, time.monotonic() if now is None else now)

    def _begin(self, host: str) -> None:
        """Say that we are in office; who takes over knows from the folder how far the run was."""
        run = self._run
        if self._term == 1:
            run.journal.event("started", job_id=run.job_id, host=host)
        else:
            run.journal.resume()
            run.payback.history.restore(read_past(run.folder, time.monotonic()))
            events = events_of(run.folder)
            run.has_checkpoint, run.save_seconds = has_checkpoint(events), earlier_terms.save_seconds(events)
            run.may_have_checkpoint, run.begun_again = not run.has_checkpoint, begun_again(events)
            run.has_saved, run.left_out = earlier_terms.has_saved(events), earlier_terms.left_out(events)
            for node, span in exclusions(events).items():
                run.replicas.exclude(node, span)
            for job_id in given_back(events):
                run.replicas.was_given_back(job_id)
            run.takes_over, run.completed = True, is_complete(events)
            generation = max(run.journal.status.generation, earlier_terms.last_generation(events))
            run.membership.take_over(generation, time.monotonic(), completed=run.completed)
            run.replicas.are_wanted = lambda: not run.is_hearing
            run.journal.event("takeover", job_id=run.job_id, host=host, term=self._term)
        run.journal.flush(time.monotonic())

    async def _first_outcome(self, *tasks: asyncio.Future[None]) -> Outcome:
        """The run's end; a fault of our own is one, too, instead of a training without a coordinator."""
        ended = self._run.ended
        while not ended.done():
            waiting: list[asyncio.Future[Any]] = [ended, *(task for task in tasks if not task.done())]
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            broken = [task for task in tasks if task.done() and task.exception() is not None]
            if broken:
                return Outcome("failed", f"the coordinator broke: {broken[0].exception()!r}")
        return ended.result()

    # The end

    def _step_down(self, server: asyncio.Server, *tasks: asyncio.Future[None]) -> None:
        """Somebody else is in office: go without a word, and harm nothing."""
        server.close()
        for task in tasks:
            task.cancel()
        self._run.give_up_background()
        roster = self._run.roster
        for worker in roster.workers.values():
            worker.writer.transport.abort()
        for agent in roster.agents.values():
            agent.writer.transport.abort()

    async def _close(self, outcome: Outcome, *tasks: asyncio.Future[None]) -> None:
        """Leave nothing behind: replicas, agents and workers end; the folder tells how it was."""
        run = self._run
        run.finishing = True
        run.journal.event(outcome.state, message=outcome.message, step=run.journal.status.step)
        run.journal.change(state=outcome.state, message=outcome.message)
        run.journal.flush(time.monotonic(), at_once=True)
        await self._scribe.has_written(CLOSING_SECONDS)  # who is told to go looks there whether it is over
        unused = self._baseline.unused()
        run.roster.tell_workers("stop")
        run.roster.tell_agents("shutdown", code=outcome.exit_code)
        ticking, submitting, keeping = tasks
        keeping.cancel()
        await asyncio.wait([submitting], timeout=CLOSING_SECONDS)
        gone = until(lambda: not run.roster.agents, CLOSING_SECONDS)
        cancelling = asyncio.gather(run.replicas.cancel_all(), self._baseline.cancel(unused), gone)
        with contextlib.suppress(asyncio.TimeoutError):  # whether we are in office is asked of storage
            await asyncio.wait_for(cancelling, CANCEL_SECONDS)
        await until(lambda: not run.journal.owes, NOTED_SECONDS)
        ticking.cancel()
        run.give_up_background()
        self._scribe.put(self._withdraw)

    def _withdraw(self) -> None:
        with contextlib.suppress(ElasticError):  # the disk is gone; the status, if it was written, tells it
            self._run.folder.remove_coordinators(self._term)

    # What follows

    def _carry_out(self) -> None:
        membership = self._run.membership
        effects, membership.effects = membership.effects, []
        for effect in effects if self._run.is_in_office else ():
            if isinstance(effect, Send):
                if effect.message["kind"] == "release":
                    self._run.roster.departed.add(effect.to)
                if (worker := self._run.roster.workers.get(effect.to)) is not None:
                    worker.writer.write(encode(**effect.message))
            elif isinstance(effect, Broken):
                self._beginning_again.on_broken(effect)
            else:
                self._record(effect)

    def _record(self, effect: Effect) -> None:
        run, roster = self._run, self._run.roster
        if isinstance(effect, Formed | Adopted):
            run.takes_over = False  # else we should hear no numbers in any later recovery
        if isinstance(effect, Formed):
            run.journal.formed(effect, [roster.node_of(worker) for worker in effect.members])
            run.payback.history.formed(
                effect.world_before, len(effect.members), time.monotonic(), recovered=effect.recovered
            )
            run.saves.note_formed()
        elif isinstance(effect, Adopted):
            nodes = tuple(dict.fromkeys(roster.node_of(worker) for worker in effect.members))
            world = len(effect.members)
            run.journal.change(
                state="running", generation=effect.generation, world_size=world, nodes=nodes, message=""
            )
        elif isinstance(effect, WentBack):
            run.journal.went_back(effect.generation, effect.to_step)
        elif isinstance(effect, Waiting):
            if not run.is_over:  # else who goes has been told to, and the status tells why
                run.journal.waits(effect.have, effect.need)
            if run.restart is None and not run.is_over:
                run.order_save("fewer workers are left than the least", urgent=False)
            run.saves.note_waiting()
        elif isinstance(effect, Decided):
            run.journal.decided(effect)
        elif isinstance(effect, NotLinked):
            for agent in filter(None, map(roster.agent_of, effect.workers)):
                run.replicas.came_to_nothing(agent.job_id)
        elif isinstance(effect, Completed):
            if not run.completed:  # else the coordinator before us has noted it
                run.journal.event(COMPLETED, step=run.journal.status.step)
            run.completed = True
            run.replicas.stop()

    async def _tick(self) -> None:
        run, last = self._run, time.monotonic()
        while True:
            await asyncio.sleep(TICK_SECONDS)
            now, in_time = time.monotonic(), not self._scribe.is_behind
            late, last = now - last > LATE_SECONDS, now
            self._heed()
            self._connections.check_silence(now, late=late)
            self._connections.show_life(now)
            if late:  # who slept first looks whether it is still in office
                self._watching.tick(now, slept=True)
            else:
                self._last_save.heed_limit()
                self._decide(now)
            if in_time:  # else the next time tells more
                self._look(now)
                run.journal.flush(now)

    def _decide(self, now: float) -> None:
        run = self._run
        if run.restart is not None:
            run.restart.tick(now)
        else:
            run.membership.expect(run.roster.starting(run.membership.known))
            run.membership.consider(now)
            self._exits.check_finished()  # who takes over hears first whether all have ended
            run.at_stake = None if run.membership.phase == "running" else run.at_stake
            self._deadlines.tick(now)
        self._watching.tick(now)
        self._carry_out()

    def _look(self, now: float) -> None:
        """Have it looked at who is in office, and whether somebody has noted that the run is to end."""
        self._scribe.put(self._run.fence.holds)
        if now >= self._next_wish:
            self._next_wish = now + WISH_SECONDS
            self._scribe.put(self._read_wish)

    def _read_wish(self) -> None:
        with contextlib.suppress(ElasticError):
            self._wish = self._run.folder.ending()
            if self._wish is not None and self._run.folder.was_asked_again():
                self._insists = True

    def _heed(self) -> None:
        """Do what was found."""
        if self._run.fence.lost:
            self._run.end(Outcome("superseded"))
        elif self._wish is not None:
            self._run.end(Outcome(self._wish.state, self._wish.message))
        if self._insists:
            self._last_save.hurry()


def _membership_of(spec: RunSpec, payback: Payback) -> Membership:
    sizes = [nodes * spec.workers_per_node for nodes in spec.allowed_sizes]
    return Membership(sizes, payback, faulty_wait=spec.elastic_policy.faulty_scale_down_s)


def _watchers(run: RunContext, client: RunClient) -> list[Watcher]:
    least = run.spec.min_nodes * run.spec.workers_per_node
    drains = [Drains(client, least, run.warn)] if isinstance(client, NodeSource) else []
    rules = watchers_of(run.spec, run.folder, time.monotonic(), run.journal.event, keeping(run))
    return [*rules, Notices(least), *drains]


def _restart_mode(run: RunContext, *, takes_over: bool) -> Any:
    from hpctools.elastic.restart.run import RestartRun

    return RestartRun(run, takes_over=takes_over)


def _baseline_job(folder: RunFolder) -> int | None:
    """The last baseline job that was submitted, as far as that is known."""
    try:
        return next((job.job_id for job in reversed(folder.jobs()) if job.role == "baseline"), None)
    except ElasticError:
        return None


def _time_limit(folder: RunFolder, spec: RunSpec, baseline: int, term: int) -> TimeLimit:
    """What the folder knows of the baseline job; the first coordinator begins with that job."""
    try:
        known = folder.time_limit()
    except ElasticError:
        known = None
    if known is not None and known.baseline == baseline:
        return known
    if term > 1 or spec.time_limit_s is None:
        return TimeLimit(baseline)
    return TimeLimit(baseline, time.time() + spec.time_limit_s, math.ceil(spec.time_limit_s / 60))

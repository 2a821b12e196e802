"""The node agent: one on every node of every job of the run; starts the workers and answers for them.

    python -m hpctools.elastic.agent --run-dir DIR --role baseline|replica

The one on the baseline's first node also runs the coordinator, and when that is gone another one does.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import math
import os
import signal
import sys
from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import Any

from hpctools.elastic.agent_line import AgentLine
from hpctools.elastic.agent_place import Place, placed
from hpctools.elastic.brief_threads import BriefThreads
from hpctools.elastic.coordinator import Coordinator
from hpctools.elastic.folder import Ending, RunFolder
from hpctools.elastic.given_back import ignore_for_ourselves
from hpctools.elastic.job_fate import UNSAID, Fate, fate_of, known_better
from hpctools.elastic.last_save import AGAIN_SECONDS
from hpctools.elastic.left_behind import STARTED_BY, Mark, end_left_behind
from hpctools.elastic.notices import Lookout
from hpctools.elastic.own_run import keep_to_ourselves
from hpctools.elastic.process_end import end_process
from hpctools.elastic.processes import INCARNATION, Post, Workers, in_own_thread
from hpctools.elastic.protocol import Message
from hpctools.elastic.reach import Part, Reach
from hpctools.elastic.recovery import EXIT_GOES_ON, log_rules_of
from hpctools.elastic.recovery.listening import Listener
from hpctools.elastic.restart.node import NodeRanks
from hpctools.elastic.spec import GRACE_RESERVE
from hpctools.elastic.stopped import BusyWatch, StoppedWatch
from hpctools.elastic.succession import Succession
from hpctools.errors import ElasticError, HpctoolsError
from hpctools.slurm.client import RunClient

LOOK_SECONDS = 0.5
ASK_SECONDS = 4.0
COMPUTED_SECONDS = 10.0  # a step's data may take some, in which nothing is computed
ENDING_SECONDS = 2.0  # of a grace time that storage may take; who has none needs the answer most
STOP_SECONDS = 3.0
OFFICE_SECONDS = 30.0  # for which a node without workers is kept for the run's end


class Agent:
    """One node's agent; see `run`."""

    def __init__(self, folder: RunFolder, place: Place, client: RunClient) -> None:
        self._folder = folder
        self._spec = folder.spec()
        self._place = place
        self._client = client
        alone = place.is_baseline and self._spec.min_nodes == 1
        part = Part(place.name, is_enough=alone, is_needed=place.is_baseline and not alone)
        self._succession = Succession(
            *(folder, place.name, self._appointed),
            is_first=place.coordinates,
            reach=Reach(part, self._trains),
        )
        self._line = AgentLine(
            folder, self._spec.id, self._succession, self._introduction, self._obey, self._life, self._trains
        )
        shows = place.is_baseline and place.index == 0
        rules = log_rules_of(self._spec)
        self._listener = Listener(rules, self._line.say) if rules else None
        post = Post(folder, self._spec, place.name, self._line.say, shows, self._listener, self._leave)
        self._workers: NodeRanks | Workers = (
            NodeRanks(post) if self._spec.mode == "restart" else Workers(post)
        )
        self._busy = BusyWatch(self._workers) if isinstance(self._workers, Workers) else None
        self._shutdown: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._computed = -math.inf  # when one of our workers last did
        self._leaving = ""
        self._is_open = False
        self._told: float | None = None  # when our job got SIGTERM first
        self._asking: asyncio.Task[None] | None = None  # why it did
        self._cancelled: float | None = None  # when our job got SIGTERM to end the run
        self._until = 0.0  # when we have to be gone, once we leave
        self._departs: float | None = None  # when our node is gone, as the coordinator has told
        self._lookout: Lookout | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self) -> int:
        """Be a part of the run to its end, and coordinate it when nobody else does; returns the exit code.

        Raises:
            ElasticError: the run has ended already, or nobody coordinates it and we cannot.
        """
        keeping = asyncio.ensure_future(self._line.keep())
        first = asyncio.ensure_future(self._line.connected.wait())
        self._spawn(self._look_out())
        preparing = self._spawn(self._prepare())
        if isinstance(self._workers, Workers):
            self._spawn(StoppedWatch(self._workers, self._line.say).keep())
        if self._listener is not None:
            self._spawn(self._listener.keep())
        begun: list[asyncio.Future[Any]] = [keeping, first, self._shutdown]
        await asyncio.wait(begun, return_when=asyncio.FIRST_COMPLETED)
        first.cancel()
        while not (preparing.done() or self._must_end(keeping)):
            await asyncio.wait([preparing], timeout=LOOK_SECONDS)
        if not self._must_end(keeping):
            for local in range(self._spec.workers_per_node):
                self._workers.spawn(local)
        await self._until_the_end(keeping)
        await self._workers.stop(STOP_SECONDS)
        await self._line.drain()
        lost = keeping.exception() if keeping.done() and not keeping.cancelled() else None
        keeping.cancel()  # else it would connect again, as a node that stays
        code = await self._end_office()
        if code is not None or self._shutdown.done():
            return self._shutdown.result() if code is None else code
        if lost is not None:
            raise lost
        return 0

    async def _prepare(self) -> None:
        if isinstance(self._workers, Workers):
            await self._workers.prepare()

    def _must_end(self, keeping: asyncio.Future[None]) -> bool:
        """Whether no worker is to be started any more."""
        return bool(self._leaving) or keeping.done() or self._shutdown.done()

    def on_terminate(self) -> None:
        """SIGTERM: our node is wanted, or our job is ended, and with a baseline's the run."""
        if self._leaving or self._is_echo(now := _now()):
            return
        self._told = now if self._told is None else self._told
        if self._place.is_baseline:
            self._asking = self._spawn(self._learn_why(now))
        else:
            self._asking = self._spawn(self._leave_unless_over())
        if isinstance(self._workers, NodeRanks):
            self._workers.expect_news(self._asking)

    def _is_echo(self, now: float) -> bool:
        """Whether it is asked just now why our job got SIGTERM: one scancel may come as two."""
        asking = self._asking is not None and not self._asking.done()
        return asking and self._told is not None and now - self._told <= AGAIN_SECONDS

    def end(self, code: int) -> None:
        """End this node's part with an exit code."""
        if not self._shutdown.done():
            self._shutdown.set_result(code)

    async def _until_the_end(self, keeping: asyncio.Future[None]) -> None:
        """Until we are told to go, nobody coordinates any more, or a replica's workers have all left."""
        waiting: list[asyncio.Future[Any]] = [self._shutdown, keeping]
        if not self._place.is_baseline:
            waiting.append(asyncio.ensure_future(self._all_left()))
        while True:
            office = self._succession.work
            watched = [*waiting, *([office] if office is not None and not office.done() else [])]
            await asyncio.wait(watched, return_when=asyncio.FIRST_COMPLETED, timeout=LOOK_SECONDS)
            if any(each.done() for each in waiting) or self._has_failed(office):
                return

    def _has_failed(self, office: asyncio.Task[int | None] | None) -> bool:
        """Whether the coordinator beside us broke, or has brought the run to its end."""
        if office is None or not office.done():
            return False
        return office.exception() is not None or office.result() is not None

    async def _all_left(self) -> None:
        """All workers have ended, and somebody was there who could have had them started again.

        A coordinator beside us that has only the run's end to tell stays for that: who took over would find
        nothing to do. When what follows the training takes long, the node counts more.
        """
        patience = OFFICE_SECONDS
        while True:
            await self._workers.all_ended()
            stays = self._succession.is_completing and patience > 0
            if self._leaving or (self._line.connected.is_set() and not stays):
                return
            await asyncio.sleep(LOOK_SECONDS)
            patience -= LOOK_SECONDS if stays else 0.0

    async def _end_office(self) -> int | None:
        """The exit code of the run when its coordinator is here; another agent takes over when it goes on."""
        office = self._succession.work
        if office is None:
            return None
        goes_on = self._leaving or not self._shutdown.done()
        if goes_on and not self._has_failed(office):
            await self._learn_fate(office)
            self._succession.resign()
        return await office

    async def _learn_fate(self, office: asyncio.Task[int | None]) -> None:
        """When nobody is left who could ask Slurm what became of the baseline job, we do, while we can."""
        coordinator = self._succession.coordinator
        while coordinator is not None and coordinator.asks_alone and _now() < self._until:
            await asyncio.wait([office], timeout=LOOK_SECONDS)
            if office.done():
                return

    def _appointed(self, term: int) -> Coordinator:
        return Coordinator(self._folder, self._client, self._place.job_id, term)

    async def _look_out(self) -> None:
        """Once somebody listens: a notice that stands already is not to be told in vain."""
        await self._line.connected.wait()
        self._lookout = Lookout(self._line.say, os.environ)
        await self._lookout.keep()

    async def _learn_why(self, at: float) -> None:
        """The baseline job got SIGTERM then: it is cancelled or out of time, unless it goes on or is lost.

        When Slurm does not say which, its nodes are given up all the same, and who coordinates asks on.
        """
        job_id = self._place.job_id
        try:
            fate = await asyncio.wait_for(asyncio.to_thread(self._ask_fate, job_id), ASK_SECONDS)
        except (HpctoolsError, asyncio.TimeoutError):
            fate = UNSAID
        if not fate.wanted:
            self._leave("departed", is_open=fate.open)
            return
        message = f"baseline job {job_id} {fate.words}"
        if self._succession.coordinator is not None:
            self._succession.coordinator.cancel(message, at)
        first = self._cancelled = at if self._cancelled is None else self._cancelled
        again = abs(at - first) > AGAIN_SECONDS  # what was asked later may be answered first
        noting = in_own_thread(lambda: self._note_wish(Ending("cancelled", message), again=again))
        with contextlib.suppress(ElasticError, asyncio.TimeoutError):
            await asyncio.wait_for(noting, ENDING_SECONDS)

    def _note_wish(self, ending: Ending, *, again: bool) -> None:
        """For who coordinates, who may be elsewhere; who cancels again does not want to wait any longer."""
        self._folder.ask_to_end(ending)
        if again:
            self._folder.ask_again()

    async def _leave_unless_over(self) -> None:
        """Our replica is preempted, or the run is cancelled: it then ends with all others, in KillWait.

        GraceTime, which a preemption leaves, may be none, and what all save together needs our workers.
        """
        ending: Ending | None = None
        with contextlib.suppress(ElasticError, asyncio.TimeoutError):
            ending = await asyncio.wait_for(in_own_thread(self._folder.ending), ENDING_SECONDS)
        if ending is None and not self._leaving:
            self._leave("preempted")

    def _ask_fate(self, job_id: int) -> Fate:
        fate = fate_of(job_id, self._client.jobs(ids=[job_id]))
        return known_better(job_id, fate, self._client.ended_as)

    def _leave(self, reason: str, *, is_open: bool = False) -> None:
        """The workers leave at the end of a step, within the grace time.

        Args:
            is_open: whether it is not known what becomes of our baseline job.
        """
        self._leaving, self._is_open = reason, is_open
        self._succession.leave()
        grace = self._grace()
        self._until = _now() + grace
        self._line.say("leaving", reason=reason, open=is_open, **self._time_left)
        code = EXIT_GOES_ON if self._place.is_baseline else 0
        asyncio.get_running_loop().call_later(grace, self.end, code)
        self._workers.expect_no_restart(grace)

    def _grace(self) -> float:
        """What there is for that: Slurm counts from its SIGTERM on, and not from when it said why."""
        passed = 0.0 if self._told is None else _now() - self._told
        if self._place.is_baseline:
            return self._spec.losing_seconds(passed)
        return self._spec.departure_seconds(
            self._spec.notice_seconds(baseline=False, preempted=True) - passed
        )

    @property
    def _time_left(self) -> Message:
        """Until our node is gone, for the coordinator: of a baseline it does not know when that began."""
        leaves = self._place.is_baseline and self._until
        return {"seconds": max(0.0, self._until - _now()) + GRACE_RESERVE} if leaves else {}

    def _introduction(self) -> Message:
        place = self._place
        if self._lookout is not None:
            self._lookout.forget()
        return {
            "agent": place.name,
            "baseline": place.is_baseline,
            "first": place.is_first_baseline,
            "place": place.index,
            "node": place.node,
            "job_id": place.job_id,
            "leaving": self._leaving,
            "open": self._is_open,
            **self._time_left,
            "departs": None if self._departs is None else max(0.0, self._departs - _now()),
            "running": self._workers.running,
            "ended": self._workers.ended,
            "log_rules": [] if self._listener is None else list(self._listener.over.values()),
            **({"ranks": self._workers.report()} if isinstance(self._workers, NodeRanks) else {}),
        }

    def _life(self) -> Message:
        """We vouch for the workers that compute: they may be too busy to say so."""
        busy = self._busy.look() if self._busy is not None else []
        self._computed = _now() if busy else self._computed
        return {"busy": busy} if busy else {}

    def _trains(self) -> bool:
        """Whether our workers compute: those of a script of its own do as long as they run."""
        if isinstance(self._workers, NodeRanks):
            return self._workers.has_ranks
        return _now() - self._computed < COMPUTED_SECONDS

    def _obey(self, message: Message) -> None:
        kind = message["kind"]
        if kind == "shutdown":
            if message.get("goes_on"):
                self._leaving, self._succession.barred = self._leaving or "replaced", True
            self.end(int(message["code"]))
        elif kind == "restart" and not self._leaving:
            self._workers.restart(str(message["worker"]))
        elif kind == "kill":
            self._workers.kill(str(message["worker"]))
        elif kind == "ranks" and isinstance(self._workers, NodeRanks):
            self._workers.obey(message)
        elif kind == "departs":
            self._departs = _now() + float(message["seconds"])
        elif kind == "heir":
            self._succession.named(int(message["place"]))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task: asyncio.Task[None] = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


def _now() -> float:
    return asyncio.get_running_loop().time()


async def serve(folder: RunFolder, place: Place, client: RunClient) -> int:
    """Run the agent, and where it belongs the coordinator; returns the exit code.

    Raises:
        ElasticError: the run's folder cannot be used, or nobody coordinates the run.
    """
    agent, loop = Agent(folder, place, client), asyncio.get_running_loop()
    loop.set_default_executor(BriefThreads())
    loop.add_signal_handler(signal.SIGTERM, agent.on_terminate)
    return await agent.run()


def main(argv: Sequence[str] | None = None, client: RunClient | None = None) -> int:
    """The agent's command line; returns the exit code.

    Args:
        client: how Slurm is reached; its own commands when None.
    """
    parser = argparse.ArgumentParser(prog="python -m hpctools.elastic.agent", description=__doc__)
    parser.add_argument("--run-dir", type=Path, required=True, help="the run's folder")
    parser.add_argument("--role", choices=("baseline", "replica"), required=True)
    arguments = parser.parse_args(argv)
    ignore_for_ourselves()
    try:
        folder = RunFolder(arguments.run_dir)
        place = placed(Place.from_environ(arguments.role, os.environ), folder)
        _succeed(Mark.of(folder.path.resolve(), place.name, place.job_id))
        return asyncio.run(serve(folder, place, client or _commands()))
    except HpctoolsError as error:
        print(f"elastic: {error}", file=sys.stderr)
        return error.exit_code


def _succeed(mark: Mark) -> None:
    """Take the place of an agent that was killed, if there was one, and mark what we shall start."""
    if int(os.environ.get(INCARNATION, "0")) and (found := end_left_behind(mark)):
        what = f"{len(found)} process(es) that the agent before this one had left behind"
        print(f"elastic: ended {what}", file=sys.stderr)
    keep_to_ourselves(os.environ)  # what a worker has submitted us with
    os.environ[STARTED_BY] = mark.text


def _commands() -> RunClient:
    from hpctools.slurm.cli import CommandClient

    return CommandClient()


if __name__ == "__main__":
    end_process(main())

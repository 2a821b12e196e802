"""The agent's part of restart mode: obeys the coordinator, and answers for the ranks of its node."""

from __future__ import annotations

import asyncio
import signal
import socket
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from hpctools.elastic.processes import NOT_STARTED, Post
from hpctools.elastic.protocol import own_address
from hpctools.elastic.restart.environment import Begin
from hpctools.elastic.restart.limits import term_within
from hpctools.elastic.restart.output import Output
from hpctools.elastic.restart.ranks import Ended, Ranks

COUNT_SECONDS = 0.2
FROZEN_LOOKS = 10  # in a row: a job that is suspended as a whole, its agent too, stops and wakes in pieces
TERM_NEWS_SECONDS = 0.3


class NodeRanks:
    """What restart mode runs on one node; to its agent it is what `Workers` is in live mode."""

    def __init__(self, post: Post) -> None:
        self._spec = post.spec
        self._say_to = post.say
        self._warn, self._give_up_node = post.warn, post.leave
        self._output = Output(post.folder, post.agent, post.shows_output, post.warn, post.listener)
        self._ranks: Ranks | None = None
        self._held: list[Mapping[str, Any]] | None = None  # orders since one to begin came too early
        self._generation = 0
        self._port: socket.socket | None = None  # kept, so that nobody else gets it
        self._committed = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._leaving = False
        self._news: asyncio.Future[None] | None = None
        self._frozen: dict[int, int] = {}  # looks, by place on the node
        self._watching = False

    @property
    def running(self) -> list[str]:
        """Workers of live mode: none."""
        return []

    @property
    def has_ranks(self) -> bool:
        """Whether a rank's process runs here."""
        return self._ranks is not None and bool(self._ranks.alive)

    @property
    def ended(self) -> list[dict[str, Any]]:
        """Workers of live mode: none."""
        return []

    def spawn(self, local: int) -> None:
        """The coordinator says when ranks start, and on which nodes."""

    def restart(self, worker: str) -> None:
        """Ranks are started again together."""

    def kill(self, worker: str) -> None:
        """Ranks are ended together."""

    async def all_ended(self) -> None:
        """Never: an agent without ranks stands by."""
        await asyncio.get_running_loop().create_future()

    def expect_no_restart(self, seconds: float) -> None:
        """The node has to go: its ranks end before Slurm kills them, whatever the coordinator says.

        Args:
            seconds: that they have.
        """
        if not self._leaving:
            self._leaving = True
            term = term_within(seconds)
            loop = asyncio.get_running_loop()
            loop.call_later(seconds - term, self._end, term)
            loop.call_later(seconds, self._kill)

    def expect_news(self, news: asyncio.Future[None]) -> None:
        """Our job got SIGTERM, and why is known when this is done: until then no rank's end by it is told.

        It is no crash when the job was cancelled, or has to go; nor has the training finished.
        """
        self._news = news

    def report(self) -> dict[str, Any]:
        """What runs here, for a coordinator that has not seen it begin; part of the agent's hello.

        What was ordered before, and not done yet, is not done any more.
        """
        ranks = self._ranks
        if self._held:
            self._held.clear()
        if ranks is None:
            return {"generation": self._generation, "ranks": {}}
        begin = ranks.begin
        return {
            "generation": begin.generation,
            "members": list(begin.members),
            "restarts": begin.restarts,
            "committed": self._committed,
            "ending": ranks.ending,
            "ranks": {rank.local: [*rank.counts(), *_outcome(rank.ended)] for rank in ranks.ranks},
            "ends": {each.local: [_ago(each.at), each.ours] for each in ranks.ended},
            "stopped": None if ranks.stopped is None else _ago(ranks.stopped),
            "moved": None if ranks.moved is None else _ago(ranks.moved),
        }

    def obey(self, message: Mapping[str, Any]) -> None:
        """Carry out an order; one for another generation is out of date."""
        what, generation = message["do"], int(message["generation"])
        if what == "passed":
            self._end_before(generation)
        elif self._held is not None:
            self._held.append(message)
        elif what == "offer":
            self._offer(generation)
        elif what == "begin" and self._ranks is not None and self._ranks.alive:
            self._held = [message]
            self._spawn(self._clear(self._ranks))
        elif what == "begin":
            self._begin(Begin.of(message))
        elif self._ranks is not None and self._ranks.begin.generation == generation:
            self._order(self._ranks, message)

    def _end_before(self, generation: int) -> None:
        """Whoever coordinates does without us: our ranks would write the same checkpoints as that one's."""
        if self._ranks is not None and self._ranks.begin.generation < generation:
            self._end(0.0)

    async def _clear(self, former: Ranks) -> None:
        """We were taken for lost, and have come back: the ranks that we had end before others begin."""
        await former.end(0.0)
        held, self._held = self._held or [], None
        for message in held:
            self.obey(message)

    async def _watch(self) -> None:
        """Tell how often the ranks have asked, and end those that are frozen; never returns."""
        while True:
            await asyncio.sleep(COUNT_SECONDS)
            if self._ranks is not None and self._ranks.alive:
                self._say("counted", counts=self._ranks.counts())
                self._end_frozen(self._ranks)

    async def stop(self, seconds: float) -> None:
        """End what still runs, and begin nothing any more.

        Args:
            seconds: between SIGTERM and SIGKILL. What hangs in the kernel then is waited for two minutes.
        """
        self._leaving = True
        if self._ranks is not None:
            await self._ranks.end(seconds)
        self._remove()

    def _offer(self, generation: int) -> None:
        listen, publish = own_address()
        if self._port is not None:
            self._port.close()
        # Bound, not listening: rank 0's store, which also sets SO_REUSEADDR, can take it, nobody else can.
        self._port = socket.socket()
        self._port.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._port.bind((listen, 0))
        port = self._port.getsockname()[1]
        self._say_to("ranks", of="offered", generation=generation, host=publish, port=port)

    def _begin(self, begin: Begin) -> None:
        self._remove()
        if self._leaving:
            self._refuse(begin, -signal.SIGTERM)
            return
        self._generation, self._committed = begin.generation, 0
        try:
            ranks = Ranks(self._spec, begin, self._output, self._on_end)
            ranks.start()
        except OSError as error:
            self._refuse(begin, NOT_STARTED, f"no room for the ranks' slots: {error}")
            return
        self._ranks = ranks
        self._say("began")
        if not self._watching:
            self._watching = True
            self._spawn(self._watch())

    def _refuse(self, begin: Begin, code: int, *said: str) -> None:
        """The ranks end before they begin."""
        for local in range(self._spec.workers_per_node):
            self._tell_end(begin.generation, Ended(local, code, said=said))

    def _order(self, ranks: Ranks, message: Mapping[str, Any]) -> None:
        what = message["do"]
        if what == "propose":
            is_bound = ranks.propose(message["call"])
            calls = max((rank.counts()[0] for rank in ranks.ranks), default=0)
            self._say("answered", call=message["call"], bound=is_bound, calls=calls)
        elif what == "commit":
            self._committed = message["call"]
            ranks.commit(message["call"])
        elif what == "withdraw":
            ranks.withdraw()
        elif what == "end":
            self._end(float(message["seconds"]))

    def _end(self, seconds: float) -> None:
        """Once; what was given time before keeps it, unless there is none any more."""
        if self._ranks is not None and not self._ranks.ending:
            self._spawn(self._ranks.end(seconds))
        elif seconds <= 0:
            self._kill()

    def _kill(self) -> None:
        """An end that was ordered with more time than there is now."""
        for rank in self._ranks.alive if self._ranks is not None else ():
            rank.kill()

    def _on_end(self, ranks: Ranks, rank: Ended) -> None:
        generation = ranks.begin.generation
        # What it did since the last look: it may have done all of its steps since then.
        counts = {rank.local: ranks.ranks[rank.local].counts()}
        self._say_to("ranks", of="counted", generation=generation, counts=counts)
        if rank.hangs:
            self._leave_with(rank.hangs, rank.local)
        if self._may_be_slurms(rank) and not ranks.ending:
            self._spawn(self._tell_end_after_news(ranks, rank))
        else:
            self._tell_end(generation, rank)

    def _leave_with(self, pid: int, local: int) -> None:
        """A process that hangs has its GPU, and its memory: nothing else is begun here.

        That is told before the rank's end: the next generation may begin with that.
        """
        self._warn(
            f"process {pid} (rank {local} of this node) cannot be killed: it hangs in the kernel, on a GPU "
            "that is gone or storage that does not answer, say; the node leaves the run, which goes on "
            "without it; have an administrator drain the node and reboot it"
        )
        if not self._leaving:
            self._give_up_node("departed")

    def _may_be_slurms(self, rank: Ended) -> bool:
        """Whether it may have ended by a SIGTERM of Slurm's: a handler ends with whatever code it likes.

        Until it is known why our job got one, each bad end may be due to it.
        """
        if rank.code == 0:
            return not (rank.told or self._committed)
        is_asked = self._news is not None and not self._news.done()
        return is_asked or rank.code in (-signal.SIGTERM, 128 + signal.SIGTERM)

    async def _tell_end_after_news(self, ranks: Ranks, rank: Ended) -> None:
        """Slurm sends SIGTERM to all of a job that ends: then we are about to hear that we go, too.

        A handler of the script's own may save and end, well or not: the training is not done for that, nor
        has it crashed.
        """
        await asyncio.sleep(TERM_NEWS_SECONDS)
        if self._news is not None:
            await asyncio.wait([self._news])
            rank = ranks.ranks[rank.local].ended = replace(rank, code=-signal.SIGTERM)
        self._tell_end(ranks.begin.generation, rank)

    def _tell_end(self, generation: int, rank: Ended) -> None:
        end = {"local": rank.local, "code": rank.code, "told": rank.told, "said": list(rank.said)}
        how = {"ago": _ago(rank.at), "ours": rank.ours}
        self._say_to("ranks", of="ended", generation=generation, **end, **how)

    def _end_frozen(self, ranks: Ranks) -> None:
        """Looks are counted, not time, so that no rank is ended for what stopped the agent as well."""
        frozen = {rank.local: rank for rank in ranks.frozen()}
        self._frozen = {local: self._frozen.get(local, 0) + 1 for local in frozen}
        for local, looks in self._frozen.items():
            if looks > FROZEN_LOOKS:
                frozen[local].signal(signal.SIGKILL)

    def _remove(self) -> None:
        if self._ranks is not None:
            self._ranks.remove()
            self._ranks = None

    def _say(self, of: str, **fields: Any) -> None:
        if self._ranks is not None:
            self._say_to("ranks", of=of, generation=self._ranks.begin.generation, **fields)

    def _spawn(self, work: Any) -> None:
        task: asyncio.Task[None] = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _outcome(ended: Ended | None) -> tuple[int | None, str]:
    """The exit code and the last words."""
    return (None, "") if ended is None else (ended.code, (ended.said or ("",))[-1])


def _ago(at: float) -> float:
    """Seconds since then: clocks of two nodes cannot be compared."""
    return round(time.monotonic() - at, 4)

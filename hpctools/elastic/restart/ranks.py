"""The processes of one generation on one node."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from hpctools.elastic.left_behind import Process, end_rest_of_session
from hpctools.elastic.printed import Printed
from hpctools.elastic.proc_stat import waits_in_kernel
from hpctools.elastic.processes import (
    LINE_CHARACTERS,
    NOT_STARTED,
    LastWords,
    in_own_thread,
    signal_group,
)
from hpctools.elastic.restart import bound
from hpctools.elastic.restart.environment import Begin, rank_environment
from hpctools.elastic.restart.events import Slot
from hpctools.elastic.restart.handlers import behind_wrappers
from hpctools.elastic.restart.memory import SlotFolder
from hpctools.elastic.restart.output import Output
from hpctools.elastic.spec import RunSpec
from hpctools.elastic.stopped import is_stopped
from hpctools.errors import CommandError
from hpctools.python_command import python_command
from hpctools.slurm import run

LAST_WORDS_SECONDS = 1.0
NOTED_SECONDS = 0.02
# After SIGKILL. To give back the memory of a large rank, or to send what it has written to a file server,
# takes the kernel a while, also when all is well.
UNKILLABLE_SECONDS = 120.0


@dataclass(frozen=True)
class Ended:
    """How a rank has ended.

    Attributes:
        code: its exit code; negative: the signal that ended it.
        told: the call at which it was told of an event; 0: it was not.
        said: its last lines, oldest first.
        at: when, seconds of the monotonic clock.
        ours: whether we had ended it because we were told to.
        hangs: the process of it that SIGKILL has not ended: it will never run its own code again, and has
            what it holds; 0: there is none.
    """

    local: int
    code: int
    told: int = 0
    said: tuple[str, ...] = ()
    at: float = field(default_factory=time.monotonic)
    ours: bool = False
    hangs: int = 0


@dataclass
class LocalRank:
    """One process and its slot.

    Attributes:
        words, printed: its standard error and output; the latter None until it is started.
        pid: also its process group; 0 when it could not be started.
        calls, told: as last read from the slot.
        told_to_end: whether it still ran when we were told to end it.
        behind: if it had no handler for SIGTERM when we were told to end it, those of its session that had.
        watching: waits for its end; None before it is started.
        ended: how; None while it runs.
    """

    local: int
    slot: Slot
    words: LastWords
    printed: Printed | None = None
    pid: int = 0
    calls: int = 0
    told: int = 0
    told_to_end: bool = False
    behind: Sequence[Process] = ()
    watching: asyncio.Task[None] | None = None
    ended: Ended | None = None

    def counts(self) -> tuple[int, int]:
        """Its calls of `elastic_event_detected`, and the one at which it was told; 0: it was not."""
        if self.ended is None:
            count = self.slot.count()
            self.calls, self.told = count.calls, count.told
        return self.calls, self.told

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to it and to what it has started."""
        if self.pid:
            signal_group(self.pid, number)

    def kill(self) -> None:
        """End all of it that is known."""
        self.signal(signal.SIGKILL)
        for process in self.behind:
            process.kill()

    @property
    def hanging(self) -> int:
        """The process of it that waits in the kernel now; 0: none does."""
        pids = (self.pid, *(each.pid for each in self.behind if each.runs))
        return next((pid for pid in pids if pid and waits_in_kernel(pid)), 0)


class Ranks:
    """All ranks of a generation that this node has.

    Args:
        output: where they print to.
        on_end: called when a rank has ended, with whose it is.

    Attributes:
        ending: whether we were told to end them.
        stopped: when their training stopped: they were told of an event, or to end, or one has ended; None:
            it goes on, as far as is known.
        moved: when one of them was seen to have asked for events last; None: never.

    Raises:
        OSError: the node has no room for their slots.
    """

    def __init__(
        self, spec: RunSpec, begin: Begin, output: Output, on_end: Callable[[Ranks, Ended], None]
    ) -> None:
        self.begin = begin
        self.ranks: list[LocalRank] = []
        self.ending = False
        self.stopped: float | None = None
        self.moved: float | None = None
        self._calls = 0
        self._spec = spec
        self._is_wrapped = python_command(spec.command) is None  # perhaps
        self._output = output
        self._on_end = on_end
        self._folder = SlotFolder()

    def start(self) -> None:
        """Start them all.

        Raises:
            OSError: the node has no room for their slots, or no pipes for them; none was started.
        """
        self._make_room()
        for rank in self.ranks:
            try:
                rank.pid, wait = self._start(rank)
            except (CommandError, OSError) as error:
                rank.words.close()
                rank.words.tail.append(str(error))
                wait = _not_started
            rank.watching = asyncio.ensure_future(self._watch(rank, wait))

    def _make_room(self) -> None:
        """A slot for each, and pipes for what it says; where one is not to be had, nothing is left open."""
        with contextlib.ExitStack() as made:
            made.callback(self._folder.remove)
            for local in range(self._spec.workers_per_node):
                slot = Slot.create(self._folder.path / str(local))
                made.callback(slot.close)
                words = self._output.words(local, self.begin.generation)
                made.callback(words.close)
                self.ranks.append(LocalRank(local, slot, words))
            made.pop_all()

    @property
    def alive(self) -> list[LocalRank]:
        """Those that have not ended."""
        return [rank for rank in self.ranks if rank.ended is None]

    @property
    def ended(self) -> list[Ended]:
        """How the others have."""
        return [rank.ended for rank in self.ranks if rank.ended is not None]

    def counts(self) -> dict[int, tuple[int, int]]:
        """What those that run have asked, by place on the node."""
        counts = {rank.local: rank.counts() for rank in self.alive}
        calls = max((calls for calls, _ in counts.values()), default=0)
        if calls > self._calls:
            self._calls, self.moved = calls, time.monotonic()
        return counts

    def propose(self, call: int) -> bool:
        """Bind all ranks to wait at a call; returns whether none was there already."""
        return all([rank.slot.propose(call) for rank in self.alive])  # noqa: C419  (all of them, always)

    def commit(self, call: int) -> None:
        """All ranks see the event at this call."""
        self._note_stop(time.monotonic())
        for rank in self.alive:
            rank.slot.commit(call)

    def withdraw(self) -> None:
        """There is no event."""
        for rank in self.alive:
            rank.slot.withdraw()

    async def end(self, seconds: float) -> None:
        """SIGTERM; SIGKILL after so many seconds, or at once to a script that has no handler for it.

        A script behind a wrapper has the time for its handler also when the wrapper has ended.
        A rank that hangs in the kernel two minutes later is given up: see `Ended.hangs`.
        """
        self.ending = True
        self._note_stop(time.monotonic())
        behind = behind_wrappers([rank.pid for rank in self.alive if rank.pid], looks=self._is_wrapped)
        for rank in self.alive:
            # We may not have been told of its end yet: neither of its own, nor of that which we made before.
            rank.told_to_end = rank.told_to_end or not _has_ended(rank.pid)
            rank.slot.forget_term()
            wrapped = behind.get(rank.pid)
            rank.behind = wrapped.handling if wrapped else ()
            rank.signal(signal.SIGTERM)
            for group in wrapped.groups if wrapped else ():
                signal_group(group, signal.SIGTERM)
            if wrapped and not wrapped.handling:
                rank.kill()
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        while self.alive and (left := deadline - loop.time()) > 0:
            await self._ended_within(min(left, NOTED_SECONDS))
            for rank in self.alive:
                if rank.slot.only_notes_term:  # as if it had no handler at all
                    rank.kill()
        for rank in self.alive:
            rank.kill()
        while self.alive:
            await self._ended_within(UNKILLABLE_SECONDS)
            for rank in self.alive:
                if pid := rank.hanging:
                    self._give_up(rank, pid)

    def frozen(self) -> list[LocalRank]:
        """Ranks that somebody has stopped (SIGSTOP): the others wait for them in vain."""
        return [rank for rank in self.alive if is_stopped(rank.pid)]

    def remove(self) -> None:
        """Give up the slots; after this nothing may be asked."""
        for rank in self.ranks:
            rank.slot.close()
        self._folder.remove()

    def _note_stop(self, at: float) -> None:
        self.stopped = at if self.stopped is None else min(self.stopped, at)

    async def _ended_within(self, seconds: float) -> None:
        watching = [rank.watching for rank in self.alive if rank.watching is not None]
        if watching:
            await asyncio.wait(watching, timeout=seconds)

    def _give_up(self, rank: LocalRank, pid: int) -> None:
        """It hangs in the kernel: what is ordered next would wait for it without end.

        Whenever it does end, a thread of `in_own_thread` takes its exit code, and nobody is told of it.
        """
        if rank.watching is not None:
            rank.watching.cancel()
        rank.words.close()
        _, told = rank.counts()
        said = (*rank.words.tail, f"process {pid} cannot be killed: it hangs in the kernel")
        rank.ended = Ended(rank.local, -signal.SIGKILL, told, said, ours=rank.told_to_end, hangs=pid)
        self._note_stop(rank.ended.at)
        self._on_end(self, rank.ended)

    def _start(self, rank: LocalRank) -> tuple[int, Callable[[], int]]:
        files = (self._folder.path / str(rank.local), self._error_file(rank))
        rank.printed = self._output.printed(rank.local, self.begin.generation)
        with rank.words.writing() as stderr, rank.printed.writing() as stdout:
            process = run.start(
                [sys.executable, "-I", "-S", bound.__file__, str(os.getpid()), *self._spec.command],
                stdout=stdout,
                stderr=stderr,
                env=rank_environment(self._spec, self.begin, rank.local, files, os.environ),
                cwd=Path(self._spec.workdir),
                new_session=True,
            )
        return process.pid, process.wait

    def _error_file(self, rank: LocalRank) -> Path:
        return self._folder.path / f"{rank.local}.error.json"

    async def _watch(self, rank: LocalRank, wait: Callable[[], int]) -> None:
        ended: list[float] = []
        code = await in_own_thread(lambda: _noting(wait, ended))
        while any(process.runs for process in rank.behind):  # until `end` ends them
            await asyncio.sleep(NOTED_SECONDS)
        await rank.words.spoken(LAST_WORDS_SECONDS)
        # Processes that it has left behind would write beside the next generation's.
        rank.signal(signal.SIGKILL)
        hangs = await self._left_hanging(rank) if rank.pid else 0
        if rank.printed is not None and rank.pid:
            await rank.printed.written(LAST_WORDS_SECONDS)
        _, told = rank.counts()
        said = (*rank.words.tail, *_recorded_error(self._error_file(rank)))
        rank.ended = Ended(rank.local, code, told, said, ended[0], rank.told_to_end, hangs)
        self._note_stop(ended[0])
        self._on_end(self, rank.ended)

    async def _left_hanging(self, rank: LocalRank) -> int:
        """End what a rank has left behind, in its group and in others of its session; see `Ended.hangs`."""
        rank.behind = await in_own_thread(lambda: end_rest_of_session(rank.pid))
        deadline = time.monotonic() + UNKILLABLE_SECONDS
        while any(process.runs for process in rank.behind):
            if time.monotonic() > deadline and (pid := rank.hanging):
                return pid
            await asyncio.sleep(NOTED_SECONDS)
        return 0


def _noting(wait: Callable[[], int], ended: list[float]) -> int:
    """The exit code; notes when it was there, since the loop may be busy and the last words take a while."""
    code = wait()
    ended.append(time.monotonic())
    return code


def _has_ended(pid: int) -> bool:
    """Whether a process of ours has ended, also when nobody has asked for its exit code yet (waitid(2))."""
    try:
        return pid == 0 or os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:
        return True


def _not_started() -> int:
    return NOT_STARTED


def _recorded_error(path: Path) -> tuple[str, ...]:
    """What `torch.distributed.elastic`'s `record` wrote: the exception itself, not what followed from it."""
    with contextlib.suppress(OSError, ValueError, TypeError, KeyError):
        message = json.loads(path.read_text())["message"]
        # An exception may quote a whole tensor; what is longer than a message to the coordinator may be
        # would cut us off from it.
        return (str(message["message"] if isinstance(message, Mapping) else message)[:LINE_CHARACTERS],)
    return ()

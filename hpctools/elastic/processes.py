"""The worker processes of one node: started, watched, restarted and ended by its agent."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from hpctools.elastic.folder import RunFolder
from hpctools.elastic.forking.client import ForkServer
from hpctools.elastic.given_back import job_environment
from hpctools.elastic.own_run import RUN_DIR, WORKER
from hpctools.elastic.pipes import tapped_pipe
from hpctools.elastic.printed import Printed
from hpctools.elastic.protocol import worker_name, worker_place
from hpctools.elastic.recovery.listening import Listener
from hpctools.elastic.spec import RunSpec
from hpctools.elastic.worker_log import WorkerLog
from hpctools.errors import CommandError
from hpctools.python_command import python_command
from hpctools.slurm import run

TAIL_LINES = 20
LINE_CHARACTERS = 1000
NOT_STARTED = 127
INCARNATION = "HPCTOOLS_AGENT_STARTED"  # how often this node's agent was started again, by the batch script
RESTART_SECONDS = 1.0
LAST_WORDS_SECONDS = 1.0
THREAD_SECONDS = 0.5
LOOK_SECONDS = 0.02
Result = TypeVar("Result")
Wait = Callable[[], Awaitable[int]]


class LastWords:
    """A worker's standard error: copied to ours as it comes, the last lines kept.

    A full disk takes the copy, and nothing else; where ours hangs the worker may say as much as two pipes
    hold before it waits.

    Args:
        heard: is given it, too, as it comes; b"" at the end.

    Raises:
        OSError: there is no pipe to be had, or no thread; nothing is left open.
    """

    def __init__(self, heard: Callable[[bytes], None] | None = None) -> None:
        self._heard = heard
        self.tail: deque[str] = deque(maxlen=TAIL_LINES)
        self._partial = b""
        self._over = asyncio.Event()
        self._log = WorkerLog(sys.stderr, lambda _: None)
        with self._log.writing() as sink:
            self._writing, self._passage = tapped_pipe(sink, self._note)

    @contextlib.contextmanager
    def writing(self) -> Iterator[int]:
        """The end that the worker gets; closed on our side afterwards."""
        try:
            yield self._writing
        finally:
            self._close_writing()

    async def spoken(self, seconds: float) -> None:
        """Wait for the end of it; not for ever, since a process that the worker left behind may hold it."""
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._spoken(seconds), seconds)
        self.close()

    async def _spoken(self, seconds: float) -> None:
        await self._over.wait()
        await self._log.written(seconds)

    def close(self) -> None:
        """Read no more; the worker may never have been started."""
        self._close_writing()
        self._passage.finish()

    def _close_writing(self) -> None:
        if self._writing >= 0:
            os.close(self._writing)
            self._writing = -1

    def _note(self, chunk: bytes) -> None:
        if not chunk:
            self._over.set()
        if self._heard is not None:
            self._heard(chunk)
        *lines, partial = (self._partial + chunk).split(b"\n")
        lines += [] if chunk else [partial]
        self._partial = partial[-LINE_CHARACTERS * 4 :]  # UTF-8 has four bytes at most
        self.tail.extend(_as_shown(line) for line in lines if line.strip())


def _as_shown(line: bytes) -> str:
    """A line as it stood at last: progress bars write one again and again, and one may be endless."""
    return line.rstrip(b"\r").rpartition(b"\r")[2].decode(errors="replace")[-LINE_CHARACTERS:]


@dataclass(frozen=True)
class Post:
    """What an agent has to start on its node.

    Attributes:
        agent: its name.
        say: sends a message to the coordinator, if there is one.
        shows_output: whether the first process's standard output is the job's; the others' goes to the run's
            logs.
        listener: for the policy's log rules; None without any.
        leave: has the node leave the run, for a reason as agents tell it; called at most once.
    """

    folder: RunFolder
    spec: RunSpec
    agent: str
    say: Callable[..., None]
    shows_output: bool = False
    listener: Listener | None = None
    leave: Callable[[str], None] = lambda reason: None

    def warn(self, message: str) -> None:
        """Something that a person should know: for the run's events."""
        self.say("warning", message=message)


class Workers:
    """The workers of one node; each is called `<agent>.<local>.<attempt>`."""

    def __init__(self, post: Post) -> None:
        self._post = post
        self._say = post.say
        # A worker's name is never used twice, also not by an agent that was started again.
        self._first_attempt = 100 * int(os.environ.get(INCARNATION, "0"))
        self._attempts: dict[int, int] = {}
        self._ended: dict[int, dict[str, Any]] = {}
        self._running: dict[str, int] = {}
        self._watching: set[asyncio.Task[None]] = set()
        self._none_left = asyncio.Event()
        self._no_restart = asyncio.Event()
        self._server: ForkServer | None = None

    async def prepare(self) -> None:
        """Have imported beforehand what the policy's `preload` names; returns when workers can be started."""
        spec = self._post.spec
        command = python_command(spec.command)
        if spec.preload is None or command is None:
            return
        try:
            self._server = ForkServer(
                command, spec.preload, self._environment(), Path(spec.workdir), self._warn_of_server
            )
        except (CommandError, OSError):
            return  # what does not start is told of the workers, which are started in the same way
        await self._server.settled()

    def _warn_of_server(self, message: str) -> None:
        self._post.warn(f"{self._post.agent}: {message}")

    @property
    def running(self) -> list[str]:
        """Names of the workers whose processes run."""
        return list(self._running)

    @property
    def pids(self) -> Mapping[str, int]:
        """Their processes, by the worker's name."""
        return self._running

    @property
    def ended(self) -> list[dict[str, Any]]:
        """How those workers ended that were not started again: what was said about each."""
        return list(self._ended.values())

    def spawn(self, local: int) -> None:
        """Start the user's command as the node's worker number `local`."""
        attempt = self._attempts[local] = self._attempts.get(local, self._first_attempt - 1) + 1
        name = worker_name(self._post.agent, local, attempt)
        self._ended.pop(local, None)
        self._none_left.clear()
        self._say("spawned", worker=name)
        listener, shown = self._post.listener, self._post.shows_output and local == 0
        log = None if shown else self._post.folder.logs / f"{name}.out"
        words: LastWords | None = None
        try:
            words = LastWords(listener.reader(name, 2) if listener is not None else None)
            printed = Printed(name, log, self._post.warn, listener)
            pid, wait = self._start(name, words, printed)
        except (CommandError, OSError) as error:
            if words is not None:  # else no descriptor or no thread was left for them
                words.close()
            self._tell_end(name, NOT_STARTED, [str(error)])
            self._none_left.set()
            return
        self._running[name] = pid
        task = asyncio.ensure_future(self._watch(name, wait, words, printed))
        self._watching.add(task)
        task.add_done_callback(self._watching.discard)

    def restart(self, worker: str) -> None:
        """Start a worker again that has ended; one that was started again already is not."""
        _, local, attempt = worker_place(worker)
        if self._attempts.get(local) == attempt and worker not in self._running:
            self.spawn(local)

    def kill(self, worker: str) -> None:
        """End a worker that no longer answers."""
        if (pid := self._running.get(worker)) is not None:
            signal_group(pid, signal.SIGKILL)

    def expect_no_restart(self, seconds: float) -> None:
        """The node has to be given back: when the last worker has ended, all have.

        Args:
            seconds: that they have; they know it themselves.
        """
        self._no_restart.set()
        if not self._running:
            self._none_left.set()

    async def all_ended(self) -> None:
        """Wait until no worker runs and, as far as can be known, none will be started again."""
        while True:
            await self._none_left.wait()
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._no_restart.wait(), RESTART_SECONDS)
            if not self._running:
                return

    async def stop(self, grace: float) -> None:
        """End the workers: SIGTERM, and SIGKILL to those that are still there after `grace` seconds."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            for pid in self._running.values():
                signal_group(pid, number)
            if self._watching:
                await asyncio.wait(self._watching, timeout=grace)
        if self._server is not None:
            await self._server.close()

    def _start(self, worker: str, words: LastWords, printed: Printed) -> tuple[int, Wait]:
        spec, own = self._post.spec, self._own_environment(worker)
        with words.writing() as stderr, printed.writing() as stdout:
            if (forked := self._forked(own, stdout, stderr)) is not None:
                return forked
            popen = run.start(
                spec.command,
                stdout=stdout,
                stderr=stderr,
                env={**self._environment(), **own},
                cwd=Path(spec.workdir),
                new_session=True,
            )
        return popen.pid, lambda: in_own_thread(popen.wait)

    def _forked(self, own: dict[str, str], stdout: int | None, stderr: int) -> tuple[int, Wait] | None:
        """A worker of the node's fork server; None: there is none, or it has just ended."""
        server = self._server
        try:
            return server.fork(own, stdout, stderr) if server is not None and server.serves else None
        except OSError:
            return None  # to start one may do what to fork one did not: it needs less memory

    async def _watch(self, worker: str, wait: Wait, words: LastWords, printed: Printed) -> None:
        code = await wait()
        await asyncio.gather(words.spoken(LAST_WORDS_SECONDS), printed.written(LAST_WORDS_SECONDS))
        self._running.pop(worker, None)
        self._tell_end(worker, code, list(words.tail))
        if not self._running:
            self._none_left.set()

    def _tell_end(self, worker: str, code: int, tail: list[str]) -> None:
        ended = {"worker": worker, "code": code, "tail": tail}
        self._ended[worker_place(worker)[1]] = ended
        self._say("exited", **ended)

    def _environment(self) -> dict[str, str]:
        """What all workers of the node have."""
        return {
            # One thread a worker unless the user wants more: kernels then round the same everywhere.
            "OMP_NUM_THREADS": "1",
            **job_environment(os.environ, self._post.spec),
            "PYTHONUNBUFFERED": "1",
            RUN_DIR: str(self._post.folder.path),
        }

    def _own_environment(self, worker: str) -> dict[str, str]:
        return {
            WORKER: worker,
            **dict.fromkeys(("LOCAL_RANK", "SLURM_LOCALID"), str(worker_place(worker)[1])),  # its GPU's place
        }


async def in_own_thread(work: Callable[[], Result]) -> Result:
    """What comes of something that may never end; asyncio's own threads are few, and others need them.

    Our process ends without waiting for it. Where the node has no thread left it waits until there is one.
    """
    loop = asyncio.get_running_loop()
    result: asyncio.Future[Result] = loop.create_future()

    def act() -> None:
        try:
            tell = partial(_resolve, result, work())
        except Exception as error:  # noqa: BLE001 - it is raised where that is waited for
            tell = partial(_reject, result, error)
        with contextlib.suppress(RuntimeError):  # the loop has ended before the process
            loop.call_soon_threadsafe(tell)

    while not _has_begun(threading.Thread(target=act, name="elastic-wait", daemon=True)):
        await asyncio.sleep(THREAD_SECONDS)
    return await result


def _has_begun(thread: threading.Thread) -> bool:
    """Whether it could be started: the node may have none left for now."""
    try:
        thread.start()
    except RuntimeError:
        return False
    return True


async def told_in(seconds: float, work: Callable[[], Result], otherwise: Result) -> Result:
    """What comes of something that may never end, or something else when that takes longer."""
    telling = asyncio.ensure_future(in_own_thread(work))
    await asyncio.wait([telling], timeout=seconds)
    return telling.result() if telling.done() else otherwise


async def until(over: Callable[[], bool], seconds: float) -> None:
    """Wait until it is so, but not longer than that."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds
    while not over() and loop.time() < deadline:
        await asyncio.sleep(LOOK_SECONDS)


def _resolve(future: asyncio.Future[Result], value: Result) -> None:
    if not future.done():
        future.set_result(value)


def _reject(future: asyncio.Future[Any], error: Exception) -> None:
    if not future.done():
        future.set_exception(error)


def signal_group(pid: int, number: signal.Signals) -> None:
    """Send a signal to a process group that may have ended."""
    try:
        os.killpg(pid, number)
    except ProcessLookupError:
        return

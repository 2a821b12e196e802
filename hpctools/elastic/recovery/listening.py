"""The agent's side of log rules: what its workers print goes to the matcher, its findings to the coordinator.

One reader for the whole node, in the agent's own loop, which only copies; lines with which the matcher cannot
keep up are dropped and counted.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

from hpctools.elastic.pipes import tapped_pipe
from hpctools.elastic.protocol import decode
from hpctools.elastic.recovery.lines import LINE_LENGTH
from hpctools.elastic.recovery.matcher import rules_to_text
from hpctools.elastic.recovery.settings import LogRule
from hpctools.errors import CommandError, HpctoolsError
from hpctools.slurm import run

BACKLOG = 1 << 20
STARTS = 3
RESTART_SECONDS = 1.0
LONGEST_PAUSE = 60.0
LIVED_SECONDS = 60.0
"""A matcher that ends after so long says nothing of the next one."""
DROPPED_SECONDS = 1.0
_OVER = {"stopped", "given_up"}


class Listener:
    """What workers print, for the rules.

    Args:
        say: sends a message to the coordinator.

    Attributes:
        listening: set once the matcher runs.
        over: what the agent's hello tells of rules that are over: who coordinates then may not have heard it.
    """

    def __init__(self, rules: Sequence[LogRule], say: Callable[..., None]) -> None:
        self._rules = tuple(rules)
        self._say = say
        self._partial: dict[tuple[str, int], bytes] = {}
        self._writer: asyncio.StreamWriter | None = None
        self._dropped = 0
        self._is_blind = self._is_given = False  # given: the present matcher, or the next one, has lines
        self._early = bytearray()
        self.over: dict[str, dict[str, Any]] = {}
        self.listening = asyncio.Event()

    async def keep(self) -> None:
        """Keep a matcher until we are cancelled.

        One that has just been started and ends is started again ever later. From the third such end in a row
        on nothing is kept for the next one: it counts as lines that could not be looked at.
        """
        ends = 0
        while True:
            began = time.monotonic()
            # A reset: it was killed before it had read all; half a message: while it wrote one.
            with contextlib.suppress(OSError, ValueError, HpctoolsError):
                await self._have_matched()
            ends = 1 if time.monotonic() - began >= LIVED_SECONDS else ends + 1
            self._dropped += self._is_given  # whatever it had not looked at
            self._is_given = False
            self._confess()
            if ends == STARTS:
                self._warn_of_blindness()
            self._is_blind = ends >= STARTS
            await asyncio.sleep(min(LONGEST_PAUSE, RESTART_SECONDS * 2 ** min(ends - 1, 10)))

    def heard(self, worker: str, stream: int, chunk: bytes) -> None:
        """A worker has printed; `chunk` is empty at the end.

        Args:
            stream: 1 for standard output, 2 for standard error.
        """
        text = self._partial.pop((worker, stream), b"") + chunk.replace(b"\r", b"\n")
        *lines, partial = text.split(b"\n")
        lines += [] if chunk else [partial]
        if chunk:
            self._partial[(worker, stream)] = partial[:LINE_LENGTH]
        for line in lines:
            if line.strip():
                self._pass_on(worker, line[:LINE_LENGTH])

    def reader(self, worker: str, stream: int) -> Callable[[bytes], None]:
        """`heard` for one stream of a worker."""
        return lambda chunk: self.heard(worker, stream, chunk)

    def copying(self, worker: str, output: int) -> int:
        """A descriptor to print to: what comes is copied to `output`, the writing end of a pipe.

        As long as that one is full the worker is not heard, and waits when its own pipe is full, too; we
        never do. Both are descriptors. The caller closes ours once the worker has it; the other end is closed
        when the worker has ended.

        Raises:
            OSError: there is no pipe to be had.
        """
        return tapped_pipe(output, self.reader(worker, 1))[0]

    def _pass_on(self, worker: str, line: bytes) -> None:
        writer, words = self._writer, worker.encode() + b"\t" + line + b"\n"
        if writer is None and not self._is_blind and len(self._early) < BACKLOG:
            self._early += words
            self._is_given = True
        elif writer is not None and writer.transport.get_write_buffer_size() < BACKLOG:
            writer.write(words)
            self._is_given = True
        else:
            if not self._dropped:
                asyncio.get_running_loop().call_later(DROPPED_SECONDS, self._confess)
            self._dropped += 1

    async def _have_matched(self) -> None:
        """Have one matcher at work until it ends.

        Raises:
            OSError, CommandError: it cannot be started, or its end was not a good one.
            ElasticError, ValueError: what it told was no message.
        """
        process, reader = await self._start()
        try:
            await self._listen(reader)
        finally:
            self._stop(process)

    async def _start(self) -> tuple[run.Process, asyncio.StreamReader]:
        ours, theirs = socket.socketpair()
        program = [sys.executable, "-m", "hpctools.elastic.recovery.matcher", rules_to_text(self._rules)]
        try:
            with theirs:
                process = run.start(program, stdin=theirs.fileno())
        except CommandError:
            ours.close()
            raise
        reader, self._writer = await asyncio.open_connection(sock=ours)
        self._writer.write(bytes(self._early))
        self._early.clear()
        self._is_blind = False
        self.listening.set()
        return process, reader

    async def _listen(self, reader: asyncio.StreamReader) -> None:
        while line := await reader.readline():
            message = decode(b'{"kind":"log",' + line[1:])
            self._tell(message)

    def _tell(self, message: dict[str, Any]) -> None:
        message.pop("kind", None)
        for mark in _OVER & set(message["metrics"]):
            self.over[message["what"]] = {**message, "metrics": {mark: 1.0}, "lines": []}
        self._say("log", **message)

    def _confess(self) -> None:
        """Who lost lines cannot tell whether one would have matched; no rule may count that as silence."""
        dropped, self._dropped = float(self._dropped), 0
        if not dropped:
            return  # it was said meanwhile
        self._tell({"worker": "", "what": "", "metrics": {"dropped": dropped}, "lines": []})

    def _warn_of_blindness(self) -> None:
        words = f"the process that looks for log rules' lines has ended {STARTS} times: what workers print"
        words += " here is not looked at until it runs again (it is tried once a minute at least)"
        self._say("warning", message=words)

    def _stop(self, process: run.Process) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None
        process.kill()
        process.wait()

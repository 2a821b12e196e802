"""An agent's side of its node's fork server: started with the node, asked for workers, told of their ends."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from hpctools.elastic.forking.server import LARGEST_MESSAGE
from hpctools.errors import CommandError
from hpctools.python_command import PythonCommand
from hpctools.slurm import run

ANSWER_SECONDS = 2.0  # less than the silence after which an agent is taken for lost
READY_SECONDS = 600.0
END_SECONDS = 1.0
LOOK_SECONDS = 0.02
SERVER = "hpctools.elastic.forking.server"


class ForkServer:
    """A node's fork server.

    All methods belong to the thread of the loop in which it was made.

    Args:
        command: of the workers; a script or a module.
        modules: that are imported beforehand, besides torch and the library.
        environ: of the server and of all workers.
        cwd: where they start.
        warn: told, once for each matter, what a person should know.

    Raises:
        CommandError, OSError: it could not be started.
    """

    def __init__(
        self,
        command: PythonCommand,
        modules: Sequence[str],
        environ: Mapping[str, str],
        cwd: Path,
        warn: Callable[[str], None],
    ) -> None:
        self._warn = warn
        self._loop = asyncio.get_running_loop()
        self._settled = asyncio.Event()
        self._serves = False
        self._ended: dict[int, asyncio.Future[int]] = {}
        self._answer: dict[str, Any] = {}
        self._line, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        program = (command.interpreter, *command.flags, "-m", SERVER, ",".join(modules))
        try:
            with theirs:
                self._process = run.start(
                    (*program, command.kind, command.target, *command.arguments),
                    stdin=theirs.fileno(),
                    env=environ,
                    cwd=cwd,
                    new_session=True,
                )
        except CommandError:
            self._line.close()
            raise
        self._line.setblocking(False)
        self._loop.add_reader(self._line, self._on_readable)

    @property
    def serves(self) -> bool:
        """Whether workers can be forked."""
        return self._serves

    async def settled(self) -> None:
        """Wait until workers can be forked, or it is known that they cannot."""
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._settled.wait(), READY_SECONDS)
        if not self._settled.is_set():
            self._give_up(f"not everything was imported within {READY_SECONDS:g} s")

    def fork(
        self, environ: Mapping[str, str], stdout: int | None, stderr: int
    ) -> tuple[int, Callable[[], Awaitable[int]]]:
        """Have a worker forked, in a session of its own.

        Args:
            environ: what its environment has besides the server's.
            stdout: a descriptor; None: our own standard output.

        Returns:
            Its process, and how to wait for its exit code (negative: the signal that ended it).

        Raises:
            OSError: there is no process to be had, or the server does not answer; then `serves` no longer
                holds.
        """
        outputs = [sys.stdout.fileno() if stdout is None else stdout, stderr]
        answer = self._answer_to(json.dumps(dict(environ)).encode(), outputs)
        if "began" not in answer:
            raise OSError(f"no worker could be forked: {answer.get('failed', 'no answer')}")
        pid = int(answer["began"])
        ended = self._ended[pid] = self._loop.create_future()
        return pid, lambda: asyncio.shield(ended)

    def _answer_to(self, order: bytes, outputs: list[int]) -> dict[str, Any]:
        """What the server, or the worker, says to an order; nothing when it no longer serves."""
        self._answer.clear()
        try:
            if self.serves:
                socket.send_fds(self._line, [order], outputs)
            deadline = time.monotonic() + ANSWER_SECONDS
            while self.serves and not self._answer:
                left = max(0.0, deadline - time.monotonic())
                if not select.select([self._line], [], [], left)[0]:
                    self._give_up(f"the fork server did not answer for {ANSWER_SECONDS:g} s")
                    break
                self._hear()
        except OSError as error:
            self._give_up(error.strerror or str(error))
        return self._answer

    async def close(self) -> None:
        """End it, and with it what workers there still are."""
        self._hang_up()
        self._process.kill()
        deadline = time.monotonic() + END_SECONDS  # where it hangs in storage the job's end takes it
        while self._process.poll() is None and time.monotonic() < deadline:
            await asyncio.sleep(LOOK_SECONDS)

    def _on_readable(self) -> None:
        try:
            self._hear()
        except BlockingIOError:
            return  # who waited for an answer has read it
        except OSError as error:
            self._give_up(error.strerror or str(error))

    def _hear(self) -> None:
        """Take the next message."""
        data = self._line.recv(LARGEST_MESSAGE)
        if not data:
            self._give_up("the fork server has ended")
            return
        message = json.loads(data)
        if "ended" in message:
            self._resolve(int(message["ended"]), int(message["code"]))
        elif "ready" in message:
            for told in message["warnings"]:
                self._warn(f"cannot import beforehand: {told}; workers try it themselves")
            self._serves = True
            self._settled.set()
        elif "refused" in message:
            self._give_up(message["refused"])
        else:
            self._answer = message

    def _resolve(self, pid: int, code: int) -> None:
        ended = self._ended.pop(pid, None)
        if ended is None:
            self._answer = {"failed": f"it ended before it began, with {code}"}
        elif not ended.done():
            ended.set_result(code)

    def _give_up(self, why: str) -> None:
        """Nothing is forked any more; workers of a server that has ended have ended with it."""
        self._warn(f"workers are started without preload: {why}")
        self._hang_up()
        self._process.kill()  # a worker that it would still fork, for an order of before, ends with it
        self._settled.set()
        for pid in list(self._ended):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)
            self._resolve(pid, -signal.SIGKILL)

    def _hang_up(self) -> None:
        self._serves = False
        if self._line.fileno() >= 0:
            self._loop.remove_reader(self._line)
            self._line.close()

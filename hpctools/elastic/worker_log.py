"""A worker's log in the run's folder, written for it; where it cannot be opened, in a file of the node's.

The worker prints into a pipe: a full disk, which would end a script in its next `print`, is met by us.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TextIO

from hpctools.elastic.pipes import roomy_pipe

CHUNK = 1 << 16
NOWHERE = -1  # no descriptor: there may be none to be had, and who prints is not to wait for that


class WorkerLog:
    """Appends to a file, readable by its owner only, what a worker prints; in a thread of its own.

    What cannot be written is dropped and counted, and the file says so where it goes on. While storage hangs
    the worker may print as much as a pipe holds; then it waits, as it would for the file itself.

    Args:
        target: the file; or a stream of ours, the job's output or errors.
        warn: told, in our loop, when it is another file than `target`, and which; once, that something is
            dropped.

    Raises:
        OSError: there is no pipe to be had.
    """

    def __init__(self, target: Path | TextIO, warn: Callable[[str], None]) -> None:
        self._target = target
        self._warn = warn
        self._dropped = 0
        self._why = ""  # empty: nothing was ever dropped
        self._loop = asyncio.get_running_loop()
        self._over = asyncio.Event()
        self._reading, self._writing = roomy_pipe()
        os.set_blocking(self._reading, True)

    @contextlib.contextmanager
    def writing(self) -> Iterator[int]:
        """The end that the worker gets; closed on our side afterwards.

        Raises:
            OSError: there is no thread to be had.
        """
        try:
            self._begin()
            yield self._writing
        finally:
            os.close(self._writing)

    def _begin(self) -> None:
        try:
            threading.Thread(target=self._copy, name="elastic-log", daemon=True).start()
        except RuntimeError as error:
            os.close(self._reading)
            raise OSError(errno.EAGAIN, str(error)) from None

    async def written(self, seconds: float) -> None:
        """Wait until all is; not for ever, since a process that the worker left behind may print on."""
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._over.wait(), seconds)

    def _copy(self) -> None:
        file = self._opened()
        while chunk := os.read(self._reading, CHUNK):
            self._append(file, chunk)
        self._append(file, b"")  # it may be the time to say what is missing at the end
        os.close(self._reading)
        if isinstance(self._target, Path):
            with contextlib.suppress(OSError):
                os.close(file)
        self._tell(self._over.set)

    def _opened(self) -> int:
        try:
            if not isinstance(self._target, Path):
                return self._target.fileno()
            return os.open(self._target, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            file, where = _elsewhere(self._target)
            self._say(error, f"what it was for goes {where}", "for the next one")
            return file

    def _append(self, file: int, chunk: bytes) -> None:
        if file == NOWHERE:
            return
        rest = memoryview(self._gap() + chunk)
        try:
            while rest:
                rest = rest[os.write(file, rest) :]
        except OSError as error:
            before = self._dropped if len(rest) > len(chunk) else 0  # else that was just said
            self._drop(before + min(len(rest), len(chunk)), error)
        else:
            self._dropped = 0

    def _gap(self) -> bytes:
        if not self._dropped:
            return b""
        return f"\n[hpctools: {self._dropped} bytes are missing here: {self._why}]\n".encode()

    def _drop(self, count: int, error: OSError) -> None:
        if not self._why:
            self._say(error, "what a worker prints there is dropped until it can be", "in the meantime")
        self._dropped, self._why = count, str(error.strerror or error)

    def _say(self, error: OSError, then: str, when: str) -> None:
        what = self._target if isinstance(self._target, Path) else "the job's output"
        self._tell(
            self._warn,
            f"cannot write {what}: {error.strerror or error}; {then}, and the worker trains all the "
            f"same; free space or quota there {when}",
        )

    def _tell(self, told: Callable[..., object], *what: object) -> None:
        with contextlib.suppress(RuntimeError):  # the loop has ended before the worker
            self._loop.call_soon_threadsafe(told, *what)


def _elsewhere(target: Path | TextIO) -> tuple[int, str]:
    if not isinstance(target, Path):
        return NOWHERE, "nowhere"
    try:
        file, name = tempfile.mkstemp(prefix=f"hpctools-{target.stem}-", suffix=target.suffix)
    except OSError:
        return NOWHERE, "nowhere"
    return file, f"to {name} on {os.uname().nodename}"

"""Where a worker's standard output goes: to its log or the job's output, and to the policy's log rules."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from hpctools.elastic.recovery.listening import Listener
from hpctools.elastic.worker_log import WorkerLog


class Printed:
    """What one worker prints to standard output.

    Args:
        worker: its name for the log rules.
        log: the file that it goes to; None: our own standard output, which is the job's.
        warn: told when that cannot be written.
        listener: for the policy's log rules; None without any.

    Raises:
        OSError: there is no pipe to be had.
    """

    def __init__(
        self, worker: str, log: Path | None, warn: Callable[[str], None], listener: Listener | None
    ) -> None:
        self._worker = worker
        # Without rules the worker prints to our own output itself; with them we do, and never from our loop.
        self._log = None if log is None and listener is None else WorkerLog(log or sys.stdout, warn)
        self._listener = listener

    @contextlib.contextmanager
    def writing(self) -> Iterator[int | None]:
        """What the worker gets, for as long as it takes to start it; None: what we have ourselves."""
        with contextlib.ExitStack() as ends:
            output = None if self._log is None else ends.enter_context(self._log.writing())
            if self._listener is not None and output is not None:
                output = self._listener.copying(self._worker, output)
                ends.callback(os.close, output)
            yield output

    async def written(self, seconds: float) -> None:
        """Wait until the log holds all of it, for some seconds at most."""
        if self._log is not None:
            await self._log.written(seconds)

"""Where the ranks of a node print to: the job's output, or the run's logs, and the policy's log rules."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from hpctools.elastic import worker_log
from hpctools.elastic.folder import RunFolder
from hpctools.elastic.processes import LastWords
from hpctools.elastic.recovery.listening import Listener


@dataclass(frozen=True)
class Output:
    """What a node's ranks print.

    Attributes:
        agent: its name, for the names of log files.
        is_shown: whether the first rank's standard output is the job's.
        warn: told when a log cannot be written.
        listener: for the policy's log rules; None without any.
    """

    folder: RunFolder
    agent: str
    is_shown: bool
    warn: Callable[[str], None]
    listener: Listener | None = None

    def words(self, local: int) -> LastWords:
        """A rank's standard error."""
        listener = self.listener
        return LastWords(listener.reader(f"{self.agent}.{local}", 2) if listener is not None else None)

    @contextlib.contextmanager
    def opened(self, local: int, generation: int) -> Iterator[IO[bytes] | int | None]:
        """A rank's standard output, for as long as it takes to start it; None: ours."""
        shown = self.is_shown and local == 0
        log = self.folder.logs / f"{self.agent}.{local}.{generation}.out"
        with worker_log.opened(Path(os.devnull) if shown else log, self.warn) as file:
            output = None if shown else file
            if self.listener is None:
                yield output
                return
            pipe = self.listener.copying(f"{self.agent}.{local}", output)
            try:
                yield pipe
            finally:
                os.close(pipe)

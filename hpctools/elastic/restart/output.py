"""Where the ranks of a node print to: the job's output, or the run's logs, and the policy's log rules."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from hpctools.elastic.folder import RunFolder
from hpctools.elastic.printed import Printed
from hpctools.elastic.processes import LastWords
from hpctools.elastic.protocol import of_generation
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

    def words(self, local: int, generation: int) -> LastWords:
        """A rank's standard error.

        Raises:
            OSError: there is no pipe to be had.
        """
        name, listener = of_generation(f"{self.agent}.{local}", generation), self.listener
        return LastWords(listener.reader(name, 2) if listener is not None else None)

    def printed(self, local: int, generation: int) -> Printed:
        """A rank's standard output.

        Raises:
            OSError: there is no pipe to be had.
        """
        name = f"{self.agent}.{local}"
        shown = self.is_shown and local == 0
        log = None if shown else self.folder.logs / f"{name}.{generation}.out"
        return Printed(of_generation(name, generation), log, self.warn, self.listener)

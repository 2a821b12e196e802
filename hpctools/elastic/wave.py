"""Workers that have to go at the same time leave in one change of the membership, not one after the other.

Who wants several nodes has Slurm send SIGTERM to all of them at once, and their agents tell of it within some
hundredths of a second. Each that came alone would make the next generation begin anew: the links of the one
before would be given up, or, when it is agreed on already, the training would stand still twice.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence

from hpctools.elastic.context import RunContext

GATHER_SECONDS = 0.05


class Wave:
    """Gathers those that have to go, for a moment.

    Args:
        leave: called with all of them.
    """

    def __init__(self, run: RunContext, leave: Callable[[Sequence[str]], None]) -> None:
        self._run = run
        self._leave = leave
        self._names: dict[str, None] = {}

    def add(self, workers: Iterable[str]) -> None:
        """These have to go, too."""
        first = not self._names
        self._names |= dict.fromkeys(workers)
        if first and self._names:
            self._run.in_background(self._gather())

    async def _gather(self) -> None:
        await asyncio.sleep(GATHER_SECONDS)
        names, self._names = list(self._names), {}
        self._leave(names)

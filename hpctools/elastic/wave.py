"""Workers that have to go at the same time leave in one change of the membership, not one after the other.

Who wants several nodes has Slurm send SIGTERM to all of them at once, and their agents tell of it within some
hundredths of a second. Each that came alone would make the next generation begin anew: the links of the one
before would be given up, or, when it is agreed on already, the training would stand still twice.

Before they do it is looked whether somebody wants the run to end: Slurm's SIGTERM to all nodes is no reason
for a smaller generation then, in the middle of which the state would be saved.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Sequence

from hpctools.elastic.context import RunContext
from hpctools.elastic.folder import Ending
from hpctools.elastic.peers import Outcome
from hpctools.elastic.processes import in_own_thread
from hpctools.errors import ElasticError

GATHER_SECONDS = 0.05
WISH_SECONDS = 0.3  # storage may hang, and who has to go has little time


class Wave:
    """Gathers those that have to go, for a moment.

    Args:
        leave: called with all of them.
    """

    def __init__(self, run: RunContext, leave: Callable[[Sequence[str]], None]) -> None:
        self._run = run
        self._leave = leave
        self._names: dict[str, None] = {}
        self._looking: asyncio.Future[Ending | None] | None = None

    def add(self, workers: Iterable[str]) -> None:
        """These have to go, too."""
        first = not self._names
        self._names |= dict.fromkeys(workers)
        if first and self._names:
            self._run.in_background(self._gather())

    async def _gather(self) -> None:
        await asyncio.sleep(GATHER_SECONDS)
        wish = await self._wish()
        names, self._names = list(self._names), {}
        if wish is not None:
            self._run.end(Outcome(wish.state, wish.message))
        if not self._run.ended.done():  # else they go with all others
            self._leave(names)

    async def _wish(self) -> Ending | None:
        """How the run is to end, as far as that can be read at once; the coordinator looks again later."""
        if self._looking is None or self._looking.done():  # else it would be one more thread that hangs
            self._looking = asyncio.ensure_future(self._look())
        await asyncio.wait([self._looking], timeout=WISH_SECONDS)
        return self._looking.result() if self._looking.done() else None

    async def _look(self) -> Ending | None:
        with contextlib.suppress(ElasticError):
            return await in_own_thread(self._run.folder.ending)
        return None

"""Nobody is left that has the training's state: all begin again with what was saved, or the run fails."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from hpctools.elastic.context import RunContext
from hpctools.elastic.earlier_terms import BEGINS_AGAIN, something_saved
from hpctools.elastic.effects import Broken
from hpctools.elastic.peers import Outcome

LOOK_SECONDS = 60.0
MOST = 10
"""So often all begin again from the same checkpoint; a fault that comes again each time would never end."""


class BeginningAgain:
    """Decides what becomes of a run whose membership is broken.

    Args:
        restart_all: ends every worker, and begins again with what is on disk.
    """

    def __init__(self, run: RunContext, restart_all: Callable[[], None]) -> None:
        self._run = run
        self._restart_all = restart_all

    def on_broken(self, broken: Broken) -> None:
        """Nothing is heard of the membership any more, until all are told to begin again."""
        run = self._run
        if run.is_over:
            return  # the workers of a run that ends leave one after the other
        if broken.state_is_lost and run.may_have_checkpoint and not run.has_checkpoint:
            run.warn(f"{broken.reason}: it is looked whether something was saved that may be used")
            run.in_background(self._look(broken, run.at_stake))
        else:
            self._go_back_or_fail(broken, run.at_stake)

    async def _look(self, broken: Broken, ends: Outcome | None) -> None:
        """Storage knows what events do not tell that could not be written, or cannot be read.

        And it knows what a roll back has made void.
        """
        run, code = self._run, None if ends is None else ends.code
        looking = asyncio.to_thread(something_saved, run.folder, run.spec)
        try:
            run.has_checkpoint = await asyncio.wait_for(looking, LOOK_SECONDS)
        except Exception as error:  # noqa: BLE001 - whatever it is, nobody else would end the run
            said = str(error) or f"storage does not answer in {LOOK_SECONDS:g} s"
            run.fail(f"{broken.reason}, and whether it was saved cannot be known: {said}", code)
            return
        run.may_have_checkpoint = False
        if not run.is_over:
            self._go_back_or_fail(broken, ends)

    def _go_back_or_fail(self, broken: Broken, ends: Outcome | None) -> None:
        run = self._run
        # May read the folder, and must be known at once.
        if broken.state_is_lost and run.has_checkpoint and run.fence.holds():
            run.begun_again += 1
            if run.begun_again > MOST:
                run.fail(
                    f"{broken.reason}: all have begun again {MOST} times from what was saved last, and "
                    "nothing newer could be saved",
                    None if ends is None else ends.code,
                )
                return
            run.warn(f"{broken.reason}: {BEGINS_AGAIN}")
            self._restart_all()
        elif broken.state_is_lost and ends is not None:
            run.fail(f"{ends.message}: {broken.reason}, and nothing was saved", ends.code)
        else:
            run.fail(broken.reason)

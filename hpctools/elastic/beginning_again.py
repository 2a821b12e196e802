"""Nobody is left that has the training's state: all begin again, or the run fails.

They begin with what was saved last; at step 0 where nothing was saved yet.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from hpctools.elastic.checkpoint.place import settings_of
from hpctools.elastic.checkpoint.settings import is_periodic
from hpctools.elastic.context import RunContext
from hpctools.elastic.earlier_terms import BEGINS_AGAIN, BEGINS_ANEW, has_saved, something_saved
from hpctools.elastic.effects import Broken
from hpctools.elastic.folder import RunFolder
from hpctools.elastic.peers import Agent, Outcome
from hpctools.elastic.processes import until
from hpctools.elastic.spec import RunSpec

LOOK_SECONDS = 60.0
END_SECONDS = 10.0
"""In which the process of a lost worker ends, and its agent tells how."""
MOST = 10
"""So often all begin again with nothing saved in between; a fault that comes again would never end."""


class BeginningAgain:
    """Decides what becomes of a run whose membership is broken.

    Args:
        restart_all: ends every worker, and begins again with what is on disk; at the beginning without the
            steps that it is given.
    """

    def __init__(self, run: RunContext, restart_all: Callable[[Sequence[int]], None]) -> None:
        self._run = run
        self._restart_all = restart_all

    def on_broken(self, broken: Broken) -> None:
        """Nothing is heard of the membership any more, until all are told to begin again."""
        run, ends = self._run, self._run.at_stake
        if run.is_over:
            return  # the workers of a run that ends leave one after the other
        asks = run.may_have_checkpoint or ends is None or ends.is_loss
        if broken.state_is_lost and asks and not run.has_checkpoint:
            run.in_background(self._ask(broken, ends))
        else:
            self._go_back_or_fail(broken, ends)

    async def _ask(self, broken: Broken, ends: Outcome | None) -> None:
        """A worker that raised ends the run, or a rule has it; else storage is asked, where it matters."""
        run = self._run
        await until(self._ends_are_known, END_SECONDS)
        ends = run.at_stake or ends
        if run.is_over:
            return
        if run.may_have_checkpoint or self._may_begin_anew(ends):
            run.warn(f"{broken.reason}: it is looked whether something was saved that may be used")
            await self._look(broken, ends)
        else:
            self._go_back_or_fail(broken, ends)

    async def _look(self, broken: Broken, ends: Outcome | None) -> None:
        """Storage knows what events do not tell that could not be written, or cannot be read.

        And it knows what a roll back has made void.
        """
        run = self._run
        looking = asyncio.to_thread(_look_at, run.folder, run.spec)
        try:
            found, saved = await asyncio.wait_for(looking, LOOK_SECONDS)
        except Exception as error:  # noqa: BLE001 - whatever it is, nobody else would end the run
            said = str(error) or f"storage does not answer in {LOOK_SECONDS:g} s"
            why = f"{broken.reason}, and whether it was saved cannot be known: {said}"
            run.fail(why, None if ends is None else ends.code)
            return
        # A worker that is left of a sharded model may have told of a save meanwhile.
        run.has_checkpoint, run.may_have_checkpoint = run.has_checkpoint or found, False
        run.has_saved = run.has_saved or saved
        if not run.is_over:
            self._go_back_or_fail(broken, ends)

    def _ends_are_known(self) -> bool:
        """Whether no process runs any more of a worker that was lost and not ended by us."""
        agents = self._run.roster.agents.values()
        return self._run.is_over or not any(
            agent.running.intersection(self._lost_of(agent)) for agent in agents
        )

    def _lost_of(self, agent: Agent) -> list[str]:
        roster = self._run.roster
        vanished = self._run.membership.vanished_of(agent.name)
        return [each for each in vanished if each not in roster.expelled and each not in roster.restarting]

    def _may_begin_anew(self, ends: Outcome | None) -> bool:
        """Whether all may begin at step 0 where nothing was saved: no fault of the script is dealt with."""
        return self._saves and (ends is None or ends.is_loss)

    @property
    def _saves(self) -> bool:
        """Whether something would have been saved by and by."""
        told = self._run.saves_by_itself
        return is_periodic(settings_of(self._run.spec, None)) if told is None else told

    def _go_back_or_fail(self, broken: Broken, ends: Outcome | None) -> None:
        run = self._run
        # May read the folder, and must be known at once.
        may_begin = broken.state_is_lost and run.fence.holds()
        if may_begin and run.has_checkpoint:
            self._begin(broken, ends, BEGINS_AGAIN)
        elif may_begin and not run.has_saved and self._may_begin_anew(ends):
            self._begin(broken, ends, BEGINS_ANEW, sorted(run.left_out))
        elif broken.state_is_lost and ends is not None:
            run.fail(f"{ends.message}: {broken.reason}, and nothing was saved", ends.code)
        else:
            run.fail(f"{broken.reason}{self._why_not(broken)}")

    def _begin(self, broken: Broken, ends: Outcome | None, how: str, skip: Sequence[int] = ()) -> None:
        run = self._run
        run.begun_again += 1
        if run.begun_again <= MOST:
            run.warn(f"{broken.reason}: {how}")
            self._restart_all(skip)
            return
        newer = "from what was saved last, and nothing newer"
        of = newer if how == BEGINS_AGAIN else "at step 0, and nothing"
        why = f"{broken.reason}: all have begun again {MOST} times {of} could be saved"
        run.fail(why, None if ends is None else ends.code)

    def _why_not(self, broken: Broken) -> str:
        """Why a run whose state is lost cannot begin again, for the end of the reason; nothing of others."""
        if not broken.state_is_lost:
            return ""
        if self._run.has_saved:
            return ", and nothing of what was saved may be used any more"
        if self._saves:
            return ""
        return (
            ", and checkpoints are off; have them written (checkpoint: intervalInSeconds in the policy file, "
            "every_seconds of elastic.Checkpoint in the script), so that a run outlives that"
        )


def _look_at(folder: RunFolder, spec: RunSpec) -> tuple[bool, bool]:
    """Whether something is there to begin with, and whether anything was ever saved; for a thread.

    Raises:
        ElasticError: that cannot be read.
    """
    found = something_saved(folder, spec)
    return found, found or has_saved(folder.events())

"""A change under way: what it works with, and how far it has come."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from hpctools.conf.accounts import AccountTree
from hpctools.conf.apply.cluster import Cluster
from hpctools.conf.apply.generations import Generations
from hpctools.conf.apply.history import History
from hpctools.conf.apply.interrupt import Interrupts
from hpctools.conf.apply.record import Phase, Record, Result
from hpctools.conf.plan.model import Step


@dataclass(frozen=True)
class Parts:
    """What a change works with.

    Attributes:
        generations: the configuration folder.
        history: the state folder.
        cluster: the daemons, slurmdbd and the planner.
        interrupts: what Ctrl-C does.
        tell: shows a line of progress.
    """

    generations: Generations
    history: History
    cluster: Cluster
    interrupts: Interrupts
    tell: Callable[[str], None]

    def doing(self, what: str) -> None:
        """Say what is being done now."""
        self.interrupts.doing = what
        self.tell(what)


@dataclass
class Progress:
    """How far a change has come; what taking it back needs.

    Attributes:
        record: the change as it is remembered.
        base: the generation that is in force until the switch; None when no file changes.
        fresh: the generation to be.
        tried: steps that were begun.
        accounts_before: what slurmdbd knew; None when it was not asked.
        accounts_begun: whether slurmdbd has been told anything.
    """

    record: Record
    base: int | None = None
    fresh: int | None = None
    tried: list[Step] = field(default_factory=list)
    accounts_before: AccountTree | None = None
    accounts_begun: bool = False

    def note(self, history: History, **changes: Any) -> None:
        """Remember more of the change, on the disk."""
        self.record = history.update(replace(self.record, **changes))

    def enter(self, parts: Parts, phase: Phase, **changes: Any) -> None:
        """Go on to a phase, unless somebody asked us to end."""
        parts.interrupts.check()
        self.note(parts.history, phase=phase, **changes)

    def end(self, history: History, result: Result, **changes: Any) -> None:
        """Remember what came of it."""
        self.note(history, result=result, ended=time.time(), drained=(), **changes)

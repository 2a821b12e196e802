"""Which rank's end a generation's end is put down to, whoever tells first: pure.

A rank that breaks takes others with it: their connections close, and they end with an exit code, or abort.
Of two agents either may be heard first. What is known of each end is how long ago it was when its agent told,
and whether that agent had ended it itself, because it was told to: such an end is never the cause.
"""

from __future__ import annotations

import signal
from collections.abc import Sequence
from dataclasses import dataclass

from hpctools.elastic.restart.effects import Crashed
from hpctools.elastic.signals import signal_of

TOGETHER_SECONDS = 1.0
"""What ended within so long cannot be ordered by time: messages and a busy node's threads take some, too."""
FOLLOWS = frozenset({signal.SIGABRT, signal.SIGPIPE, signal.SIGTERM, signal.SIGHUP})
"""Signals by which a rank ends when another one has: libraries abort, pipes break, launchers pass them on."""


@dataclass(frozen=True)
class BadEnd:
    """A rank that ended badly, and not because we wanted it to.

    Attributes:
        at: when, on the coordinator's clock.
    """

    crashed: Crashed
    at: float

    @property
    def stands_alone(self) -> bool:
        """Whether it ended by a signal that no other rank's end leads to."""
        number = signal_of(self.crashed.code)
        return number > 0 and number not in FOLLOWS


def cause_of(ends: Sequence[BadEnd]) -> Crashed:
    """The one that the others follow from: the earliest, or of those beside it one that stands alone.

    Args:
        ends: one or more, in the order in which they were told.
    """
    first = min(each.at for each in ends)
    beside = [each for each in ends if each.at - first <= TOGETHER_SECONDS]
    return min(beside, key=lambda each: (not each.stands_alone, each.at)).crashed


def reason_of(crashed: Crashed) -> str:
    """What is said of it."""
    last = crashed.said[-1] if crashed.said else "it printed nothing"
    return f"rank {crashed.rank} ended with exit code {crashed.code}: {last}"

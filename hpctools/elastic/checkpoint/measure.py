"""What a save took, beside what a node that is taken away has left."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

# Of the grace time: until the signal is there and the step in flight is done, and the way out of the job.
RESERVE_SECONDS = 1.5
MEGABYTE = 1e6


@dataclass(frozen=True)
class Saved:
    """A checkpoint was committed.

    Attributes:
        step: completed steps that it is the state after.
        seconds: from the step's end to the commit: what a save takes that is waited for.
        held_s: part of it for which the training was held up.
        bytes: in all its files.
        where: folder or address of the checkpoint.
        why: `interval`, or the reason of an order.
        rounds: exchanges that it is the state after, which of streams are some more than steps; -1: as many.
        order: number of the order that this carries out; None: of none.
        generation: of the membership that saved it; -1: that is not said.
    """

    step: int
    seconds: float
    held_s: float
    bytes: int
    where: str
    why: str
    rounds: int = -1
    order: str | None = None
    generation: int = -1

    def to_json(self) -> dict[str, Any]:
        """As a message's or event's fields."""
        fields = {name: value for name, value in asdict(self).items() if name != "order" or value is not None}
        return {**fields, "seconds": round(self.seconds, 4), "held_s": round(self.held_s, 4)}


@dataclass(frozen=True)
class Grace:
    """What a node that is preempted has to leave.

    Attributes:
        seconds: that the run uses of it.
        granted: that Slurm gives (GraceTime); more than `seconds` where the run's policy says less.
    """

    seconds: float
    granted: float

    @property
    def source(self) -> str:
        """Who says so: a setting of the policy file, or of Slurm."""
        return "gracefulShutdownTimeoutInSeconds" if self.seconds < self.granted else "GraceTime"

    def remedy(self, needed: float) -> str:
        """What to do to have so many seconds."""
        ask = f"ask for a GraceTime of {needed:g} s or more in the QoS"
        if self.seconds >= self.granted:
            return ask
        policy = f"set {self.source} to {needed:g} or more in the policy file"
        return policy if needed <= self.granted else f"{policy} and {ask}"


def grace_warning(seconds: float, size: int, grace: Grace) -> str | None:
    """What to tell when a save does not fit into the grace time; None when it does.

    Args:
        seconds: that a save took.
        size: of the checkpoint, bytes.
    """
    usable = grace.seconds - RESERVE_SECONDS
    if seconds <= usable:
        return None
    rate = size / MEGABYTE / seconds
    needed = -(-(seconds + RESERVE_SECONDS) // 1)
    return (
        f"a checkpoint took {seconds:.1f} s ({size / MEGABYTE:.1f} MB at {rate:.0f} MB/s), but a preempted "
        f"node has {usable:.1f} s for it ({grace.source} {grace.seconds:g} s less {RESERVE_SECONDS} s); "
        f"{grace.remedy(needed)}, or save to faster storage"
    )


class SavesTold:
    """Reports saves, and warns once when they do not fit into the grace time.

    Args:
        tell: sends a report (`saved`, `warning`) with its fields.
    """

    def __init__(self, tell: Callable[..., None]) -> None:
        self._tell = tell
        self._warned = False

    def saved(self, saved: Saved, grace: Grace | None) -> None:
        """A checkpoint was committed; a preempted node has so much time, None when nothing is preempted."""
        self._tell("saved", **saved.to_json())
        if grace is None or self._warned:
            return
        warning = grace_warning(saved.seconds, saved.bytes, grace)
        if warning is not None:
            self._warned = True
            self._tell("warning", message=warning)

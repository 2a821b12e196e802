"""What those that watch a run may ask of its coordinator; the coordinator carries it out and logs it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class RestartWorker:
    """Kill one worker's process; its agent starts it again and it joins from the survivors' memory.

    Attributes:
        code: exit code of the run when that worker alone has the state and nothing was saved; None: 1.
    """

    worker: str
    reason: str
    code: int | None = None


@dataclass(frozen=True)
class ReplaceNode:
    """Give a node up and ask Slurm for another one.

    It stays when the run could not go on without it; a baseline's goes or stays with the rest of its job.

    Attributes:
        exclude: whether later jobs of the run must not get this node again.
        worker: who is to blame there, and is started again when the node stays; empty when not known.
        code: exit code of the run when only that node has the state and nothing was saved; None: 1.
    """

    node: str
    exclude: bool
    reason: str
    worker: str = ""
    code: int | None = None


@dataclass(frozen=True)
class RestartAll:
    """Kill every worker's process and begin again from the newest whole checkpoint.

    Attributes:
        skip: numbers of steps whose batches are left out; only where no checkpoint is, so that all begin at
            the beginning.
    """

    reason: str
    skip: tuple[int, ...] = ()


@dataclass(frozen=True)
class RollBack:
    """Go back to a state at least `steps` steps before the one that is to blame.

    Attributes:
        steps: before the blamed one was done, when 1; its batch can be skipped from there only.
        skip: whether the batch of the blamed step is left out when it comes again.
        blamed: number of that step, counted from 1; None: the one in work.
        code: exit code of the run when the state is lost meanwhile and nothing was saved; None: 1.
    """

    steps: int
    skip: bool
    reason: str
    blamed: int | None = None
    code: int | None = None


@dataclass(frozen=True)
class Depart:
    """A node is going to be taken away: its workers leave at a step boundary, its state moves in time.

    Attributes:
        seconds: until it is gone; None when nobody said.
        avoid_s: for how long jobs that are submitted must not get it, seconds; 0: Slurm sees to that.
    """

    node: str
    seconds: float | None
    reason: str
    avoid_s: float = 0.0


@dataclass(frozen=True)
class Prepare:
    """A node that the run needs is going to be taken away; it stays as long as it can.

    What the training has is saved, and for a baseline's node another baseline job asked for.

    Attributes:
        seconds: until it is gone; None when nobody said.
        avoid_s: as of `Depart`.
    """

    node: str
    seconds: float | None
    reason: str
    avoid_s: float = 0.0


@dataclass(frozen=True)
class Fail:
    """End the run; `code` is the exit code of its baseline job."""

    code: int
    reason: str


Action = RestartWorker | ReplaceNode | RestartAll | RollBack | Depart | Prepare | Fail

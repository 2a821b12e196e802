"""What Slurm tells us, as plain records."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Job:
    """One job as the controller knows it.

    Attributes:
        state: Slurm's long form, for example `RUNNING`, `PENDING`, `PREEMPTED`.
        reason: why it is pending, or `None`.
        nodes: names of the allocated nodes, unfolded, in order.
        submitted, started: Unix seconds; None when not yet known.
        time_limit: minutes; None when unlimited.
    """

    id: int
    name: str
    user: str
    account: str
    partition: str
    qos: str
    state: str
    reason: str = "None"
    nodes: tuple[str, ...] = ()
    comment: str = ""
    submitted: int | None = None
    started: int | None = None
    time_limit: int | None = None


@dataclass(frozen=True)
class Partition:
    """One partition as the controller knows it.

    Attributes:
        total_nodes: how many nodes it has.
        max_nodes: how many one job may use; None when unlimited.
        state: `UP`, `DOWN`, `DRAIN` or `INACTIVE`.
    """

    name: str
    total_nodes: int
    max_nodes: int | None = None
    is_default: bool = False
    state: str = "UP"
    nodes: tuple[str, ...] = field(default=())

"""What Slurm tells us, as plain records."""

from __future__ import annotations

from collections.abc import Mapping
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
        max_nodes, min_nodes: how many one job may use, and has to; None when unlimited.
        state: `UP`, `DOWN`, `DRAIN` or `INACTIVE`.
        allow_accounts, allow_qos: who may use it; all when empty.
        deny_accounts, deny_qos: who may not, where nothing says who may.
        exclusive: jobs get whole nodes (OverSubscribe=EXCLUSIVE).
        submit_hosts: from which hosts jobs may be submitted to it (AllocNodes); from all when empty.
    """

    name: str
    total_nodes: int
    max_nodes: int | None = None
    is_default: bool = False
    state: str = "UP"
    nodes: tuple[str, ...] = field(default=())
    allow_accounts: tuple[str, ...] = ()
    allow_qos: tuple[str, ...] = ()
    exclusive: bool = False
    deny_accounts: tuple[str, ...] = ()
    deny_qos: tuple[str, ...] = ()
    submit_hosts: tuple[str, ...] = ()
    min_nodes: int = 0


@dataclass(frozen=True)
class Node:
    """One node as the controller knows it.

    Attributes:
        state: the base state: `IDLE`, `MIXED`, `ALLOCATED`, `DOWN`, `UNKNOWN`, `FUTURE`, ...
        flags: what Slurm adds to it, sorted: `DRAIN`, `NOT_RESPONDING`, `INVALID_REG`, `POWERED_DOWN`,
            `CLOUD`, ...
        reason: why it does not serve; "" when nothing was said.
        cpus: hardware threads that jobs may count on.
        memory_mb: memory that jobs may use, MiB.
        gres: generic resources as configured, by `name` or `name:type`: `{"gpu:a100": 8}`.
        features: the active ones, in Slurm's order.
        address: where the controller looks for its slurmd.
        version: its slurmd's release as it registered; "" when it never did.
    """

    name: str
    state: str
    flags: tuple[str, ...] = ()
    reason: str = ""
    cpus: int = 0
    memory_mb: int = 0
    gres: Mapping[str, int] = field(default_factory=dict)
    features: tuple[str, ...] = ()
    partitions: tuple[str, ...] = ()
    address: str = ""
    version: str = ""


@dataclass(frozen=True)
class PastJob:
    """One run of a job as slurmdbd remembers it: who, where and when, without what it was given.

    (cluster, dbindex) identifies it for ever. `accounting.JobRecord` is the one to count money by: it also
    has the TRES.

    Attributes:
        state: Slurm's long form without the `by <uid>` of cancelled jobs.
        submitted, start, end: Unix seconds; `start` is None when it never started, `end` when it runs.
        nodes: names of the nodes that it had, unfolded, in order.
    """

    cluster: str
    dbindex: int
    id: int
    user: str
    account: str
    partition: str
    qos: str
    state: str
    submitted: int
    start: int | None = None
    end: int | None = None
    nodes: tuple[str, ...] = ()

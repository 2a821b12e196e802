"""The snapshot that the checks look at: what was there at one moment, and what could not be seen."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

from hpctools.slurm.types import Node, Partition
from hpctools.slurm.versions import Release

_Value = TypeVar("_Value")


@dataclass(frozen=True)
class Missing:
    """Something that could not be seen.

    Attributes:
        reason: why, one line.
        unreachable: whether a daemon did not answer.
    """

    reason: str
    unreachable: bool = False


Seen: TypeAlias = _Value | Missing


@dataclass(frozen=True)
class Answer:
    """Whether a daemon on a host answers."""

    daemon: str
    host: str
    up: bool


@dataclass(frozen=True)
class ConfFile:
    """A file of the configuration folder, or one that Slurm's files include.

    Attributes:
        path: relative to the folder, or absolute when it lies elsewhere.
        text: its content; None when it is not there or may not be read.
        there: whether it exists.
        owner: the Unix account; its number when it has no name.
        mode: permission bits.
        changed: Unix seconds of its last change.
    """

    path: str
    text: str | None
    there: bool = True
    owner: str = "root"
    mode: int = 0o644
    changed: float = 0.0


@dataclass(frozen=True)
class Secret:
    """A key of this host.

    Attributes:
        owner: the Unix account that it belongs to.
        mode: permission bits.
    """

    path: str
    owner: str
    mode: int


@dataclass(frozen=True)
class Accounting:
    """What slurmdbd knows.

    Attributes:
        cluster_hosts: clusters and the host of the slurmctld that registered last; "" when none ever did.
        qos: names of QoS.
        accounts: accounts of this cluster and their coordinators.
        members: (user, account) of this cluster's associations.
        default_accounts: users and their default accounts; "" when they have none.
    """

    cluster_hosts: Mapping[str, str]
    qos: frozenset[str]
    accounts: Mapping[str, tuple[str, ...]]
    members: frozenset[tuple[str, str]]
    default_accounts: Mapping[str, str]


@dataclass(frozen=True)
class Slurmdbd:
    """slurmdbd itself.

    Attributes:
        version: its release as it spells it.
        now: its clock, Unix seconds.
        rolled_up: when it last summed up usage, Unix seconds; None when it never did.
        since: since when it counts, usually its start, Unix seconds.
    """

    version: str
    now: int
    rolled_up: int | None
    since: int


@dataclass(frozen=True)
class StateFolder:
    """slurmctld's StateSaveLocation on this host.

    Attributes:
        free_bytes: what is left on its file system for others than root.
        free_inodes: files that can still be made; None where the file system does not count them.
        kind: the file system's kind (`ext4`, `tmpfs`, `nfs4`, ...).
    """

    path: str
    owner: str
    mode: int
    free_bytes: int
    free_inodes: int | None
    kind: str


@dataclass(frozen=True)
class LocalDaemon:
    """One of Slurm's daemons that runs on this host.

    Attributes:
        open_files: the hard limit of its open files; None when unlimited.
        locked_memory: the hard limit of its locked memory, bytes; None when unlimited.
    """

    name: str
    pid: int
    open_files: int | None
    locked_memory: int | None


@dataclass(frozen=True)
class Installation:
    """One installation at one moment. A part that could not be seen is Missing and says why.

    Attributes:
        now: Unix seconds.
        folder: the configuration folder.
        release: that of the commands here.
        controllers: which slurmctlds answer.
        config: `scontrol show config`.
        nodes, partitions: as slurmctld has them.
        jobs: ids of the jobs that slurmctld knows.
        unended: ids of the jobs that run as far as slurmdbd knows.
        slurmdbd, accounting: what slurmdbd says.
        credential: "" when munge here accepts what it made, else what it said.
        files: the configuration folder.
        secrets: keys of this host.
        state: StateSaveLocation, on a host that has it.
        state_of: the cluster's name in it; "" when slurmctld never wrote one.
        unresolved: names of hosts that do not resolve here.
        read_at: when slurmctld last read its files, Unix seconds.
        log: lines of slurmctld's log since then.
        daemons: Slurm's daemons on this host.
        adopts: files of /etc/pam.d that call pam_slurm_adopt.
        strangers: users that slurmdbd knows and this host does not.
        paths: folders that settings name for compute nodes, and whether they are there, if this is one.
        rdma: whether this host has RDMA devices.
    """

    now: int
    folder: str
    release: Seen[Release]
    controllers: Seen[tuple[Answer, ...]]
    config: Seen[Mapping[str, str]]
    nodes: Seen[tuple[Node, ...]]
    partitions: Seen[tuple[Partition, ...]]
    jobs: Seen[frozenset[int]]
    unended: Seen[frozenset[int]]
    slurmdbd: Seen[Slurmdbd]
    accounting: Seen[Accounting]
    credential: Seen[str]
    files: Seen[tuple[ConfFile, ...]]
    secrets: Seen[tuple[Secret, ...]]
    state: Seen[StateFolder]
    state_of: Seen[str]
    unresolved: Seen[tuple[str, ...]]
    read_at: Seen[float]
    log: Seen[tuple[str, ...]]
    daemons: Seen[tuple[LocalDaemon, ...]]
    adopts: Seen[tuple[str, ...]]
    strangers: Seen[tuple[str, ...]]
    paths: Seen[Mapping[str, bool]]
    rdma: Seen[bool]

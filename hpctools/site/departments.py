"""Departments and labs: who works here, what they may use, and what it may cost."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from hpctools.site.base import Model
from hpctools.site.budget import Budget
from hpctools.site.identity import DirectoryGroup
from hpctools.site.parameters import AccountSettings
from hpctools.site.partitions import PartitionSpec
from hpctools.site.scalars import (
    AccountName,
    Text,
    TierName,
    TimeLimit,
    UserName,
)

Share = Annotated[int, Field(ge=1, le=1_000_000)]
Limit = Annotated[int, Field(ge=0, le=1_000_000_000)]  # Slurm takes numbers near 2**32 for no limit


class Limits(Model):
    """What an account may use at once; what is left out is not limited here."""

    gpus: Limit | None = None
    """GPUs of all running jobs together."""
    cpus: Limit | None = None
    """CPUs of all running jobs together."""
    nodes: Limit | None = None
    """Nodes of all running jobs together."""
    memory_mib: Limit | None = None
    """Memory of all running jobs together, in MiB."""
    jobs: Limit | None = None
    """Running jobs together."""
    submitted_jobs: Limit | None = None
    """Running and pending jobs together."""
    gpu_hours: Limit | None = None
    """GPU hours of all jobs together; past use decays with `cluster.priority.half_life`."""
    cpu_hours: Limit | None = None
    """CPU hours of all jobs together; past use decays likewise."""
    gpus_per_user: Limit | None = None
    """GPUs of one member's running jobs; it counts in each account for itself."""
    gpus_per_job: Limit | None = None
    """GPUs of one job."""
    cpus_per_job: Limit | None = None
    """CPUs of one job."""
    nodes_per_job: Limit | None = None
    """Nodes of one job."""
    jobs_per_user: Limit | None = None
    """Running jobs of one member."""
    submitted_jobs_per_user: Limit | None = None
    """Running and pending jobs of one member."""
    max_time: TimeLimit | None = None
    """Longest time limit of one job."""


class MemberLimits(Limits):
    """What one person may use at once in one account, instead of what counts for each of its members."""

    fair_share: Share | None = None
    """The person's share of the account, relative to its other members and labs."""
    settings: AccountSettings = Field(default_factory=dict)
    """More settings of the person's association, in sacctmgr's words."""


class _Account(Model):
    """What departments and labs have in common: each is a Slurm account."""

    name: AccountName
    """The Slurm account."""
    description: Text | None = None
    """What people call it."""
    supervisor: UserName | None = None
    """The Unix account of the person who leads it; coordinates the account and those below it."""
    members: tuple[UserName, ...] = ()
    """The Unix accounts that work in it; the supervisor need not be repeated."""
    members_from: tuple[DirectoryGroup, ...] = ()
    """Groups of the directory (`identity`) whose people work in it too (`hpctools identity sync`)."""
    fair_share: Share = 1
    """Its share of what the account above has, relative to those beside it."""
    limits: Limits = Limits()
    """What it and all below it may use at once, within the limits above."""
    members_limits: dict[UserName, MemberLimits] = Field(default_factory=dict)
    """For single members: limits of their own."""
    settings: AccountSettings = Field(default_factory=dict)
    """More settings of its association, in sacctmgr's words."""
    budget: Budget | None = None
    """What it may spend; nothing is watched when left out."""
    renamed_from: AccountName | None = None
    """The name that it had until now, while it is being renamed."""
    labs: tuple[Lab, ...] = ()
    """The research groups below it."""

    @property
    def users(self) -> tuple[str, ...]:
        """Supervisor and members, each once."""
        return tuple(dict.fromkeys((*self.coordinators, *self.members)))

    @property
    def coordinators(self) -> tuple[str, ...]:
        """Who may manage the account: the supervisor, if there is one."""
        return (self.supervisor,) if self.supervisor else ()


class Lab(_Account):
    """A research group: a Slurm account below its department's, or below another lab's."""


class Department(_Account):
    """A department: a Slurm account at the first level, usually with a partition and a budget."""

    partition: PartitionSpec | None = None
    """The partition of its own; when left out, its jobs run in partitions that it shares."""
    tiers: tuple[TierName, ...] | None = None
    """Tiers that its jobs may use; all when left out. The tier of elastic replicas is always among them."""

    @property
    def partition_name(self) -> str:
        """The name of its partition, if it has one of its own."""
        return (self.partition.name if self.partition else None) or self.name

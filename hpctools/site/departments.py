"""Departments and labs: who works here, what they may use, and what it may cost."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from hpctools.site.base import Model
from hpctools.site.scalars import (
    AccountName,
    Currency,
    GroupName,
    Money,
    PartitionName,
    Text,
    TierName,
    TimeLimit,
    UserName,
    refuse,
)

Share = Annotated[int, Field(ge=1, le=1_000_000)]
Limit = Annotated[int, Field(ge=0, le=1_000_000_000)]


class Limits(Model):
    """What an account may use at once; what is left out is not limited here."""

    gpus: Limit | None = None
    """GPUs of all running jobs together."""
    cpus: Limit | None = None
    """CPUs of all running jobs together."""
    nodes: Limit | None = None
    """Nodes of all running jobs together."""
    jobs: Limit | None = None
    """Running jobs together."""
    gpus_per_user: Limit | None = None
    """GPUs of one member's running jobs; it counts in each account for itself."""
    gpus_per_job: Limit | None = None
    """GPUs of one job."""
    jobs_per_user: Limit | None = None
    """Running jobs of one member."""
    submitted_jobs_per_user: Limit | None = None
    """Running and pending jobs of one member."""
    max_time: TimeLimit | None = None
    """Longest time limit of one job."""


class PartitionSpec(Model):
    """The partition of a department."""

    name: PartitionName | None = None
    """Its name; the department's when left out."""
    node_groups: Annotated[tuple[GroupName, ...], Field(min_length=1)]
    """Node groups that its jobs may run on. A group may serve several departments."""
    max_time: TimeLimit | None = None
    """Longest time limit of a job; unlimited when left out."""
    default_time: TimeLimit | None = None
    """Time limit of a job that asks for none; `max_time` when left out."""
    cpus_per_gpu: Annotated[int, Field(ge=1, le=1024)] | None = None
    """CPUs that a job gets for each GPU unless it asks otherwise; an even part of the node when left out."""
    memory_mib_per_cpu: Annotated[int, Field(ge=1)] | None = None
    """Memory in MiB that a job gets for each CPU unless it asks otherwise; an even part when left out."""

    @model_validator(mode="after")
    def _ordered(self) -> PartitionSpec:
        if self.default_time is not None and self.max_time is not None and self.default_time > self.max_time:
            refuse("default_time to be at most max_time")
        return self


class Budget(Model):
    """What a department may spend."""

    amount: Money
    """The amount for one period, in quotes."""
    currency: Currency = "USD"
    """ISO 4217 code."""
    period: Literal["monthly"] = "monthly"
    """How often it starts anew."""
    alert_at: tuple[Annotated[int, Field(ge=1, le=1000)], ...] = (50, 75, 90, 100)
    """Percentages of the amount at which the department hears of it, rising."""

    @model_validator(mode="after")
    def _rising(self) -> Budget:
        if list(self.alert_at) != sorted(set(self.alert_at)):
            refuse("rising percentages in alert_at")
        return self


class Lab(Model):
    """A research group: a Slurm account below its department's."""

    name: AccountName
    """The lab's Slurm account."""
    description: Text | None = None
    """What people call it."""
    supervisor: UserName
    """The Unix account of the person who leads it; becomes the account's coordinator."""
    members: tuple[UserName, ...] = ()
    """The Unix accounts that work in it; the supervisor need not be repeated."""
    fair_share: Share = 1
    """Its share of the department, relative to the other labs."""
    limits: Limits = Limits()
    """What it may use at once, within the department's limits."""

    @property
    def users(self) -> tuple[str, ...]:
        """Supervisor and members, each once."""
        return tuple(dict.fromkeys((self.supervisor, *self.members)))


class Department(Model):
    """A department: a Slurm account at the first level, with a partition and a budget."""

    name: AccountName
    """The department's Slurm account."""
    description: Text | None = None
    """What people call it."""
    supervisor: UserName
    """The Unix account of its head; coordinates the department and all of its labs."""
    fair_share: Share = 1
    """Its share of the cluster, relative to the other departments."""
    partition: PartitionSpec
    """Where its jobs run."""
    tiers: tuple[TierName, ...] | None = None
    """Tiers that its jobs may use; all when left out. The tier of elastic replicas is always among them."""
    limits: Limits = Limits()
    """What all of its labs together may use at once."""
    budget: Budget | None = None
    """What it may spend; nothing is watched when left out."""
    labs: tuple[Lab, ...] = ()
    """Its research groups."""

    @property
    def partition_name(self) -> str:
        """The name of its partition."""
        return self.partition.name or self.name

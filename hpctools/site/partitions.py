"""Partitions: a department's own, and those that several departments share."""

from __future__ import annotations

from typing import Annotated

from pydantic import BeforeValidator, Field, model_validator

from hpctools.site.base import Model
from hpctools.site.parameters import PartitionParameters
from hpctools.site.scalars import (
    AccountName,
    GroupName,
    OverSubscribe,
    PartitionName,
    Text,
    TierName,
    TimeLimit,
    refuse,
)


class PartitionTerms(Model):
    """On which nodes, how long and with how much jobs of a partition run."""

    node_groups: Annotated[tuple[GroupName, ...], Field(min_length=1)]
    """Node groups that its jobs may run on. A group may serve several partitions."""
    max_time: TimeLimit | None = None
    """Longest time limit of a job; unlimited when left out."""
    default_time: TimeLimit | None = None
    """Time limit of a job that asks for none; `max_time` when left out."""
    cpus_per_gpu: Annotated[int, Field(ge=1, le=1024)] | None = None
    """CPUs that a job gets for each GPU unless it asks otherwise; an even part of the node when left out."""
    memory_mib_per_cpu: Annotated[int, Field(ge=1)] | None = None
    """Memory in MiB that a job gets for each CPU unless it asks otherwise; an even part when left out."""
    memory_mib_per_gpu: Annotated[int, Field(ge=1)] | None = None
    """Memory in MiB that a job gets for each GPU, instead of for each CPU."""
    priority_tier: Annotated[int, Field(ge=0, le=65_533)] | None = None
    """Pending jobs of a partition with a higher number go first, whatever their priority; 1 when left out."""
    over_subscribe: OverSubscribe = "no"
    """Whether jobs share CPUs: `no`, `yes:N` (N jobs that ask for it), `force:N`; or `exclusive`: whole nodes
    only."""
    exclusive_user: bool = False
    """A node serves the jobs of one user at a time."""
    default: bool = False
    """Jobs that name no partition come here; at most one partition is the default."""
    parameters: PartitionParameters = Field(default_factory=dict)
    """More settings of its line in slurm.conf, or other values for ours; an empty value leaves ours out."""

    @model_validator(mode="after")
    def _coherent(self) -> PartitionTerms:
        if self.default_time is not None and self.max_time is not None and self.default_time > self.max_time:
            refuse("default_time to be at most max_time")
        if self.memory_mib_per_cpu is not None and self.memory_mib_per_gpu is not None:
            refuse("memory_mib_per_cpu or memory_mib_per_gpu, not both")
        return self


class PartitionSpec(PartitionTerms):
    """The partition of a department."""

    name: PartitionName | None = None
    """Its name; the department's when left out."""


def _all_or_some(value: object) -> object:
    if value == "all":
        return None
    if value is not None and not isinstance(value, tuple):
        refuse("a list of departments, or all")
    return value


class SharedPartition(PartitionTerms):
    """A partition of several departments."""

    name: PartitionName
    """Its name."""
    description: Text | None = None
    """What it is for."""
    departments: Annotated[tuple[AccountName, ...] | None, BeforeValidator(_all_or_some)] = None
    """Departments whose jobs may run here, with their labs; `all` of them when left out."""
    tiers: tuple[TierName, ...] | None = None
    """Tiers that jobs here may use; those of their department when left out. The tier of elastic replicas
    is always among them."""

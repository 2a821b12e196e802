"""Tiers and templates: who yields to whom, and the usual combinations."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from hpctools.site.base import Model
from hpctools.site.departments import Limit
from hpctools.site.parameters import AccountSettings
from hpctools.site.scalars import Duration, Text, TierName, TimeLimit, refuse


class Tier(Model):
    """A QoS with a place in the preemption order."""

    description: Text | None = None
    """What it is for."""
    priority: Annotated[int, Field(ge=0, le=1_000_000)]
    """Its place among pending jobs: higher goes first."""
    preempts: tuple[TierName, ...] = ()
    """Tiers whose running jobs yield to this one's."""
    when_preempted: Literal["cancel", "requeue"] | None = None
    """What happens to a job of this tier that has to yield; the cluster's way (cancel) when left out."""
    grace_time: Annotated[Duration, Field(le=3600)] = 0
    """Time between SIGTERM and the end for a job that has to yield."""
    protected_time: Duration | None = None
    """A job that has run for less than this is not asked to yield."""
    max_time: TimeLimit | None = None
    """Longest time limit of a job in this tier."""
    gpus_per_user: Limit | None = None
    """GPUs of one person's running jobs in this tier."""
    cpus_per_user: Limit | None = None
    """CPUs of one person's running jobs in this tier."""
    jobs_per_user: Limit | None = None
    """Running jobs of one person in this tier."""
    submitted_jobs_per_user: Limit | None = None
    """Running and pending jobs of one person in this tier."""
    gpus_per_job: Limit | None = None
    """GPUs of one job in this tier."""
    gpus: Limit | None = None
    """GPUs of all running jobs in this tier together."""
    usage_percent: Annotated[int, Field(ge=0, le=10_000)] = 100
    """How much an hour counts in the fair share; 50 halves it."""
    default: bool = False
    """Jobs that name no tier get this one; exactly one tier is the default."""
    for_replicas: bool = False
    """Elastic runs put their replica jobs here; only the tier `elastic`, and every department may use it."""
    settings: AccountSettings = Field(default_factory=dict)
    """More settings of the QoS, in sacctmgr's words."""
    renamed_from: TierName | None = None
    """The name that it had until now, while it is being renamed."""

    @model_validator(mode="after")
    def _replicas_are_not_requeued(self) -> Tier:
        # A run's coordinator submits a new replica itself; a requeued one would come back beside it.
        if self.for_replicas and self.when_preempted == "requeue":
            refuse("when_preempted: cancel in the tier of replicas")
        return self


class Template(Model):
    """A usual combination that people choose by name."""

    description: Text | None = None
    """What it is for."""
    tier: TierName
    """The tier of its jobs."""
    capacity: Annotated[tuple[Literal["reserved", "on-demand", "spot"], ...], Field(min_length=1)]
    """Kinds of capacity that its jobs may run on."""
    max_time: TimeLimit | None = None
    """Longest time limit of its jobs."""

    @model_validator(mode="after")
    def _distinct(self) -> Template:
        if len(set(self.capacity)) != len(self.capacity):
            refuse("each kind of capacity once")
        return self

"""What surrounds a job on its node: what it is kept to, its private folders, and the scripts around it."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from hpctools.site.base import Model
from hpctools.site.parameters import ContainmentParameters
from hpctools.site.scalars import Duration, FilePath, refuse

Percent = Annotated[int, Field(ge=1, le=100)]


class Containment(Model):
    """What jobs are kept to by cgroups."""

    cores: bool = True
    """Jobs run on the CPUs that they were given, and no others."""
    memory: bool = True
    """Jobs that take more memory than they were given are ended."""
    swap: bool = False
    """Memory and swap are counted together; needs `memory`."""
    devices: bool = True
    """Jobs see only the GPUs that they were given."""
    memory_percent: Percent | None = None
    """The part of a job's memory that it may really take; all when left out."""
    swap_percent: Annotated[int, Field(ge=0, le=100)] | None = None
    """Swap that a job may take beside, as a percentage of its memory; none when left out."""
    parameters: ContainmentParameters = Field(default_factory=dict)
    """More settings of cgroup.conf, or other values for ours; an empty value leaves ours out."""

    @model_validator(mode="after")
    def _percentages_apply(self) -> Containment:
        if self.swap and not self.memory:
            refuse("memory: true, without which swap is not counted")
        if self.memory_percent is not None and not self.memory:
            refuse("memory: true beside memory_percent")
        if self.swap_percent is not None and not self.swap:
            refuse("swap: true beside swap_percent")
        return self


class JobContainer(Model):
    """Private folders for each job, such as a /tmp of its own (job_container.conf)."""

    base_path: FilePath
    """Where they are on each node; local storage with room for the jobs' temporary files."""
    create_base_path: bool = True
    """slurmd makes the folder when it is missing."""
    folders: Annotated[tuple[FilePath, ...], Field(min_length=1)] = ("/tmp", "/dev/shm")  # noqa: S108
    """What each job gets for itself; other folders than these two need Slurm 23.02."""
    shared: bool = False
    """Mounts that are made while a job runs show up in it (automounted homes); needs Slurm 23.02."""
    init_script: FilePath | None = None
    """Run as root when a job's folders are made."""


class HealthCheck(Model):
    """A program that looks after each node from time to time."""

    program: FilePath
    """What to run; it drains the node with scontrol when it finds a fault."""
    interval: Annotated[Duration, Field(ge=10, le=65_535)] = 300
    """Time from one run to the next."""
    state: Literal["any", "idle", "alloc", "mixed", "cycle"] = "any"
    """On which nodes: all, those in this state, or (`cycle`) all of them spread over the interval."""


class Scripts(Model):
    """Programs that Slurm runs around jobs; each must exist where it runs."""

    prolog: FilePath | None = None
    """On each node as root before a job's first step there; when it fails the node is drained."""
    epilog: FilePath | None = None
    """On each node as root after a job."""
    prolog_slurmctld: FilePath | None = None
    """On the controller as the Slurm account when a job gets its nodes."""
    epilog_slurmctld: FilePath | None = None
    """On the controller as the Slurm account after a job."""
    task_prolog: FilePath | None = None
    """On each node as the user before each task; what it prints may set the task's environment."""
    task_epilog: FilePath | None = None
    """On each node as the user after each task."""
    health_check: HealthCheck | None = None
    """Looks after each node from time to time."""

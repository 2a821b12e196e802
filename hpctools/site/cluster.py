"""The cluster itself: its name, controllers, accounting and priorities."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from hpctools.site.base import Model
from hpctools.site.daemons import Configuration, DaemonCommands
from hpctools.site.gpus import Detection
from hpctools.site.jobs import Containment, JobContainer, Scripts
from hpctools.site.parameters import AccountingParameters, ClusterParameters
from hpctools.site.power import PowerSaving
from hpctools.site.scalars import ClusterName, DatabaseName, Duration, HostName, Release, UserName
from hpctools.site.topology import Topology

Port = Annotated[int, Field(ge=1, le=65535)]
Weight = Annotated[int, Field(ge=0, le=1_000_000)]

_DAY = 24 * 3600


class Database(Model):
    """The MariaDB or MySQL database that slurmdbd keeps its records in."""

    host: HostName = "localhost"
    """Its host; `localhost` means the Unix socket."""
    port: Port = 3306
    """Its TCP port; without meaning for `localhost`."""
    name: DatabaseName = "slurm_acct_db"
    """The database's name."""
    user: DatabaseName = "slurm"
    """The database user. A password never stands in the site file: on `localhost` the socket tells who
    asks, elsewhere the password is handed over when the configuration is rendered."""


class Accounting(Model):
    """Where slurmdbd runs and what it keeps."""

    host: HostName | None = None
    """The host that runs slurmdbd; the first controller when left out."""
    port: Port = 6819
    """slurmdbd's port."""
    database: Database = Database()
    """The database behind slurmdbd."""
    parameters: AccountingParameters = Field(default_factory=dict)
    """More settings of slurmdbd.conf, or other values for ours; an empty value leaves ours out."""


class PriorityWeights(Model):
    """How much each factor counts when Slurm orders pending jobs (each factor is between 0 and 1)."""

    tier: Weight = 100_000
    """The tier's priority."""
    fair_share: Weight = 10_000
    """How little the account has used of its share."""
    age: Weight = 1_000
    """How long the job has waited."""
    job_size: Weight = 100
    """How many nodes it asks for."""


class Priority(Model):
    """How pending jobs are ordered."""

    half_life: Annotated[Duration, Field(ge=3600)] = 7 * _DAY
    """After this time past use counts half in the fair share."""
    max_age: Annotated[Duration, Field(ge=60)] = 7 * _DAY
    """A job that has waited this long gets the whole weight of its age."""
    weights: PriorityWeights = PriorityWeights()
    """The weight of each factor."""


class Cluster(Model):
    """The cluster and its daemons."""

    name: ClusterName
    """The cluster's name; slurmdbd keeps records under it, so it must not change later."""
    slurm: Release | None = None
    """The Slurm release on the nodes, in quotes; 24.11 is assumed when nothing tells it."""
    provider: Literal["hyperpod", "own", "sandbox"] = "own"
    """Where the nodes come from: Amazon SageMaker HyperPod, your own machines, or this machine's sandbox."""
    controllers: Annotated[tuple[HostName, ...], Field(min_length=1, max_length=3)]
    """The hosts that run slurmctld: the first is primary, the others take over."""
    slurm_user: UserName = "slurm"
    """The Unix account that slurmctld and slurmdbd run as."""
    slurm_client: Literal["auto", "commands", "pyslurm"] = "auto"
    """How hp-submit, hp-status and hp-cancel ask Slurm: by its commands, by pyslurm, or by pyslurm where that
    is there and fits."""
    accounting: Accounting = Accounting()
    """Where jobs are accounted."""
    priority: Priority = Priority()
    """How pending jobs are ordered."""
    gpu_detection: Detection | None = None
    """How nodes know their GPUs: `explicit` device files, or NVIDIA's library `nvml`. When left out, nvml for
    MIG slices without mig_devices, else explicit."""
    configuration: Configuration = Configuration()
    """Where Slurm's files are, and how they reach the nodes."""
    daemons: DaemonCommands = DaemonCommands()
    """How the daemons are restarted here."""
    containment: Containment = Containment()
    """What jobs are kept to."""
    job_container: JobContainer | None = None
    """Private folders for each job; none when left out."""
    scripts: Scripts = Scripts()
    """Programs that Slurm runs around jobs."""
    topology: Topology | None = None
    """Which nodes are close to each other; all are alike when left out."""
    power_saving: PowerSaving | None = None
    """How nodes between `min` and `max` come and go; when left out, they join when somebody adds them. Not on
    HyperPod, where they have other names."""
    parameters: ClusterParameters = Field(default_factory=dict)
    """More settings of slurm.conf, or other values for ours; an empty value leaves ours out."""

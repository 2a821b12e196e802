"""The cluster on Amazon SageMaker HyperPod: what CreateCluster is told beside what the site says anyway."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from hpctools.site.aws_words import SubnetId
from hpctools.site.base import Model
from hpctools.site.cluster import Port
from hpctools.site.hyperpod_words import (
    ClusterTagValue,
    Image,
    ImageRelease,
    InstancePartition,
    KmsKey,
    LifecycleUri,
    RoleArn,
    Schedule,
    SecretArn,
    SecurityGroupId,
    TopicArn,
    TrainingPlanArn,
)
from hpctools.site.nodes import NodeCount
from hpctools.site.scalars import DatabaseName, FilePath, GroupName, HostName, InstanceType, TagKey

VolumeSize = Annotated[int, Field(ge=1, le=16_384)]  # botocore, CreateCluster: VolumeSizeInGB 1-16384
HealthCheck = Literal["instance-stress", "instance-connectivity", "multi-node-training"]


class InstanceNetwork(Model):
    """Where nodes are: subnets and security groups that are there already."""

    subnets: Annotated[tuple[SubnetId, ...], Field(min_length=1, max_length=16)]
    """Private subnets, one for each availability zone."""
    security_groups: Annotated[tuple[SecurityGroupId, ...], Field(min_length=1, max_length=5)]
    """Security groups of the nodes; each lets all traffic in and out among its own members."""


class OutsideDatabase(Model):
    """A database outside the cluster for slurmdbd (continuous provisioning, or several controllers)."""

    endpoint: HostName
    """The host of the MariaDB or MySQL server."""
    port: Port = 3306
    """Its TCP port."""
    name: DatabaseName = "slurm_acct_db"
    """The database's name."""
    user: DatabaseName = "slurm"
    """The database user; only several controllers need it stated."""
    secret: SecretArn
    """The secret with user and password; neither ever stands in a file of ours."""


class Failover(Model):
    """What several controllers share."""

    shared_folder: FilePath = "/fsx"
    """A folder that all controllers mount; slurmctld's state is kept there."""
    topic: TopicArn
    """Where a change of controller is announced."""


class InstanceOptions(Model):
    """What the nodes of one instance group get."""

    ebs_gib: VolumeSize | None = None
    """The size of a second volume at /opt/sagemaker, in GiB; none when left out."""
    ebs_key: KmsKey | None = None
    """The key that encrypts the second volume."""
    root_key: KmsKey | None = None
    """The key that encrypts the root volume; AWS's own when left out."""
    image: Image | None = None
    """The machine image; HyperPod's latest when left out."""
    image_release: ImageRelease | None = None
    """The release of HyperPod's image, in quotes; the latest when left out."""
    network: InstanceNetwork | None = None
    """Subnets and security groups of this group, where they are not the cluster's."""
    update_schedule: Schedule | None = None
    """When HyperPod brings in a new image, for example cron(0 3 ? * SUN *); never by itself when left out."""


class Controller(InstanceOptions):
    """The instance group of the controllers; it has one node for each of `cluster.controllers`."""

    group: GroupName = "controller"
    """The instance group's name."""
    instance_type: InstanceType = "ml.m5.4xlarge"
    """The instance type."""


class GroupOptions(InstanceOptions):
    """What the nodes of a node group get beside what the group itself says."""

    other_instance_types: Annotated[tuple[InstanceType, ...], Field(max_length=19)] = ()
    """Instance types to take when the group's own is out of stock, in this order."""
    training_plan: TrainingPlanArn | None = None
    """The training plan that reserves the capacity."""
    deep_health_checks: Annotated[tuple[HealthCheck, ...], Field(max_length=3)] = ()
    """Checks that a new node has to pass first; they take an hour or two."""
    min_count: NodeCount | None = None
    """The group counts as in service when it has this many nodes; continuous provisioning only."""
    partition: InstancePartition | None = None
    """The name of the partition that HyperPod itself makes of the group; the group's name when left out, with
    `-nodes` behind it where the site has a partition of that name."""


class HyperPod(Model):
    """The cluster on Amazon SageMaker HyperPod. What is left out comes from the stack that `hpctools hyperpod
    template` describes."""

    style: Literal["slurmconfig", "legacy"] | None = None
    """Where HyperPod is told of Slurm: in the request itself, or in a provisioning_parameters.json beside the
    lifecycle scripts; what fits when left out."""
    continuous: bool = False
    """Nodes are provisioned one by one and for as long as it takes; else all come or the request fails."""
    strategy: Literal["managed", "merge", "overwrite"] | None = None
    """SlurmConfigStrategy: what happens to what others wrote into slurm.conf; what fits when left out."""
    node_recovery: Literal["automatic", "none"] = "automatic"
    """Whether HyperPod replaces faulty nodes by itself."""
    agent_partitions: Literal["closed", "open"] = "closed"
    """Whether people may use the partitions that HyperPod makes itself (`dev`, and one of each group): these
    have no limits. They are closed only where the site has partitions of its own."""
    execution_role: RoleArn | None = None
    """The role of the nodes; the stack's when left out."""
    network: InstanceNetwork | None = None
    """Subnets and security groups; the stack's when left out."""
    lifecycle_source: LifecycleUri | None = None
    """Where the lifecycle scripts are; where they were uploaded when left out."""
    accounting_database: OutsideDatabase | None = None
    """A database for accounting outside the cluster; the stack's, or on the controller, when left out."""
    failover: Failover | None = None
    """What several controllers share; needed when there are several."""
    controller: Controller = Controller()
    """The controllers."""
    node_groups: dict[GroupName, GroupOptions] = Field(default_factory=dict)
    """Options by node group."""
    tags: dict[TagKey, ClusterTagValue] = Field(default_factory=dict)
    """More tags of the cluster, beside those of its name, departments and capacity."""

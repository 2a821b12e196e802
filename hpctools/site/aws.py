"""What a site has on AWS around its cluster; a CloudFormation stack is made of it."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, model_validator

from hpctools.site.aws_access import CloudDirectory, IdentityCenter, LoginEntry
from hpctools.site.aws_network import CloudNetwork
from hpctools.site.aws_storage import Buckets, FileSystem, ManagedDatabase
from hpctools.site.aws_words import EmailAddress, KeyArn, RegionName, StackName, TagValue
from hpctools.site.base import Model
from hpctools.site.scalars import Money, TagKey, refuse

Days = Annotated[int, Field(ge=1, le=3653)]
_MOST_TAGS = 40  # AWS allows 50; ours and CloudFormation's own need some


class Notifications(Model):
    """Who hears of failed nodes, full file systems and budgets."""

    emails: Annotated[tuple[EmailAddress, ...], Field(max_length=10)] = ()
    """Addresses; each must confirm the mail that AWS sends it."""
    file_system_free_percent: Annotated[int, Field(ge=1, le=90)] = 10
    """A Lustre file system with less free space than this is told of."""


class CostBudget(Model):
    """What the cluster may cost in a month by AWS's own count; it only warns."""

    amount: Money | None = None
    """The amount in USD, in quotes; the sum of the departments' monthly budgets when left out."""
    alert_at: Annotated[
        tuple[Annotated[int, Field(ge=1, le=1000)], ...], Field(min_length=1, max_length=4)
    ] = (50, 75, 90, 100)
    """Per cent of the amount at which it warns; it also warns when the forecast exceeds the amount."""


class Aws(Model):
    """The AWS resources around the cluster: network, storage, roles, entry, warnings."""

    region: RegionName | None = None
    """The region; that of AWS_REGION or of the profile when left out."""
    stack: StackName | None = None
    """The stack's name; `hpctools-<cluster>` when left out. Never change it later."""
    network: CloudNetwork = CloudNetwork()
    """Where the nodes are."""
    file_systems: Annotated[tuple[FileSystem, ...], Field(max_length=8)] = ()
    """File systems that all nodes share."""
    buckets: Buckets = Buckets()
    """Object storage."""
    accounting_database: ManagedDatabase | None = None
    """A managed MariaDB for slurmdbd; none when left out, for a database on the controller."""
    login: LoginEntry = LoginEntry()
    """How people reach the login nodes."""
    directory: CloudDirectory | None = None
    """The directory that knows the people; none when left out."""
    identity_center: IdentityCenter | None = None
    """Single sign-on to Session Manager; none when left out."""
    notifications: Notifications = Notifications()
    """Who is told."""
    budget: CostBudget | None = CostBudget()
    """AWS's own budget for the cluster; `null` for none."""
    kms_key: KeyArn | None = None
    """The key that encrypts buckets, file systems, database, logs and topic; AWS's own keys when left out.
    Its policy must let the services use it (docs/infrastructure.md)."""
    keep_logs_days: Days = 90
    """Log groups keep their lines this long; rounded up to what CloudWatch knows."""
    tags: Annotated[dict[TagKey, TagValue], Field(max_length=_MOST_TAGS)] = Field(default_factory=dict)
    """More tags of every resource."""

    @model_validator(mode="after")
    def _coherent(self) -> Aws:
        self._check_names()
        self._check_zones()
        entry = self.login.load_balancer
        if entry is not None and entry.internet_facing and not self.network.has_public_subnets:
            refuse("network.internet: nat, or public subnets of your VPC, beside an internet-facing entry")
        if self.region and self.buckets.replicas_in == self.region:
            refuse("buckets.checkpoints.replicate_to: another region than the cluster's")
        copied = self.buckets.checkpoints
        if copied and copied.replicate_to and (self.kms_key is None) != (copied.replica_key is None):
            refuse("kms_key and buckets.checkpoints.replica_key, or neither")
        return self

    def _check_names(self) -> None:
        names = [system.name.replace("-", "") for system in self.file_systems]
        mounts = [system.mount for system in self.file_systems]
        if len(set(names)) < len(names) or len(set(mounts)) < len(mounts):
            refuse("file systems with a mount and a name of their own ('-' alone does not tell them apart)")

    def _check_zones(self) -> None:
        wanting = {
            "accounting_database": self.accounting_database is not None,
            "directory.create": self.directory is not None and self.directory.create is not None,
        }
        for what in (key for key, wanted in wanting.items() if wanted):
            if self.network.subnet_count < 2:
                refuse(f"a network of two zones or more: {what} needs them")

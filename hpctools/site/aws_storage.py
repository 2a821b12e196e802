"""What keeps data on AWS: file systems, buckets, the accounting database."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from hpctools.site.aws_words import (
    BucketName,
    FsxDnsName,
    KeyArn,
    LifecycleBucketName,
    LustreMountName,
    RegionName,
)
from hpctools.site.base import Model
from hpctools.site.scalars import FilePath, GroupName, refuse

BackupDays = Annotated[int, Field(ge=0, le=90)]
_LUSTRE_THROUGHPUT = (125, 250, 500, 1000)
_OPENZFS_THROUGHPUT = (160, 320, 640, 1280, 2560, 3840, 5120, 7680, 10240)


class ExistingFileSystem(Model):
    """A file system that is there already: kept from an earlier cluster, or shared with another one."""

    dns_name: FsxDnsName
    """Its DNS name."""
    mount_name: LustreMountName | None = None
    """Lustre's mount name; none for OpenZFS."""


class FileSystem(Model):
    """A file system on Amazon FSx."""

    name: GroupName
    """Its name."""
    kind: Literal["lustre", "openzfs"] = "lustre"
    """`lustre` for data that many nodes read at once, `openzfs` for home folders."""
    mount: FilePath
    """Where the nodes mount it."""
    size_gib: Annotated[int, Field(ge=64, le=2_000_000)] = 1200
    """Its size in GiB; Lustre: 1200 or a multiple of 2400."""
    throughput: Annotated[int, Field(ge=125, le=10_240)] | None = None
    """MB/s: for each TiB of Lustre (125, 250, 500, 1000), for all of OpenZFS (160, 320, 640, 1280, ...); the
    least when left out."""
    backup_days: BackupDays = 7
    """Daily backups are kept this long; 0 for none."""
    existing: ExistingFileSystem | None = None
    """One that is there already; nothing is made then."""

    @property
    def throughput_mb_s(self) -> int:
        """What `throughput` says, or the least of its kind."""
        return self.throughput or (_LUSTRE_THROUGHPUT if self.kind == "lustre" else _OPENZFS_THROUGHPUT)[0]

    @model_validator(mode="after")
    def _coherent(self) -> FileSystem:
        lustre = self.kind == "lustre"
        steps = _LUSTRE_THROUGHPUT if lustre else _OPENZFS_THROUGHPUT
        if self.throughput is not None and self.throughput not in steps:
            refuse(f"throughput: one of {', '.join(map(str, steps))}")
        if self.existing is not None and lustre != (self.existing.mount_name is not None):
            refuse("existing.mount_name for lustre, and for lustre only")
        if self.existing is None and lustre and self.size_gib != 1200 and self.size_gib % 2400:
            refuse("size_gib: 1200 or a multiple of 2400 for lustre")
        if not lustre and self.size_gib > 524_288:
            refuse("size_gib: at most 524288 for openzfs")
        return self


class DataBucket(Model):
    """A bucket for data sets and results."""

    name: BucketName | None = None
    """The bucket's name, unique in the world; `<cluster>-data-<account>-<region>` when left out."""
    keep_old_versions_days: Annotated[int, Field(ge=1, le=3650)] = 30
    """What was overwritten or deleted can be brought back for so long."""


class CheckpointBucket(DataBucket):
    """A bucket for checkpoints, versioned, and copied to another region where asked for."""

    name: BucketName | None = None
    """The bucket's name, unique in the world; `<cluster>-checkpoints-<account>-<region>` when left out."""
    replicate_to: RegionName | None = None
    """A region that gets a copy of every object; none when left out."""
    replica_key: KeyArn | None = None
    """The key of the copies, in their region; needed beside `kms_key`."""


class Buckets(Model):
    """Object storage."""

    lifecycle: LifecycleBucketName | None = None
    """The bucket of the nodes' scripts; `sagemaker-<cluster>-<account>-<region>` when left out."""
    data: DataBucket | None = DataBucket()
    """For data sets and results; `null` for none."""
    checkpoints: CheckpointBucket | None = CheckpointBucket()
    """For checkpoints; `null` for none."""

    @property
    def replicas_in(self) -> str | None:
        """The region of the checkpoints' copies; None when there are none."""
        return self.checkpoints.replicate_to if self.checkpoints else None


class ManagedDatabase(Model):
    """A managed MariaDB (Amazon RDS) for slurmdbd; AWS makes the password and keeps it in Secrets Manager."""

    instance_class: Annotated[str, Field(pattern=r"^db\.[a-z0-9]{2,10}\.[a-z0-9]{2,12}$")] = "db.t4g.medium"
    """Its size."""
    version: Annotated[str, Field(pattern=r"^1\d\.\d{1,2}\.\d{1,2}$")] = "10.11.16"
    """MariaDB's version, in quotes; AWS retires old ones."""
    size_gib: Annotated[int, Field(ge=20, le=65_536)] = 50
    """Its disk in GiB."""
    standby: bool = True
    """Whether a second one in another zone takes over."""
    backup_days: Annotated[int, Field(ge=1, le=35)] = 14
    """Daily backups are kept this long."""

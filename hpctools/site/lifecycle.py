"""What a node does to itself when HyperPod creates or replaces it (docs/lifecycle.md)."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, model_validator

from hpctools.site.base import Model
from hpctools.site.daemons import Command
from hpctools.site.scalars import Duration, FilePath, UserName, matching, refuse

NodeRole = Literal["controller", "login", "compute"]
Roles = Annotated[tuple[NodeRole, ...], Field(min_length=1)]
_ALL: tuple[NodeRole, ...] = ("controller", "login", "compute")

MountSource = Annotated[
    str,
    BeforeValidator(
        matching(
            r"(?=.{3,500}\Z)[A-Za-z0-9][A-Za-z0-9.-]*(?:@tcp[0-9]*)?:/[A-Za-z0-9._/+-]*",
            "what to mount: HOST:/FOLDER, or HOST@tcp:/NAME for Lustre",
        )
    ),
]

MountOption = Annotated[
    str,
    BeforeValidator(
        matching(
            r"[a-z][a-z0-9_.-]{0,40}(?:=[A-Za-z0-9_.:/-]{1,200})?", "one mount option: word or word=value"
        )
    ),
]

UserId = Annotated[int, Field(ge=1000, le=2_147_483_647)]


class Mount(Model):
    """A file system that nodes mount, beside those on FSx that the site names elsewhere."""

    source: MountSource
    """What is mounted: `HOST:/FOLDER` for NFS, `HOST@tcp:/NAME` for Lustre."""
    path: FilePath
    """Where."""
    kind: Literal["nfs", "lustre"] = "nfs"
    """Its kind."""
    options: Annotated[tuple[MountOption, ...], Field(max_length=30)] = ()
    """Mount options, where the usual ones do not suit."""
    roles: Roles = _ALL
    """Nodes that mount it."""
    required: bool = True
    """Whether a node is of no use without it."""

    @model_validator(mode="after")
    def _coherent(self) -> Mount:
        if (self.kind == "lustre") != ("@tcp" in self.source):
            refuse("kind: lustre for HOST@tcp:/NAME, and for nothing else")
        return self


class Hook(Model):
    """A program of the site's own that each node runs once, before it serves."""

    command: Command
    """The program and its arguments; no shell reads them. It lies on the nodes."""
    check: Command
    """Ends with exit code 0 where the command has been run already; it is asked often and has to be quick."""
    roles: Roles = _ALL
    """Nodes that run it."""
    limit: Annotated[Duration, Field(ge=1, le=3600)] = 600
    """It may take so long."""
    required: bool = False
    """Whether a node is of no use without it."""


class SshKeys(Model):
    """Keys that outlive a node."""

    host_keys: FilePath | None = None
    """A folder on a shared file system, for root alone, that keeps host keys: a replaced login node has those
    of its group again, a replaced worker of the same name its own, so that nobody is warned. Nothing is kept
    when left out."""
    between_nodes: bool = True
    """Whether people of `users` get a key that lets them from node to node."""


class LogRotation(Model):
    """How long logs are kept on the nodes."""

    keep: Annotated[int, Field(ge=1, le=1000)] = 14
    """So many old files of each log."""
    max_size_mib: Annotated[int, Field(ge=1, le=100_000)] = 200
    """A log is rotated daily, and earlier when it is larger than this."""


class LoginBalance(Model):
    """How a login node becomes known to those that send people to login nodes."""

    target_group: Annotated[
        str,
        BeforeValidator(
            matching(
                r"arn:aws[a-z-]*:elasticloadbalancing:[a-z0-9-]{1,30}:\d{12}"
                r":targetgroup/[A-Za-z0-9-]{1,32}/[0-9a-f]{16}",
                "the ARN of a load balancer's target group",
            )
        ),
    ]
    """The target group of the load balancer in front of the login nodes, by address."""
    port: Annotated[int, Field(ge=1, le=65535)] = 22
    """The port on the nodes."""


class Lifecycle(Model):
    """What nodes do to themselves beside what other parts of the site say."""

    mounts: Annotated[tuple[Mount, ...], Field(max_length=20)] = ()
    """File systems beside those on FSx."""
    users: dict[UserName, UserId] = Field(default_factory=dict)
    """People whom the nodes themselves know, with the same number everywhere; none where a directory knows
    them."""
    home_folder: FilePath = "/home"
    """Where the homes of `users` are."""
    ssh_keys: SshKeys = SshKeys()
    """Keys that outlive a node."""
    log_rotation: LogRotation = LogRotation()
    """How long logs are kept."""
    containers: Hook | None = None
    """What makes containers work: Docker, or enroot and pyxis. Nothing when left out."""
    observability: Hook | None = None
    """What makes the node report its metrics. Nothing when left out."""
    login_balance: LoginBalance | None = None
    """How a login node becomes known; nothing is told when left out."""

    @model_validator(mode="after")
    def _coherent(self) -> Lifecycle:
        paths = [mount.path for mount in self.mounts]
        if len(set(paths)) < len(paths):
            refuse("mounts with a path of their own")
        if len(set(self.users.values())) < len(self.users):
            refuse("users with a number of their own")
        return self

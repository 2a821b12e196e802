"""How people get in on AWS: the entry before the login nodes, the directory, single sign-on."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from hpctools.site.aws_words import ClientRange, DirectoryGroupId, DomainName, IdentityCenterArn, ImageId
from hpctools.site.base import Model
from hpctools.site.cluster import Port
from hpctools.site.scalars import InstanceType, refuse


class LoadBalancer(Model):
    """A Network Load Balancer before the login nodes."""

    internet_facing: bool = False
    """Whether it has public addresses; otherwise it is reached from within your network."""
    port: Port = 22
    """The port that people connect to."""
    allow_from: Annotated[tuple[ClientRange, ...], Field(min_length=1, max_length=50)]
    """Who may connect: your campus, your VPN."""


class LoginScaling(Model):
    """Login nodes as EC2 instances of an auto-scaling group, beside those of HyperPod."""

    instance_type: InstanceType
    """Their type, without `ml.`."""
    image: ImageId
    """The image that they start from: your own with Slurm on it, of the cluster's release."""
    min: Annotated[int, Field(ge=0, le=100)] = 1
    """Nodes that are always there."""
    max: Annotated[int, Field(ge=1, le=100)] = 4
    """Nodes that there may be at most."""
    cpu_percent: Annotated[int, Field(ge=10, le=90)] = 60
    """Another node comes when all of them together are busier than this."""

    @model_validator(mode="after")
    def _coherent(self) -> LoginScaling:
        if self.min > self.max:
            refuse("min to be at most max")
        if self.instance_type.startswith("ml."):
            refuse(f"an EC2 instance type: {self.instance_type.removeprefix('ml.')}")
        return self


class LoginEntry(Model):
    """How people reach the login nodes."""

    load_balancer: LoadBalancer | None = None
    """The entry; none when left out (Session Manager still works)."""
    scaling: LoginScaling | None = None
    """Login nodes that come and go with the load; HyperPod's login group when left out."""

    @model_validator(mode="after")
    def _coherent(self) -> LoginEntry:
        if self.scaling is not None and self.load_balancer is None:
            refuse("load_balancer beside scaling: people must find the nodes that come and go")
        return self


class NewDirectory(Model):
    """An AWS Managed Microsoft AD; AWS makes the administrator's password and keeps it in Secrets Manager."""

    domain: DomainName
    """Its domain."""
    edition: Literal["Standard", "Enterprise"] = "Standard"
    """Its size."""


class CloudDirectory(Model):
    """The directory that knows the people."""

    create: NewDirectory | None = None
    """One that is made; none when you have one."""
    reach: Annotated[tuple[ClientRange, ...], Field(max_length=20)] = ()
    """The addresses of yours; nodes may reach them (LDAP, Kerberos) where `network.internet` is `none`."""

    @model_validator(mode="after")
    def _coherent(self) -> CloudDirectory:
        if (self.create is None) == (not self.reach):
            refuse("create or reach, and not both")
        return self


class IdentityCenter(Model):
    """Single sign-on to Session Manager: people arrive on a login node as themselves, never as ssm-user."""

    instance: IdentityCenterArn
    """The Identity Center instance."""
    run_as: Annotated[str, Field(pattern=r"^\$\{[a-zA-Z:_.]{3,60}\}$")] = "${path:userName}"
    """The attribute of a person that is their Unix account (`SSMSessionRunAs`)."""
    attributes_managed: bool = True
    """Whether the stack sets the attributes for access control; false where your organisation does."""
    user_groups: tuple[DirectoryGroupId, ...] = ()
    """Groups whose members may open sessions on login nodes."""
    administrator_groups: tuple[DirectoryGroupId, ...] = ()
    """Groups whose members may open sessions on every node."""
    session_hours: Annotated[int, Field(ge=1, le=12)] = 8
    """A sign-on is good for this long."""
    idle_minutes: Annotated[int, Field(ge=1, le=60)] = 20
    """A session in which nothing is typed ends after this time."""

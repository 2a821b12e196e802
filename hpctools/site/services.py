"""What surrounds the scheduler: login nodes and the cloud bill."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from hpctools.site.base import Model
from hpctools.site.scalars import TagKey


class Login(Model):
    """How people get in."""

    max_sessions_per_user: Annotated[int, Field(ge=1, le=1000)] = 4
    """Sessions that one person may have open on all login nodes together."""
    balance_on: Annotated[tuple[Literal["sessions", "cpu", "memory"], ...], Field(min_length=1)] = (
        "sessions",
        "cpu",
        "memory",
    )
    """What makes a login node count as busy."""


class Billing(Model):
    """How the cloud bill is read and attributed."""

    node_group_tag: TagKey = "hpctools:node-group"
    """The cost allocation tag that carries a node group's name."""
    cluster_tag: TagKey = "ClusterName"
    """The cost allocation tag that carries the cluster's name."""
    idle: Literal["unallocated", "proportional"] = "unallocated"
    """Who bears what no job used: nobody (it is shown as idle), or the users of the same nodes in
    proportion to their use."""

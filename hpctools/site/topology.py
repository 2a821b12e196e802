"""Which nodes are close to each other: switches that form a tree, or blocks."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from hpctools.site.base import Model
from hpctools.site.hostlist import HostList
from hpctools.site.scalars import GroupName, SwitchName, refuse


class Switch(Model):
    """A switch with either nodes or other switches below it."""

    name: SwitchName
    """Its name."""
    node_groups: tuple[GroupName, ...] = ()
    """Node groups all of whose nodes are on it."""
    nodes: HostList | None = None
    """More nodes on it, as a host list."""
    switches: tuple[SwitchName, ...] = ()
    """The switches below it."""

    @model_validator(mode="after")
    def _one_kind_below(self) -> Switch:
        has_nodes = bool(self.node_groups) or self.nodes is not None
        if has_nodes == bool(self.switches):
            refuse("either nodes (node_groups, nodes) or switches below it")
        return self


class Block(Model):
    """Nodes with the fastest connection among them."""

    name: SwitchName
    """Its name."""
    node_groups: tuple[GroupName, ...] = ()
    """Node groups all of whose nodes are in it."""
    nodes: HostList | None = None
    """More nodes in it, as a host list."""

    @model_validator(mode="after")
    def _not_empty(self) -> Block:
        if not self.node_groups and self.nodes is None:
            refuse("node_groups or nodes")
        return self


class Topology(Model):
    """Which nodes are close to each other. Every compute node has its place; Slurm runs no job elsewhere."""

    kind: Literal["tree", "block"]
    """`tree`: switches; `block`: blocks of nodes (Slurm 24.05 or later)."""
    switches: tuple[Switch, ...] = ()
    """The switches of a tree; those below may stand before or after those above."""
    block_sizes: tuple[Annotated[int, Field(ge=1, le=65_536)], ...] = ()
    """The nodes of a block that are planned with, then of the groups of blocks that count as close."""
    blocks: tuple[Block, ...] = ()
    """The blocks."""

    @model_validator(mode="after")
    def _of_its_kind(self) -> Topology:
        if self.kind == "tree" and (not self.switches or self.blocks or self.block_sizes):
            refuse("switches, and no blocks, in a tree")
        if self.kind == "block" and (not self.blocks or self.switches):
            refuse("blocks, and no switches, in a topology of blocks")
        # topology.conf(5): successive BlockSizes are a power of two larger than those before.
        for small, large in zip(self.block_sizes, self.block_sizes[1:], strict=False):
            times, rest = divmod(large, small)
            if rest or times < 2 or times & (times - 1):
                refuse("block_sizes that are each 2, 4, 8, ... times the one before")
        return self

    @property
    def leaves(self) -> tuple[Switch | Block, ...]:
        """Switches or blocks that have nodes themselves."""
        return self.blocks or tuple(switch for switch in self.switches if not switch.switches)

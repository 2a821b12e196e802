"""Node groups: nodes that are alike, their GPUs and their hardware."""

from __future__ import annotations

from functools import lru_cache
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from hpctools.site.base import Model
from hpctools.site.gpus import Gpus
from hpctools.site.hostlist import HostList, expand
from hpctools.site.instances import known_instance
from hpctools.site.parameters import GresLine, NodeParameters
from hpctools.site.scalars import Feature, GresName, GroupName, InstanceType, refuse

# The firmware and the kernel keep some; slurmctld sets a node that reports less than its line says INVALID.
_USABLE_MEMORY_PERCENT = 95

NodeCount = Annotated[int, Field(ge=0, le=6758)]  # botocore, CreateCluster: InstanceCount 0-6758


class Count(Model):
    """How many nodes a group has: a number, or a range when nodes come and go."""

    min: NodeCount
    """Nodes that are always there."""
    max: NodeCount
    """Nodes that there may be at most."""

    @model_validator(mode="before")
    @classmethod
    def _from_number(cls, value: Any) -> Any:
        if isinstance(value, int) and not isinstance(value, bool):
            return {"min": value, "max": value}
        if not isinstance(value, (dict, Count)):
            refuse("a number of nodes, or {min: N, max: M}")
        return value

    @model_validator(mode="after")
    def _ordered(self) -> Count:
        if self.min > self.max:
            refuse("min to be at most max")
        return self


class Hardware(Model):
    """What one node has, when the instance type does not say it (`slurmd -C` prints it)."""

    sockets: Annotated[int, Field(ge=1, le=64)]
    """Processor sockets."""
    cores_per_socket: Annotated[int, Field(ge=1, le=1024)]
    """Cores in one socket."""
    threads_per_core: Annotated[int, Field(ge=1, le=8)] = 1
    """Hardware threads in one core."""
    memory_mib: Annotated[int, Field(ge=256)]
    """Memory that jobs may use, in MiB; a little less than there is."""

    @property
    def cpus(self) -> int:
        """Hardware threads of the node: what Slurm counts as CPUs."""
        return self.sockets * self.cores_per_socket * self.threads_per_core


def _count_of(nodes: object) -> int:
    """How many nodes a host list names; what is none has a finding of its own."""
    try:
        return len(expand(str(nodes)))
    except ValueError:
        return 0


@lru_cache(maxsize=256)  # of the arguments, not of a group: a copy with another count has other names
def _names(group: str, nodes: str | None, most: int) -> tuple[str, ...]:
    return expand(nodes) if nodes is not None else tuple(f"{group}-{n}" for n in range(1, most + 1))


class NodeGroup(Model):
    """Nodes that are alike. They are named `<group>-1`, `<group>-2`, ... unless `nodes` says otherwise."""

    name: GroupName
    """The group's name, and a HyperPod instance group."""
    role: Literal["compute", "login"] = "compute"
    """What the nodes are for: running jobs, or people's sessions."""
    instance_type: InstanceType | None = None
    """The cloud's instance type; it tells the hardware."""
    count: Count
    """How many nodes there are: a number, or {min: N, max: M}; all of `nodes` when left out."""
    nodes: HostList | None = None
    """The nodes' names as a host list, where they are not `<group>-<n>`; the first `min` always stay."""
    addresses: HostList | None = None
    """The nodes' addresses in the order of their names, where the names do not resolve."""
    capacity: Literal["reserved", "on-demand", "spot"] | None = None
    """How the nodes are paid for; left out for nodes that you own."""
    gpus: Gpus | None = None
    """The GPUs of each node."""
    gres: dict[GresName, Annotated[int, Field(ge=1, le=1_000_000_000)]] = Field(default_factory=dict)
    """Other countable things of each node, by name: jobs ask for them (`--gres=matlab:1`), Slurm counts."""
    hardware: Hardware | None = None
    """The hardware of each node, where the instance type does not tell it."""
    features: tuple[Feature, ...] = ()
    """More words that jobs may ask for (`--constraint`), beside the group's name and its capacity."""
    weight: Annotated[int, Field(ge=0, le=4_294_967_279)] | None = None
    """Jobs take nodes of a lower weight first; 1 when left out."""
    gres_lines: tuple[GresLine, ...] = ()
    """Its lines of gres.conf in Slurm's own words, without NodeName, instead of ours (cores near a GPU, other
    device files)."""
    parameters: NodeParameters = Field(default_factory=dict)
    """More settings of the node lines, or other values for ours; an empty value leaves ours out."""

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all nodes that the group can have: the first `min` are always there."""
        return _names(self.name, self.nodes, self.count.max)

    def first_names(self, count: int) -> tuple[str, ...]:
        """The names of the group's first nodes; beyond its own they go on counting."""
        if count <= len(self.names):
            return self.names[:count]
        more = count - len(self.names)
        last = self.names[-1] if self.names else f"{self.name}-0"
        stem = last.rstrip("0123456789")
        digits = last[len(stem) :]
        stem = stem if digits else f"{stem}-"
        following = range(int(digits or 1) + 1, int(digits or 1) + 1 + more)
        return (*self.names, *(f"{stem}{number:0{len(digits)}}" for number in following))

    @property
    def node_hardware(self) -> Hardware | None:
        """What one node has: as stated, or what the instance type tells; None when neither does.

        Of an instance's memory it is the part that jobs may use, which is what Slurm is told and counts.
        """
        instance = known_instance(self.instance_type or "")
        if self.hardware is not None or instance is None:
            return self.hardware
        return Hardware(
            sockets=1,
            cores_per_socket=instance.cores,
            threads_per_core=instance.threads,
            memory_mib=instance.memory_mib * _USABLE_MEMORY_PERCENT // 100,
        )

    @model_validator(mode="before")
    @classmethod
    def _count_the_nodes(cls, value: Any) -> Any:
        if isinstance(value, dict) and "nodes" in value and "count" not in value:
            return {**value, "count": _count_of(value["nodes"])}
        return value

    @model_validator(mode="after")
    def _coherent(self) -> NodeGroup:
        if len(self.names) != self.count.max:
            refuse(f"count: {len(self.names)}, or a max of {len(self.names)}: as many as nodes names")
        if self.addresses is not None and len(expand(self.addresses)) != self.count.max:
            refuse(f"{self.count.max} addresses, one for each node")
        if self.role == "login":
            if self.gpus is not None or self.gres:
                refuse("no gpus and no gres on login nodes: they run no jobs")
            return self
        if self.hardware is None and self.instance_type is None:
            refuse("instance_type or hardware, to know the nodes' CPUs and memory")
        if self.hardware is None and known_instance(self.instance_type or "") is None:
            refuse(
                f"a known instance type, or hardware beside it ({self.instance_type!r} is not in our table)"
            )
        self._check_gpus()
        return self

    def _check_gpus(self) -> None:
        instance = known_instance(self.instance_type or "")
        if instance is None or self.gpus is None or self.hardware is not None:
            return
        if self.gpus.count > instance.gpus:
            refuse(f"at most {instance.gpus} GPUs: {self.instance_type} has no more (or state hardware)")

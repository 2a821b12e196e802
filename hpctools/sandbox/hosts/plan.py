"""Which machines there are: their names, groups, roles and addresses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

Role = Literal["controller", "login", "compute", "directory"]
Provider = Literal["hyperpod", "own"]
NETWORK = "10.77.0"  # in namespaces of our own only
GROUND_ADDRESS = f"{NETWORK}.1"
PREFIX_LENGTH = 24
FIRST_HOST = 11
GROUP_STEP = 20


@dataclass(frozen=True)
class Machine:
    """One machine.

    Attributes:
        name: what HyperPod calls the instance: its group's name, a dash and a number from 1.
        group: its instance group.
        role: what it is there for.
        address: IPv4 address on the machines' own network.
        instance_id: as EC2 would give.
        provider: whose machine it is.
    """

    name: str
    group: str
    role: Role
    address: str
    instance_id: str
    provider: Provider = "hyperpod"

    @property
    def hostname(self) -> str:
        """The host name, which is also the Slurm node's: on HyperPod as EC2 makes it of the address."""
        return f"ip-{self.address.replace('.', '-')}" if self.provider == "hyperpod" else self.name


@dataclass(frozen=True)
class Group:
    """One instance group.

    Attributes:
        name: HyperPod's InstanceGroupName.
        role: what its machines are there for.
        count: how many there are.
        instance_type: what its resource_config.json says.
        gpus: GPUs of each machine; device nodes without a driver.
    """

    name: str
    role: Role
    count: int
    instance_type: str = "ml.m5.4xlarge"
    gpus: int = 0


@dataclass(frozen=True)
class Fleet:
    """The machines of a cluster.

    Attributes:
        cluster: the cluster's name.
        groups: instance groups, in the order in which resource_config.json has them.
        partition: the Slurm partition of the workers, beside `dev` that HyperPod always makes.
        provider: `own` for machines with an operating system and its packages, and nothing else.
        moved: addresses of replaced machines that differ from those of their predecessors, by name.
    """

    cluster: str = "uni-gpu"
    groups: tuple[Group, ...] = field(
        default=(
            Group("controller", "controller", 1),
            Group("login", "login", 2),
            Group("worker", "compute", 3, "ml.g5.12xlarge", 4),
        )
    )
    partition: str = "shared"
    provider: Provider = "hyperpod"
    moved: Mapping[str, str] = field(default_factory=dict)

    @property
    def machines(self) -> tuple[Machine, ...]:
        """All machines; the n-th group's addresses begin at 11 + 20 n."""
        return tuple(
            self._machine(group, index, number)
            for index, group in enumerate(self.groups)
            for number in range(1, group.count + 1)
        )

    def _machine(self, group: Group, index: int, number: int) -> Machine:
        name = f"{group.name}-{number}"
        address = self.moved.get(name, f"{NETWORK}.{FIRST_HOST + GROUP_STEP * index + number - 1}")
        return Machine(
            name, group.name, group.role, address, f"i-{index + 1:02x}{number:015x}", self.provider
        )

    def with_address(self, name: str, address: str) -> Fleet:
        """The fleet with another address of one machine."""
        return replace(self, moved={**self.moved, name: address})

    def of_role(self, role: Role) -> tuple[Machine, ...]:
        """The machines that are there for something."""
        return tuple(machine for machine in self.machines if machine.role == role)

    def group(self, name: str) -> Group:
        """An instance group by name."""
        return next(group for group in self.groups if group.name == name)

"""What a configuration depends on beside the site: the release, the machines, ports and addresses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from hpctools.site.daemons import DaemonCommands
from hpctools.site.nodes import Hardware
from hpctools.slurm.versions import Release


@dataclass(frozen=True)
class Endpoint:
    """Where a daemon listens: a host name or an IP address, and a TCP port."""

    address: str
    port: int


@dataclass(frozen=True)
class Facts:
    """What was found out at the edge and is handed to `compile`; the defaults suit an ordinary cluster.

    Attributes:
        slurm_version: the installed release, for example `(22, 5, 8)`; when None the site's, or else 24.11.
        cgroup: the cgroup hierarchy on the nodes; `none` does without (no containment of jobs).
        slurm_user: the Unix account of the daemons; the site's when None.
        node_counts: nodes by group where they differ from the site's; a group with 0 leaves the partitions.
        node_endpoints: where each slurmd listens, by node; the node's name and `slurmd_port` when missing.
        node_hostnames: the host that a node runs on, by node, where it is not called like the node.
        controller_endpoints: where each slurmctld listens, by host; all on one port.
        slurmdbd_endpoint: where slurmdbd listens; the site's host and port when None.
        slurmctld_port: slurmctld's port where `controller_endpoints` does not say.
        slurmd_port: the port of slurmds that have no endpoint.
        hardware: hardware by node group where it differs from the site's.
        gpu_device: the GPUs' device files, without the number.
        made_up_gpus: the GPUs are device files without a driver: nothing can be detected, and the files of
            MIG slices that the site does not state are numbered from 1 (`hpctools.conf.detection`).
        constrain_cores: keep jobs on their CPUs (needs that the nodes really have them).
        constrain_ram: keep jobs within their memory.
        constrain_devices: hide GPUs that a job did not ask for.
        daemons: how the daemons are restarted here; as the site says when None.
        storage_password: the password of the database user; None on a Unix socket.
        extra_parameters: more lines for slurm.conf, or other values for ours, by key; "" leaves ours out.
    """

    slurm_version: Release | None = None
    cgroup: Literal["v1", "v2", "none"] = "v2"
    slurm_user: str | None = None
    node_counts: Mapping[str, int] = field(default_factory=dict)
    node_endpoints: Mapping[str, Endpoint] = field(default_factory=dict)
    node_hostnames: Mapping[str, str] = field(default_factory=dict)
    controller_endpoints: Mapping[str, Endpoint] = field(default_factory=dict)
    slurmdbd_endpoint: Endpoint | None = None
    slurmctld_port: int = 6817
    slurmd_port: int = 6818
    hardware: Mapping[str, Hardware] = field(default_factory=dict)
    gpu_device: str = "/dev/nvidia"
    made_up_gpus: bool = False
    constrain_cores: bool = True
    constrain_ram: bool = True
    constrain_devices: bool = True
    daemons: DaemonCommands | None = None
    storage_password: str | None = field(default=None, repr=False)
    extra_parameters: Mapping[str, str] = field(default_factory=dict)

"""What a sandbox is made of, read off the site: hosts, people, ports, facts and daemons."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from hpctools import conf
from hpctools.errors import SandboxError
from hpctools.sandbox import daemons, unix
from hpctools.sandbox.daemons import Daemon
from hpctools.site import Site
from hpctools.site.daemons import NODES, DaemonCommands
from hpctools.slurm.versions import Release

LOOPBACK = "127.0.0.1"
MOST_NODES = 64
RESTARTS = DaemonCommands(
    restart_slurmctld=("sandbox-restart", "slurmctld"),
    restart_slurmdbd=("sandbox-restart", "slurmdbd"),
    restart_slurmds=("sandbox-restart", "--nodes", NODES),
)


@dataclass(frozen=True)
class Blueprint:
    """A site, made small enough for one machine.

    Attributes:
        site: the site with provider `sandbox`.
        node_counts: compute nodes by node group; groups whose nodes only come and go have none here.
    """

    site: Site
    node_counts: Mapping[str, int]

    @property
    def controller(self) -> str:
        """Host name of the primary controller."""
        return self.site.cluster.controllers[0]

    @property
    def compute_hosts(self) -> tuple[str, ...]:
        """Host names of the compute nodes."""
        return tuple(n for group in self.node_counts for n in self.site.node_names(group, self))

    @property
    def login_hosts(self) -> tuple[str, ...]:
        """Host names of the login nodes."""
        groups = [g.name for g in self.site.node_groups if g.role == "login"]
        return tuple(n for group in groups for n in self.site.node_names(group))

    @property
    def persons(self) -> tuple[unix.Person, ...]:
        """Unix accounts that the site's people and our services have."""
        return unix.people(user.name for user in self.site.users())

    def port_names(self) -> tuple[str, ...]:
        """Keys of all ports that the daemons need."""
        named = [f"slurmd-{n}" for n in self.compute_hosts] + [f"sshd-{n}" for n in self.login_hosts]
        return ("slurmctld", "slurmdbd", "moto", "api", *named)

    def facts(self, ports: Mapping[str, int], cgroup: str, release: Release) -> conf.Facts:
        """The facts that the compiler needs to configure this machine as the site's cluster.

        The nodes pretend to have the cores of their instance type, so cores are counted, not bound
        (`config_overrides`, no ConstrainCores); GPUs are device nodes without a driver.
        """
        return conf.Facts(
            slurm_version=release,
            cgroup="v1" if cgroup == "v1" else "none",
            node_counts=dict(self.node_counts),
            node_endpoints={n: conf.Endpoint(LOOPBACK, ports[f"slurmd-{n}"]) for n in self.compute_hosts},
            controller_endpoints={self.controller: conf.Endpoint(LOOPBACK, ports["slurmctld"])},
            slurmdbd_endpoint=conf.Endpoint(LOOPBACK, ports["slurmdbd"]),
            extra_parameters={"SlurmdParameters": "config_overrides"},
            made_up_gpus=True,
            daemons=RESTARTS,
            constrain_cores=False,
            constrain_ram=False,
        )

    def daemons(self, ports: Mapping[str, int]) -> tuple[Daemon, ...]:
        """All daemons, each after those that it needs."""
        environment = daemons.api_environment(ports["moto"])
        central = (daemons.munged(), daemons.mariadb(), daemons.slurmdbd(), daemons.slurmctld())
        nodes = tuple(daemons.slurmd(n, n) for n in self.compute_hosts)
        logins = tuple(daemons.sshd(n, ports[f"sshd-{n}"]) for n in self.login_hosts)
        services = (daemons.moto(ports["moto"]), daemons.api(ports["api"], environment))
        placed = (*central, *nodes, *logins, *services)
        return tuple(d.on(self.controller) if not d.host else d for d in placed)


def draw(site: Site, nodes: int | None) -> Blueprint:
    """Make the blueprint.

    Args:
        site: the site as its file says.
        nodes: how many compute nodes to run; as many as the site always has when None.

    Raises:
        SandboxError: the site has no compute nodes, or too many are asked for.
    """
    local = site.model_copy(update={"cluster": site.cluster.model_copy(update={"provider": "sandbox"})})
    static = {g.name: g.count.min for g in site.node_groups if g.role == "compute"}
    return Blueprint(local, _scaled(static, nodes if nodes is not None else sum(static.values())))


def _scaled(static: Mapping[str, int], nodes: int) -> dict[str, int]:
    """Fill the groups in the site's order; what is left over goes to the first that has nodes."""
    if not static or not 1 <= nodes <= MOST_NODES:
        raise SandboxError(
            f"cannot make a sandbox of {nodes} compute nodes", f"ask for 1 to {MOST_NODES} with --nodes"
        )
    counts, left = {}, nodes
    for name, count in static.items():
        counts[name] = min(count, left)
        left -= counts[name]
    first = next((name for name, count in static.items() if count), next(iter(static)))
    counts[first] += left
    return counts


def example_site() -> Path | None:
    """The reference site, where this code comes with it."""
    path = Path(__file__).resolve().parents[2] / "slurm-conf" / "examples" / "university" / "site.yaml"
    return path if path.exists() else None

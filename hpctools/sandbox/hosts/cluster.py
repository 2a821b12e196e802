"""The machines of a cluster together: made, replaced and ended."""

from __future__ import annotations

import os
import secrets
import socket
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from hpctools.errors import SandboxError
from hpctools.sandbox import cgroups
from hpctools.sandbox.hosts import image, network
from hpctools.sandbox.hosts.machine import PATH, Host, Rack, boot
from hpctools.sandbox.hosts.plan import Fleet, Machine
from hpctools.sandbox.process import identify
from hpctools.slurm import run

SECONDS = 20.0


class Hosts:
    """Machines that run, by name.

    Args:
        fleet: which there are to be.
        rack: what they share.
    """

    def __init__(self, fleet: Fleet, rack: Rack) -> None:
        self.fleet = fleet
        self.rack = rack
        self._bundle: Path | None = None
        self._hosts: dict[str, Host] = {}

    def __getitem__(self, name: str) -> Host:
        return self._hosts[name]

    def __iter__(self) -> Iterator[Host]:
        return iter(self._hosts.values())

    def of_role(self, role: str) -> list[Host]:
        """The machines that are there for something."""
        return [host for host in self if host.machine.role == role]

    def boot(self, *machines: Machine) -> None:
        """Boot machines, several at once, as empty nodes with HyperPod's files on them.

        Raises:
            SandboxError: one does not come up.
        """
        with ThreadPoolExecutor(max_workers=4) as pool:
            for host in pool.map(self._boot, machines):
                self._hosts[host.machine.name] = host

    def _boot(self, machine: Machine) -> Host:
        host = boot(machine, self.rack)
        network.connect(self.rack.ground, host.pid1, machine.address)
        image.install(host, self.fleet)
        if self._bundle is not None:
            image.deliver(host, self._bundle)
        return host

    def deliver(self, bundle: Path) -> None:
        """Copy a lifecycle bundle to each machine, and to those that come later, as HyperPod does from S3.

        Args:
            bundle: a folder as `hpctools hyperpod bundle` makes it.
        """
        self._bundle = bundle
        for host in self:
            image.deliver(host, bundle)

    def replace(self, name: str, address: str = "") -> Host:
        """Replace a machine by an empty one of the same name, as HyperPod does.

        Args:
            name: which one.
            address: its new address, which all machines get to know by name; the old one's when empty.
        """
        old = self._hosts.pop(name)
        old.end()
        network.disconnect(self.rack.ground, old.machine.address)
        if address:
            self.fleet = self.fleet.with_address(name, address)
            for host in self:
                image.know_names(host, self.fleet)
        self.boot(next(machine for machine in self.fleet.machines if machine.name == name))
        return self[name]


@contextmanager
def hosts(bundle: Path | None = None, fleet: Fleet | None = None) -> Iterator[Hosts]:
    """Machines for the time of a `with` block; whatever becomes of us, nothing of them is left.

    Args:
        bundle: a folder as `hpctools hyperpod bundle` makes it; None for bare machines.
        fleet: which machines; a controller, two login nodes and three workers when None.

    Raises:
        SandboxError: this machine does not let us make them.
    """
    if os.geteuid() != 0:
        raise SandboxError("machines of their own need namespaces, which only root may make", "use sudo")
    fleet = fleet or Fleet()
    folder = Path(tempfile.mkdtemp(prefix="hpctools-hosts-"))
    branch = f"hosts-{secrets.token_hex(4)}"
    ours, theirs = socket.socketpair()
    ours.settimeout(SECONDS)
    with (folder / "keeper.log").open("wb") as errors:
        argv = [sys.executable, "-m", "hpctools.sandbox.hosts.keeper", branch, str(folder)]
        keeper = run.start(
            argv,
            stdout=theirs.fileno(),
            stderr=errors,
            env=_environment(),
            cwd=Path("/"),
            new_session=True,
        )
    theirs.close()
    try:
        yield _up(fleet, _rack(ours, folder, branch), bundle)
    finally:
        ours.shutdown(socket.SHUT_WR)
        while ours.recv(64):
            pass  # until the keeper has said that all is gone
        ours.close()
        keeper.wait(SECONDS)


def _rack(ours: socket.socket, folder: Path, branch: str) -> Rack:
    line = ours.recv(64).decode().strip()
    ground = identify(int(line)) if line else None
    if ground is None:
        said = (folder / "keeper.log").read_text(errors="replace").strip().splitlines()
        raise SandboxError(
            f"the machines' namespaces could not be made: {said[-1] if said else 'no reason was given'}",
            "it takes root and a kernel with namespaces",
        )
    network.lay(ground)
    rack = Rack(ground, folder, branch if cgroups.version() == "v1" else "")
    rack.shared.mkdir(mode=0o755)
    (folder / "munge.key").write_text(secrets.token_hex(64))
    folder.chmod(0o755)
    keygen = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "hosts", "-f", str(rack.key)]
    run.run(keygen, timeout=SECONDS)
    return rack


def _up(fleet: Fleet, rack: Rack, bundle: Path | None) -> Hosts:
    made = Hosts(fleet, rack)
    made.boot(*fleet.machines)
    if bundle is not None:
        made.deliver(bundle)
    return made


def _environment() -> dict[str, str]:
    return {"PATH": PATH, "LANG": "C.UTF-8", "PYTHONPATH": str(Path(__file__).resolve().parents[3])}

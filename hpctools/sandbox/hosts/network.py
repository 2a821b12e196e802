"""The machines' own network: a bridge in one network namespace, a pair of virtual cables to each machine.

Every command runs inside a network namespace that is checked not to be this machine's.
"""

from __future__ import annotations

from pathlib import Path

from hpctools.errors import SandboxError
from hpctools.sandbox.hosts.plan import GROUND_ADDRESS, PREFIX_LENGTH
from hpctools.sandbox.process import Identity
from hpctools.slurm import run

BRIDGE = "hosts"
SECONDS = 10.0


def lay(ground: Identity) -> None:
    """Make the bridge, with the first address of the network on it.

    Raises:
        SandboxError: the namespace is the machine's own, or the kernel has no bridges.
    """
    _ip(
        ground,
        "link set lo up",
        f"link add {BRIDGE} type bridge forward_delay 0",
        f"addr add {GROUND_ADDRESS}/{PREFIX_LENGTH} dev {BRIDGE}",
        f"link set {BRIDGE} up",
    )


def connect(ground: Identity, member: Identity, address: str) -> None:
    """Connect a machine to the bridge and give it its address.

    Args:
        ground: a process in the bridge's namespace.
        member: pid 1 of the machine.
        address: its IPv4 address; the last number names the cable.
    """
    cable = f"to-{address.rpartition('.')[2]}"
    # The same for each machine that has this address, one after the other: nobody's ARP cache is ever wrong.
    hardware = ":".join(f"{number:02x}" for number in (2, 0, *map(int, address.split("."))))
    _foreign(member)
    _ip(
        ground,
        f"link add {cable} type veth peer name eth0 address {hardware} netns {member.pid}",
        f"link set {cable} master {BRIDGE} up",
    )
    _ip(
        member,
        "link set lo up",
        f"addr add {address}/{PREFIX_LENGTH} dev eth0",
        "link set eth0 up",
        f"route add default via {GROUND_ADDRESS}",
    )


def disconnect(ground: Identity, address: str) -> None:
    """Pull a machine's cable, if it is still there: the kernel is late to remove those of ended machines."""
    cable = f"to-{address.rpartition('.')[2]}"
    _ip(ground, f"link delete {cable}", check=False)


def _ip(member: Identity, *lines: str, check: bool = True) -> None:
    _foreign(member)
    argv = ["nsenter", f"--target={member.pid}", "--net", "--", "ip", "-batch", "-"]
    run.run(argv, timeout=SECONDS, stdin="\n".join(lines) + "\n", check=check)


def _foreign(member: Identity) -> None:
    """Refuse to touch the network of the machine that we run on."""
    if Path(f"/proc/{member.pid}/ns/net").readlink() == Path("/proc/self/ns/net").readlink():
        raise SandboxError(f"process {member.pid} has this machine's own network", "report this as a defect")

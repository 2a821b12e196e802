"""A network of our own on which each packet takes a while: the kernel's TCP over a long line, without netem.

Packets to 127.0.0.1 are routed into a TUN device, and this process puts each back when its time is over.
So handshakes, windows and acknowledgements are the kernel's own, as with `tc netem delay` on the loopback
device.

unshare --net -- python -m bench.wire SECONDS COMMAND ...    SECONDS: one way
"""

from __future__ import annotations

import collections
import contextlib
import errno
import fcntl
import os
import select
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

TUN = Path("/dev/net/tun")
DEVICE = "delay0"
MTU = 1500
_TUNSETIFF, _IFF_TUN, _IFF_NO_PI = 0x400454CA, 0x0001, 0x1000  # linux/if_tun.h
_SETTINGS = {f"{DEVICE}/route_localnet": 1, f"{DEVICE}/accept_local": 1, "all/rp_filter": 0}
# What is sent from here asks table 100 first; what comes out of the device finds 127.0.0.1 to be here.
_ROUTES = f"""\
ip link set lo up && ip link set {DEVICE} up mtu {MTU} &&
ip route add 127.0.0.1 dev {DEVICE} src 127.0.0.1 table 100 &&
ip rule add pref 10 iif lo to 127.0.0.1 lookup 100 &&
ip rule add pref 100 lookup local && ip rule del pref 0
"""


def lay() -> int:
    """Lead all packets to 127.0.0.1 of this network through a device; its file descriptor."""
    device = os.open(TUN, os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(device, _TUNSETIFF, struct.pack("16sH22x", DEVICE.encode(), _IFF_TUN | _IFF_NO_PI))
    for key, value in _SETTINGS.items():
        Path("/proc/sys/net/ipv4/conf", key).write_text(str(value))
    subprocess.run(["sh", "-c", _ROUTES], check=True)
    return device


def hold_back(device: int, seconds: float) -> None:
    """Put each packet back after so long, in the order in which they came; never ends."""
    held: collections.deque[tuple[float, bytes]] = collections.deque()
    while True:
        wait = max(0.0, held[0][0] - time.monotonic()) if held else None
        if select.select([device], [], [], wait)[0]:
            held.extend((time.monotonic() + seconds, packet) for packet in _waiting(device))
        while held and held[0][0] <= time.monotonic():
            os.write(device, held.popleft()[1])


def _waiting(device: int) -> Iterator[bytes]:
    with contextlib.suppress(BlockingIOError):
        while True:
            yield os.read(device, 2 * MTU)


def _is_in_use() -> bool:
    """Whether this is no network that was made for us: in that nothing leads anywhere yet."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as looked:
        try:
            looked.connect(("127.0.0.1", 9))  # which sends nothing
        except OSError as error:
            return error.errno != errno.ENETUNREACH
    return True


def main(argv: Sequence[str]) -> int:
    """Run a command over the line; its exit code."""
    usage = "unshare --net -- python -m bench.wire SECONDS COMMAND ..."
    try:
        seconds, command = float(argv[0]), list(argv[1:])
    except (IndexError, ValueError):
        seconds, command = 0.0, []
    if not command:
        print(f"bench.wire: seconds and a command are missing: {usage}", file=sys.stderr)
        return 2
    if _is_in_use():
        print(f"bench.wire: this network is in use and stays as it is: {usage}", file=sys.stderr)
        return 2
    line = lay()
    threading.Thread(target=hold_back, args=(line, seconds), daemon=True).start()
    return subprocess.run(command, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

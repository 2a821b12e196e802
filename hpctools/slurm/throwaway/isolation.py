"""A view of the machine that nothing leads out of and nothing can be written to: for pid 1 of its namespaces.

Linux only: mount(2), mount_setattr(2), netdevice(7).
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import ipaddress
import os
import socket
import struct
from collections.abc import Iterable
from pathlib import Path

from hpctools.slurm.throwaway.resolver import HERE

_MS_BIND, _MS_REC = 4096, 16384
_SYS_MOUNT_SETATTR, _AT_FDCWD, _AT_RECURSIVE, _MOUNT_ATTR_RDONLY = 442, -100, 0x8000, 1
_SIOCGIFFLAGS, _SIOCSIFFLAGS, _SIOCSIFADDR, _SIOCSIFNETMASK, _IFF_UP = 0x8913, 0x8914, 0x8916, 0x891C, 1
_ADDRESS_OF_OURS = "198.51.100.1"  # getaddrinfo wants one that is not loopback (AI_ADDRCONFIG); RFC 5737
_libc = ctypes.CDLL(None, use_errno=True)


def _mount(source: str, target: str, kind: str = "", flags: int = 0) -> None:
    if _libc.mount(source.encode(), target.encode(), kind.encode(), flags, None) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), target)


def bind(source: Path, target: Path) -> None:
    """Show a file or a folder in another place."""
    _mount(str(source), str(target), flags=_MS_BIND | _MS_REC)


def freeze() -> bool:
    """Make everything that is mounted read-only; whether the kernel could (Linux 5.12)."""
    attributes = struct.pack("QQQQ", _MOUNT_ATTR_RDONLY, 0, 0, 0)
    buffer = ctypes.create_string_buffer(attributes, len(attributes))
    code = _libc.syscall(_SYS_MOUNT_SETATTR, _AT_FDCWD, b"/", _AT_RECURSIVE, buffer, len(attributes))
    return bool(code == 0)


def fresh_view(root: Path) -> None:
    """Give the inside its own /run, in memory, and its own /proc; the rest stays, read-only.

    Raises:
        OSError: the kernel does not let us.
    """
    freeze()
    _mount("tmpfs", str(root / "run"), "tmpfs")
    if root != Path("/"):
        bind(Path("/dev"), root / "dev")
    with contextlib.suppress(OSError):  # a container may forbid it, and the old one does
        _mount("proc", str(root / "proc"), "proc")


def own_names(root: Path, private: Path) -> None:
    """Let names be looked up with the name server on the loopback interface alone."""
    switch = root / "etc/nsswitch.conf"
    if switch.exists():
        lines = switch.read_text(errors="replace").splitlines()
        kept = [line for line in lines if not line.lstrip().startswith("hosts")]
        (private / "nsswitch.conf").write_text("\n".join([*kept, "hosts: dns", ""]))
        bind(private / "nsswitch.conf", switch)
    place = root / "etc/resolv.conf"
    if place.is_symlink():
        target = place.readlink()
        place = root / str(target).lstrip("/") if target.is_absolute() else place.parent / target
        place = Path(os.path.normpath(place))
    if place.is_relative_to(root / "run"):
        place.parent.mkdir(parents=True, exist_ok=True)
        place.touch()
    if place.exists():  # without one glibc asks 127.0.0.1 (resolver(5))
        (private / "resolv.conf").write_text(f"nameserver {HERE}\n")
        bind(private / "resolv.conf", place)


def own_network(addresses: Iterable[str]) -> None:
    """Wake the loopback interface, and give it the numeric ones of these addresses."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as door:
        flags = struct.unpack_from("16xh", fcntl.ioctl(door, _SIOCGIFFLAGS, struct.pack("16s16x", b"lo")))[0]
        fcntl.ioctl(door, _SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", flags | _IFF_UP))
        for number, address in enumerate([_ADDRESS_OF_OURS, *filter(_is_ipv4, addresses)], 1):
            if not address.startswith("127."):
                _add(door, f"lo:{number}".encode(), address)


def _add(door: socket.socket, name: bytes, address: str) -> None:
    for request, value in ((_SIOCSIFADDR, address), (_SIOCSIFNETMASK, "255.255.255.255")):
        place = struct.pack("16sH2x4s8x", name, socket.AF_INET, socket.inet_aton(value))
        fcntl.ioctl(door, request, place)


def _is_ipv4(text: str) -> bool:
    try:
        return ipaddress.ip_address(text).version == 4
    except ValueError:
        return False

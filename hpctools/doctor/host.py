"""This host's part of a snapshot: files, daemons, names. Root sees all; others are told what they miss."""

from __future__ import annotations

import contextlib
import ipaddress
import os
import pwd
import re
import socket
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from datetime import datetime
from pathlib import Path

from hpctools.conf.mounts import mount_of
from hpctools.doctor.conf_lines import includes
from hpctools.doctor.installation import ConfFile, LocalDaemon, Secret, StateFolder
from hpctools.errors import HpctoolsError

SUFFIXES = (".conf", ".yaml", ".key")
LOG_BYTES = 4 * 1024**2
RESOLVE_SECONDS = 20.0
DAEMONS = ("slurmctld", "slurmdbd", "slurmd")
MUNGE_KEY = Path("/etc/munge/munge.key")
# Where slurmctld begins to speak of what it has just read.
_BEGINNINGS = re.compile(
    r"slurmctld version \S+ started|Processing Reconfiguration Request|SIGHUP\) received"
)


def files(folder: Path) -> tuple[ConfFile, ...]:
    """The configuration folder's files, and what they include.

    Raises:
        OSError: the folder is not there, or may not be entered.
        HpctoolsError: it is not where the configuration is.
    """
    if not (folder / "slurm.conf").exists():
        raise HpctoolsError(f"{folder} holds no slurm.conf", "name the configuration's folder with --folder")
    found = {
        path.name: _file(path, path.name) for path in sorted(folder.iterdir()) if path.suffix in SUFFIXES
    }
    waiting = [name for file in found.values() for name in includes(file)]
    while waiting:
        name = waiting.pop()
        if name not in found:
            found[name] = _file(folder / name, name)
            waiting += includes(found[name])
    return tuple(found.values())


def _file(path: Path, name: str) -> ConfFile:
    try:
        there = path.stat()
    except FileNotFoundError:
        return ConfFile(name, None, there=False)
    secret = path.suffix == ".key"
    return ConfFile(
        name,
        None if secret else _text(path),
        True,
        _owner(there.st_uid),
        there.st_mode & 0o7777,
        there.st_mtime,
    )


def _text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None


def _owner(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def secrets() -> tuple[Secret, ...]:
    """munge's key, if this host has one.

    Raises:
        PermissionError: its folder may not be entered.
    """
    try:
        there = MUNGE_KEY.stat()
    except FileNotFoundError:
        return ()
    return (Secret(str(MUNGE_KEY), _owner(there.st_uid), there.st_mode & 0o7777),)


def state(path: Path) -> StateFolder:
    """StateSaveLocation as it lies here.

    Raises:
        OSError: it is not on this host, or may not be seen.
    """
    there, room = path.stat(), os.statvfs(path)
    return StateFolder(
        path=str(path),
        owner=_owner(there.st_uid),
        mode=there.st_mode & 0o7777,
        free_bytes=room.f_bavail * room.f_frsize,
        free_inodes=room.f_favail if room.f_files else None,
        kind=mount_of(path).kind,
    )


def state_of(path: Path) -> str:
    """The cluster that the state in a folder belongs to; newer releases write its id behind the name.

    Raises:
        OSError: the folder is not on this host, or may not be entered.
    """
    path.stat()
    try:
        return (path / "clustername").read_text().strip().partition("|")[0]
    except FileNotFoundError:
        return ""


def log(path: Path) -> tuple[str, ...]:
    """slurmctld's log since it last read its configuration, of the last 4 MiB.

    Raises:
        OSError: it is not on this host, or may not be read.
    """
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - LOG_BYTES))
        lines = file.read().decode(errors="replace").splitlines()
    starts = [number for number, line in enumerate(lines) if _BEGINNINGS.search(line)]
    return tuple(lines[starts[-1] :] if starts else lines)


def beginning(log: Sequence[str]) -> float | None:
    """When what a log tells of began, Unix seconds; None when its first line is no beginning, or has no time.

    LogTimeFormat is iso8601 or iso8601_ms in slurmctld's own time, unless a site has changed it.
    """
    first = log[0] if log else ""
    stamp = re.match(r"\[(\d{4}-\d\d-\d\dT[\d:.]+)\]", first)
    if stamp is None or not _BEGINNINGS.search(first):
        return None
    return datetime.fromisoformat(stamp[1]).timestamp()


def daemons() -> tuple[LocalDaemon, ...]:
    """Slurm's daemons that run here, by name and pid."""
    return tuple(sorted(_daemons(), key=lambda daemon: (daemon.name, daemon.pid)))


def _daemons() -> Iterator[LocalDaemon]:
    for folder in Path("/proc").glob("[0-9]*"):
        # It may end while we look.
        with contextlib.suppress(FileNotFoundError, ProcessLookupError, PermissionError):
            # Debian's programs are called slurmd-wlm and so on, and later releases run by that name.
            name = (folder / "comm").read_text().strip().removesuffix("-wlm")
            if name in DAEMONS:
                limits = (folder / "limits").read_text()
                files, memory = (_hard(limits, each) for each in ("Max open files", "Max locked memory"))
                yield LocalDaemon(name, int(folder.name), files, memory)


def _hard(limits: str, name: str) -> int | None:
    found = re.search(rf"^{name}\s+\S+\s+(\S+)", limits, re.MULTILINE)
    return int(found[1]) if found and found[1].isdecimal() else None


def unresolved(addresses: Iterable[str]) -> tuple[str, ...]:
    """Names that do not resolve here within 20 s for all of them."""
    names = sorted({name for name in addresses if not _is_number(name)})
    pool = ThreadPoolExecutor(max_workers=32)
    asked = {pool.submit(_resolves, name): name for name in names}
    done, late = wait(asked, timeout=RESOLVE_SECONDS)
    pool.shutdown(wait=False, cancel_futures=True)
    return tuple(sorted([asked[each] for each in done if not each.result()] + [asked[each] for each in late]))


def _is_number(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _resolves(name: str) -> bool:
    try:
        return bool(socket.getaddrinfo(name, None))
    except (OSError, UnicodeError):
        return False


def adopts(folder: Path = Path("/etc/pam.d")) -> tuple[str, ...]:
    """PAM stacks that call pam_slurm_adopt."""
    if not folder.is_dir():
        return ()
    calls = re.compile(r"^[^#\n]*pam_slurm_adopt", re.MULTILINE)
    return tuple(str(path) for path in sorted(folder.iterdir()) if calls.search(_text(path) or ""))


def strangers(users: Iterable[str]) -> tuple[str, ...]:
    """Users that this host does not know."""
    return tuple(name for name in sorted(set(users)) if not _known(name))


def _known(name: str) -> bool:
    try:
        pwd.getpwnam(name)
    except KeyError:
        return False
    return True


def paths(named: Sequence[str], running: Sequence[LocalDaemon]) -> dict[str, bool]:
    """Whether folders are there, if this host is a compute node; else nothing is said of them."""
    if not any(daemon.name == "slurmd" for daemon in running):
        return {}
    return {name: Path(name).is_dir() for name in named if name}


def rdma() -> bool:
    """Whether this host has RDMA devices (InfiniBand, RoCE, EFA)."""
    folder = Path("/sys/class/infiniband")
    return folder.is_dir() and any(folder.iterdir())

"""Limits of people on this node, as the kernel is told: by systemd's slices, or in cgroups of our own."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Protocol

from hpctools.errors import HpctoolsError
from hpctools.login.agent.processes import PROC, Process
from hpctools.login.care import Limits
from hpctools.slurm.run import run

SYSTEMD = Path("/run/systemd/system")
CGROUPS = Path("/sys/fs/cgroup")
CONTROL = Path("/run/systemd/system.control")
_log = logging.getLogger("hpctools.login")
_SECONDS = 10.0
_RELOAD_SECONDS = 60.0
_PERIOD = 100_000
"""Microseconds over which processors are counted."""


class Slices(Protocol):
    """Where a person's limits are kept."""

    @property
    def adopts(self) -> bool:
        """Whether what a person starts later gets into the limits by itself."""
        ...

    @property
    def holds_memory(self) -> bool:
        """Whether the kernel slows down who goes above `memory_high`; cgroup v1 does not."""
        ...

    def limit(self, uid: int, limits: Limits, processes: Iterable[Process]) -> None:
        """Make these a person's limits until the next ones or a restart of the node.

        Args:
            processes: theirs, for those who have to be put where the limits count.

        Raises:
            HpctoolsError, OSError: it cannot be done.
        """

    def lift(self, uids: Iterable[int]) -> Mapping[int, Exception]:
        """Lift all limits of these people; of whom it cannot be done, and why."""
        ...

    def left(self) -> Collection[int]:
        """Whom this agent, or one before it, has limited, as far as that can be seen."""
        ...

    def outside(self, uid: int, processes: Iterable[Process]) -> tuple[Process, ...]:
        """Those of a person's processes that their limits do not reach, and that are in no job of Slurm's."""
        ...


def find_slices(systemd: Path = SYSTEMD, cgroups: Path = CGROUPS) -> Slices:
    """systemd where it is in charge, else the kernel's own folders."""
    if systemd.is_dir():
        return SystemdSlices(cgroups=cgroups)
    return CgroupTwo(cgroups) if _is_two(cgroups) else CgroupOne(cgroups)


def _is_two(cgroups: Path) -> bool:
    return (cgroups / "cgroup.controllers").exists()


@dataclass(frozen=True)
class SystemdSlices:
    """user-UID.slice, in which logind puts all that a person runs.

    Only what is limited is set, and what is lifted is taken back, so that the site's own limits count again
    (docs/decisions/0196).

    Attributes:
        control: where systemd writes what `set-property --runtime` told it.
        cgroups: where the kernel shows them.
    """

    control: Path = CONTROL
    cgroups: Path = CGROUPS
    adopts: ClassVar[bool] = True

    @property
    def holds_memory(self) -> bool:
        """See `Slices`; MemoryHigh is there for cgroup v2 only."""
        return _is_two(self.cgroups)

    def limit(self, uid: int, limits: Limits, processes: Iterable[Process]) -> None:
        """See `Slices`; systemd has the processes already."""
        values = _properties(limits)
        wanted = {name: value for name, value in values.items() if value is not None}
        folder = self._folder(uid)
        if wanted:
            _pin(folder, wanted)
        if _removed(uid, folder, [name for name in values if name not in wanted], pinned=not wanted):
            _read_again([folder])
        if wanted:
            run(set_property(uid, limits), timeout=_SECONDS)

    def lift(self, uids: Iterable[int]) -> Mapping[int, Exception]:
        """See `Slices`; systemd, which takes its time for it, reads its files once for all of them."""
        failed: dict[int, Exception] = {}
        changed: dict[int, Path] = {}
        for uid in uids:
            try:
                if _removed(uid, self._folder(uid), list(_UNLIMITED), pinned=True):
                    changed[uid] = self._folder(uid)
            except (HpctoolsError, OSError) as error:
                failed[uid] = error
        try:
            _read_again(changed.values())
        except (HpctoolsError, OSError) as error:
            failed |= dict.fromkeys(changed, error)
        return failed

    def left(self) -> Collection[int]:
        """See `Slices`: who has a file of our own, which is there before the limit is, and after it."""
        ours = [file for name in (_PINNED, _UNREAD) for file in self.control.glob(f"user-*.slice.d/{name}")]
        people = {each.parent.name.removeprefix("user-").removesuffix(".slice.d") for each in ours}
        return sorted(int(uid) for uid in people if uid.isdecimal())

    def outside(self, uid: int, processes: Iterable[Process]) -> tuple[Process, ...]:
        """See `Slices`; of Session Manager's sessions logind knows nothing, so they stay in its service."""
        return tuple(each for each in processes if _is_elsewhere(each.pid, uid))

    def _folder(self, uid: int) -> Path:
        return self.control / f"user-{uid}.slice.d"


def _removed(uid: int, folder: Path, names: Iterable[str], *, pinned: bool) -> bool:
    """Remove files of what is no longer limited; whether systemd has to read what is left.

    Args:
        names: of properties.
        pinned: the file of our own, too.
    """
    files = {name: folder / f"50-{name}.conf" for name in names}
    files |= {_PINNED: folder / _PINNED} if pinned else {}
    there = {name: file for name, file in files.items() if file.exists()}
    unread = folder / _UNREAD
    if not there and not unread.exists():
        return False
    try:
        unread.touch()
        for file in there.values():
            file.unlink(missing_ok=True)
    except OSError as error:
        # A unit from before it could write here: no limit is better than one that never ends.
        _log.warning("%s; limits are set to none. Copy the new hp-login-agent.service", error)
        unlimited = [f"{name}={_UNLIMITED[name]}" for name in there if name in _UNLIMITED]
        run(_set(uid, unlimited), timeout=_SECONDS)
        return False
    return True


def _read_again(folders: Collection[Path]) -> None:
    """Have systemd read its files, where something was removed from some of them."""
    if folders:
        run(["systemctl", "daemon-reload"], timeout=_RELOAD_SECONDS)
    for folder in folders:
        (folder / _UNREAD).unlink(missing_ok=True)


_PINNED = "zz-hpctools-login.conf"
_UNREAD = ".hpctools-login.unread"
"""There while systemd does not know yet of files that were removed; it takes nothing for settings that does
not end in `.conf`."""


def _pin(folder: Path, values: Mapping[str, str]) -> None:
    """Have limits count also when systemd reads its files anew, after those of the site's.

    Files of a unit's are read in the order of their names, wherever they are: the 50-CPUQuota.conf of
    `set-property` before an override.conf for all people.
    """
    lines = "".join(f"{name}={value}\n" for name, value in values.items())
    new = folder / f".{_PINNED}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        new.write_text(f"# Made by hp-login-agent, and removed by it when the limit ends.\n[Slice]\n{lines}")
        new.replace(folder / _PINNED)
    except OSError as error:
        _log.warning(
            "%s: %s; a daemon-reload ends the limit where the site has one of its own. Copy the new "
            "hp-login-agent.service", folder, error
        )  # fmt: skip


_UNLIMITED = {"CPUQuota": "", "MemoryHigh": "infinity", "MemoryMax": "infinity"}


def _properties(limits: Limits) -> dict[str, str | None]:
    quota = f"{max(1, round(limits.cpus * 100))}%" if limits.cpus is not None else None
    high, most = (
        str(size) if size is not None else None for size in (limits.memory_high, limits.memory_most)
    )
    return {"CPUQuota": quota, "MemoryHigh": high, "MemoryMax": most}


def set_property(uid: int, limits: Limits) -> list[str]:
    """The command that sets what is limited, and names nothing else."""
    return _set(uid, [f"{name}={value}" for name, value in _properties(limits).items() if value is not None])


def _set(uid: int, values: list[str]) -> list[str]:
    return ["systemctl", "set-property", "--runtime", f"user-{uid}.slice", *values]


def held(uid: int, cgroups: Path = CGROUPS) -> int | None:
    """Bytes that all in a person's slice hold, what they share counted once; None where systemd has no such.

    Without files that the kernel only keeps in memory as long as nobody needs it (cgroup v2's memory.stat).
    """
    try:
        lines = (cgroups / "user.slice" / f"user-{uid}.slice" / "memory.stat").read_text().splitlines()
        found = {name: int(size) for name, size in (line.split() for line in lines)}
        return found["anon"] + found["shmem"]
    except (OSError, ValueError, KeyError):
        return None


@dataclass(frozen=True)
class CgroupTwo:
    """Folders of cgroup v2."""

    root: Path = CGROUPS
    adopts: ClassVar[bool] = False
    holds_memory: ClassVar[bool] = True

    def limit(self, uid: int, limits: Limits, processes: Iterable[Process]) -> None:
        """See `Slices`."""
        folder = self.root / "hpctools-login" / f"user-{uid}"
        folder.mkdir(parents=True, exist_ok=True)
        for parent in (self.root, folder.parent):
            (parent / "cgroup.subtree_control").write_text("+cpu +memory")
        (folder / "cpu.max").write_text(f"{_quota(limits.cpus) or 'max'} {_PERIOD}")
        (folder / "memory.high").write_text(_bytes(limits.memory_high, "max"))
        (folder / "memory.max").write_text(_bytes(limits.memory_most, "max"))
        _move(folder, processes)

    def lift(self, uids: Iterable[int]) -> Mapping[int, Exception]:
        """See `Slices`."""
        return _lifted_each(self, uids)

    def left(self) -> Collection[int]:
        """See `Slices`; folders stay, whoever is limited."""
        return ()

    def outside(self, uid: int, processes: Iterable[Process]) -> tuple[Process, ...]:
        """See `Slices`; all are put there."""
        return ()


@dataclass(frozen=True)
class CgroupOne:
    """Folders of cgroup v1, which has no limit that slows down for want of memory."""

    root: Path = CGROUPS
    adopts: ClassVar[bool] = False
    holds_memory: ClassVar[bool] = False

    def limit(self, uid: int, limits: Limits, processes: Iterable[Process]) -> None:
        """See `Slices`."""
        theirs = tuple(processes)
        for controller in ("cpu", "memory"):
            folder = self.root / controller / "hpctools-login" / f"user-{uid}"
            folder.mkdir(parents=True, exist_ok=True)
            if controller == "cpu":
                (folder / "cpu.cfs_period_us").write_text(str(_PERIOD))
                (folder / "cpu.cfs_quota_us").write_text(str(_quota(limits.cpus) or -1))
            else:
                (folder / "memory.soft_limit_in_bytes").write_text(_bytes(limits.memory_high, "-1"))
                (folder / "memory.limit_in_bytes").write_text(_bytes(limits.memory_most, "-1"))
            _move(folder, theirs)

    def lift(self, uids: Iterable[int]) -> Mapping[int, Exception]:
        """See `Slices`."""
        return _lifted_each(self, uids)

    def left(self) -> Collection[int]:
        """See `Slices`; folders stay, whoever is limited."""
        return ()

    def outside(self, uid: int, processes: Iterable[Process]) -> tuple[Process, ...]:
        """See `Slices`; all are put there."""
        return ()


def _lifted_each(slices: Slices, uids: Iterable[int]) -> Mapping[int, Exception]:
    failed: dict[int, Exception] = {}
    for uid in uids:
        try:
            slices.limit(uid, Limits(), ())
        except (HpctoolsError, OSError) as error:
            failed[uid] = error
    return failed


def _quota(cpus: float | None) -> int | None:
    return max(1000, round(cpus * _PERIOD)) if cpus is not None else None


def _bytes(size: int | None, unlimited: str) -> str:
    return str(size) if size is not None else unlimited


def _move(folder: Path, processes: Iterable[Process]) -> None:
    """Put processes there; children of theirs are born there. What is in a job of Slurm's stays in it."""
    present = set((folder / "cgroup.procs").read_text().split())
    for process in processes:
        if str(process.pid) not in present and not in_job(process.pid):
            with suppress(OSError):  # it has ended
                (folder / "cgroup.procs").write_text(str(process.pid))


def in_job(pid: int, proc: Path = PROC) -> bool:
    """Whether a process belongs to a job, whose cgroups are Slurm's."""
    return is_a_jobs(cgroups_of(pid, proc))


def is_a_jobs(cgroups: str) -> bool:
    """Whether some of a process's cgroups are ones that Slurm makes for a job.

    From 26.05 on cgroup v2's path has the job's SLUID in place of `job_ID`.
    """
    return "/job_" in cgroups or "slurmstepd.scope/" in cgroups


def _is_elsewhere(pid: int, uid: int) -> bool:
    """Whether a process that lives is neither in the person's slice nor in a job."""
    found = cgroups_of(pid, PROC)
    return bool(found) and f"/user-{uid}.slice/" not in found and not is_a_jobs(found)


def cgroups_of(pid: int, proc: Path) -> str:
    """Where the kernel has a process, a line for each hierarchy; empty when it has ended.

    People may name cgroups of their own, with any bytes.
    """
    try:
        return (proc / str(pid) / "cgroup").read_text(errors="replace")
    except OSError:
        return ""

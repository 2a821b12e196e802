"""Where the old parts of a state wait while new ones come: in memory, on a local disk, in the shared folder.

Both must be there for a moment. What memory is free is asked of the kernel and of the job's cgroups; when it
is not enough for the new parts, the old ones are moved to files that stay mapped, so that what sends them
does not notice.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from hpctools.errors import ElasticError

MEMORY, LOCAL, SHARED = "memory", "local disk", "shared folder"
MARGIN = 1.25
"""Room is wanted for so many times the new parts: receive buffers, and the training's own work."""
IN_MEMORY_FILE_SYSTEMS = ("tmpfs", "ramfs")
ALIGNMENT = 64


@dataclass(frozen=True)
class Place:
    """A folder that parts may wait in.

    Attributes:
        kind: LOCAL or SHARED.
        free: bytes.
    """

    kind: str
    folder: Path
    free: int


@dataclass(frozen=True)
class Seen:
    """What room there is: looked at before any worker of this node fills or empties it.

    Attributes:
        memory: bytes that are free; the workers of a node share them.
        places: in the order in which they are preferred.
        device: what there is on the GPU that has the parts; None: they are in the host's memory.
    """

    memory: int = 0
    places: Sequence[Place] = ()
    device: Device | None = None


@dataclass(frozen=True)
class Device:
    """What there is on this process's GPU, in bytes.

    Attributes:
        free: of nobody's, and of what torch keeps for this process and does not use.
        work: what steps needed at most beside the state; more where an earlier resize needed more.
        workers: that share it.
    """

    free: int
    work: int
    workers: int = 1


@dataclass(frozen=True)
class Old:
    """Bytes of the parts that are to wait.

    Attributes:
        here: of all workers of this node, which share its memory and its disks.
        everywhere: of those of all nodes, which share the run's folder.
    """

    here: int
    everywhere: int

    @classmethod
    def of(cls, own: int, workers_per_node: int, holders: int) -> Old:
        """Of one worker's own; `holders`: how many workers hold parts."""
        return cls(own * min(workers_per_node, holders), own * holders)

    def at(self, place: Place) -> int:
        """How many of them a place has to hold."""
        return self.everywhere if place.kind == SHARED else self.here


@dataclass(frozen=True)
class Waiting:
    """Where the old parts wait.

    Attributes:
        medium: MEMORY, LOCAL or SHARED.
        folder: None in memory.
        lack: what is missing, and what to do about it; empty: there is room.
    """

    medium: str
    folder: Path | None = None
    lack: str = ""


def choose(new_bytes: int, old: Old, free_memory: int, places: Sequence[Place]) -> Waiting:
    """Where the old parts wait; pure.

    What is free is an estimate, and wanted with a margin. So where nothing has room the training goes on as
    well as it can: the old parts go to a place that holds them, though memory is short even then, or stay.

    Args:
        new_bytes: of the parts that are to come, of all workers of this node that share the memory.
        places: in the order in which they are preferred.
    """
    if free_memory >= MARGIN * new_bytes:
        return Waiting(MEMORY)
    holding = next((each for each in places if each.free >= old.at(each)), None)
    if holding is not None and free_memory + old.here >= MARGIN * new_bytes:
        return Waiting(holding.kind, holding.folder)
    lack = _lack(new_bytes, old, free_memory, places)
    return Waiting(MEMORY, None, lack) if holding is None else Waiting(holding.kind, holding.folder, lack)


def _lack(new_bytes: int, old: Old, free_memory: int, places: Sequence[Place]) -> str:
    return (
        f"a resize needs room for {old.here >> 20} MiB of old and {new_bytes >> 20} MiB of new shards of "
        f"this node's workers (in the run folder, for {old.everywhere >> 20} MiB of all old ones); there are "
        f"{free_memory >> 20} MiB of memory{found_in(places)}. It is tried all the same: who runs out of "
        "memory is killed, and the training goes back to what is saved. Ask for more memory (--mem) or more "
        "nodes, or set SLURM_TMPDIR to a disk with room"
    )


def found_in(places: Sequence[Place]) -> str:
    """What room the places have, to be added to a sentence."""
    return "".join(f", {each.free >> 20} MiB in {each.folder}" for each in places)


def look(shared: Path | None) -> Seen:
    """What room there is at present, `shared` being the folder of all nodes."""
    return Seen(free_memory(), places(shared))


def free_memory(proc: Path = Path("/proc"), cgroups: Path = Path("/sys/fs/cgroup")) -> int:
    """Bytes that this process may still use: of the node's, and of its cgroups'.

    Files that the kernel only keeps in memory as long as nobody needs it count as free.

    Args:
        proc, cgroups: where the kernel tells.
    """
    return min([_available(proc / "meminfo"), *_of_cgroups(proc / "self/cgroup", cgroups)])


def places(shared: Path | None, environ: Mapping[str, str] = os.environ) -> list[Place]:
    """Folders that parts may wait in: the job's local one, that for temporary files, the run's own."""
    local = dict.fromkeys([environ.get("SLURM_TMPDIR", ""), environ.get("TMPDIR", ""), tempfile.gettempdir()])
    found = [_place(LOCAL, Path(each)) for each in local if each]
    found += [_place(SHARED, shared)] if shared is not None else []
    return [each for each in found if each is not None]


def moved_out(tensors: Mapping[str, torch.Tensor], folder: Path) -> dict[str, torch.Tensor]:
    """The tensors in a file that is mapped; their own memory is given back.

    The file has no name any more, so that it goes when the tensors do, or with the process.

    Raises:
        ElasticError: it cannot be written.
    """
    sizes = [-(-each.numel() * each.itemsize // ALIGNMENT) * ALIGNMENT for each in tensors.values()]
    try:
        handle, name = tempfile.mkstemp(prefix="hpctools-shards-", dir=folder)
        try:
            os.posix_fallocate(handle, 0, max(1, sum(sizes)))
            mapped = torch.from_file(name, shared=True, size=max(1, sum(sizes)), dtype=torch.uint8)
        finally:
            os.close(handle)
            Path(name).unlink()
    except (OSError, RuntimeError) as error:
        raise ElasticError(
            f"cannot move shards to {folder}: {error}", "free space or quota there, or ask for more memory"
        ) from None
    return dict(_refilled(tensors, torch.split(mapped, sizes)))


def _refilled(
    tensors: Mapping[str, torch.Tensor], rooms: Sequence[torch.Tensor]
) -> Iterator[tuple[str, torch.Tensor]]:
    for (name, tensor), room in zip(tensors.items(), rooms, strict=True):
        moved = room[: tensor.numel() * tensor.itemsize].view(tensor.dtype).view(tensor.shape)
        moved.copy_(tensor)
        yield name, moved


def _available(path: Path) -> int:
    for line in path.read_text().splitlines():
        name, _, value = line.partition(":")
        if name == "MemAvailable":
            return int(value.split()[0]) << 10
    raise ElasticError(f"{path} does not tell how much memory is available")


@dataclass(frozen=True)
class _Accounts:
    """How a version of cgroups names what it tells of memory: files, and lines of memory.stat."""

    limit: str
    usage: str
    cached: tuple[str, ...]


_ONE = _Accounts(
    "memory.limit_in_bytes", "memory.usage_in_bytes", ("total_inactive_file", "total_active_file")
)
_TWO = _Accounts("memory.max", "memory.current", ("inactive_file", "active_file"))
# What is shared or in a tmpfs, which nobody can drop, is among the anonymous ones there.


def _of_cgroups(path: Path, root: Path) -> Iterator[int]:
    """What each limit above us leaves, in versions 1 and 2 of cgroups."""
    for line in path.read_text().splitlines():
        _, controllers, group = line.split(":", 2)
        if not controllers:
            yield from _left(root, group, _TWO)
        elif "memory" in controllers.split(","):
            yield from _left(root / "memory", group, _ONE)


def _left(root: Path, group: str, accounts: _Accounts) -> Iterator[int]:
    folder = root / group.lstrip("/")
    for each in (folder, *folder.parents):
        if not each.is_relative_to(root):
            return
        try:
            most, used = (each / accounts.limit).read_text().strip(), int((each / accounts.usage).read_text())
        except (OSError, ValueError):
            continue  # the root has none, and a container may not see those above it
        if most != "max":
            yield max(0, int(most) - max(0, used - _cached(each, accounts)))


def _cached(folder: Path, accounts: _Accounts) -> int:
    """Bytes of files that a group has in memory and that the kernel drops when it needs them; else 0."""
    try:
        lines = (folder / "memory.stat").read_text().splitlines()
        found = {name: int(size) for name, size in (line.split() for line in lines)}
    except (OSError, ValueError):
        return 0
    return sum(found.get(name, 0) for name in accounts.cached)


def _place(kind: str, folder: Path) -> Place | None:
    try:
        usage = os.statvfs(folder)
    except OSError:
        return None
    if kind == LOCAL and _file_system(folder) in IN_MEMORY_FILE_SYSTEMS:
        return None
    return Place(kind, folder, usage.f_bavail * usage.f_frsize)


def _file_system(folder: Path) -> str:
    """The type of the file system that a folder is on."""
    path, best, kind = str(folder.resolve()), "", ""
    for line in Path("/proc/self/mounts").read_text().splitlines():
        _, where, what, *_ = line.split(" ")
        inside = path == where or path.startswith(where.rstrip("/") + "/")
        if inside and len(where) >= len(best):
            best, kind = where, what
    return kind

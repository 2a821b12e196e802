"""File systems: mounted now, and after a reboot."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from provision.failures import Failure
from provision.files import on_node, write_whole
from provision.processes import call
from provision.step import Context

FSTAB = "/etc/fstab"
MARK = "# hpctools: the next line is kept by the lifecycle scripts"
MOUNT_SECONDS = 60.0
OPTIONS = {
    "lustre": ("noatime", "flock", "_netdev", "nofail"),
    "nfs": ("nfsvers=4.1", "hard", "timeo=600", "retrans=2", "noresvport", "_netdev", "nofail"),
}


@dataclass(frozen=True)
class Mount:
    """One file system.

    Attributes:
        source: `HOST:/FOLDER`, or `HOST@tcp:/NAME`.
        path: where it is mounted.
        kind: nfs or lustre.
        options: mount options.
    """

    source: str
    path: str
    kind: str
    options: tuple[str, ...]

    @property
    def line(self) -> str:
        """Its line of /etc/fstab; with `nofail` a node without the server still boots as far as ssh."""
        return f"{self.source} {self.path} {self.kind} {','.join(self.options)} 0 0"


def wanted(context: Context, *, required: bool) -> tuple[Mount, ...]:
    """The mounts of this node's role, outer folders before those in them."""
    found = [
        Mount(one["source"], one["path"], one["kind"], tuple(one.get("options") or OPTIONS[one["kind"]]))
        for one in context.settings.section("mounts") or ()
        if context.role in one["roles"] and one["required"] is required
    ]
    return tuple(sorted(found, key=lambda mount: mount.path))


def required_are_mounted(context: Context) -> bool:
    """Whether all file systems that the node cannot do without are mounted and in fstab."""
    return _all_mounted(wanted(context, required=True))


def optional_are_mounted(context: Context) -> bool:
    """The same for those that it can do without."""
    return _all_mounted(wanted(context, required=False))


def mount_required(context: Context) -> None:
    """Mount them; all that can be mounted are, also when one cannot.

    Raises:
        Failure: at least one cannot be mounted.
    """
    _mount_all(wanted(context, required=True))


def mount_optional(context: Context) -> None:
    """The same for those that the node can do without."""
    _mount_all(wanted(context, required=False))


def _all_mounted(mounts: tuple[Mount, ...]) -> bool:
    text = _fstab_text()
    return text == with_lines(text, mounts) and all(map(_is_mounted, mounts))


def _mount_all(mounts: tuple[Mount, ...]) -> None:
    write_whole(on_node(FSTAB), with_lines(_fstab_text(), mounts))
    problems = [problem for mount in mounts if (problem := _mount(mount))]
    if problems:
        raise Failure("; ".join(problems))


def _fstab_text() -> str:
    path = on_node(FSTAB)
    return path.read_text(encoding="utf-8") if path.exists() else ""


def with_lines(text: str, mounts: tuple[Mount, ...]) -> str:
    """Return fstab with a line of ours for each mount; lines of others stay as they are.

    A line of somebody else for the same folder stays too, and ours is not added: HyperPod's agent may have
    written it. `_is_mounted` sees whether it is the right one.
    """
    ours = {mount.path: mount.line for mount in mounts}
    kept = list(_without(text.splitlines(), ours))
    theirs = {words[1] for line in kept if (words := line.split()) and len(words) > 1 and words[0][0] != "#"}
    for path, line in ours.items():
        if path not in theirs:
            kept += [MARK, line]
    return "\n".join(kept) + "\n" if kept else ""


def _without(lines: list[str], paths: dict[str, str]) -> Iterator[str]:
    """The lines but those of ours for these folders."""
    marked = False
    for line in lines:
        words = line.split()
        mine = marked and len(words) > 1 and words[1] in paths
        if marked and not mine:
            yield MARK
        marked = line == MARK
        if not marked and not mine:
            yield line
    if marked:
        yield MARK


def _is_mounted(mount: Mount) -> bool:
    there = call(["mountpoint", "-q", str(on_node(mount.path))], limit=10).code == 0
    return there and not _something_else(mount)


def _something_else(mount: Mount) -> str:
    """The other file system that is mounted there, remote or a disk of the node; empty when it is ours.

    A folder of the node that is bound there (`/dev/sda1[/folder]`) is somebody's intent, and is left.
    """
    found = call(["findmnt", "-n", "-r", "-o", "SOURCE", "--mountpoint", str(on_node(mount.path))], limit=10)
    sources = [line.strip() for line in found.out.splitlines() if line.strip()] if found.code == 0 else []
    last = sources[-1] if sources else ""
    remote = re.search(r":/", last) is not None
    disk = re.fullmatch(r"/dev/[^\[]+", last) is not None
    return last if (remote or disk) and _plain(last) != _plain(mount.source) else ""


def _plain(source: str) -> str:
    """Lustre shows addresses for names, so that only the file system's own name can be compared."""
    host, _, rest = source.partition(":/")
    return rest.rstrip("/") if "@tcp" in host else source.rstrip("/")


def _mount(mount: Mount) -> str:
    """Mount one; what is wrong, empty when it is mounted."""
    folder = on_node(mount.path)
    folder.mkdir(parents=True, exist_ok=True)
    if other := _something_else(mount):
        return f"{mount.path} has {other} mounted, and the site wants {mount.source}: unmount it"
    if _is_mounted(mount):
        return ""
    if any(folder.iterdir()):
        print(f"{mount.path} is not empty: what is in it will be hidden by {mount.source}")
    argv = ["mount", "-t", mount.kind, "-o", ",".join(mount.options), mount.source, str(folder)]
    done = call(argv, limit=MOUNT_SECONDS)
    if done.code == 0:
        print(f"mounted {mount.source} at {mount.path}")
        return ""
    return f"{mount.source} cannot be mounted at {mount.path}: {done.last_words}{_hint(mount, done.err)}"


def _hint(mount: Mount, said: str) -> str:
    if "unknown filesystem type" in said or "No such device" in said:
        return f" (this image has no {mount.kind} client)"
    return " (do the security groups let the nodes reach it?)" if "timed out" in said.lower() else ""

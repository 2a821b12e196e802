"""The sandbox's own branch of the machine's cgroup (v1) tree, so that several sandboxes never meet there."""

from __future__ import annotations

import os
from pathlib import Path

ROOT = Path("/sys/fs/cgroup")
# `systemd` is a hierarchy without a controller; Slurm 22.05's cgroup/v1 plugin refuses to start without it.
CONTROLLERS = ("cpuset", "cpuacct", "devices", "freezer", "memory", "systemd")


def version() -> str:
    """`v1` where Slurm's controllers are mounted as v1 hierarchies that we may write to, else `none`.

    On cgroup v2 Slurm wants systemd to own the tree; without systemd the sandbox tracks processes by
    parentage instead (proctrack/linuxproc).
    """
    usable = all(os.access(ROOT / name, os.W_OK) and (ROOT / name / "tasks").exists() for name in CONTROLLERS)
    return "v1" if usable else "none"


def mount_options(name: str) -> str:
    """The options that mount this hierarchy (cgroups(7))."""
    return "none,name=systemd" if name == "systemd" else name


def join(branch: str) -> None:
    """Move this process into the branch, making it; what is cloned afterwards sees it as the root."""
    for name in CONTROLLERS:
        folder = ROOT / name / branch
        folder.mkdir(exist_ok=True)
        if name == "cpuset":
            for key in ("cpuset.cpus", "cpuset.mems"):
                (folder / key).write_text((ROOT / name / key).read_text())
            (folder / "cgroup.clone_children").write_text("1")
        (folder / "cgroup.procs").write_text(str(os.getpid()))


def remove(branch: str) -> None:
    """Remove the branch, deepest folders first; processes must have ended."""
    for name in CONTROLLERS:
        top = ROOT / name / branch
        for folder, _, _ in os.walk(top, topdown=False):
            Path(folder).rmdir()

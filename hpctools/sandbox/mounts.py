"""The inside's own view of the machine: bind mounts in a private mount namespace, nothing written outside.

The state folder's `tree/` covers the machine's /etc/passwd, /etc/slurm, /home, /var/spool and so on, so
that inside every path is the one that a real cluster has. /run and /dev are fresh.
"""

from __future__ import annotations

import ctypes
import os
import stat
from collections.abc import Iterable, Sequence
from pathlib import Path

from hpctools.errors import SandboxError
from hpctools.sandbox import cgroups
from hpctools.sandbox.layout import COVERED_FILES, COVERED_FOLDERS, Layout

MS_NOSUID, MS_NODEV, MS_BIND, MS_REC, MS_PRIVATE = 2, 4, 4096, 16384, 1 << 18
NVIDIA_MAJOR = (
    195  # Documentation/admin-guide/devices.txt of the kernel; no driver answers, which is the point
)
FAKE_GPUS = 16
RUN_FOLDERS = (
    ("munge", "munge"),
    ("mysqld", "mysql"),
    ("slurm", "slurm"),
    ("sshd", "root"),
    ("lock", "root"),
)


def _mount(source: str, target: str, kind: str, flags: int = 0, options: str = "") -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    done = libc.mount(
        source.encode(), target.encode(), kind.encode(), ctypes.c_ulong(flags), options.encode()
    )
    if done != 0:
        number = ctypes.get_errno()
        raise SandboxError(
            f"cannot mount {source} on {target}: {os.strerror(number)}",
            "the sandbox needs root and the right to mount (CAP_SYS_ADMIN)",
        )


def make_private() -> None:
    """Stop mounts from travelling in or out of this namespace."""
    _mount("none", "/", "", MS_REC | MS_PRIVATE)


def bind(source: str, target: str) -> None:
    """Show `source` at `target`, with what is mounted below it."""
    _mount(source, target, "", MS_BIND | MS_REC)


def apply(layout: Layout, accounts: dict[str, tuple[int, int]], controllers: Iterable[str]) -> None:
    """Make the inside's view in the current mount namespace.

    Args:
        layout: the state folder.
        accounts: uid and gid of the service accounts, by name.
        controllers: cgroup v1 controllers to show from the current cgroup downwards.
    """
    make_private()
    handles = {path: os.open(path, os.O_PATH) for path in layout.exposed()}
    _mount("proc", "/proc", "proc")
    tree_handle = os.open(layout.tree, os.O_PATH)
    tree = f"/proc/self/fd/{tree_handle}"
    for closed in _closed_ancestors(layout.exposed()):
        _mount("tmpfs", str(closed), "tmpfs", MS_NODEV, "mode=755")
    _complete_etc(layout)
    for name in (*COVERED_FOLDERS, *COVERED_FILES):
        bind(f"{tree}/{name}", f"/{name}")
    _fresh_dev()
    _fresh_run(accounts)
    _show_cgroups(controllers)
    _expose(handles)
    os.close(tree_handle)


def _complete_etc(layout: Layout) -> None:
    """Lay a writable layer over /etc where it lacks a file to mount on (a bare system has no /etc/hosts)."""
    missing = [Path("/", name) for name in COVERED_FILES if not Path("/", name).exists()]
    if not missing:
        return
    layer = layout.root / "layer"
    for name in ("upper", "work"):
        (layer / name).mkdir(parents=True, exist_ok=True)
    _mount("overlay", "/etc", "overlay", 0, f"lowerdir=/etc,upperdir={layer}/upper,workdir={layer}/work")
    for path in missing:
        path.touch()


def _closed_ancestors(paths: Sequence[Path]) -> list[Path]:
    """Topmost ancestors of `paths` that other accounts may not enter."""
    found: list[Path] = []
    for path in paths:
        for ancestor in [*reversed(path.parents), path][1:]:
            if not ancestor.stat().st_mode & stat.S_IXOTH:
                found.append(ancestor)
                break
    return list(dict.fromkeys(found))


def _expose(handles: dict[Path, int]) -> None:
    """Show each path again where a cover hides it, shortest first so that nested ones follow."""
    for path, handle in sorted(handles.items()):
        seen = path.exists() and os.path.samestat(path.stat(), os.fstat(handle))
        if not seen:
            path.mkdir(mode=0o755, parents=True, exist_ok=True)
            bind(f"/proc/self/fd/{handle}", str(path))
        os.close(handle)


def _fresh_dev() -> None:
    terminals = os.open("/dev/pts", os.O_PATH)
    _mount("tmpfs", "/dev", "tmpfs", MS_NOSUID, "mode=755")
    for name, minor in {"null": 3, "zero": 5, "full": 7, "random": 8, "urandom": 9}.items():
        _device(name, 1, minor)
    _device("tty", 5, 0)
    for number in range(FAKE_GPUS):
        _device(f"nvidia{number}", NVIDIA_MAJOR, number)
    for name in ("pts", "shm"):
        Path("/dev", name).mkdir()
    bind(f"/proc/self/fd/{terminals}", "/dev/pts")
    os.close(terminals)
    _mount("tmpfs", "/dev/shm", "tmpfs", MS_NOSUID | MS_NODEV, "mode=1777")  # noqa: S108
    for name, target in {
        "ptmx": "pts/ptmx",
        "fd": "/proc/self/fd",
        "stdin": "fd/0",
        "stdout": "fd/1",
    }.items():
        Path("/dev", name).symlink_to(target)
    Path("/dev/ptmx").unlink()
    _device("ptmx", 5, 2)
    Path("/dev/stderr").symlink_to("fd/2")


def _device(name: str, major: int, minor: int) -> None:
    path = Path("/dev", name)
    os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(major, minor))
    path.chmod(0o666)


def _fresh_run(accounts: dict[str, tuple[int, int]]) -> None:
    _mount("tmpfs", "/run", "tmpfs", MS_NOSUID | MS_NODEV, "mode=755")
    for name, owner in RUN_FOLDERS:
        path = Path("/run", name)
        path.mkdir(mode=0o755)
        uid, gid = accounts.get(owner, (0, 0))
        os.chown(path, uid, gid)


def _show_cgroups(controllers: Iterable[str]) -> None:
    names = list(controllers)
    if not names:
        return
    _mount("tmpfs", "/sys/fs/cgroup", "tmpfs", MS_NOSUID | MS_NODEV, "mode=755")
    for name in names:
        path = Path("/sys/fs/cgroup", name)
        path.mkdir()
        _mount("cgroup", str(path), "cgroup", 0, cgroups.mount_options(name))

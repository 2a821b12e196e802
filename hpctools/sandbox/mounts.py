"""The inside's own view of the machine: bind mounts in a private mount namespace, nothing written outside.

The state folder's `tree/` covers the machine's /etc/passwd, /etc/slurm, /home, /var/spool and so on, so
that inside every path is the one that a real cluster has. /run and /dev are fresh. With another Slurm
release the root folder below all this is that of the release.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Sequence
from pathlib import Path

from hpctools.conf.detection import made_up_capabilities
from hpctools.sandbox import cgroups, root
from hpctools.sandbox.layout import COVERED_FILES, COVERED_FOLDERS, Layout
from hpctools.sandbox.mounting import MS_NODEV, MS_NOSUID, bind, make_private, mount

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


def apply(
    layout: Layout, release: Path, accounts: dict[str, tuple[int, int]], controllers: Iterable[str]
) -> None:
    """Make the inside's view in the current mount namespace.

    Args:
        layout: the state folder.
        release: the root folder to have; `/` is the machine's own.
        accounts: uid and gid of the service accounts, by name.
        controllers: cgroup v1 controllers to show from the current cgroup downwards.
    """
    make_private()
    handles = {path: os.open(path, os.O_PATH) for path in layout.exposed()}
    tree_handle = os.open(layout.tree, os.O_PATH)
    tree = f"/proc/self/fd/{tree_handle}"
    elsewhere = release != Path("/")
    if elsewhere:
        root.enter(release)
        _complete_root()
    else:
        mount("proc", "/proc", "proc")
    for closed in _closed_ancestors(layout.exposed()):
        mount("tmpfs", str(closed), "tmpfs", MS_NODEV, "mode=755")
    _complete_etc(layout)
    for name in (*COVERED_FOLDERS, *COVERED_FILES):
        bind(f"{tree}/{name}", f"/{name}")
    fresh_dev()
    fresh_run(accounts)
    show_cgroups(controllers)
    expose(handles)
    os.close(tree_handle)
    if elsewhere:
        root.leave_machine()


def _complete_root() -> None:
    """Make what we mount on and a bare system lacks; in a release's root, which is ours to write to."""
    for name in COVERED_FOLDERS:
        Path("/", name).mkdir(parents=True, exist_ok=True)
    for name in COVERED_FILES:
        Path("/", name).touch()


def _complete_etc(layout: Layout) -> None:
    """Lay a writable layer over /etc where it lacks a file to mount on (a bare system has no /etc/hosts)."""
    missing = [Path("/", name) for name in COVERED_FILES if not Path("/", name).exists()]
    if not missing:
        return
    layer = layout.root / "layer"
    for name in ("upper", "work"):
        (layer / name).mkdir(parents=True, exist_ok=True)
    mount("overlay", "/etc", "overlay", 0, f"lowerdir=/etc,upperdir={layer}/upper,workdir={layer}/work")
    for path in missing:
        path.touch()


def _closed_ancestors(paths: Sequence[Path]) -> list[Path]:
    """Topmost ancestors of `paths` that other accounts may not enter."""
    found: list[Path] = []
    for path in paths:
        for ancestor in [*reversed(path.parents), path][1:]:
            if not ancestor.exists():  # in another root: it is made for us, and open
                break
            if not ancestor.stat().st_mode & stat.S_IXOTH:
                found.append(ancestor)
                break
    return list(dict.fromkeys(found))


def expose(handles: dict[Path, int]) -> None:
    """Show each path again where a cover hides it, shortest first so that nested ones follow."""
    for path, handle in sorted(handles.items()):
        seen = path.exists() and os.path.samestat(path.stat(), os.fstat(handle))
        if not seen:
            path.mkdir(mode=0o755, parents=True, exist_ok=True)
            bind(f"/proc/self/fd/{handle}", str(path))
        os.close(handle)


def fresh_dev() -> None:
    """A /dev of our own: the usual devices, made-up GPUs, and the terminals that there are."""
    terminals = os.open("/dev/pts", os.O_PATH)
    mount("tmpfs", "/dev", "tmpfs", MS_NOSUID, "mode=755")
    for name, minor in {"null": 3, "zero": 5, "full": 7, "random": 8, "urandom": 9}.items():
        _device(name, 1, minor)
    _device("tty", 5, 0)
    for number in range(FAKE_GPUS):
        _device(f"nvidia{number}", NVIDIA_MAJOR, number)
    _mig_capabilities()
    for name in ("pts", "shm"):
        Path("/dev", name).mkdir()
    bind(f"/proc/self/fd/{terminals}", "/dev/pts")
    os.close(terminals)
    mount("tmpfs", "/dev/shm", "tmpfs", MS_NOSUID | MS_NODEV, "mode=1777")  # noqa: S108
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


def _mig_capabilities() -> None:
    """What a job has to open, beside the GPU, to use a MIG slice; minors follow those of the GPUs."""
    Path("/dev/nvidia-caps").mkdir()
    for number in made_up_capabilities(FAKE_GPUS):
        _device(f"nvidia-caps/nvidia-cap{number}", NVIDIA_MAJOR, FAKE_GPUS - 1 + number)


def _device(name: str, major: int, minor: int) -> None:
    path = Path("/dev", name)
    os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(major, minor))
    path.chmod(0o666)


def fresh_run(accounts: dict[str, tuple[int, int]]) -> None:
    """An empty /run with the daemons' folders, owned by the accounts (uid and gid by name)."""
    mount("tmpfs", "/run", "tmpfs", MS_NOSUID | MS_NODEV, "mode=755")
    for name, owner in RUN_FOLDERS:
        path = Path("/run", name)
        path.mkdir(mode=0o755)
        uid, gid = accounts.get(owner, (0, 0))
        os.chown(path, uid, gid)
    # Where MariaDB's clients of later Debian suites look for the socket when nobody says.
    Path("/run/mariadbd").symlink_to("mysqld")


def show_cgroups(controllers: Iterable[str]) -> None:
    """Mount these cgroup v1 controllers from the current cgroup downwards; none leaves the machine's."""
    names = list(controllers)
    if not names:
        return
    mount("tmpfs", "/sys/fs/cgroup", "tmpfs", MS_NOSUID | MS_NODEV, "mode=755")
    for name in names:
        path = Path("/sys/fs/cgroup", name)
        path.mkdir()
        mount("cgroup", str(path), "cgroup", 0, cgroups.mount_options(name))

"""On which file system a path lies (proc_mounts(5))."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

_MOUNTS = Path("/proc/self/mounts")


@dataclass(frozen=True)
class Mount:
    """A mounted file system.

    Attributes:
        point: where.
        kind: such as `ext4` or `nfs4`.
    """

    point: str
    kind: str


def mount_of(path: Path) -> Mount:
    """The file system of a path, which need not exist; of those mounted over each other the last.

    Raises:
        OSError: /proc is not mounted.
    """
    where = f"{path.resolve()}/"
    rows = (line.split() for line in _MOUNTS.read_text(encoding="utf-8", errors="replace").splitlines())
    mounts = [Mount(_plain(row[1]).rstrip("/"), row[2]) for row in rows]
    fits = [(len(each.point), order, each) for order, each in enumerate(mounts) if _holds(each, where)]
    found = max(fits)[2] if fits else Mount("", "unknown")
    return Mount(found.point or "/", found.kind)


def _holds(mount: Mount, where: str) -> bool:
    return where.startswith(f"{mount.point}/")


def _plain(text: str) -> str:
    """A path as it is; the kernel writes blanks and backslashes in octal."""
    for octal, character in {"\\011": "\t", "\\012": "\n", "\\040": " ", "\\134": "\\"}.items():
        text = text.replace(octal, character)
    return text

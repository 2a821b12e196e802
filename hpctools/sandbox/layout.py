"""Where a sandbox keeps what it has: one state folder, and what its inside sees of it."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

import hpctools
from hpctools.errors import SandboxError

# Folders of the state folder that stand in for the machine's own, inside the sandbox only.
COVERED_FOLDERS = (
    "etc/munge",
    "etc/slurm",
    "etc/ssh",
    "home",
    "root",
    "tmp",
    "usr/local/bin",
    "var/lib/munge",
    "var/lib/mysql",
    "var/log",
    "var/spool",
)
COVERED_FILES = ("etc/group", "etc/hosts", "etc/passwd", "etc/shadow")


@dataclass(frozen=True)
class Layout:
    """The state folder.

    Attributes:
        root: its absolute path; the same inside and outside of the sandbox.
    """

    root: Path

    @property
    def tree(self) -> Path:
        """What is laid over the machine's own folders, by the same relative paths."""
        return self.root / "tree"

    @property
    def record(self) -> Path:
        """The record of ports and processes."""
        return self.root / "record.json"

    @property
    def lock(self) -> Path:
        """Held by whoever changes the sandbox. Beside the folder, so that it outlives `down`."""
        return self.root.with_name(self.root.name + ".lock")

    @property
    def logs(self) -> Path:
        """Logs of the daemons, one file each."""
        return self.root / "logs"

    @property
    def site(self) -> Path:
        """The site file that the sandbox was made from."""
        return self.root / "site.yaml"

    @property
    def key(self) -> Path:
        """A private SSH key that every account of the sandbox accepts."""
        return self.root / "ssh" / "id_ed25519"

    @property
    def slurm_conf(self) -> Path:
        """The folder that the inside sees as /etc/slurm."""
        return self.tree / "etc" / "slurm"

    def exposed(self) -> tuple[Path, ...]:
        """Folders that every account inside must reach by their own paths."""
        return (self.root, *code_and_interpreter())


def code_and_interpreter() -> tuple[Path, ...]:
    """Where this code and its interpreter are, but for what lies in the system's own folders."""
    code = Path(hpctools.__file__).resolve().parents[1]
    system = (Path("/usr"), Path("/"))
    return tuple(dict.fromkeys(p for p in (code, Path(sys.prefix), Path(sys.base_prefix)) if p not in system))


def default_root() -> Path:
    """The state folder when nobody names one: `.hpctools-sandbox` in the current folder.

    Raises:
        SandboxError: that one is gone.
    """
    try:
        return Path.cwd() / ".hpctools-sandbox"
    except FileNotFoundError:
        raise SandboxError(
            "the folder that you are in is gone, and the sandbox would be in it",
            "go to one that is there (cd), or name one: --state FOLDER",
        ) from None

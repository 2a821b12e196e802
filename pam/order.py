"""What is to be installed where, and the whole of it as texts."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pam import files, rewrite, roles
from pam.settings import Settings

ADOPT = "pam_slurm_adopt.so"
# Debian's package has it in /lib/security, outside of libpam's own folder, so that only its path finds it.
MODULE_FOLDERS = (
    *("/lib/security", "/usr/lib/security", "/lib64/security", "/usr/lib64/security"),
    *("/lib/*-linux-gnu/security", "/usr/lib/*-linux-gnu/security"),
    *("/opt/slurm/lib/security", "/opt/slurm/lib64/security", "/usr/local/lib/security"),
    *("/usr/local/lib64/security", "/usr/local/slurm/lib/security"),
)
VENDOR = Path("/usr/lib/pam.d")
PROGRAMS = Path(__file__).resolve().parent / "programs"


class OrderError(Exception):
    """What was asked for cannot be made on this node; the message says what to do."""


@dataclass(frozen=True)
class Order:
    """What is to be installed where.

    Attributes:
        role: one of roles.ROLES.
        settings: what the site says.
        service: the PAM service; sshd's is its program name.
        node: Slurm's name of the node where several slurmds share a host; else empty.
        pam_dir: the folder of PAM's services.
        library: where the helper programs go.
        state: where copies of former stacks and the lock are.
        sessions: where the session limit remembers who is in.
        root: stands before every path that is read or written here (in tests); not in the stack.
        invoker: who installs, by sudo: they must get in afterwards; empty for nobody.
    """

    role: str
    settings: Settings
    service: str = "sshd"
    node: str = ""
    pam_dir: Path = Path("/etc/pam.d")
    library: Path = Path("/usr/local/lib/hpctools-pam")
    state: Path = Path("/var/lib/hpctools-pam")
    sessions: Path = Path("/run/hpctools-sessions")
    root: str = ""
    invoker: str = ""

    def at(self, path: Path) -> Path:
        """Where a path of the node really is."""
        return Path(f"{self.root}{path}")

    @property
    def folder(self) -> Path:
        """Where PAM's services really are."""
        return self.at(self.pam_dir)

    @property
    def main(self) -> Path:
        """The service's file."""
        return self.folder / self.service

    def kept(self, what: str) -> Path:
        """A former stack: `original` has nothing of ours, `previous` is the one before the present one."""
        return self.at(self.state) / f"{self.service}.{what}"

    def read(self, name: str) -> str:
        """A file of the stack by its name in it.

        Raises:
            OSError: it cannot be read.
        """
        path = self.at(Path(name)) if name.startswith("/") else self.folder / name
        return files.read(path if path.exists() else self.at(VENDOR / name))


@dataclass(frozen=True)
class Wanted:
    """All that an order comes to.

    Attributes:
        text: the service's file.
        copies: files that it includes, by name.
        programs: texts of the helper programs, by name.
        programs_folder: where they are to be (without the order's root).
        additions: our rules.
        adopt: path of pam_slurm_adopt.so; empty where it is not needed.
    """

    text: str
    copies: Mapping[str, str]
    programs: Mapping[str, str]
    programs_folder: Path
    additions: rewrite.Additions
    adopt: str


def compose(order: Order) -> Wanted:
    """Work out what an order comes to; nothing is written.

    Raises:
        OrderError: pam_slurm_adopt.so or the service's file is missing.
        StackError: the stack cannot be parsed or changed.
    """
    if not order.main.exists():
        raise OrderError(
            f"there is no {order.main}: install openssh-server, or name the service with --service"
        )
    needed = roles.PROGRAMS[order.role]
    programs = {name: files.read(PROGRAMS / name) for name in needed}
    digest = hashlib.sha256("\0".join(f"{n}\0{t}" for n, t in programs.items()).encode()).hexdigest()[:12]
    folder = order.library / digest
    adopt = find_adopt(order) if order.role == "compute" else ""
    place = roles.Place(order.service, str(folder), adopt, order.node, str(order.sessions))
    additions = roles.additions(order.role, order.settings, place)
    written = rewrite.rewrite(order.service, order.read, additions)
    return Wanted(written.text, written.copies, programs, folder, additions, adopt)


def find_adopt(order: Order) -> str:
    """The path of pam_slurm_adopt.so.

    Raises:
        OrderError: it is nowhere.
    """
    if order.settings.adopt_module:
        if order.at(Path(order.settings.adopt_module)).is_file():
            return order.settings.adopt_module
        raise OrderError(f"there is no {order.settings.adopt_module}: correct access.compute.adopt_module")
    for pattern in MODULE_FOLDERS:
        for path in sorted(Path(order.root or "/").glob(f"{pattern}/{ADOPT}".lstrip("/"))):
            return str(Path("/") / path.relative_to(order.root or "/"))
    raise OrderError(
        f"{ADOPT} is nowhere on this node: install libpam-slurm-adopt (Debian, Ubuntu), slurm-pam_slurm "
        "(Red Hat) or build contribs/pam_slurm_adopt of this Slurm; elsewhere: access.compute.adopt_module"
    )

"""The sandbox's Unix accounts: the machine's own, and the site's people with uids of their own."""

from __future__ import annotations

import grp
import os
import pwd
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from hpctools.errors import SandboxError
from hpctools.sandbox.layout import Layout

FIRST_UID = 20001
SERVICE_UID = 19001
SERVICES = ("hpcapi",)
DAEMONS = ("munge", "mysql", "slurm")


@dataclass(frozen=True)
class Person:
    """A Unix account of the site; its group has its name and number.

    Attributes:
        shell: login shell; a service has none.
    """

    name: str
    uid: int
    home: str
    shell: str = "/bin/bash"


def people(names: Iterable[str]) -> tuple[Person, ...]:
    """Accounts for the site's users and for our services, numbered in order."""
    services = tuple(
        Person(name, SERVICE_UID + i, f"/home/{name}", "/usr/sbin/nologin") for i, name in enumerate(SERVICES)
    )
    users = tuple(Person(name, FIRST_UID + i, f"/home/{name}") for i, name in enumerate(names))
    return services + users


def daemon_accounts() -> dict[str, tuple[int, int]]:
    """uid and gid of the accounts that Debian's packages made for the daemons.

    Raises:
        SandboxError: a package is missing.
    """
    try:
        return {name: (pwd.getpwnam(name).pw_uid, pwd.getpwnam(name).pw_gid) for name in DAEMONS}
    except KeyError as error:
        raise SandboxError(
            f"this machine has no Unix account for {error.args[0].split()[-1]}",
            "install the packages munge, mariadb-server, slurm-wlm and slurmdbd",
        ) from None


def write_accounts(layout: Layout, persons: Iterable[Person], hosts: Iterable[str]) -> None:
    """Write passwd, group, shadow and hosts for the inside: the machine's lines, then ours."""
    folder = layout.tree / "etc"
    persons = tuple(persons)
    ours = {p.name for p in persons}
    passwd = [":".join(map(str, e)) for e in pwd.getpwall() if e.pw_name not in ours]
    passwd += [f"{p.name}:x:{p.uid}:{p.uid}::{p.home}:{p.shell}" for p in persons]
    groups = [
        f"{e.gr_name}:x:{e.gr_gid}:{','.join(e.gr_mem)}" for e in grp.getgrall() if e.gr_name not in ours
    ]
    groups += [f"{p.name}:x:{p.uid}:" for p in persons]
    shadow = [f"{line.split(':')[0]}:*:19000:0:99999:7:::" for line in passwd]
    names = "\n".join(f"127.0.0.1 {host}" for host in ("localhost", *hosts))
    _write(folder / "passwd", "\n".join(passwd) + "\n", 0o644)
    _write(folder / "group", "\n".join(groups) + "\n", 0o644)
    _write(folder / "shadow", "\n".join(shadow) + "\n", 0o640)
    _write(folder / "hosts", f"{names}\n::1 localhost\n", 0o644)


def write_homes(layout: Layout, persons: Iterable[Person], path: str, public_key: str) -> None:
    """Make each home with a shell set-up that finds this code's interpreter, and an authorised SSH key.

    Args:
        path: folder to put first on PATH, as a site's `module load` would.
        public_key: one line for authorized_keys.
    """
    for person in persons:
        home = layout.tree / person.home.lstrip("/")
        if (home / ".ssh" / "authorized_keys").exists():  # there last; what people changed since stays
            continue
        fresh = home / ".ssh" / ".authorized_keys"
        fresh.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        _write(home / ".bashrc", f'export PATH="{path}:$PATH"\n', 0o644)
        _write(home / ".profile", '. "$HOME/.bashrc"\n', 0o644)
        _write(home / ".hushlogin", "", 0o644)
        _write(fresh, public_key, 0o600)
        home.chmod(0o750)
        for entry in (home, *home.rglob("*")):
            os.lchown(entry, person.uid, person.uid)
        fresh.replace(home / ".ssh" / "authorized_keys")


def _write(path: Path, text: str, mode: int) -> None:
    """Write a file where it differs: daemons and jobs read these while `up` looks after the rest."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.exists() and path.read_text() == text:
        return
    path.write_text(text)
    path.chmod(mode)
    if path.name == "shadow":
        shutil.chown(path, group="shadow")

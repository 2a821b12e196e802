"""The state folder's content: folders with their owners, keys, sshd's and Slurm's configuration."""

from __future__ import annotations

import os
import secrets
import sys
from pathlib import Path

from hpctools import conf
from hpctools.conf.apply.generations import STORE
from hpctools.conf.facts_file import FACTS_FILE, dump_facts
from hpctools.sandbox import unix
from hpctools.sandbox.blueprint import Blueprint
from hpctools.sandbox.layout import COVERED_FOLDERS, Layout
from hpctools.slurm import run

PROGRAMS = ("hp-submit", "hp-status", "hp-cancel", "hpctools", "hpctools-api")
# path below tree/, owner, mode
OWNED = (
    ("etc/munge", "munge", 0o700),
    ("var/lib/munge", "munge", 0o711),
    ("var/log/munge", "munge", 0o700),
    ("var/lib/mysql", "mysql", 0o755),
    ("var/log/slurm", "slurm", 0o755),
    ("var/spool/slurmctld", "slurm", 0o700),
)
SSHD_CONFIG = """\
# Loopback only; keys only. The same host key on all login nodes.
ListenAddress 127.0.0.1
HostKey /etc/ssh/ssh_host_ed25519_key
PidFile none
UsePAM yes
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin no
ClientAliveInterval 60
AcceptEnv LANG LC_*
PrintMotd no
"""


def prepare(layout: Layout, blueprint: Blueprint, site_text: str) -> None:
    """Make everything that the inside needs before its first daemon starts; what is there stays."""
    accounts = unix.daemon_accounts()
    for name in (*COVERED_FOLDERS, *(f"var/spool/slurmd/{n}" for n in blueprint.compute_hosts)):
        (layout.tree / name).mkdir(mode=0o755, parents=True, exist_ok=True)
    layout.logs.mkdir(exist_ok=True)
    (layout.tree / "tmp").chmod(0o1777)
    (layout.tree / "root").chmod(0o711)  # the interpreter of everybody's jobs may be below
    for name, owner, mode in OWNED:
        _own(layout.tree / name, accounts[owner], mode, folder=True)
    layout.site.write_text(site_text)
    _munge_key(layout, accounts["munge"])
    _ssh(layout)
    _people(layout, blueprint)
    _programs(layout)


def configure(layout: Layout, bundle: conf.Bundle, facts: conf.Facts) -> bool:
    """Write Slurm's configuration where it differs; return whether anything changed.

    The site and the facts that it was made from stand beside it, so that hpctools finds them inside. What an
    apply inside has made of it stays.
    """
    if (layout.slurm_conf / STORE).exists():
        return False
    changed = conf.write(bundle, layout.slurm_conf)
    _own(layout.slurm_conf / "slurmdbd.conf", unix.daemon_accounts()["slurm"], 0o600)
    (layout.slurm_conf / "site.yaml").write_text(layout.site.read_text())
    (layout.slurm_conf / FACTS_FILE).write_text(dump_facts(facts))
    return bool(changed)


def copy_members(layout: Layout, members: Path) -> None:
    """Put the people of the directory's groups beside the sandbox's site files; what is there stays."""
    for folder in (layout.root, layout.slurm_conf):
        if members.exists() and not (folder / members.name).exists():
            (folder / members.name).write_text(members.read_text())


def _own(path: Path, owner: tuple[int, int], mode: int, *, folder: bool = False) -> None:
    if folder:
        path.mkdir(parents=True, exist_ok=True)
    os.chown(path, *owner)
    path.chmod(mode)


def _munge_key(layout: Layout, owner: tuple[int, int]) -> None:
    path = layout.tree / "etc" / "munge" / "munge.key"
    if path.exists():
        return
    fresh = path.with_name(".munge.key")
    fresh.unlink(missing_ok=True)
    fresh.touch(mode=0o400)
    fresh.write_bytes(secrets.token_bytes(128))
    _own(fresh, owner, 0o400)
    fresh.replace(path)  # a key is there as a whole or not at all


def _ssh(layout: Layout) -> None:
    layout.key.parent.mkdir(mode=0o700, exist_ok=True)
    folder = layout.tree / "etc" / "ssh"
    (folder / "sshd_config").write_text(SSHD_CONFIG)
    for path in (layout.key, folder / "ssh_host_ed25519_key"):
        if not path.with_suffix(".pub").exists():  # written last
            path.unlink(missing_ok=True)
            run.run(
                ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "sandbox", "-f", str(path)], timeout=10
            )


def _people(layout: Layout, blueprint: Blueprint) -> None:
    hosts = (*blueprint.site.cluster.controllers, *blueprint.login_hosts, *blueprint.compute_hosts)
    unix.write_accounts(layout, blueprint.persons, hosts)
    public = layout.key.with_suffix(".pub").read_text()
    unix.write_homes(layout, blueprint.persons, str(Path(sys.executable).parent), public)


def _programs(layout: Layout) -> None:
    for name in PROGRAMS:
        link = layout.tree / "usr" / "local" / "bin" / name
        link.unlink(missing_ok=True)
        link.symlink_to(Path(sys.executable).parent / name)

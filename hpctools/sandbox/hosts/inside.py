"""Pid 1 of one machine: makes its root, devices and cgroups, then only reaps what ends.

Started by `machine.boot` in fresh mount, pid, ipc, uts and network namespaces below the ground's.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
from pathlib import Path

from hpctools.errors import HpctoolsError
from hpctools.sandbox import cgroups, mounts, root, unix
from hpctools.sandbox.holder import CLONE_NEWCGROUP, reap
from hpctools.sandbox.layout import code_and_interpreter
from hpctools.sandbox.mounting import make_private

# What this machine has there is nothing that a fresh node would have.
EMPTY = ("home", "tmp", "var/log", "var/spool", "var/lib/mysql", "var/lib/ldap")
REMOVED = ("etc/slurm", "etc/sssd", "etc/munge", "opt/slurm", "opt/ml", "var/lib/sss")
SHARED = "/var/lib/stand-in/shared"


def main() -> int:
    """Entry: one JSON argument, as `machine.boot` makes it; a byte on stdout when ready."""
    order = json.loads(sys.argv[1])
    try:
        shown = _own_cgroups(str(order["branch"])) if order["branch"] else ()
        _arrange(Path(str(order["shared"])), shown)
    except (HpctoolsError, OSError) as error:
        print(f"cannot arrange the machine's inside: {error}", file=sys.stderr)
        return 1
    os.write(1, b"!")
    return reap()


def _own_cgroups(branch: str) -> tuple[str, ...]:
    cgroups.join(branch)
    if ctypes.CDLL(None, use_errno=True).unshare(CLONE_NEWCGROUP) != 0:
        raise OSError(ctypes.get_errno(), "cannot make a cgroup namespace")
    return cgroups.CONTROLLERS


def _arrange(shared: Path, shown: tuple[str, ...]) -> None:
    make_private()
    outside = {path: os.open(path, os.O_PATH) for path in code_and_interpreter()}
    outside[Path(SHARED)] = os.open(shared, os.O_PATH)
    root.enter(Path("/"), [name for name in EMPTY if Path("/", name).is_dir()])
    for name in REMOVED:
        _remove(Path("/", name))
    mounts.fresh_dev()
    mounts.fresh_run(unix.daemon_accounts())
    mounts.show_cgroups(shown)
    mounts.expose(outside)
    root.leave_machine()
    os.chdir("/")


def _remove(path: Path) -> None:
    """Remove the files that lie there; folders stay, with their owners and modes, as a package made them."""
    for folder, _, names in os.walk(path):
        for name in names:
            Path(folder, name).unlink()


if __name__ == "__main__":
    sys.exit(main())

"""Pid 1 of a sandbox: makes its view of the machine, then only reaps what ends. Stdlib only.

Started by `namespace.create` inside fresh mount, pid, ipc and uts namespaces. When it ends the kernel ends
every process of the sandbox, whatever became of the daemons and jobs in between.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
from pathlib import Path

from hpctools.errors import HpctoolsError
from hpctools.sandbox import cgroups, mounts
from hpctools.sandbox.layout import Layout

CLONE_NEWCGROUP = 0x02000000


def main() -> int:
    """Entry: one JSON argument, as `namespace.create` makes it; a byte on stdout when ready."""
    order = json.loads(sys.argv[1])
    try:
        _arrange(order)
    except (HpctoolsError, OSError) as error:
        print(f"cannot arrange the sandbox's inside: {error}", file=sys.stderr)
        return 1
    os.write(1, b"!")
    return reap()


def _arrange(order: dict[str, object]) -> None:
    shown: tuple[str, ...] = ()
    if order["cgroup"] == "v1":
        cgroups.join(str(order["id"]))
        if ctypes.CDLL(None, use_errno=True).unshare(CLONE_NEWCGROUP) != 0:
            raise OSError(ctypes.get_errno(), "cannot make a cgroup namespace")
        shown = cgroups.CONTROLLERS
    accounts = {str(name): tuple(ids) for name, ids in order["accounts"].items()}  # type: ignore[attr-defined]
    mounts.apply(Layout(Path(str(order["root"]))), Path(str(order["release"])), accounts, shown)
    os.chdir("/")


def reap() -> int:
    """Wait for children for ever; SIGTERM ends us and, with us, everything."""
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
    while True:
        signal.sigwaitinfo({signal.SIGCHLD})
        _collect()


def _collect() -> None:
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return


if __name__ == "__main__":
    sys.exit(main())

"""Ends the machines when whoever made them has ended, however that came about, and removes what is left.

Started by `cluster.hosts` with one end of a socket pair as its standard output. It lives outside of the
machines' namespaces: only there can their cgroups and their folder be removed after the last process.
"""

from __future__ import annotations

import os
import select
import shutil
import signal
import sys
import time
from pathlib import Path

from hpctools.sandbox import cgroups
from hpctools.slurm import run

UNSHARE = ("unshare", "--mount", "--pid", "--fork", "--ipc", "--uts", "--net", "--kill-child")
END_SECONDS = 10.0
READY, GONE = b"!", b"."


def main() -> int:
    """Entry: the branch's name and the state folder; tells the ground's pid, and later that all is gone."""
    branch, folder = sys.argv[1], Path(sys.argv[2])
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    ground = run.start(
        [*UNSHARE, "--propagation=private", sys.executable, "-m", "hpctools.sandbox.hosts.ground"],
        stdout=sys.stderr.fileno(),
        new_session=True,
    )
    child = _only_child(ground)
    os.write(1, f"{child}\n".encode() if child else b"\n")
    _wait_for_maker()
    if child:
        os.kill(child, signal.SIGKILL)  # and with it the kernel ends every process of every machine
    ground.kill()
    ground.wait()
    _remove_branches(branch)
    shutil.rmtree(folder, ignore_errors=True)
    _tell_gone()
    return 0


def _only_child(parent: run.Process) -> int | None:
    """The pid of pid 1 of the ground, once `unshare` has made it."""
    limit = time.monotonic() + END_SECONDS
    while time.monotonic() < limit and parent.poll() is None:
        children = Path(f"/proc/{parent.pid}/task/{parent.pid}/children").read_text().split()
        if children:
            return int(children[0])
        time.sleep(0.005)
    return None


def _wait_for_maker() -> None:
    """Until the other end is closed: on purpose, or by the kernel when its process ended."""
    poll = select.poll()
    poll.register(1, select.POLLIN | select.POLLHUP)
    poll.poll()


def _remove_branches(branch: str) -> None:
    """Remove the cgroups of all machines; each lingers for moments after its last process."""
    limit = time.monotonic() + END_SECONDS
    names = {path.name for kind in cgroups.CONTROLLERS for path in (cgroups.ROOT / kind).glob(f"{branch}-*")}
    while names and time.monotonic() < limit:
        for name in sorted(names):
            try:
                cgroups.remove(name)
            except OSError:
                time.sleep(0.01)
            else:
                names.discard(name)


def _tell_gone() -> None:
    """Say that nothing is left, to a maker that shut only its sending side and waits for it."""
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    try:
        os.write(1, GONE)
    except OSError:
        return


if __name__ == "__main__":
    sys.exit(main())

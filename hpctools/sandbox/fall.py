"""`down`: ends only what is the sandbox's own, told by pid and start time, and leaves nothing."""

from __future__ import annotations

import secrets
import shutil
import signal
import time
from dataclasses import replace

from hpctools.errors import SandboxError
from hpctools.sandbox import cgroups, namespace, process, record
from hpctools.sandbox.cluster import Sandbox
from hpctools.sandbox.layout import Layout
from hpctools.sandbox.record import Record

END_SECONDS = 10.0


def down(sandbox: Sandbox) -> bool:
    """End a sandbox's processes and remove its folder; False when there was none.

    Raises:
        SandboxError: a process does not end.
    """
    if sandbox.record() is None:
        return False
    with record.locked(sandbox.layout.lock):
        found = sandbox.record()
        if found is not None:
            _end(found)
            namespace.end_forgotten(sandbox.layout)
            if found.cgroup == "v1":
                _remove_branch(found.id)
            _remove(sandbox.layout, found)
        sandbox.layout.lock.unlink(missing_ok=True)  # held: who waits for it sees that it is gone
    return found is not None


def _remove(layout: Layout, found: Record) -> None:
    """Remove the state folder, the record last: whoever is interrupted here can begin again.

    An `up` in place of the next `down` begins anew, not with half a database or with accounts that are gone.
    """
    record.save(layout.record, replace(found, holder=None, processes={}, accounts_sha256=""))
    if layout.tree.exists():
        layout.tree.rename(layout.root / f"gone-{secrets.token_hex(4)}")
    for entry in layout.root.iterdir():
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        elif entry != layout.record:
            entry.unlink()
    layout.record.unlink()
    layout.root.rmdir()


def _end(found: Record) -> None:
    """Kill pid 1 of the pid namespace: the kernel then ends all that is in it, jobs and sessions too."""
    if found.holder is None:
        return
    process.send(found.holder, signal.SIGKILL)
    for identity in (found.holder, *found.processes.values()):
        if not process.wait_gone(identity, END_SECONDS):
            raise SandboxError(
                f"process {identity.pid} of the sandbox does not end", f"see ps -p {identity.pid}"
            )


def _remove_branch(branch: str) -> None:
    """A cgroup lingers for moments after its last process has ended."""
    limit = time.monotonic() + END_SECONDS
    while True:
        try:
            return cgroups.remove(branch)
        except OSError as error:
            if time.monotonic() > limit:
                raise SandboxError(
                    f"cgroup {branch} cannot be removed: {error.strerror}", "see its cgroup.procs"
                ) from None
            time.sleep(0.02)

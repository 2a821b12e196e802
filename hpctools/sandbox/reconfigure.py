"""`scontrol reconfigure` inside, where slurmctld may hang over it."""

from __future__ import annotations

from hpctools.errors import CommandTimeout
from hpctools.sandbox import restart, waiting
from hpctools.sandbox.cluster import Sandbox

_RESTART_SECONDS = 60.0


def reconfigure(sandbox: Sandbox) -> None:
    """Let the daemons read their files; a slurmctld that hangs over it is started anew, as by apply.

    Slurm before 24.11.6 can hang then for good: slurmctld waits for an answer of its slurmscriptd that has
    come already (SchedMD's ticket 21875; docs/slurm-releases.md).

    Raises:
        CommandError: slurmctld refuses the files, or gives no answer again.
        SandboxError: it does not answer after its restart.
    """
    try:
        sandbox.inside("scontrol", "reconfigure")
    except CommandTimeout:
        sandbox.inside(restart.PROGRAM, "slurmctld", timeout=_RESTART_SECONDS)
        waiting.until(
            lambda: sandbox.inside("scontrol", "ping", check=False).code == 0,
            "slurmctld does not answer after its restart",
            "see hpctools sandbox logs slurmctld",
        )
        sandbox.inside("scontrol", "reconfigure")  # the slurmds

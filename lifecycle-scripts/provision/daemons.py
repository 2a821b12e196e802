"""Slurm's daemons of each role: slurmctld on controllers and never slurmd; slurmd or sackd elsewhere."""

from __future__ import annotations

from provision import configless, slurmctld
from provision.processes import must
from provision.services import is_active
from provision.step import Context


def is_done(context: Context) -> bool:
    """Whether the daemons of this node's role run, with the configuration that is there now."""
    if not is_active("munge"):
        return False
    return slurmctld.is_done(context) if context.role == "controller" else configless.is_done(context)


def do(context: Context) -> None:
    """Start them, or have them read what is new.

    Raises:
        Failure: one does not start; its log says why.
    """
    if not is_active("munge"):
        must(["systemctl", "enable", "munge"], limit=30)
        must(["systemctl", "restart", "munge"], limit=60)
    if context.role == "controller":
        slurmctld.do(context)
    else:
        configless.do(context)

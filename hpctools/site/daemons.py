"""How the cluster's daemons get their configuration, and how this site restarts them."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from hpctools.site.base import Model
from hpctools.site.scalars import FilePath, Text, refuse

NODES = "{nodes}"
"""Stands for the hosts to restart, as a folded host list."""

Command = Annotated[tuple[Text, ...], Field(min_length=1)]
"""A program and its arguments; no shell reads them."""


class Configuration(Model):
    """Where Slurm's files are, and how they reach the nodes."""

    folder: FilePath = "/etc/slurm"
    """The folder of slurm.conf on the controllers."""
    distribution: Literal["configless", "shared"] = "configless"
    """How nodes get the files: from slurmctld (`slurmd --conf-server`), or from a folder that all of them
    see."""
    state_folder: FilePath | None = None
    """slurmctld's state; `/var/spool/slurmctld` when left out. Several controllers need one that they
    share."""


class DaemonCommands(Model):
    """How this site restarts its daemons: a program and its arguments, without a shell."""

    restart_slurmctld: Command = ("systemctl", "restart", "slurmctld")
    """Restarts slurmctld on the host that it runs on."""
    restart_slurmdbd: Command = ("systemctl", "restart", "slurmdbd")
    """Restarts slurmdbd."""
    restart_slurmds: Command = ("clush", "-b", "-w", NODES, "systemctl", "restart", "slurmd")
    """Restarts slurmd on nodes; `{nodes}` stands for them, as in `gpu[01-08],login`."""

    @model_validator(mode="after")
    def _nodes_are_named(self) -> DaemonCommands:
        if not any(NODES in word for word in self.restart_slurmds):
            refuse(f"{NODES} in restart_slurmds, where the hosts belong")
        return self

"""The connection to Slurm that the commands use unless a test gives them another."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hpctools.slurm.client import SlurmClient


def connect() -> SlurmClient:
    """Slurm by its own commands, or by pyslurm where it is there and fits (HPCTOOLS_SLURM_CLIENT)."""
    from hpctools.slurm.choose import choose

    return choose().client

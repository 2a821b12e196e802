"""The connection to Slurm that the commands use unless a test gives them another."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hpctools.slurm.choose import Wanted
    from hpctools.slurm.client import SlurmClient


def connect() -> SlurmClient:
    """Slurm by its own commands, or by pyslurm where it is there and fits.

    HPCTOOLS_SLURM_CLIENT decides, then the `cluster.slurm_client` of the site file where one is here.
    """
    from hpctools.slurm.choose import choose

    return choose(site_client(os.environ)).client


def site_client(environment: Mapping[str, str]) -> Wanted:
    """What the site file says of the client; `auto` when it says nothing, or there is none to read.

    Whether the site is valid is for others to say: no job waits for that, and reading it whole takes long.
    """
    from hpctools.cli.places import usual_site
    from hpctools.slurm.choose import CHOICES

    try:
        text = usual_site(environment).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return "auto"
    stated = _stated(text) if "slurm_client" in text else None
    return next((choice for choice in CHOICES if choice == stated), "auto")


def _stated(text: str) -> object:
    import yaml  # slow to import, and rarely needed

    try:
        cluster = yaml.safe_load(text)["cluster"]
        return cluster["slurm_client"]
    except (yaml.YAMLError, KeyError, TypeError):
        return None

"""Where the site file is when nobody names it; without click, for commands that start fast."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

SITE_VARIABLE = "HPCTOOLS_SITE"
USUAL_FOLDER = Path("/etc/slurm")


def usual_site(environment: Mapping[str, str], folder: Path | None = None) -> Path:
    """The file that $HPCTOOLS_SITE names, or else site.yaml in Slurm's folder, whether it is there or not."""
    named = environment.get(SITE_VARIABLE)
    return Path(named) if named else (folder or USUAL_FOLDER) / "site.yaml"

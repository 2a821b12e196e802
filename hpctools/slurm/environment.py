"""The environment in which Slurm's commands are asked, so that they answer what was asked."""

from __future__ import annotations

import os

# Filters and formats that a person may have set for their own questions: squeue(1), sinfo(1), scancel(1),
# sacct(1), sacctmgr(1) and scontrol(1), each under ENVIRONMENT VARIABLES.
_CHANGING = (
    *("SQUEUE_", "SINFO_", "SCANCEL_", "SACCT_", "SACCTMGR_", "SCONTROL_"),
    *("SLURM_TIME_FORMAT", "SLURM_CLUSTERS", "SLURM_BITSTR_LEN"),
)


def asking(time_format: str = "standard") -> dict[str, str]:
    """Our environment without what changes the answers of Slurm's commands.

    Args:
        time_format: how they print times: `standard` (local time, 2026-11-21T14:53:40) or one of strftime(3),
            such as `%s` for Unix seconds.
    """
    kept = {key: value for key, value in os.environ.items() if not key.startswith(_CHANGING)}
    return {**kept, "SLURM_TIME_FORMAT": time_format}

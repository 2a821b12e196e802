"""Slurm's words for the state of a job, as squeue and sacct print them (job_state_string, 22.05 to 26.05)."""

from __future__ import annotations

WAITING = frozenset(
    [
        "EXPEDITING",  # from 25.11 on: requeued, and first in line
        "PENDING",
        "REQUEUED",
        "REQUEUE_FED",
        "REQUEUE_HOLD",
        "RESV_DEL_HOLD",
        "SPECIAL_EXIT",  # requeued and held
    ]
)
"""It is not over, and waits for nodes or is held."""
AT_WORK = frozenset(["CONFIGURING", "RESIZING", "RUNNING", "SIGNALING", "STOPPED", "SUSPENDED"])
"""It has its nodes."""
ENDING = frozenset(["COMPLETING", "STAGE_OUT"])
"""It has ended, and something of it is still there."""
OVER = frozenset(
    [
        "BOOT_FAIL",
        "CANCELLED",
        "COMPLETED",
        "DEADLINE",
        "FAILED",
        "LAUNCH_FAILED",
        "NODE_FAIL",
        "OUT_OF_MEMORY",
        "PREEMPTED",
        "REVOKED",
        "TIMEOUT",
    ]
)
ALL = WAITING | AT_WORK | ENDING | OVER


def is_waiting(state: str) -> bool:
    """Whether a job in that state waits for nodes, or is held."""
    return state in WAITING

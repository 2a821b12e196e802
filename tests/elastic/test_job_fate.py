"""What became of a baseline job, by the words of squeue."""

from __future__ import annotations

import pytest

from hpctools.elastic.job_fate import fate_of
from hpctools.slurm.types import Job


def job(state: str, reason: str = "None", job_id: int = 12) -> Job:
    return Job(job_id, "train", "nlp1", "nlp", "gpu", "high", state, reason)


@pytest.mark.parametrize("state", ["PENDING", "CONFIGURING", "RUNNING", "SUSPENDED"])
def test_what_waits_or_runs_is_alive(state: str) -> None:
    fate = fate_of(12, [job("CANCELLED", job_id=11), job(state)])
    assert (fate.alive, fate.lost, fate.wanted) == (True, False, False)


@pytest.mark.parametrize(
    ("state", "reason", "words"),
    [
        ("CANCELLED", "None", "was cancelled (scancel)"),
        ("COMPLETING", "None", "was cancelled (scancel)"),
        ("TIMEOUT", "TimeLimit", "ran out of time (--time)"),
        ("COMPLETING", "TimeLimit", "ran out of time (--time)"),
        ("DEADLINE", "DeadLine", "came to its deadline (--deadline)"),
        ("COMPLETING", "DeadLine", "came to its deadline (--deadline)"),
    ],
)
def test_an_end_that_somebody_wanted_is_named(state: str, reason: str, words: str) -> None:
    fate = fate_of(12, [job(state, reason)])
    assert (fate.wanted, fate.words, fate.ending) == (True, words, state == "COMPLETING")


@pytest.mark.parametrize(
    ("state", "reason", "words"),
    [
        ("NODE_FAIL", "NodeDown", "is lost (NODE_FAIL)"),
        ("COMPLETING", "NodeDown", "is lost (NodeDown)"),
        ("PREEMPTED", "None", "is lost (PREEMPTED)"),
        ("COMPLETED", "None", "is lost (COMPLETED)"),
        ("FAILED", "NonZeroExitCode", "is lost (FAILED)"),
    ],
)
def test_what_nobody_wanted_is_lost(state: str, reason: str, words: str) -> None:
    fate = fate_of(12, [job(state, reason)])
    assert (fate.lost, fate.wanted, fate.words) == (True, False, words)


def test_what_slurm_has_forgotten_is_lost() -> None:
    assert fate_of(12, [job("RUNNING", job_id=11)]).words == "is lost (unknown to Slurm)"

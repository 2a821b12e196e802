"""What became of a baseline job, by the words of squeue and sacct."""

from __future__ import annotations

import pytest

from hpctools.elastic.job_fate import ATTEMPTS, fate_of, known_better
from hpctools.errors import UnreachableError
from hpctools.slurm.types import Job


def job(state: str, job_id: int = 12) -> Job:
    return Job(job_id, "train", "nlp1", "nlp", "gpu", "high", state)


@pytest.mark.parametrize(
    "state",
    [
        "PENDING",
        "CONFIGURING",
        "RUNNING",
        "SUSPENDED",
        "RESV_DEL_HOLD",
        "REQUEUE_HOLD",
        "REQUEUED",
        "EXPEDITING",
    ],
)
def test_what_waits_or_runs_is_alive(state: str) -> None:
    """Also what is held, its reservation deleted or by a requeue: another job would be one too many."""
    fate = fate_of(12, [job("CANCELLED", job_id=11), job(state)])
    assert (fate.alive, fate.lost, fate.wanted) == (True, False, False)


@pytest.mark.parametrize(
    ("state", "words"),
    [
        ("CANCELLED", "was cancelled (scancel)"),
        ("TIMEOUT", "ran out of time (--time)"),
        ("DEADLINE", "came to its deadline (--deadline)"),
    ],
)
def test_an_end_that_somebody_wanted_is_named(state: str, words: str) -> None:
    fate = fate_of(12, [job(state)])
    assert (fate.wanted, fate.words) == (True, words)


def test_of_a_job_that_is_being_ended_it_is_open_why() -> None:
    """It was cancelled, or one of its nodes has failed."""
    fate = fate_of(12, [job("COMPLETING")])
    assert (fate.open, fate.wanted, fate.lost, fate.alive) == (True, False, False, False)


@pytest.mark.parametrize("state", ["NODE_FAIL", "PREEMPTED", "COMPLETED", "FAILED"])
def test_what_nobody_wanted_is_lost(state: str) -> None:
    fate = fate_of(12, [job(state)])
    assert (fate.lost, fate.wanted, fate.words) == (True, False, f"is lost ({state})")


def test_what_slurm_has_forgotten_is_lost() -> None:
    assert fate_of(12, [job("RUNNING", job_id=11)]).words == "is lost (unknown to Slurm)"


@pytest.mark.parametrize(
    ("accounted", "wanted", "words"),
    [
        ("NODE_FAIL", False, "is lost (NODE_FAIL)"),
        ("PREEMPTED", False, "is lost (PREEMPTED)"),
        ("CANCELLED", True, "was cancelled (scancel)"),
        ("TIMEOUT", True, "ran out of time (--time)"),
    ],
)
def test_of_a_job_that_is_being_ended_slurmdbd_knows_how(accounted: str, wanted: bool, words: str) -> None:
    """It may be a little late, or away for a moment."""
    answers = iter(["RUNNING", "COMPLETING", UnreachableError("away"), accounted])

    def ended_as(job_id: int) -> str:
        assert job_id == 12
        answer = next(answers)
        if isinstance(answer, UnreachableError):
            raise answer
        return answer

    slept: list[float] = []
    fate = known_better(12, fate_of(12, [job("COMPLETING")]), ended_as, slept.append)
    assert (fate.wanted, fate.lost, fate.words) == (wanted, not wanted, words)
    assert slept == [0, 0.5, 0.5, 0.5]


def test_a_slurmdbd_that_says_nothing_is_not_waited_for_long_and_decides_nothing() -> None:
    slept: list[float] = []
    fate = known_better(12, fate_of(12, [job("COMPLETING")]), lambda job_id: "", slept.append)
    assert (fate.open, fate.wanted) == (True, False)
    assert fate.words == "was ended, and Slurm does not say why"
    assert (len(slept), sum(slept)) == (ATTEMPTS, 2.5)


def test_what_slurmctld_knows_is_not_asked_for() -> None:
    known = fate_of(12, [job("NODE_FAIL")])
    assert known_better(12, known, lambda job_id: pytest.fail("asked")) is known


@pytest.mark.parametrize(
    ("accounted", "words", "wanted"),
    [
        ("CANCELLED", "was cancelled (scancel)", True),
        ("NODE_FAIL", "is lost (NODE_FAIL)", False),
        ("", "is lost (unknown to Slurm)", False),
    ],
)
def test_what_slurmctld_has_forgotten_is_asked_for_once(accounted: str, words: str, wanted: bool) -> None:
    """It forgets a job after some minutes, and may have been away for longer."""
    asked: list[int] = []
    fate = known_better(12, fate_of(12, []), lambda job_id: asked.append(job_id) or accounted)  # type: ignore[func-returns-value]
    assert (fate.words, fate.wanted, asked) == (words, wanted, [12])

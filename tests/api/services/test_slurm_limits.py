"""What squeue tells of jobs that wait, read for enforcement; tests/system asks a real one."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from api.services.slurm_limits import SlurmLimits

# What squeue prints of job 7, but for its priority and reason, by the letters of its --format.
JOB = {"A": "7", "V": "1795274110", "q": "high", "a": "lab-a"}


def held(priority: str, reason: str) -> tuple[bool, bool]:
    """Whether job 7 counts as held, and as marked; its AdminComment says that a budget holds it."""

    def call(argv: Sequence[str], timeout: float) -> str:
        shape = next((word.removeprefix("--format=") for word in argv if word.startswith("--format=")), "")
        if argv[0] != "squeue":
            return ""
        if not shape:
            return f"{'7':24}hpctools-budget:nlp\n"
        shown = {**JOB, "Q": priority, "r": reason}
        return "|".join(shown[letter.removeprefix("%")] for letter in shape.split("|")) + "\n"

    (job,) = SlurmLimits("c", call).live(()).pending
    assert (job.id, job.submitted, job.qos, job.account) == (7, 1795274110, "high", "lab-a")
    return job.held, job.marked


@pytest.mark.parametrize(
    "reason",
    [
        "JobHeldAdmin",
        "JobHeldUser",
        "launch failed requeued held",
        "job requeued in held state",
        "user env retrieval failed requeued held",
        "License request 'a:1|b:1' is no longer valid, holding job",
    ],
)
def test_a_job_without_priority_is_held_whatever_its_reason_says(reason: str) -> None:
    """Such a job was held again at every look, and each time it was found not to be."""
    assert held("0", reason) == (True, True)


@pytest.mark.parametrize("reason", ["Priority", "Dependency", "License a:1|b:1 not available"])
def test_a_job_with_a_priority_waits_by_itself(reason: str) -> None:
    assert held("10008", reason) == (False, False)

"""Runs go on without slurmctld: what Slurm had begun joins, who has to go leaves, the rest waits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from ledger_run import LedgerRun, training

from tests.elastic.test_run import DELAY, OPTIONS, assert_same_result, lone

__all__ = ["lone"]

pytestmark = [pytest.mark.timeout(600), pytest.mark.usefixtures("forked_workers")]


@contextmanager
def unreachable(run: LedgerRun) -> Iterator[None]:
    """Slurm's controller answers nobody; what it had started goes on."""
    down = run.queue / "down"
    down.touch()
    try:
        yield
    finally:
        down.unlink()


def jobs(run: LedgerRun, role: str) -> list[int]:
    return [job.job_id for job in run.folder.jobs() if job.role == role]


def complaints(run: LedgerRun) -> Counter[str]:
    messages = (event.detail["message"] for event in run.events("warning"))
    return Counter(message for message in messages if "slurmctld does not answer" in message)


@pytest.mark.slow
def test_it_grows_shrinks_and_loses_its_baseline_while_slurmctld_is_down(
    tmp_path: Path, lone: list[dict[str, Any]]
) -> None:
    """The two that it had started join; one is preempted; the baseline dies, and another one comes later."""
    hurry = tmp_path / "hurry"
    options = ("--delay", str(DELAY), "--hurry", str(hurry))
    with LedgerRun(tmp_path, training(tmp_path / "out", *OPTIONS, *options), (1, 3)) as run:
        run.wait_for_world(1)
        run.capacity = 2
        run.wait(lambda: len(run.replicas) == 2)
        with unreachable(run):
            assert not run.events("resize"), "they have to come while it is down"
            run.wait_for_world(3)
            (left,) = run.preempt(1)
            run.wait_for_world(2)
            assert run.replicas[left].wait(run.spec.grace_seconds) == 0
            run.lose_baseline()
            run.wait(lambda: run.events("takeover"))
            run.wait(lambda: any("cannot see the baseline job" in each for each in complaints(run)))
            run.wait_for_steps(5)
            assert jobs(run, "baseline") == [1]
            submitted = jobs(run, "replica")
        run.wait(lambda: len(jobs(run, "baseline")) == 2)
        run.wait_for_world(2)
        hurry.touch()
        assert run.end() == 0, run.story()
    assert_same_result(run, lone)
    assert next(event.detail["reason"] for event in run.events("left")) == "preempted"
    assert submitted[:2] == sorted(run.replicas)[:2]
    assert max(complaints(run).values()) <= 2, "each coordinator says it once, not every second"

"""`--dependency` on elastic runs that have finished."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpctools.cli.hp_submit import main
from hpctools.elastic.folder import RunStatus
from hpctools.testing.runs import make_run
from tests.cli.test_hp_submit import argv_of, sbatch  # noqa: F401 - a fixture


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ("afterok:done-000001:goes-000002", "afterok:22"),
        ("afterok:done-000001,after:99", "after:99"),
        ("afterany:done-000001?afterok:99", ""),
        ("afterok:done-000001", ""),
        ("afternotok:done-000001", "afternotok:12"),
    ],
)
def test_a_run_that_has_finished_is_waited_for_no_more_whatever_became_of_its_last_job(
    sbatch: Path,  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    asked: str,
    told: str,
) -> None:
    """Its second baseline job was cancelled, unused: Slurm would say DependencyNeverSatisfied."""
    runs = tmp_path / "runs"
    monkeypatch.setenv("HPCTOOLS_RUNS", str(runs))
    for name, state, jobs in (("done-000001", "finished", (11, 12)), ("goes-000002", "running", (21, 22))):
        folder = make_run(runs, name)
        for job in jobs:
            folder.append_job("baseline", job)
        folder.write_status(RunStatus(state))
    assert main([f"--dependency={asked}", "job.sh"]) == 0
    assert argv_of(sbatch)[-2:] == [f"--dependency={told}", "job.sh"]

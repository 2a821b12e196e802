"""`--dependency` on elastic runs that have ended."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpctools.cli import dependency
from hpctools.cli.hp_submit import main
from hpctools.elastic.folder import RunStatus
from hpctools.slurm.types import Job
from hpctools.testing.runs import make_run
from hpctools.testing.slurm import FakeSlurm
from tests.cli.test_hp_submit import argv_of, sbatch  # noqa: F401 - a fixture

RUNS = (
    ("done-000001", "finished", (11, 12)),
    ("goes-000002", "running", (21, 22)),
    ("lost-000003", "failed", (31,)),
    ("gone-000004", "cancelled", (41,)),
)


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of one that has finished the second baseline job was cancelled, unused."""
    root = tmp_path / "runs"
    monkeypatch.setenv("HPCTOOLS_RUNS", str(root))
    for name, state, jobs in RUNS:
        folder = make_run(root, name)
        for job in jobs:
            folder.append_job("baseline", job)
        folder.write_status(RunStatus(state))


def assert_told(sbatch: Path, asked: str, told: str) -> None:  # noqa: F811
    """Of a dependency that is asked for Slurm is told this."""
    assert main([f"--dependency={asked}", "job.sh"]) == 0
    assert argv_of(sbatch)[-2:] == [f"--dependency={told}", "job.sh"]


@pytest.mark.usefixtures("runs")
@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ("afterok:done-000001:goes-000002", "afterok:22"),
        ("afterok:done-000001,after:99", "after:99"),
        ("afterany:done-000001?afterok:99", ""),
        ("afterok:done-000001", ""),
        ("AFTEROK:goes-000002,afterOK:done-000001,AfterAny:99", "afterok:22,afterany:99"),
        ("afternotok:done-000001?afterok:99", "afterok:99"),
        ("afternotok:lost-000003", ""),
        ("afternotok:gone-000004,afternotok:goes-000002", "afternotok:22"),
        ("afterany:lost-000003:gone-000004:done-000001,after:lost-000003", ""),
        ("afterany:lost-000003,after:lost-000003:done-000001+5", "after:12+5"),
        ("after:gone-000004+60?afterok:99", "after:41+60?afterok:99"),
        ("afterok:lost-000003?afterany:goes-000002", "afterany:22"),
        ("afterok:lost-000003?afterok:done-000001", ""),
        ("afterok:99:99:goes-000002?afterany:98", "afterok:99:22?afterany:98"),
        ("singleton,afternotok:goes-000002:99", "singleton,afternotok:22:99"),
    ],
)
def test_a_run_that_has_ended_is_waited_for_no_more_whatever_became_of_its_last_job(
    sbatch: Path,  # noqa: F811
    asked: str,
    told: str,
) -> None:
    """Slurm goes by the job, which it may have forgotten: DependencyNeverSatisfied, or begun at once."""
    assert_told(sbatch, asked, told)


@pytest.mark.usefixtures("runs")
@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ("afternotok:done-000001", "run done-000001 has finished, so afternotok:done-000001 can never be"),
        ("afterok:lost-000003", "run lost-000003 has failed or was cancelled, so afterok:lost-000003 can"),
        ("afterok:goes-000002:gone-000004", "hp-submit --resume gone-000004"),
        ("afterok:99,aftercorr:lost-000003", "aftercorr:lost-000003 can never be satisfied"),
        ("afterok:lost-000003?afternotok:done-000001", "afterok:lost-000003 can never be satisfied"),
    ],
)
def test_what_can_never_be_is_refused_and_not_left_in_the_queue(
    sbatch: Path,  # noqa: F811
    capfd: pytest.CaptureFixture[str],
    asked: str,
    said: str,
) -> None:
    assert main([f"--dependency={asked}", "job.sh"]) == 1
    assert said in " ".join(capfd.readouterr().err.split())
    assert not (sbatch / "argv").exists()


@pytest.fixture
def slurm(monkeypatch: pytest.MonkeyPatch) -> FakeSlurm:
    """Of the run that was cancelled the job is being ended; of the one that failed it has."""
    slurm = FakeSlurm()
    for job, state in ((31, "FAILED"), (41, "COMPLETING")):
        slurm.queue[job] = Job(job, "train", "nlp1", "nlp", "gpu", "high", state, submitted=1_700_000_000)
    monkeypatch.setattr(dependency, "connect", lambda: slurm)
    return slurm


@pytest.mark.usefixtures("runs", "slurm")
@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ("afterany:gone-000004", "afterany:41"),
        ("afternotok:gone-000004:lost-000003", "afternotok:41"),
        ("afterany:gone-000004?afterany:lost-000003", ""),
        ("afterany:gone-000004?afterok:99", "afterany:41?afterok:99"),
    ],
)
def test_a_run_that_was_cancelled_is_waited_for_as_long_as_its_job_is_there(
    sbatch: Path,  # noqa: F811
    asked: str,
    told: str,
) -> None:
    """Its ranks may still write what the job is to read."""
    assert_told(sbatch, asked, told)


@pytest.mark.usefixtures("runs", "slurm")
def test_what_can_never_be_is_refused_also_while_the_job_is_there(
    sbatch: Path,  # noqa: F811
    capfd: pytest.CaptureFixture[str],
) -> None:
    assert main(["--dependency=afterok:gone-000004", "job.sh"]) == 1
    assert "can never be satisfied" in capfd.readouterr().err


@pytest.mark.usefixtures("sbatch")
def test_a_run_in_restart_mode_is_not_to_be_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """`--resume` is refused for it."""
    monkeypatch.setenv("HPCTOOLS_RUNS", str(tmp_path / "runs"))
    folder = make_run(tmp_path / "runs", "ranks-000005", mode="restart")
    folder.append_job("baseline", 51)
    folder.write_status(RunStatus("failed"))
    assert main(["--dependency=afterok:ranks-000005", "job.sh"]) == 1
    said = capfd.readouterr().err
    assert "submit it again (its script goes on from what it saved itself)" in said
    assert "--resume" not in said


@pytest.fixture
def prepared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs 0 to 2 of an array, of which the second has finished, and a run of its own that goes on."""
    monkeypatch.setenv("HPCTOOLS_RUNS", str(tmp_path / "runs"))
    for name, state, job in (
        ("prep-00000a_0", "running", 60),
        ("prep-00000a_1", "finished", 61),
        ("prep-00000a_2", "running", 62),
        ("goes-000002", "running", 22),
    ):
        folder = make_run(tmp_path / "runs", name)
        folder.append_job("baseline", job)
        folder.write_status(RunStatus(state))


def awaited_by_each(*words: str) -> list[str]:
    """What each run of an array of three is submitted with, last."""
    slurm = FakeSlurm()
    assert main(["--nodes=1:2", *words, "--", "train"], client=lambda: slurm) == 0
    return [
        [option for option in each.options if option.startswith("--dependency=")][-1]
        for each in slurm.submitted
    ]


@pytest.mark.usefixtures("prepared", "sbatch")
@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ("aftercorr:prep-00000a", ["afterok:60", "", "afterok:62"]),
        (
            "AFTERCORR:prep-00000a,afterany:goes-000002",
            ["afterok:60,afterany:22", "afterany:22", "afterok:62,afterany:22"],
        ),
        ("aftercorr:99", ["aftercorr:99"] * 3),
        ("aftercorr:99_*:prep-00000a", ["afterok:99:60", "afterok:99", "afterok:99:62"]),
        # One job, to which none of ours corresponds: Slurm takes it for afterok, too.
        ("aftercorr:goes-000002:prep-00000a_2:60:99_7", ["afterok:22:62:60:99_7"] * 3),
        ("afterok:prep-00000a", ["afterok:60:62"] * 3),
    ],
)
def test_each_run_of_an_array_waits_for_what_has_its_index(asked: str, told: list[str]) -> None:
    assert awaited_by_each("--array=0-2", f"--dependency={asked}") == [
        f"--dependency={each}" for each in told
    ]


@pytest.mark.usefixtures("prepared", "sbatch")
def test_the_limit_of_an_array_is_added_to_what_each_run_waits_for() -> None:
    told = awaited_by_each("--array=0-2%1", "--dependency=aftercorr:prep-00000a")
    assert told == [
        f"--dependency={each}" for each in ("afterok:60", "afterany:101", "afterok:62,afterany:102")
    ]


@pytest.mark.usefixtures("prepared")
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ["--nodes=1:2", "--array=1-3", "--", "train"],
            "there is no run prep-00000a_3 that index 3 of --array could wait for (aftercorr:prep-00000a)",
        ),
        (
            ["--array=0-2", "job.sh"],
            "or submit each index by itself, as with --array=3 --dependency=afterok:prep-00000a_3",
        ),
    ],
)
def test_an_index_to_which_nothing_can_correspond_is_refused(
    sbatch: Path,  # noqa: F811
    capfd: pytest.CaptureFixture[str],
    words: list[str],
    said: str,
) -> None:
    slurm = FakeSlurm()
    assert main(["--dependency=aftercorr:prep-00000a", *words], client=lambda: slurm) == 1
    assert said in " ".join(capfd.readouterr().err.split())
    assert not slurm.submitted
    assert not (sbatch / "argv").exists()


@pytest.mark.usefixtures("prepared")
def test_without_an_array_all_runs_are_waited_for(sbatch: Path) -> None:  # noqa: F811
    assert_told(sbatch, "aftercorr:prep-00000a", "aftercorr:60:62")
    assert main(["--array=0-2", "--dependency=aftercorr:goes-000002", "job.sh"]) == 0
    assert argv_of(sbatch)[-2:] == ["--dependency=aftercorr:22", "job.sh"]
    assert main(["--array=0-2", "--dependency=aftercorr:99", "job.sh"]) == 0
    assert argv_of(sbatch)[-2:] == ["--dependency=aftercorr:99", "job.sh"]

"""Runs of a submission that Slurm has forgotten are neither made again nor removed."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from hpctools.elastic.folder import RunFolder
from hpctools.errors import RemoteError, UnreachableError
from hpctools.remote import local_submit, own_name
from hpctools.remote.local_submit import HereSlurm
from hpctools.remote.once import Job
from hpctools.remote.run_names import with_runs
from hpctools.remote.submissions import Record, Submission
from hpctools.slurm import choose, run, scripts
from hpctools.submit.plan import run_comment
from hpctools.testing.slurm import FakeSlurm

RECORD = Record("train-0123456789ab", "r", state="submitting", suffix="0123456789ab")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Slurm knows of no job any more."""
    monkeypatch.setenv("HPCTOOLS_RUNS", str(tmp_path))
    monkeypatch.setattr(local_submit, "_jobs_by_comment", dict)
    made = tmp_path / "train-0123456789ab"
    made.mkdir()
    return made


def test_the_job_that_was_noted_down_is_found(folder: Path) -> None:
    slurm = HereSlurm(Submission(folder), lambda _: 0, ())
    assert slurm.find(RECORD) is None
    RunFolder(folder).append_job("baseline", 7)
    assert slurm.find(RECORD) == Job(7, "train-0123456789ab")


@pytest.mark.parametrize("noted", [True, False])
def test_the_job_of_a_run_that_has_replicas_is_its_baseline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, noted: bool
) -> None:
    """All jobs of a run have one comment; a replica's output is not the run's, nor its end the run's end."""
    slurm, here = with_replicas(tmp_path, monkeypatch)
    if noted:
        RunFolder(tmp_path / RECORD.id).append_job("baseline", 101)
    assert here.find(RECORD) == Job(101, RECORD.id)
    (tmp_path / f"{RECORD.id}_1").mkdir()
    assert here.find(RECORD) is None
    here.forget(RECORD)
    assert slurm.cancelled == [101, 102, 103]


def with_replicas(home: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[FakeSlurm, HereSlurm]:
    """A run whose replicas have begun, and another job."""
    monkeypatch.setenv("HPCTOOLS_RUNS", str(home))
    (home / RECORD.id).mkdir()
    slurm = FakeSlurm(user=own_name.by_uid())
    for comment in (*[run_comment(RECORD.id)] * 3, ""):
        slurm.submit([f"--comment={comment}"], Path(__file__))
    monkeypatch.setattr(choose, "choose", lambda _: SimpleNamespace(client=slurm))
    return slurm, HereSlurm(Submission(home / RECORD.id), lambda _: 0, ())


def test_a_run_whose_folder_is_in_another_home_is_found_by_its_script(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HPCTOOLS_RUNS", str(tmp_path))
    said = f"9 {tmp_path}/x-0123456789ab_1/job.sh\n8 {tmp_path}/x-0123456789ab_0/job.sh\n"
    monkeypatch.setattr(scripts, "_ask", lambda argv: said if argv[0] == "squeue" else "")
    submission = Submission(tmp_path / "submissions" / RECORD.id)
    submission.make()
    here = HereSlurm(submission, lambda _: 0, ())
    assert here.find(replace(RECORD, state="receiving")) == Job(8, "x-0123456789ab")
    assert here.find(RECORD) is None, "with a mark of ours its folder is here"


def test_an_array_of_which_some_runs_are_missing_was_not_submitted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other home's node died in the middle, or sbatch refused one, and the others were cancelled."""
    monkeypatch.setenv("HPCTOOLS_RUNS", str(tmp_path))
    monkeypatch.setenv("HPCTOOLS_SUBMISSIONS", str(tmp_path / "submissions"))
    asked = with_runs(Record(RECORD.id, "r"), {"name": "train", "count": 3}, (), {})
    here = HereSlurm(Submission(tmp_path / "submissions" / RECORD.id), lambda _: 0, ())
    here.submission.make()
    queue = [f"{8 + index} {tmp_path}/train-0123456789ab_{index}/job.sh\n" for index in range(3)]
    monkeypatch.setattr(scripts, "_ask", lambda argv: "".join(queue) if "--format=%F %o" in argv else "")
    assert here.find(asked) == Job(8, "train-0123456789ab")
    del queue[1]
    with pytest.raises(UnreachableError, match="2 of 3 runs of train-0123456789ab were submitted"):
        here.find(asked)
    monkeypatch.setattr(scripts, "states_of", lambda jobs: {job: ["CANCELLED"] for job in jobs})
    assert here.find(asked) is None


@pytest.mark.parametrize("elsewhere", [True, False])
def test_a_run_whose_id_ends_alike_is_none_of_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, elsewhere: bool
) -> None:
    """`--submission eval-0123456789ab`: by its name, or as another one's record names it."""
    slurm, _ = with_replicas(tmp_path, monkeypatch)
    here = HereSlurm(Submission(tmp_path / "submissions/eval-0123456789ab"), lambda _: 0, ())
    here.submission.make()
    monkeypatch.setattr(scripts, "_ask", lambda argv: f"101 {tmp_path}/{RECORD.id}/job.sh\n")
    monkeypatch.setenv("HPCTOOLS_SUBMISSIONS", str(tmp_path / "submissions"))
    if elsewhere:
        (tmp_path / RECORD.id).rmdir()
    state = "receiving" if elsewhere else "submitting"
    plain, other, alike = (
        replace(with_runs(Record("eval-0123456789ab", "r"), stated, (), {}), state=state)
        for stated in ({}, {"name": "eval"}, {"name": "train.py"})
    )
    found = Job(101, RECORD.id)
    assert [here.find(each) for each in (plain, other, alike)] == [None, None, found]
    theirs = Submission(tmp_path / "submissions" / RECORD.id)
    theirs.make()
    theirs.write(replace(RECORD, state="submitted", job_id=101, run=RECORD.id))
    assert here.find(alike) is None
    for each in (plain, other, alike):
        here.forget(each)
    assert slurm.cancelled == []


def test_a_runs_name_is_that_which_hp_submit_gives_it_there() -> None:
    asked: list[tuple[list[str], dict[str, str]]] = [([], {}), ([], {"SBATCH_JOB_NAME": "b"})]
    asked.append((["-Jtrain", "--nodes=1:2"], {"SBATCH_JOB_NAME": "b"}))
    wanted = Record("eval-0123456789ab", "r")
    stems = [with_runs(wanted, {"name": "train"}, *each).stem for each in asked]
    assert stems == ["train", "b", "train"]
    older = with_runs(wanted, None, [], {})
    assert (older.stem, older.suffix) == ("", "0123456789ab")


@pytest.mark.parametrize("stdin", [None, "of a run"])
def test_sbatch_keeps_the_lock(tmp_path: Path, stdin: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a plain job and of a run: who kills us lets nobody else submit before sbatch has ended."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PWD", str(tmp_path))
    submission, held, kept = Submission(tmp_path / RECORD.id), [], os.dup(0)
    submission.make()
    look = ["sh", "-c", 'for each in /proc/self/fd/*; do readlink "$each"; done; true']

    def sbatch(words: Sequence[str]) -> int:
        if stdin is None:
            said = subprocess.run(look, capture_output=True, text=True, check=True).stdout
        else:
            said = run.run(look, timeout=30).stdout
        held.append(str(submission.own / "lock") in said.splitlines())
        return 1

    try:
        with submission.locked(lambda: None) as lock:
            HereSlurm(submission, sbatch, ()).submit(RECORD, lock, lambda: None)
    finally:
        os.dup2(kept, 0)
        os.close(kept)
    assert held == [True]
    assert "lock" not in run.run(look, timeout=30).stdout, "it is for this once"


def test_before_sbatch_it_is_asked_whether_to_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PWD", str(tmp_path))
    submission, asked, kept = Submission(tmp_path / RECORD.id), [], os.dup(0)
    submission.make()

    def sbatch(words: Sequence[str]) -> int:
        run.SUBMITTING.get()()
        return 1

    try:
        with submission.locked(lambda: None) as lock:
            HereSlurm(submission, sbatch, ()).submit(RECORD, lock, lambda: asked.append(1))
    finally:
        os.dup2(kept, 0)
        os.close(kept)
    run.SUBMITTING.get()()
    assert asked == [1], "it is for this once"


def test_a_run_that_has_begun_is_never_removed(folder: Path) -> None:
    slurm = HereSlurm(Submission(folder), lambda _: 0, ())
    (folder / "status.json").write_text("{}")
    with pytest.raises(RemoteError, match="has run already"):
        slurm.forget(RECORD)
    (folder / "status.json").unlink()
    slurm.forget(RECORD)
    assert not folder.exists()

"""Runs, found by what a person calls them."""

from __future__ import annotations

import os
import tempfile
from datetime import datetime, timezone
from pathlib import Path

import pytest

from hpctools.elastic.folder import JobRecord
from hpctools.errors import ReleaseError, SubmitError, UnreachableError
from hpctools.slurm.types import Job
from hpctools.submit.runs import find_run, find_runs, run_folders, still_there
from hpctools.testing.runs import make_run
from hpctools.testing.slurm import FakeSlurm

RECORDED = int(datetime(2026, 2, 3, 10, tzinfo=timezone.utc).timestamp())


def no_slurm():
    raise AssertionError("Slurm is not needed for this")


def test_runs_are_listed_newest_first_and_other_folders_left_out(tmp_path):
    for name, day in (("a-000001", 3), ("b-000002", 5), ("c-000003", 4)):
        make_run(tmp_path, name, created=f"2026-02-0{day}T10:00:00.000+00:00")
    (tmp_path / "stray").mkdir()
    (tmp_path / "torn").mkdir()
    (tmp_path / "torn" / "run.json").write_text("{")
    assert [folder.path.name for folder in run_folders(tmp_path)] == ["b-000002", "c-000003", "a-000001"]


@pytest.fixture
def as_nobody():
    """Somebody whom modes keep out, which root is not."""
    root = os.geteuid() == 0
    if root:
        os.seteuid(65534)
    yield
    if root:
        os.seteuid(0)


def test_a_folder_that_nobody_else_may_look_into_does_not_hide_the_others(as_nobody):
    with tempfile.TemporaryDirectory() as shared:
        root = Path(shared)
        mine, other = make_run(root, "train-3fa9c1"), make_run(root, "theirs-000000")
        other.path.chmod(0)
        found = run_folders(root), find_runs("train-3fa9c1", root, no_slurm)
        other.path.chmod(0o700)
    assert [[each.path for each in folders] for folders in found] == [[mine.path]] * 2


def test_without_any_run_ever_the_list_is_empty(tmp_path):
    assert run_folders(tmp_path / "nothing") == []


def test_a_run_is_found_by_id_by_folder_and_by_any_of_its_jobs(tmp_path):
    folder = make_run(tmp_path, "train-3fa9c1")
    make_run(tmp_path, "train-000000")
    folder.append_job("baseline", 12)
    folder.append_job("replica", 15)
    words = ("train-3fa9c1", str(folder.path), "12", "15")
    assert {find_run(word, tmp_path, no_slurm).path for word in words} == {folder.path}


def test_a_job_that_no_folder_records_is_found_by_its_comment(tmp_path):
    folder = make_run(tmp_path, "train-3fa9c1")
    slurm = FakeSlurm()
    number = slurm.submit(["--comment=hp-run:train-3fa9c1"], folder.path / "run.json")
    assert find_run(str(number), tmp_path, lambda: slurm).path == folder.path


def test_a_job_of_no_run_is_sent_to_scancel(tmp_path):
    with pytest.raises(SubmitError, match=r"job 7 belongs to none of your elastic runs.*`scancel 7`"):
        find_run("7", tmp_path, FakeSlurm)


@pytest.mark.parametrize(
    ("word", "remedy"),
    [
        ("train-3fa9c2", "did you mean train-3fa9c1?"),
        ("eval", "did you mean eval-000000?"),
        ("zzz", "hp-status --all lists your runs"),
        ("", "did you mean"),
    ],
)
def test_an_unknown_run_is_answered_with_similar_ones(tmp_path, word, remedy):
    make_run(tmp_path, "train-3fa9c1")
    make_run(tmp_path, "eval-000000")
    with pytest.raises(SubmitError) as caught:
        find_run(word, tmp_path, no_slurm)
    assert remedy in str(caught.value)


@pytest.mark.parametrize("failure", [UnreachableError, ReleaseError])
def test_where_slurm_does_not_say_it_no_job_is_known_to_be_there(failure):
    slurm = FakeSlurm(failure=failure("Slurm's controller does not answer, or nobody can read it"))
    record = JobRecord("2026-02-03T10:00:00.000+00:00", "baseline", 101)
    assert still_there([("train-3fa9c1", record)], lambda: slurm) == {}


@pytest.mark.parametrize(
    ("changes", "there"),
    [
        ({"submitted": RECORDED + 200, "comment": "site"}, True),
        ({"submitted": RECORDED + 400}, False),
        ({"submitted": RECORDED + 400, "comment": "hp-run:train-3fa9c1"}, True),
        ({}, False),
    ],
)
def test_another_job_that_has_a_runs_id_by_now_is_not_its_job(changes, there):
    slurm = FakeSlurm()
    slurm.queue[101] = Job(101, "train", "nlp1", "nlp", "gpu", "normal", "RUNNING", **changes)
    record = JobRecord("2026-02-03T10:00:00.000+00:00", "baseline", 101)
    found = still_there([("train-3fa9c1", record)], lambda: slurm)
    assert found == ({101: "RUNNING"} if there else {})

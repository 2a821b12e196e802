"""Where a job's output is, when Slurm says it, half says it, and has forgotten it."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from pathlib import Path

import pytest

from hpctools.errors import UnreachableError
from hpctools.remote.job_output import Following, Outputs, outputs
from hpctools.remote.submissions import Submission
from hpctools.slurm import scripts


@pytest.fixture
def submission(tmp_path: Path) -> Submission:
    made = Submission(tmp_path)
    made.own.mkdir()
    return made


def says(patch: pytest.MonkeyPatch, *blocks: Mapping[str, str]) -> None:
    patch.setattr(scripts, "details", lambda _: list(blocks))


def away(patch: pytest.MonkeyPatch) -> None:
    def details(job: int) -> list[dict[str, str]]:
        raise UnreachableError("Slurm does not answer")

    patch.setattr(scripts, "details", details)


def task(index: object, path: str) -> Mapping[str, str]:
    return {"ArrayTaskId": str(index), "StdOut": path}


def found(outputs: Outputs) -> tuple[dict[str, str], bool]:
    return {each.task: each.path for each in outputs.files}, outputs.array


def test_output_that_is_there_is_read_while_slurmctld_is_away(
    submission: Submission, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From where it was when somebody looked last, else from where sbatch writes usually; else it is told."""
    away(monkeypatch)
    with pytest.raises(UnreachableError):
        outputs(submission, 7)
    usual = submission.folder / "slurm-7.out"
    usual.write_text("epoch 1")
    assert found(outputs(submission, 7)) == ({"": str(usual)}, False)
    says(monkeypatch, {"StdOut": "/scratch/x_1.log"})
    outputs(submission, 7)
    away(monkeypatch)
    assert found(outputs(submission, 7)) == ({"": "/scratch/x_1.log"}, False)


def test_tasks_that_slurm_has_forgotten_are_still_known(
    submission: Submission, monkeypatch: pytest.MonkeyPatch
) -> None:
    """MinJobAge is some minutes; the array goes on for days. Names are what --output says."""
    three = {str(n): f"/x/{n}.log" for n in range(3)}
    says(monkeypatch, *(task(*each) for each in three.items()))
    assert found(outputs(submission, 7)) == (three, True)
    says(monkeypatch, task(2, "/x/2.log"), task(3, "/x/3.log"))
    last = outputs(submission, 7)
    assert found(last) == ({**three, "3": "/x/3.log"}, True)
    assert (last.of(0), last.of(1), last.of(9)) == (["/x/0.log"], ["/x/1.log"], [])
    says(monkeypatch)
    assert found(outputs(submission, 7)) == ({**three, "3": "/x/3.log"}, True)


def test_tasks_that_nobody_asked_about_in_time_are_found_by_their_usual_name(
    submission: Submission, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual = {n: f"{submission.folder}/slurm-7_{n}.out" for n in ("0", "2", "10")}
    for path in usual.values():
        Path(path).write_text("")
    says(monkeypatch, task(10, usual["10"]))
    assert found(outputs(submission, 7)) == (usual, True)
    says(monkeypatch, task(10, "/x/10.log"))
    assert outputs(Submission(submission.folder), 7).of(10) == [usual["10"], "/x/10.log"]


@pytest.mark.parametrize("name", ["logs/%a.log", "run-%a.out", "x_%a.a.log"])
def test_a_task_is_found_whatever_its_file_is_called(
    submission: Submission, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    paths = {str(n): f"/x/{name.replace('%a', str(n))}" for n in (1, 11)}
    says(monkeypatch, *(task(*each) for each in paths.items()))
    assert outputs(submission, 7).of(1) == [paths["1"]]


@pytest.mark.parametrize("waiting", ["0-9", "3,5-9%2", "[3-9]"])
def test_tasks_that_wait_have_no_file(
    submission: Submission, monkeypatch: pytest.MonkeyPatch, waiting: str
) -> None:
    """But they make it an array."""
    pending = task(waiting, "/x/slurm-7_4294967294.out")
    says(monkeypatch, pending)
    assert found(outputs(submission, 7)) == ({}, True)
    says(monkeypatch, pending, task(0, "/x/slurm-7_0.out"))
    assert found(outputs(submission, 7)) == ({"0": "/x/slurm-7_0.out"}, True)


def test_tasks_may_share_a_file(submission: Submission, monkeypatch: pytest.MonkeyPatch) -> None:
    says(monkeypatch, task(0, "/x/all.log"), task(1, "/x/all.log"))
    shared = outputs(submission, 7)
    assert (shared.of(None), shared.of(1)) == (["/x/all.log"], ["/x/all.log"])


def test_a_job_that_is_no_array_is_where_slurm_says_now(
    submission: Submission, monkeypatch: pytest.MonkeyPatch
) -> None:
    for path in ("/x/before.log", "/x/now.log"):
        says(monkeypatch, {"StdOut": path})
        assert found(outputs(submission, 7)) == ({"": path}, False)


def test_what_an_older_release_noted_is_read(submission: Submission, monkeypatch: pytest.MonkeyPatch) -> None:
    away(monkeypatch)
    (submission.own / "StdOut").write_text("/x/slurm-7_0.out\0/x/slurm-7_1.out")
    assert outputs(submission, 7).of(1) == ["/x/slurm-7_1.out"]
    (submission.own / "StdOut").write_text("/x/part_1.log")
    assert found(outputs(submission, 7)) == ({"": "/x/part_1.log"}, False)


@pytest.mark.parametrize("follow", [True, False])
@pytest.mark.parametrize("offset", [0, 3, 4, 100])
def test_output_that_was_begun_anew_is_read_from_its_beginning(
    tmp_path: Path, follow: bool, offset: int
) -> None:
    """A job that was requeued while the line was broken, and is over when it holds again."""
    (tmp_path / "out").write_text("new\n")
    following = Following(tmp_path / "out", lambda: True, lambda: None, sleep=lambda _: None)
    found = b"".join(piece.data for piece in following.pieces(offset, follow=follow))
    assert found == b"new\n"[offset if offset <= 4 else 0 :]


def test_output_so_far_ends_although_its_job_writes_faster_than_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "slurm-7.out"
    path.write_bytes(b"x" * 100)
    following = Following(path, lambda: False, lambda: None)
    got = b""
    for piece in itertools.islice(following.pieces(0, follow=False), 20):
        got += piece.data
        with path.open("ab") as file:
            file.write(b"y" * 100)
    assert got == b"x" * 100

"""Where a job's output is, when Slurm says it, half says it, and has forgotten it."""

from __future__ import annotations

import itertools
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from hpctools.errors import UnreachableError
from hpctools.remote.job_output import Following, Outputs, note, outputs
from hpctools.remote.submissions import Submission
from hpctools.slurm import accounting, scripts


@pytest.fixture(autouse=True)
def accounting_said(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """What sacct says, by the field that is asked for; else it is of a release that knows none."""
    said: dict[str, str] = {}

    def answer(argv: Sequence[str], timeout: float) -> str:
        field = argv[-1].rpartition(",")[2]
        if field not in said or "--expand-patterns" not in argv:
            raise UnreachableError("sacct: unrecognized option")
        return said[field]

    monkeypatch.setattr(accounting, "answer", answer)
    return said


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


def test_where_a_job_writes_is_known_although_nobody_asked_before_slurm_forgot_it(
    submission: Submission, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is noted when the job was submitted: MinJobAge after its end only sbatch's own name was found."""
    says(monkeypatch, {"StdOut": "/x/train.log", "StdErr": "/x/train.err"})
    note(submission, 7)
    says(monkeypatch)
    assert found(outputs(submission, 7)) == ({"": "/x/train.log"}, False)
    assert found(outputs(submission, 7, errors=True)) == ({"": "/x/train.err"}, False)
    away(monkeypatch)
    note(submission, 8)


def test_else_the_accounting_tells_it_of_each_task(
    submission: Submission, monkeypatch: pytest.MonkeyPatch, accounting_said: dict[str, str]
) -> None:
    """A name may hold anything, and be relative to the folder in which the job began."""
    says(monkeypatch)
    accounting_said["StdOut"] = "7_0|gpu-[3-4]|logs/a|b\n.log\n7_1|gpu-1|/x/%N_1.log\n7_[2-9]||\n"
    accounting_said["StdErr"] = "7|gpu-1|/x/7.err\n"
    assert found(outputs(submission, 7)) == (
        {"0": f"{submission.folder}/logs/a|b\n.log", "1": "/x/gpu-1_1.log"},
        True,
    )
    assert found(outputs(submission, 7, errors=True)) == ({"": "/x/7.err"}, False)
    accounting_said.clear()
    assert outputs(submission, 7).of(1) == ["/x/gpu-1_1.log"]


def test_where_nothing_is_known_it_is_forgotten(
    submission: Submission, monkeypatch: pytest.MonkeyPatch
) -> None:
    says(monkeypatch, {"StdOut": ""})
    assert outputs(submission, 7).forgotten is False
    says(monkeypatch)
    assert outputs(submission, 7).forgotten is True
    (submission.folder / "slurm-7.out").write_text("")
    assert outputs(submission, 7) == outputs(submission, 7, errors=True)
    assert outputs(submission, 7).forgotten is False


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("%N.log", "gpu-3.log"),
        ("r%n_%t.log", "r0_0.log"),
        ("r%3t.log", "r000.log"),
        ("step-%s.log", "step-batch.log"),
        ("100%.log", "100%.log"),
        ("[x]%%_%J.log", "[x]%_7.batch.log"),
    ],
)
def test_what_slurm_leaves_open_in_a_name_is_filled_in(
    submission: Submission, monkeypatch: pytest.MonkeyPatch, name: str, file: str
) -> None:
    """Only a node fills it in: the file was not found even while the job ran."""
    path = submission.folder / file
    path.write_text("")
    says(monkeypatch, {"StdOut": f"{submission.folder}/{name}", "BatchHost": "gpu-3.uni.example"})
    assert found(outputs(submission, 7)) == ({"": str(path)}, False)


@pytest.mark.parametrize(("waits", "age"), [(True, 0.0), (False, 60.0)])
def test_a_file_that_fits_may_be_another_jobs(
    submission: Submission, monkeypatch: pytest.MonkeyPatch, waits: bool, age: float
) -> None:
    """`--output=../logs/%s.log`: until this job has begun, or where it was written last before."""
    path, lock = submission.folder / "batch.log", submission.own / "lock"
    for each in (path, lock):
        each.write_text("")
    os.utime(path, (1000.0 - age, 1000.0 - age))
    os.utime(lock, (1000.0, 1000.0))
    host = {} if waits else {"BatchHost": "gpu-3"}
    says(monkeypatch, {"StdOut": f"{submission.folder}/%s.log", **host})
    assert outputs(submission, 7).of(None) == []
    says(monkeypatch, {"StdOut": f"{submission.folder}/%s.log", "BatchHost": "gpu-3"})
    os.utime(path, (1001.0, 1001.0))
    assert outputs(submission, 7).of(None) == [str(path)]


def test_a_name_that_is_still_open_is_no_file(
    submission: Submission, monkeypatch: pytest.MonkeyPatch
) -> None:
    """But is remembered."""
    says(monkeypatch, {"StdOut": f"{submission.folder}/%N.log"})
    assert found(outputs(submission, 7)) == ({}, False)
    (submission.folder / "gpu-3.log").write_text("")
    says(monkeypatch)
    assert outputs(submission, 7).of(None) == [f"{submission.folder}/gpu-3.log"]

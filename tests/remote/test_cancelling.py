"""hp-cancel from afar: the right jobs, and none where an option says otherwise."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from hpctools.cli.hp_cancel import main
from hpctools.errors import UnreachableError, UsageError
from hpctools.remote.cancelling import cancel
from hpctools.remote.local_submit import Said
from hpctools.remote.submissions import Record, Submission
from hpctools.slurm import choose, scripts
from hpctools.testing.runs import make_run
from hpctools.testing.slurm import FakeSlurm

PLAIN, LOST, RUN, HALF = (f"{name}-0123456789ab" for name in ("plain", "lost", "run", "half"))
UNKNOWN = (
    f"hp-cancel: it is not known whether {LOST} was submitted; "
    f"give the same line with --submission {LOST}: it is submitted once\n"
)


class Client:
    """Slurm's, and hp-cancel's main: both keep what they were told."""

    def __init__(self) -> None:
        self.cancelled: list[int] = []
        self.told: list[list[str]] = []

    @property
    def client(self) -> Client:
        return self

    def cancel(self, jobs: Sequence[int]) -> None:
        self.cancelled += jobs

    def main(self, words: Sequence[str]) -> int:
        self.told.append(list(words))
        print("run")
        return 0


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Client:
    """With the submissions of this file."""
    monkeypatch.setenv("HPCTOOLS_SUBMISSIONS", str(tmp_path))
    monkeypatch.setenv("HPCTOOLS_RUNS", str(tmp_path / "runs"))
    made = Client()
    monkeypatch.setattr(choose, "choose", lambda _: made)
    monkeypatch.setattr(scripts, "jobs_from", lambda *_: [])
    for record in (
        Record(PLAIN, "r", "submitted", job_id=7),
        Record(LOST, "r", "submitting", script=f"{tmp_path}/{LOST}/job.sh"),
        Record(RUN, "r", "submitted", job_id=9, run="run-abc"),
        Record(HALF, "r", "receiving"),
    ):
        submission = Submission(tmp_path / record.id)
        submission.make()
        submission.write(record)
    return made


def test_a_plain_job_is_cancelled(slurm: Client) -> None:
    assert cancel([PLAIN], slurm.main) == Said(0, f"{PLAIN}: cancelled job 7\n", "")
    assert (slurm.cancelled, slurm.told) == ([7], [])


@pytest.mark.parametrize("option", ["--replicas", "--rep", "--bogus"])
def test_an_option_that_is_for_runs_cancels_no_plain_job(slurm: Client, option: str) -> None:
    with pytest.raises(UsageError, match=f"{PLAIN} is a plain job, for which there is no {option}; nothing"):
        cancel([RUN, option, PLAIN], slurm.main)
    assert (slurm.cancelled, slurm.told) == ([], [])


def test_an_option_goes_to_hp_cancel_with_a_run(slurm: Client) -> None:
    assert cancel([RUN, "--replicas"], slurm.main) == Said(0, "run\n", "")
    assert slurm.told == [["--replicas", "run-abc"]]


def test_as_json_each_is_a_line_of_json(slurm: Client) -> None:
    said = cancel(["--json", PLAIN], slurm.main)
    assert [json.loads(line) for line in said.stdout.splitlines()] == [{"id": PLAIN, "job_id": 7}]
    assert slurm.cancelled == [7]


def test_a_job_that_nobody_noted_is_found_and_noted(slurm: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scripts, "jobs_from", lambda *_: [8])
    assert cancel([LOST], slurm.main).stdout == f"{LOST}: cancelled job 8\n"
    monkeypatch.setattr(scripts, "jobs_from", lambda *_: [])
    assert cancel([LOST], slurm.main).stdout == f"{LOST}: cancelled job 8\n"
    assert slurm.cancelled == [8, 8]


def test_what_is_not_known_is_said_and_the_others_are_cancelled(slurm: Client) -> None:
    said = cancel([LOST, PLAIN, RUN], slurm.main)
    assert said == Said(1, f"{PLAIN}: cancelled job 7\nrun\n", UNKNOWN)
    assert (slurm.cancelled, slurm.told) == ([7], [["run-abc"]])
    said = cancel([HALF], slurm.main)
    assert said == Said(1, "", f"hp-cancel: {HALF} was not submitted; submit it again\n")


def test_slurm_that_does_not_answer_is_no_job_that_is_not_there(
    slurm: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def silent(*_: object) -> list[int]:
        raise UnreachableError("Slurm does not answer")

    monkeypatch.setattr(scripts, "jobs_from", silent)
    said = cancel([LOST], slurm.main)
    assert (said.code, said.stderr.startswith("hp-cancel: Slurm does not answer; it is not known ")) == (
        3,
        True,
    )


def test_what_is_no_submission_is_hp_cancels(slurm: Client) -> None:
    assert cancel(["--debug"], slurm.main).stdout == "run\n"
    assert cancel(["train-3fa9c1", "12"], slurm.main).code == 0
    assert slurm.told == [["--debug"], ["train-3fa9c1", "12"]]


def test_a_run_ends_beside_a_word_that_nobody_knows(
    slurm: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As it does on the cluster: hp-cancel's own main is what tells them apart."""
    folder, queue = make_run(tmp_path / "runs"), FakeSlurm()
    folder.append_job("baseline", queue.submit(["--comment=hp-run:train-3fa9c1"], folder.path / "run.json"))
    said = cancel(["typo", "train-3fa9c1", PLAIN], lambda words: main(words, client=lambda: queue))
    assert said.code == 1
    assert said.stderr == "hp-cancel: there is no run typo; hp-status --all lists your runs\n"
    assert said.stdout == f"{PLAIN}: cancelled job 7\nrun train-3fa9c1: cancelled baseline job 101\n"
    assert (slurm.cancelled, queue.cancelled) == ([7], [101])

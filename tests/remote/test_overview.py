"""How submissions stand, where Slurm has forgotten all of an array, or some."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from hpctools.remote import overview, serving
from hpctools.remote.submissions import Record, Submission
from hpctools.remote.wire import Message
from hpctools.slurm import accounting, scripts

ARRAY = Record("sweep-0123456789ab", "r", state="submitted", job_id=7)
Says = Callable[..., None]


@pytest.fixture
def slurm(monkeypatch: pytest.MonkeyPatch) -> Says:
    """What squeue and sacct say, a task each."""

    def say(queue: list[str], accounted: str) -> None:
        def answer(argv: Sequence[str], timeout: float) -> str:
            lines = enumerate(accounted.splitlines())
            return "".join(f"7_{number}|{line}\n" for number, line in lines)

        monkeypatch.setattr(scripts, "states_of", lambda _: {7: queue} if queue else {})
        monkeypatch.setattr(accounting, "answer", answer)

    return say


@pytest.mark.parametrize(
    ("accounted", "states", "last"),
    [
        ("FAILED\nCANCELLED by 1000\nFAILED\nCOMPLETED\n", ["FAILED", "CANCELLED", "COMPLETED"], "COMPLETED"),
        ("CANCELLED by 1000\n", ["CANCELLED"], "CANCELLED"),
        ("", [], ""),
    ],
)
def test_of_a_forgotten_array_each_state_is_told(
    slurm: Says, accounted: str, states: list[str], last: str
) -> None:
    """It was that of its last task."""
    slurm([], accounted)
    assert overview.states(ARRAY) == states
    assert (overview.ends(ARRAY, None), accounting.ended_as(7)) == (states, last)


def test_of_a_task_it_is_told_how_that_one_ended(slurm: Says, monkeypatch: pytest.MonkeyPatch) -> None:
    """slurmdbd hears late of the last one, which slurmctld knows. Others may have failed."""
    slurm(["COMPLETED", "FAILED"], "RUNNING\n")
    queued = {9: ["COMPLETED"]}
    monkeypatch.setattr(scripts, "states", lambda job, task: queued.get(task, []))
    assert overview.ends(ARRAY, 9) == ["COMPLETED"]
    assert overview.ends(ARRAY, 8) == ["RUNNING"]
    assert overview.ends(ARRAY, None) == ["COMPLETED", "FAILED"]


def test_a_list_that_failed_is_not_an_empty_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """hp-status --cluster --json ended with 0 and no runs, which a program takes for an answer."""
    monkeypatch.setenv("HPCTOOLS_SUBMISSIONS", str(tmp_path))

    def failing(words: Sequence[str]) -> int:
        print("hp-status: cannot read runs", file=sys.stderr)
        return 1

    said = serving._status(Message({"words": ["--json"]}), failing)
    assert (said["code"], said["stderr"]) == (1, "hp-status: cannot read runs\n")
    assert json.loads(said["stdout"]) == {"submissions": [], "runs": []}


def test_of_many_submissions_slurm_is_asked_at_once_and_the_rest_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two programs were started for each, and what was left out of the list was not said."""
    monkeypatch.setenv("HPCTOOLS_SUBMISSIONS", str(tmp_path))
    for number in range(1, 61):
        made = Submission(tmp_path / f"job-{number:012x}")
        made.make()
        made.write(Record(made.folder.name, "r", state="submitted", job_id=number, marked=float(number)))
    asked: list[str] = []

    def squeue(argv: list[str]) -> str:
        asked.append(argv[0])
        return "59_1 RUNNING\n59_[2-9%2] PENDING\n60+0 RUNNING\n60+1 RUNNING\n"

    def sacct(argv: Sequence[str], timeout: float) -> str:
        asked.append(argv[0])
        return "58|COMPLETED\n57_1|FAILED\n57_2|CANCELLED by 1000\n"

    monkeypatch.setattr(scripts, "_ask", squeue)
    monkeypatch.setattr(accounting, "answer", sacct)
    said = serving._status(Message({"words": []}), lambda _: 0)["stdout"].splitlines()
    assert [" ".join(line.split()[1:3]) for line in said[1:6]] == [
        "60 RUNNING",
        "59 RUNNING,",
        "58 COMPLETED",
        "57 FAILED,",
        "56 forgotten",
    ]
    assert said[51] == "and 10 older ones: hp-status --json shows all"
    assert asked == ["squeue", "sacct"]


@pytest.mark.parametrize("words", [[], ["--json"]])
def test_a_submission_that_cannot_be_read_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str]
) -> None:
    """It was left out of the list without a word."""
    monkeypatch.setenv("HPCTOOLS_SUBMISSIONS", str(tmp_path))
    made = Submission(tmp_path / ARRAY.id)
    made.make()
    (made.own / "record.json").write_text("{")

    def empty(words: Sequence[str]) -> int:
        print("[]")
        return 0

    said = serving._status(Message({"words": words}), empty)
    assert re.match(rf"hp-status: cannot read .*{ARRAY.id}/.*; see the file", said["stderr"])

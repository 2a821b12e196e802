"""A job whose id nobody noted down: found by its script, and not called absent when nobody can tell."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from hpctools.errors import CommandError, UnreachableError
from hpctools.slurm import scripts

FOLDER = Path("/home/nlp1/hp-runs/train-0123456789ab")
SCRIPT = f"{FOLDER}/job.sh"
HOUR = 3600.0
DISABLED = CommandError("sacct failed: Slurm accounting storage is disabled", argv=("sacct",), code=1)
AWAY = UnreachableError("slurmdbd does not answer")
Answers = Callable[..., list[list[str]]]


@pytest.fixture
def slurm(monkeypatch: pytest.MonkeyPatch) -> Answers:
    """What each command answers; returns what was asked."""

    def answer(
        queue: str = "", accounting: str | Exception = "", config: str = "MinJobAge = 300 sec"
    ) -> list[list[str]]:
        said = {"squeue": queue, "sacct": accounting, "scontrol": config}
        asked: list[list[str]] = []

        def ask(argv: list[str]) -> str:
            asked.append(argv)
            found = said[argv[0]]
            if isinstance(found, Exception):
                raise found
            return found

        monkeypatch.setattr(scripts, "_ask", ask)
        return asked

    return answer


def found(age: float = HOUR, script: str = SCRIPT) -> list[int]:
    return scripts.jobs_from(FOLDER, "nlp1", age, script)


def test_what_is_in_the_queue_needs_no_accounting(slurm: Answers) -> None:
    asked = slurm(queue=f"7 {SCRIPT}\n8 /home/nlp1/other.sh\n", accounting=AWAY)
    assert (found(), len(asked)) == ([7], 1)


def test_a_job_in_a_hidden_partition_is_in_the_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would be submitted twice. slurm.conf(5): `Hidden` hides a partition and its jobs by default."""
    monkeypatch.setattr(scripts, "_ask", lambda argv: f"7 {SCRIPT}\n" if "--all" in argv else "")
    assert found() == [7]


@pytest.mark.parametrize("queued", [True, False])
def test_a_run_is_known_by_the_folder_of_its_script(slurm: Answers, queued: bool) -> None:
    """Whoever looks for it may not see that folder."""
    root = Path("/home/nlp1/runs")
    lines = [
        f"7{{}} {root}/train-ab_0/job.sh",
        f"8{{}} {root}/train-abc/job.sh",
        f"9{{}} {root}/train-ab/job.sh",
    ]
    if queued:
        slurm(queue="".join(each.format("") + "\n" for each in lines))
    else:
        slurm(accounting="".join(each.format("|sbatch -N2") + "\n" for each in lines))
    assert scripts.runs_from(root, "[^/]*-ab", "nlp1", HOUR) == {7: "train-ab_0", 9: "train-ab"}


@pytest.mark.parametrize(
    ("line", "ids"),
    [
        (f"9|sbatch --parsable -pnlp {SCRIPT} a b\n", [9]),
        (f"9|sbatch {SCRIPT}\n", [9]),
        (f"9|sbatch --comment=two\nlines {SCRIPT} c'd\ne|f\n10|sbatch other.sh\n", [9]),
        (f"9|sbatch post.sh {FOLDER}/results.csv\n", []),
        (f"9|sbatch {SCRIPT}.old\n", []),
        (f"9|sbatch --chdir={FOLDER}/ other.sh\n", []),
        (f"9|sbatch /mnt{SCRIPT}\n", []),
        ("", []),
    ],
)
def test_the_accounting_knows_a_job_by_the_word_that_is_its_script(
    slurm: Answers, line: str, ids: list[int]
) -> None:
    """Another job that reads a file of the run's folder is not the run's."""
    slurm(accounting=line)
    assert found() == ids


def test_without_a_script_any_of_the_folder_counts(slurm: Answers) -> None:
    slurm(accounting=f"9|sbatch {FOLDER}/batch.sh\n10|sbatch --chdir={FOLDER}/ x\n")
    assert found(script="") == [9]


def test_the_accounting_is_asked_as_far_back_as_the_submission_lies(slurm: Answers) -> None:
    asked = slurm()
    found(age=100 * HOUR)
    assert "--starttime=now-125hours" in asked[1]


@pytest.mark.parametrize("trouble", [AWAY, DISABLED])
def test_what_cannot_be_forgotten_yet_and_is_not_there_was_never_there(
    slurm: Answers, trouble: Exception
) -> None:
    slurm(accounting=trouble)
    assert found(age=299) == []
    slurm(accounting=trouble, config="MinJobAge             = 0 sec\n")
    assert found(age=HOUR) == []


@pytest.mark.parametrize("trouble", [AWAY, DISABLED])
@pytest.mark.parametrize("config", ["ControlMachine = a\nMinJobAge   = 300 sec\n", "nothing"])
def test_what_may_be_forgotten_is_not_said_to_be_absent(
    slurm: Answers, trouble: Exception, config: str
) -> None:
    """Who is told that it is not there submits it again."""
    slurm(accounting=trouble, config=config)
    with pytest.raises(
        UnreachableError, match="may have forgotten the job, and the accounting does not tell"
    ):
        found(age=300)


@pytest.mark.parametrize(
    "state", ["PENDING", "EXPEDITING", "SPECIAL_EXIT", "RESIZING", "COMPLETING", "STAGE_OUT"]
)
def test_a_job_lives_until_nothing_of_it_is_left(state: str) -> None:
    """Whoever follows its output stops when it does not; EXPEDITING comes with 25.11 (--requeue=expedite)."""
    assert scripts.is_living(state)


@pytest.mark.parametrize("state", ["COMPLETED", "CANCELLED by 1000", "NODE_FAIL", "REVOKED"])
def test_a_job_that_is_over_does_not_live(state: str) -> None:
    assert not scripts.is_living(state)

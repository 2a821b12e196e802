"""hp-cancel as a command."""

from __future__ import annotations

import json

import pytest

from hpctools.cli.hp_cancel import main
from hpctools.elastic.folder import RunFolder, RunStatus
from hpctools.errors import SubmitError, UnreachableError
from hpctools.slurm import parse
from hpctools.testing.clock import FakeClock
from hpctools.testing.runs import make_run
from hpctools.testing.slurm import FakeSlurm


@pytest.fixture
def slurm(tmp_path, monkeypatch):
    monkeypatch.setenv("HPCTOOLS_RUNS", str(tmp_path))
    folder = make_run(tmp_path)
    slurm = FakeSlurm()
    for role, qos in (("baseline", "normal"), ("replica", "elastic")):
        number = slurm.submit([f"--qos={qos}", "--comment=hp-run:train-3fa9c1"], folder.path / "run.json")
        folder.append_job(role, number)
    slurm.change(101, state="RUNNING")
    return slurm


def cancel(*words, slurm, clock=None):
    return main(list(words), client=lambda: slurm, sleep=(clock or FakeClock()).sleep)


@pytest.mark.parametrize("word", ["train-3fa9c1", "101", "102"])
def test_all_of_it_ends_whatever_names_it(slurm, capfd, word):
    assert cancel(word, slurm=slurm) == 0
    assert capfd.readouterr().out == "run train-3fa9c1: cancelled baseline job 101, replica job 102\n"
    assert {job.state for job in slurm.queue.values()} == {"CANCELLED"}


def test_a_second_time_there_is_nothing_left(slurm, capfd):
    cancel("101", slurm=slurm)
    capfd.readouterr()
    assert cancel("101", slurm=slurm) == 0
    assert capfd.readouterr().out == "run train-3fa9c1: nothing left to cancel\n"


def test_json(slurm, capfd):
    assert cancel("--json", "101", slurm=slurm) == 0
    assert json.loads(capfd.readouterr().out) == {
        "run": "train-3fa9c1",
        "baseline": [101],
        "replicas": [102],
        "remaining": [],
        "failure": "",
    }


@pytest.mark.parametrize(
    ("odd", "complaint"),
    [
        ("nonsense", "there is no run nonsense; hp-status --all lists your runs"),
        ("./nothing", "is not a run's folder"),
        ("77", "job 77 belongs to none of your elastic runs; "),
    ],
)
def test_of_several_those_that_are_there_end_and_each_other_is_named(slurm, capfd, odd, complaint):
    assert cancel("no-more", odd, "train-3fa9c1", odd, "101", slurm=slurm) == 1
    said = capfd.readouterr()
    assert said.out == "run train-3fa9c1: cancelled baseline job 101, replica job 102\n"
    assert said.err.startswith("hp-cancel: there is no run no-more; ")
    assert said.err.count("\n") == 2
    assert complaint in said.err.splitlines()[1]


def test_with_debug_what_is_there_ends_too(slurm):
    with pytest.raises(SubmitError, match="no run nonsense"):
        cancel("--debug", "nonsense", "101", slurm=slurm)
    assert sorted(slurm.cancelled) == [101, 102]


def test_of_an_array_those_that_wait_go_first_so_that_none_begins_because_an_earlier_one_has_ended(
    tmp_path, monkeypatch, capfd
):
    monkeypatch.setenv("HPCTOOLS_RUNS", str(tmp_path))
    slurm = FakeSlurm()
    for index in (2, 9, 10):
        folder = make_run(tmp_path, f"train-3fa9c1_{index}")
        comment = f"--comment=hp-run:train-3fa9c1_{index}"
        folder.append_job("baseline", slurm.submit([comment], folder.path / "run.json"))
    slurm.change(101, state="RUNNING")
    assert cancel("train-3fa9c1", "train-3fa9c1_9", slurm=slurm) == 0
    assert slurm.cancelled == [102, 103, 101]
    assert [line.split()[1] for line in capfd.readouterr().out.splitlines()] == [
        "train-3fa9c1_2:",
        "train-3fa9c1_9:",
        "train-3fa9c1_10:",
    ]


def test_the_baseline_script_cancels_replicas_by_folder_and_says_nothing_when_there_are_none(
    slurm, tmp_path, capfd, monkeypatch
):
    monkeypatch.setenv("SLURM_JOB_ID", "101")
    folder = str(tmp_path / "train-3fa9c1")
    make_status = make_run(tmp_path, "unused-000000")
    make_status.write_status(RunStatus("finished"))
    assert cancel("--replicas", folder, slurm=slurm) == 0
    assert capfd.readouterr().out == "run train-3fa9c1: cancelled replica job 102\n"
    assert slurm.queue[101].state == "RUNNING"
    assert cancel("--replicas", folder, slurm=slurm) == 0
    assert capfd.readouterr().out == ""


def test_a_person_who_asks_for_replicas_alone_is_told_what_to_do_instead(slurm, capfd, monkeypatch):
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    assert cancel("--replicas", "train-3fa9c1", slurm=slurm) == 1
    assert "end the run with hp-cancel train-3fa9c1" in capfd.readouterr().err
    with pytest.raises(SystemExit):
        cancel("--help", slurm=slurm)
    assert "--replicas" not in capfd.readouterr().out


def test_jobs_that_stay_are_named_with_exit_code_1(slurm, capfd, monkeypatch):
    monkeypatch.setattr(slurm, "change", lambda *arguments, **changes: None)
    assert cancel("101", slurm=slurm) == 1
    assert capfd.readouterr().out.splitlines()[1] == (
        "run train-3fa9c1: still there: see `squeue -j 101,102`"
    )


class Stubborn(FakeSlurm):
    """Job 102 takes its time to end; job 101 does not heed that it is cancelled."""

    def cancel(self, job_ids):
        self.cancelled += job_ids
        if 102 in job_ids:
            self.change(102, state="COMPLETING")


def test_of_two_runs_the_one_that_stays_is_named_once_the_other_has_saved(tmp_path, monkeypatch, capfd):
    """No number is given: it was 10 s only where nothing else was waited for."""
    monkeypatch.setenv("HPCTOOLS_RUNS", str(tmp_path))
    slurm, clock = Stubborn(), FakeClock()
    for name in ("stays-000001", "saves-000002"):
        folder = make_run(tmp_path, name)
        job = slurm.submit([f"--comment=hp-run:{name}"], folder.path / "run.json")
        folder.append_job("baseline", job)
        slurm.change(job, state="RUNNING")
    clock.events[24.5] = lambda: slurm.change(102, state="CANCELLED")
    assert cancel("stays-000001", "saves-000002", slurm=slurm, clock=clock) == 1
    assert clock.now == 24.5
    assert capfd.readouterr().out.splitlines() == [
        "run stays-000001: cancelled baseline job 101",
        "run stays-000001: still there: see `squeue -j 101`",
        "run saves-000002: cancelled baseline job 102",
    ]


def test_a_run_whose_end_cannot_be_recorded_is_named_and_the_others_are_recorded(slurm, tmp_path, capfd):
    """The disk is full: nothing was printed of what was cancelled, and the other runs stayed `running`."""
    other = make_run(tmp_path, "other-000001")
    (tmp_path / "train-3fa9c1" / "status.json").mkdir()
    (tmp_path / "train-3fa9c1" / "status.json" / "x").touch()
    assert cancel("train-3fa9c1", "other-000001", slurm=slurm) == 1
    said = capfd.readouterr()
    assert said.out.splitlines() == [
        "run train-3fa9c1: cancelled baseline job 101, replica job 102",
        "run other-000001: nothing left to cancel",
    ]
    assert said.err.startswith("hp-cancel: run train-3fa9c1: that it is cancelled could not be recorded: ")
    assert said.err.count("\n") == 1
    assert other.status().state == "cancelled"


def test_a_controller_that_is_down_is_exit_code_3(slurm, capfd):
    slurm.failure = UnreachableError("Slurm's controller does not answer", "check it with `scontrol ping`")
    assert cancel("train-3fa9c1", slurm=slurm) == 3
    assert capfd.readouterr().err == (
        "hp-cancel: Slurm's controller does not answer; run train-3fa9c1 has been told to end: what trains "
        "ends by itself, but jobs that wait are still to be cancelled; check it with `scontrol ping`, and "
        "hp-cancel again once it answers\n"
    )


@pytest.mark.parametrize("state", ["running", "finished"])
def test_while_it_is_down_of_a_run_that_cannot_be_told_or_is_over_nothing_is_promised(
    slurm, tmp_path, capfd, state
):
    folder = RunFolder(tmp_path / "train-3fa9c1")
    folder.write_status(RunStatus(state))
    if state == "running":
        (folder.path / "end.json").mkdir()
    slurm.failure = UnreachableError("Slurm's controller does not answer", "check it with `scontrol ping`")
    assert cancel("train-3fa9c1", slurm=slurm) == 3
    line = "hp-cancel: Slurm's controller does not answer; check it with `scontrol ping`\n"
    assert capfd.readouterr().err == line


def test_once_its_jobs_were_cancelled_nobody_is_told_to_do_it_again(slurm, capfd):
    """That would give up what is being saved."""
    slurm.change(101, state="RUNNING")
    down = UnreachableError("Slurm's controller does not answer", "check it with `scontrol ping`")
    clock = FakeClock(events={0.5: lambda: setattr(slurm, "failure", down)})
    slurm.change = lambda *arguments, **changes: None
    assert cancel("train-3fa9c1", slurm=slurm, clock=clock) == 3
    assert "hp-cancel again" not in capfd.readouterr().err


def test_an_answer_of_slurm_that_cannot_be_read_is_said_in_one_line(slurm, capfd, monkeypatch):
    monkeypatch.setattr(slurm, "jobs", lambda **_: parse.jobs("Maintenance until 6 pm\n"))
    assert cancel("train-3fa9c1", slurm=slurm) == 1
    err = capfd.readouterr().err
    assert err.startswith("hp-cancel: what squeue printed cannot be read: 'Maintenance until 6 pm'; ")
    assert err.count("\n") == 1


def test_a_folder_that_is_no_runs_is_an_error(slurm, tmp_path, capfd):
    assert cancel(f"{tmp_path}/", slurm=slurm) == 1
    assert "is not a run's folder" in capfd.readouterr().err


def test_wrong_usage_is_exit_code_2(capfd):
    with pytest.raises(SystemExit) as ended:
        main([])
    assert ended.value.code == 2

"""hp-status as a command."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import time
from dataclasses import replace

import pytest

from hpctools.cli import hp_status
from hpctools.cli.hp_status import main
from hpctools.elastic.folder import RunFolder, RunStatus
from hpctools.elastic.history import Moment
from hpctools.elastic.time_limit import TimeLimit
from hpctools.errors import UnreachableError
from hpctools.slurm import parse
from hpctools.testing.clock import FakeClock
from hpctools.testing.runs import make_run
from hpctools.testing.slurm import FakeSlurm

STATUS = RunStatus(
    "running",
    generation=5,
    world_size=4,
    nodes=("n1", "n2", "n3", "n5"),
    min_nodes=2,
    max_nodes=6,
    step=120,
    total_steps=400,
    loss=2.34567,
    samples_per_second=35.24,
    updated="2026-02-03T10:30:00.000+00:00",
    last_resize={
        "from": 6,
        "to": 4,
        "generation": 5,
        "step": 80,
        "time": "2026-02-03T10:21:33.000+00:00",
        "pause_s": 0.214,
        "phases": {"agree": 0.1, "state": 0.05},
    },
)


@pytest.fixture
def root(tmp_path, monkeypatch):
    monkeypatch.setenv("HPCTOOLS_RUNS", str(tmp_path))
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield tmp_path
    monkeypatch.undo()
    time.tzset()


@pytest.fixture
def slurm(root):
    """A run of four nodes after a preemption: baseline 101, replica 102 running, 103 waiting, 104 gone."""
    folder = make_run(root)
    slurm = FakeSlurm()
    for role in ("baseline", "replica", "replica", "replica"):
        qos = "normal" if role == "baseline" else "elastic"
        number = slurm.submit([f"--qos={qos}", "--comment=hp-run:train-3fa9c1"], folder.path / "run.json")
        folder.append_job(role, number)
    slurm.change(101, state="RUNNING", nodes=("n1", "n2"))
    slurm.change(102, state="RUNNING", nodes=("n3",))
    slurm.change(103, state="PENDING", reason="Resources")
    slurm.change(104, state="COMPLETED")
    folder.write_status(STATUS)
    by = {"job_id": 20, "user": "cv1", "account": "cv", "qos": "high"}
    folder.append_event("left", reason="preempted", job_id=104, node="n4", preempted_by=by)
    events = (folder.path / "events.jsonl").read_text().replace("\n", "")
    left = {**json.loads(events), "time": "2026-02-03T10:20:01.000+00:00"}
    (folder.path / "events.jsonl").write_text(json.dumps(left) + "\n")
    return slurm


def test_one_run_is_shown_as_one_thing(root, slurm, capfd):
    assert main(["train-3fa9c1"], client=lambda: slurm) == 0
    assert (
        capfd.readouterr().out
        == f"""\
run train-3fa9c1  running
  nodes       4 of 2..6 (n1 n2 n3 n5)
  workers     4 in generation 5
  step        120/400, loss 2.3457, 35.2 samples/s
  last resize 6 -> 4 workers at step 80, pause 0.21 s (agree 0.10, state 0.05), 2026-02-03 10:21:33
  not larger  replica job 103 waits: no node is free for it (Resources)
  preempted   job 104 on n4 by cv1 (account cv, QoS high, job 20), 2026-02-03 10:20:01
  job         101 baseline RUNNING n1 n2
  job         102 replica RUNNING n3
  job         103 replica PENDING (Resources)
  ended jobs  1
  updated     2026-02-03 10:30:00
  folder      {root}/train-3fa9c1
"""
    )


def moments(folder, sizes):
    folder.replace_history(
        [Moment(f"2026-02-03T10:00:{n:02}.000+00:00", n, size, size, 3.0, size * 8.0) for n, size in sizes]
    )


def test_its_size_and_throughput_over_time_are_lines_that_fit_the_terminal(root, slurm, capfd, monkeypatch):
    moments(RunFolder(root / "train-3fa9c1"), enumerate([2, 2, 4, 8, 0]))
    assert main(["train-3fa9c1"], client=lambda: slurm) == 0
    shown = capfd.readouterr().out
    assert "\n  size        ▃▃▅█▁  0 to 8 workers\n" in shown
    assert "\n  throughput  ▃▃▅█▁  0.0 to 64.0 samples/s\n" in shown
    monkeypatch.setenv("COLUMNS", "34")
    assert main(["train-3fa9c1"], client=lambda: slurm) == 0
    narrow = [line for line in capfd.readouterr().out.splitlines() if "  size" in line or "  through" in line]
    assert narrow == ["  size        ▅▅██  0 to 8 workers", "  throughput  0.0 to 64.0 samples/s"]


def test_of_a_script_without_the_library_steps_are_what_is_known(root, slurm, capfd):
    folder = RunFolder(root / "train-3fa9c1")
    told = {"loss": None, "samples_per_second": None, "steps_per_second": 2.2149, "total_steps": None}
    folder.write_status(replace(STATUS, **told))
    folder.replace_history(
        [
            Moment(f"2026-02-03T10:00:0{n}.000+00:00", n, 2, 2, steps_per_second=rate)
            for n, rate in enumerate([None, 2.0, 4.0])
        ]
    )
    assert main(["train-3fa9c1"], client=lambda: slurm) == 0
    shown = capfd.readouterr().out
    assert "\n  step        120, loss -, 2.21 steps/s\n" in shown
    assert "  2.0 to 4.0 steps/s\n" in shown
    assert main([], client=lambda: slurm) == 0
    assert "  120   -     2.21 steps/s  2026-02-03 10:00:00\n" in capfd.readouterr().out
    assert main(["train-3fa9c1", "--json"], client=lambda: slurm) == 0
    run = json.loads(capfd.readouterr().out)
    assert [moment["steps_per_second"] for moment in run["history"]] == [None, 2.0, 4.0]


def test_json_of_one_run_has_its_history_and_why_it_is_not_larger(root, slurm, capfd):
    moments(RunFolder(root / "train-3fa9c1"), [(0, 2), (1, 3)])
    assert main(["train-3fa9c1", "--json"], client=lambda: slurm) == 0
    run = json.loads(capfd.readouterr().out)
    assert [moment["size"] for moment in run["history"]] == [2, 3]
    assert run["not_larger"] == ["replica job 103 waits: no node is free for it (Resources)"]


def test_in_the_last_minute_of_its_time_it_says_so(root, slurm, capfd):
    folder = RunFolder(root / "train-3fa9c1")
    folder.write_time_limit(TimeLimit(101, time.time() + 30, 60))
    slurm.change(103, state="CANCELLED")
    assert main(["train-3fa9c1"], client=lambda: slurm) == 0
    said = "  not larger  in the last minute of its time no replica jobs are submitted\n"
    assert said in capfd.readouterr().out


@pytest.mark.parametrize(("name", "begin"), [("run.svg", b"<?xml"), ("run.PNG", b"\x89PNG")])
def test_a_plot_of_a_run(root, tmp_path, slurm, capfd, name, begin):
    pytest.importorskip("matplotlib")
    moments(RunFolder(root / "train-3fa9c1"), enumerate([2, 4, 3]))
    assert main(["train-3fa9c1", "--plot", str(tmp_path / name)], client=lambda: slurm) == 0
    assert capfd.readouterr() == ("", "")
    drawn = (tmp_path / name).read_bytes()
    assert drawn.startswith(begin)
    if name.endswith("svg"):
        assert b"train-3fa9c1: running, step 120 of 400" in drawn
        assert b">preempted (1)<" in drawn
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == [name]


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["--plot", "a.svg"], 2, "hp-status: --plot of which run?; name one: "),
        (["--accounting"], 2, "hp-status: --accounting of which run?; "),
        (["101", "--plot", "a.pdf"], 2, "hp-status: cannot draw 'a.pdf'; let its name end in .svg or .png\n"),
        (["101", "--plot", "/tmp"], 2, "hp-status: cannot draw 'tmp'; "),
        (["101", "--watch", "--accounting"], 2, "hp-status: --watch and --accounting do not go together; "),
        (["101", "--plot", "a.svg"], 1, "hp-status: run train-3fa9c1 has nothing to draw yet: "),
    ],
)
def test_what_cannot_be_drawn_or_counted_is_said_in_one_line(slurm, capfd, words, code, said):
    assert main(words, client=lambda: slurm) == code
    out, err = capfd.readouterr()
    assert (out, err.startswith(said), err.count("\n")) == ("", True, 1), err


def test_a_plot_that_cannot_be_written_leaves_nothing(root, tmp_path, slurm, capfd):
    pytest.importorskip("matplotlib")
    moments(RunFolder(root / "train-3fa9c1"), enumerate([2, 4, 3]))
    assert main(["101", "--plot", str(tmp_path / "no" / "a.svg")], client=lambda: slurm) == 1
    assert "No such file or directory" in capfd.readouterr().err


def test_any_of_its_jobs_stands_for_the_run(slurm, capfd):
    assert main(["104", "--json"], client=lambda: slurm) == 0
    values = json.loads(capfd.readouterr().out)
    assert (values["id"], values["state"], values["status"]["step"]) == ("train-3fa9c1", "running", 120)
    assert [job["id"] for job in values["jobs"]] == [101, 102, 103]
    assert values["preemptions"][0]["by"]["user"] == "cv1"


def test_without_a_run_active_ones_are_listed_and_all_on_request(root, slurm, capfd):
    old = make_run(root, "old-000000", created="2026-02-01T00:00:00.000+00:00")
    old.write_status(RunStatus("finished", step=9, total_steps=9, min_nodes=1, max_nodes=2))
    assert main([], client=lambda: slurm) == 0
    assert capfd.readouterr().out.splitlines() == [
        "RUN           STATE    NODES      STEP     LOSS    THROUGHPUT      CREATED",
        "train-3fa9c1  running  4 of 2..6  120/400  2.3457  35.2 samples/s  2026-02-03 10:00:00",
    ]
    assert main(["--all"], client=lambda: slurm) == 0
    assert capfd.readouterr().out.splitlines()[2] == (
        "old-000000    finished  0 of 1..2  9/9      -       -               2026-02-01 00:00:00"
    )
    assert main(["--all", "--json"], client=lambda: slurm) == 0
    assert [run["id"] for run in json.loads(capfd.readouterr().out)] == ["train-3fa9c1", "old-000000"]


def test_each_run_of_a_shared_folder_is_looked_for_among_its_own_users_jobs(root, slurm, capfd):
    folder = make_run(root, "other-000001", user="cv1", created="2026-02-03T09:00:00.000+00:00")
    folder.write_status(STATUS)
    slurm.user = "cv1"
    number = slurm.submit(["--comment=hp-run:other-000001"], folder.path / "run.json")
    folder.append_job("baseline", number)
    slurm.change(number, state="RUNNING", nodes=("n7",))
    assert main([], client=lambda: slurm) == 0
    states = [line.split()[1] for line in capfd.readouterr().out.splitlines()]
    assert states == ["STATE", "running", "running"]
    slurm.failure = UnreachableError("the controller does not answer", "scontrol ping")
    assert main([], client=lambda: slurm) == 0
    assert capfd.readouterr().err.count("does not answer") == 1


def test_an_array_without_an_index_is_all_of_its_runs(root, slurm, capfd):
    """By the name that hp-submit prints; those that are over, too."""
    for index, state in enumerate(("finished", "running", "running")):
        make_run(root, f"sweep-00000a_{index}").write_status(replace(STATUS, state=state))
    (root / "sweep-00000a_2" / "status.json").unlink()
    submitted = slurm.submit(["--comment=hp-run:sweep-00000a_1"], root / "sweep-00000a_1" / "run.json")
    slurm.change(submitted, state="RUNNING", nodes=("n8",))
    assert main(["sweep-00000a"], client=lambda: slurm) == 0
    rows = [line.split()[:2] for line in capfd.readouterr().out.splitlines()]
    ids = [f"sweep-00000a_{index}" for index in range(3)]
    assert rows == [["RUN", "STATE"], *map(list, zip(ids, ("finished", "running", "lost"), strict=True))]
    assert main(["sweep-00000a", "--json"], client=lambda: slurm) == 0
    assert [run["id"] for run in json.loads(capfd.readouterr().out)] == ids
    assert main(["sweep-00000a_1"], client=lambda: slurm) == 0
    assert capfd.readouterr().out.startswith("run sweep-00000a_1  running\n")


def test_an_array_of_a_single_run_is_a_list_for_programs(root, slurm, capfd):
    """As each other one is; a person reads everything about the run."""
    make_run(root, "sweep-00000a_3").write_status(replace(STATUS, state="finished"))
    assert main(["sweep-00000a", "--json"], client=lambda: slurm) == 0
    assert [run["id"] for run in json.loads(capfd.readouterr().out)] == ["sweep-00000a_3"]
    assert main(["sweep-00000a_3", "--json"], client=lambda: slurm) == 0
    assert json.loads(capfd.readouterr().out)["id"] == "sweep-00000a_3"
    assert main(["sweep-00000a"], client=lambda: slurm) == 0
    assert capfd.readouterr().out.startswith("run sweep-00000a_3  finished\n")


def test_an_array_is_watched_until_all_of_its_runs_are_over(root, slurm, capfd):
    folders = [make_run(root, f"sweep-00000a_{index}") for index in range(2)]
    for folder in folders:
        folder.write_status(STATUS)
    slept = []

    def sleep(seconds):
        folders[len(slept)].write_status(replace(STATUS, state="finished"))
        slept.append(seconds)

    slurm.queue |= {
        number: replace(slurm.queue[101], id=number, comment=f"hp-run:{folder.path.name}")
        for number, folder in enumerate(folders, 200)
    }
    assert main(["sweep-00000a", "--watch"], client=lambda: slurm, sleep=sleep) == 0
    assert len(slept) == 2
    last = capfd.readouterr().out.splitlines()[-2:]
    assert [line.split()[1] for line in last] == ["finished"] * 2


def test_an_array_of_which_a_run_cannot_be_read_for_a_moment_is_watched_on(root, slurm, capfd):
    for index in range(2):
        make_run(root, f"sweep-00000a_{index}").write_status(replace(STATUS, state="finished"))
    whole = (root / "sweep-00000a_1" / "status.json").read_text()
    (root / "sweep-00000a_1" / "status.json").write_text("{")
    slept = []

    def sleep(seconds):
        slept.append(seconds)
        (root / "sweep-00000a_1" / "status.json").write_text(whole)

    assert main(["sweep-00000a", "--watch"], client=lambda: slurm, sleep=sleep) == 0
    assert len(slept) == 1
    assert "sweep-00000a_1" in capfd.readouterr().out


@pytest.mark.parametrize("option", [["--plot", "a.svg"], ["--accounting"]])
def test_of_an_array_one_run_is_drawn_or_counted(root, slurm, capfd, option):
    for index in range(12):
        make_run(root, f"sweep-00000a_{index}")
    assert main(["sweep-00000a", *option], client=lambda: slurm) == 2
    assert capfd.readouterr().err == (
        f"hp-status: {option[0]} of which run? sweep-00000a is an array of 12; name one of them: "
        "sweep-00000a_0, sweep-00000a_1, ..., sweep-00000a_11\n"
    )


def test_without_any_run_it_says_so_and_needs_no_slurm(root, capfd):
    def no_slurm():
        raise AssertionError

    assert main([], client=no_slurm) == 0
    assert capfd.readouterr().out == "no runs\n"


def test_when_all_have_ended_it_says_how_to_see_them(root, capfd):
    def no_slurm():
        raise AssertionError

    make_run(root).write_status(RunStatus("finished"))
    assert main([], client=no_slurm) == 0
    assert capfd.readouterr().out == "no active runs; hp-status --all lists the others\n"


def test_of_runs_that_have_ended_no_more_is_read_than_that(root, slurm, monkeypatch):
    """Their events and jobs were read at each look, to leave the run out then."""
    names = [f"old-00000{index}" for index in range(3)]
    for name in names:
        make_run(root, name).write_status(RunStatus("finished"))
    read, text = [], RunFolder._text
    monkeypatch.setattr(
        RunFolder,
        "_text",
        lambda folder, name: (read.append((folder.path.name, name)), text(folder, name))[1],
    )
    assert main([], client=lambda: slurm) == 0
    assert {(run, name) for run, name in read if run in names} == {
        (name, file) for name in names for file in ("run.json", "status.json")
    }
    assert len([run for run, _ in read if run in names]) == 6
    assert ("train-3fa9c1", "events.jsonl") in read
    assert main(["--all"], client=lambda: slurm) == 0
    assert ("old-000000", "events.jsonl") in read


def test_one_damaged_run_does_not_hide_the_others(root, slurm, capfd):
    (make_run(root, "torn-000000").path / "status.json").write_text("{")
    assert main([], client=lambda: slurm) == 0
    out, err = capfd.readouterr()
    assert "train-3fa9c1" in out
    assert err.startswith(f"hp-status: {root}/torn-000000/status.json is damaged")


@pytest.mark.parametrize("name", ["events.jsonl", "jobs.jsonl"])
def test_nor_does_one_whose_files_are_no_text(root, slurm, capfd, name):
    torn = make_run(root, "torn-000000", created="2026-03-01T10:00:00.000+00:00")
    (torn.path / name).write_bytes(b'\xff\x00\xff\n{"job_id": 101}\n')
    for words in ([], ["102"]):
        assert main(words, client=lambda: slurm) == 0
        assert "train-3fa9c1" in capfd.readouterr().out
    assert main([], client=lambda: slurm) == 0
    assert capfd.readouterr().err.startswith(f"hp-status: cannot read {root}/torn-000000/{name}")


def test_a_run_whose_baseline_is_gone_is_shown_as_lost(slurm, capfd):
    slurm.queue.clear()
    assert main(["train-3fa9c1"], client=lambda: slurm) == 0
    first = capfd.readouterr().out.splitlines()[0]
    assert first == "run train-3fa9c1  lost: its baseline job 101 is no longer in the queue"


@pytest.mark.parametrize("words", [[], ["train-3fa9c1"]])
def test_an_answer_of_slurm_that_cannot_be_read_is_said_in_one_line(slurm, capfd, words, monkeypatch):
    monkeypatch.setattr(slurm, "jobs", lambda **_: parse.jobs("Maintenance until 6 pm\n"))
    assert main(words, client=lambda: slurm) == 0
    out, err = capfd.readouterr()
    assert "train-3fa9c1" in out
    assert err.startswith("hp-status: what squeue printed cannot be read: 'Maintenance until 6 pm'; ")
    assert err.count("\n") == 1


def test_an_empty_name_is_no_run_and_not_all_of_them(slurm, capfd):
    assert main([""], client=lambda: slurm) == 1
    assert capfd.readouterr().err.startswith("hp-status: there is no run ''; ")


def test_a_folder_of_a_run_where_there_is_none_any_more(slurm, capfd, tmp_path, monkeypatch):
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert main(["./x"], client=lambda: slurm) == 1
    assert capfd.readouterr().err == (
        "hp-status: ./x is looked for in the folder that you are in, which is gone; name the run by its id, "
        "or its folder from / on\n"
    )


@pytest.mark.parametrize("word", ["train", "train-3fa9c1d20b7e"])
def test_runs_that_one_may_not_look_at_are_said(tmp_path, word):
    (tmp_path / "closed").mkdir(mode=0)
    runs = tmp_path / "closed" / "runs"
    done = subprocess.run(
        [sys.executable, "-m", "hpctools.cli.hp_status", word],
        env={"HPCTOOLS_RUNS": str(runs)},
        user=65534 if os.getuid() == 0 else None,
        cwd="/",
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    said = f"hp-status: cannot read {runs}: Permission denied; check $HPCTOOLS_RUNS\n"
    assert (done.returncode, done.stderr) == (1, said)


def test_what_a_script_printed_last_does_nothing_to_the_terminal(root, slurm, capfd):
    said = "worker b0 ended with exit code 1: \x1b[1;31mValueError\x1b[0m: \x1b]0;title\x07 café"
    make_run(root, "red-000000").write_status(replace(STATUS, state="failed", message=said))
    RunFolder(root / "train-3fa9c1").append_event("decision", grow=False, why="\x1b[2Jno")
    assert main(["red-000000"], client=lambda: slurm) == 0
    first = capfd.readouterr().out.splitlines()[0]
    assert first == (
        r"run red-000000  failed: worker b0 ended with exit code 1: ValueError: \x1b]0;title\x07 café"
    )
    assert main(["train-3fa9c1"], client=lambda: slurm) == 0
    assert "\x1b" not in capfd.readouterr().out


def test_a_name_with_control_characters_stays_on_one_line(slurm, capfd):
    assert main(["a\n\x1b[31m"], client=lambda: slurm) == 1
    assert capfd.readouterr().err.startswith(r"hp-status: there is no run 'a\n\x1b[31m'; ")


@pytest.mark.parametrize(
    ("loss", "told"), [(-1.5e300, "-1.5e+300"), (9999999.0, "9999999.0000"), (math.inf, "inf")]
)
def test_a_loss_that_has_diverged_stays_in_its_column(root, slurm, capfd, loss, told):
    RunFolder(root / "train-3fa9c1").write_status(replace(STATUS, loss=loss))
    for words in ([], ["101"]):
        assert main(words, client=lambda: slurm) == 0
        assert f" {told}" in (out := capfd.readouterr().out)
        assert max(map(len, out.splitlines())) < 130


def test_on_a_cluster_without_accounting_it_says_what_can_be_done(slurm, capfd, tmp_path, monkeypatch):
    sacct = tmp_path / "bin" / "sacct"
    sacct.parent.mkdir()
    sacct.write_text("#!/bin/sh\necho Slurm accounting storage is disabled >&2\nexit 1\n")
    sacct.chmod(0o755)
    monkeypatch.setenv("PATH", str(sacct.parent), prepend=os.pathsep)
    assert main(["101", "--accounting"], client=lambda: slurm) == 1
    assert "hp-status: this cluster keeps no accounts of jobs" in capfd.readouterr().err


@pytest.mark.parametrize("words", [["train-3fa9c1"], []])
def test_a_loss_that_is_not_finite_is_null_in_json(root, slurm, capfd, words):
    RunFolder(root / "train-3fa9c1").write_status(replace(STATUS, loss=float("nan")))
    assert main([*words, "--json"], client=lambda: slurm) == 0

    def refuse(word: str) -> None:
        raise AssertionError(f"{word} is no JSON")

    shown = json.loads(capfd.readouterr().out, parse_constant=refuse)
    run = shown if words else shown[0]
    assert (run["status"]["loss"], run["status"]["step"]) == (None, STATUS.step)


def test_without_a_controller_the_run_itself_is_asked(slurm, capfd):
    slurm.failure = UnreachableError("Slurm's controller does not answer")
    assert main(["train-3fa9c1"], client=lambda: slurm) == 0
    out, err = capfd.readouterr()
    assert out.startswith(
        "run train-3fa9c1  running: slurmctld does not answer, so this is what the run itself"
    )
    assert err == "hp-status: Slurm's controller does not answer\n"


def test_an_unknown_run_is_an_error_with_similar_ones(slurm, capfd):
    assert main(["trein-3fa9c1"], client=lambda: slurm) == 1
    assert capfd.readouterr().err == ("hp-status: there is no run trein-3fa9c1; did you mean train-3fa9c1?\n")


def test_watching_prints_each_change_and_ends_with_the_run(root, slurm, capfd):
    folder = make_run(root, "other-000000")
    folder.append_job("baseline", 101)
    clock = FakeClock(
        events={
            4.0: lambda: folder.write_status(RunStatus("running", step=3, min_nodes=2, max_nodes=6)),
            8.0: lambda: folder.write_status(RunStatus("finished", step=9, min_nodes=2, max_nodes=6)),
        }
    )
    slurm.queue[101] = replace(slurm.queue[101], comment="hp-run:other-000000")
    assert main(["other-000000", "--watch"], client=lambda: slurm, sleep=clock.sleep) == 0
    heads = [line for line in capfd.readouterr().out.splitlines() if line.startswith("run")]
    assert heads == [f"run other-000000  {state}" for state in ("starting", "running", "finished")]
    assert clock.now == 8.0


def test_watching_goes_on_when_storage_is_away_for_a_moment_and_not_for_ever(root, slurm, capfd):
    folder = make_run(root, "other-000000")
    folder.append_job("baseline", 101)
    slurm.queue[101] = replace(slurm.queue[101], comment="hp-run:other-000000")
    spec, kept = folder.path / "run.json", (folder.path / "run.json").read_text()
    finished = RunStatus("finished", step=9, min_nodes=2, max_nodes=6)
    clock = FakeClock(
        events={
            2.0: lambda: spec.write_text("torn"),
            6.0: lambda: spec.write_text(kept),
            8.0: lambda: folder.write_status(finished),
        }
    )
    assert main(["other-000000", "--watch"], client=lambda: slurm, sleep=clock.sleep) == 0
    out = capfd.readouterr().out
    assert (out.count("hp-status: "), out.count("  finished")) == (1, 1)
    spec.write_text("torn")
    assert main(["other-000000", "--watch"], client=lambda: slurm, sleep=clock.sleep) == 1


@pytest.mark.parametrize(
    ("terminal", "no_colour", "coloured"), [(True, "", True), (True, "1", False), (False, "", False)]
)
def test_colours_are_for_terminals_that_want_them(slurm, monkeypatch, terminal, no_colour, coloured):
    shown = []
    monkeypatch.setattr(hp_status, "show", shown.append)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: terminal, raising=False)
    monkeypatch.setenv("NO_COLOR", no_colour)
    main([], client=lambda: slurm)
    main(["101"], client=lambda: slurm)
    assert ["\x1b[" in text for text in shown] == [coloured, coloured]


def test_a_reader_that_stops_early_is_no_error(slurm):
    program = "from hpctools.cli.hp_status import main; import sys; sys.exit(main(['--all']))"
    command = f'"{sys.executable}" -c "{program}" | true; echo "${{PIPESTATUS[0]}}"'
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=30, check=False)
    assert done.stdout.strip() in ("0", "141")
    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr

"""The client that uses Slurm's commands, with stand-ins for them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hpctools.errors import CommandError, ReleaseError, RemoteError, UnreachableError
from hpctools.slurm import run
from hpctools.slurm.cli import CommandClient
from hpctools.slurm.parse import FIELD, RECORD
from hpctools.submit.plain import PlainSubmission, execute_plain


@pytest.fixture
def command(tmp_path, monkeypatch):
    """Makes a stand-in for a command; what it got lies in `argv` and `env` of the test's folder."""
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")

    def make(name: str, says: str, errors: str = "", code: int = 0) -> None:
        (tmp_path / "says").write_text(says)
        (tmp_path / "errors").write_text(errors)
        keep = f"printf '%s\\n' \"$@\" > {tmp_path}/argv; env > {tmp_path}/env"
        answer = f"cat {tmp_path}/says; cat {tmp_path}/errors >&2; exit {code}"
        (tmp_path / name).write_text(f"#!/bin/sh\n{keep}\n{answer}\n")
        (tmp_path / name).chmod(0o755)

    return make


@pytest.mark.parametrize("says", ["42\n", "42;cluster\n", "a plugin's words\n42\n", "42;a\nmore words\n"])
def test_the_job_id_is_found_in_what_sbatch_says(command, tmp_path, says):
    command("sbatch", says)
    assert CommandClient().submit(["-N2", "--comment=a b"], Path("/x/job.sh"), ["it's"]) == 42
    assert (tmp_path / "argv").read_text().splitlines() == [
        "--parsable", "-N2", "--comment=a b", "/x/job.sh", "it's",
    ]  # fmt: skip


def test_what_sbatch_says_besides_is_told(command):
    command("sbatch", "42\n", "sbatch: your job is in partition b\n")
    heard: list[str] = []
    before = run.HEARD.set(heard.append)
    try:
        CommandClient().submit([], Path("/x/job.sh"))
    finally:
        run.HEARD.reset(before)
    assert heard == ["sbatch: your job is in partition b\n"]


@pytest.mark.parametrize("says", ["", "Submitted, somehow\n"])
def test_an_answer_without_a_job_id_is_an_error(command, says):
    command("sbatch", says)
    with pytest.raises(CommandError, match="sbatch answered without a job id"):
        CommandClient().submit([], Path("/x/job.sh"))


def test_who_is_not_to_submit_any_more_starts_no_sbatch(command, tmp_path):
    def refuse():
        raise RemoteError("another connection of yours is at work on it")

    command("sbatch", "42")
    before = run.SUBMITTING.set(refuse)
    try:
        with pytest.raises(RemoteError, match="at work on it"):
            CommandClient().submit([], Path("/x/job.sh"))
        with pytest.raises(RemoteError, match="at work on it"):
            execute_plain(PlainSubmission(("sbatch", "/x/job.sh")))
    finally:
        run.SUBMITTING.reset(before)
    assert not (tmp_path / "argv").exists()
    assert CommandClient().submit([], Path("/x/job.sh")) == 42


def test_a_job_does_not_inherit_the_shape_of_the_one_we_run_in(command, tmp_path, monkeypatch):
    command("sbatch", "42")
    for name in [name for name in os.environ if name.startswith(("SLURM_", "SBATCH_"))]:
        monkeypatch.delenv(name)
    for name in ("SLURM_JOB_ID", "SLURM_NNODES", "SLURM_CONF", "SLURM_JWT", "SLURM_HINT", "SBATCH_ACCOUNT"):
        monkeypatch.setenv(name, "x")
    CommandClient().submit([], Path("/x/job.sh"))
    names = {line.partition("=")[0] for line in (tmp_path / "env").read_text().splitlines()}
    kept = {name for name in names if name.startswith(("SLURM_", "SBATCH_"))}
    # SLURM_HINT is what sbatch reads: replica jobs have it as --hint.
    assert kept == {"SLURM_CONF", "SLURM_JWT", "SLURM_HINT", "SBATCH_ACCOUNT"}


@pytest.mark.parametrize(
    "words",
    [
        "sbatch: error: Batch job submission failed: Unable to contact slurm controller (connect failure)",
        "squeue: error: slurm_receive_msg: Zero Bytes were transmitted or received",
    ],
)
def test_a_silent_controller_is_told_apart_from_a_refusal(command, words):
    command("sbatch", "", words, 1)
    with pytest.raises(UnreachableError, match="scontrol ping"):
        CommandClient().submit([], Path("/x/job.sh"))
    command("sbatch", "", "sbatch: error: Invalid account", 1)
    with pytest.raises(CommandError) as caught:
        CommandClient().submit([], Path("/x/job.sh"))
    assert (caught.value.stderr_tail, caught.value.remedy) == ("sbatch: error: Invalid account", "")
    command("sbatch", "", "sbatch: error: No partition specified or system default partition", 1)
    with pytest.raises(CommandError) as caught:
        CommandClient().submit([], Path("/x/job.sh"))
    assert caught.value.remedy.endswith("name yours with --partition (`sinfo -s` lists them)")


def test_a_forgotten_job_is_no_job(command):
    command("squeue", "", "slurm_load_jobs error: Invalid job id specified", 1)
    assert CommandClient().jobs(ids=[7]) == []


def test_an_odd_job_hides_others_from_nobody_who_asks_for_everybodys(command):
    fields = ["t", "cv1", "cv", "gpu", "high", "RUNNING", "None", "n1", "(null)", "1", "2", "5:00"]
    command("squeue", "".join(f"{FIELD.join(each)}{RECORD}\n" for each in (["8", "odd"], ["9", *fields])))
    client = CommandClient()
    assert [job.id for job in client.jobs(nodes=["n1"])] == [job.id for job in client.jobs()] == [9]
    for which in ({"user": "cv1"}, {"ids": [8]}, {"ids": [8], "nodes": ["n1"]}):
        with pytest.raises(ReleaseError, match="what squeue printed cannot be read: '8"):
            client.jobs(**which)


def test_jobs_in_hidden_partitions_are_asked_for(command, tmp_path):
    """slurm.conf(5): `Hidden` hides a partition and its jobs by default; pyslurm is given all of them."""
    command("squeue", "")
    for ask in (CommandClient().jobs, CommandClient().dependencies):
        ask(user="nlp1")
        assert "--all" in (tmp_path / "argv").read_text().splitlines()


def test_cancelling_nothing_asks_nobody(monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    CommandClient().cancel([])


NODE = "NodeName={} CPUTot=4 Gres=(null) State=IDLE+DRAIN RealMemory=1000 Partitions=all Reason=fan\n"


def test_nodes_are_asked_for_by_name(command, tmp_path):
    """What else scontrol prints is left out."""
    command("scontrol", NODE.format("n1") + NODE.format("n2") + NODE.format("n3"))
    client = CommandClient()
    client.release = (22, 5, 8)
    assert [node.name for node in client.nodes(["n3", "n1"])] == ["n1", "n3"]
    asked = (tmp_path / "argv").read_text().splitlines()
    assert asked == ["--all", "--oneliner", "show", "node", "n3,n1"]


def test_a_node_that_slurm_has_forgotten_does_not_hide_the_others(tmp_path, monkeypatch):
    """scontrol prints the others, says `Node n9 not found`, and ends with 1 (tests/recorded, errors.txt)."""
    (tmp_path / "all").write_text(NODE.format("n1") + NODE.format("n2"))
    refuse = "case $* in *n9*) echo 'Node n9 not found'; exit 1;; esac"
    (tmp_path / "scontrol").write_text(f"#!/bin/sh\n{refuse}\ncat {tmp_path}/all\n")
    (tmp_path / "scontrol").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    client = CommandClient()
    client.release = (22, 5, 8)
    assert [(node.name, node.flags) for node in client.nodes(["n1", "n9"])] == [("n1", ("DRAIN",))]


def test_when_slurm_fails_for_another_reason_naming_nodes_hides_nothing(command):
    command("scontrol", "", "slurm_load_node error: something", 1)
    client = CommandClient()
    client.release = (22, 5, 8)
    with pytest.raises(CommandError, match="something"):
        client.nodes(["n1"])

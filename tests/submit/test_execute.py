"""Carrying an elastic submission out against a Slurm in memory: all of it happens, or nothing stays."""

from __future__ import annotations

import errno
import os
from dataclasses import replace
from pathlib import Path

import pytest

from hpctools.elastic.folder import RunFolder
from hpctools.elastic.spec import RunSpec
from hpctools.errors import (
    CommandError,
    ElasticError,
    HpctoolsError,
    RemoteError,
    SubmitError,
    UnreachableError,
)
from hpctools.submit.execute import execute_elastic
from hpctools.submit.plan import BatchFile, ElasticSubmission
from hpctools.testing.slurm import FakeSlurm

SPEC = RunSpec(
    id="train-3fa9c1",
    name="train",
    user="nlp1",
    cluster="",
    min_nodes=2,
    max_nodes=6,
    workers_per_node=1,
    command=("python", "train.py", "\udcff"),
    workdir="/home/nlp1",
    replica_options=("--nodes=1",),
    replica_script="/x/replica.sh",
    created="2026-02-03T10:00:00.000+00:00",
)


@pytest.fixture
def submission(tmp_path: Path) -> ElasticSubmission:
    folder = tmp_path / "home" / "runs" / SPEC.id
    return ElasticSubmission(
        spec=SPEC,
        folder=folder,
        files=(BatchFile("baseline.sh", "#!/bin/bash\n: \udcff\n"), BatchFile("script", "#!/bin/sh\n")),
        options=("--nodes=2", "--comment=hp-run:train-3fa9c1"),
        script=folder / "baseline.sh",
    )


def test_the_folder_is_private_and_complete_before_the_job_is_submitted(submission):
    slurm = FakeSlurm()
    (job_id,) = execute_elastic([submission], slurm)
    folder = RunFolder(submission.folder)
    assert folder.spec() == SPEC
    assert [(job.role, job.job_id) for job in folder.jobs()] == [("baseline", job_id)]
    assert [(each.options, each.script, each.text) for each in slurm.submitted] == [
        (submission.options, submission.script, "#!/bin/bash\n: \udcff\n")
    ]
    modes = {path.name: path.stat().st_mode & 0o777 for path in submission.folder.iterdir()}
    assert submission.folder.stat().st_mode & 0o777 == 0o700
    assert modes["baseline.sh"] == modes["script"] == modes["logs"] == 0o700
    assert (submission.folder / "baseline.sh").read_bytes() == b"#!/bin/bash\n: \xff\n"


@pytest.mark.parametrize(
    "failure",
    [
        UnreachableError("Slurm's controller does not answer", "check it with `scontrol ping`"),
        CommandError("sbatch failed", argv=["sbatch"], code=1, stderr="sbatch: error: Invalid account"),
    ],
)
def test_a_refused_submission_leaves_no_folder(submission, failure):
    with pytest.raises(HpctoolsError) as caught:
        execute_elastic([submission], FakeSlurm(failure=failure))
    assert caught.value is failure
    assert not submission.folder.exists()


def test_an_interrupt_after_sbatch_reached_the_controller_leaves_no_job_and_no_folder(submission):
    def interrupt(job: object) -> None:
        raise KeyboardInterrupt

    slurm = FakeSlurm(on_submit=interrupt)
    with pytest.raises(KeyboardInterrupt):
        execute_elastic([submission], slurm)
    assert [job.state for job in slurm.queue.values()] == ["CANCELLED"]
    assert not submission.folder.exists()


def test_who_is_not_to_submit_any_more_clears_nothing_up(submission):
    """Job and folder may be those of the connection that has gone on in its place."""

    def refuse(job: object) -> None:
        raise RemoteError("another connection of yours is at work on it")

    slurm = FakeSlurm(on_submit=refuse)
    with pytest.raises(RemoteError):
        execute_elastic([submission], slurm)
    assert [job.state for job in slurm.queue.values()] == ["PENDING"]
    assert RunFolder(submission.folder).spec() == SPEC


def test_an_interrupt_does_not_touch_other_jobs(submission):
    slurm = FakeSlurm()
    other = slurm.submit(["--comment=hp-run:other"], Path(os.devnull))
    mine_ended = slurm.submit(["--comment=hp-run:train-3fa9c1"], Path(os.devnull))
    slurm.change(mine_ended, state="COMPLETED")

    def interrupt(job: object) -> None:
        raise KeyboardInterrupt

    slurm.on_submit = interrupt
    with pytest.raises(KeyboardInterrupt):
        execute_elastic([submission], slurm)
    assert slurm.queue[other].state == "PENDING"
    assert slurm.cancelled == [mine_ended + 1]


@pytest.mark.parametrize("full", ["run.json", "script"])
def test_a_full_disk_leaves_nothing_and_says_what_to_do(submission, monkeypatch, full):
    real_open, real_fdopen = os.open, os.fdopen
    if full == "script":

        def no_space(path, *arguments, **options):
            if str(path).endswith("/script"):
                raise OSError(errno.ENOSPC, "No space left on device", str(path))
            return real_open(path, *arguments, **options)

        monkeypatch.setattr(os, "open", no_space)
    else:

        def no_space_at_all(descriptor, *arguments, **options):
            stream = real_fdopen(descriptor, *arguments, **options)
            stream.close()
            raise OSError(errno.ENOSPC, "No space left on device")

        monkeypatch.setattr(os, "fdopen", no_space_at_all)
    slurm = FakeSlurm()
    with pytest.raises(
        (SubmitError, ElasticError), match="No space left on device; free space or quota there"
    ):
        execute_elastic([submission], slurm)
    assert not submission.folder.exists()
    assert not slurm.submitted


def test_a_folder_that_exists_already_is_left_alone(submission):
    submission.folder.mkdir(parents=True)
    (submission.folder / "precious").write_text("x")
    with pytest.raises(SubmitError, match="exists already"):
        execute_elastic([submission], FakeSlurm())
    assert (submission.folder / "precious").exists()


def test_a_root_that_cannot_be_written_is_named(submission, tmp_path):
    (tmp_path / "file").write_text("")
    blocked = replace(submission, folder=tmp_path / "file" / "runs" / SPEC.id)
    with pytest.raises(ElasticError, match=r"cannot write .*HPCTOOLS_RUNS"):
        execute_elastic([blocked], FakeSlurm())


def test_an_array_is_submitted_whole_and_each_run_over_its_limit_waits(submission, tmp_path):
    slurm = FakeSlurm()
    second = replace(
        submission,
        spec=replace(SPEC, id="train-3fa9c1_2"),
        folder=submission.folder.with_name("train-3fa9c1_2"),
        script=submission.folder.with_name("train-3fa9c1_2") / "baseline.sh",
        options=("--nodes=2", "--dependency=afterok:7", "--comment=hp-run:train-3fa9c1_2"),
        follows=SPEC.id,
    )
    first_job, second_job = execute_elastic([submission, second], slurm)
    assert slurm.submitted[1].options == (*second.options, f"--dependency=afterok:7,afterany:{first_job}")
    assert RunFolder(second.folder).jobs()[0].job_id == second_job


def test_an_array_that_is_refused_in_its_middle_leaves_nothing(submission, tmp_path):
    def refuse_second(job):
        assert RunFolder(second.folder).spec().id == "x", "a run that is to come is there to be seen"
        if len(slurm.queue) > 1:
            raise CommandError("sbatch failed", argv=["sbatch"], code=1, stderr="sbatch: error: Job limit")

    slurm = FakeSlurm(on_submit=refuse_second)
    second = replace(submission, spec=replace(SPEC, id="x"), folder=submission.folder.with_name("x"))
    with pytest.raises(CommandError):
        execute_elastic([submission, second], slurm)
    assert {job.state for job in slurm.queue.values()} == {"CANCELLED"}
    assert not submission.folder.exists()
    assert not second.folder.exists()

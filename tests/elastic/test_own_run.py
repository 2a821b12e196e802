"""Who is a worker of a run, and who has only inherited the environment of one."""

from __future__ import annotations

import multiprocessing
import os
from pathlib import Path
from typing import Any

import pytest

from hpctools.elastic import agent, run_session, session
from hpctools.elastic.left_behind import STARTED_BY, Mark
from hpctools.elastic.own_run import RUN_DIR, WORKER, OwnRun, own_run
from hpctools.elastic.processes import INCARNATION
from hpctools.elastic.session import LoneSession, session_from
from hpctools.errors import ElasticError


class Joined(LoneSession):
    """Stands for a session in a run."""

    def __init__(self, folder: Any, worker: str, *_: Any) -> None:
        super().__init__()
        self.place = (folder.path, worker)


@pytest.fixture
def environ(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """What an agent of job 12 gives its first worker."""
    monkeypatch.setattr(session, "_begun", [])
    monkeypatch.setattr(run_session, "RunSession", Joined)
    mark = Mark.of(tmp_path, "b0", 12)
    return {RUN_DIR: str(tmp_path), WORKER: "b0.0.0", STARTED_BY: mark.text, "SLURM_JOB_ID": "12"}


def made(environ: dict[str, str]) -> Any:
    return session_from(environ, None, dict)  # type: ignore[arg-type]


def test_a_worker_joins_the_run_and_what_it_starts_then_is_alone(environ: dict[str, str]) -> None:
    """Such a process took the worker's place, which took it back: after fifty recoveries the run failed."""
    folder = Path(environ[RUN_DIR])
    assert made(environ).place == (folder, "b0.0.0")
    assert set(environ) == {STARTED_BY, "SLURM_JOB_ID"}  # an agent still finds what it has started
    session._begun.clear()  # as in another process
    assert type(made(environ)) is LoneSession


def test_a_process_that_the_worker_forks_is_alone_and_the_worker_itself_is_not(
    environ: dict[str, str],
) -> None:
    made(environ)
    context = multiprocessing.get_context("fork")
    child = context.Process(target=lambda: os._exit(int(type(made(environ)) is not LoneSession)))
    child.start()
    child.join(30)
    assert child.exitcode == 0
    with pytest.raises(ElasticError, match="a second loader is made"):
        made(environ)


def test_a_job_that_a_worker_has_submitted_is_alone(environ: dict[str, str]) -> None:
    """It was told that the run has ended, and to submit it again."""
    job = {**environ, "SLURM_JOB_ID": "13"}
    assert own_run(job) is None
    assert type(made(job)) is LoneSession
    assert RUN_DIR in job


def test_an_agent_of_a_run_that_a_worker_has_submitted_starts_no_workers_of_the_first(
    environ: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In restart mode its scripts are told of no run, and nothing would replace what it has inherited."""
    monkeypatch.delenv(INCARNATION, raising=False)
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("SLURM_JOB_ID", "13")
    agent._succeed(Mark.of(tmp_path / "next", "b0", 13))
    assert own_run(os.environ) is None


@pytest.mark.parametrize("changed", [{"SLURM_JOB_ID": ""}, {STARTED_BY: ""}, {STARTED_BY: "b0.1 12 /r u n"}])
def test_a_script_need_not_know_of_slurm(environ: dict[str, str], changed: dict[str, str]) -> None:
    """It may have unset what Slurm tells, as for a library that takes that for its own."""
    assert own_run(environ | changed) == OwnRun(Path(environ[RUN_DIR]), "b0.0.0")

"""Which sessions are over, by the names that they have."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from hpctools.login.agent.claims import lives
from hpctools.login.agent.door import Door
from hpctools.login.agent.processes import parse
from tests.login.agent.made_agent import FakeSampler, FakeService, made_agent
from tests.login.node_processes import process, sample

GRANTED = {"granted": True, "message": "", "sessions": []}


def own_start() -> int:
    return parse(Path("/proc/self/stat").read_text(), 0, "").started


def test_a_process_lives_and_another_one_with_its_number_does_not() -> None:
    assert lives(f"{os.getpid()}-{own_start()}")
    assert not lives(f"{os.getpid()}-{own_start() - 1}")


@pytest.mark.parametrize("name", ["uni-0a1b2c3d", "123456-0abc", "123456-0a1b2c3d4e5f67890"])
def test_names_of_session_manager_are_not_looked_at(name: str) -> None:
    assert lives(name)


def test_a_session_manager_session_is_over_when_its_worker_is(tmp_path: Path) -> None:
    """Also one whose owner's number and random part look like PID-START."""
    pid, start = os.getpid(), own_start()
    here = process(pid, 1, 0, "ssm-session-worker 123456-01234567", name="ssm-session-wor", started=start)
    gone = replace(here, started=start - 1, title="ssm-session-worker 123456-07654321")
    service = FakeService({"taken": True, "draining": False, "why": "", "end": []}, GRANTED)
    agent = made_agent(tmp_path, service=service)
    for worker in (here, gone):
        agent.sampler = FakeSampler(sample(worker, process(2**23, pid, 1, "sh")))  # type: ignore[assignment]
        agent.sample = agent.sampler.look()
        Door(agent, service).answer({"ask": "lease", "user": "daemon", "claim": "7-7"}, 0)
    assert [body["gone"] for _, _, body in service.asked[1:] if body] == [[], ["123456-07654321"]]

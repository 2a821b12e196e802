"""Who takes over asks the checkpoints' place itself when no event tells of one and nobody has the state."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from checkpoint_rig import write
from test_earlier_terms import LIMIT, agent, hello, published

from hpctools.elastic import assembly, beginning_again
from hpctools.elastic.checkpoint import reading
from hpctools.elastic.coordinator import Coordinator
from hpctools.elastic.folder import RunFolder, RunStatus
from hpctools.elastic.spec import RunSpec
from hpctools.testing.slurm import FakeSlurm

SPEC = RunSpec("t-1", "t", "nlp1", "", 1, 3, 1, ("true",), "/", (), "/r.sh", "now")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunFolder:
    """Of a run in its second term, of which no worker is left."""
    monkeypatch.setattr(assembly, "FIRST_SECONDS", 0.2)
    monkeypatch.setattr(reading, "PAUSES", (0.0, 0.0))
    script = tmp_path / "replica.sh"  # while storage is asked, nodes are, too
    script.write_text("#!/bin/sh\n")
    folder = RunFolder.create(tmp_path / "run", replace(SPEC, replica_script=str(script)))
    folder.claim_term(1, agent="b0")
    folder.append_job("baseline", 1)
    folder.write_status(RunStatus("running", min_nodes=1, max_nodes=3, generation=4, step=9))
    folder.claim_term(2, agent="r7")
    return folder


def cannot_be_read(folder: RunFolder) -> None:
    (folder.path / "events.jsonl").mkdir()


def tell_nothing(folder: RunFolder) -> None:
    folder.append_event("started")


def state_when(folder: RunFolder, over: Callable[[RunStatus], bool]) -> RunStatus:
    """How the run stands when it has got so far under a coordinator that finds one agent without workers."""

    async def scene() -> RunStatus:
        coordinator = Coordinator(folder, FakeSlurm(), 7, term=2)
        running = asyncio.ensure_future(coordinator.run())
        _, line = await hello(await published(folder), agent("r7"))
        while not over(coordinator._run.journal.status):
            await asyncio.sleep(0.01)
        status = coordinator._run.journal.status
        coordinator.cancel("enough")
        line.close()
        await asyncio.wait_for(running, LIMIT)
        return status

    return asyncio.run(asyncio.wait_for(scene(), 2 * LIMIT))


@pytest.mark.parametrize("events", [cannot_be_read, tell_nothing])
def test_it_begins_again_with_a_checkpoint_of_which_no_event_tells(
    folder: RunFolder, events: Callable[[RunFolder], None]
) -> None:
    events(folder)
    write(folder.path / "checkpoints", 5)
    status = state_when(folder, lambda status: status.state in ("failed", "starting"))
    assert (status.state, status.message) == ("starting", "")


def test_without_one_it_begins_at_step_0_when_events_tell_that_nothing_was_saved(folder: RunFolder) -> None:
    tell_nothing(folder)
    status = state_when(folder, lambda status: status.state in ("failed", "starting"))
    assert (status.state, status.message) == ("starting", "")


def test_without_one_and_without_events_it_fails(folder: RunFolder) -> None:
    """Something may have been saved, to wherever the script says."""
    cannot_be_read(folder)
    status = state_when(folder, lambda status: status.state in ("failed", "starting"))
    assert status.state == "failed"
    assert "is left, and whether it was saved cannot be known: cannot read" in status.message


def test_a_place_that_cannot_be_read_does_not_count_as_empty(
    folder: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(folder.path / "checkpoints", 5)
    listed = Path.iterdir

    def iterdir(path: Path) -> object:
        if path.name == "checkpoints":
            raise OSError(5, "Input/output error", str(path))
        return listed(path)

    monkeypatch.setattr(Path, "iterdir", iterdir)
    status = state_when(folder, lambda status: status.state in ("failed", "starting"))
    assert status.state == "failed"
    assert "whether it was saved cannot be known: cannot read the checkpoints in" in status.message
    assert "Input/output error (EIO)" in status.message


def test_storage_that_does_not_answer_keeps_nobody_for_ever(
    folder: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = threading.Event()
    monkeypatch.setattr(beginning_again, "LOOK_SECONDS", 0.1)
    monkeypatch.setattr(beginning_again, "something_saved", lambda *_: answers.wait(LIMIT))

    def over(status: RunStatus) -> bool:
        if status.state in ("failed", "starting"):
            answers.set()  # a thread that waits would keep this process
        return answers.is_set()

    status = state_when(folder, over)
    assert status.state == "failed"
    assert status.message.endswith("cannot be known: storage does not answer in 0.1 s")


def test_what_nobody_has_thought_of_fails_the_run_and_is_said(
    folder: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def look(*_: object) -> bool:
        raise LookupError("what is that")

    monkeypatch.setattr(beginning_again, "something_saved", look)
    status = state_when(folder, lambda status: status.state in ("failed", "starting"))
    assert (status.state, "what is that" in status.message) == ("failed", True)

"""Who may commit a checkpoint: nobody of an older term, and nobody who cannot know."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hpctools.elastic.checkpoint.desks import RunDesk
from hpctools.elastic.checkpoint.keeper import Order
from hpctools.elastic.checkpoint.measure import Grace
from hpctools.elastic.checkpoint.saver import Origin
from hpctools.elastic.folder import CoordinatorAddress, RunFolder
from hpctools.elastic.spec import RunSpec
from hpctools.errors import ElasticError

SPEC = RunSpec("t-1", "t", "nlp1", "", 1, 3, 1, ("true",), "/", (), "/r.sh", "now")
OURS = Origin("t-1", 2, 7)
BUCKET = "s3://training/runs/one"


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    """Of a run in its second term."""
    made = RunFolder.create(tmp_path / "run", SPEC)
    for term in (1, 2):
        made.claim_term(term, agent="b0")
    return made


def desk_of(folder: RunFolder, place: str) -> RunDesk:
    line: Any = SimpleNamespace(term=2)
    return RunDesk(folder, line, place)


def publish(folder: RunFolder, term: int) -> None:
    folder.write_coordinator(CoordinatorAddress("n1", 4711, "s3cret", 12, 34, term))


def broken(folder: RunFolder) -> None:
    """Its server answers with an error."""
    (folder.path / "terms").rename(folder.path / "away")
    (folder.path / "terms").touch()


def test_what_the_run_has_saved_is_expected_to_be_there(folder: RunFolder) -> None:
    desk = desk_of(folder, BUCKET)
    assert desk.expected() is None
    folder.append_event("saved", step=4, where="/scratch/me/step-000000004")
    assert desk.expected() == "/scratch/me/step-000000004"
    folder.append_event("action", action="RollBack")
    folder.append_event("saved", step=4, where="/scratch/me/step-000000004", rolled_back=True)
    assert desk.expected() is None, "it may be void"


def unmounted(folder: RunFolder) -> None:
    """There is only the empty folder that it was mounted on."""
    (folder.path / "terms").rename(folder.path / "away")


@pytest.mark.parametrize("place", [BUCKET, "checkpoints"])
def test_who_is_in_office_may_commit_and_who_was_replaced_may_not(folder: RunFolder, place: str) -> None:
    desk = desk_of(folder, place if place == BUCKET else str(folder.path / place))
    assert desk.fence(OURS) is None
    folder.claim_term(3, agent="r7")
    assert desk.fence(OURS) == "term 3 has begun, and we are of term 2"


@pytest.mark.parametrize("place", [BUCKET, "checkpoints"])
def test_who_cannot_be_found_keeps_nobody_from_saving(folder: RunFolder, place: str) -> None:
    """Nobody trains under it while its address cannot be written: until then our workers are the run."""
    desk = desk_of(folder, place if place == BUCKET else str(folder.path / place))
    publish(folder, 1)
    publish(folder, 2)
    for term in (3, 4):
        folder.claim_term(term, agent="r7")
        assert desk.fence(OURS) is None
    publish(folder, 4)
    assert desk.fence(OURS) == "term 4 has begun, and we are of term 2"


def test_when_the_run_has_ended_in_a_later_term_nothing_is_committed(folder: RunFolder) -> None:
    """Its addresses are withdrawn, the newest last."""
    desk = desk_of(folder, BUCKET)
    folder.claim_term(3, agent="r7")
    for term in (2, 3):
        publish(folder, term)
    folder.remove_coordinators(2)
    assert desk.fence(OURS) == "term 3 has begun, and we are of term 2"
    folder.remove_coordinators(3)
    assert desk.fence(OURS) == "term 3 has begun, and we are of term 2"


@pytest.mark.parametrize("lose", [broken, unmounted])
def test_who_has_lost_the_run_s_folder_commits_nothing_to_s3(
    folder: RunFolder, lose: Callable[[RunFolder], None]
) -> None:
    """A node that is cut off from shared storage alone reaches it; the others have another coordinator."""
    desk = desk_of(folder, BUCKET)
    lose(folder)
    with pytest.raises(ElasticError, match="cannot be read: others may have gone on without us"):
        desk.fence(OURS)
    (folder.path / "terms").unlink(missing_ok=True)
    (folder.path / "away").rename(folder.path / "terms")
    assert desk.fence(OURS) is None, "it is there again"


@pytest.mark.parametrize("lose", [broken, unmounted])
@pytest.mark.parametrize("place", ["run/checkpoints", "scratch/not/there/yet"])
def test_beside_the_run_s_folder_the_checkpoint_counts_more(
    folder: RunFolder, lose: Callable[[RunFolder], None], place: str
) -> None:
    """On its own file system nobody else has taken over when nobody can read it."""
    desk = desk_of(folder, str(folder.path.parent / place))
    lose(folder)
    assert desk.fence(OURS) is None


@pytest.mark.skipif(
    not Path("/dev/shm").exists() or Path("/dev/shm").stat().st_dev == Path("/tmp").stat().st_dev,
    reason="there is no other file system here",
)
@pytest.mark.parametrize("place", ["/dev/shm/checkpoints", "~/checkpoints"])
def test_another_file_system_is_reached_without_the_run_s_folder(
    folder: RunFolder, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", "/dev/shm")
    monkeypatch.chdir(folder.path)
    desk = desk_of(folder, place)
    broken(folder)
    with pytest.raises(ElasticError, match="cannot be read"):
        desk.fence(OURS)


@pytest.mark.parametrize("number", [errno.ESTALE, errno.EIO, errno.EACCES])
def test_a_place_that_cannot_be_looked_at_is_taken_for_one_elsewhere(
    folder: RunFolder, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever reads it tries for some seconds, and says what to do; the desk is made before."""
    place, stat = folder.path / "mine" / "checkpoints", Path.stat

    def failing(path: Path, **options: Any) -> os.stat_result:
        if path == place:
            raise OSError(number, os.strerror(number), str(path))
        return stat(path, **options)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "stat", failing)
        desk = desk_of(folder, str(place))
    assert desk.fence(OURS) is None
    broken(folder)
    with pytest.raises(ElasticError, match="cannot be read: others may have gone on without us"):
        desk.fence(OURS)


@pytest.mark.parametrize("number", ["2.7", None])
def test_an_order_keeps_its_number(folder: RunFolder, number: str | None) -> None:
    message = {"why": "time limit", "urgent": False, "seconds": None, "ends": True, "order": number}
    line: Any = SimpleNamespace(take_order=lambda: message)
    assert RunDesk(folder, line, BUCKET).take_order() == Order("time limit", urgent=False, number=number)


@pytest.mark.parametrize(("least", "seconds"), [(1, 8.0), (3, None)])
def test_of_a_run_of_one_size_nobody_is_preempted(tmp_path: Path, least: int, seconds: float | None) -> None:
    """Its saves are held against no GraceTime, which may be 0."""
    made = RunFolder.create(tmp_path / "run", replace(SPEC, min_nodes=least))
    assert desk_of(made, "checkpoints").grace == (None if seconds is None else Grace(seconds, seconds))

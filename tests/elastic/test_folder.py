"""The run folder: what is written is what is read, and a damaged or missing part is said plainly."""

from __future__ import annotations

import dataclasses
import errno
import json
import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from hpctools.elastic.exclusions import exclusions
from hpctools.elastic.folder import CoordinatorAddress, Event, RunFolder, RunStatus, runs_root
from hpctools.elastic.spec import RunSpec
from hpctools.errors import ElasticError, UsageError

SPEC = RunSpec(
    id="train-0a1b2c",
    name="train",
    user="nlp1",
    cluster="uni-gpu",
    min_nodes=2,
    max_nodes=6,
    workers_per_node=1,
    command=("python", "train.py", "--name=a b"),
    workdir="/home/nlp1/a b",
    replica_options=("--qos=elastic", "--nodes=1"),
    replica_script="/home/nlp1/.hpctools/runs/train-0a1b2c/replica.sh",
    created="2025-01-02T03:04:05+00:00",
)


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    return RunFolder.create(tmp_path / "runs" / SPEC.id, SPEC)


def test_spec_survives_the_folder(folder: RunFolder) -> None:
    assert RunFolder(folder.path).spec() == SPEC


def test_keys_of_a_later_version_are_ignored() -> None:
    assert RunSpec.from_json({**SPEC.to_json(), "colour": "blue"}) == SPEC


def test_missing_field_is_an_error() -> None:
    values = SPEC.to_json()
    del values["command"]
    with pytest.raises(ElasticError, match=r"incomplete.*command"):
        RunSpec.from_json(values)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"min_nodes": 6, "max_nodes": 2}, "6:2 is not a range"),
        ({"min_nodes": 0}, "0:6 is not a range"),
        ({"workers_per_node": 0}, "0 workers"),
        ({"command": ()}, "no command"),
    ],
)
def test_spec_refuses_what_is_no_run(change: dict[str, object], message: str) -> None:
    with pytest.raises(ElasticError, match=message):
        dataclasses.replace(SPEC, **change)  # type: ignore[arg-type]


def test_folder_is_the_owners_alone(folder: RunFolder) -> None:
    folder.write_coordinator(CoordinatorAddress("node1", 4711, "s3cret", 12, 34, 1))
    assert stat.S_IMODE(folder.path.stat().st_mode) == 0o700
    for name in ("run.json", "terms/1.json"):
        assert stat.S_IMODE((folder.path / name).stat().st_mode) == 0o600


def test_status_is_none_then_what_was_written(folder: RunFolder) -> None:
    assert folder.status() is None
    status = RunStatus("running", 3, 4, ("n1", "n2"), 2, 6, 10, 100, 1.5, 96.0, "now", {"from": 2, "to": 4})
    folder.write_status(status)
    assert folder.status() == status


def test_coordinator_comes_and_goes_and_keeps_its_secret(folder: RunFolder) -> None:
    address = CoordinatorAddress("node1", 4711, "s3cret", 12, 34, 1)
    folder.write_coordinator(address)
    assert folder.coordinator() == address
    assert "s3cret" not in repr(address)
    folder.remove_coordinators(1)
    assert folder.coordinator() is None


def test_who_was_replaced_neither_hides_nor_withdraws_the_address_of_who_is_in_office(
    folder: RunFolder,
) -> None:
    old, new = (CoordinatorAddress("node1", 4711, "s3cret", 12, 34, term) for term in (9, 10))
    folder.claim_term(10, agent="r7")
    folder.write_coordinator(new)
    folder.write_coordinator(old)
    assert folder.coordinator() == new
    assert folder.findable_term() == 10
    folder.remove_coordinators(9)
    assert folder.coordinator() == new
    assert folder.current_term() == 10
    folder.write_coordinator(old)
    folder.remove_coordinators(10)
    assert folder.coordinator() is None
    assert folder.findable_term() == 0
    assert folder.current_term() == 10


def test_a_file_that_cannot_even_be_looked_at_is_an_error_of_the_run(folder: RunFolder) -> None:
    """As where storage is away (ESTALE, EIO): the name that it leads to is too long for a file system."""
    (folder.path / "jobs.jsonl").symlink_to("x" * 300)
    with pytest.raises(ElasticError, match=f"cannot read {folder.path}/jobs.jsonl"):
        folder.jobs()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_what_root_writes_in_somebodys_folder_is_theirs(folder: RunFolder) -> None:
    """After root's hp-cancel the owner could read neither how the run stands nor add an event."""
    os.chown(folder.path, 65534, 65533)
    folder.write_status(RunStatus("cancelled"))
    folder.append_event("cancelled", message="by root")
    for name in ("status.json", "events.jsonl"):
        made = (folder.path / name).stat()
        assert (made.st_uid, made.st_gid, stat.S_IMODE(made.st_mode)) == (65534, 65533, 0o600)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
@pytest.mark.parametrize("kind", ["symlink", "hard link", "not empty"])
def test_a_file_of_roots_that_somebody_put_into_their_folder_stays_roots(
    folder: RunFolder, tmp_path: Path, kind: str
) -> None:
    os.chown(folder.path, 65534, 65534)
    events, roots = folder.path / "events.jsonl", tmp_path / "roots"
    roots.write_text("secret\n" if kind == "not empty" else "")
    if kind == "symlink":
        events.symlink_to(roots)
    elif kind == "hard link":
        events.hardlink_to(roots)
    else:
        roots.rename(events)
    folder.append_event("cancelled", message="by root")
    assert events.stat().st_uid == 0


def test_events_and_jobs_keep_their_order(folder: RunFolder) -> None:
    folder.append_job("baseline", 1)
    folder.append_job("replica", 2)
    folder.append_event("started", nodes=["n1"])
    folder.append_event("left", job_id=2, reason="preempted")
    assert [(job.role, job.job_id) for job in folder.jobs()] == [("baseline", 1), ("replica", 2)]
    assert [(event.event, event.detail) for event in folder.events()] == [
        ("started", {"nodes": ["n1"]}),
        ("left", {"job_id": 2, "reason": "preempted"}),
    ]


def test_torn_line_does_not_hide_the_others(folder: RunFolder) -> None:
    folder.append_event("started")
    with (folder.path / "events.jsonl").open("a") as file:
        file.write('{"time": "2025\n')
    folder.append_event("finished")
    assert [event.event for event in folder.events()] == ["started", "finished"]


def test_a_job_without_a_number_and_a_time_that_is_none_hide_nothing(folder: RunFolder) -> None:
    (folder.path / "jobs.jsonl").write_text('{"job_id": null}\n{"job_id": "x"}\n{"job_id": 7}\n')
    (folder.path / "events.jsonl").write_text('{"time": 5, "event": "action", "action": "ReplaceNode"}\n')
    assert [job.job_id for job in folder.jobs()] == [7]
    assert [(each.time, each.event) for each in folder.events()] == [("5", "action")]
    assert exclusions(folder.events()) == {}


def test_what_a_coordinator_of_another_release_writes_is_read_or_said_to_be_damaged(
    folder: RunFolder,
) -> None:
    address = CoordinatorAddress("n1", 1, "secret", 2, 3)
    values = dataclasses.asdict(address)
    (folder.path / "terms/1.json").write_text(json.dumps({**values, "later": True}))
    assert folder.coordinator() == address
    del values["port"]
    (folder.path / "terms/1.json").write_text(json.dumps(values))
    with pytest.raises(ElasticError, match=r"terms/1\.json is damaged: .*port") as caught:
        folder.coordinator()
    assert "secret" not in str(caught.value)
    (folder.path / "status.json").write_text('{"step": 3, "nodes": null}')
    with pytest.raises(ElasticError, match=r"status\.json is damaged: .*state"):
        folder.status()


def test_existing_folder_is_not_taken_over(folder: RunFolder) -> None:
    with pytest.raises(ElasticError, match="exists already"):
        RunFolder.create(folder.path, SPEC)


def test_other_folder_is_no_run(tmp_path: Path) -> None:
    with pytest.raises(ElasticError, match=r"no run\.json.*hp-status"):
        RunFolder(tmp_path).spec()


def test_damaged_file_is_named(folder: RunFolder) -> None:
    (folder.path / "status.json").write_text("{")
    with pytest.raises(ElasticError, match=r"status\.json is damaged"):
        folder.status()


def torn(folder: RunFolder, monkeypatch: pytest.MonkeyPatch, then: Callable[[], None]) -> None:
    """The disk takes only the beginning of an event; `then` happens before that is undone."""
    write = os.write

    def some(descriptor: int, data: bytes) -> int:
        monkeypatch.setattr(os, "write", write)
        written = write(descriptor, data[:9])
        then()
        return written

    monkeypatch.setattr(os, "write", some)
    with pytest.raises(ElasticError, match="No space left on device"):
        folder.append_event("torn")


def test_an_event_that_does_not_fit_takes_none_with_it_that_comes_meanwhile(
    folder: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder.append_event("first")
    torn(folder, monkeypatch, lambda: None)
    assert (folder.path / "events.jsonl").read_text().count("\n") == 1, "nothing of it is left"
    torn(folder, monkeypatch, lambda: folder.append_event("of hp-submit"))
    folder.append_event("last")
    assert [event.event for event in folder.events()] == ["first", "of hp-submit", "last"]


def test_a_torn_line_that_stays_does_not_swallow_the_next_one(folder: RunFolder) -> None:
    """It could not be taken back, or who wrote it was ended."""
    folder.append_event("first")
    with (folder.path / "events.jsonl").open("a") as file:
        file.write('{"time":')
    folder.append_events(Event("now", "second", {}), Event("now", "third", {}))
    assert [event.event for event in folder.events()] == ["first", "second", "third"]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs Linux's /dev/full")
def test_full_disk_is_said_with_a_remedy(folder: RunFolder) -> None:
    (folder.path / "events.jsonl").symlink_to("/dev/full")
    with pytest.raises(ElasticError, match="No space left on device; free space"):
        folder.append_event("started")


def test_runs_root_follows_the_environment() -> None:
    assert runs_root({"HPCTOOLS_RUNS": "/shared/runs", "HOME": "/home/a"}) == Path("/shared/runs")
    assert runs_root({"HOME": "/home/a"}) == Path("/home/a/.hpctools/runs")


@pytest.mark.parametrize("chosen", ["runs", "./runs", "~/runs"])
def test_a_place_of_runs_that_each_folder_has_another_of_is_refused(chosen: str) -> None:
    """Who submits in one folder and asks in another was told that there are no runs."""
    said = f"^HPCTOOLS_RUNS is '{chosen}', which is no absolute path; export HPCTOOLS_RUNS="
    with pytest.raises(UsageError, match=said):
        runs_root({"HPCTOOLS_RUNS": chosen, "HOME": "/home/a"})
    assert runs_root({"HPCTOOLS_RUNS": "", "HOME": "/home/a"}) == Path("/home/a/.hpctools/runs")


def test_storage_that_fails_twice_is_still_said_plainly(
    folder: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A soft mount gives EIO for the rename, and then for the removal of what was written beside."""

    def broken(*_: object, **__: object) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    for name in ("replace", "unlink", "hardlink_to"):
        monkeypatch.setattr(Path, name, broken)
    with pytest.raises(ElasticError, match=r"status\.json"):
        folder.write_status(RunStatus("starting", min_nodes=1, max_nodes=2))
    with pytest.raises(ElasticError, match="terms/3"):
        folder.claim_term(3)

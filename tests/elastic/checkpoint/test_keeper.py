"""When a worker saves, what it says about it, and that a slow or broken place holds no training up."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from checkpoint_rig import RUN, Training, Unwell, assert_is_of, read, state_after, write

from hpctools.elastic.checkpoint import Grace, grace_warning, newest
from hpctools.elastic.checkpoint import keeper as keeper_module
from hpctools.elastic.checkpoint import saver as saver_module
from hpctools.elastic.checkpoint.copies import HostCopy
from hpctools.elastic.checkpoint.keeper import Order
from hpctools.elastic.checkpoint.saver import Origin
from hpctools.elastic.checkpoint.settings import Checkpoint
from hpctools.elastic.checkpoint.way_back import NothingOldEnough, newest_kept
from hpctools.errors import ElasticError

LONG = 60.0


class Held:
    """Holds writers up at their first file until it is let go, as a server does that hangs."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        self.released = threading.Event()

    def __call__(self, folder: Path, tensors: Any, skeleton: Any, go_on: Any) -> Any:
        from hpctools.elastic.checkpoint.tensors import write_state

        self.reached.set()
        assert self.released.wait(LONG)
        return write_state(folder, tensors, skeleton, go_on)


class Committing:
    """Holds commits up until they are let go, as an fsync does that hangs; what is cancelled goes on."""

    def __init__(self, training: Training, monkeypatch: pytest.MonkeyPatch) -> None:
        self.reached, self.released = threading.Event(), threading.Event()
        store: Any = training.keeper._store
        self._commit = store.commit
        monkeypatch.setattr(store, "commit", self)
        monkeypatch.setattr(keeper_module, "LEAVE_SECONDS", 0.0)

    def __call__(self, *args: Any) -> Any:
        self.reached.set()
        assert self.released.wait(LONG)
        return self._commit(*args)


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> Iterator[Held]:
    held = Held()
    monkeypatch.setattr(saver_module, "write_state", held)
    yield held
    held.released.set()


def test_saves_every_so_many_steps_in_the_background(tmp_path: Path) -> None:
    training = Training(tmp_path, Checkpoint(every_seconds=0, every_steps=5))
    for step in range(13):
        training.go_to(step)
        assert training.keeper._saver.wait(30)
    assert training.saved() == [5, 10]
    assert training.desk.of("warning") == []
    (first, _) = training.desk.of("saved")
    assert first["where"] == str(tmp_path / "step-000000005")
    assert first["why"] == "interval"
    assert 0 < first["held_s"] <= first["seconds"]
    assert first["bytes"] > 40000


def test_saves_by_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    training = Training(tmp_path, Checkpoint(every_seconds=60))
    training.go_to(1)
    now += 59
    training.go_to(2)
    assert training.saved() == []
    now += 2
    training.go_to(3)
    assert training.saved() == [3]
    training.go_to(4)
    now += 61
    training.go_to(5)
    assert training.saved() == [3, 5]


def test_what_is_saved_is_the_state_of_the_step_though_training_goes_on(tmp_path: Path, held: Held) -> None:
    """The living tensors change in place while the copy is written; the copy's memory is used again."""
    training = Training(tmp_path, Checkpoint(every_seconds=0, every_steps=1))
    training.go_to(1)
    assert held.reached.wait(30)
    for tensor in [*training.state["model"].values(), training.state["optimizer"]["state"][0]["exp_avg"]]:
        tensor.fill_(77)
    training.state["cursor"]["step"] = 77
    held.released.set()
    assert training.saved() == [1]
    assert read(tmp_path) == (1, [])
    memory = {name: each.data_ptr() for name, each in training.keeper._saver._copy.tensors.items()}
    training.go_to(2)
    assert training.saved() == [1, 2]
    assert read(tmp_path) == (2, [])
    assert memory == {name: each.data_ptr() for name, each in training.keeper._saver._copy.tensors.items()}


def test_two_saves_never_overlap_and_a_hanging_store_holds_nobody_up(
    tmp_path: Path, held: Held, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keeper_module, "SLOW_SECONDS", 0.0)
    training = Training(tmp_path, Checkpoint(every_seconds=1e-9))
    training.go_to(1)
    assert held.reached.wait(30)
    begun = time.monotonic()
    training.go_to(*range(2, 50))
    assert time.monotonic() - begun < LONG / 2
    (warning,) = training.desk.of("warning")
    assert warning["message"].startswith(f"{tmp_path} is too slow: a checkpoint is still being written")
    assert "intervalInSeconds" in warning["message"]
    held.released.set()
    assert training.saved() == [1]
    training.go_to(50)
    assert training.saved() == [1, 50]


def test_only_the_worker_that_saves_saves(tmp_path: Path) -> None:
    training = Training(tmp_path, Checkpoint(every_seconds=0, every_steps=1))
    training.desk.saves = False
    training.go_to(1, 2, 3)
    assert list(tmp_path.iterdir()) == []
    training.desk.saves = True
    training.go_to(4)
    assert training.saved() == [4], "when it comes to be the one, it is late"


def test_an_urgent_order_is_done_when_boundary_returns(tmp_path: Path) -> None:
    training = Training(tmp_path, Checkpoint(every_seconds=0))
    training.desk.order = Order("the last members leave")
    training.go_to(17)
    (saved,) = training.desk.of("saved")
    assert (saved["step"], saved["why"]) == (17, "the last members leave")
    assert read(tmp_path) == (17, [])
    training.desk.order = Order("time limit")
    training.keeper.boundary(17)
    assert [each["step"] for each in training.desk.of("saved")] == [17, 17]
    assert training.desk.of("saved")[1]["why"] == "time limit", "who ordered it waits for an answer"
    assert len(list(tmp_path.iterdir())) == 1, "the step was saved already"


def test_an_answer_has_the_number_of_its_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    training = Training(tmp_path, Checkpoint(every_seconds=0, every_steps=2))
    for step, number in ((1, "1.1"), (1, "2.1")):  # of one that has just been saved it is told, too
        training.desk.order = Order("time limit", number=number)
        training.keeper.boundary(step)
    training.go_to(2)
    assert training.saved() == [1, 1, 2]
    assert [each.get("order") for each in training.desk.of("saved")] == ["1.1", "2.1", None]
    assert "order" not in training.desk.of("saved")[2]
    training.desk.order = Order("time limit", number="2.2")
    training.keeper.boundary(3, sound=False)
    monkeypatch.setattr(HostCopy, "take", lambda copy, state: 1 / 0)
    training.desk.order = Order("time limit", number="2.3")
    training.go_to(4)
    assert [each["order"] for each in training.desk.of("unsaved")] == ["2.2", "2.3"]


def test_a_save_tells_the_rounds_that_it_is_the_state_after(tmp_path: Path) -> None:
    """Of streams they are more than steps; workers park with them."""
    training = Training(tmp_path, Checkpoint(every_seconds=0, every_steps=2))
    training.keeper.boundary(2, rounds=4)
    assert training.saved() == [2]
    training.desk.order = Order("fewer than the least")
    training.keeper.boundary(2, rounds=4)
    assert [each["rounds"] for each in training.desk.of("saved")] == [4, 4]


def test_an_urgent_order_waits_for_what_is_being_written_but_not_for_ever(tmp_path: Path, held: Held) -> None:
    training = Training(tmp_path, Checkpoint(every_seconds=1e-9))
    training.go_to(1)
    assert held.reached.wait(30)
    training.desk.order = Order("node is wanted", urgent=True, seconds=0.2)
    begun = time.monotonic()
    training.go_to(2)
    assert 0.2 <= time.monotonic() - begun < LONG / 2
    assert training.desk.of("saved") == []
    assert training.desk.of("unsaved") == [{"step": 2, "why": "node is wanted"}]
    assert training.desk.of("warning")[0]["message"] == "the checkpoint of step 2 is not complete after 0.2 s"


def test_an_order_without_hurry_waits_for_nobody(tmp_path: Path, held: Held) -> None:
    training = Training(tmp_path, Checkpoint(every_seconds=0, every_steps=1))
    training.go_to(1)
    assert held.reached.wait(30)
    training.desk.order = Order("fewer than the least", urgent=False)
    training.go_to(2)
    assert training.desk.told == []
    held.released.set()
    assert training.saved() == [1]
    training.keeper.boundary(2)
    assert training.saved() == [1, 2]
    assert [each["why"] for each in training.desk.of("saved")] == ["interval", "fewer than the least"]


def test_a_place_that_cannot_even_be_spoken_to_holds_nobody_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(place: str) -> Any:
        raise ElasticError("checkpoints in s3:// need boto3", "pip install boto3")

    monkeypatch.setattr(keeper_module, "open_store", broken)
    training = Training("s3://bucket/x", Checkpoint(every_seconds=0, every_steps=1))
    training.go_to(1, 2, 3)
    assert training.desk.told == [
        (
            "warning",
            {
                "message": "nothing is saved: checkpoints in s3:// need boto3; pip install boto3; "
                "the training goes on without"
            },
        )
    ]
    training.desk.order = Order("all nodes go")
    training.go_to(4)
    assert training.desk.told[1:] == [("unsaved", {"step": 4, "why": "all nodes go"})]


def test_a_full_disk_is_said_once_and_tried_again_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The place is a file: nothing can be made there. Then it is repaired."""
    now = 1000.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    place = tmp_path / "place"
    place.write_text("not a folder")
    training = Training(place, Checkpoint(every_seconds=0, every_steps=1))
    tried = []
    for step in range(1, 200):
        training.go_to(step)
        training.keeper._saver.wait(30)
        tried.append(training.keeper._saver._failures)
        now += 1
    (warning,) = training.desk.of("warning")
    assert warning["message"] == (
        f"the checkpoint of step 1 failed after 0.0 s: cannot read the checkpoints in {place}: "
        "Not a directory; free space or quota there, or give another folder (checkpoint: folder); the "
        "training goes on without, and it is tried again, first in 10 s"
    )
    assert tried[-1] == 5, "after 10, 20, 40 and 80 s"
    place.unlink()
    now += 600
    training.go_to(500)
    assert training.saved() == [500]
    assert training.desk.of("warning")[1:] == [{"message": "checkpoints are written again (step 500)"}]


def test_a_save_that_does_not_fit_into_the_grace_time_is_said_once(tmp_path: Path) -> None:
    training = Training(tmp_path, Checkpoint(every_seconds=0, every_steps=1))
    training.desk.grace = Grace(1.5, 1.5)
    training.go_to(1)
    training.saved()
    training.go_to(2)
    assert training.saved() == [1, 2]
    (warning,) = training.desk.of("warning")
    assert "but a preempted node has 0.0 s for it (GraceTime 1.5 s less 1.5 s)" in warning["message"]


def test_grace_warning_has_numbers_and_a_remedy() -> None:
    assert grace_warning(6.5, 10**9, Grace(8.0, 8.0)) is None
    assert grace_warning(12.3, 3 * 10**9, Grace(8.0, 8.0)) == (
        "a checkpoint took 12.3 s (3000.0 MB at 244 MB/s), but a preempted node has 6.5 s for it "
        "(GraceTime 8 s less 1.5 s); ask for a GraceTime of 14 s or more in the QoS, or save to "
        "faster storage"
    )


@pytest.mark.parametrize(
    ("granted", "remedy"),
    [
        (120.0, "set gracefulShutdownTimeoutInSeconds to 14 or more in the policy file, or save"),
        (8.0, "to 14 or more in the policy file and ask for a GraceTime of 14 s or more in the QoS, or"),
    ],
)
def test_a_policy_that_gives_less_than_slurm_is_what_is_named(granted: float, remedy: str) -> None:
    told = grace_warning(12.3, 10**9, Grace(6.0, granted))
    assert told is not None
    assert "has 4.5 s for it (gracefulShutdownTimeoutInSeconds 6 s less 1.5 s)" in told
    assert remedy in told


def test_roll_back_in_memory_and_what_was_saved_later_is_void(tmp_path: Path) -> None:
    training = Training(tmp_path, Checkpoint(every_seconds=0, every_steps=4, snapshots=2, snapshot_steps=3))
    for step in range(9):
        training.go_to(step)
        training.keeper._saver.wait(30)
    assert training.saved() == [4, 8]
    assert training.keeper.roll_back(2, 8) is None, "the snapshot of step 0 is no longer there"
    training = Training(tmp_path, Checkpoint(every_seconds=0, every_steps=4, snapshots=2, snapshot_steps=3))
    for step in range(9):
        training.go_to(step)
    assert_is_of(training.keeper.roll_back(5, 8), 3)
    assert training.keeper.roll_back(5, 3) is None, "it is not later than that"
    training.desk.origin = Origin(RUN.run, RUN.term, RUN.generation + 1)
    training.keeper.settled(3)
    assert newest(str(tmp_path)) is None, "steps 4 and 8 are of what was given up"
    training.go_to(4)
    training.saved()
    assert read(tmp_path) == (4, [])


def test_a_step_that_was_saved_before_a_roll_back_is_saved_again(tmp_path: Path) -> None:
    training = Training(tmp_path, Checkpoint(every_seconds=0, every_steps=4))
    training.go_to(4)
    assert training.saved() == [4]
    training.keeper.roll_back(2, 4)
    training.desk.origin = Origin(RUN.run, RUN.term, RUN.generation + 1)
    training.keeper.settled(2)
    training.desk.order = Order("all nodes have to go")
    training.go_to(4)
    first, second = training.desk.of("saved")
    assert (first["where"], second["where"]) == (
        str(tmp_path / "step-000000004"),
        str(tmp_path / "step-000000004.2"),
    )
    assert sorted(path.name for path in tmp_path.iterdir()) == ["abandoned.json", "step-000000004.2"]


def roll_back_in_commit_of(step: int, training: Training, monkeypatch: pytest.MonkeyPatch) -> None:
    """All go back to step 2 while a checkpoint is being completed, which it is afterwards."""
    hung = Committing(training, monkeypatch)
    training.go_to(step)
    assert hung.reached.wait(30)
    training.keeper.roll_back(2, 4)
    training.desk.origin = Origin(RUN.run, RUN.term, RUN.generation + 1)
    training.keeper.settled(2)
    hung.released.set()


@pytest.mark.parametrize("order", [None, Order("all nodes have to go", number="1.1")])
def test_what_is_complete_only_after_a_roll_back_is_not_taken_for_what_is_saved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, order: Order | None
) -> None:
    """Its step comes again, with another state: it is due again, and saved as it is ordered."""
    training = Training(tmp_path, Checkpoint(every_seconds=0, every_steps=4))
    roll_back_in_commit_of(4, training, monkeypatch)
    assert training.saved() == [4], "who hears of it knows of which generation it is"
    training.desk.order = order
    training.go_to(4)
    assert training.saved() == [4, 4]
    late, again = training.desk.of("saved")
    assert (late["generation"], again["generation"]) == (RUN.generation, RUN.generation + 1)
    assert again.get("order") == (order.number if order else None)
    found = newest(str(tmp_path))
    assert found is not None
    assert again["where"] == found.where


def test_what_was_begun_before_a_roll_back_and_is_not_of_what_that_gave_up_is_saved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer to an order is of the present generation, in which it counts."""
    training = Training(tmp_path, Checkpoint(every_seconds=0, every_steps=2))
    roll_back_in_commit_of(2, training, monkeypatch)
    assert training.saved() == [2]
    training.desk.order = Order("all nodes have to go")
    training.go_to(2)
    late, told = training.desk.of("saved")
    assert (late["generation"], told["generation"]) == (RUN.generation, RUN.generation + 1)
    assert late["where"] == told["where"]


def test_roll_back_to_a_checkpoint_and_beyond_all(tmp_path: Path) -> None:
    write(tmp_path, 4, 8)
    training = Training(tmp_path, Checkpoint())
    assert training.keeper.roll_back(6, 9) is None
    assert_is_of(training.keeper.begin(), 4)
    training.keeper.roll_back(3, 9)
    with pytest.raises(
        NothingOldEnough, match=r"cannot go back to step 3: .* give snapshots, or a shorter"
    ) as no:
        training.keeper.begin(9)
    assert (no.value.to_step, no.value.kept) == (3, 8)
    with pytest.raises(NothingOldEnough):
        training.keeper.begin(0)  # who is at the beginning throws nothing away that is kept


def test_where_nothing_is_kept_only_who_has_done_no_step_is_at_the_beginning(tmp_path: Path) -> None:
    training = Training(tmp_path, Checkpoint())
    training.keeper.roll_back(3, 9)
    with pytest.raises(NothingOldEnough) as no:
        training.keeper.begin(9)
    assert no.value.kept is None
    assert training.keeper.begin(0) is None


def test_what_cannot_be_read_is_not_thrown_away_for_the_beginning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, 8)
    Unwell(monkeypatch).refuse("manifest.json")
    assert newest_kept([str(tmp_path)]) == 8


def test_a_state_without_a_finite_loss_takes_no_sound_one_s_place(tmp_path: Path) -> None:
    training = Training(
        tmp_path, Checkpoint(every_seconds=0, every_steps=1, keep=1, snapshots=1, snapshot_steps=1)
    )
    training.go_to(1)
    assert training.saved() == [1]
    training.state = state_after(2)
    training.keeper.boundary(2, sound=False)
    training.desk.order = Order("the last members leave")
    training.keeper.boundary(2, sound=False)
    assert training.saved() == [1]
    assert training.desk.of("unsaved") == [
        {"step": 2, "why": "the last members leave; its loss is not finite"}
    ]
    assert_is_of(training.keeper.roll_back(1, 2), 1)


@pytest.mark.parametrize("number", ["2.3", None])
def test_a_failure_has_the_number_of_its_order_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: str | None
) -> None:
    """An earlier one for the same reason may fail late, when another is waited for."""
    training = Training(tmp_path, Checkpoint(every_seconds=0, every_steps=5))
    monkeypatch.setattr(training.keeper._store, "commit", lambda *_: 1 / 0)
    training.desk.order = Order("node is drained", number=number)
    training.go_to(4)
    training.keeper._saver._next_try = 0.0
    training.go_to(5)
    assert training.saved() == []
    ordered, due = training.desk.of("save_failed")
    assert ordered.get("order") == number
    assert (ordered["why"], due["why"], "order" in due) == ("node is drained", "interval", False)


@pytest.mark.parametrize("urgent", [False, True])
def test_a_state_that_cannot_be_copied_is_not_saved_and_the_training_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, urgent: bool
) -> None:
    """As for want of memory; who waits for the save is told that there is none."""

    def no_memory(copy: HostCopy, state: object) -> None:
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory")

    training = Training(tmp_path, Checkpoint(every_seconds=0, every_steps=1, snapshots=1, snapshot_steps=1))
    with monkeypatch.context() as full:
        full.setattr(HostCopy, "prepared", no_memory)
        training.desk.order = Order("all nodes go", urgent=True, seconds=60) if urgent else None
        training.go_to(1, 2)
    why = "all nodes go" if urgent else "interval"
    (failed,) = training.desk.of("save_failed")
    assert (failed["step"], failed["why"]) == (1, why)
    assert failed["reason"].startswith(
        "the state cannot be copied in this node's memory: DefaultCPUAllocator: can't allocate memory; ask"
    )
    no_snapshot, no_save = (each["message"] for each in training.desk.of("warning"))
    assert no_snapshot.startswith("no snapshot of step 1 is taken: the state cannot be copied")
    told = re.match(r"the checkpoint of step 1 failed after \d+\.\d s: the state cannot be copied", no_save)
    assert told, no_save
    assert training.desk.of("unsaved") == ([{"step": 1, "why": why}] if urgent else [])
    training.keeper._saver._next_try = 0.0
    training.go_to(3)
    assert training.saved() == [3]
    assert training.desk.of("warning")[2:] == [{"message": "checkpoints are written again (step 3)"}]
    assert training.keeper.roll_back(3, 4) is not None


def test_closing_gives_up_a_write_but_waits_for_it_when_the_training_is_over(
    tmp_path: Path, held: Held, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keeper_module, "LEAVE_SECONDS", 0.1)
    leaving = Training(tmp_path / "leaving", Checkpoint(every_seconds=1e-9))
    leaving.go_to(1)
    assert held.reached.wait(30)
    leaving.keeper.close(finished=False)
    held.released.set()
    assert leaving.keeper._saver.wait(30)
    assert (leaving.desk.told, read(tmp_path / "leaving")[0]) == ([], None)
    over = Training(tmp_path / "over", Checkpoint(every_seconds=1e-9))
    over.go_to(1)
    over.keeper.close(finished=True)
    assert read(tmp_path / "over")[0] == 1


def test_cpu_copies_do_not_share_memory_with_the_training() -> None:
    state = {"a": torch.zeros(3), "b": [torch.ones(2)[1:], 5], "same": None}
    copy = HostCopy()
    copy.take(state)
    state["a"].fill_(9)
    assert torch.equal(copy.state()["a"], torch.zeros(3))
    assert torch.equal(copy.state()["b"][0], torch.ones(1))
    assert (copy.state()["b"][1], copy.state()["same"]) == (5, None)

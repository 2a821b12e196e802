"""The keeper of one rank's shards: what a training begins from, and that no storage holds it up."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from checkpoint_rig import RUN, Unwell, rewrite
from shard_parts import BY_ORDER, SPEC, RankOfOne

from hpctools import elastic
from hpctools.elastic.checkpoint.keeper import Order
from hpctools.elastic.checkpoint.measure import Grace
from hpctools.elastic.checkpoint.reading import Unreadable
from hpctools.elastic.checkpoint.saver import Origin
from hpctools.elastic.checkpoint.selection import candidates
from hpctools.elastic.checkpoint.store import name_of
from hpctools.elastic.folder import RunFolder
from hpctools.elastic.sharded import attempts, keeping, part_files
from hpctools.errors import ElasticError


def run_that_saved(path: Path, step: int) -> RunFolder:
    """The folder of a run that has ended, with one checkpoint in it."""
    folder = RunFolder.create(path, SPEC)
    RankOfOne(str(path / "checkpoints")).save_after(step)
    return folder


def test_a_run_folder_means_where_the_run_saved(tmp_path: Path) -> None:
    """As `hp-submit --resume RUN` says it; rank 0 looks for the newest, another rank for that very step."""
    source = run_that_saved(tmp_path / "before", 7)
    settings = elastic.Checkpoint(resume_from=str(source.path))
    looking, other = (RankOfOne(str(tmp_path / "own"), settings) for _ in range(2))
    assert looking.keeper.newest() == 7
    assert set(other.keeper.examples(7)) == {"model weight"}
    filled = other.filled_from(7)
    assert torch.equal(filled, torch.full((4,), 7.0))


def test_of_two_checkpoints_of_a_step_all_ranks_read_the_same_whole_one(tmp_path: Path) -> None:
    """The one that is listed first is damaged: rank 0 passes it over, and so has whoever reads beside it."""
    place = tmp_path / "own"
    for _ in range(2):
        RankOfOne(str(place)).save_after(7)
    first, second = (found.name for found in candidates(str(place)).usable)
    assert first != second
    data = place / first / "shards-00000.bin"
    data.write_bytes(bytes([data.read_bytes()[0] ^ 1]) + data.read_bytes()[1:])
    assert RankOfOne(str(place)).keeper.newest() == 7
    assert torch.equal(RankOfOne(str(place)).filled_from(7), torch.full((4,), 7.0))


def test_what_was_saved_since_goes_before_what_the_run_began_from(tmp_path: Path) -> None:
    source = run_that_saved(tmp_path / "before", 7)
    settings = elastic.Checkpoint(resume_from=str(source.path))
    RankOfOne(str(tmp_path / "own")).save_after(3)
    assert RankOfOne(str(tmp_path / "own"), settings).keeper.newest() == 3


def test_a_source_without_a_checkpoint_is_no_beginning(tmp_path: Path) -> None:
    """Whoever says what to go on from does not want step 0."""
    folder = RunFolder.create(tmp_path / "before", SPEC)
    keeper = RankOfOne(str(tmp_path / "own"), elastic.Checkpoint(resume_from=str(folder.path))).keeper
    with pytest.raises(ElasticError, match=r"should begin from a checkpoint in .*/before, and there is no"):
        keeper.newest()
    assert RankOfOne(str(tmp_path / "own")).keeper.newest() == -1


@pytest.mark.parametrize("file", ["manifest.json", "shards-00000.json", "shards-00000.bin", "plain.pt"])
def test_what_cannot_be_read_just_now_is_tried_again_and_no_older_one_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str
) -> None:
    for step in (3, 7):
        RankOfOne(str(tmp_path)).save_after(step)
    unwell = Unwell(monkeypatch)
    unwell.refuse(f"{name_of(7)}/{file}", times=3)
    assert RankOfOne(str(tmp_path)).keeper.newest() == 7
    assert unwell.refused == 3
    rank = RankOfOne(str(tmp_path))
    unwell.refuse(f"{name_of(7)}/{file}")
    with pytest.raises(ElasticError, match=rf"cannot read .*/{name_of(7)}/{file}.*an older check"):
        rank.keeper.newest()
    assert rank.desk.told == []


def test_another_rank_takes_no_other_checkpoint_than_rank_0_because_it_cannot_read_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two of one step; and what it reads of its part is tried again, too."""
    for _ in range(2):
        RankOfOne(str(tmp_path)).save_after(7)
    first = candidates(str(tmp_path)).usable[0]
    looking, other = RankOfOne(str(tmp_path)), RankOfOne(str(tmp_path))
    assert looking.keeper.newest() == 7
    unwell = Unwell(monkeypatch)
    unwell.refuse(f"{first.name}/COMMITTED", times=2)
    assert set(other.keeper.examples(7)) == {"model weight"}
    assert other.keeper._found is not None
    assert (other.keeper._found.name, unwell.refused) == (first.name, 2)
    unwell.refuse(f"{first.name}/shards-00000.json", times=2)
    assert torch.equal(other.filled_from(7), torch.full((4,), 7.0))
    another = RankOfOne(str(tmp_path))
    unwell.refuse(f"{first.name}/COMMITTED")
    with pytest.raises(Unreadable, match="COMMITTED"):
        another.keeper.examples(7)


@pytest.mark.parametrize("content", [b"", b"no pickle", b"\x80\x02cos\nnothing\n."])
@pytest.mark.parametrize("file", ["plain.pt", "shards-00000.json"])
def test_what_is_not_understood_is_damaged_whatever_its_checksum(
    tmp_path: Path, file: str, content: bytes
) -> None:
    for step in (3, 7):
        RankOfOne(str(tmp_path)).save_after(step)
    rewrite(tmp_path / name_of(7), file, content)
    rank = RankOfOne(str(tmp_path))
    assert rank.keeper.newest() == 3
    (warning,) = warnings_of(rank)
    assert warning.startswith(f"checkpoint {tmp_path}/{name_of(7)} is not used: it is not understood")


# Storage that fails or hangs

EACH_STEP = elastic.Checkpoint(every_seconds=0, every_steps=1)


def warnings_of(rank: RankOfOne) -> list[str]:
    rank.keeper.close()
    return [each["message"] for each in rank.desk.of("warning")]


@pytest.fixture
def broken(tmp_path: Path) -> Path:
    """A place in which nothing can be written, because there is a file in its way."""
    (tmp_path / "file").touch()
    return tmp_path / "file" / "checkpoints"


LONG = 60.0


class Hung:
    """Holds writers up until it is let go."""

    def __init__(self) -> None:
        self.calls = 0
        self.reached, self.released = threading.Event(), threading.Event()

    def __call__(self, *args: Any) -> Any:
        self.calls += 1
        self.reached.set()
        assert self.released.wait(LONG)
        return WRITE_PARTS(*args)


WRITE_PARTS = part_files.write_parts


@pytest.fixture
def hung(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hung]:
    hung = Hung()
    monkeypatch.setattr(part_files, "write_parts", hung)
    yield hung
    hung.released.set()


def test_a_roll_back_that_cannot_be_marked_is_said(broken: Path) -> None:
    rank = RankOfOne(str(broken))
    rank.keeper.limit = 3
    rank.keeper.rolled_back(3)
    rank.keeper.boundary(4, sound=True)
    (said,) = warnings_of(rank)
    assert said.startswith("checkpoints of what was rolled back cannot be marked so: cannot write")


def test_failures_are_said_once_and_so_is_that_they_are_over(
    broken: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attempts, "FIRST_RETRY_SECONDS", 0.0)
    rank = RankOfOne(str(broken), EACH_STEP)
    for step in range(1, 6):
        rank.go_to(step)
        assert warnings_of(rank)[0].startswith("the checkpoint of step 1 failed on rank 0: cannot write")
    assert len(warnings_of(rank)) == 1
    broken.parent.unlink()
    for step in (6, 7):
        rank.go_to(step)
        rank.keeper.close()
    assert warnings_of(rank)[1:] == ["checkpoints are written again (step 6)"]
    assert [each["step"] for each in rank.desk.of("saved")] == [6, 7]


def test_after_a_failure_it_is_tried_again_later_but_an_order_at_once(broken: Path) -> None:
    rank = RankOfOne(str(broken), elastic.Checkpoint(every_seconds=0, every_steps=5))
    rank.go_to(5)
    rank.keeper.close()
    assert [rank.keeper.wishes(step) for step in (6, 10, 15)] == [False, False, False]
    rank.desk.order = Order("node is wanted")
    assert rank.keeper.wishes(16)
    rank.keeper._order = None
    rank.keeper._attempts._next_try = 0.0
    assert rank.keeper.wishes(17), "what failed is late, and does not wait for step 20"


def test_a_writer_that_hangs_holds_nobody_up_and_is_the_only_one(
    tmp_path: Path, hung: Hung, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also on a rank that is not asked: the others agree, and it has no part to add."""
    monkeypatch.setattr(keeping, "TAIL_SECONDS", 0.01)
    monkeypatch.setattr(keeping, "SLOW_SECONDS", 0.0)
    rank = RankOfOne(str(tmp_path), EACH_STEP)
    rank.go_to(1)
    assert hung.reached.wait(30)
    begun = time.monotonic()
    for step in range(2, 12):
        assert not rank.keeper.wishes(step)
        rank.step, rank.keeper.agreed = step, True
        rank.keeper.boundary(step, sound=True)
    assert time.monotonic() - begun < LONG / 2
    assert hung.calls == 1
    hung.released.set()
    (said,) = warnings_of(rank)
    assert said.startswith(f"{tmp_path} is too slow: a checkpoint is still being written after")
    assert [each["step"] for each in rank.desk.of("saved")] == [1]


def test_an_answer_has_the_number_of_its_order(tmp_path: Path) -> None:
    rank = RankOfOne(str(tmp_path))
    rank.desk.order = Order("time limit", number="1.1")
    rank.go_to(4)
    rank.desk.order = Order("time limit", number="2.1")
    rank.go_to(5, sound=False)
    assert [each["order"] for each in rank.desk.of("saved")] == ["1.1"]
    assert [each["order"] for each in rank.desk.of("unsaved")] == ["2.1"]


def test_a_failure_has_the_number_of_its_order_too(
    tmp_path: Path, broken: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of one that cannot be written, and of one that cannot even be copied; what is due has none."""
    writing, copying = RankOfOne(str(broken)), RankOfOne(str(tmp_path), EACH_STEP)
    writing.desk.order = Order("node is drained", number="2.3")
    writing.go_to(4)
    monkeypatch.setattr(keeping, "copy_of", lambda living: 1 / 0)
    copying.desk.order = Order("node is drained", number="2.4")
    copying.go_to(4)
    monkeypatch.setattr(copying.keeper._attempts, "_next_try", 0.0)
    copying.go_to(5)
    failed = [*writing.desk.of("save_failed"), *copying.desk.of("save_failed")]
    assert [each.get("order") for each in failed] == ["2.3", "2.4", None]
    assert [each["why"] for each in failed] == ["node is drained", "node is drained", "interval"]
    assert "order" not in failed[-1]


def test_an_order_that_is_not_carried_out_is_answered(tmp_path: Path, broken: Path, hung: Hung) -> None:
    """Who gave it waits: for a store that fails, one that hangs, and a state that is not worth it."""
    failing, hanging, unsound = (RankOfOne(str(place)) for place in (broken, tmp_path, tmp_path))
    for rank in (failing, hanging, unsound):
        rank.desk.order = Order("node is wanted", seconds=0.2)
        rank.go_to(4, sound=rank is not unsound)
    assert failing.desk.of("unsaved") == hanging.desk.of("unsaved") == [{"step": 4, "why": "node is wanted"}]
    assert unsound.desk.of("unsaved") == [{"step": 4, "why": "node is wanted; its loss is not finite"}]
    hanging.desk.order = Order("time limit", seconds=0.0)
    assert [hanging.keeper.wishes(step) for step in (5, 5, 6)] == [False] * 3
    assert hanging.desk.of("unsaved")[1:] == [{"step": 4, "why": "time limit"}]
    hung.released.set()
    unsound.desk.order = Order("time limit")
    unsound.go_to(5)
    assert [each["step"] for each in unsound.desk.of("saved")] == [5]
    assert "order" not in unsound.desk.of("saved")[0]
    assert len(unsound.desk.of("unsaved")) == 1


def test_a_worker_lost_before_the_others_have_written_is_not_waited_for_either(
    tmp_path: Path, hung: Hung, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its part may never come; else nothing is saved for a minute, not even what is ordered at the end."""
    monkeypatch.setattr(keeping, "LOST_SECONDS", 0.0)
    rank = RankOfOne(str(tmp_path), world=2)
    rank.desk.order = Order("ordered", urgent=False)
    rank.go_to(1)
    assert hung.reached.wait(30)
    rank.keeper.hurry()
    hung.released.set()
    (said,) = warnings_of(rank)
    assert said.startswith("the checkpoint of step 1 failed on rank 0: ")
    rank.world, rank.desk.order = 1, Order("the run ends")
    rank.go_to(2)
    assert [each["step"] for each in rank.desk.of("saved")] == [2]


def test_a_save_that_does_not_fit_into_the_grace_time_is_said_once(tmp_path: Path) -> None:
    rank = RankOfOne(str(tmp_path), BY_ORDER)
    rank.desk.grace = Grace(1.0, 1.0)
    for step in (1, 2):
        rank.save_after(step)
    (said,) = warnings_of(rank)
    assert "(GraceTime 1 s less 1.5 s); ask for a GraceTime of" in said


def test_old_checkpoints_that_stay_are_no_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*_: Any) -> None:
        raise ElasticError("the server is gone")

    monkeypatch.setattr(keeping, "prune", failing)
    rank = RankOfOne(str(tmp_path))
    for step in (1, 2):
        rank.save_after(step)
    assert warnings_of(rank) == ["old checkpoints stay: the server is gone"]


def test_shards_that_cannot_be_copied_are_not_saved_and_who_ordered_hears_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rank = RankOfOne(str(tmp_path), EACH_STEP)

    def no_memory(living: object) -> None:
        raise MemoryError

    with monkeypatch.context() as full:
        full.setattr(keeping, "copy_of", no_memory)
        rank.desk.order = Order("all nodes go", urgent=True, seconds=60)
        rank.go_to(1)
    assert rank.desk.of("unsaved") == [{"step": 1, "why": "all nodes go"}]
    (failed,) = rank.desk.of("save_failed")
    assert (failed["step"], failed["why"]) == (1, "all nodes go")
    assert failed["reason"].startswith(
        "rank 0: the state cannot be copied in this node's memory: MemoryError"
    )
    rank.desk.order = Order("again")
    rank.go_to(2)
    rank.keeper.close()
    assert [each["step"] for each in rank.desk.of("saved")] == [2]


def test_what_cannot_be_pickled_fails_the_save_and_not_its_thread(tmp_path: Path) -> None:
    rank = RankOfOne(str(tmp_path), EACH_STEP)
    living = rank._living()
    rank.keeper._living = lambda: replace(living, plain={"lock": threading.Lock()})
    rank.go_to(1)
    (said,) = warnings_of(rank)
    assert said.startswith("the checkpoint of step 1 failed on rank 0: lock, of type _thread.lock, cannot be")


def test_what_is_complete_only_after_a_roll_back_is_no_answer(tmp_path: Path, hung: Hung) -> None:
    """Its step comes again, is ordered, and hangs: who ordered it hears so."""
    rank = RankOfOne(str(tmp_path), EACH_STEP)
    rank.go_to(4)
    assert hung.reached.wait(30)
    rank.keeper.limit = 2
    rank.keeper.rolled_back(2)
    rank.desk.origin = Origin(RUN.run, RUN.term, RUN.generation + 1)
    hung.released.set()
    rank.keeper.close()
    (late,) = rank.desk.of("saved")
    assert (late["step"], late["generation"]) == (4, RUN.generation)
    hung.released.clear()
    rank.desk.order = Order("node is wanted", seconds=0.2)
    rank.go_to(4)
    assert rank.desk.of("unsaved") == [{"step": 4, "why": "node is wanted"}]
    hung.released.set()
    rank.keeper.close()
    assert [each["generation"] for each in rank.desk.of("saved")] == [RUN.generation, RUN.generation + 1]


def test_an_order_to_who_is_not_rank_0_is_done_with_the_next_save(tmp_path: Path) -> None:
    """Rank 0 has it, too, by then; carried out by a later rank 0 it would be answered a second time."""
    rank = RankOfOne(str(tmp_path), rank=1, world=2)
    rank.desk.order = Order("node is drained", number="1.1")
    rank.step, rank.keeper.agreed = 4, True
    rank.keeper.boundary(4, sound=True)
    rank.keeper.close()
    rank.rank, rank.world = 0, 1
    assert not rank.keeper.wishes(5)
    assert rank.desk.of("unsaved") == []

"""Whole elastic runs of a sharded model: grow, shrink, lost workers, failing storage, going on elsewhere."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from ledger_run import PATIENCE
from s3_rig import Server, bucket_of, serving
from sharded_run import (
    BATCH,
    EPOCHS,
    SAMPLES,
    ShardedRun,
    assert_goes_on,
    assert_norms_were_measured,
    assert_same_bits,
    assert_same_result,
    command,
    lone_ledger,
)

from hpctools.elastic.earlier_terms import BEGINS_ANEW

pytestmark = [pytest.mark.timeout(360), pytest.mark.usefixtures("forked_workers")]
MakeRun = Callable[..., ShardedRun]
NAN_RULES = {"runPolicy": {"mode": "enforce"}, "metrics": {"nonFinite": True}}


@pytest.fixture(scope="module")
def lone(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """The ledger of the same training as one ordinary process."""
    return lone_ledger(tmp_path_factory.mktemp("lone"))


@pytest.fixture
def hurry(tmp_path: Path) -> Path:
    """Once this file exists the training takes no time any more: the scenario is through."""
    return tmp_path / "hurry"


@pytest.fixture
def make_run(tmp_path: Path, hurry: Path) -> MakeRun:
    def make(nodes: tuple[int, int], *options: str, **more: Any) -> ShardedRun:
        slowly = ("--delay", "0.004", "--hold", "2", "--hurry", str(hurry), "--await-world", str(nodes[1]))
        return ShardedRun(tmp_path, command(tmp_path / "out", *slowly, *options), nodes, **more)

    return make


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """S3, with an empty bucket."""
    with serving() as server, bucket_of(server, monkeypatch):
        yield server


def test_grow_shrink_and_a_worker_that_is_killed(
    make_run: MakeRun, lone: list[dict[str, Any]], hurry: Path
) -> None:
    """1 -> 3 -> 2: shards go from worker to worker. Then one is killed: its neighbour has copies, a few steps
    old. No checkpoint is read, and the result is that of one process.
    """
    with make_run((1, 3), "--copy-every", "2") as run:
        run.grow_shrink_and_lose_one(hurry)
    assert_same_result(run, lone)
    resizes = [event.detail for event in run.events("resize")]
    (lost,) = [place for place, each in enumerate(resizes) if each["recovered"]]
    assert [each["to"] for each in resizes[lost - 1 : lost + 1]] == [2, 1]
    assert {each["moved"]["source"] for each in resizes} == {"workers"}
    assert {each["moved"]["medium"] for each in resizes[:lost]} == {"memory"}
    assert not run.events("resumed"), "so no checkpoint was read"


def test_who_leaves_while_a_checkpoint_is_written_finishes_its_part(
    make_run: MakeRun, lone: list[dict[str, Any]], hurry: Path
) -> None:
    """It would be given up without, and another one begun seconds later."""
    with make_run((1, 2), "--save-every", "5", "--part-waits") as run:
        writing = run.out / "writing"
        run.capacity = 1
        run.wait_for_world(2)
        run.wait(lambda: writing.exists() and writing.read_text())
        run.preempt(1)
        run.wait_for_world(1)
        run.wait(lambda: int(writing.read_text()) in saved_steps(run) or run.events("save_failed"))
        hurry.touch()
        assert run.end() == 0, run.story()
    assert_same_result(run, lone)
    assert not run.events("save_failed"), run.story()


@pytest.mark.slow
def test_a_whole_node_is_killed(make_run: MakeRun, lone: list[dict[str, Any]], hurry: Path) -> None:
    """Two workers a node, neighbours in rank: the copies of both are on the other node, and are enough."""
    together = ("--copy-every", "2", "--await-world", "4")
    with make_run((1, 2), *together, workers_per_node=2) as run:
        run.capacity = 1
        run.wait_for_world(4)
        run.wait_for_steps(3)
        run.lose_replica(1000)
        run.wait_for_world(2)
        hurry.touch()
        assert run.end() == 0, run.story()
    assert_same_result(run, lone)
    assert [each.detail["to"] for each in run.events("resize") if each.detail["recovered"]] == [2]
    assert not run.events("resumed"), "so no checkpoint was read"


@pytest.mark.parametrize(
    "more",
    [
        pytest.param(("--shards", "7", "--look"), id="unevenly"),
        pytest.param(("--shards", "3", "--samples", "390", "--mixed"), id="few", marks=pytest.mark.slow),
    ],
)
def test_exact_mode_has_the_bits_of_one_process(
    make_run: MakeRun, hurry: Path, tmp_path: Path, more: tuple[str, ...]
) -> None:
    """Through the same resizes and losses, with gradients clipped.

    Of few shards two workers do one in each step that does not count, and two layers compute in bfloat16.
    """
    options = ("--exact", "--clip", *more)
    with make_run((1, 3), "--copy-every", "2", *options) as run:
        run.grow_shrink_and_lose_one(hurry)
    assert {line["world"] for line in run.committed()} == {1, 2, 3}
    assert_same_bits(run, lone_ledger(tmp_path, *options))
    assert_norms_were_measured(run)


def test_a_slow_worker_is_told_from_those_that_wait_for_it(make_run: MakeRun, hurry: Path) -> None:
    """FSDP's collectives block within the passes: from start to end those take all workers the same time."""
    slow = {"ratio": 2, "metricEvaluationDataPoints": 3}
    slowly = ("--slow", "b1.0.0", "--delay", "0.016")  # much longer than a busy machine computes
    with make_run((2, 2), *slowly, recovery={"metrics": {"slowRank": slow}}) as run:
        # Not what comes later: without a delay whoever the machine is busy for is slow.
        found = [each.detail for each in run.wait(lambda: run.events("finding"))]
        hurry.touch()
        assert run.end() == 0, run.story()
    assert {(each["cause"], each["worker"], each["rung"]) for each in found} == {
        ("slowRank", "b1.0.0", "replaceNode")
    }, run.story()


@pytest.mark.slow
def test_below_the_least_size_it_waits_and_goes_on(
    make_run: MakeRun, lone: list[dict[str, Any]], hurry: Path
) -> None:
    """Of two workers that are both needed one is killed: the other waits for it, and both go on from copies.

    Then one's node has to go: what both hold is saved first, since a worker alone can save nothing, and they
    go on when another baseline job has come.
    """
    with make_run((2, 2), "--copy-every", "2", grace=PATIENCE) as run:
        run.baseline_capacity = False
        run.wait_for_world(2)
        run.wait_for_steps(3)
        os.kill(run.pid_of("b1"), signal.SIGKILL)
        run.wait(lambda: run.events("waiting"))
        run.wait(lambda: [each for each in run.events("resize") if each.detail["recovered"]])
        run.wait_for_steps(1)
        assert not run.events("resumed"), "so no checkpoint was read"
        waited = len(run.events("waiting"))
        run.agent_of("b1").send_signal(signal.SIGTERM)
        run.wait(lambda: run.agent_of("b1").poll() is not None)
        run.wait(lambda: len(run.events("waiting")) > waited)
        left = run.newest()
        run.baseline_capacity = True
        run.wait(lambda: run.newest()["generation"] > left["generation"])
        hurry.touch()
        assert run.end() == 0, run.story()
    assert_same_result(run, lone)
    why = "fewer workers than the least will be left"
    saved = next(each.detail for each in run.events("saved") if each.detail["why"] == why)
    assert saved["step"] == left["step"]
    assert {line["world"] for line in run.committed()} == {2}


@pytest.mark.slow
def test_a_lost_coordinators_successor_rolls_back(make_run: MakeRun, hurry: Path, tmp_path: Path) -> None:
    """The node of the coordinator and of rank 0 dies: the replica takes over, with copies of both's shards,
    and a new baseline joins it. Then a loss is nan, three steps before the end: both go back, and pass over
    that batch; the result is that of one process that never had it.
    """
    poison = EPOCHS * -(-SAMPLES // BATCH) - 2
    options = ("--copy-every", "1", "--save-every", "1", "--poison", str(poison))
    with make_run((1, 2), *options, recovery=NAN_RULES) as run:
        run.capacity = 1
        run.wait_for_world(2)
        run.wait_for_steps(2)
        before = run.newest()["generation"]
        run.lose_baseline()
        run.wait(lambda: run.events("takeover"))
        run.wait(lambda: run.newest()["generation"] > before)
        (run.out / "reached").unlink()  # from now on late steps wait for two again, however long that takes
        run.wait(lambda: (now := run.newest())["generation"] > before + 1 and now["world"] == 2)
        hurry.touch()
        assert run.end() == 0, run.story()
    assert [each.detail["term"] for each in run.events("takeover")] == [2]
    (action,) = run.events("action")
    assert (action.detail["action"], action.detail["blamed"]) == ("RollBack", poison), run.story()
    lost, rolled = [each.detail for each in run.events("resize") if each.detail["recovered"]]
    assert (lost["to"], lost["moved"]["source"]) == (1, "workers"), "no storage was read"
    assert rolled["to"] == 2, "from copies or what is saved: by how soon the rule was heard"
    without = lone_ledger(tmp_path, "--without", str(poison))
    assert_goes_on(run, without, first=1, skipped=poison)


@pytest.mark.slow
def test_a_roll_back_before_anything_is_kept_goes_to_the_beginning(
    make_run: MakeRun, hurry: Path, tmp_path: Path
) -> None:
    """No copies, and nothing saved yet: all processes begin again, and pass over the batch to blame."""
    hurry.touch()
    with make_run((2, 2), "--poison", "3", recovery=NAN_RULES) as run:
        assert run.end(160) == 0, run.story()
    done = [(each.detail["action"], each.detail.get("skip")) for each in run.events("action")]
    assert done == [("RollBack", True), ("RestartAll", [3])], run.story()
    assert not run.events("crashed"), run.story()
    without = lone_ledger(tmp_path, "--without", "3")
    assert_goes_on(run, without, first=1, skipped=3)


def saved_steps(run: ShardedRun) -> set[int]:
    return {each.detail["step"] for each in run.events("saved")}


def warnings_of(run: ShardedRun) -> list[str]:
    return [event.detail["message"] for event in run.events("warning")]


def test_a_worker_that_is_killed_before_anything_is_kept_takes_all_to_the_beginning(
    make_run: MakeRun, lone: list[dict[str, Any]], hurry: Path
) -> None:
    """No copies, and nothing saved yet: its shards are nowhere, and the other worker cannot go on."""
    with make_run((2, 2), "--save-every", "1000") as run:
        run.wait_for_world(2)
        run.wait_for_steps(2)
        before = run.newest()["generation"]
        os.kill(run.pid_of("b1"), signal.SIGKILL)
        run.wait(lambda: run.last()[1]["generation"] > before)
        hurry.touch()
        assert run.end() == 0, run.story()
    assert_same_result(run, lone)
    (said,) = [each for each in warnings_of(run) if each.endswith(BEGINS_ANEW)]
    assert said.startswith("shards of the model went with a worker that was lost: "), run.story()
    assert not run.events("crashed"), run.story()


@pytest.mark.slow
def test_a_worker_that_raises_before_anything_is_kept_ends_the_run(make_run: MakeRun) -> None:
    """Its shards are nowhere, too; but it would raise again. The other one is enough to train."""
    with make_run((1, 2), "--save-every", "1000", "--raise-in", "b0.0.") as run:
        run.capacity = 1
        assert run.end(160) == 1
    status = run.status()
    assert status is not None
    assert "b0.0.0 on n1 ended with exit code 1" in status.message, run.story()
    assert "ValueError: no such layer" in status.message
    assert not [each for each in warnings_of(run) if each.endswith(BEGINS_ANEW)], run.story()


def hang_a_save(run: ShardedRun, server: Server) -> None:
    """An upload is not answered: the training goes on, nothing else is saved, and then it is complete."""
    reached, released = threading.Event(), threading.Event()

    def held(method: str, path: str, number: int) -> bool:
        if method == "PUT" and path.endswith(".bin"):
            reached.set()
            assert released.wait(60)
        return False

    server.fails = held
    try:
        assert reached.wait(60)
        run.wait_for_steps(1)
        saved = len(run.events("saved"))
        run.wait_for_steps(2)
        assert len(run.events("saved")) == saved
    finally:
        released.set()
    run.wait(lambda: len(run.events("saved")) > saved)


def refuse_a_save(run: ShardedRun, server: Server) -> None:
    """Uploads are refused to both workers: it is said once, and the training goes on."""

    def failures() -> list[str]:
        said = [each.detail["message"] for each in run.events("warning")]
        return [each for each in said if each.startswith("the checkpoint of step")]

    server.failure, server.fails = "403 Forbidden", lambda method, path, number: method == "PUT"
    (message,) = run.wait(failures)
    run.wait_for_steps(2)
    assert failures() == [message]
    assert "failed on rank 0: cannot write the checkpoints in s3://training/old" in message
    assert "the training goes on without, and it is tried again" in message
    server.fails = lambda method, path, number: False


def lose_workers(run: ShardedRun) -> None:
    """One is killed and one frozen: each time all go back to the newest checkpoint."""
    os.kill(run.pid_of("r1000"), signal.SIGKILL)
    run.wait(lambda: len(run.events("resumed")) == 1)
    run.wait(lambda: run.has_committed("r1000.0.1"))
    os.kill(run.pid_of("b0"), signal.SIGSTOP)
    run.wait(lambda: len(run.events("resumed")) == 2)


@pytest.mark.long
def test_storage_that_hangs_or_fails_lost_workers_and_going_on_elsewhere(
    make_run: MakeRun, lone: list[dict[str, Any]], hurry: Path, server: Server, tmp_path: Path
) -> None:
    """Two workers save to S3; one is left at scancel, and saves the last step. Another run, `--resume`d from
    the first, goes on with two, and passes over the batch of a step whose loss is nan: the result is that of
    one process that never had it.
    """
    with make_run((1, 2), "--save-every", "1", "--no-room", "--folder", "s3://training/old") as old:
        old.capacity = 1
        old.wait_for_world(2)
        hang_a_save(old, server)
        refuse_a_save(old, server)
        lose_workers(old)
        old.cancel_baseline()
        assert old.end() == 143
    saved = [event.detail for event in old.events("saved")]
    assert {event.detail["step"] for event in old.events("resumed")} <= {each["step"] for each in saved}
    assert old.events("resize")[0].detail["moved"]["medium"] == "local disk", "there is no room in memory"
    last, poison = saved[-1]["step"], saved[-1]["step"] + 2
    assert saved[-1]["why"] == "baseline job 1 was cancelled (scancel)"
    assert last == old.newest()["step"] > old.events("resumed")[-1].detail["step"]
    assert old.newest()["world"] == 1
    done = old.committed()  # further than the last step where what was lost was not done again
    expected = [line["committed"] for line in lone if "committed" in line]
    assert [line["committed"] for line in done] == expected[: len(done)]
    base = tmp_path / "new"
    base.mkdir()
    slowly = ("--hold", "0.4", "--hurry", str(hurry), "--save-every", "1", "--poison", str(poison))
    more = {"resumed_from": str(old.folder.path), "recovery": NAN_RULES}
    with ShardedRun(base, command(base / "out", *slowly), (2, 2), **more) as new:
        new.wait(lambda: new.events("action"))
        new.wait_for_steps(1)
        hurry.touch()
        assert new.end() == 0
    resumed = new.events("resumed")[0].detail
    assert (resumed["step"], resumed["where"]) == (last, saved[-1]["where"])
    assert {line["world"] for line in new.last().values()} == {2}
    (action,) = new.events("action")
    assert (action.detail["action"], action.detail["blamed"]) == ("RollBack", poison)
    without = lone_ledger(base, "--without", str(poison))
    assert_goes_on(new, without, first=last + 1, skipped=poison)

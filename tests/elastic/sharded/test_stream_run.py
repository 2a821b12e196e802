"""Whole elastic runs of a sharded model that is trained from streams."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from sharded_run import ShardedRun, assert_close_finals, assert_close_losses, command, lone_ledger

pytestmark = [pytest.mark.timeout(600), pytest.mark.usefixtures("forked_workers")]
SAMPLES, EPOCHS, EPOCH_STEPS = 416, 2, 16  # in streams of 26, 78, 130 and 182, of which a step takes 12 each
STREAMS = ("--streams", "--samples", str(SAMPLES), "--epochs", str(EPOCHS), "--steps", "8")
DRY = EPOCH_STEPS + 7
"""From this step of the second epoch on the first of two workers has no samples left."""


def counted(ledger: list[dict[str, Any]], last: dict[int, dict[str, Any]]) -> dict[int, list[int]]:
    """What counted of each step, over all workers of the generation that did it last."""
    steps: dict[int, list[int]] = {step: [] for step in last}
    for line in ledger:
        if "committed" in line and line["generation"] == last[line["step"]]["generation"]:
            steps[line["step"]] += [number for each in (line["counted"] or {}).values() for number in each]
    return {step: sorted(numbers) for step, numbers in steps.items()}


@pytest.mark.slow
@pytest.mark.parametrize("exact", [(), ("--exact",)], ids=["fast", "exact"])
def test_every_sample_once_whoever_reads_it(tmp_path: Path, exact: tuple[str, ...]) -> None:
    """1 -> 2 -> 3 workers, of which one is killed (back to copies) and one preempted; the last one saves and
    is cancelled. Another run, of two workers, goes on from there as one process, up to rounding or to a bit.
    """
    training = (*STREAMS, *exact, "--clip")
    lone, hurry = lone_ledger(tmp_path, *training), tmp_path / "hurry"
    slowly = ("--delay", "0.004", "--hold", "2", "--hurry", str(hurry), "--await-world", "3")
    with ShardedRun(
        tmp_path, command(tmp_path / "out", *training, *slowly, "--copy-every", "2"), (1, 3)
    ) as old:
        old.wait_for_world(1)
        old.capacity = 1
        # Not what two commit: late steps wait for three.
        old.wait(lambda: len(old.events("joined")) == 2)
        old.capacity = 2
        old.wait_for_world(3)
        old.wait_for_steps(3)
        old.lose_replica(1001)
        old.preempt(1)
        old.wait_for_world(1)
        old.cancel_baseline()
        assert old.end() == 143, old.story()
    assert not old.events("resumed"), "copies were enough"
    base = tmp_path / "new"
    base.mkdir()
    # Not all steps in the time of one save, which takes half a second on a busy disk.
    go_on = command(base / "out", *training, "--save-every", "1", "--delay", "0.02")
    with ShardedRun(base, go_on, (2, 2), resumed_from=str(old.folder.path)) as new:
        assert new.end(300) == 0, new.story()
    (resumed,) = [each.detail for each in new.events("resumed")]
    assert resumed["step"] == old.newest()["step"]
    saved = max(each.detail["step"] for each in new.events("saved"))
    assert saved > DRY + 1, "rank 0 has a say without samples"
    before = {step: line for step, line in old.last().items() if step <= resumed["step"]}
    after = new.last()
    assert {line["world"] for line in after.values()} == {2}
    done = counted(old.ledger(), before) | counted(new.ledger(), after)
    alone = {line["step"]: line for line in lone if "committed" in line}
    assert done == counted(lone, alone)
    for epoch in range(EPOCHS):
        steps = range(epoch * EPOCH_STEPS + 1, (epoch + 1) * EPOCH_STEPS + 1)
        assert Counter(number for step in steps for number in done[step]) == Counter(range(SAMPLES))
    lines = before | after
    assert_close_losses([lines[step] for step in sorted(lines)], list(alone.values()))
    assert_close_finals(new, lone)
    if exact:
        assert [lines[step]["loss"] for step in sorted(lines)] == [each["loss"] for each in alone.values()]
        (final,) = [line["final"] for line in lone if "final" in line]
        assert [line["final"] for line in new.ledger() if "final" in line] == [final]

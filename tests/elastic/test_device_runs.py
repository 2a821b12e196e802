"""A whole elastic run over groups of the devices, with a second gloo group in nccl's place."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from ledger_run import LedgerRun

from bench.histories import POLICY, PROGRAMS, ROUNDING
from bench.same_result import committed, differences, read

PROGRAM = Path(__file__).parent / "programs" / "devices_train.py"
LIMIT = 90.0


@pytest.mark.long
@pytest.mark.timeout(500)
def test_a_run_over_the_devices_whatever_comes_and_goes(tmp_path: Path) -> None:
    """Two workers, then four; one is killed in the middle of a collective of the devices; two again.

    The result is that of one process but for rounding; every step went over the devices; each of their
    groups was linked beside the training, and ended, without its peers where one was lost.
    """
    command = [sys.executable, str(PROGRAM), str(tmp_path / "out"), "--mode", "fast"]
    with LedgerRun(tmp_path, command, (1, 2), workers_per_node=2, policy=POLICY) as run:

        def wait_for(world: int) -> None:
            run.wait(lambda: last_step(run.out).get("world") == world, LIMIT)

        wait_for(2)
        run.capacity = 1
        wait_for(4)
        (run.out / "doomed").touch()
        run.wait(lambda: not (run.out / "doomed").exists(), LIMIT)
        before = last_step(run.out)["step"]
        run.wait(lambda: last_step(run.out)["step"] > before + 2, LIMIT)
        wait_for(4)
        run.preempt(1)
        wait_for(2)
        (run.out / "hurry").touch()
        assert run.end(LIMIT) == 0
        assert [each for each in run.events("warning") if "nccl" in each.detail["message"]] == []
        resizes = [event.detail for event in run.events("resize")]
        ledger = read(run.out)
        stories = {path.stem: path.read_text().split("\n") for path in run.out.glob("*.devices")}
    assert any(each["recovered"] for each in resizes)
    assert differences(ledger, undisturbed(tmp_path), ROUNDING) == []

    story = Counter(line for lines in stories.values() for line in lines)
    groups = Counter(line["world"] for line in committed(ledger).values())
    assert set(groups) >= {2, 4}
    assert story["dies"] == 1
    for world, steps in groups.items():
        assert story[f"reduced {world}"] >= steps * world * 3, "three buckets or more a step and worker"
    for worker, lines in stories.items():
        ends = Counter(line.split()[0] for line in lines if line)
        assert ends["linked"] >= 1
        assert ends["aborted"] == ends["linked"] - ("dies" in lines), (worker, lines)


def last_step(out: Path) -> dict[str, Any]:
    """The last committed step; nothing before the first."""
    steps = committed(read(out))
    return steps[max(steps)] if steps else {}


def undisturbed(folder: Path) -> list[dict[str, Any]]:
    """The ledger of the same training as one ordinary process."""
    alone = folder / "alone"
    alone.mkdir()
    (alone / "hurry").touch()
    command = [sys.executable, str(PROGRAMS / "history.py"), str(alone), "--mode", "fast"]
    subprocess.run(command, check=True, timeout=120)
    return read(alone)

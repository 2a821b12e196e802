"""An elastic run of the sharded test training, and the lone run that its result is compared with."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from ledger_run import PATIENCE, LedgerRun

TRAINING = Path(__file__).parents[1] / "programs" / "sharded_train.py"
SAMPLES, EPOCHS, BATCH = 408, 4, 48  # the last batch of an epoch is smaller
OPTIONS = ("--samples", str(SAMPLES), "--epochs", str(EPOCHS), "--shards", "4")
CLIPPED = 0.5  # norm that exact mode's gradients have at most
LOSS_TOLERANCE = 1e-4  # relative: gradients are added up in another order on another number of workers
WEIGHT_TOLERANCE = 1e-4


def command(out: Path, *options: str) -> list[str]:
    """The command of the test training."""
    return [sys.executable, str(TRAINING), "--out", str(out), *OPTIONS, *options]


def lone_ledger(out: Path, *options: str) -> list[dict[str, Any]]:
    """The ledger of the same training as one process that nothing happens to."""
    subprocess.run(command(out, *options), check=True, stdout=subprocess.DEVNULL, timeout=120)
    return [json.loads(line) for line in (out / "lone.jsonl").read_text().splitlines()]


class ShardedRun(LedgerRun):
    """A local run whose steps may be done again after a loss: same samples, nearly the same loss."""

    def committed(self) -> list[dict[str, Any]]:
        """One line a committed step: the last time that it was."""
        steps: dict[int, dict[str, Any]] = {}
        for line in self._in_time():
            known = steps.setdefault(line["step"], line)
            assert known["committed"] == line["committed"]
            assert abs(known["loss"] - line["loss"]) <= LOSS_TOLERANCE * abs(line["loss"]), (known, line)
            steps[line["step"]] = line
        return [steps[step] for step in sorted(steps)]

    def wait(self, condition: Any, limit: float = PATIENCE) -> Any:
        """As in a run that is not sharded, with more patience: torch.distributed takes seconds to import."""
        return super().wait(condition, limit)

    def wait_for_world(self, size: int, limit: float = PATIENCE) -> None:
        """Until `size` workers have committed a step together, as the last thing that happened."""
        self.wait(lambda: (self._in_time() or [{}])[-1].get("world") == size, limit)

    def wait_for_steps(self, count: int) -> None:
        """Until so many further steps are committed."""
        first = len(self._in_time())
        self.wait(lambda: len(self._in_time()) >= first + count)

    def grow_shrink_and_lose_one(self, hurry: Path) -> None:
        """1 -> 3 -> 2 workers, then one is killed, and the other trains to the end.

        Args:
            hurry: made then.
        """
        self.wait_for_world(1)
        self.capacity = 2
        self.wait_for_world(3)
        self.preempt(1)
        self.wait_for_world(2)
        self.wait_for_steps(3)
        self.lose_replica(1000)
        hurry.touch()
        assert self.end() == 0

    def last(self) -> dict[int, dict[str, Any]]:
        """What was committed last of each step, whatever was committed before."""
        return {line["step"]: line for line in self._in_time()}

    def newest(self) -> dict[str, Any]:
        """What was committed last of all, which a loss may have set back."""
        return self._in_time()[-1]

    def _in_time(self) -> list[dict[str, Any]]:
        lines = [line for line in self.ledger() if "committed" in line and line["rank"] == 0]
        return sorted(lines, key=lambda line: float(line["at"]))


def assert_same_result(run: ShardedRun, lone: list[dict[str, Any]]) -> None:
    """Every sample exactly once per epoch, in the same order; losses and weights equal up to rounding."""
    committed, expected = run.committed(), [line for line in lone if "committed" in line]
    assert [line["committed"] for line in committed] == [line["committed"] for line in expected]
    steps = -(-SAMPLES // BATCH)
    for epoch in range(EPOCHS):  # the loop's own number may be ahead after a recovery
        lines = [line for line in committed if (line["step"] - 1) // steps == epoch]
        assert Counter(i for line in lines for i in line["committed"]) == Counter(range(SAMPLES))
    assert_close_losses(committed, expected)
    assert_close_finals(run, lone)


def assert_same_bits(run: ShardedRun, lone: list[dict[str, Any]]) -> None:
    """Samples, losses, norms and weights are those of the lone run to the bit, also of steps done again."""
    expected = {line["step"]: _told(line) for line in lone if "committed" in line}
    assert {line["step"]: _told(line) for line in run.committed()} == expected
    assert [line for line in run._in_time() if _told(line) != expected[line["step"]]] == []
    assert any(norm > CLIPPED for _, _, norm in expected.values()), (
        "the gradients must be such as are clipped"
    )
    (final,) = [line["final"] for line in lone if "final" in line]
    assert [line["final"] for line in run.ledger() if "final" in line] == [final]


def assert_norms_were_measured(run: ShardedRun) -> None:
    """Without a word between the workers they know the norm that clipping found, in every size of the run."""
    lines = [line for line in run.ledger() if line.get("measured") is not None]
    assert {line["world"] for line in lines} == {line["world"] for line in run.committed()}
    assert [line["measured"] for line in lines] == pytest.approx([line["norm"] for line in lines], rel=1e-4)


def _told(line: dict[str, Any]) -> tuple[list[int], float, float]:
    return line["committed"], line["loss"], line["norm"]


def assert_goes_on(run: ShardedRun, lone: list[dict[str, Any]], first: int, skipped: int) -> None:
    """From step `first` on as in the lone run, which never had the batch of step `skipped`."""
    last = run.last()
    committed = [last[step] for step in sorted(last) if step != skipped]
    expected = [line for line in lone if "committed" in line and line["step"] >= first]
    keys = ("step", "committed")
    assert [[line[key] for key in keys] for line in committed] == [
        [line[key] for key in keys] for line in expected
    ]
    assert_close_losses(committed, expected)
    assert_close_finals(run, lone)


def assert_close_losses(committed: list[dict[str, Any]], expected: list[dict[str, Any]]) -> None:
    """Equal up to rounding."""
    losses = [torch.tensor([line["loss"] for line in lines]) for lines in (committed, expected)]
    torch.testing.assert_close(*losses, rtol=LOSS_TOLERANCE, atol=0.0)


def assert_close_finals(run: ShardedRun, lone: list[dict[str, Any]]) -> None:
    """The final weights are equal up to rounding."""
    (final,) = [line for line in lone if "final" in line]
    finals = [line for line in run.ledger() if "final" in line]
    assert finals, run.story()
    for line in finals:
        assert line["lr"] == final["lr"]
        assert line["final"].keys() == final["final"].keys()
        for name, value in final["final"].items():
            torch.testing.assert_close(
                torch.tensor(line["final"][name]),
                torch.tensor(value),
                rtol=WEIGHT_TOLERANCE,
                atol=WEIGHT_TOLERANCE,
                msg=lambda said, name=name: f"{name}: {said}",
            )

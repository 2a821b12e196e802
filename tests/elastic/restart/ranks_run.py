"""A run of `programs/ranks.py`, which stands for a script for torchrun, with what it wrote down."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ledger_run import LedgerRun

PROGRAM = Path(__file__).parents[1] / "programs" / "ranks.py"
STEPS = 1500
QUICK: dict[str, Any] = {"sizes": [], "scaling_timeout_s": 0.2, "graceful_shutdown_s": 20.0}


class RanksRun(LedgerRun):
    """A run of `programs/ranks.py`."""

    def __init__(
        self, base: Path, nodes: tuple[int, int], *options: str, wrapped: bool = False, **more: Any
    ) -> None:
        out, self.hurry, self.slow = base / "out", base / "hurry", base / "slow"
        slowly = ("--delay", "0.02", "--hurry", str(self.hurry), "--slow", str(self.slow))
        command = [sys.executable, str(PROGRAM), "--out", str(out), *slowly, *options]
        if wrapped:
            command = ["sh", "-c", f"{shlex.join(command)}; exit $?"]
        super().__init__(base, command, nodes, **{"mode": "restart", "policy": QUICK, **more})

    def diary(self) -> list[dict[str, Any]]:
        return self.ledger()

    def told(self) -> list[dict[str, Any]]:
        return [line for line in self.diary() if "told" in line]

    def world(self) -> int:
        status = self.status()
        return status.world_size if status is not None else 0

    def wait_for_ranks(self, world: int) -> None:
        """Until ranks of so many have done a step together."""
        seen = self.count(world)
        self.wait(lambda: self.world() == world and self.count(world) > seen + world)

    def count(self, world: int) -> int:
        return sum("step" in line and line["world"] == world for line in self.diary())

    def pid(self, rank: int, world: int) -> int:
        """The process that was a rank of so many last."""
        return int(
            [line for line in self.diary() if (line["rank"], line["world"]) == (rank, world)][-1]["pid"]
        )


MakeRun = Callable[..., RanksRun]


def assert_whole(run: RanksRun, steps: int) -> None:
    """All steps were done, in each generation from the checkpoint on, by all of its ranks."""
    assert (run.out / "checkpoint").read_text() == str(steps)
    assert {line["step"] for line in run.diary() if "step" in line} == set(range(1, steps + 1))
    assert [line["ends"] for line in run.diary() if "ends" in line] == [steps] * run.world()
    status = run.status()
    assert status is not None
    assert status.state == "finished"

"""An elastic run of the test training, with its ledger of what was fed and what was committed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from hpctools.elastic.folder import Event, RunStatus
from hpctools.testing.local_run import POLL_SECONDS, LocalRun

TRAINING = Path(__file__).parent / "programs" / "train.py"
PATIENCE = 180.0  # seconds: starting torch takes 20 on a busy machine, and 90 where six begin at once
STILL = 1.0
FORKED: list[str] = []
"""How the command of a worker begins that is forked with torch imported, if it is; see `forked_workers`."""


class Patience:
    """So many seconds in which we ran: when the machine stands still, so does the run that is waited for.

    Args:
        standstill: is told how long we did not run, each time that it was longer than `STILL` seconds.
    """

    def __init__(self, seconds: float, standstill: Callable[[float], None]) -> None:
        self._left = seconds
        self._standstill = standstill
        self._last = time.monotonic()

    def is_over(self) -> bool:
        """Whether they have passed; to be asked all the time."""
        now = time.monotonic()
        passed, self._last = now - self._last, now
        if passed > STILL:
            self._standstill(passed)
        self._left -= min(passed, STILL)
        return self._left < 0


class LedgerRun(LocalRun):
    """A local run whose workers write to `out` what they were fed.

    Attributes:
        stood_still: seconds for which we did not run while we waited; of no pause can less be asked.
    """

    def __init__(self, base: Path, command: Sequence[str], nodes: tuple[int, int], **more: Any) -> None:
        forked = FORKED and command[0] == sys.executable
        super().__init__(base, [*FORKED, *command[1:]] if forked else command, nodes, **more)
        self.out = base / "out"
        self.out.mkdir()
        self._ledger = Ledger(self.out)
        self.stood_still = 0.0

    def pid_of(self, prefix: str) -> int:
        """The process of a worker whose name begins so, once it was fed something."""
        pids = self.wait(lambda: [line["pid"] for line in self.ledger() if line["worker"].startswith(prefix)])
        return int(pids[-1])

    def lose_replica(self, job: int) -> None:
        """Its agent and worker are killed, no other replica job gets a node, and the others go on."""
        self.capacity, victim = 0, self.pid_of(f"r{job}")
        self.replicas[job].kill()  # its agent would start it again
        os.kill(victim, signal.SIGKILL)
        self.wait(lambda: [each for each in self.events("resize") if each.detail["recovered"]])
        self.wait_for_steps(1)

    def wait(self, condition: Callable[[], Any], limit: float = PATIENCE) -> Any:
        """What the condition returns as soon as it is true."""
        patience = Patience(limit, self._note_standstill)
        while not (value := condition()):
            ended = [agent.poll() for agent in self.agents]
            if patience.is_over() or None not in ended:
                raise AssertionError(f"did not happen; agents {ended}, {self.status()}\n{self.story()}")
            time.sleep(POLL_SECONDS)
        return value

    def _note_standstill(self, seconds: float) -> None:
        self.stood_still += seconds

    def end(self, limit: float = 60.0) -> int:
        """The exit code of the baseline; when it does not come, all that is known."""
        patience = Patience(limit, self._note_standstill)
        while None in [agent.poll() for agent in self.agents] and not patience.is_over():
            time.sleep(POLL_SECONDS)
        try:
            return super().end(POLL_SECONDS)
        except subprocess.TimeoutExpired as error:
            codes = {agent.pid: agent.poll() for agent in self.agents}
            raise AssertionError(f"{error}; agents {codes}, {self.status()}\n{self.story()}") from None

    def wait_for_world(self, size: int, limit: float = PATIENCE) -> None:
        """Until `size` workers have committed a step together, as the last thing that happened."""
        self.wait(lambda: (self.committed() or [{}])[-1].get("world") == size, limit)

    def wait_for_steps(self, count: int) -> None:
        """Until so many further steps are committed."""
        first = len(self.committed())
        self.wait(lambda: len(self.committed()) >= first + count)

    def start_seconds(self) -> float:
        """How long it took the run's first workers from their agents' start to the training."""
        (began,), joined = self.events("started"), self.events("joined")
        return (datetime.fromisoformat(joined[0].time) - datetime.fromisoformat(began.time)).total_seconds()

    def status(self) -> RunStatus | None:
        """How the run stands."""
        return self.folder.status()

    def events(self, *kinds: str) -> list[Event]:
        """The run's events of some kinds."""
        return [event for event in self.folder.events() if event.event in kinds]

    def ledger(self) -> list[dict[str, Any]]:
        """Everything that the workers have written."""
        return self._ledger.lines()

    def committed(self) -> list[dict[str, Any]]:
        """One line a committed step, in order; workers that tell of the same step must agree."""
        steps: dict[int, dict[str, Any]] = {}
        for line in self.ledger():
            if "committed" in line:
                known = steps.setdefault(line["step"], line)
                assert (known["committed"], known["loss"]) == (line["committed"], line["loss"]), (known, line)
                if line["rank"] == 0:
                    steps[line["step"]] = line
        return [steps[step] for step in sorted(steps)]

    def has_committed(self, worker: str) -> bool:
        """Whether a worker has committed a step, whatever its rank; `committed` has one rank's lines."""
        return any(line["worker"] == worker and "committed" in line for line in self.ledger())

    def story(self) -> str:
        """All that is known, for a failed assertion."""
        events = "\n".join(f"{event.time} {event.event} {event.detail}" for event in self.folder.events())
        return f"{events}\n--- agents\n{self.log.read_text(errors='replace')[-6000:]}"


class Ledger:
    """The `*.jsonl` files of a folder while they grow; what was read once is not read again."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._files: dict[Path, tuple[int, list[dict[str, Any]]]] = {}

    def lines(self) -> list[dict[str, Any]]:
        """All whole lines so far, by file."""
        for path in self._folder.glob("*.jsonl"):
            self._read_on(path)
        return [line for path in sorted(self._files) for line in self._files[path][1]]

    def _read_on(self, path: Path) -> None:
        place, known = self._files.setdefault(path, (0, []))
        with path.open("rb") as file:
            file.seek(place)
            new, _, _ = file.read().rpartition(b"\n")
        if new:
            known += [json.loads(line) for line in new.splitlines()]
            self._files[path] = (place + len(new) + 1, known)


def training(out: Path, *options: str) -> list[str]:
    """The command of the test training."""
    return [sys.executable, str(TRAINING), "--out", str(out), *options]

"""What happens to one run of a random history: planned by a seed, done when the run is ready for it."""

from __future__ import annotations

import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from bench.run_processes import kill
from bench.same_result import Line, Tail
from hpctools.elastic.protocol import worker_place
from hpctools.slurm import run
from hpctools.testing.local_run import LocalRun

LEAST, MOST = 1, 4
POLL_SECONDS = 0.03
EVENT_SECONDS = 40.0
FREEZE_SECONDS = 8.0
RESTARTS = 3
"""So often within a minute does a run start a killed worker of its baseline again."""

WEIGHTS = {
    "kill coordinator": 2,
    "preempt": 4,
    "freeze worker": 1,
    "kill all": 1,
    "kill agent": 3,
    "lose baseline": 2,
    "freeze coordinator": 1,
    "grow": 4,
    "kill worker": 4,
}
"""What may happen, and how often in proportion. After `kill all` only a checkpoint has the state."""
THEMES = tuple(WEIGHTS)


class Stopped(Exception):
    """Somebody wants the histories to end."""


@dataclass(frozen=True)
class Happening:
    """Something that was done to a run.

    Attributes:
        kind: one of THEMES.
        what: to whom, or how much of it.
    """

    kind: str
    what: str

    def __str__(self) -> str:
        return f"{self.kind} {self.what}"


def plan(seed: int, kinds: int) -> tuple[str, ...]:
    """What happens in a history, in order; it begins with one worker, so it grows first.

    One of them is the seed's theme: so many seeds in a row have as many themes, and all seeds that have the
    same remainder have all of them, one after the other.

    Args:
        kinds: of trainings that the seeds have in turn.
    """
    draw = random.Random(seed)  # noqa: S311
    drawn = draw.choices(THEMES, list(WEIGHTS.values()), k=draw.randint(1, 3))
    turn, place = divmod(seed, kinds)
    drawn.insert(draw.randint(0, len(drawn)), THEMES[(4 * turn + place) % len(THEMES)])
    return ("grow", *drawn)


class Life:
    """What happens to one run.

    Whatever is done leaves an agent whose worker trains, since nobody could go on without.

    Args:
        stop: once it is set, `live` raises Stopped.
    """

    def __init__(self, seed: int, local: LocalRun, out: Path, stop: threading.Event) -> None:
        self._random = random.Random(-1 - seed)  # noqa: S311
        self._run = local
        self._tail = Tail(out)
        self._stop = stop
        self._ended = 0
        self._newest: Line | None = None
        self._results: dict[str, Line] = {}
        self._gone: set[str] = set()
        self._hits: Counter[str] = Counter()

    def live(self, kinds: tuple[str, ...]) -> Iterator[Happening]:
        """Do these things at random steps; tell what was done. What is not possible is left out."""
        self._await_steps(1)
        for kind in kinds:
            self._await_steps(self._random.randint(1, 4))
            if kind == "grow" and self._run.capacity == MOST - LEAST:
                kind = "preempt"
            if kind == "grow" or self._is_accompanied():
                what = getattr(self, "_" + kind.replace(" ", "_"))()
                if what is not None:
                    yield Happening(kind, what)
            self._await_steps(1)

    # What can be done; None: it was not possible

    def _grow(self) -> str:
        self._run.capacity += self._random.randint(1, MOST - LEAST - self._run.capacity)
        before = len(self._members())
        self._await(lambda: len(self._members()) > before)
        return f"to {LEAST + self._run.capacity}"

    def _preempt(self) -> str | None:
        """The youngest; they may be all, if the baseline is there."""
        there = self._agents()
        spare = len(there) - (0 if any(name.startswith("b") for name in there) else 1)
        most = min(self._run.capacity, spare)
        if most < 1:
            return None
        jobs = self._run.preempt(self._random.randint(1, most))
        self._gone |= {f"r{job}" for job in jobs}
        return f"{len(jobs)}"

    def _kill_worker(self) -> str | None:
        return self._hit(signal.SIGKILL)

    def _freeze_worker(self) -> str | None:
        """Until it is not reckoned with any more, or for a while."""
        name = self._hit(signal.SIGSTOP)
        if name is not None:
            pid = int(self._results[name]["pid"])
            try:
                generation = self._generation()
                self._await(lambda: self._generation() > generation, FREEZE_SECONDS)
            finally:
                kill(pid, signal.SIGCONT)
        return name

    def _hit(self, number: int) -> str | None:
        """Send a worker a signal; returns its name."""
        names = [name for name in self._members() if self._hits[_agent_of(name)] < RESTARTS]
        if not names:
            return None
        name = self._random.choice(sorted(names))
        self._signal(name, number)
        return name

    def _kill_all(self) -> str | None:
        """All workers at once: once there is a checkpoint, and each has told of the newest generation."""
        saved, names = self._run.folder.path / "checkpoints", list[str]()

        def are_known() -> bool:
            names[:] = self._whole() if any(saved.glob("step-*")) else []
            return bool(names)

        # Nor while somebody is about to join, who may have received the state since we looked.
        self._await(lambda: are_known() and len(names) == LEAST + self._run.capacity)
        if not names or any(self._hits[_agent_of(name)] >= RESTARTS for name in names):
            return None
        for name in names:
            self._signal(name, signal.SIGKILL)
        return f"{len(names)}"

    def _signal(self, worker: str, number: int) -> None:
        self._hits[_agent_of(worker)] += 1
        self._gone.add(worker)
        kill(int(self._results[worker]["pid"]), number)

    def _kill_agent(self) -> str | None:
        replicas = sorted(name for name in self._agents() if name.startswith("r"))
        if not replicas:
            return None
        name = self._random.choice(replicas)
        self._gone.add(name)
        self._run.agent_of(name).kill()
        return name

    def _kill_coordinator(self) -> str | None:
        agent = self._coordinator()
        if agent is None:
            return None
        if agent in self._run.baseline:
            return self._lose_baseline()
        agent.kill()
        return "of a replica"

    def _lose_baseline(self) -> str | None:
        """Its only node, and Slurm says so; another one takes its place by and by."""
        if self._run.baseline[0].poll() is not None:
            return None
        self._run.lose_baseline()
        return "baseline"

    def _freeze_coordinator(self) -> str | None:
        """Until another one is in office."""
        agent, term = self._coordinator(), self._run.folder.current_term()
        if agent is None:
            return None
        agent.send_signal(signal.SIGSTOP)
        try:
            self._await(lambda: self._run.folder.current_term() > term, FREEZE_SECONDS)
        finally:
            agent.send_signal(signal.SIGCONT)
        return f"of term {term}"

    # How the run stands

    def _is_accompanied(self) -> bool:
        """Whether two agents' workers train; waits for it, and makes room where there is none."""
        if len(self._agents()) < 2:
            self._run.capacity = max(1, self._run.capacity)
            self._await(lambda: len(self._agents()) > 1)
        return len(self._agents()) > 1

    def _coordinator(self) -> run.Process | None:
        address = self._run.folder.coordinator()
        alive = [each for each in self._run.agents if each.poll() is None]
        return next((each for each in alive if address is not None and each.pid == address.pid), None)

    def _agents(self) -> set[str]:
        """Names of the agents that live and will stay, and whose worker trains."""
        named = {_agent_of(worker) for worker in self._members()} - self._gone
        return {name for name in named if self._run.agent_of(name).poll() is None}

    def _members(self) -> dict[str, Line]:
        """The workers of the newest generation, but for those that we have hit, with their newest result."""
        generation = self._generation()
        return {
            name: line
            for name, line in self._results.items()
            if line["generation"] == generation and name not in self._gone
        }

    def _whole(self) -> list[str]:
        """The workers of the newest generation once each has told of its first step in it; before: none."""
        members = self._members()
        whole = self._newest is not None and len(members) == self._newest["world"]
        return list(members) if whole else []

    def _generation(self) -> int:
        self._look()
        return int(self._newest["generation"]) if self._newest is not None else 0

    def _look(self) -> None:
        new = [line for line in self._tail.look() if "loss" in line]
        self._ended += len({line["step"] for line in new})
        self._results |= {line["worker"]: line for line in new}
        self._newest = max(
            [*new, *filter(None, [self._newest])], key=lambda line: float(line["at"]), default=None
        )

    def _await_steps(self, count: int) -> None:
        """So many more."""
        self._look()
        first = self._ended

        def ended() -> bool:
            self._look()
            return self._ended >= first + count

        self._await(ended)

    def _await(self, condition: Callable[[], bool], limit: float = EVENT_SECONDS) -> None:
        """Until it is so, or the run has ended, or long enough.

        Raises:
            Stopped: somebody wants it.
        """
        deadline = time.monotonic() + limit
        while not condition() and time.monotonic() < deadline and self._is_alive():
            if self._stop.wait(POLL_SECONDS):
                raise Stopped

    def _is_alive(self) -> bool:
        return any(agent.poll() is None for agent in self._run.agents)


def _agent_of(worker: str) -> str:
    return worker_place(worker)[0]

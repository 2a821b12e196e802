"""Who is connected with the coordinator."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from hpctools.elastic.protocol import EXPELLED, REPLAYED, encode, worker_place
from hpctools.elastic.recovery.settings import EXIT_GOES_ON

MOST_NAMES = 1 << 16  # more than a run has workers at a time
EXIT_OF_STATE = {"finished": 0, "failed": 1, "cancelled": 143, "superseded": EXIT_GOES_ON}


@dataclass
class Agent:
    """An agent that has reported, and what runs under it.

    Attributes:
        order: its place among the run's nodes; those of the first baseline job come first.
        seen: when it was last heard.
        leaving: whether its node is wanted by somebody else, or is given up.
        running: names of its workers' processes.
        restarts: of each of its workers, by place, after they had ended badly: how many without a long time
            between them, and when the last one was.
        reason: why it will have gone, when it goes.
        told: when it was known that its node is wanted or given up.
        mute: whether it gives no sign of life and is waited for: nobody may count on its node.
        away: since when it has no connection and is awaited all the same, on the clock of `seen`.
    """

    writer: asyncio.StreamWriter
    name: str
    order: tuple[int, ...]
    node: str
    job_id: int
    is_baseline: bool
    seen: float
    leaving: bool = False
    running: set[str] = field(default_factory=set)
    restarts: dict[int, tuple[int, float]] = field(default_factory=dict)
    reason: str = "lost"
    told: float | None = None
    mute: bool = False
    away: float = 0.0


@dataclass
class Worker:
    """A worker that has reported.

    Attributes:
        step: completed steps as it last said; None: nothing yet.
        waits: whether it has done its part of the step and waits for the others, as it last said.
        between: whether its loop is between two passes, as it last said.
        shards: whether it holds a part of the state only, which nobody can save once all have parked.
        busy: when its agent last saw that it computes, on the clock of `seen`.
        told: when it first said that it got SIGTERM; None: it has not.
    """

    writer: asyncio.StreamWriter
    name: str
    agent: str
    seen: float
    step: int | None = None
    waits: bool = False
    between: bool = False
    shards: bool = False
    busy: float = float("-inf")
    told: float | None = None


@dataclass(frozen=True)
class Outcome:
    """How a run ended.

    Attributes:
        state: finished, failed or cancelled; or superseded, when another coordinator goes on with it.
        message: why; empty when finished.
        code: exit code of the baseline job; None: the state's own.
        is_loss: whether a worker is only lost, so that nothing speaks against beginning again.
    """

    state: str
    message: str = ""
    code: int | None = None
    is_loss: bool = False

    @property
    def exit_code(self) -> int:
        """With which code the run's jobs end."""
        return EXIT_OF_STATE[self.state] if self.code is None else self.code


class Names:
    """Names of workers; of very many the oldest are forgotten, whose processes have ended long ago."""

    def __init__(self, most: int = MOST_NAMES) -> None:
        self._names: dict[str, None] = {}
        self._most = most

    def add(self, name: str) -> None:
        """Take it in, as the newest."""
        self._names.pop(name, None)
        self._names[name] = None
        if len(self._names) > self._most:
            del self._names[next(iter(self._names))]

    def __contains__(self, name: str) -> bool:
        """Whether it was taken in."""
        return name in self._names


class Roster:
    """Agents and workers that are connected, and names that must not come back.

    Attributes:
        expelled: workers that were given up and may still run.
        departed: workers that left as agreed.
        judged: workers whose end was dealt with.
        restarting: workers that are ended because we want them to be started again.
        replayed: workers that ended their program after a pass that was over before they came.
        missing: since when workers have no connection that may come back with the state, seconds of the
            monotonic clock.
        absent: agents without a connection whose workers end their programs after the last step, or whose
            ranks save before the run ends.
        came: names of the first two agents that ever came.
    """

    def __init__(self) -> None:
        self.came: set[str] = set()
        self.agents: dict[str, Agent] = {}
        self.absent: dict[str, Agent] = {}
        self.workers: dict[str, Worker] = {}
        self.missing: dict[str, float] = {}
        self.expelled, self.departed, self.judged, self.restarting = (Names() for _ in range(4))
        self.replayed = Names()

    def has(self, peer: Agent | Worker) -> bool:
        """Whether this connection of an agent or worker is still the one that counts."""
        if isinstance(peer, Worker):
            return self.workers.get(peer.name) is peer
        return self.agents.get(peer.name) is peer

    def note_came(self, agent: str) -> None:
        """An agent has come."""
        if len(self.came) < 2:
            self.came.add(agent)

    def workers_of(self, agent: Agent) -> list[Worker]:
        """An agent's workers that are connected."""
        return [each for each in self.workers.values() if each.agent == agent.name]

    def agents_on(self, node: str) -> list[Agent]:
        """The agents on a node; of several jobs of the run, when Slurm puts them there."""
        return [each for each in self.agents.values() if each.node == node]

    def send_away(self, agent: Agent, code: int) -> None:
        """End an agent's part in the run; a coordinator beside it hands over when there is somebody else.

        Args:
            code: its exit code.
        """
        goes_on = any(
            each is not agent and not (each.leaving or each.mute) and each.reason == "lost"
            for each in self.agents.values()
        )
        write(agent.writer, "shutdown", code=code, goes_on=goes_on)

    def was_given_up(self, worker: str, code: int, tail: Sequence[str]) -> bool:
        """Whether a worker that has ended had been given up, by us or, as its last words say, by another.

        Args:
            tail: its last lines.
        """
        return worker in self.expelled or (code == 1 and any(EXPELLED in line for line in tail))

    def ended_early(self, worker: str, tail: Sequence[str]) -> bool:
        """Whether a worker's program has ended after a pass that was over before it came, as it said itself.

        Args:
            tail: its last lines.
        """
        return worker in self.replayed or any(REPLAYED in line for line in tail)

    def agent_of(self, worker: str) -> Agent | None:
        """The agent that started a worker."""
        return self.agents.get(worker_place(worker)[0])

    def node_of(self, worker: str) -> str:
        """The node of a worker; `?` when its agent has gone."""
        agent = self.agent_of(worker)
        return agent.node if agent is not None else "?"

    def tell_workers(self, kind: str, **fields: Any) -> None:
        """A message to all workers."""
        for worker in self.workers.values():
            write(worker.writer, kind, **fields)

    def tell_agents(self, kind: str, **fields: Any) -> None:
        """A message to all agents."""
        for agent in self.agents.values():
            write(agent.writer, kind, **fields)

    def order_of(self, worker: str) -> tuple[int, ...]:
        """A worker's place among the ranks; while its agent is not here, the one that its name tells."""
        name, local, attempt = worker_place(worker)
        agent = self.agents.get(name)
        return (*(agent.order if agent is not None else _order_by_name(name)), local, attempt)

    def starting(self, known: Iterable[str]) -> int:
        """Workers that run and have not yet come so far that they could train."""
        running = {name for agent in self.agents.values() if not agent.leaving for name in agent.running}
        return len(running - set(known))


def _order_by_name(agent: str) -> tuple[int, ...]:
    """An agent's place among the nodes, from `b0` of the first baseline, or `r12`, `r12.1` of a job."""
    job, _, place = agent[1:].partition(".")
    return (0, int(job)) if agent.startswith("b") and not place else (1, int(job), int(place or 0))


def write(writer: asyncio.StreamWriter, kind: str, **fields: Any) -> None:
    """Send a message; a peer that is gone is noticed by who reads from it."""
    writer.write(encode(kind, **fields))

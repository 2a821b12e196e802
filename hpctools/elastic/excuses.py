"""Who is silent for too long and is not given up all the same.

An agent whose workers train on, since nothing is lost by waiting for it; and a worker of which its agent says
that it computes. Both for a while, and told once for each silence.
"""

from __future__ import annotations

from hpctools.elastic.context import RunContext
from hpctools.elastic.peers import Agent, Worker
from hpctools.elastic.protocol import BEAT_SECONDS, SILENCE_SECONDS

MUTE_SECONDS = 30.0  # for which an agent may be silent, or away, whose workers train
BUSY_SECONDS = 30.0  # for which a worker may be silent that computes
# For which an agent's word for a worker counts. It also speaks for the half second in which the worker froze:
# this is so short that such a one is given up no later for it.
FRESH_SECONDS = 3 * BEAT_SECONDS


class Excuses:
    """Judges silence; what it needs to know from one look to the next is only since when others wait."""

    def __init__(self, run: RunContext) -> None:
        self._run = run
        self._told: dict[str, float] = {}  # when those were last heard whose silence was told
        self._awaited: dict[str, tuple[int | None, float]] = {}  # at which step, and since when
        self._alone: dict[str, float] = {}  # since when workers are here whose agent is not

    def look(self, now: float, *, late: bool = False) -> None:
        """Some time has passed; to be called before anybody is judged.

        Args:
            late: we slept ourselves: nobody has waited.
        """
        workers, agents = self._run.roster.workers.values(), self._run.roster.agents
        alone = {} if late else self._alone
        self._alone = {each.name: alone.get(each.name, now) for each in workers if each.agent not in agents}
        awaited = {} if late else self._awaited
        self._awaited = {}
        for worker in self._those_awaited():
            step, since = awaited.get(worker.name, (worker.step, now))
            self._awaited[worker.name] = (worker.step, since if step == worker.step else now)

    def is_only_mute(self, agent: Agent, now: float) -> bool:
        """Whether all workers of a silent agent train, say so, and keep nobody waiting.

        Never when its node is wanted back by Slurm, since nobody else could end the workers. Of a node that
        is to leave the run as long as one of them trains: they leave at a step boundary by themselves, and
        `Deadlines` sees to it that they do. Not at the run's end, where workers need give no sign of life.
        """
        run, departs = self._run, agent.leaving and agent.reason == "departed"
        workers = [each for each in run.roster.workers_of(agent) if run.membership.trains(each.name)]
        if run.is_over or run.completed or (agent.leaving and not departs):
            return False
        if len(workers) < (1 if departs else run.spec.workers_per_node):
            return False  # one has died, and nobody would start it again
        if now - agent.seen > MUTE_SECONDS and not departs:
            return False
        if not all(self._is_sound(worker, now) for worker in workers):
            return False
        why = "gives no sign of life, but its workers do"
        until = "until they have left" if departs else f"{MUTE_SECONDS:g} s at most"
        self._tell(agent, f"the agent on {agent.node} {why}; it is waited for, {until}")
        return True

    def is_only_busy(self, worker: Worker, now: float) -> bool:
        """Whether a silent worker computes, as its agent has just seen."""
        if now - worker.busy > FRESH_SECONDS or now - worker.seen > BUSY_SECONDS:
            return False
        self._tell(
            worker,
            f"{worker.name} on {self._run.roster.node_of(worker.name)} gives no sign of life, but computes: "
            f"some call in it holds Python's lock (GIL); it is waited for, {BUSY_SECONDS:g} s at most",
        )
        return True

    def is_forsaken(self, worker: Worker, now: float) -> bool:
        """Whether a worker's agent is away for too long, and no other worker needs what it has."""
        forsaken = now - self._alone.get(worker.name, now) > MUTE_SECONDS
        return forsaken and self._run.membership.phase == "running"

    def _those_awaited(self) -> list[Worker]:
        """Workers for which others wait just now."""
        run = self._run
        training = [each for each in run.roster.workers.values() if run.membership.trains(each.name)]
        somebody_waits = any(each.waits for each in training)
        return [
            each
            for each in training
            if (somebody_waits and not each.waits) or run.membership.is_awaited(each.name)
        ]

    def _is_sound(self, worker: Worker, now: float) -> bool:
        """Whether it is heard and not the one that keeps the others waiting.

        Who prints into a pipe that its agent does not empty stands still in the end, and still says that it
        lives.
        """
        _, since = self._awaited.get(worker.name, (None, now))
        return now - worker.seen <= SILENCE_SECONDS and now - since <= SILENCE_SECONDS

    def _tell(self, peer: Agent | Worker, message: str) -> None:
        if self._told.get(peer.name) != peer.seen:
            self._run.warn(message)
        self._told[peer.name] = peer.seen

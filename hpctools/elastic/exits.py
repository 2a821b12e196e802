"""What follows from the end of a worker's process: well, by an exception, or by a signal."""

from __future__ import annotations

import time
from collections.abc import Sequence

from hpctools.elastic.context import RunContext
from hpctools.elastic.peers import Agent, Names, Outcome, write
from hpctools.elastic.protocol import REPLAYED, worker_place
from hpctools.elastic.signals import signal_of
from hpctools.python_command import python_command

NOBODY_CAME = (
    "a worker's program has ended well, and none had come to its elastic.Loader: each trained by itself, if "
    "at all; where a container or `env -i` starts it, have HPCTOOLS_RUN_DIR, HPCTOOLS_WORKER, LOCAL_RANK and "
    "SLURM_JOB_ID passed on, and the run's folder be there"
)
RESTARTS = 3
FORGOTTEN_SECONDS = 60.0


class Exits:
    """Judges how workers end."""

    def __init__(self, run: RunContext) -> None:
        self._run = run
        self._again = Names()  # that were to be started again

    def judge(self, agent: Agent, worker: str, code: int, tail: list[str]) -> None:
        """A worker's process has ended; an end that was judged before is not judged again.

        Args:
            code: exit code; negative: the signal.
            tail: last lines of its standard error.
        """
        run, roster = self._run, self._run.roster
        if run.ended.done() or worker in roster.judged:
            return
        roster.judged.add(worker)
        if worker in roster.restarting:
            self.start_again(agent, worker)
        elif roster.was_given_up(worker, code, tail):
            self._restart(agent, worker, "fell silent" if code == -9 else f"was given up (exit code {code})")
        elif run.membership.is_broken and code == 0 and agent.is_baseline:
            self.start_again(agent, worker)  # all may begin again; whatever ended it, the training has not
        elif code == 0 and not (agent.leaving or run.completed) and roster.ended_early(worker, tail):
            self._crashed(agent, worker, code, [*tail, REPLAYED])
        elif code == 0 and worker not in roster.departed and self._is_program_s_end(agent):
            if run.membership.generation == 0 and not run.finishing:
                run.warn(NOBODY_CAME)
            run.begin_to_finish()
        elif code == 0 and agent.is_baseline and not (agent.leaving or run.completed):
            self.start_again(agent, worker)  # it was let go, and its node stays
        elif code == 0 or agent.leaving:
            agent.reason = agent.reason if agent.leaving else "released"
            if agent.is_baseline and agent.reason == "departed" and not agent.running:
                self.send_away(agent, agent.reason)  # a replica's agent ends by itself
        elif run.completed and code < 0:
            self._crashed(agent, worker, code, tail or [f"signal {-code} after the last step"])
        elif code < 0:
            self._restart(agent, worker, f"was ended by signal {-code}")
        else:
            self._crashed(agent, worker, code, tail)

    def _is_program_s_end(self, agent: Agent) -> bool:
        """Whether a worker that ended well has done so by itself, and not because its node has to go."""
        return self._run.completed or (agent.is_baseline and not agent.leaving)

    def note(self, agent: Agent, worker: str, code: int, tail: list[str]) -> None:
        """A worker's process has ended badly, and somebody else deals with it."""
        self._run.roster.judged.add(worker)
        self._run.journal.event("crashed", worker=worker, node=agent.node, code=code, stderr=tail)

    def check_finished(self) -> None:
        """The run has finished when it finishes and nobody works for it any more.

        The baseline's workers are waited for, since what follows the training is theirs; when no baseline is
        there, everybody's are. An agent whose line broke meanwhile may come back, and its workers run on.
        """
        run = self._run
        if run.is_hearing:
            return  # not all agents have come yet
        agents = [*run.roster.agents.values(), *run.roster.absent.values()]
        core = [each for each in agents if each.is_baseline and (each.running or not each.leaving)] or agents
        if run.finishing and not any(agent.running for agent in core):
            run.end(Outcome("finished"))

    def send_away(self, agent: Agent, reason: str) -> None:
        """End an agent's part in the run."""
        agent.reason = reason
        self._run.send_away(agent)

    def start_again(self, agent: Agent, worker: str) -> None:
        """Have an ended worker's agent start it again, unless its node is given up."""
        if not agent.leaving:
            self._again.add(worker)
            write(agent.writer, "restart", worker=worker)

    def told_again(self, agent: Agent, worker: str) -> None:
        """An end that was dealt with is told a second time: the agent's line broke before our order came.

        The order is given again; an agent that has followed it already does nothing.
        """
        if worker in self._again and not (self._run.is_over or self._run.completed):
            self.start_again(agent, worker)

    def begin_again(self) -> None:
        """All are started again: what ended long before does not count against them."""
        now = time.monotonic()
        for agent in self._run.roster.agents.values():
            counts = agent.restarts.items()
            agent.restarts = {each: count for each, count in counts if now - count[1] <= FORGOTTEN_SECONDS}

    def _restart(self, agent: Agent, worker: str, what: str) -> None:
        count = _count(agent, worker, trains=self._run.membership.generation > 0)
        self._run.warn(f"worker {worker} on {agent.node} {what}")
        if count <= RESTARTS or agent.leaving:
            self.start_again(agent, worker)
        elif agent.is_baseline:
            self._run.fail(f"worker {worker} on {agent.node} {what} {count} times")
        else:
            self.send_away(agent, "failed")

    def _crashed(self, agent: Agent, worker: str, code: int, tail: list[str]) -> None:
        run = self._run
        last = tail[-1] if tail else "it printed nothing"
        run.journal.event("crashed", worker=worker, node=agent.node, code=code, stderr=tail)
        if agent.is_baseline:
            run.fail(f"worker {worker} on {agent.node} ended with exit code {code}: {last}")
            return
        run.replicas.crashed(agent.job_id, last)
        self.send_away(agent, "failed")


def code_behind(command: Sequence[str], code: int) -> int:
    """The exit code of a worker's program: a shell that waited for it tells a signal as 128 and its number.

    Args:
        command: what the agent starts. Python tells by itself which signal has ended it.
    """
    number = signal_of(code) if python_command(command) is None else 0
    return -number if number else code


def _count(agent: Agent, worker: str, *, trains: bool) -> int:
    """How many times the process in a worker's place has ended badly now, without a long time between.

    Those beside it on the node have counts of their own: all of them may be ended by one fault.

    Args:
        trains: whether the run does, since all began; else it may be killed while it loads, for minutes each
            time.
    """
    now, (_, place, _) = time.monotonic(), worker_place(worker)
    count, last = agent.restarts.get(place, (0, now))
    count = 1 if trains and now - last > FORGOTTEN_SECONDS else count + 1
    agent.restarts[place] = (count, now)
    return count

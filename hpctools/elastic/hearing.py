"""What agents and workers say, and what the coordinator makes of it."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from hpctools.elastic.actions import RestartAll
from hpctools.elastic.context import RunContext
from hpctools.elastic.exits import Exits, code_behind
from hpctools.elastic.peers import Agent, Outcome, Worker, write
from hpctools.elastic.protocol import SILENCE_SECONDS, Message, told_by
from hpctools.elastic.recovery.settings import EXIT_CODES
from hpctools.elastic.watchers import Report
from hpctools.elastic.watching import Watching, numbers_of
from hpctools.elastic.wave import Wave

NEVER = float("-inf")
EXPLAIN_SECONDS = 5.0  # an agent asks Slurm for four
LEAVE_RESERVE = 1.5  # seconds, of the time that a node has, for the way out
UNTOLD = ("kind", "rounds", "order", "generation")  # of a save's message, in its event

Handler = Callable[[Worker, Message, float], None]


class Hearing:
    """Takes every message of an agent or a worker."""

    def __init__(self, run: RunContext, exits: Exits, watching: Watching) -> None:
        self._run = run
        self._exits = exits
        self._watching = watching
        self._wave = Wave(run, self._leave)
        self._saving: set[str] = set()  # who leaves when the state is saved
        self._noticed: dict[str, str] = {}  # what was told last, by agent
        self._of_worker: dict[str, Handler] = {
            "beat": self._on_beat,
            "ready": self._on_ready,
            "store": self._on_store,
            "linked": self._on_linked,
            "link_failed": self._on_link_failed,
            "parked": self._on_parked,
            "place": self._on_place,
            "switching": self._on_switching,
            "switched": self._on_switched,
            "failed": self._on_failed,
            "left": self._on_left,
            "done": self._on_done,
            "resized": self._on_resized,
            "saved": self._on_saved,
            "unsaved": self._on_unsaved,
            "save_failed": self._on_save_failed,
            "resumed": self._on_resumed,
            "no_way_back": self._on_no_way_back,
            "nothing_kept": self._on_nothing_kept,
            "saving": self._on_saving,
            "warning": self._on_warning,
            "replays": self._on_replays,
        }

    def hear(self, peer: Agent | Worker, message: Message) -> None:
        """A message has come; what it leads to is carried out.

        Raises:
            KeyError, ValueError, TypeError: it is not made as it should be.
        """
        now = time.monotonic()
        if isinstance(peer, Agent):
            self._on_agent(peer, message, now)
        elif (handler := self._of_worker.get(message["kind"])) is not None:
            handler(peer, message, now)
        self._run.carry_out()

    # Agents

    def _on_agent(self, agent: Agent, message: Message, now: float) -> None:
        kind = message["kind"]
        if kind == "spawned":
            agent.running.add(str(message["worker"]))
        elif kind == "leaving":
            reason, is_open = str(message.get("reason", "preempted")), bool(message.get("open"))
            self.leaves(agent, reason, now, seconds_of(message), is_open=is_open)
        elif kind == "exited":
            self._on_exited(agent, message, now)
        elif kind == "beat":
            self._on_life(agent, message, now)
        elif kind == "stopped":
            self._on_stopped(str(message["worker"]), now)
        elif kind == "log":
            self._on_log(agent, message, now)
        elif kind == "notice":
            self._on_notice(agent, message, now)
        elif kind == "warning":
            self._run.warn(f"{agent.node}: {message['message']}")
        elif kind == "ranks" and self._run.restart is not None:
            self._run.restart.heard(agent, message)

    def _on_exited(self, agent: Agent, message: Message, now: float) -> None:
        worker, tail = str(message["worker"]), list(message["tail"])
        code = code_behind(self._run.spec.command, int(message["code"]))
        agent.running.discard(worker)
        if worker in self._run.roster.judged:
            self._lost_with_its_process(worker, now)
            self._exits.told_again(agent, worker)
        else:
            self._on_end(agent, worker, code, tail, now)
        self._exits.check_finished()

    def _on_end(self, agent: Agent, worker: str, code: int, tail: list[str], now: float) -> None:
        """A worker's process has ended, which nobody knew; see `Exits.judge`."""
        roster = self._run.roster
        report = Report("exit", worker, agent.node, lines=tuple(tail), code=code)
        given_up = roster.was_given_up(worker, code, tail)
        ended_by_us = worker in roster.restarting or given_up or agent.leaving or self._run.ended.done()
        ours = ended_by_us or code == 0
        watched = not (ours or self._run.completed)  # what follows the last step nobody can do again
        rules = watched and self._watching.handles(report)
        if rules:
            why = f"crash: {worker} on {agent.node} ended with {code}"
            self._run.at_stake = Outcome("failed", why, EXIT_CODES["crash"])
        if code == 0:  # a program that ends well by itself ends the run, also when it alone had the state
            self._exits.judge(agent, worker, code, tail)
        self._lost_with_its_process(worker, now)
        if not rules or worker in roster.judged:
            self._exits.judge(agent, worker, code, tail)
        else:
            self._exits.note(agent, worker, code, tail)
        if watched:
            self._watching.heard(now, report)

    def _lost_with_its_process(self, worker: str, now: float) -> None:
        """Who has no connection and might have come back does not."""
        if self._run.roster.missing.pop(worker, None) is not None:
            self._run.saves.note_lost(worker)
            self._run.membership.lost(worker, now)
            self._run.carry_out()

    def _on_stopped(self, worker: str, now: float) -> None:
        """Its agent sees that it was stopped: what will follow from its silence need not be waited for.

        What follows from that of the last one with the state takes as long as the policy says.
        """
        peer = self._run.roster.workers.get(worker)
        if peer is not None and not self._run.membership.is_last(worker):
            peer.seen, peer.busy = min(peer.seen, now - SILENCE_SECONDS - 1), NEVER

    def _on_life(self, agent: Agent, message: Message, now: float) -> None:
        """It sees which of its workers compute, whether or not they find the time to say so."""
        for name in message.get("busy", ()):
            if (worker := self._run.roster.workers.get(name)) is not None and worker.agent == agent.name:
                worker.busy = now

    def _on_log(self, agent: Agent, message: Message, now: float) -> None:
        (worker, generation), lines = told_by(str(message["worker"])), tuple(map(str, message["lines"]))
        what, numbers, restart = str(message.get("what", "")), numbers_of(message), self._run.restart
        past = restart is not None and generation is not None and generation < restart.generation
        told = Report("log", worker, agent.node, metrics=numbers, lines=lines, what=what)
        self._watching.heard(now, replace(told, past=past, generation=generation))

    def _on_notice(self, agent: Agent, message: Message, now: float) -> None:
        seconds = message.get("seconds")
        what = str(message["what"])
        if self._noticed.get(agent.name) != what:  # agents tell every half minute what stands, for hours
            self._noticed[agent.name] = what
            self._run.journal.event("notice", node=agent.node, what=what, seconds=seconds)
        left = None if seconds is None else float(seconds)
        self._watching.heard(now, Report("notice", "", agent.node, what=what, seconds=left))

    def leaves(
        self, agent: Agent, reason: str, now: float, seconds: float | None = None, *, is_open: bool = False
    ) -> None:
        """A node is given up: its workers go at a step boundary, or at once if they do not train.

        Args:
            seconds: until it is gone; None: that is not known (see `RunSpec.notice_seconds`).
            is_open: whether Slurm ends its baseline job and has not said why.
        """
        if agent.leaving:
            return
        run = self._run
        if reason == "preempted" and run.replicas.ends_by_itself(agent.job_id):
            # For its agent it is all the same; Slurm leaves who is cancelled, or out of time, KillWait.
            reason, seconds = "released", min(run.spec.grace_seconds, run.spec.kill_wait_s)
        agent.leaving, agent.reason, agent.told = True, reason, now
        if agent.is_baseline and reason == "departed":
            run.loses_baseline(agent.job_id, is_open=is_open)
        elif not agent.is_baseline and reason == "preempted":
            run.replicas.yields(agent.job_id, agent.name)
        if run.restart is not None:
            run.restart.leaving(agent, seconds)
            return
        self._save_before_all_leave(seconds)
        if agent.is_baseline and reason == "preempted":
            return  # its job is ended: whoever did that has asked for the end of the run, too
        gone = run.membership.vanished_of(agent.name)
        names = [*(each.name for each in run.roster.workers_of(agent)), *gone]
        if any(run.membership.trains(name) for name in names):
            if self._must_save_first():
                self._saving.update(names)
                of = {"baseline": agent.is_baseline, "preempted": reason == "preempted"}
                left = run.spec.notice_seconds(**of) if seconds is None else seconds
                run.in_background(self._leave_saved(names, left))
            else:
                self._wave.add(names)
            return
        self._leave(names)
        if not run.membership.is_assembling:
            self._exits.send_away(agent, reason)

    def _must_save_first(self) -> bool:
        """Whether those that stay are too few to train, and nobody could save once all have parked."""
        run, workers = self._run, self._run.roster.workers
        staying = [each for each in run.membership.members if not _leaves(run.roster.agent_of(each))]
        shards = any(workers[each].shards for each in run.membership.members if each in workers)
        return shards and 0 < len(staying) < run.spec.min_nodes * run.spec.workers_per_node

    async def _leave_saved(self, workers: Sequence[str], seconds: float) -> None:
        """Leave when the state is saved, or there is no time left for it."""
        run = self._run
        limit = max(0.0, run.spec.departure_seconds(seconds) - LEAVE_RESERVE)
        run.order_save("fewer workers than the least will be left", urgent=True, seconds=limit)
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(run.saves.answered.wait(), limit)
        self._saving.difference_update(workers)
        self._wave.add(workers)

    def _leave(self, workers: Sequence[str]) -> None:
        self._run.membership.leaving(workers, time.monotonic())
        self._run.carry_out()

    def _save_before_all_leave(self, seconds: float | None) -> None:
        """When nobody stays who has the state and can be counted on, it has to be on disk."""
        run = self._run
        agents = [run.roster.agent_of(each) for each in run.membership.members]
        staying = [each for each in agents if each is not None and not each.leaving]
        if agents and all(each.mute for each in staying) and not run.is_over:
            why = "all nodes have to go" + (" but some whose agents give no sign of life" if staying else "")
            left = run.spec.graceful_seconds if seconds is None else seconds
            run.order_save(why, urgent=True, seconds=left)

    # Workers

    def _on_beat(self, worker: Worker, message: Message, now: float) -> None:
        journal = self._run.journal
        goes = message.get("leaving") and not self._run.ended.done()  # else it goes with all others
        if goes and worker.name not in self._saving and not self._will_be_explained(worker, now):
            self._wave.add([worker.name])
        if "total_steps" in message:
            journal.change(total_steps=message["total_steps"])
        worker.waits = bool(message.get("waits"))
        worker.between = bool(message.get("between", worker.between))  # who is told to go says nothing of it
        if "step" not in message:
            return
        generation = int(message["generation"])
        if not journal.counts(generation):
            return
        worker.step = int(message["step"])
        leads = message.get("rank", 0) == 0
        if leads and journal.stepped(generation, worker.step, loss=message["loss"]):
            journal.progressed(now, message["samples"])
            self._run.note_progress(now, worker.step, int(message["samples"]))
        if not self._run.is_hearing:  # what was wrong before us has been dealt with, or is seen again
            self._watching.beat(now, worker, message)

    def _will_be_explained(self, worker: Worker, now: float) -> bool:
        """Whether its agent will say why it got SIGTERM: of a baseline's that may be the end of the run.

        The agent asks Slurm, and then leaves or has the run end; it may be gone, or have got no signal.
        """
        worker.told = now if worker.told is None else worker.told
        agent = self._run.roster.agents.get(worker.agent)
        asks = agent is not None and agent.is_baseline and not agent.leaving
        return asks and now - worker.told < min(EXPLAIN_SECONDS, self._run.spec.kill_wait_s / 2)

    def _on_ready(self, worker: Worker, message: Message, now: float) -> None:
        agent = self._run.roster.agents.get(worker.agent)
        if agent is not None and agent.leaving:
            write(worker.writer, "release")
            return
        self._run.membership.ready(worker.name, self._run.roster.order_of(worker.name), now)

    def _on_store(self, worker: Worker, message: Message, now: float) -> None:
        self._run.membership.store(worker.name, message["generation"], message["host"], message["port"])

    def _on_linked(self, worker: Worker, message: Message, now: float) -> None:
        rounds = message.get("rounds")  # an earlier release says nothing of them
        self._run.membership.linked(worker.name, message["generation"], now, rounds)

    def _on_link_failed(self, worker: Worker, message: Message, now: float) -> None:
        self._run.warn(f"{worker.name} could not link: {message['reason']}")
        self._run.membership.link_failed(worker.name, message["generation"], now)

    def _on_parked(self, worker: Worker, message: Message, now: float) -> None:
        self._run.membership.parked(worker.name, message["generation"], message["completed"], now)

    def _on_place(self, worker: Worker, message: Message, now: float) -> None:
        self._run.membership.placed(message["generation"], message.get("place"))

    def _on_switching(self, worker: Worker, message: Message, now: float) -> None:
        self._run.membership.switching(worker.name, message["generation"], message.get("place"))

    def _on_switched(self, worker: Worker, message: Message, now: float) -> None:
        self._run.membership.switched(worker.name, message["generation"], message["step"], now)

    def _on_failed(self, worker: Worker, message: Message, now: float) -> None:
        self._run.membership.failed(worker.name, message["generation"], now)

    def _on_left(self, worker: Worker, message: Message, now: float) -> None:
        stays = bool(message.get("stays"))
        if not stays:
            self._run.roster.departed.add(worker.name)
        self._run.membership.left(worker.name, now, stays=stays)

    def _on_done(self, worker: Worker, message: Message, now: float) -> None:
        self._run.membership.done(worker.name)

    def _on_resized(self, worker: Worker, message: Message, now: float) -> None:
        self._run.payback.history.resized(float(message["pause_s"]))
        self._run.journal.resized(message)

    def _on_saved(self, worker: Worker, message: Message, now: float) -> None:
        run, detail = self._run, {key: value for key, value in message.items() if key not in UNTOLD}
        generation, run.has_saved = int(message.get("generation", -1)), True
        if generation < 0 or run.journal.counts(generation):
            run.has_checkpoint, run.begun_again = True, 0
            rounds = int(message.get("rounds", -1))  # workers park with these
            run.membership.saved(int(message["step"]), rounds if rounds >= 0 else None)
        else:  # storage is asked whether a roll back has made it void, if ever somebody has to know
            run.may_have_checkpoint, detail["rolled_back"] = True, True
        run.save_seconds = float(message.get("seconds", run.save_seconds))
        run.journal.event("saved", worker=worker.name, **detail)
        run.saves.note_answer(message)

    def _on_unsaved(self, worker: Worker, message: Message, now: float) -> None:
        self._run.warn(f"step {message['step']} is not saved ({message['why']})")
        self._run.saves.note_answer(message)

    def _on_save_failed(self, worker: Worker, message: Message, now: float) -> None:
        why, reason = str(message["why"]), str(message["reason"])
        detail = {"step": int(message["step"]), "why": why, "reason": reason}
        self._run.journal.event("save_failed", worker=worker.name, **detail)
        self._run.saves.note_failed(worker.name, message)

    def _on_resumed(self, worker: Worker, message: Message, now: float) -> None:
        self._run.journal.event("resumed", step=int(message["step"]), where=str(message["where"]))
        self._run.journal.restored(int(message["step"]))
        self._run.has_checkpoint = self._run.has_saved = True

    def _on_no_way_back(self, worker: Worker, message: Message, now: float) -> None:
        """Nothing is old enough to roll back to: at the beginning everything is, else the rule says what is.

        Of a sharded model every worker says so.
        """
        run, to_step, kept = self._run, int(message["to_step"]), message["kept"]
        if run.membership.goes_back_to != to_step or not run.membership.trains(worker.name):
            return  # it was dealt with
        why = f"no state of at most {to_step} steps is kept"
        why += ", nor any other" if kept is None else f", the newest checkpoint is of step {int(kept)}"
        report = Report("no_way_back", worker.name, run.roster.node_of(worker.name), kept, what=why)
        self._watching.heard(now, report)
        if kept is None:
            skip = tuple(int(step) for step in message["skipped"])
            run.act(RestartAll(f"{why}: all begin again at the beginning", skip))

    def _on_nothing_kept(self, worker: Worker, message: Message, now: float) -> None:
        """Of a sharded model a part is lost; every worker that has another part says so."""
        self._run.membership.state_lost(worker.name, int(message["generation"]), str(message["reason"]))

    def _on_saving(self, worker: Worker, message: Message, now: float) -> None:
        """What the policy and the script say together."""
        self._run.saves_by_itself = bool(message["by_itself"])

    def _on_replays(self, worker: Worker, message: Message, now: float) -> None:
        self._run.roster.replayed.add(worker.name)

    def _on_warning(self, worker: Worker, message: Message, now: float) -> None:
        self._run.warn(str(message["message"]))


def seconds_of(message: Message) -> float | None:
    """Until the node of an agent that leaves is gone; None: it does not say."""
    seconds = message.get("seconds")
    return None if seconds is None else float(seconds)


def _leaves(agent: Agent | None) -> bool:
    return agent is None or agent.leaving

"""Who may talk to the coordinator, and what follows when somebody does not any more."""

from __future__ import annotations

import asyncio
import secrets
import time

from hpctools.elastic.actions import Depart
from hpctools.elastic.assembly import Returned
from hpctools.elastic.context import RunContext
from hpctools.elastic.excuses import Excuses
from hpctools.elastic.exits import Exits
from hpctools.elastic.growth_past import TAKEN
from hpctools.elastic.hearing import Hearing, seconds_of
from hpctools.elastic.peers import Agent, Outcome, Worker, write
from hpctools.elastic.protocol import (
    BEAT_SECONDS,
    SILENCE_SECONDS,
    Message,
    decode,
    token_matches,
    worker_place,
)
from hpctools.elastic.recovery.settings import EXIT_CODES
from hpctools.errors import ElasticError

HELLO_SECONDS = 10.0
RETURN_SECONDS = 10.0


class Connections:
    """Admits agents and workers, listens to them, and notices when they are gone.

    Args:
        patience: seconds for which the last worker with the state is waited for when it is silent.

    Attributes:
        token: the secret that admits them.
    """

    def __init__(self, run: RunContext, hearing: Hearing, exits: Exits, patience: float) -> None:
        self._run = run
        self._patience = patience
        self._awaited = ""
        self._excuses = Excuses(run)
        self._hearing = hearing
        self._exits = exits
        self._next_beat = 0.0
        self.token = secrets.token_urlsafe(32)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Talk with one agent or worker until it goes."""
        peer: Agent | Worker | None = None
        try:
            hello = decode(await asyncio.wait_for(reader.readline(), HELLO_SECONDS))
            # Who slept finds hellos that waited for it since: they are for who is in office now.
            # In a thread, as storage may hang; those that come have read the folder themselves.
            if await asyncio.to_thread(self._run.fence.holds) and self._run.is_in_office:
                peer = self._admit(hello, writer)
            while peer is not None and (line := await reader.readline()):
                if not self._run.roster.has(peer):
                    break  # it was given up, and this had been under way
                peer.seen = time.monotonic()
                self._hearing.hear(peer, decode(line))
        except (OSError, ElasticError, ValueError, KeyError, TypeError, asyncio.TimeoutError) as error:
            if peer is not None and not isinstance(error, OSError):
                self._run.warn(f"{peer.name} was dropped: {error!r}")
        finally:
            writer.close()
            self._on_disconnect(peer)

    # Those that come

    def _admit(self, hello: Message, writer: asyncio.StreamWriter) -> Agent | Worker | None:
        if hello.get("kind") != "hello" or not token_matches(hello.get("token"), self.token):
            return None
        if hello["role"] == "agent":
            return self._admit_agent(hello, writer)
        return self._admit_worker(hello, writer)

    def _admit_worker(self, hello: Message, writer: asyncio.StreamWriter) -> Worker | None:
        run, name = self._run, str(hello["worker"])
        agent, now, how = run.roster.agent_of(name), time.monotonic(), Returned.from_hello(hello)
        if name in run.roster.expelled:
            write(writer, "expelled")  # it ends itself, in case its agent cannot any more
            return None
        if agent is None and not self._may_come_alone(name, how, now):
            return None  # it tries again, and its agent comes, or ends it
        if (former := run.roster.workers.get(name)) is not None:
            self._drop(former)
        worker = Worker(writer, name, worker_place(name)[0], now, shards=bool(hello.get("shards")))
        run.roster.workers[name] = worker
        run.roster.missing.pop(name, None)
        write(writer, "welcome", term=run.fence.term)
        if how.saves is not None:  # it was told once, perhaps to the coordinator before us
            run.saves_by_itself = bool(how.saves)
        leaving = agent is not None and agent.leaving
        if how.ready and leaving and not how.engaged:
            write(writer, "release")
        elif how.ready or how.left:
            run.membership.returned(name, run.roster.order_of(name), how, now)
            if leaving:
                run.membership.leaving([name], now)
            run.carry_out()
        return worker

    def _may_come_alone(self, worker: str, how: Returned, now: float) -> bool:
        """Whether it is taken without its agent, which may be frozen: it may be the last with the state."""
        membership = self._run.membership
        return worker in self._run.roster.missing or (how.engaged and membership.takes_anybody(now))

    def _admit_agent(self, hello: Message, writer: asyncio.StreamWriter) -> Agent | None:
        run, name = self._run, str(hello["agent"])
        former = run.roster.agents.get(name) or run.roster.absent.pop(name, None)
        agent = run.roster.agents[name] = _agent_of(hello, writer)
        run.roster.note_came(name)
        if former is not None:
            agent.leaving, agent.reason, agent.told = former.leaving, former.reason, former.told
            former.writer.transport.abort()
        write(writer, "welcome", term=run.fence.term)
        self._name_heirs()
        tells = bool(hello.get("ended")) and not run.ended.done()
        if run.is_over and not (tells or self._ends_its_programs(agent) or self._saves(hello)):
            agent.leaving = True  # that ends the worker which it has just started: no crash
            ended = run.ended
            write(writer, "shutdown", code=ended.result().exit_code if ended.done() else 0)
        if not agent.is_baseline:
            run.replicas.serves(agent.job_id, agent.name)
            run.payback.history.arrived(agent.name, agent.seen)
        self._catch_up(agent, hello)
        if (seconds := hello.get("departs")) is not None and not agent.leaving:
            run.act(Depart(agent.node, float(seconds), "it was told to depart before"))
        if run.restart is not None:
            run.restart.joined(agent, hello)
        return agent

    def _ends_its_programs(self, agent: Agent) -> bool:
        """Whether workers do there what follows the last step, and the run waits for that."""
        return self._run.completed and not self._run.ended.done() and bool(agent.running)

    def _saves(self, hello: Message) -> bool:
        """Whether ranks there save yet, before the run ends."""
        return self._last_save_is_on and bool((hello.get("ranks") or {}).get("ranks"))

    @property
    def _last_save_is_on(self) -> bool:
        """Whether the ranks of a run in restart mode are told to end, and have their time for that."""
        run = self._run
        if run.restart is None or run.finishing or not run.ended.done():
            return False
        return run.ended.result().state == "cancelled"

    def _catch_up(self, agent: Agent, hello: Message) -> None:
        """What happened on its node while it had no connection, and what it does not know yet."""
        if hello.get("leaving"):
            reason, is_open = str(hello["leaving"]), bool(hello.get("open"))
            self._hearing.leaves(agent, reason, time.monotonic(), seconds_of(hello), is_open=is_open)
        for ended in hello.get("ended", ()):
            self._hearing.hear(agent, {"kind": "exited", **ended})
        for over in hello.get("log_rules", ()):
            self._hearing.hear(agent, {"kind": "log", **over})
        for worker in agent.running:
            if worker in self._run.roster.expelled:
                write(agent.writer, "kill", worker=worker)
        for worker in list(self._run.roster.missing):
            if worker_place(worker)[0] == agent.name and worker not in agent.running:
                self._lose(worker)

    def _name_heirs(self) -> None:
        """Tell the agents in which order they are to take over when we vanish."""
        agents = [each for each in self._run.roster.agents.values() if not each.leaving]
        for place, agent in enumerate(sorted(agents, key=lambda each: each.order)):
            write(agent.writer, "heir", place=place)

    # Those that go

    def check_silence(self, now: float, *, late: bool) -> None:
        """Who has not been heard for too long is lost; if it was us who slept, nobody is to blame."""
        # After the last step a worker saves and shuts Python down, which stops its signs of life first.
        run = self._run
        workers = [] if run.completed else list(run.roster.workers.values())
        agents = list(run.roster.agents.values())
        self._excuses.look(now, late=late)
        peers: list[Agent | Worker] = [*workers, *agents] if late else []
        for peer in peers:
            peer.seen = now
        for worker in workers:
            self._check_worker(worker, now)
        for agent in agents:  # whose workers were silent, too, have been given up by now
            silent = now - agent.seen > SILENCE_SECONDS
            agent.mute = silent and self._excuses.is_only_mute(agent, now)
            if silent and not agent.mute:
                self._give_up_on(agent)
        missing = run.roster.missing
        for name, since in list(missing.items()):
            missing[name] = now if late else since
            if now - missing[name] > RETURN_SECONDS:
                self._lose(name)
        for agent in list(self._run.roster.absent.values()):
            agent.away = now if late else agent.away
            if now - agent.away > RETURN_SECONDS:
                del self._run.roster.absent[agent.name]
                self._is_gone(agent)

    def _check_worker(self, worker: Worker, now: float) -> None:
        silent = now - worker.seen
        if self._run.membership.is_last(worker.name):
            self._await_last(worker, silent)
        elif silent > SILENCE_SECONDS and not self._excuses.is_only_busy(worker, now):
            self._give_up_on(worker)
        elif self._excuses.is_forsaken(worker, now):
            self._run.warn(f"{worker.name} is given up: its agent is away for too long")
            self._give_up_on(worker)

    def _await_last(self, worker: Worker, silent: float) -> None:
        """Nobody waits in vain for the last worker with the state, and it may come back; but not for ever."""
        run, patience = self._run, self._patience
        who = f"{worker.name} on {run.roster.node_of(worker.name)}, which alone has the training's state,"
        if silent > patience:
            why = f"{who} gave no sign of life for {patience:g} s"
            if not run.has_checkpoint:
                run.at_stake = Outcome("failed", why, EXIT_CODES["hang"], is_loss=True)
            self._give_up_on(worker)
        elif silent > SILENCE_SECONDS and self._awaited != worker.name:
            self._awaited = worker.name
            run.warn(f"{who} gives no sign of life; it is waited for, {patience:g} s at most")

    def show_life(self, now: float) -> None:
        """Let all know that we are there."""
        if now >= self._next_beat:
            self._next_beat = now + BEAT_SECONDS
            self._run.roster.tell_agents("beat")
            self._run.roster.tell_workers("beat")

    def expel(self, worker: Worker) -> None:
        """A worker is lost, whatever it thinks: it may not come back under its name."""
        self._run.roster.expelled.add(worker.name)
        self._drop(worker)

    def _give_up_on(self, peer: Agent | Worker) -> None:
        """A frozen worker would keep its node for nothing: its agent ends it, and may start it again."""
        roster = self._run.roster
        if isinstance(peer, Worker):
            roster.expelled.add(peer.name)
            if (agent := roster.agents.get(peer.agent)) is not None:
                write(agent.writer, "kill", worker=peer.name)
        self._drop(peer)

    def _drop(self, peer: Agent | Worker) -> None:
        peer.writer.transport.abort()
        self._on_disconnect(peer)

    def _on_disconnect(self, peer: Agent | Worker | None) -> None:
        roster = self._run.roster
        if isinstance(peer, Worker) and roster.workers.get(peer.name) is peer:
            del roster.workers[peer.name]
            if self._may_return(peer):
                roster.missing[peer.name] = time.monotonic()
            else:
                self._lose(peer.name)
        elif isinstance(peer, Agent) and roster.agents.get(peer.name) is peer:
            self._on_agent_gone(peer)

    def _may_return(self, worker: Worker) -> bool:
        """Whether it alone has the state, and for all we know its process runs.

        Who hears nothing of us hangs up and comes again: when we slept for some seconds everybody does.
        """
        roster, agent = self._run.roster, self._run.roster.agents.get(worker.agent)
        runs = worker.name not in roster.expelled and (agent is None or worker.name in agent.running)
        return runs and self._run.membership.is_last(worker.name)

    def _lose(self, worker: str) -> None:
        self._run.roster.missing.pop(worker, None)
        self._run.saves.note_lost(worker)
        agent = self._run.roster.agent_of(worker)
        foreseen = agent is not None and agent.leaving
        self._run.membership.lost(worker, time.monotonic(), foreseen=foreseen)
        self._run.carry_out()

    def _on_agent_gone(self, agent: Agent) -> None:
        del self._run.roster.agents[agent.name]
        # A worker may save the final model, or ranks before the run ends: not for a broken line.
        if self._ends_its_programs(agent) or self._last_save_is_on:
            agent.away = time.monotonic()
            self._run.roster.absent[agent.name] = agent
        else:
            self._is_gone(agent)

    def _is_gone(self, agent: Agent) -> None:
        run, roster = self._run, self._run.roster
        for worker in roster.workers_of(agent):
            if not run.membership.is_last(worker.name):  # that one may live on, and says so itself
                if agent.leaving:
                    run.membership.foresee(worker.name)
                self.expel(worker)
        if run.restart is not None:
            run.restart.gone(agent)
        self._exits.check_finished()
        if run.is_over:
            return
        took = {} if agent.told is None else {"seconds": round(time.monotonic() - agent.told, 3)}
        run.journal.event("left", job_id=agent.job_id, node=agent.node, reason=agent.reason, **took)
        self._name_heirs()
        run.payback.history.departed(agent.name, time.monotonic(), taken=agent.reason in TAKEN)
        if agent.is_baseline:
            run.warn(f"the baseline's node {agent.node} is lost")
            run.baseline_lost.set()
            run.membership.begin_with_anybody()
            return
        run.replicas.gone(agent.job_id, agent.name)
        if agent.reason == "preempted" and agent.told is not None:
            run.in_background(run.replicas.find_preemptor(agent.node, agent.job_id, agent.told))


def _agent_of(hello: Message, writer: asyncio.StreamWriter) -> Agent:
    is_baseline, job_id, place = bool(hello["baseline"]), int(hello["job_id"]), int(hello["place"])
    order = (0, place) if is_baseline and hello.get("first", True) else (1, job_id, place)
    return Agent(
        writer,
        str(hello["agent"]),
        order,
        str(hello["node"]),
        job_id,
        is_baseline,
        time.monotonic(),
        running=set(map(str, hello.get("running", ()))),
    )

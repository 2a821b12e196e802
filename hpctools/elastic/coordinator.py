"""The run's coordinator: listens to agents and workers, and carries out what `Membership` decides.

It lives in the agent of the baseline's first node. It never blocks: Slurm is asked in threads.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import time
from typing import Any

from hpctools.elastic.effects import Broken, Completed, Formed, Send
from hpctools.elastic.folder import CoordinatorAddress, RunFolder
from hpctools.elastic.journal import FolderJournal
from hpctools.elastic.membership import Membership
from hpctools.elastic.peers import Agent, Outcome, Worker, write
from hpctools.elastic.protocol import (
    LINE_LIMIT,
    SILENCE_SECONDS,
    Message,
    decode,
    encode,
    own_address,
    token_matches,
)
from hpctools.elastic.replicas import Replicas
from hpctools.errors import ElasticError
from hpctools.slurm.client import SlurmClient

TICK_SECONDS = 0.1
LATE_SECONDS = 1.0
RESTARTS = 3
CLOSING_SECONDS = 10.0
HELLO_SECONDS = 10.0
EXIT_CODES = {"finished": 0, "failed": 1, "cancelled": 143}


class Coordinator:
    """One run's coordinator.

    Args:
        job_id: of the baseline job.
    """

    def __init__(self, folder: RunFolder, client: SlurmClient, job_id: int) -> None:
        self._folder = folder
        self._spec = folder.spec()
        self._job_id = job_id
        self._journal = FolderJournal(folder, self._spec)
        self._replicas = Replicas(client, self._spec, self._journal, baseline=job_id)
        per_node = self._spec.workers_per_node
        self._membership = Membership(self._spec.min_nodes * per_node, self._spec.max_nodes * per_node)
        self._token = secrets.token_urlsafe(32)
        self._agents: dict[str, Agent] = {}
        self._workers: dict[str, Worker] = {}
        self._expelled: set[str] = set()
        self._departed: set[str] = set()
        self._background: set[asyncio.Task[None]] = set()
        self._finishing = False
        self._completed = False
        self._ended: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()

    async def run(self) -> int:
        """Coordinate to the end of the run; returns the exit code of the baseline job."""
        listen, publish = own_address()
        server = await asyncio.start_server(self._serve, listen, 0, limit=LINE_LIMIT)
        port = server.sockets[0].getsockname()[1]
        address = CoordinatorAddress(publish, port, self._token, os.getpid(), self._job_id)
        self._folder.write_coordinator(address)
        self._journal.event("started", job_id=self._job_id, host=publish)
        self._journal.flush(time.monotonic())
        submitting = asyncio.ensure_future(self._replicas.keep())
        ticking = asyncio.ensure_future(self._tick())
        try:
            outcome = await self._first_outcome(submitting, ticking)
        finally:
            self._replicas.stop()
        await self._close(outcome, submitting, ticking)
        server.close()
        return EXIT_CODES[outcome.state]

    def cancel(self, reason: str) -> None:
        """End the run because somebody wants so."""
        self._end(Outcome("cancelled", reason))

    def fail(self, reason: str) -> None:
        """End the run because it cannot go on."""
        self._end(Outcome("failed", reason))

    async def _first_outcome(self, *tasks: asyncio.Future[None]) -> Outcome:
        """The run's end; a fault of our own is one, too, instead of a training without a coordinator."""
        while not self._ended.done():
            waiting: list[asyncio.Future[Any]] = [self._ended, *(task for task in tasks if not task.done())]
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            broken = [task for task in tasks if task.done() and task.exception() is not None]
            if broken:
                return Outcome("failed", f"the coordinator broke: {broken[0].exception()!r}")
        return self._ended.result()

    def _end(self, outcome: Outcome) -> None:
        if not self._ended.done():
            self._ended.set_result(outcome)

    async def _close(self, outcome: Outcome, *tasks: asyncio.Future[None]) -> None:
        """Leave nothing behind: replicas, agents and workers end; the folder tells how it was."""
        self._finishing = True
        self._journal.event(outcome.state, message=outcome.message, step=self._journal.status.step)
        self._journal.change(state=outcome.state, message=outcome.message)
        self._journal.flush(time.monotonic(), at_once=True)
        for worker in self._workers.values():
            write(worker.writer, "stop")
        for agent in self._agents.values():
            write(agent.writer, "shutdown", code=EXIT_CODES[outcome.state])
        submitting, ticking = tasks
        await asyncio.wait([submitting], timeout=CLOSING_SECONDS)
        await asyncio.gather(self._replicas.cancel_all(), self._agents_gone())
        for task in (ticking, *self._background):
            task.cancel()
        try:
            self._folder.remove_coordinator()
        except ElasticError:
            return  # the disk is full or gone; the status, if it could be written, tells the same

    async def _agents_gone(self) -> None:
        deadline = time.monotonic() + CLOSING_SECONDS
        while self._agents and time.monotonic() < deadline:
            await asyncio.sleep(0.02)

    # Connections

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peer: Agent | Worker | None = None
        try:
            hello = decode(await asyncio.wait_for(reader.readline(), HELLO_SECONDS))
            peer = self._admit(hello, writer)
            while peer is not None and (line := await reader.readline()):
                peer.seen = time.monotonic()
                self._on_message(peer, decode(line))
        except (OSError, ElasticError, ValueError, KeyError, TypeError, asyncio.TimeoutError) as error:
            if peer is not None and not isinstance(error, OSError):
                self._journal.event("warning", message=f"{peer.name} was dropped: {error!r}")
        finally:
            writer.close()
            self._on_disconnect(peer)

    def _admit(self, hello: Message, writer: asyncio.StreamWriter) -> Agent | Worker | None:
        if hello.get("kind") != "hello" or not token_matches(hello.get("token"), self._token):
            return None
        if hello["role"] == "agent":
            return self._admit_agent(hello, writer)
        name = str(hello["worker"])
        agent = name.split(".")[0]
        if agent not in self._agents or name in self._workers:
            return None
        worker = self._workers[name] = Worker(writer, name, agent, time.monotonic())
        return worker

    def _admit_agent(self, hello: Message, writer: asyncio.StreamWriter) -> Agent | None:
        name, is_baseline = str(hello["agent"]), bool(hello["baseline"])
        job_id, place = int(hello["job_id"]), int(hello["place"])
        if name in self._agents:
            return None
        if self._finishing or self._ended.done():
            write(writer, "shutdown", code=0)
        order = (0, place) if is_baseline else (1, job_id)
        now = time.monotonic()
        agent = Agent(writer, name, order, str(hello["node"]), job_id, is_baseline, now)
        self._agents[name] = agent
        if not is_baseline:
            self._replicas.serves(job_id)
        return agent

    def _on_disconnect(self, peer: Agent | Worker | None) -> None:
        if isinstance(peer, Worker) and self._workers.get(peer.name) is peer:
            del self._workers[peer.name]
            self._membership.lost(peer.name, time.monotonic())
            self._carry_out()
        elif isinstance(peer, Agent) and self._agents.get(peer.name) is peer:
            self._on_agent_gone(peer)

    def _on_agent_gone(self, agent: Agent) -> None:
        del self._agents[agent.name]
        for worker in [each for each in self._workers.values() if each.agent == agent.name]:
            self._expel(worker)
        self._check_baseline()
        if self._finishing or self._ended.done():
            return
        self._journal.event("left", job_id=agent.job_id, node=agent.node, reason=agent.reason)
        if agent.is_baseline:
            self._journal.event("warning", message=f"the baseline's node {agent.node} is lost")
            if self._journal.status.state == "starting":
                self.fail(f"the baseline's node {agent.node} was lost before the training began")
            return
        self._replicas.gone(agent.job_id)
        if agent.reason == "preempted":
            self._in_background(self._replicas.find_preemptor(agent.node, agent.job_id))

    def _expel(self, worker: Worker) -> None:
        """Treat a worker as lost; its own end follows from its closed connection."""
        self._expelled.add(worker.name)
        worker.writer.transport.abort()

    # What they say

    def _on_message(self, peer: Agent | Worker, message: Message) -> None:
        if isinstance(peer, Agent):
            self._on_agent(peer, message)
        else:
            self._on_worker(peer, message)
            self._carry_out()

    def _on_agent(self, agent: Agent, message: Message) -> None:
        kind, now = message["kind"], time.monotonic()
        if kind == "spawned":
            agent.running.add(str(message["worker"]))
        elif kind == "leaving":
            agent.leaving, agent.reason = True, "preempted"
            if not agent.is_baseline:
                self._let_leave(agent, now)
        elif kind == "exited":
            agent.running.discard(str(message["worker"]))
            self._on_exit(agent, str(message["worker"]), int(message["code"]), list(message["tail"]))
            self._check_baseline()

    def _let_leave(self, agent: Agent, now: float) -> None:
        """A replica's node is wanted: its workers go at a step boundary, or at once if they do not train."""
        names = [each.name for each in self._workers.values() if each.agent == agent.name]
        train = any(self._membership.trains(name) for name in names)
        self._membership.leaving(names, now)
        self._carry_out()
        if not train:
            self._send_away(agent, "preempted")

    def _on_worker(self, worker: Worker, message: Message) -> None:
        kind, name, now = message["kind"], worker.name, time.monotonic()
        membership = self._membership
        if kind == "beat":
            self._on_beat(worker, message, now)
        elif kind == "ready":
            self._on_ready(worker, now)
        elif kind == "store":
            membership.store(name, message["generation"], message["host"], message["port"])
        elif kind == "linked":
            membership.linked(name, message["generation"], now)
        elif kind == "link_failed":
            self._journal.event("warning", message=f"{name} could not link: {message['reason']}")
            membership.link_failed(name, message["generation"], now)
        elif kind == "parked":
            membership.parked(name, message["generation"], message["completed"])
        elif kind == "switching":
            membership.switching(name, message["generation"])
        elif kind == "switched":
            membership.switched(name, message["generation"], message["step"], now)
        elif kind == "failed":
            membership.failed(name, message["generation"], now)
        elif kind == "left":
            self._departed.add(name)
            membership.left(name, now)
        elif kind == "done":
            membership.done(name)
        elif kind == "resized":
            self._journal.resized(message)

    def _on_ready(self, worker: Worker, now: float) -> None:
        agent = self._agents[worker.agent]
        if agent.leaving:
            write(worker.writer, "release")
            return
        local, attempt = (int(part) for part in worker.name.split(".")[1:])
        self._membership.ready(worker.name, (*agent.order, local, attempt), now)

    def _on_beat(self, worker: Worker, message: Message, now: float) -> None:
        if message.get("leaving"):
            self._membership.leaving([worker.name], now)
        if "total_steps" in message:
            self._journal.change(total_steps=message["total_steps"])
        if "step" in message and message["step"] >= self._journal.status.step:
            self._journal.change(step=message["step"], loss=message["loss"])
            self._journal.progressed(now, message["samples"])

    def _on_exit(self, agent: Agent, worker: str, code: int, tail: list[str]) -> None:
        """A worker's process has ended: well, by an exception, or by a signal."""
        if self._ended.done():
            return
        if code == 0 and agent.is_baseline and worker not in self._departed:
            self._begin_to_finish()
        elif code == 0 or agent.leaving:
            agent.reason = "preempted" if agent.leaving else "released"
        elif self._completed and code < 0:
            self._on_crash(agent, worker, code, tail or [f"signal {-code} after the last step"])
        elif code < 0 or worker in self._expelled:
            self._restart(agent, worker, f"was ended by signal {-code}" if code < 0 else "fell silent")
        else:
            self._on_crash(agent, worker, code, tail)

    def _restart(self, agent: Agent, worker: str, what: str) -> None:
        agent.restarts += 1
        self._journal.event("warning", message=f"worker {worker} on {agent.node} {what}")
        if agent.restarts <= RESTARTS:
            write(agent.writer, "restart", worker=worker)
        elif agent.is_baseline:
            self.fail(f"worker {worker} on {agent.node} {what} {agent.restarts} times")
        else:
            self._send_away(agent, "failed")

    def _on_crash(self, agent: Agent, worker: str, code: int, tail: list[str]) -> None:
        last = tail[-1] if tail else "it printed nothing"
        said = f"worker {worker} on {agent.node} ended with exit code {code}: {last}"
        self._journal.event("crashed", worker=worker, node=agent.node, code=code, stderr=tail)
        if agent.is_baseline:
            self.fail(said)
            return
        self._replicas.crashed(agent.job_id, last)
        self._send_away(agent, "failed")

    def _send_away(self, agent: Agent, reason: str) -> None:
        agent.reason = reason
        write(agent.writer, "shutdown", code=0)

    def _begin_to_finish(self) -> None:
        if not self._finishing:
            self._finishing = True
            self._replicas.stop()
            for worker in self._workers.values():
                write(worker.writer, "stop")

    def _check_baseline(self) -> None:
        running = any(agent.is_baseline and agent.running for agent in self._agents.values())
        if self._finishing and not running:
            self._end(Outcome("finished"))

    # What follows

    def _carry_out(self) -> None:
        effects, self._membership.effects = self._membership.effects, []
        for effect in effects:
            if isinstance(effect, Send):
                if (worker := self._workers.get(effect.to)) is not None:
                    worker.writer.write(encode(**effect.message))
            elif isinstance(effect, Formed):
                self._journal.formed(effect, [self._node_of(worker) for worker in effect.members])
            elif isinstance(effect, Broken):
                self.fail(effect.reason)
            elif isinstance(effect, Completed):
                self._completed = True
                self._replicas.stop()

    def _node_of(self, worker: str) -> str:
        agent = self._agents.get(worker.split(".")[0])
        return agent.node if agent is not None else "?"

    async def _tick(self) -> None:
        last = time.monotonic()
        while True:
            await asyncio.sleep(TICK_SECONDS)
            now = time.monotonic()
            self._notice_silence(now, late=now - last > LATE_SECONDS)
            last = now
            self._membership.expect(self._starting())
            self._membership.consider(now)
            self._carry_out()
            self._journal.flush(now)

    def _starting(self) -> int:
        """Workers that run and have not yet come so far that they could train."""
        running = (name for agent in self._agents.values() if not agent.leaving for name in agent.running)
        return sum(not self._membership.knows(name) for name in running)

    def _notice_silence(self, now: float, *, late: bool) -> None:
        """Who has not been heard for too long is lost; if it was us who slept, nobody is to blame.

        The last worker with the state is waited for: nobody waits for it in vain, and it may come back.
        """
        # After the last step a worker saves and shuts Python down, which stops its signs of life first.
        workers = () if self._completed else self._workers.values()
        peers: list[Agent | Worker] = [*workers, *self._agents.values()]
        for peer in peers:
            if late:
                peer.seen = now
            elif now - peer.seen > SILENCE_SECONDS and not self._membership.is_last(peer.name):
                self._give_up_on(peer)

    def _give_up_on(self, peer: Agent | Worker) -> None:
        """A frozen worker would keep its node for nothing: its agent ends it, and may start it again."""
        self._expelled.add(peer.name)
        if isinstance(peer, Worker) and (agent := self._agents.get(peer.agent)) is not None:
            write(agent.writer, "kill", worker=peer.name)
        peer.writer.transport.abort()
        self._on_disconnect(peer)

    def _in_background(self, work: Any) -> None:
        task: asyncio.Task[None] = asyncio.ensure_future(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)

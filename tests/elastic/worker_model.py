"""Workers as a model: what `RunSession` does with the coordinator's messages, in any order of events.

Messages of one connection keep their order; everything else is interleaved by a seeded random generator.
The coordinator may crash at any point: what was under way on the connections is lost, the workers come to the
next one by and by. Checks while it runs that no two members of a generation are ever in different steps, and
that a generation begins where it was said, or later when one of its members had not heard so in time.
"""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass, field, replace
from typing import Any

from hpctools.elastic.assembly import Returned
from hpctools.elastic.deciding import Settle
from hpctools.elastic.effects import Broken, Completed, Formed, Send, Waiting
from hpctools.elastic.membership import Membership

LAST_STEP = 30


@dataclass
class Worker:
    """One worker: its connection's two directions, and where it is in its life."""

    name: str
    order: tuple[int, ...]
    inbox: deque[dict[str, Any]] = field(default_factory=deque)
    outbox: deque[dict[str, Any]] = field(default_factory=deque)
    alive: bool = True
    is_old: bool = False
    connected: bool = True
    completed: int = 0
    standing: int = 0
    trains: bool = False
    has_left: bool = False
    has_state: bool = False
    generation: int = 0
    forms: dict[int, dict[str, Any]] = field(default_factory=dict)
    linking: set[int] = field(default_factory=set)
    linked: set[int] = field(default_factory=set)
    commits: dict[int, dict[str, Any]] = field(default_factory=dict)
    recover: int = 0
    parked: int = 0
    failed: int = 0
    agreeing: dict[str, Any] = field(default_factory=lambda: {"generation": 0, "at": 0})
    agreed: int = 0
    prepared: dict[int, int] = field(default_factory=dict)
    moving: int = 0
    exchanging: bool = False
    is_done: bool = False
    finished: bool = False
    is_leaving: bool = False

    def say(self, kind: str, **fields: Any) -> None:
        if self.connected:
            self.outbox.append({"kind": kind, **fields})

    def standing_now(self, groups: dict[int, list[str]]) -> Returned:
        """What a hello says; mirrors RunSession."""
        group = groups.get(self.generation, [])
        committed = max(self.commits, default=0)
        return Returned(
            ready=True,
            trains=self.trains,
            generation=self.generation,
            rank=group.index(self.name) if self.name in group else 0,
            world=len(group),
            completed=self.completed if self.has_state else -1,
            seen=max([self.recover, committed, *self.forms, 0]),
            pending=self.recover > self.standing or committed > self.standing,
            broken=bool(self.failed) and self.failed >= self.standing,
            done=self.is_done,
            finished=self.finished,
            left=self.has_left,
        )


class Simulation:
    """A run of model workers around a real `Membership`."""

    def __init__(self, seed: int, sizes: tuple[int, ...], faulty_wait: float = 0.0) -> None:
        self.random = random.Random(seed)
        self.sizes, self.faulty_wait = sizes, faulty_wait
        self.membership = self._new_membership()
        self.now = 0.0
        self.workers: dict[str, Worker] = {}
        self.groups: dict[int, list[str]] = {}
        self.entered: dict[tuple[int, int], dict[str, int]] = {}
        self.movers: dict[int, dict[str, int]] = {}
        self.formed: list[Formed] = []
        self.broken: str | None = None
        self.completed = False
        self.broken_lines = 0
        self.switches = [0, 0]  # of members, at the step that was named or as soon as all knew, and later

    def _new_membership(self) -> Membership:
        made = Membership(self.sizes, Settle(settle=0.0), faulty_wait=self.faulty_wait)
        rate = self.random.choice([0.0, 10.0])
        made.facts = replace(made.facts, rates=dict.fromkeys(range(20), rate))
        return made

    # Events from outside

    def crash_coordinator(self) -> None:
        """It vanishes with all that was under way; the next one has read how far the run was."""
        for worker in self.workers.values():
            worker.inbox.clear()
            worker.outbox.clear()
            worker.connected = False
        known = self.random.choice([0, self.membership.generation])
        trained = any(each.has_state for each in self.workers.values())
        self.membership = self._new_membership()
        self.membership.take_over(known if trained else 0, self.now)

    def break_line(self, worker: Worker) -> None:
        """What is under way on it is lost, and the worker is back at once; mirrors Connections."""
        self.broken_lines += 1
        worker.inbox.clear()
        worker.outbox.clear()
        worker.connected = True  # it may have been on its way to a new coordinator
        if not self.membership.is_last(worker.name):
            self.membership.lost(worker.name, self.now)
        self.membership.returned(worker.name, worker.order, worker.standing_now(self.groups), self.now)
        if worker.is_leaving:
            worker.say("leaving")
        self._carry_out()

    def add(self, role: int) -> Worker:
        worker = Worker(f"w{len(self.workers)}", (role, len(self.workers)))
        worker.is_old = self.random.random() < 0.1  # of an earlier release
        self.workers[worker.name] = worker
        worker.say("ready")
        return worker

    def kill(self, worker: Worker) -> None:
        """Its connection breaks after what it had sent."""
        worker.alive = False
        worker.say("lost")

    def alive(self) -> list[Worker]:
        return [worker for worker in self.workers.values() if worker.alive]

    # One thing happens

    def step(self) -> bool:
        """Let something happen that can; False: nothing can."""
        actions = [
            action
            for worker in self.workers.values()
            for action in (
                [lambda w=worker: self._connect(w)] if worker.alive and not worker.connected else [],
                [lambda w=worker: self._hear(w)] if worker.outbox else [],
                [lambda w=worker: self._obey(w)] if worker.alive and worker.inbox else [],
                [lambda w=worker: self._link(w)] if self._can_link(worker) else [],
                [lambda w=worker: self._train(w)] if self._can_train(worker) else [],
            )
            for action in action
        ]
        self.now += 0.01
        waits = self.membership.next_look()
        if not actions and waits is None:
            return False
        if not actions or (waits is not None and self.now >= waits):
            self.now = max(self.now, waits or 0.0)
            self.membership.consider(self.now)
            self._carry_out()
            return True
        self.random.choice(actions)()
        return True

    # The coordinator

    def _connect(self, worker: Worker) -> None:
        worker.connected = True
        worker.say("returned", how=worker.standing_now(self.groups))
        if worker.is_leaving:
            worker.say("leaving")

    def _hear(self, worker: Worker) -> None:
        message = worker.outbox.popleft()
        kind, name, member = message["kind"], worker.name, self.membership
        if kind == "ready":
            member.ready(name, worker.order, self.now)
        elif kind == "leaving":
            member.leaving([name], self.now)
        elif kind == "lost":
            member.lost(name, self.now)
        elif kind == "store":
            member.store(name, message["generation"], "host", 1)
        elif kind == "returned":
            member.returned(name, worker.order, message["how"], self.now)
        elif kind == "parked":
            member.parked(name, message["generation"], message["completed"], self.now)
        elif kind == "linked":
            member.linked(name, message["generation"], self.now, message.get("rounds"))
        elif kind == "switching":
            member.switching(name, message["generation"])
        elif kind == "place":
            member.placed(message["generation"], {"step": message["step"]})
        elif kind == "switched":
            member.switched(name, message["generation"], message["step"], self.now)
        elif kind == "done":
            member.done(name)
        elif kind == "saved":
            member.saved(message["step"])
        elif kind == "left":
            member.left(name, self.now, stays=message["stays"])
        else:
            getattr(member, kind)(name, message["generation"], self.now)
        self._carry_out()

    def _carry_out(self) -> None:
        effects, self.membership.effects = self.membership.effects, []
        for effect in effects:
            if isinstance(effect, Send):
                if effect.message["kind"] == "form":
                    # Nobody may have heard of a number that a coordinator used before it crashed.
                    if effect.message["rank"] == 0:
                        self._forget(effect.message["generation"])
                    self.groups[effect.message["generation"]].append(effect.to)
                self.workers[effect.to].inbox.append(dict(effect.message))
            elif isinstance(effect, Formed):
                self.formed.append(effect)
            elif isinstance(effect, Waiting):
                self._order_save()
            elif isinstance(effect, Broken):
                self.broken = effect.reason
            elif isinstance(effect, Completed):
                self.completed = True

    def _order_save(self) -> None:
        """As the coordinator does: the first that is there, and perhaps nothing comes of it."""
        present = [self.workers[name] for name in self.membership.members if self.workers[name].alive]
        if present:
            present[0].inbox.append({"kind": "save"})

    def _forget(self, generation: int) -> None:
        self.groups[generation] = []
        self.movers.pop(generation, None)
        for key in [each for each in self.entered if each[0] == generation]:
            del self.entered[key]

    # A worker's channel

    def _obey(self, worker: Worker) -> None:
        message = worker.inbox.popleft()
        kind = message["kind"]
        if kind == "form":
            generation = message["generation"]
            worker.forms[generation] = message
            if message["recover"]:
                worker.recover = max(worker.recover, generation)
            if message["rank"] == 0:
                worker.linking.add(generation)
                worker.say("store", generation=generation)
        elif kind == "park":
            worker.recover = max(worker.recover, message["generation"])
        elif kind == "link":
            worker.linking.add(message["generation"])
        elif kind == "commit":
            worker.commits[message["generation"]] = message
            if message["agree"]:
                worker.agreeing = {**message, "at": 0} if worker.is_old else message
        elif kind == "prepare":
            worker.prepared[message["generation"]] = message["place"]["step"]
        elif kind in ("release", "stop"):
            self._exit(worker)
        elif kind == "save" and worker.has_state and self.random.random() < 0.8:
            worker.say("saved", step=worker.completed)
        elif kind == "finish":
            worker.finished = True

    def _exit(self, worker: Worker) -> None:
        if worker.alive:
            self.kill(worker)

    def _can_link(self, worker: Worker) -> bool:
        return worker.alive and bool(worker.linking - worker.linked)

    def _link(self, worker: Worker) -> None:
        generation = self.random.choice(sorted(worker.linking - worker.linked))
        members = [self.workers[name] for name in self.groups[generation]]
        if all(generation in member.linking for member in members):
            worker.linked.add(generation)
            says = {} if worker.is_old else {"rounds": worker.completed}
            worker.say("linked", generation=generation, **says)
        elif not all(member.alive for member in members):
            worker.linking.discard(generation)
            worker.say("link_failed", generation=generation)

    # A worker's training

    def _must_rejoin(self, worker: Worker) -> bool:
        return worker.recover > worker.standing

    def _can_train(self, worker: Worker) -> bool:
        return worker.alive and not worker.finished

    def _train(self, worker: Worker) -> None:
        if worker.moving:
            self._move(worker)
        elif self._must_rejoin(worker):
            self._rejoin(worker)
        elif not worker.trains:
            self._enter(worker)
        elif worker.failed == worker.generation:
            pass  # waits for the recovery
        elif worker.exchanging:
            self._exchange(worker)
        elif worker.completed >= LAST_STEP:
            if not worker.is_done:
                worker.is_done = True
                worker.say("done")
        elif worker.agreed > worker.generation:
            self._switch(worker, worker.commits[worker.agreed])
        else:
            self._announce(worker)
            self._contribute(worker)

    def _rejoin(self, worker: Worker) -> None:
        worker.exchanging = worker.is_done = False
        generation = worker.recover
        if worker.parked < generation:
            worker.parked = generation
            completed = worker.completed if worker.has_state else -1
            worker.say("parked", generation=generation, completed=completed)
        else:
            self._enter(worker)

    def _enter(self, worker: Worker) -> None:
        let_in = [
            each["generation"]
            for each in worker.commits.values()
            if not each["agree"] and each["generation"] >= max(worker.recover, worker.standing + 1)
        ]
        if let_in and worker.failed < max(let_in):
            self._switch(worker, worker.commits[max(let_in)])

    def _switch(self, worker: Worker, commit: dict[str, Any]) -> None:
        if commit.get("leave"):
            worker.standing = commit["generation"]
            worker.trains = False
            worker.say("left", stays=commit.get("stay", False))
            if not commit.get("stay"):
                worker.has_left = True
                self._exit(worker)
            return
        if commit["agree"]:
            worker.say("switching", generation=commit["generation"])
        worker.moving = commit["generation"]
        self.movers.setdefault(worker.moving, {})[worker.name] = worker.completed

    def _move(self, worker: Worker) -> None:
        """The state's transfer, and then the new generation is in force for this worker."""
        generation, group = worker.moving, self.groups[worker.moving]
        commit, moving = worker.commits[generation], self.movers[generation]
        peers = [name for name in group if name != worker.name]  # all tell all whether they have the state
        donor = commit.get("receive_from")
        if worker.recover > generation:
            worker.moving = 0
        elif all(peer in moving for peer in peers):
            if donor is not None:
                worker.completed = moving[group[donor]]
                there = worker.prepared.get(generation, worker.completed)
                assert there == worker.completed or (there < worker.completed and self.switches[1])
            worker.has_state, worker.moving = True, 0
            worker.generation = worker.standing = generation
            worker.trains = True
            worker.say("switched", generation=generation, step=worker.completed)
        elif not all(self.workers[peer].alive for peer in peers if peer not in moving):
            worker.moving, worker.failed = 0, generation
            worker.say("failed", generation=generation)

    def _contribute(self, worker: Worker) -> None:
        members = self.groups[worker.generation]
        for name in members:
            other = self.workers[name]
            if other.alive and other.generation == worker.generation and other.exchanging:
                # One that has all it needs for a step may still have to notice so.
                behind = self.entered[(other.generation, other.completed)]
                step = other.completed + (len(behind) == len(members))
                assert worker.completed in (other.completed, step), (worker, other)
        worker.exchanging = True
        headers = self.entered.setdefault((worker.generation, worker.completed), {})
        is_due = worker.completed + 1 >= worker.agreeing["at"]
        headers[worker.name] = worker.agreeing["generation"] if is_due else 0

    def _exchange(self, worker: Worker) -> None:
        members = self.groups[worker.generation]
        headers = self.entered[(worker.generation, worker.completed)]
        gone = [name for name in members if not self.workers[name].alive]
        complete = all(name in headers for name in members)
        if complete and not (gone and self.random.random() < 0.5):
            worker.exchanging = False
            worker.completed += 1
            self._agree(worker, min(headers.values()))
        elif gone:
            worker.exchanging, worker.failed = False, worker.generation
            worker.say("failed", generation=worker.generation)

    def _announce(self, worker: Worker) -> None:
        """Before a step after which all may switch; mirrors Foresight."""
        commit = worker.agreeing
        is_due = commit["generation"] > worker.generation and 0 < commit["at"] <= worker.completed + 1
        if is_due and commit.get("report"):
            worker.say("place", generation=commit["generation"], step=worker.completed + 1)

    def _agree(self, worker: Worker, generation: int) -> None:
        """All may switch to it; mirrors Foresight."""
        if generation <= max(worker.agreed, worker.generation):
            return
        worker.agreed, at = generation, worker.commits[generation]["at"]
        assert worker.completed >= at, "sooner than the coordinator said"
        late = at and worker.completed - at
        self.switches[min(late, 1)] += 1
        if late > 0:
            headers = self.entered[(worker.generation, worker.completed - 2)]
            assert min(headers.values()) < generation, "put off by nobody"

"""Nodes as a model around a real `Generations`: ranks that train, save when they are told, crash and finish.

Messages of one connection keep their order; everything else is interleaved by a seeded random generator.
While it runs it checks that ranks of two generations never run at the same time, that sizes are allowed ones,
and that no rank outlives the time that its node has.
"""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass, field
from typing import Any

from hpctools.elastic.restart.budget import Charge
from hpctools.elastic.restart.effects import (
    Broken,
    Charged,
    Crashed,
    Finished,
    Formed,
    Release,
    Resized,
    Tell,
)
from hpctools.elastic.restart.generations import Generations
from hpctools.elastic.restart.limits import Limits

STEPS = 150
MESSAGE = 0.01


@dataclass
class Rank:
    calls: int = 0
    told: int = 0
    bound: int = 0
    committed: bool = False
    code: int | None = None
    at: float = 0.0
    ours: bool = False

    def ago(self, now: float) -> float:
        return now - self.at


@dataclass
class Node:
    name: str
    order: tuple[int, ...]
    inbox: deque[dict[str, Any]] = field(default_factory=deque)
    outbox: deque[dict[str, Any]] = field(default_factory=deque)
    alive: bool = True
    deadline: float | None = None
    generation: int = 0
    begun: dict[str, Any] = field(default_factory=dict)
    ranks: dict[int, Rank] = field(default_factory=dict)
    ending: float | None = None  # when SIGKILL comes
    released: bool = False

    def running(self) -> list[Rank]:
        return [rank for rank in self.ranks.values() if rank.code is None]

    def say(self, of: str, generation: int, **values: Any) -> None:
        self.outbox.append({"of": of, "generation": generation, **values})

    def report(self, now: float) -> dict[str, Any]:
        if not self.ranks:
            return {"generation": self.generation, "ranks": {}}
        return {
            "generation": self.generation,
            "members": self.begun["members"],
            "restarts": self.begun["restarts"],
            "committed": max((rank.bound for rank in self.ranks.values() if rank.committed), default=0),
            "ending": self.ending is not None,
            "ranks": {str(k): [r.calls, r.told, r.code, ""] for k, r in self.ranks.items()},
            "ends": {str(k): [r.ago(now), r.ours] for k, r in self.ranks.items() if r.code is not None},
        }


class Cluster:
    """A run on model nodes.

    Args:
        asks: whether the script calls `elastic_event_detected` once a step.

    Attributes:
        saved: the step that the script's checkpoint is of.
        loading: ranks that run make no step yet.
        stubborn: ranks that neither end when they are told nor when they get SIGTERM.
        charges: what the run's folder tells of restarts that were counted.
    """

    def __init__(self, seed: int, limits: Limits, *, asks: bool = True) -> None:
        self.random = random.Random(seed)
        self.limits = limits
        self.asks = asks
        self.now = 100.0
        self.machine = Generations(limits)
        self.nodes: dict[str, Node] = {}
        self.connected: set[str] = set()
        self.saved = 0
        self.loading = False
        self.stubborn = False
        self.effects: list[Any] = []
        self.charges: list[Charge] = []
        self.finished = False
        self.broken, self.code = "", None

    # From outside

    def add(self, baseline: bool = False) -> Node:
        number = len(self.nodes)
        node = Node(f"a{number}", (0 if baseline else 1, number))
        self.nodes[node.name] = node
        self.connected.add(node.name)
        self.machine.joined(node.name, node.order, self.now, node.report(self.now))
        self.carry_out()
        return node

    def kill(self, node: Node) -> None:
        node.alive = False
        for rank in node.running():
            rank.code = -9
        node.inbox.clear()
        node.outbox.append({"of": "gone", "generation": 0})

    def preempt(self, node: Node, grace: float) -> None:
        node.deadline = self.now + grace
        node.say("leaving", 0, deadline=node.deadline)

    def crash(self, node: Node, code: int = 1) -> None:
        rank = self.random.choice(node.running())
        rank.code = code
        self.tell_end(node, rank)

    def take_over(self) -> None:
        """The coordinator is gone: what was under way to and from it is lost; a new one asks who runs."""
        self.machine = Generations(self.limits, not_before=self.now + 5, charges=self.charges)
        for node in self.living():
            node.inbox.clear()
            node.outbox.clear()
        self.connected.clear()

    def reconnect(self, node: Node) -> None:
        """The line broke, and what was under way is lost; the agent is back before that was noticed."""
        node.inbox.clear()
        node.outbox.clear()
        self.machine.joined(node.name, node.order, self.now, node.report(self.now))
        if node.deadline is not None:
            node.say("leaving", 0, deadline=node.deadline)
        self.carry_out()

    def replace_agent(self, node: Node) -> None:
        """The agent was killed with its ranks, and another one comes before that was noticed."""
        node.inbox.clear()
        node.outbox.clear()
        node.generation, node.begun, node.ranks, node.ending = 0, {}, {}, None
        self.machine.joined(node.name, node.order, self.now, node.report(self.now))
        self.carry_out()

    def living(self) -> list[Node]:
        return [node for node in self.nodes.values() if node.alive and not node.released]

    # Time goes by

    def run(self, seconds: float) -> None:
        """Let so much time go by, or until the run is over."""
        until = self.now + seconds
        while self.now < until and not (self.finished or self.broken):
            self.step()

    def until(self, condition: Any, limit: float = 200.0) -> None:
        until = self.now + limit
        while not condition():
            assert self.now < until, (self.machine.phase, self.effects[-8:], self.nodes)
            self.step()

    def step(self) -> None:
        self.now += MESSAGE
        for node in self.random.sample(list(self.nodes.values()), len(self.nodes)):
            self.move(node)
        self.machine.tick(self.now)
        self.carry_out()
        self.check()

    def move(self, node: Node) -> None:
        if node.alive and not node.released and node.name not in self.connected:
            if self.random.random() < 0.05:
                self.connected.add(node.name)
                self.machine.joined(node.name, node.order, self.now, node.report(self.now))
                if node.deadline is not None:
                    node.say("leaving", 0, deadline=node.deadline)
            return
        if node.outbox and self.random.random() < 0.7:
            self.hear(node, node.outbox.popleft())
            self.carry_out()
        if node.alive and node.inbox and self.random.random() < 0.7:
            self.obey(node, node.inbox.popleft())
        if node.alive:
            self.train(node)

    def train(self, node: Node) -> None:
        if node.deadline is not None and self.now > node.deadline + 3 * MESSAGE and node.running():
            raise AssertionError(f"{node.name} had to be gone")
        for rank in node.running():
            if node.ending is not None:
                if not self.stubborn or self.now >= node.ending:
                    rank.code = -9 if self.stubborn else -15
                    self.tell_end(node, rank, ours=True)
            elif not self.loading and self.random.random() < 0.3:
                self.one_step(node, rank)
        if node.running() and not node.outbox:
            counts = {str(key): (rank.calls, rank.told) for key, rank in node.ranks.items()}
            node.say("counted", node.generation, counts=counts)

    def one_step(self, node: Node, rank: Rank) -> None:
        others = [each for member in node.begun["members"] for each in self.nodes[member].ranks.values()]
        if rank.told or rank.calls > min(each.calls for each in others):
            if rank.told and not self.stubborn:
                rank.code = 0
                self.tell_end(node, rank)
            return  # it waits for the others in a collective
        if self.asks and rank.bound and rank.calls + 1 >= rank.bound and not rank.committed:
            return  # it waits for the decision
        rank.calls += 1
        if self.asks and rank.bound == rank.calls and rank.committed:
            rank.told = rank.calls
            self.saved = max(self.saved, node.begun["from"] + rank.calls)
        elif node.begun["from"] + rank.calls >= STEPS:
            self.saved = STEPS
            rank.code = 0
            self.tell_end(node, rank)

    def tell_end(self, node: Node, rank: Rank, *, ours: bool = False) -> None:
        local = next(key for key, each in node.ranks.items() if each is rank)
        said = ["it broke"] if rank.code else []
        rank.at, rank.ours = self.now, ours
        how = {"code": rank.code, "told": rank.told, "said": said, "ours": ours}
        node.say("ended", node.generation, local=local, **how)

    # Messages

    def obey(self, node: Node, message: dict[str, Any]) -> None:
        what, generation = message["do"], message["generation"]
        if what == "offer":
            node.say("offered", generation, host=node.name, port=1)
        elif what == "begin":
            assert not node.running()
            node.generation, node.ending = generation, None
            node.begun = {**message, "from": self.saved}
            node.ranks = {local: Rank() for local in range(self.limits.per_node)}
            node.say("began", generation)
        elif generation != node.generation:
            return
        elif what == "propose":
            call = message["call"]
            bound = all(rank.calls < call or not self.asks for rank in node.running())
            for rank in node.running():
                rank.bound = call if rank.calls < call else rank.bound
            calls = max(rank.calls for rank in node.ranks.values()) if self.asks else 0
            node.say("answered", generation, call=call, bound=bound, calls=calls)
        elif what == "commit":
            for rank in node.running():
                rank.committed = rank.bound == message["call"]
        elif what == "withdraw":
            for rank in node.running():
                rank.bound = 0
        elif what == "end":
            limit = self.now + message["seconds"]
            node.ending = min(limit, node.deadline or limit)

    def hear(self, node: Node, message: dict[str, Any]) -> None:
        machine, name, of = self.machine, node.name, message.pop("of")
        generation = message.pop("generation")
        if of == "gone":
            self.connected.discard(name)
            machine.gone(name, self.now)
        elif of == "leaving":
            machine.leaving(name, message["deadline"], self.now)
        elif of == "ended":
            rank = node.ranks[message["local"]] if node.generation == generation else None
            ago = rank.ago(self.now) if rank is not None else 0.0
            machine.ended(name, generation, **message, now=self.now, ago=ago)
        else:
            if of == "counted" and not self.asks:
                message["counts"] = dict.fromkeys(message["counts"], (0, 0))
            getattr(machine, of)(name, generation, **message, now=self.now)

    def carry_out(self) -> None:
        effects, self.machine.effects = self.machine.effects, []
        for effect in effects:
            if isinstance(effect, Tell):
                self.nodes[effect.agent].inbox.append(dict(effect.message))
            elif isinstance(effect, Release):
                node = self.nodes[effect.agent]
                assert not node.running(), f"{node.name} is let go with ranks that run"
                node.released = True
                node.outbox.append({"of": "gone", "generation": 0})
            else:
                self.effects.append(effect)
                self.finished |= isinstance(effect, Finished)
                if isinstance(effect, Charged):
                    self.charges.append(Charge(self.now, effect.generation))
                if isinstance(effect, Broken):
                    self.broken, self.code = effect.reason, effect.code

    def check(self) -> None:
        generations = {node.generation for node in self.nodes.values() if node.running()}
        assert len(generations) <= 1, f"ranks of {generations} run at the same time"
        members = [len(each.members) for each in self.effects if isinstance(each, Formed)]
        assert set(members) <= set(self.limits.sizes)

    # What was seen

    def of(self, kind: type) -> list[Any]:
        return [effect for effect in self.effects if isinstance(effect, kind)]

    def world(self) -> int:
        """Nodes whose ranks run."""
        return sum(bool(node.running()) for node in self.nodes.values())


__all__ = ["STEPS", "Cluster", "Crashed", "Formed", "Node", "Rank", "Resized"]

"""An agent of a made-up node, whose hands only remember."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hpctools.login.agent.agent import Agent, Ended
from hpctools.login.agent.drained import DrainFile
from hpctools.login.agent.processes import Process
from hpctools.login.agent.reporting import Reporter, Self
from hpctools.login.agent.sample import Sample
from hpctools.login.placement import Policy
from tests.login.node_processes import sample


class FakeService:
    """Answers each question with the next answer, the last one for ever; an error is raised."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.asked: list[tuple[str, str, Mapping[str, Any] | None]] = []

    def ask(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        self.asked.append((method, path, body))
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer


@dataclass
class FakeHands:
    """Remembers what it was told to do."""

    lifted: bool = False
    told: list[tuple[tuple[str, ...], str]] = field(default_factory=list)
    owners: list[int | None] = field(default_factory=list)
    ended: list[str] = field(default_factory=list)
    typed: dict[str, float] = field(default_factory=dict)

    def tell(self, terminals: Iterable[str], message: str, owner: int | None = None) -> object:
        self.told.append((tuple(terminals), message))
        self.owners.append(owner)
        return None

    def typed_at(self, terminals: Iterable[str]) -> Mapping[str, float]:
        return {each: self.typed[each] for each in terminals if each in self.typed}

    def end(self, what: Ended) -> bool:
        self.ended.append(what.key)
        return True

    def lifts_limits(self) -> bool:
        return self.lifted


class FakeSampler:
    """Sees these samples one after the other, the last one for ever."""

    def __init__(self, *samples: Sample) -> None:
        self.samples = list(samples)

    def look(self) -> Sample:
        return self.samples.pop(0) if len(self.samples) > 1 else self.samples[0]


def is_administrator(user: str) -> bool:
    return user in ("root", "hpcadmin")


def made_agent(
    folder: Path, *processes: Process, service: FakeService | None = None, lifted: bool = False
) -> Agent:
    """An agent that has looked once."""
    agent = Agent(
        "login-1",
        Policy(),
        FakeSampler(sample(*processes)),  # type: ignore[arg-type]
        Reporter(Self("login-1", lambda: "login-1.uni.example", is_administrator), service, lambda: 3.0),
        DrainFile(folder / "drain.json"),
        FakeHands(lifted),
        is_administrator,
    )
    agent.look()
    return agent

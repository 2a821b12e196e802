"""A rank that SIGKILL does not end, as one that hangs in the kernel: who waits for it waits in vain."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
from one_node import BEGIN, spec_of, until

from hpctools.elastic.agent import Agent
from hpctools.elastic.agent_place import Place
from hpctools.elastic.folder import RunFolder
from hpctools.elastic.left_behind import Process
from hpctools.elastic.processes import Post
from hpctools.elastic.restart import ranks
from hpctools.elastic.restart.effects import Charged, Release
from hpctools.elastic.restart.generations import Generations
from hpctools.elastic.restart.limits import Limits
from hpctools.elastic.restart.node import NodeRanks
from hpctools.elastic.spec import RunSpec
from hpctools.testing.slurm import FakeSlurm

SLEEPS = (sys.executable, "-c", "import time; time.sleep(60)")
KILLED = -int(signal.SIGKILL)
Said = list[tuple[str, dict[str, Any]]]


class Hanging:
    """A node with a rank that no signal reaches, from its `end` on."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (folder / "logs").mkdir()
        spec = spec_of(SLEEPS, folder)
        self.said: Said = []
        self.node = NodeRanks(Post(RunFolder(folder), spec, "b0", self._say, leave=self._leave))
        monkeypatch.setattr(ranks, "UNKILLABLE_SECONDS", 0.05)
        monkeypatch.setattr(ranks, "waits_in_kernel", lambda pid: True)
        monkeypatch.setattr(ranks.LocalRank, "signal", lambda *_: None)
        self.node.obey(BEGIN)
        assert self.node._ranks is not None
        (self.rank,) = self.node._ranks.ranks

    def _say(self, kind: str, **fields: Any) -> None:
        self.said.append((str(fields.get("of", kind)), fields))

    def _leave(self, reason: str) -> None:
        """As the agent does."""
        self._say("leaving", reason=reason)
        self.node.expect_no_restart(60.0)

    def told(self, what: str) -> list[dict[str, Any]]:
        return [fields for kind, fields in self.said if kind == what]

    async def really_end(self) -> None:
        """It ends at last, and whoever waits for it has heard."""
        if self.rank.watching is not None and self.rank.pid:
            os.killpg(self.rank.pid, signal.SIGKILL)
            await asyncio.wait([self.rank.watching])


def test_a_rank_that_cannot_be_killed_is_given_up_with_its_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run() -> Hanging:
        made = Hanging(tmp_path, monkeypatch)
        try:
            made.node.obey({"do": "end", "generation": 3, "seconds": 0.0})
            await until(lambda: bool(made.told("ended")))
            made.node.obey({**BEGIN, "generation": 4})
            await asyncio.wait_for(made.node.stop(0.0), 20)
        finally:
            await made.really_end()
        return made

    made = asyncio.run(run())
    ended, refused = made.told("ended")
    assert (ended["generation"], ended["code"], ended["ours"]) == (3, KILLED, True)
    assert ended["said"] == [f"process {made.rank.pid} cannot be killed: it hangs in the kernel"]
    assert (refused["generation"], refused["code"]) == (4, -signal.SIGTERM)
    assert made.told("leaving") == [{"reason": "departed"}]
    (warning,) = made.told("warning")
    assert f"process {made.rank.pid} (rank 0 of this node) cannot be killed" in warning["message"]
    assert "have an administrator drain the node and reboot it" in warning["message"]
    kinds = [kind for kind, _ in made.said]
    assert kinds.index("leaving") < kinds.index("ended"), "else the next generation may have the node again"


def test_a_rank_that_only_takes_long_to_end_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel gives back its memory, say: its node is sound."""

    async def run() -> Hanging:
        made = Hanging(tmp_path, monkeypatch)
        looks: list[int] = []

        def looked(pid: int) -> bool:
            looks.append(pid)
            return False

        monkeypatch.setattr(ranks, "waits_in_kernel", looked)
        made.node.obey({"do": "end", "generation": 3, "seconds": 0.0})
        await until(lambda: len(looks) >= 3)
        assert made.told("ended") == []
        await made.really_end()
        await until(lambda: bool(made.told("ended")))
        await asyncio.wait_for(made.node.stop(0.0), 20)
        return made

    made = asyncio.run(run())
    assert [each["code"] for each in made.told("ended")] == [KILLED]
    assert made.told("leaving") == made.told("warning") == []


def test_what_a_dead_wrapper_leaves_hanging_takes_its_node_along(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also when the wrapper has ended by itself."""
    left = Process(4711, 4711, 4700, 1)

    async def run() -> Hanging:
        made = Hanging(tmp_path, monkeypatch)
        monkeypatch.setattr(ranks, "waits_in_kernel", lambda pid: pid == left.pid)
        monkeypatch.setattr(ranks, "end_rest_of_session", lambda leader: [left])
        monkeypatch.setattr(Process, "runs", True)
        os.killpg(made.rank.pid, signal.SIGKILL)
        await until(lambda: bool(made.told("ended")))
        await asyncio.wait_for(made.node.stop(0.0), 20)
        return made

    made = asyncio.run(run())
    (warning,) = made.told("warning")
    assert "process 4711 (rank 0 of this node) cannot be killed" in warning["message"]
    assert made.told("leaving") == [{"reason": "departed"}]


def test_an_agent_that_ends_waits_for_a_rank_that_cannot_be_killed_no_longer_than_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run() -> Hanging:
        made = Hanging(tmp_path, monkeypatch)
        try:
            await asyncio.wait_for(made.node.stop(0.0), 20)
        finally:
            await made.really_end()
        return made

    made = asyncio.run(run())
    assert [each["code"] for each in made.told("ended")] == [KILLED]
    assert made.told("leaving") == [], "it goes already"


def test_the_next_generation_is_begun_without_that_node_and_no_crash_is_charged() -> None:
    machine = Generations(Limits(sizes=(1, 2)))
    for place, agent in enumerate(("b0", "r7")):
        machine.joined(agent, (place,), 100.0)
    machine.offered("b0", 1, "h", 1, 100.0)
    for agent in ("b0", "r7"):
        machine.began(agent, 1, 100.0)
    machine.ended("b0", 1, 0, 1, 0, ["connection lost"], 110.0)  # since the other hangs
    assert machine.phase == "ending"
    machine.leaving("r7", 170.0, 143.0)
    machine.ended("r7", 1, 0, KILLED, 0, ["process 1 cannot be killed"], 143.0, ours=True)
    assert machine.members == ("b0",)
    assert machine.generation == 2
    assert Release("r7") in machine.effects
    assert not any(isinstance(each, Charged) for each in machine.effects)


@pytest.mark.parametrize("role", ["baseline", "replica"])
def test_the_agent_of_a_node_that_is_given_up_leaves(role: str, tmp_path: Path) -> None:
    spec = RunSpec("t-1", "t", "nlp1", "", 1, 2, 1, SLEEPS, "/", (), "/r.sh", "now", mode="restart")
    folder = RunFolder.create(tmp_path / "run", spec)

    async def leaves() -> dict[str, Any]:
        made = Agent(folder, Place(role, 12, 1, "n4"), FakeSlurm())
        assert isinstance(made._workers, NodeRanks)
        made._workers._give_up_node("departed")
        return dict(made._introduction())

    assert asyncio.run(leaves())["leaving"] == "departed"

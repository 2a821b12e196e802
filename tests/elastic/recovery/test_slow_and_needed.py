"""A worker that is only slow, on a node that the run cannot do without: nothing is done about it."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from test_acting import SPEC, coordinated

from hpctools.elastic.actions import ReplaceNode, RestartWorker
from hpctools.elastic.folder import RunFolder
from hpctools.elastic.recovery import watchers_of
from hpctools.elastic.recovery.watching import RecoveryWatcher
from hpctools.elastic.watchers import MemberView, Report, View

NEEDED = "the run could not go on without it: 2 other nodes are needed"
DEFAULTS = ["replaceNode", "excludeNode"]


def recovery(do: list[str]) -> dict[str, Any]:
    slow = {"metricEvaluationDataPoints": 1, "do": do}
    return {"metrics": {"slowRank": slow}, "runPolicy": {"mode": "enforce", "jobMaxRetryCount": 3}}


class Slow:
    """A run of which the worker on n1 takes three times as long as that on n0."""

    def __init__(self, folder: RunFolder, do: list[str]) -> None:
        self.needed: set[str] = {"n1"}
        self._spec, self._step = replace(SPEC, recovery=recovery(do)), 0
        self.folder = folder
        self.watcher = self.successor()

    def successor(self) -> RecoveryWatcher:
        def kept(node: str) -> str | None:
            return NEEDED if node in self.needed else None

        (watcher,) = watchers_of(self._spec, self.folder, 0.0, kept=kept)
        return watcher

    def goes_on(self, times: int, world: int = 2) -> list[Any]:
        """What is asked for meanwhile."""
        found: list[Any] = []
        for _ in range(times):
            self._step += 1
            members = tuple(MemberView(f"w{n}", f"n{n}", self._step, 0.0, trains=True) for n in (0, 1))
            now = 100.0 * self._step
            self.watcher.tick(now, View(self._step, world, self._step, "running", members))
            for node, seconds in (("0", 1.0), ("1", 3.0)):
                times_of = {"shard_seconds": seconds, "sample_seconds": seconds}
                found += self.watcher.heard(
                    now, Report("metric", f"w{node}", f"n{node}", self._step, times_of)
                )
        return found

    def told(self, event: str) -> list[dict[str, Any]]:
        return [each.detail for each in self.folder.events() if each.event == event]


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    return RunFolder.create(tmp_path / "run", SPEC)


def test_nothing_is_done_or_counted_and_it_is_said_once_for_each_size(folder: RunFolder) -> None:
    """Its worker was started again and again, in vain, until the run failed with jobMaxRetryCount."""
    run = Slow(folder, DEFAULTS)
    assert run.goes_on(60) == []
    (warning,) = run.told("warning")
    assert warning["message"].startswith("w1 is slower than the others")
    assert warning["message"].endswith(f"; n1 is not replaced: {NEEDED}")
    assert [(each["rung"], each["counts"], each["ladder"]) for each in run.told("finding")] == [
        ("none", False, NEEDED)
    ]
    assert run.goes_on(10, world=3) == []
    assert len(run.told("warning")) == 2
    run.watcher = run.successor()
    assert run.goes_on(1) == [], "nor does it count for who takes over"
    run.needed.clear()
    (action,) = run.goes_on(1)
    assert (type(action), action.node, action.exclude) == (ReplaceNode, "n1", False), "its first rung is left"


@pytest.mark.parametrize("cause", ["slowRank", "metric"])
def test_a_node_that_is_not_known_while_its_agent_is_not_here_is_waited_for(
    tmp_path: Path, cause: str
) -> None:
    """Only a node could be replaced, and the run would have failed."""
    rule = {"name": "slow", "metric": "shard_seconds", "metricThreshold": 2, "operator": "gt"}
    rules = {"slowRank": {"metricEvaluationDataPoints": 1}, "metric": [{**rule, "do": DEFAULTS}]}
    metrics = {"rules" if cause == "metric" else cause: rules[cause]}
    spec = replace(SPEC, recovery={"metrics": metrics, "runPolicy": {"mode": "enforce"}})
    (watcher,) = watchers_of(spec, RunFolder.create(tmp_path / "run", spec), 0.0)
    for step, node in ((1, ""), (2, ""), (3, "n1")):
        for worker, place, seconds in (("w0", "n0", 1.0), ("w1", node, 3.0)):
            times = {"shard_seconds": seconds, "sample_seconds": seconds}
            found = watcher.heard(float(step), Report("metric", worker, place, step, times))
        assert [type(each) for each in found] == [ReplaceNode] * bool(node)


def test_a_restart_that_was_asked_for_is_done_and_counts(folder: RunFolder) -> None:
    run = Slow(folder, ["restartProcess", "replaceNode"])
    assert [type(each) for each in run.goes_on(10)] == [RestartWorker]
    assert [each["rung"] for each in run.told("finding")] == ["restartProcess", "none"]


def test_a_coordinator_s_rules_know_which_nodes_have_to_stay(tmp_path: Path) -> None:
    """All three of them."""

    async def play() -> None:
        spec = replace(SPEC, min_nodes=3, recovery=recovery(DEFAULTS))
        folder = RunFolder.create(tmp_path / "run", spec)
        scene, coordinator = coordinated(folder, lose=())
        now = 1.0
        for node, seconds in (("0", 1.0), ("1", 3.0)):
            name = ("b0.0.0", "r7.0.0")[int(node)]
            report = Report(
                "metric", name, f"n{node}", 1, {"shard_seconds": seconds, "sample_seconds": seconds}
            )
            coordinator._watching.heard(now, report)
        assert await coordinator._scribe.has_written(10)
        assert [each.event for each in folder.events()] == ["finding", "warning"]
        assert not any(wire.messages for wire in scene.agents.values())

    asyncio.run(play())

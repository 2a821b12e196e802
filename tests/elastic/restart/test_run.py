"""The coordinator's part of restart mode: what those that watch the run get to see."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

from test_acting import SPEC, Scene

from hpctools.elastic.actions import Depart
from hpctools.elastic.folder import RunFolder
from hpctools.elastic.restart.record import Record
from hpctools.elastic.restart.run import RestartRun
from hpctools.elastic.watchers import MemberView


def test_watchers_see_ranks_that_run_those_that_could_and_those_that_go(tmp_path: Path) -> None:
    """A node that is drained may go as soon as there is another, also before that one has ranks."""

    async def scene() -> None:
        spec = replace(SPEC, mode="restart")
        made = Scene(RunFolder.create(tmp_path / "run", spec), spec)
        restart = made.run.restart = RestartRun(made.run, takes_over=False)
        agents = made.run.roster.agents
        restart.joined(agents["b0"], {})
        restart.joined(agents["r7"], {})
        formed = [MemberView(f"{name}.0", node, 0, 0.0, True) for name, node in (("b0", "n0"), ("r7", "n1"))]
        standby = MemberView("r8.0", "n2", None, 0.0, False, ready=True)
        restart._generations._record = record_of("b0", "r7")
        assert restart.view(1.0).members == (*formed, standby)
        made.acting.act(Depart("n1", 30.0, "why"))
        assert restart.view(1.0).members == (formed[0], replace(formed[1], leaves=True), standby)
        assert agents["r7"].reason == "departed"
        assert agents["r7"].told is not None

    asyncio.run(scene())


def record_of(*members: str) -> Record:
    return Record(1, members, 1)

"""A node that is cut off: its ranks do not write beside those of a generation that was begun without it."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from test_wrapped_ranks import OWN_GROUP, SAVES, Wrapped

from hpctools.elastic.agent_line import AgentLine
from hpctools.elastic.folder import RunFolder, RunStatus
from hpctools.elastic.processes import Post
from hpctools.elastic.restart.node import NodeRanks
from hpctools.elastic.spec import RunSpec

BEGIN = {"do": "begin", "generation": 3, "members": ["b0"], "place": 0, "host": "h", "port": 1}
COUNTS = {"restarts": 0, "max_restarts": 3}


async def until(condition: Callable[[], bool]) -> None:
    async def look() -> None:
        while not condition():
            await asyncio.sleep(0.01)

    await asyncio.wait_for(look(), 20)


@pytest.mark.parametrize(("published", "is_ended"), [(2, False), (3, False), (4, True)])
def test_ranks_end_when_a_later_generation_is_published_and_nobody_tells_them(
    published: int, is_ended: bool, tmp_path: Path
) -> None:
    looked: list[int] = []
    sleeps = (sys.executable, "-c", "import time; time.sleep(60)")
    spec = RunSpec("t-1", "t", "nlp1", "", 1, 2, 1, sleeps, str(tmp_path), (), "", "", mode="restart")
    folder = RunFolder.create(tmp_path / "run", spec)
    folder.claim_term(1)
    folder.write_status(RunStatus("running", generation=published))
    succession: Any = SimpleNamespace(unreached=lambda now, published: looked.append(1), problem=None)

    async def run() -> bool:
        node = NodeRanks(Post(folder, spec, "b0", lambda kind, **fields: None))
        node.obey({**BEGIN, **COUNTS})
        line = AgentLine(folder, "t-1", succession, dict, node.obey, trains=lambda: True)
        keeping = asyncio.ensure_future(line.keep())
        assert node._ranks is not None
        ranks = node._ranks
        await until(lambda: len(looked) >= 2)
        if is_ended:
            await until(lambda: not ranks.alive)
        was_ended = ranks.ending
        keeping.cancel()
        await node.stop(0.0)
        return was_ended

    assert asyncio.run(run()) == is_ended


@pytest.mark.parametrize(("script", "wrapped"), [(SAVES, False), (SAVES, True), (OWN_GROUP + SAVES, True)])
@pytest.mark.parametrize(
    "order", [{"do": "passed", "generation": 4}, {"do": "end", "generation": 3, "seconds": 0.0}]
)
def test_ranks_that_have_a_minute_to_save_end_when_others_have_begun_without_them(
    order: dict[str, Any], wrapped: bool, script: str, tmp_path: Path
) -> None:
    """The minute was given for a change in which they were to take part."""
    made = Wrapped(tmp_path, script, wrapped=wrapped)

    async def run() -> None:
        await made.begin()
        made.end(60.0)
        held: list[int] = []
        await until(lambda: made.hold(held))
        made.node.obey(order)
        await until(lambda: bool(made.ended))
        os.close(held.pop())
        await made.node.stop(0.0)

    asyncio.run(run())
    assert not (tmp_path / "saved").exists()
    assert made.left() == []

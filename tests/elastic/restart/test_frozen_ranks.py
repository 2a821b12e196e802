"""A rank that somebody has stopped is ended; one that was stopped together with its agent is not."""

from __future__ import annotations

import asyncio
import itertools
import signal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from one_node import spec_of

from hpctools.elastic.folder import RunFolder
from hpctools.elastic.processes import Post
from hpctools.elastic.restart.node import FROZEN_LOOKS, NodeRanks


def test_looks_are_counted_however_long_the_agent_has_slept_between_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job that is suspended for the night: its ranks may wake a moment after the agent."""
    sent: list[signal.Signals] = []
    stopped = [SimpleNamespace(local=0, signal=sent.append)]
    ranks: Any = SimpleNamespace(frozen=lambda: stopped)

    async def run() -> None:
        spec = spec_of(("true",), tmp_path)
        node = NodeRanks(Post(RunFolder(tmp_path), spec, "b0", lambda kind, **fields: None))
        hours = itertools.count(0.0, 3600.0)

        def look(times: int) -> list[signal.Signals]:
            with monkeypatch.context() as patched:
                patched.setattr(asyncio.get_running_loop(), "time", lambda: next(hours))
                for _ in range(times):
                    node._end_frozen(ranks)
            return sent

        assert look(FROZEN_LOOKS) == []
        awake = [stopped.pop()]
        assert look(1) == []
        stopped.extend(awake)
        assert look(FROZEN_LOOKS) == [], "not in a row"
        assert look(1) == [signal.SIGKILL]

    asyncio.run(run())

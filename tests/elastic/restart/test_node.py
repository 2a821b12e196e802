"""The agent's part, on its own: what it refuses."""

from __future__ import annotations

import asyncio
import errno
import signal
from pathlib import Path
from typing import Any

import pytest

from hpctools.elastic.folder import RunFolder
from hpctools.elastic.restart import ranks
from hpctools.elastic.restart.node import NodeRanks
from hpctools.elastic.spec import RunSpec

BEGIN = {"do": "begin", "generation": 3, "members": ["b0"], "place": 0, "host": "h", "port": 1}
COUNTS = {"restarts": 0, "max_restarts": 3}
SPEC = RunSpec("r-1", "r", "nlp1", "", 1, 1, 2, ("true",), "/", (), "", "", mode="restart")


def obeyed(tmp_path: Path, *, leaves: bool) -> list[dict[str, Any]]:
    """What an agent says to the order to begin."""
    said: list[dict[str, Any]] = []

    async def run() -> None:
        node = NodeRanks(
            RunFolder(tmp_path), SPEC, "b0", lambda kind, **fields: said.append(fields), shows_output=False
        )
        if leaves:
            node.expect_no_restart()
        node.obey({**BEGIN, **COUNTS})
        await node.stop(0.0)

    asyncio.run(run())
    return said


def ends(code: int, *said: str) -> list[dict[str, Any]]:
    end = {"of": "ended", "generation": 3, "code": code, "told": 0, "said": list(said)}
    return [{**end, "local": local} for local in (0, 1)]


def test_a_node_that_has_to_go_begins_nothing(tmp_path: Path) -> None:
    assert obeyed(tmp_path, leaves=True) == ends(-signal.SIGTERM)


def test_a_node_whose_memory_is_full_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full() -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(ranks, "SlotFolder", full)
    words = "no room for the ranks' slots: [Errno 28] No space left on device"
    assert obeyed(tmp_path, leaves=False) == ends(127, words)

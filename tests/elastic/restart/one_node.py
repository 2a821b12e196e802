"""The ranks of one node without a coordinator: what it is ordered, and how a test waits."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hpctools.elastic.spec import RunSpec

BEGIN: dict[str, Any] = {
    "do": "begin",
    "generation": 3,
    "members": ["b0"],
    "place": 0,
    "host": "h",
    "port": 1,
    "restarts": 0,
    "max_restarts": 3,
}
"""The order to begin."""


def spec_of(command: tuple[str, ...], folder: Path) -> RunSpec:
    """Of a run with one rank on one node."""
    return RunSpec("r-1", "r", "nlp1", "", 1, 1, 1, command, str(folder), (), "", "", mode="restart")


async def until(condition: Callable[[], bool]) -> None:
    """Wait until something is so, 20 s at most."""

    async def look() -> None:
        while not condition():
            await asyncio.sleep(0.01)

    await asyncio.wait_for(look(), 20)

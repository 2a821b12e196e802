"""A coordinator lets agents and workers know where it listens, also when storage refuses that for a while."""

from __future__ import annotations

import asyncio

from hpctools.elastic.context import RunContext
from hpctools.elastic.folder import CoordinatorAddress
from hpctools.errors import ElasticError

PAUSE_SECONDS = 0.5


async def publish(run: RunContext, address: CoordinatorAddress) -> None:
    """Write the address, as often as it takes; given up when it is of no use any more.

    A node whose coordinator cannot write is sound: its workers train on meanwhile, and agents look for us as
    long as theirs do.
    """
    said = False
    while not run.ended.done() and await asyncio.to_thread(run.fence.holds):
        try:
            await asyncio.to_thread(run.folder.write_coordinator, address)
        except ElasticError as error:
            if not said:
                run.warn(f"nobody finds the coordinator: {error}; workers train on, and it is tried again")
            said = True
            await asyncio.sleep(PAUSE_SECONDS)
        else:
            return

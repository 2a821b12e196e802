"""Ranks as threads of one process, linked over real gloo."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from hpctools.elastic.group import Group, join_store, link, open_store

LIMIT_SECONDS = 30.0


def linked(world: int, number: int = 1) -> list[Group]:
    """The groups of so many ranks."""
    store = open_store("127.0.0.1") if world > 1 else None
    port = store.port if store is not None else 0

    def join(rank: int) -> Group:
        own = store if rank == 0 or store is None else join_store("127.0.0.1", port)
        return link(number, rank, world, own, "127.0.0.1")

    return everywhere([lambda rank=rank: join(rank) for rank in range(world)])


def everywhere(works: list[Callable[[], Any]]) -> list[Any]:
    """Do all at the same time; returns what they return, raises what one of them raises."""
    with ThreadPoolExecutor(len(works)) as pool:
        return [each.result(LIMIT_SECONDS) for each in [pool.submit(work) for work in works]]

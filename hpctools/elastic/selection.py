"""Which workers should train: pure functions of who is ready and what sizes are allowed."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from hpctools.elastic.forming import Member


def largest_within(sizes: Sequence[int], workers: int) -> int:
    """The largest allowed number of workers that so many make; 0 when they are too few for any."""
    return max((size for size in sizes if size <= workers), default=0)


def in_order(ready: Mapping[str, Member], workers: Collection[str]) -> tuple[str, ...]:
    """Workers in the order of their ranks."""
    return tuple(sorted(workers, key=lambda worker: (ready[worker].order, worker)))


def staying(ready: Mapping[str, Member]) -> list[str]:
    """Workers that do not have to go."""
    return [worker for worker, member in ready.items() if not member.leaving]


def holding(ready: Mapping[str, Member], present: Sequence[str]) -> list[str]:
    """With whom the training goes on: who may hold the newest state and stays.

    Who leaves goes on with them as long as all that stay have missed steps, which are in its memory alone.

    Args:
        present: all that may hold a state that others have not given up.
    """
    stays = [worker for worker in present if not ready[worker].leaving]
    if not stays or any(not ready[worker].stale for worker in stays):
        return stays or list(present)
    return [worker for worker in present if not (ready[worker].leaving and ready[worker].stale)]


def wanted(ready: Mapping[str, Member], members: Sequence[str], size: int) -> tuple[str, ...]:
    """The workers that should train when so many should; who trains already is preferred."""
    candidates = staying(ready)
    preferred = sorted(candidates, key=lambda worker: (worker not in members, ready[worker].order))
    return in_order(ready, preferred[:size])


def grown(
    ready: Mapping[str, Member], members: Sequence[str], sizes: Sequence[int], size: int, failures: int
) -> tuple[str, ...]:
    """The workers that should train when it grows to `size`; after a failure to link those of one more node.

    One node that cannot be linked would keep all others out. Which node it is nobody knows, so each has its
    turn, where that makes an allowed size.

    Args:
        failures: to link, in a row, so far.
    """
    everyone = wanted(ready, members, size)
    joiners = [each for each in everyone if each not in members]
    nodes = list(dict.fromkeys(map(_agent_of, joiners)))
    if not failures or not nodes:
        return everyone
    alone = nodes[(failures - 1) % len(nodes)]
    chosen = [*members, *(each for each in joiners if _agent_of(each) == alone)]
    return in_order(ready, chosen) if len(chosen) in sizes else everyone


def _agent_of(worker: str) -> str:
    return worker.rsplit(".", 2)[0]


def recovering(
    ready: Mapping[str, Member], holders: Sequence[str], sizes: Sequence[int], need: int
) -> tuple[str, ...]:
    """The members of a generation with which the training goes on after somebody vanished.

    Those that hold the state go on alone when they are `need` or more, which is quickest; else newcomers that
    are ready fill up. Holders that have to leave only pass their state on, to as many as there are.

    Returns:
        Workers in rank order; nobody when all together are too few.
    """
    newcomers = in_order(ready, [each for each in staying(ready) if each not in holders])
    if all(ready[each].leaving for each in holders):
        need = sizes[-1]
    size = largest_within(sizes, len(holders))
    if size < need:
        size = largest_within(sizes, min(need, len(holders) + len(newcomers)))
    chosen = [*in_order(ready, holders), *newcomers][:size]
    return in_order(ready, chosen)

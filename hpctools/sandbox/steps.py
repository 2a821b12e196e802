"""Steps that depend on each other, taken as early as each can be."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

from hpctools.errors import HpctoolsError

Reporter = Callable[[str, float], None]


@dataclass(frozen=True)
class Step:
    """One thing to do.

    Attributes:
        name: what others name in `after`.
        action: does it; returns whether there was anything to do.
        after: names of the steps that must be done before.
    """

    name: str
    action: Callable[[], bool]
    after: tuple[str, ...] = ()


def take(steps: Sequence[Step], report: Reporter) -> None:
    """Take all steps, independent ones at once.

    Args:
        steps: in an order in which each stands after those that it depends on.
        report: told the name and the seconds of each step that had anything to do.

    Raises:
        HpctoolsError: the first failure; steps that depend on it are not taken.
    """
    told = threading.Lock()
    futures: dict[str, Future[bool]] = {}

    def one(step: Step) -> bool:
        if not all(_went_well(futures[name]) for name in step.after):
            return False
        begin = time.monotonic()
        try:
            acted = step.action()
        except HpctoolsError as error:
            failures.append(error)
            return False
        if acted:
            with told:
                report(step.name, time.monotonic() - begin)
        return True

    failures: list[HpctoolsError] = []
    with ThreadPoolExecutor(max_workers=len(steps)) as pool:
        for step in steps:
            futures[step.name] = pool.submit(one, step)
    for future in futures.values():
        future.result()  # anything that is no failure of a step is a defect of ours: let it be seen
    if failures:
        raise failures[0]


def _went_well(future: Future[bool]) -> bool:
    return future.exception() is None and future.result()

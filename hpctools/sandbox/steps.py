"""Steps that depend on each other, taken as early as each can be."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
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

    def one(step: Step, before: list[Future[None]]) -> None:
        for earlier in before:
            earlier.result()
        begin = time.monotonic()
        if step.action():
            with told:
                report(step.name, time.monotonic() - begin)

    futures: dict[str, Future[None]] = {}
    with ThreadPoolExecutor(max_workers=len(steps)) as pool:
        for step in steps:
            futures[step.name] = pool.submit(one, step, [futures[name] for name in step.after])
        done, _ = wait(futures.values(), return_when=FIRST_EXCEPTION)
    for future in done:
        error = future.exception()
        if isinstance(error, HpctoolsError):
            raise error
        future.result()

"""Threads beside the training, of which a node may have none left."""

from __future__ import annotations

import threading
from collections.abc import Callable

from hpctools.errors import ElasticError


class NoThread(ElasticError):
    """The node has no thread left, perhaps only for now."""


def started(work: Callable[[], None], name: str) -> threading.Thread:
    """A thread that does the work, and keeps no process from ending.

    Raises:
        NoThread: none can be started.
    """
    thread = threading.Thread(target=work, name=name, daemon=True)
    try:
        thread.start()
    except RuntimeError as error:
        raise NoThread(
            f"no thread can be started on this node: {error}",
            "have fewer processes and threads there (num_workers, OMP_NUM_THREADS), or a higher limit of "
            "them (ulimit -u, or pids.max of the job's cgroup)",
        ) from None
    return thread

"""A thread of the service that looks every few seconds whether there is something to do."""

from __future__ import annotations

import logging
from collections.abc import Callable
from threading import Event, Thread

from hpctools.errors import HpctoolsError

POLL_SECONDS = 5.0

_log = logging.getLogger("hpctools.scheduler")


class Worker:
    """Calls a function until it is told to stop, in a thread that keeps no process from ending.

    What the function raises is told to the log, and does not end the thread.

    Args:
        name: of the thread.
        tick: does all that is due.
    """

    def __init__(self, name: str, tick: Callable[[], object]) -> None:
        self._name = name
        self._tick = tick
        self._stop = Event()
        self._wake = Event()
        self._thread: Thread | None = None

    @property
    def stops(self) -> bool:
        """Whether it was told to stop: nothing more is to be begun."""
        return self._stop.is_set()

    def start(self) -> None:
        """Begin."""
        self._thread = Thread(target=self._loop, name=self._name, daemon=True)
        self._thread.start()

    def stop(self, timeout: float) -> None:
        """Begin nothing more, and give what is at work some seconds to end; then it ends with the process."""
        self._stop.set()
        self._wake.set()
        if self._thread is not None:
            self._thread.join(timeout)

    def wake(self) -> None:
        """Look at once."""
        self._wake.set()

    def _loop(self) -> None:
        while not self.stops:
            try:
                self._tick()
            except HpctoolsError as error:
                # Something is away; /healthz and the metrics tell of the database as well.
                _log.error("%s", error)
            except Exception:  # noqa: BLE001 - one bug must not keep the rest from being done
                _log.exception("%s met an error of our own", self._name)
            self._wake.wait(POLL_SECONDS)
            self._wake.clear()

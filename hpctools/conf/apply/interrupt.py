"""Ctrl-C, and what else asks us to end: never in the middle of a change."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any

from hpctools.errors import ApplyError

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class InterruptedChange(ApplyError):
    """Somebody asked us to end; what had begun is rolled back."""

    exit_code = 130


class Interrupts:
    """Decides what Ctrl-C, SIGTERM and SIGHUP do.

    Before `protect` they end the program at once, since nothing has changed. After it the first one makes the
    change roll back as soon as the step under way has ended; the next ones only tell what is going on.

    Args:
        tell: shows a line to the person.
    """

    def __init__(self, tell: Callable[[str], None]) -> None:
        self._tell = tell
        self._protected = False
        self._final = False
        self._asked = False
        self._before: dict[signal.Signals, Any] = {}
        self.doing = "nothing has changed yet"

    def __enter__(self) -> Interrupts:
        if threading.current_thread() is threading.main_thread():
            self._before = {each: signal.signal(each, self._handle) for each in _SIGNALS}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for each, handler in self._before.items():
            signal.signal(each, handler)

    def protect(self) -> None:
        """From now on a change is under way."""
        self._protected = True

    def finish(self) -> None:
        """From now on the way is the same, asked or not: back, or the last step."""
        self._final = True

    def check(self) -> None:
        """A safe point between two steps.

        Raises:
            InterruptedChange: somebody asked us to end.
        """
        if self._asked and not self._final:
            raise InterruptedChange("interrupted")

    def pause(self, seconds: float) -> None:
        """Wait a little for something that is to happen; a safe point as well."""
        self.check()
        time.sleep(seconds)

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        if not self._protected:
            raise KeyboardInterrupt
        if self._final or self._asked:
            self._tell(f"{signal.Signals(number).name}: not in the middle of a change; now: {self.doing}")
        else:
            self._tell("interrupted: what has begun is rolled back once this step has ended")
        self._asked = True

"""What can go wrong on a node, in words for the person who reads the log."""

from __future__ import annotations

HOPELESS = 78  # EX_CONFIG of sysexits.h: a step that ends with it is not tried again


class Failure(Exception):
    """A step cannot be done, or the runner cannot go on.

    Args:
        message: what happened, where, and what to do next.
        hopeless: whether trying again is of no use.
        exit_code: of a runner that ends with it.
    """

    def __init__(self, message: str, *, hopeless: bool = False, exit_code: int = 1) -> None:
        super().__init__(message)
        self.hopeless = hopeless
        self.exit_code = exit_code


class Interrupted(Exception):
    """The runner was told to end.

    Args:
        signal: by this signal.
    """

    def __init__(self, signal: int) -> None:
        super().__init__(signal)
        self.signal = signal

"""Which signal has ended a process, also when a shell waited for it."""

from __future__ import annotations

import signal

SHELL = 128
"""A shell's exit code is that and the signal which ended its command."""


def signal_of(code: int) -> int:
    """The number of the signal; 0: it ended by itself.

    Args:
        code: its exit code; negative: the signal, as `subprocess` tells it.
    """
    number = -code if code < 0 else code - SHELL
    return number if 0 < number < signal.NSIG else 0

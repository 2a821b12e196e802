"""How a bench begins on a busy machine, and what remains of one that is broken off."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

BUSY_LOAD = 2.0
INTERRUPTED = 130
"""Exit code after Ctrl-C: 128 and the signal's number."""


@dataclass
class Course:
    """Whether a bench came to its end."""

    complete: bool = True


@contextmanager
def until_ctrl_c() -> Iterator[Course]:
    """Around all that is measured: after Ctrl-C comes the report of what there is.

    One line on standard error says so when the machine has other things to do.
    """
    course = Course()
    load = os.getloadavg()[0]
    if load > BUSY_LOAD:
        say(f"bench: the machine is busy (load {load:.1f}): the figures will be too high")
    try:
        yield course
    except KeyboardInterrupt:
        course.complete = False
        say("bench: interrupted; what there was so far:")


def say(text: str) -> None:
    """Progress, beside the report."""
    print(text, file=sys.stderr, flush=True)

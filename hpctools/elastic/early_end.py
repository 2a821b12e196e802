"""A program that ends after a pass of its loop that was over before its process came: the run is told.

Early stopping does it, or a loop's own limit, where the code after each pass is run without
`if loader.replays: continue`. Such an end is no end of the training, which goes on elsewhere.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
from collections.abc import Callable
from typing import cast

from hpctools.elastic.checkpoint.desks import RunLine
from hpctools.elastic.protocol import REPLAYED
from hpctools.elastic.session import Session


def tell_at_exit(replays: Callable[[], bool], session: Session) -> None:
    """Have this process tell, when it ends by itself, that it ends in such a place.

    It tells the coordinator, and its standard error: one of the two may be lost, while another coordinator
    takes over, or where a library prints a lot at the end.

    Args:
        replays: whether we stand after such a pass.
        session: the process's part in a run; of one that is in none nothing is told.
    """
    if not session.is_lone:
        atexit.register(_tell, replays, cast("RunLine", session).tell, os.getpid())


def _tell(replays: Callable[[], bool], tell: Callable[[str], None], owner: int) -> None:
    has_raised = hasattr(sys, "last_value")  # its own last words are the ones to be read
    if os.getpid() != owner or has_raised or not replays():
        return
    tell("replays")
    with contextlib.suppress(OSError):
        os.write(2, f"\n{REPLAYED}\n".encode())

"""Which time it is that a person asks for a run's end: a second one does not wait for what the run saves.

A laptop states it, so that what it tries again over a line that broke is no second time. Which time it is
of an older laptop, which states none, nobody can tell: all of its are one.
"""

from __future__ import annotations

import secrets
from contextvars import ContextVar

STATED: ContextVar[str] = ContextVar("cancel request", default="")
"""Empty: this process asks for the first time."""
UNSTATED = "a laptop that states none"
"""Instead of an id: the same for whatever such laptops ask."""


def request() -> str:
    """The id of what is asked now."""
    return STATED.get() or secrets.token_hex(8)

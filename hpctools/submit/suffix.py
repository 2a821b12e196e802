"""How the id of the next elastic run ends, where that is not left to chance.

A submission that may come twice states it, so that its run is found again. It is no variable of the
environment: jobs would inherit it, and their own runs would all have the same name.
"""

from __future__ import annotations

from contextvars import ContextVar

STATED: ContextVar[str] = ContextVar("run suffix", default="")
"""Empty: six random digits."""

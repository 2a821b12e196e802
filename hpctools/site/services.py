"""What surrounds the scheduler: login nodes."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from hpctools.site.base import Model


class Login(Model):
    """How people get in."""

    max_sessions_per_user: Annotated[int, Field(ge=1, le=1000)] = 4
    """Sessions that one person may have open on all login nodes together."""
    balance_on: Annotated[tuple[Literal["sessions", "cpu", "memory"], ...], Field(min_length=1)] = (
        "sessions",
        "cpu",
        "memory",
    )
    """What makes a login node count as busy."""

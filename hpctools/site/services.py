"""What surrounds the scheduler: login nodes."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from hpctools.site.base import Model
from hpctools.site.login_agent import LoginAgent
from hpctools.site.login_care import Care, IdleSessions
from hpctools.site.login_haproxy import HaProxy
from hpctools.site.scalars import AccountName, Duration

Sessions = Annotated[int, Field(ge=1, le=100_000)]


class Login(Model):
    """How people get in."""

    max_sessions_per_user: Annotated[int, Field(ge=1, le=1000)] = 4
    """Sessions that one person may have open on all login nodes together."""
    max_sessions_per_department: Sessions | None = None
    """Sessions that all people of one department together may have open; no limit when left out."""
    department_sessions: dict[AccountName, Sessions] = Field(default_factory=dict)
    """The same for single departments, by name, instead of `max_sessions_per_department`."""
    silent_after: Annotated[Duration, Field(ge=5, le=600)] = 30
    """A login node that tells nothing for so long gets no new sessions, and its sessions no longer count. Its
    agent tells three times as often, and once a minute at least."""
    when_unreachable: Literal["open", "refuse"] = "open"
    """What becomes of a login when the service that counts sessions does not answer: `open` leaves the limits
    of each node (`access.login`), `refuse` lets in only administrators."""
    balance_on: Annotated[tuple[Literal["sessions", "cpu", "memory"], ...], Field(min_length=1)] = (
        "sessions",
        "cpu",
        "memory",
    )
    """What makes a login node count as busy."""
    care: Care | None = None
    """What one person may use of a login node, and what follows; nobody is limited when left out."""
    idle: IdleSessions | None = None
    """What becomes of sessions that nobody uses; they stay when left out."""
    haproxy: HaProxy | None = None
    """HAProxy in front of the login nodes; left out where people are sent by other means."""
    agent: LoginAgent | None = None
    """The agent that the login nodes' lifecycle scripts set up; PAM asks it, too. None is set up when left
    out."""

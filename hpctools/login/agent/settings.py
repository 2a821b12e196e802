"""What an agent is told when it starts: a YAML file that `hpctools login render` makes of the site file."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import Field, ValidationError

from hpctools.errors import UsageError
from hpctools.site.access import Administrators
from hpctools.site.base import Model
from hpctools.site.login_care import Care, IdleSessions

_log = logging.getLogger("hpctools.login")

LONGEST_PAUSE = 60.0
"""Seconds from one look to the next at most, however long the site lets a node be silent."""

Port = Annotated[int, Field(ge=0, le=65535)]


class Settings(Model):
    """An agent's settings; what is left out is the site file's default."""

    node: str = ""
    """The node's name; the host's when left out."""
    address: str = ""
    """Where people's ssh and the load balancer find it; when left out, what `addresses` says of it."""
    addresses: dict[str, str] = Field(default_factory=dict)
    """Addresses of login nodes by name, as the site states them; of one that is not there the agent finds
    out by itself from which it gets out."""
    administrators: Administrators = Administrators()
    """Who is not limited and not slowed down."""
    balance_on: tuple[Literal["sessions", "cpu", "memory"], ...] = ("sessions", "cpu", "memory")
    """What makes the node count as busy."""
    most_sessions: int | None = None
    """Sessions of all people on this node."""
    sessions_per_user: Annotated[int, Field(ge=1, le=1000)] | None = None
    """Sessions of one person on this node, as PAM keeps it for ssh; counts for Session Manager's while the
    service does not answer. No limit when left out."""
    when_unreachable: Literal["open", "refuse"] = "open"
    """Whether people get in while the service that counts sessions does not answer."""
    every: Annotated[float, Field(gt=0, le=LONGEST_PAUSE)] = 5.0
    """Seconds from one look to the next."""
    care: Care | None = None
    """Limits of people; nobody is limited when left out."""
    idle: IdleSessions | None = None
    """Idle sessions; none is closed when left out."""
    check_address: str = "0.0.0.0"  # noqa: S104  HAProxy asks from another machine
    """Where HAProxy's agent-check is answered; the firewall lets nobody else there."""
    check_port: Port = 9123
    sshd_port: Port = 22
    """Where this node's sshd is asked whether it lets people in; 0: it is not asked."""
    metrics_address: str = "127.0.0.1"
    """Where Prometheus is answered."""
    metrics_port: Port = 9124
    socket: str = "/run/hpctools-login/agent.sock"
    """Where root's programs ask, PAM's among them; `people.sock` beside it is for everybody."""
    state: str = "/var/lib/hpctools-login"
    """What is kept over a restart."""
    drain_notice: Annotated[float, Field(ge=0, le=3600)] = 90.0
    """Seconds for which a node that has just been drained still takes people: whom a balancer sends that has
    not noticed yet, or whom the service sent a moment before."""
    unlimited_file: str = "/etc/hpctools/login-unlimited"
    """While this file is there all limits of sessions are lifted on this node; PAM looks at this place only,
    and keeps the node's own limit where the file is elsewhere."""


def read_settings(path: Path) -> Settings:
    """The settings in a file.

    Keys that this agent does not know are told in the log and passed over: a later release may have made the
    file, and a node without an agent counts nobody.

    Raises:
        UsageError: it cannot be read, or a value is none that an agent understands; says where.
    """
    try:
        stated = yaml.safe_load(path.read_text(encoding="utf-8"))
        return _understood(path, stated if stated is not None else {})
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}", "make it: hpctools login render") from None
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        raise UsageError(f"{path}: {place or 'all of it'}: {first['msg']}", "see docs/login.md") from None
    except (yaml.YAMLError, ValueError) as error:
        raise UsageError(f"{path} is no YAML: {' '.join(str(error).split())}", "make it anew") from None


def _understood(path: Path, stated: Any) -> Settings:
    try:
        return Settings.model_validate_json(_json(stated))
    except ValidationError as error:
        unknown = [each["loc"] for each in error.errors() if each["type"] == "extra_forbidden"]
        if not unknown:
            raise
    for *above, key in unknown:
        found = stated
        for part in above:
            found = found[part]
        del found[key]
        place = ".".join(map(str, (*above, key)))
        _log.warning("%s: %s: this agent does not know it, and goes on without it", path, place)
    return Settings.model_validate_json(_json(stated))


def _json(stated: object) -> str:
    """Strict models take lists for tuples from JSON only."""
    import json

    return json.dumps(stated)

"""HAProxy in front of the login nodes."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from hpctools.site.base import Model

Port = Annotated[int, Field(ge=1, le=65535)]


class HaProxy(Model):
    """HAProxy in front of the login nodes; `hpctools login render` makes its configuration."""

    port: Port = 22
    """Where people's ssh comes."""
    node_port: Port = 22
    """The sshd on the login nodes."""
    agent_port: Port = 9123
    """Where the agent of each login node says how much it wants to get."""

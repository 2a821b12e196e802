"""The agent of each login node, where the nodes set it up themselves."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from hpctools.site.base import Model
from hpctools.site.scalars import Duration
from hpctools.site.secret import Secret

# What systemd and a shell read as it stands, without quotes.
ServiceUrl = Annotated[str, Field(pattern=r"^https://[A-Za-z0-9._~:/\[\]-]+$", max_length=500)]
_BYTE = "(25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
Ipv4 = Annotated[str, Field(pattern=rf"^{_BYTE}(\.{_BYTE}){{3}}$")]


class LoginAgent(Model):
    """The agent that login nodes set up themselves (docs/lifecycle.md): which service it tells, and how."""

    service: ServiceUrl
    """The address of the service: `https://HOST`."""
    token: Secret
    """What it proves itself with, of scope `login`: a file on each login node, or an AWS secret that is the
    token and nothing else. Whoever has a shell on a login node may read the AWS secret unless people are kept
    from the instance's credentials (docs/login-limits.md)."""
    metrics_address: Ipv4 = "127.0.0.1"
    """Where the agent answers Prometheus, at port 9124: `0.0.0.0` for another machine, which alone the nodes'
    firewall lets in."""
    check_address: Ipv4 = "0.0.0.0"  # noqa: S104  HAProxy asks from another machine
    """Where it answers HAProxy."""
    drain_notice: Annotated[Duration, Field(le=3600)] = 90
    """For so long a node that has just been drained still takes people who come by `ssh NODE`: a balancer may
    not have noticed yet, and the service may have sent them a moment before."""

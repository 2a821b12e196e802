"""The agent of each login node, where the nodes set it up themselves."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from hpctools.site.base import Model
from hpctools.site.secret import Secret

# What systemd and a shell read as it stands, without quotes.
ServiceUrl = Annotated[str, Field(pattern=r"^https://[A-Za-z0-9._~:/\[\]-]+$", max_length=500)]


class LoginAgent(Model):
    """The agent that login nodes set up themselves (docs/lifecycle.md): which service it tells, and how."""

    service: ServiceUrl
    """The address of the service: `https://HOST`."""
    token: Secret
    """What it proves itself with, of scope `login`: a file on each login node, or an AWS secret that is the
    token and nothing else. Whoever has a shell on a login node may read the AWS secret unless people are kept
    from the instance's credentials (docs/login-limits.md)."""

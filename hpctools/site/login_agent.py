"""The agent of each login node, where the nodes set it up themselves."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, model_validator

from hpctools.site.base import Model
from hpctools.site.hyperpod_words import SecretArn
from hpctools.site.scalars import FilePath, refuse

# What systemd and a shell read as it stands, without quotes.
ServiceUrl = Annotated[str, Field(pattern=r"^https://[A-Za-z0-9._~:/\[\]-]+$", max_length=500)]


class ServiceToken(Model):
    """Where the token of login nodes is, of scope `login`; it never stands in the site file."""

    file: FilePath | None = None
    """A file on each login node that only root may read."""
    aws_secret: SecretArn | None = None
    """A secret of AWS Secrets Manager that is the token and nothing else. Whoever has a shell on a login node
    may read it unless people are kept from the instance's credentials (docs/login-limits.md)."""

    @model_validator(mode="after")
    def _one(self) -> ServiceToken:
        if (self.file is None) == (self.aws_secret is None):
            refuse("either file or aws_secret")
        return self


class LoginAgent(Model):
    """The agent that login nodes set up themselves (docs/lifecycle.md): which service it tells, and how."""

    service: ServiceUrl
    """The address of the service: `https://HOST`."""
    token: ServiceToken
    """What it proves itself with."""

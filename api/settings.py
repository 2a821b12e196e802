"""What the service is told by its environment (`HPCTOOLS_API_...`)."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict

from hpctools.errors import UsageError

Metric = Literal["NetAmortizedCost", "AmortizedCost", "NetUnblendedCost", "UnblendedCost", "BlendedCost"]


class Settings(BaseSettings):
    """Settings of the service; each has the variable `HPCTOOLS_API_<NAME>`.

    boto3 reads its own variables and files besides: AWS_PROFILE, AWS_ENDPOINT_URL and so on.
    """

    model_config = SettingsConfigDict(env_prefix="HPCTOOLS_API_", frozen=True, extra="ignore")

    database_url: str = "sqlite:////var/lib/hpctools/api.sqlite"
    """`sqlite:///FILE` or `postgresql://USER@HOST/NAME`."""
    site: Path = Path("/etc/hpctools/site.yaml")
    """The site file."""
    sacct: Path = Path("sacct")
    """Slurm's sacct; SLURM_CONF is honoured."""
    sacct_timeout: float = Field(default=300.0, gt=0, allow_inf_nan=False)
    """Seconds for one query of sacct."""
    metric: Metric = "NetAmortizedCost"
    """Cost Explorer's cost measure. A database holds one; another needs another database."""
    bill_scope: Literal["account", "cluster"] = "account"
    """Read the whole AWS account's bill, or only what carries the site's cluster tag."""
    migrate: bool = True
    """Bring the database's tables up to date when the service starts."""


def read_settings() -> Settings:
    """Settings from the environment.

    Raises:
        UsageError: a variable has a value that it cannot have; says which.
    """
    try:
        return Settings()
    except ValidationError as error:
        first = error.errors()[0]
        name = "_".join(str(part) for part in first["loc"]).upper()
        raise UsageError(
            f"HPCTOOLS_API_{name}={first['input']!r} cannot be used: {first['msg']}",
            "change the variable and start again",
        ) from None

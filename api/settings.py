"""What the service is told by its environment (`HPCTOOLS_API_...`)."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field, ValidationError, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict, SettingsError

from api.auth.provider import Client, Provider, check_role
from api.logs import Format
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
    reconcile_every: int = Field(default=3600, ge=0, le=7 * 86400)
    """Seconds between two reconciliations that the service begins by itself; 0 for none."""
    watch_every: int = Field(default=300, ge=0, le=86400)
    """Seconds between two looks at the budgets (what runs, alerts) that the service makes itself; 0: none."""
    enforce: bool = False
    """Change Slurm's limits at each look, as the budgets say."""
    most_request_bytes: int = Field(default=1_000_000, ge=1000)
    """The largest request."""
    most_at_once: int = Field(default=500, ge=1)
    """Requests that may be answered at the same time; one more is refused at once."""
    answer_seconds: float = Field(default=60.0, gt=0, allow_inf_nan=False)
    """The longest that an answer may take to begin."""
    metrics: Literal["token", "loopback"] = "token"
    """Who may read /metrics: whoever has a token of the whole site, or besides them this machine itself."""
    log_format: Format = "json"
    """`json` for one object a line, or `text`."""
    root_path: str = Field(default="", pattern=r"^(/[A-Za-z0-9._~-]+)*$")
    """The path under which a proxy shows the service, for example /budgets; the proxy takes it off."""
    trusted_proxies: str = "127.0.0.1,::1"
    """Addresses, or networks, of proxies whose X-Forwarded-For and X-Forwarded-Proto are believed."""
    oidc_issuer: str | None = None
    """URL of an OpenID provider whose tokens are taken; see docs/budget-api.md."""
    oidc_audience: str | None = None
    """Our name there; tokens for others are refused."""
    oidc_username_claim: str = ""
    """The claim with the Unix account, one that people cannot change; empty: only groups count."""
    oidc_groups_claim: str = "groups"
    """The claim with the groups of a person."""
    oidc_groups: dict[str, str] = Field(default_factory=dict)
    """JSON: what a group opens: `admin`, `head:ACCOUNT` or `member:ACCOUNT`."""
    oidc_leeway: int = Field(default=60, ge=0, le=300)
    """Seconds that the provider's clock may differ."""
    oidc_client_id: str = ""
    """Our name for people who sign in with a browser; empty: they use tokens of our own."""
    oidc_client_secret_file: Path | None = None
    """A file with our password there; left out for a public client."""
    oidc_scope: str = Field(default="openid", pattern=r"^(\S+ )*openid( \S+)*$")
    """What is asked of the provider for them; more than `openid` where groups need it."""

    smtp_host: str = ""
    """The mail relay for alerts; empty: none leave by mail."""
    smtp_port: int = Field(default=25, ge=1, le=65535)
    """Its port."""
    mail_from: str = "budgets@localhost"
    """The address that alerts come from."""
    webhook_key_file: Path | None = None
    """A file with the key that webhooks are signed with; unsigned when left out."""
    webhook_inside: bool = False
    """Webhooks may go to private networks, and by http."""

    @model_validator(mode="after")
    def _oidc(self) -> Settings:
        if (self.oidc_issuer is None) != (self.oidc_audience is None):
            raise ValueError("HPCTOOLS_API_OIDC_ISSUER and HPCTOOLS_API_OIDC_AUDIENCE belong together")
        if self.oidc_client_id and self.oidc_issuer is None:
            raise ValueError("HPCTOOLS_API_OIDC_CLIENT_ID needs HPCTOOLS_API_OIDC_ISSUER")
        wrong = [role for role in self.oidc_groups.values() if not check_role(role)]
        if wrong:
            raise ValueError(
                f"HPCTOOLS_API_OIDC_GROUPS: {wrong[0]!r} is none of admin, head:ACCOUNT and member:ACCOUNT"
            )
        return self

    def provider(self) -> Provider | None:
        """The OpenID provider, if there is one."""
        if self.oidc_issuer is None or self.oidc_audience is None:
            return None
        return Provider(
            self.oidc_issuer,
            self.oidc_audience,
            self.oidc_username_claim,
            self.oidc_groups_claim,
            self.oidc_groups,
            self.oidc_leeway,
        )

    def client(self) -> Client | None:
        """What we are to the OpenID provider when people sign in with a browser, if they may."""
        if not self.oidc_client_id:
            return None
        return Client(self.oidc_client_id, self.oidc_client_secret_file, self.oidc_scope)


def read_settings() -> Settings:
    """Settings from the environment.

    Raises:
        UsageError: a variable has a value that it cannot have; says which.
    """
    try:
        return Settings()
    except ValidationError as error:
        first = error.errors()[0]
        if not first["loc"]:
            raise UsageError(str(first["ctx"]["error"]), "change the variable and start again") from None
        name = "_".join(str(part) for part in first["loc"]).upper()
        raise UsageError(
            f"HPCTOOLS_API_{name}={first['input']!r} cannot be used: {first['msg']}",
            "change the variable and start again",
        ) from None
    except SettingsError:  # of the one variable that is JSON; what it says names the field, not why
        raise UsageError(
            "HPCTOOLS_API_OIDC_GROUPS cannot be used: it is no JSON",
            """write it like {"nlp-chairs": "head:nlp"}, in a shell within '...'""",
        ) from None

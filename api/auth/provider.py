"""What a site agrees with its OpenID provider."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Client:
    """What we are to the provider when somebody signs in with a browser.

    Attributes:
        id: our name there.
        secret_file: a file with our password there; None for a public client.
        scope: what is asked for, separated by spaces; `openid` among it.
    """

    id: str
    secret_file: Path | None = None
    scope: str = "openid"


@dataclass(frozen=True)
class Provider:
    """What is agreed with an OpenID provider.

    Attributes:
        issuer: its URL, exactly as in its tokens.
        audience: the name that it has for us; tokens for others are refused.
        username_claim: the claim with the Unix account, one that people cannot change; empty for none.
        groups_claim: the claim with the names of groups.
        groups: by group, `admin`, `head:ACCOUNT` or `member:ACCOUNT`.
        leeway: seconds that its clock may differ from ours.
    """

    issuer: str
    audience: str
    username_claim: str = ""
    groups_claim: str = "groups"
    groups: Mapping[str, str] = field(default_factory=dict)
    leeway: int = 60


def check_role(role: str) -> bool:
    """Whether a group's role is one: `admin`, `head:ACCOUNT` or `member:ACCOUNT`."""
    kind, colon, account = role.partition(":")
    return role == "admin" or (kind in ("head", "member") and bool(colon and account))

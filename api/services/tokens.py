"""API tokens: random secrets of which only a digest is stored."""

from __future__ import annotations

import hashlib
import re
import secrets
from dataclasses import dataclass

from sqlalchemy import Engine, select
from sqlalchemy.exc import IntegrityError

from api.db.engine import reading, writing
from api.db.models import ApiToken
from hpctools.budget.tree import BudgetSite
from hpctools.errors import UsageError

_PREFIX = "hpct_"
_FORM = re.compile(r"hpct_[A-Za-z0-9_-]{43}")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,127}")


@dataclass(frozen=True)
class Principal:
    """Who asks.

    Attributes:
        name: the token's name.
        account: the subtree that they may see; None for an administrator.
    """

    name: str
    account: str | None

    @property
    def is_admin(self) -> bool:
        """Whether they may see everything."""
        return self.account is None

    def may_see(self, site: BudgetSite, account: str) -> bool:
        """Whether an account lies in their subtree."""
        return self.account is None or account in site.subtree(self.account)


@dataclass(frozen=True)
class TokenInfo:
    """What is known of a token; never its secret.

    Attributes:
        account: None for an administrator.
        created_at, expires_at, revoked_at: Unix seconds.
    """

    name: str
    account: str | None
    created_at: int
    expires_at: int | None
    revoked_at: int | None


def create(engine: Engine, name: str, account: str | None, now: int, expires_at: int | None = None) -> str:
    """Make a token and return its secret, which nobody can read again.

    Args:
        name: unique; tells people whose it is.
        account: the subtree that it opens; None for everything.

    Raises:
        UsageError: the name is taken or cannot be one.
    """
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"{name!r} cannot be a token's name", "use letters, digits and . _ @ - (at most 128)"
        )
    secret = _PREFIX + secrets.token_urlsafe(32)
    token = ApiToken(
        name=name, digest=_digest(secret), account=account, created_at=now, expires_at=expires_at
    )
    try:
        with writing(engine) as session:
            session.add(token)
    except IntegrityError:
        raise UsageError(
            f"there is a token {name!r} already", "revoked names stay taken; choose another"
        ) from None
    return secret


def verify(engine: Engine, secret: str, now: int) -> Principal | None:
    """Who a secret belongs to; None when nobody, no longer, or revoked."""
    if not _FORM.fullmatch(secret):
        return None
    with reading(engine) as session:
        # Looking a digest up leaks nothing by its timing: nobody can choose digests near a real one.
        token = session.scalar(select(ApiToken).where(ApiToken.digest == _digest(secret)))
        if token is None or token.revoked_at is not None:
            return None
        if token.expires_at is not None and token.expires_at <= now:
            return None
        return Principal(token.name, token.account)


def revoke(engine: Engine, name: str, now: int) -> None:
    """End a token at once; a revoked one stays revoked.

    Raises:
        UsageError: there is none of this name.
    """
    with writing(engine) as session:
        token = session.scalar(select(ApiToken).where(ApiToken.name == name))
        if token is None:
            raise UsageError(f"there is no token {name!r}", "see `hpctools-api token list`")
        token.revoked_at = token.revoked_at or now


def listed(engine: Engine) -> list[TokenInfo]:
    """All tokens by name, revoked ones too."""
    with reading(engine) as session:
        return [
            TokenInfo(token.name, token.account, token.created_at, token.expires_at, token.revoked_at)
            for token in session.scalars(select(ApiToken).order_by(ApiToken.name))
        ]


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()

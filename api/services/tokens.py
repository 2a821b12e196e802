"""API tokens: random secrets of which only a digest is stored."""

from __future__ import annotations

import hashlib
import os
import pwd
import re
import secrets
from dataclasses import asdict, dataclass
from typing import Any

from sqlalchemy import Engine, bindparam, select
from sqlalchemy.exc import IntegrityError

from api.auth.principal import SCOPES, Grant, Principal, Scope, personal
from api.db.access_models import ApiToken
from api.db.engine import reading, writing
from api.db.looks import looking
from api.services import audit
from api.services.store_state import STATE, note
from hpctools.errors import UsageError

_PREFIX = "hpct_"
_FORM = re.compile(r"hpct_[A-Za-z0-9_-]{43}")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,127}")
_USER = re.compile(r"[A-Za-z_][A-Za-z0-9_.@-]{0,59}")

# Every request asks it: columns of one row, without a session's bookkeeping; and most ask for the state next.
_COLUMNS = (ApiToken.name, ApiToken.account, ApiToken.scopes, ApiToken.expires_at, ApiToken.revoked_at)
_BY_DIGEST = select(*_COLUMNS, *STATE).where(ApiToken.digest == bindparam("digest"))


class TakenError(UsageError):
    """Another token has the name."""


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
    scopes: tuple[Scope, ...]


@dataclass(frozen=True)
class NewToken:
    """A token to be made.

    Attributes:
        name: unique; tells people whose it is.
        account: the subtree that it opens; None for an administrator, who has every scope.
        scopes: what it may do there; each includes `read`.
        expires_at: Unix seconds; None for no end.
        user: whose own it is: it sees and ends this Unix account's sessions on login nodes, too. Several
            people's tokens may have the same name.
    """

    name: str
    account: str | None
    scopes: tuple[Scope, ...] = ("read",)
    expires_at: int | None = None
    user: str | None = None

    @property
    def whole_name(self) -> str:
        """As it is listed and revoked."""
        return self.name if self.user is None else personal(self.user, self.name)


def create(
    engine: Engine,
    name: str,
    account: str | None,
    now: int,
    expires_at: int | None = None,
    scopes: tuple[Scope, ...] = ("read",),
    user: str | None = None,
) -> str:
    """Make a token from the server itself; see `issue`."""
    return issue(engine, NewToken(name, account, scopes, expires_at, user), operator(), now)[0]


def issue(engine: Engine, new: NewToken, by: Principal | str, now: int) -> tuple[str, TokenInfo]:
    """Make a token; return its secret, which nobody can read again, and what is known of it.

    Args:
        by: who makes it, for the audit trail.

    Raises:
        UsageError: the name cannot be one, or the scopes do not fit the account.
        TakenError: there is a token of this name.
    """
    _check(new)
    secret = _PREFIX + secrets.token_urlsafe(32)
    token = ApiToken(
        name=new.whole_name,
        digest=_digest(secret),
        account=new.account,
        created_at=now,
        expires_at=new.expires_at,
        scopes=" ".join(_scopes(new)),
    )
    try:
        with writing(engine) as session:
            session.add(token)
            session.flush()
            info = _info(token)
            audit.record(session, by, "token.create", new.whole_name, None, _told(info), at=now)
    except IntegrityError:
        raise TakenError(
            f"there is a token {new.whole_name!r} already", "revoked names stay taken; choose another"
        ) from None
    return secret, info


def verify(engine: Engine, secret: str, now: int) -> Principal | None:
    """Who a secret belongs to; None when nobody, no longer, or revoked."""
    if not _FORM.fullmatch(secret):
        return None
    # Looking a digest up leaks nothing by its timing: nobody can choose digests near a real one.
    with looking(engine) as connection:
        token = connection.execute(_BY_DIGEST, {"digest": _digest(secret)}).one_or_none()
    if token is None or token.revoked_at is not None:
        return None
    note(engine, token[len(_COLUMNS) :])
    if token.expires_at is not None and token.expires_at <= now:
        return None
    return Principal(token.name, (Grant(token.account, frozenset(_in_order(token.scopes))),))


def revoke(engine: Engine, name: str, now: int, by: Principal | str | None = None) -> TokenInfo:
    """End a token at once; a revoked one stays revoked.

    Args:
        by: who ends it; the server's operator when None.

    Raises:
        UsageError: there is none of this name.
    """
    with writing(engine) as session:
        token = session.scalar(select(ApiToken).where(ApiToken.name == name))
        if token is None:
            raise UsageError(f"there is no token {name!r}", "see `hpctools-api token list`")
        if token.revoked_at is None:
            before = _told(_info(token))
            token.revoked_at = now
            audit.record(session, by or operator(), "token.revoke", name, before, _told(_info(token)), at=now)
        return _info(token)


def listed(engine: Engine) -> list[TokenInfo]:
    """All tokens by name, revoked ones too."""
    with reading(engine) as session:
        return [_info(token) for token in session.scalars(select(ApiToken).order_by(ApiToken.name))]


def operator() -> str:
    """Who works on the server itself, for the audit trail."""
    try:
        return f"operator:{pwd.getpwuid(os.getuid()).pw_name}"
    except KeyError:
        return f"operator:{os.getuid()}"


def _check(new: NewToken) -> None:
    if not _NAME.fullmatch(new.name):
        raise UsageError(
            f"{new.name!r} cannot be a token's name", "use letters, digits and . _ @ - (at most 128)"
        )
    if new.user is not None and not _USER.fullmatch(new.user):
        raise UsageError(f"{new.user!r} cannot be somebody's Unix account", "give their login name")
    if len(new.whole_name) > 128:
        raise UsageError(f"{new.whole_name!r} is too long", "128 characters are the most")
    if new.user is not None and new.account is None:
        raise UsageError("an administrator's token is nobody's own", "give their account, or no user")
    if not new.scopes:
        raise UsageError("a token without a scope opens nothing", f"scopes are {', '.join(SCOPES)}")
    if "admin" in new.scopes and new.account is not None:
        raise UsageError("the scope admin is for the whole service", "leave the account or the scope out")


def _scopes(new: NewToken) -> tuple[Scope, ...]:
    """All for an administrator; what each scope includes is written out."""
    wanted = set(new.scopes) if new.account is not None else set(SCOPES)
    if wanted != {"login"}:
        wanted.add("read")
    return tuple(scope for scope in SCOPES if scope in wanted)


def _info(token: ApiToken) -> TokenInfo:
    scopes = _in_order(token.scopes)
    return TokenInfo(token.name, token.account, token.created_at, token.expires_at, token.revoked_at, scopes)


def _in_order(scopes: str) -> tuple[Scope, ...]:
    return tuple(scope for scope in SCOPES if scope in scopes.split())


def _told(info: TokenInfo) -> dict[str, Any]:
    return asdict(info) | {"scopes": list(info.scopes)}


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()

from __future__ import annotations

import re

import pytest
from sqlalchemy import Engine, text

from api.auth.principal import SCOPES, Grant, Principal
from api.db.engine import reading
from api.services import audit
from api.services.tokens import NewToken, TokenInfo, create, issue, listed, operator, revoke, verify
from hpctools.errors import UsageError


def test_a_secret_opens_its_scope_and_is_not_stored(engine: Engine) -> None:
    secret = create(engine, "nlp-head", "nlp", 100)
    assert re.fullmatch(r"hpct_[\w-]{43}", secret)
    assert verify(engine, secret, 200) == Principal("nlp-head", (Grant("nlp", frozenset({"read"})),))
    with engine.connect() as connection:
        stored = str(connection.execute(text("SELECT * FROM api_token")).all())
    assert secret not in stored
    assert secret.removeprefix("hpct_") not in stored


def test_secrets_differ_and_wrong_ones_open_nothing(engine: Engine) -> None:
    secrets = [create(engine, f"t{n}", None, 100) for n in range(3)]
    assert len(set(secrets)) == 3
    for wrong in ("", secrets[0][:-1], f"{secrets[0]}A", secrets[0].swapcase(), "hpct_" + "é" * 43):
        assert verify(engine, wrong, 200) is None


def test_expiry_and_revocation_end_a_token(engine: Engine) -> None:
    secret = create(engine, "guest", "cv", 100, expires_at=300)
    assert verify(engine, secret, 299) is not None
    assert verify(engine, secret, 300) is None
    lasting = create(engine, "admin", None, 100)
    revoke(engine, "admin", 150)
    revoke(engine, "admin", 170)
    assert verify(engine, lasting, 160) is None
    assert listed(engine) == [
        TokenInfo("admin", None, 100, None, 150, SCOPES),
        TokenInfo("guest", "cv", 100, 300, None, ("read",)),
    ]


def test_names_are_unique_even_after_revocation(engine: Engine) -> None:
    create(engine, "head", "nlp", 100)
    revoke(engine, "head", 150)
    with pytest.raises(UsageError, match="there is a token 'head' already"):
        create(engine, "head", "nlp", 200)


@pytest.mark.parametrize("name", ["", "a b", "x" * 129, "a\n", "-x"])
def test_names_are_plain(engine: Engine, name: str) -> None:
    with pytest.raises(UsageError, match="cannot be a token's name"):
        create(engine, name, None, 100)


def test_revoking_what_is_not_there_says_so(engine: Engine) -> None:
    with pytest.raises(UsageError, match="there is no token 'x'"):
        revoke(engine, "x", 100)


def test_scopes_are_kept_and_each_includes_read(engine: Engine) -> None:
    secret = create(engine, "head", "nlp", 100, scopes=("write",))
    principal = verify(engine, secret, 200)
    assert principal is not None
    assert [scope for scope in SCOPES if principal.has(scope)] == ["read", "write"]


@pytest.mark.parametrize(("account", "scopes"), [("nlp", ("admin",)), ("nlp", ()), ("root", ("admin",))])
def test_what_a_token_cannot_open_is_refused(engine: Engine, account: str, scopes: tuple[str, ...]) -> None:
    with pytest.raises(UsageError, match="scope"):
        issue(engine, NewToken("x", account, scopes), "somebody", 100)  # type: ignore[arg-type]
    assert listed(engine) == []


def test_making_and_revoking_are_told_without_the_secret(engine: Engine) -> None:
    secret = create(engine, "guest", "cv", 100, expires_at=300)
    revoke(engine, "guest", 150)
    revoke(engine, "guest", 170)
    with engine.connect() as connection:
        told = connection.execute(
            text("SELECT at, principal, action, subject, before, after FROM audit_entry ORDER BY id")
        ).all()
    alive = (
        '{"account":"cv","created_at":100,"expires_at":300,"name":"guest","revoked_at":null,'
        '"scopes":["read"]}'
    )
    ended = alive.replace('"revoked_at":null', '"revoked_at":150')
    assert [tuple(row) for row in told] == [
        (100, operator(), "token.create", "guest", "null", alive),
        (150, operator(), "token.revoke", "guest", alive, ended),
    ]
    assert secret not in str(told)
    with reading(engine) as session:
        assert audit.verify(session) is None

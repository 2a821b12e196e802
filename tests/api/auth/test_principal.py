from __future__ import annotations

import asyncio
from typing import Any

import pytest

from api.auth.principal import SCOPES, Grant, Principal, Scope
from api.deps import require, visible_account
from api.problems import ProblemError


def principal(*grants: tuple[str | None, tuple[Scope, ...]]) -> Principal:
    return Principal("x", tuple(Grant(account, frozenset(scopes)) for account, scopes in grants))


@pytest.mark.parametrize(
    ("account", "scopes", "has"),
    [
        ("nlp", ("read",), ("read",)),
        ("nlp", ("write",), ("read", "write")),
        ("nlp", ("enforce",), ("read", "enforce")),
        (None, ("admin",), SCOPES),
        # What no token can be: an administrator of a part of the site. It is none.
        ("nlp", ("admin",), ("read", "write", "enforce", "login")),
        # A login node tells who is there, and reads nothing.
        ("nlp", ("login",), ("login",)),
        ("nlp", (), ()),
    ],
)
def test_what_scopes_include(account: str | None, scopes: tuple[Scope, ...], has: tuple[Scope, ...]) -> None:
    assert tuple(scope for scope in SCOPES if principal((account, scopes)).has(scope)) == has


def test_a_scope_on_one_account_is_none_on_another(site: Any) -> None:
    both = principal(("nlp-lab-a", ("write",)), ("cv", ("read",)))
    may = {
        (scope, name): both.may(scope, site, name)
        for scope in ("read", "write")
        for name in ("nlp", "nlp-lab-a", "nlp-lab-b", "cv", "cv-lab-a")
    }
    assert {key for key, value in may.items() if value} == {
        ("read", "nlp-lab-a"),
        ("write", "nlp-lab-a"),
        ("read", "cv"),
        ("read", "cv-lab-a"),
    }


async def _let_in(scope: Scope, asking: Principal) -> Principal:
    return await require(scope)(asking)


def test_a_route_that_writes_opens_only_what_may_be_written(site: Any) -> None:
    asking = principal(("nlp-lab-a", ("write",)), ("cv", ("read",)))
    writer = asyncio.run(_let_in("write", asking))
    assert visible_account(site, writer, "nlp-lab-a").name == "nlp-lab-a"
    statuses = {}
    for name in ("cv", "dl", "nlp", "nothing"):
        with pytest.raises(ProblemError) as refused:
            visible_account(site, writer, name)
        statuses[name] = refused.value.status
    assert statuses == {"cv": 403, "dl": 404, "nlp": 404, "nothing": 404}


@pytest.mark.parametrize(
    ("name", "user"),
    [
        ("oidc:nlp1", "nlp1"),
        ("user:nlp1:laptop", "nlp1"),
        ("nlp1", None),
        ("operator:nlp1", None),
    ],
)
def test_who_somebody_is_by_their_name(name: str, user: str | None) -> None:
    assert Principal(name, ()).user == user


def test_who_lacks_a_scope_everywhere_is_refused_before_anything_is_read() -> None:
    with pytest.raises(ProblemError, match="Your token lacks the scope enforce for this"):
        asyncio.run(_let_in("enforce", principal(("nlp", ("write",)))))

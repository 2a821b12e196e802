"""Names as the service takes them: whatever a session or an account is called."""

from __future__ import annotations

import doctest
import re
import typing

from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from api.schemas.login import Claim, User
from hpctools.login import names


@given(st.text(max_size=200))
def test_the_service_takes_all_of_them(text: str) -> None:
    TypeAdapter(typing.cast(typing.Any, Claim)).validate_python(names.claim_of(text))
    TypeAdapter(typing.cast(typing.Any, User)).validate_python(names.user_of(text))


@given(st.from_regex(re.compile(r"[a-z_][a-z0-9_.-]{0,31}", re.ASCII), fullmatch=True))
def test_a_unix_account_stays_what_it_is(account: str) -> None:
    assert names.user_of(account) == account


def test_the_examples() -> None:
    assert doctest.testmod(names).failed == 0

"""Names and numbers of accounts, and a directory that is away."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from hpctools.login.agent.accounts import HOLDS_SECONDS, Answers, number_of, user_name


class Directory:
    """Accounts by number, and how often it was asked."""

    def __init__(self) -> None:
        self.accounts = {1001: "anna"}
        self.asked = 0
        self.now = 0.0
        self.known: Answers[int, str] = Answers(self.ask, lambda: self.now)

    def ask(self, uid: int) -> str:
        self.asked += 1
        return self.accounts[uid]


def test_a_directory_that_is_away_for_a_moment_renames_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    def away(uid: int) -> None:
        raise KeyError(uid)

    monkeypatch.setattr("pwd.getpwuid", away)
    assert user_name(4_000_001) == "4000001"
    monkeypatch.setattr("pwd.getpwuid", lambda uid: SimpleNamespace(pw_name="anna"))
    assert user_name(4_000_001) == "anna"


def test_it_is_asked_now_and_then_and_renamed_accounts_have_their_new_name() -> None:
    site = Directory()
    assert [site.known(1001) for _ in range(100)] == ["anna"] * 100
    site.accounts[1001] = "anna.smith"
    site.now += HOLDS_SECONDS
    assert (site.known(1001), site.asked) == ("anna.smith", 2)


def test_what_it_said_last_holds_while_it_is_away() -> None:
    site = Directory()
    site.known(1001)
    del site.accounts[1001]
    site.now += HOLDS_SECONDS
    assert [site.known(1001), site.known(1001)] == ["anna", "anna"]
    assert site.asked == 2
    with pytest.raises(KeyError):
        site.known(1002)


def test_people_who_make_up_names_fill_no_memory() -> None:
    """Directories that take `Anna` for `anna` know each of them."""
    known: Answers[int, str] = Answers(str)
    for uid in range(10_000):
        known(uid)
    assert len(known._said) <= 4096


def test_the_number_of_an_account_is_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr("pwd.getpwnam", lambda user: (asked.append(user), SimpleNamespace(pw_uid=7))[1])
    assert [number_of("a-second-name"), number_of("a-second-name")] == [7, 7]
    assert asked == ["a-second-name"]

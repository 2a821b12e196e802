"""Two hundred people at the same instant: real sshds with our PAM stack, an agent each, and the service."""

from __future__ import annotations

import pytest

from bench.login_logins import BALANCED_ON, NODES, four_nodes, from_even

PEOPLE = 200


@pytest.mark.parametrize(
    "balance_on",
    [
        # Four nodes are one machine here, whose processors others keep busy, too.
        pytest.param("[sessions]", marks=pytest.mark.slow, id="sessions"),
        pytest.param(BALANCED_ON, marks=pytest.mark.long, id="as-the-site"),
    ],
)
@pytest.mark.timeout(1500)
def test_two_hundred_people_at_once_all_get_in_and_are_spread_evenly(balance_on: str) -> None:
    """`at_once` raises when somebody does not get in; all places are given back when they leave."""
    with four_nodes(PEOPLE, balance_on) as front:
        if balance_on == BALANCED_ON:
            front.rested()
        logins = front.at_once(front.log_in, PEOPLE)
        spread = front.sessions(PEOPLE)
        front.leave()
    assert len(logins) == PEOPLE
    assert sorted(spread) == sorted(NODES)
    assert from_even(spread) <= 1, spread

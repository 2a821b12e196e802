"""Two hundred people at the same instant: real sshds with our PAM stack, an agent each, and the service."""

from __future__ import annotations

import pytest

from bench.login_logins import NODES, four_nodes, from_even

PEOPLE = 200


@pytest.mark.long
@pytest.mark.timeout(1500)
def test_two_hundred_people_at_once_all_get_in_and_are_spread_evenly() -> None:
    """`at_once` raises when somebody does not get in; all places are given back when they leave."""
    with four_nodes(PEOPLE) as front:
        front.rested()
        logins = front.at_once(front.log_in, PEOPLE)
        spread = front.sessions(PEOPLE)
        front.leave()
    assert len(logins) == PEOPLE
    assert sorted(spread) == sorted(NODES)
    assert from_even(spread) <= 1, spread

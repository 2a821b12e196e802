"""Two machines under one name, and one machine whose agent begins anew."""

from __future__ import annotations

import pytest

from api.services.login_reports import Answer
from tests.api.services.test_login import HEARTBEAT, Desk, desk, there

__all__ = ["desk"]


def tell(desk: Desk, agent: str, *claims: str) -> Answer:
    address = "10.0.0.1" if agent.startswith("old") else "10.0.0.2"
    return desk.report("login-1", *(there(claim) for claim in claims), agent=agent, address=address)


def test_of_two_machines_of_one_name_the_later_one_is_heard_and_nobody_wipes_its_leases(desk: Desk) -> None:
    assert tell(desk, "old", "1-1", "2-1").taken
    assert tell(desk, "new", "7-1").taken
    for _ in range(6):
        desk.clock.now += HEARTBEAT // 3
        assert tell(desk, "old", "1-1", "2-1") == Answer(False, other="10.0.0.2")
        assert tell(desk, "new", "7-1", "8-1").taken
        assert desk.claims() == ["7-1", "8-1"]
        assert desk.open("login-2", "9-1") is not None


def test_the_other_machine_is_heard_again_when_it_is_the_only_one(desk: Desk) -> None:
    tell(desk, "old", "1-1")
    tell(desk, "new", "7-1")
    desk.clock.now += HEARTBEAT - 1
    assert not tell(desk, "old", "1-1").taken
    desk.clock.now += 1
    assert tell(desk, "old", "1-1").taken
    assert desk.claims() == ["1-1"]


def test_the_later_machine_is_heard_with_its_first_report_after_a_silence(desk: Desk) -> None:
    """A silence of its network must not turn the two: the other one was told that it does not count."""
    for agent in ("oldest", "old", "new"):
        tell(desk, agent, f"{agent}-1")
    for _ in range(2):
        desk.clock.now += HEARTBEAT
        assert tell(desk, "old", "old-1").taken
        assert tell(desk, "oldest", "oldest-1") == Answer(False, other="10.0.0.1")
        assert tell(desk, "new", "new-1").taken
        for earlier in ("old", "oldest"):
            assert tell(desk, earlier) == Answer(False, other="10.0.0.2")
        assert desk.claims() == ["new-1"]


@pytest.mark.parametrize("agents", [2, 12])
def test_an_agent_that_begins_anew_is_heard_at_once_however_often(desk: Desk, agents: int) -> None:
    """A reboot, or another release of it; what it told before and comes late is not taken."""
    for number in range(agents):
        assert tell(desk, f"agent-{number}", f"{number}-1").taken
        assert desk.claims() == [f"{number}-1"]
    assert not tell(desk, f"agent-{agents - 2}", "0-1").taken
    assert tell(desk, f"agent-{agents - 1}", f"{agents - 1}-1").taken

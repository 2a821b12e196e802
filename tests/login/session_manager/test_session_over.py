"""A Session Manager session that is over counts until the next sweep, on a node without an agent, too."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from botocore.stub import Stubber

from hpctools.cli import session_manager_lambda
from hpctools.errors import BudgetError, HpctoolsError, UnreachableError
from hpctools.hyperpod.operations.aws import Service
from tests.login.agent.made_agent import FakeService
from tests.login.session_manager.test_session_manager import (
    GRANTED,
    REFUSED,
    ROLE,
    SESSION,
    account,
    ending,
    enforcement,
    listed,
    page,
    ssm,
)

__all__ = ["account", "ssm"]
LEASE = "/v1/login/leases/login-1/"
MADE = {"HPCTOOLS_LOGIN_NODES": '{"i-0aaa111": "login-1"}', "AWS_REGION": "eu-central-1"}


def deleted(service: FakeService) -> list[str]:
    return [path.removeprefix(LEASE) for method, path, _ in service.asked if method == "DELETE"]


@pytest.mark.parametrize("answer", [{}, BudgetError("api refuses (404): no lease")])
def test_the_next_sweep_says_so_once_and_before_it_asks(ssm: tuple[Service, Stubber], answer: Any) -> None:
    """Who has left one gets another; that its node has said so before is no trouble."""
    seen: dict[str, str] = {}
    listed(ssm[1], page(("anna@uni-1", ROLE, 400), ("two", ROLE, 300)))
    assert len(enforcement(ssm[0], FakeService(GRANTED), listed=seen).sweep()) == 2
    listed(ssm[1], page(("two", ROLE, 360)))
    service = FakeService(answer, GRANTED)
    assert enforcement(ssm[0], service, listed=seen).sweep() == {"two": "granted"}
    assert [(method, path) for method, path, _ in service.asked] == [
        ("DELETE", f"{LEASE}anna.uni-1"),
        ("POST", "/v1/login/leases"),
    ]
    listed(ssm[1], page(("two", ROLE, 420)))
    service = FakeService(GRANTED)
    enforcement(ssm[0], service, listed=seen).sweep()
    assert deleted(service) == []


def test_nobody_says_so_of_what_has_no_lease(ssm: tuple[Service, Stubber]) -> None:
    """What only forwards a port is sshd's."""
    seen: dict[str, str] = {}
    service = FakeService(GRANTED)
    for sessions in (page(("tunnel", ROLE, 60), document="AWS-StartSSHSession"), page()):
        listed(ssm[1], sessions)
        enforcement(ssm[0], service, listed=seen).sweep()
    assert service.asked == []


def test_a_list_that_aws_does_not_give_says_nothing(ssm: tuple[Service, Stubber]) -> None:
    seen: dict[str, str] = {}
    service = FakeService(GRANTED)
    listed(ssm[1], page(("one", ROLE, 60)))
    enforcement(ssm[0], service, listed=seen).sweep()
    ssm[1].add_client_error("describe_sessions", "AccessDeniedException", "not yours")
    with pytest.raises(HpctoolsError, match="not yours"):
        enforcement(ssm[0], service, listed=seen).sweep()
    assert deleted(service) == []


def test_a_service_that_is_away_is_not_waited_for_again(ssm: tuple[Service, Stubber]) -> None:
    seen = {f"old-{number}": "i-0aaa111" for number in range(3)}
    listed(ssm[1], page(("one", ROLE, 60)))
    service = FakeService(UnreachableError("gone"))
    with pytest.raises(HpctoolsError, match="gone"):
        enforcement(ssm[0], service, listed=seen).sweep()
    assert len(service.asked) == 1


@pytest.mark.parametrize("answer", [{}, BudgetError("api refuses (404): no lease"), UnreachableError("gone")])
def test_what_is_ended_counts_no_longer(ssm: tuple[Service, Stubber], answer: Any) -> None:
    """Somebody had it ended: it has a lease, which a node without an agent would have for minutes."""
    ending(ssm[1], "uni-0a1b2c3d")
    service = FakeService(REFUSED, REFUSED, answer)
    assert enforcement(ssm[0], service).admit(SESSION) == "ended"
    assert service.asked[2:] == [("DELETE", f"{LEASE}uni-0a1b2c3d", None)]


def test_what_aws_does_not_end_counts_on(ssm: tuple[Service, Stubber]) -> None:
    ssm[1].add_client_error("terminate_session", "AccessDeniedException", "not yours")
    service = FakeService(REFUSED)
    with pytest.raises(HpctoolsError, match="not yours"):
        enforcement(ssm[0], service).admit(SESSION)
    assert [method for method, _, _ in service.asked] == ["POST", "POST"]


@pytest.mark.parametrize(
    ("answer", "administrators", "outcome"),
    [(GRANTED, frozenset(), "granted"), (REFUSED, frozenset({"nlp1"}), "an administrator's")],
)
def test_what_an_event_told_of_and_no_sweep_ever_saw_counts_until_the_next_one(
    ssm: tuple[Service, Stubber], answer: Any, administrators: frozenset[str], outcome: str
) -> None:
    """It was over within a minute."""
    seen: dict[str, str] = {}
    begun = enforcement(ssm[0], FakeService(answer), listed=seen, administrators=administrators)
    assert begun.admit(SESSION) == outcome
    for over in ([f"{LEASE}uni-0a1b2c3d"], []):
        listed(ssm[1], page())
        service = FakeService({})
        assert enforcement(ssm[0], service, listed=seen).sweep() == {}
        assert [f"{LEASE}{each}" for each in deleted(service)] == over


def test_an_event_of_what_has_no_lease_leaves_nothing_to_say(ssm: tuple[Service, Stubber]) -> None:
    """What only forwards a port, what was ended, and what came while the service was away."""
    seen: dict[str, str] = {}
    ending(ssm[1], "uni-0a1b2c3d")
    tunnel = replace(SESSION, document="AWS-StartSSHSession")
    for session, answers, outcome in (
        (tunnel, [GRANTED], "only forwards"),
        (SESSION, [REFUSED, REFUSED, {}], "ended"),
        (SESSION, [UnreachableError("gone")], "open without the service"),
    ):
        assert enforcement(ssm[0], FakeService(*answers), listed=seen).admit(session) == outcome
    assert seen == {}


@pytest.mark.usefixtures("account")
def test_a_warm_function_remembers_its_last_sweep() -> None:
    first, second = (session_manager_lambda.make_enforcement(MADE) for _ in range(2))
    assert first.listed is second.listed

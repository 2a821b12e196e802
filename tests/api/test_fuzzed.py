"""Everything that the OpenAPI document describes, with input that fits it and with input that does not fit.

No answer may be an error of the service's own, none may differ from what is described, and wrong input
must be refused.
"""

from __future__ import annotations

import logging
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode
from schemathesis.core.failures import FailureGroup
from schemathesis.specs.openapi.checks import ignored_auth, positive_data_acceptance

WHO: dict[str, tuple[str | None, tuple[Any, ...]] | None] = {
    "nobody": None,
    "reader": ("nlp", ("read",)),
    "administrator": (None, ()),
}
# Who asks is fixed here: whether that is looked at is for the authorization tests. No schema can say which
# cursors a list has given, which months have begun or which amounts are left to split: 422 tells it.
EXCLUDED = [ignored_auth, positive_data_acceptance]
FEW, MANY = 5, 100
# How a list of more than 20,000 is refused, before anybody reads it.
TOO_LARGE = "413"

REPORT = {
    "agent": "0123456789abcdef", "sequence": 1, "sample_age": 0.5, "address": "10.0.0.5",
    "cpus": 16, "cpu": 0.25, "memory": 0.5, "sessions": [],
}  # fmt: skip


class Idle:
    """A scheduler that begins nothing: what was asked for stays queued."""

    def start(self) -> None:
        pass

    def stop(self, timeout: float) -> None:
        pass

    def wake(self) -> None:
        pass


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)


@pytest.mark.timeout(1500)
@pytest.mark.parametrize("who", WHO)
def test_no_input_makes_it_fail_or_say_what_is_not_described(
    november_service: Any, who: str, request: pytest.FixtureRequest
) -> None:
    november_service.app.state.scheduler = Idle()
    # Without a login node there is no place on one, which is a 503; the name is none of the examples'.
    told = november_service.client("root", "login").put("/v1/login/nodes/unfuzzed/report", json=REPORT)
    assert told.status_code == 200
    schema = schemathesis.openapi.from_asgi("/openapi.json", november_service.app)
    refusals = schema.config.checks.negative_data_rejection
    refusals.expected_statuses = [*refusals.expected_statuses, TOO_LARGE]
    holder = WHO[who]
    headers = {}
    if holder is not None:
        token = november_service.token(holder[0], scopes=holder[1] or ("read",))
        headers = {"Authorization": f"Bearer {token}"}
    examples = MANY if request.config.getoption("--long") else FEW
    failed = {}
    for found in schema.get_all_operations():
        operation = found.ok()
        try:
            fuzz(operation, headers, examples)
        except FailureGroup as error:
            failed[operation.label] = [str(failure) for failure in error.exceptions]
    assert not failed, "\n".join(f"{label}: {each}" for label, told in failed.items() for each in told)


def fuzz(operation: Any, headers: dict[str, str], examples: int) -> None:
    cases = [operation.as_strategy(generation_mode=mode) for mode in GenerationMode]

    @settings(
        max_examples=examples,
        deadline=None,
        database=None,
        derandomize=True,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(st.one_of(cases))
    def run(case: Any) -> None:
        case.call_and_validate(headers=headers, excluded_checks=EXCLUDED, timeout=100)

    run()

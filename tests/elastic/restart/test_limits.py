"""What restart mode takes from a run's policy, and what holds without one."""

from __future__ import annotations

from typing import Any

import pytest

from hpctools.elastic.restart.limits import BLIND_SNOOZE_SECONDS, GRACEFUL_SECONDS, Limits
from hpctools.elastic.spec import RunSpec


def limits(**fields: Any) -> Limits:
    return Limits.of(RunSpec("r-1", "r", "u", "", 1, 2, 1, ("x",), "/", (), "", "", mode="restart", **fields))


@pytest.mark.parametrize(("wanted", "has"), [(None, GRACEFUL_SECONDS), (0.0, 0.0), (5.0, 5.0)])
def test_no_time_to_end_is_none_at_all_and_not_the_default(wanted: float | None, has: float) -> None:
    assert limits(policy={"graceful_shutdown_s": wanted}).graceful == has


@pytest.mark.parametrize(("wanted", "has"), [(None, BLIND_SNOOZE_SECONDS), (0.0, 0.0), (5.0, 5.0)])
def test_who_wants_no_snooze_has_none_also_for_scripts_that_ask_for_no_events(
    wanted: float | None, has: float
) -> None:
    assert limits(policy={"scale_up_snooze_s": wanted}).blind_snooze == has
    assert limits(policy={"scale_up_snooze_s": wanted}).patience.snooze == (wanted or 0.0)
    assert limits().blind_snooze == BLIND_SNOOZE_SECONDS


def test_a_run_policys_counters_hold_and_without_one_there_is_no_code() -> None:
    bare, stated = limits(), limits(recovery={"runPolicy": {"jobMaxRetryCount": 2}})
    assert (bare.restarts, bare.has_policy) == (3, False)
    assert (stated.restarts, stated.retries, stated.has_policy) == (3, 2, True)
    full = limits(
        recovery={"runPolicy": {"restartPolicy": {"maxFullJobRestarts": 0, "evalPeriodSeconds": 9}}}
    )
    assert (full.restarts, full.retries, full.period, full.has_policy) == (0, 50, 9.0, True)


@pytest.mark.parametrize("key", ["maxFullJobRestarts", "evalPeriodSeconds", "jobMaxRetryCount"])
def test_a_key_without_a_value_leaves_what_holds_without_it(key: str) -> None:
    """In YAML `maxFullJobRestarts:` is None; hp-submit takes it."""
    policy = {"mode": "enforce", "restartPolicy": {key: None}, key: None}
    stated = limits(recovery={"runPolicy": policy})
    assert (stated.restarts, stated.retries, stated.period) == (3, 50, 3600.0)

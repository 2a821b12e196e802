"""Rules that stand in a policy and could never find anything: who wrote them would count on them in vain."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from hpctools.elastic.recovery.settings import LogRule, Recovery


def never_find(values: Mapping[str, Any], recovery: Recovery) -> list[str]:
    """What is wrong with rules that have nothing to go by.

    Asked when a run is submitted, and of no policy that a run has already.

    Args:
        values: the policy's, which `recovery.parse` has made a `recovery` of.

    Returns:
        A line for each such rule, which begins with its place in the file.
    """
    return [*_unset(values.get("metrics") or {}), *_log_rules(values, recovery)]


def _unset(metrics: Mapping[str, Any]) -> Iterator[str]:
    """Of `crash:` with nothing behind it YAML makes a null, and that is as if it was not there."""
    for name in (name for name, value in metrics.items() if value is None and name != "rules"):
        yield f"metrics.{name}: has no value, so it is off; write true for its defaults, or leave it out"


def _log_rules(values: Mapping[str, Any], recovery: Recovery) -> Iterator[str]:
    for place, rule in zip(places_of_logs(values), recovery.logs, strict=True):
        for name, pattern in (("logPattern", rule.pattern), ("stopPattern", rule.stop_pattern or "")):
            if pattern.endswith("\n") and not re.compile(pattern).flags & re.VERBOSE:
                yield (
                    f"{place}.{name}: ends with a line break, which no line has, so it never matches; "
                    "write it on one line, in quotes (YAML's | and > add the break)"
                )
        if not _has_a_reason(rule):
            yield (
                f"{place}: nothing that is printed would be a finding; give faultOnMatch: true, "
                "expectedStartCutOffInSeconds, expectedRecurringFrequencyInSeconds, or capture a number"
            )


def places_of_logs(values: Mapping[str, Any]) -> list[str]:
    """Where each log rule of a policy stands, in the order of `parse`: those of runPolicy last."""
    return [*_places(values, ""), *_places(values.get("runPolicy") or {}, "runPolicy.")]


def _places(values: Mapping[str, Any], path: str) -> Iterator[str]:
    rules = values.get("logMonitoringConfiguration") or ()
    return (f"{path}logMonitoringConfiguration[{place}]" for place in range(len(rules)))


def _has_a_reason(rule: LogRule) -> bool:
    timed = rule.start_s is not None or rule.every_s is not None
    return timed or rule.fault or bool(re.compile(rule.pattern).groups)

"""From a policy file's values to a `Recovery`: strict, and all problems at once."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from hpctools.elastic.recovery.fields import Fields
from hpctools.elastic.recovery.settings import (
    MODES,
    OPERATORS,
    RUNGS,
    Crash,
    Hang,
    LogRule,
    MetricRule,
    NonFinite,
    Recovery,
    RestartPolicy,
    SlowRank,
    Spike,
    Stall,
    Threshold,
)
from hpctools.errors import ElasticError

PARTS = ("runPolicy", "logMonitoringConfiguration", "metrics")
"""Keys of a policy file that are ours to read."""

_RUN = (
    "mode",
    "jobMaxRetryCount",
    "restartPolicy",
    "logMonitoringConfiguration",
    "rollBackSteps",
    "skipBatch",
)
_RESTART = (
    "evalPeriodSeconds",
    "numRestartBeforeFullJobRestart",
    "maxFullJobRestarts",
    "maxNumRepeatOffendersToAvoid",
)
_THRESHOLD = ("metricThreshold", "operator", "metricEvaluationDataPoints")
_LOG = (
    "name",
    "logPattern",
    "expectedStartCutOffInSeconds",
    "expectedRecurringFrequencyInSeconds",
    *_THRESHOLD,
    "stopPattern",
    "faultOnMatch",
    "do",
)
_FOREIGN = {
    "cleanPodPolicy": "there are no pods; leave it out: all jobs of a run end with it",
    "activeDeadlineSeconds": "give sbatch's --time",
    "ttlSecondsAfterFinished": "leave it out: Slurm forgets ended jobs by itself",
}

Part = TypeVar("Part")


def parse(values: Mapping[str, Any], source: str = "the policy") -> Recovery:
    """The recovery policy in a policy file's values; an empty mapping watches for nothing.

    Args:
        values: `runPolicy`, `logMonitoringConfiguration` (also within runPolicy, where HyperPod has it) and
            `metrics`, as YAML reads them.
        source: the file's name, for messages.

    Raises:
        ElasticError: something in it is not known or makes no sense; the message has a line for each.
    """
    problems: list[str] = []
    recovery = _recovery(Fields(values, "", problems, PARTS))
    if problems:
        raise ElasticError("\n".join(f"{source}: {problem}" for problem in problems))
    return recovery


def _recovery(whole: Fields) -> Recovery:
    run = _section(whole, "runPolicy", _RUN)
    logs = _rules(whole, "logMonitoringConfiguration", _log_rule) + _rules(
        run, "logMonitoringConfiguration", _log_rule
    )
    _distinct(whole, [rule.name for rule in logs], "logMonitoringConfiguration")
    metrics = _section(
        whole,
        "metrics",
        ("crash", "stalledStep", "hang", "nonFinite", "lossSpike", "slowRank", "rules"),
    )
    rules = _rules(metrics, "rules", _metric_rule)
    _distinct(metrics, [rule.name for rule in rules], "rules")
    return Recovery(
        enforce=run.choice("mode", "log", MODES) == "enforce",
        retries=run.count("jobMaxRetryCount", Recovery.retries, least=0),
        restart=_restart_policy(_section(run, "restartPolicy", _RESTART)),
        logs=logs,
        metrics=rules,
        crash=_part(metrics, "crash", ("do",), _crash),
        stall=_part(metrics, "stalledStep", ("ratio", "seconds", "do"), _stall),
        hang=_part(metrics, "hang", ("seconds", "do"), _hang),
        non_finite=_part(metrics, "nonFinite", ("metrics", "do"), _non_finite),
        spike=_part(
            metrics,
            "lossSpike",
            ("window", "ratio", "deviations", "metric", "metricEvaluationDataPoints", "do"),
            _spike,
        ),
        slow=_part(metrics, "slowRank", ("ratio", "metric", "metricEvaluationDataPoints", "do"), _slow),
        back=run.count("rollBackSteps", Recovery.back),
        skip=run.flag("skipBatch", Recovery.skip),
    )


def _restart_policy(fields: Fields) -> RestartPolicy:
    return RestartPolicy(
        fields.number("evalPeriodSeconds", RestartPolicy.period_s),
        fields.count("numRestartBeforeFullJobRestart", RestartPolicy.partial, least=0),
        fields.count("maxFullJobRestarts", RestartPolicy.full, least=0),
        fields.count("maxNumRepeatOffendersToAvoid", RestartPolicy.offenders, least=0),
    )


def _log_rule(fields: Fields) -> LogRule:
    pattern = _pattern(fields, "logPattern")
    groups = re.compile(pattern).groups
    if groups > 1:
        fields.wrong("logPattern", f"has {groups} groups", "keep one; write (?:...) for the others")
    threshold = _threshold(fields)
    if threshold is not None and groups == 0:
        fields.wrong(
            "metricThreshold", "there is no number to compare", "capture it: loss=(\\S+) in logPattern"
        )
    return LogRule(
        name=fields.text("name"),
        pattern=pattern,
        start_s=fields.maybe("expectedStartCutOffInSeconds"),
        every_s=fields.maybe("expectedRecurringFrequencyInSeconds"),
        threshold=threshold,
        stop_pattern=_pattern(fields, "stopPattern") if fields.has("stopPattern") else None,
        fault=fields.flag("faultOnMatch", False),
        do=fields.words("do", LogRule.do, RUNGS),
    )


def _metric_rule(fields: Fields) -> MetricRule:
    threshold = _threshold(fields)
    if threshold is None:
        fields.wrong("metricThreshold", "is missing", "give a number, and operator")
    return MetricRule(
        fields.text("name"),
        fields.text("metric"),
        threshold or Threshold(0.0, "gt"),
        fields.words("do", MetricRule.do, RUNGS),
    )


def _threshold(fields: Fields) -> Threshold | None:
    given = [key for key in _THRESHOLD if fields.has(key)]
    if not given:
        return None
    for key, other in (("metricThreshold", "operator"), ("operator", "metricThreshold")):
        if not fields.has(key):
            fields.wrong(key, f"is missing beside {given[0]}", f"give both {key} and {other}")
            return None
    return Threshold(
        fields.number("metricThreshold", 0.0, above=None),
        fields.choice("operator", "gt", OPERATORS),
        fields.count("metricEvaluationDataPoints", 1),
    )


def _pattern(fields: Fields, key: str) -> str:
    text = fields.text(key)
    try:
        re.compile(text)
    except (re.error, OverflowError, RecursionError) as error:
        fields.wrong(key, f"{text!r} is no regular expression: {error}", "see Python's re")
        return ""
    return text


def _crash(fields: Fields) -> Crash:
    return Crash(fields.words("do", Crash.do, RUNGS))


def _stall(fields: Fields) -> Stall:
    return Stall(
        fields.number("ratio", Stall.ratio, above=1),
        fields.number("seconds", Stall.seconds),
        fields.words("do", Stall.do, RUNGS),
    )


def _hang(fields: Fields) -> Hang:
    return Hang(fields.number("seconds", Hang.seconds), fields.words("do", Hang.do, RUNGS))


def _non_finite(fields: Fields) -> NonFinite:
    return NonFinite(fields.words("metrics", NonFinite.metrics), fields.words("do", NonFinite.do, RUNGS))


def _spike(fields: Fields) -> Spike:
    ratio, deviations = fields.maybe("ratio", above=1), fields.maybe("deviations")
    return Spike(
        window=fields.count("window", Spike.window, least=5),
        ratio=ratio,
        deviations=Spike.deviations if ratio is None and deviations is None else deviations,
        points=fields.count("metricEvaluationDataPoints", Spike.points),
        metric=fields.text("metric", Spike.metric),
        do=fields.words("do", Spike.do, RUNGS),
    )


def _slow(fields: Fields) -> SlowRank:
    return SlowRank(
        fields.number("ratio", SlowRank.ratio, above=1),
        fields.count("metricEvaluationDataPoints", SlowRank.points),
        fields.text("metric", SlowRank.metric),
        fields.words("do", SlowRank.do, RUNGS),
    )


def _section(parent: Fields, key: str, known: tuple[str, ...]) -> Fields:
    path = f"{parent.path}.{key}" if parent.path else key
    value = parent.value(key)
    return Fields({} if value is None else value, path, parent.problems, known, _FOREIGN)


def _part(parent: Fields, key: str, known: tuple[str, ...], read: Callable[[Fields], Part]) -> Part | None:
    """A part that is off when it is not there or false; `true` or `{}` takes its defaults."""
    value = parent.value(key)
    if value is None or value is False:
        return None
    if not isinstance(value, bool | Mapping):
        parent.wrong(key, f"{value!r} is neither true nor false", "write true, or its settings under it")
        return None
    path = f"{parent.path}.{key}"
    return read(Fields({} if value is True else value, path, parent.problems, known, _FOREIGN))


def _rules(parent: Fields, key: str, read: Callable[[Fields], Part]) -> tuple[Part, ...]:
    values = parent.value(key)
    if values is None:
        return ()
    if not isinstance(values, list | tuple):
        parent.wrong(key, f"{values!r} is no list", "write `- name: ...` items")
        return ()
    known = _LOG if read is _log_rule else ("name", "metric", *_THRESHOLD, "do")
    path = f"{parent.path}.{key}" if parent.path else key
    return tuple(
        read(Fields(value, f"{path}[{place}]", parent.problems, known)) for place, value in enumerate(values)
    )


def _distinct(fields: Fields, names: list[str], key: str) -> None:
    for name in sorted({name for name in names if names.count(name) > 1}):
        fields.wrong(key, f"two rules are called {name!r}", "give each rule a name of its own")

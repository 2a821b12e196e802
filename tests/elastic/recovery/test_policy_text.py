"""Policies are read strictly: what is meant comes out whole, what cannot be meant is told with a way out."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from hpctools.elastic.recovery import EXIT_CODES, EXIT_FULL_RESTARTS, EXIT_GOES_ON, EXIT_RETRIES, PARTS, parse
from hpctools.elastic.recovery.lines import LineRules
from hpctools.elastic.recovery.settings import (
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

EVERYTHING = """
runPolicy:
  mode: enforce
  jobMaxRetryCount: 20
  rollBackSteps: 5
  skipBatch: false
  restartPolicy:
    evalPeriodSeconds: 21600
    numRestartBeforeFullJobRestart: 4
    maxFullJobRestarts: 2
    maxNumRepeatOffendersToAvoid: 3
  logMonitoringConfiguration:
    - name: JobStart
      logPattern: '.*Experiment configuration.*'
      expectedStartCutOffInSeconds: 120
    - name: LowThroughput
      logPattern: '.*samples/sec: (\\S+)'
      metricThreshold: 80.5
      operator: lteq
      metricEvaluationDataPoints: 25
      stopPattern: '.*training is over.*'
      do: [replaceNode]
logMonitoringConfiguration:
  - name: Oom
    logPattern: '.*OutOfMemoryError.*'
    faultOnMatch: true
    expectedRecurringFrequencyInSeconds: 0.5
metrics:
  crash: {do: [restartProcess, fail]}
  stalledStep: {ratio: 4.5, seconds: 3}
  hang: {seconds: 90}
  nonFinite: {metrics: [loss, grad_norm]}
  lossSpike: {ratio: 3, metricEvaluationDataPoints: 2, window: 20}
  slowRank: {ratio: 1.25, metricEvaluationDataPoints: 7}
  rules:
    - {name: gradients, metric: grad_norm, metricThreshold: 1.0e+3, operator: gt}
"""


def test_everything_that_can_be_said() -> None:
    assert parse(yaml.safe_load(EVERYTHING)) == Recovery(
        enforce=True,
        retries=20,
        restart=RestartPolicy(21600.0, 4, 2, 3),
        logs=(
            LogRule("Oom", ".*OutOfMemoryError.*", every_s=0.5, fault=True),
            LogRule("JobStart", ".*Experiment configuration.*", start_s=120.0),
            LogRule(
                "LowThroughput",
                r".*samples/sec: (\S+)",
                threshold=Threshold(80.5, "lteq", 25),
                stop_pattern=".*training is over.*",
                do=("replaceNode",),
            ),
        ),
        metrics=(MetricRule("gradients", "grad_norm", Threshold(1000.0, "gt")),),
        crash=Crash(("restartProcess", "fail")),
        stall=Stall(4.5, 3.0),
        hang=Hang(90.0),
        non_finite=NonFinite(("loss", "grad_norm")),
        spike=Spike(window=20, ratio=3.0, deviations=None, points=2),
        slow=SlowRank(1.25, 7),
        back=5,
        skip=False,
    )


def test_nothing_watches_for_nothing_and_only_writes_down() -> None:
    assert parse({}) == Recovery()
    assert not parse({}).watches
    assert not parse({"metrics": {"hang": True}}).enforce
    assert parse({"metrics": {"hang": True, "crash": False}}) == Recovery(hang=Hang())


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("runPolicy: 3", "p.yaml: runPolicy: 3 is no mapping; write `name: value` lines"),
        ("runpolicy: {}", "p.yaml: runpolicy: is not known here; did you mean runPolicy?"),
        (
            "runPolicy: {mode: Enforce}",
            "p.yaml: runPolicy.mode: 'Enforce' is not known; give one of log, enforce",
        ),
        (
            "runPolicy: {jobMaxRetryCount: 1.5}",
            "p.yaml: runPolicy.jobMaxRetryCount: 1.5 is no whole number; give 0 or more",
        ),
        (
            "runPolicy: {cleanPodPolicy: All}",
            "p.yaml: runPolicy.cleanPodPolicy: is not known here; there are no pods; leave it out:"
            " all jobs of a run end with it",
        ),
        (
            "runPolicy: {restartPolicy: {evalPeriodSeconds: 0}}",
            "p.yaml: runPolicy.restartPolicy.evalPeriodSeconds: 0 is too small; give more than 0",
        ),
        (
            "runPolicy: {restartPolicy: {evalPeriodSeconds: .nan}}",
            "p.yaml: runPolicy.restartPolicy.evalPeriodSeconds: nan is no finite number; give one,"
            " for example 2.5",
        ),
        (
            "metrics: {hang: {seconds: true}}",
            "p.yaml: metrics.hang.seconds: True is no finite number; give one, for example 2.5",
        ),
        (
            "metrics: {crash: {do: [reboot]}}",
            "p.yaml: metrics.crash.do: 'reboot' is not known; use restartProcess, replaceNode, excludeNode,"
            " rollBack, restartAll, fail",
        ),
        ("metrics: {crash: {do: fail}}", "p.yaml: metrics.crash.do: 'fail' is no list; write [one, other]"),
        (
            "logMonitoringConfiguration: {name: x}",
            "p.yaml: logMonitoringConfiguration: {'name': 'x'} is no list; write `- name: ...` items",
        ),
        (
            "logMonitoringConfiguration: [{name: x, logPattern: '(a)(b)'}]",
            "p.yaml: logMonitoringConfiguration[0].logPattern: has 2 groups; keep one; write (?:...) for the"
            " others",
        ),
        (
            "logMonitoringConfiguration: [{name: x, logPattern: '(a'}]",
            "p.yaml: logMonitoringConfiguration[0].logPattern: '(a' is no regular expression: missing ),"
            " unterminated subpattern at position 0; see Python's re",
        ),
        (
            "logMonitoringConfiguration: [{name: x, logPattern: 'a', metricThreshold: 3, operator: lt}]",
            "p.yaml: logMonitoringConfiguration[0].metricThreshold: there is no number to compare;"
            " capture it: loss=(\\S+) in logPattern",
        ),
        (
            "logMonitoringConfiguration: [{name: x, logPattern: '(a)', metricThreshold: 3}]",
            "p.yaml: logMonitoringConfiguration[0].operator: is missing beside metricThreshold; give both"
            " operator and metricThreshold",
        ),
        (
            "logMonitoringConfiguration: [{name: x, logPattern: a}, {name: x, logPattern: b}]",
            "p.yaml: logMonitoringConfiguration: two rules are called 'x'; give each rule a name of its own",
        ),
        (
            "logMonitoringConfiguration: [{logPattern: a}]",
            "p.yaml: logMonitoringConfiguration[0].name: is missing; give a text",
        ),
        (
            "metrics: {rules: [{name: x, metric: y}]}",
            "p.yaml: metrics.rules[0].metricThreshold: is missing; give a number, and operator",
        ),
    ],
)
def test_what_cannot_be_meant(text: str, told: str) -> None:
    with pytest.raises(ElasticError) as raised:
        parse(yaml.safe_load(text), "p.yaml")
    assert raised.value.message == told


def test_all_problems_at_once() -> None:
    with pytest.raises(ElasticError) as raised:
        parse({"runPolicy": {"mode": "x", "nonsense": 1}, "metrics": {"hang": {"seconds": -1}}})
    assert len(raised.value.message.splitlines()) == 3


JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=8),
    lambda children: (
        st.lists(children, max_size=3) | st.dictionaries(st.text(max_size=8), children, max_size=3)
    ),
    max_leaves=8,
)


def assert_read_or_refused(values: dict[str, Any]) -> None:
    told = ""
    try:
        parse(values)
    except ElasticError as error:
        told = error.message
    assert all(re.match(r"the policy: .+: .+; .+", line) for line in told.splitlines()), told


@given(st.dictionaries(st.sampled_from(["runPolicy", "metrics", "logMonitoringConfiguration"]), JSON))
def test_whatever_stands_there_is_read_or_refused(values: dict[str, Any]) -> None:
    assert_read_or_refused(values)


@given(st.data())
def test_a_wrong_value_anywhere_is_read_or_refused(data: st.DataObject) -> None:
    values = yaml.safe_load(EVERYTHING)
    part = values
    while isinstance(part, dict | list) and part:
        place = data.draw(st.sampled_from(sorted(part) if isinstance(part, dict) else range(len(part))))
        if not isinstance(part[place], dict | list) or data.draw(st.booleans()):
            part[place] = data.draw(JSON)
            break
        part = part[place]
    assert_read_or_refused(values)


def test_it_survives_the_runs_description() -> None:
    """run.json is JSON."""
    values = yaml.safe_load(EVERYTHING)
    assert parse(json.loads(json.dumps(values))) == parse(values)


def test_the_example_policy_fits_the_example_training() -> None:
    folder = Path(__file__).parents[3] / "slurm-conf" / "examples" / "university" / "train"
    values = yaml.safe_load((folder / "policy.yaml").read_text())
    policy = parse({part: values[part] for part in PARTS})
    assert policy.enforce
    assert policy.watches
    (steps,) = [rule for rule in policy.logs if rule.name == "Steps"]
    rules = LineRules([steps])
    rules.feed("b0.0.0", "epoch 0 step 12 loss 3.141593 world 4")
    assert rules.take()[0]["metrics"]["value"] == 3.141593
    assert (
        'print(f"epoch {loader.epoch} step {loader.step} loss {loader.loss:.6f} world'
        in (folder / "train.py").read_text()
    )


def test_exit_codes_are_distinct() -> None:
    """And none is one that the shell, Slurm or the agent use: 1, 2, 75, 126 and above."""
    codes = [*EXIT_CODES.values(), EXIT_RETRIES, EXIT_FULL_RESTARTS, EXIT_GOES_ON]
    assert codes == list(range(40, 51))


@pytest.mark.parametrize("pattern", ["a{99999999999}", "(" * 5000 + ")" * 5000])
def test_an_expression_that_re_cannot_take_at_all_is_a_problem_like_any_other(pattern: str) -> None:
    with pytest.raises(ElasticError, match="is no regular expression"):
        parse({"logMonitoringConfiguration": [{"name": "x", "logPattern": pattern}]})

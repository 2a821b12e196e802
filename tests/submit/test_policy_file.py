"""`--elastic-policy FILE.yaml`: what it says, and how it says what is wrong with it."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpctools.elastic.policy import ElasticPolicy
from hpctools.errors import SubmitError
from hpctools.submit import policy_file
from hpctools.submit.policy_file import parse_policy, read_policy

NOTHING = "p.yaml: holds no policy; write elasticPolicy: and under it minReplicas: and maxReplicas:"
NOT_KNOWN = "it is not always known who keeps the others waiting"
SILENCE = "nobody is to blame for a line that does not come"
WHOLE = """\
elasticPolicy:
  minReplicas: 2
  maxReplicas: 9
  replicaIncrementStep: 3
  gracefulShutdownTimeoutInSeconds: 6
  scalingTimeoutInSeconds: 60
  faultyScaleDownTimeoutInSeconds: 30
  scaleUpSnoozeTimeInSeconds: 12.5
  backOffLimitInSeconds: 90
scale_config:
  5: {training_config: {learning_rate: 0.0004}}
runPolicy:
  jobMaxRetryCount: 2
checkpoint:
  keep: 3
preload: [torchvision, my_models.large]
"""


def test_a_whole_file_in_hyperpods_words():
    found = parse_policy(WHOLE, "p.yaml")
    assert found.policy(found.sizes) == ElasticPolicy(
        sizes=(2, 5, 8),
        graceful_shutdown_s=6.0,
        scaling_timeout_s=60.0,
        faulty_scale_down_s=30.0,
        scale_up_snooze_s=12.5,
        back_off_limit_s=90.0,
        scale_config={5: {"training_config": {"learning_rate": 0.0004}}},
    )
    assert found.recovery == {"runPolicy": {"jobMaxRetryCount": 2}}
    assert found.checkpoint == {"keep": 3}
    assert found.preload == ("torchvision", "my_models.large")
    assert found.place("elasticPolicy.gracefulShutdownTimeoutInSeconds") == "p.yaml line 5"


def test_what_would_only_be_written_down_needs_no_rung_for_everybody():
    rules = "metrics:\n  hang: {do: [restartProcess]}\n"
    assert parse_policy(rules, "p.yaml").recovery["metrics"] == {"hang": {"do": ["restartProcess"]}}


def test_what_is_not_said_is_left_to_the_defaults_and_to_the_command_line():
    found = parse_policy("elasticPolicy: {scalingTimeoutInSeconds: 5}\n", "p.yaml")
    assert found.sizes == ()
    assert found.policy((1, 2)) == ElasticPolicy((1, 2), scaling_timeout_s=5.0)


@pytest.mark.parametrize(
    ("policy", "sizes"),
    [
        ("{minReplicas: 1, maxReplicas: 4}", (1, 2, 3, 4)),
        ("{minReplicas: 3, maxReplicas: 3}", (3,)),
        ("{replicaDiscreteValues: [2, 4, 8]}", (2, 4, 8)),
        ("{minReplicas: 2, maxReplicas: 8, replicaDiscreteValues: [2, 8]}", (2, 8)),
        # As HyperPod has it: minReplicas + N * replicaIncrementStep, at most maxReplicas.
        ("{minReplicas: 2, maxReplicas: 9, replicaIncrementStep: 3}", (2, 5, 8)),
    ],
)
def test_sizes(policy, sizes):
    assert parse_policy(f"elasticPolicy: {policy}", "p").sizes == sizes


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        (
            "elasticPolicy:\n  minReplicas: 2\n  maxReplica: 8\n",
            [
                "p.yaml line 3: elasticPolicy.maxReplica: is not known here; did you mean maxReplicas?",
                "p.yaml line 1: elasticPolicy.maxReplicas: is missing; give the least and the most nodes, or "
                "replicaDiscreteValues",
            ],
        ),
        (
            "elasticPolicy: {minReplicas: 8, maxReplicas: 2}",
            ["p.yaml line 1: elasticPolicy.minReplicas: 8 is above maxReplicas, 2; give 2 or less"],
        ),
        (
            "elasticPolicy: {minReplicas: 1.5, maxReplicas: yes}",
            [
                "p.yaml line 1: elasticPolicy.minReplicas: 1.5 is no whole number; give 1 or more",
                "p.yaml line 1: elasticPolicy.maxReplicas: 'yes' is no whole number; give 1 or more",
            ],
        ),
        (
            "elasticPolicy:\n  replicaDiscreteValues: [2, 4]\n  replicaIncrementStep: 2\n",
            [
                "p.yaml line 3: elasticPolicy.replicaIncrementStep: stands beside replicaDiscreteValues; "
                "keep one of the two"
            ],
        ),
        (
            "elasticPolicy: {replicaDiscreteValues: [4, 2, 2]}",
            [
                "p.yaml line 1: elasticPolicy.replicaDiscreteValues: is not in ascending order, each once; "
                "write [2, 4]"
            ],
        ),
        (
            "elasticPolicy: {minReplicas: 1, replicaDiscreteValues: [2, 4]}",
            [
                "p.yaml line 1: elasticPolicy.minReplicas: is 1, and replicaDiscreteValues says 2; write "
                "2, or leave it out"
            ],
        ),
        (
            "elasticPolicy:\n  minReplicas: 1\n  maxReplicas: 4\n  scalingTimeoutInSeconds: .nan\n",
            [
                "p.yaml line 4: elasticPolicy.scalingTimeoutInSeconds: '.nan' is no finite number; give one, "
                "for example 2.5"
            ],
        ),
        (
            "elasticPolicy: {minReplicas: 1, maxReplicas: 4}\nscale_config:\n  9: {}\n",
            ["p.yaml line 3: scale_config.9: is no allowed number of nodes; allowed: 1, 2, 3, 4"],
        ),
        (
            "metrics:\n  crash:\n  hang: on\n",
            [
                "p.yaml line 3: metrics.hang: 'on' is neither true nor false; write true, or its settings "
                "under it"
            ],
        ),
        (
            "metrics:\n  crash:\n  rules:\n  hang: ~\n",
            [
                f"p.yaml line {line}: metrics.{name}: has no value, so it is off; write true for its "
                "defaults, or leave it out"
                for line, name in ((2, "crash"), (4, "hang"))
            ],
        ),
        (
            "runPolicy:\n  logMonitoringConfiguration:\n  - {name: a, logPattern: b, stopPattern: c}\n"
            "logMonitoringConfiguration:\n- {name: d, logPattern: (e)}\n"
            "- {name: f, logPattern: (?:g), faultOnMatch: false}\n",
            [
                f"p.yaml line {line}: {place}: nothing that is printed would be a finding; give "
                "faultOnMatch: true, expectedStartCutOffInSeconds, expectedRecurringFrequencyInSeconds, or "
                "capture a number"
                for line, place in (
                    (6, "logMonitoringConfiguration[1]"),
                    (3, "runPolicy.logMonitoringConfiguration[0]"),
                )
            ],
        ),
        (
            "logMonitoringConfiguration:\n"
            "- name: a\n  logPattern: |\n    .*began.*\n  expectedStartCutOffInSeconds: 9\n"
            "- name: b\n  logPattern: >-\n    .*loss=(\\S+)\n  stopPattern: >\n    done\n"
            "- name: c\n  logPattern: |\n    (?x)  .* lost\n  faultOnMatch: true\n",
            [
                f"p.yaml line {line}: {place}: ends with a line break, which no line has, so it never "
                "matches; write it on one line, in quotes (YAML's | and > add the break)"
                for line, place in (
                    (3, "logMonitoringConfiguration[0].logPattern"),
                    (9, "logMonitoringConfiguration[1].stopPattern"),
                )
            ],
        ),
        (
            "elasticPolicy: []\ncheckpoint: false\n",
            [
                "p.yaml line 1: elasticPolicy: [] is no mapping; write `name: value` lines",
                "p.yaml line 2: checkpoint: False is no mapping; write `name: value` lines",
            ],
        ),
        (
            "elasticPolicy: {}\npreload: torch\n",
            ["p.yaml line 2: preload: 'torch' is no list of modules; write [torchvision, my_models]"],
        ),
        (
            "preload:\n  - torch\n  - train.py --lr\n",
            ["p.yaml line 3: preload[1]: 'train.py --lr' is no module's name; write it as `import` takes it"],
        ),
        (
            "scale_config:\n  08: {a: 1}\n  8: {a: 2}\n",
            ["p.yaml line 2: scale_config.08: is no allowed number of nodes; allowed: 1 or more"],
        ),
        (
            "elasticPolicy:\n  scale_config: {2: {}}\nscale_config: {4: {}}\n",
            [
                "p.yaml line 2: elasticPolicy.scale_config: stands beside the file's own scale_config; keep "
                "one of the two"
            ],
        ),
        (
            "mode: restart\nelasticPolicy: {minReplicas: 1, maxReplicas: 2, mode: restart}\n",
            [
                f"p.yaml line {line}: {place}: is not known here; give it on the command line: hp-submit "
                "--elastic-mode=live or restart (runPolicy.mode is another)"
                for line, place in ((1, "mode"), (2, "elasticPolicy.mode"))
            ],
        ),
        (
            "minReplicas: 1\n",
            ["p.yaml line 1: minReplicas: is not known here; it belongs under elasticPolicy:"],
        ),
        (
            "runPolicy: {mode: enforce}\n"
            "metrics:\n  nonFinite: {metrics: [grad_norm, loss], do: [restartProcess]}\n"
            "  lossSpike:\n    do: [replaceNode, excludeNode]\n"
            "  rules:\n    - {name: a, metric: other, metricThreshold: 1, operator: gt, do: [replaceNode]}\n"
            "    - {name: b, metric: grad_norm, metricThreshold: 1, operator: gt, do: [replaceNode]}\n",
            [
                f"p.yaml line {line}: metrics.{rule}.do: nobody is to blame for {what} one for "
                f"all workers, and {rungs} done to who is to blame; add rollBack, restartAll or fail"
                for line, rule, what, rungs in (
                    (3, "nonFinite", "the loss and grad_norm, which are", "restartProcess is"),
                    (5, "lossSpike", "the loss, which is", "replaceNode, excludeNode are"),
                    (8, "rules[1]", "grad_norm, which is", "replaceNode is"),
                )
            ],
        ),
        (
            "runPolicy:\n  mode: enforce\n  logMonitoringConfiguration:\n"
            "    - {name: a, logPattern: a, expectedStartCutOffInSeconds: 9, do: [restartProcess]}\n"
            "metrics:\n  stalledStep: {do: [restartProcess, replaceNode]}\n  hang: {do: [restartProcess]}\n"
            "logMonitoringConfiguration:\n"
            "  - {name: b, logPattern: b, faultOnMatch: true, do: [replaceNode]}\n"
            "  - {name: c, logPattern: c, expectedRecurringFrequencyInSeconds: 9, faultOnMatch: true, "
            "do: [replaceNode]}\n",
            [
                f"p.yaml line {line}: {rule}.do: {why}, and {rungs} done to who is to blame; add rollBack, "
                "restartAll or fail"
                for line, rule, why, rungs in (
                    (6, "metrics.stalledStep", NOT_KNOWN, "restartProcess, replaceNode are"),
                    (7, "metrics.hang", NOT_KNOWN, "restartProcess is"),
                    (10, "logMonitoringConfiguration[1]", SILENCE, "replaceNode is"),
                    (4, "runPolicy.logMonitoringConfiguration[0]", SILENCE, "restartProcess is"),
                )
            ],
        ),
        (
            "runPolicy:\n  restartPolicy:\n    evalPeriodSecond: 3\n",
            [
                "p.yaml line 3: runPolicy.restartPolicy.evalPeriodSecond: is not known here; did you mean "
                "evalPeriodSeconds?"
            ],
        ),
        (
            "checkpoint:\n  keep: 0\n  folder: 5\n  kept: 1\n",
            [
                "p.yaml line 4: checkpoint.kept: is not known here; did you mean keep?",
                "p.yaml line 3: checkpoint.folder: is 5; it has to be a text: a path, or s3://bucket/prefix",
                "p.yaml line 2: checkpoint.keep: is 0; it has to be 1 or more",
            ],
        ),
        (
            "checkpoint:\n  folder: /scratch/$USER/run7\n  resumeFrom: s3://b/${RUN}\n",
            [
                "p.yaml line 2: checkpoint.folder: is '/scratch/$USER/run7', and no variable is filled in; "
                "write it in full, or say it in the script: elastic.Checkpoint(...) with os.path.expandvars",
                "p.yaml line 3: checkpoint.resumeFrom: is 's3://b/${RUN}', and no variable is filled in; "
                "write it in full, or say it in the script: elastic.Checkpoint(...) with os.path.expandvars",
            ],
        ),
        (
            "checkpoint: 5\n",
            ["p.yaml line 1: checkpoint: 5 is no mapping; write `name: value` lines"],
        ),
        (
            "elasticPolicy: {minReplicas: 1, minReplicas: 2}",
            [
                "p.yaml:1: elasticPolicy.minReplicas: found the key 'minReplicas' a second time (first on "
                "line 1), expected each key once"
            ],
        ),
        (
            "a: &x [*x]\n",
            ["p.yaml:1: a[0]: found an alias to something that contains it, expected no recursion"],
        ),
        ("!!python/object:os.system {}\n", None),
        ("- 1\n", [NOTHING]),
        ("", [NOTHING]),
        ("{" * 3000, None),
        ("a: [" * 3000, ["p.yaml: found lists or mappings nested too deep, expected a policy"]),
    ],
)  # fmt: skip
def test_each_problem_has_its_line_and_its_remedy(text, lines):
    with pytest.raises(SubmitError) as caught:
        parse_policy(text, "p.yaml")
    said = str(caught.value).splitlines()
    if lines is not None:
        assert said == lines
    assert all(line.startswith("p.yaml") for line in said)


def test_a_manifest_for_kubernetes_is_told_apart():
    text = "apiVersion: sagemaker.amazonaws.com/v1\nkind: HyperPodPyTorchJob\nspec: {}\n"
    with pytest.raises(SubmitError, match=r"line 3: spec: is not known here; this is a manifest"):
        parse_policy(text, "p.yaml")


def test_aliases_that_expand_to_very_much_are_stopped():
    layers = "\n".join(f"l{n}: &l{n} [{', '.join([f'*l{n - 1}'] * 10)}]" for n in range(1, 9))
    with pytest.raises(SubmitError, match="more entries than a policy can have"):
        parse_policy(f"l0: &l0 [x]\n{layers}\n", "p.yaml")


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=80) | st.binary(max_size=60).map(lambda data: data.decode("latin-1")))
def test_nonsense_is_refused_in_words(text):
    with pytest.raises(SubmitError) as caught:
        parse_policy(text, "p.yaml")
    assert str(caught.value).startswith("p.yaml")


values = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 10**7) | st.floats(allow_nan=True) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
NAMES = st.sampled_from([*policy_file._ELASTIC, *policy_file._SECTIONS, "nope"])


@settings(max_examples=200, deadline=None)
@given(st.dictionaries(NAMES, values, max_size=4), st.dictionaries(NAMES, values, max_size=4))
def test_whatever_stands_at_a_known_name_is_read_or_refused_in_words(elastic, top):
    import yaml

    text = yaml.safe_dump({**top, "elasticPolicy": elastic})
    try:
        sizes = parse_policy(text, "p.yaml").sizes
    except SubmitError:
        return
    assert list(sizes) == sorted(set(sizes))
    assert not sizes or sizes[0] >= 1


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"\xff\xfe", "bytes that are no UTF-8 at offset 0; give a policy in YAML"),
        (b"# " + b"x" * (10 << 20), "is larger than 1048576 bytes; give a policy in YAML"),
    ],
)
def test_a_file_that_is_none_is_refused(tmp_path: Path, data, message):
    path = tmp_path / "p.yaml"
    path.write_bytes(data)
    with pytest.raises(SubmitError, match=message):
        read_policy(path)


def test_files_that_cannot_be_read(tmp_path: Path):
    with pytest.raises(SubmitError, match="no such file or directory; check the name after --elastic-policy"):
        read_policy(tmp_path / "nowhere")
    with pytest.raises(SubmitError, match="is a directory"):
        read_policy(tmp_path)
    with pytest.raises(SubmitError, match="larger than"):
        read_policy(Path("/dev/zero"))


def test_a_policy_may_come_through_a_pipe(tmp_path: Path):
    read, write = os.pipe()
    os.write(write, b"elasticPolicy: {minReplicas: 1, maxReplicas: 2}\n")
    os.close(write)
    try:
        assert read_policy(Path(f"/dev/fd/{read}")).sizes == (1, 2)
    finally:
        os.close(read)


def test_the_example_of_the_pages_is_a_policy():
    example = "slurm-conf/examples/university/train/policy.yaml"
    path = Path(__file__).resolve().parents[2] / example
    assert read_policy(path).sizes[0] >= 1


def test_another_file_taken_for_a_policy_is_told_line_by_line_and_soon():
    text = "".join(f"sample_{number}: {number}\n" for number in range(8000))
    began = time.process_time()
    with pytest.raises(SubmitError) as caught:
        parse_policy(text, "data.yaml")
    assert time.process_time() - began < 5
    lines = str(caught.value).splitlines()
    assert len(lines) == 8000
    assert lines[-1].startswith("data.yaml line 8000: sample_7999: is not known here; ")

"""`hp-submit --nodes MIN:MAX -- torchrun ...`: torchrun's options read as torchrun reads them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hpctools.errors import SubmitError
from hpctools.submit.intent import Intent, read_intent, read_invocation
from hpctools.submit.plan import ElasticSubmission, Facts, cautions, plan_elastic
from hpctools.submit.torchrun import DROPPED, unwrapped, with_restarts


@pytest.fixture(autouse=True)
def _no_torchrun_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))


def intent(*words: str) -> Intent:
    invocation = read_invocation(["--nodes=1:4", *words])
    return read_intent(invocation, environment={}, cwd=Path("/work"), standard_input=lambda: None)


@pytest.mark.parametrize(
    ("words", "command", "settings"),
    [
        ("torchrun train.py --lr 1", "python train.py --lr 1", {}),
        (
            "/env/bin/torchrun --nproc-per-node=4 t.py -m x",
            "/env/bin/python t.py -m x",
            {"workers-per-node": "4"},
        ),
        (
            "torchrun --nnodes 1:4 --nproc_per_node 2 -m pkg.train a",
            "python -m pkg.train a",
            {"workers-per-node": "2"},
        ),
        ("torchrun --standalone --no-python ./run.sh -t 3", "./run.sh -t 3", {}),
        (
            "torchrun -t 3 -r3 --max-restarts=5 --role trainer train.py",
            "python train.py",
            {"max-restarts": "5", "role": "trainer", DROPPED: "redirects tee"},
        ),
        ("torchrun --rdzv_backend=c10d --rdzv-endpoint h:1 -- train.py -- x", "python train.py -- x", {}),
        ("python3 -u -m torch.distributed.run --node_rank=0 train.py", "python3 -u train.py", {}),
        (
            "hyperpodrun --server-port=8080 --nproc-per-node 8 train.py",
            "python train.py",
            {"workers-per-node": "8"},
        ),
        ("python /env/bin/torchrun --nnodes=2 train.py", "python train.py", {}),
        ("uv run torchrun --nproc-per-node 2 t.py", "uv run python t.py", {"workers-per-node": "2"}),
        ("uv run -p python3.12 torchrun t.py", "uv run -p python3.12 python t.py", {}),
        ("uv run python3 -m torch.distributed.run t.py", "uv run python3 t.py", {}),
        ("uv run -m torch.distributed.run -m pkg.t", "uv run python -m pkg.t", {}),
        ("env OMP_NUM_THREADS=4 torchrun t.py x", "env OMP_NUM_THREADS=4 python t.py x", {}),
        (
            "apptainer exec --nv i.sif /opt/conda/bin/torchrun t.py",
            "apptainer exec --nv i.sif /opt/conda/bin/python t.py",
            {},
        ),
        ("conda run -n me torchrun --no-python ./run.sh", "conda run -n me ./run.sh", {}),
        ("env PYTHON=/usr/bin/python torchrun t.py", "env PYTHON=/usr/bin/python python t.py", {}),
        ("conda run -n python3.11 torchrun t.py", "conda run -n python3.11 python t.py", {}),
        (
            "apptainer exec docker://library/python torchrun t.py",
            "apptainer exec docker://library/python python t.py",
            {},
        ),
        ("conda run -n accelerate torchrun t.py", "conda run -n accelerate python t.py", {}),
        ("env SHELL=/bin/bash torchrun t.py", "env SHELL=/bin/bash python t.py", {}),
        (
            "apptainer exec --bind /sw/python:/sw/python i.sif torchrun t.py",
            "apptainer exec --bind /sw/python:/sw/python i.sif python t.py",
            {},
        ),
        ("time -p torchrun --nproc-per-node 4 t.py", "time -p python t.py", {"workers-per-node": "4"}),
        ("uv run --extra deepspeed torchrun t.py", "uv run --extra deepspeed python t.py", {}),
        ("timeout 9h nice -n 5 uv run torchrun t.py", "timeout 9h nice -n 5 uv run python t.py", {}),
        ("python -mtorch.distributed.run t.py", "python t.py", {}),
        ("python -um torch.distributed.run --nnodes 2 t.py", "python -u t.py", {}),
    ],
)
def test_torchrun_is_what_the_agent_does(words: str, command: str, settings: dict[str, str]) -> None:
    seen = unwrapped(intent("--", *words.split()))
    assert seen.command == tuple(command.split())
    assert seen.settings == {"elastic-mode": "restart", **settings}


@pytest.mark.parametrize(
    "words",
    [
        "python train.py torchrun",
        "python -c torchrun",
        "./torchrun.sh",
        "uv run train.py torchrun",
        "env A=1 python train.py torchrun",
        "nice -n 5 ./train torch",
    ],
)
def test_other_commands_are_left_as_they_are(words: str) -> None:
    asked = intent("--", *words.split())
    assert unwrapped(asked) is asked


@pytest.mark.parametrize(
    ("first", "python"),
    [
        ("#!/usr/bin/python3", "/usr/bin/python3"),
        ("#! /env/bin/python3.11 ", "/env/bin/python3.11"),
        ("#!/usr/bin/env python3", "python3"),
        ("#!/bin/sh\n'''exec' '/a very long/bin/python3' \"$0\" \"$@\"", "/a very long/bin/python3"),
        ("#!/usr/bin/env -S python3 -u", "python"),
        ("\x7fELF", "python"),
    ],
)
def test_the_interpreter_is_the_one_that_torchrun_names(first: str, python: str, tmp_path: Path) -> None:
    """As after `pip install --user torch`: nothing called python lies beside it."""
    torchrun = tmp_path / "torchrun"
    torchrun.write_text(f"{first}\nimport sys\n")
    torchrun.chmod(0o755)
    assert unwrapped(intent("--", "torchrun", "t.py")).command == (python, "t.py")
    assert unwrapped(intent("--", "numactl", "-N", "0", "torchrun", "t.py")).command[3:] == (python, "t.py")
    for elsewhere in (("uv", "run"), ("env", "PATH=/x")):
        seen = unwrapped(intent("--", *elsewhere, "torchrun", "t.py"))
        assert seen.command == (*elsewhere, "python", "t.py")
    torchrun.chmod(0o644)
    assert unwrapped(intent("--", "torchrun", "t.py")).command == ("python", "t.py")


def test_live_mode_that_was_asked_for_is_left_to_be_refused() -> None:
    asked = intent("--elastic-mode=live", "--", "torchrun", "train.py")
    assert unwrapped(asked) is asked


def test_workers_are_counted_by_the_gpus_of_a_node() -> None:
    asked = intent("--gpus-per-node=h100:8", "--", "torchrun", "--nproc-per-node=gpu", "train.py")
    assert unwrapped(asked).settings["workers-per-node"] == "8"


@pytest.mark.parametrize(
    ("words", "error"),
    [
        ("-- torchrun", "is given no script"),
        ("-- torchrun --nproc-per-node 4", "is given no script"),
        ("-- torchrun --nproc-per-node", "--nproc-per-node is nothing"),
        ("-- torchrun --virtual-local-rank train.py", "--virtual-local-rank is nothing"),
        ("-- torchrun --standalone=1 train.py", "--standalone=1 is nothing"),
        ("-- torchrun --nproc-per-node=gpu train.py", "nothing says how many GPUs"),
        ("-- torchrun --nproc-per-node=0 train.py", "is no number"),
        ("-- torchrun --max-restarts=-1 train.py", "is no number"),
        ("--ntasks-per-node=2 -- torchrun --nproc-per-node=4 train.py", "contradict each other"),
    ],
)
def test_what_cannot_be_done_is_refused(words: str, error: str) -> None:
    with pytest.raises(SubmitError, match=error):
        unwrapped(intent(*words.split()))


FACTS = Facts("nlp1", "/usr/bin/python3", Path("/home/nlp1/runs"), "0a1b2c", "2026-01-01T00:00:00", None)


def planned(*words: str) -> ElasticSubmission:
    (submission,) = plan_elastic(intent(*words), FACTS)
    return submission


@pytest.mark.parametrize(
    ("options", "names", "instead"),
    [
        ("--log-dir /l --tee=3", "--log-dir, --tee", ["logs/ of the run folder"]),
        ("--shutdown-timeout 90", "--shutdown-timeout", ["gracefulShutdownTimeoutInSeconds in the policy"]),
        ("--start-method=spawn", "--start-method", []),
        (
            "--local_ranks_filter 0 --monitor-interval=1 --shutdown-timeout=9 --signals-to-handle SIGUSR1",
            "--local-ranks-filter, --shutdown-timeout, --monitor-interval, --signals-to-handle",
            ["logs/ of the run folder", "gracefulShutdownTimeoutInSeconds"],
        ),
    ],
)
def test_options_of_torchrun_that_have_no_effect_are_said_with_what_has(
    options: str, names: str, instead: list[str]
) -> None:
    asked = intent("--", "torchrun", "--nnodes=1:4", "--role=r", *options.split(), "train.py")
    (said,) = cautions(asked, FACTS)
    verb = "have" if "," in names else "has"
    assert said.startswith(f"torchrun's {names} {verb} no effect")
    assert "\n" not in said
    assert said.count("; ") == len(instead)
    assert all(each in said for each in instead)


@pytest.mark.parametrize("words", ["torchrun --standalone --rdzv-id 3 train.py", "python train.py --tee 3"])
def test_nothing_is_said_of_what_the_run_does_itself_or_of_the_scripts_own(words: str) -> None:
    assert cautions(intent("--", *words.split()), FACTS) == ()


def test_the_role_of_the_ranks_is_what_torchrun_was_given() -> None:
    assert planned("--", "torchrun", "--role=trainer", "train.py").spec.role == "trainer"
    assert planned("--", "torchrun", "train.py").spec.role == ""


def test_a_run_that_starts_torchrun_is_planned_in_restart_mode() -> None:
    words = "--cpus-per-task=8 -- torchrun --nproc-per-node=4 --max-restarts=7 train.py"
    submission = planned(*words.split())
    spec = submission.spec
    assert (spec.id, spec.mode, spec.workers_per_node) == ("train-0a1b2c", "restart", 4)
    assert spec.command == ("python", "train.py")
    assert spec.recovery == {"runPolicy": {"restartPolicy": {"maxFullJobRestarts": 7}}}
    assert not any("ntasks" in option for option in submission.options), "the workers share one task's CPUs"


def test_restart_mode_of_a_script_that_needs_no_launcher() -> None:
    spec = planned("--elastic-mode=restart", "--ntasks-per-node=2", "--", "python", "train.py").spec
    assert (spec.mode, spec.workers_per_node, spec.command) == ("restart", 2, ("python", "train.py"))
    assert planned("--", "python", "train.py").spec.mode == "live"


def test_the_policy_wins_over_torchruns_restarts() -> None:
    asked = unwrapped(intent("--", "torchrun", "--max-restarts=7", "train.py"))
    stated: dict[str, Any] = {
        "runPolicy": {"jobMaxRetryCount": 2, "restartPolicy": {"maxFullJobRestarts": 1}},
        "metrics": [],
    }
    assert with_restarts(asked, stated) == stated
    stated["runPolicy"].pop("restartPolicy")
    merged = with_restarts(asked, stated)
    assert merged["runPolicy"] == {"jobMaxRetryCount": 2, "restartPolicy": {"maxFullJobRestarts": 7}}
    assert "restartPolicy" not in stated["runPolicy"], "what was read is left as it was"
    stated["runPolicy"]["restartPolicy"] = {"maxFullJobRestarts": None}
    assert with_restarts(asked, stated) == merged, "a key without a value says nothing"

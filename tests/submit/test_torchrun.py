"""`hp-submit --nodes MIN:MAX -- torchrun ...`: torchrun's options read as torchrun reads them."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpctools.errors import SubmitError
from hpctools.submit.intent import Intent, read_intent, read_invocation
from hpctools.submit.torchrun import unwrapped


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
        ("torchrun -t 3 -r3 --max-restarts=5 train.py", "python train.py", {"max-restarts": "5"}),
        ("torchrun --rdzv_backend=c10d --rdzv-endpoint h:1 -- train.py -- x", "python train.py -- x", {}),
        ("python3 -u -m torch.distributed.run --node_rank=0 train.py", "python3 -u train.py", {}),
        (
            "hyperpodrun --server-port=8080 --nproc-per-node 8 train.py",
            "python train.py",
            {"workers-per-node": "8"},
        ),
    ],
)
def test_torchrun_is_what_the_agent_does(words: str, command: str, settings: dict[str, str]) -> None:
    seen = unwrapped(intent("--", *words.split()))
    assert seen.command == tuple(command.split())
    assert seen.settings == {"elastic-mode": "restart", **settings}


@pytest.mark.parametrize("words", ["python train.py torchrun", "python -c torchrun", "./torchrun.sh"])
def test_other_commands_are_left_as_they_are(words: str) -> None:
    asked = intent("--", *words.split())
    assert unwrapped(asked) is asked


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

"""Whole elastic runs of a sharded model on a GPU, which its workers share."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from sharded_run import ShardedRun, assert_same_result, command, lone_ledger

pytestmark = [
    pytest.mark.skipif(not torch.cuda.is_available(), reason="NOT TESTED: no CUDA device here"),
    pytest.mark.timeout(900),
    pytest.mark.usefixtures("gpu_to_itself"),
]


@pytest.fixture(scope="module")
def lone(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """The ledger of the same training as one ordinary process."""
    return lone_ledger(tmp_path_factory.mktemp("lone"), "--device", "cuda", "--clip")


@pytest.mark.parametrize("own_host", [False, True], ids=["gloo", "nccl"])
def test_shards_on_a_gpu_over(own_host: bool, tmp_path: Path, lone: list[dict[str, Any]]) -> None:
    """1 -> 3 -> 2, then one is killed: its neighbour has copies. Gradients are clipped.

    The result is that of one process; over the host where workers share a GPU, over nccl where each says that
    it has one of its own.
    """
    hurry = tmp_path / "hurry"
    options = ["--device", "cuda", "--clip", "--copy-every", "2", *["--own-host"] * own_host]
    options += ["--delay", "0.004", "--hold", "2", "--hurry", str(hurry), "--await-world", "3"]
    with ShardedRun(tmp_path, command(tmp_path / "out", *options), (1, 3)) as run:
        run.grow_shrink_and_lose_one(hurry)
    assert_same_result(run, lone)
    resizes = [event.detail for event in run.events("resize")]
    assert {each["moved"]["source"] for each in resizes} == {"workers"}
    assert [each["to"] for each in resizes if each["recovered"]] == [1]
    assert [event.detail for event in run.events("warning") if "nccl" in event.detail["message"]] == []
    together = {line["over"] for line in run.committed() if line["world"] > 1}
    assert together == {"nccl" if own_host else "gloo"}

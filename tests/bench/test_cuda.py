"""The bench for GPUs, where there is none: what it says then, and how it judges what it finds."""

from __future__ import annotations

import sys
from typing import Any

import pytest
import torch

from bench import cuda
from bench.cuda import Found, Resized


def test_without_a_gpu_it_says_so_and_measures_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(cuda, "measure", None)
    monkeypatch.setattr(sys, "argv", ["cuda.py", "--check"])
    assert cuda.main() == 3
    out, err = capsys.readouterr()
    assert out == ""
    assert "no CUDA device here: nothing was measured" in err


def resize(before: int, after: int, pause: float) -> dict[str, Any]:
    return {"from": before, "to": after, "pause_s": pause}


def test_a_run_is_judged_by_its_result_and_its_pauses() -> None:
    resizes = (resize(2, 4, 0.2), resize(4, 2, 0.4), resize(2, 4, 0.3))
    found = Found()
    found.add_resized(Resized("fast", ("nccl",), resizes, ("step 3 of r1000.0.0 has another result",)))
    lost = {**resize(4, 3, 0.9), "recovered": True}
    found.add_resized(Resized("sharded", ("gloo", "nccl"), (*resizes, lost), (), "5 M"))
    found.add_resized(Resized("fast", ("gloo",), (resize(2, 4, 9.0),), (), "50 M"))
    assert [(row["what"], row["ours"], row["result"]) for row in found.rows] == [
        (
            "resizes in fast mode, over nccl",
            "2->4 0.20, 4->2 0.40, 2->4 0.30 s",
            "step 3 of r1000.0.0 has another result",
        ),
        (
            "resizes in sharded mode, 5 M, over gloo and nccl",
            "2->4 0.20, 4->2 0.40, 2->4 0.30, 4->3 lost 0.90 s",
            "",
        ),
        ("resizes in fast mode, 50 M, over gloo", "2->4 9.00 s", ""),
    ]
    assert [(goal.name, goal.value, goal.met) for goal in found.goals] == [
        ("differences in fast mode, over nccl", 1, False),
        ("grow_pause_p50 in sharded mode, 5 M, over gloo and nccl", 0.25, True),
        ("shrink_pause_p50 in sharded mode, 5 M, over gloo and nccl", 0.4, False),
    ]


@pytest.mark.parametrize("wrong", ["right", "ended"])
def test_nccl_alone_has_to_be_right_and_to_end(wrong: str) -> None:
    well = {"link_s": 1.5, "all_reduce_s": 0.0004, "abort_s": 0.1, "right": True, "ended": True}
    found = Found()
    found.add_alone({"first": well, "second": well})
    found.add_alone({"first": well, "second": {**well, wrong: False}})
    assert found.rows[0]["ours"] == "1.50 s, 0.40 ms, 0.10 s"
    assert [goal.met for goal in found.goals] == [True, False]

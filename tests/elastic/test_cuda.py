"""What a GPU is needed for."""

from __future__ import annotations

import copy
import io
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed
from test_exchange import on_ranks
from test_fast import INPUTS, SAMPLING, Wide, one_step
from torch import nn

from bench.cuda import DETERMINISTIC, resized
from hpctools.elastic import device_group, fast
from hpctools.elastic.checkpoint.copies import HostCopy
from hpctools.elastic.devices import accelerator_of
from hpctools.elastic.fast import FastSum
from hpctools.elastic.gradients import FlatGradients
from hpctools.elastic.group import Group
from hpctools.elastic.pieces import by_blocks
from hpctools.elastic.randomness import draw_from
from hpctools.elastic.state import move_state

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="NOT TESTED: no CUDA device here")

GPU = torch.device("cuda", 0)
LIMIT = timedelta(seconds=60)


def test_one_process_over_nccl_and_its_group_can_be_aborted_and_made_again() -> None:
    found = accelerator_of(GPU)
    if found is None:
        pytest.skip("NOT TESTED: this torch has no nccl that can be aborted")
    for _ in range(2):
        group = found.make(torch.distributed.HashStore(), 0, 1)
        tensor = torch.arange(1 << 20, dtype=torch.float32, device=GPU)
        group.all_reduce(tensor).wait(LIMIT)
        assert torch.equal(tensor.cpu(), torch.arange(1 << 20, dtype=torch.float32))
        group.abort()
        for thread in list(device_group._ending):
            thread.join(60)
            assert not thread.is_alive()
        with pytest.raises(RuntimeError, match="given up"):
            group.all_reduce(tensor)


@pytest.mark.parametrize("world", [1, 2, 3])
def test_several_workers_on_one_gpu_go_over_gloo(world: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The gradients are those of one big batch; the training's thread uses a stream of its own."""
    monkeypatch.setattr(fast, "FIRST_BUCKET_BYTES", 16)
    monkeypatch.setattr(fast, "BUCKET_BYTES", 100)
    monkeypatch.setattr("test_fast.INPUTS", INPUTS.to(GPU), raising=True)
    first = Wide().to(GPU)
    whole = copy.deepcopy(first)
    whole(INPUTS.to(GPU)).square().mean().backward()
    expected = [torch.zeros_like(p) if p.grad is None else p.grad for p in whole.parameters()]
    torch.cuda.synchronize()

    def work(group: Group) -> Any:
        trained = copy.deepcopy(first)
        with torch.cuda.stream(torch.cuda.Stream(GPU)):
            totals, _ = one_step(group, by_blocks(SAMPLING, None), trained)
            found = [each.grad.clone() for each in trained.parameters()]
        torch.cuda.synchronize()
        return totals, found, trained.mean

    for totals, gradients, mean in on_ranks(world, work):
        torch.testing.assert_close(gradients, expected)
        torch.testing.assert_close(mean, whole.mean)
        assert totals.samples == 11


def test_gradients_on_one_gpu_are_the_devices_affair() -> None:
    assert FastSum(nn.Linear(2, 2).to(GPU)).device == GPU
    assert FastSum(nn.Sequential(nn.Linear(2, 2).to(GPU), nn.Linear(2, 2))).device is None


def test_exact_mode_takes_gradients_from_a_gpu_and_gives_them_back() -> None:
    model = nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4)).to(GPU)
    flat = FlatGradients(model)
    flat.begin_step()
    flat.begin_shard()
    loss = model(INPUTS.to(GPU)).square().sum()
    loss.backward()
    expected = [each.grad.clone() for each in model.parameters()]
    vector = flat.new_vector()
    flat.capture(vector, loss, 1.0, 11)
    mean = model[1].running_mean.clone()
    flat.begin_shard()
    assert not torch.equal(model[1].running_mean, mean)
    totals = flat.apply(vector, 11)
    assert totals.loss == pytest.approx(float(loss))
    assert vector.device.type == "cpu"
    torch.testing.assert_close([each.grad for each in model.parameters()], expected, rtol=0, atol=0)
    torch.testing.assert_close(model[1].running_mean, mean)


def test_a_joiner_gets_the_state_of_a_gpu() -> None:
    """Large and small tensors, and those of an optimizer and a gradient scaler."""
    model = nn.Linear(1024, 1024).to(GPU)
    optimizer, scaler = torch.optim.AdamW(model.parameters()), torch.amp.GradScaler("cuda")
    scaler.scale(model(torch.ones(1, 1024, device=GPU)).mean()).backward()
    scaler.step(optimizer)
    scaler.update(512.0)
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "scaler": scaler.state_dict()}
    _, received = on_ranks(2, lambda group: move_state(group, (lambda: state) if group.rank == 0 else None))
    other = nn.Linear(1024, 1024).to(GPU)
    again, other_scaler = torch.optim.AdamW(other.parameters()), torch.amp.GradScaler("cuda")
    other.load_state_dict(received["model"])
    again.load_state_dict(received["optimizer"])
    other_scaler.load_state_dict(received["scaler"])
    assert other_scaler.get_scale() == 512.0
    assert all(torch.equal(*pair) for pair in zip(model.parameters(), other.parameters(), strict=True))
    for one, two in zip(optimizer.state.values(), again.state.values(), strict=True):
        assert torch.equal(one["exp_avg"], two["exp_avg"])
        assert two["exp_avg"].device == GPU


def test_a_copy_for_a_checkpoint_is_whole_and_pinned() -> None:
    tensor = torch.arange(1 << 20, dtype=torch.float32, device=GPU)
    copied = HostCopy()
    copied.take({"model": {"weight": tensor}})
    tensor.zero_()
    kept = copied.tensors["model.weight"]
    assert kept.is_pinned()
    assert torch.equal(kept, torch.arange(1 << 20, dtype=torch.float32))
    torch.save(copied.state(), io.BytesIO())


def test_random_numbers_of_the_gpu_belong_to_the_place_in_the_training() -> None:
    drawn = []
    for shard in (1, 2, 1):
        draw_from(7, "shard", 3, shard)
        drawn.append(nn.functional.dropout(torch.ones(100, device=GPU)))
    assert torch.equal(drawn[0], drawn[2])
    assert not torch.equal(drawn[0], drawn[1])


@pytest.mark.timeout(900)
@pytest.mark.usefixtures("gpu_to_itself")
@pytest.mark.parametrize(
    ("mode", "own_host", "over"),
    [("exact", False, {"gloo"}), ("fast", False, {"gloo"}), ("fast", True, {"nccl"})],
)
def test_a_run_on_one_gpu_grows_loses_a_worker_and_shrinks(
    mode: str, own_host: bool, over: set[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the result of one process: to the bit in exact mode, but for rounding in fast mode."""
    for name, value in DETERMINISTIC.items():
        monkeypatch.setenv(name, value)
    run = resized(tmp_path, mode, 1, own_host)
    assert run.problems == ()
    assert set(run.over) == over
    assert [(each["from"], each["to"]) for each in run.resizes if not each["recovered"]] == [(2, 4), (4, 2)]
    assert any(each["recovered"] for each in run.resizes)


def test_the_groups_thread_works_on_the_callers_device_and_stream() -> None:
    group, stream = Group(1, 0, 1, None), torch.cuda.Stream(GPU)
    with torch.cuda.stream(stream):
        task = group.begin(lambda: torch.cuda.current_stream(), lambda: None)
    group.close(Group(2, 0, 1, None))
    deadline = time.monotonic() + 30
    while not task.finished and time.monotonic() < deadline:
        time.sleep(0.01)
    assert task.result() == stream

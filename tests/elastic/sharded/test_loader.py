"""The sharded loader as one process, and torch's group of which members are gone."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from left_loop import leave_after_two_steps
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor

from hpctools import elastic
from hpctools.elastic.checkpoint.way_back import NothingOldEnough, told_of
from hpctools.elastic.group import Group
from hpctools.elastic.randomness import draw_from
from hpctools.elastic.session import LONE, Resharding
from hpctools.elastic.sharded import moving, process_group
from hpctools.elastic.sharded.process_group import AFTER, BETWEEN, ShardGroup
from hpctools.elastic.sharded.trained import built, local, make_room, part_of, sharded_tensors
from hpctools.errors import ElasticError

SAMPLES = 28  # in batches of 12: 12, 12 and 4


@pytest.fixture(autouse=True)
def no_group_stays() -> Iterator[None]:
    """torch's default group belongs to the process, not to a test."""
    yield
    process_group.uninstall()


class Points:
    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.sin(torch.arange(6.0) * (index + 1))


class Net(nn.Module):
    def __init__(self, width: int = 5) -> None:
        super().__init__()
        self.first = nn.Linear(6, width)
        self.norm = nn.BatchNorm1d(width)
        self.last = nn.Linear(width, 1)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.last(nn.functional.dropout(torch.relu(self.norm(self.first(inputs))), 0.2, self.training))


def build(mesh: DeviceMesh) -> tuple[nn.Module, torch.optim.Optimizer]:
    model = Net()
    fully_shard(model.first, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model, torch.optim.AdamW(model.parameters(), lr=0.05)


def loader_for(make: Any = build, **options: Any) -> elastic.ShardedLoader:
    return elastic.ShardedLoader(
        make, Points(), **{"batch_size": 12, "epochs": 2, "shards": 2, "seed": 3, **options}
    )


def train(loader: Any, model: Callable[[], nn.Module], optimizer: torch.optim.Optimizer) -> list[float]:
    losses = []
    for _ in range(loader._sampling.epochs):
        for inputs in loader:
            if loader.backward(model()(inputs).square().mean()):
                optimizer.step()
                optimizer.zero_grad()
                losses.append(loader.loss)
                written(loader)
    return losses


@pytest.mark.parametrize(("kind", "shards"), [(elastic.ShardedLoader, True), (elastic.Loader, False)])
def test_what_holds_shards_is_known_before_it_is_made(kind: type, shards: bool) -> None:
    """A worker says so as soon as it connects, which is while its loader is being made."""
    assert isinstance(object.__new__(kind), Resharding) == shards


def written(loader: Any) -> None:
    """Wait for the checkpoint that is being written: the next one would be left out meanwhile."""
    if (keeper := getattr(loader, "_shard_keeper", None)) is not None:
        keeper.close()


def test_one_process_does_what_the_loader_of_whole_models_does() -> None:
    """Same batches, same dropout, same buffers, gradients of the mean also in the smaller last batch."""
    sharded = loader_for()
    losses = train(sharded, lambda: sharded.model, sharded.optimizer)
    draw_from(3, "build")
    model = Net()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.05)
    whole = elastic.Loader(model, optimizer, Points(), batch_size=12, epochs=2, shards=2, seed=3)
    expected = train(whole, lambda: model, optimizer)
    assert len(expected) == 6
    torch.testing.assert_close(torch.tensor(losses), torch.tensor(expected), rtol=1e-5, atol=0.0)
    for name, tensor in sharded.model.state_dict().items():
        value = tensor.full_tensor() if isinstance(tensor, DTensor) else tensor
        torch.testing.assert_close(value, model.state_dict()[name], rtol=1e-4, atol=1e-5)


def test_a_seed_of_numpys_gives_the_same_first_weights_as_pythons() -> None:
    drawn = []
    for seed in (5, np.int64(5)):
        weight = loader_for(seed=seed).model.state_dict()["first.weight"]
        drawn.append(weight.full_tensor().clone())
        process_group.uninstall()
    assert torch.equal(*drawn)


def test_a_training_goes_on_from_its_checkpoint(tmp_path: Path) -> None:
    """Interrupted after step 5 of 6: the next process begins with the state after step 4."""
    whole = loader_for()
    expected = train(whole, lambda: whole.model, whole.optimizer)
    settings = elastic.Checkpoint(folder=str(tmp_path), every_seconds=0, every_steps=2)
    first = loader_for(checkpoint=settings)
    for _ in range(2):
        for inputs in first:
            if first.backward(first.model(inputs).square().mean()):
                first.optimizer.step()
                first.optimizer.zero_grad()
                written(first)
            if first.step == 5:
                break
    second = loader_for(checkpoint=settings)
    assert second.step == 4
    assert train(second, lambda: second.model, second.optimizer) == expected[4:]


def test_a_damaged_checkpoint_is_not_used(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    settings = elastic.Checkpoint(folder=str(tmp_path), every_seconds=0, every_steps=2, keep=9)
    loader = loader_for(checkpoint=settings)
    train(loader, lambda: loader.model, loader.optimizer)
    newest = max(tmp_path.glob("step-*"))
    data = bytearray((newest / "shards-00000.bin").read_bytes())
    data[40] ^= 1
    (newest / "shards-00000.bin").write_bytes(data)
    again = loader_for(checkpoint=settings)
    assert again.step == int(newest.name.partition("-")[2]) - 2
    assert "shards-00000.bin has another checksum" in capsys.readouterr().err


def void_group(world: int = 2) -> ShardGroup:
    """A group whose next collective finds the other rank gone."""

    def fail(work: Callable[[Group], None]) -> bool:
        raise RuntimeError("connection closed by peer")

    return ShardGroup(0, world, fail)


def test_a_pass_over_a_broken_group_runs_through_and_is_known_to() -> None:
    group = void_group()
    trained = built(build, process_group.install(group, "cpu"), with_values=True)
    loss = trained.model(torch.ones(4, 6)).square().mean()
    loss.backward()
    assert group.void
    assert str(group.error) == "connection closed by peer"
    assert torch.isfinite(loss)


def test_a_barrier_is_one() -> None:
    """torch gives its options by name."""
    group = ShardGroup(0, 2, lambda _: False)
    process_group.install(group, "cpu")
    torch.distributed.barrier()
    assert group.void, "it was tried"


def test_called_away_is_no_error() -> None:
    group = ShardGroup(0, 2, lambda _: False)
    process_group.install(group, "cpu")
    tensor = torch.ones(3)
    torch.distributed.all_reduce(tensor)
    assert (group.void, group.error) == (True, None)
    assert torch.equal(tensor, torch.zeros(3))


def test_time_in_collectives_is_not_the_workers_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else all workers of a sharded model are as slow as the slowest one."""
    now = [100.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])

    def wait(work: Callable[[Group], None]) -> bool:
        now[0] += 5.0
        return True

    loader = loader_for()
    loader._shards._group = group = ShardGroup(0, 2, wait)
    begun = loader._own_time()
    now[0] += 0.5
    group.allreduce([torch.ones(3)])
    assert (loader._own_time() - begun, group.waited) == (0.5, 5.0)


def test_snapshots_are_refused_with_what_there_is_instead(tmp_path: Path) -> None:
    with pytest.raises(ElasticError, match=r"asks for 3; leave snapshots out .* copy_steps=:"):
        loader_for(checkpoint=elastic.Checkpoint(folder=str(tmp_path), snapshots=3))
    with pytest.raises(ElasticError, match="makes no snapshots"):
        loader_for(checkpoint=elastic.Checkpoint(snapshots=3))


def test_results_between_two_steps_are_no_numbers_and_after_the_last_there_are_none() -> None:
    group = void_group()
    process_group.install(group, "cpu")
    group.phase = BETWEEN
    tensor = torch.ones(3)
    torch.distributed.all_reduce(tensor)
    assert tensor.isnan().all()
    group.phase = AFTER
    with pytest.raises(ElasticError, match=r"after the training failed: connection closed by peer"):
        torch.distributed.all_reduce(tensor)


def test_a_model_of_before_a_resize_is_refused() -> None:
    old = loader_for().model
    loader_for()
    with pytest.raises(ElasticError, match=r"take loader\.model anew"):
        old(torch.ones(4, 6))


def test_without_values_nothing_is_drawn() -> None:
    """What is built to be filled draws no random numbers, and `torch.nn.init` is as before afterwards."""
    before = nn.init.uniform_
    mesh = process_group.install(void_group(1), "cpu")
    draw_from(1)
    built(build, mesh, with_values=False)
    after = torch.rand(1)
    draw_from(1)
    assert torch.equal(after, torch.rand(1))
    assert nn.init.uniform_ is before


def test_each_generation_has_its_own_mesh() -> None:
    """DTensor keeps what it found out for a mesh: one of the same ranks must not be taken for the same."""
    meshes = [process_group.install(ShardGroup(rank, 2, None), "cpu") for rank in (0, 1)]
    assert meshes[0] != meshes[1]
    trained = built(build, meshes[1], with_values=True)
    part = part_of(sharded_tensors(trained)["model last.weight"])
    assert (part.offsets, part.sizes) == ((1, 0), (0, 5))


def plain_model(_: DeviceMesh) -> tuple[nn.Module, torch.optim.Optimizer]:
    model = Net()
    return model, torch.optim.SGD(model.parameters(), lr=0.1)


def layers_only(mesh: DeviceMesh) -> tuple[nn.Module, torch.optim.Optimizer]:
    model = Net()
    fully_shard(model.first, mesh=mesh)
    return model, torch.optim.SGD(model.parameters(), lr=0.1)


def synced(mesh: DeviceMesh) -> tuple[nn.Module, torch.optim.Optimizer]:
    model = nn.SyncBatchNorm.convert_sync_batchnorm(Net())
    fully_shard(model, mesh=mesh)
    return model, torch.optim.SGD(model.parameters(), lr=0.1)


def model_alone(mesh: DeviceMesh) -> nn.Module:
    return build(mesh)[0]


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (model_alone, r"build\(mesh\) returned FSDPNet"),
        (plain_model, "returned a model that is not sharded"),
        (layers_only, r"parameter norm\.weight is trained but not sharded"),
        (synced, "layer norm is a SyncBatchNorm"),
    ],
)
def test_models_whose_gradients_nobody_would_add_up_are_refused(make: Any, said: str) -> None:
    with pytest.raises(ElasticError, match=said):
        loader_for(make)


def test_an_error_in_build_is_the_users() -> None:
    """Not that of a group that broke, after which the session would try again."""

    def broken(mesh: DeviceMesh) -> tuple[nn.Module, torch.optim.Optimizer]:
        raise RuntimeError("no such corpus")

    with pytest.raises(ElasticError, match=r"build\(mesh\) raised RuntimeError\('no such corpus'\)"):
        loader_for(broken)


def test_another_model_at_a_later_build_is_refused() -> None:
    mesh = process_group.install(void_group(1), "cpu")
    examples = {
        name: part_of(each) for name, each in sharded_tensors(built(build, mesh, with_values=True)).items()
    }

    def wider(mesh: DeviceMesh) -> tuple[nn.Module, torch.optim.Optimizer]:
        model = Net(width=7)
        fully_shard(model, mesh=mesh)
        return model, torch.optim.SGD(model.parameters(), lr=0.1)

    with pytest.raises(ElasticError, match=r"model first\.\w+ of shape \(7"):
        make_room(built(wider, mesh, with_values=False), examples)


def test_a_group_of_the_training_itself_is_said() -> None:
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    try:
        with pytest.raises(ElasticError, match=r"has called torch\.distributed\.init_process_group"):
            loader_for()
    finally:
        torch.distributed.destroy_process_group()


def test_a_recovery_needs_no_storage_when_the_workers_have_all(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is asked only for what may be more; a training that has nothing ends with the reason."""
    place = tmp_path / "checkpoints"
    settings = elastic.Checkpoint(folder=str(place), every_seconds=0, every_steps=2)
    loader = loader_for(checkpoint=settings)
    train(loader, lambda: loader.model, loader.optimizer)
    keeper: Any = loader._shard_keeper
    assert (keeper.known, loader.step) == (4, 6)
    shutil.rmtree(place)
    place.touch()
    assert loader._move(None, Group(1, 0, 1, None), lambda _, work: work())
    assert (loader._moved()["source"], capsys.readouterr().err) == ("workers", "")
    assert loader._move(None, Group(3, 0, 1, None), lambda _, work: work()), "others may have saved in 2"
    assert loader._moved()["source"] == "workers"
    assert "elastic: checkpoints cannot be read: cannot read the checkpoints in" in capsys.readouterr().err
    with pytest.raises(ElasticError, match="cannot read the checkpoints in"):
        loader_for(checkpoint=settings)


@pytest.mark.parametrize("saves", [True, False])
def test_where_nothing_so_old_is_left_it_does_not_go_on_with_first_values(
    tmp_path: Path, saves: bool
) -> None:
    """The model would begin anew in the middle of the data; the coordinator decides what is done instead."""
    checkpoint = elastic.Checkpoint(folder=str(tmp_path), every_seconds=0) if saves else None
    loader = loader_for(checkpoint=checkpoint)
    leave_after_two_steps(loader)
    assert not loader._roll_back(1, [2])
    with pytest.raises(NothingOldEnough if saves else ElasticError) as refused:
        loader._move(None, LONE, lambda group, work: work())
    if isinstance(refused.value, NothingOldEnough):
        assert told_of(refused.value) == {"kind": "no_way_back", "to_step": 1, "kept": None, "skipped": [2]}
    assert loader.step == 2


def test_who_stood_by_goes_on_from_what_others_saved_meanwhile(tmp_path: Path) -> None:
    """Its own state is whole, and older; it was there for no part of the way to the checkpoint."""
    settings = elastic.Checkpoint(folder=str(tmp_path), every_seconds=0, every_steps=2)
    ahead = loader_for(checkpoint=settings, epochs=1)
    train(ahead, lambda: ahead.model, ahead.optimizer)
    (tmp_path / "step-000000002").rename(tmp_path / "hidden")
    standing_by = loader_for(checkpoint=settings, epochs=1)
    assert standing_by.step == 0
    (tmp_path / "hidden").rename(tmp_path / "step-000000002")
    assert standing_by._move(None, Group(3, 0, 1, None), lambda _, work: work())
    assert (standing_by._moved()["source"], standing_by.step) == ("checkpoint", 2)


def test_without_a_sound_state_it_ends_instead_of_going_on_with_fresh_values() -> None:
    """All parts are torn, or after what is rolled back to, and there is no checkpoint; before the first step
    fresh values are the state.
    """
    group = Group(1, 0, 1, None)
    loader = loader_for()
    loader._shards.torn = True  # as when a collective between two steps broke
    assert loader._move(None, group, lambda _, work: work())
    assert (loader._moved()["source"], loader.step) == ("beginning", 0)
    train(loader, lambda: loader.model, loader.optimizer)
    weights = local_weights(loader)
    loader._shards.torn = True
    with pytest.raises(ElasticError, match="no worker has sound shards of the model any more"):
        loader._move(None, Group(2, 0, 1, None), lambda _, work: work())
    assert (loader.step, local_weights(loader)) == (6, weights), "nothing was put in its place"
    rolled_back = loader_for()
    assert rolled_back._move(None, group, lambda _, work: work())
    train(rolled_back, lambda: rolled_back.model, rolled_back.optimizer)
    assert not rolled_back._roll_back(0, [1])
    with pytest.raises(ElasticError, match="rolled back to before what they hold"):
        rolled_back._move(None, Group(2, 0, 1, None), lambda _, work: work())


def test_who_left_batches_out_and_has_done_no_step_begins_again_with_those_who_never_heard_of_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """All had begun again without the first batch, and one was lost in the second step."""
    stays, newcomer = loader_for(), loader_for()
    assert stays._roll_back(0, [1])
    assert stays._move(None, Group(1, 0, 1, None), lambda _, work: work())
    stays._settle()
    assert stays.step == 1
    survey = moving.survey
    heard: list[Any] = []

    def with_another(*args: Any, **named: Any) -> Any:
        found = [*survey(*args, **named), *heard]
        heard[:] = found[:1]
        return found

    monkeypatch.setattr(moving, "survey", with_another)
    stays._shards.torn, stays._shards._before = True, ()  # as when the other parts went with their worker
    newcomer._shards._origin = None  # as in a run, where it only pretends until it is let in
    for loader in (stays, newcomer):
        assert loader._move(None, Group(2, 0, 1, None), lambda _, work: work())
        loader._settle()
        assert (loader._moved()["source"], loader.step) == ("beginning", 1)
    assert local_weights(stays) == local_weights(newcomer)


def local_weights(loader: elastic.ShardedLoader) -> list[list[float]]:
    return [local(each).flatten().tolist() for each in loader.model.parameters()]


@pytest.mark.parametrize("mode", ["fast", "exact"])
def test_a_loop_may_begin_each_turn_with_zero_grad(mode: str) -> None:
    """Two passes a step, whose gradients FSDP adds up."""
    gradients = []
    for begins_with_it in (False, True):
        loader = loader_for(mode=mode)
        for inputs in loader:
            if begins_with_it:
                loader.optimizer.zero_grad()
            if loader.backward(loader.model(inputs).square().mean()):
                break
        gradients.append([local(each.grad) for each in loader.model.parameters()])  # type: ignore[arg-type]
        process_group.uninstall()
    assert all(torch.equal(one, other) for one, other in zip(*gradients, strict=True))

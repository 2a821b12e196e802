"""The loader by itself, as a researcher debugs with it: the gradient of the whole batch, and plain errors."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook
from torch.nn.parallel import DistributedDataParallel

from hpctools import elastic
from hpctools.elastic import run_session, session
from hpctools.elastic.exchange import Exchanged
from hpctools.elastic.folder import RunFolder, RunStatus
from hpctools.elastic.gradients import TAIL
from hpctools.elastic.group import Group
from hpctools.elastic.session import LoneSession
from hpctools.elastic.spec import RunSpec
from hpctools.errors import ElasticError

SAMPLES = 22
PARAMETERS = 6 * 3 + 3 + 3 + 1


class Points:
    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> tuple[int, torch.Tensor]:
        return index, torch.sin(torch.arange(6, dtype=torch.float64) * (index + 1))


def linear() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 3), nn.Tanh(), nn.Linear(3, 1)).double()


def loader_for(model: nn.Module, **options: Any) -> elastic.Loader:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return elastic.Loader(
        model, optimizer, Points(), **{"batch_size": 8, "epochs": 1, "shards": 3, **options}
    )


def test_gradient_is_that_of_the_mean_over_the_whole_batch() -> None:
    """Also for the last batch, of 6 samples in 3 shards instead of 8."""
    model = linear()
    loader = loader_for(model)
    points = Points()
    sizes = []
    for _, inputs in loader:
        if not loader.backward(model(inputs).square().mean()):
            continue
        batch = torch.stack([points[index][1] for index in loader.indices])
        expected = torch.autograd.grad(model(batch).square().mean(), list(model.parameters()))
        for parameter, gradient in zip(model.parameters(), expected, strict=True):
            torch.testing.assert_close(parameter.grad, gradient)
        assert loader.loss == pytest.approx(model(batch).square().mean().item())
        sizes.append(len(loader.indices))
    assert sizes == [8, 8, 6]
    assert (loader.step, loader.total_steps, len(loader)) == (3, 3, 3)


def test_number_of_shards_is_part_of_the_result_and_processes_are_not() -> None:
    """A lone process does the sums of the tree; with one shard it is the ordinary batch."""
    gradients = []
    for shards in (1, 8):
        model = linear()
        loader = loader_for(model, shards=shards)
        for _, inputs in loader:
            if loader.backward(model(inputs).square().mean()):
                gradients.append(next(model.parameters()).grad)
                break
    torch.testing.assert_close(*gradients)


def test_epochs_come_in_turn_with_new_orders() -> None:
    model = linear()
    loader = loader_for(model, epochs=2)
    orders: list[list[int]] = [[], []]
    for epoch in range(2):
        for indices, inputs in loader:
            loader.backward(model(inputs).sum())
            orders[epoch].extend(indices.tolist())
    assert [sorted(order) for order in orders] == [list(range(SAMPLES))] * 2
    assert orders[0] != orders[1]


def test_the_epoch_is_that_of_the_data_also_after_going_back_over_its_end() -> None:
    """Three steps an epoch: after the fourth the run goes back to the second, in the loop's second pass."""
    model = linear()
    loader = loader_for(model, epochs=2)
    saved: list[Any] = []
    seen = []

    def boundary() -> None:
        if loader.step == 4 and saved:
            loader._load(saved.pop())

    loader._session.boundary = boundary  # type: ignore[method-assign]
    assert loader.epoch == 0
    for turn in range(2):
        for _, inputs in loader:
            if loader.backward(model(inputs).square().mean()):
                seen.append((turn, loader.step, loader.epoch))
                if len(seen) == 2:
                    saved.append(loader._capture())
    first, second = [(0, 1, 0), (0, 2, 0), (0, 3, 0)], [(1, 4, 1), (1, 5, 1), (1, 6, 1)]
    assert seen == [*first, (1, 4, 1), (1, 3, 0), *second]


def test_batch_norm_moves_by_the_mean_of_the_shards() -> None:
    """Every shard begins with the statistics of before the step; integers move as one forward pass does."""
    model = nn.Sequential(nn.BatchNorm1d(6, momentum=0.5)).double()
    loader = loader_for(model, shards=2)
    parts: list[torch.Tensor] = []
    for _, inputs in loader:
        parts.append(inputs)
        if loader.backward(model(inputs).square().mean()):
            break
    means = torch.stack([part.mean(0) for part in parts])
    norm = model[0]
    assert isinstance(norm, nn.BatchNorm1d)
    torch.testing.assert_close(norm.running_mean, 0.5 * means.mean(0))
    assert norm.num_batches_tracked is not None
    assert int(norm.num_batches_tracked) == 1


def test_dropout_depends_on_step_and_shard_alone() -> None:
    def masks() -> list[torch.Tensor]:
        model = linear()
        loader = loader_for(model)
        drawn = []
        for _, inputs in loader:
            drawn.append(torch.rand(4))
            loader.backward(model(inputs).sum())
        return drawn

    torch.manual_seed(1)
    first = masks()
    torch.manual_seed(2)
    assert all(torch.equal(a, b) for a, b in zip(first, masks(), strict=True))
    assert len({tuple(mask.tolist()) for mask in first}) == len(first)


class ThirdOfThree:
    """A session whose other two workers hold all shards of a step that has only two."""

    is_lone = False
    ready_for = 0
    coming = None
    group = Group(1, 2, 3, None)

    def enter(self) -> None: ...

    def boundary(self) -> None: ...

    def finish(self) -> None: ...

    def recover(self) -> bool:
        return False

    def exchange(self, work: Callable[[Group], Exchanged]) -> Exchanged:
        return Exchanged(torch.full((PARAMETERS + TAIL,), 2.0, dtype=torch.float64), 0)


def test_worker_without_a_shard_stays_in_step() -> None:
    """More workers than samples: it does a pass without effect, and gets the others' gradients."""
    model = linear()
    loader = loader_for(model, batch_size=2)
    session = ThirdOfThree()
    loader._session = session
    steps = 0
    for _, inputs in loader:
        if loader.backward(model(inputs).sum()):
            steps += 1
            assert loader._sum._sums == {}, "it adds nothing"
            assert all(bool((each.grad == 2).all()) for each in model.parameters())
    assert (steps, loader.step) == (11, 11)


def test_forgotten_backward_is_said() -> None:
    loader = loader_for(linear())
    with pytest.raises(ElasticError, match=r"without loader\.backward"):
        for _ in loader:
            pass


def test_backward_without_a_batch_is_said() -> None:
    with pytest.raises(ElasticError, match="without a batch"):
        loader_for(linear()).backward(torch.zeros((), requires_grad=True))


@pytest.mark.parametrize("mode", ["exact", "fast"])
@pytest.mark.parametrize(
    ("change", "what"),
    [
        (lambda loss: loss.item(), "a float, and no tensor"),
        (lambda loss: {"loss": loss}, "a dict, and no tensor"),
        (lambda loss: loss.expand(2), r"a loss of shape \(2,\)"),
        (lambda loss: loss.detach(), "a loss without a graph"),
    ],
)
def test_a_loss_of_which_no_gradient_comes_is_said(
    mode: str, change: Callable[[torch.Tensor], Any], what: str
) -> None:
    model = linear()
    loader = loader_for(model, mode=mode)
    _, inputs = next(iter(loader))
    with pytest.raises(ElasticError, match=f"backward was given {what}.*; give the mean loss"):
        loader.backward(change(model(inputs).mean()))


def test_fewer_than_no_loading_processes_are_refused() -> None:
    with pytest.raises(ElasticError, match="num_workers is -1; it has to be 0 or more"):
        loader_for(linear(), num_workers=-1)


@pytest.mark.parametrize(
    ("option", "name"), [("batch_size", "batch_size"), ("epochs", "epochs"), ("shards", "shards")]
)
def test_numbers_that_make_no_sense_are_said(option: str, name: str) -> None:
    with pytest.raises(ElasticError, match=f"{name} is 0; it has to be 1 or more"):
        loader_for(linear(), **{option: 0})


@pytest.mark.parametrize("value", ["8", 8.5, None, float("inf")])
def test_what_is_no_whole_number_is_said_before_the_first_batch(value: Any) -> None:
    with pytest.raises(
        ElasticError, match=f"batch_size is {value!r}; it has to be 1 or more, a whole number"
    ):
        loader_for(linear(), batch_size=value)


def test_numbers_of_numpy_or_of_a_yaml_file_are_as_good() -> None:
    """The order of samples and random numbers are those of Python's own numbers."""
    fed: list[list[Any]] = [[], []]
    numbers = {"batch_size": np.int64(8), "epochs": 1.0, "shards": np.int32(3), "seed": np.int64(5)}
    for kept, options in zip(fed, ({"seed": 5}, numbers), strict=True):
        model = linear()
        loader = loader_for(model, **options)
        for indices, inputs in loader:
            kept.append((indices.tolist(), torch.rand(1).item()))
            loader.backward(model(inputs).sum())
    assert fed[0] == fed[1]


def test_more_workers_than_shards_are_refused_at_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = RunSpec("t-1", "t", "u", "", 1, 4, 1, ("true",), "/", (), "/r", "now")
    folder = RunFolder.create(tmp_path / "run", replace(spec, workers_per_node=2))
    monkeypatch.setenv("HPCTOOLS_RUN_DIR", str(folder.path))
    with pytest.raises(ElasticError, match="up to 8 workers cannot share 3 virtual shards; give shards=8"):
        loader_for(linear())


def test_in_fast_mode_workers_share_samples_and_not_shards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = RunSpec("t-1", "t", "u", "", 1, 8, 1, ("true",), "/", (), "/r", "now")
    folder = RunFolder.create(tmp_path / "run", spec)
    folder.write_status(RunStatus(state="finished"))
    monkeypatch.setenv("HPCTOOLS_RUN_DIR", str(folder.path))
    with pytest.raises(ElasticError, match="has ended"):  # and not that there are too few shards
        loader_for(linear(), mode="fast")


def test_run_that_has_ended_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = RunSpec("t-1", "t", "u", "", 1, 2, 1, ("true",), "/", (), "/r", "now")
    folder = RunFolder.create(tmp_path / "run", spec)
    folder.write_status(RunStatus(state="finished"))
    monkeypatch.setenv("HPCTOOLS_RUN_DIR", str(folder.path))
    with pytest.raises(ElasticError, match="has ended; submit it again"):
        loader_for(linear())


def test_a_second_loader_in_a_run_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both were one worker for the coordinator, and the run was over when the first had trained."""
    spec = RunSpec("t-1", "t", "u", "", 1, 2, 1, ("true",), "/", (), "/r", "now")
    folder = RunFolder.create(tmp_path / "run", spec)
    monkeypatch.setattr(session, "_begun", [])
    alone = session.LoneSession()
    monkeypatch.setattr(alone, "tell", lambda kind, **fields: None, raising=False)
    monkeypatch.setattr(run_session, "RunSession", lambda *_: alone)
    for _ in range(2):  # without a run there may be any number
        loader_for(linear())
    monkeypatch.setenv("HPCTOOLS_RUN_DIR", str(folder.path))
    loader_for(linear())
    with pytest.raises(ElasticError, match=r"a second loader is made, .*; train everything with the one"):
        loader_for(linear())


def test_torchruns_processes_are_no_trainings_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each trained by itself, without a word, and all wrote the same files."""
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "none")
    monkeypatch.setenv("WORLD_SIZE", "1")
    loader_for(linear())
    monkeypatch.setenv("WORLD_SIZE", "4")
    with pytest.raises(
        ElasticError, match=r"torchrun has started 4 of this .*; start the script with python"
    ):
        loader_for(linear())
    monkeypatch.delenv("TORCHELASTIC_RUN_ID")  # srun's, or a habit
    loader_for(linear())


def test_what_the_policy_says_of_the_present_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Six workers of two a node are three nodes."""
    assert loader_for(linear()).scale_config == {}
    policy = {"sizes": [1, 3], "scale_config": {"1": {"lr": 0.1}, "3": {"lr": 0.3}}}
    spec = RunSpec("t-1", "t", "u", "", 1, 3, 2, ("true",), "/", (), "/r", "now", policy=policy)
    loader = loader_for(linear())
    loader._spec = spec
    loader._session.group = Group(1, 0, 6, None)
    assert loader.scale_config == {"lr": 0.3}


def test_while_we_practise_the_policy_is_read_as_of_the_least_size() -> None:
    """A loop that takes a setting by its name finds it in its first batch, too."""
    policy = {"sizes": [2, 3], "scale_config": {"2": {"lr": 0.2}, "3": {"lr": 0.3}}}
    spec = RunSpec("t-1", "t", "u", "", 2, 3, 1, ("true",), "/", (), "/r", "now", policy=policy, sizes=(2, 3))
    model = linear()
    loader = loader_for(model)
    loader._spec, loader._session = spec, Alone()
    found = []
    for _, inputs in loader:
        found.append((loader.world_size, loader.scale_config))
        loader.backward(model(inputs).square().mean())
    assert found[0] == (0, {"lr": 0.2})
    assert found[1][0] == 1


def test_what_is_no_number_is_not_reported() -> None:
    loader = loader_for(linear())
    loader.report(accuracy=0.5)
    with pytest.raises(ElasticError, match="not all are numbers; give floats"):
        loader.report(name="resnet")  # type: ignore[arg-type]


def test_numbers_are_of_the_step_in_work_or_of_the_one_just_completed() -> None:
    """Of the batch for practice nothing is told: it is of no step."""
    model = linear()
    loader = loader_for(model)
    loader._session = Alone()
    for _, inputs in loader:
        loader.report(within=loader.step)
        if loader.backward(model(inputs).square().mean()):
            loader.report(after=loader.step)
        else:
            loader.report(between=loader.step)
    told = loader._metrics.take_steps(leads=True)
    assert told["within"] == told["between"] == [(1, 0.0), (2, 1.0), (3, 2.0)]
    assert told["after"] == [(1, 1.0), (2, 2.0), (3, 3.0)]
    assert [step for step, _ in told["loss"]] == [1, 2, 3]


class Alone(LoneSession):
    """The only worker of a run, which practises before it begins."""

    is_lone = False


class Drifting(nn.Module):
    """Buffers that are saved nowhere, and that the forward pass changes, grows or leaves alone."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.Linear(6, 1, dtype=torch.float64)
        self.register_buffer("drift", torch.zeros(6, dtype=torch.float64), persistent=False)
        self.register_buffer("angles", torch.zeros(1), persistent=False)
        self.register_buffer("none", None, persistent=False)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        self.drift += 0.1 * inputs.detach().mean(0)
        return self.layer(inputs + self.drift.clone())


def train_drifting(model: Drifting, until: int = 6, **options: Any) -> list[float]:
    losses: list[float] = []
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = elastic.Loader(model, optimizer, Points(), batch_size=8, epochs=2, shards=3, **options)
    for _ in range(2):
        for _, inputs in loader:
            if loader.step >= until:
                break
            if loader.backward(model(inputs).square().mean()):
                optimizer.step()
                optimizer.zero_grad()
                losses.append(loader.loss)
    if loader._keeper is not None:
        loader._keeper.close(finished=True)  # what is being written is completed
    return losses


def test_buffers_that_are_not_saved_with_the_model_go_on_from_a_checkpoint(tmp_path: Path) -> None:
    expected = train_drifting(Drifting())
    settings = elastic.Checkpoint(folder=str(tmp_path), every_seconds=0, every_steps=3)
    assert train_drifting(Drifting(), until=4, checkpoint=settings) == expected[:4]
    assert train_drifting(Drifting(), checkpoint=settings) == expected[3:]


def test_a_buffer_that_has_grown_elsewhere_is_taken_over_and_old_checkpoints_are_read() -> None:
    model, other = Drifting(), Drifting()
    other.angles = torch.arange(5.0)
    first, second = loader_for(model), loader_for(other)
    first._load(second._capture())
    assert torch.equal(model.angles, torch.arange(5.0))
    assert model.angles.data_ptr() != other.angles.data_ptr()
    older = {name: value for name, value in second._capture().items() if name != "unsaved buffers"}
    first._load(older)
    assert "unsaved buffers" not in loader_for(linear())._capture()


def test_gradient_scaler_scales_gradients_and_not_the_loss() -> None:
    """Shard by shard; what the scaler has learnt moves with the state."""
    model, scaled = linear(), linear()
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    plain = loader_for(model)
    loader = loader_for(scaled, state={"scaler": scaler})
    for (_, inputs), (_, others) in zip(plain, loader, strict=True):
        done = plain.backward(model(inputs).square().mean())
        assert loader.backward(scaled(others).square().mean(), scaler) == done
        if done:
            assert loader.loss == plain.loss
            for parameter, other in zip(model.parameters(), scaled.parameters(), strict=True):
                torch.testing.assert_close(other.grad, parameter.grad * 8)  # type: ignore[operator]
    assert loader._capture()["state scaler"]["scale"] == 8.0


@pytest.mark.parametrize("mode", ["exact", "fast"])
def test_the_norm_that_is_told_is_that_of_gradients_without_a_scale(mode: str) -> None:
    """A rule's threshold is one for the gradients, not for what a scaler makes of them."""
    model, scaler = linear(), torch.amp.GradScaler("cpu", init_scale=65536.0)
    told = []
    for given in (None, scaler):
        loader = loader_for(model, mode=mode)
        for _, inputs in loader:
            if loader.backward(model(inputs).square().mean(), given):
                break
        told.append(loader._metrics.take()["grad_norm"])
    assert told[1] == pytest.approx(told[0])


@pytest.mark.parametrize("mode", ["exact", "fast"])
def test_an_overflow_that_a_scaler_deals_with_is_no_norm(mode: str) -> None:
    """Half precision: the scaler tries a scale that is too large, leaves the step out and goes down."""
    for scale, finite in ((2.0, None), (1.0, 0.0)):
        model, scaler = linear(), torch.amp.GradScaler("cpu", init_scale=scale)
        loader = loader_for(model, mode=mode)
        for _, inputs in loader:
            loss = model(inputs).square().mean()
            loss.register_hook(lambda gradient: gradient * math.inf)
            if loader.backward(loss, scaler):
                break
        numbers = loader._metrics.take()
        assert (numbers.get("grad_finite"), "grad_norm" in numbers) == (finite, finite is not None)


def test_a_sign_of_life_says_whether_the_loop_is_between_two_passes() -> None:
    """Also after a pass that the loop has left: rules about steps look away there."""
    model = linear()
    loader = loader_for(model, epochs=3)
    assert loader._progress()["between"]
    for leaves in (False, True, False):
        for _, inputs in loader:
            assert not loader._progress()["between"]
            if loader.backward(model(inputs).square().mean()) and leaves:
                break
        assert loader._progress()["between"]


@pytest.fixture
def group_of_one(tmp_path: Path) -> Iterator[None]:
    store = f"file://{tmp_path}/store"
    torch.distributed.init_process_group("gloo", init_method=store, rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


@pytest.mark.usefixtures("group_of_one")
def test_a_model_wrapped_over_one_process_is_switched_off() -> None:
    """The loop goes on to call the wrapper; its state has the names of the model itself."""
    model, wrapped = linear(), DistributedDataParallel(linear())
    losses = []
    for each in (model, wrapped):
        loader = loader_for(each)
        for _, inputs in loader:
            if loader.backward(each(inputs).square().mean()):
                losses.append(loader.loss)
    assert losses[:3] == losses[3:]
    assert list(loader._capture()["model"]) == list(model.state_dict())


@pytest.mark.usefixtures("group_of_one")
def test_a_model_wrapped_over_several_processes_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    wrapped = DistributedDataParallel(linear())
    wrapped.process_group = Group(0, 0, 2, None)
    monkeypatch.setattr(Group, "size", lambda group: group.world, raising=False)
    with pytest.raises(ElasticError, match="over 2 processes; leave out init_process_group"):
        loader_for(wrapped)


@pytest.mark.usefixtures("group_of_one")
def test_a_communication_hook_that_nobody_would_call_is_refused() -> None:
    wrapped = DistributedDataParallel(linear())
    wrapped.register_comm_hook(None, fp16_compress_hook)
    with pytest.raises(ElasticError, match=r"has a communication hook.*; leave out register_comm_hook"):
        loader_for(wrapped)


def test_a_batch_norm_over_all_workers_is_refused_and_not_silently_one_of_each_shard() -> None:
    normed = nn.Sequential(linear(), nn.BatchNorm1d(1).double())
    loader_for(normed)
    with pytest.raises(ElasticError, match=r"layer 1 is a SyncBatchNorm.*; leave out convert_sync_batchnorm"):
        loader_for(nn.SyncBatchNorm.convert_sync_batchnorm(normed))


@pytest.mark.parametrize(("mode", "microbatch"), [("exact", 4), ("fast", 0), ("slow", None)])
def test_modes_that_are_none_are_said(mode: str, microbatch: int | None) -> None:
    with pytest.raises(ElasticError, match=f"mode is '{mode}' and microbatch {microbatch}"):
        loader_for(linear(), mode=mode, microbatch=microbatch)


class NotIn:
    """A session that has not been entered."""

    is_lone = False

    @property
    def group(self) -> Group:
        raise AssertionError("enter() comes first")


def test_what_gradients_go_over_is_known_at_any_time(monkeypatch: pytest.MonkeyPatch) -> None:
    loader = loader_for(linear())
    assert loader.reduce_backend == "gloo"
    monkeypatch.setattr(loader, "_session", NotIn())
    assert loader.reduce_backend == "gloo", "as in the batch for practice"


class Buffered(nn.Module):
    def __init__(self, buffer: torch.Tensor) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 1)
        self.register_buffer("adjacency", buffer, persistent=False)


@pytest.mark.parametrize(
    ("buffer", "what"),
    [
        (torch.eye(3).to_sparse(), r"is sparse \(torch.sparse_coo\)"),
        (torch.ones(3, 1, dtype=torch.bool).expand(3, 3), r"has elements that share memory \(expand\(\)\)"),
        (torch.ones(3, dtype=torch.uint32), "is of torch.uint32"),
        (torch.ones(3).to(torch.float8_e4m3fn), "is of torch.float8_e4m3fn"),
    ],
)
def test_a_buffer_that_cannot_be_added_up_is_named_before_the_first_batch(
    buffer: torch.Tensor, what: str
) -> None:
    with pytest.raises(ElasticError, match=f"the model's buffer adjacency {what}: .*; make it dense"):
        loader_for(Buffered(buffer))
    loader_for(Buffered(torch.ones(1, 3, dtype=torch.bfloat16).expand(1, 3)))

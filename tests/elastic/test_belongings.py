"""A gradient scaler or a scheduler that the loop works with and the loader was not given is told."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.optim import lr_scheduler

from hpctools import elastic
from hpctools.elastic.belongings import check_scheduler
from hpctools.elastic.held import Held
from hpctools.errors import ElasticError

NO_SCALER = r"scaler that does not move .*; give the loader state=\{'scaler': scaler\}"
NO_SCHEDULER = "a scheduler was made over the optimizer, and the loader has none: where it is in use"


class Wrapper:
    """An object of the user's that has another one, whose state is its own."""

    def __init__(self, inner: Any) -> None:
        self.parts = {"inner": [inner]}

    def state_dict(self) -> dict[str, Any]:
        return {"inner": self.parts["inner"][0].state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.parts["inner"][0].load_state_dict(state["inner"])


class Slotted:
    """It has its scaler in no `__dict__`."""

    __slots__ = ("inner",)

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def state_dict(self) -> dict[str, Any]:
        return {"all": [{"scaler": self.inner.state_dict()}]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.inner.load_state_dict(state["all"][0]["scaler"])


def in_a_closure(inner: Any) -> Any:
    """An object that only has two functions."""
    return SimpleNamespace(
        state_dict=lambda: {"precision": inner.state_dict()},
        load_state_dict=lambda state: inner.load_state_dict(state["precision"]),
    )


class Training:
    """A small one."""

    def __init__(self, folder: Path | None) -> None:
        self.model = torch.nn.Linear(2, 1)
        self.optimizer = torch.optim.SGD(self.model.parameters(), 0.1)
        self.folder = folder

    def loader(self, **given: Any) -> elastic.Loader:
        every = {"every_seconds": 0, "every_steps": 1}
        saves = None if self.folder is None else elastic.Checkpoint(folder=str(self.folder), **every)
        data = torch.utils.data.TensorDataset(torch.ones(8, 2))
        return elastic.Loader(
            self.model, self.optimizer, data, batch_size=4, epochs=1, checkpoint=saves, **given
        )

    def step(self, loader: elastic.Loader, scaler: torch.amp.GradScaler | None = None) -> None:
        for (inputs,) in loader:
            if loader.backward(self.model(inputs).mean(), scaler):
                return


def scaler_for(*, enabled: bool = True) -> torch.amp.GradScaler:
    return torch.amp.GradScaler("cpu", init_scale=8.0, enabled=enabled)


def test_a_scaler_that_is_not_saved_is_an_error_with_the_first_batch(tmp_path: Path) -> None:
    training = Training(tmp_path)
    with pytest.raises(ElasticError, match=NO_SCALER):
        training.step(training.loader(state={"other": scaler_for()}), scaler_for())
    assert list(tmp_path.iterdir()) == []


def test_a_second_scaler_is_found_later(tmp_path: Path) -> None:
    training, scaler = Training(tmp_path), scaler_for()
    loader = training.loader(state={"scaler": scaler})
    training.step(loader, scaler)
    with pytest.raises(ElasticError, match=NO_SCALER):
        training.step(loader, scaler_for())


@pytest.mark.parametrize("wrapped", [lambda scaler: scaler, Wrapper, Slotted, in_a_closure])
def test_a_scaler_that_is_saved_is_none(tmp_path: Path, wrapped: Callable[[Any], Any]) -> None:
    training, scaler = Training(tmp_path), scaler_for()
    before = scaler.state_dict()
    training.step(training.loader(state={"mine": wrapped(scaler)}), scaler)
    assert scaler.state_dict() == before


@pytest.mark.parametrize("wrapped", [Wrapper, Slotted, in_a_closure])
def test_another_one_s_state_is_not_taken_for_it(tmp_path: Path, wrapped: Callable[[Any], Any]) -> None:
    """Though it is the same at the beginning."""
    training, scaler = Training(tmp_path), scaler_for()
    with pytest.raises(ElasticError, match=NO_SCALER):
        training.step(training.loader(state={"mine": wrapped(scaler_for())}), scaler)
    assert scaler.get_growth_interval() == scaler_for().get_growth_interval()


def test_two_scalers_in_turn_are_looked_for_once_each(tmp_path: Path) -> None:
    """A look goes through the whole state."""
    training, scalers, looks = Training(tmp_path), (scaler_for(), scaler_for()), []
    held = Slotted(SimpleNamespace(state_dict=lambda: looks.append(1) or [s.state_dict() for s in scalers]))
    loader = training.loader(state={"mine": held})
    Held._check_readable(loader, moves=True)
    counts = []
    for scaler in scalers * 3:
        loader._check_scaler(scaler)
        counts.append(len(looks))
    assert counts[1:] == [counts[1]] * 5


def test_a_scaler_that_is_switched_off_or_saved_by_nobody_needs_no_state(tmp_path: Path) -> None:
    training, alone = Training(tmp_path), Training(None)
    training.step(training.loader(), scaler_for(enabled=False))
    alone.step(alone.loader(), scaler_for())


def test_a_worker_says_so_in_its_batch_for_practice() -> None:
    """Others may join there, also where nothing is saved."""
    loader = Training(None).loader()
    Held._check_readable(loader, moves=True)
    with pytest.raises(ElasticError, match=NO_SCALER):
        loader._check_scaler(scaler_for())


def test_a_checkpoint_may_be_older_than_what_is_in_state_since(tmp_path: Path) -> None:
    """As of a release that did not ask for the scaler: what is new stays as built, and is named."""
    first = Training(tmp_path)
    first.step(earlier := first.loader())
    assert next(iter(earlier)) is not None  # it is saved
    assert earlier._keeper is not None
    assert earlier._keeper._saver.wait(30)
    again, scaler = Training(tmp_path), scaler_for()
    scheduler = lr_scheduler.StepLR(again.optimizer, 3)
    loader = again.loader(scheduler=scheduler, state={"scaler": scaler})
    with pytest.warns(RuntimeWarning, match="the checkpoint has no ") as told:
        again.step(loader, scaler)
    assert [str(each.message).split(":")[0] for each in told] == [
        "the checkpoint has no scheduler",
        "the checkpoint has no state scaler",
    ]
    assert (loader.step, scaler.get_scale(), scheduler.last_epoch) == (2, 8.0, 0)
    captured = {name: each for name, each in loader._capture().items() if name != "state scaler"}
    with pytest.raises(KeyError, match="state scaler"):
        loader._load(captured)  # of a worker with the same script


def chained(optimizer: torch.optim.Optimizer) -> lr_scheduler.LRScheduler:
    warm, steps = lr_scheduler.LinearLR(optimizer, 0.1), lr_scheduler.MultiStepLR(optimizer, [1, 3])
    return lr_scheduler.SequentialLR(optimizer, [warm, steps], [3])


SCHEDULERS: list[Callable[[Any], lr_scheduler.LRScheduler]] = [
    lambda optimizer: lr_scheduler.StepLR(optimizer, 3),
    chained,
    lambda optimizer: lr_scheduler.ChainedScheduler([lr_scheduler.StepLR(optimizer, 3)]),
]


@pytest.mark.parametrize("scheduler_of", SCHEDULERS)
def test_a_scheduler_that_is_not_saved_is_warned_of(
    tmp_path: Path, scheduler_of: Callable[[Any], lr_scheduler.LRScheduler]
) -> None:
    training = Training(tmp_path)
    scheduler = scheduler_of(training.optimizer)
    with pytest.warns(RuntimeWarning, match=NO_SCHEDULER) as told:
        training.step(training.loader())
    assert [each.filename for each in told] == [__file__]
    training.step(training.loader(scheduler=scheduler))
    for given in (scheduler, Wrapper(scheduler)):
        training.step(training.loader(state={"mine": given}))


def test_a_scheduler_of_another_optimizer_is_another_one(tmp_path: Path) -> None:
    """Its own mark says nothing of ours, and to be given it does not help."""
    training = Training(tmp_path)
    theirs = lr_scheduler.StepLR(torch.optim.SGD([torch.zeros(1)]), 3)
    training.step(training.loader())
    ours = lr_scheduler.StepLR(training.optimizer, 3)
    with pytest.warns(RuntimeWarning, match=NO_SCHEDULER):
        check_scheduler(training.optimizer, [theirs])
    check_scheduler(training.optimizer, [theirs, ours])


def test_where_nothing_moves_a_scheduler_is_the_training_s_own() -> None:
    training = Training(None)
    scheduler = lr_scheduler.StepLR(training.optimizer, 3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        training.step(training.loader())
    assert scheduler.last_epoch == 0

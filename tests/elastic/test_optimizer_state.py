"""A worker that joins steps with the numbers that the others have, whatever dtype the optimizer keeps."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from hpctools import elastic


class Masters(torch.optim.Optimizer):
    """Steps a narrow model by weights and momentum in float32."""

    def __init__(self, parameters: Any) -> None:
        super().__init__(parameters, {"lr": 0.01})

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        for parameter in self.param_groups[0]["params"]:
            state = self.state[parameter]
            if not state:
                state |= {"master": parameter.float(), "mean": torch.zeros_like(parameter.float())}
            state["mean"].lerp_(parameter.grad.float(), 0.1)
            state["master"].sub_(state["mean"], alpha=0.01)
            parameter.copy_(state["master"])


class Worker:
    """One process's training."""

    def __init__(self, optimizer: Callable[[Any], torch.optim.Optimizer], dtype: torch.dtype) -> None:
        torch.manual_seed(0)
        self.model = torch.nn.Linear(3, 1).to(dtype)
        self.optimizer, self.further = (optimizer(self.model.parameters()) for _ in range(2))
        data = [torch.sin(torch.arange(3) + 1.0 * index).to(dtype) for index in range(64)]
        state = {"further": self.further}
        self.loader = elastic.Loader(
            self.model, self.optimizer, data, batch_size=4, epochs=1, shards=2, state=state
        )
        self._batches = iter(self.loader)

    def go_to(self, step: int) -> None:
        while self.loader.step < step:
            if self.loader.backward(self.model(next(self._batches)).square().mean()):
                self.optimizer.step()
                self.further.step()
                self.optimizer.zero_grad()

    def values(self) -> list[Any]:
        kept = [each for state in self.further.state.values() for each in state.values()]
        kept += [each for state in self.optimizer.state.values() for each in state.values()]
        return [*self.model.state_dict().values(), *kept]


@pytest.mark.parametrize(
    ("optimizer", "dtype"),
    [
        (Masters, torch.bfloat16),
        (torch.optim.NAdam, torch.float64),
        (torch.optim.NAdam, torch.bfloat16),
        (torch.optim.AdamW, torch.bfloat16),
    ],
)
def test_who_joins_goes_on_with_the_same_bits(
    optimizer: Callable[[Any], torch.optim.Optimizer], dtype: torch.dtype
) -> None:
    first, joined = Worker(optimizer, dtype), Worker(optimizer, dtype)
    first.go_to(4)
    joined.loader._load(copy.deepcopy(first.loader._capture()))
    first.go_to(9)
    joined.go_to(9)
    for ours, theirs in zip(first.values(), joined.values(), strict=True):
        assert ours.dtype == theirs.dtype
        assert torch.equal(ours, theirs)


def test_a_model_that_is_narrower_now_takes_its_state_as_torch_does() -> None:
    first, narrow = Worker(torch.optim.AdamW, torch.float32), Worker(torch.optim.AdamW, torch.bfloat16)
    first.go_to(3)
    narrow.loader._load(copy.deepcopy(first.loader._capture()))
    narrow.go_to(5)
    (state, _) = narrow.optimizer.state.values()
    assert (state["exp_avg"].dtype, state["step"].dtype) == (torch.bfloat16, torch.float32)


def train_pictures(until: int, settings: elastic.Checkpoint | None, **options: Any) -> list[torch.Tensor]:
    """The weights of a model in `channels_last`, stepped by a fused optimizer."""
    torch.manual_seed(0)
    model = torch.nn.Conv2d(3, 4, 3).to(memory_format=torch.channels_last)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, fused=True)
    data = [torch.sin(torch.arange(108.0) * (place + 1)).view(3, 6, 6) for place in range(16)]
    loader = elastic.Loader(
        model, optimizer, data, batch_size=4, epochs=1, shards=1, checkpoint=settings, **options
    )
    for inputs in loader:
        if loader.step == until:
            break
        if loader.backward(model(inputs).square().mean()):
            optimizer.step()
    if loader._keeper is not None:
        loader._keeper.close(finished=True)
    return [each.detach() for each in model.parameters()]


def test_fused_optimizers_step_models_in_channels_last(tmp_path: Path) -> None:
    """They take gradients and momentum as these lie in memory, and ask nobody for the layout."""
    expected = train_pictures(4, None, mode="fast")
    for found in (train_pictures(4, None), pictures_saved_between(tmp_path)):
        assert all(torch.allclose(one, other) for one, other in zip(found, expected, strict=True))


def pictures_saved_between(folder: Path) -> list[torch.Tensor]:
    settings = elastic.Checkpoint(folder=str(folder), every_seconds=0, every_steps=1)
    train_pictures(2, settings)
    return train_pictures(4, settings)

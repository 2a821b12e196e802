"""A worker that joins steps with the numbers that the others have, whatever dtype the optimizer keeps."""

from __future__ import annotations

import copy
from collections.abc import Callable
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

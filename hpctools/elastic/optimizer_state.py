"""An optimizer's state as it was, in the dtypes that it had and laid out as the parameters are.

`torch.optim.Optimizer.load_state_dict` casts all that belongs to a parameter to its dtype, but for `step`.
Some of it is of another one: master weights in float32 of a model in bfloat16, NAdam's `mu_product` beside a
model in float64. A worker that joined would step with other numbers than the others, or not at all.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import nn

from hpctools.elastic.gradients import laid_out_as


def keep_dtypes(
    optimizer: torch.optim.Optimizer,
    given: Mapping[str, Any],
    model: nn.Module,
    given_model: Mapping[str, Any],
) -> None:
    """Undo the casts of what an optimizer has loaded.

    What belongs to a parameter whose own dtype has changed since stays as torch has made it.

    Args:
        given: what its `load_state_dict` was given.
        given_model: what the model's was.
    """
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    for key, parameter in _numbered(optimizer, given):
        before = given_model.get(names.get(id(parameter), ""))
        if getattr(before, "dtype", None) != parameter.dtype:
            continue
        kept: dict[str, Any] = optimizer.state.get(parameter, {})
        for name, value in given["state"].get(key, {}).items():
            if _is_cast(value, kept.get(name)):
                kept[name] = value.to(kept[name].device)


def keep_layouts(optimizer: torch.optim.Optimizer) -> None:
    """Lay out what an optimizer has loaded as its parameters are: state travels without its layout."""
    for parameter in (each for group in optimizer.param_groups for each in group["params"]):
        kept: dict[str, Any] = optimizer.state.get(parameter, {})
        for name, value in kept.items():
            if isinstance(value, torch.Tensor) and value.shape == parameter.shape:
                kept[name] = laid_out_as(parameter, value)


def _numbered(
    optimizer: torch.optim.Optimizer, given: Mapping[str, Any]
) -> Iterator[tuple[int, torch.Tensor]]:
    """The parameters, under the numbers of what was given; none where that is unlike torch's own."""
    for group, saved in zip(optimizer.param_groups, given.get("param_groups", ()), strict=False):
        yield from zip(saved.get("params", ()), group["params"], strict=False)


def _is_cast(given: object, kept: object) -> bool:
    if not (isinstance(given, torch.Tensor) and isinstance(kept, torch.Tensor)):
        return False
    return given.dtype != kept.dtype and given.shape == kept.shape

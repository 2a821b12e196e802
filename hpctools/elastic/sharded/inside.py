"""What FSDP keeps of its layers, which torch has no public words for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from torch.distributed.fsdp import FSDPModule

from hpctools.errors import ElasticError


def parameters_of(layer: FSDPModule) -> Iterator[Any]:
    """FSDP's records of a layer's parameters (`FSDPParam`)."""
    state: Any = layer._get_fsdp_state()
    groups = getattr(state, "_fsdp_param_groups", None) or [getattr(state, "_fsdp_param_group", None)]
    return (each for group in groups if group is not None for each in group.fsdp_params)


def check_added_up(layers: Iterable[FSDPModule]) -> None:
    """After all passes of a step: that FSDP has added up the gradients of all ranks.

    Raises:
        ElasticError: it still has some that it has not; the step would be without them.
    """
    for parameter in (each for layer in layers for each in parameters_of(layer)):
        gathered = getattr(parameter, "_unsharded_param", None)
        kept = getattr(parameter, "unsharded_accumulated_grad", None)
        if kept is not None or getattr(gathered, "grad", None) is not None:
            raise ElasticError(
                f"FSDP has not added up the gradients of parameter {parameter._param_fqn} in this step",
                "let activation checkpointing of layers that are called twice have use_reentrant=False, and "
                "leave out set_requires_gradient_sync(False)",
            )

"""Exact mode of sharded models: gradients of virtual shards are added up one after the other, in their order.

In each pass the ranks do neighbouring virtual shards (`reduction.in_turn`), and in FSDP's reduce-scatter who
owns a part of a layer gets every rank's gradient of it. So it adds them, in the order of the ranks, to what
the passes before came to: g0 + g1 + g2 + ..., whatever the number of ranks, in the memory of one more part.
FSDP adds what each pass gives to the gradient that it has: it is given minus zero, which changes no number,
and the sum in the last pass. A lone rank's reduce-scatter is none: FSDP adds up pass by pass, in that order.

A layer may be reduced in several parts (a model with two forward methods): they are told apart by their
order, and a parameter that comes twice is refused, in a lone run as well.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor

from hpctools.elastic.group import Group
from hpctools.elastic.sharded.collectives import parts_for_us, reduce_scatter
from hpctools.elastic.sharded.inside import parameters_of
from hpctools.elastic.sharded.process_group import ShardGroup
from hpctools.elastic.sharded.trained import local
from hpctools.errors import ElasticError


class InOrder:
    """Adds up the gradients of a model's layers over the passes of a step.

    Args:
        model: its layers' reduce-scatters are done here from now on.
        group: of the generation that the model was built for.

    Attributes:
        used: by parameter that is trained, in the model's order: 1 when this pass has given it a gradient. A
            buffer like those of the model: set back before each pass, and added up over the virtual shards.

    Raises:
        ElasticError: this torch does not let us, or a layer adds up in another type than its parameters'.
    """

    def __init__(self, model: nn.Module, group: ShardGroup) -> None:
        self.group = group
        trained = [(name, each) for name, each in model.named_parameters() if each.requires_grad]
        self.used = torch.zeros(len(trained))
        self._names = [name for name, _ in trained]
        self._sums: dict[tuple[str, int], torch.Tensor] = {}
        self._calls: Counter[str] = Counter()
        self._shards = self._done = 0
        self._counts = True
        for number, (_, parameter) in enumerate(trained):
            hooked: Any = parameter  # torch does not type it
            hooked.register_post_accumulate_grad_hook(partial(self._note, number))
        for name, module in model.named_modules():
            if isinstance(module, FSDPModule):
                _check_type(name, module)
                _settings_of(module).set_custom_reduce_scatter(_Layer(name, self))

    def begin(self, shards: int) -> None:
        """A step of so many virtual shards begins, or begins again."""
        self._sums, self._shards, self._done = {}, shards, 0
        self._calls.clear()

    def begin_pass(self, *, counts: bool) -> None:
        """The backward pass of our next virtual shard comes; of one without samples it does not count."""
        self._counts = counts

    def end_pass(self) -> None:
        """All ranks have done one virtual shard more, or practised."""
        self._done += self.group.size()
        self._calls.clear()

    def check(self) -> None:
        """After the step, when `used` is the mean over its samples.

        Raises:
            ElasticError: some virtual shards have trained a parameter, and others have not.
        """
        self._done = self._shards  # a lone rank is not fed streams that have ended
        some = ((self.used > 1e-5) & (self.used < 1 - 1e-5)).nonzero().flatten().tolist()
        if some:
            raise ElasticError(
                f"mode='exact': some virtual shards of a step gave parameter {self._names[some[0]]} a "
                "gradient, and others did not",
                "let each use the same parameters; or call model.set_reduce_scatter_unused_params(True) in "
                "build, where torch has it; or take mode='fast'",
            )

    def add(self, name: str, output: torch.Tensor, inputs: torch.Tensor) -> None:
        """A layer's reduce-scatter.

        Args:
            output: inputs.numel() / world elements: minus zeros, in the last pass the sum.
            inputs: our virtual shard's gradient, in world equal parts; overwritten where it does not count.

        Raises:
            ElasticError: it is of other parameters than in the passes before.
        """
        if self._is_over:
            self.group.combine(output, inputs, reduce_scatter)
            return
        if not self._counts:
            inputs.fill_(-0.0)
        key, sums = (name, self._calls[name]), self._sums
        self._calls[name] += 1
        counting = min(self.group.size(), self._shards - self._done)
        is_last = self._done + self.group.size() >= self._shards
        known = sums.get(key)
        if known is not None and known.numel() != output.numel() and not self.group.void:
            raise _other_parameters(name)

        # With this step's `sums`: who is called away may still be at it when the next step begins.
        def work(group: Group, into: torch.Tensor, own: torch.Tensor) -> None:
            parts = parts_for_us(group, own)
            for rank in range(counting):
                sums[key] = sums[key].add_(parts[rank]) if key in sums else parts[rank].clone()
            into.copy_(sums.pop(key)) if is_last else into.fill_(-0.0)

        self.group.combine(output, inputs, work)

    @property
    def _is_over(self) -> bool:
        """Whether this is a backward pass of the training's own, after the step."""
        return self._done >= self._shards

    def _note(self, number: int, _: object) -> None:
        if self._is_over or self.group.void:
            return
        if self.used[number]:
            raise ElasticError(
                f"mode='exact': parameter {self._names[number]} got gradients twice for one virtual shard",
                "call loader.backward alone, once for each batch, on a loss that runs through each layer in "
                "one forward pass; or take mode='fast'",
            )
        self.used[number] = 1


class _Layer:
    """What FSDP calls for one layer: `torch.distributed.fsdp`'s ReduceScatter."""

    def __init__(self, name: str, sums: InOrder) -> None:
        self._name = name
        self._sums = sums

    def allocate(self, size: Sequence[int], *, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
        return torch.empty(*size, dtype=dtype, device=device)

    def __call__(
        self, output_tensor: torch.Tensor, input_tensor: torch.Tensor, *_: object, **__: object
    ) -> None:
        self._sums.add(self._name, output_tensor, input_tensor)


@torch.no_grad()
def clip_in_order(parameters: Sequence[nn.Parameter], max_norm: float, norm_type: float) -> torch.Tensor:
    """As `torch.nn.utils.clip_grad_norm_`, with the same bits on any number of ranks; all have to call it.

    Each gradient is gathered whole for its norm, one after the other: norms of parts are rounded otherwise.

    Args:
        parameters: those without a gradient are left out.

    Returns:
        The norm of all gradients together before, a scalar; 0 without any.
    """
    gradients = [each.grad for each in parameters if isinstance(each.grad, DTensor)]
    if not gradients:
        return torch.zeros(())
    # Copies: a lone rank's gradients begin anywhere in memory, and a GPU's norm may be rounded by where.
    norms = [torch.linalg.vector_norm(each.full_tensor().clone(), norm_type) for each in gradients]
    total: torch.Tensor = torch.linalg.vector_norm(torch.stack(norms), norm_type)
    factor = (max_norm / (total + 1e-6)).clamp(max=1.0)
    for each in gradients:
        local(each).mul_(factor)
    return total


def _other_parameters(name: str) -> ElasticError:
    return ElasticError(
        f"mode='exact': the virtual shards of a step train different parameters of "
        f"{f'layer {name}' if name else 'the model'}",
        "let each use the same parameters, or take mode='fast'",
    )


def _settings_of(module: FSDPModule) -> Any:
    if not hasattr(module, "set_custom_reduce_scatter"):
        raise ElasticError(
            f"elastic.ShardedLoader(mode='exact') cannot say how FSDP of torch {torch.__version__} adds up",
            "take torch 2.9 or later, or mode='fast'",
        )
    return module


def _check_type(name: str, module: FSDPModule) -> None:
    """One rank alone adds up in the parameters' type, and many would in that of the reduce-scatter."""
    state: Any = module._get_fsdp_state()
    parameters = [each.sharded_param for each in parameters_of(module)]
    reduced = state._mp_policy.reduce_dtype or state._mp_policy.param_dtype
    others = {each.dtype for each in parameters if each.requires_grad} - {reduced}
    if reduced is not None and others:
        raise ElasticError(
            f"mode='exact': {f'layer {name}' if name else 'the model'} has parameters of {others.pop()}, and "
            f"their gradients are to be added up as {reduced}",
            "give MixedPrecisionPolicy(reduce_dtype=...) the type of the parameters, or take mode='fast'",
        )


def check_optimizer(optimizer: torch.optim.Optimizer, device: str) -> None:
    """The CPU's fused optimizers compute the last elements of a part otherwise than those before.

    Raises:
        ElasticError: it is one of those.
    """
    if device == "cpu" and any(group.get("fused") for group in optimizer.param_groups):
        raise ElasticError(
            f"mode='exact': {type(optimizer).__name__}(fused=True) rounds a number by where its part begins",
            "leave fused out, or take mode='fast'",
        )

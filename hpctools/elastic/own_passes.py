"""Backward passes of the loop's own: their gradients are no other worker's, so no optimizer may use them."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any, ClassVar

import torch
from torch import nn
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from hpctools.errors import ElasticError


class OwnPasses:
    """Watches from a complete step (`begin`) until the loop wants the next batch.

    Entered while the loop has a batch, left when it wants the next one or is left itself. In between the
    gradients are complete and an optimizer may use them. A step of any optimizer of the model's parameters
    that comes after a backward pass raises an error.

    A loop may keep its iterator, and so never come to want the next batch. What it does then is its own as
    soon as any loader of this process gives a batch, or one of the optimizers has used the last gradients.

    Hooks of the model's parameters may hold this: it holds no tensors, and not the loader.

    Args:
        model: what is trained; without parameters nothing is watched.
    """

    _latest: ClassVar[Callable[[], OwnPasses | None]] = staticmethod(lambda: None)
    """The last one that was opened, if it is still there."""

    def __init__(self, model: nn.Module) -> None:
        self._ours = {id(each) for each in model.parameters() if each.requires_grad}
        self._is_open = self._has_run = self._is_last = False
        known = self._known = weakref.ref(self)

        def look(optimizer: torch.optim.Optimizer, *_: Any) -> None:
            if (own := known()) is not None:
                own.check(optimizer)

        def look_after(optimizer: torch.optim.Optimizer, *_: Any) -> None:
            if (own := known()) is not None:
                own.check(optimizer)
                own.used(optimizer)

        # Of all optimizers: one that evaluates the loss again (SAM) steps another one inside.
        weakref.finalize(self, register_optimizer_step_pre_hook(look).remove)
        weakref.finalize(self, register_optimizer_step_post_hook(look_after).remove)

    def note(self) -> None:
        """A trained parameter has got a gradient, by any backward pass; called in autograd's threads."""
        self._has_run = True

    def begin(self, *, is_last: bool) -> None:
        """The gradients are those of the global batch, and no piece of it is left to be done.

        Args:
            is_last: whether the training is complete.
        """
        self._is_open, self._has_run, self._is_last = True, False, is_last
        OwnPasses._latest = self._known

    def __enter__(self) -> None:
        """The loop has a batch; it may have kept another iterator of this loader, or of another one."""
        if (latest := OwnPasses._latest()) is not None:
            latest._is_open = False

    def __exit__(self, *_: object) -> None:
        """The loop goes on to the next batch, or is left."""
        self._is_open = False

    def check(self, optimizer: torch.optim.Optimizer) -> None:
        """Before and after an optimizer's step, whose closure may run a backward pass, too.

        Raises:
            ElasticError: it steps our parameters, and a backward pass has run since the step was complete.
        """
        if self._is_open and self._has_run and self._steps_ours(optimizer):
            raise ElasticError(
                f"{type(optimizer).__name__}.step() after a backward pass of the loop's own: since "
                "loader.backward returned True the gradients were those of the global batch, and now each "
                "worker has others",
                "add all losses up and call loader.backward(loss) once for each batch. What evaluates the "
                "loss again before it steps, as SAM does, cannot be trained with. A backward pass for "
                "something else comes after optimizer.step(), or is torch.autograd.grad. To train on without "
                "the loader leave its loop, or close the iterator that you have kept",
            )

    def used(self, optimizer: torch.optim.Optimizer) -> None:
        """After an optimizer's step: of the training's last gradients nothing is to come any more."""
        if self._is_last and self._is_open and self._steps_ours(optimizer):
            self._is_open = False

    def _steps_ours(self, optimizer: torch.optim.Optimizer) -> bool:
        return any(id(each) in self._ours for group in optimizer.param_groups for each in group["params"])


def listen(model: nn.Module, note: Callable[[], None]) -> None:
    """Call it whenever a parameter that trains has got a gradient."""

    def hook(_: torch.Tensor) -> None:
        note()

    for parameter in model.parameters():
        if parameter.requires_grad:
            parameter.register_post_accumulate_grad_hook(hook)  # type: ignore[no-untyped-call]

"""What a training trains: the same parameters from the loader's beginning on.

Gradients travel as vectors, or buckets, that were laid out when the loader was made. A parameter that begins
to train later is in none of them: every worker would step with its own gradient, and the workers would drift
apart without a word. So each step compares what trains now with what did then.
"""

from __future__ import annotations

import warnings
import zlib
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from hpctools.elastic.own_passes import OwnPasses
from hpctools.errors import ElasticError

REMEDY = (
    "let all that will ever train do so when the loader is made, and hold a parameter back by setting its "
    "grad to None before optimizer.step(), or by a group of its own with lr=0"
)
DROPPED = (
    "the optimizer has used the gradients of step {} alone: those of the {} before, after which it did not "
    "step, were dropped. If they were to be added up, give a larger batch_size in place of that; if you have "
    "left that step out on purpose, all is well"
)

CHANGED = (
    "the batch for practice has changed parameter {}, which does not train. Each worker would change it once "
    "for each batch that it is fed, so it would depend on the number of workers: change it in the loop, when "
    "loader.backward has returned True (a momentum encoder, for example), or let it be a buffer, which "
    "changes by the mean over the shards"
)
TRAINED = (
    "the batch for practice has changed parameter {}, which trains. Only optimizer.step() may, when "
    "loader.backward has returned True: what a forward pass changes, each worker would change by its own "
    "samples, and train another model than the others from then on. Let what comes from the data be set "
    "before the loader is made: feed the model a batch there, the same on all workers"
)
FLAGGED = (
    "the batch for practice has changed the bool buffer {}: those are not set back to before the step, nor "
    "added up over the shards, so each worker would have its own. Let it be a float or a whole number, which "
    "changes by the mean over the shards, or change it in the loop, when loader.backward has returned True. "
    "Where it says that parameters were set, feed the model a batch before the loader is made"
)
LOOKED_AT = 8
"""Values at each end of a large parameter."""
SMALL = 1 << 16
"""Of a parameter with so many values all are looked at."""


class Parameters:
    """The parameters of a model that train, and the optimizer's groups.

    Attributes:
        own: notices backward passes of the loop's own, once somebody tells it of all.

    Raises:
        ElasticError: the optimizer steps parameters that are not the model's, or needs what is not there.
    """

    def __init__(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        self._named = list(model.named_parameters())
        self._all = [parameter for _, parameter in self._named]
        self._flags = [(name, each) for name, each in model.named_buffers() if each.dtype == torch.bool]
        self._train = [parameter.requires_grad for parameter in self._all]
        self._optimizer = optimizer
        self._groups = _sizes(optimizer)
        _check_kind(optimizer)
        self._check_owned()
        self.own = OwnPasses(model)
        self._looked = self._unused = 0
        self._versions = sum(each._version for each in self._all)
        self._has_told = False
        self._has_stepped = [False]
        if hasattr(optimizer, "_optimizer_step_post_hooks"):  # not where a wrapper has left out __init__
            # Not ourselves: at each resize of a sharded model there are others.
            stepped = self._has_stepped
            optimizer.register_step_post_hook(lambda *_: stepped.__setitem__(0, True))

    def check(self) -> None:
        """Before gradients are added up: what trains is what did in the beginning.

        Raises:
            ElasticError: a parameter was frozen or unfrozen, or the optimizer was given others.
        """
        now = [parameter.requires_grad for parameter in self._all]
        if now != self._train:
            raise ElasticError(f"{self._changed(now)} since the loader was made", REMEDY)
        if (groups := _sizes(self._optimizer)) != self._groups:
            raise ElasticError(
                f"the optimizer has {sum(groups)} parameters in {len(groups)} groups, and had "
                f"{sum(self._groups)} in {len(self._groups)} when the loader was made (add_param_group?)",
                REMEDY,
            )

    def check_untouched(self) -> None:
        """Before a batch's backward pass: nothing is there that it would be added to.

        What is there is looked at only where a gradient is there at all, and zeros are nothing.

        Raises:
            ElasticError: the loop has run a backward pass of its own for this batch.
        """
        for (name, parameter), trains in zip(self._named, self._train, strict=True):
            if trains and parameter.grad is not None and _is_some(parameter.grad):
                raise ElasticError(
                    f"parameter {name} has a gradient before loader.backward, of a backward pass of the "
                    "loop's own: nobody would weight it with the batch's share of the samples",
                    "add all losses up and call loader.backward(loss) once for each batch, in place of "
                    "loss.backward(). For gradients of something else, such as the inputs, take "
                    "torch.autograd.grad, or call model.zero_grad() before loader.backward",
                )

    def practised(self, feeding: Iterator[Any]) -> Iterator[Any]:
        """Feed the loop a batch for practice; a warning where that has changed parameters."""
        before, flags = self._digests(), [each.clone() for _, each in self._flags]
        yield from feeding
        self._set_back(flags)
        changed = [name for name, known in self._digests().items() if known != before.get(name, known)]
        trains = {name for (name, _), each in zip(self._named, self._train, strict=True) if each}
        for text, odd in ((CHANGED, set(changed) - trains), (TRAINED, set(changed) & trains)):
            if first := next((name for name in changed if name in odd), None):
                warnings.warn(text.format(first), stacklevel=2)

    @torch.no_grad()
    def _set_back(self, flags: list[torch.Tensor]) -> None:
        """Truth values to before practice; all other buffers are set back before the first batch."""
        for (name, flag), before in zip(self._flags, flags, strict=True):
            if not torch.equal(flag, before):
                flag.copy_(before)
                warnings.warn(FLAGGED.format(name), stacklevel=3)

    def _digests(self) -> dict[str, int]:
        """A checksum of each parameter; of a large one's ends, as all would take long.

        torch counts changes in place, but not those of `.data`, and also those that change no value.
        """
        return {name: _digest(each) for name, each in self._named if _is_plain(each)}

    def look(self, step: int) -> None:
        """Before the next step begins: say it, once, when an optimizer used the gradients of this one alone.

        Who had left it out before, and kept the gradients, has meant to add up those of several steps.

        Args:
            step: the one that is complete.
        """
        versions = sum(each._version for each in self._all)
        used = self._has_stepped[0] or versions != self._versions
        follows, self._looked = step == self._looked + 1, step
        self._has_stepped[0], self._versions = False, versions
        if used and follows and self._unused and not self._has_told:
            self._has_told = True
            warnings.warn(DROPPED.format(step, self._unused), stacklevel=2)
        is_kept = not used and any(each.grad is not None for each in self._all)
        self._unused = self._unused + 1 if is_kept else 0

    def norm(self) -> float:
        """The norm of all gradients together."""
        gradients = [each.grad for each in self._all if each.requires_grad and each.grad is not None]
        return float(torch.stack([gradient.norm().float().cpu() for gradient in gradients]).norm())

    def _changed(self, now: list[bool]) -> str:
        odd = [name for (name, _), is_, was in zip(self._named, now, self._train, strict=True) if is_ != was]
        others = f" and {len(odd) - 1} more" if len(odd) > 1 else ""
        return f"requires_grad of parameter {odd[0]}{others} was changed"

    def _check_owned(self) -> None:
        known = {id(each) for each in self._all}
        for number, group in enumerate(self._optimizer.param_groups):
            foreign = [each for each in group["params"] if each.requires_grad and id(each) not in known]
            if foreign:
                raise ElasticError(
                    f"elastic.Loader: {len(foreign)} parameters of the optimizer's group {number} are not "
                    f"the model's (the first has the shape {tuple(foreign[0].shape)}): nobody would add up "
                    "their gradients",
                    "give one model that holds all that is trained, for example an nn.ModuleList",
                )


def _is_some(gradient: torch.Tensor) -> bool:
    """Whether it is not all zeros; of a sharded one our part, since others may not ask."""
    part = getattr(gradient, "_local_tensor", gradient).detach()
    return bool((part.to_dense() if part.is_sparse else part).any())


def _is_plain(parameter: torch.Tensor) -> bool:
    """Whether it has values here that can be read: not sharded, sparse, quantized or still to come."""
    is_here = not is_lazy(parameter) and not parameter.is_meta and type(parameter.data) is torch.Tensor
    return is_here and parameter.layout is torch.strided and not parameter.is_quantized


def _digest(parameter: torch.Tensor) -> int:
    whole = parameter.detach()
    parts = [whole] if whole.numel() <= SMALL else [_end(whole), _end(whole, is_last=True)]
    found = 0
    for part in parts:
        flat = part.resolve_conj().resolve_neg().cpu().contiguous().reshape(-1)
        found = zlib.crc32(flat.view(torch.uint8).numpy().data, found)
    return found


def _end(tensor: torch.Tensor, *, is_last: bool = False) -> torch.Tensor:
    """A view with its first or last values, in whatever order they lie: some more than `LOOKED_AT`."""
    wanted = LOOKED_AT
    for dim in reversed(range(tensor.ndim)):
        size = tensor.shape[dim]
        taken = min(size, wanted)
        tensor = tensor.narrow(dim, size - taken if is_last else 0, taken)
        wanted = -(-wanted // taken)
    return tensor


def _sizes(optimizer: torch.optim.Optimizer) -> list[int]:
    return [len(group["params"]) for group in optimizer.param_groups]


def _check_kind(optimizer: torch.optim.Optimizer) -> None:
    kind = type(optimizer).__name__
    if kind == "ZeroRedundancyOptimizer":
        raise ElasticError(
            f"elastic.Loader: a {kind} has a part of the state only, and cannot give it to workers that join",
            "give the optimizer that it wraps; or elastic.ShardedLoader, which shards the model, too",
        )
    again = [
        each for each in optimizer.param_groups if each.get("max_iter", 1) != 1 or each.get("line_search_fn")
    ]
    if kind == "LBFGS" and again:
        raise ElasticError(
            "elastic.Loader: LBFGS evaluates loss and gradients again in its step, here of one shard alone",
            "give max_iter=1 without line_search_fn, and step(lambda: loader.loss); or another optimizer",
        )

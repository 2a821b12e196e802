"""Gradients as flat vectors: taken from the model shard by shard, given back as the sum of all shards.

A vector is [gradients | changes of the buffers | loss | samples]. Each shard's part is weighted with its
share of the global batch's samples, so that the sum over all shards is the mean over the samples, whatever
the sizes of the shards. Buffers (for example the running mean of a batch norm) begin every shard as they
were before the step and change by the weighted mean of the shards' changes. A complex element is two of the
vector, its real and its imaginary part.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import nn

from hpctools.errors import ElasticError

TAIL = 2
"""Elements behind gradients and buffers: loss and samples."""
_WHOLE = (torch.int32, torch.int64)


@dataclass(frozen=True)
class Totals:
    """What a global batch came to.

    Attributes:
        loss: the mean over its samples.
        samples: how many there were.
    """

    loss: float
    samples: int


class Buffers:
    """A model's buffers, and how they were before the step; truth values are left alone.

    Attributes:
        tensors: the buffers; of complex ones their real and imaginary parts, in the same memory.
    """

    def __init__(self, model: nn.Module) -> None:
        named = [(name, each) for name, each in model.named_buffers() if each.dtype != torch.bool]
        self.tensors = [reals(each) for _, each in named]
        self._names = [name for name, _ in named]
        self._before: list[torch.Tensor] = []

    def remember(self) -> None:
        """They are now as they are before the step."""
        self._before = [each.detach().clone() for each in self.tensors]

    @torch.no_grad()
    def set_back(self) -> None:
        """To how they were before the step."""
        for buffer, before in zip(self.tensors, self._before, strict=True):
            buffer.copy_(before)

    @torch.no_grad()
    def changes(self, into: Sequence[torch.Tensor], weight: float) -> None:
        """How they have changed since, times a weight; of elements that were not finite what they are now.

        From an infinity no change leads anywhere: a mask stays there, a least value that was seen leaves.
        """
        for buffer, before, part in zip(self.tensors, self._before, into, strict=True):
            now, then = _wide(buffer), _wide(before)
            part.copy_(torch.where(then.isfinite(), now - then, now)).mul_(weight)

    @torch.no_grad()
    def change(self, changes: Sequence[torch.Tensor]) -> None:
        """From how they were before the step.

        Raises:
            ElasticError: one of whole numbers has changed by more than can be added up.
        """
        named = zip(self._names, self.tensors, changes, strict=True)
        _check_whole([each for each in named if each[1].dtype in _WHOLE and each[2].numel()])
        for buffer, before, part in zip(self.tensors, self._before, changes, strict=True):
            change = part if buffer.dtype.is_floating_point else part.round()
            then = _wide(before)
            change = change.to(then.device, then.dtype)
            buffer.copy_(torch.where(then.isfinite(), then + change, change))


def _check_whole(named: Sequence[tuple[str, torch.Tensor, torch.Tensor]]) -> None:
    """Floats have no room for larger whole numbers: they would be rounded, and nobody would know.

    All are looked at together: a GPU is waited for once, and not for each of a model's batch norms.
    """
    if not named:
        return
    together = torch.cat([change.reshape(-1) for _, _, change in named])
    most = 2**53 if together.dtype == torch.float64 else 2**24
    if together.abs().max() < most:
        return
    name, buffer, change = next(each for each in named if each[2].abs().max() >= most)
    raise ElasticError(
        f"the model's buffer {name} ({buffer.dtype}) changed by {float(change.abs().max()):.0f} in one step: "
        f"whole numbers are added up over the shards below {most}, and larger ones would be rounded",
        "keep it as an attribute and not as a buffer (self.name = tensor), or count in larger units",
    )


def _wide(buffer: torch.Tensor) -> torch.Tensor:
    """A narrow buffer in float32: in its own dtype a difference is rounded, and the sum with it once more."""
    return buffer.float() if buffer.dtype in (torch.float16, torch.bfloat16) else buffer


class Withheld:
    """Gradients of a step's pieces so far, out of the loop's reach: `zero_grad()` may begin each turn."""

    def __init__(self, parameters: Sequence[torch.Tensor]) -> None:
        self._parameters = parameters
        self._kept: list[torch.Tensor | None] = []

    def forget(self) -> None:
        """A step begins, or begins again: there are none."""
        self._kept = []
        for parameter in self._parameters:
            parameter.grad = None

    def take(self) -> None:
        """Take them away, after a piece's backward pass."""
        self._kept = [parameter.grad for parameter in self._parameters]
        for parameter in self._parameters:
            parameter.grad = None

    def give_back(self) -> None:
        """Put them where they were; the loop has left nothing there but zeros (`check_untouched`)."""
        for parameter, kept in zip(self._parameters, self._kept, strict=False):
            if kept is not None:
                parameter.grad = kept
        self._kept = []


class FlatGradients:
    """A model's gradients, buffers and loss as one vector on the CPU.

    The vector is float64 when a parameter or a buffer is (or complex128), else float32.

    Attributes:
        length: elements of the vector.
        dtype: its type.
    """

    def __init__(self, model: nn.Module) -> None:
        self._parameters = [each for each in model.parameters() if each.requires_grad]
        self._buffers = Buffers(model)
        self._shapes = real_shapes(self._parameters)
        tensors = [*self._shapes, *self._buffers.tensors]
        self.dtype = dtype_of_sums(tensors)
        self.length = sum(each.numel() for each in tensors) + TAIL

    def new_vector(self) -> torch.Tensor:
        """Memory for one vector, not initialised: shape (length,)."""
        return torch.empty(self.length, dtype=self.dtype)

    def begin_step(self) -> None:
        """Remember the buffers as they are before the step."""
        self._buffers.remember()

    def begin_shard(self) -> None:
        """Forget gradients of before, and set the buffers back to how they were before the step."""
        for parameter in self._parameters:
            parameter.grad = None
        self._buffers.set_back()

    @torch.no_grad()
    def capture(self, into: torch.Tensor, loss: torch.Tensor, weight: float, samples: int) -> None:
        """Take a shard's part after its backward pass.

        Args:
            into: the vector, shape (length,).
            loss: mean loss of the shard's samples, a scalar.
            weight: the shard's share of the global batch's samples; the gradients carry it already.
            samples: of the shard.
        """
        parameters, buffers = self._split(into)
        for parameter, part in zip(self._parameters, parameters, strict=True):
            if parameter.grad is None:
                part.zero_()
            else:
                part.copy_(reals(parameter.grad.to_dense() if parameter.grad.is_sparse else parameter.grad))
            parameter.grad = None
        self._buffers.changes(buffers, weight)
        into[-2] = loss.detach().to(self.dtype) * weight
        into[-1] = samples

    @torch.no_grad()
    def apply(self, vector: torch.Tensor, size: int) -> Totals:
        """Give the model the sum of all shards: gradients, and the changed buffers.

        Gradients may share the vector's memory: it must not be written to before the next step.

        Args:
            vector: the sum; scaled in place when the batch has fewer samples than the weights were made for.
            size: samples of the batch that the weights were made for.
        """
        samples = round(float(vector[-1]))
        if samples == 0:
            return Totals(float("nan"), 0)
        if samples != size:
            vector[:-1] *= size / samples
        parameters, buffers = self._split(vector)
        for parameter, part in zip(self._parameters, parameters, strict=True):
            parameter.grad = _like(parameter, part)
        self._buffers.change(buffers)
        return Totals(float(vector[-2]), samples)

    def _split(self, vector: torch.Tensor) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
        parameters, start = views_like(self._shapes, vector, 0)
        buffers, _ = views_like(self._buffers.tensors, vector, start)
        return parameters, buffers


def reals(tensor: torch.Tensor) -> torch.Tensor:
    """A complex tensor's real and imaginary parts, shape (..., 2), in its memory; another one as it is."""
    return torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor


def real_shapes(tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Tensors without memory, of the shapes and dtypes of `reals`."""
    return [reals(torch.empty_like(each, device="meta", requires_grad=False)) for each in tensors]


def dtype_of_sums(tensors: Sequence[torch.Tensor]) -> torch.dtype:
    """In which type real tensors are added up: float64 when one of them is, else float32."""
    return torch.float64 if any(each.dtype == torch.float64 for each in tensors) else torch.float32


def _like(parameter: torch.Tensor, part: torch.Tensor) -> torch.Tensor:
    """A part of the vector as a gradient; a complex one has memory of its own, which has to be aligned."""
    if not parameter.is_complex():
        return laid_out_as(parameter, part.to(parameter.device, parameter.dtype))
    whole = torch.view_as_complex(part.to(parameter.device, parameter.dtype.to_real()).clone())
    return laid_out_as(parameter, whole)


def laid_out_as(parameter: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """A value in a parameter's layout in memory, where that is another one, as with `channels_last`.

    Fused optimizers on the CPU take element by element as they lie in memory, and ask nobody for the layout.
    """
    if parameter.is_contiguous() or value.stride() == parameter.stride():
        return value
    return torch.empty_like(parameter, dtype=value.dtype, requires_grad=False).copy_(value)


def views_like(
    tensors: Sequence[torch.Tensor], vector: torch.Tensor, start: int
) -> tuple[list[torch.Tensor], int]:
    """Parts of a vector from `start` on, in the shapes of the tensors; and where they end."""
    views = []
    for tensor in tensors:
        views.append(vector[start : start + tensor.numel()].view(tensor.shape))
        start += tensor.numel()
    return views, start

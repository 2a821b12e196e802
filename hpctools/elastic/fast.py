"""Fast mode: gradients are added up bucket by bucket, while the backward pass still makes the next ones.

As DistributedDataParallel does it: a hook on every parameter puts its gradient into a bucket as soon as it
is complete, and a bucket that is full is all-reduced beside the rest of the backward pass. The tail carries
the changes of the model's buffers, loss, samples, and for each rank the generation that it is ready for and
its step. It rides behind the gradients of the first bucket, so that agreeing on a resize costs no collective
of its own; by itself it goes only where that bucket is of another dtype, or on a GPU.

The sum is over ranks in the order that the collective likes, so another number of ranks rounds differently.

Buckets are on the device of their parameters. They go over nccl where the group has it (`devices`), else over
gloo, which takes CUDA tensors through pinned memory of the host; the tail is the host's and always gloo's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import nn

from hpctools.elastic.device_group import DeviceWork
from hpctools.elastic.exchange import Exchanged
from hpctools.elastic.gradients import (
    TAIL,
    Buffers,
    Totals,
    Withheld,
    dtype_of_sums,
    laid_out_as,
    real_shapes,
    reals,
    views_like,
)
from hpctools.elastic.group import Group, Work, await_all
from hpctools.elastic.pieces import Piece, Step
from hpctools.elastic.scratch import CPU
from hpctools.elastic.session import LONE
from hpctools.elastic.summing import Backward
from hpctools.errors import ElasticError

FIRST_BUCKET_BYTES = 1 << 20
BUCKET_BYTES = 25 << 20  # as DDP; each collective costs all ranks some changes between threads
HEADER = 2
STEP_MODULUS = 1 << 20
"""Steps are compared modulo this, so that float32 holds them exactly."""


@dataclass(frozen=True)
class Bucket:
    """Parameters, by number, whose gradients travel together: all of one dtype and device."""

    parameters: tuple[int, ...]
    elements: int
    dtype: torch.dtype
    device: torch.device


def buckets_of(parameters: Sequence[torch.Tensor]) -> list[Bucket]:
    """Buckets in the order in which a backward pass usually completes them: from the last layer to the first.

    The first bucket is small, so that the first exchange can begin early.
    """
    buckets: list[Bucket] = []
    open_: dict[tuple[torch.dtype, torch.device], list[int]] = {}
    for number in reversed(range(len(parameters))):
        parameter = parameters[number]
        kind = (parameter.dtype, parameter.device)
        open_.setdefault(kind, []).append(number)
        limit = BUCKET_BYTES if buckets else FIRST_BUCKET_BYTES
        if sum(parameters[each].nbytes for each in open_[kind]) >= limit:
            buckets.append(_bucket(parameters, open_.pop(kind)))
    return buckets + [_bucket(parameters, rest) for rest in open_.values()]


def _bucket(parameters: Sequence[torch.Tensor], numbers: list[int]) -> Bucket:
    first = parameters[numbers[0]]
    elements = sum(parameters[each].numel() for each in numbers)
    return Bucket(tuple(numbers), elements, first.dtype, first.device)


class _InFlight:
    """The buckets of one step, on their way through one group.

    Args:
        tail: travels along, shape (elements,); left as it is.

    Attributes:
        tail: the sum of all ranks' in the end.
    """

    def __init__(
        self,
        group: Group,
        buckets: Sequence[Bucket],
        parameters: Sequence[torch.Tensor],
        tail: torch.Tensor,
    ) -> None:
        self._group = group
        self._full = 0
        self.works: list[Work] = []
        self._on_streams: list[Work] = []
        self.error: RuntimeError | None = None
        rides = bool(buckets) and (buckets[0].dtype, buckets[0].device) == (tail.dtype, CPU)
        extra = [tail.numel() if rides and place == 0 else 0 for place in range(len(buckets))]
        self.flat = [
            group.scratch(("bucket", place), each.elements + more, each.dtype, each.device)
            for place, (each, more) in enumerate(zip(buckets, extra, strict=True))
        ]
        self.tail = self.flat[0][buckets[0].elements :].copy_(tail) if rides else tail
        self.views: dict[int, torch.Tensor] = {}
        self._bucket_of: dict[int, int] = {}
        self._missing = [set(each.parameters) for each in buckets]
        # Autograd has a thread for each device: none may send what another one has just filled.
        self._overlaps = len({each.device for each in buckets}) <= 1
        for place, bucket in enumerate(buckets):
            shapes = [parameters[number] for number in bucket.parameters]
            views, _ = views_like(shapes, self.flat[place], 0)
            self.views.update(zip(bucket.parameters, views, strict=True))
            self._bucket_of.update(dict.fromkeys(bucket.parameters, place))
        if not rides:
            self.send(tail, group.all_reduce)

    def put(self, number: int, gradient: torch.Tensor | None) -> None:
        """A parameter's gradient is complete; None: nothing used the parameter."""
        missing = self._missing[self._bucket_of[number]]
        if number not in missing:
            raise ElasticError(
                "a parameter's gradient was completed twice in one backward pass",
                "use torch.utils.checkpoint with use_reentrant=False, or mode='exact'",
            )
        missing.discard(number)
        if gradient is None:
            self.views[number].zero_()
        else:
            self.views[number].copy_(gradient.to_dense() if gradient.is_sparse else gradient)
        if self._overlaps:
            self.send_full()

    def send_full(self) -> None:
        """Send what is full; all ranks in the same order, whichever bucket is full first."""
        while self._full < len(self.flat) and not self._missing[self._full]:
            self.send(self.flat[self._full], self._group.all_reduce_bulk)
            self._full += 1

    def send(self, tensor: torch.Tensor, all_reduce: Callable[[torch.Tensor], Work]) -> None:
        """Begin to add up; an error comes back in the exchange, where it can be dealt with."""
        if self.error is not None:
            return
        try:
            work = all_reduce(reals(tensor))
        except RuntimeError as error:
            self.error = error
            return
        self.works.append(work)
        if tensor.is_cuda or isinstance(work, DeviceWork):
            self._on_streams.append(work)

    def order(self) -> None:
        """What this thread does next with the sums, on its streams, comes after them; they are complete."""
        await_all(self._on_streams)

    @property
    def missing(self) -> list[int]:
        """Parameters that no gradient has come for."""
        return [number for missing in self._missing for number in sorted(missing, reverse=True)]


class FastSum:
    """Adds up gradients by all-reduce, overlapped with the backward pass of a worker's last piece.

    Args:
        note: called whenever a parameter has got a gradient that does not leave at once.
    """

    def __init__(self, model: nn.Module, note: Callable[[], None] = lambda: None) -> None:
        self._note = note
        self._parameters = [each for each in model.parameters() if each.requires_grad]
        self._withheld = Withheld(self._parameters)
        self._buffers = Buffers(model)
        self._buckets = buckets_of(self._parameters)
        self._step = Step(0, 1, 1, ())
        self._group = LONE
        self._left = 0
        self._in_flight: _InFlight | None = None
        self._is_armed = self._has_failed = False
        self._dtype = dtype_of_sums([*real_shapes(self._parameters), *self._buffers.tensors])
        self._changing = sum(each.numel() for each in self._buffers.tensors)
        self._part = torch.zeros(self._changing, dtype=self._dtype)
        self._tail = torch.zeros(0)
        for number, parameter in enumerate(self._parameters):
            parameter.register_post_accumulate_grad_hook(self._hook(number))  # type: ignore[no-untyped-call]

    @property
    def device(self) -> torch.device | None:
        """The one GPU that all gradients are on."""
        (device, *others) = {each.device for each in self._parameters} or {CPU}
        return device if device.type == "cuda" and not others else None

    def begin(self, step: Step, group: Group) -> None:
        """No gradients yet, and the buffers as they are."""
        self._step, self._group, self._left = step, group, sum(each.is_fed for each in step.pieces)
        self._in_flight, self._is_armed, self._has_failed = None, False, False
        # A new one: a group that was given up may still write to that of the step before.
        self._tail = torch.zeros(self._changing + TAIL + HEADER * group.world, dtype=self._dtype)
        self._withheld.forget()
        self._buffers.remember()

    def begin_piece(self) -> None:
        """Every piece begins with the buffers of before the step.

        Raises:
            ElasticError: the piece before has left its backward pass half done, and the loop went on.
        """
        if self._has_failed:
            raise ElasticError(
                "a backward pass failed in this step, and the loop went on: what it added cannot be undone",
                "let the error end the program; or take mode='exact', in which such a batch is fed again",
            )
        self._buffers.set_back()

    def add(self, piece: Piece, loss: torch.Tensor, backward: Backward, ready_for: int) -> None:
        """A piece's backward pass; with that of the last one, the gradients leave."""
        self._left -= 1
        self._has_failed = True
        self._add(piece, loss, backward, ready_for)
        self._has_failed = False

    def _add(self, piece: Piece, loss: torch.Tensor, backward: Backward, ready_for: int) -> None:
        weight = piece.samples / self._step.size
        self._withheld.give_back()
        self._gather(loss, weight, piece.samples)
        if self._left != 0 or self._group.world == 1:
            backward(weight)
            if self._left != 0:
                self._withheld.take()
            return
        self._sign(ready_for)
        flight = self._in_flight = _InFlight(self._group, self._buckets, self._parameters, self._tail)
        self._tail = flight.tail
        self._is_armed = True
        try:
            backward(weight)
        finally:
            self._is_armed = False
        for number in flight.missing:
            flight.put(number, self._parameters[number].grad)
        flight.send_full()

    def add_nothing(self, piece: Piece) -> None:
        """A piece without samples adds nothing."""

    def set_back(self) -> None:
        """Drop what the last piece did to the buffers."""
        self._buffers.set_back()

    def exchange(self, group: Group, ready_for: int) -> Exchanged:
        """Await what has left during the backward pass."""
        flight = self._in_flight
        if flight is None:
            return Exchanged(self._tail, ready_for)
        if flight.error is not None:
            raise flight.error
        await_all(flight.works)
        return Exchanged(self._tail, self._read_headers(group))

    @torch.no_grad()
    def apply(self, exchanged: Exchanged) -> Totals:
        """The gradients are those of all ranks, and the buffers change as all together change them."""
        tail, loss = exchanged.vector, self._changing
        samples = round(float(tail[loss + 1]))
        if samples == 0:
            return Totals(float("nan"), 0)
        scale = self._step.size / samples
        views = {}
        if self._in_flight is not None:
            self._in_flight.order()
            views = self._in_flight.views
        for number, parameter in enumerate(self._parameters):
            gradient = views.get(number, parameter.grad)
            found = torch.zeros_like(parameter) if gradient is None else gradient
            parameter.grad = laid_out_as(parameter, found)
            if samples != self._step.size:
                parameter.grad *= scale
        changes, _ = views_like(self._buffers.tensors, tail, 0)
        self._buffers.change([change * scale for change in changes])
        return Totals(float(tail[loss]) * scale, samples)

    # One rank's part

    def _gather(self, loss: torch.Tensor, weight: float, samples: int) -> None:
        """Add a piece's loss, samples and changes of buffers to the tail."""
        if self._changing:
            parts, _ = views_like(self._buffers.tensors, self._part, 0)
            self._buffers.changes(parts, weight)
            self._tail[: self._changing] += self._part
        self._tail[self._changing] += loss.detach().sum().to("cpu", self._dtype) * weight
        self._tail[self._changing + 1] += samples

    def _sign(self, ready_for: int) -> None:
        """Our header, in our own place: the sum over the ranks is then the list of all headers."""
        place = self._changing + TAIL + HEADER * self._group.rank
        self._tail[place] = ready_for
        self._tail[place + 1] = self._step.number % STEP_MODULUS

    def _read_headers(self, group: Group) -> int:
        headers = self._tail[self._changing + TAIL :].view(group.world, HEADER).tolist()
        ours = self._step.number % STEP_MODULUS
        for rank, (_, step) in enumerate(headers):
            if step != ours:
                raise RuntimeError(f"rank {rank} is in step {int(step)}, we are in step {ours}")
        return int(min(ready_for for ready_for, _ in headers))

    def _hook(self, number: int) -> Callable[[torch.Tensor], None]:
        def hook(parameter: torch.Tensor) -> None:
            if self._is_armed and self._in_flight is not None:
                self._in_flight.put(number, parameter.grad)
            else:
                self._note()

        return hook

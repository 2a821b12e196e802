"""torch's default process group of one generation, for FSDP, DTensor and the training's own calls.

A rank that waits for a frozen or dead peer must be called away, and the training's code is in the middle of a
forward or backward pass then. So a collective that cannot be done does not raise: the group is *void* from
then on, every collective of it returns zeros at once, the pass runs through, and the loader begins the step
again (torchft does the same). Nothing of such a step reaches the weights.
"""

from __future__ import annotations

import itertools
import sys
import time
from collections.abc import Callable, Collection
from functools import partial
from typing import Any, Protocol

import torch
import torch.distributed
from torch.distributed.device_mesh import DeviceMesh

from hpctools.elastic.group import Group
from hpctools.elastic.sharded import collectives
from hpctools.errors import ElasticError

# torch.distributed does not type what it exports from C++.
_c10d: Any = torch.distributed
BACKEND = "hpctools"
DIMENSION = "shard"
IN_STEP, BETWEEN, AFTER = "in step", "between", "after"

Run = Callable[[Callable[[Group], None]], bool]
"""Does the work in the group's thread; False: we were called away. RuntimeError: the group broke."""


class Reduce(Protocol):
    """A collective: (group, into, inputs)."""

    def __call__(self, group: Group, into: torch.Tensor, inputs: torch.Tensor, /) -> None:
        """Blocks; raises RuntimeError when a peer is gone."""
        ...


class _Done(_c10d.Work):  # type: ignore[misc]
    """Work that was done before it was returned."""

    def __init__(self, result: Any) -> None:
        super().__init__()
        self._result = result

    def wait(self, timeout: object = None) -> bool:
        return True

    def is_completed(self) -> bool:
        return True

    def get_future(self) -> Any:
        future: Any = torch.futures.Future()
        future.set_result(self._result)
        return future


class ShardGroup(_c10d.ProcessGroup):  # type: ignore[misc]
    """A process group over a generation's `Group`; CUDA tensors go through the CPU where they have to.

    Args:
        rank, world: our place; may be a pretended one, then the group is void.
        run: None for a group that is void from the beginning, as for practice.

    Attributes:
        error: why it is void; None when it is not, or when we were called away.
        void: whether collectives give zeros.
        pretended: whether it is void from the beginning.
        phase: what stands for results that cannot be had. IN_STEP: zeros, the step begins again. BETWEEN two
            (gradients are complete): NaN, so that nobody takes them for a result. AFTER the
            training: they raise.
        replays: whether we stand after a pass of the loop that was over before we came: all others are
            elsewhere in their program, so that with others there is no collective.
        waited: seconds in which collectives were done, or waited for other ranks.
    """

    def __init__(self, rank: int, world: int, run: Run | None) -> None:
        super().__init__(rank, world)
        self._world = world
        self._run = run
        self._retired = False
        self.pretended = self.void = run is None
        self.error: RuntimeError | None = None
        self.phase = IN_STEP
        self.replays = False
        self.waited = 0.0

    def size(self) -> int:
        """How many ranks there are."""
        return self._world

    @property
    def group_name(self) -> str:
        """The name under which torch knows it."""
        name: str = torch.distributed.distributed_c10d._world.pg_names[self]
        return name

    def getBackendName(self) -> str:  # noqa: N802 - torch calls it so
        """Our name among torch's backends."""
        return BACKEND

    # What FSDP calls, under the names of torch up to 2.12 and from 2.13 on

    def all_gather_single(self, output: torch.Tensor, own: torch.Tensor, options: Any = None) -> Any:
        """Everyone's tensor."""
        return self._do(output, own, collectives.all_gather)

    def reduce_scatter_single(self, output: torch.Tensor, inputs: torch.Tensor, options: Any = None) -> Any:
        """The sum of our part.

        Raises:
            NotImplementedError: not a sum is asked for.
        """
        _only_sums(options)
        return self._do(output, inputs, collectives.reduce_scatter)

    def combine(self, output: torch.Tensor, inputs: torch.Tensor, work: Reduce) -> None:
        """A collective of the loader's own, with what stands for results that cannot be had.

        Args:
            output, inputs: as `work` takes them; it may be given others, on the CPU.
        """
        self._do(output, inputs, work)

    def all_gather_single_coalesced(
        self, outputs: list[torch.Tensor], inputs: list[torch.Tensor], options: Any = None
    ) -> Any:
        """Everyone's tensors, one after the other; DTensor calls it."""
        for output, own in zip(outputs, inputs, strict=True):
            self.all_gather_single(output, own)
        return _Done(outputs)

    def reduce_scatter_single_coalesced(
        self, outputs: list[torch.Tensor], inputs: list[torch.Tensor], options: Any = None
    ) -> Any:
        """The sums of our parts, one after the other; DTensor calls it."""
        for output, own in zip(outputs, inputs, strict=True):
            self.reduce_scatter_single(output, own, options)
        return _Done(outputs)

    _allgather_base = all_gather_single
    _reduce_scatter_base = reduce_scatter_single
    allgather_into_tensor_coalesced = all_gather_single_coalesced
    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced

    # What DTensor and trainings call: norms of gradients, metrics

    def allreduce(self, tensors: list[torch.Tensor], options: Any = None) -> Any:
        """Sums, products, means and extremes over all ranks, in place."""
        operation = "SUM" if options is None else _name(options.reduceOp)
        for tensor in tensors:
            self._do(tensor, tensor.clone(), partial(collectives.all_reduce, operation=operation))
        return _Done(tensors)

    allreduce_coalesced = allreduce

    def broadcast(self, tensors: list[torch.Tensor], options: Any) -> Any:
        """The root's tensors into everybody's."""
        for tensor in tensors:
            self._do(tensor, tensor, partial(collectives.broadcast, root=int(options.rootRank)))
        return _Done(tensors)

    def allgather(
        self, outputs: list[list[torch.Tensor]], inputs: list[torch.Tensor], options: Any = None
    ) -> Any:
        """Everyone's tensor as a list."""
        for into, own in zip(outputs, inputs, strict=True):
            gathered = own.new_zeros((self._world, *own.shape))
            self._do(gathered, own, collectives.all_gather)
            for target, part in zip(into, gathered, strict=True):
                target.copy_(part)
        return _Done(outputs)

    def barrier(self, opts: Any = None) -> Any:
        """Wait for everybody; torch gives the options by this name."""
        return self.allreduce([torch.zeros(1)])

    def _do(self, output: torch.Tensor, inputs: torch.Tensor, work: Reduce) -> Any:
        self._check_met()
        if not self.void:
            done: list[torch.Tensor] = []
            bulk = _BULK if self.phase != AFTER else ()
            self._attempt(lambda group: done.append(_carried(group, output, inputs, work, bulk)))
            for result in [] if self.void else done:
                if result is not output:
                    output.copy_(result.view(output.shape))
        if self.void:
            self._fill(output)
        return _Done(output)

    def _check_met(self) -> None:
        if self.replays and self._world > 1:
            raise ElasticError(
                "a collective, or a pass of loader.model, after a pass of the loop that was over before this "
                "worker came: the other workers would take it for one of the step that they are in",
                "put `if loader.replays: continue` before what stands after each pass of the loop",
            )

    def _fill(self, output: torch.Tensor) -> None:
        """What stands for a result that cannot be had."""
        if self.phase == AFTER:
            raise ElasticError(
                f"a collective after the training failed: {self.error or 'a worker is gone'}",
                "the last checkpoint has the weights",
            )
        is_number = output.is_floating_point() or output.is_complex()
        output.fill_(float("nan") if self.phase == BETWEEN and is_number else 0)

    def _attempt(self, work: Callable[[Group], None]) -> None:
        assert self._run is not None  # noqa: S101
        begun = time.monotonic()
        try:
            self.void = not self._run(work)
        except RuntimeError as error:
            self.void, self.error = True, error
        self.waited += time.monotonic() - begun

    def retire(self) -> None:
        """A later generation is in force: whoever still uses this one is told so."""
        self._retired = True

    def check_in_force(self, *_: object) -> None:
        """A hook before each forward pass of the model; torch would hide the error of a collective.

        Raises:
            ElasticError: the model is that of an earlier generation, or nobody would meet us.
        """
        self._check_met()
        if self._retired:
            raise ElasticError(
                "the training uses a model of before a resize",
                "take loader.model anew in every step, do not keep it in a variable outside the loop",
            )


def install(group: ShardGroup, device: str) -> DeviceMesh:
    """Make it torch's default group, in place of the one before; local, no message is sent.

    Args:
        device: `cpu` or `cuda`.

    Returns:
        The mesh of all ranks, with one dimension; its name is another one each time.
    """
    uninstall()
    _c10d.Backend.register_backend(BACKEND, lambda *_: _INSTALLED[-1], devices=["cpu", "cuda"])
    _INSTALLED.append(group)
    before = sys.excepthook
    _c10d.init_process_group(BACKEND, store=_c10d.HashStore(), rank=group.rank(), world_size=group.size())
    _HOOKS.append((before, sys.excepthook))
    # DTensor keeps what it found out for a mesh, and takes meshes of the same ranks and names for the same.
    return DeviceMesh.from_group(group, device, mesh_dim_names=(f"{DIMENSION}{next(_NUMBERS)}",))


def uninstall() -> None:
    """Withdraw our group from torch, if it is there.

    Raises:
        ElasticError: the training has made a default process group of its own.
    """
    if not _INSTALLED:
        if _c10d.is_initialized():
            raise ElasticError(
                "the training has called torch.distributed.init_process_group",
                "leave it out: elastic.ShardedLoader makes the default group, anew at each resize",
            )
        return
    _INSTALLED.pop().retire()
    _c10d.destroy_process_group()
    before, torchs = _HOOKS.pop()
    if sys.excepthook is torchs:  # it writes its rank before each line of a traceback, and is not withdrawn
        sys.excepthook = before


_NUMBERS = itertools.count(1)
_INSTALLED: list[ShardGroup] = []
_HOOKS: list[tuple[Any, Any]] = []


def _only_sums(options: Any) -> None:
    operation = None if options is None else options.reduceOp
    if operation is not None and _name(operation) != "SUM":
        raise NotImplementedError(f"reduce-scatter with {_name(operation)}; only sums are made")


def _name(operation: Any) -> str:
    return str(getattr(operation, "op", operation)).rpartition(".")[2]


@torch.no_grad()
def _carried(
    group: Group, output: torch.Tensor, inputs: torch.Tensor, work: Reduce, bulk: Collection[Reduce]
) -> torch.Tensor:
    """The result of a collective: `output` itself, or on the CPU, where it was done.

    What FSDP asks for (`bulk`) stays on the devices, where they reach each other; the rest is small. So does
    nothing after the training: who has its result ends, and what nccl has yet to send to others with it.
    """
    stays = group.world == 1 or (work in bulk and group.takes(inputs))
    as_is = stays and output.device == inputs.device
    into, own = (output, inputs.detach()) if as_is else (output.cpu(), inputs.detach().cpu())
    if not into.is_contiguous():
        into = into.contiguous()
    work(group, into, own.contiguous())
    return into


_BULK: tuple[Reduce, ...] = (collectives.all_gather, collectives.reduce_scatter)

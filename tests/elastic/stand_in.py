"""A second gloo group in the place of nccl's, for tests of the group of the devices without a GPU.

As nccl it can be aborted while others hang, and what waits for a lost peer hangs until then: nccl's kernels
poll memory of a GPU that nobody writes to any more.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
import torch.distributed

from hpctools.elastic.device_group import DeviceGroup
from hpctools.elastic.devices import Accelerator, Card

CPU = torch.device("cpu")
HOST = "127.0.0.1"
LONG = timedelta(days=1)
ABANDON_TAG = 1 << 30

_c10d: Any = torch.distributed


class HangingWork:
    """Gloo's, which never completes when it fails.

    Args:
        then: done once it is complete.
    """

    def __init__(self, work: Any, then: Callable[[], object] = lambda: None) -> None:
        self._work = work
        self._then = then

    def is_completed(self) -> bool:
        if not self._work.is_completed():
            return False
        try:
            self._work.wait()
        except RuntimeError:
            return False
        return True

    def wait(self) -> None:
        self._work.wait()
        self._then()


class StandIn:
    """A backend as `DeviceGroup` uses one. As nccl it connects in its first collective, in C++.

    Attributes:
        reduced: sizes of what was added up, in elements.
        carried: what else was done, once it was linked.
        aborted: set when it was aborted.
    """

    connect_seconds = 20.0

    def __init__(self, store: Any, rank: int, world: int) -> None:
        self._place = (store, rank, world)
        self._gloo: Any = None
        self._others = [each for each in range(world) if each != rank]
        self.reduced: list[int] = []
        self.carried: list[str] = []
        self.aborted = threading.Event()

    def allreduce(self, tensors: list[torch.Tensor]) -> HangingWork:
        if self._gloo is None:
            self._gloo = self._connected(*self._place)
        self.reduced.append(tensors[0].numel())
        return HangingWork(self._gloo.allreduce(tensors, _c10d.ReduceOp.SUM, LONG))

    def _allgather_base(self, into: torch.Tensor, own: torch.Tensor) -> HangingWork:
        self.carried.append("all_gather")
        return HangingWork(self._gloo._allgather_base(into, own))

    def _reduce_scatter_base(self, into: torch.Tensor, inputs: torch.Tensor) -> HangingWork:
        self.carried.append("reduce_scatter")
        total = inputs.clone()  # gloo's own reduce-scatter is not complete before somebody waits for it
        work = self._gloo.allreduce([total], _c10d.ReduceOp.SUM, LONG)
        return HangingWork(work, lambda: into.copy_(total.view(-1, into.numel())[self._place[1]]))

    def abort(self) -> None:
        for rank in self._others if self._gloo is not None else ():
            with contextlib.suppress(RuntimeError):
                self._gloo.recv([torch.empty(1)], rank, ABANDON_TAG).wait(timedelta(milliseconds=1))
        self.aborted.set()

    def _connected(self, store: Any, rank: int, world: int) -> Any:
        options = _c10d.ProcessGroupGloo._Options()
        options._timeout = timedelta(seconds=self.connect_seconds)
        options._devices = [_c10d.ProcessGroupGloo.create_device(hostname=HOST)]
        store.set_timeout(options._timeout)
        return _c10d.ProcessGroupGloo(store, rank, world, options)


def accelerator(
    number: int, made: Callable[[StandIn], None] = lambda backend: None, **of_card: str
) -> Accelerator:
    """What a worker with GPU `number` has; `made` is told of each backend."""

    def make(store: Any, rank: int, world: int) -> DeviceGroup:
        backend = StandIn(store, rank, world)
        made(backend)
        return DeviceGroup(backend, CPU)

    card = {"uuid": f"GPU-{number}", "place": f"host/{number}", "nccl": "2.27.3", **of_card}
    return Accelerator(Card(**card), CPU, make)

"""A group of the devices beside a generation's gloo group: collectives that can be called off.

Works and backends are those of `torch.distributed`: nccl's, or gloo's in tests.
"""

from __future__ import annotations

import atexit
import contextlib
import threading
import time
import weakref
from datetime import timedelta
from typing import Any

import torch

LOOK_SECONDS = 0.0002
"""Between two looks whether a collective is complete."""
END_SECONDS = 1.0
"""How long the process's end waits for communicators that are being aborted."""


class DeviceWork:
    """A collective on its way, which can be called off."""

    def __init__(self, work: Any, given_up: threading.Event) -> None:
        self._work = work
        self._given_up = given_up

    @property
    def finished(self) -> bool:
        """Whether it is over, well or not."""
        return self._given_up.is_set() or bool(self._work.is_completed())

    def wait(self, timeout: timedelta) -> None:
        """Wait until it is complete; what the calling thread's current stream does next comes after it.

        nccl's own wait only orders streams, and would let the optimizer have gradients that never come.

        Raises:
            RuntimeError: a peer is gone, the group was given up, or it took too long.
        """
        deadline = time.monotonic() + timeout.total_seconds()
        while not self.finished:
            if time.monotonic() > deadline:
                raise RuntimeError(f"a collective of the devices took over {timeout.total_seconds():g} s")
            time.sleep(LOOK_SECONDS)
        if self._given_up.is_set():
            raise RuntimeError("the devices' group was given up")
        self._work.wait()


class DeviceGroup:
    """Collectives on tensors of one device, with those of the other members'.

    Args:
        backend: a `torch.distributed` backend of all members.
        device: whose tensors it takes.
    """

    def __init__(self, backend: Any, device: torch.device) -> None:
        self._backend = backend
        self._device = device
        self._given_up = threading.Event()
        self._lock = threading.Lock()
        _living.add(self)

    def __del__(self) -> None:
        """The generation is over for everybody, or its group was not wanted."""
        self.abort()

    def takes(self, tensor: torch.Tensor) -> bool:
        """Whether the tensor lies on our device."""
        return tensor.device == self._device

    def all_reduce(self, tensor: torch.Tensor) -> DeviceWork:
        """Begin to replace a contiguous tensor by the sum over all ranks; in the same order on all.

        Raises:
            RuntimeError: the group was given up, or a peer is gone.
        """
        return DeviceWork(self._in_use.allreduce([tensor]), self._given_up)

    def all_gather(self, into: torch.Tensor, own: torch.Tensor) -> DeviceWork:
        """Begin to fill a contiguous tensor with those of all ranks, in their order, as `all_reduce`."""
        return DeviceWork(self._in_use._allgather_base(into, own), self._given_up)

    def reduce_scatter(self, into: torch.Tensor, inputs: torch.Tensor) -> DeviceWork:
        """Begin to fill a contiguous tensor with the sum of our part of all ranks', as `all_reduce`.

        Args:
            inputs: as many parts of `into`'s size as there are ranks.
        """
        return DeviceWork(self._in_use._reduce_scatter_base(into, inputs), self._given_up)

    @property
    def _in_use(self) -> Any:
        backend = self._backend
        if backend is None:
            raise RuntimeError("the devices' group was given up")
        return backend

    def abort(self) -> None:
        """Give it up, without waiting for anybody: kernels that wait for a lost peer end, and all waits fail.

        A communicator whose work is done everywhere ends so, too: `shutdown` would wait for peers.
        """
        with self._lock:
            backend, self._backend = self._backend, None
        self._given_up.set()
        if backend is not None:
            _end_beside(backend)


_living: weakref.WeakSet[DeviceGroup] = weakref.WeakSet()
_ending: list[threading.Thread] = []


def _end_beside(backend: Any) -> None:
    """Abort in a thread: it may wait for the GPU."""
    _ending[:] = [each for each in _ending if each.is_alive()]
    thread = threading.Thread(target=_end, args=(backend,), name="elastic-devices-end", daemon=True)
    _ending.append(thread)
    thread.start()


def _end(backend: Any) -> None:
    with contextlib.suppress(RuntimeError):  # it took too long; the process's end ends it
        backend.abort()


@atexit.register
def _end_all() -> None:
    """A thread that came back from C++ while Python shuts down would take the process with it."""
    for group in list(_living):
        group.abort()
    deadline = time.monotonic() + END_SECONDS
    for thread in list(_ending):
        thread.join(max(0.0, deadline - time.monotonic()))

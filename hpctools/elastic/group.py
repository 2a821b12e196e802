"""A generation's process group: gloo between its members, made and used without holding up the training.

`torch.distributed`'s default group is left alone, so that a training may use it for itself.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import queue
import socket
import threading
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any, Generic, TypeVar

import torch
import torch.distributed

from hpctools.elastic.device_group import DeviceGroup
from hpctools.elastic.devices import GLOO, NCCL, DeviceLinks
from hpctools.elastic.meeting import HERE, HOSTS, LINK_TIMEOUT, Meeting, Store
from hpctools.elastic.networks import gloo_devices
from hpctools.elastic.scratch import CPU, Scratch

Result = TypeVar("Result")

# torch.distributed does not type what it exports from C++.
_c10d: Any = torch.distributed
Gloo = Any
Work = Any

_LIBUV_TAKES_LISTENER = tuple(map(int, torch.__version__.split(".")[:2])) >= (2, 8)  # pytorch/pytorch#150215
_SUM = _c10d.ReduceOp.SUM

ABANDON_TAG = 1 << 30
ABANDON_TIMEOUT = timedelta(milliseconds=1)
LINK_BACKLOG = 1024  # members that connect at once
# A member may rightly compute for hours before it sends; who is dead or frozen, the coordinator finds out.
OPERATION_TIMEOUT = timedelta(days=7)


class Task(Generic[Result]):
    """Work that a group's own thread does; finished when `finished` says so."""

    def __init__(self, work: Callable[[], Result], notify: Callable[[], None]) -> None:
        self._work = work
        self._notify = notify
        self._result: Result | None = None
        self._error: Exception | None = None
        self.finished = False

    def execute(self, otherwise: Callable[[], None]) -> None:
        """Do the work and wake up who waits; `otherwise` is called first when the work fails."""
        try:
            self._result = self._work()
        except Exception as error:  # noqa: BLE001 - it is raised again in the thread that asked for the work
            otherwise()
            self._error = error
        self.finished = True
        self._notify()

    def result(self) -> Result:
        """What the work returned; raises what it raised."""
        if self._error is not None:
            raise self._error
        return self._result  # type: ignore[return-value]


class Group:
    """The members of one generation, linked; a group of one has nobody to talk to.

    Every operation runs in the group's thread, so that a member that waits for a frozen one can still be
    called away: it forgets the group, whose thread then ends with the group's connections.

    Args:
        gloo: what all members agree over, and add up over where there is nothing else; None: we are alone.
        devices: what they add up over where each has a GPU of its own. Ends with this object, or as soon as
            anything fails in our thread: whatever waits for the GPU then would wait for a lost peer.
        networks: how many connections gloo has with each of the others; a message's tag picks one.

    Attributes:
        number: the generation.
        rank, world: our place and how many there are.
    """

    def __init__(
        self,
        number: int,
        rank: int,
        world: int,
        gloo: Gloo,
        devices: DeviceGroup | None = None,
        networks: int = 1,
    ) -> None:
        self.number = number
        self.rank = rank
        self.world = world
        self._gloo = gloo
        self._devices = devices
        self._networks = networks
        self._scratch = Scratch()
        self._tasks: queue.SimpleQueue[Task[object] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def begin(self, work: Callable[[], Result], notify: Callable[[], None]) -> Task[Result]:
        """Start work in the group's thread; `notify` is called there when it has finished.

        What it does on the GPU comes after what the calling thread has done there until now, and before what
        that does next: it has the same device and stream.
        """
        if self._thread is None:
            self._thread = threading.Thread(
                target=_execute_all,
                args=(self._tasks, partial(_give_up, self._scratch, self._devices)),
                name=f"elastic-group-{self.number}",
                daemon=True,
            )
            self._thread.start()
        task = Task(_on_our_stream(work), notify)
        self._tasks.put(task)  # type: ignore[arg-type]
        return task

    def close(self, heir: Group) -> None:
        """Let the thread end when it has done what it was given; a sound group's memory is the next one's."""
        self._tasks.put(None)
        if self.is_sound:
            heir._scratch.inherit(self._scratch)

    def release(self) -> None:
        """End the connections, when all have come to the next group; nobody waits for that.

        gloo takes some 10 ms for each connection, in which it waits for a thread of its own. Ours is no
        daemon: Python waits for it at its end, as one that comes back from C++ then takes the process down.
        """
        held, self._gloo = [self._gloo], None
        threading.Thread(target=held.clear, name=f"elastic-end-{self.number}", daemon=False).start()

    def abandon(self) -> None:
        """Give the group up: what waits for others in its thread fails at once.

        Else the thread would wait in C++ until the others have gone; when that is while Python shuts down,
        the thread's own end there takes the process down (SIGABRT, `terminate called`).
        """
        _give_up(self._scratch, self._devices)
        self.hang_up()

    def hang_up(self) -> None:
        """Close the connections: what the others await of us fails at once.

        When nothing is under way that is all, and the group's memory stays sound.
        """
        for rank, network in itertools.product(self.others, range(self._networks)):
            # A receive that times out closes the connection; Backend.abort() leaves it open (torch 2.13).
            with contextlib.suppress(RuntimeError):
                self.receive(torch.empty(1), rank, ABANDON_TAG + network).wait(ABANDON_TIMEOUT)

    def send(self, tensor: torch.Tensor, to: int, tag: int) -> Work:
        """Begin to send a contiguous CPU tensor to a rank."""
        return self._gloo.send([tensor], to, tag)

    def receive(self, into: torch.Tensor, sender: int, tag: int) -> Work:
        """Begin to receive a contiguous CPU tensor from a rank."""
        return self._gloo.recv([into], sender, tag)

    def all_reduce(self, tensor: torch.Tensor) -> Work:
        """Begin to replace a contiguous tensor by the sum over all ranks; in the same order on all."""
        return self._gloo.allreduce([tensor], _SUM, OPERATION_TIMEOUT)

    def all_reduce_bulk(self, tensor: torch.Tensor) -> Work:
        """The same for large tensors, which need not pass through the host where GPUs reach each other.

        Over gloo, too, the work's `wait` only orders the calling thread's current stream behind the sum of a
        CUDA tensor: the thread that goes on with it has to wait, too.
        """
        return self._held_devices.all_reduce(tensor) if self.takes(tensor) else self.all_reduce(tensor)

    def takes(self, tensor: torch.Tensor) -> bool:
        """Whether it need not pass through the host: it lies on a GPU that reaches those of all others."""
        return self._devices is not None and self._devices.takes(tensor)

    def all_gather_bulk(self, into: torch.Tensor, own: torch.Tensor) -> Work:
        """See `DeviceGroup.all_gather`; of tensors that the group `takes`."""
        return self._held_devices.all_gather(into, own)

    def reduce_scatter_bulk(self, into: torch.Tensor, inputs: torch.Tensor) -> Work:
        """See `DeviceGroup.reduce_scatter`; of tensors that the group `takes`."""
        return self._held_devices.reduce_scatter(into, inputs)

    @property
    def _held_devices(self) -> DeviceGroup:
        assert self._devices is not None  # noqa: S101 - `takes` was asked
        return self._devices

    def scratch(
        self, use: object, elements: int, dtype: torch.dtype, device: torch.device = CPU
    ) -> torch.Tensor:
        """Memory for one use, the same at every step; a group that was given up takes its memory with it.

        So a late message of a member that was frozen cannot reach what is in use.
        """
        return self._scratch.take(use, elements, dtype, device)

    def scratch_of(self, use: object, size: int, device: torch.device) -> torch.Tensor:
        """Memory for one use whose size changes, of at least so many bytes, as `scratch`."""
        return self._scratch.take_at_least(use, size, device)

    @property
    def backend(self) -> str:
        """What large tensors on a GPU go over: NCCL or GLOO."""
        return GLOO if self._devices is None else NCCL

    @property
    def is_sound(self) -> bool:
        """Whether no message may still come for memory that was used: all that was begun has ended well."""
        return self._scratch.is_sound

    @property
    def others(self) -> list[int]:
        """The other ranks, beginning behind our own, so that not all talk to the same one first."""
        return [(self.rank + distance) % self.world for distance in range(1, self.world)]


def released(group: Group | None) -> Group | None:
    """As `Group.release`, where there is one; afterwards there is none."""
    if group is not None:
        group.release()
    return None


def await_all(works: list[Work]) -> None:
    """Wait for operations.

    Raises:
        RuntimeError: a peer's connection broke.
    """
    for work in works:
        work.wait(OPERATION_TIMEOUT)


def open_store(host: str, listen: str | None = None) -> Store:
    """The store through which the members of a generation find each other, on a free port of ours.

    It admits whoever connects, so it listens on one network only; by itself torch listens on all of them
    (pytorch/pytorch#173909).

    Args:
        host: our address, as the others are told.
        listen: the address to listen on; None: `host`.
    """
    listener = socket.create_server((listen or host, 0), backlog=LINK_BACKLOG)
    with listener:
        return _c10d.TCPStore(
            host,
            listener.getsockname()[1],
            is_master=True,
            wait_for_workers=False,
            timeout=LINK_TIMEOUT,
            multi_tenant=False,
            master_listen_fd=os.dup(listener.fileno()),  # the store's from now on
            use_libuv=_LIBUV_TAKES_LISTENER,
        )


def join_store(host: str, port: int) -> Store:
    """The store that rank 0 opened."""
    return _c10d.TCPStore(host, port, is_master=False, wait_for_workers=False, timeout=LINK_TIMEOUT)


def link(
    number: int,
    rank: int,
    world: int,
    store: Store,
    host: str,
    given_up: Callable[[], bool] = lambda: False,
    devices: DeviceLinks | None = None,
    warn: Callable[[str], None] = lambda problem: None,
) -> Group:
    """Connect with all members of a generation; blocks until all are there.

    Args:
        host: our own address, as the others are told.
        given_up: asked again and again whether it is still wanted.
        devices: links our GPU, too, where each member has one; None: we have none.
        warn: told why the GPUs are not linked though each member has one.

    Raises:
        RuntimeError: not everyone came within LINK_TIMEOUT.
        GivenUpError: it is not wanted any more.
    """
    if store is None:
        return Group(number, rank, world, None)
    meeting = Meeting(store, rank, world, given_up)
    meeting.leave(HOSTS, host)
    meeting.meet(HERE, devices.note if devices is not None else "")
    options = _c10d.ProcessGroupGloo._Options()
    options._timeout = LINK_TIMEOUT
    options._devices = gloo_devices(host, lambda: meeting.notes(HOSTS))
    options._threads = 2 * len(options._devices)
    gloo = _c10d.ProcessGroupGloo(store, rank, world, options)
    linked = devices.join(meeting, warn) if devices is not None else None
    return Group(number, rank, world, gloo, linked, len(options._devices))


def _on_our_stream(work: Callable[[], Result]) -> Callable[[], Result]:
    """Work that another thread does on this one's GPU and stream; each thread has some of its own."""
    if not torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        return work
    stream = torch.cuda.current_stream()

    def done() -> Result:
        # The device, too: to leave the stream would make a context on GPU 0, which is this thread's own.
        with torch.cuda.device(stream.device), torch.cuda.stream(stream):
            return work()

    return done


def _give_up(scratch: Scratch, devices: DeviceGroup | None) -> None:
    scratch.spoil()
    if devices is not None:
        devices.abort()


def _execute_all(tasks: queue.SimpleQueue[Task[object] | None], give_up: Callable[[], None]) -> None:
    while (task := tasks.get()) is not None:
        task.execute(otherwise=give_up)
        del task

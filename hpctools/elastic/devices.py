"""Between GPUs without the detour through the host: which workers may use nccl, and its group.

A generation has a gloo group for everything that is agreed on, and for all that lies in the host's memory.
Where every worker has a GPU of its own, it has a group of the devices beside it, over which the gradients of
fast mode are added up. Several workers on one GPU, or one without: gloo does it all, CUDA tensors included.

Of nccl only the maker (`nccl_on`) is special; everything else here, and in `group` and `fast`, is tested with
a second gloo group in its place, and on one GPU with nccl itself (tests/elastic/test_cuda.py).
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, astuple, dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed

from hpctools.elastic.device_group import LOOK_SECONDS, DeviceGroup
from hpctools.elastic.meeting import HERE, LINK_TIMEOUT, MEET_SECONDS, GivenUpError, Meeting, Store

# torch types neither all of what it exports from C++ nor all of its own.
_c10d: Any = torch.distributed
_cuda: Any = torch.cuda

NCCL, GLOO = "nccl", "gloo"
LEAST_NCCL = (2, 25)
"""Before it, to abort a communicator could hang (so says torchft, `process_group.py`)."""
SWITCH = "HPCTOOLS_NCCL"
"""Environment variable; 0: gradients go over gloo, come what may."""
BLOCKING = "TORCH_NCCL_BLOCKING_WAIT"
MOST_FAILURES = 2
"""After so many in a row nccl is not tried any more. A generation is tried three times (`generations`)."""
FAILED = "failed"
PATIENCE = 2 * LINK_TIMEOUT
"""For the others' answer: they may wait in C++, where nobody can tell them anything, for LINK_TIMEOUT."""
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True)
class Card:
    """The one GPU that a worker computes on, as the others are told of it.

    Attributes:
        uuid: the GPU's, or that of its MIG slice.
        place: host and PCI address, by which nccl tells GPUs apart; two MIG slices of a GPU share it.
        nccl: version of the library.
    """

    uuid: str
    place: str
    nccl: str

    def told(self) -> str:
        """As a note for the others."""
        return json.dumps(asdict(self))

    @classmethod
    def heard(cls, note: str) -> Card | None:
        """What `told` has made; None: the worker has no GPU of its own, or the note is none of ours."""
        try:
            card = cls(**json.loads(note))
        except (ValueError, TypeError):
            return None
        return card if all(isinstance(each, str) for each in astuple(card)) else None


def backend_for(cards: Sequence[Card | None]) -> str:
    """Over which library the gradients of these workers are added up: NCCL or GLOO.

    All workers that know the same cards come to the same answer. nccl refuses two ranks on one GPU, and does
    not promise to understand another version of itself.
    """
    known = [each for each in cards if each is not None]
    if len(known) < len(cards) or len(known) < 2:
        return GLOO
    alone = len({each.uuid for each in known}) == len({each.place for each in known}) == len(known)
    return NCCL if alone and len({each.nccl for each in known}) == 1 else GLOO


Make = Callable[[Store, int, int], DeviceGroup]
"""Makes the group of the devices, without talking to anybody; from a store of its own, our rank, and how many
there are. Its first collective connects, and may block in C++ until all are there."""


@dataclass(frozen=True)
class Accelerator:
    """What a worker needs for a group of the devices.

    Attributes:
        card: the GPU, as others are told of it.
        device: the same, as this process calls it.
        make: makes the group.
    """

    card: Card
    device: torch.device
    make: Make


def accelerator_of(device: torch.device | None) -> Accelerator | None:
    """What a worker needs that computes on a device; None: it has no GPU of its own, or cannot use nccl.

    To be called in the training's thread before there are others: it sets an environment variable, by which
    nccl's errors come to who waits, and no watchdog of torch's ends the process (TORCH_NCCL_BLOCKING_WAIT,
    torch's ProcessGroupNCCL). That is said to all nccl groups of the process.
    """
    if device is None or device.type != "cuda" or os.environ.get(SWITCH) == "0":
        return None
    if not _c10d.is_nccl_available() or not hasattr(_c10d.ProcessGroupNCCL, "abort"):
        return None
    version = tuple(map(int, _cuda.nccl.version()))
    if version < LEAST_NCCL:
        return None
    os.environ[BLOCKING] = "1"
    properties: Any = torch.cuda.get_device_properties(device)
    card = Card(str(properties.uuid), _place(properties), ".".join(map(str, version)))
    return Accelerator(card, device, nccl_on(device))


def _place(properties: Any) -> str:
    """Host and PCI address of a GPU; where torch does not tell the latter, its uuid."""
    address = [getattr(properties, f"pci_{part}_id", None) for part in ("domain", "bus", "device")]
    known = properties.uuid if None in address else ":".join(map(str, address))
    try:
        host = BOOT_ID.read_text().strip()
    except OSError:
        host = socket.gethostname()
    return f"{host}/{known}"


def nccl_on(device: torch.device) -> Make:
    """The maker of nccl's groups on a GPU."""

    def make(store: Store, rank: int, world: int) -> DeviceGroup:
        options = _c10d.ProcessGroupNCCL.Options()
        options._timeout = LINK_TIMEOUT  # of an abort; our own waits are not bounded by it
        with torch.cuda.device(device):
            return DeviceGroup(_c10d.ProcessGroupNCCL(store, rank, world, options), device)

    return make


class DeviceLinks:
    """Links a worker's GPU with those of the other members, generation by generation.

    What fails again and again is not tried any more: the training goes on over gloo.

    Args:
        accelerator: None: the worker has no GPU of its own.
    """

    def __init__(self, accelerator: Accelerator | None) -> None:
        self._accelerator = accelerator
        self._failures = 0

    @property
    def note(self) -> str:
        """What the other members are told of us: a `Card`, or nothing."""
        if self._accelerator is None or self._failures >= MOST_FAILURES:
            return ""
        return self._accelerator.card.told()

    def join(self, meeting: Meeting, warn: Callable[[str], None]) -> DeviceGroup | None:
        """The devices' group of a generation whose members have met; all of them call it.

        It is made, and then tried out before it is used: the first collective is what connects. When either
        fails on one of them, none uses it.

        Args:
            meeting: its members, who have left their `note` where they met first.
            warn: told why gradients take the detour through the host although they need not.

        Returns:
            None: gloo does it all.

        Raises:
            RuntimeError: somebody was lost meanwhile.
            GivenUpError: the generation is not wanted any more.
        """
        accelerator = self._accelerator
        if accelerator is None or backend_for(list(map(Card.heard, meeting.notes(HERE)))) == GLOO:
            return None
        store = _c10d.PrefixStore("devices", meeting.store)
        group, problem = _made(accelerator, store, meeting)
        try:
            if self._all_well(meeting, "devices are made", problem, warn) and group is not None:
                problem = _tried(group, accelerator.device, meeting.world, _Watch(store, meeting.given_up))
                if self._all_well(meeting, "devices are linked", problem, warn):
                    self._failures, linked, group = 0, group, None
                    return linked
        finally:
            if group is not None:
                group.abort()
        return None

    def _all_well(self, meeting: Meeting, place: str, problem: str, warn: Callable[[str], None]) -> bool:
        """Tell the others how it went for us, and hear how for them."""
        if problem:
            self._failures += 1
            if self._failures == MOST_FAILURES:
                warn(f"nccl failed {MOST_FAILURES} times in a row, gradients go over gloo: {problem}")
        meeting.meet(place, problem, PATIENCE)
        problems = [each for each in meeting.notes(place) if each]
        if problems:
            self._failures = MOST_FAILURES  # nobody was lost, so it would fail the next time, too
        if problems and meeting.rank == 0:
            reasons = "; ".join(dict.fromkeys(problems))[:1000]
            warn(f"nccl cannot be used, gradients go over gloo: {reasons}")
        return not problems


def _made(accelerator: Accelerator, store: Store, meeting: Meeting) -> tuple[DeviceGroup | None, str]:
    """The group, which has not talked to anybody yet; or None, and why not."""
    try:
        return accelerator.make(store, meeting.rank, meeting.world), ""
    except Exception as error:  # noqa: BLE001 - whatever it is: all are told, and gloo can do it
        return None, _told(error)


def _tried(group: DeviceGroup, device: torch.device, world: int, watch: _Watch) -> str:
    """Do the group's first collective; returns why that failed."""
    try:
        with _own_stream(device):
            _first_collective(group, device, world, watch)
    except GivenUpError:
        raise
    except Exception as error:  # noqa: BLE001 - as above
        watch.tell(_told(error))
        return _told(error)
    return ""


def _told(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:500]


class _Watch:
    """Whether a first collective is still worth waiting for."""

    def __init__(self, store: Store, given_up: Callable[[], bool]) -> None:
        self._store = store
        self._given_up = given_up
        self._deadline = time.monotonic() + LINK_TIMEOUT.total_seconds()
        self._next_look = 0.0

    def tell(self, problem: str) -> None:
        """It failed for us."""
        self._store.set(FAILED, problem)

    def check(self) -> None:
        """Raise GivenUpError or RuntimeError when it is not."""
        if self._given_up():
            raise GivenUpError
        now = time.monotonic()
        if now > self._deadline:
            raise RuntimeError(f"the first collective took over {LINK_TIMEOUT.total_seconds():g} s")
        if now > self._next_look:
            self._next_look = now + MEET_SECONDS
            if self._store.check([FAILED]):
                raise RuntimeError(bytes(self._store.get(FAILED)).decode(errors="replace"))


def _first_collective(group: DeviceGroup, device: torch.device, world: int, watch: _Watch) -> None:
    """Add up a one from each, and see that it is right."""
    ones = torch.ones(1, device=device)
    work = group.all_reduce(ones)
    while not work.finished:
        watch.check()
        time.sleep(LOOK_SECONDS)
    work.wait(LINK_TIMEOUT)
    if ones.item() != world:
        raise RuntimeError(f"{world} ones added up to {ones.item():g}")


@contextlib.contextmanager
def _own_stream(device: torch.device) -> Iterator[None]:
    """The training goes on meanwhile on the other streams, and must not come to wait for this."""
    if device.type != "cuda":
        yield
        return
    with torch.cuda.device(device), torch.cuda.stream(_cuda.Stream(device)):
        yield

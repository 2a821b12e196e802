"""The group of the devices, with a second gloo group in nccl's place; the ranks are threads."""

from __future__ import annotations

import copy
import gc
import itertools
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from stand_in import CPU, HOST, StandIn, accelerator
from test_fast import INPUTS, SAMPLING, Wide, one_step

from hpctools.elastic import fast
from hpctools.elastic.device_group import DeviceGroup
from hpctools.elastic.devices import (
    MOST_FAILURES,
    SWITCH,
    Accelerator,
    Card,
    DeviceLinks,
    accelerator_of,
    backend_for,
)
from hpctools.elastic.fast import Bucket, FastSum, _InFlight
from hpctools.elastic.group import OPERATION_TIMEOUT, Group, join_store, link, open_store
from hpctools.elastic.meeting import HERE, GivenUpError, Meeting
from hpctools.elastic.pieces import by_blocks

Accelerators = Sequence[Accelerator | None]


def linked(
    accelerators: Accelerators,
    work: Callable[[Group], Any],
    warn: Callable[[str], None] = lambda problem: None,
) -> list[Any]:
    """Run the work on every rank of a new group, whose ranks have these GPUs."""
    store, world = open_store(HOST), len(accelerators)

    def rank(place: int) -> Any:
        own = store if place == 0 else join_store(HOST, store.port)
        return work(link(1, place, world, own, HOST, lambda: False, DeviceLinks(accelerators[place]), warn))

    with ThreadPoolExecutor(world) as pool:
        return list(pool.map(rank, range(world), timeout=60))


# Which backend


cards = st.builds(
    Card,
    uuid=st.sampled_from(["GPU-1", "GPU-2", "GPU-3", "GPU-4"]),
    place=st.sampled_from(["a/0", "a/1", "b/0", "b/1"]),
    nccl=st.sampled_from(["2.27.3", "2.28.9"]),
)


@given(st.lists(st.none() | cards, max_size=4))
def test_nccl_is_for_workers_that_share_nothing(known: list[Card | None]) -> None:
    alone = len(known) > 1 and all(
        one and other and one.uuid != other.uuid and one.place != other.place and one.nccl == other.nccl
        for one, other in itertools.combinations(known, 2)
    )
    assert backend_for(known) == ("nccl" if alone else "gloo")
    assert backend_for(known[::-1]) == backend_for(known)


@given(cards)
def test_the_others_hear_what_a_worker_tells_of_its_gpu(card: Card) -> None:
    assert Card.heard(card.told()) == card


LISTS = '{"uuid": ["GPU-1"], "place": "host/0", "nccl": "2.27.3"}'


@pytest.mark.parametrize("note", ["", "{", "7", '{"uuid": "GPU-1"}', '{"more": 1}', "null", LISTS])
def test_a_note_that_is_no_card_is_none(note: str) -> None:
    assert Card.heard(note) is None


class Properties:
    uuid = "GPU-5"
    pci_domain_id, pci_bus_id, pci_device_id = 0, 27, 0


class Nccl:
    """What accelerator_of asks torch, as a machine with a GPU answers."""

    def __init__(self, patch: pytest.MonkeyPatch, version: tuple[int, ...] = (2, 27, 3)) -> None:
        patch.setenv("TORCH_NCCL_BLOCKING_WAIT", "0")
        patch.setattr(torch.distributed, "is_nccl_available", lambda: True)
        patch.setattr(torch.distributed, "ProcessGroupNCCL", StandIn, raising=False)
        patch.setattr(torch.cuda.nccl, "version", lambda: version)
        patch.setattr(torch.cuda, "get_device_properties", lambda device: Properties)


def test_a_gpu_is_told_by_uuid_and_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """And errors of nccl will come to who waits: no watchdog of torch's may end the process."""
    Nccl(monkeypatch)
    found = accelerator_of(torch.device("cuda:3"))
    assert found is not None
    boot_id = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    assert found.card == Card("GPU-5", f"{boot_id}/0:27:0", "2.27.3")
    assert found.device == torch.device("cuda:3")
    monkeypatch.setattr("hpctools.elastic.devices.BOOT_ID", Path("/nowhere"))
    monkeypatch.delattr(Properties, "pci_bus_id")  # as with torch before 2.8
    older = accelerator_of(torch.device("cuda:3"))
    assert older is not None
    assert older.card.place == f"{socket.gethostname()}/GPU-5"
    assert os.environ["TORCH_NCCL_BLOCKING_WAIT"] == "1"


def test_who_cannot_use_nccl_has_no_card(monkeypatch: pytest.MonkeyPatch) -> None:
    assert accelerator_of(None) is None
    assert accelerator_of(CPU) is None
    gpu = torch.device("cuda:0")
    with monkeypatch.context() as patch:
        Nccl(patch, version=(2, 21, 5))
        assert accelerator_of(gpu) is None, "it could not be aborted"
    Nccl(monkeypatch)
    assert accelerator_of(gpu) is not None
    with monkeypatch.context() as patch:
        patch.setenv(SWITCH, "0")
        assert accelerator_of(gpu) is None
    monkeypatch.setattr(torch.distributed, "is_nccl_available", lambda: False)
    assert accelerator_of(gpu) is None


# The two groups


@pytest.mark.parametrize("world", [2, 3])
def test_gradients_go_over_the_devices_and_the_agreement_over_gloo(
    world: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The result is that of one big batch; only buckets go over the devices."""
    monkeypatch.setattr(fast, "FIRST_BUCKET_BYTES", 16)
    monkeypatch.setattr(fast, "BUCKET_BYTES", 100)
    first, made = Wide(), list[StandIn]()

    def work(group: Group) -> Any:
        trained = copy.deepcopy(first)
        totals, exchanged = one_step(group, by_blocks(SAMPLING, None), trained)
        assert group.backend == "nccl"
        return totals, exchanged.agreed, [each.grad for each in trained.parameters()], trained.mean

    whole = copy.deepcopy(first)
    whole(INPUTS).square().mean().backward()
    expected = [torch.zeros_like(p) if p.grad is None else p.grad for p in whole.parameters()]
    for totals, agreed, gradients, mean in linked([accelerator(n, made.append) for n in range(world)], work):
        torch.testing.assert_close(gradients, expected)
        torch.testing.assert_close(mean, whole.mean)
        assert (totals.samples, agreed) == (11, 10)
    buckets = [each.elements for each in fast.buckets_of(list(first.parameters()))]
    assert [each.reduced for each in made] == [[1, *buckets]] * world, "a one to try it, then the buckets"


@pytest.mark.parametrize(
    "accelerators",
    [
        (accelerator(0), None),
        (accelerator(0), accelerator(0)),
        (accelerator(0), accelerator(1, place="host/0")),
        (accelerator(0), accelerator(1, nccl="2.28.9")),
    ],
    ids=["one has none", "one GPU", "two slices of one", "two versions"],
)
def test_else_gloo_does_it_all(accelerators: Accelerators) -> None:
    made: list[StandIn] = []
    watched = [each and accelerator_with(each, made) for each in accelerators]

    def work(group: Group) -> Any:
        assert group.backend == "gloo"
        return one_step(group, by_blocks(SAMPLING, None), Wide())[0]

    results = linked(watched, work)
    assert [totals.samples for totals in results] == [11, 11]
    assert made == []


def accelerator_with(known: Accelerator, made: list[StandIn]) -> Accelerator:
    """The same GPU, whose backends are noted."""
    return replace(accelerator(0, made.append), card=known.card)


class Refusing(StandIn):
    def allreduce(self, tensors: list[torch.Tensor]) -> Any:
        raise RuntimeError("NCCL error:\n unhandled cuda error")


class Wrong(StandIn):
    def allreduce(self, tensors: list[torch.Tensor]) -> Any:
        work = super().allreduce(tensors)
        while not work.is_completed():
            time.sleep(0.001)
        tensors[0] += 1
        return work


def unmade(store: Any, rank: int, world: int) -> DeviceGroup:
    raise ValueError("ProcessGroupNCCL is only supported with GPUs, no GPUs found!")


@pytest.mark.parametrize(
    ("backend", "reason"),
    [
        (Refusing, "RuntimeError: NCCL error: unhandled cuda error"),
        (Wrong, "RuntimeError: 3 ones added up to 4"),
        (None, "ValueError: ProcessGroupNCCL is only supported with GPUs, no GPUs found!"),
    ],
)
def test_when_one_rank_cannot_none_does_and_it_is_said_once(
    backend: type[StandIn] | None, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that already wait in C++ to be connected cannot be told, and come when their time is over."""
    made, said = list[StandIn](), list[str]()

    def failing(store: Any, rank: int, world: int) -> DeviceGroup:
        assert backend is not None
        return DeviceGroup(backend(store, rank, world), CPU)

    monkeypatch.setattr(StandIn, "connect_seconds", 3.0)
    accelerators = [accelerator(number, made.append) for number in range(3)]
    accelerators[1] = replace(accelerators[1], make=failing if backend else unmade)
    results = linked(
        accelerators, lambda group: one_step(group, by_blocks(SAMPLING, None), Wide())[0], said.append
    )
    assert [totals.samples for totals in results] == [11, 11, 11]
    (line,) = said
    assert line.startswith("nccl cannot be used, gradients go over gloo: ")
    assert reason in line
    for each in made:
        assert each.aborted.wait(30)
        assert each.reduced in ([], [1]), "no gradients"


def test_what_fails_for_all_is_not_tried_again() -> None:
    links = [DeviceLinks(replace(accelerator(number), make=unmade)) for number in range(2)]
    both(links)
    assert [each.note for each in links] == ["", ""]
    both(links)


def both(links: Sequence[DeviceLinks]) -> list[Group]:
    store = open_store(HOST)

    def rank(place: int) -> Group:
        own = store if place == 0 else join_store(HOST, store.port)
        return link(1, place, 2, own, HOST, lambda: False, links[place])

    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(rank, range(2), timeout=60))


def test_a_worker_whose_gpu_fails_while_another_is_lost_tries_once_more() -> None:
    """The failure may be due to the loss; the third attempt goes over gloo, which is said."""
    ours, said = DeviceLinks(replace(accelerator(0), make=unmade)), list[str]()
    for failures in range(1, MOST_FAILURES + 1):
        assert ours.note != ""
        meeting = Meeting(open_store(HOST), 0, 2, lambda: True)
        for number in range(2):
            meeting.store.set(f"{HERE}/{number}", accelerator(number).card.told())
        with pytest.raises(GivenUpError):
            ours.join(meeting, said.append)
        assert len(said) == (failures == MOST_FAILURES)
    assert ours.note == ""


# Giving up


def test_who_waits_for_a_lost_peer_over_the_devices_is_called_away() -> None:
    """The other one is there, and never sends its bucket; nothing but the abort frees us."""
    made, done = list[StandIn](), threading.Barrier(2)

    def work(group: Group) -> str:
        tensor, woken = torch.ones(5), threading.Event()
        if group.rank:
            done.wait(60)
            return ""
        work = group.all_reduce_bulk(tensor)
        task = group.begin(lambda: work.wait(OPERATION_TIMEOUT), woken.set)
        assert not woken.wait(0.2)
        group.abandon()
        assert woken.wait(30)
        with pytest.raises(RuntimeError, match="given up"):
            task.result()
        with pytest.raises(RuntimeError, match="given up"):
            group.all_reduce_bulk(tensor)
        assert not group.is_sound
        done.wait(60)
        return "woken"

    assert linked([accelerator(number, made.append) for number in range(2)], work)[0] == "woken"
    assert all(each.aborted.wait(30) for each in made)


def test_a_group_that_breaks_lets_go_of_the_devices_at_once() -> None:
    """Else whoever waits for the whole GPU, as to free memory, would wait for the lost peer."""
    made, over = list[StandIn](), threading.Barrier(2)

    def work(group: Group) -> bool:
        trained, woken = Wide(), threading.Event()
        task = group.begin(
            lambda: one_step(group, by_blocks(SAMPLING, None), trained, number=7 + group.rank), woken.set
        )
        assert woken.wait(30)
        with pytest.raises(RuntimeError, match="is in step"):
            task.result()
        over.wait(60)
        return all(each.aborted.wait(30) for each in made)

    assert linked([accelerator(number, made.append) for number in range(2)], work) == [True, True]


def test_a_group_that_is_not_used_any_more_ends() -> None:
    """As after a resize, when everybody has come over."""
    made: list[StandIn] = []
    groups = linked([accelerator(number, made.append) for number in range(2)], lambda group: group)
    heir = Group(2, 0, 1, None)
    for group in groups:
        task_over = threading.Event()
        group.begin(lambda: None, task_over.set)
        assert task_over.wait(60)
        group.close(heir)
    assert not any(each.aborted.is_set() for each in made)
    del group
    groups.clear()
    gc.collect()
    assert all(each.aborted.wait(30) for each in made)


def test_a_generation_that_is_given_up_while_its_devices_link() -> None:
    """The other one has connected, and adds nothing up."""
    made, over = list[StandIn](), threading.Event()

    class Late(StandIn):
        def allreduce(self, tensors: list[torch.Tensor]) -> Any:
            self._gloo = self._connected(*self._place)
            over.wait(60)
            raise RuntimeError("too late")

    def late(store: Any, rank: int, world: int) -> DeviceGroup:
        return DeviceGroup(Late(store, rank, world), CPU)

    links = [DeviceLinks(accelerator(0, made.append)), DeviceLinks(replace(accelerator(1), make=late))]
    store = open_store(HOST)

    def rank(place: int) -> None:
        own = store if place == 0 else join_store(HOST, store.port)

        def is_given_up() -> bool:
            return bool(made and made[0].reduced)

        with pytest.raises(GivenUpError):
            link(1, place, 2, own, HOST, is_given_up, links[place])
        over.set()

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(rank, range(2), timeout=60))
    assert made[0].aborted.wait(30)
    assert links[0].note != "", "that was nobody's fault"


@pytest.mark.timeout(200)
def test_the_end_of_the_process_does_not_wait_for_an_abort_without_end() -> None:
    program = """
import time, torch
from hpctools.elastic.device_group import DeviceGroup
class Stuck:
    def abort(self):
        print("aborted", flush=True)
        time.sleep(1000)
held = DeviceGroup(Stuck(), torch.device("cpu"))
"""
    command = [sys.executable, "-c", program]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=150, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "aborted\n", "")


# Several devices in one worker


def test_buckets_of_several_devices_leave_when_all_are_full() -> None:
    """Autograd has a thread for each device, and a bucket is filled on its own device's stream."""
    sent: list[torch.Tensor] = []

    class Told(Group):
        def all_reduce(self, tensor: torch.Tensor) -> Any:
            sent.append(tensor)

    meta = torch.device("meta")
    parameters = [torch.zeros(4), torch.zeros(4, device=meta)]
    buckets = [Bucket((number,), 4, torch.float32, each.device) for number, each in enumerate(parameters)]
    tail = torch.ones(2)
    both_kinds = _InFlight(Told(1, 0, 2, None), buckets, parameters, tail)
    for number, parameter in enumerate(parameters):
        both_kinds.put(number, parameter)
    assert sent == []
    both_kinds.send_full()
    assert [(each.device, each.numel()) for each in sent] == [(CPU, 4 + 2), (meta, 4)], "the tail rides along"
    sent.clear()
    one_kind = _InFlight(Told(1, 0, 2, None), buckets[:1], parameters, tail)
    one_kind.put(0, parameters[0])
    assert [each.numel() for each in sent] == [4 + 2]
    sent.clear()
    on_device = _InFlight(Told(1, 0, 2, None), buckets[1:], parameters, tail)
    assert [each.device for each in sent] == [CPU], "a tail that no bucket can carry goes by itself, first"
    on_device.put(1, parameters[1])
    assert [each.device for each in sent] == [CPU, meta]


def test_gradients_on_one_gpu_are_the_devices_affair() -> None:
    assert FastSum(Wide()).device is None
    assert FastSum(torch.nn.Linear(2, 2, device="meta")).device is None

"""The groups of generations to come: linked in threads of their own, beside the running training."""

from __future__ import annotations

import atexit
import threading
import time
from collections.abc import Callable, Collection

import torch

from hpctools.elastic.devices import DeviceLinks, accelerator_of
from hpctools.elastic.group import Group, join_store, link, open_store
from hpctools.elastic.meeting import GivenUpError, Store

CLOSE_SECONDS = 1.0


class Links:
    """A worker's groups that are linked, or on their way.

    Args:
        listen, host: our own address, to listen on and as the others connect to it.
        changed: held while a group is added, and notified.
        say: sends a message to the coordinator.
        device: the GPU whose tensors are to be added up over nccl, where each worker has one.
        rounds: how many the training has completed.

    Attributes:
        groups: those that are linked and not yet in force, by generation.
        seconds: how long linking took, by generation.
    """

    def __init__(
        self,
        listen: str,
        host: str,
        changed: threading.Condition,
        say: Callable[..., None],
        device: torch.device | None = None,
        rounds: Callable[[], int] = int,
    ) -> None:
        self._listen = listen
        self._host = host
        self._changed = changed
        self._say = say
        self._rounds = rounds
        self._devices = DeviceLinks(accelerator_of(device))
        self._places: dict[int, tuple[int, int]] = {}
        self._on_their_way: dict[int, threading.Thread] = {}
        self._given_up: set[int] = set()
        self._closed = False
        atexit.register(self.close)
        self.groups: dict[int, Group] = {}
        self.seconds: dict[int, float] = {}

    def form(self, generation: int, rank: int, world: int, committed: Collection[int]) -> None:
        """Our place in a generation; older ones that were not committed have been given up."""
        self._places[generation] = (rank, world)
        for older in [each for each in self.groups if each < generation and each not in committed]:
            del self.groups[older]
        self._given_up.update(
            each for each in list(self._on_their_way) if each < generation and each not in committed
        )
        if world == 1:
            self._begin(generation, lambda: None)
        elif rank == 0:
            self._begin(generation, lambda: self._offer_store(generation))

    def join(self, generation: int, host: str, port: int) -> None:
        """Rank 0 of a generation offers its store there."""
        self._begin(generation, lambda: join_store(host, port))

    def forget(self, generation: int) -> None:
        """A generation is in force: it and those before it are on their way no more."""
        for older in [each for each in self.groups if each <= generation]:
            del self.groups[older]
        # list(): others add to them meanwhile. How long it took is asked once the generation is in force.
        for known in (self._places, self.seconds):
            for older in [each for each in list(known) if each < generation]:
                known.pop(older)

    def _offer_store(self, generation: int) -> Store:
        store = open_store(self._host, self._listen)
        self._say("store", generation=generation, host=self._host, port=store.port)
        return store

    def close(self) -> None:
        """The process ends: nothing is wanted any more, and no thread may be on its way then."""
        self._closed = True
        for thread in list(self._on_their_way.values()):
            thread.join(CLOSE_SECONDS)

    def _begin(self, generation: int, store: Callable[[], Store]) -> None:
        thread = self._on_their_way[generation] = threading.Thread(
            target=self._link, args=(generation, store), name=f"elastic-link-{generation}", daemon=True
        )
        thread.start()

    def _is_given_up(self, generation: int) -> bool:
        return self._closed or generation in self._given_up

    def _link(self, generation: int, store: Callable[[], Store]) -> None:
        try:
            self._try_to_link(generation, store)
        finally:
            self._on_their_way.pop(generation, None)
            self._given_up.discard(generation)

    def _try_to_link(self, generation: int, store: Callable[[], Store]) -> None:
        begun = time.monotonic()
        place = self._places.get(generation)
        if place is None:
            return  # a later one is in force
        rank, world = place
        wanted = (lambda: self._is_given_up(generation), self._devices, self._warn)
        try:
            group = link(generation, rank, world, store(), self._host, *wanted)
        except GivenUpError:
            return
        except (RuntimeError, OSError) as error:
            self._say("link_failed", generation=generation, reason=str(error)[:500])
            return
        with self._changed:
            self.groups[generation] = group
            self.seconds[generation] = time.monotonic() - begun
        self._say("linked", generation=generation, rounds=self._rounds())

    def _warn(self, problem: str) -> None:
        self._say("warning", message=problem)

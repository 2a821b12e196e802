"""A worker's part in the run: which generation it trains in, and how it gets from one to the next.

The channel's threads only note what the coordinator says (orders, commits) and link the next generation's
group; everything that touches the training happens in the training's own thread, inside `enter`, `boundary`,
`exchange` and `finish`.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from hpctools.elastic.channel import Channel, Termination, die_with_parent
from hpctools.elastic.folder import RunFolder
from hpctools.elastic.group import Group, Store, Task, join_store, link, open_store
from hpctools.elastic.protocol import Message, own_address
from hpctools.elastic.session import Resharding, Restorable, Result, Runner, Transferable, Worked
from hpctools.elastic.state import receive_state, send_state
from hpctools.elastic.timing import StepClock
from hpctools.errors import ElasticError

RELEASE_SECONDS = 5.0
ORPHAN_SECONDS = 10.0
NO_STATE = -1


@dataclass(frozen=True)
class _Commit:
    generation: int
    agree: bool
    leave: bool = False
    report: bool = False
    send_to: tuple[int, ...] = ()
    receive_from: int | None = None
    arrived: float = 0.0


class RunSession:
    """The training is a worker of an elastic run.

    Args:
        worker: our name in the run.
        state: what moves to workers that join.
        progress: what the signs of life tell (step, loss, ...).

    Raises:
        UnreachableError: the coordinator does not answer.
        ElasticError: the run's folder names none.
    """

    is_lone = False

    def __init__(
        self, folder: RunFolder, worker: str, state: Transferable, progress: Callable[[], Mapping[str, Any]]
    ) -> None:
        self._state = state
        self._progress = progress
        self._changed = threading.Condition()
        self._group: Group | None = None
        self._retired: Group | None = None
        self._has_state = False
        self._links: dict[int, Group] = {}
        self._linked_after: dict[int, float] = {}
        self._places: dict[int, tuple[int, int]] = {}
        self._commits: dict[int, _Commit] = {}
        self._recover = 0
        self._roll_backs: dict[int, dict[str, Any]] = {}
        self._order: Message | None = None
        self._ready_for = 0
        self._agreed = 0
        self._end: str | None = None
        self._finished = False
        self._clock = StepClock()
        self._termination = Termination()
        self._host = own_address()[1]
        address = folder.coordinator()
        if address is None:
            raise ElasticError(f"{folder.path} names no coordinator", "the run has ended; submit it again")
        self.term = address.term
        die_with_parent()
        hello = {"worker": worker, "pid": os.getpid()}
        self._channel = Channel(address, hello, self._on_message, self._on_lost, self._beat)

    @property
    def group(self) -> Group:
        """The group of the generation in force."""
        assert self._group is not None, "enter() comes first"  # noqa: S101
        return self._group

    # In the training's thread

    def enter(self) -> None:
        """Wait to be let in, and receive the state."""
        self._channel.send("ready")
        while self._group is None:
            self._wait(lambda: self._recover > 0 or any(not each.agree for each in self._commits.values()))
            self._go_if_told()
            if self._recover:
                self._rejoin()
            else:
                self._switch(max(self._commits))

    def boundary(self) -> None:
        """Between two steps: switch to the next generation, or leave, when that was agreed."""
        self._clock.step_ended(time.monotonic())
        self._report(self._clock.result())
        self._go_if_told()
        if self._must_rejoin():
            self._rejoin()
        elif self._agreed > self.group.number:
            self._switch(self._agreed)

    def recover(self) -> bool:
        """Within a step: be part of a recovery when there is one; True: the step is to be begun again."""
        self._go_if_told()
        if not self._must_rejoin():
            return False
        self._rejoin()
        return True

    def exchange(self, work: Callable[[Group], Result]) -> Result | None:
        """Do what all ranks do at the end of a step; None: the group broke, the step is to be done again."""
        group = self.group
        task = group.begin(lambda: work(group), self._notify)
        done: Result | None
        try:
            done = self._outcome(task, group.number)
        except RuntimeError as error:
            self._await_recovery(group.number, error)
            done = None
        if done is None:
            self._rejoin()
            return None
        self._agreed = max(self._agreed, done.agreed)
        self._retired = None  # everybody has come to the group in force
        return done

    def collective(self, work: Callable[[Group], Worked]) -> Worked | None:
        """Do in the group's thread what all ranks do within a step; None: we were called away."""
        group = self.group
        return self._runner(group.number)(group, lambda: work(group))

    def finish(self) -> None:
        """The last step is done: wait until it is for everyone."""
        self._clock.step_ended(time.monotonic())
        self._report(self._clock.result(at_once=True))
        self._channel.send("beat", **self._beat())
        while not self._finished:
            self._channel.send("done", step=self._state.completed)
            self._wait(lambda: self._finished or self._must_rejoin())
            if not self._finished:
                self._go_if_told()
                self._rejoin()

    @property
    def ready_for(self) -> int:
        """The highest generation that we may switch to when all others may, too."""
        return self._ready_for

    def take_order(self) -> Message | None:
        """The coordinator's last order to save, once."""
        order, self._order = self._order, None
        return order

    def tell(self, kind: str, **fields: Any) -> None:
        """Tell the coordinator something; from any thread."""
        self._channel.send(kind, **fields)

    # From one generation to the next

    def _switch(self, generation: int) -> None:
        commit = self._commits[generation]
        try:
            if commit.leave:
                self._hand_over(generation)
            elif not self._take_part(commit):
                self._rejoin()
        except RuntimeError as error:
            self._await_recovery(generation, error)
            self._rejoin()

    def _rejoin(self) -> None:
        """Park until the generation that recovers the run is in force, and be part of it."""
        while self._must_rejoin():
            generation = self._recover
            self._go_back(self._roll_backs.get(generation))
            completed = self._state.completed if self._has_state else NO_STATE
            self._channel.send("parked", generation=generation, completed=completed)
            self._wait_parked(lambda: generation in self._commits or self._recover > generation)  # noqa: B023
            self._go_if_told()
            if self._recover > generation:
                continue
            try:
                self._take_part(self._commits[generation])
            except RuntimeError as error:
                self._await_recovery(generation, error)

    def _take_part(self, commit: _Commit) -> bool:
        """Move the state and train in the generation from now on; False: called away."""
        begun = time.monotonic()
        if commit.agree:
            self._channel.send("switching", generation=commit.generation)
        group = self._links[commit.generation]
        if not self._have_moved(group, commit):
            return False
        self._has_state = True
        self._put_in_force(group)
        self._channel.send("switched", generation=commit.generation, step=self._state.completed)
        if commit.report:
            self._measure(commit, begun)
        return True

    def _go_back(self, roll_back: Mapping[str, Any] | None) -> None:
        state = self._state
        if roll_back is not None and self._has_state and isinstance(state, Restorable):
            self._has_state = state.roll_back(**roll_back)

    def _have_moved(self, group: Group, commit: _Commit) -> bool:
        """Have the state where the generation needs it; False: called away."""
        if isinstance(self._state, Resharding):
            before = self._group if commit.agree else None
            return self._state.move(before, group, self._runner(commit.generation))
        if commit.receive_from is None and not self._has_state and isinstance(self._state, Restorable):
            self._state.begin()
        moving = group.begin(lambda: self._move_state(group, commit), self._notify)
        moved = self._outcome(moving, group.number)
        if moved is not None and commit.receive_from is not None:
            self._state.load(moved)
        return moved is not None

    def _move_state(self, group: Group, commit: _Commit) -> Mapping[str, Any]:
        if commit.receive_from is not None:
            received: Mapping[str, Any] = receive_state(group, commit.receive_from)
            return received
        if commit.send_to:
            state = self._state.capture()
            for receiver in commit.send_to:
                send_state(group, receiver, state)
        return {}

    def _put_in_force(self, group: Group) -> None:
        # The old group stays until everybody has come over: closing it early could tear a late message.
        if self._group is not None:
            self._group.close()
        self._retired, self._group = self._group, group
        for generation in [each for each in self._links if each <= group.number]:
            del self._links[generation]

    def _hand_over(self, generation: int) -> None:
        state = self._state
        if isinstance(state, Resharding) and not state.move(self.group, None, self._runner(generation)):
            self._rejoin()
        self._leave(generation)

    def _leave(self, generation: int) -> None:
        self._channel.send("left", generation=generation)
        with self._changed:
            self._changed.wait_for(lambda: self._end is not None, RELEASE_SECONDS)
        raise SystemExit(0)

    def _measure(self, commit: _Commit, begun: float) -> None:
        now = time.monotonic()
        phases = {
            "link": self._linked_after.get(commit.generation, 0.0),
            "agree": begun - commit.arrived,
            "state": now - begun,
        }
        self._report(self._clock.resized(commit.generation, self._state.completed, phases))

    def _report(self, resize: dict[str, Any] | None) -> None:
        if resize is not None:
            self._channel.send("resized", **resize)

    # Waiting, always with an ear for the coordinator

    def _wait(self, until: Callable[[], bool]) -> None:
        with self._changed:
            self._changed.wait_for(lambda: until() or self._end is not None)

    def _wait_parked(self, until: Callable[[], bool]) -> None:
        """Nothing changes the state meanwhile, so it can be saved."""
        while True:
            self._wait(lambda: until() or self._order is not None)
            if self._order is None or not isinstance(self._state, Restorable):
                return
            self._state.save_as_ordered()

    def _outcome(self, task: Task[Any], generation: int) -> Any:
        """What the task returns; None when we are called away from the generation before."""
        self._wait(lambda: task.finished or self._recover > generation)
        if task.finished:
            return task.result()
        self._go_if_told()
        return None

    def _runner(self, generation: int) -> Runner:
        def run(group: Group, work: Callable[[], Worked]) -> Worked | None:
            done: Worked | None = self._outcome(group.begin(work, self._notify), generation)
            return done

        return run

    def _await_recovery(self, generation: int, error: RuntimeError) -> None:
        self._channel.send("failed", generation=generation, reason=str(error)[:500])
        self._wait(lambda: self._recover > generation)
        self._go_if_told()

    def _must_rejoin(self) -> bool:
        return self._recover > (self._group.number if self._group is not None else 0)

    def _go_if_told(self) -> None:
        if self._end is not None and not self._finished:
            raise SystemExit(self._end or 0)

    def _notify(self) -> None:
        with self._changed:
            self._changed.notify_all()

    # In the channel's threads

    def _beat(self) -> Mapping[str, Any]:
        if self._termination.requested:
            return {"leaving": True}
        group = self._group
        return self._progress() if group is not None and group.rank == 0 else {}

    def _on_message(self, message: Message) -> None:
        kind = message.pop("kind")
        with self._changed:
            if kind == "form":
                self._on_form(**message)
            elif kind == "link":
                generation = int(message["generation"])
                self._begin_link(generation, lambda: join_store(message["host"], message["port"]))
            elif kind == "commit":
                self._on_commit(message)
            elif kind in ("release", "stop"):
                self._end = self._end or ""
            elif kind == "finish":
                self._finished = True
            elif kind == "save":
                self._order = message
            self._changed.notify_all()

    def _on_form(self, generation: int, rank: int, world: int, recover: bool, **more: Message) -> None:
        self._places[generation] = (rank, world)
        self._roll_backs |= {generation: more["roll_back"]} if "roll_back" in more else {}
        for older in [each for each in self._links if each < generation and each not in self._commits]:
            del self._links[older]
        if recover:
            self._recover = max(self._recover, generation)
        if world == 1:
            self._begin_link(generation, lambda: None)
        elif rank == 0:
            self._begin_link(generation, lambda: self._offer_store(generation))

    def _on_commit(self, message: Message) -> None:
        send_to = tuple(message.pop("send_to", ()))
        commit = _Commit(**message, send_to=send_to, arrived=time.monotonic())
        self._commits[commit.generation] = commit
        if commit.agree:
            self._ready_for = max(self._ready_for, commit.generation)

    def _on_lost(self) -> None:
        with self._changed:
            if self._finished or self._end is not None:
                return
            self._end = "the coordinator of this elastic run is gone; this worker ends"
            self._changed.notify_all()
        # A training that does not come back to us must not stay behind as an orphan.
        timer = threading.Timer(ORPHAN_SECONDS, os._exit, (1,))
        timer.daemon = True
        timer.start()

    def _offer_store(self, generation: int) -> Store:
        store = open_store(self._host)
        self._channel.send("store", generation=generation, host=self._host, port=store.port)
        return store

    def _begin_link(self, generation: int, store: Callable[[], Store]) -> None:
        threading.Thread(
            target=self._link, args=(generation, store), name=f"elastic-link-{generation}", daemon=True
        ).start()

    def _link(self, generation: int, store: Callable[[], Store]) -> None:
        begun = time.monotonic()
        rank, world = self._places[generation]
        try:
            group = link(generation, rank, world, store(), self._host)
        except RuntimeError as error:
            self._channel.send("link_failed", generation=generation, reason=str(error)[:500])
            return
        with self._changed:
            self._links[generation] = group
            self._linked_after[generation] = time.monotonic() - begun
        self._channel.send("linked", generation=generation)

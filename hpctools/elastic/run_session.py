"""A worker's part in the run: which generation it trains in, and how it gets from one to the next.

The channel's threads only note what the coordinator says (orders, commits) and link the next generation's
group; everything that touches the training happens in the training's own thread, inside `enter`, `boundary`,
`exchange` and `finish`.
"""

from __future__ import annotations

import atexit
import os
import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from hpctools.elastic.channel import Channel, Termination, die_with_parent
from hpctools.elastic.checkpoint.way_back import NoWayOn, told_of
from hpctools.elastic.folder import RunFolder
from hpctools.elastic.foresight import Foresight
from hpctools.elastic.group import Group, Task, released
from hpctools.elastic.links import Links
from hpctools.elastic.measuring import Measuring
from hpctools.elastic.orders import Commit, Orders, Seat, refusal
from hpctools.elastic.process_end import end_process
from hpctools.elastic.protocol import Message, own_address
from hpctools.elastic.session import Resharding, Restorable, Result, Runner, Transferable, Worked, device_of
from hpctools.elastic.state import move_state

RELEASE_SECONDS = 5.0
EXCHANGE_SECONDS = 0.5  # of an exchange in which who is called away lets it end
NO_STATE = -1


class RunSession:
    """The training is a worker of an elastic run.

    Args:
        worker: our name in the run.
        state: what moves to workers that join.
        progress: what the signs of life tell (step, loss, ...).

    Raises:
        UnreachableError: no coordinator answers.
        ElasticError: the run has ended.

    Attributes:
        term: of the coordinator that has admitted us last.
    """

    is_lone = False

    def __init__(
        self, folder: RunFolder, worker: str, state: Transferable, progress: Callable[[], Mapping[str, Any]]
    ) -> None:
        self._state = state
        self._progress = progress
        self._changed = threading.Condition()
        self._worker = worker
        self._group: Group | None = None
        self._standing = self._broken = self.term = 0  # standing: in this generation, or left it last
        self._trains = self._is_ready = self._is_done = self._has_left = False
        self._has_state = self._exchanging = False
        self._retired: Group | None = None
        self._orders = Orders()
        self._measuring = Measuring(state, self.tell)
        self._termination = Termination()
        die_with_parent(os.getppid())
        rounds = lambda: self._state._completed  # noqa: E731
        self._links = Links(*own_address(), self._changed, self.tell, device_of(state), rounds)
        self._foresight = Foresight(state, self._orders, self._links.groups, self.tell)
        self._channel = Channel(folder, self._hello, self._on_message, self._on_welcome, self._beat)
        # Python's shutdown stops our signs of life seconds before the process ends on a busy node: who raised
        # has left, and must not be taken for frozen and killed.
        atexit.register(self._channel.close)

    @property
    def group(self) -> Group:
        """The group of the generation in force."""
        assert self._group is not None, "enter() comes first"  # noqa: S101
        return self._group

    # In the training's thread

    def enter(self) -> None:
        """Wait to be let in, and receive the state."""
        with self._changed:
            self._is_ready = True
        self._channel.send("ready")
        self._await_admission()

    def boundary(self) -> None:
        """Between two steps: switch to the next generation, or leave, when that was agreed."""
        self._measuring.step_ended()
        self._orders.rest(self._changed, self._standing)
        self._go_if_told()
        if self._must_rejoin():
            self._rejoin()
        elif (agreed := self._foresight.switches_to(self.group.number)) is not None:
            self._switch(agreed)

    def recover(self) -> bool:
        """Within a step: be part of a recovery when there is one; True: the step is to be begun again."""
        self._go_if_told()
        if not self._must_rejoin():
            return False
        self.group.hang_up()  # who waits for our part of the step need not wait to be called away
        self._rejoin()
        return True

    def exchange(self, work: Callable[[Group], Result]) -> Result | None:
        """Do what all ranks do at the end of a step; None: the group broke, the step is to be done again."""
        group, until = self.group, time.monotonic() + EXCHANGE_SECONDS
        task = group.begin(lambda: work(group), self._notify)
        done: Result | None = None
        try:
            done = self._outcome(task, group, group.number, until)
        except RuntimeError as error:
            self._await_recovery(group.number, error)
        if done is None:
            self._rejoin()
            return None
        self._foresight.agree(done.agreed, self.group.number)
        self._retired = released(self._retired)  # everybody has come to the group in force
        return done

    def collective(self, work: Callable[[Group], Worked]) -> Worked | None:
        """Do in the group's thread what all ranks do within a step; None: we were called away."""
        group = self.group
        if not self._orders.finished:
            return self._runner(group.number)(group, lambda: work(group))
        # The training is complete, and those that are ready sooner end the run; nobody is called away.
        task = group.begin(lambda: work(group), self._notify)
        with self._changed:
            self._changed.wait_for(lambda: task.finished)
        return task.result()

    def finish(self) -> bool:
        """The last step is done: wait until it is for everyone; True: steps are to be done again."""
        completed = self._state._completed
        self._measuring.step_ended(at_once=True)
        self._channel.send("beat", **self._beat())
        while not self._orders.finished and self._state._completed >= completed:
            with self._changed:
                self._is_done = True
            self._channel.send("done", step=self._state._steps)
            self._wait(lambda: self._orders.finished or self._must_rejoin())
            if not self._orders.finished:
                self._go_if_told()
                self._rejoin()
        return self._state._completed < completed  # a roll back, or parts of a sharded state were lost

    @property
    def ready_for(self) -> int:
        """The highest generation that we may switch to after this step when all others may, too."""
        return self._orders.ready_for(self._state._completed)

    @property
    def coming(self) -> Seat | None:
        """Our place in a group that may come into force after the step in work; None: as far as is known."""
        return None if self._group is None else self._foresight.coming(self._group)

    def take_order(self) -> Message | None:
        """The coordinator's last order to save, once."""
        order, self._orders.save = self._orders.save, None
        return order

    def tell(self, kind: str, **fields: Any) -> None:
        """Tell the coordinator something; from any thread."""
        self._channel.send(kind, **fields)
        self._orders.told(kind, fields.get("why"), fields.get("by_itself"))

    # From one generation to the next

    def _await_admission(self) -> None:
        """Until we train: let in, or part of a recovery."""
        while not self._trains:
            self._wait(lambda: self._must_rejoin() or self._let_in() is not None or self._foresight.is_due)
            self._go_if_told()
            self._foresight.prepare()
            admission = self._let_in()
            if self._must_rejoin() or admission is None:
                self._rejoin()
            else:
                self._switch(admission)

    def _switch(self, generation: int) -> None:
        commit = self._orders.commits[generation]
        try:
            if commit.leave:
                self._hand_over(commit)
            elif not self._take_part(commit):
                self._rejoin()
        except RuntimeError as error:
            self._await_recovery(generation, error)
            self._rejoin()

    def _rejoin(self) -> None:
        """Park until the generation that recovers the run is in force, and be part of it."""
        while self._must_rejoin():
            generation = self._orders.recover
            with self._changed:
                self._is_done = False
            self._go_back()
            completed = self._state._completed if self._has_state else NO_STATE
            self._channel.send("parked", generation=generation, completed=completed)
            self._wait_parked(lambda: self._let_in() is not None or self._orders.recover > generation)  # noqa: B023
            self._go_if_told()
            admission = self._let_in()
            if self._orders.recover > generation or admission is None:
                continue
            try:
                self._take_part(self._orders.commits[admission])
            except (RuntimeError, NoWayOn) as error:
                self._await_recovery(admission, error)

    def _take_part(self, commit: Commit) -> bool:
        """Move the state and train in the generation from now on; False: called away."""
        begun = time.monotonic()
        if commit.agree:
            self._channel.send("switching", **self._foresight.described(commit))
        group = self._links.groups[commit.generation]
        if commit.agree or commit.place is not None:  # in a recovery it is open where we shall be
            self._foresight.begins(commit.generation, commit.place)
        if not self._have_moved(group, commit):
            return False
        self._has_state = True
        self._put_in_force(group)
        self._channel.send("switched", generation=commit.generation, step=self._state._steps)
        if commit.report:
            self._measuring.resized(commit, self._links.seconds.get(commit.generation, 0.0), begun)
        return True

    def _go_back(self) -> None:
        if not isinstance(state := self._state, Restorable):
            return
        for roll_back in self._orders.going_back(self._standing):
            # Who has no state skips, too.
            self._has_state = state._roll_back(**roll_back) and self._has_state

    def _have_moved(self, group: Group, commit: Commit) -> bool:
        """Have the state where the generation needs it; False: called away."""
        if isinstance(self._state, Resharding):
            before = self._group if commit.agree else None
            return self._state._move(before, group, self._runner(commit.generation))
        if commit.receive_from is None and not self._has_state and isinstance(self._state, Restorable):
            self._state._begin()
        moving = group.begin(lambda: self._move_state(group, commit), self._notify)
        moved = self._outcome(moving, group, group.number)
        if moved is not None and commit.receive_from is not None:
            self._state._load(moved)
        return moved is not None

    def _move_state(self, group: Group, commit: Commit) -> Mapping[str, Any]:
        # All that hold the state serve their part of it to all that do not.
        if not commit.moves or group.world == 1:
            return {}
        return move_state(group, self._state._capture if commit.receive_from is None else None) or {}

    def _put_in_force(self, group: Group) -> None:
        # The old group stays until everybody has come over: closing it early could tear a late message.
        if self._group is not None:
            self._group.close(heir=group)
        released(self._retired)
        with self._changed:
            self._retired, self._group = self._group, group
            self._standing, self._trains = group.number, True
        self._links.forget(group.number)

    def _hand_over(self, commit: Commit) -> None:
        state, generation = self._state, commit.generation
        if isinstance(state, Resharding) and not state._move(self.group, None, self._runner(generation)):
            self._rejoin()
            return
        if commit.stay:
            self._stand_by(generation)
        else:
            self._leave(generation)

    def _stand_by(self, generation: int) -> None:
        """No allowed size needs us at present: wait, with what we have, until one does."""
        with self._changed:
            self._standing, self._trains = generation, False
        self._channel.send("left", generation=generation, stays=True)
        self._await_admission()

    def _leave(self, generation: int) -> None:
        with self._changed:
            self._has_left, self._trains = True, False
        self._channel.send("left", generation=generation)
        if isinstance(self._state, Resharding):
            self._state._finish_part()
        self._wait(lambda: False, RELEASE_SECONDS)
        end_process(0)

    # Waiting, always with an ear for the coordinator

    def _wait(self, until: Callable[[], bool], seconds: float | None = None) -> None:
        with self._changed:
            self._changed.wait_for(lambda: until() or self._orders.end is not None, seconds)

    def _wait_parked(self, until: Callable[[], bool]) -> None:
        """Nothing changes the state meanwhile, so it can be saved: not one that a roll back gives up."""
        can_save = partial(self._orders.can_save, has_state=self._has_state)
        again = partial(self._orders.ask_again, self._state, has_state=self._has_state)
        self._wait(lambda: until() or can_save(), again())
        while not until() and (can_save() or again()) and isinstance(self._state, Restorable):
            self._state._save_as_ordered()
            self._wait(lambda: until() or can_save(), again())

    def _outcome(self, task: Task[Any], group: Group, generation: int, until: float = 0.0) -> Any:
        """What the group's task returns; None when we are called away from the generation before."""
        self._exchanging = True
        self._wait(lambda: task.finished or self._orders.recover > generation)
        self._orders.let_end(task, self._changed, until)
        self._exchanging = False
        if task.finished:
            return task.result()
        group.abandon()
        self._go_if_told()
        return None

    def _runner(self, generation: int) -> Runner:
        def run(group: Group, work: Callable[[], Worked]) -> Any:
            return self._outcome(group.begin(work, self._notify), group, generation)

        return run

    def _await_recovery(self, generation: int, error: Exception) -> None:
        with self._changed:
            self._broken = max(self._broken, generation)
        self._channel.send(**told_of(error), generation=generation)
        self._wait(lambda: self._orders.recover > generation)
        self._go_if_told()

    def _let_in(self) -> int | None:
        return self._orders.admission(self._standing)

    def _must_rejoin(self) -> bool:
        return self._orders.recover > self._standing

    def _go_if_told(self) -> None:
        if self._orders.end is not None and not self._orders.finished:
            if self._orders.can_save(has_state=self._has_state) and isinstance(self._state, Restorable):
                self._state._save_as_ordered()
            if not self._orders.end and isinstance(self._state, Resharding):  # others were through first
                self._state._finish_part()
            end_process(self._orders.end or 0)

    def _notify(self) -> None:
        with self._changed:
            self._changed.notify_all()

    # In the channel's threads

    def _beat(self) -> Mapping[str, Any]:
        if self._termination.requested:
            return {"leaving": True}
        group = self._group
        if group is None or not self._trains:
            return {}
        return {"generation": group.number, "rank": group.rank, "waits": self._exchanging, **self._progress()}

    def _hello(self) -> Mapping[str, Any]:
        """Who we are and how we stand: `assembly.Returned`."""
        with self._changed:
            group, orders = self._group, self._orders
            return {
                "worker": self._worker,
                "pid": os.getpid(),
                "shards": isinstance(self._state, Resharding),
                "ready": self._is_ready,
                "trains": self._trains,
                "generation": self._standing,
                "rank": group.rank if group is not None else 0,
                "world": group.world if group is not None else 0,
                "completed": self._state._completed if self._has_state else NO_STATE,
                "step": self._state._steps,
                "broken": self._broken > 0 and self._broken >= self._standing,
                "done": self._is_done,
                "left": self._has_left,
                **orders.standing(self._standing),
            }

    def _on_welcome(self, term: int) -> None:
        self.term = term

    def _on_message(self, message: Message) -> None:
        with self._changed:
            if message["kind"] == "link":
                self._links.join(message["generation"], message["host"], message["port"])
            elif message["kind"] == "save" and not isinstance(self._state, Restorable):
                self._channel.send("unsaved", **refusal(message, self._state._steps))
            else:
                self._orders.note(message)
            if message["kind"] == "form":
                rank, world = int(message["rank"]), int(message["world"])
                self._links.form(int(message["generation"]), rank, world, self._orders.commits)
            self._changed.notify_all()

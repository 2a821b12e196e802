"""What a training's loader asks about checkpoints: begin from one, save at a step's end, roll back."""

from __future__ import annotations

import atexit
import time
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol

from hpctools.elastic.checkpoint.measure import Grace, Saved, SavesTold
from hpctools.elastic.checkpoint.place import check_expected, nothing_whole, sources
from hpctools.elastic.checkpoint.restore import newest_state
from hpctools.elastic.checkpoint.roll_backs import RollBacks
from hpctools.elastic.checkpoint.saver import Origin, Reports, Saver, uncopied
from hpctools.elastic.checkpoint.settings import Checkpoint
from hpctools.elastic.checkpoint.snapshots import Snapshots
from hpctools.elastic.checkpoint.store import Abandoned, Store, open_store
from hpctools.elastic.checkpoint.way_back import NothingOldEnough, newest_kept
from hpctools.errors import ElasticError

LEAVE_SECONDS = 2.0
FINISH_SECONDS = 60.0
SLOW_SECONDS = 60.0
# What makes two trainings the same one, of what the loader describes.
IDENTITY = ("samples", "batch_size", "shards", "seed")


def difference(saved: Mapping[str, Any], present: Mapping[str, Any]) -> str | None:
    """Why the result cannot be that of the training that was saved; None: it can.

    Args:
        saved: what the manifest tells about the training.
        present: what is to be told now.
    """
    changed = [name for name in IDENTITY if name in saved and saved[name] != present.get(name)]
    if not changed:
        return None
    said = ", ".join(f"{name} was {saved[name]} and is {present.get(name)}" for name in changed)
    return f"the checkpoint is of another training: {said}; samples may be seen twice or not"


@dataclass(frozen=True)
class Order:
    """Somebody wants a checkpoint now.

    Attributes:
        why: for the event.
        urgent: whether the training waits until it is committed.
        seconds: how long at most, when urgent.
        number: which order it is, for the answer; None: who gave it does not say.
    """

    why: str
    urgent: bool = True
    seconds: float = 30.0
    number: str | None = None

    def answer(self, step: int, addition: str = "") -> dict[str, Any]:
        """What is told of it when it is not carried out.

        Args:
            addition: to the reason.
        """
        told = {"step": step, "why": f"{self.why}{addition}"}
        return told if self.number is None else {**told, "order": self.number}


class Desk(Protocol):
    """What a keeper needs of the run that its worker is part of."""

    @property
    def saves(self) -> bool:
        """Whether this worker is the one that saves."""
        ...

    @property
    def origin(self) -> Origin:
        """Under which term and generation it does."""
        ...

    @property
    def grace(self) -> Grace | None:
        """Of a preempted node; None when nothing is preempted."""
        ...

    def fence(self, origin: Origin) -> str | None:
        """Why what was begun as `origin` must not be committed; None: it may. Called from any thread.

        Raises:
            ElasticError: whether it may cannot be known at present; it is to be tried again later.
        """
        ...

    def expected(self) -> str | None:
        """The last checkpoint of the run, which has to be somewhere; None: none is known."""
        ...

    def take_order(self) -> Order | None:
        """The order to save that has come in, once."""
        ...

    def tell(self, kind: str, **fields: Any) -> None:
        """Report `saved`, `save_failed`, `unsaved` or `warning`. Called from any thread."""
        ...


class Keeper:
    """The checkpoints of one worker.

    Args:
        place: folder or address that they are written to.
        capture: the training's whole state; tensors may be the living ones.
        describe: what the manifest tells about the training.
    """

    def __init__(
        self,
        settings: Checkpoint,
        place: str,
        desk: Desk,
        capture: Callable[[], Mapping[str, Any]],
        describe: Callable[[], Mapping[str, Any]],
    ) -> None:
        self._settings = settings
        self._place = place
        self._desk = desk
        self._capture = capture
        self._describe = describe
        self._snapshots = Snapshots(settings.snapshots, settings.snapshot_steps)
        self._store_: Store | None = None
        self._saver_: Saver | None = None
        self._begun = self._next_begun = time.monotonic()
        self._rounds = self._next_rounds = -1
        self._next_order: str | None = None
        self._known_step = 0
        self._most_steps: int | None = None
        self._last: Saved | None = None
        self._given_up: list[Abandoned] = []
        self._roll_backs = RollBacks(lambda: self._store, self._warn)
        self._put_off: Order | None = None
        self._in_work: Order | None = None  # what is being written is for it
        self._saves_told = SavesTold(desk.tell)
        self._told_slow = self._told_broken = self._told_no_snapshot = False
        self._at_exit = partial(_give_up, weakref.ref(self))
        self._is_registered = False

    def begin(self, completed: int = 0) -> Any | None:
        """The state to go on from when no worker has one; None: the training begins from the beginning.

        Args:
            completed: steps that this worker has done: at the beginning it is only when it has done none.

        Raises:
            NothingOldEnough: after a roll back, which goes further back than all that is kept, or there is
                nothing at all and this worker is not at the beginning.
            ElasticError: the place cannot be read (to begin from the beginning then would lose what is
                there), or what the training should begin from, or the run has saved, holds nothing whole.
        """
        places = sources(self._place, self._settings)
        for place in places:
            restored = newest_state(place, self._warn, self._most_steps)
            if restored is not None:
                self._check_expected(restored.found.where)
                self._known_step = restored.found.manifest.step
                self._desk.tell("resumed", step=self._known_step, where=restored.found.where)
                self._compare(restored.found.manifest.training)
                return restored.state
        if self._most_steps is not None:
            kept = newest_kept(places)
            if completed > 0 or kept is not None:
                raise NothingOldEnough(self._most_steps, kept)
        if self._settings.resume_from:
            raise nothing_whole(self._settings.resume_from)
        self._check_expected(None)
        return None

    def boundary(self, step: int, *, sound: bool = True, rounds: int = -1) -> None:
        """Between two steps, `step` of which are completed: save when it is time or ordered.

        Args:
            rounds: exchanges of all workers so far; -1: as many as steps.
            sound: whether the last loss was a number; what comes after one that was not is not worth
                keeping, and would take the place of what is.
        """
        self._rounds = rounds
        if sound:
            self._take_snapshot(step)
        order = self._desk.take_order() or self._put_off
        self._put_off = None
        try:
            if order is not None and sound:
                self._obey(order, step)
            elif order is not None:
                self._desk.tell("unsaved", **order.answer(step, "; its loss is not finite"))
            elif sound and self._desk.saves and self._is_due(step):
                self._save(step, "interval")
        except ElasticError as error:  # of making the store's client; the training need not know
            self._cannot_save(error)
            if order is not None:  # who gave it waits for an answer
                self._desk.tell("unsaved", **order.answer(step))

    @property
    def has_put_off(self) -> bool:
        """Whether an order waits until what is being written is complete."""
        return self._put_off is not None

    def roll_back(self, to_step: int, completed: int) -> Any | None:
        """The newest state of at most `to_step` steps in this worker's memory.

        Args:
            completed: steps of the state that the worker has.

        Returns:
            None: there is none, or what the worker has is not later.
        """
        self._cancel()
        self._put_off, self._in_work = self._put_off or self._in_work, None
        self._most_steps = to_step
        earlier = self._snapshots.go_back(to_step)
        return earlier if completed > to_step else None

    def settled(self, step: int) -> None:
        """The generation after a roll back is in force, after `step`; what was saved later is void.

        To be called before the first step in it.
        """
        if self._most_steps is None:
            return
        origin = self._desk.origin
        given_up = Abandoned(origin.run, origin.term, origin.generation, step)
        self._given_up.append(given_up)
        self._most_steps = self._last = None
        self._known_step = step
        if self._place:
            self._roll_backs.note(given_up, is_ours=self._desk.saves)
        if self._desk.saves:
            self._begun -= self._settings.every_seconds

    def forget(self) -> None:
        """The state has come from another worker: our copies may be of something that was given up."""
        self._snapshots.forget()

    def close(self, *, finished: bool) -> None:
        """The worker ends: what is being written is completed, or given up when its node is wanted."""
        atexit.unregister(self._at_exit)
        self._is_registered = False
        if self._saver_ is None or not self._saver_.is_busy:
            return
        if not (finished and self._saver_.wait(FINISH_SECONDS)):
            self._cancel()

    def _check_expected(self, found: str | None) -> None:
        if self._most_steps is None:
            check_expected(found, self._place, self._desk.expected)

    def _compare(self, saved: Mapping[str, Any]) -> None:
        if (said := difference(saved, self._describe())) is not None:
            self._warn(said)

    def _obey(self, order: Order, step: int) -> None:
        deadline = time.monotonic() + order.seconds
        if order.urgent:
            self._saver.wait(order.seconds)
        elif self._saver.is_busy:
            self._put_off = order
            return
        if (saved := self._saved_of(step)) is not None:
            present = self._desk.origin.generation  # it counts in it, whichever it was saved in
            told = replace(saved, why=order.why, order=order.number, generation=present)
            self._desk.tell("saved", **told.to_json())
            return
        if not self._saver.is_busy:
            self._save(step, order.why, order)
        if order.urgent and not self._saver.wait(deadline - time.monotonic()):
            self._warn(f"the checkpoint of step {step} is not complete after {order.seconds:g} s")
        if order.urgent and self._saved_of(step) is None:
            self._desk.tell("unsaved", **order.answer(step))

    def _saved_of(self, step: int) -> Saved | None:
        """What was saved last, if it is of this step and may be used."""
        last = self._last
        return last if last is not None and last.step == step and not self._is_void(last) else None

    def _is_void(self, saved: Saved) -> bool:
        """Whether it is of what a roll back gave up, however late it was complete."""
        return any(saved.generation < each.generation and saved.step > each.step for each in self._given_up)

    def _save(self, step: int, why: str, order: Order | None = None) -> None:
        self._next_begun, self._next_rounds, self._in_work = time.monotonic(), self._rounds, order
        self._next_order = None if order is None else order.number
        if not self._is_registered:
            self._is_registered = True
            # A thread in mid-write at Python's end could take the process down with an error.
            atexit.register(self._at_exit)  # which keeps neither us nor the model
        self._saver.save(self._capture(), step, why, self._desk.origin, self._describe())

    def _take_snapshot(self, step: int) -> None:
        try:
            self._snapshots.consider(step, self._capture)
        except Exception as error:  # noqa: BLE001 - whatever the copy lacks, the training is sound
            if not self._told_no_snapshot:
                self._told_no_snapshot = True
                self._warn(f"no snapshot of step {step} is taken: {uncopied(error)}, or give fewer snapshots")

    def _is_due(self, step: int) -> bool:
        if not self._place:  # without a run and a folder: only snapshots, or only begun from elsewhere
            return False
        settings = self._settings
        late = time.monotonic() - self._begun - settings.every_seconds
        by_time = settings.every_seconds > 0 and late >= 0
        every = settings.every_steps
        by_steps = every > 0 and step // every > self._known_step // every
        if not (by_time or by_steps):
            return False
        if by_time and self._saver.is_busy:
            self._notice_slow(late)
        return self._saver.may_try(time.monotonic())

    def _notice_slow(self, late: float) -> None:
        if late > SLOW_SECONDS and not self._told_slow:
            self._told_slow = True
            self._warn(
                f"{self._place} is too slow: a checkpoint is still being written {late:.0f} s after it was "
                "due; give faster storage or a longer interval (checkpoint: intervalInSeconds)"
            )

    def _cannot_save(self, error: ElasticError) -> None:
        if not self._told_broken:
            self._told_broken = True
            self._warn(f"nothing is saved: {error}; the training goes on without")

    def _on_saved(self, saved: Saved) -> None:
        saved = replace(saved, rounds=self._next_rounds, order=self._next_order)
        self._last, self._told_slow, self._in_work = saved, False, None
        if not self._is_void(saved):
            self._known_step, self._begun = saved.step, self._next_begun
        self._saves_told.saved(saved, self._desk.grace)

    def _on_failed(self, step: int, why: str, reason: str) -> None:
        order = {} if self._next_order is None else {"order": self._next_order}
        self._in_work = None
        self._desk.tell("save_failed", step=step, why=why, reason=reason, **order)

    def _fence(self, origin: Origin) -> str | None:
        self._roll_backs.note_rest()
        return self._desk.fence(origin)

    def _cancel(self) -> None:
        if self._saver_ is not None:
            self._saver_.cancel()
            self._saver_.wait(LEAVE_SECONDS)

    def _warn(self, message: str) -> None:
        self._desk.tell("warning", message=message)

    @property
    def _store(self) -> Store:
        if self._store_ is None:
            self._store_ = open_store(self._place)
        return self._store_

    @property
    def _saver(self) -> Saver:
        if self._saver_ is None:
            reports = Reports(self._on_saved, self._warn, self._fence, self._on_failed)
            self._saver_ = Saver(self._store, self._settings.keep, reports)
        return self._saver_


def _give_up(known: weakref.ref[Keeper]) -> None:
    """Python ends: what is being written is given up."""
    if (keeper := known()) is not None:
        keeper.close(finished=False)

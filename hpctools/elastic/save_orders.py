"""The coordinator's orders to save: the last one is somebody's who can carry it out, until it is answered."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from hpctools.elastic.journal import FolderJournal
from hpctools.elastic.peers import Worker, write
from hpctools.elastic.protocol import Message


@dataclass(frozen=True)
class Standing:
    """An order as it was given.

    Attributes:
        number: `<term>.<number>`; a coordinator before us has counted its own.
        known: how many steps were known to be done.
        until: on the monotonic clock; None: no time was said.
        ends: whether the run ends with that state, so that nobody need train on.
    """

    number: str
    why: str
    known: int
    urgent: bool
    until: float | None
    ends: bool


class SaveOrders:
    """Has one worker save the state, and another one when that is lost before it has.

    Args:
        present: the workers of the generation in force that are still there, by rank.

    Attributes:
        answered: set when the last order was carried out, or could not be.
    """

    def __init__(self, term: int, journal: FolderJournal, present: Callable[[], Sequence[Worker]]) -> None:
        self._term = term
        self._journal = journal
        self._present = present
        self._count = 0
        self._last: Standing | None = None
        self._saver = ""  # the worker that has it; empty: nobody
        self.answered = asyncio.Event()

    def give(self, why: str, *, urgent: bool, seconds: float | None, ends: bool) -> None:
        """Have the first worker of the generation in force that is still there save the state.

        Args:
            urgent: whether it is needed before anything else is done.
            seconds: how long there is for it; None: long.
        """
        self._count += 1
        number, until = f"{self._term}.{self._count}", None if seconds is None else time.monotonic() + seconds
        self._last = Standing(number, why, self._journal.status.step, urgent, until, ends)
        self.answered.clear()
        self._hand_to(self._present(), seconds)

    def note_answer(self, answer: Message) -> None:
        """A worker has saved, or says that it has not: if that is what was ordered last, that is answered.

        How many steps are done does not tell: who had done most may be gone, and those steps with it. Workers
        of earlier releases name no order; of what they save, reason and step are all there is.
        """
        unnamed = answer["kind"] == "unsaved" and answer.get("order") is None
        if unnamed or self._is_for_last(answer):
            self.answered.set()

    def note_failed(self, worker: str, failure: Message) -> None:
        """A worker could not save: what it was told to is not for others, as the place is the same.

        Where it does not say which order that was, it may be one that was given before the last.
        """
        if worker == self._saver and self._is_for_last(failure):
            self.answered.set()

    def _is_for_last(self, answer: Message) -> bool:
        last = self._last
        if last is None or answer.get("order") is not None:
            return last is not None and bool(answer["order"] == last.number)
        return bool(answer.get("why") == last.why and int(answer["step"]) >= last.known)

    def note_lost(self, worker: str) -> None:
        """A worker is lost: if it was told to save, and has not, another one is.

        Of a state that is sharded nobody has all until a generation is in force again.
        """
        if worker != self._saver or self.answered.is_set():
            return
        present = self._present()
        if any(each.shards for each in present):
            self._saver = ""
        else:
            self._hand_to(present, self._left())

    def note_formed(self) -> None:
        """A generation is in force: a state that is sharded is saved when its first worker says so."""
        first = self._present()[:1]
        if not self.answered.is_set() and first and first[0].shards and first[0].name != self._saver:
            self._hand_to(first, self._left())

    def note_waiting(self) -> None:
        """Fewer workers are left than the least: of a sharded state nobody has all, and can save it."""
        if any(each.shards for each in self._present()):
            self.answered.set()

    def _left(self) -> float | None:
        until = None if self._last is None else self._last.until
        return None if until is None else max(0.0, until - time.monotonic())

    def _hand_to(self, present: Sequence[Worker], seconds: float | None) -> None:
        order, self._saver = self._last, present[0].name if present else ""
        if order is None or not present:  # nobody can be told, so nobody waits
            self.answered.set()
            return
        last = {"ends": True} if order.ends else {}
        self._journal.event("save_ordered", worker=self._saver, why=order.why, urgent=order.urgent)
        told = {"why": order.why, "urgent": order.urgent, "seconds": seconds, "order": order.number, **last}
        write(present[0].writer, "save", **told)

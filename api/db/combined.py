"""Those who wait for the same turn in the event loop are served in one transaction, by the first of them.

Each turn costs two ways to the server and back. When more come than turns are over, they take it together,
the longer the queue the more of them at a time (flat combining: Hendler, Incze, Shavit and Tzafrir 2010).
"""

from __future__ import annotations

from asyncio import CancelledError, Future, TimeoutError, get_running_loop, wait_for
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Generic, TypeVar

from api.db.in_loop import awaited
from hpctools.errors import UnreachableError

Asked = TypeVar("Asked")
Answer = TypeVar("Answer")
MOST = 50
"""Served at a time; who comes later waits for the next turn."""


class _Told(Enum):
    """What somebody who waits is told in place of an answer."""

    LEAD = "have the next turn, for all who wait then"
    ALONE = "try it by yourself"


@dataclass(eq=False)
class _Waiting(Generic[Asked, Answer]):
    key: Hashable
    asked: Asked
    served: Future[Answer | _Told] = field(default_factory=lambda: get_running_loop().create_future())


class Combined(Generic[Asked, Answer]):
    """What is asked for, by those in one event loop who wait.

    Args:
        serve: answers several, in their order, in one transaction; it calls what it is given once it has the
            turn, and is told whom it serves.
        seconds: for how long anybody waits for who has the turn.
    """

    def __init__(
        self, serve: Callable[[Callable[[], Sequence[Asked]]], Sequence[Answer]], seconds: float
    ) -> None:
        self._serve = serve
        self._seconds = seconds
        self._queue: list[_Waiting[Asked, Answer]] = []
        self._leaders = 0  # who have a turn, or were told to have one

    def served(self, key: Hashable, asked: Asked) -> Answer:
        """Ask, and wait for the answer; only `in_loop`.

        Args:
            key: of two with the same the second one is served by a later turn, and sees what the first did.

        Raises:
            UnreachableError: the turn did not come, or the database did not answer.
            Exception: what `serve` raises when it serves this one alone.
        """
        own: _Waiting[Asked, Answer] = _Waiting(key, asked)
        if not self._leaders:
            self._leaders = 1
            return self._lead(own)
        self._queue.append(own)
        told = self._awaited(own)
        if told is _Told.LEAD:
            return self._lead(own)
        return self._alone(own) if isinstance(told, _Told) else told

    def _awaited(self, own: _Waiting[Asked, Answer]) -> Answer | _Told:
        try:
            return awaited(wait_for(own.served, self._seconds))
        except TimeoutError:
            self._queue = [each for each in self._queue if each is not own]
            if _was_told(own):
                self._hand_on()
            raise UnreachableError(f"others have been at work for {self._seconds:g} s", "try again") from None
        except CancelledError:
            if _was_told(own):
                self._hand_on()
            raise

    def _lead(self, own: _Waiting[Asked, Answer]) -> Answer:
        """Have the turn for all who wait until it comes, ourselves among them; then another one leads."""
        taken: list[_Waiting[Asked, Answer]] = []

        def those() -> Sequence[Asked]:
            taken.extend(self._first_ones(own))
            return [each.asked for each in taken]

        try:
            answers = self._serve(those)
            for each, answer in zip(taken[1:], answers[1:], strict=True):
                _tell(each, answer)
            return answers[0]
        except UnreachableError as error:
            self._told_all(taken[1:] if taken else self._queue, error)
            raise
        except BaseException as error:
            self._have_tried_alone(taken[1:])
            if len(taken) < 2 or not isinstance(error, Exception):
                raise
        finally:
            self._hand_on()
        return self._serve(lambda: [own.asked])[0]

    def _alone(self, own: _Waiting[Asked, Answer]) -> Answer:
        try:
            return self._serve(lambda: [own.asked])[0]
        finally:
            self._hand_on()

    def _first_ones(self, own: _Waiting[Asked, Answer]) -> Sequence[_Waiting[Asked, Answer]]:
        """Who leads, and the others in the order in which they came, each key once; they wait no more."""
        first: dict[Hashable, _Waiting[Asked, Answer]] = {own.key: own}
        waiting = [each for each in self._queue if not each.served.done()]  # the others gave up, or lead
        for each in waiting:
            if len(first) < MOST:
                first.setdefault(each.key, each)
        self._queue = [each for each in waiting if first.get(each.key) is not each]
        return list(first.values())

    def _told_all(self, some: Sequence[_Waiting[Asked, Answer]], error: UnreachableError) -> None:
        """The database does not answer: nobody of them need try it."""
        for each in some:
            if not each.served.done():
                each.served.set_exception(UnreachableError(error.message, error.remedy))
        self._queue = [each for each in self._queue if not each.served.done()]

    def _have_tried_alone(self, some: Sequence[_Waiting[Asked, Answer]]) -> None:
        """Nothing was done for any of them, and it may be one's fault alone."""
        for each in some:
            self._leaders += _tell(each, _Told.ALONE)

    def _hand_on(self) -> None:
        """Whoever has waited longest leads now, in place of one who had the turn."""
        while self._queue:
            if _tell(self._queue.pop(0), _Told.LEAD):
                return
        self._leaders -= 1


def _tell(waiting: _Waiting[Asked, Answer], told: Answer | _Told) -> bool:
    """Whether they still wait for it."""
    if waiting.served.done():
        return False
    waiting.served.set_result(told)
    return True


def _was_told(waiting: _Waiting[Asked, Answer]) -> bool:
    """Whether they were to have a turn."""
    served = waiting.served
    return (
        served.done()
        and not served.cancelled()
        and served.exception() is None
        and isinstance(served.result(), _Told)
    )

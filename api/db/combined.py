"""Those who wait for the same turn in the event loop are served in one transaction, by the first of them.

Each turn costs two ways to the server and back. When more come than turns are over, they take it together,
the longer the queue the more of them at a time (flat combining: Hendler, Incze, Shavit and Tzafrir 2010).
"""

from __future__ import annotations

from asyncio import CancelledError, Future, get_running_loop
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from api.db.in_loop import awaited
from hpctools.errors import UnreachableError

Asked = TypeVar("Asked")
Answer = TypeVar("Answer")
MOST = 50
"""Served at a time; who comes later waits for the next turn."""


@dataclass(eq=False)
class _Waiting(Generic[Asked, Answer]):
    key: Hashable
    asked: Asked
    served: Future[Answer | None] = field(default_factory=lambda: get_running_loop().create_future())


class Combined(Generic[Asked, Answer]):
    """What is asked for, by those in one event loop who wait.

    Args:
        serve: answers several, in their order, in one transaction; it calls what it is given once it has the
            turn, and is told whom it serves.
    """

    def __init__(self, serve: Callable[[Callable[[], Sequence[Asked]]], Sequence[Answer]]) -> None:
        self._serve = serve
        self._queue: list[_Waiting[Asked, Answer]] = []
        self._is_led = False

    def served(self, key: Hashable, asked: Asked) -> Answer:
        """Ask, and wait for the answer; only `in_loop`.

        Args:
            key: of two with the same the second one is served by a later turn, and sees what the first did.

        Raises:
            Exception: what `serve` raises when it serves this one alone, or UnreachableError.
        """
        own: _Waiting[Asked, Answer] = _Waiting(key, asked)
        self._queue.append(own)
        answer = self._awaited(own) if self._is_led else None
        return self._lead(own) if answer is None else answer

    def _awaited(self, own: _Waiting[Asked, Answer]) -> Answer | None:
        """The answer; None: it is for us to ask."""
        try:
            return awaited(own.served)
        except CancelledError:
            if own.served.done() and not own.served.cancelled():  # it may have been us who was to lead
                self._hand_on(own)
            raise

    def _lead(self, own: _Waiting[Asked, Answer]) -> Answer:
        """Have the turn for all who wait until it comes, ourselves among them; then another one leads."""
        self._is_led, taken = True, list[_Waiting[Asked, Answer]]()

        def those() -> Sequence[Asked]:
            taken.extend(self._first_ones(own))
            return [each.asked for each in taken]

        try:
            answers = self._serve(those)
        except BaseException as error:
            self._failed(own, taken, error)
            if not _may_be_anothers(error, taken):
                raise
        else:
            for each, answer in zip(taken[1:], answers[1:], strict=True):
                _answer(each, answer)
            return answers[0]
        finally:
            self._hand_on(own)
        return self._serve(lambda: [own.asked])[0]

    def _first_ones(self, own: _Waiting[Asked, Answer]) -> Sequence[_Waiting[Asked, Answer]]:
        """Who leads, and the others in the order in which they came, each key once; they wait no more."""
        first: dict[Hashable, _Waiting[Asked, Answer]] = {own.key: own}
        waiting = [each for each in self._queue if each is not own and not each.served.done()]
        for each in waiting:  # who was told to lead does, and who gave up wants nothing
            if len(first) < MOST:
                first.setdefault(each.key, each)
        chosen = list(first.values())
        self._queue = [each for each in waiting if first.get(each.key) is not each]
        return chosen

    def _failed(
        self, own: _Waiting[Asked, Answer], taken: Sequence[_Waiting[Asked, Answer]], error: BaseException
    ) -> None:
        """Nothing was done for any of them: each tries it alone, unless the database does not answer."""
        told = error if isinstance(error, UnreachableError) else None
        for each in taken[1:]:
            if told is not None and not each.served.done():
                each.served.set_exception(told)
            else:
                _answer(each, None)
        self._queue = [each for each in self._queue if each is not own]

    def _hand_on(self, own: _Waiting[Asked, Answer]) -> None:
        """Whoever has waited longest leads now."""
        self._queue = [each for each in self._queue if each is not own and not each.served.done()]
        self._is_led = bool(self._queue)
        if self._queue:
            _answer(self._queue[0], None)


def _answer(waiting: _Waiting[Asked, Answer], answer: Answer | None) -> None:
    if not waiting.served.done():
        waiting.served.set_result(answer)


def _may_be_anothers(error: BaseException, taken: Sequence[object]) -> bool:
    fine = isinstance(error, Exception) and not isinstance(error, UnreachableError | CancelledError)
    return fine and len(taken) > 1

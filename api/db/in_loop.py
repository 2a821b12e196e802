"""Questions to a database server that are asked from the event loop, which goes on meanwhile.

The code is the same as in a thread. It is carried out in a greenlet, as SQLAlchemy does it for asyncio: where
it waits for the server it gives way, and nothing waits for the interpreter (docs/decisions/0169).
"""

from __future__ import annotations

from asyncio import Lock, TimeoutError, wait_for
from collections.abc import Awaitable, Callable, Hashable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

from sqlalchemy import Engine
from sqlalchemy.util import await_only, greenlet_spawn
from typing_extensions import TypeVarTuple, Unpack

from api.db.server import asked_in_loop
from hpctools.errors import UnreachableError

Given = TypeVarTuple("Given")
Answer = TypeVar("Answer")


class ElsewhereError(Exception):
    """What is asked for takes long: it is to be done in a thread, from the beginning."""


class InLoop:
    """The connections of one event loop to the server of an engine.

    Args:
        engine: that the code asks for; threads go on with it.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._whole = asked_in_loop(engine.url)
        self._looks = asked_in_loop(engine.url, "AUTOCOMMIT")
        self._turn = Lock()
        self._made: dict[Hashable, Any] = {}

    async def carried_out(self, function: Callable[[Unpack[Given]], Answer], *args: Unpack[Given]) -> Answer:
        """What a function that waits for the server returns.

        Raises:
            ElsewhereError: it has begun what takes long; nothing is changed yet.
        """
        mark = _INSIDE.set(self)
        try:
            return await greenlet_spawn(function, *args)
        finally:
            _INSIDE.reset(mark)

    def own(self, key: Hashable, make: Callable[[], Answer]) -> Answer:
        """What there is once for this loop; made when it is first asked for."""
        if key not in self._made:
            self._made[key] = make()
        made: Answer = self._made[key]
        return made

    def whole(self, engine: Engine) -> Engine:
        """The one to be used in place of it for transactions."""
        return self._whole.sync_engine if engine is self._engine else engine

    def looks(self, engine: Engine) -> Engine:
        """The one to be used in place of it for single queries."""
        return self._looks.sync_engine if engine is self._engine else engine

    @contextmanager
    def turn(self, seconds: float) -> Iterator[None]:
        """Wait for one's turn among those in the loop, in the order in which they came.

        Raises:
            UnreachableError: it did not come within `seconds`.
        """
        try:
            awaited(wait_for(self._turn.acquire(), seconds))
        except TimeoutError:
            raise UnreachableError(f"others have been at work for {seconds:g} s", "try again") from None
        try:
            yield
        finally:
            self._turn.release()

    async def close(self) -> None:
        """End all connections."""
        await self._whole.dispose()
        await self._looks.dispose()


_INSIDE: ContextVar[InLoop | None] = ContextVar("hpctools_in_loop", default=None)


def here(engine: Engine) -> Engine:
    """The engine whose connections may be used here: a thread's, or the loop's."""
    inside = _INSIDE.get()
    return engine if inside is None else inside.whole(engine)


def here_to_look(engine: Engine) -> Engine:
    """The same for single queries: without a transaction, where that is the loop's."""
    inside = _INSIDE.get()
    return engine if inside is None else inside.looks(engine)


def in_loop() -> InLoop | None:
    """The event loop that this is carried out in; None in a thread, which keeps nobody waiting."""
    return _INSIDE.get()


def awaited(something: Awaitable[Answer]) -> Answer:
    """What something gives that the loop waits for; only `in_loop`."""
    answer: Answer = await_only(something)
    return answer


def takes_long() -> None:
    """Said before what keeps a processor busy for more than some milliseconds, or waits for another thread.

    Raises:
        ElsewhereError: this is the event loop.
    """
    if in_loop() is not None:
        raise ElsewhereError

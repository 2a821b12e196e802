"""Routes that are answered on one way to a thread and back, for what is asked all the time.

FastAPI carries each dependency and each endpoint that waits to some thread and back. Each way costs more than
a short question to the database, and threads that all want the interpreter make each other wait
(docs/decisions/0158).
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from contextvars import ContextVar
from typing import Any, ParamSpec, TypeVar

from anyio import CapacityLimiter
from anyio.to_thread import run_sync
from fastapi import Request, Response
from fastapi.routing import APIRoute
from starlette.concurrency import run_in_threadpool

from api.auth.identify import bearer
from api.db.in_loop import ElsewhereError, InLoop

_INSIDE: ContextVar[bool] = ContextVar("hpctools_one_way", default=False)

Given = ParamSpec("Given")
Answer = TypeVar("Answer")


async def waited(function: Callable[Given, Answer], *args: Given.args, **kwargs: Given.kwargs) -> Answer:
    """What a function that waits returns: in a thread, or here where we are in one already."""
    if _INSIDE.get():
        return function(*args, **kwargs)
    return await run_in_threadpool(function, *args, **kwargs)


class OneWayRoute(APIRoute):
    """A route whose dependencies and endpoint are coroutines that await only `waited` and each other."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """What answers a request."""
        usual = super().get_route_handler()

        async def answer(request: Request) -> Response:
            if self.body_field is not None:
                await request.body()
            if _is_of_a_provider(request):
                return await run_sync(_carried_out, usual, request)
            if self.at_once(request):
                return _carried_out(usual, request)
            in_loop: InLoop | None = getattr(request.app.state, "in_loop", None)
            if in_loop is not None and self.in_loop(request):
                try:
                    return await in_loop.carried_out(_carried_out, usual, request)
                except ElsewhereError:
                    pass
            threads = self.threads(request)
            return await run_sync(_carried_out, usual, request, limiter=threads)

        return answer

    def at_once(self, request: Request) -> bool:
        """Whether such a question takes less than to carry it to a thread, whatever happens."""
        return False

    def in_loop(self, request: Request) -> bool:
        """Whether such a question may be answered in the loop where the store is a server."""
        return True

    def threads(self, request: Request) -> CapacityLimiter | None:
        """How many of such questions have a thread at a time; None for as many as all others have."""
        threads: CapacityLimiter | None = getattr(request.app.state, "one_way_threads", None)
        return threads


def _is_of_a_provider(request: Request) -> bool:
    """Whether a provider may be asked who sends it: a slow one must keep no other waiting."""
    return bearer(request).count(".") == 2


def _carried_out(usual: Callable[[Request], Coroutine[Any, Any, Response]], request: Request) -> Response:
    """Carry a coroutine out that is never kept waiting.

    Raises:
        RuntimeError: it awaited something else, or a dependency or the endpoint is no coroutine.
    """
    mark, coroutine = _INSIDE.set(True), usual(request)
    try:
        coroutine.send(None)
    except StopIteration as done:
        answer: Response = done.value
        return answer
    finally:
        coroutine.close()
        _INSIDE.reset(mark)
    raise RuntimeError(f"{request.url.path} awaited something in its thread")

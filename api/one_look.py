"""Routes whose short questions to the database all go over one connection."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import Request, Response
from fastapi.routing import APIRoute

from api.db.looks import looks_together


class OneLookRoute(APIRoute):
    """A route that is answered in one thread, as `OneWayRoute` has it; of the two this is the inner one.

    The connection is asked for with the first question, so that who asks is waited for without one.
    """

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """What answers a request."""
        usual = super().get_route_handler()

        async def answer(request: Request) -> Response:
            with looks_together():
                return await usual(request)

        return answer

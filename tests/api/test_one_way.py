"""Routes that are answered on one way to a thread: where their parts run, and what they must not do."""

from __future__ import annotations

import threading
from typing import Annotated

import anyio
import pytest
from anyio import CapacityLimiter
from fastapi import APIRouter, Depends, FastAPI, Request
from fastapi.testclient import TestClient
from pydantic import BaseModel

from api.one_way import OneWayRoute, waited


class Body(BaseModel):
    """Some body."""

    name: str


async def where() -> int:
    return await waited(threading.get_ident)


Where = Annotated[int, Depends(where)]


def service(router: APIRouter) -> TestClient:
    app = FastAPI()
    app.router.routes.extend(router.routes)
    return TestClient(app)


def test_all_parts_of_an_answer_run_in_one_thread_that_is_not_the_loops() -> None:
    loop: list[int] = []

    class Route(OneWayRoute):
        def threads(self, request: Request) -> CapacityLimiter | None:
            loop.append(threading.get_ident())
            return None

    router = APIRouter(route_class=Route)

    @router.post("/{number}")
    async def answer(number: int, at: Where, body: Body, times: int = 1) -> dict[str, object]:
        return {"same": at == threading.get_ident(), "here": at, "told": [number, body.name, times]}

    told = service(router).post("/7?times=3", json={"name": "ada"}).json()
    assert (told["same"], told["told"]) == (True, [7, "ada", 3])
    assert loop != [told["here"]]
    assert service(router).post("/7", json={}).status_code == 422


def test_elsewhere_what_waits_goes_to_a_thread() -> None:
    assert anyio.run(where) != threading.get_ident()


def test_a_part_that_really_waits_is_refused() -> None:
    router = APIRouter(route_class=OneWayRoute)

    @router.get("/endpoint")
    async def endpoint() -> None:
        await anyio.sleep(0.001)

    @router.get("/function")
    def function() -> None:
        """FastAPI would carry it to another thread."""

    client = service(router)
    for path in ("/endpoint", "/function"):
        with pytest.raises(Exception) as raised:  # noqa: PT011 - whatever the loop's absence is called
            client.get(path)
        assert not isinstance(raised.value, AssertionError)


def test_what_takes_no_time_is_answered_in_the_loop_but_nothing_of_a_provider() -> None:
    class Route(OneWayRoute):
        def at_once(self, request: Request) -> bool:
            loop.append(threading.get_ident())
            return "slow" not in request.query_params

    loop: list[int] = []
    router = APIRouter(route_class=Route)

    @router.post("/")
    async def answer(at: Where, body: Body) -> dict[str, object]:
        return {"same": at == threading.get_ident(), "here": at, "told": body.name}

    with service(router) as client:
        told = client.post("/", json={"name": "ada"}).json()
        assert (told["same"], told["told"]) == (True, "ada")
        assert loop == [told["here"]]
        assert client.post("/?slow=1", json={"name": "ada"}).json()["here"] != told["here"]
        theirs = {"Authorization": "Bearer a.b.c"}
        assert client.post("/", json={"name": "ada"}, headers=theirs).json()["here"] != told["here"]
        assert client.post("/", json={}).status_code == 422


def test_as_many_are_answered_at_a_time_as_there_are_threads() -> None:
    one, inside, most = CapacityLimiter(1), [0], [0]
    guard = threading.Lock()

    class Route(OneWayRoute):
        def threads(self, request: Request) -> CapacityLimiter:
            return one

    router = APIRouter(route_class=Route)

    @router.get("/")
    async def answer() -> None:
        with guard:
            inside[0] += 1
            most[0] = max(most[0], inside[0])
        threading.Event().wait(0.01)
        with guard:
            inside[0] -= 1

    with service(router) as client:
        threads = [threading.Thread(target=client.get, args=("/",)) for _ in range(5)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
    assert (inside, most) == ([0], [1])


def test_who_is_known_by_a_provider_keeps_nobody_else_waiting() -> None:
    one, asked, answer = CapacityLimiter(1), threading.Event(), threading.Event()

    class Route(OneWayRoute):
        def threads(self, request: Request) -> CapacityLimiter:
            return one

    router = APIRouter(route_class=Route)

    @router.get("/")
    async def slowly(request: Request) -> str:
        if "." in request.headers["authorization"]:
            asked.set()
            answer.wait(30)
        return "answered"

    with service(router) as client:
        theirs = {"Authorization": "Bearer a.b.c"}
        thread = threading.Thread(target=client.get, args=("/",), kwargs={"headers": theirs})
        thread.start()
        try:
            assert asked.wait(30)
            assert client.get("/", headers={"Authorization": "Bearer abc"}).json() == "answered"
            assert thread.is_alive()
        finally:
            answer.set()
            thread.join(30)

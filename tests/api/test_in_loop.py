"""Questions to a PostgreSQL server that are answered in the event loop: the same answers, and it goes on."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import AbstractContextManager, AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx2 as httpx
import pytest
from fastapi import FastAPI, Response
from sqlalchemy import Engine, event

from api.db import in_loop, login_store, server
from api.db.engine import connect
from api.db.login_models import NODES as NODE_TABLE
from api.db.login_store import LoginStore
from api.db.migrate import upgrade
from api.db.together import Question
from api.services import statements, tokens
from api.services.login_reports import Report, take
from api.services.login_rules import Rules
from api.services.reconcile import reconcile
from hpctools.budget.charges_table import MonthSums
from hpctools.budget.month import Month
from hpctools.budget.tree import BudgetSite
from hpctools.login.placement import Policy
from hpctools.site import load
from tests.api.conftest import NOW, UNIVERSITY, Bills, Jobs, Service
from tests.api.databases import Postgres

NODES = ("login-1", "login-2", "login-3")
Serve = Callable[[str, Engine], AbstractContextManager[Service]]
SECONDS = 60.0


@pytest.fixture
def url(postgres: Postgres) -> Iterator[str]:
    name = f"t{uuid4().hex}"
    postgres.execute(f"CREATE DATABASE {name}")
    yield postgres.url(name)
    postgres.execute(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
def service(url: str, serve_at: Serve) -> Iterator[Service]:
    with served(url, serve_at) as service:
        yield service


@pytest.fixture
def own_service(own_postgres: Postgres, serve_at: Serve) -> Iterator[Service]:
    """Over a server that a test may stop."""
    own_postgres.execute("CREATE DATABASE hpctools")
    with served(own_postgres.url("hpctools"), serve_at) as service:
        yield service


@contextmanager
def served(url: str, serve_at: Serve) -> Iterator[Service]:
    engine = connect(url)
    upgrade(engine)
    with serve_at(url, engine) as service:
        yield service
    engine.dispose()


@asynccontextmanager
async def alive(app: FastAPI, secret: str) -> AsyncIterator[httpx.AsyncClient]:
    """The application as it is served: its loop has connections of its own."""
    transport = httpx.ASGITransport(app)
    headers = {"Authorization": f"Bearer {secret}", "Cookie": f"hpctools_token={secret}"}
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(app.router.lifespan_context(app))
        client = httpx.AsyncClient(
            transport=transport, base_url="http://test", headers=headers, timeout=SECONDS
        )
        yield await stack.enter_async_context(client)


def carried_out(work: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(asyncio.wait_for(work, 3 * SECONDS))


def with_nodes(service: Service) -> str:
    """Login nodes that have told of themselves; the secret of who may ask for anybody."""
    store, rules = LoginStore(service.engine, lambda: int(time.time()) + 3600), Rules.of(load(UNIVERSITY))
    for name in NODES:
        report = Report(name, "agent", 1, 0.0, "", 16, 0.1, 0.1, False, False, ())
        take(store, service.engine, rules, report, "test")
    return tokens.create(service.engine, "root", "root", NOW, None, ("login",))


@pytest.fixture
def where(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """For each query of a login's first question, and each look: whether it was in the loop.

    What is whole may also be of the service itself, which looks in threads for work at any time.
    """
    found: list[str] = []
    looked, opened = in_loop.here_to_look, in_loop.here

    def look(engine: Engine) -> Engine:
        found.append("loop" if in_loop.in_loop() else "thread")
        return looked(engine)

    def whole(engine: Engine) -> Engine:
        found.append("loop, whole" if in_loop.in_loop() else "thread, whole")
        return opened(engine)

    monkeypatch.setattr("api.db.looks.here_to_look", look)
    monkeypatch.setattr("api.db.login_store.here_to_look", look)
    monkeypatch.setattr("api.db.engine.here", whole)
    return found


def test_statements_and_pages_are_the_same_from_the_loop_as_from_a_thread(
    service: Service, site: BudgetSite, bills: Bills, jobs: Jobs, where: list[str]
) -> None:
    reconcile(service.engine, site, Month(2026, 11), bills, jobs, NOW)
    secret = service.token(None)
    paths = [f"/v1/accounts/{name}/statement/2026-11" for name in ("root", "nlp", "nlp-lab-a")]
    paths += ["/", "/accounts/nlp", "/accounts/cv?period=2026-10", "/accounts/nlp/trend.svg", "/v1/accounts"]
    paths += ["/v1/accounts/none/statement/2026-11", "/v1/accounts/nlp/statement/2026-13"]
    paths += [
        "/v1/accounts/nlp/statement/2026-11?format=pdf",
        "/v1/accounts/nlp/statement/2026-11?known_on=2026-11-20T00:00:00Z",
    ]
    client = service.anonymous()
    client.headers.update({"Authorization": f"Bearer {secret}", "Cookie": f"hpctools_token={secret}"})
    plain = [(answer.status_code, answer.content) for answer in map(client.get, paths)]
    assert set(where) <= {"thread", "thread, whole"}
    where.clear()

    async def ask() -> list[tuple[int, bytes]]:
        async with alive(service.app, secret) as client:
            answers = [await client.get(path) for path in paths]
        return [(answer.status_code, answer.content) for answer in answers]

    pdf = next(place for place, path in enumerate(paths) if "pdf" in path)
    told = carried_out(ask())
    assert plain[pdf][1][:5] == told[pdf][1][:5] == b"%PDF-"
    assert told[:pdf] + told[pdf + 1 :] == plain[:pdf] + plain[pdf + 1 :]
    assert {status for status, _ in told} == {200, 404, 422}
    assert Counter(where)["loop"] >= len(paths)


def test_what_must_be_worked_out_first_is_done_in_a_thread(
    service: Service, site: BudgetSite, bills: Bills, jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    reconcile(service.engine, site, Month(2026, 11), bills, jobs, NOW)
    secret, made = service.token(None), []
    loops: list[int] = []

    def note(*_: Any) -> Response:
        made.append(threading.get_ident())
        return Response(b"%PDF-")

    monkeypatch.setattr("api.routers.accounts.statement_file", note)
    summed = MonthSums

    def sums(*given: Any) -> Any:
        made.append(threading.get_ident())
        return summed(*given)

    monkeypatch.setattr(statements, "MonthSums", sums)

    async def ask() -> None:
        loops.append(threading.get_ident())
        async with alive(service.app, secret) as client:
            for path in ("statement/2026-11", "statement/2026-11?format=pdf"):
                assert (await client.get(f"/v1/accounts/nlp/{path}")).status_code == 200

    carried_out(ask())
    assert len(made) == 2
    assert not {*made} & {*loops}


def test_two_replicas_that_are_asked_at_once_hold_each_place_once(
    service: Service, serve_at: Serve, url: str, where: list[str]
) -> None:
    secret = with_nodes(service)

    async def ask() -> list[Any]:
        with serve_at(url, connect(url)) as other:
            async with alive(service.app, secret) as one, alive(other.app, secret) as two:
                for client in (one, two):
                    # The first one reads the site file, in a thread.
                    assert (await client.post("/v1/login/sessions", json={"user": "u0"})).status_code == 201
                where.clear()
                asked = [
                    (one, two)[number % 2].post("/v1/login/sessions", json={"user": f"u{number}"})
                    for number in range(60)
                ]
                return await asyncio.gather(*asked)

    answers = carried_out(ask())
    assert [answer.status_code for answer in answers] == [201] * 60
    per_node = Counter(answer.json()["node"] for answer in answers)
    # Each asks who it is; for the turn asks one for all who wait.
    assert "thread" not in where
    assert 60 < where.count("loop") < 120
    with service.engine.connect() as connection:
        held = connection.exec_driver_sql("SELECT node, count(*) FROM login_lease GROUP BY node").all()
        taken = connection.exec_driver_sql("SELECT name, taken FROM login_node").all()
    assert dict(map(tuple, held)) == per_node == dict(map(tuple, taken))
    # Each saw those before: 60 equal people over three equal nodes differ by few.
    assert max(per_node.values()) - min(per_node.values()) <= 4


def test_who_waits_for_the_turn_is_placed_together_and_evenly(
    service: Service, where: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sixty at once, in a few transactions; one of them asks twice, and is told the same."""
    secret, ways = with_nodes(service), list[int]()
    told = login_store.told_together
    # Who finds it unread is placed in a thread, by themselves.
    service.app.state.context.site_file.current()

    def counted(connection: Any, questions: Any) -> Any:
        ways.append(len(questions))
        return told(connection, questions)

    monkeypatch.setattr(login_store, "told_together", counted)
    where.clear()
    people = [f"u{number}" for number in range(59)]

    async def ask() -> list[Any]:
        async with alive(service.app, secret) as client:
            asked = [client.post("/v1/login/sessions", json={"user": user}) for user in (*people, "u7")]
            return await asyncio.gather(*asked)

    answers = carried_out(ask())
    assert {answer.status_code for answer in answers} == {201}
    assert answers[-1].json()["node"] == answers[7].json()["node"]
    sent = Counter(answer.json()["node"] for answer in answers[:-1])
    assert "thread" not in where
    # They come to the turn in any order. Of equal nodes one that is one ahead still takes its own people.
    assert max(sent.values()) - min(sent.values()) <= Policy.slack
    with service.engine.connect() as connection:
        held = dict(connection.exec_driver_sql('SELECT "user", node FROM login_lease').all())
        taken = dict(connection.exec_driver_sql("SELECT name, taken FROM login_node").all())
    assert held == {user: answer.json()["node"] for user, answer in zip(people, answers, strict=False)}
    assert taken == sent
    assert len(ways) < 2 * len(people) / 3, "two ways to the server for each turn"


def test_a_limit_is_exact_however_many_ask_at_once(service: Service, serve_at: Serve, url: str) -> None:
    secret = with_nodes(service)
    most = Rules.of(load(UNIVERSITY)).limits("nlp").per_user
    assert most is not None

    def lease(number: int) -> dict[str, Any]:
        return {
            "node": NODES[number % 3],
            "claim": f"{number}-1",
            "user": "nlp1",
            "kind": "ssh",
            "origin": "",
        }

    async def ask() -> list[Any]:
        with serve_at(url, connect(url)) as other:
            async with alive(service.app, secret) as one, alive(other.app, secret) as two:
                asked = [(one, two)[n % 2].post("/v1/login/leases", json=lease(n)) for n in range(3 * most)]
                return await asyncio.gather(*asked)

    answers = carried_out(ask())
    assert [answer.status_code for answer in answers] == [200] * len(answers)
    assert sum(answer.json()["granted"] for answer in answers) == most


def test_while_the_server_does_not_answer_the_loop_goes_on(
    own_service: Service, own_postgres: Postgres
) -> None:
    secret = with_nodes(own_service)
    postmaster = int((own_postgres.socket.parent / "data/postmaster.pid").read_text().split()[0])
    stopped: list[int] = []

    def stop() -> None:
        children = Path(f"/proc/{postmaster}/task/{postmaster}/children").read_text().split()
        for process in (postmaster, *map(int, children)):
            os.kill(process, signal.SIGSTOP)
            stopped.append(process)

    def go_on() -> None:
        while stopped:
            os.kill(stopped.pop(), signal.SIGCONT)

    async def ask() -> None:
        async with alive(own_service.app, secret) as client:
            assert (await client.post("/v1/login/sessions", json={"user": "ada"})).status_code == 201
            stop()
            waiting = [
                asyncio.ensure_future(client.post("/v1/login/sessions", json={"user": "ben"})),
                asyncio.ensure_future(client.get("/v1/accounts")),
            ]
            for _ in range(20):
                assert (await client.get("/livez")).status_code == 200
            assert not any(each.done() for each in waiting)
            go_on()
            answers = await asyncio.gather(*waiting)
            assert [answer.status_code for answer in answers] == [201, 403]

    try:
        carried_out(ask())
    finally:
        go_on()


def test_a_server_that_was_restarted_is_asked_again(
    own_service: Service, own_postgres: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = with_nodes(own_service)
    monkeypatch.setattr(server, "_RESTED_SECONDS", 0.0)

    async def ask() -> None:
        async with alive(own_service.app, secret) as client:
            at_once = [client.post("/v1/login/sessions", json={"user": f"u{n}"}) for n in range(20)]
            assert {answer.status_code for answer in await asyncio.gather(*at_once)} == {201}
            own_postgres.stop()
            answer = await client.post("/v1/login/sessions", json={"user": "ada"})
            assert (answer.status_code, answer.headers["content-type"]) == (503, "application/problem+json")
            own_postgres.start()
            at_once = [client.post("/v1/login/sessions", json={"user": f"w{n}"}) for n in range(20)]
            assert {answer.status_code for answer in await asyncio.gather(*at_once)} == {201}

    carried_out(ask())


def test_a_nodes_report_goes_to_a_thread(service: Service, where: list[str]) -> None:
    secret = with_nodes(service)
    told = {"agent": "0123456789abcdef", "sequence": 2, "sample_age": 0.5, "address": "", "cpus": 16}
    body = {**told, "cpu": 0.25, "memory": 0.5, "sessions": []}

    async def ask() -> None:
        async with alive(service.app, secret) as client:
            await client.post("/v1/login/sessions", json={"user": "ada"})
            where.clear()
            assert (await client.put("/v1/login/nodes/login-1/report", json=body)).status_code == 200

    carried_out(ask())
    assert "thread" in where
    assert "loop" not in where


def test_while_a_slip_in_the_site_file_is_read_places_are_found_in_the_loop(
    service: Service, where: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each question read it, in one of the two threads that reports need as well."""
    secret, path, go = with_nodes(service), tmp_path / "site.yaml", threading.Event()
    site_file = service.app.state.context.site_file
    site_file.current()
    path.write_text("nonsense: [")

    def load_later(path: Path) -> Any:
        assert go.wait(SECONDS)
        return load(path)

    monkeypatch.setattr(site_file, "_path", path)
    monkeypatch.setattr("hpctools.site.load", load_later)

    async def ask() -> list[int]:
        async with alive(service.app, secret) as client:
            where.clear()
            answers = [
                await client.post("/v1/login/sessions", json={"user": f"u{each}"}) for each in range(4)
            ]
            return [answer.status_code for answer in answers]

    try:
        assert carried_out(ask()) == [201] * 4
    finally:
        go.set()
    assert "loop" in where
    assert "thread" not in where


def test_who_does_not_get_the_turn_is_told_and_nothing_is_held(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = with_nodes(service)
    monkeypatch.setitem(login_store._TURN_OF, "ms", "100")
    monkeypatch.setattr(login_store, "_WAIT_MS", 300)

    async def ask() -> None:
        async with alive(service.app, secret) as client:
            with service.engine.connect() as other:
                other.exec_driver_sql(f"SELECT pg_advisory_xact_lock({login_store._LOCK})")
                asked = [client.post("/v1/login/sessions", json={"user": f"u{n}"}) for n in range(8)]
                answers = await asyncio.gather(*asked)
                assert {answer.status_code for answer in answers} == {503}
                other.rollback()
            assert (await client.post("/v1/login/sessions", json={"user": "ada"})).status_code == 201

    carried_out(ask())
    with service.engine.connect() as connection:
        held = connection.exec_driver_sql('SELECT "user" FROM login_lease').scalars().all()
    assert held == ["ada"]


def test_what_fails_in_the_middle_or_is_given_up_changes_nothing(service: Service) -> None:
    with_nodes(service)
    rules, store = Rules.of(load(UNIVERSITY)), LoginStore(service.engine, lambda: int(time.time()))
    loop = in_loop.InLoop(service.engine)
    take_one: Question = (NODE_TABLE.update().values(taken=NODE_TABLE.c.taken + 1), {})
    begun, go = asyncio.Event(), asyncio.Event()

    def broken() -> None:
        with store.writing() as moment:
            moment.execute(*take_one)
            raise KeyError(rules.per_user)

    def given_up() -> None:
        with store.writing() as moment:
            moment.execute(*take_one)
            begun.set()
            in_loop.awaited(go.wait())

    def whole() -> int:
        with store.writing() as moment:
            ((taken,),) = moment.rows(NODE_TABLE.select().with_only_columns(NODE_TABLE.c.taken).limit(1))
            return int(taken)

    async def ask() -> None:
        with pytest.raises(KeyError):
            await loop.carried_out(broken)
        task = asyncio.ensure_future(loop.carried_out(given_up))
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await loop.carried_out(whole) == 0
        await loop.close()

    carried_out(ask())


def test_a_statement_with_values_of_its_own_is_refused_before_it_is_asked(service: Service) -> None:
    store, loop = LoginStore(service.engine, lambda: int(time.time())), in_loop.InLoop(service.engine)
    wrong: Question = (NODE_TABLE.select().where(NODE_TABLE.c.name == "login-1"), {})

    def ask() -> None:
        with store.writing(wrong):
            pass

    async def asked() -> None:
        with pytest.raises(ValueError, match="name_1"):
            await loop.carried_out(ask)
        await loop.close()

    carried_out(asked())


def test_one_question_asks_for_token_and_state_together(service: Service) -> None:
    asked: list[str] = []

    async def ask() -> None:
        secret = service.token(None)
        async with alive(service.app, secret) as client:
            await client.get("/v1/accounts")
            for engine in (service.app.state.in_loop._looks, service.app.state.in_loop._whole):
                event.listen(
                    engine.sync_engine, "before_cursor_execute", lambda *given: asked.append(given[2])
                )
            assert (await client.get("/v1/accounts")).status_code == 200

    carried_out(ask())
    assert len(asked) == 1, asked

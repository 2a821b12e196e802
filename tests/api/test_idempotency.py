from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Event, Thread
from typing import Any

import pytest
from fastapi import Response

from api.db.engine import connect, writing
from api.idempotency import IGNORING
from api.services import answers

WANTED = {"month": "2026-11"}


def post(client: Any, key: str | None = "k", path: str = "/v1/reconciliations", **more: Any) -> Any:
    headers = {"Idempotency-Key": key} if key is not None else {}
    return client.post(path, **{"json": WANTED, **more}, headers=headers)


def count(service: Any) -> int:
    return len(service.client(None).get("/v1/reconciliations").json()["reconciliations"])


def finish(service: Any) -> None:
    """End what is queued: another request for the month would be a new run."""
    from api.services import runs
    from api.services.reconcile import Outcome

    with writing(service.engine) as session:
        for run in runs.waiting(session):
            runs.done(session, run, Outcome(run.month), 1)


def test_a_request_that_is_sent_again_is_answered_again_and_not_carried_out(service: Any) -> None:
    client = service.client(None)
    first = post(client)
    finish(service)
    again = post(client)
    assert (first.status_code, again.status_code, again.content) == (202, 202, first.content)
    assert again.headers["Location"] == first.headers["Location"]
    assert again.headers["Content-Type"] == "application/json"
    assert again.headers["Idempotent-Replayed"] == "true"
    assert "Idempotent-Replayed" not in first.headers
    assert count(service) == 1
    assert post(client, key="other").json()["id"] != first.json()["id"]
    assert count(service) == 2


def test_without_a_key_each_request_counts(sqlite_service: Any) -> None:
    client = sqlite_service.client(None)
    ids = []
    for _ in range(2):
        ids.append(post(client, key=None).json()["id"])
        finish(sqlite_service)
    assert ids[0] != ids[1]


@pytest.mark.parametrize(
    "more",
    [
        {"json": {"month": "2026-10"}},
        {"path": "/v1/reconciliations?x=1"},
        {"content": b'{"month": "2026-11" }'},
    ],
)
def test_a_key_is_for_one_request(sqlite_service: Any, more: dict[str, Any]) -> None:
    client = sqlite_service.client(None)
    assert post(client).status_code == 202
    if "content" in more:
        more["json"] = None
    answer = post(client, **more)
    assert (answer.status_code, answer.headers["content-type"]) == (422, "application/problem+json")
    assert "was used for another request" in answer.json()["detail"]


def test_keys_of_one_principal_are_not_those_of_another(sqlite_service: Any) -> None:
    first = post(sqlite_service.client(None))
    finish(sqlite_service)
    assert post(sqlite_service.client(None)).json()["id"] != first.json()["id"]
    assert post(sqlite_service.anonymous()).status_code == 401


def test_what_was_refused_may_be_tried_again(sqlite_service: Any) -> None:
    client = sqlite_service.client(None)
    for wrong in ({"month": "2199-01"}, {"month": "x"}, {}):
        assert post(client, json=wrong).status_code == 422
    assert post(client).status_code == 202


@pytest.mark.parametrize("key", ["", "x" * 256, "é", "a\tb"])
def test_what_cannot_be_a_key(sqlite_service: Any, key: str) -> None:
    answer = sqlite_service.client(None).post(
        "/v1/reconciliations", json=WANTED, headers={"Idempotency-Key": key.encode()}
    )
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["field"] == "header.idempotency-key"


def test_after_a_day_a_key_is_forgotten(sqlite_service: Any) -> None:
    context = sqlite_service.app.state.context
    asked = answers.Asked("x", "key", "fingerprint")
    now = context.clock()
    assert answers.begin(context.engine, asked, now) == "new"
    answers.finish(context.engine, asked, answers.Answer(201, {"location": "/x"}, b"\x00done"))
    kept = answers.begin(context.engine, asked, now + answers.KEPT_SECONDS - 1)
    assert kept == answers.Answer(201, {"location": "/x"}, b"\x00done")
    assert answers.begin(context.engine, asked, now + answers.KEPT_SECONDS) == "new"


def test_two_at_once_are_one(service: Any) -> None:
    inside, go, calls = Event(), Event(), []

    def slow(response: Response) -> dict[str, int]:
        calls.append(1)
        inside.set()
        assert go.wait(60)
        return {"call": len(calls)}

    service.app.post("/v1/slow", status_code=201)(slow)
    client = service.client(None)
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(post, client, "k", "/v1/slow")
        try:
            assert inside.wait(60)
            second = post(client, "k", "/v1/slow")
        finally:
            go.set()
        assert first.result(60).status_code == 201
    assert (second.status_code, second.headers["Retry-After"]) == (409, "5")
    assert post(client, "k", "/v1/slow").json() == {"call": 1}


def test_a_bug_gives_the_key_back(sqlite_service: Any) -> None:
    calls = []

    def broken() -> dict[str, int]:
        calls.append(1)
        if len(calls) == 1:
            raise RuntimeError("once")
        return {"call": len(calls)}

    sqlite_service.app.post("/v1/broken")(broken)
    client = sqlite_service.client(None)
    assert [post(client, "k", "/v1/broken").status_code for _ in range(3)] == [500, 200, 200]
    assert len(calls) == 2


def test_a_secret_is_kept_nowhere(sqlite_service: Any) -> None:
    client = sqlite_service.client(None)
    wanted = {"name": "guest", "account": "nlp"}
    first = post(client, path="/v1/tokens", json=wanted)
    again = post(client, path="/v1/tokens", json=wanted)
    assert (first.status_code, again.status_code) == (201, 409)
    secret = first.json()["secret"]
    with sqlite_service.engine.connect() as connection:
        kept = connection.exec_driver_sql("SELECT * FROM idempotent_answer").all()
    assert secret not in str(kept)


@pytest.mark.parametrize("path", sorted(IGNORING))
def test_what_keeps_no_answer_takes_no_key(sqlite_service: Any, path: str) -> None:
    operation = sqlite_service.app.openapi()["paths"][path]["post"]
    assert "Idempotency-Key" not in [each["name"] for each in operation.get("parameters", ())]


def test_who_wants_to_log_in_never_waits_for_the_books(service: Any, database_url: str) -> None:
    agent = service.client("root", "login")
    lease = {"node": "login-1", "claim": "7-7", "user": "nlp1", "kind": "ssh", "origin": ""}
    asked = (("/v1/login/leases", lease, 200), ("/v1/login/sessions", {"user": "nlp1"}, 503))
    books = connect(database_url)
    answered: list[int] = []

    def ask_all() -> None:
        # As the nodes' agents and hp-login do, with a key.
        answered.extend(post(agent, "k", path, json=body).status_code for path, body, _ in asked)

    ask = Thread(target=ask_all)
    with writing(books):
        ask.start()
        ask.join(30)
        assert answered == [status for *_, status in asked]
    ask.join(30)
    books.dispose()

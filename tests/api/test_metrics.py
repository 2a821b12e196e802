from __future__ import annotations

from typing import Any

import pytest
from fastapi.testclient import TestClient
from prometheus_client.parser import text_string_to_metric_families

from api.app import create_app
from api.db.engine import writing
from api.services import runs
from api.services.reconcile import Outcome
from api.settings import Settings
from tests.api.routers.test_login import report, session


def figures(client: Any) -> dict[tuple[str, str], float]:
    answer = client.get("/metrics")
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/plain")
    return {
        (sample.name, ",".join(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(answer.text)
        for sample in family.samples
    }


def test_the_state_of_the_books(november_service: Any, november: Any, now: int) -> None:
    client = november_service.client("root")
    assert ("hpctools_api_reconcile_age_seconds", "") not in figures(client)
    with writing(november_service.engine) as session:
        run = runs.ask(session, november, "schedule", now - 100)
        runs.begun(session, run, now - 90)
        runs.done(session, run, Outcome(november), now - 50)
        runs.ask(session, november, "schedule", now)
    found = figures(client)
    assert found["hpctools_api_database_up", ""] == 1
    assert found["hpctools_api_reconcile_age_seconds", ""] == 50
    assert found["hpctools_api_reconcile_seconds", ""] == 40
    assert found["hpctools_api_reconciliations", "done"] == 1
    assert found["hpctools_api_reconciliations", "queued"] == 1
    assert found["hpctools_api_coverage_ratio", ""] == 1
    assert found["hpctools_api_bill_age_seconds", ""] == 0


def test_login_nodes_their_sessions_and_who_was_refused(sqlite_service: Any) -> None:
    agent, admin = sqlite_service.client("root", "login"), sqlite_service.client(None)
    empty = figures(admin)
    assert [empty["hpctools_api_login_nodes", state] for state in ("up", "full", "draining", "silent")] == [
        0
    ] * 4
    report(agent, 1, session("1-1"), session("2-1"), session("3-1") | {"kind": "ssm"})
    report(agent, 1, session("9-1") | {"kind": "tmux"}, node="login-2")
    admin.put("/v1/login/nodes/login-2/drain", json={"draining": True})
    for claim in ("4-1", "5-1"):
        agent.post("/v1/login/leases", json={"node": "login-1", "claim": claim, "user": "nlp1"})
    for user in ("nlp1", "cv1"):
        admin.post("/v1/login/sessions", json={"user": user})
    found = figures(admin).items()
    assert {
        key: value for key, value in found if value and "login_" in key[0] and "_created" not in key[0]
    } == {
        ("hpctools_api_login_nodes", "up"): 1,
        ("hpctools_api_login_nodes", "draining"): 1,
        ("hpctools_api_login_leases", "ssh,login-1"): 3,
        ("hpctools_api_login_leases", "ssm,login-1"): 1,
        ("hpctools_api_login_leases", "placed,login-1"): 1,
        ("hpctools_api_login_leases", "tmux,login-2"): 1,
        ("hpctools_api_login_answers_total", "granted,lease"): 1,
        ("hpctools_api_login_answers_total", "over-person,lease"): 1,
        ("hpctools_api_login_answers_total", "granted,place"): 1,
        ("hpctools_api_login_answers_total", "over-person,place"): 1,
    }


def test_a_site_file_that_is_broken_hides_login_nodes_only(sqlite_service: Any, tmp_path: Any) -> None:
    url = sqlite_service.engine.url.render_as_string()
    settings = Settings(database_url=url, site=tmp_path / "none.yaml", metrics="loopback", reconcile_every=0)
    app = create_app(settings)
    found = figures(TestClient(app, client=("127.0.0.1", 1)))
    assert found["hpctools_api_database_up", ""] == 1
    assert not any(name == "hpctools_api_login_nodes" for name, _ in found)
    app.state.context.engine.dispose()


@pytest.mark.parametrize(("account", "status"), [(None, 200), ("root", 200), ("nlp", 403)])
def test_a_token_reads_them_also_while_the_site_file_is_broken(
    sqlite_service: Any, tmp_path: Any, account: str | None, status: int
) -> None:
    url = sqlite_service.engine.url.render_as_string()
    app = create_app(Settings(database_url=url, site=tmp_path / "none.yaml", reconcile_every=0))
    answer = TestClient(app).get("/metrics", headers=sqlite_service.client(account).headers)
    assert answer.status_code == status
    app.state.context.engine.dispose()


def test_requests_are_counted_by_template_and_by_no_word_of_a_client(november_service: Any) -> None:
    client = november_service.client("root")
    for name in ("nlp", "cv", "nothing"):
        client.get(f"/v1/accounts/{name}/statement/2026-11")
    for path in ("/x1", "/x2"):
        client.get(path)
    client.request("NONSENSE", "/v1/accounts")
    series = {labels for name, labels in figures(client) if name == "hpctools_api_request_seconds_count"}
    assert series == {
        "GET,/v1/accounts/{name}/statement/{month},200",
        "GET,/v1/accounts/{name}/statement/{month},404",
        "GET,,404",
        ",/v1/accounts,405",
    }


@pytest.mark.parametrize(
    ("client", "headers", "status"),
    [
        ("127.0.0.1", {}, 200),
        ("::1", {}, 200),
        ("10.0.0.1", {}, 401),
        ("127.0.0.1", {"X-Forwarded-For": "10.0.0.1"}, 401),
        ("127.0.0.1", {"Forwarded": "for=10.0.0.1"}, 401),
    ],
)
def test_from_this_machine_only_where_that_is_set_and_never_through_a_proxy(
    sqlite_service: Any, site_path: Any, client: str, headers: dict[str, str], status: int
) -> None:
    url = sqlite_service.engine.url.render_as_string()
    app = create_app(Settings(database_url=url, site=site_path, metrics="loopback", reconcile_every=0))
    assert TestClient(app, client=(client, 1)).get("/metrics", headers=headers).status_code == status
    app.state.context.engine.dispose()
    closed = TestClient(sqlite_service.app, client=(client, 1))
    assert closed.get("/metrics", headers=headers).status_code == 401


def test_a_database_that_is_away_is_told(tmp_path: Any, site_path: Any) -> None:
    url = f"postgresql://nobody@/none?host={tmp_path}"
    app = create_app(Settings(database_url=url, site=site_path, metrics="loopback", reconcile_every=0))
    found = figures(TestClient(app, client=("127.0.0.1", 1)))
    assert found["hpctools_api_database_up", ""] == 0
    app.state.context.engine.dispose()

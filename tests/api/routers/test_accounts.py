from __future__ import annotations

import re
from decimal import Decimal
from typing import Any

from sqlalchemy import event

from hpctools.budget.money import total

TABLES = ("api_token", "budget_version", "attribution_run")


def test_a_departments_statement(november_service: Any) -> None:
    statement = november_service.client("nlp").get("/v1/accounts/nlp/statement/2026-11").json()
    assert statement["account"] == {
        "name": "nlp",
        "title": "Natural Language Processing",
        "level": "department",
        "parent": "root",
        "supervisor": "nlp-head",
        "budget": {
            "amount": "25000.00",
            "currency": "USD",
            "period": "monthly",
            "alert_at": [50, 75, 90, 100],
        },
    }
    for key, value in {
        "month": "2026-11",
        "currency": "USD",
        "status": "estimated",
        "corrected": False,
        "as_of": "2026-11-21T12:00:00Z",
        "billed_through": "2026-11-21",
        "coverage_percent": "100.0",
        "budget": "25000",
        "carried": "0",
        "approved": "0",
        "unbilled": "0",
    }.items():
        assert statement[key] == value
    assert len(statement["days"]) == 21
    spent = Decimal(statement["spent"])
    assert spent > 1000
    kinds = ("spent_on_jobs", "spent_on_idle", "spent_on_shared")
    assert total(Decimal(statement[kind]) for kind in kinds) == spent
    assert total(Decimal(part["amount"]) for part in statement["parts"]) == spent
    assert total([Decimal(statement["left"]), spent]) == 25000
    assert [part["name"] for part in statement["parts"]] == ["nlp-lab-a", "nlp-lab-b", "nlp"]


def test_a_statement_that_nobody_has_asked_for_is_one_short_question(november_service: Any) -> None:
    client, engine = november_service.client("nlp"), november_service.app.state.context.engine
    client.get("/v1/accounts/nlp/statement/2026-11")
    asked: list[str] = []
    taken: list[object] = []
    event.listen(engine, "before_cursor_execute", lambda *given: asked.append(given[2]))
    event.listen(engine, "checkout", lambda *given: taken.append(given))
    assert client.get("/v1/accounts/nlp-lab-b/statement/2026-11").status_code == 200
    # Who asks, along with the state of the store, from which the rest follows; nor is a transaction begun.
    assert (len(asked), len(taken)) == (1, 1)
    assert all(table in asked[0] for table in TABLES)


def test_who_may_not_ask_learns_nothing_of_what_they_asked(november_service: Any) -> None:
    wrong = "/v1/accounts/nlp/statement/2026-11?known_on=yesterday&format=sound"
    assert november_service.client("nlp").get(wrong).status_code == 422
    for others in ("cv", "nothing"):
        assert november_service.client("nlp").get(wrong.replace("nlp", others)).status_code == 404
    stranger = november_service.client("nlp")
    stranger.headers["Authorization"] = "Bearer nobody"
    assert stranger.get(wrong).status_code == 401


def test_money_is_text_and_never_a_float(november_service: Any) -> None:
    body = november_service.client(None).get("/v1/accounts/root/statement/2026-11").text
    assert not re.search(r":\s*-?\d+\.\d", body)
    assert not re.search(r"[eE][+-]\d", body)


def test_a_month_without_data_is_an_empty_statement_not_an_error(november_service: Any) -> None:
    statement = november_service.client("cv").get("/v1/accounts/cv/statement/2025-01").json()
    assert (statement["status"], statement["spent"], statement["days"]) == ("none", "0", [])
    assert [part["name"] for part in statement["parts"]] == ["cv-lab-a"]


def test_both_databases_answer_the_same(
    service: Any, site: Any, bills: Any, jobs: Any, november: Any, now: int
) -> None:
    from api.services.reconcile import reconcile

    reconcile(service.engine, site, november, bills, jobs, now)
    statement = service.client(None).get("/v1/accounts/root/statement/2026-11").json()
    assert Decimal(statement["spent"]) == total(row.amount for row in bills.rows(november))
    assert total(Decimal(day["amount"]) for day in statement["days"]) == Decimal(statement["spent"])


def test_health(service: Any) -> None:
    answer = service.anonymous().get("/healthz")
    assert (answer.status_code, answer.json()) == (200, {"status": "ok"})


def test_health_without_tables(service: Any) -> None:
    from api.db.migrate import downgrade

    downgrade(service.engine)
    assert service.anonymous().get("/healthz").status_code == 503


def test_a_parameter_that_is_not_there_is_refused(november_service: Any) -> None:
    answer = november_service.client(None).get("/v1/accounts/nlp/statement/2026-11?known=1&format=csv&x=")
    assert answer.status_code == 422
    assert answer.json()["errors"] == [
        {"field": "known", "message": "there is no such parameter"},
        {"field": "x", "message": "there is no such parameter"},
    ]

"""Budgets in the browser: seen by those who may, changed by forms, never over somebody else's change."""

from __future__ import annotations

import re
from typing import Any

import pytest
from sqlalchemy import select

from api.db.access_models import AuditEntry
from api.db.engine import reading

PATH = "/accounts/nlp/budget"


def words(html: str) -> str:
    body = html.split("</header>")[1]
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", body)).replace("\xa0", " ")


def fields_of(html: str, action: str) -> dict[str, str]:
    """What a browser would send of a form as it stands."""
    form = html.split(f'action="{action}"')[1].split("</form>")[0]
    found = {}
    for tag in re.findall(r"<input[^>]*>", form):
        value = re.search(r' value="([^"]*)"', tag)
        name = re.search(r' name="([^"]*)"', tag)
        if name:
            found[name[1]] = value[1] if value else ""
    for name, options in re.findall(r'<select name="(\w+)">(.*?)</select>', form, re.S):
        chosen = re.search(r'value="([^"]*)" selected', options)
        found[name] = chosen[1] if chosen else ""
    return found


def send(browser: Any, action: str, path: str = PATH, **change: str) -> Any:
    """Fill a form in and send it."""
    fields = fields_of(browser.get(path).text, f"{path}/{action}")
    return browser.post(f"{path}/{action}", data=fields | {"why": "test"} | change)


def audited(service: Any) -> list[tuple[str, str]]:
    with reading(service.engine) as session:
        rows = session.scalars(
            select(AuditEntry).where(AuditEntry.action.like("budget.%")).order_by(AuditEntry.id)
        )
        return [(row.action, row.subject) for row in rows]


def test_a_head_sees_what_is_set_and_where_it_stands(november_service: Any) -> None:
    page = words(november_service.browser("nlp").get(PATH).text)
    assert "May be spent $25,000.00 the budget Spent $20,305.57" in page
    assert "Amount $25,000.00 a month" in page
    assert "Carried into the next period what is left, at most $5,000.00" in page
    assert "Alerts at 50 %, 75 %, 90 %, 100 %" in page
    assert "At 100 % those who are told of alerts hear of it Set by" in page
    assert "Set by the site file." in page
    # A token that reads only is offered nothing to change.
    assert "<form" not in november_service.browser("nlp").get(PATH).text.split("</header>")[1]


def test_a_head_approves_more(november_service: Any) -> None:
    browser = november_service.browser("nlp", "write")
    answer = send(browser, "approve", amount="2000.00", until="2026-12-01", why="paper deadline")
    assert (answer.status_code, answer.headers["location"]) == (303, f"{PATH}?done=approve")
    page = words(browser.get(answer.headers["location"]).text)
    assert "It is approved." in page
    assert "May be spent $27,000.00 the budget, approved $2,000.00" in page
    assert "$2,000.00 21 November 2026 1 December 2026 t-" in page
    assert "paper deadline" in page
    assert audited(november_service) == [("budget.approve", "nlp")]


def test_a_head_splits_among_labs_and_not_more_than_there_is(november_service: Any) -> None:
    browser = november_service.browser("nlp", "write")
    parts = {"part.nlp-lab-a": "15000.00", "part.nlp-lab-b": "10000.00"}
    assert send(browser, "split", **parts).status_code == 303
    assert "$15,000.00 a month" in words(browser.get(PATH).text)
    assert audited(november_service) == [("budget.set", "nlp-lab-a"), ("budget.set", "nlp-lab-b")]
    refused = send(browser, "split", **{"part.nlp-lab-a": "15000.01"})
    assert refused.status_code == 422
    assert "the parts of the budget of nlp add up to 25000.01 USD, and it has 25000.00" in words(refused.text)
    # What was written is still there.
    assert fields_of(refused.text, f"{PATH}/split")["part.nlp-lab-a"] == "15000.01"
    strange = send(browser, "split", **{"part.cv-lab-a": "1.00"})
    assert "cv-lab-a is not directly below nlp" in words(strange.text)
    assert len(audited(november_service)) == 2


def test_a_head_cannot_raise_the_own_budget(november_service: Any) -> None:
    browser = november_service.browser("nlp", "write")
    assert "/budget/change" not in browser.get(PATH).text
    lab = send(browser, "change", "/accounts/nlp-lab-a/budget", amount="5000.00")
    assert lab.status_code == 303


def test_an_administrator_changes_what_is_in_the_form_and_nothing_else(november_service: Any) -> None:
    browser = november_service.browser(None)
    before = november_service.client(None).get("/v1/accounts/nlp/budget").json()["versions"][-1]["budget"]
    assert send(browser, "change").status_code == 303
    change = {"amount": "30000.50", "alert_at": "60, 80 %", "policy": "hold", "at": "110", "grace": "48"}
    assert send(browser, "change", **change, mail="head@uni.example, dean@uni.example").status_code == 303
    first, second = november_service.client(None).get("/v1/accounts/nlp/budget").json()["versions"][-2:]
    assert first["budget"] == before
    assert second["budget"] == before | {
        "amount": "30000.50",
        "alert_at": [60, 80],
        "enforce": {"policy": "hold", "at": 110, "grace": 172800, "tier": None},
        "notify": {**before["notify"], "mail": ["head@uni.example", "dean@uni.example"]},
    }
    assert (second["effective"], second["why"]) == ("2026-11-01", "test")


def test_a_grace_of_half_an_hour_stays_where_only_the_amount_is_changed(november_service: Any) -> None:
    """The form shows whole hours, so 0 of this one, and sends them back."""
    client, browser = november_service.client(None), november_service.browser(None)
    before = client.get("/v1/accounts/nlp/budget").json()["versions"][-1]["budget"]
    half = before | {"enforce": before["enforce"] | {"grace": 1800}}
    assert client.put("/v1/accounts/nlp/budget", json={"budget": half, "why": "test"}).is_success
    assert send(browser, "change", amount="30000.00").status_code == 303
    after = client.get("/v1/accounts/nlp/budget").json()["versions"][-1]["budget"]
    assert after == half | {"amount": "30000.00"}
    assert send(browser, "change", grace="2").status_code == 303
    assert client.get("/v1/accounts/nlp/budget").json()["versions"][-1]["budget"]["enforce"]["grace"] == 7200


@pytest.mark.parametrize(
    ("action", "change", "said"),
    [
        ("approve", {"amount": "0.00", "until": "2026-12-01"}, "an approval of nothing"),
        ("approve", {"amount": "1.00", "until": "2026-11-21"}, "2026-11-21 is over"),
        (
            "approve",
            {"amount": "1,000", "until": "2026-12-01"},
            "amount: '1,000' is no amount; write it as 1500.00",
        ),
        ("approve", {"amount": "1.00", "until": "soon"}, "until: Value error, a day such as"),
        ("approve", {"amount": "1.00", "until": "2026-12-01", "why": ""}, "why: String should have at least"),
        ("split", {"why": "nothing named"}, "parts: Dictionary should have at least 1 item"),
        ("change", {"amount": "1e9"}, "budget.amount: '1e9' is no amount"),
        ("change", {"at": "ten"}, "'ten' is not a whole number; write digits only"),
        ("change", {"policy": "lower-tier", "tier": ""}, "tier"),
        ("change", {"policy": "lower-tier", "tier": "critical"}, "'critical' is no lower tier of nlp"),
        ("change", {"policy": "kill"}, "budget.enforce.policy"),
        ("change", {"mail": "nobody"}, "notify.mail.0"),
    ],
)
def test_what_cannot_be_is_told_in_the_form(
    november_service: Any, action: str, change: dict[str, str], said: str
) -> None:
    browser = november_service.browser(None)
    answer = send(browser, action, **change)
    assert answer.status_code == 422
    assert said in words(answer.text).replace("&#39;", "'")
    assert 'role="alert"' in answer.text
    assert audited(november_service) == []


@pytest.mark.parametrize("action", ["approve", "split", "change"])
def test_nobody_overwrites_what_they_have_not_seen(november_service: Any, action: str) -> None:
    first, second = november_service.browser(None), november_service.browser(None)
    filled = {"amount": "100.00", "until": "2026-12-01", "why": "mine", "part.nlp-lab-a": "100.00"}
    mine = fields_of(first.get(PATH).text, f"{PATH}/{action}") | filled
    assert send(second, "change", amount="26000.00").status_code == 303
    answer = first.post(f"{PATH}/{action}", data=mine)
    # A split changes the budgets below; that of the account itself is what it is measured by.
    assert answer.status_code == 422
    assert "somebody else changed the budget of nlp meanwhile" in words(answer.text)
    # The page that says so shows what it is now: the same once more is a decision.
    again = fields_of(answer.text, f"{PATH}/{action}") | {"amount": "100.00", "until": "2026-12-01"}
    if action == "approve":
        assert first.post(f"{PATH}/{action}", data=again).status_code == 303


def test_a_form_whose_parts_are_others_by_now_splits_nothing(november_service: Any) -> None:
    """The labs' budgets are what a split is about, whatever the account's own is."""
    first, second = november_service.browser("nlp", "write"), november_service.browser("nlp", "write")
    mine = fields_of(first.get(PATH).text, f"{PATH}/split") | {"part.nlp-lab-a": "100.00", "why": "mine"}
    assert send(second, "split", **{"part.nlp-lab-b": "200.00"}).status_code == 303
    answer = first.post(f"{PATH}/split", data=mine)
    assert answer.status_code == 422
    assert "somebody else changed the budget of nlp meanwhile" in words(answer.text)
    # The page shows the others' parts, and what was filled in; sent again, it is a decision.
    again = fields_of(answer.text, f"{PATH}/split") | {"part.nlp-lab-b": "200.00", "why": "mine"}
    assert again["part.nlp-lab-a"] == "100.00"
    assert first.post(f"{PATH}/split", data=again).status_code == 303


def test_a_form_that_is_sent_twice_is_taken_once(november_service: Any) -> None:
    browser = november_service.browser("nlp", "write")
    fields = fields_of(browser.get(PATH).text, f"{PATH}/approve")
    fields |= {"amount": "10.00", "until": "2026-12-01", "why": "twice"}
    sent = [browser.post(f"{PATH}/approve", data=fields).status_code for _ in range(2)]
    assert (sent, audited(november_service)) == ([303, 422], [("budget.approve", "nlp")])


def test_the_whole_site_has_departments_and_no_budget_of_its_own(november_service: Any) -> None:
    html = november_service.browser(None).get("/accounts/root/budget").text
    assert "The site&#39;s budget is that of its departments." in html or "The site's budget is" in html
    assert "$18,000.00 a month" in words(html)
    assert "<form" not in html.split("</header>")[1]


def test_names_and_reasons_are_escaped(november_service: Any) -> None:
    browser = november_service.browser("nlp", "write")
    send(browser, "approve", amount="1.00", until="2026-12-01", why="<script>alert(1)</script>")
    html = browser.get(PATH).text
    assert "&lt;script&gt;alert(1)" in html
    assert "<script>alert" not in html

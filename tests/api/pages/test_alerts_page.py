"""The page of alerts: what was told, whether it arrived, what comes next."""

from __future__ import annotations

import csv
import re
from io import StringIO
from typing import Any

import pytest

from api.services.alerts import raise_alerts
from api.services.delivery import DeliveryError, Message, deliver


def words(html: str) -> str:
    """A page as it is read."""
    body = html.split("</header>")[1]
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", body)).replace("\xa0", " ")


class Taken:
    def send(self, message: Message) -> None:
        pass


class Refused:
    def send(self, message: Message) -> None:
        raise DeliveryError("https://chat.example/hook answers 500")


@pytest.fixture
def told(overspent: Any, now: int) -> Any:
    """Mail arrived, the webhook did not."""
    raise_alerts(overspent.engine, overspent.site, now)
    deliver(overspent.engine, {"mail": Taken(), "webhook": Refused()}, now)
    return overspent


def test_what_comes_next_before_anything_was_told(november_service: Any) -> None:
    page = words(november_service.browser("nlp").get("/alerts").text)
    # Nobody looked yet: 20,305.57 of 25,000 are spent.
    assert (
        "Natural Language Processing nlp 81.2 % "
        "none at the next look: 50 %, 75 %, expected 100 % 90 % $2,194.43" in page
    ), page
    assert "No alert was due yet." in page


def test_what_was_told_and_whether_it_arrived(told: Any) -> None:
    page = words(told.browser("nlp").get("/alerts").text)
    assert "Natural Language Processing nlp 406.1 % 50 %, policy at 100 % expected 1000 % $20,178.11" in page
    assert (
        "Natural Language Processing: 50 % spent, period from 1 November 2026 21 November 2026 12:00 UTC"
        in page
    )
    assert "$20,305.57 of $5,000.00 not arrived" in page
    assert "mail head@uni.example: arrived 21 November 2026, 12:00 UTC" in page
    assert (
        "webhook https://chat.example/hook: tried once, again at 21 November 2026, 12:01 UTC "
        "(https://chat.example/hook answers 500)" in page
    )


def test_a_head_sees_the_own_alerts_only(told: Any) -> None:
    assert "Natural Language" in words(told.browser(None).get("/alerts").text)
    other = words(told.browser("cv").get("/alerts").text)
    assert "Natural Language" not in other
    assert "No alert was due yet." in other
    assert told.browser("cv").get("/alerts?format=csv").text.count("\n") == 1


def test_the_same_as_csv(told: Any) -> None:
    answer = told.browser("nlp").get("/alerts?format=csv")
    assert answer.headers["content-disposition"] == 'attachment; filename="alerts.csv"'
    rows = list(csv.DictReader(StringIO(answer.text, newline="")))
    assert [(row["kind"], row["threshold_percent"], row["channel"], row["state"]) for row in rows] == [
        ("enforce", "100", "mail", "sent"),
        ("enforce", "100", "webhook", "failed"),
        ("spent", "50", "mail", "sent"),
        ("spent", "50", "webhook", "failed"),
    ]
    assert {row["allowed"] for row in rows} == {"5000"}
    assert {row["at"] for row in rows} == {"2026-11-21T12:00:00+00:00"}


def test_older_alerts_are_on_the_next_page(told: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("api.routers.page_alerts._PAGE", 1)
    browser, path, found = told.browser("nlp"), "/alerts", []
    while path:
        html = browser.get(path).text
        found += re.findall(r"Natural Language Processing: (\d+) %", html)
        older = re.search(r'href="(/alerts\?before=\d+)"', html)
        path = older[1] if older else ""
    assert found == ["100", "50"]


@pytest.mark.parametrize("query", ["before=0", "before=x", "format=pdf"])
def test_strange_questions_are_refused(november_service: Any, query: str) -> None:
    assert november_service.browser("nlp").get(f"/alerts?{query}").status_code == 422

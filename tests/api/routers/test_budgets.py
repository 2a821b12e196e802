"""Changes of a budget by people who do not know of each other."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from api import etags

PATH = "/v1/accounts/nlp/budget"
CHANGED = "It has changed since you read it. Read it again and decide anew."


def put(client: Any, amount: str, if_match: str | None = None) -> Any:
    body = {"budget": {"amount": amount}, "why": "test"}
    return client.put(PATH, json=body, headers={} if if_match is None else {"If-Match": if_match})


def amount(client: Any) -> str:
    found: str = client.get(PATH).json()["versions"][-1]["budget"]["amount"]
    return found


def tag(client: Any) -> str:
    found: str = client.get(PATH).headers["ETag"]
    return found


def test_who_saw_another_budget_changes_nothing(sqlite_service: Any) -> None:
    first, second = sqlite_service.client(None), sqlite_service.client(None)
    seen = tag(first)
    assert tag(second) == seen
    assert put(first, "30000.00", seen).status_code == 200
    refused = put(second, "20000.00", seen)
    assert refused.status_code == 412
    assert refused.headers["Content-Type"] == "application/problem+json"
    told = {"type": "about:blank", "title": "Precondition Failed", "status": 412, "detail": CHANGED}
    assert refused.json() == told | {"instance": PATH}
    assert amount(second) == "30000.00"
    assert put(second, "20000.00", tag(second)).status_code == 200
    assert amount(second) == "20000.00"


@pytest.mark.parametrize(("if_match", "status"), [(None, 200), ("*", 200), ('"x"', 412), ("", 412)])
def test_who_names_no_state_changes_whatever_it_is(
    sqlite_service: Any, if_match: str | None, status: int
) -> None:
    assert put(sqlite_service.client(None), "30000.00", if_match).status_code == status


def test_a_weak_tag_and_that_of_another_account_are_none(sqlite_service: Any) -> None:
    client = sqlite_service.client(None)
    other = client.get("/v1/accounts/cv/budget").headers["ETag"]
    assert put(client, "30000.00", f"W/{tag(client)}").status_code == 412
    assert put(client, "30000.00", other).status_code == 412
    assert put(client, "30000.00", f"{other}, {tag(client)}").status_code == 200


def test_an_approval_in_between_is_a_change(sqlite_service: Any) -> None:
    client = sqlite_service.client(None)
    seen = tag(client)
    more = {"amount": "500.00", "until": "2026-12-24", "why": "test"}
    assert client.post("/v1/accounts/nlp/approvals", json=more).status_code == 201
    assert put(client, "30000.00", seen).status_code == 412


def test_nobody_comes_between_the_look_and_the_change(
    sqlite_service: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, seen = sqlite_service.client(None), tag(sqlite_service.client(None))
    demand = etags.demand

    def slowly(if_match: str | None, current: str) -> None:
        demand(if_match, current)
        assert put(client, "40000.00").status_code == 200

    monkeypatch.setattr(etags, "demand", slowly)
    assert put(client, "30000.00", seen).status_code == 412
    assert amount(client) == "40000.00"


def test_one_of_many_at_once_is_taken(service: Any) -> None:
    seen = tag(service.client(None))
    with ThreadPoolExecutor(6) as pool:
        answers = list(pool.map(lambda n: put(service.client(None), f"{n}.00", seen), range(1, 7)))
    assert sorted(answer.status_code for answer in answers) == [200, *[412] * 5]
    taken = next(answer.json() for answer in answers if answer.status_code == 200)
    assert amount(service.client(None)) == taken["budget"]["amount"]


SPLIT = "/v1/accounts/nlp/split"


def split(client: Any, amount: str, if_match: str | None = None) -> Any:
    body = {"parts": {"nlp-lab-a": amount}, "why": "test"}
    return client.put(SPLIT, json=body, headers={} if if_match is None else {"If-Match": if_match})


def parts(client: Any) -> dict[str, str | None]:
    told = client.get(SPLIT).json()["parts"]
    return {
        part["account"]: part["version"]["budget"]["amount"] if part["version"] else None for part in told
    }


def test_who_saw_other_parts_splits_nothing(sqlite_service: Any) -> None:
    first, second = sqlite_service.client("nlp", "write"), sqlite_service.client(None)
    seen = first.get(SPLIT).headers["ETag"]
    assert parts(first) == {"nlp-lab-a": None, "nlp-lab-b": None}
    assert split(first, "15000.00", seen).status_code == 200
    refused = split(second, "9000.00", seen)
    assert (refused.status_code, refused.json()["detail"]) == (412, CHANGED)
    assert parts(second) == {"nlp-lab-a": "15000.00", "nlp-lab-b": None}
    assert split(second, "9000.00", second.get(SPLIT).headers["ETag"]).status_code == 200
    assert parts(first)["nlp-lab-a"] == "9000.00"


@pytest.mark.parametrize(("if_match", "status"), [(None, 200), ("*", 200), ('"x"', 412), ("", 412)])
def test_who_names_no_parts_splits_whatever_they_are(
    sqlite_service: Any, if_match: str | None, status: int
) -> None:
    assert split(sqlite_service.client(None), "15000.00", if_match).status_code == status


def test_a_budget_that_changed_above_or_below_is_another_split(sqlite_service: Any) -> None:
    client = sqlite_service.client(None)
    seen = client.get(SPLIT).headers["ETag"]
    assert client.get(SPLIT, headers={"If-None-Match": seen}).status_code == 304
    assert put(client, "30000.00").status_code == 200
    assert split(client, "15000.00", seen).status_code == 412
    seen = client.get(SPLIT).headers["ETag"]
    body = {"budget": {"amount": "5.00"}, "why": "test"}
    assert client.put("/v1/accounts/nlp-lab-b/budget", json=body).status_code == 200
    assert split(client, "15000.00", seen).status_code == 412


def test_the_whole_site_tells_its_departments_and_has_nothing_to_split(sqlite_service: Any) -> None:
    client, head = sqlite_service.client(None), sqlite_service.client("nlp", "write")
    told = client.get("/v1/accounts/root/split")
    assert {part["account"] for part in told.json()["parts"]} == {"nlp", "cv", "dl"}
    body = {"parts": {"nlp": "1.00"}, "why": "test"}
    refused = client.put("/v1/accounts/root/split", json=body, headers={"If-Match": told.headers["ETag"]})
    assert (refused.status_code, refused.json()["detail"]) == (
        422,
        "root has no budget to split; set one first.",
    )
    assert head.get("/v1/accounts/root/split").status_code == 404
    # A department's new budget is another state of the whole site's parts, a lab's is none.
    tags = []
    for change, amount in ((split, "9.00"), (split, "8.00"), (put, "30.00")):
        assert change(client, amount).status_code == 200
        tags.append(client.get("/v1/accounts/root/split").headers["ETag"])
    assert tags[0] == tags[1] != tags[2]


def test_nobody_splits_between_the_look_and_the_change(
    sqlite_service: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = sqlite_service.client(None)
    seen, demand = client.get(SPLIT).headers["ETag"], etags.demand

    def slowly(if_match: str | None, current: str) -> None:
        demand(if_match, current)
        assert split(client, "4000.00").status_code == 200

    monkeypatch.setattr(etags, "demand", slowly)
    assert split(client, "3000.00", seen).status_code == 412
    assert parts(client)["nlp-lab-a"] == "4000.00"

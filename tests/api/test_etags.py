from __future__ import annotations

from typing import Any

import pytest

from api import etags
from api.problems import ProblemError

STATEMENT = "/v1/accounts/nlp/statement/2026-11"


def test_what_a_client_has_is_not_sent_again(november_service: Any) -> None:
    client = november_service.client("nlp")
    first = client.get(STATEMENT)
    tag = first.headers["ETag"]
    assert first.headers["Cache-Control"] == "private, no-cache"
    assert {"Authorization", "Accept"} <= {name.strip() for name in first.headers["Vary"].split(",")}
    for known in (tag, f"W/{tag}", f'"other", {tag}', "*"):
        again = client.get(STATEMENT, headers={"If-None-Match": known})
        assert (again.status_code, again.content, again.headers["ETag"]) == (304, b"", tag)
        assert "content-length" not in again.headers
    for other in ('"other"', tag.strip('"'), "nonsense"):
        assert client.get(STATEMENT, headers={"If-None-Match": other}).status_code == 200
    head = client.head(STATEMENT, headers={"If-None-Match": tag})
    assert (head.status_code, head.content) == (304, b"")


def test_another_content_has_another_tag(november_service: Any) -> None:
    client = november_service.client(None)
    paths = (
        STATEMENT,
        "/v1/accounts/cv/statement/2026-11",
        "/v1/accounts/nlp/statement/2026-10",
        "/v1/accounts",
    )
    assert len({client.get(path).headers["ETag"] for path in paths}) == len(paths)


def test_who_may_not_see_it_learns_nothing_from_a_tag(november_service: Any) -> None:
    tag = november_service.client("nlp").get(STATEMENT).headers["ETag"]
    for client, status in ((november_service.client("cv"), 404), (november_service.anonymous(), 401)):
        answer = client.get(STATEMENT, headers={"If-None-Match": tag})
        assert (answer.status_code, "ETag" in answer.headers) == (status, False)


def test_errors_and_pages_have_none(november_service: Any) -> None:
    for path in ("/login", "/healthz", "/v1/nothing"):
        answer = november_service.anonymous().get(path, headers={"If-None-Match": "*"})
        assert "ETag" not in answer.headers
        assert answer.status_code != 304
        assert answer.headers["Cache-Control"] == "no-store"


@pytest.mark.parametrize(
    ("if_match", "status"),
    [
        (None, None),
        ('"1"', None),
        ("*", None),
        ('"0", "1"', None),
        ('W/"1"', 412),
        ('"2"', 412),
        ("1", 412),
        ("", 412),
    ],
)
def test_who_names_a_state_changes_no_other(if_match: str | None, status: int | None) -> None:
    if status is None:
        etags.demand(if_match, '"1"')
        return
    with pytest.raises(ProblemError) as refused:
        etags.demand(if_match, '"1"')
    assert refused.value.status == status

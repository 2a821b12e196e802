"""Jobs and entries behind a statement, over HTTP."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest

from api.services.reconcile import reconcile
from hpctools.budget.money import total

LATER = 3600
NOVEMBER_BEGINS = 1_793_491_200


def every(client: Any, path: str, name: str, **query: Any) -> list[dict[str, Any]]:
    """All items of a list, page by page."""
    found: list[dict[str, Any]] = []
    cursor = None
    while True:
        asked = query | ({"cursor": cursor} if cursor else {})
        answer = client.get(path, params=asked)
        assert answer.status_code == 200, answer.text
        found += answer.json()[name]
        cursor = answer.json()["next"]
        if cursor is None:
            return found


def money(items: list[dict[str, Any]]) -> Decimal:
    return total(Decimal(item["amount"]) for item in items)


def statement(client: Any, account: str, **query: Any) -> Any:
    return client.get(f"/v1/accounts/{account}/statement/2026-11", params=query).json()


def test_the_jobs_of_a_statement_add_up_to_it(november_service: Any) -> None:
    client = november_service.client("nlp")
    jobs = every(client, "/v1/accounts/nlp/jobs", "jobs", month="2026-11", limit=80)
    assert len(jobs) > 100
    assert len({(job["cluster"], job["dbindex"]) for job in jobs}) == len(jobs)
    assert money(jobs) == Decimal(statement(client, "nlp")["spent_on_jobs"])
    amounts = [Decimal(job["amount"]) for job in jobs]
    assert amounts == sorted(amounts, reverse=True)
    assert {job["account"] for job in jobs} == {"nlp", "nlp-lab-a", "nlp-lab-b"}
    days = every(client, "/v1/accounts/nlp/jobs", "jobs", **{"from": "2026-11-03", "to": "2026-11-04"})
    of_days = [day for day in statement(client, "nlp")["days"] if day["day"] in ("2026-11-03", "2026-11-04")]
    assert 0 < money(days) <= money(of_days)


@pytest.mark.parametrize("by", ["user", "state", "partition"])
def test_filters_divide_the_jobs(november_service: Any, by: str) -> None:
    client = november_service.client("nlp")
    jobs = every(client, "/v1/accounts/nlp/jobs", "jobs", limit=1000)
    words = {job[by] for job in jobs}
    assert len(words) > (by != "partition")
    for word in words:
        found = every(client, "/v1/accounts/nlp/jobs", "jobs", limit=1000, **{by: word})
        assert found == [job for job in jobs if job[by] == word]


def test_parts_of_nodes_divide_the_cost(november_service: Any) -> None:
    client = november_service.client(None)
    path = "/v1/accounts/root/jobs"
    whole = money(every(client, path, "jobs", limit=1000))
    parts = [every(client, path, "jobs", limit=1000, node_group=group) for group in ("reserved", "shared")]
    assert all(parts)
    assert total(money(part) for part in parts) == whole
    assert every(client, path, "jobs", node_group="nothing") == []


def test_orders(november_service: Any) -> None:
    client = november_service.client("cv")
    path = "/v1/accounts/cv/jobs"
    for sort, key in (("cost", lambda job: Decimal(job["amount"])), ("start", lambda job: job["start"])):
        up = [key(job) for job in every(client, path, "jobs", limit=60, sort=sort)]
        down = [key(job) for job in every(client, path, "jobs", limit=1000, sort=f"-{sort}")]
        assert up == sorted(up)
        assert down == up[::-1]


def restated(service: Any, site: Any, bills: Any, jobs: Any, november: Any, now: int) -> None:
    """The bill's last rows were taken back an hour later."""
    bills.months[november] = bills.rows(november)[:-30]
    reconcile(service.engine, site, november, bills, jobs, now + LATER)


def test_pages_are_of_the_moment_of_the_first(
    november_service: Any, site: Any, bills: Any, jobs: Any, november: Any, now: int
) -> None:
    client = november_service.client("nlp")
    for name in ("jobs", "entries"):
        path = f"/v1/accounts/nlp/{name}"
        before = every(client, path, name, limit=60)
        first = client.get(path, params={"limit": 60}).json()
        restated(november_service, site, bills, jobs, november, now + (name == "entries"))
        rest = every(client, path, name, limit=60, cursor=first["next"])
        assert first[name] + rest == before
        assert every(client, path, name, limit=1000) != before


def test_what_was_known_on_a_moment_is_told_again(
    november_service: Any, site: Any, bills: Any, jobs: Any, november: Any, now: int
) -> None:
    client = november_service.client("nlp")
    asked = [
        ("/v1/accounts/nlp/statement/2026-11", {}),
        ("/v1/accounts/nlp/jobs", {"limit": 1000}),
        ("/v1/accounts/nlp/entries", {"limit": 1000}),
    ]
    before = [client.get(path, params=query).json() for path, query in asked]
    restated(november_service, site, bills, jobs, november, now)
    then = {"known_on": "2026-11-21T12:59:59Z"}
    again = [client.get(path, params=query | then).json() for path, query in asked]
    assert again[0]["projected"] is None, "what was expected then is not worked out again"
    for told in (before, again):
        told[0].pop("projected")
        for answer in told:
            answer.pop("next", None)
    assert again == before
    assert [client.get(path, params=query).json() for path, query in asked] != before
    assert statement(client, "nlp", known_on="2026-11-21T11:59:59Z")["status"] == "none"


def test_entries_add_up_to_the_statement(november_service: Any) -> None:
    client = november_service.client("nlp")
    entries = every(client, "/v1/accounts/nlp/entries", "entries", limit=80)
    assert money(entries) == Decimal(statement(client, "nlp")["spent"])
    jobs_only = every(client, "/v1/accounts/nlp/entries", "entries", kind="attributed")
    assert money(jobs_only) == Decimal(statement(client, "nlp")["spent_on_jobs"])
    assert {entry["reason"] for entry in entries} == {"first"}
    one = jobs_only[0]
    behind = every(
        client,
        f"/v1/accounts/{one['account']}/jobs",
        "jobs",
        node_group=one["node_group"],
        capacity=one["capacity"],
        **{"from": one["day"], "to": one["day"]},
    )
    own = [job for job in behind if job["account"] == one["account"]]
    assert money(own) == Decimal(one["amount"])


def test_a_job_tells_its_days_and_how_they_became_known(
    november_service: Any, site: Any, bills: Any, jobs: Any, november: Any, now: int
) -> None:
    begun = [job for job in jobs.records if job.end is None and job.start < now]
    running = next(job for job in begun if job.account.startswith("nlp"))
    client = november_service.client("nlp")
    (before,) = client.get(f"/v1/jobs/{running.job_id}").json()["jobs"]
    assert (before["state"], before["end"]) == ("RUNNING", None)
    jobs.records = [
        replace(job, end=now + 600, state="FAILED") if job is running else job for job in jobs.records
    ]
    reconcile(november_service.engine, site, november, bills, jobs, now + LATER)
    (job,) = client.get(f"/v1/jobs/{running.job_id}", params={"month": "2026-11"}).json()["jobs"]
    assert (job["state"], job["user"], job["end"]) == ("FAILED", running.user, "2026-11-21T12:10:00Z")
    assert money(job["days"]) == money(job["entries"]) == Decimal(job["amount"])
    assert job["entries"][: len(before["entries"])] == before["entries"]
    assert {entry["reason"] for entry in before["entries"]} == {"first"}
    assert {entry["reason"] for entry in job["entries"][len(before["entries"]) :]} == {"jobs+time"}
    (then,) = client.get(f"/v1/jobs/{running.job_id}", params={"known_on": "2026-11-21T12:00:00Z"}).json()[
        "jobs"
    ]
    assert then == before
    listed = every(client, "/v1/accounts/nlp/jobs", "jobs", limit=1000)
    of_list = next(each for each in listed if each["dbindex"] == running.dbindex)
    assert of_list == {name: job[name] for name in of_list}


def billed(jobs: Any) -> list[Any]:
    """Jobs that have ended, and ran in a month that has a bill."""
    return [job for job in jobs.records if job.end is not None and job.start > NOVEMBER_BEGINS]


def test_an_id_that_was_used_twice_is_two_jobs_and_others_jobs_are_none(
    sqlite_service: Any, site: Any, bills: Any, jobs: Any, november: Any, now: int
) -> None:
    first, second, foreign = billed(jobs)[:3]
    jobs.records = [
        replace(first, job_id=7, account="nlp-lab-a", user="nlp1"),
        replace(second, job_id=7, account="nlp-lab-b", user="nlp3"),
        replace(foreign, job_id=8, account="cv-lab-a", user="cv1"),
    ]
    reconcile(sqlite_service.engine, site, november, bills, jobs, now)

    def seen(account: str | None, number: int) -> Any:
        answer = sqlite_service.client(account).get(f"/v1/jobs/{number}")
        return [job["user"] for job in answer.json()["jobs"]] if answer.status_code == 200 else None

    assert sorted(seen("nlp", 7)) == ["nlp1", "nlp3"]
    assert seen("nlp-lab-b", 7) == ["nlp3"]
    assert (seen("cv", 7), seen("nlp", 8), seen("cv", 8), seen(None, 8)) == (None, None, ["cv1"], ["cv1"])


def test_a_job_that_changed_hands_tells_nobody_what_others_paid(
    sqlite_service: Any, site: Any, bills: Any, jobs: Any, november: Any, now: int
) -> None:
    one, other = billed(jobs)[:2]
    jobs.records = [replace(one, job_id=7, account="nlp-lab-a", user="nlp1"), other]
    reconcile(sqlite_service.engine, site, november, bills, jobs, now)
    (before,) = sqlite_service.client("nlp").get("/v1/jobs/7").json()["jobs"]
    jobs.records[0] = replace(jobs.records[0], account="cv-lab-a", user="cv1")
    reconcile(sqlite_service.engine, site, november, bills, jobs, now + LATER)
    assert sqlite_service.client("nlp-lab-a").get("/v1/jobs/7").status_code == 404
    (after,) = sqlite_service.client("cv-lab-a").get("/v1/jobs/7").json()["jobs"]
    assert money(after["entries"]) == Decimal(after["amount"]) == Decimal(before["amount"])
    assert {entry["reason"] for entry in before["entries"]} == {"first"}
    assert {entry["reason"] for entry in after["entries"]} == {"jobs"}
    assert {entry["run"] for entry in after["entries"]}.isdisjoint(
        entry["run"] for entry in before["entries"]
    )


def test_runs_and_tasks_by_the_names_that_users_know(
    sqlite_service: Any, site: Any, bills: Any, jobs: Any, november: Any, now: int
) -> None:
    """A run of three jobs; another user's job that says it belongs to it; two tasks of an array."""
    ended = billed(jobs)[:7]
    mine = {"account": "nlp-lab-a", "user": "nlp1"}
    run = [replace(job, run="train-1", **mine) for job in ended[:3]]
    claims = replace(ended[3], run="train-1", account="nlp-lab-b", user="nlp3")
    tasks = [replace(job, name=f"900_{n}", **mine) for n, job in enumerate(ended[4:6])]
    jobs.records = [*run, claims, *tasks, replace(ended[6], **mine)]
    reconcile(sqlite_service.engine, site, november, bills, jobs, now)
    client = sqlite_service.client("nlp")
    runs = every(client, "/v1/accounts/nlp/runs", "runs", limit=1)
    assert sorted((each["run"], each["user"], each["jobs"]) for each in runs) == [
        ("train-1", "nlp1", 3),
        ("train-1", "nlp3", 1),
    ]
    own = next(each for each in runs if each["user"] == "nlp1")
    behind = client.get("/v1/accounts/nlp/jobs", params={"run": "train-1", "user": "nlp1", "limit": 1}).json()
    assert behind["total"] == 3
    assert behind["sums"] == [{"amount": own["amount"], "currency": "USD"}]
    every_job = every(client, "/v1/accounts/nlp/jobs", "jobs")
    assert money(runs) == money([job for job in every_job if job["run"]])
    assert {"900_0", "900_1", str(ended[6].job_id)} <= {job["job_id"] for job in every_job}
    (task,) = client.get("/v1/jobs/900_1").json()["jobs"]
    assert (task["job_id"], task["dbindex"]) == ("900_1", ended[5].dbindex)
    assert every(sqlite_service.client("nlp-lab-b"), "/v1/accounts/nlp-lab-b/runs", "runs") == [
        next(each for each in runs if each["user"] == "nlp3")
    ]


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ({"from": "2026-11-01"}, "query.from"),
        ({"from": "2026-11-01", "to": "2026-11-02", "month": "2026-11"}, "query.from"),
        ({"from": "2026-11-02", "to": "2026-11-01"}, "query.to"),
        ({"from": "2025-11-01", "to": "2026-11-02"}, "query.to"),
        ({"from": "2026-02-30", "to": "2026-03-01"}, "query.from"),
        ({"month": "2026-13"}, "query.month"),
        ({"known_on": "2026-11-31T00:00:00Z"}, "query.known_on"),
        ({"known_on": "2026-11-21"}, "query.known_on"),
        ({"sort": "name"}, "query.sort"),
        ({"cursor": "x"}, "query.cursor"),
    ],
)
def test_wrong_filters_are_refused(sqlite_service: Any, query: dict[str, str], field: str) -> None:
    answer = sqlite_service.client(None).get("/v1/accounts/nlp/jobs", params=query)
    assert answer.status_code == 422
    assert [told["field"] for told in answer.json()["errors"]] == [field]


def test_a_cursor_is_of_its_filters_only(november_service: Any) -> None:
    client = november_service.client("nlp")
    path = "/v1/accounts/nlp/jobs"
    cursor = client.get(path, params={"limit": 5}).json()["next"]
    assert client.get(path, params={"limit": 9, "cursor": cursor}).status_code == 200
    assert client.get(path, params={"cursor": cursor, "user": "nlp1"}).status_code == 422


def test_waste_is_the_jobs_by_how_they_ended_and_the_idle_nodes(november_service: Any) -> None:
    client = november_service.client("nlp")
    path, november = "/v1/accounts/nlp/waste", {"month": "2026-11"}
    answer = client.get(path, params=november)
    told = answer.json()
    assert money(told["jobs"]) == Decimal(statement(client, "nlp")["spent_on_jobs"])
    for state in told["jobs"]:
        behind = every(client, "/v1/accounts/nlp/jobs", "jobs", state=state["state"], limit=1000)
        assert money(behind) == Decimal(state["amount"])
        assert state["jobs"] == (len(behind) if state["state"] != "RUNNING" else 0)
    assert {state["state"] for state in told["jobs"] if state["lost"]} == {"FAILED", "CANCELLED"}
    assert {group["node_group"] for group in told["node_groups"]} == {"reserved", "shared"}
    assert all(Decimal(group["idle"]) > 0 for group in told["node_groups"])
    assert (told["currency"], told["quality"]["status"]) == ("USD", "estimated")
    tag = {"If-None-Match": answer.headers["ETag"]}
    assert client.get(path, params=november, headers=tag).status_code == 304
    assert client.get(path, params={"known_on": "2026-11-21T11:59:59Z"}).json()["jobs"] == []
    assert client.get(path, params={"state": "FAILED"}).status_code == 422

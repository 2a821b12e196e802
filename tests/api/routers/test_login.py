"""The routes of login nodes, and what a login node's token opens."""

from __future__ import annotations

import re
from typing import Any

import pytest
from fastapi import FastAPI
from sqlalchemy import update

from api.db.login_models import NODES

REPORT = {
    "agent": "0123456789abcdef",
    "sample_age": 0.5,
    "address": "login-1.uni.example",
    "cpus": 16,
    "cpu": 0.25,
    "memory": 0.5,
}
NODE = {
    "name": "login-1",
    "address": "login-1.uni.example",
    "state": "up",
    "silent": False,
    "heard_seconds_ago": 0,
    "sessions": 1,
    "placed": 0,
    "users": 1,
    "cpus": 16,
    "cpu": 0.25,
    "memory": 0.5,
    "unlimited": False,
    "why": "",
}


@pytest.fixture
def agent(sqlite_service: Any) -> Any:
    """A login node's agent."""
    return sqlite_service.client("root", "login")


def session(claim: str = "1-1", user: str = "nlp1") -> dict[str, Any]:
    return {"claim": claim, "user": user, "kind": "ssh", "origin": "192.0.2.7", "age": 3600}


def report(agent: Any, sequence: int, *sessions: dict[str, Any], node: str = "login-1") -> Any:
    body = {**REPORT, "sequence": sequence, "sessions": list(sessions)}
    answer = agent.put(f"/v1/login/nodes/{node}/report", json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_a_node_reports_and_everybody_sees_it(sqlite_service: Any, agent: Any) -> None:
    assert report(agent, 1, session()) == {
        "taken": True,
        "lease_seconds": 30,
        "draining": False,
        "why": "",
        "end": [],
        "tell": {},
        "drained": False,
    }
    assert sqlite_service.client("cv").get("/v1/login/nodes").json() == {"nodes": [NODE], "former": []}


def test_the_other_machine_of_a_name_is_told_what_to_do(sqlite_service: Any, agent: Any) -> None:
    report(agent, 1, session())
    body = {**REPORT, "agent": "later-agent", "sequence": 1, "sessions": []}
    assert agent.put("/v1/login/nodes/login-1/report", json=body).status_code == 200
    answer = agent.put("/v1/login/nodes/login-1/report", json={**REPORT, "sequence": 2, "sessions": []})
    assert answer.status_code == 409
    assert "another machine, at login-1.uni.example, tells of a login node login-1" in answer.json()["detail"]
    assert "Give this machine another name (`node` in" in answer.json()["detail"]


def test_somebody_is_sent_to_their_session(sqlite_service: Any, agent: Any) -> None:
    report(agent, 1, session())
    report(agent, 1, node="login-2")
    answer = sqlite_service.client("nlp-lab-a").post("/v1/login/sessions", json={"user": "nlp1"})
    assert (answer.status_code, answer.json()) == (
        201,
        {
            "node": "login-1",
            "address": "login-1.uni.example",
            "why": "your session is on login-1.",
            "others": ["login-2"],
            "addresses": {"login-2": "login-1.uni.example"},
            "held_seconds": 30,
        },
    )
    body = {"user": "nlp1", "avoid": ["login-1"]}
    assert sqlite_service.client("nlp").post("/v1/login/sessions", json=body).json()["node"] == "login-2"


def test_a_node_that_is_gone_is_forgotten(sqlite_service: Any, agent: Any) -> None:
    """With its sessions and its drain, in the audit trail; not while it reports, and not by login nodes."""
    admin = sqlite_service.client(None)
    report(agent, 1, session())
    assert admin.put("/v1/login/nodes/login-1/drain", json={"draining": True}).status_code == 200
    assert agent.delete("/v1/login/nodes/login-1").status_code == 403
    refused = admin.delete("/v1/login/nodes/login-1")
    assert (refused.status_code, "still reports" in refused.json()["detail"]) == (409, True)
    with sqlite_service.app.state.login_store.writing() as moment:
        moment.execute(update(NODES).values(heard_at=NODES.c.heard_at - 31))
    (node,) = admin.get("/v1/login/nodes").json()["nodes"]
    assert (node["state"], node["silent"]) == ("draining", True)
    report(agent, 1, node="login-2")
    done = admin.delete("/v1/login/nodes/login-1")
    assert (done.status_code, done.json()) == (200, {"node": "login-1"})
    told = admin.get("/v1/login/nodes").json()
    assert [each["name"] for each in told["nodes"]] == ["login-2"]
    assert admin.get("/v1/login/sessions").json()["sessions"] == []
    (newest, *_) = admin.get("/v1/audit").json()["entries"]
    assert (newest["action"], newest["subject"]) == ("login.forget", "login-1")
    assert newest["before"] == {"address": "login-1.uni.example", "drained": True}
    assert admin.delete("/v1/login/nodes/login-1").status_code == 404
    assert report(agent, 2)["draining"] is False, "one that comes back takes sessions"


def test_a_session_too_many_is_refused_before_the_way_and_at_the_door(
    sqlite_service: Any, agent: Any
) -> None:
    report(agent, 1, *(session(f"{number}-1") for number in range(4)))
    refused = agent.post("/v1/login/leases", json={"node": "login-2", "claim": "9-1", "user": "nlp1"}).json()
    assert refused["granted"] is False
    assert [each["claim"] for each in refused["sessions"]] == ["0-1", "1-1", "2-1", "3-1"]
    assert refused["message"].startswith(
        "nlp1: you have 4 sessions on the login nodes, and the limit is 4:\n"
    )
    placed = sqlite_service.client(None).post("/v1/login/sessions", json={"user": "nlp1"})
    assert (placed.status_code, placed.json()["detail"]) == (409, refused["message"])


def test_a_colleague_hears_of_a_refusal_and_not_from_where_somebody_works(
    sqlite_service: Any, agent: Any
) -> None:
    """Who reads an account may ask for a place for its people, and sees nobody's sessions."""
    described = sqlite_service.app.openapi()["paths"]["/v1/login/sessions"]["post"]["description"]
    assert "which sessions they have where you may see these" in " ".join(described.split())
    report(agent, 1, *(session(f"{number}-1") for number in range(4)))

    def told(*words: Any, **whose: str) -> str:
        answer = sqlite_service.client("nlp-lab-a", *words, **whose).post(
            "/v1/login/sessions", json={"user": "nlp1"}
        )
        assert answer.status_code == 409
        return str(answer.json()["detail"])

    assert told() == (
        "nlp1: you have 4 sessions on the login nodes, and the limit is 4. Your token does not show which "
        "nlp1 has: one of nlp1's own does (hp-login --sessions), and so does plain ssh to a login node."
    )
    assert all("from 192.0.2.7" in each for each in (told("write"), told(user="nlp1")))


def test_a_lease_is_closed_by_its_claim(agent: Any) -> None:
    body = {"node": "login-1", "claim": "1-1", "user": "nlp1"}
    assert agent.post("/v1/login/leases", json=body).json() == {
        "granted": True,
        "message": "",
        "sessions": [],
    }
    assert [agent.delete("/v1/login/leases/login-1/1-1").status_code for _ in range(2)] == [200, 404]


def test_a_head_sees_and_ends_the_sessions_of_their_people_only(sqlite_service: Any, agent: Any) -> None:
    report(agent, 1, session(), session("2-1", "cv1"), session("3-1", "guest"))

    def seen(account: str | None, *scopes: Any, **query: str) -> list[str]:
        answer = sqlite_service.client(account, *scopes).get("/v1/login/sessions", params=query)
        return [each["user"] for each in answer.json()["sessions"]]

    assert seen("nlp", "write") == ["nlp1"]
    assert seen("nlp") == []
    assert seen(None) == ["nlp1", "cv1", "guest"]
    assert seen(None, user="cv1") == ["cv1"]
    not_theirs = sqlite_service.client("nlp", "write").get("/v1/login/sessions?user=cv1")
    assert (not_theirs.status_code, not_theirs.json()["detail"]) == (
        403,
        "Your token shows nobody's sessions who is called cv1.",
    )
    head = sqlite_service.client("nlp", "write")
    (number,) = (each["id"] for each in head.get("/v1/login/sessions").json()["sessions"])
    assert sqlite_service.client("cv", "write").delete(f"/v1/login/sessions/{number}").status_code == 404
    ended = head.delete(f"/v1/login/sessions/{number}")
    assert (ended.status_code, ended.json()["ending"]) == (202, True)
    assert report(agent, 2, session())["end"] == ["1-1"]
    (entry,) = sqlite_service.client(None).get("/v1/audit?action=login.end").json()["entries"]
    assert entry["before"] == {"user": "nlp1", "node": "login-1", "claim": "1-1", "kind": "ssh"}


def test_a_login_nodes_token_sees_and_ends_nobodys_sessions(sqlite_service: Any, agent: Any) -> None:
    """Whoever has a shell on a login node may come by it, and could have logged everybody out."""
    report(agent, 1, session())
    assert agent.get("/v1/login/sessions").json()["sessions"] == []
    assert agent.get("/v1/login/sessions?user=nlp1").status_code == 403
    (number,) = (each["id"] for each in all_sessions(sqlite_service))
    assert agent.delete(f"/v1/login/sessions/{number}").status_code == 404
    placed = agent.post("/v1/login/sessions", json={"user": "nlp1"})
    assert (placed.status_code, placed.json()["node"]) == (201, "login-1")


def test_a_persons_own_token_sees_and_ends_their_sessions_and_nobody_elses(
    sqlite_service: Any, agent: Any
) -> None:
    report(agent, 1, session(), session("2-1", "nlp2"))
    own = sqlite_service.client("nlp", user="nlp1")
    for path in ("/v1/login/sessions", "/v1/login/sessions?user=nlp1"):
        assert [each["user"] for each in own.get(path).json()["sessions"]] == ["nlp1"]
    assert own.get("/v1/login/sessions?user=nlp2").status_code == 403
    numbers = {each["user"]: each["id"] for each in all_sessions(sqlite_service)}
    assert own.delete(f"/v1/login/sessions/{numbers['nlp2']}").status_code == 404
    assert own.delete(f"/v1/login/sessions/{numbers['nlp1']}").status_code == 202
    assert report(agent, 2, session(), session("2-1", "nlp2"))["end"] == ["1-1"]


def all_sessions(service: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = service.client(None).get("/v1/login/sessions").json()["sessions"]
    return found


def test_no_other_token_can_have_the_name_of_a_persons_own(sqlite_service: Any) -> None:
    admin = sqlite_service.client(None)
    wanted = {"name": "laptop", "account": "nlp", "user": "nlp1"}
    made = admin.post("/v1/tokens", json=wanted)
    assert (made.status_code, made.json()["name"]) == (201, "user:nlp1:laptop")
    assert admin.post("/v1/tokens", json=wanted).status_code == 409
    assert admin.post("/v1/tokens", json={**wanted, "user": "nlp2"}).status_code == 201
    for false in ({"name": "user:nlp1:x"}, {"user": "nlp1:x"}, {"user": "", "name": "x"}):
        assert admin.post("/v1/tokens", json={**wanted, **false}).status_code == 422, false
    for unfit in ({"account": None, "scopes": ["admin"]}, {"name": "x" * 120, "user": "y" * 60}):
        assert admin.post("/v1/tokens", json={**wanted, **unfit}).status_code == 422, unfit
    assert admin.delete("/v1/tokens/user:nlp1:laptop").status_code == 200


def test_sessions_come_in_pages(sqlite_service: Any, agent: Any) -> None:
    report(agent, 1, *(session(f"{number}-1") for number in range(5)))
    client = sqlite_service.client(None)
    claims, cursor = [], ""
    while cursor is not None:
        page = client.get("/v1/login/sessions", params={"limit": 2, **({"cursor": cursor} if cursor else {})})
        claims += [each["claim"] for each in page.json()["sessions"]]
        cursor = page.json()["next"]
    assert claims == [f"{number}-1" for number in range(5)]


@pytest.mark.parametrize("query", ["node=a%00b", "user=%00", "node=%0a"])
def test_what_no_database_takes_is_refused_and_no_database_is_blamed(service: Any, query: str) -> None:
    """PostgreSQL has no NUL in a text: the service said that the database cannot be used."""
    assert service.client(None).get(f"/v1/login/sessions?{query}").status_code == 422
    if query.startswith("node"):
        assert service.browser(None).get(f"/login-nodes?{query}").status_code == 422


def test_a_drained_node_hears_of_it_and_gets_nobody(sqlite_service: Any, agent: Any) -> None:
    admin = sqlite_service.client(None)
    report(agent, 1)
    body = {"draining": True, "why": "new kernel"}
    answer = admin.put("/v1/login/nodes/login-1/drain", json=body).json()
    assert answer == {"node": "login-1", "known": True, **body}
    assert admin.put("/v1/login/nodes/login-9/drain", json=body).json()["known"] is False
    assert admin.put("/v1/login/nodes/login-9/drain", json={"draining": False}).json()["known"] is False
    assert {**report(agent, 2), "end": []} == {
        "taken": True,
        "lease_seconds": 30,
        "draining": True,
        "why": "new kernel",
        "end": [],
        "tell": {},
        "drained": True,
    }
    answer = admin.post("/v1/login/sessions", json={"user": "nlp1"})
    assert (answer.status_code, answer.json()["detail"]) == (
        409,
        "There is no node to log in: login-1 is being drained, and there is no other login node.",
    )
    assert admin.put("/v1/login/nodes/login-1/drain", json={"draining": False}).status_code == 200
    assert admin.post("/v1/login/sessions", json={"user": "nlp1"}).status_code == 201


def test_where_no_node_has_told_of_itself_the_service_does_not_know(sqlite_service: Any, agent: Any) -> None:
    """No word about the person: hp-login goes by its list, as it does when the service is away."""
    client = sqlite_service.client(None)
    answer = client.post("/v1/login/sessions", json={"user": "nlp1"})
    told = "There is no node to log in: no login node has told of itself yet."
    assert (answer.status_code, answer.json()["detail"]) == (503, told)
    assert answer.headers["Content-Type"] == "application/problem+json"
    report(agent, 1)
    assert client.post("/v1/login/sessions", json={"user": "nlp1"}).status_code == 201


VALUES = {"name": "nlp", "node": "login-1", "month": "2026-11"}
OPENED = {
    ("GET", "/v1/login/nodes"),
    ("GET", "/v1/login/sessions"),
    ("POST", "/v1/login/sessions"),
    ("DELETE", "/v1/login/sessions/{number}"),
    ("POST", "/v1/login/leases"),
    ("DELETE", "/v1/login/leases/{node}/{claim}"),
    ("PUT", "/v1/login/nodes/{node}/report"),
}


def test_a_login_nodes_token_opens_nothing_but_what_it_needs(sqlite_service: Any, agent: Any) -> None:
    """What it is refused is 401, 403 or 404; lists of accounts would be 403: it reads none."""
    app: FastAPI = sqlite_service.app
    opened = set()
    for path, operations in app.openapi()["paths"].items():
        for method in operations:
            if not path.startswith("/v1/"):
                continue
            asked = re.sub(r"\{(\w+)\}", lambda part: VALUES.get(part[1], "1"), path)
            answer = agent.request(method.upper(), asked, json={})
            if answer.status_code not in (401, 403, 404):
                opened.add((method.upper(), path))
    assert opened - OPENED == set()


@pytest.mark.parametrize(
    "wrong",
    [
        {"user": "nlp1; rm -rf /"},
        {"user": "-nlp1"},
        {"user": "nlp1\n"},
        {"claim": "../../etc"},
        {"node": "login 1"},
        {"origin": "192.0.2.7\x1b[2J"},
    ],
)
def test_what_could_be_meant_for_a_shell_or_a_terminal_is_refused(agent: Any, wrong: dict[str, str]) -> None:
    body = {"node": "login-1", "claim": "1-1", "user": "nlp1", **wrong}
    assert agent.post("/v1/login/leases", json=body).status_code == 422


def test_a_token_with_the_scope_login_alone_reads_no_account(sqlite_service: Any) -> None:
    made = sqlite_service.client(None).post(
        "/v1/tokens", json={"name": "login-1", "account": "root", "scopes": ["login"]}
    )
    assert made.json()["scopes"] == ["login"]
    client = sqlite_service.anonymous()
    client.headers["Authorization"] = f"Bearer {made.json()['secret']}"
    assert client.get("/v1/login/nodes").status_code == 200
    assert client.get("/v1/accounts").status_code in (403, 404)


@pytest.mark.parametrize("draining", [1, 0.0, "yes", None])
def test_nothing_is_taken_for_a_switch_that_is_none(sqlite_service: Any, draining: object) -> None:
    path = "/v1/login/nodes/login-1/drain"
    assert sqlite_service.client(None).put(path, json={"draining": draining}).status_code == 422
    assert sqlite_service.client(None).put(path, json={"draining": True}).status_code == 200

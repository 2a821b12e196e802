"""The page of login nodes: who sees whose sessions, and what is said of nodes and limits."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from api.auth.people import member
from api.auth.principal import Principal
from api.pages.wording import DASH
from api.services.login_nodes import Drain, set_drain
from tests.api.routers.test_login import report, session


def words(html: str) -> str:
    body = html.split("</header>")[1]
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", body)).replace("\xa0", " ")


def people_of(html: str) -> list[str]:
    """Whose sessions are listed, in order."""
    rows = html.partition('id="sessions"')[2].split('<th scope="row">')[1:]
    return [re.sub(r"<[^>]+>", " ", f"<td{row.split('<td')[1]}").split()[0] for row in rows]


@pytest.fixture
def busy(sqlite_service: Any) -> Any:
    """Two nodes with people of two departments, one of them drained, and a third that was never heard of."""
    agent = sqlite_service.client("root", "login")
    here = [session("1-1", "nlp1"), session("2-1", "cv1"), session("3-1", "nlp2") | {"kind": "ssm"}]
    report(agent, 1, *here)
    tmux = session("9-1", "nlp1") | {"kind": "tmux"}
    report(agent, 1, session("1-1", "nlp1"), tmux, node="login-2")
    store, by = sqlite_service.app.state.login_store, Principal("ops", ())
    for node, why in (("login-2", "new kernel <6.1>"), ("login-3", "")):
        set_drain(store, sqlite_service.engine, node, Drain(True, why), by, 5)
    return sqlite_service


def as_person(service: Any, user: str, account: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The browser of somebody who signed in at the provider."""
    principal = Principal(f"oidc:{user}", (member(account),))
    monkeypatch.setattr("api.deps.identify_browser", lambda context, cookie: principal)
    client = service.anonymous()
    client.headers["Accept"] = "text/html"
    return client


def test_an_administrator_sees_nodes_limits_and_everybodys_sessions(busy: Any) -> None:
    page = busy.browser(None).get("/login-nodes").text
    said = words(page)
    assert people_of(page) == ["nlp1", "cv1", "nlp2", "nlp1", "nlp1"]
    assert "login-1 open 3 of 200 3 25 % of 16 50 % login-1.uni.example" in said, said
    assert "login-2 drained new kernel &lt;6.1&gt; 1 of 200 1 25 % of 16 50 %" in said
    assert f"login-3 drained never heard of 0 of 200 0 {DASH} {DASH}" in said
    assert "All 1 of 3 open 4" in said
    assert "Each person may have 4 sessions on all login nodes together" in said
    assert "A login node takes 200." in said
    assert "nlp 3 no limit" in said
    assert "1 ssh nlp1 nlp login-1 1 h 2026-11-21 11:00 192.0.2.7" in said
    assert "waiting tmux nlp1 nlp login-2" in said
    assert "You have" not in said


def test_a_person_sees_their_own_sessions_and_what_is_left(
    busy: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = as_person(busy, "nlp1", "nlp-lab-a", monkeypatch).get("/login-nodes").text
    said = words(page)
    assert people_of(page) == ["nlp1", "nlp1", "nlp1"]
    assert "You have 2 of the 4 sessions that you may have: you may open 2 more." in said
    assert "nlp 3 no limit" in said
    assert re.search(r"\bcv\b", said) is None
    assert "nlp2" not in said


def test_whom_a_group_makes_an_administrator_is_told_of_no_limit(
    busy: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their sessions do not count: they would be told of one of four, and have two."""
    report(busy.client("root", "login"), 2, session("1-1", "nlp1") | {"administrator": True})
    page = as_person(busy, "nlp1", "nlp-lab-a", monkeypatch).get("/login-nodes").text
    assert people_of(page) == ["nlp1", "nlp1", "nlp1"]
    assert "You have" not in words(page)


def test_heads_who_only_read_see_no_sessions_and_those_who_write_their_peoples(busy: Any) -> None:
    assert people_of(busy.browser("nlp").get("/login-nodes").text) == []
    assert people_of(busy.browser("nlp", "write").get("/login-nodes").text) == [
        "nlp1",
        "nlp2",
        "nlp1",
        "nlp1",
    ]
    assert "There is no session that you may see." in words(busy.browser("cv").get("/login-nodes").text)


def test_one_nodes_sessions(busy: Any) -> None:
    admin = busy.browser(None)
    page = admin.get("/login-nodes?node=login-2").text
    assert (people_of(page), "Open sessions on login-2" in page) == (["nlp1", "nlp1"], True)
    assert people_of(admin.get("/login-nodes?node=").text) == people_of(admin.get("/login-nodes").text)
    assert admin.get("/login-nodes?after=-1").status_code == 422


def test_a_long_list_comes_in_pages(sqlite_service: Any) -> None:
    agent = sqlite_service.client("root", "login")
    report(agent, 1, *(session(f"{number}-1", f"user{number}") for number in range(150)))
    admin, found, address = sqlite_service.browser(None), [], "/login-nodes?node=login-1"
    while address:
        page = admin.get(address).text
        found += people_of(page)
        links = re.findall(r'href="([^"]*after[^"]*)"', page)
        address = links[0].replace("&amp;", "&") if links else ""
    assert sorted(found) == sorted(f"user{number}" for number in range(150))


def test_a_departments_limit_is_warned_of_before_it_is_reached(
    busy: Any, site_path: Path, tmp_path: Path
) -> None:
    """Three of three: the next of its people is refused."""
    limited = tmp_path / "site.yaml"
    word = "max_sessions_per_user: 4"
    assert word in site_path.read_text()
    limited.write_text(site_path.read_text().replace(word, f"{word}\n  department_sessions: {{nlp: 3}}"))
    busy.app.state.context.site_file._path = limited
    assert '<span class="bad">3</span>' in busy.browser(None).get("/login-nodes").text


def test_before_any_agent_runs(sqlite_service: Any) -> None:
    said = words(sqlite_service.browser(None).get("/login-nodes").text)
    assert "No login node has told anything yet" in said


@pytest.mark.system
def test_axe_finds_nothing_and_nothing_is_cut_off(
    tab: Any, serve: Callable[[Any], str], busy: Any, picture: Callable[[str, bytes], None]
) -> None:
    """On a desktop, on a phone and in the dark, with scripts switched off."""
    address = serve(busy.app)
    tab.window(1200, 900)
    tab.go(f"{address}/login-nodes")
    tab.type_and_enter("#token", busy.token(None, name="jane.doe"))
    for width, dark in ((360, False), (1200, True), (1200, False)):
        tab.window(width, 900, dark=dark)
        tab.go(f"{address}/login-nodes")
        assert tab.evaluate("location.pathname") == "/login-nodes"
        assert tab.axe() == []
        assert tab.evaluate("document.documentElement.scrollWidth") == width
        if (width, dark) == (1200, False):
            picture("page-login-nodes", tab.screenshot())

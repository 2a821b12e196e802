"""From PAM's helper over the node's agent to the service: as two login nodes have it, without their sshds."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest
from fastapi.testclient import TestClient

from api.db.login_store import LoginStore
from api.schemas.login import LeaseIn
from api.services.login_leases import open_lease, sessions
from api.services.login_rules import Rules
from hpctools.errors import BudgetError, UnreachableError
from hpctools.login.agent import door as doors
from hpctools.login.agent.agent import Agent
from hpctools.login.agent.capped import started
from hpctools.login.agent.daemon import make_agent
from hpctools.login.agent.listening import door_server
from hpctools.login.agent.processes import parse
from hpctools.login.agent.reporting import Service
from hpctools.login.agent.settings import Settings
from hpctools.site import load

LIMIT = Path(__file__).parents[2] / "pam/programs/session-limit"
ENTERED = LIMIT.with_name("administrator-entered")
USER = "daemon"


class Line:
    """The service as agents ask it; `cut` when nobody answers, or nobody those nodes."""

    def __init__(self, client: TestClient) -> None:
        self.client = client
        self.cut = False
        self.cut_off: set[str] = set()
        self.agents: dict[str, Agent] = {}

    def of(self, node: str) -> Service:
        """The line of a node."""
        return Wire(self, node)

    def ask(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        if self.cut:
            raise UnreachableError("nobody answers")
        answer = self.client.request(method, path, json=body)
        if answer.status_code >= 400:
            raise BudgetError(answer.text)
        return answer.json()


@dataclass
class Wire:
    """What lies between one node and the service."""

    line: Line
    node: str

    def ask(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        if self.node in self.line.cut_off:
            raise UnreachableError("no route to host")
        return self.line.ask(method, path, body)


@pytest.fixture
def line(sqlite_service: Any) -> Line:
    return Line(sqlite_service.client("root", "login"))


Login = Callable[[str], tuple[int, str]]


@pytest.fixture
def log_in(
    line: Line, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Iterator[Login]:
    """Begin a session as PAM does, on a node by its name; sessions last until the test ends."""
    monkeypatch.setattr(doors, "_ROOT", os.getuid())
    otherwise = getattr(request, "param", "open")
    with ExitStack() as stack:
        for node in ("login-1", "login-2"):
            wire = line.of(node)
            agent = line.agents[node] = make_agent(Settings(node=node, state=str(tmp_path)), wire)
            server = started(door_server(tmp_path / node, doors.Door(agent, wire, otherwise).answer))
            stack.callback(server.server_close)
            stack.callback(server.shutdown)

        def ask(node: str) -> tuple[int, str]:
            connection = stack.enter_context(subprocess.Popen(["sleep", "60"]))
            stack.callback(connection.kill)
            argv = ["/usr/bin/python3", "-IS", str(LIMIT), str(connection.pid), "3", "0"]
            argv += [str(tmp_path / f"claims-{node}"), f"unix:{tmp_path / node}", otherwise]
            env = {"PAM_USER": USER, "PAM_RHOST": "192.0.2.7"}
            done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=30, check=False)
            return done.returncode, done.stdout

        yield ask


def test_four_sessions_on_two_nodes_and_not_a_fifth(log_in: Login, line: Line) -> None:
    assert [log_in(node)[0] for node in ("login-1", "login-2") * 2] == [0, 0, 0, 0]
    code, said = log_in("login-2")
    assert (code, said.splitlines()[0]) == (
        77,
        f"{USER}: you have 4 sessions on the login nodes, and the limit is 4:",
    )
    assert [each.split(", ")[0][-7:] for each in said.splitlines()[1:5]] == ["login-1", "login-2"] * 2
    assert said.count("from 192.0.2.7") == 4


@pytest.mark.parametrize(("log_in", "expected"), [("open", 0), ("refuse", 77)], indirect=["log_in"])
def test_without_the_service_it_is_as_the_site_says(log_in: Login, line: Line, expected: int) -> None:
    line.cut = True
    code, said = log_in("login-1")
    assert (code, bool(said)) == (expected, bool(expected))


def test_while_the_service_is_away_no_node_has_more_than_its_own_limit(log_in: Login, line: Line) -> None:
    line.cut = True
    answers = [log_in(node) for node in ("login-1", "login-2") * 4]
    assert [code for code, _ in answers] == [0] * 6 + [77] * 2
    assert f"{USER}: you have 3 sessions on {os.uname().nodename}, and the limit is 3:" in answers[-1][1]


def test_a_node_that_is_cut_off_goes_on_by_its_own_limit_and_all_counts_afterwards(
    log_in: Login, line: Line, sqlite_service: Any
) -> None:
    """Four are allowed over all nodes, three on each by itself: never more than those three beyond them."""
    line.cut_off = {"login-1"}
    far = [log_in("login-1")[0] for _ in range(4)]
    near = [log_in("login-2")[0] for _ in range(2)]
    assert (far, near) == ([0, 0, 0, 77], [0, 0])
    line.cut_off.clear()
    line.agents["login-1"].look()
    known = sqlite_service.client(None).get(f"/v1/login/sessions?user={USER}").json()["sessions"]
    assert sorted(each["node"] for each in known) == ["login-1"] * 3 + ["login-2"] * 2
    code, said = log_in("login-2")
    assert (code, "you have 5 sessions on the login nodes, and the limit is 4:" in said) == (77, True)


@pytest.mark.usefixtures("log_in")
def test_an_administrator_between_two_looks_is_in_the_trail(
    line: Line, tmp_path: Path, sqlite_service: Any
) -> None:
    """Who came and went while the service was away, too: `ssh login-1 'cat /etc/shadow'` was nowhere."""
    line.cut = True
    with subprocess.Popen(["sleep", "60"]) as connection:
        pid, _, rest = Path(f"/proc/{connection.pid}/stat").read_text().partition(" (sleep)")
        argv = ["/usr/bin/python3", "-IS", str(ENTERED), f"{pid} (sshd){rest}", str(tmp_path / "login-1")]
        env = {"PAM_USER": "root", "PAM_RHOST": "192.0.2.7"}
        subprocess.run(argv, env=env, timeout=30, check=True)
        connection.kill()
    line.agents["login-1"].look()
    line.cut = False
    for _ in range(2):
        line.agents["login-1"].look()
    # Root may be logged in on this machine: the agent looks at its real processes.
    found = sqlite_service.client(None).get("/v1/audit?action=login.administrator").json()["entries"]
    theirs = [(each["subject"], each["after"]["claim"].partition("-")[0]) for each in found]
    assert [each for each in theirs if each[1] == pid] == [("root", pid)]
    still = sqlite_service.client(None).get("/v1/login/sessions?user=root").json()["sessions"]
    assert [each for each in still if each["claim"].startswith(f"{pid}-")] == []


@dataclass
class Together:
    """The store, whose questions wait until those of all logins are on their way."""

    store: LoginStore
    rules: Rules
    arrived: Barrier

    def ask(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        assert (method, path) == ("POST", "/v1/login/leases")
        asked = LeaseIn.model_validate(body).asked()
        self.arrived.wait(20)
        refused = open_lease(self.store, self.rules, asked)
        return {"granted": refused is None, "message": refused.message if refused else ""}


def test_twelve_logins_of_one_person_at_the_same_instant(
    sqlite_service: Any, site_path: Path, tmp_path: Path
) -> None:
    """None of a node's questions can name the others that are on their way: two get in all the same."""
    store = LoginStore(sqlite_service.engine, lambda: 1_000_000)
    service = Together(store, replace(Rules.of(load(site_path)), per_user=2), Barrier(12))
    nodes = [f"login-{number}" for number in (1, 2)]
    agents = [make_agent(Settings(node=node, state=str(tmp_path)), service) for node in nodes]
    made = [doors.Door(agent, service, "refuse") for agent in agents]
    with ExitStack() as stack, ThreadPoolExecutor(12) as pool:
        waiting = [stack.enter_context(subprocess.Popen(["sleep", "60"])) for _ in range(12)]
        for process in waiting:
            stack.callback(process.kill)

        def log_in(number: int) -> bool:
            stat = Path(f"/proc/{waiting[number].pid}/stat").read_text()
            claim = parse(stat, 0, "").key
            question = {"ask": "lease", "user": USER, "claim": claim}
            return bool(made[number % 2].answer(question, os.getuid())["granted"])

        answers = list(pool.map(log_in, range(12)))
    assert answers.count(True) == 2
    assert len(sessions(store, {USER})) == 2

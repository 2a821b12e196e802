"""HAProxy: its configuration, and Debian's own HAProxy that is told by agents where people go."""

from __future__ import annotations

import csv
import socket
import socketserver
import subprocess
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from pydantic import ValidationError

from hpctools.errors import UsageError
from hpctools.login.agent.capped import started
from hpctools.login.agent.check_answer import check_answer
from hpctools.login.agent.from_site import agent_settings, settings_text
from hpctools.login.agent.listening import checks_server
from hpctools.login.agent.own_sshd import Standing
from hpctools.login.agent.settings import read_settings
from hpctools.login.haproxy import Server, Timing, configuration, login_servers
from hpctools.login.placement import Node, Policy
from hpctools.sandbox import ports
from hpctools.site import load
from hpctools.site.login_agent import LoginAgent
from hpctools.site.login_haproxy import HaProxy
from tests.system.harness import until

SITE = Path(__file__).parents[2] / "slurm-conf/examples/university/site.yaml"
LIMITED = Policy(most_sessions=100)


def test_the_sites_login_nodes() -> None:
    assert login_servers(load(SITE)) == (Server("login-1", "login-1"), Server("login-2", "login-2"))


def test_a_site_without_login_nodes_has_nothing_to_balance() -> None:
    with pytest.raises(UsageError, match="no login nodes"):
        configuration(HaProxy(), [])


def test_what_is_rendered_for_a_site() -> None:
    text = configuration(
        HaProxy(port=2222), [Server("login-1", "10.0.0.1"), Server("login-2", "10.0.0.2:2022")]
    )
    assert "    bind :2222\n" in text
    assert "    server login-1 10.0.0.1:22\n    server login-2 10.0.0.2:2022\n" in text
    assert text.endswith("login-2.full 10.0.0.2:2022 no-check no-agent-check track login/login-2 backup\n")
    assert "agent-check agent-port 9123 agent-inter 2000ms" in text


def test_an_agents_settings_come_back_as_they_were(tmp_path: Path) -> None:
    path = tmp_path / "agent.yaml"
    settings = agent_settings(load(SITE))
    path.write_text(settings_text(settings))
    assert read_settings(path) == settings
    assert (settings.every, settings.administrators.users) == (10.0, ("hpcadmin",))


def test_what_the_site_says_of_its_agents_reaches_them(tmp_path: Path) -> None:
    """HyperPod's nodes write their agents' settings anew: what is changed there is lost."""
    site = load(SITE)
    stated = {"metrics_address": "0.0.0.0", "check_address": "10.0.0.1", "drain_notice": "00:02:00"}
    token = {"service": "https://hpc-api.uni.example", "token": {"file": "/etc/hpctools/login-token"}}
    agent = LoginAgent.model_validate(stated | token)
    path = tmp_path / "agent.yaml"
    login = site.login.model_copy(update={"agent": agent})
    path.write_text(settings_text(agent_settings(site.model_copy(update={"login": login}))))
    read = read_settings(path)
    assert (read.metrics_address, read.check_address, read.drain_notice) == ("0.0.0.0", "10.0.0.1", 120.0)
    for wrong in ("everywhere", "999.0.0.1", "10.0.0"):
        with pytest.raises(ValidationError, match="metrics_address"):
            LoginAgent.model_validate(token | {"metrics_address": wrong})


@pytest.mark.parametrize(("silent_after", "every"), [(5, 5 / 3), (180, 60.0), (181, 60.0), (600, 60.0)])
def test_an_agent_takes_whatever_silence_a_site_may_allow(
    tmp_path: Path, silent_after: int, every: float
) -> None:
    """It looks once a minute at least; settings that it refuses would keep every agent from starting."""
    site = load(SITE)
    login = site.login.model_copy(update={"silent_after": silent_after})
    path = tmp_path / "agent.yaml"
    path.write_text(settings_text(agent_settings(site.model_copy(update={"login": login}))))
    assert read_settings(path).every == every


class Sshd(socketserver.ThreadingTCPServer):
    """Says what sshd says first, and then who it is; keeps the connection."""

    allow_reuse_address = True
    daemon_threads = True

    def __init__(self, name: str) -> None:
        class Handler(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                with suppress(OSError):  # HAProxy's own checks hang up at once
                    self.request.sendall(f"SSH-2.0-{name}\r\n".encode())
                    self.request.recv(1)

        super().__init__(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()


class Entrance:
    """HAProxy before login nodes, each with an agent whose node can be changed."""

    def __init__(self, folder: Path, names: tuple[str, ...]) -> None:
        self.nodes = {name: Node(name) for name in names}
        self.standings: dict[str, Standing] = dict.fromkeys(names, "open")
        self.sshds = {name: Sshd(name) for name in names}
        self.agents = {name: started(checks_server(("127.0.0.1", 0), self._answer(name))) for name in names}
        self.port = ports.choose(["haproxy"])["haproxy"]
        self.socket = folder / "admin.sock"
        path = folder / "haproxy.cfg"
        path.write_text(self._configuration())
        subprocess.run(["haproxy", "-c", "-q", "-f", path], check=True, timeout=30)
        log = (folder / "log").open("wb")
        self.process = subprocess.Popen(["haproxy", "-db", "-f", path], stdout=log, stderr=log)
        log.close()
        self.clients: list[socket.socket] = []

    def _answer(self, name: str) -> Callable[[], str]:
        return lambda: check_answer(self.nodes[name], LIMITED, self.standings[name])

    def _configuration(self) -> str:
        servers = [Server(name, f"127.0.0.1:{each.server_address[1]}") for name, each in self.sshds.items()]
        text = configuration(
            HaProxy(port=self.port),
            servers,
            bind="127.0.0.1",
            socket=str(self.socket),
            timing=Timing(1000, 200),
        )
        lines = []
        for line in text.splitlines():
            name = line.split()[1] if line.startswith("    server ") else ""
            port = f" agent-port {self.agents[name].server_address[1]}" if name in self.agents else ""
            lines.append(line + port)
        return "\n".join(lines) + "\n"

    def shown(self) -> dict[str, tuple[str, str]]:
        """Status and weight of each server, as HAProxy has them."""
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(str(self.socket))
            connection.sendall(b"show stat\n")
            rows = csv.DictReader(connection.makefile().read().removeprefix("# ").splitlines())
            return {
                row["svname"]: (row["status"].split()[0], row["weight"])
                for row in rows
                if row["svname"] in self.nodes
            }

    def until(self, wanted: dict[str, tuple[str, str]]) -> None:
        """Wait until HAProxy sees the servers so."""
        seen: list[object] = []

        def look() -> bool:
            try:
                seen.append(self.shown())
            except (FileNotFoundError, ConnectionRefusedError):  # not made yet; made, and not listened at yet
                return False
            return seen[-1] == wanted

        try:
            until(look, 20)
        except AssertionError:
            raise AssertionError(f"HAProxy sees {seen[-1:]}") from None

    def come(self, count: int) -> Counter[str]:
        """So many people connect and stay; where each got to."""
        found: Counter[str] = Counter()
        for _ in range(count):
            client = socket.create_connection(("127.0.0.1", self.port), timeout=10)
            self.clients.append(client)
            found[client.recv(100).decode().strip().removeprefix("SSH-2.0-")] += 1
        return found

    def end(self) -> None:
        for client in self.clients:
            client.close()
        self.process.terminate()
        self.process.wait(10)
        for server in (*self.agents.values(), *self.sshds.values()):
            server.shutdown()
            server.server_close()


@pytest.fixture
def entrance(tmp_path: Path) -> Iterator[Entrance]:
    made = Entrance(tmp_path, ("login-1", "login-2", "login-3"))
    try:
        yield made
    finally:
        made.end()


def test_people_go_where_the_agents_say(entrance: Entrance) -> None:
    """Even at first; none for the drained and the full, whose people stay."""
    entrance.until(dict.fromkeys(entrance.nodes, ("UP", "100")))
    assert entrance.come(30) == {"login-1": 10, "login-2": 10, "login-3": 10}
    entrance.nodes["login-2"] = Node("login-2", draining=True)
    entrance.nodes["login-3"] = Node("login-3", sessions=100)
    entrance.until({"login-1": ("UP", "100"), "login-2": ("DRAIN", "100"), "login-3": ("UP", "0")})
    assert entrance.come(6) == {"login-1": 6}
    for client in entrance.clients:
        client.setblocking(False)
        with pytest.raises(BlockingIOError):
            client.recv(1)
    entrance.nodes["login-2"] = Node("login-2")
    entrance.nodes["login-3"] = Node("login-3", sessions=50)
    entrance.until({"login-1": ("UP", "100"), "login-2": ("UP", "100"), "login-3": ("UP", "50")})
    assert entrance.come(1) == {"login-2": 1}


def test_when_all_nodes_are_full_people_get_there_and_are_told_so_by_the_nodes(entrance: Entrance) -> None:
    """And administrators get in. No drained node is among these, and none whose sshd lets nobody in."""
    entrance.nodes |= {"login-1": Node("login-1", memory=0.96), "login-2": Node("login-2", sessions=100)}
    entrance.until({"login-1": ("UP", "0"), "login-2": ("UP", "0"), "login-3": ("UP", "100")})
    assert entrance.come(3) == {"login-3": 3}
    entrance.nodes["login-3"] = Node("login-3", memory=0.97)
    entrance.until(dict.fromkeys(entrance.nodes, ("UP", "0")))
    assert set(entrance.come(9)) == set(entrance.nodes)
    entrance.nodes["login-3"] = Node("login-3", draining=True)
    entrance.standings["login-2"] = "closed"
    entrance.until({"login-1": ("UP", "0"), "login-2": ("DOWN", "0"), "login-3": ("DRAIN", "0")})
    assert entrance.come(4) == {"login-1": 4}
    entrance.nodes["login-1"] = Node("login-1", sessions=99)
    entrance.until({"login-1": ("UP", "1"), "login-2": ("DOWN", "0"), "login-3": ("DRAIN", "0")})
    entrance.nodes["login-3"], entrance.standings["login-2"] = Node("login-3"), "open"
    entrance.until({"login-1": ("UP", "1"), "login-2": ("UP", "0"), "login-3": ("UP", "100")})
    assert "login-2" not in entrance.come(4)


def test_an_sshd_that_refuses_people_is_left_out_by_its_agents_word(entrance: Entrance) -> None:
    """Its banner still comes when HAProxy looks: a place was free at that moment. Who is there stays."""
    entrance.until(dict.fromkeys(entrance.nodes, ("UP", "100")))
    assert set(entrance.come(9)) == set(entrance.nodes)
    entrance.standings |= {"login-1": "closed", "login-2": "crowded"}
    entrance.until({"login-1": ("DOWN", "100"), "login-2": ("UP", "1"), "login-3": ("UP", "100")})
    assert entrance.come(6) == {"login-3": 6}
    entrance.standings["login-3"] = "closed"
    until(lambda: entrance.shown()["login-3"][0] == "DOWN" or None, 20)
    assert entrance.come(1) == {"login-2": 1}, "it refuses some only, which is better than nothing"
    for client in entrance.clients:
        client.setblocking(False)
        with pytest.raises(BlockingIOError):
            client.recv(1)
    entrance.standings |= dict.fromkeys(entrance.nodes, "open")
    entrance.until(dict.fromkeys(entrance.nodes, ("UP", "100")))


def test_a_dead_sshd_and_a_dead_agent(entrance: Entrance) -> None:
    """Without an sshd nobody goes there; without its agent a node keeps what its agent said last."""
    entrance.nodes["login-1"] = Node("login-1", sessions=50)
    entrance.until({"login-1": ("UP", "50"), "login-2": ("UP", "100"), "login-3": ("UP", "100")})
    entrance.agents["login-1"].shutdown()
    entrance.agents["login-1"].server_close()
    entrance.sshds["login-3"].shutdown()
    entrance.sshds["login-3"].server_close()
    until(lambda: entrance.shown()["login-3"][0] == "DOWN", 20)
    assert entrance.shown()["login-1"] == ("UP", "50")
    assert set(entrance.come(9)) == {"login-1", "login-2"}

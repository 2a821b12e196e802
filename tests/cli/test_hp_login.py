"""hp-login: where it goes, and the ssh that it becomes."""

from __future__ import annotations

import json
import socket
from collections import Counter
from pathlib import Path
from threading import Thread

import pytest

from hpctools.budget.service import TokenRefusedError
from hpctools.cli import hp_login
from hpctools.cli.hp_login import Way, answers_as_sshd, find_way, main, ssh_command
from hpctools.errors import BudgetError, ConflictError, HpctoolsError, UnreachableError
from hpctools.login.placement import Node, Policy, rank
from hpctools.remote.placement import own_order
from tests.login.agent.made_agent import FakeService

FIRST = {"node": "login-1", "address": "login-1.uni.example", "why": "your tmux is on login-1.", "others": []}
SECOND = {**FIRST, "node": "login-2", "address": "login-2.uni.example", "why": "it has room."}


def all_answer(node: str) -> bool:
    return True


def none_answers(node: str) -> bool:
    return False


def test_it_goes_where_the_service_says() -> None:
    service = FakeService(FIRST)
    way = find_way("nlp1", service, ("login-9",), all_answer)
    assert way == Way("login-1", "login-1.uni.example", "your tmux is on login-1.")
    assert service.asked == [("POST", "/v1/login/sessions", {"user": "nlp1", "avoid": []})]


def test_what_answers_gives_a_terminal_no_commands() -> None:
    way = find_way("nlp1", FakeService({**FIRST, "why": "it has\x1b[2J room."}), (), all_answer)
    assert way.why == "it has\\x1b[2J room."


def test_a_node_goes_by_the_name_that_ssh_knows() -> None:
    """The person's list, and so ssh's configuration, may call it otherwise than the service."""
    way = find_way("nlp1", FakeService(FIRST), ("login-2", "login-1"), all_answer)
    assert (way.node, way.address) == ("login-1", "login-1")


def test_a_node_that_does_not_answer_is_avoided() -> None:
    service = FakeService(FIRST, SECOND)
    way = find_way("nlp1", service, (), lambda node: node.startswith("login-2"))
    assert way.node == "login-2"
    assert service.asked[1][2] == {"user": "nlp1", "avoid": ["login-1"]}


BARE = {**FIRST, "address": "10.0.0.5"}


@pytest.mark.parametrize(
    ("known", "listed", "host"),
    [
        ({"login-1": True, "10.0.0.5": True}, (), "login-1"),
        ({"login-1": False, "10.0.0.5": True}, (), "10.0.0.5"),
        (
            {"login-1.uni.example": True, "10.0.0.5": True},
            ("login-1.uni.example", "login-2"),
            "login-1.uni.example",
        ),
        ({"10.0.0.5": True}, ("10.0.0.5",), "10.0.0.5"),
    ],
)
def test_a_node_is_reached_by_its_name_or_its_address(
    known: dict[str, bool], listed: tuple[str, ...], host: str
) -> None:
    way = find_way("nlp1", FakeService(BARE), listed, lambda name: known[name])
    assert (way.node, way.address) == ("login-1", host)


def test_a_node_that_answers_by_neither_is_avoided() -> None:
    service = FakeService(BARE, SECOND)
    way = find_way("nlp1", service, (), lambda host: host.startswith("login-2"))
    assert way.node == "login-2"
    assert service.asked[1][2] == {"user": "nlp1", "avoid": ["login-1"]}


def test_where_no_node_of_the_services_answers_the_list_is_tried() -> None:
    """Agents tell inner addresses; from outside only the balancer of the list is reached."""
    service = FakeService(FIRST, ConflictError("none of the login nodes answered you"))
    way = find_way("nlp1", service, ("login.uni.example",), lambda node: node == "login.uni.example")
    assert (way.node, way.address) == ("login.uni.example", "login.uni.example")
    service = FakeService(FIRST, ConflictError("none of the login nodes answered you"))
    with pytest.raises(UnreachableError, match=r"answers \(login.uni.example\), and none of the login nodes"):
        find_way("nlp1", service, ("login.uni.example",), none_answers)


def test_a_node_that_somebody_does_not_want_is_passed_over(
    configured: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without a service, too, where it would go back to a node that refuses them; by any of its names."""
    (configured / "clusters.yaml").write_text("clusters: {uni: [inner, inner2.uni.example]}\ndefault: uni\n")
    jump = "Host inner*\n  ProxyJump gate\n"
    (configured / "config").write_text(jump + (configured / "config").read_text())
    second = "inner2.uni.example"
    for named, node in (("inner", second), ("inner2", "inner"), (second, "inner")):
        assert main(["--dry-run", "--not", named]) == 0
        assert capsys.readouterr().out.startswith(f"{node}: the first that answers")
    assert main(["--dry-run", "--not", "inner", "--not", "inner2"]) == 2
    assert main(["--dry-run", "--not=-oProxyCommand=x"]) == 2
    nodes = {"nodes": [{"name": "login-3", "address": "fe80::1"}]}  # asked for what the list does not have
    service = FakeService(nodes, {**FIRST, "address": "inner2.uni.example"}, {**SECOND, "address": "inner"})
    monkeypatch.setattr(hp_login, "_service", lambda api: service)
    assert main(["--dry-run", "--not", "inner2", "--not", "fe80::1"]) == 0
    assert [body and body["avoid"] for _, _, body in service.asked] == [
        None, ["inner2", "inner2.uni.example"], ["inner2", "inner2.uni.example", "login-1"],
    ]  # fmt: skip


def test_it_ends_when_no_node_answers() -> None:
    with pytest.raises(UnreachableError, match="none of login-1 answers"):
        find_way("nlp1", FakeService(FIRST), (), none_answers)


@pytest.mark.parametrize(
    "trouble",
    [
        UnreachableError("api does not answer"),
        TokenRefusedError("api refuses (401): no such token"),
        BudgetError("api refuses (403): not for you"),
    ],
)
def test_without_the_service_the_list_is_tried(trouble: HpctoolsError) -> None:
    """Whether it is away or does not know us: sshd will say whether somebody may come in."""
    way = find_way("nlp1", FakeService(trouble), ("login-1", "login-2"), lambda node: node == "login-2")
    why = f"the first that answers, in your own order of the list ({trouble})."
    assert way == Way("login-2", "login-2", why)
    assert find_way("nlp1", None, ("login-1",), all_answer).why.endswith("(no service is asked).")
    with pytest.raises(UnreachableError, match=r"no login node answers \(login-1\), and no service is asked"):
        find_way("nlp1", None, ("login-1",), none_answers)
    with pytest.raises(
        UnreachableError, match="no login node is known here, and no service is asked"
    ) as told:
        find_way("nlp1", None, (), all_answer)
    assert "clusters.yaml" in told.value.remedy


def test_without_the_service_not_everybody_goes_to_the_first_of_the_list() -> None:
    """Each has an order of their own, the service's: by the names that it has for the nodes."""
    nodes = [f"login-{n}.uni.example" for n in range(1, 5)]
    firsts = Counter(find_way(f"u{n}", None, nodes, all_answer).node for n in range(400))
    assert min(firsts[node] for node in nodes) > 60
    ranked = rank("nlp1", [Node(f"login-{n}") for n in range(1, 5)], Policy())
    assert own_order("nlp1", nodes) == [f"{node.name}.uni.example" for node in ranked]
    assert sorted(own_order("nlp1", ["10.0.0.1", "10.0.0.2"])) == ["10.0.0.1", "10.0.0.2"]


def test_who_may_have_no_more_sessions_is_told_so() -> None:
    with pytest.raises(ConflictError, match="you have 4 sessions"):
        find_way("nlp1", FakeService(ConflictError("nlp1: you have 4 sessions")), ("login-1",), all_answer)


def test_the_ssh_that_it_becomes() -> None:
    named = Way("login-1", "login-1", "")
    assert ssh_command("", named, []) == ["ssh", "login-1"]
    tunnel = ["-N", "-L", "8888:localhost:8888"]
    assert ssh_command("nlp1", named, tunnel) == ["ssh", "-l", "nlp1", "login-1", *tunnel]
    assert ssh_command("", named, ["squeue", "--me"]) == ["ssh", "login-1", "squeue", "--me"]
    assert ssh_command("", Way("a", "a", ""), ["-t", "tmux", "attach"], Path("/c")) == [
        *("ssh", "-F", "/c", "a"),
        *("-t", "tmux", "attach"),
    ]
    with pytest.raises(HpctoolsError, match="no host"):
        ssh_command("", Way("login-1", "-oProxyCommand=x", ""), [])


def test_the_host_key_of_an_address_is_remembered_by_the_nodes_name() -> None:
    """What the person says themselves comes first, and counts."""
    bare, alias = Way("login-1", "10.0.0.5", ""), ["-o", "HostKeyAlias=login-1"]
    assert ssh_command("", bare, ["-v"]) == ["ssh", *alias, "10.0.0.5", "-v"]
    assert ssh_command("", bare, ["squeue"]) == ["ssh", *alias, "10.0.0.5", "squeue"]
    own = ["-o", "hostkeyalias=mine"]
    assert ssh_command("", bare, own) == ["ssh", "10.0.0.5", *own]
    assert ssh_command("", Way("10.0.0.5", "10.0.0.5", ""), []) == ["ssh", "10.0.0.5"]


def test_the_host_key_of_an_address_that_the_person_has_is_theirs(tmp_path: Path) -> None:
    """Their known_hosts has it by that address, or by the alias of their configuration."""
    bare, config = Way("login-1", "10.0.0.5", ""), tmp_path / "config"
    assert ssh_command("", bare, [], nodes=("10.0.0.5",)) == ["ssh", "10.0.0.5"]
    config.write_text("Host 10.0.0.5\n  HostKeyAlias cluster\n")
    assert ssh_command("", bare, [], config) == ["ssh", "-F", str(config), "10.0.0.5"]
    other = ssh_command("", Way("login-2", "10.0.0.6", ""), [], config, ("10.0.0.5",))
    assert other == ["ssh", "-F", str(config), "-o", "HostKeyAlias=login-2", "10.0.0.6"]


@pytest.mark.parametrize(("first", "answers"), [(b"SSH-2.0-OpenSSH_9.2\r\n", True), (b"", False)])
def test_whether_an_sshd_answers(first: bytes, answers: bool) -> None:
    """One that is full takes the connection and hangs up."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]

        def serve() -> None:
            with server.accept()[0] as connection:
                connection.sendall(first)

        server.settimeout(20)
        thread = Thread(target=serve)
        thread.start()
        assert answers_as_sshd("127.0.0.1", port) == answers
        thread.join()
    assert not answers_as_sshd("127.0.0.1", port)
    assert not answers_as_sshd("nobody-knows-this.invalid", 22)


@pytest.mark.parametrize("asked", [["--sessions"], ["--end", "812"]])
@pytest.mark.parametrize(
    ("beside", "said"),
    [
        (["--not", "login1"], "--not is for logging in, and not for {}; leave it out"),
        (["--dry-run"], "--dry-run is for logging in, and not for {}; leave it out"),
        (["813", "a b"], "{} takes no more words: 813 'a b'; "),
        (["--", "-v"], "{} takes no more words: -v; "),
    ],
)
def test_what_is_for_logging_in_is_refused_where_nobody_logs_in(
    asked: list[str],
    beside: list[str],
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """Whoever gives two sessions to end, or wants to see what would end, is not to find one ended."""
    service = FakeService({})
    monkeypatch.setattr(hp_login, "_service", lambda api: service)
    assert main([*asked, *beside]) == 2
    assert capfd.readouterr().err.startswith(f"hp-login: {said.format(asked[0])}")
    assert not service.asked


def test_of_listing_and_ending_sessions_one_is_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--sessions", "--end", "812"]) == 2
    said = "hp-login: --sessions and --end are two things; give one of them\n"
    assert capsys.readouterr().err == said


def test_all_pages_of_ones_sessions_are_listed(
    configured: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pages = [{"sessions": [{"id": number}], "next": after} for number, after in ((1, "a/b"), (2, None))]
    service = FakeService(*pages)
    monkeypatch.setattr(hp_login, "_service", lambda api: service)
    assert main(["--sessions", "--json"]) == 0
    assert [each["id"] for each in json.loads(capsys.readouterr().out)["sessions"]] == [1, 2]
    first, second = (path for _, path, _ in service.asked)
    assert "user=me-there" in first
    assert "user=me-there" in second
    assert "cursor=a%2Fb" in second


def test_without_a_service_sessions_cannot_be_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("HPCTOOLS_API", raising=False)
    monkeypatch.setenv("HPCTOOLS_CLUSTERS", "/nonexistent")
    assert main(["--sessions"]) == 2
    assert "no service is named" in capsys.readouterr().err


@pytest.fixture
def configured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """ssh's configuration and a list of login nodes: one behind a proxy, one at a port where nobody is."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    config = tmp_path / "config"
    config.write_text(
        f"Host inner\n  HostName 192.0.2.7\n  ProxyJump gate\nHost *\n  HostName 127.0.0.1\n  Port {port}\n"
        "  User me-there\n"
    )
    monkeypatch.setenv("HPCTOOLS_SSH_CONFIG", str(config))
    monkeypatch.setenv("HPCTOOLS_CLUSTERS", str(tmp_path / "clusters.yaml"))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("HPCTOOLS_API", raising=False)
    (tmp_path / "clusters.yaml").write_text("clusters: {uni: [outer, inner]}\ndefault: uni\n")
    return tmp_path


def test_it_knocks_where_ssh_would_and_at_no_door_behind_a_proxy(
    configured: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--dry-run"]) == 0
    assert capsys.readouterr().out.startswith("inner: the first that answers")
    (configured / "clusters.yaml").write_text("clusters: {uni: [outer]}\ndefault: uni\n")
    assert main(["--dry-run"]) == 3
    assert "no login node answers" in capsys.readouterr().err


def test_what_is_wrong_is_said_of_the_place_where_it_is(
    configured: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (configured / "clusters.yaml").write_text(
        "clusters: {uni: {login_nodes: a, api: x.example}}\ndefault: uni\n"
    )
    assert main(["--sessions"]) == 2
    wrong = "hp-login: 'x.example' is no address; "
    assert capsys.readouterr().err == f"{wrong}write `api: https://HOST` into clusters.yaml\n"
    (configured / "clusters.yaml").write_text("")
    monkeypatch.setenv("HPCTOOLS_API", "x.example")
    assert main(["--sessions"]) == 2
    assert capsys.readouterr().err == f"{wrong}set HPCTOOLS_API=https://HOST\n"
    monkeypatch.setenv("HPCTOOLS_SSH_CONFIG", "/nonexistent/config")
    assert main(["--dry-run", "--cluster", "outer"]) == 1
    assert capsys.readouterr().err.endswith("; see /nonexistent/config\n")


def test_without_a_token_it_logs_in_all_the_same(
    configured: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HPCTOOLS_API", "https://api.uni.example")
    assert main(["--dry-run"]) == 0
    assert "inner: the first that answers" in (said := capsys.readouterr().out)
    assert "cannot read the token in" in said
    assert main(["--sessions"]) == 2


def test_the_service_is_asked_for_who_one_is_there(
    configured: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """ssh's User, not the name on this machine; --user and clusters.yaml come first."""
    service = FakeService({**FIRST, "address": "inner"})
    monkeypatch.setattr(hp_login, "_service", lambda api: service)
    assert [main(["--dry-run", *more]) for more in ([], ["--user", "you"])] == [0, 0]
    assert [body and body["user"] for _, _, body in service.asked] == ["me-there", "you"]

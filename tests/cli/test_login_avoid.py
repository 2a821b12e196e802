"""hp-login --not: a node is meant by its own name, by the list's and by ssh's, however it is written."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from hpctools.cli import hp_login
from hpctools.cli.hp_login import main
from hpctools.cli.login_avoid import avoided
from hpctools.errors import BudgetError, ConflictError, UnreachableError, UsageError
from tests.cli.test_hp_login import configured
from tests.login.agent.made_agent import FakeService

__all__ = ["configured"]
Names = tuple[str, str]
HOSTS = {"uni-a": "login1.uni.example", "uni-b": "login2.uni.example", "uni-c": "10.0.0.3"}


class NamingService(FakeService):
    """A service of these nodes, which places on the first that is not to be avoided by its own name."""

    def __init__(self, *nodes: Names) -> None:
        super().__init__()
        self.nodes = nodes

    def ask(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        self.asked.append((method, path, body))
        if body is None:
            return {"nodes": [{"name": name, "address": address} for name, address in self.nodes]}
        left = [names for names in self.nodes if names[0] not in body["avoid"]]
        if not left:
            raise ConflictError("none of the login nodes is left")
        return {"node": left[0][0], "address": left[0][1], "why": "it has room."}

    def told(self) -> list[str]:
        """What it was told first to avoid."""
        return next(list(body["avoid"]) for _, _, body in self.asked if body)


@pytest.fixture
def aliases(configured: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A list of aliases of ssh's configuration; all are behind a proxy, where nobody is asked."""
    (configured / "clusters.yaml").write_text(f"clusters: {{uni: [{', '.join(HOSTS)}]}}\ndefault: uni\n")
    named = "".join(f"Host {node}\n  HostName {host}\n" for node, host in HOSTS.items())
    (configured / "config").write_text(f"{named}Host *\n  ProxyJump gate\n")
    return configured


@pytest.mark.usefixtures("aliases")
@pytest.mark.parametrize(
    ("named", "left"),
    [
        ("login1", {"uni-b", "uni-c"}),
        ("Login1.UNI.example", {"uni-b", "uni-c"}),
        ("UNI-A", {"uni-b", "uni-c"}),
        ("login2", {"uni-a", "uni-c"}),
        ("10.0.0.3", {"uni-a", "uni-b"}),
    ],
)
def test_the_list_calls_it_otherwise(named: str, left: set[str], capsys: pytest.CaptureFixture[str]) -> None:
    others = [["--not", each] for each in left]
    for other in others:
        assert main(["--dry-run", "--not", named, *other]) == 0
        (gone,) = left - {capsys.readouterr().out.partition(":")[0]}
        assert gone == other[1]
    assert main(["--dry-run", "--not", named, *others[0], *others[1]]) == 2


@pytest.mark.usefixtures("aliases")
@pytest.mark.parametrize("named", ["uni-a", "Login1"])
def test_the_service_calls_it_otherwise(
    named: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is told both names, and what it names all the same is passed over."""
    first = {"node": "login1", "address": "LOGIN1.uni.example", "why": "your tmux is there."}
    second = {"node": "login2", "address": "login2.uni.example", "why": "it has room."}
    service = FakeService({"nodes": []}, first, second)
    monkeypatch.setattr(hp_login, "_service", lambda api: service)
    assert main(["--dry-run", "--not", named]) == 0
    assert capsys.readouterr().out == "login2: it has room.\n"
    told = [body["avoid"] for _, _, body in service.asked if body]
    assert {"login1", "login1.uni.example"} <= set(told[0])


@pytest.mark.usefixtures("aliases")
def test_the_service_names_an_address_that_is_the_aliass(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    first = {"node": "login3", "address": "10.0.0.3", "why": "your tmux is there."}
    second = {"node": "login2", "address": "login2.uni.example", "why": "it has room."}
    service = FakeService({"nodes": []}, first, second)
    monkeypatch.setattr(hp_login, "_service", lambda api: service)
    assert main(["--dry-run", "--not", "uni-c"]) == 0
    assert capsys.readouterr().out == "login2: it has room.\n"


@pytest.mark.usefixtures("aliases")
def test_a_name_that_nobody_knows_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whoever mistypes it would be sent to the very node that they do not want."""
    assert main(["--dry-run", "--not", "lgoin1"]) == 2
    said = capsys.readouterr().err
    assert "nobody knows a login node lgoin1" in said
    assert "uni-a, uni-b, uni-c" in said
    nodes = {"nodes": [{"name": "login9", "address": "10.0.0.9"}]}
    way = {"node": "login2", "address": "login2.uni.example", "why": "it has room."}
    for named, code in (("lgoin1", 2), ("Login9", 0), ("10.0.0.9", 0)):
        service = FakeService(nodes, way)
        monkeypatch.setattr(hp_login, "_service", lambda api, asked=service: asked)
        assert main(["--dry-run", "--not", named]) == code
    assert "uni-a, uni-b, uni-c, login9" in capsys.readouterr().err


@pytest.mark.usefixtures("aliases")
def test_a_name_of_the_services_is_believed_while_it_does_not_answer(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A drained node names itself to whom it refuses, and their list may have a balancer alone."""
    monkeypatch.setattr(hp_login, "_service", lambda api: FakeService(UnreachableError("api is away")))
    assert main(["--dry-run", "--not", "login9"]) == 0
    told = "login9 is not in your list, and the service does not say what that is: api is away"
    assert f"hp-login: {told}\n" in capsys.readouterr().err
    assert main(["--dry-run", "--not", "login1"]) == 0
    assert told not in capsys.readouterr().err


@pytest.mark.usefixtures("aliases")
def test_a_service_that_is_silent_is_waited_for_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One that refuses has answered, and is asked on."""
    silent = FakeService(UnreachableError("api is away"))
    monkeypatch.setattr(hp_login, "_service", lambda api: silent)
    assert main(["--dry-run", "--not", "uni-a"]) == 0
    assert "(api is away)" in capsys.readouterr().out
    assert [method for method, _, _ in silent.asked] == ["GET"]
    refusing = FakeService(BudgetError("not for you"))
    monkeypatch.setattr(hp_login, "_service", lambda api: refusing)
    assert main(["--dry-run", "--not", "uni-a"]) == 0
    assert [method for method, _, _ in refusing.asked] == ["GET", "POST"]


def test_the_host_of_two_entries_is_the_name_of_neither() -> None:
    """Two tunnels of this machine, say: one that is not wanted does not take the other away."""
    found = avoided(["first"], ("first", "second"), lambda node: "localhost")
    assert found.entries == {"first"}
    assert not found.has(["localhost"])
    assert avoided(["localhost"], ("first", "second"), lambda node: "localhost").entries == {
        "first",
        "second",
    }


def test_of_two_that_are_called_alike_the_whole_name_means_one() -> None:
    nodes = ("login1.a.example", "login1.b.example")
    assert avoided([nodes[1]], nodes, str).entries == {nodes[1]}
    assert avoided(["login1"], nodes, str).entries == set(nodes)


A, B = "login1.a.example", "login1.b.example"


@pytest.mark.parametrize(
    ("listed", "named", "theirs", "node", "told"),
    [
        # The list has both, or the service alone.
        ((A, B), [A], [(A, A), (B, B)], B, {A}),
        ((A, B), [A], [("login1", A), (B, B)], B, {A}),
        ((A, "login2"), [A], [(A, A), (B, B)], B, {A}),
        (("login2",), [A], [(A, A), (B, B)], B, {A}),
        # The list has the other one alone.
        ((B,), [A], [(A, A), (B, B)], B, {A}),
        ((B, "login2"), ["login1"], [("login1", "10.0.0.1"), (B, B)], B, {"login1"}),
        # One is called by the short name alone.
        (("login1", B), ["login1"], [("login1", "login1"), (B, B)], B, {"login1"}),
        # The only one that is called so goes by another domain there.
        ((A, "login2"), [A], [("login1.inner", "10.0.0.1"), ("login2", "login2")], "login2", {A, "login1"}),
        # All that are called so, in the list and out of it.
        ((A, B), ["login1"], [(A, A), (B, B), ("login2", "login2")], "login2", {A, B, "login1"}),
        (("login2",), ["login1"], [(A, A), (B, B), ("login2", "login2")], "login2", {"login1"}),
    ],
)
def test_nodes_of_two_domains(
    configured: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    listed: tuple[str, ...],
    named: list[str],
    theirs: list[Names],
    node: str,
    told: set[str],
) -> None:
    """Who does not want the one is offered the other, and goes there."""
    (configured / "clusters.yaml").write_text(f"clusters: {{uni: [{', '.join(listed)}]}}\ndefault: uni\n")
    (configured / "config").write_text("Host *\n  ProxyJump gate\n")
    service = NamingService(*theirs)
    monkeypatch.setattr(hp_login, "_service", lambda api: service)
    assert main(["--dry-run", *(word for each in named for word in ("--not", each))]) == 0
    assert capsys.readouterr().out == f"{node}: it has room.\n"
    assert set(service.told()) == told


@pytest.mark.parametrize(
    ("listed", "service", "said"),
    [
        ("login1", None, "login1 (no service is asked)"),
        ("login1", NamingService(("login1", "login1.uni.example")), "login1"),
        ("", NamingService(("login1.uni.example", "10.0.0.1")), "login1"),
        ("login1", FakeService(UnreachableError("api is away")), "login1 (api is away)"),
        # What is unwanted is offered all the same.
        (
            "login1",
            FakeService({"nodes": []}, {"node": "login1", "address": "x", "why": ""}, ConflictError("all")),
            "login1 (all)",
        ),
    ],
)
def test_where_nothing_is_left_that_is_said(
    configured: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    listed: str,
    service: FakeService | None,
    said: str,
) -> None:
    """Nobody was tried: that no node answered would not be so."""
    (configured / "clusters.yaml").write_text(
        f"clusters: {{uni: [{listed}]}}\ndefault: uni\n" if listed else ""
    )
    monkeypatch.setattr(hp_login, "_service", lambda api: service)
    assert main(["--dry-run", "--not", "login1"]) == 2
    wrong = f"hp-login: --not leaves no login node: {said}; "
    assert capsys.readouterr().err == f"{wrong}name fewer nodes with --not\n"


def test_where_the_list_has_one_that_the_service_does_not_know_it_is_taken(
    configured: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A balancer, say, that the service has no name for."""
    (configured / "clusters.yaml").write_text("clusters: {uni: [login1, balancer]}\ndefault: uni\n")
    (configured / "config").write_text("Host *\n  ProxyJump gate\n")
    monkeypatch.setattr(hp_login, "_service", lambda api: NamingService(("login1", "login1")))
    assert main(["--dry-run", "--not", "login1"]) == 0
    assert capsys.readouterr().out.startswith("balancer: the first that answers")


def test_without_a_name_nothing_is_asked() -> None:
    def resolve(node: str) -> str:
        raise AssertionError(node)

    assert not avoided([], ("login1",), resolve).has(["login1"])
    with pytest.raises(UsageError, match="is no login node"):
        avoided(["-oProxyCommand=x"], ("login1",), resolve)

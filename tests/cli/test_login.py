"""`hpctools login`: what is asked of the service, and what people read."""

from __future__ import annotations

import json
import re
import signal
import time
from collections.abc import Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from hpctools.budget.service import MissingError
from hpctools.cli import login, login_drain, login_forget, login_nlb, login_text
from hpctools.errors import HpctoolsError, UnreachableError, UsageError
from hpctools.login.nlb import Group, Steps
from tests.login.agent.made_agent import FakeService

SITE = Path(__file__).parents[2] / "slurm-conf/examples/university/site.yaml"
NODE = {
    "name": "login-1", "address": "login-1", "state": "up", "heard_seconds_ago": 4, "sessions": 12,
    "placed": 1, "users": 9, "cpus": 16, "cpu": 0.25, "memory": 0.5, "unlimited": False, "why": "",
}  # fmt: skip
DRAINED = {**NODE, "name": "login-2", "state": "draining", "why": "new kernel", "heard_seconds_ago": None}


class FastClock:
    """Time passes when somebody waits."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def monotonic(self) -> float:
        return self.seconds

    def time(self) -> float:
        return time.time() + self.seconds

    def sleep(self, seconds: float) -> None:
        self.seconds += seconds


def session(number: int, user: str, **words: Any) -> dict[str, Any]:
    since = datetime.fromtimestamp(time.time() - 3700, timezone.utc).isoformat().replace("+00:00", "Z")
    fixed = {"node": "login-1", "kind": "ssh", "origin": "192.0.2.7", "since": since, "ending": False}
    return {"id": number, "user": user, **fixed, **words}


def call(monkeypatch: pytest.MonkeyPatch, service: FakeService, *words: str) -> tuple[str, int]:
    """What a command prints, and its exit code; our errors come through."""
    for module in (login, login_drain, login_forget, login_nlb):
        monkeypatch.setattr(module, "find_service", lambda environment: service)
    done = CliRunner().invoke(login.login, list(words))
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done.output, done.exit_code


def test_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    assert call(monkeypatch, FakeService({"nodes": [NODE, DRAINED]}), "nodes") == (
        "NODE     STATE     SESSIONS  USERS  CPU  MEMORY  HEARD    WHY\n"
        "login-1  up        12        9      25%  50%     4 s ago\n"
        "login-2  draining  12        9      25%  50%     never    new kernel\n",
        0,
    )
    assert call(monkeypatch, FakeService({"nodes": [DRAINED]}), "nodes")[1] == 1
    told, code = call(monkeypatch, FakeService({"nodes": [NODE]}), "nodes", "--json")
    assert (json.loads(told), code) == ({"nodes": [NODE]}, 0)
    assert "does hp-login-agent run there?" in call(monkeypatch, FakeService({"nodes": []}), "nodes")[0]


def test_sessions_of_all_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    first = {"sessions": [session(7, "nlp1")], "next": "a+b"}
    second = {"sessions": [session(8, "nlp1", ending=True, kind="ssm", origin="")], "next": None}
    service = FakeService(first, second)
    told, _ = call(monkeypatch, service, "sessions", "--user", "nlp1")
    assert [line.split() for line in told.splitlines()] == [
        ["SESSION", "USER", "NODE", "KIND", "FOR", "FROM"],
        ["7", "nlp1", "login-1", "ssh", "1", "h", "1", "min", "192.0.2.7"],
        ["8", "nlp1", "login-1", "ssm", "1", "h", "1", "min", "ending"],
    ]
    assert [path for _, path, _ in service.asked] == [
        "/v1/login/sessions?user=nlp1&limit=1000",
        "/v1/login/sessions?user=nlp1&cursor=a%2Bb&limit=1000",
    ]


def test_what_others_wrote_commands_no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """A node's agent tells where somebody came from; whoever drains a node says why."""
    other = session(7, "nlp1\x1b[8m", origin="\x1b]0;title\x07", node="login-1\nlogin-2")
    lists = {
        "sessions": {"sessions": [other], "next": None},
        "nodes": {"nodes": [NODE, {**DRAINED, "why": "\x1b[2Jnew kernel\u202e"}]},
    }
    for words, answer in lists.items():
        told, _ = call(monkeypatch, FakeService(answer), words)
        assert all(line.isprintable() for line in told.splitlines()), told
    assert "\\x1b[2Jnew kernel" in told
    told, _ = call(monkeypatch, FakeService(other), "end", "7")
    assert told.startswith("session 7 of nlp1\\x1b[8m on login-1\\nlogin-2 will end")
    here = {"node": "login-1", "state": "draining", "draining": True, "why": "\x1b[2J", "cpu": 0, "memory": 0}
    told = login_text.status({**here, "service_answers": True, "sessions": []}, 0.0)
    assert told == "login-1: draining (\\x1b[2J), CPU 0%, memory 0%\nNo sessions.\n"


def test_sessions_are_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    service = FakeService(session(7, "nlp1"))
    assert call(monkeypatch, service, "end", "7") == ("session 7 of nlp1 on login-1 will end\n", 0)
    assert service.asked == [("DELETE", "/v1/login/sessions/7", None)]


def test_a_session_that_is_gone_keeps_no_other_open(monkeypatch: pytest.MonkeyPatch) -> None:
    """The ones after it stayed, and of those before it nothing was said."""
    service = FakeService(session(7, "nlp1"), MissingError("refuses (404)"), session(9, "nlp2"))
    monkeypatch.setattr(login, "find_service", lambda environment: service)
    done = CliRunner().invoke(login.login, ["end", "7", "8", "9"])
    ended = [f"session {number} of {user} on login-1 will end" for number, user in ((7, "nlp1"), (9, "nlp2"))]
    assert done.output.splitlines() == ended
    assert isinstance(done.exception, MissingError)
    assert done.exception.message == "there is no session 8 that you may end"
    service = FakeService(session(7, "nlp1"), UnreachableError("no answer"))
    done = CliRunner().invoke(login.login, ["end", "7", "8"])
    assert (done.output.splitlines(), done.exit_code) == (ended[:1], 1)


def test_a_drain_without_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    service = FakeService({"node": "login-1"}, {"node": "login-1"}, {"nodes": [NODE]})
    told = call(monkeypatch, service, "drain", "login-1", "--message", "new\x1bkernel")
    assert told == ("login-1 takes no new sessions\n", 0)
    body = {"draining": True, "why": "newkernel"}
    assert service.asked == [("PUT", "/v1/login/nodes/login-1/drain", body)]
    assert call(monkeypatch, service, "undrain", "login-1") == ("login-1 takes sessions again\n", 0)
    assert service.asked[1][2] == {"draining": False, "why": ""}


def test_a_node_that_is_drained_by_its_own_word_stays_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was said to take sessions again."""
    nodes = {"nodes": [{**NODE, "name": "login-2"}, {**NODE, "name": "login-1", "state": "draining"}]}
    told = call(monkeypatch, FakeService({"node": "login-1"}, nodes), "undrain", "login-1")
    here = "there is a word of its own, to be taken back on it: hpctools login undrain --here"
    assert told == (f"login-1 is no longer drained by the service, and still drained: {here}\n", 0)


def test_a_node_that_nobody_has_heard_of_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mostly its name is another one; it is drained before it comes all the same."""
    warning = "hpctools: warning: no node called login-1.uni has told of itself"
    for words, done in (("drain", "takes no new sessions"), ("undrain", "takes sessions again")):
        service = FakeService({"node": "login-1.uni", "known": False}, {"nodes": []})
        told, code = call(monkeypatch, service, words, "login-1.uni")
        assert (code, warning in told, f"login-1.uni {done}\n" in told) == (0, True, True)


def test_a_drain_that_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tmux that nobody looks at does not count."""
    clock = FastClock()
    monkeypatch.setattr(login_drain, "time", clock)
    tmux = session(9, "nlp2", kind="tmux")
    there, left = ({"sessions": each, "next": None} for each in ([session(7, "nlp1"), tmux], [tmux]))
    silent, heard = ({"nodes": [{**NODE, "heard_seconds_ago": ago}]} for ago in (60, 2))
    # Nobody is seen first while the node is silent, and then the node says so itself.
    service = FakeService({"node": "login-1"}, there, left, left, silent, left, heard)
    told, code = call(monkeypatch, service, "drain", "login-1", "--wait", "--json")
    found = json.loads(told)
    assert code == 0
    assert {**found, "seconds": 0} == {
        "node": "login-1", "at_first": 1, "left_by_themselves": 1, "ended": 0, "left": 0, "seconds": 0,
        "silent": False,
    }  # fmt: skip
    assert clock.monotonic() == 15.0


@pytest.mark.parametrize(
    ("state", "last"),
    [
        (
            {"state": "draining", "why": "new kernel (sessions ...)"},
            ("PUT", {"draining": True, "why": "new kernel"}),
        ),
        ({"state": "up", "why": ""}, ("GET", None)),
    ],
    ids=["drained", "given back"],
)
def test_when_nobody_waits_any_more_no_deadline_is_promised(
    monkeypatch: pytest.MonkeyPatch, state: dict[str, str], last: tuple[str, Any]
) -> None:
    """And a node that somebody gave back meanwhile is not drained again for that."""
    clock = FastClock()
    monkeypatch.setattr(login_drain, "time", clock)
    there = {"sessions": [session(7, "nlp1")], "next": None}
    drained = {"node": "login-1"}
    service = FakeService(drained, there, there, {"nodes": [{**NODE, **state}]}, drained)
    options = ("--message", "new kernel", "--deadline", "2h", "--timeout", "5s")
    told, code = call(monkeypatch, service, "drain", "login-1", "--wait", *options)
    assert (code, "1 still there" in told) == (1, True)
    said = r"new kernel \(sessions that are left are ended (on \d+ \w+ )?at \d\d:\d\d \S+, within 2 hours\)"
    assert re.fullmatch(said, service.asked[0][2]["why"])
    assert (service.asked[-1][0], service.asked[-1][2]) == last


@pytest.mark.parametrize("ending", [signal.SIGHUP, signal.SIGTERM])
def test_a_waiting_that_is_ended_from_outside_promises_no_deadline_either(
    monkeypatch: pytest.MonkeyPatch, ending: signal.Signals
) -> None:
    """A terminal that is closed sends it, and its shell once more."""
    clock = FastClock()

    def end(seconds: float) -> None:
        signal.raise_signal(ending)
        signal.raise_signal(ending)

    monkeypatch.setattr(clock, "sleep", end)
    monkeypatch.setattr(login_drain, "time", clock)
    there = {"sessions": [session(7, "nlp1")], "next": None}
    drained = {"nodes": [{**NODE, "state": "draining", "why": "new kernel"}]}
    service = FakeService({"node": "login-1"}, there, drained, {"node": "login-1"})
    before = signal.signal(ending, lambda *_: None)
    try:
        words = ("drain", "login-1", "--wait", "--deadline", "2h", "--message", "new kernel")
        assert call(monkeypatch, service, *words)[1] == 128 + ending
    finally:
        signal.signal(ending, before)
    assert service.asked[-1][2] == {"draining": True, "why": "new kernel"}


def test_a_message_that_people_would_not_be_told_all_of_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its end was cut off, and with it the deadline."""
    service = FakeService({"node": "login-1"})
    words = ("drain", "login-1", "--message", "x" * 450)
    with pytest.raises(UsageError, match="has 450 characters, and people can be told 400, as the deadline"):
        call(monkeypatch, service, *words, "--wait", "--deadline", "2h")
    assert call(monkeypatch, service, *words)[1] == 0
    with pytest.raises(UsageError, match="501 characters, and people can be told 500"):
        call(monkeypatch, service, "drain", "login-1", "--message", "x" * 501)


def test_a_drain_here_tells_json_too(monkeypatch: pytest.MonkeyPatch) -> None:
    found = {"node": "login-1", "sessions": [{}], "draining": True}
    monkeypatch.setattr(login_drain, "ask_agent", lambda path, question: found)
    told, _ = call(monkeypatch, FakeService(), "drain", "--here", "--json", "--message", "disk")
    assert json.loads(told) == {"node": "login-1", "draining": True, "why": "disk", "sessions": 1}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("drain",), "which node"),
        (("drain", "login-1", "--deadline", "2h"), "are for --wait"),
        (("drain", "login-1", "--wait", "--deadline", "soon"), "no time"),
        (("drain", "login-1", "--message", "x" * 501), "the message has 501 characters"),
        (("drain", "--here", "--wait"), "not for --here"),
        (("drain", "login-2", "--here"), "--here is this very node, and login-2 is named"),
        (("undrain", "login-2", "--here"), "--here is this very node, and login-2 is named"),
        (("undrain",), "which node"),
        (("nlb", "--target-group", "arn:aws:nothing"), "no ARN of a target group"),
    ],
)
def test_words_that_make_no_sense(
    monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        call(monkeypatch, FakeService({}), *words)


@pytest.mark.parametrize(
    ("text", "seconds"), [("90", 90), ("90s", 90), ("30m", 1800), ("2h", 7200), ("1d", 86400)]
)
def test_times(text: str, seconds: float) -> None:
    assert login_drain.seconds_of(text) == seconds


def test_the_agent_of_this_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UnreachableError, match="no agent answers"):
        login_drain.ask_agent(tmp_path / "nothing", {"ask": "status"})

    def refuse(path: Path, question: Mapping[str, Any]) -> Mapping[str, Any]:
        return {"error": "only root may ask this"}

    monkeypatch.setattr("hpctools.login.agent.listening.ask_door", refuse)
    with pytest.raises(HpctoolsError, match="only root may ask this; ask as root"):
        login_drain.ask_agent(tmp_path, {"ask": "drain"})


def test_files_of_a_site(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    site = tmp_path / "site.yaml"
    site.write_text(
        SITE.read_text().replace("\nlogin:\n", "\nlogin:\n  haproxy: {port: 2222}\n  care: {cpus: 2}\n")
    )
    out = tmp_path / "out"
    told, code = call(monkeypatch, FakeService({}), "render", str(site), "--out", str(out))
    assert (told, code) == (f"{out}/haproxy.cfg\n{out}/login-agent.yaml\n{out}/login-sshd.conf\n", 0)
    assert "    server login-2 login-2:22\n" in (out / "haproxy.cfg").read_text()
    assert "care:\n  cpus: 2" in (out / "login-agent.yaml").read_text()
    assert "\nMaxStartups 300:30:600\n" in (out / "login-sshd.conf").read_text()


def test_nodes_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    service = FakeService({"node": "login-1"})
    told = call(monkeypatch, service, "forget", "login-1", "ip-10-0-0-5")
    assert told == ("login-1 is forgotten\nip-10-0-0-5 is forgotten\n", 0)
    assert service.asked == [
        ("DELETE", "/v1/login/nodes/login-1", None), ("DELETE", "/v1/login/nodes/ip-10-0-0-5", None),
    ]  # fmt: skip
    told = call(monkeypatch, service, "forget", "login-1", "--json")
    assert told == ('{"forgotten": ["login-1"]}\n', 0)


class FakeAws:
    """A target group with one target, 10.0.0.4."""

    def __init__(self) -> None:
        self.done: list[tuple[str, str]] = []

    def service(self, name: str) -> FakeAws:
        assert name == "elbv2"
        return self

    def ask(self, operation: str, **words: Any) -> dict[str, Any]:
        if operation == "describe_target_groups":
            return {"TargetGroups": [{"TargetType": "ip", "VpcId": "vpc-1"}]}
        if operation == "describe_target_health":
            healthy = {"Target": {"Id": "10.0.0.4", "Port": 22}, "TargetHealth": {"State": "healthy"}}
            return {"TargetHealthDescriptions": [healthy]}
        self.done.append((operation, words["Targets"][0]["Id"]))
        return {}


ARN = "arn:aws:elasticloadbalancing:eu-central-1:123456789012:targetgroup/login/0123456789abcdef"


def test_a_balancer_is_brought_in_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """What nodes tell of themselves is enough; a node that tells a name only is said, and ends with 1."""
    aws = FakeAws()
    monkeypatch.setattr("hpctools.hyperpod.operations.aws.connect", lambda region: aws)
    found = [
        {**NODE, "address": "10.0.0.1"},
        {**NODE, "name": "login-2", "address": "10.0.0.2", "state": "silent", "heard_seconds_ago": 90},
        {**DRAINED, "name": "login-3"},
    ]
    left = {"address": "10.0.0.4", "node": "login-1", "left_seconds_ago": 119}
    service = FakeService({"nodes": found, "former": [left]})
    told = call(monkeypatch, service, "nlb", "--target-group", ARN)
    assert told == ("login-1 (10.0.0.1) registered\n", 0), "the address may be its own again in a moment"
    service = FakeService({"nodes": found, "former": [{**left, "left_seconds_ago": 120}]})
    told = call(monkeypatch, service, "nlb", "--target-group", ARN)
    assert told[0].endswith("login-1 (10.0.0.4) deregistered: its sessions stay for a while\n")
    assert aws.done[1:] == [("register_targets", "10.0.0.1"), ("deregister_targets", "10.0.0.4")]
    told = call(monkeypatch, FakeService({"nodes": [NODE]}), "nlb", "--target-group", ARN, "--dry-run")
    assert told == (
        "login-1: login-1 is no address that a target group takes; say it: --target login-1=ADDRESS\n", 1,
    )  # fmt: skip


def test_what_a_balancer_step_says() -> None:
    steps = Steps((("login-1", "10.0.0.1"),), (("login-2", "10.0.0.2"),), kept="login-3")
    assert login_nlb.text(steps, Group("ip"), dry_run=True) == (
        "login-1 (10.0.0.1) would be registered\n"
        "login-2 (10.0.0.2) would be deregistered: its sessions stay for a while\n"
        "login-3 stays although it is drained: nobody could log in without it\n"
    )
    assert login_nlb.text(Steps(), Group("ip"), dry_run=False) == "all is in step\n"

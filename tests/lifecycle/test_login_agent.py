"""82-login-agent: the agent's files, the service's token, the unit; on login nodes of sites that want it."""

import json
from collections.abc import Callable

import pytest

from hpctools import conf
from hpctools.cli.hyperpod_bundle import bundle_of
from hpctools.login.agent.settings import read_settings
from hpctools.site import loads
from tests.lifecycle.node import LOGIN, WORKER, Node
from tests.lifecycle.world import NOTE, SITE, SYSTEMCTL
from tests.login.test_login_systemd import UNIT

from provision.login_agent import PROGRAM  # isort: skip

ARN = "arn:aws:secretsmanager:eu-west-1:123456789012:secret:login-token-AbCdEf"
WORD = "hpct_0123456789abcdef"
AGENT = f"""\
login:
  silent_after: 00:01:00
  agent: {{service: "https://api.uni.example", token: {{aws_secret: "{ARN}"}}}}
"""
AWS = """\
echo "aws $*" >>"$STAND_IN/calls"
[ ! -e "$STAND_IN/denied" ] || { echo "$(cat "$STAND_IN/secret")"; echo AccessDeniedException >&2; exit 254; }
cat "$STAND_IN/secret"
"""
TOKEN, ENVIRONMENT = "/etc/hpctools/login-token", "/etc/hpctools/login-agent.env"
UNIT_FILE = "/etc/systemd/system/hp-login-agent.service"


def told(text: str = AGENT) -> dict[str, object]:
    """The settings that a bundle brings to the nodes."""
    made = bundle_of(loads(SITE + text), None, conf.Facts())
    found: dict[str, object] = json.loads(made.file("site/settings.json").content)
    return found


def prepared(node: Node, text: str = AGENT) -> Node:
    node.only_steps("82-login-agent")
    node.settings = told(text)
    node.write("/stand-in/calls", "")
    node.write("/stand-in/secret", f"{WORD}\n")
    node.write(PROGRAM, "#!/bin/sh\n", 0o755)
    node.stand_in("systemctl", NOTE + SYSTEMCTL)
    node.stand_in("aws", AWS)
    return node


def started(node: Node) -> list[str]:
    return [call for call in node.calls("systemctl") if "is-active" not in call]


def said(node: Node) -> str:
    return str(node.events()) + node.path("/stand-in/calls").read_text()


def test_a_login_node_gets_its_agent_once(make_node: Callable[[str], Node]) -> None:
    node = prepared(make_node(LOGIN))
    assert node.run("--check").returncode == 1
    assert node.run().returncode == 0
    assert node.run("--check").returncode == 0
    before = node.files()
    assert node.run().returncode == 0
    assert node.files() == before

    assert before[TOKEN[1:]] == f"600 {WORD}\n"
    assert before[UNIT_FILE[1:]] == f"644 {UNIT.read_text()}"
    environment = node.path(ENVIRONMENT).read_text().splitlines()
    assert environment[1:] == [
        "HPCTOOLS_API=https://api.uni.example",
        f"HPCTOOLS_API_TOKEN_FILE={TOKEN}",
        f"HPCTOOLS_API_TOKEN_SOURCE={ARN}",
        f"HPCTOOLS_LOGIN_ADDRESS={LOGIN}",
    ]
    assert read_settings(node.path("/etc/hpctools/login-agent.yaml")).every == 20
    assert started(node) == [
        f"systemctl {each}" for each in ("daemon-reload", "enable hp-login-agent", "restart hp-login-agent")
    ]
    assert len(node.calls("aws")) == 1
    assert WORD not in said(node)


def test_the_unit_starts_the_program_that_is_looked_for() -> None:
    assert f"ExecStart={PROGRAM}\n" in UNIT.read_text()


@pytest.mark.parametrize("address", [LOGIN, WORKER])
def test_nothing_happens_elsewhere(make_node: Callable[[str], Node], address: str) -> None:
    """On a login node of a site that wants no agent, and on a worker of one that does."""
    node = prepared(make_node(address), "" if address == LOGIN else AGENT)
    before = node.files()
    assert node.run().returncode == 0
    assert (node.files(), node.calls()) == (before, [])


def test_pam_asks_the_agent_that_is_set_up() -> None:
    def socket(text: str) -> object:
        access = told(text)["access"]
        assert isinstance(access, dict)
        return access["login"]["agent_socket"]

    assert socket(AGENT) == "/run/hpctools-login/agent.sock"
    assert socket("") == ""
    assert socket(f"{AGENT}access: {{login: {{session_hook: /opt/uni/asked}}}}\n") == ""


@pytest.mark.parametrize(
    ("path", "text", "mode"),
    [(TOKEN, f"{WORD}\n", 0o644), (TOKEN, "", 0o600), (ENVIRONMENT, "HPCTOOLS_API=https://other\n", 0o644)],
)
def test_what_was_changed_is_put_right(
    make_node: Callable[[str], Node], path: str, text: str, mode: int
) -> None:
    node = prepared(make_node(LOGIN))
    assert node.run().returncode == 0
    right = node.files()
    node.write(path, text, mode)
    assert node.run("--check").returncode == 1
    assert node.run().returncode == 0
    assert node.files() == right
    assert "systemctl stop hp-login-agent" in started(node)


def test_another_secret_is_fetched_and_the_agent_started_with_it(make_node: Callable[[str], Node]) -> None:
    node = prepared(make_node(LOGIN))
    assert node.run().returncode == 0
    node.settings = told(AGENT.replace("login-token", "next-token"))
    node.write("/stand-in/secret", "hpct_next")
    assert node.run().returncode == 0
    assert node.path(TOKEN).read_text() == "hpct_next\n"
    assert started(node)[-1] == "systemctl restart hp-login-agent"


@pytest.mark.parametrize("at", [1, 3, 4, 6, 7])
def test_killed_at_any_call_it_is_finished_by_the_next_run(make_node: Callable[[str], Node], at: int) -> None:
    """Also while it changes an agent that runs: an old one never looks like the new one."""
    node = prepared(make_node(LOGIN))
    assert node.run().returncode == 0
    node.settings = told(AGENT.replace("api.uni", "new.uni").replace("login-token", "next-token"))
    node.write("/stand-in/secret", "hpct_next")
    node.write("/stand-in/calls", "")
    node.run(KILL_AT=str(at))
    if node.run("--check").returncode == 0:  # the runner was killed; the step itself may have gone on
        assert "systemctl restart hp-login-agent" in node.calls()
    assert node.run().returncode == 0
    assert node.path(TOKEN).read_text() == "hpct_next\n"
    assert "HPCTOOLS_API=https://new.uni.example\n" in node.path(ENVIRONMENT).read_text()


@pytest.mark.parametrize(("when", "code"), [("open", 0), ("refuse", 1)])
def test_a_token_that_may_not_be_read_leaves_the_agent_that_runs(
    make_node: Callable[[str], Node], when: str, code: int
) -> None:
    """The node goes on without an agent where the site lets people in then, and not where it refuses them."""
    node = prepared(make_node(LOGIN), f"{AGENT}  when_unreachable: {when}\n")
    assert node.run().returncode == 0
    node.path(TOKEN).unlink()
    node.write("/stand-in/denied", "")
    node.write("/stand-in/calls", "")
    assert node.run().returncode == code
    assert f"the secret {ARN} cannot be read: AccessDeniedException" in said(node)
    assert len(node.calls("aws")) == 4
    assert started(node) == []
    assert WORD not in said(node)


@pytest.mark.parametrize("secret", ["", "two words", '{"token": "x"}\nmore'])
def test_what_is_no_token_is_refused_and_not_shown(make_node: Callable[[str], Node], secret: str) -> None:
    node = prepared(make_node(LOGIN), f"{AGENT}  when_unreachable: refuse\n")
    node.write("/stand-in/secret", secret)
    assert node.run().returncode == 1
    assert len(node.calls("aws")) == 1, "trying again is of no use"
    assert f"{ARN} is no token" in said(node)
    assert not secret or secret.splitlines()[0] not in said(node)
    assert not node.path(TOKEN).exists()


def test_a_token_in_a_file_that_others_may_read_is_refused(make_node: Callable[[str], Node]) -> None:
    text = AGENT.replace(f'aws_secret: "{ARN}"', "file: /shared/root/token") + "  when_unreachable: refuse\n"
    node = prepared(make_node(LOGIN), text)
    place = node.write("/shared/root/token", f"{WORD}\n", 0o640)
    assert node.run().returncode == 1
    assert f"chmod 600 {place}" in said(node)
    place.chmod(0o600)
    assert node.run().returncode == 0
    assert node.files()[TOKEN[1:]] == f"600 {WORD}\n"
    assert node.calls("aws") == []
    assert WORD not in said(node)


def test_an_image_without_the_agent_is_told_what_it_lacks(make_node: Callable[[str], Node]) -> None:
    node = prepared(make_node(LOGIN), f"{AGENT}  when_unreachable: refuse\n")
    node.path(PROGRAM).unlink()
    assert node.run().returncode == 1
    assert f"there is no {PROGRAM}: put hpctools[login] into /opt/hpctools of the image" in said(node)
    assert node.calls("aws") == []


@pytest.mark.parametrize(
    "token", ["{}", f'{{file: /a, aws_secret: "{ARN}"}}', "{aws_secret: hpct_0123456789abcdef}"]
)
def test_a_site_says_where_the_token_is_in_one_way(token: str) -> None:
    with pytest.raises(Exception, match=r"either file or aws_secret|the ARN of a secret"):
        loads(f"{SITE}login: {{agent: {{service: 'https://a.example', token: {token}}}}}\n")

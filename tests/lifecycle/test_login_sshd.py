"""83-login-sshd: what sshd of a login node is told, judged and read again by a real sshd."""

import re
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from hpctools.login.sshd import configuration
from hpctools.sandbox import ports
from tests.lifecycle.node import LOGIN, WORKER, Node
from tests.lifecycle.test_login_agent import AGENT, told
from tests.lifecycle.world import NOTE
from tests.system.harness import until

FILE = "/etc/ssh/sshd_config.d/20-hpctools-login.conf"
LEFT = "/var/lib/hpctools-lifecycle/login-sshd-before.json"
INCLUDE = "Include {root}/etc/ssh/sshd_config.d/*.conf"
SSHD = """\
conf="$HPCTOOLS_ROOT/etc/ssh/sshd_config"
exec /usr/sbin/sshd "$@" -f "$conf"
"""
SYSTEMCTL = """\
[ "$1 $2" = "reload ssh" ] && [ ! -e "$STAND_IN/deaf" ] || exit 1
[ ! -e "$STAND_IN/sshd.pid" ] || kill -HUP "$(cat "$STAND_IN/sshd.pid")"
"""


def prepared(node: Node, text: str = AGENT, config: str = INCLUDE) -> Node:
    node.only_steps("83-login-sshd")
    node.settings = told(text)
    node.write("/stand-in/calls", "")
    key = node.write("/etc/ssh/made", "").with_name("ssh_host_ed25519_key")
    subprocess.run(["ssh-keygen", "-q", "-N", "", "-t", "ed25519", "-f", key], check=True, timeout=30)
    pid = f"PidFile {node.root}/stand-in/sshd.pid\nHostKey {key}\n"
    node.write("/etc/ssh/sshd_config", config.format(root=node.root) + "\n" + pid)
    node.stand_in("sshd", NOTE + SSHD)
    node.stand_in("systemctl", NOTE + SYSTEMCTL)
    # No sshd goes without this folder, which systemd makes for the first one of a machine.
    Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
    return node


def said(node: Node) -> str:
    return "\n".join(str(event.get("message")) for event in node.events("output"))


@contextmanager
def running(node: Node) -> Iterator[Callable[[], str]]:
    """A real sshd with the node's files; gives what its title says of places."""
    config = str(node.path("/etc/ssh/sshd_config"))
    where = ["-o", "ListenAddress=127.0.0.1", "-p", str(ports.choose(["sshd"])["sshd"])]
    process = subprocess.Popen(["/usr/sbin/sshd", "-D", "-q", "-f", config, *where])

    def places() -> str:
        title = Path(f"/proc/{process.pid}/cmdline").read_text()
        found = re.search(r"of (\S+) startups", title)
        return found[1] if found else ""

    try:
        until(lambda: (places() and node.path("/stand-in/sshd.pid").exists()) or None)
        yield places
    finally:
        process.terminate()
        process.wait(20)


def test_an_sshd_that_runs_goes_by_it_and_the_second_run_does_nothing(
    make_node: Callable[[str], Node],
) -> None:
    node = prepared(make_node(LOGIN))
    with running(node) as places:
        assert places() == "10-100"
        assert node.run("--check").returncode == 1
        assert node.run().returncode == 0
        until(lambda: places() == "300-600" or None)
        assert node.run("--check").returncode == 0
        before, calls = node.files(), node.calls()
        assert node.run().returncode == 0
    assert (node.files(), node.calls()) == (before, calls)
    assert before[FILE[1:]] == f"644 {configuration()}"
    assert node.calls("systemctl") == ["systemctl reload ssh"]


@pytest.mark.parametrize("address", [LOGIN, WORKER])
def test_nothing_happens_elsewhere(make_node: Callable[[str], Node], address: str) -> None:
    """On a login node of a site whose nodes set nothing up, and on a worker of one whose login nodes do."""
    node = prepared(make_node(address), "" if address == LOGIN else AGENT)
    before = node.files()
    assert node.run().returncode == 0
    assert (node.files(), node.calls()) == (before, [])


@pytest.mark.parametrize("before", ["", "# by hand\nMaxStartups 20\n"])
def test_what_sshd_refuses_is_taken_back(make_node: Callable[[str], Node], before: str) -> None:
    """The node goes on as it was: sshd is not told to read a file that would end it."""
    node = prepared(make_node(LOGIN))
    section: Any = node.settings["login_sshd"]
    section["text"] += "NoSuchWord yes\n"
    if before:
        node.write(FILE, before, 0o600)
    there = node.files()
    assert node.run().returncode == 0, "the step is not required"
    assert node.files() == there
    assert not node.path(LEFT).exists()
    assert "sshd refuses its files with" in said(node)
    assert "NoSuchWord" in said(node)
    assert "which is as before" in said(node)
    assert node.calls("systemctl") == []
    assert node.run("--check").returncode == 1


@pytest.mark.parametrize("by_hand", ["", "MaxStartups 20\n"])
@pytest.mark.parametrize("at", [1, 2, 3])
def test_killed_at_any_call_it_is_finished_by_the_next_run(
    make_node: Callable[[str], Node], at: int, by_hand: str
) -> None:
    """Also between the file and the reload: a file that sshd has not read does not count."""
    node = prepared(make_node(LOGIN))
    if by_hand:
        node.write(FILE, by_hand)
    with running(node) as places:
        node.run(KILL_AT=str(at))
        if node.run("--check").returncode == 0:  # the runner was killed; the step itself may have gone on
            assert node.calls("systemctl")
        assert node.run().returncode == 0
        until(lambda: places() == "300-600" or None)
        assert node.run("--check").returncode == 0


def test_what_was_there_before_a_kill_comes_back_when_sshd_refuses(make_node: Callable[[str], Node]) -> None:
    node = prepared(make_node(LOGIN))
    section: Any = node.settings["login_sshd"]
    node.write(FILE, "NoSuchWord yes\n")
    node.write(LEFT, '{"text": "MaxStartups 20\\n", "mode": 384}')
    section["text"] += "NoSuchWord yes\n"
    assert node.run().returncode == 0
    assert node.files()[FILE[1:]] == "600 MaxStartups 20\n"


def test_an_sshd_that_is_not_told_stays_to_do(make_node: Callable[[str], Node]) -> None:
    node = prepared(make_node(LOGIN))
    node.write("/stand-in/deaf", "")
    assert node.run().returncode == 0
    assert "neither ssh nor sshd reloads" in said(node)
    assert node.run("--check").returncode == 1
    node.path("/stand-in/deaf").unlink()
    assert node.run().returncode == 0
    assert node.run("--check").returncode == 0


def test_an_sshd_that_reads_no_such_folder_is_told_what_to_write(make_node: Callable[[str], Node]) -> None:
    node = prepared(make_node(LOGIN), config="MaxStartups 10")
    assert node.run().returncode == 0
    assert f"/etc/ssh/sshd_config with `Include {node.path(FILE).parent}/*.conf`" in said(node)
    assert not node.path(FILE).exists()
    assert node.calls("systemctl") == []


def test_a_site_that_says_otherwise_in_sshd_config_hears_of_it(make_node: Callable[[str], Node]) -> None:
    """Of MaxStartups sshd takes the last word."""
    node = prepared(make_node(LOGIN), config=f"{INCLUDE}\nMaxStartups 20:30:40")
    assert node.run().returncode == 0
    assert "another file tells sshd maxstartups 20:30:40, which counts instead of 300:30:600" in said(node)
    assert node.run("--check").returncode == 0

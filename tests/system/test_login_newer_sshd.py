"""Login nodes with the sshd of each release's Debian: from 9.8 on sessions have a program of their own
(sshd-session), PAM's service is a setting, and who is refused too often is kept waiting by their address."""

from __future__ import annotations

import re
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.system.harness import until
from tests.system.login_rig import LoginRig, login_nodes

pytestmark = [pytest.mark.releases, pytest.mark.slow, pytest.mark.timeout(300)]
PLAIN, EXEMPT = "front-1", "front-2"
LIMIT_SAID = "you have 2 sessions on the login nodes, and the limit is 2:"
MANY = 12
"""Refused logins: sshd begins to punish at 15 s, and reckons up to 5 s for each."""


class Penalties(LoginRig):
    """Nodes whose sshd punishes addresses as it does by itself; but for one, where ours is exempt."""

    def _named(self, service: str) -> list[str]:
        usual = super()._named(service)
        exempt = ["-o", "PerSourcePenaltyExemptList=127.0.0.0/8"] if service == f"sshd-{EXEMPT}" else []
        return [*usual[:2], *exempt] if usual else []


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory, site_file: Path, slurm_release: str) -> Iterator[LoginRig]:
    if not slurm_release:
        pytest.skip("this machine's own sshd has all the other tests of login nodes")
    folder, nodes = tmp_path_factory.mktemp("login"), dict.fromkeys((PLAIN, EXEMPT), "open")
    with login_nodes(folder, site_file, slurm_release, nodes, Penalties) as made:
        yield made


@pytest.fixture(autouse=True)
def _leave(rig: LoginRig) -> Iterator[None]:
    yield
    rig.leave()
    until(lambda: rig.service.ask("GET", "/v1/login/sessions")["sessions"] == [] or None, 60)


def test_it_is_a_newer_one(rig: LoginRig) -> None:
    with socket.create_connection(("127.0.0.1", rig.ports[f"sshd-{EXEMPT}"]), 20) as connection:
        said = connection.recv(255).decode()
    found = re.match(r"SSH-2\.0-OpenSSH_(\d+)\.(\d+)", said)
    assert found, said
    assert tuple(map(int, found.groups())) >= (9, 8)


def test_sessions_are_counted_listed_and_ended(rig: LoginRig) -> None:
    session, _ = (rig.stay(f"sshd-{node}", "nlp1") for node in (EXEMPT, PLAIN))
    rig.until_known("nlp1", 2)
    assert LIMIT_SAID in rig.ssh(f"sshd-{EXEMPT}", "nlp1", "id").stderr
    assert rig.ssh(f"sshd-{EXEMPT}", "nlp2", "id -un").stdout == "nlp2\n"
    (number,) = [number for node, number in rig.service.sessions("nlp1") if node == EXEMPT]
    assert rig.service.ask("DELETE", f"/v1/login/sessions/{number}")["ending"]
    assert session.wait(60) == 255
    until(lambda: rig.ssh(f"sshd-{EXEMPT}", "nlp1", "id -un").stdout == "nlp1\n" or None, 60)


def test_who_is_refused_often_is_kept_waiting_unless_their_address_is_exempt(rig: LoginRig) -> None:
    """And the node stays in service: its agent, whose address is punished, too, knows better."""
    for node in (EXEMPT, PLAIN):
        rig.stay(f"sshd-{node}", "nlp1")
    rig.until_known("nlp1", 2)
    said = [rig.ssh(f"sshd-{EXEMPT}", "nlp1", "id").stderr for _ in range(MANY)]
    assert [text for text in said if LIMIT_SAID not in text] == []
    said = [rig.ssh(f"sshd-{PLAIN}", "nlp1", "id").stderr for _ in range(MANY)]
    assert LIMIT_SAID in said[0]
    assert LIMIT_SAID not in said[-1], said
    looks = time.monotonic() + 5 * rig.every
    while time.monotonic() < looks:  # of its agent, while its address is kept waiting
        assert set(rig.up()) == {PLAIN, EXEMPT}
        time.sleep(rig.every / 5)

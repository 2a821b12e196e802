"""Where a node is found: what was stated for it, else what the kernel's route says."""

from __future__ import annotations

import ipaddress
import socket
from pathlib import Path

import pytest

from hpctools.login.agent import address
from hpctools.login.agent.address import VARIABLE, finder, route_address
from hpctools.login.agent.daemon import make_agent
from hpctools.login.agent.from_site import agent_settings
from hpctools.login.agent.settings import Settings
from hpctools.site import load
from tests.login.agent.made_agent import FakeService

SITE = Path(__file__).parents[3] / "slurm-conf/examples/university/site.yaml"


class FakeSocket:
    """A UDP socket of a machine with these addresses, by family; without a route there is none."""

    def __init__(self, addresses: dict[int, str], family: int) -> None:
        self.addresses, self.family = addresses, family

    def __enter__(self) -> FakeSocket:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def connect(self, _: tuple[str, int]) -> None:
        if self.family not in self.addresses:
            raise OSError(101, "Network is unreachable")

    def getsockname(self) -> tuple[str, int]:
        return self.addresses[self.family], 40000


@pytest.mark.parametrize(
    ("addresses", "found"),
    [
        ({socket.AF_INET: "10.0.0.5", socket.AF_INET6: "fd00::5"}, "10.0.0.5"),
        ({socket.AF_INET6: "fd00::5"}, "fd00::5"),
        ({socket.AF_INET: "127.0.0.1"}, ""),
        ({socket.AF_INET6: "fe80::1%eth0"}, ""),
        ({socket.AF_INET6: "fd00::5%eth0"}, ""),
        ({socket.AF_INET: "169.254.7.7", socket.AF_INET6: "fd00::5"}, "fd00::5"),
        ({}, ""),
    ],
)
def test_the_route_says_which_address_a_node_has(
    monkeypatch: pytest.MonkeyPatch, addresses: dict[int, str], found: str
) -> None:
    monkeypatch.setattr(address.socket, "socket", lambda family, kind: FakeSocket(addresses, family))
    assert route_address() == found


def test_the_real_route_is_an_address_or_nothing() -> None:
    found = route_address()
    assert found == "" or not ipaddress.ip_address(found).is_loopback


def test_what_is_stated_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(address, "route_address", lambda: "10.9.9.9")
    told, stated = {VARIABLE: "10.0.0.7"}, Settings(addresses={"login-1": "10.0.0.1"})
    assert finder(stated.model_copy(update={"address": "login-1.uni.example"}), "login-1", told)() == (
        "login-1.uni.example"
    )
    assert finder(stated, "login-1", told)() == "10.0.0.1"
    assert finder(stated, "login-2", told)() == "10.0.0.7"
    assert finder(stated, "login-2", {})() == "10.9.9.9"


def test_the_service_is_told_the_address_of_the_site_file(tmp_path: Path) -> None:
    site = tmp_path / "site.yaml"
    text = SITE.read_text()
    assert text.count("    role: login\n") == 1
    site.write_text(text.replace("    role: login\n", '    role: login\n    addresses: "10.0.0.[5-6]"\n'))
    settings = agent_settings(load(site)).model_copy(update={"node": "login-2", "state": str(tmp_path)})
    service = FakeService({"taken": True, "draining": False, "why": "", "end": []})
    agent = make_agent(settings.model_copy(update={"sshd_port": 0}), service)
    agent.look()
    ((_, _, body),) = service.asked
    assert body is not None
    assert body["address"] == "10.0.0.6"

"""The address of ours that gloo tells the others: one that leads to the node itself is none for them."""

from __future__ import annotations

import socket
from collections.abc import Callable

import pytest

from hpctools.elastic.networks import gloo_host, resolved, source_towards

ADDRESSES = {"a": "10.0.0.1", "b": "10.0.0.2", "10.0.0.2": "10.0.0.2", "c": "192.168.7.3"}
ROUTES = {"10.0.0.1": "10.0.0.9", "10.0.0.2": "10.0.0.8", "192.168.7.3": "192.168.7.1"}


def resolve_on(*ours: str) -> Callable[[str], str | None]:
    """How names are looked up on a node on which these lead to itself."""
    return lambda name: None if name in ours else ADDRESSES.get(name)


def chosen(host: str, members: list[str], *ours: str) -> str:
    return gloo_host(host, lambda: members, resolve_on(*ours), ROUTES.get)


def test_where_our_name_leads_to_ourselves_it_is_our_address_on_the_way_to_another() -> None:
    assert chosen("a", ["a", "b"], "a") == "10.0.0.8"
    assert chosen("b", ["a", "b"], "b") == "10.0.0.9"
    assert chosen("a", ["a", "a", "10.0.0.2"], "a") == "10.0.0.8", "others beside us on the node"
    assert chosen("a", ["a", "unknown", "c"], "a") == "192.168.7.1"
    assert chosen("unknown", ["unknown", "b"]) == "10.0.0.8", "only the others know our name"


def test_without_a_way_to_one_it_is_that_to_the_next() -> None:
    way = {"192.168.7.3": "192.168.7.1"}
    assert gloo_host("a", lambda: ["a", "b", "c"], resolve_on("a"), way.get) == "192.168.7.1"


def test_where_all_are_on_this_machine_it_is_what_they_are_told() -> None:
    assert chosen("a", ["a", "a"], "a") == "a"
    assert gloo_host("127.0.0.1", lambda: ["127.0.0.1"] * 2) == "127.0.0.1"


def test_the_others_are_not_asked_where_our_name_leads_to_the_network() -> None:
    def asked() -> list[str]:
        pytest.fail("nobody needs to be asked")

    assert gloo_host("a", asked, resolve_on(), ROUTES.get) == "a"
    assert gloo_host("10.0.0.7", asked) == "10.0.0.7"


@pytest.mark.parametrize("address", ["127.0.1.1", "127.0.0.2"])
def test_a_name_with_a_loopback_address_leads_nowhere(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "gethostbyname", lambda name: address)
    assert resolved("n1") is None


def test_a_name_that_nobody_knows_leads_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(name: str) -> str:
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(socket, "gethostbyname", fail)
    assert resolved("n1") is None


def test_the_way_is_that_of_the_system_s_routes() -> None:
    assert source_towards("127.0.0.5") == "127.0.0.1"
    assert source_towards("255.255.255.255") is None, "what it refuses is no way"

"""Where a node listens, and what it tells the others: an address that leads to itself is none for them."""

from __future__ import annotations

import socket

import pytest

from hpctools.elastic.protocol import own_address


@pytest.mark.parametrize("address", ["127.0.1.1", "127.0.0.1", "127.0.0.2", "127.255.0.9", "::1"])
def test_a_loopback_address_is_told_nobody(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Debian and SUSE give a node's own name such ones; others would find themselves there."""
    monkeypatch.setattr(socket, "gethostname", lambda: "n1")
    monkeypatch.setattr(socket, "gethostbyname", lambda name: address)
    assert own_address() == ("0.0.0.0", "n1")


def test_an_address_of_its_own_is_listened_on_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: "n1")
    monkeypatch.setattr(socket, "gethostbyname", lambda name: "10.0.0.7")
    assert own_address() == ("10.0.0.7", "10.0.0.7")


def test_a_name_that_does_not_resolve_is_told_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(name: str) -> str:
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(socket, "gethostname", lambda: "n1")
    monkeypatch.setattr(socket, "gethostbyname", fail)
    assert own_address() == ("0.0.0.0", "n1")

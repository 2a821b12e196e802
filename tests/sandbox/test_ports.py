"""Ports: held from others until their servers listen, and whose they are."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from hpctools.sandbox import ports


def _server(port: int) -> socket.socket:
    """As slurmctld, sshd, MariaDB and moto bind: with SO_REUSEADDR."""
    server = socket.socket()
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    server.bind(("127.0.0.1", port))
    server.listen()
    return server


def _namespace() -> str:
    return str(Path(f"/proc/{os.getpid()}/ns/pid").readlink())


def test_who_chooses_later_never_gets_a_port_that_is_held_though_no_server_listens_yet(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with ports.Hold() as first, ports.Hold() as second:
        ours = first.choose(["slurmctld"])["slurmctld"]
        monkeypatch.setattr(ports, "RANGE", range(ours, ours + 40))
        assert ours not in second.choose(["moto", "sshd", "api"]).values()


def test_a_held_port_lets_its_server_in() -> None:
    with ports.Hold() as held:
        port = held.choose(["moto"])["moto"]
        with _server(port), socket.create_connection(("127.0.0.1", port), timeout=5):
            assert not ports.is_free(port)


def test_known_ports_are_kept_but_those_of_somebody_else_are_named() -> None:
    known = ports.choose(["slurmctld", "moto"])
    with _server(known["moto"]), ports.Hold() as held:
        assert held.keep(known) == ["moto"]
        with ports.Hold() as other:
            assert other.keep(known) == ["moto"], "a port that is held lets who knows it in"


def test_a_port_is_free_again_when_nobody_holds_it() -> None:
    with ports.Hold() as held:
        port = held.choose(["moto"])["moto"]
    with socket.socket() as other:
        other.bind(("127.0.0.1", port))


def test_a_listener_in_another_namespace_is_not_ours() -> None:
    port = ports.choose(["moto"])["moto"]
    assert not ports.listens(port, _namespace())
    with _server(port):
        assert ports.listens(port, _namespace())
        assert not ports.listens(port, "pid:[1]")

"""The agent's figures as Prometheus reads them."""

from __future__ import annotations

import socket
from collections.abc import Iterable
from socketserver import TCPServer
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client import CollectorRegistry, make_wsgi_app
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from hpctools.login.agent.capped import Cap, CappedServer
from hpctools.login.agent.figures import Figures


class _Agent(Collector):
    def __init__(self, figures: Figures) -> None:
        self._figures = figures

    def collect(self) -> Iterable[Metric]:
        """The figures of now."""
        for name, help_text, value in self._figures.gauges():
            yield GaugeMetricFamily(f"hpctools_login_{name}", help_text, value=value)
        for name, help_text, value in self._figures.counters():
            yield CounterMetricFamily(f"hpctools_login_{name}", help_text, value=value)
        sessions = GaugeMetricFamily("hpctools_login_sessions", "Open sessions.", labels=("kind",))
        for kind, count in self._figures.sessions().items():
            sessions.add_metric((kind,), count)
        yield sessions


class _Quiet(WSGIRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        """Prometheus asks four times a minute."""


class _Server(CappedServer, WSGIServer):
    # Of the usual 5, a burst leaves the others to knock again after whole seconds.
    request_queue_size = 128
    cap = Cap(seconds=5.0, most=16)

    def server_bind(self) -> None:
        """Take the port, and ask no name server what this machine is called: one that hangs holds up all."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])
        self.setup_environ()


class _ServerSix(_Server):
    address_family = socket.AF_INET6


def metrics_server(address: str, port: int, figures: Figures) -> WSGIServer:
    """Answers Prometheus, once it is `hpctools.login.agent.capped.started`.

    Raises:
        OSError: the port cannot be had.
    """
    registry = CollectorRegistry()
    registry.register(_Agent(figures))
    kind = _ServerSix if ":" in address else _Server
    return make_server(address, port, make_wsgi_app(registry), kind, _Quiet)

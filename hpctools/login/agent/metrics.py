"""The agent's figures as Prometheus reads them."""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

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


def serve_metrics(address: str, port: int, figures: Figures) -> int:
    """Answer Prometheus; the port that it is answered on.

    Raises:
        OSError: the port cannot be had.
    """
    registry = CollectorRegistry()
    registry.register(_Agent(figures))
    server, _ = start_http_server(port, address, registry)
    return int(server.server_address[1])

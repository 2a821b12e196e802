"""What Prometheus is told: requests as they are answered, and the state of the books when it asks."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Literal

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.metrics_core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from sqlalchemy import Engine

from api.services.health import Health, read_health
from api.services.login_overview import LoginFigures
from hpctools.budget.month import Month, day_of, day_start
from hpctools.errors import SiteError, UnreachableError
from hpctools.login.limits import Refused
from hpctools.login.placement import Nowhere

Question = Literal["place", "lease"]

_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0)


class Metrics:
    """The figures of one application."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._login = Counter(
            "hpctools_api_login_answers",
            "What was answered to who wants a place on a login node, and to nodes that ask for a lease.",
            ("question", "answer"),
            registry=self.registry,
        )
        self._requests = Histogram(
            "hpctools_api_request_seconds",
            "Time until a request was answered.",
            ("method", "route", "status"),
            buckets=_BUCKETS,
            registry=self.registry,
        )

    def answered(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count an answer.

        Args:
            route: the path's template: names of accounts would make a series each.
        """
        self._requests.labels(method, route, str(status)).observe(seconds)

    def login_answered(self, question: Question, found: object) -> None:
        """Count what somebody was answered who wants to log in.

        Args:
            found: the refusal, if it is one; anything else is what they asked for.
        """
        answer = "granted"
        if isinstance(found, Refused):
            answer = f"over-{found.limit}"
        elif isinstance(found, Nowhere):
            answer = "nowhere"
        self._login.labels(question, answer).inc()

    def text(self, engine: Engine, metric: str, now: int, login: Callable[[], LoginFigures]) -> bytes:
        """All figures as Prometheus reads them.

        Args:
            login: the figures of login nodes as they are now.
        """
        return generate_latest(self.registry) + generate_latest(_books(engine, metric, now, login))


class _Books(Collector):
    """Figures out of the database."""

    def __init__(self, engine: Engine, metric: str, now: int, login: Callable[[], LoginFigures]) -> None:
        self._login = login
        self._engine = engine
        self._metric = metric
        self._now = now

    def collect(self) -> Iterable[Metric]:
        """The figures; of a database that is away only that it is."""
        month = Month.of(day_of(self._now))
        up = GaugeMetricFamily("hpctools_api_database_up", "1 when the database answers.")
        try:
            health = read_health(self._engine, self._metric, month)
            login = self._login_figures()
        except UnreachableError:
            up.add_metric((), 0)
            yield up
            return
        up.add_metric((), 1)
        yield up
        yield from self._of(health)
        yield from _login_nodes(login)

    def _login_figures(self) -> LoginFigures:
        """Of a site file that cannot be read nothing: the rest is told all the more."""
        try:
            return self._login()
        except SiteError:
            return LoginFigures({}, {})

    def _of(self, health: Health) -> Iterable[Metric]:
        ended = GaugeMetricFamily(
            "hpctools_api_reconcile_age_seconds",
            "Time since the present month was reconciled without an error.",
        )
        if health.done_at is not None:
            ended.add_metric((), self._now - health.done_at)
        yield ended
        took = GaugeMetricFamily(
            "hpctools_api_reconcile_seconds", "How long the last reconciliation that ended took."
        )
        if health.took is not None:
            took.add_metric((), health.took)
        yield took
        outcomes = GaugeMetricFamily(
            "hpctools_api_reconciliations",
            "Reconciliations in the store by what became of them.",
            labels=("state",),
        )
        for state, count in health.counts.items():
            outcomes.add_metric((state,), count)
        yield outcomes
        yield from self._bill(health)

    def _bill(self, health: Health) -> Iterable[Metric]:
        age = GaugeMetricFamily(
            "hpctools_api_bill_age_seconds", "Time since the end of the last day that the month's bill has."
        )
        if health.billed_through is not None:
            age.add_metric((), max(0, self._now - day_start(health.billed_through) - 86400))
        yield age
        coverage = GaugeMetricFamily(
            "hpctools_api_coverage_ratio", "Part of the month's node time whose bill has arrived."
        )
        if health.coverage is not None:
            coverage.add_metric((), health.coverage)
        yield coverage


def _login_nodes(figures: LoginFigures) -> Iterable[Metric]:
    nodes = GaugeMetricFamily("hpctools_api_login_nodes", "Login nodes by state.", labels=("state",))
    for state, count in figures.states.items():
        nodes.add_metric((state,), count)
    yield nodes
    leases = GaugeMetricFamily(
        "hpctools_api_login_leases",
        "What counts on a login node now: sessions by ssh and Session Manager (ssm), tmux that nobody looks "
        "at, and places that are held (placed).",
        labels=("node", "kind"),
    )
    for (node, kind), count in figures.leases.items():
        leases.add_metric((node, kind), count)
    yield leases


def _books(engine: Engine, metric: str, now: int, login: Callable[[], LoginFigures]) -> CollectorRegistry:
    registry = CollectorRegistry()
    registry.register(_Books(engine, metric, now, login))
    return registry

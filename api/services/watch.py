"""One round of watching budgets: what runs, what is to be told, what is to be enforced."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from sqlalchemy import Engine

from api.services.alerts import raise_alerts
from api.services.budgets import Change
from api.services.burning import RecentJobs, measure
from api.services.channels import Mail, Sns, Webhook
from api.services.delivery import Channel, Delivered, deliver
from api.services.enforcement import Limits, Planned, apply
from api.settings import Settings
from hpctools.budget.tree import BudgetSite
from hpctools.errors import HpctoolsError, UsageError


@dataclass(frozen=True)
class Watched:
    """What a round did.

    Attributes:
        alerts: how many are new.
        enforced: None where the service does not enforce by itself.
    """

    alerts: int
    delivered: Delivered
    enforced: Planned | None


@dataclass(frozen=True)
class Watcher:
    """What a round needs.

    Attributes:
        channels: ways for alerts, by name.
        slurm: the cluster whose limits are changed; None to change none.
    """

    engine: Engine
    jobs: RecentJobs
    channels: Mapping[str, Channel] = field(default_factory=dict)
    slurm: Limits | None = None

    def look(self, site: BudgetSite, now: int) -> Watched:
        """Measure, tell, enforce; each part that was done stays done when a later one fails.

        Without slurmdbd it is told what the bill says; limits are left alone.

        Raises:
            UnreachableError: slurmdbd or the database does not answer.
            CommandError: Slurm refuses a change.
            BudgetError: somebody else enforces right now, or Slurm is not as it was told.
        """
        away = self._measure(site, now)
        alerts = raise_alerts(self.engine, site, now)
        delivered = deliver(self.engine, self.channels, now)
        if away is not None:
            raise away
        enforced = None
        if self.slurm is not None:
            change = Change("the service", now, "its budgets say so")
            enforced = apply(self.engine, site, self.slurm, change)
        return Watched(alerts, delivered, enforced)

    def _measure(self, site: BudgetSite, now: int) -> HpctoolsError | None:
        try:
            measure(self.engine, site, self.jobs, now)
        except HpctoolsError as error:
            return error
        return None


def channels(settings: Settings) -> dict[str, Channel]:
    """The ways that the settings open.

    Raises:
        UsageError: the webhooks' key cannot be read.
    """
    found: dict[str, Channel] = {"sns": Sns()}
    if settings.smtp_host:
        found["mail"] = Mail(settings.smtp_host, settings.smtp_port, settings.mail_from)
    found["webhook"] = Webhook(_key(settings), settings.webhook_inside)
    return found


def _key(settings: Settings) -> bytes:
    path = settings.webhook_key_file
    if path is None:
        return b""
    try:
        return path.read_bytes().strip()
    except OSError as error:
        raise UsageError(
            f"cannot read the webhooks' key {path}: {error.strerror}", "set HPCTOOLS_API_WEBHOOK_KEY_FILE"
        ) from None

"""Sessions as AWS tells of them: in events of CloudTrail's, and in its list of those that are open."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol


class Ssm(Protocol):
    """AWS's ssm (`hpctools.hyperpod.operations.aws.Service`)."""

    def ask(self, operation: str, **arguments: Any) -> dict[str, Any]:
        """Ask for one thing; raises HpctoolsError."""

    def pages(self, operation: str, **arguments: Any) -> Iterator[dict[str, Any]]:
        """The pages of an answer; raises HpctoolsError."""


@dataclass(frozen=True)
class Started:
    """A session that somebody started.

    Attributes:
        owner: the ARN of who asked for it.
        origin: from where; empty when AWS does not tell.
        document: name or ARN of the document that it was started with; empty for the account's own shell.
        since: Unix seconds; None where AWS does not tell: just now.
    """

    id: str
    target: str
    owner: str
    origin: str = ""
    document: str = ""
    since: float | None = None


def active_sessions(ssm: Ssm) -> tuple[Started, ...]:
    """The sessions that are open, the oldest first.

    Raises:
        HpctoolsError: AWS refuses or does not answer.
    """
    pages = ssm.pages("describe_sessions", State="Active")
    found: Iterable[Mapping[str, Any]] = (each for page in pages for each in page["Sessions"])
    listed = [_listed(each) for each in found]
    return tuple(sorted(listed, key=lambda each: (each.since or 0.0, each.id)))


def _listed(told: Mapping[str, Any]) -> Started:
    since = told.get("StartDate")
    return Started(
        told["SessionId"],
        told.get("Target", ""),
        told.get("Owner", ""),
        document=told.get("DocumentName", ""),
        since=since.timestamp() if isinstance(since, datetime) else None,
    )


def started_by(event: Mapping[str, Any]) -> Started | None:
    """The session of a StartSession event of CloudTrail's, from EventBridge; None for other events."""
    detail = event.get("detail") or {}
    answer = detail.get("responseElements") or {}
    if detail.get("eventName") != "StartSession" or not answer.get("sessionId"):
        return None  # a StartSession that AWS denied has no session
    asked = detail.get("requestParameters") or {}
    return Started(
        str(answer["sessionId"]),
        str(asked.get("target", "")),
        str((detail.get("userIdentity") or {}).get("arn", "")),
        str(detail.get("sourceIPAddress", "")),
        str(asked.get("documentName") or ""),
        _moment(detail.get("eventTime")),
    )


def _moment(told: object) -> float | None:
    """Unix seconds of a time as events have it; one may come hours late, as Lambda tries again."""
    try:
        return datetime.fromisoformat(str(told).replace("Z", "+00:00")).timestamp()
    except ValueError:
        return None

"""Session Manager sessions get leases as those over SSH do; one too many is ended.

A StartSession event comes after the fact: a session over the limit lives for some seconds. The sweep finds
what events have missed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from hpctools.errors import HpctoolsError, UnreachableError
from hpctools.login.names import claim_of

_log = logging.getLogger("hpctools.login")

Outcome = Literal["granted", "ended", "open without the service", "nobody knows whose", "no login node"]


class Ssm(Protocol):
    """AWS's ssm (`hpctools.hyperpod.operations.aws.Service`)."""

    def ask(self, operation: str, **arguments: Any) -> dict[str, Any]:
        """Ask for one thing; raises HpctoolsError."""

    def pages(self, operation: str, **arguments: Any) -> Iterator[dict[str, Any]]:
        """The pages of an answer; raises HpctoolsError."""


class LeaseService(Protocol):
    """The service that counts sessions."""

    def ask(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """Ask; raises HpctoolsError when it does not answer or refuses."""


@dataclass(frozen=True)
class Started:
    """A session that somebody started.

    Attributes:
        owner: the ARN of who asked for it.
        origin: from where; empty when AWS does not tell.
    """

    id: str
    target: str
    owner: str
    origin: str = ""


@dataclass(frozen=True)
class Enforcement:
    """What is done with sessions.

    Attributes:
        user_of: the Unix account of an owner's ARN; empty when nobody knows.
        node_of: the login node of a target; empty for targets that are none.
        when_unreachable: what becomes of sessions while the service does not answer.
    """

    ssm: Ssm
    service: LeaseService
    user_of: Callable[[str], str]
    node_of: Callable[[str], str]
    when_unreachable: Literal["open", "refuse"] = "open"

    def admit(self, session: Started) -> Outcome:
        """Ask for a session's lease, and end it when there is none for it.

        Raises:
            HpctoolsError: AWS does not end it; the event is to come again.
        """
        node, user = self.node_of(session.target), self.user_of(session.owner)
        if not node:
            return "no login node"
        if not user:
            _log.warning("%s: nobody knows which account %s is; it is not counted", session.id, session.owner)
            return "nobody knows whose"
        try:
            found = self.service.ask("POST", "/v1/login/leases", _lease(session, node, user))
        except UnreachableError as error:
            return self._without_service(session, error)
        except HpctoolsError as error:
            _log.error("%s: the service did not understand: %s", session.id, error)
            return "open without the service"
        if found["granted"]:
            return "granted"
        return self._end(session, str(found["message"]))

    def _without_service(self, session: Started, error: UnreachableError) -> Outcome:
        if self.when_unreachable == "refuse":
            return self._end(session, str(error))
        _log.warning("%s stays without a lease: %s", session.id, error)
        return "open without the service"

    def _end(self, session: Started, why: str) -> Outcome:
        _log.info("%s of %s is ended: %s", session.id, session.owner, " ".join(why.split()))
        self.ssm.ask("terminate_session", SessionId=session.id)
        return "ended"

    def sweep(self) -> Mapping[str, Outcome]:
        """Look at all sessions that are active, the oldest first; what became of each.

        Raises:
            HpctoolsError: AWS refuses or does not answer.
        """
        return {session.id: self.admit(session) for session in active_sessions(self.ssm)}


def _lease(session: Started, node: str, user: str) -> Mapping[str, Any]:
    origin = "".join(char for char in session.origin[:255] if " " <= char <= "~")
    return {"node": node, "claim": claim_of(session.id), "user": user, "kind": "ssm", "origin": origin}


def active_sessions(ssm: Ssm) -> tuple[Started, ...]:
    """The sessions that are open, the oldest first.

    Raises:
        HpctoolsError: AWS refuses or does not answer.
    """
    pages = ssm.pages("describe_sessions", State="Active")
    found: Iterable[Mapping[str, Any]] = (each for page in pages for each in page["Sessions"])
    ordered = sorted(found, key=lambda each: (str(each.get("StartDate", "")), each["SessionId"]))
    return tuple(Started(each["SessionId"], each["Target"], each.get("Owner", "")) for each in ordered)


def started_by(event: Mapping[str, Any]) -> Started | None:
    """The session of a StartSession event of CloudTrail's, from EventBridge; None for other events."""
    detail = event.get("detail") or {}
    answer = detail.get("responseElements") or {}
    if detail.get("eventName") != "StartSession" or not answer.get("sessionId"):
        return None  # a StartSession that AWS denied has no session
    return Started(
        str(answer["sessionId"]),
        str((detail.get("requestParameters") or {}).get("target", "")),
        str((detail.get("userIdentity") or {}).get("arn", "")),
        str(detail.get("sourceIPAddress", "")),
    )

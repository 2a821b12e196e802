"""Session Manager sessions get leases as those over SSH do; one too many is ended.

A StartSession event comes after the fact: a session over the limit lives for some seconds. The sweep finds
what events have missed. What the service refuses is ended a moment later only: until then the node's agent
tells the person why (docs/decisions/0182-sessions-of-session-manager.md).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol
from urllib.parse import quote

from hpctools.errors import HpctoolsError, UnreachableError
from hpctools.login.names import claim_of
from hpctools.login.session_manager.documents import only_forwards
from hpctools.login.session_manager.started import Ssm, Started, active_sessions

_log = logging.getLogger("hpctools.login")

Outcome = Literal[
    "granted",
    "ended",
    "an administrator's",
    "open without the service",
    "nobody knows whose",
    "no login node",
    "only forwards",
]

NOTICE_SECONDS = 15.0
"""So long a refused session goes on: agents report every ten seconds, and write what they hear."""
NEW_SECONDS = 300
"""Who came longer ago had a lease, or several sweeps have looked at them."""


class LeaseService(Protocol):
    """The service that counts sessions."""

    def ask(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """Ask; raises HpctoolsError when it does not answer or refuses."""


@dataclass(frozen=True)
class Absent:
    """A service that cannot be asked at all, since the token for it cannot be had."""

    error: HpctoolsError

    def ask(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """Raises what is in the way."""
        raise self.error


@dataclass(frozen=True)
class Enforcement:
    """What is done with sessions.

    Attributes:
        user_of: the Unix account of an owner's ARN; empty when nobody knows.
        node_of: the login node of a target; empty for targets that are none.
        when_unreachable: what becomes of sessions while the service does not answer, or refuses to.
        administrators: accounts whose sessions are never ended.
        forwarding: the site's own documents that only forward a port.
        notice: seconds from a refusal to the session's end.
        listed: targets of what the sweep before this one saw, and of what events have told of since, by
            session; kept up.
        wait: waits for so many seconds.
        clock: Unix seconds.
    """

    ssm: Ssm
    service: LeaseService
    user_of: Callable[[str], str]
    node_of: Callable[[str], str]
    when_unreachable: Literal["open", "refuse"] = "open"
    administrators: frozenset[str] = frozenset({"root"})
    forwarding: frozenset[str] = frozenset()
    notice: float = NOTICE_SECONDS
    wait: Callable[[float], object] = time.sleep
    clock: Callable[[], float] = time.time
    listed: dict[str, str] = field(default_factory=dict)

    def admit(self, session: Started) -> Outcome:
        """Ask for a session's lease, and end it when there is none for it.

        Raises:
            HpctoolsError: AWS does not say whose it is, or does not end it; the event is to come again.
        """
        work = _Round(self)
        work.settle([session])
        _raise_for(work.wrong)
        outcome = work.found[session.id]
        if outcome in ("granted", "an administrator's"):  # it may be over before any sweep sees it
            self.listed[session.id] = session.target
        return outcome

    def sweep(self) -> Mapping[str, Outcome]:
        """Look at all sessions that are active, the oldest first; what became of each.

        Raises:
            HpctoolsError: AWS does not list them; or, when all of them were looked at, AWS or the service
                refused something or did not answer.
        """
        work = _Round(self)
        active = active_sessions(self.ssm)
        counted = (each for each in active if not only_forwards(each.document, self.forwarding))
        now = {each.id: each.target for each in counted}
        # First, so that who has left one counts for what they have. A node without an agent says nothing.
        work.close({each: target for each, target in self.listed.items() if each not in now})
        self.listed.clear()
        self.listed.update(now)
        work.settle(active)
        _raise_for([*work.of_service, *work.wrong])
        return work.found


class _Round:
    """One look at sessions: what became of each, and what went wrong, which keeps no other from its turn."""

    def __init__(self, rules: Enforcement) -> None:
        self._rules = rules
        self._silence: UnreachableError | None = None
        self._why: dict[str, str] = {}  # by session
        self.found: dict[str, Outcome] = {}
        self.wrong: list[str] = []
        self.of_service: list[str] = []

    def settle(self, sessions: Sequence[Started]) -> None:
        """Look at sessions; those that the service refuses are asked for again a moment later, then ended.

        By then their node has told whether their owner is an administrator, and whether it lifts limits.
        """
        refused = [each for each in sessions if self._is_refused(each)]
        if refused:
            self._rules.wait(self._rules.notice)
        for each in refused:
            if self._is_refused(each):
                self._end(each)

    def close(self, over: Mapping[str, str]) -> None:
        """Have sessions that are over count no longer, by id with their targets.

        Without an answer they count for as long as their leases last: nothing is wrong.
        """
        for session, target in over.items():
            node = self._rules.node_of(target)
            if not node or self._silence is not None:
                continue
            try:
                path = f"/v1/login/leases/{quote(node, safe='')}/{quote(claim_of(session), safe='')}"
                self._rules.service.ask("DELETE", path)
            except UnreachableError as error:
                self._silence = error
            except HpctoolsError as error:  # its node has said so itself, mostly
                _log.debug("%s is over, and has no lease: %s", session, error)

    def _is_refused(self, session: Started) -> bool:
        """Whether the service refuses it; what else is so of it is noted down, or done."""
        node = self._rules.node_of(session.target)
        if only_forwards(session.document, self._rules.forwarding):
            self.found[session.id] = "only forwards"
        elif not node:
            self.found[session.id] = "no login node"
        elif user := self._user(session):
            return self._has_no_lease(session, node, user)
        return False

    def _user(self, session: Started) -> str:
        """The account; empty when nobody knows or AWS does not say."""
        try:
            user = self._rules.user_of(session.owner)
        except HpctoolsError as error:
            self.wrong.append(f"{session.id}: {error}")
            return ""
        if not user:
            self.found[session.id] = "nobody knows whose"
            _log.warning("%s: nobody knows which account %s is; it is not counted", session.id, session.owner)
        return user

    def _has_no_lease(self, session: Started, node: str, user: str) -> bool:
        spared = user in self._rules.administrators
        try:
            granted, message = self._ask(_lease(session, node, user))
        except HpctoolsError as error:
            self._without_service(session, error, spared=spared)
            return False
        if granted or spared:
            self.found[session.id] = "granted" if granted else "an administrator's"
            return False
        self._why[session.id] = why = " ".join(message.split())
        _log.info("%s of %s is refused: %s", session.id, session.owner, why)
        return True

    def _ask(self, lease: Mapping[str, Any]) -> tuple[bool, str]:
        """Whether there is a lease, and what is said; who did not answer is not waited for again."""
        if self._silence is not None:
            raise self._silence
        try:
            answer = self._rules.service.ask("POST", "/v1/login/leases", lease)
            granted = bool(answer["granted"])
            return granted, "" if granted else str(answer["message"])
        except UnreachableError as error:
            self._silence = error
            raise

    def _without_service(self, session: Started, error: HpctoolsError, *, spared: bool) -> None:
        """The site decides of those who have just come; who came before them has a lease, or had one."""
        if str(error) not in self.of_service:
            self.of_service.append(str(error))
        rules = self._rules
        is_new = session.since is None or rules.clock() - session.since < NEW_SECONDS
        if rules.when_unreachable == "refuse" and is_new and not spared:
            _log.error("%s of %s is refused without the service: %s", session.id, session.owner, error)
            self._why[session.id] = f"the service cannot be asked: {error}"
            self._end(session)
        else:
            _log.warning("%s stays without a lease: %s", session.id, error)
            self.found[session.id] = "open without the service"

    def _end(self, session: Started) -> None:
        try:
            self._rules.ssm.ask("terminate_session", SessionId=session.id)
        except HpctoolsError as error:
            self.wrong.append(f"{session.id}: {error}")
            return
        node, why = self._rules.node_of(session.target), self._why[session.id]
        _log.info("%s of %s on %s is ended: %s", session.id, session.owner, node, why)
        self.found[session.id] = "ended"
        self.close({session.id: session.target})


def _raise_for(wrong: Sequence[str]) -> None:
    if wrong:
        raise HpctoolsError(
            f"not all of Session Manager's sessions could be looked at or ended: {'; '.join(wrong)}",
            "the next sweep tries again; all others were looked at",
        )


def _lease(session: Started, node: str, user: str) -> Mapping[str, Any]:
    origin = "".join(char for char in session.origin[:255] if " " <= char <= "~")
    return {"node": node, "claim": claim_of(session.id), "user": user, "kind": "ssm", "origin": origin}

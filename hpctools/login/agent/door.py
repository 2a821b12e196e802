"""What programs of the node may ask the agent: a lease for PAM, a drain for root, how it stands for all."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from threading import Lock
from typing import Any, Literal

from hpctools.errors import HpctoolsError, UnreachableError
from hpctools.login.agent.agent import Agent
from hpctools.login.agent.processes import PROC, parse
from hpctools.login.agent.reporting import Service
from hpctools.login.names import user_of

_log = logging.getLogger("hpctools.login")
_ROOT = 0
_TRY_AGAIN = (
    "The service that counts sessions on login nodes does not answer, and this site lets nobody in without "
    "it. Please try again in some minutes."
)


class Door:
    """Answers questions of this node.

    Args:
        service: counts sessions over all nodes; None where the site has none.
        when_unreachable: whether people get in while it does not answer.
    """

    def __init__(
        self, agent: Agent, service: Service | None, when_unreachable: Literal["open", "refuse"] = "open"
    ) -> None:
        self._agent, self._service, self._when_unreachable = agent, service, when_unreachable
        self._granted: dict[str, str] = {}
        self._lock = Lock()  # many people log in at once, each in a thread

    def answer(self, question: Mapping[str, Any], uid: int) -> Mapping[str, Any]:
        """Answer one question of somebody's.

        Args:
            question: `ask` is `status`, and of root's programs also `drain`, `lease`, `closed`.
        """
        answers: Mapping[str, Callable[[Mapping[str, Any]], Mapping[str, Any]]] = {
            "drain": self._drain,
            "lease": self._lease,
            "closed": self._closed,
        }
        asked = str(question.get("ask"))
        if asked == "status":
            return self._agent.status()
        if asked not in answers:
            return {"error": f"there is no question {asked!r}"}
        if uid != _ROOT:
            return {"error": "only root may ask this"}
        return answers[asked](question)

    def _drain(self, question: Mapping[str, Any]) -> Mapping[str, Any]:
        self._agent.drain(draining=bool(question["draining"]), why=str(question.get("why", "")))
        return self._agent.status()

    def _closed(self, question: Mapping[str, Any]) -> Mapping[str, Any]:
        """Somebody has left: the service hears of it at once."""
        self._agent.wake.set()
        return {}

    def _lease(self, question: Mapping[str, Any]) -> Mapping[str, Any]:
        """Whether a session may begin, by `user` and `claim` (PID-START), for PAM."""
        user, claim = str(question["user"]), str(question["claim"])
        if self._service is None or self._agent.hands.lifts_limits() or self._agent.exempt(user):
            return {"granted": True, "message": ""}
        body = {
            "node": self._agent.name,
            "claim": claim,
            "user": user_of(user),
            "kind": "ssh",
            "origin": "".join(char for char in str(question.get("origin", ""))[:255] if " " <= char <= "~"),
            "living": list(self._living(user, claim)),
        }
        try:
            found = self._service.ask("POST", "/v1/login/leases", body)
        except UnreachableError as error:
            return self._without_service(user, error)
        except HpctoolsError as error:
            _log.error("the service did not understand a lease of %s, who gets in: %s", user, error)
            return {"granted": True, "message": ""}
        if found["granted"]:
            with self._lock:
                self._granted[claim] = user
        return {"granted": bool(found["granted"]), "message": str(found["message"])}

    def _without_service(self, user: str, error: UnreachableError) -> Mapping[str, Any]:
        granted = self._when_unreachable == "open"
        _log.warning("%s %s without a lease: %s", user, "gets in" if granted else "is refused", error)
        return {"granted": granted, "message": "" if granted else _TRY_AGAIN}

    def _living(self, user: str, claim: str) -> Sequence[str]:
        """The user's other sessions that are here at this moment: those of the last look, and newer ones."""
        sample = self._agent.sample
        seen = {each.key for each in sample.sessions if each.user == user} if sample else set()
        with self._lock:
            self._granted = {each: owner for each, owner in self._granted.items() if lives(each)}
            mine = seen | {each for each, owner in self._granted.items() if owner == user}
        return sorted(each for each in mine if each != claim and lives(each))


def lives(claim: str, proc: Path = PROC) -> bool:
    """Whether the very process that PID-START names is there; Session Manager's names are not looked at."""
    pid, _, start = claim.rpartition("-")
    if not pid.isdigit():
        return True
    try:
        return str(parse((proc / pid / "stat").read_text(errors="replace"), 0, "").started) == start
    except (OSError, ValueError):
        return False

"""What programs of the node may ask the agent: a lease for PAM, a drain for root, how it stands for all."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any, Literal

from hpctools.errors import HpctoolsError, UnreachableError
from hpctools.login.agent.agent import Agent, refusal
from hpctools.login.agent.claims import MOST, lives
from hpctools.login.agent.reporting import Service, printable
from hpctools.login.names import user_of

_log = logging.getLogger("hpctools.login")
_ROOT = 0
_TRY_AGAIN = (
    "The service that counts sessions on login nodes does not answer, and this site lets nobody in without "
    "it. Please try again in some minutes."
)
_REFUSES = (
    "The service that counts sessions on login nodes refuses this node's questions, and this site lets "
    "nobody in without it. Please tell your administrators: the log of hp-login-agent says why."
)


class Door:
    """Answers questions of this node.

    Args:
        service: counts sessions over all nodes; None where the site has none.
        when_unreachable: whether people get in while it does not answer, or understands no question.
    """

    def __init__(
        self, agent: Agent, service: Service | None, when_unreachable: Literal["open", "refuse"] = "open"
    ) -> None:
        self._agent, self._service, self._when_unreachable = agent, service, when_unreachable

    def answer(self, question: Mapping[str, Any], uid: int) -> Mapping[str, Any]:
        """Answer one question of somebody's.

        Args:
            question: `ask` is `status`, and of root's programs also `drain`, `lease`.
        """
        answers: Mapping[str, Callable[[Mapping[str, Any]], Mapping[str, Any]]] = {
            "drain": self._drain,
            "lease": self._lease,
        }
        asked = str(question.get("ask"))
        if asked == "status":
            return self._agent.status(uid)
        if asked not in answers:
            return {"error": f"there is no question {asked!r}"}
        if uid != _ROOT:
            return {"error": "only root may ask this"}
        return answers[asked](question)

    def _drain(self, question: Mapping[str, Any]) -> Mapping[str, Any]:
        self._agent.drain(draining=bool(question["draining"]), why=str(question.get("why", "")))
        return self._agent.status()

    def _lease(self, question: Mapping[str, Any]) -> Mapping[str, Any]:
        """Whether a session may begin, by `user` and `claim` (PID-START), for PAM; administrators' do.

        A drained node takes those only who have something here to come back to, once those who send people
        have had the time to notice.
        """
        user, claim = str(question["user"]), str(question["claim"])
        origin = printable(str(question.get("origin", "")))
        if self._agent.exempt(user):
            if self._service is not None:
                self._agent.enter(claim, user, origin)
            return {"granted": True, "message": ""}
        if self._agent.hands.lifts_limits():
            return {"granted": True, "message": ""}
        if self._agent.drain_file.has_lasted(self._agent.drain_notice) and not self._agent.has(user):
            return {"granted": False, "message": refusal(self._agent.name, self._agent.drain_file.now)}
        if self._service is None:
            return {"granted": True, "message": ""}
        self._agent.claims.ask(claim, user, origin)
        body = {
            "node": self._agent.name,
            "claim": claim,
            "user": user_of(user),
            "kind": "ssh",
            "origin": origin,
            "gone": self._gone(user, claim),
        }
        try:
            # Read once: a report of another thread's may settle it meanwhile.
            if (doubled := self._agent.reporter.doubled) is not None:  # it would count as the other machine's
                raise doubled
            found = self._service.ask("POST", "/v1/login/leases", body)
            answer = {"granted": bool(found["granted"]), "message": str(found["message"])}
        except UnreachableError as error:
            answer = self._without_service(user, error, _TRY_AGAIN)
        except HpctoolsError as error:
            self._agent.wake.set()  # whose report may find a token that holds
            answer = self._without_service(user, error, _REFUSES)
        if answer["granted"]:
            self._agent.admit(claim)
        return answer

    def _without_service(self, user: str, error: HpctoolsError, remedy: str) -> dict[str, Any]:
        granted = self._when_unreachable == "open"
        _log.warning("%s %s without a lease: %s", user, "gets in" if granted else "is refused", error)
        return {"granted": granted, "message": "" if granted else remedy}

    def _gone(self, user: str, claim: str) -> list[str]:
        """The user's other sessions that were here and are over, since the last look, too.

        Those that live are not told: of two that ask at the same moment neither could name the other.
        """
        sample = self._agent.sample
        seen = [each for each in sample.sessions if each.user == user] if sample else []
        # Session Manager's names may look like PID-START: the process that serves a session says it of all.
        ended = (each.key for each in seen if not lives(f"{each.pid}-{each.started}"))
        over = {*self._agent.claims.gone(user), *ended}
        return sorted(over - {claim})[-MOST:]

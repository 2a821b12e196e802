"""What the service is told of this node, and what it answers. One that is away costs nothing but its word."""

from __future__ import annotations

import logging
import math
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol
from urllib.parse import quote

from hpctools.errors import ConflictError, HpctoolsError, UnreachableError
from hpctools.login.agent.claims import Claims
from hpctools.login.agent.processes import started_at
from hpctools.login.agent.sample import Sample
from hpctools.login.agent.sessions import OpenSession, unattended
from hpctools.login.agent.untold import Untold
from hpctools.login.names import user_of

_log = logging.getLogger("hpctools.login")
_CLOSE_SECONDS = 2.0
"""So long ends are told one by one: who looks, or reports, waits meanwhile."""
MOST_SESSIONS = 1000
"""Of one person here, the oldest: more than any site's limit lets in, and few enough for a report."""


class Service(Protocol):
    """The service, asked over HTTP."""

    def ask(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """Ask; raises HpctoolsError when it does not answer or refuses."""


@dataclass(frozen=True)
class Self:
    """What a node tells of itself that no sample has.

    Attributes:
        name: Slurm's and people's name of the node.
        address: says where its sshd is; the service takes the name when it says nothing.
        administrators: whether this user is one.
    """

    name: str
    address: Callable[[], str] = str
    administrators: Callable[[str], bool] = lambda user: user == "root"


@dataclass(frozen=True)
class Heard:
    """What the service answered last.

    Attributes:
        end: keys of sessions that are to be ended.
        tell: why, for their owners, by key; not for those who wanted it themselves.
        drained: by the service's own word; None where an older service does not tell it.
    """

    draining: bool
    why: str
    end: tuple[str, ...]
    tell: Mapping[str, str] = field(default_factory=dict)
    drained: bool | None = None


class Reporter:
    """Tells the service of samples.

    Args:
        service: None where the site has none.
        monotonic: seconds, never going back.

    Attributes:
        doubled: why nothing that is said here counts: another machine has this node's name.
        untold: administrators' sessions that it has not heard of.
        heartbeat: seconds after a report for which its sessions count, as the service has it now.
    """

    def __init__(self, own: Self, service: Service | None, monotonic: Callable[[], float]) -> None:
        self._own, self._service, self._monotonic = own, service, monotonic
        self._agent = uuid.uuid4().hex
        self._sequence = 0
        self.untold = Untold(monotonic)
        self.silent_since: float | None = None
        self._said: type[HpctoolsError] | None = None
        self.doubled: ConflictError | None = None
        self.heartbeat = math.inf
        self.failures = 0
        self.reports = 0

    def report(
        self,
        sample: Sample,
        *,
        draining: bool,
        unlimited: bool,
        claims: Claims | None = None,
        closed: bool = False,
    ) -> Heard | None:
        """Tell it of a sample; what it says, None when it says nothing.

        Args:
            draining: drained on the node itself.
            unlimited: the node lifts all limits.
            claims: sessions that have asked to begin: they count before they look like one.
            closed: the node's sshd refuses people; an older service hears of it only then.
        """
        if self._service is None:
            return None
        self._sequence += 1
        body = self._body(sample) | {"draining": draining, "unlimited": unlimited}
        if closed:
            body["closed"] = True
        waiting = self.untold.claims  # before it is looked which sessions begin: later ones are not over
        if claims is not None:
            self._add_claims(body, claims)
        over = self._add_untold(body, waiting)
        try:
            path = f"/v1/login/nodes/{quote(self._own.name, safe='')}/report"
            answer = self._service.ask("PUT", path, body)
        except HpctoolsError as error:
            self._silent(error)
            return None
        heard, self.heartbeat = _heard(answer), float(answer.get("lease_seconds", self.heartbeat))
        self.reports += 1
        if self.silent_since is not None:
            _log.info("the service answers again")
        self.silent_since = self.doubled = self._said = None
        if heard is not None:
            self.untold.told(frozenset(each["claim"] for each in body["sessions"]))
            self.close(over)
        return heard

    def enter(self, claim: str, user: str, origin: str) -> None:
        """An administrator comes in by ssh: the next report that gets through tells of it, over or not."""
        self.untold.note([self._begun(claim, user, origin, 0.0)])

    def close(self, claims: Iterable[str]) -> bool:
        """Tell it that sessions are over; of what it does not hear now the next report tells.

        Returns:
            False: it is slow, and that report had better come soon.
        """
        if self._service is None or self.silent_since is not None:
            return True
        end = self._monotonic() + _CLOSE_SECONDS
        for claim in claims:
            if self._monotonic() > end:
                return False
            path = f"/v1/login/leases/{quote(self._own.name, safe='')}/{quote(claim, safe='')}"
            try:
                self._service.ask("DELETE", path)
            except UnreachableError:
                break  # who waits for it here is kept from the next report
            except HpctoolsError as error:  # 404: it had never heard of it
                _log.debug("the end of %s: %s", claim, error)
        return True

    def _silent(self, error: HpctoolsError) -> None:
        self.failures += 1
        self.doubled = error if isinstance(error, ConflictError) else None
        if self.silent_since is None:
            self.silent_since = self._monotonic()
        if self._said is not type(error):  # each kind once, not every few seconds
            self._said = type(error)
            _log.warning("the service cannot be told of this node; it goes on without: %s", error)

    def _body(self, sample: Sample) -> dict[str, Any]:
        return {
            "agent": self._agent,
            "sequence": self._sequence,
            "sample_age": max(0.0, round(self._monotonic() - sample.at, 3)),
            "address": self._own.address(),
            "cpus": sample.load.cpus,
            "cpu": round(sample.load.cpu, 3),
            "memory": round(sample.load.memory, 3),
            "sessions": [*self._sessions(sample.sessions, sample.now), *_multiplexers(sample)],
        }

    def _add_claims(self, body: dict[str, Any], claims: Claims) -> None:
        """What begins is counted before it looks like a session; what is over, also when no look saw it."""
        if over := claims.gone():
            body["gone"] = over
        for claim, age in claims.beginning({each["claim"] for each in body["sessions"]}):
            body["sessions"].append(self._begun(claim.key, claim.user, claim.origin, age))

    def _begun(self, claim: str, user: str, origin: str, age: float) -> dict[str, Any]:
        is_one = self._own.administrators(user)
        told = {"claim": claim, "user": user_of(user), "kind": "ssh", "origin": origin}
        return {**told, "age": age, "administrator": is_one}

    def _add_untold(self, body: dict[str, Any], waiting: frozenset[str]) -> list[str]:
        """Tell of administrators' sessions that are over, as if they were here; their claims.

        The trail has those that a report told of. The service hears at once that they are over.

        Args:
            waiting: claims that were untold before it was asked who is here.
        """
        here = {each["claim"] for each in body["sessions"]}
        self.untold.note(each for each in body["sessions"] if each.get("administrator"))
        over = self.untold.over(waiting - here)
        body["sessions"] += over
        return [each["claim"] for each in over]

    def _sessions(self, sessions: Iterable[OpenSession], now: float) -> Iterable[dict[str, Any]]:
        told: Counter[str] = Counter()
        for session in sessions:
            told[session.user] += 1
            if told[session.user] > MOST_SESSIONS:
                continue
            yield {
                "claim": session.key,
                "user": user_of(session.user),
                "kind": session.kind,
                "origin": printable(session.source),
                "age": max(0.0, now - session.since),
                "administrator": self._own.administrators(session.user),
            }


def _heard(answer: Mapping[str, Any]) -> Heard | None:
    """What was answered; None where the service knows a newer report, and says nothing of this one."""
    if not answer["taken"]:
        return None
    tell = {key: str(why) for key, why in answer.get("tell", {}).items()}  # an older service tells none
    own = answer.get("drained")
    drained = None if own is None else bool(own)
    return Heard(bool(answer["draining"]), str(answer["why"]), tuple(answer["end"]), tell, drained)


def printable(origin: str) -> str:
    """Where somebody came from, as the service takes it."""
    return "".join(char for char in origin[:255] if " " <= char <= "~")


def _multiplexers(sample: Sample) -> Iterable[dict[str, Any]]:
    """A tmux whose user has no session here that looks at it."""
    for process, user in unattended(sample.processes, sample.sessions):
        age = max(0.0, sample.now - started_at(process, sample.boot))
        yield {"claim": process.key, "user": user_of(user), "kind": "tmux", "age": age}

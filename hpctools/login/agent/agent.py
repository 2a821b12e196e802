"""The agent of a login node: it looks, tells the service, answers HAProxy and PAM, and cares for people."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from threading import Event, Lock
from typing import Any, Protocol

from hpctools.login.agent.accounts import user_name
from hpctools.login.agent.caring import Carer
from hpctools.login.agent.check_answer import check_answer
from hpctools.login.agent.claims import Claims
from hpctools.login.agent.drained import Drained, DrainFile, Word
from hpctools.login.agent.ends import FEW, Ends
from hpctools.login.agent.idle import Act, Watched, warning, watch
from hpctools.login.agent.own_sshd import OwnSshd, Standing
from hpctools.login.agent.own_terminals import own_terminals
from hpctools.login.agent.processes import Process
from hpctools.login.agent.reminding import Reminders
from hpctools.login.agent.reporting import Heard, Reporter
from hpctools.login.agent.sample import Sample, Sampler
from hpctools.login.agent.sessions import OpenSession, detached
from hpctools.login.agent.unasked import farewell, too_many, turned_away
from hpctools.login.placement import Node, Policy
from hpctools.site.login_care import IdleSessions

_log = logging.getLogger("hpctools.login")


Ended = OpenSession | Process


class Hands(Protocol):
    """What is done to people and their sessions."""

    def tell(self, terminals: Iterable[str], message: str, owner: int | None = None) -> object:
        """Write on terminals; on those of this account only, when one is given."""

    def typed_at(self, terminals: Iterable[str]) -> Mapping[str, float]:
        """When something was last typed, Unix seconds, by terminal."""

    def end(self, what: Ended) -> bool:
        """End a session, or a tmux or screen with all that runs in it; whether it was there."""

    def lifts_limits(self) -> bool:
        """Whether somebody has lifted all limits on this node."""


@dataclass
class Agent:
    """One login node's agent; `look` is called every few seconds, the rest at any time from other threads.

    Attributes:
        name: the node's.
        exempt: whose sessions are not closed for being idle.
        claims: sessions that have asked to begin.
        own_sshd: is asked whether it lets people in; it does when None.
        standing: what it said last.
        ends: hears from the kernel of sessions that end; they are seen by the next look when None.
        drain_notice: seconds for which people are still taken after a drain has begun.
        unsure: of whom nobody knows whether they are exempt: what they have just begun is left alone.
        sessions_per_user: that one person may have here while the service is away; no limit when None.
    """

    name: str
    policy: Policy
    sampler: Sampler
    reporter: Reporter
    drain_file: DrainFile
    hands: Hands
    exempt: Callable[[str], bool] = lambda user: user == "root"
    idle: IdleSessions | None = None
    carer: Carer | None = None
    sample: Sample | None = None
    own_sshd: OwnSshd | None = None
    standing: Standing = "open"
    drain_notice: float = 0.0
    sessions_per_user: int | None = None
    unsure: Callable[[str], bool] = lambda user: False
    ended: int = 0
    wake: Event = field(default_factory=Event)
    claims: Claims = field(default_factory=Claims)
    ends: Ends | None = None
    _reporting: Lock = field(default_factory=Lock)
    _watched: Mapping[str, Watched] = field(default_factory=dict)
    _told: frozenset[str] = frozenset()
    _farewells: frozenset[str] = frozenset()
    _unasked: frozenset[str] = frozenset()
    _turned_away: frozenset[str] = frozenset()
    _reminders: Reminders = field(default_factory=Reminders)

    def look(self) -> None:
        """Look at the node once, tell the service, and do what follows from both."""
        before = self.sample
        # What ends after the look is told after the report, which would have it open again.
        with self._reporting:
            self.sample = self.sampler.look()
            heard = self._report(self.sample)
        self._watch(self.sample)
        if heard is not None:
            self._obey(heard, self.sample)
        self._end_too_many(before, self.sample)
        self._turn_away(before, self.sample)
        self._announce(self.sample)
        if self.carer is not None and before is not None:
            self.carer.look(before, self.sample)
            notices = self.carer.notices(self.sample.at)
            for session, words in self._reminders.due(notices, self.sample.sessions):
                self._say(session, words)
        if self.idle is not None:
            self._close_idle(self.idle, self.sample)

    def _report(self, sample: Sample) -> Heard | None:
        if self.own_sshd is not None:
            self._see_sshd(self.own_sshd.look(sample.processes))
        return self.reporter.report(
            sample,
            draining=self.drain_file.now.here.draining,
            unlimited=self.hands.lifts_limits(),
            claims=self.claims,
            closed=self.standing != "open",
        )

    def admit(self, claim: str) -> None:
        """The session of this name (PID-START) may begin; from now on its end is heard."""
        self.claims.admit(claim)
        pid, _, started = claim.partition("-")
        if self.ends is not None and pid.isdigit() and started.isdigit():
            self.ends.watch(claim, int(pid), int(started))

    def enter(self, claim: str, user: str, origin: str) -> None:
        """An administrator's session begins; the service hears of it, however soon it ends."""
        self.claims.ask(claim, user, origin)
        self.admit(claim)
        self.reporter.enter(claim, user, origin)

    def _watch(self, sample: Sample) -> None:
        if self.ends is not None:
            for each in sample.sessions:
                self.ends.watch(each.key, each.pid, each.started)

    def leave(self, keys: Sequence[str]) -> None:
        """Sessions are over: the service hears of it now, of many by a report, which a look makes."""
        for key in keys:
            self.claims.end(key)
        if len(keys) > FEW:
            self.wake.set()
            return
        with self._reporting:
            all_told = self.reporter.close(keys)
        if not all_told:
            self.wake.set()

    def _see_sshd(self, standing: Standing) -> None:
        if standing != self.standing:
            _log.warning("this node's sshd is %s to people who connect", standing)
        self.standing = standing

    def _obey(self, heard: Heard, sample: Sample) -> None:
        if heard.drained is not None:
            self._hear(service=Word(heard.drained, heard.why))
        # Of an older service a node that is drained by its own word hears that back, and nothing else.
        elif not (heard.draining and not heard.why and self.drain_file.now.here.draining):
            self._hear(service=Word(heard.draining, heard.why))
        here: list[tuple[Ended, str]] = [(each, each.user) for each in sample.sessions]
        ending = [each for each in [*here, *detached(sample.processes)] if each[0].key in heard.end]
        for what, user in ending:
            self._end(what, user, heard.tell.get(what.key, ""))
        self._farewells = frozenset(what.key for what, _ in ending)

    def _end(self, what: Ended, user: str, why: str) -> None:
        """End a session as the service asks; who is to be told why is told now, and ended at the next look.

        What is written on a terminal goes through the process that is ended then.
        """
        if why and isinstance(what, OpenSession) and what.ttys and what.key not in self._farewells:
            self._say(what, why)
        elif self.hands.end(what):
            self.ended += 1
            _log.info("ended %s of %s, as the service asked", what.key, user)

    def _end_too_many(self, before: Sample | None, sample: Sample) -> None:
        """Keep the node's own limit for those who were never asked, while the service cannot keep its own."""
        for session in sample.sessions:
            if session.key in self._unasked and self.hands.end(session):
                self.ended += 1
                _log.info("ended %s of %s, one too many without the service", session.key, session.user)
        fresh: tuple[OpenSession, ...] = ()
        limit, is_away = self.sessions_per_user, self.reporter.silent_since is not None
        if limit is not None and is_away and before is not None and not self.hands.lifts_limits():
            known = {session.key for session in before.sessions} - self._unasked
            fresh = too_many(known, sample.sessions, limit, self._is_spared)
            for session in fresh:
                if session.key not in self._unasked:
                    self._say(session, farewell(self.name, limit))
        self._unasked = frozenset(session.key for session in fresh)

    def _turn_away(self, before: Sample | None, sample: Sample) -> None:
        """End sessions that Session Manager began on the drained node: told at one look, ended at the next.

        Only when the door refused those by ssh already; who was there at an agent's first look stays.
        """
        fresh: tuple[OpenSession, ...] = ()
        if before is not None and self.drain_file.now.draining and not self.hands.lifts_limits():
            seen = {session.key for session in before.sessions} - self._turned_away
            known = seen | self._farewells | self._unasked  # these are ended already
            fresh = turned_away(known, sample, self._was_drained(sample.at), self._is_spared)
        for session in fresh:
            if session.key not in self._turned_away:
                words = refusal(self.name, self.drain_file.now)
                self._say(session, f"{words} This session will be ended in some seconds.")
            elif self.hands.end(session):
                self.ended += 1
                _log.info("ended %s of %s, which began on the drained node", session.key, session.user)
        self._turned_away = frozenset(session.key for session in fresh)

    def _is_spared(self, user: str) -> bool:
        return self.exempt(user) or self.unsure(user)

    def _was_drained(self, at: float) -> Callable[[float], bool]:
        """Whether the door refused people already, so many seconds before a moment."""
        return lambda seconds: self.drain_file.has_lasted(self.drain_notice + seconds, at)

    def drain(self, *, draining: bool, why: str) -> None:
        """Drain this node by a word on the node itself, or take that back; the service hears of it next."""
        self._hear(here=Word(draining, why if draining else ""))
        self.wake.set()

    def _hear(self, **words: Word) -> None:
        try:
            before, now = self.drain_file.hear(**words)
        except OSError as error:
            _log.error("the drain will not be remembered over a restart: %s", error)
            return
        if before.draining != now.draining:
            _log.info("%s", f"drained: {now.why}" if now.draining else "takes sessions again")

    def _announce(self, sample: Sample) -> None:
        """Tell people of a drain once, and again when its words change or when they are new."""
        drained = self.drain_file.now
        if not drained.draining:
            self._told = frozenset()
            return
        words = announcement(self.name, drained)
        staying = (each for each in sample.sessions if each.key not in self._turned_away)
        fresh = {f"{session.key} {words}": session for session in staying if session.ttys}
        for key, session in fresh.items():
            if key not in self._told:
                self._say(session, words)
        others = {
            f"{uid} {tty} {words}": (tty, uid)
            for tty, uid in own_terminals(sample.processes, sample.sessions).items()
        }
        for key, (tty, uid) in others.items():
            if key not in self._told:
                self.hands.tell((tty,), words, uid)
        self._told = frozenset({*fresh, *others})

    def _close_idle(self, rules: IdleSessions, sample: Sample) -> None:
        sessions = tuple(session for session in sample.sessions if not self.exempt(session.user))
        typed = self.hands.typed_at([tty for session in sessions for tty in session.ttys])
        self._watched, acts = watch(sessions, self._watched, typed, (sample.at, sample.now), rules)
        for session in sessions:
            if session.key in acts:
                self._act_on_idle(acts[session.key], session, rules)

    def _act_on_idle(self, act: Act, session: OpenSession, rules: IdleSessions) -> None:
        if act == "warn":
            self._say(session, warning(session, rules))
        elif self.hands.end(session):
            self.ended += 1
            _log.info("closed the idle session %s of %s", session.key, session.user)

    def _say(self, session: OpenSession, words: str) -> None:
        """Tell somebody in a session: at a terminal that is another person's by now, nothing.

        sshd gives a terminal to the person; Session Manager's may be root's, so nobody can tell whose it is.
        """
        self.hands.tell(session.ttys, words, session.uid if session.kind == "ssh" else None)

    def tell_user(self, user: str, message: str) -> None:
        """Tell a person something on all their terminals here."""
        sessions = self.sample.sessions if self.sample else ()
        for session in sessions:
            if session.user == user and session.ttys:
                self._say(session, message)
        if self.sample:
            for tty, uid in own_terminals(self.sample.processes, sessions).items():
                if user_name(uid) == user:
                    self.hands.tell((tty,), message, uid)

    @property
    def node(self) -> Node:
        """This node as placement sees it."""
        sample = self.sample
        draining, closed = self.drain_file.now.draining, self.standing != "open"
        if sample is None:
            return Node(self.name, draining=draining)
        load, count = sample.load, len(sample.sessions)
        return Node(self.name, count, load.cpus, load.cpu, load.memory, draining, closed=closed)

    def has(self, user: str) -> bool:
        """Whether somebody has a session here that stays, also one that begins, or a tmux or screen."""
        sample = self.sample
        sessions = [each for each in sample.sessions if each.key not in self._turned_away] if sample else []
        waiting = (owner for _, owner in detached(sample.processes)) if sample else ()
        begun = (claim.user for claim, _ in self.claims.beginning(()))
        return user in {*(each.user for each in sessions), *waiting, *begun}

    def check(self) -> str:
        """What HAProxy is answered."""
        return check_answer(self.node, self.policy, self.standing)

    def status(self, uid: int = 0) -> dict[str, Any]:
        """What the node's own people may know: how it stands, and who is on it.

        Args:
            uid: who asks: where others came from is for root only (docs/decisions/0144).
        """
        drained, node = self.drain_file.now, self.node
        sessions = self.sample.sessions if self.sample else ()
        silent = self.reporter.silent_since
        return {
            "node": self.name,
            "state": self.policy.state(node),
            "sshd": self.standing,
            "draining": drained.draining,
            "drained_here": drained.here.draining,
            "why": drained.why,
            "cpu": round(node.cpu, 3),
            "memory": round(node.memory, 3),
            "service_answers": silent is None,
            "sessions": [
                {"claim": each.key, "user": each.user, "kind": each.kind, "since": each.since,
                 "origin": each.source if uid in (0, each.uid) else "", "ttys": list(each.ttys)}
                for each in sessions
            ],
        }  # fmt: skip


def refusal(node: str, drained: Drained) -> str:
    """What somebody is told who comes to a drained node and has nothing there."""
    why = f": {drained.why}" if drained.why else ""
    return (
        f"{node} takes no new sessions{why}. Please log in on another login node: hp-login finds one "
        f"(hp-login --not {node} where it comes back to this one)."
    )


def announcement(node: str, drained: Drained) -> str:
    """What people on a drained node are told."""
    why = f": {drained.why}" if drained.why else ""
    return (
        f"{node} takes no new sessions{why}. Please finish what you do here and log in again, which "
        "brings you to another login node. Batch jobs are not touched; srun and salloc end with the session."
    )

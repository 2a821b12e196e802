"""Care, carried out: who uses how much, what the kernel and the person are told of it."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from hpctools.errors import CommandTimeout, HpctoolsError
from hpctools.login.agent.accounts import user_name
from hpctools.login.agent.limited import remember, remembered
from hpctools.login.agent.moving import Mover
from hpctools.login.agent.pausing import Pause
from hpctools.login.agent.processes import Process
from hpctools.login.agent.reminding import Notice
from hpctools.login.agent.sample import Sample
from hpctools.login.agent.slices import Slices, held
from hpctools.login.agent.usage import Usage, usage
from hpctools.login.care import Limits, Reach, Standing, excess, limits, message, reminder, step
from hpctools.site.login_care import Care

_log = logging.getLogger("hpctools.login")

_SETTING_SECONDS = 5.0
"""So long one look sets limits: where everybody has one, an agent that begins has hundreds to set."""
Tell = Callable[[str, str], object]
"""Tells a user something."""


class Carer:
    """Keeps people to their part of a node.

    Args:
        tell: tells a user something, wherever they are.
        exempt: whether this user is left alone.
        memory: a file that says who is limited, for the next agent should this one be killed; none when None.
        held: bytes that a person's slice holds, if somebody knows.
        monotonic: seconds, never going back.
        mover: puts people's programs where limits hold; nobody does when None.
    """

    def __init__(
        self,
        care: Care,
        slices: Slices,
        tell: Tell,
        exempt: Callable[[str], bool],
        memory: Path | None = None,
        held: Callable[[int], int | None] = held,
        monotonic: Callable[[], float] = time.monotonic,
        mover: Mover | None = None,
    ) -> None:
        self._held, self._mover = held, mover
        self._monotonic = monotonic
        self._pause = Pause("systemd", "nobody's limits change meanwhile")
        self._set_until = 0.0
        self._care, self._slices, self._tell, self._exempt = care, slices, tell, exempt
        self._memory = memory
        self._standings: dict[int, Standing] = {}
        # None: unknown, as what an earlier agent told, and what was begun and nobody knows how it ended.
        self._told: dict[int, Limits | None] = {}
        self._wanted: set[int] = set()  # whom the last look wanted limited
        self._reasons: dict[int, tuple[float, int, str]] = {}
        self._theirs: Mapping[int, Sequence[Process]] = {}
        self.penalties = 0

    def look(self, before: Sample, after: Sample) -> None:
        """Take in what happened between two samples."""
        seconds = after.at - before.at
        if seconds <= 0:
            return
        if not self._pause.lasts(self._monotonic()):
            self._lift_unknown()
        self._wanted.clear()
        if self._mover is not None:
            self._mover.look(after.processes, self._pause)
        self._theirs = _by_person(after.processes)
        found = usage(before.processes, after.processes, seconds, self._care.ignored)
        people = {
            uid: self._once(uid, used) for uid, used in found.items() if not self._exempt(user_name(uid))
        }
        self._set_until = self._monotonic() + _SETTING_SECONDS
        for uid in dict.fromkeys((*self._standings, *people)):  # whose penalty may end are first
            self._step(uid, people.get(uid, Usage(0.0, 0)), seconds, after)
        self._forget(after.processes)

    def _once(self, uid: int, used: Usage) -> Usage:
        """What forked workers share is counted in each of them; the kernel knows what it is in all.

        It knows of those in the slice; what runs elsewhere is added, and what others had there before.
        """
        held = self._held(uid)
        if held is None or held >= used.memory:
            return used
        theirs = [each for each in self._theirs.get(uid, ()) if each.name not in self._care.ignored]
        held += sum(each.memory for each in self._slices.outside(uid, theirs))
        held += self._mover.brought(theirs) if self._mover is not None else 0
        return replace(used, memory=min(used.memory, held))

    def _reach(self, uid: int) -> Reach:
        """What of a person's programs their limits reach, of those that count."""
        theirs = [each for each in self._theirs.get(uid, ()) if each.name not in self._care.ignored]
        missed = self._slices.outside(uid, theirs)
        if not missed:
            return Reach()
        most = max(missed, key=lambda each: (each.cpu_ticks, -each.pid))
        return Reach(f"{most.name} (process {most.pid})", len(missed) == len(theirs))

    def _step(self, uid: int, used: Usage, seconds: float, sample: Sample) -> None:
        before = self._standings.get(uid, Standing())
        after = step(before, excess(used.cpus, used.memory, self._care), seconds, sample.at, self._care)
        # What is not carried out begins again at the next look: nobody is told of a limit that there is not.
        if not self._limit(uid, limits(after, self._care), sample.processes):
            return
        self._standings[uid] = after
        reason = (used.cpus, used.memory, used.most)
        if after.level > before.level:
            self.penalties += 1
            self._reasons[uid] = reason
        if after.level != before.level:
            _log.info("%s: penalty level %d (%s)", user_name(uid), after.level, used)
            reach, memory = self._reach(uid), self._slices.holds_memory
            words = message(before, after, sample.at, self._care, reason, holds_memory=memory, reach=reach)
            self._say(user_name(uid), words, reach)
        if not after.level:
            self._reasons.pop(uid, None)
        if after.is_clean:
            del self._standings[uid]

    def _say(self, user: str, words: str | None, reach: Reach) -> None:
        if reach.missed:
            what = "nothing" if reach.is_none else "not all"
            _log.warning("the limits of %s reach %s that runs: not %s", user, what, reach.missed)
        if words is not None:
            self._tell(user, words)

    def _limit(self, uid: int, wanted: Limits, processes: Iterable[Process]) -> bool:
        is_told = wanted == self._told.get(uid, Limits())
        if wanted != Limits():
            self._wanted.add(uid)
        elif uid in self._told and self._told[uid] is None:
            # Lifted at the next look; who was told of a limit hears then that it is over.
            return not self._standings.get(uid, Standing()).level
        if is_told and (self._slices.adopts or wanted == Limits()):
            return True
        # Of all processes, for each person: only where they have to be put into the limit one by one.
        theirs = [] if self._slices.adopts else [each for each in processes if each.uid == uid]
        if not theirs and not self._slices.adopts:
            return True
        if not self._set(uid, wanted, theirs):
            return False
        self._told[uid] = wanted
        self._remember()
        return True

    def _set(self, uid: int, wanted: Limits, theirs: Iterable[Process]) -> bool:
        """Have the limits set; not by what hung a moment ago: each time it would take seconds of a look.

        Nor when this look has set limits for long enough: the node's next report would be late.
        """
        if self._pause.lasts(self._monotonic()) or self._monotonic() > self._set_until:
            return False
        if wanted != self._told.get(uid, Limits()):
            # What fails, or is broken off by a kill, may count all the same, now or later.
            self._told[uid] = None
            self._remember()
        try:
            self._slices.limit(uid, wanted, theirs)
        except CommandTimeout as error:
            self._pause.hung(self._monotonic(), error)
            return False
        except (HpctoolsError, OSError) as error:
            _log.error("the limits of %s cannot be set: %s", user_name(uid), error)
            return False
        self._pause.answered()
        return True

    def release(self) -> None:
        """Lift all limits, also those that an agent before this one left; for its beginning and end."""
        self._lift(sorted({*self._told, *remembered(self._memory), *self._slices.left()}))
        self._remember()

    def _lift_unknown(self) -> None:
        """Lift what nobody knows, all in one go; whoever is to be limited is soon set anew."""
        unknown = [uid for uid, told in self._told.items() if told is None and uid not in self._wanted]
        if unknown:
            self._lift(unknown)
            self._remember()

    def _lift(self, uids: Sequence[int]) -> None:
        """Lift all limits of these; what stays is lifted at the next look, or by the next agent."""
        failed = self._slices.lift(uids)
        for uid in uids:
            if uid in failed:
                self._told[uid] = None
            else:
                self._told.pop(uid, None)
        hung = next((error for error in failed.values() if isinstance(error, CommandTimeout)), None)
        if hung is not None:
            self._pause.hung(self._monotonic(), hung)
        for uid, error in failed.items():
            if not isinstance(error, CommandTimeout):
                _log.error("the limits of %s cannot be lifted: %s", user_name(uid), error)

    def _remember(self) -> None:
        remember(self._memory, (uid for uid, limit in self._told.items() if limit != Limits()))

    def _forget(self, processes: Iterable[Process]) -> None:
        """Who comes back has processes that are in no limit, unless the limit adopts them: that one is kept.

        systemd keeps what it was told of a slice after its person has left: it is lifted like all others.
        """
        if self._slices.adopts:
            return
        here = {process.uid for process in processes}
        gone = [uid for uid in self._told if uid not in here]
        for uid in gone:
            del self._told[uid]
        if gone:
            self._remember()

    def notices(self, now: float) -> Mapping[str, Notice]:
        """What people under a penalty are to know, by their names.

        Args:
            now: the time of the last sample.
        """
        memory = self._slices.holds_memory
        return {
            user_name(uid): Notice(
                f"{standing.level} until {standing.until}",
                reminder(
                    standing, now, self._care, self._reasons[uid], holds_memory=memory, reach=self._reach(uid)
                ),
            )
            for uid, standing in self._standings.items()
            if standing.level and uid in self._reasons
        }

    @property
    def standings(self) -> Mapping[str, Standing]:
        """How those stand who are not clean."""
        known = list(self._standings.items())  # who looks up names, in another thread, waits: they change
        return {user_name(uid): standing for uid, standing in known}


def _by_person(processes: Iterable[Process]) -> Mapping[int, Sequence[Process]]:
    found: dict[int, list[Process]] = {}
    for process in processes:
        found.setdefault(process.uid, []).append(process)
    return found


def lift_left(slices: Slices, memory: Path) -> None:
    """Lift what an agent before this one has limited, where this one limits nobody.

    Args:
        memory: as of `Carer`.
    """
    failed = slices.lift(sorted({*remembered(memory), *slices.left()}))
    for uid, error in failed.items():
        _log.error("the limits of %s cannot be lifted: %s", user_name(uid), error)
    remember(memory, failed)

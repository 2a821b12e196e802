"""Which ranks run: the pure heart of restart mode.

A *generation* is a set of nodes in rank order, and one process of the user's script for each of its workers.
It ends as a whole and the next one begins from the script's own checkpoint:

- planned (a node has to go, or more are there): the ranks are told of an event at one call (`agreement`),
  save and end by themselves; who does not within the time that there is gets SIGTERM, then SIGKILL. A script
  that never asks for events gets SIGTERM at once, as from torchrun.
- not planned (a rank ended badly, a node vanished): the others are ended, too: they wait for it in vain.

No generation begins before all ranks of the one before have ended: they write the same checkpoints. Nothing
here waits, reads a clock or talks: methods take what happened and leave effects in `effects`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from hpctools.elastic.growth import NEVER
from hpctools.elastic.growth_history import GrowthHistory
from hpctools.elastic.restart.adoption import LAST_SECONDS, Adoption, StepsKnown
from hpctools.elastic.restart.budget import Charge
from hpctools.elastic.restart.effects import Formed, Release, Tell
from hpctools.elastic.restart.ending import Ending
from hpctools.elastic.restart.limits import Limits, term_within
from hpctools.elastic.restart.record import Record


class Generations(Ending):
    """The state machine of a run's generations.

    Args:
        not_before: no generation begins earlier; a new coordinator gives those that run the time to report.
        history: how long replicas stayed, on the clock of the methods' `now`; None: not known.
        charges: restarts after crashes that earlier coordinators counted, on the same clock.
        steps: what they have told of steps; None: nothing.

    Attributes:
        restarts: after crashes.
    """

    def __init__(
        self,
        limits: Limits,
        not_before: float = NEVER,
        history: GrowthHistory | None = None,
        charges: Iterable[Charge] = (),
        steps: StepsKnown | None = None,
    ) -> None:
        super().__init__(limits, history, charges)
        self._adoption: Adoption | None = None
        self._not_before = self._all_heard = not_before
        self._steps_known = steps or StepsKnown()  # until it is known which are of the generation that is on
        self._lost_at = NEVER

    # What agents report

    def joined(
        self, agent: str, order: tuple[int, ...], now: float, running: Mapping[str, Any] | None = None
    ) -> None:
        """An agent has come, or has come back to a new coordinator.

        Args:
            running: what runs under it, or ran last (`NodeRanks.report`).
        """
        self._roster.add(agent, order, now)
        self._all_heard = min(self._all_heard, now + LAST_SECONDS)
        if self.phase == "offering" and agent in self.members:
            self._abandon()  # the offer may have been lost on a line that broke
        if running:
            self._hear_of(agent, running, now)
        self.tick(now)

    def gone(self, agent: str, now: float) -> None:
        """An agent has vanished, and with it its ranks."""
        unforeseen, record = self._roster.remove(agent), self._record
        if self._adoption is not None:
            self._adoption.forget(agent, now, unforeseen=unforeseen)
        elif record is not None and agent in record.members:
            self._lost_at = now if unforeseen else self._lost_at
            if self.phase == "offering":
                self._abandon()
            elif not record.over(agent):
                self._lose(agent, now)
        self.tick(now)

    def _lose(self, agent: str, now: float) -> None:
        """A member's ranks are gone, or never were there."""
        record = self._record
        if record is None:
            return
        record.drop(agent)
        record.recovered |= self.phase == "running"
        if self._closes_at is None or self.phase != "telling":
            self._end(now, self._limits.term)
        elif self._agreement is not None and not self._agreement.committed:
            # The others save before the run ends, and have no more time.
            self._agreement.forget(agent)
            self._heed_agreement(record, self._agreement, now)
        self._close_if_over(now)

    def leaving(self, agent: str, deadline: float, now: float) -> None:
        """A node has to go: its ranks must have ended by then."""
        if self._roster.must_leave(agent, deadline):
            if self.phase == "offering" and agent in self.members:
                self._abandon()
            self.tick(now)

    def offered(self, agent: str, generation: int, host: str, port: int, now: float) -> None:
        """Rank 0's node has a free port."""
        record = self._on(agent, generation)
        if record is None or self.phase != "offering":
            return
        self.phase = "running"
        rendezvous = {"host": host, "port": port, "members": list(record.members)}
        counts = {"restarts": self.restarts, "max_restarts": self._limits.restarts}
        for place, member in enumerate(record.members):
            self._tell(member, "begin", place=place, **rendezvous, **counts)
        self.tick(now)

    def began(self, agent: str, generation: int, now: float) -> None:
        """An agent has started all its ranks."""
        record = self._on(agent, generation)
        if record is None:
            return
        record.began.add(agent)
        if record.began == set(record.members) and "began" not in record.times:
            record.times["began"] = now
            before = self._last.members if self._last is not None else ()
            self._do(Formed(record.number, record.members, before, self.restarts))
            self._measure(now)

    def counted(self, agent: str, generation: int, counts: Mapping[str, Any], now: float) -> None:
        """An agent's ranks have asked so often: by place on the node, the calls and the one that told."""
        record = self._on(agent, generation)
        if record is not None:
            record.observe(agent, counts, now)
            self._measure(now)

    def answered(
        self, agent: str, generation: int, call: int, now: float, *, bound: bool, calls: int
    ) -> None:
        """An agent has bound its ranks to a call, or could not."""
        record, agreement = self._on(agent, generation), self._agreement
        if record is None or agreement is None or self.phase != "telling":
            return
        record.most = max(record.most, calls)
        if agreement.answered(agent, call, bound=bound):
            self._propose(record, agreement, record.calls)
        else:
            self._heed_agreement(record, agreement, now)
        self.tick(now)

    def ended(
        self,
        agent: str,
        generation: int,
        local: int,
        code: int,
        told: int,
        said: Sequence[str],
        now: float,
        *,
        ago: float = 0.0,
        ours: bool = False,
    ) -> None:
        """A rank has ended.

        Args:
            said: its last lines, oldest first.
            ago: seconds since then, when its agent told.
            ours: whether its agent had ended it because it was told to.
        """
        record = self._on(agent, generation)
        if record is None:
            return
        rank = record.ranks[agent, local]
        rank.code, rank.told = code, rank.told or told
        if self._adoption is not None:
            self._adoption.note_end(now - ago)
        if code != 0 and not ours and self._roster.stays(agent):
            self._note_bad_end(record, agent, local, said, now - ago)
        if code != 0 and self.phase in ("running", "telling") and not rank.told:
            record.recovered |= self.phase == "running"
            self._end(now, self._limits.term)  # the others would wait for it in vain
        self._close_if_over(now)
        self.tick(now)

    def restart(self, reason: str, now: float) -> None:
        """Somebody that watches the run wants all ranks started again; it counts as a crash."""
        if self._record is not None and self.phase in ("running", "telling"):
            self._record.charged, self._record.recovered = reason, True
            self._end(now, self._limits.term)

    def finish(self, now: float, seconds: float) -> None:
        """The run ends: its ranks are told of an event as ever, and nothing begins any more.

        Args:
            seconds: until all must have ended; SIGTERM and SIGKILL come before that.
        """
        if self._closes_at is None:
            self._closes_at = now + seconds
            self.tick(now)

    # What follows

    def tick(self, now: float) -> None:
        """Do what the time or the nodes that there are ask for."""
        if self.phase == "adopting":
            self._adopt_if_complete(now)
        elif self.phase == "telling" and self._limit is not None and now >= self._limit:
            self._end(now, self._limits.term)
        if self._closes_at is not None:
            self._close(now, self._closes_at)
        if self.phase in ("running", "telling"):
            self._heed_leavers(now)
        if self.phase == "running":
            self._grow_if_worth(now)
        if self.phase == "waiting":
            self._form_if_possible(now)
        self._release_idle()

    # A generation begins

    def _form_if_possible(self, now: float) -> None:
        wanted = self._roster.wanted()
        if not wanted:
            self._say_that_we_wait()
        before = len(self._last.members) if self._last else None
        if not wanted or now < max(self._not_before, self._roster.ready_at(before, self._lost_at)):
            return
        self._waits = None
        self.generation = max(self.generation, self._steps_known.generation) + 1
        self._steps, self._steps_known = self._steps + self._steps_known.all, StepsKnown()
        self._record = Record(self.generation, wanted, self._limits.per_node, times={"formed": now})
        self.phase = "offering"
        self._tell(wanted[0], "offer")

    def _abandon(self) -> None:
        """The generation had no process yet."""
        self._record, self.phase = None, "waiting"

    # A generation has to end

    def _heed_leavers(self, now: float) -> None:
        soonest = self._roster.soonest(self.members)
        if soonest is None:
            return
        if self.phase == "running":
            self._announce(now)
        if self.phase == "telling":
            self._end_by(soonest - term_within(soonest - now))

    def _close(self, now: float, until: float) -> None:
        """The run ends: what is on is told, and what has not begun does not.

        A new coordinator hears first what is on.
        """
        if self.phase == "running":
            self._announce(now)
        if self.phase == "telling":
            self._end_by(until - term_within(until - now))
        elif self.phase == "offering" or (self.phase == "waiting" and now >= min(self._all_heard, until)):
            self._record, self.phase = None, "over"

    def _grow_if_worth(self, now: float) -> None:
        record, wanted = self._record, self._roster.wanted()
        if record is None or "began" not in record.times:
            return
        came = self._roster.arrivals(except_for=record.members)
        grow, decided = self._growing.decide(now, record, len(wanted), came)
        if decided is not None:
            self._do(decided)
        if grow:
            self._announce(now)

    def _release_idle(self) -> None:
        """A node that has to go and has nothing to end is let go."""
        undecided = self._agreement is not None and not self._agreement.committed
        for agent in self._roster.leavers():
            record = self._record
            if record is None or agent not in record.members or (record.over(agent) and not undecided):
                self._roster.remove(agent)
                self._do(Release(agent))

    # A new coordinator

    def _hear_of(self, agent: str, running: Mapping[str, Any], now: float) -> None:
        """An agent tells what a coordinator that is gone had begun there."""
        number, runs = int(running["generation"]), bool(running["ranks"])
        if self._adoption is not None:
            unforeseen = self._roster.stays(agent)
            self._adoption.heard_again(agent, number, now, unforeseen=unforeseen)
        if self._goes_on(agent, number, running, now):
            return
        if runs and self.phase in ("waiting", "adopting") and number > self.generation:
            for each in self._adoption.running if self._adoption is not None else ():
                self._tell(each, "end", seconds=0.0)  # it was cut off, and the others had gone on
            adoption = Adoption(running, self._limits.per_node, now, counted=self._budget.last == number)
            self._adoption, self._record, self.phase = adoption, adoption.record, "adopting"
            self.restarts = max(self.restarts, adoption.restarts)
        self.generation = max(self.generation, number)
        if runs and not (self._adoption is not None and self._adoption.add(agent, running, now)):
            self._do(Tell(agent, {"kind": "ranks", "do": "end", "generation": number, "seconds": 0.0}))

    def _goes_on(self, agent: str, number: int, running: Mapping[str, Any], now: float) -> bool:
        """Whether only a member's line was broken: what was under way on it, both ways, is told again.

        While the run ends, ranks that were given up with their agent save as they were told.
        """
        record = self._record
        if (
            record is None
            or agent not in record.members
            or self.phase not in ("running", "telling", "ending")
        ):
            return False
        if self._closes_at is not None and self.phase != "running" and number == record.number:
            record.heard(agent, running["ranks"], now)
        elif record.over(agent) or number > record.number:
            return False
        elif number < record.number:
            self._lose(agent, now)  # its ranks never began
            return False
        self.began(agent, number, now)
        self._hear_of_ends(record, agent, running, now)
        self._tell_again(agent, now)
        self._close_if_over(now)
        return True

    def _hear_of_ends(self, record: Record, agent: str, running: Mapping[str, Any], now: float) -> None:
        """What its ranks have done while nobody heard of it."""
        counts = {local: (calls, told) for local, (calls, told, _, _) in running["ranks"].items()}
        record.observe(agent, counts, now)
        ends = {int(local): how for local, how in running.get("ends", {}).items()}
        for local, (_, told, code, said) in running["ranks"].items():
            if code is not None and record.ranks[agent, int(local)].code is None:
                ago, ours = ends.get(int(local), (0.0, False))
                self.ended(
                    agent,
                    record.number,
                    int(local),
                    code,
                    told,
                    [said] if said else [],
                    now,
                    ago=ago,
                    ours=ours,
                )

    def _tell_again(self, agent: str, now: float) -> None:
        record, agreement = self._record, self._agreement
        if record is None:
            return
        if self.phase == "ending":
            left = self._limits.term if self._closes_at is None else max(0.0, self._closes_at - now)
            self._tell(agent, "end", seconds=min(self._limits.term, left))
        elif self.phase == "telling" and agreement is not None and agreement.committed:
            self._tell(agent, "commit", call=agreement.call)
        elif self.phase == "telling" and agreement is not None:
            self._propose(record, agreement, record.calls)

    def _adopt_if_complete(self, now: float) -> None:
        adoption, record, closing = self._adoption, self._record, self._closes_at is not None
        if adoption is None or record is None or not adoption.is_due(now, closing=closing):
            return
        self._adoption, self.phase = None, "running"
        self._lost_at = max(self._lost_at, adoption.lost_at)
        has_crashed = record.broken
        adoption.give_up_missing()
        has_crashed |= record.broken and not closing  # else the others save without those that are missing
        self._steps = self._steps_known.before_generation(record.number, record.calls)
        self._steps_known = StepsKnown()
        if adoption.ending or adoption.committed or record.broken or record.over():
            adoption.date_the_end()
        if adoption.ending or has_crashed:
            record.recovered = True
            self._end(now, self._limits.term)
        elif adoption.committed:
            self.phase, self._agreement = "telling", None
            self._commit(record, adoption.committed, now)
        else:
            self._do(Formed(record.number, record.members, record.members, self.restarts))
            for member in record.members:
                self._tell(member, "withdraw")
        self._close_if_over(now)
